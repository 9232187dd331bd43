//! The cluster: how it is reached, what its answers mean, what it serves, and who may write to it.

mod answer;
pub mod applier;
mod connect;
mod definition;
mod freshness;
mod kubeconfig;
pub mod lease;
mod limits;
mod look;
mod metrics;
mod object;
pub mod releases;
mod sink;
mod tell;
mod turns;
mod watch;

pub use answer::{Reason, Trouble};
pub use connect::{Access, Cluster, ConnectError, ReachError};
pub use definition::{Definition, DefinitionError};
pub use kubeconfig::{KubeconfigError, Origin};
pub use limits::{InvalidRate, REQUEST_LIMIT, Rate, TimedOut};
pub use look::{BadSelector, Look, LookError, Part, Selector};
pub use metrics::Metrics;
pub use sink::{Changes, Marks};
