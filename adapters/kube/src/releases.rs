//! The Release watcher: tells the log which Releases there are and which go, and holds each until its inventory is gone.

mod decide;
mod pass;
mod present;
mod source;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use decklog_engine::log::Log;
use decklog_engine::service::{Handle, Stopped};
use decklog_projections::inventory::Inventories;
use decklog_schemas::ReleaseKey;
use futures::StreamExt as _;
use futures::channel::mpsc as requests_channel;
use kube::api::{Api, ApiResource, DynamicObject, ObjectMeta, PartialObjectMeta};
use kube::runtime::scheduler::{ScheduleRequest, Scheduler, scheduler};
use kube::runtime::watcher::{DefaultBackoff, Event};
use kube::{Client, ResourceExt as _};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use self::decide::Seen;
use self::pass::End;
use self::present::Present;
use crate::lease::Leadership;
use crate::tell::Teller;

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
    leadership: watch::Receiver<Leadership>,
    /// Releases that changed in the log.
    changed: mpsc::UnboundedReceiver<Vec<ReleaseKey>>,
    /// Who is told of them besides.
    next: mpsc::UnboundedSender<Vec<ReleaseKey>>,
    schedule: requests_channel::UnboundedSender<ScheduleRequest<ReleaseKey>>,
    incoming: Option<requests_channel::UnboundedReceiver<ScheduleRequest<ReleaseKey>>>,
    running: HashMap<ReleaseKey, Redo>,
    failing: HashMap<ReleaseKey, Failing>,
    /// What was said of what fails, as long as anything does.
    told: HashSet<String>,
    /// Releases that the list under way has shown so far.
    listing: HashSet<ReleaseKey>,
    /// Whether it is known which Releases there are.
    is_listed: bool,
    /// Whether we led when the Lease last changed.
    led: bool,
    /// When it is looked whether the log has Releases that the cluster has not.
    compare_at: Option<Instant>,
}

/// Whether a Release changed while its pass was running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Redo {
    No,
    Yes,
}

/// What becomes of a Release whose last pass did not come to its end.
struct Failing {
    backoff: DefaultBackoff,
    not_before: Instant,
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

type Schedule = Scheduler<ReleaseKey, requests_channel::UnboundedReceiver<ScheduleRequest<ReleaseKey>>>;
type Ended = (ReleaseKey, Result<End, Stopped>);

/// How many passes run at the same time.
const CONCURRENCY: usize = 16;

/// How long passes in flight are waited for at the end.
const GRACE: Duration = Duration::from_secs(10);

/// How long the watch may lag behind the log before what only the log has is told of.
const COMPARE_AFTER: Duration = Duration::from_secs(5);

/// How many of many Releases are named.
const NAMED: usize = 5;

/// The longest pause after an attempt that failed.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How many complaints are remembered.
const TOLD: usize = 1_024;

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
    /// log comes through `changed`, and is passed on to the receiver that is returned.
    #[must_use]
    pub fn new(
        client: Client,
        handle: Handle<L, Inventories>,
        log: String,
        watched: Watched,
        leadership: watch::Receiver<Leadership>,
        changed: mpsc::UnboundedReceiver<Vec<ReleaseKey>>,
    ) -> (Self, mpsc::UnboundedReceiver<Vec<ReleaseKey>>) {
        let (next, passed_on) = mpsc::unbounded_channel();
        let (schedule, incoming) = requests_channel::unbounded();
        let shared = Arc::new(Shared {
            teller: Teller::new(Arc::clone(handle.log()), log),
            client,
            handle,
            api_resource: watched.resource.api_resource(),
            watched,
            present: Mutex::default(),
            leadership: leadership.clone(),
        });
        let releases = Self {
            shared,
            leadership,
            changed,
            next,
            schedule,
            incoming: Some(incoming),
            running: HashMap::new(),
            failing: HashMap::new(),
            told: HashSet::new(),
            listing: HashSet::new(),
            is_listed: false,
            led: false,
            compare_at: None,
        };
        (releases, passed_on)
    }

