//! How long a receiver asks us to wait, in every form that receivers write it.
//!
//! Every reader here gives milliseconds in whole seconds, rounded up, and never less than zero:
//! a date in the past is a wait of zero. A text that has not the form is `None`, which callers
//! take as if nothing had been asked: a bad header must never stop a settle. Nothing is capped
//! here beyond what an instant can hold; the policy's cap is the caller's.

use chrono::{DateTime, NaiveDate, NaiveDateTime};

use super::time::UnixMs;

/// The longest wait in seconds: to the end of the year 9999.
const SECONDS_MAX: f64 = 253_402_300_799.0;

/// From here on a bare number is an instant in milliseconds.
const EPOCH_MS_MIN: f64 = 1e12;

/// From here on a bare number is an instant in seconds.
const EPOCH_S_MIN: f64 = 1e9;

macro_rules! forms {
    ($($variant:ident $text:literal $doc:literal,)*) => {
        /// How a wait is written; the names are those of `as` in a rule.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum WaitForm { $(#[doc = $doc] $variant,)* }

        impl WaitForm {
            /// Every form.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name that rules use.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

forms! {
    Http "http" "`Retry-After` of RFC 9110, 10.2.3: seconds (decimals too) or an HTTP date.",
    Seconds "s" "Seconds from now.",
    Millis "ms" "Milliseconds from now.",
    EpochSeconds "epoch_s" "An instant in seconds since 1970.",
    EpochMillis "epoch_ms" "An instant in milliseconds since 1970.",
    Date "date" "ISO 8601 or an HTTP date.",
    Duration "duration" "`34.2s`, `50ms`, `1m30s`.",
    Unit "unit" "A number and a word for its unit, within prose: `in 6 minutes`.",
    RateLimitT "ratelimit_t" "The IETF field `RateLimit`: `t` of the items with `r=0`.",
    Auto "auto" "A bare number, taken by its size as an instant or as seconds.",
}

impl WaitForm {
    /// Reads a form by the name that rules use.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|form| form.as_str() == text)
    }

    /// The wait in `value`, counted from `now`, in milliseconds; `None` if it has not this form.
    #[must_use]
    pub fn read(self, value: &str, now: UnixMs) -> Option<u64> {
        match self {
            Self::Http => http(value, now),
            Self::Seconds => up(number(value)? * 1_000.0),
            Self::Millis => up(number(value)?),
            Self::EpochSeconds => up(number(value)? * 1_000.0 - float(now)),
            Self::EpochMillis => up(number(value)? - float(now)),
            Self::Date => Some(until(date(value)?, now)),
            Self::Duration => duration(value),
            Self::Unit => unit(value),
            Self::RateLimitT => ratelimit_t(value),
            Self::Auto => match number(value)? {
                ms if ms >= EPOCH_MS_MIN => up(ms - float(now)),
                s if s >= EPOCH_S_MIN => up(s * 1_000.0 - float(now)),
                s => up(s * 1_000.0),
            },
        }
    }
}

/// The wait of a `Retry-After` value in milliseconds from `now`.
///
/// Takes both forms of RFC 9110, 10.2.3, and decimals, which are seen in the wild. A sign is
/// not in the grammar, so a negative number is `None`.
#[must_use]
pub fn http(value: &str, now: UnixMs) -> Option<u64> {
    let value = value.trim();
    if value.starts_with(|first: char| first.is_ascii_digit()) && !value.contains(['e', 'E', '-']) {
        return up(number(value)? * 1_000.0);
    }
    http_date(value).map(|at| until(at, now))
}

/// An HTTP date as an instant: the preferred form of RFC 9110, 5.6.7 and both obsolete ones.
///
/// `UTC` and `Z` stand for `GMT`. The name of the day is not compared with the date: it adds
/// nothing, and some senders get it wrong.
#[must_use]
pub fn http_date(text: &str) -> Option<UnixMs> {
    let text = text.trim();
    let at = if let Some((_, rest)) = text.split_once(',') {
        let rest = without_zone(rest.trim())?;
        NaiveDateTime::parse_from_str(rest, "%d %b %Y %H:%M:%S")
            .or_else(|_| NaiveDateTime::parse_from_str(rest, "%d-%b-%y %H:%M:%S"))
            .ok()?
    } else {
        let (_, rest) = text.split_once(' ')?;
        NaiveDateTime::parse_from_str(rest.trim(), "%b %e %H:%M:%S %Y").ok()?
    };
    instant(at)
}

fn without_zone(text: &str) -> Option<&str> {
    ["GMT", "UTC", "Z", "+0000"]
        .into_iter()
        .find_map(|zone| text.strip_suffix(zone))
        .map(str::trim_end)
}

/// ISO 8601 (UTC where no offset is given) or an HTTP date, as an instant.
#[must_use]
pub fn date(text: &str) -> Option<UnixMs> {
    let text = text.trim();
    if let Ok(at) = DateTime::parse_from_rfc3339(text) {
        return u64::try_from(at.timestamp_millis()).ok().map(UnixMs);
    }
    let bare = without_zone(text).unwrap_or(text);
    for form in ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f"] {
        if let Ok(at) = NaiveDateTime::parse_from_str(bare, form) {
            return instant(at);
        }
    }
    match NaiveDate::parse_from_str(bare, "%Y-%m-%d") {
        Ok(day) => instant(day.and_hms_opt(0, 0, 0)?),
        Err(_) => http_date(text),
    }
}

fn instant(at: NaiveDateTime) -> Option<UnixMs> {
    u64::try_from(at.and_utc().timestamp_millis())
        .ok()
        .map(UnixMs)
}

/// From `now` to `at`, up to whole seconds.
fn until(at: UnixMs, now: UnixMs) -> u64 {
    at.since(now).div_ceil(1_000).saturating_mul(1_000)
}

/// A plain decimal number; no words such as `inf`.
fn number(text: &str) -> Option<f64> {
    let text = text.trim();
    let digits = text.strip_prefix('-').unwrap_or(text);
    if !digits.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|value: &f64| value.is_finite())
}

