//! One pass: what the log says of a release, what the cluster has, the plan, and its requests one after the other.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::time::Duration;

use decklog_engine::log::Log;
use decklog_projections::inventory::{Inventories, Standing};
use decklog_projections::plan::{Action, Desired, FieldManager, Observed, Refusal, Stamp, Wanted, plan};
use decklog_schemas::ReleaseKey;

use super::cache::Present;
use super::{ApplyError, Shared};
use crate::answer::Trouble;

/// How a pass ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The cluster is in line with the log, or will not take what the log says before that changes.
    Settled,
    /// Another one leads.
    Standby,
    /// It has to be tried again.
    Again {
        /// Why.
        why: String,
        /// How long to wait at least.
        at_least: Duration,
    },
}

/// How often a pass plans again because the cluster has changed under it.
const ROUNDS: usize = 5;

/// How often is looked whether a namespace is there.
const NAMESPACE_LOOK: Duration = Duration::from_secs(1);

/// How often is looked whether somebody has installed the definition, or given us a right.
const ADMIN_LOOK: Duration = Duration::from_secs(5);

impl<L: Log> Shared<L> {
    /// Brings one release in line with the log.
    pub(crate) async fn pass(&self, key: &ReleaseKey) -> Result<End, ApplyError> {
        if !self.may_write() {
            return Ok(End::Standby);
        }
        self.metrics.passed();
        let of = key.clone();
        let Some(standing) = self.handle.ask(move |inventories: &mut Inventories| inventories.standing(&of)).await?
        else {
            return Ok(End::Settled);
        };
        if self.options.shard.is_some() && standing.shard != self.options.shard {
            return Ok(End::Settled);
        }
        let hash = hash_of(&standing.wanted);
        if self.refused().get(key) == Some(&hash) {
            return Ok(End::Settled);
        }
        let mut observed = match self.observed(key).await {
            Ok(observed) => observed,
            Err(trouble) => return Ok(self.after(trouble)),
        };
        let desired = self.desired(&standing);
        for _ in 0..ROUNDS {
            let actions = match plan(&desired, observed.as_ref(), self.options.other) {
                Ok(actions) => actions,
                Err(Refusal::Stamp(stamp)) => {
                    self.confirm(key, stamp).await?;
                    return Ok(again("the cluster is ahead of what is folded here"));
                }
                Err(refusal) => {
                    let reason = match refusal {
                        Refusal::TooLarge { .. } => "TooLarge",
                        Refusal::Name(_) | Refusal::Stamp(_) => "InvalidName",
                    };
                    return self
                        .refuse(key, &standing, (FieldManager::ReleaseInventory, reason, &refusal.to_string()))
                        .await;
                }
            };
            if actions.is_empty() {
                self.refused().remove(key);
                return self.settled(key, &standing, observed.as_ref()).await;
            }
            for action in &actions {
                if !self.may_write() {
                    return Ok(End::Standby);
                }
                match self.execute(key, action, observed.as_ref()).await {
                    Ok(answer) => observed = answer,
                    Err(Trouble::Changed { .. }) => {
                        observed = match self.ask(key).await {
                            Ok(observed) => observed,
                            Err(trouble) => return Ok(self.after(trouble)),
                        };
                        break;
                    }
                    Err(Trouble::Permanent { reason, message }) => {
                        let manager = manager_of(action);
                        return self.refuse(key, &standing, (manager, reason.as_str(), &message)).await;
                    }
                    Err(trouble) => {
                        self.cache().doubt(key);
                        return Ok(self.after(trouble));
                    }
                }
            }
        }
        Ok(again("the object changes while it is applied, or is not what was applied"))
    }

    fn desired(&self, standing: &Standing) -> Desired {
        let mut object = standing.wanted.clone();
        if let Wanted::Object(object) = &mut object {
            // The fold knows the label by its usual key.
            let labels = std::mem::take(&mut object.metadata.labels);
            object.metadata.labels =
                labels.into_values().map(|shard| (self.options.shard_label.clone(), shard)).collect();
        }
        let stamp = Stamp { log: self.log.clone(), sequence: standing.sequence };
        Desired { object, stamp, folded: standing.folded }
    }

    /// The object as it is known, or as the cluster says if that is in doubt.
    async fn observed(&self, key: &ReleaseKey) -> Result<Option<Observed>, Trouble> {
        let present = self.cache().get(key);
        match present {
            Present::Object(observed) => Ok(Some(*observed)),
            Present::Nothing => Ok(None),
            Present::Unknown => self.ask(key).await,
        }
    }

    /// Nothing is left to do. Who waits for the end of a deleted release's object is told.
    async fn settled(
        &self,
        key: &ReleaseKey,
        standing: &Standing,
        observed: Option<&Observed>,
    ) -> Result<End, ApplyError> {
        if standing.wanted != Wanted::Gone || observed.is_some() {
            return Ok(End::Settled);
        }
        match self.ask(key).await {
            Ok(None) => {}
            Ok(Some(_)) => return Ok(again("the object is there again")),
            Err(trouble) => return Ok(self.after(trouble)),
        }
        match self.teller.inventory_deleted(key, standing).await {
            Ok(()) => Ok(End::Settled),
            Err(why) => Ok(again(&why)),
        }
    }

    /// The cluster will not take it: the log is told, once, and it is tried again when it has changed.
    async fn refuse(
        &self,
        key: &ReleaseKey,
        standing: &Standing,
        (manager, reason, message): (FieldManager, &str, &str),
    ) -> Result<End, ApplyError> {
        tracing::error!(release = %key, %manager, reason, error = message, "Cluster does not take the inventory; the log has it, and it is tried again when it changes");
        self.metrics.refused(manager, reason);
        match self.teller.projection_refused(key, standing, manager, reason, message).await {
            Ok(()) => {
                self.refused().insert(key.clone(), hash_of(&standing.wanted));
                Ok(End::Settled)
            }
            Err(why) => Ok(again(&why)),
        }
    }

    /// When to try again after something that passes.
    fn after(&self, trouble: Trouble) -> End {
        let at_least = match &trouble {
            Trouble::NamespaceMissing | Trouble::NamespaceTerminating => NAMESPACE_LOOK,
            Trouble::NotServed | Trouble::Forbidden { .. } => ADMIN_LOOK,
            Trouble::Busy { retry_after, .. } => retry_after.unwrap_or_default(),
            Trouble::Changed { .. } | Trouble::Unknown { .. } | Trouble::Permanent { .. } => Duration::ZERO,
        };
        End::Again { why: trouble.to_string(), at_least }
    }
}

fn again(why: &str) -> End {
    End::Again { why: why.to_owned(), at_least: Duration::ZERO }
}

fn manager_of(action: &Action) -> FieldManager {
    match action {
        Action::Apply { manager, .. } => *manager,
        Action::Repair { .. } | Action::Delete { .. } => FieldManager::ReleaseInventory,
    }
}

fn hash_of(wanted: &Wanted) -> u64 {
    let mut hasher = DefaultHasher::new();
    if let Wanted::Object(object) = wanted {
        object.canonical().hash(&mut hasher);
    }
    hasher.finish()
}
