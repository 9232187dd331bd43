//! The log on JetStream against bare loops of async-nats on the same server: publishing, reading, replaying, one release.

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_nats::jetstream::{self, context::PublishAckFuture};
use async_nats::{Client, HeaderMap};
use decklog_engine::Records;
use decklog_engine::log::{Appended, ExpectedTail, Log as _, NewEvent, Scope, Wait};
use decklog_engine::replay::{Until, replay};
use decklog_nats::{Connection, JetStreamLog, Login, STREAM, Writer, stream};
use decklog_projections::inventory::Inventories;
use decklog_schemas::data::{AppliedItem, ItemApplied};
use decklog_schemas::{Draft, Envelope, Name, ReleaseKey, Sequence, Text, subject};
use decklog_tests::nats::{NatsServer, api};
use decklog_tests::pairs::{Bench, Clock, Cost, Figure, cpu_time};
use decklog_tests::workload::{Shape, Workload};
use futures::StreamExt as _;
use futures::stream::FuturesOrdered;
use serde_json::Value;
use tokio::runtime::Runtime;

const LIMIT: Duration = Duration::from_secs(2_400);

const SHAPE: Shape = Shape { releases: 1_000, items: 100, run: 1 };

/// Events in flight, of the bare loop as of the product.
const WINDOW: usize = 1_024;

/// Messages that one pull of the bare loop asks for.
const PULL: usize = 5_000;

fn main() -> ExitCode {
    decklog_tests::pairs::run(LIMIT, |bench| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let place = Place { runtime: runtime.expect("a runtime can be made"), server: NatsServer::start() };
        publish(bench, &place);
        place.empty();
        let events = bench.pick(1_000_000, 4_000);
        place.fill(events);
        read(bench, &place, events);
        question(bench, &place, events);
    })
}

/// A server, and the runtime in which peer and product run.
struct Place {
    runtime: Runtime,
    server: NatsServer,
}

/// An event as the bare loop sends it.
struct Message {
    subject: String,
    bytes: Vec<u8>,
}

fn publish(bench: &mut Bench, place: &Place) {
    let events = bench.pick(300_000, 2_000);
    let messages = place.messages(events);
    let bare = || place.publish_bare(&messages);
    let writer = || place.publish_through_writer(events);
    let bounds = Some([0.85, 1.2]);
    let name = "publish through the writer, against a bare window of 1,024 acks with the same bytes and header";
    bench.compare(Figure { name, events, clock: Clock::Wall, bounds }, bare, writer);
    let append = || place.append(&messages);
    let bare = || place.publish_bare(&messages);
    let name = "append in calls of 1,000, one event of a release in flight, against the same";
    bench.compare(Figure { name, events, clock: Clock::Wall, bounds: None }, bare, append);
}

fn read(bench: &mut Bench, place: &Place, events: usize) {
    let bounds = Some([0.85, 1.0]);
    let name = "read and count, against a bare pull consumer, batch 5,000, no acks";
    let figure = Figure { name, events, clock: Clock::Wall, bounds };
    bench.compare(figure, || place.pull_bare("", events), || place.count(events));
    let bounds = Some([0.5, 0.7]);
    let name = "full replay into the fold, against the same";
    let figure = Figure { name, events, clock: Clock::Wall, bounds };
    bench.compare(figure, || place.pull_bare("", events), || place.replay(&Scope::All, events));
}

fn question(bench: &mut Bench, place: &Place, events: usize) {
    let key = ReleaseKey::new("default", "team-7", "service-7");
    let scope = Scope::Release(key.clone());
    let bounds = Some([5.0, f64::INFINITY]);
    let name = "one release by its subjects, without local state, against a full replay";
    let figure = Figure { name, events, clock: Clock::Wall, bounds };
    bench.compare(figure, || place.replay(&Scope::All, events), || place.replay(&scope, 1));
    let (filter, of_it) = (format!("{}.release.{}.>", subject::PREFIX, key.tokens()), place.count_of(&scope));
    let name = "one release by its subjects, against a bare pull consumer with the same filter";
    let figure = Figure { name, events, clock: Clock::Wall, bounds: Some([0.85, 1.0]) };
    bench.compare(figure, || place.pull_bare(&filter, of_it), || place.replay(&scope, of_it));
}

// === impl Place ===

