//! Names in `keys/`: dedupe keys and callers' own ids, each a small file that is made exclusively
//! and owned by its lock.
//!
//! The lock tells a caller that is dead from one at work, and no one removes, replaces or acts on
//! a name without it. A file that is replaced or removed is another file: whoever waited for its
//! lock looks again.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::super::StoreError;
use super::super::disk::Lock;
use super::journal::io_error;
use super::{FileStore, check_directory, reader};
use crate::model::envelope::{Envelope, sha256_hex};
use crate::model::ids::RequestId;

/// The directory of callers' own ids; no destination has such a name.
const OWN_IDS: &str = "keys/_ids";

/// What a file in `keys/` holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reservation {
    pub(super) request_id: RequestId,
    pub(super) body_sha256: String,
    /// Of the whole request, as [`crate::model::envelope::Request::sha256`] has it.
    #[serde(default)]
    pub(super) request_sha256: String,
    /// Only where the name is an id: of which destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) destination: Option<String>,
}

impl Reservation {
    /// What an item reserves under its key.
    pub(super) fn of_key(envelope: &Envelope) -> Self {
        Self {
            request_id: envelope.request_id,
            body_sha256: envelope.request.body_sha256.clone(),
            request_sha256: envelope.request.sha256(),
            destination: None,
        }
    }

    /// What an item reserves under its id.
    pub(super) fn of_id(envelope: &Envelope) -> Self {
        Self {
            destination: Some(envelope.destination.to_string()),
            ..Self::of_key(envelope)
        }
    }
}

/// A name in `keys/` that this process owns.
pub(super) struct Owned {
    pub(super) relative: String,
    /// Kept for its drop: it is the ownership.
    lock: Box<dyn Lock>,
    /// What it held before; `None` if this process made it, or if it was damaged.
    pub(super) before: Option<Reservation>,
    /// This process made it.
    pub(super) fresh: bool,
}

/// The reservation's file of a key.
pub(super) fn key_path(destination: &str, key: &str) -> String {
    format!("keys/{destination}/{}", sha256_hex(key.as_bytes()))
}

/// The reservation's file of a caller's own id.
pub(super) fn own_id_path(id: RequestId) -> String {
    format!("{OWN_IDS}/{id}")
}

/// Owns a name in `keys/`, making it if it is not there. `None` if another process owns it.
pub(super) fn own(
    store: &FileStore,
    relative: &str,
    mine: &Reservation,
) -> Result<Option<Owned>, StoreError> {
    let path = store.path(relative);
    let (dir, _) = relative.rsplit_once('/').unwrap_or((relative, ""));
    check_directory(store.disk.as_ref(), &store.path(dir))?;
    store.make_dirs(dir)?;
    loop {
        match store.disk.lock(&path) {
            Ok(Some(lock)) => {
                let inode = lock
                    .inode()
                    .map_err(|source| io_error("look at", &path, source))?;
                // It may have been removed or replaced between opening and locking it.
                match store.disk.stat(&path) {
                    Ok(meta) if meta.inode == inode => {
                        let before = store.read_json(relative)?;
                        return Ok(Some(Owned {
                            relative: relative.to_owned(),
                            lock,
                            before,
                            fresh: false,
                        }));
                    }
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    // Looking again and again would never end.
                    Err(source) => return Err(io_error("look at", &path, source)),
                }
            }
            Ok(None) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let (temporary, lock) = reservation(store, relative, mine)?;
                match store.disk.rename(&temporary, &path) {
                    Ok(()) => {
                        return Ok(Some(Owned {
                            relative: relative.to_owned(),
                            lock,
                            before: None,
                            fresh: true,
                        }));
                    }
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                        remove(store, &temporary)?;
                    }
                    Err(source) => {
                        drop(store.disk.unlink(&temporary));
                        return Err(io_error("rename", &path, source));
                    }
                }
            }
            Err(source) => return Err(io_error("lock", &path, source)),
        }
    }
}

/// A reservation's file under a name in `tmp/`, owned from the start. Not synced.
fn reservation(
    store: &FileStore,
    relative: &str,
    mine: &Reservation,
) -> Result<(PathBuf, Box<dyn Lock>), StoreError> {
    let mut line = serde_json::to_vec(mine).map_err(|source| StoreError::Encode {
        what: "a reservation",
        source,
    })?;
    line.push(b'\n');
    let name = relative.replace('/', "_");
    let temporary = store.temporary(&name, |path| store.disk.write_new(path, &line, None))?;
    match store.disk.lock(&temporary) {
        Ok(Some(lock)) => Ok((temporary, lock)),
        Ok(None) => Err(io_error(
            "lock",
            &temporary,
            io::ErrorKind::WouldBlock.into(),
        )),
        Err(source) => Err(io_error("lock", &temporary, source)),
    }
}

/// Makes a name that is owned say something else. Whoever waits for the file as it was looks
/// again.
pub(super) fn rewrite(
    store: &FileStore,
    owned: &mut Owned,
    mine: &Reservation,
) -> Result<(), StoreError> {
    let (temporary, lock) = reservation(store, &owned.relative, mine)?;
    let path = store.path(&owned.relative);
    store
        .disk
        .replace(&temporary, &path)
        .map_err(|source| io_error("rename", &path, source))?;
    owned.lock = lock;
    owned.fresh = true;
    Ok(())
}

/// Gives a name up that nothing was accepted under.
pub(super) fn disown(store: &FileStore, owned: &Owned) -> Result<(), StoreError> {
    remove(store, &store.path(&owned.relative))
}

pub(super) fn remove(store: &FileStore, path: &Path) -> Result<(), StoreError> {
    match store.disk.unlink(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(io_error("remove", path, source)),
    }
}

/// What an item that is there was accepted with. `None` if it cannot be read.
pub(super) fn known_item(store: &FileStore, id: RequestId) -> Result<Option<Envelope>, StoreError> {
    let Some(found) = reader::find(store, id)? else {
        return Ok(None);
    };
    Ok(match reader::read(store, &found) {
        Some(Ok(item)) => Some(item.envelope),
        Some(Err(_)) | None => None,
    })
}
