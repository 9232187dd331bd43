//! Projecting into a folder of YAML.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Error};
use decklog_nats::JetStreamLog;
use decklog_sled::SledCheckpoints;

use super::Place;
use crate::engine::Engine;
use crate::exit::Answer;
use crate::inventories::{Claim, Folder};
use crate::signals::Signals;

pub(super) async fn run(place: &Place, sink: &Path) -> Result<Answer, Error> {
    let mut signals = Signals::new()?;
    let mut engine = tokio::select! {
        engine = start(place, sink) => engine?,
        _ = signals.next() => return Ok(Answer::Yes),
    };
    let caught_up = engine.caught_up();
    let ready = async {
        caught_up.await;
        let nats = &place.nats;
        tracing::info!(from = %nats.servers, stream = %nats.stream, sink = %sink.display(), "Ready");
        std::future::pending::<Infallible>().await
    };
    let ended = tokio::select! {
        never = ready => match never {},
        name = signals.next() => {
            tracing::info!(signal = name, "Stopping");
            Ok(())
        }
        ended = engine.ended() => ended,
    };
    ended.and(engine.stop().await).map(|()| Answer::Yes)
}

async fn start(place: &Place, sink: &Path) -> Result<Engine<JetStreamLog>, Error> {
    let checkpoint = place.checkpoint();
    std::fs::create_dir_all(&place.data).with_context(|| format!("cannot create {}", place.data.display()))?;
    let (mut checkpoints, set_aside) = SledCheckpoints::open(&checkpoint).await?;
    let log = Arc::new(place.nats.open_for_checkpoint(&checkpoint, &mut checkpoints).await?);
    let claim = Claim::of(sink, &log.info().await?.id())?;
    Engine::over(log, (checkpoints, set_aside), Folder::claimed(sink.to_owned(), claim), place.way_out()).await
}
