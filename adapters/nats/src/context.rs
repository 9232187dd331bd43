//! Contexts of the NATS CLI: files of its own that say where the servers are and who logs in.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::login::Login;

/// What a context says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// The servers, as for [`Connection::open`](crate::Connection::open).
    pub servers: String,
    /// Who logs in.
    pub login: Login,
}

/// A context cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    /// There is none of this name.
    #[error("there is no NATS context {name:?} in {}: {}", folder.display(), listed(there))]
    Unknown {
        /// The name.
        name: String,
        /// Where contexts are.
        folder: PathBuf,
        /// Those that are there.
        there: Vec<String>,
    },
    /// The file cannot be read.
    #[error("cannot read the NATS context in {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file is no context.
    #[error("{} is no NATS context", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// It logs in, or gets to the servers, in a way that decklog does not know.
    #[error("the NATS context in {} has {field}{value}, which decklog does not support: {way_out}", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// The field.
        field: &'static str,
        /// Which kind of value it is that is not supported, if others are.
        value: String,
        /// What to do.
        way_out: &'static str,
    },
}

/// The file, as far as it means something to decklog. Strings that are empty say nothing.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct File {
    url: String,
    user: String,
    password: String,
    token: String,
    creds: String,
    nkey: String,
    cert: String,
    key: String,
    ca: String,
    inbox_prefix: String,
    jetstream_domain: String,
    tls_first: bool,
}

/// Where the NATS CLI looks if a context names no servers.
const DEFAULT_SERVERS: &str = "nats://127.0.0.1:4222";

/// Fields that say who logs in or where, in a way that decklog does not know, and the way out.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("nsc", "write the credentials to a file with `nsc generate creds`, and name that in creds"),
    ("user_jwt", "put the JWT and its seed into a credentials file, and name that in creds"),
    ("user_seed", "put the JWT and its seed into a credentials file, and name that in creds"),
    ("socks_proxy", "name servers that are reached without a proxy"),
    ("jetstream_api_prefix", "use jetstream_domain, or import the API under its usual subjects"),
    ("windows_cert_store", "name the files of certificate and key in cert and key"),
    ("windows_cert_match", "name the files of certificate and key in cert and key"),
    ("windows_ca_certs_match", "name the file of the authorities in ca"),
];

/// Places other than files from which newer versions of the NATS CLI take a secret.
const REMOTE: [&str; 4] = ["op://", "nsc://", "env://", "data:"];

impl Context {
    /// Reads the context of a name, in the folder where the NATS CLI keeps its contexts. A `~` at the beginning of a path
    /// in it is the home folder.
    ///
    /// # Errors
    /// There is no such context; it cannot be read; or it has a field that would change who logs in or where, and that
    /// decklog does not know.
    pub fn read(folder: &Path, name: &str, home: &Path) -> Result<Self, ContextError> {
        let unknown =
            || ContextError::Unknown { name: name.to_owned(), folder: folder.to_owned(), there: known(folder) };
        // As the NATS CLI has it: a name is no path.
        if name.is_empty() || name.contains("..") || name.contains(std::path::is_separator) {
            return Err(unknown());
        }
        let path = folder.join(format!("{name}.json"));
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(unknown()),
            read => read.map_err(|source| ContextError::Io { path: path.clone(), source })?,
        };
        Self::parse(&text, &path, home)
    }

    fn parse(text: &str, path: &Path, home: &Path) -> Result<Self, ContextError> {
        let malformed = |source| ContextError::Malformed { path: path.to_owned(), source };
        let fields: Map<String, Value> = serde_json::from_str(text).map_err(malformed)?;
        for (field, way_out) in UNSUPPORTED {
            if fields.get(*field).is_some_and(says_something) {
                let (path, value) = (path.to_owned(), String::new());
                return Err(ContextError::Unsupported { path, field, value, way_out });
            }
        }
        let file: File = serde_json::from_value(Value::Object(fields)).map_err(malformed)?;
        let place = |field, text: &str| {
            let text = text.strip_prefix("file://").unwrap_or(text);
            let path = match text.strip_prefix('~') {
                Some(rest) => home.join(rest.trim_start_matches('/')),
                None => PathBuf::from(text),
            };
            local(field, text, path.as_path()).map(|is_there| is_there.then_some(path))
        };
        let secret = |field, text: &str| {
            let has_scheme = REMOTE.iter().chain(&["file://"]).any(|scheme| text.starts_with(scheme));
            if has_scheme { Err(remote(field, text)) } else { Ok(own(text)) }
        };
        let login = || -> Result<Login, (&'static str, String)> {
            // The NATS CLI takes the first of these three.
            let (user, creds) = (own(&file.user), place("creds", &file.creds)?);
            let nkey = place("nkey", &file.nkey)?;
            Ok(Login {
                nkey: nkey.filter(|_| user.is_none() && creds.is_none()),
                creds: creds.filter(|_| user.is_none()),
                user,
                password: secret("password", &file.password)?,
                token: secret("token", &file.token)?,
                tls_cert: place("cert", &file.cert)?,
                tls_key: place("key", &file.key)?,
                tls_ca: place("ca", &file.ca)?,
                tls_first: file.tls_first,
                inbox_prefix: own(&file.inbox_prefix),
                domain: own(&file.jetstream_domain),
            })
        };
        let login = login().map_err(|(field, value)| ContextError::Unsupported {
            path: path.to_owned(),
            field,
            value,
            way_out: "name a file, or write the secret itself",
        })?;
        Ok(Self { servers: own(&file.url).unwrap_or_else(|| DEFAULT_SERVERS.to_owned()), login })
    }
}

