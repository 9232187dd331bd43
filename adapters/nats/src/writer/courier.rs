//! The task of a writer: takes events to the publisher and answers back, and never leaves one without an answer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use decklog_engine::log::Appended;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::sync::mpsc;

use crate::log::JetStreamLog;
use crate::publish::stopped;
use crate::writer::lanes::{Event, Lanes};

/// Brings the heads of the releases to the publisher, and its answers back.
pub(super) struct Courier {
    pub(super) log: Arc<JetStreamLog>,
    pub(super) state: Arc<State>,
    pub(super) heads: mpsc::UnboundedReceiver<Arc<Event>>,
}

/// What the writer shares with its task.
#[derive(Default)]
pub(super) struct State {
    lanes: Mutex<Lanes>,
    has_stopped: AtomicBool,
}

/// Why an event is unsettled that nobody sends any more.
pub(super) const ENDED: &str = "the writer's task has ended";

// === impl Courier ===

impl Courier {
    pub(super) async fn run(mut self) {
        let mut answers = FuturesUnordered::new();
        loop {
            let next = tokio::select! {
                Some((event, answer)) = answers.next() => self.settle(event, answer),
                Some(head) = self.heads.recv() => Some(head),
                else => return,
            };
            if let Some(event) = next {
                let answer = self.log.publisher().submit(event.new.clone()).await;
                answers.push(async move { (event, answer.wait().await) });
            }
        }
    }

    /// Takes the answer to an event; none if the publisher has stopped. Returns what is to be sent next.
    fn settle(&self, event: Arc<Event>, answer: Option<Appended>) -> Option<Arc<Event>> {
        let answer = answer.unwrap_or_else(|| {
            self.state.has_stopped.store(true, Ordering::Relaxed);
            stopped()
        });
        if let Appended::Unknown { reason } = &answer {
            let Event { lane, seq, new, .. } = &*event;
            tracing::warn!(
                release = %lane, event.id = %new.id, writerseq = %seq, error = %reason,
                "Nobody knows whether an event is stored; newer ones of its release wait"
            );
        }
        self.state.lanes().settle(&event, answer)
    }
}

impl Drop for Courier {
    /// Nobody waits for a task that is gone, as when the runtime ends before the writer.
    fn drop(&mut self) {
        self.state.has_stopped.store(true, Ordering::Relaxed);
        // From here on a launch fails, and settles its event by itself.
        self.heads.close();
        self.state.lanes().halt_all(ENDED);
    }
}

// === impl State ===

impl State {
    /// Nothing waits while it holds the lock.
    pub(super) fn lanes(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether sending again is in vain.
    pub(super) fn has_stopped(&self) -> bool {
        self.has_stopped.load(Ordering::Relaxed)
    }
}
