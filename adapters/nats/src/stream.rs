//! The stream: how it is configured, made, and brought in line without ever losing a record.

use std::fmt;

use decklog_schemas::subject::PREFIX;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::api::ApiError;
use crate::connect::Connection;
use crate::info::{StreamInfo, info};
use crate::subjects::{covers, overlap};

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
    /// What becomes of it.
    pub remedy: Remedy,
}

/// What becomes of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// [`init`] changes it: that is safe.
    Change,
    /// It stays, for this reason.
    Leave(&'static str),
}

/// The stream is neither there nor could it be made.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// A subject belongs to one stream only.
    #[error("another stream takes the subjects of decklog already: {}", if streams.is_empty() { "the server does not say which".to_owned() } else { streams.join(", ") })]
    Taken {
        /// The streams that have them, as far as this login may know.
        streams: Vec<String>,
    },
    /// The stream is there, and takes no subject of decklog: it is somebody else's.
    #[error("the stream {stream} is there, and takes {subjects} and no subject of decklog: it was not touched")]
    Foreign {
        /// Its name.
        stream: String,
        /// Its subjects.
        subjects: Value,
    },
    /// The server refuses, does not answer, or this login may not.
    #[error(transparent)]
    Api(#[from] ApiError),
}

/// How long the server finds the id of an event again, in nanoseconds.
const DUPLICATE_WINDOW: u64 = 600 * 1_000_000_000;

/// How many replicas a stream has that nobody wished otherwise for.
const REPLICAS: u64 = 1;

/// How often the server is asked that does not answer; each time takes as long as a request waits.
const ATTEMPTS: u32 = 4;

/// JetStream's numbers for a name that is in use with another configuration, and for subjects that overlap.
const NAME_IN_USE: u64 = 10_058;
const SUBJECTS_OVERLAP: u64 = 10_065;

/// The fields that decklog cares about. Null stands for what is not there.
const FIELDS: &[&str] = &[
    "mirror",
    "subjects",
    "subject_transform",
    "retention",
    "storage",
    "persist_mode",
    "discard",
    "discard_new_per_subject",
    "max_age",
    "max_bytes",
    "max_msgs",
    "max_msgs_per_subject",
    "max_msg_size",
    "max_consumers",
    "num_replicas",
    "duplicate_window",
    "no_ack",
    "sealed",
    "deny_delete",
    "deny_purge",
    "allow_rollup_hdrs",
    "allow_msg_ttl",
    "allow_direct",
    "compression",
];

/// Why what is different stays, by field. What is not listed is changed; all of it was tried on a server of version 2.15.
const LEFT: &[(&str, &str)] = &[
    ("mirror", "it is the copy of another stream, and takes no events: name the stream that it copies"),
    ("subject_transform", "the operator has chosen it; events stand where no reader looks for them"),
    ("retention", "the server cannot change it; records that somebody has taken are gone"),
    ("storage", "the server cannot change it; records in memory are gone with the server"),
    ("persist_mode", "the server cannot change it; it answers before an event is written"),
    ("max_age", "the operator has chosen it; records that it drops are lost to every later replay"),
    ("max_bytes", "the operator has chosen it; when it is reached, events are refused"),
    ("max_msgs", "the operator has chosen it; when it is reached, events are refused"),
    ("max_msgs_per_subject", "the operator has chosen it; records that it drops are lost to every later replay"),
    ("max_msg_size", "the operator has chosen it; larger events are refused"),
    ("max_consumers", "the operator has chosen it; each reader needs one"),
    ("num_replicas", "the operator has chosen it: `decklog stream init --replicas N` changes it"),
    ("sealed", "the server cannot undo it; the stream takes no events any more"),
    ("allow_msg_ttl", "the server cannot undo it; a writer can have its events vanish"),
];

