//! A disk in memory that crashes: what processes see, and what a loss of power would leave.
//!
//! # The model
//!
//! Two images. The cache is what every process sees at once. The durable one grows by syncs only;
//! what is between the two is a list of operations that a loss of power may undo.
//!
//! [`Profile::Strict`] orders nothing but by a sync of the right object. File data that is not
//! synced is lost, kept, torn at 512 bytes, or comes back as zeros under the new length. Names are
//! lost one by one, in any order, unless their directory was synced; a rename between directories
//! may be undone, done, or have left both names until the directory that it left is synced, and
//! never neither. A directory that is new is lost with all that was put into it unless its parent
//! was synced. `fdatasync` keeps no times.
//!
//! [`Profile::Ext4`] has one journal: names survive as a prefix, in order, and a sync of a file or
//! a directory keeps every change of names up to the last one that concerns it. File data is as in
//! the strict profile, torn at 4096 bytes.
//!
//! In both, what a failed sync has let go is counted as clean: no later sync writes it.
//!
//! Who owns the lock of a file loses it when its [`Lock`] is dropped: a test that kills a process
//! unwinds it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::{self, Cursor, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::io::Errno;
use tickpost::model::time::UnixMs;
use tickpost::store::disk::{Disk, Kind, Lock, Log, Meta, Room, Since};

/// Where [`CrashDisk::lay_out`] makes a spool.
pub(crate) const ROOT: &str = "/spool";

/// A path of that spool.
pub(crate) fn path(relative: &str) -> PathBuf {
    Path::new(ROOT).join(relative)
}

/// A small generator of numbers: the same seed, the same numbers, on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed ^ 0x5851_f42d_4c95_7f2d)
    }

    /// The next 64 bits (splitmix64).
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// An index into something of this length.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap()
    }

    /// True so many times in a hundred.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.index(from.len())]
    }
}

/// How a loss of power treats what was not synced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Profile {
    Strict,
    Ext4,
}

/// Looks on, decides over faults, and tells the time.
pub(crate) trait Watch {
    /// Called before every operation with its name and path. An error is what the disk says; what
    /// was to be written is then written in part.
    fn before(&self, op: &'static str, path: &Path) -> io::Result<()>;

    /// Somebody asked for a lock that another process owns.
    fn contended(&self, _path: &Path) {}

    /// The kernel's clock, for the times of files.
    fn now(&self) -> UnixMs {
        UnixMs(1_795_966_830_000)
    }

    /// A sync has taken its time.
    fn synced(&self) {}
}

/// Lets everything pass.
#[derive(Debug, Default)]
pub(crate) struct NoWatch;

impl Watch for NoWatch {
    fn before(&self, _: &'static str, _: &Path) -> io::Result<()> {
        Ok(())
    }
}

type Ino = usize;
type Name = Box<[u8]>;

/// The only device there is.
const DEVICE: u64 = 1;

/// How long a file of the reserve is at most, in bytes.
const RESERVED_BYTES_MAX: u64 = 4096;

/// Whether a sync of a directory that is new keeps its own name too, as ext4, XFS and btrfs do. The
/// strictest reading of POSIX promises nothing; a producer that dies between making a directory and
/// syncing its parent leaves one whose name nobody syncs.
const KEEPS_OWN_NAME: bool = false;

/// Whether a failed sync of the journal or of everything lets go of what it was to write, as kernels
/// do. Then replay must not take the events that it finds in their files for durable before it has
/// written them again.
const LETS_GO_ALL: bool = true;

/// Inode 0 is the top.
const TOP: Ino = 0;

/// A write that is in the cache only.
#[derive(Clone, Debug)]
enum Change {
    /// These bytes, there.
    Put {
        at: usize,
        bytes: Vec<u8>,
        gone: bool,
    },
    /// Cut to this length.
    Cut { length: usize, gone: bool },
}

#[derive(Debug, Default)]
struct File {
    data: Vec<u8>,
    durable: Vec<u8>,
    changes: Vec<Change>,
    /// Room that is set aside beyond the end.
    reserved: usize,
    /// Names.
    nlink: u64,
}

#[derive(Debug, Default)]
struct Dir {
    names: BTreeMap<Name, Ino>,
    durable: BTreeMap<Name, Ino>,
    subdirs: u64,
}

#[derive(Debug)]
enum What {
    File(File),
    Dir(Dir),
}

#[derive(Debug)]
struct Node {
    what: What,
    mtime: UnixMs,
    mtime_durable: UnixMs,
    changed: UnixMs,
}

/// One name that an operation changes.
#[derive(Clone, Debug)]
struct Slot {
    dir: Ino,
    name: Name,
    to: Option<Ino>,
}

/// A change of names that a loss of power may undo.
#[derive(Debug)]
struct Op {
    /// What is set, or removed.
    target: Option<Slot>,
    /// What a rename leaves.
    source: Option<Slot>,
    /// The directory that is removed.
    removed: Option<Ino>,
}

impl Op {
    fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.target.iter().chain(&self.source)
    }
}

