//! What belongs to a release's name and outlives its incarnations: who said what up to where, and which uids are gone.

use std::collections::VecDeque;

use decklog_schemas::{Domain, Event, Reason, WriterSeq};
use serde::{Deserialize, Serialize};

use super::strings::{Source, Sources};
use crate::keyed::{Keyed, Table, hash};

/// How many ids of events without `writerseq` are remembered for each release.
pub(crate) const ID_LIMIT: usize = 1024;

/// The memory of a release's name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    /// The newest last, where it is looked for first.
    writers: Vec<Writer>,
    ids: Ids,
    terms: Terms,
    incarnation: Incarnation,
}

/// The memory as a checkpoint holds it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SavedMemory {
    writers: Vec<Writer>,
    ids: Vec<Box<str>>,
    terms: Terms,
    incarnation: SavedIncarnation,
}

/// The highest `writerseq` of one source.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Writer {
    source: Source,
    highest: WriterSeq,
}

/// The newest ids of events without `writerseq`.
#[derive(Clone, Debug, Default)]
struct Ids {
    oldest_first: VecDeque<Box<str>>,
    known: Table<Id>,
}

/// An id of an event, or a uid of a release.
#[derive(Clone, Debug)]
struct Id(Box<str>);

/// The highest term of each domain.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Terms([Option<u64>; 7]);

/// Which incarnation of the release is live.
#[derive(Clone, Debug, Default)]
struct Incarnation {
    status: Status,
    gone: Table<Id>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SavedIncarnation {
    status: Status,
    gone: Vec<Box<str>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Status {
    #[default]
    NeverSeen,
    Live(Option<Box<str>>),
    Deleted,
}

/// How an admitted event stands to the live incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It belongs to it.
    Belongs,
    /// It opened it: whatever was there before is over.
    Opens,
    /// It is about none.
    Apart,
}

impl Memory {
    /// Passes an event through the checks that do not look at rows, and remembers it.
    pub(crate) fn admit(&mut self, event: &Event<'_>, sources: &mut Sources) -> Result<Admission, Reason> {
        let event_type = event.body.event_type();
        match event.writer_seq {
            Some(number) => self.count(sources.source(&event.source), number)?,
            None => self.ids.remember(&event.id)?,
        }
        self.terms.raise(event_type.domain(), event.term)?;
        if event_type.domain() == Domain::Projector {
            return Ok(Admission::Apart);
        }
        let opens_anew = event_type == decklog_schemas::EventType::ReleaseTracked;
        self.incarnation.admit(event.release_uid.as_deref(), opens_anew)
    }

    /// The live incarnation is deleted.
    pub(crate) fn delete(&mut self) {
        self.incarnation.end(Status::Deleted);
    }

    /// The uid of the live incarnation, if it is known.
    pub(crate) fn uid(&self) -> Option<&str> {
        match &self.incarnation.status {
            Status::Live(uid) => uid.as_deref(),
            Status::NeverSeen | Status::Deleted => None,
        }
    }

    pub(crate) fn is_live(&self) -> bool {
        matches!(self.incarnation.status, Status::Live(_))
    }

    /// Whether the incarnation with this uid was live once, and is not any more.
    pub(crate) fn has_ended(&self, uid: &str) -> bool {
        self.incarnation.is_gone(uid)
    }

    pub(crate) fn save(&self) -> SavedMemory {
        SavedMemory {
            writers: self.writers.clone(),
            ids: self.ids.oldest_first.iter().cloned().collect(),
            terms: self.terms.clone(),
            incarnation: SavedIncarnation {
                status: self.incarnation.status.clone(),
                gone: self.incarnation.gone.rows().iter().map(|Id(uid)| uid.clone()).collect(),
            },
        }
    }

    /// Puts back what was saved.
    pub(crate) fn restore(mut saved: SavedMemory, sources: &mut Sources) -> Self {
        for writer in &mut saved.writers {
            writer.source = sources.known(&writer.source);
        }
        let mut ids = Ids::default();
        for id in saved.ids {
            ids.push(id);
        }
        let SavedIncarnation { status, gone } = saved.incarnation;
        let incarnation = Incarnation { status, gone: gone.into_iter().map(Id).collect() };
        Self { writers: saved.writers, ids, terms: saved.terms, incarnation }
    }

    fn count(&mut self, source: &Source, number: WriterSeq) -> Result<(), Reason> {
        match self.writers.iter_mut().rfind(|writer| writer.source.is(source)) {
            Some(writer) if number <= writer.highest => return Err(Reason::Duplicate),
            Some(writer) => writer.highest = number,
            None => self.writers.push(Writer { source: source.clone(), highest: number }),
        }
        Ok(())
    }
}

impl Ids {
    fn remember(&mut self, id: &str) -> Result<(), Reason> {
        if self.at(id).is_some() {
            return Err(Reason::Duplicate);
        }
        if self.oldest_first.len() == ID_LIMIT
            && let Some(at) = self.oldest_first.pop_front().and_then(|oldest| self.at(&oldest))
        {
            self.known.remove(at);
        }
        self.push(id.into());
        Ok(())
    }

    fn push(&mut self, id: Box<str>) {
        self.known.insert(Id(id.clone()));
        self.oldest_first.push_back(id);
    }

    fn at(&self, id: &str) -> Option<usize> {
        self.known.find(hash(&[id]), |known| *known.0 == *id)
    }
}

impl Terms {
    fn raise(&mut self, domain: Domain, term: Option<u64>) -> Result<(), Reason> {
        if term.is_none() {
            return Ok(());
        }
        let highest = &mut self.0[domain as usize];
        if term < *highest {
            return Err(Reason::StaleTerm);
        }
        *highest = (*highest).max(term);
        Ok(())
    }
}

impl Incarnation {
    fn admit(&mut self, uid: Option<&str>, opens_anew: bool) -> Result<Admission, Reason> {
        if uid.is_some_and(|uid| self.is_gone(uid)) {
            return Err(Reason::StaleIncarnation);
        }
        match (&mut self.status, uid) {
            (Status::Live(_), None) => Ok(Admission::Belongs),
            (Status::Live(Some(live)), Some(uid)) if **live == *uid => Ok(Admission::Belongs),
            (Status::Live(live @ None), Some(uid)) => {
                *live = Some(uid.into());
                Ok(Admission::Belongs)
            }
            (Status::Live(Some(_)), Some(uid)) if opens_anew => {
                self.end(Status::Live(Some(uid.into())));
                Ok(Admission::Opens)
            }
            (Status::Live(Some(_)), Some(_)) | (Status::Deleted, None) => Err(Reason::StaleIncarnation),
            (Status::NeverSeen, uid) | (Status::Deleted, uid @ Some(_)) => {
                self.status = Status::Live(uid.map(Box::from));
                Ok(Admission::Opens)
            }
        }
    }

    /// Ends the live incarnation; its uid is gone for good.
    fn end(&mut self, then: Status) {
        if let Status::Live(Some(uid)) = std::mem::replace(&mut self.status, then) {
            self.gone.insert(Id(uid));
        }
    }

    fn is_gone(&self, uid: &str) -> bool {
        self.gone.find(hash(&[uid]), |gone| *gone.0 == *uid).is_some()
    }
}

impl Keyed for Id {
    fn key_hash(&self) -> u64 {
        hash(&[&self.0])
    }
}
