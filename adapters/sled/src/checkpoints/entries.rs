//! A checkpoint as keys and values of one tree, so that one atomic batch holds all of a save.
//!
//! The floor lies under [`FLOOR`]; it counts the entries and sums them up, so that one that is lost, or is of an
//! earlier save, is found. An entry lies under [`ENTRY`], the length of its key (4 bytes, big-endian), its key and the
//! number of the piece (4 bytes, big-endian). Integers in values are little-endian.
//!
//! | bytes | first piece of an entry |
//! | --- | --- |
//! | 4 | CRC-32 of the key and of everything behind this field, in all pieces |
//! | 1 | schema, [`SCHEMA`] |
//! | 8 | number of the save that wrote it |
//! | 8 | length of the value |
//! | – | value |

use std::collections::BTreeMap;

use decklog_engine::checkpoint::{Change, Checkpoint, Entries, Floor};
use decklog_engine::log::LogId;
use decklog_schemas::Sequence;
use sled::{Batch, Db, IVec};

use super::Failure;
use crate::block::PIECE;
use crate::io::{Io, IoError};

const SCHEMA: u8 = 1;
const FLOOR: &[u8] = &[0];
const ENTRY: u8 = 1;
const HEADER: usize = 21;

/// The most pieces that a value may have.
const MAX_PIECES: usize = 1 << 20;

/// What is stored, read and checked.
pub(super) struct StoredCheckpoint {
    pub(super) checkpoint: Option<Checkpoint>,
    pub(super) totals: Totals,
}

/// Sums over all entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    /// Number of the last save.
    save: u64,
    entries: u64,
    /// Sum of what identifies each entry.
    sum: u64,
    /// Bytes of keys and values.
    live: u64,
}

/// The store cannot be read.
#[derive(Debug)]
pub(super) enum Unreadable {
    Failed(IoError),
    Damaged(String),
}

/// What is known of an entry without its value.
#[derive(Clone, Copy, Debug)]
struct Header {
    crc: u32,
    length: u64,
}

// === reading ===

/// Reads and checks everything.
pub(super) fn read(io: &Io, db: &Db) -> Result<StoredCheckpoint, Unreadable> {
    let floor = read_floor(io, db)?;
    let mut found = Totals { save: floor.as_ref().map_or(0, |(_, totals)| totals.save), ..Totals::default() };
    let mut entries = Vec::new();
    let mut stored = db.scan_prefix([ENTRY]);
    while let Some((stored_key, first)) = io.call("read the checkpoint", || stored.next().transpose())? {
        let key = match parse_key(&stored_key) {
            Some((key, 0)) => key.to_vec(),
            Some((_, piece)) => return Err(damaged(format!("piece {piece} of an entry has no beginning"))),
            None => return Err(damaged("an entry has no key")),
        };
        let mut value = first.to_vec();
        let header = Header::parse(&value).ok_or_else(|| damaged("an entry is cut off"))?;
        for piece in 1..header.pieces() {
            let next = io.call("read the checkpoint", || stored.next().transpose())?;
            let next = next.filter(|(stored_key, _)| parse_key(stored_key) == Some((&key, piece as u32)));
            let (_, bytes) = next.ok_or_else(|| damaged(format!("piece {piece} of an entry is missing")))?;
            value.extend_from_slice(&bytes);
        }
        if value.len() as u64 != HEADER as u64 + header.length || checksum(&key, &value[4..]) != header.crc {
            return Err(damaged("the checksum of an entry does not match"));
        }
        found.add(&key, header);
        entries.push((key, value.split_off(HEADER)));
    }
    entries.sort_unstable();
    match floor {
        None if entries.is_empty() => Ok(StoredCheckpoint { checkpoint: None, totals: found }),
        None => Err(damaged("there are entries and no floor")),
        Some((_, totals)) if totals != found => Err(damaged("the entries are not those of the last save")),
        Some((floor, totals)) => Ok(StoredCheckpoint { checkpoint: Some(Checkpoint { floor, entries }), totals }),
    }
}

