//! Who is there: whether ids are anywhere in the spool, with certainty, and how many items wait.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::io;

use super::super::StoreError;
use super::super::disk::Kind;
use super::FileStore;
use super::audit::set_aside_id;
use super::journal::io_error;
use super::layout::{self, Place, Slot, slot_dir};
use super::reader::{overlay, stir, subdirs};
use super::replay::is_absence;
use crate::model::ids::{DestName, RequestId};
use crate::model::state::State;

/// So many things in `corrupt/` that may have stood for a directory are looked at.
const STRANGE_MAX: usize = 1000;

/// How often items are looked for that move meanwhile.
const LOOKS_MAX: u32 = 100;

/// Where an id is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Where {
    /// In a state, in this directory.
    In(String),
    /// Only in `corrupt/`, if only by the reason beside its file.
    Aside,
    /// On its way, by the journal.
    Moving,
}

impl Where {
    /// The directory of an item that is in a state.
    pub(super) fn dir(&self) -> Option<&String> {
        match self {
            Self::In(dir) => Some(dir),
            Self::Aside | Self::Moving => None,
        }
    }
}

/// Something that stands where items, or one item, may lie: a link is not followed, so nobody can tell
/// what is behind it.
pub(super) struct Obstacle {
    /// Relative to the spool.
    path: String,
    destination: String,
    /// Only of what has an item's name.
    id: Option<RequestId>,
    /// Only of what was set aside: where it stood.
    from: Option<String>,
}

/// Checks that nothing stands where an item of this id and destination may lie.
///
/// # Errors
///
/// What stands there.
pub(super) fn check_clear(
    store: &FileStore,
    obstacles: &[Obstacle],
    id: RequestId,
    destination: &str,
) -> Result<(), StoreError> {
    let hides = |it: &&Obstacle| it.id.map_or(it.destination == destination, |own| own == id);
    let Some(obstacle) = obstacles.iter().find(hides) else {
        return Ok(());
    };
    let path = store.path(&obstacle.path);
    let why = match (obstacle.id, &obstacle.from) {
        (Some(_), _) => {
            "it has an item's name and is no regular file: put the file back, or move it away"
                .to_owned()
        }
        (None, Some(from)) => format!(
            "it stood in the place of {from}, and items may lie behind it: put those back, then remove it"
        ),
        (None, None) => return Err(StoreError::NotDirectory { path }),
    };
    Err(io_error("look at", &path, io::Error::other(why)))
}

/// Which of the ids are anywhere in the spool, `corrupt/` included. What it says is certain, also
/// while items move: of a move there is a record before it is done, and a journal that comes or
/// goes is noticed. Of an id that it does not name it is certain where no [`Obstacle`] stands.
pub(super) fn present(
    store: &FileStore,
    asked: &BTreeSet<RequestId>,
) -> Result<(HashMap<RequestId, Where>, Vec<Obstacle>), StoreError> {
    let mut found = HashMap::new();
    for _ in 0..LOOKS_MAX {
        let mut obstacles = Vec::new();
        let is_sure = |id: &RequestId| found.get(id).is_some_and(|at| matches!(at, Where::In(_)));
        if asked.iter().all(is_sure) {
            return Ok((found, obstacles));
        }
        let before = stir(store)?;
        for state in State::ALL {
            let mut foreign = Vec::new();
            for destination in subdirs(store, state.as_str(), &mut |path| foreign.push(path))? {
                look_for(
                    store,
                    state,
                    &destination,
                    asked,
                    &mut found,
                    &mut obstacles,
                )?;
            }
            for path in foreign {
                let (_, name) = path.split_once('/').unwrap_or_default();
                if let Ok(name) = name.parse::<DestName>() {
                    let destination = name.to_string();
                    obstacles.push(Obstacle {
                        path,
                        destination,
                        id: None,
                        from: None,
                    });
                }
            }
        }
        let mut strange = Vec::new();
        store.list("corrupt", &mut |name, _| {
            let name = name.to_str().unwrap_or_default();
            // A refused drop has the name that its producer chose, which may be any id's.
            let id = set_aside_id(name);
            if let Some(id) = id.filter(|id| asked.contains(id)) {
                found.entry(id).or_insert(Where::Aside);
            }
            let own = name.split('.').next().unwrap_or_default();
            let is_number = |rest: &str| rest.bytes().all(|byte| byte.is_ascii_digit());
            let numbered = name
                .strip_prefix(own)
                .and_then(|rest| rest.strip_prefix('.'));
            if numbered.is_none_or(is_number) {
                strange.push(name.to_owned());
            }
        })?;
        obstacles.extend(strange.into_iter().take(STRANGE_MAX).filter_map(|name| {
            let from = store.stood(&name)?;
            let mut parts = from.split('/');
            parts.next().and_then(State::parse)?;
            let destination = parts.next()?.to_owned();
            Some(Obstacle {
                path: format!("corrupt/{name}"),
                destination,
                id: None,
                from: Some(from),
            })
        }));
        let overlay = overlay(store)?;
        for id in overlay.ids().filter(|id| asked.contains(id)) {
            let at = if overlay.sets_aside(id) {
                Where::Aside
            } else {
                Where::Moving
            };
            // An older file of it may be in corrupt/.
            match found.entry(id) {
                Entry::Occupied(known) if known.get().dir().is_some() => {}
                Entry::Occupied(mut known) => drop(known.insert(at)),
                Entry::Vacant(unknown) => drop(unknown.insert(at)),
            }
        }
        let after = stir(store)?;
        if before.journal == after.journal && before.lock == after.lock {
            return Ok((found, obstacles));
        }
    }
    Err(StoreError::Restless {
        root: store.root.clone(),
    })
}

