//! The embedded log and the checkpoint store, on sled.

mod block;
mod checkpoints;
mod folder;
mod head;
mod ids;
mod index;
mod io;
mod log;
mod open;
mod store;
mod writer;

pub use checkpoints::{OpenCheckpointsError, PeekError, SetAside, SledCheckpoints};
pub use io::{Faults, Moment};
pub use log::SledLog;
pub use open::OpenError;
