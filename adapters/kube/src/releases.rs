//! The Release watcher: tells the log which Releases there are and which go, and holds each until its inventory is gone.

mod decide;
mod pass;
mod present;
mod source;

use std::collections::HashSet;
use std::fmt;
use std::num::NonZeroUsize;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use decklog_engine::log::Log;
use decklog_engine::service::{Handle, Stopped};
use decklog_projections::inventory::Inventories;
use decklog_schemas::ReleaseKey;
use futures::StreamExt as _;
use kube::api::{Api, ApiResource, DynamicObject, ObjectMeta, PartialObjectMeta};
use kube::runtime::watcher::Event;
use kube::{Client, ResourceExt as _};
use tokio::sync::watch;
use tokio::time::Instant;

use self::decide::Seen;
use self::present::Present;
use crate::lease::Leadership;
use crate::metrics::Metrics;
use crate::sink::Marks;
use crate::tell::Teller;
use crate::turns::{Pace, Turn, Turns};

/// Which Releases are watched.
#[derive(Clone, Debug)]
pub struct Watched {
    /// The resource that they are.
    pub resource: Resource,
    /// Name of the cluster in the events.
    pub cluster: String,
    /// The shard whose Releases are acted on; none for all.
    pub shard: Option<String>,
    /// Key of the shard label.
    pub shard_label: String,
}

/// The resource that is the Release; it is namespaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// API group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Plural of the kind, as in URLs.
    pub plural: String,
}

/// Watches Releases for the engine behind a handle. Who does not lead watches too, and does nothing else.
pub struct Releases<L> {
    shared: Arc<Shared<L>>,
    turns: Turns<Stopped>,
    /// Releases that changed in the log.
    marks: Marks,
    /// Releases that the list under way has shown so far.
    listing: HashSet<ReleaseKey>,
    /// Whether it is known which Releases there are.
    is_listed: bool,
    /// When it is looked whether the log has Releases that the cluster has not.
    compare_at: Option<Instant>,
}

/// What passes share.
struct Shared<L> {
    client: Client,
    handle: Handle<L, Inventories>,
    watched: Watched,
    api_resource: ApiResource,
    present: Mutex<Present>,
    leadership: watch::Receiver<Leadership>,
    teller: Teller<L>,
}

/// Of a Release nothing else is asked for, so that its size is no matter.
type Metadata = PartialObjectMeta<DynamicObject>;

/// How many passes run at the same time.
const CONCURRENCY: NonZeroUsize = NonZeroUsize::new(16).expect("it is above zero");

/// How long the watch may lag behind the log before what only the log has is told of.
const COMPARE_AFTER: Duration = Duration::from_secs(5);

/// How many of many Releases are named.
const NAMED: usize = 5;

// === impl Resource ===

impl Resource {
    fn api_resource(&self) -> ApiResource {
        ApiResource {
            group: self.group.clone(),
            version: self.version.clone(),
            api_version: format!("{}/{}", self.group, self.version),
            kind: self.kind.clone(),
            plural: self.plural.clone(),
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.plural, self.version, self.group)
    }
}

// === impl Releases ===

impl<L: Log> Releases<L> {
    /// A watcher of Releases for what `handle` folds, the log having the identity `log`. Which releases changed in the
    /// log comes through `marks`.
    #[must_use]
    pub fn new(
        client: Client,
        handle: Handle<L, Inventories>,
        log: String,
        watched: Watched,
        leadership: watch::Receiver<Leadership>,
        marks: Marks,
        metrics: &Metrics,
    ) -> Self {
        let pace = Pace {
            concurrency: CONCURRENCY,
            spacing: Duration::ZERO,
            complaint: "Release could not be tracked or held",
            failing: metrics.failing("Release"),
        };
        let turns = Turns::new(leadership.clone(), pace);
        let shared = Arc::new(Shared {
            teller: Teller::new(handle.clone(), log),
            client,
            handle,
            api_resource: watched.resource.api_resource(),
            watched,
            present: Mutex::default(),
            leadership,
        });
        Self { shared, turns, marks, listing: HashSet::new(), is_listed: false, compare_at: None }
    }

    /// Watches until `stop` turns true; passes in flight come to their end.
    ///
    /// # Errors
    /// The engine has ended.
    pub async fn run(mut self, stop: watch::Receiver<bool>) -> Result<(), Stopped> {
        let ended = self.watch(stop).await;
        self.turns.finish().await;
        ended
    }

