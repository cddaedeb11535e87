//! Durations, sizes and rates as a person writes them.

use super::Rate;

/// What is wrong with a text; the message follows the name of its key.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    /// What is wrong.
    pub(super) message: String,
    /// The way out.
    pub(super) hint: String,
}

impl Wrong {
    /// A fault and the way out.
    pub(super) fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: hint.into(),
        }
    }
}

/// A hundred years: whatever is longer is a slip of the pen, and this leaves sums with a time of
/// day far from the end of the calendar.
const DURATION_MS_MAX: u128 = 100 * 31_557_600_000;

/// Reads a duration such as `1h 30m` into milliseconds, at least `low_ms`.
pub(super) fn duration_ms(text: &str, low_ms: u64) -> Result<u64, Wrong> {
    let shown = text.escape_debug();
    // Beyond this the sum of the parts could pass what `Duration` holds, where it panics.
    let digits = text.split(|c: char| !c.is_ascii_digit()).map(str::len);
    if text.len() > 40 || digits.max().unwrap_or(0) > 11 {
        return Err(Wrong::new(
            "is too long a duration",
            "at most 100 years, in larger units",
        ));
    }
    let duration = humantime::parse_duration(text).map_err(|_| {
        let hint = "a number and a unit (ms s m h d w y), such as \"90s\" or \"1h 30m\"";
        Wrong::new(format!("cannot be `{shown}`, which is no duration"), hint)
    })?;
    let ms = duration.as_millis();
    if ms > DURATION_MS_MAX {
        return Err(Wrong::new(
            format!("is too long: `{shown}`"),
            "at most 100 years",
        ));
    }
    let ms = u64::try_from(ms).unwrap_or(u64::MAX);
    if ms < low_ms || (ms == 0 && !duration.is_zero()) {
        let hint = format!("at least {}ms", low_ms.max(1));
        return Err(Wrong::new(format!("is too short: `{shown}`"), hint));
    }
    Ok(ms)
}

/// Reads a size such as `512KiB` into bytes, at least 1.
pub(super) fn bytes(text: &str) -> Result<u64, Wrong> {
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(end);
    let factor: Option<u64> = match unit.trim_start_matches(' ').to_ascii_lowercase().as_str() {
        "b" => Some(1),
        "kb" => Some(1000),
        "mb" => Some(1_000_000),
        "gb" => Some(1_000_000_000),
        "kib" => Some(1 << 10),
        "mib" => Some(1 << 20),
        "gib" => Some(1 << 30),
        _ => None,
    };
    let number = number.parse::<u64>().ok();
    let size = number
        .zip(factor)
        .and_then(|(number, factor)| number.checked_mul(factor));
    size.filter(|size| *size > 0).ok_or_else(|| {
        let hint = "bytes as a number, or a number with B KB MB GB KiB MiB GiB, such as \"1MiB\"";
        Wrong::new(
            format!("cannot be `{}`, which is no size", text.escape_debug()),
            hint,
        )
    })
}

/// Reads a rate such as `25/s`.
pub(super) fn rate(text: &str) -> Result<Rate, Wrong> {
    let wrong = || {
        let hint =
            "a number of at least 1 per second, minute or hour: \"25/s\", \"100/m\", \"1000/h\"";
        Wrong::new(
            format!("cannot be `{}`, which is no rate", text.escape_debug()),
            hint,
        )
    };
    let (count, unit) = text.split_once('/').ok_or_else(wrong)?;
    let per_ms = match unit.trim() {
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(wrong()),
    };
    let count = count.trim();
    let plain = count.bytes().all(|b| b.is_ascii_digit());
    let count = count
        .parse::<u32>()
        .ok()
        .filter(|count| plain && *count > 0);
    count.map(|count| Rate { count, per_ms }).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let rows = [
            ("50s", Some(50_000)),
            ("1h 30m", Some(5_400_000)),
            ("24h", Some(86_400_000)),
            ("250ms", Some(250)),
            ("100y", Some(3_155_760_000_000)),
            ("100y 1ms", None),
            ("0s", None),
            ("500us", None),
            ("5", None),
            ("", None),
            ("-5s", None),
            ("5 parsecs", None),
            ("99999999999999999999y", None),
            // Adds up to what makes `Duration` panic.
            ("18446744073709551615s 1000000000ns", None),
            ("99999999999y 99999999999y 99999999999y", None),
        ];
        for (text, want) in rows {
            assert_eq!(duration_ms(text, 1).ok(), want, "{text}");
        }
        assert_eq!(duration_ms("0s", 0), Ok(0));
        assert!(duration_ms("1us", 0).is_err(), "would silently become 0");
    }

    #[test]
    fn sizes() {
        let rows = [
            ("1MiB", Some(1_048_576)),
            ("512KiB", Some(524_288)),
            ("1MB", Some(1_000_000)),
            ("10 mb", Some(10_000_000)),
            ("7B", Some(7)),
            ("7", None),
            ("0B", None),
            ("1M", None),
            ("1.5MB", None),
            ("-1B", None),
            ("MB", None),
            ("", None),
            ("18446744073709551615KB", None),
        ];
        for (text, want) in rows {
            assert_eq!(bytes(text).ok(), want, "{text}");
        }
    }

    #[test]
    fn rates() {
        let rows = [
            ("25/s", Some((25, 1000))),
            ("100/m", Some((100, 60_000))),
            ("1000 / h", Some((1000, 3_600_000))),
            ("0/s", None),
            ("+1/s", None),
            ("25", None),
            ("25/d", None),
            ("/s", None),
            ("4294967296/s", None),
        ];
        for (text, want) in rows {
            let want = want.map(|(count, per_ms)| Rate { count, per_ms });
            assert_eq!(rate(text).ok(), want, "{text}");
        }
    }
}
