//! The object as it is in the cluster, and what each manager says in it.

use serde_json::{Map, Value, json};

use super::body::{Body, key_of};
use super::managed::{Fields, Owner, implied, is_covered, key_at, merge, renamed, rows_of, take_ours};
use super::manager::FieldManager;
use super::stamp::{Stamp, annotation};
use decklog_schemas::inventory::{GROUP, VERSION};

/// A ReleaseInventory of the cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    object: Value,
    shard_label: String,
    uid: String,
    resource_version: String,
    bodies: [Body; 4],
    stamps: [Option<Stamp>; 4],
}

/// What came from the API server is no object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the object has no metadata.{0}")]
pub struct Unreadable(&'static str);

/// What is to become of `managedFields`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Repair {
    taken: Vec<Owner>,
    repaired: Observed,
}

impl Observed {
    /// Reads an object as the API server returns it, with `managedFields`.
    ///
    /// # Errors
    /// It lacks what every object has.
    pub fn read(object: Value, shard_label: &str) -> Result<Self, Unreadable> {
        let text = |name: &'static str| {
            let text = object["metadata"][name].as_str().filter(|text| !text.is_empty());
            text.map(str::to_owned).ok_or(Unreadable(name))
        };
        let (uid, resource_version) = (text("uid")?, text("resourceVersion")?);
        let bodies = FieldManager::ALL.map(|manager| body_of(manager, &object, shard_label));
        let annotations = &object["metadata"]["annotations"];
        let stamps = Stamp::of_all(|name| annotations.get(name)?.as_str());
        Ok(Self { shard_label: shard_label.to_owned(), uid, resource_version, bodies, stamps, object })
    }

    /// `metadata.uid`.
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// `metadata.resourceVersion`.
    #[must_use]
    pub fn resource_version(&self) -> &str {
        &self.resource_version
    }

    /// Whether it is the object of that name in that namespace.
    #[must_use]
    pub fn is_called(&self, namespace: &str, name: &str) -> bool {
        let metadata = &self.object["metadata"];
        metadata["namespace"] == *namespace && metadata["name"] == *name
    }

    /// The value of its shard label.
    #[must_use]
    pub fn shard(&self) -> Option<&str> {
        self.object["metadata"]["labels"].get(&self.shard_label)?.as_str()
    }

    /// Whether it is being deleted.
    #[must_use]
    pub fn is_terminating(&self) -> bool {
        self.object["metadata"].get("deletionTimestamp").is_some()
    }

    /// From which logs, and from how much of them, its bodies were made.
    pub fn stamps(&self) -> impl Iterator<Item = &Stamp> {
        self.stamps.iter().flatten()
    }

    /// From which log, and from how much of it, the body of a manager was made.
    pub(super) fn stamp(&self, manager: FieldManager) -> Option<&Stamp> {
        self.stamps[manager as usize].as_ref()
    }

    /// What each manager says in it, in the order of [`FieldManager::ALL`].
    #[must_use]
    pub fn bodies(&self) -> &[Body; 4] {
        &self.bodies
    }

    /// The object as it was read.
    #[must_use]
    pub fn object(&self) -> &Value {
        &self.object
    }

    /// What is to become of `managedFields`; none if every field of ours belongs to a manager of ours, by an apply, and
    /// to nobody else. An apply takes away only what its manager owns by an apply: what was written in other ways, or
    /// belongs to another one besides, would stay for ever.
    pub(super) fn repair(&self) -> Option<Repair> {
        let mut taken = Vec::new();
        let mut others = Vec::new();
        let mut ours = FieldManager::ALL.map(|manager| applied(manager, &self.object));
        for entry in entries(&self.object) {
            let (manager, operation) = (text(entry, "manager"), text(entry, "operation"));
            let known = FieldManager::named(manager).filter(|_| text(entry, "subresource").is_empty());
            if known.is_some() && operation == "Apply" {
                continue;
            }
            let mut fields = fields_of(entry);
            let whole = known.map(|_| fields.clone());
            let of_ours = take_ours(&mut fields, &self.shard_label);
            let owner = |field| Owner { field, manager: manager.to_owned(), operation: operation.to_owned() };
            taken.extend(of_ours.into_iter().map(owner));
            match known.zip(whole) {
                Some((known, whole)) => merge(&mut ours[known as usize], whole),
                None if fields.is_empty() => {}
                None => {
                    let mut entry = entry.clone();
                    entry["fieldsV1"] = Value::Object(fields);
                    others.push(entry);
                }
            }
        }
        let present: Vec<_> = ours.iter().collect();
        let due = FieldManager::ALL.map(|manager| implied(manager, &self.object, &self.shard_label));
        if taken.is_empty() && due.iter().all(|due| is_covered(due, &present)) {
            return None;
        }
        for (ours, due) in ours.iter_mut().zip(due) {
            merge(ours, due);
        }
        let entries = FieldManager::ALL.into_iter().zip(ours).filter(|(_, fields)| !fields.is_empty());
        let managed: Vec<_> = entries.map(|(manager, fields)| entry(manager, fields)).chain(others).collect();
        let mut object = self.object.clone();
        object["metadata"]["managedFields"] = Value::Array(managed);
        let repaired = Self::read(object, &self.shard_label).ok()?;
        Some(Repair { taken, repaired })
    }
}

