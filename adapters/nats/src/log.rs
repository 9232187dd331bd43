//! The log on JetStream: reading from a place of our own, and never from what a server believes we have seen.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use decklog_engine::log::{AppendError, Appended, Batch, Gap, Log, LogId, NewEvent, ReadError, Scope, Wait};
use decklog_schemas::Sequence;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use crate::alone;
use crate::api::ApiError;
use crate::connect::Connection;
use crate::cursor::{Broken, Chunk, Cursor, filter_of};
use crate::info::{Missing, StreamInfo, classify, gaps, info};
use crate::publish::Publisher;
use crate::stored::stored;

/// Name of the stream, unless another one is named.
pub const STREAM: &str = "DECKLOG";

/// How long a read that does not wait for more bears with a server that is away.
const PATIENCE: Duration = Duration::from_secs(15);

/// How long one that opens the log bears with servers that have no JetStream: a leaf node may have lost its hub for a moment.
const NO_JETSTREAM: Duration = Duration::from_secs(2);

/// How often is looked whether JetStream is there. Not through [`Away`]: within these seconds there is nothing to tell
/// but the error itself.
const JETSTREAM_LOOK: Duration = Duration::from_millis(250);

/// After what time without a record a reader looks whether the log is still there, and still the same.
const IDLE_CHECK: Duration = Duration::from_secs(5);

/// How long a leader may lag behind what its followers have agreed upon.
const CATCH_UP: Duration = Duration::from_secs(10);

/// How often is looked whether it still lags.
const LAG_LOOK: Duration = Duration::from_millis(100);

/// After what time a chunk that must be there has got lost.
const STALLED: Duration = Duration::from_secs(5);

/// A duplicate window that attempts to send an event again may outlast.
const SHORT_WINDOW: Duration = Duration::from_secs(60);

/// How often a cursor may break at one place before the records are asked for one by one.
const BREAKS: u32 = 2;

/// How many cursors wait for their reader to come back.
const IDLE_CURSORS: usize = 4;

/// At which attempt in vain it is told that the log is away.
const TOLD_AT: u32 = 4;

/// The shortest and the longest pause between two attempts to read.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The log on a JetStream stream.
///
/// Reading survives what happens to servers, connections and consumers: it starts again behind the last record that was
/// returned. A stream that is gone, another one, or shorter than it was is told as such, and never waited out.
pub struct JetStreamLog {
    connection: Connection,
    stream: String,
    publisher: Publisher,
    cursors: Mutex<Vec<Cursor>>,
}

impl Log for JetStreamLog {
    async fn append(&self, events: Vec<NewEvent>) -> Result<Vec<Appended>, AppendError> {
        if self.publisher.has_ended() {
            return Err(AppendError::Failed("the publisher has ended".into()));
        }
        Ok(self.publisher.append(events).await)
    }

    async fn read(&self, from: Sequence, scope: &Scope, wait: Wait) -> Result<Batch, ReadError> {
        let (mut away, mut ahead, mut losses, mut breaks) = (Away::default(), None, 0, 0);
        loop {
            let trouble = match self.read_once(from, scope, wait).await {
                Ok(Some(batch)) => {
                    away.end(&self.stream);
                    return Ok(batch);
                }
                // There is nothing yet, or the connection is another one.
                Ok(None) => {
                    away.end(&self.stream);
                    (ahead, losses, breaks) = (None, 0, 0);
                    continue;
                }
                Err(Trouble::Read(ReadError::Unavailable(error))) => error,
                Err(Trouble::Read(error)) => return Err(error),
                Err(Trouble::Ahead(batch)) if *ahead.get_or_insert_with(Instant::now) + CATCH_UP < Instant::now() => {
                    return Ok(*batch);
                }
                Err(Trouble::Ahead(_)) => {
                    sleep(LAG_LOOK).await;
                    continue;
                }
                // What breaks a connection as often as it is delivered is not waited out, but asked for by itself.
                Err(Trouble::Broken(error)) => {
                    breaks += 1;
                    if breaks > BREAKS
                        && let Ok(Some(batch)) = self.read_alone(from, scope, wait).await
                    {
                        away.end(&self.stream);
                        return Ok(batch);
                    }
                    error.into()
                }
                Err(Trouble::Lost { first, problem }) => {
                    losses += 1;
                    if losses > 2 {
                        return Err(ReadError::Damaged { sequence: first, problem });
                    }
                    problem.into()
                }
            };
            if wait == Wait::No && away.since.elapsed() > PATIENCE {
                return Err(ReadError::Unavailable(trouble));
            }
            away.pause(&self.stream, &*trouble).await;
        }
    }
}

