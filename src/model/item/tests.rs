#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;

use super::super::envelope::{Request, Requester};
use super::super::event::Scope;
use super::super::outcome::OutcomeKind;
use super::*;
use State::{Confirmed, Failed, Held, Pending, Unknown};

type Times = Option<UnixMs>;

const ID: &str = "019adf3e-6b6b-7cc3-98f2-3a1c5d2e8f10";
const OTHER: &str = "019adf3e-6b6b-7cc3-98f2-3a1c5d2e8f11";

fn at(ms: u64) -> UnixMs {
    UnixMs(1_000_000).plus(ms)
}

fn envelope() -> Envelope {
    Envelope {
        v: VERSION,
        request_id: ID.parse().unwrap(),
        destination: "billing".parse().unwrap(),
        enqueued_at: at(0),
        request: Request {
            method: "POST".to_owned(),
            path: "/x".to_owned(),
            query: vec![],
            headers: vec![],
            content_type: None,
            body_sha256: sha256_hex(b"{}"),
            body: Some(Body::Text("{}".to_owned())),
        },
        requester: Requester::default(),
        notify: vec![],
        labels: BTreeMap::new(),
        key: None,
        retry_of: None,
        not_before: None,
        not_after: None,
        notice: false,
    }
}

fn event(kind: EventKind, ms: u64, state: State) -> Event {
    Event::new(kind, at(ms), state)
}

/// An attempt that took a second, and was answered.
fn attempt(n: u32, ms: u64, state: State) -> Event {
    let mut event = event(EventKind::Attempt, ms, state);
    (event.n, event.ms) = (Some(n), Some(1_000));
    event.outcome = Some(OutcomeKind::Answered);
    event
}

/// An item with these events after its acceptance, and its file.
fn item(envelope: Envelope, events: &[Event]) -> (Item, Vec<u8>) {
    let (mut item, mut bytes) =
        Item::accept(envelope, event(EventKind::Accepted, 0, Pending)).unwrap();
    for event in events {
        bytes.extend(event_line(event).unwrap());
        item.events.push(event.clone());
    }
    (item, bytes)
}

fn two_events() -> [Event; 2] {
    let mut refused = attempt(1, 60_000, Pending);
    refused.due = Some(at(120_000));
    [refused, attempt(2, 120_000, Confirmed)]
}

#[test]
fn a_file_is_its_lines() {
    let (item, bytes) = item(envelope(), &two_events());
    assert_eq!(bytes.split_inclusive(|b| *b == b'\n').count(), 4);
    assert!(bytes.ends_with(b"\n"));
    let first = bytes.split(|b| *b == b'\n').next().unwrap();
    let sum = item.events[0].envelope_sha256.as_deref();
    assert_eq!(sum, Some(sha256_hex(first).as_str()), "of line 1 alone");
    let parsed = Item::parse(&bytes).unwrap();
    assert_eq!((parsed.item, parsed.bytes_good), (item, bytes.len()));
}

#[test]
fn what_a_crash_leaves_behind_the_good_lines_is_no_event() {
    let (whole, bytes) = item(envelope(), &two_events());
    let (_, shorter) = item(envelope(), &two_events()[..1]);
    let events = |bytes: &[u8]| -> (usize, usize) {
        let parsed = Item::parse(bytes).unwrap();
        (parsed.item.events.len(), parsed.bytes_good)
    };
    for cut in shorter.len()..bytes.len() {
        assert_eq!(events(&bytes[..cut]), (2, shorter.len()), "cut at {cut}");
        let mut zeros = bytes[..cut].to_vec();
        zeros.resize(bytes.len() + 100, 0);
        assert_eq!(events(&zeros), (2, shorter.len()), "zeros from {cut}");
        // Zeros for what was not written, and the newline that was.
        zeros.push(b'\n');
        assert_eq!(
            events(&zeros),
            (2, shorter.len()),
            "zeros from {cut}, a line"
        );
    }
    for tail in [&b"\n"[..], b" \n\n", b"\0", b"\0\n", b"x"] {
        let bytes = [&bytes[..], tail].concat();
        assert_eq!(
            events(&bytes),
            (whole.events.len(), bytes.len() - tail.len())
        );
    }
}

