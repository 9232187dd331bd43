//! `decklog verify` and `decklog project --dry-run` on a real API server: they tell what is, and write nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use decklog_tests::binary::{self, Up};
use decklog_tests::kube::{ControlPlane, Rights, audit};
use decklog_tests::nats::{NatsServer, api};
use decklog_tests::process::poll;
use decklog_tests::projector::{Deployment, emit, make_namespace, settle};
use serde_json::{Value, json};

/// How long a projector may take until its cluster is in line.
const LIMIT: Duration = Duration::from_secs(60);

const KIND: &str = "releaseinventories.core.convoy.kumodo.io";

/// A log on NATS, and a cluster with the definition and the namespace `shop`.
struct World {
    plane: ControlPlane,
    server: NatsServer,
    /// What was emitted, one event a line.
    history: String,
}

/// What a command has printed, and how it ended.
struct Said {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

#[test]
fn verify_tells_each_verdict() {
    let mut world = World::start();
    world.prepare();
    let log = world.verify_json(&["-A"])["log"].as_str().expect("the log has a name").to_owned();

    // What a hook's state lets go of, a projector that was killed then has not put back.
    world.emit(&[
        event(40, "ItemApplied", "behind", json!({ "item": item("b"), "renderRef": "r2", "wave": 1 })),
        event(41, "ReleaseDeleted", "ghost", json!({})),
        event(42, "HookStarted", "midway", hook("r2")),
        event(43, "ItemApplied", "edited", json!({ "item": item("a"), "renderRef": "r2", "wave": 0 })),
    ]);
    let midway = json!({
        "annotations": { "convoy-hook-status.decklog.dev/log": format!("{log}/{}", world.last("midway")) },
    });
    world.apply("convoy-hook-status", "midway", midway, json!([]));
    world.plane.kubectl_stdout(&["delete", KIND, "-n", "shop", "missing"], "");
    world.edit("drifted", 0, "wave", json!(7));
    world.edit("edited", 1, "wave", json!(7));
    world
        .plane
        .kubectl_stdout(&["label", KIND, "-n", "shop", "labelled", "core.convoy.kumodo.io/shard=b", "--overwrite"], "");
    let row = json!([{ "group": "apps", "kind": "Deployment", "namespace": "shop", "name": "a", "wave": 0 }]);
    world.apply("somebody", "owned", json!({}), row);
    let row = json!([{ "group": "apps", "kind": "Deployment", "namespace": "shop", "name": "x", "renderRef": "r1" }]);
    let stamp =
        |log: &str| json!({ "annotations": { "convoy-release-inventory.decklog.dev/log": format!("{log}/999") } });
    world.apply("somebody", "unknown", json!({}), row.clone());
    world.apply("convoy-release-inventory", "other-log", stamp("DECKLOG@then"), row.clone());
    world.apply("convoy-release-inventory", "ahead", stamp(&log), row);

    let answer = world.verify_json(&["-A"]);
    let verdicts: BTreeMap<_, _> =
        releases(&answer).map(|(name, release)| (name, release["verdict"].clone())).collect();
    let expected = [
        ("ahead", "ahead"),
        ("behind", "behind"),
        ("drifted", "drifted"),
        ("edited", "drifted"),
        ("equal", "equal"),
        ("ghost", "ghost"),
        ("labelled", "drifted"),
        ("midway", "behind"),
        ("missing", "missing"),
        ("other-log", "foreign"),
        ("owned", "drifted"),
        ("unknown", "foreign"),
    ];
    let expected = expected.map(|(name, verdict)| (name.to_owned(), json!(verdict))).into();
    assert_eq!(verdicts, expected, "{answer:#}");

    check_behind(&release(&answer, "behind"));
    let equal = release(&answer, "equal");
    let [owner, health] = ["convoy-release-inventory", "convoy-health-inventory"].map(|name| &equal["stamps"][name]);
    assert!(health["sequence"].as_u64() < owner["sequence"].as_u64(), "{equal:#}");
    check_drifted(&answer);
    check_table(&world);
    check_selections(&world);
    check_rights(&world);
    world.check_untouched();
}

/// The health of `behind` was told before its last event: that it has an older stamp is as it should be.
fn check_behind(behind: &Value) {
    let difference = json!({
        "field": "inventory[apps/Deployment/shop/b].renderRef", "manager": "convoy-release-inventory", "cause": "behind",
        "expected": "r2", "found": "r1", "writers": [],
    });
    assert_eq!(behind["differences"], json!([difference]), "{behind:#}");
    assert_eq!(behind["eventsBehind"], 1, "{behind:#}");
    assert!(behind["stamp"].as_u64() < behind["sequence"].as_u64(), "{behind:#}");
    let health = &behind["stamps"]["convoy-health-inventory"]["sequence"];
    assert!(health.as_u64() < behind["stamp"].as_u64(), "{behind:#}");
}

fn check_drifted(answer: &Value) {
    let [difference] = differences(answer, "drifted").try_into().expect("one field differs");
    assert_eq!(difference["field"], "inventory[apps/Deployment/shop/a].wave");
    assert_eq!(difference["manager"], "convoy-release-inventory");
    assert_eq!((&difference["expected"], &difference["found"]), (&json!(0), &json!(7)));
    let [writer] = difference["writers"].as_array().expect("it is a list").as_slice() else {
        panic!("somebody wrote it: {difference:#}")
    };
    assert_eq!((&writer["manager"], &writer["operation"]), (&json!("kubectl-edit"), &json!("Update")));
    assert!(writer["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{writer}");

    let causes = |name: &str| -> BTreeMap<_, _> {
        let field = |difference: Value| {
            (difference["field"].as_str().unwrap_or_default().to_owned(), difference["cause"].clone())
        };
        differences(answer, name).into_iter().map(field).collect()
    };
    let expected =
        |fields: &[(&str, &str)]| fields.iter().map(|(field, cause)| ((*field).to_owned(), json!(cause))).collect();
    let renders = ("inventory[apps/Deployment/shop/a].renderRef", "behind");
    assert_eq!(causes("edited"), expected(&[renders, ("inventory[apps/Deployment/shop/b].wave", "drifted")]));
    assert_eq!(causes("labelled"), expected(&[("metadata.labels[core.convoy.kumodo.io/shard]", "drifted")]));
    assert_eq!(causes("owned"), expected(&[("inventory[apps/Deployment/shop/a].wave", "owned")]));
    assert_eq!(differences(answer, "owned")[0]["writers"][0]["manager"], "somebody");
    let midway = causes("midway");
    assert!(
        midway.contains_key("hooks[PreSync/migrate].renderRef") && !midway.contains_key("hooks[PreSync/migrate].name")
    );
    assert!(midway.values().all(|cause| cause == "behind"), "{midway:?}");
}

fn check_table(world: &World) {
    let said = world.verify(&["-n", "shop"]);
    assert_eq!(said.code, Some(1), "{}", said.stderr);
    let line = |name: &str| {
        let line = said.stdout.lines().find(|line| line.split_whitespace().nth(1) == Some(name));
        line.unwrap_or_else(|| panic!("{name}: {}", said.stdout)).to_owned()
    };
    assert!(line("equal").contains("equal") && line("behind").contains("1 behind"), "{}", said.stdout);
    for detail in [
        "    inventory[apps/Deployment/shop/a].wave: expected 0, found 7, written by kubectl-edit (Update) at 20",
        "    inventory[apps/Deployment/shop/b].renderRef: \"r2\", still \"r1\"\n",
        "as expected, but written by somebody (Apply)",
        "an object (items: 2, hooks: 0); the cluster has none\n",
        "no object any more; a running projector deletes it\n",
        "    it was made from the log DECKLOG@then, up to sequence 999\n",
        "    it carries no stamp, and by the log there is to be none\n",
        "    it was made from the log up to sequence 999, and the log ends at",
        "\n1 equal, 2 behind, 4 drifted, 1 missing, 1 ghost, 2 foreign, 1 ahead; log DECKLOG@",
    ] {
        assert!(said.stdout.contains(detail), "{detail:?} is not in\n{}", said.stdout);
    }
}

fn check_selections(world: &World) {
    let said = world.verify(&["-n", "shop", "equal"]);
    assert_eq!(said.code, Some(0), "{}{}", said.stdout, said.stderr);
    // The log says a, the cluster b: it is found by both.
    for shard in ["a", "b"] {
        let answer = world.verify_json(&["-A", "-l", &format!("core.convoy.kumodo.io/shard={shard}")]);
        assert_eq!(releases(&answer).map(|(name, _)| name).collect::<Vec<_>>(), ["labelled"]);
    }
    let said = world.verify(&["-n", "shop", "nowhere"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(1), ""), "{}", said.stderr);
    let said = world.verify(&["-n", "other"]);
    assert_eq!(said.code, Some(0), "{}{}", said.stdout, said.stderr);
    for usage in [&["-l", "a b", "-A"][..], &[], &["-A", "--context", "nobody"]] {
        assert_eq!(world.verify(usage).code, Some(2), "{usage:?}");
    }
    // In a file, nobody knows which log the stamps are of, and sequences are lines.
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let file = folder.path().join("events.jsonl");
    std::fs::write(&file, &world.history).expect("the folder is ours");
    let answer = run(&world.verify_args(&file.display().to_string(), &["-A", "-o", "json"]));
    let answer: Value =
        serde_json::from_str(&answer.stdout).unwrap_or_else(|error| panic!("{error}: {}", answer.stderr));
    assert_eq!(answer["log"], Value::Null);
    for (name, verdict) in [("equal", "equal"), ("behind", "behind"), ("drifted", "drifted"), ("missing", "missing")] {
        assert_eq!(release(&answer, name)["verdict"], verdict, "{answer:#}");
    }
    let said = run(&world.verify_args("nats://127.0.0.1:1", &["-A"]));
    assert_eq!(said.code, Some(4), "{}", said.stderr);
}

/// The right to list is all that it needs, where it lists.
fn check_rights(world: &World) {
    let list = "[{apiGroups: [core.convoy.kumodo.io], resources: [releaseinventories], verbs: [list]}]";
    let reader = world.plane.service_account("shop", "reader", Rights::Namespace(list));
    let as_reader = |command: &[&str], args: &[&str]| {
        let kubeconfig = reader.display().to_string();
        run(&[command, &["--from", &world.server.url(), "--kubeconfig", &kubeconfig], args].concat())
    };
    let said = as_reader(&["verify"], &["-n", "shop", "equal"]);
    assert_eq!(said.code, Some(0), "{}{}", said.stdout, said.stderr);
    for (command, args) in [(&["verify"][..], &["-A"][..]), (&["project", "--dry-run"], &[])] {
        let said = as_reader(command, args);
        assert_eq!((said.code, said.stdout.as_str()), (Some(4), ""), "{}", said.stderr);
        assert!(said.stderr.contains("may not list") && said.stderr.contains("needs the verb list"), "{}", said.stderr);
    }
}

#[test]
fn a_cluster_that_the_log_does_not_know_is_told() {
    let mut world = World::start();
    world.prepare();
    let remark = "The log has no release of the cluster \"prod\". It has those of default: name one with --cluster.";
    let from = world.server.url();
    let kubeconfig = world.plane.kubeconfig().display().to_string();
    let common = ["--from", &from, "--kubeconfig", &kubeconfig, "--cluster", "prod"];
    for args in [&["verify", "-A"][..], &["project", "--dry-run"]] {
        let said = binary::run([args, &common].concat());
        let stderr = String::from_utf8_lossy(&said.stderr);
        assert!(stderr.contains(remark), "{args:?}: {stderr}");
    }
    let deployment = Deployment::new(&from, &world.plane, &["--cluster", "prod"]);
    let mut projector = deployment.launch();
    projector.wait_for("Ready");
    assert!(projector.said().contains("The log has no release of the cluster"), "{}", projector.said());
    assert_eq!(projector.stop(), Some(0), "{}", projector.said());
}

#[test]
fn verify_of_a_folder_and_of_a_cluster_that_is_not_there() {
    let mut world = World::start();
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let log = folder.path().display().to_string();
    emit(&log, &items("equal", 1).join("\n"));
    let kubeconfig = world.plane.kubeconfig().display().to_string();
    make_namespace(&world.plane, "decklog");
    let mut projector =
        Up::of(["project", "--from", &log, "--kubeconfig", &kubeconfig, "--lease-namespace", "decklog"]);
    let verify = |world: &World| run(&world.verify_args(&log, &["-A"]));
    let equal = poll(LIMIT, || (verify(&world).code == Some(0)).then_some(()));
    assert!(equal.is_some(), "{}", verify(&world).stdout);
    projector.stop("TERM");
    let later = event(9, "ItemApplied", "equal", json!({ "item": item("b"), "renderRef": "r2", "wave": 0 }));
    emit(&log, &later);
    let behind = |world: &World| {
        let said = run(&world.verify_args(&log, &["-A", "-o", "json"]));
        let answer: Value =
            serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {}", said.stderr));
        let release = release(&answer, "equal");
        (said.code, release["verdict"].clone(), release["eventsBehind"].clone(), release["differences"].clone())
    };
    let of_folder = behind(&world);
    assert_eq!((of_folder.0, &of_folder.1, &of_folder.2), (Some(1), &json!("behind"), &json!(1)));
    let up = Up::start(folder.path());
    assert_eq!(behind(&world), of_folder, "the engine that holds the folder says the same");
    drop(up);

    let said = run(&["verify", "--from", &world.server.url(), "--kubeconfig", &kubeconfig, "-A"]);
    assert_eq!(said.code, Some(1), "to the log on NATS it is foreign: {}{}", said.stdout, said.stderr);
    assert!(said.stdout.contains("foreign"), "{}", said.stdout);
    world.plane.kill_api_server();
    let said = run(&world.verify_args(&log, &["-A"]));
    assert_eq!((said.code, said.stdout.as_str()), (Some(4), ""));
    assert!(said.stderr.contains("cannot reach the API server"), "{}", said.stderr);
}

#[test]
fn a_dry_run_tells_what_would_be_sent() {
    let mut world = World::start();
    let render = "r".repeat(800_000);
    let large =
        |at, name| event(at, "ItemApplied", "large", json!({ "item": item(name), "renderRef": render, "wave": 0 }));
    world.emit(&[west(&large(1_000, "a")), west(&large(1_001, "b"))]);
    world.emit(&[west(&item_event(999, "Bad_Name", "a"))]);
    let said = world.dry_run_json(&["--cluster", "west"]);
    let refused: Vec<_> = releases(&said.1).map(|(name, release)| (name, release["refused"].to_string())).collect();
    assert!(matches!(&*refused, [(bad, name), (large, size)]
        if bad == "Bad_Name" && name.contains("is no name of an object") && large == "large" && size.contains("bytes")));
    assert_eq!(said.0, Some(1));

    // Into an empty cluster.
    world.emit(&[items("drifted", 1), items("ghost", 11), items("equal", 21)].concat());
    let (code, plan) = world.dry_run_json(&[]);
    assert_eq!(code, Some(1));
    assert_eq!(actions(&plan, "equal"), ["create convoy-release-inventory", "apply convoy-health-inventory"]);
    assert_eq!(release(&plan, "equal")["before"], Value::Null);
    assert_eq!(release(&plan, "equal")["waitsForNamespace"], false);
    let away = item_event(998, "away", "a").replace("shop/away", "nowhere/away");
    world.emit(&[west(&away)]);
    let said = world.dry_run(&["--cluster", "west"]);
    assert!(said.stdout.contains("nowhere/away: 1 request, once its namespace exists"), "{}", said.stdout);
    let said = world.dry_run(&[]);
    assert!(
        said.stdout.contains("+++ shop/equal in the log at ") && said.stdout.contains("\n+inventory:\n"),
        "{}",
        said.stdout
    );
    assert!(
        said.stderr.contains("Nothing was sent. Of the inventories, a projector would create 3."),
        "{}",
        said.stderr
    );
    world.check_untouched();

    // In line.
    let deployment = world.project();
    let said = world.dry_run(&[]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), ""), "{}", said.stderr);

