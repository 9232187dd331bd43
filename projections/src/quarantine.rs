//! Quarantine: a view of the log, of the records that no fold can use. The log itself keeps their bytes for ever.

use std::collections::{BTreeMap, VecDeque};

use decklog_engine::checkpoint::Change;
use decklog_engine::log::Scope;
use decklog_engine::replay::Until;
use decklog_engine::{Projection, RestoreError};
use decklog_schemas::answer::{Inspected, QuarantineEntry, QuarantineKind, QuarantineList, QuarantinedRecord};
use decklog_schemas::subject::{Subject, place};
use decklog_schemas::{Envelope, Outcome, Quarantined, Record, Refusal, Sequence};

use crate::inventory::cut;
use crate::summary::summary;

/// How many entries are kept, the newest ones. All are counted.
pub const LISTED: usize = 10_000;

/// Counts the records that are in quarantine, and keeps an entry for each of the newest.
#[derive(Debug)]
pub struct Quarantine {
    since: Option<Until>,
    counts: BTreeMap<QuarantineKind, u64>,
    entries: VecDeque<QuarantineEntry>,
}

/// One record; as a projection it looks for the same event in its right place.
#[derive(Debug)]
pub struct Inspection {
    record: Record<'static>,
    /// None if the record is not in quarantine.
    entry: Option<QuarantineEntry>,
    /// The event's id, as far as there is a place to look for it.
    id: Option<String>,
    placed: Option<Sequence>,
}

/// What a fold can do with a record: nothing, or nothing yet, or as the event says.
type Judged = Result<Result<(), Refusal>, Quarantined>;

impl Quarantine {
    /// What was recorded from a moment on; all of it without one.
    #[must_use]
    pub fn since(since: Option<Until>) -> Self {
        Self { since, counts: BTreeMap::new(), entries: VecDeque::new() }
    }

    /// The list.
    #[must_use]
    pub fn into_list(self) -> QuarantineList {
        let listed = self.entries.len() as u64;
        let omitted = self.counts.values().sum::<u64>() - listed;
        QuarantineList { counts: self.counts, omitted, entries: self.entries.into() }
    }

    fn is_before(&self, record: &Record<'_>) -> bool {
        match self.since {
            None => false,
            Some(Until::Sequence(first)) => record.sequence < first,
            Some(Until::Time(moment)) => record.recorded < moment,
            Some(Until::Tail) => true,
        }
    }
}

impl Projection for Quarantine {
    const VERSION: u32 = 1;

    fn fold(&mut self, record: &Record<'_>) -> Result<Outcome, Quarantined> {
        let judged = judge(record);
        if let Some((kind, reason)) = trouble(&judged).filter(|_| !self.is_before(record)) {
            *self.counts.entry(kind).or_default() += 1;
            if self.entries.len() == LISTED {
                self.entries.pop_front();
            }
            self.entries.push_back(entry(record, kind, &reason));
        }
        outcome(judged)
    }

    /// It is replayed for each question and never saved.
    fn changes(&mut self) -> Vec<Change> {
        Vec::new()
    }

    fn restore(&mut self, _: Sequence, _: Vec<(Vec<u8>, Vec<u8>)>) -> Result<(), RestoreError> {
        Ok(())
    }
}

impl Inspection {
    /// Looks at a record.
    #[must_use]
    pub fn of(record: Record<'static>) -> Self {
        let entry = trouble(&judge(&record)).map(|(kind, reason)| entry(&record, kind, &reason));
        let is_misplaced = entry.as_ref().is_some_and(|entry| entry.expected.is_some());
        let envelope = Envelope::decode(&record.bytes).ok().filter(|_| is_misplaced);
        let id = envelope.and_then(|envelope| envelope.id().map(str::to_owned));
        Self { record, entry, id, placed: None }
    }

    /// What is to be replayed to find the same event in its right place; none if there is nothing to be found.
    #[must_use]
    pub fn scope(&self) -> Option<Scope> {
        self.id.as_ref()?;
        match Subject::parse(self.entry.as_ref()?.expected.as_ref()?)? {
            Subject::Release { release, .. } => release.key().map(Scope::Release),
            Subject::Deployment => Some(Scope::All),
        }
    }

    /// What was found.
    #[must_use]
    pub fn into_answer(self) -> Inspected {
        let Self { record, entry, id: _, placed } = self;
        match entry {
            Some(entry) => {
                Inspected::Quarantined(QuarantinedRecord { entry, placed, bytes: record.bytes.into_owned() })
            }
            None => Inspected::Understood { subject: record.subject.to_string(), summary: told(&record) },
        }
    }
}

impl Projection for Inspection {
    const VERSION: u32 = 1;

