//! The real disk without its syncs, and one that asks before it does anything.

use std::ffi::OsStr;
use std::io;
use std::path::Path;

use tickpost::model::time::UnixMs;
use tickpost::store::disk::{Disk, Kind, Lock, Log, Meta, RealDisk, Room, Since};

/// The real disk without its syncs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QuickDisk;

struct QuickLog(Box<dyn Log>);

impl Log for QuickLog {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.append(bytes)
    }
    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.0.cut(bytes)
    }
    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
    fn reserve(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }
}

impl Disk for QuickDisk {
    fn list(&self, dir: &Path, each: &mut dyn FnMut(&OsStr, Kind)) -> io::Result<()> {
        RealDisk.list(dir, each)
    }
    fn read(&self, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
        RealDisk.read(path, bytes_max)
    }
    fn read_part(&self, path: &Path, from: u64, bytes_max: u64) -> io::Result<Vec<u8>> {
        RealDisk.read_part(path, from, bytes_max)
    }
    fn create(&self, path: &Path, bytes: &[u8], mtime: Option<UnixMs>) -> io::Result<()> {
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).open(path)?;
        io::Write::write_all(&mut file, bytes)?;
        mtime.map_or(Ok(()), |mtime| RealDisk.set_mtime(path, mtime))
    }
    fn write_new(&self, path: &Path, bytes: &[u8], mtime: Option<UnixMs>) -> io::Result<()> {
        RealDisk.write_new(path, bytes, mtime)
    }
    fn create_from(
        &self,
        path: &Path,
        from: &mut dyn io::Read,
        bytes_max: u64,
        seen: &mut dyn FnMut(&[u8]),
    ) -> io::Result<Result<u64, io::Error>> {
        RealDisk.create_from(path, from, bytes_max, seen)
    }
    fn open(&self, path: &Path) -> io::Result<Box<dyn io::Read + Send>> {
        RealDisk.open(path)
    }
    fn read_with_meta(&self, path: &Path, bytes_max: u64) -> io::Result<(Vec<u8>, Meta)> {
        RealDisk.read_with_meta(path, bytes_max)
    }
    fn sync_file(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
    fn room(&self, path: &Path) -> io::Result<Room> {
        RealDisk.room(path)
    }
    fn append(&self, path: &Path, keep: u64, bytes: &[u8]) -> io::Result<()> {
        RealDisk.append(path, keep, bytes)
    }
    fn append_line(&self, path: &Path, line: &[u8]) -> io::Result<()> {
        RealDisk.append_line(path, line)
    }
    fn set_mtime(&self, path: &Path, mtime: UnixMs) -> io::Result<()> {
        RealDisk.set_mtime(path, mtime)
    }
    /// Without the room: that takes its time, thousands of spools of it.
    fn reserve_file(&self, path: &Path, _: u64) -> io::Result<()> {
        RealDisk.reserve_file(path, 1)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }
    fn replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.replace(from, to)
    }
    fn unlink(&self, path: &Path) -> io::Result<()> {
        RealDisk.unlink(path)
    }
    fn make_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.make_dir(path)
    }
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_dir(path)
    }
    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
    fn sync_all(&self, _: &Path, _: &Since) -> io::Result<()> {
        Ok(())
    }
    fn stat(&self, path: &Path) -> io::Result<Meta> {
        RealDisk.stat(path)
    }
    fn open_log(&self, path: &Path) -> io::Result<Box<dyn Log>> {
        Ok(Box::new(QuickLog(RealDisk.open_log(path)?)))
    }
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        RealDisk.lock(path)
    }
}

/// Decides over what a [`Gated`] disk does.
pub(crate) trait Gate: Clone {
    /// Called with the operation and the path that it is for, that of the target where there are
    /// two. An error is what the disk says, and nothing is done.
    fn write(&self, op: &str, path: &Path) -> io::Result<()>;

    /// Called with the operation and the path of whatever only looks.
    fn read(&self, _: &str, _: &Path) -> io::Result<()> {
        Ok(())
    }

    /// Called with both paths of a move, after [`Gate::write`].
    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        Ok(())
    }

    /// What the disk says of a file that was read.
    fn meta(&self, meta: Meta) -> Meta {
        meta
    }

    /// An append that fails has appended half.
    fn tears(&self) -> bool {
        false
    }
}

/// A [`QuickDisk`] on which a [`Gate`] decides over every write.
#[derive(Clone)]
pub(crate) struct Gated<G>(pub(crate) G);

struct GatedLog<G> {
    log: Box<dyn Log>,
    gate: G,
}

