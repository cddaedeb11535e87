//! The disk of the operating system.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, FallocateFlags, OFlags, RenameFlags, Timespec, Timestamps};
use rustix::io::Errno;

use super::{Disk, Kind, Lock, Log, Meta, Room, Since};
use crate::model::time::UnixMs;

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

/// Makes a new file and fills it; removed again if that fails.
fn make_file<T>(path: &Path, put_in: impl FnOnce(&mut File) -> io::Result<T>) -> io::Result<T> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(open_flags())
        .open(path)?;
    let made = file
        .set_permissions(fs::Permissions::from_mode(0o600))
        .and_then(|()| put_in(&mut file));
    if made.is_err() {
        // After a failed sync the pages count as clean: this file can never be trusted.
        fs::remove_file(path)?;
    }
    made
}

fn fill(file: &mut File, bytes: &[u8], mtime: Option<UnixMs>) -> io::Result<()> {
    file.write_all(bytes)?;
    mtime.map_or(Ok(()), |mtime| {
        file.set_modified(UNIX_EPOCH + Duration::from_millis(mtime.0))
    })
}

/// What statfs(2) calls btrfs.
const BTRFS: u32 = 0x9123_683e;

fn meta_of(meta: &fs::Metadata) -> Meta {
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
    Meta {
        kind,
        mtime: instant(meta.mtime(), meta.mtime_nsec()),
        changed: instant(meta.ctime(), meta.ctime_nsec()),
        inode: (meta.dev(), meta.ino()),
        born: meta.created().ok().map(|at| {
            let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
            UnixMs(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
        }),
        uid: meta.uid(),
        nlink: meta.nlink(),
        bytes: meta.len(),
    }
}

impl RealDisk {
    /// The kind of the file system that a path is on, as statfs(2) names it.
    pub(crate) fn magic(path: &Path) -> io::Result<u32> {
        let stat = rustix::fs::statfs(path)?;
        #[expect(
            clippy::cast_sign_loss,
            clippy::cast_possible_truncation,
            reason = "the magic numbers are 32 bits wide, whatever the type of the field"
        )]
        let magic = stat.f_type as u64 as u32;
        Ok(magic)
    }

    /// A path without links in it: what is checked is then what is used. Of one that is not there
    /// yet this holds for the part that is.
    #[must_use]
    pub fn real(path: &Path) -> PathBuf {
        let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let there = |dir: &Path| {
            let rest = whole.strip_prefix(dir).ok()?;
            let dir = fs::canonicalize(dir).ok()?;
            Some(if rest.as_os_str().is_empty() {
                dir
            } else {
                dir.join(rest)
            })
        };
        let real = whole.ancestors().find_map(there);
        real.unwrap_or_else(|| path.to_owned())
    }

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
        self.read_with_meta(path, bytes_max).map(|(bytes, _)| bytes)
    }

    fn read_with_meta(&self, path: &Path, bytes_max: u64) -> io::Result<(Vec<u8>, Meta)> {
        let file = open_regular(path, OpenOptions::new().read(true))?;
        let meta = file.metadata()?;
        let too_large = || io::Error::new(io::ErrorKind::InvalidInput, "it is too large");
        if meta.len() > bytes_max {
            return Err(too_large());
        }
        let mut bytes = Vec::with_capacity(usize::try_from(meta.len()).unwrap_or(0));
        file.take(bytes_max + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > bytes_max {
            return Err(too_large());
        }
        Ok((bytes, meta_of(&meta)))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>> {
        let file = open_regular(path, OpenOptions::new().read(true))?;
        Ok(Box::new(file))
    }

    fn read_part(&self, path: &Path, from: u64, bytes_max: u64) -> io::Result<Vec<u8>> {
        let mut file = open_regular(path, OpenOptions::new().read(true))?;
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.take(bytes_max).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn create(&self, path: &Path, bytes: &[u8], mtime: Option<UnixMs>) -> io::Result<()> {
        make_file(path, |file| {
            fill(file, bytes, mtime)?;
            file.sync_all()
        })
    }

    fn write_new(&self, path: &Path, bytes: &[u8], mtime: Option<UnixMs>) -> io::Result<()> {
        make_file(path, |file| fill(file, bytes, mtime))
    }

    fn create_from(
        &self,
        path: &Path,
        from: &mut dyn Read,
        bytes_max: u64,
        seen: &mut dyn FnMut(&[u8]),
    ) -> io::Result<Result<u64, io::Error>> {
        let made = make_file(path, |file| {
            let mut from = from.take(bytes_max.saturating_add(1));
            let mut piece = vec![0; 64 * 1024];
            let mut length = 0;
            loop {
                let got = match from.read(&mut piece) {
                    Ok(0) => break,
                    Ok(got) => got,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => return Ok(Err(error)),
                };
                length += got as u64;
                seen(&piece[..got]);
                file.write_all(&piece[..got])?;
            }
            file.sync_all()?;
            Ok(Ok(length))
        })?;
        if made.is_err() {
            fs::remove_file(path)?;
        }
        Ok(made)
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        open_regular(path, OpenOptions::new().read(true))?.sync_all()
    }

    fn room(&self, path: &Path) -> io::Result<Room> {
        let stat = rustix::fs::statvfs(path)?;
        Ok(Room {
            bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
            bytes_total: stat.f_blocks.saturating_mul(stat.f_frsize),
            files: if stat.f_files == 0 {
                u64::MAX
            } else {
                stat.f_favail
            },
        })
    }

    fn volume(&self, path: &Path) -> io::Result<Option<u64>> {
        if Self::magic(path)? != BTRFS {
            return Ok(None);
        }
        // Of all the file systems only btrfs mixes the subvolume into it (statfs(2), f_fsid).
        Ok(Some(rustix::fs::statvfs(path)?.f_fsid))
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

    fn reserve_file(&self, path: &Path, bytes: u64) -> io::Result<()> {
        make_file(path, |file| {
            match rustix::fs::fallocate(&*file, FallocateFlags::empty(), 0, bytes) {
                Ok(()) => Ok(()),
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                    io::copy(&mut io::repeat(0).take(bytes), file).map(drop)
                }
                Err(error) => Err(error.into()),
            }
        })
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

    fn begin(&self, path: &Path) -> io::Result<Since> {
        Ok(Since(Some(File::open(path)?.into())))
    }

    fn sync_all(&self, path: &Path, since: &Since) -> io::Result<()> {
        match &since.0 {
            Some(open) => rustix::fs::syncfs(open)?,
            None => rustix::fs::syncfs(File::open(path)?)?,
        }
        Ok(())
    }

    fn stat(&self, path: &Path) -> io::Result<Meta> {
        Ok(meta_of(&fs::symlink_metadata(path)?))
    }

    fn mode(&self, path: &Path) -> io::Result<Option<u32>> {
        let meta = fs::symlink_metadata(path)?;
        let has_bits = meta.is_file() || meta.is_dir();
        Ok(has_bits.then(|| meta.permissions().mode() & 0o7777))
    }

    fn set_mode(&self, path: &Path, mode: u32) -> io::Result<()> {
        if self.mode(path)?.is_none() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
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

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
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
