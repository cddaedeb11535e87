//! What happened to an item: one line each, appended, never changed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::outcome::OutcomeKind;
use super::reason::Reason;
use super::state::State;
use super::time::UnixMs;

/// What kind of thing happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// It became durable. Always line 2.
    Accepted,
    /// An attempt was made, or was interrupted.
    Attempt,
    /// It was held back.
    Held,
    /// It was given back.
    Released,
    /// A person gave it up.
    Cancelled,
    /// A person has it tried again.
    Retried,
    /// A person said what became of it.
    Resolved,
    /// Its time or its attempts were over before an attempt.
    Expired,
    /// It was put right after a fault.
    Recovered,
}

/// Whom a verdict concerns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// This item only.
    #[default]
    Item,
    /// Every item of the destination.
    Destination,
    /// Every destination that shares the credential.
    Group,
}

/// One line of an item's history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// What happened.
    pub event: EventKind,
    /// When.
    pub at: UnixMs,
    /// Who did it: `alice(1000)`; absent for a tick.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The attempt's number, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n: Option<u32>,
    /// How long the attempt took, in milliseconds; it began at `at - ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ms: Option<u64>,
    /// For an interrupted attempt: when it was claimed, which is before any byte left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_at: Option<UnixMs>,
    /// What the wire showed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<OutcomeKind>,
    /// The HTTP status of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Why the item is where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The rule that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Whom the verdict concerned, where that is not the item alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
    /// The state after it.
    pub state: State,
    /// When the item is to be acted on next: sent, resent, released. An unknown item without
    /// it is parked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<UnixMs>,
    /// What the answer looked like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<ResponseNote>,
    /// The receiver's own id of what it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<String>,
    /// What the receiver, the transport or a person said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Line 2 only: SHA-256 of line 1 without its newline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envelope_sha256: Option<String>,
}

/// What is kept of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponseNote {
    /// The headers that matter later.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The body's beginning, with secrets cut out.
    pub excerpt: String,
    /// How many bytes of the body were read.
    pub bytes: u64,
    /// The body was not whole.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
}

impl Event {
    /// An event with nothing but its kind, time and state.
    #[must_use]
    pub fn new(event: EventKind, at: UnixMs, state: State) -> Self {
        Self {
            event,
            at,
            by: None,
            n: None,
            ms: None,
            claimed_at: None,
            outcome: None,
            status: None,
            reason: None,
            rule: None,
            scope: None,
            state,
            due: None,
            response: None,
            receipt: None,
            note: None,
            envelope_sha256: None,
        }
    }

    /// Whether the item is parked after this event: unknown, and only a person can say more.
    #[must_use]
    pub fn is_parked(&self) -> bool {
        self.state == State::Unknown && self.due.is_none()
    }

    /// Whether this attempt counts towards the destination's `attempts`: one that was certainly
    /// not sent, for a cause that concerns the whole destination, does not.
    #[must_use]
    pub fn counts(&self) -> bool {
        self.event == EventKind::Attempt
            && !(self.outcome == Some(OutcomeKind::NotSent)
                && matches!(self.scope, Some(Scope::Destination | Scope::Group)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_as_an_attempt_and_what_is_parked() {
        let (sent, not_sent) = (OutcomeKind::MaybeSent, OutcomeKind::NotSent);
        let of_all = [Some(Scope::Destination), Some(Scope::Group)];
        let of_one = [None, Some(Scope::Item)];
        for (outcome, scopes, want) in [
            (Some(not_sent), of_all, false),
            (Some(not_sent), of_one, true),
            (Some(sent), of_all, true),
            (Some(OutcomeKind::Answered), of_all, true),
            (Some(OutcomeKind::Interrupted), of_one, true),
            (None, of_all, true),
        ] {
            for scope in scopes {
                let mut event = Event::new(EventKind::Attempt, UnixMs(1), State::Pending);
                (event.outcome, event.scope) = (outcome, scope);
                assert_eq!(event.counts(), want, "{outcome:?} {scope:?}");
                event.event = EventKind::Recovered;
                assert!(!event.counts(), "no attempt");
            }
        }
        for state in State::ALL {
            let mut event = Event::new(EventKind::Held, UnixMs(1), state);
            assert_eq!(event.is_parked(), state == State::Unknown, "{state}");
            event.due = Some(UnixMs(2));
            assert!(!event.is_parked(), "{state}: it has a time");
        }
    }
}
