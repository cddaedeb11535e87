//! The one seam to the file system of the spool: everything that is written, moved, synced or
//! listed there goes through [`Disk`], so that a test can put a disk that crashes in its place.
//!
//! # Guarantees of the real disk
//!
//! Files are 0600 and directories 0700 whatever the umask. Links, FIFOs and devices are never
//! opened. A move never replaces a file.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;

use crate::model::time::UnixMs;

mod real;

pub use real::RealDisk;

/// What a directory entry is, without following links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A link, FIFO, socket or device.
    Other,
}

/// What `stat` tells of a path, without following links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Meta {
    /// What it is.
    pub kind: Kind,
    /// The modification time; of an item, its due time as a hint.
    pub mtime: UnixMs,
    /// When its contents, name or attributes last changed; nobody can set it.
    pub changed: UnixMs,
    /// The device and inode.
    pub inode: (u64, u64),
    /// When it was made, where the file system keeps that; nobody can set it.
    pub born: Option<UnixMs>,
    /// The owner.
    pub uid: u32,
    /// How many names it has; of a directory on most file systems, 2 and its subdirectories.
    pub nlink: u64,
    /// How long a file is, in bytes.
    pub bytes: u64,
}

/// What still fits onto a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// In bytes, for a user who is not root.
    pub bytes: u64,
    /// In files.
    pub files: u64,
    /// How large the file system is, in bytes.
    pub bytes_total: u64,
}

/// Since when a sync of everything tells of what could not be written.
///
/// Linux tells of a failed write-back once to each description of a file that was open before (see
/// fsync(2)). One that is opened for the sync alone hears nothing of what another program's sync has
/// been told of meanwhile, and takes it for written.
#[derive(Debug, Default)]
pub struct Since(Option<OwnedFd>);

/// An open, growing file: the journal.
pub trait Log {
    /// Appends, without syncing.
    ///
    /// # Errors
    ///
    /// The system's error; nothing or a part may have been appended.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Cuts off what lies behind so many bytes, and with it what is set aside there.
    ///
    /// # Errors
    ///
    /// The system's error.
    fn cut(&mut self, bytes: u64) -> io::Result<()>;

    /// Makes everything appended so far durable.
    ///
    /// # Errors
    ///
    /// The system's error, after which nothing about the file is certain.
    fn sync(&mut self) -> io::Result<()>;

    /// Sets `bytes` beyond the end aside, so that appending them cannot meet a full disk.
    ///
    /// # Errors
    ///
    /// The system's error; above all that the disk is full.
    fn reserve(&mut self, bytes: u64) -> io::Result<()>;
}

/// The lock of a spool, owned until dropped or until the process ends.
pub trait Lock {
    /// The device and inode of the locked file.
    ///
    /// # Errors
    ///
    /// The system's error.
    fn inode(&self) -> io::Result<(u64, u64)>;

    /// Writes who owns the lock into the file, for people.
    ///
    /// # Errors
    ///
    /// The system's error.
    fn describe(&mut self, text: &str) -> io::Result<()>;
}

/// The operations on files that a spool needs. Paths are whole; links are not followed in
/// their last part.
pub trait Disk {
    /// Calls `each` with every entry's name and kind, in the file system's order.
    ///
    /// # Errors
    ///
    /// The system's error.
    fn list(&self, dir: &Path, each: &mut dyn FnMut(&OsStr, Kind)) -> io::Result<()>;

