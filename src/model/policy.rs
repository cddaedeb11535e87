//! What a destination's owner decided about time and repetition, as plain values.

/// How a destination's items are tried, repeated and given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// What becomes of an item whose answer was lost.
    pub on_unknown: OnUnknown,
    /// The receiver drops repeats: by key, or because the owner says so of an idempotent
    /// method.
    pub dedupe: Dedupe,
    /// How long the receiver remembers a key, in milliseconds; `None` means for ever.
    pub key_window_ms: Option<u64>,
    /// Connect and response timeouts together, in milliseconds.
    pub total_timeout_ms: u64,
    /// Waits between attempts.
    pub backoff: Backoff,
    /// How many counted attempts an item has.
    pub attempts_max: u32,
    /// How long an item is tried, in milliseconds, not counting suspensions.
    pub age_ms_max: u64,
    /// A longer wait that a receiver asks for becomes a hold that releases itself.
    pub wait_ms_max: u64,
    /// A first attempt later than this past its due time is stale; `None` means never.
    pub stale_after_ms: Option<u64>,
    /// What becomes of a stale item.
    pub stale: Stale,
}

/// What becomes of an item whose answer was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnknown {
    /// Sent again with the same key, while the key window is open.
    Resend,
    /// Left for a person.
    Park,
}

/// On what ground a repeat is harmless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dedupe {
    /// The receiver de-duplicates by the key that every attempt carries.
    Key,
    /// No key; repeats of PUT and DELETE are harmless by RFC 9110, 9.2.2.
    IdempotentMethods,
    /// Nothing makes a repeat harmless.
    Never,
}

/// The wait after attempt k: `base · factor^(k-1)`, at most `max`, with jitter upward.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// After the first attempt, in milliseconds.
    pub base_ms: u64,
    /// Growth from attempt to attempt; at least 1.
    pub factor: f64,
    /// The longest, in milliseconds, before jitter.
    pub max_ms: u64,
}

// The factor is never NaN: the configuration refuses it.
impl Eq for Backoff {}

/// What becomes of an item whose first attempt is far too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stale {
    /// It is sent all the same.
    Send,
    /// It is held for a person.
    Hold,
    /// It fails.
    Fail,
}

impl Policy {
    /// Whether a repeat of this method to this destination is harmless while the key lives.
    #[must_use]
    pub fn may_repeat(&self, method: &str) -> bool {
        match (self.on_unknown, self.dedupe) {
            (OnUnknown::Park, _) | (_, Dedupe::Never) => false,
            (OnUnknown::Resend, Dedupe::Key) => true,
            (OnUnknown::Resend, Dedupe::IdempotentMethods) => {
                matches!(method, "PUT" | "DELETE")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_a_repeat_harmless() {
        let rows = [
            (OnUnknown::Resend, Dedupe::Key, true, true),
            (OnUnknown::Resend, Dedupe::IdempotentMethods, false, true),
            (OnUnknown::Resend, Dedupe::Never, false, false),
            (OnUnknown::Park, Dedupe::Key, false, false),
            (OnUnknown::Park, Dedupe::IdempotentMethods, false, false),
            (OnUnknown::Park, Dedupe::Never, false, false),
        ];
        for (on_unknown, dedupe, post, put) in rows {
            let policy = Policy {
                on_unknown,
                dedupe,
                key_window_ms: None,
                total_timeout_ms: 1,
                backoff: Backoff {
                    base_ms: 1,
                    factor: 1.0,
                    max_ms: 1,
                },
                attempts_max: 1,
                age_ms_max: 1,
                wait_ms_max: 1,
                stale_after_ms: None,
                stale: Stale::Send,
            };
            // PATCH is not idempotent, GET has no effect to repeat, and methods have a case.
            for method in ["POST", "PATCH", "GET", "put", ""] {
                let got = policy.may_repeat(method);
                assert_eq!(got, post, "{on_unknown:?} {dedupe:?} {method}");
            }
            for method in ["PUT", "DELETE"] {
                let got = policy.may_repeat(method);
                assert_eq!(got, put, "{on_unknown:?} {dedupe:?} {method}");
            }
        }
    }
}
