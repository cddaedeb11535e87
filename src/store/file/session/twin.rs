//! Another file of an item that is about to be sent: a part of a backup put back, or a file copied,
//! would be sent again.

use std::collections::HashSet;

use super::super::super::StoreError;
use super::super::super::disk::{Kind, Meta};
use super::super::doctor::doubles;
use super::super::layout::{self, Place, Slot, slot_dir};
use super::super::reader::is_item;
use super::super::{FileStore, stuck, tombstones};
use super::{FileSession, Got};
use crate::model::ids::RequestId;
use crate::model::item::Item;
use crate::model::notice::Asked;
use crate::model::state::State;
use crate::model::time::{MINUTE_MS, UnixMs};
use crate::model::tombstone::Tombstone;

/// A file is made this long after its item's last event at most, or it is a copy.
const WRITTEN_WITHIN_MS: u64 = 1000;

/// A copy of an item that has changed no longer ago may have been made within
/// [`WRITTEN_WITHIN_MS`].
const FRESH_MS: u64 = 10_000;

/// The next attempt of an item that has changed within [`FRESH_MS`] is seldom further away.
const NEXT_MS: u64 = 15 * MINUTE_MS;

/// Whether a file may be another than the one that its item's last event was written to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Doubt {
    /// It is no younger than the event, and can only have been renamed since.
    None,
    /// A copy of it may be as young.
    Recent,
    /// It came to the place of what was just accepted later than that.
    Moved,
    /// Nobody tells when it was made.
    Untold,
    /// It was made later than the event; or the event is still to come, by the clock of now.
    Copy,
}

impl Doubt {
    /// Whether it is looked for another file before anything is decided, not only before it is sent.
    pub(super) fn is_strong(self) -> bool {
        matches!(self, Self::Moved | Self::Copy)
    }
}

/// How many items are looked for in the logs of what was pruned, before their ids are kept.
const LOOKS_MAX: u32 = 16;

/// What was pruned.
#[derive(Debug, Default)]
pub(super) struct Pruned {
    looks: u32,
    /// The days whose logs are in `ids`.
    days: HashSet<UnixMs>,
    /// Each id folded to half its length.
    ids: HashSet<u64>,
}

impl Pruned {
    /// The tombstone of an item. Of many items that were put back together each would read every
    /// log of its time again.
    fn find(&mut self, store: &FileStore, id: RequestId) -> Result<Option<Tombstone>, StoreError> {
        let folded = |id: RequestId| {
            let (one, other) = id.0.as_u64_pair();
            one ^ other
        };
        self.looks = self.looks.saturating_add(1);
        if self.looks > LOOKS_MAX {
            let first = tombstones::first_day(id);
            for day in tombstones::days(store)? {
                if day < first || self.days.contains(&day) {
                    continue;
                }
                let mut log = tombstones::LogReader::new(day);
                while let Some(part) = log.next(store, |_| true)? {
                    let ids = part.iter().map(|tombstone| folded(tombstone.request_id));
                    self.ids.extend(ids);
                }
                self.days.insert(day);
            }
            if !self.ids.contains(&folded(id)) {
                return Ok(None);
            }
        }
        Ok(tombstones::find(store, &id.to_string(), 1)?.pop())
    }
}

