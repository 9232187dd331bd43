//! The probes and the metrics of a Pod, over TCP: whether it works, whether it is ready, and its figures.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri};
use axum::response::Response;
use axum::routing::get;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::accept::{self, Limits, Requests};
use crate::metrics;

/// What the answers are made of. Each is read anew for every request.
#[derive(Clone, Debug)]
pub struct Probes {
    /// `/healthz`. Belongs to the engine's task: once it has no sender any more, that task is gone.
    pub health: watch::Receiver<Health>,
    /// `/readyz`. Without a sender it is not ready.
    pub readiness: watch::Receiver<Readiness>,
    /// `/metrics`, with the metrics of every adapter. A collector in it runs in the server's task and must not block.
    pub metrics: Arc<Registry>,
}

/// Whether the process works: a Pod that does not is restarted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// The engine runs.
    Running,
    /// It does not, or in vain.
    Failed {
        /// Why, as one sentence.
        reason: String,
    },
}

/// Whether the process has caught up: until then a rollout waits for the Pod, and leaves the one before it in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Not yet.
    CatchingUp {
        /// What it waits for, as one sentence.
        waits_for: String,
    },
    /// It has.
    Ready,
    /// It did, and it is told to stop.
    Stopping,
}

/// A port that is taken, on which nothing is answered yet.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
}

/// The probes have no port.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Somebody listens there. Choose another port, or 0 for one that is free.
    #[error("another process listens on {address}")]
    InUse {
        /// The address with its port.
        address: SocketAddr,
    },
    /// The system refuses.
    #[error("cannot listen on {address}")]
    Failed {
        /// The address with its port.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// A text, and the status that it goes with.
type Answer = (StatusCode, String);

/// Whoever listens on a network does not choose its clients. A scrape of Prometheus has ten seconds too, if nothing
/// else is configured there.
const LIMITS: Limits = Limits { connections: 64, requests: Requests::One { within: Duration::from_secs(10) } };

const INDEX: &str = "\
/healthz  200 while it works, else 503 and the reason
/readyz   200 once it has caught up, else 503 and what it waits for
/metrics  figures, as OpenMetrics text
";

/// Takes the port of `address`, or with port 0 one that is free. To be called within a runtime.
///
/// # Errors
/// Somebody listens there, or the system refuses.
pub async fn bind(address: SocketAddr) -> Result<Bound, BindError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::AddrInUse => BindError::InUse { address },
        _ => BindError::Failed { address, source },
    };
    let listener = match TcpListener::bind(address).await {
        // All addresses are meant, and where IPv6 is switched off those are of IPv4.
        Err(error) if address.ip() == Ipv6Addr::UNSPECIFIED && error.kind() != io::ErrorKind::AddrInUse => {
            TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()))).await
        }
        bound => bound,
    };
    let listener = listener.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok(Bound { listener, address })
}

/// The routes: `/healthz`, `/readyz`, `/metrics`, and `/`, which lists them. All answer GET and HEAD.
pub fn router(probes: Probes) -> Router {
    Router::new()
        .route("/", get(INDEX))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(scrape))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(probes)
}

/// Serves until `stop` turns true or has no sender any more: then open requests are answered, and it ends within five
/// seconds whatever its clients do. Every connection has one request and ten seconds.
///
/// # Errors
/// The listener fails.
pub async fn serve(bound: Bound, router: Router, stop: watch::Receiver<bool>) -> io::Result<()> {
    accept::serve(bound.listener, router, LIMITS, stop).await
}

// === impl Bound ===

impl Bound {
    /// The address, with the port that was taken.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

// === the handlers ===

async fn healthz(State(probes): State<Probes>) -> Answer {
    match &*probes.health.borrow() {
        Health::Failed { reason } => unavailable(reason),
        Health::Running if is_orphan(&probes.health) => unavailable("the engine has ended"),
        Health::Running => ok(),
    }
}

async fn readyz(State(probes): State<Probes>) -> Answer {
    match &*probes.readiness.borrow() {
        Readiness::CatchingUp { waits_for } => unavailable(waits_for),
        Readiness::Stopping => unavailable("it is told to stop"),
        Readiness::Ready if is_orphan(&probes.readiness) => unavailable("the engine has ended"),
        Readiness::Ready => ok(),
    }
}

async fn scrape(State(probes): State<Probes>) -> Response {
    metrics::scrape(&probes.metrics)
}

async fn not_found(uri: Uri) -> Answer {
    (StatusCode::NOT_FOUND, format!("there is nothing at {}; there are:\n{INDEX}", uri.path()))
}

async fn method_not_allowed(method: Method, uri: Uri) -> Answer {
    (StatusCode::METHOD_NOT_ALLOWED, format!("{} takes GET and HEAD, not {method}\n", uri.path()))
}

fn ok() -> Answer {
    (StatusCode::OK, "ok".to_owned())
}

fn unavailable(why: &str) -> Answer {
    (StatusCode::SERVICE_UNAVAILABLE, why.to_owned())
}

/// What a task last said is worth nothing once that task is gone.
fn is_orphan<T>(said: &watch::Receiver<T>) -> bool {
    said.has_changed().is_err()
}
