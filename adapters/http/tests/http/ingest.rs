//! `POST /v1/events`: what is stored, what is refused, and with which status.

use std::sync::atomic::Ordering;
use std::time::Duration;

use decklog_engine::ingest::Check;
use decklog_schemas::MAX_EVENT_BYTES;
use serde_json::{Value, json};

use crate::events::{self, invalid, msgpack};
use crate::raw;
use crate::served::{Gate, Served};

/// Of each answer its status.
fn statuses(answer: &raw::Answer) -> Vec<String> {
    let word = |answer: &Value| answer["status"].as_str().expect("a status").to_owned();
    answer.json().as_array().expect("a list of answers").iter().map(word).collect()
}

/// Sends the body; all of it is stored, as exactly these events.
async fn check_stored(content_type: &str, body: &[u8], expect: &[&[u8]]) {
    let served = Served::start().await;
    let answer = raw::events(&served.socket, content_type, body).await;
    assert_eq!(answer.status, 200, "{content_type}: {answer:?}");
    assert_eq!(statuses(&answer), vec!["stored"; expect.len()], "{content_type}");
    assert_eq!(served.stored().await, expect, "{content_type}");
}

#[tokio::test]
async fn every_content_type_keeps_the_bytes() {
    let one = events::json("1", "shop/checkout");
    let odd = String::from_utf8(events::json("2", "shop/checkout")).unwrap();
    let odd = odd.replace(":{}", " :\t{ \"x\":\"\\u0041\", \"y\": 1.0e0 }");
    let spread = odd.replace(',', ",\n  ");
    let padded = format!(" \r\n{spread}\n ");
    let batch = [b"[\n ", &one[..], b" ,", spread.as_bytes(), b"\n]\n"].concat();
    let lines = [b"\n", &one[..], b"\r\n \n", odd.as_bytes()].concat();
    let (pack, next) = (msgpack("3", "shop/checkout"), msgpack("4", "shop/cart"));
    check_stored("application/cloudevents+json", padded.as_bytes(), &[padded.as_bytes()]).await;
    check_stored("application/json", &one, &[&one]).await;
    check_stored("Application/JSON; charset=utf-8", &one, &[&one]).await;
    check_stored("application/cloudevents-batch+json", &batch, &[&one, spread.as_bytes()]).await;
    check_stored("application/x-ndjson", &lines, &[&one, odd.as_bytes()]).await;
    check_stored("application/cloudevents+msgpack", &pack, &[&pack]).await;
    let packs = [&pack[..], &next].concat();
    check_stored("application/cloudevents+msgpack", &packs, &[&pack, &next]).await;
    check_stored("application/cloudevents-batch+json", b"[]", &[]).await;
    check_stored("application/x-ndjson", b"", &[]).await;
}

#[tokio::test]
async fn an_answer_says_where_the_event_is_and_what_became_of_it() {
    let served = Served::start().await;
    let answer = raw::events(&served.socket, "application/json", &events::json("1", "shop/checkout")).await;
    let folded = json!([{"id": "1", "status": "stored", "sequence": 1, "outcome": "folded"}]);
    assert_eq!(answer.json(), folded);
    assert!(answer.head.contains("content-type: application/json"), "{}", answer.head);
}

#[tokio::test]
async fn a_bad_event_in_a_batch_stops_no_other() {
    let served = Served::start().await;
    let (first, last) = (events::json("1", "shop/checkout"), events::json("3", "shop/checkout"));
    let batch = [b"[", &first[..], b",", &invalid("2", "shop/checkout"), b",7,", &last, b"]"].concat();
    let answer = raw::events(&served.socket, "application/cloudevents-batch+json", &batch).await;
    assert_eq!(answer.status, 422);
    assert_eq!(statuses(&answer), ["stored", "refused", "refused", "stored"]);
    let errors = answer.json();
    assert!(errors[1]["error"].as_str().unwrap().starts_with("/time: "), "{errors}");
    assert_eq!(errors[1]["id"], "2");
    assert!(errors[2]["error"].as_str().unwrap().starts_with("byte 0 "), "{errors}");
    assert_eq!(served.stored().await, [first, last]);
}

#[tokio::test]
async fn a_bad_line_stops_no_other() {
    let served = Served::start().await;
    let good = events::json("1", "shop/checkout");
    let lines = [b"{\n", &good[..], b"\n\xff\xfe\n[]\n"].concat();
    let answer = raw::events(&served.socket, "application/x-ndjson", &lines).await;
    assert_eq!(answer.status, 422);
    assert_eq!(statuses(&answer), ["refused", "stored", "refused", "refused"]);
    assert_eq!(served.stored().await, [good]);
}

