//! The log: the rules that every implementation keeps, and the two methods that they are about.

use std::fmt;
use std::future::Future;

use decklog_schemas::{ReleaseKey, Sequence};

use crate::records::Records;

/// An append-only sequence of events, the one truth of decklog.
///
/// Order
/// 1. Sequences are 1, 2, 3 …: what is stored next gets the next number. A number is never used twice.
/// 2. The events of one call are stored in the order of the call, each for itself: one that is refused, in conflict
///    or a duplicate takes no number and does not stop those behind it.
/// 3. The recorded time is the log's clock and never goes back from one record to the next.
///
/// Appending
/// 4. `Stored` and `Duplicate` are said only after the record would survive the process being killed with -9.
/// 5. An id that the log has among its newest [`DEDUPE_WINDOW`] records (or more) is a `Duplicate`, with the sequence
///    of the first one; nothing is stored. This comes before the expected tail: a retry is never a conflict.
/// 6. With [`ExpectedTail::Empty`] or [`ExpectedTail::At`] the event is stored only if that is the tail of its
///    release at this moment, counting the events before it in the same call; else `Conflict` says the tail.
/// 7. `Unknown` promises nothing: the record may be stored or not. The same id may be appended again.
/// 8. Bytes and subject are stored as they are given, and come back as they are.
///
/// Reading
/// 9. `read` returns records from `from` on, ascending, only those of the scope, up to about [`READ_BYTES`] or
///    [`READ_RECORDS`]; [`Batch::next`] is where to go on, and everything of the scope before it was returned.
/// 10. At the tail it returns no records, or with [`Wait::ForMore`] returns when there is one. The future may be
///     dropped at any time; nothing is consumed by reading.
/// 11. A record that is damaged or missing is [`ReadError::Damaged`] with its place, never passed over.
/// 12. [`Batch::log`] is the log's identity: two logs that could hold different records at one sequence never share it.
pub trait Log: Send + Sync + 'static {
    /// Appends events; one answer for each, in order.
    fn append(&self, events: Vec<NewEvent>) -> impl Future<Output = Result<Vec<Appended>, AppendError>> + Send;

    /// Reads from a sequence on.
    fn read(&self, from: Sequence, scope: &Scope, wait: Wait) -> impl Future<Output = Result<Batch, ReadError>> + Send;
}

/// In how many of its newest records a log finds an id again, at the least.
pub const DEDUPE_WINDOW: usize = 65_536;

/// About how many bytes one read returns at the most.
pub const READ_BYTES: usize = 4 * 1024 * 1024;

/// How many records one read returns at the most.
pub const READ_RECORDS: usize = 8_192;

/// An event to be appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// The event's id, by which it is found again.
    pub id: String,
    /// The subject to store it under.
    pub subject: String,
    /// The event, byte for byte.
    pub bytes: Vec<u8>,
    /// What the tail of its release must be.
    pub expected: ExpectedTail,
}

/// The last record of a release, as a writer believes it to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedTail {
    /// Whatever it is.
    Any,
    /// The release has no record.
    Empty,
    /// The release's last record has this sequence.
    At(Sequence),
}

/// What became of one appended event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Appended {
    /// It was stored.
    Stored {
        /// Its place.
        sequence: Sequence,
    },
    /// The log had it before.
    Duplicate {
        /// Place of the first one.
        sequence: Sequence,
    },
    /// The release's tail was not the expected one; nothing was stored.
    Conflict {
        /// The tail of the release; none if it has no record.
        tail: Option<Sequence>,
    },
    /// The log does not take it; nothing was stored.
    Refused {
        /// Why, in words.
        reason: String,
    },
    /// It may be stored or not.
    Unknown {
        /// What went wrong, in words.
        reason: String,
    },
}

/// The whole append failed, or its outcome is not known.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The log can be reached no more; what was sent may be stored or not. Send it again with the same ids.
    #[error("the log does not answer")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The log has failed, and takes nothing until it was opened anew.
    #[error("the log has failed and takes no more events until it is opened anew")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Which records are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All.
    All,
    /// Those of one release.
    Release(ReleaseKey),
}

/// What a read does at the tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It returns at once.
    No,
    /// It waits for a record.
    ForMore,
}

/// What one read returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Which log it is.
    pub log: LogId,
    /// The last sequence of the log, of whatever scope; none if it is empty.
    pub tail: Option<Sequence>,
    /// Where to go on.
    pub next: Sequence,
    /// The records.
    pub records: Records,
}

/// The identity of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogId {
    /// Its name, such as that of the stream.
    pub name: String,
    /// What differs between two logs of one name: when it was created, or a UUID.
    pub incarnation: String,
}

/// Reading failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The log can be reached no more; reading again later may succeed.
    #[error("the log does not answer")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A record is not there, or not what was stored. Reading again does not help.
    #[error("the log is damaged at sequence {sequence}: {problem}")]
    Damaged {
        /// The place.
        sequence: Sequence,
        /// What is wrong there.
        problem: String,
    },
}

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name, self.incarnation)
    }
}
