//! Replay: what a dead owner's journal says is done again, in order and idempotently.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;

use super::super::disk::Kind;
use super::super::{SetAside, StoreError};
use super::aside::{free_name, set_aside};
use super::journal::{self, MoveRecord, Record, io_error};
use super::keys::remove;
use super::layout::{self, Place};
use super::stuck::{self, Stuck};
use super::{FileStore, ITEM_BYTES_MAX, reserve};
use crate::model::ids::RequestId;
use crate::model::item::{Damage, Item, event_line};
use crate::model::notice::Merged;
use crate::model::time::UnixMs;

/// What replay found besides the moves.
#[derive(Debug, Default)]
pub(super) struct Replayed {
    /// The number of the newest segment; zero if there was none.
    pub(super) last_segment: u64,
    /// The latest time that it bears.
    pub(super) latest: Option<UnixMs>,
    /// When each item was last claimed.
    pub(super) claimed_at: HashMap<RequestId, UnixMs>,
    /// Who is to be told of what.
    pub(super) notices: Merged,
    /// Files that stood where an item had to go.
    pub(super) displaced: Vec<SetAside>,
    /// What is left as it is: files that are no journal, and paths that no record of ours names.
    pub(super) foreign: Vec<(String, String)>,
    /// What cannot be done now.
    pub(super) stuck: Stuck,
    /// Links in the place of directories that something is moved out of.
    links: BTreeSet<String>,
}

impl Replayed {
    /// Refuses a move out of a directory that is a link: it would begin outside the spool.
    fn reach(&self, store: &FileStore, from: &str) -> Result<(), StoreError> {
        let link = self.links.iter().find(|link| is_below(from, link));
        link.map_or(Ok(()), |link| {
            let error = io::ErrorKind::NotADirectory.into();
            Err(io_error("move anything out of", &store.path(link), error))
        })
    }

    /// Takes up what a move has come to. `None` if it cannot be done now.
    fn come_to<T>(
        &mut self,
        from: &str,
        moved: Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        match moved {
            Ok(done) => Ok(Some(done)),
            Err(error) => {
                let why = stuck::of_one_file(error)?;
                let told = self.stuck.told(from, &why);
                self.foreign
                    .extend(told.map(|told| (from.to_owned(), told)));
                Ok(None)
            }
        }
    }

    /// Does a move again. `None` if it is kept, and false if it is not done and nobody is told.
    fn redo(
        &mut self,
        store: &FileStore,
        step: &MoveRecord,
        of_item: Option<&OfItem>,
    ) -> Result<Option<bool>, StoreError> {
        if self.stuck.holds_path(&step.from) {
            return Ok(None);
        }
        // What stands in the way of a move's end is set aside, but not what others begin in.
        let to = if step.why.is_none() {
            &step.to
        } else {
            &step.from
        };
        let done = self
            .reach(store, &step.from)
            .and_then(|()| self.reach(store, to))
            .and_then(|()| apply(store, step, None, of_item, &mut self.displaced));
        match done {
            // Take-in looks at the drop again, and tells of it: it may be another one by then.
            Err(error) if step.is_of_drop() => stuck::of_one_file(error).map(|_| Some(false)),
            done => self.come_to(&step.from, done),
        }
    }
}

