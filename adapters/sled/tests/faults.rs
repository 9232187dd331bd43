//! Every call to sled and to a file fails once, before its effect and after it: what was acknowledged is there.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "all of this file is a test, and says how much it tried")]

use std::collections::BTreeMap;
use std::path::Path;

use decklog_engine::checkpoint::{Change, Checkpoint, CheckpointStore, Entries, Floor};
use decklog_engine::log::{AppendError, Appended, ExpectedTail, Log, LogId, NewEvent, Scope, Wait};
use decklog_schemas::{Record, ReleaseKey, Sequence};
use decklog_sled::{Faults, Moment, OpenCheckpointsError, OpenError, SledCheckpoints, SledLog};

/// Runs a scenario with every call failing in turn, until none is left to fail.
async fn each_call_fails(moment: Moment, mut run: impl AsyncFnMut(u64) -> bool) {
    for call in 1.. {
        if !run(call).await {
            println!("{} calls failed {moment:?} their effect", call - 1);
            assert!(call > 5, "the scenario makes calls");
            return;
        }
    }
}

const MOMENTS: [Moment; 2] = [Moment::Before, Moment::After];

// === the log ===

#[tokio::test]
async fn a_log_keeps_what_it_acknowledged() {
    for moment in MOMENTS {
        each_call_fails(moment, async |call| {
            let dir = tempfile::tempdir().unwrap();
            let faults = Faults::at(call, moment);
            let mut ledger = Ledger::default();
            // Twice, so that opening what is there is tried as well.
            for round in 0..2 {
                match SledLog::open_with(dir.path(), faults.clone()).await {
                    Ok(log) => use_log(&log, round, &mut ledger).await,
                    Err(OpenError::Io { .. }) => assert!(faults.struck(), "it does not open by itself"),
                    Err(other) => panic!("call {call} {moment:?}: {other:?}"),
                }
            }
            ledger.check(dir.path(), Sequence::FIRST).await;
            faults.struck()
        })
        .await;
    }
}

#[tokio::test]
async fn a_segment_that_is_completed_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let (base, copy) = (dir.path().join("base"), dir.path().join("copy"));
    let prefix = 16_384 - 8;
    let log = SledLog::open(&base).await.unwrap();
    log.append((0..prefix).map(|number| event(1_000_000 + number)).collect()).await.unwrap();
    drop(log);
    for moment in MOMENTS {
        each_call_fails(moment, async |call| {
            copy_folder(&base, &copy);
            let faults = Faults::idle(moment);
            let mut ledger = Ledger { before: prefix, ..Ledger::default() };
            let log = SledLog::open_with(&copy, faults.clone()).await.unwrap();
            faults.start(call);
            use_log(&log, 0, &mut ledger).await;
            drop(log);
            ledger.check(&copy, Sequence::new(prefix + 1).unwrap()).await;
            faults.struck()
        })
        .await;
    }
}

#[tokio::test]
async fn a_failed_log_takes_nothing_and_reads_on() {
    let dir = tempfile::tempdir().unwrap();
    let faults = Faults::idle(Moment::Before);
    let log = SledLog::open_with(dir.path(), faults.clone()).await.unwrap();
    log.append(vec![event(1)]).await.unwrap();
    faults.start(1);
    for number in 2..5 {
        let error = log.append(vec![event(number)]).await.expect_err("the log has failed");
        assert!(matches!(error, AppendError::Failed(_)), "{error:?}");
    }
    let batch = log.read(Sequence::FIRST, &Scope::All, Wait::No).await.unwrap();
    assert_eq!(batch.records.len(), 1);
    drop(log);
    let log = SledLog::open(dir.path()).await.unwrap();
    assert!(matches!(log.append(vec![event(2)]).await.unwrap()[..], [Appended::Stored { .. }]));
}

/// What was attempted, and what was acknowledged.
#[derive(Default)]
struct Ledger {
    /// How many records the log had before.
    before: u64,
    attempted: BTreeMap<String, NewEvent>,
    acknowledged: BTreeMap<Sequence, String>,
}

/// Appends and reads until something fails.
async fn use_log(log: &SledLog, round: u64, ledger: &mut Ledger) {
    for call in 0..4 {
        let mut events: Vec<_> = (0..5).map(|number| event(round * 100 + call * 10 + number)).collect();
        events[3].bytes.resize(15_000, b' ');
        ledger.attempted.extend(events.iter().map(|event| (event.id.clone(), event.clone())));
        let ids: Vec<_> = events.iter().map(|event| event.id.clone()).collect();
        let Ok(answers) = log.append(events).await else { return };
        for (answer, id) in answers.into_iter().zip(ids) {
            match answer {
                Appended::Stored { sequence } | Appended::Duplicate { sequence } => {
                    ledger.acknowledged.insert(sequence, id);
                }
                other => panic!("{other:?}"),
            }
        }
        let last = ledger.acknowledged.keys().next_back().copied().unwrap();
        // One event again: its place is looked up.
        let _ = log.append(vec![ledger.attempted[&ledger.acknowledged[&last]].clone()]).await;
        for scope in [Scope::All, Scope::Release(release(1))] {
            let Ok(batch) = log.read(last, &scope, Wait::No).await else { continue };
            assert!(scope != Scope::All || batch.records.len() == 1, "an acknowledged record is not read");
        }
    }
}

