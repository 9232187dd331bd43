//! The fold: events of all releases to ReleaseInventory objects, each event folded or ignored for a named reason.

mod held;
mod hooks;
mod items;
mod memory;
mod object;
mod release;
mod saved;
mod strings;
mod uid;

use decklog_engine::checkpoint::Change;
use decklog_engine::{Projection, RestoreError};
use decklog_schemas::answer::{ReleaseView, View};
use decklog_schemas::inventory::ReleaseInventory;
use decklog_schemas::subject::ReleaseTokens;
use decklog_schemas::{About, Outcome, Quarantined, Reason, Record, Refusal, ReleaseKey, Seconds, Sequence};
use hashbrown::HashTable;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use self::object::Provenance;
use self::release::Release;
use self::saved::SavedRelease;
use self::strings::Sources;
pub(crate) use self::strings::{ItemRef, message as cut};
use crate::keyed::{hash, position};
use crate::plan::Wanted;

/// The inventories of all releases of a log, in memory.
#[derive(Debug, Default)]
pub struct Inventories {
    releases: Vec<Release>,
    by_tokens: HashTable<u32>,
    sources: Sources,
    unsaved: Marks,
    unprojected: Marks,
    sequence: Option<Sequence>,
}

/// Which releases a view shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All of a cluster, or of all clusters.
    All {
        /// The cluster; none for all.
        cluster: Option<String>,
    },
    /// All of one namespace.
    Namespace {
        /// The cluster.
        cluster: String,
        /// The namespace.
        namespace: String,
    },
    /// One.
    Release(ReleaseKey),
}

/// How a release stands, for whoever brings a cluster in line with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// What is to be in the cluster.
    pub wanted: Wanted,
    /// The last event of the release that was folded.
    pub sequence: Sequence,
    /// The last record of the log that was folded.
    pub folded: Sequence,
    /// Its shard; of a deleted one that which it had.
    pub shard: Option<String>,
    /// `metadata.uid` of the Release, as far as it is known; of a deleted one that which it had.
    pub uid: Option<String>,
}

/// What the log says of one incarnation of a release, which is named by `metadata.uid` of its Release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incarnation {
    /// Nothing.
    New,
    /// Nothing, and the last one of its name is deleted.
    AfterDeleted,
    /// It is live.
    Live {
        /// Its shard.
        shard: Option<String>,
        /// Whether it is on its way out.
        deletion: Deletion,
        /// The last ReleaseTracked that was folded.
        tracked: Option<Sequence>,
    },
    /// Its controller is done with it, and nobody has said yet that its object is gone.
    Deleted,
    /// It is over, and nobody waits for anything of it.
    Over {
        /// The shard that it had, if no other one came after it.
        shard: Option<String>,
    },
}

/// Whether the deletion of a release has begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Deletion {
    /// Nobody has said so.
    #[default]
    NotBegun,
    /// ReleaseDeleting was folded.
    Begun,
}

/// Where and when an event stands.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct At {
    pub(crate) sequence: Sequence,
    pub(crate) time: Seconds,
}

/// Releases that changed since somebody last asked, each once.
#[derive(Debug, Default)]
struct Marks {
    marked: Vec<bool>,
    order: Vec<u32>,
}

impl Projection for Inventories {
    const VERSION: u32 = 5;

    fn fold(&mut self, record: &Record<'_>) -> Result<Outcome, Quarantined> {
        self.sequence = Some(record.sequence);
        let placed = record.open()?;
        let validated = placed.envelope.validate();
        let About::Release(tokens) = placed.about else {
            return Ok(validated.map_or_else(|refusal| Outcome::Ignored(refusal.reason()), |_| Outcome::Folded));
        };
        let reason = match validated {
            Ok(event) => {
                let at = self.release_at(tokens);
                self.mark(at);
                self.releases[at].fold(&event, record.sequence, &mut self.sources).err()
            }
            Err(Refusal::Unsupported(_)) => {
                let at = self.release_at(tokens);
                self.mark(at);
                self.releases[at].incomplete.get_or_insert(record.sequence);
                Some(Reason::Unsupported)
            }
            Err(Refusal::Invalid(_)) => Some(Reason::Invalid),
        };
        Ok(reason.map_or(Outcome::Folded, Outcome::Ignored))
    }

    fn changes(&mut self) -> Vec<Change> {
        let saved = |at: u32| {
            let release = &self.releases[at as usize];
            let value = match rmp_serde::to_vec(&SavedRelease::from(release)) {
                Ok(value) => value,
                Err(error) => unreachable!("strings and numbers do not fail to serialize: {error}"),
            };
            (release.tokens.as_bytes().to_vec(), Some(value))
        };
        self.unsaved.take().into_iter().map(saved).collect()
    }

    fn restore(&mut self, floor: Sequence, entries: Vec<(Vec<u8>, Vec<u8>)>) -> Result<(), RestoreError> {
        self.sequence = Some(floor);
        for (key, value) in entries {
            let saved: SavedRelease<'_> = rmp_serde::from_slice(&value).map_err(|error| RestoreError {
                key: String::from_utf8_lossy(&key).into_owned(),
                source: error.into(),
            })?;
            let release = saved.into_release(&mut self.sources);
            self.insert(release);
        }
        Ok(())
    }
}

