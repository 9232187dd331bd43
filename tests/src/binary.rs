//! The real binary: built once, run as a user runs it, and killed when a test ends.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// Path of the `decklog` binary, built from this checkout if it is not up to date.
pub fn path() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(build)
}

/// The root of the checkout.
#[must_use]
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// A command of decklog, cut off from the environment of whoever runs the tests.
#[must_use]
pub fn command<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(path());
    for (name, _) in std::env::vars_os() {
        let is_ours = name.to_str().is_some_and(|name| name.starts_with("DECKLOG_") || name.starts_with("XDG_"));
        if is_ours {
            command.env_remove(name);
        }
    }
    command.env("HOME", "/nonexistent").env("TZ", "UTC").env("NO_COLOR", "1").stdin(Stdio::null()).args(args);
    command
}

/// Runs a command to its end.
pub fn run<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Output {
    command(args).output().expect("decklog can be started")
}

/// Runs a command and returns what it printed; anything but exit code 0 fails the test.
pub fn stdout<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> String {
    let output = run(args);
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("output is UTF-8")
}

/// A running `decklog up` or `decklog project`, killed with -9 when dropped.
#[derive(Debug)]
pub struct Up {
    child: Child,
    /// What it says on standard error, line by line. It is read all the time: whoever has nobody who reads is held up.
    lines: mpsc::Receiver<String>,
}

/// How reading what it says has ended.
enum Read {
    Enough,
    All,
    TooLate,
}

/// How long it may take to say something that is waited for, or to end.
const LIMIT: Duration = Duration::from_secs(120);

impl Up {
    /// Starts `decklog up --data FOLDER` and waits until it says that it is ready.
    #[must_use]
    pub fn start(folder: &Path) -> Self {
        Self::of([OsStr::new("up"), OsStr::new("--data"), folder.as_os_str()])
    }

    /// Starts a command that runs until it is told to stop, and waits until it says that it is ready.
    #[must_use]
    pub fn of<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Self {
        let mut child = command(args).stderr(Stdio::piped()).spawn().expect("decklog can be started");
        let stderr = BufReader::new(child.stderr.take().expect("standard error is a pipe"));
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            // The test may have ended, and then nobody misses the rest.
            stderr.lines().map(|line| line.expect("standard error is UTF-8")).try_for_each(|line| sender.send(line))
        });
        let mut up = Self { child, lines };
        up.wait_for("Ready");
        up
    }

    /// Reads the log messages up to one that holds a text, and returns them.
    pub fn wait_for(&mut self, text: &str) -> String {
        let mut seen = String::new();
        let ended = self.read(|line| {
            seen = std::mem::take(&mut seen) + line + "\n";
            line.contains(text)
        });
        match ended {
            Read::Enough => seen,
            Read::All => panic!("decklog ended before it said {text:?}: {seen}"),
            Read::TooLate => panic!("decklog does not say {text:?}: {seen}"),
        }
    }

    /// Reads what it says until that is enough, or it has ended.
    fn read(&self, mut is_enough: impl FnMut(&str) -> bool) -> Read {
        let end = Instant::now() + LIMIT;
        loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) if is_enough(&line) => return Read::Enough,
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => return Read::All,
                Err(RecvTimeoutError::Timeout) => return Read::TooLate,
            }
        }
    }

    /// Process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end, and returns exit code and the rest of standard error.
    pub fn ended(&mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        let ended = self.read(|line| {
            rest = std::mem::take(&mut rest) + line + "\n";
            false
        });
        assert!(matches!(ended, Read::All), "decklog does not end: {rest}");
        (self.child.wait().expect("the process is ours").code(), rest)
    }

    /// What it has said since somebody last read it.
    pub fn said(&mut self) -> String {
        self.lines.try_iter().fold(String::new(), |said, line| said + &line + "\n")
    }

    /// Kills the process with -9.
    pub fn kill(mut self) {
        self.child.kill().expect("the process is ours");
        self.child.wait().expect("the process is ours");
    }

    /// Sends a signal by name, such as `TERM`, waits for the end, and returns exit code and the rest of standard error.
    pub fn stop(&mut self, signal: &str) -> (Option<i32>, String) {
        let pid = self.pid().to_string();
        let sent = Command::new("kill").args(["-s", signal, &pid]).status().expect("kill can be started");
        assert!(sent.success(), "kill -s {signal} {pid}: {sent}");
        self.ended()
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // It may have ended by itself, and then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The tests of a workspace do not say where its binaries are, so cargo is asked; it builds nothing that is up to date.
fn build() -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    // What cargo tells a test about its package changes the input of other packages' build scripts, such as that of ring,
    // and everything above them would be built again.
    let of_package = |name: &OsStr| {
        let name = name.as_encoded_bytes();
        name.starts_with(b"CARGO_PKG_") || name.starts_with(b"CARGO_MANIFEST_")
    };
    for (name, _) in std::env::vars_os().filter(|(name, _)| of_package(name)) {
        cargo.env_remove(name);
    }
    // With the features that the workspace has together, which is what the tests were built with.
    let output = cargo
        .args(["build", "--locked", "--quiet", "--workspace", "--bin", "decklog", "--message-format", "json"])
        .current_dir(root())
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo can be started");
    assert!(output.status.success(), "cargo build: {}", output.status);
    let messages = String::from_utf8(output.stdout).expect("cargo writes UTF-8");
    let executable = |line: &str| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let is_ours = message["target"]["name"] == "decklog";
        message["executable"].as_str().filter(|_| is_ours).map(PathBuf::from)
    };
    messages.lines().find_map(executable).expect("cargo names the executable")
}
