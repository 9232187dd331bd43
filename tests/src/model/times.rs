//! Times of RFC 3339 and durations as Go reads and prints them, step by step.

use jiff::{SignedDuration, civil::DateTime};
use serde_json::Value;

/// A moment in UTC; its fraction of a second is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(DateTime);

/// Nanoseconds in each unit of a Go duration. Micro has two spellings beside `us`: U+00B5 and U+03BC.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// The size of the smallest `i64`.
const LARGEST: u64 = 1 << 63;

/// What is still to be read of a text.
struct Rest<'a>(&'a str);

/// Reads a time; `None` if it is none.
pub(super) fn moment(text: &str) -> Option<Moment> {
    let mut rest = Rest(text);
    let year = rest.digits(4)?;
    rest.one_of("-")?;
    let month = rest.digits(2)?;
    rest.one_of("-")?;
    let day = rest.digits(2)?;
    rest.one_of("T")?;
    let hour = rest.digits(2)?;
    rest.one_of(":")?;
    let minute = rest.digits(2)?;
    rest.one_of(":")?;
    let second = rest.digits(2)?;
    if rest.one_of(".").is_some() && rest.all_digits().is_empty() {
        return None;
    }
    let offset = rest.offset()?;
    let small = |number: u64| i8::try_from(number).ok();
    let local = DateTime::new(
        i16::try_from(year).ok()?,
        small(month)?,
        small(day)?,
        small(hour)?,
        small(minute)?,
        small(second)?,
        0,
    );
    local.ok()?.checked_sub(SignedDuration::from_secs(offset)).ok().map(Moment)
}

/// Reads a duration in nanoseconds; `None` where Go refuses it.
pub(super) fn duration(text: &str) -> Option<i64> {
    let mut rest = Rest(text);
    let sign = rest.one_of("+-");
    if rest.0 == "0" {
        return Some(0);
    }
    if rest.0.is_empty() {
        return None;
    }
    let mut total: u64 = 0;
    while !rest.0.is_empty() {
        total = total.checked_add(rest.part_of_a_duration()?).filter(|sum| *sum <= LARGEST)?;
    }
    match sign {
        Some('-') => 0_i64.checked_sub_unsigned(total),
        _ => i64::try_from(total).ok(),
    }
}

/// Prints a duration as Go's `Duration.String` does.
pub(super) fn go_duration(nanoseconds: i64) -> String {
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let size = nanoseconds.unsigned_abs();
    let seconds = size / 1_000_000_000;
    let unsigned = match size {
        0 => "0s".to_owned(),
        1..1_000 => format!("{size}ns"),
        1_000..1_000_000 => decimal(size, 1_000) + "µs",
        1_000_000..1_000_000_000 => decimal(size, 1_000_000) + "ms",
        _ => {
            let below_a_minute = decimal(size % 60_000_000_000, 1_000_000_000);
            match (seconds / 3_600, seconds / 60 % 60) {
                (0, 0) => format!("{below_a_minute}s"),
                (0, minutes) => format!("{minutes}m{below_a_minute}s"),
                (hours, minutes) => format!("{hours}h{minutes}m{below_a_minute}s"),
            }
        }
    };
    format!("{sign}{unsigned}")
}

/// `size / unit` as a decimal number without zeros at its end; `unit` is a power of ten.
fn decimal(size: u64, unit: u64) -> String {
    let digits = unit.ilog10() as usize;
    let fraction = format!("{:0digits$}", size % unit);
    match fraction.trim_end_matches('0') {
        "" => format!("{}", size / unit),
        fraction => format!("{}.{fraction}", size / unit),
    }
}

// === impl Moment ===

impl From<Moment> for Value {
    fn from(Moment(utc): Moment) -> Self {
        format!("{utc}Z").into()
    }
}

// === impl Rest ===

impl<'a> Rest<'a> {
    /// Takes the first character if it is one of these.
    fn one_of(&mut self, characters: &str) -> Option<char> {
        let first = self.0.chars().next().filter(|first| characters.contains(*first))?;
        self.0 = &self.0[first.len_utf8()..];
        Some(first)
    }

    /// Takes exactly `count` digits; takes nothing if they are fewer.
    fn digits(&mut self, count: usize) -> Option<u64> {
        let digits = self.0.get(..count).filter(|text| text.bytes().all(|b| b.is_ascii_digit()))?;
        self.0 = &self.0[count..];
        digits.parse().ok()
    }

    /// Takes the digits that stand first, perhaps none.
    fn all_digits(&mut self) -> &'a str {
        let end = self.0.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.0.len());
        let (digits, rest) = self.0.split_at(end);
        self.0 = rest;
        digits
    }

    /// Takes the zone, which must be the rest of the text; its offset in seconds.
    fn offset(&mut self) -> Option<i64> {
        let seconds = match self.one_of("Z+-")? {
            'Z' => 0,
            sign => {
                let hours = self.digits(2).filter(|hours| *hours <= 23)?;
                self.one_of(":")?;
                let minutes = self.digits(2).filter(|minutes| *minutes <= 59)?;
                let size = i64::try_from(hours * 3_600 + minutes * 60).ok()?;
                if sign == '-' { -size } else { size }
            }
        };
        self.0.is_empty().then_some(seconds)
    }

    /// Takes one number with its unit, such as `1.5h`; nanoseconds.
    fn part_of_a_duration(&mut self) -> Option<u64> {
        let whole = self.all_digits();
        let fraction = self.one_of(".").map_or("", |_| self.all_digits());
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let end = self.0.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(self.0.len());
        let (name, rest) = self.0.split_at(end);
        self.0 = rest;
        let (_, unit) = UNITS.into_iter().find(|(known, _)| *known == name)?;
        let whole = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()? };
        let whole = whole.checked_mul(unit).filter(|size| *size <= LARGEST)?;
        whole.checked_add(part_of_a_unit(fraction, unit)).filter(|size| *size <= LARGEST)
    }
}

/// `0.fraction` of a unit in whole nanoseconds, computed in the floating point of Go's parser.
fn part_of_a_unit(fraction: &str, unit: u64) -> u64 {
    let mut number: u64 = 0;
    let mut scale = 1.0;
    for digit in fraction.bytes().map(|digit| u64::from(digit - b'0')) {
        // Go leaves off at the first digit that no longer fits.
        match number.checked_mul(10).and_then(|more| more.checked_add(digit)) {
            Some(more) if number <= (LARGEST - 1) / 10 && more <= LARGEST => number = more,
            _ => break,
        }
        scale *= 10.0;
    }
    (number as f64 * (unit as f64 / scale)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::go::{BAD_DURATIONS, BAD_TIMES, GOOD_DURATIONS, GOOD_TIMES};

    #[test]
    fn times_are_read_as_go_reads_them() {
        for &(text, expected) in GOOD_TIMES {
            assert_eq!(moment(text).map(Value::from), Some(expected.into()), "{text:?}");
        }
        for text in BAD_TIMES {
            assert_eq!(moment(text), None, "{text:?}");
        }
    }

    #[test]
    fn durations_are_read_and_printed_as_go_does_it() {
        for &(text, expected) in GOOD_DURATIONS {
            assert_eq!(duration(text).map(go_duration).as_deref(), Some(expected), "{text:?}");
        }
        for text in BAD_DURATIONS {
            assert_eq!(duration(text), None, "{text:?}");
        }
    }
}
