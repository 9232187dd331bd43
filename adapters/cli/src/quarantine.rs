//! `decklog quarantine`: the records that no fold can use, one by one with their bytes, and another try for them.

mod bytes;
mod retry;

use std::fmt::Write as _;

use anyhow::Error;
use decklog_schemas::Sequence;
use decklog_schemas::answer::{Inspected, QuarantineEntry, QuarantineList, QuarantinedRecord};

use crate::args::{Format, QuarantineCommand, QuarantineLsArgs, QuarantineShowArgs};
use crate::config::Config;
use crate::exit::Answer;
use crate::output::{self, Cell, Table, Tone, harmless};
use crate::source::Source;
use crate::timeline::seconds;
use crate::yaml;

pub(crate) async fn run(command: QuarantineCommand, config: &Config) -> Result<Answer, Error> {
    match command {
        QuarantineCommand::Ls(args) => ls(args, config).await,
        QuarantineCommand::Show(args) => show(args, config).await,
        QuarantineCommand::Retry(args) => retry::run(args, config).await,
    }
}

async fn ls(args: QuarantineLsArgs, config: &Config) -> Result<Answer, Error> {
    let format = config.output(args.output)?;
    let address = config.log(args.log.from)?;
    let source = Source::open_with_all(&address, &args.log.nats).await?;
    let (since, until) = (source.resolve(args.since)?, source.resolve(args.until)?);
    let list = source.quarantine(since, until).await?;
    if list.entries.is_empty() {
        output::complain(&format!("There is nothing in quarantine in {address}."));
        if format != Format::Table {
            output::print(&render(&list, format)?)?;
        }
        return Ok(Answer::Nothing);
    }
    output::print(&render(&list, format)?)?;
    Ok(Answer::Yes)
}

fn render(list: &QuarantineList, format: Format) -> Result<String, Error> {
    match format {
        Format::Table => table(list),
        Format::Json => output::json(list),
        Format::Yaml => yaml::to_string(list),
    }
}

async fn show(args: QuarantineShowArgs, config: &Config) -> Result<Answer, Error> {
    let format = config.output(args.output)?;
    let address = config.log(args.log.from)?;
    let source = Source::open_with_all(&address, &args.log.nats).await?;
    let record = match source.inspect(args.sequence).await? {
        Inspected::Quarantined(record) => record,
        Inspected::Understood { subject, summary } => {
            let (subject, summary) = (harmless(&subject), harmless(&summary));
            let sequence = args.sequence;
            output::complain(&format!(
                "The record at {sequence} is not in quarantine: it is an event in its place, {subject}: {summary}."
            ));
            return Ok(Answer::Nothing);
        }
        Inspected::Absent { tail } => {
            output::complain(&format!("There is no record at {}: {}.", args.sequence, absent(args.sequence, tail)));
            return Ok(Answer::Nothing);
        }
    };
    if args.raw {
        output::print_bytes(&record.bytes)?;
        return Ok(Answer::Yes);
    }
    output::print(&match format {
        Format::Table => page(&record)?,
        Format::Json => output::json(&record)?,
        Format::Yaml => yaml::to_string(&record)?,
    })?;
    Ok(Answer::Yes)
}

/// Why there is no record at a place.
fn absent(sequence: Sequence, tail: Option<Sequence>) -> String {
    match tail {
        Some(tail) if sequence > tail => format!("the log ends at {tail}"),
        Some(_) => "nothing was stored there, or it was taken out".to_owned(),
        None => "the log is empty".to_owned(),
    }
}

fn table(list: &QuarantineList) -> Result<String, Error> {
    let mut table = Table::new(&["SEQ", "RECORDED", "REASON", "SUBJECT", "SIZE", "WHAT"]);
    for entry in &list.entries {
        table.row([
            entry.sequence.to_string().into(),
            seconds(&entry.recorded).into(),
            Cell::tinted(entry.kind.as_str(), Tone::Bad),
            entry.subject.clone().into(),
            entry.size.to_string().into(),
            what(entry).into(),
        ]);
    }
    let total: u64 = list.counts.values().sum();
    let counts: Vec<_> = list.counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    let mut text = format!("{}\n{total} in quarantine: {}", table.render()?, counts.join(", "));
    if let (1.., Some(oldest)) = (list.omitted, list.entries.first()) {
        let before = oldest.sequence.get() - 1;
        write!(text, "; {} older ones are not listed: ask for them with --until seq:{before}", list.omitted)?;
    }
    Ok(text + "\n")
}

/// In a table the subject has a column of its own, and what matters is where the event belongs.
fn what(entry: &QuarantineEntry) -> String {
    match (&entry.expected, &entry.r#type) {
        (Some(expected), Some(event_type)) => format!("{event_type} belongs under {expected}"),
        _ => entry.reason.clone(),
    }
}

/// Everything about one record.
fn page(record: &QuarantinedRecord) -> Result<String, Error> {
    let QuarantinedRecord { entry, placed, bytes } = record;
    let mut text = String::new();
    let also = placed.map(|placed| format!("the same event is at {placed}, under its right subject"));
    for (name, value) in [
        ("Sequence:", Some(entry.sequence.to_string())),
        ("Recorded:", Some(entry.recorded.clone())),
        ("Subject:", Some(entry.subject.clone()).filter(|subject| !subject.is_empty())),
        ("Kind:", Some(entry.kind.to_string())),
        ("Reason:", Some(entry.reason.clone())),
        ("Belongs under:", entry.expected.clone()),
        ("Also:", also),
        ("Id:", entry.id.clone()),
        ("Type:", entry.r#type.clone()),
        ("Source:", entry.source.clone()),
        ("Size:", Some(format!("{} bytes", entry.size))),
    ] {
        if let Some(value) = value {
            writeln!(text, "{name:<15}{}", harmless(&value))?;
        }
    }
    Ok(format!("{text}\n{}", bytes::shown(bytes)))
}
