//! The spool on disk: one file per item, one directory per state and destination.
//!
//! # Guarantees
//!
//! 1. When a method that writes returns `Ok`, the change survives loss of power, by the
//!    directories or by the journal.
//! 2. An id is in one directory, at every instant: a move is one rename.
//! 3. A file that cannot be read as an item is set aside in `corrupt/` with the reason. Nothing
//!    is deleted.
//!
//! # Failure
//!
//! Environment: [`StoreError::Io`]; after one failed write or sync a session refuses every later
//! one. Contention: [`StoreError::Locked`], which is normal.
//!
//! # Not here
//!
//! No clock, no choice of state. The caller decides; this makes it durable.

mod accept;
mod aside;
mod audit;
mod census;
mod clock;
mod doctor;
pub mod journal;
mod keys;
pub mod layout;
mod ledger;
mod logs;
mod reader;
mod replay;
mod reserve;
mod session;
mod stuck;
mod tombstones;
mod window;

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

pub use self::aside::Aside;
use self::clock::ClockFile;
use self::journal::io_error;
use super::checkup::{Checkup, Finding};
use super::disk::{Disk, Kind, Lock, RealDisk};
use super::{
    Answer, BodyError, Counts, DestinationHold, Found, Limits, Memory, NewBody, NewBodyAt, Offer,
    Owner, Pruned, Room, Scope, Session, Store, StoreError,
};
use crate::model::envelope::{BODIES, Envelope, hex};
use crate::model::event::Event;
use crate::model::ids::{DestName, RequestId};
use crate::model::item::{Damage, Item};
use crate::model::state::State;
use crate::model::time::{MINUTE_MS, UnixMs};
use crate::model::tombstone::{Retention, Tombstone};

/// The format of the spool that this build writes and reads.
pub const FORMAT: u32 = 1;

/// The largest item file that is read, in bytes.
pub const ITEM_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// The directories of every spool.
const DIRS: [&str; 14] = [
    "incoming",
    "pending",
    "unknown",
    "held",
    "confirmed",
    "failed",
    "corrupt",
    "bodies",
    "keys",
    "tmp",
    "journal",
    "destinations",
    "log",
    "order",
];

/// Where items are, or what speaks of them.
const HOLDING: [&str; 8] = [
    "pending",
    "unknown",
    "held",
    "confirmed",
    "failed",
    "corrupt",
    "keys",
    "journal",
];

/// `spool.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SpoolFile {
    format: u32,
    spool_id: Uuid,
    created_at: UnixMs,
    lock_inode: u64,
}

/// A spool on a file system.
#[derive(Clone)]
pub struct FileStore {
    root: PathBuf,
    disk: Arc<dyn Disk>,
    lock_inode: u64,
    created_at: UnixMs,
}

/// What [`FileStore::init`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// What was made, relative to the spool.
    pub made: Vec<String>,
}

/// Whether a directory is a spool.
#[must_use]
pub fn is_spool(root: &Path) -> bool {
    RealDisk
        .stat(&root.join("spool.json"))
        .is_ok_and(|meta| meta.kind == Kind::File)
}

