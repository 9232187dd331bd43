//! Clusters as the log names them: who asks for one that it does not know is told which it has.

use std::collections::BTreeSet;

use decklog_schemas::ReleaseKey;

/// How many are named.
const NAMED: usize = 5;

/// A remark if a log has releases, and none of them is in a cluster of this name.
pub(crate) fn of_others<'a>(keys: impl Iterator<Item = &'a ReleaseKey>, cluster: &str) -> Option<String> {
    let mut others = BTreeSet::new();
    for key in keys {
        if *key.cluster == *cluster {
            return None;
        }
        others.insert(&*key.cluster);
    }
    if others.is_empty() {
        return None;
    }
    let named: Vec<_> = others.iter().take(NAMED).copied().collect();
    let more = if others.len() > NAMED { ", …" } else { "" };
    Some(format!(
        "The log has no release of the cluster {cluster:?}. It has those of {}{more}: name one with --cluster.",
        named.join(", ")
    ))
}
