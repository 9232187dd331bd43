//! The log's two trees: blocks of records by sequence, and the index by release.

use std::ops::ControlFlow;

use decklog_schemas::Sequence;
use sled::{Batch, Db, IVec, Tree};

use crate::block::{Block, PIECE, Stored};
use crate::index::{self, Found, Places, first_of, last_of, release_of, segment_of, sequence_at};
use crate::io::{Io, IoError};

/// How many bytes go into one atomic batch: while sled applies it, nobody can read.
const BATCH: usize = 256 * 1024;

/// The trees, and the way to them.
#[derive(Debug)]
pub(crate) struct Store {
    events: Tree,
    index: Tree,
    pub(crate) db: Db,
    pub(crate) io: Io,
}

/// Reading failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    #[error(transparent)]
    Failed(#[from] IoError),
    #[error("the log is damaged at sequence {sequence}: {problem}")]
    Damaged { sequence: Sequence, problem: String },
}

impl Store {
    pub(crate) fn new(db: Db, io: Io) -> Result<Self, IoError> {
        let events = io.call("open the tree of events", || db.open_tree("events"))?;
        let index = io.call("open the tree of the index", || db.open_tree("index"))?;
        Ok(Self { events, index, db, io })
    }

    // === records ===

    /// The last block; none if the log is empty.
    pub(crate) fn last_block(&self) -> Result<Option<Block>, Trouble> {
        let last = self.io.call("read the last event", || self.events.last());
        let Some((key, value)) = last.map_err(|error| at(Sequence::FIRST, error))? else { return Ok(None) };
        self.block(&key, value, Sequence::FIRST).map(Some)
    }

    /// The block that a record is in.
    pub(crate) fn block_of(&self, sequence: Sequence) -> Result<Block, Trouble> {
        let found = self.io.call("read an event", || self.events.get_lt(event_key(sequence.next())));
        let found = found.map_err(|error| at(sequence, error))?;
        let (key, value) = found.ok_or_else(|| missing(sequence))?;
        let block = self.block(&key, value, sequence)?;
        if block.last() < sequence { Err(missing(sequence)) } else { Ok(block) }
    }

