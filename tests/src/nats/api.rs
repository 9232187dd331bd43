//! JetStream's own API, as an operator would use it on a server of the harness.

use async_nats::ConnectOptions;
use decklog_nats::{Connection, Login, STREAM, StreamInfo, stream};
use serde_json::Value;
use tokio::runtime::Runtime;

/// Runs something asynchronous to its end.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime: Runtime = runtime.expect("a runtime can be made");
    runtime.block_on(future)
}

/// Makes the stream as `decklog stream init` does.
pub fn init(servers: &str, replicas: u64) -> StreamInfo {
    block_on(async {
        let connection = Connection::open(servers, &Login::default()).await.expect("the server answers");
        stream::init(&connection, STREAM, Some(replicas)).await.expect("the stream can be made").info
    })
}

/// Asks JetStream, and returns its answer; `what` is the subject behind `$JS.API.`.
pub fn ask(servers: &str, what: &str, body: &Value) -> Value {
    let servers: Vec<_> = servers.split(',').map(str::to_owned).collect();
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    block_on(async {
        let client = ConnectOptions::new().connect(servers).await.expect("the server answers");
        let answer = client.request(format!("$JS.API.{what}"), body.into()).await.expect("JetStream answers");
        serde_json::from_slice(&answer.payload).expect("JetStream answers JSON")
    })
}

/// Asks JetStream for what it must do.
pub fn order(servers: &str, what: &str, body: &Value) -> Value {
    let answer = ask(servers, what, body);
    assert!(answer["error"].is_null(), "{what} {body}: {answer}");
    answer
}

/// Asks the leader of a stream to step down; it may be just then that there is none.
pub fn step_down(servers: &str, stream: &str) {
    let servers: Vec<_> = servers.split(',').map(str::to_owned).collect();
    block_on(async {
        let client = ConnectOptions::new().connect(servers).await.expect("the server answers");
        // Whether it answers or not: the next leader is asked another time.
        let _ = client.request(format!("$JS.API.STREAM.LEADER.STEPDOWN.{stream}"), "".into()).await;
    });
}

/// Publishes bytes under a subject, with an id if there is one, and waits until they are stored.
pub fn publish(servers: &str, subject: &str, id: Option<&str>, bytes: &[u8]) {
    block_on(async {
        let client = async_nats::connect(servers).await.expect("the server answers");
        let mut headers = async_nats::HeaderMap::new();
        if let Some(id) = id {
            headers.insert("Nats-Msg-Id", id);
        }
        let context = async_nats::jetstream::new(client);
        let sent = context.publish_with_headers(subject.to_owned(), headers, bytes.to_vec().into());
        let stored = sent.await.expect("it can be sent");
        stored.await.expect("it is stored");
    });
}
