//! The index by release: for a segment of 16,384 sequences, which of them are whose.
//!
//! The newest segment is in memory only. One that is complete is written once, as blocks of entries that are sorted by
//! the releases' tokens. A block lies under the number of its segment (8 bytes, big-endian) and the first tokens that
//! it is responsible for, and says how far that goes: a block that is lost is never taken for a release that has no
//! records. The index can be made anew from the records at any time, and is passed over where it cannot be read.
//!
//! | bytes | what |
//! | --- | --- |
//! | 4 | CRC-32 of the key and of everything behind this field |
//! | 1 | schema, [`SCHEMA`] |
//! | 2 + n | the tokens that the next block begins with; nothing behind the length [`u16::MAX`], for the last one |
//! | 2 + n | tokens of a release |
//! | 1 | 0: differences, 1: a bitmap |
//! | 2 + n | its places in the segment: the first place and the differences as varints, or one bit a place |

use std::collections::{BTreeMap, HashMap};

use decklog_schemas::Sequence;
use decklog_schemas::subject::Subject;

use crate::block::SCHEMA;

/// How many sequences share an index.
pub(crate) const SEGMENT: u64 = 16_384;

/// How many bytes a bitmap of a segment has.
const BITMAP: usize = 2_048;

/// How many bytes the entries of a block have, if there is more than one.
const ENTRIES: usize = 2 * 1024;

/// No block follows.
const LAST: u16 = u16::MAX;

/// The places of the records of the segments that are not indexed yet, by the tokens of their releases.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    segments: BTreeMap<u64, Places>,
    /// The first segment that is not indexed.
    first: u64,
}

/// The places of one segment.
pub(crate) type Places = HashMap<Box<str>, Vec<u16>>;

/// What one block says of a release.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It has records at these places of the segment.
    Places(Vec<u16>),
    /// It has none there.
    Nothing,
}

/// The number of the segment that a sequence is in.
pub(crate) fn segment_of(sequence: Sequence) -> u64 {
    (sequence.get() - 1) / SEGMENT
}

/// The first sequence of a segment.
pub(crate) fn first_of(segment: u64) -> Sequence {
    Sequence::after(Sequence::new(segment * SEGMENT))
}

/// The last sequence of a segment.
pub(crate) fn last_of(segment: u64) -> Sequence {
    Sequence::new((segment + 1) * SEGMENT).unwrap_or(Sequence::FIRST)
}

/// The sequence at a place of a segment.
pub(crate) fn sequence_at(segment: u64, place: u16) -> Sequence {
    Sequence::after(Sequence::new(segment * SEGMENT + u64::from(place)))
}

fn place_of(sequence: Sequence) -> u16 {
    ((sequence.get() - 1) % SEGMENT) as u16
}

/// The tokens of the release that a subject names, if it names one.
pub(crate) fn release_of(subject: &str) -> Option<&str> {
    match Subject::parse(subject)? {
        Subject::Release { release, .. } => Some(release.as_str()),
        Subject::Deployment => None,
    }
}

// === impl Recent ===

impl Recent {
    /// Nothing is known from this segment on.
    pub(crate) fn starting_at(segment: u64) -> Self {
        Self { segments: BTreeMap::new(), first: segment }
    }

    /// The first segment that is not indexed.
    pub(crate) fn first_segment(&self) -> u64 {
        self.first
    }

    /// Takes note of the next record.
    pub(crate) fn note(&mut self, sequence: Sequence, subject: &str) {
        let places = self.segments.entry(segment_of(sequence)).or_default();
        let Some(release) = release_of(subject) else { return };
        match places.get_mut(release) {
            Some(places) => places.push(place_of(sequence)),
            None => drop(places.insert(release.into(), vec![place_of(sequence)])),
        }
    }

    /// The sequences of a release from one sequence to another.
    pub(crate) fn sequences(&self, release: &str, from: Sequence, to: Sequence) -> Vec<Sequence> {
        let segments = self.segments.range(segment_of(from)..);
        let places = segments.filter_map(|(segment, places)| Some((*segment, places.get(release)?)));
        let sequences =
            places.flat_map(|(segment, places)| places.iter().map(move |place| sequence_at(segment, *place)));
        sequences.filter(|sequence| (from..=to).contains(sequence)).collect()
    }

    /// The last sequence of a release.
    pub(crate) fn tail(&self, release: &str) -> Option<Sequence> {
        let mut segments = self.segments.iter().rev();
        segments.find_map(|(segment, places)| Some(sequence_at(*segment, *places.get(release)?.last()?)))
    }

