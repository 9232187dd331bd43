//! The naive model of the fold: no state is carried along, each question reads the release's history again.

pub(crate) mod go;
mod hooks;
mod incarnations;
mod items;
mod reading;
mod times;

use serde_json::{Map, Value, json};

use reading::{Type, keeps_the_rules, number, text, type_of};

/// The named reasons for which an event is ignored, in the order of the checks.
pub const REASONS: [&str; 10] = [
    "unsupported",
    "invalid",
    "duplicate",
    "stale-term",
    "stale-incarnation",
    "unknown-item",
    "stale-uid",
    "stale-render",
    "unknown-hook",
    "hook-already-finished",
];

/// How many ids, held assessments and held hook results a release remembers.
const REMEMBERED: usize = 1_024;

/// What the fold does with each event of one release: `None` for folded, else the reason.
///
/// # Panics
/// If a line is not JSON.
#[must_use]
pub fn outcomes(history: &[String]) -> Vec<Option<&'static str>> {
    History::read(history).outcomes
}

/// The release's canonical object after the last event, `None` if there is none.
///
/// # Panics
/// If a line is not JSON.
#[must_use]
pub fn object(history: &[String]) -> Option<Value> {
    History::read(history).object()
}

/// Both answers at once.
///
/// # Panics
/// If a line is not JSON.
#[must_use]
pub fn answers(history: &[String]) -> (Vec<Option<&'static str>>, Option<Value>) {
    let history = History::read(history);
    let object = history.object();
    (history.outcomes, object)
}

/// The events of one release, and the answers to the two questions that are asked most.
///
/// Every question takes `n` and looks at events and answers before `n` only.
struct History {
    events: Vec<Value>,
    types: Vec<Option<&'static Type>>,
    /// For each `n`, the earlier events of the incarnation that is live before `n`.
    of_the_live_one: Vec<Vec<usize>>,
    outcomes: Vec<Option<&'static str>>,
}

// === impl History ===

impl History {
    fn read(lines: &[String]) -> Self {
        let events = lines
            .iter()
            .map(|line| serde_json::from_str(line).expect("a line of a history is JSON"))
            .collect::<Vec<_>>();
        let types = events.iter().map(type_of).collect();
        let mut history = Self { events, types, of_the_live_one: Vec::new(), outcomes: Vec::new() };
        for n in 0..history.events.len() {
            history.of_the_live_one.push(history.find_the_live_one(n));
            history.outcomes.push(history.reason(n));
        }
        let end = history.events.len();
        history.of_the_live_one.push(history.find_the_live_one(end));
        history
    }

    fn event(&self, n: usize) -> &Value {
        &self.events[n]
    }

    /// The name of the event's type, empty if that is unknown.
    fn name(&self, n: usize) -> &'static str {
        self.types[n].map_or("", |known| known.name)
    }

    fn domain(&self, n: usize) -> &'static str {
        self.types[n].map_or("", |known| known.domain)
    }

    fn reason(&self, n: usize) -> Option<&'static str> {
        let event = self.event(n);
        let Some(known) = self.types[n] else {
            return Some(if text(event, "type").is_some() { "unsupported" } else { "invalid" });
        };
        if !keeps_the_rules(event, known) {
            Some("invalid")
        } else if self.is_duplicate(n) {
            Some("duplicate")
        } else if self.has_a_stale_term(n) {
            Some("stale-term")
        } else if known.domain == "projector" {
            None
        } else if self.is_of_a_stale_incarnation(n) {
            Some("stale-incarnation")
        } else {
            match self.name(n) {
                "ItemPruned" => self.why_not_pruned(n),
                "HealthAssessed" => self.why_not_assessed(n),
                "HookStarted" | "HookSkipped" => self.why_not_declared(n),
                "HookRunning" | "HookFinished" => self.why_no_status(n),
                "HookRemoved" => self.why_not_removed(n),
                _ => None,
            }
        }
    }

    /// Whether event `n` got through `check`, which is one of the reasons.
    fn passed(&self, n: usize, check: &str) -> bool {
        let place = |reason: &str| REASONS.iter().position(|known| *known == reason);
        self.outcomes[n].is_none_or(|reason| place(reason) > place(check))
    }

    /// Whether it is folded, or ignored for a reason that the item or the hook gave.
    fn belongs_to_an_incarnation(&self, n: usize) -> bool {
        self.passed(n, "stale-incarnation") && self.domain(n) != "projector"
    }

    fn is_duplicate(&self, n: usize) -> bool {
        let event = self.event(n);
        let taken = (0..n).filter(|&i| self.passed(i, "duplicate")).map(|i| self.event(i));
        match number(event, "writerseq") {
            Some(seq) => taken
                .filter(|earlier| text(earlier, "source") == text(event, "source"))
                .any(|earlier| number(earlier, "writerseq").is_some_and(|seen| seq <= seen)),
            None => taken
                .filter(|earlier| number(earlier, "writerseq").is_none())
                .rev()
                .take(REMEMBERED)
                .any(|earlier| text(earlier, "id") == text(event, "id")),
        }
    }

    fn has_a_stale_term(&self, n: usize) -> bool {
        let Some(term) = number(self.event(n), "term") else {
            return false;
        };
        (0..n)
            .filter(|&i| self.passed(i, "duplicate") && self.domain(i) == self.domain(n))
            .any(|i| number(self.event(i), "term").is_some_and(|earlier| term < earlier))
    }

    fn object(&self) -> Option<Value> {
        let end = self.events.len();
        let folded = self.folded(end).collect::<Vec<_>>();
        let makes_an_object = |i: usize| ["release", "release-inventory", "release-hooks"].contains(&self.domain(i));
        let maker = folded.iter().copied().find(|&i| makes_an_object(i))?;
        let (namespace, release) = text(self.event(maker), "subject")?.split_once('/')?;
        let mut object = json!({
            "apiVersion": "core.convoy.kumodo.io/v1alpha1",
            "kind": "ReleaseInventory",
            "metadata": { "name": release, "namespace": namespace },
        });
        let tracked = folded.iter().rfind(|&&i| self.name(i) == "ReleaseTracked");
        if let Some(shard) = tracked.and_then(|&i| text(self.event(i), "data/shard")) {
            object["metadata"]["labels"] = json!({ "core.convoy.kumodo.io/shard": shard });
        }
        for (list, rows) in [("inventory", self.item_rows(end)), ("hooks", self.hook_rows(end))] {
            if !rows.is_empty() {
                object[list] = rows.into();
            }
        }
        Some(object)
    }
}

/// Two uids contradict each other if both are known and they differ.
fn contradict(one: Option<&str>, other: Option<&str>) -> bool {
    one.is_some() && other.is_some() && one != other
}

/// An object of these fields, without those that are absent; messages are cut here.
fn present<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    let kept = fields.into_iter().filter_map(|(field, value)| {
        let value = value?;
        Some(match value.as_str().filter(|_| field == "message") {
            Some(message) => (field.to_owned(), cut(message).into()),
            None => (field.to_owned(), value),
        })
    });
    Value::Object(kept.collect::<Map<_, _>>())
}

/// At most 1,024 bytes: the longest beginning that leaves room for the mark of the cut.
fn cut(message: &str) -> String {
    if message.len() <= 1_024 {
        return message.to_owned();
    }
    let mut kept = String::new();
    for character in message.chars() {
        if kept.len() + character.len_utf8() + "…".len() > 1_024 {
            break;
        }
        kept.push(character);
    }
    kept + "…"
}
