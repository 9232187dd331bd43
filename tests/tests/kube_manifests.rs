//! What `decklog manifests` prints: a real server takes it, and it gives a projector what it needs and no more.

use std::fs;
use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

use decklog_tests::binary;
use decklog_tests::kube::{ControlPlane, Rights};
use decklog_tests::process::poll;
use serde_json::{Value, json};
use tempfile::TempDir;

/// How long something may take that happens at once.
const SOON: Duration = Duration::from_secs(30);

/// What everybody may ask of a cluster, and no ServiceAccount is the less safe for.
const RULES_REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// What stands in the namespace and for itself, by instance; the rest is of all instances.
const OF_AN_INSTANCE: [&str; 3] = ["deployment", "service", "poddisruptionbudget"];

/// A Release of a cluster, as its own definition might have it.
const RELEASES: &str = "\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: releases.core.convoy.kumodo.io}
spec:
  group: core.convoy.kumodo.io
  names: {kind: Release, listKind: ReleaseList, plural: releases, singular: release}
  scope: Namespaced
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

fn printed(flags: &[&str]) -> String {
    binary::stdout([&["manifests"], flags].concat())
}

fn objects(flags: &[&str]) -> Vec<Value> {
    let list: Value = serde_json::from_str(&printed(&[flags, &["-o", "json"]].concat())).expect("a List in JSON");
    assert_eq!((&list["apiVersion"], &list["kind"]), (&json!("v1"), &json!("List")));
    list["items"].as_array().expect("a List has items").clone()
}

fn object(flags: &[&str], kind: &str) -> Value {
    objects(flags).into_iter().find(|object| object["kind"] == kind).unwrap_or_else(|| panic!("there is no {kind}"))
}

/// The Pod that a Deployment makes.
fn pod(flags: &[&str]) -> Value {
    let deployment = object(flags, "Deployment");
    let mut pod = deployment["spec"]["template"].clone();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!("of-the-template");
    pod["metadata"]["namespace"] = deployment["metadata"]["namespace"].clone();
    pod
}

fn container(flags: &[&str]) -> Value {
    pod(flags)["spec"]["containers"][0].clone()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Applies what each of these flags print, twice: the second time nothing is changed, and so none of them changes what
/// another has made.
fn apply_twice(plane: &ControlPlane, prints: &[&[&str]]) {
    let apply_all = || prints.iter().for_each(|flags| apply(plane, &printed(flags)));
    let versions = || prints.iter().map(|flags| versions(plane, flags)).collect::<Vec<_>>();
    apply_all();
    // Until then the server itself changes a definition.
    plane.kubectl_stdout(&["wait", "--for=condition=Established", "--timeout=30s", "crd", "--all"], "");
    let before = versions();
    apply_all();
    assert_eq!(versions(), before);
}

/// Kinds, names and resource versions of what is stored of what is printed.
fn versions(plane: &ControlPlane, flags: &[&str]) -> Vec<[Value; 3]> {
    let stored = plane.kubectl_stdout(&["get", "-o", "json", "-f", "-"], &printed(flags));
    let stored: Value = serde_json::from_str(&stored).expect("kubectl prints JSON");
    let stored = stored["items"].as_array().expect("a List has items");
    assert_eq!(stored.len(), objects(flags).len());
    let version = |object: &Value| {
        let metadata = &object["metadata"];
        [&object["kind"], &metadata["name"], &metadata["resourceVersion"]].map(Value::clone)
    };
    stored.iter().map(version).collect()
}

/// What is printed is applied without a word of warning.
fn apply(plane: &ControlPlane, yaml: &str) {
    let applied = plane.kubectl(&["apply", "--server-side", "-f", "-"], yaml);
    assert!(applied.status.success() && applied.stderr.is_empty(), "{}", stderr(&applied));
}

/// The kubeconfig of a Pod's ServiceAccount, with a token of its own.
fn projector(plane: &ControlPlane, namespace: &str) -> (TempDir, PathBuf) {
    let token = plane.kubectl_stdout(&["create", "token", "decklog", "-n", namespace], "");
    let text = fs::read_to_string(plane.kubeconfig()).expect("the harness wrote it");
    let mut config: Value = serde_json::from_str(&text).expect("the harness writes JSON");
    config["users"][0]["user"] = json!({ "token": token.trim_end() });
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let file = folder.path().join("kubeconfig");
    fs::write(&file, config.to_string()).expect("the folder is ours");
    (folder, file)
}

fn rule(group: &str, resource: &str, verbs: &[&str]) -> Value {
    json!({ "apiGroups": [group], "resources": [resource], "verbs": verbs })
}

/// All rules that hold for somebody in a namespace.
fn rules(plane: &ControlPlane, kubeconfig: &std::path::Path, namespace: &str) -> Vec<Value> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": { "namespace": namespace },
    });
    let output = plane.kubectl_as(kubeconfig, &["create", "--raw", RULES_REVIEWS, "-f", "-"], &review.to_string());
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)));
    assert_ne!(answer["status"]["incomplete"], true, "{answer}");
    let lists = ["resourceRules", "nonResourceRules"].map(|list| answer["status"][list].clone());
    lists.into_iter().filter_map(|list| list.as_array().cloned()).flatten().collect()
}

