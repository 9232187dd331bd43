//! A block: the records of one or a few events in a row, as they lie in one value of the store.
//!
//! sled's cost is per key, so records that are appended together share a block of up to [`PIECE`] bytes. A record that
//! is larger has a block of its own, cut into pieces.
//!
//! | bytes | what |
//! | --- | --- |
//! | 4 | CRC-32 of the first sequence (big-endian) and of everything behind this field |
//! | 1 | schema, [`SCHEMA`] |
//! | 2 | number of records |
//! | 2 | number of further pieces |
//! | 18 each, before each record | recorded time in µs (8), length of the event (4), of the subject (2) and of the id (2), and where in the event the id stands (2), or [`APART`] |
//! | – | subject, the id if it stands apart, event |
//!
//! Integers are little-endian.

use decklog_schemas::Sequence;
use jiff::Timestamp;
use sled::IVec;

/// The most bytes that lie under one key. sled keeps up to 19 values in a leaf, writes a leaf of more than 128 KiB as a
/// file of its own, which it does not always remove, and may keep some thousand leaves more in memory than its cache
/// counts: twice the bytes here are no faster and need twice the memory.
pub(crate) const PIECE: usize = 3 * 1024;

/// The version of the layout.
pub(crate) const SCHEMA: u8 = 1;

/// The id does not stand in the event and lies beside it.
const APART: u16 = u16::MAX;

/// How far into an event an id is looked for.
const ID_WITHIN: usize = 1_024;

const HEADER: usize = 9;
const RECORD_HEADER: usize = 18;

/// One block, checked.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) first: Sequence,
    pub(crate) count: u16,
    /// What identifies its content.
    pub(crate) crc: u32,
    bytes: Bytes,
}

#[derive(Debug)]
enum Bytes {
    Shared(IVec),
    Joined(Vec<u8>),
}

/// One record in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored<'b> {
    pub(crate) sequence: Sequence,
    pub(crate) recorded: Timestamp,
    pub(crate) subject: &'b str,
    pub(crate) id: &'b str,
    pub(crate) event: &'b [u8],
}

/// A block that is being filled.
#[derive(Debug)]
pub(crate) struct Draft {
    first: Sequence,
    count: u16,
    bytes: Vec<u8>,
}

// === impl Draft ===

impl Draft {
    /// A block whose first record is this one.
    pub(crate) fn starting_with(record: &Stored<'_>) -> Self {
        let mut draft = Self { first: record.sequence, count: 0, bytes: vec![0; HEADER] };
        draft.push(record);
        draft
    }

    /// Whether there is room for another record.
    pub(crate) fn has_room_for(&self, record: &Stored<'_>) -> bool {
        let most = RECORD_HEADER + record.subject.len() + record.id.len() + record.event.len();
        self.bytes.len() + most <= PIECE
    }

    /// Adds the next record. Its texts and its event are within the limits of the log.
    pub(crate) fn push(&mut self, record: &Stored<'_>) {
        let Stored { recorded, subject, id, event, .. } = record;
        let id_at = place_of(id, event);
        self.count += 1;
        self.bytes.extend_from_slice(&recorded.as_microsecond().to_le_bytes());
        self.bytes.extend_from_slice(&(event.len() as u32).to_le_bytes());
        for number in [subject.len() as u16, id.len() as u16, id_at] {
            self.bytes.extend_from_slice(&number.to_le_bytes());
        }
        self.bytes.extend_from_slice(subject.as_bytes());
        if id_at == APART {
            self.bytes.extend_from_slice(id.as_bytes());
        }
        self.bytes.extend_from_slice(event);
    }

    /// The block, ready to be stored.
    pub(crate) fn finish(self) -> Block {
        let Self { first, count, mut bytes } = self;
        let further = bytes.len().div_ceil(PIECE) - 1;
        bytes[4] = SCHEMA;
        bytes[5..7].copy_from_slice(&count.to_le_bytes());
        bytes[7..9].copy_from_slice(&(further as u16).to_le_bytes());
        let crc = checksum(first, &bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        Block { first, count, crc, bytes: Bytes::Joined(bytes) }
    }
}

/// Where in an event its id stands.
fn place_of(id: &str, event: &[u8]) -> u16 {
    let within = &event[..event.len().min(ID_WITHIN)];
    let place = within.windows(id.len()).position(|window| window == id.as_bytes());
    place.map_or(APART, |place| place as u16)
}

// === impl Block ===

impl Block {
    /// How many more pieces a block has, by its first one.
    pub(crate) fn further_pieces(first_piece: &[u8]) -> Result<u16, &'static str> {
        let [_, _, _, _, schema, _, _, low, high, ..] = *first_piece else { return Err("the block is cut off") };
        if schema == SCHEMA { Ok(u16::from_le_bytes([low, high])) } else { Err("the block has an unknown schema") }
    }

