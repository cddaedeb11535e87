//! When to try again, and when not any more. Pure: `now` and jitter are arguments.

use super::policy::{Backoff, Policy};
use super::time::UnixMs;

/// The wait before the attempt after the `done`th, in milliseconds.
///
/// `base · factor^(done - 1)`, cut at `max`, stretched by `jitter` thousandths (0 to 1000, more
/// counts as 1000) of a half: upward only, so never earlier than the rule says. `asked_ms`, what
/// the receiver asked for, is a floor under the whole.
#[must_use]
pub fn wait_ms(backoff: &Backoff, done: u32, asked_ms: Option<u64>, jitter: u16) -> u64 {
    let exponent = i32::try_from(done.saturating_sub(1)).unwrap_or(i32::MAX);
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "bounded by max_ms; a float to integer cast saturates"
    )]
    let grown = (backoff.base_ms as f64 * backoff.factor.powi(exponent)) as u64;
    let plain = grown.min(backoff.max_ms);
    let stretch =
        |ms: u64| ms.saturating_add((ms / 2).saturating_mul(u64::from(jitter.min(1000))) / 1000);
    match asked_ms {
        // A herd that was told one time must not come back in one instant.
        Some(asked) if asked >= plain => {
            asked.saturating_add(stretch(backoff.base_ms).saturating_sub(backoff.base_ms))
        }
        Some(_) | None => stretch(plain),
    }
}

/// Whether the receiver can still be relied on to know the key at `at`.
///
/// The window runs from the first claim; a repeat must be answered before it closes, so the
/// total timeout is kept as a margin. A clock that stands before the item's last event, or that
/// is suspect, closes the window (guarantee G7).
#[must_use]
pub fn key_window_open(
    policy: &Policy,
    first_sent_at: UnixMs,
    updated_at: UnixMs,
    at: UnixMs,
    clock_suspect: bool,
) -> bool {
    if clock_suspect || at < updated_at || at < first_sent_at {
        return false;
    }
    policy.key_window_ms.is_none_or(|window_ms| {
        at.since(first_sent_at)
            .saturating_add(policy.total_timeout_ms)
            < window_ms
    })
}

#[cfg(test)]
mod tests {
    use super::super::policy::{Dedupe, OnUnknown, Stale};
    use super::*;

    const BACKOFF: Backoff = Backoff {
        base_ms: 30_000,
        factor: 2.0,
        max_ms: 3_600_000,
    };

    #[test]
    fn waits_grow_and_stop_growing() {
        let rows = [
            (0, 30_000),
            (1, 30_000),
            (2, 60_000),
            (3, 120_000),
            (7, 1_920_000),
            (8, 3_600_000),
            (4_000_000_000, 3_600_000),
        ];
        for (done, want) in rows {
            assert_eq!(wait_ms(&BACKOFF, done, None, 0), want, "after {done}");
        }
    }

    #[test]
    fn jitter_is_upward_only_and_at_most_half() {
        assert_eq!(wait_ms(&BACKOFF, 1, None, 0), 30_000);
        assert_eq!(wait_ms(&BACKOFF, 1, None, 1000), 45_000);
        assert_eq!(wait_ms(&BACKOFF, 1, None, u16::MAX), 45_000);
    }

    #[test]
    fn what_the_receiver_asks_is_a_floor() {
        assert_eq!(wait_ms(&BACKOFF, 1, Some(5_000), 0), 30_000);
        assert_eq!(wait_ms(&BACKOFF, 1, Some(90_000), 0), 90_000);
        assert_eq!(wait_ms(&BACKOFF, 1, Some(90_000), 1000), 105_000);
        assert_eq!(wait_ms(&BACKOFF, 1, Some(u64::MAX), 1000), u64::MAX);
    }

    #[test]
    fn jitter_is_of_the_wait_or_of_the_base() {
        let rows = [
            // Done, asked, jitter.
            (1, None, 500, 37_500),
            (2, None, 1_000, 90_000),
            (2, Some(59_999), 1_000, 90_000),
            (2, Some(60_000), 1_000, 75_000),
            (2, Some(60_001), 500, 67_501),
            (9, None, 1, 3_601_800),
        ];
        for (done, asked, jitter, want) in rows {
            let got = wait_ms(&BACKOFF, done, asked, jitter);
            assert_eq!(got, want, "{done} {asked:?} {jitter}");
        }
        let slow = Backoff {
            factor: 1.5,
            ..BACKOFF
        };
        assert_eq!(wait_ms(&slow, 3, None, 0), 67_500);
    }

    #[test]
    fn a_key_is_known_within_its_window_less_the_time_of_an_attempt() {
        let policy = |key_window_ms| Policy {
            on_unknown: OnUnknown::Resend,
            dedupe: Dedupe::Key,
            key_window_ms,
            total_timeout_ms: 100,
            backoff: BACKOFF,
            attempts_max: 1,
            age_ms_max: 1,
            wait_ms_max: 1,
            stale_after_ms: None,
            stale: Stale::Send,
        };
        let window = Some(1_000);
        let rows = [
            // Window, first sent, last event, now, suspect.
            (window, 5_000, 5_000, 5_000, false, true, "at once"),
            (window, 5_000, 5_500, 5_899, false, true, "the last instant"),
            (
                window,
                5_000,
                5_500,
                5_900,
                false,
                false,
                "too late to be answered",
            ),
            (window, 5_000, 5_000, 9_000, false, false, "long over"),
            (
                window,
                5_000,
                5_000,
                5_000,
                true,
                false,
                "no clock to know it by",
            ),
            (
                window,
                5_000,
                5_501,
                5_500,
                false,
                false,
                "before its last event",
            ),
            (
                window,
                5_501,
                5_000,
                5_500,
                false,
                false,
                "before it was sent",
            ),
            (
                window,
                5_500,
                5_500,
                5_500,
                false,
                true,
                "the clock stands still",
            ),
            (None, 5_000, 5_000, u64::MAX, false, true, "known for ever"),
            (None, 5_000, 5_000, 5_000, true, false, "also then"),
            (
                Some(u64::MAX),
                0,
                0,
                u64::MAX,
                false,
                false,
                "arithmetic saturates",
            ),
        ];
        for (window, first, last, now, suspect, want, why) in rows {
            let got = key_window_open(
                &policy(window),
                UnixMs(first),
                UnixMs(last),
                UnixMs(now),
                suspect,
            );
            assert_eq!(got, want, "{why}");
        }
    }
}
