//! The server and its client over a real socket, with a log in memory behind them.

#![expect(clippy::unwrap_used, reason = "what a test cannot set up, it cannot test")]

mod client;
mod events;
mod ingest;
mod probes;
mod quarantine;
mod queries;
mod raw;
mod served;
mod socket;
mod stop;
