//! The folders on the disk: who holds them, what is created in them, and how large they become.

#![expect(clippy::unwrap_used, reason = "all of this file is a test")]

use std::path::Path;

use decklog_engine::checkpoint::{CheckpointStore, Entries, Floor};
use decklog_engine::log::{ExpectedTail, Log, LogId, NewEvent, Scope, Wait};
use decklog_schemas::Sequence;
use decklog_sled::{OpenCheckpointsError, OpenError, SledCheckpoints, SledLog};

#[tokio::test]
async fn a_log_is_held_by_one() {
    let dir = tempfile::tempdir().unwrap();
    let log = SledLog::open(dir.path()).await.unwrap();
    let id = log.id().clone();
    for error in [SledLog::open(dir.path()).await, SledLog::open_existing(dir.path()).await] {
        assert!(matches!(error, Err(OpenError::Held { .. })), "{error:?}");
    }
    drop(log);
    assert_eq!(*SledLog::open_existing(dir.path()).await.unwrap().id(), id);
}

#[tokio::test]
async fn sled_alone_in_the_folder_holds_it_too() {
    let dir = tempfile::tempdir().unwrap();
    drop(SledLog::open(dir.path()).await.unwrap());
    // Its threads may hold the file for a moment after it was dropped.
    let held = (0..1_000).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(2));
        sled::open(dir.path().join("sled")).ok()
    });
    assert!(held.is_some());
    let error = SledLog::open(dir.path()).await;
    assert!(matches!(error, Err(OpenError::Held { .. })), "{error:?}");
    drop(held);
    SledLog::open(dir.path()).await.unwrap();
}

#[tokio::test]
async fn a_checkpoint_is_held_by_one_and_never_set_aside_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("checkpoint");
    let (store, _) = SledCheckpoints::open(&path).await.unwrap();
    let error = SledCheckpoints::open(&path).await;
    assert!(matches!(error, Err(OpenCheckpointsError::Held { .. })), "{error:?}");
    let said = error.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(said.contains(&path.display().to_string()) && said.contains("stop that one"), "{said}");
    drop(store);
    assert_eq!(SledCheckpoints::open(&path).await.unwrap().1, None);
}

#[tokio::test]
async fn nothing_is_created_where_there_is_no_log() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    for path in [dir.path().join("nothing"), empty.clone()] {
        let error = SledLog::open_existing(&path).await;
        assert!(matches!(&error, Err(OpenError::NotALog { dir }) if *dir == path), "{error:?}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    assert_eq!(std::fs::read_dir(empty).unwrap().count(), 0);
}

#[tokio::test]
async fn an_empty_log_stays_the_same_log() {
    let dir = tempfile::tempdir().unwrap();
    let id = SledLog::open(dir.path()).await.unwrap().id().clone();
    // Its creation was cut short before the head was written.
    std::fs::write(dir.path().join("head"), b"").unwrap();
    assert_eq!(*SledLog::open(dir.path()).await.unwrap().id(), id);
}

#[tokio::test]
async fn a_read_that_was_given_up_does_not_hold_the_folder() {
    let dir = tempfile::tempdir().unwrap();
    let log = SledLog::open(dir.path()).await.unwrap();
    log.append((0..8_000).map(|number| event(number, 400)).collect()).await.unwrap();
    drop(log);
    for _ in 0..10 {
        let log = SledLog::open(dir.path()).await.unwrap();
        for _ in 0..20 {
            // What it had begun on another thread goes on.
            let read = log.read(Sequence::FIRST, &Scope::All, Wait::ForMore);
            let _ = tokio::time::timeout(std::time::Duration::ZERO, read).await;
        }
        drop(log);
    }
    SledLog::open(dir.path()).await.unwrap();
}

#[tokio::test]
async fn a_log_writes_no_files_for_single_values() {
    let dir = tempfile::tempdir().unwrap();
    let log = SledLog::open(dir.path()).await.unwrap();
    for call in 0..40_u64 {
        let sizes = [100, 6_000, 7_000, 130_000, 900_000];
        let events = sizes.iter().zip(0..).map(|(size, number)| event(call * 10 + number, *size));
        log.append(events.collect()).await.unwrap();
    }
    let written: u64 = 40 * (100 + 6_000 + 7_000 + 130_000 + 900_000);
    let on_disk = size(dir.path());
    println!("{on_disk} bytes on the disk for {written} bytes of events");
    assert!(on_disk < 4 * written);
    assert_eq!(std::fs::read_dir(dir.path().join("sled/blobs")).unwrap().count(), 0);
}

#[tokio::test]
async fn saving_the_same_again_and_again_needs_no_more_disk() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("checkpoint");
    let (mut store, _) = SledCheckpoints::open(&path).await.unwrap();
    let value = |key: u64, number: u64| vec![(key ^ number) as u8; 10_000];
    let mut largest = 0;
    for number in 1..=300 {
        let put = (0..100_u64).map(|key| (key.to_be_bytes().to_vec(), Some(value(key, number)))).collect();
        let log = LogId { name: "embedded".to_owned(), incarnation: "of a test".to_owned() };
        let floor = Floor { log, sequence: Sequence::new(number).unwrap(), hash: [7; 32], projection: 1 };
        let entries = if number % 7 == 1 { Entries::All(put) } else { Entries::Changed(put) };
        store.save(floor, entries).await.unwrap();
        largest = largest.max(size(&path));
    }
    println!("{largest} bytes on the disk at the most, for 1 MB of entries");
    // The bound of the store, and what one save adds before it is looked at.
    assert!(largest < 72 * 1024 * 1024, "it has {largest} bytes");
    assert_eq!(std::fs::read_dir(path.join("store/blobs")).unwrap().count(), 0);
    drop(store);
    let (mut store, _) = SledCheckpoints::open(&path).await.unwrap();
    let entries = store.load().await.unwrap().unwrap().entries;
    assert!(entries.iter().zip(0..).all(|((_, found), key)| *found == value(key, 300)), "other entries came back");
}

fn event(number: u64, size: usize) -> NewEvent {
    let id = format!("event-{number}");
    let mut bytes = format!(r#"{{"id":"{id}"}}"#).into_bytes();
    bytes.resize(size, b' ');
    let subject = "decklog.release.default.shop.checkout.release.SyncStarted".to_owned();
    NewEvent { id, subject, bytes, expected: ExpectedTail::Any }
}

fn size(path: &Path) -> u64 {
    let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    // A file may be removed while this looks: sled does that by itself.
    let size_of = |path: &Path| path.metadata().map_or(0, |metadata| metadata.len());
    entries.map(|path| if path.is_dir() { size(&path) } else { size_of(&path) }).sum()
}