#[test]
fn everything_is_printed_in_the_order_in_which_it_is_needed() {
    let kinds = |flags: &[&str]| {
        let kinds = objects(flags).iter().map(|object| object["kind"].as_str().expect("a kind").to_owned()).collect();
        let kinds: Vec<String> = kinds;
        kinds.join(" ")
    };
    let all = "Namespace CustomResourceDefinition ServiceAccount ClusterRole ClusterRoleBinding Role RoleBinding \
               Deployment Service PodDisruptionBudget";
    assert_eq!(kinds(&[]), all);
    // A budget for a single Pod would keep its node from being drained.
    assert_eq!(kinds(&["--replicas", "1"]), all.trim_end_matches(" PodDisruptionBudget"));

    let yaml = printed(&[]);
    let documents = yaml.split("---\n").map(|text| serde_saphyr::from_str(text).expect("YAML"));
    assert_eq!(documents.collect::<Vec<Value>>(), objects(&[]));
    assert!(yaml.starts_with("apiVersion: v1\nkind: Namespace\nmetadata:\n"), "{yaml}");
    assert!(yaml.contains(&format!("---\n{}---\n", binary::stdout(["crd"]))));
}

#[test]
fn a_server_takes_what_is_printed_and_a_second_time_changes_nothing() {
    let plane = ControlPlane::shared();
    apply_twice(plane, &[&[]]);
    let deployment = plane.get(&["deployment", "-n", "decklog", "decklog"]);
    assert_eq!(deployment["spec"]["replicas"], 2);
    let budget = plane.get(&["poddisruptionbudget", "-n", "decklog", "decklog"]);
    assert_eq!(budget["spec"]["minAvailable"], 1);
    let service = plane.get(&["service", "-n", "decklog", "decklog"]);
    let labels = deployment["spec"]["template"]["metadata"]["labels"].as_object().expect("labels");
    let is_in = |selector: &Value| selector.as_object().is_some_and(|all| all.iter().all(|(k, v)| labels[k] == *v));
    for selector in [&service["spec"]["selector"], &budget["spec"]["selector"]["matchLabels"]] {
        assert!(is_in(selector), "{selector} does not find {labels:?}");
    }
    let port = &deployment["spec"]["template"]["spec"]["containers"][0]["ports"][0];
    assert_eq!((&port["name"], &port["containerPort"]), (&json!("http"), &json!(8080)));
    let served = &service["spec"]["ports"][0];
    assert_eq!((&served["port"], &served["targetPort"]), (&json!(8080), &json!("http")));

    let all: &[&str] = &[
        "-n",
        "all-flags",
        "--shard",
        "blue",
        "--creds-secret",
        "nats.login",
        "--cluster",
        "eu $(HOME)",
        "--from",
        "tls://one:4222,tls://two:4222",
        "--replicas",
        "3",
        "--image",
        "registry.example/decklog@sha256:7d865e959b2466918c9863afca942d0fb89d7c9ac0c99bafc3749504ded97730",
        "--release-group",
        "example.org",
        "--release-version",
        "v2",
        "--release-kind",
        "Rollout",
        "--release-plural",
        "rollouts",
    ];
    apply_twice(plane, &[all]);
}

