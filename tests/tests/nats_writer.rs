//! Writers on a real NATS server: nothing lost, nothing twice, and the numbers of each release in their order.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use decklog_engine::log::{Log as _, Scope, Wait};
use decklog_nats::{
    Connection, JetStreamLog, Login, Pending, ReleaseWriter, STREAM, SendError, WriteError, Writer, Written, stream,
};
use decklog_schemas::data::{AppliedItem, Health, HealthAssessed, Item, ItemApplied};
use decklog_schemas::{Envelope, ReleaseKey, Sequence};
use decklog_tests::nats::NatsServer;

const TASKS: usize = 4;
const RELEASES: usize = 50;

/// An event of the log, as far as the order goes.
#[derive(Debug)]
struct Read {
    id: String,
    lane: (String, String),
    seq: u64,
}

async fn connect(server: &NatsServer, user: Option<&str>) -> Connection {
    let (user, password) = (user.map(str::to_owned), user.map(|_| "word".to_owned()));
    let login = Login { user, password, ..Login::default() };
    Connection::open(&server.url(), &login).await.expect("the server answers")
}

/// A log on a new stream.
async fn log_on(server: &NatsServer, user: Option<&str>) -> Arc<JetStreamLog> {
    let connection = connect(server, user).await;
    stream::init(&connection, STREAM, None).await.expect("the stream can be made");
    Arc::new(JetStreamLog::open(&connection, STREAM).await.expect("the stream is there"))
}

fn release(number: usize) -> ReleaseKey {
    ReleaseKey::new("default", "shop", &format!("release.{number}"))
}

async fn apply(release: &ReleaseWriter, name: usize) -> Result<Pending, SendError> {
    let name = name.to_string();
    let item = AppliedItem {
        group: "apps".into(),
        version: "v1".into(),
        kind: "Deployment".try_into().expect("it is not empty"),
        namespace: "shop".into(),
        name: name.as_str().try_into().expect("it is not empty"),
    };
    let render_ref = "r1".try_into().expect("it is not empty");
    release.item_applied(ItemApplied { item, render_ref, wave: 0, uid: None }).await
}

/// Hands so many events over, of all releases in turn.
async fn write(writer: Writer, task: usize, events: usize, handed_over: Arc<AtomicUsize>) -> Vec<Pending> {
    let releases: Vec<_> = (0..RELEASES).map(|number| writer.release(&release(number))).collect();
    let mut pending = Vec::new();
    for event in 0..events {
        pending.push(apply(&releases[(event * 7 + task) % RELEASES], event).await.expect("nothing is halted for long"));
        handed_over.fetch_add(1, Ordering::Relaxed);
    }
    pending
}

/// All events of a log.
async fn read(log: &JetStreamLog) -> Vec<Read> {
    let (mut events, mut next) = (Vec::new(), Sequence::FIRST);
    loop {
        let batch = log.read(next, &Scope::All, Wait::No).await.expect("the log can be read");
        if batch.records.is_empty() {
            return events;
        }
        assert!(batch.gaps.is_empty(), "{:?}", batch.gaps);
        next = batch.next;
        for record in batch.records.iter() {
            let envelope = Envelope::decode(&record.bytes).expect("it is an event");
            let release = envelope.subject().expect("it is of a release").to_owned();
            let event = envelope.validate().expect("it is valid");
            let seq = event.writer_seq.expect("writers count").get();
            events.push(Read { id: event.id.to_string(), lane: (release, event.source.to_string()), seq });
        }
    }
}

