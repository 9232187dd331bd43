//! A stream that takes no more events: why, and what makes room.

use std::fmt;

use crate::api::ServerSays;

/// A stream, or the server below it, has no room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Full {
    stream: String,
    /// In the server's words.
    pub(crate) cause: String,
    /// What to do.
    pub(crate) way_out: String,
}

/// JetStream's number for what a stream's store says; in words alone it says what.
const STORE_FAILED: u64 = 10_077;

/// JetStream's numbers where the server has no room for any stream.
const NO_ROOM: [u64; 2] = [10_023, 10_047];

/// The limits of a stream: in the words of its store, as a field of its configuration, and as a flag of the NATS CLI.
const LIMITS: [(&str, &str, &str); 3] = [
    ("maximum bytes exceeded", "max_bytes", "--max-bytes"),
    ("maximum messages exceeded", "max_msgs", "--max-msgs"),
    ("maximum messages per subject exceeded", "max_msgs_per_subject", "--max-msgs-per-subject"),
];

impl Full {
    /// Reads the answer to an append. None if it says something else.
    pub(crate) fn read(stream: &str, says: &ServerSays) -> Option<Self> {
        let way_out = if NO_ROOM.contains(&says.err_code) {
            "make room on the server: raise max_file_store of its jetstream block, or free its disk".to_owned()
        } else {
            let is_said = |limit: &&(&str, &str, &str)| says.err_code == STORE_FAILED && says.description == limit.0;
            let (_, field, flag) = LIMITS.iter().find(is_said)?;
            format!("raise {field} of the stream, or lift it with `nats stream edit {stream} {flag}=-1`")
        };
        Some(Self { stream: stream.to_owned(), cause: says.description.clone(), way_out })
    }
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stream, cause, way_out } = self;
        write!(f, "the stream {stream} takes no more events, {cause}: {way_out}")
    }
}
