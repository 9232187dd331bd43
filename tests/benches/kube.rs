//! The projector into a real cluster, against bare applies to the same API server: from nothing, one event, a burst, a restart.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use decklog_engine::driver::{Driver, Start};
use decklog_engine::log::{Appended, ExpectedTail, Log as _, NewEvent, Scope, Wait};
use decklog_engine::memory::MemoryLog;
use decklog_engine::replay::{Until, replay};
use decklog_engine::service::{Handle, Service, ServiceError};
use decklog_kube::applier::{Applier, ApplyError, Options};
use decklog_kube::lease::Leadership;
use decklog_kube::{Access, Changes, Marks, Metrics};
use decklog_projections::inventory::{Inventories, Standing};
use decklog_projections::plan::{Action, Desired, FieldManager, Observed, OtherLog, Stamp, Wanted, plan};
use decklog_schemas::data::{Health, HealthAssessed, Item};
use decklog_schemas::inventory::{GROUP, InventoryItem, KIND, PLURAL, SHARD_LABEL, VERSION};
use decklog_schemas::{Body, DEFAULT_CLUSTER, Draft, Name, Record, ReleaseKey, Sequence, Text};
use decklog_sled::SledCheckpoints;
use decklog_tests::kube::ControlPlane;
use decklog_tests::pairs::{Bench, Clock, Cost, Figure, timed};
use decklog_tests::projector::applies;
use decklog_tests::workload::{Shape, Workload};
use futures::StreamExt as _;
use http::{Method, Request};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Client, client};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

const LIMIT: Duration = Duration::from_secs(3_000);

/// Releases that are worked on at the same time, by the bare loop as by the product.
const CONCURRENCY: NonZeroUsize = NonZeroUsize::new(16).expect("it is above zero");

/// How long there is no pass before everything is taken to be at rest. Two passes of a release are 200 ms apart.
const REST: Duration = Duration::from_millis(600);

/// The pace of a burst: 5,000 events a second, as a writer comes to that waits for each answer of JetStream. All at once
/// would be a pass or two however passes are held apart.
const PACE: Duration = Duration::from_millis(2);
const AT_ONCE: usize = 10;

const FROM_NOTHING: &str =
    "releases of 10 items into an empty cluster, against a bare loop of the same applies, 16 releases at a time";
const EVENT: &str = "from an event to the answer of its apply, times that of a bare apply of the same body";
const BURST: &str = "passes for a burst of events on one release";
const RESTART: &str = "writes of a restart with a checkpoint and an unchanged cluster";

fn main() -> ExitCode {
    decklog_tests::pairs::run(LIMIT, |bench| {
        let shape = Shape { releases: bench.pick(1_000, 20), items: 10, run: 1 };
        let place = Place::make(shape);
        from_nothing(bench, &place);
        if [EVENT, BURST, RESTART].iter().any(|name| bench.picks(name)) {
            place.empty();
            let stage = Stage::start(&place);
            event(bench, &place, &stage);
            burst(bench, &place, &stage);
            restart(bench, &place, stage);
        }
    })
}

/// A control plane, the log that is applied to it, and the runtime in which peer and product run.
struct Place {
    runtime: Runtime,
    plane: ControlPlane,
    log: Arc<MemoryLog>,
    namespaces: BTreeSet<String>,
    requests: Arc<Vec<Requests>>,
    folder: TempDir,
}

/// What the plan sends for a release that is not there yet, in order.
struct Requests {
    key: ReleaseKey,
    bodies: Vec<(FieldManager, Value)>,
}

/// A client that counts the applies that have succeeded. Peer and product have one of the same kind.
struct Counted {
    client: Client,
    answers: watch::Receiver<u64>,
}

/// An engine that has folded the log, and what its applier will need.
struct Engine {
    handle: Handle<MemoryLog, Inventories>,
    log: String,
    marks: Marks,
    service: JoinHandle<Result<(), ServiceError>>,
    stop: watch::Sender<bool>,
}

