//! The applier: brings a cluster in line with the log, one pass at a time for each release, many releases side by side.

mod cache;
mod pass;
mod requests;

use std::collections::{HashMap, HashSet};
use std::num::NonZeroUsize;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use decklog_engine::log::{Log, Scope, Wait};
use decklog_engine::service::{Handle, Stopped};
use decklog_projections::inventory::Inventories;
use decklog_projections::plan::{OtherLog, StampError};
use decklog_schemas::ReleaseKey;
use futures::StreamExt as _;
use futures::channel::mpsc as requests_channel;
use kube::Client;
use kube::api::DynamicObject;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::scheduler::{ScheduleRequest, Scheduler, scheduler};
use kube::runtime::watcher::{self, Event};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use self::cache::{Cache, Seen};
use self::pass::End;
use crate::lease::Leadership;
use crate::metrics::Metrics;
use crate::object::api_of_all;
use crate::tell::Teller;

/// What is applied, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the cluster in the events.
    pub cluster: String,
    /// The shard whose releases are applied; none for all.
    pub shard: Option<String>,
    /// Key of the shard label.
    pub shard_label: String,
    /// What becomes of objects that were made from another log.
    pub other: OtherLog,
    /// How many passes run at the same time.
    pub concurrency: NonZeroUsize,
}

/// The applier cannot go on, and has changed nothing that it should not.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// An object says that this log is another one, or has lost what it had.
    #[error("the inventory of {release} in the cluster does not fit to the log: {stamp}")]
    Stamp {
        /// Whose object.
        release: ReleaseKey,
        /// What it says.
        stamp: StampError,
    },
    /// The engine has ended.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Applies what the engine behind a handle has folded.
pub struct Applier<L> {
    shared: Arc<Shared<L>>,
    leadership: watch::Receiver<Leadership>,
    /// Releases that changed in the log.
    changed: mpsc::UnboundedReceiver<Vec<ReleaseKey>>,
    schedule: requests_channel::UnboundedSender<ScheduleRequest<ReleaseKey>>,
    incoming: Option<requests_channel::UnboundedReceiver<ScheduleRequest<ReleaseKey>>>,
    running: HashMap<ReleaseKey, Redo>,
    /// When the next pass of a release may begin, where that is not at once.
    not_before: HashMap<ReleaseKey, Instant>,
    troubles: HashMap<ReleaseKey, Attempts>,
    /// Objects that the list under way has shown so far.
    listing: Option<HashSet<ReleaseKey>>,
    /// Whether it is known what is in the cluster.
    is_listed: bool,
    /// Tells others once nothing in the cluster contradicts the log.
    fits: watch::Sender<bool>,
    /// Whether all was looked at since we lead, and nothing was dropped for we did not.
    led: bool,
}

/// What went wrong with a release, and how often so far.
#[derive(Debug, Default)]
struct Attempts {
    failed: u32,
    why: String,
}

/// Whether a release changed while its pass was running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Redo {
    No,
    Yes,
}

type Schedule = Scheduler<ReleaseKey, requests_channel::UnboundedReceiver<ScheduleRequest<ReleaseKey>>>;

/// What passes share.
pub(crate) struct Shared<L> {
    client: Client,
    handle: Handle<L, Inventories>,
    /// Identity of the log, as stamps have it.
    log: String,
    options: Options,
    cache: Mutex<Cache>,
    leadership: watch::Receiver<Leadership>,
    teller: Teller<L>,
    metrics: Metrics,
    /// What the cluster will not take, until it changes: a hash of what was wanted.
    refused: Mutex<HashMap<ReleaseKey, u64>>,
    /// What was told to be large.
    large: Mutex<HashSet<ReleaseKey>>,
}

/// How far two passes of a release are apart: a burst of events is a handful of passes.
const SPACING: Duration = Duration::from_millis(200);

/// The first and the longest pause after an attempt that failed.
const SHORTEST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How long passes in flight are waited for at the end.
const GRACE: Duration = Duration::from_secs(10);

/// How many releases that were told to wait are remembered before those whose time has come are forgotten.
const PRUNE_AT: usize = 1_024;

// === impl Applier ===

impl<L: Log> Applier<L> {
    /// An applier of what `handle` has folded. Which releases changed comes through `changed`.
    #[must_use]
    pub fn new(
        client: Client,
        handle: Handle<L, Inventories>,
        log: String,
        options: Options,
        leadership: watch::Receiver<Leadership>,
        changed: mpsc::UnboundedReceiver<Vec<ReleaseKey>>,
        metrics: Metrics,
    ) -> Self {
        let (schedule, incoming) = requests_channel::unbounded();
        let shared = Arc::new(Shared {
            teller: Teller::new(Arc::clone(handle.log()), log.clone()),
            client,
            handle,
            log,
            cache: Mutex::new(Cache::new(options.shard_label.clone())),
            options,
            leadership: leadership.clone(),
            metrics,
            refused: Mutex::default(),
            large: Mutex::default(),
        });
        Self {
            shared,
            leadership,
            changed,
            schedule,
            incoming: Some(incoming),
            running: HashMap::new(),
            not_before: HashMap::new(),
            troubles: HashMap::new(),
            listing: None,
            is_listed: false,
            fits: watch::Sender::new(false),
            led: false,
        }
    }

