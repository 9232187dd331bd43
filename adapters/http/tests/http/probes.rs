//! The probes and metrics of a Pod, over TCP: what they answer, and what no client can do to them.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use decklog_http::probes::{self, BindError, Health, Probes, Readiness};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::raw::{self, Answer};
use crate::served::{Running, pass};

const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// As many connections as are served at a time.
const ALL_CONNECTIONS: usize = 64;

/// What a client has for its request, and to take the answer.
const TIME_TO_ASK: Duration = Duration::from_secs(10);

/// What open requests have after a stop.
const TIME_TO_ANSWER: Duration = Duration::from_secs(4);

/// Beyond every limit of the server: a test that gets here hangs.
const HANGS: Duration = Duration::from_secs(60);

/// A server of probes, and what it is told.
struct Probed {
    address: SocketAddr,
    health: watch::Sender<Health>,
    readiness: watch::Sender<Readiness>,
    server: Running<std::io::Result<()>>,
}

impl Probed {
    async fn start() -> Self {
        Self::start_with(Registry::default()).await
    }

    async fn start_with(registry: Registry) -> Self {
        let (health, is_healthy) = watch::channel(Health::Running);
        let (readiness, is_ready) = watch::channel(catching_up("folded 3 of 7 events"));
        let bound = probes::bind(ANY_PORT).await.unwrap();
        let address = bound.address();
        let router = probes::router(Probes { health: is_healthy, readiness: is_ready, metrics: Arc::new(registry) });
        let server = Running::start(|stop| probes::serve(bound, router, stop));
        Self { address, health, readiness, server }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn get(&self, path: &str) -> Answer {
        self.request(&format!("GET {path}")).await
    }

    async fn request(&self, line: &str) -> Answer {
        raw::exchange(self.connect().await, line, "", b"").await
    }

    async fn check(&self, path: &str, status: u16, body: &str) {
        let answer = self.get(path).await;
        assert_eq!((answer.status, answer.body.as_str()), (status, body), "{path}: {answer:?}");
        assert!(answer.head.contains("content-type: text/plain; charset=utf-8"), "{answer:?}");
    }
}

fn catching_up(waits_for: &str) -> Readiness {
    Readiness::CatchingUp { waits_for: waits_for.to_owned() }
}

/// What comes until the server closes the connection, also if it does so with a reset.
async fn until_closed(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = timeout(HANGS, stream.read_to_end(&mut bytes)).await.expect("the server closes it");
    bytes
}

#[tokio::test]
async fn ready_is_who_has_caught_up() {
    let probed = Probed::start().await;
    probed.check("/readyz", 503, "folded 3 of 7 events").await;
    probed.readiness.send_replace(catching_up("folded 6 of 7 events"));
    probed.check("/readyz", 503, "folded 6 of 7 events").await;
    probed.readiness.send_replace(Readiness::Ready);
    probed.check("/readyz", 200, "ok").await;
    probed.readiness.send_replace(Readiness::Stopping);
    probed.check("/readyz", 503, "it is told to stop").await;
    probed.check("/healthz", 200, "ok").await;
}

#[tokio::test]
async fn healthy_is_who_has_not_failed() {
    let probed = Probed::start().await;
    probed.check("/healthz", 200, "ok").await;
    probed.health.send_replace(Health::Failed { reason: "the log has diverged".to_owned() });
    probed.check("/healthz", 503, "the log has diverged").await;
    probed.check("/readyz", 503, "folded 3 of 7 events").await;
}

#[tokio::test]
async fn who_is_gone_is_neither_healthy_nor_ready() {
    let mut probed = Probed::start().await;
    probed.readiness.send_replace(Readiness::Ready);
    probed.check("/readyz", 200, "ok").await;
    probed.health = watch::Sender::new(Health::Running);
    probed.readiness = watch::Sender::new(Readiness::Ready);
    probed.check("/healthz", 503, "the engine has ended").await;
    probed.check("/readyz", 503, "the engine has ended").await;
}

/// The last word of a task that is gone still says more than that it is gone.
#[tokio::test]
async fn a_reason_outlives_who_gave_it() {
    let mut probed = Probed::start().await;
    probed.health.send_replace(Health::Failed { reason: "the log has diverged".to_owned() });
    probed.health = watch::Sender::new(Health::Running);
    probed.check("/healthz", 503, "the log has diverged").await;
}

/// Something that a gauge reads.
#[derive(Debug)]
struct Depth(Arc<AtomicU64>);

impl Collector for Depth {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let gauge = ConstGauge::new(self.0.load(Ordering::Relaxed));
        let encoder = encoder.encode_descriptor("depth", "Releases that wait.", None, gauge.metric_type())?;
        gauge.encode(encoder)
    }
}

#[tokio::test]
async fn metrics_are_read_when_they_are_scraped() {
    let (applies, depth) = (Counter::<u64>::default(), Arc::new(AtomicU64::new(7)));
    let mut registry = Registry::with_prefix("decklog");
    registry.register("applies", "Applies that were sent", applies.clone());
    registry.register_collector(Box::new(Depth(Arc::clone(&depth))));
    let probed = Probed::start_with(registry).await;
    applies.inc_by(3);
    let first = probed.get("/metrics").await;
    assert_eq!(first.status, 200);
    let content_type = "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert!(first.head.contains(content_type), "{first:?}");
    let text = "\
# HELP decklog_applies Applies that were sent.
# TYPE decklog_applies counter
decklog_applies_total 3
# HELP decklog_depth Releases that wait.
# TYPE decklog_depth gauge
decklog_depth 7
# EOF
";
    assert_eq!(first.body, text);
    applies.inc();
    depth.store(2, Ordering::Relaxed);
    let second = probed.get("/metrics").await.body;
    assert_eq!(second, text.replace("total 3", "total 4").replace("depth 7", "depth 2"));
}