struct Inside {
    nodes: Vec<Node>,
    ops: Vec<Op>,
    profile: Profile,
    rng: Rng,
    locked: BTreeSet<Ino>,
    epoch: u64,
    /// How much fits, if that is bounded.
    bytes_max: u64,
    files_max: u64,
    bytes_used: u64,
    files_used: u64,
}

/// See the module.
#[derive(Clone)]
pub(crate) struct CrashDisk {
    inside: Rc<RefCell<Inside>>,
    watch: Rc<dyn Watch>,
    uid: u32,
}

fn fail(errno: Errno) -> io::Error {
    io::Error::from_raw_os_error(errno.raw_os_error())
}

fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")
}

fn too_large() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it is too large")
}

impl CrashDisk {
    /// An empty disk with nothing but its top directory.
    pub(crate) fn new(profile: Profile, seed: u64, watch: Rc<dyn Watch>) -> Self {
        let now = watch.now();
        let top = Node {
            what: What::Dir(Dir::default()),
            mtime: now,
            mtime_durable: now,
            changed: now,
        };
        let inside = Inside {
            nodes: vec![top],
            ops: Vec::new(),
            profile,
            rng: Rng::new(seed),
            locked: BTreeSet::new(),
            epoch: 0,
            bytes_max: u64::MAX,
            files_max: u64::MAX,
            bytes_used: 0,
            files_used: 0,
        };
        Self {
            inside: Rc::new(RefCell::new(inside)),
            watch,
            uid: rustix::process::geteuid().as_raw(),
        }
    }

    /// Makes an empty spool at [`ROOT`], with these directories more.
    pub(crate) fn lay_out(&self, created_at: UnixMs, more: &[&str]) {
        let dirs = "incoming pending unknown held confirmed failed corrupt bodies keys tmp journal \
            destinations log order";
        self.make_dir(Path::new(ROOT)).unwrap();
        for name in dirs.split_whitespace().chain(more.iter().copied()) {
            self.make_dir(&path(name)).unwrap();
        }
        for name in ["lock", "wake"] {
            self.create(&path(name), b"", None).unwrap();
        }
        let text = serde_json::json!({
            "format": 1, "spool_id": uuid::Uuid::nil(), "created_at": created_at,
            "lock_inode": self.stat(&path("lock")).unwrap().inode.1,
        });
        self.create(&path("spool.json"), text.to_string().as_bytes(), None)
            .unwrap();
        self.sync_all(Path::new(ROOT), &Since::default()).unwrap();
    }

    /// From now on so much more fits; nothing bounds it with [`u64::MAX`].
    pub(crate) fn bound(&self, bytes: u64, files: u64) {
        let mut inside = self.inside.borrow_mut();
        inside.bytes_max = inside.bytes_used.saturating_add(bytes);
        inside.files_max = inside.files_used.saturating_add(files);
    }

    /// Loses power: what was not synced is lost, kept or mixed, as the seed has it. Every process
    /// is gone with it.
    pub(crate) fn lose_power(&self) {
        self.inside.borrow_mut().lose_power();
    }

    /// What a person does with `ln`: a second name of a file.
    pub(crate) fn link(&self, from: &Path, to: &Path) {
        let now = self.watch.now();
        let mut inside = self.inside.borrow_mut();
        let ino = inside.look_up(from).unwrap();
        let (dir, name) = inside.parent(to).unwrap();
        let name = name.into();
        let target = Slot {
            dir,
            name,
            to: Some(ino),
        };
        inside.set(&target, now);
        inside.ops.push(Op {
            target: Some(target),
            source: None,
            removed: None,
        });
    }

    /// The kernel writes by itself what has waited for long.
    pub(crate) fn write_back(&self) {
        self.inside.borrow_mut().sync_everything();
    }

    /// Calls `each` for every file below a directory, with its path, inode and contents. No
    /// operation of a process: nothing is watched.
    pub(crate) fn walk(&self, dir: &Path, each: &mut dyn FnMut(&str, u64, &[u8])) {
        let inside = self.inside.borrow();
        let Ok(ino) = inside.look_up(dir) else {
            return;
        };
        let mut path = String::new();
        inside.walk(ino, &mut path, each);
    }

    fn before(&self, op: &'static str, path: &Path) -> io::Result<()> {
        if std::thread::panicking() {
            // A process that was killed does nothing more.
            return Err(fail(Errno::IO));
        }
        self.watch.before(op, path)
    }

    fn sync_inode(&self, op: &'static str, path: &Path, ino: Option<Ino>) -> io::Result<()> {
        let allowed = self.before(op, path);
        let mut inside = self.inside.borrow_mut();
        let ino = match ino {
            Some(ino) => ino,
            None => inside.look_up(path)?,
        };
        if let Err(error) = allowed {
            // One that may not be opened is not synced at all.
            let began = error.kind() != io::ErrorKind::PermissionDenied;
            if began && (LETS_GO_ALL || op == "sync_file") {
                inside.let_go(ino);
            }
            return Err(error);
        }
        inside.sync(ino, op == "log sync");
        drop(inside);
        self.watch.synced();
        Ok(())
    }