#[expect(
    clippy::cast_precision_loss,
    reason = "instants up to the year 9999 are exact in 53 bits"
)]
fn float(at: UnixMs) -> f64 {
    at.0 as f64
}

/// Milliseconds, up to whole seconds and at least zero.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to a range that fits"
)]
fn up(ms: f64) -> Option<u64> {
    let seconds = (ms / 1_000.0).ceil();
    (!seconds.is_nan()).then(|| seconds.clamp(0.0, SECONDS_MAX) as u64 * 1_000)
}

/// `34.2s`, `50ms`, `1h30m`: numbers with short units, back to back.
fn duration(text: &str) -> Option<u64> {
    let mut rest = text.trim();
    let mut total = 0.0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (digits, tail) = rest.split_at(end);
        let end = tail
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        total += number(digits)?
            * match unit {
                "ns" => 1e-6,
                "us" | "µs" => 1e-3,
                "ms" => 1.0,
                "s" => 1e3,
                "m" => 6e4,
                "h" => 3.6e6,
                "d" => 8.64e7,
                _ => return None,
            };
        rest = tail;
    }
    up(total)
}

/// The first number in a prose that is followed by a word for a unit of time.
fn unit(text: &str) -> Option<u64> {
    let mut rest = text;
    loop {
        rest = &rest[rest.find(|c: char| c.is_ascii_digit())?..];
        let end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (digits, tail) = rest.split_at(end);
        let word = tail.trim_start_matches([' ', '-', '\t']);
        let end = word
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(word.len());
        let unit = unit_ms(&word[..end].to_ascii_lowercase());
        if let (Some(count), Some(ms)) = (number(digits), unit) {
            return up(count * ms);
        }
        rest = tail;
    }
}

