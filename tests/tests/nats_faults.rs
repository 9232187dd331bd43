//! What happens to servers, connections and streams, with the real binary writing and projecting: nothing is lost,
//! nothing is there twice, and the objects are as if nothing had happened.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use decklog_tests::binary::{self, Up};
use decklog_tests::nats::api;
use decklog_tests::nats::cluster::NatsCluster;
use decklog_tests::nats::proxy::{Direction, Proxy};
use decklog_tests::nats::{NatsServer, settings};
use decklog_tests::numbered::{RELEASES, Random, event, id_of, lines, seed};
use decklog_tests::process::poll;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A folder for the projector and for files.
struct Bench {
    folder: TempDir,
}

impl Bench {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a temporary folder can be made") }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("paths are UTF-8").to_owned()
    }

    fn projector(&self, servers: &str) -> Up {
        Up::of(["project", "--from", servers, "--data", &self.path("data"), "--sink", &self.path("sink")])
    }

    /// Starts a projector that ends by itself: its exit code, and what it said.
    fn refused(&self, servers: &str) -> (Option<i32>, String) {
        let args = ["project", "--from", servers, "--data", &self.path("data"), "--sink", &self.path("sink")];
        let mut child = binary::command(args).stderr(Stdio::piped()).spawn().expect("decklog can be started");
        let ended = poll(WITHIN, || child.try_wait().expect("the process is ours"));
        if ended.is_none() {
            child.kill().expect("the process is ours");
        }
        let output = child.wait_with_output().expect("the process is ours");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(ended.is_some(), "it goes on: {told}");
        (output.status.code(), told)
    }

    /// Writes events into a file.
    fn file(&self, name: &str, numbers: impl IntoIterator<Item = u64>) -> String {
        let path = self.path(name);
        std::fs::write(&path, lines(numbers)).expect("writable");
        path
    }

    /// The objects that events give, with their digest, from a file.
    fn expected(&self, numbers: impl IntoIterator<Item = u64>) -> Value {
        objects(&self.file("expected.jsonl", numbers))
    }

    /// Asserts that the log has these events, each once and those of a release in order, and that log and projector
    /// agree on what they give.
    fn check(&self, servers: &str, total: u64) {
        let log = ids(servers);
        assert_eq!(log.len() as u64, total, "every event is there, and none twice");
        for release in 0..RELEASES {
            let own: Vec<_> = log.values().filter(|number| *number % RELEASES == release).collect();
            assert!(own.is_sorted(), "events of release {release} are out of order: {own:?}");
        }
        let expected = self.expected(0..total);
        assert_eq!(objects(servers), expected, "a replay gives what the events give");
        self.wait_for_sink(&expected);
    }

    /// Waits until the projector has written these objects.
    fn wait_for_sink(&self, expected: &Value) {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let written = self.written();
            if written == *expected {
                return;
            }
            assert!(Instant::now() < deadline, "the projector has written {written}\nand not {expected}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// What the projector has written, in the form of `at -A -o json`.
    fn written(&self) -> Value {
        let folder = self.path("sink/default/shop");
        let read = |release: u64| {
            let text = std::fs::read_to_string(Path::new(&folder).join(format!("release-{release}.yaml"))).ok()?;
            Some(serde_saphyr::from_str::<Value>(&text).expect("objects are YAML"))
        };
        json!((0..RELEASES).filter_map(read).collect::<Vec<_>>())
    }
}

/// All objects of a log.
fn objects(log: &str) -> Value {
    let text = binary::stdout(["at", "--from", log, "-A", "-o", "json"]);
    serde_json::from_str::<Value>(&text).expect("objects are JSON")["items"].take()
}

/// The number of the event at each sequence.
fn ids(servers: &str) -> BTreeMap<u64, u64> {
    let mut numbers = BTreeMap::new();
    for release in 0..RELEASES {
        let name = format!("release-{release}");
        let text = binary::stdout(["timeline", "--from", servers, "-n", "shop", &name, "-o", "json"]);
        for entry in serde_json::from_str::<Vec<Value>>(&text).expect("timelines are JSON") {
            let id = entry["id"].as_str().expect("our events have ids");
            let number = id.rsplit('-').next().and_then(|number| number.parse().ok()).expect("ids are numbered");
            assert_eq!(id, id_of(number));
            numbers.insert(entry["sequence"].as_u64().expect("entries have a sequence"), number);
        }
    }
    numbers
}

/// Streams numbered events through `decklog emit`, while something else happens.
fn emit_while(servers: &str, numbers: std::ops::Range<u64>, pace: Duration, happens: impl FnOnce() + Send) {
    let mut emitter = binary::command(["emit", "--to", servers, "-o", "json", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("decklog can be started");
    let mut stdin = emitter.stdin.take().expect("standard input is ours");
    let stdout = emitter.stdout.take().expect("standard output is ours");
    let count = numbers.end - numbers.start;
    let mut answers = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            numbers.into_iter().try_for_each(|number| {
                std::thread::sleep(pace);
                writeln!(stdin, "{}", event(number))
            })
        });
        scope.spawn(happens);
        answers.extend(BufReader::new(stdout).lines().map(|line| line.expect("answers are UTF-8")));
    });
    let output = emitter.wait_with_output().expect("the process is ours");
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    assert_eq!(answers.len() as u64, count, "one answer for each event");
    for answer in answers {
        assert!(answer.contains(r#""status":"stored""#) || answer.contains(r#""status":"duplicate""#), "{answer}");
    }
}

/// How long what must end may take.
const WITHIN: Duration = Duration::from_secs(60);

const PACE: Duration = Duration::from_micros(200);

#[test]
fn a_server_is_killed_while_events_are_published_and_read() {
    let (bench, mut random) = (Bench::new(), Random(seed()));
    println!("DECKLOG_SEED={}", random.0);
    let mut server = NatsServer::start();
    let servers = server.url();
    api::init(&servers, 1);
    let projector = bench.projector(&servers);
    let total = 20_000;
    emit_while(&servers, 0..total, PACE, || {
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(100 + random.below(400)));
            server.kill();
            std::thread::sleep(Duration::from_millis(random.below(300)));
            server.restart();
        }
    });
    bench.check(&servers, total);
    drop(projector);
}