impl<G: Gate> Log for GatedLog<G> {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let refused = self.gate.write("log append", Path::new(""));
        match refused {
            Ok(()) => self.log.append(bytes),
            Err(error) if self.gate.tears() => {
                self.log.append(&bytes[..bytes.len() / 2])?;
                Err(error)
            }
            Err(error) => Err(error),
        }
    }
    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.log.cut(bytes)
    }
    fn sync(&mut self) -> io::Result<()> {
        self.gate.write("log sync", Path::new(""))
    }
    fn reserve(&mut self, _: u64) -> io::Result<()> {
        self.gate.write("log reserve", Path::new(""))
    }
}

impl<G: Gate + 'static> Disk for Gated<G> {
    fn list(&self, dir: &Path, each: &mut dyn FnMut(&OsStr, Kind)) -> io::Result<()> {
        self.0.read("list", dir)?;
        QuickDisk.list(dir, each)
    }
    fn read(&self, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
        self.0.read("read", path)?;
        QuickDisk.read(path, bytes_max)
    }
    fn read_part(&self, path: &Path, from: u64, bytes_max: u64) -> io::Result<Vec<u8>> {
        self.0.read("read_part", path)?;
        QuickDisk.read_part(path, from, bytes_max)
    }
    fn read_with_meta(&self, path: &Path, bytes_max: u64) -> io::Result<(Vec<u8>, Meta)> {
        self.0.read("read_with_meta", path)?;
        let (bytes, meta) = QuickDisk.read_with_meta(path, bytes_max)?;
        Ok((bytes, self.0.meta(meta)))
    }
    fn open(&self, path: &Path) -> io::Result<Box<dyn io::Read + Send>> {
        self.0.read("open", path)?;
        QuickDisk.open(path)
    }
    fn create(&self, path: &Path, bytes: &[u8], mtime: Option<UnixMs>) -> io::Result<()> {
        self.0.write("create", path)?;
        QuickDisk.create(path, bytes, mtime)
    }
    fn write_new(&self, path: &Path, bytes: &[u8], mtime: Option<UnixMs>) -> io::Result<()> {
        self.0.write("write_new", path)?;
        QuickDisk.write_new(path, bytes, mtime)
    }
    fn create_from(
        &self,
        path: &Path,
        from: &mut dyn io::Read,
        bytes_max: u64,
        seen: &mut dyn FnMut(&[u8]),
    ) -> io::Result<Result<u64, io::Error>> {
        self.0.write("create_from", path)?;
        QuickDisk.create_from(path, from, bytes_max, seen)
    }
    fn append(&self, path: &Path, keep: u64, bytes: &[u8]) -> io::Result<()> {
        match self.0.write("append", path) {
            Ok(()) => QuickDisk.append(path, keep, bytes),
            Err(error) if self.0.tears() => {
                QuickDisk.append(path, keep, &bytes[..bytes.len() / 2])?;
                Err(error)
            }
            Err(error) => Err(error),
        }
    }
    fn append_line(&self, path: &Path, line: &[u8]) -> io::Result<()> {
        self.0.write("append_line", path)?;
        QuickDisk.append_line(path, line)
    }
    fn set_mtime(&self, path: &Path, mtime: UnixMs) -> io::Result<()> {
        self.0.write("set_mtime", path)?;
        QuickDisk.set_mtime(path, mtime)
    }
    fn reserve_file(&self, path: &Path, bytes: u64) -> io::Result<()> {
        self.0.write("reserve_file", path)?;
        QuickDisk.reserve_file(path, bytes)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.write("rename", to)?;
        self.0.rename(from, to)?;
        QuickDisk.rename(from, to)
    }
    fn replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.write("replace", to)?;
        QuickDisk.replace(from, to)
    }
    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.0.write("unlink", path)?;
        QuickDisk.unlink(path)
    }
    fn make_dir(&self, path: &Path) -> io::Result<()> {
        self.0.write("make_dir", path)?;
        QuickDisk.make_dir(path)
    }
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.0.write("remove_dir", path)?;
        QuickDisk.remove_dir(path)
    }
    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.0.write("sync_file", path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.0.write("sync_dir", path)
    }
    fn begin(&self, path: &Path) -> io::Result<Since> {
        self.0.read("begin", path)?;
        QuickDisk.begin(path)
    }
    fn sync_all(&self, path: &Path, _: &Since) -> io::Result<()> {
        self.0.write("sync_all", path)
    }
    fn room(&self, path: &Path) -> io::Result<Room> {
        self.0.read("room", path)?;
        QuickDisk.room(path)
    }
    fn stat(&self, path: &Path) -> io::Result<Meta> {
        self.0.read("stat", path)?;
        QuickDisk.stat(path)
    }
    fn open_log(&self, path: &Path) -> io::Result<Box<dyn Log>> {
        self.0.write("open_log", path)?;
        Ok(Box::new(GatedLog {
            log: QuickDisk.open_log(path)?,
            gate: self.0.clone(),
        }))
    }
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        self.0.read("lock", path)?;
        QuickDisk.lock(path)
    }
}