/// A log that does not answer, from the first attempt on.
struct Away {
    since: Instant,
    attempts: u32,
}

/// Whether a place is behind the last record of a scope.
enum End {
    Reached(Vec<Gap>),
    More,
}

/// Why a read came to nothing.
enum Trouble {
    Read(ReadError),
    /// The consumer is gone, or its connection.
    Broken(Broken),
    /// The log ends before what its reader has seen. In a cluster that may be so for a moment, where the leader is the
    /// last one to hear of what is agreed; else it is never waited out, for it will not grow into the same log.
    Ahead(Box<Batch>),
    /// Records were not delivered that the stream says it has. A second look may find them.
    Lost {
        first: Sequence,
        problem: String,
    },
}

// === impl Trouble ===

impl Trouble {
    fn lagging() -> Self {
        Self::Read(ReadError::Unavailable("the replica that is read has not heard yet of what the log has".into()))
    }

    fn silent() -> Self {
        Self::Read(ReadError::Unavailable("the consumer delivers nothing".into()))
    }
}

// === impl JetStreamLog ===

impl JetStreamLog {
    /// The log on a stream that is there.
    ///
    /// # Errors
    /// There is no such stream, no JetStream at all, or this login may not ask for it.
    pub async fn open(connection: &Connection, stream: &str) -> Result<Self, ReadError> {
        let mut away = Away::default();
        loop {
            match info(connection, stream).await {
                Ok(info) => {
                    warn_of_configuration(stream, &info);
                    return Ok(Self::unchecked(connection, stream));
                }
                Err(ApiError::NoJetStream { .. }) if away.since.elapsed() < NO_JETSTREAM => sleep(JETSTREAM_LOOK).await,
                // A stream that just looks for a leader answers nobody.
                Err(error @ ApiError::Unavailable { .. }) if away.since.elapsed() < PATIENCE => {
                    away.pause(stream, &error).await;
                }
                Err(error) => return Err(error.into_read_error(stream)),
            }
        }
    }

    /// The log on a stream that nobody looked for: for those who may publish, and ask for nothing.
    #[must_use]
    pub fn unchecked(connection: &Connection, stream: &str) -> Self {
        Self {
            connection: connection.clone(),
            stream: stream.to_owned(),
            publisher: Publisher::start(connection.clone(), stream),
            cursors: Mutex::default(),
        }
    }

    /// The connection that it works on.
    #[must_use]
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Where the first record stands that was recorded at a moment or later; behind the tail if there is none.
    ///
    /// # Errors
    /// The log cannot be asked.
    pub async fn first_since(&self, moment: jiff::Timestamp) -> Result<Sequence, ReadError> {
        let tail = self.info().await.map_err(|error| error.into_read_error(&self.stream))?.tail();
        // Servers count in 64 bits of nanoseconds, and turn round what is beyond.
        match i64::try_from(moment.as_nanosecond()) {
            Ok(_) => {}
            Err(_) if moment < jiff::Timestamp::UNIX_EPOCH => return Ok(Sequence::FIRST),
            Err(_) => return Ok(Sequence::after(tail)),
        }
        let asked = json!({ "start_time": moment.to_string(), "next_by_subj": ">" });
        let found = stored(&self.connection, &self.stream, &asked).await;
        let found = found.map_err(|error| error.into_read_error(&self.stream))?;
        Ok(found.and_then(|found| Sequence::new(found.seq)).unwrap_or(Sequence::after(tail)))
    }

    /// Which records were taken out of the log. Who reads one release cannot see whether they were of it.
    ///
    /// # Errors
    /// The log cannot be asked.
    pub async fn gaps(&self) -> Result<Vec<Gap>, ReadError> {
        let gaps = gaps(&self.connection, &self.stream).await;
        gaps.map_err(|error| error.into_read_error(&self.stream))
    }

    /// State and configuration of the stream.
    ///
    /// # Errors
    /// It cannot be asked for.
    pub async fn info(&self) -> Result<StreamInfo, ApiError> {
        info(&self.connection, &self.stream).await
    }

    pub(crate) fn publisher(&self) -> &Publisher {
        &self.publisher
    }

