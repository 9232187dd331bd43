//! Faults around `decklog project`: each ends with the cluster equal to the log, and with no refused request of ours.

mod bursts;
mod definitions;
mod hands;
mod kills;
mod leaders;
mod logs;
mod namespaces;
mod refusals;
mod releases;
mod sizes;
mod stage;
