//! Where a log is, and the answers that one gets from it: a folder, alone or through the `up` that holds it, or a file.

use std::convert::Infallible;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::Error;
use decklog_engine::log::Scope;
use decklog_engine::replay::{Replayed, Until, replay, replay_records};
use decklog_engine::{Projection, Records};
use decklog_http::client::{Client, ConnectError};
use decklog_projections::inventory::{Inventories, Selection};
use decklog_projections::timeline::Timeline;
use decklog_schemas::ReleaseKey;
use decklog_schemas::answer::{TimelineEntry, View};
use decklog_sled::{OpenError, SledLog};

use crate::exit::Failure;
use crate::jsonl;
use crate::moment::{Clock, Moment};
use crate::output::Progress;

/// Name of the socket in the folder of an embedded log.
pub(crate) const SOCKET: &str = "decklog.sock";

/// Name of the log in that folder.
pub(crate) const LOG: &str = "log";

/// How a log is named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogAddress {
    /// The folder of an embedded log.
    Folder(PathBuf),
    /// A file of CloudEvents, one a line.
    Lines(PathBuf),
    /// A kind of log that this version does not open, with what it is.
    NotYet(String, &'static str),
}

/// A log that is open for questions.
pub(crate) enum Source {
    /// The folder is held by a running `up`, which answers.
    Running(Client),
    /// The folder is held by nobody else.
    Folder(SledLog),
    /// A file, read as a whole.
    Lines(Records),
}

impl Source {
    /// Opens a log for reading. Nothing is created.
    pub(crate) async fn open(address: &LogAddress) -> Result<Self, Error> {
        match address {
            LogAddress::Lines(path) => jsonl::read(path).map(Self::Lines),
            LogAddress::Folder(folder) => Self::open_folder(folder).await,
            LogAddress::NotYet(name, what) => Err(not_yet(name, what)),
        }
    }

    async fn open_folder(folder: &Path) -> Result<Self, Error> {
        for _ in 0..HELD_TRIES {
            if let Some(client) = connect(folder).await? {
                return Ok(Self::Running(client));
            }
            match SledLog::open_existing(&folder.join(LOG)).await {
                Ok(log) => return Ok(Self::Folder(log)),
                // Another command reads it, or an `up` is about to listen: both take a moment.
                Err(OpenError::Held { .. }) => tokio::time::sleep(HELD_PAUSE).await,
                Err(error) => return Err(open_failure(folder, error)),
            }
        }
        Err(held(folder))
    }

    /// The state of the selected releases at a moment.
    pub(crate) async fn view(&mut self, selection: Selection, at: Option<&Moment>) -> Result<View, Error> {
        let until = at.map(|moment| moment.resolve(&self.clock())).transpose()?;
        if let Self::Running(client) = self {
            return Ok(client.view(&selection, until).await?);
        }
        let mut inventories = Inventories::default();
        let scope = match &selection {
            Selection::Release(key) => Scope::Release(key.clone()),
            Selection::All { .. } | Selection::Namespace { .. } => Scope::All,
        };
        let replayed = self.replay(&scope, until.unwrap_or(Until::Tail), &mut inventories).await?;
        Ok(View { sequence: replayed.last, ..inventories.view(&selection) })
    }

    /// Every event of a release from one moment to another.
    pub(crate) async fn timeline(
        &mut self,
        key: &ReleaseKey,
        since: Option<&Moment>,
        until: Option<&Moment>,
    ) -> Result<Vec<TimelineEntry>, Error> {
        let clock = self.clock();
        let since = since.map(|moment| moment.resolve(&clock)).transpose()?;
        let until = until.map(|moment| moment.resolve(&clock)).transpose()?;
        if let Self::Running(client) = self {
            return Ok(client.timeline(key, since, until).await?);
        }
        let from = match since {
            Some(Until::Time(moment)) => moment,
            _ => jiff::Timestamp::MIN,
        };
        let mut timeline = OfRelease { tokens: format!("{}.", key.tokens()), timeline: Timeline::since(from) };
        self.replay(&Scope::Release(key.clone()), until.unwrap_or(Until::Tail), &mut timeline).await?;
        let mut entries = timeline.timeline.into_entries();
        if let Some(Until::Sequence(first)) = since {
            entries.retain(|entry| entry.sequence >= first);
        }
        Ok(entries)
    }

