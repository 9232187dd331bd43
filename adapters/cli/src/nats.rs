//! The log on NATS: who logs in where, and what its errors mean to the user.

use std::path::{Path, PathBuf};

use anyhow::Error;
use decklog_engine::checkpoint::CheckpointStore as _;
use decklog_engine::log::ReadError;
use decklog_nats::permissions::Role;
use decklog_nats::{ApiError, ConnectError, Connection, Denial, JetStreamLog, Lack, Login, STREAM, shown};
use decklog_sled::SledCheckpoints;

use crate::args::NatsArgs;
use crate::config::variable;
use crate::context::spelled_out;
use crate::exit::Failure;

/// Servers, login and stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NatsLog {
    /// `nats://host:port[,host:port…]`, without the secrets that may be in it: fit to be shown.
    pub(crate) servers: String,
    address: String,
    pub(crate) login: Login,
    pub(crate) stream: String,
}

impl NatsLog {
    /// Servers that were named, with the login of flags, variables and context, in this order.
    pub(crate) fn new(servers: &str, args: &NatsArgs) -> Self {
        let text = |flag: &Option<String>, name: &str| flag.clone().or_else(|| variable(name));
        let file = |flag: &Option<PathBuf>, name: &str| flag.clone().or_else(|| variable(name).map(PathBuf::from));
        let given = Login {
            creds: file(&args.creds, "DECKLOG_CREDS"),
            nkey: file(&args.nkey, "DECKLOG_NKEY"),
            user: text(&args.user, "DECKLOG_USER"),
            password: text(&args.password, "DECKLOG_PASSWORD"),
            tls_cert: file(&args.tlscert, "DECKLOG_TLSCERT"),
            tls_key: file(&args.tlskey, "DECKLOG_TLSKEY"),
            tls_ca: file(&args.tlsca, "DECKLOG_TLSCA"),
            ..Login::default()
        };
        let context = args.context.as_ref().map(|context| context.login.clone()).unwrap_or_default();
        let stream = text(&args.stream, "DECKLOG_STREAM").unwrap_or_else(|| STREAM.to_owned());
        Self { servers: shown(servers), address: servers.to_owned(), login: over(given, context), stream }
    }

    /// Connects.
    pub(crate) async fn connect(&self) -> Result<Connection, Error> {
        Connection::open(&self.address, &self.login).await.map_err(|error| match error {
            ConnectError::Login(error) => Failure::usage(spelled_out(&error)),
            ConnectError::Address { .. } => Failure::usage(error.to_string()),
            error => error.into(),
        })
    }

    /// Opens the log for reading.
    pub(crate) async fn open(&self) -> Result<JetStreamLog, Error> {
        let connection = self.connect().await?;
        let opened = JetStreamLog::open(&connection, &self.stream).await;
        opened.map_err(|error| self.explain(error))
    }

    /// Opens the log for one that has a checkpoint, perhaps: a stream that has vanished under it is another thing than
    /// one that was never made.
    pub(crate) async fn open_for_checkpoint(
        &self,
        checkpoint: &Path,
        store: &mut SledCheckpoints,
    ) -> Result<JetStreamLog, Error> {
        let connection = self.connect().await?;
        match JetStreamLog::open(&connection, &self.stream).await {
            Err(ReadError::Missing { log }) if store.load().await?.is_some() => Err(Failure::diverged(format!(
                "there is no stream {log} at {} any more, and a checkpoint that was made from it is in {}: nothing was \
                 changed; restore the stream from a backup, or remove the checkpoint to begin with a new one",
                self.servers,
                checkpoint.display()
            ))),
            opened => opened.map_err(|error| self.explain(error)),
        }
    }

    /// Opens the log for those who only append: they may not be allowed to ask whether it is there.
    pub(crate) async fn open_to_append(&self) -> Result<JetStreamLog, Error> {
        let connection = self.connect().await?;
        match JetStreamLog::open(&connection, &self.stream).await {
            Err(ReadError::Denied(_)) => Ok(JetStreamLog::unchecked(&connection, &self.stream)),
            opened => opened.map_err(|error| self.explain(error)),
        }
    }

