//! A projection: what the engine folds the log into, without knowing what it is.

use decklog_schemas::{Outcome, Quarantined, Record, Sequence};

use crate::checkpoint::Change;

/// A pure fold over the log: the same records in the same order give the same state, on every machine and day.
pub trait Projection: Send + 'static {
    /// Changes whenever a record could fold to another state, or the entries of a checkpoint read differently:
    /// a checkpoint of another version is discarded, and the log replayed.
    const VERSION: u32;

    /// Folds the next record. It is total: whatever is in the record, there is an outcome and no panic.
    ///
    /// # Errors
    /// The record is no event of any release or deployment. It takes part in nothing, and the fold goes on.
    fn fold(&mut self, record: &Record<'_>) -> Result<Outcome, Quarantined>;

    /// The entries that changed since the last call, for an incremental checkpoint.
    fn changes(&mut self) -> Vec<Change>;

    /// Puts back the entries of a checkpoint at a floor into an empty projection.
    ///
    /// # Errors
    /// An entry cannot be read: the checkpoint is of no use.
    fn restore(&mut self, floor: Sequence, entries: Vec<(Vec<u8>, Vec<u8>)>) -> Result<(), RestoreError>;
}

/// An entry of a checkpoint cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the checkpoint entry {key:?} cannot be read")]
pub struct RestoreError {
    /// Key of the entry.
    pub key: String,
    /// Why.
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}
