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
        // Nobody listens while we stop. Whoever runs the applier hears of its end in another way.
        let _ = self.0.send(changed);
        Ok(())
    }
}
