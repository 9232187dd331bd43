//! Two projectors of one log: one applies, and who was paused past its lease changes nothing when it goes on.

use std::time::{Duration, Instant};

use decklog_tests::kube::{ControlPlane, Rights, audit};
use decklog_tests::nats::proxy::Proxy;
use decklog_tests::numbered;
use decklog_tests::port::Port;
use decklog_tests::process::poll;
use decklog_tests::projector::{Deployment, check_audit, emit, settle};
use rustix::process::Signal;

use crate::stage::{Story, metric, servers, versions};

/// What a projector needs.
const RULES: &str = r#"
- {apiGroups: [core.convoy.kumodo.io], resources: [releaseinventories], verbs: [get, list, watch, create, patch, delete]}
- {apiGroups: [core.convoy.kumodo.io], resources: [releases], verbs: [get, list, watch, patch]}
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, create, update]}
"#;

/// How long who stands by may take to lead after the Lease was given back: two looks, and a busy machine.
const AT_ONCE: Duration = Duration::from_secs(10);

const LIMIT: Duration = Duration::from_secs(30);

/// Writes of a ServiceAccount to inventories, by whether they were refused.
fn writes_by(plane: &ControlPlane, name: &str) -> (usize, usize) {
    let log = plane.audit();
    let user = format!("system:serviceaccount:decklog:{name}");
    let (done, refused): (Vec<_>, Vec<_>) =
        audit::writes(&log).filter(|line| audit::user(line) == user).partition(|line| audit::code(line) < 300);
    (done.len(), refused.len())
}

#[test]
fn the_leader_paused_past_its_lease() {
    let (plane, server) = servers();
    let account = |name| plane.service_account("decklog", name, Rights::Cluster(RULES));
    let (one, two) = (account("one"), account("two"));
    // The first is slow: when it is paused it has much to do, and when it goes on it has requests to send at once.
    let slow = ["--kube-api-qps", "4", "--kube-api-burst", "1"];
    let one = Deployment::as_user(&server.url(), &plane, &one, &slow);
    let two = Deployment::as_user(&server.url(), &plane, &two, &[]);
    let mut first = one.launch();
    first.wait_for("Holds the Lease");
    let mut second = two.launch();
    second.wait_for("Stands by");
    emit(&server.url(), &numbered::lines(0..100));
    let begun = poll(LIMIT, || (writes_by(&plane, "one").0 >= 2).then_some(()));
    first.signal(Signal::STOP);
    assert!(begun.is_some(), "{}", first.said());
    let before = writes_by(&plane, "one");
    assert_eq!(writes_by(&plane, "two"), (0, 0), "who stands by has written");

    second.wait_for("Holds the Lease");
    settle(&plane, &server.url());
    emit(&server.url(), &numbered::lines(100..400));
    settle(&plane, &server.url());
    let settled = versions(&plane);
    let said = first.said().len();
    first.signal(Signal::CONT);
    first.wait_for_after(said, "Stands by");
    // By then it has found out about everything that it had in flight.
    std::thread::sleep(Duration::from_secs(3));
    let after = writes_by(&plane, "one");
    assert_eq!(versions(&plane), settled, "{}", first.said());
    // What was on its way when it was paused is refused, one request of each release.
    let refused = after.1 - before.1;
    assert!(after.0 - before.0 <= 1 && refused <= 5, "{before:?} {after:?}\n{}", first.said());

    let said = first.said().len();
    assert_eq!(second.stop(), Some(0), "{}", second.said());
    let stopped = Instant::now();
    first.wait_for_after(said, "Holds the Lease");
    assert!(stopped.elapsed() < AT_ONCE, "{:?}", stopped.elapsed());
    emit(&server.url(), &numbered::lines(400..430));
    settle(&plane, &server.url());
    check_audit(&plane, refused);
}

#[test]
fn who_begins_to_lead_goes_to_the_end_of_the_log_first() {
    let (plane, server) = servers();
    let account = |name| plane.service_account("decklog", name, Rights::Cluster(RULES));
    let proxy = Proxy::to(server.port());
    let mut first = Deployment::as_user(&server.url(), &plane, &account("one"), &[]).launch();
    first.wait_for("Holds the Lease");
    let port = Port::find();
    let listen = format!("127.0.0.1:{}", port.number());
    let mut second = Deployment::as_user(&proxy.url(), &plane, &account("two"), &["--listen", &listen]).launch();
    second.wait_for("Stands by");
    let (web, last) = (Story::of("shop", "web"), Story::of("shop", "last"));
    emit(&server.url(), &web.whole());
    settle(&plane, &server.url());
    // The second has folded it, and hears no more: not that the release is deleted.
    let events = web.whole().lines().count() as u64;
    let folded = || metric(port.number(), "decklog_folded_sequence");
    assert!(poll(LIMIT, || (folded() == Some(events)).then_some(())).is_some(), "{:?} of {events}", folded());
    proxy.refuse();
    proxy.cut();
    emit(&server.url(), &web.deleted());
    settle(&plane, &server.url());
    assert_eq!(first.stop(), Some(0), "{}", first.said());
    assert!(first.said().contains("Gives the Lease back") && !first.said().contains("WARN"), "{}", first.said());
    second.wait_for("Holds the Lease");
    second.wait_for("applies nothing before the log says where it ends");
    emit(&server.url(), &last.whole());
    proxy.heal();
    settle(&plane, &server.url());
    let log = plane.audit();
    let of_web = audit::writes(&log).filter(|line| line["objectRef"]["name"] == "web");
    let by_second = of_web.filter(|line| audit::user(line).ends_with(":two")).count();
    assert_eq!(by_second, 0, "{}", second.said());
    check_audit(&plane, 0);
}

#[test]
fn the_leader_paused_and_nobody_else_there() {
    let (plane, server) = servers();
    let deployment = Deployment::new(&server.url(), &plane, &[]);
    let mut projector = deployment.launch();
    projector.wait_for("Holds the Lease");
    emit(&server.url(), &numbered::lines(0..50));
    projector.signal(Signal::STOP);
    emit(&server.url(), &numbered::lines(50..100));
    // Longer than it may write without a renewal.
    std::thread::sleep(Duration::from_secs(11));
    projector.signal(Signal::CONT);
    settle(&plane, &server.url());
    emit(&server.url(), &numbered::lines(100..150));
    settle(&plane, &server.url());
    check_audit(&plane, 0);
}
