//! What the tests append, and how they read it back.

use decklog_schemas::subject::{PREFIX, escape};
use decklog_schemas::{Record, ReleaseKey, Sequence};

use crate::log::{Appended, Batch, ExpectedTail, Log, LogId, NewEvent, Scope, Wait};

/// Makes the events of one test: no two of them have the same id, and no other test has its releases.
pub(super) struct Drafts {
    test: &'static str,
    made: u64,
}

impl Drafts {
    pub(super) fn of(test: &'static str) -> Self {
        Self { test, made: 0 }
    }

    /// A release of this test.
    pub(super) fn release(&self, name: &str) -> ReleaseKey {
        ReleaseKey::new("conformance", self.test, name)
    }

    /// An event about a release.
    pub(super) fn about(&mut self, release: &ReleaseKey) -> NewEvent {
        self.under(subject(release, "release-inventory.ItemApplied"))
    }

    /// An event under a subject.
    pub(super) fn under(&mut self, subject: impl Into<String>) -> NewEvent {
        self.made += 1;
        let id = format!("{}-{}", self.test, self.made);
        let bytes = format!(r#"{{"specversion":"1.0","id":"{id}","note":"event {} of a test"}}"#, self.made);
        NewEvent { id, subject: subject.into(), bytes: bytes.into_bytes(), expected: ExpectedTail::Any }
    }

    /// Many events, over a number of releases in turn.
    pub(super) fn many(&mut self, count: usize, releases: usize) -> Vec<NewEvent> {
        let keys: Vec<_> = (0..releases).map(|number| self.release(&format!("release-{number}"))).collect();
        keys.iter().cycle().take(count).map(|key| self.about(key)).collect()
    }
}

/// A subject of a release.
pub(super) fn subject(release: &ReleaseKey, domain_and_type: &str) -> String {
    format!("{PREFIX}.release.{}.{domain_and_type}", release.tokens())
}

/// A subject of a deployment.
pub(super) fn deployment(region: &str, team: &str, pipeline: &str) -> String {
    format!("{PREFIX}.deployment.{}.{}.{}", escape(region), escape(team), escape(pipeline))
}

/// Appends events in one call.
pub(super) async fn append<L: Log>(log: &L, events: Vec<NewEvent>) -> Vec<Appended> {
    let count = events.len();
    let answers = log.append(events).await.expect("the log takes the call");
    assert_eq!(answers.len(), count, "there is one answer for each event");
    answers
}

/// Appends one event.
pub(super) async fn append_one<L: Log>(log: &L, event: NewEvent) -> Appended {
    append(log, vec![event]).await.remove(0)
}

/// Appends events of which each must be stored.
pub(super) async fn store<L: Log>(log: &L, events: Vec<NewEvent>) -> Vec<Sequence> {
    append(log, events).await.iter().map(stored).collect()
}

/// Appends many events, a thousand a call, of which each must be stored.
pub(super) async fn store_in_calls<L: Log>(log: &L, mut events: Vec<NewEvent>) -> Vec<Sequence> {
    let mut sequences = Vec::with_capacity(events.len());
    while !events.is_empty() {
        let rest = events.split_off(events.len().min(1_000));
        sequences.extend(store(log, std::mem::replace(&mut events, rest)).await);
    }
    sequences
}

/// The place of an event that must be stored.
pub(super) fn stored(answer: &Appended) -> Sequence {
    match answer {
        Appended::Stored { sequence } => *sequence,
        other => panic!("an event was not stored: {other:?}"),
    }
}

/// Reads without waiting. Whoever reads on from there comes to an end.
pub(super) async fn read<L: Log>(log: &L, from: Sequence, scope: &Scope) -> Batch {
    let batch = log.read(from, scope, Wait::No).await.expect("the log can be read");
    let goes_on = batch.next > from && !batch.records.is_empty();
    let is_at_the_tail = batch.next >= from && Some(batch.next) > batch.tail;
    assert!(
        goes_on || is_at_the_tail,
        "from {from} on, the log ends at {:?} and goes on at {}",
        batch.tail,
        batch.next
    );
    batch
}

/// Where the log ends now, and where to read on.
pub(super) async fn end<L: Log>(log: &L) -> Sequence {
    Sequence::after(read(log, Sequence::FIRST, &Scope::All).await.tail)
}

/// The log's identity.
pub(super) async fn identity<L: Log>(log: &L) -> LogId {
    read(log, Sequence::FIRST, &Scope::All).await.log
}

/// Reads on until the tail, and returns the records.
pub(super) async fn read_all<L: Log>(log: &L, from: Sequence, scope: &Scope) -> Vec<Record<'static>> {
    let (mut next, mut records) = (from, Vec::new());
    loop {
        let batch = read(log, next, scope).await;
        records.extend(batch.records.iter().map(Record::into_static));
        next = batch.next;
        if Some(next) > batch.tail {
            return records;
        }
    }
}

/// The sequences of records.
pub(super) fn sequences<'a>(records: impl IntoIterator<Item = &'a Record<'static>>) -> Vec<Sequence> {
    records.into_iter().map(|record| record.sequence).collect()
}

/// Asserts that the records are the events, each in its place.
pub(super) fn assert_same(records: &[Record<'static>], events: &[NewEvent], places: &[Sequence]) {
    assert_eq!(sequences(records), places, "the records stand where the answers say");
    for (record, event) in records.iter().zip(events) {
        assert_eq!(record.subject, event.subject, "the subject at {}", record.sequence);
        assert!(record.bytes == event.bytes, "the bytes at {} are other ones", record.sequence);
    }
}

/// A sequence that is so far behind another.
pub(super) fn behind(sequence: Sequence, by: u64) -> Sequence {
    Sequence::new(sequence.get() + by).expect("it is above 0")
}
