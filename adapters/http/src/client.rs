//! The client: events to a server that runs on this machine, and questions to it.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use decklog_engine::ingest::Check;
use decklog_engine::replay::Until;
use decklog_projections::inventory::Selection;
use decklog_schemas::answer::{EmitAnswer, Inspected, QuarantineList, TimelineEntry, View};
use decklog_schemas::{ReleaseKey, Sequence};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use crate::content::Content;
use crate::failure::FailureBody;
use crate::parcel::{Parcel, parcels};
use crate::query::{EventsQuery, QuarantineQuery, ReleasesQuery, TimelineQuery};
use crate::socket;
use crate::status::Status;

/// A client of the server on one socket. Any number of calls may be under way at once; each has a connection for
/// itself, and there is no limit to how long an answer may take: a call may be dropped at any time.
#[derive(Debug)]
pub struct Client {
    socket: PathBuf,
    /// A connection that no call uses.
    idle: Mutex<Option<Link>>,
}

/// There is no connection to a server.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No server runs there: there is no such socket, or only what a dead process left.
    #[error("nobody listens on {socket}")]
    NobodyListens {
        /// Path of the socket.
        socket: PathBuf,
    },
    /// A server may run there, and this process cannot talk to it.
    #[error("cannot connect to {socket}")]
    Failed {
        /// Path of the socket.
        socket: PathBuf,
        /// Why.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
}

/// A request was not answered, or not with a result.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server is gone, before or while it was asked. Events may be stored or not: ask again, with the same ids.
    #[error("the server cannot be reached")]
    NotReachable(#[source] Box<dyn Error + Send + Sync>),
    /// The server runs and has no log or no engine at the moment. Ask again later, events with the same ids.
    #[error("the server cannot answer now: {message}")]
    Unavailable {
        /// What the server says.
        message: String,
    },
    /// The server does not take this request, now or later.
    #[error("the server refuses the request with status {status}: {message}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// What the server says.
        message: String,
    },
    /// The server says something that this version of decklog does not understand.
    #[error("the answer of the server cannot be read")]
    Unreadable(#[source] Box<dyn Error + Send + Sync>),
}

/// One connection. It is driven by whoever waits for an answer on it.
#[derive(Debug)]
struct Link {
    requests: SendRequest<Full<Bytes>>,
    connection: Pin<Box<Connection<TokioIo<UnixStream>, Full<Bytes>>>>,
}

type Answer = (StatusCode, Bytes);

// === impl Client ===

impl Client {
    /// A client that has a connection to the server on a socket.
    ///
    /// # Errors
    /// Nobody listens there, or this process cannot connect.
    pub async fn connect(socket: &Path) -> Result<Self, ConnectError> {
        let link = Link::open(socket).await?;
        Ok(Self { socket: socket.to_owned(), idle: Mutex::new(Some(link)) })
    }

    /// Appends events in their order, and waits until they are folded; one answer for each, in order. They go in as
    /// many requests as they need, one after the other.
    ///
    /// # Errors
    /// The server did not answer for all of them. The first ones may be stored: send all again, with the same ids.
    pub async fn append(&self, events: &[Vec<u8>], check: Check) -> Result<Vec<EmitAnswer>, ClientError> {
        let target = target("/v1/events", &EventsQuery::new(check));
        let mut answers = Vec::with_capacity(events.len());
        for parcel in parcels(events) {
            match parcel {
                Parcel::Refused(answer) => answers.push(answer),
                Parcel::Send { content, body, events } => {
                    answers.extend(self.send(&target, content, body, events).await?)
                }
            }
        }
        Ok(answers)
    }

    /// The state of releases as it was at a moment; as it is without one.
    ///
    /// # Errors
    /// The server did not answer.
    pub async fn view(&self, selection: &Selection, until: Option<Until>) -> Result<View, ClientError> {
        self.get("/v1/releases", &ReleasesQuery::new(selection, until)).await
    }

    /// The timeline of a release: from the first event without `since`, to the last without `until`.
    ///
    /// # Errors
    /// The server did not answer.
    pub async fn timeline(
        &self,
        key: &ReleaseKey,
        since: Option<Until>,
        until: Option<Until>,
    ) -> Result<Vec<TimelineEntry>, ClientError> {
        self.get("/v1/timeline", &TimelineQuery::new(key, since, until)).await
    }

    /// What is in quarantine: from the first record without `since`, to the last without `until`.
    ///
    /// # Errors
    /// The server did not answer.
    pub async fn quarantine(&self, since: Option<Until>, until: Option<Until>) -> Result<QuarantineList, ClientError> {
        self.get("/v1/quarantine", &QuarantineQuery::new(since, until)).await
    }

    /// What there is at a place of the log.
    ///
    /// # Errors
    /// The server did not answer.
    pub async fn inspect(&self, sequence: Sequence) -> Result<Inspected, ClientError> {
        let request = request(Method::GET, &format!("/v1/quarantine/{sequence}")).body(Full::default());
        let (status, body) = self.ask(request).await?;
        match serde_json::from_slice(&body) {
            Ok(inspected) => Ok(inspected),
            Err(error) if status.is_success() => Err(unreadable(error)),
            Err(_) => Err(failure(status, &body)),
        }
    }

    /// Whether a server of decklog answers; it does also while its engine catches up.
    ///
    /// # Errors
    /// It does not, or something else listens there.
    pub async fn ping(&self) -> Result<(), ClientError> {
        let request = request(Method::GET, "/healthz").body(Full::default());
        let (status, body) = self.ask(request).await?;
        if status.is_success() && body == *"ok" { Ok(()) } else { Err(failure(status, &body)) }
    }

