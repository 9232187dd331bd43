//! The sink of an engine that feeds an applier: it only says which releases have changed.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use decklog_engine::service::{Sink, SinkError};
use decklog_projections::inventory::Inventories;
use decklog_schemas::ReleaseKey;
use tokio::sync::Notify;

/// Tells those who listen which releases have changed. What they are then, they ask themselves.
#[derive(Debug, Default)]
pub struct Changes(Vec<Arc<Inbox>>);

/// Which releases have changed since somebody last asked: each once, however often it changed and however long nobody
/// asks.
#[derive(Debug)]
pub struct Marks(Arc<Inbox>);

#[derive(Debug, Default)]
struct Inbox {
    keys: Mutex<HashSet<ReleaseKey>>,
    more: Notify,
}

// === impl Changes ===

impl Changes {
    /// Somebody more who is told of what changes from now on.
    #[must_use]
    pub fn listen(&mut self) -> Marks {
        let inbox = Arc::<Inbox>::default();
        self.0.push(Arc::clone(&inbox));
        Marks(inbox)
    }

    fn tell(&self, changed: &[ReleaseKey]) {
        for inbox in &self.0 {
            inbox.keys().extend(changed.iter().cloned());
            inbox.more.notify_one();
        }
    }
}

impl Sink<Inventories> for Changes {
    async fn project(&mut self, inventories: &mut Inventories) -> Result<(), SinkError> {
        let changed = inventories.take_changed();
        if !changed.is_empty() {
            self.tell(&changed);
        }
        Ok(())
    }
}

// === impl Marks ===

impl Marks {
    /// Waits until there are any, and takes them.
    pub(crate) async fn take(&mut self) -> HashSet<ReleaseKey> {
        loop {
            let keys = std::mem::take(&mut *self.0.keys());
            if !keys.is_empty() {
                return keys;
            }
            self.0.more.notified().await;
        }
    }
}

// === impl Inbox ===

impl Inbox {
    fn keys(&self) -> MutexGuard<'_, HashSet<ReleaseKey>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn everybody_is_told_of_each_once() {
        let mut changes = Changes::default();
        let mut listeners = [changes.listen(), changes.listen()];
        let key = |name| ReleaseKey::new("default", "shop", name);
        for name in ["a", "b", "a"] {
            changes.tell(&[key(name)]);
        }
        for marks in &mut listeners {
            assert_eq!(marks.take().await, HashSet::from([key("a"), key("b")]));
        }
        changes.tell(&[key("c")]);
        assert_eq!(listeners[1].take().await, HashSet::from([key("c")]));
    }
}
