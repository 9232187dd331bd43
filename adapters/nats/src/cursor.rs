//! A cursor: one consumer that reads ahead of whoever asks, from a place on, until something breaks it.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_nats::jetstream::message::Info as MessageInfo;
use async_nats::jetstream::stream::ConsumerErrorKind;
use decklog_engine::Records;
use decklog_engine::log::{Gap, LogId, READ_BYTES, READ_RECORDS, Scope};
use decklog_schemas::subject::PREFIX;
use decklog_schemas::{Record, Sequence};
use futures::{FutureExt as _, StreamExt as _};
use jiff::Timestamp;
use tokio::sync::{broadcast, mpsc};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::api::{ApiError, ServerSays, denial_of};
use crate::connect::{Connection, Denial};
use crate::info::{Missing, StreamInfo, classify};

/// How many messages one pull asks for: fewer cost a round trip too often.
const PULL: u64 = 5_000;

/// How many bytes of messages may wait in the client, about.
const AHEAD_BYTES: u64 = 32 * 1024 * 1024;

/// How many chunks are read ahead of whoever asks.
const AHEAD_CHUNKS: usize = 2;

/// How long a chunk waits for a message that is on its way.
const HAND_OVER: Duration = Duration::from_millis(500);

/// After how long without a reader the server forgets the consumer.
const INACTIVE: Duration = Duration::from_secs(10);

/// How often the server says that it is there although it has no message.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// A place in the log from which records come, one chunk after the other.
#[derive(Debug)]
pub(crate) struct Cursor {
    pub(crate) scope: Scope,
    /// The log that it reads.
    pub(crate) log: LogId,
    /// The connection that it was opened on; it is of no use on another.
    pub(crate) session: u64,
    /// Every record of the scope before this place was handed out.
    pub(crate) next: Sequence,
    /// How many records of the scope there were then.
    pub(crate) pending_at_open: u64,
    chunks: mpsc::Receiver<Result<Chunk, Broken>>,
    task: JoinHandle<()>,
}

/// Records that came together.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    pub(crate) records: Records,
    /// What is gone between them.
    pub(crate) gaps: Vec<Gap>,
    /// Where to go on.
    pub(crate) next: Option<Sequence>,
    /// Whether there was nothing more when the last one was sent.
    pub(crate) is_end: bool,
}

/// The cursor gives no more: another one has to be opened where it stands.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    /// The consumer or the connection is gone, or messages were lost on the way.
    #[error("the consumer is gone: {0}")]
    Consumer(String),
    /// The log lacks records that it should have, or is another one.
    #[error(transparent)]
    Missing(#[from] Missing),
}

/// What the client delivers.
type Delivered = Result<async_nats::jetstream::Message, pull::MessagesError>;

/// The reading end of a consumer.
struct Reader {
    connection: Connection,
    stream: String,
    log: LogId,
    messages: pull::Stream,
    scope: Scope,
    /// Where the next record of the scope may be at the earliest.
    next: Sequence,
    /// The number of the last message of this consumer.
    delivered: u64,
}

