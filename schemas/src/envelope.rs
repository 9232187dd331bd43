//! The envelope: bytes to attributes, and attributes to a validated event.

use serde::Deserialize;

use crate::event::{Body, Event, EventType, WriterSeq};
use crate::json;
use crate::msgpack;
use crate::outcome::{Invalid, Refusal};
use crate::text::Text;
use crate::time::Seconds;

/// The largest event that is decoded, in bytes: what a NATS server takes by default.
pub const MAX_EVENT_BYTES: usize = 1024 * 1024;

/// The deepest nesting of maps and lists that is decoded, the event itself being 1.
pub const MAX_DEPTH: usize = 64;

/// The cluster of an event that names none.
pub const DEFAULT_CLUSTER: &str = "default";

/// A CloudEvent as received: well-formed, and nothing else is known of it yet.
///
/// Attributes that this build does not know stay in the raw bytes and are not looked at.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Envelope<'a> {
    pub(crate) specversion: Attribute<'a>,
    pub(crate) id: Attribute<'a>,
    pub(crate) source: Attribute<'a>,
    pub(crate) r#type: Attribute<'a>,
    pub(crate) subject: Attribute<'a>,
    pub(crate) time: Attribute<'a>,
    pub(crate) cluster: Attribute<'a>,
    pub(crate) releaseuid: Attribute<'a>,
    pub(crate) writerseq: Attribute<'a>,
    pub(crate) term: Attribute<'a>,
    pub(crate) correlationid: Attribute<'a>,
    pub(crate) traceparent: Attribute<'a>,
    pub(crate) data: Data<'a>,
    /// What `data` says, where the codec has read it already.
    pub(crate) body: Option<Body<'a>>,
}

/// The value of a context attribute; `null` counts as absent, as CloudEvents has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Attribute<'a> {
    #[default]
    Absent,
    Text(Text<'a>),
    Unsigned(u64),
    Negative,
    /// Neither text nor integer; the word says what it is.
    Other(&'static str),
}

/// The raw `data` of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Data<'a> {
    #[default]
    Absent,
    Json(&'a str),
    MessagePack(&'a [u8]),
}

/// The bytes are not one CloudEvent within the caps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// There are no bytes.
    #[error("the event is empty")]
    Empty,
    /// More bytes than [`MAX_EVENT_BYTES`].
    #[error("the event has {size} bytes, and {MAX_EVENT_BYTES} is the most that is taken")]
    TooLarge {
        /// Size of the event in bytes.
        size: usize,
    },
    /// The first byte starts neither a MessagePack map nor a JSON object.
    #[error("byte 0 is {byte:#04x}, which starts neither a JSON object nor a MessagePack map")]
    NotAMap {
        /// The first byte.
        byte: u8,
    },
    /// Not JSON, or not one object.
    #[error("not a JSON object: {problem}")]
    Json {
        /// What the JSON reader says, with line and column.
        problem: String,
    },
    /// Not MessagePack.
    #[error("not MessagePack: {problem} at byte {offset}")]
    MessagePack {
        /// Where, in bytes from the start of the event.
        offset: usize,
        /// What is wrong there.
        problem: &'static str,
    },
    /// Something follows the event.
    #[error("the event ends at byte {offset}, and more bytes follow")]
    Trailing {
        /// Where the event ends, in bytes.
        offset: usize,
    },
    /// Maps or lists nested deeper than [`MAX_DEPTH`].
    #[error("maps and lists are nested deeper than {MAX_DEPTH} at byte {offset}")]
    TooDeep {
        /// Where, in bytes from the start of the event.
        offset: usize,
    },
    /// An attribute stands twice.
    #[error("the attribute {name:?} stands twice")]
    Twice {
        /// Name of the attribute.
        name: String,
    },
}

// === impl Envelope ===

impl<'a> Envelope<'a> {
    /// Reads one event, JSON or MessagePack, told apart by the first byte.
    ///
    /// # Errors
    /// The bytes are not one map, exceed a cap, or have something behind them.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, Malformed> {
        if bytes.len() > MAX_EVENT_BYTES {
            return Err(Malformed::TooLarge { size: bytes.len() });
        }
        match bytes.first() {
            None => Err(Malformed::Empty),
            Some(0x80..=0x8f | 0xde | 0xdf) => msgpack::envelope(bytes),
            Some(b'{' | b' ' | b'\t' | b'\r' | b'\n') => json::envelope(bytes),
            Some(byte) => Err(Malformed::NotAMap { byte: *byte }),
        }
    }

    /// Checks the attributes and the data against the rules of the event's type.
    ///
    /// # Errors
    /// The type is unknown, or a rule of the type is broken: the fold can only ignore such an event.
    pub fn validate(self) -> Result<Event<'a>, Refusal> {
        let wire = required("type", self.r#type)?;
        let Some(event_type) = EventType::from_wire(&wire) else {
            return Err(Refusal::Unsupported(wire.chars().take(128).collect()));
        };
        let specversion = required("specversion", self.specversion)?;
        if &*specversion != "1.0" {
            return Err(Invalid::new("/specversion", format!("{:?} is not \"1.0\"", &*specversion)).into());
        }
        optional("subject", self.subject)?;
        optional("cluster", self.cluster)?;
        optional("correlationid", self.correlationid)?;
        optional("traceparent", self.traceparent)?;
        let time = required("time", self.time)?;
        Ok(Event {
            id: required("id", self.id)?,
            source: required("source", self.source)?,
            time: Seconds::parse(&time).map_err(|error| Invalid::new("/time", error.to_string()))?,
            release_uid: optional("releaseuid", self.releaseuid)?.filter(|uid| !uid.is_empty()),
            writer_seq: writer_seq(self.writerseq)?,
            term: whole_number("term", self.term)?,
            body: match self.body {
                Some(body) => body,
                None => event_type.read(&self.data)?,
            },
        })
    }

    /// The type, if this build knows it.
    pub(crate) fn event_type(&self) -> Option<EventType> {
        self.wire_type().and_then(EventType::from_wire)
    }

    /// The `type` attribute, if it is text.
    #[must_use]
    pub fn wire_type(&self) -> Option<&str> {
        self.r#type.text()
    }

    /// The `subject` attribute, if it is text.
    #[must_use]
    pub fn subject(&self) -> Option<&str> {
        self.subject.text()
    }

    /// The `id` attribute, if it is text.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        self.id.text()
    }

    /// The `source` attribute, if it is text.
    #[must_use]
    pub fn source(&self) -> Option<&str> {
        self.source.text()
    }

    /// The `time` attribute, if it is text.
    #[must_use]
    pub fn time(&self) -> Option<&str> {
        self.time.text()
    }

    /// The cluster that the event is about; [`DEFAULT_CLUSTER`] if it names none.
    #[must_use]
    pub fn cluster(&self) -> &str {
        self.cluster.text().filter(|cluster| !cluster.is_empty()).unwrap_or(DEFAULT_CLUSTER)
    }

    pub(crate) fn attribute(&mut self, name: &[u8]) -> Option<&mut Attribute<'a>> {
        Some(match name {
            b"specversion" => &mut self.specversion,
            b"id" => &mut self.id,
            b"source" => &mut self.source,
            b"type" => &mut self.r#type,
            b"subject" => &mut self.subject,
            b"time" => &mut self.time,
            b"cluster" => &mut self.cluster,
            b"releaseuid" => &mut self.releaseuid,
            b"writerseq" => &mut self.writerseq,
            b"term" => &mut self.term,
            b"correlationid" => &mut self.correlationid,
            b"traceparent" => &mut self.traceparent,
            _ => return None,
        })
    }
}

