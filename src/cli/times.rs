//! Times as people write and read them.

use crate::model::time::UnixMs;

/// Reads an instant: RFC 3339, a UTC date, `now`, or `10m` or `+10m` for ten minutes from
/// `now`.
pub(super) fn future(text: &str, now: UnixMs) -> Result<UnixMs, String> {
    if let Ok(span) = span_ms(text.strip_prefix('+').unwrap_or(text)) {
        return Ok(now.plus(span));
    }
    instant(text, now)
}

/// Reads an instant: RFC 3339, a UTC date, `now`, or `10m` for ten minutes before `now`.
pub(super) fn past(text: &str, now: UnixMs) -> Result<UnixMs, String> {
    if let Ok(span) = span_ms(text) {
        return Ok(now.minus(span));
    }
    instant(text, now)
}

fn instant(text: &str, now: UnixMs) -> Result<UnixMs, String> {
    if text == "now" {
        return Ok(now);
    }
    UnixMs::parse(text)
        .or_else(|_| UnixMs::parse(&format!("{text}T00:00:00Z")))
        .map_err(|_| {
            format!(
                "`{text}` is not a time; write 2026-11-29T15:40:03Z, 2026-11-29, or a span such as 10m"
            )
        })
}

/// Reads a span such as `90s` or `2h 30m`, in milliseconds.
pub(super) fn span_ms(text: &str) -> Result<u64, String> {
    let refuse = || format!("`{text}` is not a span of time such as 90s or 2h");
    if text.len() > 40 {
        return Err(refuse());
    }
    let span = humantime::parse_duration(text).map_err(|_| refuse())?;
    u64::try_from(span.as_millis()).map_err(|_| refuse())
}

/// An instant in local time, for people.
pub(super) fn local(at: UnixMs) -> String {
    at.calendar()
        .with_timezone(&chrono::Local)
        .format("%Y-%m-%d %H:%M:%S")
        .to_string()
}

/// A span in its two largest units, for people.
pub(super) fn span(ms: u64) -> String {
    let seconds = ms / 1000;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) if seconds == 0 && ms > 0 => format!("{ms} ms"),
        (0, 0, 0) if seconds == 0 => "less than a second".to_owned(),
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _) => format!("{hours} h {minutes} min"),
        (_, _, _) => format!("{days} d {hours} h"),
    }
}
