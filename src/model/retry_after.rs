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
mod tests;
