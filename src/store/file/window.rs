//! The next due items of one destination, by due minute and within it by id.
//!
//! Only names are kept, and at most [`NAMES_MAX`] of them, whatever waits: the smallest that
//! come after everything looked at before. What is not due is not looked at, except that a
//! fresh item costs one look once.

use std::collections::BinaryHeap;

use super::super::StoreError;
use super::super::disk::Kind;
use super::FileStore;
use super::journal::io_error;
use super::layout::{self, NEAR_MS, Place, Slot, slot_dir};
use crate::model::ids::{DestName, RequestId};
use crate::model::state::State;
use crate::model::time::{DAY_MS, MINUTE_MS, UnixMs};

/// How many names are kept at once.
const NAMES_MAX: usize = 65_536;

/// How many items that are not due are filed anew in one listing.
const FILED_MAX: usize = 10_000;

/// A due item's name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Name {
    minute: UnixMs,
    id: RequestId,
    state: State,
    slot: Slot,
}

/// The cursor over a destination's due items in one session.
#[derive(Debug)]
pub(super) struct Window {
    destination: DestName,
    /// Sorted, the next one last.
    names: Vec<Name>,
    /// The last name that was handed out: listing again starts behind it.
    cursor: Option<(UnixMs, RequestId)>,
    /// Everything due has been listed.
    complete: bool,
    /// Directories of minutes and days that were listed; empty ones can go.
    pub(super) listed: Vec<String>,
}

/// What a listing found that has to be filed, or told.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Items whose place is not that of their due time, as far as their file's time tells.
    pub(super) to_file: Vec<Place>,
    /// What does not belong here.
    pub(super) foreign: Vec<String>,
}

impl Window {
    pub(super) fn new(destination: DestName) -> Self {
        Self {
            destination,
            names: Vec::new(),
            cursor: None,
            complete: false,
            listed: Vec::new(),
        }
    }

    /// The next name, if the window holds one.
    pub(super) fn next(&mut self) -> Option<Place> {
        let name = self.names.pop()?;
        self.cursor = Some((name.minute, name.id));
        Some(Place {
            state: name.state,
            destination: self.destination.to_string(),
            slot: name.slot,
            id: name.id,
        })
    }

    /// Adds a name that the listing could not place.
    pub(super) fn add(&mut self, place: &Place, minute: UnixMs) {
        let name = Name::of(place, minute);
        let at = self.names.partition_point(|known| *known > name);
        self.names.insert(at, name);
    }

    /// Lists nothing more.
    pub(super) fn give_up(&mut self) {
        self.complete = true;
    }

    /// Whether nothing is left to list.
    pub(super) fn is_exhausted(&self) -> bool {
        self.complete && self.names.is_empty()
    }

    /// How many names are listed and not handed out.
    pub(super) fn remaining(&self) -> usize {
        self.names.len()
    }

    /// Lists again, behind the cursor.
    pub(super) fn fill(&mut self, store: &FileStore, now: UnixMs) -> Result<Listing, StoreError> {
        let mut listing = Listing::default();
        let mut smallest = Smallest {
            heap: BinaryHeap::new(),
            after: self.cursor,
            dropped: false,
        };
        let (fresh, mut dirs) = self.list_tops(store, &mut listing)?;
        for id in fresh {
            let place = self.place(State::Pending, Slot::Root, id);
            let Some(due) = hint(store, &place)? else {
                continue;
            };
            if due <= now {
                smallest.keep(Name::of(&place, due.minute()));
            } else if listing.to_file.len() < FILED_MAX {
                listing.to_file.push(place);
            }
        }
        dirs.sort();
        self.listed.clear();
        for dir in dirs {
            let near_ms = if dir.is_day { NEAR_MS } else { 0 };
            if dir.start > now.plus(near_ms) {
                continue;
            }
            if smallest.is_full_before(dir.start) {
                smallest.dropped = true;
                continue;
            }
            self.list_dir(store, dir, now, &mut smallest, &mut listing)?;
        }
        self.names = smallest.heap.into_sorted_vec();
        self.names.reverse();
        self.complete = !smallest.dropped;
        Ok(listing)
    }

    /// The fresh items, and the directories of minutes and days.
    fn list_tops(
        &self,
        store: &FileStore,
        listing: &mut Listing,
    ) -> Result<(Vec<RequestId>, Vec<Dir>), StoreError> {
        let mut dirs = Vec::new();
        let mut fresh = Vec::new();
        for state in [State::Pending, State::Unknown] {
            let top = slot_dir(state, self.destination.as_str(), Slot::Root);
            store.list(&top, &mut |name, kind| {
                let text = name.to_str().unwrap_or_default();
                let belongs = match kind {
                    Kind::Directory => match layout::parse_slot(text) {
                        Some(Slot::Parked) => state == State::Unknown,
                        Some(slot) => {
                            dirs.extend(Dir::of(state, slot));
                            true
                        }
                        None => false,
                    },
                    Kind::File => match (layout::parse_name(text), state) {
                        (Some((id, None)), State::Pending) => {
                            fresh.push(id);
                            true
                        }
                        // What is being sent.
                        (Some((_, Some(_))), State::Unknown) => true,
                        _ => false,
                    },
                    Kind::Other => false,
                };
                if !belongs {
                    listing.foreign.push(format!("{top}/{}", name.display()));
                }
            })?;
        }
        if !fresh.is_empty() {
            // Nothing is sent whose acceptance could still be lost.
            let top = slot_dir(State::Pending, self.destination.as_str(), Slot::Root);
            store.sync_found(&top)?;
        }
        Ok((fresh, dirs))
    }