/// Each event is there once, and in each release the numbers of a source ascend.
fn assert_in_order(events: &[Read], ids: &HashSet<String>) {
    let found: HashSet<_> = events.iter().map(|event| event.id.clone()).collect();
    assert_eq!(found.len(), events.len(), "an event is stored twice");
    assert!(found == *ids, "{} events were written, and {} are stored", ids.len(), found.len());
    let mut highest = HashMap::new();
    for Read { id, lane, seq } in events {
        let before = highest.insert(lane, *seq).unwrap_or(0);
        assert!(before < *seq, "{id} of {lane:?} has {seq}, and stands behind {before}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_many_tasks_write_is_stored_in_the_order_of_its_numbers() {
    let server = NatsServer::start();
    let log = log_on(&server, None).await;
    let writer = Writer::new(&log, "controller-manager");
    let count = Arc::default();
    let tasks: Vec<_> =
        (0..TASKS).map(|task| tokio::spawn(write(writer.clone(), task, 1_250, Arc::clone(&count)))).collect();
    let (mut ids, mut sequences) = (HashSet::new(), HashSet::new());
    for task in tasks {
        for pending in task.await.expect("the task ends") {
            ids.insert(pending.id().to_owned());
            match pending.await {
                Ok(Written::Stored { sequence }) => sequences.insert(sequence),
                other => panic!("{other:?}"),
            };
        }
    }
    assert_eq!((ids.len(), sequences.len(), writer.dropped_handles()), (5_000, 5_000, 0));
    let events = read(&log).await;
    assert_in_order(&events, &ids);
    let mut numbers: Vec<_> = events.iter().map(|event| event.seq).collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(1..=5_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_without_permission_is_refused_at_once() {
    let server = NatsServer::builder()
        .conf(
            r#"authorization { users: [
                { user: admin, password: word },
                { user: observer, password: word, permissions: {
                    publish: ["decklog.release.*.*.*.health-inventory.>"], subscribe: ["_INBOX.>"] } }
            ] }"#,
        )
        .start();
    let log = log_on(&server, Some("admin")).await;
    let observer = Arc::new(JetStreamLog::unchecked(&connect(&server, Some("observer")).await, STREAM));
    let writer = Writer::new(&observer, "observer");
    let checkout = writer.release(&release(1));
    let begin = Instant::now();
    match apply(&checkout, 1).await.expect("it is valid").await {
        Err(WriteError::Refused { reason }) => assert!(reason.contains("permission"), "{reason}"),
        other => panic!("{other:?}"),
    }
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    // What it may say is stored all the same, behind a hole in the numbers.
    let item = Item {
        group: "".into(),
        version: None,
        kind: "Service".try_into().expect("it is not empty"),
        namespace: "shop".into(),
        name: "web".try_into().expect("it is not empty"),
    };
    let healthy = HealthAssessed {
        item,
        uid: None,
        state: Health::Healthy,
        assessed_render_ref: "r1".try_into().expect("it is not empty"),
        first_unhealthy: None,
        message: None,
    };
    checkout.health_assessed(healthy).await.expect("it is valid").await.expect("it is permitted");
    let events = read(&log).await;
    assert_eq!(events.iter().map(|event| event.seq).collect::<Vec<_>>(), [2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_loses_nothing_and_turns_nothing_round() {
    let mut server = NatsServer::start();
    let log = log_on(&server, None).await;
    let writer = Writer::new(&log, "controller-manager");
    let handed_over = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> =
        (0..TASKS).map(|task| tokio::spawn(write(writer.clone(), task, 5_000, Arc::clone(&handed_over)))).collect();
    // A part of these is answered, a part is on its way, and a part waits.
    while handed_over.load(Ordering::Relaxed) < 8_000 {
        tokio::task::yield_now().await;
    }
    server.kill();
    assert!(handed_over.load(Ordering::Relaxed) < 20_000, "the server was killed too late");
    server.restart();
    let mut ids = HashSet::new();
    for task in tasks {
        for pending in task.await.expect("the task ends") {
            ids.insert(pending.id().to_owned());
            pending.insist().await.expect("it is stored");
        }
    }
    assert_eq!((ids.len(), writer.dropped_handles()), (20_000, 0));
    assert_in_order(&read(&log).await, &ids);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_unknown_is_settled_before_anything_newer_of_its_release() {
    let server = NatsServer::start();
    let log = log_on(&server, None).await;
    let writer = Writer::new(&log, "controller-manager");
    let checkout = writer.release(&release(1));
    apply(&checkout, 0).await.expect("it is valid").await.expect("the server is up");
    let mut ids = HashSet::new();

    // The server has the event, and tells nobody.
    server.pause();
    let mut unsettled = Vec::new();
    for name in 1..=3 {
        unsettled.push(apply(&checkout, name).await.expect("it is valid"));
    }
    for pending in unsettled {
        ids.insert(pending.id().to_owned());
        match pending.await {
            Err(WriteError::Unknown(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    let blocked = apply(&checkout, 4).await;
    assert!(matches!(blocked, Err(SendError::Blocked { .. })), "{blocked:?}");
    server.resume();
    let blocked = apply(&checkout, 4).await;
    assert!(matches!(blocked, Err(SendError::Blocked { .. })), "{blocked:?}");

    let mut pending = checkout.resend();
    assert!(pending.iter().all(|pending| ids.contains(pending.id())));
    assert_eq!(pending.iter().map(|pending| pending.writer_seq().get()).collect::<Vec<_>>(), [2, 3, 4]);
    pending.push(apply(&checkout, 4).await.expect("nothing is unsettled"));
    let mut written = Vec::new();
    for pending in pending {
        written.push(pending.await.expect("the server is up"));
    }
    assert!(matches!(written[0], Written::Duplicate { .. }), "{written:?}");
    assert!(matches!(written[1..], [Written::Stored { .. }, Written::Stored { .. }, Written::Stored { .. }]));
    let events = read(&log).await;
    assert_eq!(events.iter().map(|event| event.seq).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
}
