//! Drop boxes: files that any program renamed into `incoming/DEST/`.
//!
//! # Order of writes
//!
//! 1. The file is renamed to carry the id of its item, and the box synced.
//! 2. The item is accepted under that id: durable in its place.
//! 3. The file is unlinked.
//!
//! So a death between any two steps mints no second id: after 1 the file has its id, and after
//! 2 the item is there and the file is only in the way. A file of another user is not moved
//! into the spool but read, once: what was checked is what is accepted.

use std::collections::BTreeSet;
use std::io;

use super::super::super::disk::Kind;
use super::super::super::{Answer, Dropped, Intake, Offer, Store as _, StoreError, TakenIn};
use super::super::journal::io_error;
use super::super::{accept, census};
use super::{FileSession, is_loop};
use crate::model::ids::{DestName, RequestId};
use crate::model::time::UnixMs;

/// What a file's name ends with once it carries an id.
const TAKING: &str = ".taking";

/// How long the original name may be for the id to fit beside it.
const STEM_BYTES_MAX: usize = 200;

/// How many files are taken in with one sync of their box.
const GROUP_FILES_MAX: usize = 200;

/// A file in a drop box.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct DropFile {
    at: UnixMs,
    name: String,
    id: Option<RequestId>,
}

impl DropFile {
    /// The name that it was dropped under.
    fn original(&self) -> String {
        match self.id {
            Some(_) => format!("{}.json", stem_of(&self.name).0),
            None => self.name.clone(),
        }
    }
}

/// The name of a file that carries the id of its item: `NAME.ID.taking`.
fn taking_name(name: &str, id: RequestId) -> String {
    let stem = name.strip_suffix(".json").unwrap_or(name);
    let mut end = stem.len().min(STEM_BYTES_MAX);
    while !stem.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}.{id}{TAKING}", &stem[..end])
}

