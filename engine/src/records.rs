//! Many records in one allocation, for replay at the speed of the log.

use std::borrow::Cow;

use decklog_schemas::{Record, Sequence};

/// Records in the order of their log; the subjects of all of them lie in one buffer, and the events in another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    subjects: String,
    events: Vec<u8>,
    places: Vec<Place>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    sequence: Sequence,
    recorded: jiff::Timestamp,
    /// Where the subject begins; it ends where the next one begins.
    subject: usize,
    /// The same of the event.
    event: usize,
}

impl Records {
    /// Appends a record.
    pub fn push(&mut self, record: &Record<'_>) {
        self.places.push(Place {
            sequence: record.sequence,
            recorded: record.recorded,
            subject: self.subjects.len(),
            event: self.events.len(),
        });
        self.subjects.push_str(&record.subject);
        self.events.extend_from_slice(&record.bytes);
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
        self.subjects.len() + self.events.len()
    }

    /// The records in their order.
    pub fn iter(&self) -> impl Iterator<Item = Record<'_>> {
        (0..self.places.len()).map(|at| self.at(at))
    }

    /// The last record.
    #[must_use]
    pub fn last(&self) -> Option<Record<'_>> {
        self.places.len().checked_sub(1).map(|last| self.at(last))
    }

    /// The sequence of the last record.
    #[must_use]
    pub fn last_sequence(&self) -> Option<Sequence> {
        self.places.last().map(|place| place.sequence)
    }

    fn at(&self, at: usize) -> Record<'_> {
        let Place { sequence, recorded, subject, event } = self.places[at];
        let next = self.places.get(at + 1);
        let subject_end = next.map_or(self.subjects.len(), |next| next.subject);
        let event_end = next.map_or(self.events.len(), |next| next.event);
        Record {
            sequence,
            recorded,
            subject: Cow::Borrowed(&self.subjects[subject..subject_end]),
            bytes: Cow::Borrowed(&self.events[event..event_end]),
        }
    }
}
