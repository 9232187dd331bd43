//! The stream: how it is configured, made, and brought in line without ever losing a record.

use std::fmt;

use decklog_schemas::subject::PREFIX;
use serde_json::{Map, Value, json};

use crate::api::ApiError;
use crate::connect::Connection;
use crate::info::{StreamInfo, info};

/// What [`init`] found and did.
#[derive(Clone, Debug)]
pub struct Initialized {
    /// The stream as it is now.
    pub info: StreamInfo,
    /// Whether it was made just now.
    pub is_new: bool,
    /// Where it differed from what decklog wants.
    pub differences: Vec<Difference>,
}

/// A field of the configuration that is not what decklog wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Name of the field, as the NATS CLI and the server spell it.
    pub field: &'static str,
    /// What it was.
    pub found: Value,
    /// What it should be.
    pub wanted: Value,
    /// What became of it.
    pub remedy: Remedy,
}

/// What becomes of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// It was changed: that is safe.
    Changed,
    /// It stays: the operator has chosen so, or the server cannot change it.
    Left(&'static str),
}

/// How long the server finds the id of an event again, in nanoseconds.
const DUPLICATE_WINDOW: u64 = 600 * 1_000_000_000;

/// How many replicas a stream has that nobody wished otherwise for.
const REPLICAS: u64 = 1;

/// Why what is different stays, by field. What is not listed is changed.
const LEFT: &[(&str, &str)] = &[
    ("storage", "the server cannot change it; records in memory are gone with the server"),
    ("retention", "changing it could drop records"),
    ("max_age", "the operator has chosen it; records that it drops are lost to every later replay"),
    ("max_bytes", "the operator has chosen it"),
    ("max_msgs", "the operator has chosen it"),
    ("max_msgs_per_subject", "the operator has chosen it; records that it drops are lost to every later replay"),
    ("num_replicas", "the operator has chosen it: `decklog stream init --replicas N` changes it"),
    ("deny_delete", "the server sets it only when a stream is made"),
    ("deny_purge", "the server sets it only when a stream is made"),
];

/// Makes the stream, or brings it in line where that is safe. It is never deleted and never made anew.
///
/// # Errors
/// The server refuses, does not answer, or this login may not.
pub async fn init(connection: &Connection, stream: &str, replicas: Option<u64>) -> Result<Initialized, ApiError> {
    let wanted = config(stream, replicas.unwrap_or(REPLICAS));
    let found = match info(connection, stream).await {
        Err(ApiError::NotFound { .. }) => {
            connection.ask::<StreamInfo>(&format!("STREAM.CREATE.{stream}"), &Value::Object(wanted)).await?;
            let info = info(connection, stream).await?;
            return Ok(Initialized { info, is_new: true, differences: Vec::new() });
        }
        found => found?,
    };
    let differences = compare(&found.config, &wanted, replicas);
    let changes: Vec<_> = differences.iter().filter(|difference| difference.remedy == Remedy::Changed).collect();
    if changes.is_empty() {
        return Ok(Initialized { info: found, is_new: false, differences });
    }
    // Only these fields change: whatever else the operator or a newer server has set stays as it is.
    let mut config = found.config.clone();
    for change in changes {
        config[change.field] = change.wanted.clone();
    }
    connection.ask::<StreamInfo>(&format!("STREAM.UPDATE.{stream}"), &config).await?;
    let info = info(connection, stream).await?;
    Ok(Initialized { info, is_new: false, differences })
}

/// Where a stream differs from what decklog wants.
#[must_use]
pub fn differences(info: &StreamInfo) -> Vec<Difference> {
    let name = info.id().name;
    compare(&info.config, &config(&name, REPLICAS), None)
}

fn config(stream: &str, replicas: u64) -> Map<String, Value> {
    let config = json!({
        "name": stream,
        "description": "The log of decklog: what release controllers did to their clusters",
        "subjects": [format!("{PREFIX}.release.>"), format!("{PREFIX}.deployment.>")],
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "max_age": 0,
        "max_bytes": -1,
        "max_msgs": -1,
        "max_msgs_per_subject": -1,
        "max_msg_size": -1,
        "max_consumers": -1,
        "num_replicas": replicas,
        "duplicate_window": DUPLICATE_WINDOW,
        "deny_delete": true,
        "deny_purge": true,
        "allow_direct": true,
        "compression": "s2",
    });
    match config {
        Value::Object(fields) => fields,
        _ => unreachable!("it was written as an object"),
    }
}

fn compare(found: &Value, wanted: &Map<String, Value>, replicas: Option<u64>) -> Vec<Difference> {
    let compared = wanted.iter().filter(|(field, _)| *field != "name" && *field != "description");
    compared
        .filter_map(|(field, wanted)| {
            let is_limit = wanted == &json!(-1) || field == "max_age";
            let found = found.get(field).cloned().unwrap_or(Value::Null);
            // Servers leave out what is false, and write no limit as 0 or -1.
            let is_same = found == *wanted
                || (is_limit && found.as_i64().unwrap_or(0) <= 0)
                || (field == "duplicate_window" && found.as_u64() > wanted.as_u64())
                || (field == "num_replicas" && replicas.is_none());
            let (field, left) = match LEFT.iter().find(|(left, _)| left == field) {
                Some((left, why)) => (*left, (*left != "num_replicas" || replicas.is_none()).then_some(*why)),
                None => (known(field), None),
            };
            (!is_same).then(|| Difference {
                field,
                found,
                wanted: wanted.clone(),
                remedy: left.map_or(Remedy::Changed, Remedy::Left),
            })
        })
        .collect()
}

/// The field's name for as long as the program runs.
fn known(field: &str) -> &'static str {
    const CHANGED: &[&str] =
        &["subjects", "discard", "max_msg_size", "max_consumers", "duplicate_window", "allow_direct", "compression"];
    CHANGED.iter().find(|known| **known == field).copied().unwrap_or("?")
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, found, wanted, remedy } = self;
        match remedy {
            Remedy::Changed => write!(f, "{field}: was {found}, is now {wanted}"),
            Remedy::Left(why) => write!(f, "{field}: is {found} and not {wanted}; it stays so: {why}"),
        }
    }
}
