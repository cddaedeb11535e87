//! A verdict and an item's standing → the event that is written. Guarantees G6 and G7 live here.

use super::classify::Verdict;
use super::event::{Event, EventKind, ResponseNote};
use super::item::Standing;
use super::outcome::Outcome;
use super::policy::Policy;
use super::reason::Reason;
use super::schedule;
use super::state::State;
use super::time::UnixMs;

/// What is known besides the verdict when an attempt is settled.
#[derive(Clone, Copy, Debug)]
pub struct Settling<'a> {
    /// The item before the attempt.
    pub before: &'a Standing,
    /// The request's method.
    pub method: &'a str,
    /// The attempt's number.
    pub n: u32,
    /// When the attempt was claimed.
    pub claimed_at: UnixMs,
    /// When the outcome was known.
    pub at: UnixMs,
    /// How long it took, in milliseconds.
    pub ms: u64,
    /// How long the destination was suspended since the item's age counts, in milliseconds.
    pub suspended_ms: u64,
    /// The item is worthless after this.
    pub not_after: Option<UnixMs>,
    /// The clock cannot be trusted.
    pub clock_suspect: bool,
    /// 0 to 1000.
    pub jitter: u16,
}

/// The event of a finished attempt: the verdict after guarantees G6 and G7, the bounds on
/// attempts and age, and the cap on waits.
#[must_use]
pub fn attempt(policy: &Policy, verdict: &Verdict, outcome: &Outcome, s: &Settling<'_>) -> Event {
    let mut event = Event::new(EventKind::Attempt, s.at, verdict.state);
    event.n = Some(s.n);
    event.outcome = Some(outcome.kind());
    event.reason = Some(verdict.reason.clone());
    event.rule = Some(verdict.rule.clone());
    event.scope = (verdict.scope != super::event::Scope::Item).then_some(verdict.scope);
    event.receipt.clone_from(&verdict.receipt);
    event.note.clone_from(&verdict.raw);
    match outcome {
        Outcome::Answered(answer) => {
            event.ms = Some(s.ms);
            event.status = Some(answer.status);
            event.response = Some(ResponseNote {
                cut: answer.cut,
                bytes: u64::try_from(answer.body.len()).unwrap_or(u64::MAX),
                ..ResponseNote::default()
            });
        }
        Outcome::NotSent(failure) | Outcome::MaybeSent(failure) => {
            event.ms = Some(s.ms);
            if event.note.is_none() && !failure.detail.is_empty() {
                event.note = Some(failure.detail.clone());
            }
        }
        Outcome::Interrupted => event.claimed_at = Some(s.claimed_at),
    }

    let tests_prior = verdict.tests_prior && s.before.maybe_acted;
    let settled = verdict.state == State::Confirmed || (tests_prior && verdict.state.is_terminal());
    let maybe_acted = !settled
        && (s.before.maybe_acted || verdict.state == State::Unknown || verdict.maybe_acted);
    let attempts = s.before.attempts + u32::from(event.counts());
    // Our own death says nothing of the receiver: once, the repeat need not wait.
    let first_interruption =
        *outcome == Outcome::Interrupted && s.before.reason.as_ref() != Some(&Reason::INTERRUPTED);
    let wait_ms = if first_interruption {
        0
    } else {
        schedule::wait_ms(&policy.backoff, attempts.max(1), verdict.wait_ms, s.jitter)
    };
    let due = s.at.plus(wait_ms);
    let is_old =
        |since: UnixMs| s.at.since(since).saturating_sub(s.suspended_ms) >= policy.age_ms_max;
    // By a clock that leapt nothing ends.
    let spent = attempts >= policy.attempts_max
        || (!s.clock_suspect && s.before.aging_since.is_some_and(is_old));

    if maybe_acted {
        event.state = State::Unknown;
        event.due = None;
        if matches!(verdict.state, State::Pending | State::Unknown) && !verdict.maybe_acted {
            let first = s.before.first_sent_at.unwrap_or(s.claimed_at);
            let open = s.at >= s.before.updated_at
                && schedule::key_window_open(policy, first, s.at, due, s.clock_suspect);
            if !policy.may_repeat(s.method) {
                // Parked with the reason of the verdict: nothing makes a repeat harmless.
            } else if spent {
                event.reason = Some(Reason::EXHAUSTED);
            } else if !s.clock_suspect && s.not_after.is_some_and(|end| end <= due) {
                event.reason = Some(Reason::EXPIRED);
            } else if open {
                event.due = Some(due);
            } else {
                event.reason = Some(Reason::KEY_WINDOW_CLOSED);
            }
        }
        return event;
    }
    match verdict.state {
        State::Pending if spent => {
            event.state = State::Failed;
            event.note = Some(with_last_reason(event.note.take(), &verdict.reason));
            event.reason = Some(Reason::EXHAUSTED);
        }
        State::Pending if wait_ms > policy.wait_ms_max => {
            event.state = State::Held;
            event.due = Some(due);
        }
        State::Pending => event.due = Some(due),
        State::Held => event.due = verdict.wait_ms.map(|ms| s.at.plus(ms)),
        State::Unknown | State::Confirmed | State::Failed => {}
    }
    event
}