impl Cursor {
    /// Opens a cursor at a place of the log that `info` is about.
    pub(crate) async fn open(
        connection: &Connection,
        stream: &str,
        info: &StreamInfo,
        from: Sequence,
        scope: &Scope,
    ) -> Result<Self, ApiError> {
        let session = connection.session().number;
        let name = format!("decklog-{}", uuid::Uuid::now_v7().simple());
        let config = pull::Config {
            name: Some(name.clone()),
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: from.get() },
            ack_policy: AckPolicy::None,
            filter_subject: filter_of(scope),
            inactive_threshold: INACTIVE,
            num_replicas: 1,
            memory_storage: true,
            ..pull::Config::default()
        };
        let filter =
            if config.filter_subject.is_empty() { String::new() } else { format!(".{}", config.filter_subject) };
        let what = format!("CONSUMER.CREATE.{stream}.{name}{filter}");
        let unavailable = |source| ApiError::Unavailable { subject: what.clone(), source };
        let created = connection.context.create_consumer_on_stream(config, stream);
        let created = connection.unless_denied(&format!("{}.{what}", connection.api), created).await?;
        let consumer = created.map_err(|error| match error.kind() {
            ConsumerErrorKind::JetStream(says) => ServerSays {
                code: u16::try_from(says.code()).unwrap_or_default(),
                err_code: says.error_code().0,
                description: says.to_string(),
            }
            .into_error(&what),
            _ => unavailable(error.into()),
        })?;
        let pending_at_open = consumer.cached_info().num_pending;
        let average = info.state.bytes / info.state.messages.max(1);
        let batch = PULL.min(AHEAD_BYTES / average.max(1)).max(1);
        let denials = (format!("{}.CONSUMER.MSG.NEXT.{stream}.{name}", connection.api), connection.denials());
        let messages = consumer
            .stream()
            .max_messages_per_batch(usize::try_from(batch).unwrap_or(usize::MAX))
            .heartbeat(HEARTBEAT)
            .messages()
            .await
            .map_err(|error| unavailable(error.into()))?;
        let (sender, chunks) = mpsc::channel(AHEAD_CHUNKS);
        let log = info.id();
        let reader = Reader {
            connection: connection.clone(),
            stream: stream.to_owned(),
            log: log.clone(),
            messages,
            scope: scope.clone(),
            next: from,
            delivered: 0,
        };
        let task = tokio::spawn(reader.run(session, denials, sender));
        Ok(Self { scope: scope.clone(), log, session, next: from, pending_at_open, chunks, task })
    }

    /// The next chunk. Dropping the future loses nothing.
    pub(crate) async fn chunk(&mut self) -> Result<Chunk, Broken> {
        let chunk =
            self.chunks.recv().await.unwrap_or_else(|| Err(Broken::Consumer("its reader has ended".to_owned())))?;
        self.next = chunk.next.unwrap_or(self.next);
        Ok(chunk)
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Reader {
    /// Reads until something breaks, or nobody asks any more. Whoever may not ask for messages under the subject `asks`
    /// is told so by a denial, and else waits in vain.
    async fn run(
        mut self,
        session: u64,
        (asks, mut denials): (String, broadcast::Receiver<Denial>),
        chunks: mpsc::Sender<Result<Chunk, Broken>>,
    ) {
        let mut sessions = self.connection.sessions();
        loop {
            let chunk = tokio::select! {
                chunk = self.chunk() => chunk,
                denial = denial_of(&mut denials, &asks) => Err(Missing::Api(denial.into()).into()),
                // What the client had buffered of the old connection may be followed by the same once more.
                _ = sessions.wait_for(|now| now.number != session || !now.is_up) => {
                    Err(Broken::Consumer("the connection was lost".to_owned()))
                }
            };
            let is_broken = chunk.is_err();
            if chunks.send(chunk).await.is_err() || is_broken {
                return;
            }
        }
    }

    async fn chunk(&mut self) -> Result<Chunk, Broken> {
        let mut chunk = Chunk::default();
        loop {
            let Some(message) = self.message(&chunk).await else { break };
            let message = match message {
                None => return Err(Broken::Consumer("its messages have ended".to_owned())),
                Some(Err(error)) => return Err(Broken::Consumer(error.to_string())),
                Some(Ok(message)) => message,
            };
            let place = message.info().map_err(|error| Broken::Consumer(error.to_string()))?;
            self.step(&place, &mut chunk).await?;
            let published = Timestamp::from_nanosecond(
                i128::from(place.published.unix_timestamp()) * 1_000_000_000 + i128::from(place.published.nanosecond()),
            );
            chunk.records.push(&Record {
                sequence: sequence(place.stream_sequence)?,
                recorded: published.unwrap_or(Timestamp::UNIX_EPOCH),
                subject: message.subject.as_str().into(),
                bytes: message.payload[..].into(),
            });
            chunk.is_end = place.pending == 0;
            if chunk.records.len() >= READ_RECORDS || chunk.records.size() >= READ_BYTES {
                break;
            }
        }
        chunk.next = Some(self.next);
        Ok(chunk)
    }

    /// The next message; none if the chunk is to be handed over first, because nothing more is there or it is slow.
    async fn message(&mut self, chunk: &Chunk) -> Option<Option<Delivered>> {
        if let Some(ready) = self.messages.next().now_or_never() {
            return Some(ready);
        }
        if chunk.is_end {
            None
        } else if chunk.records.is_empty() {
            Some(self.messages.next().await)
        } else {
            timeout(HAND_OVER, self.messages.next()).await.ok()
        }
    }

    /// Checks that nothing was lost between the last message and this one.
    async fn step(&mut self, place: &MessageInfo<'_>, chunk: &mut Chunk) -> Result<(), Broken> {
        if place.consumer_sequence != self.delivered + 1 {
            let lost = format!("message {} of the consumer came after {}", place.consumer_sequence, self.delivered);
            return Err(Broken::Consumer(lost));
        }
        self.delivered = place.consumer_sequence;
        let found = sequence(place.stream_sequence)?;
        if self.scope == Scope::All && found > self.next {
            let gaps = classify(&self.connection, &self.stream, &self.log, self.next, found).await?;
            chunk.gaps.extend(gaps);
        }
        self.next = found.next();
        Ok(())
    }
}

fn sequence(number: u64) -> Result<Sequence, Broken> {
    Sequence::new(number).ok_or_else(|| Broken::Consumer("a message has no sequence".to_owned()))
}

/// The subjects of a scope; empty for all of the stream.
pub(crate) fn filter_of(scope: &Scope) -> String {
    match scope {
        Scope::All => String::new(),
        Scope::Release(key) => format!("{PREFIX}.release.{}.>", key.tokens()),
    }
}
