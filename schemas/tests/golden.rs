//! Golden files: events that were ever written decode for ever, and the published documents change only on purpose.
//!
//! Documents are rewritten by `UPDATE_EXPECT=1 cargo test -p decklog-schemas --test golden`. Events are frozen: the same
//! command makes the MessagePack form of an event that has none yet, and touches nothing else.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use decklog_schemas::catalog::{asyncapi, json_schema};
use decklog_schemas::crd::custom_resource_definition;
use decklog_schemas::{Draft, Envelope, Event, EventType, ReleaseKey, Seconds};
use serde_json::Value;

const UPDATE: &str = "UPDATE_EXPECT=1 cargo test -p decklog-schemas --test golden";

// --- Events ---------------------------------------------------------------------------------------------------------

#[test]
fn every_event_decodes_alike_from_both_forms_and_is_written_as_it_was() {
    for event_type in EventType::ALL {
        let json = event_text(&format!("{event_type}.v1.json"));
        let msgpack = msgpack_of(*event_type, &json);

        let attributes = parsed(*event_type, &json);
        let envelope = decode(event_type.name(), json.as_bytes());
        let event = validate(event_type.name(), &envelope);
        assert_eq!(event.body.event_type(), *event_type);
        assert_eq!(
            rewritten(&event, &envelope, &attributes, |draft| draft.to_json()),
            json,
            "{event_type}.v1.json is written otherwise"
        );

        let attributes: Value = rmp_serde::from_slice(&msgpack).expect("decklog's MessagePack is a JSON value");
        let envelope = decode(event_type.name(), &msgpack);
        assert_eq!(event, validate(event_type.name(), &envelope));
        let bytes = rewritten(&event, &envelope, &attributes, msgpack_bytes);
        assert_eq!(bytes, msgpack, "{event_type}.v1.msgpack is written otherwise");
    }
}

#[test]
fn an_event_with_nothing_optional_decodes_alike_from_both_forms() {
    for event_type in EventType::ALL {
        let json = event_text(&format!("{event_type}.v1.minimal.json"));
        let attributes = parsed(*event_type, &json);
        let envelope = decode(event_type.name(), json.as_bytes());
        let event = validate(event_type.name(), &envelope);

        let bytes = rewritten(&event, &envelope, &attributes, msgpack_bytes);
        let envelope = decode(event_type.name(), &bytes);
        assert_eq!(event, validate(event_type.name(), &envelope));
    }
}

/// The files prove nothing about a field that they do not hold.
#[test]
fn golden_events_hold_every_field_or_only_the_required_ones() {
    for event_type in EventType::ALL {
        let schema = json_schema(*event_type);
        let full = event_text(&format!("{event_type}.v1.json"));
        let mut full = parsed(*event_type, &full);
        if *event_type == EventType::DeploymentRecorded {
            // It is about no release, so nothing is written that would name one.
            for attribute in ["subject", "cluster", "releaseuid"] {
                assert_eq!(full.get(attribute), None, "{event_type}");
                full[attribute] = "none".into();
            }
        }
        check_fields(&format!("{event_type}.v1.json"), &schema, &full, |schema| {
            names(schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name))
        });
        let minimal = event_text(&format!("{event_type}.v1.minimal.json"));
        let minimal = parsed(*event_type, &minimal);
        check_fields(&format!("{event_type}.v1.minimal.json"), &schema, &minimal, |schema| {
            names(schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str))
        });
    }
}

#[test]
fn no_golden_event_is_without_a_reader() {
    let known: BTreeSet<String> = EventType::ALL
        .iter()
        .flat_map(|event_type| ["json", "msgpack", "minimal.json"].map(|form| format!("{event_type}.v1.{form}")))
        .collect();
    let found = fs::read_dir(path("events")).expect("golden/events is a folder");
    for entry in found {
        let name = entry.expect("a readable folder").file_name();
        assert!(known.contains(&*name.to_string_lossy()), "{name:?} is of no known type");
    }
}

// --- Documents ------------------------------------------------------------------------------------------------------

#[test]
fn the_custom_resource_definition_is_the_published_one() {
    check_document("crd.json", &custom_resource_definition());
}

#[test]
fn the_asyncapi_document_is_the_published_one() {
    check_document("asyncapi.json", &asyncapi());
}

#[test]
fn the_schemas_are_the_published_ones() {
    for event_type in EventType::ALL {
        check_document(&format!("schema/{event_type}.v1.json"), &json_schema(*event_type));
    }
}

