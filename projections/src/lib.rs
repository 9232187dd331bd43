//! Pure folds of the log into inventories, timelines and the list of what is in quarantine.

pub mod inventory;
mod keyed;
pub mod plan;
pub mod quarantine;
pub mod summary;
pub mod timeline;

pub use summary::summary;
