//! Instants: milliseconds since the Unix epoch, written as RFC 3339 in UTC.
//!
//! chrono is used here for the calendar only; the one reader of the clock is `clock.rs`.

use std::fmt;

use chrono::{DateTime, NaiveDate, NaiveDateTime, SecondsFormat, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An instant in milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct UnixMs(pub u64);

/// The last instant that can be written with a four-digit year.
const MS_MAX: u64 = 253_402_300_799_999;

/// Milliseconds in a minute.
pub const MINUTE_MS: u64 = 60_000;

/// Milliseconds in a day.
pub const DAY_MS: u64 = 86_400_000;

/// A step back of the wall clock by no more than this does not count, in milliseconds: the margin
/// that a key window is kept open with is longer than that.
pub const STEP_BACK_MS: u64 = 1_000;

/// Why a text is not an instant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a time; write it as 2026-11-29T15:40:03Z")]
pub struct TimeError {
    /// What was given.
    pub text: String,
}

impl UnixMs {
    /// The instant `ms` milliseconds later, stopping at the end of the year 9999.
    #[must_use]
    pub fn plus(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms).min(MS_MAX))
    }

    /// The instant `ms` milliseconds earlier, stopping at the epoch.
    #[must_use]
    pub fn minus(self, ms: u64) -> Self {
        Self(self.0.saturating_sub(ms))
    }

    /// Milliseconds from `earlier` to here; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The start of this instant's minute.
    #[must_use]
    pub fn minute(self) -> Self {
        Self(self.0 - self.0 % MINUTE_MS)
    }

    /// The start of this instant's UTC day.
    #[must_use]
    pub fn day(self) -> Self {
        Self(self.0 - self.0 % DAY_MS)
    }

    /// The name of this instant's minute as a directory: `20261129T1540Z`.
    #[must_use]
    pub fn minute_name(self) -> String {
        self.calendar().format("%Y%m%dT%H%MZ").to_string()
    }

    /// The name of this instant's UTC day as a directory: `20261129`.
    #[must_use]
    pub fn day_name(self) -> String {
        self.calendar().format("%Y%m%d").to_string()
    }

    /// Reads a name made by [`Self::minute_name`]; `None` for any other text.
    #[must_use]
    pub fn from_minute_name(name: &str) -> Option<Self> {
        let at = NaiveDateTime::parse_from_str(&format!("{name}00"), "%Y%m%dT%H%MZ%S").ok()?;
        let at = Self(u64::try_from(at.and_utc().timestamp_millis()).ok()?);
        (at.minute_name() == name).then_some(at)
    }

    /// Reads a name made by [`Self::day_name`]; `None` for any other text.
    #[must_use]
    pub fn from_day_name(name: &str) -> Option<Self> {
        let day = NaiveDate::parse_from_str(name, "%Y%m%d").ok()?;
        let at = day.and_hms_opt(0, 0, 0)?.and_utc().timestamp_millis();
        let at = Self(u64::try_from(at).ok()?);
        (at.day_name() == name).then_some(at)
    }

    /// Reads an RFC 3339 instant, with any offset.
    ///
    /// # Errors
    ///
    /// [`TimeError`] if `text` is not RFC 3339 or lies outside the years 1970 to 9999.
    pub fn parse(text: &str) -> Result<Self, TimeError> {
        let refuse = || TimeError {
            text: text.to_owned(),
        };
        let at = DateTime::parse_from_rfc3339(text).map_err(|_| refuse())?;
        let ms = u64::try_from(at.timestamp_millis()).map_err(|_| refuse())?;
        if ms > MS_MAX {
            return Err(refuse());
        }
        Ok(Self(ms))
    }

    /// The same instant as a calendar date and time in UTC.
    #[must_use]
    pub fn calendar(self) -> DateTime<Utc> {
        let ms = i64::try_from(self.0.min(MS_MAX)).unwrap_or(i64::MAX);
        DateTime::from_timestamp_millis(ms).unwrap_or(DateTime::UNIX_EPOCH)
    }
}

