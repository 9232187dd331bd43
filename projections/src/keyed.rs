//! Rows found by a hash of their key: no allocation on a hit, and the rows lie beside each other in memory.

use std::hash::{BuildHasher, Hash, Hasher};

use foldhash::fast::FixedState;
use hashbrown::HashTable;

/// A row that knows its own key.
pub(crate) trait Keyed {
    /// Hash of the key, made by [`hash`].
    fn key_hash(&self) -> u64;
}

/// Rows in no order that means anything, with an index by the hash of their keys. A hash alone is not a key: every
/// look-up compares.
#[derive(Clone, Debug)]
pub(crate) struct Table<T> {
    rows: Vec<T>,
    index: HashTable<u32>,
}

/// The hash of a key of several parts. It orders nothing and is stored nowhere.
pub(crate) fn hash<T: Hash + ?Sized>(parts: &[&T]) -> u64 {
    let mut hasher = FixedState::default().build_hasher();
    for part in parts {
        part.hash(&mut hasher);
    }
    hasher.finish()
}

// === impl Table ===

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { rows: Vec::new(), index: HashTable::new() }
    }
}

impl<T: Keyed> Table<T> {
    pub(crate) fn find(&self, hash: u64, same: impl Fn(&T) -> bool) -> Option<usize> {
        self.index.find(hash, |at| same(&self.rows[*at as usize])).map(|at| *at as usize)
    }

    /// Makes room for so many more rows.
    pub(crate) fn reserve(&mut self, rows: usize) {
        self.rows.reserve(rows);
        let known = &self.rows;
        self.index.reserve(rows, |at| known[*at as usize].key_hash());
    }

    /// Adds a row whose key is not there yet, and returns where it lies.
    pub(crate) fn insert(&mut self, row: T) -> usize {
        let at = self.rows.len();
        let hash = row.key_hash();
        self.rows.push(row);
        let rows = &self.rows;
        self.index.insert_unique(hash, position(at), |at| rows[*at as usize].key_hash());
        at
    }

    /// Takes a row out; the last row moves to its place.
    pub(crate) fn remove(&mut self, at: usize) -> T {
        forget(&mut self.index, self.rows[at].key_hash(), at);
        let last = self.rows.len() - 1;
        if at != last {
            relocate(&mut self.index, self.rows[last].key_hash(), last, at);
        }
        self.rows.swap_remove(at)
    }

    pub(crate) fn rows(&self) -> &[T] {
        &self.rows
    }

    pub(crate) fn row(&self, at: usize) -> &T {
        &self.rows[at]
    }

    /// The row itself, not its key.
    pub(crate) fn row_mut(&mut self, at: usize) -> &mut T {
        &mut self.rows[at]
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }
}

impl<T: Keyed> FromIterator<T> for Table<T> {
    fn from_iter<I: IntoIterator<Item = T>>(rows: I) -> Self {
        let mut table = Self::default();
        for row in rows {
            table.insert(row);
        }
        table
    }
}

/// Drops the index entry of the row at a position.
pub(crate) fn forget(index: &mut HashTable<u32>, hash: u64, at: usize) {
    if let Ok(entry) = index.find_entry(hash, |found| *found as usize == at) {
        entry.remove();
    }
}

/// Points the index entry of a row to where it lies now.
pub(crate) fn relocate(index: &mut HashTable<u32>, hash: u64, from: usize, to: usize) {
    if let Some(entry) = index.find_mut(hash, |found| *found as usize == from) {
        *entry = position(to);
    }
}

/// Four billion rows do not fit into memory, so this never saturates.
pub(crate) fn position(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}