    /// Watches until `stop` turns true; passes in flight come to their end.
    ///
    /// # Errors
    /// The engine has ended.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) -> Result<(), Stopped> {
        let api = Api::all_with(self.shared.client.clone(), &self.shared.api_resource);
        let mut watched = pin!(source::watch(api, self.shared.watched.resource.clone()));
        let Some(incoming) = self.incoming.take() else { return Ok(()) };
        let mut due = pin!(scheduler(incoming));
        let mut passes = JoinSet::new();
        while !*stop.borrow() {
            let has_room = self.running.len() < CONCURRENCY;
            let (running, compare_at) = (&self.running, self.compare_at);
            tokio::select! {
                biased;
                changed = stop.changed() => if changed.is_err() { break },
                Some(keys) = self.changed.recv() => self.mark(keys),
                Some(ended) = passes.join_next() => self.end(ended)?,
                Some(event) = watched.next() => self.observe(event),
                Ok(()) = self.leadership.changed() => self.lead(),
                () = until(compare_at) => self.compare().await?,
                Some(key) = next(due.as_mut(), running), if has_room => {
                    self.running.insert(key.clone(), Redo::No);
                    let shared = Arc::clone(&self.shared);
                    passes.spawn(async move {
                        let end = shared.pass(&key).await;
                        (key, end)
                    });
                }
            }
        }
        // What is in flight is carried out, so that nobody has to find out whether it was.
        let _ = tokio::time::timeout(GRACE, async { while passes.join_next().await.is_some() {} }).await;
        Ok(())
    }

    /// Takes note of releases that changed in the log.
    fn mark(&mut self, keys: Vec<ReleaseKey>) {
        let known: Vec<_> = {
            let present = self.shared.present();
            keys.iter().filter(|key| present.holds(key)).cloned().collect()
        };
        // Who is told besides may have ended.
        let _ = self.next.send(keys);
        known.into_iter().for_each(|key| self.schedule(key));
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
            self.schedule(key);
        }
    }

    /// A Release went. Who stands by leaves it to the leader to tell of it.
    fn go(&mut self, key: &ReleaseKey, uid: &str) {
        if !self.is_leading() {
            self.shared.present().forget(key, uid);
        } else if self.shared.present().go(key, uid) {
            self.schedule(key.clone());
        }
    }

    /// Who begins to lead looks at everything. Each renewal of the Lease is told too.
    fn lead(&mut self) {
        let leads = self.is_leading();
        if leads && !std::mem::replace(&mut self.led, leads) {
            let keys = self.shared.present().keys();
            keys.into_iter().for_each(|key| self.schedule(key));
            self.compare_at = Some(Instant::now() + COMPARE_AFTER);
        }
        self.led = leads;
    }

    /// Tells of releases that are live in the log although the cluster has no Release of theirs: they went while nobody
    /// watched.
    async fn compare(&mut self) -> Result<(), Stopped> {
        self.compare_at = None;
        if !self.is_leading() || !self.is_listed {
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

    /// Asks for a pass. Who stands by will look at everything when it leads.
    fn schedule(&mut self, key: ReleaseKey) {
        if !self.is_leading() {
            // What is dropped here is looked at when the Lease is seen to be ours again.
            self.led = false;
            return;
        }
        if let Some(redo) = self.running.get_mut(&key) {
            *redo = Redo::Yes;
            return;
        }
        let now = Instant::now();
        let run_at = self.failing.get(&key).map_or(now, |failing| now.max(failing.not_before));
        // The receiver is our own.
        let _ = self.schedule.unbounded_send(ScheduleRequest { message: key, run_at });
    }

    /// A pass has come to its end.
    fn end(&mut self, ended: Result<Ended, JoinError>) -> Result<(), Stopped> {
        let (key, end) = match ended {
            Ok(ended) => ended,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        let mut redo = self.running.remove(&key).unwrap_or(Redo::No);
        match end? {
            End::Settled => {
                self.failing.remove(&key);
                if self.failing.is_empty() {
                    self.told.clear();
                }
            }
            End::Standby => {
                self.led = false;
                self.failing.remove(&key);
            }
            End::Again { why, subject, at_least } => {
                self.fail(&key, &why, subject, at_least);
                redo = Redo::Yes;
            }
        }
        if redo == Redo::Yes {
            self.schedule(key);
        }
        Ok(())
    }

    /// Says why something has to be tried again, once, and when.
    fn fail(&mut self, key: &ReleaseKey, why: &str, subject: String, at_least: Duration) {
        let now = Instant::now();
        let new = || Failing { backoff: DefaultBackoff::default(), not_before: now };
        let failing = self.failing.entry(key.clone()).or_insert_with(new);
        let pause = failing.backoff.next().unwrap_or(LONGEST_PAUSE).max(at_least);
        failing.not_before = now + pause;
        if self.told.len() >= TOLD {
            self.told.clear();
        }
        if self.told.insert(subject) {
            tracing::warn!(release = %key, %why, retry_in = ?pause, "Release could not be tracked or held");
        } else {
            tracing::debug!(release = %key, %why, retry_in = ?pause, "Release could not be tracked or held");
        }
    }

    fn is_leading(&self) -> bool {
        self.shared.may_write()
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

/// The next release whose time has come and that has no pass running.
async fn next(due: Pin<&mut Schedule>, running: &HashMap<ReleaseKey, Redo>) -> Option<ReleaseKey> {
    due.hold_unless(|key| !running.contains_key(key)).next().await
}

/// Ends at the moment, or never if there is none.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
