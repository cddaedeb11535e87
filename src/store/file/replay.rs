//! Replay: what a dead owner's journal says is done again, in order and idempotently.

use std::collections::HashMap;
use std::io;

use super::super::StoreError;
use super::journal::{self, MoveRecord, Record, io_error};
use super::layout::Place;
use super::{FileStore, ITEM_BYTES_MAX};
use crate::model::ids::RequestId;
use crate::model::item::{Item, event_line};
use crate::model::notice::Merged;
use crate::model::time::UnixMs;

/// What replay found besides the moves.
#[derive(Debug, Default)]
pub(super) struct Replayed {
    /// The number of the newest segment; zero if there was none.
    pub(super) last_segment: u64,
    /// When each item was last claimed.
    pub(super) claimed_at: HashMap<RequestId, UnixMs>,
    /// Who is to be told of what.
    pub(super) notices: Merged,
}

/// Replays every segment. The caller closes the journal afterwards.
pub(super) fn replay(store: &FileStore) -> Result<Replayed, StoreError> {
    let segments = journal::segments(store.disk.as_ref(), &store.root)?;
    let mut replayed = Replayed {
        last_segment: segments.last().map_or(0, |(number, _)| *number),
        ..Replayed::default()
    };
    for record in journal::read_all(store.disk.as_ref(), &store.root)? {
        match record {
            Record::Claim { at, items } => {
                for item in items {
                    let Some(from) = Place::parse(&item.from) else {
                        continue;
                    };
                    replayed.claimed_at.insert(from.id, at);
                    move_file(store, &item.from, &from.claimed(item.n).path())?;
                }
            }
            Record::Move(step) => {
                apply(store, &step, None)?;
                for notice in &step.notices {
                    replayed.notices.add(notice);
                }
            }
            Record::Tell { notices } => {
                for notice in &notices {
                    replayed.notices.add(notice);
                }
            }
            Record::Carry { claims, notices } => {
                for claim in claims {
                    replayed.claimed_at.insert(claim.id, claim.at);
                }
                replayed.notices = notices;
            }
        }
    }
    Ok(replayed)
}

/// Does what a move's record says, as far as it is not done yet.
///
/// `bytes_good` is how much of the item's file is good, where the caller knows it; without it
/// the file is read, and the event appended only if it is not there.
pub(super) fn apply(
    store: &FileStore,
    step: &MoveRecord,
    bytes_good: Option<u64>,
) -> Result<(), StoreError> {
    if let Some(why) = &step.why {
        return set_aside(store, step, why);
    }
    let here = [&step.from, &step.to]
        .into_iter()
        .find(|path| store.disk.stat(&store.path(path)).is_ok());
    // In neither place: a later record moved it on.
    let Some(here) = here else {
        return Ok(());
    };
    if let Some(event) = &step.event {
        let path = store.path(here);
        let keep = match bytes_good {
            Some(bytes) => Some(bytes),
            None => match store.disk.read(&path, ITEM_BYTES_MAX) {
                Ok(bytes) => match Item::parse(&bytes) {
                    Ok(parsed) => (parsed.item.events.len() < step.event_number)
                        .then_some(parsed.bytes_good as u64),
                    // Whoever reads it next sets it aside; nothing is built on it.
                    Err(_) => return Ok(()),
                },
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
    move_file(store, here, &step.to)
}

/// Renames, making the target's directory if need be. Done already, or moved on: fine.
pub(super) fn move_file(store: &FileStore, from: &str, to: &str) -> Result<(), StoreError> {
    if from == to {
        return Ok(());
    }
    let (source, target) = (store.path(from), store.path(to));
    let error = match store.disk.rename(&source, &target) {
        Ok(()) => return Ok(()),
        Err(error) => error,
    };
    if error.kind() == io::ErrorKind::NotFound {
        if store.disk.stat(&source).is_err() {
            return Ok(());
        }
        if let Some((dir, _)) = to.rsplit_once('/') {
            store.make_dirs(dir)?;
        }
        return store
            .disk
            .rename(&source, &target)
            .map_err(|source| io_error("rename", &target, source));
    }
    let inode = |path| store.disk.stat(path).map(|meta| meta.inode).ok();
    if error.kind() == io::ErrorKind::AlreadyExists && inode(&source) == inode(&target) {
        // A power loss left one file under two names; renaming would do nothing.
        return store
            .disk
            .unlink(&source)
            .map_err(|error| io_error("remove", &source, error));
    }
    Err(io_error("rename", &target, error))
}

/// Sets a file aside in `corrupt/`, the reason first.
fn set_aside(store: &FileStore, step: &MoveRecord, why: &str) -> Result<(), StoreError> {
    if store.disk.stat(&store.path(&step.from)).is_err() {
        return Ok(());
    }
    let note = serde_json::json!({"from": step.from, "reason": why}).to_string();
    let path = store.path(&format!("{}.why.json", step.to));
    match store
        .disk
        .create(&path, format!("{note}\n").as_bytes(), None)
    {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(source) => return Err(io_error("write", &path, source)),
    }
    move_file(store, &step.from, &step.to)
}
