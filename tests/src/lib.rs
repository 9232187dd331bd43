//! The harness: the real binary, folders of its own, and the scenarios as files.

pub mod binary;
pub mod history;
pub mod model;
pub mod scenario;
