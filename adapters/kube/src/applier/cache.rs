//! What is in the cluster, as far as it was seen or answered: objects as JSON, for there may be many.

use std::collections::HashMap;

use decklog_projections::plan::Observed;
use decklog_schemas::{ReleaseKey, Sequence};

/// Objects by release.
#[derive(Debug)]
pub(crate) struct Cache {
    objects: HashMap<ReleaseKey, Cached>,
    /// What was in line with the log, up to an event of its release, and was then deleted.
    deleted: HashMap<ReleaseKey, Sequence>,
    /// How many lists have begun.
    lists: u64,
    shard_label: String,
}

/// Whether an object says something that was not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Known,
    New,
}

/// How the cluster stands to a release.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Present {
    /// It has this object.
    Object(Box<Observed>),
    /// It has none.
    Nothing,
    /// Nobody knows: it has to be asked.
    Unknown,
}

#[derive(Debug)]
struct Cached {
    resource_version: String,
    json: Box<[u8]>,
    /// Whether something was sent of which nobody knows whether it was done.
    is_doubtful: bool,
    /// The last event of the release with which it was in line.
    settled: Option<Sequence>,
    /// How many lists had begun when this was last seen or answered.
    lists: u64,
}

impl Cache {
    pub(crate) fn new(shard_label: String) -> Self {
        Self { objects: HashMap::new(), deleted: HashMap::new(), lists: 0, shard_label }
    }

    /// A list of all objects begins. What it shows is newer than what was known before, whatever the versions say: they
    /// begin anew with a store that was put back.
    pub(crate) fn begin_list(&mut self) {
        self.lists += 1;
    }

    /// Takes note of an object that was seen, unless a newer one is known. It is written as JSON only if it is news.
    pub(crate) fn see(&mut self, key: &ReleaseKey, resource_version: &str, json: impl FnOnce() -> Vec<u8>) -> Seen {
        let lists = self.lists;
        let (is_doubtful, settled) = match self.objects.get_mut(key) {
            None => (false, None),
            Some(known) => {
                let is_before = std::mem::replace(&mut known.lists, lists) < lists;
                let is_same = known.resource_version == resource_version;
                if is_same || !is_before && !is_newer(resource_version, &known.resource_version) {
                    return Seen::Known;
                }
                (known.is_doubtful, known.settled)
            }
        };
        let (resource_version, json) = (resource_version.to_owned(), json().into_boxed_slice());
        self.objects.insert(key.clone(), Cached { resource_version, json, is_doubtful, settled, lists });
        Seen::New
    }

    /// Takes note of an object that an answer has: what was in doubt before is not any more.
    pub(crate) fn know(&mut self, key: &ReleaseKey, resource_version: &str, json: Vec<u8>) {
        self.see(key, resource_version, || json);
        if let Some(known) = self.objects.get_mut(key) {
            known.is_doubtful = false;
        }
    }

    /// Takes note that the object of a version was seen to go. Returns whether that is news.
    pub(crate) fn see_gone(&mut self, key: &ReleaseKey, resource_version: &str) -> bool {
        match self.objects.get(key) {
            None => false,
            Some(known) if is_newer(&known.resource_version, resource_version) => false,
            // Something may have been made since, which is found out by asking.
            Some(known) if known.is_doubtful => true,
            Some(_) => {
                self.know_gone(key);
                true
            }
        }
    }

    /// Takes note that an answer, or a whole list, says that there is no object.
    pub(crate) fn know_gone(&mut self, key: &ReleaseKey) {
        if let Some(settled) = self.objects.remove(key).and_then(|cached| cached.settled) {
            self.deleted.insert(key.clone(), settled);
        }
    }

    /// Takes note that the cluster is in line with the log, up to an event of the release.
    pub(crate) fn settle(&mut self, key: &ReleaseKey, sequence: Sequence) {
        self.deleted.remove(key);
        if let Some(cached) = self.objects.get_mut(key) {
            cached.settled = Some(sequence);
        }
    }

    /// The last event of a release with which the cluster was in line, whatever has become of its object since.
    pub(crate) fn settled(&self, key: &ReleaseKey) -> Option<Sequence> {
        self.objects.get(key).map_or_else(|| self.deleted.get(key).copied(), |cached| cached.settled)
    }

    /// Something was sent, and nobody knows whether it was done.
    pub(crate) fn doubt(&mut self, key: &ReleaseKey) {
        let (resource_version, json, lists) = (String::new(), Box::default(), self.lists);
        let unknown = Cached { resource_version, json, is_doubtful: true, settled: None, lists };
        let cached = self.objects.entry(key.clone()).or_insert(unknown);
        (cached.is_doubtful, cached.lists) = (true, lists);
    }

