//! One event from flags: each type says which flags it takes, and refuses the others.

use anyhow::{Context as _, Error};
use decklog_schemas::{Draft, EventType, ReleaseKey, Seconds};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use self::Use::{May, Must, Or};
use crate::args::EventFlags;
use crate::exit::Failure;

/// The event as MessagePack.
pub(crate) fn event(
    event_type: EventType,
    cluster: &str,
    release: Option<&str>,
    flags: &EventFlags,
) -> Result<Vec<u8>, Error> {
    let data = data(event_type, given(flags)?)?.to_string();
    let body = event_type.read_json(&data).map_err(|invalid| Failure::usage(format!("{event_type}: {invalid}")))?;
    let key = match (&flags.namespace, release) {
        (Some(namespace), Some(release)) => Some(ReleaseKey::new(cluster, namespace, release)),
        _ if event_type == EventType::DeploymentRecorded => None,
        _ => return Err(Failure::usage(format!("{event_type} is about a release: name it with -n NAMESPACE RELEASE"))),
    };
    let time = match &flags.time {
        Some(time) => Seconds::parse_timestamp(time).map_err(|error| Failure::usage(format!("--time: {error}")))?,
        None => jiff::Timestamp::now().round(jiff::Unit::Millisecond)?,
    };
    let id = flags.id.clone().unwrap_or_else(|| Uuid::now_v7().to_string());
    let source = flags.source.clone().unwrap_or_else(|| format!("/decklog-emit/{}", Uuid::now_v7()));
    let draft = Draft {
        id: &id,
        source: &source,
        release: key.as_ref(),
        time,
        release_uid: flags.release_uid.as_deref(),
        writer_seq: flags.writer_seq,
        term: flags.term,
        correlation_id: flags.correlation_id.as_deref(),
        trace_parent: None,
        body,
    };
    let mut bytes = Vec::new();
    draft.write_msgpack(&mut bytes);
    Ok(bytes)
}

/// A flag of an event that was given, whatever the event.
pub(crate) fn first_given(flags: &EventFlags) -> Option<&'static str> {
    let of_envelope = [
        ("-n", flags.namespace.is_some()),
        ("--cluster", flags.cluster.is_some()),
        ("--release-uid", flags.release_uid.is_some()),
        ("--id", flags.id.is_some()),
        ("--source", flags.source.is_some()),
        ("--time", flags.time.is_some()),
        ("--writer-seq", flags.writer_seq.is_some()),
        ("--term", flags.term.is_some()),
        ("--correlation-id", flags.correlation_id.is_some()),
    ];
    let of_data = given(flags).map(|given| given.first().map(|(flag, _)| *flag)).unwrap_or(Some("a flag"));
    of_envelope.iter().find(|(_, is_given)| *is_given).map(|(flag, _)| *flag).or(of_data)
}

/// A flag that a type takes, the field that it fills (a path), and what if it is not given.
type Field = (&'static str, &'static str, Use);

enum Use {
    Must,
    May,
    Or(fn() -> Value),
}

const ITEM: Field = ("--item", "/item", Must);
const RENDER: Field = ("--render", "/renderRef", Must);
const UID: Field = ("--uid", "/uid", May);
const MESSAGE: Field = ("--message", "/message", May);
const REASON: Field = ("--message", "/message", Must);
const HOOK: Field = ("--hook", "/hook", Must);
const WORKLOAD: Field = ("--workload", "/workload", Must);
const WORKLOAD_UID: Field = ("--uid", "/workload/uid", May);
const WEIGHT: Field = ("--weight", "/weight", Or(|| json!(0)));

fn fields(event_type: EventType) -> Vec<Field> {
    match event_type {
        EventType::ReleaseTracked => vec![("--shard", "/shard", May)],
        EventType::ReleaseDeleting | EventType::ReleaseDeleted | EventType::InventoryDeleted => vec![],
        EventType::SyncStarted => vec![RENDER, ("--revision", "/revision", May), ("--items", "/items", May)],
        EventType::SyncFinished => vec![RENDER, ("--state", "/outcome", Must), MESSAGE],
        EventType::ItemApplied => vec![ITEM, RENDER, ("--wave", "/wave", May), UID],
        EventType::ItemApplyFailed => vec![ITEM, RENDER, REASON],
        EventType::ItemPruned => vec![ITEM, UID],
        EventType::ItemPruneFailed => vec![ITEM, REASON],
        EventType::HealthAssessed => vec![
            ITEM,
            ("--state", "/state", Must),
            ("--render", "/assessedRenderRef", Must),
            ("--first-unhealthy", "/firstUnhealthy", May),
            UID,
            MESSAGE,
        ],
        EventType::HookStarted => vec![
            HOOK,
            WORKLOAD,
            RENDER,
            WEIGHT,
            ("--timeout", "/timeout", May),
            ("--created-at", "/createdAt", Or(|| json!(Seconds::of(jiff::Timestamp::now())))),
            WORKLOAD_UID,
        ],
        EventType::HookSkipped => vec![HOOK, WORKLOAD, RENDER, WEIGHT, WORKLOAD_UID, MESSAGE],
        EventType::HookRemoved => vec![HOOK],
        EventType::HookRunning => vec![HOOK, RENDER, MESSAGE],
        EventType::HookFinished => vec![
            HOOK,
            RENDER,
            ("--state", "/state", Must),
            ("--finished-at", "/finishedAt", May),
            ("--uid", "/workloadUid", May),
            MESSAGE,
        ],
        EventType::ProjectionRefused => {
            vec![("--field-manager", "/fieldManager", Must), ("--reason", "/reason", Must), REASON]
        }
        EventType::DeploymentRecorded => {
            vec![("--payload-type", "/payloadType", Must), ("--payload", "/payload", Must)]
        }
    }
}

