//! The style as a test: what can be checked in every file is checked here, one rule a test.
//!
//! Each module holds its rules, then their checkers, then the proof that these find what they are
//! for. A checker takes texts and returns findings, so that it can be tried on bad ones.

mod findings;
mod manifests;
mod repository;
mod sizes;
mod sources;