    pub(crate) fn get(&self, key: &ReleaseKey) -> Present {
        match self.objects.get(key) {
            None => Present::Nothing,
            Some(cached) if cached.is_doubtful => Present::Unknown,
            Some(cached) => self.read(cached).map_or(Present::Unknown, |observed| Present::Object(Box::new(observed))),
        }
    }

    pub(crate) fn keys(&self) -> Vec<ReleaseKey> {
        self.objects.keys().cloned().collect()
    }

    /// Drops what was known before a list, and is not shown by it. Returns what that was.
    pub(crate) fn end_list(&mut self) -> Vec<ReleaseKey> {
        let is_gone = |(key, cached): (&ReleaseKey, &Cached)| (cached.lists < self.lists).then(|| key.clone());
        let gone: Vec<_> = self.objects.iter().filter_map(is_gone).collect();
        gone.iter().for_each(|key| self.know_gone(key));
        gone
    }

    fn read(&self, cached: &Cached) -> Option<Observed> {
        Observed::read(serde_json::from_slice(&cached.json).ok()?, &self.shard_label).ok()
    }
}

/// Whether one version of an object comes after another one. They are numbers, of which nobody knows more than their
/// order; what is no number counts as newer.
fn is_newer(version: &str, known: &str) -> bool {
    match (version.parse::<u64>(), known.parse::<u64>()) {
        (Ok(version), Ok(known)) => version > known,
        _ => version != known,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key() -> ReleaseKey {
        ReleaseKey::new("default", "shop", "web")
    }

    fn json_of(version: &str) -> Vec<u8> {
        let metadata = json!({ "namespace": "shop", "name": "web", "uid": "u", "resourceVersion": version });
        json!({ "metadata": metadata }).to_string().into_bytes()
    }

    fn see(cache: &mut Cache, version: &str) -> Seen {
        cache.see(&key(), version, || json_of(version))
    }

    #[track_caller]
    fn shows(cache: &Cache, version: &str) {
        match cache.get(&key()) {
            Present::Object(observed) => assert_eq!(observed.resource_version(), version),
            present => panic!("{present:?}"),
        }
    }

    #[test]
    fn the_newest_counts() {
        let mut cache = Cache::new("shard".to_owned());
        assert_eq!(see(&mut cache, "9"), Seen::New);
        cache.know(&key(), "10", json_of("10"));
        assert_eq!((see(&mut cache, "10"), see(&mut cache, "9")), (Seen::Known, Seen::Known));
        assert!(!cache.see_gone(&key(), "9"), "an older one went");
        shows(&cache, "10");
        assert!(cache.see_gone(&key(), "11"));
        assert_eq!(cache.get(&key()), Present::Nothing);
    }

    #[test]
    fn what_is_in_doubt_is_asked_for_whatever_is_seen() {
        let mut cache = Cache::new("shard".to_owned());
        see(&mut cache, "9");
        cache.doubt(&key());
        see(&mut cache, "10");
        assert_eq!(cache.get(&key()), Present::Unknown);
        assert!(cache.see_gone(&key(), "11"));
        assert_eq!(cache.get(&key()), Present::Unknown);
        cache.know(&key(), "12", json_of("12"));
        shows(&cache, "12");
    }

    #[test]
    fn a_list_counts_more_than_what_was_known_before_it() {
        let mut cache = Cache::new("shard".to_owned());
        cache.know(&key(), "90", json_of("90"));
        cache.begin_list();
        // The store was put back, and its versions with it.
        assert_eq!(see(&mut cache, "40"), Seen::New);
        assert_eq!(cache.end_list(), []);
        shows(&cache, "40");
        cache.begin_list();
        // What was made while the list was read does not stand in it.
        cache.know(&key(), "41", json_of("41"));
        assert_eq!(cache.end_list(), []);
        shows(&cache, "41");
        cache.begin_list();
        assert_eq!(cache.end_list(), [key()]);
        assert_eq!(cache.get(&key()), Present::Nothing);
    }

    #[test]
    fn it_is_remembered_what_was_in_line_with_the_log() {
        let mut cache = Cache::new("shard".to_owned());
        let at = Sequence::new(7);
        see(&mut cache, "9");
        assert_eq!(cache.settled(&key()), None);
        cache.settle(&key(), at.expect("it is above zero"));
        see(&mut cache, "10");
        assert_eq!(cache.settled(&key()), at);
        cache.see_gone(&key(), "11");
        assert_eq!(cache.settled(&key()), at);
        see(&mut cache, "12");
        assert_eq!(cache.settled(&key()), None);
    }
}
