//! The connection to NATS: logging in, the server's version, and what the server says on the side.

use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, ConnectErrorKind, Event, ServerAddr, ServerError};
use tokio::sync::{broadcast, watch};

use crate::login::{Login, LoginError};

/// A connection that is made anew whenever it breaks, cheap to clone.
#[derive(Clone, Debug)]
pub struct Connection {
    pub(crate) client: Client,
    /// The servers, fit to be shown.
    pub(crate) servers: Arc<str>,
    pub(crate) api: Arc<str>,
    /// The JetStream domain, if one is named.
    pub(crate) domain: Option<Arc<str>>,
    pub(crate) context: async_nats::jetstream::Context,
    signals: Signals,
}

/// What the server and the client say on the side.
#[derive(Clone, Debug)]
struct Signals {
    session: watch::Sender<Session>,
    denials: broadcast::Sender<Denial>,
    /// Set if this login may not receive answers: the server says so once, and then they never come.
    deaf: watch::Sender<Option<Denial>>,
    /// What the subjects of answers begin with.
    inbox: Arc<str>,
}

/// Which of the connections it is that were made one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    /// Counts them.
    pub(crate) number: u64,
    /// Whether it stands.
    pub(crate) is_up: bool,
}

/// The server refused an operation of this login. It says so on the connection, and not where one waits for an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("permission denied: this login may not {verb} {subject:?}")]
pub struct Denial {
    /// `publish to` or `subscribe to`.
    pub verb: &'static str,
    /// The subject.
    pub subject: String,
}

/// No connection could be made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// A file of the login cannot be used.
    #[error(transparent)]
    Login(#[from] LoginError),
    /// The servers' address cannot be read.
    #[error("{text:?} is not the address of a NATS server, such as nats://127.0.0.1:4222")]
    Address {
        /// What was given.
        text: String,
    },
    /// The server does not know the login.
    #[error(
        "the NATS server at {servers} refuses the login: check --creds, --nkey, --user and --password, or the context"
    )]
    Refused {
        /// The servers.
        servers: String,
    },
    /// Nobody answers.
    #[error("cannot reach a NATS server at {servers}")]
    Unreachable {
        /// The servers.
        servers: String,
        /// Why.
        #[source]
        source: async_nats::ConnectError,
    },
    /// The server lacks what the log is built on.
    #[error(
        "the NATS server at {servers} is of version {version}, and decklog needs {}.{} or newer: it ignores without a \
         word what decklog asks of it", MIN_SERVER.0, MIN_SERVER.1
    )]
    TooOld {
        /// The servers.
        servers: String,
        /// What the server says it is.
        version: String,
    },
}

/// The oldest server that is supported: older ones ignore the headers by which an append names its expected tail.
pub const MIN_SERVER: (i64, i64) = (2, 12);

/// What a login does that may not subscribe.
const SUBSCRIBE: &str = "subscribe to";

/// How long one attempt to connect may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a request waits for its answer.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// How often the server is asked whether it is there: a connection that went silent is given up after two or three.
const PING_EVERY: Duration = Duration::from_secs(10);

/// How many commands wait in the client for the connection to come back: more than are ever in flight.
const CLIENT_CAPACITY: usize = 8_192;

/// How many denials are remembered for those who wait for an answer.
const DENIALS: usize = 4_096;

