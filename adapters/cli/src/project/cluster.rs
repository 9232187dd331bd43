//! Projecting into a cluster: one of several projectors applies, and all of them fold.

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Error};
use decklog_engine::log::Log;
use decklog_engine::service::Handle;
use decklog_http::probes::{self, Bound, Health, Probes, Readiness};
use decklog_kube::applier::{Applier, ApplyError, Options};
use decklog_kube::lease::{Identity, Lease, LeaseName, Timing};
use decklog_kube::releases::{Releases, Resource, Watched};
use decklog_kube::{Changes, Cluster, Definition, Marks, Metrics, ReachError};
use decklog_nats::JetStreamLog;
use decklog_projections::inventory::Inventories;
use decklog_projections::plan::{OtherLog, StampError};
use decklog_schemas::DEFAULT_CLUSTER;
use decklog_sled::{OpenError, SledCheckpoints};
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::gauges::{Lag, Leads};
use super::{Place, dry_run};
use crate::args::{AccessArgs, ApplyArgs};
use crate::clusters;
use crate::config::{Config, variable};
use crate::engine::Engine;
use crate::exit::{Answer, Failure};
use crate::folder::{CHECKPOINT, Embedded};
use crate::signals::Signals;
use crate::socket::Socket;
use crate::source::{LOG, Taken, open_failure, take};

/// How often is looked whether the API server answers, and knows what we write.
const LOOK: Duration = Duration::from_secs(3);

/// What applies, and to which cluster.
struct Target {
    cluster: Cluster,
    options: Options,
    resource: Resource,
    lease: Lease,
    /// Namespace and name of the Lease, and who we are in it.
    lease_shown: [String; 2],
    metrics: Metrics,
    readiness: watch::Sender<Readiness>,
}

/// What was taken and made before the engine starts, which may take long.
struct Start {
    signals: Signals,
    bound: Option<Bound>,
    target: Target,
}

/// Applies a log on NATS.
pub(super) async fn run_nats(
    place: &Place,
    access: AccessArgs,
    apply: ApplyArgs,
    config: &Config,
) -> Result<Answer, Error> {
    let mut begun = Start::new(access, apply, config).await?;
    let (sink, marks) = sink();
    let engine = tokio::select! {
        engine = start(place, sink) => engine?,
        _ = begun.signals.next() => return Ok(Answer::Yes),
    };
    begun.run(engine, marks, None).await
}

/// Applies the embedded log of a folder, and answers on its socket meanwhile, as `decklog up` does.
pub(super) async fn run_folder(
    folder: &Path,
    access: AccessArgs,
    apply: ApplyArgs,
    config: &Config,
) -> Result<Answer, Error> {
    if !folder.join(LOG).exists() && !folder.join(CHECKPOINT).exists() {
        return Err(open_failure(folder, OpenError::NotALog { dir: folder.join(LOG) }));
    }
    let mut begun = Start::new(access, apply, config).await?;
    let open = async || {
        let (sink, marks) = sink();
        Ok((Embedded::start_with(folder, sink).await?, marks))
    };
    let taken = tokio::select! {
        taken = take(folder, open) => taken?,
        _ = begun.signals.next() => return Ok(Answer::Yes),
    };
    let Taken::Opened((engine, marks)) = taken else {
        return Err(Failure::unreachable(format!(
            "a `decklog up` or `project` runs on {} already: stop it first",
            folder.display()
        )));
    };
    let socket = Socket::serve(folder, engine.handle.clone()).await?;
    begun.run(engine, marks, Some(socket)).await
}

/// What feeds the applier and the watcher of Releases, one each.
fn sink() -> (Changes, [Marks; 2]) {
    let mut changes = Changes::default();
    let marks = [changes.listen(), changes.listen()];
    (changes, marks)
}

// === impl Start ===

impl Start {
    async fn new(access: AccessArgs, apply: ApplyArgs, config: &Config) -> Result<Self, Error> {
        let signals = Signals::new()?;
        let bound = match apply.listen {
            Some(address) => Some(probes::bind(address).await?),
            None => None,
        };
        Ok(Self { signals, bound, target: Target::new(access, apply, config).await? })
    }

