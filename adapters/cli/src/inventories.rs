//! The folder of inventories: one YAML file for each release, whole or not at all, and none of others touched.

use std::collections::HashSet;
use std::fs::{DirEntry, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Error};
use decklog_engine::log::LogId;
use decklog_engine::service::{Sink, SinkError};
use decklog_projections::inventory::Inventories;
use decklog_schemas::inventory::{GROUP, KIND, ReleaseInventory, VERSION};
use decklog_schemas::{ReleaseKey, escape};
use sha2::{Digest as _, Sha256};

use crate::exit::Failure;
use crate::yaml;

/// Writes each inventory to `<cluster>/<namespace>/<release>.yaml`: names escaped as in subjects, files whole or not at all.
pub(crate) struct Folder {
    root: PathBuf,
    yaml: Yaml,
    is_first: bool,
    /// Held for as long as the folder is written.
    _claim: Option<Claim>,
}

/// A folder that is written by one projector, of one log.
pub(crate) struct Claim {
    /// Locked.
    _file: std::fs::File,
}

/// Name of the file in which a folder says whose it is.
const CLAIM: &str = ".decklog-log";

/// What the name of a temporary file begins and ends with, and how many random letters and digits are between.
const TEMPORARY: (&str, &str) = (".", ".new");
const RANDOM: usize = 6;

/// Whether the inventories are written as YAML.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Yaml {
    On,
    /// The next `up` writes them.
    Off,
}

impl Claim {
    /// Claims a folder for a log, unless it is somebody else's: two logs would delete each other's inventories.
    pub(crate) fn of(folder: &Path, log: &LogId) -> Result<Self, Error> {
        let path = folder.join(CLAIM);
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let open = || std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = open().with_context(|| format!("cannot open {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Failure::unreachable(format!(
                    "another `decklog project` writes {}: stop it, or name another --sink",
                    folder.display()
                )));
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {}", path.display()));
            }
        }
        let mut owner = String::new();
        file.read_to_string(&mut owner).with_context(|| format!("cannot read {}", path.display()))?;
        let (owner, log) = (owner.trim(), log.to_string());
        if !owner.is_empty() && owner != log {
            return Err(Failure::diverged(format!(
                "the inventories in {} are those of the log {owner}, and this log is {log}: nothing was changed; name \
                 another --sink, or remove {} to have them replaced",
                folder.display(),
                path.display()
            )));
        }
        if owner.is_empty() {
            file.write_all(log.as_bytes()).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(Self { _file: file })
    }
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
    pub(crate) fn new(root: PathBuf, yaml: Yaml) -> Self {
        Self { root, yaml, is_first: true, _claim: None }
    }

    /// A folder that nobody else writes.
    pub(crate) fn claimed(root: PathBuf, claim: Claim) -> Self {
        Self { root, yaml: Yaml::On, is_first: true, _claim: Some(claim) }
    }

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

/// Removes the YAML files of releases that the log does not know, such as those of a log that was here before, and the
/// temporary files of a process that was killed while it wrote them.
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
        } else if (is_ours(&path)? && !known.contains(path.as_path())) || is_left_over(&entry)? {
            std::fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// Whether a file was to become one of ours, and never did: named as temporary files are, and begun as ours are, as far as
/// it was written. Nobody else writes to the folder now.
fn is_left_over(entry: &DirEntry) -> io::Result<bool> {
    let name = entry.file_name();
    let random = name.to_str().and_then(|name| name.strip_prefix(TEMPORARY.0)?.strip_suffix(TEMPORARY.1));
    let is_random = |random: &str| random.len() == RANDOM && random.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if !entry.file_type()?.is_file() || !random.is_some_and(is_random) {
        return Ok(false);
    }
    let (text, begin) = (std::fs::read(entry.path())?, begin());
    Ok(text.starts_with(begin.as_bytes()) || begin.as_bytes().starts_with(&text))
}

/// How each of our files begins.
fn begin() -> String {
    format!("apiVersion: {GROUP}/{VERSION}\nkind: {KIND}\n")
}

/// Whether we wrote a file: nobody else's is removed, whatever somebody took for a folder of ours.
fn is_ours(path: &Path) -> io::Result<bool> {
    let is_yaml = path.extension().is_some_and(|extension| extension == "yaml");
    Ok(is_yaml && std::fs::read(path)?.starts_with(begin().as_bytes()))
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
    let mut file =
        tempfile::Builder::new().prefix(TEMPORARY.0).rand_bytes(RANDOM).suffix(TEMPORARY.1).tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}
