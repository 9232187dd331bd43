//! The timeline: every event of the replayed range, with what the fold did with it.

use decklog_engine::checkpoint::Change;
use decklog_engine::{Projection, RestoreError};
use decklog_schemas::answer::{OutcomeWord, TimelineEntry};
use decklog_schemas::{Envelope, Outcome, Quarantined, Record, Sequence};

use crate::inventory::Inventories;
use crate::summary::summary;

/// Folds as [`Inventories`] does, and keeps an entry for each record from a moment on.
#[derive(Debug)]
pub struct Timeline {
    inventories: Inventories,
    since: jiff::Timestamp,
    entries: Vec<TimelineEntry>,
}

impl Timeline {
    /// A timeline of what was recorded at `since` or later. What was before is folded all the same.
    #[must_use]
    pub fn since(since: jiff::Timestamp) -> Self {
        Self { inventories: Inventories::default(), since, entries: Vec::new() }
    }

    /// The entries, in the order of the log.
    #[must_use]
    pub fn into_entries(self) -> Vec<TimelineEntry> {
        self.entries
    }
}

impl Projection for Timeline {
    const VERSION: u32 = Inventories::VERSION;

    fn fold(&mut self, record: &Record<'_>) -> Result<Outcome, Quarantined> {
        let outcome = self.inventories.fold(record);
        if record.recorded >= self.since {
            self.entries.push(entry(record, &outcome));
        }
        outcome
    }

    /// A timeline is replayed for each question and never saved.
    fn changes(&mut self) -> Vec<Change> {
        Vec::new()
    }

    fn restore(&mut self, floor: Sequence, entries: Vec<(Vec<u8>, Vec<u8>)>) -> Result<(), RestoreError> {
        self.inventories.restore(floor, entries)
    }
}

/// How answers spell an outcome.
#[must_use]
pub fn outcome_word(outcome: &Result<Outcome, Quarantined>) -> OutcomeWord {
    match outcome {
        Ok(Outcome::Folded) => OutcomeWord::Folded,
        Ok(Outcome::Ignored(_)) => OutcomeWord::Ignored,
        Err(_) => OutcomeWord::Quarantined,
    }
}

fn entry(record: &Record<'_>, outcome: &Result<Outcome, Quarantined>) -> TimelineEntry {
    let envelope = Envelope::decode(&record.bytes).unwrap_or_default();
    let owned = |text: Option<&str>| text.map(str::to_owned);
    TimelineEntry {
        sequence: record.sequence,
        recorded: record.recorded.to_string(),
        time: owned(envelope.time()),
        r#type: owned(envelope.wire_type()).unwrap_or_default(),
        source: owned(envelope.source()),
        id: owned(envelope.id()),
        outcome: outcome_word(outcome),
        reason: outcome.as_ref().ok().and_then(|outcome| outcome.reason()),
        summary: match outcome {
            Ok(_) => envelope.validate().map_or_else(|refusal| refusal.to_string(), |event| summary(&event)),
            Err(quarantined) => quarantined.to_string(),
        },
    }
}
