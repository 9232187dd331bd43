//! The driver: the log into a projection, from a checkpoint on, one batch a step.

use std::future::Future;
use std::sync::Arc;

use decklog_schemas::{Outcome, Quarantined, Sequence};
use jiff::Timestamp;
use sha2::{Digest, Sha256};

use crate::checkpoint::{Checkpoint, CheckpointError, CheckpointStore, Entries, Floor};
use crate::log::{Batch, Gap, GapCause, Log, LogId, ReadError, Scope, Wait};
use crate::projection::Projection;

/// Folds a log into a projection. It owns the projection: whoever wants to know something asks between two steps.
#[derive(Debug)]
pub struct Driver<L, P, C> {
    log: Arc<L>,
    projection: P,
    store: C,
    identity: Option<LogId>,
    /// The connection in which the floor was last compared with the log; none before the first read.
    session: Option<u64>,
    /// Where to read on. What is between the floor and there was taken out of the log.
    next: Sequence,
    /// The last folded record; none before the first.
    reached: Option<Reached>,
    /// Records folded since the last checkpoint.
    unsaved: u64,
    /// Whether the store holds nothing that the next save could build upon.
    store_is_stale: bool,
}

#[derive(Clone, Copy, Debug)]
struct Reached {
    sequence: Sequence,
    hash: [u8; 32],
}

/// What one step did.
#[derive(Debug)]
pub struct Step {
    /// Each record of the step, with what became of it.
    pub verdicts: Vec<(Sequence, Result<Outcome, Quarantined>)>,
    /// Whether everything is folded that the log had when the step read it.
    pub is_at_tail: bool,
    /// What was taken out of the log between the records.
    pub gaps: Vec<Gap>,
    /// The last record that the log had when the step read it.
    pub tail: Option<Sequence>,
    /// When the log took the last record of the step.
    pub recorded: Option<Timestamp>,
}

/// How a driver started.
#[derive(Debug)]
pub enum Start {
    /// From a checkpoint.
    Checkpoint {
        /// Its floor.
        floor: Sequence,
        /// How many entries it had.
        entries: usize,
    },
    /// From the first record.
    Replay {
        /// Why there is no checkpoint to start from.
        reason: ReplayReason,
    },
}

/// Why the log is replayed from its start.
#[derive(Debug)]
pub enum ReplayReason {
    /// The store is empty.
    NoCheckpoint,
    /// The checkpoint was made by another version of the projection.
    OtherProjection {
        /// That version.
        version: u32,
    },
    /// The checkpoint could not be read.
    Unreadable(crate::RestoreError),
}

/// Driving ended.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// The log cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The checkpoint cannot be read or written.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The log is not the one that the checkpoint was made from, or has lost what it had.
    #[error("the log has diverged from what was read of it before: {0}")]
    Diverged(String),
    /// Records went before they were folded, and what would come out without them is wrong.
    #[error("the log does not have its whole history: {0}")]
    HistoryLost(Gap),
}

impl<L: Log, P: Projection + Default, C: CheckpointStore> Driver<L, P, C> {
    /// Starts from the checkpoint, if the store has one that fits the log, else from the first record.
    ///
    /// # Errors
    /// The store or the log cannot be read, or the checkpoint is of another log or ahead of it.
    pub async fn start(log: Arc<L>, mut store: C) -> Result<(Self, Start), DriveError> {
        let loaded = store.load().await?;
        let mut driver = Self {
            log,
            projection: P::default(),
            store,
            identity: None,
            session: None,
            next: Sequence::FIRST,
            reached: None,
            unsaved: 0,
            store_is_stale: true,
        };
        let Some(Checkpoint { floor, entries }) = loaded else {
            return Ok((driver, Start::Replay { reason: ReplayReason::NoCheckpoint }));
        };
        let session = compare(&*driver.log, &floor).await?;
        driver.identity = Some(floor.log.clone());
        driver.session = Some(session);
        if floor.projection != P::VERSION {
            let reason = ReplayReason::OtherProjection { version: floor.projection };
            return Ok((driver, Start::Replay { reason }));
        }
        let count = entries.len();
        if let Err(error) = driver.projection.restore(floor.sequence, entries) {
            driver.projection = P::default();
            return Ok((driver, Start::Replay { reason: ReplayReason::Unreadable(error) }));
        }
        driver.reached = Some(Reached { sequence: floor.sequence, hash: floor.hash });
        driver.next = floor.sequence.next();
        driver.store_is_stale = false;
        Ok((driver, Start::Checkpoint { floor: floor.sequence, entries: count }))
    }

