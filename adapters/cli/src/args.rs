//! The command line: every command, argument and flag, and nothing of what they do.

mod access;
mod manifests;
mod project;
mod quarantine;
mod stream;
mod verify;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use decklog_projections::plan::is_label_key;
use decklog_schemas::{Domain, EventType};

pub(crate) use self::access::AccessArgs;
pub(crate) use self::manifests::ManifestsArgs;
pub(crate) use self::project::{ApplyArgs, ProjectArgs};
pub(crate) use self::quarantine::{QuarantineCommand, QuarantineLsArgs, QuarantineRetryArgs, QuarantineShowArgs};
pub(crate) use self::stream::{StreamCommand, StreamInfoArgs, StreamInitArgs, StreamPermissionsArgs};
pub(crate) use self::verify::VerifyArgs;
use crate::moment::Moment;
use crate::source::LogAddress;

/// A name has at least one character.
fn name(text: &str) -> Result<String, &'static str> {
    if text.is_empty() { Err("a name is not empty") } else { Ok(text.to_owned()) }
}

fn label_key(text: &str) -> Result<String, &'static str> {
    if is_label_key(text) {
        Ok(text.to_owned())
    } else {
        Err("the key of a label is a name such as shard, or one with its domain, such as core.convoy.kumodo.io/shard")
    }
}

/// A stream's name is one token of a subject, and the name of a folder.
fn stream(text: &str) -> Result<String, &'static str> {
    let is_bad = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '.' | '*' | '>' | '/' | '\\');
    if text.is_empty() || text.contains(is_bad) {
        Err("the name of a stream has no white space and none of . * > / \\")
    } else {
        Ok(text.to_owned())
    }
}

const MOMENTS: &str = "\
Moments:
  2026-03-02T14:03:00Z   a time, RFC 3339
  14:03                  the last time that clocks in your time zone showed this
  -15m                   so long before now: h, m, s, ms
  seq:1234               a sequence
Times are compared with the time at which the log recorded an event, not with its writer's clock.
In a .jsonl file that is the event's own time, and now is the time of its last event.

In tables, SEQ has the sequences of the events that set a row: applied,assessed.";

/// The event-sourced record of what a release controller did to a cluster.
#[derive(Debug, Parser)]
#[command(name = "decklog", version, about, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 yes, 1 nothing there or a difference, 2 usage, 3 input refused, 4 not reachable, \
    5 log diverged or damaged, 70 bug.\nFlags win over DECKLOG_* variables, and these over the configuration file."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// Configuration file (TOML) [env: DECKLOG_CONFIG] [default: ~/.config/decklog/config.toml, if it is there]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the embedded engine in the foreground: log, projector into a folder of YAML, HTTP on a socket
    Up(UpArgs),
    /// Fold a log and apply it to a cluster, in the foreground, and follow it
    Project(Box<ProjectArgs>),
    /// Tell one recorded incident in the terminal, on the embedded engine
    Demo(DemoArgs),
    /// Append events: a file, standard input, or one event from flags
    Emit(Box<EmitArgs>),
    /// Show the state of releases, now or at a moment
    At(AtArgs),
    /// Show every event of a release, with what became of it
    Timeline(TimelineArgs),
    /// Show events as they come
    Tail(TailArgs),
    /// Compare a cluster with what the log says of it, and change nothing
    Verify(Box<VerifyArgs>),
    /// Show what no fold can use: bytes that are no event, events in the wrong place or of the future
    #[command(subcommand)]
    Quarantine(QuarantineCommand),
    /// Make the stream on NATS, look at it, and print what each role may do on it
    #[command(subcommand)]
    Stream(StreamCommand),
    /// Print the CustomResourceDefinition of ReleaseInventory
    Crd(CrdArgs),
    /// Print what a projector needs in a cluster: namespace, CRD, rights, Deployment, Service, PodDisruptionBudget
    Manifests(Box<ManifestsArgs>),
    /// Print the JSON Schema of an event type, or the AsyncAPI document of all
    Schema(SchemaArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Args)]
#[command(
    after_help = "DECKLOG_LOG_LEVEL says how much is told on standard error: error, warn, info, debug. [default: info]"
)]
pub(crate) struct UpArgs {
    /// Folder of the embedded log, created if it is missing [env: DECKLOG_LOG] [default: ~/.local/share/decklog]
    #[arg(long, value_name = "DIR", value_parser = clap::value_parser!(PathBuf))]
    pub(crate) data: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Folder for the demo's log; must be empty or missing [default: a new temporary folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,

