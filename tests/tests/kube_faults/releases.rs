//! Releases deleted, and recreated at once or later: the object is of the last one, and its end is told once.

use std::time::Duration;

use decklog_tests::kube::ControlPlane;
use decklog_tests::process::poll;
use decklog_tests::projector::{Deployment, check_audit, emit, of_cluster, settle};
use serde_json::Value;

use crate::stage::{Story, count_in_timeline, servers};

/// How long it may take until the log is told.
const LIMIT: Duration = Duration::from_secs(30);

/// Waits until the end of the object of `shop/web` was told so often.
#[track_caller]
fn told(servers: &str, times: usize) {
    let count = || count_in_timeline(servers, "web", "InventoryDeleted");
    let told = poll(LIMIT, || (count() >= times).then_some(()));
    assert!(told.is_some() && count() == times, "told {} times", count());
}

fn uid(plane: &ControlPlane) -> Value {
    plane.get(&["releaseinventory/web", "-n", "shop"])["metadata"]["uid"].clone()
}

#[test]
fn deleted_and_recreated() {
    let (plane, server) = servers();
    let servers = server.url();
    let story = Story::of("shop", "web");
    let [one, two, three] = ["one", "two", "three"].map(|uid| story.uid(uid));
    emit(&servers, &one.whole());
    let deployment = Deployment::new(&servers, &plane, &[]);
    let mut projector = deployment.start();
    settle(&plane, &servers);
    let first = uid(&plane);

    // At once: the object is the next one's, and no row of the last is left.
    emit(
        &servers,
        &(one.deleted() + &two.tracked("green") + &two.applied("n", "r5") + &one.assessed("a", "Healthy", "r1")),
    );
    settle(&plane, &servers);
    told(&servers, usize::from(uid(&plane) != first));
    let before = count_in_timeline(&servers, "web", "InventoryDeleted");

    // Alone: the object goes.
    emit(&servers, &two.deleted());
    told(&servers, before + 1);
    assert!(of_cluster(&plane).is_empty());
    let second = uid_of_next(&plane, &servers, &three);
    assert_ne!(second, first);

    // While nobody looks.
    let (code, said) = projector.stop("TERM");
    assert_eq!(code, Some(0), "{said}");
    emit(&servers, &three.deleted());
    let mut projector = deployment.start();
    told(&servers, before + 2);
    assert!(of_cluster(&plane).is_empty());
    let (code, said) = projector.stop("TERM");
    assert_eq!(code, Some(0), "{said}");
    // Who starts again, also from nothing, has nothing to tell.
    for deployment in [&deployment, &Deployment::new(&servers, &plane, &[])] {
        let mut projector = deployment.launch();
        projector.wait_for("Holds the Lease");
        emit(&servers, &Story::of("shop", "other").applied("x", &uuid::Uuid::now_v7().to_string()));
        settle(&plane, &servers);
        assert_eq!(projector.stop(), Some(0), "{}", projector.said());
        told(&servers, before + 2);
    }
    check_audit(&plane, 0);
}

#[test]
fn killed_when_the_object_is_deleted() {
    let (plane, server) = servers();
    let servers = server.url();
    let story = Story::of("shop", "web").uid("one");
    let deployment = Deployment::new(&servers, &plane, &[]);
    let projector = deployment.start();
    emit(&servers, &story.whole());
    settle(&plane, &servers);
    let deletes = || {
        let log = plane.audit();
        log.iter().filter(|line| line["objectRef"]["name"] == "web" && line["verb"] == "delete").count()
    };
    emit(&servers, &story.deleted());
    assert!(poll(LIMIT, || (deletes() > 0).then_some(())).is_some(), "it is not deleted");
    projector.kill();
    plane.kubectl_stdout(&["delete", "lease", "-n", "decklog", "--all"], "");
    let _projector = deployment.start();
    told(&servers, 1);
    settle(&plane, &servers);
    assert_eq!(deletes(), 1);
    check_audit(&plane, 0);
}

/// The next incarnation, after a pause.
fn uid_of_next(plane: &ControlPlane, servers: &str, story: &Story<'_>) -> Value {
    emit(servers, &story.whole());
    settle(plane, servers);
    uid(plane)
}
