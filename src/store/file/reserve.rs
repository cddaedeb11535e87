//! Room that is set aside while there is enough of it, for the day when there is none: what was
//! sent can be settled, and what is old pruned, on a file system without a free byte or file.
//!
//! `reserve/` holds a few preallocated files. Their bytes are what a journal, the ends of items
//! and the tombstones need; their inodes are what new files and directories need.
//!
//! # Guarantees
//!
//! 1. Without its reserve a spool claims nothing and takes nothing in: the session is tight.
//! 2. The reserve is only ever given up by whoever owns the lock, but for a hold of a whole
//!    destination, which has none and must be possible at any time.
//! 3. It holds nothing, so it is never synced, and losing it is no fault.

use std::io;

use super::super::StoreError;
use super::super::disk::{Kind, Room};
use super::FileStore;

/// The directory.
pub(super) const DIR: &str = "reserve";

/// How many files it holds: as many new files and directories can be made without it.
const FILES: u64 = 32;

/// How much they set aside at most, in bytes.
const BYTES_MAX: u64 = 4 * 1024 * 1024;

/// And at least.
const BYTES_MIN: u64 = 128 * 1024;

/// With fewer files free than this the file system counts as full.
const TIGHT_FILES: u64 = 16;

/// What the reserve is made of, and when, by the size of the file system.
#[derive(Clone, Copy)]
struct Measure {
    /// How long each file is, in bytes.
    file_bytes: u64,
    /// With less than this free the file system counts as full.
    tight: Room,
    /// The reserve is made while so much is free. That is more than giving it up frees, and it must
    /// not be what fills the file system up.
    roomy: Room,
}

impl Measure {
    fn of(room: Room) -> Self {
        let bytes = (room.bytes_total / 16).clamp(BYTES_MIN, BYTES_MAX);
        let tight = Room {
            bytes: bytes / 2,
            files: TIGHT_FILES,
            ..room
        };
        Self {
            file_bytes: bytes / FILES,
            tight,
            roomy: Room {
                bytes: bytes * 2,
                files: FILES + 2 * TIGHT_FILES,
                ..room
            },
        }
    }
}

fn file(number: u64) -> String {
    format!("{DIR}/{number:02}")
}

fn has(room: Room, least: Room) -> bool {
    room.bytes >= least.bytes && room.files >= least.files
}

/// Whether the whole reserve is there.
fn is_there(store: &FileStore) -> bool {
    // The last that is made.
    store.disk.stat(&store.path(&file(FILES))).is_ok()
}

/// Looks at the room as a session begins. If there is none the reserve is given up, and what was
/// found is returned: the session is tight.
pub(super) fn open(store: &FileStore) -> Option<Room> {
    // What cannot be looked at shows when something is written.
    let room = store.disk.room(&store.root).ok()?;
    if is_there(store) {
        if has(room, Measure::of(room).tight) {
            return None;
        }
        give_up(store);
        return Some(room);
    }
    renew(store, room)
}

/// Makes the reserve if there is room for it. Returns the room if there is not.
fn renew(store: &FileStore, room: Room) -> Option<Room> {
    let measure = Measure::of(room);
    if !has(room, measure.roomy) {
        give_up(store);
        return Some(room);
    }
    match make(store, measure.file_bytes) {
        // A quota, which the file system's own numbers do not show.
        Err(error) if is_full(&error) => {
            give_up(store);
            Some(room)
        }
        // Something else that is wrong there is no reason to stop for.
        Ok(()) | Err(_) => None,
    }
}

/// Whether the file system would count as full with so many bytes less.
pub(super) fn would_be_tight(store: &FileStore, bytes: u64) -> bool {
    // What cannot be looked at shows when something is written.
    store.disk.room(&store.root).is_ok_and(|room| {
        let left = Room {
            bytes: room.bytes.saturating_sub(bytes),
            ..room
        };
        !has(left, Measure::of(room).tight)
    })
}

/// Makes the reserve again after a tight session, if there is room by now.
pub(super) fn close(store: &FileStore) {
    if let Ok(room) = store.disk.room(&store.root) {
        // Without it the next session is tight, too.
        let _still_tight = renew(store, room);
    }
}

fn make(store: &FileStore, file_bytes: u64) -> io::Result<()> {
    store.disk.make_dir(&store.path(DIR))?;
    for number in 1..=FILES {
        match store
            .disk
            .reserve_file(&store.path(&file(number)), file_bytes)
        {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Gives the reserve up: from here on its room is free. True if there was any.
pub(super) fn give_up(store: &FileStore) -> bool {
    let dir = store.path(DIR);
    let is_ours = |meta: super::super::disk::Meta| meta.kind == Kind::Directory;
    if !store.disk.stat(&dir).is_ok_and(is_ours) {
        // A link is not followed.
        return false;
    }
    let mut any = false;
    // The last first: a part of a reserve does not count as one.
    for number in (1..=FILES).rev() {
        any |= store.disk.unlink(&store.path(&file(number))).is_ok();
    }
    any | store.disk.remove_dir(&dir).is_ok()
}

/// Whether an error says that there is no room, of the disk or of a quota.
pub(super) fn is_full(error: &io::Error) -> bool {
    [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded].contains(&error.kind())
}

/// Whether a step failed for want of room, and may be done again: after a failed sync nothing
/// about what was written is certain.
pub(super) fn is_for_room(error: &StoreError) -> bool {
    matches!(error, StoreError::Io { op, source, .. } if is_full(source) && !op.starts_with("sync"))
}