    /// One attempt. None means: try again at once.
    async fn read_once(&self, from: Sequence, scope: &Scope, wait: Wait) -> Result<Option<Batch>, Trouble> {
        let session = self.connection.session();
        if !session.is_up {
            return Err(Trouble::Read(ReadError::Unavailable("the connection is lost".into())));
        }
        let info = self.info().await.map_err(|error| self.trouble(error))?;
        if self.connection.session() != session {
            return Ok(None);
        }
        let (session, id, tail) = (session.number, info.id(), info.tail());
        let is_at_tail = Some(from) > tail;
        let nothing = |next| Batch { session, ..Batch::empty(id.clone(), tail, next) };
        if from > Sequence::after(tail) {
            return Err(Trouble::Ahead(Box::new(nothing(from))));
        }
        if is_at_tail && wait == Wait::No {
            return Ok(Some(nothing(from)));
        }
        let mut cursor = match self.take_cursor(from, scope, wait, session, &id) {
            Some(cursor) => cursor,
            None => {
                let opened = Cursor::open(&self.connection, &self.stream, &info, from, scope).await;
                let cursor = opened.map_err(|error| self.trouble(error))?;
                if cursor.pending_at_open == 0 && !is_at_tail && (wait == Wait::No || *scope == Scope::All) {
                    match self.end(from, scope, &info).await? {
                        End::Reached(gaps) => {
                            self.keep(cursor);
                            return Ok(Some(Batch { gaps, ..nothing(Sequence::after(tail)) }));
                        }
                        End::More if wait == Wait::No => return Err(Trouble::lagging()),
                        End::More => {}
                    }
                }
                cursor
            }
        };
        // Where a record must be, one that does not come has got lost, and a consumer may be gone without a word.
        let must_come = wait == Wait::No || (!is_at_tail && *scope == Scope::All);
        match timeout(if must_come { STALLED } else { IDLE_CHECK }, cursor.chunk()).await {
            Ok(Ok(_)) if self.connection.session().number != session => Ok(None),
            Ok(Ok(chunk)) => {
                let is_end = wait == Wait::No && chunk.is_end;
                let mut batch = self.batch(cursor, chunk, from, nothing(from));
                if let Some(batch) = batch.as_mut().filter(|batch| is_end && Some(batch.next) <= tail)
                    && let End::Reached(gaps) = self.end(batch.next, scope, &info).await?
                {
                    batch.gaps.extend(gaps);
                    batch.next = Sequence::after(tail);
                }
                Ok(batch)
            }
            Ok(Err(broken)) => Err(self.broken(broken)),
            Err(_) if must_come => Err(Trouble::silent()),
            Err(_) => self.keep_waiting(cursor, &id),
        }
    }

    /// Some records from a place on, without a consumer. None if there is nothing yet, and more is waited for.
    async fn read_alone(&self, from: Sequence, scope: &Scope, wait: Wait) -> Result<Option<Batch>, Trouble> {
        let session = self.connection.session().number;
        let info = self.info().await.map_err(|error| self.trouble(error))?;
        let read = alone::read(&self.connection, &self.stream, &info, from, scope).await;
        let Chunk { records, gaps, next, .. } = read.map_err(|broken| self.broken(broken))?;
        if records.is_empty() && wait == Wait::ForMore {
            return Ok(None);
        }
        tracing::warn!(stream = %self.stream, %from, records = records.len(), "Records were asked for one by one: delivered, one of them breaks the connection");
        let tail = info.tail().max(records.last_sequence());
        Ok(Some(Batch { session, records, gaps, ..Batch::empty(info.id(), tail, next.unwrap_or(from)) }))
    }

    /// A chunk as a batch. None if all of it lies before the place.
    fn batch(&self, cursor: Cursor, chunk: Chunk, from: Sequence, nothing: Batch) -> Option<Batch> {
        let Chunk { mut records, gaps, next, is_end: _ } = chunk;
        if records.iter().next().is_some_and(|first| first.sequence < from) {
            let mut rest = decklog_engine::Records::default();
            records.iter().filter(|record| record.sequence >= from).for_each(|record| rest.push(&record));
            records = rest;
        }
        let next = next.unwrap_or(from).max(from);
        let tail = nothing.tail.max(records.last_sequence());
        let is_empty = records.is_empty();
        let batch = Batch { tail, next, records, gaps, ..nothing };
        self.keep(cursor);
        (!is_empty).then_some(batch)
    }

    /// The waiting goes on with the same cursor, unless the log is another one.
    fn keep_waiting(&self, cursor: Cursor, id: &LogId) -> Result<Option<Batch>, Trouble> {
        if cursor.log == *id {
            self.keep(cursor);
        }
        Ok(None)
    }

