//! `decklog emit`: events into a log, and for each what became of it.

mod flags;
mod input;

use std::io::Read as _;

use anyhow::{Context as _, Error};
use decklog_engine::ingest::{Check, IngestError, append, ingest};
use decklog_http::client::Client;
use decklog_nats::JetStreamLog;
use decklog_schemas::answer::{EmitAnswer, EmitStatus, OutcomeWord};
use decklog_schemas::{DEFAULT_CLUSTER, EventType};
use serde::Serialize;
use tokio::sync::mpsc;

pub(crate) use self::input::BYTE_ORDER_MARK;
use self::input::{Batch, Input};
use crate::args::{AnswerFormat, EmitArgs, NatsArgs};
use crate::config::Config;
use crate::exit::{Answer, Failure};
use crate::folder::Embedded;
use crate::inventories::Yaml;
use crate::nats::NatsLog;
use crate::output::{self, Tone, tinted};
use crate::source::{LogAddress, Taken, not_yet, take};

pub(crate) async fn run(args: EmitArgs, config: &Config) -> Result<Answer, Error> {
    let check = if args.unchecked { Check::AsIs } else { Check::Valid };
    let cluster = config.cluster(args.event.cluster.clone()).unwrap_or_else(|| DEFAULT_CLUSTER.to_owned());
    let input = input_of(&args, &cluster)?;
    let mut target = Target::open(&config.log(args.to.clone())?, &args.nats).await?;
    let mut report = Report { format: args.output, unit: input.unit(), any_refused: false, has_reader: true };
    let sent = send(&mut target, input, check, &mut report).await;
    // What was stored is folded and saved also if something failed after it.
    let stopped = target.close().await;
    sent?;
    stopped?;
    Ok(if report.any_refused { Answer::Refused } else { Answer::Yes })
}

/// Who takes the events.
pub(crate) enum Target {
    /// The `up` that holds the folder.
    Running(Client),
    /// An engine in this process, for a folder that nobody holds.
    Own(Embedded),
    /// A stream on NATS, which somebody else folds.
    Nats(Box<JetStreamLog>),
}

impl Target {
    pub(crate) async fn open(address: &LogAddress, nats: &NatsArgs) -> Result<Self, Error> {
        let folder = match address {
            LogAddress::Folder(folder) => folder,
            LogAddress::Nats(servers) => {
                return Ok(Self::Nats(Box::new(NatsLog::new(servers, nats).open_to_append().await?)));
            }
            LogAddress::Lines(path) => {
                return Err(Failure::usage(format!(
                    "{} is a file, which is only read: name nats://host:port or a folder with --to",
                    path.display()
                )));
            }
            LogAddress::NotYet(name, what) => return Err(not_yet(name, what)),
        };
        Ok(match take(folder, async || Embedded::start(folder, Yaml::Off).await).await? {
            Taken::Running(client) => Self::Running(client),
            Taken::Opened(engine) => Self::Own(engine),
        })
    }

    pub(crate) async fn append(&mut self, events: Vec<Vec<u8>>, check: Check) -> Result<Vec<EmitAnswer>, Error> {
        match self {
            Self::Running(client) => Ok(client.append(&events, check).await?),
            Self::Nats(log) => Ok(append(&**log, events, check).await?),
            Self::Own(engine) => match ingest(&engine.handle, events, check).await {
                // The engine's own error says more than that it has ended.
                Err(IngestError::Stopped(stopped)) => Err(engine.ended().await.err().unwrap_or_else(|| stopped.into())),
                answers => Ok(answers?),
            },
        }
    }

    pub(crate) async fn close(self) -> Result<(), Error> {
        match self {
            Self::Running(_) | Self::Nats(_) => Ok(()),
            Self::Own(engine) => engine.stop().await,
        }
    }
}

