//! Damaged bytes: no input makes the decoders or the fold panic, and what is read twice reads the same.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

/// The product, as far as this test knows it.
mod product {
    use decklog_engine::Projection as _;
    use decklog_projections::inventory::Inventories;
    use decklog_schemas::{Envelope, Record, ReleaseKey, Sequence};

    /// Where an input stands that names no release of its own.
    const SUBJECT: &str = "decklog.release.default.shop.checkout.release-inventory.ItemApplied";

    /// Every input that was folded so far, each at the next place of one log.
    #[derive(Default)]
    pub(crate) struct State {
        inventories: Inventories,
        tail: Option<Sequence>,
    }

    /// All that decoding and validation say about the input.
    pub(crate) fn read(bytes: &[u8]) -> String {
        match Envelope::decode(bytes) {
            Ok(envelope) => format!("{:?} {:?}", envelope.clone(), envelope.validate()),
            Err(malformed) => format!("{malformed:?} {malformed}"),
        }
    }

    /// The outcome, and the object of `shop/checkout` afterwards.
    pub(crate) fn fold(state: &mut State, bytes: &[u8]) -> String {
        let sequence = Sequence::after(state.tail);
        let record = Record::of_event(sequence, bytes).unwrap_or_else(|_| Record {
            sequence,
            recorded: jiff::Timestamp::UNIX_EPOCH,
            subject: SUBJECT.into(),
            bytes: bytes.into(),
        });
        state.tail = Some(sequence);
        let outcome = state.inventories.fold(&record);
        let object = state.inventories.object(&ReleaseKey::new("default", "shop", "checkout"));
        format!("{outcome:?} {:?}", object.map(serde_json::to_value))
    }
}

/// Longest input: beyond it a mutation adds time and no new path.
const MOST_BYTES: usize = 64 * 1024;

/// After so many inputs the fold starts with an empty state again.
const INPUTS_PER_STATE: usize = 1_000;

/// MessagePack and JSON that promise more than there is.
const PROMISES: [&[u8]; 14] = [
    b"\xdd\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    b"\xdb\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\xc9\xff\xff\xff\xff\x01",
    b"\xdc\xff\xff",
    b"\xde\xff\xff",
    b"\xda\xff\xff",
    b"\x8f",
    b"\x9f",
    b"\xbf",
    b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\xd3\x80\x00\x00\x00\x00\x00\x00\x00",
    b"18446744073709551616",
];

/// What text formats stumble over.
const ODDITIES: [&[u8]; 12] = [
    b"\xff\xfe",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xf0\x9f\xa6",
    b"\\ud800",
    b"\\u0000",
    b"\"\"",
    b"-0",
    b"1e999",
    b"null",
    b"\xc0",
    b"\xc1",
];

/// Openings of one more level.
const LEVELS: [&[u8]; 5] = [b"[", b"{\"data\":", b"\x91", b"\x81\xa4data", b"\xdc\x00\x01"];

/// A small generator of pseudo-random numbers (SplitMix64): the same seed gives the same inputs for ever.
struct Random(u64);

#[test]
fn damaged_bytes_are_read_without_a_panic() {
    let corpus = corpus();
    let seed = number("DECKLOG_FUZZ_SEED").unwrap_or_else(seed_of_now);
    let limit = Duration::from_secs(number("DECKLOG_FUZZ_SECONDS").unwrap_or(3));
    // Not captured by the harness, so that it is seen even if the process is killed by a stack overflow.
    let _ = writeln!(std::io::stderr(), "decoders: DECKLOG_FUZZ_SEED={seed}");
    let mut state = product::State::default();
    for bytes in &corpus {
        check(seed, &mut state, bytes);
    }
    let mut random = Random(seed);
    let start = Instant::now();
    let mut inputs = 0;
    while inputs == 0 || start.elapsed() < limit {
        if inputs % INPUTS_PER_STATE == 0 {
            state = product::State::default();
        }
        check(seed, &mut state, &random.input(&corpus));
        inputs += 1;
    }
}

