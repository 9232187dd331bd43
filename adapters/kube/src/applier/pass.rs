//! One pass: what the log says of a release, what the cluster has, the plan, and its requests one after the other.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::sync::{Arc, PoisonError};

use decklog_engine::log::Log;
use decklog_projections::inventory::{Inventories, Standing};
use decklog_projections::plan::{
    Action, Desired, FieldManager, LIMIT_BYTES, Observed, Refusal, WARN_BYTES, Wanted, forecast, is_name, plan,
};
use decklog_schemas::ReleaseKey;

use super::cache::Present;
use super::{ApplyError, Shared};
use crate::answer::Trouble;
use crate::lease::Term;
use crate::turns::{Again, End};

/// How often a pass plans again because the cluster has changed under it.
const ROUNDS: usize = 5;

/// A pass over one release, in one term.
pub(super) struct Pass<L> {
    pub(super) shared: Arc<Shared<L>>,
    pub(super) key: ReleaseKey,
    pub(super) term: Term,
}

/// What was in line with the log, and is not any more although the log has not changed: somebody else has written to it.
#[derive(Debug)]
enum Drift {
    Deleted,
    /// Fields of these managers; empty if a repair tells of each field.
    Changed(Vec<&'static str>),
}

/// What a repair is told as that takes no field from anybody.
const MANAGED_FIELDS: &str = "metadata.managedFields";

impl<L: Log> Pass<L> {
    /// Brings the release in line with the log.
    pub(super) async fn run(&self) -> Result<End, ApplyError> {
        if !self.term.lasts() {
            return Ok(End::Standby);
        }
        let Self { shared, key, .. } = self;
        shared.metrics.passed();
        let of = key.clone();
        let Some(standing) = shared.handle.ask(move |inventories: &mut Inventories| inventories.standing(&of)).await?
        else {
            return Ok(End::Settled);
        };
        if shared.options.shard.is_some() && standing.shard != shared.options.shard {
            return Ok(End::Settled);
        }
        if self.is_refused(&standing.wanted) {
            return Ok(End::Settled);
        }
        self.bring_in_line(&standing).await
    }

    async fn bring_in_line(&self, standing: &Standing) -> Result<End, ApplyError> {
        let Self { shared, key, .. } = self;
        let mut observed = match self.observed().await {
            Ok(observed) => observed,
            Err(trouble) => return Ok(self.after(&trouble)),
        };
        let desired = Desired::of(standing, &shared.log, &shared.options.shard_label);
        let mut drift = None;
        for round in 0..ROUNDS {
            let actions = match plan(&desired, observed.as_ref(), shared.options.other) {
                Ok(actions) => actions,
                Err(Refusal::Stamp(stamp)) => {
                    shared.confirm(key, stamp).await?;
                    return Ok(again("the cluster is ahead of what is folded here"));
                }
                Err(refusal) => {
                    let why = (FieldManager::ReleaseInventory, reason_of(&refusal), &*refusal.to_string());
                    return Ok(self.refuse(standing, why).await);
                }
            };
            if actions.is_empty() {
                return Ok(self.end(standing, observed.as_ref(), drift).await);
            }
            self.weigh(&desired);
            if round == 0 {
                drift = self.drift(standing, observed.as_ref(), &actions);
            }
            observed = match self.carry_out(standing, &actions, observed).await {
                Ok(observed) => observed,
                Err(end) => return Ok(end),
            };
        }
        Ok(again("the object changes while it is applied, or is not what was applied"))
    }

    /// Sends one request after the other. Returns what is there then, or how the pass ends.
    async fn carry_out(
        &self,
        standing: &Standing,
        actions: &[Action],
        mut observed: Option<Observed>,
    ) -> Result<Option<Observed>, End> {
        for action in actions {
            if !self.term.lasts() {
                return Err(End::Standby);
            }
            observed = match self.execute(action, observed.as_ref()).await {
                Ok(answer) => answer,
                Err(Trouble::Changed { .. }) => {
                    return self.ask().await.map_err(|trouble| self.after(&trouble));
                }
                // A deletion stays the same for ever: somebody may lift what forbids it.
                Err(trouble @ Trouble::Permanent { .. }) if !matches!(standing.wanted, Wanted::Object(_)) => {
                    return Err(self.after(&trouble));
                }
                Err(Trouble::Permanent { reason, message }) => {
                    let why = (manager_of(action), reason.as_str(), &*message);
                    return Err(self.refuse(standing, why).await);
                }
                Err(trouble) => {
                    self.shared.cache().doubt(&self.key);
                    return Err(self.after(&trouble));
                }
            };
        }
        Ok(observed)
    }

    /// Whether the cluster has refused just this. Of a deletion that is not remembered: it stays the same for ever.
    fn is_refused(&self, wanted: &Wanted) -> bool {
        let refused = self.shared.refused().get(&self.key).copied();
        matches!(wanted, Wanted::Object(_)) && refused.is_some_and(|refused| refused == hash_of(wanted))
    }