/// Whoever is killed starts again; the emitter from the first event that it was not told of.
#[test]
fn server_projector_and_emitter_are_killed_at_random() {
    let (bench, mut random) = (Bench::new(), Random(seed()));
    println!("DECKLOG_SEED={}", random.0);
    let rounds = std::env::var("DECKLOG_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(30);
    let mut server = NatsServer::start();
    let servers = server.url();
    api::init(&servers, 1);
    let mut projector = Some(bench.projector(&servers));
    let mut acknowledged = BTreeMap::new();
    for _ in 0..rounds {
        let next = acknowledged.len() as u64;
        let mut emitter = Emitter::start(&servers, next..next + 200 + random.below(400));
        std::thread::sleep(Duration::from_millis(random.below(120)));
        match random.below(3) {
            0 => {
                server.kill();
                std::thread::sleep(Duration::from_millis(random.below(200)));
                server.restart();
            }
            1 => {
                projector.take().into_iter().for_each(Up::kill);
                projector = Some(bench.projector(&servers));
            }
            _ => emitter.child.kill().expect("the process is ours"),
        }
        for (number, sequence) in emitter.answers() {
            let before = acknowledged.insert(number, sequence);
            assert!(before.is_none_or(|before| before == sequence), "{number} was at {before:?} and is at {sequence}");
        }
    }
    // An emitter that was killed may have stored what nobody was told of: as much as it had at the most.
    let total = acknowledged.len() as u64 + 600;
    let rest = Emitter::start(&servers, acknowledged.len() as u64..total);
    acknowledged.extend(rest.answers());
    bench.check(&servers, total);
    let log = ids(&servers);
    for (number, sequence) in acknowledged {
        assert_eq!(log.get(&sequence), Some(&number), "it was acknowledged there");
    }
}

/// A running `decklog emit` of numbered events.
struct Emitter {
    child: Child,
    _events: TempDir,
}

impl Emitter {
    fn start(servers: &str, numbers: std::ops::Range<u64>) -> Self {
        let events = tempfile::tempdir().expect("a temporary folder can be made");
        let file = events.path().join("events.jsonl");
        std::fs::write(&file, lines(numbers)).expect("writable");
        let file = file.to_str().expect("paths are UTF-8");
        let mut command = binary::command(["emit", "--to", servers, "-o", "json", file]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("decklog can be started");
        Self { child, _events: events }
    }

    /// Number and sequence of what was acknowledged until it ended.
    fn answers(mut self) -> Vec<(u64, u64)> {
        let stdout = self.child.stdout.take().expect("standard output is ours");
        let mut answers = Vec::new();
        for line in BufReader::new(stdout).lines() {
            // A killed emitter may leave half a line behind: that is no answer.
            let Ok(answer) = serde_json::from_str::<Value>(&line.expect("answers are UTF-8")) else { continue };
            assert!(matches!(answer["status"].as_str(), Some("stored" | "duplicate")), "{answer}");
            let number = answer["id"].as_str().and_then(|id| id.rsplit('-').next()).and_then(|id| id.parse().ok());
            answers.push((number.expect("ids are numbered"), answer["sequence"].as_u64().expect("it is stored")));
        }
        self.child.wait().expect("the process is ours");
        answers
    }
}

#[test]
fn consumers_are_deleted_under_a_running_projector() {
    let bench = Bench::new();
    let server = NatsServer::start();
    let servers = server.url();
    api::init(&servers, 1);
    let projector = bench.projector(&servers);
    let total = 5_000;
    let mut deleted = 0;
    emit_while(&servers, 0..total, PACE, || {
        for _ in 0..10 {
            std::thread::sleep(Duration::from_millis(100));
            let names = api::order(&servers, "CONSUMER.NAMES.DECKLOG", &Value::Null);
            for name in names["consumers"].as_array().into_iter().flatten() {
                let name = name.as_str().expect("consumers have names");
                // It may be gone by itself.
                api::ask(&servers, &format!("CONSUMER.DELETE.DECKLOG.{name}"), &Value::Null);
                deleted += 1;
            }
        }
    });
    assert!(deleted > 5, "only {deleted} consumers were there to be deleted");
    bench.check(&servers, total);
    drop(projector);
}

#[test]
fn connections_are_cut_in_the_middle_of_a_batch() {
    let (bench, mut random) = (Bench::new(), Random(seed()));
    println!("DECKLOG_SEED={}", random.0);
    let server = NatsServer::start();
    api::init(&server.url(), 1);
    let proxy = Proxy::to(server.port());
    let projector = bench.projector(&proxy.url());
    let total = 20_000;
    emit_while(&proxy.url(), 0..total, PACE, || {
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(20 + random.below(150)));
            proxy.cut();
        }
    });
    bench.check(&server.url(), total);
    drop(projector);
}

