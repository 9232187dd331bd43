//! Arguments and flags of `decklog manifests`.

use clap::Args;
use decklog_nats::shown;
use decklog_schemas::inventory::{GROUP, VERSION};

use super::{DocumentFormat, name, stream};
use crate::source::LogAddress;

/// Length of the longest DNS label, in bytes.
const LABEL_BYTES: usize = 63;

/// Length of the longest DNS subdomain, in bytes.
const SUBDOMAIN_BYTES: usize = 253;

/// What stands before the shard in the name of a Service, which is a label.
const BEFORE_SHARD: &str = "decklog-";

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  decklog manifests | kubectl apply --server-side -f -
  decklog manifests --from nats://nats.nats.svc:4222 --creds-secret decklog-nats | kubectl apply --server-side -f -

Shards: --shard a and --shard b give each a Deployment, a Service and a PodDisruptionBudget, decklog-a and decklog-b. \
They stand side by side, and share everything else that is printed.

Whoever deletes what was printed deletes the CustomResourceDefinition with it, and so every ReleaseInventory.

What is printed is decided by these flags alone, and by no DECKLOG_* variable and no configuration file.")]
pub(crate) struct ManifestsArgs {
    /// Namespace of the projector; it is held to the Pod Security level restricted
    #[arg(short, long, value_name = "NS", default_value = "decklog", value_parser = label)]
    pub(crate) namespace: String,

    /// Container image [default: decklog with the version of this program]
    #[arg(long, value_name = "IMAGE", value_parser = image)]
    pub(crate) image: Option<String>,

    /// The log to project, as the Pods reach it: nats://host:port[,host:port]
    #[arg(long, value_name = "LOG", default_value = "nats://nats.nats.svc:4222", value_parser = servers)]
    pub(crate) from: String,

    /// The stream of the log [default: that of `decklog project`]
    #[arg(long, value_name = "NAME", value_parser = stream)]
    pub(crate) stream: Option<String>,

    /// Cluster as the events name it [default: that of `decklog project`]
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub(crate) cluster: Option<String>,

    /// Project the releases of this shard alone
    #[arg(long, value_name = "SHARD", value_parser = shard)]
    pub(crate) shard: Option<String>,

    /// How many Pods: one applies, the others stand by
    #[arg(long, value_name = "N", default_value = "2", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) replicas: u16,

    /// Secret in the namespace whose key nats.creds logs in to NATS
    #[arg(long, value_name = "NAME", value_parser = subdomain)]
    pub(crate) creds_secret: Option<String>,

    /// Format of the output: a stream of YAML documents, or a List in JSON
    #[arg(short, long, value_name = "FORMAT", default_value = "yaml")]
    pub(crate) output: DocumentFormat,

    #[command(flatten)]
    pub(crate) release: ReleaseArgs,
}

/// Which resource is the Release.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[command(next_help_heading = "The resource that is the Release")]
pub(crate) struct ReleaseArgs {
    /// API group
    #[arg(id = "release_group", long = "release-group", value_name = "GROUP", default_value = GROUP,
        value_parser = subdomain)]
    pub(crate) group: String,

    /// API version
    #[arg(id = "release_version", long = "release-version", value_name = "VERSION", default_value = VERSION,
        value_parser = lettered_label)]
    pub(crate) version: String,

    /// Kind
    #[arg(id = "release_kind", long = "release-kind", value_name = "KIND", default_value = "Release",
        value_parser = kind)]
    pub(crate) kind: String,

    /// Plural of the kind, as in URLs
    #[arg(id = "release_plural", long = "release-plural", value_name = "PLURAL", default_value = "releases",
        value_parser = lettered_label)]
    pub(crate) plural: String,
}

/// A DNS label, RFC 1123.
pub(super) fn label(text: &str) -> Result<String, &'static str> {
    if text.len() <= LABEL_BYTES && is_of_dns(text) {
        Ok(text.to_owned())
    } else {
        Err("a name has at most 63 of a-z, 0-9 and -, and begins and ends with a letter or a digit (RFC 1123)")
    }
}

/// A shard that can stand in the names of objects.
fn shard(text: &str) -> Result<String, &'static str> {
    if text.len() <= LABEL_BYTES - BEFORE_SHARD.len() && is_of_dns(text) {
        Ok(text.to_owned())
    } else {
        Err("a shard is a part of names here: it has at most 55 of a-z, 0-9 and -, and begins and ends with a letter \
             or a digit (RFC 1123)")
    }
}

/// A DNS subdomain, RFC 1123.
fn subdomain(text: &str) -> Result<String, &'static str> {
    if text.len() <= SUBDOMAIN_BYTES && text.split('.').all(is_of_dns) {
        Ok(text.to_owned())
    } else {
        Err("a name has at most 253 of a-z, 0-9, - and ., and begins and ends with a letter or a digit, as does each \
             part between dots (RFC 1123)")
    }
}

/// A DNS label that begins with a letter, RFC 1035.
fn lettered_label(text: &str) -> Result<String, &'static str> {
    if text.starts_with(|c: char| c.is_ascii_lowercase()) && text.len() <= LABEL_BYTES && is_of_dns(text) {
        Ok(text.to_owned())
    } else {
        Err("it has at most 63 of a-z, 0-9 and -, begins with a letter, and ends with a letter or a digit (RFC 1035)")
    }
}

/// A kind is a label that may have capitals.
fn kind(text: &str) -> Result<String, &'static str> {
    lettered_label(&text.to_ascii_lowercase())
        .map(|_| text.to_owned())
        .map_err(|_| "a kind has at most 63 letters and digits, and begins with a letter, such as Release")
}

/// Labels of RFC 1123, but for their length.
fn is_of_dns(text: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty() && text.chars().all(is_inner) && !text.starts_with('-') && !text.ends_with('-')
}

fn image(text: &str) -> Result<String, &'static str> {
    if text.is_empty() || text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        Err("an image is a name without white space, such as registry.example/decklog:1.0")
    } else {
        Ok(text.to_owned())
    }
}

/// Addresses of NATS, in which nothing is secret: everybody who may read a Deployment reads them.
fn servers(text: &str) -> Result<String, &'static str> {
    match text.parse()? {
        LogAddress::Nats(servers) if shown(&servers) == servers => Ok(servers),
        LogAddress::Nats(_) => Err("a Deployment is no place for a login: give the credentials with --creds-secret"),
        _ => Err("the log of a projector in a cluster is on NATS: nats://host:port[,host:port] or tls://host:port"),
    }
}
