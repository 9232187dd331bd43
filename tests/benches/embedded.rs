//! The embedded log and its checkpoint against bare sled, and a restart and a question against a full replay.

use std::fs::File;
use std::hint::black_box;
use std::io::{BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use decklog_engine::Records;
use decklog_engine::checkpoint::MemoryCheckpoints;
use decklog_engine::driver::Driver;
use decklog_engine::log::{Appended, ExpectedTail, Log as _, NewEvent, Scope, Wait};
use decklog_engine::replay::{Until, replay};
use decklog_projections::inventory::Inventories;
use decklog_schemas::{Envelope, Outcome, ReleaseKey};
use decklog_sled::{SledCheckpoints, SledLog};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use decklog_tests::pairs::{Bench, Clock, Figure, timed};
use decklog_tests::workload::{Shape, Workload};

const LIMIT: Duration = Duration::from_secs(1_200);

const SHAPE: Shape = Shape { releases: 1_000, items: 100, run: 1 };

/// Events that are appended together.
const BATCH: usize = 1_000;

fn main() -> ExitCode {
    decklog_tests::pairs::run(LIMIT, |bench| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build();
        let place = Place { runtime: runtime.expect("a runtime can be made"), folder: folder() };
        append(bench, &place);
        let events = bench.pick(1_000_000, 4_000);
        let after = events / 100;
        let log = place.fill(events, after);
        scan(bench, &place, &log);
        restart(bench, &place, events, after);
        question(bench, &place, events);
        checkpoint(bench, &place);
    })
}

/// Where a bench works: a runtime, and a folder that is removed at its end.
struct Place {
    runtime: Runtime,
    folder: TempDir,
}

/// The records that a log was filled with.
struct Filled {
    records: Records,
}

fn append(bench: &mut Bench, place: &Place) {
    let events = bench.pick(300_000, 2_000);
    let records = Workload::new(SHAPE).records(events);
    let bare = || {
        let folder = folder();
        let db = open_bare(folder.path());
        timed(|| fill_bare(&db, &records)).1
    };
    let product = || {
        let folder = folder();
        let log = place.open(&folder.path().join("log"));
        let batches: Vec<_> = batches(&records).collect();
        timed(|| place.append(&log, batches)).1
    };
    let figure = Figure {
        name: "append in batches of 1,000, against bare sled",
        events,
        clock: Clock::Wall,
        bounds: Some([0.7, 0.9]),
    };
    bench.compare(figure, bare, product);
}

/// The same records in bare sled and in a plain file, each read from its first to its last.
fn scan(bench: &mut Bench, place: &Place, Filled { records }: &Filled) {
    let events = records.len();
    let path = place.folder.path().join("bare");
    let db = open_bare(&path);
    fill_bare(&db, records);
    let file = place.folder.path().join("records");
    write_file(&file, records);
    let log = place.open(&place.log());
    let product = || {
        let ((), cost) = timed(|| {
            let mut state = Inventories::default();
            let replayed = place.runtime.block_on(replay(&log, &Scope::All, Until::Tail, &mut state));
            assert_eq!(replayed.expect("the log can be read").records, events as u64);
            black_box(state);
        });
        cost
    };
    let bounds = Some([0.5, 0.8]);
    let name = "replay into the fold, against bare sled's scan and decoding";
    bench.compare(Figure { name, events, clock: Clock::Wall, bounds }, || timed(|| scan_bare(&db)).1, product);
    let name = "replay into the fold, against a plain file's scan with CRC";
    bench.compare(Figure { name, events, clock: Clock::Wall, bounds: None }, || timed(|| scan_file(&file)).1, product);
}

fn restart(bench: &mut Bench, place: &Place, events: usize, after: usize) {
    let full = || {
        let ((), cost) = timed(|| place.drive_from_start(events));
        cost
    };
    let product = || {
        let ((), cost) = timed(|| place.drive_from_checkpoint(after));
        cost
    };
    let name = "restart from a checkpoint with 1 % of the events after it, against a full replay";
    bench.compare(Figure { name, events, clock: Clock::Wall, bounds: Some([10.0, 30.0]) }, full, product);
}