    // A hand edit, and a release that was deleted.
    world.edit("drifted", 0, "wave", json!(7));
    world.emit(&[event(41, "ReleaseDeleted", "ghost", json!({}))]);
    let (code, plan) = world.dry_run_json(&[]);
    assert_eq!(code, Some(1));
    assert_eq!(
        actions(&plan, "drifted"),
        ["repair inventory[apps/Deployment/shop/a].wave", "apply convoy-release-inventory"]
    );
    assert_eq!(actions(&plan, "ghost"), ["delete"]);
    assert_eq!(release(&plan, "ghost")["after"], Value::Null);
    assert_eq!(releases(&plan).count(), 2, "{plan:#}");
    let said = world.dry_run(&[]);
    let diff: Vec<_> = said.stdout.lines().filter(|line| line.contains("wave: ") && !line.starts_with(' ')).collect();
    assert_eq!(diff[..2], ["-  wave: 7", "+  wave: 0"], "{}", said.stdout);
    assert!(said.stdout.contains("taking over inventory[apps/Deployment/shop/a].wave, of kubectl-edit (Update)"));
    world.check_untouched();
    drop(deployment);
    check_other_log(&mut world);
}

/// The same events in another log.
fn check_other_log(world: &mut World) {
    let other = NatsServer::start();
    api::init(&other.url(), 1);
    emit(&other.url(), &world.history);
    let later = event(70, "ItemApplied", "equal", json!({ "item": item("b"), "renderRef": "r2", "wave": 0 }));
    emit(&other.url(), &later);
    let said = run(&world.dry_run_args(&other.url(), &[]));
    assert_eq!(said.code, Some(5), "{}{}", said.stdout, said.stderr);
    assert!(said.stdout.contains("shop/equal: it was made from the log DECKLOG@"), "{}", said.stdout);
    assert!(said.stderr.contains("--adopt-log"), "{}", said.stderr);
    let said = run(&world.dry_run_args(&other.url(), &["--adopt-log"]));
    assert_eq!(said.code, Some(1), "{}", said.stderr);
    assert!(said.stdout.contains("\n-  renderRef: r1\n+  renderRef: r2\n"), "{}", said.stdout);

    // A file, and a folder that nothing was projected from.
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let file = folder.path().join("events.jsonl");
    std::fs::write(&file, &world.history).expect("the folder is ours");
    let said = run(&world.dry_run_args(&file.display().to_string(), &["-o", "json"]));
    let plan: Value = serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {}", said.stderr));
    assert_eq!(releases(&plan).map(|(name, _)| name).collect::<Vec<_>>(), ["drifted", "ghost"]);
    let log = folder.path().join("log").display().to_string();
    emit(&log, &later);
    assert_eq!(run(&world.dry_run_args(&log, &[])).code, Some(5));
    world.check_untouched();

    // A projector that takes over says the same before it applies anything.
    let adopting = Deployment::new(&other.url(), &world.plane, &["--adopt-log"]);
    let mut projector = adopting.launch();
    settle(&world.plane, &other.url());
    let said = projector.said();
    assert!(
        said.contains("from another log: 3 are about to change, 0 stay as they are")
            && said.contains("\n+  renderRef: r2\n"),
        "{said}"
    );
    assert_eq!(projector.stop(), Some(0), "{}", projector.said());
}

