//! The rows of `inventory`: what was applied, and how the observer found it.

use std::sync::Arc;

use decklog_schemas::data::{AppliedItem, Health, HealthAssessed, Item, ItemApplied, ItemPruned};
use decklog_schemas::{Reason, Seconds, Sequence};
use hashbrown::HashTable;
use serde::{Deserialize, Serialize};

use super::At;
use super::held::Waiting;
use super::saved::SavedRow;
use super::strings::{ItemKey, ItemRef, Recent, message, share_at_hand};
use super::uid::Uid;
use crate::keyed::{Keyed, Table, forget, position, relocate};

/// One object of the release.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) key: ItemKey,
    pub(crate) version: Arc<str>,
    pub(crate) render: Arc<str>,
    pub(crate) wave: i64,
    pub(crate) uid: Option<Uid>,
    pub(crate) health: Option<HealthOf>,
    /// Set version, render and wave.
    pub(crate) applied_by: Sequence,
    /// Set the uid.
    pub(crate) uid_by: Option<Sequence>,
}

/// The last assessment of an object.
#[derive(Clone, Debug)]
pub(crate) struct HealthOf {
    pub(crate) state: Health,
    pub(crate) assessed: Arc<str>,
    pub(crate) first_unhealthy: Option<Seconds>,
    pub(crate) message: Option<Box<str>>,
    /// Set all but `first_unhealthy`.
    pub(crate) by: Sequence,
    /// Set `first_unhealthy`.
    pub(crate) unhealthy_by: Sequence,
}

/// An assessment without a row.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HeldHealth {
    key: ItemKey,
    uid: Option<Uid>,
    assessment: Assessment,
    since: Sequence,
}

/// What an assessment says, whenever it is folded.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Assessment {
    state: Health,
    render: Arc<str>,
    first_unhealthy: Option<Seconds>,
    message: Option<Box<str>>,
    at: At,
}

/// All rows of one incarnation, found by key and by uid, and the assessments that wait for a row.
#[derive(Clone, Debug, Default)]
pub(crate) struct Items {
    rows: Table<Row>,
    by_uid: HashTable<u32>,
    held: Table<HeldHealth>,
    recent: Recent,
}

impl Items {
    pub(crate) fn applied(&mut self, event: &ItemApplied<'_>, at: At) -> Result<(), Reason> {
        let key = ItemRef::from(&event.item);
        let uid = event.uid.as_deref().map(Uid::from);
        let found = self.at_key(key);
        let moved = self.moved(found, uid.as_ref()).map(|moved| self.remove(moved));
        // Taking a row out may have moved the one that was found.
        let found = if moved.is_some() { self.at_key(key) } else { found };
        let position = found.unwrap_or_else(|| {
            let row = self.new_row(key, uid.clone(), event, at);
            self.insert(row)
        });
        if found.is_some() || moved.is_some() {
            self.update(position, uid, event, moved, at);
        }
        self.fold_held(position);
        Ok(())
    }

    pub(crate) fn pruned(&mut self, event: &ItemPruned<'_>) -> Result<(), Reason> {
        let key = ItemRef::from(&event.item);
        let Some(position) = self.at_key(key) else {
            self.drop_held(key);
            return Err(Reason::UnknownItem);
        };
        let uid = event.uid.as_deref().map(Uid::from);
        if differ(uid.as_ref(), self.rows.row(position).uid.as_ref()) {
            return Err(Reason::StaleUid);
        }
        self.remove(position);
        self.drop_held(key);
        Ok(())
    }

