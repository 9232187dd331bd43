//! Turns: of many releases, which one has its pass now. Each has one at a time, none too soon after the last, later after
//! each failure, and none at all while another projector leads.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use decklog_schemas::ReleaseKey;
use futures::StreamExt as _;
use futures::channel::mpsc;
use kube::runtime::scheduler::{ScheduleRequest, Scheduler, scheduler};
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::answer::Trouble;
use crate::lease::{Leadership, Term};

/// Passes over releases, as they come and go. A pass returns what cannot be tried again, or how it ended.
pub(crate) struct Turns<E> {
    leadership: watch::Receiver<Leadership>,
    pace: Pace,
    /// The term for which everything was asked for, and nothing dropped since because we did not lead.
    complete: Option<u64>,
    schedule: mpsc::UnboundedSender<ScheduleRequest<ReleaseKey>>,
    due: Pin<Box<Due>>,
    running: HashMap<ReleaseKey, Redo>,
    passes: JoinSet<(ReleaseKey, Result<End, E>)>,
    /// When the next pass of a release may begin, where that is not at once.
    rests_until: HashMap<ReleaseKey, Instant>,
    failing: HashMap<ReleaseKey, Failing>,
    /// What was said of what fails: for each subject, how many releases fail for it.
    told: HashMap<String, usize>,
}

/// How many passes there are, and what is said of those that fail.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    /// How many run at the same time.
    pub(crate) concurrency: NonZeroUsize,
    /// How far two passes of a release are apart, so that a burst of events is a handful of passes.
    pub(crate) spacing: Duration,
    /// What has not come about when a pass fails, such as `Inventory could not be applied`.
    pub(crate) complaint: &'static str,
    /// How many releases fail, as of now.
    pub(crate) failing: Gauge,
}

/// What has come.
#[derive(Debug)]
pub(crate) enum Turn<E> {
    /// We begin to lead, or something was dropped while we did not: everything has to be asked for.
    Lead,
    /// A pass has failed, and nothing can be tried again.
    Failed(E),
}

/// How a pass ended.
#[derive(Debug)]
pub(crate) enum End {
    /// There is nothing to be done before something changes.
    Settled,
    /// The term is over in which it began.
    Standby,
    /// It has to be tried again.
    Again(Again),
}

/// Why a pass has to be tried again, and when.
#[derive(Debug)]
pub(crate) struct Again {
    why: String,
    /// What it is about: of many releases that fail for the same reason, the first is told of.
    subject: String,
    /// How long to wait at least, and at the most.
    pause: RangeInclusive<Duration>,
}

/// Whether a release changed while its pass was running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Redo {
    No,
    Yes,
}

/// What becomes of a release whose last pass did not come to its end.
struct Failing {
    backoff: ExponentialBackoff,
    not_before: Instant,
    subject: String,
}

type Due = Scheduler<ReleaseKey, mpsc::UnboundedReceiver<ScheduleRequest<ReleaseKey>>>;

/// The first and the longest pause after an attempt that failed.
const SHORTEST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What is waited after an attempt, if nothing speaks for less or for more.
const ANY_PAUSE: RangeInclusive<Duration> = Duration::ZERO..=LONGEST_PAUSE;

/// How often is looked whether a namespace is there.
const NAMESPACE_LOOK: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(5);

/// How often is looked whether somebody has installed the definition, or given us a right.
const ADMIN_LOOK: RangeInclusive<Duration> = Duration::from_secs(5)..=LONGEST_PAUSE;

/// How long passes in flight are waited for at the end.
const GRACE: Duration = Duration::from_secs(10);

/// How many releases that were told to rest are remembered before those whose time has come are forgotten.
const PRUNE_AT: usize = 1_024;

// === impl Turns ===

