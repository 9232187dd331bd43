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

/// What some editors write before the first line.
pub(crate) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// How many events are sent at once at the most.
const BATCH_EVENTS: usize = 1_000;

/// How many bytes are sent at once, before the event that exceeds them.
const BATCH_BYTES: usize = 4 * 1024 * 1024;

impl Input {
    /// Events from a file or a stream, told apart by the first byte.
    pub(crate) fn of(reader: Box<dyn Read + Send>) -> Self {
        let mut reader = BufReader::with_capacity(256 * 1024, reader);
        if reader.fill_buf().is_ok_and(|bytes| bytes.starts_with(BYTE_ORDER_MARK)) {
            reader.consume(BYTE_ORDER_MARK.len());
        }
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
        if self.is_msgpack {
            split_msgpack(self.reader.buffer()).is_some()
        } else {
            self.reader.buffer().contains(&b'\n')
        }
    }

    /// The next line, without its end. Of one that is longer than any event only the beginning is kept.
    fn line(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let (mut line, mut is_there) = (Vec::new(), false);
        loop {
            let buffered = self.reader.fill_buf().context("cannot read the input")?;
            if buffered.is_empty() {
                break;
            }
            is_there = true;
            let end = buffered.iter().position(|byte| *byte == b'\n');
            let read = end.map_or(buffered.len(), |end| end + 1);
            let kept = end.unwrap_or(read).min((MAX_EVENT_BYTES + 1).saturating_sub(line.len()));
            line.extend_from_slice(&buffered[..kept]);
            self.reader.consume(read);
            if end.is_some() {
                break;
            }
        }
        if line.ends_with(b"\r") {
            line.pop();
        }
        Ok(is_there.then_some(line))
    }

    /// The next map, out of the buffer if it holds all of it.
    fn map(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let buffered = self.reader.fill_buf().context("cannot read the input")?;
        if buffered.is_empty() {
            return Ok(None);
        }
        match split_msgpack(buffered) {
            Some(length) => {
                let map = buffered[..length].to_vec();
                self.reader.consume(length);
                Ok(Some(map))
            }
            None => self.long_map().map(Some),
        }
    }

    /// A map that is longer than the buffer. What is no map is taken to the end: nobody knows where the next one begins.
    fn long_map(&mut self) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        loop {
            let had = bytes.len();
            let read = self.reader.fill_buf().context("cannot read the input")?;
            let has_ended = read.is_empty();
            bytes.extend_from_slice(read);
            if let Some(length) = split_msgpack(&bytes) {
                self.reader.consume(length - had);
                bytes.truncate(length);
                return Ok(bytes);
            }
            let read = bytes.len() - had;
            self.reader.consume(read);
            if has_ended || bytes.len() > 2 * MAX_EVENT_BYTES {
                std::io::copy(&mut self.reader, &mut std::io::sink()).context("cannot read the input")?;
                return Ok(bytes);
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
