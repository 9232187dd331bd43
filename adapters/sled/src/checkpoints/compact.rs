//! Compaction: what is in use is copied into a fresh store, which takes the place of the old one.
//!
//! 1. `store.fresh` is filled beside `store`. 2. `store` becomes `store.old`. 3. `store.fresh` becomes `store`.
//! 4. `store.old` is removed. Whatever step the process dies at, [`finish`] knows from the names which of them counts:
//!    `store`, and if there is none, `store.old`, which is complete.

use std::path::Path;

use sled::{Batch, Db};

use super::{CACHE_BYTES, STORE};
use crate::folder::{HoldError, open_sled};
use crate::io::{Io, IoError};

const FRESH: &str = "store.fresh";
const OLD: &str = "store.old";

/// How many bytes are copied in one batch.
const BATCH: usize = 1024 * 1024;

/// Ends what a compaction that was cut short has left.
pub(super) fn finish(io: &Io, dir: &Path) -> Result<(), IoError> {
    let there = |name: &str| io.call("look into the folder", || dir.join(name).try_exists());
    if !there(STORE)? && there(OLD)? {
        io.call("rename the store", || std::fs::rename(dir.join(OLD), dir.join(STORE)))?;
    }
    for leftover in [FRESH, OLD] {
        if there(leftover)? {
            remove(io, &dir.join(leftover))?;
        }
    }
    Ok(())
}

/// Copies everything into a fresh store.
pub(super) fn copy(io: &Io, db: &Db, dir: &Path) -> Result<(), HoldError> {
    let path = dir.join(FRESH);
    if io.call("look into the folder", || path.try_exists())? {
        remove(io, &path)?;
    }
    let fresh = open_sled(io, &path, CACHE_BYTES)?;
    let mut stored = db.iter();
    let (mut batch, mut size) = (Batch::default(), 0);
    while let Some((key, value)) = io.call("read the store", || stored.next().transpose())? {
        size += key.len() + value.len();
        batch.insert(key, value);
        if size >= BATCH {
            let full = std::mem::take(&mut batch);
            io.call("write the fresh store", || fresh.apply_batch(full))?;
            size = 0;
        }
    }
    io.call("write the fresh store", || fresh.apply_batch(batch))?;
    io.call("flush the fresh store", || fresh.flush())?;
    io.call("close the fresh store", || {
        drop(fresh);
        Ok::<_, sled::Error>(())
    })?;
    Ok(())
}

/// Puts the fresh store in the place of the old one, which is closed.
pub(super) fn swap(io: &Io, dir: &Path) -> Result<(), IoError> {
    io.call("rename the old store", || std::fs::rename(dir.join(STORE), dir.join(OLD)))?;
    io.call("rename the fresh store", || std::fs::rename(dir.join(FRESH), dir.join(STORE)))?;
    remove(io, &dir.join(OLD))
}

fn remove(io: &Io, path: &Path) -> Result<(), IoError> {
    io.call("remove a store that is not needed", || std::fs::remove_dir_all(path))
}
