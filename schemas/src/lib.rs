//! What crosses a process boundary or reaches a disk: events, envelope, codec, subjects, answers and the ReleaseInventory CRD.

pub mod answer;
pub mod catalog;
pub mod crd;
pub mod data;
mod draft;
mod duration;
mod envelope;
mod event;
pub mod inventory;
mod json;
mod msgpack;
mod names;
mod outcome;
mod record;
pub mod subject;
mod text;
mod time;

pub use draft::Draft;
pub use duration::{BadDuration, GoDuration};
pub use envelope::{DEFAULT_CLUSTER, Envelope, MAX_DEPTH, MAX_EVENT_BYTES, Malformed};
pub use event::{Body, Domain, Event, EventType, WriterSeq};
pub use msgpack::split_msgpack;
pub use names::{ReleaseKey, Sequence};
pub use outcome::{Invalid, Outcome, Reason, Refusal};
pub use record::{About, Placed, Quarantined, Record};
pub use subject::{Unplaced, escape};
pub use text::{EmptyName, Name, Text};
pub use time::{BadTime, Seconds};
