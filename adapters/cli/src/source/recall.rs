//! What a log says of its releases now, and what it said at the places where somebody was there before, in one replay.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Error;
use decklog_engine::checkpoint::Change;
use decklog_engine::log::Scope;
use decklog_engine::replay::Until;
use decklog_engine::{Projection, RestoreError};
use decklog_http::client::Client;
use decklog_projections::inventory::{Inventories, Selection, Standing};
use decklog_projections::plan::{Identity, Past, Wanted};
use decklog_schemas::answer::ReleaseView;
use decklog_schemas::inventory::SHARD_LABEL;
use decklog_schemas::{Outcome, Quarantined, Record, ReleaseKey, Sequence};

use super::Source;

/// For releases, the places in the log at which their states are asked for.
pub(crate) type Marks = BTreeMap<ReleaseKey, BTreeSet<Sequence>>;

/// What a log says.
pub(crate) struct Recalled {
    /// Its last record; none if it is empty.
    pub(crate) tail: Option<Sequence>,
    /// How its releases stand.
    pub(crate) standings: BTreeMap<ReleaseKey, Standing>,
    /// How those that were marked stood at their marks.
    pub(crate) past: BTreeMap<ReleaseKey, Past>,
    /// How many events of a release were folded behind a mark.
    pub(crate) behind: BTreeMap<(ReleaseKey, Sequence), u64>,
}

impl Source {
    /// Replays the whole log, or the records of one release.
    pub(crate) async fn recall(&self, scope: &Scope, marks: &Marks) -> Result<Recalled, Error> {
        if let Self::Running(client) = self {
            return ask(client, scope, marks).await;
        }
        let mut recall = Recall::new(marks);
        let replayed = self.replay(scope, Until::Tail, &mut recall).await?;
        Ok(recall.end(replayed.last))
    }

    /// Which log it is, as stamps call it. A file of events does not say from which log they are.
    pub(crate) async fn identity(&self) -> Result<Identity, Error> {
        Ok(match self {
            Self::Running(client) => Identity::Known(client.status().await?.log),
            Self::Folder(log) => Identity::Known(log.id().to_string()),
            Self::Nats(log) => Identity::Known(log.info().await?.id().to_string()),
            Self::Lines(_) => Identity::Unknown,
        })
    }
}

/// Folds inventories, and keeps what they were at the marks.
struct Recall {
    inventories: Inventories,
    /// Marks that the replay has not come to.
    due: BTreeMap<Sequence, Vec<ReleaseKey>>,
    marks: Marks,
    past: BTreeMap<ReleaseKey, Past>,
    behind: BTreeMap<(ReleaseKey, Sequence), u64>,
}

impl Recall {
    fn new(marks: &Marks) -> Self {
        let mut due: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (key, sequences) in marks {
            sequences.iter().for_each(|sequence| due.entry(*sequence).or_default().push(key.clone()));
        }
        Self {
            inventories: Inventories::default(),
            due,
            marks: marks.clone(),
            past: BTreeMap::new(),
            behind: BTreeMap::new(),
        }
    }

    /// Keeps what is due before a record: the record at a mark may have been taken out of the log.
    fn keep(&mut self, before: Option<Sequence>) {
        while let Some(due) = self.due.first_entry()
            && before.is_none_or(|before| *due.key() < before)
        {
            let (sequence, keys) = due.remove_entry();
            for key in keys {
                let object = self.inventories.object(&key);
                self.past.entry(key).or_default().insert(sequence, object);
            }
        }
    }

    fn end(mut self, tail: Option<Sequence>) -> Recalled {
        self.keep(None);
        let standing = |key: &ReleaseKey| Some((key.clone(), self.inventories.standing(key)?));
        let standings = self.inventories.keys().filter_map(standing).collect();
        Recalled { tail, standings, past: self.past, behind: self.behind }
    }
}

impl Projection for Recall {
    const VERSION: u32 = Inventories::VERSION;

    fn fold(&mut self, record: &Record<'_>) -> Result<Outcome, Quarantined> {
        self.keep(Some(record.sequence));
        let outcome = self.inventories.fold(record);
        let changed = self.inventories.take_changed();
        if outcome == Ok(Outcome::Folded) {
            for key in changed {
                for mark in self.marks.get(&key).into_iter().flatten().filter(|mark| **mark < record.sequence) {
                    *self.behind.entry((key.clone(), *mark)).or_default() += 1;
                }
            }
        }
        outcome
    }

    fn changes(&mut self) -> Vec<Change> {
        self.inventories.changes()
    }

    fn restore(&mut self, floor: Sequence, entries: Vec<(Vec<u8>, Vec<u8>)>) -> Result<(), RestoreError> {
        self.inventories.restore(floor, entries)
    }
}

/// The same from the engine that holds the log. It tells of releases that have an object; of others that are marked, it is
/// known that they had one.
async fn ask(client: &Client, scope: &Scope, marks: &Marks) -> Result<Recalled, Error> {
    let selection = match scope {
        Scope::All => Selection::All { cluster: None },
        Scope::Release(key) => Selection::Release(key.clone()),
    };
    let tail = client.status().await?.tail;
    let view = client.view(&selection, None).await?;
    let standing = |release: ReleaseView| {
        let metadata = &release.object.metadata;
        let standing = Standing {
            sequence: release.sequence,
            folded: view.sequence.unwrap_or(release.sequence),
            shard: metadata.labels.get(SHARD_LABEL).cloned(),
            uid: None,
            wanted: Wanted::Object(Box::new(release.object.clone())),
        };
        (ReleaseKey::new(&release.cluster, &metadata.namespace, &metadata.name), standing)
    };
    let standings = view.releases.into_iter().map(standing).collect();
    let mut recalled =
        Recalled { tail: tail.max(view.sequence), standings, past: BTreeMap::new(), behind: BTreeMap::new() };
    for (key, sequences) in marks {
        if let (Some(last), Some(folded)) = (sequences.last(), view.sequence) {
            let gone = Standing { wanted: Wanted::Nothing, sequence: *last, folded, shard: None, uid: None };
            recalled.standings.entry(key.clone()).or_insert(gone);
        }
        for mark in sequences {
            let then = client.view(&Selection::Release(key.clone()), Some(Until::Sequence(*mark))).await?;
            let object = then.releases.into_iter().next().map(|release| release.object);
            recalled.past.entry(key.clone()).or_default().insert(*mark, object);
            let behind = client.timeline(key, Some(Until::Sequence(mark.next())), None).await?;
            let folded = behind.iter().filter(|entry| entry.reason.is_none()).count();
            recalled.behind.insert((key.clone(), *mark), folded.try_into()?);
        }
    }
    Ok(recalled)
}
