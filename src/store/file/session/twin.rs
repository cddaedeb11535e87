//! Another file of an item that is about to be sent: a part of a backup put back, or a file copied,
//! would be sent again.

use std::collections::HashSet;

use super::super::super::StoreError;
use super::super::super::disk::Kind;
use super::super::doctor::doubles;
use super::super::layout::{self, Place, Slot, slot_dir};
use super::super::reader::is_item;
use super::super::{stuck, tombstones};
use super::{FileSession, Got};
use crate::model::ids::RequestId;
use crate::model::item::Item;
use crate::model::state::State;
use crate::model::time::{MINUTE_MS, UnixMs};

/// A file is made this long after its item's last event at most, or it is a copy.
const WRITTEN_WITHIN_MS: u64 = 1000;

/// A copy of an item that has changed no longer ago may have been made within
/// [`WRITTEN_WITHIN_MS`].
const FRESH_MS: u64 = 10_000;

/// The next attempt of an item that has changed within [`FRESH_MS`] is seldom further away.
const NEXT_MS: u64 = 15 * MINUTE_MS;

impl FileSession<'_> {
    /// Whether another file of an item keeps this one from being sent: because it knows more, and
    /// this one has been set aside, or as long as nobody can tell. `born` is when the file was made.
    ///
    /// A file that is no younger than its item's last event is the one that was written then, and
    /// it can only have been renamed since: it costs no look.
    pub(super) fn has_twin(
        &mut self,
        place: &Place,
        item: &Item,
        born: Option<UnixMs>,
    ) -> Result<bool, StoreError> {
        match self.look_for_twin(place, item, born) {
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
        born: Option<UnixMs>,
    ) -> Result<bool, StoreError> {
        let written_at = item.standing().updated_at;
        let is_copy = born.is_none_or(|born| born > written_at.plus(WRITTEN_WITHIN_MS));
        if !is_copy && self.now.since(written_at) > FRESH_MS {
            return Ok(false);
        }
        if is_copy && self.is_told_elsewhere(place, item, born)? {
            return Ok(true);
        }
        let today = Slot::Day(self.now.day());
        for state in State::ALL {
            for slot in self.slots_of(state, &place.destination)? {
                let is_near = match slot {
                    Slot::Root | Slot::Parked | Slot::Claimed(_) => true,
                    Slot::Minute(at) => {
                        at.since(self.now) < NEXT_MS && self.now.since(at) < NEXT_MS
                    }
                    Slot::Day(_) => slot == today,
                };
                if !is_copy && !is_near {
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
        born: Option<UnixMs>,
    ) -> Result<bool, StoreError> {
        let id = item.envelope.request_id;
        self.slots_of(State::Unknown, &place.destination)?;
        if self.claimed_left.contains(&id) || self.in_hand.values().any(|h| h.claimed.id == id) {
            let why = "another file of this item is claimed; it was left as it is";
            self.foreign(&place.path(), why);
            return Ok(true);
        }
        // Where nobody can tell whether it is a copy, that would cost every item a look.
        let pruned = if born.is_some() {
            tombstones::find(self.store, &id.to_string(), 1)?.pop()
        } else {
            None
        };
        if let Some(tombstone) = pruned {
            let why = format!("this item was {}, and was pruned", tombstone.state);
            self.set_aside(&place.path(), &place.destination, &why)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// The directories of a state and destination, listed once a session: what they get from it is
    /// no other file. No link is among them.
    fn slots_of(&mut self, state: State, destination: &str) -> Result<Vec<Slot>, StoreError> {
        let dir = slot_dir(state, destination, Slot::Root);
        if let Some(slots) = self.slots.get(&dir) {
            return Ok(slots.clone());
        }
        let mut slots = vec![Slot::Root];
        let mut claimed = Vec::new();
        self.store.list(&dir, &mut |name, kind| {
            let name = name.to_str().unwrap_or_default();
            match (kind, layout::parse_name(name)) {
                (Kind::Directory, _) => slots.extend(layout::parse_slot(name)),
                (_, Some((id, Some(_)))) => claimed.push(id),
                _ => {}
            }
        })?;
        let in_hand: HashSet<RequestId> = self.in_hand.values().map(|h| h.claimed.id).collect();
        claimed.retain(|id| !in_hand.contains(id));
        self.claimed_left.extend(claimed);
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
        self.set_aside(&goes.path(), &goes.destination, &why)?;
        Ok(goes == other)
    }
}
