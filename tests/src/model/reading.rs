//! What one event says, read from its JSON: its fields by path, its type, and whether it keeps the rules of that type.

use serde_json::Value;

use super::times::{duration, moment};

/// A known type: its name, its domain, and the rules of its data.
pub(super) struct Type {
    pub(super) name: &'static str,
    pub(super) domain: &'static str,
    rules: &'static [&'static [Rule]],
}

/// One rule about one field.
struct Rule {
    path: &'static str,
    need: Need,
    shape: Shape,
}

#[derive(PartialEq)]
enum Need {
    Required,
    Optional,
}

enum Shape {
    Text,
    /// Text that is not empty.
    Name,
    OneOf(&'static [&'static str]),
    Time,
    Duration,
    Integer,
    /// An integer that is this or more.
    From(u64),
}

const ENVELOPE: &[Rule] = &[
    must("specversion", Shape::OneOf(&["1.0"])),
    must("id", Shape::Name),
    must("source", Shape::Name),
    must("type", Shape::Name),
    must("time", Shape::Time),
    may("cluster", Shape::Text),
    may("releaseuid", Shape::Text),
    may("writerseq", Shape::From(1)),
    may("term", Shape::From(0)),
    may("correlationid", Shape::Text),
    may("traceparent", Shape::Text),
];

const ITEM: &[Rule] = &[
    must("data/item/group", Shape::Text),
    must("data/item/kind", Shape::Name),
    must("data/item/namespace", Shape::Text),
    must("data/item/name", Shape::Name),
    may("data/item/version", Shape::Text),
];
const HOOK: &[Rule] = &[must("data/hook/name", Shape::Name), must("data/hook/phase", PHASE)];
const WORKLOAD: &[Rule] = &[
    must("data/workload/group", Shape::Text),
    must("data/workload/version", Shape::Text),
    must("data/workload/kind", Shape::Name),
    must("data/workload/name", Shape::Name),
    may("data/workload/namespace", Shape::Text),
    may("data/workload/uid", Shape::Text),
    must("data/weight", Shape::Integer),
];
const RENDER: &[Rule] = &[must("data/renderRef", Shape::Name)];
const UID: &[Rule] = &[may("data/uid", Shape::Text)];
const MESSAGE: &[Rule] = &[may("data/message", Shape::Text)];
const MESSAGE_NEEDED: &[Rule] = &[must("data/message", Shape::Text)];

const PHASE: Shape = Shape::OneOf(&["PreSync", "PostSync", "PreDelete", "PostDelete", "SyncFailed"]);
const HEALTH: Shape = Shape::OneOf(&["Healthy", "Progressing", "Degraded", "Unknown"]);
const END_OF_A_SYNC: Shape = Shape::OneOf(&["Succeeded", "Failed", "Aborted"]);
const END_OF_A_HOOK: Shape = Shape::OneOf(&["Succeeded", "Failed", "TimedOut"]);

