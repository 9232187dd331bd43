//! The checkpoint store: what the fold knew at a floor, so that a restart reads only what is after it.

use std::collections::BTreeMap;
use std::future::Future;

use decklog_schemas::Sequence;

use crate::log::LogId;

/// A store of one checkpoint, a cache: whatever is lost or damaged in it is rebuilt by replay.
///
/// 1. `save` is atomic: after a kill at any moment `load` returns the entries and the floor of one save, whole.
/// 2. `save` with [`Entries::Changed`] puts and removes the given entries and keeps the others;
///    with [`Entries::All`] the given entries are all there are.
/// 3. `load` returns what the last successful `save` left, or `None` if there is none. What is damaged is never
///    returned: the store sets it aside and answers `None`.
/// 4. After a failed `save` the store holds the old checkpoint or the new one, whole; which one is not known.
pub trait CheckpointStore: Send + 'static {
    /// Reads the checkpoint.
    fn load(&mut self) -> impl Future<Output = Result<Option<Checkpoint>, CheckpointError>> + Send;

    /// Writes a checkpoint.
    fn save(&mut self, floor: Floor, entries: Entries) -> impl Future<Output = Result<(), CheckpointError>> + Send;
}

/// A checkpoint as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Where in the log it stands.
    pub floor: Floor,
    /// What the projection had saved, by key, ascending.
    pub entries: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Where in which log a checkpoint stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Floor {
    /// The log.
    pub log: LogId,
    /// The last sequence that is folded into it.
    pub sequence: Sequence,
    /// SHA-256 of the bytes of the record at that sequence.
    pub hash: [u8; 32],
    /// The version of the projection that made it.
    pub projection: u32,
}

/// What a save writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entries {
    /// Entries to put (`Some`) and to remove (`None`); the others stay.
    Changed(Vec<Change>),
    /// All entries there are from now on; a `None` is as good as absent.
    All(Vec<Change>),
}

/// One entry of a projection's checkpoint: its key, and its value unless it is gone.
pub type Change = (Vec<u8>, Option<Vec<u8>>);

/// The checkpoint store failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {attempt} the checkpoint")]
pub struct CheckpointError {
    /// `load` or `save`.
    pub attempt: &'static str,
    /// Why.
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// A store that is gone with its process, for replays that leave nothing behind and for tests.
#[derive(Clone, Debug, Default)]
pub struct MemoryCheckpoints {
    floor: Option<Floor>,
    entries: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl CheckpointStore for MemoryCheckpoints {
    async fn load(&mut self) -> Result<Option<Checkpoint>, CheckpointError> {
        let entries = || self.entries.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        Ok(self.floor.clone().map(|floor| Checkpoint { floor, entries: entries() }))
    }

    async fn save(&mut self, floor: Floor, entries: Entries) -> Result<(), CheckpointError> {
        let changes = match entries {
            Entries::Changed(changes) => changes,
            Entries::All(changes) => {
                self.entries.clear();
                changes
            }
        };
        for (key, value) in changes {
            match value {
                Some(value) => self.entries.insert(key, value),
                None => self.entries.remove(&key),
            };
        }
        self.floor = Some(floor);
        Ok(())
    }
}
