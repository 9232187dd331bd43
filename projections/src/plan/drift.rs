//! Whether an object says what the log says, and where it does not: in which field, since when, and who wrote it.

mod rows;
mod writers;

use std::collections::BTreeMap;

use decklog_schemas::Sequence;
use decklog_schemas::inventory::ReleaseInventory;
use serde_json::Value;

use self::rows::RowDifferences;
pub use self::writers::Writer;
use super::body::Body;
use super::manager::{FieldManager, List};
use super::observed::Observed;
use super::stamp::{Stamp, annotation};
use super::{Desired, Wanted};

/// How the cluster stands to the log, in one release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The object is what the log says.
    Equal,
    /// It is what the log said at the object's stamps, and the log goes on.
    Behind,
    /// Somebody else than a projector has written to it.
    Drifted,
    /// The log says that there is to be an object, and the cluster has none.
    Missing,
    /// The object is of our log, which says that there is to be none.
    Ghost,
    /// The object is none of our log.
    Foreign,
    /// It was made from more of our log than there is: records are gone from the log.
    Ahead,
}

/// One release, compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// How it stands.
    pub verdict: Verdict,
    /// From where in which log each manager's body was made, as the object says.
    pub stamps: BTreeMap<FieldManager, Stamp>,
    /// What is not as the log says: labels, items, hooks, owners, each sorted.
    pub differences: Vec<Difference>,
}

/// A part of an object that is not as the log says.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The field, such as `inventory[apps/Deployment/shop/web].wave`, or a row without a field.
    pub field: String,
    /// The manager that it belongs to.
    pub manager: FieldManager,
    /// Why it differs.
    pub cause: Cause,
    /// What the log says; none if it is not to be there. A row is a map of its fields.
    pub expected: Option<Value>,
    /// What the object says; none if it is not there.
    pub found: Option<Value>,
    /// Who owns what is there, by `managedFields`; nobody is known to have taken something away.
    pub writers: Vec<Writer>,
}

/// Why a part of an object is not as the log says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// It is what the log said at the stamp of its manager.
    Behind,
    /// The log never said it there.
    Drifted,
    /// It says what the log says, and belongs to somebody else, or to nobody.
    Owned,
}

/// Which log is ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// The one that stamps call so.
    Known(String),
    /// Nobody knows how stamps call it, as with a file: every stamp counts as ours.
    Unknown,
}

/// What the log said of a release at the sequences of its stamps; none where it said that there is to be no object.
pub type Past = BTreeMap<Sequence, Option<ReleaseInventory>>;

/// What the log says of one release.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    /// Which log it is.
    pub log: &'a Identity,
    /// Its last record; none if it is empty.
    pub tail: Option<Sequence>,
    /// What it says now; none if it knows nothing of the release.
    pub desired: Option<&'a Desired>,
    /// What it said at the sequences of the object's stamps.
    pub past: &'a Past,
    /// Key of the shard label.
    pub shard_label: &'a str,
}

/// Compares what the log says of a release with what the cluster has; none if there is to be no object, and is none.
#[must_use]
pub fn compare(told: &Told<'_>, observed: Option<&Observed>) -> Option<Comparison> {
    let wanted = told.desired.and_then(|desired| match &desired.object {
        Wanted::Object(object) => Some(&**object),
        Wanted::Gone | Wanted::Nothing => None,
    });
    let Some(observed) = observed else {
        let missing = |_| Comparison { verdict: Verdict::Missing, stamps: BTreeMap::new(), differences: Vec::new() };
        return wanted.map(missing);
    };
    let stamps = stamps_of(observed);
    let verdict = if stamps.values().any(|stamp| !told.log.is(&stamp.log)) {
        Verdict::Foreign
    } else if stamps.values().any(|stamp| Some(stamp.sequence) > told.tail) {
        Verdict::Ahead
    } else if let Some(wanted) = wanted {
        let differences = Comparing::new(told, wanted, observed, &stamps).differences();
        return Some(Comparison { verdict: verdict_of(&differences), stamps, differences });
    } else {
        // What is owed is deleted whoever made it; of anything else, what carries no stamp is not ours.
        let is_owed = told.desired.is_some_and(|desired| desired.object == Wanted::Gone);
        if stamps.is_empty() && !is_owed { Verdict::Foreign } else { Verdict::Ghost }
    };
    Some(Comparison { verdict, stamps, differences: Vec::new() })
}

fn verdict_of(differences: &[Difference]) -> Verdict {
    match differences.iter().map(|difference| difference.cause).max() {
        None => Verdict::Equal,
        Some(Cause::Behind) => Verdict::Behind,
        Some(Cause::Drifted | Cause::Owned) => Verdict::Drifted,
    }
}

fn stamps_of(observed: &Observed) -> BTreeMap<FieldManager, Stamp> {
    let annotations = &observed.object()["metadata"]["annotations"];
    let stamp = |manager| Some((manager, Stamp::parse(annotations.get(annotation(manager))?.as_str()?)?));
    FieldManager::ALL.into_iter().filter_map(stamp).collect()
}

/// An object that there is to be, and that there is.
struct Comparing<'a> {
    observed: &'a Observed,
    shard_label: &'a str,
    /// By manager: what it should say.
    wanted: [Body; 4],
    /// By manager: what the log said at its stamp.
    past: [Body; 4],
    /// The values of the shard label, now and at the stamp.
    shard: Option<&'a str>,
    past_shard: Option<&'a str>,
}

// === impl Comparing ===

