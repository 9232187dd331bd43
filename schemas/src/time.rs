//! Times as Kubernetes writes them: RFC 3339 in, whole seconds of UTC out.

use std::borrow::Cow;
use std::fmt;

use jiff::SignedDuration;
use jiff::civil::{Date, DateTime, Time as Clock, date};
use jiff::tz::Offset;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::text::Text;

/// A moment in whole seconds since 1970-01-01T00:00:00Z; fractions are cut towards the past.
///
/// Reads RFC 3339 as the API server takes it: upper-case `T` and `Z`, a zone, an optional fraction, no leap second.
/// Prints `2026-03-02T10:00:05Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seconds(i64);

/// The text is not a time as RFC 3339 and the API server have it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an RFC 3339 time such as 2026-03-02T10:00:05Z")]
pub struct BadTime {
    text: String,
}

const EPOCH: DateTime = date(1970, 1, 1).at(0, 0, 0, 0);

// === impl Seconds ===

impl Seconds {
    /// The moment as seconds since the epoch.
    #[must_use]
    pub fn get(self) -> i64 {
        self.0
    }

    /// The whole second that a timestamp lies in.
    #[must_use]
    pub fn of(timestamp: jiff::Timestamp) -> Self {
        Self(timestamp.as_nanosecond().div_euclid(1_000_000_000) as i64)
    }

    /// Reads an RFC 3339 time.
    ///
    /// # Errors
    /// The text has another shape, or names a moment that no calendar has.
    pub fn parse(text: &str) -> Result<Self, BadTime> {
        parse(text.as_bytes()).map(|moment| Self(moment.second)).ok_or_else(|| BadTime { text: shorten(text) })
    }

    /// Reads an RFC 3339 time with its fraction, to the nanosecond.
    ///
    /// # Errors
    /// As [`Seconds::parse`].
    pub fn parse_timestamp(text: &str) -> Result<jiff::Timestamp, BadTime> {
        parse(text.as_bytes())
            .and_then(|moment| {
                // The last two days of the year 9999 are more than jiff's timestamps have.
                let second = moment.second.min(jiff::Timestamp::MAX.as_second());
                jiff::Timestamp::new(second, moment.nanosecond as i32).ok()
            })
            .ok_or_else(|| BadTime { text: shorten(text) })
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match EPOCH.checked_add(SignedDuration::from_secs(self.0)) {
            Ok(utc) => write!(f, "{utc}Z"),
            Err(_) => self.0.fmt(f),
        }
    }
}

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&Text::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl JsonSchema for Seconds {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        // Few validators look at formats, and RFC 3339 has more shapes than are read here.
        json_schema!({
            "type": "string",
            "format": "date-time",
            "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[-+][0-9]{2}:[0-9]{2})$",
        })
    }
}

const YEAR_0: jiff::Timestamp = jiff::Timestamp::constant(-62_167_219_200, 0);

/// How many bytes a timestamp has at the most.
pub(crate) const RFC3339_BYTES: usize = 30;

/// The timestamp as it prints, in a buffer instead of an allocation of its own. A time before the year 0 has no
/// RFC 3339 form, and counts as its beginning.
#[inline]
pub(crate) fn rfc3339(timestamp: jiff::Timestamp, buffer: &mut [u8; RFC3339_BYTES]) -> &[u8] {
    let time = Offset::UTC.to_datetime(timestamp.max(YEAR_0));
    *buffer = *b"0000-00-00T00:00:00.000000000Z";
    let century = time.year() / 100;
    let parts = [time.month(), time.day(), time.hour(), time.minute(), time.second()];
    buffer[..2].copy_from_slice(&two_digits(century as i8));
    buffer[2..4].copy_from_slice(&two_digits((time.year() - 100 * century) as i8));
    for (place, part) in (5..).step_by(3).zip(parts) {
        buffer[place..place + 2].copy_from_slice(&two_digits(part));
    }
    let mut fraction = time.subsec_nanosecond().unsigned_abs();
    if fraction == 0 {
        buffer[19] = b'Z';
        return &buffer[..20];
    }
    let mut end = 29;
    while fraction.is_multiple_of(1_000) {
        fraction /= 1_000;
        end -= 3;
    }
    while fraction.is_multiple_of(10) {
        fraction /= 10;
        end -= 1;
    }
    buffer[end] = b'Z';
    for digit in buffer[20..end].iter_mut().rev() {
        *digit = b'0' + (fraction % 10) as u8;
        fraction /= 10;
    }
    &buffer[..=end]
}

fn two_digits(number: i8) -> [u8; 2] {
    let number = number.unsigned_abs();
    [b'0' + number / 10, b'0' + number % 10]
}

struct Moment {
    second: i64,
    nanosecond: u32,
}