// === impl World ===

impl World {
    fn start() -> Self {
        let (plane, server) = (ControlPlane::start(), NatsServer::start());
        plane.install_crd();
        api::init(&server.url(), 1);
        make_namespace(&plane, "shop");
        Self { plane, server, history: String::new() }
    }

    /// What all releases have in common: two items, of which one was assessed. A projector has applied it, and ended.
    fn prepare(&mut self) {
        let names = ["behind", "drifted", "edited", "equal", "ghost", "missing", "owned"];
        for (name, at) in names.into_iter().zip((100..).step_by(10)) {
            self.emit(&items(name, at));
        }
        self.emit(&[event(30, "ReleaseTracked", "labelled", json!({ "shard": "a" }))]);
        self.emit(&[
            event(31, "HookStarted", "midway", hook("r1")),
            event(
                32,
                "HookFinished",
                "midway",
                json!({
                    "hook": { "name": "migrate", "phase": "PreSync" }, "renderRef": "r1", "state": "Succeeded",
                    "finishedAt": "2026-03-02T10:01:00Z",
                }),
            ),
        ]);
        let deployment = Deployment::new(&self.server.url(), &self.plane, &[]);
        let mut projector = deployment.start();
        settle(&self.plane, &self.server.url());
        // By now health has a stamp, and does not get a newer one.
        for (name, at) in [("behind", 33), ("equal", 34)] {
            let item = json!({ "item": item("b"), "renderRef": "r1", "wave": 1 });
            self.emit(&[event(at, "ItemApplied", name, item)]);
        }
        settle(&self.plane, &self.server.url());
        let (code, rest) = projector.stop("TERM");
        assert_eq!(code, Some(0), "{rest}");
    }