    pub(crate) fn assessed(&mut self, event: &HealthAssessed<'_>, at: At) -> Result<(), Reason> {
        let key = ItemRef::from(&event.item);
        let uid = event.uid.as_deref().map(Uid::from);
        let position = uid.as_ref().and_then(|uid| self.at_uid(uid)).or_else(|| self.at_key(key));
        let Some(position) = position else {
            let assessment = Assessment::of(event, self.recent.share(&event.assessed_render_ref), at);
            self.held.hold(HeldHealth { key: key.to_key(), uid, assessment, since: at.sequence });
            return Err(Reason::UnknownItem);
        };
        let row = self.rows.row(position);
        if differ(uid.as_ref(), row.uid.as_ref()) {
            return Err(Reason::StaleUid);
        }
        let is_assessed = row.health.as_ref().is_some_and(|health| health.assessed == row.render);
        if is_assessed && *event.assessed_render_ref != *row.render {
            return Err(Reason::StaleRender);
        }
        let render = share_at_hand(&mut self.recent, &row.render, &event.assessed_render_ref);
        self.rows.row_mut(position).assess(Assessment::of(event, render, at));
        Ok(())
    }

    pub(crate) fn rows(&self) -> &[Row] {
        self.rows.rows()
    }

    pub(crate) fn held(&self) -> &[HeldHealth] {
        self.held.rows()
    }

