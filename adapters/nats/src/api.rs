//! Requests to the JetStream API: one answer or one error, and a missing permission is told as such.

use async_nats::{RequestError, RequestErrorKind};
use decklog_engine::log::ReadError;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::connect::{Connection, Denial};

/// The API did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// This login may not ask it.
    #[error(transparent)]
    Denied(#[from] Denial),
    /// There is no such stream, consumer or message.
    #[error("{description}")]
    NotFound {
        /// JetStream's own error number.
        code: u64,
        /// In the server's words.
        description: String,
    },
    /// There is no JetStream where it was asked. A leaf node that has lost its hub for a moment meets this too.
    #[error("{lack} at {servers}")]
    NoJetStream {
        /// The servers, fit to be shown.
        servers: String,
        /// What lacks it.
        lack: Lack,
    },
    /// Nobody answers, or nobody who could now: asking again later may succeed.
    #[error("JetStream does not answer {subject}")]
    Unavailable {
        /// What was asked.
        subject: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The server refused.
    #[error("JetStream refuses {subject}: {description} (error {code})")]
    Refused {
        /// What was asked.
        subject: String,
        /// JetStream's own error number.
        code: u64,
        /// In the server's words.
        description: String,
    },
}

/// What has no JetStream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lack {
    /// The server.
    #[error("JetStream is not enabled on the NATS server")]
    Server,
    /// The account of this login, on a server that has it.
    #[error("JetStream is not enabled for the account of this login on the NATS server")]
    Account,
    /// The domain that was named.
    #[error("JetStream is not enabled in the domain {domain:?}, or there is no such domain, for the NATS server")]
    Domain {
        /// Its name.
        domain: String,
    },
}

/// An answer of the API: an error, or what was asked for.
#[derive(Deserialize)]
struct Answer {
    error: Option<ServerSays>,
}

/// An error of JetStream, as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct ServerSays {
    /// As in HTTP.
    pub(crate) code: u16,
    /// JetStream's own number.
    pub(crate) err_code: u64,
    /// In words.
    pub(crate) description: String,
}

/// JetStream's numbers for what it writes as an internal error, although asking again changes nothing: a configuration
/// that it does not take, and replicas without a cluster.
const FINAL: [u64; 2] = [10_052, 10_074];

/// JetStream's number where a message with the same id is being stored just now: a cluster says so to a second attempt.
const IN_PROCESS: u64 = 10_158;

/// JetStream's number for an account that has none.
const NOT_FOR_ACCOUNT: u64 = 10_039;

/// JetStream's number where there is no such message.
pub(crate) const NO_MESSAGE: u64 = 10_037;

impl Connection {
    /// Asks the JetStream API. `what` is the subject without the API's prefix.
    pub(crate) async fn ask<T: DeserializeOwned>(&self, what: &str, body: &Value) -> Result<T, ApiError> {
        let subject = format!("{}.{what}", self.api);
        let unavailable = |source| ApiError::Unavailable { subject: what.to_owned(), source };
        let body = if body.is_null() {
            Vec::new()
        } else {
            serde_json::to_vec(body).map_err(|error| unavailable(error.into()))?
        };
        let asked = self.unless_denied(&subject, self.client.request(subject.clone(), body.into())).await?;
        let message = match asked {
            Err(error) if error.kind() == RequestErrorKind::NoResponders => return Err(self.no_jetstream()),
            asked => asked.map_err(|error| unavailable(error.into()))?,
        };
        let answer: Answer = serde_json::from_slice(&message.payload).map_err(|error| unavailable(error.into()))?;
        match answer.error {
            Some(error) if error.err_code == NOT_FOR_ACCOUNT => Err(self.no_jetstream()),
            Some(error) => Err(error.into_error(what)),
            None => serde_json::from_slice(&message.payload).map_err(|error| unavailable(error.into())),
        }
    }

    /// Nobody has subscribed to the API, or it is not for this account.
    fn no_jetstream(&self) -> ApiError {
        let lack = match &self.domain {
            Some(domain) => Lack::Domain { domain: domain.to_string() },
            None if self.client.server_info().jetstream => Lack::Account,
            None => Lack::Server,
        };
        ApiError::NoJetStream { servers: self.servers.to_string(), lack }
    }

    /// Waits for something, or for the server to say that this login may not publish to that subject, or may not receive
    /// the answer.
    pub(crate) async fn unless_denied<F: Future>(&self, subject: &str, asked: F) -> Result<F::Output, Denial> {
        let mut denials = self.denials();
        let mut deafness = self.deafness();
        let deaf = async {
            match deafness.wait_for(Option::is_some).await.ok().and_then(|denial| denial.clone()) {
                Some(denial) => denial,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            answer = asked => Ok(answer),
            denial = denial_of(&mut denials, subject) => Err(denial),
            denial = deaf => Err(denial),
        }
    }
}

/// Waits until the server says that this login may not do something with a subject.
pub(crate) async fn denial_of(denials: &mut broadcast::Receiver<Denial>, subject: &str) -> Denial {
    loop {
        match denials.recv().await {
            Ok(denial) if denial.subject == subject => return denial,
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

impl ServerSays {
    /// Whether asking again later may succeed.
    pub(crate) fn is_passing(&self) -> bool {
        let is_settled = FINAL.contains(&self.err_code);
        !is_settled && (self.code >= 500 || self.code == 408 || self.code == 429 || self.err_code == IN_PROCESS)
    }

    pub(crate) fn into_error(self, what: &str) -> ApiError {
        let Self { code, err_code, description } = self;
        if code == 404 {
            ApiError::NotFound { code: err_code, description }
        } else if (Self { code, err_code, description: String::new() }).is_passing() {
            ApiError::Unavailable { subject: what.to_owned(), source: description.into() }
        } else {
            ApiError::Refused { subject: what.to_owned(), code: err_code, description }
        }
    }
}

impl ApiError {
    /// Whether nobody has answered, so that it may have been done or not.
    pub(crate) fn is_timeout(&self) -> bool {
        let Self::Unavailable { source, .. } = self else { return false };
        source.downcast_ref::<RequestError>().is_some_and(|error| error.kind() == RequestErrorKind::TimedOut)
    }

    /// What it means to whoever reads the log.
    pub(crate) fn into_read_error(self, stream: &str) -> ReadError {
        match self {
            Self::Denied(denial) => ReadError::Denied(denial.into()),
            Self::NotFound { .. } => ReadError::Missing { log: stream.to_owned() },
            Self::NoJetStream { .. } | Self::Unavailable { .. } => ReadError::Unavailable(self.into()),
            Self::Refused { .. } => ReadError::Refused(self.into()),
        }
    }
}