fn unit_ms(word: &str) -> Option<f64> {
    Some(match word {
        "ms" | "msec" | "millisecond" | "milliseconds" => 1.0,
        "s" | "sec" | "secs" | "second" | "seconds" => 1e3,
        "m" | "min" | "mins" | "minute" | "minutes" => 6e4,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3.6e6,
        "d" | "day" | "days" => 8.64e7,
        "week" | "weeks" => 6.048e8,
        _ => return None,
    })
}

/// The longest `t` among the items of a `RateLimit` field that have nothing remaining.
///
/// draft-ietf-httpapi-ratelimit-headers: a Structured Field List of strings with the parameters
/// `r` (remaining) and `t` (seconds). A malformed field is ignored as a whole, as the draft wants.
fn ratelimit_t(text: &str) -> Option<u64> {
    let mut longest: Option<u64> = None;
    for member in outside_quotes(text, ',')? {
        let parts = outside_quotes(member, ';')?;
        let (name, parameters) = parts.split_first()?;
        let name = name.trim();
        let quoted = name.len() >= 2 && name.starts_with('"') && name.ends_with('"');
        let token = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '*')
            && !name.contains(|c: char| c.is_whitespace() || c == '"' || c == '=');
        if !quoted && !token {
            return None;
        }
        let (mut remaining, mut seconds) = (None, None);
        for parameter in parameters {
            match parameter.trim().split_once('=') {
                Some(("r", value)) => remaining = Some(value.parse::<u64>().ok()?),
                Some(("t", value)) => seconds = Some(value.parse::<u32>().ok()?),
                Some(_) | None => {}
            }
        }
        if let (Some(0), Some(seconds)) = (remaining, seconds) {
            longest = longest.max(Some(u64::from(seconds) * 1_000));
        }
    }
    longest
}

