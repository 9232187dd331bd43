//! One line about an event, for people who read a timeline.

use std::fmt::{self, Display, Formatter};

use decklog_schemas::data::{Item, Workload};
use decklog_schemas::{Body, Event, Record};

use crate::inventory::ItemRef;

/// Says in one line what an event says.
#[must_use]
pub fn summary(event: &Event<'_>) -> String {
    Line(&event.body).to_string().replace(char::is_control, " ")
}

/// Says in one line what a record says, whatever the fold makes of it; of one that is no valid event, what is wrong.
#[must_use]
pub fn told(record: &Record<'_>) -> String {
    match record.open() {
        Ok(placed) => placed.envelope.validate().map_or_else(|refusal| refusal.to_string(), |event| summary(&event)),
        Err(quarantined) => quarantined.to_string(),
    }
}

struct Line<'a>(&'a Body<'a>);

impl Display for Line<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Body::ReleaseTracked(event) => match &event.shard {
                Some(shard) => write!(f, "tracked in shard {shard}"),
                None => f.write_str("tracked, in no shard"),
            },
            Body::ReleaseDeleting(_) => f.write_str("deletion began"),
            Body::ReleaseDeleted(_) => f.write_str("deleted"),
            Body::SyncStarted(event) => {
                write!(f, "sync to {} began", event.render_ref)?;
                optional(f, ", revision ", event.revision.as_ref())?;
                event.items.map_or(Ok(()), |items| write!(f, ", {items} items"))
            }
            Body::SyncFinished(event) => {
                write!(f, "sync to {}: {}", event.render_ref, event.outcome)?;
                optional(f, ": ", event.message.as_ref())
            }
            Body::ItemApplied(event) => {
                write!(f, "{} applied from {}, wave {}", ItemRef::from(&event.item), event.render_ref, event.wave)
            }
            Body::ItemApplyFailed(event) => {
                write!(f, "{} not applied from {}: {}", named(&event.item), event.render_ref, event.message)
            }
            Body::ItemPruned(event) => write!(f, "{} pruned", named(&event.item)),
            Body::ItemPruneFailed(event) => write!(f, "{} not pruned: {}", named(&event.item), event.message),
            Body::HealthAssessed(event) => {
                write!(f, "{} is {} at {}", named(&event.item), event.state, event.assessed_render_ref)?;
                optional(f, ": ", event.message.as_ref())
            }
            Body::HookStarted(event) => {
                let (hook, workload) = (&event.hook, Work(&event.workload));
                write!(f, "{} {} started as {workload} for {}", hook.phase, hook.name, event.render_ref)
            }
            Body::HookSkipped(event) => {
                write!(f, "{} {} skipped for {}", event.hook.phase, event.hook.name, event.render_ref)?;
                optional(f, ": ", event.message.as_ref())
            }
            Body::HookRemoved(event) => write!(f, "{} {} removed", event.hook.phase, event.hook.name),
            Body::HookRunning(event) => {
                write!(f, "{} {} is running for {}", event.hook.phase, event.hook.name, event.render_ref)?;
                optional(f, ": ", event.message.as_ref())
            }
            Body::HookFinished(event) => {
                let hook = &event.hook;
                write!(f, "{} {}: {} for {}", hook.phase, hook.name, event.state, event.render_ref)?;
                optional(f, ": ", event.message.as_ref())
            }
            Body::InventoryDeleted(_) => f.write_str("inventory is gone from the cluster"),
            Body::ProjectionRefused(event) => {
                write!(f, "the cluster refused {}: {}: {}", event.field_manager, event.reason, event.message)
            }
            Body::DeploymentRecorded(event) => write!(f, "deployment recorded as {}", event.payload_type),
        }
    }
}

fn named<'a>(item: &'a Item<'_>) -> ItemRef<'a> {
    item.into()
}

fn optional(f: &mut Formatter<'_>, before: &str, value: Option<&impl Display>) -> fmt::Result {
    value.map_or(Ok(()), |value| write!(f, "{before}{value}"))
}

/// `Kind namespace/name`, as people say it.
impl Display for ItemRef<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { group: _, kind, namespace, name } = self;
        if namespace.is_empty() { write!(f, "{kind} {name}") } else { write!(f, "{kind} {namespace}/{name}") }
    }
}

struct Work<'a>(&'a Workload<'a>);

impl Display for Work<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0.kind, self.0.name)
    }
}
