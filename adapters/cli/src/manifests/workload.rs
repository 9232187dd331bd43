//! The projector's Pods, where they are scraped, and how many of them may be away.

use decklog_schemas::inventory::{GROUP, VERSION};
use serde_json::{Value, json};

use super::{NAME, instance, labels, metadata, selector};
use crate::args::ManifestsArgs;

/// Name and number of the port that answers probes and shows metrics.
const PORT_NAME: &str = "http";
const PORT: u16 = 8080;

/// Where the checkpoint is.
const DATA: &str = "/data";

/// Where the credentials for NATS are, and under which key of their Secret.
const CREDS_FOLDER: &str = "/etc/decklog/nats";
const CREDS_KEY: &str = "nats.creds";

/// A user and a group that are nobody's.
const USER: u32 = 65532;

/// How often it is asked whether a Pod has started, in seconds, and how often it may not have: for half an hour, in
/// which more than a hundred million events are replayed.
const STARTUP_PERIOD: u32 = 5;
const STARTUP_FAILURES: u32 = 360;

pub(super) fn deployment(args: &ManifestsArgs) -> Value {
    let instance = instance(args);
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(args, &instance),
        "spec": {
            "replicas": args.replicas,
            // A Pod that replays makes progress, and is not to be reported as stuck before its probe gives it up.
            "progressDeadlineSeconds": STARTUP_PERIOD * STARTUP_FAILURES + 300,
            "selector": { "matchLabels": selector(&instance) },
            // A new Pod stands by until it has folded all of the log, and only then does an old one let go of the
            // lease: what applies is never away for as long as a replay. Any number of Pods is safe, for one has the
            // lease.
            "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } },
            "template": { "metadata": { "labels": labels(&instance) }, "spec": pod(args, &instance) },
        },
    })
}

pub(super) fn service(args: &ManifestsArgs) -> Value {
    let instance = instance(args);
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(args, &instance),
        "spec": {
            "selector": selector(&instance),
            "ports": [{ "name": PORT_NAME, "port": PORT, "targetPort": PORT_NAME, "protocol": "TCP" }],
        },
    })
}

/// None for a single Pod: its node could never be drained.
pub(super) fn disruption_budget(args: &ManifestsArgs) -> Option<Value> {
    let instance = instance(args);
    (args.replicas > 1).then(|| {
        json!({
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": metadata(args, &instance),
            "spec": { "minAvailable": 1, "selector": { "matchLabels": selector(&instance) } },
        })
    })
}

fn pod(args: &ManifestsArgs, instance: &str) -> Value {
    let mut volumes = vec![json!({ "name": "data", "emptyDir": { "sizeLimit": "2Gi" } })];
    volumes.extend(args.creds_secret.as_ref().map(|secret| {
        let items = json!([{ "key": CREDS_KEY, "path": CREDS_KEY }]);
        json!({ "name": "nats", "secret": { "secretName": secret, "defaultMode": 0o440, "items": items } })
    }));
    json!({
        "serviceAccountName": NAME,
        "automountServiceAccountToken": true,
        // For each Service there would be variables, such as DECKLOG_PORT, that decklog could take for its own.
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": 30,
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": { "type": "RuntimeDefault" },
        },
        "affinity": apart(instance),
        "containers": [container(args)],
        "volumes": volumes,
    })
}

/// The Pods of an instance go to different nodes, if there are any.
fn apart(instance: &str) -> Value {
    let term = json!({
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": { "matchLabels": selector(instance) },
    });
    json!({
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": 100, "podAffinityTerm": term }],
        },
    })
}

fn container(args: &ManifestsArgs) -> Value {
    let mut mounts = vec![json!({ "name": "data", "mountPath": DATA })];
    if args.creds_secret.is_some() {
        mounts.push(json!({ "name": "nats", "mountPath": CREDS_FOLDER, "readOnly": true }));
    }
    json!({
        "name": "projector",
        "image": args.image.as_deref().unwrap_or(concat!("decklog:", env!("CARGO_PKG_VERSION"))),
        "args": arguments(args),
        "env": [{ "name": "DECKLOG_LOG", "value": literal(&args.from) }],
        "ports": [{ "name": PORT_NAME, "containerPort": PORT, "protocol": "TCP" }],
        "startupProbe": {
            "httpGet": { "path": "/healthz", "port": PORT_NAME },
            "periodSeconds": STARTUP_PERIOD,
            "failureThreshold": STARTUP_FAILURES,
        },
        "livenessProbe": {
            "httpGet": { "path": "/healthz", "port": PORT_NAME },
            "periodSeconds": 10,
            "timeoutSeconds": 5,
            "failureThreshold": 6,
        },
        "readinessProbe": {
            "httpGet": { "path": "/readyz", "port": PORT_NAME },
            "periodSeconds": 5,
            "timeoutSeconds": 5,
        },
        "resources": {
            "requests": { "cpu": "100m", "memory": "256Mi" },
            "limits": { "cpu": "2", "memory": "1Gi" },
        },
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": { "drop": ["ALL"] },
        },
        "volumeMounts": mounts,
    })
}

/// What the container runs. What `decklog project` does anyway is not said.
fn arguments(args: &ManifestsArgs) -> Vec<String> {
    let mut arguments: Vec<_> = ["project", "--data", DATA, "--listen"].into_iter().map(str::to_owned).collect();
    arguments.push(format!(":{PORT}"));
    let creds = args.creds_secret.as_ref().map(|_| format!("{CREDS_FOLDER}/{CREDS_KEY}"));
    let release = &args.release;
    let differs = |value: &String, usual: &str| Some(value.clone()).filter(|value| value != usual);
    let flags = [
        ("stream", args.stream.clone()),
        ("cluster", args.cluster.clone()),
        ("shard", args.shard.clone()),
        ("creds", creds),
        ("release-group", differs(&release.group, GROUP)),
        ("release-version", differs(&release.version, VERSION)),
        ("release-kind", differs(&release.kind, "Release")),
        ("release-plural", differs(&release.plural, "releases")),
    ];
    // In one word with its flag, a value that begins with a dash is still a value.
    let given = flags.into_iter().filter_map(|(flag, value)| Some(format!("--{flag}={}", literal(&value?))));
    arguments.extend(given);
    arguments
}

/// A text in which Kubernetes replaces nothing: it would take `$(NAME)` for a variable, and takes `$$` for `$`.
fn literal(text: &str) -> String {
    text.replace('$', "$$")
}