impl<E: Send + 'static> Turns<E> {
    pub(crate) fn new(mut leadership: watch::Receiver<Leadership>, pace: Pace) -> Self {
        leadership.mark_changed();
        let (schedule, requests) = mpsc::unbounded();
        Self {
            leadership,
            pace,
            complete: None,
            schedule,
            due: Box::pin(scheduler(requests)),
            running: HashMap::new(),
            passes: JoinSet::new(),
            rests_until: HashMap::new(),
            failing: HashMap::new(),
            told: HashMap::new(),
        }
    }

    pub(crate) fn is_leading(&self) -> bool {
        self.term().is_some()
    }

    fn term(&self) -> Option<u64> {
        self.leadership.borrow().term(Instant::now())
    }

    /// Whether we lead, and everything was asked for in this term.
    fn is_complete(&self) -> bool {
        self.complete.is_some() && self.complete == self.term()
    }

    /// Asks for a pass over a release, which runs when the last one is far enough away. Who stands by, or has not seen yet
    /// that it leads, will ask for everything when it does.
    pub(crate) fn ask(&mut self, key: ReleaseKey) {
        if !self.is_complete() {
            self.complete = None;
            return;
        }
        if let Some(redo) = self.running.get_mut(&key) {
            *redo = Redo::Yes;
            return;
        }
        let moments = [self.rests_until.get(&key).copied(), self.failing.get(&key).map(|failing| failing.not_before)];
        let run_at = moments.into_iter().flatten().fold(Instant::now(), Instant::max);
        // The receiver is our own.
        let _ = self.schedule.unbounded_send(ScheduleRequest { message: key, run_at });
    }

    /// Runs passes until there is something to tell, each in the term in which it begins. None begins while turns are not
    /// open.
    pub(crate) async fn next<F>(&mut self, is_open: bool, pass: impl Fn(ReleaseKey, Term) -> F) -> Turn<E>
    where
        F: Future<Output = Result<End, E>> + Send + 'static,
    {
        loop {
            let has_room = is_open && self.complete.is_some() && self.running.len() < self.pace.concurrency.get();
            let running = &self.running;
            tokio::select! {
                biased;
                Some(ended) = self.passes.join_next() => {
                    let (key, end) = match ended {
                        Ok(ended) => ended,
                        Err(error) => std::panic::resume_unwind(error.into_panic()),
                    };
                    match end {
                        Ok(end) => self.end(key, end),
                        Err(error) => return Turn::Failed(error),
                    }
                }
                // Each renewal of the Lease is told too.
                Ok(()) = self.leadership.changed() => {
                    let term = self.term();
                    if term.is_none() {
                        self.forget_failures();
                    }
                    if std::mem::replace(&mut self.complete, term) != term && term.is_some() {
                        return Turn::Lead;
                    }
                }
                Some(key) = next(self.due.as_mut(), running), if has_room => {
                    let term = Term::now(&self.leadership).filter(|term| Some(term.number()) == self.complete);
                    let Some(term) = term else {
                        // It is asked for again with everything else.
                        self.complete = None;
                        continue;
                    };
                    self.running.insert(key.clone(), Redo::No);
                    let pass = pass(key.clone(), term);
                    self.passes.spawn(async move { (key, pass.await) });
                }
                else => std::future::pending().await,
            }
        }
    }

    /// Lets what is in flight come to its end, so that nobody has to find out whether it was carried out.
    pub(crate) async fn finish(mut self) {
        let drained = async { while self.passes.join_next().await.is_some() {} };
        if tokio::time::timeout(GRACE, drained).await.is_err() {
            tracing::warn!(
                passes = self.passes.len(),
                "Requests in flight are given up; whether they were carried out is seen at the next start"
            );
        }
    }

    fn end(&mut self, key: ReleaseKey, end: End) {
        let redo = self.running.remove(&key).unwrap_or(Redo::No);
        let redo = match end {
            End::Settled => {
                self.recover(&key);
                self.rest(key.clone());
                redo
            }
            End::Again(again) if self.is_complete() => {
                self.fail(&key, again);
                Redo::Yes
            }
            // It began in an earlier term than this one.
            End::Standby if self.is_complete() => {
                self.recover(&key);
                Redo::Yes
            }
            End::Standby | End::Again(_) => {
                self.complete = None;
                self.recover(&key);
                return;
            }
        };
        if redo == Redo::Yes {
            self.ask(key);
        }
    }

    fn rest(&mut self, key: ReleaseKey) {
        if self.pace.spacing.is_zero() {
            return;
        }
        let now = Instant::now();
        if self.rests_until.len() >= PRUNE_AT {
            self.rests_until.retain(|_, moment| *moment > now);
        }
        self.rests_until.insert(key, now + self.pace.spacing);
    }

    /// Says why something has to be tried again, and decides when. What lasts, or concerns many, is told once.
    fn fail(&mut self, key: &ReleaseKey, Again { why, subject, pause }: Again) {
        let last = self.failing.remove(key);
        let last_subject = last.as_ref().map(|last| last.subject.clone());
        let mut backoff = last.map_or_else(
            || {
                let growing = ExponentialBuilder::default().with_jitter().without_max_times();
                growing.with_min_delay(SHORTEST_PAUSE).with_max_delay(LONGEST_PAUSE).build()
            },
            |last| last.backoff,
        );
        let longer = backoff.next().unwrap_or(LONGEST_PAUSE);
        let pause = longer.min(*pause.end()).max(*pause.start());
        let failing = self.told.entry(subject.clone()).or_default();
        *failing += 1;
        if *failing == 1 {
            tracing::warn!(release = %key, %why, retry_in = ?pause, "{}; trying again until it can", self.pace.complaint);
        } else {
            tracing::debug!(release = %key, %why, retry_in = ?pause, "{}", self.pace.complaint);
        }
        self.untell(last_subject);
        self.failing.insert(key.clone(), Failing { backoff, not_before: Instant::now() + pause, subject });
        self.count();
    }

    fn count(&self) {
        self.pace.failing.set(i64::try_from(self.failing.len()).unwrap_or(i64::MAX));
    }

    fn recover(&mut self, key: &ReleaseKey) {
        let last = self.failing.remove(key);
        self.untell(last.map(|last| last.subject));
        self.count();
    }

    /// What another one leads is for it to try again, and to tell of.
    fn forget_failures(&mut self) {
        self.failing.clear();
        self.told.clear();
        self.count();
    }

    /// A release does not fail for this any more. What comes up again later is told again.
    fn untell(&mut self, subject: Option<String>) {
        let Some(subject) = subject else { return };
        if let Some(failing) = self.told.get_mut(&subject) {
            *failing -= 1;
            if *failing == 0 {
                self.told.remove(&subject);
            }
        }
    }
}

