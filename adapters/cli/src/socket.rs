//! The socket in a folder that we hold, where other commands ask and append meanwhile.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Error};
use decklog_engine::log::Log;
use decklog_engine::service::Handle;
use decklog_projections::inventory::Inventories;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::source::SOCKET;

/// A socket that is answered.
pub(crate) struct Socket {
    path: PathBuf,
    stop: watch::Sender<bool>,
    /// None once its end was told.
    serving: Option<JoinHandle<io::Result<()>>>,
}

impl Socket {
    /// Binds the socket of a folder, and answers there.
    pub(crate) async fn serve<L: Log>(folder: &Path, handle: Handle<L, Inventories>) -> Result<Self, Error> {
        let path = folder.join(SOCKET);
        let listener = decklog_http::socket::bind(&path).await?;
        let (stop, stopped) = watch::channel(false);
        let router = decklog_http::server::router(handle);
        let serving = Some(tokio::spawn(decklog_http::server::serve(listener, router, stopped)));
        Ok(Self { path, stop, serving })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Ends when nothing is answered any more, which without [`Socket::stop`] is by an error.
    pub(crate) async fn ended(&mut self) -> Result<(), Error> {
        let Some(serving) = &mut self.serving else { return Ok(()) };
        let ended = serving.await;
        self.serving = None;
        Ok(ended??)
    }

    /// Answers what was asked, and removes the socket: whoever holds the folder next binds one of its own.
    pub(crate) async fn stop(mut self) -> Result<(), Error> {
        // Nobody listens if it has ended.
        let _ = self.stop.send(true);
        let ended = self.ended().await;
        let removed = match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.with_context(|| format!("cannot remove {}", self.path.display())),
        };
        ended.and(removed)
    }
}
