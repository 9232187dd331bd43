//! How the benches measure: peer and product in turn, in ABBA order, judged by the median of the ratios of their pairs.
//!
//! Each round is a pair of peer and product, and then a pair of the peer and itself; every other round has the product
//! first. If the median of the peer's ratio to itself is outside of 0.93 to 1.07, the machine was too noisy and the figure
//! is void. Without `--bench`, which `cargo bench` passes and `cargo test` does not, each run is small and nothing is
//! judged: it only shows that the bench still works.

use std::env;
use std::fmt::Display;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Rounds of a figure.
const ROUNDS: usize = 7;

/// Where the median of the peer's ratio to itself may lie.
const SOUND: std::ops::RangeInclusive<f64> = 0.93..=1.07;

/// A bench that is running.
#[derive(Debug)]
pub struct Bench {
    size: Size,
    /// Only figures with this in their name; an argument that is no flag.
    only: Option<String>,
    has_missed: bool,
}

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// All of it.
    Full,
    /// Enough to see that the bench works.
    Quick,
}

/// What is measured, and what it is judged by.
#[derive(Clone, Copy, Debug)]
pub struct Figure<'a> {
    /// Product and peer, in words.
    pub name: &'a str,
    /// How many events a run has.
    pub events: usize,
    /// How many times as fast as the peer the product has to be, and is meant to be; none if it is only reported.
    pub bounds: Option<[f64; 2]>,
    /// What the ratio is of.
    pub clock: Clock,
}

/// Which time is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// That on a CPU. Right for what never waits: the others on the machine move it by a few percent.
    Cpu,
    /// That on the wall.
    Wall,
}

/// A point of a sweep: its name, and a run at it.
pub type Point<'a> = (String, Box<dyn FnMut() -> Cost + 'a>);

/// What a run took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Time of the clock.
    pub wall: Duration,
    /// Time of all threads on a CPU, user and system.
    pub cpu: Duration,
}

/// Median, least and most of some numbers.
#[derive(Clone, Copy, Debug)]
struct Spread {
    median: f64,
    least: f64,
    most: f64,
}

