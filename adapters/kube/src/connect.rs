//! The connection to a cluster's API server.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use http::header::USER_AGENT;
use kube::client::ClientBuilder;
use kube::{Client, Config};

use crate::kubeconfig::{self, KubeconfigError, Origin, Surroundings, innermost};
use crate::limits::{Limited, Rate};

/// How long it may take until a connection stands.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// How long a write to a connection may take: a server that hangs does not read.
const WRITE_LIMIT: Duration = Duration::from_secs(30);

/// Which cluster, with what users of kubectl know. What is absent is found as kubectl finds it: `$KUBECONFIG`, else
/// `~/.kube/config`, else the ServiceAccount of the Pod that we run in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Access {
    /// File, `--kubeconfig`.
    pub kubeconfig: Option<PathBuf>,
    /// Context, `--context`; the current one if absent.
    pub context: Option<String>,
    /// How many requests are sent, `--kube-api-qps` and `--kube-api-burst`; as many as there are if absent. The Lease
    /// is not held back by it.
    pub rate: Option<Rate>,
}

/// A cluster, cheap to clone. Connections are made when there is something to ask, and again when they break.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    lease_client: Client,
    origin: Arc<Origin>,
    server: Arc<str>,
}

/// No client can be made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// It cannot be told which cluster is meant.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// The certificates, the credentials or the proxy cannot be used.
    #[error("the credentials for the API server at {server} cannot be used ({origin}): {reason}")]
    Credentials {
        /// Its address.
        server: String,
        /// Where the credentials come from.
        origin: Origin,
        /// Why.
        reason: String,
    },
}

/// The API server does not talk to us.
#[derive(Debug, thiserror::Error)]
pub enum ReachError {
    /// It does not know who we are.
    #[error("the API server at {server} does not take the credentials ({origin}): log in again, or try --context")]
    Unauthorized {
        /// Its address.
        server: String,
        /// Where the credentials come from.
        origin: Origin,
    },
    /// No credentials could be got, such as from an exec plugin.
    #[error("there are no credentials for the API server at {server} ({origin}): {reason}")]
    NoCredentials {
        /// Its address.
        server: String,
        /// Where the credentials come from.
        origin: Origin,
        /// Why.
        reason: String,
    },
    /// Nobody answers, or nobody who could be trusted.
    #[error(
        "cannot reach the API server at {server} ({origin}): {reason}; --kubeconfig and --context name another one"
    )]
    Unreachable {
        /// Its address.
        server: String,
        /// Where the address comes from.
        origin: Origin,
        /// Why.
        reason: String,
    },
    /// What answers is no API server, or not a healthy one.
    #[error("the API server at {server} ({origin}) answers with an error: {reason}")]
    Refused {
        /// Its address.
        server: String,
        /// Where the address comes from.
        origin: Origin,
        /// What it says.
        reason: String,
    },
}

// === impl Access ===

impl Access {
    /// Finds the cluster, and makes its clients, without talking to it: [`Cluster::reach`] does.
    ///
    /// # Errors
    /// If it cannot be told which cluster is meant, or what is needed to log in cannot be used.
    pub async fn connect(&self) -> Result<Cluster, ConnectError> {
        let (context, surroundings) = (self.context.as_deref(), Surroundings::of_this_process());
        let (config, origin) = kubeconfig::find(self.kubeconfig.as_deref(), context, &surroundings).await?;
        let config = configured(config);
        let server = config.cluster_url.to_string();
        let server = server.trim_end_matches('/');
        let client = |rate| {
            make(config.clone(), rate).map_err(|error| ConnectError::Credentials {
                server: server.to_owned(),
                origin: origin.clone(),
                reason: reason(&error),
            })
        };
        let (client, lease_client) = (client(self.rate)?, client(None)?);
        Ok(Cluster { client, lease_client, server: server.into(), origin: Arc::new(origin) })
    }
}

/// Ours, of what kube leaves open.
fn configured(mut config: Config) -> Config {
    config.connect_timeout = Some(CONNECT_LIMIT);
    config.write_timeout = Some(WRITE_LIMIT);
    // A limit on each read would end every watch that has nothing to tell: `Limited` holds requests to theirs.
    config.read_timeout = None;
    // kube would hide for minutes that the server is busy, and send writes again of which it is not known whether they
    // were done. What to do then is decided where the release is known.
    config.default_retry = false;
    let agent = HeaderValue::from_static(concat!("decklog/", env!("CARGO_PKG_VERSION")));
    config.headers.push((USER_AGENT, agent));
    config
}

/// A client with connections of its own.
///
/// rustls has but one provider here, for `deny.toml` keeps every other one out, and takes it without being asked: none
/// needs to be installed, beside async-nats neither.
fn make(config: Config, rate: Option<Rate>) -> kube::Result<Client> {
    let builder = ClientBuilder::try_from(config)?;
    Ok(builder.with_layer(&tower::layer::layer_fn(|inner| Limited::new(inner, rate))).build())
}

// === impl Cluster ===

impl Cluster {
    /// The client for everything but the Lease; it keeps to the rate.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The client for the Lease alone: with connections of its own, and not held back by the rate, so that a burst of
    /// writes does not cost us the right to write.
    #[must_use]
    pub fn lease_client(&self) -> Client {
        self.lease_client.clone()
    }

    /// The namespace of the Pod that we run in, else that of the kubeconfig's context, else `default`.
    #[must_use]
    pub fn default_namespace(&self) -> &str {
        self.client.default_namespace()
    }

    /// The address of the API server.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Where address and credentials come from.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Asks the API server for its version, such as `v1.36.3`, which everybody may.
    ///
    /// # Errors
    /// If it does not answer, or not to us.
    pub async fn reach(&self) -> Result<String, ReachError> {
        let version = self.client.apiserver_version().await;
        version.map(|version| version.git_version).map_err(|error| self.unreached(&error))
    }

    fn unreached(&self, error: &kube::Error) -> ReachError {
        let (server, origin) = (self.server.to_string(), Origin::clone(&self.origin));
        match error {
            kube::Error::Api(status) if status.code == 401 => ReachError::Unauthorized { server, origin },
            kube::Error::Api(status) => ReachError::Refused { server, origin, reason: status.message.clone() },
            kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => {
                ReachError::Refused { server, origin, reason: "that is no version of Kubernetes".to_owned() }
            }
            kube::Error::Auth(_) => ReachError::NoCredentials { server, origin, reason: reason(error) },
            error => ReachError::Unreachable { server, origin, reason: reason(error) },
        }
    }
}

/// Why, in one line. Errors of credentials name the plugin or the file in their outermost layer.
fn reason(error: &kube::Error) -> String {
    match error {
        kube::Error::Auth(error) => error.to_string(),
        error => innermost(error),
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("server", &self.server).field("origin", &self.origin).finish_non_exhaustive()
    }
}
