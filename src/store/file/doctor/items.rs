//! Every item: is it whole, is it one, does it lie where it belongs, has it its body and its key?

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;

use super::super::super::checkup::FindingKind;
use super::super::super::disk::Kind;
use super::super::ITEM_BYTES_MAX;
use super::super::keys::{self, Reservation};
use super::super::layout::{self, Place, Slot, slot_dir};
use super::placement::{self, Amiss};
use super::{Look, Mend, is_gone};
use crate::model::envelope::BODIES;
use crate::model::ids::{DestName, RequestId};
use crate::model::item::{Damage, Item};
use crate::model::state::State;
use crate::model::time::id_time;

/// A name in `keys/` that names another item than the one at a place.
pub(super) struct Mismatch {
    relative: String,
    names: RequestId,
    id: RequestId,
    item: String,
}

/// A hash of the path of a name in `keys/`.
pub(super) fn hash_of(relative: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    relative.hash(&mut hasher);
    hasher.finish()
}

/// Whether a name in `keys/` says what its item says. An old one does not say all.
fn says(known: &Reservation, mine: &Reservation) -> bool {
    known.request_id == mine.request_id
        && known.body_sha256 == mine.body_sha256
        && (known.request_sha256.is_empty() || known.request_sha256 == mine.request_sha256)
        && known.destination == mine.destination
}

