//! `decklog project` between a real NATS server and a real control plane, and whether the cluster says what the log says.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use decklog_schemas::inventory::{GROUP, PLURAL};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::{NamedTempFile, TempDir};

use crate::binary::{self, Up};
use crate::kube::{ControlPlane, audit};
use crate::process::{Process, poll};
use crate::scenario::decided;

/// How long it may take until the cluster says what the log says.
const LIMIT: Duration = Duration::from_secs(120);

/// What makes a projector; its checkpoint stays when it is started again.
#[derive(Debug)]
pub struct Deployment {
    servers: String,
    kubeconfig: PathBuf,
    data: TempDir,
    args: Vec<OsString>,
}

/// A projector that may be paused, killed, or never get ready; killed with -9 when dropped.
#[derive(Debug)]
pub struct Projector {
    process: Process,
    stderr: NamedTempFile,
}

/// Who owns which fields, as the contract has it: list, and fields besides the list's keys.
const MANAGERS: [(&str, &str, &[&str]); 4] = [
    ("convoy-release-inventory", "inventory", &["version", "renderRef", "wave", "uid"]),
    ("convoy-health-inventory", "inventory", &["state", "assessedRenderRef", "firstUnhealthy", "message"]),
    (
        "convoy-release-hooks",
        "hooks",
        &[
            "group",
            "kind",
            "version",
            "renderRef",
            "weight",
            "workloadname",
            "workloadnamespace",
            "timeout",
            "createdAt",
        ],
    ),
    ("convoy-hook-status", "hooks", &["state", "finishedAt", "message"]),
];

impl Deployment {
    /// A projector of a log on NATS, with everything allowed and its Lease in a namespace of its own.
    #[must_use]
    pub fn new(servers: &str, plane: &ControlPlane, args: &[&str]) -> Self {
        Self::as_user(servers, plane, &plane.kubeconfig(), args)
    }

    /// The same, as the user of a kubeconfig.
    #[must_use]
    pub fn as_user(servers: &str, plane: &ControlPlane, kubeconfig: &Path, args: &[&str]) -> Self {
        make_namespace(plane, "decklog");
        Self {
            servers: servers.to_owned(),
            kubeconfig: kubeconfig.to_owned(),
            data: tempfile::tempdir().expect("a temporary folder can be made"),
            args: args.iter().map(OsString::from).collect(),
        }
    }

    /// The command line.
    #[must_use]
    pub fn command_line(&self) -> Vec<OsString> {
        let fixed = ["project", "--from", &self.servers, "--lease-namespace", "decklog"].map(OsString::from);
        let [kubeconfig, data] = [("--kubeconfig", &*self.kubeconfig), ("--data", self.data.path())]
            .map(|(flag, path)| [OsString::from(flag), path.as_os_str().to_owned()]);
        [fixed.to_vec(), kubeconfig.to_vec(), data.to_vec(), self.args.clone()].concat()
    }

    /// Starts it; it has caught up when this returns.
    #[must_use]
    pub fn start(&self) -> Up {
        Up::of(self.command_line())
    }

    /// Starts it, and waits for nothing.
    #[must_use]
    pub fn launch(&self) -> Projector {
        let stderr = NamedTempFile::new().expect("a temporary file can be made");
        let mut command = binary::command(self.command_line());
        command.stderr(stderr.reopen().expect("the file is ours"));
        Projector { process: Process::spawn(command), stderr }
    }

    /// Runs it to its end, which it must come to by itself.
    #[must_use]
    pub fn run(&self) -> std::process::Output {
        binary::run(self.command_line())
    }
}

impl Projector {
    /// What it has said on standard error.
    #[must_use]
    pub fn said(&self) -> String {
        std::fs::read_to_string(self.stderr.path()).expect("standard error is UTF-8")
    }

    /// Waits until it has said something.
    pub fn wait_for(&mut self, text: &str) {
        self.wait_for_after(0, text);
    }

    /// The same, of what it says after the first so many bytes.
    pub fn wait_for_after(&mut self, begin: usize, text: &str) {
        let has_said = |said: &str| said.get(begin..).is_some_and(|said| said.contains(text));
        let said = poll(LIMIT, || (has_said(&self.said()) || self.process.ended().is_some()).then_some(()));
        assert!(said.is_some() && has_said(&self.said()), "it does not say {text:?}: {}", self.said());
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Kills it with -9.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Waits until it ends by itself, and returns its exit code.
    pub fn code(&mut self) -> Option<i32> {
        let ended = self.process.wait(LIMIT);
        ended.unwrap_or_else(|| panic!("it does not end: {}", self.said())).code()
    }

    /// Asks it to end with SIGTERM, and returns its exit code.
    pub fn stop(&mut self) -> Option<i32> {
        self.process.stop().code()
    }
}

/// Makes a namespace.
pub fn make_namespace(plane: &ControlPlane, name: &str) {
    plane.apply(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }).to_string());
}

