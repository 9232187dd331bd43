//! The rows of `hooks`: what was started, and how it ended. The first end counts.

use std::sync::Arc;

use decklog_schemas::data::{
    HookFinished, HookRef, HookRemoved, HookRunning, HookSkipped, HookStarted, Phase, Workload,
};
use decklog_schemas::inventory::HookState;
use decklog_schemas::{GoDuration, Reason, Seconds, Sequence};
use serde::{Deserialize, Serialize};

use super::At;
use super::held::Waiting;
use super::items::differ;
use super::strings::{Recent, message};
use crate::keyed::{Keyed, Table, hash};

/// One hook of the release.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Hook {
    pub(crate) name: Box<str>,
    pub(crate) phase: Phase,
    pub(crate) render: Arc<str>,
    pub(crate) workload: WorkloadOf,
    pub(crate) weight: i64,
    pub(crate) timeout: Option<GoDuration>,
    pub(crate) created_at: Option<Seconds>,
    pub(crate) state: HookState,
    pub(crate) finished_at: Option<Seconds>,
    pub(crate) message: Option<Box<str>>,
    /// Set identity, render, weight and timeout.
    pub(crate) declared_by: Sequence,
    /// Set `created_at`.
    pub(crate) created_by: Sequence,
    /// Set `state` and `finished_at`.
    pub(crate) state_by: Sequence,
    /// Set `message`.
    pub(crate) message_by: Sequence,
}

/// The object that does a hook's work.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WorkloadOf {
    pub(crate) group: Box<str>,
    pub(crate) version: Box<str>,
    pub(crate) kind: Box<str>,
    pub(crate) namespace: Option<Box<str>>,
    pub(crate) name: Box<str>,
    pub(crate) uid: Option<Box<str>>,
}

/// The end of a hook that has no row of its render.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HeldEnd {
    name: Box<str>,
    phase: Phase,
    render: Arc<str>,
    uid: Option<Box<str>>,
    end: End,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct End {
    state: HookState,
    finished_at: Seconds,
    message: Option<Box<str>>,
    by: Sequence,
}

/// All hooks of one incarnation, and the ends that wait for a row.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hooks {
    rows: Table<Hook>,
    held: Table<HeldEnd>,
    recent: Recent,
}

impl Hooks {
    pub(crate) fn started(&mut self, event: &HookStarted<'_>, at: At) -> Result<(), Reason> {
        let position = match self.at(&event.hook) {
            Some(position) if *self.rows.row(position).render == *event.render_ref => {
                let row = self.rows.row_mut(position);
                if row.state.is_finished() {
                    return Err(Reason::HookAlreadyFinished);
                }
                row.workload = (&event.workload).into();
                row.weight = event.weight;
                row.timeout = event.timeout;
                row.declared_by = at.sequence;
                position
            }
            found => {
                let row = Hook {
                    timeout: event.timeout,
                    created_at: Some(event.created_at),
                    ..self.row(&event.hook, &event.workload, &event.render_ref, event.weight, at.sequence)
                };
                self.replace(found, row)
            }
        };
        self.fold_held(position);
        Ok(())
    }

    pub(crate) fn skipped(&mut self, event: &HookSkipped<'_>, at: At) -> Result<(), Reason> {
        let found = self.at(&event.hook);
        let row = found.map(|position| self.rows.row(position));
        if row.is_some_and(|row| *row.render == *event.render_ref && row.state.is_finished()) {
            return Err(Reason::HookAlreadyFinished);
        }
        let row = Hook {
            state: HookState::Skipped,
            message: event.message.as_deref().map(message),
            ..self.row(&event.hook, &event.workload, &event.render_ref, event.weight, at.sequence)
        };
        self.replace(found, row);
        Ok(())
    }

    pub(crate) fn removed(&mut self, event: &HookRemoved<'_>) -> Result<(), Reason> {
        let HookRef { name, phase } = &event.hook;
        if let Some(held) = self.held_at(name, *phase) {
            self.held.remove(held);
        }
        let position = self.at(&event.hook).ok_or(Reason::UnknownHook)?;
        self.rows.remove(position);
        Ok(())
    }

    pub(crate) fn running(&mut self, event: &HookRunning<'_>, at: At) -> Result<(), Reason> {
        let position = self.at(&event.hook).ok_or(Reason::UnknownHook)?;
        let row = self.rows.row_mut(position);
        if *row.render != *event.render_ref {
            return Err(Reason::StaleRender);
        }
        if row.state.is_finished() {
            return Err(Reason::HookAlreadyFinished);
        }
        row.message = event.message.as_deref().map(message);
        row.message_by = at.sequence;
        Ok(())
    }

