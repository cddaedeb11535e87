//! Whether an item lies where a tick, or a person, will find it in time. Pure.
//!
//! What the next tick puts right by itself is no fault here, but for a state that the events deny:
//! a tick looks only at destinations that it can send to.
//!
//! | place | is right if the item is | or else |
//! |---|---|---|
//! | `pending/D/` | pending, whatever its time: a tick files it | filed by its events |
//! | `pending/D/MINUTE`, `DAY` | pending, its turn not before that, or that begun | filed |
//! | `pending/D/parked` | never: no tick looks there | filed |
//! | `pending/D/ID.N` | never | taken for a claim of attempt N |
//! | `unknown/D/ID.N` | always: recovered by the next owner of the lock | |
//! | `unknown/D/` | never: no tick looks there | filed by its events |
//! | `unknown/D/MINUTE`, `DAY` | unknown with a time, as of pending | filed |
//! | `unknown/D/parked` | unknown without a time | filed |
//! | `held/D/` | held without a time | filed |
//! | `held/D/MINUTE` | held, its turn not before that, or that begun | filed |
//! | `held/D/DAY`, `parked` | never: no tick looks there | filed |
//! | `confirmed`, `failed/D/DAY` | settled on that day | filed |
//! | `confirmed`, `failed`, any other | never: not pruned | filed |

use super::super::layout::{NEAR_MS, Place, Slot};
use crate::model::event::EventKind;
use crate::model::item::Item;
use crate::model::state::State;
use crate::model::time::{MINUTE_MS, UnixMs};

/// What is amiss with an item's place, and so what mends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Amiss {
    /// It belongs there.
    Elsewhere(Place),
    /// Only its file's time is wrong: it would bring the item up too late.
    Hint(UnixMs),
    /// The event that brought it here is lost. It may have been acted on: a person looks.
    LostAttempt,
    /// The event that held it is lost. It stays held.
    LostHold,
}

/// What is amiss with an item that was found at a place, in a file with this modification time.
pub(in super::super) fn amiss(
    place: &Place,
    item: &Item,
    mtime: UnixMs,
    now: UnixMs,
) -> Option<Amiss> {
    if let Slot::Claimed(n) = place.slot {
        return (place.state != State::Unknown).then(|| Amiss::Elsewhere(place.claimed(n)));
    }
    let standing = item.standing();
    if standing.state != place.state {
        return Some(of_another_state(place, item, now));
    }
    let turn = item.turn();
    let comes_by =
        |at: UnixMs, near_ms: u64| at <= now.plus(near_ms) || turn.is_none_or(|turn| turn >= at);
    let is_found = match (place.state, place.slot) {
        (State::Pending, Slot::Root) | (_, Slot::Claimed(_)) => true,
        (State::Pending | State::Unknown, Slot::Minute(at)) => !standing.parked && comes_by(at, 0),
        (State::Pending | State::Unknown, Slot::Day(at)) => {
            !standing.parked && comes_by(at, NEAR_MS)
        }
        (State::Unknown, Slot::Parked) => standing.parked,
        (State::Held, Slot::Root) => turn.is_none(),
        (State::Held, Slot::Minute(at)) => comes_by(at, 0),
        (State::Confirmed | State::Failed, Slot::Day(at)) => at == standing.updated_at.day(),
        (State::Unknown, Slot::Root)
        | (State::Pending, Slot::Parked)
        | (State::Held, Slot::Day(_) | Slot::Parked)
        | (State::Confirmed | State::Failed, Slot::Root | Slot::Minute(_) | Slot::Parked) => false,
    };
    let target = Place::of(item, now);
    if !is_found && target != *place {
        return Some(Amiss::Elsewhere(target));
    }
    match (place.slot, turn) {
        (Slot::Day(_), Some(turn)) if mtime.since(turn) > MINUTE_MS => Some(Amiss::Hint(turn)),
        _ => None,
    }
}

/// The last event wins where it, or one before it, knows of the place: then the item has left it.
/// Otherwise the event that brought the item here is lost, and what it said is taken from the place
/// as far as that is safe.
fn of_another_state(place: &Place, item: &Item, now: UnixMs) -> Amiss {
    let state = item.standing().state;
    let knows = item.events.iter().any(|event| event.state == place.state);
    let last = item.events.last().map(|event| event.event);
    match place.state {
        State::Unknown if state != State::Confirmed => match last {
            Some(EventKind::Resolved | EventKind::Expired) => {}
            // As a tick has it.
            Some(_) | None => return Amiss::LostAttempt,
        },
        State::Held if !knows && state == State::Pending => return Amiss::LostHold,
        State::Confirmed | State::Failed if !knows && !state.is_terminal() => {
            return Amiss::LostAttempt;
        }
        State::Pending | State::Unknown | State::Held | State::Confirmed | State::Failed => {}
    }
    Amiss::Elsewhere(Place::of(item, now))
}

