//! What the server says of the stream: its identity, its ends, and what is missing between them.

use decklog_engine::log::{Gap, GapCause, LogId};
use decklog_schemas::Sequence;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::ApiError;
use crate::connect::Connection;

/// Stream and state, as `STREAM.INFO` answers.
#[derive(Clone, Debug, Deserialize)]
pub struct StreamInfo {
    /// When the stream was created: what differs between two streams of one name.
    pub created: String,
    /// The configuration, also what this version knows nothing of.
    pub config: Value,
    /// Its ends and sizes.
    pub state: StreamState,
    /// Leader and replicas, where the server is one of a cluster.
    #[serde(default)]
    pub cluster: Option<Value>,
}

/// Ends and sizes of a stream.
#[derive(Clone, Debug, Deserialize)]
pub struct StreamState {
    /// How many messages it has.
    pub messages: u64,
    /// How many bytes they take.
    pub bytes: u64,
    /// The first sequence that is there; one above the last in an empty stream.
    pub first_seq: u64,
    /// When that was recorded, RFC 3339.
    pub first_ts: String,
    /// The last sequence that was given away; 0 in a new stream.
    pub last_seq: u64,
    /// When that was recorded, RFC 3339.
    pub last_ts: String,
    /// How many consumers it has.
    #[serde(default)]
    pub consumer_count: u64,
    /// How many subjects it has.
    #[serde(default)]
    pub num_subjects: u64,
    /// Which sequences between the ends were deleted, if that was asked for.
    #[serde(default)]
    pub deleted: Option<Vec<u64>>,
}

/// Records that the reader did not get.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Missing {
    /// The stream says that it has them.
    #[error("the records at {first} to {last} were not delivered, and the stream says that it has them")]
    Lost { first: Sequence, last: Sequence },
    /// It is not the stream that was read.
    #[error("the stream is another one: it was {was}, and is {is}")]
    OtherLog { was: LogId, is: LogId },
    /// The stream could not be asked.
    #[error(transparent)]
    Api(#[from] ApiError),
}

/// Asks for the state of a stream.
pub(crate) async fn info(connection: &Connection, stream: &str) -> Result<StreamInfo, ApiError> {
    connection.ask(&format!("STREAM.INFO.{stream}"), &Value::Null).await
}

/// Everything that was taken out of a stream, in runs.
pub(crate) async fn gaps(connection: &Connection, stream: &str) -> Result<Vec<Gap>, ApiError> {
    Ok(detailed(connection, stream).await?.gaps())
}

/// Says why the records from `first` to before `end` are not there.
pub(crate) async fn classify(
    connection: &Connection,
    stream: &str,
    log: &LogId,
    first: Sequence,
    end: Sequence,
) -> Result<Vec<Gap>, Missing> {
    let info = detailed(connection, stream).await?;
    if info.id() != *log {
        return Err(Missing::OtherLog { was: log.clone(), is: info.id() });
    }
    let (mut found, mut next) = (Vec::new(), first);
    for Gap { first, last, cause } in info.gaps() {
        if last < next || first > next || next >= end {
            continue;
        }
        let last = last.min(before(end));
        found.push(Gap { first: next, last, cause });
        next = last.next();
    }
    if next < end { Err(Missing::Lost { first: next, last: before(end) }) } else { Ok(found) }
}

/// The state with each sequence that was deleted.
async fn detailed(connection: &Connection, stream: &str) -> Result<StreamInfo, ApiError> {
    connection.ask(&format!("STREAM.INFO.{stream}"), &json!({ "deleted_details": true })).await
}

fn before(end: Sequence) -> Sequence {
    Sequence::new(end.get() - 1).unwrap_or(Sequence::FIRST)
}

fn gap(first: u64, last: u64, cause: GapCause) -> Option<Gap> {
    Some(Gap { first: Sequence::new(first)?, last: Sequence::new(last)?, cause })
}

impl StreamInfo {
    /// The identity of the log.
    #[must_use]
    pub fn id(&self) -> LogId {
        let name = self.config["name"].as_str().unwrap_or_default().to_owned();
        LogId { name, incarnation: self.created.clone() }
    }

    /// The last sequence that was given away.
    #[must_use]
    pub fn tail(&self) -> Option<Sequence> {
        Sequence::new(self.state.last_seq)
    }

    /// What was taken out, in runs, ascending: in front of the first record, and as far as it was asked for behind it.
    fn gaps(&self) -> Vec<Gap> {
        let mut gaps: Vec<Gap> = Vec::new();
        let front = if self.has_limits() { GapCause::Limits } else { GapCause::Purged };
        gaps.extend(self.state.first_seq.checked_sub(1).and_then(|last| gap(1, last, front)));
        // Limits that drop records in the middle leave the same traces as somebody who deletes them.
        let cause = if self.drops_in_the_middle() { GapCause::Limits } else { GapCause::Deleted };
        let mut deleted = self.state.deleted.clone().unwrap_or_default();
        deleted.sort_unstable();
        for sequence in deleted {
            match gaps.last_mut() {
                Some(run) if run.cause == cause && run.last.get() + 1 == sequence => run.last = run.last.next(),
                _ => gaps.extend(gap(sequence, sequence, cause)),
            }
        }
        gaps
    }

    /// Whether the stream drops records by itself that are not its oldest ones.
    #[must_use]
    fn drops_in_the_middle(&self) -> bool {
        self.config["max_msgs_per_subject"].as_i64().is_some_and(|limit| limit > 0)
            || self.config["allow_msg_ttl"].as_bool().unwrap_or(false)
    }

    /// Whether the stream drops records by itself.
    #[must_use]
    pub fn has_limits(&self) -> bool {
        let above = |field: &str| self.config[field].as_i64().is_some_and(|limit| limit > 0);
        above("max_age") || above("max_bytes") || above("max_msgs") || above("max_msgs_per_subject")
    }
}