    /// The places of a segment.
    pub(crate) fn segment(&self, segment: u64) -> Option<&Places> {
        self.segments.get(&segment)
    }

    /// Forgets a segment that is indexed now.
    pub(crate) fn forget(&mut self, segment: u64) -> Places {
        self.first = segment + 1;
        self.segments.remove(&segment).unwrap_or_default()
    }
}

// === blocks ===

/// The key of the block of a segment that begins with these tokens, and the last key that can be before a release's.
pub(crate) fn key(segment: u64, release: &str) -> Vec<u8> {
    [&segment.to_be_bytes(), release.as_bytes()].concat()
}

/// The segment that a key of the index belongs to.
pub(crate) fn segment_of_key(key: &[u8]) -> Option<u64> {
    key.first_chunk().map(|segment| u64::from_be_bytes(*segment))
}

/// The index of a segment, as keys and values.
pub(crate) fn blocks(segment: u64, places: &Places) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut sorted: Vec<_> = places.iter().collect();
    sorted.sort_unstable();
    let mut blocks: Vec<(&str, Vec<u8>)> = vec![("", Vec::new())];
    for (release, places) in sorted {
        let entry = entry(release, places);
        let full = blocks.last().is_some_and(|(_, entries)| entries.len() + entry.len() > ENTRIES);
        if full && blocks.last().is_some_and(|(_, entries)| !entries.is_empty()) {
            blocks.push((release, Vec::new()));
        }
        if let Some((_, entries)) = blocks.last_mut() {
            entries.extend_from_slice(&entry);
        }
    }
    let next = blocks.iter().skip(1).map(|(first, _)| Some(*first)).chain([None]).collect::<Vec<_>>();
    blocks.iter().zip(next).map(|((first, entries), next)| seal(key(segment, first), next, entries)).collect()
}

fn seal(key: Vec<u8>, next: Option<&str>, entries: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut value = vec![0, 0, 0, 0, SCHEMA];
    match next {
        Some(next) => put_text(&mut value, next.as_bytes()),
        None => value.extend_from_slice(&LAST.to_le_bytes()),
    }
    value.extend_from_slice(entries);
    let crc = checksum(&key, &value[4..]);
    value[..4].copy_from_slice(&crc.to_le_bytes());
    (key, value)
}

fn entry(release: &str, places: &[u16]) -> Vec<u8> {
    let mut entry = Vec::new();
    put_text(&mut entry, release.as_bytes());
    let mut differences = Vec::new();
    let mut before = 0;
    for place in places {
        put_varint(&mut differences, place - before);
        before = *place;
    }
    if differences.len() <= BITMAP {
        entry.push(0);
        put_text(&mut entry, &differences);
    } else {
        let mut bitmap = vec![0_u8; BITMAP];
        for place in places {
            bitmap[usize::from(place / 8)] |= 1 << (place % 8);
        }
        entry.push(1);
        put_text(&mut entry, &bitmap);
    }
    entry
}

fn put_text(bytes: &mut Vec<u8>, text: &[u8]) {
    bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
    bytes.extend_from_slice(text);
}

fn put_varint(bytes: &mut Vec<u8>, mut number: u16) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Looks a release up in the block whose key is the last one at or before the release's own; none if that block is
/// damaged or is not responsible for it.
pub(crate) fn look_up(segment: u64, block_key: &[u8], value: &[u8], release: &str) -> Option<Found> {
    if segment_of_key(block_key) != Some(segment) {
        return None;
    }
    let (crc, checked) = value.split_first_chunk::<4>()?;
    if checksum(block_key, checked) != u32::from_le_bytes(*crc) {
        return None;
    }
    let (&SCHEMA, mut rest) = checked.split_first()? else { return None };
    if take_text(&mut rest)?.is_some_and(|next| release.as_bytes() >= next) {
        return None;
    }
    while !rest.is_empty() {
        let tokens = take_text(&mut rest)??;
        let (form, behind) = rest.split_first()?;
        rest = behind;
        let places = take_text(&mut rest)??;
        if tokens == release.as_bytes() {
            return Some(Found::Places(if *form == 0 { differences(places)? } else { bitmap(places) }));
        }
    }
    Some(Found::Nothing)
}

