//! Publishing: many events in flight, one of each release, and for each an answer that is true.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher, Hash as _, Hasher};
use std::sync::Arc;
use std::time::Duration;

use async_nats::header::{HeaderMap, NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_MESSAGE_ID};
use async_nats::{Message, StatusCode, Subscriber};
use bytes::Bytes;
use decklog_engine::ask::answer_of;
use decklog_engine::log::{Appended, ExpectedTail, NewEvent};
use decklog_schemas::subject::{PREFIX, Subject};
use decklog_schemas::{MAX_EVENT_BYTES, Sequence};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::{FuturesOrdered, FuturesUnordered};
use serde::Deserialize;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, interval};

use crate::api::ServerSays;
use crate::connect::{Connection, Denial, Session};
use crate::full::Full;
use crate::readback::{Attempt, Readback, Resolved};

/// How many events wait for their answer at the most. More brings nothing: the server is the bound.
pub(crate) const WINDOW: usize = 1_024;

/// How many events are taken on at the most, those that wait for another one of their release included.
const TAKEN_ON: usize = 2 * WINDOW;

/// How many events are taken on between two looks at the answers.
const AT_ONCE: usize = 32;

/// After what time without an answer an event is sent again.
const RESEND_AFTER: Duration = Duration::from_secs(3);

/// How long after it was first sent nobody knows what became of an event.
const GIVE_UP_AFTER: Duration = Duration::from_secs(30);

/// When it is told again that the stream is full: clearly after what was sent when it was told has been given up.
const TELL_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// After what time an event is sent again that the server could not take just now.
const PASSING: Duration = Duration::from_secs(1);

/// How often the clocks of the events in flight are looked at.
const TICK: Duration = Duration::from_millis(250);

/// The header that names the subjects whose last sequence is expected; servers from 2.11 on know it.
const EXPECTED_SUBJECT: &str = "Nats-Expected-Last-Subject-Sequence-Subject";

/// Sends events. Of one release, the next is sent when the one before it is answered: whatever is lost on the way, what
/// is stored of a release is stored in the order in which it was given.
#[derive(Debug)]
pub(crate) struct Publisher {
    submissions: mpsc::Sender<Submission>,
    task: JoinHandle<()>,
}

/// An answer that is still to come.
pub(crate) struct Answer {
    submissions: mpsc::Sender<Submission>,
    answered: oneshot::Receiver<Appended>,
}

struct Submission {
    event: Outgoing,
    answer: oneshot::Sender<Appended>,
}

/// An event on its way.
struct Flight {
    event: Outgoing,
    answer: oneshot::Sender<Appended>,
    lane: u64,
    first_sent: Instant,
    /// When it is sent again, unless it is answered before.
    due: Instant,
    /// How often it was sent.
    sent: u32,
    /// The connection over which it was sent first.
    session: u64,
    /// What the last answer said that settled nothing.
    trouble: Option<String>,
    /// Whether the log is being asked what became of it.
    is_resolving: bool,
}

/// An event in the form in which it is sent, cheap to clone and to send again.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) id: Arc<str>,
    pub(crate) subject: async_nats::Subject,
    pub(crate) bytes: Bytes,
    pub(crate) expected: ExpectedTail,
}

/// What the actor knows: the events in flight by their number, and who waits behind them.
struct Actor {
    connection: Connection,
    stream: String,
    readback: Readback,
    inbox: String,
    /// The number of the first one in `flights`.
    base: u64,
    flights: VecDeque<Option<Flight>>,
    in_flight: usize,
    /// The releases that have an event in flight, with what waits behind it.
    lanes: HashMap<u64, VecDeque<Submission>, BuildHasherDefault<Hashed>>,
    taken_on: usize,
    resolving: FuturesUnordered<BoxFuture<'static, (u64, Resolved)>>,
    /// When it was told last that the stream is full.
    told_full: Option<Instant>,
}

/// Hashes what is a hash.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("only lanes are hashed, which are numbers")
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// What the server answers to a publish.
#[derive(Deserialize)]
struct Ack {
    #[serde(default)]
    stream: String,
    #[serde(default)]
    seq: u64,
    #[serde(default)]
    duplicate: bool,
    error: Option<ServerSays>,
}

// === impl Publisher ===

