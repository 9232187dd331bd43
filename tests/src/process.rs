//! Processes that tests start: killed when dropped, and by the kernel when the test process itself is killed.

use std::io;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The pause between two looks at something that will happen soon.
const POLL: Duration = Duration::from_millis(5);

/// How long a process may take to end after SIGTERM.
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// A process of ours, killed with -9 when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// Known once it was waited for: from then on the process id may be somebody else's.
    ended: Option<ExitStatus>,
}

impl Process {
    /// Starts a command that [`command`] made.
    #[must_use]
    pub fn spawn(command: Command) -> Self {
        let what = format!("{command:?}");
        let (reply, child) = mpsc::channel();
        spawner().send((command, reply)).expect("the spawner lives as long as we do");
        let child = child.recv().expect("the spawner answers");
        let child = child.unwrap_or_else(|error| panic!("cannot run {what}: {error}"));
        Self { child, ended: None }
    }

    /// Process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it was neither killed nor stopped here, nor seen to end by itself.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.ended.is_none()
    }

    /// The status with which it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.ended = self.ended.or(self.child.try_wait().expect("the process is ours"));
        self.ended
    }

    /// Waits for the end, and returns nothing if that takes longer than `limit`.
    pub fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        poll(limit, || self.ended())
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        assert!(self.is_up(), "process {} has ended: {:?}", self.pid(), self.ended);
        kill_process(Pid::from_child(&self.child), signal).expect("the process is ours");
    }

    /// Kills it with -9, if it has not ended, and waits.
    pub fn kill(&mut self) {
        self.child.kill().expect("the process is ours");
        self.ended = Some(self.child.wait().expect("the process is ours"));
    }

    /// Asks it to end with SIGTERM, also when it is paused, and waits.
    pub fn stop(&mut self) -> ExitStatus {
        if self.ended().is_none() {
            self.signal(Signal::TERM);
            self.signal(Signal::CONT);
        }
        self.wait(STOP_LIMIT).unwrap_or_else(|| panic!("process {} ignores SIGTERM", self.pid()))
    }

    /// Its standard input, once, if that is a pipe.
    pub fn stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Its standard output, once, if that is a pipe.
    pub fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself, and then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command that runs a program so that it dies with this process, under the process id that is returned: `setpriv`
/// asks the kernel for that and becomes the program.
#[must_use]
pub fn command(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program).stdin(Stdio::null());
    command
}

/// Copies a folder.
pub fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status().expect("cp can be started");
    assert!(copied.success(), "{copied}");
}

/// Looks until there is something to return, or `limit` has passed.
pub fn poll<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        let seen = look();
        if seen.is_some() || start.elapsed() >= limit {
            return seen;
        }
        thread::sleep(POLL);
    }
}

/// A command to start, and where to send what became of it.
type Order = (Command, mpsc::Sender<io::Result<Child>>);

/// The thread that starts all processes. To the kernel a parent is a thread: what the thread of a test had started
/// would be killed at the end of that test, though others may use it.
fn spawner() -> &'static mpsc::Sender<Order> {
    static SPAWNER: OnceLock<mpsc::Sender<Order>> = OnceLock::new();
    SPAWNER.get_or_init(|| {
        let (orders, inbox) = mpsc::channel::<Order>();
        let serve = move || {
            for (mut command, reply) in inbox {
                // Who ordered it may be gone, and then nobody else ends it.
                if let Err(mpsc::SendError(Ok(mut orphan))) = reply.send(command.spawn()) {
                    let _ = orphan.kill();
                    let _ = orphan.wait();
                }
            }
        };
        thread::Builder::new().name("spawner".to_owned()).spawn(serve).expect("a thread can be started");
        orders
    })
}
