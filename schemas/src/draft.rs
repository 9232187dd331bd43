//! Writing events: the envelope in the order that readers expect, MessagePack or JSON.

use std::convert::Infallible;

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::event::{Body, WriterSeq};
use crate::msgpack::{write_map_head, write_name, write_number, write_text, write_text_head};
use crate::names::ReleaseKey;
use crate::time::{RFC3339_BYTES, rfc3339};

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

/// One of the two forms, as far as the attributes go: the map of the event, to which they are added.
trait Attributes {
    type Error;

    fn text(&mut self, name: &'static str, value: &str) -> Result<(), Self::Error>;

    fn subject(&mut self, release: &ReleaseKey) -> Result<(), Self::Error>;

    fn time(&mut self, time: &[u8]) -> Result<(), Self::Error>;

    fn number(&mut self, name: &'static str, value: u64) -> Result<(), Self::Error>;
}

struct Msgpack<'b>(&'b mut Vec<u8>);

struct Json<M>(M);

// === impl Draft ===

impl Draft<'_> {
    /// Appends the MessagePack form, a map with names, to `buffer`.
    pub fn write_msgpack(&self, buffer: &mut Vec<u8>) {
        write_map_head(buffer, self.entries());
        let Ok(()) = self.write_attributes(&mut Msgpack(buffer));
        write_name(buffer, "data");
        if let Err(error) = self.body.serialize(&mut rmp_serde::Serializer::new(buffer).with_struct_map()) {
            unreachable!("a struct of strings and numbers does not fail to serialize into memory: {error}");
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

    /// How many entries the map of the event has, `data` included.
    fn entries(&self) -> u8 {
        let optional = [self.release_uid, self.correlation_id, self.trace_parent].iter().flatten().count();
        let numbers = usize::from(self.writer_seq.is_some()) + usize::from(self.term.is_some());
        let of_release = if self.release.is_some() { 2 } else { 0 };
        (6 + of_release + optional + numbers) as u8
    }

    fn write_attributes<A: Attributes>(&self, map: &mut A) -> Result<(), A::Error> {
        map.text("specversion", "1.0")?;
        map.text("id", self.id)?;
        map.text("source", self.source)?;
        map.text("type", self.body.event_type().wire())?;
        if let Some(release) = self.release {
            map.subject(release)?;
        }
        map.time(rfc3339(self.time, &mut [0; RFC3339_BYTES]))?;
        if let Some(release) = self.release {
            map.text("cluster", &release.cluster)?;
        }
        if let Some(uid) = self.release_uid {
            map.text("releaseuid", uid)?;
        }
        if let Some(number) = self.writer_seq {
            map.number("writerseq", number.get())?;
        }
        if let Some(term) = self.term {
            map.number("term", term)?;
        }
        if let Some(id) = self.correlation_id {
            map.text("correlationid", id)?;
        }
        if let Some(parent) = self.trace_parent {
            map.text("traceparent", parent)?;
        }
        Ok(())
    }
}

impl Serialize for Draft<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = Json(serializer.serialize_map(Some(usize::from(self.entries())))?);
        self.write_attributes(&mut map)?;
        map.0.serialize_entry("data", &DataOf(&self.body))?;
        map.0.end()
    }
}

impl Attributes for Msgpack<'_> {
    type Error = Infallible;

    #[inline(always)]
    fn text(&mut self, name: &'static str, value: &str) -> Result<(), Infallible> {
        write_name(self.0, name);
        write_text(self.0, value.as_bytes());
        Ok(())
    }

    fn subject(&mut self, release: &ReleaseKey) -> Result<(), Infallible> {
        let (namespace, name) = (release.namespace.as_bytes(), release.name.as_bytes());
        write_name(self.0, "subject");
        write_text_head(self.0, namespace.len() + 1 + name.len());
        self.0.extend_from_slice(namespace);
        self.0.push(b'/');
        self.0.extend_from_slice(name);
        Ok(())
    }

    fn time(&mut self, time: &[u8]) -> Result<(), Infallible> {
        write_name(self.0, "time");
        write_text(self.0, time);
        Ok(())
    }

    #[inline(always)]
    fn number(&mut self, name: &'static str, value: u64) -> Result<(), Infallible> {
        write_name(self.0, name);
        write_number(self.0, value);
        Ok(())
    }
}

impl<M: SerializeMap> Attributes for Json<M> {
    type Error = M::Error;

    fn text(&mut self, name: &'static str, value: &str) -> Result<(), M::Error> {
        self.0.serialize_entry(name, value)
    }

    fn subject(&mut self, release: &ReleaseKey) -> Result<(), M::Error> {
        self.0.serialize_entry("subject", &format_args!("{}/{}", release.namespace, release.name))
    }

    fn time(&mut self, time: &[u8]) -> Result<(), M::Error> {
        self.0.serialize_entry("time", &String::from_utf8_lossy(time))
    }

    fn number(&mut self, name: &'static str, value: u64) -> Result<(), M::Error> {
        self.0.serialize_entry(name, &value)
    }
}

struct DataOf<'a>(&'a Body<'a>);

impl Serialize for DataOf<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}
