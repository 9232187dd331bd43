//! Keys of NATS users, and servers that know them by their keys: as nkeys, or through JWTs of an operator.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use nkeys::KeyPair;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A user that a server knows by a key, and the file with which it logs in.
#[derive(Debug)]
pub struct KeyUser {
    conf: String,
    file: PathBuf,
    /// Holds the file.
    _folder: TempDir,
}

impl KeyUser {
    /// A user with an nkey and no password.
    #[must_use]
    pub fn nkey() -> Self {
        let user = KeyPair::new_user();
        let conf = format!("authorization {{ users: [ {{ nkey: {} }} ] }}", user.public_key());
        Self::new(conf, &format!("{}\n", seed(&user)))
    }

    /// A user of an operator's account, with credentials as `nsc` writes them, that may publish and subscribe to these.
    #[must_use]
    pub fn creds(publish: &[&str], subscribe: &[&str]) -> Self {
        let (operator, system, account, user) =
            (KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_account(), KeyPair::new_user());
        let all = json!({
            "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1,
            "leaf": -1, "mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1,
        });
        let accounts =
            [(&account, json!({ "type": "account", "limits": all })), (&system, json!({ "type": "account" }))]
                .map(|(account, claims)| format!("{}: {}", account.public_key(), jwt(&operator, account, claims)));
        let conf = format!(
            "operator: {}\nsystem_account: {}\nresolver: MEMORY\nresolver_preload: {{\n{}\n}}",
            jwt(&operator, &operator, json!({ "type": "operator" })),
            system.public_key(),
            accounts.join("\n")
        );
        let permissions = json!({
            "type": "user", "subs": -1, "data": -1, "payload": -1,
            "pub": { "allow": publish }, "sub": { "allow": subscribe },
        });
        let (jwt, seed) = (jwt(&account, &user, permissions), seed(&user));
        let creds = format!(
            "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        );
        Self::new(conf, &creds)
    }

    fn new(conf: String, secret: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let file = folder.path().join("secret");
        std::fs::write(&file, secret).expect("the folder is ours");
        Self { conf, file, _folder: folder }
    }

    /// The lines with which a server knows the user, for [`Settings::conf`](super::settings::Settings::conf).
    #[must_use]
    pub fn conf(&self) -> &str {
        &self.conf
    }

    /// The file with which the user logs in.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }
}

fn seed(pair: &KeyPair) -> String {
    pair.seed().expect("it is a whole pair")
}

/// A token in which the issuer says something of the subject.
fn jwt(issuer: &KeyPair, subject: &KeyPair, mut claims: Value) -> String {
    claims["version"] = json!(2);
    let body = json!({
        "jti": subject.public_key(), "iat": 1, "iss": issuer.public_key(), "sub": subject.public_key(), "name": "test",
        "nats": claims,
    });
    let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(&json!({ "typ": "JWT", "alg": "ed25519-nkey" })), part(&body));
    let signature = issuer.sign(signed.as_bytes()).expect("it is a whole pair");
    format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
}
