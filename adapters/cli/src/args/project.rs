//! Arguments and flags of `decklog project`.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;

use super::manifests::{ReleaseArgs, label};
use super::{AccessArgs, Format, FromArgs, label_key, name};

#[derive(Debug, Args)]
#[command(
    after_help = "DECKLOG_LOG_LEVEL says how much is told on standard error: error, warn, info, debug. [default: info]"
)]
pub(crate) struct ProjectArgs {
    #[command(flatten)]
    pub(crate) log: FromArgs,

    /// Folder of the checkpoint, from which a restart goes on [default: ~/.local/share/decklog/projector]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,

    /// Write the inventories into a folder, as DIR/<cluster>/<namespace>/<release>.yaml, and to no cluster
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with_all = [
            "kubeconfig", "context", "kube_api_qps", "release_group", "release_version", "release_kind", "release_plural",
        ]
    )]
    pub(crate) sink: Option<PathBuf>,

    /// Print what would be sent to the cluster, request by request and as a diff, and send nothing: exit code 0 if that
    /// is nothing, 1 if something would change or be refused, 5 if the objects are of another log
    #[arg(long, conflicts_with = "sink")]
    pub(crate) dry_run: bool,

    /// Format of what --dry-run prints [env: DECKLOG_OUTPUT] [default: table]
    #[arg(short, long, value_name = "FORMAT", requires = "dry_run")]
    pub(crate) output: Option<Format>,

    #[command(flatten)]
    pub(crate) access: AccessArgs,

    #[command(flatten)]
    pub(crate) apply: ApplyArgs,
}

/// What is applied to the cluster, and by whom.
#[derive(Debug, Args)]
#[command(next_help_heading = "Kubernetes")]
pub(crate) struct ApplyArgs {
    /// Name of the cluster in the events: its releases are applied [env: DECKLOG_CLUSTER] [default: default]
    #[arg(long, value_name = "NAME", value_parser = name, conflicts_with = "sink")]
    pub(crate) cluster: Option<String>,

    /// Apply the releases of one shard, those whose shard label has this value [env: DECKLOG_SHARD] [default: all]
    #[arg(long, value_name = "SHARD", value_parser = name, conflicts_with = "sink")]
    pub(crate) shard: Option<String>,

    /// Key of the shard label
    #[arg(
        long,
        value_name = "KEY",
        value_parser = label_key,
        default_value = decklog_schemas::inventory::SHARD_LABEL,
        conflicts_with = "sink"
    )]
    pub(crate) shard_label: String,

    /// Namespace of the Lease by which one of several projectors applies [default: that of the Pod, else of the context]
    #[arg(long, value_name = "NS", value_parser = label, conflicts_with = "sink")]
    pub(crate) lease_namespace: Option<String>,

    /// How many releases are applied at the same time
    #[arg(long, value_name = "N", default_value = "16", conflicts_with = "sink")]
    pub(crate) concurrency: NonZeroUsize,

    /// Take over objects that were made from another log, after printing what changes in them; see --dry-run
    #[arg(long, conflicts_with = "sink")]
    pub(crate) adopt_log: bool,

    /// Answer /healthz, /readyz and /metrics here, such as 127.0.0.1:8080 or :8080 [default: nowhere]
    #[arg(long, value_name = "ADDR", value_parser = socket_address)]
    pub(crate) listen: Option<SocketAddr>,

    #[command(flatten)]
    pub(crate) release: ReleaseArgs,
}

/// `:8080` is port 8080 of all addresses, as Kubernetes' components have it.
fn socket_address(text: &str) -> Result<SocketAddr, String> {
    let whole = if text.starts_with(':') { format!("[::]{text}") } else { text.to_owned() };
    whole.parse().map_err(|_| "an address is IP:PORT, such as 127.0.0.1:8080, or :PORT for all addresses".to_owned())
}
