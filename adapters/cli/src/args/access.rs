//! Flags that name a cluster, as kubectl has them.

use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::Args;

/// Which cluster, as kubectl has it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Kubernetes")]
pub(crate) struct AccessArgs {
    /// File that says which clusters there are [env: KUBECONFIG] [default: ~/.kube/config, in a Pod its ServiceAccount]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,

    /// Requests to the API server, a second [default: no limit]
    #[arg(long, value_name = "N")]
    pub(crate) kube_api_qps: Option<f64>,

    /// Requests that may be made at once after a quiet time [default: as many as in a second]
    #[arg(long, value_name = "N", requires = "kube_api_qps")]
    pub(crate) kube_api_burst: Option<NonZeroU32>,
}
