//! Each call that the engine makes to its log and its checkpoint store fails once, before and after its effect:
//! the engine ends with an error or goes on right, and whoever opens the folder next finds what was acknowledged.

use std::path::Path;
use std::sync::Arc;

use decklog_engine::driver::Driver;
use decklog_engine::ingest::{Check, ingest};
use decklog_engine::log::Scope;
use decklog_engine::replay::{Until, replay};
use decklog_engine::service::{Service, Sink, SinkError};
use decklog_projections::inventory::{Inventories, Selection};
use decklog_projections::timeline::Timeline;
use decklog_schemas::answer::{EmitStatus, View};
use decklog_sled::{Faults, Moment, SledCheckpoints, SledLog};
use tokio::sync::watch;

/// Batches of the history, each appended by a call of its own.
const BATCHES: usize = 4;

/// Nothing outside is to be brought in line.
struct Nowhere;

impl Sink<Inventories> for Nowhere {
    async fn project(&mut self, _: &mut Inventories) -> Result<(), SinkError> {
        Ok(())
    }
}

/// The demo's history: real events of every kind.
fn history() -> Vec<Vec<u8>> {
    let path = decklog_tests::binary::root().join("adapters/cli/demo/incident.jsonl");
    let text = std::fs::read_to_string(path).expect("the demo has its events");
    text.lines().map(|line| line.as_bytes().to_vec()).collect()
}

/// Runs an engine over a folder, feeds it the history, and stops it. Whatever failed, `acknowledged` has the ids that
/// were answered as stored.
async fn run(folder: &Path, faults: Faults, acknowledged: &mut Vec<String>) -> Result<(), String> {
    let words = |error: &dyn std::error::Error| error.to_string();
    let log = SledLog::open_with(&folder.join("log"), faults.clone()).await.map_err(|error| words(&error))?;
    let log = Arc::new(log);
    let checkpoints = SledCheckpoints::open_with(&folder.join("checkpoint"), faults, u64::MAX).await;
    let (checkpoints, _) = checkpoints.map_err(|error| words(&error))?;
    let (driver, _) = Driver::start(Arc::clone(&log), checkpoints).await.map_err(|error| words(&error))?;
    let (service, handle) = Service::new(log, driver, Nowhere);
    let (stop, stopped) = watch::channel(false);
    let running = tokio::spawn(service.run(stopped));
    let history = history();
    let mut fed = Ok(());
    for batch in history.chunks(history.len().div_ceil(BATCHES)) {
        match ingest(&handle, batch.to_vec(), Check::Valid).await {
            Ok(answers) => acknowledged.extend(answers.into_iter().filter_map(|answer| {
                let is_there = matches!(answer.status, EmitStatus::Stored | EmitStatus::Duplicate);
                answer.id.filter(|_| is_there)
            })),
            Err(error) => {
                fed = Err(words(&error));
                break;
            }
        }
    }
    drop(handle);
    // If the service has ended, it says itself why.
    let _ = stop.send(true);
    running.await.expect("the service does not panic").map_err(|error| words(&error))?;
    fed
}

/// What the next engine finds: its live state from the checkpoint, and a replay of the log.
async fn find(folder: &Path) -> (View, View, Vec<String>) {
    let log = Arc::new(SledLog::open(&folder.join("log")).await.expect("the log opens"));
    let (checkpoints, _) = SledCheckpoints::open(&folder.join("checkpoint")).await.expect("the checkpoint opens");
    let (mut driver, _) = Driver::<_, Inventories, _>::start(Arc::clone(&log), checkpoints).await.expect("they agree");
    while !driver.step(decklog_engine::log::Wait::No).await.expect("the log is read").verdicts.is_empty() {}
    let all = Selection::All { cluster: None };
    let mut replayed = Inventories::default();
    replay(&*log, &Scope::All, Until::Tail, &mut replayed).await.expect("the log is read");
    let mut timeline = Timeline::since(jiff::Timestamp::MIN);
    replay(&*log, &Scope::All, Until::Tail, &mut timeline).await.expect("the log is read");
    let ids = timeline.into_entries().into_iter().filter_map(|entry| entry.id).collect();
    (driver.projection().view(&all), replayed.view(&all), ids)
}

async fn check(call: u64, moment: Moment) -> bool {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let (faults, mut acknowledged) = (Faults::at(call, moment), Vec::new());
    let ended = run(folder.path(), faults.clone(), &mut acknowledged).await;
    let at = format!("call {call} fails {moment:?} its effect, the engine ends with {ended:?}");
    let (live, replayed, ids) = find(folder.path()).await;
    assert_eq!(live, replayed, "{at}: the checkpoint holds what a replay gives");
    for id in &acknowledged {
        assert_eq!(ids.iter().filter(|other| *other == id).count(), 1, "{at}: {id} was acknowledged");
    }
    let history = history();
    assert!(ids.len() <= history.len(), "{at}: nothing is there twice");
    if ended.is_ok() {
        assert_eq!(ids.len(), history.len(), "{at}: all of it was acknowledged");
    }
    // The same once more, as a person would after an error: now all is there, once, and the state is right.
    let mut again = Vec::new();
    run(folder.path(), Faults::none(), &mut again).await.expect("nothing fails any more");
    let (live, replayed, ids) = find(folder.path()).await;
    assert_eq!((again.len(), ids.len()), (history.len(), history.len()), "{at}: sent again, all is there once");
    assert_eq!(live, replayed, "{at}: and the checkpoint is right");
    faults.struck()
}

/// Lets one call after the other fail, until a run makes fewer calls than that; returns how many there are.
async fn check_all(moment: Moment) -> u64 {
    let mut call = 1;
    while check(call, moment).await {
        call += 1;
    }
    assert!(call > 30, "an engine makes more calls than {call}");
    call - 1
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_fails_before_its_effect() {
    println!("{} calls were failed", check_all(Moment::Before).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_fails_after_its_effect() {
    println!("{} calls were failed", check_all(Moment::After).await);
}