impl Connection {
    /// Connects to one of the servers, given as `nats://host:port[,host:port…]` or `tls://…`.
    ///
    /// # Errors
    /// A file of the login cannot be used, nobody answers there, the login is refused, or the server is older than
    /// [`MIN_SERVER`].
    pub async fn open(servers: &str, login: &Login) -> Result<Self, ConnectError> {
        let addresses = addresses(servers)?;
        let signals = Signals {
            session: watch::Sender::new(Session { number: 0, is_up: false }),
            denials: broadcast::Sender::new(DENIALS),
            deaf: watch::Sender::new(None),
            inbox: format!("{}.", login.inbox_prefix.as_deref().unwrap_or("_INBOX")).into(),
        };
        // Addresses may have a password in them, and errors are shown.
        let servers = &shown(servers);
        let listener = signals.clone();
        let login = &login.with_userinfo(&addresses);
        // The client writes addresses into its own log, as they are.
        let addresses = addresses.iter().map(without_userinfo).collect::<Result<Vec<_>, _>>()?;
        let options = login
            .options()?
            .name("decklog")
            .connection_timeout(CONNECT_TIMEOUT)
            .request_timeout(Some(REQUEST_TIMEOUT))
            .ping_interval(PING_EVERY)
            .client_capacity(CLIENT_CAPACITY)
            .event_callback(move |event| {
                let signals = listener.clone();
                async move { signals.take(&event) }
            });
        let client = options.connect(addresses).await.map_err(|source| match source.kind() {
            ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
                ConnectError::Refused { servers: servers.to_owned() }
            }
            _ => ConnectError::Unreachable { servers: servers.to_owned(), source },
        })?;
        let info = client.server_info();
        if !is_supported(&info.version) {
            return Err(ConnectError::TooOld { servers: servers.to_owned(), version: info.version });
        }
        // The client tells so on the side.
        let mut session = signals.session.subscribe();
        let up = session.wait_for(|session| session.is_up);
        let _ = tokio::time::timeout(CONNECT_TIMEOUT, up).await;
        let context = match &login.domain {
            Some(domain) => async_nats::jetstream::with_domain(client.clone(), domain),
            None => async_nats::jetstream::new(client.clone()),
        };
        let api = login.domain.as_ref().map_or("$JS.API".to_owned(), |domain| format!("$JS.{domain}.API"));
        let (servers, domain) = (servers.as_str().into(), login.domain.as_deref().map(Arc::from));
        Ok(Self { client, servers, api: api.into(), domain, context, signals })
    }

    /// What the server says of itself.
    #[must_use]
    pub fn server_version(&self) -> String {
        self.client.server_info().version
    }

    /// The session that stands, or that stood last.
    pub(crate) fn session(&self) -> Session {
        *self.signals.session.borrow()
    }

    /// Tells of each change of the session.
    pub(crate) fn sessions(&self) -> watch::Receiver<Session> {
        self.signals.session.subscribe()
    }

    /// Why this login cannot receive answers, if so.
    pub(crate) fn deaf(&self) -> Option<Denial> {
        self.signals.deaf.borrow().clone()
    }

    /// Tells if this login may not receive answers.
    pub(crate) fn deafness(&self) -> watch::Receiver<Option<Denial>> {
        self.signals.deaf.subscribe()
    }

    /// Tells of each operation that the server refuses from now on.
    pub(crate) fn denials(&self) -> broadcast::Receiver<Denial> {
        self.signals.denials.subscribe()
    }
}

impl Signals {
    fn take(&self, event: &Event) {
        match event {
            Event::Connected => {
                if self.session.borrow().number > 0 {
                    tracing::info!("Connection to NATS is back");
                }
                // The server says it again if it still holds.
                self.deaf.send_replace(None);
                self.session.send_modify(|session| {
                    session.number += 1;
                    session.is_up = true;
                });
            }
            Event::Disconnected => {
                tracing::warn!("Connection to NATS is lost");
                self.session.send_modify(|session| session.is_up = false);
            }
            Event::Closed => self.session.send_modify(|session| session.is_up = false),
            Event::ServerError(ServerError::Other(text)) => match Denial::read(text) {
                Some(denial) => {
                    if denial.verb == SUBSCRIBE && denial.subject.starts_with(&*self.inbox) {
                        self.deaf.send_replace(Some(denial.clone()));
                    }
                    // Nobody may be waiting.
                    let _ = self.denials.send(denial);
                }
                None => tracing::warn!(error = %text, "NATS server reports an error"),
            },
            other => tracing::debug!(event = %other, "NATS client reports"),
        }
    }
}

