//! Writing events: what a controller, an observer or a projector says, numbered and in order, with an answer for each.

mod courier;
mod lanes;
mod pending;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use decklog_engine::log::{Appended, ExpectedTail};
use decklog_schemas::data::*;
use decklog_schemas::{Body, DEFAULT_CLUSTER, Draft, EventType, ReleaseKey};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use uuid::Uuid;

use crate::log::JetStreamLog;
use crate::publish::WINDOW as PUBLISHED;
use crate::writer::courier::{Courier, ENDED, State};
use crate::writer::lanes::{Event, Rejected};

pub use lanes::InvalidEvent;
pub use pending::{Pending, Unsettled, WriteError, Written};

/// How many events a writer has taken on and not answered at the most: what is on its way, and as many that wait for
/// another one of their release.
const WINDOW: usize = 2 * PUBLISHED;

/// Says what happened, exactly once and in order: one for each component of a process, cheap to clone, usable from any
/// number of tasks.
///
/// It fills in what the fold builds on: `id`, `source` with an instance of its own, `writerseq`, `time`, `term`, and the
/// trace context. Each event comes back as a [`Pending`] as soon as it is handed over, so that the next one need not wait
/// for the server; handing over waits only where 2,048 events are without an answer.
///
/// ```no_run
/// # use std::{error::Error, sync::Arc};
/// use decklog_nats::{Connection, JetStreamLog, Login, STREAM, Writer};
/// use decklog_schemas::ReleaseKey;
/// use decklog_schemas::data::{AppliedItem, ItemApplied, SyncFinished, SyncOutcome, SyncStarted};
///
/// # async fn main_of_the_controller() -> Result<(), Box<dyn Error>> {
/// // Once in the life of the process, and with each lease that it wins.
/// let connection = Connection::open("nats://127.0.0.1:4222", &Login::default()).await?;
/// let log = Arc::new(JetStreamLog::unchecked(&connection, STREAM));
/// let writer = Writer::new(&log, "controller-manager").with_term(7);
/// # sync(&writer).await }
///
/// # async fn sync(writer: &Writer) -> Result<(), Box<dyn Error>> {
/// // With each sync of a release. What an earlier one left unsettled comes first.
/// let key = ReleaseKey::new("default", "shop", "checkout");
/// let release = writer.release(&key).with_uid("5c1f2b6e-8d1c-4a0e-9a53-2f7d6c1b9e10").with_correlation("sync-4711");
/// let mut pending = release.resend();
/// let render_ref = "render-42";
///
/// let started = SyncStarted { render_ref: render_ref.try_into()?, revision: Some("9f31c0a".into()), items: Some(1) };
/// pending.push(release.sync_started(started).await?);
///
/// // … apply the item to the cluster, and then say so:
/// let item = AppliedItem {
///     group: "apps".into(),
///     version: "v1".into(),
///     kind: "Deployment".try_into()?,
///     namespace: "shop".into(),
///     name: "web".try_into()?,
/// };
/// let uid = Some("0b7c7a52-6b5e-4f0f-8f0c-0d8f6f1f7a11".into());
/// let applied = ItemApplied { item, render_ref: render_ref.try_into()?, wave: 0, uid };
/// pending.push(release.item_applied(applied).await?);
///
/// let outcome = SyncOutcome::Succeeded;
/// let finished = SyncFinished { render_ref: render_ref.try_into()?, outcome, message: None };
/// pending.push(release.sync_finished(finished).await?);
///
/// // The sync is over when the log has all of it, even if the server was away meanwhile.
/// for event in pending {
///     event.insist().await?;
/// }
/// # Ok(()) }
/// ```
///
/// # When nobody knows whether an event is stored
/// A server that is away for half a minute leaves an event [`Unknown`](WriteError::Unknown). Its release is then halted,
/// and only its release: what was handed over behind the event is kept and answered as not sent, and newer events are
/// rejected as [`Blocked`](SendError::Blocked), for once the fold has seen a newer one it takes the older one for a
/// duplicate. There are three ways on:
/// - [`Pending::insist`] sends again until it is known. This is right for almost everybody.
/// - [`Unsettled::resend`], or [`ReleaseWriter::resend`] at the start of the next attempt: the same events, with the same
///   ids, numbers and bytes, in the same order.
/// - [`Unsettled::give_up`] or [`ReleaseWriter::give_up`]: the event may be stored or not.
#[derive(Clone, Debug)]
pub struct Writer {
    inner: Arc<Inner>,
    scope: Scope,
}