impl FileStore {
    /// Makes or completes a spool. What is there already is not changed.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotCreatable`], or what [`Self::open`] says of a spool that is there.
    pub fn init(
        root: &Path,
        sample_config: &str,
        spool_id: Uuid,
        now: UnixMs,
    ) -> Result<Made, StoreError> {
        let disk = RealDisk;
        let root = &RealDisk::real(root);
        let mut made = Made::default();
        let not_creatable = |path: &Path| {
            let path = path.to_owned();
            move |source| StoreError::NotCreatable { path, source }
        };
        check_free(&disk, root)?;
        if disk.stat(root).is_err() {
            RealDisk::make_parents(root).map_err(not_creatable(root))?;
            disk.make_dir(root).map_err(not_creatable(root))?;
            made.made.push(".".to_owned());
        }
        sync_ancestors(&disk, root)?;
        check_owner(&disk, root)?;
        if is_spool(root) {
            // A newer format, or a file that is none, must not be touched.
            read_spool_file(&disk, root)?;
        }
        // Before anything is made: where it cannot be looked, a copy's items may lie.
        let holds_items = !is_spool(root) && holds_items(&disk, root)?;
        for dir in DIRS {
            let path = root.join(dir);
            if disk.stat(&path).is_err() {
                disk.make_dir(&path).map_err(not_creatable(&path))?;
                made.made.push(format!("{dir}/"));
            }
        }
        // Of an empty file nothing but its name is to be made durable, and that is its directory's.
        let mut empty = |name: &str| -> Result<(), StoreError> {
            let path = root.join(name);
            match disk.write_new(&path, b"", None) {
                Ok(()) => made.made.push(name.to_owned()),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(source) => return Err(not_creatable(&path)(source)),
            }
            Ok(())
        };
        empty("lock")?;
        empty("wake")?;
        // Whole or not at all, or the next `init` would take half of one for the user's. True if
        // it was not there.
        let whole = |name: &str, bytes: &[u8]| -> Result<bool, StoreError> {
            let path = root.join(name);
            let temporary = make_temporary(root, name, |path| disk.create(path, bytes, None))?;
            match disk.rename(&temporary, &path) {
                Ok(()) => Ok(true),
                // Somebody else made it meanwhile.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    disk.unlink(&temporary).map_err(not_creatable(&temporary))?;
                    Ok(false)
                }
                Err(source) => Err(not_creatable(&path)(source)),
            }
        };
        let config = "tickpost.toml";
        if disk.stat(&root.join(config)).is_err() && whole(config, sample_config.as_bytes())? {
            made.made.push(config.to_owned());
        }
        let lock = disk
            .stat(&root.join("lock"))
            .map_err(not_creatable(&root.join("lock")))?;
        let spool_file = SpoolFile {
            format: FORMAT,
            spool_id,
            created_at: now,
            // No lock has this inode: it is a copy until it is adopted.
            lock_inode: if holds_items { 0 } else { lock.inode.1 },
        };
        let json = serde_json::to_string(&spool_file).map_err(|source| StoreError::Encode {
            what: "spool.json",
            source,
        })?;
        // Last and at once, so that a directory with spool.json is a whole spool.
        if !is_spool(root) {
            RealDisk::make_private(root).map_err(not_creatable(root))?;
            disk.sync_dir(root).map_err(not_creatable(root))?;
            let bytes = format!("{json}\n").into_bytes();
            if whole("spool.json", &bytes)? {
                made.made.push("spool.json".to_owned());
            }
        }
        disk.sync_dir(root).map_err(not_creatable(root))?;
        let is_new = made.made.last().is_some_and(|last| last == "spool.json");
        if holds_items && is_new {
            return Err(StoreError::Copied {
                root: root.to_owned(),
                why: "there are items in it, and its spool.json was missing".to_owned(),
            });
        }
        if is_new {
            let store = Self::open(root, true)?;
            ClockFile::first(now).write(&store)?;
        }
        Ok(made)
    }

    /// Opens a spool. Nothing is written.
    ///
    /// # Errors
    ///
    /// [`StoreError::Missing`], [`StoreError::Undescribed`], [`StoreError::FormatTooNew`],
    /// [`StoreError::BadSpoolFile`], [`StoreError::Network`].
    pub fn open(root: &Path, allow_network: bool) -> Result<Self, StoreError> {
        Self::open_on(Arc::new(RealDisk), &RealDisk::real(root), allow_network)
    }

    /// Opens a spool on any disk.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn open_on(
        disk: Arc<dyn Disk>,
        root: &Path,
        allow_network: bool,
    ) -> Result<Self, StoreError> {
        look_for(disk.as_ref(), root)?;
        let spool_file = read_spool_file(disk.as_ref(), root)?;
        for name in DIRS {
            // A missing one is made when it is needed.
            check_directory(disk.as_ref(), &root.join(name))?;
        }
        if let (Some(kind), false) = (network_kind(root), allow_network) {
            return Err(StoreError::Network {
                root: root.to_owned(),
                kind,
            });
        }
        Ok(Self {
            root: root.to_owned(),
            disk,
            lock_inode: spool_file.lock_inode,
            created_at: spool_file.created_at,
        })
    }

    /// The spool's directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Checks that the spool is the one that `init` made, not a copy of it: what a copy accepts
    /// nobody would ever send.
    ///
    /// # Errors
    ///
    /// [`StoreError::Copied`], or [`StoreError::Io`] if the lock file cannot be looked at.
    pub fn check_original(&self) -> Result<(), StoreError> {
        let path = self.path("lock");
        let lock = self
            .disk
            .stat(&path)
            .map_err(|source| io_error("look at", &path, source))?;
        self.check_lock(lock.inode.1)
    }

    fn check_lock(&self, inode: u64) -> Result<(), StoreError> {
        let why = if inode == self.lock_inode {
            ClockFile::copied(self)?
        } else {
            Some(format!(
                "its lock is inode {inode}, and spool.json names inode {}",
                self.lock_inode
            ))
        };
        match why {
            None => Ok(()),
            Some(why) => Err(StoreError::Copied {
                root: self.root.clone(),
                why,
            }),
        }
    }

    /// When the spool was made.
    #[must_use]
    pub fn created_at(&self) -> UnixMs {
        self.created_at
    }

    /// Checks that the caller may write: the spool's files must stay its owner's.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotOwner`].
    pub fn check_owner(&self) -> Result<(), StoreError> {
        check_owner(self.disk.as_ref(), &self.root)
    }

    /// What of the spool's own directories and files belongs to another user than the spool, or has a
    /// mode that keeps its owner out: sending or accepting stops there. One look at each, without the
    /// lock.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`] if the spool cannot be looked at.
    pub fn barred(&self) -> Result<Vec<Finding>, StoreError> {
        doctor::barred(self)
    }

    fn path(&self, relative: &str) -> PathBuf {
        layout::join(&self.root, relative)
    }

    /// Makes a directory below the root, and its parents up to the root; each new one durably,
    /// for the only copy of an item may be moved into it.
    fn make_dirs(&self, relative: &str) -> Result<(), StoreError> {
        let mut path = self.root.clone();
        for part in relative.split('/') {
            let parent = path.clone();
            path.push(part);
            if self.disk.stat(&path).is_ok() {
                continue;
            }
            self.disk
                .make_dir(&path)
                .map_err(|source| io_error("make directory", &path, source))?;
            if let Err(source) = self.disk.sync_dir(&parent) {
                // Whoever finds it would take it for durable.
                drop(self.disk.remove_dir(&path));
                return Err(io_error("sync the parent of", &path, source));
            }
        }
        Ok(())
    }

    /// Checks that nothing but directories stands where a destination's items go.
    fn check_destination(&self, destination: &str) -> Result<(), StoreError> {
        State::ALL.iter().try_for_each(|state| {
            let relative = layout::slot_dir(*state, destination, layout::Slot::Root);
            check_directory(self.disk.as_ref(), &self.path(&relative))
        })
    }

    /// Writes a file whole beside its place, syncs it and renames it there.
    fn write_whole(&self, relative: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let target = self.path(relative);
        let name = relative.replace('/', "_");
        let temporary = self.temporary(&name, |path| self.disk.create(path, bytes, None))?;
        let (dir, _) = relative.rsplit_once('/').unwrap_or_default();
        let replaced = self.with_dir(dir, || {
            let replaced = self.disk.replace(&temporary, &target);
            replaced.map_err(|source| io_error("rename", &target, source))
        });
        replaced.inspect_err(|_| {
            // If it stays, it is removed after a day.
            drop(self.disk.unlink(&temporary));
        })
    }

    /// Sets an item file's time: the hint at when its turn comes.
    fn hint_at(&self, relative: &str, turn: UnixMs) -> Result<(), StoreError> {
        let path = self.path(relative);
        self.disk
            .set_mtime(&path, turn)
            .map_err(|source| io_error("set the time of", &path, source))
    }

    /// Makes durable the place where an item was found. Nothing has been written then, so an error
    /// says only that this is not known to last: it is none of a sync that others depend on.
    fn sync_found(&self, relative: &str) -> Result<(), StoreError> {
        self.sync_place(relative).map_err(|error| {
            if let StoreError::Io { path, source, .. } = error {
                return io_error("sync directory again", &path, source);
            }
            error
        })
    }

    /// Makes durable what a directory has just got, and its own name: whoever made it may have died
    /// before its parent was synced. What has not changed for a minute no crash has left so.
    fn sync_place(&self, relative: &str) -> Result<(), StoreError> {
        self.sync_dir(relative)?;
        let changed = |dir: &str| {
            let path = self.path(dir);
            let meta = self.disk.stat(&path);
            // A part of the sync: what was renamed before it is perhaps accepted.
            meta.map(|meta| meta.changed)
                .map_err(|source| io_error("sync directory", &path, source))
        };
        let now = changed(relative)?;
        let mut dir = relative;
        while let Some((parent, _)) = dir.rsplit_once('/') {
            if changed(parent)?.plus(MINUTE_MS) >= now {
                self.sync_dir(parent)?;
            }
            dir = parent;
        }
        Ok(())
    }

    fn sync_dir(&self, relative: &str) -> Result<(), StoreError> {
        let path = self.path(relative);
        self.disk
            .sync_dir(&path)
            .map_err(|source| io_error("sync directory", &path, source))
    }

    /// Calls `each` for every entry. A directory that is not there is empty, and so is what
    /// stands in the place of one: a link is not followed.
    fn list(&self, relative: &str, each: &mut dyn FnMut(&OsStr, Kind)) -> Result<(), StoreError> {
        let path = self.path(relative);
        if let Ok(meta) = self.disk.stat(&path)
            && meta.kind != Kind::Directory
        {
            return Ok(());
        }
        match self.disk.list(&path, each) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(source) => Err(io_error("list", &path, source)),
        }
    }

    /// Reads a small JSON file; one that is missing or damaged counts as absent.
    fn read_json<T: serde::de::DeserializeOwned>(
        &self,
        relative: &str,
    ) -> Result<Option<T>, StoreError> {
        let path = self.path(relative);
        match self.disk.read(&path, 16 * 1024 * 1024) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::InvalidInput
                ) =>
            {
                Ok(None)
            }
            Err(source) => Err(io_error("read", &path, source)),
        }
    }

    /// What is wrong with the body of an item that has it in a file.
    fn body_damage(&self, item: &Item) -> io::Result<Option<String>> {
        let request = &item.envelope.request;
        let Some(bytes) = request.file_bytes() else {
            return Ok(None);
        };
        let path = self.path(&format!("{BODIES}{}", item.envelope.request_id));
        let mut file = match self.disk.open(&path) {
            Ok(file) => file,
            Err(error) if replay::is_absence(&error) => return Ok(Some("is gone".to_owned())),
            Err(error) => return Err(error),
        };
        let mut sum = Sha256::new();
        let mut length = 0;
        let mut piece = vec![0; 64 * 1024];
        loop {
            match file.read(&mut piece) {
                Ok(0) => break,
                Ok(got) => {
                    sum.update(&piece[..got]);
                    length += got as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(if length != bytes {
            Some(format!("has {length} bytes instead of {bytes}"))
        } else if hex(&sum.finalize()) != request.body_sha256 {
            Some("does not match its SHA-256".to_owned())
        } else {
            None
        })
    }

    /// Writes a file in `tmp/` by `make`, under a name that nobody else uses.
    fn temporary(
        &self,
        name: &str,
        mut make: impl FnMut(&Path) -> io::Result<()>,
    ) -> Result<PathBuf, StoreError> {
        self.with_dir("tmp", || make_temporary(&self.root, name, &mut make))
    }

    /// Does a step that needs a directory of the layout, and once more when that is made which was
    /// not there: a missing one costs nobody anything.
    fn with_dir<T>(
        &self,
        dir: &str,
        mut step: impl FnMut() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match step() {
            Err(StoreError::Io { source, .. })
                if source.kind() == io::ErrorKind::NotFound
                    && self.disk.stat(&self.path(dir)).is_err() =>
            {
                self.make_dirs(dir)?;
                step()
            }
            other => other,
        }
    }

    /// Makes an item of our own durable.
    fn place_new(&self, envelope: Envelope, accepted: Event) -> Result<(), StoreError> {
        let id = envelope.request_id;
        let offer = Offer {
            envelope,
            accepted,
            own_id: false,
            body: None,
        };
        let mut answers = Vec::new();
        accept::accept_all(self, vec![offer], &Limits::NONE, false, &mut answers)?;
        match answers.first() {
            Some(Answer::New(_)) => Ok(()),
            Some(_) | None => Err(StoreError::Exists { id }),
        }
    }

    fn discard(&self, body: NewBody) {
        if let NewBodyAt::File(path) = body.at {
            // If it stays, it is removed after a day.
            drop(self.disk.unlink(&path));
        }
    }
}

impl Store for FileStore {
    fn accept_all(
        &self,
        offers: Vec<Offer>,
        limits: &Limits,
        answers: &mut Vec<Answer>,
    ) -> Result<(), StoreError> {
        let last = offers.last().map(|offer| offer.accepted.at);
        let accepted = accept::accept_all(self, offers, limits, true, answers);
        if let (Some(now), true) = (last, answers.iter().any(|a| matches!(a, Answer::New(_)))) {
            // Only wakes a path unit; the items are accepted whether or not this works, and the
            // timer comes anyway.
            drop(self.disk.set_mtime(&self.path("wake"), now));
        }
        accepted
    }

    fn take_body(&self, from: &mut dyn io::Read, bytes_max: u64) -> Result<NewBody, BodyError> {
        let mut sum = Sha256::new();
        let mut taken = Ok(0);
        let path = self.temporary("body", |path| {
            taken = self
                .disk
                .create_from(path, from, bytes_max, &mut |piece| sum.update(piece))?;
            Ok(())
        })?;
        let bytes = taken.map_err(BodyError::Input)?;
        let body = NewBody {
            bytes,
            sha256: hex(&sum.finalize()),
            at: NewBodyAt::File(path),
        };
        if bytes > bytes_max {
            self.discard(body);
            return Err(BodyError::TooLarge);
        }
        Ok(body)
    }

    fn open_new_body<'b>(&self, body: &'b NewBody) -> io::Result<Box<dyn io::Read + Send + 'b>> {
        match &body.at {
            NewBodyAt::Memory(bytes) => Ok(Box::new(bytes.as_slice())),
            NewBodyAt::File(path) => Ok(self.disk.open(path)?),
        }
    }

    fn discard_body(&self, body: NewBody) {
        self.discard(body);
    }

    fn open_body(&self, id: RequestId) -> io::Result<Box<dyn io::Read + Send>> {
        self.disk.open(&self.path(&format!("{BODIES}{id}")))
    }

    fn room(&self, items_max: u64) -> Result<Room, StoreError> {
        let room = self
            .disk
            .room(&self.root)
            .map_err(|source| io_error("look at", &self.root, source))?;
        Ok(Room {
            free_bytes: room.bytes,
            free_files: room.files,
            items: census::count_waiting(self, items_max)?,
        })
    }

    fn scan(
        &self,
        scope: &Scope,
        each: &mut dyn FnMut(&Found) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        reader::scan(self, scope, each)
    }

    fn find(&self, id: RequestId) -> Result<Option<Found>, StoreError> {
        reader::find(self, id)
    }

    fn read(&self, found: &Found) -> Result<Option<Result<Item, Damage>>, StoreError> {
        Ok(reader::read(self, found))
    }

    fn counts(&self) -> Result<Counts, StoreError> {
        reader::counts(self)
    }

    fn memory(&self, destination: &DestName) -> Result<Memory, StoreError> {
        let relative = format!("destinations/{destination}.json");
        match self.read_json(&relative) {
            Ok(memory) => Ok(memory.unwrap_or_default()),
            // Something else stands there.
            Err(StoreError::Io { source, .. })
                if !stuck::is_of_the_disk(&source)
                    && source.kind() != io::ErrorKind::PermissionDenied =>
            {
                Ok(Memory::default())
            }
            Err(error) => Err(error),
        }
    }

    fn destination_hold(&self, name: &str) -> Result<Option<DestinationHold>, StoreError> {
        let relative = format!("destinations/{name}.hold.json");
        match self.disk.stat(&self.path(&relative)) {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                return Ok(None);
            }
            Err(error) => {
                let why = format!("{relative} cannot be looked at: {error}");
                return Ok(Some(DestinationHold::unreadable(Some(why))));
            }
            Ok(_) => {}
        }
        Ok(Some(match self.read_json(&relative) {
            Ok(Some(hold)) => hold,
            Ok(None) => DestinationHold::unreadable(None),
            Err(StoreError::Io { source, .. }) => {
                let why = format!("{relative} cannot be read: {source}");
                DestinationHold::unreadable(Some(why))
            }
            Err(error) => return Err(error),
        }))
    }

    fn set_destination_hold(
        &self,
        destination: &DestName,
        hold: Option<&DestinationHold>,
    ) -> Result<(), StoreError> {
        let relative = format!("destinations/{destination}.hold.json");
        match hold {
            Some(hold) => {
                let json = serde_json::to_vec(hold).map_err(|source| StoreError::Encode {
                    what: "a destination's hold",
                    source,
                })?;
                match self.write_whole(&relative, &json) {
                    Err(error) if reserve::is_for_room(&error) && reserve::give_up(self) => {
                        self.write_whole(&relative, &json)?;
                    }
                    other => other?,
                }
            }
            None => match self.disk.unlink(&self.path(&relative)) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(io_error("remove", &self.path(&relative), source)),
            },
        }
        self.with_dir("destinations", || self.sync_dir("destinations"))
    }

    fn last_tick(&self) -> Result<Option<serde_json::Value>, StoreError> {
        logs::last_tick(self)
    }

    fn tombstones(&self, beginning: &str, most: usize) -> Result<Vec<Tombstone>, StoreError> {
        tombstones::find(self, beginning, most)
    }

    fn prunable(&self, retention: &Retention, now: UnixMs) -> Result<Pruned, StoreError> {
        tombstones::prunable(self, retention, now)
    }

    fn examine(&self, checkup: &Checkup<'_>) -> Result<Vec<Finding>, StoreError> {
        doctor::examine(self, checkup)
    }

    fn lock(&self, owner: &Owner<'_>) -> Result<Box<dyn Session + '_>, StoreError> {
        let (lock, inode) = self.take_lock()?;
        self.check_lock(inode)?;
        Ok(Box::new(self.session(lock, owner, false)?))
    }
}

