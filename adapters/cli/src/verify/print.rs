//! A report as a table with its details, as JSON and as YAML.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Error;
use decklog_projections::plan::{Cause, Difference, Identity, Verdict, Writer};
use decklog_schemas::Sequence;
use serde_json::{Value, json};

use super::{Compared, Report};
use crate::args::Format;
use crate::output::{self, Cell, Table, Tone, harmless, tinted};
use crate::yaml;

/// How many differences of a release a table shows.
const SHOWN: usize = 10;

/// How many characters of a value a table shows.
const WIDTH: usize = 80;

pub(super) fn render(report: &Report, format: Format) -> Result<String, Error> {
    match format {
        Format::Table => table(report),
        Format::Json => output::json(&document(report)),
        Format::Yaml => yaml::to_string(&document(report)),
    }
}

fn table(report: &Report) -> Result<String, Error> {
    let mut table = Table::new(&["NAMESPACE", "RELEASE", "VERDICT", "STAMP", "LAST", "EVENTS"]);
    for release in &report.releases {
        let verdict = release.comparison.verdict;
        let stamp = stamp_of(release);
        let behind = if release.behind > 0 { format!("{} behind", release.behind) } else { String::new() };
        table.row([
            release.key.namespace.to_string().into(),
            release.key.name.to_string().into(),
            Cell::tinted(verdict.as_str(), tone(verdict)),
            number(stamp).into(),
            number(release.last).into(),
            behind.into(),
        ]);
    }
    let rendered = table.render()?;
    let mut lines = rendered.lines();
    let mut text = String::new();
    writeln!(text, "{}", lines.next().unwrap_or_default())?;
    for (line, release) in lines.zip(&report.releases) {
        writeln!(text, "{line}")?;
        for detail in details(report, release) {
            writeln!(text, "    {}", harmless(&detail))?;
        }
    }
    let mut counts = BTreeMap::new();
    for release in &report.releases {
        *counts.entry(release.comparison.verdict).or_insert(0_usize) += 1;
    }
    let counts: Vec<_> = counts.iter().map(|(verdict, count)| format!("{count} {}", verdict.as_str())).collect();
    let counts = if counts.is_empty() { "nothing".to_owned() } else { counts.join(", ") };
    let log = match &report.log {
        Identity::Known(log) => format!("log {log}"),
        Identity::Unknown => "log".to_owned(),
    };
    let tail = report.tail.map_or(0, Sequence::get);
    let summary = format!("{counts}; {log} at sequence {tail}, cluster {} at {}", report.cluster, report.server);
    writeln!(text, "\n{}", tinted(&harmless(&summary), Tone::Dim))?;
    Ok(text)
}

/// The stamp that says how far the object is: the oldest of what is behind, else the newest.
fn stamp_of(release: &Compared) -> Option<Sequence> {
    release.comparison.behind_since().or_else(|| release.comparison.newest())
}

fn details(report: &Report, release: &Compared) -> Vec<String> {
    let comparison = &release.comparison;
    let last = release.last.map_or_else(String::new, |last| format!(" at sequence {last}"));
    let mut details = match comparison.verdict {
        Verdict::Equal => Vec::new(),
        Verdict::Missing => {
            let (items, hooks) = release.rows;
            vec![format!("the log says{last}: an object (items: {items}, hooks: {hooks}); the cluster has none")]
        }
        Verdict::Ghost => {
            vec![format!("the log says{last}: no object any more; a running projector deletes it")]
        }
        Verdict::Foreign => vec![match comparison.stamps.values().find(|stamp| !report.log.is(&stamp.log)) {
            Some(stamp) => format!("it was made from the log {}, up to sequence {}", stamp.log, stamp.sequence),
            None => "it carries no stamp, and by the log there is to be none".to_owned(),
        }],
        Verdict::Ahead => {
            let tail = report.tail.map_or(0, Sequence::get);
            let stamp = comparison.newest().map_or(0, Sequence::get);
            vec![format!(
                "it was made from the log up to sequence {stamp}, and the log ends at {tail}: records are gone from it"
            )]
        }
        Verdict::Behind | Verdict::Drifted => differences(&comparison.differences),
    };
    details.extend(release.refusal.as_ref().map(|refusal| format!("no projector sends it: {refusal}")));
    details
}

