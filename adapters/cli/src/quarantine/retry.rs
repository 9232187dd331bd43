//! `decklog quarantine retry`: events that stand under a wrong subject, appended again under their right one.

use anyhow::{Context as _, Error};
use decklog_engine::ingest::Check;
use decklog_schemas::Sequence;
use decklog_schemas::answer::{EmitAnswer, EmitStatus, Inspected, QuarantinedRecord};
use serde::Serialize;

use super::absent;
use crate::args::{AnswerFormat, NatsArgs, QuarantineRetryArgs};
use crate::config::Config;
use crate::emit::{Target, in_words};
use crate::exit::{Answer, Failure};
use crate::output::{self, Tone, harmless, tinted};
use crate::source::{LogAddress, Source};

/// How many records are in memory at a time.
const ROUND: usize = 64;

pub(crate) async fn run(args: QuarantineRetryArgs, config: &Config) -> Result<Answer, Error> {
    let address = config.log(args.log.from)?;
    if let LogAddress::Lines(path) = &address {
        return Err(Failure::usage(format!(
            "{} is a file, which is only read: correct the line, and append it to a log with `decklog emit`",
            path.display()
        )));
    }
    let log = Log { address, nats: args.log.nats };
    let sequences = if args.all { log.listed().await? } else { args.sequences };
    let mut report = Report { format: args.output, stays: false, is_absent: false };
    for round in in_order(sequences).chunks(ROUND) {
        let fates = log.retry(round).await?;
        for (sequence, fate) in &fates {
            report.print(*sequence, fate)?;
        }
        // What is newer must not overtake it in its release.
        if let Some((sequence, _)) = fates.iter().find(|(_, fate)| fate.is_unknown()) {
            return Err(Failure::unreachable(format!(
                "the event of the record at {sequence} may be appended or not: retry from there on, for equal ids are \
                 one event"
            )));
        }
    }
    Ok(match (report.stays, report.is_absent) {
        (true, _) => Answer::Refused,
        (false, true) => Answer::Nothing,
        (false, false) => Answer::Yes,
    })
}

/// The order of the log, each once.
fn in_order(mut sequences: Vec<Sequence>) -> Vec<Sequence> {
    sequences.sort_unstable();
    sequences.dedup();
    sequences
}

/// The log that is read and appended to.
struct Log {
    address: LogAddress,
    nats: NatsArgs,
}

/// What becomes of a record.
#[derive(Debug, Serialize)]
#[serde(tag = "result", rename_all = "lowercase")]
enum Fate {
    /// It was sent.
    Sent {
        #[serde(flatten)]
        answer: EmitAnswer,
    },
    /// There is nothing to be done.
    Fine { why: String },
    /// It stays in quarantine.
    Stays { why: String },
    /// There is no such record.
    Absent { why: String },
}

/// A record, and its event if that can be sent.
enum Step {
    Told(Fate),
    Send(Vec<u8>),
}

impl Log {
    async fn source(&self) -> Result<Source, Error> {
        Source::open(&self.address, &self.nats).await
    }

    async fn listed(&self) -> Result<Vec<Sequence>, Error> {
        let list = self.source().await?.quarantine(None, None).await?;
        if list.omitted > 0 {
            output::complain(&format!(
                "warning: {} older records are not listed, and not retried: name them",
                list.omitted
            ));
        }
        Ok(list.entries.into_iter().map(|entry| entry.sequence).collect())
    }

    /// Reads the records, sends what can be sent, and tells what became of each.
    async fn retry(&self, sequences: &[Sequence]) -> Result<Vec<(Sequence, Fate)>, Error> {
        let source = self.source().await?;
        let (mut fates, mut sent, mut events) = (Vec::new(), Vec::new(), Vec::new());
        for sequence in sequences {
            match plan(*sequence, source.inspect(*sequence).await?) {
                Step::Told(fate) => fates.push((*sequence, fate)),
                Step::Send(bytes) => {
                    sent.push(*sequence);
                    events.push(bytes);
                }
            }
        }
        // A folder has one holder at a time.
        drop(source);
        let answers = self.append(events).await?;
        let mut fates_of_sent = Vec::with_capacity(sent.len());
        for (sequence, answer) in sent.into_iter().zip(answers) {
            fates_of_sent.push((sequence, self.settle(sequence, answer).await?));
        }
        fates.extend(fates_of_sent);
        fates.sort_by_key(|(sequence, _)| *sequence);
        Ok(fates)
    }

