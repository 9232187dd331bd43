//! `decklog timeline`: every event of a release, with what became of it.

use anyhow::Error;
use decklog_schemas::ReleaseKey;
use decklog_schemas::answer::{OutcomeWord, TimelineEntry};

use crate::args::{Format, TimelineArgs};
use crate::config::Config;
use crate::exit::Answer;
use crate::output::{self, Table, Tone, tinted};
use crate::source::Source;
use crate::yaml;

pub(crate) async fn run(args: TimelineArgs, config: &Config) -> Result<Answer, Error> {
    let format = config.output(args.output)?;
    let address = config.log(args.log.from)?;
    let key = ReleaseKey::new(&args.cluster, &args.namespace, &args.release);
    let mut source = Source::open(&address).await?;
    let entries = source.timeline(&key, args.since.as_ref(), args.until.as_ref()).await?;
    if entries.is_empty() {
        output::complain(&format!("There is no event of release {key} in {address} within these moments."));
        return Ok(Answer::Nothing);
    }
    output::print(&match format {
        Format::Table => table(&entries)?,
        Format::Json => output::json(&entries)?,
        Format::Yaml => yaml::to_string(&entries)?,
    })?;
    Ok(Answer::Yes)
}

/// The entries as a table; `demo` prints the same.
pub(crate) fn table(entries: &[TimelineEntry]) -> Result<String, Error> {
    let mut table = Table::new(&["SEQ", "TIME", "TYPE", "OUTCOME", "WHAT"]);
    for entry in entries {
        let name = entry.r#type.strip_prefix("dev.decklog.").unwrap_or(&entry.r#type);
        table.row([
            entry.sequence.to_string(),
            entry.time.clone().unwrap_or_else(|| entry.recorded.clone()),
            name.strip_suffix(".v1").unwrap_or(name).to_owned(),
            outcome(entry),
            entry.summary.clone(),
        ]);
    }
    table.render()
}

fn outcome(entry: &TimelineEntry) -> String {
    match (entry.outcome, entry.reason) {
        (OutcomeWord::Folded, _) => "folded".to_owned(),
        (OutcomeWord::Ignored, Some(reason)) => tinted(reason.as_str(), Tone::Waiting),
        (OutcomeWord::Ignored, None) => tinted("ignored", Tone::Waiting),
        (OutcomeWord::Quarantined, _) => tinted("quarantined", Tone::Bad),
    }
}
