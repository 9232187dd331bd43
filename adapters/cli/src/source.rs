//! Where a log is, and the answers that one gets from it: a folder, alone or through the `up` that holds it, or a file.

mod quarantine;
mod recall;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::Error;
use decklog_engine::log::{Gap, Log, Scope};
use decklog_engine::replay::{Replayed, Until, replay_records};
use decklog_engine::{Projection, Records};
use decklog_http::client::{Client, ClientError, ConnectError};
use decklog_nats::JetStreamLog;
use decklog_projections::inventory::{Inventories, Selection};
use decklog_projections::timeline::Timeline;
use decklog_schemas::answer::{TimelineEntry, View};
use decklog_schemas::subject::Subject;
use decklog_schemas::{ReleaseKey, Sequence};
use decklog_sled::{OpenCheckpointsError, OpenError, SledLog};

pub(crate) use self::recall::{Marks, Recalled};
use crate::args::NatsArgs;
use crate::exit::Failure;
use crate::jsonl;
use crate::moment::{Clock, Moment};
use crate::nats::NatsLog;
use crate::output::{self, Progress};

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
    /// A stream on NATS servers: their addresses, as typed.
    Nats(String),
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
    /// A stream on NATS.
    Nats(Box<JetStreamLog>),
}

impl Source {
    /// Opens a log for reading. Nothing is created.
    pub(crate) async fn open(address: &LogAddress, nats: &NatsArgs) -> Result<Self, Error> {
        match address {
            LogAddress::Nats(servers) => NatsLog::new(servers, nats).open().await.map(|log| Self::Nats(Box::new(log))),
            LogAddress::Lines(path) => jsonl::read(path).map(Self::Lines),
            LogAddress::Folder(folder) => Self::open_folder(folder).await,
            LogAddress::NotYet(name, what) => Err(not_yet(name, what)),
        }
    }

    async fn open_folder(folder: &Path) -> Result<Self, Error> {
        let log = folder.join(LOG);
        let open = async || SledLog::open_existing(&log).await.map_err(|error| open_failure(folder, error));
        Ok(match take(folder, open).await? {
            Taken::Running(client) => Self::Running(client),
            Taken::Opened(log) => Self::Folder(log),
        })
    }

    /// A moment in terms of this log.
    pub(crate) fn resolve(&self, moment: Option<Moment>) -> Result<Option<Until>, Error> {
        moment.map(|moment| moment.resolve(&self.clock())).transpose()
    }

    /// The last sequence, where it is at hand.
    pub(crate) fn last(&self) -> Option<Sequence> {
        match self {
            Self::Lines(records) => records.last_sequence(),
            Self::Running(_) | Self::Folder(_) | Self::Nats(_) => None,
        }
    }

    /// The state of the selected releases at a moment.
    pub(crate) async fn view(&mut self, selection: Selection, until: Option<Until>) -> Result<View, Error> {
        if let Self::Running(client) = self {
            return Ok(client.view(&selection, until).await?);
        }
        let mut inventories = Inventories::default();
        let scope = match (&self, &selection) {
            (Self::Folder(_) | Self::Nats(_), Selection::Release(key)) => Scope::Release(key.clone()),
            _ => Scope::All,
        };
        let replayed = self.replay(&scope, until.unwrap_or(Until::Tail), &mut inventories).await?;
        Ok(View { sequence: replayed.last, ..inventories.view(&selection) })
    }

    /// Every event of a release from one moment to another.
    pub(crate) async fn timeline(
        &mut self,
        key: &ReleaseKey,
        since: Option<Until>,
        until: Option<Until>,
    ) -> Result<Vec<TimelineEntry>, Error> {
        if let Self::Running(client) = self {
            return Ok(client.timeline(key, since, until).await?);
        }
        let from = match since {
            Some(Until::Time(moment)) => moment,
            _ => jiff::Timestamp::MIN,
        };
        let mut timeline = Timeline::since(from);
        self.replay(&Scope::Release(key.clone()), until.unwrap_or(Until::Tail), &mut timeline).await?;
        let mut entries = timeline.into_entries();
        if let Some(Until::Sequence(first)) = since {
            entries.retain(|entry| entry.sequence >= first);
        }
        Ok(entries)
    }

