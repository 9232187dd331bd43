//! The attributes: which are required, of which type, and which are not looked at.

use serde_json::{Value, json};

use crate::verdict::{OK, check, check_with, check_without, with_bytes, with_data_bytes};

#[test]
fn required_attributes_are_there_and_not_empty() {
    for name in ["specversion", "id", "source", "type", "time"] {
        let pointer = format!("/{name}");
        check_without(&pointer, &format!("invalid: /{name}: is required"));
        check_with(&pointer, Value::Null, &format!("invalid: /{name}: is required"));
        check_with(&pointer, json!(""), &format!("invalid: /{name}: must not be empty"));
        check_with(&pointer, json!(5), &format!("invalid: /{name}: is a number, and must be a string"));
        check_with(&pointer, json!(-5), &format!("invalid: /{name}: is a negative number, and must be a string"));
        check_with(&pointer, json!(0.5), &format!("invalid: /{name}: is a fraction, and must be a string"));
        check_with(&pointer, json!(true), &format!("invalid: /{name}: is true or false, and must be a string"));
        check_with(&pointer, json!(["1.0"]), &format!("invalid: /{name}: is a list, and must be a string"));
        check_with(&pointer, json!({ "a": [] }), &format!("invalid: /{name}: is a map, and must be a string"));
    }
    check_with("/specversion", json!("0.3"), "invalid: /specversion: \"0.3\" is not \"1.0\"");
    check_with(
        "/time",
        json!("10:00"),
        "invalid: /time: \"10:00\" is not an RFC 3339 time such as 2026-03-02T10:00:05Z",
    );
    check("{}", "invalid: /type: is required");
    check(b"\x80", "invalid: /type: is required");
}

#[test]
fn optional_attributes_may_be_null_and_have_their_type() {
    for name in ["cluster", "releaseuid", "correlationid", "traceparent"] {
        let pointer = format!("/{name}");
        check_with(&pointer, Value::Null, OK);
        check_with(&pointer, json!(""), OK);
        check_with(&pointer, json!("x"), OK);
        check_with(&pointer, json!(5), &format!("invalid: /{name}: is a number, and must be a string"));
        check_with(&pointer, json!({}), &format!("invalid: /{name}: is a map, and must be a string"));
    }
    for name in ["writerseq", "term"] {
        let pointer = format!("/{name}");
        check_with(&pointer, Value::Null, OK);
        check_with(&pointer, json!(1), OK);
        check_with(&pointer, json!(u64::MAX), OK);
        check_with(
            &pointer,
            json!(-1),
            &format!("invalid: /{name}: is a negative number, and must be a whole number of 0 or more"),
        );
        check_with(
            &pointer,
            json!(1.0),
            &format!("invalid: /{name}: is a fraction, and must be a whole number of 0 or more"),
        );
        check_with(
            &pointer,
            json!("1"),
            &format!("invalid: /{name}: is a string, and must be a whole number of 0 or more"),
        );
    }
    check_with("/term", json!(0), OK);
    check_with("/writerseq", json!(0), "invalid: /writerseq: is 0, and writers count from 1");
}

#[test]
fn unknown_attributes_and_fields_are_not_looked_at() {
    for value in [json!(null), json!(-1), json!(0.5), json!("text"), json!([[], {}]), json!({ "a": { "b": [1] } })] {
        check_with("/x", value.clone(), OK);
        check_with("/datacontenttype", value.clone(), OK);
        check_with("/data/x", value.clone(), OK);
        check_with("/data/item/x", value, OK);
    }
    // What JSON has no word for: bytes, extensions such as a timestamp, and floats of 32 bits.
    for value in [
        &b"\xc4\x02\xff\xfe"[..],
        b"\xd4\x05\x00",
        b"\xd6\xff\x00\x00\x00\x00",
        b"\xd8\x01................",
        b"\xc7\x03\x07abc",
        b"\xc7\x00\x07",
        b"\xca\x7f\xc0\x00\x00",
    ] {
        check(with_bytes(value), OK);
        check(with_data_bytes(value), OK);
    }
}

#[test]
fn a_type_that_is_not_known_is_unsupported_whatever_the_rest() {
    let unknown = |name: &str| format!("unsupported: /type: {name:?} is not a type that this version of decklog knows");
    for name in [
        "dev.decklog.ItemExploded.v1",
        "dev.decklog.HealthAssessed.v2",
        "HealthAssessed",
        "dev.decklog.healthassessed.v1",
    ] {
        check_with("/type", json!(name), &unknown(name));
    }
    check(r#"{"type":"com.example.x"}"#, &unknown("com.example.x"));
    check_with("/type", json!("é".repeat(5000)), &unknown(&"é".repeat(128)));
}
