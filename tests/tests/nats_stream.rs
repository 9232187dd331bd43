//! `decklog stream init` and `info` on real servers: what is made, what is changed, what is left and why.

use std::collections::HashSet;
use std::path::Path;
use std::process::{Output, Stdio};

use decklog_engine::checkpoint::{CheckpointStore as _, Entries, Floor};
use decklog_engine::log::LogId;
use decklog_nats::{Connection, Login, STREAM, stream};
use decklog_schemas::Sequence;
use decklog_sled::SledCheckpoints;
use decklog_tests::binary;
use decklog_tests::nats::NatsServer;
use decklog_tests::nats::api::{self, block_on};
use decklog_tests::nats::cluster::NatsCluster;
use futures::future::join_all;
use serde_json::{Value, json};

/// The configuration as an operator might have made it by hand, with what decklog wants.
fn wanted() -> Value {
    json!({
        "name": STREAM, "subjects": ["decklog.release.>", "decklog.deployment.>"], "storage": "file", "discard": "new",
        "duplicate_window": 600_000_000_000_u64, "deny_delete": true, "deny_purge": true, "allow_direct": true,
        "compression": "s2",
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn check(output: &Output, code: i32, stdout: &str, stderr: &str) {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{out}{err}");
    assert!(out.contains(stdout), "standard output {out:?} holds no {stdout:?}");
    assert!(err.contains(stderr), "standard error {err:?} holds no {stderr:?}");
}

fn init(url: &str, rest: &[&str]) -> Output {
    binary::run(["stream", "init", "--to", url].iter().chain(rest))
}

fn info(url: &str, rest: &[&str]) -> Value {
    let output = binary::run(["stream", "info", "--from", url, "-o", "json"].iter().chain(rest));
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("it is JSON")
}

fn config(url: &str) -> Value {
    api::order(url, "STREAM.INFO.DECKLOG", &Value::Null)["config"].clone()
}

/// Makes the stream with some fields as an operator has them.
fn make(url: &str, fields: &Value) {
    api::ask(url, "STREAM.DELETE.DECKLOG", &Value::Null);
    let mut config = wanted();
    for (field, value) in fields.as_object().expect("an object") {
        config[field] = value.clone();
    }
    api::order(url, "STREAM.CREATE.DECKLOG", &config);
}

#[test]
fn a_stream_is_made_once_and_then_is_as_it_should_be() {
    let server = NatsServer::start();
    let url = server.url();
    check(&init(&url, &[]), 0, &format!("Stream DECKLOG is made at {url}: DECKLOG@"), "");
    let made = config(&url);
    for (field, value) in wanted().as_object().expect("an object") {
        assert_eq!(made[field], *value, "{field}");
    }
    let report = info(&url, &[]);
    assert_eq!(report["stream"]["differences"], json!([]));
    check(&init(&url, &[]), 0, "is as it should be: DECKLOG@", "");
    check(&init(&url, &["--replicas", "1"]), 0, "is as it should be", "");
    assert_eq!(config(&url), made);
    assert_eq!(info(&url, &[])["stream"]["created"], report["stream"]["created"]);
    check(&init(&url, &["--replicas", "3"]), 2, "", "replicas > 1 not supported in non-clustered mode");
    check(&init(&url, &["--replicas", "7"]), 2, "", "7 is not in 1..=5");
}

#[test]
fn what_differs_is_changed_where_that_is_safe() {
    let server = NatsServer::start();
    let url = server.url();
    for (fields, told) in [
        (json!({ "deny_delete": false }), "deny_delete: was false, is now true"),
        (json!({ "deny_purge": false }), "deny_purge: was false, is now true"),
        (json!({ "deny_purge": false, "allow_rollup_hdrs": true }), "allow_rollup_hdrs: was true, is now false"),
        (json!({ "discard": "old" }), r#"discard: was "old", is now "new""#),
        (json!({ "compression": "none" }), r#"compression: was "none", is now "s2""#),
        (json!({ "duplicate_window": 120_000_000_000_u64 }), "duplicate_window: was 120000000000, is now 600000000000"),
        (json!({ "allow_direct": false }), "allow_direct: was false, is now true"),
        (json!({ "no_ack": true }), "no_ack: was true, is now false"),
        (json!({ "retention": "interest" }), r#"retention: was "interest", is now "limits""#),
        (
            json!({ "subjects": ["decklog.release.>", "mine"] }),
            r#"is now ["decklog.release.>","mine","decklog.deployment.>"]"#,
        ),
    ] {
        make(&url, &fields);
        let found = info(&url, &[])["stream"]["differences"].clone();
        assert!(found.to_string().contains("`decklog stream init` changes it"), "{fields}: {found}");
        check(&init(&url, &[]), 0, told, "");
        check(&init(&url, &[]), 0, "is as it should be", "");
        assert_eq!(info(&url, &[])["stream"]["differences"], json!([]), "{fields}");
    }
}

#[test]
fn what_the_operator_has_chosen_or_the_server_cannot_change_is_left_and_told() {
    let server = NatsServer::start();
    let url = server.url();
    for (fields, told) in [
        (json!({ "storage": "memory" }), r#"storage: is "memory" and not "file"; it stays so: the server cannot"#),
        (json!({ "retention": "workqueue" }), r#"retention: is "workqueue" and not "limits"; it stays so: the server"#),
        (
            json!({ "max_age": 86_400_000_000_000_u64 }),
            "max_age: is 86400000000000 and not 0; it stays so: the operator",
        ),
        (json!({ "max_bytes": 1_000_000 }), "max_bytes: is 1000000 and not -1; it stays so: the operator"),
        (json!({ "max_msgs": 1_000 }), "max_msgs: is 1000 and not -1; it stays so: the operator"),
        (json!({ "max_msgs_per_subject": 5 }), "max_msgs_per_subject: is 5 and not -1; it stays so: the operator"),
        (json!({ "max_msg_size": 4_096 }), "max_msg_size: is 4096 and not -1; it stays so: the operator"),
        (json!({ "max_consumers": 9 }), "max_consumers: is 9 and not -1; it stays so: the operator"),
        (json!({ "allow_msg_ttl": true }), "allow_msg_ttl: is true and not false; it stays so: the server cannot"),
        (json!({ "persist_mode": "async" }), r#"persist_mode: is "async" and not unset; it stays so: the server"#),
        (
            json!({ "subject_transform": { "src": "decklog.>", "dest": "x.>" } }),
            "it stays so: the operator has chosen it",
        ),
        (json!({ "subjects": ["decklog.release.eu.>"] }), "no subject is ever removed: widen it by hand"),
        (json!({ "mirror": { "name": "ORIGIN" }, "subjects": [] }), "the copy of another stream, and takes no events"),
    ] {
        make(&url, &fields);
        let before = config(&url);
        // All but these fields are right, so that nothing may change.
        check(&init(&url, &[]), 0, told, "");
        assert_eq!(config(&url), before, "{fields}");
    }
}

#[test]
fn the_server_keeps_ids_no_longer_than_records() {
    let server = NatsServer::start();
    let url = server.url();
    make(&url, &json!({ "max_age": 300_000_000_000_u64, "duplicate_window": 1_000_000_000, "deny_purge": false }));
    let output = init(&url, &[]);
    check(&output, 0, "duplicate_window: was 1000000000, is now 300000000000", "");
    check(&output, 0, "deny_purge: was false, is now true", "");
    check(&output, 0, "max_age: is 300000000000 and not 0; it stays so", "");
}

#[test]
fn what_is_not_known_stays_as_it_is() {
    let server = NatsServer::start();
    let url = server.url();
    let fields = json!({
        "description": "mine", "metadata": { "team": "platform" }, "subjects": ["decklog.>"], "deny_delete": false,
        "duplicate_window": 1_200_000_000_000_u64, "consumer_limits": { "inactive_threshold": 60_000_000_000_u64 },
        "republish": { "src": ">", "dest": "copy.>" },
    });
    make(&url, &fields);
    api::publish(&url, "decklog.release.a.b.c.release.X", Some("1"), b"{}");
    let mut expected = config(&url);
    check(&init(&url, &[]), 0, "deny_delete: was false, is now true", "");
    expected["deny_delete"] = json!(true);
    assert_eq!(config(&url), expected);
    assert_eq!(info(&url, &[])["stream"]["messages"], 1, "no record is lost");
}

#[test]
fn a_sealed_stream_is_told_as_such() {
    let server = NatsServer::start();
    let url = server.url();
    make(&url, &json!({}));
    let mut sealed = config(&url);
    sealed["sealed"] = json!(true);
    api::order(&url, "STREAM.UPDATE.DECKLOG", &sealed);
    check(&init(&url, &[]), 0, "sealed: is true and not false; it stays so: the server cannot undo it", "");
}

#[test]
fn of_several_at_the_same_time_all_succeed_and_one_stream_is_there() {
    let server = NatsServer::start();
    let url = server.url();
    let at_once = || {
        block_on(async {
            let login = Login::default();
            let connections = join_all((0..8).map(|_| Connection::open(&url, &login))).await;
            let connections: Vec<_> = connections.into_iter().map(|opened| opened.expect("it answers")).collect();
            let made = join_all(connections.iter().map(|connection| stream::init(connection, STREAM, None))).await;
            made.into_iter().map(|made| made.expect("each of them succeeds").info.created).collect::<HashSet<_>>().len()
        })
    };
    assert_eq!(at_once(), 1, "all have the same stream");
    check(&init(&url, &[]), 0, "is as it should be", "");
    // Those that find it otherwise bring it in line, and none undoes what another has done.
    make(&url, &json!({ "deny_delete": false, "compression": "none" }));
    assert_eq!(at_once(), 1);
    check(&init(&url, &[]), 0, "is as it should be", "");
}

#[test]
fn a_cluster_of_three_keeps_copies_and_changes_their_number_when_told() {
    let cluster = NatsCluster::start(3);
    let url = cluster.url();
    let args = ["stream", "init", "--to", &url, "--replicas", "3"];
    let start = || binary::command(args).stdout(Stdio::null()).spawn().expect("decklog can be started");
    for mut process in [start(), start(), start(), start()] {
        assert!(process.wait().expect("the process is ours").success());
    }
    check(&init(&url, &["--replicas", "3"]), 0, "is as it should be", "");
    check(&init(&url, &["--replicas", "1"]), 0, "num_replicas: was 3, is now 1", "");
    check(&init(&url, &[]), 0, "is as it should be", "");
    check(&init(&url, &["--replicas", "3"]), 0, "num_replicas: was 1, is now 3", "");
    assert_eq!(config(&url)["num_replicas"], 3);
    cluster.wait_until_ready();
    let report = info(&url, &[]);
    assert!(report["stream"]["leader"].is_string(), "{report}");
    let peers = report["stream"]["peers"].as_array().expect("a list");
    assert_eq!(peers.iter().filter(|peer| peer["state"] == "current").count(), 2, "{report}");
}

#[test]
fn a_stream_that_has_the_subjects_already_is_named() {
    let server = NatsServer::start();
    let url = server.url();
    let foreign = json!({ "name": "EVENTS", "subjects": ["decklog.release.eu.>"] });
    api::order(&url, "STREAM.CREATE.EVENTS", &foreign);
    check(&init(&url, &[]), 2, "", "another stream takes the subjects of decklog already: EVENTS");
    check(&init(&url, &[]), 2, "", "if that is the log, name it with --stream EVENTS");
    // That stream can be brought in line under its own name, as far as its subjects allow.
    check(&init(&url, &["--stream", "EVENTS"]), 0, "deny_delete: was false, is now true", "");
    let missing = binary::run(["stream", "info", "--from", &url]);
    check(
        &missing,
        2,
        "Login:",
        &format!("there is no stream DECKLOG at {url}: `decklog stream init --to {url}` makes it"),
    );
    let missing = binary::run(["at", "-A", "--from", &url, "--stream", "OTHER"]);
    check(&missing, 2, "", &format!("`decklog stream init --to {url} --stream OTHER` makes it"));
}

#[test]
fn a_server_that_is_too_old_is_refused_by_every_command() {
    let server = NatsServer::start_2_9();
    let url = server.url();
    let why = "is of version 2.9.10, and decklog needs 2.12 or newer";
    for line in ["stream init --to", "stream info --from", "at -A --from", "emit ReleaseTracked -n shop checkout --to"]
    {
        let output = binary::run(line.split_whitespace().chain([url.as_str()]));
        check(&output, 4, "", why);
    }
}

#[test]
fn a_stream_is_on_nats_and_nowhere_else() {
    for line in ["stream init --to folder", "stream info --from folder", "stream init"] {
        let output = binary::run(line.split_whitespace());
        check(&output, 2, "", "a stream is on NATS, and ");
    }
}

/// Saves a checkpoint at a place of a log, and keeps the store open.
fn checkpoint(data: &Path, log: &LogId, sequence: u64) -> SledCheckpoints {
    block_on(async {
        let (mut store, _) = SledCheckpoints::open(&data.join("checkpoint")).await.expect("the folder is ours");
        let sequence = Sequence::new(sequence).expect("it is not 0");
        let floor = Floor { log: log.clone(), sequence, hash: [0; 32], projection: 1 };
        store.save(floor, Entries::All(Vec::new())).await.expect("it can be saved");
        store
    })
}

#[test]
fn info_says_how_far_a_checkpoint_is_behind() {
    let server = NatsServer::start();
    let url = server.url();
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let data = folder.path();
    let flag = ["--data", data.to_str().expect("paths are UTF-8")];
    let log = api::init(&url, 1).id();
    let page = || binary::run(["stream", "info", "--from", &url].iter().chain(&flag));
    check(&page(), 2, "", "there is no checkpoint in");
    assert_eq!(std::fs::read_dir(data).expect("the folder is ours").count(), 0, "nothing is created");

    for id in ["1", "2", "3", "4", "5"] {
        api::publish(&url, "decklog.release.a.b.c.release.X", Some(id), b"{}");
    }
    let store = checkpoint(data, &log, 3);
    check(&page(), 0, "is held by a running process", "");
    assert_eq!(info(&url, &flag)["checkpoint"]["state"], "held");
    drop(store);
    check(&page(), 0, "is at 3, 2 behind the end", "");
    let report = info(&url, &flag);
    assert_eq!(
        (&report["checkpoint"]["sequence"], &report["checkpoint"]["behind"]),
        (&json!(3), &json!(2)),
        "{report}"
    );
    assert_eq!((&report["stream"]["first"]["sequence"], &report["stream"]["last"]["sequence"]), (&json!(1), &json!(5)));
    drop(checkpoint(data, &log, 5));
    check(&page(), 0, "is at 5, the end of the stream", "");
    drop(checkpoint(data, &log, 6));
    check(&page(), 0, "which is not this stream, or no more", "");
    drop(checkpoint(data, &LogId { incarnation: "2020".to_owned(), ..log }, 1));
    check(&page(), 0, "is at 1 of DECKLOG@2020, which is not this stream", "");
}

#[test]
fn info_leaves_a_damaged_checkpoint_where_it_is() {
    let server = NatsServer::start();
    let url = server.url();
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let log = api::init(&url, 1).id();
    drop(checkpoint(folder.path(), &log, 1));
    std::fs::remove_file(folder.path().join("checkpoint/head")).expect("it is there");
    let data = folder.path().to_str().expect("paths are UTF-8");
    let args = ["stream", "info", "--from", &url, "--data", data];
    for _ in 0..2 {
        check(&binary::run(args), 0, "is damaged, and is built again at the next start", "");
    }
    let names: Vec<_> = std::fs::read_dir(folder.path()).expect("the folder is ours").collect();
    assert_eq!(names.len(), 1, "nothing is set aside: {names:?}");
}

/// A library user meets the same as the command.
#[test]
fn init_tells_what_it_did() {
    let server = NatsServer::start();
    let url = server.url();
    let made = || {
        block_on(async {
            let connection = Connection::open(&url, &Login::default()).await.expect("the server answers");
            stream::init(&connection, STREAM, None).await.expect("the stream can be made")
        })
    };
    assert!(made().is_new);
    let again = made();
    assert!(!again.is_new && again.differences.is_empty(), "{again:?}");
}
