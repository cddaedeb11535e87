//! What is due: listing it, and claiming a group of it.

use std::collections::HashSet;
use std::sync::Arc;

use super::super::super::{Claimed, Decision, StoreError, Want};
use super::super::journal::{ClaimRecord, MoveRecord, Record};
use super::super::layout::Place;
use super::super::replay;
use super::super::stuck;
use super::super::window::Window;
use super::twin::Doubt;
use super::{FileSession, Got, InHand};
use crate::model::envelope::BODIES;
use crate::model::event::{Event, EventKind};
use crate::model::ids::{DestName, RequestId};
use crate::model::item::Item;
use crate::model::notice::{Asked, Notice};
use crate::model::outcome::OutcomeKind;
use crate::model::reason::Reason;
use crate::model::state::State;
use crate::model::time::UnixMs;

/// How many bytes of items one group holds in memory.
const GROUP_BYTES_MAX: usize = 4 * 1024 * 1024;

impl FileSession<'_> {
    /// Whether a destination's items have somewhere to go. One that is not usable is told of, and
    /// counts as having nothing due.
    pub(super) fn is_usable(&mut self, destination: &DestName) -> bool {
        if self.out_of_reach.contains(destination) {
            return false;
        }
        let failed = self.claims_failed.get(destination.as_str());
        if self.stuck.is_many(destination.as_str()) || failed.is_some_and(|n| *n >= stuck::MANY) {
            let why = "what was decided of many of its items cannot be done; nothing is sent there \
                until it is";
            self.foreign(&format!("destination `{destination}`"), why);
            self.out_of_reach.insert(destination.clone());
            return false;
        }
        if self.windows.contains_key(destination) {
            return true;
        }
        if self.unusable.contains(destination) {
            return false;
        }
        let Err(error) = self.store.check_destination(destination.as_str()) else {
            return true;
        };
        self.unusable.insert(destination.clone());
        let why = format!("{error}; nothing is sent to `{destination}`");
        // Before single files, of which there may be many.
        self.met.foreign.insert(0, why);
        false
    }

    pub(super) fn fill(&mut self, destination: &DestName, now: UnixMs) -> Result<(), StoreError> {
        let window = self
            .windows
            .entry(destination.clone())
            .or_insert_with(|| Window::new(destination.clone()));
        let before = std::mem::take(&mut window.listed);
        let listing = match window.fill(self.store, now) {
            // A directory that cannot be read costs its own destination's items their turn, and so does
            // one of which nobody can tell whether what is in it lasts.
            Err(StoreError::Io {
                op: op @ ("list" | "look at" | "sync directory again"),
                path,
                source,
            }) if op != "sync directory again" || stuck::is_of_one_file(&source) => {
                window.give_up();
                let path = path.display().to_string();
                let what = if op == "sync directory again" {
                    "sync"
                } else {
                    "read"
                };
                self.foreign(&path, &format!("cannot {what} it: {source}"));
                return Ok(());
            }
            other => other?,
        };
        for dir in before {
            // Made, filled and emptied by the lock's owner alone; one that is not empty stays.
            drop(self.store.disk.remove_dir(&self.store.path(&dir)));
        }
        for path in listing.foreign {
            self.foreign(&path, "it does not belong here; it was left as it is");
        }
        for place in listing.to_file {
            let Got::Item(item, bytes_good) = self.get(&place)? else {
                continue;
            };
            let stays = !self.refile(&place, &item, bytes_good)?;
            if let (true, Some(window)) =
                (stays && item.is_due(now), self.windows.get_mut(destination))
            {
                // Its file's time lies ahead, and the item itself names none.
                window.add(&place, now.minute());
            }
        }
        Ok(())
    }

    pub(super) fn next_due(
        &mut self,
        destination: &DestName,
        now: UnixMs,
    ) -> Result<Option<Place>, StoreError> {
        loop {
            if let Some(window) = self.windows.get_mut(destination) {
                if let Some(place) = window.next() {
                    return Ok(Some(place));
                }
                if window.is_exhausted() {
                    return Ok(None);
                }
            }
            self.flush()?;
            self.fill(destination, now)?;
        }
    }

    pub(super) fn claim_group(
        &mut self,
        wants: &[Want],
        now: UnixMs,
        decide: &mut dyn FnMut(&Item) -> Decision,
    ) -> Result<Vec<Claimed>, StoreError> {
        self.now = now;
        if self.tight.is_some() {
            return Ok(Vec::new());
        }
        let mut group: Vec<(Place, Box<Item>, u64)> = Vec::new();
        let in_hand = self.in_hand.values().map(|hand| hand.claimed.id);
        let mut claimed: HashSet<RequestId> = in_hand.collect();
        let mut group_bytes = 0;
        for want in wants {
            if !self.is_usable(&want.destination) {
                continue;
            }
            let (mut taken, mut looks) = (0, 0);
            while (taken < want.items_max || want.items_max == 0)
                && looks < want.looks_max
                && group_bytes < GROUP_BYTES_MAX
            {
                looks += 1;
                let Some(place) = self.next_due(&want.destination, now)? else {
                    break;
                };
                let Some((item, bytes_good, doubt)) = self.take_up(&place, &claimed)? else {
                    continue;
                };
                let decision = decide(&item);
                if matches!(decision, Decision::Claim) && taken < want.items_max {
                    if !self.is_fit(&place, &item, doubt)? {
                        continue;
                    }
                    claimed.insert(place.id);
                    taken += 1;
                    group_bytes += usize::try_from(bytes_good).unwrap_or(usize::MAX);
                    group.push((place, item, bytes_good));
                } else {
                    self.decide(&place, &item, bytes_good, decision)?;
                }
            }
        }
        if group.is_empty() {
            return Ok(Vec::new());
        }
        let fits = self.reserve_settles(group.len())?;
        for (place, _, _) in group.split_off(fits) {
            // The next claim looks from the start, and meets it again.
            self.windows
                .retain(|name, _| name.as_str() != place.destination);
        }
        if group.is_empty() {
            return Ok(Vec::new());
        }
        let numbered: Vec<u32> = group
            .iter()
            .map(|(_, item, _)| item.standing().last_n.saturating_add(1))
            .collect();
        let items = group
            .iter()
            .zip(&numbered)
            .map(|((place, _, _), n)| ClaimRecord {
                from: place.path(),
                n: *n,
            })
            .collect();
        self.append(&Record::Claim { at: now, items })?;
        // The claims are durable from here on, and so is everything settled before.
        self.write_out()?;
        let mut claims = Vec::with_capacity(group.len());
        for ((from, item, bytes_good), n) in group.into_iter().zip(numbered) {
            let claimed = from.claimed(n);
            if !self.move_claimed(&from, &claimed)? {
                continue;
            }
            let handle = self.next_handle;
            self.next_handle += 1;
            self.in_hand.insert(
                handle,
                InHand {
                    from,
                    claimed,
                    at: now,
                    bytes_good,
                },
            );
            claims.push(Claimed {
                item: Arc::new(*item),
                n,
                at: now,
                handle,
            });
        }
        self.flush()?;
        Ok(claims)
    }

    /// Reads what is due, if it may be decided on: it is the one file of its item, as far as what is
    /// `claimed` and the times tell, and it lies where its events say.
    fn take_up(
        &mut self,
        place: &Place,
        claimed: &HashSet<RequestId>,
    ) -> Result<Option<(Box<Item>, u64, Doubt)>, StoreError> {
        let (Got::Item(item, bytes_good), mut doubt) = self.get_with_doubt(place)? else {
            return Ok(None);
        };
        if claimed.contains(&place.id) {
            let why = "another file of this item is being sent; it was left as it is";
            self.foreign(&place.path(), why);
            return Ok(None);
        }
        if doubt.is_strong() {
            // Before anything is written to it.
            if self.has_twin(place, &item, doubt)? {
                return Ok(None);
            }
            doubt = Doubt::None;
        }
        let standing = item.standing();
        if place.state == State::Unknown && standing.state != State::Unknown {
            self.lost_event(place, &item, bytes_good, self.now)?;
            return Ok(None);
        }
        if standing.state != place.state || standing.parked {
            // A durable event that says where the item went wins over the directory.
            self.refile(place, &item, bytes_good)?;
            return Ok(None);
        }
        Ok(Some((item, bytes_good, doubt)))
    }

    /// Moves what is claimed by a record. False if the claim was given up.
    fn move_claimed(&mut self, from: &Place, claimed: &Place) -> Result<bool, StoreError> {
        let mut displaced = Vec::new();
        let moved = if self.stuck.holds(from.id) {
            // What was decided of another file of it, just now, cannot be done.
            Ok(false)
        } else {
            self.with_room(|session| {
                replay::move_file(session.store, &from.path(), &claimed.path(), &mut displaced)
            })
        };
        self.displaced(displaced)?;
        match moved {
            Ok(true) => return Ok(true),
            // Or somebody has taken it away.
            Ok(false) => self.undo_claim(claimed, from)?,
            Err(error) => self.give_up_claim(from, claimed, error)?,
        }
        Ok(false)
    }

    /// Gives up a claim that is recorded, for its file cannot be moved.
    fn give_up_claim(
        &mut self,
        from: &Place,
        claimed: &Place,
        error: StoreError,
    ) -> Result<(), StoreError> {
        let why = stuck::of_one_file(error)?;
        self.foreign(&from.path(), &format!("{why}; it was not sent"));
        self.undo_claim(claimed, from)?;
        let destination = from.destination.clone();
        *self.claims_failed.entry(destination).or_default() += 1;
        Ok(())
    }

    fn undo_claim(&mut self, claimed: &Place, from: &Place) -> Result<(), StoreError> {
        let undone = MoveRecord::plain(claimed, from, None);
        self.append(&Record::Move(Box::new(undone)))
    }

    /// Whether what is due can go out: with the body that was accepted, which is looked at each time,
    /// and as the only file of its item.
    fn is_fit(&mut self, place: &Place, item: &Item, doubt: Doubt) -> Result<bool, StoreError> {
        let path = format!("{BODIES}{}", item.envelope.request_id);
        match self.store.body_damage(item) {
            Ok(None) => Ok(!self.has_twin(place, item, doubt)?),
            Ok(Some(damage)) => {
                let why = format!("its body, {path}, {damage}");
                let asked = Asked::of(&item.envelope);
                self.set_aside(&place.path(), &place.destination, &why, &asked)?;
                Ok(false)
            }
            // As of an item's own file: it costs one item its turn.
            Err(error) => {
                let why = format!("cannot read its body, {path}: {error}; it was left as it is");
                self.foreign(&place.path(), &why);
                Ok(false)
            }
        }
    }

    /// An item lies where only an attempt can have brought it, and its events know of none: that
    /// event is lost. It may have been acted on, so a person looks.
    pub(super) fn lost_event(
        &mut self,
        place: &Place,
        item: &Item,
        bytes_good: u64,
        now: UnixMs,
    ) -> Result<(), StoreError> {
        let mut event = Event::new(EventKind::Attempt, now, State::Unknown);
        event.n = Some(item.standing().last_n.saturating_add(1));
        event.outcome = Some(OutcomeKind::Interrupted);
        event.reason = Some(Reason::INTERRUPTED);
        event.note = Some("its last event was damaged and is lost".to_owned());
        let number = item.events.len() + 1;
        let notices = Notice::of(item, &event, number, &self.told_of_corrupt);
        self.move_with_event(place, item, bytes_good, event, notices)
    }
}