impl<'a> Comparing<'a> {
    fn new(
        told: &Told<'a>,
        wanted: &'a ReleaseInventory,
        observed: &'a Observed,
        stamps: &BTreeMap<FieldManager, Stamp>,
    ) -> Self {
        let past = |manager| told.past.get(&stamps.get(&manager)?.sequence)?.as_ref();
        let body = |manager| past(manager).map_or_else(|| Body::empty(manager), |object| Body::of(manager, object));
        Self {
            observed,
            shard_label: told.shard_label,
            wanted: FieldManager::ALL.map(|manager| Body::of(manager, wanted)),
            past: FieldManager::ALL.map(body),
            shard: shard_of(wanted),
            past_shard: past(FieldManager::ReleaseInventory).and_then(shard_of),
        }
    }

    fn differences(&self) -> Vec<Difference> {
        let mut differences = self.of_metadata();
        for list in List::ALL {
            differences.extend(RowDifferences::new(list, self.observed.object(), &self.wanted, &self.past).all());
        }
        self.add_owners(&mut differences);
        differences
    }

    fn of_metadata(&self) -> Vec<Difference> {
        let mut differences = Vec::new();
        let found = self.observed.shard();
        if found != self.shard {
            let cause = if found == self.past_shard { Cause::Behind } else { Cause::Drifted };
            let key = self.shard_label;
            let path = ["f:metadata".to_owned(), "f:labels".to_owned(), format!("f:{key}")];
            differences.push(Difference {
                field: format!("metadata.labels[{key}]"),
                manager: FieldManager::ReleaseInventory,
                cause,
                expected: self.shard.map(Value::from),
                found: found.map(Value::from),
                writers: writers::of(self.observed.object(), |fields| writers::holds(fields, &path)),
            });
        }
        if self.observed.is_terminating() {
            differences.push(Difference {
                field: "metadata.deletionTimestamp".to_owned(),
                manager: FieldManager::ReleaseInventory,
                cause: Cause::Drifted,
                expected: None,
                found: self.observed.object()["metadata"].get("deletionTimestamp").cloned(),
                writers: Vec::new(),
            });
        }
        differences
    }

    /// What has the right value, and does not belong to its manager alone.
    fn add_owners(&self, differences: &mut Vec<Difference>) {
        let repair = self.observed.repair();
        let values = differences.len();
        for taken in repair.iter().flat_map(|repair| repair.taken()) {
            let is_told = |told: &Difference| taken.field.starts_with(&told.field);
            if differences[..values].iter().any(is_told) {
                continue;
            }
            let writer = Writer::find(self.observed.object(), &taken.manager, &taken.operation);
            match differences[values..].iter_mut().find(|told| told.field == taken.field) {
                Some(told) => told.writers.push(writer),
                None => differences.push(owned(&taken.field, writers::manager_of(&taken.field), vec![writer])),
            }
        }
        if !differences.is_empty() {
            return;
        }
        // The values are right, and nobody else has them: so it is our managers who own too little or too much.
        let repaired = repair.map(super::observed::Repair::into_observed);
        if repaired.is_some() {
            differences.push(owned("metadata.managedFields", FieldManager::ReleaseInventory, Vec::new()));
        }
        let reflected = repaired.as_ref().unwrap_or(self.observed).bodies();
        for (reflected, wanted) in reflected.iter().zip(&self.wanted).filter(|(reflected, wanted)| reflected != wanted)
        {
            let field = format!("metadata.managedFields[{}]", reflected.manager());
            differences.push(owned(&field, wanted.manager(), Vec::new()));
        }
    }
}

fn owned(field: &str, manager: FieldManager, writers: Vec<Writer>) -> Difference {
    Difference { field: field.to_owned(), manager, cause: Cause::Owned, expected: None, found: None, writers }
}

fn shard_of(object: &ReleaseInventory) -> Option<&str> {
    object.metadata.labels.values().next().map(String::as_str)
}

// === impl Comparison ===

impl Comparison {
    /// The place in the log to which the object is behind: the oldest stamp of what is, or the newest of the object if
    /// that has none because nothing was there to be stamped; none if nothing is behind.
    #[must_use]
    pub fn behind_since(&self) -> Option<Sequence> {
        let mut behind = self.differences.iter().filter(|difference| difference.cause == Cause::Behind).peekable();
        behind.peek()?;
        let since = |difference: &Difference| self.stamps.get(&difference.manager).map(|stamp| stamp.sequence);
        behind.filter_map(since).min().or_else(|| self.newest())
    }

    /// The newest of its stamps.
    #[must_use]
    pub fn newest(&self) -> Option<Sequence> {
        self.stamps.values().map(|stamp| stamp.sequence).max()
    }
}

// === impl Identity ===

impl Identity {
    /// Whether a stamp of a log is of ours.
    #[must_use]
    pub fn is(&self, log: &str) -> bool {
        match self {
            Self::Known(known) => known == log,
            Self::Unknown => true,
        }
    }
}

// === impl Verdict ===

impl Verdict {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Equal, Self::Behind, Self::Drifted, Self::Missing, Self::Ghost, Self::Foreign, Self::Ahead];

    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::Behind => "behind",
            Self::Drifted => "drifted",
            Self::Missing => "missing",
            Self::Ghost => "ghost",
            Self::Foreign => "foreign",
            Self::Ahead => "ahead",
        }
    }
}

// === impl Cause ===

impl Cause {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Behind => "behind",
            Self::Drifted => "drifted",
            Self::Owned => "owned",
        }
    }
}
