//! The decklog command: its arguments, what each command does, and how the process ends.

mod access;
mod args;
mod at;
mod clusters;
mod config;
mod context;
mod demo;
mod documents;
mod emit;
mod engine;
mod exit;
mod folder;
mod inventories;
mod jsonl;
mod manifests;
mod moment;
mod nats;
mod output;
mod project;
mod quarantine;
mod signals;
mod socket;
mod source;
mod stream;
mod tail;
mod timeline;
mod up;
mod verify;
mod yaml;

pub use exit::run;
