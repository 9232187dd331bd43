//! The verdict on some bytes, and the event that the inputs of these tests are made from.

use decklog_schemas::Envelope;
use serde_json::{Value, json};

/// The verdict on an event that the fold can use.
pub(crate) const OK: &str = "ok";

/// Decodes and validates one event, and compares the verdict.
#[track_caller]
pub(crate) fn check(input: impl AsRef<[u8]>, expect: &str) {
    let input = input.as_ref();
    let verdict = verdict(input);
    let shown = String::from_utf8_lossy(&input[..input.len().min(120)]);
    assert_eq!(verdict, expect, "{shown}");
}

/// Checks both forms of the base event with one value put in its place.
#[track_caller]
pub(crate) fn check_with(pointer: &str, value: Value, expect: &str) {
    let event = with(pointer, Some(value));
    check(event.to_string(), expect);
    check(msgpack(&event), expect);
}

/// Checks both forms of the base event without the field at a pointer.
#[track_caller]
pub(crate) fn check_without(pointer: &str, expect: &str) {
    let event = with(pointer, None);
    check(event.to_string(), expect);
    check(msgpack(&event), expect);
}

/// What becomes of some bytes, in one line.
pub(crate) fn verdict(input: &[u8]) -> String {
    match Envelope::decode(input).map(Envelope::validate) {
        Err(malformed) => format!("malformed: {malformed}"),
        Ok(Err(refusal)) => format!("{}: {refusal}", refusal.reason()),
        Ok(Ok(_)) => OK.to_owned(),
    }
}

/// An event in order, with nothing optional.
pub(crate) fn base() -> Value {
    json!({
        "specversion": "1.0",
        "id": "0197a3d0-0000-7000-8000-000000000001",
        "source": "/observer/1",
        "type": "dev.decklog.HealthAssessed.v1",
        "subject": "shop/checkout",
        "time": "2026-03-02T10:00:00Z",
        "data": {
            "item": { "group": "apps", "kind": "Deployment", "namespace": "shop", "name": "api" },
            "state": "Healthy",
            "assessedRenderRef": "r1",
        },
    })
}

/// The base event with the value at a pointer replaced, added or removed.
pub(crate) fn with(pointer: &str, value: Option<Value>) -> Value {
    let mut event = base();
    let (parent, name) = pointer.rsplit_once('/').expect("a JSON pointer");
    let parent = event.pointer_mut(parent).and_then(Value::as_object_mut).expect("an object there");
    match value {
        Some(value) => drop(parent.insert(name.to_owned(), value)),
        None => drop(parent.remove(name).expect("the field is there")),
    }
    event
}

/// The same event as MessagePack.
pub(crate) fn msgpack(event: &Value) -> Vec<u8> {
    rmp_serde::to_vec_named(event).expect("a JSON value is a MessagePack value")
}

/// The base event as MessagePack with one more attribute, `x`, whose value is these bytes.
pub(crate) fn with_bytes(value: &[u8]) -> Vec<u8> {
    let mut bytes = msgpack(&base());
    bytes[0] += 1;
    bytes.extend(b"\xa1x");
    bytes.extend(value);
    bytes
}

/// The base event as MessagePack with one more field in its data, `x`, whose value is these bytes.
pub(crate) fn with_data_bytes(value: &[u8]) -> Vec<u8> {
    let mut event = base();
    let data = event.as_object_mut().and_then(|event| event.remove("data")).expect("it has data");
    let mut bytes = msgpack(&event);
    bytes[0] += 1;
    bytes.extend(b"\xa4data");
    let mut data = msgpack(&data);
    data[0] += 1;
    bytes.extend(data);
    bytes.extend(b"\xa1x");
    bytes.extend(value);
    bytes
}
