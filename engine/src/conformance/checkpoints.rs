//! Rules 1 to 4 of the checkpoint store.

use std::collections::BTreeMap;
use std::time::Duration;

use decklog_schemas::Sequence;
use tokio::time::timeout;

use super::CheckpointFixture;
use crate::checkpoint::{Change, Checkpoint, CheckpointStore, Entries, Floor};
use crate::log::LogId;

pub(super) async fn rule_1_a_checkpoint_is_of_one_save(mut fixture: impl CheckpointFixture) {
    for number in 1..=12_u64 {
        // Each save rewrites every entry with its own number, and opening again finds one number only.
        let changes: Vec<_> = (0..200_u64).map(|key| put(key, number.to_be_bytes().repeat(40))).collect();
        let entries = if number % 3 == 0 { Entries::All(changes) } else { Entries::Changed(changes) };
        save(fixture.open().await, number, entries).await;
        let checkpoint = load(fixture.open().await).await.expect("there is a checkpoint");
        assert_eq!(checkpoint.floor, floor(number));
        assert_eq!(checkpoint.entries.len(), 200);
        let own = |(_, value): &(Vec<u8>, Vec<u8>)| *value == number.to_be_bytes().repeat(40);
        assert!(checkpoint.entries.iter().all(own), "an entry is not of save {number}");
    }
}

pub(super) async fn rule_2_changes_leave_the_rest_as_it_is(mut fixture: impl CheckpointFixture) {
    let store = fixture.open().await;
    save(store, 1, Entries::All(vec![put(1, "one"), put(2, "two"), put(3, "three")])).await;
    save(store, 2, Entries::Changed(vec![put(2, "zwei"), remove(3), put(4, "vier"), remove(9)])).await;
    let expected = checkpoint(2, &[(1, "one"), (2, "zwei"), (4, "vier")]);
    assert_eq!(load(store).await, Some(expected.clone()));
    assert_eq!(load(fixture.open().await).await, Some(expected));
    // No change is a change of the floor.
    save(fixture.open().await, 3, Entries::Changed(Vec::new())).await;
    assert_eq!(load(fixture.open().await).await, Some(checkpoint(3, &[(1, "one"), (2, "zwei"), (4, "vier")])));
}

pub(super) async fn rule_2_all_leaves_nothing_else(mut fixture: impl CheckpointFixture) {
    let store = fixture.open().await;
    save(store, 1, Entries::Changed(vec![put(1, "one"), put(2, "two")])).await;
    save(store, 2, Entries::All(vec![put(2, "zwei"), put(5, "five"), remove(1), remove(7)])).await;
    assert_eq!(load(store).await, Some(checkpoint(2, &[(2, "zwei"), (5, "five")])));
    save(store, 3, Entries::All(Vec::new())).await;
    assert_eq!(load(store).await, Some(checkpoint(3, &[])));
    assert_eq!(load(fixture.open().await).await, Some(checkpoint(3, &[])));
}

pub(super) async fn rule_2_the_last_change_of_a_key_counts(mut fixture: impl CheckpointFixture) {
    let store = fixture.open().await;
    let changes = || vec![put(1, "a"), put(2, "b"), put(1, "c"), remove(2), remove(3), put(3, "d")];
    save(store, 1, Entries::Changed(changes())).await;
    assert_eq!(load(store).await, Some(checkpoint(1, &[(1, "c"), (3, "d")])));
    save(store, 2, Entries::All(changes())).await;
    assert_eq!(load(store).await, Some(checkpoint(2, &[(1, "c"), (3, "d")])));
}

pub(super) async fn rule_3_a_new_store_is_empty(mut fixture: impl CheckpointFixture) {
    assert_eq!(load(fixture.open().await).await, None);
    assert_eq!(load(fixture.open().await).await, None);
}

pub(super) async fn rule_3_what_was_saved_is_loaded(mut fixture: impl CheckpointFixture) {
    let store = fixture.open().await;
    save(store, 7, Entries::All(vec![put(1, "one")])).await;
    let expected = checkpoint(7, &[(1, "one")]);
    for _ in 0..2 {
        assert_eq!(load(store).await.as_ref(), Some(&expected), "loading takes nothing away");
    }
    assert_eq!(load(fixture.open().await).await, Some(expected));
}

pub(super) async fn rule_3_entries_are_of_any_size(mut fixture: impl CheckpointFixture) {
    let sizes = [0, 1, 5_000, 6_144, 6_145, 65_535, 65_536, 65_537, 1_000_000, 3];
    // The sizes wander over the keys, so that each value is at some time larger and smaller than the one before.
    for round in 0..sizes.len() {
        let wandered = sizes.iter().cycle().skip(round * 3).take(sizes.len()).zip(0_u64..);
        let values: Vec<_> = wandered.map(|(size, key)| (key, noise(*size, key))).collect();
        let changes = values.iter().map(|(key, value)| put(*key, value.clone())).collect();
        save(fixture.open().await, 1 + round as u64, Entries::Changed(changes)).await;
        let store = if round % 2 == 0 { fixture.open().await } else { continue };
        let loaded = load(store).await.expect("there is a checkpoint").entries;
        let expected: Vec<_> = values.into_iter().map(|(key, value)| (key.to_be_bytes().to_vec(), value)).collect();
        assert!(loaded == expected, "round {round}: other entries came back");
    }
}

