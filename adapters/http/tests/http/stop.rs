//! The stop: open requests are answered, and no client holds it up.

use std::time::Duration;

use decklog_engine::ingest::Check;
use decklog_http::client::{Client, ConnectError};
use decklog_schemas::answer::EmitStatus;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout};

use crate::events;
use crate::raw;
use crate::served::{Gate, Served};

/// Long enough for a task of this process to see what is there.
const A_WHILE: Duration = Duration::from_millis(200);

/// Less than the time that open requests have.
const AT_ONCE: Duration = Duration::from_secs(3);

#[tokio::test]
async fn an_open_request_is_answered_and_no_other_is_taken() {
    let mut served = Served::start().await;
    served.gate.send_replace(Gate::Closed);
    let client = served.client().await;
    let appending =
        tokio::spawn(async move { client.append(&[events::json("1", "shop/checkout")], Check::Valid).await });
    served.stores(1).await;
    served.server.stop.send_replace(true);
    let late = loop {
        match Client::connect(&served.socket).await {
            Ok(_) => sleep(Duration::from_millis(1)).await,
            Err(refused) => break refused,
        }
    };
    assert!(matches!(late, ConnectError::NobodyListens { .. }), "{late:?}");
    assert!(!appending.is_finished());
    served.gate.send_replace(Gate::Open);
    let answers = appending.await.unwrap().unwrap();
    assert_eq!(answers[0].status, EmitStatus::Stored);
    timeout(AT_ONCE, served.server.ended()).await.unwrap().unwrap();
}

#[tokio::test]
async fn idle_connections_do_not_hold_it_up() {
    let mut served = Served::start().await;
    let client = served.client().await;
    client.status().await.unwrap();
    let _unused = UnixStream::connect(&served.socket).await.unwrap();
    sleep(A_WHILE).await;
    timeout(AT_ONCE, served.server.stop()).await.unwrap().unwrap();
}

#[tokio::test]
async fn stuck_clients_are_cut_off_in_time() {
    let mut served = Served::start().await;
    let begun = |text: &'static [u8]| {
        let socket = served.socket.clone();
        async move {
            let mut stream = UnixStream::connect(&socket).await.unwrap();
            stream.write_all(text).await.unwrap();
            stream
        }
    };
    let _head = begun(b"GET /healthz HT").await;
    let body = b"POST /v1/events HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{";
    let _body = begun(body).await;
    sleep(A_WHILE).await;
    let start = Instant::now();
    served.server.stop().await.unwrap();
    let took = start.elapsed();
    assert!((Duration::from_secs(3)..Duration::from_secs(5)).contains(&took), "{took:?}");
}

#[tokio::test]
async fn a_stop_without_a_sender_is_a_stop() {
    let mut served = Served::start().await;
    let (stop, _) = tokio::sync::watch::channel(false);
    drop(std::mem::replace(&mut served.server.stop, stop));
    timeout(AT_ONCE, served.server.ended()).await.unwrap().unwrap();
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
