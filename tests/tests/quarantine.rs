//! Quarantine: whatever stands in a log, readers go on, and it is listed, shown to the byte, and tried again.

use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Output;

use decklog_engine::log::{Appended, ExpectedTail, Log as _, NewEvent};
use decklog_nats::{Connection, Login, STREAM, stream};
use decklog_schemas::MAX_EVENT_BYTES;
use decklog_sled::SledLog;
use decklog_tests::binary::{self, Up};
use decklog_tests::nats::{NatsServer, python};
use serde_json::{Value, json};

const CHECKOUT: &str = "decklog.release.default.shop.checkout";

/// Publishes messages, given as subject, hexadecimal bytes, how often these are repeated, and the id of the header if
/// there is one.
const PUBLISH: &str = r#"
import asyncio, json, nats, sys
async def main():
    client = await nats.connect(sys.argv[1])
    stream = client.jetstream()
    for subject, payload, times, id in json.loads(sys.argv[2]):
        headers = {"Nats-Msg-Id": id} if id else None
        print((await stream.publish(subject, bytes.fromhex(payload) * times, headers=headers)).seq)
    await client.close()
asyncio.run(main())
"#;

/// A record as it is put into a log: subject, bytes, and what is to be found out of it; none for a good event.
struct Case {
    subject: String,
    bytes: Vec<u8>,
    kind: Option<&'static str>,
}

fn case(subject: impl Into<String>, bytes: impl Into<Vec<u8>>, kind: &'static str) -> Case {
    Case { subject: subject.into(), bytes: bytes.into(), kind: Some(kind).filter(|kind| !kind.is_empty()) }
}

/// An event of a release.
fn event(number: u64, name: &str, release: &str, data: &Value) -> Value {
    json!({
        "specversion": "1.0",
        "id": format!("00000000-0000-7000-8000-{number:012}"),
        "source": "/c/1",
        "type": format!("dev.decklog.{name}"),
        "subject": release,
        "time": "2026-03-02T10:00:00Z",
        "data": data,
    })
}

fn applied(number: u64, release: &str, name: &str) -> Value {
    let item = json!({"group": "apps", "version": "v1", "kind": "Deployment", "namespace": "shop", "name": name});
    event(number, "ItemApplied.v1", release, &json!({"item": item, "renderRef": "r1"}))
}

