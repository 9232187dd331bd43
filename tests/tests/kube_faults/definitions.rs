//! The definition of ReleaseInventory missing, or older than the projector: it waits, says so, and goes on.

use std::time::Duration;

use decklog_schemas::inventory::{GROUP, PLURAL};
use decklog_tests::binary;
use decklog_tests::kube::{ControlPlane, audit};
use decklog_tests::nats::{NatsServer, api};
use decklog_tests::process::poll;
use decklog_tests::projector::{Deployment, applies, check_audit, emit, make_namespace, settle};
use serde_json::{Value, json};

use crate::stage::{Story, count_in_timeline, servers};

/// How long something may take that happens within seconds.
const LIMIT: Duration = Duration::from_secs(60);

/// Whether a request is a projector's.
fn is_ours(line: &Value) -> bool {
    audit::user_agent(line).starts_with("decklog/")
}

/// The definition that `decklog crd` prints, without one field.
fn older() -> String {
    let mut crd: Value = serde_saphyr::from_str(&binary::stdout(["crd"])).expect("it is YAML");
    let fields = "/spec/versions/0/schema/openAPIV3Schema/properties/hooks/items/properties";
    let fields = crd.pointer_mut(fields).and_then(Value::as_object_mut).expect("hooks have fields");
    fields.remove("timeout").expect("hooks have a timeout");
    crd.to_string()
}

#[test]
fn missing_and_then_older() {
    let (plane, server) = (ControlPlane::start(), NatsServer::start());
    api::init(&server.url(), 1);
    make_namespace(&plane, "shop");
    emit(&server.url(), &Story::of("shop", "web").whole());
    let deployment = Deployment::new(&server.url(), &plane, &[]);
    let mut projector = deployment.launch();
    projector.wait_for("the cluster has no ReleaseInventory: `decklog crd | kubectl apply --server-side -f -`");
    plane.apply(&older());
    projector.wait_for("it lacks hooks[].timeout: `decklog crd | kubectl apply --server-side -f -`");
    // It has looked again, and has had time to act on what it saw.
    let looks = || {
        let log = plane.audit();
        log.iter()
            .filter(|line| is_ours(line) && line["requestURI"].as_str().is_some_and(|uri| uri.contains("openapi")))
            .count()
    };
    let before = looks();
    assert!(poll(LIMIT, || (looks() >= before + 2).then_some(())).is_some(), "it does not look again");
    assert_eq!(applies(&plane), 0, "{}", projector.said());
    assert!(!projector.said().contains("Ready"), "{}", projector.said());
    plane.install_crd();
    projector.wait_for("Ready");
    settle(&plane, &server.url());
    assert_eq!(projector.stop(), Some(0), "{}", projector.said());
    check_audit(&plane, 0);
}

#[test]
fn not_served_for_a_while() {
    let (plane, server) = servers();
    let servers = server.url();
    let [goes, stays] = ["goes", "stays"].map(|name| Story::of("shop", name));
    emit(&servers, &[goes.whole(), stays.whole()].concat());
    let deployment = Deployment::new(&servers, &plane, &[]);
    let mut projector = deployment.launch();
    settle(&plane, &servers);
    let serve = |is_served: bool| {
        let patch = json!([{ "op": "replace", "path": "/spec/versions/0/served", "value": is_served }]).to_string();
        plane.kubectl_stdout(&["patch", "crd", &format!("{PLURAL}.{GROUP}"), "--type", "json", "-p", &patch], "");
    };
    serve(false);
    projector.wait_for("Inventories cannot be watched");
    emit(&servers, &[goes.deleted(), stays.applied("c", "r2")].concat());
    // That the kind is not there does not say that the object is gone.
    let looks = || {
        let is_look = |line: &&Value| {
            let uri = line["requestURI"].as_str().is_some_and(|uri| uri.ends_with("/goes"));
            is_ours(line) && uri && line["verb"] == "get" && audit::code(line) == 404
        };
        plane.audit().iter().filter(is_look).count()
    };
    assert!(poll(LIMIT, || (looks() >= 1).then_some(())).is_some(), "it does not look: {}", projector.said());
    assert_eq!(count_in_timeline(&servers, "goes", "InventoryDeleted"), 0, "{}", projector.said());
    serve(true);
    settle(&plane, &servers);
    let told = || count_in_timeline(&servers, "goes", "InventoryDeleted") == 1;
    assert!(poll(LIMIT, || told().then_some(())).is_some(), "{}", projector.said());
    assert_eq!(projector.stop(), Some(0), "{}", projector.said());
    check_audit(&plane, 0);
}

#[test]
fn deleted_and_installed_again() {
    let (plane, server) = servers();
    emit(&server.url(), &Story::of("shop", "web").whole());
    let deployment = Deployment::new(&server.url(), &plane, &[]);
    let mut projector = deployment.launch();
    settle(&plane, &server.url());
    let name = format!("{PLURAL}.{GROUP}");
    plane.kubectl_stdout(&["delete", "crd", &name], "");
    emit(&server.url(), &Story::of("shop", "web").applied("c", "r2"));
    // It has found out that the kind is not served any more: with what it wanted to send, or when it looked what became
    // of what was forbidden while the definition was on its way out.
    let is_of_web =
        |line: &Value| line["requestURI"].as_str().is_some_and(|uri| uri.contains("/releaseinventories/web"));
    let refused = || plane.audit().iter().any(|line| is_ours(line) && is_of_web(line) && audit::code(line) == 404);
    assert!(poll(LIMIT, || refused().then_some(())).is_some(), "{}", projector.said());
    plane.install_crd();
    settle(&plane, &server.url());
    assert_eq!(projector.stop(), Some(0), "{}", projector.said());
    assert_eq!(count_in_timeline(&server.url(), "web", "ProjectionRefused"), 0, "{}", projector.said());
    check_audit(&plane, 0);
}
