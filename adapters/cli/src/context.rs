//! Which NATS context a command works with, and whether that is what names its log.

use std::path::PathBuf;

use anyhow::Error;
use decklog_nats::Context;

use crate::args::{Command, NatsArgs, QuarantineCommand, StreamCommand};
use crate::config::{Config, home, variable};
use crate::exit::Failure;
use crate::source::LogAddress;

/// Reads the context that a flag, a variable or the configuration file names, in this order, if the command works on a
/// log on NATS. Where nothing of the same or a higher rank names a log, it is the one on the servers of the context.
pub(crate) fn complete(command: &mut Command, config: &Config) -> Result<(), Error> {
    let Some((log, nats)) = log_of(command) else { return Ok(()) };
    let has_variable = variable("DECKLOG_LOG").is_some();
    let (name, may_name_log) = if let Some(name) = &nats.nats_context {
        (name.clone(), true)
    } else if let Some(name) = variable("DECKLOG_NATS_CONTEXT") {
        (name, !has_variable)
    } else if let Some(name) = config.nats_context() {
        (name.to_owned(), !has_variable && !config.names_log())
    } else {
        return Ok(());
    };
    let names_log = log.is_none() && may_name_log;
    let is_on_nats = |log: &LogAddress| matches!(log, LogAddress::Nats(_));
    if !names_log && !is_on_nats(&config.log(log.clone())?) {
        return Ok(());
    }
    let context = read(&name)?;
    if names_log {
        *log = Some(LogAddress::Nats(context.servers.clone()));
    }
    nats.context = Some(context);
    Ok(())
}

/// The log that a command works on and the login to it, of the commands that take both.
fn log_of(command: &mut Command) -> Option<(&mut Option<LogAddress>, &mut NatsArgs)> {
    let log = match command {
        Command::Emit(args) => return Some((&mut args.to, &mut args.nats)),
        Command::Stream(StreamCommand::Init(args)) => return Some((&mut args.to, &mut args.nats)),
        Command::At(args) => &mut args.log,
        Command::Timeline(args) => &mut args.log,
        Command::Project(args) => &mut args.log,
        Command::Tail(args) => &mut args.log,
        Command::Verify(args) => &mut args.log,
        Command::Quarantine(QuarantineCommand::Ls(args)) => &mut args.log,
        Command::Quarantine(QuarantineCommand::Show(args)) => &mut args.log,
        Command::Quarantine(QuarantineCommand::Retry(args)) => &mut args.log,
        Command::Stream(StreamCommand::Info(args)) => &mut args.log,
        Command::Stream(StreamCommand::Permissions(_))
        | Command::Up(_)
        | Command::Demo(_)
        | Command::Crd(_)
        | Command::Manifests(_)
        | Command::Schema(_)
        | Command::Completions { .. } => return None,
    };
    Some((&mut log.from, &mut log.nats))
}

/// Reads a context where the NATS CLI keeps it.
fn read(name: &str) -> Result<Context, Error> {
    let folder = home("XDG_CONFIG_HOME", ".config")
        .ok_or_else(|| Failure::usage("there is no home folder, in which NATS contexts are"))?;
    let home = variable("HOME").map(PathBuf::from).unwrap_or_default();
    Context::read(&folder.join("nats/context"), name, &home).map_err(|error| Failure::usage(spelled_out(&error)))
}

/// An error with its sources, in one line.
pub(crate) fn spelled_out(error: &dyn std::error::Error) -> String {
    let sources = std::iter::successors(error.source(), |error| error.source());
    sources.fold(error.to_string(), |text, source| format!("{text}: {source}"))
}