    /// Makes a new file with these contents; with `sync`, synced.
    fn make(&self, path: &Path, bytes: &[u8], mtime: Option<UnixMs>, sync: bool) -> io::Result<()> {
        let op = if sync { "create" } else { "write_new" };
        let allowed = self.before(op, path);
        let now = self.watch.now();
        let mut inside = self.inside.borrow_mut();
        if let Err(error) = allowed {
            // A real disk removes the file again if it can; at times it cannot.
            if inside.rng.percent(25)
                && let Ok(ino) = inside.make_file(path, now)
            {
                let part = inside.rng.index(bytes.len() + 1);
                drop(inside.put(ino, &bytes[..part], now));
            }
            return Err(error);
        }
        let ino = inside.make_file(path, now)?;
        if let Err(error) = inside.put(ino, bytes, now) {
            drop(inside.unlink(path, now));
            return Err(error);
        }
        if let Some(mtime) = mtime {
            inside.nodes[ino].mtime = mtime;
        }
        if sync {
            inside.sync(ino, false);
        }
        drop(inside);
        if sync {
            self.watch.synced();
        }
        Ok(())
    }

    fn read_whole(&self, path: &Path, bytes_max: u64) -> io::Result<(Vec<u8>, Meta)> {
        let inside = self.inside.borrow();
        let ino = inside.look_up(path)?;
        let file = inside.file(ino).ok_or_else(not_regular)?;
        if file.data.len() as u64 > bytes_max {
            return Err(too_large());
        }
        Ok((file.data.clone(), inside.meta(ino, self.uid)))
    }
}

impl Inside {
    fn file(&self, ino: Ino) -> Option<&File> {
        match &self.nodes[ino].what {
            What::File(file) => Some(file),
            What::Dir(_) => None,
        }
    }

    fn file_mut(&mut self, ino: Ino) -> Option<&mut File> {
        match &mut self.nodes[ino].what {
            What::File(file) => Some(file),
            What::Dir(_) => None,
        }
    }

    fn dir(&self, ino: Ino) -> io::Result<&Dir> {
        match &self.nodes[ino].what {
            What::Dir(dir) => Ok(dir),
            What::File(_) => Err(fail(Errno::NOTDIR)),
        }
    }

    fn dir_mut(&mut self, ino: Ino) -> &mut Dir {
        match &mut self.nodes[ino].what {
            What::Dir(dir) => dir,
            What::File(_) => unreachable!("looked up as a directory"),
        }
    }

    fn is_dir(&self, ino: Ino) -> bool {
        matches!(self.nodes[ino].what, What::Dir(_))
    }

    fn look_up(&self, path: &Path) -> io::Result<Ino> {
        let mut at = TOP;
        for part in path.as_os_str().as_bytes().split(|b| *b == b'/') {
            if !part.is_empty() {
                let dir = self.dir(at)?;
                at = *dir.names.get(part).ok_or_else(|| fail(Errno::NOENT))?;
            }
        }
        Ok(at)
    }

