//! Releases for tests: a minimal definition of the resource, and objects of it, as a user and a controller handle them.

use std::time::Duration;

use serde_json::{Value, json};

use crate::kube::ControlPlane;
use crate::process::poll;

/// The finalizer of decklog.
pub const FINALIZER: &str = "decklog.dev/inventory";

/// Namespace of all objects.
pub const NAMESPACE: &str = "shop";

/// How long it may take until a new definition is served.
const LIMIT: Duration = Duration::from_secs(60);

/// A resource that is the Release.
#[derive(Debug, Clone, Copy)]
pub struct ReleaseCrd {
    /// API group.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Plural of the kind.
    pub plural: &'static str,
}

impl ReleaseCrd {
    /// What decklog takes for the Release if nobody says otherwise.
    pub const USUAL: Self =
        Self { group: "core.convoy.kumodo.io", version: "v1alpha1", kind: "Release", plural: "releases" };

    /// Installs the definition; objects can be made when this returns.
    pub fn install(&self, plane: &ControlPlane) {
        let Self { group, version, kind, plural } = self;
        let names = json!({
            "kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase(),
        });
        let spec = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        let schema = json!({ "openAPIV3Schema": { "type": "object", "properties": { "spec": spec } } });
        plane.apply(
            &json!({
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": { "name": format!("{plural}.{group}") },
                "spec": {
                    "group": group,
                    "names": names,
                    "scope": "Namespaced",
                    "versions": [{ "name": version, "served": true, "storage": true, "schema": schema }],
                },
            })
            .to_string(),
        );
        let list = format!("/apis/{group}/{version}/{plural}");
        let served = poll(LIMIT, || plane.kubectl(&["get", "--raw", &list], "").status.success().then_some(()));
        assert!(served.is_some(), "{list} is not served:\n{}", plane.api_server_log());
    }

    /// Makes an object, with the usual shard label if there is a shard, and returns its uid.
    pub fn create(&self, plane: &ControlPlane, name: &str, shard: Option<&str>, finalizers: &[&str]) -> String {
        let labels: serde_json::Map<_, _> =
            shard.map(|shard| (SHARD_LABEL.to_owned(), json!(shard))).into_iter().collect();
        let object = json!({
            "apiVersion": format!("{}/{}", self.group, self.version),
            "kind": self.kind,
            "metadata": { "name": name, "namespace": NAMESPACE, "labels": labels, "finalizers": finalizers },
            "spec": { "revision": 1 },
        });
        let made = plane.kubectl_stdout(&["create", "-o", "json", "-f", "-"], &object.to_string());
        let made: Value = serde_json::from_str(&made).expect("kubectl prints JSON");
        made["metadata"]["uid"].as_str().expect("an object has a uid").to_owned()
    }

    /// Sets the shard label, or takes it off.
    pub fn label(&self, plane: &ControlPlane, name: &str, shard: Option<&str>) {
        let label = shard.map_or_else(|| format!("{SHARD_LABEL}-"), |shard| format!("{SHARD_LABEL}={shard}"));
        plane.kubectl_stdout(&["label", "-n", NAMESPACE, &self.resource(), name, &label, "--overwrite"], "");
    }

    /// Deletes an object, and does not wait until it is gone.
    pub fn delete(&self, plane: &ControlPlane, name: &str) {
        plane.kubectl_stdout(&["delete", "-n", NAMESPACE, &self.resource(), name, "--wait=false"], "");
    }

    /// Replaces the finalizers of an object.
    pub fn set_finalizers(&self, plane: &ControlPlane, name: &str, finalizers: &[&str]) {
        let patch = json!({ "metadata": { "finalizers": finalizers } }).to_string();
        plane.kubectl_stdout(&["patch", "-n", NAMESPACE, &self.resource(), name, "--type=merge", "-p", &patch], "");
    }

    /// The metadata of an object, if it is there.
    #[must_use]
    pub fn get(&self, plane: &ControlPlane, name: &str) -> Option<Value> {
        let args = ["-n", NAMESPACE, &self.resource(), name, "--ignore-not-found"];
        let found = plane.kubectl_stdout(&[&["get", "-o", "json"], &args[..]].concat(), "");
        let found: Option<Value> = serde_json::from_str(&found).ok();
        found.map(|object| object["metadata"].clone())
    }

    /// The finalizers of an object; none if it is not there, or has none.
    #[must_use]
    pub fn finalizers(&self, plane: &ControlPlane, name: &str) -> Vec<String> {
        let metadata = self.get(plane, name).unwrap_or_default();
        let finalizers = metadata["finalizers"].as_array().into_iter().flatten();
        finalizers.filter_map(|finalizer| finalizer.as_str().map(str::to_owned)).collect()
    }

    fn resource(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }
}

/// Key of the shard label.
const SHARD_LABEL: &str = decklog_schemas::inventory::SHARD_LABEL;