impl Ledger {
    /// Opens the log anew: each acknowledged event is there once, in its place, and each attempted one at most once.
    /// When all are sent again, each is there once.
    async fn check(&self, dir: &Path, from: Sequence) {
        let log = SledLog::open(dir).await.expect("the log opens");
        let found = self.found(&log, from).await;
        for (sequence, id) in &self.acknowledged {
            assert_eq!(found.get(id), Some(sequence), "an acknowledged event is not in its place");
        }
        let again = self.attempted.values().cloned().collect();
        for answer in log.append(again).await.expect("the log takes events") {
            assert!(matches!(answer, Appended::Stored { .. } | Appended::Duplicate { .. }), "{answer:?}");
        }
        assert_eq!(self.found(&log, from).await.len(), self.attempted.len());
        let own = read_all(&log, Sequence::FIRST, &Scope::Release(release(1))).await;
        let all = read_all(&log, Sequence::FIRST, &Scope::All).await;
        let expected = all.iter().filter(|record| record.subject == subject(1));
        assert!(own.iter().eq(expected), "the records of a release are other ones");
    }

    async fn found(&self, log: &SledLog, from: Sequence) -> BTreeMap<String, Sequence> {
        let mut found = BTreeMap::new();
        for (record, place) in read_all(log, from, &Scope::All).await.iter().zip(self.before + 1..) {
            assert_eq!(record.sequence.get(), place, "there is a gap");
            let event = self.attempted.values().find(|event| record.bytes == event.bytes);
            let event = event.expect("the record was never appended");
            assert_eq!(event.subject, record.subject);
            assert_eq!(found.insert(event.id.clone(), record.sequence), None, "an event is there twice");
        }
        found
    }
}

async fn read_all(log: &SledLog, from: Sequence, scope: &Scope) -> Vec<Record<'static>> {
    let (mut next, mut records) = (from, Vec::new());
    loop {
        let batch = log.read(next, scope, Wait::No).await.expect("the log can be read");
        records.extend(batch.records.iter().map(Record::into_static));
        next = batch.next;
        if Some(next) > batch.tail {
            return records;
        }
    }
}

fn release(number: u64) -> ReleaseKey {
    ReleaseKey::new("default", "shop", &format!("release-{}", number % 3))
}

fn subject(number: u64) -> String {
    format!("decklog.release.{}.release.SyncStarted", release(number).tokens())
}