#[test]
fn publishes_are_stored_and_their_answers_lost() {
    let bench = Bench::new();
    let server = NatsServer::start();
    api::init(&server.url(), 1);
    let proxy = Proxy::to(server.port());
    let total = 3_000;
    emit_while(&proxy.url(), 0..total, PACE, || {
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(100));
            proxy.stall(Direction::FromServer);
            std::thread::sleep(Duration::from_millis(4_000));
            proxy.heal();
        }
    });
    assert!(proxy.lost() > 0, "no answer was lost, so that this proves nothing");
    let projector = bench.projector(&server.url());
    bench.check(&server.url(), total);
    drop(projector);
}

#[test]
fn the_same_ids_come_again_after_the_duplicate_window() {
    let bench = Bench::new();
    let server = NatsServer::start();
    let servers = server.url();
    let mut config = api::init(&servers, 1).config;
    config["duplicate_window"] = json!(100_000_000);
    api::order(&servers, "STREAM.UPDATE.DECKLOG", &config);
    let (total, projector) = (500, bench.projector(&servers));
    let file = bench.file("events.jsonl", 0..total);
    binary::stdout(["emit", "--to", &servers, &file]);
    std::thread::sleep(Duration::from_millis(500));
    let again = binary::stdout(["emit", "--to", &servers, "-o", "json", &file]);
    assert!(again.lines().all(|line| line.contains(r#""status":"stored""#)), "the server has forgotten: {again}");
    assert_eq!(ids(&servers).len() as u64, 2 * total, "the log has them twice");
    let expected = bench.expected(0..total);
    assert_eq!(objects(&servers), expected, "the fold takes each of them once");
    bench.wait_for_sink(&expected);
    drop(projector);
}

#[test]
fn a_stream_is_deleted_and_made_anew_under_a_running_projector() {
    let bench = Bench::new();
    let server = NatsServer::start();
    let servers = server.url();
    api::init(&servers, 1);
    let file = bench.file("events.jsonl", 0..500);
    binary::stdout(["emit", "--to", &servers, &file]);
    let mut projector = bench.projector(&servers);
    let before = bench.expected(0..500);
    bench.wait_for_sink(&before);
    let recreated = Instant::now();
    api::order(&servers, "STREAM.DELETE.DECKLOG", &Value::Null);
    api::init(&servers, 1);
    binary::stdout(["emit", "--to", &servers, &bench.file("others.jsonl", 500..600)]);
    let (code, told) = projector.ended();
    assert_eq!(code, Some(5), "{told}");
    assert!(recreated.elapsed() < Duration::from_secs(60), "it took {:?}", recreated.elapsed());
    assert!(told.contains("diverged") && told.contains("decklog stream info"), "{told}");
    assert_eq!(bench.written(), before, "nothing was changed");
    // A new start is no way around it.
    let (code, told) = bench.refused(&servers);
    assert_eq!(code, Some(5), "{told}");
    assert_eq!(bench.written(), before, "nothing was changed");
}

#[test]
fn a_stream_is_deleted_under_a_running_projector() {
    let bench = Bench::new();
    let server = NatsServer::start();
    let servers = server.url();
    api::init(&servers, 1);
    binary::stdout(["emit", "--to", &servers, &bench.file("events.jsonl", 0..500)]);
    let mut projector = bench.projector(&servers);
    bench.wait_for_sink(&bench.expected(0..500));
    api::order(&servers, "STREAM.DELETE.DECKLOG", &Value::Null);
    let (code, told) = projector.ended();
    assert_eq!(code, Some(5), "{told}");
    let (code, told) = bench.refused(&servers);
    assert_eq!(code, Some(5), "{told}");
    let streams = api::ask(&servers, "STREAM.NAMES", &Value::Null);
    assert_eq!(streams["total"], 0, "the stream was not made anew: {streams}");
}

/// A server whose data is put back to what it was before: same stream, same creation, and shorter.
struct Restored {
    server: NatsServer,
    store: TempDir,
    backup: TempDir,
}

impl Restored {
    fn with(bench: &Bench, backed_up: u64, total: u64) -> Self {
        let store = tempfile::tempdir().expect("a temporary folder can be made");
        let backup = tempfile::tempdir().expect("a temporary folder can be made");
        let mut server = NatsServer::builder().store(store.path()).start();
        let servers = server.url();
        api::init(&servers, 1);
        binary::stdout(["emit", "--to", &servers, &bench.file("first.jsonl", 0..backed_up)]);
        server.stop();
        copy(store.path(), backup.path());
        server.restart();
        binary::stdout(["emit", "--to", &servers, &bench.file("second.jsonl", backed_up..total)]);
        Self { server, store, backup }
    }

    fn put_back(&mut self) {
        self.server.kill();
        std::fs::remove_dir_all(self.store.path()).expect("the folder can be removed");
        std::fs::create_dir(self.store.path()).expect("the folder can be made");
        copy(self.backup.path(), self.store.path());
        self.server.restart();
    }
}

fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).expect("the folder can be read") {
        let entry = entry.expect("the folder can be read");
        let to = to.join(entry.file_name());
        if entry.file_type().expect("it has a type").is_dir() {
            std::fs::create_dir(&to).expect("the folder can be made");
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).expect("the file can be copied");
        }
    }
}

