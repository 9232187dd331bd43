//! The folder of an embedded log: log, checkpoint and inventories in it, and the engine that runs over them.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Error};
use decklog_engine::service::Sink;
use decklog_projections::inventory::Inventories;
use decklog_sled::{SetAside, SledCheckpoints, SledLog};

use crate::engine::Engine;
use crate::exit::Failure;
use crate::inventories::{Folder, Yaml};
use crate::source::{LOG, open_failure};

/// Name of the checkpoint store in the folder.
pub(crate) const CHECKPOINT: &str = "checkpoint";

/// Name of the folder of YAML files.
const INVENTORY: &str = "inventory";

/// A running embedded engine: it alone holds its folder.
pub(crate) type Embedded = Engine<SledLog>;

impl Embedded {
    /// Opens the folder, creating what is missing, and starts to fold; the inventories go into files in it.
    pub(crate) async fn start(folder: &Path, yaml: Yaml) -> Result<Self, Error> {
        Self::start_with(folder, Folder::new(folder.join(INVENTORY), yaml)).await
    }

    /// The same, with another sink.
    pub(crate) async fn start_with(folder: &Path, sink: impl Sink<Inventories>) -> Result<Self, Error> {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        refuse_vanished_log(folder)?;
        let (log, checkpoints) = open(folder).await?;
        let way_out = format!(
            "put the checkpoint's own log back into {0}/{LOG}; or, if this log is the right one, remove {0}/{CHECKPOINT}, \
             which is then built again by replay",
            folder.display()
        );
        Self::over(Arc::new(log), checkpoints, sink, way_out).await
    }
}

/// Opens log and checkpoint side by side, for each takes its time. A new log is there before its checkpoint is.
async fn open(folder: &Path) -> Result<(SledLog, (SledCheckpoints, Option<SetAside>)), Error> {
    let (log, checkpoint) = (folder.join(LOG), folder.join(CHECKPOINT));
    let failure = |error| open_failure(folder, error);
    if log.join("sled/db").exists() {
        let (log, checkpoints) = tokio::join!(SledLog::open(&log), SledCheckpoints::open(&checkpoint));
        return Ok((log.map_err(failure)?, checkpoints?));
    }
    let log = SledLog::open(&log).await.map_err(failure)?;
    Ok((log, SledCheckpoints::open(&checkpoint).await?))
}

/// A log is never created anew over a checkpoint: it would answer as if nothing had been.
fn refuse_vanished_log(folder: &Path) -> Result<(), Error> {
    if folder.join(LOG).join("sled/db").exists() || !folder.join(CHECKPOINT).join("store/db").exists() {
        return Ok(());
    }
    Err(Failure::diverged(format!(
        "the log in {0}/{LOG} is gone, and the checkpoint that was made from it is there: put the log back; or, to begin \
         with an empty one, remove {0}/{CHECKPOINT} as well",
        folder.display()
    )))
}