    /// Puts rows back that were saved; strings that repeat are shared again.
    pub(crate) fn restore(rows: &[SavedRow<'_>], held: Vec<HeldHealth>) -> Self {
        let mut items = Self { held: held.into_iter().collect(), ..Self::default() };
        items.rows.reserve(rows.len());
        for saved in rows {
            let row = saved.to_row(&mut items.recent);
            items.insert(row);
        }
        items
    }

    /// The same object under another key. No two rows have one uid, so the row that was found is not looked for again.
    fn moved(&self, found: Option<usize>, uid: Option<&Uid>) -> Option<usize> {
        let uid = uid?;
        if found.is_some_and(|found| self.rows.row(found).uid.as_ref() == Some(uid)) {
            return None;
        }
        self.at_uid(uid)
    }

    fn new_row(&mut self, key: ItemRef<'_>, uid: Option<Uid>, event: &ItemApplied<'_>, at: At) -> Row {
        Row {
            key: key.to_key(),
            version: self.recent.share(&event.item.version),
            render: self.recent.share(&event.render_ref),
            wave: event.wave,
            uid_by: uid.as_ref().map(|_| at.sequence),
            uid,
            health: None,
            applied_by: at.sequence,
        }
    }

    /// Folds an ItemApplied into the row of its key; `moved` is the same object under the key that it had before.
    fn update(&mut self, position: usize, uid: Option<Uid>, event: &ItemApplied<'_>, moved: Option<Row>, at: At) {
        let row = self.rows.row_mut(position);
        let render = share_at_hand(&mut self.recent, &row.render, &event.render_ref);
        if *row.version != *event.item.version {
            row.version = self.recent.share(&event.item.version);
        }
        if differ(uid.as_ref(), row.uid.as_ref()) {
            row.health = None;
        }
        let mut before = Arc::clone(&row.render);
        if let Some(Row { health: Some(health), render, .. }) = moved {
            row.health = Some(health);
            before = render;
        }
        let has_come_back = *before != *render && row.health.as_ref().is_some_and(|health| *health.assessed == *render);
        if has_come_back {
            row.health = None;
        }
        row.render = render;
        row.wave = event.wave;
        row.applied_by = at.sequence;
        if let Some(uid) = uid {
            self.set_uid(position, uid, at.sequence);
        }
    }

    fn set_uid(&mut self, position: usize, uid: Uid, by: Sequence) {
        let row = self.rows.row_mut(position);
        row.uid_by = Some(by);
        if row.uid.as_ref() == Some(&uid) {
            return;
        }
        if let Some(old) = row.uid.replace(uid) {
            forget(&mut self.by_uid, old.hash(), position);
        }
        self.index_uid(position);
    }

    fn fold_held(&mut self, position: usize) {
        let row = self.rows.row(position);
        let key = row.key.of();
        if self.held.len() == 0 {
            return;
        }
        let Some(held_at) = self.held.find(key.hash(), |held| held.key.of() == key) else { return };
        let held = self.held.row(held_at);
        if differ(held.uid.as_ref(), row.uid.as_ref()) || held.assessment.render != row.render {
            return;
        }
        let held = self.held.remove(held_at);
        self.rows.row_mut(position).assess(held.assessment);
    }

    fn drop_held(&mut self, key: ItemRef<'_>) {
        if let Some(at) = self.held.find(key.hash(), |held| held.key.of() == key) {
            self.held.remove(at);
        }
    }

    fn at_key(&self, key: ItemRef<'_>) -> Option<usize> {
        self.rows.find(key.hash(), |row| row.key.of() == key)
    }

    fn at_uid(&self, uid: &Uid) -> Option<usize> {
        let same = |at: &u32| self.rows.row(*at as usize).uid.as_ref() == Some(uid);
        self.by_uid.find(uid.hash(), same).map(|at| *at as usize)
    }

    fn insert(&mut self, row: Row) -> usize {
        let position = self.rows.insert(row);
        self.index_uid(position);
        position
    }

    fn remove(&mut self, at: usize) -> Row {
        if let Some(uid) = &self.rows.row(at).uid {
            forget(&mut self.by_uid, uid.hash(), at);
        }
        let last = self.rows.len() - 1;
        if at != last
            && let Some(uid) = &self.rows.row(last).uid
        {
            relocate(&mut self.by_uid, uid.hash(), last, at);
        }
        self.rows.remove(at)
    }

    fn index_uid(&mut self, at: usize) {
        let rows = &self.rows;
        let hash_of = |at: &u32| rows.row(*at as usize).uid.as_ref().map_or(0, Uid::hash);
        if let Some(uid) = &rows.row(at).uid {
            self.by_uid.insert_unique(uid.hash(), position(at), hash_of);
        }
    }
}

/// Whether both are known and are not the same.
pub(crate) fn differ<T: PartialEq + ?Sized>(one: Option<&T>, other: Option<&T>) -> bool {
    one.zip(other).is_some_and(|(one, other)| one != other)
}

impl Assessment {
    fn of(event: &HealthAssessed<'_>, render: Arc<str>, at: At) -> Self {
        Self {
            state: event.state,
            render,
            first_unhealthy: event.first_unhealthy,
            message: event.message.as_deref().map(message),
            at,
        }
    }
}

impl Row {
    fn assess(&mut self, new: Assessment) {
        let same_render = self.health.take().filter(|health| health.assessed == new.render);
        let kept = same_render.and_then(|health| Some((health.first_unhealthy?, health.unhealthy_by)));
        let by = new.at.sequence;
        let since = match new.state {
            Health::Healthy => None,
            Health::Unknown => kept,
            Health::Progressing | Health::Degraded => {
                new.first_unhealthy.map(|given| (given, by)).or(kept).or(Some((new.at.time, by)))
            }
        };
        self.health = Some(HealthOf {
            state: new.state,
            assessed: new.render,
            first_unhealthy: since.map(|(time, _)| time),
            message: new.message,
            by,
            unhealthy_by: since.map_or(by, |(_, by)| by),
        });
    }
}

impl Keyed for Row {
    fn key_hash(&self) -> u64 {
        self.key.of().hash()
    }
}

impl Keyed for HeldHealth {
    fn key_hash(&self) -> u64 {
        self.key.of().hash()
    }
}

impl Waiting for HeldHealth {
    fn since(&self) -> Sequence {
        self.since
    }

    fn same_key(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl<'e> From<&'e AppliedItem<'_>> for ItemRef<'e> {
    fn from(item: &'e AppliedItem<'_>) -> Self {
        Self { group: &item.group, kind: &item.kind, namespace: &item.namespace, name: &item.name }
    }
}

impl<'e> From<&'e Item<'_>> for ItemRef<'e> {
    fn from(item: &'e Item<'_>) -> Self {
        Self { group: &item.group, kind: &item.kind, namespace: &item.namespace, name: &item.name }
    }
}
