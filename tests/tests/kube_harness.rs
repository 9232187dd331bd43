//! The harness for Kubernetes: servers keep what they stored, rights are kept to, and each request is told.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use std::{env, fs, thread};

use decklog_schemas::inventory::SHARD_LABEL;
use decklog_tests::binary::{self, root};
use decklog_tests::kube::{ControlPlane, Rights, audit};
use decklog_tests::process::poll;
use serde_json::{Value, json};

/// How long something may take that happens at once.
const SOON: Duration = Duration::from_secs(30);

/// Tells a child of ours where to write what it started.
const CHILD: &str = "DECKLOG_HARNESS_CHILD";

/// What a projector does.
const PROJECTOR: &str =
    "[{apiGroups: [core.convoy.kumodo.io], resources: [releaseinventories], verbs: [get, create, patch]}]";

/// An object as decklog prints it for a release of the demo.
fn demo_object() -> String {
    let history = root().join("adapters/cli/demo/incident.jsonl");
    binary::stdout(["at", "--from", &history.display().to_string(), "-n", "shop", "checkout", "-o", "yaml"])
}

fn parse(yaml: &str) -> Value {
    serde_saphyr::from_str(yaml).expect("objects are YAML")
}

/// The object of the demo in another namespace, which is made.
fn object_in(plane: &ControlPlane, namespace: &str) -> Value {
    make_namespace(plane, namespace);
    let mut object = parse(&demo_object());
    object["metadata"]["namespace"] = json!(namespace);
    object
}

fn make_namespace(plane: &ControlPlane, name: &str) {
    plane.apply(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }).to_string());
}

fn config_map(namespace: &str, name: &str) -> String {
    let metadata = json!({ "name": name, "namespace": namespace });
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": { "key": name } }).to_string()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn namespaces_are_listed() {
    let listed = ControlPlane::shared().kubectl_stdout(&["get", "ns", "--no-headers", "-o", "name"], "");
    let has = |name: &str| listed.lines().any(|line| line == format!("namespace/{name}"));
    assert!(has("default") && has("kube-system"), "{listed}");
    let version = parse(&ControlPlane::shared().kubectl_stdout(&["version", "-o", "yaml"], ""));
    let (client, server) = (&version["clientVersion"]["gitVersion"], &version["serverVersion"]["gitVersion"]);
    assert!(client == server && client.as_str().is_some_and(|version| version.starts_with("v1.")), "{version}");
}

#[test]
fn what_decklog_prints_is_applied_as_it_is() {
    let plane = ControlPlane::shared();
    make_namespace(plane, "shop");
    let printed = demo_object();
    plane.apply(&printed);
    let (printed, stored) = (parse(&printed), plane.get(&["releaseinventories", "-n", "shop", "checkout"]));
    assert!(printed["inventory"].as_array().is_some_and(|items| items.len() > 1), "{printed}");
    assert!(printed["hooks"].as_array().is_some_and(|hooks| hooks.len() > 1), "{printed}");
    for key in ["apiVersion", "kind", "inventory", "hooks"] {
        assert_eq!(stored[key], printed[key], "{key}");
    }
    assert_eq!(stored["metadata"]["labels"], printed["metadata"]["labels"]);
}

#[test]
fn columns_are_those_of_the_definition() {
    let plane = ControlPlane::shared();
    let mut object = object_in(plane, "columns");
    object["inventory"][1]["state"] = json!("Degraded");
    object["hooks"][0]["state"] = json!("Failed");
    plane.apply(&object.to_string());
    let shown = plane.kubectl_stdout(&["get", "releaseinventories", "-n", "columns"], "");
    let mut lines = shown.lines();
    let headers = lines.next().unwrap_or_default().split("   ").map(str::trim).filter(|word| !word.is_empty());
    let headers: Vec<_> = headers.collect();
    assert_eq!(headers, ["NAME", "SHARD", "DEGRADED", "FAILED HOOK", "TIMED-OUT HOOK", "AGE"], "{shown}");
    let row: Vec<_> = lines.next().unwrap_or_default().split_whitespace().collect();
    let cell = |value: &Value| value.as_str().expect("names are strings").to_owned();
    let expected = [
        &object["metadata"]["name"],
        &object["metadata"]["labels"][SHARD_LABEL],
        &object["inventory"][1]["name"],
        &object["hooks"][0]["name"],
        &object["hooks"][2]["name"],
    ];
    assert_eq!(row[..expected.len()], expected.map(cell), "{shown}");
    let wide = plane.kubectl_stdout(&["get", "ri", "-n", "columns", "-o", "wide"], "");
    assert!(wide.contains("PROGRESSING") && wide.contains("RUNNING HOOK"), "{wide}");
}