#[tokio::test]
async fn an_id_is_stored_once() {
    let served = Served::start().await;
    let event = events::json("1", "shop/checkout");
    let lines = [&event[..], b"\n", &event].concat();
    let answer = raw::events(&served.socket, "application/x-ndjson", &lines).await;
    assert_eq!((answer.status, statuses(&answer)), (200, vec!["stored".into(), "duplicate".into()]));
    let again = raw::events(&served.socket, "application/json", &event).await;
    assert_eq!(again.status, 200);
    let duplicate = json!([{"id": "1", "status": "duplicate", "sequence": 1, "outcome": "folded"}]);
    assert_eq!(again.json(), duplicate);
    assert_eq!(served.stored().await, [event]);
}

#[tokio::test]
async fn unchecked_events_are_stored_as_they_are() {
    let served = Served::start().await;
    let event = invalid("1", "shop/checkout");
    let refused =
        raw::post(&served.socket, "/v1/events?unchecked=false", "content-type: application/json\r\n", &event).await;
    assert_eq!((refused.status, statuses(&refused)), (422, vec!["refused".into()]));
    let stored =
        raw::post(&served.socket, "/v1/events?unchecked=true", "content-type: application/json\r\n", &event).await;
    let ignored = json!([{"id": "1", "status": "stored", "sequence": 1, "outcome": "ignored", "reason": "invalid"}]);
    assert_eq!((stored.status, stored.json()), (200, ignored));
    assert_eq!(served.stored().await, [event]);
}

#[tokio::test]
async fn unreadable_bodies_are_400_and_store_nothing() {
    let served = Served::start().await;
    let event = events::json("1", "shop/checkout");
    let cut = &event[..event.len() - 1];
    let pack = msgpack("1", "shop/checkout");
    let list = [b"[", &event[..], b"]"].concat();
    let packed = "application/cloudevents+msgpack";
    for (content_type, body, problem) in [
        ("application/json", &b""[..], "EOF"),
        ("application/json", cut, "EOF"),
        ("application/json", &[&event[..], &event].concat(), "trailing"),
        ("application/json", b"\"text\"", "not a JSON object"),
        ("application/json", b"{\"id\":\"\xff\"}", "cannot be read"),
        ("application/cloudevents+json", &list, "application/cloudevents-batch+json"),
        ("application/cloudevents-batch+json", &event, "expected a sequence"),
        ("application/cloudevents-batch+json", &list[..list.len() - 1], "EOF"),
        (packed, b"", "byte 0: no MessagePack map begins here"),
        (packed, &event, "byte 0: no MessagePack map begins here"),
        (packed, &pack[..pack.len() - 1], "byte 0: the MessagePack map does not end"),
        (packed, &[&pack[..], b"\xc1"].concat(), "no MessagePack map begins here"),
    ] {
        let answer = raw::events(&served.socket, content_type, body).await;
        assert_eq!(answer.status, 400, "{content_type} {answer:?}");
        assert!(answer.problem().contains(problem), "{problem}: {answer:?}");
    }
    assert!(served.stored().await.is_empty());
}

#[tokio::test]
async fn other_content_types_are_415_and_told_what_is_taken() {
    let served = Served::start().await;
    let event = events::json("1", "shop/checkout");
    for headers in ["", "content-type: text/plain\r\n", "content-type: \r\n", "content-type: application/jso\r\n"] {
        let answer = raw::post(&served.socket, "/v1/events", headers, &event).await;
        assert_eq!(answer.status, 415, "{headers}");
        let problem = answer.problem();
        for name in [
            "application/cloudevents+json",
            "application/json",
            "application/cloudevents-batch+json",
            "application/cloudevents+msgpack",
            "application/x-ndjson",
        ] {
            assert!(problem.contains(name), "{name}: {problem}");
        }
    }
    for header in ["content-encoding: gzip\r\n", "ce-specversion: 1.0\r\n"] {
        let headers = format!("content-type: application/json\r\n{header}");
        let answer = raw::post(&served.socket, "/v1/events", &headers, &event).await;
        assert_eq!(answer.status, 415, "{header}");
    }
    assert!(served.stored().await.is_empty());
}