impl FileStore {
    /// Becomes the one owner of a spool that is a copy, for its adoption: whatever inode its lock
    /// has. A lock file that is missing is made. Nothing may be sent, and only
    /// [`Session::adopt`] makes the spool usable.
    ///
    /// # Errors
    ///
    /// [`StoreError::Locked`] if somebody else is.
    pub fn lock_copy(&self, owner: &Owner<'_>) -> Result<Box<dyn Session + '_>, StoreError> {
        self.check_owner()?;
        let path = self.path("lock");
        match self.disk.create(&path, b"", None) {
            Ok(()) => self.sync_dir("")?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(io_error("write", &path, source)),
        }
        let (lock, _) = self.take_lock()?;
        Ok(Box::new(self.session(lock, owner, true)?))
    }

    fn session(
        &self,
        mut lock: Box<dyn Lock>,
        owner: &Owner<'_>,
        of_copy: bool,
    ) -> Result<session::FileSession<'_>, StoreError> {
        // For people only: on a full disk the lock is owned all the same.
        drop(lock.describe(&format!("{} since {}\n", owner.who, owner.now)));
        let tight = reserve::open(self);
        let session = match session::FileSession::open(self, owner, tight, of_copy) {
            // A quota, or a disk that has filled up since a moment ago: replay is done again.
            Err(error) if reserve::is_for_room(&error) && reserve::give_up(self) => {
                let room = self.disk.room(&self.root).ok();
                session::FileSession::open(self, owner, room, of_copy)?
            }
            other => other?,
        };
        Ok(session.with(lock))
    }

