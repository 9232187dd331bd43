//! The head file: how far a log or a checkpoint store reached, so that one that was cut off is never taken for one that
//! never got further.
//!
//! sled recovers what it can read and drops a damaged tail without a word. After each commit, and before it is
//! acknowledged, what it reached goes into this file as well: two slots of [`SLOT`] bytes, written in turn.
//!
//! | bytes | what |
//! | --- | --- |
//! | 4 | CRC-32 of everything behind this field |
//! | 4 | [`MAGIC`] |
//! | 8 | generation: the slot with the higher one counts |
//! | 8 | last sequence of the log, or number of the last save; 0 if there is none |
//! | 4 | checksum of the block that the last record is in |
//! | 4 | CRC-32 of the log's incarnation |

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::io::{Io, IoError};

const MAGIC: [u8; 4] = *b"deck";
const SLOT: usize = 32;

/// How far a log or a checkpoint store reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reached {
    /// The last sequence, or the number of the last save; 0 if there is none.
    pub(crate) last: u64,
    /// Checksum of the block that the last record is in; 0 where there is none.
    pub(crate) block: u32,
    /// Which log it is; 0 for a checkpoint store.
    pub(crate) log: u32,
}

/// The open head file.
#[derive(Debug)]
pub(crate) struct Head {
    path: PathBuf,
    file: File,
    io: Io,
    generation: u64,
}

/// What the head file says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Says {
    /// There is no file.
    Missing,
    /// No slot of it can be read.
    Unreadable,
    /// It reached so far.
    Reached(Reached),
}

impl Head {
    /// Opens the file, or creates an empty one.
    pub(crate) fn open(io: &Io, path: &Path) -> Result<(Self, Says), IoError> {
        let existed = io.call("look for the head file", || path.try_exists())?;
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = io.call("open the head file", || options.open(path))?;
        let mut bytes = Vec::new();
        io.call("read the head file", || file.read_to_end(&mut bytes))?;
        let newest = bytes.chunks(SLOT).filter_map(parse).max_by_key(|(generation, _)| *generation);
        let generation = newest.map_or(0, |(generation, _)| generation);
        let says = match newest {
            Some((_, reached)) => Says::Reached(reached),
            None if existed => Says::Unreadable,
            None => Says::Missing,
        };
        Ok((Self { file, path: path.to_owned(), io: io.clone(), generation }, says))
    }

    /// Writes how far it got, into the slot that is the older one. Fails if the file is not the one under its name any
    /// more: who writes into a folder that was removed or replaced writes for nobody.
    pub(crate) fn write(&mut self, reached: Reached) -> Result<(), IoError> {
        self.generation += 1;
        let at = self.generation % 2 * SLOT as u64;
        let slot = slot(self.generation, reached);
        let Self { file, path, io, .. } = self;
        io.call("write the head file", || {
            file.seek(SeekFrom::Start(at))?;
            file.write_all(&slot)?;
            let (ours, named) = (file.metadata()?, std::fs::metadata(path)?);
            if (ours.dev(), ours.ino()) == (named.dev(), named.ino()) {
                Ok(())
            } else {
                Err(std::io::Error::other("the folder was replaced while it was in use"))
            }
        })
    }
}

fn slot(generation: u64, reached: Reached) -> [u8; SLOT] {
    let fields: [&[u8]; 5] = [
        &MAGIC,
        &generation.to_le_bytes(),
        &reached.last.to_le_bytes(),
        &reached.block.to_le_bytes(),
        &reached.log.to_le_bytes(),
    ];
    let mut slot = [0; SLOT];
    slot[4..].copy_from_slice(&fields.concat());
    let crc = crc32fast::hash(&slot[4..]);
    slot[..4].copy_from_slice(&crc.to_le_bytes());
    slot
}

fn parse(slot: &[u8]) -> Option<(u64, Reached)> {
    let (crc, checked) = slot.split_first_chunk()?;
    let (magic, rest) = checked.split_first_chunk()?;
    let (generation, rest) = rest.split_first_chunk()?;
    let (last, rest) = rest.split_first_chunk()?;
    let (block, rest) = rest.split_first_chunk()?;
    let (log, rest) = rest.split_first_chunk()?;
    let intact = crc32fast::hash(checked) == u32::from_le_bytes(*crc) && *magic == MAGIC && rest.is_empty();
    let reached =
        Reached { last: u64::from_le_bytes(*last), block: u32::from_le_bytes(*block), log: u32::from_le_bytes(*log) };
    intact.then_some((u64::from_le_bytes(*generation), reached))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::Faults;

    #[test]
    fn the_newer_slot_counts_and_a_damaged_one_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("head");
        let io = Io::new(Faults::none());
        let reached = |number: u64| Reached { last: number, block: 7, log: 9 };
        let (mut head, says) = Head::open(&io, &path).unwrap();
        assert_eq!(says, Says::Missing);
        for number in 0..5 {
            head.write(reached(number)).unwrap();
            let (_, says) = Head::open(&io, &path).unwrap();
            assert_eq!(says, Says::Reached(reached(number)));
        }
        let whole = std::fs::read(&path).unwrap();
        assert_eq!(whole.len(), 2 * SLOT);
        for bit in 0..whole.len() * 8 {
            let mut changed = whole.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, changed).unwrap();
            let (_, says) = Head::open(&io, &path).unwrap();
            assert!([3, 4].map(|number| Says::Reached(reached(number))).contains(&says), "{says:?}");
        }
        std::fs::write(&path, b"").unwrap();
        assert_eq!(Head::open(&io, &path).unwrap().1, Says::Unreadable);
    }
}