    /// The due items of one minute or day; of a day that comes near, also what must be filed
    /// by its minutes.
    fn list_dir(
        &mut self,
        store: &FileStore,
        dir: Dir,
        now: UnixMs,
        smallest: &mut Smallest,
        listing: &mut Listing,
    ) -> Result<(), StoreError> {
        let path = slot_dir(dir.state, self.destination.as_str(), dir.slot);
        let mut ids = Vec::new();
        store.list(&path, &mut |name, kind| match (
            kind,
            layout::parse_name(name.to_str().unwrap_or_default()),
        ) {
            (Kind::File, Some((id, None))) => ids.push(id),
            _ => listing.foreign.push(format!("{path}/{}", name.display())),
        })?;
        self.listed.push(path);
        for id in ids {
            let place = self.place(dir.state, dir.slot, id);
            if dir.end <= now && !dir.is_day {
                smallest.keep(Name::of(&place, dir.start));
                continue;
            }
            let Some(due) = hint(store, &place)? else {
                continue;
            };
            if due <= now || dir.end <= now {
                // The last minute of the directory, if its file's time lies beyond it.
                let last = dir.end.minus(1).minute();
                smallest.keep(Name::of(&place, due.minute().clamp(dir.start, last)));
            } else if dir.is_day && due <= now.plus(NEAR_MS) && listing.to_file.len() < FILED_MAX {
                listing.to_file.push(place);
            }
        }
        Ok(())
    }

    fn place(&self, state: State, slot: Slot, id: RequestId) -> Place {
        Place {
            state,
            destination: self.destination.to_string(),
            slot,
            id,
        }
    }
}

impl Name {
    fn of(place: &Place, minute: UnixMs) -> Self {
        Self {
            minute,
            id: place.id,
            state: place.state,
            slot: place.slot,
        }
    }
}

/// A directory of a minute or a day.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Dir {
    start: UnixMs,
    end: UnixMs,
    is_day: bool,
    state: State,
    slot: Slot,
}

impl Dir {
    fn of(state: State, slot: Slot) -> Option<Self> {
        let (start, length_ms, is_day) = match slot {
            Slot::Minute(at) => (at, MINUTE_MS, false),
            Slot::Day(at) => (at, DAY_MS, true),
            Slot::Root | Slot::Claimed(_) | Slot::Parked => return None,
        };
        Some(Self {
            start,
            end: start.plus(length_ms),
            is_day,
            state,
            slot,
        })
    }
}

/// The smallest names behind the cursor.
struct Smallest {
    heap: BinaryHeap<Name>,
    after: Option<(UnixMs, RequestId)>,
    /// There is more behind what is kept.
    dropped: bool,
}

impl Smallest {
    fn keep(&mut self, name: Name) {
        if self.after.is_some_and(|at| (name.minute, name.id) <= at) {
            return;
        }
        self.heap.push(name);
        if self.heap.len() > NAMES_MAX {
            self.heap.pop();
            self.dropped = true;
        }
    }

    /// Whether nothing from `start` on could be kept.
    fn is_full_before(&self, start: UnixMs) -> bool {
        self.heap.len() >= NAMES_MAX && self.heap.peek().is_some_and(|last| last.minute < start)
    }
}

/// The due time that a file's own time hints at; `None` if it is gone.
fn hint(store: &FileStore, place: &Place) -> Result<Option<UnixMs>, StoreError> {
    let path = store.path(&place.path());
    match store.disk.stat(&path) {
        Ok(meta) => Ok(Some(meta.mtime)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(io_error("look at", &path, source)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    /// It may hold smaller ids, and what comes before the cursor is not looked at again.
    #[test]
    fn a_directory_of_the_last_minute_is_listed_though_the_window_is_full() {
        let mut smallest = Smallest {
            heap: BinaryHeap::new(),
            after: None,
            dropped: false,
        };
        let minute = UnixMs(MINUTE_MS);
        for n in 1..=NAMES_MAX {
            smallest.keep(Name {
                minute,
                id: RequestId(Uuid::from_u128(n as u128)),
                state: State::Pending,
                slot: Slot::Root,
            });
        }
        assert!(!smallest.is_full_before(minute));
        assert!(smallest.is_full_before(minute.plus(MINUTE_MS)));
    }
}
