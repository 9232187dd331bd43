//! The harness: the real binary, the scenarios as files, a naive model, random histories, and how benches measure.

pub mod binary;
pub mod history;
pub mod model;
pub mod pairs;
pub mod peer;
pub mod scenario;
pub mod workload;
