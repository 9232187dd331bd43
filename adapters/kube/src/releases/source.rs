//! Where Releases come from: a watch that waits for the kind to be installed and for the right to see it.

use std::time::Duration;

use futures::stream::{BoxStream, Stream, StreamExt as _, unfold};
use kube::api::{Api, ListParams};
use kube::runtime::utils::Backoff as _;
use kube::runtime::watcher::{self, DefaultBackoff, Event, watcher};

use super::{Metadata, Resource};
use crate::answer::Trouble;

/// What a watch says.
pub(crate) type Seen = Event<Metadata>;

/// A watch, or the attempt to begin one.
struct Source {
    api: Api<Metadata>,
    resource: Resource,
    /// None before the kind is served and we may see it.
    watched: Option<BoxStream<'static, watcher::Result<Seen>>>,
    backoff: DefaultBackoff,
    /// What was last said to be wrong.
    complaint: Option<Trouble>,
}

/// How often is looked whether the kind has been installed.
const LOOK: Duration = Duration::from_secs(30);

/// How often is looked whether somebody has given us the right.
const ADMIN_LOOK: Duration = Duration::from_secs(5);

/// All Releases of a cluster, and what becomes of them. It ends never, and what is wrong is told once.
pub(crate) fn watch(api: Api<Metadata>, resource: Resource) -> impl Stream<Item = Seen> {
    let source = Source { api, resource, watched: None, backoff: DefaultBackoff::default(), complaint: None };
    unfold(source, |mut source| async move { Some((source.next().await, source)) })
}

impl Source {
    async fn next(&mut self) -> Seen {
        loop {
            let trouble = match &mut self.watched {
                None => match self.api.list(&ListParams::default().limit(1)).await {
                    Ok(_) => {
                        self.watched = Some(watcher(self.api.clone(), watcher::Config::default()).boxed());
                        continue;
                    }
                    Err(error) => Trouble::of(&error),
                },
                Some(watched) => match watched.next().await {
                    Some(Ok(event)) => {
                        if !matches!(event, Event::Init) {
                            self.is_well();
                        }
                        return event;
                    }
                    Some(Err(error)) => trouble_of(&error),
                    None => {
                        self.watched = None;
                        continue;
                    }
                },
            };
            let pause = self.complain(trouble);
            tokio::time::sleep(pause).await;
        }
    }

    /// Says what is wrong, once, and how long to wait.
    fn complain(&mut self, trouble: Trouble) -> Duration {
        let resource = &self.resource;
        let is_new = self.complaint.as_ref().map(std::mem::discriminant) != Some(std::mem::discriminant(&trouble));
        let pause = match &trouble {
            Trouble::NotServed => LOOK,
            Trouble::Forbidden { .. } => ADMIN_LOOK,
            _ => self.backoff.next().unwrap_or(LOOK),
        };
        match &trouble {
            _ if !is_new => tracing::debug!(%resource, error = %trouble, "Releases cannot be watched"),
            Trouble::NotServed => tracing::info!(
                %resource,
                "Cluster has no Releases, as their definition is not installed: inventories are applied without them, \
                 and it is looked for them again"
            ),
            Trouble::Forbidden { .. } => tracing::warn!(
                %resource, error = %trouble,
                "Releases cannot be watched: allow get, list, watch and patch on them in all namespaces; until then \
                 inventories are applied without them"
            ),
            _ => tracing::warn!(%resource, error = %trouble, "Releases cannot be watched, and it is tried again"),
        }
        // The watch would ask again at once, and say itself each time that it may not.
        if matches!(trouble, Trouble::NotServed | Trouble::Forbidden { .. }) {
            self.watched = None;
        }
        self.complaint = Some(trouble);
        pause
    }

    fn is_well(&mut self) {
        self.backoff.reset();
        if self.complaint.take().is_some() {
            tracing::info!(resource = %self.resource, "Releases are watched");
        }
    }
}

fn trouble_of(error: &watcher::Error) -> Trouble {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => Trouble::of(error),
        watcher::Error::WatchError(status) => Trouble::of_status(status),
        watcher::Error::NoResourceVersion => Trouble::Unknown { message: error.to_string() },
    }
}
