//! The plan: what is to be sent to a cluster so that its object becomes what the log says, with every choice made.

mod body;
mod desired;
mod drift;
mod managed;
mod manager;
mod names;
mod observed;
mod size;
mod stamp;

use decklog_schemas::Sequence;
use decklog_schemas::inventory::ReleaseInventory;
use serde_json::Value;

pub use self::body::{Body, RowKey, Rows};
pub use self::drift::{Cause, Comparison, Difference, Identity, Past, Told, Verdict, Writer, compare};
pub use self::managed::Owner;
pub use self::manager::FieldManager;
pub use self::names::{BadName, is_label_key, is_name};
pub use self::observed::{Observed, Unreadable};
pub use self::size::{LIMIT_BYTES, WARN_BYTES, forecast};
pub use self::stamp::{Stamp, StampError, annotation};

/// What the log says of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    /// What is to be in the cluster.
    pub object: Wanted,
    /// The log, and the last event of the release that is folded.
    pub stamp: Stamp,
    /// The last event of the log that is folded, of whatever release.
    pub folded: Sequence,
}

/// What is to be in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// This object.
    Object(Box<ReleaseInventory>),
    /// None any more, and the log is to be told once it is gone.
    Gone,
    /// None, and nobody waits to hear of it.
    Nothing,
}

/// One request. Executed as it is: it names what must hold for it to be sent.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Applies the fields of one manager, all of them.
    Apply {
        /// Whose fields.
        manager: FieldManager,
        /// The object as it is sent, without `metadata.uid` and `metadata.resourceVersion`.
        body: Value,
        /// What must hold.
        precondition: Precondition,
    },
    /// Replaces `metadata.managedFields`, so that each field belongs to the manager that it belongs to by its name.
    Repair {
        /// The new value.
        managed_fields: Value,
        /// What must hold.
        precondition: Precondition,
        /// What was somebody else's.
        taken: Vec<Owner>,
    },
    /// Deletes the object.
    Delete {
        /// `metadata.uid` that it must have.
        uid: String,
    },
}

/// What must hold for an action, besides that the object is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// The object is absent: the action creates it.
    Absent,
    /// It is as it was observed: same uid, same resourceVersion.
    AsObserved,
    /// It is as the action before has left it.
    AsAnswered,
}

/// Nothing may be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The object reflects another log, or more of this one than was folded.
    #[error(transparent)]
    Stamp(#[from] StampError),
    /// No API server takes its name or a label of it.
    #[error(transparent)]
    Name(#[from] BadName),
    /// The object would be larger than the API server can store.
    #[error(
        "it would take {bytes} bytes in the cluster, and no more than {LIMIT_BYTES} can be stored; the log has all of it, \
         and `decklog at` shows it"
    )]
    TooLarge {
        /// The forecast.
        bytes: usize,
    },
}

/// Whether an object of another log may be taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherLog {
    /// Never: a projector of the wrong log would replace what is right.
    Refuse,
    /// Somebody said so: from then on it is of this log, and says so.
    Adopt,
    /// Nobody knows which log this is, such as that in a file: every stamp is taken for its own.
    Indistinct,
}

/// The requests that bring an object in line with the log, in order; none if it is.
///
/// Removals begin with the managers of states, so that no row stays behind with nothing but a state, and additions with
/// the owners of rows, so that no state comes before its row. All bodies are whole: whatever of the requests is carried
/// out, planning again leads to the same end.
///
/// # Errors
/// Nothing may be sent.
pub fn plan(desired: &Desired, observed: Option<&Observed>, other: OtherLog) -> Result<Vec<Action>, Refusal> {
    if let Some(observed) = observed {
        stamp::check(desired, observed, other)?;
    }
    match (&desired.object, observed) {
        (_, Some(observed)) if observed.is_terminating() => Ok(Vec::new()),
        (Wanted::Object(object), None) => {
            let bodies = Bodies::of(object)?;
            Ok(create(object, &bodies, &desired.stamp))
        }
        (Wanted::Object(object), Some(observed)) => {
            let bodies = Bodies::of(object)?;
            Ok(update(object, &bodies, observed, (&desired.stamp, other)))
        }
        (Wanted::Gone, Some(observed)) => Ok(vec![Action::Delete { uid: observed.uid().to_owned() }]),
        // What carries our stamp is our own, applied by a projector that did not know better. Nothing else is ours to delete.
        (Wanted::Nothing, Some(observed)) if observed.stamps().any(|stamp| is_ours(stamp, &desired.stamp, other)) => {
            Ok(vec![Action::Delete { uid: observed.uid().to_owned() }])
        }
        (Wanted::Nothing, _) | (Wanted::Gone, None) => Ok(Vec::new()),
    }
}

