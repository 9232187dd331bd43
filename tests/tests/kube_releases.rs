//! Releases and the log: each is tracked with its shard, and goes only after its inventory, whatever happens meanwhile.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use decklog_schemas::inventory::{GROUP, PLURAL, SHARD_LABEL};
use decklog_tests::binary;
use decklog_tests::kube::release_crd::{FINALIZER, NAMESPACE, ReleaseCrd};
use decklog_tests::kube::{ControlPlane, Rights, audit};
use decklog_tests::nats::{NatsServer, api};
use decklog_tests::numbered::{Random, seed};
use decklog_tests::process::poll;
use decklog_tests::projector::{Deployment, check_audit, check_audit_around_etcd, emit, make_namespace, settle};
use serde_json::{Value, json};
use uuid::Uuid;

/// How long something may take, of which the longest is a Lease that has to run out.
const LIMIT: Duration = Duration::from_secs(90);

/// What the projector must not do is not done within this time.
const A_WHILE: Duration = Duration::from_millis(1500);

/// Somebody else's finalizer.
const OTHER: &str = "example.org/other";

/// The servers, and which resource is the Release.
struct World {
    plane: ControlPlane,
    server: NatsServer,
    crd: ReleaseCrd,
}

impl World {
    /// A control plane without Releases, and a NATS server with the stream.
    fn without_releases(crd: ReleaseCrd) -> Self {
        let (plane, server) = (ControlPlane::start(), NatsServer::start());
        plane.install_crd();
        api::init(&server.url(), 1);
        make_namespace(&plane, NAMESPACE);
        Self { plane, server, crd }
    }

    fn start() -> Self {
        let world = Self::without_releases(ReleaseCrd::USUAL);
        world.crd.install(&world.plane);
        world
    }

    fn deployment(&self, args: &[&str]) -> Deployment {
        Deployment::new(&self.server.url(), &self.plane, args)
    }

    fn create(&self, name: &str, shard: Option<&str>, finalizers: &[&str]) -> String {
        self.crd.create(&self.plane, name, shard, finalizers)
    }

    /// Makes a Release, and waits until it is tracked and held. Returns its uid.
    fn held(&self, name: &str) -> String {
        let uid = self.create(name, None, &[]);
        self.wait_for_finalizers(name, &[FINALIZER]);
        uid
    }

    /// Says something as the controller.
    fn say(&self, name: &str, uid: &str, what: &str, data: &Value) {
        let event = json!({
            "specversion": "1.0", "id": Uuid::now_v7().to_string(), "source": "/controller/1",
            "type": format!("dev.decklog.{what}.v1"), "subject": format!("{NAMESPACE}/{name}"),
            "time": "2026-03-02T10:00:00Z", "releaseuid": uid, "data": data,
        });
        emit(&self.server.url(), &event.to_string());
    }

    /// Says that an item was applied.
    fn apply(&self, name: &str, uid: &str, item: &str) {
        let item = json!({ "group": "apps", "version": "v1", "kind": "Deployment", "namespace": "shop", "name": item });
        self.say(name, uid, "ItemApplied", &json!({ "item": item, "renderRef": "r1" }));
    }

    fn deleted(&self, name: &str, uid: &str) {
        self.say(name, uid, "ReleaseDeleted", &json!({}));
    }

    /// What was said of a Release by anybody, in order: types, and `!` and the reason behind what was not folded.
    fn timeline(&self, name: &str) -> Vec<String> {
        let args = ["timeline", "--from", &self.server.url(), "-o", "json", "-n", NAMESPACE, name];
        let entries: Value = serde_json::from_slice(&binary::run(args).stdout).unwrap_or_default();
        let text = |entry: &Value| {
            let name = entry["type"].as_str().unwrap_or_default();
            let name = name.trim_start_matches("dev.decklog.").trim_end_matches(".v1");
            entry["reason"].as_str().map_or_else(|| name.to_owned(), |reason| format!("{name}!{reason}"))
        };
        entries.as_array().into_iter().flatten().map(text).collect()
    }