impl Publisher {
    pub(crate) fn start(connection: Connection, stream: &str) -> Self {
        let (submissions, queue) = mpsc::channel(WINDOW);
        let actor = Actor {
            readback: Readback::new(connection.clone(), stream),
            inbox: connection.client.new_inbox(),
            stream: stream.to_owned(),
            connection,
            base: 0,
            flights: VecDeque::with_capacity(WINDOW),
            in_flight: 0,
            lanes: HashMap::default(),
            taken_on: 0,
            resolving: FuturesUnordered::new(),
            told_full: None,
        };
        Self { submissions, task: tokio::spawn(actor.run(queue)) }
    }

    /// Takes an event on; waits while too many are in flight. The events of a release are stored in this order.
    pub(crate) async fn submit(&self, event: Outgoing) -> Answer {
        let (answer, answered) = oneshot::channel();
        // If nobody takes it on, the answer's sender is dropped, and whoever waits is told.
        let _ = self.submissions.send(Submission { event, answer }).await;
        Answer { submissions: self.submissions.clone(), answered }
    }

    /// Whether it takes nothing any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.submissions.is_closed()
    }

    /// Sends events in this order, and returns one answer for each.
    pub(crate) async fn append(&self, events: Vec<NewEvent>) -> Vec<Appended> {
        let mut answers: Vec<Appended> = Vec::with_capacity(events.len());
        let mut waiting = FuturesOrdered::new();
        // Of each release, which event of this call was the last; none is sent before the one before it is answered, so
        // that the numbers are in the order of the call.
        let mut last_of_lane = HashMap::new();
        for (place, event) in events.into_iter().enumerate() {
            if let Some(before) = last_of_lane.insert(lane_of(&event.subject), place) {
                while answers.len() <= before {
                    answers.extend(waiting.next().await);
                }
                if matches!(answers[before], Appended::Unknown { .. }) {
                    waiting.push_back(futures::future::Either::Left(std::future::ready(not_sent())));
                    continue;
                }
            }
            let answer = self.submit(event.into()).await;
            waiting.push_back(futures::future::Either::Right(async { answer.wait().await.unwrap_or_else(stopped) }));
        }
        while let Some(answer) = waiting.next().await {
            answers.push(answer);
        }
        answers
    }
}

impl Answer {
    /// What became of the event; none if the publisher ended before it knew.
    pub(crate) async fn wait(self) -> Option<Appended> {
        answer_of(&self.submissions, self.answered).await
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) fn stopped() -> Appended {
    Appended::Unknown { reason: "the publisher has stopped".to_owned() }
}

fn not_sent() -> Appended {
    let reason = "not sent, for what became of the event before it of the same release is unknown".to_owned();
    Appended::Unknown { reason }
}

/// Events of one lane are stored in order. A hash is enough: two releases in one lane only wait for each other.
fn lane_of(subject: &str) -> u64 {
    let lane = match Subject::parse(subject) {
        Some(Subject::Release { release, .. }) => release.as_str(),
        Some(Subject::Deployment) | None => subject,
    };
    let mut hasher = DefaultHasher::new();
    lane.hash(&mut hasher);
    hasher.finish()
}

// === impl Actor ===

impl Actor {
    async fn run(mut self, mut queue: mpsc::Receiver<Submission>) {
        let (mut sessions, mut denials) = (self.connection.sessions(), self.connection.denials());
        let mut deafness = self.connection.deafness();
        let mut acks = match self.connection.client.subscribe(format!("{}.*", self.inbox)).await {
            Ok(acks) => acks,
            Err(error) => {
                tracing::error!(%error, "Cannot listen for the answers of JetStream");
                return;
            }
        };
        let (mut tick, mut taken_on) = (interval(TICK), Vec::with_capacity(AT_ONCE));
        loop {
            tokio::select! {
                biased;
                ack = acks.next() => match ack {
                    Some(ack) => self.take_acks(ack, &mut acks).await,
                    None => return,
                },
                Some((number, resolved)) = self.resolving.next() => self.resolve(number, resolved).await,
                denial = denials.recv() => self.deny(denial).await,
                Ok(()) = deafness.changed() => self.give_up_deaf().await,
                changed = sessions.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let session = *sessions.borrow_and_update();
                    self.renew(session).await;
                }
                _ = tick.tick() => self.look_at_clocks().await,
                taken = queue.recv_many(&mut taken_on, AT_ONCE), if self.has_room() => {
                    if taken == 0 {
                        return;
                    }
                    for submission in taken_on.drain(..) {
                        self.take_on(submission).await;
                    }
                }
            }
        }
    }

