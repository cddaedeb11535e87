//! The invariants: the guarantees of the contract, as far as disk, receiver and producers show them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;

use tickpost::model::envelope::sha256_hex;
use tickpost::model::event::{Event, EventKind};
use tickpost::model::ids::RequestId;
use tickpost::model::item::Item;
use tickpost::model::outcome::OutcomeKind;
use tickpost::model::state::State;
use tickpost::store::file::layout::{Place, Slot};
use tickpost::store::{Scope, Store as _};

use crate::crash_disk::ROOT;
use crate::truth::{Known, Telling};
use crate::world::World;

/// Where an id lies, and what its file says.
type Copies = Vec<(Place, Result<Rc<Item>, String>)>;

/// What lies on the disk.
#[derive(Default)]
struct Seen {
    places: BTreeMap<RequestId, Copies>,
    tombstones: BTreeSet<RequestId>,
    /// Files in the drop boxes: what they are called.
    incoming: Vec<(String, Vec<u8>)>,
    corrupt: Vec<String>,
    bodies: BTreeMap<String, (usize, String)>,
    journal: String,
}

fn look(world: &World) -> Seen {
    let mut seen = Seen::default();
    let mut truth = world.truth.borrow_mut();
    world
        .disk()
        .walk(Path::new(ROOT), &mut |path, inode, bytes| {
            let (top, rest) = path.split_once('/').unwrap_or((path, ""));
            match top {
                "incoming" => seen.incoming.push((rest.to_owned(), bytes.to_vec())),
                "corrupt" => seen.corrupt.push(rest.to_owned()),
                "journal" => seen.journal.push_str(&String::from_utf8_lossy(bytes)),
                "bodies" => {
                    let length = bytes.len();
                    let sum = || sha256_hex(bytes);
                    seen.bodies.insert(rest.to_owned(), (length, sum()));
                }
                "log" if rest.starts_with("pruned-") => {
                    for line in bytes.split(|b| *b == b'\n') {
                        let tombstone = tickpost::model::tombstone::Tombstone::parse(line);
                        seen.tombstones.extend(tombstone.map(|t| t.request_id));
                    }
                }
                _ => {
                    let Some(place) = Place::parse(path) else {
                        return;
                    };
                    let known = truth.known.get(&inode);
                    let sum = sum_of(bytes);
                    let known = known.filter(|(same, known)| *same == sum && known.id == place.id);
                    let item = match known {
                        Some((_, known)) => Ok(Rc::clone(&known.item)),
                        None => Item::parse(bytes)
                            .and_then(|parsed| {
                                parsed.item.check_place(&place.destination, place.id)?;
                                Ok(Rc::new(parsed.item))
                            })
                            .map_err(|damage| damage.to_string()),
                    };
                    if let Ok(item) = &item {
                        let known = Known {
                            id: place.id,
                            item: Rc::clone(item),
                        };
                        truth.known.insert(inode, (sum, known));
                    }
                    seen.places.entry(place.id).or_default().push((place, item));
                }
            }
        });
    seen
}