    /// Print the events of the incident as JSON lines, and do nothing else
    #[arg(long)]
    pub(crate) events: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FromArgs {
    /// The log to read: nats://host:port[,host:port], a folder of the embedded log, or a .jsonl file of CloudEvents
    /// [env: DECKLOG_LOG] [default: ~/.local/share/decklog]
    #[arg(long, value_name = "LOG", verbatim_doc_comment)]
    pub(crate) from: Option<LogAddress>,

    #[command(flatten)]
    pub(crate) nats: NatsArgs,
}

/// How to log in to NATS, as the NATS CLI has it.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "NATS")]
pub(crate) struct NatsArgs {
    /// A context of the NATS CLI: servers and login [env: DECKLOG_NATS_CONTEXT]
    #[arg(long, value_name = "NAME")]
    pub(crate) nats_context: Option<String>,

    /// What the context says, once it is read.
    #[arg(skip)]
    pub(crate) context: Option<decklog_nats::Context>,

    /// Credentials: a file with a JWT and its seed [env: DECKLOG_CREDS]
    #[arg(long, value_name = "FILE")]
    pub(crate) creds: Option<PathBuf>,

    /// A file with the seed of an nkey [env: DECKLOG_NKEY]
    #[arg(long, value_name = "FILE")]
    pub(crate) nkey: Option<PathBuf>,

    /// User name [env: DECKLOG_USER]
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,

    /// Password [env: DECKLOG_PASSWORD]
    #[arg(long, value_name = "WORD")]
    pub(crate) password: Option<String>,

    /// Client certificate, PEM [env: DECKLOG_TLSCERT]
    #[arg(long, value_name = "FILE", requires = "tlskey")]
    pub(crate) tlscert: Option<PathBuf>,

    /// Key of the client certificate, PEM [env: DECKLOG_TLSKEY]
    #[arg(long, value_name = "FILE", requires = "tlscert")]
    pub(crate) tlskey: Option<PathBuf>,

    /// Certificates of the authorities that are trusted, PEM [env: DECKLOG_TLSCA]
    #[arg(long, value_name = "FILE")]
    pub(crate) tlsca: Option<PathBuf>,

    /// The stream [env: DECKLOG_STREAM] [default: DECKLOG]
    #[arg(long, value_name = "NAME", value_parser = stream)]
    pub(crate) stream: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = MOMENTS)]
pub(crate) struct AtArgs {
    #[command(flatten)]
    pub(crate) log: FromArgs,

    /// Namespace of the release
    #[arg(short, long, value_name = "NS", value_parser = name)]
    pub(crate) namespace: Option<String>,

    /// The release; all of the namespace if absent
    #[arg(value_name = "RELEASE", conflicts_with = "all_namespaces", value_parser = name)]
    pub(crate) release: Option<String>,

    /// Releases of all namespaces, and of all clusters unless --cluster names one
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,

    /// Cluster as the events name it [env: DECKLOG_CLUSTER] [default: default]
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub(crate) cluster: Option<String>,

    /// The moment: RFC 3339, 14:03, -15m or seq:1234 [default: now]
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    pub(crate) at: Option<Moment>,

    /// Format of the output [env: DECKLOG_OUTPUT] [default: table]
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Format>,
}

#[derive(Debug, Args)]
#[command(after_help = MOMENTS)]
pub(crate) struct TimelineArgs {
    #[command(flatten)]
    pub(crate) log: FromArgs,

    /// Namespace of the release
    #[arg(short, long, value_name = "NS", value_parser = name)]
    pub(crate) namespace: String,

    /// The release
    #[arg(value_name = "RELEASE", value_parser = name)]
    pub(crate) release: String,

    /// Cluster as the events name it [env: DECKLOG_CLUSTER] [default: default]
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub(crate) cluster: Option<String>,

    /// Only events from this moment on: RFC 3339, 14:03, -15m or seq:1234
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    pub(crate) since: Option<Moment>,

    /// Only events up to this moment
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    pub(crate) until: Option<Moment>,