    /// The lock, and its inode.
    fn take_lock(&self) -> Result<(Box<dyn Lock>, u64), StoreError> {
        self.check_owner()?;
        let path = self.path("lock");
        let Some(lock) = self
            .disk
            .lock(&path)
            .map_err(|source| io_error("lock", &path, source))?
        else {
            let text = self
                .disk
                .read(&path, 4096)
                .map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned())
                .unwrap_or_default();
            return Err(StoreError::Locked {
                root: self.root.clone(),
                owner: if text.is_empty() {
                    "another process owns its lock".to_owned()
                } else {
                    text
                },
            });
        };
        // Whoever replaces the file while we wait would lock another inode than we.
        let named = self
            .disk
            .stat(&path)
            .map_err(|source| io_error("look at", &path, source))?;
        let own = lock
            .inode()
            .map_err(|source| io_error("look at", &path, source))?;
        if own != named.inode {
            return Err(StoreError::Locked {
                root: self.root.clone(),
                owner: "its lock file was replaced a moment ago".to_owned(),
            });
        }
        Ok((lock, named.inode.1))
    }
}

/// Makes a new file in `tmp/` under a name that nobody else uses: what a process left that
/// died here is in nobody's way, and what another is writing is not touched.
fn make_temporary(
    root: &Path,
    name: &str,
    mut make: impl FnMut(&Path) -> io::Result<()>,
) -> Result<PathBuf, StoreError> {
    let mut copy = 0_u64;
    loop {
        let path = root.join(format!("tmp/{name}.{}.{copy}", std::process::id()));
        match make(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => copy += 1,
            Err(source) => return Err(io_error("write", &path, source)),
        }
    }
}