    fn has_room(&self) -> bool {
        self.taken_on + AT_ONCE <= TAKEN_ON && self.in_flight + AT_ONCE <= WINDOW
    }

    async fn take_on(&mut self, submission: Submission) {
        self.taken_on += 1;
        let lane = lane_of(&submission.event.subject);
        if let Some(waiting) = self.lanes.get_mut(&lane) {
            waiting.push_back(submission);
            return;
        }
        self.lanes.insert(lane, VecDeque::new());
        self.launch(submission, lane).await;
    }

    async fn launch(&mut self, submission: Submission, lane: u64) {
        let Submission { event, answer } = submission;
        let now = Instant::now();
        let flight = Flight {
            event,
            answer,
            lane,
            first_sent: now,
            due: now + RESEND_AFTER,
            sent: 0,
            session: self.connection.session().number,
            trouble: None,
            is_resolving: false,
        };
        let number = self.base + self.flights.len() as u64;
        let refusal = self.refusal(&flight.event);
        self.flights.push_back(Some(flight));
        self.in_flight += 1;
        match refusal {
            Some(reason) => Box::pin(self.settle(number, Appended::Refused { reason })).await,
            None => self.send(number).await,
        }
    }

    /// Why an event is not even sent.
    fn refusal(&self, event: &Outgoing) -> Option<String> {
        let most = self.connection.client.max_payload();
        let size = event.bytes.len();
        if event.id.is_empty() {
            Some("the event has no id".to_owned())
        } else if let Some(denial) = self.connection.deaf() {
            Some(format!("not sent, for the answer could not be received: {denial}"))
        } else if event.id.bytes().any(|byte| byte == b'\r' || byte == b'\n') || event.id.trim() != &*event.id {
            Some("the id has a line break, or white space at an end, which a NATS header cannot hold".to_owned())
        } else if size > MAX_EVENT_BYTES {
            Some(format!("the event has {size} bytes, and {MAX_EVENT_BYTES} is the most that is taken"))
        } else if size + header_bytes(event) > most {
            Some(format!(
                "the event has {size} bytes, which is with its header more than the server takes: its max_payload is {most}"
            ))
        } else {
            None
        }
    }

    /// Sends an event, or sends it again. While the connection is away nothing is sent, for the client would keep it.
    async fn send(&mut self, number: u64) {
        let is_up = self.connection.session().is_up;
        let Some(flight) = self.flight(number) else { return };
        flight.due = Instant::now() + RESEND_AFTER;
        if !is_up {
            return;
        }
        flight.sent += 1;
        let (subject, headers, bytes) =
            (flight.event.subject.clone(), headers(&flight.event), flight.event.bytes.clone());
        let reply = format!("{}.{number}", self.inbox);
        let sent = self.connection.client.publish_with_reply_and_headers(subject, reply, headers, bytes).await;
        if let Err(error) = sent {
            // The client refuses what no server would take: it was never sent.
            Box::pin(self.settle(number, Appended::Refused { reason: error.to_string() })).await;
        }
    }

    /// Takes an answer and those that have come with it.
    async fn take_acks(&mut self, first: Message, acks: &mut Subscriber) {
        use futures::FutureExt as _;
        let mut next = Some(first);
        while let Some(ack) = next {
            self.take_ack(&ack).await;
            next = acks.next().now_or_never().flatten();
        }
    }

    async fn take_ack(&mut self, ack: &Message) {
        let number = ack.subject.rsplit('.').next().and_then(|number| number.parse().ok());
        let Some(number) = number else { return };
        let Some(flight) = self.flight(number) else { return };
        if ack.status == Some(StatusCode::NO_RESPONDERS) {
            let trouble =
                "no stream takes the subject: it has no leader just now, is not there, or JetStream is not enabled";
            flight.trouble = Some(trouble.to_owned());
            flight.due = Instant::now() + TICK;
            return;
        }
        let Ok(Ack { stream, seq, duplicate, error }) = serde_json::from_slice(&ack.payload) else {
            flight.trouble = Some("the answer of JetStream cannot be read".to_owned());
            return;
        };
        let is_ours = stream == self.stream;
        let Some(flight) = self.flight(number) else { return };
        match (error, Sequence::new(seq)) {
            (Some(error), _) if is_wrong_sequence(&error) => self.ask_after(number, None),
            (Some(error), _) if error.is_passing() => self.pass(number, error),
            (Some(error), _) => self.settle(number, Appended::Refused { reason: error.description }).await,
            (None, Some(sequence)) if !is_ours => {
                let reason = format!("the subject belongs to the stream {stream}, which has the event at {sequence}");
                self.settle(number, Appended::Refused { reason }).await;
            }
            (None, Some(sequence)) if duplicate => self.ask_after(number, Some(sequence)),
            (None, Some(sequence)) => self.settle(number, Appended::Stored { sequence }).await,
            (None, None) => flight.trouble = Some("the answer of JetStream names no sequence".to_owned()),
        }
    }