    #[track_caller]
    fn wait_for_timeline(&self, name: &str, expected: &[&str]) {
        let mut seen = Vec::new();
        let said = poll(LIMIT, || {
            seen = self.timeline(name);
            (seen == expected).then_some(())
        });
        assert!(said.is_some(), "{name}: {seen:?} and not {expected:?}");
    }

    #[track_caller]
    fn wait_for_finalizers(&self, name: &str, expected: &[&str]) {
        let mut seen = Vec::new();
        let set = poll(LIMIT, || {
            seen = self.crd.finalizers(&self.plane, name);
            (seen == expected).then_some(())
        });
        assert!(set.is_some(), "{name}: {seen:?} and not {expected:?}, {:?}", self.timeline(name));
    }

    #[track_caller]
    fn wait_until_gone(&self, name: &str) {
        let gone = poll(LIMIT, || self.crd.get(&self.plane, name).is_none().then_some(()));
        assert!(gone.is_some(), "{name}: {:?}", self.timeline(name));
        assert_eq!(self.inventory(name), None, "{name}");
    }

    /// The inventory of a Release, if there is one.
    fn inventory(&self, name: &str) -> Option<Value> {
        let resource = format!("{PLURAL}.{GROUP}");
        let args = ["get", "-o", "json", "-n", NAMESPACE, &resource, name, "--ignore-not-found"];
        serde_json::from_str(&self.plane.kubectl_stdout(&args, "")).ok()
    }

    /// Waits until the inventory has this shard label, or none.
    #[track_caller]
    fn wait_for_label(&self, name: &str, expected: Option<&str>) {
        let label = || self.inventory(name).map(|object| object["metadata"]["labels"][SHARD_LABEL].clone());
        let is_right = || label() == Some(expected.map_or(Value::Null, Value::from));
        assert!(poll(LIMIT, || is_right().then_some(())).is_some(), "{name}: {:?} and not {expected:?}", label());
    }

    fn settle(&self) {
        settle(&self.plane, &self.server.url());
    }
}

#[test]
fn the_watch_goes_on_after_the_api_server_was_killed() {
    let mut world = World::start();
    let deployment = world.deployment(&[]);
    let mut projector = deployment.start();
    let [stays, goes] = ["stays", "goes"].map(|name| world.held(name));
    world.apply("goes", &goes, "api");
    world.settle();
    for round in 0..3 {
        world.plane.kill_api_server();
        // What is said meanwhile waits for the cluster.
        world.apply("stays", &stays, &format!("item-{round}"));
        world.plane.restart_api_server();
        world.held(&format!("later-{round}"));
    }
    world.crd.delete(&world.plane, "goes");
    world.wait_for_timeline("goes", &["ReleaseTracked", "ItemApplied", "ReleaseDeleting"]);
    world.deleted("goes", &goes);
    world.wait_until_gone("goes");
    world.settle();
    let tracked = [&["ReleaseTracked"][..], &["ItemApplied"; 3]].concat();
    world.wait_for_timeline("stays", &tracked);
    let (code, rest) = projector.stop("TERM");
    assert_eq!(code, Some(0), "{rest}");
    check_audit(&world.plane, 0);
}

