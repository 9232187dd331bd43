//! From rows to the object: canonical, and for each field the event that set it.

use std::collections::BTreeMap;

use decklog_schemas::Sequence;
use decklog_schemas::inventory::{InventoryFields, InventoryHook, InventoryItem, ReleaseInventory, SHARD_LABEL};

use super::hooks::Hook;
use super::items::Row;
use super::release::Release;

/// Which event set which field: JSON pointers into the canonical object.
pub type Provenance = BTreeMap<String, Sequence>;

/// The object of a release.
pub(crate) fn of(release: &Release) -> ReleaseInventory {
    let inventory = sorted_items(release).into_iter().map(item).collect();
    let hooks = sorted_hooks(release).into_iter().map(hook).collect();
    let shard = release.live.shard.as_ref().map(|(shard, _)| &**shard);
    ReleaseInventory::new(&release.key.namespace, &release.key.name, shard, InventoryFields { inventory, hooks })
}

/// Who set what in the object of a release.
pub(crate) fn provenance(release: &Release) -> Provenance {
    let mut fields = Provenance::new();
    if let Some((_, by)) = &release.live.shard {
        fields.insert(format!("/metadata/labels/{}", SHARD_LABEL.replace('/', "~1")), *by);
    }
    let rows = sorted_items(release).into_iter().map(setters_of_item).enumerate();
    for (at, setters) in rows {
        insert(&mut fields, &format!("/inventory/{at}"), setters);
    }
    let rows = sorted_hooks(release).into_iter().map(setters_of_hook).enumerate();
    for (at, setters) in rows {
        insert(&mut fields, &format!("/hooks/{at}"), setters);
    }
    fields
}

/// The fields of a row, each with the event that set it if the row has it.
type Setters = Vec<(&'static str, Option<Sequence>)>;

fn insert(fields: &mut Provenance, row: &str, setters: Setters) {
    let set = setters.into_iter().filter_map(|(field, by)| Some((format!("{row}/{field}"), by?)));
    fields.extend(set);
}

fn setters_of_item(row: &Row) -> Setters {
    let health = row.health.as_ref();
    vec![
        ("version", Some(row.applied_by)),
        ("renderRef", Some(row.applied_by)),
        ("wave", Some(row.applied_by)),
        ("uid", row.uid_by),
        ("state", health.map(|health| health.by)),
        ("assessedRenderRef", health.map(|health| health.by)),
        ("message", health.filter(|health| health.message.is_some()).map(|health| health.by)),
        ("firstUnhealthy", health.filter(|health| health.first_unhealthy.is_some()).map(|health| health.unhealthy_by)),
    ]
}

fn setters_of_hook(hook: &Hook) -> Setters {
    let declared = Some(hook.declared_by);
    vec![
        ("group", declared),
        ("kind", declared),
        ("version", declared),
        ("renderRef", declared),
        ("weight", declared),
        ("workloadname", declared),
        ("workloadnamespace", declared.filter(|_| hook.workload.namespace.is_some())),
        ("timeout", declared.filter(|_| hook.timeout.is_some())),
        ("createdAt", hook.created_at.map(|_| hook.created_by)),
        ("state", Some(hook.state_by)),
        ("finishedAt", hook.finished_at.map(|_| hook.state_by)),
        ("message", hook.message.as_ref().map(|_| hook.message_by)),
    ]
}

fn sorted_items(release: &Release) -> Vec<&Row> {
    let mut rows: Vec<_> = release.live.items.rows().iter().collect();
    rows.sort_unstable_by(|one, other| one.key.of().cmp(&other.key.of()));
    rows
}

fn sorted_hooks(release: &Release) -> Vec<&Hook> {
    let mut rows: Vec<_> = release.live.hooks.rows().iter().collect();
    rows.sort_unstable_by_key(|hook| (hook.phase.as_str(), &*hook.name));
    rows
}

fn item(row: &Row) -> InventoryItem {
    let key = row.key.of();
    let health = row.health.as_ref();
    InventoryItem {
        group: key.group.into(),
        kind: key.kind.into(),
        namespace: key.namespace.into(),
        name: key.name.into(),
        version: Some(row.version.to_string()),
        render_ref: Some(row.render.to_string()),
        wave: Some(row.wave),
        uid: row.uid.as_ref().map(ToString::to_string),
        state: health.map(|health| health.state),
        assessed_render_ref: health.map(|health| health.assessed.to_string()),
        first_unhealthy: health.and_then(|health| health.first_unhealthy),
        message: health.and_then(|health| health.message.as_deref()).map(Into::into),
    }
}

fn hook(row: &Hook) -> InventoryHook {
    InventoryHook {
        name: row.name.to_string(),
        phase: row.phase,
        group: row.workload.group.to_string(),
        kind: row.workload.kind.to_string(),
        version: Some(row.workload.version.to_string()),
        render_ref: row.render.to_string(),
        weight: row.weight,
        workload_name: row.workload.name.to_string(),
        workload_namespace: row.workload.namespace.as_deref().map(Into::into),
        timeout: row.timeout,
        created_at: row.created_at,
        state: Some(row.state),
        finished_at: row.finished_at,
        message: row.message.as_deref().map(Into::into),
    }
}
