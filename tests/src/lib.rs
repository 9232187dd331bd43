//! The harness: the real binary and servers, scenarios as files, a naive model, random histories, how benches measure.

pub mod binary;
pub mod history;
pub mod kube;
pub mod model;
pub mod nats;
pub mod numbered;
pub mod pairs;
pub mod peer;
pub mod port;
pub mod process;
pub mod projector;
pub mod scenario;
pub mod servers;
pub mod workload;
