//! The ReleaseInventory objects of a cluster, as its API serves them.

use decklog_schemas::ReleaseKey;
use decklog_schemas::inventory::{GROUP, KIND, PLURAL, VERSION};
use kube::api::{ApiResource, DynamicObject};
use kube::{Api, Client, Resource as _};

/// The objects of one namespace.
pub(crate) fn api(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &resource())
}

/// The objects of all namespaces.
pub(crate) fn api_of_all(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &resource())
}

/// Where the API has the objects of a release's namespace.
pub(crate) fn url(key: &ReleaseKey) -> String {
    DynamicObject::url_path(&resource(), Some(&*key.namespace))
}

fn resource() -> ApiResource {
    ApiResource {
        group: GROUP.to_owned(),
        version: VERSION.to_owned(),
        api_version: format!("{GROUP}/{VERSION}"),
        kind: KIND.to_owned(),
        plural: PLURAL.to_owned(),
    }
}
