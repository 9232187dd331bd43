//! The command line as a user meets it: exit codes, what stands on which stream, and errors that name the way out.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use decklog_tests::binary::{self, Up};
use serde_json::Value;
use tempfile::TempDir;

const EVENT: &str = r#"{"specversion":"1.0","id":"00000000-0000-7000-8000-000000000001","source":"/c/1","type":"dev.decklog.ItemApplied.v1","subject":"shop/checkout","time":"2026-03-02T10:00:00Z","data":{"item":{"group":"apps","version":"v1","kind":"Deployment","namespace":"shop","name":"api"},"renderRef":"r1"}}"#;

/// A folder with a file of events in it.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { folder: tempfile::tempdir().expect("a temporary folder can be made") };
        place.write("one.jsonl", EVENT);
        place
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).expect("writable");
        path.to_str().expect("paths are UTF-8").to_owned()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs decklog in the folder.
    fn run(&self, line: &str) -> Output {
        let args = line.split_whitespace();
        binary::command(args).current_dir(self.folder.path()).output().expect("decklog can be started")
    }

    /// Runs decklog and compares exit code, standard output, and a part of standard error.
    #[track_caller]
    fn check(&self, line: &str, code: i32, stdout: &str, stderr: &str) {
        let output = self.run(line);
        let (got_stdout, got_stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "decklog {line}\n{got_stdout}{got_stderr}");
        assert_eq!(got_stdout, stdout, "decklog {line}: standard output");
        assert!(got_stderr.contains(stderr), "decklog {line}: standard error {got_stderr:?} holds no {stderr:?}");
        assert_eq!(got_stderr.is_empty(), stderr.is_empty(), "decklog {line}: standard error {got_stderr:?}");
    }
}

#[test]
fn nothing_there_is_exit_1_and_nothing_on_stdout() {
    let place = Place::new();
    place.check(
        "at --from one.jsonl -n shop other",
        1,
        "",
        "There is no inventory of release shop/other at sequence 1.",
    );
    place.check("at --from one.jsonl -n other", 1, "", "in namespace other of cluster default");
    place.check("at --from one.jsonl -A --cluster eu", 1, "", "in cluster eu");
    place.check(
        "at --from one.jsonl -n shop checkout --at 2026-03-02T09:00:00Z",
        1,
        "",
        "nothing was recorded up to 2026-03-02T09:00:00Z",
    );
    place.check(
        "timeline --from one.jsonl -n shop other",
        1,
        "",
        "There is no event of release shop/other in cluster default.",
    );
    place.write("empty.jsonl", "");
    place.check("at --from empty.jsonl -A", 1, "", "There is no inventory in any cluster");
}

#[test]
fn nothing_is_a_list_without_items_for_programs() {
    let place = Place::new();
    place.write("empty.jsonl", "");
    let list = serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": [] });
    let none = serde_json::json!({ "counts": {}, "omitted": 0, "entries": [] });
    for (line, expected) in [
        ("at --from empty.jsonl -A", &list),
        ("at --from one.jsonl -n other", &list),
        ("timeline --from one.jsonl -n shop other", &Value::Array(Vec::new())),
        ("quarantine ls --from one.jsonl", &none),
    ] {
        for format in ["json", "yaml"] {
            let output = place.run(&format!("{line} -o {format}"));
            let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            let value: Value = serde_saphyr::from_str(&stdout).expect("JSON is YAML");
            assert_eq!((output.status.code(), &value), (Some(1), expected), "decklog {line} -o {format}: {stderr}");
            assert!(format == "yaml" || serde_json::from_str::<Value>(&stdout).is_ok(), "{stdout}");
            assert!(stderr.starts_with("There is no"), "decklog {line} -o {format}: {stderr}");
        }
    }
    // One release is an object, and there is none.
    place.check("at --from one.jsonl -n shop other -o json", 1, "", "There is no inventory of release shop/other");
}

