//! Arguments and flags of `decklog quarantine`.

use clap::{Args, Subcommand};
use decklog_schemas::Sequence;

use super::{AnswerFormat, Format, FromArgs, MOMENTS};
use crate::moment::Moment;

/// Lines are wrapped where they are printed.
const RETRY: &str = "\
Each record is read again with this version of decklog:
  - What it understands now needs nothing: every replay folds it where it stands.
  - A whole and valid event under a wrong subject is appended to the same log, byte for byte, under its right one.
  - What still cannot be used is told with its reason, and nothing is done.

An event under a wrong subject may be one that its writer was not allowed to say. To retry it is the operator's \
decision, made with the operator's own permission to publish there: look at it with `decklog quarantine show` before.

The event is folded at its new place, as if it were said now. It keeps id and writerseq: if its writer has said more \
of the release meanwhile, the fold ignores it as a duplicate.

Equal ids are one event. One that stands under its right subject already is not appended again. A log that takes the \
record itself for the event answers duplicate: NATS within the stream's duplicate window, a folder while the record is \
among its newest 65,536. Retry it when that is over.

Exit code 3 if any of the records stays in quarantine, 1 if one does not exist.";

/// What is done with quarantine.
#[derive(Debug, Subcommand)]
pub(crate) enum QuarantineCommand {
    /// List what is in quarantine, the newest 10,000 records; all of them are counted
    Ls(QuarantineLsArgs),
    /// Show one record: where it stands, why it is in quarantine, and its bytes
    Show(QuarantineShowArgs),
    /// Append events again, byte for byte, that stand under a wrong subject
    Retry(QuarantineRetryArgs),
}

#[derive(Debug, Args)]
#[command(after_help = MOMENTS)]
pub(crate) struct QuarantineLsArgs {
    /// Only records from this moment on: RFC 3339, 14:03, -15m or seq:1234
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    pub(crate) since: Option<Moment>,

    /// Only records up to this moment
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    pub(crate) until: Option<Moment>,

    /// Format of the output [env: DECKLOG_OUTPUT] [default: table]
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Format>,

    #[command(flatten)]
    pub(crate) log: FromArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Exit code 1 if the record is not in quarantine, or there is none.
Bytes are shown as text if they are JSON that a terminal can show, else in hexadecimal; in JSON and YAML as base64.")]
pub(crate) struct QuarantineShowArgs {
    /// Sequence of the record
    #[arg(value_name = "SEQ", value_parser = sequence)]
    pub(crate) sequence: Sequence,

    /// Write the record's bytes as they are, and nothing else
    #[arg(long, conflicts_with = "output")]
    pub(crate) raw: bool,

    /// Format of the output [env: DECKLOG_OUTPUT] [default: table]
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Format>,

    #[command(flatten)]
    pub(crate) log: FromArgs,
}

#[derive(Debug, Args)]
#[command(after_help = RETRY)]
pub(crate) struct QuarantineRetryArgs {
    /// Sequences of the records
    #[arg(value_name = "SEQ", required_unless_present = "all", value_parser = sequence)]
    pub(crate) sequences: Vec<Sequence>,

    /// Everything that `decklog quarantine ls` lists
    #[arg(long, conflicts_with = "sequences")]
    pub(crate) all: bool,

    /// Format of the answers: text for people, or one JSON object a line
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: AnswerFormat,

    #[command(flatten)]
    pub(crate) log: FromArgs,
}

fn sequence(text: &str) -> Result<Sequence, &'static str> {
    let number = text.strip_prefix("seq:").unwrap_or(text);
    number.parse().ok().and_then(Sequence::new).ok_or("a sequence is a number from 1 on")
}