impl FileSession<'_> {
    /// What a file's age says of it.
    pub(super) fn doubt(&self, place: &Place, item: &Item, meta: &Meta) -> Doubt {
        let written_at = item.standing().updated_at;
        let by_then = written_at.plus(WRITTEN_WITHIN_MS);
        let Some(born) = meta.born else {
            return Doubt::Untold;
        };
        let is_fresh = (place.state, place.slot) == (State::Pending, Slot::Root);
        if born > by_then || written_at > self.now.plus(WRITTEN_WITHIN_MS) {
            Doubt::Copy
        } else if is_fresh && meta.changed > by_then {
            Doubt::Moved
        } else if self.now.since(written_at) <= FRESH_MS {
            Doubt::Recent
        } else {
            Doubt::None
        }
    }

    /// Whether another file of an item keeps this one from being sent: because it knows more, and
    /// this one has been set aside, or as long as nobody can tell.
    pub(super) fn has_twin(
        &mut self,
        place: &Place,
        item: &Item,
        doubt: Doubt,
    ) -> Result<bool, StoreError> {
        match self.look_for_twin(place, item, doubt) {
            // A look that fails costs one item its turn, as if its own file could not be read. What
            // the journal says is no look.
            Err(StoreError::Io { op, path, source })
                if ["look at", "list", "read"].contains(&op) && stuck::is_of_one_file(&source) =>
            {
                let why = format!(
                    "cannot {op} {}, which may hold another file of this item: {source}; it was left as it is",
                    path.display()
                );
                self.foreign(&place.path(), &why);
                Ok(true)
            }
            other => other,
        }
    }

    fn look_for_twin(
        &mut self,
        place: &Place,
        item: &Item,
        doubt: Doubt,
    ) -> Result<bool, StoreError> {
        let everywhere = match doubt {
            Doubt::None => return Ok(false),
            Doubt::Recent | Doubt::Moved => false,
            Doubt::Untold | Doubt::Copy => true,
        };
        if everywhere && self.is_told_elsewhere(place, item, doubt)? {
            return Ok(true);
        }
        // Whatever the item has come to since, it has on one of these days.
        let first = item.standing().updated_at.day();
        for state in State::ALL {
            for slot in self.slots_of(state, &place.destination)? {
                let is_near = match slot {
                    Slot::Root | Slot::Parked | Slot::Claimed(_) => true,
                    Slot::Minute(at) => {
                        at.since(self.now) < NEXT_MS && self.now.since(at) < NEXT_MS
                    }
                    Slot::Day(day) => day >= first,
                };
                if !everywhere && !is_near {
                    continue;
                }
                let other = Place {
                    state,
                    slot,
                    ..place.clone()
                };
                if other != *place
                    && is_item(self.store, &other)?
                    && !self.outdoes(place, item, &other)?
                {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Whether an item is being sent under another name, or was and nobody can read that file; or
    /// whether it has come to its end and was pruned.
    fn is_told_elsewhere(
        &mut self,
        place: &Place,
        item: &Item,
        doubt: Doubt,
    ) -> Result<bool, StoreError> {
        let id = item.envelope.request_id;
        self.slots_of(State::Unknown, &place.destination)?;
        let in_hand = self.in_hand.values().any(|hand| hand.claimed.id == id);
        let mut claims = self.claimed_left.get(&id).cloned().unwrap_or_default();
        if let Slot::Claimed(mine) = place.slot {
            claims.retain(|n| *n != mine);
            for n in claims {
                let other = place.claimed(n);
                if is_item(self.store, &other)? && !self.outdoes(place, item, &other)? {
                    return Ok(true);
                }
            }
        } else if in_hand || !claims.is_empty() {
            let why = "another file of this item is claimed; it was left as it is";
            self.foreign(&place.path(), why);
            return Ok(true);
        }
        // Where nobody can tell whether it is a copy, that would cost every item a look.
        let mut pruned = None;
        if doubt == Doubt::Copy {
            pruned = self.pruned.find(self.store, id)?;
            // What has an event since is not what was pruned: a person went on with it after a
            // pruning that died.
            let written_at = item.standing().updated_at;
            pruned = pruned.filter(|tombstone| tombstone.pruned_at >= written_at);
        }
        if let Some(tombstone) = pruned {
            let why = format!("this item was {}, and was pruned", tombstone.state);
            let nobody = Asked::default();
            self.set_aside(&place.path(), &place.destination, &why, &nobody)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Reads an item of which something is about to be decided, as [`FileSession::get`] does, unless
    /// another file of it keeps it from that: an event would make a copy look like what was written
    /// then. Only what looks like a copy by now costs a look.
    pub(super) fn get_only(&mut self, place: &Place) -> Result<Got, StoreError> {
        let (got, doubt) = self.get_with_doubt(place)?;
        match &got {
            Got::Item(item, _) if doubt.is_strong() && self.has_twin(place, item, doubt)? => {
                Ok(Got::Nothing)
            }
            Got::Item(..) | Got::Nothing => Ok(got),
        }
    }

    /// Takes note of the directory that something moves to: it may hold the other file of an item
    /// by then.
    pub(super) fn note_slot(&mut self, to: &str) {
        let Some(to) = Place::parse(to) else {
            return;
        };
        let is_directory = match to.slot {
            Slot::Root | Slot::Minute(_) | Slot::Day(_) | Slot::Parked => true,
            Slot::Claimed(_) => false,
        };
        let known = self
            .slots
            .get_mut(&slot_dir(to.state, &to.destination, Slot::Root));
        if let (true, Some(slots)) = (is_directory, known)
            && !slots.contains(&to.slot)
        {
            slots.push(to.slot);
        }
    }

    /// The directories of a state and destination, listed once a session, and those that it has
    /// moved something to since. No link is among them; nor is the uppermost while no item lies in it
    /// itself, so that a new item is not looked for where nothing is.
    fn slots_of(&mut self, state: State, destination: &str) -> Result<Vec<Slot>, StoreError> {
        let dir = slot_dir(state, destination, Slot::Root);
        if let Some(slots) = self.slots.get(&dir) {
            return Ok(slots.clone());
        }
        let mut slots = Vec::new();
        let mut claimed = Vec::new();
        let mut is_filled = false;
        self.store.list(&dir, &mut |name, kind| {
            let name = name.to_str().unwrap_or_default();
            match (kind, layout::parse_name(name)) {
                (_, Some((_, None))) => is_filled = true,
                (Kind::Directory, _) => slots.extend(layout::parse_slot(name)),
                (_, Some((id, Some(n)))) => claimed.push((id, n)),
                _ => {}
            }
        })?;
        if is_filled {
            slots.push(Slot::Root);
        }
        let in_hand: HashSet<RequestId> = self.in_hand.values().map(|h| h.claimed.id).collect();
        claimed.retain(|(id, _)| !in_hand.contains(id));
        for (id, n) in claimed {
            self.claimed_left.entry(id).or_default().push(n);
        }
        self.slots.insert(dir, slots.clone());
        Ok(slots)
    }

    /// Sets the one of two files aside that knows less. True if that is the other.
    fn outdoes(&mut self, place: &Place, item: &Item, other: &Place) -> Result<bool, StoreError> {
        let inode = |place: &Place| {
            let meta = self.store.disk.stat(&self.store.path(&place.path()));
            meta.map(|meta| meta.inode).ok()
        };
        if inode(place) == inode(other) {
            // One file under two names, as a loss of power may leave: its events tell which counts.
            return Ok(true);
        }
        let Got::Item(theirs, _) = self.get(other)? else {
            // Until it can be read nobody knows what it knows, unless it was set aside for that.
            return Ok(false);
        };
        let (goes, stays) = if doubles::other_stays((place, item), (other, &theirs)) {
            (place, other)
        } else {
            (other, place)
        };
        let why = doubles::why(stays);
        // Its item goes on: whoever asked for that hears of it.
        let nobody = Asked::default();
        self.set_aside(&goes.path(), &goes.destination, &why, &nobody)?;
        Ok(goes == other)
    }
}
