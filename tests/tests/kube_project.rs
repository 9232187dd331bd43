//! `decklog project` on a real API server: the cluster says what the log says, whoever interferes.

use std::collections::BTreeMap;
use std::time::Duration;

use decklog_tests::binary::{self, Up, root};
use decklog_tests::kube::ControlPlane;
use decklog_tests::nats::{NatsServer, api};
use decklog_tests::numbered;
use decklog_tests::process::poll;
use decklog_tests::projector::{Deployment, applies, check_audit, emit, make_namespace, settle};
use decklog_tests::scenario::Scenario;
use serde_json::{Value, json};

/// A control plane with the definition, and a NATS server with the stream.
fn servers() -> (ControlPlane, NatsServer) {
    let (plane, server) = (ControlPlane::start(), NatsServer::start());
    plane.install_crd();
    api::init(&server.url(), 1);
    (plane, server)
}

/// Our own scenarios, and the contract's cases where they lie beside the checkout: each in a namespace of its own, and
/// with ids of its own. Lines that are no events have no namespace to be moved to.
fn histories() -> BTreeMap<String, Vec<String>> {
    let mut scenarios = Scenario::all(&root().join("tests/scenarios"));
    let shared = root().join("../shared/cases");
    if shared.is_dir() {
        scenarios.extend(Scenario::all(&shared));
    }
    let moved = |(number, scenario): (usize, &Scenario)| {
        let namespace = format!("case-{number}");
        let lines = std::fs::read_to_string(&scenario.events).expect("scenarios can be read");
        let lines = lines.lines().filter_map(|line| line_in(&namespace, line)).collect();
        (namespace, lines)
    };
    scenarios.iter().enumerate().map(moved).collect()
}

fn line_in(namespace: &str, line: &str) -> Option<String> {
    let mut event: Value = serde_json::from_str(line).ok()?;
    let release = event["subject"].as_str()?.strip_prefix("shop/")?.to_owned();
    let id = format!("{namespace} {}", event["id"].as_str()?);
    let id = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, id.as_bytes());
    event["subject"] = json!(format!("{namespace}/{release}"));
    event["id"] = json!(id.to_string());
    Some(event.to_string())
}

/// Makes the namespaces of histories.
fn make_namespaces(plane: &ControlPlane, histories: &BTreeMap<String, Vec<String>>) {
    let namespace = |name| json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    let items: Vec<_> = histories.keys().map(namespace).collect();
    plane.apply(&json!({ "apiVersion": "v1", "kind": "List", "items": items }).to_string());
}

#[test]
fn histories_event_by_event() {
    let (plane, server) = servers();
    let mut histories = histories();
    // Those that reach the limits of what is remembered are played at once, below.
    histories.retain(|_, lines| lines.len() <= 20);
    make_namespaces(&plane, &histories);
    let deployment = Deployment::new(&server.url(), &plane, &[]);
    let _projector = deployment.start();
    let longest = histories.values().map(Vec::len).max().unwrap_or_default();
    assert!(histories.len() > 190 && longest > 15, "{} histories, the longest of {longest}", histories.len());
    for at in 0..longest {
        let lines: Vec<_> = histories.values().filter_map(|lines| lines.get(at)).cloned().collect();
        emit(&server.url(), &lines.join("\n"));
        settle(&plane, &server.url());
    }
    check_audit(&plane, 0);
}

#[test]
fn histories_at_once_and_a_restart_that_sends_nothing() {
    let (plane, server) = servers();
    let histories = histories();
    make_namespaces(&plane, &histories);
    emit(&server.url(), &histories.values().flatten().map(|line| format!("{line}\n")).collect::<String>());
    let deployment = Deployment::new(&server.url(), &plane, &[]);
    let mut projector = deployment.start();
    settle(&plane, &server.url());
    let (code, rest) = projector.stop("TERM");
    assert_eq!(code, Some(0), "{rest}");
    let sent = applies(&plane);
    let mut projector = deployment.start();
    // What is emitted now is applied after all that the start has asked for.
    make_namespace(&plane, "marker");
    emit(&server.url(), &line_in("marker", &numbered::event(0)).expect("it is an event"));
    settle(&plane, &server.url());
    assert_eq!(applies(&plane) - sent, 1, "a restart applied what was there");
    let (code, rest) = projector.stop("TERM");
    assert_eq!(code, Some(0), "{rest}");
    check_audit(&plane, 0);
}

#[test]
fn an_embedded_log_is_applied_and_answers_meanwhile() {
    let plane = ControlPlane::start();
    plane.install_crd();
    make_namespace(&plane, "shop");
    make_namespace(&plane, "decklog");
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let data = folder.path().join("data");
    let log = data.display().to_string();
    emit(&log, &numbered::lines(0..50));
    let kubeconfig = plane.kubeconfig().display().to_string();
    let other = folder.path().join("other").display().to_string();
    let refused = binary::run(["project", "--from", &other, "--kubeconfig", &kubeconfig]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && said.contains("there is no embedded log"), "{said}");
    assert!(!folder.path().join("other").exists(), "a name that is mistyped makes no log");
    let args = ["project", "--from", &log, "--kubeconfig", &kubeconfig, "--lease-namespace", "decklog"];
    let mut projector = Up::of(args);
    settle(&plane, &log);
    let refused = binary::run(["up", "--data", &log]);
    assert_eq!(refused.status.code(), Some(4), "{refused:?}");
    emit(&log, &numbered::lines(50..300));
    settle(&plane, &log);
    let (code, rest) = projector.stop("TERM");
    assert_eq!(code, Some(0), "{rest}");
    check_audit(&plane, 0);
}

/// In the path of a request a `?` would end the name.
#[test]
fn a_deleted_release_of_an_impossible_name_takes_no_other_with_it() {
    let (plane, server) = servers();
    make_namespace(&plane, "shop");
    let deployment = Deployment::new(&server.url(), &plane, &[]);
    let _projector = deployment.start();
    emit(&server.url(), &numbered::event(0));
    settle(&plane, &server.url());
    let uid = || plane.get(&["releaseinventories", "-n", "shop", "release-0"])["metadata"]["uid"].clone();
    let before = uid();
    let of = |line: &str, name: &str| {
        let mut event: Value = serde_json::from_str(line).expect("events are JSON");
        event["subject"] = json!(format!("shop/{name}"));
        event["id"] = json!(format!("{} {name}", event["id"].as_str().unwrap_or_default()));
        event
    };
    for name in ["release-0?x", "release-0#x", "a b"] {
        let mut deleted = of(&numbered::event(30), name);
        deleted["type"] = json!("dev.decklog.ReleaseDeleted.v1");
        deleted["data"] = json!({});
        emit(&server.url(), &format!("{}\n{deleted}\n", of(&numbered::event(15), name)));
        let told = || {
            let args = ["timeline", "--from", &server.url(), "-n", "shop", name, "-o", "json"];
            binary::stdout(args).contains("InventoryDeleted").then_some(())
        };
        assert!(poll(Duration::from_secs(60), told).is_some(), "the end of {name} is not told");
    }
    settle(&plane, &server.url());
    assert_eq!(uid(), before, "another release's object was deleted");
    check_audit(&plane, 0);
}
