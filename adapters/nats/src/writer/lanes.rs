//! The order of a writer: numbers its events, queues them by release, and halts a release whose tail is unknown.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, iter};

use decklog_engine::log::{Appended, ExpectedTail};
use decklog_schemas::subject::{Subject, place};
use decklog_schemas::{Draft, Envelope, Malformed, Refusal, Unplaced, WriterSeq};
use futures::FutureExt as _;
use futures::future::Shared;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::publish::Outgoing;

/// The events that one source has handed over and that are not yet known to be stored or not.
///
/// The fold takes a `writerseq` that is not above the highest one it has seen of a release and source for a duplicate,
/// so that within a release the numbers have to be stored in their order. Three rules see to that:
/// 1. An event gets its number and its place in the queue of its release in one step, under one lock.
/// 2. Of each release only the head of the queue is with the publisher.
/// 3. If nobody knows what became of the head, the release is halted: what is queued stays queued, what is newer is
///    rejected, until the whole queue is sent again in its order, or given up.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    /// The last number that was given away.
    written: u64,
    lanes: HashMap<Box<str>, Lane>,
}

/// An event that has its number.
pub(super) struct Event {
    /// `<cluster>.<namespace>.<release>`, or the subject of a deployment.
    pub(super) lane: Box<str>,
    pub(super) seq: WriterSeq,
    pub(super) new: Outgoing,
    /// The answer to the latest attempt to send it.
    answer: Mutex<Answer>,
}

/// What became of an event, when it is known; whoever wants to know has a clone. It fails with the writer's task.
pub(super) type Answer = Shared<oneshot::Receiver<Fate>>;

#[derive(Clone, Debug)]
pub(super) enum Fate {
    Answered(Appended),
    GivenUp,
}

/// Why an event gets no number.
#[derive(Debug)]
pub(super) enum Rejected {
    Invalid(InvalidEvent),
    /// The release is halted, for this event's sake.
    Halted {
        head: Arc<Event>,
        reason: String,
    },
}

