//! A release as a checkpoint holds it. Derived state: another [`super::Inventories`] version reads none of it and replays.

use decklog_schemas::{ReleaseKey, Sequence};
use serde::{Deserialize, Serialize};

use super::hooks::{HeldEnd, Hook, Hooks};
use super::items::{HeldHealth, Items, Row};
use super::memory::SavedMemory;
use super::release::{Live, Release};

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SavedRelease {
    key: ReleaseKey,
    memory: SavedMemory,
    incomplete: Option<Sequence>,
    folded: Option<Sequence>,
    declared: bool,
    shard: Option<(Box<str>, Sequence)>,
    rows: Vec<Row>,
    held_health: Vec<HeldHealth>,
    hooks: Vec<Hook>,
    held_ends: Vec<HeldEnd>,
}

impl From<&Release> for SavedRelease {
    fn from(release: &Release) -> Self {
        let live = &release.live;
        Self {
            key: release.key.clone(),
            memory: release.memory.save(),
            incomplete: release.incomplete,
            folded: release.folded,
            declared: live.declared,
            shard: live.shard.clone(),
            rows: live.items.rows().to_vec(),
            held_health: live.items.held().to_vec(),
            hooks: live.hooks.rows().to_vec(),
            held_ends: live.hooks.held().to_vec(),
        }
    }
}

impl From<SavedRelease> for Release {
    fn from(saved: SavedRelease) -> Self {
        Self {
            tokens: saved.key.tokens().into(),
            key: saved.key,
            memory: saved.memory.into(),
            live: Live {
                declared: saved.declared,
                shard: saved.shard,
                items: Items::restore(saved.rows, saved.held_health),
                hooks: Hooks::restore(saved.hooks, saved.held_ends),
            },
            incomplete: saved.incomplete,
            folded: saved.folded,
        }
    }
}
