//! An item file: reading it is total, damage takes events away and never adds one, and what was
//! read can be gone on with.

use std::collections::BTreeMap;

use tickpost::model::body::Body;
use tickpost::model::envelope::{Envelope, Request, Requester, VERSION, sha256_hex};
use tickpost::model::event::{Event, EventKind, Scope};
use tickpost::model::item::{Item, event_line};
use tickpost::model::outcome::OutcomeKind;
use tickpost::model::reason::Reason;
use tickpost::model::state::State;
use tickpost::model::time::UnixMs;
use tickpost::model::tombstone::{Tombstone, latest_time};

use super::{Target, pick};

/// See [`check`].
pub const TARGET: Target = Target {
    name: "item_file",
    check,
    seeds,
};

/// 2026-11-29T15:40:03.123Z.
const NOW: UnixMs = UnixMs(1_795_966_803_123);

/// Holds for any bytes.
///
/// # Panics
///
/// If it does not.
pub fn check(bytes: &[u8]) {
    // The SHA-256 of line 1 is not found by chance: the same with the right one.
    if let Some(mended) = with_sum(bytes) {
        check_as_it_is(&mended);
    }
    check_as_it_is(bytes);
}

fn check_as_it_is(bytes: &[u8]) {
    let parsed = match Item::parse(bytes) {
        Ok(parsed) => parsed,
        Err(damage) => {
            assert!(!damage.to_string().is_empty());
            return;
        }
    };
    let good = &bytes[..parsed.bytes_good];
    let events = parsed.item.events.len();
    let again = Item::parse(good).expect("the good part is good");
    assert_eq!(again, parsed, "the good part says the same");

    // Whatever an item says, something can be said of it.
    let standing = parsed.item.standing();
    let last = parsed.item.events.last().expect("there is always one");
    assert_eq!(standing.state, last.state);
    assert_eq!(standing.parked, last.is_parked());
    assert!(!standing.maybe_acted || standing.first_sent_at.is_some());
    for now in [UnixMs(0), NOW, UnixMs(u64::MAX)] {
        let due = parsed.item.is_due(now);
        assert!(
            !due || !standing.state.is_terminal(),
            "what is settled is never due"
        );
    }
    assert_eq!(
        parsed.item.turn().is_none(),
        standing.state.is_terminal()
            || (standing.state != State::Pending
                && standing.due.is_none()
                && (standing.state == State::Unknown || parsed.item.envelope.not_after.is_none()))
    );
    let tombstone = Tombstone::of(&parsed.item, NOW);
    assert_eq!(tombstone.is_some(), standing.state.is_terminal());
    if let Some(tombstone) = tombstone {
        assert_eq!(
            Tombstone::parse(&tombstone.line().unwrap()),
            Some(tombstone)
        );
    }
    assert!(latest_time(&parsed.item) >= standing.updated_at);

    // As a store goes on with it: cut to what is good, and one event more.
    let mut next = Event::new(EventKind::Attempt, NOW, State::Unknown);
    next.n = Some(standing.last_n.saturating_add(1));
    let line = event_line(&next).unwrap();
    let longer = [good, &line].concat();
    let more = Item::parse(&longer).expect("one event more");
    assert_eq!(more.bytes_good, longer.len());
    assert_eq!(more.item.events[..events], parsed.item.events);
    assert_eq!(more.item.events[events..], [next]);
    // Torn at any place, or followed by zeros, it is the item without that event.
    let cut = pick(bytes, 0, line.len());
    let torn = &longer[..good.len() + cut];
    for tail in [&[][..], &[0; 9], b"\0\n"] {
        let torn = Item::parse(&[torn, tail].concat()).expect("a tail that a crash left");
        assert_eq!(
            (torn.item.events.len(), torn.bytes_good),
            (events, good.len())
        );
    }
    // Neither a flipped bit nor a cut makes anything of what was not there.
    for salt in 1..4 {
        let mut damaged = good.to_vec();
        let at = pick(bytes, salt, damaged.len() * 8);
        damaged[at / 8] ^= 1 << (at % 8);
        for damaged in [&damaged[..], &good[..at / 8]] {
            if let Ok(found) = Item::parse(damaged) {
                assert!(found.item.events.len() <= events);
                assert_eq!(
                    found.item.envelope, parsed.item.envelope,
                    "line 1 has its sum"
                );
            }
        }
    }
}

