//! `decklog tail` on a real server: what it shows beside a plain subscriber, what it picks, what it survives.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use decklog_tests::binary;
use decklog_tests::nats::python::Script;
use decklog_tests::nats::{NatsServer, api};
use decklog_tests::numbered::{id_of, lines};
use serde_json::{Value, json};

const WITHIN: Duration = Duration::from_secs(20);

/// A running tail, killed when dropped.
struct Tail {
    child: Child,
    lines: Receiver<String>,
}

impl Tail {
    fn start(args: &[&str]) -> Self {
        let mut command = binary::command([&["tail"], args].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("decklog can be started");
        let stdout: ChildStdout = child.stdout.take().expect("standard output is ours");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                // Whoever reads may have ended.
                let _ = sender.send(line.expect("output is UTF-8"));
            }
        });
        Self { child, lines }
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(WITHIN).expect("a line comes")
    }

    fn ids(&self, count: u64) -> Vec<String> {
        (0..count).map(|_| id(&self.line())).collect()
    }

    /// Ends it as a user does, and returns its exit code and what else it said.
    fn interrupt(mut self) -> (Option<i32>, Vec<String>) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", "INT", &pid]).status().expect("kill can be started").success());
        let code = self.child.wait().expect("the process is ours").code();
        (code, self.lines.iter().collect())
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn id(event: &str) -> String {
    let event: Value = serde_json::from_str(event).expect("events are JSON");
    event["id"].as_str().expect("our events have ids").to_owned()
}

fn expected(numbers: impl IntoIterator<Item = u64>) -> Vec<String> {
    numbers.into_iter().map(id_of).collect()
}

fn emit(servers: &str, numbers: impl IntoIterator<Item = u64>) {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let file = folder.path().join("events.jsonl");
    std::fs::write(&file, lines(numbers)).expect("writable");
    binary::stdout(["emit", "--to", servers, file.to_str().expect("paths are UTF-8")]);
}

/// A subscriber with nothing but nats-py: the ids of what is published, as it comes.
const SUBSCRIBER: &str = r#"
import asyncio, json, sys
import msgpack, nats

async def main():
    connection = await nats.connect(sys.argv[1])
    subscription = await connection.subscribe("decklog.>")
    await connection.flush()
    print("ready", flush=True)
    async for message in subscription.messages:
        data = message.data
        event = json.loads(data) if data[:1] == b"{" else msgpack.unpackb(data)
        print(event["id"], flush=True)

asyncio.run(main())
"#;

#[test]
fn it_shows_what_a_plain_subscriber_of_an_auditor_sees() {
    let auditor = binary::stdout(["stream", "permissions", "--writer", "auditor"]);
    let users = format!(
        "AUDITOR_PASSWORD: word\nauthorization {{ users: [ {auditor}\n {{ user: operator, password: word }} ] }}"
    );
    let server = NatsServer::builder().conf(&users).start();
    let (operator, auditor) = (server.url_of("operator", "word"), server.url_of("auditor", "word"));
    api::init(&operator, 1);
    emit(&operator, 0..10);
    let mut subscriber = Script::spawn(SUBSCRIBER, &[&auditor]);
    assert_eq!(subscriber.line(WITHIN), "ready");
    // From where the tail begins the subscriber has seen nothing yet.
    let tail = Tail::start(&["--from", &auditor, "--since", "seq:11", "-o", "cloudevents"]);
    emit(&operator, 10..500);
    let seen: Vec<_> = (10..500).map(|_| subscriber.line(WITHIN)).collect();
    assert_eq!(tail.ids(490), seen, "the same events in the same order");
    assert_eq!(seen, expected(10..500));
    let (code, rest) = tail.interrupt();
    assert_eq!((code, rest.len()), (Some(0), 0), "{rest:?}");
}

#[test]
fn it_survives_a_server_that_restarts() {
    let mut server = NatsServer::start();
    let servers = server.url();
    api::init(&servers, 1);
    emit(&servers, 0..100);
    let tail = Tail::start(&["--from", &servers, "--since", "15m", "-o", "cloudevents"]);
    let mut seen = tail.ids(100);
    for round in 1..4 {
        server.kill();
        std::thread::sleep(Duration::from_millis(300));
        server.restart();
        emit(&servers, round * 100..(round + 1) * 100);
        seen.extend(tail.ids(100));
    }
    assert_eq!(seen, expected(0..400), "nothing is missing, and nothing comes twice");
    let (code, rest) = tail.interrupt();
    assert_eq!((code, rest.len()), (Some(0), 0), "{rest:?}");
}

