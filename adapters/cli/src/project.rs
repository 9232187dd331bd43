//! `decklog project`: a log on NATS, folded into a folder of YAML, until it is told to stop.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Error};
use decklog_nats::JetStreamLog;
use decklog_projections::inventory::Inventories;
use decklog_sled::SledCheckpoints;

use crate::args::ProjectArgs;
use crate::config::Config;
use crate::engine::Engine;
use crate::exit::{Answer, Failure};
use crate::folder::CHECKPOINT;
use crate::inventories::{Claim, Folder};
use crate::nats::NatsLog;
use crate::signals::Signals;
use crate::source::{LogAddress, not_yet};

pub(crate) async fn run(args: ProjectArgs, config: &Config) -> Result<Answer, Error> {
    let nats = match config.log(args.log.from.clone())? {
        LogAddress::Nats(servers) => NatsLog::new(&servers, &args.log.nats),
        LogAddress::Folder(path) | LogAddress::Lines(path) => {
            return Err(Failure::usage(format!(
                "`decklog project` folds a log on NATS, such as --from nats://host:port: for the embedded log in a folder \
                 there is `decklog up --data DIR`, and not for {}",
                path.display()
            )));
        }
        LogAddress::NotYet(name, what) => return Err(not_yet(&name, what)),
    };
    let data = match args.data {
        Some(data) => data,
        None => config.data_folder()?.join("projector"),
    };
    let mut signals = Signals::new()?;
    let mut engine = tokio::select! {
        engine = start(&nats, &data, &args.sink) => engine?,
        _ = signals.next() => return Ok(Answer::Yes),
    };
    let handle = engine.handle.clone();
    let ready = async || {
        // The engine answers once it has caught up with the log; if it ends before, it says so itself.
        if handle.ask(|_: &mut Inventories| ()).await.is_ok() {
            tracing::info!(from = %nats.servers, stream = %nats.stream, sink = %args.sink.display(), "Ready");
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
    };
    ended.and(engine.stop().await).map(|()| Answer::Yes)
}

async fn start(nats: &NatsLog, data: &Path, sink: &Path) -> Result<Engine<JetStreamLog>, Error> {
    let checkpoint: PathBuf = data.join(CHECKPOINT);
    std::fs::create_dir_all(data).with_context(|| format!("cannot create {}", data.display()))?;
    let (mut checkpoints, set_aside) = SledCheckpoints::open(&checkpoint).await?;
    let log = Arc::new(nats.open_for_checkpoint(&checkpoint, &mut checkpoints).await?);
    let claim = Claim::of(sink, &log.info().await?.id())?;
    let way_out = format!(
        "`decklog stream info --from {}` shows the stream; if it is the right one, remove {}, which is then built again \
         by replay",
        nats.servers,
        checkpoint.display()
    );
    Engine::over(log, (checkpoints, set_aside), Folder::claimed(sink.to_owned(), claim), way_out).await
}