impl Place {
    /// A new connection, as each process has its own.
    async fn connection(&self) -> Connection {
        Connection::open(&self.server.url(), &Login::default()).await.expect("the server answers")
    }

    async fn client(&self) -> Client {
        async_nats::connect(self.server.url()).await.expect("the server answers")
    }

    async fn log(&self) -> JetStreamLog {
        JetStreamLog::open(&self.connection().await, STREAM).await.expect("the stream is there")
    }

    /// Makes the stream anew, so that each run appends to an empty one.
    fn empty(&self) {
        api::ask(&self.server.url(), "STREAM.DELETE.DECKLOG", &Value::Null);
        self.runtime.block_on(async {
            stream::init(&self.connection().await, STREAM, None).await.expect("the stream can be made");
        });
    }

    /// The events of the writer, encoded.
    fn messages(&self, count: usize) -> Vec<Message> {
        let number = |number: usize| std::num::NonZeroU64::new(number as u64 + 1);
        let message = |at: usize| {
            let (release, body) = (release(at), body(at));
            let name = format!("svc-{at}");
            let draft = Draft {
                id: "0197a1b2-0000-7000-8000-000000000000",
                source: "/controller/0197a1b2-0000-7000-8000-000000000000",
                release: Some(&release),
                time: jiff::Timestamp::now(),
                release_uid: None,
                writer_seq: number(at),
                term: None,
                correlation_id: None,
                trace_parent: None,
                body: decklog_schemas::Body::ItemApplied(applied(&body, &name)),
            };
            let mut bytes = Vec::new();
            draft.write_msgpack(&mut bytes);
            let envelope = Envelope::decode(&bytes).expect("it is an event");
            let subject = subject::place(&envelope).expect("it has a place");
            drop(envelope);
            Message { subject, bytes }
        };
        (0..count).map(message).collect()
    }

    fn publish_bare(&self, messages: &[Message]) -> Cost {
        self.empty();
        self.runtime.block_on(async {
            let context = jetstream::new(self.client().await);
            let clock = timed_async(async {
                let mut acks = FuturesOrdered::new();
                for message in messages {
                    if acks.len() == WINDOW {
                        settle(acks.next().await);
                    }
                    let mut headers = HeaderMap::new();
                    headers.insert("Nats-Msg-Id", uuid::Uuid::now_v7().to_string().as_str());
                    let sent = context
                        .publish_with_headers(message.subject.clone(), headers, message.bytes.clone().into())
                        .await;
                    let ack: PublishAckFuture = sent.expect("it can be sent");
                    acks.push_back(std::future::IntoFuture::into_future(ack));
                }
                while let Some(ack) = acks.next().await {
                    settle(Some(ack));
                }
            });
            clock.await
        })
    }

    fn publish_through_writer(&self, events: usize) -> Cost {
        self.empty();
        self.runtime.block_on(async {
            let log = Arc::new(self.log().await);
            let writer = Writer::new(&log, "controller");
            let clock = timed_async(async {
                let mut pending = std::collections::VecDeque::new();
                for at in 0..events {
                    let (release, body, name) = (release(at), body(at), format!("svc-{at}"));
                    let sent = writer.release(&release).item_applied(applied(&body, &name)).await;
                    pending.push_back(sent.expect("it is valid"));
                    if pending.len() == WINDOW
                        && let Some(first) = pending.pop_front()
                    {
                        first.await.expect("it is stored");
                    }
                }
                for one in pending {
                    one.await.expect("it is stored");
                }
            });
            clock.await
        })
    }

    fn append(&self, messages: &[Message]) -> Cost {
        self.empty();
        self.runtime.block_on(async {
            let log = self.log().await;
            let clock = timed_async(async {
                for call in messages.chunks(1_000) {
                    let event = |message: &Message| NewEvent {
                        id: uuid::Uuid::now_v7().to_string(),
                        subject: message.subject.clone(),
                        bytes: message.bytes.clone(),
                        expected: ExpectedTail::Any,
                    };
                    let answers = log.append(call.iter().map(event).collect()).await.expect("the log takes them");
                    assert!(answers.iter().all(|answer| matches!(answer, Appended::Stored { .. })));
                }
            });
            clock.await
        })
    }