fn take_text<'b>(rest: &mut &'b [u8]) -> Option<Option<&'b [u8]>> {
    let (length, behind) = rest.split_first_chunk::<2>()?;
    *rest = behind;
    let length = u16::from_le_bytes(*length);
    if length == LAST {
        return Some(None);
    }
    let (text, behind) = rest.split_at_checked(usize::from(length))?;
    *rest = behind;
    Some(Some(text))
}

fn differences(mut bytes: &[u8]) -> Option<Vec<u16>> {
    let (mut places, mut place) = (Vec::new(), 0_u16);
    while !bytes.is_empty() {
        let (mut difference, mut shift) = (0_u16, 0);
        loop {
            let (byte, behind) = bytes.split_first()?;
            bytes = behind;
            difference |= u16::from(byte & 0x7f).checked_shl(shift)?;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
        place = place.checked_add(difference)?;
        places.push(place);
    }
    Some(places)
}

fn bitmap(bytes: &[u8]) -> Vec<u16> {
    let bits = (0_u16..).zip(bytes).flat_map(|(at, byte)| (0..8).map(move |bit| (at * 8 + bit, byte >> bit & 1)));
    bits.filter(|(_, bit)| *bit == 1).map(|(place, _)| place).collect()
}

fn checksum(key: &[u8], value: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(value);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::PIECE;

    /// A segment in which one release has every second record, one has every third of the rest, and many have one.
    fn segment() -> Places {
        let mut places = Places::new();
        for place in 0..SEGMENT as u16 {
            let release = match place {
                place if place % 2 == 0 => "c.n.even".to_owned(),
                place if place % 3 == 0 => "c.n.third".to_owned(),
                place => format!("c.n.{place}"),
            };
            places.entry(release.into()).or_default().push(place);
        }
        places
    }

    fn find(blocks: &BTreeMap<Vec<u8>, Vec<u8>>, release: &str) -> Option<Found> {
        let (block_key, value) = blocks.range(..=key(3, release)).next_back()?;
        look_up(3, block_key, value, release)
    }

    #[test]
    fn every_release_is_found_and_no_other() {
        let places = segment();
        let blocks: BTreeMap<_, _> = blocks(3, &places).into_iter().collect();
        assert!(blocks.values().all(|value| value.len() <= PIECE));
        for (release, places) in &places {
            assert_eq!(find(&blocks, release), Some(Found::Places(places.clone())), "{release}");
        }
        for release in ["", "a", "c.n.", "c.n.1x", "c.n.evem", "z"] {
            assert_eq!(find(&blocks, release), Some(Found::Nothing), "{release}");
        }
    }

    #[test]
    fn a_lost_block_is_never_taken_for_nothing() {
        let places = segment();
        let whole: BTreeMap<_, _> = blocks(3, &places).into_iter().collect();
        assert!(whole.len() > 20);
        for lost in whole.keys().take(20) {
            let mut blocks = whole.clone();
            blocks.remove(lost);
            for (release, places) in &places {
                let found = find(&blocks, release);
                assert!(found.is_none() || found == Some(Found::Places(places.clone())), "{release}");
            }
        }
    }

    #[test]
    fn a_changed_bit_is_found() {
        let places = Places::from([("c.n.a".into(), vec![0, 5, 300]), ("c.n.b".into(), vec![1])]);
        let (block_key, value) = blocks(0, &places).remove(0);
        for bit in 0..value.len() * 8 {
            let mut changed = value.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(look_up(0, &block_key, &changed, "c.n.a"), None, "bit {bit}");
        }
    }

    #[test]
    fn recent_records_are_found_by_release() {
        let mut recent = Recent::starting_at(0);
        let subject = "decklog.release.c.n.a.release.SyncStarted";
        for number in [1, 7, SEGMENT, SEGMENT + 1] {
            recent.note(Sequence::new(number).unwrap(), subject);
        }
        recent.note(Sequence::new(SEGMENT + 2).unwrap(), "decklog.deployment.eu.team.a");
        let numbers = |from, to| {
            let [from, to] = [from, to].map(|number| Sequence::new(number).unwrap());
            recent.sequences("c.n.a", from, to).iter().map(|sequence| sequence.get()).collect::<Vec<_>>()
        };
        assert_eq!(numbers(1, SEGMENT + 9), [1, 7, SEGMENT, SEGMENT + 1]);
        assert_eq!(numbers(2, SEGMENT), [7, SEGMENT]);
        assert_eq!(recent.tail("c.n.a"), Sequence::new(SEGMENT + 1));
        assert_eq!(recent.forget(0).len(), 1);
        assert_eq!((recent.first_segment(), recent.tail("c.n.b")), (1, None));
    }
}