    async fn replay<P: Projection>(&self, scope: &Scope, until: Until, projection: &mut P) -> Result<Replayed, Error> {
        match self {
            Self::Lines(records) => Ok(replay_records(&within(records, scope), until, projection)),
            Self::Folder(log) => self::replay(log, scope, until, projection).await,
            Self::Nats(log) => {
                let replayed = self::replay(&**log, scope, until, projection).await?;
                if *scope != Scope::All {
                    warn_of_gaps(&log.gaps().await?, until);
                }
                Ok(replayed)
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
            Self::Running(_) | Self::Folder(_) | Self::Nats(_) => Clock::now(),
        }
    }
}

/// Replays a log, and says what is missing in it.
async fn replay<L: Log, P: Projection>(
    log: &L,
    scope: &Scope,
    until: Until,
    projection: &mut P,
) -> Result<Replayed, Error> {
    let _progress = Progress::start("Replaying the log");
    let replayed = decklog_engine::replay::replay(log, scope, until, projection).await?;
    for gap in &replayed.gaps {
        output::complain(&format!("warning: {gap}, and what they said is not in this answer"));
    }
    Ok(replayed)
}

/// One release is read by its own subjects, where nobody sees whether what is gone was of it.
fn warn_of_gaps(gaps: &[Gap], until: Until) {
    let counts = |gap: &&Gap| !matches!(until, Until::Sequence(last) if gap.first > last);
    for gap in gaps.iter().filter(counts) {
        output::complain(&format!(
            "warning: {gap}; what they said of this release, if anything, is not in this answer"
        ));
    }
}

/// The records of a scope.
fn within(records: &Records, scope: &Scope) -> Records {
    let tokens = match scope {
        Scope::All => return records.clone(),
        Scope::Release(key) => key.tokens(),
    };
    let mut chosen = Records::default();
    for record in records.iter() {
        if matches!(Subject::parse(&record.subject), Some(Subject::Release { release, .. }) if release.as_str() == tokens)
        {
            chosen.push(&record);
        }
    }
    chosen
}

/// Who has a folder now.
pub(crate) enum Taken<T> {
    /// An `up`, which answers.
    Running(Client),
    /// We.
    Opened(T),
}

/// How often and how long a folder is tried that another command holds: 10 s in all.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(100);

/// How long an `up` may take to say that it is there.
const PING_WITHIN: Duration = Duration::from_secs(5);

/// Finds the `up` that holds a folder, or opens the folder; waits for its turn if another command holds it.
pub(crate) async fn take<T>(folder: &Path, open: impl AsyncFn() -> Result<T, Error>) -> Result<Taken<T>, Error> {
    for _ in 0..TRIES {
        if let Some(client) = connect(folder).await? {
            return Ok(Taken::Running(client));
        }
        match open().await {
            Err(error) if is_held(&error) => tokio::time::sleep(PAUSE).await,
            opened => return opened.map(Taken::Opened),
        }
    }
    Err(Failure::unreachable(format!(
        "the log in {0} is held by another command, such as an `emit` that still reads: wait for its end, or run \
         `decklog up --data {0}`, through which many work at once",
        folder.display()
    )))
}

fn is_held(error: &Error) -> bool {
    matches!(error.downcast_ref(), Some(OpenError::Held { .. }))
        || matches!(error.downcast_ref(), Some(OpenCheckpointsError::Held { .. }))
}

/// The `up` that holds a folder; none if nobody listens there.
async fn connect(folder: &Path) -> Result<Option<Client>, Error> {
    if folder.exists() && !folder.is_dir() {
        return Err(Failure::usage(format!("{} is a file, and the embedded log needs a folder", folder.display())));
    }
    let socket = folder.join(SOCKET);
    let client = match Client::connect(&socket).await {
        Ok(client) => client,
        Err(ConnectError::NobodyListens { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let pinged = tokio::time::timeout(PING_WITHIN, client.ping()).await;
    match pinged {
        Ok(Ok(())) => Ok(Some(client)),
        // It has ended while we asked.
        Ok(Err(ClientError::NotReachable(_))) => Ok(None),
        Ok(Err(error)) => {
            Err(Failure::unreachable(format!("what listens on {} is no `decklog up`: {error}", socket.display())))
        }
        Err(_) => Err(Failure::unreachable(format!(
            "the `decklog up` behind {} does not answer: look at its process, and start it anew if it hangs",
            socket.display()
        ))),
    }
}

/// The kind of log is none that this version opens.
pub(crate) fn not_yet(name: &str, what: &str) -> Error {
    Failure::usage(format!(
        "{name} is {what}, which this version of decklog does not open: \
         name nats://host:port, a folder of the embedded log, or a .jsonl file of CloudEvents"
    ))
}

/// Says what is wrong with a folder, and the way out.
pub(crate) fn open_failure(folder: &Path, error: OpenError) -> Error {
    match error {
        OpenError::NotALog { .. } => Failure::usage(format!(
            "there is no embedded log in {}: `decklog up --data {0}` or `decklog emit --to {0} FILE` makes one",
            folder.display()
        )),
        OpenError::Damaged { .. } => Failure::diverged(error.to_string()),
        OpenError::Held { .. } | OpenError::Io { .. } => error.into(),
    }
}

// === impl LogAddress ===

impl FromStr for LogAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() {
            return Err(
                "a log has a name: nats://host:port, a folder of the embedded log, or a .jsonl file of CloudEvents",
            );
        }
        let (lower, path) = (text.trim().to_ascii_lowercase(), Path::new(text));
        let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let looks_like_an_address = lower.contains("://")
            || lower.starts_with("nats:")
            || lower.rsplit_once(':').is_some_and(|(_, port)| is_port(port));
        let is_address = text.starts_with("nats://") || text.starts_with("tls://");
        if looks_like_an_address && !is_address && !path.exists() {
            return Err("a log on NATS is named nats://host:port or tls://host:port, in small letters");
        }
        let extension = path.extension().and_then(|extension| extension.to_str());
        Ok(if text.starts_with("nats://") || text.starts_with("tls://") {
            Self::Nats(text.to_owned())
        } else if text == "-" {
            Self::NotYet(text.to_owned(), "standard input")
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
            Self::Nats(name) | Self::NotYet(name, _) => f.write_str(name),
        }
    }
}
