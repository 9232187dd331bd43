//! Every answer of a real API server to a write means what follows from it.

use std::time::{Duration, Instant};

use decklog_kube::{Cluster, REQUEST_LIMIT, Reason, Trouble};
use decklog_tests::kube::{ControlPlane, Rights};
use decklog_tests::nats::proxy::{Direction, Proxy};
use kube::api::{ApiResource, DeleteParams, DynamicObject, PostParams, Preconditions};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::cluster::{admin, apply, cluster, inventories, inventory, item, make_namespace, redirected};

/// Applies a good object in a namespace after a change to it, and returns what is wrong.
async fn refused(cluster: &Cluster, namespace: &str, name: &str, change: impl FnOnce(&mut Value)) -> Trouble {
    let mut object = inventory(namespace, name);
    change(&mut object);
    // Without the object, which may be large.
    apply(&cluster.client(), &object).await.map(drop).expect_err("the API server refuses it")
}

fn first_item(object: &mut Value) -> &mut Value {
    &mut object["inventory"][0]
}

#[track_caller]
fn check_permanent(trouble: &Trouble, expected: Reason, text: &str) {
    let Trouble::Permanent { reason, message } = trouble else {
        panic!("{trouble:?} is not permanent");
    };
    assert!(*reason == expected && message.contains(text), "{trouble:?}");
}

