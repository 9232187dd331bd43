//! Processes killed with -9 while events stream in: what was acknowledged is there, once, and the digest is as if nobody had.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use decklog_tests::binary::{self, Up};
use decklog_tests::numbered::{RELEASES, Random, event, id_of, seed};
use serde_json::Value;

/// How often something is killed; `DECKLOG_KILLS` says otherwise.
const KILLS: u64 = 200;

/// The pause between two events: a stream lasts about as long as the longest wait for a kill.
const PACE: Duration = Duration::from_micros(100);

/// A running `decklog emit` that reads from us.
fn emitter(folder: &Path) -> Child {
    let folder = folder.to_str().expect("paths are UTF-8");
    binary::command(["emit", "--to", folder, "-o", "json", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("decklog can be started")
}

/// What is known of the log: the sequence that each acknowledged event was given.
#[derive(Default)]
struct Known {
    sequences: BTreeMap<String, u64>,
    /// The first event that is not known to be acknowledged.
    next: u64,
}

impl Known {
    /// Streams events in until something is killed, and takes down what was acknowledged until then.
    fn stream(&mut self, mut emitter: Child, count: u64, kill: impl FnOnce(&mut Child) + Send) {
        let mut stdin = emitter.stdin.take().expect("standard input is ours");
        let stdout = emitter.stdout.take().expect("standard output is ours");
        let first = self.next;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // The reader is killed while we write: then the rest goes nowhere.
                let _ = (first..first + count).try_for_each(|number| {
                    std::thread::sleep(PACE);
                    writeln!(stdin, "{}", event(number))
                });
            });
            scope.spawn(|| kill(&mut emitter));
            for line in BufReader::new(stdout).lines() {
                let line = line.expect("answers are UTF-8");
                // A killed emitter may leave half a line behind: that is no answer.
                let Ok(answer) = serde_json::from_str::<Value>(&line) else { continue };
                self.take(&answer);
            }
        });
        emitter.wait().expect("the process is ours");
    }

    fn take(&mut self, answer: &Value) {
        let status = answer["status"].as_str().expect("answers have a status");
        assert!(matches!(status, "stored" | "duplicate"), "{answer}");
        let id = answer["id"].as_str().expect("our events have ids").to_owned();
        let sequence = answer["sequence"].as_u64().expect("what is stored has a sequence");
        let before = self.sequences.insert(id.clone(), sequence);
        assert!(before.is_none_or(|before| before == sequence), "{id} was at {before:?}, and is at {sequence}");
        self.next = self.sequences.len() as u64;
    }
}

/// Every event of the log by sequence, with its id.
fn log(folder: &Path) -> BTreeMap<u64, String> {
    let folder = folder.to_str().expect("paths are UTF-8");
    let mut events = BTreeMap::new();
    for release in 0..RELEASES {
        let name = format!("release-{release}");
        let text = binary::stdout(["timeline", "--from", folder, "-n", "shop", &name, "-o", "json"]);
        for entry in serde_json::from_str::<Vec<Value>>(&text).expect("timelines are JSON") {
            let sequence = entry["sequence"].as_u64().expect("entries have a sequence");
            events.insert(sequence, entry["id"].as_str().expect("our events have ids").to_owned());
        }
    }
    events
}

fn kill(pid: u32) {
    let killed = Command::new("kill").args(["-s", "KILL", &pid.to_string()]).status().expect("kill can be started");
    assert!(killed.success(), "kill {pid}: {killed}");
}

#[test]
fn what_was_acknowledged_survives_every_kill() {
    let seed = seed();
    let kills = std::env::var("DECKLOG_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(KILLS);
    println!("DECKLOG_SEED={seed}");
    let mut random = Random(seed);
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let data = folder.path().join("data");
    let (mut known, mut cut_short) = (Known::default(), 0);
    for round in 0..kills {
        let count = 100 + random.below(300);
        let all = known.next + count;
        let pause = Duration::from_micros(random.below(50_000));
        if round % 2 == 0 {
            let up = Up::start(&data);
            let pid = up.pid();
            known.stream(emitter(&data), count, |_| {
                std::thread::sleep(pause);
                kill(pid);
            });
            drop(up);
        } else {
            // The engine runs in the emitter itself, and takes a while to start.
            known.stream(emitter(&data), count, |emitter| {
                std::thread::sleep(pause * 2);
                emitter.kill().expect("the process is ours");
            });
        }
        cut_short += u64::from(known.next < all);
    }
    println!("{cut_short} of {kills} kills cut a stream short, {} events were acknowledged", known.next);
    assert!(cut_short * 2 >= kills, "kills that come after the last answer prove little");
    let total = known.next + 500;
    known.stream(emitter(&data), total - known.next, |_| {});
    assert_eq!(known.next, total, "the rest is taken by a folder that was killed {kills} times");

    let log = log(&data);
    let expected: BTreeMap<u64, String> = (0..total).map(|number| (number + 1, id_of(number))).collect();
    assert_eq!(log, expected, "every event is there, once, in the order in which it was sent");
    for (id, sequence) in &known.sequences {
        assert_eq!(log.get(sequence), Some(id), "{id} was acknowledged at {sequence}");
    }
    assert_eq!(state(&data), undisturbed(folder.path(), total), "the digest is as if nobody had been killed");
}

/// All objects with their digest, from the log and from the engine's checkpoint.
fn state(data: &Path) -> String {
    let folder = data.to_str().expect("paths are UTF-8");
    let replayed = binary::stdout(["at", "--from", folder, "-A"]);
    let up = Up::start(data);
    let live = binary::stdout(["at", "--from", folder, "-A"]);
    drop(up);
    assert_eq!(replayed, live, "the checkpoint holds what a replay gives");
    replayed
}

fn undisturbed(folder: &Path, total: u64) -> String {
    let events: String = (0..total).map(|number| event(number) + "\n").collect();
    let (file, data) = (folder.join("all.jsonl"), folder.join("undisturbed"));
    std::fs::write(&file, events).expect("writable");
    let (file, to) = (file.to_str().expect("UTF-8"), data.to_str().expect("UTF-8"));
    binary::stdout(["emit", "--to", to, file]);
    state(&data)
}