/// The fold could only ignore the event, whatever the state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEvent {
    /// It is larger than any log takes, or nested deeper.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// Namespace or name of the release are empty or hold a `/`, or all its names together are too long.
    #[error(transparent)]
    Unplaced(#[from] Unplaced),
    /// A rule of its type is broken; the text begins with a JSON pointer to the field.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// The events of one release, oldest first; never empty.
#[derive(Debug, Default)]
struct Lane {
    queue: VecDeque<Entry>,
    /// Why nobody knows what became of the head, if that is so.
    halted: Option<String>,
}

#[derive(Debug)]
struct Entry {
    event: Arc<Event>,
    /// None while the lane is halted.
    answer: Option<oneshot::Sender<Fate>>,
    /// Its place in the writer's window, until it is answered.
    place: Option<OwnedSemaphorePermit>,
    /// Whether an attempt to send it came to no answer.
    was_unknown: bool,
}

/// Why an event behind the head of a halted lane is unsettled.
const NOT_SENT: &str = "not sent, for what became of the event before it of the same release is unknown";

// === impl Lanes ===

impl Lanes {
    /// Numbers an event and queues it. The second one returned is to be sent now: the event itself, or none if others
    /// of its release come first.
    pub(super) fn take_on(
        &mut self,
        mut draft: Draft<'_>,
        expected: ExpectedTail,
        place: Option<OwnedSemaphorePermit>,
    ) -> Result<(Arc<Event>, Option<Arc<Event>>), Rejected> {
        let seq = WriterSeq::MIN.saturating_add(self.written);
        draft.writer_seq = Some(seq);
        let mut bytes = Vec::with_capacity(512);
        draft.write_msgpack(&mut bytes);
        let subject = check(&bytes).map_err(Rejected::Invalid)?;
        let name = lane_of(&subject);
        let known = self.lanes.get_mut(name);
        if let Some(Lane { queue, halted: Some(reason) }) = &known
            && let Some(head) = queue.front()
        {
            return Err(Rejected::Halted { head: head.event.clone(), reason: reason.clone() });
        }
        let (sender, answer) = oneshot::channel();
        let event = Arc::new(Event {
            lane: name.into(),
            seq,
            answer: Mutex::new(answer.shared()),
            new: Outgoing { id: draft.id.into(), subject: subject.into(), bytes: bytes.into(), expected },
        });
        self.written = seq.get();
        let lane = match known {
            Some(lane) => lane,
            None => self.lanes.entry(event.lane.clone()).or_default(),
        };
        lane.queue.push_back(Entry { event: event.clone(), answer: Some(sender), place, was_unknown: false });
        let head = (lane.queue.len() == 1).then(|| event.clone());
        Ok((event, head))
    }

    /// Takes the publisher's answer to the head of a lane. Returns what is to be sent next.
    pub(super) fn settle(&mut self, event: &Event, answer: Appended) -> Option<Arc<Event>> {
        let lane = self.lanes.get_mut(&event.lane)?;
        debug_assert_eq!(lane.queue.front().map(|head| head.event.seq), Some(event.seq), "only heads are sent");
        let answer = match answer {
            // What was refused now may have been stored by the attempt that nobody knows of.
            Appended::Refused { reason } if lane.queue.front().is_some_and(|head| head.was_unknown) => {
                Appended::Unknown { reason }
            }
            answer => answer,
        };
        if let Appended::Unknown { reason } = answer {
            lane.halt(&reason);
            return None;
        }
        if let Some(Entry { answer: Some(waiting), .. }) = lane.queue.pop_front() {
            // Its receiver lives in the event.
            let _ = waiting.send(Fate::Answered(answer));
        }
        let next = lane.queue.front().map(|entry| entry.event.clone());
        if next.is_none() {
            self.lanes.remove(&event.lane);
        }
        next
    }

    /// Queues everything of a halted lane anew, in its order, and returns it; its first is to be sent now.
    pub(super) fn resend(&mut self, lane: &str) -> Vec<Arc<Event>> {
        let Some(lane) = self.lanes.get_mut(lane).filter(|lane| lane.halted.is_some()) else { return Vec::new() };
        lane.halted = None;
        for entry in &mut lane.queue {
            entry.answer = Some(entry.event.await_anew());
        }
        lane.queue.iter().map(|entry| entry.event.clone()).collect()
    }

    /// Forgets one event of a halted lane, or all of them; returns how many. The lane stays halted while it holds others.
    pub(super) fn give_up(&mut self, name: &str, only: Option<&Event>) -> usize {
        let Some(lane) = self.lanes.get_mut(name).filter(|lane| lane.halted.is_some()) else { return 0 };
        let (before, first) = (lane.queue.len(), lane.queue.front().map(|entry| entry.event.seq));
        lane.queue.retain(|Entry { event, .. }| {
            let is_kept = only.is_some_and(|only| only.seq != event.seq);
            if !is_kept {
                let _ = event.await_anew().send(Fate::GivenUp);
            }
            is_kept
        });
        let given_up = before - lane.queue.len();
        match lane.queue.front() {
            None => drop(self.lanes.remove(name)),
            // Of what is first now it is known that it was not sent.
            Some(head) if Some(head.event.seq) != first => lane.halted = Some(NOT_SENT.to_owned()),
            Some(_) => {}
        }
        given_up
    }

    /// Answers everything with the same, for nothing is sent any more.
    pub(super) fn halt_all(&mut self, reason: &str) {
        self.lanes.values_mut().for_each(|lane| lane.halt(reason));
    }
}

impl Lane {
    /// Answers everything: the head with the reason, and what is behind it as not sent.
    fn halt(&mut self, reason: &str) {
        if let Some(head) = self.queue.front_mut() {
            head.was_unknown = true;
        }
        let reasons = iter::once(reason).chain(iter::repeat(NOT_SENT));
        for (entry, reason) in self.queue.iter_mut().zip(reasons) {
            entry.place = None;
            if let Some(waiting) = entry.answer.take() {
                let _ = waiting.send(Fate::Answered(Appended::Unknown { reason: reason.to_owned() }));
            }
        }
        self.halted = Some(reason.to_owned());
    }
}

impl Event {
    /// The answer to the latest attempt to send it.
    pub(super) fn answer(&self) -> Answer {
        self.latest().clone()
    }

    /// A new attempt: what is sent now is its answer.
    fn await_anew(&self) -> oneshot::Sender<Fate> {
        let (sender, answer) = oneshot::channel();
        *self.latest() = answer.shared();
        sender
    }

    fn latest(&self) -> MutexGuard<'_, Answer> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lane, seq, new, .. } = self;
        f.debug_struct("Event").field("id", &new.id).field("lane", lane).field("seq", seq).finish_non_exhaustive()
    }
}