    /// Turns true once the objects of the cluster were looked at, and none is of another log or of more than this one has:
    /// before that nothing may be said in the log either. Ends with the applier.
    pub fn fits(&self) -> watch::Receiver<bool> {
        self.fits.subscribe()
    }

    /// Applies until `stop` turns true; passes in flight come to their end.
    ///
    /// # Errors
    /// The cluster shows that the log is not what it was, or the engine has ended.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) -> Result<(), ApplyError> {
        let watched = watcher::watcher(api_of_all(&self.shared.client), watcher::Config::default());
        let mut watched = pin!(watched.default_backoff());
        let Some(incoming) = self.incoming.take() else { return Ok(()) };
        let mut due = pin!(scheduler(incoming));
        let mut passes = JoinSet::new();
        while !*stop.borrow() {
            let has_room = self.is_listed && self.running.len() < self.shared.options.concurrency.get();
            let running = &self.running;
            tokio::select! {
                biased;
                changed = stop.changed() => if changed.is_err() { break },
                Some(ended) = passes.join_next() => self.end(ended)?,
                Some(event) = watched.next() => self.observe(event).await?,
                Some(keys) = self.changed.recv() => self.mark(keys),
                Ok(()) = self.leadership.changed() => self.lead().await?,
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

    /// Takes note of what the watch has seen. What we did ourselves is known already.
    async fn observe(&mut self, event: watcher::Result<Event<DynamicObject>>) -> Result<(), ApplyError> {
        match event {
            Err(error) => tracing::warn!(%error, "Inventories in the cluster cannot be watched; trying again"),
            Ok(Event::Init) => self.listing = Some(HashSet::new()),
            Ok(Event::InitApply(object)) => {
                if let (Some(listing), Some(key)) = (&mut self.listing, self.shared.key_of(&object)) {
                    listing.insert(key);
                }
                self.see(object);
            }
            Ok(Event::InitDone) => {
                let listed = self.listing.take().unwrap_or_default();
                let gone = self.shared.cache().retain(&listed);
                gone.into_iter().for_each(|key| self.schedule(key));
                if !self.is_listed {
                    self.shared.check_stamps().await?;
                    self.is_listed = true;
                    self.fits.send_replace(true);
                    self.schedule_all().await?;
                }
            }
            Ok(Event::Apply(object)) => self.see(object),
            Ok(Event::Delete(object)) => {
                if let Some(key) = self.shared.key_of(&object)
                    && self.shared.cache().remove(&key, object.metadata.resource_version.as_deref())
                {
                    self.schedule(key);
                }
            }
        }
        Ok(())
    }

    fn see(&mut self, object: DynamicObject) {
        if let Some(key) = self.shared.key_of(&object)
            && self.shared.cache().put(&key, &object) == Seen::New
        {
            self.schedule(key);
        }
    }

    /// Takes note of releases that changed in the log.
    fn mark(&mut self, keys: Vec<ReleaseKey>) {
        let ours: Vec<_> = keys.into_iter().filter(|key| *key.cluster == *self.shared.options.cluster).collect();
        self.shared.metrics.marked(ours.len());
        ours.into_iter().for_each(|key| self.schedule(key));
    }

    /// Who begins to lead looks at everything. Each renewal of the Lease is told too.
    async fn lead(&mut self) -> Result<(), ApplyError> {
        let leads = self.is_leading();
        let led = std::mem::replace(&mut self.led, leads);
        if !leads || led {
            return Ok(());
        }
        // Another one may have had it taken meanwhile.
        self.shared.refused().clear();
        self.schedule_all().await
    }

    /// Looks at everything, after which every release is in line with the log again.
    async fn schedule_all(&mut self) -> Result<(), ApplyError> {
        if !self.is_leading() || !self.is_listed {
            return Ok(());
        }
        let cluster = self.shared.options.cluster.clone();
        let is_ours = move |key: &&ReleaseKey| *key.cluster == *cluster;
        let ask = move |inventories: &mut Inventories| inventories.keys().filter(is_ours).cloned().collect::<Vec<_>>();
        let known = self.shared.handle.ask(ask).await?;
        let present = self.shared.cache().keys();
        known.into_iter().chain(present).for_each(|key| self.schedule(key));
        Ok(())
    }

    /// Asks for a pass, which runs when the last one is far enough away. Who stands by will look at everything when it
    /// leads.
    fn schedule(&mut self, key: ReleaseKey) {
        if !self.is_leading() {
            self.led = false;
            return;
        }
        // Once it is known what is there, everything is looked at.
        if !self.is_listed {
            return;
        }
        if let Some(redo) = self.running.get_mut(&key) {
            *redo = Redo::Yes;
            return;
        }
        let now = Instant::now();
        let run_at = self.not_before.get(&key).map_or(now, |moment| now.max(*moment));
        // The receiver is our own.
        let _ = self.schedule.unbounded_send(ScheduleRequest { message: key, run_at });
    }

    /// A pass has come to its end.
    fn end(&mut self, ended: Result<(ReleaseKey, Result<End, ApplyError>), JoinError>) -> Result<(), ApplyError> {
        let (key, end) = match ended {
            Ok(ended) => ended,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        let redo = self.running.remove(&key).unwrap_or(Redo::No);
        let now = Instant::now();
        let (pause, redo) = match end? {
            End::Settled => {
                self.troubles.remove(&key);
                (SPACING, redo)
            }
            End::Standby => {
                self.led = false;
                return Ok(());
            }
            End::Again { why, pause: bounds } => {
                let attempts = self.troubles.entry(key.clone()).or_default();
                let pause = pause_after(attempts.failed).min(*bounds.end()).max(*bounds.start());
                attempts.failed += 1;
                // What lasts is told once.
                if attempts.why != why {
                    tracing::warn!(release = %key, %why, "Inventory could not be applied; trying again until it can");
                    attempts.why = why;
                }
                (pause, Redo::Yes)
            }
        };
        self.not_before.insert(key.clone(), now + pause);
        if redo == Redo::Yes {
            self.schedule(key);
        }
        self.prune(now);
        Ok(())
    }

    /// Forgets pauses that are over.
    fn prune(&mut self, now: Instant) {
        if self.not_before.len() >= PRUNE_AT {
            self.not_before.retain(|_, moment| *moment > now);
        }
    }

    fn is_leading(&self) -> bool {
        self.leadership.borrow().may_write(Instant::now())
    }
}

// === impl Shared ===

impl<L: Log> Shared<L> {
    /// The release that an object is of.
    fn key_of(&self, object: &DynamicObject) -> Option<ReleaseKey> {
        let (namespace, name) = (object.metadata.namespace.as_deref()?, object.metadata.name.as_deref()?);
        Some(ReleaseKey::new(&self.options.cluster, namespace, name))
    }

    /// Before anything is applied: objects that were made from another log, or from more of this one than it has, mean
    /// that the log was exchanged, lost or put back. Those of other shards are for others to judge.
    async fn check_stamps(&self) -> Result<(), ApplyError> {
        let stamped = self.cache().stamped();
        for (release, observed) in stamped {
            if self.options.shard.as_deref().is_some_and(|shard| observed.shard() != Some(shard)) {
                continue;
            }
            for stamp in observed.stamps() {
                let folded = self.handle.ask(|inventories: &mut Inventories| inventories.sequence()).await?;
                if let Err(error) = stamp.check(&self.log, folded, self.options.other) {
                    self.confirm(&release, error).await?;
                }
            }
        }
        Ok(())
    }

    /// What is ahead of the fold is no fault if the log has it: another projector was quicker.
    async fn confirm(&self, release: &ReleaseKey, stamp: StampError) -> Result<(), ApplyError> {
        if let StampError::Ahead { found, .. } = &stamp {
            let read = self.handle.log().read(found.next(), &Scope::All, Wait::No).await;
            if !read.is_ok_and(|batch| batch.tail < Some(*found)) {
                return Ok(());
            }
        }
        Err(ApplyError::Stamp { release: release.clone(), stamp })
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refused(&self) -> MutexGuard<'_, HashMap<ReleaseKey, u64>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn may_write(&self) -> bool {
        self.leadership.borrow().may_write(Instant::now())
    }
}

/// The next release whose time has come and that has no pass running.
async fn next(due: Pin<&mut Schedule>, running: &HashMap<ReleaseKey, Redo>) -> Option<ReleaseKey> {
    due.hold_unless(|key| !running.contains_key(key)).next().await
}

/// Longer after each attempt, and never the same for many that failed together.
fn pause_after(attempts: u32) -> Duration {
    let pause = (SHORTEST_PAUSE * 2_u32.saturating_pow(attempts.min(16))).min(LONGEST_PAUSE);
    let part = u32::from(uuid::Uuid::now_v7().as_bytes()[15]);
    pause / 2 + pause * part / 512
}
