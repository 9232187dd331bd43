//! The server: requests to their handlers, on a Unix socket.

use std::io;
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use decklog_engine::log::Log;
use decklog_engine::service::Handle;
use decklog_projections::inventory::Inventories;
use tokio::net::UnixListener;
use tokio::sync::watch;

use crate::accept::{self, Limits, Requests};
use crate::routes::{self, quarantine};

/// Clients are processes of this user. The head of a request comes soon, and an answer may take what a replay takes.
const LIMITS: Limits = Limits { connections: 512, requests: Requests::Many { head_within: Duration::from_secs(30) } };

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
pub async fn serve(listener: UnixListener, router: Router, stop: watch::Receiver<bool>) -> io::Result<()> {
    accept::serve(listener, router, LIMITS, stop).await
}
