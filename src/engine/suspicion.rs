//! Whether the wall clock can be trusted, by what the last tick left behind.

use serde_json::Value;

use crate::model::item::Standing;
use crate::model::time::{DAY_MS, MINUTE_MS, STEP_BACK_MS, UnixMs};

/// Within one boot, the wall clock may drift from the time since boot by this much between two
/// ticks before it counts as a leap, in milliseconds.
const LEAP_MS: u64 = 5 * MINUTE_MS;

/// Across boots, the clock may be this far ahead of the last tick, in milliseconds: a machine
/// may have been off for long, but hardly longer.
const OFF_MS: u64 = 90 * DAY_MS;

/// How far the wall clock can be trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// Why it is suspect now; `None` if nothing speaks against it.
    pub suspicion: Option<String>,
    /// It has shown times up to this one, and was then set back: what bears such a time happened
    /// longer ago than the clock says, nobody knows how long.
    pub set_back_until: Option<UnixMs>,
}

impl Trust {
    /// By what the last tick's line says, and the time since boot.
    pub(super) fn of(last: Option<&Value>, now: UnixMs, boot: Option<&(String, u64)>) -> Self {
        Self {
            suspicion: check(last, now, boot),
            set_back_until: last.and_then(|last| set_back_until(last, now, boot)),
        }
    }

    /// With what the owners of the lock have seen, who need not have ended in good order.
    #[must_use]
    pub(super) fn and(mut self, set_back_until: Option<UnixMs>) -> Self {
        self.set_back_until = self.set_back_until.max(set_back_until);
        self
    }

    /// Whether the clock is suspect now.
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        self.suspicion.is_some()
    }

    /// Where an item stands, as far as that can be known: if it was first sent before the clock was
    /// set back, it was in the distant past, and no key window that ever closes is still open.
    pub(super) fn standing(&self, mut standing: Standing) -> Standing {
        let first = &mut standing.first_sent_at;
        if self
            .set_back_until
            .is_some_and(|until| first.is_some_and(|at| at <= until))
        {
            *first = Some(UnixMs(0));
        }
        standing
    }
}

/// Up to which time the clock was set back, now or when an earlier tick noticed.
fn set_back_until(last: &Value, now: UnixMs, boot: Option<&(String, u64)>) -> Option<UnixMs> {
    let time = |name: &str| UnixMs::parse(last.get(name)?.as_str()?).ok();
    let known = time("set_back_until");
    let Some(ended_at) = time("ended_at") else {
        return known;
    };
    let last_boot = (last.get("boot_id").and_then(Value::as_str)).zip(last.get("boot_ms"));
    // How long ago the last tick ended, where it is certain.
    let elapsed_ms = match (boot, last_boot) {
        (Some((id, up_ms)), Some((last_id, last_ms))) if id == last_id => {
            up_ms.saturating_sub(last_ms.as_u64().unwrap_or(*up_ms))
        }
        _ => 0,
    };
    // A clock that is slewed, not stepped, runs slower by less than a thousandth.
    let slack_ms = STEP_BACK_MS + elapsed_ms / 1_000;
    let is_back = now.plus(slack_ms) < ended_at.plus(elapsed_ms);
    known.max(is_back.then_some(ended_at))
}

/// Why the clock is suspect; `None` if nothing speaks against it.
fn check(last: Option<&Value>, now: UnixMs, boot: Option<&(String, u64)>) -> Option<String> {
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
    fn how_far_the_clock_was_set_back_is_remembered() {
        let end = "2026-11-29T12:00:00.000Z";
        let at = |text: &str| UnixMs::parse(text).unwrap();
        let line = serde_json::json!({"ended_at": end, "boot_id": "a", "boot_ms": 1_000_000});
        let same = |up_ms| Some(("a".to_owned(), up_ms));
        let other = Some(("b".to_owned(), 5_000));
        let rows = [
            (
                "2026-11-29T11:00:00.000Z",
                same(1_060_000),
                true,
                "an hour back",
            ),
            (
                "2026-11-29T12:01:00.000Z",
                same(1_060_000),
                false,
                "as it should be",
            ),
            ("2026-11-29T12:59:58.000Z", same(4_600_000), false, "slewed"),
            (
                "2026-11-29T12:30:00.000Z",
                same(4_600_000),
                true,
                "half an hour back in an hour",
            ),
            (
                "2026-11-29T11:59:59.500Z",
                same(1_000_000),
                false,
                "half a second",
            ),
            (
                "2026-11-29T11:59:00.000Z",
                other.clone(),
                true,
                "before the end, another boot",
            ),
            (
                "2026-11-29T12:30:00.000Z",
                other,
                false,
                "another boot tells no more",
            ),
        ];
        for (now, boot, want, why) in rows {
            let got = set_back_until(&line, at(now), boot.as_ref());
            assert_eq!(got, want.then_some(at(end)), "{why}");
        }
        let mut later = line;
        later["set_back_until"] = "2026-11-29T18:00:00.000Z".into();
        let got = set_back_until(&later, at("2027-11-29T12:00:00Z"), None);
        assert_eq!(got, Some(at("2026-11-29T18:00:00Z")), "carried on");
    }

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