/// Emits events, one a line, as they are.
pub fn emit(servers: &str, lines: &str) {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let file = folder.path().join("events.jsonl");
    std::fs::write(&file, lines).expect("the folder is ours");
    let output = binary::run(["emit", "--unchecked", "--to", servers, &file.display().to_string()]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 3)), "{}: {said}", output.status);
}

/// What the log says, by namespace and name; `selection` is what `at` takes, such as `-A`.
#[must_use]
pub fn of_log(servers: &str, selection: &[&str]) -> BTreeMap<String, Value> {
    let args = [&["at", "--from", servers, "-o", "json"], selection].concat();
    let output = binary::run(args);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        matches!(output.status.code(), Some(0 | 1)),
        "{}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    objects(&serde_json::from_str(&text).unwrap_or_default(), decided)
}

/// What the cluster says.
#[must_use]
pub fn of_cluster(plane: &ControlPlane) -> BTreeMap<String, Value> {
    objects(&stored(plane), decided)
}

/// The objects of the cluster, whole.
#[must_use]
pub fn stored(plane: &ControlPlane) -> Value {
    plane.get(&["--show-managed-fields", "-A", &format!("{PLURAL}.{GROUP}")])
}

/// Waits until the cluster says what the log says, and shows the difference if it never does. Who owns what must be
/// right then.
pub fn settle(plane: &ControlPlane, servers: &str) {
    settle_without(plane, servers, &[]);
}

/// The same for all but these releases, as `namespace/name`, of which the cluster may say what it likes.
pub fn settle_without(plane: &ControlPlane, servers: &str, others: &[&str]) {
    let mut expected = of_log(servers, &["-A", "--cluster", "default"]);
    expected.retain(|release, _| !others.contains(&&**release));
    let mut seen = BTreeMap::new();
    let settled = poll(LIMIT, || {
        seen = of_cluster(plane);
        seen.retain(|release, _| !others.contains(&&**release));
        (seen == expected).then_some(())
    });
    let differ = expected.keys().chain(seen.keys()).filter(|key| expected.get(*key) != seen.get(*key));
    let shown = |key: &String| format!("{key}\n  log     {:?}\n  cluster {:?}", expected.get(key), seen.get(key));
    assert!(settled.is_some(), "{}", differ.map(shown).collect::<Vec<_>>().join("\n"));
    // An object may be whole before the last manager has let go of what another one has now.
    let wrong = || stored(plane)["items"].as_array().into_iter().flatten().find_map(wrong_owners);
    let right = poll(LIMIT, || wrong().is_none().then_some(()));
    assert!(right.is_some(), "{}", wrong().unwrap_or_default());
}

/// What is wrong with who owns what in an object, if anything is: the four managers, each with exactly its fields of
/// the rows that have them, and with the rows' keys.
#[must_use]
pub fn wrong_owners(object: &Value) -> Option<String> {
    let name = &object["metadata"]["name"];
    let managed = object["metadata"]["managedFields"].as_array()?;
    for entry in managed {
        let manager = entry["manager"].as_str().unwrap_or_default();
        let ours = MANAGERS.iter().find(|(name, ..)| *name == manager);
        let is_ours = |field: &str| entry["fieldsV1"].get(field).is_some();
        match ours {
            Some(_) if entry["operation"] != "Apply" => return Some(format!("{name}: {entry}")),
            None if is_ours("f:inventory") || is_ours("f:hooks") => return Some(format!("{name}: {entry}")),
            _ => {}
        }
    }
    MANAGERS.iter().find_map(|(manager, list, fields)| {
        let entry = managed.iter().find(|entry| entry["manager"] == *manager);
        let owned = entry.map(|entry| &entry["fieldsV1"]).cloned().unwrap_or_default();
        let other = if *list == "hooks" { "f:inventory" } else { "f:hooks" };
        let expected = expected_rows(&object[*list], list, fields);
        let rows = owned[format!("f:{list}")].as_object().cloned().unwrap_or_default();
        let rows = rows.into_iter().filter(|(path, _)| path != ".");
        let rows: BTreeMap<_, _> = rows.map(|(path, row)| (respelled(&path), row)).collect();
        let is_right = rows == expected && owned.get(other).is_none();
        (!is_right).then(|| format!("{name}: {manager} owns\n  {rows:?}\n  and should own\n  {expected:?}"))
    })
}