/// Everything that may stand in a log, good events among it.
fn cases() -> Vec<Case> {
    let good = |number, name: &str| applied(number, "shop/checkout", name).to_string();
    let packed = rmp_serde::to_vec_named(&applied(90, "shop/checkout", "cut")).expect("it is MessagePack");
    let inventory = format!("{CHECKOUT}.release-inventory.ItemApplied");
    let deep = good(30, "deep").replace(r#""r1""#, &format!(r#""r1","x":{}1{}"#, "[".repeat(9_000), "]".repeat(9_000)));
    let steering = good(31, "steering").replace(r#""/c/1""#, r#""\u001b]0;owned\u0007\u202e""#);
    let other = |subject: &str, number| applied(number, subject, "other").to_string();
    let deployment = "decklog.deployment.eu.team.pipe";
    vec![
        case(&inventory, good(1, "api"), ""),
        case(&inventory, b"\x00\xff\x1b[2J\xc1random".to_vec(), "malformed"),
        case(&inventory, "", "malformed"),
        case(&inventory, "\u{1b}]0;owned\u{7}", "malformed"),
        case(&inventory, "[1,2,3]", "malformed"),
        case(&inventory, "{\"specversion\":", "malformed"),
        case(&inventory, good(33, "twice") + "{}", "malformed"),
        case(&inventory, &packed[..packed.len() / 2], "malformed"),
        case(&inventory, deep, "malformed"),
        case(&inventory, "{}", "unplaced"),
        case(&inventory, r#"{"hello":"world"}"#, "unplaced"),
        case(&inventory, good(34, "place").replace("shop/checkout", "checkout"), "unplaced"),
        case(&inventory, good(2, "worker"), ""),
        case(format!("{CHECKOUT}.health-inventory.ItemApplied"), good(40, "domain"), "wrong-subject"),
        case(format!("{CHECKOUT}.projector.Whatever"), steering, "wrong-subject"),
        case(&inventory, other("shop/cart", 41), "wrong-subject"),
        case(inventory.replace("checkout", "chec%6Bout"), good(42, "escaped"), "wrong-subject"),
        case(inventory.replace("default", "eu"), good(43, "cluster"), "wrong-subject"),
        case(format!("{CHECKOUT}.release-inventory.ItemPruned"), good(3, "token"), ""),
        case("decklog.release.default.shop", good(44, "short"), "foreign-subject"),
        case(
            "decklog.release.default.shop.checkout.release-inventory.ItemApplied.more",
            good(45, "long"),
            "foreign-subject",
        ),
        case("decklog.deployment.eu", good(46, "deployment"), "foreign-subject"),
        case(deployment, good(47, "deployment"), "wrong-subject"),
        case(deployment, b"\x80\x80".to_vec(), "malformed"),
        case(&inventory, good(50, "newer").replace("ItemApplied.v1", "ItemApplied.v9"), "unsupported"),
        case(
            format!("{CHECKOUT}.anything.Exploded"),
            good(51, "new").replace("ItemApplied.v1", "Exploded.v1"),
            "unsupported",
        ),
        case(
            format!("{CHECKOUT}.release.X"),
            good(52, "x").replace("ItemApplied.v1", "ItemApplied.v9"),
            "wrong-subject",
        ),
        case(&inventory, good(4, "last"), ""),
    ]
}

fn run<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Output {
    binary::run(args)
}

/// Runs `decklog quarantine` on a log, and compares the exit code; both streams as text.
#[track_caller]
fn quarantine(log: &str, line: &str, code: i32) -> (String, String) {
    let args = ["quarantine"].into_iter().chain(line.split_whitespace()).chain(["--from", log]);
    let output = run(args);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "quarantine {line}: {stdout}{stderr}");
    // JSON is for programs, and has no more than its own escapes.
    let steering = if line.contains("json") { &['\u{1b}', '\u{7}'][..] } else { &['\u{1b}', '\u{7}', '\u{202e}'] };
    assert!(!stdout.contains(steering), "quarantine {line} steers the terminal");
    (stdout, stderr)
}

fn list(log: &str) -> Value {
    serde_json::from_str(&quarantine(log, "ls -o json", 0).0).expect("the list is JSON")
}

/// What is listed, as sequence, kind and subject.
fn places(list: &Value) -> Vec<(u64, String, String)> {
    let text = |value: &Value| value.as_str().expect("it is text").to_owned();
    let entries = list["entries"].as_array().expect("entries are a list");
    let place =
        |entry: &Value| (entry["sequence"].as_u64().expect("a number"), text(&entry["kind"]), text(&entry["subject"]));
    entries.iter().map(place).collect()
}

/// Compares what is listed and shown with what was put into the log, whose first record is the first case.
#[track_caller]
fn check_all(log: &str, cases: &[Case]) {
    let numbered = || cases.iter().zip(1_u64..).filter_map(|(case, number)| Some((number, case, case.kind?)));
    let expect: Vec<_> =
        numbered().map(|(number, case, kind)| (number, kind.to_owned(), case.subject.clone())).collect();
    let list = list(log);
    assert_eq!(places(&list), expect);
    for kind in ["malformed", "unplaced", "foreign-subject", "wrong-subject", "unsupported"] {
        let count = expect.iter().filter(|(_, known, _)| known == kind).count();
        assert_eq!(list["counts"][kind].as_u64().unwrap_or(0), count as u64, "{kind}");
    }
    for (number, case, _) in numbered() {
        let raw = run(["quarantine", "show", "--raw", "--from", log, &number.to_string()]);
        assert_eq!((raw.status.code(), &raw.stdout), (Some(0), &case.bytes), "the bytes of {number}");
        let (page, _) = quarantine(log, &format!("show {number}"), 0);
        assert!(page.contains(&case.subject), "{page}");
    }
    let (table, _) = quarantine(log, "ls", 0);
    let last = table.lines().last().unwrap_or_default();
    assert!(last.starts_with(&format!("{} in quarantine: ", expect.len())), "{table}");
}

/// What the state is without all that is in quarantine.
fn digest_of(log: &str) -> String {
    let text = binary::stdout(["at", "--from", log, "-A"]);
    text.split("digest ").nth(1).expect("the list ends with its digest").trim().to_owned()
}

fn good_lines(cases: &[Case], folder: &Path) -> String {
    let good = cases.iter().filter(|case| case.kind.is_none());
    let lines: Vec<_> = good.map(|case| String::from_utf8(case.bytes.clone()).expect("good events are text")).collect();
    let path = folder.join("good.jsonl");
    std::fs::write(&path, lines.join("\n")).expect("writable");
    path.to_str().expect("paths are UTF-8").to_owned()
}

/// A message: subject, bytes, how often they are repeated, and the id of the header.
type Message<'a> = (&'a str, &'a [u8], usize, Option<&'a str>);

fn publish(server: &NatsServer, messages: &[Message<'_>]) {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let list: Vec<_> = messages.iter().map(|(subject, bytes, times, id)| (subject, hex(bytes), times, id)).collect();
    let list = serde_json::to_string(&list).expect("it is JSON");
    let printed = python::stdout(PUBLISH, &[&server.url(), &list]);
    assert_eq!(printed.lines().count(), messages.len(), "each is stored");
}

fn start() -> NatsServer {
    let server = NatsServer::builder().conf("max_payload: 4MB").start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime can be made").block_on(async {
        let connection = Connection::open(&server.url(), &Login::default()).await.expect("the server answers");
        stream::init(&connection, STREAM, None).await.expect("the stream can be made");
    });
    server
}

