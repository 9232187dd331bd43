//! Projecting into a cluster: one of several projectors applies, and all of them fold.

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Error};
use decklog_engine::log::{Log, Scope, Wait};
use decklog_engine::service::Handle;
use decklog_http::probes::{self, Bound, Health, Probes, Readiness};
use decklog_kube::applier::{Applier, ApplyError, Options};
use decklog_kube::lease::{Identity, Lease, LeaseName, Timing};
use decklog_kube::releases::{Releases, Resource, Watched};
use decklog_kube::{Changes, Cluster, Definition, Metrics, ReachError, changes};
use decklog_nats::JetStreamLog;
use decklog_projections::inventory::Inventories;
use decklog_projections::plan::{OtherLog, StampError};
use decklog_schemas::{DEFAULT_CLUSTER, ReleaseKey, Sequence};
use decklog_sled::{OpenError, SledCheckpoints};
use prometheus_client::registry::Registry;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinHandle};

use super::lag::Lag;
use super::{Place, dry_run};
use crate::args::{AccessArgs, ApplyArgs};
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
    lease_namespace: String,
    lease_name: LeaseName,
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
    let (sink, changed) = changes();
    let engine = tokio::select! {
        engine = start(place, sink) => engine?,
        _ = begun.signals.next() => return Ok(Answer::Yes),
    };
    begun.run(engine, changed, None).await
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
        let (sink, changed) = changes();
        Ok((Embedded::start_with(folder, sink).await?, changed))
    };
    let taken = tokio::select! {
        taken = take(folder, open) => taken?,
        _ = begun.signals.next() => return Ok(Answer::Yes),
    };
    let Taken::Opened((engine, changed)) = taken else {
        return Err(Failure::unreachable(format!(
            "a `decklog up` or `project` runs on {} already: stop it first",
            folder.display()
        )));
    };
    let socket = Socket::serve(folder, engine.handle.clone()).await?;
    begun.run(engine, changed, Some(socket)).await
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
        changed: mpsc::UnboundedReceiver<Vec<ReleaseKey>>,
        mut socket: Option<Socket>,
    ) -> Result<Answer, Error> {
        let Self { mut signals, bound, target } = self;
        let (stop, stopped) = watch::channel(false);
        let server = Server::start(bound, &target, &engine);
        let ended = {
            let mut applying = pin!(target.apply(engine.handle.clone(), changed, stopped));
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
        let waits_for = "the log is not folded up to its end yet".to_owned();
        let (readiness, _) = watch::channel(Readiness::CatchingUp { waits_for });
        let metrics = Metrics::default();
        Ok(Self { cluster, options, resource, lease_namespace, lease_name, metrics, readiness })
    }

    /// Applies what an engine has folded, once it has caught up and the cluster is fit for it, until `stop` turns true.
    async fn apply<L: Log>(
        &self,
        handle: Handle<L, Inventories>,
        changed: mpsc::UnboundedReceiver<Vec<ReleaseKey>>,
        stop: watch::Receiver<bool>,
    ) -> Result<(), Error> {
        let mut stopped_outside = stop.clone();
        let mut stopped = stop;
        let prepared = async {
            // The engine answers once it has caught up; if it ends before, it says so itself.
            if handle.ask(|_: &mut Inventories| ()).await.is_err() {
                return Ok(());
            }
            self.wait_for_cluster().await
        };
        tokio::select! {
            prepared = prepared => prepared?,
            _ = stopped.wait_for(|stopped| *stopped) => return Ok(()),
        }
        let folded = handle.progress().borrow().folded;
        let log = handle.log().read(Sequence::after(folded), &Scope::All, Wait::No).await?.log.to_string();
        dry_run::announce(&self.cluster, &handle, &log, &self.options).await?;
        let identity = Identity::unique(&host());
        tracing::info!(server = self.cluster.server(), cluster = self.options.cluster, shard = self.options.shard, lease = %format_args!("{}/{}", self.lease_namespace, self.lease_name), identity = identity.as_str(), "Ready");
        let client = self.cluster.lease_client();
        let lease = Lease::new(client, &self.lease_namespace, &self.lease_name, identity, Timing::OF_KUBERNETES);
        let leadership = lease.leadership();
        let (give_back, given_back) = watch::channel(());
        let lease = tokio::spawn(lease.run(closed(given_back)));
        self.readiness.send_replace(Readiness::Ready);
        let (client, options) = (self.cluster.client(), self.options.clone());
        let watched = self.watched();
        let (releases, changed) =
            Releases::new(client.clone(), handle.clone(), log.clone(), watched, leadership.clone(), changed);
        let (stop_watching, stopped) = watch::channel(false);
        let applier = Applier::new(client, handle, log, options, leadership, changed, self.metrics.clone());
        let fits = applier.fits();
        let mut releases = tokio::spawn(async move {
            if has_turned(fits, stopped.clone()).await { releases.run(stopped).await } else { Ok(()) }
        });
        let (halt, halted) = watch::channel(false);
        let mut applier = tokio::spawn(applier.run(halted));
        // Whichever ends first, the other one ends with it: alone it would do half of the work, and look ready. Nobody
        // listens to what has ended.
        let (applied, watched) = tokio::select! {
            _ = stopped_outside.wait_for(|stopped| *stopped) => {
                let _ = halt.send(true);
                let applied = applier.await;
                let _ = stop_watching.send(true);
                (applied, releases.await)
            }
            applied = &mut applier => {
                let _ = stop_watching.send(true);
                (applied, releases.await)
            }
            watched = &mut releases => {
                let _ = halt.send(true);
                (applier.await, watched)
            }
        };
        let watched = unless_panicked(watched);
        self.readiness.send_replace(Readiness::Stopping);
        // The Lease is given back when nothing is in flight any more.
        drop(give_back);
        unless_panicked(lease.await);
        unless_panicked(applied).map_err(explain)?;
        Ok(watched?)
    }

    /// Which Releases are watched: those whose inventories are applied.
    fn watched(&self) -> Watched {
        let Options { cluster, shard, shard_label, .. } = self.options.clone();
        Watched { resource: self.resource.clone(), cluster, shard, shard_label }
    }

    /// Waits until the API server answers, and knows every field that we write: what it does not know it would refuse.
    /// A projector has no right to watch definitions, so that it looks from time to time.
    async fn wait_for_cluster(&self) -> Result<(), Error> {
        let mut told = String::new();
        while let Some(waits_for) = self.lacks().await? {
            if told != waits_for {
                tracing::warn!("{waits_for}");
                self.readiness.send_replace(Readiness::CatchingUp { waits_for: waits_for.clone() });
                told = waits_for;
            }
            tokio::time::sleep(LOOK).await;
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

fn unless_panicked<T>(joined: Result<T, JoinError>) -> T {
    match joined {
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
            unless_panicked(task.await);
        }
    }
}