#[test]
fn a_log_level_that_is_none_is_exit_2_and_mutes_nothing() {
    let place = Place::new();
    let emit = |level: &str| {
        let mut command = binary::command(["emit", "--to", "log", "one.jsonl"]);
        let output = command.current_dir(place.folder.path()).env("DECKLOG_LOG_LEVEL", level).output();
        let output = output.expect("decklog can be started");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for level in ["zzz", "info,zzz", "async_nats=loud", "=info", ",", "info;debug", "[=info"] {
        let (code, stderr) = emit(level);
        assert_eq!(code, Some(2), "{level}: {stderr}");
        let expected =
            "and must be one of off, error, warn, info, debug, trace, or a list such as info,async_nats=warn";
        assert!(stderr.starts_with(&format!("error: DECKLOG_LOG_LEVEL is {level:?}, {expected}")), "{stderr}");
    }
    assert!(!place.path("log").exists(), "what cannot be done touches no log");
    for (level, is_told) in [
        ("debug", true),
        ("INFO", true),
        ("info,async_nats=warn", true),
        ("warn, decklog_cli=info", true),
        ("info,decklog_cli=warn", false),
        ("error", false),
        ("off", false),
        ("", false),
    ] {
        let (code, stderr) = emit(level);
        assert_eq!(code, Some(0), "{level}: {stderr}");
        assert_eq!(stderr.contains("INFO decklog_cli"), is_told, "{level}: {stderr}");
    }
}

#[test]
fn what_a_killed_process_left_half_written_goes_and_nothing_else() {
    let place = Place::new();
    let folder = place.path("data/inventory/default/shop");
    std::fs::create_dir_all(&folder).expect("writable");
    let begin = "apiVersion: core.convoy.kumodo.io/v1alpha1\nkind: ReleaseInventory\n";
    let gone = [(".aB3xY9.new", begin), (".aB3xY8.new", "apiVersion: core"), (".aB3xY7.new", "")];
    let kept = [
        (".aB3xY6.new", "apiVersion: v1\nkind: ConfigMap\n"),
        (".aB3x-6.new", begin),
        (".notes.new", begin),
        ("aB3xY9.new", begin),
        (".aB3xY9.old", begin),
    ];
    for (name, text) in gone.iter().chain(&kept) {
        std::fs::write(folder.join(name), text).expect("writable");
    }
    std::fs::write(place.path("data/.aB3xY9.new"), begin).expect("writable");
    let mut up = Up::start(&place.path("data"));
    place.check("emit --to data one.jsonl", 0, "line 1: stored at 1, folded\n", "");
    assert_eq!(up.stop("TERM").0, Some(0));
    let mut there: Vec<_> = std::fs::read_dir(&folder).expect("it is there").flatten().collect();
    there.sort_by_key(std::fs::DirEntry::file_name);
    let there: Vec<_> = there.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    let mut expected: Vec<_> = kept.iter().map(|(name, _)| *name).chain(["checkout.yaml"]).collect();
    expected.sort_unstable();
    assert_eq!(there, expected);
    assert!(place.path("data/.aB3xY9.new").exists(), "outside of the folder of inventories nothing is removed");
}

#[test]
fn usage_is_exit_2_and_names_the_way_out() {
    let place = Place::new();
    for (line, way_out) in [
        ("at", "with -n NAMESPACE, or ask for all with -A"),
        ("at --from one.jsonl -n shop one two", "unexpected argument 'two'"),
        ("emit --to log one.jsonl one.jsonl", "takes one at a time"),
        ("at --from one.jsonl -n shop checkout --at yesterday", "use RFC 3339"),
        ("at --from one.jsonl -n shop checkout --at seq:0", "a sequence (seq:1234)"),
        ("at --from nowhere -A", "`decklog up --data nowhere` or `decklog emit --to nowhere FILE` makes one"),
        ("at --from history.deck -A", "history.deck is an archive"),
        ("at --from one.jsonl -n shop checkout -o xml", "possible values: table, json, yaml"),
        ("emit --to log missing.jsonl", "cannot read \"missing.jsonl\""),
        ("emit --to one.jsonl one.jsonl", "only read: name nats://host:port or a folder with --to"),
        ("emit --to log ItemApplied -n shop checkout --render r1", "ItemApplied needs --item"),
        ("emit --to log ItemApplied -n shop checkout --item a/b --render r1", "use GROUP/VERSION/KIND/NAMESPACE/NAME"),
        (
            "emit --to log ItemPruned -n shop checkout --item /v1/Secret/shop/s --wave 1",
            "takes no --wave; it takes --item, --uid",
        ),
        (
            "emit --to log HealthAssessed -n shop checkout --item /v1/Secret/shop/s --state Fine --render r",
            "expected one of",
        ),
        ("emit --to log ReleaseTracked", "name it with -n NAMESPACE RELEASE"),
        ("emit --to log Exploded -n shop checkout", "is no event type"),
        ("schema Exploded", "use one of ReleaseTracked"),
        ("up --data one.jsonl", "one.jsonl is a file, and the embedded log needs a folder"),
        ("--config missing.toml crd", "cannot read missing.toml"),
        ("project --from one --lease-namespace Shop_1", "begins and ends with a letter or a digit (RFC 1123)"),
        ("project --from one --shard-label a/b/c", "such as core.convoy.kumodo.io/shard"),
        ("verify -A --from one --shard-label a=b", "such as core.convoy.kumodo.io/shard"),
    ] {
        let output = place.run(line);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "decklog {line}: {stderr}");
        assert!(stderr.contains(way_out), "decklog {line}: {stderr:?} holds no {way_out:?}");
    }
    assert!(!place.path("log").exists(), "what cannot be done touches no log");
}

