//! What a NATS server tells without a client: its greeting, and its monitoring port.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// How long a server may be silent.
const SILENCE: Duration = Duration::from_secs(5);

/// The greeting of the server on a port.
pub(super) fn info(port: u16) -> io::Result<Value> {
    let mut line = String::new();
    BufReader::new(connect(port)?).read_line(&mut line)?;
    let json = line.strip_prefix("INFO ").ok_or_else(|| io::Error::other(format!("not a greeting: {line:?}")))?;
    serde_json::from_str(json).map_err(io::Error::other)
}

/// Status and body of an HTTP answer.
pub(super) fn get(port: u16, path: &str) -> io::Result<(u16, String)> {
    let mut stream = connect(port)?;
    // HTTP 1.0 ends the body by closing the connection.
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let parsed = || {
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some((status, body.to_owned()))
    };
    parsed().ok_or_else(|| io::Error::other(format!("not an answer: {answer:?}")))
}

fn connect(port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(SILENCE))?;
    Ok(stream)
}
