//! The CustomResourceDefinition of ReleaseInventory, made from the Rust types of its fields.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::inventory::{GROUP, InventoryFields, KIND, PLURAL, VERSION};

/// The CustomResourceDefinition, `apiextensions.k8s.io/v1`, ready to be applied.
///
/// `inventory` and `hooks` stand at the root of the object, and there are no subresources: no `spec`, no `status`.
#[must_use]
pub fn custom_resource_definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{PLURAL}.{GROUP}") },
        "spec": {
            "group": GROUP,
            "names": {
                "categories": ["convoy"],
                "kind": KIND,
                "listKind": format!("{KIND}List"),
                "plural": PLURAL,
                "shortNames": ["ri"],
                "singular": KIND.to_lowercase(),
            },
            "scope": "Namespaced",
            "versions": [{
                "name": VERSION,
                "served": true,
                "storage": true,
                "additionalPrinterColumns": printer_columns(),
                "schema": { "openAPIV3Schema": object_schema() },
            }],
        },
    })
}

/// What `kubectl get` shows; the columns of priority 1 with `-o wide` alone.
///
/// The number of items or hooks is no column, for Kubernetes 1.36 cannot express it. The server evaluates `jsonPath`
/// with client-go's `util/jsonpath`, which has no function for a length, and prints the first match alone
/// (`results[0][0]` in apiextensions-apiserver v0.36.3, `pkg/registry/customresource/tableconvertor/tableconvertor.go`);
/// `CustomResourceColumnDefinition` has no CEL expression beside it (`pkg/apis/apiextensions/v1/types.go`), and no
/// feature gate adds one (`pkg/features/kube_features.go`). An owned count in the object would be one more field that
/// can contradict the list. What the first match is good for is a filter: the first row that needs somebody's eye.
/// A filter compares with one value, so failed and timed-out hooks are two columns.
fn printer_columns() -> Value {
    // The dots of the label's key are part of the key: kubectl's JSON paths escape them.
    let shard = crate::inventory::SHARD_LABEL.replace('.', "\\.");
    json!([
        {
            "name": "Shard",
            "type": "string",
            "jsonPath": format!(".metadata.labels.{shard}"),
            "description": "Shard of the release.",
        },
        {
            "name": "Degraded",
            "type": "string",
            "jsonPath": ".inventory[?(@.state==\"Degraded\")].name",
            "description": "First item that is degraded.",
        },
        {
            "name": "Failed Hook",
            "type": "string",
            "jsonPath": ".hooks[?(@.state==\"Failed\")].name",
            "description": "First hook that failed.",
        },
        {
            "name": "Timed-out Hook",
            "type": "string",
            "jsonPath": ".hooks[?(@.state==\"TimedOut\")].name",
            "description": "First hook that ran out of time.",
        },
        {
            "name": "Progressing",
            "type": "string",
            "jsonPath": ".inventory[?(@.state==\"Progressing\")].name",
            "description": "First item that is not there yet.",
            "priority": 1,
        },
        {
            "name": "Running Hook",
            "type": "string",
            "jsonPath": ".hooks[?(@.state==\"Running\")].name",
            "description": "First hook that runs.",
            "priority": 1,
        },
        { "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp" },
    ])
}

/// The schema of the whole object: that of its fields, and what every object has, worded as kubebuilder words it.
fn object_schema() -> Value {
    let generator = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true).into_generator();
    let mut schema = structural(generator.into_root_schema_for::<InventoryFields>().to_value());
    schema["properties"]["apiVersion"] = json!({
        "type": "string",
        "description": "APIVersion defines the versioned schema of this representation of an object.\n\
            Servers should convert recognized schemas to the latest internal value, and\n\
            may reject unrecognized values.\n\
            More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources",
    });
    schema["properties"]["kind"] = json!({
        "type": "string",
        "description": "Kind is a string value representing the REST resource this object represents.\n\
            Servers may infer this from the endpoint the client submits requests to.\n\
            Cannot be updated.\n\
            In CamelCase.\n\
            More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds",
    });
    schema["properties"]["metadata"] = json!({ "type": "object" });
    schema
}

/// What a structural schema may say, of what schemars says. The rest goes: `title`, `$schema`, `default`, and the
/// `pattern` of durations and times, for the API server takes any text as a duration and knows `date-time` itself.
const KEPT: &[&str] = &[
    "description",
    "enum",
    "format",
    "items",
    "properties",
    "required",
    "type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
];

/// The structural form of a JSON Schema: an optional field is absent and never null.
fn structural(schema: Value) -> Value {
    let Value::Object(mut schema) = schema else {
        return schema;
    };
    schema.retain(|keyword, _| KEPT.contains(&keyword.as_str()));
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            schema.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    if let Some(items) = schema.get_mut("items") {
        *items = structural(items.take());
    }
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        *properties = std::mem::take(properties)
            .into_iter()
            .map(|(name, property)| (name, structural(property)))
            .collect::<Map<_, _>>();
    }
    Value::Object(schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_typed(place: &str, schema: &Value) {
        let name = schema["type"].as_str();
        assert!(name.is_some(), "{place} has no one type: {schema}");
        assert_eq!(name == Some("array"), schema.get("items").is_some());
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            check_typed(&format!("{place}.{name}"), property);
        }
        if let Some(items) = schema.get("items") {
            check_typed(&format!("{place}[]"), items);
        }
    }

    /// What says more than a type, such as `anyOf`, is not kept, and would be lost here without a word.
    #[test]
    fn every_part_of_the_schema_has_one_type() {
        check_typed("", &object_schema());
    }
}
