//! One pass over a Release: step by step, each decided anew from what the cluster and the log say then.

use decklog_engine::log::Log;
use decklog_engine::service::Stopped;
use decklog_projections::inventory::{Incarnation, Inventories};
use decklog_schemas::{ReleaseKey, Sequence};
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::Shared;
use super::decide::{Seen, Step, decide};
use super::present::Release;
use crate::answer::Trouble;
use crate::turns::{Again, End};

/// Who changes finalizers, as managedFields says it.
const FIELD_MANAGER: &str = "decklog";

/// How many steps a pass takes at the most.
const ROUNDS: usize = 8;

impl<L: Log> Shared<L> {
    /// Does for one Release what there is to be done.
    pub(crate) async fn pass(&self, key: &ReleaseKey) -> Result<End, Stopped> {
        let mut last = None;
        for _ in 0..ROUNDS {
            if !self.may_write() {
                return Ok(End::Standby);
            }
            let present = self.present().get(key);
            let seen = match present {
                None => return Ok(End::Settled),
                Some(Release::Gone { uid }) => return self.gone(key, &uid).await,
                Some(Release::There(seen)) => seen,
            };
            let known = self.known(key, &seen.uid).await?;
            let step = decide(&seen, &known, self.watched.shard.as_deref());
            let this = (step, seen.resource_version.clone());
            if last.as_ref() == Some(&this) {
                return Ok(again(format!("what was done last has changed nothing: {step:?}")));
            }
            let done = match step {
                Step::Rest => return Ok(End::Settled),
                Step::Track => self.track(key, &seen, &known).await?,
                Step::Announce => self.announce(key, &seen).await?,
                Step::Hold => self.set_finalizers(key, &seen, seen.held()).await,
                Step::LetGo => self.let_go(key, &seen).await,
            };
            if let Err(end) = done {
                return Ok(end);
            }
            last = Some(this);
        }
        Ok(again("the Release changes while it is looked at".to_owned()))
    }

    /// What the log says of an incarnation, as far as it is folded.
    async fn known(&self, key: &ReleaseKey, uid: &str) -> Result<Incarnation, Stopped> {
        let (key, uid) = (key.clone(), uid.to_owned());
        self.handle.ask(move |inventories: &mut Inventories| inventories.incarnation(&key, &uid)).await
    }

    async fn track(&self, key: &ReleaseKey, seen: &Seen, known: &Incarnation) -> Result<Result<(), End>, Stopped> {
        // What is watched may be old, and the uid of one that is gone would end the one that is there, for good.
        match self.look(key, seen).await {
            Ok(Some(now)) if now.uid == seen.uid && now.shard == seen.shard => {}
            Ok(_) => return Ok(Ok(())),
            Err(trouble) => return Ok(Err(after(&trouble, key))),
        }
        if !self.may_write() {
            return Ok(Err(End::Standby));
        }
        let version = (&*seen.uid, &*seen.resource_version);
        tracing::debug!(release = %key, uid = seen.uid, shard = seen.shard, "Release is tracked");
        let last = match known {
            Incarnation::Live { tracked, .. } => *tracked,
            _ => None,
        };
        self.told(self.teller.release_tracked(key, version, seen.shard.as_deref(), last).await).await
    }

    async fn announce(&self, key: &ReleaseKey, seen: &Seen) -> Result<Result<(), End>, Stopped> {
        tracing::info!(release = %key, uid = seen.uid, "Release is being deleted");
        self.told(self.teller.release_deleting(key, &seen.uid).await).await
    }

    /// Waits until what was told is folded: before that, nothing is decided about the Release again.
    async fn told(&self, told: Result<Sequence, String>) -> Result<Result<(), End>, Stopped> {
        match told {
            Ok(sequence) => self.handle.reach(sequence).await.map(Ok),
            Err(why) => Ok(Err(End::Again(Again::untold(why)))),
        }
    }

    async fn let_go(&self, key: &ReleaseKey, seen: &Seen) -> Result<(), End> {
        tracing::info!(release = %key, uid = seen.uid, "Inventory of the Release is gone, and it is let go");
        self.set_finalizers(key, seen, seen.let_go()).await
    }

    /// Replaces the finalizers of a Release that is as it was seen, or finds out what it is now.
    async fn set_finalizers(&self, key: &ReleaseKey, seen: &Seen, finalizers: Vec<String>) -> Result<(), End> {
        let metadata = json!({ "uid": seen.uid, "resourceVersion": seen.resource_version, "finalizers": finalizers });
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        let answer = self.api(&key.namespace).patch(&key.name, &params, &patch).await;
        match answer.map_err(|error| Trouble::of(&error)) {
            Ok(answer) => {
                if let Some(now) = Seen::of(&answer.metadata, &self.watched.shard_label) {
                    self.present().put_answer(key, now);
                }
                Ok(())
            }
            Err(Trouble::Changed { .. }) => {
                self.look(key, seen).await.map(drop).map_err(|trouble| after(&trouble, key))
            }
            Err(trouble) => Err(after(&trouble, key)),
        }
    }

    /// Asks the cluster for a Release, and takes note of the answer.
    async fn look(&self, key: &ReleaseKey, seen: &Seen) -> Result<Option<Seen>, Trouble> {
        let found = self.api(&key.namespace).get_opt(&key.name).await;
        let found = found.map_err(|error| Trouble::of(&error))?;
        let now = found.and_then(|found| Seen::of(&found.metadata, &self.watched.shard_label));
        match &now {
            Some(now) => self.present().put(key, now.clone()),
            None => {
                self.present().go(key, &seen.uid);
            }
        }
        Ok(now)
    }

    /// A Release went. If the log does not know, nobody but its controller can say what that means.
    async fn gone(&self, key: &ReleaseKey, uid: &str) -> Result<End, Stopped> {
        self.present().forget(key, uid);
        if let Incarnation::Live { shard, .. } = self.known(key, uid).await?
            && (self.watched.shard.is_none() || shard == self.watched.shard)
        {
            tracing::warn!(release = %key, uid, "Release is gone from the cluster and was not let go: its inventory stays until the log has its ReleaseDeleted");
        }
        Ok(End::Settled)
    }
}

fn again(why: String) -> End {
    End::Again(Again::because(why))
}

fn after(trouble: &Trouble, key: &ReleaseKey) -> End {
    End::Again(Again::after(trouble, key))
}
