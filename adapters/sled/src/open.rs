//! Opening the embedded log: what is on the disk against what was acknowledged, and what is kept in memory.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use decklog_engine::log::{DEDUPE_WINDOW, LogId};
use decklog_schemas::Sequence;
use jiff::Timestamp;
use uuid::Uuid;

use crate::block::Block;
use crate::folder::{Folder, HoldError, open_sled};
use crate::head::{Head, Reached, Says};
use crate::ids::Ids;
use crate::index::{Places, Recent, SEGMENT, first_of, last_of};
use crate::io::{Io, IoError};
use crate::store::{Store, Trouble};

/// How much of the log sled keeps in memory, in bytes.
const CACHE_BYTES: u64 = 64 * 1024 * 1024;

/// Under which name the store keeps the log's incarnation.
const IDENTITY: &str = "identity";

/// The log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no embedded log in the folder.
    #[error("{} is not the folder of an embedded log", dir.display())]
    NotALog {
        /// The folder.
        dir: PathBuf,
    },
    /// The log is open already.
    #[error("the log in {} is held by another process", dir.display())]
    Held {
        /// The folder.
        dir: PathBuf,
    },
    /// The log has lost what it acknowledged, or cannot be read.
    #[error(
        "the log in {} is damaged at sequence {sequence}: {problem}; it takes no events: \
         restore the folder from a copy", dir.display()
    )]
    Damaged {
        /// The folder.
        dir: PathBuf,
        /// The first place that is known to be wrong.
        sequence: Sequence,
        /// What is wrong there.
        problem: String,
    },
    /// The folder or a file in it cannot be read or written.
    #[error("cannot open the log in {}", dir.display())]
    Io {
        /// The folder.
        dir: PathBuf,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Whether a log is created where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Creation {
    Allowed,
    Never,
}

/// An open log, at rest.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) store: Store,
    pub(crate) head: Head,
    pub(crate) id: LogId,
    pub(crate) tail: Option<Sequence>,
    pub(crate) last_recorded: Timestamp,
    pub(crate) recent: Recent,
    pub(crate) ids: Ids,
    /// Dropped last.
    pub(crate) folder: Folder,
}

/// Opens the log in a folder.
pub(crate) fn open(dir: &Path, creation: Creation, io: Io) -> Result<Opened, OpenError> {
    Opening { dir, creation, io }.open()
}

/// The checksum by which the head file knows its log.
pub(crate) fn checksum_of(id: &LogId) -> u32 {
    crc32fast::hash(id.incarnation.as_bytes())
}

struct Opening<'d> {
    dir: &'d Path,
    creation: Creation,
    io: Io,
}

// === impl Opening ===

