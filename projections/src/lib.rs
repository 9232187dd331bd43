//! Pure folds of the log into inventories and timelines.

pub mod inventory;
mod keyed;
mod summary;
pub mod timeline;

pub use summary::summary;
