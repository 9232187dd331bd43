//! Objects deleted and edited by hand, under whatever name: all of it is put right at once, and told.

use std::time::{Duration, Instant};

use decklog_tests::kube::ControlPlane;
use decklog_tests::process::poll;
use decklog_tests::projector::{Deployment, check_audit, emit, of_cluster, of_log, settle};
use serde_json::{Value, json};

use crate::stage::{SHARD_LABEL, Story, servers};

/// The object that hands are laid on.
const OBJECT: [&str; 3] = ["releaseinventory/web", "-n", "shop"];

/// Within this time an edit is put right, kubectl and a busy machine included, long before anything else would find it.
const SOON: Duration = Duration::from_secs(20);

/// What somebody does to an object.
struct Edit {
    what: &'static str,
    change: fn(&mut Value),
    /// The field that is then somebody else's, unless something is only gone.
    field: Option<&'static str>,
}

/// How somebody does it.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// `kubectl patch`, under this name.
    Patch(&'static str),
    /// `kubectl apply --server-side`, under this name.
    Apply(&'static str),
    /// As a patch, with `managedFields` emptied.
    Wipe,
    /// `kubectl replace`.
    Replace,
}

const EDITS: [Edit; 11] = [
    Edit {
        what: "wave changed",
        change: |object| object["inventory"][0]["wave"] = json!(99),
        field: Some("inventory[apps/Deployment/shop/a].wave"),
    },
    Edit {
        what: "state changed",
        change: |object| object["inventory"][0]["state"] = json!("Degraded"),
        field: Some("inventory[apps/Deployment/shop/a].state"),
    },
    Edit {
        what: "message added",
        change: |object| object["inventory"][0]["message"] = json!("by hand"),
        field: Some("inventory[apps/Deployment/shop/a].message"),
    },
    Edit {
        what: "row added",
        change: |object| {
            let mut row = object["inventory"][0].clone();
            row["name"] = json!("mine");
            push(&mut object["inventory"], row);
        },
        field: Some("inventory[apps/Deployment/shop/mine].renderRef"),
    },
    Edit {
        what: "ghost added",
        change: |object| {
            let row =
                json!({ "group": "", "kind": "ConfigMap", "namespace": "shop", "name": "ghost", "state": "Healthy" });
            push(&mut object["inventory"], row);
        },
        field: Some("inventory[/ConfigMap/shop/ghost].state"),
    },
    Edit {
        what: "label changed",
        change: |object| object["metadata"]["labels"][SHARD_LABEL] = json!("green"),
        field: Some("metadata.labels[core.convoy.kumodo.io/shard]"),
    },
    Edit {
        what: "hook state changed",
        change: |object| object["hooks"][0]["state"] = json!("Failed"),
        field: Some("hooks[PreSync/migrate].state"),
    },
    Edit { what: "row removed", change: |object| drop_first(&mut object["inventory"]), field: None },
    Edit { what: "hook removed", change: |object| drop_first(&mut object["hooks"]), field: None },
    Edit { what: "all rows removed", change: |object| object["inventory"] = json!([]), field: None },
    Edit {
        what: "label removed",
        change: |object| object["metadata"]["labels"][SHARD_LABEL] = Value::Null,
        field: None,
    },
];

fn push(list: &mut Value, row: Value) {
    list.as_array_mut().expect("it is a list").push(row);
}

fn drop_first(list: &mut Value) {
    list.as_array_mut().expect("it is a list").remove(0);
}

/// Does it with kubectl, on the object as it is.
fn lay_hands_on(plane: &ControlPlane, edit: &Edit, way: Way) {
    let before = plane.get(&OBJECT);
    let mut after = before.clone();
    (edit.change)(&mut after);
    let mut body = json!({});
    for part in ["inventory", "hooks"] {
        if before[part] != after[part] {
            body[part] = after[part].clone();
        }
    }
    if before["metadata"] != after["metadata"] {
        body["metadata"] = json!({ "labels": after["metadata"]["labels"] });
    }
    let patch = |body: &Value, manager: &[&str]| {
        let body = body.to_string();
        let args = [&["patch"], &OBJECT[..], &["--type", "merge", "-p", &body], manager].concat();
        plane.kubectl_stdout(&args, "");
    };
    match way {
        Way::Patch(manager) => patch(&body, &["--field-manager", manager]),
        Way::Wipe => {
            body["metadata"]["managedFields"] = json!([{}]);
            patch(&body, &[]);
        }
        Way::Replace => {
            plane.kubectl_stdout(&["replace", "-f", "-"], &after.to_string());
        }
        Way::Apply(manager) => {
            body["apiVersion"] = before["apiVersion"].clone();
            body["kind"] = before["kind"].clone();
            body["metadata"]["name"] = json!("web");
            body["metadata"]["namespace"] = json!("shop");
            let args = ["apply", "--server-side", "--force-conflicts", "--field-manager", manager, "-f", "-"];
            plane.kubectl_stdout(&args, &body.to_string());
        }
    }
}

#[test]
fn edited() {
    let (plane, server) = servers();
    let servers = server.url();
    emit(&servers, &Story::of("shop", "web").whole());
    let deployment = Deployment::new(&servers, &plane, &[]);
    let mut projector = deployment.launch();
    settle(&plane, &servers);
    plane.kubectl_stdout(&[&["annotate"], &OBJECT[..], &["example.com/note=keep"]].concat(), "");
    let ways = [
        Way::Patch("kubectl-edit"),
        Way::Patch("convoy-release-inventory"),
        Way::Patch("convoy-health-inventory"),
        Way::Apply("somebody"),
        // As a decklog of another log, or an older one, might.
        Way::Apply("convoy-release-inventory"),
        Way::Wipe,
        Way::Replace,
    ];
    for way in ways {
        for edit in &EDITS {
            // Who applies can only take what it names.
            if matches!(way, Way::Apply(_)) && edit.field.is_none() {
                continue;
            }
            let said = projector.said().len();
            lay_hands_on(&plane, edit, way);
            let start = Instant::now();
            settle(&plane, &servers);
            assert!(start.elapsed() < SOON, "{} by {way:?}: {:?}", edit.what, start.elapsed());
            let told = match (edit.field, way) {
                (Some(field), Way::Patch(manager) | Way::Apply(manager)) if way_takes(way) => by(field, manager),
                (Some(field), Way::Replace) => by(field, "kubectl-replace"),
                // A label that is null there is an empty one.
                (None, Way::Replace) => "by somebody else".to_owned(),
                _ => "were changed by somebody else, and were put back".to_owned(),
            };
            projector.wait_for_after(said, &told);
        }
    }

    // While nobody looks, one after the other.
    assert_eq!(projector.stop(), Some(0), "{}", projector.said());
    for (edit, way) in EDITS.iter().zip(ways.into_iter().cycle()) {
        if edit.field.is_some() || !matches!(way, Way::Apply(_)) {
            lay_hands_on(&plane, edit, way);
        }
    }
    let _projector = deployment.start();
    settle(&plane, &servers);
    let object = plane.get(&OBJECT);
    assert_eq!(object["metadata"]["annotations"]["example.com/note"], "keep");
    check_audit(&plane, 0);
}

/// What is told of a field that was somebody else's.
fn by(field: &str, manager: &str) -> String {
    format!("field=\"{field}\" manager=\"{manager}\"")
}

/// Whether somebody else owns then what it has changed: an apply under our own name only changes values.
fn way_takes(way: Way) -> bool {
    !matches!(way, Way::Apply(manager) if manager.starts_with("convoy-"))
}

#[test]
fn made_before() {
    let (plane, server) = servers();
    let servers = server.url();
    let row = |name: &str| {
        json!({
            "group": "apps", "kind": "Deployment", "namespace": "shop", "name": name, "version": "v1", "renderRef": "r0",
            "wave": 7, "uid": "old",
        })
    };
    // By a client that creates instead of applying, with a row that is gone and one that is not.
    let object = json!({
        "apiVersion": "core.convoy.kumodo.io/v1alpha1",
        "kind": "ReleaseInventory",
        "metadata": { "name": "web", "namespace": "shop" },
        "inventory": [row("old"), row("a")],
    });
    let create = ["create", "--field-manager", "convoy-release-inventory", "-f", "-"];
    plane.kubectl_stdout(&create, &object.to_string());
    emit(&servers, &Story::of("shop", "web").whole());
    let deployment = Deployment::new(&servers, &plane, &[]);
    let _projector = deployment.start();
    settle(&plane, &servers);
    check_audit(&plane, 0);
}

#[test]
fn deleted() {
    let (plane, server) = servers();
    let servers = server.url();
    emit(&servers, &Story::of("shop", "web").whole());
    let deployment = Deployment::new(&servers, &plane, &[]);
    let mut projector = deployment.launch();
    settle(&plane, &servers);
    let uid = || plane.get(&OBJECT)["metadata"]["uid"].clone();
    let before = uid();
    plane.kubectl_stdout(&[&["delete"], &OBJECT[..]].concat(), "");
    let start = Instant::now();
    settle(&plane, &servers);
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    assert_ne!(uid(), before);
    projector.wait_for("was deleted by somebody else, and was made again");
    // One that somebody's finalizer keeps is left alone, and made anew when it goes.
    let finalizer = |list: Value| {
        let body = json!({ "metadata": { "finalizers": list } }).to_string();
        plane.kubectl_stdout(&[&["patch"], &OBJECT[..], &["--type", "merge", "-p", &body]].concat(), "");
    };
    finalizer(json!(["example.com/hold"]));
    settle(&plane, &servers);
    let before = uid();
    plane.kubectl_stdout(&[&["delete"], &OBJECT[..], &["--wait=false"]].concat(), "");
    emit(&servers, &Story::of("shop", "web").applied("c", "r2"));
    emit(&servers, &Story::of("shop", "api").applied("c", "r2"));
    let others = || of_cluster(&plane).get("shop/api") == of_log(&servers, &["-A"]).get("shop/api");
    assert!(poll(SOON, || others().then_some(())).is_some(), "another release waits");
    assert_eq!(uid(), before);
    finalizer(json!([]));
    settle(&plane, &servers);
    assert_ne!(uid(), before);
    check_audit(&plane, 0);
}

#[test]
fn kept_by_somebody_while_the_release_goes_and_comes() {
    let (plane, server) = servers();
    let servers = server.url();
    let [one, two] = ["one", "two"].map(|uid| Story::of("shop", "web").uid(uid));
    emit(&servers, &one.whole());
    let deployment = Deployment::new(&servers, &plane, &[]);
    let mut projector = deployment.launch();
    settle(&plane, &servers);
    let hold = |finalizers: Value| {
        let body = json!({ "metadata": { "finalizers": finalizers } }).to_string();
        plane.kubectl_stdout(&[&["patch"], &OBJECT[..], &["--type", "merge", "-p", &body]].concat(), "");
    };
    hold(json!(["example.com/hold"]));
    let object = || plane.get(&OBJECT)["metadata"].clone();
    let before = object()["uid"].clone();
    emit(&servers, &one.deleted());
    let is_going = || object().get("deletionTimestamp").is_some();
    assert!(poll(SOON, || is_going().then_some(())).is_some(), "{}", projector.said());
    // The next one waits for the last one's object, which is its own doing, and nobody else's.
    emit(&servers, &two.whole());
    emit(&servers, &Story::of("shop", "api").whole());
    let others = || of_cluster(&plane).get("shop/api") == of_log(&servers, &["-A"]).get("shop/api");
    assert!(poll(SOON, || others().then_some(())).is_some(), "another release waits");
    hold(json!([]));
    settle(&plane, &servers);
    assert_ne!(object()["uid"], before);
    assert_eq!(projector.stop(), Some(0), "{}", projector.said());
    assert!(!projector.said().contains("by somebody else"), "{}", projector.said());
    check_audit(&plane, 0);
}