pub(super) async fn rule_3_keys_are_any_bytes_and_come_in_order(mut fixture: impl CheckpointFixture) {
    let keys: [&[u8]; 12] =
        [b"", b"\0", b"\0\0", b"\0\x01", b"a", b"a\0", b"a\0b", b"ab", b"b", b"\xfe", b"\xff", b"\xff\xff\xff"];
    let value = |key: &[u8]| [b"value of ", key].concat();
    let changes = keys.iter().rev().map(|key| (key.to_vec(), Some(value(key)))).collect();
    let store = fixture.open().await;
    save(store, 1, Entries::All(changes)).await;
    let expected: Vec<_> = keys.iter().map(|key| (key.to_vec(), value(key))).collect();
    assert_eq!(load(store).await.map(|checkpoint| checkpoint.entries), Some(expected));
    let removed = keys.iter().step_by(2).map(|key| (key.to_vec(), None)).collect();
    save(store, 2, Entries::Changed(removed)).await;
    let expected: Vec<_> = keys.iter().skip(1).step_by(2).map(|key| (key.to_vec(), value(key))).collect();
    assert_eq!(load(fixture.open().await).await.map(|checkpoint| checkpoint.entries), Some(expected));
}

pub(super) async fn rule_3_many_saves_leave_the_last(mut fixture: impl CheckpointFixture) {
    let mut expected = BTreeMap::new();
    for number in 1..=200_u64 {
        let key = (number * 7_919) % 50;
        let change = if number % 5 == 0 { remove(key) } else { put(key, noise(300, number)) };
        match &change {
            (key, Some(value)) => drop(expected.insert(key.clone(), value.clone())),
            (key, None) => drop(expected.remove(key)),
        }
        save(fixture.open().await, number, Entries::Changed(vec![change])).await;
    }
    let entries = expected.into_iter().collect();
    assert_eq!(load(fixture.open().await).await, Some(Checkpoint { floor: floor(200), entries }));
}

pub(super) async fn rule_4_a_save_that_was_given_up_leaves_a_whole_checkpoint(mut fixture: impl CheckpointFixture) {
    let entries = |number: u64| (0..300).map(move |key| put(key, number.to_be_bytes().repeat(100)));
    save(fixture.open().await, 1, Entries::All(entries(1).collect())).await;
    for number in 2..=20 {
        let store = fixture.open().await;
        let given_up = store.save(floor(number), Entries::Changed(entries(number).collect()));
        let _outcome_is_unknown = timeout(Duration::from_micros(200 * number), given_up).await;
        let store = if number % 2 == 0 { fixture.open().await } else { store };
        let checkpoint = load(store).await.expect("there is a checkpoint");
        let reached = checkpoint.floor.sequence.get();
        assert!(reached <= number, "the floor {reached} was never saved");
        let own = |(_, value): &(Vec<u8>, Vec<u8>)| *value == reached.to_be_bytes().repeat(100);
        assert!(checkpoint.entries.iter().all(own), "an entry is not of the save at {reached}");
        assert_eq!(checkpoint.entries.len(), 300);
    }
}

async fn save(store: &mut impl CheckpointStore, number: u64, entries: Entries) {
    store.save(floor(number), entries).await.expect("the store takes the checkpoint");
}

async fn load(store: &mut impl CheckpointStore) -> Option<Checkpoint> {
    store.load().await.expect("the store can be read")
}

/// The floor of a save; every part of it differs from save to save.
fn floor(number: u64) -> Floor {
    Floor {
        log: LogId { name: "conformance".to_owned(), incarnation: format!("of save {number}") },
        sequence: Sequence::new(number).expect("saves count from 1"),
        hash: std::array::from_fn(|at| number.to_be_bytes()[at % 8]),
        projection: u32::try_from(number).expect("there are few saves"),
    }
}

fn checkpoint(number: u64, entries: &[(u64, &str)]) -> Checkpoint {
    let entry = |(key, value): &(u64, &str)| (key.to_be_bytes().to_vec(), value.as_bytes().to_vec());
    Checkpoint { floor: floor(number), entries: entries.iter().map(entry).collect() }
}

fn put(key: u64, value: impl Into<Vec<u8>>) -> Change {
    (key.to_be_bytes().to_vec(), Some(value.into()))
}

fn remove(key: u64) -> Change {
    (key.to_be_bytes().to_vec(), None)
}

/// Bytes that no two seeds share.
fn noise(size: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..size).map(|_| next()).collect()
}