async fn send(target: &mut Target, input: Input, check: Check, report: &mut Report) -> Result<(), Error> {
    let (sender, mut batches) = mpsc::channel(2);
    let reader = tokio::task::spawn_blocking(move || input.read_into(&sender));
    while let Some(Batch { first, events, places }) = batches.recv().await {
        let answers = target.append(events, check).await.with_context(|| {
            format!(
                "what stands from {} {first} on may be stored or not; send it again, for equal ids are one event",
                report.unit
            )
        })?;
        let unknown = answers.iter().position(|answer| answer.status == EmitStatus::Unknown);
        let unknown = unknown.map(|at| places[at]);
        for (place, answer) in places.into_iter().zip(answers) {
            report.print(place, &answer)?;
        }
        // What is newer must not overtake it in its release, or the fold takes it for a duplicate when it comes.
        if let Some(place) = unknown {
            return Err(Failure::unreachable(format!(
                "the log does not say what became of {0} {place}, and nothing behind its batch was sent: send again from \
                 {0} {place} on when the log answers, for equal ids are one event",
                report.unit
            )));
        }
    }
    match reader.await {
        Ok(read) => read,
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}

fn input_of(args: &EmitArgs, cluster: &str) -> Result<Input, Error> {
    if let Some(event_type) = EventType::from_name(&args.what) {
        let event = flags::event(event_type, cluster, args.release.as_deref(), &args.event)?;
        return Ok(Input::one(event));
    }
    if let Some(flag) = flags::first_given(&args.event) {
        return Err(Failure::usage(format!(
            "{flag} is for one event from flags, and {:?} is no event type",
            args.what
        )));
    }
    if let Some(second) = &args.release {
        let known: Vec<_> = EventType::ALL.iter().map(|known| known.name()).collect();
        return Err(Failure::usage(format!(
            "{:?} is no event type, and of files `emit` takes one at a time, not {second:?} as well; the types are {}",
            args.what,
            known.join(", ")
        )));
    }
    if args.what == "-" {
        return Ok(Input::of(Box::new(std::io::stdin())));
    }
    let mut file = std::fs::File::open(&args.what).map_err(|error| {
        Failure::usage(format!("cannot read {:?}, which is no event type either: {error}", args.what))
    })?;
    // A folder can be opened and not read: better said before the log is touched.
    file.read(&mut []).map_err(|error| Failure::usage(format!("cannot read {:?}: {error}", args.what)))?;
    Ok(Input::of(Box::new(file)))
}

/// Prints the answers.
struct Report {
    format: AnswerFormat,
    unit: &'static str,
    any_refused: bool,
    /// Whether somebody still reads the answers; events are stored all the same.
    has_reader: bool,
}

/// An answer with the line or event that it is about.
#[derive(Serialize)]
struct Placed<'a> {
    line: u64,
    #[serde(flatten)]
    answer: &'a EmitAnswer,
}

impl Report {
    fn print(&mut self, line: u64, answer: &EmitAnswer) -> Result<(), Error> {
        self.any_refused |= !matches!(answer.status, EmitStatus::Stored | EmitStatus::Duplicate);
        if !self.has_reader {
            return Ok(());
        }
        let printed = output::print(&match self.format {
            AnswerFormat::Json => serde_json::to_string(&Placed { line, answer })? + "\n",
            AnswerFormat::Text => format!("{} {line}: {}\n", self.unit, in_words(answer)),
        });
        match printed {
            Err(error) if output::is_broken_pipe(&error) => self.has_reader = false,
            printed => return printed,
        }
        Ok(())
    }
}

pub(crate) fn in_words(answer: &EmitAnswer) -> String {
    let at = answer.sequence.map_or_else(String::new, |sequence| format!(" at {sequence}"));
    let problem = answer.error.as_deref().unwrap_or("no reason given");
    let status = match answer.status {
        EmitStatus::Stored => tinted("stored", Tone::Good) + &at,
        EmitStatus::Duplicate => tinted("duplicate", Tone::Dim) + " of the event" + &at,
        EmitStatus::Conflict => return format!("{}: {problem}", tinted("conflict", Tone::Bad)),
        EmitStatus::Refused => return format!("{}: {problem}", tinted("refused", Tone::Bad)),
        EmitStatus::Unknown => return format!("{}: {problem}", tinted("unknown", Tone::Bad)),
    };
    match (answer.outcome, answer.reason) {
        (Some(OutcomeWord::Folded), _) => status + ", folded",
        (Some(OutcomeWord::Ignored), Some(reason)) => {
            format!("{status}, ignored: {}", tinted(reason.as_str(), Tone::Waiting))
        }
        (Some(OutcomeWord::Quarantined), _) => format!("{status}, left out: {problem}"),
        _ => status,
    }
}
