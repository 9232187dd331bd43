//! Certificates for servers and clients on the loopback, made with `openssl` and gone with the test.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// An authority, and what it has signed.
#[derive(Debug)]
pub struct Certificates {
    folder: TempDir,
}

impl Certificates {
    /// Makes an authority with a certificate for a server at 127.0.0.1 and one for a client.
    #[must_use]
    pub fn make() -> Self {
        Self::make_in(&env::temp_dir(), "/CN=client")
    }

    /// Makes them in a folder of their own inside of another, with the client named so.
    #[must_use]
    pub fn make_in(folder: &Path, client: &str) -> Self {
        let made = Self { folder: tempfile::tempdir_in(folder).expect("a temporary folder can be made") };
        made.openssl("req -x509 -newkey ed25519 -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.pem");
        for (name, subject, usage) in [("server", "/CN=server", "serverAuth"), ("client", client, "clientAuth")] {
            let extensions = format!("subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage={usage}\n");
            std::fs::write(made.path("extensions"), extensions).expect("the folder is ours");
            made.openssl(&format!(
                "req -new -newkey ed25519 -nodes -subj {subject} -keyout {name}.key -out {name}.csr"
            ));
            made.openssl(&format!(
                "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile extensions \
                 -out {name}.pem"
            ));
        }
        made
    }

    /// A file: `ca.pem`, `server.pem`, `server.key`, `client.pem` or `client.key`.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The block of a server's configuration, with more lines in it.
    #[must_use]
    pub fn conf(&self, more: &str) -> String {
        let [cert, key, ca] = ["server.pem", "server.key", "ca.pem"].map(|name| self.path(name));
        format!("tls {{\ncert_file: {cert:?}\nkey_file: {key:?}\nca_file: {ca:?}\n{more}\n}}")
    }

    /// Runs `openssl` among the files; the words of the line hold no spaces.
    pub(crate) fn openssl(&self, line: &str) {
        let folder: &Path = self.folder.path();
        let mut command = Command::new("openssl");
        command.args(line.split_whitespace()).current_dir(folder).stdin(Stdio::null());
        let run = command.output().expect("openssl can be started");
        assert!(run.status.success(), "openssl {line}: {}", String::from_utf8_lossy(&run.stderr));
    }
}
