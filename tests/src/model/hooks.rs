//! What is known of a hook before an event: how it was declared, its status, and the result held for it.

use serde_json::Value;

use super::{
    History, REMEMBERED, contradict, present,
    reading::{field, text, uid},
    times::{Moment, duration, go_duration, moment},
};

/// Phase and name: hooks are sorted by them.
type Key<'a> = [&'a str; 2];

/// Which events gave a hook's row what the controller knows of it.
#[derive(Clone, Copy)]
struct Declared {
    /// The last HookStarted or HookSkipped: identity, render, weight, timeout.
    last: usize,
    /// The HookStarted whose `createdAt` counts; none for a skipped hook.
    created: Option<usize>,
}

/// What is known of the run.
struct Status<'a> {
    state: &'a str,
    finished_at: Option<Moment>,
    message: Option<&'a str>,
}

impl History {
    /// For HookStarted and HookSkipped.
    pub(super) fn why_not_declared(&self, n: usize) -> Option<&'static str> {
        let same = self.declared(self.hook(n), n).filter(|row| self.is_same_render(row, n));
        let is_finished = same.is_some() && self.is_finished(self.hook(n), n);
        is_finished.then_some("hook-already-finished")
    }

    /// For HookRunning and HookFinished.
    pub(super) fn why_no_status(&self, n: usize) -> Option<&'static str> {
        let Some(row) = self.declared(self.hook(n), n) else {
            return Some("unknown-hook");
        };
        if !self.is_same_render(&row, n) {
            Some("stale-render")
        } else if contradict(self.workload_uid(&row), self.told_uid(n)) {
            Some("stale-uid")
        } else {
            self.is_finished(self.hook(n), n).then_some("hook-already-finished")
        }
    }

    /// For HookRemoved.
    pub(super) fn why_not_removed(&self, n: usize) -> Option<&'static str> {
        self.declared(self.hook(n), n).is_none().then_some("unknown-hook")
    }

    /// The hooks of the object before `n`.
    pub(super) fn hook_rows(&self, n: usize) -> Vec<Value> {
        let folded = self.folded(n);
        let mut keys = folded
            .filter(|&i| ["HookStarted", "HookSkipped"].contains(&self.name(i)))
            .map(|i| self.hook(i))
            .collect::<Vec<_>>();
        keys.sort_unstable();
        keys.dedup();
        keys.into_iter().filter_map(|key| self.hook_row(key, n)).collect()
    }

    fn hook_row(&self, key: Key<'_>, n: usize) -> Option<Value> {
        let declared = self.declared(key, n)?;
        let status = self.status(key, n)?;
        let told = |path| text(self.event(declared.last), path).map(Value::from);
        let timeout = text(self.event(declared.last), "data/timeout").and_then(duration);
        let is_started = self.name(declared.last) == "HookStarted";
        let created = declared.created.and_then(|i| self.created_at(i));
        Some(present([
            ("name", Some(key[1].into())),
            ("phase", Some(key[0].into())),
            ("group", told("data/workload/group")),
            ("kind", told("data/workload/kind")),
            ("version", told("data/workload/version")),
            ("renderRef", told("data/renderRef")),
            ("weight", field(self.event(declared.last), "data/weight").cloned()),
            ("workloadname", told("data/workload/name")),
            ("workloadnamespace", told("data/workload/namespace")),
            ("timeout", timeout.filter(|_| is_started).map(go_duration).map(Value::from)),
            ("createdAt", created.map(Value::from)),
            ("state", Some(status.state.into())),
            ("finishedAt", status.finished_at.map(Value::from)),
            ("message", status.message.map(Value::from)),
        ]))
    }

    /// How the hook was declared before `n`. A HookStarted of the same render that was folded
    /// found the hook running, so it is an update.
    fn declared(&self, key: Key<'_>, n: usize) -> Option<Declared> {
        let mut row: Option<Declared> = None;
        for i in self.folded(n).filter(|&i| self.is_about(i, key)) {
            row = match self.name(i) {
                "HookStarted" => {
                    let same = row.filter(|row| self.is_same_render(row, i));
                    Some(Declared { last: i, created: same.map_or(Some(i), |same| same.created) })
                }
                "HookSkipped" => Some(Declared { last: i, created: None }),
                "HookRemoved" => None,
                _ => row,
            };
        }
        row
    }

    /// The hook's status before `n`.
    fn status(&self, key: Key<'_>, n: usize) -> Option<Status<'_>> {
        let mut status: Option<Status<'_>> = None;
        for i in self.folded(n).filter(|&i| self.is_about(i, key)) {
            let message = text(self.event(i), "data/message");
            status = match self.name(i) {
                "HookStarted" => {
                    let before = self.declared(key, i);
                    let held = self.held_result(key, i).filter(|&held| self.takes_result(i, held));
                    match (held, before.filter(|row| self.is_same_render(row, i))) {
                        (Some(held), _) => Some(self.finished(held)),
                        (None, Some(_)) => status,
                        (None, None) => Some(Status { state: "Running", finished_at: None, message: None }),
                    }
                }
                "HookSkipped" => Some(Status { state: "Skipped", finished_at: None, message }),
                "HookRunning" => status.map(|status| Status { message, ..status }),
                "HookFinished" => Some(self.finished(i)),
                _ => None,
            };
        }
        status
    }

    /// The status that HookFinished `n` gives.
    fn finished(&self, n: usize) -> Status<'_> {
        Status {
            state: text(self.event(n), "data/state").unwrap_or_default(),
            finished_at: self.finished_at(n),
            message: text(self.event(n), "data/message"),
        }
    }

    fn is_finished(&self, key: Key<'_>, n: usize) -> bool {
        self.status(key, n).is_some_and(|status| status.state != "Running")
    }

    /// The HookFinished that is held for the hook before `n`.
    fn held_result(&self, key: Key<'_>, n: usize) -> Option<usize> {
        self.all_held_results(n).into_iter().find(|&held| self.hook(held) == key)
    }

    /// Every HookFinished that is held before `n`, the one held longest first.
    fn all_held_results(&self, n: usize) -> Vec<usize> {
        let mut all = Vec::new();
        for &i in &self.of_the_live_one[n] {
            let is_other = |held: &usize| self.hook(*held) != self.hook(i);
            match (self.name(i), self.outcomes[i]) {
                ("HookFinished", Some("unknown-hook" | "stale-render")) => {
                    all.retain(is_other);
                    all.push(i);
                    let too_many = all.len().saturating_sub(REMEMBERED);
                    all.drain(..too_many);
                }
                ("HookStarted", None) => {
                    all.retain(|held| is_other(held) || !self.takes_result(i, *held));
                }
                ("HookRemoved", _) => all.retain(is_other),
                _ => {}
            }
        }
        all
    }

    /// Whether HookStarted `n`, which is folded, folds the HookFinished that is held.
    fn takes_result(&self, n: usize, held: usize) -> bool {
        self.declared(self.hook(n), n + 1).is_some_and(|row| {
            let created = row.created.and_then(|i| self.created_at(i));
            self.is_same_render(&row, held)
                && !contradict(self.workload_uid(&row), self.told_uid(held))
                && self.finished_at(held) >= created
        })
    }

    fn is_same_render(&self, row: &Declared, n: usize) -> bool {
        text(self.event(row.last), "data/renderRef") == text(self.event(n), "data/renderRef")
    }

    fn workload_uid(&self, row: &Declared) -> Option<&str> {
        uid(self.event(row.last), "data/workload/uid")
    }

    /// The workload uid that HookFinished `n` tells.
    fn told_uid(&self, n: usize) -> Option<&str> {
        Some(n).filter(|&n| self.name(n) == "HookFinished")?;
        uid(self.event(n), "data/workloadUid")
    }

    fn created_at(&self, n: usize) -> Option<Moment> {
        text(self.event(n), "data/createdAt").and_then(moment)
    }

    fn finished_at(&self, n: usize) -> Option<Moment> {
        let event = self.event(n);
        text(event, "data/finishedAt").or_else(|| text(event, "time")).and_then(moment)
    }

    fn is_about(&self, n: usize, key: Key<'_>) -> bool {
        self.name(n).starts_with("Hook") && self.hook(n) == key
    }

    fn hook(&self, n: usize) -> Key<'_> {
        ["data/hook/phase", "data/hook/name"].map(|path| text(self.event(n), path).unwrap_or_default())
    }
}
