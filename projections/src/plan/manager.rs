//! The four field managers, and which fields belong to whom.

use std::fmt;

/// A field manager of ours. Each owns its fields of the rows of one list, and shares the rows' keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FieldManager {
    /// Owns the object, its shard label, and what was applied.
    ReleaseInventory,
    /// Owns what was found out about it.
    HealthInventory,
    /// Owns which hooks there are.
    ReleaseHooks,
    /// Owns how they fare.
    HookStatus,
}

/// A list of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    Inventory,
    Hooks,
}

impl FieldManager {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::ReleaseInventory, Self::HealthInventory, Self::ReleaseHooks, Self::HookStatus];

    /// The name as it stands in `managedFields`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ReleaseInventory => "convoy-release-inventory",
            Self::HealthInventory => "convoy-health-inventory",
            Self::ReleaseHooks => "convoy-release-hooks",
            Self::HookStatus => "convoy-hook-status",
        }
    }

    /// The manager of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|manager| manager.name() == name)
    }

    /// Whether rows are its own, which stay as long as it has them: the others only add to rows that are there.
    pub(crate) fn owns_rows(self) -> bool {
        matches!(self, Self::ReleaseInventory | Self::ReleaseHooks)
    }

    /// The list whose rows it has fields of.
    pub(crate) fn list(self) -> List {
        match self {
            Self::ReleaseInventory | Self::HealthInventory => List::Inventory,
            Self::ReleaseHooks | Self::HookStatus => List::Hooks,
        }
    }

    /// Its fields in a row, besides the keys.
    pub(crate) fn fields(self) -> &'static [&'static str] {
        match self {
            Self::ReleaseInventory => &["version", "renderRef", "wave", "uid"],
            Self::HealthInventory => &["state", "assessedRenderRef", "firstUnhealthy", "message"],
            Self::ReleaseHooks => &[
                "group",
                "kind",
                "version",
                "renderRef",
                "weight",
                "workloadname",
                "workloadnamespace",
                "timeout",
                "createdAt",
            ],
            Self::HookStatus => &["state", "finishedAt", "message"],
        }
    }
}

impl fmt::Display for FieldManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl List {
    pub(crate) const ALL: [Self; 2] = [Self::Inventory, Self::Hooks];

    /// Its name in the object.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Inventory => "inventory",
            Self::Hooks => "hooks",
        }
    }

    /// The fields that tell its rows apart, in the order in which rows are sorted.
    pub(crate) fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Inventory => &["group", "kind", "namespace", "name"],
            Self::Hooks => &["phase", "name"],
        }
    }

    /// Who has fields in its rows.
    pub(crate) fn managers(self) -> impl Iterator<Item = FieldManager> {
        FieldManager::ALL.into_iter().filter(move |manager| manager.list() == self)
    }
}
