//! The questions about quarantine: the list, and one record with its bytes.

use std::sync::atomic::Ordering;

use decklog_engine::ingest::Check;
use decklog_engine::log::{Appended, ExpectedTail, Log as _, NewEvent};
use decklog_schemas::Sequence;
use decklog_schemas::answer::{Inspected, QuarantineKind};
use serde_json::{Value, json};

use crate::events;
use crate::raw;
use crate::served::Served;

const CART: &str = "decklog.release.default.shop.cart.release.ReleaseTracked";
const CHECKOUT: &str = "decklog.release.default.shop.checkout.release.ReleaseTracked";

/// A good event, garbage, an event under a wrong subject; one a minute.
async fn three_records() -> Served {
    let served = Served::start().await;
    for (id, subject, bytes) in [
        ("1", CART, events::json("1", "shop/cart")),
        ("x", CART, b"\x00\x1b[0m\xff".to_vec()),
        ("y", CART, events::json("3", "shop/checkout")),
    ] {
        let (id, subject) = (id.to_owned(), subject.to_owned());
        let appended = served.log.append(vec![NewEvent { id, subject, bytes, expected: ExpectedTail::Any }]).await;
        assert!(matches!(appended.unwrap()[..], [Appended::Stored { .. }]));
        served.clock.fetch_add(60, Ordering::Relaxed);
    }
    served
}

async fn check_list(query: &str, expect: &[u64], counts: Value) {
    let served = three_records().await;
    let answer = raw::get(&served.socket, &format!("/v1/quarantine{query}")).await;
    assert_eq!(answer.status, 200, "{query}: {answer:?}");
    let list = answer.json();
    let sequences: Vec<_> =
        list["entries"].as_array().unwrap().iter().map(|entry| entry["sequence"].as_u64()).collect();
    let expect: Vec<_> = expect.iter().copied().map(Some).collect();
    assert_eq!((sequences, &list["counts"]), (expect, &counts), "{query}");
}

#[tokio::test]
async fn a_list_has_what_no_fold_can_use() {
    let both = || json!({ "malformed": 1, "wrong-subject": 1 });
    check_list("", &[2, 3], both()).await;
    check_list("?since=seq:3", &[3], json!({ "wrong-subject": 1 })).await;
    check_list("?until=seq:2", &[2], json!({ "malformed": 1 })).await;
    check_list("?since=2026-02-25T06:14:20Z&until=2026-02-25T06:14:21Z", &[2], json!({ "malformed": 1 })).await;
    check_list("?since=seq:4", &[], json!({})).await;
}

#[tokio::test]
async fn one_record_is_answered_with_its_bytes() {
    let served = three_records().await;
    let client = served.client().await;
    let place = |number| Sequence::new(number).unwrap();
    let Inspected::Quarantined(garbage) = client.inspect(place(2)).await.unwrap() else { panic!("it is garbage") };
    assert_eq!((garbage.entry.kind, &garbage.bytes[..]), (QuarantineKind::Malformed, &b"\x00\x1b[0m\xff"[..]));
    let good = raw::get(&served.socket, "/v1/quarantine/1").await;
    assert_eq!((good.status, &good.json()["state"]), (404, &json!("understood")));
    assert_eq!(client.inspect(place(9)).await.unwrap(), Inspected::Absent { tail: Some(place(3)) });
    let Inspected::Quarantined(wrong) = client.inspect(place(3)).await.unwrap() else { panic!("it is misplaced") };
    assert_eq!((wrong.entry.expected.as_deref(), wrong.placed), (Some(CHECKOUT), None));
    client.append(&[wrong.bytes], Check::Valid).await.unwrap();
    let Inspected::Quarantined(wrong) = client.inspect(place(3)).await.unwrap() else { panic!("it is misplaced") };
    assert_eq!(wrong.placed, Some(place(4)));
}

#[tokio::test]
async fn what_cannot_be_asked_is_400_and_says_why() {
    let served = Served::start().await;
    for (target, named) in [
        ("/v1/quarantine/0", "\"0\" is no sequence"),
        ("/v1/quarantine/x", "/v1/quarantine/1234"),
        ("/v1/quarantine/%ff", "invalid utf-8"),
        ("/v1/quarantine/1?raw=true", "raw"),
        ("/v1/quarantine?since=x", "\"x\""),
        ("/v1/quarantine?at=seq:1", "at"),
    ] {
        let answer = raw::get(&served.socket, target).await;
        assert_eq!(answer.status, 400, "{target}: {answer:?}");
        assert!(answer.problem().to_lowercase().contains(named), "{target}: {answer:?}");
    }
    let empty = raw::get(&served.socket, "/v1/quarantine/1").await;
    assert_eq!((empty.status, &empty.json()["tail"]), (404, &Value::Null));
}
