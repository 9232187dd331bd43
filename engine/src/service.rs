//! The service: a driver that runs, and a handle by which others append to its log and ask its projection.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use decklog_schemas::{Outcome, Quarantined, Sequence};
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::ask::ask;
use crate::checkpoint::CheckpointStore;
use crate::driver::{DriveError, Driver, Step};
use crate::log::{Log, LogId, ReadError, Scope, Wait};
use crate::projection::Projection;

/// What acts on the projection, such as a writer of YAML files or an applier to a cluster.
pub trait Sink<P>: Send + 'static {
    /// Brings the outside in line with what changed in the projection since the last call; all of it at the first.
    fn project(&mut self, projection: &mut P) -> impl Future<Output = Result<(), SinkError>> + Send;
}

/// The outside could not be brought in line.
#[derive(Debug, thiserror::Error)]
#[error("{attempt}")]
pub struct SinkError {
    /// What was attempted, such as `cannot write inventory/default/shop/checkout.yaml`.
    pub attempt: String,
    /// Why it failed.
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// The service ended with an error.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The driver ended.
    #[error(transparent)]
    Drive(#[from] DriveError),
    /// The sink ended.
    #[error(transparent)]
    Sink(#[from] SinkError),
    /// The log takes no more events: whoever appended to it has said so.
    #[error("the log has failed and has to be opened anew: {0}")]
    LogFailed(String),
}

/// The service has stopped and answers no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the engine has stopped")]
pub struct Stopped;

/// How far a service is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The last folded record.
    pub folded: Option<Sequence>,
    /// When the log took that record; none if that was before the service began.
    pub recorded: Option<Timestamp>,
    /// The last record of the log, as of the last read.
    pub tail: Option<Sequence>,
    /// Whether everything was folded that the log had at the start.
    pub has_caught_up: bool,
    /// How many records were no events, or stood in the wrong place, since the start.
    pub quarantined: u64,
}

/// What became of a record, as the service remembers it.
pub type Verdict = Result<Outcome, Quarantined>;

/// A handle to a running service, cheap to clone.
#[derive(Debug)]
pub struct Handle<L, P> {
    log: Arc<L>,
    requests: mpsc::Sender<Request<P>>,
    progress: watch::Receiver<Progress>,
}

/// A service that is ready to run.
#[derive(Debug)]
pub struct Service<L, P, C, S> {
    driver: Driver<L, P, C>,
    sink: S,
    requests: mpsc::Receiver<Request<P>>,
    verdicts: Verdicts,
    progress: watch::Sender<Progress>,
    waiting: Vec<(Sequence, oneshot::Sender<()>)>,
    /// When the oldest record without a checkpoint was folded.
    unsaved_since: Option<Instant>,
    /// Whether the sink has seen what was folded last.
    is_projected: bool,
    projected_at: Instant,
}

/// After how many records a checkpoint is due, however short it is since the last one.
const CHECKPOINT_RECORDS: u64 = 65_536;

/// After what time a checkpoint is due.
const CHECKPOINT_AFTER: Duration = Duration::from_secs(1);

/// How often the floor is compared with the log.
const VERIFY_EVERY: Duration = Duration::from_secs(60);

/// How often the sink is asked while there is more to fold.
const PROJECT_AT_LEAST: Duration = Duration::from_secs(1);

/// How many verdicts are remembered for those who append and then ask.
const VERDICTS: usize = 65_536;

enum Request<P> {
    Ask(Box<dyn FnOnce(&mut P) + Send>),
    Verdicts(Vec<Sequence>, oneshot::Sender<Vec<Option<Verdict>>>),
    Reach(Sequence, oneshot::Sender<()>),
    LogFailed(String),
}

/// Whether the log is still the one that was folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verified {
    Yes,
    NotYet,
}

#[derive(Debug, Default)]
struct Verdicts(VecDeque<(Sequence, Verdict)>);

// === impl Handle ===

impl<L, P> Clone for Handle<L, P> {
    fn clone(&self) -> Self {
        Self { log: Arc::clone(&self.log), requests: self.requests.clone(), progress: self.progress.clone() }
    }
}

impl<L: Log, P: Projection> Handle<L, P> {
    /// The log that the service folds, to append to and to read.
    #[must_use]
    pub fn log(&self) -> &Arc<L> {
        &self.log
    }

