//! What no API server takes: told in the log once, never sent, and no concern of other releases.

use std::time::Duration;

use decklog_tests::kube::ControlPlane;
use decklog_tests::process::poll;
use decklog_tests::projector::{Deployment, check_audit, emit, of_log, settle, settle_without};
use serde_json::Value;

use crate::stage::{Story, count_in_timeline, servers, writes_of};

const LIMIT: Duration = Duration::from_secs(60);

/// Waits until a refusal was told once in the timeline of a release of `shop`.
#[track_caller]
pub(crate) fn refused_once(servers: &str, release: &str) {
    let count = || count_in_timeline(servers, release, "ProjectionRefused");
    let told = poll(LIMIT, || (count() >= 1).then_some(()));
    assert!(told.is_some() && count() == 1, "{release} was refused {} times", count());
}

/// Starts the projector again, and again without its checkpoint, until it has done all that a start asks for.
pub(crate) fn start_again(plane: &ControlPlane, servers: &str, deployment: &Deployment, others: &[&str]) {
    for (number, deployment) in [deployment, &Deployment::new(servers, plane, &[])].into_iter().enumerate() {
        let mut projector = deployment.start();
        emit(servers, &Story::of("shop", "marker").applied("x", &format!("r{number}")));
        settle_without(plane, servers, others);
        let (code, said) = projector.stop("TERM");
        assert_eq!(code, Some(0), "{said}");
    }
}

#[test]
fn names_that_are_none() {
    let (plane, server) = servers();
    let servers = server.url();
    let bad = ["shop/Checkout_V2", "Shop/web", "shop/striped", "shop/none"];
    let odd = Story::of("shop", "striped");
    emit(
        &servers,
        &[
            Story::of("shop", "Checkout_V2").whole(),
            Story::of("Shop", "web").whole(),
            odd.whole() + &odd.tracked("blue and white"),
            Story::of("shop", "web").whole(),
        ]
        .concat(),
    );
    let deployment = Deployment::new(&servers, &plane, &[]);
    let mut projector = deployment.start();
    settle_without(&plane, &servers, &bad);
    refused_once(&servers, "Checkout_V2");
    refused_once(&servers, "striped");
    let (code, said) = projector.stop("TERM");
    assert_eq!(code, Some(0), "{said}");
    start_again(&plane, &servers, &deployment, &bad);
    refused_once(&servers, "Checkout_V2");
    refused_once(&servers, "striped");
    let known = of_log(&servers, &["-A"]);
    assert!(known.contains_key("Shop/web"), "{:?}", known.keys());
    for name in ["Checkout_V2", "striped", "namespaces/Shop/"] {
        assert_eq!(writes_of(&plane, name), 0, "{name}");
    }

    // A label that is one again.
    let _projector = deployment.start();
    emit(&servers, &odd.tracked("green"));
    settle_without(&plane, &servers, &["shop/Checkout_V2", "Shop/web"]);
    assert_ne!(known.get("shop/web"), None::<&Value>);
    check_audit(&plane, 0);
}

#[test]
fn refused_ones_that_are_deleted_are_told_as_gone() {
    let (plane, server) = servers();
    let servers = server.url();
    let story = Story::of("shop", "Checkout_V2");
    emit(&servers, &story.whole());
    let deployment = Deployment::new(&servers, &plane, &[]);
    let _projector = deployment.start();
    refused_once(&servers, "Checkout_V2");
    emit(&servers, &story.deleted());
    let count = || count_in_timeline(&servers, "Checkout_V2", "InventoryDeleted");
    assert!(poll(LIMIT, || (count() == 1).then_some(())).is_some(), "its controller waits for ever");
    settle(&plane, &servers);
    check_audit(&plane, 0);
}
