//! `log/clock.json`: what the clock has shown to owners of the lock, and which file this is.
//!
//! Each owner that writes anything replaces it, and it names its own inode. So it also tells a
//! spool from a backup that was put back in its place, or copied over it, whose lock has the inode
//! that `spool.json` names by chance or because it was never replaced.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::super::StoreError;
use super::super::disk::Meta;
use super::FileStore;
use super::journal::io_error;
use super::stuck::is_of_the_disk;
use crate::model::time::{STEP_BACK_MS, UnixMs};

/// Where it is.
const CLOCK: &str = "log/clock.json";

/// How often it is looked at again if somebody replaces it meanwhile.
const LOOKS_MAX: usize = 16;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct ClockFile {
    /// The time of the last one.
    pub(super) latest: UnixMs,
    /// The latest time that the clock had shown before it was set back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) set_back_until: Option<UnixMs>,
    /// Which file this is. One that was written by hand need not say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file: Option<Stamp>,
    /// The spool is a copy, and stays one: what tells that is kept.
    #[serde(skip)]
    of_copy: bool,
}

/// A file, as no copy of it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    /// What `spool.json` named when it was written. Whoever names another lock there, as an
    /// adoption does, says that this spool is one of its own, whatever is written here.
    lock_inode: u64,
    inode: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    born: Option<UnixMs>,
    /// The subvolume: in a snapshot the inodes are the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    volume: Option<u64>,
}

impl Stamp {
    fn of(store: &FileStore, meta: &Meta) -> Result<Self, StoreError> {
        let volume = store.disk.volume(&store.root);
        Ok(Self {
            lock_inode: store.lock_inode,
            inode: meta.inode.1,
            born: meta.born,
            volume: volume.map_err(|source| io_error("look at", &store.root, source))?,
        })
    }

    /// What shows that it is of another file.
    fn differs(&self, here: &Self) -> Option<&'static str> {
        let is_other =
            |one: Option<u64>, two: Option<u64>| one.zip(two).is_some_and(|(a, b)| a != b);
        if self.lock_inode != here.lock_inode {
            None
        } else if is_other(self.volume, here.volume) {
            Some(
                "it is a snapshot, or was restored from one: log/clock.json names another subvolume",
            )
        } else if self.inode != here.inode
            || is_other(self.born.map(|at| at.0), here.born.map(|at| at.0))
        {
            Some(
                "it was restored from a backup: log/clock.json was written by something else than tickpost",
            )
        } else {
            None
        }
    }
}

impl ClockFile {
    /// As it is in a new spool.
    pub(super) fn first(now: UnixMs) -> Self {
        Self {
            latest: now,
            ..Self::default()
        }
    }

    /// As the last owner left it; `claimed` is when one that died has claimed something last.
    pub(super) fn read(
        store: &FileStore,
        now: UnixMs,
        replayed: Option<UnixMs>,
        of_copy: bool,
    ) -> Result<(Self, bool), StoreError> {
        let mut clock: Self = store.read_json(CLOCK)?.unwrap_or_default();
        clock.of_copy = of_copy;
        let latest = replayed.map_or(clock.latest, |at| at.max(clock.latest));
        let was_set_back = latest > now.plus(STEP_BACK_MS);
        if was_set_back {
            clock.set_back_until = clock.set_back_until.max(Some(latest));
        }
        clock.latest = now;
        Ok((clock, was_set_back))
    }

    /// The spool is no copy any more.
    pub(super) fn becomes_own(&mut self) {
        self.of_copy = false;
    }

    /// What shows that the spool is a copy, if anything does.
    pub(super) fn copied(store: &FileStore) -> Result<Option<String>, StoreError> {
        let path = store.path(CLOCK);
        for _ in 0..LOOKS_MAX {
            let before = match store.disk.stat(&path) {
                Ok(before) => before,
                Err(source) if is_of_the_disk(&source) => {
                    return Err(io_error("look at", &path, source));
                }
                Err(_) => return Ok(None),
            };
            let Some(stamp) = store.read_json::<Self>(CLOCK)?.and_then(|clock| clock.file) else {
                return Ok(None);
            };
            // What was read need not be what was looked at.
            let is_same = |meta: Meta| meta.inode == before.inode && meta.changed == before.changed;
            if !store.disk.stat(&path).is_ok_and(is_same) {
                continue;
            }
            let why = stamp.differs(&Stamp::of(store, &before)?);
            return Ok(why.map(str::to_owned));
        }
        Ok(None)
    }

    /// Synced only where it says what nothing else does; a sync of everything follows.
    pub(super) fn write(&self, store: &FileStore) -> Result<(), StoreError> {
        store.make_dirs("log")?;
        let temporary = store.temporary(&CLOCK.replace('/', "_"), |path| {
            store.disk.write_new(path, b"", None)
        })?;
        self.fill(store, &temporary).inspect_err(|_| {
            // If it stays, it is removed after a day.
            drop(store.disk.unlink(&temporary));
        })
    }

    /// What is written names the file itself, so that must be there first.
    fn fill(&self, store: &FileStore, temporary: &Path) -> Result<(), StoreError> {
        let disk = &store.disk;
        let meta = disk
            .stat(temporary)
            .map_err(|source| io_error("look at", temporary, source))?;
        let mut clock = self.clone();
        if !self.of_copy {
            clock.file = Some(Stamp::of(store, &meta)?);
        }
        let json = serde_json::to_vec(&clock).map_err(|source| StoreError::Encode {
            what: "the clock's file",
            source,
        })?;
        disk.append(temporary, 0, &json)
            .map_err(|source| io_error("write", temporary, source))?;
        if self.set_back_until.is_some() {
            disk.sync_file(temporary)
                .map_err(|source| io_error("sync", temporary, source))?;
        }
        let target = store.path(CLOCK);
        disk.replace(temporary, &target)
            .map_err(|source| io_error("rename", &target, source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_knows_itself_from_its_copies() {
        let own = Stamp {
            lock_inode: 1,
            inode: 2,
            born: Some(UnixMs(3)),
            volume: Some(4),
        };
        let with = |change: fn(&mut Stamp)| {
            let mut stamp = own.clone();
            change(&mut stamp);
            stamp
        };
        let rows = [
            (own.clone(), false, "the file itself"),
            (with(|s| s.inode = 9), true, "another inode"),
            (
                with(|s| s.born = Some(UnixMs(9))),
                true,
                "the inode by chance",
            ),
            (with(|s| s.volume = Some(9)), true, "a snapshot"),
            (
                with(|s| s.born = None),
                false,
                "a file system that does not tell",
            ),
            (with(|s| s.volume = None), false, "no subvolumes"),
            (
                with(|s| (s.lock_inode, s.inode) = (9, 9)),
                false,
                "spool.json was written since",
            ),
        ];
        for (here, is_copy, why) in rows {
            assert_eq!(own.differs(&here).is_some(), is_copy, "{why}");
        }
    }
}
