//! The log on NATS JetStream, and the writers that append to it.

mod alone;
mod api;
mod connect;
mod context;
mod cursor;
mod info;
mod log;
pub mod permissions;
mod publish;
mod readback;
mod stored;
pub mod stream;
mod subjects;
mod writer;

pub use api::ApiError;
pub use connect::{ConnectError, Connection, Denial, Login, MIN_SERVER, shown};
pub use context::{Context, ContextError};
pub use info::{StreamInfo, StreamState};
pub use log::{JetStreamLog, STREAM};
pub use writer::{InvalidEvent, Pending, ReleaseWriter, SendError, Unsettled, WriteError, Writer, Written};
