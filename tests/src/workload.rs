//! The events that the benches read: about 300 bytes each, over many releases and items, in random order or in runs.

use decklog_engine::Records;
use decklog_schemas::data::{AppliedItem, Health, HealthAssessed, Item, ItemApplied};
use decklog_schemas::{Body, Draft, Name, Record, ReleaseKey, Sequence, Text, WriterSeq};

/// The controller and the observer, each counting its own events.
const SOURCES: [&str; 2] = ["/controller/7f3a", "/observer/c41e"];

/// Group, version and kind of the objects, in turn.
const KINDS: [[&str; 3]; 5] = [
    ["apps", "v1", "Deployment"],
    ["", "v1", "Service"],
    ["", "v1", "ConfigMap"],
    ["batch", "v1", "CronJob"],
    ["networking.k8s.io", "v1", "Ingress"],
];

/// What the bulk of a log looks like.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// How many releases there are.
    pub releases: usize,
    /// How many items each of them has.
    pub items: usize,
    /// How many events of a release follow each other; 1 is random order. It divides `items`.
    pub run: usize,
}

/// Makes the events of a log one after the other: first each item is applied once, then they are applied again and
/// assessed at random, for ever. A release has a new render when it was applied as often as it has items. Every event is
/// one that the fold takes.
#[derive(Debug)]
pub struct Workload {
    shape: Shape,
    /// Runs that are still to be applied for the first time, as the first row of each.
    unseen: Vec<u32>,
    /// By row: number of the render that it was last applied from.
    renders: Vec<u16>,
    /// By release: how often one of its items was applied.
    applied: Vec<usize>,
    /// Row and rest of the run that is being made.
    run: (usize, usize),
    is_new: bool,
    random: Random,
    made: u64,
    written: [u64; 2],
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Random(u64);

// === impl Workload ===

impl Workload {
    /// The events of a log of this shape; the same ones each time.
    pub fn new(shape: Shape) -> Self {
        let rows = shape.releases * shape.items;
        let mut random = Random(1);
        let mut unseen: Vec<_> = (0..rows as u32).step_by(shape.run).collect();
        for last in (1..unseen.len()).rev() {
            unseen.swap(last, random.below(last + 1));
        }
        Self {
            shape,
            unseen,
            renders: vec![0; rows],
            applied: vec![0; shape.releases],
            run: (0, 0),
            is_new: true,
            random,
            made: 0,
            written: [0; 2],
            buffer: Vec::with_capacity(1024),
        }
    }

    /// The next events, as records of a log that begins with the first one.
    pub fn records(&mut self, count: usize) -> Records {
        let mut records = Records::default();
        self.each(count, |record| records.push(record));
        records
    }

    /// Makes the next events one at a time, so that only one is in memory.
    pub fn each(&mut self, count: usize, mut take: impl FnMut(&Record<'_>)) {
        for _ in 0..count {
            self.write_next();
            let sequence = Sequence::new(self.made).expect("at least one event was made");
            let mut record = Record::of_event(sequence, &self.buffer).expect("the event is one");
            // A log's own clock has microseconds.
            record.recorded = time(self.made);
            take(&record);
        }
    }

    fn write_next(&mut self) {
        let row = self.next_row();
        let (release, item) = (row / self.shape.items, row % self.shape.items);
        let is_applied = self.is_new || self.random.below(4) == 0;
        if is_applied {
            self.renders[row] = (self.applied[release] / self.shape.items) as u16;
            self.applied[release] += 1;
        }
        let key = ReleaseKey::new("default", &format!("team-{}", release % 50), &format!("service-{release}"));
        let render = format!("r{:04}-{:08x}", self.renders[row], release * 2_654_435_761 % (1 << 32));
        let name = format!("svc-{release}-{item}");
        let uid = uuid(row as u64 + 1, 4);
        let [group, version, kind] = KINDS[item % KINDS.len()];
        let (kind, name, render) = (named(kind), named(&name), named(&render));
        let (group, namespace, uid) = (Text::from(group), Text::from(&*key.namespace), Some(Text::from(&*uid)));
        let body = if is_applied {
            let item = AppliedItem { group, version: version.into(), kind, namespace, name };
            Body::ItemApplied(ItemApplied { item, render_ref: render, wave: 1, uid })
        } else {
            let (state, message) = match self.random.below(8) {
                0 => (Health::Degraded, Some("2 of 3 replicas are available".into())),
                1 => (Health::Progressing, None),
                _ => (Health::Healthy, None),
            };
            let item = Item { group, version: None, kind, namespace, name };
            let first_unhealthy = None;
            Body::HealthAssessed(HealthAssessed {
                item,
                uid,
                state,
                assessed_render_ref: render,
                first_unhealthy,
                message,
            })
        };
        self.made += 1;
        let writer = usize::from(!is_applied);
        self.written[writer] += 1;
        let id = uuid(self.made, 7);
        let draft = Draft {
            id: &id,
            source: SOURCES[writer],
            release: Some(&key),
            time: time(self.made),
            release_uid: None,
            writer_seq: WriterSeq::new(self.written[writer]),
            term: None,
            correlation_id: None,
            trace_parent: None,
            body,
        };
        self.buffer.clear();
        draft.write_msgpack(&mut self.buffer);
    }

    fn next_row(&mut self) -> usize {
        let Shape { releases, items, run } = self.shape;
        if self.run.1 == 0 {
            let unseen = self.unseen.pop();
            self.is_new = unseen.is_some();
            let start = unseen.map_or_else(|| self.random.below(releases) * items, |row| row as usize);
            self.run = (start, run);
        }
        self.run.1 -= 1;
        let start = self.run.0;
        if self.is_new { start + self.run.1 } else { start / items * items + self.random.below(items) }
    }
}

/// A millisecond an event, from a day in March on.
fn time(event: u64) -> jiff::Timestamp {
    let millisecond = 1_772_445_600_000 + event as i64;
    jiff::Timestamp::from_millisecond(millisecond).expect("the year is below 10000")
}

/// The text of a UUID: unlike others from the first digits on, as random ones are.
fn uuid(number: u64, version: u8) -> String {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let [a, b, c] = [mixed >> 32, mixed >> 16 & 0xffff, mixed & 0xfff];
    format!("{a:08x}-{b:04x}-{version}{c:03x}-8000-{number:012x}")
}

fn named(text: &str) -> Name<'_> {
    text.try_into().expect("names are not empty")
}

impl Random {
    /// SplitMix64: the same numbers on every machine.
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) % bound as u64) as usize
    }
}
