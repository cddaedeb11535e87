//! Drop boxes: files that any program renamed into `incoming/DEST/`.
//!
//! # Order of writes
//!
//! 1. The file is renamed to carry the id of its item, and the box synced.
//! 2. The item is accepted under that id: durable in its place.
//! 3. The file is unlinked.
//!
//! So a death between any two steps mints no second id: after 1 the file has its id, and after
//! 2 the item is there and the file is only in the way. Whether it is that item's is looked at
//! before 3, for anybody may make up such a name. A file of another user is not moved
//! into the spool but read, once: what was checked is what is accepted.

use std::collections::{BTreeSet, BinaryHeap, HashMap, HashSet, VecDeque};
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;

use super::super::super::disk::Kind;
use super::super::super::{Dropped, Intake, Limits, Store as _, StoreError, TakenIn};
use super::super::census;
use super::super::journal::io_error;
use super::super::stuck::is_of_the_disk;
use super::drop_name::{DropFile, stem_of, taking_name};
use super::taking::{waits, words};
use super::{FileSession, is_loop};
use crate::model::ids::{DestName, RequestId};
use crate::model::notice::Asked;
use crate::model::time::UnixMs;

/// How many files are taken in with one sync of their box, and how many bytes they hold.
const GROUP_FILES_MAX: usize = 200;
const GROUP_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How many files are listed at once.
const FILES_MAX: usize = 2000;

/// How many files of a box that stay where they are are told of by name.
const TOLD_MAX: u64 = 20;

/// How far a session has come in a drop box.
#[derive(Debug, Default)]
pub(in super::super) struct BoxCursor {
    /// Listed, and not looked at.
    files: VecDeque<DropFile>,
    /// There are more than were listed.
    more: bool,
    /// The rank of the last file that was looked at.
    after: Option<u64>,
    /// How many files stay where they are.
    stay: u64,
}

