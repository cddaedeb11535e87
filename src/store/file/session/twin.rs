//! Another file of an item that is about to be sent: a part of a backup put back, or a file copied,
//! would be sent again.

use super::super::super::StoreError;
use super::super::super::disk::Kind;
use super::super::doctor::doubles;
use super::super::layout::{self, Place, Slot, slot_dir};
use super::super::reader::is_item;
use super::{FileSession, Got};
use crate::model::item::Item;
use crate::model::state::State;
use crate::model::time::UnixMs;

/// A file is made this long after its item's last event at most, or it is a copy.
const WRITTEN_WITHIN_MS: u64 = 1000;

/// A copy of an item that has changed no longer ago may have been made within
/// [`WRITTEN_WITHIN_MS`].
const FRESH_MS: u64 = 10_000;

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
            // It costs one item its turn, as if its own file could not be read.
            Err(StoreError::Io { op, path, source }) => {
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
        let today = Slot::Day(self.now.day());
        for state in [State::Unknown, State::Held, State::Confirmed, State::Failed] {
            for slot in self.slots_of(state, &place.destination)? {
                if !is_copy && !matches!(slot, Slot::Root | Slot::Parked) && slot != today {
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

    /// The directories of a state and destination, listed once a session: what they get from it is
    /// no other file. No link is among them.
    fn slots_of(&mut self, state: State, destination: &str) -> Result<Vec<Slot>, StoreError> {
        let dir = slot_dir(state, destination, Slot::Root);
        if let Some(slots) = self.slots.get(&dir) {
            return Ok(slots.clone());
        }
        let mut slots = vec![Slot::Root];
        self.store.list(&dir, &mut |name, kind| {
            if kind == Kind::Directory {
                slots.extend(layout::parse_slot(name.to_str().unwrap_or_default()));
            }
        })?;
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
