//! Inventories that are too large: forecast, and refused before they are sent.

use std::time::Duration;

use decklog_projections::plan::{LIMIT_BYTES, forecast};
use decklog_schemas::inventory::{GROUP, PLURAL, ReleaseInventory, VERSION};
use decklog_tests::binary;
use decklog_tests::kube::ControlPlane;
use decklog_tests::process::poll;
use decklog_tests::projector::{Deployment, check_audit, emit, settle, settle_without};

use crate::refusals::{refused_once, start_again};
use crate::stage::{Story, servers, writes_of};

/// A name as long as they are.
fn name(number: usize) -> String {
    format!("checkout-service-xxxxx-{number:05}")
}

/// So many items, with their health.
fn rows(story: &Story<'_>, count: usize) -> String {
    let row = |number| {
        let name = name(number);
        story.applied(&name, "4f9a01c2be77") + &story.assessed(&name, "Healthy", "4f9a01c2be77")
    };
    (0..count).map(row).collect()
}

#[test]
fn more_rows_than_can_be_stored() {
    let (plane, server) = servers();
    let servers = server.url();
    let (big, web) = (Story::of("shop", "big"), Story::of("shop", "web"));
    emit(&servers, &(rows(&big, 2_500) + &web.whole()));
    let deployment = Deployment::new(&servers, &plane, &[]);
    let mut projector = deployment.launch();
    settle_without(&plane, &servers, &["shop/big"]);
    refused_once(&servers, "big");
    assert!(projector.said().contains("no more than 1568768 can be stored"), "{}", projector.said());
    let kubeconfig = plane.kubeconfig().display().to_string();
    let verified = binary::run(["verify", "--from", &servers, "-n", "shop", "big", "--kubeconfig", &kubeconfig]);
    let stdout = String::from_utf8_lossy(&verified.stdout);
    assert_eq!(verified.status.code(), Some(1), "{stdout}");
    assert!(stdout.contains("missing") && stdout.contains("no projector sends it: it would take "), "{stdout}");
    assert_eq!(projector.stop(), Some(0));
    start_again(&plane, &servers, &deployment, &["shop/big"]);
    refused_once(&servers, "big");
    assert_eq!(writes_of(&plane, "releaseinventories/big"), 0);

    let _projector = deployment.start();
    emit(&servers, &(100..2_500).map(|number| big.pruned(&name(number))).collect::<String>());
    settle(&plane, &servers);
    check_audit(&plane, 0);
}

/// Compares the forecast of a release of `shop` with what the cluster stores.
#[track_caller]
fn compare(plane: &ControlPlane, servers: &str, release: &str) {
    let object = binary::stdout(["at", "--from", servers, "-n", "shop", release, "-o", "json"]);
    let object: ReleaseInventory = serde_json::from_str(&object).expect("it is an inventory");
    let forecast = forecast(&object);
    let path = format!("/apis/{GROUP}/{VERSION}/namespaces/shop/{PLURAL}/{release}");
    let stored = plane.kubectl_stdout(&["get", "--raw", &path], "").len();
    assert!(forecast >= stored && forecast - stored <= 2_048 + stored / 50, "{release}: {forecast} {stored}");
    assert!(forecast < LIMIT_BYTES, "{release}: {forecast}");
}

#[test]
fn the_forecast_is_what_is_stored() {
    let (plane, server) = servers();
    let servers = server.url();
    let releases = [100, 1_000, 2_000].map(|count| (count, format!("rows-{count}")));
    for (count, release) in &releases {
        let story = Story::of("shop", release);
        emit(&servers, &(rows(&story, *count) + &story.hook_started("migrate", "r1")));
    }
    let deployment = Deployment::new(&servers, &plane, &[]);
    let _projector = deployment.start();
    settle(&plane, &servers);
    for (_, release) in &releases {
        compare(&plane, &servers, release);
    }
    check_audit(&plane, 0);
}

#[test]
fn characters_that_are_escaped() {
    let (plane, server) = servers();
    let servers = server.url();
    let (odd, raw) = (Story::of("shop", "odd"), Story::of("shop", "raw"));
    // What YAML or a browser misreads, and what may be written in several ways.
    let letters = ["<a>", "a & b", "\"", "\\", "\t", " \u{2028} ", "\u{feff}", "\u{ffff}", "é", "😀"];
    // These are not shown by `decklog at`, with which the cluster is compared.
    let controls = ["\u{1}", "\u{7f}", " \u{85} ", "\u{9f}"];
    let row = |story: Story<'_>, letters: &str, render: &str| {
        let item = format!("item {letters}");
        let message = story.failed(&item, &letters.repeat(80));
        story.applied(&item, "r1") + &message + &story.hook_started(&format!("hook {letters}"), render)
    };
    let deployment = Deployment::new(&servers, &plane, &[]);
    let mut projector = deployment.launch();
    projector.wait_for("Holds the Lease");
    // When they run again, the state of hooks goes first.
    for render in ["r1", "r2"] {
        let lines = letters.map(|letters| row(odd, letters, render)).concat();
        emit(&servers, &(lines + &controls.map(|letters| row(raw, letters, render)).concat()));
        settle_without(&plane, &servers, &["shop/raw"]);
    }
    compare(&plane, &servers, "odd");
    let seen = || {
        let object = plane.get(&["releaseinventory/raw", "-n", "shop"]);
        let items = object["inventory"].as_array().into_iter().flatten();
        items.map(|item| item["message"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    let expected = controls.map(|letters| letters.repeat(80));
    let is_there =
        poll(Duration::from_secs(10), || expected.iter().all(|message| seen().contains(message)).then_some(()));
    assert!(is_there.is_some(), "{:?}\n{}", seen(), projector.said());
    let said = projector.said();
    assert!(!said.contains("WARN") && !said.contains("ERROR"), "{said}");
    check_audit(&plane, 0);
}
