//! `decklog manifests`: everything that a projector needs in a cluster, ready to be applied.

mod rights;
mod workload;

use anyhow::Error;
use decklog_schemas::crd::custom_resource_definition;
use serde_json::{Map, Value, json};

use crate::args::{DocumentFormat, ManifestsArgs};
use crate::exit::Answer;
use crate::output;
use crate::yaml;

/// Name of the application, and of every object in the namespace that all shards share.
const NAME: &str = "decklog";

/// The label by which a Namespace says what Pods must keep to.
const POD_SECURITY: &str = "pod-security.kubernetes.io/enforce";

pub(crate) fn run(args: &ManifestsArgs) -> Result<Answer, Error> {
    let objects = objects(args);
    output::print(&match args.output {
        DocumentFormat::Json => output::json(&json!({ "apiVersion": "v1", "kind": "List", "items": objects }))?,
        DocumentFormat::Yaml => objects.iter().map(yaml::to_string).collect::<Result<Vec<_>, _>>()?.join("---\n"),
    })?;
    Ok(Answer::Yes)
}

/// In an order in which each object finds what it needs: kubectl sends them one after the other.
fn objects(args: &ManifestsArgs) -> Vec<Value> {
    let mut objects = vec![namespace(args), custom_resource_definition()];
    objects.extend(rights::objects(args));
    objects.push(workload::deployment(args));
    objects.push(workload::service(args));
    objects.extend(workload::disruption_budget(args));
    objects
}

fn namespace(args: &ManifestsArgs) -> Value {
    let mut labels = labels(NAME);
    labels.insert(POD_SECURITY.to_owned(), json!("restricted"));
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": args.namespace, "labels": labels } })
}

/// Name of what each shard has for itself.
fn instance(args: &ManifestsArgs) -> String {
    args.shard.as_ref().map_or_else(|| NAME.to_owned(), |shard| format!("{NAME}-{shard}"))
}

/// Name and labels of what all shards share, and of what is in the namespace besides.
fn metadata(args: &ManifestsArgs, instance: &str) -> Value {
    json!({ "name": instance, "namespace": args.namespace, "labels": labels(instance) })
}

/// The recommended labels. Those of a shared object do not name a shard, or each shard would change it.
fn labels(instance: &str) -> Map<String, Value> {
    let mut labels = selector(instance);
    labels.insert("app.kubernetes.io/component".to_owned(), json!("projector"));
    labels.insert("app.kubernetes.io/part-of".to_owned(), json!(NAME));
    labels.insert("app.kubernetes.io/version".to_owned(), json!(env!("CARGO_PKG_VERSION")));
    labels
}

/// The labels that find the Pods of an instance and no others. They never change, for a Deployment cannot take others.
fn selector(instance: &str) -> Map<String, Value> {
    let labels = [("app.kubernetes.io/name", NAME), ("app.kubernetes.io/instance", instance)];
    labels.into_iter().map(|(key, value)| (key.to_owned(), json!(value))).collect()
}