#[test]
fn shards_and_namespaces_stand_side_by_side() {
    let plane = ControlPlane::shared();
    let shards: [&[&str]; 3] =
        [&["-n", "shards", "--shard", "a"], &["-n", "shards", "--shard", "b"], &["-n", "shards"]];
    apply_twice(plane, &[shards[0], shards[1], shards[2], &["-n", "more-shards", "--shard", "a"]]);
    for kind in OF_AN_INSTANCE {
        let names = plane.kubectl_stdout(&["get", kind, "-n", "shards", "-o", "name"], "");
        let names: Vec<_> = names.lines().filter_map(|line| line.rsplit_once('/')).map(|(_, name)| name).collect();
        assert_eq!(names, ["decklog", "decklog-a", "decklog-b"], "{kind}");
    }
    let selectors = shards.map(|flags| object(flags, "Deployment")["spec"]["selector"]["matchLabels"].clone());
    let labels = shards.map(|flags| object(flags, "Deployment")["spec"]["template"]["metadata"]["labels"].clone());
    for (of_selector, selector) in selectors.iter().enumerate() {
        for (of_labels, labels) in labels.iter().enumerate() {
            let finds = selector.as_object().expect("a map").iter().all(|(key, value)| labels[key] == *value);
            assert_eq!(finds, of_selector == of_labels, "{selector} and {labels}");
        }
    }
    for namespace in ["shards", "more-shards"] {
        let account = format!("--as=system:serviceaccount:{namespace}:decklog");
        let may = || plane.kubectl(&["auth", "can-i", "list", "releaseinventories", "-A", &account], "").stdout;
        assert!(poll(SOON, || (may() == b"yes\n").then_some(())).is_some(), "{namespace}");
    }
}

#[test]
fn a_projector_may_do_what_it_must_and_nothing_besides() {
    let plane = ControlPlane::shared();
    apply(plane, &printed(&["-n", "rights"]));
    let (_folder, projector) = projector(plane, "rights");
    let nobody = plane.service_account("strangers", "nobody", Rights::None);
    let group = "core.convoy.kumodo.io";
    let everywhere = [
        rule(group, "releaseinventories", &["get", "list", "watch", "create", "patch", "delete"]),
        rule(group, "releases", &["get", "list", "watch", "patch"]),
    ];
    let leases = [rule("coordination.k8s.io", "leases", &["get", "create", "update"])];
    for (namespace, own) in [("rights", &leases[..]), ("strangers", &[])] {
        let mut expected = [&rules(plane, &nobody, namespace)[..], &everywhere, own].concat();
        expected.sort_by_key(Value::to_string);
        let told = poll(SOON, || {
            let mut told = rules(plane, &projector, namespace);
            told.sort_by_key(Value::to_string);
            (told == expected).then_some(())
        });
        let told = told.ok_or_else(|| rules(plane, &projector, namespace));
        assert_eq!(told, Ok(()), "{namespace}, expected {expected:#?}");
    }

    let may = |verb: &str, group: &str, resource: &str, namespace: &str| {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let attributes = json!({
            "verb": verb, "group": group, "resource": resource, "subresource": subresource, "namespace": namespace,
        });
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": attributes },
        });
        let output = plane.kubectl_as(&projector, &["create", "--raw", ACCESS_REVIEWS, "-f", "-"], &review.to_string());
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)));
        answer["status"]["allowed"] == true
    };
    assert!(may("watch", group, "releases", ""), "in all namespaces");
    assert!(may("update", "coordination.k8s.io", "leases", "rights"), "its own lease");
    for (verb, group, resource, namespace) in [
        ("get", "", "secrets", "rights"),
        ("list", "", "secrets", ""),
        ("create", "", "pods", "rights"),
        ("delete", group, "releases", "shop"),
        ("update", group, "releases", "shop"),
        ("create", group, "releases", "shop"),
        ("patch", group, "releases/status", "shop"),
        ("update", group, "releases/status", "shop"),
        ("deletecollection", group, "releaseinventories", "shop"),
        ("update", "coordination.k8s.io", "leases", "kube-system"),
        ("delete", "coordination.k8s.io", "leases", "rights"),
        ("patch", "rbac.authorization.k8s.io", "roles", "rights"),
        ("escalate", "rbac.authorization.k8s.io", "clusterroles", ""),
        ("create", "", "serviceaccounts/token", "rights"),
        ("get", "apps", "deployments", "rights"),
    ] {
        assert!(!may(verb, group, resource, namespace), "{verb} {group}/{resource} in {namespace:?}");
    }
}