fn question(bench: &mut Bench, place: &Place, events: usize) {
    let log = place.open(&place.log());
    let key = ReleaseKey::new("default", "team-7", "service-7");
    let until = Until::Sequence(decklog_schemas::Sequence::new(events as u64 / 2).expect("there are events"));
    let ask = |scope: &Scope| {
        let ((), cost) = timed(|| {
            let mut state = Inventories::default();
            place.runtime.block_on(replay(&log, scope, until, &mut state)).expect("the log can be read");
            assert!(state.object(&key).is_some());
        });
        cost
    };
    // The bounds of performance.md are those of a log with snapshots, which the embedded one has not yet.
    let name = "state of one release in the middle of the log, without snapshots, against replaying up to there";
    let figure = Figure { name, events: events / 2, clock: Clock::Wall, bounds: Some([100.0, 1_000.0]) };
    bench.compare(figure, || ask(&Scope::All), || ask(&Scope::Release(key.clone())));
}

/// What saving takes when some of the releases have changed, each of which has 100 items.
fn checkpoint(bench: &mut Bench, place: &Place) {
    let mut details = Vec::new();
    let mut each = 0.0;
    for changed in [1, 10, 100, bench.pick(1_000, 100)] {
        let folder = folder();
        let log = Arc::new(place.open(&folder.path().join("log")));
        let mut workload = Workload::new(SHAPE);
        place.append(&log, batches(&workload.records(bench.pick(SHAPE.releases * SHAPE.items, 2_000))).collect());
        let took = place.runtime.block_on(async {
            let (store, _) = SledCheckpoints::open(&folder.path().join("checkpoint")).await.expect("it opens");
            let mut driver = start(&log, store).await;
            while !driver.step(Wait::No).await.expect("the log can be read").verdicts.is_empty() {}
            driver.checkpoint().await.expect("the store takes it");
            let events: Vec<_> = (0..changed).map(tracked).collect();
            log.append(events).await.expect("the log takes them");
            while !driver.step(Wait::No).await.expect("the log can be read").verdicts.is_empty() {}
            let clock = std::time::Instant::now();
            driver.checkpoint().await.expect("the store takes it");
            clock.elapsed()
        });
        each = took.as_secs_f64() * 1e6 / changed as f64;
        details.push(format!("{changed} changed: {:.1} ms", took.as_secs_f64() * 1e3));
    }
    bench.judge_most("µs a changed release of 100 items in a checkpoint", None, each, &details.join(", "));
}

fn tracked(release: usize) -> NewEvent {
    let id = format!("00000000-0000-7000-9000-{release:012}");
    let event = serde_json::json!({
        "specversion": "1.0", "id": id, "source": "/bench/1", "type": "dev.decklog.ReleaseTracked.v1",
        "subject": format!("team-{}/service-{release}", release % 50), "time": "2026-03-02T10:00:00Z", "data": { "shard": "a" },
    });
    new_event(event.to_string().into_bytes())
}

fn new_event(bytes: Vec<u8>) -> NewEvent {
    let envelope = Envelope::decode(&bytes).expect("the event is one");
    let id = envelope.id().expect("the event has an id").to_owned();
    let subject = decklog_schemas::subject::place(&envelope).expect("the event has a place");
    drop(envelope);
    NewEvent { id, subject, bytes, expected: ExpectedTail::Any }
}

fn batches(records: &Records) -> impl Iterator<Item = Vec<NewEvent>> {
    let events: Vec<_> = records.iter().map(|record| new_event(record.bytes.into_owned())).collect();
    let mut events = events.into_iter();
    std::iter::from_fn(move || Some(events.by_ref().take(BATCH).collect::<Vec<_>>()).filter(|batch| !batch.is_empty()))
}

async fn start<C: decklog_engine::checkpoint::CheckpointStore>(
    log: &Arc<SledLog>,
    store: C,
) -> Driver<SledLog, Inventories, C> {
    Driver::start(Arc::clone(log), store).await.expect("the checkpoint fits the log").0
}

// === impl Place ===

impl Place {
    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn open(&self, path: &Path) -> SledLog {
        self.runtime.block_on(SledLog::open(path)).expect("the log opens")
    }

    fn append(&self, log: &SledLog, batches: Vec<Vec<NewEvent>>) {
        self.runtime.block_on(async {
            for batch in batches {
                let appended = log.append(batch).await.expect("the log takes them");
                assert!(appended.iter().all(|one| matches!(one, Appended::Stored { .. })));
            }
        });
    }

