//! The log exchanged, or put back to what it was: inventories of the cluster say so, and nothing is changed.

use std::time::Duration;

use decklog_tests::kube::ControlPlane;
use decklog_tests::kube::release_crd::ReleaseCrd;
use decklog_tests::nats::proxy::Proxy;
use decklog_tests::nats::{NatsServer, api};
use decklog_tests::process::{copy, poll};
use decklog_tests::projector::{Deployment, applies, check_audit, emit, make_namespace, settle};
use serde_json::Value;

use crate::stage::{Story, managers, servers, versions};

/// The exit code of a log that is not what it was.
const DIVERGED: i32 = 5;

const LIMIT: Duration = Duration::from_secs(60);

/// Runs a projector that must refuse, with these words, and that must not change anything.
#[track_caller]
fn refuses(plane: &ControlPlane, deployment: &Deployment, words: &[&str]) {
    let (before, sent) = (versions(plane), applies(plane));
    let output = deployment.run();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(DIVERGED), "{said}");
    for word in words {
        assert!(said.contains(word), "it does not say {word:?}: {said}");
    }
    assert_eq!((versions(plane), applies(plane)), (before, sent), "{said}");
}

/// Plays events into a log and the cluster.
fn project(plane: &ControlPlane, server: &NatsServer, deployment: &Deployment, lines: &str) {
    let mut projector = deployment.start();
    emit(&server.url(), lines);
    settle(plane, &server.url());
    let (code, said) = projector.stop("TERM");
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn replaced_by_an_empty_one() {
    let (plane, server) = servers();
    let old = Deployment::new(&server.url(), &plane, &[]);
    let (web, api_release) = (Story::of("shop", "web"), Story::of("shop", "api"));
    project(&plane, &server, &old, &(web.whole() + &api_release.whole()));
    api::order(&server.url(), "STREAM.DELETE.DECKLOG", &Value::Null);
    api::init(&server.url(), 1);
    // With its checkpoint, and without one.
    refuses(&plane, &old, &["decklog stream info"]);
    let new = Deployment::new(&server.url(), &plane, &[]);
    refuses(&plane, &new, &["inventory of", "shop/", "it was made from the log", "nothing was changed", "--adopt-log"]);
    // Also when the log has begun to fill.
    emit(&server.url(), &web.applied("z", "r9"));
    refuses(&plane, &new, &["it was made from the log", "--adopt-log"]);
    let adopting = Deployment::new(&server.url(), &plane, &["--adopt-log"]);
    project(&plane, &server, &adopting, &api_release.applied("y", "r9"));
    // From then on it is the log's own.
    let (code, said) = new.start().stop("TERM");
    assert_eq!(code, Some(0), "{said}");
    check_audit(&plane, 0);
}

#[test]
fn that_does_not_fit_is_told_nothing() {
    let (plane, server) = servers();
    let old = Deployment::new(&server.url(), &plane, &[]);
    project(&plane, &server, &old, &Story::of("shop", "web").whole());
    // One that is there and one that is going: what a watcher would tell the log of.
    ReleaseCrd::USUAL.install(&plane);
    ReleaseCrd::USUAL.create(&plane, "there", None, &[]);
    ReleaseCrd::USUAL.create(&plane, "going", None, &["somebody.example/finalizer"]);
    ReleaseCrd::USUAL.delete(&plane, "going");
    api::order(&server.url(), "STREAM.DELETE.DECKLOG", &Value::Null);
    api::init(&server.url(), 1);
    for _ in 0..3 {
        refuses(&plane, &Deployment::new(&server.url(), &plane, &[]), &["it was made from the log"]);
        // Before anything of the cluster is acted on, whoever holds the Lease.
        let info = api::order(&server.url(), "STREAM.INFO.DECKLOG", &Value::Null);
        assert_eq!(info["state"]["messages"], 0, "something was said in it");
    }
    check_audit(&plane, 0);
}

#[test]
fn put_back_to_an_older_backup() {
    let plane = ControlPlane::start();
    plane.install_crd();
    make_namespace(&plane, "shop");
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let [store, backup, newer] = ["store", "backup", "newer"].map(|name| folder.path().join(name));
    std::fs::create_dir(&store).expect("the folder is ours");
    let mut server = NatsServer::builder().store(&store).start();
    api::init(&server.url(), 1);
    let web = Story::of("shop", "web");
    emit(&server.url(), &web.whole());
    server.stop();
    copy(&store, &backup);
    server.restart();
    let first = Deployment::new(&server.url(), &plane, &[]);
    project(&plane, &server, &first, &web.applied("c", "r2"));
    server.stop();
    std::fs::rename(&store, &newer).expect("the folder is ours");
    copy(&backup, &store);
    server.restart();
    let new = Deployment::new(&server.url(), &plane, &[]);
    refuses(&plane, &first, &["decklog stream info"]);
    refuses(&plane, &new, &["made from the log up to sequence", "put the whole log back"]);
    server.stop();
    std::fs::remove_dir_all(&store).expect("the folder is ours");
    std::fs::rename(&newer, &store).expect("the folder is ours");
    server.restart();
    let sent = applies(&plane);
    let (code, said) = new.start().stop("TERM");
    assert_eq!((code, applies(&plane)), (Some(0), sent), "{said}");
    settle(&plane, &server.url());
    check_audit(&plane, 0);
}

#[test]
fn found_out_to_be_another_one_in_the_middle() {
    let (plane, server) = servers();
    // So slow that there is something in flight when it is found out.
    let slow = ["--kube-api-qps", "15", "--kube-api-burst", "1"];
    let deployment = Deployment::new(&server.url(), &plane, &slow);
    project(&plane, &server, &deployment, &Story::of("shop", "web").whole());
    let names: Vec<_> = (0..12).map(|number| format!("many-{number}")).collect();
    emit(&server.url(), &names.iter().map(|name| Story::of("shop", name).whole()).collect::<String>());
    let mut projector = deployment.launch();
    let begun = || names.iter().filter(|name| !managers(&plane, name).is_empty()).count();
    assert!(poll(LIMIT, || (begun() > 2).then_some(())).is_some(), "{}", projector.said());
    let stamp = "convoy-release-inventory.decklog.dev/log=DECKLOG@then/3";
    plane.kubectl_stdout(&["annotate", "--overwrite", "-n", "shop", "releaseinventory/web", stamp], "");
    projector.wait_for("made from the log DECKLOG@then");
    assert_eq!(projector.code(), Some(DIVERGED), "{}", projector.said());
    // What was begun came to its end: nobody has to find out whether it did.
    let all = ["release-inventory", "release-hooks", "health-inventory", "hook-status"];
    let all = all.map(|name| format!("convoy-{name}"));
    for name in &names {
        let seen = managers(&plane, name);
        assert!(seen.is_empty() || seen == all, "{name}: {seen:?}, and not {all:?}");
    }
    check_audit(&plane, 0);
}

#[test]
fn away_while_the_cluster_is_waited_for() {
    let (plane, server) = (ControlPlane::start(), NatsServer::start());
    api::init(&server.url(), 1);
    make_namespace(&plane, "shop");
    emit(&server.url(), &Story::of("shop", "web").whole());
    let proxy = Proxy::to(server.port());
    let deployment = Deployment::new(&proxy.url(), &plane, &[]);
    let mut projector = deployment.launch();
    projector.wait_for("the cluster has no ReleaseInventory");
    proxy.refuse();
    proxy.cut();
    plane.install_crd();
    projector.wait_for("applies nothing before the log says where it ends");
    assert_eq!(applies(&plane), 0, "{}", projector.said());
    proxy.heal();
    settle(&plane, &server.url());
    assert_eq!(projector.stop(), Some(0), "{}", projector.said());
    check_audit(&plane, 0);
}
