//! The `data` of every event type, version 1. Released shapes are frozen: a change is a new type or a new major version.

use std::fmt;
use std::marker::PhantomData;

use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::duration::GoDuration;
use crate::text::{Name, Text};
use crate::time::Seconds;

// --- What is spoken about -------------------------------------------------------------------------------------------

/// An object of the release, by what identifies it in the inventory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Item<'a> {
    /// API group; `""` is the core group, never absent.
    #[serde(borrow)]
    pub group: Text<'a>,
    /// API version, such as `v1`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub version: Option<Text<'a>>,
    /// Kind, such as `Deployment`.
    #[serde(borrow)]
    pub kind: Name<'a>,
    /// Namespace; `""` for cluster-scoped objects, never absent.
    #[serde(borrow)]
    pub namespace: Text<'a>,
    /// Name of the object.
    #[serde(borrow)]
    pub name: Name<'a>,
}

/// An object of the release as it was applied: the version is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AppliedItem<'a> {
    /// API group; `""` is the core group, never absent.
    #[serde(borrow)]
    pub group: Text<'a>,
    /// API version, such as `v1`.
    #[serde(borrow)]
    pub version: Text<'a>,
    /// Kind, such as `Deployment`.
    #[serde(borrow)]
    pub kind: Name<'a>,
    /// Namespace; `""` for cluster-scoped objects, never absent.
    #[serde(borrow)]
    pub namespace: Text<'a>,
    /// Name of the object.
    #[serde(borrow)]
    pub name: Name<'a>,
}

/// A hook of the release: one name may stand in several phases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HookRef<'a> {
    /// Name of the hook.
    #[serde(borrow)]
    pub name: Name<'a>,
    /// When it runs.
    pub phase: Phase,
}

/// The object that does a hook's work, usually a Job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Workload<'a> {
    /// API group; `""` is the core group.
    #[serde(borrow)]
    pub group: Text<'a>,
    /// API version, such as `v1`.
    #[serde(borrow)]
    pub version: Text<'a>,
    /// Kind, such as `Job`.
    #[serde(borrow)]
    pub kind: Name<'a>,
    /// Namespace, if the object has one.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Text<'a>>,
    /// Name of the object.
    #[serde(borrow)]
    pub name: Name<'a>,
    /// `metadata.uid` of the object: which run this is.
    #[serde(borrow, default, deserialize_with = "unless_empty", skip_serializing_if = "Option::is_none")]
    pub uid: Option<Text<'a>>,
}

/// When a hook runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "the names are those of the release controller's hook phases")]
pub enum Phase {
    PostDelete,
    PostSync,
    PreDelete,
    PreSync,
    SyncFailed,
}

/// What the observer found an item to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "the names are those of the release controller's health states")]
pub enum Health {
    Healthy,
    Progressing,
    Degraded,
    Unknown,
}

/// How a hook ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "the names are those of the release controller's hook states")]
pub enum HookResult {
    Succeeded,
    Failed,
    TimedOut,
}

/// How a sync ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "the names are those of the release controller's sync outcomes")]
pub enum SyncOutcome {
    Succeeded,
    Failed,
    Aborted,
}

// --- Domain release -------------------------------------------------------------------------------------------------

/// The release was first seen, or its shard label changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReleaseTracked<'a> {
    /// Value of the release's shard label; absent if it has none.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<Text<'a>>,
}

/// Deletion began; hooks and prunes of the deletion follow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReleaseDeleting {}

/// The controller is done with the release: its inventory is dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReleaseDeleted {}

/// A sync to a render began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SyncStarted<'a> {
    /// The render that is synced.
    #[serde(borrow)]
    pub render_ref: Name<'a>,
    /// Source revision of the render, such as a git commit.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<Text<'a>>,
    /// How many items the render has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<u64>,
}

/// A sync ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SyncFinished<'a> {
    /// The render that was synced.
    #[serde(borrow)]
    pub render_ref: Name<'a>,
    /// How it ended.
    pub outcome: SyncOutcome,
    /// Why, in words.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Text<'a>>,
}

// --- Domain release-inventory ---------------------------------------------------------------------------------------

/// An item was applied to the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ItemApplied<'a> {
    /// Which object.
    #[serde(borrow, deserialize_with = "map")]
    pub item: AppliedItem<'a>,
    /// The render that it was applied from.
    #[serde(borrow)]
    pub render_ref: Name<'a>,
    /// Wave that it belongs to; 0 if absent.
    #[serde(default, deserialize_with = "or_default")]
    #[schemars(with = "Option<i64>")]
    pub wave: i64,
    /// `metadata.uid` that the API server answered.
    #[serde(borrow, default, deserialize_with = "unless_empty", skip_serializing_if = "Option::is_none")]
    pub uid: Option<Text<'a>>,
}

/// An item could not be applied. It is told, and changes no row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ItemApplyFailed<'a> {
    /// Which object.
    #[serde(borrow, deserialize_with = "map")]
    pub item: Item<'a>,
    /// The render that it was to be applied from.
    #[serde(borrow)]
    pub render_ref: Name<'a>,
    /// What the API server answered.
    #[serde(borrow)]
    pub message: Text<'a>,
}

/// An item was removed from the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ItemPruned<'a> {
    /// Which object.
    #[serde(borrow, deserialize_with = "map")]
    pub item: Item<'a>,
    /// `metadata.uid` of the removed object; protects one that was created anew since.
    #[serde(borrow, default, deserialize_with = "unless_empty", skip_serializing_if = "Option::is_none")]
    pub uid: Option<Text<'a>>,
}

