//! The applier: brings a cluster in line with the log, one pass at a time for each release, many releases side by side.

mod cache;
mod pass;
mod requests;

use std::collections::{HashMap, HashSet};
use std::num::NonZeroUsize;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use decklog_engine::log::Log;
use decklog_engine::service::{Handle, Stopped};
use decklog_projections::inventory::Inventories;
use decklog_projections::plan::{OtherLog, Stamp, StampError};
use decklog_schemas::inventory::{GROUP, PLURAL, VERSION};
use decklog_schemas::{ReleaseKey, Sequence};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use kube::Client;
use kube::api::DynamicObject;
use kube::runtime::watcher::Event;
use tokio::sync::watch::{Receiver, Sender, channel};

use self::cache::{Cache, Seen};
use self::pass::Pass;
use crate::lease::Leadership;
use crate::metrics::Metrics;
use crate::object::api_of_all;
use crate::sink::Marks;
use crate::tell::Teller;
use crate::turns::{Pace, Turn, Turns};
use crate::watch::{Unserved, Watched, watch};

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
    turns: Turns<ApplyError>,
    /// Releases that changed in the log.
    marks: Marks,
    /// Stamps of the objects that the first list has shown so far.
    stamped: Vec<(ReleaseKey, Stamp)>,
    /// Whether it is known what is in the cluster.
    is_listed: bool,
    /// Tells others once nothing in the cluster contradicts the log.
    fits: Sender<bool>,
    /// Whether the stamps of the first list fit to the log, while that is found out.
    checking: Option<BoxFuture<'static, Result<(), ApplyError>>>,
    /// Who begins to lead waits for the end of the log: before that, nothing is applied.
    reaching: Option<BoxFuture<'static, Result<(), Stopped>>>,
}

/// What passes share.
pub(crate) struct Shared<L> {
    client: Client,
    handle: Handle<L, Inventories>,
    /// Identity of the log, as stamps have it.
    log: String,
    options: Options,
    cache: Mutex<Cache>,
    teller: Teller<L>,
    metrics: Metrics,
    /// What the cluster will not take, until it changes: a hash of what was wanted.
    refused: Mutex<HashMap<ReleaseKey, u64>>,
    /// What was told to be large.
    large: Mutex<HashSet<ReleaseKey>>,
}

/// How far two passes of a release are apart: a burst of events is a handful of passes.
const SPACING: Duration = Duration::from_millis(200);

/// How many objects a list brings at once: of the largest ones there are, 50 are some 75 MB.
const PAGE_SIZE: u32 = 50;

/// How long is waited before the log is asked again where it ends.
const LOG_LOOK: Duration = Duration::from_secs(1);

// === impl Applier ===

impl<L: Log> Applier<L> {
    /// An applier of what `handle` has folded. Which releases changed comes through `marks`.
    #[must_use]
    pub fn new(
        client: Client,
        handle: Handle<L, Inventories>,
        log: String,
        options: Options,
        leadership: Receiver<Leadership>,
        marks: Marks,
        metrics: Metrics,
    ) -> Self {
        let pace = Pace {
            concurrency: options.concurrency,
            spacing: SPACING,
            complaint: "Inventory could not be applied",
            failing: metrics.failing("ReleaseInventory"),
        };
        let turns = Turns::new(leadership, pace);
        let shared = Arc::new(Shared {
            teller: Teller::new(handle.clone(), log.clone()),
            client,
            handle,
            log,
            cache: Mutex::new(Cache::new(options.shard_label.clone())),
            options,
            metrics,
            refused: Mutex::default(),
            large: Mutex::default(),
        });
        let (fits, _) = channel(false);
        Self { shared, turns, marks, stamped: Vec::new(), is_listed: false, fits, checking: None, reaching: None }
    }

    /// Turns true once the objects of the cluster were looked at, and none is of another log or of more than this one has:
    /// before that nothing may be said in the log either. Ends with the applier.
    pub fn fits(&self) -> Receiver<bool> {
        self.fits.subscribe()
    }