#[test]
fn a_cluster_that_was_put_back_to_a_backup_is_believed() {
    let mut world = World::start();
    let deployment = world.deployment(&[]);
    let mut projector = deployment.start();
    world.create("moves", Some("eu-1"), &[]);
    world.wait_for_finalizers("moves", &[FINALIZER]);
    let goes = world.held("goes");
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let backup = folder.path().join("etcd");
    world.plane.back_up(&backup);
    // More changes than there are in the backup, so that versions that come later are lower.
    for shard in ["eu-2", "eu-3", "eu-2"] {
        world.crd.label(&world.plane, "moves", Some(shard));
        world.wait_for_label("moves", Some(shard));
    }
    world.held("late");
    world.crd.delete(&world.plane, "goes");
    world.wait_for_timeline("goes", &["ReleaseTracked", "ReleaseDeleting"]);
    world.deleted("goes", &goes);
    world.wait_until_gone("goes");

    world.plane.put_back(&backup);
    world.wait_for_label("moves", Some("eu-1"));
    world.wait_for_timeline("moves", &["ReleaseTracked"; 5]);
    // What the cluster has forgotten is told, and what it has again is what the log says of it: over.
    let said = projector.wait_for("was not let go");
    assert!(said.contains("shop/late"), "{said}");
    let told = ["ReleaseTracked", "ReleaseDeleting", "ReleaseDeleted", "InventoryDeleted"];
    world.wait_for_timeline("goes", &told);
    assert_eq!(poll(LIMIT, || world.inventory("goes").is_none().then_some(())), Some(()), "of a Release that is over");
    world.crd.delete(&world.plane, "goes");
    world.wait_until_gone("goes");
    world.wait_for_timeline("goes", &told);
    world.crd.label(&world.plane, "moves", Some("eu-4"));
    world.wait_for_label("moves", Some("eu-4"));
    world.settle();
    let (code, rest) = projector.stop("TERM");
    assert_eq!(code, Some(0), "{rest}");
    // One request for each Release and each inventory.
    check_audit_around_etcd(&world.plane, 6);
}

#[test]
fn labels_follow_and_nothing_is_told_twice() {
    let world = World::start();
    world.create("early", Some("eu-1"), &[]);
    let deployments = [world.deployment(&[]), world.deployment(&[])];
    let mut projectors = deployments.each_ref().map(Deployment::start);
    world.wait_for_timeline("early", &["ReleaseTracked"]);
    world.wait_for_finalizers("early", &[FINALIZER]);
    world.wait_for_label("early", Some("eu-1"));
    let uid = world.create("late", None, &[OTHER]);
    world.wait_for_finalizers("late", &[OTHER, FINALIZER]);
    world.wait_for_label("late", None);

    world.crd.label(&world.plane, "early", Some("eu-2"));
    world.wait_for_label("early", Some("eu-2"));
    world.crd.label(&world.plane, "early", None);
    world.wait_for_label("early", None);
    world.crd.label(&world.plane, "late", Some("eu-1"));
    world.wait_for_label("late", Some("eu-1"));
    // What is none of our business: a change without one of the label, and what a controller says.
    world.plane.kubectl_stdout(&["annotate", "-n", NAMESPACE, "releases", "early", "example.org/a=b"], "");
    world.apply("late", &uid, "api");
    world.held("going");
    world.crd.delete(&world.plane, "going");
    let going = ["ReleaseTracked", "ReleaseDeleting"];
    world.wait_for_timeline("going", &going);
    let early = ["ReleaseTracked"; 3];
    let late = ["ReleaseTracked", "ReleaseTracked", "ItemApplied"];
    world.settle();
    for projector in &mut projectors {
        let (code, rest) = projector.stop("TERM");
        assert_eq!(code, Some(0), "{rest}");
    }
    drop(projectors);

    let mut projectors = deployments.each_ref().map(Deployment::start);
    world.held("marker");
    thread::sleep(A_WHILE);
    world.wait_for_timeline("going", &going);
    world.wait_for_timeline("early", &early);
    world.wait_for_timeline("late", &late);
    // Somebody who says otherwise is put right.
    world.say("late", &uid, "ReleaseTracked", &json!({}));
    world.wait_for_timeline("late", &[&late[..], &["ReleaseTracked"; 2]].concat());
    world.wait_for_label("late", Some("eu-1"));
    for projector in &mut projectors {
        let said = projector.said();
        assert!(!said.contains("WARN"), "{said}");
    }
    world.settle();
    check_audit(&world.plane, 0);
}