    /// Checks a block that is one piece.
    pub(crate) fn read(first: Sequence, piece: IVec) -> Result<Self, &'static str> {
        Self::check(first, Bytes::Shared(piece))
    }

    /// Checks a block that was put together from its pieces.
    pub(crate) fn read_joined(first: Sequence, pieces: Vec<u8>) -> Result<Self, &'static str> {
        Self::check(first, Bytes::Joined(pieces))
    }

    fn check(first: Sequence, bytes: Bytes) -> Result<Self, &'static str> {
        let [a, b, c, d, checked @ ..] = bytes.as_slice() else { return Err("the block is cut off") };
        let crc = u32::from_le_bytes([*a, *b, *c, *d]);
        if checksum(first, checked) != crc {
            return Err("the checksum does not match");
        }
        let [SCHEMA, low, high, _, _, ..] = *checked else { return Err("the block has an unknown schema") };
        match u16::from_le_bytes([low, high]) {
            0 => Err("the block has no records"),
            count => Ok(Self { first, count, crc, bytes }),
        }
    }

    /// Place of the last record.
    pub(crate) fn last(&self) -> Sequence {
        let behind = u64::from(self.count) - 1;
        Sequence::new(self.first.get() + behind).unwrap_or(self.first)
    }

    /// The records in their order. If they are fewer than it counts, the writer or the reader has a mistake.
    pub(crate) fn records(&self) -> impl Iterator<Item = Stored<'_>> {
        let mut rest = self.bytes.as_slice().get(HEADER..).unwrap_or_default();
        let mut sequence = self.first;
        std::iter::from_fn(move || {
            let record = take_record(&mut rest, sequence)?;
            sequence = sequence.next();
            Some(record)
        })
    }

    /// The pieces, each to be stored under a key of its own.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.as_slice().chunks(PIECE)
    }

    /// How many bytes it has.
    pub(crate) fn size(&self) -> usize {
        self.bytes.as_slice().len()
    }
}

impl Bytes {
    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Shared(bytes) => bytes,
            Self::Joined(bytes) => bytes,
        }
    }
}

fn take_record<'b>(rest: &mut &'b [u8], sequence: Sequence) -> Option<Stored<'b>> {
    let (header, behind) = rest.split_first_chunk::<RECORD_HEADER>()?;
    let short = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    let (micros, [a, b, c, d, ..]) = header.split_first_chunk::<8>()? else { return None };
    let event_length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
    let (subject_length, id_length, id_at) = (short(12), short(14), short(16));
    let (subject, behind) = behind.split_at_checked(usize::from(subject_length))?;
    let apart = if id_at == APART { usize::from(id_length) } else { 0 };
    let (id, behind) = behind.split_at_checked(apart)?;
    let (event, behind) = behind.split_at_checked(event_length)?;
    let id_at = usize::from(id_at);
    let id = if apart > 0 { id } else { event.get(id_at..id_at + usize::from(id_length))? };
    *rest = behind;
    Some(Stored {
        sequence,
        recorded: Timestamp::from_microsecond(i64::from_le_bytes(*micros)).ok()?,
        subject: std::str::from_utf8(subject).ok()?,
        id: std::str::from_utf8(id).ok()?,
        event,
    })
}

fn checksum(first: Sequence, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&first.get().to_be_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: u64, id: &'static str, event: &'static [u8]) -> Stored<'static> {
        let recorded = Timestamp::from_microsecond(1_700_000_000_123_456).unwrap();
        let subject = "decklog.release.default.shop.checkout.release.SyncStarted";
        Stored { sequence: Sequence::new(number).unwrap(), recorded, subject, id, event }
    }

    #[test]
    fn records_come_back_as_they_went_in() {
        let records =
            [record(7, "id-1", br#"{"id":"id-1"}"#), record(8, "elsewhere", b""), record(9, "x", &[0x80; 4_000])];
        let mut draft = Draft::starting_with(&records[0]);
        assert!(draft.has_room_for(&records[1]) && !draft.has_room_for(&records[2]));
        draft.push(&records[1]);
        draft.push(&records[2]);
        let block = draft.finish();
        let pieces: Vec<_> = block.pieces().collect();
        assert_eq!(Block::further_pieces(pieces[0]), Ok(1));
        let read = Block::read_joined(block.first, pieces.concat()).unwrap();
        assert_eq!(read.records().collect::<Vec<_>>(), records);
        assert_eq!((read.last().get(), read.crc), (9, block.crc));
    }

    #[test]
    fn any_changed_bit_and_any_other_place_is_found() {
        let block = Draft::starting_with(&record(7, "id-1", b"{}")).finish();
        let bytes = block.bytes.as_slice();
        assert!(Block::read(block.first.next(), bytes.into()).is_err());
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.to_vec();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(Block::read(block.first, changed.into()).is_err(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(Block::read(block.first, bytes[..length].into()).is_err(), "length {length}");
        }
    }
}
