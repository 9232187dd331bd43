//! What is in the cluster, as far as it was seen or answered: objects as JSON, for there may be many.

use std::collections::{HashMap, HashSet};

use decklog_projections::plan::Observed;
use decklog_schemas::ReleaseKey;
use kube::api::DynamicObject;

/// Objects by release.
#[derive(Debug)]
pub(crate) struct Cache {
    objects: HashMap<ReleaseKey, Cached>,
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
}

impl Cache {
    pub(crate) fn new(shard_label: String) -> Self {
        Self { objects: HashMap::new(), shard_label }
    }

    /// Takes note of an object, unless a newer one is known.
    pub(crate) fn put(&mut self, key: &ReleaseKey, object: &DynamicObject) -> Seen {
        let resource_version = object.metadata.resource_version.clone().unwrap_or_default();
        let known = self.objects.get(key);
        if known.is_some_and(|known| !known.is_doubtful && !is_newer(&resource_version, &known.resource_version)) {
            return Seen::Known;
        }
        let json = match serde_json::to_vec(object) {
            Ok(json) => json.into_boxed_slice(),
            Err(error) => unreachable!("what was JSON can be written as JSON: {error}"),
        };
        self.objects.insert(key.clone(), Cached { resource_version, json, is_doubtful: false });
        Seen::New
    }

    /// Takes note that there is no object any more, unless there is a newer one. Returns whether that is news.
    pub(crate) fn remove(&mut self, key: &ReleaseKey, resource_version: Option<&str>) -> bool {
        let is_newer_known = |known: &Cached| {
            resource_version.is_some_and(|version| is_newer(&known.resource_version, version)) && !known.is_doubtful
        };
        if self.objects.get(key).is_none_or(is_newer_known) {
            return false;
        }
        self.objects.remove(key).is_some()
    }

    /// Something was sent, and nobody knows whether it was done.
    pub(crate) fn doubt(&mut self, key: &ReleaseKey) {
        let unknown = || Cached { resource_version: String::new(), json: Box::default(), is_doubtful: true };
        self.objects.entry(key.clone()).or_insert_with(unknown).is_doubtful = true;
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

    /// Objects that a projector has stamped.
    pub(crate) fn stamped(&self) -> Vec<(ReleaseKey, Observed)> {
        let objects = self.objects.iter().filter_map(|(key, cached)| Some((key.clone(), self.read(cached)?)));
        objects.filter(|(_, observed)| observed.stamps().next().is_some()).collect()
    }

    /// Drops what a complete list did not show. Returns what that was.
    pub(crate) fn retain(&mut self, listed: &HashSet<ReleaseKey>) -> Vec<ReleaseKey> {
        let gone: Vec<_> = self.objects.keys().filter(|key| !listed.contains(*key)).cloned().collect();
        for key in &gone {
            self.objects.remove(key);
        }
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
