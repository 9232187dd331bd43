//! What a running server says of itself.

use decklog_schemas::Sequence;
use serde::{Deserialize, Serialize};

/// The answer of `GET /v1/status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The identity of the log.
    pub log: String,
    /// The last sequence that the state reflects; null before the first.
    pub sequence: Option<Sequence>,
    /// The last sequence of the log; null if it is empty.
    pub tail: Option<Sequence>,
    /// How many releases have an object.
    pub releases: usize,
    /// Version of the server.
    pub version: String,
    /// Process ID of the server.
    pub pid: u32,
}
