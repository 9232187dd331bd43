//! The log on NATS JetStream, and the writers that append to it.

mod alone;
mod api;
mod connect;
mod context;
mod cursor;
mod full;
mod info;
mod log;
mod login;
pub mod permissions;
mod publish;
mod readback;
mod stored;
pub mod stream;
mod subjects;
mod writer;

pub use api::{ApiError, Lack};
pub use connect::{ConnectError, Connection, Denial, MIN_SERVER, shown};
pub use context::{Context, ContextError};
pub use info::{StreamInfo, StreamState};
pub use log::{JetStreamLog, STREAM};
pub use login::{Login, LoginError};
pub use writer::{InvalidEvent, Pending, ReleaseWriter, SendError, Unsettled, WriteError, Writer, Written};
