//! Stores in which something else than decklog has changed a value, so that sled itself has nothing to say against it.

#![expect(clippy::unwrap_used, reason = "all of this file is a test")]

use std::path::Path;

use decklog_engine::checkpoint::{CheckpointStore, Entries, Floor};
use decklog_engine::log::{ExpectedTail, Log, LogId, NewEvent, ReadError, Scope, Wait};
use decklog_schemas::{ReleaseKey, Sequence};
use decklog_sled::{OpenError, SledCheckpoints, SledLog};
use sled::{Db, Tree};

// === the log ===

/// More than has its ids in memory, so that opening does not read the first 4,464.
const EVENTS: u64 = 70_000;

/// An event of several pieces.
const LARGE: u64 = 100;

#[tokio::test]
async fn what_is_wrong_with_a_record_is_told_where_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    write_log(dir.path()).await;
    let blocks = keys(dir.path(), "events");
    let block = |number: u64| blocks.iter().rfind(|key| key.len() == 8 && sequence_of(key) <= number).unwrap().clone();

    let changed = block(50);
    let original = edit(dir.path(), "events", |tree| tree.get(&changed).unwrap().unwrap());
    for byte in [0, 4, 5, 7, 30, original.len() - 1] {
        let mut other = original.to_vec();
        other[byte] ^= 1;
        edit(dir.path(), "events", |tree| tree.insert(&changed, other).unwrap());
        assert_damaged(dir.path(), sequence_of(&changed)).await;
    }
    edit(dir.path(), "events", |tree| tree.insert(&changed, original).unwrap());

    let lost = block(4_000);
    let value = edit(dir.path(), "events", |tree| tree.remove(&lost).unwrap().unwrap());
    assert_damaged(dir.path(), sequence_of(&lost)).await;
    edit(dir.path(), "events", |tree| tree.insert(&lost, value).unwrap());

    let piece = blocks.iter().find(|key| key.len() > 8).unwrap().clone();
    assert_eq!(sequence_of(&piece), LARGE + 1);
    edit(dir.path(), "events", |tree| tree.remove(&piece).unwrap());
    assert_damaged(dir.path(), LARGE + 1).await;
}

#[tokio::test]
async fn a_first_record_that_is_lost_is_told() {
    let dir = tempfile::tempdir().unwrap();
    write_log(dir.path()).await;
    let first = keys(dir.path(), "events").remove(0);
    edit(dir.path(), "events", |tree| tree.remove(&first).unwrap());
    assert_damaged(dir.path(), 1).await;
}