    async fn append(&self, events: Vec<Vec<u8>>) -> Result<Vec<EmitAnswer>, Error> {
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let mut target = Target::open(&self.address, &self.nats).await?;
        let answers = target
            .append(events, Check::Valid)
            .await
            .context("events may be appended or not; retry the same records again, for equal ids are one event");
        // What was stored is folded and saved also if something failed after it.
        let stopped = target.close().await;
        let answers = answers?;
        stopped?;
        Ok(answers)
    }

    /// A duplicate may be one of the record itself, or of another one in quarantine: then nothing is gained.
    async fn settle(&self, sequence: Sequence, answer: EmitAnswer) -> Result<Fate, Error> {
        let first = match (answer.status, answer.sequence) {
            (EmitStatus::Duplicate, Some(first)) => first,
            _ => return Ok(Fate::Sent { answer }),
        };
        let is_placed =
            first != sequence && matches!(self.source().await?.inspect(first).await?, Inspected::Understood { .. });
        if is_placed {
            return Ok(Fate::Sent { answer });
        }
        let until = match self.address {
            LogAddress::Folder(_) => "until 65,536 newer records are in it",
            _ => {
                "until the stream's duplicate window is over, 10 minutes after the record was stored unless it is \
                  configured otherwise"
            }
        };
        let why = format!("duplicate: the log takes the record at {first} for this event {until}; retry it then");
        Ok(Fate::Stays { why })
    }
}

/// What can be done with a record.
fn plan(sequence: Sequence, inspected: Inspected) -> Step {
    Step::Told(match inspected {
        Inspected::Quarantined(QuarantinedRecord { placed: Some(placed), .. }) => {
            Fate::Fine { why: format!("the same event is at {placed}, under its right subject") }
        }
        Inspected::Quarantined(QuarantinedRecord { entry, bytes, .. }) if entry.expected.is_some() => {
            return Step::Send(bytes);
        }
        Inspected::Quarantined(QuarantinedRecord { entry, .. }) => {
            Fate::Stays { why: format!("{}: {}", entry.kind, entry.reason) }
        }
        Inspected::Understood { summary, .. } => Fate::Fine {
            why: format!("this version understands it where it stands, and every replay folds it: {summary}"),
        },
        Inspected::Absent { tail } => Fate::Absent { why: absent(sequence, tail) },
    })
}

impl Fate {
    fn is_unknown(&self) -> bool {
        matches!(self, Self::Sent { answer } if answer.status == EmitStatus::Unknown)
    }
}

/// Prints what became of the records.
struct Report {
    format: AnswerFormat,
    stays: bool,
    is_absent: bool,
}

/// A record, and what became of it.
#[derive(Serialize)]
struct Told<'a> {
    record: Sequence,
    #[serde(flatten)]
    fate: &'a Fate,
}

impl Report {
    fn print(&mut self, record: Sequence, fate: &Fate) -> Result<(), Error> {
        self.stays |= match fate {
            Fate::Sent { answer } => !matches!(answer.status, EmitStatus::Stored | EmitStatus::Duplicate),
            Fate::Stays { .. } => true,
            Fate::Fine { .. } | Fate::Absent { .. } => false,
        };
        self.is_absent |= matches!(fate, Fate::Absent { .. });
        output::print(&match self.format {
            AnswerFormat::Json => serde_json::to_string(&Told { record, fate })? + "\n",
            AnswerFormat::Text => format!("seq {record}: {}\n", words(fate)),
        })
    }
}

fn words(fate: &Fate) -> String {
    match fate {
        Fate::Sent { answer } => in_words(answer),
        Fate::Fine { why } => format!("{}: {}", tinted("needs nothing", Tone::Good), harmless(why)),
        Fate::Stays { why } => format!("{}: {}", tinted("stays in quarantine", Tone::Bad), harmless(why)),
        Fate::Absent { why } => format!("{}: {why}", tinted("not there", Tone::Bad)),
    }
}
