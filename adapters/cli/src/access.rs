//! Which cluster a command works on.

use anyhow::Error;
use decklog_kube::{Access, Rate};

use crate::args::AccessArgs;
use crate::exit::Failure;

/// The cluster that the flags name.
pub(crate) fn access(args: AccessArgs) -> Result<Access, Error> {
    let rate = args.kube_api_qps.map(|qps| Rate::new(qps, args.kube_api_burst)).transpose();
    let rate = rate.map_err(|error| Failure::usage(format!("--kube-api-qps: {error}")))?;
    Ok(Access { kubeconfig: args.kubeconfig, context: args.context, rate })
}
