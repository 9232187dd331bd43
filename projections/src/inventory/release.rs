//! One release: the memory of its name, and the rows of its live incarnation.

use decklog_schemas::inventory::ReleaseInventory;
use decklog_schemas::{Body, Domain, Event, Reason, ReleaseKey, Sequence};
use serde::{Deserialize, Serialize};

use super::hooks::Hooks;
use super::items::Items;
use super::memory::{Admission, Memory};
use super::object;
use super::strings::Sources;
use super::{At, Deletion, Incarnation};
use crate::plan::Wanted;

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
    /// The incarnation that was deleted last, until its object is gone from the cluster.
    pub(crate) owed: Option<Owed>,
}

/// A deleted incarnation whose controller waits to hear that its object is gone.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Owed {
    pub(crate) uid: Option<Box<str>>,
    pub(crate) shard: Option<Box<str>>,
}

/// What goes with an incarnation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Live {
    /// Whether the controller has said anything: health alone creates no object.
    pub(crate) declared: bool,
    pub(crate) deletion: Deletion,
    /// The last ReleaseTracked.
    pub(crate) tracked: Option<Sequence>,
    /// Kept of a deleted incarnation, for who holds its Release is told by it.
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
            owed: None,
        }
    }

    pub(crate) fn fold(&mut self, event: &Event<'_>, sequence: Sequence, sources: &mut Sources) -> Result<(), Reason> {
        if self.memory.admit(event, sources)? == Admission::Opens {
            self.live = Live::default();
        }
        self.live.fold(&event.body, At { sequence, time: event.time })?;
        match event.body {
            Body::ReleaseDeleted(_) => {
                let uid = self.memory.uid().map(Box::from);
                let shard = self.live.shard.take();
                self.memory.delete();
                self.owed = Some(Owed { uid, shard: shard.as_ref().map(|(shard, _)| shard.clone()) });
                self.live = Live { shard, ..Live::default() };
            }
            // One of an incarnation before says nothing of what is owed now.
            Body::InventoryDeleted(_) => {
                let uid = event.release_uid.as_deref();
                self.owed.take_if(|owed| uid.is_none() || owed.uid.is_none() || owed.uid.as_deref() == uid);
            }
            // The object of the next incarnation takes the place of the last one's.
            _ if self.exists() => self.owed = None,
            _ => {}
        }
        self.folded = Some(sequence);
        Ok(())
    }

    /// The object, canonical; none if there is to be none.
    pub(crate) fn object(&self) -> Option<ReleaseInventory> {
        self.exists().then(|| object::of(self))
    }

    /// What is to be in the cluster.
    pub(crate) fn wanted(&self) -> Wanted {
        match (self.object(), &self.owed) {
            (Some(object), _) => Wanted::Object(Box::new(object)),
            (None, Some(_)) => Wanted::Gone,
            (None, None) => Wanted::Nothing,
        }
    }

    /// The shard of the release; of a deleted one that which it had.
    pub(crate) fn shard(&self) -> Option<&str> {
        match &self.owed {
            Some(owed) => owed.shard.as_deref(),
            None => self.live.shard.as_ref().map(|(shard, _)| &**shard),
        }
    }

    /// The uid of the Release; of a deleted one that which it had.
    pub(crate) fn uid(&self) -> Option<&str> {
        match &self.owed {
            Some(owed) => owed.uid.as_deref(),
            None => self.memory.uid(),
        }
    }

    /// What is known of the incarnation with a uid.
    pub(crate) fn incarnation(&self, uid: &str) -> Incarnation {
        let shard = || self.shard().map(str::to_owned);
        if self.exists() && self.memory.uid() == Some(uid) {
            let Live { deletion, tracked, .. } = self.live;
            return Incarnation::Live { shard: shard(), deletion, tracked };
        }
        if self.owed.as_ref().is_some_and(|owed| owed.uid.as_deref() == Some(uid)) {
            return Incarnation::Deleted;
        }
        let is_live = self.memory.is_live();
        if self.memory.has_ended(uid) {
            return Incarnation::Over { shard: if is_live { None } else { shard() } };
        }
        if is_live || self.folded.is_none() { Incarnation::New } else { Incarnation::AfterDeleted }
    }

    pub(crate) fn exists(&self) -> bool {
        self.memory.is_live() && self.live.declared
    }
}

impl Live {
    fn fold(&mut self, body: &Body<'_>, at: At) -> Result<(), Reason> {
        match body {
            Body::ReleaseTracked(event) => {
                self.shard = event.shard.as_deref().map(|shard| (shard.into(), at.sequence));
                self.tracked = Some(at.sequence);
            }
            Body::ReleaseDeleting(_) => self.deletion = Deletion::Begun,
            Body::ItemApplied(event) => self.items.applied(event, at)?,
            Body::ItemPruned(event) => self.items.pruned(event)?,
            Body::HealthAssessed(event) => self.items.assessed(event, at)?,
            Body::HookStarted(event) => self.hooks.started(event, at)?,
            Body::HookSkipped(event) => self.hooks.skipped(event, at)?,
            Body::HookRemoved(event) => self.hooks.removed(event)?,
            Body::HookRunning(event) => self.hooks.running(event, at)?,
            Body::HookFinished(event) => self.hooks.finished(event, at)?,
            // Told in the timeline, and of no effect on the object: ReleaseDeleted ends the incarnation as a whole.
            Body::ReleaseDeleted(_)
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
