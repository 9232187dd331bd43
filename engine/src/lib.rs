//! The log and the loop that folds it: append, read, checkpoint, replay.

pub mod ask;
pub mod checkpoint;
pub mod conformance;
pub mod driver;
pub mod ingest;
pub mod log;
pub mod memory;
mod projection;
mod records;
pub mod replay;
pub mod service;

pub use projection::{Projection, RestoreError};
pub use records::Records;
