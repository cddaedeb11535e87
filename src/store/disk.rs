//! The one seam to the file system of the spool: everything that is written, moved, synced or
//! listed there goes through [`Disk`], so that a test can put a disk that crashes in its place.
//!
//! # Guarantees of the real disk
//!
//! Files are 0600 and directories 0700 whatever the umask. Links, FIFOs and devices are never
//! opened. A move never replaces a file.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, FallocateFlags, OFlags, RenameFlags, Timespec, Timestamps};
use rustix::io::Errno;

use crate::model::time::UnixMs;

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
    /// The owner.
    pub uid: u32,
    /// How many names it has; of a directory on most file systems, 2 and its subdirectories.
    pub nlink: u64,
    /// How long a file is, in bytes.
    pub bytes: u64,
}

/// An open, growing file: the journal.
pub trait Log {
    /// Appends, without syncing.
    ///
    /// # Errors
    ///
    /// The system's error; nothing or a part may have been appended.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

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

    /// Sets the modification time. Not synced.
    ///
    /// # Errors
    ///
    /// The system's error.
    fn set_mtime(&self, path: &Path, mtime: UnixMs) -> io::Result<()>;

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

    /// Makes everything on the file system of `path` durable.
    ///
    /// # Errors
    ///
    /// The system's error.
    fn sync_all(&self, path: &Path) -> io::Result<()>;

    /// What is at a path.
    ///
    /// # Errors
    ///
    /// The system's error.
    fn stat(&self, path: &Path) -> io::Result<Meta>;

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

/// The operating system's file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

struct RealLog(File);

struct RealLock(File);

fn open_flags() -> i32 {
    // Not blocking on a FIFO, not following a link, not inherited.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    i32::try_from(flags.bits()).unwrap_or(0)
}

fn open_regular(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let file = options.custom_flags(open_flags()).open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a regular file",
        ))
    }
}

/// Opens a file for appending, making it if need be.
fn open_growing(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600);
    let file = open_regular(path, &mut options)?;
    if file.metadata()?.permissions().mode() & 0o777 != 0o600 {
        // The umask took something away.
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

impl RealDisk {
    /// Makes a directory its owner's alone. Not synced.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn make_private(path: &Path) -> io::Result<()> {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))
    }

    /// Makes the directories above a spool, with the user's umask: they are not the spool's own.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn make_parents(path: &Path) -> io::Result<()> {
        path.parent().map_or(Ok(()), fs::create_dir_all)
    }
}