#[track_caller]
fn check_changed(trouble: &Trouble, text: &str) {
    assert!(matches!(trouble, Trouble::Changed { message } if message.contains(text)), "{trouble:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn namespaces_that_are_not_there_are_waited_for() {
    let plane = ControlPlane::shared();
    let cluster = admin(plane).await;
    assert_eq!(refused(&cluster, "nowhere", "a", |_| {}).await, Trouble::NamespaceMissing);
    // Nobody ends it, for there is no controller manager.
    make_namespace(plane, "ending");
    plane.kubectl_stdout(&["delete", "ns", "ending", "--wait=false"], "");
    assert_eq!(refused(&cluster, "ending", "a", |_| {}).await, Trouble::NamespaceTerminating);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_changed_is_read_again() {
    let plane = ControlPlane::shared();
    let cluster = admin(plane).await;
    make_namespace(plane, "changed");
    let api = inventories(cluster.client(), "changed");
    let uid = json!("0b5bd4a8-0000-4000-8000-000000000000");
    check_changed(&refused(&cluster, "changed", "a", |object| object["metadata"]["uid"] = uid.clone()).await, "uid");

    let first = apply(&cluster.client(), &inventory("changed", "a")).await.expect("it is good");
    check_changed(&refused(&cluster, "changed", "a", |object| object["metadata"]["uid"] = uid.clone()).await, "uid");
    let version = json!(first.resource_version());
    let mut second = inventory("changed", "a");
    first_item(&mut second)["wave"] = json!(1);
    second["metadata"]["resourceVersion"] = version.clone();
    apply(&cluster.client(), &second).await.expect("nobody was faster");
    let stale = refused(&cluster, "changed", "a", |object| object["metadata"]["resourceVersion"] = version).await;
    check_changed(&stale, "modified");

    let object: DynamicObject = serde_json::from_value(inventory("changed", "a")).expect("it is an object");
    let exists = api.create(&PostParams::default(), &object).await.expect_err("it is there");
    check_changed(&Trouble::of(&exists), "already exists");
    let of_another = Preconditions { uid: uid.as_str().map(str::to_owned), resource_version: None };
    let of_another = DeleteParams::default().preconditions(of_another);
    check_changed(&Trouble::of(&api.delete("a", &of_another).await.expect_err("it has another uid")), "UID");
    let gone = api.delete("gone", &DeleteParams::default()).await.expect_err("it is not there");
    check_changed(&Trouble::of(&gone), "not found");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_for_good_is_told_from_the_rest() {
    let plane = ControlPlane::shared();
    let cluster = admin(plane).await;
    make_namespace(plane, "permanent");
    let check = async |reason, text: &str, change: fn(&mut Value)| {
        check_permanent(&refused(&cluster, "permanent", "a", change).await, reason, text);
    };
    let twice = |object: &mut Value| object["inventory"] = json!([item(1), item(1)]);
    check(Reason::DuplicateKey, "duplicate entries for key", twice).await;
    let unknown = |object: &mut Value| first_item(object)["later"] = json!(1);
    check(Reason::UnknownField, "field not declared in schema", unknown).await;
    check(Reason::WrongType, "expected numeric", |object| first_item(object)["wave"] = json!("first")).await;
    check(Reason::WrongType, "expected string, got", |object| first_item(object)["renderRef"] = json!(1)).await;
    check(Reason::WrongType, "expected list, got", |object| object["inventory"] = json!({})).await;
    check(Reason::WrongType, "non-map elements", |object| object["inventory"] = json!([1])).await;
    check(Reason::Invalid, "Unsupported value", |object| first_item(object)["state"] = json!("Fine")).await;
    check(Reason::Invalid, "Required value", |object| {
        first_item(object).as_object_mut().map(|item| item.remove("namespace"));
    })
    .await;
    check(Reason::BadRequest, "managedFields must be nil", |object| {
        object["metadata"]["managedFields"] = json!([{ "manager": "a", "operation": "Apply" }]);
    })
    .await;
}

/// Beyond etcd's limit, beyond the limit of what the API server sends to etcd, and beyond that of a request.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_is_refused_for_good() {
    let plane = ControlPlane::shared();
    let cluster = admin(plane).await;
    make_namespace(plane, "large");
    for (items, text) in [(5_800, "request is too large"), (8_000, "larger than max"), (30_000, "limit is")] {
        let trouble = refused(&cluster, "large", "a", |object| {
            object["inventory"] = (0..items).map(item).collect();
        })
        .await;
        check_permanent(&trouble, Reason::TooLarge, text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_allowed_is_forbidden() {
    let plane = ControlPlane::shared();
    let nobody = plane.service_account("forbidden", "nobody", Rights::None);
    let trouble = refused(&cluster(&nobody).await, "forbidden", "a", |_| {}).await;
    assert!(matches!(&trouble, Trouble::Forbidden { message } if message.contains("cannot patch")), "{trouble:?}");
    // To whom everything is forbidden, a missing namespace is not told.
    let trouble = refused(&cluster(&nobody).await, "forbidden-nowhere", "a", |_| {}).await;
    assert!(matches!(&trouble, Trouble::Forbidden { .. }), "{trouble:?}");

    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let text = std::fs::read_to_string(&nobody).expect("the harness has written it");
    let mut config: Value = serde_json::from_str(&text).expect("the harness writes JSON");
    config["users"][0]["user"]["token"] = json!("none");
    let stranger = folder.path().join("stranger");
    std::fs::write(&stranger, config.to_string()).expect("the folder is ours");
    let trouble = refused(&cluster(&stranger).await, "forbidden", "a", |_| {}).await;
    assert!(matches!(&trouble, Trouble::Forbidden { message } if message == "Unauthorized"), "{trouble:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_that_is_not_served_is_not_taken_for_an_object_that_is_gone() {
    let plane = ControlPlane::shared();
    let cluster = admin(plane).await;
    for (group, version) in [("core.convoy.kumodo.io", "v9"), ("unheard.example", "v1")] {
        let kind = GroupVersionKind::gvk(group, version, "Unheard");
        let kind = ApiResource::from_gvk_with_plural(&kind, "unheards");
        let api: Api<DynamicObject> = Api::namespaced_with(cluster.client(), "default", &kind);
        let error = api.delete("a", &DeleteParams::default()).await.expect_err("it is not served");
        assert_eq!(Trouble::of(&error), Trouble::NotServed, "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_are_killed_are_waited_for() {
    let mut plane = ControlPlane::start();
    plane.install_crd();
    make_namespace(&plane, "killed");
    let cluster = admin(&plane).await;
    let mut object = inventory("killed", "a");
    apply(&cluster.client(), &object).await.expect("it is good");

    plane.kill_etcd();
    first_item(&mut object)["wave"] = json!(1);
    let without_etcd = apply(&cluster.client(), &object).await.expect_err("it cannot be stored");
    assert!(matches!(without_etcd, Trouble::Unknown { .. } | Trouble::Busy { .. }), "{without_etcd:?}");
    plane.kill_api_server();
    // What is left of the connection may take the request, and none of the next ones.
    let _ = apply(&cluster.client(), &object).await;
    let dead = apply(&cluster.client(), &object).await.expect_err("nobody listens");
    assert!(matches!(&dead, Trouble::Busy { message, .. } if message.contains("refused")), "{dead:?}");
    plane.restart_etcd();
    plane.restart_api_server();
    apply(&cluster.client(), &object).await.expect("the same client finds the server again");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_no_answer_is_not_known() {
    let plane = ControlPlane::shared();
    make_namespace(plane, "unanswered");
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let proxy = Proxy::to(plane.port());
    let cluster = cluster(&redirected(&plane.kubeconfig(), proxy.port(), folder.path())).await;
    cluster.reach().await.expect("the proxy lets us in");

    proxy.hold(Direction::FromServer);
    let start = Instant::now();
    let hung = apply(&cluster.client(), &inventory("unanswered", "hung")).await.expect_err("the answer is held back");
    let took = start.elapsed();
    assert!(matches!(&hung, Trouble::Unknown { message } if message == "no answer within 30s"), "{hung:?}");
    assert!(took < REQUEST_LIMIT + Duration::from_secs(15), "{took:?}");
    plane.kubectl_stdout(&["get", "ri", "-n", "unanswered", "hung"], "");

    proxy.heal();
    cluster.reach().await.expect("the proxy lets us in");
    proxy.hold(Direction::FromServer);
    let (client, object) = (cluster.client(), inventory("unanswered", "cut"));
    let cut = tokio::spawn(async move { apply(&client, &object).await });
    let stored = || plane.kubectl(&["get", "ri", "-n", "unanswered", "cut"], "").status.success();
    assert!(decklog_tests::process::poll(REQUEST_LIMIT, || stored().then_some(())).is_some(), "it arrives");
    proxy.cut();
    let cut = cut.await.expect("it does not panic").expect_err("the answer is lost");
    assert!(matches!(cut, Trouble::Unknown { .. }), "{cut:?}");

    // A new connection comes to nothing: it was not asked.
    let shut = apply(&cluster.client(), &inventory("unanswered", "shut")).await.expect_err("nobody answers");
    assert!(matches!(shut, Trouble::Busy { .. }), "{shut:?}");
}
