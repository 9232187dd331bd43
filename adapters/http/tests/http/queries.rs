//! The questions: state now and at a moment, timeline, status, and what is not there.

use std::sync::atomic::Ordering;

use decklog_engine::ingest::Check;
use decklog_projections::inventory::Selection;
use decklog_schemas::{ReleaseKey, Sequence};
use serde_json::{Value, json};

use crate::events::{self, invalid, of_cluster};
use crate::raw;
use crate::served::Served;

/// Five events, one a minute from 2026-02-25T06:13:20Z on.
async fn five_events() -> Served {
    let served = Served::start().await;
    let client = served.client().await;
    for event in [
        events::json("1", "shop/checkout"),
        events::json("2", "shop/cart"),
        events::json("3", "bank/ledger"),
        of_cluster("4", "shop/checkout", "edge"),
        invalid("5", "shop/checkout"),
    ] {
        let answers = client.append(&[event], Check::AsIs).await.unwrap();
        assert!(answers[0].sequence.is_some(), "{answers:?}");
        served.clock.fetch_add(60, Ordering::Relaxed);
    }
    served
}

/// What a view shows: its sequence, and of each release cluster, namespace and name.
fn shown(view: &Value) -> (Value, Vec<String>) {
    let text = |value: &Value| value.as_str().expect("a name").to_owned();
    let release = |release: &Value| {
        let metadata = &release["object"]["metadata"];
        let names = [&release["cluster"], &metadata["namespace"], &metadata["name"]];
        names.map(text).join("/")
    };
    let releases = view["releases"].as_array().expect("a list of releases");
    (view["sequence"].clone(), releases.iter().map(release).collect())
}

async fn check_view(served: &Served, query: &str, sequence: Value, expect: &[&str]) {
    let answer = raw::get(&served.socket, &format!("/v1/releases{query}")).await;
    assert_eq!(answer.status, 200, "{query}: {answer:?}");
    let (at, releases) = shown(&answer.json());
    assert_eq!((at, releases), (sequence, expect.iter().map(ToString::to_string).collect()), "{query}");
}

#[tokio::test]
async fn a_view_shows_what_is_selected() {
    let served = five_events().await;
    let (ledger, cart) = ("default/bank/ledger", "default/shop/cart");
    let (checkout, edge) = ("default/shop/checkout", "edge/shop/checkout");
    let five = || json!(5);
    check_view(&served, "", five(), &[ledger, cart, checkout, edge]).await;
    check_view(&served, "?cluster=default", five(), &[ledger, cart, checkout]).await;
    check_view(&served, "?cluster=edge", five(), &[edge]).await;
    check_view(&served, "?namespace=shop", five(), &[cart, checkout]).await;
    check_view(&served, "?namespace=shop&cluster=edge", five(), &[edge]).await;
    check_view(&served, "?namespace=shop&release=checkout", five(), &[checkout]).await;
    check_view(&served, "?namespace=shop&release=none", five(), &[]).await;
    check_view(&Served::start().await, "", Value::Null, &[]).await;
}

#[tokio::test]
async fn a_view_of_a_moment_is_replayed() {
    let served = five_events().await;
    let (ledger, cart, checkout) = ("default/bank/ledger", "default/shop/cart", "default/shop/checkout");
    check_view(&served, "?at=seq:1", json!(1), &[checkout]).await;
    check_view(&served, "?at=seq:3&namespace=shop", json!(3), &[cart, checkout]).await;
    check_view(&served, "?at=seq:99&cluster=default", json!(5), &[ledger, cart, checkout]).await;
    check_view(&served, "?at=seq:3&namespace=shop&release=cart", json!(3), &[cart]).await;
    check_view(&served, "?at=2026-02-25T06:14:20Z", json!(2), &[cart, checkout]).await;
    check_view(&served, "?at=2026-02-25T06:14:19.999Z", json!(1), &[checkout]).await;
    check_view(&served, "?at=2026-02-25T07:14:20%2B01:00", json!(2), &[cart, checkout]).await;
    check_view(&served, "?at=2026-02-25T07:14:20+01:00", json!(2), &[cart, checkout]).await;
    check_view(&served, "?at=2020-01-01T00:00:00Z", Value::Null, &[]).await;
    check_view(&served, "?at=2030-01-01T00:00:00Z&namespace=bank", json!(5), &[ledger]).await;
}