/// Puts records into a folder's log as they are, each under an id of its own.
fn store(folder: &Path, records: &[(&str, &[u8])]) -> Vec<u64> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime can be made").block_on(async {
        let log = SledLog::open(&folder.join("log")).await.expect("the log can be opened");
        let mut sequences = Vec::new();
        for (subject, bytes) in records {
            let id = format!("raw {}", sequences.len());
            let event =
                NewEvent { id, subject: (*subject).to_owned(), bytes: bytes.to_vec(), expected: ExpectedTail::Any };
            let appended = log.append(vec![event]).await.expect("the log works");
            let Appended::Stored { sequence } = appended[0] else { panic!("{appended:?}") };
            sequences.push(sequence.get());
        }
        sequences
    })
}

#[test]
fn nothing_on_a_stream_stops_its_readers() {
    let (server, cases) = (start(), cases());
    let messages: Vec<_> = cases.iter().map(|case| (case.subject.as_str(), &case.bytes[..], 1, None)).collect();
    publish(&server, &messages);
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let (log, file) = (server.url(), good_lines(&cases, folder.path()));
    assert_eq!(digest_of(&log), digest_of(&file), "the state is that of the good events");
    let timeline = binary::stdout(["timeline", "--from", &log, "-n", "shop", "checkout", "-o", "json"]);
    let timeline: Vec<Value> = serde_json::from_str(&timeline).expect("timelines are JSON");
    let folded: Vec<_> =
        timeline.iter().filter(|entry| entry["outcome"] == "folded").map(|entry| entry["sequence"].as_u64()).collect();
    let good = cases.iter().zip(1_u64..).filter(|(case, _)| case.kind.is_none());
    assert_eq!(folded, good.map(|(_, number)| Some(number)).collect::<Vec<_>>());
    check_all(&log, &cases);
}

/// A server takes subjects and headers that are no text, and the client ends its connection where it meets them.
#[test]
fn messages_that_no_client_can_read_stop_no_reader() {
    let server = start();
    let good = |number, name: &str| applied(number, "shop/checkout", name).to_string();
    let subject = format!("{CHECKOUT}.release-inventory.ItemApplied");
    publish(&server, &[(&subject, good(1, "first").as_bytes(), 1, None)]);
    let mut lines = br#"CONNECT {"verbose":false,"headers":true}"#.to_vec();
    lines.extend_from_slice(
        b"\r\nPUB decklog.release.default.shop.check\xff\xfeout.release-inventory.ItemApplied 4\r\noops",
    );
    let (headers, event) = (b"no headers \xff\r\n\r\n", good(2, "second"));
    let sizes = format!("\r\nHPUB {subject} {} {}\r\n", headers.len(), headers.len() + event.len());
    for part in [sizes.as_bytes(), headers, event.as_bytes(), b"\r\nPING\r\n"] {
        lines.extend_from_slice(part);
    }
    let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).expect("the server listens");
    client.write_all(&lines).expect("the server reads");
    let (mut told, mut bytes) = (Vec::new(), [0; 4096]);
    while !told.ends_with(b"PONG\r\n") {
        let read = client.read(&mut bytes).expect("the server answers");
        assert!(read > 0, "the server hangs up: {}", String::from_utf8_lossy(&told));
        told.extend_from_slice(&bytes[..read]);
    }
    publish(&server, &[(&subject, good(3, "third").as_bytes(), 1, None)]);
    let log = server.url();
    let at = binary::stdout(["at", "--from", &log, "-n", "shop", "checkout", "-o", "json"]);
    let at: Value = serde_json::from_str(&at).expect("the object is JSON");
    assert_eq!(at["inventory"].as_array().map(Vec::len), Some(3), "{at}");
    let subject = "decklog.release.default.shop.check\u{fffd}\u{fffd}out.release-inventory.ItemApplied".to_owned();
    assert_eq!(places(&list(&log)), [(2, "malformed".to_owned(), subject)]);
    assert_eq!(run(["quarantine", "show", "--raw", "2", "--from", &log]).stdout, b"oops");
}