// --- How events are checked -----------------------------------------------------------------------------------------

fn decode<'a>(name: &str, bytes: &'a [u8]) -> Envelope<'a> {
    Envelope::decode(bytes).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn parsed(event_type: EventType, json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{event_type}: {error}"))
}

fn validate<'a>(name: &str, envelope: &Envelope<'a>) -> Event<'a> {
    envelope.clone().validate().unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The event as decklog writes it, with what the fold has no use for taken from the attributes.
fn rewritten<T>(event: &Event<'_>, envelope: &Envelope<'_>, attributes: &Value, write: fn(&Draft<'_>) -> T) -> T {
    let release = envelope.subject().and_then(|subject| subject.split_once('/'));
    let release = release.map(|(namespace, name)| ReleaseKey::new(envelope.cluster(), namespace, name));
    let time = envelope.time().map(Seconds::parse_timestamp);
    write(&Draft {
        id: &event.id,
        source: &event.source,
        release: release.as_ref(),
        time: time.expect("a validated event has a time").expect("which was read before"),
        release_uid: event.release_uid.as_deref(),
        writer_seq: event.writer_seq,
        term: event.term,
        correlation_id: attributes["correlationid"].as_str(),
        trace_parent: attributes["traceparent"].as_str(),
        body: event.body.clone(),
    })
}

fn msgpack_bytes(draft: &Draft<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    draft.write_msgpack(&mut bytes);
    bytes
}

/// Whether a value and the objects in it have exactly the fields that `wanted` reads from their schema.
fn check_fields(place: &str, schema: &Value, value: &Value, wanted: fn(&Value) -> BTreeSet<String>) {
    let Some(object) = value.as_object() else {
        panic!("{place} is not an object");
    };
    assert_eq!(names(object.keys()), wanted(schema), "fields of {place}");
    for (name, value) in object {
        let schema = &schema["properties"][name];
        if schema.get("properties").is_some() {
            check_fields(&format!("{place}: {name}"), schema, value, wanted);
        }
    }
}

fn names<S: AsRef<str>>(names: impl Iterator<Item = S>) -> BTreeSet<String> {
    names.map(|name| name.as_ref().to_owned()).collect()
}

// --- Files ----------------------------------------------------------------------------------------------------------

fn path(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/golden")).join(name)
}

#[expect(clippy::disallowed_methods, reason = "a test is told by its environment to rewrite what it expects")]
fn updating() -> bool {
    std::env::var_os("UPDATE_EXPECT").is_some()
}

/// The one line of a golden event.
fn event_text(name: &str) -> String {
    let text = fs::read_to_string(path("events").join(name)).unwrap_or_else(|error| {
        panic!(
            "schemas/golden/events/{name}: {error}; write it by hand, the event on one line as Draft::to_json has it \
            (with every optional field, or in the minimal file with none), then run {UPDATE}"
        )
    });
    text.strip_suffix('\n').unwrap_or_else(|| panic!("{name} does not end with its line")).to_owned()
}

/// The golden MessagePack form; made from the JSON form if there is none and it was asked for.
fn msgpack_of(event_type: EventType, json: &str) -> Vec<u8> {
    let file = path("events").join(format!("{event_type}.v1.msgpack"));
    if updating() && !file.exists() {
        let attributes = parsed(event_type, json);
        let envelope = decode(event_type.name(), json.as_bytes());
        let event = validate(event_type.name(), &envelope);
        let bytes = rewritten(&event, &envelope, &attributes, msgpack_bytes);
        fs::write(&file, bytes).expect("golden/events is writable");
    }
    fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}; run {UPDATE}", file.display()))
}

#[track_caller]
fn check_document(name: &str, document: &Value) {
    let file = path(name);
    let text = format!("{document:#}\n");
    if updating() {
        fs::create_dir_all(file.parent().expect("a file in a folder")).expect("golden is writable");
        fs::write(&file, &text).expect("golden is writable");
    }
    let golden = fs::read_to_string(&file).unwrap_or_default();
    if serde_json::from_str::<Value>(&golden).ok().as_ref() != Some(document) {
        let line = golden.lines().zip(text.lines()).take_while(|(old, new)| old == new).count();
        panic!(
            "schemas/golden/{name} differs from line {} on:\n  golden: {:?}\n  now:    {:?}\nif the change is meant, run {UPDATE}",
            line + 1,
            golden.lines().nth(line),
            text.lines().nth(line),
        );
    }
}