    /// Runs a projector until the cluster is in line with the log, and ends it.
    fn project(&self) -> Deployment {
        let deployment = Deployment::new(&self.server.url(), &self.plane, &[]);
        let mut projector = deployment.start();
        settle(&self.plane, &self.server.url());
        let (code, rest) = projector.stop("TERM");
        assert_eq!(code, Some(0), "{rest}");
        deployment
    }

    fn emit(&mut self, events: &[String]) {
        let lines: String = events.iter().map(|event| format!("{event}\n")).collect();
        emit(&self.server.url(), &lines);
        self.history += &lines;
    }

    /// The last sequence of a release.
    fn last(&self, name: &str) -> u64 {
        let args = ["timeline", "--from", &self.server.url(), "-n", "shop", name, "-o", "json"];
        let entries: Vec<Value> = serde_json::from_str(&binary::stdout(args)).expect("it is a list");
        entries.last().and_then(|entry| entry["sequence"].as_u64()).expect("it has events")
    }

    /// Changes a field of an item, as `kubectl edit` does.
    fn edit(&self, name: &str, item: usize, field: &str, value: Value) {
        let patch =
            json!([{ "op": "replace", "path": format!("/inventory/{item}/{field}"), "value": value }]).to_string();
        let args =
            ["patch", KIND, "-n", "shop", name, "--type", "json", "--field-manager", "kubectl-edit", "-p", &patch];
        self.plane.kubectl_stdout(&args, "");
    }