#[tokio::test]
async fn bodies_and_events_have_a_largest_size() {
    const MOST: usize = 16 * 1024 * 1024;
    let served = Served::start().await;
    let full = vec![b'\n'; MOST];
    let answer = raw::events(&served.socket, "application/x-ndjson", &full).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let answer = raw::events(&served.socket, "application/x-ndjson", &vec![b'\n'; MOST + 1]).await;
    assert_eq!(answer.status, 413, "{answer:?}");
    let chunk = [format!("{:x}\r\n", MOST + 1).as_bytes(), &full[..], b"\n\r\n0\r\n\r\n"].concat();
    let headers = "content-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n";
    let answer = raw::request(&served.socket, "POST /v1/events", headers, &chunk).await;
    assert_eq!(answer.status, 413, "{answer:?}");
    let answer = raw::events(&served.socket, "application/x-ndjson", &b"{}\n".repeat(20_000)).await;
    assert_eq!(answer.status, 413, "{answer:?}");
    let large = format!("{{\"id\":\"{}\"}}", "x".repeat(MAX_EVENT_BYTES));
    let answer = raw::events(&served.socket, "application/json", large.as_bytes()).await;
    assert_eq!((answer.status, statuses(&answer)), (422, vec!["refused".into()]));
    assert!(served.stored().await.is_empty());
}

#[tokio::test]
async fn a_log_that_does_not_answer_is_503() {
    let served = Served::start().await;
    served.faults.answers_nothing.store(true, Ordering::Relaxed);
    let event = events::json("1", "shop/checkout");
    let answer = raw::events(&served.socket, "application/json", &event).await;
    assert_eq!(answer.status, 503);
    assert!(answer.problem().starts_with("the log does not answer: the cable is out; "), "{answer:?}");
    served.faults.answers_nothing.store(false, Ordering::Relaxed);
    assert_eq!(raw::events(&served.socket, "application/json", &event).await.status, 200);
}

#[tokio::test]
async fn an_event_that_may_be_stored_is_503_and_can_be_sent_again() {
    let served = Served::start().await;
    served.faults.knows_nothing.store(true, Ordering::Relaxed);
    let lines = [&events::json("1", "shop/checkout")[..], b"\nx\n"].concat();
    let answer = raw::events(&served.socket, "application/x-ndjson", &lines).await;
    assert_eq!((answer.status, statuses(&answer)), (503, vec!["unknown".into(), "refused".into()]));
    served.faults.knows_nothing.store(false, Ordering::Relaxed);
    let again = raw::events(&served.socket, "application/x-ndjson", &lines).await;
    assert_eq!((again.status, statuses(&again)), (422, vec!["duplicate".into(), "refused".into()]));
}

#[tokio::test]
async fn a_stopped_engine_is_503() {
    let mut served = Served::start().await;
    served.engine.stop().await;
    let answer = raw::events(&served.socket, "application/json", &events::json("1", "shop/checkout")).await;
    assert_eq!(answer.status, 503);
    assert!(answer.problem().starts_with("the engine has stopped"), "{answer:?}");
    assert_eq!(raw::get(&served.socket, "/v1/releases").await.status, 503);
    assert_eq!(raw::get(&served.socket, "/v1/status").await.status, 503);
    assert_eq!(raw::get(&served.socket, "/healthz").await.status, 200);
}

#[tokio::test]
async fn an_answer_waits_until_the_sink_has_acted() {
    let served = Served::start().await;
    served.gate.send_replace(Gate::Closed);
    let client = served.client().await;
    let sent = [events::json("1", "shop/checkout")];
    let answers = tokio::spawn(async move { client.append(&sent, Check::Valid).await });
    served.stores(1).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!answers.is_finished(), "answered before the sink has acted");
    served.gate.send_replace(Gate::Open);
    assert_eq!(answers.await.unwrap().unwrap().len(), 1);
}

#[tokio::test]
async fn other_parameters_are_400_and_named() {
    let served = Served::start().await;
    let event = events::json("1", "shop/checkout");
    for (query, named) in [("uncheked=true", "uncheked"), ("unchecked=yes", "unchecked"), ("unchecked", "unchecked")] {
        let target = format!("/v1/events?{query}");
        let answer = raw::post(&served.socket, &target, "content-type: application/json\r\n", &event).await;
        assert_eq!(answer.status, 400, "{query}");
        assert!(answer.problem().contains(named), "{answer:?}");
    }
    assert!(served.stored().await.is_empty());
}
