//! What a writer gets for an event: a handle, and then whether the log has it.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use decklog_engine::log::Appended;
use decklog_schemas::{Sequence, WriterSeq};

use crate::writer::Inner;
use crate::writer::lanes::{Answer, Event, Fate};

/// An event that was handed over; await it to learn whether the log has it.
///
/// Many may be awaited at once. Dropping it takes nothing back, but then nobody learns that the event was refused:
/// that is logged and counted, see [`Writer::dropped_handles`](crate::Writer::dropped_handles).
#[must_use = "whether the event is stored is known only when this was awaited"]
#[derive(Debug)]
pub struct Pending {
    inner: Arc<Inner>,
    event: Arc<Event>,
    answer: Answer,
    is_answered: bool,
}

/// The log has the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// It was stored.
    Stored {
        /// Its place.
        sequence: Sequence,
    },
    /// The log had it before: an earlier attempt to send it was stored after all.
    Duplicate {
        /// Its place.
        sequence: Sequence,
    },
}

/// The log does not have the event, or nobody knows whether it has.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Not stored: the release has another tail than the event expects. Read the release again, and decide again.
    #[error("the event expects another tail of its release than {}", tail_of(.tail))]
    Conflict {
        /// The tail of the release; none if it has no record.
        tail: Option<Sequence>,
    },
    /// Not stored, and never will be: the login lacks the permission, or the server or the stream does not take it.
    #[error("the log refuses the event: {reason}")]
    Refused {
        /// Why, in words.
        reason: String,
    },
    /// It may be stored or not, and its release is halted until it is sent again or given up.
    #[error(transparent)]
    Unknown(Unsettled),
    /// It was unknown, and then given up: it may be stored or not, and is not sent again.
    #[error("the event was given up, and may be stored or not")]
    GivenUp,
}

/// An event of which nobody knows whether the log has it. Its release is halted: newer events of this writer are
/// rejected with [`SendError::Blocked`](crate::SendError::Blocked), for if they were stored first, the fold would take
/// this one for a duplicate.
///
/// The writer keeps the event, and whatever was handed over behind it. Dropping this decides nothing.
#[derive(Clone, Debug)]
pub struct Unsettled {
    inner: Arc<Inner>,
    event: Arc<Event>,
    reason: String,
}

/// How long [`Pending::insist`] waits before it sends again. An attempt by itself takes many seconds.
const PAUSE: Duration = Duration::from_secs(1);

// === impl Pending ===

impl Future for Pending {
    type Output = Result<Written, WriteError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let fate = ready!(Pin::new(&mut self.answer).poll(context));
        self.is_answered = true;
        let unknown = |reason| {
            Err(WriteError::Unknown(Unsettled { inner: self.inner.clone(), event: self.event.clone(), reason }))
        };
        Poll::Ready(match fate {
            Ok(Fate::Answered(Appended::Stored { sequence })) => Ok(Written::Stored { sequence }),
            Ok(Fate::Answered(Appended::Duplicate { sequence })) => Ok(Written::Duplicate { sequence }),
            Ok(Fate::Answered(Appended::Conflict { tail })) => Err(WriteError::Conflict { tail }),
            Ok(Fate::Answered(Appended::Refused { reason })) => Err(WriteError::Refused { reason }),
            Ok(Fate::Answered(Appended::Unknown { reason })) => unknown(reason),
            Ok(Fate::GivenUp) => Err(WriteError::GivenUp),
            Err(_) => unknown("the writer's task has ended".to_owned()),
        })
    }
}

impl Pending {
    pub(super) fn new(inner: Arc<Inner>, event: Arc<Event>) -> Self {
        Self { inner, answer: event.answer(), event, is_answered: false }
    }

    /// Waits until it is known whether the log has the event, and sends it again as long as it is not: with it, in their
    /// order, whatever else of its release is unsettled.
    ///
    /// This waits out a server that is away, for hours if need be. Bound it with a time-out where that is too long: what
    /// is unsettled then stays with the writer.
    ///
    /// # Errors
    /// As the handle itself; [`WriteError::Unknown`] only if the log was dropped or has failed for good.
    pub async fn insist(mut self) -> Result<Written, WriteError> {
        loop {
            match (&mut self).await {
                Err(WriteError::Unknown(unsettled)) if !self.inner.has_stopped() => {
                    tokio::time::sleep(PAUSE).await;
                    self = unsettled.resend();
                }
                known => return known,
            }
        }
    }

    /// `id` of the event, a UUID.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.event.new.id
    }

    /// `writerseq` of the event.
    #[must_use]
    pub fn writer_seq(&self) -> WriterSeq {
        self.event.seq
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.is_answered {
            self.inner.dropped.fetch_add(1, Ordering::Relaxed);
            let Event { seq, new, .. } = &*self.event;
            tracing::warn!(
                subject = %new.subject, event.id = %new.id, writerseq = %seq,
                "Handle of a written event was dropped; nobody learns whether the event is stored"
            );
        }
    }
}

// === impl Written ===

impl Written {
    /// The place of the event in the log.
    #[must_use]
    pub fn sequence(self) -> Sequence {
        match self {
            Self::Stored { sequence } | Self::Duplicate { sequence } => sequence,
        }
    }
}

fn tail_of(tail: &Option<Sequence>) -> String {
    tail.map_or("none".to_owned(), |tail| tail.to_string())
}

// === impl Unsettled ===

impl Unsettled {
    pub(super) fn new(inner: Arc<Inner>, event: Arc<Event>, reason: String) -> Self {
        Self { inner, event, reason }
    }

    /// Sends the same event again, with the same id, `writerseq` and bytes; and with it, in their order, whatever else of
    /// its release is unsettled. From then on newer events of the release are taken again.
    ///
    /// If somebody else has sent it again before, or given it up, the handle tells what became of it.
    pub fn resend(&self) -> Pending {
        self.inner.resend(&self.event.lane);
        Pending::new(self.inner.clone(), self.event.clone())
    }

    /// Gives up this event: it may be stored or not, and is not sent again. Newer events of the release are taken when
    /// nothing else of it is unsettled. Does nothing if the event was sent again or given up before.
    pub fn give_up(&self) {
        self.inner.give_up(&self.event.lane, Some(&self.event));
    }

    /// Why nobody knows, in words.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// `id` of the event, a UUID.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.event.new.id
    }

    /// `writerseq` of the event.
    #[must_use]
    pub fn writer_seq(&self) -> WriterSeq {
        self.event.seq
    }
}

impl fmt::Display for Unsettled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Event { lane, new, .. } = &*self.event;
        write!(f, "nobody knows whether the event {} of {lane} is stored: {}", new.id, self.reason)
    }
}

impl std::error::Error for Unsettled {}