#[test]
fn a_checkpoint_is_ahead_of_the_stream() {
    let bench = Bench::new();
    let mut restored = Restored::with(&bench, 300, 500);
    let servers = restored.server.url();
    let mut projector = bench.projector(&servers);
    let before = bench.expected(0..500);
    bench.wait_for_sink(&before);
    // Under a running projector first.
    restored.put_back();
    let (code, told) = projector.ended();
    assert_eq!(code, Some(5), "{told}");
    assert!(told.contains("500") && told.contains("300"), "both places are named: {told}");
    // Then with other events where the projector has seen some.
    binary::stdout(["emit", "--to", &servers, &bench.file("others.jsonl", 1_000..1_400)]);
    let (code, told) = bench.refused(&servers);
    assert_eq!(code, Some(5), "{told}");
    assert!(told.contains("the record at 500 is another one"), "{told}");
    assert_eq!(bench.written(), before, "nothing was changed");
}

#[test]
fn messages_are_removed_in_the_middle() {
    let bench = Bench::new();
    let server = NatsServer::start();
    let servers = server.url();
    let config =
        json!({ "name": "DECKLOG", "subjects": ["decklog.release.>", "decklog.deployment.>"], "allow_direct": true });
    api::order(&servers, "STREAM.CREATE.DECKLOG", &config);
    binary::stdout(["emit", "--to", &servers, &bench.file("events.jsonl", 0..500)]);
    let mut running = bench.projector(&servers);
    bench.wait_for_sink(&bench.expected(0..500));
    let removed = |number: u64| (100..120).contains(&number) || (490..500).contains(&number);
    for number in (0..500).filter(|number| removed(*number)) {
        api::order(&servers, "STREAM.MSG.DELETE.DECKLOG", &json!({ "seq": number + 1, "no_erase": true }));
    }
    // Whoever has folded them keeps what they said.
    binary::stdout(["emit", "--to", &servers, &bench.file("more.jsonl", 500..600)]);
    bench.wait_for_sink(&bench.expected(0..600));
    assert_eq!(running.stop("TERM").0, Some(0));
    // Whoever has not is told what is missing.
    let rest = bench.expected((0..600).filter(|number| !removed(*number)));
    let output = binary::run(["at", "--from", &servers, "-A", "-o", "json"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("the records at 101 to 120 were deleted"), "{told}");
    let mut all: Value = serde_json::from_slice(&output.stdout).expect("objects are JSON");
    assert_eq!(all["items"].take(), rest);
    let other = Bench::new();
    let mut fresh = other.projector(&servers);
    other.wait_for_sink(&rest);
    assert_eq!(fresh.stop("TERM").0, Some(0));
    // What was purged is more than a gap: the history is not whole.
    api::order(&servers, "STREAM.PURGE.DECKLOG", &json!({ "seq": 50 }));
    let another = Bench::new();
    let (code, told) = another.refused(&servers);
    assert_eq!(code, Some(5), "{told}");
    assert!(told.contains("the records at 1 to 49 were purged"), "{told}");
    // A checkpoint that is newer goes on.
    let mut resumed = bench.projector(&servers);
    assert_eq!(resumed.stop("TERM").0, Some(0));
}

#[test]
fn the_last_message_is_removed() {
    let bench = Bench::new();
    let server = NatsServer::start();
    let servers = server.url();
    let config =
        json!({ "name": "DECKLOG", "subjects": ["decklog.release.>", "decklog.deployment.>"], "allow_direct": true });
    api::order(&servers, "STREAM.CREATE.DECKLOG", &config);
    binary::stdout(["emit", "--to", &servers, &bench.file("events.jsonl", 0..100)]);
    let mut projector = bench.projector(&servers);
    bench.wait_for_sink(&bench.expected(0..100));
    assert_eq!(projector.stop("TERM").0, Some(0));
    api::order(&servers, "STREAM.MSG.DELETE.DECKLOG", &json!({ "seq": 100, "no_erase": true }));
    // The floor of the checkpoint is gone, and what follows it is there.
    let mut projector = bench.projector(&servers);
    binary::stdout(["emit", "--to", &servers, &bench.file("more.jsonl", 100..150)]);
    bench.wait_for_sink(&bench.expected(0..150));
    assert_eq!(projector.stop("TERM").0, Some(0));
}

#[test]
fn leaders_step_down_and_die_in_a_cluster() {
    let (bench, mut random) = (Bench::new(), Random(seed()));
    println!("DECKLOG_SEED={}", random.0);
    let mut cluster = NatsCluster::start(3);
    let servers = cluster.url();
    api::init(&servers, 3);
    let projector = bench.projector(&servers);
    let total = 10_000;
    emit_while(&servers, 0..total, PACE, || {
        for round in 0..6 {
            std::thread::sleep(Duration::from_millis(200 + random.below(300)));
            if round % 3 == 2 {
                let leader = cluster.leader_of("DECKLOG").unwrap_or(0);
                cluster.kill(leader);
                std::thread::sleep(Duration::from_millis(random.below(1_000)));
                cluster.restart(leader);
            } else {
                api::step_down(&servers, "DECKLOG");
            }
        }
    });
    cluster.wait_until_ready();
    bench.check(&servers, total);
    drop(projector);
}

/// Events are proposed, not agreed upon, and sent again meanwhile: a cluster answers then that they are in process.
#[test]
fn followers_stand_still_for_longer_than_an_answer_takes() {
    let bench = Bench::new();
    let cluster = NatsCluster::start(3);
    let servers = cluster.url();
    api::init(&servers, 3);
    let leader = poll(WITHIN, || cluster.leader_of("DECKLOG")).expect("the stream has a leader");
    let followers: Vec<_> =
        (0..3).filter(|member| *member != leader).map(|member| &cluster.servers()[member]).collect();
    // Whoever emits talks to the leader, which is not paused.
    let total = 300;
    emit_while(&cluster.servers()[leader].url(), 0..total, PACE, || {
        std::thread::sleep(Duration::from_millis(30));
        followers.iter().for_each(|follower| follower.pause());
        std::thread::sleep(Duration::from_secs(5));
        followers.iter().for_each(|follower| follower.resume());
    });
    cluster.wait_until_ready();
    let projector = bench.projector(&servers);
    bench.check(&servers, total);
    drop(projector);
}

#[test]
fn an_event_is_too_large() {
    let bench = Bench::new();
    let server: NatsServer = settings_of_small_server().start();
    let servers = server.url();
    api::init(&servers, 1);
    let large = |number: u64, size: usize| {
        let mut event: Value = serde_json::from_str(&event(number)).expect("events are JSON");
        event["data"]["note"] = json!("n".repeat(size));
        event.to_string()
    };
    let file = bench.path("events.jsonl");
    let text = [event(0), large(3, 2 * 1024 * 1024), large(6, 100 * 1024), event(9)].join("\n");
    std::fs::write(&file, text).expect("writable");
    let output = binary::run(["emit", "--to", &servers, &file]);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(3), "{told}");
    let lines: Vec<_> = told.lines().collect();
    assert!(lines[0].contains("stored") && lines[3].contains("stored"), "{told}");
    assert!(lines[1].contains("refused") && lines[1].contains("1048576 is the most"), "{told}");
    assert!(lines[2].contains("refused") && lines[2].contains("max_payload"), "{told}");
}

fn settings_of_small_server() -> settings::Settings {
    NatsServer::builder().conf("max_payload: 64KB")
}
