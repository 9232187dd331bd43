//! The writer: one thread that takes what is appended, writes it in groups and answers when it will survive.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use decklog_engine::log::{Appended, ExpectedTail, NewEvent};
use decklog_schemas::{MAX_EVENT_BYTES, Sequence};
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};

use crate::block::{Block, Draft, Stored};
use crate::head::{Head, Reached};
use crate::ids::Ids;
use crate::index::{Recent, SEGMENT, release_of, sequence_at};
use crate::io::IoError;
use crate::log::{Open, Shared};
use crate::open::checksum_of;
use crate::store::{Store, Trouble};

/// The most bytes that an id or a subject may have.
const MAX_TEXT_BYTES: usize = 1_024;

/// How many bytes of events are written together, if so many wait: those who wait behind them wait longer.
const GROUP_BYTES: usize = 1024 * 1024;

/// The tails of how many releases are remembered, once they were asked for.
const TAILS: usize = 100_000;

/// One call of `append`.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) events: Vec<NewEvent>,
    pub(crate) answer: Answer,
}

/// Where the answers of a call go.
pub(crate) type Answer = oneshot::Sender<Result<Vec<Appended>, Failure>>;

/// Why the log takes no more events.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("it could not be written")]
    Write(#[source] Arc<IoError>),
    #[error("it is damaged at sequence {sequence}: {problem}")]
    Damaged { sequence: Sequence, problem: String },
    #[error("its writer has ended")]
    WriterEnded,
}

pub(crate) struct Writer {
    shared: Arc<Shared>,
    head: Head,
    ids: Ids,
    /// The last records, in the segments that are indexed, of releases that were asked for; none for those without.
    tails: HashMap<Box<str>, Option<Sequence>>,
    tail: Option<Sequence>,
    last_recorded: Timestamp,
}

/// What is taken and not written yet.
struct Group {
    blocks: Vec<Block>,
    draft: Option<Draft>,
    /// The ids of the group's records, the first of which has the sequence behind the tail.
    ids: Vec<String>,
    recorded: Timestamp,
}

// === impl Writer ===

impl Writer {
    pub(crate) fn new(
        shared: Arc<Shared>,
        head: Head,
        ids: Ids,
        tail: Option<Sequence>,
        last_recorded: Timestamp,
    ) -> Self {
        Self { shared, head, ids, tails: HashMap::new(), tail, last_recorded }
    }

    /// Writes what is requested until nobody can request any more, or a write fails.
    pub(crate) fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        while let Some(first) = requests.blocking_recv() {
            let (calls, answers) = gather(first, &mut requests);
            match self.commit(calls) {
                Ok(appended) => {
                    for (answer, appended) in answers.into_iter().zip(appended) {
                        // Whoever asked may have given up.
                        let _ = answer.send(Ok(appended));
                    }
                }
                Err(trouble) => {
                    let failure = Failure::from(trouble);
                    tracing::error!(log = %self.shared.id, error = %failure, "Log has failed and takes no more events");
                    let failure = self.shared.failure.get_or_init(|| failure);
                    for answer in answers {
                        let _ = answer.send(Err(failure.clone()));
                    }
                    return;
                }
            }
        }
    }

    /// Takes the events of some calls, writes those that are new and returns when they will survive.
    fn commit(&mut self, calls: Vec<Vec<NewEvent>>) -> Result<Vec<Vec<Appended>>, Trouble> {
        let shared = Arc::clone(&self.shared);
        let open = shared.open.read().unwrap_or_else(PoisonError::into_inner);
        let Some(Open { store, .. }) = &*open else { return Ok(Vec::new()) };
        let mut group = Group::new(self.last_recorded);
        let answers = {
            let mut recent = shared.recent();
            let mut take = |event| self.take(event, &mut group, &mut recent, store);
            let take_call = |events: Vec<_>| events.into_iter().map(&mut take).collect::<Result<Vec<_>, _>>();
            calls.into_iter().map(take_call).collect::<Result<Vec<_>, _>>()?
        };
        let recorded = group.recorded;
        let blocks = group.finish();
        let Some(last) = blocks.last() else { return Ok(answers) };
        store.write(&blocks)?;
        let complete = self.index_complete_segments(store, last.last())?;
        store.flush()?;
        let reached = Reached { last: last.last().get(), block: last.crc, log: checksum_of(&shared.id) };
        self.head.write(reached)?;
        self.publish(last.last(), recorded, complete);
        Ok(answers)
    }

    /// Takes one event into the group, or says why not.
    fn take(
        &mut self,
        event: NewEvent,
        group: &mut Group,
        recent: &mut Recent,
        store: &Store,
    ) -> Result<Appended, Trouble> {
        if let Some(reason) = refusal(&event) {
            return Ok(Appended::Refused { reason });
        }
        if let Some(sequence) = self.find(&event.id, group, store)? {
            return Ok(Appended::Duplicate { sequence });
        }
        if event.expected != ExpectedTail::Any {
            let tail = match release_of(&event.subject) {
                Some(release) => self.tail_of(release, recent, store)?,
                None => None,
            };
            let expected = match event.expected {
                ExpectedTail::At(sequence) => Some(sequence),
                ExpectedTail::Any | ExpectedTail::Empty => None,
            };
            if tail != expected {
                return Ok(Appended::Conflict { tail });
            }
        }
        let sequence = self.next(group);
        recent.note(sequence, &event.subject);
        self.ids.note(&event.id, sequence);
        group.push(sequence, event);
        Ok(Appended::Stored { sequence })
    }

    fn next(&self, group: &Group) -> Sequence {
        Sequence::after(Sequence::new(self.tail.map_or(0, Sequence::get) + group.ids.len() as u64))
    }

    /// The place of the record that has this id, if it is among the newest ones.
    fn find(&self, id: &str, group: &Group, store: &Store) -> Result<Option<Sequence>, Trouble> {
        for sequence in self.ids.candidates(id) {
            let is_same = match self.tail {
                Some(tail) if sequence <= tail => {
                    let block = store.block_of(sequence)?;
                    block.records().any(|record| record.sequence == sequence && record.id == id)
                }
                tail => {
                    let place = (sequence.get() - Sequence::after(tail).get()) as usize;
                    group.ids.get(place).is_some_and(|other| other == id)
                }
            };
            if is_same {
                return Ok(Some(sequence));
            }
        }
        Ok(None)
    }

    /// The last record of a release.
    fn tail_of(&mut self, release: &str, recent: &Recent, store: &Store) -> Result<Option<Sequence>, Trouble> {
        if let Some(tail) = recent.tail(release) {
            return Ok(Some(tail));
        }
        if let Some(tail) = self.tails.get(release) {
            return Ok(*tail);
        }
        let tail = store.tail_before(recent.first_segment(), release)?;
        if self.tails.len() >= TAILS {
            self.tails.clear();
        }
        self.tails.insert(release.into(), tail);
        Ok(tail)
    }

    /// Writes the index of the segments that are complete now.
    fn index_complete_segments(&self, store: &Store, tail: Sequence) -> Result<Vec<u64>, IoError> {
        let first = self.tail.map_or(0, |tail| tail.get() / SEGMENT);
        let complete: Vec<u64> = (first..tail.get() / SEGMENT).collect();
        for segment in &complete {
            let recent = self.shared.recent();
            let Some(places) = recent.segment(*segment) else { continue };
            store.write_index(*segment, places)?;
        }
        Ok(complete)
    }

    /// Lets readers see what is written.
    fn publish(&mut self, tail: Sequence, recorded: Timestamp, complete: Vec<u64>) {
        self.tail = Some(tail);
        self.last_recorded = recorded;
        self.shared.tail.send_replace(Some(tail));
        for segment in complete {
            let forgotten = self.shared.recent().forget(segment);
            for (release, places) in forgotten {
                if let (Some(tail), Some(place)) = (self.tails.get_mut(&release), places.last()) {
                    *tail = Some(sequence_at(segment, *place));
                }
            }
        }
    }
}

