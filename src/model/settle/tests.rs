#![expect(clippy::unwrap_used, reason = "a test may panic")]

use super::super::event::Scope;
use super::super::outcome::{Answer, OutcomeKind, TransportClass};
use super::super::policy::{Backoff, Dedupe, OnUnknown, Stale};
use super::*;
use State::{Confirmed, Failed, Held, Pending, Unknown};

type Change = fn(&mut Policy, &mut Standing, &mut Settling<'static>);

const MINUTE: u64 = 60_000;

/// The item was accepted an hour ago, first sent half an hour ago, and now an attempt ends.
const ACCEPTED: UnixMs = UnixMs(1_000_000_000);
const FIRST: UnixMs = UnixMs(ACCEPTED.0 + 30 * MINUTE);
const NOW: UnixMs = UnixMs(ACCEPTED.0 + 60 * MINUTE);

/// Waits of one minute, two, four and so on; sent again for a day.
fn policy() -> Policy {
    Policy {
        on_unknown: OnUnknown::Resend,
        dedupe: Dedupe::Key,
        key_window_ms: Some(24 * 60 * MINUTE),
        total_timeout_ms: MINUTE,
        backoff: Backoff {
            base_ms: MINUTE,
            factor: 2.0,
            max_ms: 60 * MINUTE,
        },
        attempts_max: 10,
        age_ms_max: 48 * 60 * MINUTE,
        wait_ms_max: 120 * MINUTE,
        stale_after_ms: None,
        stale: Stale::Send,
    }
}

/// Sent once, and certainly not acted on.
fn pending() -> Standing {
    Standing {
        state: Pending,
        reason: Some(Reason::OVERLOADED),
        due: Some(NOW),
        parked: false,
        maybe_acted: false,
        attempts: 1,
        last_n: 1,
        counting_since: ACCEPTED,
        aging_since: Some(ACCEPTED),
        first_sent_at: Some(FIRST),
        maybe_since: None,
        updated_at: FIRST,
        receipt: None,
    }
}

/// Sent once, and perhaps acted on.
fn maybe() -> Standing {
    Standing {
        state: Unknown,
        reason: Some(Reason::TIMEOUT_AFTER_SEND),
        maybe_acted: true,
        maybe_since: Some(FIRST),
        ..pending()
    }
}

fn settling(before: &Standing) -> Settling<'_> {
    Settling {
        before,
        method: "POST",
        n: before.last_n + 1,
        claimed_at: NOW.minus(31),
        at: NOW,
        ms: 31,
        suspended_ms: 0,
        not_after: None,
        clock_suspect: false,
        jitter: 0,
    }
}

fn verdict(state: State) -> Verdict {
    Verdict {
        state,
        reason: Reason::TRANSIENT,
        rule: "default/x".to_owned(),
        scope: Scope::Item,
        wait_ms: None,
        raw: None,
        action: None,
        receipt: None,
        tests_prior: false,
        maybe_acted: false,
    }
}

fn answered(status: u16) -> Outcome {
    Outcome::Answered(Answer {
        status,
        body: b"four".to_vec(),
        ..Answer::default()
    })
}

/// How it goes on: state, reason, and how long until it is due.
fn settled(policy: &Policy, verdict: &Verdict, s: &Settling<'_>) -> (State, Reason, Option<u64>) {
    let event = attempt(policy, verdict, &answered(500), s);
    let wait = event.due.map(|due| due.since(s.at));
    (event.state, event.reason.unwrap(), wait)
}

#[test]
fn what_may_have_been_acted_on_stays_unknown_until_somebody_knows() {
    let rows = [
        // Verdict, it tests the history, before: not acted on, before: perhaps acted on.
        (Confirmed, false, Confirmed, Confirmed),
        (Confirmed, true, Confirmed, Confirmed),
        (Pending, false, Pending, Unknown),
        (Pending, true, Pending, Unknown),
        (Unknown, false, Unknown, Unknown),
        (Unknown, true, Unknown, Unknown),
        (Held, false, Held, Unknown),
        (Held, true, Held, Unknown),
        (Failed, false, Failed, Unknown),
        (Failed, true, Failed, Failed),
    ];
    for (state, tests_prior, clean, acted) in rows {
        let mut verdict = verdict(state);
        verdict.tests_prior = tests_prior;
        for (before, want) in [(pending(), clean), (maybe(), acted)] {
            let (got, reason, wait) = settled(&policy(), &verdict, &settling(&before));
            let what = format!("{state} {tests_prior} {}", before.maybe_acted);
            assert_eq!((got, reason), (want, Reason::TRANSIENT), "{what}");
            // Held and failed say that a person is needed: then it is parked, not sent again.
            let again = matches!(state, Pending | Unknown);
            assert_eq!(wait.is_some(), again, "{what}");
        }
    }
}

