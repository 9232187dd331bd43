//! Rules for what is in the files, for their names, and for where they lie.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::findings::{Finding, expect, forbid, settle};
use crate::repository::{File, crate_roots, paths, sources, written};

/// What may stand at the top level, and nothing else.
const TOP_LEVEL: &str = "
    .ci .gitignore ARCHITECTURE.md CHANGELOG.md CONTRIBUTING.md Cargo.lock Cargo.toml LICENSE
    README.md adapters clippy.toml deny.toml engine projections rustfmt.toml schemas tests";

/// Names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] = &["common", "helper", "helpers", "misc", "util", "utils"];

/// What marks Rust code as unfinished, in halves, so that this file passes its own rule.
const UNFINISHED_CODE: &[&str] = &[
    concat!("to", "do!"),
    concat!("unimple", "mented!"),
    concat!("db", "g!"),
    concat!("#[ig", "nore"),
    concat!("```ig", "nore"),
];

/// What marks any text as unfinished.
const UNFINISHED_TEXT: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// The layers that decide and never wait.
const SYNCHRONOUS: &[&str] = &["schemas/src/", "projections/src/"];

#[test]
fn every_source_is_compiled() {
    let advice = "declare it with `mod name;` at the left margin of its parent, or delete it";
    settle(orphans(sources(), crate_roots()), advice);
}

#[test]
fn every_source_says_what_it_is_for() {
    forbid(sources(), wrong_opening, "begin the file with `//! ` and one sentence");
}

#[test]
fn no_source_is_called_mod() {
    let advice = "name the file after its module: `name.rs` beside the folder `name`";
    forbid(sources(), mod_file, advice);
}

#[test]
fn names_say_what_is_inside() {
    forbid(sources(), empty_names, "name it after what it holds");
}

#[test]
fn nothing_is_left_unfinished() {
    forbid(written(), unfinished, "finish it, or take it out");
}

#[test]
fn what_decides_does_not_wait() {
    let advice = "let the engine or an adapter wait, and pass the value in";
    forbid(sources(), waits, advice);
}

#[test]
fn the_top_level_holds_only_what_is_permitted() {
    let advice = "move it into the package it belongs to; TOP_LEVEL says what may stand there";
    settle(strangers(&paths()), advice);
}

// === checkers ===

/// The files that no crate root reaches through `mod name;`.
fn orphans<'a>(files: impl Iterator<Item = &'a File>, roots: Vec<String>) -> Vec<Finding> {
    let mut unseen: BTreeMap<&str, &File> = files.map(|f| (f.path.as_str(), f)).collect();
    let beside = |root: &str| Path::new(root).parent().map(Path::to_path_buf).unwrap_or_default();
    let roots = roots.into_iter().map(|root| (beside(&root), root));
    let mut open: Vec<(PathBuf, String)> = roots.collect();
    while let Some((folder, path)) = open.pop() {
        let Some(file) = unseen.remove(path.as_str()) else {
            continue;
        };
        for name in file.text.lines().filter_map(declared_file) {
            let path = folder.join(name).with_extension("rs");
            open.push((folder.join(name), path.to_string_lossy().into_owned()));
        }
    }
    unseen.keys().map(|path| Finding::new(path, 1, "no crate compiles this file")).collect()
}

/// The name in a `mod name;` at the left margin.
fn declared_file(line: &str) -> Option<&str> {
    module_name(line.strip_suffix(';')?)
}

/// The name in `mod name` or `pub(crate) mod name`.
fn module_name(declaration: &str) -> Option<&str> {
    let (visibility, name) = declaration.rsplit_once("mod ")?;
    (visibility.is_empty() || visibility.starts_with("pub")).then_some(name)
}

fn wrong_opening(file: &File) -> Vec<Finding> {
    let first = file.text.lines().next().unwrap_or_default();
    let says = first.strip_prefix("//! ").is_some_and(|sentence| !sentence.trim().is_empty());
    found(!says, file, "does not say what it is for")
}

fn mod_file(file: &File) -> Vec<Finding> {
    found(file.path.ends_with("/mod.rs"), file, "is called mod.rs")
}

fn empty_names(file: &File) -> Vec<Finding> {
    let parts = file.path.trim_end_matches(".rs").split('/').map(|part| (1, part));
    let modules = file.lines().filter_map(|(number, line)| {
        let declaration = line.trim().split([';', '{']).next()?.trim_end();
        Some((number, module_name(declaration)?))
    });
    let empty = parts.chain(modules).filter(|(_, name)| EMPTY_NAMES.contains(name));
    empty.map(|(line, name)| Finding::new(&file.path, line, format!("`{name}` says nothing"))).collect()
}