#[test]
fn what_the_definition_forbids_is_refused() {
    let plane = ControlPlane::shared();
    let good = object_in(plane, "refused");
    let check = |what: &str, change: fn(&mut Value)| {
        let mut object = good.clone();
        change(&mut object);
        let output = plane.kubectl(&["apply", "--server-side", "-f", "-"], &object.to_string());
        assert!(!output.status.success() && stderr(&output).contains(what), "{what}: {}", stderr(&output));
    };
    check("inventory[0].state: Unsupported value", |object| object["inventory"][0]["state"] = json!("Fine"));
    check("hooks[1].phase: Unsupported value", |object| object["hooks"][1]["phase"] = json!("Later"));
    check("hooks[0].weight: Required value", |object| {
        object["hooks"][0].as_object_mut().map(|hook| hook.remove("weight"));
    });
    check("inventory[0].namespace: Required value", |object| {
        object["inventory"][0].as_object_mut().map(|item| item.remove("namespace"));
    });
    let stored = plane.get(&["releaseinventories", "-n", "refused"]);
    assert_eq!(stored["items"], json!([]));
    plane.apply(&good.to_string());
}

#[test]
fn killed_servers_keep_their_objects() {
    let mut plane = ControlPlane::start();
    plane.install_crd();
    let object = object_in(&plane, "kept");
    plane.apply(&object.to_string());
    let requests = plane.audit().len();
    plane.kill_api_server();
    assert!(!plane.kubectl(&["get", "ns"], "").status.success());
    plane.restart_api_server();
    let stored = plane.get(&["releaseinventories", "-n", "kept", "checkout"]);
    assert_eq!(stored["inventory"], object["inventory"]);
    assert!(plane.audit().len() > requests, "the audit log was begun anew");

    plane.kill_etcd();
    let refused =
        plane.kubectl(&["apply", "--server-side", "--request-timeout", "2s", "-f", "-"], &config_map("kept", "lost"));
    assert!(!refused.status.success(), "{refused:?}");
    plane.restart_etcd();
    assert_eq!(plane.get(&["releaseinventories", "-n", "kept", "checkout"])["hooks"], object["hooks"]);
    plane.apply(&config_map("kept", "written"));

    plane.kill_api_server();
    plane.kill_etcd();
    plane.restart_etcd();
    plane.restart_api_server();
    assert_eq!(plane.get(&["configmap", "-n", "kept", "written"])["data"], json!({ "key": "written" }));
}

