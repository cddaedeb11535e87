//! Where an item lies: states, destinations, minutes and days as directories.

use std::path::{Path, PathBuf};

use crate::model::ids::{DestName, RequestId};
use crate::model::item::Item;
use crate::model::state::State;
use crate::model::time::{MINUTE_MS, UnixMs};

/// Nearer than this, an item is filed by its minute; beyond, by its day.
pub const NEAR_MS: u64 = 120 * MINUTE_MS;

/// The part of a state's and destination's directory that an item lies in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Slot {
    /// The directory itself.
    Root,
    /// The directory itself, claimed for this attempt: `ID.N.jsonl`. Only of unknown.
    Claimed(u32),
    /// A UTC minute.
    Minute(UnixMs),
    /// A UTC day.
    Day(UnixMs),
    /// `parked/`. Only of unknown.
    Parked,
}

/// The place of one item.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Place {
    /// The state that the place says.
    pub state: State,
    /// The destination that the place says.
    pub destination: String,
    /// The part of that directory.
    pub slot: Slot,
    /// The item.
    pub id: RequestId,
}

impl Place {
    /// Where an item belongs: pending, unknown and held items by the earlier of `due` and
    /// `not_after`, settled ones by the day of `now`.
    #[must_use]
    pub fn filed(
        state: State,
        destination: &str,
        id: RequestId,
        due: Option<UnixMs>,
        not_after: Option<UnixMs>,
        now: UnixMs,
    ) -> Self {
        let turn = |due: UnixMs| not_after.map_or(due, |end| end.min(due));
        let later = |at: UnixMs| {
            if at < now.plus(NEAR_MS) {
                Slot::Minute(at.minute())
            } else {
                Slot::Day(at.day())
            }
        };
        let slot = match (state, due) {
            (State::Pending, None) => Slot::Root,
            (State::Pending, Some(due)) if turn(due) <= now => Slot::Root,
            (State::Pending | State::Unknown, Some(due)) => later(turn(due)),
            (State::Unknown, None) => Slot::Parked,
            (State::Held, Some(due)) => Slot::Minute(turn(due).minute()),
            (State::Held, None) => not_after.map_or(Slot::Root, |end| Slot::Minute(end.minute())),
            (State::Confirmed | State::Failed, _) => Slot::Day(now.day()),
        };
        Self {
            state,
            destination: destination.to_owned(),
            slot,
            id,
        }
    }

    /// Where an item belongs by its events.
    #[must_use]
    pub fn of(item: &Item, now: UnixMs) -> Self {
        let standing = item.standing();
        let envelope = &item.envelope;
        Self::filed(
            standing.state,
            envelope.destination.as_str(),
            envelope.request_id,
            standing.due,
            envelope.not_after,
            if standing.state.is_terminal() {
                standing.updated_at
            } else {
                now
            },
        )
    }

    /// The directory, relative to the spool.
    #[must_use]
    pub fn dir(&self) -> String {
        slot_dir(self.state, &self.destination, self.slot)
    }

    /// The path, relative to the spool.
    #[must_use]
    pub fn path(&self) -> String {
        match self.slot {
            Slot::Claimed(n) => format!("{}/{}.{n}.jsonl", self.dir(), self.id),
            Slot::Root | Slot::Minute(_) | Slot::Day(_) | Slot::Parked => {
                format!("{}/{}.jsonl", self.dir(), self.id)
            }
        }
    }

    /// Reads a path made by [`Self::path`]; `None` for any other.
    #[must_use]
    pub fn parse(path: &str) -> Option<Self> {
        let mut parts = path.split('/');
        let state = State::parse(parts.next()?)?;
        let destination: DestName = parts.next()?.parse().ok()?;
        let third = parts.next()?;
        let (slot, name) = match parts.next() {
            Some(name) => (parse_slot(third)?, name),
            None => (Slot::Root, third),
        };
        let (id, n) = parse_name(name)?;
        let slot = match n {
            Some(n) if slot == Slot::Root => Slot::Claimed(n),
            Some(_) => return None,
            None => slot,
        };
        parts.next().is_none().then_some(Self {
            state,
            destination: destination.to_string(),
            slot,
            id,
        })
    }

    /// The same item claimed for attempt `n`.
    #[must_use]
    pub fn claimed(&self, n: u32) -> Self {
        Self {
            state: State::Unknown,
            slot: Slot::Claimed(n),
            ..self.clone()
        }
    }
}

/// A directory of items, relative to the spool.
#[must_use]
pub fn slot_dir(state: State, destination: &str, slot: Slot) -> String {
    match slot {
        Slot::Root | Slot::Claimed(_) => format!("{state}/{destination}"),
        Slot::Minute(at) => format!("{state}/{destination}/{}", at.minute_name()),
        Slot::Day(at) => format!("{state}/{destination}/{}", at.day_name()),
        Slot::Parked => format!("{state}/{destination}/parked"),
    }
}

/// Reads the name of a directory of items: a minute, a day, or `parked`.
#[must_use]
pub fn parse_slot(name: &str) -> Option<Slot> {
    if name == "parked" {
        return Some(Slot::Parked);
    }
    UnixMs::from_minute_name(name)
        .map(Slot::Minute)
        .or_else(|| UnixMs::from_day_name(name).map(Slot::Day))
}

