//! Accepting, by a command or from a drop box: whatever dies when, it is accepted once.
//!
//! A program of its own: it starts no processes, which would inherit the locks of spools for a
//! moment.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "common/mod.rs"]
mod common;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use common::{Gate, Gated, NOW, accepted, dest, envelope, owner, store_on};
use serde_json::json;
use tickpost::model::draft::Draft;
use tickpost::model::envelope::{Body, sha256_hex};
use tickpost::model::ids::RequestId;
use tickpost::store::disk::RealDisk;
use tickpost::store::file::FileStore;
use tickpost::store::file::journal::{Journal, MoveRecord, Record};
use tickpost::store::{
    Answer, Dropped, Intake, Limits, NewBody, Offer, Refusal, Store, StoreError, TakenIn,
};

/// A disk on which nothing is written any more after so many writes: what a process that died
/// there leaves.
#[derive(Clone)]
struct MortalDisk {
    left: Arc<AtomicUsize>,
    calls: Arc<Mutex<Vec<String>>>,
    /// From this write on there is no room: what takes room fails, all else works.
    full_from: Arc<Mutex<Option<usize>>>,
    /// A move between paths that hold these words is not permitted.
    forbidden: Option<(&'static str, &'static str)>,
}

impl MortalDisk {
    fn new(left: usize) -> Self {
        Self {
            left: Arc::new(AtomicUsize::new(left)),
            calls: Arc::default(),
            full_from: Arc::default(),
            forbidden: None,
        }
    }

    /// Whether it did this, to a path that holds this.
    fn did(&self, op: &str, path: &str) -> bool {
        let calls = self.calls.lock().unwrap();
        calls
            .iter()
            .any(|call| call.starts_with(op) && call.contains(path))
    }

    fn write(&self, op: &str, path: &Path) -> io::Result<()> {
        let mut calls = self.calls.lock().unwrap();
        calls.push(format!("{op} {}", path.display()));
        let is_full = (*self.full_from.lock().unwrap()).is_some_and(|from| calls.len() > from);
        drop(calls);
        if is_full && !["unlink", "sync_dir", "set_mtime", "remove_dir"].contains(&op) {
            return Err(io::Error::from_raw_os_error(28));
        }
        match self.left.load(Ordering::SeqCst).checked_sub(1) {
            Some(left) => {
                self.left.store(left, Ordering::SeqCst);
                Ok(())
            }
            // As a broken disk says it.
            None => Err(io::Error::from_raw_os_error(5)),
        }
    }
}

impl Gate for MortalDisk {
    fn write(&self, op: &str, path: &Path) -> io::Result<()> {
        MortalDisk::write(self, op, path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let holds = |path: &Path, word: &str| path.display().to_string().contains(word);
        match self.forbidden {
            Some((source, target)) if holds(from, source) && holds(to, target) => {
                Err(io::ErrorKind::PermissionDenied.into())
            }
            Some(_) | None => Ok(()),
        }
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
        own_id: draft.request_id.is_some() || dropped.id.is_some(),
        body: large.then(|| NewBody::new(draft.body)),
    }))
}

