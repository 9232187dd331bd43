//! `decklog project`: a log, folded into a cluster or a folder of YAML, until it is told to stop.

mod cluster;
mod dry_run;
mod gauges;
mod sink;

use std::path::PathBuf;

use anyhow::Error;

use crate::args::ProjectArgs;
use crate::config::Config;
use crate::exit::{Answer, Failure};
use crate::nats::NatsLog;
use crate::source::{LogAddress, not_yet};

pub(crate) async fn run(args: ProjectArgs, config: &Config) -> Result<Answer, Error> {
    if args.dry_run {
        return dry_run::run(args, config).await;
    }
    let nats = match config.log(args.log.from.clone())? {
        LogAddress::Nats(servers) => NatsLog::new(&servers, &args.log.nats),
        LogAddress::Folder(folder) => return of_folder(folder, args, config).await,
        LogAddress::Lines(path) => {
            return Err(Failure::usage(format!(
                "{} is a file, and `decklog project` follows a log on NATS or in a folder: `decklog emit --to LOG {0}` \
                 appends its events to one",
                path.display()
            )));
        }
        LogAddress::NotYet(name, what) => return Err(not_yet(&name, what)),
    };
    let place = Place { data: data_of(args.data, config)?, nats };
    match args.sink {
        Some(sink) => sink::run(&place, &sink).await,
        None => cluster::run_nats(&place, args.access, args.apply, config).await,
    }
}

/// The embedded log has its checkpoint beside it, and a command of its own for YAML.
async fn of_folder(folder: PathBuf, args: ProjectArgs, config: &Config) -> Result<Answer, Error> {
    if args.sink.is_some() {
        return Err(Failure::usage(format!(
            "`decklog up --data {}` writes the inventories of an embedded log as YAML, into the folder of the log",
            folder.display()
        )));
    }
    if args.data.is_some() {
        return Err(Failure::usage(format!(
            "--data is for a log on NATS: that in {} has its checkpoint beside it",
            folder.display()
        )));
    }
    cluster::run_folder(&folder, args.access, args.apply, config).await
}

/// A log on NATS, and where its checkpoint is.
struct Place {
    nats: NatsLog,
    data: PathBuf,
}

fn data_of(given: Option<PathBuf>, config: &Config) -> Result<PathBuf, Error> {
    match given {
        Some(data) => Ok(data),
        None => Ok(config.data_folder()?.join("projector")),
    }
}

// === impl Place ===

impl Place {
    fn checkpoint(&self) -> PathBuf {
        self.data.join(crate::folder::CHECKPOINT)
    }

    /// What to do if the log and the checkpoint do not fit together.
    fn way_out(&self) -> String {
        format!(
            "`decklog stream info --from {}` shows the stream; if it is the right one, remove {}, which is then built \
             again by replay",
            self.nats.servers,
            self.checkpoint().display()
        )
    }
}
