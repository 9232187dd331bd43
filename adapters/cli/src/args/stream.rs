//! Arguments and flags of `decklog stream`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use decklog_nats::permissions::Role;

use super::{Format, FromArgs, NatsArgs, name};
use crate::source::LogAddress;

/// What is done with the stream.
#[derive(Debug, Subcommand)]
pub(crate) enum StreamCommand {
    /// Make the stream, or bring it in line where that is safe; it is never deleted and never made anew
    Init(StreamInitArgs),
    /// Show the stream: what it holds, how it is configured, and what this login may do
    Info(StreamInfoArgs),
    /// Print a user for the server's configuration, with what a role may do and nothing besides
    Permissions(StreamPermissionsArgs),
}

#[derive(Debug, Args)]
pub(crate) struct StreamInitArgs {
    /// The servers: nats://host:port[,host:port] [env: DECKLOG_LOG]
    #[arg(long, value_name = "LOG")]
    pub(crate) to: Option<LogAddress>,

    /// How many servers keep a copy, 1 to 5 [default: 1 for a new stream, else as it is]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=5))]
    pub(crate) replicas: Option<u64>,

    #[command(flatten)]
    pub(crate) nats: NatsArgs,
}

#[derive(Debug, Args)]
pub(crate) struct StreamInfoArgs {
    #[command(flatten)]
    pub(crate) log: FromArgs,

    /// Folder of a `decklog project`: show how far its checkpoint is behind
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,

    /// Format of the output [env: DECKLOG_OUTPUT] [default: table]
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Format>,
}

#[derive(Debug, Args)]
pub(crate) struct StreamPermissionsArgs {
    /// The role
    #[arg(long, value_name = "ROLE")]
    pub(crate) writer: WriterRole,

    /// Name of the user [default: the role]
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub(crate) user: Option<String>,

    /// The stream [env: DECKLOG_STREAM] [default: DECKLOG]
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub(crate) stream: Option<String>,
}

/// A role, as it is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WriterRole {
    /// Says how items and hooks fare
    Observer,
    /// Says what it did: to releases, items and hooks
    Controller,
    /// Reads all of the log, and says what it did to the cluster
    Projector,
    /// Reads all of the log, and says nothing
    Auditor,
    /// Says what was deployed
    Ci,
}

impl From<WriterRole> for Role {
    fn from(role: WriterRole) -> Self {
        match role {
            WriterRole::Observer => Self::Observer,
            WriterRole::Controller => Self::Controller,
            WriterRole::Projector => Self::Projector,
            WriterRole::Auditor => Self::Auditor,
            WriterRole::Ci => Self::Ci,
        }
    }
}