    /// Asks the leader whether the scope has a record between a place and the tail that `info` tells of: a consumer may
    /// live on a replica that has not heard of it yet. In the whole log, what is not there was taken out.
    async fn end(&self, next: Sequence, scope: &Scope, info: &StreamInfo) -> Result<End, Trouble> {
        let filter = match scope {
            Scope::All => ">".to_owned(),
            Scope::Release(_) => filter_of(scope),
        };
        let asked = json!({ "seq": next.get(), "next_by_subj": filter });
        match stored(&self.connection, &self.stream, &asked).await {
            Ok(Some(found)) if Sequence::new(found.seq) <= info.tail() => return Ok(End::More),
            // Whoever may not ask believes the consumer.
            Ok(_) | Err(ApiError::Denied(_)) => {}
            Err(error) => return Err(self.trouble(error)),
        }
        if *scope != Scope::All {
            return Ok(End::Reached(Vec::new()));
        }
        let behind = Sequence::after(info.tail());
        let gaps = classify(&self.connection, &self.stream, &info.id(), next, behind).await;
        gaps.map(End::Reached).map_err(|missing| self.broken(missing.into()))
    }

    /// A cursor of this log and connection that stands where the reader is. One that waits for no record is told
    /// whether there is one only by a fresh cursor.
    fn take_cursor(&self, from: Sequence, scope: &Scope, wait: Wait, session: u64, log: &LogId) -> Option<Cursor> {
        let mut cursors = self.cursors();
        cursors.retain(|cursor| cursor.session == session && cursor.log == *log);
        if *scope != Scope::All && wait == Wait::No {
            return None;
        }
        let fits = |cursor: &Cursor| {
            cursor.scope == *scope && (cursor.next == from || (*scope != Scope::All && cursor.next < from))
        };
        let place = cursors.iter().position(fits)?;
        Some(cursors.remove(place))
    }

    /// One cursor of each scope waits: who reads the same in two places opens another one.
    fn keep(&self, cursor: Cursor) {
        let mut cursors = self.cursors();
        cursors.retain(|other| other.scope != cursor.scope);
        if cursors.len() == IDLE_CURSORS {
            cursors.remove(0);
        }
        cursors.push(cursor);
    }

    fn cursors(&self) -> std::sync::MutexGuard<'_, Vec<Cursor>> {
        self.cursors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn trouble(&self, error: ApiError) -> Trouble {
        Trouble::Read(error.into_read_error(&self.stream))
    }

    fn broken(&self, broken: Broken) -> Trouble {
        match broken {
            Broken::Missing(Missing::Lost { first, .. }) => Trouble::Lost { first, problem: broken.to_string() },
            Broken::Missing(Missing::Api(error)) => self.trouble(error),
            Broken::Missing(Missing::OtherLog { .. }) => Trouble::Read(ReadError::Unavailable(broken.into())),
            Broken::Consumer(_) => Trouble::Broken(broken),
        }
    }
}

impl fmt::Debug for JetStreamLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JetStreamLog").field("stream", &self.stream).finish_non_exhaustive()
    }
}

/// What an operator may have chosen, and should not have without knowing what it means.
fn warn_of_configuration(stream: &str, info: &StreamInfo) {
    let window = Duration::from_nanos(info.config["duplicate_window"].as_u64().unwrap_or_default());
    if window < SHORT_WINDOW {
        tracing::warn!(%stream, ?window, "Duplicate window is so short that an event which is sent again may be stored twice; `decklog stream init` widens it");
    }
    if info.config["no_ack"].as_bool().unwrap_or(false) {
        tracing::warn!(%stream, "Stream acknowledges nothing: nobody is told whether an event is stored; `decklog stream init` changes it");
    }
}

// === impl Away ===

impl Default for Away {
    fn default() -> Self {
        Self { since: Instant::now(), attempts: 0 }
    }
}

impl Away {
    /// Waits before the next attempt, longer each time. What passes at once is told to nobody.
    async fn pause(&mut self, stream: &str, error: &(dyn std::error::Error + Send + Sync)) {
        if self.attempts == TOLD_AT {
            tracing::warn!(%stream, %error, "Log does not answer; trying again until it does");
        }
        let pause = SHORTEST_PAUSE * 2_u32.saturating_pow(self.attempts.min(16));
        self.attempts += 1;
        sleep(jittered(pause.min(LONGEST_PAUSE))).await;
    }

    fn end(&mut self, stream: &str) {
        if self.attempts > TOLD_AT {
            tracing::info!(%stream, "Log answers again");
        }
        *self = Self::default();
    }
}

/// A pause that differs from that of others who lost the same server at the same time.
fn jittered(pause: Duration) -> Duration {
    let part = u32::from(uuid::Uuid::now_v7().as_bytes()[15]);
    pause / 2 + pause * part / 512
}
