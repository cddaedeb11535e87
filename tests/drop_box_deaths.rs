//! Drop boxes: whatever dies when, a dropped file becomes one item.
//!
//! A program of its own: it starts no processes, which would inherit the locks of spools for a
//! moment.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "common/mod.rs"]
mod common;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{NOW, QuickDisk, accepted, dest, envelope, owner};
use serde_json::json;
use tickpost::model::draft::Draft;
use tickpost::model::envelope::{Body, sha256_hex};
use tickpost::model::ids::RequestId;
use tickpost::model::time::UnixMs;
use tickpost::store::disk::{Disk, Kind, Lock, Log, Meta, Room};
use tickpost::store::file::FileStore;
use tickpost::store::{Dropped, Intake, NewBody, Offer, Store, StoreError, TakenIn};

/// A disk on which nothing is written any more after so many writes: what a process that died
/// there leaves.
#[derive(Clone)]
struct MortalDisk {
    left: Arc<AtomicUsize>,
}

impl MortalDisk {
    fn write(&self) -> io::Result<()> {
        match self.left.load(Ordering::SeqCst).checked_sub(1) {
            Some(left) => {
                self.left.store(left, Ordering::SeqCst);
                Ok(())
            }
            None => Err(io::Error::other("dead")),
        }
    }
}

struct MortalLog(Box<dyn Log>, MortalDisk);

impl Log for MortalLog {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.1.write()?;
        self.0.append(bytes)
    }
    fn sync(&mut self) -> io::Result<()> {
        self.1.write()
    }
    fn reserve(&mut self, _: u64) -> io::Result<()> {
        self.1.write()
    }
}

impl Disk for MortalDisk {
    fn list(&self, dir: &Path, each: &mut dyn FnMut(&OsStr, Kind)) -> io::Result<()> {
        QuickDisk.list(dir, each)
    }
    fn read(&self, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
        QuickDisk.read(path, bytes_max)
    }
    fn create(&self, path: &Path, bytes: &[u8], mtime: Option<UnixMs>) -> io::Result<()> {
        self.write()?;
        QuickDisk.create(path, bytes, mtime)
    }
    fn write_new(&self, path: &Path, bytes: &[u8], mtime: Option<UnixMs>) -> io::Result<()> {
        self.write()?;
        QuickDisk.write_new(path, bytes, mtime)
    }
    fn create_from(
        &self,
        path: &Path,
        from: &mut dyn io::Read,
        bytes_max: u64,
        seen: &mut dyn FnMut(&[u8]),
    ) -> io::Result<Result<u64, io::Error>> {
        self.write()?;
        QuickDisk.create_from(path, from, bytes_max, seen)
    }
    fn open(&self, path: &Path) -> io::Result<Box<dyn io::Read + Send>> {
        QuickDisk.open(path)
    }
    fn read_with_meta(&self, path: &Path, bytes_max: u64) -> io::Result<(Vec<u8>, Meta)> {
        QuickDisk.read_with_meta(path, bytes_max)
    }
    fn read_part(&self, path: &Path, from: u64, bytes_max: u64) -> io::Result<Vec<u8>> {
        QuickDisk.read_part(path, from, bytes_max)
    }
    fn sync_file(&self, _: &Path) -> io::Result<()> {
        self.write()
    }
    fn room(&self, path: &Path) -> io::Result<Room> {
        QuickDisk.room(path)
    }
    fn append(&self, path: &Path, keep: u64, bytes: &[u8]) -> io::Result<()> {
        self.write()?;
        QuickDisk.append(path, keep, bytes)
    }
    fn append_line(&self, path: &Path, line: &[u8]) -> io::Result<()> {
        self.write()?;
        QuickDisk.append_line(path, line)
    }
    fn set_mtime(&self, path: &Path, mtime: UnixMs) -> io::Result<()> {
        self.write()?;
        QuickDisk.set_mtime(path, mtime)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.write()?;
        QuickDisk.rename(from, to)
    }
    fn replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.write()?;
        QuickDisk.replace(from, to)
    }
    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.write()?;
        QuickDisk.unlink(path)
    }
    fn make_dir(&self, path: &Path) -> io::Result<()> {
        self.write()?;
        QuickDisk.make_dir(path)
    }
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.write()?;
        QuickDisk.remove_dir(path)
    }
    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        self.write()
    }
    fn sync_all(&self, _: &Path) -> io::Result<()> {
        self.write()
    }
    fn stat(&self, path: &Path) -> io::Result<Meta> {
        QuickDisk.stat(path)
    }
    fn open_log(&self, path: &Path) -> io::Result<Box<dyn Log>> {
        self.write()?;
        Ok(Box::new(MortalLog(QuickDisk.open_log(path)?, self.clone())))
    }
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        QuickDisk.lock(path)
    }
}

