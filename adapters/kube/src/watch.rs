//! A watch over objects of one kind in all namespaces: it waits for the kind to be installed and for the right to see it,
//! begins with a list whenever it was broken off, never ends, and tells once what is wrong.

use std::fmt::Debug;
use std::time::Duration;

use futures::stream::{BoxStream, Stream, StreamExt as _, unfold};
use kube::Resource;
use kube::api::{Api, ListParams};
use kube::runtime::utils::Backoff as _;
use kube::runtime::watcher::{self, DefaultBackoff, Event, watcher};
use serde::de::DeserializeOwned;

use crate::answer::Trouble;

/// What is watched.
#[derive(Clone, Debug)]
pub(crate) struct Watched<K> {
    pub(crate) api: Api<K>,
    /// The objects, and the resource that they are of, for people.
    pub(crate) name: &'static str,
    pub(crate) resource: String,
    /// How many objects a list brings at once.
    pub(crate) page_size: u32,
    pub(crate) unserved: Unserved,
    /// What follows as long as nothing is seen, such as `inventories are applied without them`.
    pub(crate) meanwhile: &'static str,
}

/// What it means that the kind is not installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unserved {
    /// It may be so.
    Usual,
    /// Somebody has taken it away.
    Wrong,
}

/// A watch, or the attempt to begin one.
struct Source<K> {
    watched: Watched<K>,
    /// None before the kind is served and we may see it.
    events: Option<BoxStream<'static, watcher::Result<Event<K>>>>,
    backoff: DefaultBackoff,
    /// What was last said to be wrong.
    complaint: Option<Trouble>,
}

/// How often is looked whether a kind has been installed that may be missing.
const LOOK: Duration = Duration::from_secs(30);

/// How often is looked whether somebody has put right what only people can.
const ADMIN_LOOK: Duration = Duration::from_secs(5);

/// All objects, and what becomes of them.
pub(crate) fn watch<K>(watched: Watched<K>) -> impl Stream<Item = Event<K>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let source = Source { watched, events: None, backoff: DefaultBackoff::default(), complaint: None };
    unfold(source, |mut source| async move { Some((source.next().await, source)) })
}

impl<K> Source<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    async fn next(&mut self) -> Event<K> {
        loop {
            let error = match &mut self.events {
                None => match self.watched.api.list_metadata(&ListParams::default().limit(1)).await {
                    Ok(_) => {
                        let config = watcher::Config::default().page_size(self.watched.page_size);
                        self.events = Some(watcher(self.watched.api.clone(), config).boxed());
                        continue;
                    }
                    Err(error) => watcher::Error::InitialListFailed(error),
                },
                Some(events) => match events.next().await {
                    Some(Ok(event)) => {
                        // Of a list that has begun it is not known whether it comes to its end.
                        if !matches!(event, Event::Init | Event::InitApply(_)) {
                            self.is_well();
                        }
                        return event;
                    }
                    Some(Err(error)) => error,
                    None => {
                        self.events = None;
                        continue;
                    }
                },
            };
            // The store may have been put back to a backup meanwhile. Then a watch that goes on at a version of before
            // would be silent until there is such a version again, and nobody would say so.
            self.events = None;
            let pause = self.complain(&error);
            tokio::time::sleep(pause).await;
        }
    }

    /// Says what is wrong, once, and how long to wait.
    fn complain(&mut self, error: &watcher::Error) -> Duration {
        let trouble = trouble_of(error);
        let Watched { name, resource, unserved, meanwhile, .. } = &self.watched;
        let is_new = self.complaint.as_ref().map(std::mem::discriminant) != Some(std::mem::discriminant(&trouble));
        let pause = match (&trouble, unserved) {
            (Trouble::NotServed, Unserved::Usual) => LOOK,
            (Trouble::NotServed, Unserved::Wrong) | (Trouble::Forbidden { .. }, _) => ADMIN_LOOK,
            _ => self.backoff.next().unwrap_or(LOOK),
        };
        match (&trouble, unserved) {
            // It belongs to a watch that it is too far behind at times.
            _ if is_expired(error) => {
                tracing::debug!(%resource, %error, "{name} are listed anew");
                return pause;
            }
            _ if !is_new => tracing::debug!(%resource, error = %trouble, "{name} cannot be watched"),
            (Trouble::NotServed, Unserved::Usual) => tracing::info!(
                %resource,
                "Cluster has no {name}, as their definition is not installed: {meanwhile}, and it is looked for them again"
            ),
            (Trouble::Forbidden { .. }, _) => tracing::warn!(
                %resource, error = %trouble,
                "{name} cannot be watched: allow get, list, watch and patch on them in all namespaces; until then {meanwhile}"
            ),
            _ => {
                tracing::warn!(%resource, error = %trouble, "{name} cannot be watched, and it is tried again; until then {meanwhile}")
            }
        }
        self.complaint = Some(trouble);
        pause
    }

    fn is_well(&mut self) {
        self.backoff.reset();
        if self.complaint.take().is_some() {
            tracing::info!(resource = %self.watched.resource, "{} are watched", self.watched.name);
        }
    }
}

/// Whether the server does not remember what came after the version that was asked for.
fn is_expired(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::WatchError(status) => status.code == 410,
        watcher::Error::WatchStartFailed(kube::Error::Api(status)) => status.code == 410,
        _ => false,
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
