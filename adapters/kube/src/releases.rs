//! The Release watcher: tells the log which Releases there are and which go, and holds each until its inventory is gone.

mod decide;
mod pass;
mod present;

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
use tokio::sync::watch::Receiver;
use tokio::time::Instant;

use self::decide::Seen;
use self::pass::Pass;
use self::present::Present;
use crate::lease::Leadership;
use crate::metrics::Metrics;
use crate::sink::Marks;
use crate::tell::Teller;
use crate::turns::{Pace, Turn, Turns};
use crate::watch::{Unserved, watch};

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
    teller: Teller<L>,
}

/// Of a Release nothing else is asked for, so that its size is no matter.
type Metadata = PartialObjectMeta<DynamicObject>;

/// How many passes run at the same time.
const CONCURRENCY: NonZeroUsize = NonZeroUsize::new(16).expect("it is above zero");

/// How many Releases a list brings at once.
const PAGE_SIZE: u32 = 500;

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
        leadership: Receiver<Leadership>,
        marks: Marks,
        metrics: &Metrics,
    ) -> Self {
        let pace = Pace {
            concurrency: CONCURRENCY,
            spacing: Duration::ZERO,
            complaint: "Release could not be tracked or held",
            failing: metrics.failing("Release"),
        };
        let turns = Turns::new(leadership, pace);
        let shared = Arc::new(Shared {
            teller: Teller::new(handle.clone(), log),
            client,
            handle,
            api_resource: watched.resource.api_resource(),
            watched,
            present: Mutex::default(),
        });
        Self { shared, turns, marks, is_listed: false, compare_at: None }
    }

    /// Watches until `stop` turns true; passes in flight come to their end.
    ///
    /// # Errors
    /// The engine has ended.
    pub async fn run(mut self, stop: Receiver<bool>) -> Result<(), Stopped> {
        let ended = self.watch(stop).await;
        self.turns.finish().await;
        ended
    }

    async fn watch(&mut self, mut stop: Receiver<bool>) -> Result<(), Stopped> {
        let mut watched = pin!(watch(crate::watch::Watched {
            api: Api::<Metadata>::all_with(self.shared.client.clone(), &self.shared.api_resource),
            name: "Releases",
            resource: self.shared.watched.resource.to_string(),
            page_size: PAGE_SIZE,
            unserved: Unserved::Usual,
            meanwhile: "inventories are applied without them",
        }));
        let shared = Arc::clone(&self.shared);
        let pass = |key, term| {
            let pass = Pass { shared: Arc::clone(&shared), key, term };
            async move { pass.run().await }
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
    fn observe(&mut self, event: Event<Metadata>) {
        match event {
            Event::Init => self.shared.present().begin_list(),
            Event::InitApply(release) | Event::Apply(release) => self.see(&release.metadata),
            Event::InitDone => {
                let missing = self.shared.present().missing();
                missing.into_iter().for_each(|(key, uid)| {
                    let was_known = self.shared.present().know_gone(&key, &uid);
                    self.go(&key, &uid, was_known);
                });
                if !std::mem::replace(&mut self.is_listed, true) {
                    self.compare_at = Some(Instant::now() + COMPARE_AFTER);
                }
            }
            Event::Delete(release) => {
                if let (Some(key), Some(uid)) = (self.shared.key_of(&release.metadata), release.uid()) {
                    let version = release.resource_version().unwrap_or_default();
                    let was_known = self.shared.present().see_gone(&key, &uid, &version);
                    self.go(&key, &uid, was_known);
                }
            }
        }
    }

    fn see(&mut self, metadata: &ObjectMeta) {
        let seen = Seen::of(metadata, &self.shared.watched.shard_label);
        if let (Some(key), Some(seen)) = (self.shared.key_of(metadata), seen) {
            self.shared.present().see(&key, seen);
            self.turns.ask(key);
        }
    }

    /// A Release went. Who stands by leaves it to the leader to tell of it.
    fn go(&mut self, key: &ReleaseKey, uid: &str, was_known: bool) {
        if !self.turns.is_leading() {
            self.shared.present().forget(key, uid);
        } else if was_known {
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

    fn present(&self) -> MutexGuard<'_, Present> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends at the moment, or never if there is none.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