/// The subject of an event that the fold can use: what it could only ignore is found out before it is in the log.
fn check(bytes: &[u8]) -> Result<String, InvalidEvent> {
    let envelope = Envelope::decode(bytes)?;
    let subject = place(&envelope)?;
    envelope.validate()?;
    Ok(subject)
}

/// What of a subject the order of events is kept for.
fn lane_of(subject: &str) -> &str {
    match Subject::parse(subject) {
        Some(Subject::Release { release, .. }) => release.as_str(),
        Some(Subject::Deployment) | None => subject,
    }
}

// === impl InvalidEvent ===

impl InvalidEvent {
    /// Which field is wrong, as a JSON pointer into the event; `""` is all of it.
    #[must_use]
    pub fn pointer(&self) -> &str {
        match self {
            Self::Malformed(_) => "",
            Self::Unplaced(_) => "/subject",
            Self::Refused(Refusal::Unsupported(_)) => "/type",
            Self::Refused(Refusal::Invalid(invalid)) => &invalid.pointer,
        }
    }
}

#[cfg(test)]
mod tests {
    use decklog_schemas::data::{ReleaseDeleting, SyncStarted};
    use decklog_schemas::{Body, EventType, MAX_EVENT_BYTES, ReleaseKey, Sequence};

    use super::*;

