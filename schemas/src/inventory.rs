//! The ReleaseInventory object: its fields as Rust types, in the order in which they are written.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::data::{Health, HookResult, Phase};
use crate::duration::GoDuration;
use crate::time::Seconds;

/// API group of the object.
pub const GROUP: &str = "core.convoy.kumodo.io";
/// API version of the object.
pub const VERSION: &str = "v1alpha1";
/// Kind of the object.
pub const KIND: &str = "ReleaseInventory";
/// Plural of the kind, as URLs and RBAC rules spell it.
pub const PLURAL: &str = "releaseinventories";
/// Label that names the release's shard.
pub const SHARD_LABEL: &str = "core.convoy.kumodo.io/shard";
/// Annotation that names the cluster where objects of several clusters are printed side by side.
pub const CLUSTER_ANNOTATION: &str = "decklog.dev/cluster";

/// One release's inventory, canonical: lists sorted by their keys, absent values left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseInventory {
    /// Always [`GROUP`]`/`[`VERSION`].
    pub api_version: String,
    /// Always [`KIND`].
    pub kind: String,
    /// Name, namespace and shard label.
    pub metadata: Metadata,
    /// The object's own fields, at its root.
    #[serde(flatten)]
    pub fields: InventoryFields,
}

/// The part of the object's metadata that the fold decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// Name of the Release.
    pub name: String,
    /// Namespace of the Release.
    pub namespace: String,
    /// The shard label, if the Release has one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// None in the canonical object.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// What a release controller has put into a cluster for one release, and how it fares there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InventoryFields {
    /// Objects of the release, sorted by group, kind, namespace and name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["group", "kind", "namespace", "name"]
    ))]
    pub inventory: Vec<InventoryItem>,
    /// Hooks of the release, sorted by phase and name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name", "phase"]))]
    pub hooks: Vec<InventoryHook>,
}

/// One object of the release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InventoryItem {
    /// API group, "" for the core group.
    pub group: String,
    /// Kind of the object.
    pub kind: String,
    /// Namespace of the object, "" if it is cluster-scoped.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// API version that it was applied with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The render that it was last applied from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub render_ref: Option<String>,
    /// The wave that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wave: Option<i64>,
    /// UID of the object in the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// What the observer found it to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Health>,
    /// The render that the state is about; another one than renderRef means not yet assessed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assessed_render_ref: Option<String>,
    /// Since when it is not healthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_unhealthy: Option<Seconds>,
    /// Why it is in this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// One hook of the release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InventoryHook {
    /// Name of the hook.
    pub name: String,
    /// When it runs.
    pub phase: Phase,
    /// API group of its workload, "" for the core group.
    pub group: String,
    /// Kind of its workload.
    pub kind: String,
    /// API version of its workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The render that it runs for.
    pub render_ref: String,
    /// Order among the hooks of its phase.
    pub weight: i64,
    /// Name of its workload.
    #[serde(rename = "workloadname")]
    pub workload_name: String,
    /// Namespace of its workload.
    #[serde(rename = "workloadnamespace", default, skip_serializing_if = "Option::is_none")]
    pub workload_namespace: Option<String>,
    /// How long it may run, as Go prints durations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<GoDuration>,
    /// When its workload was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Seconds>,
    /// How it fares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<HookState>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Seconds>,
    /// Why it is in this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// How a hook fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the names are those of the release controller's hook states")]
pub enum HookState {
    Failed,
    Running,
    Skipped,
    Succeeded,
    TimedOut,
}

impl HookState {
    /// Whether the hook has ended; the first end is the one that counts.
    #[must_use]
    pub fn is_finished(self) -> bool {
        self != Self::Running
    }
}

impl ReleaseInventory {
    /// The object of a release with these fields.
    #[must_use]
    pub fn new(namespace: &str, name: &str, shard: Option<&str>, fields: InventoryFields) -> Self {
        Self {
            api_version: format!("{GROUP}/{VERSION}"),
            kind: KIND.to_owned(),
            metadata: Metadata {
                name: name.to_owned(),
                namespace: namespace.to_owned(),
                annotations: BTreeMap::new(),
                labels: shard.map(|shard| (SHARD_LABEL.to_owned(), shard.to_owned())).into_iter().collect(),
            },
            fields,
        }
    }

    /// The canonical bytes: compact JSON in the order of the fields here. Digests are taken over these.
    #[must_use]
    pub fn canonical(&self) -> Vec<u8> {
        match serde_json::to_vec(self) {
            Ok(bytes) => bytes,
            Err(error) => {
                unreachable!("an object of strings and numbers does not fail to serialize: {error}")
            }
        }
    }
}

impl From<HookResult> for HookState {
    fn from(result: HookResult) -> Self {
        match result {
            HookResult::Succeeded => Self::Succeeded,
            HookResult::Failed => Self::Failed,
            HookResult::TimedOut => Self::TimedOut,
        }
    }
}
