//! ServiceAccounts of a control plane, and what they may do.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use crate::kube::ControlPlane;
use crate::process::poll;

/// How long it may take until a right holds that was given.
const LIMIT: Duration = Duration::from_secs(30);

/// What a ServiceAccount may do; rules are a YAML list, as in a Role.
#[derive(Debug, Clone, Copy)]
pub enum Rights<'a> {
    /// Nothing but what everybody may.
    None,
    /// This, in its own namespace.
    Namespace(&'a str),
    /// This, in all namespaces.
    Cluster(&'a str),
}

pub(super) fn service_account(plane: &ControlPlane, namespace: &str, name: &str, rights: Rights<'_>) -> PathBuf {
    let (kind, rules) = match rights {
        Rights::None => ("Role", "[]"),
        Rights::Namespace(rules) => ("Role", rules),
        Rights::Cluster(rules) => ("ClusterRole", rules),
    };
    let rules: Vec<Value> = serde_saphyr::from_str(rules).expect("rules are a list in YAML");
    plane.apply(&objects(namespace, name, kind, &rules).to_string());
    let token = plane.kubectl_stdout(&["create", "token", name, "-n", namespace, "--duration", "24h"], "");
    let kubeconfig =
        plane.place.write_kubeconfig(&format!("{namespace}-{name}"), &json!({ "token": token.trim_end() }));
    // The authorizer hears of a role a moment after it was made.
    let hold = poll(LIMIT, || {
        let known = known_rules(plane, &kubeconfig, namespace);
        rules.iter().all(|rule| known.iter().any(|known| is_same(known, rule))).then_some(())
    });
    assert!(hold.is_some(), "{namespace}/{name} does not get its rights: {rules:?}");
    kubeconfig
}

/// All that makes an account, as one list. The two kinds of roles differ in whether they have a namespace.
fn objects(namespace: &str, name: &str, kind: &str, rules: &[Value]) -> Value {
    let own = json!({ "name": name, "namespace": namespace });
    let role = if kind == "Role" { own.clone() } else { json!({ "name": format!("{namespace}-{name}") }) };
    let (group, binding) = ("rbac.authorization.k8s.io", format!("{kind}Binding"));
    json!({ "apiVersion": "v1", "kind": "List", "items": [
        { "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } },
        { "apiVersion": "v1", "kind": "ServiceAccount", "metadata": own },
        { "apiVersion": format!("{group}/v1"), "kind": kind, "metadata": role, "rules": rules },
        {
            "apiVersion": format!("{group}/v1"), "kind": binding, "metadata": role,
            "roleRef": { "apiGroup": group, "kind": kind, "name": role["name"] },
            "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": namespace }],
        },
    ]})
}

/// What the authorizer knows of an account in a namespace.
fn known_rules(plane: &ControlPlane, kubeconfig: &std::path::Path, namespace: &str) -> Vec<Value> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": { "namespace": namespace },
    });
    let args = ["create", "--raw", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", "-f", "-"];
    let output = plane.kubectl_as(kubeconfig, &args, &review.to_string());
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let lists = ["resourceRules", "nonResourceRules"].map(|list| answer["status"][list].clone());
    lists.into_iter().filter_map(|list| list.as_array().cloned()).flatten().collect()
}

fn is_same(known: &Value, rule: &Value) -> bool {
    const KEYS: [&str; 5] = ["verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs"];
    KEYS.iter().all(|key| known[key] == rule[key])
}