/// An engine and its applier.
struct Projector {
    handle: Handle<MemoryLog, Inventories>,
    log: String,
    service: JoinHandle<Result<(), ServiceError>>,
    applier: JoinHandle<Result<(), ApplyError>>,
    registry: Registry,
    stop: watch::Sender<bool>,
    /// Whoever has it is the leader.
    _leadership: watch::Sender<Leadership>,
}

/// A projector that has applied everything, with a checkpoint that it can be started from again.
struct Stage {
    counted: Counted,
    projector: Projector,
    checkpoint: PathBuf,
}

fn from_nothing(bench: &mut Bench, place: &Place) {
    let name = format!("{} {FROM_NOTHING}", place.requests.len());
    let figure = Figure { name: &name, events: place.count(), bounds: Some([0.8, 0.95]), clock: Clock::Wall };
    bench.compare(figure, || place.send_bare(), || place.project());
}

/// Each event is on another release. Beside it is a twin, an object that no log knows, to which the same change is
/// applied.
fn event(bench: &mut Bench, place: &Place, Stage { counted, projector, .. }: &Stage) {
    let count = bench.pick(200, 10);
    let (mut product, mut bare) = (Vec::new(), Vec::new());
    place.runtime.block_on(async {
        let keys: Vec<_> = place.requests[..count].iter().map(|requests| &requests.key).collect();
        let mut twins = Vec::new();
        for key in &keys {
            twins.push(projector.twin(&counted.client, key).await);
        }
        projector.rest().await;
        for (at, (key, twin)) in keys.into_iter().zip(twins).enumerate() {
            let (event, _) = projector.assessed(key, at).await;
            let clock = Instant::now();
            let answer = counted.answer();
            let sequence = append(&place.log, event).await;
            product.push(answer.await.duration_since(clock));
            projector.handle.reach(sequence).await.expect("the engine runs");

            let desired = twin_of(projector.desired(key).await);
            let actions = plan(&desired, Some(&twin), OtherLog::Refuse).expect("the twin is ours");
            let [Action::Apply { manager, body, .. }] = &*actions else {
                panic!("one change is one apply: {actions:?}")
            };
            let name = format!("{}-twin", key.name);
            let clock = Instant::now();
            let (answer, _) = tokio::join!(
                counted.answer(),
                apply(
                    &counted.client,
                    (&key.namespace, &name),
                    (*manager, body),
                    Some((twin.uid(), twin.resource_version()))
                ),
            );
            bare.push(answer.duration_since(clock));
        }
    });
    for (rank, of_hundred) in [("p50", 50), ("p99", 99)] {
        let [product, bare] = [&mut product, &mut bare].map(|times| percentile(times, of_hundred).as_secs_f64());
        let details = format!("{:.2} ms, bare {:.2} ms", product * 1e3, bare * 1e3);
        bench.judge_most(&format!("{EVENT}, {rank}"), None, product / bare, &details);
    }
}

fn burst(bench: &mut Bench, place: &Place, Stage { counted, projector, .. }: &Stage) {
    let count = bench.pick(10_000, 200);
    let (passes, requests, took) = place.runtime.block_on(async {
        let last = place.requests.last().expect("there are releases");
        let mut events = Vec::new();
        let mut message = String::new();
        for at in 0..count {
            let (event, said) = projector.assessed(&last.key, at).await;
            events.push(event);
            message = said;
        }
        projector.rest().await;
        let before = (projector.passes(), *counted.answers.borrow());
        let clock = Instant::now();
        let mut pace = tokio::time::interval(PACE);
        let mut events = events.into_iter();
        while events.len() > 0 {
            pace.tick().await;
            for event in events.by_ref().take(AT_ONCE) {
                append(&place.log, event).await;
            }
        }
        let took = clock.elapsed();
        projector.rest().await;
        let after = (projector.passes(), *counted.answers.borrow());
        let api = api(&counted.client, &last.key.namespace);
        let object = api.get(&last.key.name).await.expect("the object is there");
        assert!(object.data.to_string().contains(&message), "the cluster shows the last event: {}", object.data);
        (after.0 - before.0, after.1 - before.1, took)
    });
    let details = format!("{count} events in {:.0} ms, {requests} requests", took.as_secs_f64() * 1e3);
    bench.judge_most(BURST, Some(20.0), passes as f64, &details);
}