/// Runs a bench with a limit to its time, and prints the head of its table.
pub fn run(limit: Duration, bench: impl FnOnce(&mut Bench)) -> ExitCode {
    if env::args().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    let size = if env::args().any(|argument| argument == "--bench") { Size::Full } else { Size::Quick };
    if size == Size::Full && env::var_os("RUST_BACKTRACE").is_some() {
        return without_backtraces();
    }
    thread::spawn(move || {
        thread::sleep(limit);
        say(format_args!("the bench has not ended after {limit:?}"));
        std::process::exit(1);
    });
    let only = env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let mut running = Bench { size, only, has_missed: false };
    say(
        "| figure | hold | aim | measured | least–most | peer to itself | peer, product in M events/s | CPU ns an event | load | verdict |",
    );
    say("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    bench(&mut running);
    if running.has_missed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Does some work, and says what it took.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, Cost) {
    let (wall, cpu) = (Instant::now(), cpu_time());
    let done = work();
    (done, Cost { wall: wall.elapsed(), cpu: cpu_time() - cpu })
}

impl Bench {
    /// How much is to be measured.
    pub fn size(&self) -> Size {
        self.size
    }

    /// One number for the full size, another one for the quick one.
    pub fn pick(&self, full: usize, quick: usize) -> usize {
        match self.size {
            Size::Full => full,
            Size::Quick => quick,
        }
    }

    /// Whether a figure of this name is wanted.
    pub fn picks(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| name.contains(only.as_str()))
    }

    /// Measures how many times as fast as the peer the product is; each does one run a call, and says what it took.
    pub fn compare(&mut self, figure: Figure<'_>, mut peer: impl FnMut() -> Cost, mut product: impl FnMut() -> Cost) {
        if !self.picks(figure.name) {
            return;
        }
        let (mut pairs, mut selves) = (Vec::new(), Vec::new());
        for round in 0..self.pick(ROUNDS, 1) {
            pairs.push(in_turn(round, &mut peer, &mut product));
            let mut again = Vec::new();
            for _ in 0..2 {
                again.push(peer());
            }
            selves.push(in_order(round, [again[0], again[1]]));
        }
        let (ratio, itself) = (ratios(&pairs, figure.clock), ratios(&selves, figure.clock));
        let verdict = match figure.bounds {
            _ if self.size == Size::Quick => "not judged",
            _ if !SOUND.contains(&itself.median) => "void",
            None => "reported",
            Some([_, aim]) if ratio.median >= aim => "aim",
            Some([hold, _]) if ratio.median >= hold => "held",
            Some(_) => "missed",
        };
        let each = |of: fn(&Cost) -> Duration, side: usize| {
            let of_side = pairs.iter().map(|pair| of(&pair[side]).as_secs_f64() / figure.events as f64 * 1e9);
            Spread::of(of_side.collect()).median
        };
        let [peer, product] = [0, 1].map(|side| millions(1e9 / each(|cost| cost.wall, side)));
        let cpu = [0, 1].map(|side| each(|cost| cost.cpu, side));
        let [hold, aim] =
            figure.bounds.map_or(["–".to_owned(), "–".to_owned()], |bounds| bounds.map(|b| b.to_string()));
        let Spread { median, least, most } = ratio;
        self.line(
            verdict,
            format_args!(
                "{} | {hold} | {aim} | {median:.2} | {least:.2}–{most:.2} | {:.2} | {peer}, {product} | {:.0}, {:.0}",
                figure.name, itself.median, cpu[0], cpu[1],
            ),
        );
    }

    /// Measures the cost of an event at several points in turn, and how many times as much the dearest one takes as the
    /// first.
    pub fn sweep(&mut self, name: &str, events: usize, most: Option<f64>, points: &mut [Point<'_>]) {
        let mut costs = vec![Vec::new(); points.len()];
        for _ in 0..self.pick(ROUNDS, 1) {
            for (point, costs) in points.iter_mut().zip(&mut costs) {
                costs.push((point.1)().cpu.as_secs_f64() / events as f64 * 1e9);
            }
        }
        let medians: Vec<_> = costs.into_iter().map(|costs| Spread::of(costs).median).collect();
        let growth = medians.iter().fold(0.0_f64, |most, median| most.max(*median)) / medians[0];
        let each = points.iter().zip(&medians).map(|(point, median)| format!("{}: {median:.0}", point.0));
        let each = each.collect::<Vec<_>>().join(", ");
        self.judge_most(name, most, growth, &each);
    }

    /// Judges a number that is to be small.
    pub fn judge_most(&mut self, name: &str, most: Option<f64>, measured: f64, details: &str) {
        if !self.picks(name) {
            return;
        }
        let verdict = match most {
            _ if self.size == Size::Quick => "not judged",
            None => "reported",
            Some(most) if measured <= most => "held",
            Some(_) => "missed",
        };
        let hold = most.map_or("–".to_owned(), |most| format!("≤ {most}"));
        self.line(verdict, format_args!("{name} | {hold} | – | {measured:.2} | – | – | – | {details}"));
    }

    fn line(&mut self, verdict: &str, line: impl Display) {
        self.has_missed |= verdict == "missed";
        say(format_args!("| {line} | {} | {verdict} |", load()));
    }
}

/// A rate in millions; one of a few hundred keeps its digits.
fn millions(rate: f64) -> String {
    let digits = if rate < 10_000.0 { 6 } else { 2 };
    format!("{:.digits$}", rate / 1e6)
}

/// The costs of peer and product, of which the product runs first every other time.
fn in_turn(round: usize, peer: &mut dyn FnMut() -> Cost, product: &mut dyn FnMut() -> Cost) -> [Cost; 2] {
    if round.is_multiple_of(2) {
        let first = peer();
        [first, product()]
    } else {
        let first = product();
        [peer(), first]
    }
}

fn in_order(round: usize, [one, other]: [Cost; 2]) -> [Cost; 2] {
    if round.is_multiple_of(2) { [one, other] } else { [other, one] }
}

/// How many times as long as the second the first of each pair took.
fn ratios(pairs: &[[Cost; 2]], clock: Clock) -> Spread {
    let of = |cost: &Cost| match clock {
        Clock::Cpu => cost.cpu.as_secs_f64(),
        Clock::Wall => cost.wall.as_secs_f64(),
    };
    Spread::of(pairs.iter().map(|[peer, product]| of(peer) / of(product)).collect())
}

impl Spread {
    fn of(mut numbers: Vec<f64>) -> Self {
        numbers.sort_by(f64::total_cmp);
        let middle = numbers.len() / 2;
        Self { median: numbers[middle], least: numbers[0], most: numbers[numbers.len() - 1] }
    }
}

/// The time of all threads of this process on a CPU.
#[must_use]
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The load of the last minute, where the system says it in a file.
fn load() -> String {
    let loads = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    loads.split(' ').next().filter(|load| !load.is_empty()).unwrap_or("–").to_owned()
}

/// Runs the same again without `RUST_BACKTRACE`: with it each error that is made takes microseconds.
fn without_backtraces() -> ExitCode {
    let path = env::current_exe().expect("the bench has a path");
    let status = Command::new(path).args(env::args_os().skip(1)).env_remove("RUST_BACKTRACE").status();
    let is_well = status.expect("the bench can be started").success();
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[expect(clippy::print_stdout, reason = "the table is what a bench is for")]
fn say(line: impl Display) {
    println!("{line}");
}
