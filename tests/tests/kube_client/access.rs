//! Finding a cluster, logging in, and keeping to a rate.

use std::fs;
use std::time::{Duration, Instant};

use decklog_kube::{Access, Cluster, ConnectError, Rate, ReachError};
use decklog_nats::{Connection, Login};
use decklog_tests::kube::{ControlPlane, Rights, audit};
use decklog_tests::nats::NatsServer;
use decklog_tests::nats::proxy::{Direction, Proxy};
use decklog_tests::nats::tls::Certificates;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use serde_json::{Value, json};

use crate::cluster::{admin, cluster, redirected};

async fn unreached(cluster: &Cluster) -> ReachError {
    cluster.reach().await.expect_err("it is not to be reached")
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_carry_our_name() {
    let plane = ControlPlane::shared();
    let kubeconfig = plane.service_account("named", "reader", Rights::None);
    let cluster = cluster(&kubeconfig).await;
    let version = cluster.reach().await.expect("the server is up");
    assert!(version.starts_with("v1."), "{version}");
    assert_eq!(cluster.default_namespace(), "default");
    let log = plane.audit();
    let ours = log.iter().filter(|line| audit::user(line) == "system:serviceaccount:named:reader");
    let agents = audit::count(ours, audit::user_agent);
    assert!(agents.contains_key(concat!("decklog/", env!("CARGO_PKG_VERSION"))), "{agents:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_holds_back_everything_but_the_lease() {
    let rate = Rate::new(5.0, std::num::NonZeroU32::new(1)).expect("that is a rate");
    let access =
        Access { kubeconfig: Some(ControlPlane::shared().kubeconfig()), rate: Some(rate), ..Access::default() };
    let cluster = access.connect().await.expect("the kubeconfig is the harness's own");
    let all = async |client: kube::Client| {
        let (namespaces, start) = (Api::<Namespace>::all(client), Instant::now());
        let requests = (0..11).map(|_| namespaces.get("default"));
        futures::future::try_join_all(requests).await.expect("everything is allowed");
        start.elapsed()
    };
    // Warm, so that the connection is not counted.
    all(cluster.lease_client()).await;
    let (held_back, free) = (all(cluster.client()).await, all(cluster.lease_client()).await);
    assert!(held_back >= Duration::from_secs(2), "{held_back:?}");
    assert!(free < Duration::from_millis(1500), "{free:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_not_let_in_is_told_where_and_why() {
    let plane = ControlPlane::shared();
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let nobody = plane.service_account("strangers", "nobody", Rights::None);
    let text = fs::read_to_string(&nobody).expect("the harness has written it");
    let with = async |name: &str, change: fn(&mut Value)| {
        let mut config: Value = serde_json::from_str(&text).expect("the harness writes JSON");
        change(&mut config);
        let file = folder.path().join(name);
        fs::write(&file, config.to_string()).expect("the folder is ours");
        unreached(&cluster(&file).await).await
    };
    let server = format!("https://127.0.0.1:{}", plane.port());

    let stranger = with("stranger", |config| config["users"][0]["user"]["token"] = json!("none")).await;
    assert!(matches!(stranger, ReachError::Unauthorized { .. }), "{stranger:?}");
    let said = stranger.to_string();
    assert!(said.contains(&server) && said.contains("stranger") && said.contains("context \"test\""), "{said}");

    // A port on which nobody listens: the proxy is gone.
    let port = Proxy::to(1).port();
    let nowhere = unreached(&cluster(&redirected(&nobody, port, folder.path())).await).await;
    assert!(nowhere.to_string().contains("refused") && nowhere.to_string().contains("--context"), "{nowhere}");

    // The authority is that of somebody else.
    let others = Certificates::make();
    let mut config: Value = serde_json::from_str(&text).expect("the harness writes JSON");
    config["clusters"][0]["cluster"]["certificate-authority"] = json!(others.path("ca.pem"));
    let file = folder.path().join("others");
    fs::write(&file, config.to_string()).expect("the folder is ours");
    let untrusted = unreached(&cluster(&file).await).await;
    assert!(matches!(untrusted, ReachError::Unreachable { .. }), "{untrusted:?}");
    assert!(untrusted.to_string().contains("certificate"), "{untrusted}");
}

/// kube asks a plugin before there is anything to send.
#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_is_missing_is_named() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let text = fs::read_to_string(ControlPlane::shared().kubeconfig()).expect("the harness has written it");
    let mut config: Value = serde_json::from_str(&text).expect("the harness writes JSON");
    config["users"][0]["user"] =
        json!({ "exec": { "apiVersion": "client.authentication.k8s.io/v1", "command": "/missing/plugin" } });
    let file = folder.path().join("plugin");
    fs::write(&file, config.to_string()).expect("the folder is ours");
    let access = Access { kubeconfig: Some(file.clone()), ..Access::default() };
    let error = access.connect().await.expect_err("there is no such plugin");
    assert!(matches!(error, ConnectError::Credentials { .. }), "{error:?}");
    let said = error.to_string();
    assert!(said.contains("auth exec") && said.contains(&file.display().to_string()), "{said}");
}

/// Each has its own client of TLS, and neither panics for there being two that could provide the cryptography.
#[tokio::test(flavor = "multi_thread")]
async fn nats_and_kubernetes_share_a_provider_of_tls() {
    let certificates = Certificates::make();
    let server = NatsServer::builder().conf(&certificates.conf("")).start();
    let login = Login { tls_ca: Some(certificates.path("ca.pem")), ..Login::default() };
    let nats = Connection::open(&server.url().replace("nats://", "tls://"), &login).await;
    nats.expect("the certificate is of our authority");
    admin(ControlPlane::shared()).await.reach().await.expect("the server is up");
}

/// A watch is no request that has to end.
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_outlasts_the_limit_of_a_request() {
    use futures::StreamExt as _;
    use kube::api::WatchParams;

    let plane = ControlPlane::shared();
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let proxy = Proxy::to(plane.port());
    let cluster = cluster(&redirected(&plane.kubeconfig(), proxy.port(), folder.path())).await;
    let namespaces = Api::<Namespace>::all(cluster.client());
    let only = WatchParams::default().fields("metadata.name=watched").disable_bookmarks();
    let mut events = namespaces.watch(&only, "0").await.expect("the server is up").boxed();
    tokio::time::sleep(decklog_kube::REQUEST_LIMIT + Duration::from_secs(1)).await;
    crate::cluster::make_namespace(plane, "watched");
    let event = tokio::time::timeout(Duration::from_secs(30), events.next()).await;
    assert!(matches!(event, Ok(Some(Ok(kube::api::WatchEvent::Added(_))))), "{event:?}");

    // To its beginning, it is one.
    proxy.hold(Direction::FromServer);
    let start = Instant::now();
    let error = namespaces.watch(&only, "0").await.err();
    assert!(error.is_some() && start.elapsed() < decklog_kube::REQUEST_LIMIT * 2, "{error:?}");
}
