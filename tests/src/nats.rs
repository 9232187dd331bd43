//! Real NATS servers: started with JetStream on the loopback, killed, restarted, paused and reconfigured by tests.

pub mod api;
pub mod cluster;
pub mod keys;
mod monitor;
pub mod proxy;
pub mod python;
pub mod settings;
pub mod tls;

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::nats::settings::{Settings, Site};
use crate::process::{Process, poll};
use crate::servers;

/// How long a server may take to start, or to take in a configuration.
const LIMIT: Duration = Duration::from_secs(30);

/// JetStream is up, whatever became of streams and peers.
const JETSTREAM_IS_UP: &str = "/healthz?js-server-only=true";

/// A running NATS server, killed with -9 when dropped.
#[derive(Debug)]
pub struct NatsServer {
    process: Process,
    site: Site,
}

impl NatsServer {
    /// Starts a server as decklog wants it; it is ready when this returns.
    #[must_use]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Starts a server that is too old for decklog.
    #[must_use]
    pub fn start_2_9() -> Self {
        Settings::new(servers::nats_2_9).start()
    }

    /// The settings of a server, to be changed before it starts.
    pub fn builder() -> Settings {
        Settings::new(servers::nats)
    }

    /// The port for clients.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.site.port.number()
    }

    /// What a client connects to.
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port())
    }

    /// What a client connects to as a user; name and password are put in as they are.
    #[must_use]
    pub fn url_of(&self, user: &str, password: &str) -> String {
        format!("nats://{user}:{password}@127.0.0.1:{}", self.port())
    }

    /// The name by which it is known in a cluster.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.site.name
    }

    /// Process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Whether it was neither killed nor stopped.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.process.is_up()
    }

    /// Kills it with -9.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Asks it to end with SIGTERM, and waits.
    pub fn stop(&mut self) {
        self.process.stop();
    }

    /// Starts it again with the same port, data and configuration, and kills it with -9 before if it is up; it is
    /// ready when this returns.
    pub fn restart(&mut self) {
        self.relaunch();
        self.wait_for_health(JETSTREAM_IS_UP);
    }

    /// Stops it with SIGSTOP: connections stay open, and nothing answers. All of its threads stand when this returns.
    pub fn pause(&self) {
        self.process.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.pid());
        let is_stopped = |task: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
        };
        let stopped = poll(LIMIT, || {
            let mut tasks = std::fs::read_dir(&tasks).expect("the process is there").flatten();
            tasks.all(is_stopped).then_some(())
        });
        assert!(stopped.is_some(), "{} does not stop", self.name());
    }

    /// Lets a paused server go on.
    pub fn resume(&self) {
        self.process.signal(Signal::CONT);
    }

    /// Replaces the lines given to [`Settings::conf`], and returns when the server has taken them in.
    pub fn reload(&mut self, conf: &str) {
        self.site.replace_conf(conf);
        let before = self.log().len();
        self.process.signal(Signal::HUP);
        let logged = || self.log().split_off(before);
        let has_answered = |log: &str| log.contains("Reloaded server conf") || log.contains("Failed to reload");
        let answer = poll(LIMIT, || Some(logged()).filter(|log| has_answered(log)));
        let log = answer.unwrap_or_else(|| panic!("SIGHUP is not answered: {}", logged()));
        assert!(!log.contains("Failed to reload"), "the configuration is refused: {log}");
    }

    /// What it has logged, over all its starts.
    #[must_use]
    pub fn log(&self) -> String {
        self.site.log()
    }

    /// The body that the monitoring port serves for a path, such as `/jsz`.
    #[must_use]
    pub fn monitor(&self, path: &str) -> String {
        let answer = monitor::get(self.site.monitor.number(), path);
        answer.unwrap_or_else(|error| panic!("GET {path}: {error}\n{}", self.log())).1
    }

    /// What it says of itself to everyone who connects.
    #[must_use]
    pub fn info(&self) -> Value {
        let info = monitor::info(self.port());
        info.unwrap_or_else(|error| panic!("cannot read INFO: {error}\n{}", self.log()))
    }

    /// Starts the process, which is not ready yet.
    fn launch(site: Site) -> Self {
        Self { process: site.spawn(), site }
    }

    /// Starts the process again, and waits until clients can connect.
    fn relaunch(&mut self) {
        self.kill();
        let before = self.log().len();
        self.process = self.site.spawn();
        self.wait_for_listener(before).unwrap_or_else(|log| panic!("{} did not start again:\n{log}", self.name()));
    }

    /// Waits until clients can connect. What it logs from `begin` on is the proof that it is this server that they
    /// meet, and it is the error if it ends instead.
    fn wait_for_listener(&mut self, begin: usize) -> Result<(), String> {
        let listening = poll(LIMIT, || {
            let has_ended = self.process.ended().is_some();
            let log = self.log().split_off(begin);
            if has_ended {
                return Some(Err(log));
            }
            let listens = log.contains("Listening for client connections on");
            (listens && monitor::info(self.port()).is_ok()).then_some(Ok(()))
        });
        listening.unwrap_or_else(|| Err(format!("{}Clients cannot connect.", self.log())))
    }

    fn wait_for_health(&self, path: &str) {
        let healthy = poll(LIMIT, || self.is_healthy(path).then_some(()));
        assert!(healthy.is_some(), "{} is not healthy: {}\n{}", self.name(), self.monitor(path), self.log());
    }

    fn is_healthy(&self, path: &str) -> bool {
        monitor::get(self.site.monitor.number(), path).is_ok_and(|(status, _)| status == 200)
    }
}
