//! The place of a control plane: its folder, its ports, its certificates, and the command lines of its servers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kube::server::Server;
use crate::nats::tls::Certificates;
use crate::port::Port;
use crate::servers;

/// Removes a folder when its standard input ends, however we end. What we started dies just then, so that a first try
/// may meet a file that was not there before.
const REMOVE: &str = r#"trap '' INT; cat; for _ in 1 2 3 4 5; do rm -rf -- "$0" && exit; sleep 1; done"#;

/// One line a request, without what was sent.
const AUDIT_POLICY: &str = r#"{
    "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [{"level": "Metadata"}]
}"#;

/// What stays the same when servers are started again.
#[derive(Debug)]
pub(super) struct Place {
    certificates: Certificates,
    /// Where etcd listens for clients and for peers.
    etcd: [Port; 2],
    api_server: Port,
    controller_manager: Port,
    folder: TempDir,
    remover: Child,
}

impl Place {
    pub(super) fn make() -> Self {
        // What may take minutes is done before anything starts.
        let _ = (servers::etcd(), servers::kube_apiserver(), servers::kubectl());
        let folder = tempfile::Builder::new().prefix("decklog-kube-").tempdir();
        let folder = folder.expect("a temporary folder can be made");
        let mut remover = Command::new("sh");
        remover.args(["-c", REMOVE]).arg(folder.path()).stdin(Stdio::piped()).stdout(Stdio::null());
        let remover = remover.spawn().expect("sh can be started");
        let certificates = Certificates::make_in(folder.path(), "/O=system:masters/CN=admin");
        certificates.openssl("genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out accounts.key");
        certificates.openssl("pkey -in accounts.key -pubout -out accounts.pem");
        let etcd = [Port::find(), Port::find()];
        let place =
            Self { certificates, etcd, api_server: Port::find(), controller_manager: Port::find(), folder, remover };
        fs::write(place.file("policy.yaml"), AUDIT_POLICY).expect("the folder is ours");
        let [certificate, key] = ["client.pem", "client.key"].map(|name| place.certificates.path(name));
        place.write_kubeconfig("admin", &json!({ "client-certificate": certificate, "client-key": key }));
        place
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn port(&self) -> u16 {
        self.api_server.number()
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.file("admin.kubeconfig")
    }

    pub(super) fn audit_log(&self) -> PathBuf {
        self.file("audit.log")
    }

    /// Writes a kubeconfig with these credentials; JSON is YAML.
    pub(super) fn write_kubeconfig(&self, name: &str, user: &Value) -> PathBuf {
        let cluster = json!({
            "server": format!("https://127.0.0.1:{}", self.port()),
            "certificate-authority": self.certificates.path("ca.pem"),
        });
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "test", "cluster": cluster }],
            "users": [{ "name": name, "user": user }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": name } }],
            "current-context": "test",
        });
        let file = self.file(&format!("{name}.kubeconfig"));
        fs::write(&file, config.to_string()).expect("the folder is ours");
        file
    }

    pub(super) fn etcd_data(&self) -> PathBuf {
        self.file("etcd")
    }

    /// Starts etcd.
    pub(super) fn etcd(&self) -> Server {
        let [clients, peers] = &self.etcd.each_ref().map(|port| format!("http://127.0.0.1:{}", port.number()));
        let flags = [
            ("data-dir", self.etcd_data().display().to_string()),
            ("listen-client-urls", clients.clone()),
            ("advertise-client-urls", clients.clone()),
            ("listen-peer-urls", peers.clone()),
            // Nobody cuts the power.
            ("unsafe-no-fsync", "true".to_owned()),
        ];
        self.spawn(servers::etcd(), "etcd", &flags, "ready to serve client requests")
    }

    /// Starts the API server.
    pub(super) fn api_server(&self) -> Server {
        let certificate = |name| self.certificates.path(name).display().to_string();
        let word = str::to_owned;
        let flags = [
            ("etcd-servers", format!("http://127.0.0.1:{}", self.etcd[0].number())),
            ("bind-address", word("127.0.0.1")),
            ("advertise-address", word("127.0.0.1")),
            ("secure-port", self.port().to_string()),
            ("client-ca-file", certificate("ca.pem")),
            ("tls-cert-file", certificate("server.pem")),
            ("tls-private-key-file", certificate("server.key")),
            ("service-account-issuer", word("https://kubernetes.default.svc")),
            ("service-account-key-file", certificate("accounts.pem")),
            ("service-account-signing-key-file", certificate("accounts.key")),
            ("authorization-mode", word("RBAC")),
            ("endpoint-reconciler-type", word("none")),
            ("service-cluster-ip-range", word("10.0.0.0/24")),
            ("audit-policy-file", self.shown("policy.yaml")),
            ("audit-log-path", self.audit_log().display().to_string()),
            // In megabytes: it is never begun anew.
            ("audit-log-maxsize", word("100000")),
        ];
        self.spawn(servers::kube_apiserver(), "kube-apiserver", &flags, "Serving securely on")
    }

    /// Starts a controller manager.
    pub(super) fn controller_manager(&self) -> Server {
        let word = str::to_owned;
        let controllers = "namespace-controller,garbage-collector-controller,serviceaccount-controller,\
                           serviceaccount-token-controller,job-controller";
        let flags = [
            ("kubeconfig", self.kubeconfig().display().to_string()),
            ("bind-address", word("127.0.0.1")),
            ("secure-port", self.controller_manager.number().to_string()),
            ("leader-elect", word("false")),
            ("controllers", word(controllers)),
            ("service-account-private-key-file", self.certificates.path("accounts.key").display().to_string()),
            ("use-service-account-credentials", word("false")),
        ];
        self.spawn(servers::kube_controller_manager(), "kube-controller-manager", &flags, "Serving securely on")
    }

    fn spawn(&self, program: &'static Path, name: &str, flags: &[(&str, String)], listens: &'static str) -> Server {
        let args = flags.iter().map(|(flag, value)| format!("--{flag}={value}")).collect();
        Server::spawn(program, args, listens, self.file(&format!("{name}.log")))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn shown(&self, name: &str) -> String {
        self.file(name).display().to_string()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(self.remover.stdin.take());
        // It removes the folder before we look for it.
        let _ = self.remover.wait();
    }
}