/// Makes the names durable that lead to a directory, all that are as new as it: what is kept in it would
/// be lost with any of them. What others do not let us read none of us has made.
fn sync_ancestors(disk: &dyn Disk, root: &Path) -> Result<(), StoreError> {
    let changed = |dir: &Path| {
        let meta = disk.stat(dir);
        meta.map(|meta| meta.changed)
            .map_err(|source| io_error("look at", dir, source))
    };
    let made = changed(root)?;
    for dir in root.ancestors().skip(1) {
        if changed(dir)?.plus(MINUTE_MS) < made {
            continue;
        }
        match disk.sync_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            synced => synced.map_err(|source| io_error("sync directory", dir, source))?,
        }
    }
    Ok(())
}

/// Checks that a directory is a spool, or one that can become one: empty, prepared with a
/// configuration, left by an `init` that died, or a spool that has lost its `spool.json`.
fn check_free(disk: &dyn Disk, root: &Path) -> Result<(), StoreError> {
    let is_there = |name: &str| disk.stat(&root.join(name)).is_ok();
    let outer = root.ancestors().skip(1).find(|dir| is_spool(dir));
    if let (Some(outer), false) = (outer, is_there("spool.json")) {
        return Err(StoreError::Nested {
            root: root.to_owned(),
            outer: outer.to_owned(),
        });
    }
    if is_there("spool.json") || is_there("tickpost.toml") || has_states(disk, root) {
        return Ok(());
    }
    let files = [
        "lock",
        "wake",
        "lost+found",
        "README.md",
        "destinations.d",
        "profiles.d",
    ];
    if !disk
        .stat(root)
        .is_ok_and(|meta| meta.kind == Kind::Directory)
    {
        // What is there shows when a directory is to be made below it.
        return Ok(());
    }
    let mut other = None;
    let mut ours = Vec::new();
    disk.list(root, &mut |name, _| {
        let name = name.to_string_lossy().into_owned();
        if DIRS.contains(&&*name) {
            ours.push(name);
        } else if !files.contains(&&*name) && !name.starts_with('.') {
            other = Some(name);
        }
    })
    .map_err(|source| io_error("list", root, source))?;
    for name in ours {
        // An `init` that died has put nothing into them but an unfinished configuration.
        let listed = disk.list(&root.join(&name), &mut |inside, _| {
            if name == "tmp" && inside.to_string_lossy().starts_with("tickpost.toml.") {
                return;
            }
            other = Some(format!("{name}/{}", inside.display()));
        });
        if listed.is_err() {
            other = Some(name);
        }
    }
    match other {
        Some(what) => Err(StoreError::Occupied {
            root: root.to_owned(),
            what,
        }),
        None => Ok(()),
    }
}

