//! What is in the cluster, as far as it was seen or answered: objects as JSON, for there may be many.

use std::collections::HashMap;

use decklog_projections::plan::Observed;
use decklog_schemas::{ReleaseKey, Sequence};

use crate::freshness::{Progress, Sighting};

/// Objects by release.
#[derive(Debug)]
pub(crate) struct Cache {
    objects: HashMap<ReleaseKey, Cached>,
    /// What was in line with the log, up to an event of its release, and was then deleted.
    deleted: HashMap<ReleaseKey, Sequence>,
    watch: Progress,
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
    sighting: Sighting,
    json: Box<[u8]>,
    /// Whether something was sent of which nobody knows whether it was done.
    is_doubtful: bool,
    /// The last event of the release with which it was in line.
    settled: Option<Sequence>,
}

impl Cache {
    pub(crate) fn new(shard_label: String) -> Self {
        Self { objects: HashMap::new(), deleted: HashMap::new(), watch: Progress::default(), shard_label }
    }

    /// A list of all objects begins.
    pub(crate) fn begin_list(&mut self) {
        self.watch.begin_list();
    }

    /// Takes note of an object that the watch has shown. It is written as JSON only if it is news.
    pub(crate) fn see(&mut self, key: &ReleaseKey, resource_version: &str, json: impl FnOnce() -> Vec<u8>) -> Seen {
        self.watch.reach(resource_version);
        self.put(key, resource_version, json)
    }

    /// Takes note of an object that an answer has: what was in doubt before is not any more. An answer may come late, when
    /// the object has gone.
    pub(crate) fn know(&mut self, key: &ReleaseKey, resource_version: &str, json: Vec<u8>) {
        if !self.objects.contains_key(key) && self.watch.has_passed(resource_version) {
            return;
        }
        self.put(key, resource_version, || json);
        if let Some(known) = self.objects.get_mut(key) {
            known.is_doubtful = false;
        }
    }

    fn put(&mut self, key: &ReleaseKey, resource_version: &str, json: impl FnOnce() -> Vec<u8>) -> Seen {
        match self.objects.get_mut(key) {
            Some(known) => {
                if !self.watch.renew(&mut known.sighting, resource_version) {
                    return Seen::Known;
                }
                known.json = json().into_boxed_slice();
            }
            None => {
                let (sighting, json) = (self.watch.sighting(resource_version), json().into_boxed_slice());
                self.objects.insert(key.clone(), Cached { sighting, json, is_doubtful: false, settled: None });
            }
        }
        Seen::New
    }

    /// Takes note that the watch has shown the object of a version go. Returns whether that is news.
    pub(crate) fn see_gone(&mut self, key: &ReleaseKey, resource_version: &str) -> bool {
        self.watch.reach(resource_version);
        match self.objects.get(key) {
            None => false,
            Some(known) if known.sighting.is_after(resource_version) => false,
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

    /// Takes note that the object of a release is in line with the log, up to an event of the release. Of one that has
    /// gone since it is remembered what it was in line with before.
    pub(crate) fn settle(&mut self, key: &ReleaseKey, sequence: Sequence) {
        if let Some(cached) = self.objects.get_mut(key) {
            cached.settled = Some(sequence);
            self.deleted.remove(key);
        }
    }

    /// Takes note that a release has no object, and is to have none.
    pub(crate) fn settle_gone(&mut self, key: &ReleaseKey) {
        self.deleted.remove(key);
    }

    /// The last event of a release with which the cluster was in line, whatever has become of its object since.
    pub(crate) fn settled(&self, key: &ReleaseKey) -> Option<Sequence> {
        self.objects.get(key).map_or_else(|| self.deleted.get(key).copied(), |cached| cached.settled)
    }

    /// Something was sent, and nobody knows whether it was done.
    pub(crate) fn doubt(&mut self, key: &ReleaseKey) {
        // Whatever comes next is newer.
        let sighting = self.watch.sighting("");
        match self.objects.get_mut(key) {
            Some(cached) => (cached.is_doubtful, cached.sighting) = (true, sighting),
            None => {
                let unknown = Cached { sighting, json: Box::default(), is_doubtful: true, settled: None };
                self.objects.insert(key.clone(), unknown);
            }
        }
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
        let is_gone =
            |(key, cached): (&ReleaseKey, &Cached)| self.watch.has_missed(&cached.sighting).then(|| key.clone());
        let gone: Vec<_> = self.objects.iter().filter_map(is_gone).collect();
        gone.iter().for_each(|key| self.know_gone(key));
        gone
    }

    fn read(&self, cached: &Cached) -> Option<Observed> {
        Observed::read(serde_json::from_slice(&cached.json).ok()?, &self.shard_label).ok()
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

    fn know(cache: &mut Cache, version: &str) {
        cache.know(&key(), version, json_of(version));
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
        know(&mut cache, "10");
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
        know(&mut cache, "12");
        shows(&cache, "12");
    }

    #[test]
    fn a_list_counts_more_than_what_was_known_before_it() {
        let mut cache = Cache::new("shard".to_owned());
        know(&mut cache, "90");
        cache.begin_list();
        // The store was put back, and its versions with it.
        assert_eq!(see(&mut cache, "40"), Seen::New);
        assert_eq!(cache.end_list(), []);
        shows(&cache, "40");
        cache.begin_list();
        // What was made while the list was read does not stand in it.
        know(&mut cache, "41");
        assert_eq!(cache.end_list(), []);
        shows(&cache, "41");
        cache.begin_list();
        assert_eq!(cache.end_list(), [key()]);
        assert_eq!(cache.get(&key()), Present::Nothing);
    }

    #[test]
    fn what_is_in_doubt_while_a_list_is_read_is_what_the_list_shows() {
        let mut cache = Cache::new("shard".to_owned());
        know(&mut cache, "90");
        cache.begin_list();
        cache.doubt(&key());
        see(&mut cache, "40");
        assert_eq!(cache.end_list(), []);
        know(&mut cache, "40");
        shows(&cache, "40");
    }

    #[test]
    fn an_answer_that_comes_late_brings_nothing_back() {
        let mut cache = Cache::new("shard".to_owned());
        see(&mut cache, "9");
        cache.see_gone(&key(), "11");
        know(&mut cache, "10");
        assert_eq!(cache.get(&key()), Present::Nothing);
        know(&mut cache, "12");
        shows(&cache, "12");
        cache.see_gone(&key(), "13");
        // After a list versions may be lower than before.
        cache.begin_list();
        know(&mut cache, "5");
        shows(&cache, "5");
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
        // Of what has gone meanwhile nothing is in line.
        cache.settle(&key(), Sequence::after(at));
        assert_eq!(cache.settled(&key()), at);
        see(&mut cache, "12");
        assert_eq!(cache.settled(&key()), None);
        cache.see_gone(&key(), "13");
        cache.settle_gone(&key());
        assert_eq!(cache.settled(&key()), None);
    }
}
