//! Bodies of events: which content types there are, and where in a body each event lies.

use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use decklog_schemas::split_msgpack;
use serde_json::value::RawValue;

use crate::failure::Failure;

/// How a body holds its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// One JSON event: the body, to the byte.
    Json,
    /// A JSON list of events.
    Batch,
    /// One MessagePack event, or several, one behind the other.
    MessagePack,
    /// One JSON event a line.
    Lines,
}

/// The most events that one request may have: as many answers have to fit into memory.
const MAX_EVENTS: usize = 16_384;

/// Where counting ends.
const ONE_TOO_MANY: usize = MAX_EVENTS + 1;

const ALL: [Content; 4] = [Content::Json, Content::Batch, Content::MessagePack, Content::Lines];

/// What many clients call an event in JSON.
const ANY_JSON: &str = "application/json";

impl Content {
    /// What the headers say that the body is.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, Failure> {
        if headers.contains_key("ce-specversion") {
            return Err(unsupported("events in binary mode, in ce- headers, are not taken")
                .hint("send them in structured mode, as application/cloudevents+json"));
        }
        if let Some(encoding) = headers.get(CONTENT_ENCODING).filter(|it| *it != "identity") {
            return Err(
                unsupported(format!("the content encoding {encoding:?} is not taken")).hint("send the body as it is")
            );
        }
        let Some(named) = headers.get(CONTENT_TYPE) else {
            return Err(unsupported("the request has no content type").hint(accepted()));
        };
        Self::named(named.to_str().unwrap_or_default())
            .ok_or_else(|| unsupported(format!("the content type {named:?} is not taken")).hint(accepted()))
    }

    /// The content type, as it is sent.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Json => "application/cloudevents+json",
            Self::Batch => "application/cloudevents-batch+json",
            Self::MessagePack => "application/cloudevents+msgpack",
            Self::Lines => "application/x-ndjson",
        }
    }

    /// Parameters such as a charset say nothing: JSON is UTF-8.
    fn named(content_type: &str) -> Option<Self> {
        let name = content_type.split(';').next()?.trim();
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        ALL.into_iter().find(|content| is(content.name())).or_else(|| is(ANY_JSON).then_some(Self::Json))
    }

    /// The events of a body, byte for byte. What is wrong with one of them is for others to find.
    pub(crate) fn split(self, body: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
        let events = match self {
            Self::Json => vec![json(body)?],
            Self::Batch => batch(body)?,
            Self::MessagePack => maps(body)?,
            Self::Lines => lines(body),
        };
        if events.len() > MAX_EVENTS {
            let error = format!("the body has more than {MAX_EVENTS} events");
            return Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, error).hint("send them in several requests"));
        }
        Ok(events.into_iter().map(<[u8]>::to_vec).collect())
    }
}

fn unsupported(error: impl Into<String>) -> Failure {
    Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, error)
}

fn accepted() -> String {
    format!("send one of {}, {ANY_JSON}", ALL.map(Content::name).join(", "))
}

fn json(body: &[u8]) -> Result<&[u8], Failure> {
    let value: &RawValue = read_json(body)?;
    match value.get().as_bytes() {
        [b'{', ..] => Ok(body),
        [b'[', ..] => Err(Failure::bad_request("the body is a list, not one event")
            .hint("send a list as application/cloudevents-batch+json")),
        _ => Err(Failure::bad_request("the body is not a JSON object")),
    }
}

fn batch(body: &[u8]) -> Result<Vec<&[u8]>, Failure> {
    let events: Vec<&RawValue> = read_json(body)?;
    Ok(events.iter().map(|event| event.get().as_bytes()).collect())
}

fn read_json<'a, T: serde::Deserialize<'a>>(body: &'a [u8]) -> Result<T, Failure> {
    serde_json::from_slice(body).map_err(|error| Failure::bad_request(format!("the body cannot be read: {error}")))
}

/// Every line that is not blank. Its end is a line feed, or the two characters of Windows.
fn lines(body: &[u8]) -> Vec<&[u8]> {
    let lines = body.split(|byte| *byte == b'\n');
    let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    lines.filter(|line| !line.trim_ascii().is_empty()).take(ONE_TOO_MANY).collect()
}