impl Disk for RealDisk {
    fn list(&self, dir: &Path, each: &mut dyn FnMut(&OsStr, Kind)) -> io::Result<()> {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            let kind = if kind.is_file() {
                Kind::File
            } else if kind.is_dir() {
                Kind::Directory
            } else {
                Kind::Other
            };
            each(&entry.file_name(), kind);
        }
        Ok(())
    }

    fn read(&self, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
        let file = open_regular(path, OpenOptions::new().read(true))?;
        let length = file.metadata()?.len();
        let too_large = || io::Error::new(io::ErrorKind::InvalidInput, "it is too large");
        if length > bytes_max {
            return Err(too_large());
        }
        let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
        file.take(bytes_max + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > bytes_max {
            return Err(too_large());
        }
        Ok(bytes)
    }

    fn read_part(&self, path: &Path, from: u64, bytes_max: u64) -> io::Result<Vec<u8>> {
        let mut file = open_regular(path, OpenOptions::new().read(true))?;
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.take(bytes_max).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn create(&self, path: &Path, bytes: &[u8], mtime: Option<UnixMs>) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(open_flags())
            .open(path)?;
        let written = (|| {
            file.set_permissions(fs::Permissions::from_mode(0o600))?;
            file.write_all(bytes)?;
            if let Some(mtime) = mtime {
                file.set_modified(UNIX_EPOCH + Duration::from_millis(mtime.0))?;
            }
            file.sync_all()
        })();
        if written.is_err() {
            // After a failed sync the pages count as clean: this file can never be trusted.
            fs::remove_file(path)?;
        }
        written
    }

    fn append(&self, path: &Path, keep: u64, bytes: &[u8]) -> io::Result<()> {
        let mut file = open_regular(path, OpenOptions::new().append(true))?;
        if file.metadata()?.len() > keep {
            file.set_len(keep)?;
        }
        file.write_all(bytes)
    }

    fn append_line(&self, path: &Path, line: &[u8]) -> io::Result<()> {
        open_growing(path)?.write_all(line)
    }

    fn set_mtime(&self, path: &Path, mtime: UnixMs) -> io::Result<()> {
        let at = Timespec {
            tv_sec: i64::try_from(mtime.0 / 1000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(mtime.0 % 1000 * 1_000_000).unwrap_or(0),
        };
        let times = Timestamps {
            last_access: at,
            last_modification: at,
        };
        Ok(rustix::fs::utimensat(
            CWD,
            path,
            &times,
            AtFlags::SYMLINK_NOFOLLOW,
        )?)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(()),
            // A file system without RENAME_NOREPLACE: the lock's owner is the only mover.
            Err(Errno::INVAL | Errno::NOSYS) => match fs::symlink_metadata(to) {
                Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
                Err(_) => fs::rename(from, to),
            },
            Err(error) => Err(error.into()),
        }
    }

    fn replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        match fs::DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => fs::set_permissions(path, fs::Permissions::from_mode(0o700)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if fs::symlink_metadata(path)?.is_dir() {
                    Ok(())
                } else {
                    Err(error)
                }
            }
            Err(error) => Err(error),
        }
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn sync_all(&self, path: &Path) -> io::Result<()> {
        Ok(rustix::fs::syncfs(File::open(path)?)?)
    }

    fn stat(&self, path: &Path) -> io::Result<Meta> {
        let meta = fs::symlink_metadata(path)?;
        let kind = if meta.is_file() {
            Kind::File
        } else if meta.is_dir() {
            Kind::Directory
        } else {
            Kind::Other
        };
        let instant = |seconds: i64, nanoseconds: i64| {
            let ms = seconds.saturating_mul(1000) + nanoseconds / 1_000_000;
            UnixMs(u64::try_from(ms).unwrap_or(0))
        };
        Ok(Meta {
            kind,
            mtime: instant(meta.mtime(), meta.mtime_nsec()),
            changed: instant(meta.ctime(), meta.ctime_nsec()),
            inode: (meta.dev(), meta.ino()),
            uid: meta.uid(),
            nlink: meta.nlink(),
            bytes: meta.len(),
        })
    }

    fn open_log(&self, path: &Path) -> io::Result<Box<dyn Log>> {
        Ok(Box::new(RealLog(open_growing(path)?)))
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        let mut options = OpenOptions::new();
        // The file is never made here: a lock on a file that somebody deleted locks nobody out.
        let file = open_regular(path, options.read(true).write(true))?;
        // Not `use fs2::FileExt`: since Rust 1.89 std has methods of the same names, which win.
        match fs2::FileExt::try_lock_exclusive(&file) {
            Ok(()) => Ok(Some(Box::new(RealLock(file)))),
            Err(error) if error.kind() == fs2::lock_contended_error().kind() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Log for RealLog {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn reserve(&mut self, bytes: u64) -> io::Result<()> {
        let end = self.0.metadata()?.len();
        match rustix::fs::fallocate(&self.0, FallocateFlags::KEEP_SIZE, end, bytes) {
            // A file system without allocation: a full disk shows when appending.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Lock for RealLock {
    fn inode(&self) -> io::Result<(u64, u64)> {
        let meta = self.0.metadata()?;
        Ok((meta.dev(), meta.ino()))
    }

    fn describe(&mut self, text: &str) -> io::Result<()> {
        self.0.set_len(0)?;
        self.0.seek(SeekFrom::Start(0))?;
        self.0.write_all(text.as_bytes())
    }
}
