//! The executables of the real servers, as `tests/servers` finds or obtains them, each asked for once in a process.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The NATS server that decklog is made for.
pub fn nats() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| find("nats-server"))
}

/// The NATS server that is too old for decklog.
pub fn nats_2_9() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| find("nats-server-2.9"))
}

/// A Python that has nats-py and msgpack.
pub fn python() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| find("python"))
}

/// The store of Kubernetes.
pub fn etcd() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| find("etcd"))
}

/// The API server of Kubernetes.
pub fn kube_apiserver() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| find("kube-apiserver"))
}

/// What ends namespaces and runs Jobs in Kubernetes.
pub fn kube_controller_manager() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| find("kube-controller-manager"))
}

/// The client of Kubernetes that people use.
pub fn kubectl() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| find("kubectl"))
}

/// What the script says is passed on as it comes, for it may take minutes.
fn find(name: &str) -> PathBuf {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/servers");
    let mut command = Command::new(script);
    command.arg(name).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("tests/servers can be started");
    let stderr = child.stderr.take().expect("standard error is a pipe");
    let mut said = String::new();
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        let line = line + "\n";
        // Nobody may be there to see it.
        let _ = io::stderr().write_all(line.as_bytes());
        said.push_str(&line);
    }
    let output = child.wait_with_output().expect("the process is ours");
    assert!(output.status.success(), "tests/servers {name}:\n{said}");
    let path = String::from_utf8(output.stdout).expect("paths are UTF-8");
    PathBuf::from(path.trim_end())
}