fn with_last_reason(note: Option<String>, reason: &Reason) -> String {
    match note {
        Some(note) => format!("last: {reason}: {note}"),
        None => format!("last: {reason}"),
    }
}

/// What becomes of an item when its turn comes, before it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It is sent.
    Send,
    /// It is not due yet; its file was in the wrong place.
    Wait,
    /// It ends, or is held or parked, with this event and without an attempt.
    Settle(Box<Event>),
}

/// Decides what an item's turn brings: expiry, staleness, the key window, or an attempt.
#[must_use]
pub fn turn(
    policy: &Policy,
    item: &Standing,
    method: &str,
    not_after: Option<UnixMs>,
    accepted_due: UnixMs,
    now: UnixMs,
    clock_suspect: bool,
) -> Turn {
    let end = |state, reason| {
        let mut event = Event::new(EventKind::Expired, now, state);
        event.reason = Some(reason);
        Turn::Settle(Box::new(event))
    };
    let over = not_after.is_some_and(|end| end <= now);
    if over && clock_suspect {
        // Nothing expires by a clock that may be wrong, and nothing is sent that may be worthless.
        return Turn::Wait;
    }
    if over {
        let state = if item.state == State::Unknown {
            State::Unknown
        } else {
            State::Failed
        };
        return end(state, Reason::EXPIRED);
    }
    if item.due.is_some_and(|due| due > now) {
        return Turn::Wait;
    }
    if item.maybe_acted || item.state == State::Unknown {
        let first = item.first_sent_at.unwrap_or(item.updated_at);
        if !policy.may_repeat(method) {
            return end(
                State::Unknown,
                item.reason.clone().unwrap_or(Reason::INTERRUPTED),
            );
        }
        if !schedule::key_window_open(policy, first, item.updated_at, now, clock_suspect) {
            return end(State::Unknown, Reason::KEY_WINDOW_CLOSED);
        }
        return Turn::Send;
    }
    let late = policy.stale_after_ms.is_some_and(|limit| {
        item.last_n == 0
            && now.since(item.due.unwrap_or(accepted_due).max(item.counting_since)) > limit
    });
    if late && !clock_suspect {
        let mut event = Event::new(EventKind::Held, now, State::Held);
        event.reason = Some(Reason::STALE);
        match policy.stale {
            super::policy::Stale::Send => {}
            super::policy::Stale::Hold => return Turn::Settle(Box::new(event)),
            super::policy::Stale::Fail => return end(State::Failed, Reason::STALE),
        }
    }
    Turn::Send
}

#[cfg(test)]
mod tests;
