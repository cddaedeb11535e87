//! The one way in: names owned, contents written and synced, items renamed into their place.
//!
//! # Order of writes
//!
//! 1. A key and a caller's own id are reserved in `keys/`, by making a file exclusively and
//!    owning its lock until 5. Nobody else accepts or prunes under that name meanwhile.
//! 2. Bodies go to `bodies/`, items to `tmp/`.
//! 3. All of this is synced.
//! 4. Items are renamed into their place, and the directories synced.
//! 5. Items are listed in a ledger, which is not synced.
//!
//! A process that dies before 4 leaves reservations of an id that is nowhere: the next caller
//! accepts its item under that id. The lock tells a caller that is dead from one at work.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::super::disk::Since;
use super::super::{Answer, Limits, NewBodyAt, Offer, Refusal, Store as _, StoreError};
use super::census::Where;
use super::journal::io_error;
use super::keys::{self, Owned, Reservation, disown, known_item, own, remove, rewrite};
use super::layout::Place;
use super::{FileStore, census, check_directory, ledger, tombstones};
use crate::model::envelope::{BODIES, Body, Envelope};
use crate::model::ids::RequestId;
use crate::model::item::Item;
use crate::model::ledger::Listed;
use crate::model::state::State;
use crate::model::time::id_time;

/// How many items are made durable at once.
const GROUP_ITEMS_MAX: usize = 1000;

/// How many names one group owns: each takes a file descriptor.
const GROUP_NAMES_MAX: usize = 256;

/// Up to so many items are synced one by one; more share one sync of the whole file system.
const SINGLY_MAX: usize = 4;

/// How often a directory is made again that somebody removes.
const MAKES_MAX: usize = 100;

/// How long somebody else's acceptance under the same key is waited for.
const KEY_WAIT: Duration = Duration::from_secs(30);
const KEY_LOOK: Duration = Duration::from_millis(20);

/// An offer on its way.
struct Member {
    index: usize,
    offer: Offer,
    key: Option<Owned>,
    own_id: Option<Owned>,
}

#[derive(Default)]
struct Group {
    members: Vec<Member>,
    names: usize,
    /// From before its first write on.
    since: Since,
}

/// Accepts, group by group, into `answers`. With `wait`, somebody else's acceptance under one of
/// the keys is waited for, but for all together no longer than [`KEY_WAIT`].
pub(super) fn accept_all(
    store: &FileStore,
    offers: Vec<Offer>,
    limits: &Limits,
    wait: bool,
    answers: &mut Vec<Answer>,
) -> Result<(), StoreError> {
    *answers = vec![Answer::Open; offers.len()];
    let mut group = Group::default();
    if offers.len() > SINGLY_MAX {
        let since = store.disk.begin(&store.root);
        group.since = since.map_err(|source| io_error("open", &store.root, source))?;
    }
    let mut waiting: VecDeque<(usize, Offer)> = offers.into_iter().enumerate().collect();
    let mut waited = Duration::ZERO;
    while let Some((index, offer)) = waiting.pop_front() {
        if group.is_full() {
            group.commit(store, limits, answers)?;
        }
        match own_names(store, &offer) {
            Ok(Some((key, own_id))) => group.add(Member {
                index,
                offer,
                key,
                own_id,
            }),
            // It may be one that this very group owns.
            Ok(None) if !group.members.is_empty() => {
                group.commit(store, limits, answers)?;
                waiting.push_front((index, offer));
            }
            Ok(None) if wait && waited < KEY_WAIT => {
                std::thread::sleep(KEY_LOOK);
                waited += KEY_LOOK;
                waiting.push_front((index, offer));
            }
            not_owned => {
                if let Some(body) = offer.body {
                    store.discard(body);
                }
                not_owned?;
                answers[index] = Answer::Busy;
            }
        }
    }
    group.commit(store, limits, answers)
}

/// The names of an offer in `keys/`: of its key, and of its id if that is the caller's own.
type Names = (Option<Owned>, Option<Owned>);

/// Owns the names that an offer needs. `None` if somebody else owns one of them.
fn own_names(store: &FileStore, offer: &Offer) -> Result<Option<Names>, StoreError> {
    let envelope = &offer.envelope;
    let mut key = None;
    if let Some(text) = &envelope.key {
        let relative = keys::key_path(envelope.destination.as_str(), text);
        key = own(store, &relative, &Reservation::of_key(envelope))?;
        if key.is_none() {
            return Ok(None);
        }
    }
    if !offer.own_id {
        return Ok(Some((key, None)));
    }
    let relative = keys::own_id_path(envelope.request_id);
    let own_id = own(store, &relative, &Reservation::of_id(envelope));
    if !matches!(own_id, Ok(Some(_)))
        && let Some(key) = key.as_ref().filter(|key| key.fresh)
    {
        // It names an id that may never be; the next one who asks finds that out, but need not.
        disown(store, key)?;
    }
    Ok(own_id?.map(|own_id| (key, Some(own_id))))
}

