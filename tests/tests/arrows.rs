//! The arrows between the packages, and what the three inner ones may pull in, as Cargo resolves them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde::Deserialize;
use serde_json::json;

/// Who names whom, exactly. A new arrow is a decision: draw it in ARCHITECTURE.md too.
const ARROWS: &[(&str, &str)] = &[
    ("decklog-schemas", ""),
    ("decklog-engine", "decklog-schemas"),
    ("decklog-projections", "decklog-engine decklog-schemas"),
    ("decklog-nats", "decklog-engine decklog-schemas"),
    ("decklog-kube", "decklog-engine decklog-projections decklog-schemas"),
    ("decklog-sled", "decklog-engine decklog-schemas"),
    ("decklog-http", "decklog-engine decklog-projections decklog-schemas"),
    (WIRING, "decklog-engine decklog-http decklog-kube decklog-nats decklog-projections decklog-schemas decklog-sled"),
];

/// The one package that may name adapters, besides the tests, which may name anything.
const WIRING: &str = "decklog";
const TESTS: &str = "decklog-tests";

/// The crates that decklog-schemas pulls in, whoever names them.
const SCHEMAS_USE: &str = "
    ascii base64 dyn-clone itoa jiff jiff-core memchr num-traits percent-encoding ref-cast rmp rmp-serde
    schemars serde serde_core serde_json serde_path_to_error thiserror zmij";

/// What decklog-engine pulls in besides.
const ENGINE_USES: &str = "
    block-buffer cfg-if cpufeatures crypto-common digest generic-array once_cell pin-project-lite
    sha2 tokio tracing tracing-core typenum";

/// What decklog-projections pulls in besides.
const PROJECTIONS_USE: &str = "foldhash hashbrown";

/// tokio is a scheduler and a clock for the engine; files, sockets, processes and signals are for
/// adapters.
const ENGINE_TOKIO_FEATURES: &str = "macros rt sync time";

/// Crates that touch the outside world: none of them may ever be put on a list above.
const IO_CRATES: &str = "
    async-nats axum clap hyper hyper-util indicatif k8s-openapi kube mio native-tls notify openssl
    polling reqwest rustix rustls signal-hook-registry sled socket2 tempfile tonic tower
    tracing-subscriber ureq walkdir";

/// On other systems the same manifests pull in a few crates less: there a list is an upper bound.
const LISTS_ARE_EXACT: bool = cfg!(all(target_os = "linux", target_arch = "x86_64"));

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: String,
    dependencies: Vec<Dependency>,
}

/// A dependency as a manifest declares it, with what it inherits from the workspace.
#[derive(Deserialize)]
struct Dependency {
    name: String,
    /// Absent for a normal one, else `dev` or `build`.
    kind: Option<String>,
    /// Where it lies, if it is in the workspace.
    path: Option<String>,
    features: Vec<String>,
}

#[test]
fn arrows_are_the_drawn_ones() {
    let advice = "take the dependency back, or draw it in ARROWS and in ARCHITECTURE.md";
    settle(differences(&arrows(&packages()), &drawn()), advice);
}

#[test]
fn no_adapter_names_another() {
    let advice = "wire them together in adapters/cli";
    settle(adapters_that_name_adapters(&packages()), advice);
}

#[test]
fn schemas_pull_in_no_io() {
    check_inside("decklog-schemas", &[SCHEMAS_USE]);
}

#[test]
fn engine_pulls_in_no_io() {
    check_inside("decklog-engine", &[SCHEMAS_USE, ENGINE_USES]);
}

#[test]
fn projections_pull_in_no_io() {
    check_inside("decklog-projections", &[SCHEMAS_USE, ENGINE_USES, PROJECTIONS_USE]);
}

#[test]
fn the_lists_name_no_io_crate() {
    let listed = names(&[SCHEMAS_USE, ENGINE_USES, PROJECTIONS_USE]);
    let both = listed.intersection(&names(&[IO_CRATES])).cloned().collect();
    settle(both, "these touch the outside world: use them in an adapter");
}