    /// Reads the next batch and folds it.
    ///
    /// # Errors
    /// The log cannot be read, or is not the same log any more.
    pub async fn step(&mut self, wait: Wait) -> Result<Step, DriveError> {
        let batch = self.read(wait).await.map_err(|error| self.explain(error))?;
        if self.is_of_new_session(&batch) {
            self.verify().await?;
        }
        self.fold(&batch)
    }

    /// The reading half of a step, on its own: it may wait for long, and others ask the projection meanwhile.
    pub fn read(&self, wait: Wait) -> impl Future<Output = Result<Batch, ReadError>> + Send + use<L, P, C> {
        let (log, from) = (Arc::clone(&self.log), self.next);
        async move { log.read(from, &Scope::All, wait).await }
    }

    /// Whether the log may have been exchanged since the floor was last compared with it: [`Driver::verify`] is due
    /// before this batch is folded.
    #[must_use]
    pub fn is_of_new_session(&self, batch: &Batch) -> bool {
        self.session.is_some_and(|session| session != batch.session)
    }

    /// Compares the floor with the log.
    ///
    /// # Errors
    /// The log cannot be read, or is not the log that was folded.
    pub async fn verify(&mut self) -> Result<(), DriveError> {
        if let Some(session) = self.comparison().await? {
            self.session = Some(session);
        }
        Ok(())
    }

    /// The same on its own, while others are served. What it returns is the connection in which it was compared; none if
    /// nothing was folded yet.
    pub fn comparison(&self) -> impl Future<Output = Result<Option<u64>, DriveError>> + Send + use<L, P, C> {
        let log = Arc::clone(&self.log);
        let floor = self.identity.clone().zip(self.reached).map(|(log, Reached { sequence, hash })| Floor {
            log,
            sequence,
            hash,
            projection: P::VERSION,
        });
        async move {
            match floor {
                Some(floor) => compare(&*log, &floor).await.map(Some),
                None => Ok(None),
            }
        }
    }

    /// The folding half of a step. The batch is what was read last.
    ///
    /// # Errors
    /// It is of another log, or of one that has lost what it had.
    pub fn fold(&mut self, batch: &Batch) -> Result<Step, DriveError> {
        let identity = self.identity.get_or_insert_with(|| batch.log.clone());
        if *identity != batch.log {
            return Err(DriveError::Diverged(format!("it was {identity}, and is now {}", batch.log)));
        }
        if self.next > Sequence::after(batch.tail) {
            return Err(ahead(self.floor(), batch.tail));
        }
        if let Some(lost) = batch.gaps.iter().find(|gap| gap.cause != GapCause::Deleted) {
            return Err(DriveError::HistoryLost(*lost));
        }
        self.session = Some(batch.session);
        let fold = |record| (record_sequence(&record), self.projection.fold(&record));
        let verdicts: Vec<_> = batch.records.iter().map(fold).collect();
        let recorded = batch.records.last().map(|last| last.recorded);
        if let Some(last) = batch.records.last() {
            self.reached = Some(Reached { sequence: last.sequence, hash: hash_of(&last.bytes) });
            self.unsaved += verdicts.len() as u64;
        }
        self.next = self.next.max(batch.next);
        let is_at_tail = Some(self.next) > batch.tail;
        Ok(Step { verdicts, is_at_tail, gaps: batch.gaps.clone(), tail: batch.tail, recorded })
    }