fn required<'a>(name: &'static str, attribute: Attribute<'a>) -> Result<Text<'a>, Invalid> {
    match attribute {
        Attribute::Text(text) if text.is_empty() => Err(Invalid::new(format!("/{name}"), "must not be empty")),
        Attribute::Text(text) => Ok(text),
        Attribute::Absent => Err(Invalid::new(format!("/{name}"), "is required")),
        other => Err(other.is_not("a string", name)),
    }
}

fn optional<'a>(name: &'static str, attribute: Attribute<'a>) -> Result<Option<Text<'a>>, Invalid> {
    match attribute {
        Attribute::Absent => Ok(None),
        Attribute::Text(text) => Ok(Some(text)),
        other => Err(other.is_not("a string", name)),
    }
}

fn whole_number(name: &'static str, attribute: Attribute<'_>) -> Result<Option<u64>, Invalid> {
    match attribute {
        Attribute::Absent => Ok(None),
        Attribute::Unsigned(number) => Ok(Some(number)),
        other => Err(other.is_not("a whole number of 0 or more", name)),
    }
}

fn writer_seq(attribute: Attribute<'_>) -> Result<Option<WriterSeq>, Invalid> {
    whole_number("writerseq", attribute)?
        .map(|number| {
            WriterSeq::new(number).ok_or_else(|| Invalid::new("/writerseq", "is 0, and writers count from 1"))
        })
        .transpose()
}

// === impl Attribute ===

impl Attribute<'_> {
    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    fn is_not(&self, expected: &str, name: &str) -> Invalid {
        let found = match self {
            Self::Absent => "absent",
            Self::Text(_) => "a string",
            Self::Unsigned(_) => "a number",
            Self::Negative => "a negative number",
            Self::Other(word) => word,
        };
        Invalid::new(format!("/{name}"), format!("is {found}, and must be {expected}"))
    }
}

// === impl Data ===

impl<'a> Data<'a> {
    /// Reads the data of a type. An absent `data` is an empty map.
    pub(crate) fn read<T: Deserialize<'a>>(&self) -> Result<T, Invalid> {
        match *self {
            Self::Absent => read_json("{}"),
            Self::Json(text) if text.starts_with('{') => read_json(text),
            Self::MessagePack(bytes @ [0x80..=0x8f | 0xde | 0xdf, ..]) => read_msgpack(bytes),
            Self::Json(_) | Self::MessagePack(_) => Err(Invalid::new("/data", "must be a map")),
        }
    }
}

/// The fast way first; only an error pays for knowing its place.
fn read_json<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Invalid> {
    serde_json::from_str(text).or_else(|_| {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        serde_path_to_error::deserialize(&mut deserializer).map_err(|error| located(&error))
    })
}

fn read_msgpack<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Invalid> {
    rmp_serde::from_slice(bytes).or_else(|_| {
        let mut deserializer = rmp_serde::Deserializer::from_read_ref(bytes);
        serde_path_to_error::deserialize(&mut deserializer).map_err(|error| located(&error))
    })
}

fn located<E: std::error::Error>(error: &serde_path_to_error::Error<E>) -> Invalid {
    let mut pointer = String::from("/data");
    for segment in error.path() {
        if !matches!(segment, serde_path_to_error::Segment::Unknown) {
            pointer.push('/');
            pointer.push_str(&segment.to_string());
        }
    }
    let problem = error.inner().to_string();
    // The reader's line and column count from the start of `data`, which nobody sees.
    let problem = problem.split(" at line ").next().unwrap_or(&problem);
    // The reader of MessagePack has another word for null.
    match problem.strip_prefix("invalid type: unit value") {
        Some(rest) => Invalid::new(pointer, format!("invalid type: null{rest}")),
        None => Invalid::new(pointer, problem),
    }
}
