//! What came before its row: the two writers race, so the latest word for each key waits, up to a limit.

use decklog_schemas::Sequence;

use crate::keyed::{Keyed, Table};

/// How many keys may wait for their row, for each release and each kind of row.
pub(crate) const HELD_LIMIT: usize = 1024;

/// Something that waits for its row.
pub(crate) trait Waiting: Keyed {
    /// When it began to wait.
    fn since(&self) -> Sequence;

    /// Whether both wait for the same row.
    fn same_key(&self, other: &Self) -> bool;
}

impl<T: Waiting> Table<T> {
    /// Lets it wait, in place of what waited for the same row. Past the limit the one that waits longest is dropped.
    pub(crate) fn hold(&mut self, waiting: T) {
        if let Some(at) = self.find(waiting.key_hash(), |other| other.same_key(&waiting)) {
            self.remove(at);
        } else if self.len() >= HELD_LIMIT {
            let longest = (0..self.len()).min_by_key(|at| self.row(*at).since());
            longest.map(|at| self.remove(at));
        }
        self.insert(waiting);
    }
}
