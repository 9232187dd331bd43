//! Restarts: a fold that goes on from a checkpoint, after any record, is the fold that never stopped.

use decklog_engine::Projection as _;
use decklog_engine::checkpoint::{CheckpointStore as _, Entries, Floor, MemoryCheckpoints};
use decklog_engine::log::LogId;
use decklog_projections::inventory::{Inventories, Selection};
use decklog_schemas::{Record, ReleaseKey, Sequence};
use decklog_tests::binary::root;
use decklog_tests::history::histories;
use decklog_tests::scenario::Scenario;
use proptest::prelude::*;
use sha2::{Digest as _, Sha256};

const ALL: Selection = Selection::All { cluster: None };

fn records(history: &[String]) -> impl Iterator<Item = Record<'_>> {
    let record = |(line, number): (&String, u64)| {
        Record::of_event(Sequence::new(number)?, line.as_bytes()).ok().map(Record::into_static)
    };
    history.iter().zip(1..).filter_map(record)
}

/// Folds a history, with a restart after each record that `restarts` says; the words for what became of each record.
fn fold(history: &[String], restarts: impl Fn(usize) -> bool) -> (Inventories, Vec<String>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime can be made");
    let (mut inventories, mut store, mut outcomes) = (Inventories::default(), MemoryCheckpoints::default(), Vec::new());
    for (at, record) in records(history).enumerate() {
        outcomes.push(format!("{:?}", inventories.fold(&record)));
        if restarts(at) {
            inventories = runtime.block_on(restart(inventories, &mut store, record.sequence));
        }
    }
    (inventories, outcomes)
}

/// What a process that ends hands on to the next one.
async fn restart(mut old: Inventories, store: &mut MemoryCheckpoints, sequence: Sequence) -> Inventories {
    let log = LogId { name: "test".to_owned(), incarnation: "1".to_owned() };
    let floor = Floor { log, sequence, hash: [0; 32], projection: Inventories::VERSION };
    store.save(floor, Entries::Changed(old.changes())).await.expect("memory takes it");
    let checkpoint = store.load().await.expect("memory gives it").expect("it was saved");
    let mut new = Inventories::default();
    new.restore(checkpoint.floor.sequence, checkpoint.entries).expect("what was saved can be read");
    new
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_restart_changes_nothing(history in histories(), seed in any::<u64>()) {
        let (straight, expected) = fold(&history, |_| false);
        let (restarted, outcomes) = fold(&history, |at| seed >> (at % 64) & 1 == 1);
        prop_assert_eq!(outcomes, expected);
        prop_assert_eq!(restarted.view(&ALL), straight.view(&ALL));
    }
}

#[test]
fn scenarios_may_restart_after_every_record() {
    for scenario in Scenario::all(&root().join("tests/scenarios")) {
        let text = std::fs::read_to_string(&scenario.events).expect("the events can be read");
        let history: Vec<_> = text.lines().map(str::to_owned).collect();
        // A restart after each of a thousand records is a test of patience.
        let step = 1 + history.len() / 100;
        let (straight, expected) = fold(&history, |_| false);
        let (restarted, outcomes) = fold(&history, |at| at % step == 0);
        assert_eq!(outcomes, expected, "{}", scenario.name);
        assert_eq!(restarted.view(&ALL), straight.view(&ALL), "{}", scenario.name);
    }
}

/// The bytes of a checkpoint are read by the next process: if they change, so must the version.
#[test]
fn the_bytes_of_a_checkpoint_belong_to_their_version() {
    let demo =
        std::fs::read_to_string(root().join("adapters/cli/demo/incident.jsonl")).expect("the demo has its events");
    let history: Vec<_> = demo.lines().map(str::to_owned).collect();
    let (mut inventories, _) = fold(&history, |_| false);
    let mut hasher = Sha256::new();
    for (key, value) in inventories.changes() {
        hasher.update(key);
        hasher.update(value.unwrap_or_default());
    }
    let digest: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        (Inventories::VERSION, digest.as_str()),
        (5, "248e25f3e0b26292797c517c10d64f32e155ea5913621afaf348610f60651189"),
        "checkpoints read differently now: raise the VERSION of Inventories, and put the new pair here"
    );
}

/// Every field of every object but the keys of its rows was set by an event, and each pointer leads to a field.
#[test]
fn every_field_has_the_event_that_set_it() {
    let key = ReleaseKey::new("default", "shop", "checkout");
    for scenario in Scenario::all(&root().join("tests/scenarios")) {
        let text = std::fs::read_to_string(&scenario.events).expect("the events can be read");
        let history: Vec<_> = text.lines().map(str::to_owned).collect();
        let (inventories, outcomes) = fold(&history, |_| false);
        let Some(provenance) = inventories.provenance(&key) else { continue };
        let object = serde_json::to_value(inventories.object(&key)).expect("objects are JSON");
        for (pointer, sequence) in &provenance {
            assert!(object.pointer(pointer).is_some(), "{}: {pointer} leads nowhere", scenario.name);
            let line = &history[sequence.get() as usize - 1];
            assert!(line.contains("shop/checkout"), "{}: {pointer} was set by another release's event", scenario.name);
        }
        assert_eq!(provenance.len(), fields_without_keys(&object), "{}: {object:#} {provenance:#?}", scenario.name);
        assert_eq!(outcomes.len(), records(&history).count());
    }
}

fn fields_without_keys(object: &serde_json::Value) -> usize {
    let rows = |name: &str, keys: usize| -> usize {
        let rows = object[name].as_array().map(Vec::as_slice).unwrap_or_default();
        rows.iter().map(|row| row.as_object().map_or(0, |row| row.len() - keys)).sum()
    };
    let labels = object["metadata"]["labels"].as_object().map_or(0, serde_json::Map::len);
    labels + rows("inventory", 4) + rows("hooks", 2)
}