#[test]
fn a_projector_applies_deletes_and_takes_a_finalizer_off() {
    let plane = ControlPlane::start();
    apply(&plane, &printed(&["-n", "works"]));
    plane.apply(RELEASES);
    plane.kubectl_stdout(&["wait", "--for=condition=Established", "--timeout=30s", "crd", "--all"], "");
    let (_folder, projector) = projector(&plane, "works");
    let run = |args: &[&str], stdin: &str| plane.kubectl_as(&projector, args, stdin);
    let does = |args: &[&str], stdin: &str| {
        let output = run(args, stdin);
        assert!(output.status.success(), "{}: {}", args.join(" "), stderr(&output));
    };
    let may_not = |args: &[&str], stdin: &str| {
        let output = run(args, stdin);
        assert!(!output.status.success() && stderr(&output).contains("orbidden"), "{args:?}: {}", stderr(&output));
    };
    let metadata = json!({ "name": "checkout", "namespace": "default" });
    let group = "core.convoy.kumodo.io/v1alpha1";
    let inventory = json!({ "apiVersion": group, "kind": "ReleaseInventory", "metadata": metadata }).to_string();
    let mut release = json!({ "apiVersion": group, "kind": "Release", "metadata": metadata });
    release["metadata"]["finalizers"] = json!(["decklog.dev/inventory"]);
    // Both kinds are served a moment after they are established.
    let served = || plane.kubectl(&["apply", "--server-side", "-f", "-"], &release.to_string()).status.success();
    assert!(poll(SOON, || served().then_some(())).is_some());

    let applied = || run(&["apply", "--server-side", "-f", "-"], &inventory).status.success();
    assert!(poll(SOON, || applied().then_some(())).is_some(), "a new inventory is applied");
    does(&["delete", "releaseinventory", "checkout", "--wait=false"], "");
    plane.kubectl_stdout(&["delete", "release", "checkout", "--wait=false"], "");
    let finalizers = r#"{"metadata":{"finalizers":null}}"#;
    may_not(&["patch", "release", "checkout", "--type=merge", "--subresource=status", "-p", "{}"], "");
    does(&["patch", "release", "checkout", "--type=merge", "-p", finalizers], "");
    assert_eq!(plane.get(&["releases", "-n", "default"])["items"], json!([]));
    may_not(&["delete", "release", "checkout"], "");
    may_not(&["get", "secrets", "-n", "works"], "");

    let lease = |namespace: &str| {
        let metadata = json!({ "name": "decklog", "namespace": namespace });
        json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata }).to_string()
    };
    does(&["create", "-f", "-"], &lease("works"));
    does(&["replace", "-f", "-"], &lease("works"));
    may_not(&["create", "-f", "-"], &lease("default"));
}

