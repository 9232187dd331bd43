//! The log on NATS JetStream, and the writers that append to it.

mod api;
mod connect;
mod cursor;
mod info;
mod log;
mod publish;
mod readback;
pub mod stream;
mod writer;

pub use api::ApiError;
pub use connect::{ConnectError, Connection, Denial, Login, MIN_SERVER};
pub use info::{StreamInfo, StreamState};
pub use log::{JetStreamLog, STREAM};
pub use writer::{InvalidEvent, Pending, ReleaseWriter, SendError, Unsettled, WriteError, Writer, Written};