    /// Shows the records from one sequence to another, each and in order, until told to stop.
    pub(crate) fn scan(
        &self,
        from: Sequence,
        to: Sequence,
        mut visit: impl FnMut(&Stored<'_>) -> ControlFlow<()>,
    ) -> Result<(), Trouble> {
        if from > to {
            return Ok(());
        }
        let mut block = self.block_of(from)?;
        loop {
            let mut expected = block.first;
            for record in block.records() {
                expected = record.sequence.next();
                if (from..=to).contains(&record.sequence) && visit(&record).is_break() {
                    return Ok(());
                }
            }
            let next = block.last().next();
            if expected != next {
                return Err(missing(expected));
            }
            if next > to {
                return Ok(());
            }
            // By its key and not by an iterator: sled's cache counts a page after some 64 looks, and keeps it until then.
            let found = self.io.call("read the events", || self.events.get(event_key(next)));
            let value = found.map_err(|error| at(next, error))?.ok_or_else(|| missing(next))?;
            block = self.whole(next, value, next)?;
        }
    }

    /// The block whose first or further piece is this one.
    fn block(&self, key: &IVec, value: IVec, place: Sequence) -> Result<Block, Trouble> {
        let damaged = |problem: &str| Trouble::Damaged { sequence: place, problem: problem.to_owned() };
        let first = key.first_chunk().and_then(|number| Sequence::new(u64::from_be_bytes(*number)));
        let first = first.ok_or_else(|| damaged("there is a key that names no sequence"))?;
        let value = if is_further_piece(key) { self.piece(first, 0, place)? } else { value };
        self.whole(first, value, place)
    }

    /// The block with this first piece.
    fn whole(&self, first: Sequence, value: IVec, place: Sequence) -> Result<Block, Trouble> {
        let damaged = |problem: &str| Trouble::Damaged { sequence: place, problem: problem.to_owned() };
        let further = Block::further_pieces(&value).map_err(damaged)?;
        if further == 0 {
            return Block::read(first, value).map_err(damaged);
        }
        let mut joined = value.to_vec();
        for piece in 1..=further {
            joined.extend_from_slice(&self.piece(first, piece, place)?);
        }
        Block::read_joined(first, joined).map_err(damaged)
    }

    fn piece(&self, first: Sequence, piece: u16, place: Sequence) -> Result<IVec, Trouble> {
        let found = self.io.call("read a piece of an event", || self.events.get(piece_key(first, piece)));
        let found = found.map_err(|error| at(place, error))?;
        let problem = || format!("piece {piece} of the event is missing");
        found.ok_or_else(|| Trouble::Damaged { sequence: place, problem: problem() })
    }

    /// Writes blocks, in batches of which each is there whole or not at all, and the earlier ones before the later.
    pub(crate) fn write(&self, blocks: &[Block]) -> Result<(), IoError> {
        if let [block] = blocks
            && block.size() <= PIECE
        {
            // One value is whole without a batch, which costs sled two more writes.
            let insert = || self.events.insert(event_key(block.first), block.pieces().next().unwrap_or_default());
            return self.io.call("write an event", insert).map(|_| ());
        }
        let (mut batch, mut size) = (Batch::default(), 0);
        for (at, block) in blocks.iter().enumerate() {
            for (number, piece) in (0..).zip(block.pieces()) {
                batch.insert(piece_key(block.first, number), piece);
            }
            size += block.size();
            if size >= BATCH || at + 1 == blocks.len() {
                let batch = std::mem::take(&mut batch);
                self.io.call("write the events", || self.events.apply_batch(batch))?;
                size = 0;
            }
        }
        Ok(())
    }

    /// Returns when what was written survives the death of the process.
    pub(crate) fn flush(&self) -> Result<(), IoError> {
        self.io.call("flush the store", || self.db.flush()).map(|_| ())
    }

    // === the index ===

    /// The first segment that has no index.
    pub(crate) fn first_unindexed(&self) -> Result<u64, IoError> {
        let last = self.io.call("read the end of the index", || self.index.last())?;
        Ok(last.and_then(|(key, _)| index::segment_of_key(&key)).map_or(0, |segment| segment + 1))
    }

    /// Writes the index of a segment, whole or not at all.
    pub(crate) fn write_index(&self, segment: u64, places: &Places) -> Result<(), IoError> {
        let mut batch = Batch::default();
        for (key, value) in index::blocks(segment, places) {
            batch.insert(key, value);
        }
        self.io.call("write the index", || self.index.apply_batch(batch))
    }

    /// The sequences of a release in a segment that has an index. Where the index is damaged, the records are read.
    pub(crate) fn sequences(&self, segment: u64, release: &str) -> Result<Vec<Sequence>, Trouble> {
        let key = index::key(segment, release);
        let block = self.io.call("read the index", || self.index.range(..=key).next_back().transpose());
        let found = match block {
            Err(error) if error.is_damage() => None,
            block => block?.and_then(|(key, value)| index::look_up(segment, &key, &value, release)),
        };
        match found {
            Some(Found::Places(places)) => Ok(places.iter().map(|place| sequence_at(segment, *place)).collect()),
            Some(Found::Nothing) => Ok(Vec::new()),
            None => {
                tracing::warn!(segment, "Index cannot be read, the records are read instead");
                self.sequences_by_scan(segment, release)
            }
        }
    }

    fn sequences_by_scan(&self, segment: u64, release: &str) -> Result<Vec<Sequence>, Trouble> {
        let mut sequences = Vec::new();
        self.scan(first_of(segment), last_of(segment), |record| {
            if release_of(record.subject) == Some(release) {
                sequences.push(record.sequence);
            }
            ControlFlow::Continue(())
        })?;
        Ok(sequences)
    }

    /// The last record of a release in the segments before this one.
    pub(crate) fn tail_before(&self, segment: u64, release: &str) -> Result<Option<Sequence>, Trouble> {
        for segment in (0..segment).rev() {
            if let Some(last) = self.sequences(segment, release)?.last() {
                return Ok(Some(*last));
            }
        }
        Ok(None)
    }

    /// Shows the records of a release from one sequence on in the segments before this one, until told to stop.
    pub(crate) fn scan_release(
        &self,
        release: &str,
        from: Sequence,
        before_segment: u64,
        mut visit: impl FnMut(&Stored<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Trouble> {
        for segment in segment_of(from)..before_segment {
            let sequences = self.sequences(segment, release)?;
            let wanted = sequences.into_iter().filter(|sequence| *sequence >= from);
            if self.scan_sequences(release, wanted, &mut visit)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Shows these records, which are all of one release, until told to stop.
    pub(crate) fn scan_sequences(
        &self,
        release: &str,
        sequences: impl IntoIterator<Item = Sequence>,
        mut visit: impl FnMut(&Stored<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Trouble> {
        let mut current: Option<Block> = None;
        for sequence in sequences {
            let block = match current.take().filter(|block| sequence <= block.last()) {
                Some(block) => block,
                None => self.block_of(sequence)?,
            };
            let record = block.records().find(|record| record.sequence == sequence);
            let record = record.filter(|record| release_of(record.subject) == Some(release));
            let other = || "the index names a record of another release here".to_owned();
            let record = record.ok_or_else(|| Trouble::Damaged { sequence, problem: other() })?;
            if visit(&record).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            current = Some(block);
        }
        Ok(ControlFlow::Continue(()))
    }

    // === the log's own ===

    /// What is kept under a name besides the records.
    pub(crate) fn note(&self, name: &str) -> Result<Option<IVec>, IoError> {
        self.io.call("read the log's identity", || self.db.get(name))
    }

    /// Keeps something under a name besides the records.
    pub(crate) fn set_note(&self, name: &str, value: &[u8]) -> Result<(), IoError> {
        self.io.call("write the log's identity", || self.db.insert(name, value)).map(|_| ())
    }
}

impl Trouble {
    /// The error as what it says of the place that was read.
    pub(crate) fn reading(sequence: Sequence, error: IoError) -> Self {
        at(sequence, error)
    }
}

fn at(sequence: Sequence, error: IoError) -> Trouble {
    if error.is_damage() { Trouble::Damaged { sequence, problem: error.words() } } else { Trouble::Failed(error) }
}

fn missing(sequence: Sequence) -> Trouble {
    Trouble::Damaged { sequence, problem: "the record is missing".to_owned() }
}

fn event_key(first: Sequence) -> [u8; 8] {
    first.get().to_be_bytes()
}

/// The first piece lies under the sequence alone, the others behind it.
fn piece_key(first: Sequence, piece: u16) -> Vec<u8> {
    let mut key = event_key(first).to_vec();
    if piece > 0 {
        key.extend_from_slice(&piece.to_be_bytes());
    }
    key
}

fn is_further_piece(key: &[u8]) -> bool {
    key.len() > 8
}