    /// What of the actions makes up for what somebody else has done.
    fn drift(&self, standing: &Standing, observed: Option<&Observed>, actions: &[Action]) -> Option<Drift> {
        let was_in_line = matches!(standing.wanted, Wanted::Object(_))
            && self.shared.cache().settled(&self.key) == Some(standing.sequence);
        if !was_in_line {
            return None;
        }
        if observed.is_none() {
            return Some(Drift::Deleted);
        }
        if actions.iter().any(|action| matches!(action, Action::Repair { taken, .. } if !taken.is_empty())) {
            return Some(Drift::Changed(Vec::new()));
        }
        let names = actions.iter().map(|action| match action {
            Action::Apply { manager, .. } => manager.name(),
            Action::Repair { .. } | Action::Delete { .. } => MANAGED_FIELDS,
        });
        let mut managers: Vec<_> = names.collect();
        managers.sort_unstable();
        managers.dedup();
        Some(Drift::Changed(managers))
    }

    /// Tells of what somebody else has done, once it is undone.
    fn tell(&self, drift: &Drift) {
        let release = &self.key;
        match drift {
            Drift::Deleted => {
                tracing::warn!(%release, "Inventory was deleted by somebody else, and was made again as the log has it");
                self.shared.metrics.put_back("Deleted");
            }
            Drift::Changed(managers) => {
                if !managers.is_empty() {
                    tracing::warn!(%release, managers = managers.join(" "), "Fields of these managers were changed by somebody else, and were put back as the log has them");
                }
                self.shared.metrics.put_back("Changed");
            }
        }
    }

    /// Tells how large the object will be, and warns while there is still time to do something about it.
    fn weigh(&self, desired: &Desired) {
        let Wanted::Object(object) = &desired.object else { return };
        let bytes = forecast(object);
        self.shared.metrics.forecast(bytes);
        let mut large = self.shared.large.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes <= WARN_BYTES {
            large.remove(&self.key);
        } else if large.insert(self.key.clone()) {
            tracing::warn!(release = %self.key, bytes, limit = LIMIT_BYTES, "Inventory takes more than half of what a cluster stores of one object; a release with fewer items would");
        }
    }

    /// The object as it is known, or as the cluster says if that is in doubt.
    async fn observed(&self) -> Result<Option<Observed>, Trouble> {
        let present = self.shared.cache().get(&self.key);
        match present {
            Present::Object(observed) => Ok(Some(*observed)),
            Present::Nothing => Ok(None),
            Present::Unknown => self.ask().await,
        }
    }

    /// There is nothing more to send.
    async fn end(&self, standing: &Standing, observed: Option<&Observed>, drift: Option<Drift>) -> End {
        let Self { shared, key, .. } = self;
        // What is on its way out is in line with nothing. It is seen when it has gone.
        if observed.is_some_and(Observed::is_terminating) {
            return End::Settled;
        }
        shared.refused().remove(key);
        if let Some(drift) = drift {
            self.tell(&drift);
        }
        if observed.is_some() {
            shared.cache().settle(key, standing.sequence);
            return End::Settled;
        }
        shared.cache().settle_gone(key);
        if standing.wanted == Wanted::Gone { self.tell_gone(standing).await } else { End::Settled }
    }

    /// Tells who waits for the end of a deleted release's object, once the cluster has none.
    async fn tell_gone(&self, standing: &Standing) -> End {
        let Self { shared, key, .. } = self;
        // Of a name that no API server takes there is no object, and the request for it would be one for another.
        if is_name(&key.namespace, &key.name) {
            match self.ask().await {
                Ok(None) => {}
                Ok(Some(_)) => return again("the object is there again"),
                Err(trouble) => return self.after(&trouble),
            }
        }
        if !self.term.lasts() {
            return End::Standby;
        }
        match shared.teller.inventory_deleted(key, standing).await {
            Ok(()) => End::Settled,
            Err(why) => End::Again(Again::untold(why)),
        }
    }

    /// The cluster will not take it: the log is told, once, and it is tried again when it has changed.
    async fn refuse(&self, standing: &Standing, (manager, reason, message): (FieldManager, &str, &str)) -> End {
        let Self { shared, key, term } = self;
        if !term.lasts() {
            return End::Standby;
        }
        tracing::error!(release = %key, %manager, reason, error = message, "Cluster does not take the inventory; the log has it, and it is tried again when it changes");
        shared.metrics.refused(manager, reason);
        match shared.teller.projection_refused(key, standing, manager, reason, message).await {
            Ok(()) => {
                shared.refused().insert(key.clone(), hash_of(&standing.wanted));
                End::Settled
            }
            Err(why) => End::Again(Again::untold(why)),
        }
    }

    fn after(&self, trouble: &Trouble) -> End {
        End::Again(Again::after(trouble, &self.key))
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
