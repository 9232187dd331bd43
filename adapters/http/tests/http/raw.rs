//! Requests byte for byte, as no client of ours sends them.

use std::path::Path;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The `error` of the body, with its hint.
    pub(crate) fn problem(&self) -> String {
        let body = self.json();
        let error = body["error"].as_str().expect("every failure has an error").to_owned();
        match body.get("hint") {
            Some(hint) => format!("{error}; {}", hint.as_str().expect("a hint is text")),
            None => error,
        }
    }
}

pub(crate) async fn get(socket: &Path, target: &str) -> Answer {
    request(socket, &format!("GET {target}"), "", b"").await
}

/// Posts to `target`; `headers` are whole lines with their ends.
pub(crate) async fn post(socket: &Path, target: &str, headers: &str, body: &[u8]) -> Answer {
    let length = body.len();
    let headers = format!("{headers}content-length: {length}\r\n");
    request(socket, &format!("POST {target}"), &headers, body).await
}

/// Posts events of a content type.
pub(crate) async fn events(socket: &Path, content_type: &str, body: &[u8]) -> Answer {
    let header = format!("content-type: {content_type}\r\n");
    post(socket, "/v1/events", &header, body).await
}

pub(crate) async fn request(socket: &Path, line: &str, headers: &str, body: &[u8]) -> Answer {
    exchange(UnixStream::connect(socket).await.unwrap(), line, headers, body).await
}

/// One request over a connection of any kind, and what comes back on it.
pub(crate) async fn exchange<S>(mut stream: S, line: &str, headers: &str, body: &[u8]) -> Answer
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let head = format!("{line} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    // A server that refuses a body does not read it.
    let _ = stream.write_all(body).await;
    read(stream).await
}

async fn read(mut stream: impl AsyncRead + Unpin) -> Answer {
    let mut bytes = Vec::new();
    // What had arrived before a reset is kept.
    let _ = stream.read_to_end(&mut bytes).await;
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}