    /// What an error of reading means: a log that was there and is gone is another thing than one that never was.
    #[must_use]
    pub fn explain(&self, error: ReadError) -> DriveError {
        match &self.identity {
            Some(identity) => explain(error, identity),
            None => error.into(),
        }
    }

    /// Saves what changed since the last checkpoint, if anything did.
    ///
    /// # Errors
    /// The store cannot be written. The driver is of no further use then: what it took for saved may not be.
    pub async fn checkpoint(&mut self) -> Result<(), DriveError> {
        let (Some(reached), Some(log)) = (self.reached, &self.identity) else { return Ok(()) };
        if self.unsaved == 0 {
            return Ok(());
        }
        let Reached { sequence, hash } = reached;
        let floor = Floor { log: log.clone(), sequence, hash, projection: P::VERSION };
        let changes = self.projection.changes();
        let entries = if self.store_is_stale { Entries::All(changes) } else { Entries::Changed(changes) };
        self.store.save(floor, entries).await?;
        self.store_is_stale = false;
        self.unsaved = 0;
        Ok(())
    }

    /// The last folded sequence.
    #[must_use]
    pub fn floor(&self) -> Option<Sequence> {
        self.reached.map(|reached| reached.sequence)
    }

    /// Whether everything up to a sequence is folded, or gone from the log.
    #[must_use]
    pub fn has_reached(&self, sequence: Sequence) -> bool {
        sequence < self.next
    }

    /// How many records were folded since the last checkpoint.
    #[must_use]
    pub fn unsaved(&self) -> u64 {
        self.unsaved
    }

    /// What was folded.
    pub fn projection(&mut self) -> &mut P {
        &mut self.projection
    }
}

/// Compares a floor with a log: same identity, not ahead, and the same record there. Where the record is gone, its
/// successors must not be. Returns the connection in which that was so.
async fn compare<L: Log>(log: &L, floor: &Floor) -> Result<u64, DriveError> {
    let read = async |from| {
        let read = log.read(from, &Scope::All, Wait::No).await;
        read.map_err(|error| explain(error, &floor.log))
    };
    let mut batch = read(floor.sequence).await?;
    if batch.tail < Some(floor.sequence) && batch.log == floor.log {
        // A log of several servers may lag for a moment. Behind its tail it says so only when that is over.
        read(floor.sequence.next()).await?;
        batch = read(floor.sequence).await?;
    }
    if batch.log != floor.log {
        let message = format!("the checkpoint was made from {}, and the log is {}", floor.log, batch.log);
        return Err(DriveError::Diverged(message));
    }
    if batch.tail < Some(floor.sequence) {
        return Err(ahead(Some(floor.sequence), batch.tail));
    }
    match batch.gaps.first().filter(|gap| gap.first <= floor.sequence) {
        Some(gap) if gap.cause != GapCause::Deleted && gap.last > floor.sequence => {
            return Err(DriveError::HistoryLost(*gap));
        }
        Some(_) => {}
        None => {
            let there = batch.records.iter().next().filter(|record| record.sequence == floor.sequence);
            if there.is_none_or(|record| hash_of(&record.bytes) != floor.hash) {
                let message = format!("the record at {} is another one than was read there before", floor.sequence);
                return Err(DriveError::Diverged(message));
            }
        }
    }
    Ok(batch.session)
}

/// A log that was there and is gone is another thing than one that never was.
fn explain(error: ReadError, identity: &LogId) -> DriveError {
    match error {
        ReadError::Missing { log } => {
            DriveError::Diverged(format!("it was {identity}, and there is no log {log} any more"))
        }
        error => error.into(),
    }
}

fn record_sequence(record: &decklog_schemas::Record<'_>) -> Sequence {
    record.sequence
}

fn ahead(floor: Option<Sequence>, tail: Option<Sequence>) -> DriveError {
    let number = |sequence: Option<Sequence>| sequence.map_or(0, Sequence::get);
    DriveError::Diverged(format!("it was read up to {}, and ends at {}", number(floor), number(tail)))
}

fn hash_of(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}