fn maps(body: &[u8]) -> Result<Vec<&[u8]>, Failure> {
    let (mut events, mut rest) = (Vec::new(), body);
    while events.is_empty() || !rest.is_empty() && events.len() < ONE_TOO_MANY {
        let at = body.len() - rest.len();
        let bad = |problem: &str| Failure::bad_request(format!("the body cannot be read at byte {at}: {problem}"));
        if !matches!(rest.first(), Some(0x80..=0x8f | 0xde | 0xdf)) {
            return Err(bad("no MessagePack map begins here"));
        }
        let end = split_msgpack(rest).ok_or_else(|| bad("the MessagePack map does not end"))?;
        let (event, behind) = rest.split_at(end);
        events.push(event);
        rest = behind;
    }
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(content: Content, body: &[u8], expect: &[&[u8]]) {
        let events = content.split(body).expect("the body can be read");
        assert_eq!(events, expect);
    }

    #[track_caller]
    fn refuse(content: Content, body: &[u8]) {
        let events = content.split(body);
        assert!(events.is_err(), "{content:?}: {events:?}");
    }

    #[test]
    fn one_json_event_is_the_whole_body() {
        check(Content::Json, b" {\"a\": 1.0}\r\n", &[b" {\"a\": 1.0}\r\n"]);
        for body in [&b""[..], b" ", b"{", b"{} {}", b"[{}]", b"1", b"null", b"{\"a\":\"\xff\"}"] {
            refuse(Content::Json, body);
        }
    }

    #[test]
    fn a_batch_keeps_each_event_as_it_is_written() {
        let body = b"[ {\"a\" : 1e0,\n\"a\":2} ,{\"b\":\"\\u0041\"}, 3 ]";
        let first = b"{\"a\" : 1e0,\n\"a\":2}";
        check(Content::Batch, body, &[first, b"{\"b\":\"\\u0041\"}", b"3"]);
        check(Content::Batch, b"[]", &[]);
        for body in [&b""[..], b"{}", b"[{}", b"[{},]", b"[{}] x"] {
            refuse(Content::Batch, body);
        }
    }

    #[test]
    fn lines_are_kept_and_blank_ones_are_none() {
        check(Content::Lines, b"", &[]);
        check(Content::Lines, b"{}\n\n \t\r\n {} \r\nx", &[b"{}", b" {} ", b"x"]);
        refuse(Content::Lines, &b"{}\n".repeat(ONE_TOO_MANY));
    }

    #[test]
    fn maps_stand_one_behind_the_other() {
        let one = b"\x82\xa1a\xc0\xa1b\x92\x81\xa1c\xcd\x01\x02\xc7\x01\x05x";
        check(Content::MessagePack, one, &[one]);
        check(Content::MessagePack, &one.repeat(2), &[one, one]);
        check(Content::MessagePack, b"\x80\xde\0\0\xdf\0\0\0\0", &[b"\x80", b"\xde\0\0", b"\xdf\0\0\0\0"]);
        refuse(Content::MessagePack, &[0x80; ONE_TOO_MANY]);
        for cut in 0..one.len() {
            refuse(Content::MessagePack, &one[..cut]);
        }
        for body in [&b"\x80\xc0"[..], b"\x81\xa1a\xc1", b"\xdf\xff\xff\xff\xff", b"\x81\xa1a\xdb\xff\xff\xff\xff"] {
            refuse(Content::MessagePack, body);
        }
    }

    /// Every scalar and head of MessagePack, with what it is made of, as one value of a map.
    #[test]
    fn every_marker_has_its_size() {
        let values: [&[u8]; 26] = [
            b"\x01",
            b"\xff",
            b"\xc0",
            b"\xc2",
            b"\xc3",
            b"\xcc\0",
            b"\xcd\0\0",
            b"\xce\0\0\0\0",
            b"\xcf\0\0\0\0\0\0\0\0",
            b"\xd0\0",
            b"\xd1\0\0",
            b"\xd2\0\0\0\0",
            b"\xd3\0\0\0\0\0\0\0\0",
            b"\xca\0\0\0\0",
            b"\xcb\0\0\0\0\0\0\0\0",
            b"\xa1x",
            b"\xd9\x01x",
            b"\xda\0\x01x",
            b"\xdb\0\0\0\x01x",
            b"\xc4\x01x",
            b"\xc5\0\x01x",
            b"\xc6\0\0\0\x01x",
            b"\xd4\x01x",
            b"\xc8\0\x01\x05x",
            b"\xc9\0\0\0\x01\x05x",
            b"\xdc\0\x01\xc0",
        ];
        for value in values {
            let map = [b"\x81\xa1a", value].concat();
            check(Content::MessagePack, &[&map[..], b"\x80"].concat(), &[&map, b"\x80"]);
        }
    }
}