#[test]
fn it_begins_with_what_comes_next() {
    let server = NatsServer::start();
    let servers = server.url();
    api::init(&servers, 1);
    emit(&servers, 0..50);
    let tail = Tail::start(&["--from", &servers, "-o", "json"]);
    // Nobody says when it has begun: events are sent until it shows one, and it shows none of those before.
    let mut next = 50;
    let first = loop {
        emit(&servers, next..next + 1);
        next += 1;
        if let Ok(line) = tail.lines.recv_timeout(Duration::from_millis(200)) {
            break serde_json::from_str::<Value>(&line).expect("lines are JSON");
        }
        assert!(next < 200, "nothing is shown");
    };
    assert!(first["sequence"].as_u64() > Some(50), "{first}");
    assert_eq!(first["event"]["id"], id_of(first["sequence"].as_u64().expect("it has a sequence") - 1));
}

#[test]
fn it_shows_what_is_asked_for() {
    let server = NatsServer::start();
    let servers = server.url();
    api::init(&servers, 1);
    emit(&servers, 0..60);
    let check = |args: &[&str], picks: fn(u64) -> bool| {
        let from = ["--from", &servers, "--since", "-15m", "-o", "cloudevents"];
        let wanted: Vec<_> = (0..60).filter(|number| picks(*number)).collect();
        let tail = Tail::start(&[&from, args].concat());
        assert_eq!(tail.ids(wanted.len() as u64), expected(wanted), "{args:?}");
        let (code, rest) = tail.interrupt();
        assert_eq!((code, rest.len()), (Some(0), 0), "{args:?}: {rest:?}");
    };
    check(&[], |_| true);
    check(&["-n", "shop"], |_| true);
    check(&["-n", "shop", "release-2"], |number| number % 5 == 2);
    check(&["--type", "ItemApplied"], |number| number % 3 == 0);
    check(&["--type", "ItemApplied", "--type", "ItemPruned"], |number| number % 3 != 1);
    check(&["--domain", "health-inventory"], |number| number % 3 == 1);
    check(&["-n", "shop", "release-2", "--type", "HealthAssessed"], |number| number % 15 == 7);
    check(&["--cluster", "default"], |_| true);
    let elsewhere = Tail::start(&["--from", &servers, "--since", "seq:1", "--cluster", "elsewhere"]);
    assert!(elsewhere.lines.recv_timeout(Duration::from_secs(1)).is_err(), "nothing of it is elsewhere");
}

#[test]
fn it_shows_rows_for_people() {
    let server = NatsServer::start();
    let servers = server.url();
    api::init(&servers, 1);
    emit(&servers, 0..2);
    api::publish(&servers, "decklog.release.a.b.c.release.SyncStarted", None, b"\x1b[31mno event");
    let tail = Tail::start(&["--from", &servers, "--since", "seq:1"]);
    assert!(tail.line().starts_with("SEQ "), "there is a header");
    assert!(tail.line().ends_with("Deployment shop/app-0 applied from r0, wave 0"));
    assert!(tail.line().contains(" HealthAssessed "));
    let garbage = tail.line();
    assert!(garbage.contains("starts neither a JSON object nor a MessagePack map"), "{garbage}");
    assert!(!garbage.contains('\x1b'), "it does not steer the terminal: {garbage:?}");
}

#[test]
fn it_ends_where_the_log_is_another_one() {
    let server = NatsServer::start();
    let servers = server.url();
    api::init(&servers, 1);
    emit(&servers, 0..20);
    let mut tail = Tail::start(&["--from", &servers, "--since", "seq:1", "-o", "cloudevents"]);
    assert_eq!(tail.ids(20), expected(0..20));
    api::order(&servers, "STREAM.DELETE.DECKLOG", &Value::Null);
    api::order(&servers, "STREAM.CREATE.DECKLOG", &json!({ "name": "DECKLOG", "subjects": ["decklog.>"] }));
    assert_eq!(tail.child.wait().expect("the process is ours").code(), Some(5));
}
