//! What people and programs get back about quarantine: the records of a log that no fold can use, each with its reason.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::names::Sequence;

/// The records of a range of the log that are in quarantine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuarantineList {
    /// How many there are of each kind, listed or not.
    pub counts: BTreeMap<QuarantineKind, u64>,
    /// How many older ones are counted and not listed.
    pub omitted: u64,
    /// The newest ones, in the order of the log.
    pub entries: Vec<QuarantineEntry>,
}

/// What kind of trouble a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QuarantineKind {
    /// The bytes are not an event.
    Malformed,
    /// The event names no release.
    Unplaced,
    /// It stands under a subject that is none of decklog's.
    ForeignSubject,
    /// It stands under the subject of another release, or of another writer's domain.
    WrongSubject,
    /// An event in its place, of a type or a major version that this build does not know.
    Unsupported,
}

/// One record that is in quarantine. Texts are cut at 1,024 bytes; the record itself is not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuarantineEntry {
    /// Its place in the log.
    pub sequence: Sequence,
    /// When the log took it, RFC 3339.
    pub recorded: String,
    /// The subject that it stands under; empty in a log whose subjects come from the events, such as a file of lines.
    pub subject: String,
    /// How many bytes it has.
    pub size: usize,
    /// Of what kind the trouble is.
    pub kind: QuarantineKind,
    /// What is wrong, in words.
    pub reason: String,
    /// The subject that the event belongs under, if it stands under another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// CloudEvents `id`, if it can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// CloudEvents `type`, if it can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r#type: Option<String>,
    /// CloudEvents `source`, if it can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

/// What there is at a place of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum Inspected {
    /// A record that is in quarantine.
    Quarantined(QuarantinedRecord),
    /// An event in its place, which the fold understands, if only to ignore it.
    Understood {
        /// The subject that it stands under.
        subject: String,
        /// What it says, in one line; for an invalid event, what is wrong.
        summary: String,
    },
    /// Nothing: the log ends before, or what was there was taken out.
    Absent {
        /// The last sequence of the log; none if it is empty.
        tail: Option<Sequence>,
    },
}

/// One record that is in quarantine, with its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuarantinedRecord {
    /// What is known of it.
    #[serde(flatten)]
    pub entry: QuarantineEntry,
    /// Where the same event stands under its right subject, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placed: Option<Sequence>,
    /// The record, byte for byte.
    #[serde(rename = "base64", serialize_with = "to_base64", deserialize_with = "from_base64")]
    pub bytes: Vec<u8>,
}

// === impl QuarantineKind ===

impl QuarantineKind {
    /// The kind as it is spelled everywhere, such as `wrong-subject`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Unplaced => "unplaced",
            Self::ForeignSubject => "foreign-subject",
            Self::WrongSubject => "wrong-subject",
            Self::Unsupported => "unsupported",
        }
    }
}

impl fmt::Display for QuarantineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

fn to_base64<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&BASE64_STANDARD.encode(bytes))
}

fn from_base64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    BASE64_STANDARD.decode(text).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_back_byte_for_byte() {
        let entry = QuarantineEntry {
            sequence: Sequence::FIRST,
            recorded: "2026-03-02T14:03:00Z".to_owned(),
            subject: String::new(),
            size: 256,
            kind: QuarantineKind::ForeignSubject,
            reason: "why".to_owned(),
            expected: None,
            id: None,
            r#type: Some("t".to_owned()),
            source: None,
        };
        let record = QuarantinedRecord { entry, placed: None, bytes: (0..=255).collect() };
        for answer in [
            Inspected::Quarantined(record),
            Inspected::Understood { subject: "s".to_owned(), summary: "deleted".to_owned() },
            Inspected::Absent { tail: None },
        ] {
            let text = serde_json::to_string(&answer).expect("answers are JSON");
            assert_eq!(serde_json::from_str::<Inspected>(&text).expect("it is one"), answer, "{text}");
        }
    }
}
