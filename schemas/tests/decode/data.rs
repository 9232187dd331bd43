//! The data: maps all the way down, words that are known, and errors that name their place.

use serde_json::{Value, json};

use crate::verdict::{OK, check, check_with, check_without, msgpack, verdict, with};

#[test]
fn data_is_a_map_all_the_way_down() {
    check_without("/data", "invalid: /data: missing field `item`");
    check_with("/data", Value::Null, "invalid: /data: missing field `item`");
    check_with("/data", json!({}), "invalid: /data: missing field `item`");
    for other in [json!([]), json!("{}"), json!(1), json!(["apps", "Healthy", "r1"])] {
        check_with("/data", other, "invalid: /data: must be a map");
    }
    check_with(
        "/data/item",
        json!(["apps", "v1", "Deployment", "shop", "api"]),
        "invalid: /data/item: invalid type: sequence, expected a map",
    );
    check_with("/data/item", json!("api"), "invalid: /data/item: invalid type: string \"api\", expected a map");
    check_with("/data/item", Value::Null, "invalid: /data/item: invalid type: null, expected a map");
}

#[test]
fn fields_have_their_type_and_errors_their_place() {
    check_without("/data/item/namespace", "invalid: /data/item: missing field `namespace`");
    check_with(
        "/data/item/namespace",
        Value::Null,
        "invalid: /data/item/namespace: invalid type: null, expected a string",
    );
    check_with("/data/item/namespace", json!(""), OK);
    check_with("/data/item/name", json!(""), "invalid: /data/item/name: must not be empty");
    check_with("/data/item/name", json!(7), "invalid: /data/item/name: invalid type: integer `7`, expected a string");
    check_with("/data/item/version", Value::Null, OK);
    check_with(
        "/data/item/version",
        json!(1),
        "invalid: /data/item/version: invalid type: integer `1`, expected a string",
    );
    check_with("/data/assessedRenderRef", json!(""), "invalid: /data/assessedRenderRef: must not be empty");
    check_without("/data/assessedRenderRef", "invalid: /data: missing field `assessedRenderRef`");
    for name in ["uid", "message", "firstUnhealthy"] {
        check_with(&format!("/data/{name}"), Value::Null, OK);
        check_with(
            &format!("/data/{name}"),
            json!(true),
            &format!("invalid: /data/{name}: invalid type: boolean `true`, expected a string"),
        );
    }
    check_with("/data/uid", json!(""), OK);
    let time = "is not an RFC 3339 time such as 2026-03-02T10:00:05Z";
    check_with("/data/firstUnhealthy", json!(""), &format!("invalid: /data/firstUnhealthy: \"\" {time}"));
    check_with(
        "/data/firstUnhealthy",
        json!("2026-03-02 10:00:00Z"),
        &format!("invalid: /data/firstUnhealthy: \"2026-03-02 10:00:00Z\" {time}"),
    );
    // A lone half of a surrogate pair is no string, and only its own field suffers.
    let event = with("/data/message", Some(json!("?"))).to_string().replace('?', "\\ud800");
    check(event, "invalid: /data/message: unexpected end of hex escape");
}

#[test]
fn a_state_is_one_of_the_words_and_nothing_else() {
    let words = "expected one of `Healthy`, `Progressing`, `Degraded`, `Unknown`";
    check_with("/data/state", json!("Fine"), &format!("invalid: /data/state: unknown variant `Fine`, {words}"));
    check_with("/data/state", json!("healthy"), &format!("invalid: /data/state: unknown variant `healthy`, {words}"));
    check_with("/data/state", json!(""), &format!("invalid: /data/state: unknown variant ``, {words}"));
    check_with("/data/state", Value::Null, "invalid: /data/state: invalid type: null, expected a string");
    check_with("/data/state", json!(0), "invalid: /data/state: invalid type: integer `0`, expected a string");
    check_with("/data/state", json!({ "Healthy": null }), "invalid: /data/state: invalid type: map, expected a string");
}

#[test]
fn what_is_wrong_is_told_in_few_words() {
    let long = "é".repeat(200_000);
    for pointer in ["/specversion", "/time", "/data/state", "/data/item", "/data/firstUnhealthy"] {
        let event = with(pointer, Some(json!(long)));
        for bytes in [event.to_string().into_bytes(), msgpack(&event)] {
            let verdict = verdict(&bytes);
            assert!(verdict.starts_with(&format!("invalid: {pointer}: ")), "{verdict}");
            assert!(verdict.chars().count() < 600, "{pointer}: {} characters", verdict.chars().count());
        }
    }
}
