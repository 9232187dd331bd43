//! The embedded log: what its handles and its writer share, and reading.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::thread::JoinHandle;

use decklog_engine::Records;
use decklog_engine::ask::ask;
use decklog_engine::log::{
    AppendError, Appended, Batch, Log, LogId, NewEvent, READ_BYTES, READ_RECORDS, ReadError, Scope, Wait,
};
use decklog_schemas::{Record, Sequence};
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;

use crate::block::Stored;
use crate::folder::Folder;
use crate::index::{Recent, segment_of};
use crate::io::{Faults, Io};
use crate::open::{self, Creation, OpenError, Opened};
use crate::store::{Store, Trouble};
use crate::writer::{Failure, Request, Writer};

/// How many calls of `append` may wait for the writer before the next one waits for them.
const QUEUE: usize = 64;

/// The embedded log, in a folder of its own, held by one process at a time.
///
/// What it acknowledges survives the death of the process, also by kill -9: it is in the files then, and in the hands
/// of the operating system. It does **not** promise to survive a loss of power: sled's `flush` writes the pages out, but
/// waits for no disk to confirm the file's metadata. Whoever needs that keeps a copy or uses JetStream with replicas.
///
/// A log that has lost a record that it acknowledged does not open, or says so when the place is read; it is never
/// taken for a shorter one. All of its work is done on threads where blocking is allowed; only dropping it blocks, until
/// what was appended is written. It needs up to some 150 MB of memory, however long it is.
///
/// It takes ids and subjects of up to 1,024 bytes and events of up to [`decklog_schemas::MAX_EVENT_BYTES`].
#[derive(Debug)]
pub struct SledLog {
    shared: Arc<Shared>,
    requests: Option<mpsc::Sender<Request>>,
    writer: Option<JoinHandle<()>>,
}

/// What reading and writing share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) id: LogId,
    /// The last record that is acknowledged. What is behind it is not there for any reader.
    pub(crate) tail: watch::Sender<Option<Sequence>>,
    /// Emptied when the log is dropped, after the last reader is done.
    pub(crate) open: RwLock<Option<Open>>,
    pub(crate) recent: Mutex<Recent>,
    pub(crate) failure: OnceLock<Failure>,
}

#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) store: Store,
    /// Dropped after the store.
    _folder: Folder,
}

impl Log for SledLog {
    async fn append(&self, events: Vec<NewEvent>) -> Result<Vec<Appended>, AppendError> {
        let answers = match &self.requests {
            Some(requests) => ask(requests, |answer| Request { events, answer }).await,
            None => None,
        };
        answers.unwrap_or_else(|| Err(self.shared.failure())).map_err(|failure| AppendError::Failed(Box::new(failure)))
    }

    async fn read(&self, mut from: Sequence, scope: &Scope, wait: Wait) -> Result<Batch, ReadError> {
        let mut tail = self.shared.tail.subscribe();
        loop {
            let batch = self.read_now(from, scope).await?;
            if wait == Wait::No || !batch.records.is_empty() {
                return Ok(batch);
            }
            from = batch.next;
            let grown = tail.wait_for(|tail| *tail >= Some(from)).await;
            grown.map_err(|closed| ReadError::Unavailable(Box::new(closed)))?;
        }
    }
}

// === impl SledLog ===

impl SledLog {
    /// Opens the log in a folder, or creates it there.
    ///
    /// # Errors
    /// It is held by another process, damaged, or its files cannot be used.
    pub async fn open(dir: &Path) -> Result<Self, OpenError> {
        Self::start(dir, Creation::Allowed, Faults::none()).await
    }

    /// Opens the log that is in a folder, and creates nothing.
    ///
    /// # Errors
    /// As [`SledLog::open`]; and [`OpenError::NotALog`] if there is none.
    pub async fn open_existing(dir: &Path) -> Result<Self, OpenError> {
        Self::start(dir, Creation::Never, Faults::none()).await
    }

    /// Opens the log as [`SledLog::open`] does, and lets one call fail: for tests.
    ///
    /// # Errors
    /// As [`SledLog::open`]; and the call that fails.
    pub async fn open_with(dir: &Path, faults: Faults) -> Result<Self, OpenError> {
        Self::start(dir, Creation::Allowed, faults).await
    }

    /// Which log it is.
    #[must_use]
    pub fn id(&self) -> &LogId {
        &self.shared.id
    }

