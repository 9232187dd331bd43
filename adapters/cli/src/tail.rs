//! `decklog tail`: events as they come, for those who watch and for those who pipe.

use std::fmt::Write as _;

use anyhow::Error;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use decklog_engine::log::{Batch, Log, LogId, ReadError, Scope, Wait};
use decklog_engine::replay::Until;
use decklog_nats::JetStreamLog;
use decklog_projections::summary::told;
use decklog_schemas::subject::Subject;
use decklog_schemas::{DEFAULT_CLUSTER, Domain, Envelope, EventType, Record, ReleaseKey, Sequence};
use serde::Serialize;
use serde_json::Value;

use crate::args::{TailArgs, TailFormat};
use crate::config::Config;
use crate::exit::{Answer, Failure};
use crate::moment::Clock;
use crate::nats::NatsLog;
use crate::output::{self, Cell};
use crate::signals::Signals;
use crate::source::{LogAddress, not_yet};

pub(crate) async fn run(args: TailArgs, config: &Config) -> Result<Answer, Error> {
    let nats = match config.log(args.log.from.clone())? {
        LogAddress::Nats(servers) => NatsLog::new(&servers, &args.log.nats),
        LogAddress::Folder(path) | LogAddress::Lines(path) => {
            return Err(Failure::usage(format!(
                "`decklog tail` follows a log on NATS, such as --from nats://host:port: what is in {} is shown by \
                 `decklog timeline`",
                path.display()
            )));
        }
        LogAddress::NotYet(name, what) => return Err(not_yet(&name, what)),
    };
    let mut signals = Signals::new()?;
    let begin = async {
        let log = nats.open().await?;
        let from = first(&log, &args).await?;
        Ok::<_, Error>((log, from))
    };
    let (log, from) = tokio::select! {
        begun = begin => begun?,
        _ = signals.next() => return Ok(Answer::Yes),
    };
    let filter = Filter::new(&args, config);
    let mut printer = Printer { format: args.output, has_header: false };
    let ended = tokio::select! {
        ended = follow(&log, from, &filter, &mut printer) => ended,
        _ = signals.next() => Ok(()),
    };
    ended.map(|()| Answer::Yes)
}

/// Where a tail begins.
async fn first(log: &JetStreamLog, args: &TailArgs) -> Result<Sequence, Error> {
    Ok(match args.since.as_ref().map(|since| since.resolve(&Clock::now())).transpose()? {
        None => Sequence::after(log.info().await?.tail()),
        Some(Until::Sequence(sequence)) => sequence,
        Some(Until::Time(moment)) => log.first_since(moment).await?,
        Some(Until::Tail) => Sequence::FIRST,
    })
}

/// Prints what comes, until something ends it.
async fn follow(log: &JetStreamLog, mut from: Sequence, filter: &Filter, printer: &mut Printer) -> Result<(), Error> {
    let scope = filter.scope();
    let mut identity = None;
    loop {
        let batch = match log.read(from, &scope, Wait::ForMore).await {
            Err(ReadError::Missing { log }) if identity.is_some() => {
                return Err(Failure::diverged(format!(
                    "there is no stream {log} any more: `decklog stream info` shows what the server has"
                )));
            }
            batch => batch?,
        };
        check(&mut identity, from, &batch)?;
        for gap in &batch.gaps {
            output::complain(&format!("warning: {gap}"));
        }
        for record in batch.records.iter().filter(|record| filter.takes(record)) {
            printer.print(&record)?;
        }
        from = batch.next;
    }
}

/// The log must stay the one that the tail began with: another one would be followed from a wrong place, in silence.
fn check(identity: &mut Option<LogId>, from: Sequence, batch: &Batch) -> Result<(), Error> {
    let known = identity.get_or_insert_with(|| batch.log.clone());
    if *known != batch.log {
        return Err(Failure::diverged(format!(
            "the log has diverged: it was {known}, and is now {}: run `decklog tail` again to follow that one",
            batch.log
        )));
    }
    if from > Sequence::after(batch.tail) {
        let tail = batch.tail.map_or(0, Sequence::get);
        return Err(Failure::diverged(format!(
            "the log ends at {tail}, and {from} is where to go on: it is another one than it was, or was put back to a \
             backup; run `decklog tail` again to follow what comes from now on"
        )));
    }
    Ok(())
}

/// Which events are shown.
struct Filter {
    cluster: Option<String>,
    namespace: Option<String>,
    release: Option<String>,
    types: Vec<EventType>,
    domains: Vec<Domain>,
}

impl Filter {
    fn new(args: &TailArgs, config: &Config) -> Self {
        let cluster = config.cluster(args.cluster.clone());
        Self {
            cluster,
            namespace: args.namespace.clone(),
            release: args.release.clone(),
            types: args.types.clone(),
            domains: args.domains.clone(),
        }
    }

    /// One release is read by its own subjects.
    fn scope(&self) -> Scope {
        match (&self.namespace, &self.release) {
            (Some(namespace), Some(release)) => {
                let cluster = self.cluster.as_deref().unwrap_or(DEFAULT_CLUSTER);
                Scope::Release(ReleaseKey::new(cluster, namespace, release))
            }
            _ => Scope::All,
        }
    }

