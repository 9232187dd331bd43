//! A running service with its server, on a socket in a folder of its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use decklog_engine::checkpoint::MemoryCheckpoints;
use decklog_engine::driver::Driver;
use decklog_engine::log::{AppendError, Appended, Batch, Log, NewEvent, ReadError, Scope, Wait};
use decklog_engine::memory::MemoryLog;
use decklog_engine::service::{Service, Sink, SinkError};
use decklog_http::client::Client;
use decklog_http::{server, socket};
use decklog_projections::inventory::Inventories;
use decklog_schemas::Sequence;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// All of it. What is dropped stops it.
pub(crate) struct Served {
    pub(crate) socket: PathBuf,
    pub(crate) log: MemoryLog,
    pub(crate) faults: Arc<Faults>,
    /// Seconds since the epoch, by the clock of the log.
    pub(crate) clock: Arc<AtomicI64>,
    pub(crate) gate: watch::Sender<Gate>,
    pub(crate) server: Running<std::io::Result<()>>,
    pub(crate) engine: Running<()>,
    _folder: tempfile::TempDir,
}

/// A task that can be told to stop.
pub(crate) struct Running<T> {
    pub(crate) stop: watch::Sender<bool>,
    task: JoinHandle<T>,
}

/// Whether the sink lets the engine go on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    Open,
    Closed,
}

/// What the log does wrong at the moment.
#[derive(Default)]
pub(crate) struct Faults {
    pub(crate) answers_nothing: AtomicBool,
    pub(crate) knows_nothing: AtomicBool,
    pub(crate) is_damaged: AtomicBool,
}

struct FaultyLog {
    log: MemoryLog,
    faults: Arc<Faults>,
}

struct GatedSink(watch::Receiver<Gate>);

/// Lets time pass at once, for the server and its timers. Before and after it goes as it does.
pub(crate) async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

impl Served {
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("decklog.sock");
        Self::start_at(socket, folder).await
    }

    pub(crate) async fn start_at(socket: PathBuf, folder: tempfile::TempDir) -> Self {
        let clock = Arc::new(AtomicI64::new(1_772_000_000));
        let seconds = Arc::clone(&clock);
        let log = MemoryLog::with_clock(move || jiff::Timestamp::from_second(seconds.load(Ordering::Relaxed)).unwrap());
        let faults = Arc::new(Faults::default());
        let faulty = Arc::new(FaultyLog { log: log.clone(), faults: Arc::clone(&faults) });
        let (gate, gated) = watch::channel(Gate::Open);
        let store = MemoryCheckpoints::default();
        let (driver, _) = Driver::<_, Inventories, _>::start(Arc::clone(&faulty), store).await.unwrap();
        let (service, handle) = Service::new(faulty, driver, GatedSink(gated));
        let engine = Running::start(|stop| async { service.run(stop).await.unwrap() });
        // Whatever a test does to the log from here on, the engine has caught up with it.
        handle.ask(|_| ()).await.unwrap();
        let listener = socket::bind(&socket).await.unwrap();
        let router = server::router(handle);
        let server = Running::start(|stop| server::serve(listener, router, stop));
        Self { socket, log, faults, clock, gate, server, engine, _folder: folder }
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(&self.socket).await.unwrap()
    }

    /// Every event in the log, byte for byte.
    pub(crate) async fn stored(&self) -> Vec<Vec<u8>> {
        let batch = self.log.read(Sequence::FIRST, &Scope::All, Wait::No).await.unwrap();
        batch.records.iter().map(|record| record.bytes.to_vec()).collect()
    }

    /// Waits until the log has so many events.
    pub(crate) async fn stores(&self, events: u64) {
        let last = Sequence::new(events).unwrap();
        self.log.read(last, &Scope::All, Wait::ForMore).await.unwrap();
    }

    pub(crate) fn folder(&self) -> &Path {
        self.socket.parent().unwrap()
    }
}

impl<T: Send + 'static> Running<T> {
    pub(crate) fn start<F>(run: impl FnOnce(watch::Receiver<bool>) -> F) -> Self
    where
        F: Future<Output = T> + Send + 'static,
    {
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(run(stopped));
        Self { stop, task }
    }

    pub(crate) async fn stop(&mut self) -> T {
        self.stop.send_replace(true);
        self.ended().await
    }

    pub(crate) async fn ended(&mut self) -> T {
        (&mut self.task).await.unwrap()
    }
}

impl Log for FaultyLog {
    async fn append(&self, events: Vec<NewEvent>) -> Result<Vec<Appended>, AppendError> {
        if self.faults.answers_nothing.load(Ordering::Relaxed) {
            return Err(AppendError::Unavailable("the cable is out".into()));
        }
        let answers = self.log.append(events).await?;
        if self.faults.knows_nothing.load(Ordering::Relaxed) {
            let unknown = |_| Appended::Unknown { reason: "no answer came".to_owned() };
            return Ok(answers.into_iter().map(unknown).collect());
        }
        Ok(answers)
    }

    /// The engine reads on and waits; only those who do not wait see a fault.
    async fn read(&self, from: Sequence, scope: &Scope, wait: Wait) -> Result<Batch, ReadError> {
        if wait == Wait::No && self.faults.answers_nothing.load(Ordering::Relaxed) {
            return Err(ReadError::Unavailable("the cable is out".into()));
        }
        if wait == Wait::No && self.faults.is_damaged.load(Ordering::Relaxed) {
            let problem = "its checksum is another".to_owned();
            return Err(ReadError::Damaged { sequence: from, problem });
        }
        self.log.read(from, scope, wait).await
    }
}

impl Sink<Inventories> for GatedSink {
    async fn project(&mut self, _: &mut Inventories) -> Result<(), SinkError> {
        // Whoever held the gate is gone: the test is over.
        let _ = self.0.wait_for(|gate| *gate == Gate::Open).await;
        Ok(())
    }
}
