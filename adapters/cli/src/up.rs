//! `decklog up`: the embedded engine in the foreground, until it is told to stop.

use std::convert::Infallible;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Error};
use decklog_projections::inventory::Inventories;
use tokio::sync::watch;

use crate::args::UpArgs;
use crate::config::Config;
use crate::exit::{Answer, Failure};
use crate::folder::Embedded;
use crate::inventories::Yaml;
use crate::signals::Signals;
use crate::source::{LogAddress, SOCKET, Taken, not_yet, take};

pub(crate) async fn run(args: UpArgs, config: &Config) -> Result<Answer, Error> {
    let folder = folder_of(args, config)?;
    let mut signals = Signals::new()?;
    let taken = tokio::select! {
        taken = take(&folder, async || Embedded::start(&folder, Yaml::On).await) => taken?,
        _ = signals.next() => return Ok(Answer::Yes),
    };
    let Taken::Opened(mut engine) = taken else {
        return Err(Failure::unreachable(format!("another `decklog up` runs on {} already", folder.display())));
    };
    let socket = folder.join(SOCKET);
    let listener = decklog_http::socket::bind(&socket).await?;
    let (stop, stopped) = watch::channel(false);
    let router = decklog_http::server::router(engine.handle.clone());
    let mut server = tokio::spawn(decklog_http::server::serve(listener, router, stopped));
    let handle = engine.handle.clone();
    let ready = async || {
        // The engine answers once it has caught up with the log; if it ends before, it says so itself.
        if handle.ask(|_: &mut Inventories| ()).await.is_ok() {
            tracing::info!(data = %folder.display(), socket = %socket.display(), "Ready");
        }
        std::future::pending::<Infallible>().await
    };
    let ended = tokio::select! {
        never = ready() => match never {},
        name = signals.next() => {
            tracing::info!(signal = name, "Stopping");
            Ok(())
        }
        ended = engine.ended() => ended,
        served = &mut server => served.map_err(Error::from).and_then(|served| Ok(served?)),
    };
    // Requests first, so that each of them is answered by an engine that still runs. Nobody listens if the server ended.
    let _ = stop.send(true);
    if !server.is_finished() {
        server.await.map_err(Error::from)??;
    }
    // The socket goes while the folder is still ours: whoever takes it next binds a socket of its own.
    let removed = remove_socket(&socket);
    let stopped = engine.stop().await.and(removed);
    ended.and(stopped).map(|()| Answer::Yes)
}

fn folder_of(args: UpArgs, config: &Config) -> Result<PathBuf, Error> {
    if let Some(folder) = args.data {
        return Ok(folder);
    }
    match config.log(None)? {
        LogAddress::Folder(folder) => Ok(folder),
        LogAddress::Lines(path) => Err(Failure::usage(format!(
            "{} is a file, and `decklog up` needs a folder: name one with --data",
            path.display()
        ))),
        LogAddress::Nats(servers) => Err(Failure::usage(format!(
            "{servers} is a log on NATS, and `decklog up` keeps its own in a folder: name one with --data, or run \
             `decklog project --from {servers} --sink DIR`"
        ))),
        LogAddress::NotYet(name, what) => Err(not_yet(&name, what)),
    }
}

fn remove_socket(socket: &Path) -> Result<(), Error> {
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed.with_context(|| format!("cannot remove {}", socket.display())),
    }
}