#[tokio::test]
async fn a_replayed_view_of_the_tail_is_the_live_one() {
    let served = five_events().await;
    let client = served.client().await;
    let selection = Selection::All { cluster: None };
    let live = client.view(&selection, None).await.unwrap();
    let replayed = client.view(&selection, Some("seq:5".parse().unwrap())).await.unwrap();
    assert_eq!(live, replayed);
}

#[tokio::test]
async fn the_client_asks_what_is_selected() {
    let served = five_events().await;
    let client = served.client().await;
    let shop = ReleaseKey::new("default", "shop", "cart");
    for (selection, expect) in [
        (Selection::All { cluster: None }, 4),
        (Selection::All { cluster: Some("default".to_owned()) }, 3),
        (Selection::Namespace { cluster: "edge".to_owned(), namespace: "shop".to_owned() }, 1),
        (Selection::Namespace { cluster: "e&g=%+ ü".to_owned(), namespace: "shop".to_owned() }, 0),
        (Selection::Release(shop), 1),
    ] {
        let view = client.view(&selection, None).await.unwrap();
        assert_eq!(view.releases.len(), expect, "{selection:?}");
    }
}

#[tokio::test]
async fn a_timeline_has_the_events_of_its_range() {
    let served = five_events().await;
    for (query, expect) in [
        ("", vec![1, 5]),
        ("&since=seq:1", vec![1, 5]),
        ("&since=seq:2", vec![5]),
        ("&since=seq:6", vec![]),
        ("&until=seq:4", vec![1]),
        ("&since=2026-02-25T06:13:20Z&until=2026-02-25T06:17:19Z", vec![1]),
        ("&since=2026-02-25T06:13:21Z", vec![5]),
        ("&since=2026-02-25T07:13:21+01:00&until=2026-02-25T06:17:20Z", vec![5]),
        ("&cluster=default", vec![1, 5]),
        ("&cluster=edge", vec![4]),
        ("&cluster=none", vec![]),
    ] {
        let target = format!("/v1/timeline?namespace=shop&release=checkout{query}");
        let answer = raw::get(&served.socket, &target).await;
        assert_eq!(answer.status, 200, "{query}: {answer:?}");
        let entries = answer.json();
        let sequence = |entry: &Value| entry["sequence"].as_u64().expect("a sequence");
        let sequences: Vec<_> = entries.as_array().unwrap().iter().map(sequence).collect();
        assert_eq!(sequences, expect, "{query}");
    }
}

#[tokio::test]
async fn a_timeline_says_what_became_of_each_event() {
    let served = five_events().await;
    let client = served.client().await;
    let key = ReleaseKey::new("default", "shop", "checkout");
    let all = client.timeline(&key, None, None).await.unwrap();
    let told = serde_json::to_value(&all).unwrap();
    assert_eq!(told[0]["outcome"], "folded");
    assert_eq!(told[0]["recorded"], "2026-02-25T06:13:20Z");
    assert_eq!((&told[1]["outcome"], &told[1]["reason"]), (&json!("ignored"), &json!("invalid")));
    let moment = |text: &str| Some(text.parse().unwrap());
    let last = client.timeline(&key, moment("seq:2"), moment("2026-02-25T06:17:20Z")).await;
    assert_eq!(last.unwrap(), all[1..]);
}

