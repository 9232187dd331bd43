//! Which Releases the cluster has, as far as it was seen or answered.

use std::collections::HashMap;

use decklog_schemas::ReleaseKey;

use super::decide::{Life, Seen};
use crate::freshness::{Progress, Sighting};

/// Releases by key.
#[derive(Debug, Default)]
pub(crate) struct Present {
    releases: HashMap<ReleaseKey, Known>,
    watch: Progress,
}

/// A Release, or the trace of one that went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    There(Seen),
    /// It went, and nobody has looked yet whether the log knows.
    Gone {
        uid: String,
    },
}

#[derive(Debug)]
struct Known {
    release: Release,
    sighting: Sighting,
}

impl Present {
    /// A list of all Releases begins.
    pub(crate) fn begin_list(&mut self) {
        self.watch.begin_list();
    }

    /// Takes note of a Release that the watch has shown.
    pub(crate) fn see(&mut self, key: &ReleaseKey, seen: Seen) {
        self.watch.reach(&seen.resource_version);
        self.put(key, seen);
    }

    /// Takes note of a Release that an answer has. An answer may come late, when the Release has gone; and what ends
    /// without a finalizer goes with the write that leaves it so.
    pub(crate) fn know(&mut self, key: &ReleaseKey, seen: Seen) {
        let has_gone = match self.releases.get(key) {
            Some(known) => matches!(&known.release, Release::Gone { uid } if *uid == seen.uid),
            None => self.watch.has_passed(&seen.resource_version),
        };
        if has_gone {
            return;
        }
        if seen.life == Life::Ending && seen.finalizers.is_empty() {
            self.forget(key, &seen.uid);
        } else {
            self.put(key, seen);
        }
    }

    fn put(&mut self, key: &ReleaseKey, seen: Seen) {
        match self.releases.get_mut(key) {
            Some(known) => {
                if self.watch.renew(&mut known.sighting, &seen.resource_version) {
                    known.release = Release::There(seen);
                }
            }
            None => {
                let sighting = self.watch.sighting(&seen.resource_version);
                self.releases.insert(key.clone(), Known { release: Release::There(seen), sighting });
            }
        }
    }

    /// Takes note that the watch has shown a Release of a version go. Returns whether it was known.
    pub(crate) fn see_gone(&mut self, key: &ReleaseKey, uid: &str, resource_version: &str) -> bool {
        self.watch.reach(resource_version);
        self.know_gone(key, uid)
    }

    /// Takes note that an answer, or a whole list, says that a Release has gone. Returns whether it was known.
    pub(crate) fn know_gone(&mut self, key: &ReleaseKey, uid: &str) -> bool {
        match self.releases.get_mut(key) {
            Some(Known { release: release @ Release::There(_), .. }) if release.uid() == uid => {
                *release = Release::Gone { uid: uid.to_owned() };
                true
            }
            _ => false,
        }
    }

    /// Forgets a Release, or that it went.
    pub(crate) fn forget(&mut self, key: &ReleaseKey, uid: &str) {
        if self.releases.get(key).is_some_and(|known| known.release.uid() == uid) {
            self.releases.remove(key);
        }
    }

    pub(crate) fn get(&self, key: &ReleaseKey) -> Option<Release> {
        self.releases.get(key).map(|known| known.release.clone())
    }

    pub(crate) fn holds(&self, key: &ReleaseKey) -> bool {
        self.releases.contains_key(key)
    }

    pub(crate) fn keys(&self) -> Vec<ReleaseKey> {
        self.releases.keys().cloned().collect()
    }

    /// What a complete list has not shown, with its uid.
    pub(crate) fn missing(&self) -> Vec<(ReleaseKey, String)> {
        let missing = self.releases.iter().filter(|(_, known)| self.watch.has_missed(&known.sighting));
        missing.map(|(key, known)| (key.clone(), known.release.uid().to_owned())).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> ReleaseKey {
        ReleaseKey::new("default", "shop", "web")
    }

    fn seen(uid: &str, version: &str) -> Seen {
        let (uid, resource_version) = (uid.to_owned(), version.to_owned());
        Seen { uid, resource_version, shard: None, life: Life::Live, finalizers: vec!["other".to_owned()] }
    }

    #[track_caller]
    fn shows(present: &Present, expected: Seen) {
        assert_eq!(present.get(&key()), Some(Release::There(expected)));
    }

    #[test]
    fn the_newest_counts() {
        let mut present = Present::default();
        present.see(&key(), seen("u", "9"));
        present.know(&key(), seen("u", "10"));
        present.see(&key(), seen("u", "9"));
        shows(&present, seen("u", "10"));
    }

    #[test]
    fn an_answer_that_comes_late_brings_nothing_back() {
        let mut present = Present::default();
        present.see(&key(), seen("u", "9"));
        assert!(present.see_gone(&key(), "u", "11"));
        present.know(&key(), seen("u", "10"));
        assert_eq!(present.get(&key()), Some(Release::Gone { uid: "u".to_owned() }));
        present.forget(&key(), "u");
        present.know(&key(), seen("u", "10"));
        assert_eq!(present.get(&key()), None);
        present.know(&key(), seen("v", "12"));
        shows(&present, seen("v", "12"));
    }

    #[test]
    fn what_ends_without_a_finalizer_is_gone_with_the_answer() {
        let mut present = Present::default();
        present.see(&key(), seen("u", "9"));
        present.know(&key(), Seen { life: Life::Ending, finalizers: Vec::new(), ..seen("u", "10") });
        assert_eq!(present.get(&key()), None);
    }

    #[test]
    fn a_list_counts_more_than_what_was_known_before_it() {
        let mut present = Present::default();
        present.see(&key(), seen("u", "90"));
        present.begin_list();
        // The store was put back, and its versions with it.
        present.see(&key(), seen("u", "40"));
        assert_eq!(present.missing(), []);
        shows(&present, seen("u", "40"));
        // Also one that had gone since the backup.
        present.see_gone(&key(), "u", "41");
        present.begin_list();
        present.see(&key(), seen("u", "12"));
        shows(&present, seen("u", "12"));
        present.begin_list();
        assert_eq!(present.missing(), [(key(), "u".to_owned())]);
    }
}