/// Reads the sums of the last save.
pub(super) fn read_totals(io: &Io, db: &Db) -> Result<Totals, Unreadable> {
    Ok(read_floor(io, db)?.map_or_else(Totals::default, |(_, totals)| totals))
}

fn read_floor(io: &Io, db: &Db) -> Result<Option<(Floor, Totals)>, Unreadable> {
    let Some(value) = io.call("read the floor", || db.get(FLOOR))? else { return Ok(None) };
    let floor = parse_floor(&value).ok_or_else(|| damaged("the floor cannot be read"))?;
    Ok(Some(floor))
}

// === changing ===

/// What a save writes, and the sums when it is written.
pub(super) fn changed(
    io: &Io,
    db: &Db,
    mut totals: Totals,
    floor: &Floor,
    entries: Entries,
) -> Result<(Batch, Totals), Failure> {
    let (changes, mut stored) = match entries {
        Entries::Changed(changes) => (changes, None),
        Entries::All(changes) => (changes, Some(all_headers(io, db)?)),
    };
    totals.save += 1;
    let mut batch = Batch::default();
    for (key, value) in last_of_each(changes) {
        let old = match &mut stored {
            None => header_of(io, db, &key)?,
            Some(stored) => stored.remove(&key),
        };
        let mut kept = 0;
        if let Some(value) = value {
            let (header, bytes) = seal(&key, totals.save, &value)?;
            for (piece, bytes) in (0..).zip(bytes.chunks(PIECE)) {
                batch.insert(stored_key(&key, piece), bytes);
            }
            totals.add(&key, header);
            kept = header.pieces();
        }
        if let Some(old) = old {
            totals.subtract(&key, old);
            remove_pieces(&mut batch, &key, kept..old.pieces());
        }
    }
    // With `Entries::All`, what was stored and is not put again.
    for (key, old) in stored.into_iter().flatten() {
        totals.subtract(&key, old);
        remove_pieces(&mut batch, &key, 0..old.pieces());
    }
    batch.insert(FLOOR, floor_bytes(floor, &totals));
    Ok((batch, totals))
}

fn last_of_each(changes: Vec<Change>) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
    changes.into_iter().collect()
}

fn remove_pieces(batch: &mut Batch, key: &[u8], pieces: std::ops::Range<usize>) {
    for piece in pieces {
        batch.remove(stored_key(key, piece as u32));
    }
}

fn header_of(io: &Io, db: &Db, key: &[u8]) -> Result<Option<Header>, Failure> {
    let first = io.call("read an entry", || db.get(stored_key(key, 0)))?;
    first.map(|first| header(&first)).transpose()
}

fn all_headers(io: &Io, db: &Db) -> Result<BTreeMap<Vec<u8>, Header>, Failure> {
    let mut headers = BTreeMap::new();
    let mut stored = db.scan_prefix([ENTRY]);
    while let Some((stored_key, value)) = io.call("read the entries", || stored.next().transpose())? {
        if let Some((key, 0)) = parse_key(&stored_key) {
            headers.insert(key.to_vec(), header(&value)?);
        }
    }
    Ok(headers)
}

fn header(first: &IVec) -> Result<Header, Failure> {
    Header::parse(first).ok_or_else(|| Failure::Damaged("an entry is cut off".to_owned()))
}

fn seal(key: &[u8], save: u64, value: &[u8]) -> Result<(Header, Vec<u8>), Failure> {
    let length = value.len() as u64;
    let mut bytes = vec![0, 0, 0, 0, SCHEMA];
    bytes.extend_from_slice(&save.to_le_bytes());
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(value);
    let header = Header { crc: checksum(key, &bytes[4..]), length };
    bytes[..4].copy_from_slice(&header.crc.to_le_bytes());
    if header.pieces() > MAX_PIECES { Err(Failure::TooLarge { size: value.len() }) } else { Ok((header, bytes)) }
}

// === layout ===

fn stored_key(key: &[u8], piece: u32) -> Vec<u8> {
    let length = (key.len() as u32).to_be_bytes();
    [&[ENTRY][..], &length, key, &piece.to_be_bytes()].concat()
}