#[tokio::test]
async fn a_last_record_that_is_lost_is_told() {
    let dir = tempfile::tempdir().unwrap();
    write_log(dir.path()).await;
    let last = keys(dir.path(), "events").pop().unwrap();
    edit(dir.path(), "events", |tree| tree.remove(&last).unwrap());
    match SledLog::open(dir.path()).await {
        Err(OpenError::Damaged { sequence, .. }) => assert_eq!(sequence.get(), sequence_of(&last)),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_index_that_is_wrong_or_lost_is_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    write_log(dir.path()).await;
    let index = keys(dir.path(), "index");
    assert_eq!(EVENTS / 16_384, 4);
    let segments = index.iter().map(|key| sequence_of(key)).collect::<std::collections::BTreeSet<_>>();
    assert_eq!(segments.len(), 4, "each complete segment has an index");
    for (number, key) in index.iter().enumerate().step_by(3) {
        edit(dir.path(), "index", |tree| match number % 2 {
            0 => drop(tree.remove(key).unwrap()),
            _ => {
                let mut value = tree.get(key).unwrap().unwrap().to_vec();
                let last = value.len() - 1;
                value[last] ^= 1;
                tree.insert(key, value).unwrap();
            }
        });
    }
    assert_releases_are_whole(dir.path()).await;
    // All of it: it is made anew when the log is opened.
    edit(dir.path(), "index", |tree| tree.clear().unwrap());
    assert_releases_are_whole(dir.path()).await;
    assert_eq!(keys(dir.path(), "index"), index);
}

#[tokio::test]
async fn a_record_that_the_index_names_and_that_is_lost_is_told() {
    let dir = tempfile::tempdir().unwrap();
    write_log(dir.path()).await;
    let lost = keys(dir.path(), "events").into_iter().find(|key| sequence_of(key) > 3_000).unwrap();
    edit(dir.path(), "events", |tree| tree.remove(&lost).unwrap());
    let log = SledLog::open(dir.path()).await.unwrap();
    let own = (sequence_of(&lost) - 1..).find(|number| number % RELEASES == 3).unwrap() + 1;
    match read_all(&log, &Scope::Release(release(3))).await {
        Err(ReadError::Damaged { sequence, .. }) => assert_eq!(sequence.get(), own),
        other => panic!("{:?}", other.map(|records| records.len())),
    }
}

async fn write_log(dir: &Path) {
    let log = SledLog::open(dir).await.unwrap();
    for start in (0..EVENTS).step_by(1_000) {
        log.append((start..start + 1_000).map(event).collect()).await.unwrap();
    }
}

/// The log opens, and reading it from its start ends at this place.
async fn assert_damaged(dir: &Path, place: u64) {
    let log = SledLog::open(dir).await.unwrap();
    match read_all(&log, &Scope::All).await {
        Err(ReadError::Damaged { sequence, .. }) => assert_eq!(sequence.get(), place),
        other => panic!("{:?}", other.map(|records| records.len())),
    }
    // What is before it can be read, up to the very last one.
    let before = log.read(Sequence::FIRST, &Scope::All, Wait::No).await;
    assert_eq!(before.map_or(0, |batch| batch.records.len() as u64), (place - 1).min(8_192));
}

async fn assert_releases_are_whole(dir: &Path) {
    let log = SledLog::open(dir).await.unwrap();
    for number in 0..RELEASES {
        let expected: Vec<_> = (0..EVENTS).filter(|event| event % RELEASES == number).map(|event| event + 1).collect();
        assert!(read_all(&log, &Scope::Release(release(number))).await.unwrap() == expected, "release {number}");
    }
}

async fn read_all(log: &SledLog, scope: &Scope) -> Result<Vec<u64>, ReadError> {
    let (mut next, mut sequences) = (Sequence::FIRST, Vec::new());
    loop {
        let batch = log.read(next, scope, Wait::No).await?;
        sequences.extend(batch.records.iter().map(|record| record.sequence.get()));
        next = batch.next;
        if Some(next) > batch.tail {
            return Ok(sequences);
        }
    }
}

const RELEASES: u64 = 60;

/// Long names, so that a segment's index has some blocks.
fn release(number: u64) -> ReleaseKey {
    ReleaseKey::new("default", "shop", &format!("{:0>40}", number % RELEASES))
}

fn event(number: u64) -> NewEvent {
    let id = format!("event-{number}");
    let mut bytes = format!(r#"{{"id":"{id}"}}"#).into_bytes();
    if number == LARGE {
        bytes.resize(10_000, b' ');
    }
    let subject = format!("decklog.release.{}.release.SyncStarted", release(number).tokens());
    NewEvent { id, subject, bytes, expected: ExpectedTail::Any }
}

// === the checkpoint store ===

#[tokio::test]
async fn a_checkpoint_with_one_other_value_is_set_aside() {
    type Tampering = fn(&Tree, &[Vec<u8>], &[sled::IVec]);
    let tamperings: [(&str, Tampering); 7] = [
        ("an entry is lost", |tree, keys, _| drop(tree.remove(&keys[3]).unwrap())),
        ("a piece is lost", |tree, keys, _| drop(tree.remove(keys.last().unwrap()).unwrap())),
        ("an entry is of an earlier save", |tree, keys, older| drop(tree.insert(&keys[2], &older[2]).unwrap())),
        ("an entry is another one's", |tree, keys, older| drop(tree.insert(&keys[1], &older[2]).unwrap())),
        ("a bit of an entry is flipped", |tree, keys, _| flip(tree, &keys[1])),
        ("the floor is of an earlier save", |tree, keys, older| drop(tree.insert(&keys[0], &older[0]).unwrap())),
        ("the floor is lost", |tree, keys, _| drop(tree.remove(&keys[0]).unwrap())),
    ];
    for (what, tamper) in tamperings {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("checkpoint");
        save(&path, 1).await;
        let older = with_sled(&path.join("store"), |db| db.iter().values().collect::<Result<Vec<_>, _>>().unwrap());
        save(&path, 2).await;
        with_sled(&path.join("store"), |db| {
            let keys: Vec<_> = db.iter().keys().map(|key| key.unwrap().to_vec()).collect();
            tamper(db, &keys, &older);
        });
        let (mut store, set_aside) = SledCheckpoints::open(&path).await.unwrap();
        assert!(set_aside.is_some(), "{what}, and nobody has seen it");
        assert_eq!(store.load().await.unwrap(), None, "{what}");
    }
}

#[tokio::test]
async fn an_older_copy_of_a_checkpoint_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("checkpoint");
    save(&path, 1).await;
    let older = std::fs::read(path.join("head")).unwrap();
    save(&path, 2).await;
    let newer = std::fs::read(path.join("head")).unwrap();
    // Written and not noted in the head yet, as when the process is killed in between.
    std::fs::write(path.join("head"), older).unwrap();
    assert_eq!(SledCheckpoints::open(&path).await.unwrap().1, None);

    let other = dir.path().join("other");
    save(&other, 1).await;
    std::fs::write(other.join("head"), newer).unwrap();
    let (_, set_aside) = SledCheckpoints::open(&other).await.unwrap();
    assert!(set_aside.is_some(), "a save is missing, and nobody has seen it");
}

#[tokio::test]
async fn what_is_not_in_use_any_more_is_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) =
        SledCheckpoints::open_with(dir.path(), decklog_sled::Faults::none(), 4 * 1024 * 1024).await.unwrap();
    let large = (0..200_u64).map(|key| (key.to_be_bytes().to_vec(), Some(vec![key as u8; 100_000]))).collect();
    store.save(floor(1), Entries::All(large)).await.unwrap();
    let file = dir.path().join("store").join("db");
    let before = file.metadata().unwrap().len();
    let small = vec![(b"key".to_vec(), Some(b"value".to_vec()))];
    store.save(floor(2), Entries::All(small.clone())).await.unwrap();
    let after = file.metadata().unwrap().len();
    assert!(before > 20_000_000 && after < 4_000_000, "it had {before} bytes and has {after}");
    let expected: Vec<_> = small.into_iter().map(|(key, value)| (key, value.unwrap())).collect();
    assert_eq!(store.load().await.unwrap().map(|checkpoint| checkpoint.entries), Some(expected));
}

