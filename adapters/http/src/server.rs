//! The server: requests to their handlers, and the loop that accepts connections until it is stopped.

use std::io;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use decklog_engine::log::Log;
use decklog_engine::service::Handle;
use decklog_projections::inventory::Inventories;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

use crate::routes::{self, quarantine};

/// How many connections are served at a time; more wait.
const MAX_CONNECTIONS: usize = 512;

/// How long a connection may go without the head of a request.
const HEAD_WITHIN: Duration = Duration::from_secs(30);

/// How long open requests have after a stop.
const ANSWER_WITHIN: Duration = Duration::from_secs(4);

/// After what time accepting is tried again when the process has no more files or memory for it.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// The routes over a service.
pub fn router<L: Log>(handle: Handle<L, Inventories>) -> Router {
    Router::new()
        .route("/v1/events", post(routes::append::<L>))
        .route("/v1/releases", get(routes::releases::<L>))
        .route("/v1/timeline", get(routes::timeline::<L>))
        .route("/v1/quarantine", get(quarantine::list::<L>))
        .route("/v1/quarantine/{sequence}", get(quarantine::one::<L>))
        .route("/v1/status", get(routes::status::<L>))
        .route("/healthz", get(routes::healthz))
        .fallback(routes::not_found)
        .method_not_allowed_fallback(routes::method_not_allowed)
        .with_state(handle)
}

/// Serves until `stop` turns true or has no sender any more: then open requests are answered, and it ends within five
/// seconds whatever its clients do. Appends among them need the service, so that is to be stopped behind this.
///
/// # Errors
/// The listener fails.
pub async fn serve(listener: UnixListener, router: Router, mut stop: watch::Receiver<bool>) -> io::Result<()> {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = stopped(&mut stop) => break,
            Some(ended) = connections.join_next() => look_at(ended),
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, router.clone(), stop.clone()));
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

async fn connection(stream: UnixStream, router: Router, mut stop: watch::Receiver<bool>) {
    let service = TowerToHyperService::new(router);
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN);
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

/// Whether another connection may be accepted later on.
fn is_passing(error: &io::Error) -> bool {
    const ENOMEM: i32 = 12;
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    error.kind() == io::ErrorKind::ConnectionAborted || matches!(error.raw_os_error(), Some(ENOMEM | ENFILE | EMFILE))
}