#[test]
fn the_template_keeps_to_the_restricted_level() {
    let plane = ControlPlane::shared();
    let flags: &[&str] = &["-n", "restricted", "--creds-secret", "nats-login"];
    apply(plane, &printed(flags));
    let namespace = plane.get(&["namespace", "restricted"]);
    assert_eq!(namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "restricted");
    let create = |pod: &Value| plane.kubectl(&["create", "--dry-run=server", "-f", "-"], &pod.to_string());
    let pod = pod(flags);
    let created = create(&pod);
    assert!(created.status.success() && created.stderr.is_empty(), "{}", stderr(&created));

    // The server would tell.
    let mut as_root = pod.clone();
    as_root["spec"]["securityContext"]["runAsNonRoot"] = json!(false);
    let refused = create(&as_root);
    assert!(!refused.status.success() && stderr(&refused).contains("violates PodSecurity"), "{}", stderr(&refused));
    // What that level does not ask for.
    let security = &pod["spec"]["containers"][0]["securityContext"];
    assert_eq!(security["readOnlyRootFilesystem"], true, "{security}");
}

#[test]
fn flags_reach_the_container() {
    let plain = container(&[]);
    assert_eq!(plain["args"], json!(["project", "--data", "/data", "--listen", ":8080"]));
    assert_eq!(plain["env"], json!([{ "name": "DECKLOG_LOG", "value": "nats://nats.nats.svc:4222" }]));
    assert_eq!(plain["image"], format!("decklog:{}", env!("CARGO_PKG_VERSION")));
    assert_eq!(plain["volumeMounts"], json!([{ "name": "data", "mountPath": "/data" }]));

    let flags = [
        "--shard",
        "a",
        "--stream",
        "OTHER",
        "--cluster",
        "eu $(HOME)",
        "--from",
        "nats://other:1",
        "--image",
        "here/decklog:2",
    ];
    let changed = container(&flags);
    let args = changed["args"].as_array().expect("a list");
    // Kubernetes takes $$ for $, and a variable in parentheses for its value.
    assert_eq!(args[5..], [json!("--stream=OTHER"), json!("--cluster=eu $$(HOME)"), json!("--shard=a")]);
    assert_eq!((&changed["env"][0]["value"], &changed["image"]), (&json!("nats://other:1"), &json!("here/decklog:2")));

    let pod = pod(&["--creds-secret", "login"]);
    let with_login = &pod["spec"]["containers"][0];
    assert_eq!(with_login["args"][5], "--creds=/etc/decklog/nats/nats.creds");
    assert_eq!(with_login["volumeMounts"][1]["mountPath"], "/etc/decklog/nats");
    let secret = &pod["spec"]["volumes"][1]["secret"];
    assert_eq!((&secret["secretName"], &secret["items"][0]["key"]), (&json!("login"), &json!("nats.creds")));

    let other = ["--release-group", "example.org", "--release-kind", "Rollout", "--release-plural", "rollouts"];
    let args = container(&other)["args"].clone();
    let given = ["--release-group=example.org", "--release-kind=Rollout", "--release-plural=rollouts"];
    assert_eq!(args.as_array().map(|args| &args[5..]), Some(&given.map(Value::from)[..]));
    let role = object(&other, "ClusterRole");
    assert_eq!(role["rules"][1]["apiGroups"], json!(["example.org"]));
    assert_eq!(role["rules"][1]["resources"], json!(["rollouts"]));
}

#[test]
fn what_no_server_would_take_is_a_usage_error() {
    let too_long = "x".repeat(56);
    for (flags, what) in [
        (["-n", "Bad_Name"], "RFC 1123"),
        (["-n", "a.b"], "RFC 1123"),
        (["--shard", "Blue"], "RFC 1123"),
        (["--shard", &too_long], "at most 55"),
        (["--creds-secret", "a..b"], "RFC 1123"),
        (["--release-plural", "1releases"], "RFC 1035"),
        (["--release-kind", "Re.lease"], "a kind"),
        (["--replicas", "0"], "not in 1.."),
        (["--image", "decklog 1"], "without white space"),
        (["--from", "./log"], "on NATS"),
        (["--from", "nats://user:word@host:4222"], "--creds-secret"),
    ] {
        let output = binary::run(["manifests", flags[0], flags[1]]);
        assert_eq!(output.status.code(), Some(2), "{flags:?}");
        assert!(stderr(&output).contains(what) && output.stdout.is_empty(), "{flags:?}: {}", stderr(&output));
    }
}