#[test]
fn rights_are_kept_to_and_counted() {
    let plane = ControlPlane::shared();
    let object = object_in(plane, "rights").to_string();
    let nobody = plane.service_account("rights", "nobody", Rights::None);
    let local = plane.service_account("rights", "local", Rights::Namespace(PROJECTOR));
    let everywhere = plane.service_account("elsewhere", "everywhere", Rights::Cluster(PROJECTOR));
    let apply = |kubeconfig: &Path, manager: &str, object: &str| {
        let args = ["apply", "--server-side", "--force-conflicts", "--field-manager", manager, "-f", "-"];
        plane.kubectl_as(kubeconfig, &args, object)
    };
    let refused = apply(&nobody, "nobody", &object);
    assert!(!refused.status.success() && stderr(&refused).contains("Forbidden"), "{}", stderr(&refused));
    for (kubeconfig, manager) in [(&local, "local"), (&local, "local"), (&everywhere, "everywhere")] {
        let applied = apply(kubeconfig, manager, &object);
        assert!(applied.status.success(), "{manager}: {}", stderr(&applied));
    }
    // A right in one namespace is none in another.
    let abroad = apply(&local, "abroad", &object_in(plane, "abroad").to_string());
    assert!(!abroad.status.success() && stderr(&abroad).contains("Forbidden"), "{}", stderr(&abroad));

    let log = plane.audit();
    let answers = |manager: &str| {
        let ours = audit::writes(&log).filter(|line| audit::field_manager(line) == manager);
        let answers =
            audit::count(ours, |line| (line["verb"].as_str().unwrap_or_default().to_owned(), audit::code(line)));
        answers.into_iter().map(|((verb, code), count)| format!("{count} {verb} {code}")).collect::<Vec<_>>()
    };
    assert_eq!(answers("nobody"), ["1 patch 403"]);
    assert_eq!(answers("local"), ["1 patch 200", "1 patch 201"]);
    assert_eq!(answers("everywhere"), ["1 patch 200"]);
    assert_eq!(answers("abroad"), ["1 patch 403"]);
    let users = audit::count(audit::writes(&log), audit::user);
    assert_eq!(users.get("system:serviceaccount:rights:local"), Some(&3), "{users:?}");
    let agents = audit::count(audit::writes(&log), audit::user_agent);
    assert!(agents.keys().all(|agent| agent.starts_with("kubectl/v1.")), "{agents:?}");
}

#[test]
fn namespaces_end_with_a_controller_manager() {
    let plane = ControlPlane::start();
    make_namespace(&plane, "ends");
    plane.apply(&config_map("ends", "inside"));
    plane.kubectl_stdout(&["delete", "ns", "ends", "--wait=false"], "");
    assert_eq!(plane.get(&["ns", "ends"])["status"]["phase"], "Terminating");
    plane.start_controller_manager();
    let gone = || stderr(&plane.kubectl(&["get", "ns", "ends"], "")).contains("NotFound");
    assert!(poll(SOON * 2, || gone().then_some(())).is_some(), "{}", plane.get(&["ns", "ends"]));
}

/// Runs itself as the process that is killed.
#[test]
fn a_control_plane_dies_with_the_process_that_started_it() {
    if let Some(file) = env::var_os(CHILD) {
        be_killed(Path::new(&file));
    }
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let file = folder.path().join("kubeconfig");
    let mut child = Command::new(env::current_exe().expect("tests are a file"))
        .args(["--exact", "a_control_plane_dies_with_the_process_that_started_it"])
        .env(CHILD, &file)
        .stdout(Stdio::null())
        .spawn()
        .expect("a test can be started");
    let told = || Some(fs::read_to_string(&file).ok()?.strip_suffix('\n')?.to_owned());
    let mut has_ended = || child.try_wait().is_ok_and(|status| status.is_some());
    let place = poll(SOON * 4, || told().map(Some).or_else(|| has_ended().then_some(None))).flatten();
    child.kill().expect("the process is ours");
    child.wait().expect("the process is ours");
    let place = place.expect("the child starts a control plane");
    let place = Path::new(&place).parent().expect("a file is in a folder");
    let is_of_it = |cmdline: &[u8]| String::from_utf8_lossy(cmdline).contains(&place.display().to_string());
    let lives = || {
        let processes = fs::read_dir("/proc").expect("this is Linux").filter_map(Result::ok);
        let mut cmdlines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
        place.exists() || cmdlines.any(|cmdline| is_of_it(&cmdline))
    };
    let gone = poll(SOON, || (!lives()).then_some(()));
    assert!(gone.is_some(), "something is left of {}", place.display());
}

/// Starts a control plane, tells where it is, and waits for the end.
fn be_killed(file: &Path) -> ! {
    let plane = ControlPlane::start();
    fs::write(file, format!("{}\n", plane.kubeconfig().display())).expect("the folder is there");
    loop {
        thread::park();
    }
}