/// Makes the stream, or brings it in line where that is safe. It is never deleted and never made anew. Where others do the
/// same at the same time, all succeed.
///
/// # Errors
/// Its subjects belong to another stream; the server refuses or does not answer; or this login may not.
pub async fn init(connection: &Connection, stream: &str, replicas: Option<u64>) -> Result<Initialized, InitError> {
    let mut attempts = 1;
    loop {
        match attempt(connection, stream, replicas).await {
            // A cluster leaves requests unanswered while another one about the same stream is on its way. Whether they
            // were carried out, the next attempt sees.
            Err(InitError::Api(error)) if error.is_timeout() && attempts < ATTEMPTS => attempts += 1,
            done => return done,
        }
    }
}

async fn attempt(connection: &Connection, stream: &str, replicas: Option<u64>) -> Result<Initialized, InitError> {
    let wanted = config(stream, replicas.unwrap_or(REPLICAS));
    let found = match info(connection, stream).await {
        Err(ApiError::NotFound { .. }) => match create(connection, stream, wanted.clone()).await {
            Ok(info) => return Ok(Initialized { info, is_new: true, differences: Vec::new() }),
            // Somebody else has made it since, and otherwise.
            Err(InitError::Api(ApiError::Refused { code: NAME_IN_USE, .. })) => info(connection, stream).await?,
            Err(error) => return Err(error),
        },
        found => found?,
    };
    if is_foreign(&found.config) {
        return Err(InitError::Foreign { stream: stream.to_owned(), subjects: found.config["subjects"].clone() });
    }
    let mut differences = compare(&found.config, &wanted, replicas);
    if !differences.iter().any(|difference| difference.remedy == Remedy::Change) {
        return Ok(Initialized { info: found, is_new: false, differences });
    }
    // Only these fields change: whatever else the operator or a newer server has set stays as it is.
    let mut config = found.config;
    for change in differences.iter().filter(|difference| difference.remedy == Remedy::Change) {
        config[change.field] = change.wanted.clone();
    }
    let updated = connection.ask::<StreamInfo>(&format!("STREAM.UPDATE.{stream}"), &config).await;
    untaken(connection, updated).await?;
    let info = info(connection, stream).await?;
    let rest = compare(&info.config, &wanted, replicas);
    for difference in &mut differences {
        if rest.iter().any(|left| left.field == difference.field && left.remedy == Remedy::Change) {
            difference.remedy = Remedy::Leave("the server was asked to change it, and has not");
        }
    }
    Ok(Initialized { info, is_new: false, differences })
}