#[test]
fn refused_events_are_named_and_the_others_are_stored() {
    let place = Place::new();
    let other = EVENT.replace("000000000001", "000000000002");
    let bad = EVENT.replace("000000000001", "000000000003").replace(r#""kind":"Deployment""#, r#""kind":"""#);
    let future = EVENT.replace("000000000001", "000000000004").replace("ItemApplied.v1", "ItemApplied.v9");
    place.write("mixed.jsonl", &format!("{EVENT}\n\n{bad}\nnot json\n{future}\r\n{other}\n"));
    place.check(
        "emit --to log mixed.jsonl",
        3,
        "line 1: stored at 1, folded\n\
         line 3: refused: /data/item/kind: must not be empty\n\
         line 4: refused: byte 0 is 0x6e, which starts neither a JSON object nor a MessagePack map\n\
         line 5: refused: /type: \"dev.decklog.ItemApplied.v9\" is not a type that this version of decklog knows\n\
         line 6: stored at 2, folded\n",
        "",
    );
    place.check("emit --to log one.jsonl", 0, "line 1: duplicate of the event at 1\n", "");
    place.check(
        "emit --to log --unchecked mixed.jsonl",
        3,
        "line 1: duplicate of the event at 1\n\
         line 3: stored at 3, ignored: invalid\n\
         line 4: refused: byte 0 is 0x6e, which starts neither a JSON object nor a MessagePack map\n\
         line 5: stored at 4, ignored: unsupported\n\
         line 6: duplicate of the event at 2\n",
        "",
    );
    let output = place.run("at --from log -n shop checkout -o json");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("may be incomplete: the event at 4"), "{stderr}");
}

#[test]
fn a_bad_line_of_a_file_is_reported_and_left_out() {
    let place = Place::new();
    let text = format!("garbage\n{EVENT}\n");
    place.write("bad.jsonl", &text);
    let output = place.run("timeline --from bad.jsonl -n shop checkout -o json");
    let entries: Vec<Value> = serde_json::from_slice(&output.stdout).expect("timelines are JSON");
    assert_eq!((entries.len(), &entries[0]["sequence"]), (1, &Value::from(2)), "the sequence is the line");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("warning: bad.jsonl:1: left out"), "{stderr}");
}

