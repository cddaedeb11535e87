//! A disk without room: what was sent is settled, nothing more is sent, and once there is room
//! everything goes on; each effect once.
//!
//! Two ways to such a disk. A [`Gate`] refuses writes at an exact point. And small file systems of
//! their own, one of tmpfs without bytes, one without inodes, one of ext4 on a loop device: for
//! those this program runs itself again in a mount namespace, which needs root. Where that cannot
//! be had the test says so and is done.

#![expect(clippy::unwrap_used, reason = "a test may panic")]
#![expect(clippy::print_stdout, reason = "it says what it leaves out")]

mod common;
mod support;

#[path = "support/bench.rs"]
mod bench;
#[path = "full_disk/mounted.rs"]
mod mounted;

use std::cell::Cell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use common::{
    Gate, Gated, MINUTE, NOW, accepted, attempt, dest, envelope, id, owner, store_on, want,
};
use rustix::io::Errno;
use tempfile::TempDir;
use tickpost::model::event::{Event, EventKind};
use tickpost::model::item::Item;
use tickpost::model::notice::Notice;
use tickpost::model::state::State;
use tickpost::store::disk::{Disk, RealDisk};
use tickpost::store::file::FileStore;
use tickpost::store::{Decision, Interrupted, Store};
use uuid::Uuid;

/// Tells this program that it runs in a mount namespace of its own.
const ENCLOSED: &str = "TICKPOST_TEST_ENCLOSED";