/// Saves entries of which each is another one than at the save before, and the last has pieces.
async fn save(path: &Path, number: u64) {
    let (mut store, _) = SledCheckpoints::open(path).await.unwrap();
    let size = |key: u64| if key == 5 { 10_000 } else { 100 };
    let put = |key: u64| (key.to_be_bytes().to_vec(), Some(vec![(key + number) as u8; size(key)]));
    store.save(floor(number), Entries::Changed((0..6).map(put).collect())).await.unwrap();
}

fn floor(number: u64) -> Floor {
    let log = LogId { name: "embedded".to_owned(), incarnation: "of a test".to_owned() };
    Floor { log, sequence: Sequence::new(number).unwrap(), hash: [number as u8; 32], projection: 1 }
}

fn flip(tree: &Tree, key: &[u8]) {
    let mut value = tree.get(key).unwrap().unwrap().to_vec();
    let last = value.len() - 1;
    value[last] ^= 1;
    tree.insert(key, value).unwrap();
}

// === sled ===

fn keys(dir: &Path, tree: &str) -> Vec<Vec<u8>> {
    edit(dir, tree, |tree| tree.iter().keys().map(|key| key.unwrap().to_vec()).collect())
}

fn edit<R>(dir: &Path, tree: &str, work: impl FnOnce(&Tree) -> R) -> R {
    with_sled(&dir.join("sled"), |db| work(&db.open_tree(tree).unwrap()))
}

fn with_sled<R>(path: &Path, work: impl FnOnce(&Db) -> R) -> R {
    // Its threads may hold the file for a moment after it was dropped.
    let db = (0..1_000).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(2));
        sled::open(path).ok()
    });
    let db = db.unwrap();
    let result = work(&db);
    db.flush().unwrap();
    result
}

/// The number that a key begins with.
fn sequence_of(key: &[u8]) -> u64 {
    u64::from_be_bytes(*key.first_chunk().unwrap())
}
