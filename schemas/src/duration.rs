//! Durations as Go reads and prints them, which is how Kubernetes objects carry them.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::text::Text;

/// A duration in nanoseconds, at most about 292 years either way.
///
/// Reads what Go's `time.ParseDuration` reads (`300s`, `1.5h`, `1h15m`, `-2ms`, `0`) and prints what
/// its `Duration.String` prints (`5m0s`): the API server compares the text, so `300s` and `5m0s` differ there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration(i64);

/// The text is not a duration as Go has it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a duration such as 90s, 5m0s or 1h30m")]
pub struct BadDuration {
    text: String,
}

const SECOND: u64 = 1_000_000_000;

// === impl GoDuration ===

impl GoDuration {
    /// The duration in nanoseconds.
    #[must_use]
    pub fn nanoseconds(self) -> i64 {
        self.0
    }

    /// Reads a duration.
    ///
    /// # Errors
    /// The text is empty, has no or an unknown unit, or exceeds 292 years.
    pub fn parse(text: &str) -> Result<Self, BadDuration> {
        parse(text).map(Self).ok_or_else(|| BadDuration { text: text.chars().take(64).collect() })
    }
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 0 {
            f.write_str("-")?;
        }
        let total = self.0.unsigned_abs();
        match total {
            0 => f.write_str("0s"),
            1..1_000 => write!(f, "{total}ns"),
            1_000..1_000_000 => decimal(f, total, 1_000).and_then(|()| f.write_str("µs")),
            1_000_000..SECOND => decimal(f, total, 1_000_000).and_then(|()| f.write_str("ms")),
            _ => {
                let minutes = total / (60 * SECOND);
                if minutes >= 60 {
                    write!(f, "{}h", minutes / 60)?;
                }
                if minutes > 0 {
                    write!(f, "{}m", minutes % 60)?;
                }
                decimal(f, total % (60 * SECOND), SECOND)?;
                f.write_str("s")
            }
        }
    }
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&Text::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl JsonSchema for GoDuration {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": r"^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$" })
    }
}

/// `value / unit` without trailing zeros.
fn decimal(f: &mut fmt::Formatter<'_>, value: u64, unit: u64) -> fmt::Result {
    write!(f, "{}", value / unit)?;
    let rest = value % unit;
    if rest == 0 {
        return Ok(());
    }
    let width = unit.ilog10() as usize;
    let digits = format!("{rest:0width$}");
    write!(f, ".{}", digits.trim_end_matches('0'))
}

fn parse(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total = 0_u64;
    while !rest.is_empty() {
        let (nanoseconds, after) = term(rest)?;
        total = total.checked_add(nanoseconds).filter(|sum| *sum <= 1 << 63)?;
        rest = after;
    }
    if negative { Some(0_i64.wrapping_sub_unsigned(total)) } else { i64::try_from(total).ok() }
}

/// One number with its unit, in nanoseconds, and the text behind it.
fn term(text: &str) -> Option<(u64, &str)> {
    let (whole, rest) = leading_digits(text);
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => leading_digits(rest),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let end = rest.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(end);
    let unit = match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => SECOND,
        "m" => 60 * SECOND,
        "h" => 3_600 * SECOND,
        _ => return None,
    };
    let whole = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()? };
    let nanoseconds = whole.checked_mul(unit)?.checked_add(fraction_of(fraction, unit))?;
    (nanoseconds <= 1 << 63).then_some((nanoseconds, rest))
}

/// The fraction of a unit in whole nanoseconds, in floating point as Go does it, so that the last digit is Go's.
fn fraction_of(digits: &str, unit: u64) -> u64 {
    let (mut value, mut scale) = (0_u64, 1.0_f64);
    for byte in digits.bytes() {
        let next = value.checked_mul(10).and_then(|value| value.checked_add(u64::from(byte - b'0')));
        let Some(next) = next.filter(|next| *next <= 1 << 63) else { break };
        value = next;
        scale *= 10.0;
    }
    (value as f64 * (unit as f64 / scale)) as u64
}

fn leading_digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: Option<&str>) {
        let printed = GoDuration::parse(text).ok().map(|duration| duration.to_string());
        assert_eq!(printed.as_deref(), expect, "{text}");
    }

    #[test]
    fn prints_as_go_prints() {
        check("300s", Some("5m0s"));
        check("1m", Some("1m0s"));
        check("90m", Some("1h30m0s"));
        check("1.5h", Some("1h30m0s"));
        check("0", Some("0s"));
        check("-0", Some("0s"));
        check("0.3333333333333333333h", Some("20m0s"));
        check("0s", Some("0s"));
        check("500ms", Some("500ms"));
        check("1500ms", Some("1.5s"));
        check("100us", Some("100µs"));
        check("1.5us", Some("1.5µs"));
        check("7ns", Some("7ns"));
        check("-2m3.004s", Some("-2m3.004s"));
        check("+5s", Some("5s"));
        check(".5s", Some("500ms"));
        check("1.s", Some("1s"));
        check("1h1m1.000000001s", Some("1h1m1.000000001s"));
        check("-9223372036854775808ns", Some("-2562047h47m16.854775808s"));
        check("9223372036854775807ns", Some("2562047h47m16.854775807s"));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "5",
            "s",
            ".s",
            "-",
            "+",
            "soon",
            "5 m",
            "5m ",
            "1d",
            "9223372036854775808ns",
            "3000000h",
            "--5s",
            "5M",
            "٣s",
        ] {
            check(text, None);
        }
    }
}
