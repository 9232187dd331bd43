//! `decklog demo`: one recorded incident, told on the embedded engine.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Error};
use decklog_engine::ingest::{Check, ingest};
use decklog_engine::replay::{Until, replay};
use decklog_projections::inventory::{Inventories, Selection};
use decklog_projections::timeline::Timeline;
use decklog_schemas::answer::View;
use decklog_schemas::{ReleaseKey, Sequence};

use crate::args::{DemoArgs, Format};
use crate::exit::{Answer, Failure};
use crate::folder::Embedded;
use crate::inventories::Yaml;
use crate::output::{self, Tone, tinted};
use crate::{at, timeline};

/// The incident, one CloudEvent a line; the line number is the sequence.
const EVENTS: &str = include_str!("../demo/incident.jsonl");

/// The chapters: up to which sequence, and what happens in it.
const CHAPTERS: [Chapter; 3] = [
    Chapter {
        last: 42,
        title: "13:58, before: render 3f9c1b7a52e0 runs, all three waves are healthy",
        told: "The controller applied 15 objects in three waves, a migration before them and a smoke test behind them; \
               the observer found each of them healthy.",
        shows: Shows::State,
    },
    Chapter {
        last: 75,
        title: "14:08, during: render d40e86c92b17 degrades",
        told: "Wave 1 of the new render crashes: `api` is Degraded, and not healthy since 14:03:04. `worker` reads \
               Healthy, but of the old render: ASSESSED is not RENDER. Two late words were ignored, each for a reason.",
        shows: Shows::StateAndEvents { from: 66 },
    },
    Chapter {
        last: 119,
        title: "14:35, after: rolled back to render 3f9c1b7a52e0",
        told: "The hook `notify` timed out, an operator rolled back, the migration was skipped, and what the new render \
               had brought was pruned at the second try. A straggler of the old controller came last, with an old lease \
               term, and changed nothing.",
        shows: Shows::StateAndEvents { from: 112 },
    },
];

struct Chapter {
    last: u64,
    title: &'static str,
    told: &'static str,
    shows: Shows,
}

enum Shows {
    State,
    StateAndEvents { from: u64 },
}

pub(crate) async fn run(args: DemoArgs) -> Result<Answer, Error> {
    if args.events {
        output::print(EVENTS)?;
        return Ok(Answer::Yes);
    }
    let folder = new_folder(args.data)?;
    let engine = Embedded::start(&folder, Yaml::On).await?;
    let told = tell(&engine).await;
    engine.stop().await?;
    told?;
    output::print(&further(&folder))?;
    Ok(Answer::Yes)
}

async fn tell(engine: &Embedded) -> Result<(), Error> {
    let key = ReleaseKey::new("default", "shop", "checkout");
    let mut lines = EVENTS.lines().map(|line| line.as_bytes().to_vec());
    let mut told = 0;
    for chapter in &CHAPTERS {
        let events: Vec<_> = lines.by_ref().take((chapter.last - told) as usize).collect();
        let count = events.len();
        let answers = ingest(&engine.handle, events, Check::Valid).await?;
        told = chapter.last;
        let folded = answers.iter().filter(|answer| answer.reason.is_none()).count();
        output::print(&format!(
            "\n{}\n{}\n{count} events appended, {folded} folded, {} ignored.\n\n",
            tinted(&format!("━━ {}", chapter.title), Tone::Waiting),
            chapter.told,
            count - folded,
        ))?;
        let selection = Selection::Release(key.clone());
        let view: View = engine.handle.ask(move |inventories: &mut Inventories| inventories.view(&selection)).await?;
        output::print(&at::render(&view, &Selection::Release(key.clone()), Format::Table)?)?;
        if let Shows::StateAndEvents { from } = chapter.shows {
            output::print(&format!(
                "\nThe events from {from} on:\n\n{}",
                events_from(engine, &key, from, told).await?
            ))?;
        }
    }
    Ok(())
}

async fn events_from(engine: &Embedded, key: &ReleaseKey, from: u64, to: u64) -> Result<String, Error> {
    let mut told = Timeline::since(jiff::Timestamp::MIN);
    let until = Sequence::new(to).map_or(Until::Tail, Until::Sequence);
    let scope = decklog_engine::log::Scope::Release(key.clone());
    replay(&**engine.handle.log(), &scope, until, &mut told).await?;
    let mut entries = told.into_entries();
    entries.retain(|entry| entry.sequence.get() >= from);
    timeline::table(&entries)
}

/// A folder that the demo may fill.
fn new_folder(named: Option<PathBuf>) -> Result<PathBuf, Error> {
    let Some(folder) = named else {
        return Ok(tempfile::Builder::new()
            .prefix("decklog-demo-")
            .tempdir()
            .context("cannot create a folder")?
            .keep());
    };
    let is_empty = match std::fs::read_dir(&folder) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    };
    if !is_empty {
        let folder = folder.display();
        return Err(Failure::usage(format!(
            "{folder} is not empty, and the demo mixes with nothing: name a new folder"
        )));
    }
    Ok(folder)
}

fn further(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "
{}
The log, its checkpoint and the inventory as YAML lie in {folder}

  decklog at       --from {folder} -n shop checkout                 the state now
  decklog at       --from {folder} -n shop checkout --at seq:75     … during the incident
  decklog at       --from {folder} -n shop checkout -o yaml         … as kubectl would print it
  decklog timeline --from {folder} -n shop checkout                 every event, and what became of it
  decklog up       --data {folder}                                  run the engine on it
  decklog demo     --events > incident.jsonl                        the events, to replay them:
  decklog at       --from incident.jsonl -n shop checkout --at 2026-03-02T14:03:30Z

Remove the folder when you are done.
",
        tinted("━━ To look further", Tone::Waiting)
    )
}