/// Which of two names of one file, or of two files of one item of which neither knows more, stays:
/// the later in life. A claim that the events do not know of is later than any state that is not
/// settled, for only its name says that the item may have been sent.
pub(in super::super) fn is_later(one: &Place, other: &Place, last_n: u32) -> bool {
    let rank = |place: &Place| match place.slot {
        Slot::Claimed(n) if n > last_n => (State::Held, 2),
        Slot::Claimed(_) => (place.state, 1),
        Slot::Root | Slot::Minute(_) | Slot::Day(_) | Slot::Parked => (place.state, 0),
    };
    rank(one) > rank(other)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;
    use crate::model::envelope::{Envelope, Request, Requester, VERSION, sha256_hex};
    use crate::model::event::Event;
    use crate::model::ids::RequestId;

    const ID: &str = "019adf3e-6b6b-7cc3-98f2-3a1c5d2e8f10";

    fn now() -> UnixMs {
        UnixMs::parse("2026-11-29T15:40:30Z").unwrap()
    }

    fn item(events: &[(EventKind, State, Option<u64>)], not_after: Option<u64>) -> Item {
        let id: RequestId = ID.parse().unwrap();
        let envelope = Envelope {
            v: VERSION,
            request_id: id,
            destination: "a".parse().unwrap(),
            enqueued_at: now(),
            request: Request {
                method: "POST".to_owned(),
                path: String::new(),
                query: Vec::new(),
                headers: Vec::new(),
                content_type: None,
                body: None,
                body_sha256: sha256_hex(b""),
            },
            requester: Requester::default(),
            notify: Vec::new(),
            labels: std::collections::BTreeMap::new(),
            key: None,
            retry_of: None,
            not_before: None,
            not_after: not_after.map(|ms| now().plus(ms)),
            notice: false,
        };
        let event = |(kind, state, due): &(EventKind, State, Option<u64>)| {
            let mut event = Event::new(*kind, now(), *state);
            event.due = due.map(|ms| now().plus(ms));
            event
        };
        Item {
            envelope,
            events: events.iter().map(event).collect(),
        }
    }

    /// What is amiss, with a file's time that is right: where it goes, or a word.
    fn found(at: &str, item: &Item) -> String {
        let place = Place::parse(&format!("{at}/{ID}.jsonl")).unwrap();
        let mtime = item.turn().unwrap_or_else(now);
        match amiss(&place, item, mtime, now()) {
            None => "right".to_owned(),
            Some(Amiss::Elsewhere(to)) => to.dir(),
            Some(Amiss::Hint(_)) => "hint".to_owned(),
            Some(Amiss::LostAttempt) => "lost attempt".to_owned(),
            Some(Amiss::LostHold) => "lost hold".to_owned(),
        }
    }

    const HOUR: u64 = 60 * MINUTE_MS;

    #[test]
    fn every_slot_of_every_state() {
        use EventKind::{Accepted, Attempt, Held};
        let pending = item(&[(Accepted, State::Pending, None)], None);
        let later = item(&[(Accepted, State::Pending, Some(HOUR))], None);
        let days = item(&[(Accepted, State::Pending, Some(96 * HOUR))], None);
        let resend = item(&[(Attempt, State::Unknown, Some(HOUR))], None);
        let parked = item(&[(Attempt, State::Unknown, None)], None);
        let held = item(&[(Held, State::Held, None)], None);
        let timed = item(&[(Held, State::Held, Some(HOUR))], None);
        let ends = item(&[(Held, State::Held, None)], Some(HOUR));
        let confirmed = item(&[(Attempt, State::Confirmed, None)], None);
        let failed = item(&[(Attempt, State::Failed, None)], None);
        let rows = [
            ("pending/a", &pending, "right"),
            ("pending/a", &later, "right"),
            ("pending/a", &days, "right"),
            ("pending/a/20261129T1640Z", &later, "right"),
            ("pending/a/20261129T1540Z", &later, "right"),
            (
                "pending/a/20261129T1641Z",
                &later,
                "pending/a/20261129T1640Z",
            ),
            ("pending/a/20261129", &later, "right"),
            ("pending/a/20261201", &later, "pending/a/20261129T1640Z"),
            ("pending/a/20261203", &days, "right"),
            ("pending/a/20261204", &days, "pending/a/20261203"),
            ("pending/a/20261129T1700Z", &pending, "pending/a"),
            ("pending/a/parked", &pending, "pending/a"),
            ("unknown/a", &resend, "unknown/a/20261129T1640Z"),
            ("unknown/a", &parked, "unknown/a/parked"),
            ("unknown/a/20261129T1640Z", &resend, "right"),
            (
                "unknown/a/20261129T1650Z",
                &resend,
                "unknown/a/20261129T1640Z",
            ),
            ("unknown/a/20261129T1640Z", &parked, "unknown/a/parked"),
            ("unknown/a/parked", &resend, "unknown/a/20261129T1640Z"),
            ("unknown/a/parked", &parked, "right"),
            ("held/a", &held, "right"),
            ("held/a", &timed, "held/a/20261129T1640Z"),
            ("held/a", &ends, "held/a/20261129T1640Z"),
            ("held/a/20261129T1640Z", &timed, "right"),
            ("held/a/20261129T1700Z", &timed, "held/a/20261129T1640Z"),
            ("held/a/20261129", &timed, "held/a/20261129T1640Z"),
            ("held/a/20261129", &held, "held/a"),
            ("held/a/parked", &held, "held/a"),
            ("confirmed/a/20261129", &confirmed, "right"),
            ("confirmed/a/20261130", &confirmed, "confirmed/a/20261129"),
            ("confirmed/a", &confirmed, "confirmed/a/20261129"),
            ("failed/a/20261129T1540Z", &failed, "failed/a/20261129"),
            // The last event wins.
            ("pending/a", &held, "held/a"),
            ("pending/a", &parked, "unknown/a/parked"),
            ("pending/a", &confirmed, "confirmed/a/20261129"),
            ("held/a", &confirmed, "confirmed/a/20261129"),
            ("held/a", &parked, "unknown/a/parked"),
            ("unknown/a/parked", &confirmed, "confirmed/a/20261129"),
            ("failed/a/20261129", &confirmed, "confirmed/a/20261129"),
            // The event that brought it here is lost.
            ("unknown/a/parked", &pending, "lost attempt"),
            ("unknown/a", &pending, "lost attempt"),
            ("unknown/a/parked", &failed, "lost attempt"),
            ("held/a", &pending, "lost hold"),
            ("confirmed/a/20261129", &pending, "lost attempt"),
            ("failed/a/20261129", &held, "lost attempt"),
            ("confirmed/a/20261129", &parked, "lost attempt"),
        ];
        for (at, item, want) in rows {
            assert_eq!(found(at, item), want, "{at} {:?}", item.events);
        }
    }

    #[test]
    fn an_item_that_has_left_a_place_by_an_event_belongs_where_that_says() {
        use EventKind::{Attempt, Held, Released, Resolved, Retried};
        let rows = [
            (
                "held/a",
                [(Held, State::Held), (Released, State::Pending)],
                "pending/a",
            ),
            (
                "failed/a/20261129",
                [(Attempt, State::Failed), (Retried, State::Pending)],
                "pending/a",
            ),
            (
                "unknown/a/parked",
                [(Attempt, State::Unknown), (Resolved, State::Pending)],
                "pending/a",
            ),
        ];
        for (at, events, want) in rows {
            let events = events.map(|(kind, state)| (kind, state, None));
            assert_eq!(found(at, &item(&events, None)), want, "{at}");
        }
    }

    #[test]
    fn a_claimed_name_belongs_to_unknown_alone() {
        let pending = item(&[(EventKind::Accepted, State::Pending, None)], None);
        for (at, want) in [("unknown", None), ("pending", Some("unknown/a"))] {
            let place = Place::parse(&format!("{at}/a/{ID}.2.jsonl")).unwrap();
            let amiss = amiss(&place, &pending, now(), now());
            let to = match &amiss {
                Some(Amiss::Elsewhere(to)) => Some(to.dir()),
                _ => None,
            };
            assert_eq!(to.as_deref(), want);
        }
    }

    #[test]
    fn a_files_time_that_lies_behind_its_turn_is_amiss_in_a_day() {
        let due = item(&[(EventKind::Accepted, State::Pending, Some(HOUR))], None);
        let at = |place: &str, ms: u64| {
            let place = Place::parse(&format!("{place}/{ID}.jsonl")).unwrap();
            amiss(&place, &due, now().plus(ms), now())
        };
        assert_eq!(
            at("pending/a/20261129", 5 * HOUR),
            Some(Amiss::Hint(now().plus(HOUR)))
        );
        assert_eq!(at("pending/a/20261129", 0), None);
        assert_eq!(at("pending/a/20261129T1640Z", 5 * HOUR), None);
    }

    #[test]
    fn the_later_of_two_places_stays() {
        let place = |path: &str| Place::parse(path).unwrap();
        let claimed = place(&format!("unknown/a/{ID}.2.jsonl"));
        let at = |dir: &str| place(&format!("{dir}/{ID}.jsonl"));
        assert!(is_later(&claimed, &at("pending/a"), 1));
        assert!(is_later(&claimed, &at("unknown/a/parked"), 1));
        assert!(is_later(&claimed, &at("held/a"), 1));
        assert!(is_later(&at("held/a"), &claimed, 2));
        assert!(is_later(&at("confirmed/a/20261129"), &claimed, 1));
        assert!(is_later(&at("held/a"), &at("pending/a"), 0));
    }
}