#[test]
fn a_release_moves_to_the_projector_of_another_shard() {
    let world = World::start();
    let everything = "[{apiGroups: ['*'], resources: ['*'], verbs: ['*']}]";
    let account = |name| world.plane.service_account("accounts", name, Rights::Cluster(everything));
    let [a, b] = ["a", "b"]
        .map(|name| Deployment::as_user(&world.server.url(), &world.plane, &account(name), &["--shard", name]));
    let _projectors = [a.start(), b.start()];
    let uid = world.create("moving", Some("a"), &[]);
    world.create("nobodys", None, &[]);
    world.wait_for_finalizers("moving", &[FINALIZER]);
    world.apply("moving", &uid, "api");
    world.settle();
    let writes = || {
        let log = world.plane.audit();
        let by = |name: &str| {
            let user = format!("system:serviceaccount:accounts:{name}");
            audit::writes(&log).filter(|line| audit::user(line) == user).count()
        };
        (by("a"), by("b"))
    };
    let (by_a, by_b) = writes();
    assert!(by_a > 0 && by_b == 0, "{by_a} {by_b}");

    world.crd.label(&world.plane, "moving", Some("b"));
    world.wait_for_label("moving", Some("b"));
    for item in ["db", "web"] {
        world.apply("moving", &uid, item);
        world.settle();
    }
    let moved = writes();
    assert!(moved.0 == by_a && moved.1 > 2, "{moved:?}");
    // Nobody is there to take it, so that who has it keeps it to its end.
    world.crd.label(&world.plane, "moving", None);
    world.crd.delete(&world.plane, "moving");
    let told = ["ReleaseTracked", "ItemApplied", "ReleaseTracked", "ItemApplied", "ItemApplied", "ReleaseDeleting"];
    world.wait_for_timeline("moving", &told);
    world.deleted("moving", &uid);
    world.wait_until_gone("moving");
    assert_eq!(world.timeline("moving")[6..], ["ReleaseDeleted", "InventoryDeleted"]);
    assert_eq!(world.timeline("nobodys"), [""; 0]);
    check_audit(&world.plane, 0);
}

#[test]
fn a_release_goes_after_its_inventory() {
    let world = World::start();
    let deployment = world.deployment(&[]);
    let mut projector = deployment.start();
    let uid = world.create("checkout", None, &[OTHER]);
    world.wait_for_finalizers("checkout", &[OTHER, FINALIZER]);
    world.apply("checkout", &uid, "api");
    world.settle();
    world.crd.delete(&world.plane, "checkout");
    let told = ["ReleaseTracked", "ItemApplied", "ReleaseDeleting"];
    world.wait_for_timeline("checkout", &told);
    thread::sleep(A_WHILE);
    assert!(world.inventory("checkout").is_some() && world.timeline("checkout") == told);
    world.wait_for_finalizers("checkout", &[OTHER, FINALIZER]);
    world.deleted("checkout", &uid);
    world.wait_for_finalizers("checkout", &[OTHER]);
    let told = [&told[..], &["ReleaseDeleted", "InventoryDeleted"]].concat();
    assert_eq!(world.timeline("checkout"), told);
    world.crd.set_finalizers(&world.plane, "checkout", &[]);
    world.wait_until_gone("checkout");

    // Another one of the same name begins anew, and is deleted before or after it is held.
    let uid = world.create("checkout", Some("eu-1"), &[]);
    world.crd.delete(&world.plane, "checkout");
    world.deleted("checkout", &uid);
    let is_gone = || world.crd.get(&world.plane, "checkout").is_none() && world.inventory("checkout").is_none();
    assert!(poll(LIMIT, || is_gone().then_some(())).is_some(), "{:?}", world.timeline("checkout"));
    let uid = world.held("other");

    // Removed by force: that is told, and nothing is done, before there is another one of the name.
    world.apply("other", &uid, "api");
    world.settle();
    let _ = projector.said();
    world.crd.delete(&world.plane, "other");
    world.wait_for_timeline("other", &["ReleaseTracked", "ItemApplied", "ReleaseDeleting"]);
    world.crd.set_finalizers(&world.plane, "other", &[]);
    projector.wait_for("was not let go");
    let rows = || world.inventory("other").and_then(|object| object["inventory"].as_array().map(Vec::len));
    assert_eq!(rows(), Some(1));
    world.held("other");
    world.wait_for_timeline("other", &["ReleaseTracked", "ItemApplied", "ReleaseDeleting", "ReleaseTracked"]);
    assert!(poll(LIMIT, || rows().unwrap_or_default().eq(&0).then_some(())).is_some(), "{:?}", rows());
    world.settle();
    check_audit(&world.plane, 0);
}