#[test]
fn nothing_in_a_folder_stops_its_readers() {
    let (folder, cases) = (tempfile::tempdir().expect("a temporary folder can be made"), cases());
    let records: Vec<_> = cases.iter().map(|case| (case.subject.as_str(), &case.bytes[..])).collect();
    let data = folder.path().join("data");
    store(&data, &records);
    let log = data.to_str().expect("paths are UTF-8");
    let file = good_lines(&cases, folder.path());
    check_all(log, &cases);
    let alone = list(log);
    let mut up = Up::start(&data);
    assert_eq!(list(log), alone, "the socket answers the same");
    check_all(log, &cases);
    assert_eq!(digest_of(log), digest_of(&file), "the state is that of the good events");
    assert_eq!(up.stop("TERM").0, Some(0));
}

#[test]
fn a_misplaced_event_is_appended_once() {
    let server = start();
    let log = server.url();
    let bytes = applied(1, "shop/checkout", "api").to_string();
    let wrong = format!("{CHECKOUT}.hook-status.ItemApplied");
    publish(&server, &[(&wrong, bytes.as_bytes(), 1, None), (&wrong, b"garbage", 1, None)]);
    assert_eq!(quarantine(&log, "retry 1", 0).0, "seq 1: stored at 3\n");
    let again = "seq 1: needs nothing: the same event is at 3, under its right subject\n";
    assert_eq!(quarantine(&log, "retry 1", 0).0, again);
    assert!(quarantine(&log, "show 1", 0).0.contains("the same event is at 3"), "it is told where it stands");
    let (told, _) = quarantine(&log, "retry --all", 3);
    assert_eq!(told.lines().next().map(|line| format!("{line}\n")).as_deref(), Some(again));
    assert!(told.contains("seq 2: stays in quarantine: malformed: byte 0 is 0x67"), "{told}");
    let (fine, _) = quarantine(&log, "retry 3", 0);
    assert!(fine.starts_with("seq 3: needs nothing: this version understands it"), "{fine}");
    assert_eq!(quarantine(&log, "retry 9", 1).0, "seq 9: not there: the log ends at 3\n");
    assert!(quarantine(&log, "show 3", 1).1.contains("is not in quarantine: it is an event in its place"));
    assert!(quarantine(&log, "show 9", 1).1.contains("There is no record at 9: the log ends at 3."));
    let timeline = binary::stdout(["timeline", "--from", &log, "-n", "shop", "checkout", "-o", "json"]);
    let timeline: Vec<Value> = serde_json::from_str(&timeline).expect("timelines are JSON");
    let folded: Vec<_> = timeline.iter().filter(|entry| entry["outcome"] == "folded").collect();
    assert_eq!((folded.len(), &folded[0]["sequence"]), (1, &json!(3)));
}

#[test]
fn what_the_server_takes_for_a_duplicate_is_told() {
    let server = start();
    let bytes = applied(1, "shop/checkout", "api");
    let id = bytes["id"].as_str().expect("it has an id");
    let wrong = format!("{CHECKOUT}.hook-status.ItemApplied");
    publish(&server, &[(&wrong, bytes.to_string().as_bytes(), 1, Some(id))]);
    let (told, _) = quarantine(&server.url(), "retry 1", 3);
    assert!(
        told.contains("seq 1: stays in quarantine: duplicate: the log takes the record at 1 for this event"),
        "{told}"
    );
    assert!(told.contains("until the stream's duplicate window is over"), "{told}");
}

