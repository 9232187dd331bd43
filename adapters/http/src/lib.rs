//! Ingest and queries over HTTP, on a Unix socket: the server, and the client of a server that runs.

pub mod client;
mod content;
mod failure;
mod parcel;
mod query;
mod routes;
pub mod server;
pub mod socket;
mod status;

pub use status::Status;