    /// The least that an event of this type says.
    fn minimal(event_type: EventType) -> &'static str {
        match event_type {
            EventType::ReleaseTracked
            | EventType::ReleaseDeleting
            | EventType::ReleaseDeleted
            | EventType::InventoryDeleted => "{}",
            EventType::SyncStarted => r#"{"renderRef":"r1"}"#,
            EventType::SyncFinished => r#"{"renderRef":"r1","outcome":"Succeeded"}"#,
            EventType::ItemApplied => {
                r#"{"item":{"group":"","version":"v1","kind":"K","namespace":"","name":"n"},"renderRef":"r1"}"#
            }
            EventType::ItemApplyFailed => {
                r#"{"item":{"group":"","kind":"K","namespace":"","name":"n"},"renderRef":"r1","message":""}"#
            }
            EventType::ItemPruned => r#"{"item":{"group":"","kind":"K","namespace":"","name":"n"}}"#,
            EventType::ItemPruneFailed => r#"{"item":{"group":"","kind":"K","namespace":"","name":"n"},"message":""}"#,
            EventType::HealthAssessed => {
                r#"{"item":{"group":"","kind":"K","namespace":"","name":"n"},"state":"Healthy","assessedRenderRef":"r1"}"#
            }
            EventType::HookStarted => {
                r#"{"hook":{"name":"h","phase":"PreSync"},"workload":{"group":"","version":"v1","kind":"Job","name":"j"},"renderRef":"r1","weight":0,"createdAt":"2026-03-02T10:00:00Z"}"#
            }
            EventType::HookSkipped => {
                r#"{"hook":{"name":"h","phase":"PreSync"},"workload":{"group":"","version":"v1","kind":"Job","name":"j"},"renderRef":"r1","weight":0}"#
            }
            EventType::HookRemoved => r#"{"hook":{"name":"h","phase":"PreSync"}}"#,
            EventType::HookRunning => r#"{"hook":{"name":"h","phase":"PreSync"},"renderRef":"r1"}"#,
            EventType::HookFinished => r#"{"hook":{"name":"h","phase":"PreSync"},"renderRef":"r1","state":"Failed"}"#,
            EventType::ProjectionRefused => r#"{"fieldManager":"m","reason":"r","message":""}"#,
            EventType::DeploymentRecorded => r#"{"payloadType":"p","payload":"{}"}"#,
        }
    }

    fn draft<'a>(id: &'a str, key: Option<&'a ReleaseKey>, body: Body<'a>) -> Draft<'a> {
        Draft {
            id,
            source: "/controller/1",
            release: key,
            time: jiff::Timestamp::UNIX_EPOCH,
            release_uid: Some("u"),
            writer_seq: None,
            term: Some(3),
            correlation_id: Some("c"),
            trace_parent: Some("t"),
            body,
        }
    }

    /// Takes an event of a release on; returns it, and whether it is to be sent now.
    fn take_on(lanes: &mut Lanes, name: &str) -> Result<(Arc<Event>, bool), Rejected> {
        let key = ReleaseKey::new("default", "shop", name);
        let body = Body::ReleaseDeleting(ReleaseDeleting {});
        let (event, head) = lanes.take_on(draft("id", Some(&key), body), ExpectedTail::Any, None)?;
        Ok((event, head.is_some()))
    }

    fn stored(number: u64) -> Appended {
        Appended::Stored { sequence: Sequence::new(number).expect("it is not 0") }
    }

    fn unknown() -> Appended {
        Appended::Unknown { reason: "the server does not answer".to_owned() }
    }

    /// What is known of an event.
    fn fate(event: &Event) -> Option<Fate> {
        event.answer().now_or_never().map(|fate| fate.expect("the lanes are there"))
    }

    fn reason(event: &Event) -> Option<String> {
        match fate(event) {
            Some(Fate::Answered(Appended::Unknown { reason })) => Some(reason),
            _ => None,
        }
    }

    #[test]
    fn events_of_every_type_are_what_the_fold_takes() {
        let (mut lanes, key) = (Lanes::default(), ReleaseKey::new("default", "shop", "check.out"));
        for (place, event_type) in EventType::ALL.iter().enumerate() {
            let body = event_type.read_json(minimal(*event_type)).expect("it is valid");
            let release = (*event_type != EventType::DeploymentRecorded).then_some(&key);
            let taken_on = lanes.take_on(draft("id", release, body.clone()), ExpectedTail::Empty, None);
            let (event, _) = taken_on.unwrap_or_else(|error| panic!("{event_type}: {error:?}"));
            let envelope = Envelope::decode(&event.new.bytes).expect("it is an event");
            assert_eq!(super::place(&envelope).as_deref(), Ok(event.new.subject.as_str()));
            let read = envelope.validate().expect("it is valid");
            assert_eq!(read.body, body);
            assert_eq!(read.writer_seq.map(WriterSeq::get), Some(place as u64 + 1), "{event_type}");
            assert_eq!((read.term, read.release_uid.as_deref(), &*read.id), (Some(3), Some("u"), "id"));
            assert_eq!((&*event.new.id, event.new.expected), ("id", ExpectedTail::Empty));
        }
    }

    #[test]
    fn what_the_fold_could_only_ignore_gets_no_number() {
        let mut lanes = Lanes::default();
        for name in ["", "a/b", &"n".repeat(2000)] {
            match take_on(&mut lanes, name) {
                Err(Rejected::Invalid(invalid)) => assert_eq!(invalid.pointer(), "/subject", "{invalid}"),
                other => panic!("{other:?}"),
            }
        }
        let key = ReleaseKey::new("default", "shop", "checkout");
        let revision = Some("r".repeat(MAX_EVENT_BYTES).into());
        let render_ref = "r1".try_into().expect("it is not empty");
        let data = SyncStarted { render_ref, revision, items: None };
        match lanes.take_on(draft("id", Some(&key), Body::SyncStarted(data)), ExpectedTail::Any, None) {
            Err(Rejected::Invalid(invalid)) => assert_eq!(invalid.pointer(), "", "{invalid}"),
            other => panic!("{other:?}"),
        }
        let (event, is_head) = take_on(&mut lanes, "checkout").expect("it is valid");
        assert_eq!((event.seq.get(), is_head), (1, true));
    }

    #[test]
    fn of_each_release_one_event_is_sent_at_a_time() {
        let mut lanes = Lanes::default();
        let [a1, b2, a3, a4] = ["a", "b", "a", "a"].map(|name| take_on(&mut lanes, name).expect("it is valid"));
        assert_eq!([a1.1, b2.1, a3.1, a4.1], [true, true, false, false]);
        assert_eq!([&a1, &b2, &a3, &a4].map(|(event, _)| event.seq.get()), [1, 2, 3, 4]);
        let next = lanes.settle(&a1.0, stored(1)).expect("another one waits");
        assert!(Arc::ptr_eq(&next, &a3.0));
        assert!(fate(&a3.0).is_none());
        // What is not stored leaves a hole, and stops nothing.
        let next = lanes.settle(&a3.0, Appended::Refused { reason: "no".to_owned() }).expect("another one waits");
        assert!(Arc::ptr_eq(&next, &a4.0));
        assert!(lanes.settle(&a4.0, Appended::Conflict { tail: None }).is_none());
        assert!(lanes.settle(&b2.0, stored(2)).is_none());
        assert!(lanes.lanes.is_empty());
        assert!(matches!(fate(&a1.0), Some(Fate::Answered(Appended::Stored { .. }))));
    }

    /// Three events of a release, of which the first is unknown.
    fn halted(lanes: &mut Lanes) -> [Arc<Event>; 3] {
        let events = ["a"; 3].map(|name| take_on(lanes, name).expect("it is valid").0);
        assert!(lanes.settle(&events[0], unknown()).is_none());
        events
    }

    #[test]
    fn an_unknown_event_halts_its_release_alone() {
        let mut lanes = Lanes::default();
        let [first, second, third] = halted(&mut lanes);
        assert_eq!(reason(&first).as_deref(), Some("the server does not answer"));
        assert_eq!([reason(&second), reason(&third)], [(); 2].map(|()| Some(NOT_SENT.to_owned())));
        match take_on(&mut lanes, "a") {
            Err(Rejected::Halted { head, .. }) => assert!(Arc::ptr_eq(&head, &first)),
            other => panic!("{other:?}"),
        }
        let (other, is_head) = take_on(&mut lanes, "b").expect("it is another release");
        assert_eq!((other.seq.get(), is_head), (4, true));
    }

    #[test]
    fn what_is_unsettled_is_sent_again_in_its_order_before_what_is_newer() {
        let mut lanes = Lanes::default();
        let events = halted(&mut lanes);
        let again = lanes.resend(&events[0].lane);
        assert!(again.iter().zip(&events).all(|(again, event)| Arc::ptr_eq(again, event)));
        assert!(lanes.resend(&events[0].lane).is_empty(), "it is on its way");
        let (newer, is_head) = take_on(&mut lanes, "a").expect("nothing is unsettled");
        assert!(!is_head);
        let mut next = lanes.settle(&events[0], Appended::Duplicate { sequence: Sequence::FIRST });
        for event in [&events[1], &events[2], &newer] {
            let sent = next.take().expect("another one waits");
            assert!(Arc::ptr_eq(&sent, event) && fate(event).is_none());
            next = lanes.settle(&sent, stored(2));
        }
        assert!(next.is_none() && lanes.lanes.is_empty());
    }

    #[test]
    fn an_event_that_is_given_up_is_not_sent_again() {
        let mut lanes = Lanes::default();
        let [first, second, third] = halted(&mut lanes);
        assert_eq!(lanes.give_up(&first.lane, Some(&first)), 1);
        assert_eq!(lanes.give_up(&first.lane, Some(&first)), 0);
        assert!(matches!(fate(&first), Some(Fate::GivenUp)));
        match take_on(&mut lanes, "a") {
            Err(Rejected::Halted { head, reason }) => {
                assert!(Arc::ptr_eq(&head, &second));
                assert_eq!(reason, NOT_SENT);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(lanes.resend(&first.lane).len(), 2);
        assert!(lanes.settle(&second, unknown()).is_none());
        assert_eq!(lanes.give_up(&first.lane, None), 2);
        assert!(matches!(fate(&third), Some(Fate::GivenUp)));
        let (newer, is_head) = take_on(&mut lanes, "a").expect("nothing is unsettled");
        assert_eq!((newer.seq.get(), is_head), (4, true));
    }
}