    /// How far the service is, always.
    #[must_use]
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.clone()
    }

    /// Asks the log which one it is, and for its last record.
    ///
    /// # Errors
    /// The log could not be read.
    pub async fn look(&self) -> Result<(LogId, Option<Sequence>), ReadError> {
        let folded = self.progress.borrow().folded;
        let batch = self.log.read(Sequence::after(folded), &Scope::All, Wait::No).await?;
        Ok((batch.log, batch.tail))
    }

    /// Asks the projection something, between two steps.
    ///
    /// # Errors
    /// The service has stopped.
    pub async fn ask<R: Send + 'static>(
        &self,
        question: impl FnOnce(&mut P) -> R + Send + 'static,
    ) -> Result<R, Stopped> {
        let request = |answer: oneshot::Sender<R>| {
            // Whoever asked may be gone by now; then nobody misses the answer.
            Request::Ask(Box::new(move |projection: &mut P| drop(answer.send(question(projection)))))
        };
        ask(&self.requests, request).await.ok_or(Stopped)
    }

    /// Waits until the projection reflects a sequence, and the sink has acted on it.
    ///
    /// # Errors
    /// The service has stopped.
    pub async fn reach(&self, sequence: Sequence) -> Result<(), Stopped> {
        ask(&self.requests, |answer| Request::Reach(sequence, answer)).await.ok_or(Stopped)
    }

    /// What became of records that the projection reflects; none for what was folded too long ago to be remembered.
    ///
    /// # Errors
    /// The service has stopped.
    pub async fn verdicts(&self, sequences: Vec<Sequence>) -> Result<Vec<Option<Verdict>>, Stopped> {
        ask(&self.requests, |answer| Request::Verdicts(sequences, answer)).await.ok_or(Stopped)
    }

    /// Tells the service that its log takes no more events: it ends, so that whoever supervises it starts it anew.
    ///
    /// # Errors
    /// The service has stopped already.
    pub async fn log_failed(&self, why: String) -> Result<(), Stopped> {
        self.requests.send(Request::LogFailed(why)).await.map_err(|_| Stopped)
    }
}

// === impl Service ===