    /// Applies an object as some manager.
    fn apply(&self, manager: &str, name: &str, mut metadata: Value, inventory: Value) {
        metadata["name"] = json!(name);
        metadata["namespace"] = json!("shop");
        let mut object = json!({
            "apiVersion": "core.convoy.kumodo.io/v1alpha1", "kind": "ReleaseInventory", "metadata": metadata,
        });
        if inventory != json!([]) {
            object["inventory"] = inventory;
        }
        let args = ["apply", "--server-side", "--force-conflicts", "--field-manager", manager, "-f", "-"];
        self.plane.kubectl_stdout(&args, &object.to_string());
    }

    fn verify_args(&self, log: &str, args: &[&str]) -> Vec<String> {
        self.args(&["verify", "--from", log], args)
    }

    fn dry_run_args(&self, log: &str, args: &[&str]) -> Vec<String> {
        self.args(&["project", "--dry-run", "--from", log], args)
    }

    fn args(&self, command: &[&str], args: &[&str]) -> Vec<String> {
        let kubeconfig = self.plane.kubeconfig().display().to_string();
        let access = ["--kubeconfig", &kubeconfig];
        [command, &access, args].concat().into_iter().map(str::to_owned).collect()
    }

    fn verify(&self, args: &[&str]) -> Said {
        run(&self.verify_args(&self.server.url(), args))
    }

