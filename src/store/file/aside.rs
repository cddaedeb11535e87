//! Files that are set aside in `corrupt/`, and what is known of their items: by the reasons beside
//! them, which stay when a person has removed the files.

use std::collections::HashSet;
use std::io;

use serde::Deserialize;

use super::super::StoreError;
use super::FileStore;
use super::audit::set_aside_id;
use super::journal::{FileMark, io_error};
use super::keys::remove;
use super::replay::{is_same_file, is_there};
use crate::model::ids::RequestId;
use crate::model::time::UnixMs;

/// What a name of a reason ends with.
const WHY: &str = ".why.json";

/// The longest reason that is read, in bytes.
const WHY_BYTES_MAX: u64 = 64 * 1024;

/// An item's file that was set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aside {
    /// The item.
    pub id: RequestId,
    /// The file's name in `corrupt/`.
    pub name: String,
    /// It is still there: nobody has removed it.
    pub is_there: bool,
    /// Where it was, relative to the spool. `None` if its reason cannot be read.
    pub from: Option<String>,
    /// What was wrong with it.
    pub why: Option<String>,
    /// When it was set aside.
    pub at: Option<UnixMs>,
}

#[derive(Deserialize)]
struct Why {
    from: String,
    reason: String,
}

impl FileStore {
    /// The files of items, whose ids begin so, that were set aside: one an id, at most `most`, one
    /// that is still there before one that is not.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`] if `corrupt/` cannot be listed.
    pub fn set_aside(&self, beginning: &str, most: usize) -> Result<Vec<Aside>, StoreError> {
        let mut all: std::collections::BTreeMap<RequestId, (String, bool)> = [].into();
        self.list("corrupt", &mut |name, _| {
            let Some(name) = name.to_str().filter(|name| name.starts_with(beginning)) else {
                return;
            };
            let (file, is_there) = match name.strip_suffix(WHY) {
                Some(file) => (file, false),
                None => (name, true),
            };
            let Some(id) = set_aside_id(file) else {
                return;
            };
            let known = all.get(&id).is_some_and(|(_, known)| *known);
            if !known && (is_there || all.len() < most || all.contains_key(&id)) {
                all.insert(id, (file.to_owned(), is_there));
            }
        })?;
        let told = all.into_iter().take(most);
        Ok(told
            .map(|(id, (name, is_there))| self.aside(id, name, is_there))
            .collect())
    }

    /// Where what has this name in `corrupt/` stood before. `None` if its reason cannot be read.
    pub(super) fn stood(&self, name: &str) -> Option<String> {
        Some(self.why(name)?.from)
    }

    fn why(&self, name: &str) -> Option<Why> {
        let path = self.path(&format!("corrupt/{name}{WHY}"));
        let read = self.disk.read(&path, WHY_BYTES_MAX).ok()?;
        serde_json::from_slice(&read).ok()
    }

    fn aside(&self, id: RequestId, name: String, is_there: bool) -> Aside {
        let (from, why) = self.why(&name).map(|why| (why.from, why.reason)).unzip();
        let path = self.path(&format!("corrupt/{name}{WHY}"));
        let at = self.disk.stat(&path).map(|meta| meta.mtime).ok();
        Aside {
            id,
            name,
            is_there,
            from,
            why,
            at,
        }
    }
}

/// How long a name in `corrupt/` is.
const NAME_BYTES_MAX: usize = 200;

/// A name in `corrupt/` for a file, as near to its own as is free.
pub(super) fn free_name(store: &FileStore, path: &str, promised: &HashSet<String>) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    // Room for a number and for `.why.json`: in a drop box names can be as long as they come.
    let mut end = file.len().min(NAME_BYTES_MAX);
    while !file.is_char_boundary(end) {
        end -= 1;
    }
    let file = &file[..end];
    let taken = |name: &str| {
        // Such a name would be taken for the reason of another file.
        if name.ends_with(".why.json") {
            return true;
        }
        let there = store.disk.stat(&store.path(&format!("corrupt/{name}")));
        there.is_ok() || promised.contains(name)
    };
    let mut name = file.to_owned();
    let mut copy = 1_u64;
    while taken(&name) {
        copy += 1;
        name = format!("{file}.{copy}");
    }
    name
}

/// Sets a file aside in `corrupt/`, the reason first. False if another one is at its place now, or
/// has its name in `corrupt/`: nothing is done then.
pub(super) fn set_aside(
    store: &FileStore,
    from: &str,
    to: &str,
    why: &str,
    file: Option<&FileMark>,
) -> Result<bool, StoreError> {
    // Done already, if the name is taken: it was free when it was chosen, and what is at the
    // file's old place now is another one. But a loss of power can keep the rename without the
    // reason.
    let done = is_there(store, to)?;
    let here = is_there(store, from)?;
    if !done && !here {
        return Ok(true);
    }
    if done && is_same_file(store, from, to) {
        // It has also left one file under two names.
        remove(store, &store.path(from))?;
    } else if here && let Some(file) = file {
        let here = if done { to } else { from };
        if FileMark::of(store.disk.as_ref(), &store.path(here)).as_ref() != Some(file) {
            return Ok(false);
        }
    }
    let note = serde_json::json!({"from": from, "reason": why}).to_string();
    let path = store.path(&format!("{to}.why.json"));
    let written = store.with_dir("corrupt", || {
        let written = store
            .disk
            .write_new(&path, format!("{note}\n").as_bytes(), None);
        match written {
            // Of this very move, begun before a crash; or of a file that a person has removed since.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
            other => other.map_err(|source| io_error("write", &path, source))?,
        }
        // Told apart from a file that cannot be written: a sync that failed ends the session.
        store
            .disk
            .sync_file(&path)
            .map(|()| true)
            .map_err(|source| io_error("sync", &path, source))
    })?;
    if !written {
        store.write_whole(&format!("{to}.why.json"), format!("{note}\n").as_bytes())?;
    }
    if done {
        return Ok(true);
    }
    let target = store.path(to);
    let Err(source) = store.disk.rename(&store.path(from), &target) else {
        return Ok(true);
    };
    if from.starts_with("incoming/") {
        // In a drop box another user can put something else there, or take it away, at any time.
        // Nobody looks for a file of this reason.
        drop(store.disk.unlink(&path));
        if source.kind() == io::ErrorKind::NotFound {
            return Ok(false);
        }
    }
    Err(io_error("rename", &target, source))
}
