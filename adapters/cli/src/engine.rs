//! A running engine: the log folded into inventories, a sink that follows, and how it ends.

use std::sync::Arc;

use anyhow::Error;
use decklog_engine::driver::{DriveError, Driver, ReplayReason, Start};
use decklog_engine::log::Log;
use decklog_engine::service::{Handle, Service, ServiceError, Sink};
use decklog_projections::inventory::Inventories;
use decklog_sled::{SetAside, SledCheckpoints};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::exit::Failure;

/// A running engine over a log.
pub(crate) struct Engine<L> {
    pub(crate) handle: Handle<L, Inventories>,
    stop: watch::Sender<bool>,
    /// None once its end was told.
    running: Option<JoinHandle<Result<(), ServiceError>>>,
    way_out: String,
}

impl<L: Log> Engine<L> {
    /// Starts to fold a log from a checkpoint on. What to do if the two do not fit together is said in `way_out`.
    pub(crate) async fn over(
        log: Arc<L>,
        (checkpoints, set_aside): (SledCheckpoints, Option<SetAside>),
        sink: impl Sink<Inventories>,
        way_out: String,
    ) -> Result<Self, Error> {
        if let Some(set_aside) = set_aside {
            let moved_to = set_aside.moved_to.display();
            tracing::warn!(%moved_to, problem = %set_aside.problem, "Checkpoint was damaged and is set aside; the log is replayed");
        }
        let started = Driver::start(Arc::clone(&log), checkpoints).await;
        let (driver, start) = started.map_err(|error| with_way_out(error, &way_out))?;
        report(&start);
        let (service, handle) = Service::new(log, driver, sink);
        let (stop, stopped) = watch::channel(false);
        let running = Some(tokio::spawn(service.run(stopped)));
        Ok(Self { handle, stop, running, way_out })
    }

    /// Ends once the engine has caught up with its log. If it ends before, this never does: [`Engine::ended`] says so.
    pub(crate) fn caught_up(&self) -> impl Future<Output = ()> + use<L> {
        let handle = self.handle.clone();
        async move {
            if handle.ask(|_: &mut Inventories| ()).await.is_err() {
                std::future::pending().await
            }
        }
    }

    /// Ends when the engine does, which without [`Engine::stop`] is by an error.
    pub(crate) async fn ended(&mut self) -> Result<(), Error> {
        let Some(running) = &mut self.running else { return Ok(()) };
        let ended = running.await;
        self.running = None;
        match ended {
            Ok(Err(ServiceError::Drive(error))) => Err(with_way_out(error, &self.way_out)),
            Ok(ended) => Ok(ended?),
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        }
    }

    /// Saves a checkpoint and ends. Tells nothing of an end that was told before.
    pub(crate) async fn stop(mut self) -> Result<(), Error> {
        // If nobody listens any more, the engine has ended already, and says how.
        let _ = self.stop.send(true);
        self.ended().await
    }
}

fn with_way_out(error: DriveError, way_out: &str) -> Error {
    match error {
        DriveError::Diverged(_) => Failure::diverged(format!("{error}: nothing was changed; {way_out}")),
        DriveError::HistoryLost(_) => Failure::diverged(format!(
            "{error}, and a state without them would be wrong: nothing was changed; start from a checkpoint that is newer, \
             or from a copy of the whole log"
        )),
        other => other.into(),
    }
}

fn report(start: &Start) {
    match start {
        Start::Checkpoint { floor, entries } => {
            tracing::info!(%floor, releases = entries, "Starting from the checkpoint")
        }
        Start::Replay { reason: ReplayReason::NoCheckpoint } => tracing::info!("Replaying the log from its start"),
        Start::Replay { reason: ReplayReason::OtherProjection { version } } => {
            tracing::info!(version, "Checkpoint is of another version; replaying the log from its start");
        }
        Start::Replay { reason: ReplayReason::Unreadable(error) } => {
            tracing::warn!(%error, "Checkpoint cannot be read; replaying the log from its start");
        }
    }
}