#[test]
fn a_folder_is_retried_alone_and_through_the_one_who_holds_it() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let log = folder.path().to_str().expect("paths are UTF-8");
    let [one, two] = [1, 2].map(|number| applied(number, "shop/checkout", &format!("api{number}")).to_string());
    let wrong = format!("{CHECKOUT}.hook-status.ItemApplied");
    let far = "decklog.deployment.eu.team.pipe";
    assert_eq!(store(folder.path(), &[(&wrong, one.as_bytes()), (far, two.as_bytes())]), [1, 2]);
    assert_eq!(quarantine(log, "retry 1", 0).0, "seq 1: stored at 3, folded\n");
    let mut up = Up::start(folder.path());
    let (told, _) = quarantine(log, "retry 2 1 2 -o json", 0);
    let told: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).expect("answers are JSON")).collect();
    assert_eq!((told.len(), &told[0]["record"], &told[0]["result"]), (2, &json!(1), &json!("fine")), "{told:?}");
    let answer = json!({"record": 2, "result": "sent", "id": "00000000-0000-7000-8000-000000000002",
        "status": "stored", "sequence": 4, "outcome": "folded"});
    assert_eq!(told[1], answer);
    assert_eq!(up.stop("TERM").0, Some(0));
    let at: Value =
        serde_json::from_str(&binary::stdout(["at", "--from", log, "-n", "shop", "checkout", "-o", "json"]))
            .expect("the object is JSON");
    assert_eq!(at["inventory"].as_array().map(Vec::len), Some(2), "{at}");
}

#[test]
fn events_of_the_future_stay_and_are_told() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let future = applied(1, "shop/checkout", "api").to_string().replace("ItemApplied.v1", "ItemApplied.v9");
    let invalid = applied(2, "shop/checkout", "").to_string();
    let file = folder.path().join("future.jsonl");
    std::fs::write(&file, format!("{future}\n{invalid}\n")).expect("writable");
    let (data, file) = (folder.path().join("data"), file.to_str().expect("paths are UTF-8"));
    let log = data.to_str().expect("paths are UTF-8");
    binary::stdout(["emit", "--unchecked", "--to", log, file]);
    let (table, _) = quarantine(log, "ls", 0);
    assert!(table.contains("unsupported") && table.ends_with("\n1 in quarantine: 1 unsupported\n"), "{table}");
    assert!(quarantine(log, "show 1", 0).0.ends_with(&format!("\n{future}\n")), "JSON is shown as text");
    let (told, _) = quarantine(log, "retry 1", 3);
    assert!(told.contains("seq 1: stays in quarantine: unsupported: /type:"), "{told}");
    assert!(quarantine(log, "show 2", 1).1.contains("must not be empty"), "an invalid event is in its place");
    assert!(quarantine(log, "ls --since seq:2", 1).1.contains("There is nothing in quarantine in "));
    assert_eq!(quarantine(log, "ls --until seq:1", 0).0, table);
}

#[test]
fn a_file_of_lines_has_a_quarantine_too_and_is_only_read() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let file = folder.path().join("history.jsonl");
    let good = applied(1, "shop/checkout", "api").to_string();
    let unplaced = good.replace("shop/checkout", "nowhere");
    std::fs::write(&file, format!("garbage\n{good}\n\n{unplaced}\n")).expect("writable");
    let log = file.to_str().expect("paths are UTF-8");
    let expect = [(1, "malformed"), (4, "unplaced")];
    let expect = expect.map(|(number, kind): (u64, &str)| (number, kind.to_owned(), String::new()));
    assert_eq!(places(&list(log)), expect);
    let raw = run(["quarantine", "show", "--raw", "1", "--from", log]);
    assert_eq!(raw.stdout, b"garbage");
    assert!(quarantine(log, "show 1", 0).0.contains("67 61 72 62 61 67 65"), "garbage is shown in hexadecimal");
    assert!(quarantine(log, "show 3", 1).1.contains("There is no record at 3: nothing was stored there"));
    assert!(quarantine(log, "retry 1", 2).1.contains("is a file, which is only read"));
    quarantine(log, "retry", 2);
    quarantine(log, "show 0", 2);
}

#[test]
fn a_record_that_is_larger_than_an_event_may_be_is_shown() {
    let server = start();
    let size = MAX_EVENT_BYTES + 1;
    let subject = format!("{CHECKOUT}.release.ReleaseDeleted");
    publish(&server, &[(&subject, b"x", size, None)]);
    let list = list(&server.url());
    assert_eq!((&list["entries"][0]["kind"], &list["entries"][0]["size"]), (&json!("malformed"), &json!(size)));
    let raw = run(["quarantine", "show", "--raw", "1", "--from", &server.url()]);
    assert!(raw.stdout == b"x".repeat(size), "{} bytes", raw.stdout.len());
}