/// A writer's events about one release: a method for each type, which waits for room, hands the event over and returns
/// its [`Pending`].
///
/// The methods fail with [`SendError::Invalid`] and [`SendError::Blocked`]. In both cases nothing was sent, and no number
/// was used. If the future of a method is dropped, the event is either handed over whole or not at all.
#[derive(Clone, Debug)]
pub struct ReleaseWriter {
    writer: Writer,
    key: Arc<ReleaseKey>,
    uid: Option<Arc<str>>,
    expected: ExpectedTail,
}

/// The event was not handed over; nothing was sent, and no number was used.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The fold could only ignore it. Sending it again does not help.
    #[error("{event_type} is not sent, for the fold could only ignore it")]
    Invalid {
        /// What the event is.
        event_type: EventType,
        /// What is wrong, and in which field.
        #[source]
        source: InvalidEvent,
    },
    /// Its release is halted until the unsettled event is sent again or given up; then it can be sent as it is.
    #[error("{event_type} is not sent, for an earlier event of the release has to be settled first")]
    Blocked {
        /// What the event is.
        event_type: EventType,
        /// The oldest unsettled event of the release.
        #[source]
        unsettled: Unsettled,
    },
}

/// The attributes that are the same for many events.
#[derive(Clone, Debug, Default)]
struct Scope {
    term: Option<u64>,
    correlation: Option<Arc<str>>,
    traceparent: Option<Arc<str>>,
}

/// What all clones of a writer and all handles of its events share.
struct Inner {
    source: String,
    state: Arc<State>,
    /// To the task: what is to be sent now, at most one event of each release.
    heads: mpsc::UnboundedSender<Arc<Event>>,
    window: Arc<Semaphore>,
    dropped: AtomicU64,
}

// === impl Writer ===

impl Writer {
    /// A new source: `/<component>/<instance>`, the instance a new UUID. It counts from 1, so that a process makes one
    /// writer and clones it, and never one for each task. Has to be called within a Tokio runtime.
    #[must_use]
    pub fn new(log: &Arc<JetStreamLog>, component: &str) -> Self {
        let (writer, heads) = Self::unattended(component);
        let courier = Courier { log: log.clone(), state: writer.inner.state.clone(), heads };
        // It ends by itself when all writers and handles are gone and all that was handed over is answered: to abort it
        // before would lose events.
        tokio::spawn(courier.run());
        writer
    }

    /// A writer whose events nobody fetches yet.
    fn unattended(component: &str) -> (Self, mpsc::UnboundedReceiver<Arc<Event>>) {
        let (heads, queue) = mpsc::unbounded_channel();
        let inner = Inner {
            source: format!("/{component}/{}", Uuid::now_v7()),
            state: Arc::default(),
            heads,
            window: Arc::new(Semaphore::new(WINDOW)),
            dropped: AtomicU64::new(0),
        };
        (Self { inner: Arc::new(inner), scope: Scope::default() }, queue)
    }

    /// The same writer under this term of the lease. Clones made before keep theirs: what a task says that began under an
    /// earlier lease is rightly stale.
    #[must_use]
    pub fn with_term(mut self, term: u64) -> Self {
        self.scope.term = Some(term);
        self
    }

    /// The same writer with this `correlationid`: the sync that its events belong to.
    #[must_use]
    pub fn with_correlation(mut self, id: &str) -> Self {
        self.scope.correlation = Some(id.into());
        self
    }

    /// The same writer with this `traceparent`: W3C trace context, `00-<trace>-<span>-<flags>`.
    #[must_use]
    pub fn with_traceparent(mut self, traceparent: &str) -> Self {
        self.scope.traceparent = Some(traceparent.into());
        self
    }

    /// Its events about a release.
    #[must_use]
    pub fn release(&self, key: &ReleaseKey) -> ReleaseWriter {
        let mut key = key.clone();
        if key.cluster.is_empty() {
            // As every reader of the events takes it.
            key.cluster = DEFAULT_CLUSTER.into();
        }
        ReleaseWriter { writer: self.clone(), key: Arc::new(key), uid: None, expected: ExpectedTail::Any }
    }

    /// A CI pipeline reported a deployment. The event is of no release; its order is kept by region, team and pipeline.
    ///
    /// # Errors
    /// As the methods of [`ReleaseWriter`].
    pub async fn deployment_recorded(&self, data: DeploymentRecorded<'_>) -> Result<Pending, SendError> {
        self.send(None, Body::DeploymentRecorded(data)).await
    }