#[test]
fn a_projector_that_is_killed_at_any_point_goes_on() {
    let world = World::start();
    let deployment = world.deployment(&[]);
    let projector = deployment.start();
    let names = ["r0", "r1", "r2", "r3", "r4"];
    let uids = names.map(|name| world.held(name));
    world.settle();
    projector.kill();
    // What another start finds, had the last one been killed just before each of these: ReleaseDeleting, the removal of
    // the inventory, InventoryDeleted, the removal of the finalizer, ReleaseTracked.
    names.iter().for_each(|name| world.crd.delete(&world.plane, name));
    for (name, uid) in names.iter().zip(&uids).skip(1) {
        world.say(name, uid, "ReleaseDeleting", &json!({}));
        world.deleted(name, uid);
    }
    let inventories = format!("{PLURAL}.{GROUP}");
    for name in &names[2..] {
        world.plane.kubectl_stdout(&["delete", "-n", NAMESPACE, &inventories, name], "");
    }
    names[3..].iter().zip(&uids[3..]).for_each(|(name, uid)| world.say(name, uid, "InventoryDeleted", &json!({})));
    // And somebody has let go of this one, and another one has its name.
    world.crd.set_finalizers(&world.plane, "r4", &[]);
    let after = world.create("r4", None, &[]);
    let mut projector = deployment.start();
    let told = ["ReleaseTracked", "ReleaseDeleting", "ReleaseDeleted", "InventoryDeleted"];
    for name in &names[1..4] {
        world.wait_until_gone(name);
        world.wait_for_timeline(name, &told);
    }
    world.wait_for_timeline("r4", &[&told[..], &["ReleaseTracked"]].concat());
    world.wait_for_timeline("r0", &told[..2]);
    world.deleted("r0", &uids[0]);
    world.wait_until_gone("r0");
    world.wait_for_timeline("r0", &told);
    world.apply("r4", &after, "api");
    world.settle();

    let seed = seed();
    println!("DECKLOG_SEED={seed}");
    let mut random = Random(seed);
    for round in 0..2 {
        let names: Vec<_> = (0..6).map(|number| format!("k{round}{number}")).collect();
        let uids: Vec<_> = names.iter().map(|name| world.create(name, None, &[])).collect();
        names.iter().for_each(|name| world.wait_for_finalizers(name, &[FINALIZER]));
        names.iter().for_each(|name| world.crd.delete(&world.plane, name));
        names.iter().for_each(|name| world.wait_for_timeline(name, &told[..2]));
        names.iter().zip(&uids).for_each(|(name, uid)| world.deleted(name, uid));
        thread::sleep(Duration::from_millis(random.below(150)));
        projector.kill();
        projector = deployment.start();
        for name in &names {
            world.wait_until_gone(name);
            world.wait_for_timeline(name, &told);
        }
    }
    check_audit(&world.plane, 0);
}

#[test]
fn releases_of_another_resource_that_is_installed_later() {
    let rollouts = ReleaseCrd { group: "example.org", version: "v1", kind: "Rollout", plural: "rollouts" };
    let world = World::without_releases(rollouts);
    let flags = ["--release-group", "example.org", "--release-version", "v1"];
    let flags = [&flags[..], &["--release-kind", "Rollout", "--release-plural", "rollouts"]].concat();
    let deployment = world.deployment(&flags);
    let mut projector = deployment.start();
    projector.wait_for("Cluster has no Releases");
    world.apply("plain", "u1", "api");
    world.settle();
    rollouts.install(&world.plane);
    world.held("later");
    world.wait_for_timeline("later", &["ReleaseTracked"]);
    assert!(world.inventory("later").is_some());
    let said = projector.said();
    assert!(!said.contains("has no Releases") && said.contains("Releases are watched"), "{said}");
    // The release that has an inventory and no object is told of, and left alone.
    let said = if said.contains("live in the log and are not") { said } else { projector.wait_for("live in the log") };
    assert!(said.contains("shop/plain"), "{said}");
    world.settle();
    check_audit(&world.plane, 0);
}

