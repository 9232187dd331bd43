//! A record: one event where it stands in a log, its bytes as they were received.

use std::borrow::Cow;

use crate::envelope::{Envelope, Malformed};
use crate::names::Sequence;
use crate::subject::{ReleaseTokens, Subject, Unplaced, deployment_fits, domain_fits, place, release_of};
use crate::time::Seconds;

/// One event in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its place.
    pub sequence: Sequence,
    /// When the log took it: the log's clock.
    pub recorded: jiff::Timestamp,
    /// The subject it was appended under; empty where the subject comes from the event, and the event has none.
    pub subject: Cow<'a, str>,
    /// The event, byte for byte.
    pub bytes: Cow<'a, [u8]>,
}

/// A record's event, well-formed and in its right place.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed<'r> {
    /// What the record is about.
    pub about: About<'r>,
    /// The event, not yet validated.
    pub envelope: Envelope<'r>,
}

/// What a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About<'r> {
    /// A release.
    Release(ReleaseTokens<'r>),
    /// A CI deployment.
    Deployment,
}

/// Why a record takes part in no state: it is kept, counted and shown, and reading goes on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Quarantined {
    /// The bytes are not an event.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The event names no release.
    #[error(transparent)]
    Unplaced(#[from] Unplaced),
    /// The subject is none of ours.
    #[error("the subject {subject:?} is none of decklog's")]
    ForeignSubject {
        /// The subject of the record.
        subject: String,
    },
    /// The event stands under the subject of another release, or of another writer's domain.
    #[error("the event belongs under the subject {expected:?} and stands under {subject:?}")]
    WrongSubject {
        /// The subject of the record.
        subject: String,
        /// The subject that the event belongs under.
        expected: String,
    },
}

impl<'a> Record<'a> {
    /// The record that an event makes at a place of a log that has no subjects and no clock of its own, such as a
    /// file of JSON lines: the subject comes from the event, and the recorded time is the event's `time`.
    ///
    /// # Errors
    /// The bytes are not an event, or name no release.
    pub fn of_event(sequence: Sequence, bytes: &'a [u8]) -> Result<Self, Quarantined> {
        let envelope = Envelope::decode(bytes)?;
        let recorded = envelope.time().and_then(|time| Seconds::parse_timestamp(time).ok());
        Ok(Self {
            sequence,
            recorded: recorded.unwrap_or(jiff::Timestamp::UNIX_EPOCH),
            subject: place(&envelope)?.into(),
            bytes: bytes.into(),
        })
    }

    /// Reads the event and compares it with the place where it stands.
    ///
    /// # Errors
    /// The bytes are not an event, or the event does not belong under the record's subject.
    pub fn open(&self) -> Result<Placed<'_>, Quarantined> {
        let envelope = Envelope::decode(&self.bytes)?;
        let about = match Subject::parse(&self.subject) {
            None if self.subject.is_empty() => return Err(self.wrong_subject(&envelope)),
            None => {
                return Err(Quarantined::ForeignSubject { subject: self.subject.to_string() });
            }
            Some(Subject::Deployment) if deployment_fits(envelope.wire_type()) => About::Deployment,
            Some(Subject::Deployment) => return Err(self.wrong_subject(&envelope)),
            Some(Subject::Release { release, domain, event_type: _ }) => {
                let (namespace, name) = release_of(&envelope)?;
                if !release.name(envelope.cluster(), namespace, name) || !domain_fits(domain, envelope.wire_type()) {
                    return Err(self.wrong_subject(&envelope));
                }
                About::Release(release)
            }
        };
        Ok(Placed { about, envelope })
    }

    /// The same record without a tie to what it was read from.
    #[must_use]
    pub fn into_static(self) -> Record<'static> {
        Record {
            sequence: self.sequence,
            recorded: self.recorded,
            subject: Cow::Owned(self.subject.into_owned()),
            bytes: Cow::Owned(self.bytes.into_owned()),
        }
    }

    fn wrong_subject(&self, envelope: &Envelope<'_>) -> Quarantined {
        match place(envelope) {
            Ok(expected) => Quarantined::WrongSubject { subject: self.subject.to_string(), expected },
            Err(unplaced) => unplaced.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(subject: &str, is_right: bool) {
        let event = br#"{"specversion":"1.0","id":"1","source":"/c/1","type":"dev.decklog.ReleaseDeleted.v1","subject":"shop/caf\u00e9","time":"2026-03-02T10:00:00Z"}"#;
        let record = Record { subject: subject.into(), ..Record::of_event(Sequence::FIRST, event).expect("it is one") };
        assert_eq!(record.open().is_ok(), is_right, "{subject}");
    }

    #[test]
    fn a_release_stands_under_the_one_form_of_its_tokens() {
        check("decklog.release.default.shop.caf%C3%A9.release.ReleaseDeleted", true);
        check("decklog.release.default.shop.caf%c3%a9.release.ReleaseDeleted", false);
        check("decklog.release.default.shop.caf\u{e9}.release.ReleaseDeleted", false);
        check("decklog.release.default.shop.cafe.release.ReleaseDeleted", false);
        check("decklog.release.default.shop.caf%C3%A9.hook-status.ReleaseDeleted", false);
    }
}
