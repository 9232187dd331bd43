//! What a projector may do in its cluster, and who it is.

use decklog_schemas::inventory::{GROUP, PLURAL};
use serde_json::{Value, json};

use super::{NAME, labels, metadata};
use crate::args::ManifestsArgs;

const RBAC: &str = "rbac.authorization.k8s.io";

/// The ServiceAccount of all shards, and its roles: in all namespaces, and in its own.
pub(super) fn objects(args: &ManifestsArgs) -> [Value; 5] {
    let own = metadata(args, NAME);
    // Two projectors in two namespaces must not take the binding away from each other, nor change each other's rules.
    let cluster_wide = json!({ "name": format!("{NAME}-{}", args.namespace), "labels": labels(NAME) });
    [
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": own,
            // The Pods of the Deployment ask for the token; whoever else runs as this account has no use for it.
            "automountServiceAccountToken": false,
        }),
        role("ClusterRole", &cluster_wide, &everywhere(args)),
        binding(args, "ClusterRole", &cluster_wide),
        role("Role", &own, &leases()),
        binding(args, "Role", &own),
    ]
}

/// An apply is a patch, and one that creates needs `create` besides. Of a Release nothing but its finalizer is written.
fn everywhere(args: &ManifestsArgs) -> Value {
    json!([
        {
            "apiGroups": [GROUP],
            "resources": [PLURAL],
            "verbs": ["get", "list", "watch", "create", "patch", "delete"],
        },
        {
            "apiGroups": [args.release.group],
            "resources": [args.release.plural],
            "verbs": ["get", "list", "watch", "patch"],
        },
    ])
}

/// Not by name: no rule can say under which name something may be created.
fn leases() -> Value {
    json!([{ "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"] }])
}

fn role(kind: &str, metadata: &Value, rules: &Value) -> Value {
    json!({ "apiVersion": format!("{RBAC}/v1"), "kind": kind, "metadata": metadata, "rules": rules })
}

fn binding(args: &ManifestsArgs, kind: &str, metadata: &Value) -> Value {
    json!({
        "apiVersion": format!("{RBAC}/v1"),
        "kind": format!("{kind}Binding"),
        "metadata": metadata,
        "roleRef": { "apiGroup": RBAC, "kind": kind, "name": metadata["name"] },
        "subjects": [{ "kind": "ServiceAccount", "name": NAME, "namespace": args.namespace }],
    })
}
