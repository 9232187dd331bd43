//! Files that were damaged: flipped bits, and ends that are cut off, at places that a seed decides.
//!
//! A log that is damaged says so or has everything that it acknowledged; it never has fewer records or other ones. A
//! checkpoint store is intact or is set aside.

#![expect(clippy::unwrap_used, reason = "all of this file is a test")]

use std::path::{Path, PathBuf};

use decklog_engine::checkpoint::{Checkpoint, CheckpointStore, Entries, Floor};
use decklog_engine::log::{Appended, ExpectedTail, Log, LogId, NewEvent, ReadError, Scope, Wait};
use decklog_schemas::{Record, ReleaseKey, Sequence};
use decklog_sled::{OpenError, SledCheckpoints, SledLog};

/// How many places of each file are damaged in one way.
const PLACES: u64 = 30;

/// As many events as have an index by release and some behind it.
const EVENTS: u64 = 17_000;

#[tokio::test]
async fn a_damaged_log_never_has_fewer_records() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, copy) = (dir.path().join("whole"), dir.path().join("copy"));
    let log = SledLog::open(&whole).await.unwrap();
    for start in (0..EVENTS).step_by(500) {
        log.append((start..start + 500).map(event).collect()).await.unwrap();
    }
    drop(log);
    // Opened again, sled has a snapshot too.
    drop(SledLog::open(&whole).await.unwrap());
    assert_intact(&SledLog::open(&whole).await.unwrap()).await.unwrap();

    let (mut intact, mut damaged) = (0, 0);
    for (name, damage) in damages(&whole) {
        copy_folder(&whole, &copy);
        damage.apply(&copy.join(&name));
        match check_log(&copy).await {
            Ok(()) => intact += 1,
            Err(problem) => {
                damaged += 1;
                assert!(problem.contains("damaged at sequence"), "{}: {damage:?}: {problem}", name.display());
            }
        }
    }
    println!("{intact} damages were without effect, {damaged} were found");
    assert!(damaged > 50, "too few damages were found");
}

#[tokio::test]
async fn a_damaged_checkpoint_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, parent) = (dir.path().join("whole"), dir.path().join("parent"));
    let (mut store, _) = SledCheckpoints::open(&whole).await.unwrap();
    for number in 1..=30 {
        store.save(floor(number), changes(number)).await.unwrap();
    }
    let expected = store.load().await.unwrap().unwrap();
    drop(store);
    drop(SledCheckpoints::open(&whole).await.unwrap());

    let (mut intact, mut set_aside) = (0, 0);
    for (name, damage) in damages(&whole) {
        let copy = parent.join("checkpoint");
        copy_folder(&whole, &copy);
        damage.apply(&copy.join(&name));
        let place = format!("{}: {damage:?}", name.display());
        match check_checkpoint(&copy, &expected).await {
            None => intact += 1,
            Some(moved_to) => {
                set_aside += 1;
                assert!(moved_to.exists(), "{place}: nothing is at {}", moved_to.display());
            }
        }
        std::fs::remove_dir_all(&parent).unwrap();
    }
    println!("{intact} damages were without effect, {set_aside} were set aside");
    assert!(set_aside > 50, "too few damages were found");
}

#[tokio::test]
async fn damage_that_a_later_load_meets_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("checkpoint");
    let (mut store, _) = SledCheckpoints::open(&path).await.unwrap();
    // More than sled keeps in memory, so that a later load reads the file.
    let large = (0..60_u64).map(|key| (key.to_be_bytes().to_vec(), Some(vec![key as u8; 1_000_000]))).collect();
    store.save(floor(1), Entries::All(large)).await.unwrap();
    let file = path.join("store").join("db");
    let mut bytes = std::fs::read(&file).unwrap();
    for page in bytes.chunks_mut(4_096).skip(10) {
        page[7] ^= 0xff;
    }
    std::fs::write(&file, bytes).unwrap();
    assert_eq!(store.load().await.unwrap(), None);
    let set_aside = store.take_set_aside().expect("the damage was met");
    assert!(set_aside.moved_to.join("store").exists() && !set_aside.problem.is_empty(), "{set_aside:?}");
    store.save(floor(2), Entries::All(vec![(b"key".to_vec(), Some(b"value".to_vec()))])).await.unwrap();
    drop(store);
    let (mut store, set_aside) = SledCheckpoints::open(&path).await.unwrap();
    assert_eq!(set_aside, None);
    assert_eq!(store.load().await.unwrap().map(|checkpoint| checkpoint.floor), Some(floor(2)));
}