    /// The directory that a path's last part is in, and that part.
    fn parent<'p>(&self, path: &'p Path) -> io::Result<(Ino, &'p [u8])> {
        let whole = path.as_os_str().as_bytes();
        let cut = whole.iter().rposition(|b| *b == b'/').unwrap_or(0);
        let dir = self.look_up(Path::new(OsStr::from_bytes(&whole[..cut])))?;
        self.dir(dir)?;
        Ok((dir, &whole[cut + 1..]))
    }

    fn meta(&self, ino: Ino, uid: u32) -> Meta {
        let node = &self.nodes[ino];
        let (kind, nlink, bytes) = match &node.what {
            What::File(file) => (Kind::File, file.nlink, file.data.len() as u64),
            // btrfs counts one link of every directory, ext4 also those of the directories in it.
            What::Dir(dir) => match self.profile {
                Profile::Strict => (Kind::Directory, 1, 4096),
                Profile::Ext4 => (Kind::Directory, 2 + dir.subdirs, 4096),
            },
        };
        Meta {
            kind,
            mtime: node.mtime,
            changed: node.changed,
            inode: (DEVICE, ino as u64 + 1),
            born: None,
            uid,
            nlink,
            bytes,
        }
    }

    fn walk(&self, ino: Ino, path: &mut String, each: &mut dyn FnMut(&str, u64, &[u8])) {
        match &self.nodes[ino].what {
            What::File(file) => each(path, ino as u64 + 1, &file.data),
            What::Dir(dir) => {
                for (name, ino) in &dir.names {
                    let length = path.len();
                    if length > 0 {
                        path.push('/');
                    }
                    path.push_str(&String::from_utf8_lossy(name));
                    self.walk(*ino, path, each);
                    path.truncate(length);
                }
            }
        }
    }

    /// Sets a name in the cache, and counts.
    fn set(&mut self, slot: &Slot, now: UnixMs) {
        let before = match slot.to {
            Some(ino) => self.dir_mut(slot.dir).names.insert(slot.name.clone(), ino),
            None => self.dir_mut(slot.dir).names.remove(&slot.name),
        };
        self.nodes[slot.dir].changed = now;
        self.nodes[slot.dir].mtime = now;
        for (ino, more) in [(before, false), (slot.to, true)] {
            let Some(ino) = ino else { continue };
            self.nodes[ino].changed = now;
            let step = |count: &mut u64| *count = if more { *count + 1 } else { *count - 1 };
            if self.is_dir(ino) {
                step(&mut self.dir_mut(slot.dir).subdirs);
                continue;
            }
            let Some(file) = self.file_mut(ino) else {
                continue;
            };
            step(&mut file.nlink);
            if file.nlink == 0 && !more {
                let bytes = (file.data.len() + file.reserved) as u64;
                self.bytes_used = self.bytes_used.saturating_sub(bytes);
                self.files_used = self.files_used.saturating_sub(1);
            }
        }
    }

    fn make_node(&mut self, path: &Path, what: What, now: UnixMs) -> io::Result<Ino> {
        let (dir, name) = self.parent(path)?;
        if self.dir(dir)?.names.contains_key(name) {
            return Err(fail(Errno::EXIST));
        }
        if self.files_used >= self.files_max || self.bytes_used >= self.bytes_max {
            return Err(fail(Errno::NOSPC));
        }
        let ino = self.nodes.len();
        self.nodes.push(Node {
            what,
            mtime: now,
            mtime_durable: now,
            changed: now,
        });
        self.files_used += 1;
        let target = Slot {
            dir,
            name: name.into(),
            to: Some(ino),
        };
        self.set(&target, now);
        self.ops.push(Op {
            target: Some(target),
            source: None,
            removed: None,
        });
        Ok(ino)
    }

    fn make_file(&mut self, path: &Path, now: UnixMs) -> io::Result<Ino> {
        self.make_node(path, What::File(File::default()), now)
    }

    /// Appends; on a full disk as much as fits.
    fn put(&mut self, ino: Ino, bytes: &[u8], now: UnixMs) -> io::Result<()> {
        let free = self.bytes_max.saturating_sub(self.bytes_used);
        let Some(file) = self.file_mut(ino) else {
            return Err(fail(Errno::ISDIR));
        };
        let reserved = file.reserved;
        let fits = usize::try_from(free)
            .unwrap_or(usize::MAX)
            .saturating_add(reserved);
        let part = &bytes[..bytes.len().min(fits)];
        let at = file.data.len();
        file.data.extend_from_slice(part);
        file.reserved = reserved.saturating_sub(part.len());
        if !part.is_empty() {
            file.changes.push(Change::Put {
                at,
                bytes: part.to_vec(),
                gone: false,
            });
        }
        self.bytes_used += part.len().saturating_sub(reserved) as u64;
        let node = &mut self.nodes[ino];
        node.mtime = now;
        node.changed = now;
        if part.len() < bytes.len() {
            return Err(fail(Errno::NOSPC));
        }
        Ok(())
    }

    fn cut(&mut self, ino: Ino, length: usize) {
        let Some(file) = self.file_mut(ino) else {
            return;
        };
        if file.data.len() > length {
            let less = file.data.len() - length;
            file.data.truncate(length);
            file.changes.push(Change::Cut {
                length,
                gone: false,
            });
            self.bytes_used = self.bytes_used.saturating_sub(less as u64);
        }
    }

    fn unlink(&mut self, path: &Path, now: UnixMs) -> io::Result<()> {
        let (dir, name) = self.parent(path)?;
        let ino = *self
            .dir(dir)?
            .names
            .get(name)
            .ok_or_else(|| fail(Errno::NOENT))?;
        if self.is_dir(ino) {
            return Err(fail(Errno::ISDIR));
        }
        self.remove_name(dir, name, None, now);
        Ok(())
    }

    fn remove_name(&mut self, dir: Ino, name: &[u8], removed: Option<Ino>, now: UnixMs) {
        let target = Slot {
            dir,
            name: name.into(),
            to: None,
        };
        self.set(&target, now);
        self.ops.push(Op {
            target: Some(target),
            source: None,
            removed,
        });
    }

    fn rename(&mut self, from: &Path, to: &Path, replace: bool, now: UnixMs) -> io::Result<()> {
        let (from_dir, from_name) = self.parent(from)?;
        let (to_dir, to_name) = self.parent(to)?;
        let ino = *self
            .dir(from_dir)?
            .names
            .get(from_name)
            .ok_or_else(|| fail(Errno::NOENT))?;
        let there = self.dir(to_dir)?.names.get(to_name).copied();
        if there.is_some() && !replace {
            return Err(fail(Errno::EXIST));
        }
        if there == Some(ino) {
            return Ok(());
        }
        if to.starts_with(from) {
            return Err(fail(Errno::INVAL));
        }
        if let Some(there) = there {
            if from.starts_with(to) {
                return Err(fail(Errno::NOTEMPTY));
            }
            match (self.is_dir(ino), self.is_dir(there)) {
                (true, false) => return Err(fail(Errno::NOTDIR)),
                (false, true) => return Err(fail(Errno::ISDIR)),
                (true, true) if !self.dir(there)?.names.is_empty() => {
                    return Err(fail(Errno::NOTEMPTY));
                }
                (true, true) | (false, false) => {}
            }
        }
        let source = Slot {
            dir: from_dir,
            name: from_name.into(),
            to: None,
        };
        let target = Slot {
            dir: to_dir,
            name: to_name.into(),
            to: Some(ino),
        };
        self.set(&target, now);
        self.set(&source, now);
        self.ops.push(Op {
            target: Some(target),
            source: Some(source),
            removed: None,
        });
        Ok(())
    }

    fn apply(&mut self, slot: &Slot) {
        let names = &mut self.dir_mut(slot.dir).durable;
        match slot.to {
            Some(ino) => drop(names.insert(slot.name.clone(), ino)),
            None => drop(names.remove(&slot.name)),
        }
    }

    /// What a successful sync of one inode makes durable.
    fn sync(&mut self, ino: Ino, only_data: bool) {
        if let Some(file) = self.file_mut(ino) {
            file.write_back();
        }
        if !only_data {
            self.nodes[ino].mtime_durable = self.nodes[ino].mtime;
        }
        match self.profile {
            Profile::Ext4 => {
                let last = self.ops.iter().rposition(|op| {
                    op.slots()
                        .any(|slot| slot.dir == ino || slot.to == Some(ino))
                });
                if let Some(last) = last {
                    let ops: Vec<Op> = self.ops.drain(..=last).collect();
                    for slot in ops.iter().flat_map(Op::slots) {
                        self.apply(slot);
                    }
                }
            }
            Profile::Strict if self.is_dir(ino) => self.sync_names(ino),
            Profile::Strict => {}
        }
    }

    fn sync_names(&mut self, dir: Ino) {
        if KEEPS_OWN_NAME {
            let made = |op: &Op| {
                op.target
                    .as_ref()
                    .filter(|slot| slot.to == Some(dir))
                    .cloned()
            };
            if let Some(slot) = self.ops.iter().find_map(made) {
                self.sync_names(slot.dir);
            }
        }
        if !self
            .ops
            .iter()
            .any(|op| op.slots().any(|slot| slot.dir == dir))
        {
            return;
        }
        let mut left: Vec<Op> = Vec::with_capacity(self.ops.len());
        let mut removed = Vec::new();
        for mut op in std::mem::take(&mut self.ops) {
            let by_source = op.source.as_ref().is_some_and(|slot| slot.dir == dir);
            if by_source || op.target.as_ref().is_some_and(|slot| slot.dir == dir) {
                if let Some(slot) = op.target.take() {
                    if slot.dir != dir {
                        // What came before under that name does not come back.
                        for earlier in &mut left {
                            earlier.forget(&slot);
                        }
                    }
                    self.apply(&slot);
                    removed.extend(op.removed.take());
                }
                if by_source && let Some(slot) = op.source.take() {
                    self.apply(&slot);
                }
            }
            if op.target.is_some() || op.source.is_some() {
                left.push(op);
            }
        }
        self.ops = left;
        for dir in removed {
            // It was empty: what was in it is durably elsewhere.
            self.sync_names(dir);
        }
    }

    fn sync_everything(&mut self) {
        for op in std::mem::take(&mut self.ops) {
            for slot in op.slots() {
                self.apply(slot);
            }
        }
        for node in &mut self.nodes {
            node.mtime_durable = node.mtime;
            if let What::File(file) = &mut node.what {
                file.write_back();
            }
        }
    }

    /// A sync has failed: what it was to write counts as clean, and some of it as lost.
    fn let_go(&mut self, ino: Ino) {
        let lost = self.rng.percent(75);
        if let Some(file) = self.file_mut(ino)
            && lost
        {
            for change in &mut file.changes {
                match change {
                    Change::Put { gone, .. } | Change::Cut { gone, .. } => *gone = true,
                }
            }
        }
    }

    fn lose_power(&mut self) {
        self.epoch += 1;
        self.locked.clear();
        let keep_percent = *self.rng.pick(&[0, 0, 20, 50, 50, 80, 100]);
        let ops = std::mem::take(&mut self.ops);
        match self.profile {
            Profile::Ext4 => {
                let kept = match keep_percent {
                    0 => 0,
                    100 => ops.len(),
                    _ => self.rng.index(ops.len() + 1),
                };
                for slot in ops[..kept].iter().flat_map(Op::slots) {
                    self.apply(slot);
                }
            }
            Profile::Strict => self.lose_names(&ops, keep_percent),
        }
        let data_percent = *self.rng.pick(&[0, 0, 50, 50, 100]);
        self.start_again(data_percent);
    }

    /// Every operation is undone, done, or, of a rename between directories, half done.
    fn lose_names(&mut self, ops: &[Op], keep_percent: u64) {
        let mut lost = BTreeSet::new();
        for op in ops {
            let kept = self.rng.percent(keep_percent);
            let both = self.rng.percent(40);
            let into_nothing = op
                .target
                .as_ref()
                .is_some_and(|slot| lost.contains(&slot.dir));
            let still_full = op
                .removed
                .is_some_and(|dir| self.dir(dir).is_ok_and(|dir| !dir.durable.is_empty()));
            if !kept || into_nothing || still_full {
                let new = op.target.as_ref().and_then(|slot| slot.to);
                lost.extend(new.filter(|ino| op.source.is_none() && self.is_dir(*ino)));
                continue;
            }
            if let Some(slot) = &op.target {
                self.apply(slot);
            }
            if let Some(source) = &op.source {
                let within = op
                    .target
                    .as_ref()
                    .is_some_and(|slot| slot.dir == source.dir);
                if within || !both {
                    self.apply(source);
                }
            }
        }
    }

    /// The cache is what is durable now; counts and times follow.
    fn start_again(&mut self, data_percent: u64) {
        let tear = match self.profile {
            Profile::Strict => 512,
            Profile::Ext4 => 4096,
        };
        let mut seen = BTreeSet::from([TOP]);
        let mut dirs = vec![TOP];
        let (mut bytes_used, mut files_used) = (0, 0);
        for node in &mut self.nodes {
            if let What::File(file) = &mut node.what {
                file.nlink = 0;
            }
        }
        while let Some(ino) = dirs.pop() {
            let names = self.dir_mut(ino).durable.clone();
            let mut subdirs = 0;
            for child in names.values() {
                if self.is_dir(*child) {
                    subdirs += 1;
                    if seen.insert(*child) {
                        files_used += 1;
                        dirs.push(*child);
                    }
                    continue;
                }
                let is_new = seen.insert(*child);
                let old_mtime = self.rng.percent(50);
                let mut rng = Rng::new(self.rng.next());
                if let Some(file) = self.file_mut(*child) {
                    file.nlink += 1;
                    if is_new {
                        file.lose_power(data_percent, tear, &mut rng);
                        bytes_used += file.data.len() as u64;
                        files_used += 1;
                    }
                }
                let node = &mut self.nodes[*child];
                if is_new && old_mtime {
                    node.mtime = node.mtime_durable;
                }
                node.mtime_durable = node.mtime;
            }
            let dir = self.dir_mut(ino);
            dir.names = names;
            dir.subdirs = subdirs;
        }
        self.bytes_used = bytes_used;
        self.files_used = files_used;
    }
}