/// Looks for ids in one state's directories of one destination.
fn look_for(
    store: &FileStore,
    state: State,
    destination: &str,
    asked: &BTreeSet<RequestId>,
    found: &mut HashMap<RequestId, Where>,
    obstacles: &mut Vec<Obstacle>,
) -> Result<(), StoreError> {
    let mut slots = Vec::new();
    let obstacle = |path, id| Obstacle {
        path,
        destination: destination.to_owned(),
        id,
        from: None,
    };
    let root = slot_dir(state, destination, Slot::Root);
    store.list(&root, &mut |name, kind| {
        let name = name.to_str().unwrap_or_default();
        if let Some(slot) = layout::parse_slot(name) {
            match kind {
                Kind::Directory => slots.push(slot),
                Kind::File | Kind::Other => {
                    obstacles.push(obstacle(format!("{root}/{name}"), None));
                }
            }
        }
        let id = layout::parse_name(name).map(|(id, _)| id);
        if let Some(id) = id.filter(|id| asked.contains(id)) {
            match kind {
                Kind::File => drop(found.insert(id, Where::In(root.clone()))),
                Kind::Directory | Kind::Other => {
                    obstacles.push(obstacle(format!("{root}/{name}"), Some(id)));
                }
            }
        }
    })?;
    for slot in slots {
        for id in asked {
            let place = Place {
                state,
                destination: destination.to_owned(),
                slot,
                id: *id,
            };
            let is_known = found.get(id).is_some_and(|at| at.dir().is_some());
            if is_known {
                continue;
            }
            let path = store.path(&place.path());
            match store.disk.stat(&path) {
                Ok(meta) if meta.kind == Kind::File => {
                    found.insert(*id, Where::In(place.dir()));
                }
                Ok(_) => obstacles.push(obstacle(place.path(), Some(*id))),
                Err(error) if is_absence(&error) => {}
                Err(source) => return Err(io_error("look at", &path, source)),
            }
        }
    }
    Ok(())
}

/// How many items are pending, unknown or held, counted no further than `items_max`. By names
/// alone; one that moves meanwhile may count twice or not at all, and what lies in a directory that
/// cannot be listed does not count: no other destination's items are refused for it.
pub(super) fn count_waiting(store: &FileStore, items_max: u64) -> Result<u64, StoreError> {
    let mut items = 0;
    for state in [State::Pending, State::Unknown, State::Held] {
        for destination in subdirs(store, state.as_str(), &mut |_| {})? {
            let mut dirs = vec![slot_dir(state, &destination, Slot::Root)];
            while let Some(dir) = dirs.pop() {
                if items >= items_max {
                    return Ok(items_max);
                }
                let listed = store.list(&dir, &mut |name, kind| match kind {
                    Kind::File => items += 1,
                    Kind::Directory => dirs.push(format!("{dir}/{}", name.display())),
                    Kind::Other => {}
                });
                drop(listed);
            }
        }
    }
    Ok(items.min(items_max))
}
