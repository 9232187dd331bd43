//! Replay: a range of the log into a projection, with nothing kept and nothing written anywhere.

use std::fmt;
use std::str::FromStr;

use decklog_schemas::{Record, Seconds, Sequence};

use crate::Projection;
use crate::log::{Gap, Log, ReadError, Scope, Wait};
use crate::records::Records;

/// Up to where a replay goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The tail of the log as it is when the replay begins.
    Tail,
    /// This sequence, if the log has it, else the last one before it.
    Sequence(Sequence),
    /// The last record before the first one that was recorded after this moment.
    Time(jiff::Timestamp),
}

/// The text names no moment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a moment such as seq:1234 or 2026-03-02T14:03:00Z")]
pub struct BadMoment {
    text: String,
}

/// What a replay read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// The last sequence of the log's range that the state reflects; none if the range is empty.
    pub last: Option<Sequence>,
    /// How many records were folded.
    pub records: u64,
    /// What was taken out of the log, so that the state is without it.
    pub gaps: Vec<Gap>,
}

/// Replays a log from its first record.
///
/// # Errors
/// The log cannot be read.
pub async fn replay<L: Log, P: Projection>(
    log: &L,
    scope: &Scope,
    until: Until,
    projection: &mut P,
) -> Result<Replayed, ReadError> {
    let mut from = Sequence::FIRST;
    let mut replayed = Replayed::default();
    let mut end = None;
    loop {
        let batch = log.read(from, scope, Wait::No).await?;
        let tail = *end.get_or_insert(batch.tail);
        replayed.gaps.extend_from_slice(&batch.gaps);
        let stop = fold_records(&batch.records, until, tail, projection, &mut replayed);
        if stop == Stop::Reached || Some(batch.next) > tail {
            replayed.last = replayed.last.max(reached(scope, until, tail, stop));
            return Ok(replayed);
        }
        from = batch.next;
        // A log that answers at once would keep the thread to itself.
        tokio::task::yield_now().await;
    }
}

/// The record at a sequence, none if it is not there; and the tail of the log.
///
/// # Errors
/// The log cannot be read.
pub async fn record_at<L: Log>(
    log: &L,
    sequence: Sequence,
) -> Result<(Option<Record<'static>>, Option<Sequence>), ReadError> {
    let batch = log.read(sequence, &Scope::All, Wait::No).await?;
    let found = batch.records.iter().next().filter(|record| record.sequence == sequence);
    Ok((found.map(Record::into_static), batch.tail))
}

/// Replays records that are in memory.
pub fn replay_records<P: Projection>(records: &Records, until: Until, projection: &mut P) -> Replayed {
    let mut replayed = Replayed::default();
    fold_records(records, until, records.last_sequence(), projection, &mut replayed);
    replayed
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// The bound of the replay.
    Reached,
    /// The end of the records.
    Ended,
}

fn fold_records<P: Projection>(
    records: &Records,
    until: Until,
    tail: Option<Sequence>,
    projection: &mut P,
    replayed: &mut Replayed,
) -> Stop {
    for record in records.iter() {
        if Some(record.sequence) > tail || is_beyond(&record, until) {
            return Stop::Reached;
        }
        // What becomes of each record is the projection's to keep; a replay only brings them in order.
        let _ = projection.fold(&record);
        replayed.records += 1;
        replayed.last = Some(record.sequence);
    }
    Stop::Ended
}

fn is_beyond(record: &Record<'_>, until: Until) -> bool {
    match until {
        Until::Tail => false,
        Until::Sequence(sequence) => record.sequence > sequence,
        Until::Time(moment) => record.recorded > moment,
    }
}

/// A release's own records may end before the range does: the state reflects all of the range even so. Only where the
/// range ends at a time, nobody knows which record of another release is its last.
fn reached(scope: &Scope, until: Until, tail: Option<Sequence>, stop: Stop) -> Option<Sequence> {
    match until {
        Until::Tail => tail,
        Until::Sequence(sequence) => tail.map(|tail| tail.min(sequence)),
        Until::Time(_) => tail.filter(|_| stop == Stop::Ended && *scope == Scope::All),
    }
}

// === impl Until ===

/// `seq:1234`, or an RFC 3339 time.
impl FromStr for Until {
    type Err = BadMoment;

    fn from_str(text: &str) -> Result<Self, BadMoment> {
        let bad = || BadMoment { text: text.to_owned() };
        match text.strip_prefix("seq:") {
            Some(number) => number.parse().ok().and_then(Sequence::new).map(Self::Sequence).ok_or_else(bad),
            None => Seconds::parse_timestamp(text).map(Self::Time).map_err(|_| bad()),
        }
    }
}

impl fmt::Display for Until {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tail => f.write_str("the tail"),
            Self::Sequence(sequence) => write!(f, "seq:{sequence}"),
            Self::Time(moment) => moment.fmt(f),
        }
    }
}
