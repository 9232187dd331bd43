//! What a test can ask of a NATS server before it starts, and the place that the server then has.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

use crate::nats::{JETSTREAM_IS_UP, NatsServer};
use crate::port::Port;
use crate::process::{Process, command};

/// How many starts may find their ports taken by others.
pub(super) const ATTEMPTS: usize = 5;

/// What a server logs that finds its port taken.
pub(super) const TAKEN: &str = "address already in use";

/// The settings of a server that is yet to start.
#[derive(Debug, Clone)]
#[must_use]
pub struct Settings {
    program: fn() -> &'static Path,
    name: Option<String>,
    port: Option<u16>,
    store: Option<PathBuf>,
    jetstream: JetStream,
    conf: String,
    cluster: String,
}

#[derive(Debug, Clone)]
enum JetStream {
    On { limits: String },
    Off,
}

/// What stays the same when a server is started again.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) name: String,
    pub(super) port: Port,
    pub(super) monitor: Port,
    settings: Settings,
    /// Holds configuration, log and, if no other place is asked for, the data.
    folder: TempDir,
}

impl Settings {
    pub(super) fn new(program: fn() -> &'static Path) -> Self {
        let jetstream = JetStream::On { limits: String::new() };
        let (conf, cluster) = (String::new(), String::new());
        Self { program, name: None, port: None, store: None, jetstream, conf, cluster }
    }

    /// Adds lines of configuration, such as `authorization { users: [...] }`, `max_payload: 1KB` or `tls { ... }`.
    pub fn conf(mut self, lines: &str) -> Self {
        self.conf.extend([lines, "\n"]);
        self
    }

    /// Names the server, which else has a name that no other has.
    pub fn name(self, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..self }
    }

    /// Listens on this port, and fails to start where it is taken.
    pub fn port(self, port: u16) -> Self {
        Self { port: Some(port), ..self }
    }

    /// Keeps the data in this folder, which outlives the server.
    pub fn store(self, folder: &Path) -> Self {
        Self { store: Some(folder.to_owned()), ..self }
    }

    /// Limits JetStream, with lines such as `max_file_store: 1MB`.
    pub fn limits(self, lines: &str) -> Self {
        Self { jetstream: JetStream::On { limits: lines.to_owned() }, ..self }
    }

    /// Leaves JetStream off.
    pub fn without_jetstream(self) -> Self {
        Self { jetstream: JetStream::Off, ..self }
    }

    /// Joins the server with others through a block of configuration.
    pub(super) fn cluster(self, block: String) -> Self {
        Self { cluster: block, ..self }
    }

    /// Starts the server; it is ready when this returns.
    #[must_use]
    pub fn start(self) -> NatsServer {
        let mut log = String::new();
        for _ in 0..ATTEMPTS {
            let mut server = NatsServer::launch(self.clone().site());
            match server.wait_for_listener(0) {
                Ok(()) => {
                    server.wait_for_health(JETSTREAM_IS_UP);
                    return server;
                }
                Err(failed) => log = failed,
            }
            if self.port.is_some() || !log.contains(TAKEN) {
                break;
            }
        }
        panic!("nats-server does not start:\n{log}");
    }

    /// Chooses what is still open, and writes the configuration.
    pub(super) fn site(self) -> Site {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let unique = || format!("decklog-{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let name = self.name.clone().unwrap_or_else(unique);
        let port = self.port.map_or_else(Port::find, Port::fixed);
        let folder = tempfile::Builder::new().prefix("decklog-nats-").tempdir();
        let folder = folder.expect("a temporary folder can be made");
        let site = Site { name, port, monitor: Port::find(), settings: self, folder };
        site.write_conf();
        site
    }
}

impl Site {
    pub(super) fn spawn(&self) -> Process {
        let log = File::options().create(true).append(true).open(self.log_path()).expect("the folder is ours");
        let mut command = command((self.settings.program)());
        let output = log.try_clone().expect("a file can be opened twice");
        command.arg("-c").arg(self.conf_path()).stdout(output).stderr(log);
        Process::spawn(command)
    }

    pub(super) fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.log_path()).expect("the folder is ours")).into_owned()
    }

    pub(super) fn replace_conf(&mut self, lines: &str) {
        lines.clone_into(&mut self.settings.conf);
        self.write_conf();
    }

    fn write_conf(&self) {
        let Settings { jetstream, conf, cluster, store, .. } = &self.settings;
        let (name, port, monitor) = (&self.name, self.port.number(), self.monitor.number());
        let store = store.clone().unwrap_or_else(|| self.folder.path().join("data"));
        let jetstream = match jetstream {
            JetStream::On { limits } => format!("jetstream {{\nstore_dir: {store:?}\n{limits}\n}}"),
            JetStream::Off => String::new(),
        };
        let listen = format!("listen: \"127.0.0.1:{port}\"\nhttp: \"127.0.0.1:{monitor}\"");
        let text = format!("server_name: {name:?}\n{listen}\n{jetstream}\n{cluster}\n{conf}\n");
        fs::write(self.conf_path(), text).expect("the folder is ours");
    }

    fn conf_path(&self) -> PathBuf {
        self.folder.path().join("nats.conf")
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("nats.log")
    }
}
