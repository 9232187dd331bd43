//! What people and programs get back: the answers of `emit`, `at` and `timeline`, the same over HTTP and on a terminal.

mod quarantine;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::quarantine::{Inspected, QuarantineEntry, QuarantineKind, QuarantineList, QuarantinedRecord};
use crate::inventory::ReleaseInventory;
use crate::names::Sequence;
use crate::outcome::Reason;

/// What became of one event that was sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmitAnswer {
    /// `id` of the event, if it could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Whether the log has it.
    pub status: EmitStatus,
    /// Where the log has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<Sequence>,
    /// What the fold did with it; absent where the log does not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<OutcomeWord>,
    /// Why the fold ignored it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// What is wrong with it, and where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Whether the log has an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EmitStatus {
    /// It was appended.
    Stored,
    /// The log had it before.
    Duplicate,
    /// It was not appended: the log's tail was not the expected one.
    Conflict,
    /// It was not appended: it is not an event that the fold could use.
    #[default]
    Refused,
    /// It may have been appended: send it again with the same id.
    Unknown,
}

/// `folded` or `ignored`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OutcomeWord {
    /// It took part in the state.
    Folded,
    /// It did not; the reason says why.
    Ignored,
    /// It is no event of any release, and takes part in nothing.
    Quarantined,
}

/// One event in the timeline of a release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimelineEntry {
    /// Its place in the log.
    pub sequence: Sequence,
    /// When the log took it, RFC 3339.
    pub recorded: String,
    /// The writer's `time`, as written; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// CloudEvents `type`, as written.
    pub r#type: String,
    /// CloudEvents `source`, as written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// CloudEvents `id`, as written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What the fold did with it.
    pub outcome: OutcomeWord,
    /// Why it was ignored; null if it was folded.
    pub reason: Option<Reason>,
    /// What it says, in one line; for an invalid event, what is wrong.
    pub summary: String,
}

/// The state of some releases at a place of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// The last sequence that the state reflects; absent for an empty log.
    pub sequence: Option<Sequence>,
    /// SHA-256 over the canonical bytes of the objects, in hexadecimal.
    pub digest: String,
    /// The objects, sorted by cluster, namespace and name.
    pub releases: Vec<ReleaseView>,
}

/// The state of one release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleaseView {
    /// The cluster that the release is in.
    pub cluster: String,
    /// The last sequence of the release that was folded.
    pub sequence: Sequence,
    /// Where the first event stands that this build does not know: the object may lack what it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<Sequence>,
    /// The object.
    pub object: ReleaseInventory,
    /// Which event set which field, by JSON pointer into the object.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub provenance: BTreeMap<String, Sequence>,
}