fn parse_key(stored_key: &[u8]) -> Option<(&[u8], u32)> {
    let (_, rest) = stored_key.split_first()?;
    let (length, rest) = rest.split_first_chunk()?;
    let (key, piece) = rest.split_last_chunk()?;
    let fits = u32::from_be_bytes(*length) as usize == key.len();
    fits.then(|| (key, u32::from_be_bytes(*piece)))
}

fn floor_bytes(floor: &Floor, totals: &Totals) -> Vec<u8> {
    let Floor { log, sequence, hash, projection } = floor;
    let mut bytes = vec![0, 0, 0, 0, SCHEMA];
    for number in [totals.save, totals.entries, totals.sum, totals.live, sequence.get()] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(&projection.to_le_bytes());
    bytes.extend_from_slice(hash);
    bytes.extend_from_slice(&(log.name.len() as u32).to_le_bytes());
    bytes.extend_from_slice(log.name.as_bytes());
    bytes.extend_from_slice(log.incarnation.as_bytes());
    let crc = checksum(FLOOR, &bytes[4..]);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn parse_floor(bytes: &[u8]) -> Option<(Floor, Totals)> {
    let (crc, checked) = bytes.split_first_chunk()?;
    if checksum(FLOOR, checked) != u32::from_le_bytes(*crc) {
        return None;
    }
    let (&SCHEMA, mut rest) = checked.split_first()? else { return None };
    let mut number = || {
        let (number, behind) = rest.split_first_chunk()?;
        rest = behind;
        Some(u64::from_le_bytes(*number))
    };
    let totals = Totals { save: number()?, entries: number()?, sum: number()?, live: number()? };
    let sequence = Sequence::new(number()?)?;
    let (projection, rest) = rest.split_first_chunk()?;
    let (hash, rest) = rest.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let (name, incarnation) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    let log = LogId { name: text(name)?, incarnation: text(incarnation)? };
    Some((Floor { log, sequence, hash: *hash, projection: u32::from_le_bytes(*projection) }, totals))
}

fn checksum(key: &[u8], value: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(value);
    hasher.finalize()
}

// === impl Header ===

impl Header {
    fn parse(first: &[u8]) -> Option<Self> {
        let (crc, rest) = first.split_first_chunk()?;
        let (&SCHEMA, rest) = rest.split_first()? else { return None };
        let (_save, rest) = rest.split_first_chunk::<8>()?;
        let (length, _) = rest.split_first_chunk()?;
        let header = Self { crc: u32::from_le_bytes(*crc), length: u64::from_le_bytes(*length) };
        (header.length < (MAX_PIECES * PIECE) as u64).then_some(header)
    }

    fn pieces(self) -> usize {
        (HEADER + self.length as usize).div_ceil(PIECE)
    }

    /// What identifies the entry among all that were ever saved; the number of its save is in the checksum.
    fn identity(self) -> u64 {
        let mixed = (u64::from(self.crc) | self.length << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    }

    fn size(self, key: &[u8]) -> u64 {
        key.len() as u64 + self.length
    }
}

// === impl Totals ===

impl Totals {
    /// Number of the last save; 0 before the first.
    pub(super) fn save(self) -> u64 {
        self.save
    }

    /// How many bytes of keys and values are in use.
    pub(super) fn live(self) -> u64 {
        self.live
    }

    fn add(&mut self, key: &[u8], header: Header) {
        self.entries = self.entries.wrapping_add(1);
        self.sum = self.sum.wrapping_add(header.identity());
        self.live = self.live.wrapping_add(header.size(key));
    }

    fn subtract(&mut self, key: &[u8], header: Header) {
        self.entries = self.entries.wrapping_sub(1);
        self.sum = self.sum.wrapping_sub(header.identity());
        self.live = self.live.wrapping_sub(header.size(key));
    }
}

// === errors ===

fn damaged(problem: impl Into<String>) -> Unreadable {
    Unreadable::Damaged(problem.into())
}

impl From<IoError> for Unreadable {
    fn from(error: IoError) -> Self {
        if error.is_damage() { Self::Damaged(error.words()) } else { Self::Failed(error) }
    }
}