    /// A log of so many events, with a checkpoint that `after` events are behind.
    fn fill(&self, events: usize, after: usize) -> Filled {
        let records = Workload::new(SHAPE).records(events);
        let log = Arc::new(self.open(&self.log()));
        let mut batches = batches(&records);
        let before = (events - after) / BATCH;
        self.append(&log, batches.by_ref().take(before).collect());
        self.runtime.block_on(async {
            let store = SledCheckpoints::open(&self.folder.path().join("checkpoint")).await.expect("it opens").0;
            let mut driver = start(&log, store).await;
            while !driver.step(Wait::No).await.expect("the log can be read").verdicts.is_empty() {}
            driver.checkpoint().await.expect("the store takes it");
        });
        self.append(&log, batches.collect());
        Filled { records }
    }

    fn drive_from_start(&self, events: usize) {
        self.runtime.block_on(async {
            let log = Arc::new(SledLog::open(&self.log()).await.expect("the log opens"));
            let driver = start(&log, MemoryCheckpoints::default()).await;
            assert_eq!(drive(driver).await, events);
        });
    }

    fn drive_from_checkpoint(&self, after: usize) {
        self.runtime.block_on(async {
            // Side by side, as the binary opens them.
            let (path, checkpoint) = (self.log(), self.folder.path().join("checkpoint"));
            let (log, store) = tokio::join!(SledLog::open(&path), SledCheckpoints::open(&checkpoint));
            let (log, store) = (Arc::new(log.expect("the log opens")), store.expect("it opens").0);
            let driver = start(&log, store).await;
            assert!(drive(driver).await <= after + BATCH, "only what is behind the floor is read");
        });
    }
}

/// Drives to the tail, and says how many records that were.
async fn drive<C: decklog_engine::checkpoint::CheckpointStore>(mut driver: Driver<SledLog, Inventories, C>) -> usize {
    let mut read = 0;
    loop {
        let verdicts = driver.step(Wait::No).await.expect("the log can be read").verdicts;
        assert!(verdicts.iter().all(|(_, verdict)| *verdict == Ok(Outcome::Folded)));
        if verdicts.is_empty() {
            black_box(driver.projection().count());
            return read;
        }
        read += verdicts.len();
    }
}

// === Bare sled, and a plain file ===

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder can be made")
}

fn open_bare(path: &Path) -> sled::Db {
    sled::Config::new().path(path).cache_capacity(64 * 1024 * 1024).open().expect("sled opens")
}

/// As many batches as the log gets, each flushed before the next one, as each of the log's is.
fn fill_bare(db: &sled::Db, records: &Records) {
    let mut records = records.iter().peekable();
    while records.peek().is_some() {
        let mut batch = sled::Batch::default();
        for record in records.by_ref().take(BATCH) {
            batch.insert(&record.sequence.get().to_be_bytes(), &*record.bytes);
        }
        db.apply_batch(batch).expect("sled takes it");
        db.flush().expect("sled flushes");
    }
}

fn scan_bare(db: &sled::Db) {
    for entry in db.iter() {
        let (_, value) = entry.expect("sled reads");
        black_box(decklog_tests::peer::PeerEvent::read(&value));
    }
}

/// Length, CRC and event of each record.
fn write_file(path: &Path, records: &Records) {
    let mut file = std::io::BufWriter::new(File::create(path).expect("writable"));
    for record in records.iter() {
        let head = [(record.bytes.len() as u32).to_le_bytes(), crc32fast::hash(&record.bytes).to_le_bytes()];
        file.write_all(&head.concat()).and_then(|()| file.write_all(&record.bytes)).expect("writable");
    }
    file.flush().expect("writable");
}

fn scan_file(path: &Path) {
    let mut file = BufReader::with_capacity(1024 * 1024, File::open(path).expect("readable"));
    let (mut head, mut event) = ([0; 8], Vec::new());
    while file.read_exact(&mut head).is_ok() {
        let [a, b, c, d, crc @ ..] = head;
        event.resize(u32::from_le_bytes([a, b, c, d]) as usize, 0);
        file.read_exact(&mut event).expect("readable");
        assert_eq!(crc32fast::hash(&event), u32::from_le_bytes(crc));
    }
}
