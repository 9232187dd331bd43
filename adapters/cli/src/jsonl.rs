//! A file of CloudEvents, one a line, as a log: the line number is the sequence, the event's time the recorded time.

use std::path::Path;

use anyhow::Error;
use decklog_engine::Records;
use decklog_schemas::{Record, Sequence};

use crate::emit::BYTE_ORDER_MARK;
use crate::exit::Failure;
use crate::output;

/// What becomes of a line that is no event of any release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BadLines {
    /// It is reported with its number, and left out.
    Reported,
    /// It is a record without a subject, recorded with the one before it.
    Taken,
}

/// Reads the file. A line that is no event of any release is reported with its number, and the others are taken.
pub(crate) fn read(path: &Path) -> Result<Records, Error> {
    read_lines(path, BadLines::Reported)
}

/// Reads the file, with the lines that are no events.
pub(crate) fn read_all(path: &Path) -> Result<Records, Error> {
    read_lines(path, BadLines::Taken)
}

fn read_lines(path: &Path, bad: BadLines) -> Result<Records, Error> {
    let bytes =
        std::fs::read(path).map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))?;
    let lines = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&bytes).split(|byte| *byte == b'\n');
    let mut records = Records::default();
    let mut recorded = jiff::Timestamp::MIN;
    for (line, number) in lines.zip(1_u64..) {
        let Some(sequence) = Sequence::new(number).filter(|_| !line.trim_ascii().is_empty()) else { continue };
        match Record::of_event(sequence, line) {
            Ok(mut record) => {
                // A log's clock never goes back; an event whose writer's clock does stands where its line stands.
                recorded = record.recorded.max(recorded);
                record.recorded = recorded;
                records.push(&record);
            }
            Err(_) if bad == BadLines::Taken => records.push(&Record {
                sequence,
                recorded: recorded.max(jiff::Timestamp::UNIX_EPOCH),
                subject: "".into(),
                bytes: line.into(),
            }),
            Err(error) => output::complain(&format!("warning: {}:{number}: left out: {error}", path.display())),
        }
    }
    Ok(records)
}