/// Whether a path names a file at all; an error if it names a place that is none.
fn local(field: &'static str, text: &str, path: &Path) -> Result<bool, (&'static str, String)> {
    if REMOTE.iter().any(|scheme| text.starts_with(scheme)) {
        return Err(remote(field, text));
    }
    Ok(!path.as_os_str().is_empty())
}

/// The kind of a value, and not the value itself, which may be a secret.
fn remote(field: &'static str, text: &str) -> (&'static str, String) {
    let scheme = text.split(':').next().unwrap_or_default();
    (field, format!(" from {scheme}:"))
}

fn own(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn says_something(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => true,
    }
}

/// The names of the contexts in a folder.
fn known(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let mut names: Vec<_> = entries
        .filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".json").map(str::to_owned))
        .filter(|name| !name.is_empty())
        .collect();
    names.sort();
    names
}

fn listed(there: &[String]) -> String {
    if there.is_empty() { "there are none".to_owned() } else { format!("there are {}", there.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Context, ContextError> {
        Context::parse(text, Path::new("/c/prod.json"), Path::new("/home/ada"))
    }

    fn refusal(text: &str) -> String {
        parse(text).expect_err("it is refused").to_string()
    }

    #[test]
    fn a_context_as_the_nats_cli_writes_it() {
        let text = r#"{"description":"","url":"nats://a:4222,b","socks_proxy":"","token":"","user":"","password":"",
            "creds":"~/prod.creds","nkey":"","cert":"/tls/cert.pem","key":"/tls/key.pem","ca":"file:///tls/ca.pem","nsc":"",
            "jetstream_domain":"hub","jetstream_api_prefix":"","jetstream_event_prefix":"","inbox_prefix":"_MINE",
            "user_jwt":"","color_scheme":"red","tls_first":true,"windows_ca_certs_match":null}"#;
        let context = parse(text).expect("it is a context");
        assert_eq!(context.servers, "nats://a:4222,b");
        let expected = Login {
            creds: Some("/home/ada/prod.creds".into()),
            tls_cert: Some("/tls/cert.pem".into()),
            tls_key: Some("/tls/key.pem".into()),
            tls_ca: Some("/tls/ca.pem".into()),
            tls_first: true,
            inbox_prefix: Some("_MINE".to_owned()),
            domain: Some("hub".to_owned()),
            ..Login::default()
        };
        assert_eq!(context.login, expected);
    }

    #[test]
    fn of_several_logins_the_nats_cli_takes_the_first() {
        let context = parse(r#"{"user":"ada","password":"word","creds":"c","nkey":"n"}"#).expect("it is a context");
        let login = context.login;
        assert_eq!((login.user.as_deref(), login.creds, login.nkey), (Some("ada"), None, None));
        assert_eq!(context.servers, DEFAULT_SERVERS);
    }

    #[test]
    fn what_would_change_the_login_is_not_ignored() {
        let refused = refusal(r#"{"url":"nats://a","nsc":"nsc://o/a/u"}"#);
        assert!(
            refused.starts_with("the NATS context in /c/prod.json has nsc, which decklog does not support"),
            "{refused}"
        );
        for (field, _) in UNSUPPORTED {
            let value = if field.ends_with("ca_certs_match") { r#"["x"]"# } else { r#""x""# };
            assert!(refusal(&format!(r#"{{"{field}":{value}}}"#)).contains(field), "{field}");
        }
        let refused = refusal(r#"{"creds":"op://vault/secret"}"#);
        assert!(refused.contains("has creds from op:,") && !refused.contains("vault"), "{refused}");
        assert!(refusal(r#"{"user":"u","password":"env://WORD"}"#).contains("password from env:"));
        assert_eq!(refusal("[]"), "/c/prod.json is no NATS context");
    }
}
