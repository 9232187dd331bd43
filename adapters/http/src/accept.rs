//! The loop that accepts connections until it is stopped, and how much of the server a connection may take.

use std::io;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

/// What connections come from.
pub(crate) trait Listener {
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next connection. May be dropped at any time: none is lost by it.
    fn next(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

/// How much of the server its clients may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// How many connections are served at a time; more wait.
    pub(crate) connections: usize,
    pub(crate) requests: Requests,
}

/// The requests of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Requests {
    /// As many as the client likes, and any time for an answer. The head of each comes within a time.
    Many { head_within: Duration },
    /// One, and from the first byte to the last it takes no more than a time.
    One { within: Duration },
}

/// How long open requests have after a stop.
const ANSWER_WITHIN: Duration = Duration::from_secs(4);

/// After what time accepting is tried again when the process has no more files or memory for it.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Serves until `stop` turns true or has no sender any more: then open requests are answered, and it ends within five
/// seconds whatever its clients do.
pub(crate) async fn serve(
    listener: impl Listener,
    router: Router,
    limits: Limits,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = stopped(&mut stop) => break,
            Some(ended) = connections.join_next() => look_at(ended),
            accepted = listener.next(), if connections.len() < limits.connections => match accepted {
                Ok(stream) => {
                    connections.spawn(connection(stream, router.clone(), limits.requests, stop.clone()));
                }
                Err(error) if is_passing(&error) => {
                    tracing::warn!(%error, "Connection cannot be accepted");
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                }
                Err(error) => return Err(error),
            },
        }
    }
    drop(listener);
    let answered = async {
        while let Some(ended) = connections.join_next().await {
            look_at(ended);
        }
    };
    if tokio::time::timeout(ANSWER_WITHIN, answered).await.is_err() {
        tracing::warn!(connections = connections.len(), "Connections are cut off");
    }
    connections.shutdown().await;
    Ok(())
}

async fn connection<S>(stream: S, router: Router, requests: Requests, stop: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new());
    match requests {
        Requests::Many { head_within } => {
            http.header_read_timeout(head_within);
            drive(&http, stream, router, stop).await;
        }
        Requests::One { within } => {
            http.keep_alive(false).header_read_timeout(None);
            if tokio::time::timeout(within, drive(&http, stream, router, stop)).await.is_err() {
                tracing::debug!("Connection took too long");
            }
        }
    }
}

async fn drive<S>(http: &http1::Builder, stream: S, router: Router, mut stop: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = TowerToHyperService::new(router);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopped(&mut stop) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "Connection ended early");
    }
}

/// An error would mean that nobody can stop it any more: time to stop.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// A handler that panics takes its connection with it, and no other.
fn look_at(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "Connection ended by a bug");
    }
}

/// Whether another connection may be accepted later on. Linux passes on what the network says of the connection that
/// it was about to hand out (accept(2)).
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, HostUnreachable, NetworkDown, NetworkUnreachable};
    const ENOMEM: i32 = 12;
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    matches!(error.kind(), ConnectionAborted | ConnectionReset | HostUnreachable | NetworkDown | NetworkUnreachable)
        || matches!(error.raw_os_error(), Some(ENOMEM | ENFILE | EMFILE))
}

// === impl Listener ===

impl Listener for UnixListener {
    type Stream = UnixStream;

    async fn next(&self) -> io::Result<UnixStream> {
        self.accept().await.map(|(stream, _)| stream)
    }
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<TcpStream> {
        self.accept().await.map(|(stream, _)| stream)
    }
}
