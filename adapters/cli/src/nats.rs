//! The log on NATS: who logs in where, and what its errors mean to the user.

use std::path::{Path, PathBuf};

use anyhow::Error;
use decklog_engine::log::ReadError;
use decklog_nats::{Connection, JetStreamLog, Login, STREAM};

use crate::args::NatsArgs;
use crate::config::variable;
use crate::exit::Failure;

/// Servers, login and stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NatsLog {
    /// `nats://host:port[,host:port…]`.
    pub(crate) servers: String,
    pub(crate) login: Login,
    pub(crate) stream: String,
}

impl NatsLog {
    /// Servers that were named, with the login of flags and variables.
    pub(crate) fn new(servers: &str, args: &NatsArgs) -> Self {
        let text = |flag: &Option<String>, name: &str| flag.clone().or_else(|| variable(name));
        let file = |flag: &Option<PathBuf>, name: &str| flag.clone().or_else(|| variable(name).map(PathBuf::from));
        let login = Login {
            creds: file(&args.creds, "DECKLOG_CREDS"),
            nkey: file(&args.nkey, "DECKLOG_NKEY"),
            user: text(&args.user, "DECKLOG_USER"),
            password: text(&args.password, "DECKLOG_PASSWORD"),
            tls_cert: file(&args.tlscert, "DECKLOG_TLSCERT"),
            tls_key: file(&args.tlskey, "DECKLOG_TLSKEY"),
            tls_ca: file(&args.tlsca, "DECKLOG_TLSCA"),
            ..Login::default()
        };
        let stream = text(&args.stream, "DECKLOG_STREAM").unwrap_or_else(|| STREAM.to_owned());
        Self { servers: servers.to_owned(), login, stream }
    }

    /// Connects.
    pub(crate) async fn connect(&self) -> Result<Connection, Error> {
        Ok(Connection::open(&self.servers, &self.login).await?)
    }

    /// Opens the log for reading.
    pub(crate) async fn open(&self) -> Result<JetStreamLog, Error> {
        let connection = self.connect().await?;
        let opened = JetStreamLog::open(&connection, &self.stream).await;
        opened.map_err(|error| self.explain(error))
    }

    /// Opens the log for one that has a checkpoint, perhaps: a stream that has vanished under it is another thing than
    /// one that was never made.
    pub(crate) async fn open_for_checkpoint(&self, checkpoint: &Path) -> Result<JetStreamLog, Error> {
        let connection = self.connect().await?;
        match JetStreamLog::open(&connection, &self.stream).await {
            Err(ReadError::Missing { log }) if checkpoint.join("store/db").exists() => Err(Failure::diverged(format!(
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
            ReadError::Missing { log } => Failure::usage(format!(
                "there is no stream {log} at {0}: `decklog stream init --to {0}` makes it",
                self.servers
            )),
            other => other.into(),
        }
    }
}