/// An item that is accepted unless something fails.
struct Placing {
    index: usize,
    id: RequestId,
    listed: Listed,
    place: Place,
    temporary: PathBuf,
    has_body: bool,
    names: Vec<Owned>,
}

impl Placing {
    fn body(&self, store: &FileStore) -> PathBuf {
        store.path(&format!("{BODIES}{}", self.id))
    }

    /// Removes what was written of it: nothing of it is accepted.
    fn clear(&self, store: &FileStore) {
        drop(store.disk.unlink(&self.temporary));
        if self.has_body {
            drop(store.disk.unlink(&self.body(store)));
        }
    }
}

impl Group {
    fn is_full(&self) -> bool {
        self.members.len() >= GROUP_ITEMS_MAX || self.names + 2 > GROUP_NAMES_MAX
    }

    fn add(&mut self, member: Member) {
        self.names += usize::from(member.key.is_some()) + usize::from(member.own_id.is_some());
        self.members.push(member);
    }

    /// Decides on every member, and makes durable what is accepted.
    fn commit(
        &mut self,
        store: &FileStore,
        limits: &Limits,
        answers: &mut [Answer],
    ) -> Result<(), StoreError> {
        self.names = 0;
        let members = std::mem::take(&mut self.members);
        if members.is_empty() {
            return Ok(());
        }
        let mut reserved = BTreeSet::new();
        let mut asked = BTreeSet::new();
        for member in &members {
            let names = member.key.iter().chain(&member.own_id);
            reserved.extend(names.filter_map(|name| Some(name.before.as_ref()?.request_id)));
            if member.own_id.is_some() {
                asked.insert(member.offer.envelope.request_id);
            }
        }
        asked.extend(&reserved);
        let (mut present, obstacles) = census::present(store, &asked)?;
        let mut pruned = HashSet::new();
        // Of one in corrupt/ the other of two files may have been the item.
        let is_gone = |id: &&RequestId| present.get(id).is_none_or(|at| *at == Where::Aside);
        // An id of the caller's own that is not reserved yet was never given here, unless
        // tickpost made it; and then it carries its time, which tells where to look.
        let may_be_given = |id: &RequestId| id_time(*id).is_some() || reserved.contains(id);
        for id in asked.iter().filter(is_gone) {
            if may_be_given(id) && is_pruned(store, *id)? {
                pruned.insert(*id);
            }
        }
        for member in &members {
            let envelope = &member.offer.envelope;
            let names = member.key.iter().chain(&member.own_id);
            let before = names.filter_map(|name| Some(name.before.as_ref()?.request_id));
            let own_id = member.own_id.as_ref().map(|_| envelope.request_id);
            for id in before.chain(own_id).filter(may_be_given) {
                if !present.contains_key(&id) && !pruned.contains(&id) {
                    let to = envelope.destination.as_str();
                    census::check_clear(store, &obstacles, id, to).inspect_err(|_| {
                        // Offered alone, the others are new names still, not a dead caller's.
                        for other in &members {
                            drop(disown_fresh(store, other));
                        }
                    })?;
                }
            }
        }
        present.retain(|id, _| !pruned.contains(id));
        let mut going = Vec::new();
        let mut decided = Vec::new();
        for mut member in members {
            match decide(store, &mut member, &present, &pruned)? {
                Some(answer) => decided.push((member, answer)),
                None => going.push(member),
            }
        }
        let going = within(store, limits, going, &mut decided)?;
        sync_known(store, &present, &decided)?;
        for (mut member, answer) in decided {
            if let Some(body) = member.offer.body.take() {
                store.discard(body);
            }
            answers[member.index] = answer;
        }
        if going.is_empty() {
            return Ok(());
        }
        let singly = going.len() <= SINGLY_MAX;
        let mut placing = Vec::with_capacity(going.len());
        let written = going
            .into_iter()
            .try_for_each(|member| {
                placing.push(write(store, member, singly)?);
                Ok(())
            })
            .and_then(|()| sync_contents(store, &placing, singly, &self.since));
        if let Err(error) = written {
            // Nothing of this is accepted, and on a full disk it is in the way.
            for placing in &placing {
                placing.clear(store);
                // What a failed sync has let go counts as clean: no later one would write it.
                for name in &placing.names {
                    drop(disown(store, name));
                }
            }
            return Err(error);
        }
        place(store, placing, answers)
    }
}

