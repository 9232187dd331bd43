//! The folder of a log or a checkpoint store: who holds it, and sled in it.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::io::{Io, IoError};

/// How often sled looks for something to write by itself. It is also what wakes those who wait for a write that failed.
const FLUSH_EVERY_MS: u64 = 500;

/// How long sled may take to let go of its files after it was dropped: its threads end a little later.
const LET_GO: Duration = Duration::from_secs(5);

/// A folder that this process holds, until it is dropped.
#[derive(Debug)]
pub(crate) struct Folder {
    _lock: File,
}

/// A folder cannot be held.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HoldError {
    /// Another process, or another place in this one, holds it.
    #[error("it is held by another process")]
    Held,
    #[error(transparent)]
    Io(#[from] IoError),
}

impl Folder {
    /// Creates the folder, if it is not there, and holds it.
    pub(crate) fn create(io: &Io, path: &Path) -> Result<Self, HoldError> {
        io.call("create the folder", || std::fs::create_dir_all(path))?;
        Self::hold(io, path)
    }

    /// Holds a folder that is there.
    pub(crate) fn hold(io: &Io, path: &Path) -> Result<Self, HoldError> {
        let mut options = File::options();
        options.write(true).create(true).truncate(false);
        let file = io.call("open the lock file", || options.open(path.join("lock")))?;
        let lock = io.call("lock the folder", || match file.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        })?;
        if lock { Ok(Self { _lock: file }) } else { Err(HoldError::Held) }
    }
}

/// Opens sled in a folder that is held, or creates it there, with a cache of about so many bytes.
pub(crate) fn open_sled(io: &Io, path: &Path, cache: u64) -> Result<sled::Db, HoldError> {
    let started = Instant::now();
    loop {
        let config = sled::Config::new().path(path).cache_capacity(cache).flush_every_ms(Some(FLUSH_EVERY_MS));
        match io.call("open the store", || config.open()) {
            Err(error) if error.is_locked() && started.elapsed() < LET_GO => sleep(Duration::from_millis(5)),
            Err(error) if error.is_locked() => return Err(HoldError::Held),
            opened => return Ok(opened?),
        }
    }
}
