//! Real Kubernetes control planes: etcd and API server on the loopback, killed and restarted by tests.

mod access;
pub mod audit;
mod kubectl;
mod place;
pub mod release_crd;
mod server;

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::OnceLock;
use std::time::Duration;

use decklog_schemas::inventory::{GROUP, PLURAL, VERSION};
use serde_json::Value;

use crate::binary;
pub use crate::kube::access::Rights;
use crate::kube::place::Place;
use crate::kube::server::Server;
use crate::process::{copy, poll};

/// How long a server may take to start, on a machine that has much else to do.
const LIMIT: Duration = Duration::from_secs(120);

/// How many starts may find their ports taken by others.
const ATTEMPTS: usize = 5;

/// What a server logs that finds its port taken.
const TAKEN: &str = "address already in use";

/// A running control plane with RBAC and an audit log, killed with -9 when dropped.
///
/// Namespaces do not end, and Jobs do not run, before there is a controller manager.
#[derive(Debug)]
pub struct ControlPlane {
    // In this order they are dropped.
    controller_manager: OnceLock<Server>,
    api_server: Server,
    etcd: Server,
    place: Place,
}

impl ControlPlane {
    /// Starts a control plane; it is ready when this returns.
    #[must_use]
    pub fn start() -> Self {
        let mut log = String::new();
        for _ in 0..ATTEMPTS {
            match Self::launch() {
                Ok(plane) => return plane,
                Err(failed) => log = failed,
            }
            if !log.contains(TAKEN) {
                break;
            }
        }
        panic!("the control plane does not start:\n{log}");
    }