/// Replays every segment. The caller closes the journal afterwards.
pub(super) fn replay(store: &FileStore) -> Result<Replayed, StoreError> {
    let segments = journal::segments(store.disk.as_ref(), &store.root)?;
    let mut replayed = Replayed {
        last_segment: segments.last().map_or(0, |(number, _)| *number),
        ..Replayed::default()
    };
    for (_, name) in &segments {
        make_durable(store, &format!("journal/{name}"))?;
    }
    if !segments.is_empty() {
        store.sync_dir("journal")?;
    }
    store.list("journal", &mut |name, kind| {
        if kind != Kind::File || journal::segment_number(name).is_none() {
            let path = format!("journal/{}", name.display());
            let why = "it does not belong here; it was left as it is";
            replayed.foreign.push((path, why.to_owned()));
        }
    })?;
    let mut records = journal::read_all(store.disk.as_ref(), &store.root)?;
    records.retain(|record| match stray_path(record) {
        Some(path) => {
            let path = format!("journal: `{path}`");
            let why = "it is no place of this spool, and was not touched";
            replayed.foreign.push((path, why.to_owned()));
            false
        }
        None => true,
    });
    replayed.links = links(store, &records)?;
    let later = later(&records);
    for record in records {
        match record {
            Record::Claim { at, items } => {
                replayed.latest = replayed.latest.max(Some(at));
                for item in items {
                    let Some(from) = Place::parse(&item.from) else {
                        continue;
                    };
                    replayed.claimed_at.insert(from.id, at);
                    if !replayed.stuck.holds(from.id) {
                        let to = from.claimed(item.n).path();
                        let reached = replayed
                            .reach(store, &item.from)
                            .and_then(|()| replayed.reach(store, &to));
                        let moved = reached.and_then(|()| {
                            move_file(store, &item.from, &to, &mut replayed.displaced)
                        });
                        if replayed.come_to(&item.from, moved)?.is_some() {
                            continue;
                        }
                    }
                    replayed.stuck.keep_claim(at, item);
                }
            }
            Record::Move(step) => {
                let at = step.event.as_ref().map(|event| event.at);
                replayed.latest = replayed.latest.max(at);
                let of_item = Place::parse(&step.from).and_then(|from| later.get(&from.id));
                let done = replayed.redo(store, &step, of_item)?;
                if done.is_none() {
                    replayed.stuck.keep(&step);
                }
                if done != Some(false) {
                    for notice in &step.notices {
                        replayed.notices.add(notice);
                    }
                }
            }
            Record::Tell { notices } => {
                for notice in &notices {
                    replayed.notices.add(notice);
                }
            }
            Record::Carry { claims, notices } => {
                for claim in claims {
                    replayed.latest = replayed.latest.max(Some(claim.at));
                    replayed.claimed_at.insert(claim.id, claim.at);
                }
                replayed.notices = notices;
            }
        }
    }
    Ok(replayed)
}

/// A path of a record that is none of the spool's own places. A journal is the one file whose
/// words become moves: whoever else can write it must not move anything outside by it.
fn stray_path(record: &Record) -> Option<String> {
    let is_corrupt = |path: &str| {
        let name = path.strip_prefix("corrupt/");
        name.is_some_and(|name| !matches!(name, "" | "." | "..") && !name.contains(['/', '\0']))
    };
    match record {
        Record::Claim { items, .. } => {
            let stray = |from: &&String| Place::parse(from).is_none();
            items.iter().map(|item| &item.from).find(stray).cloned()
        }
        Record::Move(step) if step.why.is_some() => {
            let stray = !layout::is_of_items(&step.from);
            let path = if stray { &step.from } else { &step.to };
            (stray || !is_corrupt(&step.to)).then(|| path.clone())
        }
        Record::Move(step) => match (Place::parse(&step.from), Place::parse(&step.to)) {
            (Some(from), Some(to)) if from.id == to.id && from.destination == to.destination => {
                None
            }
            (Some(_), _) => Some(step.to.clone()),
            (None, _) => Some(step.from.clone()),
        },
        Record::Tell { .. } | Record::Carry { .. } => None,
    }
}

/// Whether a path lies in a directory.
fn is_below(path: &str, dir: &str) -> bool {
    let rest = path.strip_prefix(dir);
    rest.is_some_and(|rest| rest.starts_with('/'))
}

/// The links that stand in the place of directories which records move something out of. What
/// stands in the way of a move's end is set aside.
///
/// # Errors
///
/// [`StoreError::NotDirectory`] if it is one of the spool's own.
fn links(store: &FileStore, records: &[Record]) -> Result<BTreeSet<String>, StoreError> {
    let mut dirs = BTreeSet::new();
    let mut note = |path: &str| {
        dirs.extend(path.match_indices('/').map(|(at, _)| path[..at].to_owned()));
    };
    for record in records {
        match record {
            Record::Claim { items, .. } => items.iter().for_each(|item| note(&item.from)),
            Record::Move(step) => note(&step.from),
            Record::Tell { .. } | Record::Carry { .. } => {}
        }
    }
    let is_link = |dir: &String| {
        let meta = store.disk.stat(&store.path(dir));
        meta.is_ok_and(|meta| meta.kind == Kind::Other)
    };
    dirs.retain(is_link);
    match dirs.iter().find(|dir| !dir.contains('/')) {
        Some(dir) => Err(StoreError::NotDirectory {
            path: store.path(dir),
        }),
        None => Ok(dirs),
    }
}

