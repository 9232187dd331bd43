//! Who wrote what, as far as `managedFields` tell.

use serde_json::{Map, Value};

use super::super::body::RowKey;
use super::super::managed::key_at;
use super::super::manager::{FieldManager, List};
use super::super::stamp::annotation;

/// Somebody who owns a field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Writer {
    /// The field manager.
    pub manager: String,
    /// `Apply` or `Update`.
    pub operation: String,
    /// When it last wrote to the object, RFC 3339; absent in an entry that was repaired.
    pub time: Option<String>,
}

/// The owners of something, which an entry `has` if it is in its fields.
pub(super) fn of(object: &Value, has: impl Fn(&Map<String, Value>) -> bool) -> Vec<Writer> {
    let owns = |entry: &&Value| entry["fieldsV1"].as_object().is_some_and(&has);
    entries(object).filter(owns).map(Writer::of_entry).collect()
}

/// Whether fields have the one at a path.
pub(super) fn holds(fields: &Map<String, Value>, path: &[String]) -> bool {
    let Some((first, rest)) = path.split_first() else { return true };
    match fields.get(first) {
        Some(Value::Object(below)) => holds(below, rest),
        _ => false,
    }
}

/// Whether fields have a row, or a field of it.
pub(super) fn holds_row(fields: &Map<String, Value>, list: List, key: &RowKey, name: Option<&str>) -> bool {
    let rows = fields.get(&format!("f:{}", list.name())).and_then(Value::as_object);
    let mut rows = rows.into_iter().flatten().filter(|(path, _)| key_at(list, path).as_ref() == Some(key));
    rows.any(|(_, members)| name.is_none_or(|name| members.get(format!("f:{name}")).is_some()))
}

/// The manager to which a field of that name belongs, as an owner that is no manager of ours was told to have it.
pub(super) fn manager_of(field: &str) -> FieldManager {
    let of_annotation = |manager: &FieldManager| field == format!("metadata.annotations[{}]", annotation(*manager));
    if let Some(manager) = FieldManager::ALL.into_iter().find(of_annotation) {
        return manager;
    }
    let name = field.rsplit_once("].").map_or("", |(_, name)| name);
    let list = List::ALL.into_iter().find(|list| field.starts_with(list.name())).unwrap_or(List::Inventory);
    let has = |manager: &FieldManager| manager.fields().contains(&name);
    list.managers().find(has).or_else(|| list.managers().next()).unwrap_or(FieldManager::ReleaseInventory)
}

fn entries(object: &Value) -> impl Iterator<Item = &Value> {
    object["metadata"]["managedFields"].as_array().into_iter().flatten()
}

// === impl Writer ===

impl Writer {
    /// The one of a name, with the time of its last write.
    pub(super) fn find(object: &Value, manager: &str, operation: &str) -> Self {
        let is_it = |entry: &&Value| entry["manager"] == manager && entry["operation"] == operation;
        let unknown = || Self { manager: manager.to_owned(), operation: operation.to_owned(), time: None };
        entries(object).find(is_it).map_or_else(unknown, Self::of_entry)
    }

    fn of_entry(entry: &Value) -> Self {
        let text = |name: &str| entry[name].as_str().map(str::to_owned);
        Self {
            manager: text("manager").unwrap_or_default(),
            operation: text("operation").unwrap_or_default(),
            time: text("time"),
        }
    }
}