    /// Applies until `stop` turns true; passes in flight come to their end.
    ///
    /// # Errors
    /// The cluster shows that the log is not what it was, or the engine has ended.
    pub async fn run(mut self, stop: Receiver<bool>) -> Result<(), ApplyError> {
        let ended = self.apply(stop).await;
        self.turns.finish().await;
        ended
    }

    async fn apply(&mut self, mut stop: Receiver<bool>) -> Result<(), ApplyError> {
        let mut watched = pin!(watch(Watched {
            api: api_of_all(&self.shared.client),
            name: "Inventories",
            resource: format!("{PLURAL}.{VERSION}.{GROUP}"),
            page_size: PAGE_SIZE,
            unserved: Unserved::Wrong,
            meanwhile: "what others change in them is not seen",
        }));
        let shared = Arc::clone(&self.shared);
        let pass = |key, term| {
            let pass = Pass { shared: Arc::clone(&shared), key, term };
            async move { pass.run().await }
        };
        while !*stop.borrow() {
            let is_open = self.is_listed && self.reaching.is_none();
            tokio::select! {
                biased;
                changed = stop.changed() => if changed.is_err() { break },
                Some(event) = watched.next() => self.observe(event),
                keys = self.marks.take() => self.mark(keys),
                checked = poll(&mut self.checking) => {
                    self.checking = None;
                    checked?;
                    self.is_listed = true;
                    self.fits.send_replace(true);
                    self.ask_for_all().await?;
                }
                reached = poll(&mut self.reaching) => {
                    self.reaching = None;
                    reached?;
                    self.ask_for_all().await?;
                }
                turn = self.turns.next(is_open, pass) => match turn {
                    Turn::Lead => self.lead(),
                    Turn::Failed(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Takes note of what the watch has seen. What we did ourselves is known already.
    fn observe(&mut self, event: Event<DynamicObject>) {
        match event {
            Event::Init => {
                self.stamped.clear();
                self.shared.cache().begin_list();
            }
            Event::InitApply(object) => {
                if !self.is_listed {
                    self.note_stamps(&object);
                }
                self.see(&object);
            }
            Event::InitDone => {
                let gone = self.shared.cache().end_list();
                if self.is_listed {
                    gone.into_iter().for_each(|key| self.turns.ask(key));
                } else {
                    let (shared, stamped) = (Arc::clone(&self.shared), std::mem::take(&mut self.stamped));
                    self.checking = Some(Box::pin(async move { shared.check_stamps(stamped).await }));
                }
            }
            Event::Apply(object) => self.see(&object),
            Event::Delete(object) => {
                if let Some(key) = self.shared.key_of(&object)
                    && self.shared.cache().see_gone(&key, version_of(&object))
                {
                    self.ask(key);
                }
            }
        }
    }

    fn see(&mut self, object: &DynamicObject) {
        let json = || match serde_json::to_vec(object) {
            Ok(json) => json,
            Err(error) => unreachable!("what was JSON can be written as JSON: {error}"),
        };
        if let Some(key) = self.shared.key_of(object)
            && self.shared.cache().see(&key, version_of(object), json) == Seen::New
        {
            self.ask(key);
        }
    }

    /// Takes note of what the stamps of an object say. Those of other shards are for others to judge.
    fn note_stamps(&mut self, object: &DynamicObject) {
        let Options { shard, shard_label, .. } = &self.shared.options;
        let of = object.metadata.labels.as_ref().and_then(|labels| labels.get(shard_label));
        if let (Some(key), Some(annotations)) = (self.shared.key_of(object), &object.metadata.annotations)
            && (shard.is_none() || of == shard.as_ref())
        {
            let stamps = Stamp::of_all(|name| annotations.get(name).map(String::as_str));
            self.stamped.extend(stamps.into_iter().flatten().map(|stamp| (key.clone(), stamp)));
        }
    }

    /// Takes note of releases that changed in the log.
    fn mark(&mut self, keys: HashSet<ReleaseKey>) {
        let ours: Vec<_> = keys.into_iter().filter(|key| *key.cluster == *self.shared.options.cluster).collect();
        self.shared.metrics.marked(ours.len());
        ours.into_iter().for_each(|key| self.ask(key));
    }

    /// Who begins to lead looks at everything, once all is folded that the log has by then: in what was folded before,
    /// a release may still live whose object another projector has deleted.
    fn lead(&mut self) {
        // Another one may have had it taken meanwhile.
        self.shared.refused().clear();
        let shared = Arc::clone(&self.shared);
        self.reaching = Some(Box::pin(async move { shared.reach_end().await }));
    }

    /// Asks for a pass, unless everything will be looked at.
    fn ask(&mut self, key: ReleaseKey) {
        if self.is_listed {
            self.turns.ask(key);
        }
    }

    /// Looks at everything, after which every release is in line with the log again.
    async fn ask_for_all(&mut self) -> Result<(), ApplyError> {
        if !self.is_listed {
            return Ok(());
        }
        let cluster = self.shared.options.cluster.clone();
        let is_ours = move |key: &&ReleaseKey| *key.cluster == *cluster;
        let known =
            move |inventories: &mut Inventories| inventories.keys().filter(is_ours).cloned().collect::<Vec<_>>();
        let known = self.shared.handle.ask(known).await?;
        let present = self.shared.cache().keys();
        known.into_iter().chain(present).for_each(|key| self.turns.ask(key));
        Ok(())
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
    /// that the log was exchanged, lost or put back.
    async fn check_stamps(&self, stamped: Vec<(ReleaseKey, Stamp)>) -> Result<(), ApplyError> {
        let folded = self.handle.ask(|inventories: &mut Inventories| inventories.sequence()).await?;
        let mut furthest: Option<(Sequence, ReleaseKey, StampError)> = None;
        for (release, found) in stamped {
            match found.check(&self.log, folded, self.options.other) {
                Ok(()) => {}
                Err(stamp @ StampError::OtherLog { .. }) => return Err(ApplyError::Stamp { release, stamp }),
                Err(stamp @ StampError::Ahead { .. }) => {
                    if furthest.as_ref().is_none_or(|(sequence, ..)| *sequence < found.sequence) {
                        furthest = Some((found.sequence, release, stamp));
                    }
                }
            }
        }
        match furthest {
            // If the log has this record, it has those before.
            Some((_, release, stamp)) => self.confirm(&release, stamp).await,
            None => Ok(()),
        }
    }

    /// What is ahead of the fold is no fault if the log has it: another projector was quicker.
    async fn confirm(&self, release: &ReleaseKey, stamp: StampError) -> Result<(), ApplyError> {
        if let StampError::Ahead { found, .. } = &stamp
            && !self.handle.look().await.is_ok_and(|(_, tail)| tail < Some(*found))
        {
            return Ok(());
        }
        Err(ApplyError::Stamp { release: release.clone(), stamp })
    }

    /// Waits until everything is folded that the log has now.
    async fn reach_end(&self) -> Result<(), Stopped> {
        let mut is_told = false;
        loop {
            match self.handle.look().await {
                Ok((_, Some(tail))) => return self.handle.reach(tail).await,
                Ok((_, None)) => return Ok(()),
                Err(error) if !is_told => {
                    tracing::warn!(%error, "Leads, and applies nothing before the log says where it ends; trying again");
                    is_told = true;
                }
                Err(_) => {}
            }
            tokio::time::sleep(LOG_LOOK).await;
        }
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refused(&self) -> MutexGuard<'_, HashMap<ReleaseKey, u64>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn version_of(object: &DynamicObject) -> &str {
    object.metadata.resource_version.as_deref().unwrap_or_default()
}

/// Ends when the future does, or never if there is none.
async fn poll<T>(future: &mut Option<BoxFuture<'static, T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