fn take_in(store: &FileStore, next: &Cell<u64>) -> Result<TakenIn, StoreError> {
    let mut session = store.lock(&owner(NOW))?;
    let taken = session.take_in(&dest("a"), 1 << 20, &Limits::NONE, &mut |dropped| {
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
                let disk = MortalDisk::new(writes);
                let store = store_on(Gated(disk), &root);
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

fn spool() -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let dir = dir.unwrap();
    let root = dir.path().join("spool");
    FileStore::init(&root, "", common::id(1).0, NOW).unwrap();
    (dir, root)
}

fn keyed(n: u64, destination: &str) -> Offer {
    let mut envelope = envelope(n);
    envelope.key = Some("k".to_owned());
    envelope.destination = dest(destination);
    // The same body each time, under another id.
    envelope.request.body = None;
    envelope.request.body_sha256 = sha256_hex(b"");
    Offer {
        envelope,
        accepted: accepted(),
        own_id: false,
        body: None,
    }
}

fn accept(disk: &MortalDisk, root: &Path, offers: Vec<Offer>) -> (Vec<Answer>, bool) {
    let store = store_on(Gated(disk.clone()), root);
    let mut answers = Vec::new();
    let accepted = store.accept_all(offers, &Limits::NONE, &mut answers);
    (answers, accepted.is_ok())
}

/// Whoever repeats what another began answers for it too: what the dead one did not sync is synced
/// before the repeat says that the item is there.
#[test]
fn a_repeat_makes_durable_what_a_dead_caller_left() {
    for writes in 0.. {
        let (_dir, root) = spool();
        let (first, lived) = accept(&MortalDisk::new(writes), &root, vec![keyed(1, "a")]);
        let disk = MortalDisk::new(usize::MAX);
        let (answers, _) = accept(&disk, &root, vec![keyed(2, "a")]);
        let items: Vec<_> = fs::read_dir(root.join("pending/a")).unwrap().collect();
        assert_eq!(items.len(), 1, "died after {writes} writes");
        let [Answer::New(id) | Answer::Known(id)] = answers[..] else {
            panic!("died after {writes} writes: {answers:?}");
        };
        assert!(root.join(format!("pending/a/{id}.jsonl")).exists());
        assert!(
            disk.did("sync_dir", "/pending/a"),
            "died after {writes} writes"
        );
        if matches!(answers[..], [Answer::New(_)]) {
            assert!(
                disk.did("sync_file", "/keys/a/"),
                "died after {writes} writes"
            );
            assert!(
                disk.did("sync_dir", "/keys/a"),
                "died after {writes} writes"
            );
        }
        if lived {
            assert_eq!(first, [Answer::New(id)]);
            assert!(writes > 5, "{writes} writes are few");
            break;
        }
    }
}

/// What was renamed before an error is accepted, and has its answer.
#[test]
fn an_error_among_many_leaves_no_item_without_its_answer() {
    let (_dir, root) = spool();
    let mut disk = MortalDisk::new(usize::MAX);
    disk.forbidden = Some(("/tmp/", "/pending/b/"));
    let offers = [(1, "a"), (2, "a"), (3, "b"), (4, "a")].map(|(n, destination)| {
        let mut offer = keyed(n, destination);
        offer.envelope.key = None;
        offer
    });
    let (answers, went_well) = accept(&disk, &root, offers.into());
    assert!(!went_well);
    let [first, second] = [1, 2].map(|n| Answer::New(common::id(n)));
    assert_eq!(answers, [first, second, Answer::Open, Answer::Open]);
    let items: Vec<_> = fs::read_dir(root.join("pending/a")).unwrap().collect();
    assert_eq!(items.len(), 2);
    assert!(disk.did("sync_dir", "/pending/a"));
    assert_eq!(fs::read_dir(root.join("tmp")).unwrap().count(), 0);
}

/// In a drop box another user can put something else in a file's place at any time.
#[test]
fn a_file_that_cannot_be_set_aside_costs_itself_alone() {
    let (_dir, root) = spool();
    fs::create_dir(root.join("incoming/a")).unwrap();
    fs::write(root.join("incoming/a/bad.json"), "bad").unwrap();
    fs::write(root.join("incoming/a/good.json"), r#"{"request":{}}"#).unwrap();
    let mut disk = MortalDisk::new(usize::MAX);
    disk.forbidden = Some(("/incoming/", "/corrupt/"));
    let store = store_on(Gated(disk), &root);
    let taken = take_in(&store, &Cell::new(0)).unwrap();
    assert_eq!(taken.accepted, 1);
    assert_eq!(fs::read_dir(root.join("corrupt")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(root.join("journal")).unwrap().count(), 0);
    assert!(root.join("incoming/a/bad.json").exists());
}

/// On a full disk what was begun is in the way.
#[test]
fn what_is_not_accepted_leaves_nothing_behind() {
    for writes in 0.. {
        let (_dir, root) = spool();
        let mut offers: Vec<Offer> = Vec::new();
        for n in 1..=2 {
            let body = vec![b'x'; 100];
            let mut offer = keyed(n, "a");
            offer.envelope.key = None;
            offer.envelope.request.body_sha256 = sha256_hex(&body);
            offer.body = Some(NewBody::new(body));
            offers.push(offer);
        }
        let disk = MortalDisk::new(usize::MAX);
        *disk.full_from.lock().unwrap() = Some(writes);
        let (_, went_well) = accept(&disk, &root, offers);
        let count = |dir: &str| fs::read_dir(root.join(dir)).map_or(0, Iterator::count);
        let why = format!("full from write {writes} on");
        assert_eq!(count("tmp"), 0, "{why}");
        assert_eq!(count("bodies"), count("pending/a"), "{why}");
        if went_well {
            assert!(writes > 5, "{writes} writes are few");
            break;
        }
    }
}

fn offered(root: &Path, n: u64, own_id: bool) -> Answer {
    let mut offer = keyed(n, "a");
    offer.own_id = own_id;
    let (answers, went_well) = accept(&MortalDisk::new(usize::MAX), root, vec![offer]);
    assert!(went_well);
    answers.into_iter().next().unwrap()
}

fn fresh() -> String {
    format!("pending/a/{}.jsonl", common::id(1))
}

fn aside() -> String {
    format!("corrupt/{}.jsonl", common::id(1))
}

/// What a pruning says of item 1 before it removes it.
fn plant_tombstone(root: &Path) {
    let request_id = common::id(1);
    let line = format!(
        r#"{{"request_id":"{request_id}","destination":"a","state":"failed","enqueued_at":"{NOW}","settled_at":"{NOW}","pruned_at":"{NOW}","attempts":1,"body_sha256":""}}"#
    );
    let log = format!("log/pruned-{}.jsonl", NOW.day_name());
    fs::write(root.join(log), line + "\n").unwrap();
}

/// Pruning died between the tombstone and the item.
#[test]
fn an_item_beside_its_tombstone_is_known_to_its_repeats() {
    let (_dir, root) = spool();
    let item = common::id(1);
    assert_eq!(offered(&root, 1, true), Answer::New(item));
    plant_tombstone(&root);
    assert_eq!(offered(&root, 2, false), Answer::Known(item));
    assert_eq!(offered(&root, 1, true), Answer::Known(item));
    assert!(root.join(fresh()).exists());
}

/// One of two files of an item was set aside, and the other one pruned: the item has ended.
#[test]
fn a_file_in_corrupt_does_not_keep_its_item_from_being_pruned() {
    let (_dir, root) = spool();
    let item = common::id(1);
    assert_eq!(offered(&root, 1, true), Answer::New(item));
    fs::rename(root.join(fresh()), root.join(aside())).unwrap();
    assert_eq!(offered(&root, 1, true), Answer::Aside(item));
    plant_tombstone(&root);
    let pruned = Refusal::Pruned { id: item };
    assert_eq!(offered(&root, 1, true), Answer::Refused(pruned));
}

/// What the journal says of an item's file counts more than an older file of it in `corrupt/`; and
/// what it says of another file of the item counts less than the item.
#[test]
fn an_item_that_moves_is_known_to_its_repeats() {
    let item = common::id(1);
    let rows = [
        // It is in neither place for the moment.
        (aside(), format!("held/a/{item}.jsonl"), fresh()),
        (fresh(), format!("held/a/{item}.jsonl"), aside()),
    ];
    for (is_at, from, to) in rows {
        let (_dir, root) = spool();
        assert_eq!(offered(&root, 1, false), Answer::New(item));
        fs::rename(root.join(fresh()), root.join(&is_at)).unwrap();
        let step = MoveRecord {
            from,
            to,
            event: None,
            event_number: 0,
            turn: None,
            why: None,
            file: None,
            notices: Vec::new(),
        };
        let mut journal = Journal::begin(&RealDisk, &root, 1).unwrap();
        journal.append(&Record::Move(Box::new(step))).unwrap();
        drop(journal);
        assert_eq!(offered(&root, 2, false), Answer::Known(item), "{is_at}");
    }
}
