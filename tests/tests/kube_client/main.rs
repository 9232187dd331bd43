//! The lower half of decklog-kube on a real API server: access, answers, the definition and the Lease.

mod access;
mod answers;
mod cluster;
mod definition;
mod lease;
