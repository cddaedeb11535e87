//! Whether the wall clock can be trusted, by what the last tick left behind.

use serde_json::Value;

use crate::model::time::{DAY_MS, MINUTE_MS, UnixMs};

/// Within one boot, the wall clock may drift from the time since boot by this much between two
/// ticks before it counts as a leap, in milliseconds.
const LEAP_MS: u64 = 5 * MINUTE_MS;

/// Across boots, the clock may be this far ahead of the last tick, in milliseconds: a machine
/// may have been off for long, but hardly longer.
const OFF_MS: u64 = 90 * DAY_MS;

/// Why the clock is suspect; `None` if nothing speaks against it.
#[must_use]
pub(super) fn check(
    last: Option<&Value>,
    now: UnixMs,
    boot: Option<&(String, u64)>,
) -> Option<String> {
    let last = last?;
    let text = |name: &str| last.get(name).and_then(Value::as_str);
    let ended_at = UnixMs::parse(text("ended_at")?).ok()?;
    if now < ended_at {
        return Some(format!(
            "the clock stands at {now}, before the end of the last tick at {ended_at}"
        ));
    }
    let boot_ms = last.get("boot_ms").and_then(Value::as_u64);
    let far = match (boot, text("boot_id"), boot_ms) {
        (Some((id, up_ms)), Some(last_id), Some(last_ms)) if id == last_id => {
            ended_at.plus(up_ms.saturating_sub(last_ms)).plus(LEAP_MS)
        }
        _ => ended_at.plus(OFF_MS),
    };
    (now > far).then(|| {
        format!("the clock leapt ahead: it stands at {now}, and the last tick ended at {ended_at}")
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn steps_back_and_leaps_ahead_are_noticed() {
        let line = serde_json::json!({
            "ended_at": "2026-11-29T12:00:00.000Z", "boot_id": "a", "boot_ms": 1_000_000,
        });
        let at = |text: &str| UnixMs::parse(text).unwrap();
        let same = |up_ms| Some(("a".to_owned(), up_ms));
        let other = Some(("b".to_owned(), 5_000));
        let rows = [
            (
                "2026-11-29T11:59:59.999Z",
                same(1_000_000),
                true,
                "before the last tick",
            ),
            (
                "2026-11-29T12:01:00.000Z",
                same(1_060_000),
                false,
                "as it should be",
            ),
            (
                "2026-11-29T13:01:00.000Z",
                same(1_060_000),
                true,
                "an hour ahead of the boot clock",
            ),
            (
                "2026-11-29T13:01:00.000Z",
                other.clone(),
                false,
                "another boot tells nothing",
            ),
            (
                "2027-02-27T11:00:00.000Z",
                other.clone(),
                false,
                "off for 90 days",
            ),
            (
                "2027-02-28T13:00:00.000Z",
                other,
                true,
                "off for longer than that",
            ),
            ("2027-02-28T13:00:00.000Z", None, true, "no boot clock"),
        ];
        for (now, boot, want, why) in rows {
            let got = check(Some(&line), at(now), boot.as_ref());
            assert_eq!(got.is_some(), want, "{why}: {got:?}");
        }
        assert_eq!(
            check(None, at("1970-01-01T00:00:00Z"), None),
            None,
            "no last tick"
        );
    }
}
