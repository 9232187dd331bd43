//! Records asked for one by one: how a reader passes a message that its client cannot take.
//!
//! A server stores subjects and headers whatever bytes they are. The client ends the connection where they are not UTF-8
//! or no headers at all, and so no consumer ever gets beyond such a message. In answers of the API they are JSON, in which
//! a server writes U+FFFD for what is not UTF-8: such a subject is none that an event belongs under.

use decklog_engine::log::{READ_BYTES, Scope};
use decklog_schemas::{Record, Sequence};
use serde_json::json;

use crate::connect::Connection;
use crate::cursor::{Broken, Chunk, filter_of};
use crate::info::{Missing, StreamInfo, classify};
use crate::stored::{Stored, stored};

/// How many records are asked for before a consumer is tried again.
const ALONE: usize = 1_000;

/// Reads some records from a place on, up to the tail that `info` tells of or beyond.
pub(crate) async fn read(
    connection: &Connection,
    stream: &str,
    info: &StreamInfo,
    from: Sequence,
    scope: &Scope,
) -> Result<Chunk, Broken> {
    let filter = Some(filter_of(scope)).filter(|filter| !filter.is_empty()).unwrap_or_else(|| ">".to_owned());
    let (mut chunk, mut next) = (Chunk::default(), from);
    while !chunk.is_end && chunk.records.len() < ALONE && chunk.records.size() < READ_BYTES {
        let asked = json!({ "seq": next.get(), "next_by_subj": filter });
        let found = stored(connection, stream, &asked).await.map_err(Missing::Api)?;
        chunk.is_end = found.is_none();
        let place = match &found {
            Some(message) => Sequence::new(message.seq).ok_or_else(|| unreadable("a message has no sequence"))?,
            None => Sequence::after(info.tail()).max(next),
        };
        if *scope == Scope::All && place > next {
            chunk.gaps.extend(classify(connection, stream, &info.id(), next, place).await?);
        }
        next = place;
        if let Some(message) = found {
            chunk.records.push(&record(place, &message)?);
            next = place.next();
        }
    }
    chunk.next = Some(next);
    Ok(chunk)
}

fn record(sequence: Sequence, message: &Stored) -> Result<Record<'static>, Broken> {
    let bytes = message.bytes().map_err(|error| unreadable(&error.to_string()))?;
    let recorded = message.time.parse().map_err(|_| unreadable("a message has no time"))?;
    Ok(Record { sequence, recorded, subject: message.subject.clone().into(), bytes: bytes.into() })
}

fn unreadable(problem: &str) -> Broken {
    Broken::Consumer(problem.to_owned())
}
