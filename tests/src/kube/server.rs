//! One server of a control plane: its process, its log, and how it is started again.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::kube::LIMIT;
use crate::process::{Process, command, poll};

/// A server that was started.
#[derive(Debug)]
pub(super) struct Server {
    program: &'static Path,
    args: Vec<String>,
    /// What it logs once it listens.
    listens: &'static str,
    /// Its log, over all its starts.
    log: PathBuf,
    /// Where in the log its last start begins.
    begin: usize,
    process: Process,
}

impl Server {
    /// Starts a server, which is not ready yet.
    pub(super) fn spawn(program: &'static Path, args: Vec<String>, listens: &'static str, log: PathBuf) -> Self {
        let process = spawn(program, &args, &log);
        Self { program, args, listens, log, begin: 0, process }
    }

    /// Starts it again in the same way, and kills it with -9 before if it is up.
    pub(super) fn respawn(&mut self) {
        self.kill();
        self.begin = self.log().len();
        self.process = spawn(self.program, &self.args, &self.log);
    }

    pub(super) fn kill(&mut self) {
        self.process.kill();
    }

    pub(super) fn is_up(&self) -> bool {
        self.process.is_up()
    }

    pub(super) fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).expect("the folder is ours")).into_owned()
    }

    /// Waits until it says that it listens, which is the proof that whoever answers is this server. What it has logged
    /// is the error if it ends instead.
    pub(super) fn wait_to_listen(&mut self) -> Result<(), String> {
        self.wait(|| true)
    }

    /// Waits until it listens, and is ready besides.
    pub(super) fn wait(&mut self, is_ready: impl Fn() -> bool) -> Result<(), String> {
        let ready = poll(LIMIT, || {
            let has_ended = self.process.ended().is_some();
            let log = self.log().split_off(self.begin);
            if has_ended {
                return Some(Err(log));
            }
            (log.contains(self.listens) && is_ready()).then_some(Ok(()))
        });
        ready.unwrap_or_else(|| Err(format!("{}It is not ready after {LIMIT:?}.", self.log())))
    }
}

fn spawn(program: &Path, args: &[String], log: &Path) -> Process {
    let log = File::options().create(true).append(true).open(log).expect("the folder is ours");
    let output = log.try_clone().expect("a file can be opened twice");
    let mut command = command(program);
    command.args(args).stdout(output).stderr(log);
    Process::spawn(command)
}