impl Op {
    /// Another operation on this name is durable, and this one came before.
    fn forget(&mut self, slot: &Slot) {
        for own in [&mut self.target, &mut self.source] {
            if own
                .as_ref()
                .is_some_and(|own| own.dir == slot.dir && own.name == slot.name)
            {
                *own = None;
            }
        }
    }
}

impl File {
    /// A sync: all that is not gone is durable.
    fn write_back(&mut self) {
        if self.changes.is_empty() {
            return;
        }
        let changes = std::mem::take(&mut self.changes);
        for change in changes {
            match &change {
                Change::Put { gone: true, .. } | Change::Cut { gone: true, .. } => {
                    self.changes.push(change);
                }
                Change::Put { at, bytes, .. } => write_at(&mut self.durable, *at, bytes),
                Change::Cut { length, .. } => self.durable.truncate(*length),
            }
        }
    }

    /// What of the contents a loss of power leaves.
    fn lose_power(&mut self, data_percent: u64, tear: usize, rng: &mut Rng) {
        let zeros = rng.percent(30);
        let all = rng.percent(data_percent) && rng.percent(50);
        for change in std::mem::take(&mut self.changes) {
            let kept = all || rng.percent(data_percent);
            match change {
                Change::Cut { length, gone } => {
                    if kept && !gone {
                        self.durable.truncate(length);
                    }
                }
                Change::Put {
                    gone: true,
                    at,
                    bytes,
                } => {
                    // Its length may be there all the same.
                    if rng.percent(30) {
                        let end = at + bytes.len();
                        if self.durable.len() < end {
                            self.durable.resize(end, 0);
                        }
                    }
                }
                Change::Put { at, bytes, .. } => {
                    let end = at + bytes.len();
                    if all {
                        write_at(&mut self.durable, at, &bytes);
                        continue;
                    }
                    // The length is kept, or stops at a tear.
                    let tears = rng.percent(50);
                    let length = match (kept, tears) {
                        (true, false) => end,
                        (true, true) => end.min(at - at % tear + tear * (1 + rng.index(3))),
                        (false, _) => continue,
                    };
                    if self.durable.len() < length {
                        self.durable.resize(length, 0);
                    }
                    let mut from = at;
                    while from < length {
                        let to = (from - from % tear + tear).min(length);
                        if !zeros && rng.percent(70) {
                            self.durable[from..to].copy_from_slice(&bytes[from - at..to - at]);
                        }
                        from = to;
                    }
                }
            }
        }
        self.data.clone_from(&self.durable);
        self.reserved = 0;
    }
}