    /// Format of the output [env: DECKLOG_OUTPUT] [default: table]
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Format>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "A tail survives servers that restart: nothing is missing and nothing comes twice. SIGINT and SIGTERM end it.\n\
    Where --since is absent, it begins with what comes next."
)]
pub(crate) struct TailArgs {
    #[command(flatten)]
    pub(crate) log: FromArgs,

    /// Only releases of this namespace
    #[arg(short, long, value_name = "NS", value_parser = name)]
    pub(crate) namespace: Option<String>,

    /// Only this release
    #[arg(value_name = "RELEASE", requires = "namespace", value_parser = name)]
    pub(crate) release: Option<String>,

    /// Only this cluster, as the events name it [env: DECKLOG_CLUSTER] [default: all, or for one release: default]
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub(crate) cluster: Option<String>,

    /// Only events of this type, such as HealthAssessed; may be given several times
    #[arg(long = "type", value_name = "TYPE", value_parser = event_type)]
    pub(crate) types: Vec<EventType>,

    /// Only events of this domain, such as hook-status; may be given several times
    #[arg(long = "domain", value_name = "DOMAIN", value_parser = domain)]
    pub(crate) domains: Vec<Domain>,

    /// Begin with what was recorded at this moment: 15m (ago), 14:03, RFC 3339 or seq:1234
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    pub(crate) since: Option<Moment>,

    /// Format of the output
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: TailFormat,
}

/// How `tail` prints events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TailFormat {
    /// One line an event, for people
    Table,
    /// One JSON object a line: sequence, recorded time, subject, and the event
    Json,
    /// The events alone in the JSON form of CloudEvents, one a line
    Cloudevents,
}

fn event_type(text: &str) -> Result<EventType, String> {
    EventType::from_name(text).ok_or_else(|| {
        let known: Vec<_> = EventType::ALL.iter().map(|known| known.name()).collect();
        format!("no such type; there are {}", known.join(", "))
    })
}

fn domain(text: &str) -> Result<Domain, String> {
    let mut known: Vec<_> = EventType::ALL.iter().map(|known| known.domain()).collect();
    known.sort_unstable();
    known.dedup();
    let names = known.iter().map(|known| known.as_str()).collect::<Vec<_>>().join(", ");
    known.into_iter().find(|known| known.as_str() == text).ok_or_else(|| format!("no such domain; there are {names}"))
}

/// How something is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Columns, for people
    Table,
    /// JSON, for programs
    Json,
    /// YAML, as kubectl prints it
    Yaml,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  decklog emit events.jsonl
  kubectl logs deploy/controller | decklog emit -
  decklog emit ItemApplied -n shop checkout --item apps/v1/Deployment/shop/api --render r1
  decklog emit HealthAssessed -n shop checkout --item apps//Deployment/shop/api --state Degraded --render r1")]
pub(crate) struct EmitArgs {
    /// A file of CloudEvents (JSON lines, or MessagePack one behind the other), - for standard input, or an event type
    #[arg(value_name = "FILE|-|TYPE")]
    pub(crate) what: String,

    /// The release of an event from flags
    #[arg(value_name = "RELEASE", value_parser = name)]
    pub(crate) release: Option<String>,

    /// The log to write: nats://host:port[,host:port], or a folder of the embedded log, created if it is missing
    /// [env: DECKLOG_LOG] [default: ~/.local/share/decklog]
    #[arg(long, value_name = "LOG", verbatim_doc_comment)]
    pub(crate) to: Option<LogAddress>,

    /// Append also what the fold can only ignore: events that are invalid or of an unknown type
    #[arg(long)]
    pub(crate) unchecked: bool,

    /// Format of the answers: text for people, or one JSON object a line
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: AnswerFormat,

    #[command(flatten)]
    pub(crate) event: EventFlags,

    #[command(flatten)]
    pub(crate) nats: NatsArgs,
}

/// How `emit` prints its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AnswerFormat {
    /// One line an event, for people
    Text,
    /// One JSON object a line
    Json,
}

