//! A release as a checkpoint holds it. Derived state: another [`super::Inventories`] version reads none of it and replays.

use decklog_schemas::data::Health;
use decklog_schemas::{ReleaseKey, Seconds, Sequence};
use serde::{Deserialize, Serialize};

use super::Deletion;
use super::hooks::{HeldEnd, Hook, Hooks};
use super::items::{HealthOf, HeldHealth, Items, Row};
use super::memory::{Memory, SavedMemory};
use super::release::{Live, Owed, Release};
use super::strings::{ItemRef, Recent, Sources};
use super::uid::Uid;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SavedRelease<'a> {
    key: ReleaseKey,
    memory: SavedMemory,
    incomplete: Option<Sequence>,
    folded: Option<Sequence>,
    owed: Option<Owed>,
    declared: bool,
    deletion: Deletion,
    tracked: Option<Sequence>,
    shard: Option<(Box<str>, Sequence)>,
    #[serde(borrow)]
    rows: Vec<SavedRow<'a>>,
    held_health: Vec<HeldHealth>,
    hooks: Vec<Hook>,
    held_ends: Vec<HeldEnd>,
}

/// A row, its strings borrowed: there are many more rows than anything else, and most of their strings are shared.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SavedRow<'a> {
    #[serde(borrow)]
    key: ItemRef<'a>,
    version: &'a str,
    render: &'a str,
    wave: i64,
    uid: Option<Uid>,
    #[serde(borrow)]
    health: Option<SavedHealth<'a>>,
    applied_by: Sequence,
    uid_by: Option<Sequence>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SavedHealth<'a> {
    state: Health,
    assessed: &'a str,
    first_unhealthy: Option<Seconds>,
    message: Option<&'a str>,
    by: Sequence,
    unhealthy_by: Sequence,
}

impl<'a> From<&'a Release> for SavedRelease<'a> {
    fn from(release: &'a Release) -> Self {
        let live = &release.live;
        Self {
            key: release.key.clone(),
            memory: release.memory.save(),
            incomplete: release.incomplete,
            folded: release.folded,
            owed: release.owed.clone(),
            declared: live.declared,
            deletion: live.deletion,
            tracked: live.tracked,
            shard: live.shard.clone(),
            rows: live.items.rows().iter().map(SavedRow::from).collect(),
            held_health: live.items.held().to_vec(),
            hooks: live.hooks.rows().to_vec(),
            held_ends: live.hooks.held().to_vec(),
        }
    }
}

impl SavedRelease<'_> {
    pub(crate) fn into_release(self, sources: &mut Sources) -> Release {
        Release {
            tokens: self.key.tokens().into(),
            key: self.key,
            memory: Memory::restore(self.memory, sources),
            live: Live {
                declared: self.declared,
                deletion: self.deletion,
                tracked: self.tracked,
                shard: self.shard,
                items: Items::restore(&self.rows, self.held_health),
                hooks: Hooks::restore(self.hooks, self.held_ends),
            },
            incomplete: self.incomplete,
            folded: self.folded,
            owed: self.owed,
        }
    }
}

impl<'a> From<&'a Row> for SavedRow<'a> {
    fn from(row: &'a Row) -> Self {
        let health = row.health.as_ref().map(|health| SavedHealth {
            state: health.state,
            assessed: &health.assessed,
            first_unhealthy: health.first_unhealthy,
            message: health.message.as_deref(),
            by: health.by,
            unhealthy_by: health.unhealthy_by,
        });
        Self {
            key: row.key.of(),
            version: &row.version,
            render: &row.render,
            wave: row.wave,
            uid: row.uid.clone(),
            health,
            applied_by: row.applied_by,
            uid_by: row.uid_by,
        }
    }
}

impl SavedRow<'_> {
    pub(crate) fn to_row(&self, recent: &mut Recent) -> Row {
        let health = self.health.as_ref().map(|health| HealthOf {
            state: health.state,
            assessed: recent.share(health.assessed),
            first_unhealthy: health.first_unhealthy,
            message: health.message.map(Box::from),
            by: health.by,
            unhealthy_by: health.unhealthy_by,
        });
        Row {
            key: self.key.to_key(),
            version: recent.share(self.version),
            render: recent.share(self.render),
            wave: self.wave,
            uid: self.uid.clone(),
            health,
            applied_by: self.applied_by,
            uid_by: self.uid_by,
        }
    }
}