/// Takes more calls that wait already, up to about [`GROUP_BYTES`].
fn gather(first: Request, requests: &mut mpsc::Receiver<Request>) -> (Vec<Vec<NewEvent>>, Vec<Answer>) {
    let (mut calls, mut answers, mut size) = (Vec::new(), Vec::new(), 0);
    let mut next = Some(first);
    while let Some(Request { events, answer }) = next {
        size += events.iter().map(|event| event.bytes.len()).sum::<usize>();
        calls.push(events);
        answers.push(answer);
        next = if size < GROUP_BYTES { requests.try_recv().ok() } else { None };
    }
    (calls, answers)
}

fn refusal(event: &NewEvent) -> Option<String> {
    let too_long = |what: &str, size: usize, most: usize| {
        (size > most).then(|| format!("the {what} has {size} bytes, and {most} is the most that is taken"))
    };
    if event.id.is_empty() {
        return Some("the event has no id".to_owned());
    }
    too_long("event", event.bytes.len(), MAX_EVENT_BYTES)
        .or_else(|| too_long("id", event.id.len(), MAX_TEXT_BYTES))
        .or_else(|| too_long("subject", event.subject.len(), MAX_TEXT_BYTES))
}

// === impl Failure ===

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Failed(error) => Self::Write(Arc::new(error)),
            Trouble::Damaged { sequence, problem } => Self::Damaged { sequence, problem },
        }
    }
}

// === impl Group ===

impl Group {
    /// An empty group, recorded now, or at the time of the last record if the clock went back.
    fn new(last_recorded: Timestamp) -> Self {
        let now = Timestamp::from_microsecond(Timestamp::now().as_microsecond()).unwrap_or(last_recorded);
        Self { blocks: Vec::new(), draft: None, ids: Vec::new(), recorded: now.max(last_recorded) }
    }

    fn push(&mut self, sequence: Sequence, event: NewEvent) {
        let NewEvent { id, subject, bytes, .. } = event;
        let record = Stored { sequence, recorded: self.recorded, subject: &subject, id: &id, event: &bytes };
        match &mut self.draft {
            Some(draft) if draft.has_room_for(&record) => draft.push(&record),
            draft => {
                let full = draft.replace(Draft::starting_with(&record));
                self.blocks.extend(full.map(Draft::finish));
            }
        }
        self.ids.push(id);
    }

    fn finish(mut self) -> Vec<Block> {
        self.blocks.extend(self.draft.take().map(Draft::finish));
        self.blocks
    }
}