    async fn start(dir: &Path, creation: Creation, faults: Faults) -> Result<Self, OpenError> {
        let folder = dir.to_owned();
        let failed = |source| OpenError::Io { dir: dir.to_owned(), source };
        let opened = spawn_blocking(move || open::open(&folder, creation, Io::new(faults)));
        let opened = opened.await.map_err(|error| failed(Box::new(error)))??;
        let Opened { store, head, id, tail, last_recorded, recent, ids, folder } = opened;
        let shared = Arc::new(Shared {
            id,
            tail: watch::Sender::new(tail),
            open: RwLock::new(Some(Open { store, _folder: folder })),
            recent: Mutex::new(recent),
            failure: OnceLock::new(),
        });
        let (requests, receiver) = mpsc::channel(QUEUE);
        let writer = Writer::new(Arc::clone(&shared), head, ids, tail, last_recorded);
        let thread = std::thread::Builder::new().name("decklog-writer".to_owned());
        let writer = thread.spawn(move || writer.run(receiver)).map_err(|error| failed(Box::new(error)))?;
        Ok(Self { shared, requests: Some(requests), writer: Some(writer) })
    }

    /// Reads what there is from a place on. No records means that there are none up to the tail.
    async fn read_now(&self, from: Sequence, scope: &Scope) -> Result<Batch, ReadError> {
        let shared = &self.shared;
        let tail = *shared.tail.borrow();
        let nothing = Batch::empty(shared.id.clone(), tail, from.max(Sequence::after(tail)));
        let Some(to) = tail.filter(|tail| from <= *tail) else { return Ok(nothing) };
        let scope = match scope {
            Scope::All => None,
            Scope::Release(key) => Some(key.tokens()),
        };
        // Not worth a thread, unless it had to be waited for.
        if let (Some(release), Ok(recent)) = (&scope, shared.recent.try_lock())
            && segment_of(from) >= recent.first_segment()
            && recent.sequences(release, from, to).is_empty()
        {
            return Ok(nothing);
        }
        let reader = Arc::clone(shared);
        let read = spawn_blocking(move || reader.read(from, to, scope.as_deref())).await;
        let (records, next) = read.map_err(|error| ReadError::Unavailable(Box::new(error)))??;
        Ok(Batch { records, next, ..nothing })
    }
}

impl Drop for SledLog {
    fn drop(&mut self) {
        drop(self.requests.take());
        if self.writer.take().is_some_and(|writer| writer.join().is_err()) {
            tracing::error!(log = %self.shared.id, "Writer of the log has panicked");
        }
        self.shared.close();
    }
}

// === impl Shared ===

impl Shared {
    pub(crate) fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the writer takes nothing any more.
    fn failure(&self) -> Failure {
        self.failure.get().cloned().unwrap_or(Failure::WriterEnded)
    }

    /// Reads records, and says where to go on.
    fn read(&self, from: Sequence, to: Sequence, release: Option<&str>) -> Result<(Records, Sequence), ReadError> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let Some(Open { store, .. }) = &*open else {
            return Err(ReadError::Unavailable("the log is closed".into()));
        };
        let mut records = Records::default();
        let mut next = to.next();
        let collect = |record: &Stored<'_>| {
            if records.len() >= READ_RECORDS || records.size() >= READ_BYTES {
                next = record.sequence;
                return ControlFlow::Break(());
            }
            records.push(&Record {
                sequence: record.sequence,
                recorded: record.recorded,
                subject: record.subject.into(),
                bytes: record.event.into(),
            });
            ControlFlow::Continue(())
        };
        let outcome = match release {
            None => store.scan(from, to, collect),
            Some(release) => self.read_release(store, release, from, to, collect),
        };
        match outcome {
            Ok(()) => Ok((records, next)),
            // What is before the trouble is returned, and the trouble with the next read.
            Err(_) if !records.is_empty() => {
                let next = Sequence::after(records.last_sequence());
                Ok((records, next))
            }
            Err(Trouble::Failed(error)) => Err(ReadError::Unavailable(Box::new(error))),
            Err(Trouble::Damaged { sequence, problem }) => Err(ReadError::Damaged { sequence, problem }),
        }
    }

    fn read_release(
        &self,
        store: &Store,
        release: &str,
        from: Sequence,
        to: Sequence,
        mut collect: impl FnMut(&Stored<'_>) -> ControlFlow<()>,
    ) -> Result<(), Trouble> {
        let (first_segment, recent) = {
            let recent = self.recent();
            (recent.first_segment(), recent.sequences(release, from, to))
        };
        let mut collect = |record: &Stored<'_>| {
            if record.sequence > to { ControlFlow::Break(()) } else { collect(record) }
        };
        if store.scan_release(release, from, first_segment, &mut collect)?.is_continue() {
            let _ = store.scan_sequences(release, recent, &mut collect)?;
        }
        Ok(())
    }

    /// Waits for the readers and closes the store.
    fn close(&self) {
        let open = self.open.write().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Open { store, _folder: folder }) = open else { return };
        let io = store.io.clone();
        let closed = io.call("close the log", || {
            drop(store);
            Ok::<_, sled::Error>(())
        });
        if let Err(error) = closed {
            tracing::error!(log = %self.id, error = error.words(), "Log was not closed in order");
        }
        drop(folder);
    }
}
