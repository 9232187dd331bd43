//! A burst of events on one release is a handful of passes.

use async_nats::HeaderMap;
use decklog_tests::nats::api::block_on;
use decklog_tests::port::Port;
use decklog_tests::projector::{Deployment, applies, check_audit, emit, settle};
use serde_json::Value;

use crate::stage::{Story, metric, servers};

/// How many events there are.
const EVENTS: usize = 10_000;

/// How many may wait for their answer.
const IN_FLIGHT: usize = 500;

/// How many passes may come of it.
const PASSES: u64 = 20;

/// Publishes the events as fast as the server takes them.
fn burst(servers: &str, lines: &[String]) {
    block_on(async {
        let client = async_nats::connect(servers).await.expect("the server answers");
        let context = async_nats::jetstream::new(client);
        for lines in lines.chunks(IN_FLIGHT) {
            let mut acks = Vec::new();
            for line in lines {
                let event: Value = serde_json::from_str(line).expect("it is an event");
                let mut headers = HeaderMap::new();
                headers.insert("Nats-Msg-Id", event["id"].as_str().expect("it has an id"));
                let subject = "decklog.release.default.shop.burst.release-inventory.ItemApplied";
                let sent = context.publish_with_headers(subject, headers, line.trim_end().to_owned().into());
                acks.push(sent.await.expect("it can be sent"));
            }
            for ack in acks {
                ack.await.expect("it is stored");
            }
        }
    });
}

#[test]
fn ten_thousand_events_on_one_release() {
    let (plane, server) = servers();
    let servers = server.url();
    let story = Story::of("shop", "burst");
    let lines: Vec<_> =
        (0..EVENTS).map(|number| story.applied(&format!("item-{}", number % 50), &format!("r{number}"))).collect();
    let port = Port::find();
    let listen = format!("127.0.0.1:{}", port.number());
    let deployment = Deployment::new(&servers, &plane, &["--listen", &listen]);
    let _projector = deployment.start();
    emit(&servers, &story.whole());
    settle(&plane, &servers);
    let passes = || metric(port.number(), "decklog_apply_passes_total").expect("it is counted");
    let before = (passes(), applies(&plane));
    burst(&servers, &lines);
    settle(&plane, &servers);
    let after = (passes(), applies(&plane));
    let (passes, applies) = (after.0 - before.0, after.1 - before.1);
    assert!(passes <= PASSES && applies <= usize::try_from(PASSES).expect("it is small"), "{passes} {applies}");
    check_audit(&plane, 0);
}