fn write_at(data: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    let end = at + bytes.len();
    if data.len() < end {
        data.resize(end, 0);
    }
    data[at..end].copy_from_slice(bytes);
}

struct CrashLog {
    disk: CrashDisk,
    ino: Ino,
    epoch: u64,
    path: Box<Path>,
}

struct CrashLock {
    disk: CrashDisk,
    ino: Ino,
    epoch: u64,
}

impl Drop for CrashLock {
    fn drop(&mut self) {
        let mut inside = self.disk.inside.borrow_mut();
        if inside.epoch == self.epoch {
            inside.locked.remove(&self.ino);
        }
    }
}

impl Lock for CrashLock {
    fn inode(&self) -> io::Result<(u64, u64)> {
        Ok((DEVICE, self.ino as u64 + 1))
    }

    fn describe(&mut self, text: &str) -> io::Result<()> {
        self.disk.before("describe", Path::new("lock"))?;
        let now = self.disk.watch.now();
        let mut inside = self.disk.inside.borrow_mut();
        inside.cut(self.ino, 0);
        inside.put(self.ino, text.as_bytes(), now)
    }
}

impl Log for CrashLog {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let allowed = self.disk.before("log append", &self.path);
        let now = self.disk.watch.now();
        let mut inside = self.disk.inside.borrow_mut();
        if inside.epoch != self.epoch {
            return Err(fail(Errno::IO));
        }
        if let Err(error) = allowed {
            let part = inside.rng.index(bytes.len() + 1);
            drop(inside.put(self.ino, &bytes[..part], now));
            return Err(error);
        }
        inside.put(self.ino, bytes, now)
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.disk.before("log cut", &self.path)?;
        let mut inside = self.disk.inside.borrow_mut();
        if inside.epoch != self.epoch {
            return Err(fail(Errno::IO));
        }
        inside.cut(self.ino, usize::try_from(bytes).unwrap_or(usize::MAX));
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.disk.sync_inode("log sync", &self.path, Some(self.ino))
    }

    fn reserve(&mut self, bytes: u64) -> io::Result<()> {
        self.disk.before("log reserve", &self.path)?;
        let mut inside = self.disk.inside.borrow_mut();
        let free = inside.bytes_max.saturating_sub(inside.bytes_used);
        let Some(file) = inside.file_mut(self.ino) else {
            return Err(fail(Errno::BADF));
        };
        let wanted = usize::try_from(bytes).unwrap();
        let more = wanted.saturating_sub(file.reserved);
        if more as u64 > free {
            return Err(fail(Errno::NOSPC));
        }
        file.reserved += more;
        inside.bytes_used += more as u64;
        Ok(())
    }
}