// === impl Repair ===

impl Repair {
    pub(super) fn managed_fields(&self) -> Value {
        self.repaired.object["metadata"]["managedFields"].clone()
    }

    /// What was somebody else's.
    pub(super) fn taken(&self) -> &[Owner] {
        &self.taken
    }

    /// The object once it is repaired.
    pub(super) fn into_observed(self) -> Observed {
        self.repaired
    }
}

fn entries(object: &Value) -> impl Iterator<Item = &Value> {
    object["metadata"]["managedFields"].as_array().into_iter().flatten()
}

fn text<'a>(entry: &'a Value, name: &str) -> &'a str {
    entry[name].as_str().unwrap_or_default()
}

fn entry(manager: FieldManager, fields: Fields) -> Value {
    json!({
        "manager": manager.name(),
        "operation": "Apply",
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    })
}

fn fields_of(entry: &Value) -> Fields {
    renamed(entry["fieldsV1"].as_object().cloned().unwrap_or_default())
}

/// What a manager owns by an apply.
fn applied(manager: FieldManager, object: &Value) -> Fields {
    let mut fields = Fields::new();
    for entry in entries(object) {
        let is_apply = text(entry, "operation") == "Apply" && text(entry, "subresource").is_empty();
        if is_apply && text(entry, "manager") == manager.name() {
            merge(&mut fields, fields_of(entry));
        }
    }
    fields
}

/// What a manager says in an object: the fields that it owns, with their values.
fn body_of(manager: FieldManager, object: &Value, shard_label: &str) -> Body {
    let mut body = Body::empty(manager);
    let list = format!("f:{}", manager.list().name());
    for (name, part) in applied(manager, object) {
        match part {
            Value::Object(part) if name == list => read_rows(&mut body, object, &part),
            Value::Object(part) if name == "f:metadata" => read_metadata(&mut body, object, &part, shard_label),
            _ => {
                body.strays.insert(name);
            }
        }
    }
    body
}

fn read_rows(body: &mut Body, object: &Value, rows: &Fields) {
    let list = body.manager().list();
    let present: std::collections::BTreeMap<_, _> = rows_of(object, list).map(|row| (key_of(list, row), row)).collect();
    for (path, members) in rows.iter().filter(|(path, _)| *path != ".") {
        let (Some(key), Some(members)) = (key_at(list, path), members.as_object()) else {
            body.strays.insert(path.clone());
            continue;
        };
        let value = |name: &str| present.get(&key).and_then(|row| row.get(name)).cloned().unwrap_or_default();
        let own = members.keys().filter_map(|name| name.strip_prefix("f:"));
        let own = own.filter(|name| !list.keys().contains(name));
        let fields: Map<_, _> = own.map(|name| (name.to_owned(), value(name))).collect();
        body.add_row(key, fields);
    }
}

fn read_metadata(body: &mut Body, object: &Value, parts: &Fields, shard_label: &str) {
    let stamp = annotation(body.manager());
    for (map, members) in parts {
        let names = members.as_object().into_iter().flat_map(Map::keys).filter_map(|name| name.strip_prefix("f:"));
        for name in names {
            match (map.as_str(), body.manager()) {
                ("f:annotations", _) if name == stamp => {}
                ("f:labels", FieldManager::ReleaseInventory) if name == shard_label => {
                    let value = object["metadata"]["labels"][name].as_str().unwrap_or_default();
                    body.add_label(name, value);
                }
                _ => {
                    body.strays.insert(format!("{map}.{name}"));
                }
            }
        }
    }
}