#[test]
fn engine_asks_tokio_for_no_io() {
    let packages = packages();
    let engine = packages.iter().find(|package| package.name == "decklog-engine");
    let asked = features(engine.expect("the engine is a member"), "tokio");
    let advice = "name tokio's features in each member, and none in the root Cargo.toml";
    settle(minus(&asked, &names(&[ENGINE_TOKIO_FEATURES])), advice);
}

/// Fails unless `package` pulls in what is `listed` and nothing else.
#[track_caller]
fn check_inside(package: &str, listed: &[&str]) {
    let (used, listed) = (pulled_in(package), names(listed));
    let who = format!("`cargo tree -p {package} -e normal,no-proc-macro -i NAME` says who asks");
    let advice = format!("{who}; drop it, or add it to the lists in this file if it does no I/O");
    settle(minus(&used, &listed), &advice);
    if LISTS_ARE_EXACT {
        settle(minus(&listed, &used), "nothing asks for these any more: take them off the lists");
    }
}

/// Fails with all `problems`, and with what to do about them.
#[track_caller]
fn settle(problems: Vec<String>, advice: &str) {
    let place = file!();
    let list = problems.join("\n");
    assert!(problems.is_empty(), "\n{list}\nWhat to do: {advice} ({place}).\n");
}

// === what is compared ===

type Names = BTreeSet<String>;
type Arrows = BTreeMap<String, Names>;

fn drawn() -> Arrows {
    ARROWS.iter().map(|(from, to)| ((*from).to_owned(), names(&[to]))).collect()
}

/// The arrows of the program itself, as declared; tests may reach further.
fn arrows(packages: &[Package]) -> Arrows {
    let inside = |package: &Package| {
        let program = package.dependencies.iter().filter(|d| d.kind.as_deref() != Some("dev"));
        program.filter(|d| d.path.is_some()).map(|d| d.name.clone()).collect()
    };
    let packages = packages.iter().filter(|package| package.name != TESTS);
    packages.map(|package| (package.name.clone(), inside(package))).collect()
}

fn differences(declared: &Arrows, drawn: &Arrows) -> Vec<String> {
    let (members, known) = (declared.keys().cloned().collect(), drawn.keys().cloned().collect());
    let new = minus(&members, &known).into_iter().map(|name| format!("{name} is not drawn"));
    let gone = minus(&known, &members).into_iter().map(|name| format!("{name} is drawn, but gone"));
    let mut problems: Vec<String> = new.chain(gone).collect();
    for (from, to) in declared {
        let drawn = drawn.get(from).cloned().unwrap_or_default();
        let (beyond, missing) = (minus(to, &drawn), minus(&drawn, to));
        problems.extend(beyond.iter().map(|to| format!("{from} -> {to} is not drawn")));
        problems.extend(missing.iter().map(|to| format!("{from} -> {to} is drawn, but gone")));
    }
    problems
}

/// Of every kind: an adapter is tested against the real thing, not against its neighbour.
fn adapters_that_name_adapters(packages: &[Package]) -> Vec<String> {
    let adapters = packages.iter().filter(|p| p.manifest_path.contains("/adapters/"));
    let names: Names = adapters.clone().map(|adapter| adapter.name.clone()).collect();
    let bound = adapters.filter(|adapter| adapter.name != WIRING);
    let pairs = bound.flat_map(|from| from.dependencies.iter().map(move |to| (from, to)));
    let wrong = pairs.filter(|(_, to)| names.contains(&to.name));
    wrong.map(|(from, to)| format!("{} names {}", from.name, to.name)).collect()
}

fn features(package: &Package, dependency: &str) -> Names {
    let declared = package.dependencies.iter().filter(|d| d.name == dependency);
    let normal = declared.filter(|d| d.kind.is_none());
    normal.flat_map(|d| d.features.iter().cloned()).collect()
}