    pub(crate) fn finished(&mut self, event: &HookFinished<'_>, at: At) -> Result<(), Reason> {
        let uid = event.workload_uid.as_deref();
        let end = End {
            state: event.state.into(),
            finished_at: event.finished_at.unwrap_or(at.time),
            message: event.message.as_deref().map(message),
            by: at.sequence,
        };
        let found = self.at(&event.hook);
        let Some(position) = found.filter(|position| *self.rows.row(*position).render == *event.render_ref) else {
            let render = self.recent.share(&event.render_ref);
            let HookRef { name, phase } = &event.hook;
            self.held.hold(HeldEnd { name: (**name).into(), phase: *phase, render, uid: uid.map(Box::from), end });
            return Err(if found.is_some() { Reason::StaleRender } else { Reason::UnknownHook });
        };
        let row = self.rows.row_mut(position);
        if differ(uid, row.workload.uid.as_deref()) {
            return Err(Reason::StaleUid);
        }
        if row.state.is_finished() {
            return Err(Reason::HookAlreadyFinished);
        }
        row.finish(end);
        Ok(())
    }

    pub(crate) fn rows(&self) -> &[Hook] {
        self.rows.rows()
    }

    pub(crate) fn held(&self) -> &[HeldEnd] {
        self.held.rows()
    }

    /// Puts rows back that were saved.
    pub(crate) fn restore(rows: Vec<Hook>, held: Vec<HeldEnd>) -> Self {
        let mut recent = Recent::default();
        let share = |mut row: Hook| {
            row.render = recent.share(&row.render);
            row
        };
        let rows = rows.into_iter().map(share).collect();
        Self { rows, held: held.into_iter().collect(), recent }
    }

    /// A new run: nothing of an earlier one is kept.
    fn row(&mut self, hook: &HookRef<'_>, workload: &Workload<'_>, render: &str, weight: i64, by: Sequence) -> Hook {
        Hook {
            name: (*hook.name).into(),
            phase: hook.phase,
            render: self.recent.share(render),
            workload: workload.into(),
            weight,
            timeout: None,
            created_at: None,
            state: HookState::Running,
            finished_at: None,
            message: None,
            declared_by: by,
            created_by: by,
            state_by: by,
            message_by: by,
        }
    }

    fn replace(&mut self, found: Option<usize>, row: Hook) -> usize {
        match found {
            Some(position) => {
                *self.rows.row_mut(position) = row;
                position
            }
            None => self.rows.insert(row),
        }
    }

    fn fold_held(&mut self, position: usize) {
        let row = self.rows.row(position);
        let Some(held_at) = self.held_at(&row.name, row.phase) else { return };
        let held = self.held.row(held_at);
        let is_of_this_run = held.render == row.render
            && !differ(held.uid.as_deref(), row.workload.uid.as_deref())
            && row.created_at.is_none_or(|created| held.end.finished_at >= created);
        if is_of_this_run {
            let held = self.held.remove(held_at);
            self.rows.row_mut(position).finish(held.end);
        }
    }

    fn at(&self, hook: &HookRef<'_>) -> Option<usize> {
        let same = |row: &Hook| row.phase == hook.phase && *row.name == *hook.name;
        self.rows.find(hook_hash(&hook.name, hook.phase), same)
    }

    fn held_at(&self, name: &str, phase: Phase) -> Option<usize> {
        self.held.find(hook_hash(name, phase), |held| held.phase == phase && *held.name == *name)
    }
}

fn hook_hash(name: &str, phase: Phase) -> u64 {
    hash(&[phase.as_str(), name])
}

impl Hook {
    fn finish(&mut self, end: End) {
        self.state = end.state;
        self.finished_at = Some(end.finished_at);
        self.message = end.message;
        self.state_by = end.by;
        self.message_by = end.by;
    }
}

impl Keyed for Hook {
    fn key_hash(&self) -> u64 {
        hook_hash(&self.name, self.phase)
    }
}

impl Keyed for HeldEnd {
    fn key_hash(&self) -> u64 {
        hook_hash(&self.name, self.phase)
    }
}

impl Waiting for HeldEnd {
    fn since(&self) -> Sequence {
        self.end.by
    }

    fn same_key(&self, other: &Self) -> bool {
        self.phase == other.phase && self.name == other.name
    }
}

impl From<&Workload<'_>> for WorkloadOf {
    fn from(workload: &Workload<'_>) -> Self {
        Self {
            group: (*workload.group).into(),
            version: (*workload.version).into(),
            kind: (*workload.kind).into(),
            namespace: workload.namespace.as_deref().map(Box::from),
            name: (*workload.name).into(),
            uid: workload.uid.as_deref().map(Box::from),
        }
    }
}