/// Decides as a tick does, with ids that are counted: every one is another.
fn decide(dropped: &Dropped<'_>, next: &Cell<u64>) -> Intake {
    let draft = match Draft::parse(dropped.bytes) {
        Ok(draft) => draft,
        Err(error) => return Intake::Refuse(error.to_string()),
    };
    let id = dropped.id.or(draft.request_id).unwrap_or_else(|| {
        next.set(next.get() + 1);
        common::id(next.get())
    });
    let large = draft.body.len() > 1000;
    let mut envelope = envelope(1);
    envelope.request_id = id;
    envelope.key = draft.key;
    envelope.request.path = draft.path;
    envelope.request.body_sha256 = sha256_hex(&draft.body);
    envelope.request.body = (!large).then(|| Body::from_bytes(draft.body.clone()));
    Intake::Accept(Box::new(Offer {
        envelope,
        accepted: accepted(),
        own_id: draft.request_id.is_some(),
        body: large.then(|| NewBody::new(draft.body)),
    }))
}

fn take_in(store: &FileStore, next: &Cell<u64>) -> Result<TakenIn, StoreError> {
    let mut session = store.lock(&owner(NOW))?;
    let taken = session.take_in(&dest("a"), 1 << 20, 100, &mut |dropped| {
        decide(dropped, next)
    })?;
    session.close(NOW, None)?;
    Ok(taken)
}

/// Died after any write, and again after any write of the next try: each file becomes one item.
#[test]
fn a_death_between_any_two_steps_never_mints_twice() {
    let own: RequestId = "3f0c8a52-3b0f-4b6e-9d5e-0c1f3a2b4c5d".parse().unwrap();
    let files = [
        ("plain.json", json!({"request": {"path": "/plain"}})),
        (
            "keyed.json",
            json!({"key": "k", "request": {"path": "/keyed"}}),
        ),
        (
            "own.json",
            json!({"request_id": own, "request": {"path": "/own"}}),
        ),
        (
            "both.json",
            json!({"key": "b", "request_id": common::id(900), "request": {"path": "/both"}}),
        ),
        (
            "large.json",
            json!({"request": {"path": "/large", "body": {"text": "x".repeat(2000)}}}),
        ),
        ("bad.json", json!({"request": 5})),
    ];
    let (mut deaths, mut steps) = (0, 0);
    for first in 0.. {
        let mut lived_on = false;
        for second in [usize::MAX, 2, 5, 9, 14] {
            let dir = tempfile::tempdir_in("/dev/shm")
                .or_else(|_| tempfile::tempdir())
                .unwrap();
            let root = dir.path().join("spool");
            FileStore::init(&root, "", common::id(1).0, NOW).unwrap();
            fs::create_dir(root.join("incoming/a")).unwrap();
            for (name, text) in &files {
                fs::write(root.join("incoming/a").join(name), text.to_string()).unwrap();
            }
            let next = Cell::new(0);
            for writes in [first, second, usize::MAX] {
                let disk = MortalDisk {
                    left: Arc::new(AtomicUsize::new(writes)),
                };
                let store = FileStore::open_on(Arc::new(disk), &root, true).unwrap();
                let taken = take_in(&store, &next);
                if writes == usize::MAX {
                    taken.as_ref().unwrap();
                }
                let died = taken.is_err();
                lived_on |= !died && writes == first;
                deaths += usize::from(died);
            }
            let why = format!("died after {first} writes, then after {second}");
            let mut paths = BTreeMap::new();
            for entry in fs::read_dir(root.join("pending/a")).unwrap() {
                let bytes = fs::read(entry.unwrap().path()).unwrap();
                let item = tickpost::model::item::Item::parse(&bytes).unwrap().item;
                let path = item.envelope.request.path.clone();
                *paths.entry(path).or_insert(0) += 1;
                if let Some(Body::File { id, bytes }) = item.envelope.request.body {
                    let body = fs::read(root.join(format!("bodies/{id}"))).unwrap();
                    assert_eq!(body.len() as u64, bytes, "{why}");
                }
            }
            let want = ["/plain", "/keyed", "/own", "/both", "/large"];
            let want: BTreeMap<String, i32> = want.map(|path| (path.to_owned(), 1)).into();
            assert_eq!(paths, want, "{why}");
            let names = |dir: &str| -> Vec<String> {
                let entries = fs::read_dir(root.join(dir)).unwrap();
                let mut names: Vec<String> = entries
                    .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                    .collect();
                names.sort();
                names
            };
            assert_eq!(names("incoming/a"), Vec::<String>::new(), "{why}");
            assert_eq!(names("corrupt"), ["bad.json", "bad.json.why.json"], "{why}");
            assert_eq!(names("journal"), Vec::<String>::new(), "{why}");
        }
        steps = first;
        if lived_on {
            break;
        }
    }
    assert!(steps > 40 && deaths > 200, "{steps} steps, {deaths} deaths");
}
