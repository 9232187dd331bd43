//! A body: the fields of one manager, whole, as they are sent and as an object reflects them.

use std::collections::{BTreeMap, BTreeSet};

use decklog_schemas::inventory::{GROUP, KIND, Metadata, ReleaseInventory, VERSION};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::manager::{FieldManager, List};
use super::stamp::{Stamp, annotation};

/// The values of a row's key fields: group, kind, namespace and name of an item, phase and name of a hook. They sort as
/// the rows do.
pub type RowKey = Vec<String>;

/// Fields of rows, without the keys.
pub type Rows = BTreeMap<RowKey, Map<String, Value>>;

/// What one manager says of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Body {
    manager: FieldManager,
    rows: Rows,
    /// The shard label; none but [`FieldManager::ReleaseInventory`] has it.
    labels: BTreeMap<String, String>,
    /// What the manager owns in an object beyond its fields; an apply gives it up.
    pub(super) strays: BTreeSet<String>,
}

impl Body {
    /// The body of a manager for an object.
    #[must_use]
    pub fn of(manager: FieldManager, object: &ReleaseInventory) -> Self {
        let mut body = Self::empty(manager);
        match manager.list() {
            List::Inventory => object.fields.inventory.iter().for_each(|item| body.add(item)),
            List::Hooks => object.fields.hooks.iter().for_each(|hook| body.add(hook)),
        }
        if manager == FieldManager::ReleaseInventory {
            body.labels.clone_from(&object.metadata.labels);
        }
        body
    }

    /// Whose fields they are.
    #[must_use]
    pub fn manager(&self) -> FieldManager {
        self.manager
    }

    /// The rows that the manager has fields of.
    #[must_use]
    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// Whether the manager has nothing to say.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.labels.is_empty()
    }

    /// The apply request, without what makes it conditional.
    #[must_use]
    pub fn request(&self, metadata: &Metadata, stamp: &Stamp) -> Value {
        let mut request = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"),
            "kind": KIND,
            "metadata": {
                "name": metadata.name,
                "namespace": metadata.namespace,
                "annotations": { annotation(self.manager): stamp.to_string() },
            },
        });
        if !self.labels.is_empty() {
            request["metadata"]["labels"] = json!(self.labels);
        }
        let list = self.manager.list();
        // A list without rows is left out: an empty one would stay in the object, owned by nobody.
        if !self.rows.is_empty() {
            request[list.name()] = self.rows.iter().map(|(key, fields)| row(list, key, fields)).collect();
        }
        request
    }

    pub(super) fn empty(manager: FieldManager) -> Self {
        Self { manager, rows: Rows::new(), labels: BTreeMap::new(), strays: BTreeSet::new() }
    }

    pub(super) fn add_row(&mut self, key: RowKey, fields: Map<String, Value>) {
        self.rows.entry(key).or_default().extend(fields);
    }

    pub(super) fn add_label(&mut self, key: &str, value: &str) {
        self.labels.insert(key.to_owned(), value.to_owned());
    }

    /// The same with fewer rows.
    pub(super) fn only(&self, stays: impl Fn(&RowKey) -> bool) -> Self {
        let mut body = self.clone();
        body.rows.retain(|key, _| stays(key));
        body
    }

    /// Whether the row of an object that reflects `present` stays the row that it is: a hook of another render is another
    /// run, of which nothing is known yet.
    pub(super) fn keeps(&self, present: &Self, key: &RowKey) -> bool {
        let (Some(wanted), Some(present)) = (self.rows.get(key), present.rows.get(key)) else { return false };
        self.manager != FieldManager::ReleaseHooks || wanted.get("renderRef") == present.get("renderRef")
    }

    fn add(&mut self, row: &impl Serialize) {
        let mut fields = match serde_json::to_value(row) {
            Ok(Value::Object(fields)) => fields,
            other => unreachable!("a row is a struct of strings and numbers: {other:?}"),
        };
        let key = key_of(self.manager.list(), &fields);
        fields.retain(|name, _| self.manager.fields().contains(&name.as_str()));
        if !fields.is_empty() || self.manager.owns_rows() {
            self.rows.insert(key, fields);
        }
    }
}

/// The key of a row, of strings by the definition; what is none counts as empty.
pub(super) fn key_of(list: List, row: &Map<String, Value>) -> RowKey {
    let text = |name: &&str| row.get(*name).and_then(Value::as_str).unwrap_or_default().to_owned();
    list.keys().iter().map(text).collect()
}

fn row(list: List, key: &RowKey, fields: &Map<String, Value>) -> Value {
    let keys = list.keys().iter().zip(key).map(|(name, value)| ((*name).to_owned(), json!(value)));
    Value::Object(keys.chain(fields.clone()).collect())
}