    async fn watch(&mut self, mut stop: watch::Receiver<bool>) -> Result<(), Stopped> {
        let api = Api::all_with(self.shared.client.clone(), &self.shared.api_resource);
        let mut watched = pin!(source::watch(api, self.shared.watched.resource.clone()));
        let shared = Arc::clone(&self.shared);
        let pass = |key| {
            let shared = Arc::clone(&shared);
            async move { shared.pass(&key).await }
        };
        while !*stop.borrow() {
            let compare_at = self.compare_at;
            tokio::select! {
                biased;
                changed = stop.changed() => if changed.is_err() { break },
                Some(event) = watched.next() => self.observe(event),
                keys = self.marks.take() => self.mark(keys),
                () = until(compare_at) => self.compare().await?,
                turn = self.turns.next(true, pass) => match turn {
                    Turn::Lead => self.lead(),
                    Turn::Failed(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Takes note of releases that changed in the log.
    fn mark(&mut self, mut keys: HashSet<ReleaseKey>) {
        {
            let present = self.shared.present();
            keys.retain(|key| present.holds(key));
        }
        keys.into_iter().for_each(|key| self.turns.ask(key));
    }

    /// Takes note of what the watch has seen.
    fn observe(&mut self, event: source::Seen) {
        match event {
            Event::Init => self.listing.clear(),
            Event::InitApply(release) => {
                if let Some(key) = self.shared.key_of(&release.metadata) {
                    self.listing.insert(key);
                }
                self.see(&release.metadata);
            }
            Event::InitDone => {
                let gone = self.shared.present().missing(&std::mem::take(&mut self.listing));
                gone.into_iter().for_each(|(key, uid)| self.go(&key, &uid));
                if !std::mem::replace(&mut self.is_listed, true) {
                    self.compare_at = Some(Instant::now() + COMPARE_AFTER);
                }
            }
            Event::Apply(release) => self.see(&release.metadata),
            Event::Delete(release) => {
                if let (Some(key), Some(uid)) = (self.shared.key_of(&release.metadata), release.uid()) {
                    self.go(&key, &uid);
                }
            }
        }
    }

    fn see(&mut self, metadata: &ObjectMeta) {
        let seen = Seen::of(metadata, &self.shared.watched.shard_label);
        if let (Some(key), Some(seen)) = (self.shared.key_of(metadata), seen) {
            self.shared.present().put(&key, seen);
            self.turns.ask(key);
        }
    }

    /// A Release went. Who stands by leaves it to the leader to tell of it.
    fn go(&mut self, key: &ReleaseKey, uid: &str) {
        if !self.turns.is_leading() {
            self.shared.present().forget(key, uid);
        } else if self.shared.present().go(key, uid) {
            self.turns.ask(key.clone());
        }
    }

    /// Who begins to lead looks at everything.
    fn lead(&mut self) {
        let keys = self.shared.present().keys();
        keys.into_iter().for_each(|key| self.turns.ask(key));
        self.compare_at = Some(Instant::now() + COMPARE_AFTER);
    }

    /// Tells of releases that are live in the log although the cluster has no Release of theirs: they went while nobody
    /// watched.
    async fn compare(&mut self) -> Result<(), Stopped> {
        self.compare_at = None;
        if !self.turns.is_leading() || !self.is_listed {
            return Ok(());
        }
        let Watched { cluster, shard, .. } = self.shared.watched.clone();
        let live = move |inventories: &mut Inventories| {
            let is_ours = |key: &ReleaseKey, of: Option<&str>| {
                *key.cluster == *cluster && (shard.is_none() || of == shard.as_deref())
            };
            let ours = inventories.incarnations().filter(|(key, _, of)| is_ours(key, *of));
            ours.map(|(key, ..)| key.clone()).collect::<Vec<_>>()
        };
        let mut missing = self.shared.handle.ask(live).await?;
        missing.retain(|key| !self.shared.present().holds(key));
        if !missing.is_empty() {
            let some: Vec<_> = missing.iter().take(NAMED).map(ToString::to_string).collect();
            tracing::warn!(
                count = missing.len(),
                releases = some.join(" "),
                "Releases are live in the log and are not in the cluster: their inventories stay until the log has their ReleaseDeleted"
            );
        }
        Ok(())
    }
}

// === impl Shared ===

impl<L: Log> Shared<L> {
    /// The release that a Release is.
    fn key_of(&self, metadata: &ObjectMeta) -> Option<ReleaseKey> {
        let (namespace, name) = (metadata.namespace.as_deref()?, metadata.name.as_deref()?);
        Some(ReleaseKey::new(&self.watched.cluster, namespace, name))
    }

    fn api(&self, namespace: &str) -> Api<Metadata> {
        Api::namespaced_with(self.client.clone(), namespace, &self.api_resource)
    }

    fn present(&self) -> MutexGuard<'_, Present> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn may_write(&self) -> bool {
        self.leadership.borrow().may_write(Instant::now())
    }
}

/// Ends at the moment, or never if there is none.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
