//! The names by which a log is read: sequence numbers and release keys.

use std::fmt;
use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};

use crate::envelope::DEFAULT_CLUSTER;

/// Place of a record in its log: 1, 2, 3 …, the only order there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sequence(NonZeroU64);

/// A release: the key of everything that is folded.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReleaseKey {
    /// Name of the cluster, as the events say it.
    pub cluster: Box<str>,
    /// Namespace of the Release.
    pub namespace: Box<str>,
    /// Name of the Release.
    pub name: Box<str>,
}

impl Sequence {
    /// The first record of every log.
    pub const FIRST: Self = Self(NonZeroU64::MIN);

    /// The sequence with this number; none for 0.
    #[must_use]
    pub fn new(number: u64) -> Option<Self> {
        NonZeroU64::new(number).map(Self)
    }

    /// The number, at least 1.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0.get()
    }

    /// The sequence behind this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The sequence behind the tail of a log; the first one for an empty log.
    #[must_use]
    pub fn after(tail: Option<Self>) -> Self {
        tail.map_or(Self::FIRST, Self::next)
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl ReleaseKey {
    /// The key of a release.
    #[must_use]
    pub fn new(cluster: &str, namespace: &str, name: &str) -> Self {
        Self { cluster: cluster.into(), namespace: namespace.into(), name: name.into() }
    }
}

/// `namespace/name`, and the cluster before it unless it is the default one.
impl fmt::Display for ReleaseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if &*self.cluster != DEFAULT_CLUSTER {
            write!(f, "{}:", self.cluster)?;
        }
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
