//! One pass: what the log says of a release, what the cluster has, the plan, and its requests one after the other.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::sync::PoisonError;

use decklog_engine::log::Log;
use decklog_projections::inventory::{Inventories, Standing};
use decklog_projections::plan::{
    Action, Desired, FieldManager, LIMIT_BYTES, Observed, Refusal, WARN_BYTES, Wanted, forecast, is_name, plan,
};
use decklog_schemas::ReleaseKey;

use super::cache::Present;
use super::{ApplyError, Shared};
use crate::answer::Trouble;
use crate::turns::{Again, End};

/// How often a pass plans again because the cluster has changed under it.
const ROUNDS: usize = 5;

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
            Err(trouble) => return Ok(after(&trouble, key)),
        };
        let desired = Desired::of(&standing, &self.log, &self.options.shard_label);
        for round in 0..ROUNDS {
            let actions = match plan(&desired, observed.as_ref(), self.options.other) {
                Ok(actions) => actions,
                Err(Refusal::Stamp(stamp)) => {
                    self.confirm(key, stamp).await?;
                    return Ok(again("the cluster is ahead of what is folded here"));
                }
                Err(refusal) => {
                    let why = (FieldManager::ReleaseInventory, reason_of(&refusal), &*refusal.to_string());
                    return Ok(self.refuse(key, &standing, why).await);
                }
            };
            if actions.is_empty() {
                self.refused().remove(key);
                self.cache().settle(key, standing.sequence);
                return Ok(self.settled(key, &standing, observed.as_ref()).await);
            }
            self.weigh(key, &desired);
            if round == 0 {
                self.tell_drift(key, &standing, observed.as_ref(), &actions);
            }
            observed = match self.carry_out(key, &standing, &actions, observed).await {
                Ok(observed) => observed,
                Err(end) => return Ok(end),
            };
        }
        Ok(again("the object changes while it is applied, or is not what was applied"))
    }

    /// Sends one request after the other. Returns what is there then, or how the pass ends.
    async fn carry_out(
        &self,
        key: &ReleaseKey,
        standing: &Standing,
        actions: &[Action],
        mut observed: Option<Observed>,
    ) -> Result<Option<Observed>, End> {
        for action in actions {
            if !self.may_write() {
                return Err(End::Standby);
            }
            observed = match self.execute(key, action, observed.as_ref()).await {
                Ok(answer) => answer,
                Err(Trouble::Changed { .. }) => {
                    return self.ask(key).await.map_err(|trouble| after(&trouble, key));
                }
                // A deletion stays the same for ever: somebody may lift what forbids it.
                Err(trouble @ Trouble::Permanent { .. }) if !matches!(standing.wanted, Wanted::Object(_)) => {
                    return Err(after(&trouble, key));
                }
                Err(Trouble::Permanent { reason, message }) => {
                    let why = (manager_of(action), reason.as_str(), &*message);
                    return Err(self.refuse(key, standing, why).await);
                }
                Err(trouble) => {
                    self.cache().doubt(key);
                    return Err(after(&trouble, key));
                }
            };
        }
        Ok(observed)
    }

    /// Whether the cluster has refused just this. Of a deletion that is not remembered: it stays the same for ever.
    fn is_refused(&self, key: &ReleaseKey, wanted: &Wanted) -> bool {
        let refused = self.refused().get(key).copied();
        matches!(wanted, Wanted::Object(_)) && refused.is_some_and(|refused| refused == hash_of(wanted))
    }

    /// Tells of what was in line with the log, and is not any more although the log has not changed: somebody else has
    /// written to it. What a repair takes back is told with its writers.
    fn tell_drift(&self, key: &ReleaseKey, standing: &Standing, observed: Option<&Observed>, actions: &[Action]) {
        let is_put_back = matches!(standing.wanted, Wanted::Object(_))
            && self.cache().settled(key) == Some(standing.sequence)
            && !actions.iter().any(|action| matches!(action, Action::Repair { taken, .. } if !taken.is_empty()));
        if !is_put_back {
            return;
        }
        let concerned = |manager: &FieldManager| actions.iter().any(|action| manager_of(action) == *manager);
        let managers: Vec<_> = FieldManager::ALL.into_iter().filter(concerned).map(FieldManager::name).collect();
        if observed.is_some() {
            tracing::warn!(release = %key, managers = managers.join(" "), "Fields of these managers were changed by somebody else, and are put back as the log has them");
        } else {
            tracing::warn!(release = %key, "Inventory was deleted by somebody else, and is made again as the log has it");
        }
        self.metrics.put_back(if observed.is_some() { "Changed" } else { "Deleted" });
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
    async fn settled(&self, key: &ReleaseKey, standing: &Standing, observed: Option<&Observed>) -> End {
        if standing.wanted != Wanted::Gone || observed.is_some() {
            return End::Settled;
        }
        // Of a name that no API server takes there is no object, and the request for it would be one for another.
        if is_name(&key.namespace, &key.name) {
            match self.ask(key).await {
                Ok(None) => {}
                Ok(Some(_)) => return again("the object is there again"),
                Err(trouble) => return after(&trouble, key),
            }
        }
        match self.teller.inventory_deleted(key, standing).await {
            Ok(()) => End::Settled,
            Err(why) => End::Again(Again::untold(why)),
        }
    }

    /// The cluster will not take it: the log is told, once, and it is tried again when it has changed.
    async fn refuse(
        &self,
        key: &ReleaseKey,
        standing: &Standing,
        (manager, reason, message): (FieldManager, &str, &str),
    ) -> End {
        tracing::error!(release = %key, %manager, reason, error = message, "Cluster does not take the inventory; the log has it, and it is tried again when it changes");
        self.metrics.refused(manager, reason);
        match self.teller.projection_refused(key, standing, manager, reason, message).await {
            Ok(()) => {
                self.refused().insert(key.clone(), hash_of(&standing.wanted));
                End::Settled
            }
            Err(why) => End::Again(Again::untold(why)),
        }
    }
}

fn reason_of(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::TooLarge { .. } => "TooLarge",
        Refusal::Name(_) | Refusal::Stamp(_) => "InvalidName",
    }
}

fn again(why: &str) -> End {
    End::Again(Again::because(why))
}

fn after(trouble: &Trouble, key: &ReleaseKey) -> End {
    End::Again(Again::after(trouble, key))
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