#[test]
fn on_real_small_file_systems() {
    let probe = Command::new("unshare")
        .args(["--mount", "mount", "-t", "tmpfs", "t", "/mnt"])
        .output();
    if !probe.is_ok_and(|output| output.status.success()) {
        println!("skipped: no file system can be mounted here; run it as root");
        return;
    }
    let own = std::env::current_exe().unwrap();
    let output = Command::new("unshare")
        .arg("--mount")
        .arg(own)
        .args(["mounted::", "--test-threads=2"])
        .env(ENCLOSED, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let also = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{also}");
    assert!(!said.contains(" 0 passed"), "{said}");
}

// ---------------------------------------------------------------- an exact point

/// A disk that is full while `full` is set; with `frees`, only until the reserve is gone.
#[derive(Clone)]
struct FullDisk {
    root: PathBuf,
    errno: Errno,
    full: Rc<Cell<bool>>,
    frees: bool,
    calls: Rc<std::cell::RefCell<Vec<String>>>,
}

impl Gate for FullDisk {
    fn write(&self, op: &str, path: &Path) -> io::Result<()> {
        self.calls
            .borrow_mut()
            .push(format!("{op} {}", path.display()));
        let needs_room = [
            "create",
            "write_new",
            "append",
            "append_line",
            "make_dir",
            "open_log",
            "log reserve",
            "reserve_file",
        ];
        let has_room = self.frees
            && op != "reserve_file"
            && fs::symlink_metadata(self.root.join("reserve/01")).is_err();
        if self.full.get() && needs_room.contains(&op) && !has_room {
            return Err(self.errno.into());
        }
        Ok(())
    }

    fn tears(&self) -> bool {
        true
    }
}

struct Full {
    _dir: TempDir,
    disk: FullDisk,
    store: FileStore,
}

fn full_disk(errno: Errno, frees: bool) -> Full {
    let dir = TempDir::new().unwrap();
    let root = dir.path().join("spool");
    FileStore::init(&root, "", Uuid::nil(), NOW).unwrap();
    let disk = FullDisk {
        root: root.clone(),
        errno,
        full: Rc::default(),
        frees,
        calls: Rc::default(),
    };
    let store = store_on(Gated(disk.clone()), &root);
    for n in 1..=4 {
        store.accept(envelope(n), accepted()).unwrap();
    }
    Full {
        _dir: dir,
        disk,
        store,
    }
}

impl Full {
    fn path(&self, relative: &str) -> PathBuf {
        self.disk.root.join(relative)
    }

    fn item(&self, n: u64) -> (String, Item) {
        let found = self.store.find(id(n)).unwrap().unwrap();
        let item = self.store.read(&found).unwrap().unwrap().unwrap();
        (found.place, item)
    }
}

fn claim_all(_: &Item) -> Decision {
    Decision::Claim
}

fn nothing_is_interrupted(item: &Interrupted) -> (Event, Vec<Notice>) {
    panic!("it was settled: {item:?}");
}

const FULL: [Errno; 2] = [Errno::NOSPC, Errno::DQUOT];

#[test]
fn a_session_that_finds_the_disk_full_settles_with_the_reserve_and_claims_no_more() {
    for errno in FULL {
        let full = full_disk(errno, true);
        let mut session = full.store.lock(&owner(NOW)).unwrap();
        assert_eq!(session.tight(), None);
        assert!(full.path("reserve").is_dir());
        let claims = session.claim(&want(2), NOW, &mut claim_all).unwrap();
        full.disk.full.set(true);
        let event = attempt(1, NOW, State::Confirmed, None);
        let notices = Notice::of(&claims[0].item, &event, 2, &[dest("ops")]);
        session.settle(&claims[0], event, notices).unwrap();
        session.sync().unwrap();
        assert!(session.tight().is_some(), "{errno}");
        assert!(!full.path("reserve").exists());
        assert!(full.item(1).0.starts_with("confirmed/a/"));
        // What is being sent still can settle; nothing else is begun.
        let more = session.claim(&want(2), NOW, &mut claim_all).unwrap();
        assert!(more.is_empty());
        let event = attempt(1, NOW, State::Failed, None);
        let notices = Notice::of(&claims[1].item, &event, 2, &[dest("ops")]);
        session.settle(&claims[1], event, notices).unwrap();
        session
            .close(NOW, Some(&serde_json::json!({"n": 1})))
            .unwrap();
        assert!(full.item(2).0.starts_with("failed/a/"));
        assert_eq!(fs::read_dir(full.path("pending/ops")).unwrap().count(), 1);

        // Still full: an operator can work, and nothing is sent.
        let mut session = full.store.lock(&owner(NOW)).unwrap();
        assert!(session.tight().is_some());
        let found = full.store.find(id(3)).unwrap().unwrap();
        let hold = |_: &Item| {
            let event = Event::new(EventKind::Held, NOW, State::Held);
            Decision::Settle(Box::new(event), vec![])
        };
        assert!(session.change(&found, &mut { hold }).unwrap());
        let none = session.claim(&want(2), NOW, &mut claim_all).unwrap();
        assert!(none.is_empty());
        session.close(NOW, None).unwrap();
        assert!(full.item(3).0.starts_with("held/a/"));

        full.disk.full.set(false);
        let mut session = full.store.lock(&owner(NOW)).unwrap();
        assert_eq!(session.tight(), None);
        assert!(full.path("reserve").is_dir());
        let last = session.claim(&want(2), NOW, &mut claim_all).unwrap();
        assert_eq!(last.len(), 1);
        assert_eq!(last[0].item.envelope.request_id, id(4));
    }
}

#[test]
fn what_was_sent_is_in_the_journal_also_where_no_reserve_helps() {
    for errno in FULL {
        let full = full_disk(errno, false);
        let mut session = full.store.lock(&owner(NOW)).unwrap();
        let claims = session.claim(&want(2), NOW, &mut claim_all).unwrap();
        full.disk.full.set(true);
        let event = attempt(1, NOW, State::Confirmed, None);
        session.settle(&claims[0], event, vec![]).unwrap();
        let event = attempt(1, NOW, State::Unknown, Some(NOW.plus(MINUTE)));
        session.settle(&claims[1], event, vec![]).unwrap();
        session.sync().unwrap_err();
        drop(session);
        // As often as it is tried.
        assert!(full.store.lock(&owner(NOW)).is_err());
        assert!(full.store.lock(&owner(NOW)).is_err());
        full.disk.full.set(false);
        let mut session = full.store.lock(&owner(NOW)).unwrap();
        assert_eq!(session.recover(&mut nothing_is_interrupted).unwrap(), 0);
        session.close(NOW, None).unwrap();
        for (n, place) in [(1, "confirmed/a/"), (2, "unknown/a/2026")] {
            let (path, item) = full.item(n);
            assert!(path.starts_with(place), "{path}");
            assert_eq!(item.events.len(), 2);
        }
    }
}

#[test]
fn a_quota_that_only_writes_tell_of_is_met_with_the_reserve_in_replay() {
    let full = full_disk(Errno::DQUOT, true);
    let mut session = full.store.lock(&owner(NOW)).unwrap();
    let claims = session.claim(&want(1), NOW, &mut claim_all).unwrap();
    session
        .settle(&claims[0], attempt(1, NOW, State::Confirmed, None), vec![])
        .unwrap();
    // It dies here.
    drop(session);
    full.disk.full.set(true);
    let mut session = full.store.lock(&owner(NOW)).unwrap();
    assert!(session.tight().is_some());
    assert_eq!(session.recover(&mut nothing_is_interrupted).unwrap(), 0);
    session.close(NOW, None).unwrap();
    assert!(full.item(1).0.starts_with("confirmed/a/"));
    assert!(!full.path("reserve").exists());
}

#[test]
fn a_whole_destination_can_be_held_on_a_full_disk() {
    let full = full_disk(Errno::NOSPC, true);
    let session = full.store.lock(&owner(NOW)).unwrap();
    session.close(NOW, None).unwrap();
    // What somebody else has put there keeps the directory, and none of the room.
    fs::write(full.path("reserve/notes"), "mine").unwrap();
    full.disk.full.set(true);
    let hold = tickpost::store::DestinationHold {
        at: NOW,
        by: "alice".to_owned(),
        note: None,
    };
    full.store
        .set_destination_hold(&dest("a"), Some(&hold))
        .unwrap();
    assert_eq!(full.store.destination_hold("a").unwrap(), Some(hold));
}

/// The space for settles is the journal's, and a new segment has none of the old one's.
#[test]
fn a_new_segment_keeps_space_for_what_is_in_hand() {
    let full = full_disk(Errno::NOSPC, true);
    let mut session = full.store.lock(&owner(NOW)).unwrap();
    let claims = session.claim(&want(2), NOW, &mut claim_all).unwrap();
    let mut event = attempt(1, NOW, State::Held, None);
    let segment = tickpost::store::file::journal::SEGMENT_BYTES;
    event.note = Some("x".repeat(usize::try_from(segment).unwrap()));
    session.settle(&claims[0], event, vec![]).unwrap();
    full.disk.calls.borrow_mut().clear();
    session.sync().unwrap();
    let calls = full.disk.calls.borrow();
    let begun = calls.iter().position(|call| call.starts_with("open_log"));
    let rest = &calls[begun.unwrap()..];
    let at = |op: &str| rest.iter().position(|call| call.starts_with(op)).unwrap();
    assert!(at("log reserve") < at("log append"), "{rest:#?}");
}

/// A file system that sets nothing aside is full at an append, or as a claim is moved.
#[derive(Clone)]
struct Unreserved {
    root: PathBuf,
    op: &'static str,
    full: Rc<Cell<bool>>,
}

impl Gate for Unreserved {
    fn write(&self, op: &str, _path: &Path) -> io::Result<()> {
        let has_room = fs::symlink_metadata(self.root.join("reserve/01")).is_err();
        if self.full.get() && op == self.op && !has_room {
            return Err(Errno::NOSPC.into());
        }
        Ok(())
    }

    fn tears(&self) -> bool {
        true
    }
}

#[test]
fn what_was_sent_is_settled_also_where_no_space_can_be_set_aside() {
    for op in ["log append", "rename"] {
        let full = full_disk(Errno::NOSPC, true);
        let disk = Unreserved {
            root: full.path(""),
            op,
            full: Rc::default(),
        };
        let store = store_on(Gated(disk.clone()), &full.path(""));
        let mut session = store.lock(&owner(NOW)).unwrap();
        let claims = session.claim(&want(1), NOW, &mut claim_all).unwrap();
        disk.full.set(true);
        // Whether it is claimed or not: the session goes on.
        drop(session.claim(&want(1), NOW, &mut claim_all).unwrap());
        let event = attempt(1, NOW, State::Confirmed, None);
        session.settle(&claims[0], event, vec![]).unwrap();
        session.sync().unwrap();
        assert!(session.tight().is_some(), "{op}");
        assert!(full.item(1).0.starts_with("confirmed/a/"), "{op}");
    }
}

/// A quota of which the file system's own numbers say nothing: so many requests for space are refused.
#[derive(Clone)]
struct Quota {
    refusals: Rc<Cell<usize>>,
}

impl Gate for Quota {
    fn write(&self, op: &str, _path: &Path) -> io::Result<()> {
        let left = self.refusals.get();
        if op == "log reserve" && left > 0 {
            self.refusals.set(left - 1);
            return Err(Errno::DQUOT.into());
        }
        Ok(())
    }
}

#[test]
fn as_many_are_claimed_as_can_be_settled() {
    let full = full_disk(Errno::DQUOT, false);
    let refusals: Rc<Cell<usize>> = Rc::default();
    let quota = Quota {
        refusals: Rc::clone(&refusals),
    };
    let store = store_on(Gated(quota), &full.path(""));
    let mut session = store.lock(&owner(NOW)).unwrap();
    for (refused, claimed) in [(1, 2), (1, 1), (0, 1), (0, 0)] {
        refusals.set(refused);
        let claims = session.claim(&want(4), NOW, &mut claim_all).unwrap();
        assert_eq!(claims.len(), claimed);
        assert!(session.tight().is_none());
    }
    assert!(full.path("reserve/32").exists());
    drop(session);

    let mut session = store.lock(&owner(NOW)).unwrap();
    store.accept(envelope(5), accepted()).unwrap();
    refusals.set(usize::MAX);
    let claims = session.claim(&want(4), NOW, &mut claim_all).unwrap();
    assert!(claims.is_empty());
    assert!(session.tight().is_some());
    assert!(!full.path("reserve").exists());
}

#[test]
fn an_error_of_the_journal_names_its_whole_path() {
    let full = full_disk(Errno::NOSPC, false);
    let mut session = full.store.lock(&owner(NOW)).unwrap();
    full.disk.full.set(true);
    let error = session.claim(&want(1), NOW, &mut claim_all).unwrap_err();
    let path = full.path("journal/00000001.jsonl").display().to_string();
    assert!(error.to_string().ends_with(&path), "{error}");
}

/// A sixteenth of the file system, within bounds.
#[test]
fn the_reserve_is_as_large_as_its_file_system_lets_it_be() {
    let full = full_disk(Errno::NOSPC, true);
    let store = FileStore::open(&full.path(""), true).unwrap();
    store.lock(&owner(NOW)).unwrap();
    let total = RealDisk.room(&full.path("")).unwrap().bytes_total;
    let whole = (total / 16).clamp(128 * 1024, 4 * 1024 * 1024);
    let files = fs::read_dir(full.path("reserve")).unwrap();
    let lengths: Vec<u64> = files
        .map(|file| file.unwrap().metadata().unwrap().len())
        .collect();
    assert_eq!(lengths, [whole / 32; 32]);
}
