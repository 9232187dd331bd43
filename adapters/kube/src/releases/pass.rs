//! One pass over a Release: step by step, each decided anew from what the cluster and the log say then.

use std::sync::Arc;

use decklog_engine::log::Log;
use decklog_engine::service::Stopped;
use decklog_projections::inventory::{Incarnation, Inventories};
use decklog_schemas::{ReleaseKey, Sequence};
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use super::decide::{Seen, Step, decide};
use super::present::Release;
use super::{Metadata, Shared};
use crate::answer::Trouble;
use crate::lease::Term;
use crate::turns::{Again, End};

/// Who changes finalizers, as managedFields says it.
const FIELD_MANAGER: &str = "decklog";

/// How many steps a pass takes at the most.
const ROUNDS: usize = 8;

/// A pass over one Release, in one term.
pub(super) struct Pass<L> {
    pub(super) shared: Arc<Shared<L>>,
    pub(super) key: ReleaseKey,
    pub(super) term: Term,
}

impl<L: Log> Pass<L> {
    /// Does for the Release what there is to be done.
    pub(super) async fn run(&self) -> Result<End, Stopped> {
        let mut last = None;
        for _ in 0..ROUNDS {
            let present = self.shared.present().get(&self.key);
            let seen = match present {
                None => return Ok(End::Settled),
                Some(Release::Gone { uid }) => return self.gone(&uid).await,
                Some(Release::There(seen)) => seen,
            };
            let known = self.known(&seen.uid).await?;
            let step = decide(&seen, &known, self.shared.watched.shard.as_deref());
            let this = (step, seen.resource_version.clone());
            if last.as_ref() == Some(&this) {
                return Ok(again(format!("what was done last has changed nothing: {step:?}")));
            }
            if !self.term.lasts() {
                return Ok(End::Standby);
            }
            let done = match step {
                Step::Rest => return Ok(End::Settled),
                Step::Track => self.track(&seen, &known).await?,
                Step::Announce => self.announce(&seen).await?,
                Step::Hold => self.set_finalizers(&seen, seen.held()).await,
                Step::LetGo => self.let_go(&seen).await,
            };
            if let Err(end) = done {
                return Ok(end);
            }
            last = Some(this);
        }
        Ok(again("the Release changes while it is looked at".to_owned()))
    }

    /// What the log says of an incarnation, as far as it is folded.
    async fn known(&self, uid: &str) -> Result<Incarnation, Stopped> {
        let (key, uid) = (self.key.clone(), uid.to_owned());
        self.shared.handle.ask(move |inventories: &mut Inventories| inventories.incarnation(&key, &uid)).await
    }

    async fn track(&self, seen: &Seen, known: &Incarnation) -> Result<Result<(), End>, Stopped> {
        // What is watched may be old, and the uid of one that is gone would end the one that is there, for good.
        match self.look(seen).await {
            Ok(Some(now)) if now.uid == seen.uid && now.shard == seen.shard => {}
            Ok(_) => return Ok(Ok(())),
            Err(trouble) => return Ok(Err(self.after(&trouble))),
        }
        if !self.term.lasts() {
            return Ok(Err(End::Standby));
        }
        let version = (&*seen.uid, &*seen.resource_version);
        tracing::debug!(release = %self.key, uid = seen.uid, shard = seen.shard, "Release is tracked");
        let last = match known {
            Incarnation::Live { tracked, .. } => *tracked,
            _ => None,
        };
        let told = self.shared.teller.release_tracked(&self.key, version, seen.shard.as_deref(), last).await;
        self.told(told).await
    }

    async fn announce(&self, seen: &Seen) -> Result<Result<(), End>, Stopped> {
        tracing::info!(release = %self.key, uid = seen.uid, "Release is being deleted");
        self.told(self.shared.teller.release_deleting(&self.key, &seen.uid).await).await
    }

    /// Waits until what was told is folded: before that, nothing is decided about the Release again.
    async fn told(&self, told: Result<Sequence, String>) -> Result<Result<(), End>, Stopped> {
        match told {
            Ok(sequence) => self.shared.handle.reach(sequence).await.map(Ok),
            Err(why) => Ok(Err(End::Again(Again::untold(why)))),
        }
    }

    async fn let_go(&self, seen: &Seen) -> Result<(), End> {
        tracing::info!(release = %self.key, uid = seen.uid, "Inventory of the Release is gone, and it is let go");
        self.set_finalizers(seen, seen.let_go()).await
    }

    /// Replaces the finalizers of a Release that is as it was seen, or finds out what it is now.
    async fn set_finalizers(&self, seen: &Seen, finalizers: Vec<String>) -> Result<(), End> {
        let metadata = json!({ "uid": seen.uid, "resourceVersion": seen.resource_version, "finalizers": finalizers });
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        let answer = self.answer(self.api().patch(&self.key.name, &params, &patch)).await;
        match answer {
            Ok(answer) => {
                if let Some(now) = Seen::of(&answer.metadata, &self.shared.watched.shard_label) {
                    self.shared.present().know(&self.key, now);
                }
                Ok(())
            }
            Err(Trouble::Changed { .. }) => self.look(seen).await.map(drop).map_err(|trouble| self.after(&trouble)),
            Err(trouble) => Err(self.after(&trouble)),
        }
    }

    /// Asks the cluster for the Release, and takes note of the answer.
    async fn look(&self, seen: &Seen) -> Result<Option<Seen>, Trouble> {
        match self.answer(self.api().get(&self.key.name)).await {
            Ok(found) => {
                let now = Seen::of(&found.metadata, &self.shared.watched.shard_label);
                if let Some(now) = &now {
                    self.shared.present().know(&self.key, now.clone());
                }
                Ok(now)
            }
            // That the Release is gone is one answer of 404, and that its kind is not served another one.
            Err(Trouble::Changed { .. }) => {
                self.shared.present().know_gone(&self.key, &seen.uid);
                Ok(None)
            }
            Err(trouble) => Err(trouble),
        }
    }

    /// The answer to a request, which is sent in the term of the pass or not at all.
    async fn answer(&self, answer: impl Future<Output = kube::Result<Metadata>>) -> Result<Metadata, Trouble> {
        match self.term.within(answer).await {
            Ok(answer) => answer.map_err(|error| Trouble::of(&error)),
            Err(over) => Err(Trouble::Unknown { message: over.to_string() }),
        }
    }

    /// A Release went. If the log does not know, nobody but its controller can say what that means.
    async fn gone(&self, uid: &str) -> Result<End, Stopped> {
        self.shared.present().forget(&self.key, uid);
        if let Incarnation::Live { shard, .. } = self.known(uid).await?
            && (self.shared.watched.shard.is_none() || shard == self.shared.watched.shard)
        {
            tracing::warn!(release = %self.key, uid, "Release is gone from the cluster and was not let go: its inventory stays until the log has its ReleaseDeleted");
        }
        Ok(End::Settled)
    }

    fn api(&self) -> Api<Metadata> {
        Api::namespaced_with(self.shared.client.clone(), &self.key.namespace, &self.shared.api_resource)
    }

    fn after(&self, trouble: &Trouble) -> End {
        End::Again(Again::after(trouble, &self.key))
    }
}

fn again(why: String) -> End {
    End::Again(Again::because(why))
}