/// Whether contents are the same as before; nobody attacks it.
fn sum_of(bytes: &[u8]) -> u64 {
    let mut sum = bytes.len() as u64;
    for part in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        sum = (sum.rotate_left(7) ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    sum
}

/// What an item asks for, in a word.
fn name_of(item: &Item) -> &str {
    item.envelope.request.path.strip_prefix('/').unwrap_or("")
}

/// Whether an item may have been pruned: it was seen settled, or nobody had looked before it went.
pub(crate) fn was_pruned(world: &World, id: RequestId) -> bool {
    let was_settled = world.truth.borrow().prunable.contains(&id);
    was_settled || look(world).tombstones.contains(&id)
}

/// A producer was told that its own item is not accepted.
pub(crate) fn refused(world: &World, name: &str, own_id: Option<RequestId>, why: &str) {
    let pruned = own_id.is_some_and(|id| was_pruned(world, id));
    if !(pruned && why.contains("pruned")) {
        world.broken(format!("{name} was refused: {why}"));
    }
    world.say(|| format!("{name}: {why}"));
}

/// Every acknowledged id can be found at any moment, and is counted once.
pub(crate) fn read(world: &World) {
    let store = match world.store() {
        Ok(store) => store,
        Err(error) => return world.expect_fault(&error),
    };
    let acked: Vec<RequestId> = world.truth.borrow().acked.keys().copied().collect();
    let mut counted: BTreeMap<RequestId, u32> = BTreeMap::new();
    let scanned = store.scan(&Scope::default(), &mut |found| {
        *counted.entry(found.id).or_default() += 1;
        Ok(())
    });
    if let Err(error) = scanned {
        return world.expect_fault(&error);
    }
    if let Some((id, times)) = counted.iter().find(|(_, times)| **times > 1) {
        world.broken(format!("a reader counted {id} {times} times"));
    }
    for id in acked {
        let found = match store.find(id) {
            Ok(found) => found,
            Err(error) => return world.expect_fault(&error),
        };
        match found {
            Some(found) => {
                if !counted.contains_key(&id) && !world.is_faulty() {
                    world.broken(format!(
                        "a reader's list has no {id}, which is in {}",
                        found.place
                    ));
                }
                match store.read(&found) {
                    Ok(Some(Err(damage))) if !world.is_faulty() => {
                        world.broken(format!("a reader finds {id} damaged: {damage}"));
                    }
                    Ok(_) => {}
                    Err(error) => return world.expect_fault(&error),
                }
            }
            None => match store.tombstone(id) {
                Ok(Some(_)) => {}
                Ok(None) if world.is_faulty() => {}
                Ok(None) => world.broken(format!("G10: a reader finds no {id}")),
                Err(error) => return world.expect_fault(&error),
            },
        }
    }
}

/// After a crash, before anything is mended: nothing acknowledged is gone.
pub(crate) fn present(world: &World) {
    let seen = look(world);
    let truth = world.truth.borrow();
    let mut lost = None;
    for (id, name) in &truth.acked {
        let whole = seen.places.get(id).is_some_and(|places| {
            // What the file has lost the journal may have: that shows when it is replayed.
            let may_be_mended = !places.is_empty() && !seen.journal.is_empty();
            may_be_mended || places.iter().any(|(_, item)| item.is_ok())
        });
        if !whole && !seen.tombstones.contains(id) {
            let places = seen.places.get(id);
            lost = Some(format!("G2: {id} ({name}) is gone: {places:?}"));
        }
    }
    drop(truth);
    if let Some(lost) = lost {
        world.broken(lost);
    }
    holds(world);
    dropped(world, &seen);
}

/// A destination is held, or not, as an operator was told.
fn holds(world: &World) {
    let store = match world.store() {
        Ok(store) => store,
        Err(error) => return world.expect_fault(&error),
    };
    let told = world.truth.borrow().held.clone();
    for (name, (_, hold)) in told {
        match (store.destination_hold(&name), hold) {
            (Ok(found), Some(hold)) if found.is_some() != hold => {
                world.broken(format!(
                    "{name}: told that held is {hold}, and is {found:?}"
                ));
            }
            (Ok(_), _) => {}
            (Err(error), _) => return world.expect_fault(&error),
        }
    }
}

/// What was dropped is in its box, or an item, or was.
fn dropped(world: &World, seen: &Seen) {
    let truth = world.truth.borrow();
    let mut lost = None;
    for (name, file) in &truth.dropped {
        let in_box = seen.incoming.iter().any(|(path, bytes)| {
            path.contains(&format!("{file}.")) && !bytes.is_empty() && !bytes.contains(&0)
        });
        let is_item = seen
            .places
            .values()
            .flatten()
            .any(|(_, item)| item.as_ref().is_ok_and(|item| name_of(item) == name));
        let was_item = truth
            .found
            .iter()
            .any(|(id, known)| known == name && seen.tombstones.contains(id));
        // Pruned before anybody had looked what it was.
        let was_item = was_item
            || seen
                .tombstones
                .iter()
                .any(|id| !truth.found.contains_key(id));
        if !in_box && !is_item && !was_item {
            lost = Some(format!("G2: what was dropped as {file} ({name}) is gone"));
        }
    }
    for file in &truth.garbage {
        let in_box = seen
            .incoming
            .iter()
            .any(|(path, _)| path.contains(&format!("{file}.")));
        let aside = seen
            .corrupt
            .iter()
            .any(|name| name.contains(&format!("{file}.")));
        if !in_box && !aside {
            lost = Some(format!("G8: {file}, which is no item, is gone"));
        }
    }
    drop(truth);
    if let Some(lost) = lost {
        world.broken(lost);
    }
}

/// Whether something is in the journal alone.
pub(crate) fn keeps(world: &World) -> bool {
    !look(world).journal.is_empty()
}

/// When a session has closed well: everything is in its one place, and as it should be.
pub(crate) fn quiet(world: &World) {
    let seen = look(world);
    if !seen.journal.is_empty() {
        world.broken("the journal is not empty after a session has closed".to_owned());
    }
    let mut wrong = Vec::new();
    {
        let truth = world.truth.borrow();
        for id in truth.acked.keys() {
            if !seen.places.contains_key(id) && !seen.tombstones.contains(id) {
                wrong.push(format!("G2: {id} is gone"));
            }
        }
        for id in world.receiver.borrow().arrivals.keys() {
            if !seen.places.contains_key(id) && !seen.tombstones.contains(id) {
                wrong.push(format!("G3: {id} arrived, and nothing here knows of it"));
            }
        }
    }
    let mut by_name: BTreeMap<(String, String), Vec<RequestId>> = BTreeMap::new();
    for (id, places) in &seen.places {
        let [(place, item)] = places.as_slice() else {
            let paths: Vec<String> = places.iter().map(|(place, _)| place.path()).collect();
            wrong.push(format!("G2: {id} is in {}", paths.join(" and ")));
            continue;
        };
        match item {
            Err(damage) => wrong.push(format!("{id} in {} is damaged: {damage}", place.path())),
            Ok(item) => {
                check_item(world, &seen, place, item, &mut wrong);
                if !item.envelope.notice && item.envelope.retry_of.is_none() {
                    let name = (place.destination.clone(), name_of(item).to_owned());
                    by_name.entry(name).or_default().push(*id);
                }
            }
        }
    }
    for ((dest, name), ids) in by_name {
        // A request without a key or an id of its own has a new name each time it is drawn.
        if ids.len() > 1 {
            wrong.push(format!(
                "{name} to {dest} was asked for once and is {ids:?}"
            ));
        }
    }
    for name in &seen.corrupt {
        let truth = world.truth.borrow();
        if !truth.garbage.iter().any(|file| name.contains(&**file)) && !name.contains("drop-") {
            wrong.push(format!("corrupt/{name} was set aside"));
        }
    }
    if let Some(first) = wrong.first() {
        world.broken(first.clone());
    }
    dropped(world, &seen);
    told(world, &seen);
}

fn check_item(world: &World, seen: &Seen, place: &Place, item: &Item, wrong: &mut Vec<String>) {
    let id = place.id;
    let standing = item.standing();
    let mut truth = world.truth.borrow_mut();
    if !item.envelope.notice {
        truth.found.insert(id, name_of(item).to_owned());
    }
    if let Slot::Claimed(_) = place.slot {
        // It was being sent when its tick ended; its next event tells what came of it.
    } else if standing.state != place.state || standing.parked != (place.slot == Slot::Parked) {
        let says = format!(
            "{}{}",
            standing.state,
            if standing.parked { ", parked" } else { "" }
        );
        wrong.push(format!("{} says that it is {says}", place.path()));
    }
    if let Some(bytes) = item.envelope.request.file_bytes() {
        let right = seen
            .bodies
            .get(&id.to_string())
            .is_some_and(|(length, sum)| {
                *length as u64 == bytes && *sum == item.envelope.request.body_sha256
            });
        if !right {
            wrong.push(format!("the body of {id} is not what was accepted"));
        }
    }
    let before = truth.histories.get(&id).map_or(&[][..], Vec::as_slice);
    // An item that nobody was told of may lack its last sync, and may be lost.
    let lasts = before.len() > 1 || truth.acked.contains_key(&id);
    if lasts && !item.events.starts_with(before) {
        wrong.push(format!(
            "{id} has lost of its history {before:?}, it is {:?}",
            item.events
        ));
    }
    let known = before.len();
    for (index, event) in item.events.iter().enumerate().skip(known) {
        expect_telling(world, &mut truth.expected, item, index + 1, event);
    }
    let known = |event: &&Event| {
        event.event == EventKind::Attempt && event.outcome != Some(OutcomeKind::Interrupted)
    };
    let outcomes = truth.outcomes.get(&id).copied().unwrap_or(0);
    let recorded = item.events.iter().filter(known).count();
    if recorded < outcomes {
        wrong.push(format!(
            "{id} has {outcomes} outcomes that ticks were told, and {recorded} are recorded"
        ));
    }
    truth.histories.insert(id, item.events.clone());
    if standing.state.is_terminal() {
        truth.prunable.insert(id);
    }
    drop(truth);
    check_receiver(world, place, item, wrong);
}

/// What the receiver knows of an item and what its events say.
fn check_receiver(world: &World, place: &Place, item: &Item, wrong: &mut Vec<String>) {
    let id = place.id;
    let standing = item.standing();
    let receiver = world.receiver.borrow();
    let arrivals = receiver.arrivals.get(&id).copied().unwrap_or(0);
    let recorded = match place.slot {
        Slot::Claimed(n) => n.max(standing.last_n),
        Slot::Root | Slot::Minute(_) | Slot::Day(_) | Slot::Parked => standing.last_n,
    };
    if arrivals > recorded {
        wrong.push(format!(
            "G3: {id} arrived {arrivals} times, and its events know of {recorded} attempts; it is in {}",
            place.path()
        ));
    }
    let effects = receiver.effects.get(&id).copied().unwrap_or(0);
    let by_person = item
        .events
        .iter()
        .any(|event| event.event == EventKind::Resolved);
    let says_not = matches!(place.state, State::Pending | State::Held | State::Failed);
    if effects > 0 && says_not {
        wrong.push(format!("G6: {id} was acted on and is {}", place.path()));
    }
    let last = item
        .events
        .iter()
        .rfind(|event| event.state == State::Confirmed);
    if let (State::Confirmed, Some(last)) = (place.state, last)
        && !by_person
    {
        let by_answer = last.event == EventKind::Attempt
            && last.outcome == Some(OutcomeKind::Answered)
            && last.status == Some(200);
        if !by_answer || !receiver.answered.contains_key(&id) || effects == 0 {
            wrong.push(format!(
                "G5: {id} is confirmed, and the receiver knows nothing of it"
            ));
        }
    }
}

/// Who should be told of an event.
fn expect_telling(
    world: &World,
    expected: &mut BTreeMap<(RequestId, usize, String), Telling>,
    item: &Item,
    number: usize,
    event: &Event,
) {
    let envelope = &item.envelope;
    let about = match event.state {
        State::Held => "held",
        State::Failed => "failed",
        State::Unknown if event.is_parked() => "parked",
        State::Unknown | State::Pending | State::Confirmed => return,
    };
    if envelope.notice || event.event == EventKind::Accepted {
        return;
    }
    let reason = event
        .reason
        .as_ref()
        .map_or_else(|| about.to_owned(), ToString::to_string);
    let whom: BTreeSet<String> = envelope
        .notify
        .iter()
        .chain(&world.config.notify.destinations)
        .map(ToString::to_string)
        .collect();
    for to in whom {
        let telling = (
            to.clone(),
            about.to_owned(),
            reason.clone(),
            envelope.request_id.to_string(),
        );
        expected.insert((envelope.request_id, number, to), telling);
    }
}

/// Whoever should be told is told exactly once.
fn told(world: &World, seen: &Seen) {
    let mut bodies: BTreeMap<RequestId, (String, String)> = world.receiver.borrow().notices.clone();
    for places in seen.places.values() {
        for (place, item) in places {
            let Ok(item) = item else { continue };
            if item.envelope.notice {
                let body = item.envelope.request.body_bytes().ok().flatten();
                let text = String::from_utf8_lossy(&body.unwrap_or_default()).into_owned();
                bodies.insert(place.id, (place.destination.clone(), text));
            }
        }
    }
    let mut tellings: BTreeMap<Telling, i64> = BTreeMap::new();
    for (to, text) in bodies.values() {
        let notice: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
        let field = |name: &str| notice[name].as_str().unwrap_or_default().to_owned();
        for id in notice["request_ids"].as_array().into_iter().flatten() {
            let subject = id.as_str().unwrap_or_default().to_owned();
            let telling = (to.clone(), field("notice"), field("reason"), subject);
            *tellings.entry(telling).or_default() += 1;
        }
    }
    let truth = world.truth.borrow();
    for telling in truth.expected.values() {
        *tellings.entry(telling.clone()).or_default() -= 1;
    }
    drop(truth);
    for name in seen
        .corrupt
        .iter()
        .filter(|name| !name.ends_with(".why.json"))
    {
        let corrupt = || "corrupt".to_owned();
        let telling = ("ops".to_owned(), corrupt(), corrupt(), name.clone());
        *tellings.entry(telling).or_default() -= 1;
    }
    // If an item was lost before anybody was told that it is accepted, its tellings do not count.
    let truth = world.truth.borrow();
    let never = |id: &RequestId| {
        truth.offered.contains_key(id)
            && !truth.acked.contains_key(id)
            && !seen.places.contains_key(id)
    };
    tellings.retain(|telling, _| !telling.3.parse().is_ok_and(|id| never(&id)));
    drop(truth);
    let wrong = tellings.into_iter().find(|(_, count)| *count != 0);
    if let Some(((to, about, reason, subject), count)) = wrong {
        let how = if count > 0 { "too often" } else { "too seldom" };
        world.broken(format!(
            "G8: {to} was told {} times {how} that {subject} is {about}, {reason}",
            count.abs()
        ));
    }
}
