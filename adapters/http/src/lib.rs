//! Ingest and queries on a Unix socket, with the client for them, and the probes and metrics of a Pod over TCP.

mod accept;
pub mod client;
mod content;
mod failure;
mod metrics;
mod parcel;
pub mod probes;
mod query;
mod routes;
pub mod server;
pub mod socket;
mod status;

pub use status::Status;