/// Reads an item file's name: `ID.jsonl`, or `ID.N.jsonl` when claimed.
#[must_use]
pub fn parse_name(name: &str) -> Option<(RequestId, Option<u32>)> {
    let stem = name.strip_suffix(".jsonl")?;
    match stem.split_once('.') {
        None => Some((stem.parse().ok()?, None)),
        Some((id, n)) => {
            let number: u32 = n.parse().ok()?;
            (number > 0 && number.to_string() == n).then_some((id.parse().ok()?, Some(number)))
        }
    }
}

/// Whether a path is one of something that can be set aside: an item, or a file of a drop box.
#[must_use]
pub fn is_of_items(path: &str) -> bool {
    let mut parts = path.split('/');
    let top = parts.next().unwrap_or_default();
    let is_name = |part: &str| !["", ".", ".."].contains(&part) && !part.contains('\0');
    (top == "incoming" || State::parse(top).is_some())
        && path.split('/').count() > 2
        && path.split('/').all(is_name)
}

/// A path below the spool.
#[must_use]
pub fn join(root: &Path, relative: &str) -> PathBuf {
    root.join(relative)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    fn filed(state: State, due: Option<u64>, not_after: Option<u64>) -> String {
        let now = UnixMs::parse("2026-11-29T15:40:30Z").unwrap();
        let at = |ms: u64| now.plus(ms);
        let id = "019adf3e-6b6b-7cc3-98f2-3a1c5d2e8f10".parse().unwrap();
        Place::filed(state, "billing", id, due.map(at), not_after.map(at), now).dir()
    }

    #[test]
    fn filing() {
        use State::{Confirmed, Failed, Held, Pending, Unknown};
        let hour = 60 * MINUTE_MS;
        let rows = [
            (Pending, None, None, "pending/billing"),
            (Pending, Some(0), None, "pending/billing"),
            (Pending, Some(1), None, "pending/billing/20261129T1540Z"),
            (Pending, Some(hour), None, "pending/billing/20261129T1640Z"),
            (Pending, Some(2 * hour), None, "pending/billing/20261129"),
            (Pending, Some(48 * hour), None, "pending/billing/20261201"),
            (
                Pending,
                Some(48 * hour),
                Some(hour),
                "pending/billing/20261129T1640Z",
            ),
            (Unknown, None, None, "unknown/billing/parked"),
            (Unknown, Some(0), None, "unknown/billing/20261129T1540Z"),
            (Unknown, Some(48 * hour), None, "unknown/billing/20261201"),
            (Held, None, None, "held/billing"),
            (Held, Some(48 * hour), None, "held/billing/20261201T1540Z"),
            (Held, None, Some(hour), "held/billing/20261129T1640Z"),
            (Confirmed, None, None, "confirmed/billing/20261129"),
            (Failed, None, Some(hour), "failed/billing/20261129"),
        ];
        for (state, due, not_after, want) in rows {
            assert_eq!(
                filed(state, due, not_after),
                want,
                "{state} {due:?} {not_after:?}"
            );
        }
    }

    /// A journal may come from anybody.
    #[test]
    fn nothing_is_set_aside_but_what_lies_in_a_state_or_a_drop_box() {
        for path in ["pending/a/x", "incoming/a/x.json", "failed/a/20261129/x"] {
            assert!(is_of_items(path), "{path}");
        }
        let others = [
            "pending/a",
            "journal/a/x",
            "keys/a/x",
            "/pending/a/x",
            "pending//x",
            "pending/./x",
            "pending/a/..",
            "pending/../../x",
            "incoming/a/\0",
        ];
        for path in others {
            assert!(!is_of_items(path), "{path:?}");
        }
    }

    #[test]
    fn paths_come_back_and_others_are_refused() {
        let id = "019adf3e-6b6b-7cc3-98f2-3a1c5d2e8f10";
        for path in [
            format!("pending/billing/{id}.jsonl"),
            format!("unknown/billing/{id}.3.jsonl"),
            format!("unknown/billing/parked/{id}.jsonl"),
            format!("pending/billing/20261129T1540Z/{id}.jsonl"),
            format!("failed/billing/20261129/{id}.jsonl"),
        ] {
            assert_eq!(Place::parse(&path).unwrap().path(), path);
        }
        for path in [
            format!("pending/billing/{id}"),
            format!("pending/billing/x/{id}.jsonl"),
            format!("pending/billing/20261129/{id}.3.jsonl"),
            format!("pending/billing/20261129/x/{id}.jsonl"),
            format!("unknown/billing/{id}.03.jsonl"),
            format!("unknown/billing/{id}.0.jsonl"),
            format!("elsewhere/billing/{id}.jsonl"),
            format!("pending/../{id}.jsonl"),
            format!("pending//{id}.jsonl"),
            format!("/pending/billing/{id}.jsonl"),
            format!("../pending/billing/{id}.jsonl"),
        ] {
            assert_eq!(Place::parse(&path), None, "{path}");
        }
    }
}