impl Inventories {
    /// The object of a release; none if there is to be none.
    #[must_use]
    pub fn object(&self, key: &ReleaseKey) -> Option<ReleaseInventory> {
        self.find(&key.tokens()).and_then(|at| self.releases[at].object())
    }

    /// How a release stands; none if nothing was ever folded of it.
    #[must_use]
    pub fn standing(&self, key: &ReleaseKey) -> Option<Standing> {
        let release = &self.releases[self.find(&key.tokens())?];
        Some(Standing {
            wanted: release.wanted(),
            sequence: release.folded?,
            folded: self.sequence?,
            shard: release.shard().map(str::to_owned),
            uid: release.uid().map(str::to_owned),
        })
    }

    /// What the log says of the incarnation of a release whose Release has this uid.
    #[must_use]
    pub fn incarnation(&self, key: &ReleaseKey, uid: &str) -> Incarnation {
        self.find(&key.tokens()).map_or(Incarnation::New, |at| self.releases[at].incarnation(uid))
    }

    /// The releases that have an object and a known uid: key, uid and shard.
    pub fn incarnations(&self) -> impl Iterator<Item = (&ReleaseKey, &str, Option<&str>)> {
        let live = self.releases.iter().filter(|release| release.exists());
        live.filter_map(|release| Some((&release.key, release.memory.uid()?, release.shard())))
    }

    /// Which event set which field of a release's object.
    #[must_use]
    pub fn provenance(&self, key: &ReleaseKey) -> Option<Provenance> {
        let at = self.find(&key.tokens()).filter(|at| self.releases[*at].exists())?;
        Some(object::provenance(&self.releases[at]))
    }

    /// The objects of the selected releases, sorted, with their digest.
    #[must_use]
    pub fn view(&self, selection: &Selection) -> View {
        let mut releases: Vec<_> = match selection {
            Selection::Release(key) => self.find(&key.tokens()).map(|at| &self.releases[at]).into_iter().collect(),
            _ => self.releases.iter().filter(|release| selection.holds(&release.key)).collect(),
        };
        releases.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        let releases: Vec<ReleaseView> = releases.into_iter().filter_map(view_of).collect();
        View { sequence: self.sequence, digest: digest(&releases), releases }
    }

    /// The last folded sequence.
    #[must_use]
    pub fn sequence(&self) -> Option<Sequence> {
        self.sequence
    }

    /// How many objects there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.releases.iter().filter(|release| release.exists()).count()
    }

    /// The releases that events were folded into since the last call, each once.
    pub fn take_changed(&mut self) -> Vec<ReleaseKey> {
        self.unprojected.take().into_iter().map(|at| self.releases[at as usize].key.clone()).collect()
    }

    /// Every release that was ever seen, whether it has an object or not.
    pub fn keys(&self) -> impl Iterator<Item = &ReleaseKey> {
        self.releases.iter().map(|release| &release.key)
    }

    fn release_at(&mut self, tokens: ReleaseTokens<'_>) -> usize {
        if let Some(at) = self.find(tokens.as_str()) {
            return at;
        }
        // A record that was opened stands under the escaped names of its own event, so its tokens have a key.
        let key = tokens.key().unwrap_or_else(|| ReleaseKey::new("", "", tokens.as_str()));
        self.insert(Release::new(key, tokens.as_str()))
    }

    fn find(&self, tokens: &str) -> Option<usize> {
        let same = |at: &u32| *self.releases[*at as usize].tokens == *tokens;
        self.by_tokens.find(hash(&[tokens]), same).map(|at| *at as usize)
    }

    fn insert(&mut self, release: Release) -> usize {
        let at = self.releases.len();
        let hashed = hash(&[&release.tokens]);
        self.releases.push(release);
        let releases = &self.releases;
        self.by_tokens.insert_unique(hashed, position(at), |at| hash(&[&releases[*at as usize].tokens]));
        at
    }

    fn mark(&mut self, at: usize) {
        self.unsaved.mark(at);
        self.unprojected.mark(at);
    }
}

fn view_of(release: &Release) -> Option<ReleaseView> {
    let object = release.object()?;
    Some(ReleaseView {
        cluster: release.key.cluster.to_string(),
        sequence: release.folded?,
        incomplete: release.incomplete,
        provenance: object::provenance(release),
        object,
    })
}

/// SHA-256 over one line for each release: its cluster as JSON, a space, its canonical object, a line feed.
fn digest(releases: &[ReleaseView]) -> String {
    let mut hasher = Sha256::new();
    for release in releases {
        hasher.update(serde_json::Value::from(release.cluster.as_str()).to_string());
        hasher.update(b" ");
        hasher.update(release.object.canonical());
        hasher.update(b"\n");
    }
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Selection {
    fn holds(&self, key: &ReleaseKey) -> bool {
        match self {
            Self::All { cluster } => cluster.as_deref().is_none_or(|cluster| cluster == &*key.cluster),
            Self::Namespace { cluster, namespace } => **cluster == *key.cluster && **namespace == *key.namespace,
            Self::Release(release) => release == key,
        }
    }
}

impl Marks {
    fn mark(&mut self, at: usize) {
        if self.marked.len() <= at {
            self.marked.resize(at + 1, false);
        }
        if !std::mem::replace(&mut self.marked[at], true) {
            self.order.push(position(at));
        }
    }

    fn take(&mut self) -> Vec<u32> {
        let order = std::mem::take(&mut self.order);
        for at in &order {
            self.marked[*at as usize] = false;
        }
        order
    }
}
