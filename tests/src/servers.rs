//! The executables of the real servers, as `tests/servers` finds or obtains them, each asked for once in a process.

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

fn find(name: &str) -> PathBuf {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/servers");
    let output = Command::new(script).arg(name).stdin(Stdio::null()).output().expect("tests/servers can be started");
    assert!(output.status.success(), "tests/servers {name}:\n{}", String::from_utf8_lossy(&output.stderr));
    let path = String::from_utf8(output.stdout).expect("paths are UTF-8");
    PathBuf::from(path.trim_end())
}
