//! Rules for the manifests: versions and lints are spelled once, in the workspace's own.

use toml::{Table, Value};

use crate::findings::{Finding, expect, forbid};
use crate::repository::{File, manifests};

/// What a member takes over from `[workspace.package]`.
const PACKAGE_KEYS: [&str; 5] = ["version", "edition", "rust-version", "license", "publish"];

const DEPENDENCY_KINDS: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

#[test]
fn members_use_the_lints_of_the_workspace() {
    let advice = "write `workspace = true` under `[lints]`; an exception is an attribute at its place, with a reason";
    forbid(manifests(), own_lints, advice);
}

#[test]
fn members_use_the_versions_of_the_workspace() {
    let advice = "declare it in the root Cargo.toml, and write `workspace = true` here";
    forbid(manifests(), own_versions, advice);
}

// === checkers ===

fn own_lints(file: &File) -> Vec<Finding> {
    if parse(file).get("lints").is_some_and(inherits) {
        return Vec::new();
    }
    vec![Finding::new(&file.path, 1, "does not use the lints of the workspace")]
}

fn own_versions(file: &File) -> Vec<Finding> {
    let manifest = parse(file);
    let package = manifest.get("package");
    let key = |key| package.and_then(|package| package.get(key));
    let keys = PACKAGE_KEYS.iter().filter(|name| !key(**name).is_some_and(inherits)).copied();
    let dependencies = dependency_tables(&manifest).into_iter().flatten();
    let dependencies = dependencies.filter(|(_, value)| !inherits(value));
    keys.chain(dependencies.map(|(name, _)| name.as_str())).map(|name| own(file, name)).collect()
}

fn own(file: &File, name: &str) -> Finding {
    let table = format!(".{name}]");
    let mut lines = file.lines().filter(|(_, line)| line.starts_with(name) || line.ends_with(&table));
    let line = lines.next().map_or(1, |(number, _)| number);
    Finding::new(&file.path, line, format!("`{name}` is not the workspace's"))
}

/// Every table of dependencies, for all targets and for one.
fn dependency_tables(manifest: &Table) -> Vec<&Table> {
    let targets = manifest.get("target").and_then(Value::as_table);
    let targets = targets.into_iter().flat_map(Table::values).filter_map(Value::as_table);
    let places = targets.chain([manifest]);
    let tables = places.flat_map(|place| DEPENDENCY_KINDS.map(|kind| place.get(kind)));
    tables.flatten().filter_map(Value::as_table).collect()
}

fn inherits(value: &Value) -> bool {
    value.get("workspace").and_then(Value::as_bool) == Some(true)
}

fn parse(file: &File) -> Table {
    file.text.parse().unwrap_or_else(|error| panic!("{} is not TOML: {error}", file.path))
}

// === proofs ===

fn manifest(text: &str) -> File {
    File::new("a/Cargo.toml", text)
}

#[test]
fn lints_of_its_own_are_found() {
    expect(&own_lints(&manifest("[lints]\nworkspace = true\n")), &[]);
    for bad in ["", "[lints]\nworkspace = false\n", "[lints.rust]\nmissing_docs = \"warn\"\n"] {
        expect(&own_lints(&manifest(bad)), &["a/Cargo.toml:1"]);
    }
}

#[test]
fn versions_of_its_own_are_found() {
    let keys = PACKAGE_KEYS.map(|key| format!("{key}.workspace = true\n")).concat();
    let good = format!("[package]\n{keys}[dependencies]\na.workspace = true\n");
    expect(&own_versions(&manifest(&good)), &[]);
    for (from, to, line) in [
        ("edition.workspace = true", "edition = \"2024\"", 3),
        ("a.workspace = true", "a = \"1\"", 8),
        ("a.workspace = true", "a = { path = \"../a\", version = \"1\" }", 8),
        ("[dependencies]\na.workspace = true", "[dependencies.a]\nversion = \"1\"", 7),
        ("[dependencies]\na.workspace", "[build-dependencies]\na.optional", 8),
        ("[dependencies]\na.workspace", "[target.'cfg(unix)'.dev-dependencies]\na.optional", 8),
    ] {
        let found = own_versions(&manifest(&good.replace(from, to)));
        expect(&found, &[&format!("a/Cargo.toml:{line}")]);
    }
}
