//! What each role may do on a real NATS server whose users come from `decklog stream permissions`, and what none may.

use std::process::Output;
use std::time::{Duration, Instant};

use async_nats::{Client, ConnectOptions, Event, ServerError};
use decklog_engine::log::{Appended, ExpectedTail, Log as _, NewEvent, ReadError, Scope, Wait};
use decklog_nats::{Connection, JetStreamLog, Login, STREAM, StreamInfo, stream};
use decklog_schemas::{EventType, Sequence};
use decklog_tests::binary;
use decklog_tests::nats::NatsServer;
use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// How long an answer may take that is a refusal: less than it takes to wait in vain for one.
const SOON: Duration = Duration::from_secs(3);

/// The authority of each role: the domains that it publishes.
const ROLES: [(&str, &[&str]); 5] = [
    ("observer", &["health-inventory", "hook-status"]),
    ("controller", &["release", "release-inventory", "release-hooks"]),
    ("projector", &["projector"]),
    ("auditor", &[]),
    ("ci", &["deployment"]),
];

/// Whether a role publishes a type: a projector sees in its cluster that a release is there, and is being deleted.
fn publishes(role: &str, domains: &[&str], event_type: EventType) -> bool {
    let is_watched = matches!(event_type, EventType::ReleaseTracked | EventType::ReleaseDeleting);
    domains.contains(&event_type.domain().as_str()) || (role == "projector" && is_watched)
}

/// The roles that read.
const READERS: [&str; 2] = ["projector", "auditor"];

/// Logins that lack one thing, as people write them by hand.
const LACKING: &str = r#"
    { user: deaf, password: word, permissions: { publish: ">", subscribe: "elsewhere" } }
    { user: asker, password: word, permissions: {
        publish: ["$JS.API.STREAM.INFO.DECKLOG"], subscribe: "_INBOX.>" } }
    { user: opener, password: word, permissions: {
        publish: ["$JS.API.STREAM.INFO.DECKLOG", "$JS.API.CONSUMER.CREATE.DECKLOG.>"], subscribe: "_INBOX.>" } }
"#;

const EVENT: &str = r#"{"specversion":"1.0","id":"ID","source":"/c/1","type":"dev.decklog.TYPE.v1","subject":"shop/checkout","time":"2026-03-02T10:00:00Z","data":DATA}"#;
const APPLIED: &str =
    r#"{"item":{"group":"apps","version":"v1","kind":"Deployment","namespace":"shop","name":"api"},"renderRef":"r1"}"#;
const ASSESSED: &str = r#"{"item":{"group":"apps","version":"v1","kind":"Deployment","namespace":"shop","name":"api"},"state":"Healthy","assessedRenderRef":"r1"}"#;

/// A server with an operator `admin` and a user for each role, and the stream on it.
struct Site {
    server: NatsServer,
}

impl Site {
    fn start() -> Self {
        let (mut passwords, mut users) = (String::new(), String::new());
        for (role, _) in ROLES {
            passwords += &format!("{}_PASSWORD: word\n", role.to_uppercase());
            users += &binary::stdout(["stream", "permissions", "--writer", role]);
        }
        let admin = "{ user: admin, password: word }";
        let conf = format!("{passwords}authorization {{ users: [\n{admin}\n{users}{LACKING}] }}");
        let site = Self { server: NatsServer::builder().conf(&conf).start() };
        let made = site.run("stream init --to", "admin", "");
        assert!(made.status.success(), "{}", text(&made.stderr));
        site
    }

    async fn connect(&self, user: &str) -> Connection {
        let login = Login { user: Some(user.to_owned()), password: Some("word".to_owned()), ..Login::default() };
        Connection::open(&self.server.url(), &login).await.expect("the server knows the user")
    }

    async fn log(&self, user: &str) -> JetStreamLog {
        JetStreamLog::unchecked(&self.connect(user).await, STREAM)
    }

    async fn info(&self) -> StreamInfo {
        self.log("admin").await.info().await.expect("the stream is there")
    }