    /// The one of this process, for tests that leave its servers alone and keep to namespaces of their own. It knows
    /// ReleaseInventory.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<ControlPlane> = OnceLock::new();
        SHARED.get_or_init(|| {
            let plane = Self::start();
            plane.install_crd();
            plane
        })
    }

    /// The port of the API server.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.place.port()
    }

    /// A kubeconfig with which everything is allowed.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.place.kubeconfig()
    }

    /// Runs the real kubectl to its end, with everything allowed.
    #[must_use]
    pub fn kubectl(&self, args: &[&str], stdin: &str) -> Output {
        self.kubectl_as(&self.kubeconfig(), args, stdin)
    }

    /// Runs the real kubectl to its end, as the user of a kubeconfig.
    #[must_use]
    pub fn kubectl_as(&self, kubeconfig: &Path, args: &[&str], stdin: &str) -> Output {
        kubectl::run(self.place.folder(), kubeconfig, args, stdin)
    }

    /// What kubectl prints; anything but exit code 0 fails the test.
    pub fn kubectl_stdout(&self, args: &[&str], stdin: &str) -> String {
        let output = self.kubectl(args, stdin);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {}: {}: {said}", args.join(" "), output.status);
        String::from_utf8(output.stdout).expect("output is UTF-8")
    }

    /// Applies objects, given as YAML, on the side of the server.
    pub fn apply(&self, yaml: &str) {
        self.kubectl_stdout(&["apply", "--server-side", "-f", "-"], yaml);
    }

    /// What `kubectl get` finds, as JSON.
    #[must_use]
    pub fn get(&self, args: &[&str]) -> Value {
        let args = [&["get", "-o", "json"], args].concat();
        serde_json::from_str(&self.kubectl_stdout(&args, "")).expect("kubectl prints JSON")
    }

    /// Applies the definition that `decklog crd` prints; its objects can be applied when this returns.
    pub fn install_crd(&self) {
        self.apply(&binary::stdout(["crd"]));
        let list = format!("/apis/{GROUP}/{VERSION}/{PLURAL}");
        let served = || self.kubectl(&["get", "--raw", &list], "").status.success();
        let served = poll(LIMIT, || served().then_some(()));
        assert!(served.is_some(), "{list} is not served:\n{}", self.api_server.log());
    }

    /// A new ServiceAccount with these rights, which hold when this returns, and the kubeconfig with its token. Makes
    /// the namespace if there is none.
    #[must_use]
    pub fn service_account(&self, namespace: &str, name: &str, rights: Rights<'_>) -> PathBuf {
        access::service_account(self, namespace, name, rights)
    }

    /// The lines of the audit log so far, one for each request that was answered: the line is written before the
    /// answer ends. [`audit`] counts in them.
    #[must_use]
    pub fn audit(&self) -> Vec<Value> {
        audit::read(&self.place.audit_log())
    }

    /// What the API server has logged, over all its starts.
    #[must_use]
    pub fn api_server_log(&self) -> String {
        self.api_server.log()
    }

    /// Kills the API server with -9.
    pub fn kill_api_server(&mut self) {
        self.api_server.kill();
    }

    /// Starts the API server again with the same port, and kills it with -9 before if it is up; it is ready when this
    /// returns, for which etcd must be up.
    pub fn restart_api_server(&mut self) {
        self.api_server.respawn();
        self.wait_until_ready().unwrap_or_else(|log| panic!("kube-apiserver does not start again:\n{log}"));
    }

    /// Kills etcd with -9.
    pub fn kill_etcd(&mut self) {
        self.etcd.kill();
    }

    /// Starts etcd again with the same port and data, and kills it with -9 before if it is up. It is ready when this
    /// returns, and so is the API server if it is up.
    pub fn restart_etcd(&mut self) {
        self.etcd.respawn();
        let ready = self.etcd.wait_to_listen();
        let ready = ready.and_then(|()| if self.api_server.is_up() { self.wait_until_ready() } else { Ok(()) });
        ready.unwrap_or_else(|log| panic!("etcd does not start again:\n{log}"));
    }

    /// Copies what etcd has to a new folder. Both servers are killed with -9 for it, and started again.
    pub fn back_up(&mut self, backup: &Path) {
        self.while_stopped(|data| copy(data, backup));
    }

    /// Puts etcd back to a backup. Both servers are killed with -9 for it, and started again.
    pub fn put_back(&mut self, backup: &Path) {
        self.while_stopped(|data| {
            std::fs::remove_dir_all(data).expect("the folder is ours");
            copy(backup, data);
        });
    }

    fn while_stopped(&mut self, happens: impl FnOnce(&Path)) {
        self.kill_api_server();
        self.kill_etcd();
        happens(&self.place.etcd_data());
        self.restart_etcd();
        self.restart_api_server();
    }

    /// Starts a controller manager, if there is none: namespaces end, owned objects are collected, Jobs run.
    pub fn start_controller_manager(&self) {
        self.controller_manager.get_or_init(|| {
            let mut log = String::new();
            for _ in 0..ATTEMPTS {
                let mut server = self.place.controller_manager();
                match server.wait_to_listen() {
                    Ok(()) => return server,
                    Err(failed) => log = failed,
                }
                if !log.contains(TAKEN) {
                    break;
                }
            }
            panic!("kube-controller-manager does not start:\n{log}");
        });
    }

    fn launch() -> Result<Self, String> {
        let place = Place::make();
        let (etcd, api_server) = (place.etcd(), place.api_server());
        let mut plane = Self { controller_manager: OnceLock::new(), api_server, etcd, place };
        plane.etcd.wait_to_listen()?;
        plane.wait_until_ready()?;
        Ok(plane)
    }

    /// It is not enough that the API server says so: what it says of etcd may be a second old.
    fn wait_until_ready(&mut self) -> Result<(), String> {
        let Self { api_server, place, .. } = self;
        let get = |path| {
            let args = ["get", "--raw", path, "--request-timeout", "5s"];
            kubectl::run(place.folder(), &place.kubeconfig(), &args, "")
        };
        api_server.wait(|| get("/readyz").stdout == b"ok" && get("/api/v1/namespaces").status.success())
    }
}