impl FileSession<'_> {
    pub(super) fn list_boxes(&mut self) -> Result<Vec<(DestName, bool)>, StoreError> {
        let mut boxes = Vec::new();
        let mut foreign = Vec::new();
        self.store.list("incoming", &mut |name, kind| {
            let named = name.to_str().and_then(|name| name.parse().ok());
            match (kind, named) {
                (Kind::Directory, Some(name)) => boxes.push((name, false)),
                _ => foreign.push(format!("incoming/{}", name.display())),
            }
        })?;
        for path in foreign {
            self.foreign(&path, "it does not belong here; it was left as it is");
        }
        for (name, has_files) in &mut boxes {
            let listed = self
                .store
                .list(&format!("incoming/{name}"), &mut |name, _| {
                    *has_files |= !name.to_string_lossy().starts_with('.');
                });
            // One that cannot be listed is told of when it is to be taken in.
            *has_files |= listed.is_err();
        }
        Ok(boxes)
    }

    pub(super) fn take_in_box(
        &mut self,
        destination: &DestName,
        bytes_max: u64,
        limits: &Limits,
        decide: &mut dyn FnMut(&Dropped<'_>) -> Intake,
    ) -> Result<TakenIn, StoreError> {
        let dir = format!("incoming/{destination}");
        match self.store.disk.stat(&self.store.path(&dir)) {
            Ok(meta) if meta.kind == Kind::Directory => {}
            Ok(_) => {
                self.foreign(&dir, "a drop box is a directory; it was left as it is");
                return Ok(TakenIn::default());
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // It costs the other boxes nothing that this one cannot be made.
                if let Err(error) = self.store.make_dirs(&dir) {
                    self.foreign(&dir, &words(&error));
                }
                return Ok(TakenIn::default());
            }
            Err(error) => {
                self.foreign(&dir, &format!("cannot look at it: {error}"));
                return Ok(TakenIn::default());
            }
        }
        let mut cursor = self.boxes.remove(destination).unwrap_or_default();
        if cursor.files.is_empty() {
            let (files, more) = self.list_box(&dir, &mut cursor);
            (cursor.files, cursor.more) = (files.into(), more);
        }
        let mut taken = TakenIn {
            stay: cursor.stay,
            ..TakenIn::default()
        };
        if !cursor.files.is_empty() {
            let files = &mut cursor.files;
            self.take_group(destination, bytes_max, limits, files, &mut taken, decide)?;
            self.flush()?;
            for (path, why) in std::mem::take(&mut self.not_aside) {
                self.stays(&path, &why, &mut taken.stay);
            }
            // The files that were unlinked must not come back after the journal is gone.
            self.dirty = true;
        }
        cursor.stay = taken.stay;
        taken.left = cursor.more || !cursor.files.is_empty();
        if !taken.left || taken.full.is_some() {
            let more = cursor.stay.saturating_sub(TOLD_MAX);
            if more > 0 {
                self.foreign(&dir, &format!("{more} more files are left as they are"));
            }
        }
        self.boxes.insert(destination.clone(), cursor);
        Ok(taken)
    }

    /// The next files of a box, at most so many, and whether there are more.
    ///
    /// They come in an order that is another one in every session: files that cannot be taken in,
    /// however many, keep no other out for good.
    fn list_box(&mut self, dir: &str, cursor: &mut BoxCursor) -> (Vec<DropFile>, bool) {
        let seed = self.now;
        let after = cursor.after.take();
        let mut next: BinaryHeap<(u64, String)> = BinaryHeap::new();
        let mut foreign = Vec::new();
        let mut left = false;
        let listed = self.store.list(dir, &mut |name, kind| {
            let text = name.to_str().unwrap_or_default();
            if text.starts_with('.') {
                // Still being written.
                return;
            }
            let rank = rank(seed, name);
            if after.is_some_and(|after| rank <= after) {
                return;
            }
            let is_ours = stem_of(text).1.is_some();
            let why = if kind != Kind::File {
                "it is not a regular file, and was not opened"
            } else if !is_ours && text.strip_suffix(".json").is_none() {
                "its name does not end in .json; it was left as it is"
            } else {
                next.push((rank, text.to_owned()));
                if next.len() > FILES_MAX {
                    next.pop();
                    left = true;
                }
                return;
            };
            foreign.push((rank, format!("{dir}/{}", name.display()), why));
        });
        if let Err(error) = listed {
            self.foreign(dir, &words(&error));
        }
        let next = next.into_sorted_vec();
        cursor.after = next.last().map(|(rank, _)| *rank);
        for (rank, path, why) in foreign {
            // Of this round: the others are met again.
            if !left || cursor.after.is_none_or(|last| rank <= last) {
                self.stays(&path, why, &mut cursor.stay);
            }
        }
        let mut files = Vec::with_capacity(next.len());
        for (_, name) in next {
            let path = self.store.path(&format!("{dir}/{name}"));
            // Gone again: its producer thought better of it.
            let Ok(meta) = self.store.disk.stat(&path) else {
                continue;
            };
            let (_, id) = stem_of(&name);
            files.push(DropFile {
                at: meta.mtime,
                id,
                name,
            });
        }
        files.sort();
        (files, left)
    }

    /// Tells of a file that stays where it is; of very many, only how many there are.
    pub(super) fn stays(&mut self, path: &str, why: &str, stay: &mut u64) {
        *stay += 1;
        if *stay <= TOLD_MAX {
            self.foreign(path, why);
        }
    }

    /// Takes in the first files, as many as share their syncs. A group is in memory, so it ends
    /// when enough bytes have been read, whatever the files' lengths were when they were listed.
    fn take_group(
        &mut self,
        destination: &DestName,
        bytes_max: u64,
        limits: &Limits,
        files: &mut VecDeque<DropFile>,
        taken: &mut TakenIn,
        decide: &mut dyn FnMut(&Dropped<'_>) -> Intake,
    ) -> Result<(), StoreError> {
        let dir = &format!("incoming/{destination}");
        // Nothing is built on a drop that could still be lost, and nobody told of it; nor on a name
        // that a tick gave it which died.
        self.store.sync_dir(dir)?;
        let first = files.iter().take(GROUP_FILES_MAX);
        let begun: BTreeSet<RequestId> = first.filter_map(|file| file.id).collect();
        // Nobody can tell whether these are items: they stay, and keep no other out.
        let (present, untold) = match self.accepted_before(destination, &begun) {
            Err(error) if self.is_out_of_reach(&error) => {
                let why = words(&error);
                let untold = begun.iter().map(|id| (*id, why.clone())).collect();
                (HashSet::new(), untold)
            }
            other => other?,
        };
        let (mut looks, mut bytes_read) = (0, 0);
        let mut renamed = false;
        // Those that name an id or a key need to know whether that is anywhere in the spool.
        let (mut plain, mut naming) = <(Vec<_>, Vec<_>)>::default();
        while looks < GROUP_FILES_MAX && bytes_read < GROUP_BYTES_MAX {
            let Some(file) = files.pop_front() else {
                break;
            };
            let file = &file;
            looks += 1;
            let path = format!("{dir}/{}", file.name);
            if let Some(why) = file.id.and_then(|id| untold.get(&id)) {
                self.stays(&path, &waits(why), &mut taken.stay);
                continue;
            }
            let read = self.read_dropped(&path, destination, file, bytes_max, taken)?;
            let Some((bytes, uid)) = read else {
                continue;
            };
            bytes_read += bytes.len();
            let dropped = Dropped {
                destination,
                uid,
                bytes: &bytes,
                id: file.id,
            };
            let decided = decide(&dropped);
            if let Some(id) = file.id.filter(|id| present.contains(id)) {
                self.end_taking((&path, file, id), &dropped, &decided, taken)?;
                continue;
            }
            let offer = match decided {
                Intake::Accept(offer) => offer,
                Intake::Refuse(why) => {
                    // What is no item names nobody that could be trusted to be there.
                    let nobody = Asked::default();
                    self.set_aside_as(
                        &path,
                        &file.original(),
                        destination.as_str(),
                        &why,
                        &nobody,
                    )?;
                    continue;
                }
            };
            let id = offer.envelope.request_id;
            let mut name = file.name.clone();
            if file.id.is_none() {
                name = taking_name(&file.name, id);
                let (from, to) = (self.store.path(&path), format!("{dir}/{name}"));
                match self.store.disk.rename(&from, &self.store.path(&to)) {
                    Ok(()) => renamed = true,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) if is_of_the_disk(&error) => {
                        return Err(io_error("rename", &from, error));
                    }
                    Err(error) => {
                        let why = format!("{error}; it was left as it is");
                        self.stays(&path, &why, &mut taken.stay);
                        continue;
                    }
                }
            }
            let taking = DropFile {
                name,
                id: Some(id),
                ..file.clone()
            };
            if offer.own_id || offer.envelope.key.is_some() {
                naming.push((taking, *offer));
            } else {
                plain.push((taking, *offer));
            }
        }
        if renamed {
            // The id is the file's from here on, also after loss of power.
            self.store.sync_dir(dir)?;
        }
        self.accept_taking(destination, plain, limits, taken)?;
        self.accept_taking(destination, naming, limits, taken)
    }

    /// Which of the ids, that a dead tick gave to files, are items already, or were; and of which nobody
    /// can tell, with why. That they are is durable when this returns: those of their files that hold
    /// their requests are about to go.
    fn accepted_before(
        &self,
        destination: &DestName,
        begun: &BTreeSet<RequestId>,
    ) -> Result<(HashSet<RequestId>, HashMap<RequestId, String>), StoreError> {
        let (present, obstacles) = census::present(self.store, begun)?;
        let dirs: BTreeSet<&String> = present.values().filter_map(census::Where::dir).collect();
        for dir in dirs {
            self.store.sync_found(dir)?;
        }
        // One that is only in corrupt/ is told of, and its file kept.
        let is_item = |(id, at)| (at != census::Where::Aside).then_some(id);
        let mut untold = HashMap::new();
        let mut known: HashSet<RequestId> = present.into_iter().filter_map(is_item).collect();
        for id in begun {
            if known.contains(id) {
                continue;
            }
            if self.store.tombstone(*id)?.is_some() {
                known.insert(*id);
            } else if let Err(error) =
                census::check_clear(self.store, &obstacles, *id, destination.as_str())
            {
                untold.insert(*id, words(&error));
            }
        }
        Ok((known, untold))
    }

    /// What a dropped file holds, and whose it is. `None` if it is left, or was set aside.
    fn read_dropped(
        &mut self,
        path: &str,
        destination: &DestName,
        file: &DropFile,
        bytes_max: u64,
        taken: &mut TakenIn,
    ) -> Result<Option<(Vec<u8>, u32)>, StoreError> {
        const NAMES: &str = "it has more than one name (hard links); it was left";
        let whole = self.store.path(path);
        // Looked at before it is opened: a file with a second name may be a trap for us.
        let known = self.store.disk.stat(&whole);
        if known.is_ok_and(|meta| meta.nlink > 1) {
            self.stays(path, NAMES, &mut taken.stay);
            return Ok(None);
        }
        match self.store.disk.read_with_meta(&whole, bytes_max) {
            Ok((_, meta)) if meta.nlink > 1 => {
                self.stays(path, NAMES, &mut taken.stay);
                Ok(None)
            }
            Ok((bytes, meta)) => Ok(Some((bytes, meta.uid))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput || is_loop(&error) => {
                let kind = self.store.disk.stat(&whole).map(|meta| meta.kind);
                if matches!(kind, Ok(Kind::File)) {
                    let why = format!("{error}: at most {bytes_max} bytes are taken in");
                    let nobody = Asked::default();
                    self.set_aside_as(path, &file.original(), destination.as_str(), &why, &nobody)?;
                } else {
                    let why = "it is not a regular file, and was not opened";
                    self.stays(path, why, &mut taken.stay);
                }
                Ok(None)
            }
            Err(error) => {
                let why = format!(
                    "cannot read it: {error}; the spool's user must be able to, by its mode or its group"
                );
                self.stays(path, &why, &mut taken.stay);
                Ok(None)
            }
        }
    }

    /// Removes a file whose item is accepted. If its owner keeps that from being done, it is in
    /// the way and does nothing.
    pub(super) fn remove_dropped(
        &mut self,
        path: &str,
        taken: &mut TakenIn,
    ) -> Result<(), StoreError> {
        let whole = self.store.path(path);
        match self.store.disk.unlink(&whole) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) if is_of_the_disk(&error) => Err(io_error("remove", &whole, error)),
            Err(error) => {
                let why = format!("its item is accepted, and it cannot be removed: {error}");
                self.stays(path, &why, &mut taken.stay);
                Ok(())
            }
        }
    }
}

/// Where a name stands in the order of a session.
fn rank(seed: UnixMs, name: &OsStr) -> u64 {
    let mut hasher = DefaultHasher::new();
    (seed.0, name.as_encoded_bytes()).hash(&mut hasher);
    hasher.finish()
}