/// What [`taking_name`] was made of.
fn stem_of(name: &str) -> (&str, Option<RequestId>) {
    let parts = name
        .strip_suffix(TAKING)
        .and_then(|rest| rest.rsplit_once('.'));
    match parts.map(|(stem, id)| (stem, id.parse())) {
        Some((stem, Ok(id))) => (stem, Some(id)),
        _ => (name, None),
    }
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
        files_max: usize,
        decide: &mut dyn FnMut(&Dropped<'_>) -> Intake,
    ) -> Result<TakenIn, StoreError> {
        let dir = format!("incoming/{destination}");
        match self.store.disk.stat(&self.store.path(&dir)) {
            Ok(meta) if meta.kind == Kind::Directory => {}
            Ok(_) => {
                self.foreign(&dir, "a drop box is a directory; it was left as it is");
                return Ok(TakenIn::default());
            }
            Err(_) => {
                self.store.make_dirs(&dir)?;
                return Ok(TakenIn::default());
            }
        }
        let (mut files, left) = self.list_box(&dir, files_max);
        let mut taken = TakenIn {
            left,
            ..TakenIn::default()
        };
        files.sort();
        for group in files.chunks(GROUP_FILES_MAX) {
            self.take_group(destination, &dir, group, bytes_max, &mut taken, decide)?;
        }
        if !files.is_empty() {
            self.flush()?;
            // The files that were unlinked must not come back after the journal is gone.
            self.dirty = true;
        }
        Ok(taken)
    }

    /// The files of a box, at most so many, and whether there are more.
    fn list_box(&mut self, dir: &str, files_max: usize) -> (Vec<DropFile>, bool) {
        let mut names = Vec::new();
        let mut foreign = Vec::new();
        let mut left = false;
        let listed = self.store.list(dir, &mut |name, kind| {
            let text = name.to_str().unwrap_or_default();
            if text.starts_with('.') {
                // Still being written.
                return;
            }
            let path = format!("{dir}/{}", name.display());
            let (_, id) = stem_of(text);
            if kind != Kind::File {
                foreign.push((path, "it is not a regular file, and was not opened"));
            } else if id.is_none() && text.strip_suffix(".json").is_none() {
                foreign.push((path, "its name does not end in .json; it was left as it is"));
            } else if names.len() < files_max {
                names.push((text.to_owned(), id));
            } else {
                left = true;
            }
        });
        if let Err(error) = listed {
            self.foreign(dir, &format!("{error}; it was left as it is"));
        }
        for (path, why) in foreign {
            self.foreign(&path, why);
        }
        let mut files = Vec::with_capacity(names.len());
        for (name, id) in names {
            let path = self.store.path(&format!("{dir}/{name}"));
            // Gone again: its producer thought better of it.
            let Ok(meta) = self.store.disk.stat(&path) else {
                continue;
            };
            files.push(DropFile {
                at: meta.mtime,
                name,
                id,
            });
        }
        (files, left)
    }

    fn take_group(
        &mut self,
        destination: &DestName,
        dir: &str,
        files: &[DropFile],
        bytes_max: u64,
        taken: &mut TakenIn,
        decide: &mut dyn FnMut(&Dropped<'_>) -> Intake,
    ) -> Result<(), StoreError> {
        let begun: BTreeSet<RequestId> = files.iter().filter_map(|file| file.id).collect();
        let mut present = census::present(self.store, &begun)?;
        for id in &begun {
            if !present.contains(id) && self.store.tombstone(*id)?.is_some() {
                present.insert(*id);
            }
        }
        let mut renamed = false;
        let mut taking: Vec<DropFile> = Vec::new();
        let mut offers: Vec<Offer> = Vec::new();
        for file in files {
            let path = format!("{dir}/{}", file.name);
            if file.id.is_some_and(|id| present.contains(&id)) {
                // Accepted by a tick that died before it removed the file.
                self.remove_dropped(&path)?;
                taken.known += 1;
                continue;
            }
            let Some((bytes, uid)) = self.read_dropped(&path, destination, file, bytes_max)? else {
                continue;
            };
            let dropped = Dropped {
                destination,
                uid,
                bytes: &bytes,
                id: file.id,
            };
            let offer = match decide(&dropped) {
                Intake::Accept(offer) => offer,
                Intake::Refuse(why) => {
                    self.set_aside_as(&path, &file.original(), destination.as_str(), &why)?;
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
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                        let why = "another file that carries the same id is there; it was left";
                        self.foreign(&path, why);
                        continue;
                    }
                    Err(source) => return Err(io_error("rename", &from, source)),
                }
            }
            taking.push(DropFile {
                at: file.at,
                name,
                id: Some(id),
            });
            offers.push(*offer);
        }
        if renamed {
            // The id is the file's from here on, also after loss of power.
            self.store.sync_dir(dir)?;
        }
        let answers = accept::accept_all(self.store, offers, false)?;
        for (file, answer) in taking.iter().zip(answers) {
            let path = format!("{dir}/{}", file.name);
            match answer {
                Answer::New(_) => {
                    taken.accepted += 1;
                    self.remove_dropped(&path)?;
                }
                Answer::Known(_) => {
                    taken.known += 1;
                    self.remove_dropped(&path)?;
                }
                Answer::Refused(refusal) => {
                    let why = refusal.to_string();
                    self.set_aside_as(&path, &file.original(), destination.as_str(), &why)?;
                }
                // The next tick looks again.
                Answer::Busy => taken.left = true,
            }
        }
        Ok(())
    }

    /// What a dropped file holds, and whose it is. `None` if it is left, or was set aside.
    fn read_dropped(
        &mut self,
        path: &str,
        destination: &DestName,
        file: &DropFile,
        bytes_max: u64,
    ) -> Result<Option<(Vec<u8>, u32)>, StoreError> {
        let whole = self.store.path(path);
        // Looked at before it is opened: a file with a second name may be a trap for us.
        let known = self.store.disk.stat(&whole);
        if known.is_ok_and(|meta| meta.nlink > 1) {
            self.foreign(path, "it has more than one name (hard links); it was left");
            return Ok(None);
        }
        match self.store.disk.read_with_meta(&whole, bytes_max) {
            Ok((_, meta)) if meta.nlink > 1 => {
                self.foreign(path, "it has more than one name (hard links); it was left");
                Ok(None)
            }
            Ok((bytes, meta)) => Ok(Some((bytes, meta.uid))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput || is_loop(&error) => {
                let kind = self.store.disk.stat(&whole).map(|meta| meta.kind);
                if matches!(kind, Ok(Kind::File)) {
                    let why = format!("{error}: at most {bytes_max} bytes are taken in");
                    self.set_aside_as(path, &file.original(), destination.as_str(), &why)?;
                } else {
                    self.foreign(path, "it is not a regular file, and was not opened");
                }
                Ok(None)
            }
            Err(error) => {
                let why = format!(
                    "cannot read it: {error}; the spool's user must be able to, by its mode or its group"
                );
                self.foreign(path, &why);
                Ok(None)
            }
        }
    }

    fn remove_dropped(&self, path: &str) -> Result<(), StoreError> {
        let path = self.store.path(path);
        match self.store.disk.unlink(&path) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(source) => Err(io_error("remove", &path, source)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn a_name_carries_its_id_and_gives_it_back() {
        let id: RequestId = "019adf3e-6b6b-7cc3-98f2-3a1c5d2e8f10".parse().unwrap();
        for (name, stem) in [
            ("a.json", "a"),
            ("invoice 17.json", "invoice 17"),
            ("a.b.json", "a.b"),
            (&*format!("{id}.json"), &*id.to_string()),
        ] {
            let taking = taking_name(name, id);
            assert_eq!(stem_of(&taking), (stem, Some(id)), "{name}");
        }
        let long = format!("{}.json", "ü".repeat(120));
        let taking = taking_name(&long, id);
        assert!(taking.len() < 255, "{}", taking.len());
        assert_eq!(stem_of(&taking).1, Some(id));
        for name in ["a.json", "a.taking", "a.x.taking"] {
            assert_eq!(stem_of(name).1, None, "{name}");
        }
    }
}
