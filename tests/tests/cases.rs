//! Every scenario through the real binary, on all ways in: a file, a folder that nobody holds, a running `up`, NATS.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use decklog_tests::binary::{self, Up, root};
use decklog_tests::nats::{NatsServer, api};
use decklog_tests::scenario::{Scenario, decided};
use serde_json::Value;

/// Our own scenarios, and the contract's cases where they lie beside the checkout.
fn scenarios() -> Vec<Scenario> {
    let mut scenarios = Scenario::all(&root().join("tests/scenarios"));
    let shared = root().join("../shared/cases");
    if shared.is_dir() {
        scenarios.extend(Scenario::all(&shared));
    }
    scenarios
}

/// Runs a check over all scenarios, on two threads, and says all that are wrong.
fn each(scenarios: &[Scenario], check: impl Fn(&Scenario) -> Result<(), String> + Sync) {
    let (next, wrong) = (Mutex::new(scenarios.iter()), Mutex::new(Vec::new()));
    let work = || {
        while let Some(scenario) = { next.lock().expect("no check panics").next() } {
            if let Err(problem) = check(scenario) {
                wrong.lock().expect("no check panics").push(format!("{}: {problem}", scenario.events.display()));
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        scope.spawn(work);
    });
    let wrong = wrong.into_inner().expect("no check panics");
    assert!(wrong.is_empty(), "{} of {} are wrong:\n{}", wrong.len(), scenarios.len(), wrong.join("\n"));
}

/// `at` and `timeline` of a log against what the scenario says.
fn compare(scenario: &Scenario, log: &Path) -> Result<(), String> {
    let log = log.to_str().expect("paths are UTF-8");
    let at = binary::run(["at", "--from", log, "-n", "shop", "checkout", "-o", "yaml"]);
    let text = String::from_utf8_lossy(&at.stdout);
    match (&scenario.object, at.status.code()) {
        (None, Some(1)) if text.is_empty() => {}
        (Some(object), Some(0)) => {
            let got: Value = serde_saphyr::from_str(&text).map_err(|error| format!("{error}: {text}"))?;
            same("the object", &decided(object), &decided(&got))?;
        }
        (_, code) => return Err(format!("`at` ends with {code:?}: {text}{}", String::from_utf8_lossy(&at.stderr))),
    }
    let timeline = binary::run(["timeline", "--from", log, "-n", "shop", "checkout", "-o", "json"]);
    let entries: Vec<Value> = serde_json::from_slice(&timeline.stdout).map_err(|error| error.to_string())?;
    let word = |entry: &Value| entry["reason"].as_str().or(entry["outcome"].as_str()).unwrap_or_default().to_owned();
    same("the outcomes", &scenario.outcomes, &entries.iter().map(word).collect::<Vec<_>>())
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, expected: &T, got: &T) -> Result<(), String> {
    if expected == got { Ok(()) } else { Err(format!("{what}\n  expected {expected:?}\n  got      {got:?}")) }
}

/// Emits the events of a scenario. A log refuses what names no release or has no id, and takes an id only once:
/// then it holds another history than the file, and `None` says so.
fn emit(scenario: &Scenario, to: &Path) -> Option<()> {
    let to = to.to_str().expect("paths are UTF-8");
    let events = scenario.events.to_str().expect("paths are UTF-8");
    let output = binary::run(["emit", "--unchecked", "-o", "json", "--to", to, events]);
    let answers = String::from_utf8_lossy(&output.stdout);
    let is_stored = |line: &str| {
        let answer: Value = serde_json::from_str(line).expect("answers are JSON");
        answer["status"] == "stored"
    };
    let lines = std::fs::read_to_string(&scenario.events).expect("the events can be read").lines().count();
    assert_eq!(answers.lines().count(), lines, "one answer an event: {}", String::from_utf8_lossy(&output.stderr));
    answers.lines().all(is_stored).then_some(())
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let data = folder.path().join("data");
    (folder, data)
}

#[test]
fn from_a_file() {
    each(&scenarios(), |scenario| compare(scenario, &scenario.events));
}

#[test]
fn through_a_folder_that_nobody_holds() {
    let compared = Mutex::new(0);
    each(&scenarios(), |scenario| {
        let (_guard, data) = folder();
        if emit(scenario, &data).is_none() {
            return Ok(());
        }
        *compared.lock().expect("no check panics") += 1;
        compare(scenario, &data)
    });
    let compared = compared.into_inner().expect("no check panics");
    assert!(compared > 150, "only {compared} scenarios were stored whole");
}

/// The contract's cases, or as many of our own where those are not at hand: starting an engine takes its time.
#[test]
fn through_a_running_up() {
    let mut scenarios = scenarios();
    let is_shared = |scenario: &Scenario| scenario.events.components().any(|part| part.as_os_str() == "shared");
    if scenarios.iter().any(is_shared) {
        scenarios.retain(is_shared);
    } else {
        scenarios.retain(|scenario| scenario.name.len().is_multiple_of(7));
    }
    each(&scenarios, |scenario| {
        let (_guard, data) = folder();
        let mut up = Up::start(&data);
        let is_whole = emit(scenario, &data).is_some();
        if is_whole {
            compare(scenario, &data)?;
            check_files(scenario, &data)?;
        }
        let (code, rest) = up.stop("TERM");
        same("the exit code of `up`", &Some(0), &code).map_err(|problem| format!("{problem}: {rest}"))?;
        if is_whole { compare(scenario, &data) } else { Ok(()) }
    });
}

/// Each scenario on a stream of its own, in an account of its own.
#[test]
fn through_nats() {
    let scenarios = scenarios();
    let account =
        |number| format!("A{number}: {{ jetstream: enabled, users: [{{ user: u{number}, password: word }}] }}");
    let accounts: Vec<_> = (0..scenarios.len()).map(account).collect();
    let server = NatsServer::builder().conf(&format!("accounts {{ {} }}", accounts.join("\n"))).start();
    let (next, compared) = (AtomicUsize::new(0), AtomicUsize::new(0));
    each(&scenarios, |scenario| {
        let servers = server.url_of(&format!("u{}", next.fetch_add(1, Ordering::Relaxed)), "word");
        api::init(&servers, 1);
        let log = Path::new(&servers);
        if emit(scenario, log).is_none() {
            return Ok(());
        }
        compared.fetch_add(1, Ordering::Relaxed);
        compare(scenario, log)
    });
    let compared = compared.into_inner();
    assert!(compared > 150, "only {compared} scenarios were stored whole");
}

/// The projector's YAML file is the object.
fn check_files(scenario: &Scenario, data: &Path) -> Result<(), String> {
    let path = data.join("inventory/default/shop/checkout.yaml");
    match (&scenario.object, std::fs::read_to_string(&path)) {
        (None, Err(_)) => Ok(()),
        (Some(object), Ok(text)) => {
            let got: Value = serde_saphyr::from_str(&text).map_err(|error| error.to_string())?;
            same("the file", &decided(object), &decided(&got))
        }
        (_, text) => Err(format!("{} holds {text:?}", path.display())),
    }
}
