//! Parcels: events in their order to bodies of requests, each event byte for byte as it is.

use decklog_schemas::answer::EmitAnswer;
use decklog_schemas::{Envelope, Malformed};

use crate::content::Content;

/// What to do with the next events.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parcel {
    /// Send them.
    Send {
        content: Content,
        body: Vec<u8>,
        /// How many there are.
        events: usize,
    },
    /// This one is no event: it cannot be told apart from others in a body, and this is the answer to it.
    Refused(EmitAnswer),
}

/// How many bytes of events go into one request; one event may have more.
const PARCEL_BYTES: usize = 4 * 1024 * 1024;

/// How many events go into one request: one answer waits for all of them.
const PARCEL_EVENTS: usize = 4_096;

/// The parcels of events, in their order.
pub(crate) fn parcels(mut events: &[Vec<u8>]) -> impl Iterator<Item = Parcel> {
    std::iter::from_fn(move || {
        let content = match content_of(events.first()?) {
            Ok(content) => content,
            Err(malformed) => {
                events = &events[1..];
                return Some(Parcel::Refused(refused(&malformed)));
            }
        };
        let (now, later) = events.split_at(fitting(events, content));
        events = later;
        Some(pack(now, content))
    })
}

/// How many of the events fit into one request with the first, whose content is given.
fn fitting(events: &[Vec<u8>], content: Content) -> usize {
    let mut bytes = 0;
    let fits = |event: &&Vec<u8>| {
        bytes += event.len() + 1;
        bytes <= PARCEL_BYTES && content != Content::Json && content_of(event) == Ok(content)
    };
    let most = events.len().min(PARCEL_EVENTS);
    events[..most].iter().take_while(fits).count().max(1)
}

fn pack(events: &[Vec<u8>], content: Content) -> Parcel {
    let mut body = Vec::with_capacity(events.iter().map(|event| event.len() + 1).sum());
    for event in events {
        body.extend_from_slice(event);
        if content == Content::Lines {
            body.push(b'\n');
        }
    }
    Parcel::Send { content, body, events: events.len() }
}

/// In what kind of body an event arrives as it is. JSON that has line ends of its own can only go alone.
fn content_of(event: &[u8]) -> Result<Content, Malformed> {
    Envelope::decode(event)?;
    let is_json = event.first().is_some_and(u8::is_ascii);
    let has_lines = event.contains(&b'\n') || event.last() == Some(&b'\r');
    Ok(match (is_json, has_lines) {
        (true, true) => Content::Json,
        (true, false) => Content::Lines,
        (false, _) => Content::MessagePack,
    })
}

/// What the server would answer.
fn refused(malformed: &Malformed) -> EmitAnswer {
    EmitAnswer { error: Some(malformed.to_string()), ..EmitAnswer::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packs the events, unpacks the bodies, and compares; `expect` has the number of events of each parcel.
    #[track_caller]
    fn check(events: &[&[u8]], expect: &[usize]) {
        let events: Vec<_> = events.iter().map(|event| event.to_vec()).collect();
        let (mut sizes, mut arrived) = (Vec::new(), Vec::new());
        for parcel in parcels(&events) {
            match parcel {
                Parcel::Send { content, body, events } => {
                    sizes.push(events);
                    arrived.extend(content.split(&body).expect("a parcel can be read"));
                }
                Parcel::Refused(answer) => {
                    sizes.push(0);
                    arrived.push(answer.error.unwrap_or_default().into_bytes());
                }
            }
        }
        assert_eq!(sizes, expect);
        let refused = |event: &Vec<u8>| Envelope::decode(event).err();
        let sent =
            events.iter().map(|event| refused(event).map_or_else(|| event.clone(), |why| why.to_string().into_bytes()));
        assert_eq!(arrived, sent.collect::<Vec<_>>());
    }

    #[test]
    fn neighbours_of_one_form_travel_together() {
        check(&[], &[]);
        check(&[b"{}", b" {}", b"{} "], &[3]);
        check(&[b"\x80", b"\x80", b"{}", b"\x80"], &[2, 1, 1]);
    }

    #[test]
    fn line_ends_of_an_event_are_kept() {
        check(&[b"{}", b"{\n}", b"{}\n", b"{}\r", b"{\r}", b"{}"], &[1, 1, 1, 1, 2]);
    }

    #[test]
    fn what_is_no_event_stays_here() {
        let large = vec![b' '; decklog_schemas::MAX_EVENT_BYTES + 1];
        check(&[b"", b"{}", b"x", b"{", b"\x80\x80", &large, b"{}"], &[0, 1, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn parcels_have_limits() {
        let many: Vec<&[u8]> = vec![b"{}"; PARCEL_EVENTS * 2 + 1];
        check(&many, &[PARCEL_EVENTS, PARCEL_EVENTS, 1]);
        let large = format!("{{\"a\":\"{}\"}}", "x".repeat(1_000_000));
        check(&[large.as_bytes(); 9], &[4, 4, 1]);
    }
}