fn names(lists: &[&str]) -> Names {
    lists.iter().flat_map(|list| list.split_whitespace()).map(str::to_owned).collect()
}

fn minus(these: &Names, those: &Names) -> Vec<String> {
    these.difference(those).cloned().collect()
}

// === what Cargo says ===

fn packages() -> Vec<Package> {
    let text = cargo(&["metadata", "--format-version", "1", "--no-deps"]);
    let metadata: Metadata = serde_json::from_str(&text).expect("cargo prints JSON");
    metadata.packages
}

/// Every crate that ends up in a program because of `package`: a macro runs in the compiler.
///
/// `cargo tree` resolves the features for this package alone. `cargo metadata` mixes in those that
/// adapters ask for, and would show the engine with tokio's sockets.
fn pulled_in(package: &str) -> Names {
    let edges = ["--edges", "normal,no-proc-macro", "--prefix", "none"];
    let tree = cargo(&[&["tree", "--package", package], &edges[..]].concat());
    let crates = tree.lines().filter_map(|line| line.split_whitespace().next());
    crates.filter(|name| !name.starts_with("decklog")).map(str::to_owned).collect()
}

fn cargo(arguments: &[&str]) -> String {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(env!("CARGO"));
    command.args(arguments).args(["--offline", "--locked"]).current_dir(tests);
    let run = command.output().expect("cargo runs, as it runs this test");
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "cargo {arguments:?} failed: {errors}");
    String::from_utf8(run.stdout).expect("cargo prints UTF-8")
}

// === proofs ===

fn package(name: &str, folder: &str, dependencies: serde_json::Value) -> Package {
    let manifest_path = format!("/workspace/{folder}/Cargo.toml");
    let dependencies = serde_json::from_value(dependencies).expect("as cargo prints them");
    Package { name: name.to_owned(), manifest_path, dependencies }
}

fn small_workspace() -> Vec<Package> {
    let to = |name, kind: Option<&str>| json!({"name": name, "kind": kind, "path": "/workspace", "features": []});
    let serde = json!({"name": "serde", "kind": null, "features": ["derive"]});
    vec![
        package("a", "adapters/a", json!([to("core", None), to("b", Some("dev")), serde])),
        package("b", "adapters/b", json!([])),
        package("core", "core", json!([])),
        package(WIRING, "adapters/cli", json!([to("a", None), to("b", Some("build"))])),
        package(TESTS, "tests", json!([to("a", None)])),
    ]
}

#[test]
fn the_arrows_of_the_program_are_read() {
    let arrows = arrows(&small_workspace());
    let expected = [("a", "core"), ("b", ""), ("core", ""), (WIRING, "a b")];
    assert_eq!(arrows, expected.map(|(from, to)| (from.to_owned(), names(&[to]))).into());
}

#[test]
fn an_arrow_that_differs_is_found_in_both_directions() {
    let drawn = Arrows::from([("a".to_owned(), names(&["b c"])), ("old".to_owned(), Names::new())]);
    let real = Arrows::from([("a".to_owned(), names(&["b d"])), ("new".to_owned(), Names::new())]);
    assert_eq!(differences(&drawn, &drawn), [""; 0]);
    let expected = ["new is not drawn", "old is drawn, but gone", "a -> d is not drawn", "a -> c is drawn, but gone"];
    assert_eq!(differences(&real, &drawn), expected);
}

#[test]
fn an_adapter_that_names_another_is_found() {
    assert_eq!(adapters_that_name_adapters(&small_workspace()), ["a names b"]);
}

#[test]
fn the_features_that_a_manifest_asks_for_are_read() {
    assert_eq!(features(&small_workspace()[0], "serde"), names(&["derive"]));
}

#[test]
fn what_an_adapter_pulls_in_is_seen() {
    let used = pulled_in("decklog-sled");
    assert!(used.contains("sled") && used.contains("parking_lot"), "{used:?}");
}
