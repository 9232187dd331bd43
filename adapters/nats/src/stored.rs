//! One stored message, asked of the leader of the stream: a replica may not have heard of it yet.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::Value;

use crate::api::{ApiError, NO_MESSAGE};
use crate::connect::Connection;

/// A message as `STREAM.MSG.GET` returns it.
#[derive(Deserialize)]
pub(crate) struct Stored {
    pub(crate) seq: u64,
    pub(crate) subject: String,
    /// When it was recorded, RFC 3339.
    pub(crate) time: String,
    /// Base64 of the headers.
    #[serde(default)]
    hdrs: String,
    /// Base64 of the bytes.
    #[serde(default)]
    data: String,
}

#[derive(Deserialize)]
struct Answer {
    message: Stored,
}

/// The header of the id.
const ID: &str = "nats-msg-id:";

/// The subject of the request, without the API's prefix.
pub(crate) fn request(stream: &str) -> String {
    format!("STREAM.MSG.GET.{stream}")
}

/// The message that `which` asks for; none if there is no such message. A stream that is not there is an error.
pub(crate) async fn stored(connection: &Connection, stream: &str, which: &Value) -> Result<Option<Stored>, ApiError> {
    match connection.ask::<Answer>(&request(stream), which).await {
        Ok(Answer { message }) => Ok(Some(message)),
        Err(ApiError::NotFound { code: NO_MESSAGE, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Stored {
    /// The `Nats-Msg-Id` header.
    pub(crate) fn id(&self) -> Option<String> {
        let headers = String::from_utf8(BASE64_STANDARD.decode(&self.hdrs).ok()?).ok()?;
        let is_id = |line: &&str| line.get(..ID.len()).is_some_and(|name| name.eq_ignore_ascii_case(ID));
        let line = headers.lines().find(is_id)?;
        Some(line[ID.len()..].trim().to_owned())
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> Result<Vec<u8>, base64::DecodeError> {
        BASE64_STANDARD.decode(&self.data)
    }
}