    /// The server could not take an event just now. It is sent again.
    fn pass(&mut self, number: u64, error: ServerSays) {
        let full = Full::read(&self.stream, &error);
        if let Some(flight) = self.flight(number) {
            flight.trouble = Some(full.as_ref().map_or(error.description, ToString::to_string));
            flight.due = Instant::now() + PASSING;
        }
        full.into_iter().for_each(|full| self.tell(&full));
    }

    /// Tells at once what else would be told only when events are given up, and not once for each of them.
    fn tell(&mut self, full: &Full) {
        if self.told_full.is_none_or(|told| told.elapsed() >= TELL_AGAIN_AFTER) {
            self.told_full = Some(Instant::now());
            let (stream, seconds) = (&self.stream, GIVE_UP_AFTER.as_secs());
            tracing::warn!(%stream, cause = %full.cause, way_out = %full.way_out, "Stream takes no more events; each is sent again until there is room, for {seconds} s at the most");
        }
    }

    /// Has the log asked what became of an event.
    fn ask_after(&mut self, number: u64, duplicate_of: Option<Sequence>) {
        let readback = self.readback.clone();
        let Some(flight) = self.flight(number) else { return };
        if std::mem::replace(&mut flight.is_resolving, true) {
            return;
        }
        let Outgoing { id, subject, expected, .. } = &flight.event;
        let (id, filter, expected) = (id.clone(), filter_of(subject), *expected);
        let attempt = if flight.sent > 1 { Attempt::Later } else { Attempt::First };
        self.resolving.push(Box::pin(async move {
            let resolved = match duplicate_of {
                Some(sequence) => readback.duplicate(&id, sequence).await,
                None => readback.conflict(&id, &filter, expected, attempt).await,
            };
            (number, resolved)
        }));
    }

    async fn resolve(&mut self, number: u64, resolved: Resolved) {
        let Some(flight) = self.flight(number) else { return };
        flight.is_resolving = false;
        match resolved {
            Resolved::Answer(answer) => self.settle(number, answer).await,
            Resolved::SendAgain(trouble) => {
                flight.trouble = Some(trouble);
                flight.due = Instant::now() + TICK;
            }
        }
    }

    /// Events to a subject that this login may not publish to are refused: the server has not stored them.
    async fn deny(&mut self, denial: Result<Denial, RecvError>) {
        let denial = match denial {
            Ok(denial) => denial,
            // Those that were missed are denied again when they are sent again.
            Err(broadcast::error::RecvError::Lagged(_)) => return,
            Err(broadcast::error::RecvError::Closed) => return std::future::pending().await,
        };
        for number in self.numbers(|flight| *flight.event.subject == *denial.subject) {
            let reason = denial.to_string();
            // An attempt over an earlier connection, before the permission went, may have been stored.
            let session = self.connection.session().number;
            let is_all = self.flight(number).is_some_and(|flight| flight.session == session);
            let answer = if is_all { Appended::Refused { reason } } else { Appended::Unknown { reason } };
            self.settle(number, answer).await;
        }
        // The client tells of a hundred or so denials at once and drops the rest: the likes of this one are sent again
        // soon, a few at a time.
        let alike = self.numbers(|flight| kind_of(&flight.event.subject) == kind_of(&denial.subject));
        for number in alike.into_iter().take(AT_ONCE) {
            self.flight(number).into_iter().for_each(|flight| flight.due = flight.due.min(Instant::now() + TICK));
        }
    }

    /// Nobody will hear what became of the events in flight.
    async fn give_up_deaf(&mut self) {
        let Some(denial) = self.connection.deaf() else { return };
        for number in self.numbers(|_| true) {
            let reason = format!("the answer cannot be received: {denial}");
            self.settle(number, Appended::Unknown { reason }).await;
        }
    }