#[tokio::test]
async fn a_lost_file_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole");
    let log = SledLog::open(&whole).await.unwrap();
    log.append((0..10).map(event).collect()).await.unwrap();
    drop(log);
    for lost in ["head", "sled/db", "sled"] {
        let copy = dir.path().join("copy");
        copy_folder(&whole, &copy);
        let path = copy.join(lost);
        if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }.unwrap();
        for attempt in 1..=2 {
            let error = SledLog::open(&copy).await.expect_err("a log without all of its files opens");
            assert!(matches!(error, OpenError::Damaged { .. }), "{lost}, attempt {attempt}: {error:?}");
        }
    }
}

#[tokio::test]
async fn a_log_and_a_head_of_different_logs_do_not_open() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["one", "other"] {
        let log = SledLog::open(&dir.path().join(name)).await.unwrap();
        log.append((0..10).map(event).collect()).await.unwrap();
    }
    std::fs::copy(dir.path().join("one/head"), dir.path().join("other/head")).unwrap();
    let error = SledLog::open(&dir.path().join("other")).await.expect_err("the head is of another log");
    assert!(matches!(error, OpenError::Damaged { .. }), "{error:?}");
}

#[tokio::test]
async fn an_older_copy_of_the_records_does_not_open() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, older) = (dir.path().join("whole"), dir.path().join("older"));
    for count in 1..=2 {
        let log = SledLog::open(&whole).await.unwrap();
        log.append((0..10 * count).map(event).collect()).await.unwrap();
        drop(log);
        if count == 1 {
            copy_folder(&whole, &older);
        }
    }
    std::fs::copy(whole.join("head"), older.join("head")).unwrap();
    match SledLog::open(&older).await.expect_err("the records are missing") {
        OpenError::Damaged { sequence, .. } => assert_eq!(sequence.get(), 11),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn another_record_in_the_place_of_an_acknowledged_one_does_not_open() {
    let dir = tempfile::tempdir().unwrap();
    let (one, other) = (dir.path().join("one"), dir.path().join("other"));
    let log = SledLog::open(&one).await.unwrap();
    log.append((0..10).map(event).collect()).await.unwrap();
    drop(log);
    copy_folder(&one, &other);
    for (path, number) in [(&one, 10), (&other, 11)] {
        let log = SledLog::open(path).await.unwrap();
        log.append(vec![event(number)]).await.unwrap();
    }
    std::fs::copy(one.join("head"), other.join("head")).unwrap();
    match SledLog::open(&other).await.expect_err("another record was acknowledged") {
        OpenError::Damaged { sequence, .. } => assert_eq!(sequence.get(), 11),
        other => panic!("{other:?}"),
    }
}

/// Opens and reads a log; what it says of damage, or none if all is there.
async fn check_log(dir: &Path) -> Result<(), String> {
    let log = SledLog::open_existing(dir).await.map_err(|error| error.to_string())?;
    let read = assert_intact(&log).await.map_err(|error| error.to_string());
    let known = log.append(vec![event(3)]).await;
    if let Ok(answers) = &known {
        let sequence = Sequence::new(4).unwrap();
        assert_eq!(answers[..], [Appended::Duplicate { sequence }], "an event was stored twice");
    }
    read
}

/// Reads everything, and one release; panics if that is not what was appended.
async fn assert_intact(log: &SledLog) -> Result<(), ReadError> {
    let records = read_all(log, &Scope::All).await?;
    assert_eq!(records.len() as u64, EVENTS, "records are missing");
    for (record, number) in records.iter().zip(0..) {
        let event = event(number);
        let same =
            record.sequence.get() == number + 1 && record.subject == event.subject && record.bytes == event.bytes;
        assert!(same, "another record stands at {}", record.sequence);
    }
    let release = read_all(log, &Scope::Release(release(7))).await?;
    let expected: Vec<_> = records.iter().skip(7).step_by(RELEASES as usize).collect();
    assert!(release.iter().eq(expected), "the records of a release are other ones");
    Ok(())
}

async fn read_all(log: &SledLog, scope: &Scope) -> Result<Vec<Record<'static>>, ReadError> {
    let (mut next, mut records) = (Sequence::FIRST, Vec::new());
    loop {
        let batch = log.read(next, scope, Wait::No).await?;
        records.extend(batch.records.iter().map(Record::into_static));
        next = batch.next;
        if Some(next) > batch.tail {
            return Ok(records);
        }
    }
}