fn unfinished(file: &File) -> Vec<Finding> {
    let code: &[&str] = if file.is_rust() { UNFINISHED_CODE } else { &[] };
    let mut findings = Vec::new();
    for (number, line) in file.lines() {
        let marks = code.iter().chain(UNFINISHED_TEXT).filter(|mark| holds_word(line, mark));
        findings.extend(marks.map(|mark| Finding::new(&file.path, number, format!("has `{mark}`"))));
    }
    findings
}

fn waits(file: &File) -> Vec<Finding> {
    if !SYNCHRONOUS.iter().any(|folder| file.path.starts_with(folder)) {
        return Vec::new();
    }
    let code = file.lines().filter(|(_, line)| !line.trim_start().starts_with("//"));
    let waiting = code.filter(|(_, line)| holds_word(line, "async") || holds_word(line, "await"));
    waiting.map(|(number, _)| Finding::new(&file.path, number, "waits")).collect()
}

/// Whether `word` stands in `line` and is not a part of a longer name.
fn holds_word(line: &str, word: &str) -> bool {
    let in_name = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + word.len()..]);
        !before.ends_with(in_name) && !after.starts_with(in_name)
    })
}

fn strangers(paths: &[String]) -> Vec<Finding> {
    let tops: BTreeSet<&str> = paths.iter().filter_map(|path| path.split('/').next()).collect();
    let permitted: BTreeSet<&str> = TOP_LEVEL.split_whitespace().collect();
    let strangers = tops.difference(&permitted);
    strangers.map(|name| Finding::new(name, 1, "does not belong at the top level")).collect()
}

fn found(holds: bool, file: &File, what: &str) -> Vec<Finding> {
    if holds { vec![Finding::new(&file.path, 1, what)] } else { Vec::new() }
}

// === proofs ===

#[test]
fn a_file_that_no_mod_declares_is_found() {
    let root = "pub mod used;\npub(crate) mod deep;\n// mod commented;\n    mod inner;\n";
    let files = [
        File::new("a/src/lib.rs", root),
        File::new("a/src/used.rs", ""),
        File::new("a/src/deep.rs", "mod leaf;"),
        File::new("a/src/deep/leaf.rs", ""),
        File::new("a/src/leaf.rs", ""),
        File::new("a/src/inner.rs", ""),
        File::new("a/src/commented.rs", ""),
    ];
    let found = orphans(files.iter(), vec!["a/src/lib.rs".to_owned()]);
    expect(&found, &["a/src/commented.rs:1", "a/src/inner.rs:1", "a/src/leaf.rs:1"]);
}

#[test]
fn a_wrong_opening_is_found() {
    expect(&wrong_opening(&File::new("a.rs", "//! What it is for.\n")), &[]);
    for bad in ["", "use std;", "//!\n", "//! \n", "\n//! Late.", "/// Of something else."] {
        expect(&wrong_opening(&File::new("a.rs", bad)), &["a.rs:1"]);
    }
}

#[test]
fn a_name_that_says_nothing_is_found() {
    expect(&mod_file(&File::new("a/src/mod.rs", "")), &["a/src/mod.rs:1"]);
    expect(&mod_file(&File::new("a/src/model.rs", "")), &[]);
    expect(&empty_names(&File::new("a/util.rs", "")), &["a/util.rs:1"]);
    expect(&empty_names(&File::new("a/common/b.rs", "")), &["a/common/b.rs:1"]);
    expect(&empty_names(&File::new("a.rs", "use a;\n    pub mod misc {}\n")), &["a.rs:2"]);
    expect(&empty_names(&File::new("a.rs", "mod commons;\nmod uncommon {\n")), &[]);
}

#[test]
fn unfinished_work_is_found() {
    for mark in UNFINISHED_CODE.iter().chain(UNFINISHED_TEXT) {
        expect(&unfinished(&File::new("a.rs", &format!("\n    {mark}(1)"))), &["a.rs:2"]);
    }
    expect(&unfinished(&File::new("a.md", UNFINISHED_TEXT[0])), &["a.md:1"]);
    expect(&unfinished(&File::new("a.md", UNFINISHED_CODE[0])), &[]);
    expect(&unfinished(&File::new("a.rs", &format!("let {}S = 1;", UNFINISHED_TEXT[0]))), &[]);
}

#[test]
fn waiting_is_found_where_it_is_not_allowed() {
    let text = "// async is for others\nasync fn a() {\n    b().await\n}\nlet asynchronous;\n";
    let found = waits(&File::new("schemas/src/a.rs", text));
    expect(&found, &["schemas/src/a.rs:2", "schemas/src/a.rs:3"]);
    expect(&waits(&File::new("engine/src/a.rs", text)), &[]);
}

#[test]
fn a_stranger_at_the_top_level_is_found() {
    let paths = ["engine/src/lib.rs", "notes.txt", "crates/a/Cargo.toml"].map(str::to_owned);
    expect(&strangers(&paths), &["crates:1", "notes.txt:1"]);
}