#[test]
fn damage_within_is_told_by_its_line() {
    let (_, bytes) = item(envelope(), &two_events());
    let line = |n: usize| bytes.split_inclusive(|b| *b == b'\n').nth(n - 1).unwrap();
    let (one, two, three, four) = (line(1), line(2), line(3), line(4));
    let file = |lines: &[&[u8]]| Item::parse(&lines.concat()).unwrap_err();
    assert_eq!(Item::parse(b""), Err(Damage::Empty));
    assert_eq!(file(&[&one[..one.len() - 1]]), Damage::Cut);
    assert!(matches!(file(&[b"{}\n", two]), Damage::Envelope(_)));
    // A line that was written to its end was an event once.
    assert_eq!(file(&[one, b"x\n", two]), Damage::Line(2));
    assert_eq!(file(&[one, two, b"{}\n"]), Damage::Line(3));
    assert_eq!(
        file(&[one, two, three, b"{\"event\":1}\n", four]),
        Damage::Line(4)
    );
    // A hole with good lines behind it was no crash.
    assert_eq!(file(&[one, two, b"\0\0\n", four]), Damage::Middle(3));
    assert_eq!(
        file(&[one, two, three, b"\n", b"\0\n", four]),
        Damage::Middle(4)
    );
    // Line 2 is always the acceptance.
    assert_eq!(file(&[one]), Damage::NotAccepted);
    assert_eq!(file(&[one, three]), Damage::NotAccepted);
    assert_eq!(file(&[one, &two[..two.len() - 1]]), Damage::NotAccepted);
    // A flipped bit in line 1 that is still an envelope.
    let mended = String::from_utf8(one.to_vec()).unwrap().replace("/x", "/y");
    assert_eq!(file(&[mended.as_bytes(), two]), Damage::EnvelopeHash);
    let bare = event_line(&event(EventKind::Accepted, 0, Pending)).unwrap();
    assert_eq!(file(&[one, &bare]), Damage::EnvelopeHash);
    // Every damage has its words.
    for damage in [
        Damage::Empty,
        Damage::Cut,
        Damage::NotAccepted,
        Damage::BodyHash,
    ] {
        assert!(!damage.to_string().is_empty());
    }
}

#[test]
fn a_body_is_that_which_was_accepted() {
    let parse = |change: fn(&mut Envelope)| {
        let mut envelope = envelope();
        change(&mut envelope);
        let (_, bytes) = item(envelope, &[]);
        Item::parse(&bytes).map(|parsed| parsed.item.envelope.request.body)
    };
    let other = parse(|envelope| envelope.request.body = Some(Body::Text("x".to_owned())));
    assert_eq!(other, Err(Damage::BodyHash));
    let none = parse(|envelope| envelope.request.body = None);
    assert_eq!(none, Err(Damage::BodyHash));
    let no_base64 = parse(|envelope| envelope.request.body = Some(Body::Base64("?".to_owned())));
    assert_eq!(no_base64, Err(Damage::BodyHash));
    let own = parse(|envelope| {
        let id = envelope.request_id;
        envelope.request.body = Some(Body::File { id, bytes: 9 });
    });
    assert!(own.is_ok(), "one in a file is looked at when it is sent");
    let foreign = parse(|envelope| {
        let id = OTHER.parse().unwrap();
        envelope.request.body = Some(Body::File { id, bytes: 9 });
    });
    assert_eq!(foreign, Err(Damage::BodyFile));
}

#[test]
fn a_newer_format_is_told_from_damage() {
    let (_, bytes) = item(envelope(), &[]);
    let text = String::from_utf8(bytes).unwrap();
    let with = |v: &str| Item::parse(text.replace("\"v\":1", v).as_bytes()).unwrap_err();
    assert_eq!(with("\"v\":2"), Damage::Newer(2));
    assert!(matches!(with("\"v\":0"), Damage::Envelope(_)));
    // Also where nothing else of it can be read.
    assert_eq!(
        Item::parse(b"{\"v\":7,\"what\":1}\n"),
        Err(Damage::Newer(7))
    );
    for old in [
        "{\"v\":1}\n",
        "{\"v\":0}\n",
        "{\"v\":-1}\n",
        "[]\n",
        "{\"v\":\"2\"}\n",
    ] {
        let damage = Item::parse(old.as_bytes()).unwrap_err();
        assert!(matches!(damage, Damage::Envelope(_)), "{old}: {damage}");
    }
}