/// What somebody else did comes first: the rest goes by itself.
fn differences(differences: &[Difference]) -> Vec<String> {
    let mut sorted: Vec<_> = differences.iter().collect();
    sorted.sort_by_key(|difference| difference.cause == Cause::Behind);
    let mut lines: Vec<_> = sorted.iter().take(SHOWN).map(|difference| line(difference)).collect();
    if let Some(rest) = sorted.len().checked_sub(SHOWN).filter(|rest| *rest > 0) {
        lines.push(format!("and {rest} more, which -o json shows"));
    }
    lines
}

fn line(difference: &Difference) -> String {
    let Difference { field, manager, cause, expected, found, writers } = difference;
    let writers: Vec<_> = writers.iter().map(writer).collect();
    match cause {
        Cause::Behind => format!("{field}: {}, still {}", value(expected.as_ref()), value(found.as_ref())),
        Cause::Drifted => {
            let by = if writers.is_empty() { String::new() } else { format!(", written by {}", writers.join(" and ")) };
            format!(
                "{field}: expected {}, found {}{by}; it belongs to {manager}",
                value(expected.as_ref()),
                value(found.as_ref())
            )
        }
        Cause::Owned if writers.is_empty() => format!("{field}: does not say what belongs to {manager}"),
        Cause::Owned => {
            format!("{field}: as expected, but written by {}; it belongs to {manager}", writers.join(" and "))
        }
    }
}

fn writer(writer: &Writer) -> String {
    let at = writer.time.as_deref().map_or_else(String::new, |time| format!(" at {time}"));
    format!("{} ({}){at}", writer.manager, writer.operation)
}

fn value(value: Option<&Value>) -> String {
    let Some(value) = value else { return "nothing".to_owned() };
    let text = value.to_string();
    match text.char_indices().nth(WIDTH) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn number(sequence: Option<Sequence>) -> String {
    sequence.map_or_else(|| "-".to_owned(), |sequence| sequence.to_string())
}

fn tone(verdict: Verdict) -> Tone {
    match verdict {
        Verdict::Equal => Tone::Good,
        Verdict::Behind => Tone::Waiting,
        Verdict::Drifted | Verdict::Missing | Verdict::Ghost | Verdict::Foreign | Verdict::Ahead => Tone::Bad,
    }
}

fn document(report: &Report) -> Value {
    let log = match &report.log {
        Identity::Known(log) => Some(log),
        Identity::Unknown => None,
    };
    json!({
        "log": log,
        "sequence": report.tail,
        "cluster": report.cluster,
        "server": report.server,
        "releases": report.releases.iter().map(release).collect::<Vec<_>>(),
    })
}

fn release(release: &Compared) -> Value {
    let stamps: BTreeMap<_, _> = release
        .comparison
        .stamps
        .iter()
        .map(|(manager, stamp)| (manager.name(), json!({ "log": stamp.log, "sequence": stamp.sequence })))
        .collect();
    json!({
        "namespace": release.key.namespace,
        "release": release.key.name,
        "verdict": release.comparison.verdict.as_str(),
        "stamp": stamp_of(release),
        "sequence": release.last,
        "eventsBehind": release.behind,
        "stamps": stamps,
        "refusal": release.refusal.as_ref().map(ToString::to_string),
        "differences": release.comparison.differences.iter().map(difference).collect::<Vec<_>>(),
    })
}

fn difference(difference: &Difference) -> Value {
    let writer =
        |writer: &Writer| json!({ "manager": writer.manager, "operation": writer.operation, "time": writer.time });
    json!({
        "field": difference.field,
        "manager": difference.manager.name(),
        "cause": difference.cause.as_str(),
        "expected": difference.expected,
        "found": difference.found,
        "writers": difference.writers.iter().map(writer).collect::<Vec<_>>(),
    })
}
