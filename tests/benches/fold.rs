//! The fold against the one that one writes first, its cost as releases and items grow, and its memory.

mod naive;

use std::env;
use std::hint::black_box;
use std::process::{Command, ExitCode};
use std::time::Duration;

use decklog_engine::{Projection, Records};
use decklog_projections::inventory::Inventories;
use decklog_schemas::data::Health;
use decklog_schemas::{Outcome, Record};

use crate::naive::NaiveFold;
use decklog_tests::pairs::{Bench, Clock, Cost, Figure, Size, timed};
use decklog_tests::workload::{Shape, Workload};

const LIMIT: Duration = Duration::from_secs(600);

/// Says to a process of this bench that it is the one whose memory is measured.
const MEMORY: &str = "--memory";

const SHAPE: Shape = Shape { releases: 1_000, items: 100, run: 1 };

fn main() -> ExitCode {
    if env::args().any(|argument| argument == MEMORY) {
        report_memory();
        return ExitCode::SUCCESS;
    }
    decklog_tests::pairs::run(LIMIT, |bench| {
        against_others(bench);
        with_more_rows(bench);
        in_other_shapes(bench);
        memory(bench);
    })
}

fn against_others(bench: &mut Bench) {
    let events = bench.pick(1_000_000, 4_000);
    let releases = bench.pick(SHAPE.releases, 10);
    for (order, run) in [("random order", 1), ("runs of 20 a release", 20)] {
        let records = Workload::new(Shape { releases, run, ..SHAPE }).records(events);
        assert_eq!(counts(&folded(&records)), naive(&records).counts(), "both folds come to the same state");
        let bounds = (run == 1).then_some([1.2, 2.0]);
        let name = format!("decode and fold, {order}, against the naive fold");
        let fold = || cost_of(|| folded(&records));
        bench.compare(Figure { name: &name, events, bounds, clock: Clock::Cpu }, || cost_of(|| naive(&records)), fold);
        let name = format!("decode and fold, {order}, against decoding alone");
        bench.compare(
            Figure { name: &name, events, bounds: None, clock: Clock::Cpu },
            || cost_of(|| decoded(&records)),
            fold,
        );
    }
}

/// What grows here is the memory that the rows lie in: an event of another row comes from a farther cache.
fn with_more_rows(bench: &mut Bench) {
    let shapes = [[10, 10], [1_000, 10], [100_000, 10], [100, 10], [100, 100], [100, 1_000]];
    let (releases, items) = shapes.split_at(3);
    sweep(bench, "ns an event, by releases of 10 items", releases, None);
    sweep(bench, "ns an event, by items of each of 100 releases", items, None);
}

/// The same rows in each shape. A release has memory of its own, so that many small ones lie farther apart.
fn in_other_shapes(bench: &mut Bench) {
    let shapes = [[1_000, 100], [10, 10_000], [100, 1_000], [10_000, 10], [100_000, 1]];
    sweep(bench, "ns an event, by releases × items, 100,000 rows in all", &shapes, Some(1.5));
}

fn sweep(bench: &mut Bench, name: &str, shapes: &[[usize; 2]], most: Option<f64>) {
    let events = bench.pick(300_000, 1_000);
    let mut states = Vec::new();
    for [releases, items] in shapes {
        // Each row is there before the clock starts: a new row is a new allocation whatever the shape.
        let [releases, items] =
            if bench.size() == Size::Full { [*releases, *items] } else { [releases / 10, items.div_ceil(10)] };
        let mut workload = Workload::new(Shape { releases, items, run: 1 });
        let mut state = Inventories::default();
        workload.each(releases * items, |record| fold(&mut state, record));
        states.push((format!("{releases} × {items}"), state, workload));
    }
    let mut points: Vec<_> = states
        .iter_mut()
        .map(|(name, state, workload)| {
            let run = move || {
                let records = workload.records(events);
                timed(|| records.iter().for_each(|record| fold(state, &record))).1
            };
            (name.clone(), Box::new(run) as Box<dyn FnMut() -> Cost>)
        })
        .collect();
    bench.sweep(name, events, most, &mut points);
}

/// In a process of its own: what a process has once used, it rarely gives back.
fn memory(bench: &mut Bench) {
    let path = env::current_exe().expect("the bench has a path");
    let child = Command::new(path).args([MEMORY, &bench.pick(SHAPE.releases, 20).to_string()]).output();
    let child = child.expect("the bench can be started");
    let report = String::from_utf8_lossy(&child.stdout);
    let numbers: Vec<f64> = report.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    let [resident, canonical, rows] = numbers[..] else {
        // Only Linux says in a file how much memory a process has.
        return;
    };
    let details = format!("{:.0} bytes of memory a row, {:.0} canonical", resident / rows, canonical / rows);
    bench.judge_most("memory of the fold, against its canonical state", Some(4.0), resident / canonical, &details);
}

#[expect(clippy::print_stdout, reason = "this is how the process answers the one that started it")]
fn report_memory() {
    let releases = env::args().next_back().and_then(|releases| releases.parse().ok()).expect("the releases are given");
    let shape = Shape { releases, ..SHAPE };
    let rows = releases * shape.items;
    let mut workload = Workload::new(shape);
    let mut state = Inventories::default();
    let Some(before) = resident() else { return };
    workload.each(4 * rows, |record| fold(&mut state, record));
    let after = resident().unwrap_or(before);
    let canonical: usize =
        state.keys().filter_map(|key| state.object(key)).map(|object| object.canonical().len()).sum();
    println!("{} {canonical} {rows}", after.saturating_sub(before));
}

/// The bytes of this process that are in memory.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

fn cost_of<T>(work: impl FnOnce() -> T) -> Cost {
    // What was built is dropped after the clock has stopped.
    timed(|| black_box(work())).1
}

fn folded(records: &Records) -> Inventories {
    let mut state = Inventories::default();
    records.iter().for_each(|record| fold(&mut state, &record));
    state
}

fn fold(state: &mut Inventories, record: &Record<'_>) {
    assert_eq!(state.fold(record), Ok(Outcome::Folded));
}

fn naive(records: &Records) -> NaiveFold {
    let mut state = NaiveFold::default();
    state.fold_all(records);
    state
}

fn decoded(records: &Records) {
    for record in records.iter() {
        let placed = record.open().expect("the record is in its place");
        black_box(placed.envelope.validate().expect("the event is valid"));
    }
}

/// How many rows there are, and how many of them are healthy.
fn counts(state: &Inventories) -> [usize; 2] {
    let objects: Vec<_> = state.keys().filter_map(|key| state.object(key)).collect();
    let rows = || objects.iter().flat_map(|object| &object.fields.inventory);
    [rows().count(), rows().filter(|row| row.state == Some(Health::Healthy)).count()]
}