    /// Reads a regular file of at most `bytes_max` bytes.
    ///
    /// # Errors
    ///
    /// The system's error; `InvalidInput` if it is no regular file or larger.
    fn read(&self, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>>;

    /// Reads at most `bytes_max` bytes of a regular file from an offset on; nothing at its end.
    ///
    /// # Errors
    ///
    /// The system's error; `InvalidInput` if it is no regular file.
    fn read_part(&self, path: &Path, from: u64, bytes_max: u64) -> io::Result<Vec<u8>>;

    /// Makes a new file with these contents and this modification time, and syncs it.
    ///
    /// # Errors
    ///
    /// The system's error; what was begun is removed again as far as that is possible.
    fn create(&self, path: &Path, bytes: &[u8], mtime: Option<UnixMs>) -> io::Result<()>;

    /// As [`Disk::create`], and not synced: a sync of everything follows.
    ///
    /// # Errors
    ///
    /// As [`Disk::create`].
    fn write_new(&self, path: &Path, bytes: &[u8], mtime: Option<UnixMs>) -> io::Result<()>;

    /// Makes a new file with all that `from` gives, at most `bytes_max`, and syncs it. Returns
    /// its length; one more than `bytes_max` if there is more. `seen` gets every piece.
    ///
    /// # Errors
    ///
    /// Of `from`: the error in `Ok`. The system's error, with what was begun removed again.
    fn create_from(
        &self,
        path: &Path,
        from: &mut dyn Read,
        bytes_max: u64,
        seen: &mut dyn FnMut(&[u8]),
    ) -> io::Result<Result<u64, io::Error>>;

    /// Opens a regular file for reading it piece by piece.
    ///
    /// # Errors
    ///
    /// The system's error; `InvalidInput` if it is no regular file.
    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>>;

    /// As [`Disk::read`], with what the opened file itself is: somebody else may be changing
    /// its name.
    ///
    /// # Errors
    ///
    /// As [`Disk::read`].
    fn read_with_meta(&self, path: &Path, bytes_max: u64) -> io::Result<(Vec<u8>, Meta)>;

    /// Makes a file's contents durable.
    ///
    /// # Errors
    ///
    /// The system's error.
    fn sync_file(&self, path: &Path) -> io::Result<()>;

    /// How many bytes and how many files still fit onto the file system of `path`. A file system
    /// that does not count files has room for all.
    ///
    /// # Errors
    ///
    /// The system's error.
    fn room(&self, path: &Path) -> io::Result<Room>;

    /// Cuts the file to `keep` bytes if it is longer, and appends. Not synced.
    ///
    /// # Errors
    ///
    /// The system's error.
    fn append(&self, path: &Path, keep: u64, bytes: &[u8]) -> io::Result<()>;

    /// Appends a line to a file that is made if need be. Not synced.
    ///
    /// # Errors
    ///
    /// The system's error.
    fn append_line(&self, path: &Path, line: &[u8]) -> io::Result<()>;

    /// What tells a snapshot of a file system from its original, where files have the same inodes
    /// in both: the subvolume of btrfs.
    ///
    /// # Errors
    ///
    /// The system's error.
    fn volume(&self, _path: &Path) -> io::Result<Option<u64>> {
        Ok(None)
    }

    /// Sets the modification time. Not synced.
    ///
    /// # Errors
    ///
    /// The system's error.
    fn set_mtime(&self, path: &Path, mtime: UnixMs) -> io::Result<()>;

    /// Makes a new file of so many bytes, all of them set aside on the disk. Not synced.
    ///
    /// # Errors
    ///
    /// The system's error; above all that the disk is full. What was begun is removed again as
    /// far as that is possible.
    fn reserve_file(&self, path: &Path, bytes: u64) -> io::Result<()>;

    /// Renames, and never replaces a file. Not synced.
    ///
    /// # Errors
    ///
    /// The system's error; `AlreadyExists` if `to` is taken.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Renames over what may be there. Not synced.
    ///
    /// # Errors
    ///
    /// The system's error.
    fn replace(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file's name. Not synced.
    ///
    /// # Errors
    ///
    /// The system's error.
    fn unlink(&self, path: &Path) -> io::Result<()>;

    /// Makes a directory; one that is there already is fine. Not synced.
    ///
    /// # Errors
    ///
    /// The system's error.
    fn make_dir(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory if it is empty. Not synced.
    ///
    /// # Errors
    ///
    /// The system's error.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    ///
    /// The system's error.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// What a later [`Disk::sync_all`] of the same path has to tell of begins here.
    ///
    /// # Errors
    ///
    /// The system's error.
    fn begin(&self, _path: &Path) -> io::Result<Since> {
        Ok(Since::default())
    }

    /// Makes everything on the file system of `path` durable.
    ///
    /// # Errors
    ///
    /// The system's error, also of what failed to be written since `since`.
    fn sync_all(&self, path: &Path, since: &Since) -> io::Result<()>;

    /// What is at a path.
    ///
    /// # Errors
    ///
    /// The system's error.
    fn stat(&self, path: &Path) -> io::Result<Meta>;

    /// The permission bits of a file or directory, without following links. `None` if the disk
    /// knows none.
    ///
    /// # Errors
    ///
    /// The system's error.
    fn mode(&self, _path: &Path) -> io::Result<Option<u32>> {
        Ok(None)
    }

    /// Sets the permission bits of a file or directory. Not synced.
    ///
    /// # Errors
    ///
    /// The system's error; `InvalidInput` if it is neither.
    fn set_mode(&self, _path: &Path, _mode: u32) -> io::Result<()> {
        Ok(())
    }

    /// Opens a file for appending, making it if need be.
    ///
    /// # Errors
    ///
    /// The system's error.
    fn open_log(&self, path: &Path) -> io::Result<Box<dyn Log>>;

    /// Takes the lock without waiting; `None` if somebody else owns it.
    ///
    /// # Errors
    ///
    /// The system's error.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>>;
}
