//! Namespaces that are not there, that end and that come again: only what is in them waits.

use decklog_tests::projector::{Deployment, check_audit, emit, make_namespace, settle, settle_without};

use crate::stage::{Story, servers};

#[test]
fn missing_deleted_and_made_again() {
    let (plane, server) = servers();
    plane.start_controller_manager();
    make_namespace(&plane, "short");
    let servers = server.url();
    let stories = ["shop", "short", "later"].map(|namespace| Story::of(namespace, "web"));
    emit(&servers, &stories.map(|story| story.whole()).concat());
    let deployment = Deployment::new(&servers, &plane, &[]);
    let mut projector = deployment.launch();
    settle_without(&plane, &servers, &["later/web"]);

    plane.kubectl_stdout(&["delete", "namespace", "short", "--wait=false"], "");
    emit(&servers, &stories.map(|story| story.applied("c", "r2")).concat());
    settle_without(&plane, &servers, &["later/web", "short/web"]);
    plane.kubectl_stdout(&["wait", "--for=delete", "namespace/short", "--timeout=60s"], "");
    emit(&servers, &stories.map(|story| story.assessed("c", "Healthy", "r2")).concat());
    settle_without(&plane, &servers, &["later/web", "short/web"]);

    make_namespace(&plane, "short");
    make_namespace(&plane, "later");
    settle(&plane, &servers);
    assert_eq!(projector.stop(), Some(0), "{}", projector.said());
    check_audit(&plane, 0);
}