/// Keeps of those to be accepted as many as there is room for; the others get their answer.
fn within(
    store: &FileStore,
    limits: &Limits,
    mut going: Vec<Member>,
    decided: &mut Vec<(Member, Answer)>,
) -> Result<Vec<Member>, StoreError> {
    if going.is_empty() || *limits == Limits::NONE {
        return Ok(going);
    }
    let (fit, full) = limits.fit(&store.room(limits.items_max.unwrap_or(0))?);
    let fit = usize::try_from(fit).unwrap_or(usize::MAX);
    if let (Some(full), true) = (full, fit < going.len()) {
        for member in going.split_off(fit) {
            disown_fresh(store, &member)?;
            decided.push((member, Answer::Full(full.clone())));
        }
    }
    Ok(going)
}

/// Makes durable that known items are where they are: whoever accepted them may have died before
/// their names were. What has been moved since is durable by the journal.
fn sync_known(
    store: &FileStore,
    present: &HashMap<RequestId, Where>,
    decided: &[(Member, Answer)],
) -> Result<(), StoreError> {
    let mut dirs = BTreeSet::new();
    for (_, answer) in decided {
        if let Answer::Known(id) = answer {
            dirs.extend(present.get(id).and_then(Where::dir));
        }
    }
    for dir in dirs {
        match store.sync_found(dir) {
            Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
    }
    Ok(())
}

fn is_pruned(store: &FileStore, id: RequestId) -> Result<bool, StoreError> {
    Ok(!tombstones::find(store, &id.to_string(), 1)?.is_empty())
}

/// Looks at what is known under an offer's names. `None` if it is to be accepted, under the id
/// that its envelope has then.
fn decide(
    store: &FileStore,
    member: &mut Member,
    present: &HashMap<RequestId, Where>,
    pruned: &HashSet<RequestId>,
) -> Result<Option<Answer>, StoreError> {
    let own_id = member.offer.own_id;
    let envelope = &mut member.offer.envelope;
    let request = envelope.request.sha256();
    if let Some(key) = &mut member.key
        && !key.fresh
    {
        if let Some(known) = key.before.as_mut().filter(|k| k.request_sha256.is_empty()) {
            // It does not say; the item does.
            let item = known_item(store, known.request_id)?;
            known.request_sha256 = item.map_or_else(String::new, |item| item.request.sha256());
        }
        match &key.before {
            Some(known)
                if let Some(at) = present.get(&known.request_id)
                    && !is_another(store, known, at, envelope)? =>
            {
                let id = known.request_id;
                let is_aside = *at == Where::Aside;
                let key = envelope.key.clone().unwrap_or_default();
                let answer = match (known.request_sha256 == request, is_aside) {
                    (true, false) => Answer::Known(id),
                    (true, true) => Answer::Aside(id),
                    (false, false) => Answer::Refused(Refusal::KeyTaken { key, id }),
                    (false, true) => Answer::Refused(Refusal::KeyAside { key, id }),
                };
                // Each repeat may come with an id of its own.
                disown_fresh(store, member)?;
                return Ok(Some(answer));
            }
            // Whoever reserved it died before the item was there: it is completed.
            Some(known)
                if known.request_sha256 == request
                    && !own_id
                    && !present.contains_key(&known.request_id)
                    && !pruned.contains(&known.request_id) =>
            {
                envelope.request_id = known.request_id;
            }
            // It was to be another item, or the item is pruned and the key about to go.
            Some(_) | None => rewrite(store, key, &Reservation::of_key(envelope))?,
        }
    }
    let Some(name) = &mut member.own_id else {
        return Ok(None);
    };
    let id = envelope.request_id;
    let mine = Reservation::of_id(envelope);
    if pruned.contains(&id) {
        disown_fresh(store, member)?;
        return Ok(Some(Answer::Refused(Refusal::Pruned { id })));
    }
    if !present.contains_key(&id) {
        if name.before.as_ref() != Some(&mine) && !name.fresh {
            rewrite(store, name, &mine)?;
        }
        return Ok(None);
    }
    // The item counts: whoever reserved its id may have been refused, and have died before the
    // reservation was gone.
    let item = known_item(store, id)?;
    let has_key = |item: &Envelope| envelope.key.is_none() || item.key == envelope.key;
    let is_its_key = item.as_ref().is_none_or(has_key);
    let known = match (item, &name.before) {
        (Some(item), _) => Reservation::of_id(&item),
        (None, Some(before)) => before.clone(),
        (None, None) => Reservation {
            request_sha256: String::new(),
            ..mine.clone()
        },
    };
    let is_aside = present.get(&id) == Some(&Where::Aside);
    if known == mine && !is_its_key {
        // Under the key alone it could be offered again, and nothing would say that it is known.
        let key = envelope.key.clone().unwrap_or_default();
        disown_fresh(store, member)?;
        return Ok(Some(Answer::Refused(Refusal::IdWithoutKey { key, id })));
    }
    if known == mine {
        return Ok(Some(if is_aside {
            Answer::Aside(id)
        } else {
            Answer::Known(id)
        }));
    }
    disown_fresh(store, member)?;
    Ok(Some(Answer::Refused(if is_aside {
        Refusal::IdAside { id }
    } else {
        Refusal::IdTaken { id }
    })))
}

/// Whether an id that a key names was given to another request since: it was a caller's own, and
/// whoever reserved both died before its item was there.
///
/// # Errors
///
/// Also if only the item can tell, and cannot be read.
fn is_another(
    store: &FileStore,
    known: &Reservation,
    at: &Where,
    envelope: &Envelope,
) -> Result<bool, StoreError> {
    let destination = Some(envelope.destination.to_string());
    let differs = |of_id: &Reservation| {
        of_id.request_sha256 != known.request_sha256 || of_id.destination != destination
    };
    let of_id: Option<Reservation> = store.read_json(&keys::own_id_path(known.request_id))?;
    if !of_id.as_ref().is_some_and(differs) {
        return Ok(false);
    }
    // Somebody may only have asked for that id: what the item says counts.
    match (known_item(store, known.request_id)?, at) {
        (Some(item), _) => Ok(differs(&Reservation::of_id(&item))),
        // Nothing is sent under a key whose item nobody can read any more.
        (None, Where::Aside) => Ok(false),
        (None, Where::In(_) | Where::Moving) => Err(io_error(
            "read",
            &store
                .path(at.dir().map_or("journal", String::as_str))
                .join(known.request_id.to_string()),
            io::Error::other(
                "an item of this id, which the key names, is there, and only it can tell whether the \
                 key is its own: `tickpost show` it, and set its file right",
            ),
        )),
    }
}

/// Gives the names up that were made for an offer that is not accepted.
fn disown_fresh(store: &FileStore, member: &Member) -> Result<(), StoreError> {
    let names = [&member.key, &member.own_id].into_iter().flatten();
    names
        .filter(|name| name.fresh)
        .try_for_each(|name| disown(store, name))
}

/// Writes an item, and its body, where nobody looks yet. What an error leaves is cleared away: on a
/// full disk it is in the way.
fn write(store: &FileStore, member: Member, singly: bool) -> Result<Placing, StoreError> {
    let Offer {
        mut envelope,
        accepted,
        body,
        ..
    } = member.offer;
    let id = envelope.request_id;
    let make = |path: &Path, bytes: &[u8], hint| {
        if singly {
            store.disk.create(path, bytes, hint)
        } else {
            store.disk.write_new(path, bytes, hint)
        }
    };
    let mut body_at = None;
    if let Some(body) = body {
        envelope.request.body = Some(Body::File {
            id,
            bytes: body.bytes,
        });
        body_at = Some(match body.at {
            NewBodyAt::File(path) => path,
            NewBodyAt::Memory(bytes) => {
                store.temporary(&format!("{id}.body"), |path| make(path, &bytes, None))?
            }
        });
    }
    let clear = |path: &PathBuf| drop(store.disk.unlink(path));
    let place = match accepted.state {
        // Its minute is the earlier of the times that it has; without any it is the directory
        // itself.
        State::Held => Place::filed(
            State::Held,
            envelope.destination.as_str(),
            id,
            accepted.due,
            envelope.not_after,
            accepted.at,
        ),
        // A tick files it further, when it has looked at it.
        state @ (State::Pending | State::Unknown | State::Confirmed | State::Failed) => Place {
            state,
            destination: envelope.destination.to_string(),
            slot: super::layout::Slot::Root,
            id,
        },
    };
    let listed = Listed::of(&envelope, accepted.at);
    let (item, bytes) = Item::accept(envelope, accepted).map_err(|source| StoreError::Encode {
        what: "an item",
        source,
    })?;
    let hint = item.turn();
    let written = check_directory(store.disk.as_ref(), &store.path(&place.dir()))
        .and_then(|()| store.temporary(&format!("{id}.jsonl"), |path| make(path, &bytes, hint)));
    let temporary = written.inspect_err(|_| body_at.iter().for_each(clear))?;
    if let Some(path) = &body_at {
        // A caller that died may have left the same one.
        let target = store.path(&format!("{BODIES}{id}"));
        let moved = store.make_dirs("bodies").and_then(|()| {
            let replaced = store.disk.replace(path, &target);
            replaced.map_err(|source| io_error("rename", &target, source))
        });
        moved.inspect_err(|_| {
            clear(path);
            clear(&temporary);
        })?;
    }
    Ok(Placing {
        index: member.index,
        id,
        listed,
        place,
        temporary,
        has_body: body_at.is_some(),
        names: member.key.into_iter().chain(member.own_id).collect(),
    })
}

/// Makes everything durable that must be before the first item is: what was reserved, and
/// what was written.
fn sync_contents(
    store: &FileStore,
    placing: &[Placing],
    singly: bool,
    since: &Since,
) -> Result<(), StoreError> {
    if !singly {
        return store
            .disk
            .sync_all(&store.root, since)
            .map_err(|source| io_error("sync", &store.root, source));
    }
    let mut dirs = BTreeSet::new();
    for name in placing.iter().flat_map(|placing| &placing.names) {
        let path = store.path(&name.relative);
        // Also of one that was there: whoever made it may have died before this.
        store
            .disk
            .sync_file(&path)
            .map_err(|source| io_error("sync", &path, source))?;
        dirs.extend(
            name.relative
                .rsplit_once('/')
                .map(|(dir, _)| dir.to_owned()),
        );
    }
    if placing.iter().any(|placing| placing.has_body) {
        dirs.insert(BODIES.trim_end_matches('/').to_owned());
    }
    dirs.iter().try_for_each(|dir| store.sync_place(dir))
}

/// Renames every item to its place, syncs the places, and lists what is accepted.
fn place(
    store: &FileStore,
    placing: Vec<Placing>,
    answers: &mut [Answer],
) -> Result<(), StoreError> {
    let mut dirs: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let mut placed = BTreeMap::new();
    // Owned until the places are synced.
    let mut names = Vec::new();
    let mut failed = None;
    for placing in placing {
        let dir = placing.place.dir();
        let target = store.path(&placing.place.path());
        if failed.is_some() {
            // What has been renamed before is accepted; nothing more is.
            placing.clear(store);
            continue;
        }
        match rename_into(store, &placing.temporary, &target, &dir) {
            Ok(Ok(())) => {
                dirs.entry(dir).or_default().push(placing.index);
                placed.insert(placing.index, placing.listed);
                names.extend(placing.names);
            }
            Ok(Err(error)) if error.kind() == io::ErrorKind::AlreadyExists => {
                remove(store, &placing.temporary)?;
                answers[placing.index] = Answer::Refused(Refusal::IdTaken { id: placing.id });
            }
            Ok(Err(error)) => {
                placing.clear(store);
                failed = Some(io_error("rename", &target, error));
            }
            Err(error) => {
                placing.clear(store);
                failed = Some(error);
            }
        }
    }
    let mut durable = Vec::new();
    for (dir, indexes) in dirs {
        if let Err(error) = store.sync_place(&dir) {
            // What this directory got is perhaps accepted, which matters more than a failed rename.
            failed = Some(error);
            break;
        }
        durable.extend(indexes);
    }
    // In this order: what is listed is there, and what is answered is listed.
    ledger::append(store, durable.iter().map(|index| &placed[index]));
    for index in durable {
        answers[index] = Answer::New(placed[&index].request_id);
    }
    drop(names);
    failed.map_or(Ok(()), Err)
}

/// Renames into a directory that the owner of the lock may remove while it is empty.
fn rename_into(
    store: &FileStore,
    from: &Path,
    to: &Path,
    dir: &str,
) -> Result<io::Result<()>, StoreError> {
    for _ in 0..MAKES_MAX {
        match store.disk.rename(from, to) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => store.make_dirs(dir)?,
            other => return Ok(other),
        }
    }
    Ok(store.disk.rename(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A member can bring two.
    #[test]
    fn a_group_takes_nobody_in_whose_names_may_be_too_many() {
        let is_full = |names| {
            let group = Group {
                names,
                ..Group::default()
            };
            group.is_full()
        };
        assert!(!is_full(GROUP_NAMES_MAX - 2));
        assert!(is_full(GROUP_NAMES_MAX - 1));
        assert!(is_full(GROUP_NAMES_MAX));
    }
}