/// Splits at a separator, except within double quotes; `None` if a quote stays open.
fn outside_quotes(text: &str, separator: char) -> Option<Vec<&str>> {
    let (mut parts, mut from) = (Vec::new(), 0);
    let (mut quoted, mut escaped) = (false, false);
    for (at, c) in text.char_indices() {
        if quoted {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => quoted = false,
                _ => {}
            }
        } else if c == '"' {
            quoted = true;
        } else if c == separator {
            parts.push(&text[from..at]);
            from = at + c.len_utf8();
        }
    }
    parts.push(&text[from..]);
    (!quoted).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-01-01T00:00:00Z.
    const NOW: UnixMs = UnixMs(1_767_225_600_000);

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table of cases")]
    fn every_form() {
        use WaitForm as F;
        let rows: &[(F, &str, Option<u64>, &str)] = &[
            (F::Http, "120", Some(120), "delay-seconds"),
            (F::Http, " 2.0 ", Some(2), "decimals"),
            (F::Http, "120.1", Some(121), "up, never down"),
            (F::Http, "0", Some(0), "zero is a wish too"),
            (F::Http, "soon", None, "unparseable"),
            (F::Http, "", None, "empty"),
            (F::Http, "-5", None, "not in the grammar"),
            (F::Http, "1e3", None, "not in the grammar"),
            (
                F::Http,
                "99999999999999999999",
                Some(253_402_300_799),
                "saturates",
            ),
            (
                F::Http,
                "Thu, 01 Jan 2026 00:02:00 GMT",
                Some(120),
                "IMF-fixdate",
            ),
            (
                F::Http,
                "Thu, 01 Jan 2026 00:02:00 UTC",
                Some(120),
                "UTC for GMT",
            ),
            (
                F::Http,
                "Mon, 01 Jan 2026 00:02:00 GMT",
                Some(120),
                "a wrong day name",
            ),
            (
                F::Http,
                "Thursday, 01-Jan-26 00:02:00 GMT",
                Some(120),
                "RFC 850",
            ),
            (F::Http, "Thu Jan  1 00:02:00 2026", Some(120), "asctime"),
            (
                F::Http,
                "Wed, 31 Dec 2025 23:59:00 GMT",
                Some(0),
                "the past is zero",
            ),
            (
                F::Http,
                "Thu, 01 Jan 2026 00:02:00 PST",
                None,
                "another zone",
            ),
            (F::Http, "2026-01-01T00:02:00Z", None, "ISO is not HTTP"),
            (F::Seconds, "7.2", Some(8), ""),
            (F::Seconds, "-1", Some(0), "clamped"),
            (F::Seconds, "inf", None, "a word"),
            (F::Millis, "1500", Some(2), ""),
            (F::Millis, "1", Some(1), "rounded up"),
            (F::EpochSeconds, "1767225630", Some(30), ""),
            (F::EpochSeconds, "1767225630.5", Some(31), ""),
            (F::EpochSeconds, "1767225599", Some(0), "the past"),
            (F::EpochMillis, "1767225600001", Some(1), ""),
            (F::Date, "2026-01-01T00:01:00.000Z", Some(60), ""),
            (F::Date, "2026-01-01T01:01:00+01:00", Some(60), "an offset"),
            (F::Date, "2026-01-01 00:01:00", Some(60), "no offset is UTC"),
            (F::Date, "2026-01-01 00:01:00 UTC", Some(60), ""),
            (F::Date, "2026-01-02", Some(86_400), "a day"),
            (
                F::Date,
                "Thu, 01 Jan 2026 00:01:00 UTC",
                Some(60),
                "HTTP date",
            ),
            (F::Date, "tomorrow", None, ""),
            (F::Duration, "34.2s", Some(35), "protobuf"),
            (F::Duration, "50ms", Some(1), ""),
            (F::Duration, "6m0s", Some(360), "Go"),
            (F::Duration, "1h", Some(3_600), ""),
            (F::Duration, "30", None, "no unit"),
            (F::Duration, "", None, ""),
            (F::Duration, "5 parsecs", None, ""),
            (F::Unit, "6 minutes", Some(360), ""),
            (
                F::Unit,
                "error 14: try again in 2 hours.",
                Some(7_200),
                "skips other numbers",
            ),
            (F::Unit, "1.5 seconds", Some(2), ""),
            (F::Unit, "24-hour", Some(86_400), ""),
            (
                F::Unit,
                "v1.2.3: in 5 minutes",
                Some(300),
                "a version is no number",
            ),
            (F::Unit, "later", None, ""),
            (F::Unit, "in 5 ", None, ""),
            (F::RateLimitT, "\"d\";r=0;t=30", Some(30), ""),
            (
                F::RateLimitT,
                "\"b\";r=12;t=30,\"d\";r=0;t=600",
                Some(600),
                "only r=0 counts",
            ),
            (
                F::RateLimitT,
                "\"b\";r=0;t=30, \"d\";r=0;t=600",
                Some(600),
                "all must be over",
            ),
            (
                F::RateLimitT,
                "\"a,b;r=9\";r=0;t=3",
                Some(3),
                "separators in quotes",
            ),
            (F::RateLimitT, "\"d\";r=5;t=30", None, "some remain"),
            (F::RateLimitT, "\"d\";r=0;t=x", None, "malformed"),
            (F::RateLimitT, "\"d;r=0;t=30", None, "an open quote"),
            (F::RateLimitT, "100, 100;w=60", None, "an older form"),
            (F::Auto, "1767225630000", Some(30), "milliseconds"),
            (F::Auto, "1767225630", Some(30), "seconds"),
            (F::Auto, "30", Some(30), "a span"),
            (F::Auto, "soon", None, ""),
        ];
        for (form, text, want, why) in rows {
            let got = form.read(text, NOW).map(|ms| ms / 1_000);
            assert_eq!(got, *want, "{} `{text}` {why}", form.as_str());
        }
    }

    #[test]
    fn names_come_back() {
        for form in WaitForm::ALL {
            assert_eq!(WaitForm::parse(form.as_str()), Some(*form));
        }
        assert_eq!(WaitForm::parse("minutes"), None);
    }
}
