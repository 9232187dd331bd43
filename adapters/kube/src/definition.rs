//! Whether the cluster serves ReleaseInventory, with every field that this build writes.

use std::time::Duration;

use decklog_schemas::crd::custom_resource_definition;
use decklog_schemas::inventory::{GROUP, KIND, PLURAL, VERSION};
use http::Request;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::Client;
use serde_json::Value;
use tokio::time::sleep;

/// How often it is looked for the schema of a kind that is served already: it is published a moment later.
const LOOKS: usize = 40;

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(250);

/// What the cluster knows of ReleaseInventory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Definition {
    /// It is served, with all that this build writes.
    Served,
    /// It is not served: its definition is to be installed.
    Missing,
    /// It is served, but older than this build: what is written to it would be refused.
    Older {
        /// What it lacks, such as `hooks[].timeout`, or `hooks[].state: Skipped` of the values of a field.
        missing: Vec<String>,
    },
}

/// The API server does not say what it serves.
#[derive(Debug, thiserror::Error)]
pub enum DefinitionError {
    /// It does not answer, or not to us.
    #[error("cannot ask the API server for the schema of {KIND}")]
    Asking(#[from] kube::Error),
    /// It serves the kind, and publishes no schema of it.
    #[error("the API server serves {KIND}, but publishes no schema of it at {}", openapi_path())]
    Unpublished,
}

impl Definition {
    /// Asks the cluster, by what everybody who is logged in may read: the OpenAPI document of the version, and not the
    /// definition itself, to which a projector needs no right.
    ///
    /// # Errors
    /// See [`DefinitionError`].
    pub async fn look(client: &Client) -> Result<Self, DefinitionError> {
        for _ in 0..LOOKS {
            let document: Option<Value> = get(client, &openapi_path()).await?;
            if let Some(served) = document.as_ref().and_then(published) {
                return Ok(Self::compare(served));
            }
            if !is_listed(client).await? {
                return Ok(Self::Missing);
            }
            sleep(PAUSE).await;
        }
        Err(DefinitionError::Unpublished)
    }

    /// Compares a schema that is served with that of this build.
    fn compare(served: &Value) -> Self {
        let definition = custom_resource_definition();
        let ours = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let mut missing = Vec::new();
        // What every object has is the server's own affair.
        for (name, property) in properties(ours).filter(|(name, _)| !["apiVersion", "kind", "metadata"].contains(name))
        {
            lacks(name, property, &served["properties"][name], &mut missing);
        }
        if missing.is_empty() { Self::Served } else { Self::Older { missing } }
    }
}

/// Notes what `served` lacks of `ours`, which stands at `place`.
fn lacks(place: &str, ours: &Value, served: &Value, missing: &mut Vec<String>) {
    if served.is_null() {
        missing.push(place.to_owned());
        return;
    }
    if ours["type"] != served["type"] {
        missing.push(format!("{place} of type {}", ours["type"].as_str().unwrap_or_default()));
        return;
    }
    // Without values everything is allowed.
    if let Some(allowed) = served["enum"].as_array() {
        let values = ours["enum"].as_array().into_iter().flatten().filter(|value| !allowed.contains(value));
        missing.extend(values.map(|value| format!("{place}: {}", value.as_str().unwrap_or_default())));
    }
    let keys = "x-kubernetes-list-map-keys";
    if ours[keys] != served[keys] {
        missing.push(format!("{place} with the keys {}", ours[keys]));
    }
    for (name, property) in properties(ours) {
        lacks(&format!("{place}.{name}"), property, &served["properties"][name], missing);
    }
    if let Some(items) = ours.get("items") {
        lacks(&format!("{place}[]"), items, &served["items"], missing);
    }
}

fn properties(schema: &Value) -> impl Iterator<Item = (&str, &Value)> {
    schema["properties"].as_object().into_iter().flatten().map(|(name, property)| (name.as_str(), property))
}

/// The schema of our kind in an OpenAPI document.
fn published(document: &Value) -> Option<&Value> {
    let mut schemas = document["components"]["schemas"].as_object()?.values();
    let is_ours = |kind: &Value| kind["group"] == GROUP && kind["version"] == VERSION && kind["kind"] == KIND;
    schemas.find(|schema| schema["x-kubernetes-group-version-kind"].as_array().into_iter().flatten().any(is_ours))
}

async fn is_listed(client: &Client) -> kube::Result<bool> {
    let list: Option<APIResourceList> = get(client, &format!("/apis/{GROUP}/{VERSION}")).await?;
    Ok(list.is_some_and(|list| list.resources.iter().any(|resource| resource.name == PLURAL)))
}

fn openapi_path() -> String {
    format!("/openapi/v3/apis/{GROUP}/{VERSION}")
}

/// What stands at a path, if anything does.
async fn get<T: serde::de::DeserializeOwned>(client: &Client, path: &str) -> kube::Result<Option<T>> {
    let request = Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
    match client.request_text(request).await {
        // For a moment after a definition has changed, its document is there and empty.
        Ok(text) if text.trim().is_empty() => Ok(None),
        Ok(text) => serde_json::from_str(&text).map(Some).map_err(kube::Error::SerdeError),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours() -> Value {
        custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
    }

    #[track_caller]
    fn check(change: impl FnOnce(&mut Value), expected: &[&str]) {
        let mut served = ours();
        change(&mut served);
        let missing: Vec<_> = expected.iter().map(|name| (*name).to_owned()).collect();
        let expected = if missing.is_empty() { Definition::Served } else { Definition::Older { missing } };
        assert_eq!(Definition::compare(&served), expected);
    }

    fn remove(schema: &mut Value, pointer: &str, name: &str) {
        let object = schema.pointer_mut(pointer).and_then(Value::as_object_mut).expect("it is an object");
        object.remove(name).expect("it is there");
    }

    #[test]
    fn what_an_older_definition_lacks_is_named() {
        check(|_| {}, &[]);
        check(|schema| remove(schema, "/properties", "hooks"), &["hooks"]);
        check(|schema| remove(schema, "/properties/hooks/items/properties", "timeout"), &["hooks[].timeout"]);
        let wave = "/properties/inventory/items/properties/wave/type";
        check(
            |schema| *schema.pointer_mut(wave).expect("it is there") = "string".into(),
            &["inventory[].wave of type integer"],
        );
        let states = "/properties/hooks/items/properties/state/enum";
        check(
            |schema| {
                let states = schema.pointer_mut(states).and_then(Value::as_array_mut).expect("it is there");
                states.retain(|state| state != "Skipped");
            },
            &["hooks[].state: Skipped"],
        );
        check(
            |schema| remove(schema, "/properties/hooks", "x-kubernetes-list-map-keys"),
            &["hooks with the keys [\"name\",\"phase\"]"],
        );
    }

    #[test]
    fn a_newer_definition_is_served() {
        check(
            |schema| {
                schema["properties"]["later"] = serde_json::json!({ "type": "string" });
                remove(schema, "/properties/hooks/items/properties/state", "enum");
            },
            &[],
        );
    }
}
