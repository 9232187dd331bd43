//! The folder of a log or a checkpoint store: who holds it, and sled in it.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
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
///
/// sled keeps snapshots of where its pages lie, so that it need not look through all of its log. It takes an unfinished
/// one for the newest (0.34.7 leaves `.generating` files out nowhere), and gives up on a damaged one. Neither has
/// anything that the log has not: what is unfinished is removed, and what is damaged is put out of sled's sight.
pub(crate) fn open_sled(io: &Io, path: &Path, cache: u64) -> Result<sled::Db, HoldError> {
    for unfinished in snapshots(io, path)?.iter().filter(|file| file.ends_with(".generating")) {
        io.call("remove an unfinished snapshot", || std::fs::remove_file(path.join(unfinished)))?;
    }
    match open_unlocked(io, path, cache) {
        Err(HoldError::Io(error)) if error.is_damage() => {
            let damaged = snapshots(io, path)?;
            if damaged.is_empty() {
                return Err(error.into());
            }
            tracing::warn!(folder = %path.display(), problem = %error.words(), "Snapshot of sled is damaged; it looks through its log");
            for file in damaged {
                let aside = path.join(format!("damaged.{file}"));
                io.call("put a damaged snapshot aside", || std::fs::rename(path.join(&file), aside))?;
            }
            open_unlocked(io, path, cache)
        }
        opened => opened,
    }
}

/// Names of the snapshot files in the folder of a sled.
fn snapshots(io: &Io, path: &Path) -> Result<Vec<String>, IoError> {
    let listed = io.call("list the store's files", || match std::fs::read_dir(path) {
        Ok(entries) => entries.collect::<Result<Vec<_>, _>>(),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    })?;
    let names = listed.into_iter().filter_map(|entry| entry.file_name().into_string().ok());
    Ok(names.filter(|name| name.starts_with("snap.")).collect())
}

fn open_unlocked(io: &Io, path: &Path, cache: u64) -> Result<sled::Db, HoldError> {
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