/// Whether a stream has subjects, and none of decklog's: some changes could never be taken back.
fn is_foreign(config: &Value) -> bool {
    let subjects: Vec<_> = config["subjects"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let is_ours = |subject: &&str| matches!(subject.split('.').next(), Some(PREFIX | "*" | ">"));
    !subjects.is_empty() && !subjects.iter().any(is_ours)
}

/// Where a stream differs from what decklog wants, and what [`init`] would do about it.
#[must_use]
pub fn differences(info: &StreamInfo) -> Vec<Difference> {
    compare(&info.config, &config(&info.id().name, REPLICAS), None)
}

/// Makes the stream; one that is there already with the same configuration is as good.
async fn create(connection: &Connection, stream: &str, config: Map<String, Value>) -> Result<StreamInfo, InitError> {
    let created = connection.ask(&format!("STREAM.CREATE.{stream}"), &Value::Object(config)).await;
    untaken::<StreamInfo>(connection, created).await?;
    Ok(info(connection, stream).await?)
}

/// The answer, where no other stream has the subjects.
async fn untaken<T>(connection: &Connection, answer: Result<T, ApiError>) -> Result<T, InitError> {
    #[derive(Deserialize)]
    struct Names {
        #[serde(default)]
        streams: Option<Vec<String>>,
    }
    let Err(ApiError::Refused { code: SUBJECTS_OVERLAP, .. }) = answer else { return Ok(answer?) };
    let mut streams = Vec::new();
    for subject in subjects() {
        // Whoever may not ask is told without the names.
        let asked = connection.ask::<Names>("STREAM.NAMES", &json!({ "subject": subject })).await;
        streams.extend(asked.ok().and_then(|names| names.streams).unwrap_or_default());
    }
    streams.sort();
    streams.dedup();
    Err(InitError::Taken { streams })
}

fn subjects() -> [String; 2] {
    [format!("{PREFIX}.release.>"), format!("{PREFIX}.deployment.>")]
}

fn config(stream: &str, replicas: u64) -> Map<String, Value> {
    let config = json!({
        "name": stream,
        "description": "The log of decklog: what release controllers did to their clusters",
        "subjects": subjects(),
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
    let differences = FIELDS.iter().copied().filter_map(|field| {
        let is = &found[field];
        let wanted = match field {
            "subjects" => completed(is),
            "duplicate_window" => json!(window(found)),
            _ if is.is_boolean() => wanted.get(field).cloned().unwrap_or(json!(false)),
            _ => wanted.get(field).cloned().unwrap_or(Value::Null),
        };
        let is_same = match field {
            // Servers leave out what is false, and write no limit as 0 or -1.
            "max_age" | "max_bytes" | "max_msgs" | "max_msgs_per_subject" | "max_msg_size" | "max_consumers" => {
                is.as_i64().unwrap_or(0) <= 0
            }
            "duplicate_window" => is.as_u64() >= wanted.as_u64(),
            "num_replicas" => replicas.is_none() || *is == wanted,
            _ => *is == wanted || (is_nothing(&wanted) && is_nothing(is)),
        };
        let remedy = remedy(field, found, replicas);
        (!is_same).then(|| Difference { field, found: is.clone(), wanted, remedy })
    });
    differences.collect()
}

/// What becomes of a field that differs.
fn remedy(field: &'static str, found: &Value, replicas: Option<u64>) -> Remedy {
    match field {
        "subjects" if !is_nothing(&found["mirror"]) => Remedy::Leave("the copy of another stream takes no subjects"),
        "subjects" if is_in_the_way(&found[field]) => Remedy::Leave(
            "a subject that is there overlaps what is missing, and no subject is ever removed: widen it by hand",
        ),
        // Records that were kept until somebody took them are kept for good from then on.
        "retention" if found[field] == "interest" => Remedy::Change,
        "num_replicas" if replicas.is_some() => Remedy::Change,
        _ => match LEFT.iter().find(|(left, _)| *left == field) {
            Some((_, why)) => Remedy::Leave(why),
            None => Remedy::Change,
        },
    }
}

/// The subjects of a stream, and those that it lacks.
fn completed(found: &Value) -> Value {
    let mut all = found.as_array().cloned().unwrap_or_default();
    all.extend(missing(found).into_iter().map(Value::String));
    Value::Array(all)
}

fn missing(found: &Value) -> Vec<String> {
    let is_covered = |wanted: &String| texts(found).any(|there| covers(there, wanted));
    subjects().into_iter().filter(|wanted| !is_covered(wanted)).collect()
}

/// Whether a subject of the stream keeps a missing one out: the server takes no two that overlap.
fn is_in_the_way(found: &Value) -> bool {
    missing(found).iter().any(|missing| texts(found).any(|there| overlap(there, missing)))
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// The server takes no window that is longer than it keeps the records.
fn window(found: &Value) -> u64 {
    let kept = found["max_age"].as_u64().filter(|age| *age > 0);
    kept.map_or(DUPLICATE_WINDOW, |age| age.min(DUPLICATE_WINDOW))
}

/// Whether a field says no more than if it were absent.
fn is_nothing(value: &Value) -> bool {
    value.is_null() || *value == json!(false) || *value == json!("") || *value == json!("default")
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, found, wanted, remedy } = self;
        let wanted = if wanted.is_null() { "unset".to_owned() } else { wanted.to_string() };
        match remedy {
            Remedy::Change => write!(f, "{field}: was {found}, is now {wanted}"),
            Remedy::Leave(why) => write!(f, "{field}: is {found} and not {wanted}; it stays so: {why}"),
        }
    }
}