/// One event from flags.
#[derive(Debug, Args)]
#[command(next_help_heading = "One event from flags")]
pub(crate) struct EventFlags {
    /// Namespace of the release
    #[arg(short, long, value_name = "NS", value_parser = name)]
    pub(crate) namespace: Option<String>,
    /// Cluster that the release is in [env: DECKLOG_CLUSTER] [default: default]
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub(crate) cluster: Option<String>,
    /// metadata.uid of the Release
    #[arg(long, value_name = "UID")]
    pub(crate) release_uid: Option<String>,
    /// The object: GROUP/VERSION/KIND/NAMESPACE/NAME, parts may be empty
    #[arg(long, value_name = "G/V/K/NS/NAME")]
    pub(crate) item: Option<String>,
    /// The render: renderRef, or assessedRenderRef of HealthAssessed
    #[arg(long, value_name = "REF")]
    pub(crate) render: Option<String>,
    /// Wave of the item
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) wave: Option<i64>,
    /// metadata.uid of the object, or of the hook's workload
    #[arg(long, value_name = "UID")]
    pub(crate) uid: Option<String>,
    /// Health state, hook state or sync outcome
    #[arg(long, value_name = "STATE")]
    pub(crate) state: Option<String>,
    /// Since when the object is not healthy (RFC 3339)
    #[arg(long, value_name = "TIME")]
    pub(crate) first_unhealthy: Option<String>,
    /// Message for people
    #[arg(long, value_name = "TEXT")]
    pub(crate) message: Option<String>,
    /// The hook: PHASE/NAME
    #[arg(long, value_name = "PHASE/NAME")]
    pub(crate) hook: Option<String>,
    /// The hook's workload: GROUP/VERSION/KIND/NAMESPACE/NAME
    #[arg(long, value_name = "G/V/K/NS/NAME")]
    pub(crate) workload: Option<String>,
    /// Order among the hooks of the phase
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) weight: Option<i64>,
    /// How long the hook may run, such as 5m0s
    #[arg(long, value_name = "DURATION")]
    pub(crate) timeout: Option<String>,
    /// When the hook's workload was created (RFC 3339) [default: now]
    #[arg(long, value_name = "TIME")]
    pub(crate) created_at: Option<String>,
    /// When the hook ended (RFC 3339)
    #[arg(long, value_name = "TIME")]
    pub(crate) finished_at: Option<String>,
    /// Shard of the release
    #[arg(long, value_name = "SHARD")]
    pub(crate) shard: Option<String>,
    /// Source revision of a sync
    #[arg(long, value_name = "REV")]
    pub(crate) revision: Option<String>,
    /// Number of items of a sync
    #[arg(long, value_name = "N")]
    pub(crate) items: Option<u64>,
    /// Field manager of ProjectionRefused
    #[arg(long, value_name = "NAME")]
    pub(crate) field_manager: Option<String>,
    /// Reason of ProjectionRefused
    #[arg(long, value_name = "WORD")]
    pub(crate) reason: Option<String>,
    /// Payload type of DeploymentRecorded
    #[arg(long, value_name = "TYPE")]
    pub(crate) payload_type: Option<String>,
    /// Payload of DeploymentRecorded: a file, as received
    #[arg(long, value_name = "FILE")]
    pub(crate) payload: Option<PathBuf>,
    /// CloudEvents id [default: a new UUID]
    #[arg(long, value_name = "UUID")]
    pub(crate) id: Option<String>,
    /// CloudEvents source [default: /decklog-emit/<new UUID>]
    #[arg(long, value_name = "SOURCE")]
    pub(crate) source: Option<String>,
    /// The writer's time (RFC 3339) [default: now]
    #[arg(long, value_name = "TIME")]
    pub(crate) time: Option<String>,
    /// The writer's own count
    #[arg(long, value_name = "N")]
    pub(crate) writer_seq: Option<std::num::NonZeroU64>,
    /// Lease term of the writer
    #[arg(long, value_name = "N")]
    pub(crate) term: Option<u64>,
    /// The sync that the event belongs to
    #[arg(long, value_name = "ID")]
    pub(crate) correlation_id: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CrdArgs {
    /// Format of the output
    #[arg(short, long, value_name = "FORMAT", default_value = "yaml")]
    pub(crate) output: DocumentFormat,
}

#[derive(Debug, Args)]
pub(crate) struct SchemaArgs {
    /// An event type such as ItemApplied; the AsyncAPI document of all types if absent
    #[arg(value_name = "TYPE")]
    pub(crate) event_type: Option<String>,

    /// Format of the output
    #[arg(short, long, value_name = "FORMAT", default_value = "json")]
    pub(crate) output: DocumentFormat,
}

/// How a document is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DocumentFormat {
    /// JSON
    Json,
    /// YAML
    Yaml,
}
