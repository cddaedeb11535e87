//! What waits for something else than its turn: what a dead owner was sending, and held items
//! whose time has come.

use std::collections::HashSet;
use std::io;

use super::super::super::disk::Kind;
use super::super::super::{Decision, Interrupted, StoreError};
use super::super::journal::io_error;
use super::super::layout::{self, Place, Slot, slot_dir};
use super::{FileSession, Got};
use crate::model::event::Event;
use crate::model::ids::DestName;
use crate::model::item::Item;
use crate::model::notice::Notice;
use crate::model::state::State;
use crate::model::time::UnixMs;

impl FileSession<'_> {
    /// Whether a directory of a destination could be listed. One that could not costs that
    /// destination: it is told of, and nothing is sent there in this session, for what cannot be
    /// seen may be being sent, and what is sent may have nowhere to go.
    fn reached(
        &mut self,
        destination: &DestName,
        listed: Result<(), StoreError>,
    ) -> Result<bool, StoreError> {
        match listed {
            Ok(()) => Ok(true),
            Err(StoreError::Io { path, source, .. }) => {
                let why = format!("cannot read it: {source}; nothing is sent to `{destination}`");
                self.foreign(&path.display().to_string(), &why);
                self.out_of_reach.insert(destination.clone());
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Items in the directory itself of unknown: a dead owner was sending them.
    pub(super) fn interrupted_places(&mut self) -> Result<Vec<Place>, StoreError> {
        let mut places = Vec::new();
        for destination in self.destination_names(&[State::Unknown])? {
            let top = slot_dir(State::Unknown, destination.as_str(), Slot::Root);
            let (mut foreign, before) = (Vec::new(), places.len());
            let listed = self.store.list(&top, &mut |name, kind| match (
                kind,
                layout::parse_name(name.to_str().unwrap_or_default()),
            ) {
                (Kind::File, Some((id, Some(n)))) => places.push(Place {
                    state: State::Unknown,
                    destination: destination.to_string(),
                    slot: Slot::Claimed(n),
                    id,
                }),
                (Kind::Directory, _) => {}
                _ => foreign.push(format!("{top}/{}", name.display())),
            });
            if !self.reached(&destination, listed)? {
                places.truncate(before);
            }
            for path in foreign {
                self.foreign(&path, "it does not belong here; it was left as it is");
            }
        }
        Ok(places)
    }

    pub(super) fn recover_all(
        &mut self,
        decide: &mut dyn FnMut(&Interrupted) -> (Event, Vec<Notice>),
    ) -> Result<u64, StoreError> {
        let mut recovered = 0;
        // What this session is sending was not interrupted.
        let own: HashSet<Place> = self.in_hand.values().map(|h| h.claimed.clone()).collect();
        for place in self.interrupted_places()? {
            if own.contains(&place) {
                continue;
            }
            let Slot::Claimed(n) = place.slot else {
                continue;
            };
            let Got::Item(item, bytes_good) = self.get_only(&place)? else {
                continue;
            };
            let standing = item.standing();
            if standing.last_n >= n {
                // The attempt was settled; only the rename is missing.
                self.refile(&place, &item, bytes_good)?;
                continue;
            }
            let claimed_at = match self.claimed_at.get(&place.id) {
                Some(at) => *at,
                None => self.leftover_claim(&place, standing.updated_at)?,
            };
            let interrupted = Interrupted {
                item: *item,
                n,
                claimed_at,
            };
            let (event, notices) = decide(&interrupted);
            self.move_with_event(&place, &interrupted.item, bytes_good, event, notices)?;
            recovered += 1;
        }
        self.flush()?;
        Ok(recovered)
    }

    /// When an item was claimed that a tick left behind in good order: that tick set the file's
    /// time to it. A time that cannot be is replaced by the earliest that can.
    pub(super) fn leftover_claim(
        &self,
        place: &Place,
        earliest: UnixMs,
    ) -> Result<UnixMs, StoreError> {
        let path = self.store.path(&place.path());
        let meta = self
            .store
            .disk
            .stat(&path)
            .map_err(|source| io_error("look at", &path, source))?;
        let fits = meta.mtime >= earliest && meta.mtime <= self.now;
        Ok(if fits { meta.mtime } else { earliest })
    }

    /// Held items with a minute that has come.
    pub(super) fn waking_places(
        &mut self,
        destination: &DestName,
        now: UnixMs,
        items_max: usize,
    ) -> Result<Vec<Place>, StoreError> {
        let top = slot_dir(State::Held, destination.as_str(), Slot::Root);
        let whole = self.store.path(&top);
        match self.store.disk.stat(&whole) {
            // On most file systems a directory without subdirectories has two names: then the
            // held items without a time, which may be many, need not be listed.
            Ok(meta) if meta.nlink == 2 => return Ok(Vec::new()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => {
                self.reached(destination, Err(io_error("look at", &whole, source)))?;
                return Ok(Vec::new());
            }
        }
        let mut minutes = Vec::new();
        let listed = self.store.list(&top, &mut |name, kind| {
            let slot = layout::parse_slot(name.to_str().unwrap_or_default());
            if let (Kind::Directory, Some(Slot::Minute(at))) = (kind, slot)
                && at <= now
            {
                minutes.push(at);
            }
        });
        self.reached(destination, listed)?;
        minutes.sort();
        let mut places = Vec::new();
        for at in minutes {
            let dir = slot_dir(State::Held, destination.as_str(), Slot::Minute(at));
            let before = places.len();
            let listed = self.store.list(&dir, &mut |name, kind| {
                let parsed = layout::parse_name(name.to_str().unwrap_or_default());
                if let (Kind::File, Some((id, None))) = (kind, parsed) {
                    places.push(Place {
                        state: State::Held,
                        destination: destination.to_string(),
                        slot: Slot::Minute(at),
                        id,
                    });
                }
            });
            if !self.reached(destination, listed)? {
                places.truncate(before);
            } else if places.len() == before {
                drop(self.store.disk.remove_dir(&self.store.path(&dir)));
            }
            if places.len() >= items_max {
                places.truncate(items_max);
                break;
            }
        }
        Ok(places)
    }

    /// Gives held items to `decide`; with `due`, only those whose turn has come by then.
    pub(super) fn offer(
        &mut self,
        places: &[Place],
        due: Option<UnixMs>,
        decide: &mut dyn FnMut(&Item) -> Decision,
    ) -> Result<u64, StoreError> {
        let mut moved = 0;
        for place in places {
            if let Got::Item(item, bytes_good) = self.get_only(place)? {
                let misplaced = item.standing().state != place.state;
                if misplaced || due.is_some_and(|now| !item.is_due(now)) {
                    self.refile(place, &item, bytes_good)?;
                    continue;
                }
                let decision = decide(&item);
                let settles = matches!(decision, Decision::Settle(..));
                self.decide(place, &item, bytes_good, decision)?;
                moved += u64::from(settles);
            }
        }
        self.flush()?;
        Ok(moved)
    }
}
