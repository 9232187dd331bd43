//! The files that the rules look at: those that git knows.

use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

/// What people write: sources, manifests, documents and scripts, not recorded data.
const WRITTEN: &[&str] = &["rs", "toml", "md", "sh"];

pub(crate) struct File {
    /// From the root of the workspace, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let (path, text) = (path.to_owned(), text.to_owned());
        Self { path, text }
    }

    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// The lines with their numbers, from 1.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.lines())
    }
}

pub(crate) fn sources() -> impl Iterator<Item = &'static File> {
    written().filter(|file| file.is_rust())
}

/// The manifests of the members, without the one of the workspace.
pub(crate) fn manifests() -> impl Iterator<Item = &'static File> {
    written().filter(|file| file.path.ends_with("/Cargo.toml"))
}

pub(crate) fn written() -> impl Iterator<Item = &'static File> {
    static FILES: LazyLock<Vec<File>> = LazyLock::new(|| {
        let paths = paths().into_iter();
        paths.filter(|path| is_written(path)).map(|path| read(&path)).collect()
    });
    FILES.iter()
}

/// Every path that is tracked, or new and not ignored; git still lists one that was just deleted.
pub(crate) fn paths() -> Vec<String> {
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let listed = output("git", &arguments);
    let listed: Vec<&str> = listed.split_terminator('\0').collect();
    assert!(listed.contains(&file!()), "git does not list even {}", file!());
    let exist = listed.iter().filter(|path| root().join(path).exists());
    exist.map(|path| (*path).to_owned()).collect()
}

/// The files from which Cargo compiles a library, a binary, a test, a bench or an example.
pub(crate) fn crate_roots() -> Vec<String> {
    let arguments = ["metadata", "--format-version", "1", "--no-deps", "--offline", "--locked"];
    let metadata = output(env!("CARGO"), &arguments);
    let metadata: serde_json::Value = serde_json::from_str(&metadata).expect("cargo prints JSON");
    let packages = metadata["packages"].as_array().expect("cargo lists packages");
    let targets = packages.iter().filter_map(|package| package["targets"].as_array());
    let sources = targets.flatten().filter_map(|target| target["src_path"].as_str());
    let inside = sources.filter_map(|path| Path::new(path).strip_prefix(root()).ok());
    inside.map(|path| path.to_string_lossy().into_owned()).collect()
}

fn is_written(path: &str) -> bool {
    let extension = Path::new(path).extension().and_then(|e| e.to_str());
    let is_script = path.starts_with(".ci/") || path == "tests/servers";
    is_script || extension.is_some_and(|e| WRITTEN.contains(&e))
}

fn read(path: &str) -> File {
    let text = std::fs::read_to_string(root().join(path));
    File::new(path, &text.unwrap_or_else(|error| panic!("cannot read {path}: {error}")))
}

fn root() -> &'static Path {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("tests/ lies in the workspace")
}

fn output(program: &str, arguments: &[&str]) -> String {
    let run = Command::new(program).args(arguments).current_dir(root()).output();
    let run = run.unwrap_or_else(|error| panic!("cannot run {program}: {error}"));
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{program} {arguments:?} failed, is this a git clone? {errors}");
    String::from_utf8(run.stdout).expect("paths are UTF-8")
}
