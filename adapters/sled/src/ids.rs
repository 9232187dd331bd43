//! The ids of the newest records, so that an event that is sent again is found.

use std::hash::{BuildHasher, RandomState};

use decklog_engine::log::DEDUPE_WINDOW;
use decklog_schemas::Sequence;
use hashbrown::HashTable;

/// Where the newest ids stand, by their hashes: 16 bytes a record, and no id itself. Two ids may share a hash, so
/// whoever looks one up compares it with that of the record.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    places: HashTable<Place>,
    hasher: RandomState,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    hash: u64,
    sequence: Sequence,
}

impl Ids {
    /// The places at which the id may stand: in truth at most one of them.
    pub(crate) fn candidates(&self, id: &str) -> Vec<Sequence> {
        let hash = self.hasher.hash_one(id);
        let places = self.places.iter_hash(hash).filter(|place| place.hash == hash);
        places.map(|place| place.sequence).collect()
    }

    /// Takes note of the id of the newest record, and forgets the oldest ones when there are twice as many as needed.
    pub(crate) fn note(&mut self, id: &str, sequence: Sequence) {
        if self.places.len() >= 2 * DEDUPE_WINDOW {
            let oldest = sequence.get().saturating_sub(DEDUPE_WINDOW as u64);
            self.places.retain(|place| place.sequence.get() >= oldest);
        }
        let hash = self.hasher.hash_one(id);
        self.places.insert_unique(hash, Place { hash, sequence }, |place| place.hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_ids_are_known_and_the_oldest_forgotten() {
        let mut ids = Ids::default();
        let mut last = None;
        for number in 1..=5 * DEDUPE_WINDOW as u64 / 2 {
            let sequence = Sequence::after(last);
            ids.note(&number.to_string(), sequence);
            last = Some(sequence);
            assert!(ids.places.len() <= 2 * DEDUPE_WINDOW);
            // At every moment, also right after it has forgotten some, the oldest id of the window is known.
            if let Some(oldest) = (number + 1).checked_sub(DEDUPE_WINDOW as u64).and_then(Sequence::new) {
                assert_eq!(ids.candidates(&oldest.to_string()), [oldest]);
            }
        }
        assert_eq!(ids.candidates("1"), []);
    }
}