const RELEASES: u64 = 25;

fn release(number: u64) -> ReleaseKey {
    ReleaseKey::new("default", "shop", &format!("release-{}", number % RELEASES))
}

fn event(number: u64) -> NewEvent {
    let id = format!("event-{number}");
    let mut bytes = format!(r#"{{"id":"{id}"}}"#).into_bytes();
    if number % 1_999 == 5 {
        bytes.resize(20_000, b' ');
    }
    let subject = format!("decklog.release.{}.release.SyncStarted", release(number).tokens());
    NewEvent { id, subject, bytes, expected: ExpectedTail::Any }
}

/// Where the store was moved to; none if it is intact. Panics if it is neither.
async fn check_checkpoint(dir: &Path, expected: &Checkpoint) -> Option<PathBuf> {
    let (mut store, set_aside) = SledCheckpoints::open(dir).await.expect("a damaged store opens");
    let loaded = store.load().await.expect("a damaged store is loaded");
    let Some(set_aside) = set_aside else {
        assert!(loaded.as_ref() == Some(expected), "it is another checkpoint: {:?}", loaded.map(|other| other.floor));
        return None;
    };
    assert_eq!(loaded, None, "a store that was set aside is empty");
    store.save(floor(1), changes(1)).await.expect("the new store takes a checkpoint");
    Some(set_aside.moved_to)
}

fn floor(number: u64) -> Floor {
    let log = LogId { name: "embedded".to_owned(), incarnation: "of a test".to_owned() };
    Floor { log, sequence: Sequence::new(number).unwrap(), hash: [number as u8; 32], projection: 1 }
}

/// Changes of which no two saves leave the same entries.
fn changes(number: u64) -> Entries {
    let put = |key: u64| (key.to_be_bytes().to_vec(), Some(vec![number as u8; (key * 300 + number) as usize]));
    if number == 1 {
        return Entries::All((0..40).map(put).collect());
    }
    let mut changes: Vec<_> = (0..40).filter(|key| (key + number).is_multiple_of(4)).map(put).collect();
    changes.push(((number % 40).to_be_bytes().to_vec(), None));
    Entries::Changed(changes)
}

// === damage ===

#[derive(Clone, Copy, Debug)]
enum Damage {
    /// One bit of this byte is another one.
    Flip { byte: u64, bit: u8 },
    /// The file ends here.
    Cut { length: u64 },
}

/// The damages of each file below a folder that has anything in it.
fn damages(folder: &Path) -> Vec<(PathBuf, Damage)> {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let mut damages = Vec::new();
    for file in files(folder) {
        let size = file.metadata().unwrap().len();
        let name = file.strip_prefix(folder).unwrap().to_owned();
        for _ in 0..if size == 0 { 0 } else { PLACES } {
            let flip = Damage::Flip { byte: numbers.below(size), bit: numbers.below(8) as u8 };
            damages.push((name.clone(), flip));
            damages.push((name.clone(), Damage::Cut { length: numbers.below(size) }));
        }
    }
    damages
}

impl Damage {
    fn apply(self, file: &Path) {
        let mut bytes = std::fs::read(file).unwrap();
        match self {
            Self::Flip { byte, bit } => bytes[byte as usize] ^= 1 << bit,
            Self::Cut { length } => bytes.truncate(length as usize),
        }
        std::fs::write(file, bytes).unwrap();
    }
}

/// Numbers that are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

fn copy_folder(from: &Path, to: &Path) {
    if to.exists() {
        std::fs::remove_dir_all(to).unwrap();
    }
    for file in files(from) {
        let copy = to.join(file.strip_prefix(from).unwrap());
        std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
        std::fs::copy(&file, copy).unwrap();
    }
}