/// Makes a segment durable, before anything is done because of it: a rename could outlive a loss of
/// power that forgets why, and what was sent would be sent again.
///
/// It is written anew. A sync of its owner may have failed, and then the kernel takes what it could
/// not write for written: another sync of the same file would say nothing.
fn make_durable(store: &FileStore, relative: &str) -> Result<(), StoreError> {
    let path = store.path(relative);
    let bytes = store
        .disk
        .read(&path, journal::READ_BYTES_MAX)
        .map_err(|source| io_error("read", &path, source))?;
    match store.write_whole(relative, &bytes) {
        // No room for a second one.
        Err(error) if reserve::is_for_room(&error) => store
            .disk
            .sync_file(&path)
            .map_err(|source| io_error("sync", &path, source)),
        other => other,
    }
}

/// What the journal says of an item in all.
#[derive(Debug, Default)]
pub(super) struct OfItem {
    /// Every place that it moves the item to.
    places: Vec<String>,
    /// The number of the last event that it adds.
    last_event: usize,
}

fn later(records: &[Record]) -> HashMap<RequestId, OfItem> {
    let mut later: HashMap<RequestId, OfItem> = HashMap::new();
    for record in records {
        match record {
            Record::Claim { items, .. } => {
                for item in items {
                    if let Some(from) = Place::parse(&item.from) {
                        let place = from.claimed(item.n).path();
                        later.entry(from.id).or_default().places.push(place);
                    }
                }
            }
            Record::Move(step) => {
                if let Some(from) = Place::parse(&step.from) {
                    let of_item = later.entry(from.id).or_default();
                    of_item.places.push(step.to.clone());
                    of_item.last_event = of_item.last_event.max(step.event_number);
                }
            }
            Record::Tell { .. } | Record::Carry { .. } => {}
        }
    }
    later
}

/// Does what a move's record says, as far as it is not done yet.
///
/// `bytes_good` is how much of the item's file is good, where the caller knows it; without it
/// the file is read, and ends with the event afterwards, unless it has events that the journal does
/// not know of. `of_item` is what the journal says of the item in all: later records may have
/// moved the file on, and a loss of power can keep the renames and lose what was appended before
/// them. What stood in the way becomes one of the `displaced`. False if the file was to be set
/// aside, and another one is at its place now.
pub(super) fn apply(
    store: &FileStore,
    step: &MoveRecord,
    bytes_good: Option<u64>,
    of_item: Option<&OfItem>,
    displaced: &mut Vec<SetAside>,
) -> Result<bool, StoreError> {
    if let Some(why) = &step.why {
        return set_aside(store, &step.from, &step.to, why, step.file.as_ref());
    }
    let mut here = None;
    let places = of_item.iter().flat_map(|of_item| &of_item.places);
    for path in [&step.from, &step.to].into_iter().chain(places) {
        if is_there(store, path)? {
            here = Some(path);
            break;
        }
    }
    let Some(here) = here else {
        // Somebody took the file away.
        return Ok(true);
    };
    if let Some(event) = &step.event {
        let path = store.path(here);
        let keep = match bytes_good {
            Some(bytes) => Some(bytes),
            None => match store.disk.read(&path, ITEM_BYTES_MAX) {
                Ok(bytes) => match Item::parse(&bytes) {
                    Ok(parsed) if parsed.item.events.len() < step.event_number => {
                        Some(parsed.bytes_good as u64)
                    }
                    // It is there, and perhaps only in memory: a sync of all may have failed, as one
                    // of a segment may. It is appended again, and so are those after it.
                    Ok(parsed)
                        if parsed.item.events.get(step.event_number.wrapping_sub(1))
                            == Some(event)
                            && of_item.is_some_and(|of_item| {
                                parsed.item.events.len() <= of_item.last_event
                            }) =>
                    {
                        Some(first_lines(&bytes, step.event_number))
                    }
                    Ok(_) => None,
                    // A loss of power can keep a later event and lose a piece of this one. All that
                    // was appended after it is in the journal too, and comes next.
                    Err(Damage::Middle(line) | Damage::Line(line))
                        if line == step.event_number + 1 =>
                    {
                        Some(first_lines(&bytes, line - 1))
                    }
                    // Whoever reads it next sets it aside; nothing is built on it.
                    Err(_) => return Ok(true),
                },
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(true),
                Err(source) => return Err(io_error("read", &path, source)),
            },
        };
        if let Some(keep) = keep {
            let line = event_line(event).map_err(|source| StoreError::Encode {
                what: "an event",
                source,
            })?;
            store
                .disk
                .append(&path, keep, &line)
                .map_err(|source| io_error("append to", &path, source))?;
        }
    }
    if let Some(turn) = step.turn {
        store.hint_at(here, turn)?;
    }
    if here == &step.from {
        move_file(store, here, &step.to, displaced)?;
    }
    Ok(true)
}