fn restart(bench: &mut Bench, place: &Place, Stage { counted, projector, checkpoint }: Stage) {
    let (looked, sent) = place.runtime.block_on(async {
        projector.stop().await;
        let objects = api_of_all(&counted.client).list(&ListParams::default()).await.expect("they can be listed");
        let (engine, start) = Engine::start(&place.log, &checkpoint).await;
        assert!(matches!(start, Start::Checkpoint { .. }), "{start:?}");
        let before = applies(&place.plane);
        assert!(before > 0, "what is sent is found in the audit log");
        let projector = engine.apply(place.client().await.client);
        while projector.passes() < objects.items.len() as u64 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        projector.rest().await;
        let passes = projector.passes();
        projector.stop().await;
        (format!("{passes} passes over {} objects", objects.items.len()), applies(&place.plane) - before)
    });
    bench.judge_most(RESTART, Some(0.0), sent as f64, &looked);
}

// === impl Place ===

impl Place {
    /// A log with each item applied, and as many changes and assessments at random after that.
    fn make(shape: Shape) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime can be made");
        let records = Workload::new(shape).records(2 * shape.releases * shape.items);
        let log = Arc::new(MemoryLog::new());
        let requests: Vec<_> = runtime.block_on(async {
            let events = records.iter().map(|record| new_event(record.sequence.to_string(), &record)).collect();
            let answers = log.append(events).await.expect("memory takes them");
            assert!(answers.iter().all(|answer| matches!(answer, Appended::Stored { .. })));
            let mut state = Inventories::default();
            replay(&*log, &Scope::All, Until::Tail, &mut state).await.expect("memory can be read");
            let id = identity(&log).await;
            let of_release = |key: &ReleaseKey| {
                let desired = desired(&id, state.standing(key).expect("the release was folded"));
                Requests { key: key.clone(), bodies: creation(&desired) }
            };
            state.keys().map(of_release).collect()
        });
        let namespaces: BTreeSet<_> = requests.iter().map(|requests| requests.key.namespace.to_string()).collect();
        let plane = ControlPlane::start();
        plane.install_crd();
        let namespace = |name| json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        let items: Vec<_> = namespaces.iter().map(namespace).collect();
        plane.apply(&json!({ "apiVersion": "v1", "kind": "List", "items": items }).to_string());
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        Self { runtime, plane, log, namespaces, requests: Arc::new(requests), folder }
    }

    /// How many requests it takes from nothing.
    fn count(&self) -> usize {
        self.requests.iter().map(|requests| requests.bodies.len()).sum()
    }

    /// With connections of its own, as each process has them.
    async fn client(&self) -> Counted {
        let access = Access { kubeconfig: Some(self.plane.kubeconfig()), ..Access::default() };
        let cluster = access.connect().await.expect("the kubeconfig is right");
        Counted::new(cluster.client())
    }

    /// Deletes all objects.
    fn empty(&self) {
        self.runtime.block_on(async {
            let Counted { client, .. } = self.client().await;
            let empty = async |namespace: &String| {
                let (delete, all) = (DeleteParams::default(), ListParams::default());
                api(&client, namespace).delete_collection(&delete, &all).await.expect("they can be deleted");
            };
            futures::stream::iter(&self.namespaces).for_each_concurrent(CONCURRENCY.get(), empty).await;
            let left = api_of_all(&client).list(&ListParams::default()).await.expect("they can be listed");
            assert!(left.items.is_empty(), "{} objects are left", left.items.len());
        });
    }

    /// The bare loop: each worker takes a release and sends its requests, then the next one.
    fn send_bare(&self) -> Cost {
        self.empty();
        let counted = self.runtime.block_on(self.client());
        let work = async {
            let next = Arc::new(AtomicUsize::new(0));
            let mut workers = JoinSet::new();
            for _ in 0..CONCURRENCY.get() {
                let (client, next, requests) = (counted.client.clone(), Arc::clone(&next), Arc::clone(&self.requests));
                workers.spawn(async move {
                    while let Some(requests) = requests.get(next.fetch_add(1, Ordering::Relaxed)) {
                        create(&client, (&requests.key.namespace, &requests.key.name), &requests.bodies).await;
                    }
                });
            }
            while let Some(ended) = workers.join_next().await {
                ended.expect("it is applied");
            }
        };
        let ((), cost) = timed(|| self.runtime.block_on(work));
        assert_eq!(*counted.answers.borrow(), self.count() as u64);
        cost
    }

    /// The product, from the start of its applier until the last request was answered.
    fn project(&self) -> Cost {
        self.empty();
        let checkpoint = tempfile::tempdir_in(self.folder.path()).expect("the folder is ours");
        let (mut counted, engine) =
            self.runtime.block_on(async { (self.client().await, Engine::start(&self.log, checkpoint.path()).await.0) });
        let work = async {
            let projector = engine.apply(counted.client.clone());
            counted.reach(self.count()).await;
            projector
        };
        let (projector, cost) = timed(|| self.runtime.block_on(work));
        self.runtime.block_on(projector.stop());
        assert_eq!(*counted.answers.borrow(), self.count() as u64, "requests are those of the peer, and no more");
        cost
    }
}

