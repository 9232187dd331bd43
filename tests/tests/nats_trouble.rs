//! What a user is told where there is no JetStream, and where a stream takes no more events.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::{Duration, Instant};

use decklog_nats::StreamInfo;
use decklog_tests::binary;
use decklog_tests::nats::{NatsServer, api};
use decklog_tests::numbered::lines;
use serde_json::Value;
use tempfile::TempDir;

/// Within what time a user is told what needs no waiting.
const AT_ONCE: Duration = Duration::from_secs(10);

/// Every command that needs the stream, without the address.
const COMMANDS: [&str; 8] = [
    "at -A --from",
    "timeline -n shop checkout --from",
    "tail --from",
    "quarantine ls --from",
    "project --sink sink --data data --from",
    "emit ReleaseTracked -n shop checkout --to",
    "stream info --from",
    "stream init --to",
];

/// A folder to run commands in.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        // It may have to be built first, which takes longer than what is measured here.
        binary::path();
        Self { folder: tempfile::tempdir().expect("a temporary folder can be made") }
    }

    fn command(&self, line: &str, url: &str) -> Command {
        let mut command = binary::command(line.split_whitespace().chain([url]));
        command.current_dir(self.folder.path());
        command
    }

    /// Checks that commands end at once, with exit code 4 and one line that says so.
    #[track_caller]
    fn check(&self, url: &str, parts: &[&str]) {
        for line in COMMANDS {
            let begin = Instant::now();
            let output = self.command(line, url).output().expect("decklog can be started");
            let (code, stderr) = (output.status.code(), text(&output));
            assert!(begin.elapsed() < AT_ONCE, "decklog {line} takes {:?}: {stderr}", begin.elapsed());
            assert_eq!((code, stderr.lines().count()), (Some(4), 1), "decklog {line}: {stderr}");
            for part in parts {
                assert!(stderr.contains(part), "decklog {line}: {stderr:?} holds no {part:?}");
            }
        }
    }

    /// Starts to emit numbered events.
    fn emit(&self, url: &str, numbers: std::ops::Range<u64>) -> Emitter {
        std::fs::write(self.folder.path().join("events.jsonl"), lines(numbers)).expect("writable");
        let mut command = self.command("emit events.jsonl --to", url);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("decklog can be started");
        let stderr = BufReader::new(child.stderr.take().expect("it is piped"));
        Emitter { child: Some(child), stderr }
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A running `decklog emit`, killed when dropped.
struct Emitter {
    child: Option<Child>,
    stderr: BufReader<ChildStderr>,
}

impl Emitter {
    /// The next line of standard error.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stderr.read_line(&mut line).expect("standard error is UTF-8");
        line
    }

    /// Waits for the end, and returns exit code, standard output and the rest of standard error.
    fn ended(mut self) -> (Option<i32>, String, String) {
        let mut rest = String::new();
        self.stderr.read_to_string(&mut rest).expect("standard error is UTF-8");
        let output = self.child.take().expect("it ends once").wait_with_output().expect("it is ours");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned(), rest)
    }
}

impl Drop for Emitter {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.child.iter_mut().for_each(|child| {
            let _ = child.kill();
            let _ = child.wait();
        });
    }
}

/// Makes the stream, with a field of its configuration that is otherwise.
fn make(url: &str, field: &str, value: i64) -> Value {
    let StreamInfo { mut config, .. } = api::init(url, 1);
    config[field] = value.into();
    api::order(url, "STREAM.UPDATE.DECKLOG", &config);
    config
}

#[test]
fn a_server_without_jetstream_is_named_with_the_way_out() {
    let server = NatsServer::builder().without_jetstream().start();
    let told = format!("JetStream is not enabled on the NATS server at {}; put `jetstream {{}}` into", server.url());
    Place::new().check(&server.url(), &["error: ", &told]);
}

#[test]
fn an_account_without_jetstream_is_told_as_such() {
    let accounts = "accounts { A: { users: [ { user: ada, password: word } ] }, \
                    B: { jetstream: enabled, users: [ { user: bob, password: word } ] } }";
    let server = NatsServer::builder().conf(accounts).start();
    let told = format!(
        "is not enabled for the account of this login on the NATS server at nats://…@127.0.0.1:{}; enable",
        server.port()
    );
    Place::new().check(&server.url_of("ada", "word"), &["error: ", &told]);
    let other = Place::new().command("stream init --to", &server.url_of("bob", "word")).output();
    assert!(other.expect("decklog can be started").status.success(), "the other account has it");
}

#[test]
fn a_full_stream_is_told_at_once_and_tried_until_there_is_room() {
    for (field, limit, cause) in
        [("max_bytes", 200, "maximum bytes exceeded"), ("max_msgs", 1, "maximum messages exceeded")]
    {
        let (server, place) = (NatsServer::start(), Place::new());
        let url = server.url();
        let mut config = make(&url, field, limit);
        api::publish(&url, "decklog.release.a.b.c.release.X", Some("1"), &[b'x'; 100]);
        let begin = Instant::now();
        let mut emitter = place.emit(&url, 0..1);
        let warning = emitter.line();
        assert!(begin.elapsed() < AT_ONCE, "{:?}: {warning}", begin.elapsed());
        let flag = format!("nats stream edit DECKLOG --{}=-1", field.replace('_', "-"));
        for part in ["WARN", "Stream takes no more events", "stream=DECKLOG", cause, &flag] {
            assert!(warning.contains(part), "{warning:?} holds no {part:?}");
        }
        config[field] = (-1).into();
        api::order(&url, "STREAM.UPDATE.DECKLOG", &config);
        let (code, stdout, rest) = emitter.ended();
        assert_eq!((code, stdout.as_str(), rest.as_str()), (Some(0), "line 1: stored at 2\n", ""));
    }
}

#[test]
fn a_stream_that_stays_full_is_the_reason_in_the_end() {
    let (server, place) = (NatsServer::start(), Place::new());
    let url = server.url();
    make(&url, "max_bytes", 10);
    // Of three releases, all in flight at once.
    let (code, stdout, stderr) = place.emit(&url, 0..3).ended();
    assert_eq!(code, Some(4), "{stdout}{stderr}");
    let reason = "unknown: not stored within 30 s: the stream DECKLOG takes no more events, maximum bytes exceeded: \
                  raise max_bytes of the stream, or lift it with `nats stream edit DECKLOG --max-bytes=-1`";
    assert_eq!(stdout.lines().filter(|line| line.ends_with(reason)).count(), 3, "{stdout}");
    assert_eq!(stderr.matches("Stream takes no more events").count(), 1, "{stderr}");
}

#[test]
fn a_server_whose_store_is_full_is_told_as_such() {
    let server = NatsServer::builder().limits("max_file_store: 100KB").start();
    let (url, place) = (server.url(), Place::new());
    api::init(&url, 1);
    for id in ["1", "2"] {
        api::publish(&url, "decklog.release.a.b.c.release.X", Some(id), &[b'x'; 60_000]);
    }
    let mut emitter = place.emit(&url, 0..1);
    let warning = emitter.line();
    for part in ["Stream takes no more events", "insufficient resources", "raise max_file_store"] {
        assert!(warning.contains(part), "{warning:?} holds no {part:?}");
    }
}
