//! `decklog up`: the embedded engine in the foreground, until it is told to stop.

use std::convert::Infallible;
use std::path::PathBuf;

use anyhow::Error;

use crate::args::UpArgs;
use crate::config::Config;
use crate::exit::{Answer, Failure};
use crate::folder::Embedded;
use crate::inventories::Yaml;
use crate::signals::Signals;
use crate::socket::Socket;
use crate::source::{LogAddress, Taken, not_yet, take};

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
    let mut socket = Socket::serve(&folder, engine.handle.clone()).await?;
    let (caught_up, path) = (engine.caught_up(), socket.path().to_owned());
    let ready = async {
        caught_up.await;
        tracing::info!(data = %folder.display(), socket = %path.display(), "Ready");
        std::future::pending::<Infallible>().await
    };
    let ended = tokio::select! {
        never = ready => match never {},
        name = signals.next() => {
            tracing::info!(signal = name, "Stopping");
            Ok(())
        }
        ended = engine.ended() => ended,
        ended = socket.ended() => ended,
    };
    // Requests first, so that each of them is answered by an engine that still runs.
    let answered = socket.stop().await;
    let stopped = engine.stop().await;
    ended.and(answered).and(stopped).map(|()| Answer::Yes)
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
