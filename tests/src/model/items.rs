//! What is known of an item before an event: its row, its health, and the assessment held for it.

use serde_json::Value;

use super::{
    History, REMEMBERED, contradict, present,
    reading::{field, text, uid},
    times::{Moment, moment},
};

/// Group, kind, namespace, name.
type Key<'a> = [&'a str; 4];

struct Row<'a> {
    /// The event that applied it last.
    applied: usize,
    render: &'a str,
    uid: Option<&'a str>,
}

struct Health<'a> {
    state: &'a str,
    render: &'a str,
    first_unhealthy: Option<Moment>,
    message: Option<&'a str>,
}

impl History {
    pub(super) fn why_not_pruned(&self, n: usize) -> Option<&'static str> {
        match self.row(self.key(n), n) {
            None => Some("unknown-item"),
            Some(row) => contradict(row.uid, self.uid(n)).then_some("stale-uid"),
        }
    }

    pub(super) fn why_not_assessed(&self, n: usize) -> Option<&'static str> {
        let Some(key) = self.assessed_key(n) else {
            return Some("unknown-item");
        };
        let row = self.row(key, n)?;
        let assesses_the_row = |render| render == row.render;
        let has_one = self.health(key, n).is_some_and(|health| assesses_the_row(health.render));
        if contradict(row.uid, self.uid(n)) {
            Some("stale-uid")
        } else if has_one && !assesses_the_row(self.assessed_render(n)) {
            Some("stale-render")
        } else {
            None
        }
    }

    /// The rows of the object before `n`.
    pub(super) fn item_rows(&self, n: usize) -> Vec<Value> {
        self.keys(n).into_iter().filter_map(|key| self.item_row(key, n)).collect()
    }

    fn item_row(&self, key: Key<'_>, n: usize) -> Option<Value> {
        let known = self.row(key, n)?;
        let health = self.health(key, n);
        let [group, kind, namespace, name] = key.map(|part| Some(part.into()));
        let applied = self.event(known.applied);
        let health = health.as_ref();
        Some(present([
            ("group", group),
            ("kind", kind),
            ("namespace", namespace),
            ("name", name),
            ("version", text(applied, "data/item/version").map(Value::from)),
            ("renderRef", Some(known.render.into())),
            ("wave", Some(field(applied, "data/wave").cloned().unwrap_or_else(|| 0.into()))),
            ("uid", known.uid.map(Value::from)),
            ("state", health.map(|health| health.state.into())),
            ("assessedRenderRef", health.map(|health| health.render.into())),
            ("firstUnhealthy", health.and_then(|health| health.first_unhealthy).map(Value::from)),
            ("message", health.and_then(|health| health.message).map(Value::from)),
        ]))
    }

    /// Every key that was applied before `n`, in the order of the object.
    fn keys(&self, n: usize) -> Vec<Key<'_>> {
        let folded = self.folded(n);
        let mut keys = folded.filter(|&i| self.name(i) == "ItemApplied").map(|i| self.key(i)).collect::<Vec<_>>();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// The row at `key` before `n`.
    fn row(&self, key: Key<'_>, n: usize) -> Option<Row<'_>> {
        let mut row: Option<Row<'_>> = None;
        for i in self.folded(n) {
            let known_uid = row.as_ref().and_then(|row| row.uid);
            match self.name(i) {
                "ItemApplied" if self.key(i) == key => {
                    let uid = self.uid(i).or(known_uid);
                    row = Some(Row { applied: i, render: self.render(i), uid });
                }
                "ItemApplied" if self.uid(i).is_some() && self.uid(i) == known_uid => row = None,
                "ItemPruned" if self.key(i) == key => row = None,
                _ => {}
            }
        }
        row
    }

    /// The key of the row that has this uid before `n`.
    fn key_of_uid(&self, uid: &str, n: usize) -> Option<Key<'_>> {
        let has_it = |key: &Key<'_>| self.row(*key, n).is_some_and(|row| row.uid == Some(uid));
        self.keys(n).into_iter().find(has_it)
    }

    /// The key of the row that assessment `n` is about.
    fn assessed_key(&self, n: usize) -> Option<Key<'_>> {
        let by_uid = self.uid(n).and_then(|uid| self.key_of_uid(uid, n));
        by_uid.or_else(|| self.row(self.key(n), n).map(|_| self.key(n)))
    }

    /// The health on the row at `key` before `n`.
    fn health(&self, key: Key<'_>, n: usize) -> Option<Health<'_>> {
        let last = self.folded(n).next_back()?;
        // With a row, the live incarnation before `n` is also the live one before `last`.
        self.row(key, n)?;
        match self.name(last) {
            "HealthAssessed" if self.assessed_key(last) == Some(key) => {
                Some(self.assessed(self.health(key, last), last))
            }
            "ItemApplied" if self.key(last) == key => self.health_after_apply(last),
            _ => self.health(key, last),
        }
    }

    /// The health that assessment `n` leaves on a row whose health was `before`.
    fn assessed(&self, before: Option<Health<'_>>, n: usize) -> Health<'_> {
        let event = self.event(n);
        let state = text(event, "data/state").unwrap_or_default();
        let render = self.assessed_render(n);
        let kept = before.filter(|before| before.render == render);
        let kept = kept.and_then(|before| before.first_unhealthy);
        let own = text(event, "data/firstUnhealthy").and_then(moment);
        let first_unhealthy = match state {
            "Healthy" => None,
            "Unknown" => kept,
            _ => own.or(kept).or_else(|| text(event, "time").and_then(moment)),
        };
        Health { state, render, first_unhealthy, message: text(event, "data/message") }
    }

    /// The health at the key of ItemApplied `n` once that is folded.
    fn health_after_apply(&self, n: usize) -> Option<Health<'_>> {
        let key = self.key(n);
        let at = |key| Some((self.row(key, n)?.render, self.health(key, n)?));
        let elsewhere = self.uid(n).and_then(|uid| self.key_of_uid(uid, n));
        let moved = elsewhere.filter(|from| *from != key).and_then(at);
        let is_recreated = self.row(key, n).is_some_and(|row| contradict(row.uid, self.uid(n)));
        let own = || at(key).filter(|_| !is_recreated);
        let comes_back =
            |before: &str, health: &Health<'_>| before != self.render(n) && health.render == self.render(n);
        let stays = moved.or_else(own).filter(|(before, health)| !comes_back(before, health)).map(|(_, health)| health);
        match self.held(key, n).filter(|&held| self.takes(n, held)) {
            Some(held) => Some(self.assessed(stays, held)),
            None => stays,
        }
    }

    /// The assessment that is held for `key` before `n`.
    fn held(&self, key: Key<'_>, n: usize) -> Option<usize> {
        self.all_held(n).into_iter().find(|&held| self.key(held) == key)
    }

    /// Every assessment that is held before `n`, the one held longest first.
    fn all_held(&self, n: usize) -> Vec<usize> {
        let mut all = Vec::new();
        for &i in &self.of_the_live_one[n] {
            let is_other = |held: &usize| self.key(*held) != self.key(i);
            match (self.name(i), self.outcomes[i]) {
                ("HealthAssessed", Some("unknown-item")) => {
                    all.retain(is_other);
                    all.push(i);
                    let too_many = all.len().saturating_sub(REMEMBERED);
                    all.drain(..too_many);
                }
                ("ItemApplied", _) => all.retain(|held| is_other(held) || !self.takes(i, *held)),
                ("ItemPruned", None | Some("unknown-item")) => all.retain(is_other),
                _ => {}
            }
        }
        all
    }

    /// Whether ItemApplied `n` folds the assessment that is held for its key.
    fn takes(&self, n: usize, held: usize) -> bool {
        let row_uid = self.row(self.key(n), n + 1).and_then(|row| row.uid);
        !contradict(row_uid, self.uid(held)) && self.assessed_render(held) == self.render(n)
    }

    fn key(&self, n: usize) -> Key<'_> {
        ["data/item/group", "data/item/kind", "data/item/namespace", "data/item/name"]
            .map(|path| text(self.event(n), path).unwrap_or_default())
    }

    fn uid(&self, n: usize) -> Option<&str> {
        uid(self.event(n), "data/uid")
    }

    fn render(&self, n: usize) -> &str {
        text(self.event(n), "data/renderRef").unwrap_or_default()
    }

    fn assessed_render(&self, n: usize) -> &str {
        text(self.event(n), "data/assessedRenderRef").unwrap_or_default()
    }
}