#[tokio::test]
async fn a_status_tells_log_and_state() {
    let served = five_events().await;
    let client = served.client().await;
    let status = client.status().await.unwrap();
    let all = client.view(&Selection::All { cluster: None }, None).await.unwrap();
    assert!(status.log.starts_with("memory@"), "{status:?}");
    assert_eq!((status.sequence, status.tail), (Sequence::new(5), Sequence::new(5)));
    assert_eq!((status.releases, all.releases.len()), (4, 4));
    assert_eq!((status.version.as_str(), status.pid), (env!("CARGO_PKG_VERSION"), std::process::id()));
    let empty = Served::start().await;
    let answer = raw::get(&empty.socket, "/v1/status").await;
    assert_eq!((&answer.json()["sequence"], &answer.json()["tail"]), (&Value::Null, &Value::Null));
}

#[tokio::test]
async fn queries_that_cannot_be_answered_are_400_and_say_why() {
    let served = Served::start().await;
    for (target, named) in [
        ("/v1/releases?release=checkout", "release needs a namespace"),
        ("/v1/releases?names=x", "names"),
        ("/v1/releases?at=noon", "\"noon\""),
        ("/v1/releases?at=seq:0", "\"seq:0\""),
        ("/v1/releases?at=", "moment"),
        ("/v1/releases?namespace=", "namespace is empty"),
        ("/v1/releases?cluster=", "cluster is empty"),
        ("/v1/releases?cluster=a&cluster=b", "cluster"),
        ("/v1/timeline", "namespace"),
        ("/v1/timeline?namespace=shop", "release"),
        ("/v1/timeline?namespace=shop&release=", "release is empty"),
        ("/v1/timeline?namespace=shop&release=cart&since=x", "\"x\""),
        ("/v1/timeline?namespace=shop&release=cart&at=seq:1", "`at`"),
        ("/v1/status?verbose=true", "verbose"),
        ("/healthz?verbose=true", "verbose"),
    ] {
        let answer = raw::get(&served.socket, target).await;
        assert_eq!(answer.status, 400, "{target}: {answer:?}");
        assert!(answer.problem().contains(named), "{target}: {answer:?}");
    }
}

#[tokio::test]
async fn a_log_that_cannot_be_read_is_not_the_asker_s_fault() {
    let served = five_events().await;
    let questions = ["/v1/releases?at=seq:1", "/v1/timeline?namespace=shop&release=cart", "/v1/status"];
    served.faults.answers_nothing.store(true, Ordering::Relaxed);
    for question in questions {
        assert_eq!(raw::get(&served.socket, question).await.status, 503, "{question}");
    }
    served.faults.answers_nothing.store(false, Ordering::Relaxed);
    served.faults.is_damaged.store(true, Ordering::Relaxed);
    for question in questions {
        let answer = raw::get(&served.socket, question).await;
        assert_eq!(answer.status, 500, "{question}");
        assert!(answer.problem().contains("damaged at sequence"), "{answer:?}");
    }
    assert_eq!(raw::get(&served.socket, "/v1/releases").await.status, 200);
}

#[tokio::test]
async fn what_is_not_there_is_told() {
    let served = Served::start().await;
    assert_eq!(raw::get(&served.socket, "/healthz").await.body, "ok");
    for target in ["/", "/v1", "/v1/events/", "/v2/events", "/v1/release"] {
        let answer = raw::get(&served.socket, target).await;
        assert_eq!(answer.status, 404, "{target}");
        for route in ["POST /v1/events", "GET /v1/releases", "GET /v1/timeline", "GET /v1/status", "GET /healthz"] {
            assert!(answer.problem().contains(route), "{answer:?}");
        }
    }
    for (line, allowed) in [("GET /v1/events", "POST"), ("DELETE /v1/releases", "GET"), ("POST /v1/status", "GET")] {
        let answer = raw::request(&served.socket, line, "content-length: 0\r\n", b"").await;
        assert_eq!(answer.status, 405, "{line}");
        let allow = answer.head.lines().find(|line| line.starts_with("allow: ")).unwrap_or_default();
        assert!(allow.contains(allowed), "{line}: {}", answer.head);
        assert!(answer.problem().contains("does not take"), "{answer:?}");
    }
}