/// A collector that cannot.
#[derive(Debug)]
struct Broken;

impl Collector for Broken {
    fn encode(&self, _: DescriptorEncoder<'_>) -> fmt::Result {
        Err(fmt::Error)
    }
}

#[tokio::test]
async fn half_a_scrape_is_none() {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Broken));
    let probed = Probed::start_with(registry).await;
    probed.check("/metrics", 500, "a metric cannot be written\n").await;
    probed.check("/healthz", 200, "ok").await;
}

#[tokio::test]
async fn the_paths_are_listed_and_no_others_are_there() {
    let probed = Probed::start().await;
    let index = probed.get("/").await;
    let paths: Vec<_> = index.body.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!((index.status, paths), (200, vec!["/healthz", "/readyz", "/metrics"]));
    for path in ["/metric", "/healthz/", "/v1/status"] {
        let body = format!("there is nothing at {path}; there are:\n{}", index.body);
        probed.check(path, 404, &body).await;
    }
}

#[tokio::test]
async fn only_get_and_head_are_taken() {
    let probed = Probed::start().await;
    for path in ["/", "/healthz", "/readyz", "/metrics"] {
        let (get, head) = (probed.get(path).await, probed.request(&format!("HEAD {path}")).await);
        let without_date = |answer: &Answer| {
            let lines = answer.head.lines().filter(|line| !line.starts_with("date: "));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!((without_date(&head), head.body.as_str()), (without_date(&get), ""), "{path}");
        for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
            let answer = probed.request(&format!("{method} {path}")).await;
            let body = format!("{path} takes GET and HEAD, not {method}\n");
            assert_eq!((answer.status, answer.body), (405, body));
            assert!(answer.head.contains("allow: GET,HEAD"), "{}", answer.head);
        }
    }
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let mut probed = Probed::start().await;
    let refused = probes::bind(probed.address).await.unwrap_err();
    assert!(matches!(refused, BindError::InUse { .. }), "{refused:?}");
    assert_eq!(refused.to_string(), format!("another process listens on {}", probed.address));
    probed.server.stop().await.unwrap();
    let again = probes::bind(probed.address).await.unwrap();
    assert_eq!(again.address(), probed.address);
}

#[tokio::test]
async fn an_address_of_another_machine_is_named() {
    // TEST-NET-1: nobody has it.
    let address = "192.0.2.1:8080".parse().unwrap();
    let refused = probes::bind(address).await.unwrap_err();
    assert!(matches!(refused, BindError::Failed { .. }), "{refused:?}");
    assert_eq!(refused.to_string(), "cannot listen on 192.0.2.1:8080");
}

#[tokio::test]
async fn port_0_is_one_that_is_free() {
    let (one, other) = (Probed::start().await, Probed::start().await);
    assert!(one.address.port() != 0 && one.address != other.address, "{} {}", one.address, other.address);
    one.check("/healthz", 200, "ok").await;
    other.check("/healthz", 200, "ok").await;
}

#[tokio::test]
async fn a_connection_has_one_request() {
    let probed = Probed::start().await;
    let mut stream = probed.connect().await;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
    let answer = String::from_utf8(until_closed(stream).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("connection: close"), "{answer}");
}

#[tokio::test]
async fn silent_and_slow_clients_do_not_hold_it() {
    let mut registry = Registry::default();
    // More than both ends of a connection buffer.
    registry.register("large", "x".repeat(32 * 1024 * 1024), Counter::<u64>::default());
    let probed = Probed::start_with(registry).await;
    let mut slow = probed.connect().await;
    slow.write_all(b"GET /heal").await.unwrap();
    let mut silent = Vec::new();
    while silent.len() < ALL_CONNECTIONS - 2 {
        silent.push(probed.connect().await);
    }
    let mut deaf = probed.connect().await;
    deaf.write_all(b"GET /metrics HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
    // The last one that is taken is served: so are those before it, and one more has to wait.
    deaf.read_exact(&mut [0]).await.unwrap();
    pass(TIME_TO_ASK).await;
    timeout(HANGS, probed.check("/healthz", 200, "ok")).await.expect("it is answered");
    for stream in silent.into_iter().chain([slow]) {
        assert_eq!(until_closed(stream).await, b"");
    }
    let part = until_closed(deaf).await;
    assert!(part.starts_with(b"TTP/1.1 200 OK") && !part.ends_with(b"# EOF\n"), "{} bytes", part.len());
}

#[tokio::test]
async fn a_stop_waits_for_no_client_for_ever() {
    let mut probed = Probed::start().await;
    let mut slow = probed.connect().await;
    slow.write_all(b"GET /heal").await.unwrap();
    probed.check("/healthz", 200, "ok").await;
    probed.server.stop.send_replace(true);
    while TcpStream::connect(probed.address).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    pass(TIME_TO_ANSWER).await;
    timeout(HANGS, probed.server.ended()).await.expect("it ends, and its client has not").unwrap();
    assert_eq!(until_closed(slow).await, b"");
}
