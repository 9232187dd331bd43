//! Many records in one allocation, for replay at the speed of the log.

use std::borrow::Cow;

use decklog_schemas::{Record, Sequence};

/// Records in the order of their log; the bytes of all of them lie in one buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    bytes: Vec<u8>,
    places: Vec<Place>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    sequence: Sequence,
    recorded: jiff::Timestamp,
    /// Where the subject begins; the event follows it, and ends where the next subject begins.
    start: usize,
    event: usize,
}

impl Records {
    /// Appends a record.
    pub fn push(&mut self, record: &Record<'_>) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(record.subject.as_bytes());
        self.places.push(Place {
            sequence: record.sequence,
            recorded: record.recorded,
            start,
            event: self.bytes.len(),
        });
        self.bytes.extend_from_slice(&record.bytes);
    }

    /// How many records there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// How many bytes the subjects and events have together.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The records in their order.
    pub fn iter(&self) -> impl Iterator<Item = Record<'_>> {
        (0..self.places.len()).map(|at| self.at(at))
    }

    /// The sequence of the last record.
    #[must_use]
    pub fn last_sequence(&self) -> Option<Sequence> {
        self.places.last().map(|place| place.sequence)
    }

    fn at(&self, at: usize) -> Record<'_> {
        let Place { sequence, recorded, start, event } = self.places[at];
        let end = self.places.get(at + 1).map_or(self.bytes.len(), |next| next.start);
        Record {
            sequence,
            recorded,
            // The bytes came from a `str`, so nothing is ever replaced here.
            subject: String::from_utf8_lossy(&self.bytes[start..event]),
            bytes: Cow::Borrowed(&self.bytes[event..end]),
        }
    }
}