    fn explain(&self, error: ReadError) -> Error {
        match error {
            ReadError::Missing { log } => self.missing(&log),
            other => other.into(),
        }
    }

    /// There is no such stream.
    pub(crate) fn missing(&self, stream: &str) -> Error {
        let named = if stream == STREAM { String::new() } else { format!(" --stream {stream}") };
        Failure::usage(format!(
            "there is no stream {stream} at {0}: `decklog stream init --to {0}{named}` makes it",
            self.servers
        ))
    }
}

/// What was given, and of the context what was not. Who logs in comes from one of them: the password of one user is none
/// of another.
fn over(given: Login, context: Login) -> Login {
    let names_user = given.creds.is_some() || given.nkey.is_some() || given.user.is_some();
    let other = if names_user { Login::default() } else { context.clone() };
    let names_certificate = given.tls_cert.is_some() || given.tls_key.is_some();
    let certificate =
        if names_certificate { (given.tls_cert, given.tls_key) } else { (context.tls_cert, context.tls_key) };
    let (tls_cert, tls_key) = certificate;
    Login {
        creds: given.creds.or(other.creds),
        nkey: given.nkey.or(other.nkey),
        user: given.user.or(other.user),
        password: given.password.or(other.password),
        token: other.token,
        tls_cert,
        tls_key,
        tls_ca: given.tls_ca.or(context.tls_ca),
        tls_first: context.tls_first,
        inbox_prefix: context.inbox_prefix,
        domain: context.domain,
    }
}

/// The way out for somebody whose login may not do something, or who asks where there is no JetStream.
pub(crate) fn way_out(error: &Error) -> Option<String> {
    let api = error.chain().find_map(|layer| layer.downcast_ref::<ApiError>());
    match api {
        Some(ApiError::NoJetStream { lack, .. }) => Some(way_to_jetstream(lack).to_owned()),
        _ => way_out_of_denial(error),
    }
}

fn way_to_jetstream(lack: &Lack) -> &'static str {
    match lack {
        Lack::Server => {
            "put `jetstream {}` into its configuration or start it with -js, or name a server that has JetStream"
        }
        Lack::Account => {
            "enable it there, in the server's configuration with `jetstream: enabled` or in the account's JWT, or log in \
             to another account"
        }
        Lack::Domain { .. } => {
            "check jetstream_domain of the NATS context, and whether the leaf node is connected to that domain"
        }
    }
}

fn way_out_of_denial(error: &Error) -> Option<String> {
    let denial = error.chain().find_map(|layer| match layer.downcast_ref::<ApiError>() {
        Some(ApiError::Denied(denial)) => Some(denial),
        _ => layer.downcast_ref::<Denial>(),
    })?;
    let changes = ["CREATE", "UPDATE"].map(|verb| format!(".API.STREAM.{verb}."));
    if changes.iter().any(|change| denial.subject.contains(change)) {
        return Some("log in as somebody who may make streams".to_owned());
    }
    if !denial.subject.contains(".API.") {
        let inbox = "its answers come to a subject under `_INBOX`, or under the inbox_prefix of a NATS context";
        return Some(format!("{inbox}, to which it must be allowed to subscribe"));
    }
    let role = Role::Auditor;
    Some(format!("`decklog stream permissions --writer {role}` prints what a login needs that reads a log"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(user: &str, password: &str) -> Login {
        Login { user: Some(user.to_owned()), password: Some(password.to_owned()), ..Login::default() }
    }

    #[test]
    fn a_user_that_was_given_comes_without_the_secrets_of_the_context() {
        let context = Login { token: Some("t".to_owned()), tls_ca: Some("ca".into()), ..login("ada", "hers") };
        let given = Login { creds: Some("bob.creds".into()), ..Login::default() };
        let expected = Login { tls_ca: context.tls_ca.clone(), ..given.clone() };
        assert_eq!(over(given, context.clone()), expected);
        assert_eq!(over(login("bob", "his"), context.clone()).token, None);
        let password = Login { password: Some("new".to_owned()), ..Login::default() };
        let expected = Login { password: Some("new".to_owned()), ..context.clone() };
        assert_eq!(over(password, context.clone()), expected);
        assert_eq!(over(Login::default(), context.clone()), context);
    }
}