/// How long the first lines are together, in bytes.
pub(super) fn first_lines(bytes: &[u8], count: usize) -> u64 {
    let lines = bytes.split_inclusive(|b| *b == b'\n').take(count);
    lines.map(|line| line.len() as u64).sum()
}

/// Renames, making the target's directory if need be. Done already, or moved on: fine. False if
/// nothing is there to be moved.
///
/// Another file that stands at the target is set aside: only the journal knows which of two
/// files of one id is the one that was sent, and it names the one that moves. It becomes one of the
/// `displaced`, also if the move then fails.
pub(super) fn move_file(
    store: &FileStore,
    from: &str,
    to: &str,
    displaced: &mut Vec<SetAside>,
) -> Result<bool, StoreError> {
    if from == to {
        return Ok(true);
    }
    let (source, target) = (store.path(from), store.path(to));
    // Looked at first: a rename would follow a link, and leave the spool by it.
    displaced.extend(clear_way(store, to)?);
    let error = match store.disk.rename(&source, &target) {
        Ok(()) => return Ok(true),
        Err(error) => error,
    };
    if error.kind() == io::ErrorKind::NotFound {
        if !is_there(store, from)? {
            return Ok(false);
        }
        if let Some((dir, _)) = to.rsplit_once('/') {
            store.make_dirs(dir)?;
        }
    } else if error.kind() == io::ErrorKind::AlreadyExists {
        if is_same_file(store, from, to) {
            // A power loss left one file under two names; renaming would do nothing.
            remove(store, &source)?;
            return Ok(true);
        }
        let name = free_name(store, to, &HashSet::new());
        let why = format!("another file of this item, from {from}, was moved here");
        set_aside(store, to, &format!("corrupt/{name}"), &why, None)?;
        displaced.push(SetAside {
            from: to.to_owned(),
            name,
            why,
        });
    } else {
        return Err(io_error("rename", &target, error));
    }
    store
        .disk
        .rename(&source, &target)
        .map(|()| true)
        .map_err(|source| io_error("rename", &target, source))
}

/// Whether two names are of one file.
pub(super) fn is_same_file(store: &FileStore, one: &str, other: &str) -> bool {
    let inode = |relative| {
        store
            .disk
            .stat(&store.path(relative))
            .map(|meta| meta.inode)
    };
    matches!((inode(one), inode(other)), (Ok(one), Ok(other)) if one == other)
}

/// Sets aside what stands where the directories of a place belong, below those of the spool: an
/// item that was sent must be able to arrive.
pub(super) fn clear_way(store: &FileStore, to: &str) -> Result<Option<SetAside>, StoreError> {
    let slashes = to.match_indices('/').map(|(at, _)| at).skip(1);
    for dir in slashes.map(|at| &to[..at]) {
        let path = store.path(dir);
        let in_the_way = store
            .disk
            .stat(&path)
            .is_ok_and(|meta| meta.kind != Kind::Directory);
        if in_the_way {
            let name = free_name(store, dir, &HashSet::new());
            let why = "a directory of items belongs where it was".to_owned();
            set_aside(store, dir, &format!("corrupt/{name}"), &why, None)?;
            return Ok(Some(SetAside {
                from: dir.to_owned(),
                name,
                why,
            }));
        }
    }
    Ok(None)
}

/// Whether something is at a path. An error is not taken for an answer: the journal would be
/// removed with its event in no file, and an item accepted that is there.
pub(super) fn is_there(store: &FileStore, relative: &str) -> Result<bool, StoreError> {
    let path = store.path(relative);
    match store.disk.stat(&path) {
        Ok(_) => Ok(true),
        Err(error) if is_absence(&error) => Ok(false),
        Err(source) => Err(io_error("look at", &path, source)),
    }
}

/// An error that says that nothing is at a path.
pub(super) fn is_absence(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}
