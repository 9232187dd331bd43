//! What is in quarantine, asked of any log.

use anyhow::Error;
use decklog_engine::log::Scope;
use decklog_engine::replay::{Until, record_at};
use decklog_projections::quarantine::{Inspection, Quarantine};
use decklog_schemas::Sequence;
use decklog_schemas::answer::{Inspected, QuarantineList};

use super::{LogAddress, Source};
use crate::args::NatsArgs;
use crate::jsonl;

impl Source {
    /// Opens a log for reading, with the lines of a file that are no events. Nothing is created.
    pub(crate) async fn open_with_all(address: &LogAddress, nats: &NatsArgs) -> Result<Self, Error> {
        match address {
            LogAddress::Lines(path) => jsonl::read_all(path).map(Self::Lines),
            address => Self::open(address, nats).await,
        }
    }

    /// What was put in quarantine from one moment to another.
    pub(crate) async fn quarantine(&self, since: Option<Until>, until: Option<Until>) -> Result<QuarantineList, Error> {
        if let Self::Running(client) = self {
            return Ok(client.quarantine(since, until).await?);
        }
        let mut quarantine = Quarantine::since(since);
        self.replay(&Scope::All, until.unwrap_or(Until::Tail), &mut quarantine).await?;
        Ok(quarantine.into_list())
    }

    /// What there is at a place.
    pub(crate) async fn inspect(&self, sequence: Sequence) -> Result<Inspected, Error> {
        let (found, tail) = match self {
            Self::Running(client) => return Ok(client.inspect(sequence).await?),
            Self::Folder(log) => record_at(log, sequence).await?,
            Self::Nats(log) => record_at(&**log, sequence).await?,
            Self::Lines(records) => {
                let found = records.iter().find(|record| record.sequence == sequence);
                (found.map(decklog_schemas::Record::into_static), records.last_sequence())
            }
        };
        let Some(record) = found else { return Ok(Inspected::Absent { tail }) };
        let mut inspection = Inspection::of(record);
        if let Some(scope) = inspection.scope() {
            self.replay(&scope, Until::Tail, &mut inspection).await?;
        }
        Ok(inspection.into_answer())
    }
}
