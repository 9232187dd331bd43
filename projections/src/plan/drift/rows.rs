//! The rows of a list, field by field: what the log says, what it said, and what the object says.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::super::body::{Body, RowKey, key_of};
use super::super::managed::rows_of;
use super::super::manager::{FieldManager, List};
use super::{Cause, Difference, writers};

/// Fields of a row, without its keys.
type Row = Map<String, Value>;

/// One list of an object beside what it should be.
pub(super) struct RowDifferences<'a> {
    list: List,
    object: &'a Value,
    found: BTreeMap<RowKey, Row>,
    wanted: &'a [Body; 4],
    past: &'a [Body; 4],
    /// Whose the rows are.
    owner: FieldManager,
    /// Who adds a state to them.
    status: FieldManager,
}

impl<'a> RowDifferences<'a> {
    pub(super) fn new(list: List, object: &'a Value, wanted: &'a [Body; 4], past: &'a [Body; 4]) -> Self {
        let fields = |row: &Row| {
            let own = row.iter().filter(|(name, _)| !list.keys().contains(&name.as_str()));
            (key_of(list, row), own.map(|(name, value)| (name.clone(), value.clone())).collect())
        };
        let found = rows_of(object, list).map(fields).collect();
        let (owner, status) = match list {
            List::Inventory => (FieldManager::ReleaseInventory, FieldManager::HealthInventory),
            List::Hooks => (FieldManager::ReleaseHooks, FieldManager::HookStatus),
        };
        Self { list, object, found, wanted, past, owner, status }
    }

    pub(super) fn all(&self) -> Vec<Difference> {
        let mut differences = Vec::new();
        let keys: BTreeSet<_> = self.rows(self.wanted, self.owner).keys().chain(self.found.keys()).collect();
        for key in keys {
            match (self.wanted_row(key), self.found.get(key)) {
                (Some(wanted), Some(found)) => self.fields(key, &wanted, found, &mut differences),
                (Some(wanted), None) => differences.push(self.absent(key, wanted)),
                (None, Some(found)) => differences.push(self.excess(key, found)),
                (None, None) => {}
            }
        }
        differences
    }

    fn rows<'b>(&self, bodies: &'b [Body; 4], manager: FieldManager) -> &'b BTreeMap<RowKey, Row> {
        bodies[manager as usize].rows()
    }

    fn wanted_row(&self, key: &RowKey) -> Option<Row> {
        let mut row = self.rows(self.wanted, self.owner).get(key)?.clone();
        row.extend(self.rows(self.wanted, self.status).get(key).cloned().unwrap_or_default());
        Some(row)
    }

    /// A row that is there, and is to be there.
    fn fields(&self, key: &RowKey, wanted: &Row, found: &Row, differences: &mut Vec<Difference>) {
        let names: BTreeSet<_> = wanted.keys().chain(found.keys()).collect();
        for name in names {
            let (expected, present) = (wanted.get(name), found.get(name));
            if expected == present {
                continue;
            }
            let manager = self.manager_of(name);
            // A hook that is rendered anew loses its state first, so that the state of one run is never shown as that
            // of another.
            let let_go = manager == self.status && present.is_none() && self.is_rendered_anew(key, wanted, found);
            let is_behind = let_go || self.past_field(manager, key, name) == present;
            let cause = if is_behind { Cause::Behind } else { Cause::Drifted };
            differences.push(Difference {
                field: format!("{}.{name}", self.name_of(key)),
                manager,
                cause,
                expected: expected.cloned(),
                found: present.cloned(),
                writers: self.writers(cause, key, Some(name)),
            });
        }
    }

    /// A row that is to be there.
    fn absent(&self, key: &RowKey, wanted: Row) -> Difference {
        let was_there = self.rows(self.past, self.owner).contains_key(key);
        Difference {
            field: self.name_of(key),
            manager: self.owner,
            cause: if was_there { Cause::Drifted } else { Cause::Behind },
            expected: Some(Value::Object(wanted)),
            found: None,
            writers: Vec::new(),
        }
    }

    /// A row that is not to be there. States let go of it before its owner does.
    fn excess(&self, key: &RowKey, found: &Row) -> Difference {
        let of = |manager| -> Row {
            let own = found.iter().filter(|(name, _)| self.manager_of(name) == manager);
            own.map(|(name, value)| (name.clone(), value.clone())).collect()
        };
        let was = |manager| self.rows(self.past, manager).get(key);
        let state = of(self.status);
        let is_behind =
            was(self.owner) == Some(&of(self.owner)) && (state.is_empty() || was(self.status) == Some(&state));
        let cause = if is_behind { Cause::Behind } else { Cause::Drifted };
        Difference {
            field: self.name_of(key),
            manager: self.owner,
            cause,
            expected: None,
            found: Some(Value::Object(found.clone())),
            writers: self.writers(cause, key, None),
        }
    }

    fn past_field(&self, manager: FieldManager, key: &RowKey, name: &str) -> Option<&Value> {
        self.rows(self.past, manager).get(key)?.get(name)
    }

    fn is_rendered_anew(&self, key: &RowKey, wanted: &Row, found: &Row) -> bool {
        let name = "renderRef";
        let is_behind = self.past_field(self.owner, key, name) == found.get(name);
        self.list == List::Hooks && wanted.get(name) != found.get(name) && is_behind
    }

    /// Whose a field is; what nobody knows counts as its row's.
    fn manager_of(&self, name: &str) -> FieldManager {
        if self.status.fields().contains(&name) { self.status } else { self.owner }
    }

    fn name_of(&self, key: &RowKey) -> String {
        format!("{}[{}]", self.list.name(), key.join("/"))
    }

    fn writers(&self, cause: Cause, key: &RowKey, name: Option<&str>) -> Vec<writers::Writer> {
        match cause {
            // That was the projector.
            Cause::Behind => Vec::new(),
            Cause::Drifted | Cause::Owned => {
                writers::of(self.object, |fields| writers::holds_row(fields, self.list, key, name))
            }
        }
    }
}