/// `YYYY-MM-DDThh:mm:ss[.fraction](Z|±hh:mm)`, nothing before and nothing after.
fn parse(text: &[u8]) -> Option<Moment> {
    let (head, rest) = text.split_at_checked(19)?;
    let separators = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if separators.iter().any(|&(at, byte)| head[at] != byte) {
        return None;
    }
    let year = i16::try_from(digits(&head[..4])?).ok()?;
    let date = Date::new(year, part(head, 5)?, part(head, 8)?).ok()?;
    let clock = Clock::new(part(head, 11)?, part(head, 14)?, part(head, 17)?, 0).ok()?;
    let (nanosecond, zone) = fraction(rest)?;
    let local = date.to_datetime(clock).duration_since(EPOCH).as_secs();
    let second = local - offset(zone)?;
    // Years before 0 and after 9999 have no RFC 3339 form, and the zone can lead there.
    (-62_167_219_200..=253_402_300_799).contains(&second).then_some(Moment { second, nanosecond })
}

fn part(text: &[u8], at: usize) -> Option<i8> {
    i8::try_from(digits(&text[at..at + 2])?).ok()
}

fn digits(text: &[u8]) -> Option<u32> {
    text.iter().try_fold(0_u32, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + u32::from(byte - b'0')))
}

/// The fraction in nanoseconds (what is finer is cut) and what follows it.
fn fraction(text: &[u8]) -> Option<(u32, &[u8])> {
    let Some(text) = text.strip_prefix(b".") else {
        return Some((0, text));
    };
    let length = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if length == 0 {
        return None;
    }
    let (fraction, rest) = text.split_at(length);
    let nanos = (0..9).fold(0, |sum, at| sum * 10 + fraction.get(at).map_or(0, |byte| u32::from(byte - b'0')));
    Some((nanos, rest))
}

/// Seconds east of UTC.
fn offset(zone: &[u8]) -> Option<i64> {
    match zone {
        b"Z" => Some(0),
        [sign @ (b'+' | b'-'), rest @ ..] if rest.len() == 5 && rest[2] == b':' => {
            let (hours, minutes) = (digits(&rest[..2])?, digits(&rest[3..])?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            let seconds = i64::from(hours * 3600 + minutes * 60);
            Some(if *sign == b'+' { seconds } else { -seconds })
        }
        _ => None,
    }
}

fn shorten(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: Option<&str>) {
        let printed = Seconds::parse(text).ok().map(|time| time.to_string());
        assert_eq!(printed.as_deref(), expect, "{text}");
    }

    #[test]
    fn fractions_are_cut_and_zones_resolved() {
        check("2026-03-02T10:00:05Z", Some("2026-03-02T10:00:05Z"));
        check("2026-03-02T11:00:05.999999999+01:00", Some("2026-03-02T10:00:05Z"));
        check("2026-03-02T05:00:07.5-05:00", Some("2026-03-02T10:00:07Z"));
        check("2026-03-01T00:30:00+01:00", Some("2026-02-28T23:30:00Z"));
        check("2024-02-29T23:59:59Z", Some("2024-02-29T23:59:59Z"));
        check("9999-12-31T23:59:59Z", Some("9999-12-31T23:59:59Z"));
        check("0000-01-01T00:00:00Z", Some("0000-01-01T00:00:00Z"));
        check("1969-12-31T23:59:59.9Z", Some("1969-12-31T23:59:59Z"));
    }

    #[test]
    fn timestamps_are_written_as_they_print() {
        let seconds = [0, -1, 1_772_445_605, 951_782_399, -62_167_219_200, 253_402_207_200];
        for second in seconds {
            for nanosecond in [0, 1, 500_000_000, 123_000_000, 10_000, 999_999_999] {
                let timestamp = jiff::Timestamp::new(second, nanosecond).unwrap();
                assert_eq!(str::from_utf8(rfc3339(timestamp, &mut [0; RFC3339_BYTES])).unwrap(), timestamp.to_string());
            }
        }
    }

    #[test]
    fn other_shapes_are_refused() {
        for text in [
            "",
            "2026-03-02",
            "2026-03-02T10:00:05",
            "2026-03-02 10:00:05Z",
            "2026-03-02t10:00:05Z",
            "2026-03-02T10:00:05z",
            "2026-03-02T10:00:60Z",
            "2026-02-29T10:00:05Z",
            "2026-13-01T10:00:05Z",
            "2026-03-02T24:00:00Z",
            "2026-03-02T10:00:05.Z",
            "2026-03-02T10:00:05,5Z",
            "2026-03-02T10:00:05+0100",
            "2026-03-02T10:00:05+24:00",
            "2026-03-02T10:00:05Z ",
            "0000-01-01T00:00:00+01:00",
            "+026-03-02T10:00:05Z",
        ] {
            check(text, None);
        }
    }
}