#[test]
fn a_hold_that_cannot_know_makes_it_perhaps_acted_on() {
    for before in [pending(), maybe()] {
        let held = Verdict {
            maybe_acted: true,
            wait_ms: Some(MINUTE),
            ..verdict(Held)
        };
        let got = settled(&policy(), &held, &settling(&before));
        assert_eq!(got, (Unknown, Reason::TRANSIENT, None), "parked");
        // A rule that says when all the same is not believed either.
        let pending = Verdict {
            maybe_acted: true,
            ..verdict(Pending)
        };
        let got = settled(&policy(), &pending, &settling(&before));
        assert_eq!(got, (Unknown, Reason::TRANSIENT, None), "parked");
    }
}

#[test]
fn waits_grow_with_the_attempts_that_count() {
    let rows = [(0, 1), (1, 2), (2, 4), (3, 8), (6, 60)];
    for (attempts, minutes) in rows {
        let before = Standing {
            attempts,
            ..pending()
        };
        let got = settled(&policy(), &verdict(Pending), &settling(&before));
        let want = (Pending, Reason::TRANSIENT, Some(minutes * MINUTE));
        assert_eq!(got, want, "{attempts} before");
    }
    let before = maybe();
    let mut s = settling(&before);
    s.jitter = 1_000;
    let (_, _, wait) = settled(&policy(), &verdict(Unknown), &s);
    assert_eq!(wait, Some(3 * MINUTE), "half of it as jitter");

    // One that was certainly not sent, for a cause of the whole destination, does not count: it
    // waits as the first does, even where it is.
    let before = Standing {
        attempts: 0,
        ..pending()
    };
    let refused = Verdict {
        scope: Scope::Destination,
        ..verdict(Pending)
    };
    let outcome = Outcome::failed(TransportClass::ConnectRefused, "");
    let event = attempt(&policy(), &refused, &outcome, &settling(&before));
    assert_eq!(event.due, Some(NOW.plus(MINUTE)));
    assert!(!event.counts());
}

#[test]
fn a_wait_that_was_asked_for_is_kept_and_a_long_one_is_a_hold() {
    let before = pending();
    let asked = |ms, state| {
        let asked = Verdict {
            wait_ms: Some(ms),
            ..verdict(state)
        };
        settled(&policy(), &asked, &settling(&before))
    };
    let cap = policy().wait_ms_max;
    let reason = Reason::TRANSIENT;
    assert_eq!(
        asked(5 * MINUTE, Pending),
        (Pending, reason.clone(), Some(5 * MINUTE))
    );
    assert_eq!(asked(cap, Pending), (Pending, reason.clone(), Some(cap)));
    assert_eq!(
        asked(cap + 1, Pending),
        (Held, reason.clone(), Some(cap + 1))
    );
    // A hold that names a time ends then, however long it is.
    assert_eq!(asked(cap + 1, Held), (Held, reason.clone(), Some(cap + 1)));
    assert_eq!(asked(MINUTE, Held), (Held, reason, Some(MINUTE)));
}

