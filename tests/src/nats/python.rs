//! Python with nats-py and msgpack: a client that shares no code with decklog.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::FileExt as _;
use std::process::{ChildStdin, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::process::{Process, command};
use crate::servers;

/// How long a script may take.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs a script, given as its text, to its end.
#[must_use]
pub fn run(script: &str, args: &[&str]) -> Output {
    let (stdout, stderr) = (scratch(), scratch());
    let mut command = python(script, args);
    command.stdout(shared(&stdout)).stderr(shared(&stderr));
    let status = Process::spawn(command).wait(LIMIT);
    let (stdout, stderr) = (contents(&stdout), contents(&stderr));
    let said = || String::from_utf8_lossy(&stderr).into_owned();
    let status = status.unwrap_or_else(|| panic!("the script does not end: {}", said()));
    Output { status, stdout, stderr }
}

/// Runs a script to its end and returns what it printed; anything but exit code 0 fails the test.
pub fn stdout(script: &str, args: &[&str]) -> String {
    let output = run(script, args);
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("output is UTF-8")
}

/// A running script, killed with -9 when dropped.
#[derive(Debug)]
pub struct Script {
    process: Process,
    lines: mpsc::Receiver<String>,
    stdin: ChildStdin,
    stderr: File,
}

impl Script {
    /// Starts a script, given as its text.
    #[must_use]
    pub fn spawn(script: &str, args: &[&str]) -> Self {
        let stderr = scratch();
        let mut command = python(script, args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(shared(&stderr));
        let mut process = Process::spawn(command);
        let stdin = process.stdin().expect("standard input is a pipe");
        let stdout = process.stdout().expect("standard output is a pipe");
        let (sender, lines) = mpsc::channel();
        // Ends with the script, or with the one who reads.
        thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            lines.into_iter().try_for_each(|line| sender.send(line))
        });
        Self { process, lines, stdin, stderr }
    }

    /// The next line that it prints; fails the test if none comes within a time.
    pub fn line(&mut self, within: Duration) -> String {
        let line = self.lines.recv_timeout(within);
        line.unwrap_or_else(|error| panic!("the script prints no line: {error}: {}", self.stderr()))
    }

    /// Writes a line to its standard input.
    pub fn say(&mut self, line: &str) {
        let written = writeln!(self.stdin, "{line}");
        written.unwrap_or_else(|error| panic!("the script does not listen: {error}: {}", self.stderr()));
    }

    /// Process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Kills it with -9.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// What it has written to standard error.
    #[must_use]
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&contents(&self.stderr)).into_owned()
    }
}

/// A command for a script: unbuffered, and without the packages of whoever runs the tests.
fn python(script: &str, args: &[&str]) -> Command {
    let mut command = command(servers::python());
    command.args(["-I", "-u", "-c", script]).args(args);
    command
}

fn scratch() -> File {
    tempfile::tempfile().expect("a temporary file can be made")
}

/// The same file for a child, with the same place to write at: who reads must not move it.
fn shared(file: &File) -> File {
    file.try_clone().expect("a file can be opened twice")
}

fn contents(file: &File) -> Vec<u8> {
    let length = file.metadata().expect("the file is ours").len();
    let mut bytes = vec![0; usize::try_from(length).expect("it fits into memory")];
    file.read_exact_at(&mut bytes, 0).expect("the file is ours");
    bytes
}