// === impl Stage ===

impl Stage {
    fn start(place: &Place) -> Self {
        let checkpoint = place.folder.path().join("checkpoint");
        place.runtime.block_on(async {
            let mut counted = place.client().await;
            let (engine, _) = Engine::start(&place.log, &checkpoint).await;
            let projector = engine.apply(counted.client.clone());
            counted.reach(place.count()).await;
            projector.rest().await;
            Self { counted, projector, checkpoint }
        })
    }
}

// === impl Counted ===

impl Counted {
    fn new(inner: Client) -> Self {
        let (answered, answers) = watch::channel(0);
        let namespace = inner.default_namespace().to_owned();
        let service = tower::service_fn(move |request: Request<client::Body>| {
            let (inner, answered) = (inner.clone(), answered.clone());
            async move {
                let is_apply = request.method() == Method::PATCH;
                let answer = inner.send(request).await?;
                if is_apply && answer.status().is_success() {
                    answered.send_modify(|count| *count += 1);
                }
                Ok::<_, kube::Error>(answer)
            }
        });
        Self { client: Client::new(service, namespace), answers }
    }

    /// Waits until so many applies were answered.
    async fn reach(&mut self, count: usize) {
        let reached = self.answers.wait_for(|answers| *answers >= count as u64).await;
        reached.expect("the client is there");
    }

    /// When the next apply was answered.
    fn answer(&self) -> impl Future<Output = Instant> + use<> {
        let mut answers = self.answers.clone();
        answers.mark_unchanged();
        async move {
            answers.changed().await.expect("the client is there");
            Instant::now()
        }
    }
}

// === impl Engine ===

impl Engine {
    /// Folds the log up to its end.
    async fn start(log: &Arc<MemoryLog>, checkpoint: &Path) -> (Self, Start) {
        let (store, _) = SledCheckpoints::open(checkpoint).await.expect("it opens");
        let (driver, start) = Driver::start(Arc::clone(log), store).await.expect("the checkpoint fits the log");
        let mut sink = Changes::default();
        let marks = sink.listen();
        let (service, handle) = Service::new(Arc::clone(log), driver, sink);
        let (stop, stopped) = watch::channel(false);
        let service = tokio::spawn(service.run(stopped));
        handle.ask(|_: &mut Inventories| ()).await.expect("the engine catches up");
        (Self { handle, log: identity(log).await, marks, service, stop }, start)
    }

