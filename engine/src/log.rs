//! The log: the rules that every implementation keeps, and the two methods that they are about.

use std::fmt;
use std::future::Future;
use std::time::Duration;

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
/// 5. An id that the log has among its newest [`DEDUPE_WINDOW`] records, as far as they are younger than
///    [`DEDUPE_AGE`] (or more), is a `Duplicate`, with the sequence of the first one; nothing is stored. This comes
///    before the expected tail: a retry is never a conflict.
/// 6. With [`ExpectedTail::Empty`] or [`ExpectedTail::At`] the event is stored only if that is the tail of its
///    release at this moment, counting the events before it in the same call; else `Conflict` says the tail. A log
///    of several servers may let one through while another writer's event of the release is on its way.
/// 7. `Unknown` promises nothing: the record may be stored or not. The same id may be appended again. What follows
///    it in the same call and is of the same release is not stored, so that a retry keeps the order.
/// 8. Bytes and subject are stored as they are given, and come back as they are.
///
/// Reading
/// 9. `read` returns records from `from` on, ascending, only those of the scope, up to about [`READ_BYTES`] or
///    [`READ_RECORDS`]; [`Batch::next`] is where to go on, and everything of the scope before it was returned.
/// 10. At the tail it returns no records, or with [`Wait::ForMore`] returns when there is one. The future may be
///     dropped at any time; nothing is consumed by reading.
/// 11. A record that is damaged or missing is [`ReadError::Damaged`] with its place. Only what was taken out of the log
///     on purpose is passed over, and told in [`Batch::gaps`].
/// 12. [`Batch::log`] is the log's identity: two logs that could hold different records at one sequence never share it.
/// 13. [`Batch::session`] changes whenever the log may have been exchanged behind the reader's back, as by a server
///     that was away: what is known of the log is compared with it again then.
pub trait Log: Send + Sync + 'static {
    /// Appends events; one answer for each, in order.
    fn append(&self, events: Vec<NewEvent>) -> impl Future<Output = Result<Vec<Appended>, AppendError>> + Send;

    /// Reads from a sequence on.
    fn read(&self, from: Sequence, scope: &Scope, wait: Wait) -> impl Future<Output = Result<Batch, ReadError>> + Send;
}

/// In how many of its newest records a log finds an id again, at the least.
pub const DEDUPE_WINDOW: usize = 65_536;

/// For how long a log finds an id again, at the least, however few records it has.
pub const DEDUPE_AGE: Duration = Duration::from_secs(600);

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
    /// What is gone between the place that was asked for and `next`, ascending.
    pub gaps: Vec<Gap>,
    /// Which connection to the log this is; always the same where the log lies in this process.
    pub session: u64,
}

/// Records that were taken out of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The first one.
    pub first: Sequence,
    /// The last one.
    pub last: Sequence,
    /// How they went.
    pub cause: GapCause,
}

/// How records went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GapCause {
    /// Somebody deleted them, one by one.
    Deleted,
    /// Somebody purged the log up to there.
    Purged,
    /// The log's own limits of age, size or number.
    Limits,
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
    /// There is no such log any more, or never was.
    #[error("there is no log {log}")]
    Missing {
        /// Its name.
        log: String,
    },
    /// This login may not read it.
    #[error("this login may not read the log")]
    Denied(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The log refuses to be read in this way, and will when it is asked again.
    #[error("the log refuses to be read")]
    Refused(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A record is not there, or not what was stored. Reading again does not help.
    #[error("the log is damaged at sequence {sequence}: {problem}")]
    Damaged {
        /// The place.
        sequence: Sequence,
        /// What is wrong there.
        problem: String,
    },
}

impl Batch {
    /// A batch without records.
    #[must_use]
    pub fn empty(log: LogId, tail: Option<Sequence>, next: Sequence) -> Self {
        Self { log, tail, next, records: Records::default(), gaps: Vec::new(), session: 0 }
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, last, cause } = self;
        let how = match cause {
            GapCause::Deleted => "deleted",
            GapCause::Purged => "purged",
            GapCause::Limits => "removed by the log's limits",
        };
        if first == last {
            write!(f, "the record at {first} was {how}")
        } else {
            write!(f, "the records at {first} to {last} were {how}")
        }
    }
}

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name, self.incarnation)
    }
}
