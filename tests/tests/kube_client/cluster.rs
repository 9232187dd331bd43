//! Clusters, namespaces and objects, as the tests here need them.

use std::path::{Path, PathBuf};

use decklog_kube::{Access, Cluster, Trouble};
use decklog_schemas::inventory::{GROUP, KIND, PLURAL, VERSION};
use decklog_tests::kube::ControlPlane;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};

/// A cluster as whoever the kubeconfig is of.
pub(crate) async fn cluster(kubeconfig: &Path) -> Cluster {
    let access = Access { kubeconfig: Some(kubeconfig.to_owned()), ..Access::default() };
    access.connect().await.expect("the kubeconfig is the harness's own")
}

/// A cluster in which everything is allowed.
pub(crate) async fn admin(plane: &ControlPlane) -> Cluster {
    cluster(&plane.kubeconfig()).await
}

pub(crate) fn make_namespace(plane: &ControlPlane, name: &str) {
    plane.apply(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }).to_string());
}

/// The kubeconfig with another server in it, in this folder.
pub(crate) fn redirected(kubeconfig: &Path, port: u16, folder: &Path) -> PathBuf {
    let text = std::fs::read_to_string(kubeconfig).expect("the harness has written it");
    let mut config: Value = serde_json::from_str(&text).expect("the harness writes JSON");
    config["clusters"][0]["cluster"]["server"] = json!(format!("https://127.0.0.1:{port}"));
    let file = folder.join("redirected");
    std::fs::write(&file, config.to_string()).expect("the folder is ours");
    file
}

pub(crate) fn inventories(client: Client, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(GROUP, VERSION, KIND);
    Api::namespaced_with(client, namespace, &ApiResource::from_gvk_with_plural(&kind, PLURAL))
}

/// An object that the definition allows, with one hook and one item.
pub(crate) fn inventory(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": KIND,
        "metadata": { "namespace": namespace, "name": name },
        "inventory": [item(0)],
        "hooks": [{
            "name": "migrate", "phase": "PreSync", "group": "batch", "kind": "Job", "renderRef": "r1", "weight": 0,
            "workloadname": "migrate",
        }],
    })
}

pub(crate) fn item(number: usize) -> Value {
    let name = format!("checkout-service-xxxxx-{number:05}");
    json!({ "group": "apps", "kind": "Deployment", "namespace": "payments", "name": name, "renderRef": "r1" })
}

/// Applies an object as it stands, and says what is wrong if it is refused.
pub(crate) async fn apply(client: &Client, object: &Value) -> Result<DynamicObject, Trouble> {
    let metadata = &object["metadata"];
    let [namespace, name] = ["namespace", "name"].map(|key| metadata[key].as_str().expect("it has one"));
    let params = PatchParams::apply("convoy-release-inventory").force();
    let applied = inventories(client.clone(), namespace).patch(name, &params, &Patch::Apply(object)).await;
    applied.map_err(|error| Trouble::of(&error))
}