    /// Applies until a signal comes or something fails; then what is in flight comes to its end first, and the engine last.
    async fn run<L: Log>(
        self,
        mut engine: Engine<L>,
        marks: [Marks; 2],
        mut socket: Option<Socket>,
    ) -> Result<Answer, Error> {
        let Self { mut signals, bound, target } = self;
        let (stop, stopped) = watch::channel(false);
        let server = Server::start(bound, &target, &engine);
        let ended = {
            let mut applying = Box::pin(target.apply(engine.handle.clone(), marks, stopped));
            let (ended, is_applying) = tokio::select! {
                name = signals.next() => {
                    tracing::info!(signal = name, "Stopping");
                    (Ok(()), true)
                }
                ended = engine.ended() => (ended, true),
                ended = answered(&mut socket) => (ended, true),
                ended = &mut applying => (ended, false),
            };
            // Nobody listens if it has ended.
            let _ = stop.send(true);
            // What fails because the engine has ended is not the reason.
            let applied = if is_applying { applying.await } else { Ok(()) };
            ended.and(applied)
        };
        let answered = match socket {
            Some(socket) => socket.stop().await,
            None => Ok(()),
        };
        let stopped = engine.stop().await;
        server.stop().await;
        ended.and(answered).and(stopped).map(|()| Answer::Yes)
    }
}

/// Ends when nothing is answered on the socket any more, or never if there is none.
async fn answered(socket: &mut Option<Socket>) -> Result<(), Error> {
    match socket {
        Some(socket) => socket.ended().await,
        None => std::future::pending().await,
    }
}

async fn start(place: &Place, sink: Changes) -> Result<Engine<JetStreamLog>, Error> {
    let checkpoint = place.checkpoint();
    std::fs::create_dir_all(&place.data).with_context(|| format!("cannot create {}", place.data.display()))?;
    let (mut checkpoints, set_aside) = SledCheckpoints::open(&checkpoint).await?;
    let log = Arc::new(place.nats.open_for_checkpoint(&checkpoint, &mut checkpoints).await?);
    Engine::over(log, (checkpoints, set_aside), sink, place.way_out()).await
}

// === impl Target ===

impl Target {
    async fn new(access: AccessArgs, apply: ApplyArgs, config: &Config) -> Result<Self, Error> {
        let usage = |error: &dyn std::fmt::Display| Failure::usage(error.to_string());
        let cluster = crate::access::access(access)?.connect().await.map_err(|error| usage(&error))?;
        let shard = apply.shard.or_else(|| variable("DECKLOG_SHARD"));
        let lease_name = LeaseName::new(shard.as_deref()).map_err(|error| usage(&error))?;
        let options = Options {
            cluster: config.cluster(apply.cluster).unwrap_or_else(|| DEFAULT_CLUSTER.to_owned()),
            shard,
            shard_label: apply.shard_label,
            other: if apply.adopt_log { OtherLog::Adopt } else { OtherLog::Refuse },
            concurrency: apply.concurrency,
        };
        let release = apply.release;
        let resource =
            Resource { group: release.group, version: release.version, kind: release.kind, plural: release.plural };
        let lease_namespace = apply.lease_namespace.unwrap_or_else(|| cluster.default_namespace().to_owned());
        let identity = Identity::unique(&host());
        let lease_shown = [format!("{lease_namespace}/{lease_name}"), identity.as_str().to_owned()];
        let client = cluster.lease_client();
        let lease = Lease::new(client, &lease_namespace, &lease_name, identity, Timing::OF_KUBERNETES);
        let waits_for = "the log is not folded up to its end yet".to_owned();
        let (readiness, _) = watch::channel(Readiness::CatchingUp { waits_for });
        let metrics = Metrics::default();
        Ok(Self { cluster, options, resource, lease, lease_shown, metrics, readiness })
    }