/// Whether a stamp is of this log.
fn is_ours(stamp: &Stamp, ours: &Stamp, other: OtherLog) -> bool {
    stamp.log == ours.log || other == OtherLog::Indistinct
}

/// The bodies of an object, by manager.
#[derive(Debug)]
struct Bodies([Body; 4]);

fn create(object: &ReleaseInventory, bodies: &Bodies, stamp: &Stamp) -> Vec<Action> {
    let mut requests = Requests::new(object, stamp, Precondition::Absent);
    requests.apply(bodies.by(FieldManager::ReleaseInventory));
    for manager in [FieldManager::ReleaseHooks, FieldManager::HealthInventory, FieldManager::HookStatus] {
        if !bodies.by(manager).is_empty() {
            requests.apply(bodies.by(manager));
        }
    }
    requests.actions
}

fn update(
    object: &ReleaseInventory,
    bodies: &Bodies,
    observed: &Observed,
    (stamp, other): (&Stamp, OtherLog),
) -> Vec<Action> {
    let mut requests = Requests::new(object, stamp, Precondition::AsObserved);
    let repaired = observed.repair().map(|repair| {
        requests.repair(&repair);
        repair.into_observed()
    });
    let observed = repaired.as_ref().unwrap_or(observed);
    // For each manager, the body that the object reflects once what was planned so far is carried out.
    let mut reflected = observed.bodies().clone();
    for (manager, reflected) in FieldManager::ALL.into_iter().zip(&mut reflected) {
        // What is taken over from another log is not ours before it says so, even if it is the same.
        if other == OtherLog::Adopt && observed.stamp(manager).is_some_and(|found| found.log != stamp.log) {
            reflected.strays.insert(annotation(manager));
        }
    }
    let mut apply = |body: &Body| {
        let reflected = &mut reflected[body.manager() as usize];
        if reflected != body {
            requests.apply(body);
            *reflected = body.clone();
        }
    };
    for (status, owner) in [
        (FieldManager::HookStatus, FieldManager::ReleaseHooks),
        (FieldManager::HealthInventory, FieldManager::ReleaseInventory),
    ] {
        let stays = |key: &RowKey| bodies.by(owner).keeps(&observed.bodies()[owner as usize], key);
        let wanted = bodies.by(status);
        let lets_go = |key: &RowKey| !stays(key) || !wanted.rows().contains_key(key);
        if observed.bodies()[status as usize].rows().keys().any(lets_go) {
            apply(&wanted.only(stays));
        }
    }
    for manager in [
        FieldManager::ReleaseInventory,
        FieldManager::ReleaseHooks,
        FieldManager::HealthInventory,
        FieldManager::HookStatus,
    ] {
        apply(bodies.by(manager));
    }
    requests.actions
}

/// Collects actions.
struct Requests<'a> {
    object: &'a ReleaseInventory,
    stamp: &'a Stamp,
    next: Precondition,
    actions: Vec<Action>,
}

// === impl Requests ===

impl<'a> Requests<'a> {
    fn new(object: &'a ReleaseInventory, stamp: &'a Stamp, first: Precondition) -> Self {
        Self { object, stamp, next: first, actions: Vec::new() }
    }

    fn apply(&mut self, body: &Body) {
        let (manager, body) = (body.manager(), body.request(&self.object.metadata, self.stamp));
        let precondition = self.precondition();
        self.actions.push(Action::Apply { manager, body, precondition });
    }

    fn repair(&mut self, repair: &observed::Repair) {
        let (managed_fields, taken) = (repair.managed_fields(), repair.taken().to_vec());
        let precondition = self.precondition();
        self.actions.push(Action::Repair { managed_fields, precondition, taken });
    }

    fn precondition(&mut self) -> Precondition {
        std::mem::replace(&mut self.next, Precondition::AsAnswered)
    }
}

// === impl Bodies ===

impl Bodies {
    fn of(object: &ReleaseInventory) -> Result<Self, Refusal> {
        names::check(&object.metadata)?;
        let bodies = FieldManager::ALL.map(|manager| Body::of(manager, object));
        let bytes = size::forecast_of(object, &bodies);
        if bytes > LIMIT_BYTES {
            return Err(Refusal::TooLarge { bytes });
        }
        Ok(Self(bodies))
    }

    fn by(&self, manager: FieldManager) -> &Body {
        &self.0[manager as usize]
    }
}