impl Disk for CrashDisk {
    fn list(&self, dir: &Path, each: &mut dyn FnMut(&OsStr, Kind)) -> io::Result<()> {
        self.before("list", dir)?;
        let entries: Vec<(Name, Kind)> = {
            let inside = self.inside.borrow();
            let names = &inside.dir(inside.look_up(dir)?)?.names;
            let kind = |ino: &Ino| {
                if inside.is_dir(*ino) {
                    Kind::Directory
                } else {
                    Kind::File
                }
            };
            names
                .iter()
                .map(|(name, ino)| (name.clone(), kind(ino)))
                .collect()
        };
        for (name, kind) in entries {
            each(OsStr::from_bytes(&name), kind);
        }
        Ok(())
    }

    fn read(&self, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
        self.before("read", path)?;
        self.read_whole(path, bytes_max).map(|(bytes, _)| bytes)
    }

    fn read_part(&self, path: &Path, from: u64, bytes_max: u64) -> io::Result<Vec<u8>> {
        self.before("read", path)?;
        let inside = self.inside.borrow();
        let ino = inside.look_up(path)?;
        let data = &inside.file(ino).ok_or_else(not_regular)?.data;
        let from = usize::try_from(from).unwrap().min(data.len());
        let length = usize::try_from(bytes_max).unwrap().min(data.len() - from);
        Ok(data[from..from + length].to_vec())
    }

    fn create(&self, path: &Path, bytes: &[u8], mtime: Option<UnixMs>) -> io::Result<()> {
        self.make(path, bytes, mtime, true)
    }

    fn write_new(&self, path: &Path, bytes: &[u8], mtime: Option<UnixMs>) -> io::Result<()> {
        self.make(path, bytes, mtime, false)
    }

    /// The file is shorter than asked for; all that matters is that it takes some room.
    fn reserve_file(&self, path: &Path, bytes: u64) -> io::Result<()> {
        let length = usize::try_from(bytes.min(RESERVED_BYTES_MAX)).unwrap();
        self.make(path, &vec![0; length], None, false)
    }

