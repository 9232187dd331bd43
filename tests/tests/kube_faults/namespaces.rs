//! Namespaces that are not there, that end and that come again: only what is in them waits.

use std::time::Duration;

use decklog_tests::process::poll;
use decklog_tests::projector::{Deployment, check_audit, emit, make_namespace, settle, settle_without};

use crate::stage::{Story, servers, writes_of};

/// How long three tries may take, which are some seconds apart.
const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn missing_deleted_and_made_again() {
    let (plane, server) = servers();
    plane.start_controller_manager();
    make_namespace(&plane, "short");
    let servers = server.url();
    let stories = ["shop", "short", "later"].map(|namespace| Story::of(namespace, "web"));
    let quiet = Story::of("short", "quiet");
    emit(&servers, &(stories.map(|story| story.whole()).concat() + &quiet.whole()));
    let deployment = Deployment::new(&servers, &plane, &[]);
    let mut projector = deployment.launch();
    settle_without(&plane, &servers, &["later/web"]);

    plane.kubectl_stdout(&["delete", "namespace", "short", "--wait=false"], "");
    emit(&servers, &stories.map(|story| story.applied("c", "r2")).concat());
    settle_without(&plane, &servers, &["later/web", "short/web", "short/quiet"]);
    plane.kubectl_stdout(&["wait", "--for=delete", "namespace/short", "--timeout=60s"], "");
    emit(&servers, &stories.map(|story| story.assessed("c", "Healthy", "r2")).concat());
    settle_without(&plane, &servers, &["later/web", "short/web", "short/quiet"]);
    // It is tried again, and that something is put back is told when it is.
    let tries = || writes_of(&plane, "quiet");
    let before = tries();
    assert!(poll(LIMIT, || (tries() >= before + 3).then_some(())).is_some(), "it is not tried again");
    assert!(!projector.said().contains("by somebody else"), "{}", projector.said());

    make_namespace(&plane, "short");
    make_namespace(&plane, "later");
    settle(&plane, &servers);
    projector.wait_for("Inventory was deleted by somebody else, and was made again");
    assert_eq!(projector.said().matches("by somebody else").count(), 1, "{}", projector.said());
    assert_eq!(projector.stop(), Some(0), "{}", projector.said());
    check_audit(&plane, 0);
}