/// Whether there is anything in a directory. One that is not there holds nothing.
fn is_filled(disk: &dyn Disk, dir: &Path) -> Result<bool, StoreError> {
    let mut any = false;
    list_if_there(disk, dir, &mut |_| any = true)?;
    Ok(any)
}

fn list_if_there(
    disk: &dyn Disk,
    dir: &Path,
    each: &mut dyn FnMut(&OsStr),
) -> Result<(), StoreError> {
    match disk.list(dir, &mut |name, _| each(name)) {
        Err(error) if !replay::is_absence(&error) => Err(io_error("list", dir, error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Whether there are items in it, or what speaks of them, or drops.
///
/// # Errors
///
/// [`StoreError::Io`]: a directory cannot be looked into. What is in it is sent once it can be, and a
/// copy would send it too.
fn holds_items(disk: &dyn Disk, root: &Path) -> Result<bool, StoreError> {
    let mut any = holds_drops(disk, root)?;
    for dir in HOLDING {
        any |= is_filled(disk, &root.join(dir))?;
    }
    Ok(any)
}

/// Whether a directory has those of all states, which nothing but a spool has.
fn has_states(disk: &dyn Disk, root: &Path) -> bool {
    let is_dir = |meta: super::disk::Meta| meta.kind == Kind::Directory;
    let mut states = State::ALL.iter();
    states.all(|state| disk.stat(&root.join(state.as_str())).is_ok_and(is_dir))
}

/// Whether a drop box has anything in it. The boxes alone may have been made beforehand.
fn holds_drops(disk: &dyn Disk, root: &Path) -> Result<bool, StoreError> {
    let incoming = root.join("incoming");
    let mut boxes = Vec::new();
    list_if_there(disk, &incoming, &mut |name| boxes.push(incoming.join(name)))?;
    let mut any = false;
    for path in boxes {
        any |= is_filled(disk, &path)?;
    }
    Ok(any)
}

/// Checks that a path is a directory, or nothing yet.
fn check_directory(disk: &dyn Disk, path: &Path) -> Result<(), StoreError> {
    match disk.stat(path) {
        Ok(meta) if meta.kind != Kind::Directory => Err(StoreError::NotDirectory {
            path: path.to_owned(),
        }),
        // What else is wrong with it shows when it is used.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Looks for a spool. One that we may not look into is not missing.
///
/// # Errors
///
/// [`StoreError::Missing`] or [`StoreError::Undescribed`]; [`StoreError::NotOwner`] or [`StoreError::Io`] where the system does
/// not let us look.
fn look_for(disk: &dyn Disk, root: &Path) -> Result<(), StoreError> {
    let path = root.join("spool.json");
    let Err(source) = disk.stat(&path) else {
        return Ok(());
    };
    if [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&source.kind()) {
        let root = root.to_owned();
        // What cannot be looked into is not there to be made anew either.
        let may_hold = || holds_items(disk, &root).unwrap_or(true);
        return Err(if has_states(disk, &root) && may_hold() {
            StoreError::Undescribed { root }
        } else {
            StoreError::Missing { root }
        });
    }
    if source.kind() == io::ErrorKind::PermissionDenied {
        check_owner(disk, root)?;
    }
    Err(io_error("look at", &path, source))
}

/// Looks for a spool on the system's file system, as [`FileStore::open`] does.
///
/// # Errors
///
/// [`StoreError::Missing`], [`StoreError::Undescribed`], [`StoreError::NotOwner`] or
/// [`StoreError::Io`].
pub fn look(root: &Path) -> Result<(), StoreError> {
    look_for(&RealDisk, &RealDisk::real(root))
}

/// Checks that a directory is the caller's, as [`FileStore::check_owner`] does.
///
/// # Errors
///
/// [`StoreError::NotOwner`] or [`StoreError::Io`].
pub fn check_owner_of(root: &Path) -> Result<(), StoreError> {
    check_owner(&RealDisk, &RealDisk::real(root))
}

fn read_spool_file(disk: &dyn Disk, root: &Path) -> Result<SpoolFile, StoreError> {
    let path = root.join("spool.json");
    let bytes = disk
        .read(&path, 64 * 1024)
        .map_err(|source| io_error("read", &path, source))?;
    let bad = |why: String| StoreError::BadSpoolFile {
        path: path.clone(),
        why,
    };
    let value: serde_json::Value =
        serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))?;
    match value.get("format").and_then(serde_json::Value::as_u64) {
        None => return Err(bad("it names no format".to_owned())),
        Some(found) if found > u64::from(FORMAT) => {
            return Err(StoreError::FormatTooNew {
                path,
                found,
                supported: FORMAT,
            });
        }
        Some(_) => {}
    }
    serde_json::from_value(value).map_err(|error| bad(error.to_string()))
}

fn check_owner(disk: &dyn Disk, root: &Path) -> Result<(), StoreError> {
    let meta = disk
        .stat(root)
        .map_err(|source| io_error("look at", root, source))?;
    let you = rustix::process::geteuid().as_raw();
    if meta.uid == you {
        Ok(())
    } else {
        Err(StoreError::NotOwner {
            root: root.to_owned(),
            owner: meta.uid,
            you,
        })
    }
}

/// The kind of a network file system, by the magic numbers of statfs(2).
fn network_kind(root: &Path) -> Option<&'static str> {
    let kinds = [
        (0x6969, "NFS"),
        (0xff53_4d42, "CIFS"),
        (0xfe53_4d42, "SMB"),
        (0x517b, "SMB"),
        (0x0102_1997, "9P"),
        (0x00c3_6400, "Ceph"),
        (0x0bd0_0bd0, "Lustre"),
        (0x5346_414f, "AFS"),
        (0x6b41_4653, "AFS"),
        (0x0116_1970, "GFS2"),
        (0x7461_636f, "OCFS2"),
        (0x4750_4653, "GPFS"),
    ];
    let magic = RealDisk::magic(root).ok()?;
    kinds
        .iter()
        .find(|(known, _)| *known == magic)
        .map(|(_, name)| *name)
}