    fn create_from(
        &self,
        path: &Path,
        from: &mut dyn Read,
        bytes_max: u64,
        seen: &mut dyn FnMut(&[u8]),
    ) -> io::Result<Result<u64, io::Error>> {
        let mut bytes = Vec::new();
        let taken = from
            .take(bytes_max.saturating_add(1))
            .read_to_end(&mut bytes);
        self.make(path, &bytes, None, true)?;
        if let Err(error) = taken {
            self.unlink(path)?;
            return Ok(Err(error));
        }
        seen(&bytes);
        Ok(Ok(bytes.len() as u64))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>> {
        self.before("open", path)?;
        let (bytes, _) = self.read_whole(path, u64::MAX)?;
        Ok(Box::new(Cursor::new(bytes)))
    }

    fn read_with_meta(&self, path: &Path, bytes_max: u64) -> io::Result<(Vec<u8>, Meta)> {
        self.before("read", path)?;
        self.read_whole(path, bytes_max)
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        if self.stat_quietly(path)?.kind != Kind::File {
            return Err(not_regular());
        }
        self.sync_inode("sync_file", path, None)
    }

    fn room(&self, path: &Path) -> io::Result<Room> {
        self.before("room", path)?;
        let inside = self.inside.borrow();
        inside.look_up(path)?;
        Ok(Room {
            bytes: inside.bytes_max.saturating_sub(inside.bytes_used),
            files: inside.files_max.saturating_sub(inside.files_used),
            // The disk is small, so that the reserve is small too.
            bytes_total: 1 << 20,
        })
    }

    fn append(&self, path: &Path, keep: u64, bytes: &[u8]) -> io::Result<()> {
        let allowed = self.before("append", path);
        let now = self.watch.now();
        let mut inside = self.inside.borrow_mut();
        let ino = inside.look_up(path)?;
        if inside.is_dir(ino) {
            return Err(fail(Errno::ISDIR));
        }
        let mut bytes = bytes;
        if allowed.is_err() {
            let part = inside.rng.index(bytes.len() + 1);
            bytes = &bytes[..part];
        }
        inside.cut(ino, usize::try_from(keep).unwrap());
        inside.put(ino, bytes, now)?;
        allowed
    }

    fn append_line(&self, path: &Path, line: &[u8]) -> io::Result<()> {
        self.before("append_line", path)?;
        let now = self.watch.now();
        let mut inside = self.inside.borrow_mut();
        let ino = match inside.look_up(path) {
            Ok(ino) => ino,
            Err(error) if error.kind() == io::ErrorKind::NotFound => inside.make_file(path, now)?,
            Err(error) => return Err(error),
        };
        inside.put(ino, line, now)
    }

    fn set_mtime(&self, path: &Path, mtime: UnixMs) -> io::Result<()> {
        self.before("set_mtime", path)?;
        let now = self.watch.now();
        let mut inside = self.inside.borrow_mut();
        let ino = inside.look_up(path)?;
        inside.nodes[ino].mtime = mtime;
        inside.nodes[ino].changed = now;
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.before("rename", to)?;
        let now = self.watch.now();
        self.inside.borrow_mut().rename(from, to, false, now)
    }

    fn replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.before("replace", to)?;
        let now = self.watch.now();
        self.inside.borrow_mut().rename(from, to, true, now)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.before("unlink", path)?;
        let now = self.watch.now();
        self.inside.borrow_mut().unlink(path, now)
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        self.before("make_dir", path)?;
        let now = self.watch.now();
        let mut inside = self.inside.borrow_mut();
        match inside.make_node(path, What::Dir(Dir::default()), now) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let ino = inside.look_up(path)?;
                if inside.is_dir(ino) {
                    Ok(())
                } else {
                    Err(error)
                }
            }
            Err(error) => Err(error),
        }
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.before("remove_dir", path)?;
        let now = self.watch.now();
        let mut inside = self.inside.borrow_mut();
        let (dir, name) = inside.parent(path)?;
        let ino = inside.look_up(path)?;
        if !inside.dir(ino)?.names.is_empty() {
            return Err(fail(Errno::NOTEMPTY));
        }
        inside.files_used = inside.files_used.saturating_sub(1);
        inside.remove_name(dir, name, Some(ino), now);
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.sync_inode("sync_dir", path, None)
    }

    fn sync_all(&self, path: &Path, _: &Since) -> io::Result<()> {
        let allowed = self.before("sync_all", path);
        let mut inside = self.inside.borrow_mut();
        inside.look_up(path)?;
        if let Err(error) = allowed {
            if LETS_GO_ALL && error.kind() != io::ErrorKind::PermissionDenied {
                for ino in 0..inside.nodes.len() {
                    inside.let_go(ino);
                }
            }
            return Err(error);
        }
        inside.sync_everything();
        drop(inside);
        self.watch.synced();
        Ok(())
    }

    fn stat(&self, path: &Path) -> io::Result<Meta> {
        self.before("stat", path)?;
        self.stat_quietly(path)
    }

    fn open_log(&self, path: &Path) -> io::Result<Box<dyn Log>> {
        self.before("open_log", path)?;
        let now = self.watch.now();
        let mut inside = self.inside.borrow_mut();
        let ino = match inside.look_up(path) {
            Ok(ino) if inside.is_dir(ino) => return Err(fail(Errno::ISDIR)),
            Ok(ino) => ino,
            Err(error) if error.kind() == io::ErrorKind::NotFound => inside.make_file(path, now)?,
            Err(error) => return Err(error),
        };
        let epoch = inside.epoch;
        drop(inside);
        Ok(Box::new(CrashLog {
            disk: self.clone(),
            ino,
            epoch,
            path: path.into(),
        }))
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        self.before("lock", path)?;
        let mut inside = self.inside.borrow_mut();
        let ino = inside.look_up(path)?;
        if inside.is_dir(ino) {
            return Err(fail(Errno::ISDIR));
        }
        if !inside.locked.insert(ino) {
            drop(inside);
            self.watch.contended(path);
            return Ok(None);
        }
        let epoch = inside.epoch;
        drop(inside);
        Ok(Some(Box::new(CrashLock {
            disk: self.clone(),
            ino,
            epoch,
        })))
    }
}

impl CrashDisk {
    fn stat_quietly(&self, path: &Path) -> io::Result<Meta> {
        let inside = self.inside.borrow();
        let ino = inside.look_up(path)?;
        Ok(inside.meta(ino, self.uid))
    }
}