    fn verify_json(&self, args: &[&str]) -> Value {
        let said = self.verify(&[args, &["-o", "json"]].concat());
        serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {}", said.stderr))
    }

    fn dry_run(&self, args: &[&str]) -> Said {
        run(&self.dry_run_args(&self.server.url(), args))
    }

    fn dry_run_json(&self, args: &[&str]) -> (Option<i32>, Value) {
        let said = self.dry_run(&[args, &["-o", "json"]].concat());
        let plan = serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {}", said.stderr));
        (said.code, plan)
    }

    /// Since the last projector has given back its Lease, decklog has only read.
    fn check_untouched(&self) {
        let log = self.plane.audit();
        let is_ours = |line: &&Value| audit::user_agent(line).starts_with("decklog/");
        let is_read = |line: &Value| ["get", "list"].iter().any(|verb| line["verb"] == *verb);
        let mut ours: Vec<_> = log.iter().filter(is_ours).collect();
        let lease = ours.iter().rposition(|line| line["objectRef"]["resource"] == "leases");
        ours.drain(..lease.map_or(0, |at| at + 1));
        assert!(!ours.is_empty(), "something was read");
        let written: Vec<_> = ours.into_iter().filter(|line| !is_read(line)).collect();
        assert!(written.is_empty(), "{written:#?}");
    }
}

