//! `managedFields`: who owns which field, as the API server writes it (FieldsV1), and as it ought to be.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value, json};

use super::body::{RowKey, key_of};
use super::manager::{FieldManager, List};
use super::stamp::annotation;

/// A field of ours that is, or was, somebody else's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// The field, such as `inventory[apps/Deployment/shop/web].wave`.
    pub field: String,
    /// The other manager.
    pub manager: String,
    /// How it got it: `Apply` or `Update`.
    pub operation: String,
}

/// A set of fields in the form of FieldsV1: a tree whose leaves are empty.
pub(super) type Fields = Map<String, Value>;

/// The name of the member that stands for the thing itself, beside its parts.
const ITSELF: &str = ".";

/// The fields of an object that a manager ought to own.
pub(super) fn implied(manager: FieldManager, object: &Value, shard_label: &str) -> Fields {
    let list = manager.list();
    let mut rows = Fields::new();
    for row in rows_of(object, list) {
        let has = |name: &&&str| row.contains_key(**name);
        let mut own: Vec<_> = manager.fields().iter().filter(has).collect();
        own.retain(|name| !list.keys().contains(name));
        // A row that has nothing but its keys belongs to who owns rows.
        let is_bare = list.managers().all(|other| !other.fields().iter().any(|name| has(&name)));
        if own.is_empty() && !(is_bare && manager.owns_rows()) {
            continue;
        }
        let members = list.keys().iter().chain(own).map(|name| (format!("f:{name}"), json!({})));
        let members: Fields = members.chain([(ITSELF.to_owned(), json!({}))]).collect();
        rows.insert(path_of(list, &key_of(list, row)), Value::Object(members));
    }
    let mut fields = Fields::new();
    if !rows.is_empty() {
        fields.insert(format!("f:{}", list.name()), Value::Object(rows));
    }
    let metadata = &object["metadata"];
    let stamp = annotation(manager);
    if metadata["annotations"].get(&stamp).is_some() {
        merge(&mut fields, metadata_field("annotations", &stamp));
    }
    if manager == FieldManager::ReleaseInventory && metadata["labels"].get(shard_label).is_some() {
        merge(&mut fields, metadata_field("labels", shard_label));
    }
    fields
}

/// The same set with its rows named as they are here: the API server escapes other characters in their keys.
pub(super) fn renamed(mut fields: Fields) -> Fields {
    for list in List::ALL {
        if let Some(Value::Object(rows)) = fields.get_mut(&format!("f:{}", list.name())) {
            let name = |path: String| key_at(list, &path).map_or(path, |key| path_of(list, &key));
            *rows = std::mem::take(rows).into_iter().map(|(path, row)| (name(path), row)).collect();
        }
    }
    fields
}

/// Adds a set to another one.
pub(super) fn merge(into: &mut Fields, other: Fields) {
    for (name, part) in other {
        match (into.get_mut(&name), part) {
            (Some(Value::Object(present)), Value::Object(part)) => merge(present, part),
            (_, part) => {
                into.insert(name, part);
            }
        }
    }
}

/// Whether every field of a set is in one of the others.
pub(super) fn is_covered(fields: &Fields, by: &[&Fields]) -> bool {
    fields.iter().all(|(name, part)| {
        let below: Vec<_> = by.iter().filter_map(|other| other.get(name).and_then(Value::as_object)).collect();
        !below.is_empty() && part.as_object().is_none_or(|part| is_covered(part, &below))
    })
}

/// Takes our fields out of a set, and tells which they were.
pub(super) fn take_ours(fields: &mut Fields, shard_label: &str) -> Vec<String> {
    let mut taken = Vec::new();
    for list in List::ALL {
        let Some(Value::Object(rows)) = fields.remove(&format!("f:{}", list.name())) else { continue };
        let before = taken.len();
        for (path, row) in &rows {
            let name = key_at(list, path).map_or_else(|| path.clone(), |key| key.join("/"));
            let own = row.as_object().into_iter().flat_map(Map::keys).filter_map(|name| name.strip_prefix("f:"));
            let own = own.filter(|field| !list.keys().contains(field));
            taken.extend(own.map(|field| format!("{}[{name}].{field}", list.name())));
        }
        if taken.len() == before {
            taken.push(list.name().to_owned());
        }
    }
    let stamps = FieldManager::ALL.map(|manager| ("annotations", annotation(manager)));
    for (map, name) in stamps.into_iter().chain([("labels", shard_label.to_owned())]) {
        let Some(Value::Object(metadata)) = fields.get_mut("f:metadata") else { break };
        let Some(Value::Object(members)) = metadata.get_mut(&format!("f:{map}")) else { continue };
        if members.remove(&format!("f:{name}")).is_some() {
            taken.push(format!("metadata.{map}[{name}]"));
        }
        if members.keys().all(|name| name == ITSELF) {
            metadata.remove(&format!("f:{map}"));
        }
        if metadata.is_empty() {
            fields.remove("f:metadata");
        }
    }
    taken
}

/// The rows of a list of an object.
pub(super) fn rows_of(object: &Value, list: List) -> impl Iterator<Item = &Map<String, Value>> {
    object[list.name()].as_array().into_iter().flatten().filter_map(Value::as_object)
}

/// The key in a row's member name, which is `k:` and the key fields as JSON.
pub(super) fn key_at(list: List, path: &str) -> Option<RowKey> {
    let fields: Map<String, Value> = serde_json::from_str(path.strip_prefix("k:")?).ok()?;
    let is_whole = list.keys().iter().all(|name| fields.get(*name).is_some_and(Value::is_string));
    is_whole.then(|| key_of(list, &fields))
}

/// The member name of a row: its key fields in the order of their names.
pub(super) fn path_of(list: List, key: &RowKey) -> String {
    let fields: BTreeMap<_, _> = list.keys().iter().zip(key).collect();
    match serde_json::to_string(&fields) {
        Ok(fields) => format!("k:{fields}"),
        Err(error) => unreachable!("strings do not fail to serialize: {error}"),
    }
}

fn metadata_field(map: &str, name: &str) -> Fields {
    let path = json!({ "f:metadata": { format!("f:{map}"): { format!("f:{name}"): {} } } });
    path.as_object().cloned().unwrap_or_default()
}

/// `inventory[apps/Deployment/shop/web].wave, of kubectl-edit (Update)`
impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, of {} ({})", self.field, self.manager, self.operation)
    }
}
