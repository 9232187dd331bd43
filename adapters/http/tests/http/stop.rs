//! The stop: open requests are answered, and no client holds it up.

use std::time::Duration;

use decklog_engine::ingest::Check;
use decklog_http::client::{Client, ConnectError};
use decklog_schemas::answer::EmitStatus;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};

use crate::events;
use crate::raw;
use crate::served::{Gate, Served, pass};

/// Beyond every limit of the server: a test that gets here hangs.
const HANGS: Duration = Duration::from_secs(60);

/// What open requests have after a stop.
const TIME_TO_ANSWER: Duration = Duration::from_secs(4);

/// A request whose body goes on after its first byte; the server says once it waits for the rest.
const OPEN: &[u8] = b"POST /v1/events HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
    expect: 100-continue\r\ncontent-length: 9\r\n\r\n{";
const WAITS_FOR_THE_REST: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// A connection with the beginning of a request.
async fn begun(served: &Served, text: &[u8]) -> UnixStream {
    let mut stream = UnixStream::connect(&served.socket).await.unwrap();
    stream.write_all(text).await.unwrap();
    stream
}

/// Waits until no connection is taken any more.
async fn refuses(served: &Served) -> ConnectError {
    loop {
        match Client::connect(&served.socket).await {
            Ok(_) => sleep(Duration::from_millis(1)).await,
            Err(refused) => return refused,
        }
    }
}

/// What comes until the server closes the connection, also if it does so with a reset.
async fn until_closed(stream: &mut UnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = timeout(HANGS, stream.read_to_end(&mut bytes)).await.expect("the server closes it");
    bytes
}

#[tokio::test]
async fn an_open_request_is_answered_and_no_other_is_taken() {
    let mut served = Served::start().await;
    served.gate.send_replace(Gate::Closed);
    let client = served.client().await;
    let appending =
        tokio::spawn(async move { client.append(&[events::json("1", "shop/checkout")], Check::Valid).await });
    served.stores(1).await;
    served.server.stop.send_replace(true);
    let late = refuses(&served).await;
    assert!(matches!(late, ConnectError::NobodyListens { .. }), "{late:?}");
    pass(TIME_TO_ANSWER / 2).await;
    assert!(!appending.is_finished());
    served.gate.send_replace(Gate::Open);
    let answers = appending.await.unwrap().unwrap();
    assert_eq!(answers[0].status, EmitStatus::Stored);
    timeout(HANGS, served.server.ended()).await.expect("it ends").unwrap();
}

#[tokio::test]
async fn idle_connections_do_not_hold_it_up() {
    let mut served = Served::start().await;
    let mut used = begun(&served, b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
    used.read_exact(&mut [0]).await.unwrap();
    let mut unused = begun(&served, b"").await;
    let mut open = begun(&served, OPEN).await;
    open.read_exact(&mut [0; WAITS_FOR_THE_REST.len()]).await.unwrap();
    served.server.stop.send_replace(true);
    // They are closed while the open request still has time.
    assert!(until_closed(&mut used).await.ends_with(b"ok"));
    assert_eq!(until_closed(&mut unused).await, b"");
    open.write_all(b"\"id\": 1}").await.unwrap();
    let answer = until_closed(&mut open).await;
    assert!(answer.starts_with(b"HTTP/1.1 422 "), "{}", String::from_utf8_lossy(&answer));
    timeout(HANGS, served.server.ended()).await.expect("it ends").unwrap();
}

#[tokio::test]
async fn stuck_clients_are_cut_off() {
    let mut served = Served::start().await;
    let mut head = begun(&served, b"GET /healthz HT").await;
    let mut body = begun(&served, OPEN).await;
    body.read_exact(&mut [0; WAITS_FOR_THE_REST.len()]).await.unwrap();
    served.server.stop.send_replace(true);
    refuses(&served).await;
    pass(TIME_TO_ANSWER).await;
    timeout(HANGS, served.server.ended()).await.expect("it ends, and its clients have not").unwrap();
    assert_eq!(until_closed(&mut head).await, b"");
    assert_eq!(until_closed(&mut body).await, b"");
}

#[tokio::test]
async fn a_stop_without_a_sender_is_a_stop() {
    let mut served = Served::start().await;
    let (stop, _) = tokio::sync::watch::channel(false);
    drop(std::mem::replace(&mut served.server.stop, stop));
    timeout(HANGS, served.server.ended()).await.expect("it ends").unwrap();
}

#[tokio::test]
async fn garbage_harms_nobody() {
    let served = Served::start().await;
    for garbage in [&b"\x16\x03\x01\x02\0\x01"[..], b"\r\n\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", &[b'x'; 1_000_000]] {
        let mut stream = UnixStream::connect(&served.socket).await.unwrap();
        let _ = stream.write_all(garbage).await;
        drop(stream);
    }
    assert_eq!(raw::get(&served.socket, "/healthz").await.status, 200);
}