/// The `data` of the event.
fn data(event_type: EventType, mut given: Vec<(&'static str, Value)>) -> Result<Value, Error> {
    let mut data = Map::new();
    let fields = fields(event_type);
    for (flag, path, when_absent) in &fields {
        let found = given.iter().position(|(name, _)| name == flag);
        let value = match (found, when_absent) {
            (Some(at), _) => given.swap_remove(at).1,
            (None, May) => continue,
            (None, Or(default)) => default(),
            (None, Must) => return Err(Failure::usage(format!("{event_type} needs {flag}"))),
        };
        match path[1..].split_once('/') {
            Some((parent, name)) => data.get_mut(parent).map(|parent| parent[name] = value).unwrap_or_default(),
            None => drop(data.insert(path[1..].to_owned(), value)),
        }
    }
    if let Some((flag, _)) = given.first() {
        let taken: Vec<_> = fields.iter().map(|(flag, ..)| *flag).collect();
        let taken = if taken.is_empty() { "none of these flags".to_owned() } else { taken.join(", ") };
        return Err(Failure::usage(format!("{event_type} takes no {flag}; it takes {taken}")));
    }
    Ok(Value::Object(data))
}

/// The flags that were given, with their values as the events have them.
fn given(flags: &EventFlags) -> Result<Vec<(&'static str, Value)>, Error> {
    let payload = flags.payload.as_deref().map(|path| {
        std::fs::read_to_string(path).with_context(|| format!("--payload: cannot read {}", path.display()))
    });
    let all = [
        ("--item", flags.item.as_deref().map(|text| object("--item", text)).transpose()?),
        ("--workload", flags.workload.as_deref().map(|text| object("--workload", text)).transpose()?),
        ("--hook", flags.hook.as_deref().map(hook).transpose()?),
        ("--payload", payload.transpose()?.map(Value::from)),
        ("--render", flags.render.as_deref().map(Value::from)),
        ("--wave", flags.wave.map(Value::from)),
        ("--uid", flags.uid.as_deref().map(Value::from)),
        ("--state", flags.state.as_deref().map(Value::from)),
        ("--first-unhealthy", flags.first_unhealthy.as_deref().map(Value::from)),
        ("--message", flags.message.as_deref().map(Value::from)),
        ("--weight", flags.weight.map(Value::from)),
        ("--timeout", flags.timeout.as_deref().map(Value::from)),
        ("--created-at", flags.created_at.as_deref().map(Value::from)),
        ("--finished-at", flags.finished_at.as_deref().map(Value::from)),
        ("--shard", flags.shard.as_deref().map(Value::from)),
        ("--revision", flags.revision.as_deref().map(Value::from)),
        ("--items", flags.items.map(Value::from)),
        ("--field-manager", flags.field_manager.as_deref().map(Value::from)),
        ("--reason", flags.reason.as_deref().map(Value::from)),
        ("--payload-type", flags.payload_type.as_deref().map(Value::from)),
    ];
    Ok(all.into_iter().filter_map(|(flag, value)| Some((flag, value?))).collect())
}

fn hook(text: &str) -> Result<Value, Error> {
    let (phase, name) = text
        .split_once('/')
        .ok_or_else(|| Failure::usage(format!("--hook {text:?}: use PHASE/NAME, such as PreSync/migrate")))?;
    Ok(json!({ "name": name, "phase": phase }))
}

fn object(flag: &str, text: &str) -> Result<Value, Error> {
    let parts: Vec<_> = text.split('/').collect();
    let [group, version, kind, namespace, name] = parts[..] else {
        return Err(Failure::usage(format!(
            "{flag} {text:?}: use GROUP/VERSION/KIND/NAMESPACE/NAME, \
             such as apps/v1/Deployment/shop/api or /v1/ConfigMap/shop/settings"
        )));
    };
    Ok(json!({ "group": group, "version": version, "kind": kind, "namespace": namespace, "name": name }))
}
