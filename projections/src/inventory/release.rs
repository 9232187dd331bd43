//! One release: the memory of its name, and the rows of its live incarnation.

use decklog_schemas::inventory::ReleaseInventory;
use decklog_schemas::{Body, Domain, Event, Reason, ReleaseKey, Sequence};

use super::At;
use super::hooks::Hooks;
use super::items::Items;
use super::memory::{Admission, Memory};
use super::object;
use super::strings::Sources;

/// A release, folded.
#[derive(Clone, Debug)]
pub(crate) struct Release {
    pub(crate) key: ReleaseKey,
    /// The tokens of the release in a subject.
    pub(crate) tokens: Box<str>,
    pub(crate) memory: Memory,
    pub(crate) live: Live,
    /// The first event that this build did not know.
    pub(crate) incomplete: Option<Sequence>,
    /// The last event that was folded.
    pub(crate) folded: Option<Sequence>,
}

/// What goes with an incarnation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Live {
    /// Whether the controller has said anything: health alone creates no object.
    pub(crate) declared: bool,
    pub(crate) shard: Option<(Box<str>, Sequence)>,
    pub(crate) items: Items,
    pub(crate) hooks: Hooks,
}

impl Release {
    pub(crate) fn new(key: ReleaseKey, tokens: &str) -> Self {
        Self {
            key,
            tokens: tokens.into(),
            memory: Memory::default(),
            live: Live::default(),
            incomplete: None,
            folded: None,
        }
    }

    pub(crate) fn fold(&mut self, event: &Event<'_>, sequence: Sequence, sources: &mut Sources) -> Result<(), Reason> {
        if self.memory.admit(event, sources)? == Admission::Opens {
            self.live = Live::default();
        }
        self.live.fold(&event.body, At { sequence, time: event.time })?;
        if let Body::ReleaseDeleted(_) = event.body {
            self.memory.delete();
            self.live = Live::default();
        }
        self.folded = Some(sequence);
        Ok(())
    }

    /// The object, canonical; none if there is to be none.
    pub(crate) fn object(&self) -> Option<ReleaseInventory> {
        self.exists().then(|| object::of(self))
    }

    pub(crate) fn exists(&self) -> bool {
        self.memory.is_live() && self.live.declared
    }
}

impl Live {
    fn fold(&mut self, body: &Body<'_>, at: At) -> Result<(), Reason> {
        match body {
            Body::ReleaseTracked(event) => self.shard = event.shard.as_deref().map(|shard| (shard.into(), at.sequence)),
            Body::ItemApplied(event) => self.items.applied(event, at)?,
            Body::ItemPruned(event) => self.items.pruned(event)?,
            Body::HealthAssessed(event) => self.items.assessed(event, at)?,
            Body::HookStarted(event) => self.hooks.started(event, at)?,
            Body::HookSkipped(event) => self.hooks.skipped(event, at)?,
            Body::HookRemoved(event) => self.hooks.removed(event)?,
            Body::HookRunning(event) => self.hooks.running(event, at)?,
            Body::HookFinished(event) => self.hooks.finished(event, at)?,
            // Told in the timeline, and of no effect on the object: ReleaseDeleted ends the incarnation as a whole.
            Body::ReleaseDeleting(_)
            | Body::ReleaseDeleted(_)
            | Body::SyncStarted(_)
            | Body::SyncFinished(_)
            | Body::ItemApplyFailed(_)
            | Body::ItemPruneFailed(_)
            | Body::InventoryDeleted(_)
            | Body::ProjectionRefused(_)
            | Body::DeploymentRecorded(_) => {}
        }
        self.declared |= match body.event_type().domain() {
            Domain::Release | Domain::ReleaseInventory | Domain::ReleaseHooks => true,
            Domain::HealthInventory | Domain::HookStatus | Domain::Projector | Domain::Deployment => false,
        };
        Ok(())
    }
}