/// The next release whose time has come and that has no pass running.
async fn next(due: Pin<&mut Due>, running: &HashMap<ReleaseKey, Redo>) -> Option<ReleaseKey> {
    due.hold_unless(|key| !running.contains_key(key)).next().await
}

// === impl Again ===

impl Again {
    /// Something of this release alone.
    pub(crate) fn because(why: impl Into<String>) -> Self {
        let why = why.into();
        Self { subject: why.clone(), why, pause: ANY_PAUSE }
    }

    /// The log does not take what was to be told.
    pub(crate) fn untold(why: String) -> Self {
        // Each answer names another release.
        Self { subject: "log".to_owned(), why, pause: ANY_PAUSE }
    }

    /// A request that has failed.
    pub(crate) fn after(trouble: &Trouble, key: &ReleaseKey) -> Self {
        let why = trouble.to_string();
        let (subject, pause) = match trouble {
            Trouble::NamespaceMissing | Trouble::NamespaceTerminating => {
                (format!("{} {why}", key.namespace), NAMESPACE_LOOK)
            }
            // Each answer names another release.
            Trouble::Forbidden { .. } => ("forbidden".to_owned(), ADMIN_LOOK),
            Trouble::NotServed => (why.clone(), ADMIN_LOOK),
            // Tried again although it is permanent: somebody may lift what forbids it.
            Trouble::Permanent { .. } => (why.clone(), ADMIN_LOOK),
            Trouble::Busy { retry_after, .. } => ("busy".to_owned(), retry_after.unwrap_or_default()..=LONGEST_PAUSE),
            Trouble::Changed { .. } | Trouble::Unknown { .. } => (why.clone(), ANY_PAUSE),
        };
        Self { why, subject, pause }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Passes that last a second, and what they end with.
    struct Stage {
        turns: Turns<Infallible>,
        leads: watch::Sender<Leadership>,
        failing: Gauge,
        begun: Arc<Mutex<Vec<(String, Duration)>>>,
        since: Instant,
    }

    impl Stage {
        fn new(concurrency: usize) -> Self {
            let (leads, leadership) = watch::channel(leading(1));
            let failing = Gauge::default();
            let pace = Pace {
                concurrency: NonZeroUsize::new(concurrency).expect("it is above zero"),
                spacing: Duration::from_secs(5),
                complaint: "It could not be done",
                failing: failing.clone(),
            };
            let begun = Arc::default();
            Self { turns: Turns::new(leadership, pace), leads, failing, begun, since: Instant::now() }
        }

        /// One that leads and has asked for nothing yet.
        async fn leading(concurrency: usize) -> Self {
            let mut stage = Self::new(concurrency);
            assert!(stage.run(0, || End::Settled).await, "who leads from the beginning asks for everything");
            stage
        }

        /// Runs passes for a while. Returns whether everything had to be asked for meanwhile.
        async fn run(&mut self, seconds: u64, end: fn() -> End) -> bool {
            let (begun, since) = (Arc::clone(&self.begun), self.since);
            let pass = |key: ReleaseKey, _: Term| {
                begun.lock().expect("nobody panics").push((key.name.to_string(), since.elapsed()));
                async move {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    Ok(end())
                }
            };
            let until = Instant::now() + Duration::from_secs(seconds);
            let mut leads = false;
            while let Ok(turn) = tokio::time::timeout_at(until, self.turns.next(true, &pass)).await {
                match turn {
                    Turn::Lead => leads = true,
                    Turn::Failed(never) => match never {},
                }
            }
            leads
        }

        fn ask(&mut self, names: &[&str]) {
            names.iter().for_each(|name| self.turns.ask(ReleaseKey::new("default", "shop", name)));
        }

        /// Which passes have begun, in order, at which second.
        fn begun(&self) -> Vec<(String, u64)> {
            let begun = self.begun.lock().expect("nobody panics");
            begun.iter().map(|(name, at)| (name.clone(), at.as_secs())).collect()
        }
    }

    fn leading(term: u64) -> Leadership {
        Leadership::Leading { until: Instant::now() + Duration::from_secs(3_600), term }
    }

    fn passes(expected: &[(&str, u64)]) -> Vec<(String, u64)> {
        expected.iter().map(|(name, at)| ((*name).to_owned(), *at)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn one_at_a_time_and_some_time_apart() {
        let mut stage = Stage::leading(2).await;
        stage.ask(&["a", "a", "b"]);
        stage.run(0, || End::Settled).await;
        // While it runs, and then while it rests.
        stage.ask(&["a", "a", "c"]);
        stage.run(2, || End::Settled).await;
        stage.ask(&["a"]);
        stage.run(60, || End::Settled).await;
        let mut begun = stage.begun();
        begun[..2].sort();
        assert_eq!(begun, passes(&[("a", 0), ("b", 0), ("c", 1), ("a", 6)]));
    }

    #[tokio::test(start_paused = true)]
    async fn what_fails_is_tried_again_later_and_later() {
        let mut stage = Stage::leading(2).await;
        stage.ask(&["a"]);
        stage.run(300, || End::Again(Again::because("no"))).await;
        assert_eq!(stage.failing.get(), 1);
        let begun: Vec<_> = stage.begun.lock().expect("nobody panics").iter().map(|(_, at)| *at).collect();
        // A pass lasts a second.
        let pauses: Vec<_> = begun.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64() - 1.0).collect();
        // Up to as much again is added to each, so that not all come back at once.
        assert!((0.2..0.5).contains(&pauses[0]), "{pauses:?}");
        let most = pauses.iter().copied().fold(0.0, f64::max);
        assert!((20.0..=61.0).contains(&most) && pauses.len() < 20, "{pauses:?}");
        assert!(pauses.windows(3).all(|three| three[2] > three[0] || three[0] > 20.0), "{pauses:?}");
        stage.run(60, || End::Settled).await;
        assert_eq!((stage.failing.get(), stage.turns.told.len()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn what_concerns_many_is_told_for_one() {
        let mut stage = Stage::leading(3).await;
        stage.ask(&["a", "b", "c"]);
        let fail = || End::Again(Again::untold("the log is away".to_owned()));
        stage.run(20, fail).await;
        assert_eq!(stage.turns.told, HashMap::from([("log".to_owned(), 3)]));
        stage.leads.send_replace(Leadership::Standby { holder: None });
        stage.run(60, fail).await;
        assert_eq!((stage.failing.get(), stage.turns.told.len()), (0, 0), "it is another one's to tell");
    }

    #[tokio::test(start_paused = true)]
    async fn who_stands_by_asks_for_everything_when_it_leads() {
        let mut stage = Stage::leading(2).await;
        stage.leads.send_replace(leading(1));
        assert!(!stage.run(1, || End::Settled).await, "a renewal is no beginning");
        stage.leads.send_replace(Leadership::Standby { holder: None });
        stage.ask(&["a"]);
        assert!(!stage.run(60, || End::Settled).await);
        stage.leads.send_replace(leading(2));
        assert!(stage.run(1, || End::Settled).await);
        assert_eq!(stage.begun(), []);
        // Also if the time was over between two renewals, and nobody has said so.
        stage.leads.send_replace(Leadership::Leading { until: Instant::now(), term: 2 });
        stage.ask(&["a"]);
        stage.leads.send_replace(leading(2));
        assert!(stage.run(1, || End::Settled).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_term_that_follows_unseen_is_a_beginning() {
        let mut stage = Stage::leading(2).await;
        stage.ask(&["a"]);
        stage.run(0, || End::Standby).await;
        // Another one has led in between. What is asked for before that is seen is asked for again with all else.
        stage.leads.send_replace(leading(3));
        stage.ask(&["b"]);
        assert!(stage.run(0, || End::Settled).await);
        assert_eq!(stage.begun(), passes(&[("a", 0)]));
        // The pass of the term before says that it is over, and is begun again in this one; nothing else is.
        assert!(!stage.run(3, || End::Settled).await);
        assert_eq!(stage.begun(), passes(&[("a", 0), ("a", 1)]));
    }
}