#[test]
fn an_item_lies_where_it_says() {
    let (item, _) = item(envelope(), &[]);
    let own: RequestId = ID.parse().unwrap();
    assert_eq!(item.check_place("billing", own), Ok(()));
    let misplaced = |inside: &str, outside: &str| {
        Err(Damage::Misplaced {
            inside: inside.to_owned(),
            outside: outside.to_owned(),
        })
    };
    let got = item.check_place("billing", OTHER.parse().unwrap());
    assert_eq!(got, misplaced(ID, OTHER));
    assert_eq!(
        item.check_place("other", own),
        misplaced("billing", "other")
    );
}

#[test]
fn a_new_item_stands_as_it_was_accepted() {
    let (item, _) = item(envelope(), &[]);
    let want = Standing {
        state: Pending,
        reason: None,
        due: None,
        parked: false,
        maybe_acted: false,
        attempts: 0,
        last_n: 0,
        counting_since: at(0),
        aging_since: None,
        first_sent_at: None,
        maybe_since: None,
        updated_at: at(0),
        receipt: None,
    };
    assert_eq!(item.standing(), want);
    assert_eq!(
        Item {
            events: vec![],
            ..item
        }
        .standing(),
        want,
        "total"
    );
}

#[test]
fn attempts_add_up() {
    let mut lost = attempt(1, 60_000, Unknown);
    lost.due = Some(at(120_000));
    lost.reason = Some(Reason::TIMEOUT_AFTER_SEND);
    let mut refused = attempt(2, 120_000, Pending);
    refused.outcome = Some(OutcomeKind::NotSent);
    refused.scope = Some(Scope::Destination);
    let mut done = attempt(7, 180_000, Confirmed);
    done.receipt = Some("ch_1".to_owned());
    let after = |events: &[Event]| item(envelope(), events).0.standing();

    let one = after(std::slice::from_ref(&lost));
    assert_eq!(
        (one.state, one.maybe_acted, one.parked),
        (Unknown, true, false)
    );
    assert_eq!((one.attempts, one.last_n), (1, 1));
    assert_eq!(one.first_sent_at, Some(at(59_000)), "it took a second");
    assert_eq!((one.due, one.updated_at), (Some(at(120_000)), at(60_000)));
    assert_eq!(one.reason, Some(Reason::TIMEOUT_AFTER_SEND));

    let two = after(&[lost.clone(), refused.clone()]);
    assert_eq!(
        (two.attempts, two.last_n),
        (1, 2),
        "it was not sent, to anybody"
    );
    assert_eq!(two.first_sent_at, Some(at(59_000)), "the first one counts");
    assert_eq!((two.due, two.reason, two.maybe_acted), (None, None, false));

    let three = after(&[lost, refused, done]);
    assert_eq!(
        (three.attempts, three.last_n),
        (2, 7),
        "by the event's number"
    );
    assert_eq!(three.receipt.as_deref(), Some("ch_1"));
    assert_eq!(three.counting_since, at(0));
    assert_eq!(three.aging_since, two.aging_since, "from the first on");
}

#[test]
fn an_attempt_of_which_little_is_known_began_as_early_as_it_can_have() {
    let bare = event(EventKind::Attempt, 60_000, Unknown);
    let mut claimed = bare.clone();
    (claimed.claimed_at, claimed.ms) = (Some(at(50_000)), Some(1));
    let first = |event: Event| item(envelope(), &[event]).0.standing().first_sent_at;
    assert_eq!(first(claimed), Some(at(50_000)), "the claim");
    assert_eq!(first(bare.clone()), Some(at(0)), "the event before it");
    let twice = item(envelope(), &[bare.clone(), bare.clone()]).0.standing();
    assert_eq!((twice.last_n, twice.attempts), (2, 2), "numbered on");
    let mut last = bare.clone();
    last.n = Some(u32::MAX);
    let standing = item(envelope(), &[last, bare]).0.standing();
    assert_eq!(standing.last_n, u32::MAX, "a number that a person wrote");
}

