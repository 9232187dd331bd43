//! Reading back: what became of an event whose answer does not say it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use decklog_engine::log::{Appended, ExpectedTail};
use decklog_schemas::Sequence;
use serde_json::{Value, json};

use crate::api::ApiError;
use crate::connect::{Connection, Denial};
use crate::stored::{Stored, request, stored};

/// Asks the leader of the stream, for a replica may not have heard of the event yet.
#[derive(Clone, Debug)]
pub(crate) struct Readback {
    connection: Connection,
    stream: Arc<str>,
    /// Whether this login may read messages. Writers need not be allowed to.
    is_allowed: Arc<AtomicBool>,
}

/// Whether an event may have been stored by an attempt that was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    First,
    Later,
}

/// What was found.
#[derive(Debug)]
pub(crate) enum Resolved {
    /// This became of it.
    Answer(Appended),
    /// It is not stored, and nothing speaks against it.
    SendAgain(String),
}

impl Readback {
    pub(crate) fn new(connection: Connection, stream: &str) -> Self {
        Self { connection, stream: stream.into(), is_allowed: Arc::new(AtomicBool::new(true)) }
    }

    /// The server says that it has the id of an event, at a place. It remembers ids also of messages that are deleted.
    pub(crate) async fn duplicate(&self, id: &str, sequence: Sequence) -> Resolved {
        let duplicate = Resolved::Answer(Appended::Duplicate { sequence });
        match self.get(&json!({ "seq": sequence.get() })).await {
            Ok(Some(there)) if there.id().as_deref() == Some(id) => duplicate,
            Ok(_) => Resolved::Answer(Appended::Refused {
                reason: format!(
                    "the server takes it for the event at {sequence}, which was deleted: send it with another id, or \
                     again when the stream's duplicate window is over"
                ),
            }),
            Err(ApiError::Denied(_)) => duplicate,
            Err(error) => Resolved::SendAgain(error.to_string()),
        }
    }

    /// The tail of the release was not the expected one: it is a conflict, unless it is the event itself that is there.
    pub(crate) async fn conflict(&self, id: &str, filter: &str, expected: ExpectedTail, attempt: Attempt) -> Resolved {
        match self.find(id, filter, expected).await {
            Ok(resolved) => resolved,
            Err(ApiError::Denied(_)) => {
                let reason = "the release has another tail than expected, or has the event already; this login may \
                              not read which"
                    .to_owned();
                Resolved::Answer(match attempt {
                    Attempt::First => Appended::Refused { reason },
                    Attempt::Later => Appended::Unknown { reason },
                })
            }
            Err(error) => Resolved::SendAgain(error.to_string()),
        }
    }

    async fn find(&self, id: &str, filter: &str, expected: ExpectedTail) -> Result<Resolved, ApiError> {
        // If it was stored with this expectation, it stands right behind the expected tail.
        let behind = match expected {
            ExpectedTail::Any => None,
            ExpectedTail::Empty => Some(1),
            ExpectedTail::At(sequence) => Some(sequence.next().get()),
        };
        let next = match behind {
            Some(seq) => self.get(&json!({ "seq": seq, "next_by_subj": filter })).await?,
            None => None,
        };
        let last = self.get(&json!({ "last_by_subj": filter })).await?;
        for there in [&next, &last].into_iter().flatten() {
            if let (Some(sequence), true) = (Sequence::new(there.seq), there.id().as_deref() == Some(id)) {
                return Ok(Resolved::Answer(Appended::Duplicate { sequence }));
            }
        }
        let tail = last.and_then(|last| Sequence::new(last.seq));
        let is_expected = match expected {
            ExpectedTail::Any => true,
            ExpectedTail::Empty => tail.is_none(),
            ExpectedTail::At(sequence) => tail == Some(sequence),
        };
        // In a cluster another event of the release may have been on its way, and come to nothing.
        Ok(if is_expected {
            Resolved::SendAgain("another event of the release is being stored".to_owned())
        } else {
            Resolved::Answer(Appended::Conflict { tail })
        })
    }

    async fn get(&self, which: &Value) -> Result<Option<Stored>, ApiError> {
        if !self.is_allowed.load(Ordering::Relaxed) {
            return Err(ApiError::Denied(Denial { verb: "publish to", subject: request(&self.stream) }));
        }
        let found = stored(&self.connection, &self.stream, which).await;
        if matches!(found, Err(ApiError::Denied(_))) {
            self.is_allowed.store(false, Ordering::Relaxed);
        }
        found
    }
}
