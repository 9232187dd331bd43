//! The end of the process: which exit code a failure has, and the one place where its whole chain is printed.

use std::fmt;
use std::io;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Error;
use clap::Parser;
use decklog_engine::driver::DriveError;
use decklog_engine::log::ReadError;
use decklog_engine::service::ServiceError;
use tracing_subscriber::EnvFilter;

use crate::args::{Cli, Command};
use crate::config::{Config, variable};
use crate::nats::way_out;
use crate::{
    at, context, demo, documents, emit, manifests, output, project, quarantine, stream, tail, timeline, up, verify,
};

/// What a command ends with if it does not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It did what was asked.
    Yes,
    /// There is nothing of what was asked for.
    Nothing,
    /// Two things that were compared are not the same.
    Different,
    /// Some of the input was refused; the rest was taken.
    Refused,
}

/// A failure with a code of its own and a way out.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    message: String,
}

/// The exit codes of failures, as the help text lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    Usage = 2,
    Refused = 3,
    Unreachable = 4,
    Diverged = 5,
    Bug = 70,
}

/// The variable that says how much is told on standard error.
const LOG_LEVEL: &str = "DECKLOG_LOG_LEVEL";

/// What it may say.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Reads the command line, runs the command, and says how it went.
pub fn run() -> ExitCode {
    // A panic is told where it ends the process. sled's are caught, and told as what they mean: damaged files.
    let panicked = Arc::new(Mutex::new(String::new()));
    let hook = Arc::clone(&panicked);
    std::panic::set_hook(Box::new(move |panic| {
        *hook.lock().unwrap_or_else(PoisonError::into_inner) = panic.to_string();
    }));
    let ended = std::panic::catch_unwind(|| {
        let mut cli = Cli::parse();
        let config = Config::load(cli.config.as_deref())?;
        context::complete(&mut cli.command, &config)?;
        tracing_to_stderr(&cli.command)?;
        let threads = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let answer = threads.block_on(dispatch(cli.command, &config));
        // A thread may still wait for input that nobody needs any more.
        threads.shutdown_background();
        answer
    });
    match ended {
        Err(_) => {
            let panic = panicked.lock().unwrap_or_else(PoisonError::into_inner);
            output::complain(&format!("bug: {panic}\nPlease report this, with the command that you ran."));
            ExitCode::from(Code::Bug as u8)
        }
        Ok(Ok(Answer::Yes)) => ExitCode::SUCCESS,
        Ok(Ok(Answer::Nothing | Answer::Different)) => ExitCode::from(1),
        Ok(Ok(Answer::Refused)) => ExitCode::from(Code::Refused as u8),
        Ok(Err(error)) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            let way_out = way_out(&error).map_or_else(String::new, |way_out| format!("; {way_out}"));
            output::complain(&format!("error: {}{way_out}", chain(&error)));
            ExitCode::from(code_of(&error) as u8)
        }
    }
}

async fn dispatch(command: Command, config: &Config) -> Result<Answer, Error> {
    match command {
        Command::Up(args) => up::run(args, config).await,
        Command::Project(args) => project::run(*args, config).await,
        Command::Demo(args) => demo::run(args).await,
        Command::Emit(args) => emit::run(*args, config).await,
        Command::At(args) => at::run(args, config).await,
        Command::Timeline(args) => timeline::run(args, config).await,
        Command::Quarantine(command) => quarantine::run(command, config).await,
        Command::Stream(command) => stream::run(command, config).await,
        Command::Tail(args) => tail::run(args, config).await,
        Command::Verify(args) => verify::run(*args, config).await,
        Command::Crd(args) => documents::crd(&args),
        Command::Manifests(args) => manifests::run(&args),
        Command::Schema(args) => documents::schema(&args),
        Command::Completions { shell } => documents::completions(shell),
    }
}

/// What goes on is told on standard error: by a server all of it, by other commands only what is wrong, unless
/// `DECKLOG_LOG_LEVEL` says otherwise.
fn tracing_to_stderr(command: &Command) -> Result<(), Error> {
    // The client of NATS tells of each attempt to connect, and that of Kubernetes of each request that fails; what matters
    // of it is told by the log, and by who has sent the request.
    let is_server = match command {
        Command::Up(_) => true,
        Command::Project(args) => !args.dry_run,
        _ => false,
    };
    let usual = if is_server {
        "info,async_nats=warn,kube_client=off,kube_runtime=off"
    } else {
        "warn,async_nats=off,kube_client=off,kube_runtime=off"
    };
    let level = variable(LOG_LEVEL).unwrap_or_else(|| usual.to_owned());
    let filter = filter(&level).ok_or_else(|| {
        Failure::usage(format!(
            "{LOG_LEVEL} is {level:?}, and must be one of {}, or a list such as info,async_nats=warn",
            LEVELS.join(", ")
        ))
    })?;
    let is_terminal = io::IsTerminal::is_terminal(&io::stderr()) && std::env::var_os("NO_COLOR").is_none();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(is_terminal).init();
    Ok(())
}

/// Reads LEVEL or TARGET=LEVEL, or several with commas between. The library takes a word that is no level for a target,
/// of which all is told, and of all others nothing.
fn filter(text: &str) -> Option<EnvFilter> {
    let directives: Vec<_> = text.split(',').map(str::trim).filter(|directive| !directive.is_empty()).collect();
    let names_level = |directive: &&str| {
        let level = match directive.rsplit_once('=') {
            Some(("", _)) => return false,
            Some((_, level)) => level,
            None => directive,
        };
        LEVELS.iter().any(|known| known.eq_ignore_ascii_case(level))
    };
    let is_known = !directives.is_empty() && directives.iter().all(names_level);
    EnvFilter::builder().parse(directives.join(",")).ok().filter(|_| is_known)
}

/// All layers of an error in one line, each once: some have their source in their own words.
fn chain(error: &Error) -> String {
    let mut layers: Vec<String> = Vec::new();
    for layer in error.chain().map(ToString::to_string) {
        if !layers.last().is_some_and(|last| last.ends_with(&layer)) {
            layers.push(layer);
        }
    }
    layers.join(": ")
}

/// What is not a failure with a code of its own is one of the world: a file, a folder, a socket, a log or a process that
/// cannot be had. A bug is what panics.
fn code_of(error: &Error) -> Code {
    if let Some(failure) = error.downcast_ref::<Failure>() {
        return failure.code;
    }
    let driven = match error.downcast_ref::<ServiceError>() {
        Some(ServiceError::Drive(error)) => Some(error),
        _ => error.downcast_ref::<DriveError>(),
    };
    let read = match driven {
        Some(DriveError::Diverged(_) | DriveError::HistoryLost(_)) => return Code::Diverged,
        Some(DriveError::Read(error)) => Some(error),
        _ => error.downcast_ref::<ReadError>(),
    };
    match read {
        Some(ReadError::Damaged { .. }) => Code::Diverged,
        _ => Code::Unreachable,
    }
}

impl Failure {
    /// What was typed cannot be done.
    pub(crate) fn usage(message: impl Into<String>) -> Error {
        Self { code: Code::Usage, message: message.into() }.into()
    }

    /// The log cannot be reached.
    pub(crate) fn unreachable(message: impl Into<String>) -> Error {
        Self { code: Code::Unreachable, message: message.into() }.into()
    }

    /// The log is not what it was.
    pub(crate) fn diverged(message: impl Into<String>) -> Error {
        Self { code: Code::Diverged, message: message.into() }.into()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}