impl Look<'_> {
    pub(super) fn items(&mut self) {
        for state in State::ALL {
            for place in self.places(state, true) {
                self.item(&place);
            }
        }
        self.ids.sort_unstable();
        self.keyed.sort_unstable();
        self.doubles();
        self.mismatches();
        let waiting = std::mem::take(&mut self.waiting);
        for (destination, (path, items)) in waiting {
            let word = if items == 1 {
                "item waits"
            } else {
                "items wait"
            };
            self.add(
                FindingKind::Unconfigured,
                &path,
                &format!("destination `{destination}` is not configured, and {items} {word}"),
                &format!(
                    "configure the destination again, or `tickpost cancel --state pending --destination {destination}`"
                ),
                Mend::Person,
            );
        }
    }

    /// The places of a state's items. With `first`, directories are looked at too, and what lies in
    /// them that is no item.
    pub(super) fn places(&mut self, state: State, first: bool) -> Vec<Place> {
        let mut places = Vec::new();
        for entry in self.entries_if(state.as_str(), first) {
            let name: Option<DestName> = entry.name.as_deref().and_then(|n| n.parse().ok());
            match (entry.kind, name) {
                (Kind::Directory, Some(name)) => {
                    self.slot(state, &name, Slot::Root, first, &mut places);
                }
                _ if first => self.among_items(
                    entry.kind,
                    &entry.path,
                    "only directories named as destinations belong here",
                ),
                _ => {}
            }
        }
        places
    }

    fn entries_if(&mut self, dir: &str, first: bool) -> Vec<super::Entry> {
        let faults = self.faults.len();
        let entries = self.entries(dir);
        if !first {
            self.faults.truncate(faults);
        }
        entries
    }

    fn slot(
        &mut self,
        state: State,
        destination: &DestName,
        slot: Slot,
        first: bool,
        places: &mut Vec<Place>,
    ) {
        let dir = slot_dir(state, destination.as_str(), slot);
        if first {
            self.check_access(&dir, 0o700);
        }
        for entry in self.entries_if(&dir, first) {
            let name = entry.name.as_deref().unwrap_or_default();
            let inner = layout::parse_slot(name).filter(|_| slot == Slot::Root);
            match (entry.kind, layout::parse_name(name), inner) {
                (Kind::Directory, _, Some(inner)) => {
                    self.slot(state, destination, inner, first, places);
                }
                (Kind::File, Some((id, n)), _) if n.is_none() || slot == Slot::Root => {
                    places.push(Place {
                        state,
                        destination: destination.to_string(),
                        slot: n.map_or(slot, Slot::Claimed),
                        id,
                    });
                }
                (Kind::File, Some(_), _) if first => self.add(
                    FindingKind::Foreign,
                    &entry.path,
                    "a claimed item lies where no tick looks for one",
                    &format!("move it to unknown/{destination}/ under the same name: the next tick recovers it"),
                    Mend::Person,
                ),
                (Kind::Directory, Some(_), _) if first => {
                    self.foreign(&entry.path, "a directory has the name of an item");
                }
                (Kind::Other, ..) if first => self.foreign(
                    &entry.path,
                    "it is a link, a FIFO, a socket or a device",
                ),
                (kind, ..) if first => {
                    self.among_items(kind, &entry.path, "nothing of this name belongs here");
                }
                _ => {}
            }
        }
    }

    /// What lies among a state's items and has no item's name: somebody may have renamed one, or a
    /// directory of them.
    fn among_items(&mut self, kind: Kind, path: &str, what: &str) {
        let next = match kind {
            Kind::File => {
                "it may be an item that was renamed: `tickpost audit` names those that are missing, and an item's first line has its request_id. Name a missing one ID.jsonl again, and move anything else out of the spool; no command opens it"
            }
            Kind::Directory => {
                "items may lie in it: `tickpost audit` names those that are missing. Move the ID.jsonl of a missing one into the directory of its destination, and anything else out of the spool; no command looks into it"
            }
            Kind::Other => return self.foreign(path, what),
        };
        self.add(FindingKind::Foreign, path, what, next, Mend::Person);
    }

    fn item(&mut self, place: &Place) {
        let path = place.path();
        self.ids.push(place.id);
        if self.is_moving(place.id) {
            return;
        }
        self.unread.insert(place.id);
        let Some(meta) = self.stat(&path) else {
            return;
        };
        self.check_meta(&path, &meta, 0o600);
        if !place.state.is_terminal() {
            self.count_waiting(place);
        }
        let id = Some(place.id);
        let read = self
            .store
            .disk
            .read(&self.store.path(&path), ITEM_BYTES_MAX);
        let damage = match read {
            Ok(bytes) => match Item::parse(&bytes).and_then(|parsed| {
                parsed.item.check_place(&place.destination, place.id)?;
                Ok(parsed.item)
            }) {
                Ok(item) => {
                    self.unread.remove(&place.id);
                    self.placement(place, &item, &meta);
                    if !place.state.is_terminal() {
                        self.body(place, &item);
                    }
                    return self.names_of(place, &item);
                }
                Err(damage) => damage,
            },
            Err(error) if is_gone(&error) => return,
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                Damage::Envelope(error.to_string())
            }
            Err(error) => {
                self.add_of(
                    FindingKind::Unreadable,
                    &path,
                    id,
                    &format!("cannot be read: {error}"),
                    "make it readable for the spool's user; until then it waits",
                    Mend::Person,
                );
                return;
            }
        };
        if let Damage::Newer(_) = damage {
            self.add_of(
                FindingKind::Newer,
                &path,
                id,
                &damage.to_string(),
                "use the newer tickpost that wrote it; it is left as it is",
                Mend::Person,
            );
        } else {
            self.add_of(
                FindingKind::Damaged,
                &path,
                id,
                &damage.to_string(),
                "it is moved to corrupt/, with the reason beside it, and told of",
                Mend::Item,
            );
        }
    }

    fn count_waiting(&mut self, place: &Place) {
        let is_known = self.checkup.configured.is_none_or(|configured| {
            let name = place.destination.parse();
            name.is_ok_and(|name: DestName| configured.contains(&name))
        });
        if !is_known {
            let first = || (slot_dir(place.state, &place.destination, Slot::Root), 0);
            let entry = self.waiting.entry(place.destination.clone());
            entry.or_insert_with(first).1 += 1;
        }
    }

    fn placement(&mut self, place: &Place, item: &Item, meta: &super::Meta) {
        let now = self.checkup.now;
        let Some(amiss) = placement::amiss(place, item, meta.mtime, now) else {
            return;
        };
        let state = item.standing().state;
        let (what, next) = match amiss {
            Amiss::Elsewhere(to) if state != place.state => (
                format!("its events say that it is {state}"),
                format!("it is moved to {}/", to.dir()),
            ),
            Amiss::Elsewhere(to) => (
                "no tick would look here, or not in time".to_owned(),
                format!("it is moved to {}/", to.dir()),
            ),
            Amiss::Hint(turn) => (
                format!("its file's time would bring it up after its turn, {turn}"),
                "the file's time is set".to_owned(),
            ),
            Amiss::LostAttempt => (
                format!("its events say {state}, and nothing of how it came here: one is lost"),
                "it is parked: the receiver may have acted on it, so look there and `tickpost resolve` it".to_owned(),
            ),
            Amiss::LostHold => (
                "its events say pending, and nothing of who held it: one is lost".to_owned(),
                "it stays held, until `tickpost release`".to_owned(),
            ),
        };
        self.add_of(
            FindingKind::Misplaced,
            &place.path(),
            Some(place.id),
            &what,
            &next,
            Mend::Item,
        );
    }

    /// The body of a waiting item that lies in a file.
    fn body(&mut self, place: &Place, item: &Item) {
        let what = match self.store.body_damage(item) {
            Ok(None) => return,
            Ok(Some(damage)) => format!("the body {damage}"),
            Err(error) => format!("the body cannot be read: {error}"),
        };
        let path = format!("{BODIES}{}", place.id);
        self.add_of(
            FindingKind::Body,
            &path,
            Some(place.id),
            &what,
            "nothing of it is sent: put the right body back from a backup, or enqueue it anew and `tickpost cancel` this one; else it goes to corrupt/ when its turn comes",
            Mend::Person,
        );
    }

    /// The names that an item has reserved in `keys/`.
    fn names_of(&mut self, place: &Place, item: &Item) {
        let envelope = &item.envelope;
        if let Some(key) = &envelope.key {
            let relative = keys::key_path(&place.destination, key);
            self.keyed.push((place.id, hash_of(&relative)));
            self.name_of(place, relative, &Reservation::of_key(envelope), true);
        }
        // An id that carries no time is a caller's own, unless it is that of a notice.
        let is_own = id_time(place.id).is_none() && !envelope.notice;
        let relative = keys::own_id_path(place.id);
        self.name_of(place, relative, &Reservation::of_id(envelope), is_own);
    }

    fn name_of(&mut self, place: &Place, relative: String, mine: &Reservation, is_needed: bool) {
        // Its name is the id: whatever else it names is wrong.
        let is_id = mine.destination.is_some();
        let meta = self.stat(&relative);
        let what = match meta.map(|meta| meta.kind) {
            None if !is_needed => return,
            None => "is missing: a repeat would be accepted as another item",
            // Told of as what does not belong.
            Some(Kind::Directory | Kind::Other) => return,
            Some(Kind::File) => match self.store.read_json::<Reservation>(&relative) {
                Err(_) => "cannot be read",
                Ok(None) => "is damaged: a repeat would be accepted as another item",
                Ok(Some(known)) if known.request_id != place.id && !is_id => {
                    self.mismatched.push(Mismatch {
                        relative,
                        names: known.request_id,
                        id: place.id,
                        item: place.path(),
                    });
                    return;
                }
                Ok(Some(known)) if says(&known, mine) => return,
                Ok(Some(_)) => "says another request than its item: a repeat would be refused",
            },
        };
        self.flagged.insert(relative.clone());
        self.add_of(
            FindingKind::Key,
            &relative,
            Some(place.id),
            what,
            "it is written again from its item",
            Mend::Key { item: place.path() },
        );
    }

    /// Names that name another item. If that is nowhere, the item that has the key is meant.
    fn mismatches(&mut self) {
        for mismatch in std::mem::take(&mut self.mismatched) {
            let Mismatch {
                relative,
                names,
                id,
                item,
            } = mismatch;
            self.flagged.insert(relative.clone());
            if self.is_there(names) || self.is_moving(names) {
                self.add_of(
                    FindingKind::Key,
                    &relative,
                    Some(id),
                    &format!("names item {names}, and {id} says that it has the same key"),
                    "two items stand for one key: look at both, and `tickpost cancel` the one that should not be",
                    Mend::Person,
                );
            } else {
                self.add_of(
                    FindingKind::Key,
                    &relative,
                    Some(id),
                    &format!("names item {names}, which is nowhere"),
                    "it is written again from its item",
                    Mend::Key { item },
                );
            }
        }
    }
}