    fn takes(&self, record: &Record<'_>) -> bool {
        self.takes_place(record) && self.takes_kind(record)
    }

    fn takes_place(&self, record: &Record<'_>) -> bool {
        if self.cluster.is_none() && self.namespace.is_none() {
            return true;
        }
        let Some(Subject::Release { release, .. }) = Subject::parse(&record.subject) else { return false };
        let is = |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
        release.key().is_some_and(|key| is(&self.cluster, &key.cluster) && is(&self.namespace, &key.namespace))
    }

    /// What the event says of itself counts, and where it says nothing the place where it stands.
    fn takes_kind(&self, record: &Record<'_>) -> bool {
        let event_type = event_type(record);
        let is_type = self.types.is_empty() || event_type.is_some_and(|found| self.types.contains(&found));
        let domain = match Subject::parse(&record.subject) {
            Some(Subject::Release { domain, .. }) => Some(domain),
            Some(Subject::Deployment) => Some(Domain::Deployment.as_str()),
            None => None,
        };
        let is_domain = self.domains.is_empty() || self.domains.iter().any(|wanted| domain == Some(wanted.as_str()));
        is_type && is_domain
    }
}

fn event_type(record: &Record<'_>) -> Option<EventType> {
    let envelope = Envelope::decode(&record.bytes).ok()?;
    envelope.wire_type().and_then(EventType::from_wire)
}

/// Prints records.
struct Printer {
    format: TailFormat,
    has_header: bool,
}

/// A record as JSON.
#[derive(Serialize)]
struct Line<'a> {
    sequence: Sequence,
    recorded: String,
    subject: &'a str,
    /// The event in the JSON form of CloudEvents.
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<Value>,
    /// What is no event, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<String>,
}

impl Printer {
    fn print(&mut self, record: &Record<'_>) -> Result<(), Error> {
        let line = match self.format {
            TailFormat::Table => self.row(record)?,
            TailFormat::Json => serde_json::to_string(&line(record))? + "\n",
            TailFormat::Cloudevents => match cloud_event(record)? {
                Some(event) => event + "\n",
                None => {
                    output::complain(&format!(
                        "warning: the record at {} is no event: {}",
                        record.sequence,
                        told(record)
                    ));
                    return Ok(());
                }
            },
        };
        output::print(&line)
    }

    /// Columns of fixed width, for nobody knows what comes.
    fn row(&mut self, record: &Record<'_>) -> Result<String, Error> {
        let mut text = String::new();
        if !std::mem::replace(&mut self.has_header, true) {
            writeln!(text, "{:<9} {:<20} {:<32} {:<17} WHAT", "SEQ", "RECORDED", "RELEASE", "TYPE")?;
        }
        let recorded = record.recorded.strftime("%Y-%m-%dT%H:%M:%SZ");
        let about = match Subject::parse(&record.subject) {
            Some(Subject::Release { release, .. }) => match release.key() {
                Some(key) if &*key.cluster == DEFAULT_CLUSTER => format!("{}/{}", key.namespace, key.name),
                Some(key) => format!("{}/{}@{}", key.namespace, key.name, key.cluster),
                None => release.to_string(),
            },
            Some(Subject::Deployment) | None => record.subject.to_string(),
        };
        let wire = Envelope::decode(&record.bytes).ok().and_then(|event| event.wire_type().map(str::to_owned));
        let wire = wire.unwrap_or_else(|| "-".to_owned());
        let name = wire.strip_prefix("dev.decklog.").and_then(|name| name.strip_suffix(".v1")).unwrap_or(&wire);
        let [about, name, what] = [&about, name, &told(record)].map(|text| Cell::from(text).into_text());
        writeln!(text, "{:<9} {recorded:<20} {about:<32} {name:<17} {what}", record.sequence.get())?;
        Ok(text)
    }
}

fn line<'a>(record: &'a Record<'_>) -> Line<'a> {
    let event = json_form(record);
    let bytes = event.is_none().then(|| BASE64_STANDARD.encode(&record.bytes));
    Line { sequence: record.sequence, recorded: record.recorded.to_string(), subject: &record.subject, event, bytes }
}

/// The event in the JSON form, on one line: as it was received, if it has that form already.
fn cloud_event(record: &Record<'_>) -> Result<Option<String>, Error> {
    let Some(event) = json_form(record) else { return Ok(None) };
    Ok(Some(match std::str::from_utf8(&record.bytes) {
        Ok(text) if record.bytes.first() == Some(&b'{') && !text.contains(['\n', '\r']) => text.to_owned(),
        _ => event.to_string(),
    }))
}

/// The event in the JSON form, from whichever form it has; none if it is no event.
fn json_form(record: &Record<'_>) -> Option<Value> {
    Envelope::decode(&record.bytes).ok()?;
    serde_json::from_slice(&record.bytes).ok().or_else(|| rmp_serde::from_slice(&record.bytes).ok())
}
