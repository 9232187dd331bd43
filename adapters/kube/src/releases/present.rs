//! Which Releases the cluster has, as far as it was seen or answered.

use std::collections::{HashMap, HashSet};

use decklog_schemas::ReleaseKey;

use super::decide::{Life, Seen};

/// Releases by key.
#[derive(Debug, Default)]
pub(crate) struct Present(HashMap<ReleaseKey, Release>);

/// A Release, or the trace of one that went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    There(Seen),
    /// It went, and nobody has looked yet whether the log knows.
    Gone {
        uid: String,
    },
}

impl Present {
    /// Takes note of a Release, unless a newer version of it is known.
    pub(crate) fn put(&mut self, key: &ReleaseKey, seen: Seen) {
        let is_newer = |known: &Seen| is_newer(&known.resource_version, &seen.resource_version);
        if !matches!(self.0.get(key), Some(Release::There(known)) if is_newer(known)) {
            self.0.insert(key.clone(), Release::There(seen));
        }
    }

    /// Takes note of what a write has left. What ends without a finalizer is gone with it.
    pub(crate) fn put_answer(&mut self, key: &ReleaseKey, seen: Seen) {
        if seen.life == Life::Ending && seen.finalizers.is_empty() {
            self.forget(key, &seen.uid);
        } else {
            self.put(key, seen);
        }
    }

    /// Takes note that a Release went. Returns whether it was known.
    pub(crate) fn go(&mut self, key: &ReleaseKey, uid: &str) -> bool {
        match self.0.get_mut(key) {
            Some(release @ Release::There(_)) if release.uid() == uid => {
                *release = Release::Gone { uid: uid.to_owned() };
                true
            }
            _ => false,
        }
    }

    /// Forgets a Release, or that it went.
    pub(crate) fn forget(&mut self, key: &ReleaseKey, uid: &str) {
        if self.0.get(key).is_some_and(|release| release.uid() == uid) {
            self.0.remove(key);
        }
    }

    pub(crate) fn get(&self, key: &ReleaseKey) -> Option<Release> {
        self.0.get(key).cloned()
    }

    pub(crate) fn holds(&self, key: &ReleaseKey) -> bool {
        self.0.contains_key(key)
    }

    pub(crate) fn keys(&self) -> Vec<ReleaseKey> {
        self.0.keys().cloned().collect()
    }

    /// What a complete list did not show, with its uid.
    pub(crate) fn missing(&self, listed: &HashSet<ReleaseKey>) -> Vec<(ReleaseKey, String)> {
        let missing = self.0.iter().filter(|(key, _)| !listed.contains(*key));
        missing.map(|(key, release)| (key.clone(), release.uid().to_owned())).collect()
    }
}

impl Release {
    fn uid(&self) -> &str {
        match self {
            Self::There(seen) => &seen.uid,
            Self::Gone { uid } => uid,
        }
    }
}

/// Whether one version of an object comes after another one: they are numbers, whose order is all that is known of them.
fn is_newer(version: &str, other: &str) -> bool {
    matches!((version.parse::<u64>(), other.parse::<u64>()), (Ok(version), Ok(other)) if version > other)
}