impl Denial {
    /// Reads `Permissions Violation for Publish to "a.b"`, as servers write it.
    fn read(text: &str) -> Option<Self> {
        let rest = text
            .strip_prefix("Permissions Violation for ")
            .or_else(|| text.strip_prefix("permissions violation for "))?;
        let (verb, rest) = match rest.split_once(" to ")? {
            ("Publish" | "publish", rest) => ("publish to", rest),
            ("Subscription" | "subscription", rest) => (SUBSCRIBE, rest),
            _ => return None,
        };
        Some(Self { verb, subject: rest.trim_start_matches('"').split('"').next()?.to_owned() })
    }
}

fn addresses(servers: &str) -> Result<Vec<ServerAddr>, ConnectError> {
    let bad = |text: &str| ConnectError::Address { text: shown(text) };
    let scheme = if servers.starts_with("tls://") { "tls://" } else { "nats://" };
    servers
        .split(',')
        .map(str::trim)
        .map(|server| {
            let server = if server.contains("://") { server.to_owned() } else { format!("{scheme}{server}") };
            let address = server.parse::<ServerAddr>().map_err(|_| bad(&server))?;
            if address.host().is_empty() { Err(bad(&server)) } else { Ok(address) }
        })
        .collect()
}

/// The addresses of servers without the secrets that may be in them, for people.
#[must_use]
pub fn shown(servers: &str) -> String {
    let without = |server: &str| match (server.find("://").map_or(0, |at| at + 3), server.rfind('@')) {
        (start, Some(at)) if at >= start => format!("{}…{}", &server[..start], &server[at..]),
        _ => server.to_owned(),
    };
    servers.split(',').map(without).collect::<Vec<_>>().join(",")
}

fn without_userinfo(address: &ServerAddr) -> Result<ServerAddr, ConnectError> {
    let text = address.clone().into_inner().to_string();
    let bare = match (text.find("://").map(|at| at + 3), text.rfind('@')) {
        (Some(start), Some(at)) if at >= start => format!("{}{}", &text[..start], &text[at + 1..]),
        _ => return Ok(address.clone()),
    };
    bare.parse().map_err(|_| ConnectError::Address { text: shown(&text) })
}

fn is_supported(version: &str) -> bool {
    let mut numbers = version.split(['.', '-']).map_while(|number| number.parse::<i64>().ok());
    let (major, minor) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    (major, minor) >= MIN_SERVER
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        for version in ["2.12.0", "2.15.1", "2.100.0", "3.0.0-beta.1"] {
            assert!(is_supported(version), "{version}");
        }
        for version in ["2.9.10", "2.11.9", "", "1.99.0", "dev"] {
            assert!(!is_supported(version), "{version}");
        }
    }

    #[test]
    fn denials_name_their_subject() {
        let denial = Denial::read("Permissions Violation for Publish to \"decklog.release.a.b.c.d.E\"");
        assert_eq!(
            denial.map(|denial| denial.to_string()).as_deref(),
            Some("permission denied: this login may not publish to \"decklog.release.a.b.c.d.E\"")
        );
        let denial = Denial::read("Permissions Violation for Subscription to \"decklog.>\" using queue \"q\"");
        assert_eq!(denial.map(|denial| (denial.verb, denial.subject)), Some(("subscribe to", "decklog.>".to_owned())));
        assert_eq!(Denial::read("Stale Connection"), None);
    }

    #[test]
    fn servers_are_named_as_nats_users_do() {
        for servers in ["nats://127.0.0.1:4222", "nats://a:1,b:2", "tls://a,b", "a:4222", "nats://user:word@a:1"] {
            assert!(addresses(servers).is_ok(), "{servers}");
        }
        assert!(addresses("nats://").is_err());
    }

    #[test]
    fn secrets_in_addresses_are_not_shown() {
        assert_eq!(shown("nats://user:w@rd@a:1,token@b,tls://c"), "nats://…@a:1,…@b,tls://c");
    }
}