/// The key of a row as it is spelled here: the API server escapes other characters.
fn respelled(path: &str) -> String {
    let key = path.strip_prefix("k:").and_then(|key| serde_json::from_str::<BTreeMap<String, Value>>(key).ok());
    key.map_or(path.to_owned(), |key| format!("k:{}", json!(key)))
}

/// The rows of a list that have one of these fields, as FieldsV1.
fn expected_rows(rows: &Value, list: &str, fields: &[&str]) -> BTreeMap<String, Value> {
    let keys: &[&str] = if list == "hooks" { &["name", "phase"] } else { &["group", "kind", "name", "namespace"] };
    let row = |row: &Value| {
        let has = |field: &&&str| row.get(**field).is_some();
        let own: Vec<_> = fields.iter().filter(has).collect();
        if own.is_empty() {
            return None;
        }
        let path: BTreeMap<_, _> = keys.iter().map(|key| (*key, &row[*key])).collect();
        let mut members = serde_json::Map::from_iter([(".".to_owned(), json!({}))]);
        members.extend(keys.iter().chain(own).map(|field| (format!("f:{field}"), json!({}))));
        Some((format!("k:{}", serde_json::to_string(&path).expect("strings are JSON")), Value::Object(members)))
    };
    rows.as_array().into_iter().flatten().filter_map(row).collect()
}

/// Requests of decklog that the API server refused with a status that must never leave a projector: 422, 500, and 409
/// unless the object was changed by somebody else, of which a test allows so many.
pub fn check_audit(plane: &ControlPlane, conflicts: usize) {
    let log = plane.audit();
    let ours: Vec<_> = audit::writes(&log).filter(|line| audit::user_agent(line).starts_with("decklog/")).collect();
    let answers = audit::count(ours.iter().copied(), audit::code);
    let bad = |code: u64| answers.get(&code).copied().unwrap_or_default();
    let shown = || {
        let bad = ours.iter().filter(|line| audit::code(line) >= 400);
        bad.map(|line| format!("{} {}", line["requestURI"], line["responseStatus"])).collect::<Vec<_>>().join("\n")
    };
    assert!(bad(422) == 0 && bad(500) == 0 && bad(409) <= conflicts, "{answers:?}\n{}", shown());
}

/// What the API server answers without its store is no fault of a request. All else is as in [`check_audit`]: a store
/// that is put back to a backup has changed every object that was changed since.
pub fn check_audit_around_etcd(plane: &ControlPlane, conflicts: usize) {
    let log = plane.audit();
    let ours = audit::writes(&log).filter(|line| audit::user_agent(line).starts_with("decklog/"));
    let refused: Vec<_> = ours.filter(|line| matches!(audit::code(line), 409 | 422 | 500)).collect();
    let says = |line: &Value| line["responseStatus"].to_string();
    let of_the_store = |line: &Value| {
        let causes = ["etcdserver", "rpc error: code = Unavailable"];
        audit::code(line) == 500 && causes.iter().any(|cause| says(line).contains(cause))
    };
    let (changed, bad): (Vec<_>, Vec<_>) =
        refused.iter().filter(|line| !of_the_store(line)).partition(|line| audit::code(line) == 409);
    let shown = |lines: Vec<&&Value>| lines.into_iter().map(|line| says(line)).collect::<Vec<_>>();
    assert!(changed.len() <= conflicts, "{:#?}", shown(changed));
    assert!(bad.is_empty(), "{:#?}", shown(bad));
}

/// How many applies decklog has sent so far.
#[must_use]
pub fn applies(plane: &ControlPlane) -> usize {
    let log = plane.audit();
    audit::writes(&log).filter(|line| audit::user_agent(line).starts_with("decklog/")).count()
}

fn objects(list: &Value, of: fn(&Value) -> Value) -> BTreeMap<String, Value> {
    let items = list["items"].as_array().cloned().unwrap_or_else(|| match list {
        Value::Array(items) => items.clone(),
        Value::Object(_) => vec![list.clone()],
        _ => Vec::new(),
    });
    let key = |object: &Value| {
        let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
        format!("{}/{}", text("namespace"), text("name"))
    };
    items.iter().map(|object| (key(object), of(object))).collect()
}
