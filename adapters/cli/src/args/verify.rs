//! Arguments and flags of `decklog verify`.

use clap::Args;
use decklog_kube::Selector;

use super::{AccessArgs, Format, FromArgs, label_key, name};

/// Lines are wrapped where they are printed.
const VERDICTS: &str = "\
Verdicts:
  equal    the object is what the log says
  behind   it is what the log said at its stamps, and the log goes on: a projector has yet to apply the rest
  drifted  somebody else has written to it
  missing  the log says that there is to be an object, and the cluster has none
  ghost    the object is of this log, which says that there is to be none
  foreign  the object is of another log, or of none that is known
  ahead    it was made from more of this log than there is: records are gone from the log

Exit code 0 if all are equal, 1 if not, 4 if the log or the cluster cannot be reached. Nothing is ever written.
In a .jsonl file sequences are line numbers, and every stamp counts as one of the file's.";

#[derive(Debug, Args)]
#[command(after_help = VERDICTS)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) log: FromArgs,

    /// Namespace of the release
    #[arg(short, long, value_name = "NS", value_parser = name)]
    pub(crate) namespace: Option<String>,

    /// The release; all of the namespace if absent
    #[arg(value_name = "RELEASE", conflicts_with = "all_namespaces", value_parser = name)]
    pub(crate) release: Option<String>,

    /// Releases of all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,

    /// Only releases with these labels, in the cluster or by the log, such as core.convoy.kumodo.io/shard=a
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub(crate) selector: Option<Selector>,

    /// Name of the cluster in the events [env: DECKLOG_CLUSTER] [default: default]
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub(crate) cluster: Option<String>,

    /// Key of the shard label
    #[arg(long, value_name = "KEY", value_parser = label_key, default_value = decklog_schemas::inventory::SHARD_LABEL)]
    pub(crate) shard_label: String,

    /// Format of the output [env: DECKLOG_OUTPUT] [default: table]
    #[arg(short, long, value_name = "FORMAT")]
    pub(crate) output: Option<Format>,

    #[command(flatten)]
    pub(crate) access: AccessArgs,
}
