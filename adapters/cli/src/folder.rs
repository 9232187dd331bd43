//! The folder of an embedded log: log, checkpoint and inventories in it, and the engine that runs over them.

use std::collections::HashSet;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Error};
use decklog_engine::driver::{DriveError, Driver, ReplayReason, Start};
use decklog_engine::service::{Handle, Service, ServiceError, Sink, SinkError};
use decklog_projections::inventory::Inventories;
use decklog_schemas::inventory::{GROUP, KIND, ReleaseInventory, VERSION};
use decklog_schemas::{ReleaseKey, escape};
use decklog_sled::{SetAside, SledCheckpoints, SledLog};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::exit::Failure;
use crate::source::{LOG, open_failure};
use crate::yaml;

/// Name of the checkpoint store in the folder.
const CHECKPOINT: &str = "checkpoint";

/// Name of the folder of YAML files.
const INVENTORY: &str = "inventory";

/// A running embedded engine: it alone holds its folder.
pub(crate) struct Engine {
    pub(crate) handle: Handle<SledLog, Inventories>,
    stop: watch::Sender<bool>,
    /// None once its end was told.
    running: Option<JoinHandle<Result<(), ServiceError>>>,
}

/// Whether an engine writes the inventories as YAML.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Yaml {
    On,
    /// The next `up` writes them.
    Off,
}

impl Engine {
    /// Opens the folder, creating what is missing, and starts to fold.
    pub(crate) async fn start(folder: &Path, yaml: Yaml) -> Result<Self, Error> {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        refuse_vanished_log(folder)?;
        let (log, (checkpoints, set_aside)) = open(folder).await?;
        let log = Arc::new(log);
        if let Some(set_aside) = set_aside {
            let moved_to = set_aside.moved_to.display();
            tracing::warn!(%moved_to, problem = %set_aside.problem, "Checkpoint was damaged and is set aside; the log is replayed");
        }
        let (driver, start) =
            Driver::start(Arc::clone(&log), checkpoints).await.map_err(|error| start_failure(folder, error))?;
        report(&start);
        let sink = Folder { root: folder.join(INVENTORY), yaml, is_first: true };
        let (service, handle) = Service::new(log, driver, sink);
        let (stop, stopped) = watch::channel(false);
        let running = Some(tokio::spawn(service.run(stopped)));
        Ok(Self { handle, stop, running })
    }

    /// Ends when the engine does, which without [`Engine::stop`] is by an error.
    pub(crate) async fn ended(&mut self) -> Result<(), Error> {
        let Some(running) = &mut self.running else { return Ok(()) };
        let ended = running.await;
        self.running = None;
        match ended {
            Ok(ended) => Ok(ended?),
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        }
    }

    /// Saves a checkpoint and ends. Tells nothing of an end that was told before.
    pub(crate) async fn stop(mut self) -> Result<(), Error> {
        // If nobody listens any more, the engine has ended already, and says how.
        let _ = self.stop.send(true);
        self.ended().await
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

fn start_failure(folder: &Path, error: DriveError) -> Error {
    match error {
        DriveError::Diverged(_) => Failure::diverged(format!(
            "{error}: nothing was changed; put the checkpoint's own log back into {0}/{LOG}; or, if this log is the right \
             one, remove {0}/{CHECKPOINT}, which is then built again by replay",
            folder.display()
        )),
        other => other.into(),
    }
}

fn report(start: &Start) {
    match start {
        Start::Checkpoint { floor, entries } => {
            tracing::info!(%floor, releases = entries, "Starting from the checkpoint")
        }
        Start::Replay { reason: ReplayReason::NoCheckpoint } => tracing::info!("Replaying the log from its start"),
        Start::Replay { reason: ReplayReason::OtherProjection { version } } => {
            tracing::info!(version, "Checkpoint is of another version; replaying the log from its start");
        }
        Start::Replay { reason: ReplayReason::Unreadable(error) } => {
            tracing::warn!(%error, "Checkpoint cannot be read; replaying the log from its start");
        }
    }
}

/// Writes each inventory to `<cluster>/<namespace>/<release>.yaml`: names escaped as in subjects, files whole or not at all.
struct Folder {
    root: PathBuf,
    yaml: Yaml,
    is_first: bool,
}

impl Sink<Inventories> for Folder {
    async fn project(&mut self, inventories: &mut Inventories) -> Result<(), SinkError> {
        if self.yaml == Yaml::Off {
            return Ok(());
        }
        let mut keys = inventories.take_changed();
        let is_first = std::mem::replace(&mut self.is_first, false);
        if is_first {
            keys = inventories.keys().cloned().collect();
        }
        let objects: Vec<_> = keys.into_iter().map(|key| (self.path(&key), inventories.object(&key))).collect();
        if objects.is_empty() && !is_first {
            return Ok(());
        }
        let root = self.root.clone();
        let written = tokio::task::spawn_blocking(move || {
            if is_first {
                let known = objects.iter().map(|(path, _)| path.as_path()).collect();
                remove_strangers(&root, &known).map_err(|error| SinkError {
                    attempt: format!("cannot look through {}", root.display()),
                    source: error.into(),
                })?;
            }
            objects.into_iter().try_for_each(|(path, object)| {
                write(&path, object.as_ref()).map_err(|error| SinkError {
                    attempt: format!("cannot write {}", path.display()),
                    source: error.into(),
                })
            })
        });
        match written.await {
            Ok(written) => written,
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        }
    }
}

impl Folder {
    fn path(&self, key: &ReleaseKey) -> PathBuf {
        let folder = self.root.join(file_name(&key.cluster)).join(file_name(&key.namespace));
        folder.join(file_name(&key.name) + ".yaml")
    }
}

/// How long a part of a path gets before it is cut: systems take 255 bytes, and a temporary name is longer.
const NAME_BYTES: usize = 200;

/// The escaped name. One that is too long for a file is cut, and ends in a hash of all of it.
fn file_name(name: &str) -> String {
    let name = escape(name);
    if name.len() <= NAME_BYTES {
        return name.into_owned();
    }
    let hash = Sha256::digest(name.as_bytes());
    let hash = hash.iter().take(8).fold(String::new(), |hash, byte| hash + &format!("{byte:02x}"));
    format!("{}~{hash}", &name[..NAME_BYTES])
}

/// Removes the YAML files of releases that the log does not know, such as those of a log that was here before.
fn remove_strangers(folder: &Path, known: &HashSet<&Path>) -> io::Result<()> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            remove_strangers(&path, known)?;
        } else if is_ours(&path)? && !known.contains(path.as_path()) {
            std::fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// Whether we wrote a file: nobody else's is removed, whatever somebody took for a folder of ours.
fn is_ours(path: &Path) -> io::Result<bool> {
    let is_yaml = path.extension().is_some_and(|extension| extension == "yaml");
    Ok(is_yaml && std::fs::read(path)?.starts_with(format!("apiVersion: {GROUP}/{VERSION}\nkind: {KIND}\n").as_bytes()))
}

/// Puts the file in line with the object; a file that is right already is not touched.
fn write(path: &Path, object: Option<&ReleaseInventory>) -> io::Result<()> {
    let Some(object) = object else {
        return match std::fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        };
    };
    let text = yaml::to_string(object).map_err(io::Error::other)?;
    if std::fs::read(path).is_ok_and(|present| present == text.as_bytes()) {
        return Ok(());
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut file = tempfile::Builder::new().prefix(".").suffix(".new").tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}