    /// Applies what an engine has folded, once it has caught up and the cluster is fit for it, until `stop` turns true.
    async fn apply<L: Log>(
        self,
        handle: Handle<L, Inventories>,
        marks: [Marks; 2],
        mut stop: watch::Receiver<bool>,
    ) -> Result<(), Error> {
        let log = tokio::select! {
            prepared = self.prepare(&handle) => match prepared? {
                Some(log) => log,
                None => return Ok(()),
            },
            _ = stop.wait_for(|stopped| *stopped) => return Ok(()),
        };
        let [lease, identity] = &self.lease_shown;
        tracing::info!(
            server = self.cluster.server(),
            cluster = self.options.cluster,
            shard = self.options.shard,
            lease,
            identity,
            "Ready"
        );
        let watched = self.watched();
        let leadership = self.lease.leadership();
        let (give_back, given_back) = watch::channel(());
        let mut lease = pin!(join(tokio::spawn(self.lease.run(closed(given_back)))));
        self.readiness.send_replace(Readiness::Ready);
        let (client, [applied, of_releases]) = (self.cluster.client(), marks);
        let (metrics, leads) = (self.metrics, leadership.clone());
        let releases =
            Releases::new(client.clone(), handle.clone(), log.clone(), watched, leads, of_releases, &metrics);
        let applier = Applier::new(client, handle, log, self.options, leadership, applied, metrics);
        let ended = tokio::select! {
            ended = side_by_side(applier, releases, stop) => ended,
            () = &mut lease => unreachable!("the election ends when it is told to"),
        };
        self.readiness.send_replace(Readiness::Stopping);
        // The Lease is given back when nothing is in flight any more.
        drop(give_back);
        lease.await;
        ended
    }

    /// Waits until the log is folded and the cluster is fit for it, and says what is about to change in objects of other
    /// logs. Returns the identity of the log; none if the engine has ended, which says itself why.
    async fn prepare<L: Log>(&self, handle: &Handle<L, Inventories>) -> Result<Option<String>, Error> {
        // The engine answers once it has caught up.
        let cluster = self.options.cluster.clone();
        let of_others = move |inventories: &mut Inventories| clusters::of_others(inventories.keys(), &cluster);
        let Ok(of_others) = handle.ask(of_others).await else { return Ok(None) };
        if let Some(of_others) = of_others {
            tracing::warn!("{of_others}");
        }
        let log = self.identity(handle).await;
        loop {
            self.wait_for_cluster().await?;
            match dry_run::announce(&self.cluster, handle, &log, &self.options).await {
                Ok(()) => return Ok(Some(log)),
                Err(error) => self.wait(&format!("{error:#}")).await,
            }
        }
    }

    /// Asks the log who it is, until it says so.
    async fn identity<L: Log>(&self, handle: &Handle<L, Inventories>) -> String {
        loop {
            match handle.look().await {
                Ok((log, _)) => return log.to_string(),
                Err(error) => self.wait(&format!("{:#}", Error::from(error))).await,
            }
        }
    }

    /// Says what is waited for, once, and waits a while.
    async fn wait(&self, waits_for: &str) {
        let next = Readiness::CatchingUp { waits_for: waits_for.to_owned() };
        if *self.readiness.borrow() != next {
            tracing::warn!("{waits_for}");
            self.readiness.send_replace(next);
        }
        tokio::time::sleep(LOOK).await;
    }

    /// Which Releases are watched: those whose inventories are applied.
    fn watched(&self) -> Watched {
        let Options { cluster, shard, shard_label, .. } = self.options.clone();
        Watched { resource: self.resource.clone(), cluster, shard, shard_label }
    }

    /// Waits until the API server answers, and knows every field that we write: what it does not know it would refuse.
    /// A projector has no right to watch definitions, so that it looks from time to time.
    async fn wait_for_cluster(&self) -> Result<(), Error> {
        while let Some(waits_for) = self.lacks().await? {
            self.wait(&waits_for).await;
        }
        Ok(())
    }

    /// What the cluster lacks; none if it is fit.
    async fn lacks(&self) -> Result<Option<String>, Error> {
        match self.cluster.reach().await {
            Ok(_) => {}
            Err(error @ (ReachError::Unauthorized { .. } | ReachError::NoCredentials { .. })) => {
                return Err(Failure::unreachable(error.to_string()));
            }
            Err(error) => return Ok(Some(error.to_string())),
        }
        Ok(match Definition::look(&self.cluster.client()).await {
            Ok(Definition::Served) => None,
            Ok(Definition::Missing) => Some(
                "the cluster has no ReleaseInventory: `decklog crd | kubectl apply --server-side -f -` installs it; waiting \
                 until it is there"
                    .to_owned(),
            ),
            Ok(Definition::Older { missing }) => Some(format!(
                "the cluster's ReleaseInventory is older than this decklog, it lacks {}: `decklog crd | kubectl apply \
                 --server-side -f -` brings it up to date; waiting until that is done",
                missing.join(", ")
            )),
            Err(error) => Some(format!("{:#}", Error::from(error))),
        })
    }
}

