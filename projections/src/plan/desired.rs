//! What the fold says of a release, as the plan takes it.

use super::{Desired, Stamp, Wanted};
use crate::inventory::Standing;

impl Desired {
    /// How a release stands in a log of this identity. The fold knows the shard label by its usual key, and the cluster
    /// may have it under another one.
    #[must_use]
    pub fn of(standing: &Standing, log: &str, shard_label: &str) -> Self {
        let mut object = standing.wanted.clone();
        if let Wanted::Object(object) = &mut object {
            let labels = std::mem::take(&mut object.metadata.labels);
            object.metadata.labels = labels.into_values().map(|shard| (shard_label.to_owned(), shard)).collect();
        }
        let stamp = Stamp { log: log.to_owned(), sequence: standing.sequence };
        Self { object, stamp, folded: standing.folded }
    }
}
