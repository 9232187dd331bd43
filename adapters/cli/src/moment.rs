//! Moments as people name them in an incident: `14:03`, `-15m`, a time, a sequence.

use std::str::FromStr;

use anyhow::Error;
use decklog_engine::replay::Until;
use decklog_schemas::GoDuration;
use jiff::civil::Time;
use jiff::{Timestamp, Zoned};

use crate::exit::Failure;

/// A moment of a log, as it was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// RFC 3339 or `seq:1234`.
    Absolute(Until),
    /// The last time that clocks here showed this.
    Clock(Time),
    /// So many nanoseconds before now.
    Ago(i64),
}

/// What now is.
#[derive(Clone, Debug)]
pub(crate) struct Clock(Zoned);

impl Clock {
    /// Now, on this machine.
    pub(crate) fn now() -> Self {
        Self(Zoned::now())
    }

    /// As if it were this moment, on this machine.
    pub(crate) fn at(moment: Timestamp) -> Self {
        Self(moment.to_zoned(jiff::tz::TimeZone::system()))
    }
}

impl Moment {
    /// The moment in terms of a log.
    pub(crate) fn resolve(&self, clock: &Clock) -> Result<Until, Error> {
        let Clock(now) = clock;
        let out_of_range = |_| Failure::usage("the moment lies outside of all calendars");
        match *self {
            Self::Absolute(until) => Ok(until),
            Self::Ago(nanoseconds) => {
                let ago = jiff::SignedDuration::from_nanos(nanoseconds);
                now.timestamp().checked_sub(ago).map(Until::Time).map_err(out_of_range)
            }
            Self::Clock(time) => {
                let today = now.with().time(time).build().map_err(out_of_range)?;
                let last = if today > *now { today.yesterday_at(time) } else { Ok(today) };
                last.map(|last| Until::Time(last.timestamp())).map_err(out_of_range)
            }
        }
    }
}

/// The same time of the day before.
trait Yesterday {
    fn yesterday_at(&self, time: Time) -> Result<Zoned, jiff::Error>;
}

impl Yesterday for Zoned {
    fn yesterday_at(&self, time: Time) -> Result<Zoned, jiff::Error> {
        self.yesterday()?.with().time(time).build()
    }
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(until) = text.parse() {
            return Ok(Self::Absolute(until));
        }
        if let Some(ago) =
            GoDuration::parse(text.strip_prefix('-').unwrap_or(text)).ok().filter(|ago| ago.nanoseconds() >= 0)
        {
            return Ok(Self::Ago(ago.nanoseconds()));
        }
        let bytes = text.as_bytes();
        let is_clock = matches!(bytes.len(), 5 | 8) && bytes[2] == b':';
        if let Some(time) = is_clock.then(|| text.parse().ok()).flatten() {
            return Ok(Self::Clock(time));
        }
        Err("not a moment: use RFC 3339 (2026-03-02T14:03:00Z), a time of day (14:03), \
             a time before now (-15m), or a sequence (seq:1234)"
            .to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: &str) {
        let now = "2026-03-02T15:00:00[UTC]".parse().expect("a zoned time");
        let resolved = text.parse::<Moment>().map(|moment| moment.resolve(&Clock(now)).expect("in range").to_string());
        assert_eq!(resolved.as_deref().unwrap_or("not a moment"), expect, "{text}");
    }

    #[test]
    fn moments_are_read_as_people_type_them() {
        check("14:03", "2026-03-02T14:03:00Z");
        check("14:03:05", "2026-03-02T14:03:05Z");
        check("16:00", "2026-03-01T16:00:00Z");
        check("-15m", "2026-03-02T14:45:00Z");
        check("-1h30m", "2026-03-02T13:30:00Z");
        check("2026-03-02T14:03:00+01:00", "2026-03-02T13:03:00Z");
        check("15m", "2026-03-02T14:45:00Z");
        check("seq:12", "seq:12");
        for text in ["", "now", "seq:0", "seq:", "--15m", "25:00", "14:3", "2026-03-02"] {
            check(text, "not a moment");
        }
    }
}
