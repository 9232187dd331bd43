//! The sink of an engine that feeds an applier: it only says which releases have changed.

use decklog_engine::service::{Sink, SinkError};
use decklog_projections::inventory::Inventories;
use decklog_schemas::ReleaseKey;
use tokio::sync::mpsc;

/// Tells an applier which releases have changed. What they are then, it asks itself.
#[derive(Debug)]
pub struct Changes(mpsc::UnboundedSender<Vec<ReleaseKey>>);

/// A sink, and where what it says arrives.
#[must_use]
pub fn changes() -> (Changes, mpsc::UnboundedReceiver<Vec<ReleaseKey>>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (Changes(sender), receiver)
}

impl Sink<Inventories> for Changes {
    async fn project(&mut self, inventories: &mut Inventories) -> Result<(), SinkError> {
        let changed = inventories.take_changed();
        if changed.is_empty() {
            return Ok(());
        }
        self.0.send(changed).map_err(|_| SinkError {
            attempt: "cannot apply what has changed".to_owned(),
            source: "the applier has ended".into(),
        })
    }
}