/// The kubeconfig of the ServiceAccount that `decklog manifests` prints.
fn projector_account(plane: &ControlPlane, folder: &tempfile::TempDir) -> PathBuf {
    let token = plane.kubectl_stdout(&["create", "token", "decklog", "-n", "decklog"], "");
    let text = std::fs::read_to_string(plane.kubeconfig()).expect("the harness wrote it");
    let mut config: Value = serde_json::from_str(&text).expect("the harness writes JSON");
    config["users"][0]["user"] = json!({ "token": token.trim_end() });
    let file = folder.path().join("kubeconfig");
    std::fs::write(&file, config.to_string()).expect("the folder is ours");
    file
}

#[test]
fn the_printed_rights_are_enough_and_without_them_inventories_are_applied() {
    let world = World::start();
    let manifests = binary::stdout(["manifests"]);
    world.plane.apply(&manifests);
    let role = ["clusterrole", "decklog-decklog"];
    let change = |patch: &Value| {
        let patch = patch.to_string();
        world.plane.kubectl_stdout(&[&["patch", "--type=json", "-p", &patch], &role[..]].concat(), "");
    };
    let rules = world.plane.get(&role)["rules"].clone();
    assert_eq!(rules[1]["resources"], json!(["releases"]));
    change(&json!([{ "op": "remove", "path": "/rules/1" }]));
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let account = projector_account(&world.plane, &folder);
    let may = |verb: &str, what: &str| {
        let said = world.plane.kubectl_as(&account, &["auth", "can-i", verb, what, "-A"], "").stdout;
        said == b"yes\n"
    };
    let known = poll(LIMIT, || (may("list", &format!("{PLURAL}.{GROUP}")) && !may("list", "releases")).then_some(()));
    assert!(known.is_some(), "the authorizer does not hear of the rights");

    let deployment = Deployment::as_user(&world.server.url(), &world.plane, &account, &[]);
    let mut projector = deployment.start();
    let uid = world.create("checkout", Some("eu-1"), &[]);
    let said = projector.wait_for("Releases cannot be watched");
    assert!(!said.contains("kube_runtime"), "{said}");
    world.apply("checkout", &uid, "api");
    world.settle();
    // Twice as long as it takes until it is tried again.
    thread::sleep(Duration::from_secs(11));
    let said = projector.said();
    assert!(!said.contains("forbidden") && !said.contains("cannot be watched"), "{said}");
    assert_eq!(world.timeline("checkout"), ["ItemApplied"]);

    change(&json!([{ "op": "add", "path": "/rules/1", "value": rules[1] }]));
    world.wait_for_finalizers("checkout", &[FINALIZER]);
    world.wait_for_label("checkout", Some("eu-1"));
    world.settle();
    world.crd.delete(&world.plane, "checkout");
    let told = ["ItemApplied", "ReleaseTracked", "ReleaseDeleting", "ReleaseDeleted", "InventoryDeleted"];
    world.wait_for_timeline("checkout", &told[..3]);
    world.deleted("checkout", &uid);
    world.wait_until_gone("checkout");
    assert_eq!(world.timeline("checkout"), told);
    let (code, rest) = projector.stop("TERM");
    assert_eq!(code, Some(0), "{rest}");
    let log = world.plane.audit();
    let refused = log.iter().filter(|line| audit::user(line) == "system:serviceaccount:decklog:decklog");
    let refused: Vec<_> = refused.filter(|line| audit::code(line) == 403).map(|line| &line["requestURI"]).collect();
    let of_releases = |uri: &&&Value| uri.as_str().is_some_and(|uri| uri.contains("/releases?"));
    assert!(!refused.is_empty() && refused.iter().all(|uri| of_releases(&uri)), "{refused:?}");
    check_audit(&world.plane, 0);
}