    /// After the connection was made anew, everything in flight is sent again, oldest first: answers may have been lost.
    async fn renew(&mut self, session: Session) {
        if session.is_up {
            for number in self.numbers(|flight| !flight.is_resolving) {
                self.send(number).await;
            }
        }
    }

    async fn look_at_clocks(&mut self) {
        let now = Instant::now();
        for number in self.numbers(|flight| !flight.is_resolving && flight.due <= now) {
            let Some(flight) = self.flight(number) else { continue };
            if now.duration_since(flight.first_sent) < GIVE_UP_AFTER {
                self.send(number).await;
                continue;
            }
            let waited = GIVE_UP_AFTER.as_secs();
            let trouble = flight.trouble.take().unwrap_or_else(|| "the server does not answer".to_owned());
            self.settle(number, Appended::Unknown { reason: format!("not stored within {waited} s: {trouble}") }).await;
        }
    }

    /// Gives the answer, and sends what waited behind the event.
    async fn settle(&mut self, number: u64, answer: Appended) {
        let place = number.checked_sub(self.base).and_then(|place| usize::try_from(place).ok());
        let Some(flight) = place.and_then(|place| self.flights.get_mut(place)).and_then(Option::take) else { return };
        self.in_flight -= 1;
        self.taken_on -= 1;
        while let Some(None) = self.flights.front() {
            self.flights.pop_front();
            self.base += 1;
        }
        let is_unknown = matches!(answer, Appended::Unknown { .. });
        // Whoever asked may be gone.
        let _ = flight.answer.send(answer);
        let Some(waiting) = self.lanes.get_mut(&flight.lane) else { return };
        if is_unknown {
            // What is behind it must not overtake it.
            for submission in waiting.drain(..) {
                self.taken_on -= 1;
                let _ = submission.answer.send(not_sent());
            }
        }
        match waiting.pop_front() {
            Some(next) => Box::pin(self.launch(next, flight.lane)).await,
            None => drop(self.lanes.remove(&flight.lane)),
        }
    }

    fn flight(&mut self, number: u64) -> Option<&mut Flight> {
        let place = usize::try_from(number.checked_sub(self.base)?).ok()?;
        self.flights.get_mut(place)?.as_mut()
    }

    /// The numbers of the events in flight that are so, oldest first.
    fn numbers(&self, are: impl Fn(&Flight) -> bool) -> Vec<u64> {
        let numbered = (self.base..).zip(&self.flights);
        numbered.filter(|(_, flight)| flight.as_ref().is_some_and(&are)).map(|(number, _)| number).collect()
    }
}

impl From<NewEvent> for Outgoing {
    fn from(NewEvent { id, subject, bytes, expected }: NewEvent) -> Self {
        Self { id: id.into(), subject: subject.into(), bytes: bytes.into(), expected }
    }
}

fn headers(event: &Outgoing) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(NATS_MESSAGE_ID, &*event.id);
    let expected = match event.expected {
        ExpectedTail::Any => return headers,
        // Left out, it would expect nothing.
        ExpectedTail::Empty => 0,
        ExpectedTail::At(sequence) => sequence.get(),
    };
    headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, expected.to_string().as_str());
    headers.insert(EXPECTED_SUBJECT, filter_of(&event.subject).as_str());
    headers
}

/// An upper bound of what the headers take.
fn header_bytes(event: &Outgoing) -> usize {
    let expected = if event.expected == ExpectedTail::Any { 0 } else { 160 + event.subject.len() };
    64 + event.id.len() + expected
}

/// Domain and type of a subject, by which permissions are given.
fn kind_of(subject: &str) -> Option<(&str, &str)> {
    match Subject::parse(subject)? {
        Subject::Release { domain, event_type, .. } => Some((domain, event_type)),
        Subject::Deployment => None,
    }
}

/// All subjects of the release that a subject is about.
fn filter_of(subject: &str) -> String {
    match Subject::parse(subject) {
        Some(Subject::Release { release, .. }) => format!("{PREFIX}.release.{release}.>"),
        Some(Subject::Deployment) | None => subject.to_owned(),
    }
}

/// The two errors that say that the tail was not the expected one; the second one comes from clusters.
fn is_wrong_sequence(error: &ServerSays) -> bool {
    matches!(error.err_code, 10_071 | 10_164)
}
