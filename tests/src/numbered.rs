//! Numbered events: a history without end, of which each event is known by its number, and random numbers from a seed.

use std::fmt::Write as _;

use serde_json::json;

/// How many releases the history is about.
pub const RELEASES: u64 = 5;

/// Pseudo-random numbers from a seed that is printed (splitmix64).
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next number, below a limit.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}

/// The seed of `DECKLOG_SEED`, else one that differs from run to run.
#[must_use]
pub fn seed() -> u64 {
    let given = std::env::var("DECKLOG_SEED").ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or(u64::from(std::process::id()))
}

/// The event of a number: always the same, and its id says which it is.
#[must_use]
pub fn event(number: u64) -> String {
    let release = number % RELEASES;
    let item = json!({
        "group": "apps", "version": "v1", "kind": "Deployment", "namespace": "shop", "name": format!("app-{}", number % 37),
    });
    let render = format!("r{}", number / 100);
    let (name, source, data) = match number % 3 {
        0 => ("ItemApplied", "/controller/1", json!({ "item": item, "renderRef": render, "wave": number % 4 })),
        1 => {
            ("HealthAssessed", "/observer/1", json!({ "item": item, "state": "Degraded", "assessedRenderRef": render }))
        }
        _ => ("ItemPruned", "/controller/1", json!({ "item": item })),
    };
    json!({
        "specversion": "1.0",
        "id": id_of(number),
        "source": source,
        "type": format!("dev.decklog.{name}.v1"),
        "subject": format!("shop/release-{release}"),
        "time": "2026-03-02T10:00:00Z",
        "writerseq": number + 1,
        "data": data,
    })
    .to_string()
}

/// The events of a range of numbers, one a line.
#[must_use]
pub fn lines(numbers: impl IntoIterator<Item = u64>) -> String {
    numbers.into_iter().fold(String::new(), |mut text, number| {
        let _ = writeln!(text, "{}", event(number));
        text
    })
}

/// The id of an event.
#[must_use]
pub fn id_of(number: u64) -> String {
    format!("00000000-0000-7000-8000-{number:012}")
}