    fn fold(&mut self, record: &Record<'_>) -> Result<Outcome, Quarantined> {
        let placed = record.open()?;
        if self.placed.is_none() && self.id.is_some() && placed.envelope.id() == self.id.as_deref() {
            self.placed = Some(record.sequence);
        }
        Ok(Outcome::Folded)
    }

    /// It is replayed for each question and never saved.
    fn changes(&mut self) -> Vec<Change> {
        Vec::new()
    }

    fn restore(&mut self, _: Sequence, _: Vec<(Vec<u8>, Vec<u8>)>) -> Result<(), RestoreError> {
        Ok(())
    }
}

fn judge(record: &Record<'_>) -> Judged {
    Ok(record.open()?.envelope.validate().map(|_| ()))
}

fn outcome(judged: Judged) -> Result<Outcome, Quarantined> {
    Ok(judged?.map_or_else(|refusal| Outcome::Ignored(refusal.reason()), |()| Outcome::Folded))
}

/// Why a record is in quarantine; none if it is an event in its place, of a type that this build knows.
fn trouble(judged: &Judged) -> Option<(QuarantineKind, String)> {
    let (kind, reason) = match judged {
        Ok(Ok(()) | Err(Refusal::Invalid(_))) => return None,
        Ok(Err(refusal @ Refusal::Unsupported(_))) => (QuarantineKind::Unsupported, refusal.to_string()),
        Err(quarantined) => {
            let kind = match quarantined {
                Quarantined::Malformed(_) => QuarantineKind::Malformed,
                Quarantined::Unplaced(_) => QuarantineKind::Unplaced,
                Quarantined::ForeignSubject { .. } => QuarantineKind::ForeignSubject,
                Quarantined::WrongSubject { .. } => QuarantineKind::WrongSubject,
            };
            (kind, quarantined.to_string())
        }
    };
    Some((kind, reason))
}

/// Whatever the record says, an entry has its bounds: a name may be a megabyte.
fn entry(record: &Record<'_>, kind: QuarantineKind, reason: &str) -> QuarantineEntry {
    let envelope = Envelope::decode(&record.bytes).unwrap_or_default();
    let short = |text: Option<&str>| text.map(|text| cut(text).into_string());
    let is_misplaced = matches!(kind, QuarantineKind::ForeignSubject | QuarantineKind::WrongSubject);
    QuarantineEntry {
        sequence: record.sequence,
        recorded: record.recorded.to_string(),
        subject: cut(&record.subject).into_string(),
        size: record.bytes.len(),
        kind,
        reason: cut(reason).into_string(),
        expected: place(&envelope).ok().filter(|_| is_misplaced),
        id: short(envelope.id()),
        r#type: short(envelope.wire_type()),
        source: short(envelope.source()),
    }
}

/// What an event in its place says.
fn told(record: &Record<'_>) -> String {
    let envelope = Envelope::decode(&record.bytes).unwrap_or_default();
    envelope.validate().map_or_else(|refusal| refusal.to_string(), |event| summary(&event))
}

#[cfg(test)]
mod tests {
    use decklog_schemas::ReleaseKey;

    use super::*;

    const RIGHT: &str = "decklog.release.default.shop.checkout.release.ReleaseDeleted";

    fn event(id: &str, name: &str, subject: &str) -> String {
        format!(
            r#"{{"specversion":"1.0","id":"{id}","source":"/c/1","type":"{name}","subject":"{subject}","time":"2026-03-02T10:00:00Z"}}"#
        )
    }

