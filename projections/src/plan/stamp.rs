//! The stamp: from which log, and from how much of it, a body was made.

use std::fmt;

use decklog_schemas::Sequence;

use super::manager::FieldManager;
use super::observed::Observed;
use super::{Desired, OtherLog};

/// Which log a body was made from, and the last event of the release in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Identity of the log.
    pub log: String,
    /// Sequence of the event.
    pub sequence: Sequence,
}

/// The object says that the log is not the one it was made from, or not all of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StampError {
    /// It was made from another log.
    #[error("it was made from the log {found}, and this is the log {log}")]
    OtherLog {
        /// Identity of that log.
        found: String,
        /// Identity of this one.
        log: String,
    },
    /// It was made from more of this log than was folded.
    #[error("it was made from the log up to sequence {found}, and here the log ends at {}", .folded.map_or(0, Sequence::get))]
    Ahead {
        /// How far it was folded then.
        found: Sequence,
        /// How far it is folded here; none for an empty log.
        folded: Option<Sequence>,
    },
}

/// The annotation in which a manager puts its stamp.
#[must_use]
pub fn annotation(manager: FieldManager) -> String {
    format!("{manager}.decklog.dev/log")
}

pub(super) fn check(desired: &Desired, observed: &Observed, other: OtherLog) -> Result<(), StampError> {
    for stamp in observed.stamps() {
        stamp.check(&desired.stamp.log, Some(desired.folded), other)?;
    }
    Ok(())
}

// === impl Stamp ===

impl Stamp {
    /// Whether a projector of a log, of which it has folded so much, may replace what the stamp is on.
    ///
    /// # Errors
    /// It may not: what it would put there is of another log, or older.
    pub fn check(&self, log: &str, folded: Option<Sequence>, other: OtherLog) -> Result<(), StampError> {
        if self.log != log {
            return match other {
                OtherLog::Refuse => Err(StampError::OtherLog { found: self.log.clone(), log: log.to_owned() }),
                OtherLog::Adopt | OtherLog::Indistinct => Ok(()),
            };
        }
        if Some(self.sequence) > folded {
            return Err(StampError::Ahead { found: self.sequence, folded });
        }
        Ok(())
    }

    /// What each manager has stamped, in the order of [`FieldManager::ALL`], by the values of annotations.
    pub fn of_all<'a>(value: impl Fn(&str) -> Option<&'a str>) -> [Option<Self>; 4] {
        FieldManager::ALL.map(|manager| Self::parse(value(&annotation(manager))?))
    }

    /// What an annotation says; none if it is no stamp.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (log, sequence) = text.rsplit_once('/')?;
        let sequence = Sequence::new(sequence.parse().ok()?)?;
        (!log.is_empty()).then(|| Self { log: log.to_owned(), sequence })
    }
}

/// `<log>/<sequence>`.
impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.log, self.sequence)
    }
}