impl<L, P, C, S> Service<L, P, C, S>
where
    L: Log,
    P: Projection + Default,
    C: CheckpointStore,
    S: Sink<P>,
{
    /// A service over a driver, and the handle to it.
    pub fn new(log: Arc<L>, driver: Driver<L, P, C>, sink: S) -> (Self, Handle<L, P>) {
        let (sender, requests) = mpsc::channel(64);
        let (progress, progress_seen) = watch::channel(Progress { folded: driver.floor(), ..Progress::default() });
        let service = Self {
            driver,
            sink,
            requests,
            verdicts: Verdicts::default(),
            progress,
            waiting: Vec::new(),
            unsaved_since: None,
            is_projected: false,
            projected_at: Instant::now(),
        };
        (service, Handle { log, requests: sender, progress: progress_seen })
    }

    /// Folds the log until `stop` turns true, then saves a checkpoint of what was folded.
    ///
    /// # Errors
    /// The log, the checkpoint store or the sink failed. The log still has all that was acknowledged.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) -> Result<(), ServiceError> {
        self.catch_up(&mut stop).await?;
        // A read that waits goes on while requests are served: begun anew for each, it would never come to its end.
        let mut reading = Box::pin(self.driver.read(Wait::ForMore));
        let mut verify = tokio::time::interval_at(Instant::now() + VERIFY_EVERY, VERIFY_EVERY);
        let mut comparing = None;
        while !*stop.borrow() {
            let due = self.unsaved_since.map(|since| since + CHECKPOINT_AFTER);
            tokio::select! {
                biased;
                // An error means that nobody can stop the service any more: time to stop.
                changed = stop.changed() => if changed.is_err() { break },
                () = until(due) => self.checkpoint().await?,
                Some(request) = self.requests.recv() => self.serve(request)?,
                batch = &mut reading => {
                    let batch = batch.map_err(|error| self.driver.explain(error))?;
                    if !self.driver.is_of_new_session(&batch) || self.verify().await? == Verified::Yes {
                        let step = self.driver.fold(&batch)?;
                        self.take(step).await?;
                    }
                    reading = Box::pin(self.driver.read(Wait::ForMore));
                }
                _ = verify.tick(), if comparing.is_none() => comparing = Some(Box::pin(self.driver.comparison())),
                compared = poll(&mut comparing) => {
                    comparing = None;
                    verified(compared.map(drop))?;
                }
            }
        }
        self.checkpoint().await
    }

    /// Folds what is there. Nothing is projected before: an early projection would take away what later records bring.
    async fn catch_up(&mut self, stop: &mut watch::Receiver<bool>) -> Result<(), ServiceError> {
        loop {
            let step = self.driver.step(Wait::No).await?;
            let is_at_tail = step.is_at_tail;
            self.remember(step);
            if is_at_tail {
                self.project().await?;
                self.progress.send_modify(|progress| progress.has_caught_up = true);
                // From here on a log that was exchanged is known for another one.
                return self.checkpoint().await;
            }
            if self.driver.unsaved() >= CHECKPOINT_RECORDS {
                self.checkpoint().await?;
            }
            if *stop.borrow() {
                return Ok(());
            }
        }
    }

    /// Compares the floor with the log. A log that is away is compared when it is back.
    async fn verify(&mut self) -> Result<Verified, ServiceError> {
        verified(self.driver.verify().await)
    }

    async fn take(&mut self, step: Step) -> Result<(), ServiceError> {
        let is_at_tail = step.is_at_tail;
        self.remember(step);
        if is_at_tail || self.projected_at.elapsed() >= PROJECT_AT_LEAST {
            self.project().await?;
        }
        if self.driver.unsaved() >= CHECKPOINT_RECORDS {
            self.checkpoint().await?;
        }
        Ok(())
    }

    fn remember(&mut self, step: Step) {
        if !step.verdicts.is_empty() {
            self.unsaved_since.get_or_insert_with(Instant::now);
            self.is_projected = false;
        }
        for gap in &step.gaps {
            tracing::warn!(%gap, "Records are gone from the log, and the state is without them");
        }
        let quarantined = step.verdicts.iter().filter(|(_, verdict)| verdict.is_err()).count() as u64;
        let folded = self.driver.floor();
        self.progress.send_modify(|progress| {
            progress.folded = folded;
            progress.recorded = step.recorded.or(progress.recorded);
            progress.tail = step.tail;
            progress.quarantined += quarantined;
        });
        for (sequence, verdict) in step.verdicts {
            if let Err(quarantined) = &verdict {
                tracing::warn!(%sequence, reason = %quarantined, "Record is no event and is left out");
            }
            self.verdicts.push(sequence, verdict);
        }
    }

    async fn project(&mut self) -> Result<(), ServiceError> {
        self.sink.project(self.driver.projection()).await?;
        self.projected_at = Instant::now();
        self.is_projected = true;
        for (_, answer) in self.waiting.extract_if(.., |(sequence, _)| self.driver.has_reached(*sequence)) {
            // Whoever waited may be gone.
            let _ = answer.send(());
        }
        Ok(())
    }

    async fn checkpoint(&mut self) -> Result<(), ServiceError> {
        self.driver.checkpoint().await?;
        self.unsaved_since = None;
        Ok(())
    }

    /// Answers go to those who may be gone by now, so that sending may fail.
    fn serve(&mut self, request: Request<P>) -> Result<(), ServiceError> {
        match request {
            Request::Ask(question) => question(self.driver.projection()),
            Request::Verdicts(sequences, answer) => {
                let _ = answer.send(sequences.into_iter().map(|sequence| self.verdicts.of(sequence)).collect());
            }
            Request::Reach(sequence, answer) if self.is_projected && self.driver.has_reached(sequence) => {
                let _ = answer.send(());
            }
            Request::Reach(sequence, answer) => self.waiting.push((sequence, answer)),
            Request::LogFailed(why) => return Err(ServiceError::LogFailed(why)),
        }
        Ok(())
    }
}

/// Ends with the future, or never if there is none.
async fn poll<F: Future + Unpin>(future: &mut Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

fn verified(compared: Result<(), DriveError>) -> Result<Verified, ServiceError> {
    match compared {
        Ok(()) => Ok(Verified::Yes),
        Err(DriveError::Read(ReadError::Unavailable(error))) => {
            tracing::warn!(%error, "Log does not answer and could not be compared with the checkpoint");
            Ok(Verified::NotYet)
        }
        Err(error) => Err(error.into()),
    }
}

/// Ends at the moment, or never if there is none.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

impl Verdicts {
    fn push(&mut self, sequence: Sequence, verdict: Verdict) {
        if self.0.len() == VERDICTS {
            self.0.pop_front();
        }
        self.0.push_back((sequence, verdict));
    }

    fn of(&self, sequence: Sequence) -> Option<Verdict> {
        let at = self.0.binary_search_by_key(&sequence, |(sequence, _)| *sequence).ok()?;
        Some(self.0[at].1.clone())
    }
}

impl<P> std::fmt::Debug for Request<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ask(_) => "Ask",
            Self::Verdicts(..) => "Verdicts",
            Self::Reach(..) => "Reach",
            Self::LogFailed(_) => "LogFailed",
        })
    }
}