    fn record(sequence: u64, subject: &str, bytes: &[u8]) -> Record<'static> {
        Record {
            sequence: Sequence::new(sequence).expect("not zero"),
            recorded: jiff::Timestamp::from_second(i64::try_from(sequence).expect("small")).expect("in range"),
            subject: subject.to_owned().into(),
            bytes: bytes.to_owned().into(),
        }
    }

    #[track_caller]
    fn check(subject: &str, bytes: &[u8], expect: Option<QuarantineKind>) {
        let mut quarantine = Quarantine::since(None);
        let record = record(1, subject, bytes);
        let outcome = quarantine.fold(&record);
        let list = quarantine.into_list();
        assert_eq!(list.entries.first().map(|entry| entry.kind), expect, "{list:?}");
        assert_eq!(
            list.counts.into_iter().collect::<Vec<_>>(),
            expect.map(|kind| (kind, 1)).into_iter().collect::<Vec<_>>()
        );
        assert_eq!(outcome, crate::inventory::Inventories::default().fold(&record), "as the inventories say");
    }

    #[test]
    fn each_kind_is_told_apart() {
        let deleted = "dev.decklog.ReleaseDeleted.v1";
        check(RIGHT, event("1", deleted, "shop/checkout").as_bytes(), None);
        check(RIGHT, event("", deleted, "shop/checkout").as_bytes(), None);
        check(RIGHT, b"", Some(QuarantineKind::Malformed));
        check(RIGHT, b"\x81\xa2id", Some(QuarantineKind::Malformed));
        check(RIGHT, event("1", deleted, "checkout").as_bytes(), Some(QuarantineKind::Unplaced));
        check("", event("1", deleted, "checkout").as_bytes(), Some(QuarantineKind::Unplaced));
        check("other.subject", event("1", deleted, "shop/checkout").as_bytes(), Some(QuarantineKind::ForeignSubject));
        check(RIGHT, event("1", deleted, "shop/cart").as_bytes(), Some(QuarantineKind::WrongSubject));
        let other_domain = RIGHT.replace(".release.ReleaseDeleted", ".hook-status.ReleaseDeleted");
        check(&other_domain, event("1", deleted, "shop/checkout").as_bytes(), Some(QuarantineKind::WrongSubject));
        for future in ["dev.decklog.ReleaseDeleted.v2", "dev.decklog.Exploded.v1"] {
            check(RIGHT, event("1", future, "shop/checkout").as_bytes(), Some(QuarantineKind::Unsupported));
        }
    }

    #[test]
    fn the_newest_are_listed_and_all_are_counted() {
        let mut quarantine = Quarantine::since(Some(Until::Sequence(Sequence::new(3).expect("not zero"))));
        let last = LISTED as u64 + 12;
        for sequence in 1..=last {
            let _ = quarantine.fold(&record(sequence, RIGHT, b"x"));
        }
        let list = quarantine.into_list();
        assert_eq!((list.entries.len(), list.omitted), (LISTED, 10));
        assert_eq!(list.counts, BTreeMap::from([(QuarantineKind::Malformed, last - 2)]));
        let ends = [list.entries.first(), list.entries.last()].map(|entry| entry.map(|entry| entry.sequence.get()));
        assert_eq!(ends, [Some(13), Some(last)]);
    }

    #[test]
    fn since_a_time_is_by_the_clock_of_the_log() {
        let mut quarantine = Quarantine::since(Some("1970-01-01T00:00:02Z".parse().expect("a moment")));
        for sequence in 1..=3 {
            let _ = quarantine.fold(&record(sequence, RIGHT, b"x"));
        }
        let sequences: Vec<_> = quarantine.into_list().entries.iter().map(|entry| entry.sequence.get()).collect();
        assert_eq!(sequences, [2, 3]);
    }

    #[test]
    fn an_entry_is_small_whatever_the_record_is() {
        let mut quarantine = Quarantine::since(None);
        let long = "x".repeat(100_000);
        let event = event(&long, &long, "shop/checkout").replace("/c/1", &long);
        let _ = quarantine.fold(&record(1, &format!("decklog.{long}"), event.as_bytes()));
        let _ = quarantine.fold(&record(2, RIGHT, event.replace("time", "id").as_bytes()));
        let list = quarantine.into_list();
        assert_eq!(list.entries.len(), 2);
        let size = serde_json::to_vec(&list).expect("it is JSON").len();
        assert!(size < 20_000, "{size}");
    }

    #[test]
    fn the_same_event_in_its_place_is_found() {
        let bytes = event("1", "dev.decklog.ReleaseDeleted.v1", "shop/checkout");
        let mut inspection = Inspection::of(record(2, &RIGHT.replace("checkout", "cart"), bytes.as_bytes()));
        assert_eq!(inspection.scope(), Some(Scope::Release(ReleaseKey::new("default", "shop", "checkout"))));
        let other = event("2", "dev.decklog.ReleaseDeleted.v1", "shop/checkout");
        let _ = inspection.fold(&record(3, RIGHT, other.as_bytes()));
        let _ = inspection.fold(&record(4, &RIGHT.replace("release.R", "projector.R"), bytes.as_bytes()));
        let _ = inspection.fold(&record(5, RIGHT, bytes.as_bytes()));
        let _ = inspection.fold(&record(6, RIGHT, bytes.as_bytes()));
        let Inspected::Quarantined(found) = inspection.into_answer() else { panic!("it is in quarantine") };
        assert_eq!((found.placed, found.entry.expected.as_deref()), (Sequence::new(5), Some(RIGHT)));
        assert_eq!(found.bytes, bytes.as_bytes());
    }

    #[test]
    fn nothing_is_looked_for_where_nothing_can_be_retried() {
        assert_eq!(Inspection::of(record(1, RIGHT, b"x")).scope(), None);
        let right = event("1", "dev.decklog.ReleaseDeleted.v1", "shop/checkout");
        let inspection = Inspection::of(record(1, RIGHT, right.as_bytes()));
        assert_eq!(inspection.scope(), None);
        let understood = Inspected::Understood { subject: RIGHT.to_owned(), summary: "deleted".to_owned() };
        assert_eq!(inspection.into_answer(), understood);
    }
}
