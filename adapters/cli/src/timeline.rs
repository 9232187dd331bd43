//! `decklog timeline`: every event of a release, with what became of it.

use anyhow::Error;
use decklog_schemas::answer::{OutcomeWord, TimelineEntry};
use decklog_schemas::{DEFAULT_CLUSTER, ReleaseKey, Seconds};

use crate::args::{Format, TimelineArgs};
use crate::config::Config;
use crate::exit::Answer;
use crate::output::{self, Cell, Table, Tone};
use crate::source::Source;
use crate::yaml;

pub(crate) async fn run(args: TimelineArgs, config: &Config) -> Result<Answer, Error> {
    let format = config.output(args.output)?;
    let address = config.log(args.log.from.clone())?;
    let cluster = config.cluster(args.cluster).unwrap_or_else(|| DEFAULT_CLUSTER.to_owned());
    let key = ReleaseKey::new(&cluster, &args.namespace, &args.release);
    let mut source = Source::open(&address, &args.log.nats).await?;
    let (since, until) = (source.resolve(args.since)?, source.resolve(args.until)?);
    let entries = source.timeline(&key, since, until).await?;
    if entries.is_empty() {
        let moments = [("from", since), ("up to", until)]
            .map(|(word, moment)| moment.map_or_else(String::new, |moment| format!(" {word} {moment}")));
        output::complain(&format!(
            "There is no event of release {}/{} in cluster {cluster}{}.",
            key.namespace,
            key.name,
            moments.concat()
        ));
        if format != Format::Table {
            output::print(&render(&entries, format)?)?;
        }
        return Ok(Answer::Nothing);
    }
    output::print(&render(&entries, format)?)?;
    Ok(Answer::Yes)
}

fn render(entries: &[TimelineEntry], format: Format) -> Result<String, Error> {
    match format {
        Format::Table => table(entries),
        Format::Json => output::json(&entries),
        Format::Yaml => yaml::to_string(&entries),
    }
}

/// The entries as a table; `demo` prints the same. Where the log has a clock of its own, both times are told.
pub(crate) fn table(entries: &[TimelineEntry]) -> Result<String, Error> {
    let has_own_clock = entries
        .iter()
        .any(|entry| entry.time.is_some() && moment(entry.time.as_deref()) != moment(Some(&entry.recorded)));
    let mut header = vec!["SEQ", "RECORDED", "TIME", "TYPE", "OUTCOME", "WHAT"];
    if !has_own_clock {
        header.remove(1);
    }
    let mut table = Table::new(&header);
    for entry in entries {
        let name = entry.r#type.strip_prefix("dev.decklog.").unwrap_or(&entry.r#type);
        let mut cells = vec![
            entry.sequence.to_string().into(),
            seconds(&entry.recorded).into(),
            entry.time.as_deref().map_or_else(String::new, seconds).into(),
            name.strip_suffix(".v1").unwrap_or(name).into(),
            outcome(entry),
            entry.summary.clone().into(),
        ];
        if !has_own_clock {
            cells.remove(1);
        }
        table.row(cells);
    }
    table.render()
}

fn moment(text: Option<&str>) -> Option<Seconds> {
    text.and_then(|text| Seconds::parse(text).ok())
}

/// A time in whole seconds; what is no time, as it is.
pub(crate) fn seconds(text: &str) -> String {
    moment(Some(text)).map_or_else(|| text.to_owned(), |seconds| seconds.to_string())
}

fn outcome(entry: &TimelineEntry) -> Cell {
    match (entry.outcome, entry.reason) {
        (OutcomeWord::Folded, _) => "folded".into(),
        (OutcomeWord::Ignored, Some(reason)) => Cell::tinted(reason.as_str(), Tone::Waiting),
        (OutcomeWord::Ignored, None) => Cell::tinted("ignored", Tone::Waiting),
        (OutcomeWord::Quarantined, _) => Cell::tinted("quarantined", Tone::Bad),
    }
}