    /// Fills the stream with the events that the fold reads. Then the server forgets their ids, as it does after ten
    /// minutes: as long as it remembers a million of them, its garbage collector walks over them again and again.
    fn fill(&self, events: usize) {
        self.runtime.block_on(async {
            let log = self.log().await;
            let records: Records = Workload::new(SHAPE).records(events);
            let events: Vec<_> = records
                .iter()
                .map(|record| NewEvent {
                    id: record.sequence.to_string(),
                    subject: record.subject.into_owned(),
                    bytes: record.bytes.into_owned(),
                    expected: ExpectedTail::Any,
                })
                .collect();
            for call in events.chunks(5_000) {
                let answers = log.append(call.to_vec()).await.expect("the log takes them");
                assert!(answers.iter().all(|answer| matches!(answer, Appended::Stored { .. })));
            }
        });
        let mut config = api::init(&self.server.url(), 1).config;
        config["duplicate_window"] = serde_json::json!(100_000_000);
        api::order(&self.server.url(), "STREAM.UPDATE.DECKLOG", &config);
        std::thread::sleep(Duration::from_secs(1));
    }

    /// Reads so many messages of a subject, or of all if it is empty.
    fn pull_bare(&self, subject: &str, events: usize) -> Cost {
        self.runtime.block_on(async {
            let context = jetstream::new(self.client().await);
            let clock = timed_async(async {
                let config = pull::Config {
                    deliver_policy: DeliverPolicy::All,
                    ack_policy: AckPolicy::None,
                    filter_subject: subject.to_owned(),
                    ..pull::Config::default()
                };
                let consumer = context.create_consumer_on_stream(config, STREAM).await.expect("it can be made");
                let messages = consumer.stream().max_messages_per_batch(PULL).messages().await;
                let mut messages = messages.expect("it can be read");
                for _ in 0..events {
                    let message = messages.next().await.expect("there are more").expect("it comes");
                    black_box(message.payload.len());
                }
            });
            clock.await
        })
    }

    /// How many records a scope has.
    fn count_of(&self, scope: &Scope) -> usize {
        self.runtime.block_on(async {
            let mut state = Inventories::default();
            let replayed = replay(&self.log().await, scope, Until::Tail, &mut state).await;
            usize::try_from(replayed.expect("the log can be read").records).expect("it fits into memory")
        })
    }

    fn count(&self, events: usize) -> Cost {
        self.runtime.block_on(async {
            let log = self.log().await;
            let clock = timed_async(async {
                let (mut from, mut count) = (Sequence::FIRST, 0);
                while count < events {
                    let batch = log.read(from, &Scope::All, Wait::No).await.expect("the log can be read");
                    count += batch.records.len();
                    from = batch.next;
                }
                assert_eq!(count, events);
            });
            clock.await
        })
    }

    fn replay(&self, scope: &Scope, at_least: usize) -> Cost {
        self.runtime.block_on(async {
            let log = self.log().await;
            let clock = timed_async(async {
                let mut state = Inventories::default();
                let replayed = replay(&log, scope, Until::Tail, &mut state).await.expect("the log can be read");
                assert!(replayed.records >= at_least as u64, "{} records", replayed.records);
                black_box(state);
            });
            clock.await
        })
    }
}

/// What some asynchronous work took.
async fn timed_async(work: impl Future<Output = ()>) -> Cost {
    let (wall, cpu) = (Instant::now(), cpu_time());
    work.await;
    Cost { wall: wall.elapsed(), cpu: cpu_time() - cpu }
}

fn settle<E: std::fmt::Debug>(ack: Option<Result<jetstream::publish::PublishAck, E>>) {
    ack.expect("there is one").expect("it is stored");
}

fn release(at: usize) -> ReleaseKey {
    let release = at * 7_919 % SHAPE.releases;
    ReleaseKey::new("default", &format!("team-{}", release % 50), &format!("service-{release}"))
}

/// Render and uid of an event.
fn body(at: usize) -> [String; 2] {
    [format!("r{:04}-{:08x}", at / 1_000, at), format!("0197a1b2-0000-4000-8000-{at:012}")]
}

fn applied<'a>([render, uid]: &'a [String; 2], name: &'a str) -> ItemApplied<'a> {
    let named = |text: &'a str| Name::try_from(Text::from(text)).expect("it is not empty");
    let item = AppliedItem {
        group: "apps".into(),
        version: "v1".into(),
        kind: named("Deployment"),
        namespace: "team-payments".into(),
        name: named(name),
    };
    ItemApplied { item, render_ref: named(render), wave: 1, uid: Some(uid.as_str().into()) }
}
