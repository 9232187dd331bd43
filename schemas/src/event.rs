//! The event types: one line in the table below makes a type, and the compiler then asks for the rest.

use std::fmt;
use std::num::NonZeroU64;

use schemars::{Schema, SchemaGenerator};

use crate::data::*;
use crate::envelope::Data;
use crate::msgpack::{self, Reader};
use crate::outcome::Invalid;
use crate::text::Text;
use crate::time::Seconds;

/// Who may say it: one domain is one writer's authority, and a token of the subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Domain {
    /// The controller, about the release and its syncs.
    Release,
    /// The controller, about applied and pruned items.
    ReleaseInventory,
    /// The observer, about the health of items.
    HealthInventory,
    /// The controller, about the hooks that it runs.
    ReleaseHooks,
    /// The observer, about how hooks fare.
    HookStatus,
    /// The projector, about what it did to the cluster.
    Projector,
    /// A CI pipeline, about a deployment.
    Deployment,
}

/// `writerseq`: 1, 2, 3 … for each `source`.
pub type WriterSeq = NonZeroU64;

/// A validated event: everything the fold needs, borrowed from the received bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// `id`; equal ids are one event.
    pub id: Text<'a>,
    /// `source`: which process of which component says it.
    pub source: Text<'a>,
    /// `time`, the writer's clock in whole seconds; never used for order.
    pub time: Seconds,
    /// `releaseuid`: which incarnation of the release it is about.
    pub release_uid: Option<Text<'a>>,
    /// `writerseq`, where the writer counts.
    pub writer_seq: Option<WriterSeq>,
    /// `term` of the writer's lease.
    pub term: Option<u64>,
    /// What happened.
    pub body: Body<'a>,
}

macro_rules! lifetime_of {
    ($data:ident, a) => { $data<'a> };
    ($data:ident) => { $data };
}

macro_rules! static_of {
    ($data:ident, a) => { $data<'static> };
    ($data:ident) => { $data };
}

macro_rules! event_types {
    ($($(#[doc = $doc:literal])+ $domain:ident $name:ident $(<$a:ident>)?,)*) => {
        /// The kinds of events that this build knows, all of version 1.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum EventType { $($(#[doc = $doc])+ $name,)* }

        /// The validated `data` of an event.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Body<'a> { $($(#[doc = $doc])+ $name(lifetime_of!($name $(, $a)?)),)* }

        impl EventType {
            /// Every type, in the order of the design's table.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The bare name, such as `ItemApplied`.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// The domain that the type belongs to.
            #[must_use]
            pub fn domain(self) -> Domain {
                match self { $(Self::$name => Domain::$domain,)* }
            }

            /// The type with this bare name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $(stringify!($name) => Some(Self::$name),)* _ => None }
            }

            /// The type of a CloudEvents `type` attribute; none if this build does not know it.
            #[must_use]
            pub fn from_wire(wire: &str) -> Option<Self> {
                match wire.strip_prefix("dev.decklog.")? {
                    $(concat!(stringify!($name), ".v1") => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// The CloudEvents `type` attribute, such as `dev.decklog.ItemApplied.v1`.
            #[must_use]
            pub fn wire(self) -> &'static str {
                match self { $(Self::$name => concat!("dev.decklog.", stringify!($name), ".v1"),)* }
            }

            /// What the type says, in a sentence.
            #[must_use]
            pub fn about(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc),+).trim_ascii(),)* }
            }

            pub(crate) fn read<'a>(self, data: &Data<'a>) -> Result<Body<'a>, Invalid> {
                match self { $(Self::$name => data.read().map(Body::$name),)* }
            }

            pub(crate) fn read_msgpack<'a>(self, reader: &mut Reader<'a>) -> Option<Body<'a>> {
                match self { $(Self::$name => msgpack::read(reader).map(Body::$name),)* }
            }

            /// Reads and checks the data of this type from JSON text.
            ///
            /// # Errors
            /// A rule of the type is broken.
            pub fn read_json(self, data: &str) -> Result<Body<'_>, Invalid> {
                self.read(&Data::Json(data))
            }

            pub(crate) fn schema(self, generator: &mut SchemaGenerator) -> Schema {
                match self { $(Self::$name => generator.root_schema_for::<static_of!($name $(, $a)?)>(),)* }
            }
        }

        impl Body<'_> {
            /// The type of the event.
            #[must_use]
            pub fn event_type(&self) -> EventType {
                match self { $(Self::$name(_) => EventType::$name,)* }
            }

            pub(crate) fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self { $(Self::$name(data) => serde::Serialize::serialize(data, serializer),)* }
            }
        }
    };
}

event_types! {
    /// The release was first seen, or its shard label changed.
    Release ReleaseTracked<a>,
    /// The deletion of the release began.
    Release ReleaseDeleting,
    /// The controller is done with the release.
    Release ReleaseDeleted,
    /// A sync to a render began.
    Release SyncStarted<a>,
    /// A sync ended.
    Release SyncFinished<a>,
    /// An item was applied to the cluster.
    ReleaseInventory ItemApplied<a>,
    /// An item could not be applied.
    ReleaseInventory ItemApplyFailed<a>,
    /// An item was removed from the cluster.
    ReleaseInventory ItemPruned<a>,
    /// An item could not be removed.
    ReleaseInventory ItemPruneFailed<a>,
    /// The observer assessed an item.
    HealthInventory HealthAssessed<a>,
    /// A hook's workload was created.
    ReleaseHooks HookStarted<a>,
    /// A hook was not run.
    ReleaseHooks HookSkipped<a>,
    /// A hook is no longer part of the release.
    ReleaseHooks HookRemoved<a>,
    /// A hook was seen running.
    HookStatus HookRunning<a>,
    /// A hook ended.
    HookStatus HookFinished<a>,
    /// The ReleaseInventory object is gone from the cluster.
    Projector InventoryDeleted,
    /// The cluster will not take the projection of the release.
    Projector ProjectionRefused<a>,
    /// A CI pipeline reported a deployment.
    Deployment DeploymentRecorded<a>,
}

impl Domain {
    /// The domain as the subject spells it, such as `health-inventory`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::ReleaseInventory => "release-inventory",
            Self::HealthInventory => "health-inventory",
            Self::ReleaseHooks => "release-hooks",
            Self::HookStatus => "hook-status",
            Self::Projector => "projector",
            Self::Deployment => "deployment",
        }
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The bare name of an unknown type where it has our prefix: `ItemApplied` of `dev.decklog.ItemApplied.v7`.
pub(crate) fn bare_name(wire: &str) -> Option<&str> {
    let (name, major) = wire.strip_prefix("dev.decklog.")?.rsplit_once(".v")?;
    (!major.is_empty() && major.bytes().all(|byte| byte.is_ascii_digit())).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wire_names_round_trip() {
        for event_type in EventType::ALL {
            assert_eq!(EventType::from_wire(event_type.wire()), Some(*event_type));
            assert_eq!(EventType::from_name(event_type.name()), Some(*event_type));
            assert_eq!(bare_name(event_type.wire()), Some(event_type.name()));
        }
        assert_eq!(EventType::from_wire("dev.decklog.ItemApplied.v7"), None);
        assert_eq!(EventType::from_wire("dev.decklog.ItemApplied.v01"), None);
        assert_eq!(EventType::from_wire("com.example.ItemApplied.v1"), None);
        assert_eq!(bare_name("dev.decklog.ItemApplied.v7"), Some("ItemApplied"));
        assert_eq!(bare_name("com.example.Thing"), None);
    }
}