impl Opening<'_> {
    fn open(self) -> Result<Opened, OpenError> {
        let folder = self.hold()?;
        let db = open_sled(&self.io, &self.dir.join("sled"), CACHE_BYTES).map_err(|error| self.not_held(error))?;
        let store = Store::new(db, self.io.clone()).map_err(|error| self.unreadable(error))?;
        let last_block = store.last_block().map_err(|trouble| self.trouble(trouble))?;
        let tail = last_block.as_ref().map(Block::last);
        let incarnation = self.incarnation(&store, tail)?;
        let id = LogId { name: "embedded".to_owned(), incarnation };
        let head = self.check_head(&store, last_block.as_ref(), &id)?;
        let recent = self.finish_index(&store, tail).map_err(|trouble| self.trouble(trouble))?;
        let (ids, last_recorded) = newest(&store, tail).map_err(|trouble| self.trouble(trouble))?;
        Ok(Opened { store, head, id, tail, last_recorded, recent, ids, folder })
    }

    fn hold(&self) -> Result<Folder, OpenError> {
        let Self { dir, creation, io } = self;
        if *creation == Creation::Allowed {
            return Folder::create(io, dir).map_err(|error| self.not_held(error));
        }
        let looked = io.call("look for a log", || {
            Ok::<_, std::io::Error>(dir.join("head").try_exists()? || dir.join("sled").join("db").try_exists()?)
        });
        if !looked.map_err(|error| self.failed(error))? {
            return Err(self.not_a_log());
        }
        Folder::hold(io, dir).map_err(|error| self.not_held(error))
    }

    /// The log's incarnation, made now if the log is new.
    fn incarnation(&self, store: &Store, tail: Option<Sequence>) -> Result<String, OpenError> {
        if let Some(note) = store.note(IDENTITY).map_err(|error| self.unreadable(error))? {
            let (crc, text) = note.split_first_chunk().unwrap_or((&[0; 4], &[]));
            let intact = !text.is_empty() && crc32fast::hash(text) == u32::from_le_bytes(*crc);
            let text = std::str::from_utf8(text).ok().filter(|_| intact);
            return text.map(str::to_owned).ok_or_else(|| self.damaged(Sequence::FIRST, "its identity cannot be read"));
        }
        let head = self.io.call("look for the head file", || {
            self.dir.join("head").metadata().map_or(Ok(0), |m| Ok::<_, std::io::Error>(m.len()))
        });
        if tail.is_some() || head.map_err(|error| self.failed(error))? > 0 {
            return Err(self.damaged(Sequence::FIRST, "its identity is missing"));
        }
        if self.creation == Creation::Never {
            return Err(self.not_a_log());
        }
        let created = Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default();
        let incarnation = format!("{created}/{}", Uuid::now_v7());
        let note = [&crc32fast::hash(incarnation.as_bytes()).to_le_bytes(), incarnation.as_bytes()].concat();
        let written = store.set_note(IDENTITY, &note).and_then(|()| store.flush());
        written.map_err(|error| self.failed(error))?;
        Ok(incarnation)
    }

    /// Compares what is stored with how far the log had reached, and brings the head file up to date.
    fn check_head(&self, store: &Store, last: Option<&Block>, id: &LogId) -> Result<Head, OpenError> {
        let opened = Head::open(&self.io, &self.dir.join("head"));
        let (mut head, says) = opened.map_err(|error| self.failed(error))?;
        let tail = last.map(Block::last);
        let number = tail.map_or(0, Sequence::get);
        let now = Reached { last: number, block: last.map_or(0, |block| block.crc), log: checksum_of(id) };
        match says {
            Says::Missing | Says::Unreadable if tail.is_some() => {
                let problem = "the head file is missing or unreadable, and nobody knows whether records are missing";
                return Err(self.damaged(Sequence::after(tail), problem));
            }
            Says::Reached(reached) if reached.log != now.log => {
                return Err(self.damaged(Sequence::FIRST, "the head file is of another log"));
            }
            Says::Reached(Reached { last, .. }) if last > number => {
                let problem = format!("it had reached {last}, and the records from here on are missing");
                return Err(self.damaged(Sequence::after(tail), problem));
            }
            Says::Reached(Reached { last, block, .. }) => {
                if let Some(reached) = Sequence::new(last) {
                    let found = store.block_of(reached).map_err(|trouble| self.trouble(trouble))?;
                    if found.crc != block || found.last() != reached {
                        return Err(self.damaged(reached, "another record was acknowledged here"));
                    }
                }
            }
            Says::Missing | Says::Unreadable => {}
        }
        if says != Says::Reached(now) {
            head.write(now).map_err(|error| self.failed(error))?;
        }
        Ok(head)
    }

    /// Indexes the segments that are complete and have no index, and takes note of the records behind them.
    fn finish_index(&self, store: &Store, tail: Option<Sequence>) -> Result<Recent, Trouble> {
        let complete = tail.map_or(0, |tail| tail.get() / SEGMENT);
        let first = store.first_unindexed().map_err(|error| Trouble::reading(Sequence::FIRST, error))?;
        for segment in first..complete {
            let recent = noted(store, segment, first_of(segment), last_of(segment))?;
            let none = Places::new();
            let written = store.write_index(segment, recent.segment(segment).unwrap_or(&none));
            written.map_err(|error| Trouble::reading(first_of(segment), error))?;
        }
        match tail {
            None => Ok(Recent::starting_at(complete)),
            Some(tail) => noted(store, complete, first_of(complete), tail),
        }
    }

    // === errors ===

    fn not_held(&self, error: HoldError) -> OpenError {
        match error {
            HoldError::Held => OpenError::Held { dir: self.dir.to_owned() },
            HoldError::Io(error) => self.unreadable(error),
        }
    }

    fn not_a_log(&self) -> OpenError {
        OpenError::NotALog { dir: self.dir.to_owned() }
    }

    fn damaged(&self, sequence: Sequence, problem: impl Into<String>) -> OpenError {
        OpenError::Damaged { dir: self.dir.to_owned(), sequence, problem: problem.into() }
    }

    fn failed(&self, error: IoError) -> OpenError {
        OpenError::Io { dir: self.dir.to_owned(), source: Box::new(error) }
    }

    fn unreadable(&self, error: IoError) -> OpenError {
        self.trouble(Trouble::reading(Sequence::FIRST, error))
    }

    fn trouble(&self, trouble: Trouble) -> OpenError {
        match trouble {
            Trouble::Failed(error) => self.failed(error),
            Trouble::Damaged { sequence, problem } => self.damaged(sequence, problem),
        }
    }
}

/// The records of the segments from this one on, by release.
fn noted(store: &Store, segment: u64, from: Sequence, to: Sequence) -> Result<Recent, Trouble> {
    let mut recent = Recent::starting_at(segment);
    store.scan(from, to, |record| {
        recent.note(record.sequence, record.subject);
        ControlFlow::Continue(())
    })?;
    Ok(recent)
}

/// The ids of the newest records, and when the last one was recorded.
fn newest(store: &Store, tail: Option<Sequence>) -> Result<(Ids, Timestamp), Trouble> {
    let (mut ids, mut last_recorded) = (Ids::default(), Timestamp::UNIX_EPOCH);
    let Some(tail) = tail else { return Ok((ids, last_recorded)) };
    let from = Sequence::after(Sequence::new(tail.get().saturating_sub(DEDUPE_WINDOW as u64)));
    store.scan(from, tail, |record| {
        ids.note(record.id, record.sequence);
        last_recorded = record.recorded;
        ControlFlow::Continue(())
    })?;
    Ok((ids, last_recorded))
}
