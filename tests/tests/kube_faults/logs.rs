//! The log exchanged, or put back to what it was: inventories of the cluster say so, and nothing is changed.

use std::path::Path;
use std::process::Command;

use decklog_tests::kube::ControlPlane;
use decklog_tests::kube::release_crd::ReleaseCrd;
use decklog_tests::nats::{NatsServer, api};
use decklog_tests::projector::{Deployment, applies, check_audit, emit, make_namespace, settle};
use serde_json::Value;

use crate::stage::{Story, servers, versions};

/// The exit code of a log that is not what it was.
const DIVERGED: i32 = 5;

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
        // Who was ended by an error has given the Lease back, so that the next one leads at once.
        let info = api::order(&server.url(), "STREAM.INFO.DECKLOG", &Value::Null);
        assert_eq!(info["state"]["messages"], 0, "something was said in it");
    }
    check_audit(&plane, 0);
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status().expect("cp can be started");
    assert!(copied.success(), "{copied}");
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
