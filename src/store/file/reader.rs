//! Reading without the lock: places are listed in the order of an item's life, an id counts
//! once, and what the journal says ahead of the directories is taken into account.

use std::collections::HashSet;
use std::io;

use super::super::disk::Kind;
use super::super::{Counts, Found, Scope, StoreError};
use super::journal::{self, Overlay, io_error};
use super::layout::{self, Place, Slot, slot_dir};
use super::replay::{first_lines, is_absence};
use super::{FileStore, ITEM_BYTES_MAX};
use crate::model::ids::{DestName, RequestId};
use crate::model::item::{Damage, Item};
use crate::model::state::State;
use crate::model::time::{UnixMs, id_time};

/// What the walk meets: an item's place, or something that is none.
enum Met<'a> {
    Item(&'a Place),
    Foreign(&'a str),
    /// A directory that cannot be read, or an item's place at which no file stands; with the cause.
    Unreadable(&'a str),
}

/// Of how many waiting items a count sees whether they can be read at all.
const LOOKS_MAX: usize = 10_000;

/// Names of the directories in a directory, in order; anything else goes to `foreign`.
pub(super) fn subdirs(
    store: &FileStore,
    relative: &str,
    foreign: &mut dyn FnMut(String),
) -> Result<Vec<String>, StoreError> {
    let mut names = Vec::new();
    store.list(relative, &mut |name, kind| match (kind, name.to_str()) {
        (Kind::Directory, Some(name)) => names.push(name.to_owned()),
        _ => foreign(format!("{relative}/{}", name.display())),
    })?;
    names.sort();
    Ok(names)
}

/// Walks the places in scope.
fn walk(
    store: &FileStore,
    scope: &Scope,
    each: &mut dyn FnMut(Met<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let wanted = |state: &State| scope.states.is_empty() || scope.states.contains(state);
    for state in State::ALL.into_iter().filter(wanted) {
        let destinations = if let Some(name) = &scope.destination {
            vec![name.clone()]
        } else {
            let mut foreign = Vec::new();
            let names = subdirs(store, state.as_str(), &mut |path| foreign.push(path))?;
            for path in &foreign {
                each(Met::Foreign(path))?;
            }
            names
        };
        for destination in destinations {
            let top = slot_dir(state, &destination, Slot::Root);
            if destination.parse::<DestName>().is_err() {
                each(Met::Foreign(&top))?;
                continue;
            }
            let mut slots = vec![];
            walk_slot(store, state, &destination, Slot::Root, each, &mut slots)?;
            slots.sort();
            for slot in slots {
                walk_slot(store, state, &destination, slot, each, &mut Vec::new())?;
            }
        }
    }
    Ok(())
}

fn walk_slot(
    store: &FileStore,
    state: State,
    destination: &str,
    slot: Slot,
    each: &mut dyn FnMut(Met<'_>) -> Result<(), StoreError>,
    slots: &mut Vec<Slot>,
) -> Result<(), StoreError> {
    let dir = slot_dir(state, destination, slot);
    // Entries are handed on after the listing, so that a slow reader holds no directory open.
    let mut places = Vec::new();
    let mut foreign = Vec::new();
    let mut unreadable = Vec::new();
    let listed = store.list(&dir, &mut |name, kind| {
        let text = name.to_str().unwrap_or_default();
        match kind {
            Kind::Directory if slot == Slot::Root => match layout::parse_slot(text) {
                Some(slot) => slots.push(slot),
                None => foreign.push(format!("{dir}/{}", name.display())),
            },
            Kind::File => match layout::parse_name(text) {
                Some((id, None)) => places.push((id, slot)),
                Some((id, Some(n))) if slot == Slot::Root && state == State::Unknown => {
                    places.push((id, Slot::Claimed(n)));
                }
                _ => foreign.push(format!("{dir}/{}", name.display())),
            },
            Kind::Directory | Kind::Other => foreign.push(format!("{dir}/{}", name.display())),
        }
        if kind != Kind::File && layout::parse_name(text).is_some() {
            // Perhaps somebody has put it in an item's place.
            foreign.pop();
            unreadable.push(format!("{dir}/{text} (it is no regular file)"));
        }
    });
    match listed {
        // It costs the others nothing that one directory cannot be read.
        Err(StoreError::Io { path, source, .. }) => {
            unreadable.push(format!("{} (cannot read it: {source})", path.display()));
        }
        other => other?,
    }
    for (id, slot) in places {
        each(Met::Item(&Place {
            state,
            destination: destination.to_owned(),
            slot,
            id,
        }))?;
    }
    for path in &foreign {
        each(Met::Foreign(path))?;
    }
    for path in &unreadable {
        each(Met::Unreadable(path))?;
    }
    Ok(())
}

pub(super) fn overlay(store: &FileStore) -> Result<Overlay, StoreError> {
    let records = journal::read_all(store.disk.as_ref(), &store.root)?;
    Ok(Overlay::of(records))
}

/// Where an item is by the journal's word. `None` if it has been set aside.
fn current(overlay: &Overlay, place: &Place) -> Option<Found> {
    let seen = place.path();
    let (now, events) = overlay.now(place.id, &seen);
    let by_journal = match now {
        Some(path) => Some(Place::parse(path)?),
        None => None,
    };
    let place_now = by_journal.as_ref().unwrap_or(place);
    Some(Found {
        id: place.id,
        destination: place_now.destination.clone(),
        state: place_now.state,
        parked: place_now.slot == Slot::Parked,
        place: seen,
        journalled: events,
    })
}

/// What changes whenever somebody moves items, and whether somebody is at it.
#[derive(PartialEq, Eq)]
pub(super) struct Stir {
    pub(super) journal: UnixMs,
    pub(super) lock: UnixMs,
    busy: bool,
}

impl Stir {
    /// Whether somebody owned the lock, or died with it.
    pub(super) fn is_busy(&self) -> bool {
        self.busy
    }
}

pub(super) fn stir(store: &FileStore) -> Result<Stir, StoreError> {
    let changed = |relative: &str| {
        let path = store.path(relative);
        match store.disk.stat(&path) {
            Ok(meta) => Ok(meta.changed),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(UnixMs(0)),
            Err(source) => Err(io_error("look at", &path, source)),
        }
    };
    // Its text names the owner while there is one, and after one that died.
    let owner = store.disk.read(&store.path("lock"), 4096);
    Ok(Stir {
        journal: changed("journal")?,
        lock: changed("lock")?,
        busy: owner.is_ok_and(|text| !text.is_empty()),
    })
}

/// Every item once. While items are being moved, one may slip from before the walk to behind it:
/// then it is walked again for what was not seen, and what the journal names is looked up.
pub(super) fn scan(
    store: &FileStore,
    scope: &Scope,
    each: &mut dyn FnMut(&Found) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let before = stir(store)?;
    let mut seen = HashSet::new();
    let first = overlay(store)?;
    // The journal may have moved an item out of, or into, the states asked for.
    let walked = Scope {
        states: if first.is_empty() {
            scope.states.clone()
        } else {
            Vec::new()
        },
        destination: scope.destination.clone(),
    };
    pass(store, &first, &walked, scope, &mut seen, each)?;
    let after = stir(store)?;
    if after == before && !after.busy {
        return Ok(());
    }
    let all = Scope {
        states: Vec::new(),
        destination: scope.destination.clone(),
    };
    let second = overlay(store)?;
    pass(store, &second, &all, scope, &mut seen, each)?;
    let third = overlay(store)?;
    let missed: Vec<RequestId> = third.ids().filter(|id| !seen.contains(id)).collect();
    for id in missed {
        let Some(found) = find(store, id)? else {
            continue;
        };
        let fits = scope
            .destination
            .as_ref()
            .is_none_or(|name| *name == found.destination);
        if fits && (scope.states.is_empty() || scope.states.contains(&found.state)) {
            each(&found)?;
        }
    }
    Ok(())
}

/// Walks once, and hands on what was not seen before.
fn pass(
    store: &FileStore,
    overlay: &Overlay,
    walked: &Scope,
    scope: &Scope,
    seen: &mut HashSet<RequestId>,
    each: &mut dyn FnMut(&Found) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    walk(store, walked, &mut |met| {
        let Met::Item(place) = met else {
            return Ok(());
        };
        // One that is set aside may hide no other file of its item.
        let Some(found) = current(overlay, place) else {
            return Ok(());
        };
        let is_asked = scope.states.is_empty() || scope.states.contains(&found.state);
        if seen.insert(place.id) && is_asked {
            each(&found)?;
        }
        Ok(())
    })
}

/// One look-up a directory, no reads; again once on a miss, for the item may be moving.
///
/// # Errors
///
/// Also if it is nowhere that can be looked at, and something is out of reach.
pub(super) fn find(store: &FileStore, id: RequestId) -> Result<Option<Found>, StoreError> {
    let mut out_of_reach = None;
    for _ in 0..3 {
        let overlay = overlay(store)?;
        for state in State::ALL {
            for destination in subdirs(store, state.as_str(), &mut |_| {})? {
                match look_up(store, state, &destination, id) {
                    Ok(place) => {
                        if let Some(found) = place.and_then(|place| current(&overlay, &place)) {
                            return Ok(Some(found));
                        }
                    }
                    Err(error) => out_of_reach = Some(error),
                }
            }
        }
    }
    out_of_reach.map_or(Ok(None), Err)
}

fn look_up(
    store: &FileStore,
    state: State,
    destination: &str,
    id: RequestId,
) -> Result<Option<Place>, StoreError> {
    let at = |slot| Place {
        state,
        destination: destination.to_owned(),
        slot,
        id,
    };
    let root = at(Slot::Root);
    if is_item(store, &root)? {
        return Ok(Some(root));
    }
    let mut slots = Vec::new();
    let mut claimed = None;
    store.list(&root.dir(), &mut |name, kind| {
        let name = name.to_str().unwrap_or_default();
        match kind {
            Kind::Directory => slots.extend(layout::parse_slot(name)),
            Kind::File if state == State::Unknown => {
                if let Some((known, Some(n))) = layout::parse_name(name)
                    && known == id
                {
                    claimed = Some(n);
                }
            }
            Kind::File | Kind::Other => {}
        }
    })?;
    if let Some(n) = claimed {
        return Ok(Some(at(Slot::Claimed(n))));
    }
    let mut out_of_reach = None;
    for place in slots.into_iter().map(at) {
        match is_item(store, &place) {
            Ok(true) => return Ok(Some(place)),
            Ok(false) => {}
            Err(error) => out_of_reach = Some(error),
        }
    }
    out_of_reach.map_or(Ok(None), Err)
}

/// Whether a regular file is there: a link, a pipe or a directory of an item's name is no item.
pub(super) fn is_item(store: &FileStore, place: &Place) -> Result<bool, StoreError> {
    let path = store.path(&place.path());
    match store.disk.stat(&path) {
        Ok(meta) => Ok(meta.kind == Kind::File),
        Err(error) if is_absence(&error) => Ok(false),
        Err(source) => Err(io_error("look at", &path, source)),
    }
}

pub(super) fn read(store: &FileStore, found: &Found) -> Option<Result<Item, Damage>> {
    let path = store.path(&found.place);
    let bytes = match store.disk.read(&path, ITEM_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => return Some(Err(Damage::Unreadable(error.to_string()))),
    };
    let parsed = match Item::parse(&bytes) {
        // A loss of power can keep a later event and lose a piece of this one. The journal has it,
        // and all that come after it.
        Err(Damage::Middle(line) | Damage::Line(line))
            if found
                .journalled
                .iter()
                .any(|(number, _)| number + 1 == line) =>
        {
            let good = usize::try_from(first_lines(&bytes, line - 1)).unwrap_or(0);
            Item::parse(bytes.get(..good).unwrap_or_default())
        }
        parsed => parsed,
    };
    Some(parsed.map(|parsed| {
        let mut item = parsed.item;
        for (number, event) in &found.journalled {
            if *number == item.events.len() + 1 {
                item.events.push(event.clone());
            }
        }
        item
    }))
}

pub(super) fn counts(store: &FileStore) -> Result<Counts, StoreError> {
    let before = stir(store)?;
    let mut counts = Counts::default();
    let mut foreign = Vec::new();
    let mut unreadable = Vec::new();
    let mut looks = 0;
    walk(store, &Scope::default(), &mut |met| {
        match met {
            Met::Item(place) => {
                if !place.state.is_terminal() && looks < LOOKS_MAX {
                    looks += 1;
                    unreadable.extend(why_unreadable(store, place));
                }
                let parked = place.slot == Slot::Parked;
                tally(
                    &mut counts,
                    &place.destination,
                    place.state,
                    parked,
                    place.id,
                );
            }
            Met::Foreign(path) => foreign.push(path.to_owned()),
            Met::Unreadable(what) => unreadable.push(what.to_owned()),
        }
        Ok(())
    })?;
    let after = stir(store)?;
    if after != before || after.busy || !overlay(store)?.is_empty() {
        // Names alone do not tell: what moved may have been counted twice or not at all, and what
        // could not be moved is not where it is.
        counts = Counts::default();
        scan(store, &Scope::default(), &mut |found| {
            tally(
                &mut counts,
                &found.destination,
                found.state,
                found.parked,
                found.id,
            );
            Ok(())
        })?;
    }
    let mut count = |relative: &str, wanted: &dyn Fn(&str) -> bool| {
        let mut files = 0;
        let listed = store.list(relative, &mut |name, _| {
            files += u64::from(wanted(&name.to_string_lossy()));
        });
        if let Err(StoreError::Io { path, source, .. }) = listed {
            unreadable.push(format!("{} (cannot read it: {source})", path.display()));
        }
        files
    };
    counts.corrupt = count("corrupt", &|name| !name.ends_with(".why.json"));
    for destination in subdirs(store, "incoming", &mut |_| {}).unwrap_or_default() {
        let dir = format!("incoming/{destination}");
        let since = std::cell::Cell::new(None);
        let waiting = count(&dir, &|name| {
            let waits = !name.starts_with('.');
            if waits && let Ok(meta) = store.disk.stat(&store.path(&format!("{dir}/{name}"))) {
                // Whatever time its producer gave it, it was renamed then.
                let at = since
                    .get()
                    .map_or(meta.changed, |at: UnixMs| at.min(meta.changed));
                since.set(Some(at));
            }
            waits
        });
        counts.incoming += waiting;
        counts.incoming_since = match (counts.incoming_since, since.get()) {
            (Some(known), Some(own)) => Some(known.min(own)),
            (known, own) => known.or(own),
        };
    }
    counts.unreadable = unreadable;
    counts.foreign = foreign;
    Ok(counts)
}

/// Why an item that waits cannot be read: ticks leave it where it is, and it is never sent.
fn why_unreadable(store: &FileStore, place: &Place) -> Option<String> {
    let path = place.path();
    match store.disk.read_part(&store.path(&path), 0, 1) {
        Ok(_) => None,
        // It moves just now.
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => Some(format!("{path} (cannot read it: {error})")),
    }
}

fn tally(counts: &mut Counts, destination: &str, state: State, parked: bool, id: RequestId) {
    let own = counts
        .destinations
        .entry(destination.to_owned())
        .or_default();
    *own.entry(state).or_default() += 1;
    if parked {
        *counts.parked.entry(destination.to_owned()).or_default() += 1;
    }
    if state == State::Pending {
        let at = id_time(id);
        counts.oldest_pending = match (counts.oldest_pending, at) {
            (Some(oldest), Some(at)) => Some(oldest.min(at)),
            (oldest, at) => oldest.or(at),
        };
    }
}