#[test]
fn events_come_from_standard_input_and_as_messagepack() {
    let place = Place::new();
    let value: Value = serde_json::from_str(EVENT).expect("the event is JSON");
    let mut packed = Vec::new();
    for number in 1..=3 {
        let mut event = value.clone();
        event["id"] = format!("00000000-0000-7000-8000-00000000010{number}").into();
        packed.extend(rmp_serde::to_vec_named(&event).expect("the event is MessagePack"));
    }
    packed.extend_from_slice(&packed.clone()[..40]);
    let mut emitter = binary::command(["emit", "--to", "log", "-"])
        .current_dir(place.folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("decklog can be started");
    emitter.stdin.take().expect("ours").write_all(&packed).expect("decklog reads");
    let output = emitter.wait_with_output().expect("ours");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{text}");
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines[..3],
        ["event 1: stored at 1, folded", "event 2: stored at 2, folded", "event 3: stored at 3, folded"]
    );
    assert!(lines[3].starts_with("event 4: refused: not MessagePack: the event is cut off"), "{text}");
}

#[test]
fn the_log_is_named_by_flag_variable_file_and_default_in_this_order() {
    let place = Place::new();
    let home = place.path("home");
    std::fs::create_dir_all(home.join(".config/decklog")).expect("writable");
    let run = |args: &[&str], variable: Option<&str>| {
        let mut command = binary::command(args);
        command.current_dir(place.folder.path()).env("HOME", &home);
        if let Some(log) = variable {
            command.env("DECKLOG_LOG", log);
        }
        let output = command.output().expect("decklog can be started");
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    run(&["emit", "one.jsonl"], None);
    assert!(home.join(".local/share/decklog/log").is_dir(), "the default");
    std::fs::write(home.join(".config/decklog/config.toml"), "log = \"from-file\"\noutput = \"yaml\"\n")
        .expect("writable");
    run(&["emit", "one.jsonl"], None);
    assert!(place.path("from-file/log").is_dir(), "the file");
    run(&["emit", "one.jsonl"], Some("from-variable"));
    assert!(place.path("from-variable/log").is_dir(), "the variable");
    run(&["emit", "--to", "from-flag", "one.jsonl"], Some("from-variable-2"));
    assert!(place.path("from-flag/log").is_dir() && !place.path("from-variable-2").exists(), "the flag");
}

#[test]
fn output_is_plain_for_programs_and_survives_a_reader_that_leaves() {
    let place = Place::new();
    let text = place.run("at --from one.jsonl -n shop checkout").stdout;
    assert!(!text.contains(&0x1b), "no colours where there is no terminal");
    let demo = binary::stdout(["demo", "--events"]);
    place.write("demo.jsonl", &demo);
    let line = format!("{} timeline --from demo.jsonl -n shop checkout | head -n 1", binary::path().display());
    let output = Command::new("bash").args(["-o", "pipefail", "-c", &line]).current_dir(place.folder.path()).output();
    let output = output.expect("bash can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_socket_answers_what_the_commands_ask() {
    let place = Place::new();
    let data = place.path("data");
    let mut up = Up::start(&data);
    place.check("emit --to data one.jsonl", 0, "line 1: stored at 1, folded\n", "");
    place.check("up --data data", 4, "", "another `decklog up` runs on data already");
    let live = place.run("at --from data -A").stdout;
    let then = place.run("at --from data -A --at seq:1").stdout;
    assert_eq!(String::from_utf8_lossy(&live), String::from_utf8_lossy(&then), "now is the tail");
    let (code, rest) = up.stop("INT");
    assert_eq!(code, Some(0), "{rest}");
    assert!(!data.join("decklog.sock").exists(), "a clean stop leaves no socket behind");
    assert_eq!(place.run("at --from data -A").stdout, live, "the same without `up`");
}

#[test]
fn a_demo_tells_its_story_and_leaves_a_log_behind() {
    let place = Place::new();
    let output = place.run("demo --data story");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for part in
        ["before: render 3f9c1b7a52e0", "Degraded", "stale-render", "duplicate", "stale-term", "TimedOut", "Skipped"]
    {
        assert!(text.contains(part), "the story tells of {part}");
    }
    // The commands that it ends with are true.
    let commands =
        text.lines().filter_map(|line| line.trim().strip_prefix("decklog at")).filter(|line| line.contains("story"));
    let mut ran = 0;
    for command in commands {
        let command = command.split("  …").next().unwrap_or_default().split("  the").next().unwrap_or_default();
        let output = place.run(&format!("at {command}"));
        assert!(output.status.success(), "decklog at {command}: {}", String::from_utf8_lossy(&output.stderr));
        ran += 1;
    }
    assert_eq!(ran, 3, "{text}");
    place.check("demo --data story", 2, "", "is not empty");
}

#[test]
fn documents_are_printed_in_both_formats() {
    let place = Place::new();
    let json: Value = serde_json::from_slice(&place.run("crd -o json").stdout).expect("JSON");
    let yaml: Value = serde_saphyr::from_slice(&place.run("crd").stdout).expect("YAML");
    assert_eq!(json, yaml);
    assert_eq!(json["metadata"]["name"], "releaseinventories.core.convoy.kumodo.io");
    let golden = |name: &str| -> Value {
        let path: PathBuf = binary::root().join("schemas/golden").join(name);
        serde_json::from_slice(&std::fs::read(path).expect("the golden file is there")).expect("JSON")
    };
    assert_eq!(json, golden("crd.json"));
    let schema: Value = serde_json::from_slice(&place.run("schema ItemApplied").stdout).expect("JSON");
    assert_eq!(schema, golden("schema/ItemApplied.v1.json"));
    let all: Value = serde_json::from_slice(&place.run("schema").stdout).expect("JSON");
    assert_eq!(all, golden("asyncapi.json"));
    for shell in ["bash", "zsh", "fish"] {
        let script = place.run(&format!("completions {shell}")).stdout;
        assert!(String::from_utf8_lossy(&script).contains("timeline"), "{shell}");
    }
}

#[test]
fn a_folder_that_is_held_without_an_answer_is_exit_4() {
    let place = Place::new();
    place.check("emit --to data one.jsonl", 0, "line 1: stored at 1, folded\n", "");
    let _lock = Lock::hold(&place.path("data"));
    let output = place.run("at --from data -A");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{stderr}");
    assert!(stderr.contains("is held by another command"), "{stderr}");
}

#[test]
fn many_take_turns_on_a_folder_that_nobody_holds() {
    let place = Place::new();
    let emit = |number: u64| {
        let event = EVENT.replace("000000000001", &format!("{number:012}"));
        let file = place.write(&format!("{number}.jsonl"), &event);
        let data = place.path("data");
        binary::command(["emit", "--to", data.to_str().expect("UTF-8"), &file]).stdout(Stdio::piped()).spawn()
    };
    let emitters: Vec<_> = (0..8).map(|number| emit(number).expect("decklog can be started")).collect();
    for emitter in emitters {
        let output = emitter.wait_with_output().expect("ours");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    let entries: Vec<Value> =
        serde_json::from_slice(&place.run("timeline --from data -n shop checkout -o json").stdout).expect("JSON");
    assert_eq!(entries.len(), 8);
}

#[test]
fn names_that_are_longer_than_files_may_be_have_an_inventory() {
    let place = Place::new();
    let name = ["a"; 100].join(".");
    place.write("long.jsonl", &EVENT.replace("shop/checkout", &format!("shop/{name}")));
    let mut up = Up::start(&place.path("data"));
    place.check("emit --to data long.jsonl", 0, "line 1: stored at 1, folded\n", "");
    let files = std::fs::read_dir(place.path("data/inventory/default/shop")).expect("the folder is there").count();
    assert_eq!(files, 1);
    assert_eq!(up.stop("TERM").0, Some(0));
}

#[test]
fn answers_that_nobody_reads_do_not_stop_the_events() {
    let place = Place::new();
    let events: String =
        (0..3_000).map(|number| EVENT.replace("000000000001", &format!("{number:012}")) + "\n").collect();
    place.write("many.jsonl", &events);
    let line = format!("{} emit --to data many.jsonl | head -n 1", binary::path().display());
    let output = Command::new("bash").args(["-o", "pipefail", "-c", &line]).current_dir(place.folder.path()).output();
    assert!(output.expect("bash can be started").status.success());
    let list = String::from_utf8_lossy(&place.run("at --from data -A").stdout).into_owned();
    assert!(list.contains("At sequence 3000"), "{list}");
}

#[test]
fn variables_that_are_empty_say_nothing() {
    let place = Place::new();
    let mut command = binary::command(["at", "--from", "one.jsonl", "-n", "shop", "checkout", "-o", "json"]);
    for name in ["DECKLOG_LOG", "DECKLOG_CLUSTER", "DECKLOG_OUTPUT", "DECKLOG_CONFIG"] {
        command.env(name, "");
    }
    let output = command.current_dir(place.folder.path()).output().expect("decklog can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    place.check("emit --to= one.jsonl", 2, "", "a log has a name");
}

#[test]
fn objects_of_other_clusters_say_so() {
    let place = Place::new();
    let other = EVENT.replace("000000000001", "000000000002").replace(r#""data""#, r#""cluster":"eu","data""#);
    place.write("two.jsonl", &format!("{EVENT}\n{other}\n"));
    let list: Value = serde_json::from_slice(&place.run("at --from two.jsonl -A -o json").stdout).expect("JSON");
    let cluster = |at: usize| &list["items"][at]["metadata"]["annotations"]["decklog.dev/cluster"];
    assert_eq!((cluster(0), cluster(1)), (&Value::Null, &Value::from("eu")));
}

#[test]
fn text_of_events_does_not_steer_the_terminal() {
    let place = Place::new();
    let steering = EVENT.replace(r#""name":"api""#, r#""name":"a\u001b]0;pwned\u0007\u202epi""#);
    place.write("steering.jsonl", &steering);
    for line in ["at --from steering.jsonl -n shop checkout", "timeline --from steering.jsonl -n shop checkout"] {
        let text = String::from_utf8(place.run(line).stdout).expect("output is UTF-8");
        assert!(text.contains("pwned") && !text.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{line}: {text:?}");
    }
}

#[test]
fn a_byte_order_mark_and_windows_line_ends_are_no_part_of_the_events() {
    let place = Place::new();
    place.write("bom.jsonl", &format!("\u{feff}{EVENT}\r\n"));
    place.check("emit --to data bom.jsonl", 0, "line 1: stored at 1, folded\n", "");
    assert!(place.run("at --from bom.jsonl -n shop checkout").status.success());
}

/// An engine without a socket, as an `emit` on a folder is.
struct Lock {
    emitter: std::process::Child,
}

impl Lock {
    fn hold(folder: &Path) -> Self {
        let folder = folder.to_str().expect("paths are UTF-8");
        let mut emitter = binary::command(["emit", "--to", folder, "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("decklog can be started");
        // Its first answer shows that it has opened the folder.
        let event = EVENT.replace("000000000001", "000000000009");
        writeln!(emitter.stdin.as_mut().expect("ours"), "{event}").expect("decklog reads");
        let mut line = String::new();
        let stdout = emitter.stdout.as_mut().expect("ours");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).expect("decklog answers");
        assert_eq!(line, "line 1: stored at 2, folded\n");
        Self { emitter }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // It ends with its input, or is ended here.
        let _ = self.emitter.kill();
        let _ = self.emitter.wait();
    }
}