/// Runs both until `stop` turns true. Whichever ends first, the other one ends with it: alone it would do half of the
/// work, and look ready. Releases are watched once the cluster is known to fit to the log.
async fn side_by_side<L: Log>(
    applier: Applier<L>,
    releases: Releases<L>,
    mut stop: watch::Receiver<bool>,
) -> Result<(), Error> {
    let (end, ending) = watch::channel(false);
    let (fits, applier_ending) = (applier.fits(), ending.clone());
    let mut applier = pin!(join(tokio::spawn(applier.run(applier_ending))));
    let releases =
        async move { if has_turned(fits, ending.clone()).await { releases.run(ending).await } else { Ok(()) } };
    let mut releases = pin!(join(tokio::spawn(releases)));
    let (mut applied, mut watched) = (None, None);
    tokio::select! {
        _ = stop.wait_for(|stopped| *stopped) => {}
        ended = &mut applier => applied = Some(ended),
        ended = &mut releases => watched = Some(ended),
    }
    // Nobody listens to what has ended.
    let _ = end.send(true);
    let (applied, watched) = tokio::join!(ended(applied, applier), ended(watched, releases));
    applied.map_err(explain)?;
    Ok(watched?)
}

/// What a task has ended with, or ends with.
async fn ended<T>(known: Option<T>, task: impl Future<Output = T>) -> T {
    match known {
        Some(ended) => ended,
        None => task.await,
    }
}

/// Waits until the first turns true, unless the other one does before, or nobody can turn it any more.
async fn has_turned(mut first: watch::Receiver<bool>, mut unless: watch::Receiver<bool>) -> bool {
    tokio::select! {
        turned = first.wait_for(|is| *is) => turned.is_ok(),
        _ = unless.wait_for(|is| *is) => false,
    }
}

/// Ends when there is no sender any more.
async fn closed(mut receiver: watch::Receiver<()>) {
    while receiver.changed().await.is_ok() {}
}

/// What a task ends with.
async fn join<T>(task: JoinHandle<T>) -> T {
    match task.await {
        Ok(value) => value,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

fn explain(error: ApplyError) -> Error {
    match &error {
        ApplyError::Stamp { stamp: StampError::OtherLog { .. }, .. } => Failure::diverged(format!(
            "{error}: nothing was changed; name the log that it was made from, or, if its events were moved into this one, \
             run with --adopt-log, and before that with --dry-run to see what it would change"
        )),
        ApplyError::Stamp { stamp: StampError::Ahead { .. }, .. } => Failure::diverged(format!(
            "{error}, so that records are gone from the log: nothing was changed; put the whole log back"
        )),
        ApplyError::Stopped(_) => error.into(),
    }
}

/// What people know this process by.
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Probes and metrics.
struct Server {
    stop: watch::Sender<bool>,
    task: Option<JoinHandle<()>>,
    /// Dropped with the process: until then the engine is known to run.
    _health: watch::Sender<Health>,
}

// === impl Server ===

impl Server {
    fn start<L: Log>(bound: Option<Bound>, target: &Target, engine: &Engine<L>) -> Self {
        let (health, health_seen) = watch::channel(Health::Running);
        let (stop, stopped) = watch::channel(false);
        let serve = |bound: Bound| {
            let mut registry = Registry::default();
            target.metrics.register(&mut registry);
            registry.register_collector(Box::new(Lag(engine.handle.progress())));
            registry.register_collector(Box::new(Leads(target.lease.leadership())));
            let probes =
                Probes { health: health_seen, readiness: target.readiness.subscribe(), metrics: Arc::new(registry) };
            tracing::info!(address = %bound.address(), "Answering /healthz, /readyz and /metrics");
            tokio::spawn(async move {
                if let Err(error) = probes::serve(bound, probes::router(probes), stopped).await {
                    tracing::error!(%error, "Probes and metrics are not answered any more");
                }
            })
        };
        Self { stop, task: bound.map(serve), _health: health }
    }

    async fn stop(self) {
        // Nobody listens if it has ended.
        let _ = self.stop.send(true);
        if let Some(task) = self.task {
            join(task).await;
        }
    }
}