fn event(number: u64) -> NewEvent {
    let id = format!("event-{number}");
    let bytes = format!(r#"{{"id":"{id}"}}"#).into_bytes();
    NewEvent { id, subject: subject(number), bytes, expected: ExpectedTail::Any }
}

// === the checkpoint store ===

#[tokio::test]
async fn a_checkpoint_is_the_old_or_the_new_one() {
    // Above 0 bytes, every save compacts.
    for (compact_above, rounds) in [(0, 1), (u64::MAX, 2)] {
        for moment in MOMENTS {
            each_call_fails(moment, async |call| {
                let dir = tempfile::tempdir().unwrap();
                let path = dir.path().join("checkpoint");
                let faults = Faults::at(call, moment);
                let mut history = History { states: vec![None], acknowledged: 0 };
                for _ in 0..rounds {
                    match SledCheckpoints::open_with(&path, faults.clone(), compact_above).await {
                        Ok((store, set_aside)) => {
                            assert_eq!(set_aside, None, "a call that fails is no damage");
                            history.use_store(store).await;
                        }
                        Err(OpenCheckpointsError::Io { .. }) => assert!(faults.struck()),
                        Err(other) => panic!("{other:?}"),
                    }
                    history.check(&path).await;
                }
                faults.struck()
            })
            .await;
        }
    }
}

#[tokio::test]
async fn a_damaged_store_is_set_aside_once() {
    for moment in MOMENTS {
        each_call_fails(moment, async |call| {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("checkpoint");
            let (mut store, _) = SledCheckpoints::open(&path).await.unwrap();
            store.save(floor(1), Entries::All(vec![(b"key".to_vec(), Some(b"value".to_vec()))])).await.unwrap();
            drop(store);
            std::fs::write(path.join("head"), b"damaged").unwrap();
            let faults = Faults::at(call, moment);
            // Whoever opens it is told at one of the two attempts, or the first one failed after it had moved it.
            let first = SledCheckpoints::open_with(&path, faults.clone(), u64::MAX).await;
            let told = first.is_ok_and(|(_, set_aside)| set_aside.is_some());
            let (mut store, set_aside) = SledCheckpoints::open(&path).await.unwrap();
            assert!(!(told && set_aside.is_some()), "it was set aside twice");
            assert_eq!(store.load().await.unwrap(), None);
            let names = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
            let corrupt = names.filter(|name| name.to_string_lossy().starts_with("checkpoint.corrupt-"));
            assert_eq!(corrupt.count(), 1, "the damaged store is kept");
            faults.struck()
        })
        .await;
    }
}

/// The checkpoints that were saved, one a save.
struct History {
    states: Vec<Option<Checkpoint>>,
    /// The last one of which the save succeeded.
    acknowledged: usize,
}

impl History {
    /// Saves and loads until something fails, and once more after that.
    async fn use_store(&mut self, mut store: SledCheckpoints) {
        for _ in 0..2 {
            // A save of changes builds upon what the store holds.
            let Ok(before) = store.load().await else { return };
            self.assert_known(&before);
            let number = self.states.len() as u64;
            let entries = match number.is_multiple_of(2) {
                true => Entries::Changed(changes(number)),
                false => Entries::All(changes(number)),
            };
            if !self.save(&mut store, before, entries).await {
                // What it holds is not known now, and all entries can be saved whatever that is.
                let all = Entries::All(changes(self.states.len() as u64));
                let saved = self.save(&mut store, None, all).await;
                return if saved {
                    self.assert_known(&store.load().await.unwrap())
                };
            }
        }
    }

    async fn save(&mut self, store: &mut SledCheckpoints, before: Option<Checkpoint>, entries: Entries) -> bool {
        let floor = floor(self.states.len() as u64);
        self.states.push(Some(after(before, floor.clone(), &entries)));
        let saved = store.save(floor, entries).await.is_ok();
        if saved {
            self.acknowledged = self.states.len() - 1;
        }
        saved
    }

    /// The store has the last acknowledged checkpoint, or one that was attempted after it, whole.
    fn assert_known(&self, loaded: &Option<Checkpoint>) {
        let found = self.states[self.acknowledged..].contains(loaded);
        assert!(found, "it is no checkpoint that was saved: {:?}", loaded.as_ref().map(|other| &other.floor));
    }

    /// Opens the store anew; what it has then is the old checkpoint from here on.
    async fn check(&mut self, path: &Path) {
        let (mut store, set_aside) = SledCheckpoints::open(path).await.expect("the store opens");
        assert_eq!(set_aside, None, "a call that fails is no damage");
        let loaded = store.load().await.expect("the store can be read");
        self.assert_known(&loaded);
        self.acknowledged = self.states.iter().rposition(|state| *state == loaded).unwrap();
    }
}

/// Of every two saves one is large, and the other leaves so little that the store is worth being compacted.
fn changes(number: u64) -> Vec<Change> {
    let value = |key: u64| vec![number as u8; if number.is_multiple_of(2) { 1 } else { key as usize * 3_000 }];
    let keys = (0..6).filter(|key: &u64| number % 4 != 3 || key.is_multiple_of(2));
    keys.map(|key| (vec![key as u8], (key + number != 7).then(|| value(key)))).collect()
}

fn after(before: Option<Checkpoint>, floor: Floor, entries: &Entries) -> Checkpoint {
    let mut kept: BTreeMap<_, _> = before.into_iter().flat_map(|before| before.entries).collect();
    let changes = match entries {
        Entries::Changed(changes) => changes,
        Entries::All(changes) => {
            kept.clear();
            changes
        }
    };
    for (key, value) in changes {
        match value {
            Some(value) => kept.insert(key.clone(), value.clone()),
            None => kept.remove(key),
        };
    }
    Checkpoint { floor, entries: kept.into_iter().collect() }
}

fn floor(number: u64) -> Floor {
    let log = LogId { name: "embedded".to_owned(), incarnation: "of a test".to_owned() };
    Floor { log, sequence: Sequence::new(number).unwrap(), hash: [number as u8; 32], projection: 1 }
}

fn copy_folder(from: &Path, to: &Path) {
    if to.exists() {
        std::fs::remove_dir_all(to).unwrap();
    }
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (path, copy) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if path.is_dir() {
            copy_folder(&path, &copy);
        } else {
            std::fs::copy(path, copy).unwrap();
        }
    }
}