/// Reads and folds one input; a panic, or a second reading that differs, fails the test.
fn check(seed: u64, state: &mut product::State, bytes: &[u8]) {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let first = (product::read(bytes), product::fold(&mut product::State::default(), bytes));
        let copy = bytes.to_vec();
        let second = (product::read(&copy), product::fold(&mut product::State::default(), &copy));
        product::fold(state, bytes);
        first == second
    }));
    let what = match outcome {
        Ok(true) => return,
        Ok(false) => "reads differently the second time",
        Err(_) => "made the product panic",
    };
    let mut hex = String::new();
    for byte in bytes {
        let _ = write!(hex, "{byte:02x}");
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("failed-histories");
    let file = folder.join(format!("decoder-{seed}.bin"));
    fs::create_dir_all(&folder).expect("the folder of failed histories can be made");
    fs::write(&file, bytes).expect("a failed input can be written");
    panic!("an input {what}: {} (DECKLOG_FUZZ_SEED={seed})\n{hex}", file.display());
}

// === Inputs ===

/// Every line of the scenarios, its MessagePack form, and the golden files.
fn corpus() -> Vec<Vec<u8>> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut corpus = Vec::new();
    for file in files(&package.join("scenarios")) {
        if file.extension().is_some_and(|extension| extension == "jsonl") {
            for line in read(&file).split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                corpus.extend(message_pack(line));
                corpus.push(line.to_vec());
            }
        }
    }
    assert!(!corpus.is_empty(), "there is no scenario in {}", package.display());
    corpus.extend(files(&package.join("../schemas/golden")).iter().map(|file| read(file)));
    corpus
}

/// The named-map form of a JSON event; nothing if the line is no JSON.
fn message_pack(line: &[u8]) -> Option<Vec<u8>> {
    let event = serde_json::from_slice::<Value>(line).ok()?;
    Some(rmp_serde::to_vec_named(&event).expect("JSON has a MessagePack form"))
}

/// The files below a folder, in the order of their names; none if there is no such folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut paths = entries.map(|entry| entry.expect("the folder can be listed").path()).collect::<Vec<_>>();
    paths.sort_unstable();
    let below = |path: PathBuf| {
        if path.is_dir() { files(&path) } else { vec![path] }
    };
    paths.into_iter().flat_map(below).collect()
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a number, not {text:?}")))
}

fn seed_of_now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos() % u128::from(u64::MAX)).unwrap_or_default()
}

// === impl Random ===

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, and 0 if that is 0.
    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit.max(1) as u64).unwrap_or_default()
    }

    fn byte(&mut self) -> u8 {
        self.next().to_be_bytes()[0]
    }

    fn pick<'a, T: ?Sized>(&mut self, choices: &[&'a T]) -> &'a T {
        choices[self.below(choices.len())]
    }

    /// A part of something that is `length` long.
    fn range(&mut self, length: usize) -> Range<usize> {
        let start = self.below(length + 1);
        start..start + self.below((length - start).min(64) + 1)
    }

    /// One of the corpus, damaged in a few places.
    fn input(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = corpus[self.below(corpus.len())].clone();
        for _ in 0..=self.below(4) {
            self.damage(&mut bytes, corpus);
            bytes.truncate(MOST_BYTES);
        }
        bytes
    }

    fn damage(&mut self, bytes: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        let at = self.below(bytes.len());
        let byte = self.byte();
        match self.below(11) {
            0 => bytes.iter_mut().skip(at).take(1).for_each(|old| *old ^= 1 << (byte % 8)),
            1 => bytes.iter_mut().skip(at).take(1).for_each(|old| *old = byte),
            2 => bytes.insert(at, byte),
            3 => drop(bytes.drain(self.range(bytes.len()))),
            4 => bytes.truncate(at),
            5 => self.splice(bytes, corpus),
            6 => {
                let copy = bytes[self.range(bytes.len())].to_vec();
                insert(bytes, at, &copy);
            }
            7 => insert(bytes, at, self.pick(&PROMISES)),
            8 => {
                let promise = self.pick(&PROMISES);
                let end = bytes.len().min(at + promise.len());
                bytes.splice(at..end, promise.iter().copied());
            }
            9 => insert(bytes, at, self.pick(&ODDITIES)),
            _ => {
                let depth = [1, 8, 62, 63, 64, 65, 128, 4_096][self.below(8)];
                let levels = self.pick(&LEVELS).repeat(depth);
                insert(bytes, at, &levels);
            }
        }
    }

    /// Goes on with the end of another input.
    fn splice(&mut self, bytes: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        let other = &corpus[self.below(corpus.len())];
        let from = self.below(other.len());
        bytes.truncate(self.below(bytes.len()));
        bytes.extend_from_slice(&other[from..]);
    }
}

fn insert(bytes: &mut Vec<u8>, at: usize, more: &[u8]) {
    bytes.splice(at..at, more.iter().copied());
}