    /// What the server says of itself.
    ///
    /// # Errors
    /// The server did not answer.
    pub async fn status(&self) -> Result<Status, ClientError> {
        self.get("/v1/status", &()).await
    }

    async fn send(
        &self,
        target: &str,
        content: Content,
        body: Vec<u8>,
        events: usize,
    ) -> Result<Vec<EmitAnswer>, ClientError> {
        let request = request(Method::POST, target).header(CONTENT_TYPE, content.name()).body(Full::from(body));
        let (status, body) = self.ask(request).await?;
        // A list of answers is one whatever the status, which speaks of the worst of them.
        let answers: Vec<EmitAnswer> = match serde_json::from_slice(&body) {
            Ok(answers) => answers,
            Err(error) if status.is_success() => return Err(unreadable(error)),
            Err(_) => return Err(failure(status, &body)),
        };
        if answers.len() == events {
            Ok(answers)
        } else {
            let problem = format!("{} answers came for {events} events", answers.len());
            Err(unreadable(problem))
        }
    }

    async fn get<T: DeserializeOwned>(&self, path: &str, query: &impl Serialize) -> Result<T, ClientError> {
        let request = request(Method::GET, &target(path, query)).body(Full::default());
        let (status, body) = self.ask(request).await?;
        if !status.is_success() {
            return Err(failure(status, &body));
        }
        serde_json::from_slice(&body).map_err(unreadable)
    }

    /// Asks on the idle connection or a new one. The server closes idle ones, and every request may be repeated: it
    /// asks, or it appends events that have ids.
    async fn ask(&self, request: hyper::http::Result<Request<Full<Bytes>>>) -> Result<Answer, ClientError> {
        // All but the names in the query are constants, and those are escaped: only their length can be wrong.
        let request = request.map_err(|error| ClientError::Refused {
            status: StatusCode::URI_TOO_LONG.as_u16(),
            message: error.to_string(),
        })?;
        let idle = self.take_idle();
        if let Some(link) = idle
            && let Ok((answer, link)) = link.ask(request.clone()).await
        {
            self.keep(link);
            return Ok(answer);
        }
        let link = Link::open(&self.socket).await.map_err(not_reachable)?;
        let (answer, link) = link.ask(request).await.map_err(not_reachable)?;
        self.keep(link);
        Ok(answer)
    }

    fn take_idle(&self) -> Option<Link> {
        self.idle().take()
    }

    fn keep(&self, link: Option<Link>) {
        if link.is_some() {
            *self.idle() = link;
        }
    }

    fn idle(&self) -> MutexGuard<'_, Option<Link>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Link ===

impl Link {
    async fn open(socket: &Path) -> Result<Self, ConnectError> {
        let stream = socket::connect(socket).await;
        let stream = stream.map_err(|error| ConnectError::of(socket, error))?;
        let opened = http1::handshake(TokioIo::new(stream)).await;
        let (requests, connection) =
            opened.map_err(|error| ConnectError::Failed { socket: socket.to_owned(), source: error.into() })?;
        Ok(Self { requests, connection: Box::pin(connection) })
    }

    /// The answer, and the connection if it can be used again.
    async fn ask(self, request: Request<Full<Bytes>>) -> Result<(Answer, Option<Self>), hyper::Error> {
        let Self { mut requests, mut connection } = self;
        let answer = {
            let mut answer = pin!(answer(&mut requests, request));
            tokio::select! {
                biased;
                answer = &mut answer => answer?,
                ended = &mut connection => {
                    ended?;
                    // What had arrived is there to be taken; what has not, fails only once the connection is gone.
                    drop(connection);
                    return Ok((answer.await?, None));
                }
            }
        };
        let link = Self { requests, connection };
        Ok((answer, Some(link)))
    }
}

async fn answer(
    requests: &mut SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
) -> Result<Answer, hyper::Error> {
    requests.ready().await?;
    let response = requests.send_request(request).await?;
    let status = response.status();
    let body = response.into_body().collect().await?;
    Ok((status, body.to_bytes()))
}

impl ConnectError {
    fn of(socket: &Path, error: io::Error) -> Self {
        let path = socket.to_owned();
        if socket::nobody_listens(&error) {
            Self::NobodyListens { socket: path }
        } else {
            Self::Failed { socket: path, source: error.into() }
        }
    }
}

fn request(method: Method, target: &str) -> hyper::http::request::Builder {
    Request::builder().method(method).uri(target).header(HOST, "localhost")
}

/// The path with its query, if that says anything.
fn target(path: &str, query: &impl Serialize) -> String {
    match serde_urlencoded::to_string(query) {
        Ok(query) if query.is_empty() => path.to_owned(),
        Ok(query) => format!("{path}?{query}"),
        Err(error) => unreachable!("strings do not fail to be escaped: {error}"),
    }
}

fn failure(status: StatusCode, body: &[u8]) -> ClientError {
    let message = match serde_json::from_slice::<FailureBody>(body) {
        Ok(FailureBody { error, hint: None }) => error,
        Ok(FailureBody { error, hint: Some(hint) }) => format!("{error}; {hint}"),
        Err(_) => String::from_utf8_lossy(body).trim().to_owned(),
    };
    if status == StatusCode::SERVICE_UNAVAILABLE {
        ClientError::Unavailable { message }
    } else {
        ClientError::Refused { status: status.as_u16(), message }
    }
}

fn not_reachable(error: impl Into<Box<dyn Error + Send + Sync>>) -> ClientError {
    ClientError::NotReachable(error.into())
}

fn unreadable(error: impl Into<Box<dyn Error + Send + Sync>>) -> ClientError {
    ClientError::Unreadable(error.into())
}
