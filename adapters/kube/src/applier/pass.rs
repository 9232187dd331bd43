//! One pass: what the log says of a release, what the cluster has, the plan, and its requests one after the other.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::ops::RangeInclusive;
use std::sync::PoisonError;
use std::time::Duration;

use decklog_engine::log::Log;
use decklog_projections::inventory::{Inventories, Standing};
use decklog_projections::plan::{
    Action, Desired, FieldManager, LIMIT_BYTES, Observed, Refusal, WARN_BYTES, Wanted, forecast, is_name, plan,
};
use decklog_schemas::ReleaseKey;

use super::cache::Present;
use super::{ApplyError, LONGEST_PAUSE, Shared};
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
        /// How long to wait at least, and at the most.
        pause: RangeInclusive<Duration>,
    },
}

/// How often a pass plans again because the cluster has changed under it.
const ROUNDS: usize = 5;

/// What is waited after an attempt, if nothing speaks for less or for more.
const ANY_PAUSE: RangeInclusive<Duration> = Duration::ZERO..=LONGEST_PAUSE;

/// How often is looked whether a namespace is there.
const NAMESPACE_LOOK: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(5);

/// How often is looked whether somebody has installed the definition, or given us a right.
const ADMIN_LOOK: RangeInclusive<Duration> = Duration::from_secs(5)..=LONGEST_PAUSE;

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
        if self.is_refused(key, &standing.wanted) {
            return Ok(End::Settled);
        }
        let mut observed = match self.observed(key).await {
            Ok(observed) => observed,
            Err(trouble) => return Ok(self.after(trouble)),
        };
        let desired = Desired::of(&standing, &self.log, &self.options.shard_label);
        for _ in 0..ROUNDS {
            let actions = match plan(&desired, observed.as_ref(), self.options.other) {
                Ok(actions) => actions,
                Err(Refusal::Stamp(stamp)) => {
                    self.confirm(key, stamp).await?;
                    return Ok(again("the cluster is ahead of what is folded here"));
                }
                Err(refusal) => {
                    let why = (FieldManager::ReleaseInventory, reason_of(&refusal), &*refusal.to_string());
                    return self.refuse(key, &standing, why).await;
                }
            };
            if actions.is_empty() {
                self.refused().remove(key);
                return self.settled(key, &standing, observed.as_ref()).await;
            }
            self.weigh(key, &desired);
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
                    // A deletion stays the same for ever: somebody may lift what forbids it.
                    Err(trouble @ Trouble::Permanent { .. }) if !matches!(standing.wanted, Wanted::Object(_)) => {
                        return Ok(End::Again { why: trouble.to_string(), pause: ADMIN_LOOK });
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

    /// Whether the cluster has refused just this. Of a deletion that is not remembered: it stays the same for ever.
    fn is_refused(&self, key: &ReleaseKey, wanted: &Wanted) -> bool {
        let refused = self.refused().get(key).copied();
        matches!(wanted, Wanted::Object(_)) && refused.is_some_and(|refused| refused == hash_of(wanted))
    }

    /// Tells how large the object will be, and warns while there is still time to do something about it.
    fn weigh(&self, key: &ReleaseKey, desired: &Desired) {
        let Wanted::Object(object) = &desired.object else { return };
        let bytes = forecast(object);
        self.metrics.forecast(bytes);
        let mut large = self.large.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes <= WARN_BYTES {
            large.remove(key);
        } else if large.insert(key.clone()) {
            tracing::warn!(release = %key, bytes, limit = LIMIT_BYTES, "Inventory takes more than half of what a cluster stores of one object; a release with fewer items would");
        }
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
        // Of a name that no API server takes there is no object, and the request for it would be one for another.
        if is_name(&key.namespace, &key.name) {
            match self.ask(key).await {
                Ok(None) => {}
                Ok(Some(_)) => return Ok(again("the object is there again")),
                Err(trouble) => return Ok(self.after(trouble)),
            }
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
        let pause = match &trouble {
            Trouble::NamespaceMissing | Trouble::NamespaceTerminating => NAMESPACE_LOOK,
            Trouble::NotServed | Trouble::Forbidden { .. } => ADMIN_LOOK,
            Trouble::Busy { retry_after, .. } => retry_after.unwrap_or_default()..=LONGEST_PAUSE,
            Trouble::Changed { .. } | Trouble::Unknown { .. } | Trouble::Permanent { .. } => ANY_PAUSE,
        };
        End::Again { why: trouble.to_string(), pause }
    }
}

fn reason_of(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::TooLarge { .. } => "TooLarge",
        Refusal::Name(_) | Refusal::Stamp(_) => "InvalidName",
    }
}

fn again(why: &str) -> End {
    End::Again { why: why.to_owned(), pause: ANY_PAUSE }
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