const TYPES: [Type; 18] = [
    of_type("ReleaseTracked", "release", &[&[may("data/shard", Shape::Text)]]),
    of_type("ReleaseDeleting", "release", &[]),
    of_type("ReleaseDeleted", "release", &[]),
    of_type(
        "SyncStarted",
        "release",
        &[RENDER, &[may("data/revision", Shape::Text), may("data/items", Shape::From(0))]],
    ),
    of_type("SyncFinished", "release", &[RENDER, MESSAGE, &[must("data/outcome", END_OF_A_SYNC)]]),
    of_type(
        "ItemApplied",
        "release-inventory",
        &[ITEM, RENDER, UID, &[must("data/item/version", Shape::Text), may("data/wave", Shape::Integer)]],
    ),
    of_type("ItemApplyFailed", "release-inventory", &[ITEM, RENDER, MESSAGE_NEEDED]),
    of_type("ItemPruned", "release-inventory", &[ITEM, UID]),
    of_type("ItemPruneFailed", "release-inventory", &[ITEM, MESSAGE_NEEDED]),
    of_type(
        "HealthAssessed",
        "health-inventory",
        &[
            ITEM,
            UID,
            MESSAGE,
            &[
                must("data/state", HEALTH),
                must("data/assessedRenderRef", Shape::Name),
                may("data/firstUnhealthy", Shape::Time),
            ],
        ],
    ),
    of_type(
        "HookStarted",
        "release-hooks",
        &[HOOK, WORKLOAD, RENDER, &[may("data/timeout", Shape::Duration), must("data/createdAt", Shape::Time)]],
    ),
    of_type("HookSkipped", "release-hooks", &[HOOK, WORKLOAD, RENDER, MESSAGE]),
    of_type("HookRemoved", "release-hooks", &[HOOK]),
    of_type("HookRunning", "hook-status", &[HOOK, RENDER, MESSAGE]),
    of_type(
        "HookFinished",
        "hook-status",
        &[
            HOOK,
            RENDER,
            MESSAGE,
            &[
                must("data/state", END_OF_A_HOOK),
                may("data/finishedAt", Shape::Time),
                may("data/workloadUid", Shape::Text),
            ],
        ],
    ),
    of_type("InventoryDeleted", "projector", &[]),
    of_type(
        "ProjectionRefused",
        "projector",
        &[MESSAGE_NEEDED, &[must("data/fieldManager", Shape::Text), must("data/reason", Shape::Text)]],
    ),
    of_type("DeploymentRecorded", "deployment", &[&[must("data/payloadType", Shape::Text)]]),
];

/// The event's type, if this build knows it and its major version.
pub(super) fn type_of(event: &Value) -> Option<&'static Type> {
    let name = text(event, "type")?.strip_prefix("dev.decklog.")?.strip_suffix(".v1")?;
    TYPES.iter().find(|known| known.name == name)
}

/// Whether an event of this type has every required field, and each field in its shape.
pub(super) fn keeps_the_rules(event: &Value, known: &Type) -> bool {
    let data_is_a_map = field(event, "data").is_none_or(Value::is_object);
    let mut rules = ENVELOPE.iter().chain(known.rules.iter().copied().flatten());
    data_is_a_map && rules.all(|rule| keeps(event, rule))
}

fn keeps(event: &Value, rule: &Rule) -> bool {
    let Some(value) = field(event, rule.path) else {
        return rule.need == Need::Optional;
    };
    let is_text = |holds: &dyn Fn(&str) -> bool| value.as_str().is_some_and(holds);
    match rule.shape {
        Shape::Text => value.is_string(),
        Shape::Name => is_text(&|text| !text.is_empty()),
        Shape::OneOf(values) => is_text(&|text| values.contains(&text)),
        Shape::Time => is_text(&|text| moment(text).is_some()),
        Shape::Duration => is_text(&|text| duration(text).is_some()),
        Shape::Integer => value.as_i64().is_some(),
        Shape::From(least) => value.as_u64().is_some_and(|number| number >= least),
    }
}

const fn of_type(name: &'static str, domain: &'static str, rules: &'static [&'static [Rule]]) -> Type {
    Type { name, domain, rules }
}

const fn must(path: &'static str, shape: Shape) -> Rule {
    Rule { path, need: Need::Required, shape }
}

const fn may(path: &'static str, shape: Shape) -> Rule {
    Rule { path, need: Need::Optional, shape }
}

/// The value at a path such as `data/item/name`; null is absent.
pub(super) fn field<'a>(event: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('/').try_fold(event, |value, key| value.get(key)).filter(|value| !value.is_null())
}

/// The text at a path.
pub(super) fn text<'a>(event: &'a Value, path: &str) -> Option<&'a str> {
    field(event, path)?.as_str()
}

/// The uid at a path; an empty one is absent.
pub(super) fn uid<'a>(event: &'a Value, path: &str) -> Option<&'a str> {
    text(event, path).filter(|uid| !uid.is_empty())
}

/// The number at a path that is zero or more.
pub(super) fn number(event: &Value, path: &str) -> Option<u64> {
    field(event, path)?.as_u64()
}
