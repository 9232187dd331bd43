//! Processes killed with -9: the projector between any two applies of a pass, the API server, and etcd.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use decklog_tests::kube::ControlPlane;
use decklog_tests::nats::NatsServer;
use decklog_tests::numbered;
use decklog_tests::process::poll;
use decklog_tests::projector::{Deployment, check_audit, check_audit_around_etcd, emit, settle};

use crate::stage::{Story, managers, servers};

/// A pass whose applies are known.
struct Pass {
    /// What the cluster has before it; if nothing, the pass makes the object.
    before: fn(&Story<'_>) -> String,
    /// What is to be applied.
    change: fn(&Story<'_>) -> String,
    /// By whom, in order.
    managers: &'static [&'static str],
}

const PASSES: [Pass; 2] = [
    Pass {
        before: |_| String::new(),
        change: |story| story.whole(),
        managers: &[
            "convoy-release-inventory",
            "convoy-release-hooks",
            "convoy-health-inventory",
            "convoy-hook-status",
        ],
    },
    // A row goes, another one comes, a third is of another render; a hook runs again and ends, another one stays. Who
    // has states lets go first and comes last.
    Pass {
        before: |story| story.whole(),
        change: |story| {
            [
                story.pruned("a"),
                story.applied("b", "r2"),
                story.applied("c", "r2"),
                story.assessed("c", "Healthy", "r2"),
                story.hook_started("migrate", "r2"),
                story.hook_finished("migrate", "r2"),
            ]
            .concat()
        },
        managers: &[
            "convoy-hook-status",
            "convoy-health-inventory",
            "convoy-release-inventory",
            "convoy-release-hooks",
            "convoy-health-inventory",
            "convoy-hook-status",
        ],
    },
];

/// How many passes may be needed to kill one after each of its applies: the kill may come late.
const ROUNDS: usize = 12;

/// How long one apply may take.
const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn the_projector_after_each_apply_of_a_pass() {
    let (plane, server) = servers();
    // So slow that the kill comes before the next request, and slower still if it has come too late.
    let slow = |qps| Deployment::new(&server.url(), &plane, &["--kube-api-qps", qps, "--kube-api-burst", "1"]);
    let deployments = [slow("6"), slow("2")];
    let mut projector = deployments[0].start();
    for (number, pass) in PASSES.iter().enumerate() {
        let mut missing: BTreeSet<_> = (1..=pass.managers.len()).collect();
        for round in 0..ROUNDS {
            let Some(applies) = missing.first().copied() else { break };
            let deployment = &deployments[usize::from(round >= ROUNDS / 2)];
            let name = format!("round-{number}-{round}");
            let story = Story::of("shop", &name);
            emit(&server.url(), &(pass.before)(&story));
            settle(&plane, &server.url());
            let (code, said) = projector.stop("TERM");
            assert_eq!(code, Some(0), "{said}");
            emit(&server.url(), &(pass.change)(&story));
            let before = managers(&plane, &name).len();
            let killed = deployment.start();
            let sent = poll(LIMIT, || (managers(&plane, &name).len() >= before + applies).then_some(()));
            killed.kill();
            let seen = managers(&plane, &name).split_off(before);
            assert!(sent.is_some(), "{seen:?}");
            assert_eq!(seen, pass.managers[..seen.len()]);
            missing.remove(&seen.len());
            // Who was killed holds it still, and would be waited for.
            plane.kubectl_stdout(&["delete", "lease", "-n", "decklog", "--all"], "");
            projector = deployment.start();
            settle(&plane, &server.url());
        }
        assert!(missing.is_empty(), "never killed after {missing:?} applies of pass {number}");
    }
    check_audit(&plane, 0);
}

/// Emits numbered events while something happens to the servers, and waits until all of them are in the cluster.
fn while_events_flow(
    plane: &mut ControlPlane,
    server: &NatsServer,
    first: u64,
    happens: impl FnOnce(&mut ControlPlane),
) {
    let servers = server.url();
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for chunk in 0..30 {
                let begin = first + chunk * 10;
                emit(&servers, &numbered::lines(begin..begin + 10));
                thread::sleep(Duration::from_millis(100));
            }
        });
        thread::sleep(Duration::from_millis(500));
        happens(plane);
        writer.join().expect("the writer has no reason to panic");
    });
    settle(plane, &servers);
}

#[test]
fn the_api_server_and_etcd_while_events_flow() {
    let (mut plane, server) = servers();
    let deployment = Deployment::new(&server.url(), &plane, &[]);
    let mut projector = deployment.launch();
    projector.wait_for("Holds the Lease");
    while_events_flow(&mut plane, &server, 0, |plane| {
        plane.kill_api_server();
        plane.restart_api_server();
    });
    while_events_flow(&mut plane, &server, 300, |plane| {
        plane.kill_etcd();
        thread::sleep(Duration::from_secs(2));
        plane.restart_etcd();
    });
    assert_eq!(projector.stop(), Some(0), "{}", projector.said());
    check_audit_around_etcd(&plane, 0);
}

#[test]
fn the_cluster_put_back_to_a_backup() {
    let (mut plane, server) = servers();
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let backup = folder.path().join("etcd");
    let deployment = Deployment::new(&server.url(), &plane, &[]);
    let mut projector = deployment.launch();
    let [web, api, gone] = ["web", "api", "gone"].map(|name| Story::of("shop", name));
    emit(&server.url(), &[web.whole(), gone.whole()].concat());
    settle(&plane, &server.url());
    plane.back_up(&backup);
    emit(&server.url(), &[web.applied("c", "r2"), api.whole(), gone.deleted()].concat());
    settle(&plane, &server.url());
    plane.put_back(&backup);
    // Nothing has happened in the log since.
    settle(&plane, &server.url());
    assert_eq!(projector.stop(), Some(0), "{}", projector.said());
    // One request for each release.
    check_audit_around_etcd(&plane, 3);
}