/// When an id of UUID version 7 was minted; `None` for other versions.
#[must_use]
pub fn id_time(id: super::ids::RequestId) -> Option<UnixMs> {
    let (seconds, nanos) = id.0.get_timestamp()?.to_unix();
    (id.0.get_version_num() == 7).then(|| UnixMs(seconds * 1000 + u64::from(nanos) / 1_000_000))
}

impl fmt::Display for UnixMs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.calendar().to_rfc3339_opts(SecondsFormat::Millis, true))
    }
}

impl Serialize for UnixMs {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for UnixMs {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(from)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn names_and_texts_come_back() {
        let at = UnixMs::parse("2026-11-29T15:40:03.123Z").unwrap();
        assert_eq!(at.to_string(), "2026-11-29T15:40:03.123Z");
        assert_eq!(at.minute_name(), "20261129T1540Z");
        assert_eq!(at.day_name(), "20261129");
        assert_eq!(
            UnixMs::from_minute_name("20261129T1540Z"),
            Some(at.minute())
        );
        assert_eq!(UnixMs::from_day_name("20261129"), Some(at.day()));
        assert_eq!(
            UnixMs::parse("2026-11-29T16:40:03.123+01:00").unwrap(),
            at,
            "an offset is converted"
        );
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "now", "2026-11-29", "1969-12-31T23:59:59Z"] {
            assert!(UnixMs::parse(text).is_err(), "{text}");
        }
        for name in [
            "2026112",
            "20261129T1540",
            "20261329",
            "+20261129",
            "20261129T2560Z",
        ] {
            assert_eq!(UnixMs::from_minute_name(name), None, "{name}");
            assert_eq!(
                UnixMs::from_day_name(name).filter(|_| name != "20261129"),
                None
            );
        }
    }

    #[test]
    fn arithmetic_stops_at_the_ends() {
        assert_eq!(UnixMs(5).minus(9), UnixMs(0));
        assert_eq!(UnixMs(u64::MAX).plus(1).0, MS_MAX);
        assert_eq!(
            UnixMs(MS_MAX).plus(1).to_string(),
            "9999-12-31T23:59:59.999Z"
        );
    }

    #[test]
    fn the_last_instant_that_can_be_written_is_the_last_that_is_read() {
        let last = UnixMs::parse("9999-12-31T23:59:59.999Z").unwrap();
        assert_eq!(last, UnixMs(MS_MAX));
        assert!(UnixMs::parse("9999-12-31T23:59:59.999-00:01").is_err());
        assert_eq!(UnixMs::parse("1970-01-01T00:00:00Z").unwrap(), UnixMs(0));
        assert_eq!(UnixMs(u64::MAX).to_string(), last.to_string(), "total");
    }

    #[test]
    fn an_id_tells_when_it_was_minted() {
        let id = |text: &str| -> crate::model::ids::RequestId { text.parse().unwrap() };
        let minted = id("019adf3e-6b6b-7cc3-98f2-3a1c5d2e8f10");
        assert_eq!(id_time(minted), Some(UnixMs(0x019a_df3e_6b6b)));
        for other in [
            "9f6c5a3e-6b6b-4cc3-98f2-3a1c5d2e8f10",
            "1ec9414c-232a-6b00-b3c8-9e6bdeced846",
            "c232ab00-9414-11ec-b3c8-9e6bdeced846",
        ] {
            assert_eq!(id_time(id(other)), None, "{other}");
        }
    }

    #[test]
    fn minutes_and_days_begin_where_they_begin() {
        let at = UnixMs(10 * DAY_MS + 3 * MINUTE_MS + 7);
        assert_eq!(at.minute(), UnixMs(10 * DAY_MS + 3 * MINUTE_MS));
        assert_eq!(
            (at.day(), at.day().day()),
            (UnixMs(10 * DAY_MS), UnixMs(10 * DAY_MS))
        );
        assert_eq!(
            (at.since(at.day()), at.day().since(at)),
            (3 * MINUTE_MS + 7, 0)
        );
        assert_eq!(at.day().plus(3 * MINUTE_MS + 7), at);
        assert_eq!(at.minus(7), at.minute());
        let json = serde_json::to_string(&at).unwrap();
        assert_eq!(serde_json::from_str::<UnixMs>(&json).unwrap(), at);
        assert!(serde_json::from_str::<UnixMs>("\"soon\"").is_err());
    }
}
