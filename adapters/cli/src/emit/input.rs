//! The input of `emit`: JSON lines, or MessagePack maps one behind the other, in batches as they come in.

use std::io::{BufRead as _, BufReader, Read};

use anyhow::{Context as _, Error};
use decklog_schemas::{MAX_EVENT_BYTES, split_msgpack};
use tokio::sync::mpsc::Sender;

/// Where events come from.
pub(crate) struct Input {
    reader: BufReader<Box<dyn Read + Send>>,
    is_msgpack: bool,
}

/// Some events, with the line (or the number) of each.
pub(crate) struct Batch {
    pub(crate) first: u64,
    pub(crate) events: Vec<Vec<u8>>,
    pub(crate) places: Vec<u64>,
}

/// How many events are sent at once at the most.
const BATCH_EVENTS: usize = 1_000;

/// How many bytes are sent at once, before the event that exceeds them.
const BATCH_BYTES: usize = 4 * 1024 * 1024;

impl Input {
    /// Events from a file or a stream, told apart by the first byte.
    pub(crate) fn of(reader: Box<dyn Read + Send>) -> Self {
        let mut reader = BufReader::with_capacity(256 * 1024, reader);
        // An unreadable input is reported where it is read in earnest.
        let first = reader.fill_buf().ok().and_then(|bytes| bytes.first().copied());
        Self { reader, is_msgpack: matches!(first, Some(0x80..=0x8f | 0xde | 0xdf)) }
    }

    /// One event.
    pub(crate) fn one(event: Vec<u8>) -> Self {
        Self { reader: BufReader::new(Box::new(std::io::Cursor::new(event))), is_msgpack: true }
    }

    /// What places count.
    pub(crate) fn unit(&self) -> &'static str {
        if self.is_msgpack { "event" } else { "line" }
    }

    /// Reads to the end. Whoever receives may have gone: then there is nothing to be read for.
    pub(crate) fn read_into(mut self, sender: &Sender<Batch>) -> Result<(), Error> {
        let (mut batch, mut size, mut place) = (Batch::empty(), 0, 0);
        loop {
            let event = if self.is_msgpack { self.map()? } else { self.line()? };
            let Some(event) = event else { break };
            place += 1;
            if event.trim_ascii().is_empty() {
                continue;
            }
            size += event.len();
            batch.push(place, event);
            // What is there already is sent together; nobody waits for what is not there yet.
            let is_full = batch.events.len() == BATCH_EVENTS || size >= BATCH_BYTES;
            if is_full || !self.has_more() {
                size = 0;
                if sender.blocking_send(std::mem::replace(&mut batch, Batch::empty())).is_err() {
                    return Ok(());
                }
            }
        }
        if !batch.events.is_empty() {
            // As above.
            let _ = sender.blocking_send(batch);
        }
        Ok(())
    }

    fn has_more(&self) -> bool {
        if self.is_msgpack { !self.reader.buffer().is_empty() } else { self.reader.buffer().contains(&b'\n') }
    }

    fn line(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let mut line = Vec::new();
        if self.reader.read_until(b'\n', &mut line).context("cannot read the input")? == 0 {
            return Ok(None);
        }
        if line.ends_with(b"\n") {
            line.pop();
        }
        if line.ends_with(b"\r") {
            line.pop();
        }
        Ok(Some(line))
    }

    /// The next map. What is no map is taken to the end, for it cannot be told where the next event begins.
    fn map(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let mut bytes = Vec::new();
        loop {
            let read = self.reader.fill_buf().context("cannot read the input")?;
            let (had, ended) = (bytes.len(), read.is_empty());
            bytes.extend_from_slice(read);
            if ended && bytes.is_empty() {
                return Ok(None);
            }
            match split_msgpack(&bytes) {
                Some(length) => {
                    self.reader.consume(length - had);
                    bytes.truncate(length);
                    return Ok(Some(bytes));
                }
                None if ended || bytes.len() > 2 * MAX_EVENT_BYTES => {
                    let rest = bytes.len() - had;
                    self.reader.consume(rest);
                    std::io::copy(&mut self.reader, &mut std::io::sink()).context("cannot read the input")?;
                    return Ok(Some(bytes));
                }
                None => {
                    let rest = bytes.len() - had;
                    self.reader.consume(rest);
                }
            }
        }
    }
}

impl Batch {
    fn empty() -> Self {
        Self { first: 0, events: Vec::new(), places: Vec::new() }
    }

    fn push(&mut self, place: u64, event: Vec<u8>) {
        if self.events.is_empty() {
            self.first = place;
        }
        self.places.push(place);
        self.events.push(event);
    }
}
