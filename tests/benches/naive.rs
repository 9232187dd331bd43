//! The fold as one writes it first: owned events into a map of maps, with no memory of writers, terms or uids.

use std::collections::HashMap;

use decklog_engine::Records;
use serde::Deserialize;

/// Inventories by release, and in each the rows by key.
#[derive(Debug, Default)]
pub(crate) struct NaiveFold {
    releases: HashMap<String, HashMap<Key, Row>>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    group: String,
    kind: String,
    namespace: String,
    name: String,
}

#[derive(Debug, Default)]
struct Row {
    version: String,
    render_ref: String,
    wave: i64,
    uid: Option<String>,
    state: Option<String>,
    assessed_render_ref: Option<String>,
    first_unhealthy: Option<String>,
    message: Option<String>,
}

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "an event is read as a whole")]
struct NaiveEvent {
    id: String,
    source: String,
    r#type: String,
    subject: String,
    time: String,
    cluster: String,
    writerseq: Option<u64>,
    data: NaiveData,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NaiveData {
    item: NaiveItem,
    render_ref: Option<String>,
    wave: Option<i64>,
    uid: Option<String>,
    state: Option<String>,
    assessed_render_ref: Option<String>,
    message: Option<String>,
}

#[derive(Debug, Deserialize)]
struct NaiveItem {
    group: String,
    version: Option<String>,
    kind: String,
    namespace: String,
    name: String,
}

impl NaiveFold {
    /// Folds all records.
    pub(crate) fn fold_all(&mut self, records: &Records) {
        for record in records.iter() {
            self.fold(rmp_serde::from_slice(&record.bytes).expect("the event is one"));
        }
    }

    fn fold(&mut self, event: NaiveEvent) {
        let NaiveItem { group, version, kind, namespace, name } = event.data.item;
        let key = Key { group, kind, namespace, name };
        let rows = self.releases.entry(event.subject).or_default();
        if event.r#type == "dev.decklog.ItemApplied.v1" {
            let row = rows.entry(key).or_default();
            row.version = version.unwrap_or_default();
            row.render_ref = event.data.render_ref.unwrap_or_default();
            row.wave = event.data.wave.unwrap_or_default();
            row.uid = event.data.uid;
        } else if let Some(row) = rows.get_mut(&key) {
            row.first_unhealthy = if event.data.state.as_deref() == Some("Healthy") {
                None
            } else {
                row.first_unhealthy.take().or(Some(event.time))
            };
            row.state = event.data.state;
            row.assessed_render_ref = event.data.assessed_render_ref;
            row.message = event.data.message;
        }
    }

    /// How many rows there are, and how many of them are healthy.
    pub(crate) fn counts(&self) -> [usize; 2] {
        let rows = || self.releases.values().flat_map(HashMap::values);
        [rows().count(), rows().filter(|row| row.state.as_deref() == Some("Healthy")).count()]
    }
}
