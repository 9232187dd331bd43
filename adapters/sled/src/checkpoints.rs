//! The checkpoint store: one checkpoint in a folder of its own, a cache that is set aside when it is damaged.

mod compact;
mod entries;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use decklog_engine::checkpoint::{Checkpoint, CheckpointError, CheckpointStore, Entries, Floor};
use jiff::Timestamp;
use tokio::task::spawn_blocking;

use crate::folder::{Folder, HoldError, open_sled};
use crate::head::{Head, Reached, Says};
use crate::io::{Faults, Io, IoError};
use entries::{StoredCheckpoint, Totals, Unreadable};

/// How much of a checkpoint sled keeps in memory, in bytes.
const CACHE_BYTES: u64 = 16 * 1024 * 1024;

/// Above which size a store is compacted, if most of it is not in use any more.
const COMPACT_ABOVE: u64 = 64 * 1024 * 1024;

/// The folder of sled in the folder of the store.
const STORE: &str = "store";

/// The checkpoint store, in a folder of its own, held by one process at a time.
///
/// A save survives the death of the process, also by kill -9, but not a loss of power: then it is as if it had not been
/// made, or the store is damaged. A damaged store is renamed to `<folder>.corrupt-<time>`, and an empty one is there
/// instead: replay makes the checkpoint again.
///
/// A future that is dropped while it works ends its work all the same, before the next one and before the store is
/// dropped.
#[derive(Debug)]
pub struct SledCheckpoints {
    core: Arc<Mutex<Core>>,
}

/// A damaged store was put out of the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAside {
    /// Where it is now. Nothing reads it any more; it may be deleted.
    pub moved_to: PathBuf,
    /// What was wrong with it.
    pub problem: String,
}