#[test]
fn what_people_and_times_do_to_it() {
    let mut lost = attempt(1, 60_000, Unknown);
    lost.receipt = Some("ch_1".to_owned());
    let rows = [
        // What, state, maybe-acted after it, counted anew.
        (EventKind::Released, Pending, true, true),
        (EventKind::Retried, Pending, true, true),
        (EventKind::Resolved, Pending, false, true),
        (EventKind::Held, Unknown, true, false),
        (EventKind::Cancelled, Failed, true, false),
        (EventKind::Expired, Unknown, true, false),
        (EventKind::Recovered, Unknown, true, false),
        (EventKind::Accepted, Pending, true, false),
    ];
    for (kind, state, maybe_acted, anew) in rows {
        let mut next = event(kind, 90_000, state);
        next.reason = Some(Reason::OPERATOR);
        let standing = item(envelope(), &[lost.clone(), next]).0.standing();
        assert_eq!(standing.state, state, "{kind:?}");
        assert_eq!(standing.maybe_acted, maybe_acted, "{kind:?}");
        assert_eq!(standing.attempts, u32::from(!anew), "{kind:?}");
        let since = if anew { at(90_000) } else { at(0) };
        assert_eq!(standing.counting_since, since, "{kind:?}");
        let aging = (!anew).then_some(at(60_000));
        assert_eq!(standing.aging_since, aging, "{kind:?}");
        assert_eq!(
            (standing.last_n, standing.updated_at),
            (1, at(90_000)),
            "{kind:?}"
        );
        assert_eq!(standing.first_sent_at, Some(at(59_000)), "never forgotten");
        assert_eq!(standing.receipt.as_deref(), Some("ch_1"), "nor that");
        assert_eq!(standing.reason, Some(Reason::OPERATOR), "{kind:?}");
        assert_eq!(standing.parked, state == Unknown, "{kind:?}");
    }
}

#[test]
fn when_its_turn_comes() {
    let (due, early, late) = (Some(at(500)), Some(at(400)), Some(at(600)));
    let own = Some(at(0));
    // State, the event's due, not_before, not_after: due, turn.
    let rows: [(State, Times, Times, Times, Times, Times); 17] = [
        (Pending, None, None, None, None, own),
        (Pending, None, None, late, None, own),
        (Pending, None, late, None, late, late),
        (Pending, None, late, due, late, due),
        (Pending, due, late, None, due, due),
        (Pending, due, None, early, due, early),
        (Pending, due, None, late, due, due),
        (Unknown, None, late, None, None, None),
        (Unknown, None, None, late, None, None),
        (Unknown, due, None, None, due, due),
        (Unknown, due, None, early, due, early),
        (Held, None, early, None, None, None),
        (Held, None, None, late, None, late),
        (Held, due, None, early, due, early),
        (Held, due, None, late, due, due),
        (Confirmed, None, late, late, None, None),
        (Failed, due, None, late, due, None),
    ];
    for (state, of_event, not_before, not_after, want_due, want_turn) in rows {
        let mut item = item(envelope(), &[]).0;
        (item.envelope.not_before, item.envelope.not_after) = (not_before, not_after);
        let mut last = event(EventKind::Recovered, 0, state);
        last.due = of_event;
        let what = format!("{state} {of_event:?} {not_before:?} {not_after:?}");
        assert_eq!(due_after(&item.envelope, &last), want_due, "{what}");
        assert_eq!(turn_after(&item.envelope, &last), want_turn, "{what}");
        item.events.push(last);
        assert_eq!(item.standing().due, want_due, "{what}");
        assert_eq!(item.turn(), want_turn, "{what}");
        let timeless = state == Pending && want_due.is_none();
        for now in [
            UnixMs(0),
            at(0),
            at(399),
            at(400),
            at(499),
            at(500),
            at(700),
        ] {
            let due = timeless || want_turn.is_some_and(|turn| turn <= now);
            assert_eq!(item.is_due(now), due, "{what} at {now}");
        }
    }
}