    /// Runs `decklog`; a command ends in `--to` or `--from`.
    fn run(&self, command: &str, user: &str, rest: &str) -> Output {
        let url = self.server.url();
        let login = ["--user", user, "--password", "word"];
        let args = command.split_whitespace().chain([url.as_str()]).chain(login).chain(rest.split_whitespace());
        binary::run(args)
    }

    /// A plain client, and what the server refuses it.
    async fn client(&self, user: &str) -> (Client, mpsc::UnboundedReceiver<String>) {
        let (sender, refusals) = mpsc::unbounded_channel();
        let options = ConnectOptions::with_user_and_password(user.to_owned(), "word".to_owned());
        let options = options.event_callback(move |event| {
            let sender = sender.clone();
            async move {
                if let Event::ServerError(ServerError::Other(text)) = event {
                    let _ = sender.send(text);
                }
            }
        });
        (options.connect(self.server.url()).await.expect("the server knows the user"), refusals)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn event(id: u32, name: &str, data: &str) -> String {
    let id = format!("00000000-0000-7000-8000-{id:012}");
    EVENT.replace("ID", &id).replace("TYPE", name).replace("DATA", data)
}

/// An event of a type under the subject of its domain, each of a release of its own.
fn new_event(role: &str, event_type: EventType) -> NewEvent {
    let subject = match event_type.domain().as_str() {
        "deployment" => format!("decklog.deployment.eu.{role}.{event_type}"),
        domain => format!("decklog.release.default.shop.{role}-{event_type}.{domain}.{event_type}"),
    };
    let id = format!("{role}-{event_type}");
    NewEvent { id, subject, bytes: b"{}".to_vec(), expected: ExpectedTail::Any }
}

fn events(role: &str) -> Vec<NewEvent> {
    EventType::ALL.iter().map(|event_type| new_event(role, *event_type)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_role_publishes_its_own_domains_and_no_other() {
    let site = Site::start();
    let mut published: Vec<&str> = Vec::new();
    for (role, domains) in ROLES {
        let log = site.log(role).await;
        let before = Instant::now();
        let answers = log.append(events(role)).await.expect("each event has an answer");
        assert!(before.elapsed() < SOON, "{role} waited {:?}", before.elapsed());
        for (event_type, answer) in EventType::ALL.iter().zip(&answers) {
            match answer {
                Appended::Stored { .. } => assert!(publishes(role, domains, *event_type), "{role} stored {event_type}"),
                Appended::Refused { reason } => {
                    assert!(!publishes(role, domains, *event_type), "{role} and {event_type}: {reason}");
                    let subject = new_event(role, *event_type).subject;
                    assert!(reason.contains("permission denied") && reason.contains(&subject), "{reason}");
                }
                other => panic!("{role} and {event_type}: {other:?}"),
            }
        }
        published.extend(domains);
    }
    published.sort_unstable();
    let mut all: Vec<_> = EventType::ALL.iter().map(|event_type| event_type.domain().as_str()).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(published, all, "each domain has one role");
    assert_eq!(site.info().await.state.messages, EventType::ALL.len() as u64 + 2, "two types have two roles");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_is_told_what_stands_where_it_expected_another_tail() {
    let site = Site::start();
    let log = site.log("controller").await;
    let first = NewEvent { expected: ExpectedTail::Empty, ..new_event("r", EventType::ItemApplied) };
    let second = NewEvent { id: "another".to_owned(), ..first.clone() };
    let answers = log.append(vec![first.clone(), second, first]).await.expect("each event has an answer");
    let sequence = Sequence::FIRST;
    let expected =
        [Appended::Stored { sequence }, Appended::Conflict { tail: Some(sequence) }, Appended::Duplicate { sequence }];
    assert_eq!(answers, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_read_reads_everything_and_others_are_told_at_once() {
    let site = Site::start();
    let written = site.log("admin").await.append(events("admin")).await.expect("each event has an answer");
    for (role, _) in ROLES {
        let log = site.log(role).await;
        let before = Instant::now();
        let read = log.read(Sequence::FIRST, &Scope::All, Wait::No).await;
        if READERS.contains(&role) {
            assert_eq!(read.expect("it may read").records.len(), written.len(), "{role}");
            continue;
        }
        assert!(before.elapsed() < SOON, "{role} waited {:?}", before.elapsed());
        match read {
            Err(ReadError::Denied(denial)) => {
                let expected =
                    "permission denied: this login may not publish to \"$JS.API.STREAM.INFO.DECKLOG\"".to_owned();
                assert_eq!(denial.to_string(), expected, "{role}");
            }
            read => panic!("{role}: {read:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_lacks_one_thing_is_told_which() {
    let site = Site::start();
    site.log("admin").await.append(events("admin")).await.expect("each event has an answer");
    for (user, lacks) in [
        ("deaf", "subscribe to \"_INBOX."),
        ("asker", "publish to \"$JS.API.CONSUMER.CREATE.DECKLOG."),
        ("opener", "publish to \"$JS.API.CONSUMER.MSG.NEXT.DECKLOG."),
    ] {
        for scope in
            [Scope::All, Scope::Release(decklog_schemas::ReleaseKey::new("default", "shop", "admin-HookRunning"))]
        {
            let log = site.log(user).await;
            let before = Instant::now();
            let read = log.read(Sequence::FIRST, &scope, Wait::No).await;
            assert!(before.elapsed() < SOON, "{user} waited {:?}", before.elapsed());
            match read {
                Err(ReadError::Denied(denial)) => assert!(denial.to_string().contains(lacks), "{user}: {denial}"),
                read => panic!("{user}: {read:?}"),
            }
        }
    }
    let answers = site.log("deaf").await.append(vec![new_event("deaf", EventType::ItemApplied)]).await;
    match answers.expect("each event has an answer").as_slice() {
        [Appended::Refused { reason } | Appended::Unknown { reason }] => {
            assert!(reason.contains("may not subscribe to \"_INBOX."), "{reason}");
        }
        answers => panic!("{answers:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_role_changes_the_stream_or_takes_from_it() {
    let site = Site::start();
    site.log("admin").await.append(events("admin")).await.expect("each event has an answer");
    let before = site.info().await;
    let config = serde_json::to_vec(&json!({ "name": STREAM, "subjects": ["decklog.x"] })).expect("it is JSON");
    let orders: [(&str, &[u8]); 9] = [
        ("STREAM.DELETE.DECKLOG", b""),
        ("STREAM.PURGE.DECKLOG", b""),
        ("STREAM.UPDATE.DECKLOG", &config),
        ("STREAM.CREATE.DECKLOG", &config),
        ("STREAM.CREATE.OTHER", br#"{"name":"OTHER","subjects":["other"]}"#),
        ("STREAM.MSG.DELETE.DECKLOG", br#"{"seq":1}"#),
        ("STREAM.RESTORE.DECKLOG", b"{}"),
        ("STREAM.LEADER.STEPDOWN.DECKLOG", b""),
        ("CONSUMER.DELETE.DECKLOG.any", b""),
    ];
    for (role, _) in ROLES {
        let (client, mut refusals) = site.client(role).await;
        for (order, body) in orders {
            let subject = format!("$JS.API.{order}");
            let inbox = client.new_inbox();
            client.publish_with_reply(subject.clone(), inbox, body.to_vec().into()).await.expect("it is sent");
            let refused = timeout(SOON, refusals.recv()).await.expect("the server says no").expect("it is connected");
            assert_eq!(refused, format!("Permissions Violation for Publish to \"{subject}\""), "{role}");
        }
    }
    let after = site.info().await;
    assert_eq!((after.id(), after.state.messages, after.config), (before.id(), before.state.messages, before.config));
}

/// A reader chooses where a consumer of its own delivers to. The server sends that with its own authority, which must
/// not become the reader's.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_cannot_have_the_server_write_or_delete_for_it() {
    let site = Site::start();
    site.log("admin").await.append(events("admin")).await.expect("each event has an answer");
    let before = site.info().await.state.messages;
    for role in READERS {
        let (client, _refusals) = site.client(role).await;
        let ask = async |name: &str, target: &str| -> Value {
            let config = json!({
                "name": name, "deliver_subject": target, "deliver_policy": "all", "ack_policy": "none", "headers_only": true,
                "inactive_threshold": 60_000_000_000_u64,
            });
            let body = json!({ "stream_name": STREAM, "config": config }).to_string();
            let asked = client.request(format!("$JS.API.CONSUMER.CREATE.DECKLOG.{name}"), body.into()).await;
            serde_json::from_slice(&asked.expect("the server answers").payload).expect("it answers JSON")
        };
        let written = ask("writes", "decklog.release.default.shop.checkout.release.ReleaseDeleted").await;
        assert_eq!(written["error"]["err_code"], 10_081, "it would form a cycle: {written}");
        ask("deletes", "$JS.API.STREAM.DELETE.DECKLOG").await;
        ask("purges", "$JS.API.STREAM.PURGE.DECKLOG").await;
    }
    // Long enough for the server to deliver what it would.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(site.info().await.state.messages, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_auditor_hears_events_as_they_come_and_an_observer_does_not() {
    let site = Site::start();
    let (client, _refusals) = site.client("auditor").await;
    let mut heard = client.subscribe("decklog.>").await.expect("it is sent");
    client.flush().await.expect("the server answers");
    let new = new_event("controller", EventType::ItemApplied);
    site.log("controller").await.append(vec![new.clone()]).await.expect("each event has an answer");
    let message = timeout(SOON, heard.next()).await.expect("it comes").expect("it is connected");
    assert_eq!((message.subject.as_str(), &*message.payload), (new.subject.as_str(), &*new.bytes));

    let (client, mut refusals) = site.client("observer").await;
    let _heard = client.subscribe("decklog.>").await.expect("it is sent");
    let refused = timeout(SOON, refusals.recv()).await.expect("the server says no").expect("it is connected");
    assert_eq!(refused, "Permissions Violation for Subscription to \"decklog.>\"");
}

/// The client drops what it is told of too many denials at once: those are sent again.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_denials_at_once_are_all_told() {
    let site = Site::start();
    let log = site.log("observer").await;
    let event = |number: usize| NewEvent {
        id: format!("denied-{number}"),
        subject: format!("decklog.release.default.shop.app-{number}.release-inventory.ItemApplied"),
        bytes: APPLIED.into(),
        expected: ExpectedTail::Any,
    };
    let answers = log.append((0..1_000).map(event).collect()).await.expect("the log takes the call");
    for answer in &answers {
        assert!(matches!(answer, Appended::Refused { reason } if reason.contains("permission denied")), "{answer:?}");
    }
    assert_eq!(site.info().await.state.last_seq, 0);
}

#[test]
fn emit_says_which_events_a_login_may_not_publish_and_stores_the_others() {
    let site = Site::start();
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let file = folder.path().join("events.jsonl");
    let events = [("HealthAssessed", ASSESSED), ("ItemApplied", APPLIED), ("HealthAssessed", ASSESSED)];
    let lines: Vec<_> = (1..).zip(events).map(|(id, (name, data))| event(id, name, data)).collect();
    std::fs::write(&file, lines.join("\n")).expect("the folder is ours");
    let before = Instant::now();
    let emitted = site.run("emit --to", "observer", file.to_str().expect("paths are UTF-8"));
    assert!(before.elapsed() < SOON, "it waited {:?}", before.elapsed());
    let subject = "decklog.release.default.shop.checkout.release-inventory.ItemApplied";
    let expected = format!(
        "line 1: stored at 1\nline 2: refused: permission denied: this login may not publish to {subject:?}\n\
         line 3: stored at 2\n"
    );
    assert_eq!((emitted.status.code(), text(&emitted.stdout)), (Some(3), expected), "{}", text(&emitted.stderr));
}

#[test]
fn commands_that_read_name_the_permission_that_is_missing_and_the_way_out() {
    let site = Site::start();
    for command in ["at -A --from", "timeline -n shop checkout --from", "stream info --from"] {
        for (role, _) in ROLES {
            let before = Instant::now();
            let output = site.run(command, role, "");
            let stderr = text(&output.stderr);
            if READERS.contains(&role) {
                let code = if command.starts_with("stream") { 0 } else { 1 };
                assert_eq!(output.status.code(), Some(code), "{command} by {role}: {stderr}");
                continue;
            }
            assert!(before.elapsed() < SOON, "{command} by {role} took {:?}", before.elapsed());
            assert_eq!(output.status.code(), Some(4), "{command} by {role}: {stderr}");
            for part in [
                "permission denied: this login may not publish to \"$JS.API.STREAM.INFO.DECKLOG\"",
                "`decklog stream permissions --writer auditor` prints what a login needs that reads a log",
            ] {
                assert!(stderr.contains(part), "{command} by {role}: {stderr}");
            }
        }
    }
    let output = site.run("at -A --from", "deaf", "");
    assert_eq!(output.status.code(), Some(4));
    assert!(text(&output.stderr).contains("may not subscribe to \"_INBOX."), "{}", text(&output.stderr));
}

#[test]
fn stream_info_tells_each_login_what_it_may_do() {
    let site = Site::start();
    for (role, domains) in ROLES {
        let output = site.run("stream info --from", role, "-o json");
        let report: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
        assert_eq!((&report["login"]["user"], &report["login"]["account"]), (&json!(role), &json!("$G")), "{report}");
        let may = |what: &str| {
            let abilities = report["login"]["may"].as_array().expect("a list");
            let ability = abilities.iter().find(|ability| ability["what"] == what);
            ability.unwrap_or_else(|| panic!("{what} is told: {report}"))["may"].clone()
        };
        for event_type in EventType::ALL {
            let domain = event_type.domain().as_str();
            let some = EventType::ALL
                .iter()
                .any(|other| other.domain().as_str() == domain && publishes(role, domains, *other));
            let expected = if domains.contains(&domain) {
                "yes"
            } else if some {
                "partly"
            } else {
                "no"
            };
            assert_eq!(may(&format!("publish {domain}")), expected, "{role} and {domain}");
        }
        let reads = if READERS.contains(&role) { "yes" } else { "no" };
        for what in ["ask for the stream", "begin to read", "read on"] {
            assert_eq!(may(what), reads, "{role} and {what}");
        }
        for what in ["make the stream", "change the stream", "delete the stream", "purge the stream", "delete a record"]
        {
            assert_eq!(may(what), "no", "{role} and {what}");
        }
    }
    let admin = site.run("stream info --from", "admin", "-o json");
    let report: Value = serde_json::from_slice(&admin.stdout).expect("it is JSON");
    let abilities = report["login"]["may"].as_array().expect("a list");
    assert!(abilities.iter().all(|ability| ability["may"] == "yes"), "{report}");
    let deaf = site.run("stream info --from", "deaf", "-o json");
    let report: Value = serde_json::from_slice(&deaf.stdout).expect("it is JSON");
    assert_eq!(report["login"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_without_the_permission_makes_or_changes_the_stream() {
    let site = Site::start();
    for (role, _) in ROLES {
        // Readers find it as it should be, and change nothing; the others may not even look.
        let made = stream::init(&site.connect(role).await, STREAM, None).await;
        assert_eq!(made.is_ok(), READERS.contains(&role), "{role}: {made:?}");
        let other = site.run("stream init --to", role, "--stream OTHER");
        let stderr = text(&other.stderr);
        assert_eq!(other.status.code(), Some(4), "{role}: {stderr}");
        assert!(stderr.contains("permission denied: this login may not publish to \"$JS.API.STREAM."), "{stderr}");
    }
}

#[test]
fn a_user_can_have_any_name_and_a_stream_too() {
    let name = r#"team "x" \ $HOME"#;
    let args = ["stream", "permissions", "--writer", "controller", "--user", name, "--stream", "AUDIT"];
    let snippet = binary::stdout(args);
    assert!(snippet.contains("\"$JS.API.STREAM.MSG.GET.AUDIT\""), "{snippet}");
    let conf = format!("TEAM__X_____HOME_PASSWORD: word\nauthorization {{ users: [\n{snippet}\n] }}");
    let server = NatsServer::builder().conf(&conf).start();
    let url = server.url();
    let args = ["stream", "info", "--from", &url, "--user", name, "--password", "word", "-o", "json"];
    let report: Value = serde_json::from_slice(&binary::run(args).stdout).expect("it is JSON");
    assert_eq!(report["login"]["user"], name);
}
