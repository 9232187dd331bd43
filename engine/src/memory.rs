//! A log in memory: every rule of the log, and nothing left when its last handle is dropped.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use decklog_schemas::subject::Subject;
use decklog_schemas::{MAX_EVENT_BYTES, Record, Sequence};
use jiff::Timestamp;
use tokio::sync::watch;

use crate::log::{
    AppendError, Appended, Batch, ExpectedTail, Log, LogId, NewEvent, READ_BYTES, READ_RECORDS, ReadError, Scope, Wait,
};

/// A log in memory, for replays that leave nothing behind and for tests. Its clones are one log.
///
/// It finds an id in all of its records, and keeps all of them: its memory grows with what is appended.
#[derive(Clone)]
pub struct MemoryLog {
    shared: Arc<Shared>,
}

struct Shared {
    id: LogId,
    clock: Box<dyn Fn() -> Timestamp + Send + Sync>,
    kept: Mutex<Kept>,
    tail: watch::Sender<Option<Sequence>>,
}

#[derive(Default)]
struct Kept {
    records: Vec<Record<'static>>,
    ids: BTreeMap<String, Sequence>,
    /// The places of each release's records, by its tokens.
    releases: BTreeMap<String, Vec<Sequence>>,
}

impl Log for MemoryLog {
    async fn append(&self, events: Vec<NewEvent>) -> Result<Vec<Appended>, AppendError> {
        let mut kept = self.kept();
        let now = (self.shared.clock)();
        let answers = events.into_iter().map(|event| kept.append(event, now)).collect();
        self.shared.tail.send_replace(kept.tail());
        Ok(answers)
    }

    async fn read(&self, mut from: Sequence, scope: &Scope, wait: Wait) -> Result<Batch, ReadError> {
        let mut tail = self.shared.tail.subscribe();
        loop {
            let batch = self.kept().read(&self.shared.id, from, scope);
            if wait == Wait::No || !batch.records.is_empty() {
                return Ok(batch);
            }
            from = batch.next;
            let grown = tail.wait_for(|tail| *tail >= Some(from)).await;
            grown.map_err(|closed| ReadError::Unavailable(Box::new(closed)))?;
        }
    }
}

// === impl MemoryLog ===

impl MemoryLog {
    /// A new, empty log that stamps its records with the clock of this machine.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(now)
    }

    /// A new, empty log that stamps its records with another clock. One that goes back is held at the last record's
    /// time.
    #[must_use]
    pub fn with_clock(clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        static LOGS: AtomicU64 = AtomicU64::new(1);
        let log = LOGS.fetch_add(1, Ordering::Relaxed);
        Self {
            shared: Arc::new(Shared {
                id: LogId { name: "memory".to_owned(), incarnation: format!("{}/{}/{log}", now(), std::process::id()) },
                clock: Box::new(clock),
                kept: Mutex::default(),
                tail: watch::Sender::new(None),
            }),
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        let kept = self.shared.kept.lock();
        kept.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryLog {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryLog").field("id", &self.shared.id).field("tail", &self.kept().tail()).finish()
    }
}

#[expect(clippy::disallowed_methods, reason = "the recorded time is the log's own clock, and this is the log")]
fn now() -> Timestamp {
    Timestamp::now()
}

// === impl Kept ===

impl Kept {
    fn tail(&self) -> Option<Sequence> {
        self.records.last().map(|record| record.sequence)
    }

    fn append(&mut self, event: NewEvent, now: Timestamp) -> Appended {
        if let Some(reason) = refusal(&event) {
            return Appended::Refused { reason };
        }
        if let Some(&sequence) = self.ids.get(&event.id) {
            return Appended::Duplicate { sequence };
        }
        let release = release_of(&event.subject);
        let places = release.and_then(|release| self.releases.get(release));
        let tail = places.and_then(|places| places.last().copied());
        let expected = match event.expected {
            ExpectedTail::Any => tail,
            ExpectedTail::Empty => None,
            ExpectedTail::At(sequence) => Some(sequence),
        };
        if expected != tail {
            return Appended::Conflict { tail };
        }
        let sequence = Sequence::after(self.tail());
        if let Some(release) = release {
            let places = self.releases.entry(release.to_owned()).or_default();
            places.push(sequence);
        }
        self.ids.insert(event.id, sequence);
        self.records.push(Record {
            sequence,
            recorded: self.records.last().map_or(now, |last| now.max(last.recorded)),
            subject: event.subject.into(),
            bytes: event.bytes.into(),
        });
        Appended::Stored { sequence }
    }

    fn read(&self, log: &LogId, from: Sequence, scope: &Scope) -> Batch {
        let behind_tail = Sequence::after(self.tail());
        let mut batch = Batch::empty(log.clone(), self.tail(), from.max(behind_tail));
        match scope {
            Scope::All => batch.take((from.get()..behind_tail.get()).map(|place| self.at(place))),
            Scope::Release(key) => {
                let places = self.releases.get(&key.tokens());
                let places = places.map_or(&[][..], Vec::as_slice);
                let start = places.partition_point(|&place| place < from);
                batch.take(places[start..].iter().map(|place| self.at(place.get())));
            }
        }
        batch
    }

    /// The record at a place that is known to be there; places count from 1.
    fn at(&self, place: u64) -> &Record<'static> {
        let index = usize::try_from(place - 1).unwrap_or(usize::MAX);
        &self.records[index]
    }
}

impl Batch {
    /// Takes records until the batch is full, and says where to go on if one is left.
    fn take<'a>(&mut self, records: impl Iterator<Item = &'a Record<'static>>) {
        for record in records {
            if self.records.len() >= READ_RECORDS || self.records.size() >= READ_BYTES {
                self.next = record.sequence;
                return;
            }
            self.records.push(record);
        }
    }
}

fn refusal(event: &NewEvent) -> Option<String> {
    let size = event.bytes.len();
    if event.id.is_empty() {
        Some("the event has no id".to_owned())
    } else if size > MAX_EVENT_BYTES {
        Some(format!("the event has {size} bytes, and {MAX_EVENT_BYTES} is the most that is taken"))
    } else {
        None
    }
}

/// The tokens of the release that a subject names, if it names one.
fn release_of(subject: &str) -> Option<&str> {
    match Subject::parse(subject)? {
        Subject::Release { release, .. } => Some(release.as_str()),
        Subject::Deployment => None,
    }
}