/// The checkpoint store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenCheckpointsError {
    /// The store is open already.
    #[error("the checkpoint in {} is held by another process: one projector at a time keeps it; stop that one, or name another folder", dir.display())]
    Held {
        /// The folder.
        dir: PathBuf,
    },
    /// The folder or a file in it cannot be read or written.
    #[error("cannot open the checkpoint in {}", dir.display())]
    Io {
        /// The folder.
        dir: PathBuf,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Nobody can say where a checkpoint stands.
#[derive(Debug, thiserror::Error)]
pub enum PeekError {
    /// There is no store.
    #[error("there is no checkpoint in {}", dir.display())]
    Missing {
        /// The folder.
        dir: PathBuf,
    },
    /// The store is open.
    #[error("the checkpoint in {} is held by another process", dir.display())]
    Held {
        /// The folder.
        dir: PathBuf,
    },
    /// The store is damaged.
    #[error("the checkpoint in {} is damaged: {problem}", dir.display())]
    Damaged {
        /// The folder.
        dir: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// Its files cannot be read.
    #[error("cannot read the checkpoint in {}", dir.display())]
    Io {
        /// The folder.
        dir: PathBuf,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

#[derive(Debug)]
struct Core {
    dir: PathBuf,
    io: Io,
    compact_above: u64,
    /// None after a failure in the middle of a move.
    db: Option<sled::Db>,
    /// None before the store was read.
    head: Option<Head>,
    /// None while the folder is moved.
    folder: Option<Folder>,
    /// Sums over what is stored; none if a save has failed since they were known.
    totals: Option<Totals>,
    /// The checkpoint as it was read when the store was opened, for the first `load`.
    read_at_open: Option<Option<Checkpoint>>,
    set_aside: Option<SetAside>,
}

/// A load or a save failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Io(#[from] IoError),
    #[error("the store is damaged: {0}")]
    Damaged(String),
    #[error("the store failed before and has to be opened anew")]
    Closed,
    #[error("the damaged store cannot be set aside")]
    SetAside(#[source] HoldError),
    #[error("a value of {size} bytes is too large")]
    TooLarge { size: usize },
}

impl CheckpointStore for SledCheckpoints {
    async fn load(&mut self) -> Result<Option<Checkpoint>, CheckpointError> {
        self.run("load", Core::load).await
    }

    async fn save(&mut self, floor: Floor, entries: Entries) -> Result<(), CheckpointError> {
        self.run("save", move |core| core.save(&floor, entries)).await
    }
}

// === impl SledCheckpoints ===

impl SledCheckpoints {
    /// Opens the store in a folder, or creates it there, and reads it: a damaged one is set aside.
    ///
    /// # Errors
    /// It is held by another process, or its files cannot be used.
    pub async fn open(dir: &Path) -> Result<(Self, Option<SetAside>), OpenCheckpointsError> {
        Self::open_with(dir, Faults::none(), COMPACT_ABOVE).await
    }

    /// Says where the checkpoint in a folder stands. No store is created, and a damaged one is not set aside.
    ///
    /// # Errors
    /// There is no store; it is held by another process; it is damaged; or its files cannot be used.
    pub async fn peek(dir: &Path) -> Result<Option<Floor>, PeekError> {
        let folder = dir.to_owned();
        let peeked = spawn_blocking(move || Core::peek(folder)).await;
        peeked.map_err(|error| PeekError::Io { dir: dir.to_owned(), source: Box::new(error) })?
    }

    /// Opens the store as [`SledCheckpoints::open`] does, lets one call fail, and compacts it above so many bytes: for
    /// tests.
    ///
    /// # Errors
    /// As [`SledCheckpoints::open`]; and the call that fails.
    pub async fn open_with(
        dir: &Path,
        faults: Faults,
        compact_above: u64,
    ) -> Result<(Self, Option<SetAside>), OpenCheckpointsError> {
        let folder = dir.to_owned();
        let opened = spawn_blocking(move || Core::open(folder, Io::new(faults), compact_above)).await;
        let failed = |error| OpenCheckpointsError::Io { dir: dir.to_owned(), source: Box::new(error) };
        let mut core = opened.map_err(failed)??;
        let set_aside = core.set_aside.take();
        Ok((Self { core: Arc::new(Mutex::new(core)) }, set_aside))
    }

    /// What was set aside since the store was opened or this was asked last: damage that a later `load` has met.
    pub fn take_set_aside(&mut self) -> Option<SetAside> {
        lock(&self.core).set_aside.take()
    }

    async fn run<T: Send + 'static>(
        &self,
        attempt: &'static str,
        work: impl FnOnce(&mut Core) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, CheckpointError> {
        let core = Arc::clone(&self.core);
        let done = spawn_blocking(move || work(&mut lock(&core))).await;
        let failed = |source| CheckpointError { attempt, source };
        done.map_err(|error| failed(Box::new(error)))?.map_err(|error| failed(Box::new(error)))
    }
}

impl Drop for SledCheckpoints {
    fn drop(&mut self) {
        let mut core = lock(&self.core);
        if let Err(error) = core.close() {
            tracing::error!(dir = %core.dir.display(), error = error.words(), "Checkpoint store was not closed in order");
        }
        core.folder = None;
    }
}

fn lock(core: &Mutex<Core>) -> MutexGuard<'_, Core> {
    core.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl Core ===

impl Core {
    fn open(dir: PathBuf, io: Io, compact_above: u64) -> Result<Self, OpenCheckpointsError> {
        let error = {
            let dir = dir.clone();
            move |error| match error {
                HoldError::Held => OpenCheckpointsError::Held { dir: dir.clone() },
                HoldError::Io(error) => OpenCheckpointsError::Io { dir: dir.clone(), source: Box::new(error) },
            }
        };
        let folder = Folder::create(&io, &dir).map_err(&error)?;
        let mut core = Self::over(dir, io, compact_above, folder);
        match core.start() {
            Ok(()) => {}
            Err(Unreadable::Damaged(problem)) => core.move_aside(problem).map_err(&error)?,
            Err(Unreadable::Failed(failed)) => return Err(error(HoldError::Io(failed))),
        }
        Ok(core)
    }

    /// A core of a folder that is held, before it was started.
    fn over(dir: PathBuf, io: Io, compact_above: u64, folder: Folder) -> Self {
        Self {
            dir,
            io,
            compact_above,
            db: None,
            head: None,
            folder: Some(folder),
            totals: None,
            read_at_open: None,
            set_aside: None,
        }
    }

    /// Reads the floor of a store that is there.
    fn peek(dir: PathBuf) -> Result<Option<Floor>, PeekError> {
        if !dir.join(STORE).join("db").exists() {
            return Err(PeekError::Missing { dir });
        }
        let io = Io::new(Faults::none());
        let folder = match Folder::hold(&io, &dir) {
            Ok(folder) => folder,
            Err(HoldError::Held) => return Err(PeekError::Held { dir }),
            Err(HoldError::Io(error)) => return Err(PeekError::Io { dir, source: Box::new(error) }),
        };
        let mut core = Self::over(dir.clone(), io, COMPACT_ABOVE, folder);
        let started = core.start();
        let floor = core.read_at_open.take().flatten().map(|checkpoint| checkpoint.floor);
        let closed = core.close();
        match started {
            Err(Unreadable::Damaged(problem)) => Err(PeekError::Damaged { dir, problem }),
            Err(Unreadable::Failed(error)) => Err(PeekError::Io { dir, source: Box::new(error) }),
            Ok(()) => closed.map(|()| floor).map_err(|error| PeekError::Io { dir, source: Box::new(error) }),
        }
    }

    /// Opens sled and reads the checkpoint.
    fn start(&mut self) -> Result<(), Unreadable> {
        compact::finish(&self.io, &self.dir)?;
        match open_sled(&self.io, &self.dir.join(STORE), CACHE_BYTES) {
            Ok(db) => self.db = Some(db),
            Err(HoldError::Io(error)) => return Err(error.into()),
            // The folder is ours, so what holds sled's file is no decklog.
            Err(HoldError::Held) => return Err(Unreadable::Damaged("sled's file is locked".to_owned())),
        }
        let read = self.read()?;
        self.check_head()?;
        self.read_at_open = Some(read);
        Ok(())
    }

    /// Compares what was read with how far the store had reached: sled drops a damaged end without a word.
    fn check_head(&mut self) -> Result<(), Unreadable> {
        let save = self.totals.unwrap_or_default().save();
        let (mut head, says) = Head::open(&self.io, &self.dir.join("head"))?;
        match says {
            Says::Reached(reached) if reached.last > save => {
                let problem = format!("it had reached save {}, and ends at {save}", reached.last);
                return Err(Unreadable::Damaged(problem));
            }
            Says::Missing | Says::Unreadable if save > 0 => {
                return Err(Unreadable::Damaged("the head file is missing or unreadable".to_owned()));
            }
            Says::Missing | Says::Unreadable | Says::Reached(_) => head.write(reached(save))?,
        }
        self.head = Some(head);
        Ok(())
    }

    fn load(&mut self) -> Result<Option<Checkpoint>, Failure> {
        if let Some(checkpoint) = self.read_at_open.take() {
            return Ok(checkpoint);
        }
        self.db()?;
        match self.read() {
            Ok(checkpoint) => Ok(checkpoint),
            Err(Unreadable::Failed(error)) => Err(error.into()),
            Err(Unreadable::Damaged(problem)) => {
                self.move_aside(problem).map_err(Failure::SetAside)?;
                Ok(None)
            }
        }
    }

    fn read(&mut self) -> Result<Option<Checkpoint>, Unreadable> {
        let Some(db) = &self.db else { return Ok(None) };
        let StoredCheckpoint { checkpoint, totals } = entries::read(&self.io, db)?;
        self.totals = Some(totals);
        Ok(checkpoint)
    }

    fn save(&mut self, floor: &Floor, changes: Entries) -> Result<(), Failure> {
        self.read_at_open = None;
        let totals = self.totals.take();
        let db = self.db()?;
        let totals = match totals {
            Some(totals) => totals,
            None => entries::read_totals(&self.io, db)?,
        };
        let (batch, totals) = entries::changed(&self.io, db, totals, floor, changes)?;
        self.io.call("write the checkpoint", || db.apply_batch(batch))?;
        self.io.call("flush the checkpoint", || db.flush())?;
        let size = self.io.call("measure the store", || db.size_on_disk())?;
        self.head.as_mut().ok_or(Failure::Closed)?.write(reached(totals.save()))?;
        self.totals = Some(totals);
        if size > self.compact_above.max(totals.live().saturating_mul(4)) {
            self.compact()?;
        }
        Ok(())
    }

    /// Replaces the store by a copy of what is in use.
    fn compact(&mut self) -> Result<(), Failure> {
        compact::copy(&self.io, self.db()?, &self.dir)?;
        self.close()?;
        compact::swap(&self.io, &self.dir)?;
        self.db = Some(open_sled(&self.io, &self.dir.join(STORE), CACHE_BYTES)?);
        Ok(())
    }

    /// Renames the folder and begins an empty store under its name.
    fn move_aside(&mut self, problem: String) -> Result<(), HoldError> {
        // Whether it closes in order does not matter any more.
        let _ = self.close();
        let Self { dir, io, .. } = self;
        let moved_to = free_name(io, dir)?;
        io.call("set the damaged store aside", || std::fs::rename(&*dir, &moved_to))?;
        tracing::error!(dir = %dir.display(), moved_to = %moved_to.display(), problem, "Damaged checkpoint store was set aside");
        self.folder = None;
        self.folder = Some(Folder::create(io, dir)?);
        self.db = Some(open_sled(io, &dir.join(STORE), CACHE_BYTES)?);
        let (mut head, _) = Head::open(io, &dir.join("head"))?;
        head.write(reached(0))?;
        self.head = Some(head);
        self.totals = Some(Totals::default());
        self.read_at_open = None;
        self.set_aside = Some(SetAside { moved_to, problem });
        Ok(())
    }

    fn db(&self) -> Result<&sled::Db, Failure> {
        self.db.as_ref().ok_or(Failure::Closed)
    }

    fn close(&mut self) -> Result<(), IoError> {
        let Some(db) = self.db.take() else { return Ok(()) };
        self.io.call("close the store", || {
            drop(db);
            Ok::<_, sled::Error>(())
        })
    }
}

fn reached(save: u64) -> Reached {
    Reached { last: save, block: 0, log: 0 }
}

/// A name beside the folder that nothing has yet.
fn free_name(io: &Io, dir: &Path) -> Result<PathBuf, IoError> {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let time = Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
    let mut number = 1;
    loop {
        let suffix = if number == 1 { String::new() } else { format!("-{number}") };
        let path = dir.with_file_name(format!("{name}.corrupt-{time}{suffix}"));
        if !io.call("look for a free name", || path.try_exists())? {
            return Ok(path);
        }
        number += 1;
    }
}

impl From<HoldError> for Failure {
    fn from(error: HoldError) -> Self {
        match error {
            HoldError::Io(error) => Self::Io(error),
            HoldError::Held => Self::Closed,
        }
    }
}

impl From<Unreadable> for Failure {
    fn from(unreadable: Unreadable) -> Self {
        match unreadable {
            Unreadable::Failed(error) => Self::Io(error),
            Unreadable::Damaged(problem) => Self::Damaged(problem),
        }
    }
}