/// The same with the SHA-256 of line 1 in line 2, if line 2 is an event.
fn with_sum(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut lines = bytes.splitn(3, |b| *b == b'\n');
    let (first, second, rest) = (lines.next()?, lines.next()?, lines.next()?);
    let mut accepted: Event = serde_json::from_slice(second).ok()?;
    accepted.envelope_sha256 = Some(sha256_hex(first));
    Some([first, b"\n", &event_line(&accepted).ok()?, rest].concat())
}

/// An item with something of everything.
pub(super) fn item() -> (Item, Vec<u8>) {
    let body = "{\"amount\":5}";
    let envelope = Envelope {
        v: VERSION,
        request_id: "019adf3e-6b6b-7cc3-98f2-3a1c5d2e8f10".parse().unwrap(),
        destination: "billing".parse().unwrap(),
        enqueued_at: NOW,
        request: Request {
            method: "POST".to_owned(),
            path: "/v1/charges".to_owned(),
            query: vec![("expand".to_owned(), "x".to_owned())],
            headers: vec![("X-Trace".to_owned(), "7".to_owned())],
            content_type: Some("application/json".to_owned()),
            body_sha256: sha256_hex(body.as_bytes()),
            body: Some(Body::Text(body.to_owned())),
        },
        requester: Requester {
            principal: Some("alice".to_owned()),
            thread: Some("deploy-42".to_owned()),
        },
        notify: vec!["ops".parse().unwrap()],
        labels: BTreeMap::from([("env".to_owned(), "prod".to_owned())]),
        key: Some("invoice-17".to_owned()),
        retry_of: None,
        not_before: Some(NOW),
        not_after: Some(NOW.plus(86_400_000)),
        notice: false,
    };
    Item::accept(
        envelope,
        Event::new(EventKind::Accepted, NOW, State::Pending),
    )
    .unwrap()
}

fn attempt(n: u32, state: State, outcome: OutcomeKind, reason: Reason) -> Event {
    let mut event = Event::new(EventKind::Attempt, NOW.plus(u64::from(n) * 60_000), state);
    event.n = Some(n);
    event.ms = Some(31);
    event.outcome = Some(outcome);
    event.reason = Some(reason);
    event.rule = Some("default/503".to_owned());
    event
}

fn seeds() -> Vec<Vec<u8>> {
    let (_, bytes) = item();
    let mut refused = attempt(1, State::Pending, OutcomeKind::Answered, Reason::OVERLOADED);
    refused.due = Some(NOW.plus(90_000));
    refused.scope = Some(Scope::Destination);
    refused.status = Some(503);
    let lost = attempt(
        2,
        State::Unknown,
        OutcomeKind::MaybeSent,
        Reason::TIMEOUT_AFTER_SEND,
    );
    let mut resolved = Event::new(EventKind::Resolved, NOW.plus(200_000), State::Pending);
    resolved.by = Some("alice(1000)".to_owned());
    let mut done = attempt(3, State::Confirmed, OutcomeKind::Answered, Reason::ACCEPTED);
    done.receipt = Some("ch_1".to_owned());
    let mut seeds = vec![bytes.clone()];
    let mut whole = bytes;
    for event in [refused, lost, resolved, done] {
        whole.extend(event_line(&event).unwrap());
        seeds.push(whole.clone());
    }
    seeds.push(whole[..whole.len() - 9].to_vec());
    seeds.push([&whole[..], &[0; 32]].concat());
    let blocks = super::examples("json").into_iter().map(String::into_bytes);
    seeds.extend(blocks.filter(|block| block.starts_with(b"{\"v\":1")));
    seeds
}