#[test]
fn attempts_and_age_end() {
    let day = 24 * 60 * MINUTE;
    let young = |minutes| NOW.minus(minutes * MINUTE);
    let rows = [
        // Attempts before, aging since, suspended, spent?, why.
        (8, young(60), 0, false, "the ninth of ten"),
        (9, young(60), 0, true, "the tenth"),
        (1, NOW.minus(2 * day - 1), 0, false, "not yet two days"),
        (1, NOW.minus(2 * day), 0, true, "two days"),
        (
            1,
            NOW.minus(2 * day),
            1,
            false,
            "a suspension does not count",
        ),
        (1, NOW.minus(9 * day), 7 * day, true, "but the rest does"),
    ];
    for (attempts, aging_since, suspended_ms, spent, why) in rows {
        let ends = |before: Standing, state| {
            let before = Standing {
                attempts,
                aging_since: Some(aging_since),
                ..before
            };
            let mut s = settling(&before);
            s.suspended_ms = suspended_ms;
            let event = attempt(&policy(), &verdict(state), &answered(503), &s);
            assert_eq!(event.due.is_none(), spent, "{why}");
            (event.state, event.reason.unwrap())
        };
        let want = if spent {
            (Failed, Reason::EXHAUSTED)
        } else {
            (Pending, Reason::TRANSIENT)
        };
        assert_eq!(ends(pending(), Pending), want, "{why}");
        // What was perhaps acted on is parked with that reason, never failed.
        let want = if spent {
            (Unknown, Reason::EXHAUSTED)
        } else {
            (Unknown, Reason::TRANSIENT)
        };
        assert_eq!(ends(maybe(), Pending), want, "{why}");
        assert_eq!(ends(pending(), Unknown), want, "{why}");
    }
    // What waited for its first attempt that counts is not old, nor is anything by a clock that leapt.
    let old = Standing {
        counting_since: NOW.minus(9 * day),
        aging_since: Some(NOW.minus(9 * day)),
        ..pending()
    };
    let never = Standing {
        attempts: 0,
        aging_since: None,
        ..old.clone()
    };
    for (before, clock_suspect, state) in [
        (&old, false, Failed),
        (&old, true, Pending),
        (&never, false, Pending),
    ] {
        let mut s = settling(before);
        s.clock_suspect = clock_suspect;
        let event = attempt(&policy(), &verdict(Pending), &answered(503), &s);
        assert_eq!(event.state, state);
    }
    // Other verdicts stand, also after the last attempt.
    let last = Standing {
        attempts: 9,
        ..pending()
    };
    for state in [Confirmed, Held, Failed] {
        let got = settled(&policy(), &verdict(state), &settling(&last));
        assert_eq!(got, (state, Reason::TRANSIENT, None));
    }
}