    /// Begins to apply, as the leader for ever.
    fn apply(self, client: Client) -> Projector {
        let Self { handle, log, marks, service, stop } = self;
        let until = tokio::time::Instant::now() + 2 * LIMIT;
        let (leads, leadership) = watch::channel(Leadership::Leading { until, term: 1 });
        let (metrics, mut registry) = (Metrics::default(), Registry::default());
        metrics.register(&mut registry);
        let options = Options {
            cluster: DEFAULT_CLUSTER.to_owned(),
            shard: None,
            shard_label: SHARD_LABEL.to_owned(),
            other: OtherLog::Refuse,
            concurrency: CONCURRENCY,
        };
        let applier = Applier::new(client, handle.clone(), log.clone(), options, leadership, marks, metrics);
        let applier = tokio::spawn(applier.run(stop.subscribe()));
        Projector { handle, log, service, applier, registry, stop, _leadership: leads }
    }
}

// === impl Projector ===

impl Projector {
    /// How many passes there were.
    fn passes(&self) -> u64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).expect("a string takes it");
        let value = text.lines().find_map(|line| line.strip_prefix("decklog_apply_passes_total "));
        value.and_then(|value| value.parse().ok()).expect("passes are counted")
    }

    /// Waits until there is nothing left to do.
    async fn rest(&self) {
        let mut passes = None;
        while passes != Some(self.passes()) {
            passes = Some(self.passes());
            tokio::time::sleep(REST).await;
        }
    }

    /// What is in flight comes to its end, and a checkpoint is saved.
    async fn stop(self) {
        self.stop.send(true).expect("both run");
        self.applier.await.expect("it does not panic").expect("the cluster fits to the log");
        self.service.await.expect("it does not panic").expect("the log and the checkpoint are well");
    }

    async fn desired(&self, key: &ReleaseKey) -> Desired {
        let of = key.clone();
        let standing = self.handle.ask(move |inventories: &mut Inventories| inventories.standing(&of)).await;
        desired(&self.log, standing.expect("the engine runs").expect("the release was folded"))
    }

    /// An event that changes the state of the first item of a release, and the message that it brings.
    async fn assessed(&self, key: &ReleaseKey, at: usize) -> (NewEvent, String) {
        let Wanted::Object(object) = self.desired(key).await.object else { panic!("{key} is there") };
        let row = object.fields.inventory.first().expect("it has items");
        let message = format!("{at} of {} replicas are available", at + 1);
        (assessment(key, row, &message), message)
    }

    /// Makes an object like that of a release, of another name.
    async fn twin(&self, client: &Client, key: &ReleaseKey) -> Observed {
        let desired = twin_of(self.desired(key).await);
        let made = create(client, (&key.namespace, &format!("{}-twin", key.name)), &creation(&desired)).await;
        let made = serde_json::to_value(made.expect("there is something to apply")).expect("an object is JSON");
        Observed::read(made, SHARD_LABEL).expect("it is an object")
    }
}

fn desired(log: &str, standing: Standing) -> Desired {
    let stamp = Stamp { log: log.to_owned(), sequence: standing.sequence };
    Desired { object: standing.wanted, stamp, folded: standing.folded }
}

fn twin_of(mut desired: Desired) -> Desired {
    if let Wanted::Object(object) = &mut desired.object {
        object.metadata.name.push_str("-twin");
    }
    desired
}

/// The bodies that make an object.
fn creation(desired: &Desired) -> Vec<(FieldManager, Value)> {
    let actions = plan(desired, None, OtherLog::Refuse).expect("it can be applied");
    let body = |action| match action {
        Action::Apply { manager, body, .. } => (manager, body),
        other => panic!("nothing is there yet: {other:?}"),
    };
    actions.into_iter().map(body).collect()
}

