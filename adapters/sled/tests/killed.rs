//! Processes that are killed with -9 while they write: what they acknowledged is there, and a checkpoint is whole.
//!
//! The process starts itself as the one that writes, reads from a pipe what that acknowledges, and kills it.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "all of this file is a test, and talks through a pipe")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use decklog_engine::checkpoint::{CheckpointStore, Entries, Floor};
use decklog_engine::log::{Appended, ExpectedTail, Log, LogId, NewEvent, Scope, Wait};
use decklog_schemas::Sequence;
use decklog_sled::{Faults, SledCheckpoints, SledLog};

/// How often each writer is killed.
const KILLS: u64 = 12;

/// How many entries a checkpoint has.
const ENTRIES: u64 = 30;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match &arguments[1..] {
        [writer, dir] if writer == "log-writer" => write_log(Path::new(dir)).await,
        [writer, dir] if writer == "checkpoint-writer" => write_checkpoints(Path::new(dir)).await,
        // Arguments of the test harness, if any.
        _ => {
            let dir = tempfile::tempdir().unwrap();
            kill_log_writers(&dir.path().join("log")).await;
            kill_checkpoint_writers(&dir.path().join("checkpoint")).await;
        }
    }
}

/// Starts a writer, kills it in the middle of something, and returns the last number that it acknowledged.
fn run_and_kill(writer: &str, dir: &Path, round: u64) -> u64 {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let mut child = command.arg(writer).arg(dir).stdout(Stdio::piped()).spawn().unwrap();
    let (sender, acknowledged) = mpsc::channel();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let reader = std::thread::spawn(move || lines.for_each(|line| sender.send(line).unwrap()));
    // In every fourth round it may be killed before it has written anything, or while it opens what is there.
    let wanted = (round % 4 * 3) as usize;
    let mut seen: Vec<String> = acknowledged.iter().take(wanted).collect();
    assert_eq!(seen.len(), wanted, "the writer ended by itself");
    std::thread::sleep(Duration::from_millis(round * 13 % 40));
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap();
    seen.extend(acknowledged);
    // A line that was cut off by the kill names no number.
    seen.iter().filter_map(|line| line.strip_suffix('.')?.parse().ok()).max().unwrap_or(0)
}

fn acknowledge(number: u64) {
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{number}.").unwrap();
    stdout.flush().unwrap();
}

// === the log ===

async fn write_log(dir: &Path) {
    let log = SledLog::open(dir).await.unwrap();
    let mut next = Sequence::after(log.read(Sequence::FIRST, &Scope::All, Wait::No).await.unwrap().tail).get();
    for count in [1, 2, 300, 7, 2_000].into_iter().cycle() {
        let answers = log.append((next..next + count).map(event).collect()).await.unwrap();
        let Some(Appended::Stored { sequence }) = answers.last() else { panic!("{answers:?}") };
        next = sequence.get() + 1;
        acknowledge(sequence.get());
    }
}

async fn kill_log_writers(dir: &Path) {
    let mut acknowledged = 0;
    for round in 0..KILLS {
        acknowledged = run_and_kill("log-writer", dir, round).max(acknowledged);
        let log = SledLog::open(dir).await.unwrap();
        let mut next = Sequence::FIRST;
        loop {
            let batch = log.read(next, &Scope::All, Wait::No).await.unwrap();
            for record in batch.records.iter() {
                let event = event(record.sequence.get());
                assert!(record.bytes == event.bytes && record.subject == event.subject, "at {}", record.sequence);
            }
            next = batch.next;
            if Some(next) > batch.tail {
                break;
            }
        }
        assert!(next.get() > acknowledged, "round {round}: {acknowledged} was acknowledged, {next} would be next");
    }
    println!("{KILLS} kills, {acknowledged} events acknowledged");
    assert!(acknowledged > KILLS, "the writers have written nothing");
}

fn event(number: u64) -> NewEvent {
    let id = format!("event-{number}");
    let mut bytes = format!(r#"{{"id":"{id}"}}"#).into_bytes();
    if number.is_multiple_of(500) {
        bytes.resize(30_000, b' ');
    }
    let subject = format!("decklog.release.default.shop.release-{}.release.SyncStarted", number % 20);
    NewEvent { id, subject, bytes, expected: ExpectedTail::Any }
}

// === the checkpoint store ===

async fn write_checkpoints(dir: &Path) {
    // Above 0 bytes, every save compacts.
    let (mut store, set_aside) = SledCheckpoints::open_with(dir, Faults::none(), 0).await.unwrap();
    assert_eq!(set_aside, None);
    let first = store.load().await.unwrap().map_or(1, |checkpoint| checkpoint.floor.sequence.get() + 1);
    for number in first.. {
        let entry = |key: u64| (key.to_be_bytes().to_vec(), Some(number.to_be_bytes().repeat(key as usize * 100)));
        let changes = (0..ENTRIES).map(entry).collect();
        let entries = if number.is_multiple_of(3) { Entries::All(changes) } else { Entries::Changed(changes) };
        store.save(floor(number), entries).await.unwrap();
        acknowledge(number);
    }
}

async fn kill_checkpoint_writers(dir: &Path) {
    let mut acknowledged = 0;
    for round in 0..KILLS {
        acknowledged = run_and_kill("checkpoint-writer", dir, round).max(acknowledged);
        let (mut store, set_aside) = SledCheckpoints::open(dir).await.unwrap();
        assert_eq!(set_aside, None, "a kill is no damage");
        let Some(checkpoint) = store.load().await.unwrap() else {
            assert_eq!(acknowledged, 0, "the checkpoint is gone");
            continue;
        };
        let number = checkpoint.floor.sequence.get();
        assert!(number >= acknowledged, "round {round}: {acknowledged} was acknowledged, {number} is there");
        assert_eq!(checkpoint.entries.len() as u64, ENTRIES);
        for ((_, value), key) in checkpoint.entries.iter().zip(0..) {
            assert!(*value == number.to_be_bytes().repeat(key * 100), "entry {key} is of another save");
        }
    }
    println!("{KILLS} kills, {acknowledged} checkpoints acknowledged");
    assert!(acknowledged > 1, "the writers have saved nothing");
}

fn floor(number: u64) -> Floor {
    let log = LogId { name: "embedded".to_owned(), incarnation: "of a test".to_owned() };
    Floor { log, sequence: Sequence::new(number).unwrap(), hash: [7; 32], projection: 1 }
}