    /// `source` of its events.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.inner.source
    }

    /// How many handles of its events, or of its clones', were dropped before they told what became of the event.
    #[must_use]
    pub fn dropped_handles(&self) -> u64 {
        self.inner.dropped.load(Ordering::Relaxed)
    }

    async fn send(&self, about: Option<&ReleaseWriter>, body: Body<'_>) -> Result<Pending, SendError> {
        // The window is never closed. With room in it the rest happens without waiting, so that nothing is half done.
        let place = self.inner.window.clone().acquire_owned().await.ok();
        let mut id = Uuid::encode_buffer();
        let draft = Draft {
            id: Uuid::now_v7().hyphenated().encode_lower(&mut id),
            source: &self.inner.source,
            release: about.map(|about| &*about.key),
            time: jiff::Timestamp::now(),
            release_uid: about.and_then(|about| about.uid.as_deref()),
            writer_seq: None,
            term: self.scope.term,
            correlation_id: self.scope.correlation.as_deref(),
            trace_parent: self.scope.traceparent.as_deref(),
            body,
        };
        self.inner.take_on(draft, about.map_or(ExpectedTail::Any, |about| about.expected), place)
    }
}

// === impl ReleaseWriter ===

impl ReleaseWriter {
    /// The same with this `metadata.uid` of the Release: which incarnation the events are about.
    #[must_use]
    pub fn with_uid(mut self, uid: &str) -> Self {
        self.uid = Some(uid.into());
        self
    }

    /// The same with this `correlationid`: the sync that the events belong to.
    #[must_use]
    pub fn with_correlation(mut self, id: &str) -> Self {
        self.writer = self.writer.with_correlation(id);
        self
    }

    /// The same with this `traceparent`: W3C trace context, `00-<trace>-<span>-<flags>`.
    #[must_use]
    pub fn with_traceparent(mut self, traceparent: &str) -> Self {
        self.writer = self.writer.with_traceparent(traceparent);
        self
    }

    /// The same for one event, which is stored only if this is the tail of the release, whoever wrote it; otherwise its
    /// handle says [`WriteError::Conflict`].
    #[must_use]
    pub fn expecting(&self, tail: ExpectedTail) -> Self {
        Self { expected: tail, ..self.clone() }
    }

    /// Sends everything again that is unsettled in this release, whoever handed it over: the same events in their order.
    /// Newer events are taken behind them. Empty if nothing is unsettled.
    #[must_use = "whether the events are stored is known only when these were awaited"]
    pub fn resend(&self) -> Vec<Pending> {
        let events = self.writer.inner.resend(&self.key.tokens());
        events.into_iter().map(|event| Pending::new(self.writer.inner.clone(), event)).collect()
    }

    /// Gives up everything that is unsettled in this release: it may be stored or not, and is not sent again. Returns how
    /// many events that are.
    pub fn give_up(&self) -> usize {
        self.writer.inner.give_up(&self.key.tokens(), None)
    }
}

macro_rules! methods {
    ($($method:ident($($data:ident: $name:ident $(<$a:lifetime>)?)?) $empty:ident $about:literal,)*) => {
        impl ReleaseWriter {
            $(
                #[doc = $about]
                ///
                /// # Errors
                /// It was not handed over: see [`SendError`].
                pub async fn $method(&self $(, $data: $name $(<$a>)?)?) -> Result<Pending, SendError> {
                    self.writer.send(Some(self), Body::$empty(methods!(@data $empty $($data)?))).await
                }
            )*
        }

        // The compiler asks for the method of each type.
        const _: fn(&Body<'_>) = |body| match body {
            $(Body::$empty(_) => {})*
            // It is no event of a release: `Writer::deployment_recorded`.
            Body::DeploymentRecorded(_) => {}
        };
    };
    (@data $empty:ident) => { $empty {} };
    (@data $empty:ident $data:ident) => { $data };
}

