//! Writing events: the envelope in the order that readers expect, MessagePack or JSON.

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::event::{Body, WriterSeq};
use crate::names::ReleaseKey;

/// An event before it is written. Absent attributes are not written at all.
#[derive(Clone, Debug)]
pub struct Draft<'a> {
    /// `id`, a UUID; version 7 sorts by time.
    pub id: &'a str,
    /// `source`: `/<component>/<instance>`, the instance new for every process start.
    pub source: &'a str,
    /// The release that it is about; none for a deployment.
    pub release: Option<&'a ReleaseKey>,
    /// `time`: the writer's clock.
    pub time: jiff::Timestamp,
    /// `releaseuid`: `metadata.uid` of the Release.
    pub release_uid: Option<&'a str>,
    /// `writerseq`: 1, 2, 3 … for each source.
    pub writer_seq: Option<WriterSeq>,
    /// `term` of the writer's lease.
    pub term: Option<u64>,
    /// `correlationid`: the sync that it belongs to.
    pub correlation_id: Option<&'a str>,
    /// `traceparent`: W3C trace context.
    pub trace_parent: Option<&'a str>,
    /// What happened.
    pub body: Body<'a>,
}

impl Draft<'_> {
    /// Appends the MessagePack form, a map with names, to `buffer`.
    pub fn write_msgpack(&self, buffer: &mut Vec<u8>) {
        let mut serializer = rmp_serde::Serializer::new(buffer).with_struct_map();
        if let Err(error) = self.serialize(&mut serializer) {
            unreachable!("an event of strings and numbers does not fail to serialize into memory: {error}");
        }
    }

    /// The CloudEvents JSON form, one line.
    #[must_use]
    pub fn to_json(&self) -> String {
        match serde_json::to_string(self) {
            Ok(text) => text,
            Err(error) => {
                unreachable!("an event of strings and numbers does not fail to serialize: {error}")
            }
        }
    }
}

impl Serialize for Draft<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let optional = [self.release_uid.is_some(), self.writer_seq.is_some(), self.term.is_some()];
        let context = [self.correlation_id.is_some(), self.trace_parent.is_some()];
        let present = optional.iter().chain(&context).filter(|present| **present).count();
        let mut map = serializer.serialize_map(Some(6 + present + if self.release.is_some() { 2 } else { 0 }))?;
        map.serialize_entry("specversion", "1.0")?;
        map.serialize_entry("id", self.id)?;
        map.serialize_entry("source", self.source)?;
        map.serialize_entry("type", self.body.event_type().wire())?;
        if let Some(release) = self.release {
            map.serialize_entry("subject", &format_args!("{}/{}", release.namespace, release.name))?;
        }
        map.serialize_entry("time", &format_args!("{}", self.time))?;
        if let Some(release) = self.release {
            map.serialize_entry("cluster", &*release.cluster)?;
        }
        if let Some(uid) = self.release_uid {
            map.serialize_entry("releaseuid", uid)?;
        }
        if let Some(number) = self.writer_seq {
            map.serialize_entry("writerseq", &number)?;
        }
        if let Some(term) = self.term {
            map.serialize_entry("term", &term)?;
        }
        if let Some(id) = self.correlation_id {
            map.serialize_entry("correlationid", id)?;
        }
        if let Some(parent) = self.trace_parent {
            map.serialize_entry("traceparent", parent)?;
        }
        map.serialize_entry("data", &DataOf(&self.body))?;
        map.end()
    }
}

struct DataOf<'a>(&'a Body<'a>);

impl Serialize for DataOf<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}
