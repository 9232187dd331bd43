//! The rules of the log, on a JetStream stream of a real server and of a cluster of three.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use decklog_engine::conformance::{LogFixture, log_suite};
use decklog_nats::{Connection, JetStreamLog, Login, STREAM, stream};
use decklog_tests::nats::NatsServer;
use decklog_tests::nats::cluster::NatsCluster;

/// Enough accounts for the fixtures of a suite: each has one of its own, and so a stream of its own.
const ACCOUNTS: usize = 64;

struct Account {
    servers: String,
    number: usize,
    replicas: u64,
    connection: Option<Connection>,
}

impl LogFixture for Account {
    type Log = JetStreamLog;

    async fn open(&mut self) -> JetStreamLog {
        let user = format!("user{}", self.number);
        let login = Login { user: Some(user), password: Some("word".to_owned()), ..Login::default() };
        let connection = Connection::open(&self.servers, &login).await.expect("the server answers");
        stream::init(&connection, STREAM, Some(self.replicas)).await.expect("the stream can be made");
        let log = JetStreamLog::open(&connection, STREAM).await.expect("the stream is there");
        self.connection = Some(connection);
        log
    }
}

fn accounts() -> String {
    let account =
        |number| format!("A{number}: {{ jetstream: enabled, users: [{{ user: user{number}, password: word }}] }}");
    format!("accounts {{ {} }}", (0..ACCOUNTS).map(account).collect::<Vec<_>>().join("\n"))
}

async fn suite_on(servers: String, replicas: u64) {
    let used = Arc::new(AtomicUsize::new(0));
    let suite = log_suite(|| {
        let number = used.fetch_add(1, Ordering::Relaxed);
        assert!(number < ACCOUNTS, "the suite has more fixtures than there are accounts");
        Account { servers: servers.clone(), number, replicas, connection: None }
    });
    Box::pin(suite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_server_keeps_the_rules() {
    let server = NatsServer::builder().conf(&accounts()).start();
    suite_on(server.url(), 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_three_keeps_the_rules() {
    let cluster = NatsCluster::start_with(3, &NatsServer::builder().conf(&accounts()));
    suite_on(cluster.url(), 3).await;
}