#[test]
fn the_last_word_of_the_receiver_is_kept_when_attempts_end() {
    let last = Standing {
        attempts: 9,
        ..pending()
    };
    let note = |raw: Option<&str>| {
        let verdict = Verdict {
            raw: raw.map(str::to_owned),
            ..verdict(Pending)
        };
        let event = attempt(&policy(), &verdict, &answered(503), &settling(&last));
        event.note.unwrap()
    };
    assert_eq!(note(None), "last: transient");
    assert_eq!(note(Some("busy")), "last: transient: busy");
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn a_repeat_needs_a_key_that_is_still_known_and_a_clock_to_know_it_by() {
    let window = 24 * 60 * MINUTE;
    // The wait is two minutes and the margin one.
    let nearly = NOW.minus(window - 3 * MINUTE - 1);
    let over = NOW.minus(window - 3 * MINUTE);
    let nothing: &'static Standing = Box::leak(Box::new(pending()));
    let closed = (Reason::KEY_WINDOW_CLOSED, false);
    let again = (Reason::TRANSIENT, true);
    let rows: [(&str, UnixMs, Change, (Reason, bool)); 12] = [
        ("well within", FIRST, |_, _, _| {}, again.clone()),
        ("nearly over", nearly, |_, _, _| {}, again.clone()),
        ("over by then", over, |_, _, _| {}, closed.clone()),
        (
            "no end",
            UnixMs(0),
            |p, _, _| p.key_window_ms = None,
            again.clone(),
        ),
        (
            "the clock is suspect",
            FIRST,
            |_, _, s| s.clock_suspect = true,
            closed.clone(),
        ),
        (
            "the clock stands before its last event",
            FIRST,
            |_, b, _| b.updated_at = NOW.plus(1),
            closed,
        ),
        (
            "at its last event",
            FIRST,
            |_, b, _| b.updated_at = NOW,
            again.clone(),
        ),
        (
            "nothing makes a repeat harmless",
            FIRST,
            |p, _, _| p.on_unknown = OnUnknown::Park,
            (Reason::TRANSIENT, false),
        ),
        (
            "nor does the method",
            FIRST,
            |p, _, _| p.dedupe = Dedupe::IdempotentMethods,
            (Reason::TRANSIENT, false),
        ),
        (
            "PUT does",
            FIRST,
            |p, _, s| {
                p.dedupe = Dedupe::IdempotentMethods;
                s.method = "PUT";
            },
            again.clone(),
        ),
        (
            "worthless by then",
            FIRST,
            |_, _, s| s.not_after = Some(NOW.plus(2 * MINUTE)),
            (Reason::EXPIRED, false),
        ),
        (
            "worthless just after",
            FIRST,
            |_, _, s| s.not_after = Some(NOW.plus(2 * MINUTE + 1)),
            again,
        ),
    ];
    for (why, first, change, (reason, due)) in rows {
        for (state, acted) in [(Unknown, true), (Pending, true), (Unknown, false)] {
            let mut policy = policy();
            let mut before = Standing {
                first_sent_at: Some(first),
                ..if acted { maybe() } else { pending() }
            };
            let mut with = settling(nothing);
            change(&mut policy, &mut before, &mut with);
            let with = Settling {
                before: &before,
                ..with
            };
            let got = settled(&policy, &verdict(state), &with);
            let want = (Unknown, reason.clone(), due.then_some(2 * MINUTE));
            assert_eq!(got, want, "{why}: {state}");
        }
    }
    // By a suspect clock nothing expires: the window closes.
    let before = maybe();
    let mut s = settling(&before);
    (s.clock_suspect, s.not_after) = (true, Some(NOW));
    let got = settled(&policy(), &verdict(Unknown), &s);
    assert_eq!(got, (Unknown, Reason::KEY_WINDOW_CLOSED, None));
    // What is spent, expired and closed at once says the first.
    let before = Standing {
        attempts: 9,
        first_sent_at: Some(over),
        ..maybe()
    };
    let mut s = settling(&before);
    s.not_after = Some(NOW);
    assert_eq!(
        settled(&policy(), &verdict(Unknown), &s).1,
        Reason::EXHAUSTED
    );
}

#[test]
fn a_first_attempt_counts_the_window_from_its_own_claim() {
    let before = Standing {
        first_sent_at: None,
        ..pending()
    };
    let mut s = settling(&before);
    let window = policy().key_window_ms.unwrap();
    s.claimed_at = NOW.minus(window - 3 * MINUTE - 1);
    let again = settled(&policy(), &verdict(Unknown), &s);
    assert_eq!(again.2, Some(2 * MINUTE));
    s.claimed_at = NOW.minus(window - 3 * MINUTE);
    let closed = settled(&policy(), &verdict(Unknown), &s);
    assert_eq!(closed, (Unknown, Reason::KEY_WINDOW_CLOSED, None));
}

#[test]
fn our_own_death_is_made_good_at_once_but_only_once() {
    let interrupted = Verdict {
        reason: Reason::INTERRUPTED,
        ..verdict(Unknown)
    };
    let twice = Standing {
        reason: Some(Reason::INTERRUPTED),
        ..maybe()
    };
    for (before, want) in [(pending(), 0), (maybe(), 0), (twice, 2 * MINUTE)] {
        let mut s = settling(&before);
        s.jitter = 0;
        let event = attempt(&policy(), &interrupted, &Outcome::Interrupted, &s);
        assert_eq!(event.due, Some(NOW.plus(want)), "{before:?}");
        assert_eq!(event.claimed_at, Some(s.claimed_at), "when, it began");
        assert_eq!((event.ms, event.status), (None, None));
        assert_eq!(event.outcome, Some(OutcomeKind::Interrupted));
        // The same verdict on an answer waits.
        let event = attempt(&policy(), &interrupted, &answered(500), &s);
        assert_eq!(event.due, Some(NOW.plus(2 * MINUTE)));
    }
}

#[test]
fn the_event_says_what_was_seen() {
    let before = pending();
    let s = settling(&before);
    let full = Verdict {
        scope: Scope::Group,
        raw: Some("card_declined".to_owned()),
        receipt: Some("ch_1".to_owned()),
        ..verdict(Confirmed)
    };
    let mut answer = Answer {
        status: 201,
        body: b"four".to_vec(),
        ..Answer::default()
    };
    for cut in [false, true] {
        answer.cut = cut;
        let event = attempt(&policy(), &full, &Outcome::Answered(answer.clone()), &s);
        assert_eq!(
            (event.event, event.at, event.n),
            (EventKind::Attempt, NOW, Some(2))
        );
        assert_eq!((event.status, event.ms), (Some(201), Some(31)));
        assert_eq!(event.outcome, Some(OutcomeKind::Answered));
        assert_eq!(event.rule.as_deref(), Some("default/x"));
        assert_eq!(event.scope, Some(Scope::Group));
        assert_eq!(event.receipt.as_deref(), Some("ch_1"));
        assert_eq!(event.note.as_deref(), Some("card_declined"));
        assert_eq!((event.claimed_at, event.by), (None, None));
        let response = event.response.unwrap();
        assert_eq!((response.bytes, response.cut), (4, cut));
    }
    // Of a failure there is no response: the cause in words is the note, if there is no better.
    let rows = [
        (None, "refused", Some("refused")),
        (None, "", None),
        (Some("said"), "refused", Some("said")),
    ];
    for class in [
        TransportClass::ConnectRefused,
        TransportClass::ResetAfterSend,
    ] {
        for (raw, detail, note) in rows {
            let verdict = Verdict {
                raw: raw.map(str::to_owned),
                ..verdict(Unknown)
            };
            let event = attempt(&policy(), &verdict, &Outcome::failed(class, detail), &s);
            assert_eq!(event.note.as_deref(), note, "{raw:?} {detail}");
            assert_eq!((event.ms, event.status), (Some(31), None));
            assert_eq!((event.response, event.scope), (None, None));
        }
    }
}

/// A turn at `NOW` of an item that was accepted for then.
fn turn_of(policy: &Policy, item: &Standing, not_after: Option<UnixMs>, suspect: bool) -> Turn {
    turn(policy, item, "POST", not_after, ACCEPTED, NOW, suspect)
}

/// What a turn without an attempt says.
fn ended(turn: Turn) -> (EventKind, State, Reason) {
    let Turn::Settle(event) = turn else {
        panic!("it was not settled: {turn:?}");
    };
    assert_eq!((event.at, event.due), (NOW, None));
    (event.event, event.state, event.reason.unwrap())
}

#[test]
fn a_turn_comes_when_it_is_due_and_ends_what_is_worthless() {
    let fresh = Standing {
        due: None,
        ..pending()
    };
    let early = Standing {
        due: Some(NOW.plus(1)),
        ..pending()
    };
    let usual = policy();
    assert_eq!(turn_of(&usual, &fresh, None, false), Turn::Send, "no time");
    assert_eq!(turn_of(&usual, &pending(), None, false), Turn::Send, "now");
    assert_eq!(turn_of(&usual, &early, None, false), Turn::Wait, "later");
    for item in [fresh, early, pending()] {
        let later = turn_of(&usual, &item, Some(NOW.plus(1)), true);
        assert_ne!(ended_or(&later), Some(Reason::EXPIRED), "not over yet");
        let over = turn_of(&usual, &item, Some(NOW), false);
        assert_eq!(ended(over), (EventKind::Expired, Failed, Reason::EXPIRED));
        // By a clock that may be wrong nothing expires, and nothing is sent.
        assert_eq!(turn_of(&usual, &item, Some(NOW), true), Turn::Wait);
    }
    let over = turn_of(&usual, &maybe(), Some(NOW), false);
    assert_eq!(ended(over), (EventKind::Expired, Unknown, Reason::EXPIRED));
    let suspect = turn_of(&usual, &pending(), None, true);
    assert_eq!(suspect, Turn::Send, "what has no end is sent by any clock");
}

fn ended_or(turn: &Turn) -> Option<Reason> {
    match turn {
        Turn::Settle(event) => event.reason.clone(),
        Turn::Send | Turn::Wait => None,
    }
}

#[test]
fn a_turn_repeats_only_what_may_be_repeated() {
    let usual = policy();
    assert_eq!(turn_of(&usual, &maybe(), None, false), Turn::Send);
    let park = Policy {
        on_unknown: OnUnknown::Park,
        ..policy()
    };
    let parks = |policy: &Policy, item: &Standing, suspect, reason: &Reason| {
        let got = ended(turn_of(policy, item, None, suspect));
        assert_eq!(
            got,
            (EventKind::Expired, Unknown, reason.clone()),
            "{item:?}"
        );
    };
    parks(&park, &maybe(), false, &Reason::TIMEOUT_AFTER_SEND);
    let silent = Standing {
        reason: None,
        ..maybe()
    };
    parks(&park, &silent, false, &Reason::INTERRUPTED);
    // Either sign is enough: the place, or the flag.
    let placed = Standing {
        maybe_acted: false,
        ..maybe()
    };
    parks(&park, &placed, false, &Reason::TIMEOUT_AFTER_SEND);
    let flagged = Standing {
        state: Pending,
        ..maybe()
    };
    parks(&park, &flagged, false, &Reason::TIMEOUT_AFTER_SEND);
    assert_eq!(turn_of(&park, &pending(), None, false), Turn::Send);

    parks(&usual, &maybe(), true, &Reason::KEY_WINDOW_CLOSED);
    let window = usual.key_window_ms.unwrap();
    let since = |ms| Standing {
        first_sent_at: Some(NOW.minus(ms)),
        ..maybe()
    };
    parks(
        &usual,
        &since(window - MINUTE),
        false,
        &Reason::KEY_WINDOW_CLOSED,
    );
    let open = turn_of(&usual, &since(window - MINUTE - 1), None, false);
    assert_eq!(open, Turn::Send);
    // A claim that nothing is known of is at least as old as the last event.
    let unclaimed = Standing {
        first_sent_at: None,
        updated_at: NOW.minus(window),
        ..maybe()
    };
    parks(&usual, &unclaimed, false, &Reason::KEY_WINDOW_CLOSED);
    let ahead = Standing {
        updated_at: NOW.plus(1),
        ..maybe()
    };
    parks(&usual, &ahead, false, &Reason::KEY_WINDOW_CLOSED);
}

#[test]
fn a_first_attempt_that_is_far_too_late_is_stale() {
    let day = 24 * 60 * MINUTE;
    let never = Standing {
        attempts: 0,
        last_n: 0,
        first_sent_at: None,
        due: None,
        counting_since: UnixMs(0),
        aging_since: None,
        ..pending()
    };
    let stale = |stale, limit: Option<u64>| Policy {
        stale_after_ms: limit,
        stale,
        ..policy()
    };
    let hour = 60 * MINUTE;
    let hold = stale(Stale::Hold, Some(hour - 1));
    let got = ended(turn_of(&hold, &never, None, false));
    assert_eq!(got, (EventKind::Held, Held, Reason::STALE));
    let fail = stale(Stale::Fail, Some(hour - 1));
    let got = ended(turn_of(&fail, &never, None, false));
    assert_eq!(got, (EventKind::Expired, Failed, Reason::STALE));

    let sent = |policy: &Policy, item: &Standing, suspect, why: &str| {
        assert_eq!(turn_of(policy, item, None, suspect), Turn::Send, "{why}");
    };
    sent(
        &stale(Stale::Send, Some(1)),
        &never,
        false,
        "the owner wants it so",
    );
    sent(&stale(Stale::Hold, None), &never, false, "never stale");
    sent(
        &stale(Stale::Hold, Some(hour)),
        &never,
        false,
        "just in time",
    );
    sent(&hold, &never, true, "no clock to know it by");
    sent(&hold, &pending(), false, "it was tried before");
    let due = Standing {
        due: Some(NOW.minus(hour - 1)),
        ..never.clone()
    };
    sent(&hold, &due, false, "late counts from its own time");
    let released = Standing {
        counting_since: NOW.minus(hour - 1),
        ..never
    };
    sent(&hold, &released, false, "and from its release");
    assert!(day > hour);
}