fn run<A: AsRef<std::ffi::OsStr>>(args: &[A]) -> Said {
    let output = binary::run(args);
    let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
    Said { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// The releases of an answer, by name.
fn releases(answer: &Value) -> impl Iterator<Item = (String, &Value)> {
    let releases = answer["releases"].as_array().into_iter().flatten();
    releases.map(|release| (release["release"].as_str().unwrap_or_default().to_owned(), release))
}

fn release(answer: &Value, name: &str) -> Value {
    let found = releases(answer).find(|(found, _)| found == name);
    found.unwrap_or_else(|| panic!("{name} is not in {answer:#}")).1.clone()
}

fn differences(answer: &Value, name: &str) -> Vec<Value> {
    release(answer, name)["differences"].as_array().cloned().expect("it is a list")
}

/// What would be sent for a release, in words.
fn actions(plan: &Value, name: &str) -> Vec<String> {
    let requests = release(plan, name)["requests"].as_array().cloned().expect("it is a list");
    let words = requests.iter().map(|request| {
        let about = [&request["manager"], &request["takenOver"][0]["field"]];
        let about = about.into_iter().filter_map(Value::as_str).map(|about| format!(" {about}")).collect::<String>();
        format!("{}{about}", request["action"].as_str().unwrap_or_default())
    });
    words.collect()
}

/// Two items, of which one was assessed.
fn items(release: &str, number: u64) -> Vec<String> {
    let health =
        json!({ "item": item("a"), "state": "Degraded", "assessedRenderRef": "r1", "message": "1 of 2 is up" });
    vec![
        item_event(number, release, "a"),
        event(number + 1, "HealthAssessed", release, health),
        item_event(number + 2, release, "b"),
    ]
}

fn item_event(number: u64, release: &str, name: &str) -> String {
    event(number, "ItemApplied", release, json!({ "item": item(name), "renderRef": "r1", "wave": 0 }))
}

fn item(name: &str) -> Value {
    json!({ "group": "apps", "version": "v1", "kind": "Deployment", "namespace": "shop", "name": name })
}

fn hook(render: &str) -> Value {
    json!({
        "hook": { "name": "migrate", "phase": "PreSync" },
        "workload": { "group": "batch", "version": "v1", "kind": "Job", "namespace": "shop", "name": format!("migrate-{render}") },
        "renderRef": render, "weight": 0, "timeout": "5m0s", "createdAt": "2026-03-02T10:00:00Z",
    })
}

/// The event in another cluster.
fn west(event: &str) -> String {
    let mut event: Value = serde_json::from_str(event).expect("it is one");
    event["cluster"] = json!("west");
    event.to_string()
}

fn event(number: u64, name: &str, release: &str, data: Value) -> String {
    json!({
        "specversion": "1.0",
        "id": format!("00000000-0000-7000-8000-{number:012}"),
        "source": "/controller/1",
        "type": format!("dev.decklog.{name}.v1"),
        "subject": format!("shop/{release}"),
        "time": "2026-03-02T10:00:00Z",
        "data": data,
    })
    .to_string()
}