/// Sends the bodies one after the other, each on what the one before has left.
async fn create(client: &Client, place: (&str, &str), bodies: &[(FieldManager, Value)]) -> Option<DynamicObject> {
    let mut made: Option<DynamicObject> = None;
    for (manager, body) in bodies {
        let seen = made.as_ref().map(|made| {
            let [uid, version] = [&made.metadata.uid, &made.metadata.resource_version];
            (uid.as_deref().unwrap_or_default(), version.as_deref().unwrap_or_default())
        });
        made = Some(apply(client, place, (*manager, body), seen).await);
    }
    made
}

/// One request as the applier sends it, on an object of this uid and resourceVersion.
async fn apply(
    client: &Client,
    (namespace, name): (&str, &str),
    (manager, body): (FieldManager, &Value),
    seen: Option<(&str, &str)>,
) -> DynamicObject {
    let mut body = body.clone();
    if let Some((uid, resource_version)) = seen {
        body["metadata"]["uid"] = json!(uid);
        body["metadata"]["resourceVersion"] = json!(resource_version);
    }
    let params = PatchParams::apply(manager.name()).force();
    api(client, namespace).patch(name, &params, &Patch::Apply(body)).await.expect("it is applied")
}

fn api(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &resource())
}

fn api_of_all(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &resource())
}

fn resource() -> ApiResource {
    let [group, version, kind, plural] = [GROUP, VERSION, KIND, PLURAL].map(str::to_owned);
    ApiResource { api_version: format!("{group}/{version}"), group, version, kind, plural }
}

async fn identity(log: &MemoryLog) -> String {
    log.read(Sequence::FIRST, &Scope::All, Wait::No).await.expect("memory can be read").log.to_string()
}

async fn append(log: &MemoryLog, event: NewEvent) -> Sequence {
    let answers = log.append(vec![event]).await.expect("memory takes it");
    let [Appended::Stored { sequence }] = *answers else { panic!("it is new: {answers:?}") };
    sequence
}

fn assessment(key: &ReleaseKey, row: &InventoryItem, message: &str) -> NewEvent {
    fn named(text: &str) -> Name<'_> {
        text.try_into().expect("it is not empty")
    }
    let item = Item {
        group: Text::from(&*row.group),
        version: None,
        kind: named(&row.kind),
        namespace: Text::from(&*row.namespace),
        name: named(&row.name),
    };
    let assessed_render_ref = named(row.render_ref.as_deref().expect("it was applied"));
    let message = Some(message.into());
    let (uid, first_unhealthy, state) = (None, None, Health::Degraded);
    let body = HealthAssessed { item, uid, state, assessed_render_ref, first_unhealthy, message };
    let id = uuid::Uuid::now_v7().to_string();
    let draft = Draft {
        id: &id,
        source: "/observer/bench",
        release: Some(key),
        time: jiff::Timestamp::now(),
        release_uid: None,
        writer_seq: None,
        term: None,
        correlation_id: None,
        trace_parent: None,
        body: Body::HealthAssessed(body),
    };
    let mut bytes = Vec::new();
    draft.write_msgpack(&mut bytes);
    new_event(id.clone(), &Record::of_event(Sequence::FIRST, &bytes).expect("it is an event"))
}

fn new_event(id: String, record: &Record<'_>) -> NewEvent {
    let (subject, bytes) = (record.subject.clone().into_owned(), record.bytes.clone().into_owned());
    NewEvent { id, subject, bytes, expected: ExpectedTail::Any }
}

/// The time that so many of a hundred do not exceed.
fn percentile(times: &mut [Duration], of_hundred: usize) -> Duration {
    times.sort_unstable();
    times[(times.len() * of_hundred).div_ceil(100) - 1]
}