    async fn replay<P: Projection>(&self, scope: &Scope, until: Until, projection: &mut P) -> Result<Replayed, Error> {
        match self {
            Self::Lines(records) => Ok(replay_records(records, until, projection)),
            Self::Folder(log) => {
                let _progress = Progress::start("Replaying the log");
                Ok(replay(log, scope, until, projection).await?)
            }
            Self::Running(_) => unreachable!("a running engine replays itself"),
        }
    }

    /// In a file, now is the time of its last event.
    fn clock(&self) -> Clock {
        match self {
            Self::Lines(records) => {
                records.iter().map(|record| record.recorded).max().map_or_else(Clock::now, Clock::at)
            }
            Self::Running(_) | Self::Folder(_) => Clock::now(),
        }
    }
}

/// How often and how long a folder is tried that somebody else holds without answering: 3 s in all.
const HELD_TRIES: u32 = 30;
const HELD_PAUSE: Duration = Duration::from_millis(100);

/// The timeline of one release out of records of all.
struct OfRelease {
    tokens: String,
    timeline: Timeline,
}

impl Projection for OfRelease {
    const VERSION: u32 = Timeline::VERSION;

    fn fold(
        &mut self,
        record: &decklog_schemas::Record<'_>,
    ) -> Result<decklog_schemas::Outcome, decklog_schemas::Quarantined> {
        let rest = record.subject.strip_prefix("decklog.release.");
        if rest.is_some_and(|rest| rest.starts_with(&self.tokens)) {
            return self.timeline.fold(record);
        }
        Ok(decklog_schemas::Outcome::Folded)
    }

    fn changes(&mut self) -> Vec<decklog_engine::checkpoint::Change> {
        Vec::new()
    }

    fn restore(
        &mut self,
        floor: decklog_schemas::Sequence,
        entries: Vec<(Vec<u8>, Vec<u8>)>,
    ) -> Result<(), decklog_engine::RestoreError> {
        self.timeline.restore(floor, entries)
    }
}

/// The `up` that holds a folder; none if nobody listens there.
pub(crate) async fn connect(folder: &Path) -> Result<Option<Client>, Error> {
    if folder.is_file() {
        return Err(Failure::usage(format!("{} is a file, and the embedded log needs a folder", folder.display())));
    }
    match Client::connect(&folder.join(SOCKET)).await {
        Ok(client) => Ok(Some(client)),
        Err(ConnectError::NobodyListens { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Somebody holds the folder and does not answer.
fn held(folder: &Path) -> Error {
    let folder = folder.display();
    Failure::unreachable(format!(
        "the log in {folder} is held by another process that does not answer on its socket: \
         find it with `fuser {folder}/{LOG}/db`, and end it or wait for it"
    ))
}

/// The kind of log is none that this version opens.
pub(crate) fn not_yet(name: &str, what: &str) -> Error {
    Failure::usage(format!(
        "{name} is {what}, which this version of decklog does not open: \
         name a folder of the embedded log, or a .jsonl file of CloudEvents"
    ))
}

/// Says what is wrong with a folder, and the way out.
pub(crate) fn open_failure(folder: &Path, error: OpenError) -> Error {
    match error {
        OpenError::NotALog { .. } => Failure::usage(format!(
            "there is no embedded log in {}: `decklog up --data {0}` or `decklog emit --to {0} FILE` makes one",
            folder.display()
        )),
        OpenError::Held { .. } => held(folder),
        OpenError::Damaged { .. } => Failure::diverged(error.to_string()),
        OpenError::Io { .. } => error.into(),
    }
}

// === impl LogAddress ===

impl FromStr for LogAddress {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let path = Path::new(text);
        let extension = path.extension().and_then(|extension| extension.to_str());
        Ok(if text.starts_with("nats://") || text.starts_with("tls://") {
            Self::NotYet(text.to_owned(), "a log on a NATS server")
        } else if path.is_dir() {
            Self::Folder(path.to_owned())
        } else if extension == Some("deck") {
            Self::NotYet(text.to_owned(), "an archive")
        } else if path.is_file() || matches!(extension, Some("jsonl" | "ndjson")) {
            Self::Lines(path.to_owned())
        } else {
            Self::Folder(path.to_owned())
        })
    }
}

impl fmt::Display for LogAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(path) | Self::Lines(path) => path.display().fmt(f),
            Self::NotYet(name, _) => f.write_str(name),
        }
    }
}
