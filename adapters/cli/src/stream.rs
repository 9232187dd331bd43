//! `decklog stream`: the stream on NATS, made and kept in line, looked at, and who may do what on it.

mod info;
mod permissions;

use std::fmt::Write as _;

use anyhow::Error;
use decklog_nats::ApiError;
use decklog_nats::stream::{InitError, Initialized, Remedy, init};

use crate::args::{NatsArgs, StreamCommand, StreamInitArgs};
use crate::config::Config;
use crate::exit::{Answer, Failure};
use crate::nats::NatsLog;
use crate::output;
use crate::source::{LogAddress, not_yet};

pub(crate) async fn run(command: StreamCommand, config: &Config) -> Result<Answer, Error> {
    match command {
        StreamCommand::Init(args) => make(args, config).await,
        StreamCommand::Info(args) => info::run(args, config).await,
        StreamCommand::Permissions(args) => permissions::run(&args),
    }
}

async fn make(args: StreamInitArgs, config: &Config) -> Result<Answer, Error> {
    let nats = on_nats(config.log(args.to)?, &args.nats, "--to")?;
    let connection = nats.connect().await?;
    let made = init(&connection, &nats.stream, args.replicas).await.map_err(|error| explain(error, &nats))?;
    output::print(&in_words(&made, &nats)?)?;
    Ok(Answer::Yes)
}

fn in_words(made: &Initialized, nats: &NatsLog) -> Result<String, Error> {
    let NatsLog { servers, stream, .. } = nats;
    let replicas = &made.info.config["num_replicas"];
    let mut text = String::new();
    if made.is_new {
        writeln!(text, "Stream {stream} is made at {servers}: {}, replicas: {replicas}", made.info.id())?;
    } else if made.differences.is_empty() {
        writeln!(text, "Stream {stream} at {servers} is as it should be: {}, replicas: {replicas}", made.info.id())?;
    } else {
        writeln!(text, "Stream {stream} at {servers} differed from what decklog wants:")?;
        let (changed, left): (Vec<_>, Vec<_>) =
            made.differences.iter().partition(|difference| difference.remedy == Remedy::Change);
        for difference in changed.into_iter().chain(left) {
            writeln!(text, "  {difference}")?;
        }
    }
    Ok(text)
}

fn explain(error: InitError, nats: &NatsLog) -> Error {
    let NatsLog { servers, stream, .. } = nats;
    match error {
        InitError::Taken { ref streams } => {
            let way_out = match streams.as_slice() {
                [only] => format!("if that is the log, name it with --stream {only}"),
                _ => "if one of them is the log, name it with --stream NAME".to_owned(),
            };
            Failure::usage(format!(
                "cannot make the stream {stream} at {servers}: {error}; {way_out}, else take the subjects from it or use \
                 another account"
            ))
        }
        InitError::Foreign { .. } => Failure::usage(format!(
            "{error}, at {servers}; name another stream with --stream, or, if this one is to be the log, give it the subject \
             decklog.release.> first"
        )),
        InitError::Api(refused @ ApiError::Refused { .. }) => {
            Failure::usage(format!("cannot make the stream {stream} at {servers}: {refused}"))
        }
        InitError::Api(error) => error.into(),
    }
}

/// The log on NATS that a command is about.
fn on_nats(address: LogAddress, nats: &NatsArgs, flag: &str) -> Result<NatsLog, Error> {
    match address {
        LogAddress::Nats(servers) => Ok(NatsLog::new(&servers, nats)),
        LogAddress::Folder(path) | LogAddress::Lines(path) => Err(Failure::usage(format!(
            "a stream is on NATS, and {} is not: name the servers with {flag} nats://host:port, or a context of the NATS \
             CLI with --nats-context",
            path.display()
        ))),
        LogAddress::NotYet(name, what) => Err(not_yet(&name, what)),
    }
}
