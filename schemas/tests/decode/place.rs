//! Where an event stands: the subject that it gets, and the subjects under which it is not believed.

use decklog_schemas::subject::{MAX_SUBJECT_BYTES, place};
use decklog_schemas::{Envelope, Record, Seconds, Sequence};
use serde_json::{Value, json};

use crate::verdict::{base, msgpack, with};

/// Compares the subject that an event gets, or the reason why it gets none, in both forms.
#[track_caller]
fn check_place(event: &Value, expect: &str) {
    for bytes in [event.to_string().into_bytes(), msgpack(event)] {
        let envelope = Envelope::decode(&bytes).expect("an event");
        let placed = place(&envelope).unwrap_or_else(|unplaced| unplaced.to_string());
        assert_eq!(placed, expect, "{event}");
    }
}

/// Opens an event as a record under a subject, and compares why it is set aside; `""` if it is not.
#[track_caller]
fn check_open(subject: &str, event: &Value, expect: &str) {
    let record = Record {
        sequence: Sequence::FIRST,
        recorded: Seconds::parse_timestamp("2026-03-02T10:00:00Z").expect("a time"),
        subject: subject.into(),
        bytes: event.to_string().into_bytes().into(),
    };
    let problem = record.open().map_or_else(|reason| reason.to_string(), |_| String::new());
    assert_eq!(problem, expect, "{subject}");
}

fn deployment(payload: &Value) -> Value {
    let mut event = with("/type", Some(json!("dev.decklog.DeploymentRecorded.v1")));
    event["data"] = json!({ "payloadType": "helm-deployment-from-concourse.v1", "payload": payload });
    event
}

#[test]
fn an_event_stands_under_its_release_and_its_domain() {
    let base = base();
    check_place(&base, "decklog.release.default.shop.checkout.health-inventory.HealthAssessed");
    let dotted = with("/subject", Some(json!("shop/check.out*>")));
    check_place(&dotted, "decklog.release.default.shop.check%2Eout%2A%3E.health-inventory.HealthAssessed");
    let cluster = with("/cluster", Some(json!("prod eu")));
    check_place(&cluster, "decklog.release.prod%20eu.shop.checkout.health-inventory.HealthAssessed");
    let newer = with("/type", Some(json!("dev.decklog.HealthAssessed.v2")));
    check_place(&newer, "decklog.release.default.shop.checkout.health-inventory.HealthAssessed");
    let unknown = with("/type", Some(json!("com.example.thing")));
    check_place(&unknown, "decklog.release.default.shop.checkout.unsupported.com%2Eexample%2Ething");
}

#[test]
fn a_release_is_named_by_namespace_and_name() {
    let wanted = "and must be \"<namespace>/<release>\"";
    check_place(&with("/subject", None), &format!("/subject: is missing or not a string, {wanted}"));
    for subject in ["checkout", "/checkout", "shop/", "shop/check/out", ""] {
        let event = with("/subject", Some(json!(subject)));
        check_place(&event, &format!("/subject: is {subject:?}, {wanted}"));
    }
    let longest = "n".repeat(MAX_SUBJECT_BYTES - "decklog.release.default.shop..health-inventory.HealthAssessed".len());
    let event = with("/subject", Some(json!(format!("shop/{longest}"))));
    check_place(&event, &format!("decklog.release.default.shop.{longest}.health-inventory.HealthAssessed"));
    let event = with("/subject", Some(json!(format!("shop/{longest}n"))));
    check_place(
        &event,
        &format!("/subject: makes, with cluster and type, a subject of 1025 bytes where 1024 are the most, {wanted}"),
    );
}

#[test]
fn a_deployment_stands_under_what_its_payload_says() {
    let payload = json!({ "region": "eu-de-1", "pipeline": { "team": "a b", "name": "x.y" } }).to_string();
    check_place(&deployment(&json!(payload)), "decklog.deployment.eu-de-1.a%20b.x%2Ey");
    check_place(&deployment(&json!("{}")), "decklog.deployment.%.%.%");
    check_place(&deployment(&json!("not JSON")), "decklog.deployment.%.%.%");
    check_place(&deployment(&json!(5)), "decklog.deployment.%.%.%");
}

#[test]
fn an_event_is_believed_only_under_its_own_release_and_domain() {
    let own = "decklog.release.default.shop.checkout.health-inventory.HealthAssessed";
    check_open(own, &base(), "");
    for other in [
        "decklog.release.default.shop.checkout.release-inventory.HealthAssessed",
        "decklog.release.default.shop.other.health-inventory.HealthAssessed",
        "decklog.release.other.shop.checkout.health-inventory.HealthAssessed",
        "decklog.deployment.eu-de-1.team.pipeline",
    ] {
        check_open(other, &base(), &format!("the event belongs under the subject {own:?} and stands under {other:?}"));
    }
    let deployed = deployment(&json!("{}"));
    check_open("decklog.deployment.%.%.%", &deployed, "");
    let release = "decklog.release.default.shop.checkout.deployment.DeploymentRecorded";
    check_open(
        release,
        &deployed,
        &format!("the event belongs under the subject \"decklog.deployment.%.%.%\" and stands under {release:?}"),
    );
    check_open("elsewhere", &base(), "the subject \"elsewhere\" is none of decklog's");
}

#[test]
fn an_unknown_type_is_kept_wherever_it_stands() {
    let unknown = with("/type", Some(json!("dev.decklog.ItemExploded.v1")));
    check_open("decklog.release.default.shop.checkout.release-inventory.ItemExploded", &unknown, "");
    check_open("decklog.release.default.shop.checkout.unsupported.ItemExploded", &unknown, "");
    check_open("decklog.deployment.a.b.c", &unknown, "");
}