methods! {
    release_tracked(data: ReleaseTracked<'_>) ReleaseTracked "The release was first seen, or its shard label changed.",
    release_deleting() ReleaseDeleting "The deletion of the release began.",
    release_deleted() ReleaseDeleted "The controller is done with the release.",
    sync_started(data: SyncStarted<'_>) SyncStarted "A sync to a render began.",
    sync_finished(data: SyncFinished<'_>) SyncFinished "A sync ended.",
    item_applied(data: ItemApplied<'_>) ItemApplied "An item was applied to the cluster.",
    item_apply_failed(data: ItemApplyFailed<'_>) ItemApplyFailed "An item could not be applied.",
    item_pruned(data: ItemPruned<'_>) ItemPruned "An item was removed from the cluster.",
    item_prune_failed(data: ItemPruneFailed<'_>) ItemPruneFailed "An item could not be removed.",
    health_assessed(data: HealthAssessed<'_>) HealthAssessed "The observer assessed an item.",
    hook_started(data: HookStarted<'_>) HookStarted "A hook's workload was created.",
    hook_skipped(data: HookSkipped<'_>) HookSkipped "A hook was not run.",
    hook_removed(data: HookRemoved<'_>) HookRemoved "A hook is no longer part of the release.",
    hook_running(data: HookRunning<'_>) HookRunning "A hook was seen running.",
    hook_finished(data: HookFinished<'_>) HookFinished "A hook ended.",
    inventory_deleted() InventoryDeleted "The ReleaseInventory object is gone from the cluster.",
    projection_refused(data: ProjectionRefused<'_>) ProjectionRefused "The cluster will not take the projection.",
}

// === impl Inner ===

impl Inner {
    fn take_on(
        self: &Arc<Self>,
        draft: Draft<'_>,
        expected: ExpectedTail,
        place: Option<OwnedSemaphorePermit>,
    ) -> Result<Pending, SendError> {
        let event_type = draft.body.event_type();
        let taken_on = self.state.lanes().take_on(draft, expected, place);
        let (event, head) = taken_on.map_err(|rejected| match rejected {
            Rejected::Invalid(source) => SendError::Invalid { event_type, source },
            Rejected::Halted { head, reason } => {
                SendError::Blocked { event_type, unsettled: Unsettled::new(self.clone(), head, reason) }
            }
        })?;
        if let Some(head) = head {
            self.launch(head);
        }
        Ok(Pending::new(self.clone(), event))
    }

    /// Sends everything of a halted lane again, and returns it.
    fn resend(&self, lane: &str) -> Vec<Arc<Event>> {
        let events = self.state.lanes().resend(lane);
        if let Some(head) = events.first() {
            self.launch(head.clone());
        }
        events
    }

    fn give_up(&self, lane: &str, only: Option<&Event>) -> usize {
        self.state.lanes().give_up(lane, only)
    }

    fn launch(&self, head: Arc<Event>) {
        if let Err(mpsc::error::SendError(head)) = self.heads.send(head) {
            self.state.lanes().settle(&head, Appended::Unknown { reason: ENDED.to_owned() });
        }
    }

    /// Whether sending again is in vain.
    fn has_stopped(&self) -> bool {
        self.state.has_stopped()
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("source", &self.source).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use decklog_schemas::{Envelope, Sequence};
    use futures::FutureExt as _;

    use super::*;

    fn key() -> ReleaseKey {
        ReleaseKey::new("default", "shop", "checkout")
    }

    /// Settles the head that is next to be sent.
    fn settle(writer: &Writer, heads: &mut mpsc::UnboundedReceiver<Arc<Event>>, answer: Appended) -> Arc<Event> {
        let event = heads.try_recv().expect("an event is to be sent");
        let next = writer.inner.state.lanes().settle(&event, answer);
        next.into_iter().for_each(|next| writer.inner.launch(next));
        event
    }

    fn unknown() -> Appended {
        Appended::Unknown { reason: "no answer".to_owned() }
    }

    fn stored() -> Appended {
        Appended::Stored { sequence: Sequence::FIRST }
    }

    #[tokio::test]
    async fn a_handle_that_is_dropped_unanswered_is_counted() {
        let (writer, mut heads) = Writer::unattended("controller");
        let release = writer.release(&key());
        let awaited = release.release_deleting().await.expect("it is valid");
        settle(&writer, &mut heads, stored());
        assert_eq!(awaited.await.expect("it is stored").sequence(), Sequence::FIRST);
        assert_eq!(writer.dropped_handles(), 0);
        let mut looked_at = release.release_deleting().await.expect("it is valid");
        assert!((&mut looked_at).now_or_never().is_none());
        settle(&writer, &mut heads, stored());
        drop(looked_at);
        drop(release.release_deleting().await.expect("it is valid"));
        assert_eq!(writer.dropped_handles(), 2);
        // It is stored all the same.
        assert_eq!(settle(&writer, &mut heads, stored()).seq.get(), 3);
    }

    #[tokio::test]
    async fn each_handle_has_its_own_term_and_scope() {
        let (writer, mut heads) = Writer::unattended("controller");
        let earlier = writer.clone().with_term(1);
        let later = earlier.clone().with_term(2).with_traceparent("00-1-2-00");
        for (writer, term) in [(&earlier, Some(1)), (&later, Some(2)), (&writer, None)] {
            let release = writer.release(&key()).with_uid("u").with_correlation("sync");
            let pending = release.inventory_deleted().await.expect("it is valid");
            let event = settle(writer, &mut heads, stored());
            pending.await.expect("it is stored");
            let text = String::from_utf8_lossy(&event.new.bytes);
            assert_eq!(text.contains("00-1-2-00"), term == Some(2), "{text}");
            assert!(text.contains("correlationid") && text.contains(writer.source()), "{text}");
            let envelope = Envelope::decode(&event.new.bytes).expect("it is an event");
            assert_eq!(envelope.validate().expect("it is valid").term, term);
        }
        assert_ne!(writer.source(), Writer::unattended("controller").0.source());
    }

    #[tokio::test]
    async fn errors_name_the_field_and_the_event() {
        let (writer, mut heads) = Writer::unattended("controller");
        let nowhere = writer.release(&ReleaseKey::new("default", "shop", ""));
        let error = nowhere.release_deleted().await.expect_err("the release has no name");
        assert_eq!(error.to_string(), "ReleaseDeleted is not sent, for the fold could only ignore it");
        let source = error.source().map(ToString::to_string);
        assert_eq!(source.as_deref(), Some("/subject: is \"shop/\", and must be \"<namespace>/<release>\""));

        let release = writer.release(&key());
        let pending = release.release_deleting().await.expect("it is valid");
        settle(&writer, &mut heads, unknown());
        let Err(WriteError::Unknown(unsettled)) = pending.await else { panic!("it is unknown") };
        match release.release_deleted().await {
            Err(SendError::Blocked { unsettled: blocking, .. }) => assert_eq!(blocking.id(), unsettled.id()),
            other => panic!("{other:?}"),
        }
        unsettled.give_up();
        assert!(matches!(unsettled.resend().await, Err(WriteError::GivenUp)));
        assert_eq!(release.release_deleted().await.map(|pending| pending.writer_seq().get()).ok(), Some(2));
    }

    #[tokio::test]
    async fn a_release_is_one_whether_it_names_the_default_cluster_or_not() {
        let (writer, mut heads) = Writer::unattended("controller");
        let [named, unnamed] = ["default", ""].map(|cluster| writer.release(&ReleaseKey::new(cluster, "shop", "a")));
        let pending = unnamed.release_deleting().await.expect("it is valid");
        settle(&writer, &mut heads, unknown());
        assert!(matches!(pending.await, Err(WriteError::Unknown(_))));
        assert!(matches!(named.release_deleted().await, Err(SendError::Blocked { .. })));
        assert_eq!((unnamed.give_up(), named.give_up()), (1, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn who_insists_sends_the_same_event_until_it_is_known() {
        let (writer, mut heads) = Writer::unattended("controller");
        let release = writer.release(&key());
        let [first, second] = [(); 2].map(|()| release.release_deleting());
        let (first, second) = (first.await.expect("it is valid"), second.await.expect("it is valid"));
        let answers = async {
            let mut sent = Vec::new();
            for answer in [unknown(), unknown(), stored(), unknown(), stored()] {
                let event = heads.recv().await.expect("the writer is there");
                sent.push(event.seq.get());
                let next = writer.inner.state.lanes().settle(&event, answer);
                next.into_iter().for_each(|next| writer.inner.launch(next));
            }
            sent
        };
        let (second, first, sent) = tokio::join!(second.insist(), first.insist(), answers);
        assert!(first.is_ok() && second.is_ok());
        assert_eq!(sent, [1, 1, 1, 2, 2]);
        assert_eq!(writer.dropped_handles(), 0);
    }

    #[tokio::test]
    async fn nobody_waits_for_a_task_that_is_gone() {
        let (writer, heads) = Writer::unattended("controller");
        let release = writer.release(&key());
        let before = release.release_deleting().await.expect("it is valid");
        drop(heads);
        let other = writer.release(&ReleaseKey::new("default", "shop", "other"));
        let after = other.release_deleting().await.expect("it is valid");
        writer.inner.state.lanes().halt_all(ENDED);
        for pending in [before, after] {
            let Err(WriteError::Unknown(unsettled)) = pending.await else { panic!("it is unknown") };
            assert_eq!(unsettled.reason(), ENDED);
            assert!(matches!(unsettled.resend().await, Err(WriteError::Unknown(_))));
        }
    }
}