/// An item could not be removed. It is told, and the row stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ItemPruneFailed<'a> {
    /// Which object.
    #[serde(borrow, deserialize_with = "map")]
    pub item: Item<'a>,
    /// What the API server answered.
    #[serde(borrow)]
    pub message: Text<'a>,
}

// --- Domain health-inventory ----------------------------------------------------------------------------------------

/// The observer assessed an item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthAssessed<'a> {
    /// Which object.
    #[serde(borrow, deserialize_with = "map")]
    pub item: Item<'a>,
    /// `metadata.uid` of the assessed object.
    #[serde(borrow, default, deserialize_with = "unless_empty", skip_serializing_if = "Option::is_none")]
    pub uid: Option<Text<'a>>,
    /// What it was found to be.
    pub state: Health,
    /// The render that the assessed object came from.
    #[serde(borrow)]
    pub assessed_render_ref: Name<'a>,
    /// Since when it is not healthy, if the observer knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_unhealthy: Option<Seconds>,
    /// Why, in words.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Text<'a>>,
}

// --- Domain release-hooks -------------------------------------------------------------------------------------------

/// A hook's workload was created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HookStarted<'a> {
    /// Which hook.
    #[serde(borrow, deserialize_with = "map")]
    pub hook: HookRef<'a>,
    /// What does its work.
    #[serde(borrow, deserialize_with = "map")]
    pub workload: Workload<'a>,
    /// The render that it runs for.
    #[serde(borrow)]
    pub render_ref: Name<'a>,
    /// Order among the hooks of its phase.
    pub weight: i64,
    /// How long it may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<GoDuration>,
    /// When the workload was created.
    pub created_at: Seconds,
}

/// A hook was not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HookSkipped<'a> {
    /// Which hook.
    #[serde(borrow, deserialize_with = "map")]
    pub hook: HookRef<'a>,
    /// What would have done its work.
    #[serde(borrow, deserialize_with = "map")]
    pub workload: Workload<'a>,
    /// The render that it would have run for.
    #[serde(borrow)]
    pub render_ref: Name<'a>,
    /// Order among the hooks of its phase.
    pub weight: i64,
    /// Why, in words.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Text<'a>>,
}

/// A hook is no longer part of the release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HookRemoved<'a> {
    /// Which hook.
    #[serde(borrow, deserialize_with = "map")]
    pub hook: HookRef<'a>,
}

// --- Domain hook-status ---------------------------------------------------------------------------------------------

/// A hook was seen running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HookRunning<'a> {
    /// Which hook.
    #[serde(borrow, deserialize_with = "map")]
    pub hook: HookRef<'a>,
    /// The render that it runs for.
    #[serde(borrow)]
    pub render_ref: Name<'a>,
    /// How far it is, in words.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Text<'a>>,
}

/// A hook ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HookFinished<'a> {
    /// Which hook.
    #[serde(borrow, deserialize_with = "map")]
    pub hook: HookRef<'a>,
    /// The render that it ran for.
    #[serde(borrow)]
    pub render_ref: Name<'a>,
    /// How it ended.
    pub state: HookResult,
    /// When it ended; the event's own time if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Seconds>,
    /// Why, in words.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Text<'a>>,
    /// `metadata.uid` of the workload that ended: which run this is about.
    #[serde(borrow, default, deserialize_with = "unless_empty", skip_serializing_if = "Option::is_none")]
    pub workload_uid: Option<Text<'a>>,
}

// --- Domain projector -----------------------------------------------------------------------------------------------

/// The ReleaseInventory object is gone from the cluster: the controller may clear the Release's finalizer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InventoryDeleted {}

/// The cluster will not take the projection of this release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProjectionRefused<'a> {
    /// The field manager whose body was refused.
    #[serde(borrow)]
    pub field_manager: Text<'a>,
    /// The class of the refusal, in one word.
    #[serde(borrow)]
    pub reason: Text<'a>,
    /// What the API server answered.
    #[serde(borrow)]
    pub message: Text<'a>,
}

// --- Domain deployment ----------------------------------------------------------------------------------------------

/// A CI pipeline reported a deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentRecorded<'a> {
    /// What the payload is, such as `helm-deployment-from-concourse.v1`.
    #[serde(borrow)]
    pub payload_type: Name<'a>,
    /// The deployment event as received, byte for byte: JSON text in a string.
    #[serde(borrow)]
    pub payload: Text<'a>,
}

// === Names of the enumerations ===

macro_rules! names {
    ($($enumeration:ty: $($variant:ident)*;)*) => {$(
        impl $enumeration {
            /// The name as events and objects spell it.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => stringify!($variant),)* }
            }
        }

        impl<'de> Deserialize<'de> for $enumeration {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = Text::deserialize(deserializer)?;
                match &*text {
                    $(stringify!($variant) => Ok(Self::$variant),)*
                    _ => Err(de::Error::unknown_variant(&text, &[$(stringify!($variant)),*])),
                }
            }
        }

        impl fmt::Display for $enumeration {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }
    )*};
}

names! {
    Phase: PostDelete PostSync PreDelete PreSync SyncFailed;
    Health: Healthy Progressing Degraded Unknown;
    HookResult: Succeeded Failed TimedOut;
    SyncOutcome: Succeeded Failed Aborted;
}

// === Readers of optional fields ===

/// A uid that is `""` is no uid: writers in Go send it for "not known".
fn unless_empty<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Text<'a>>, D::Error> {
    Ok(Option::<Text<'a>>::deserialize(deserializer)?.filter(|text| !text.is_empty()))
}

/// A map and nothing else: serde's derived readers would take a list of the values too, and one added field breaks that.
fn map<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    struct OnlyMap<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for OnlyMap<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map))
        }
    }

    deserializer.deserialize_map(OnlyMap(PhantomData))
}

/// `null` stands for absent.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
