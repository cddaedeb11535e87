//! What is special to a store of files: the layout, replay after a crash, damage, bad disks.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use tempfile::TempDir;
use tickpost::model::envelope::{Body, Envelope, sha256_hex};
use tickpost::model::event::{Event, EventKind};
use tickpost::model::ids::RequestId;
use tickpost::model::item::{Damage, Item, event_line};
use tickpost::model::notice::Notice;
use tickpost::model::state::State;
use tickpost::model::time::{DAY_MS, UnixMs};
use tickpost::store::disk::{Disk, RealDisk};
use tickpost::store::file::journal::{self, Record};
use tickpost::store::file::layout::{Place, Slot};
use tickpost::store::file::{FileStore, check_owner_of};
use tickpost::store::{
    Answer, Claimed, Decision, Dropped, Full, Intake, Interrupted, Limits, Memory, Offer, Owner,
    Refusal, Room, Scope, Session, Store, StoreError,
};

mod common;
use common::{
    Gate, Gated, MINUTE, NOW, QuickDisk, accepted, attempt, by_hand, dest, envelope, id, owner,
    store_on, want,
};

/// A spool in a directory of its own.
struct Spool {
    _dir: TempDir,
    root: PathBuf,
}

/// Everything in a spool, by path: contents and file times.
type Tree = BTreeMap<String, (Vec<u8>, UnixMs)>;

impl Spool {
    fn new() -> Self {
        Self::within(tempfile::tempdir().unwrap())
    }

    /// One in memory, where there is such a file system: for tests that make many, or many
    /// files.
    fn in_memory() -> Self {
        Self::within(in_memory())
    }

    fn within(dir: TempDir) -> Self {
        let root = dir.path().join("spool");
        FileStore::init(&root, "# sample\n", id(1).0, NOW).unwrap();
        Self { _dir: dir, root }
    }

    /// Another spool with these files, as if it were the same one at another time: a copy,
    /// with its own lock recorded.
    fn of(tree: &Tree) -> Self {
        let dir = in_memory();
        let spool = Self {
            root: dir.path().to_owned(),
            _dir: dir,
        };
        for name in STATES.iter().chain(&["journal", "tmp", "corrupt"]) {
            fs::create_dir(spool.path(name)).unwrap();
        }
        fs::write(spool.path("lock"), "").unwrap();
        let text = serde_json::json!({
            "format": 1,
            "spool_id": id(1),
            "created_at": NOW,
            "lock_inode": fs::metadata(spool.path("lock")).unwrap().ino(),
        });
        fs::write(spool.path("spool.json"), text.to_string()).unwrap();
        for (path, (bytes, mtime)) in tree {
            let path = spool.root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, bytes).unwrap();
            RealDisk.set_mtime(&path, *mtime).unwrap();
        }
        spool
    }

    fn store(&self) -> FileStore {
        self.store_on(QuickDisk)
    }

    fn store_on(&self, disk: impl Disk + 'static) -> FileStore {
        store_on(disk, &self.root)
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    /// The files below some directories.
    fn tree(&self, dirs: &[&str]) -> Tree {
        let mut tree = Tree::new();
        for path in self.names(dirs) {
            let full = self.root.join(&path);
            let mtime = RealDisk.stat(&full).unwrap().mtime;
            tree.insert(path, (fs::read(&full).unwrap(), mtime));
        }
        tree
    }

    /// The names of the files below some directories, sorted.
    fn names(&self, dirs: &[&str]) -> Vec<String> {
        let mut files = Vec::new();
        let mut dirs: Vec<PathBuf> = dirs.iter().map(|dir| self.root.join(dir)).collect();
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(&dir).unwrap().map(Result::unwrap) {
                if entry.file_type().unwrap().is_dir() {
                    dirs.push(entry.path());
                } else {
                    let path = entry.path();
                    let path = path.strip_prefix(&self.root).unwrap();
                    files.push(path.to_str().unwrap().to_owned());
                }
            }
        }
        files.sort();
        files
    }

    fn items(&self) -> Vec<String> {
        self.names(&STATES)
    }

    fn directories(&self, dir: &str) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.root.join(dir))
            .unwrap()
            .map(Result::unwrap)
            .filter(|entry| entry.file_type().unwrap().is_dir())
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn accept(&self, n: u64, change: impl FnOnce(&mut Envelope)) {
        let mut envelope = envelope(n);
        change(&mut envelope);
        self.store().accept(envelope, accepted()).unwrap();
    }

    /// Puts an item's file somewhere by hand, due now.
    fn plant(&self, place: &str, bytes: &[u8]) {
        let path = self.root.join(place);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        RealDisk.set_mtime(&path, NOW).unwrap();
    }
}

fn in_memory() -> TempDir {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    dir.unwrap()
}

const STATES: [&str; 5] = ["pending", "unknown", "held", "confirmed", "failed"];

fn bytes_of(n: u64, events: &[Event]) -> Vec<u8> {
    let (_, mut bytes) = Item::accept(envelope(n), accepted()).unwrap();
    for event in events {
        bytes.extend(event_line(event).unwrap());
    }
    bytes
}

fn claim_all(_: &Item) -> Decision {
    Decision::Claim
}

fn interrupted(item: &Interrupted) -> (Event, Vec<Notice>) {
    let mut event = attempt(item.n, NOW, State::Unknown, Some(NOW.plus(5 * MINUTE)));
    event.claimed_at = Some(item.claimed_at);
    (event, vec![])
}

fn settle(session: &mut dyn Session, claim: &Claimed, state: State, due: Option<UnixMs>) {
    let event = attempt(claim.n, NOW, state, due);
    let number = claim.item.events.len() + 1;
    let notices = Notice::of(&claim.item, &event, number, &[dest("ops")]);
    session.settle(claim, event, notices).unwrap();
}

// ---------------------------------------------------------------- layout

#[test]
fn everything_lies_where_the_contract_says() {
    let spool = Spool::new();
    let store = spool.store();
    let name = |n: u64| format!("{}.jsonl", id(n));
    spool.accept(1, |_| {});
    spool.accept(2, |e| e.not_before = Some(NOW.plus(MINUTE)));
    spool.accept(3, |e| e.not_before = Some(NOW.plus(3 * DAY_MS)));
    for n in 4..=9 {
        spool.accept(n, |_| {});
    }
    let fresh: Vec<String> = (1..=9).map(|n| format!("pending/a/{}", name(n))).collect();
    assert_eq!(
        spool.items(),
        fresh,
        "accepting makes no directory of a time"
    );

    let mut session = store.lock(&owner(NOW)).unwrap();
    let claims = session.claim(&want(9), NOW, &mut claim_all).unwrap();
    assert_eq!(claims.len(), 7);
    assert_eq!(
        spool.items()[2],
        format!("unknown/a/{}.1.jsonl", id(1)),
        "claimed"
    );
    let soon = Some(NOW.plus(MINUTE));
    let endings = [
        (State::Pending, soon),
        (State::Unknown, soon),
        (State::Unknown, None),
        (State::Held, None),
        (State::Held, soon),
        (State::Confirmed, None),
        (State::Failed, None),
    ];
    for (claim, (state, due)) in claims.iter().zip(endings) {
        let event = attempt(1, NOW, state, due);
        session.settle(claim, event, vec![]).unwrap();
    }
    session.close(NOW, None).unwrap();
    let mut want = [
        format!("confirmed/a/20261129/{}", name(8)),
        format!("failed/a/20261129/{}", name(9)),
        format!("held/a/20261129T1541Z/{}", name(7)),
        format!("held/a/{}", name(6)),
        format!("pending/a/20261129T1541Z/{}", name(1)),
        format!("pending/a/20261129T1541Z/{}", name(2)),
        format!("pending/a/20261202/{}", name(3)),
        format!("unknown/a/20261129T1541Z/{}", name(4)),
        format!("unknown/a/parked/{}", name(5)),
    ];
    want.sort();
    assert_eq!(spool.items(), want);
    for (path, due) in [
        (&want[4], MINUTE),
        (&want[5], MINUTE),
        (&want[6], 3 * DAY_MS),
    ] {
        let mtime = RealDisk.stat(&spool.path(path)).unwrap().mtime;
        assert_eq!(mtime, NOW.plus(due), "{path}: its time is when it is due");
    }
    assert!(spool.names(&["journal", "tmp", "corrupt"]).is_empty());
    assert_eq!(fs::read(spool.path("lock")).unwrap(), b"");

    // Emptied directories of a time go.
    let later = NOW.plus(3 * DAY_MS);
    let mut session = store.lock(&owner(later)).unwrap();
    let claims = session.claim(&want_many(), later, &mut claim_all).unwrap();
    assert_eq!(claims.len(), 4);
    for claim in &claims {
        settle(session.as_mut(), claim, State::Confirmed, None);
    }
    session.close(later, None).unwrap();
    assert!(spool.directories("pending/a").is_empty());
    assert_eq!(spool.directories("unknown/a"), ["parked"]);
}

fn want_many() -> Vec<tickpost::store::Want> {
    want(1000)
}

/// Set in the process that a test starts with another umask: the spool to work on.
const CHILD: &str = "TICKPOST_TEST_UMASK_SPOOL";

#[test]
fn modes_are_the_same_whatever_the_umask() {
    if let Some(root) = std::env::var_os(CHILD) {
        let root = PathBuf::from(root);
        FileStore::init(&root, "", id(1).0, NOW).unwrap();
        let store = FileStore::open(&root, true).unwrap();
        for n in 1..=4 {
            store.accept(envelope(n), accepted()).unwrap();
        }
        let mut session = store.lock(&owner(NOW)).unwrap();
        let claims = session.claim(&want(3), NOW, &mut claim_all).unwrap();
        settle(session.as_mut(), &claims[0], State::Confirmed, None);
        settle(session.as_mut(), &claims[1], State::Held, Some(NOW.plus(9)));
        session.remember(&dest("a"), &Memory::default()).unwrap();
        session.sync().unwrap();
        let line = serde_json::json!({});
        session.close(NOW, Some(&line)).unwrap();
        fs::write(root.join("pending/a").join(format!("{}.jsonl", id(9))), "").unwrap();
        let mut session = store.lock(&owner(NOW)).unwrap();
        session.claim(&want(3), NOW, &mut claim_all).unwrap();
        session.sync().unwrap();
        return;
    }
    for umask in ["000", "277"] {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("spool");
        let status = std::process::Command::new("sh")
            .args([
                "-c",
                "umask \"$1\"; exec \"$0\" --exact modes_are_the_same_whatever_the_umask",
            ])
            .arg(std::env::current_exe().unwrap())
            .arg(umask)
            .env(CHILD, &root)
            .stdout(std::process::Stdio::null())
            .status()
            .unwrap();
        assert!(status.success());
        let mut dirs = vec![root];
        let mut files = 0;
        while let Some(path) = dirs.pop() {
            let meta = fs::symlink_metadata(&path).unwrap();
            let mode = meta.permissions().mode() & 0o7777;
            if meta.is_dir() {
                assert_eq!(mode, 0o700, "{}", path.display());
                dirs.extend(fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
            } else if !path.ends_with(format!("{}.jsonl", id(9))) {
                assert_eq!(mode, 0o600, "{}", path.display());
                files += 1;
            }
        }
        assert!(
            files >= 11,
            "{files} with the journal and the reason of a corrupt file"
        );
    }
}

#[test]
fn making_a_spool_again_changes_nothing() {
    let spool = Spool::new();
    let before = spool.tree(&["."]);
    let made = FileStore::init(&spool.root, "other", id(2).0, NOW.plus(1)).unwrap();
    assert!(made.made.is_empty(), "{made:?}");
    assert_eq!(spool.tree(&["."]), before);
    fs::remove_dir(spool.path("order")).unwrap();
    fs::remove_file(spool.path("wake")).unwrap();
    let made = FileStore::init(&spool.root, "other", id(2).0, NOW.plus(1)).unwrap();
    assert_eq!(made.made, ["order/", "wake"]);
}

#[test]
fn what_a_dead_process_left_in_tmp_is_in_nobodys_way() {
    let spool = Spool::new();
    let process = std::process::id();
    for copy in 0..2 {
        for name in [format!("{}.jsonl", id(1)), "destinations_a.json".to_owned()] {
            fs::write(spool.path(&format!("tmp/{name}.{process}.{copy}")), "half").unwrap();
        }
    }
    fs::write(spool.path(&format!("tmp/{}.jsonl", id(1))), "half").unwrap();
    spool.accept(1, |_| {});
    let store = spool.store();
    let mut session = store.lock(&owner(NOW)).unwrap();
    session.remember(&dest("a"), &Memory::default()).unwrap();
    assert_eq!(
        session.claim(&want(1), NOW, &mut claim_all).unwrap().len(),
        1
    );
}

// ---------------------------------------------------------------- opening

#[test]
fn a_copied_spool_is_refused() {
    let spool = Spool::new();
    spool.accept(1, |_| {});
    let copy = Spool::new();
    for path in spool.names(&["."]) {
        let to = copy.path(&path);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(spool.path(&path), to).unwrap();
    }
    let store = copy.store();
    let before = copy.tree(&["."]);
    let refused = store.lock(&owner(NOW)).map(|_| ());
    let inode = |spool: &Spool| fs::metadata(spool.path("lock")).unwrap().ino();
    assert!(
        matches!(&refused, Err(StoreError::Copied { why, .. })
            if *why == format!("its lock is inode {}, and spool.json names inode {}", inode(&copy), inode(&spool))),
        "{refused:?}"
    );
    assert_eq!(copy.tree(&["."]), before, "nothing was touched");
    assert!(store.find(id(1)).unwrap().is_some(), "reading goes on");
}

#[test]
fn what_is_no_spool_of_this_format_is_refused() {
    let spool = Spool::new();
    let open = || FileStore::open(&spool.root, true).map(|_| ());
    let rows = [
        (r#"{"format":2,"future":true}"#, "too new"),
        (r#"{"format":1}"#, "bad"),
        ("{}", "bad"),
        ("", "bad"),
        ("[1", "bad"),
    ];
    for (text, want) in rows {
        fs::write(spool.path("spool.json"), text).unwrap();
        let got = match open() {
            Err(StoreError::FormatTooNew { found: 2, .. }) => "too new",
            Err(StoreError::BadSpoolFile { .. }) => "bad",
            other => panic!("{other:?}"),
        };
        assert_eq!(got, want, "{text}");
        assert!(FileStore::init(&spool.root, "", id(1).0, NOW).is_err());
        assert_eq!(fs::read_to_string(spool.path("spool.json")).unwrap(), text);
    }
    fs::remove_file(spool.path("spool.json")).unwrap();
    assert!(matches!(open(), Err(StoreError::Missing { .. })));
}

#[test]
fn another_users_spool_is_not_written() {
    let spool = Spool::new();
    let store = spool.store();
    // Only root can give a directory away.
    if std::os::unix::fs::chown(&spool.root, Some(12_345), None).is_err() {
        return;
    }
    assert!(matches!(
        store.check_owner(),
        Err(StoreError::NotOwner { owner: 12_345, .. })
    ));
    assert!(matches!(
        store.lock(&owner(NOW)).map(|_| ()),
        Err(StoreError::NotOwner { .. })
    ));
    assert!(matches!(
        check_owner_of(&spool.root),
        Err(StoreError::NotOwner { owner: 12_345, .. })
    ));
}

// ---------------------------------------------------------------- replay

/// What a crash leaves of one scripted session: directories at three times, and the journal.
struct Crashed {
    before: Tree,
    claimed: Tree,
    after: Tree,
    journal: Vec<u8>,
}

/// Items that take every way through a session: settled in five ways, put back, left in
/// flight, and held, released and cancelled in one session.
fn crashed() -> Crashed {
    let spool = Spool::new();
    for n in 1..=7 {
        spool.accept(n, |_| {});
    }
    spool.accept(8, |e| e.not_before = Some(NOW.plus(DAY_MS)));
    let before = spool.tree(&STATES);
    let store = spool.store();
    let mut session = store.lock(&owner(NOW)).unwrap();
    let claims = session.claim(&want(9), NOW, &mut claim_all).unwrap();
    let claimed = spool.tree(&STATES);
    settle(session.as_mut(), &claims[0], State::Confirmed, None);
    settle(session.as_mut(), &claims[1], State::Failed, None);
    let soon = Some(NOW.plus(MINUTE));
    settle(session.as_mut(), &claims[2], State::Pending, soon);
    settle(session.as_mut(), &claims[3], State::Unknown, None);
    session.put_back(&claims[4]).unwrap();
    settle(session.as_mut(), &claims[5], State::Held, None);
    for (kind, state) in [
        (EventKind::Released, State::Pending),
        (EventKind::Cancelled, State::Failed),
    ] {
        session.sync().unwrap();
        let found = store.find(id(6)).unwrap().unwrap();
        let mut decide = |_: &Item| {
            let event = by_hand(kind, NOW, state, None);
            Decision::Settle(Box::new(event), vec![])
        };
        assert!(session.change(&found, &mut decide).unwrap());
    }
    session.sync().unwrap();
    drop(session);
    let segments = spool.names(&["journal"]);
    assert_eq!(segments.len(), 1, "dropping a session does not close it");
    Crashed {
        before,
        claimed,
        after: spool.tree(&STATES),
        journal: fs::read(spool.path(&segments[0])).unwrap(),
    }
}

/// The items of a tree, by id: where, and with which events.
fn items_of(tree: &Tree) -> BTreeMap<RequestId, (String, Vec<Event>)> {
    let mut items = BTreeMap::new();
    for (path, (bytes, _)) in tree {
        let place = Place::parse(path).unwrap();
        let events = Item::parse(bytes).unwrap().item.events;
        let twice = items.insert(place.id, (path.clone(), events));
        assert!(twice.is_none(), "{path} and {twice:?}");
    }
    items
}

/// What must become of a tree by what survived of the journal: each item's events, and who is
/// to be given to recovery.
fn foretell(
    tree: &Tree,
    records: &[Record],
) -> (BTreeMap<RequestId, Vec<Event>>, BTreeSet<RequestId>, usize) {
    let mut items = items_of(tree);
    let mut notices = 0;
    for record in records {
        match record {
            Record::Claim { items: claims, .. } => {
                for claim in claims {
                    let from = Place::parse(&claim.from).unwrap();
                    let item = items.get_mut(&from.id).unwrap();
                    if item.0 == claim.from {
                        item.0 = from.claimed(claim.n).path();
                    }
                }
            }
            Record::Move(step) => {
                notices += step.notices.len();
                let item = items
                    .get_mut(&Place::parse(&step.from).unwrap().id)
                    .unwrap();
                if item.0 == step.from {
                    item.0.clone_from(&step.to);
                }
                // Wherever the file is by now: its event belongs to it.
                let fresh = item.1.len() < step.event_number;
                item.1.extend(step.event.clone().filter(|_| fresh));
            }
            Record::Tell { .. } | Record::Carry { .. } => panic!("not in this session"),
        }
    }
    let mut recovered = BTreeSet::new();
    let mut events = BTreeMap::new();
    for (id, (path, known)) in items {
        let attempts = known.iter().filter_map(|event| event.n).max().unwrap_or(0);
        if let Slot::Claimed(n) = Place::parse(&path).unwrap().slot
            && attempts < n
        {
            recovered.insert(id);
        }
        events.insert(id, known);
    }
    (events, recovered, notices)
}

/// Opens what a crash left, as the next tick does, and checks what the contract promises.
fn reopen(tree: &Tree, journal: &[u8], why: &str) -> Tree {
    let (mut events, interrupted_ids, notices) = foretell(tree, &journal::decode(journal));
    let spool = Spool::of(tree);
    fs::write(spool.path("journal/00000001.jsonl"), journal).unwrap();
    let store = spool.store();

    let mut session = store.lock(&owner(NOW)).unwrap();
    let mut recovered = BTreeSet::new();
    let mut decide = |item: &Interrupted| {
        assert!(item.claimed_at <= NOW && item.n == 1, "{why}");
        let id = item.item.envelope.request_id;
        assert!(recovered.insert(id), "{why}: {id} was given twice");
        let (event, notices) = interrupted(item);
        events.entry(id).or_default().push(event.clone());
        (event, notices)
    };
    session.recover(&mut decide).unwrap();
    assert!(session.met().set_aside.is_empty(), "{why}");
    session.close(NOW, None).unwrap();
    assert_eq!(recovered, interrupted_ids, "{why}");

    let end = spool.tree(&STATES);
    let mut items = items_of(&end);
    let told: usize = items
        .values()
        .filter(|(path, _)| path.starts_with("pending/ops/"))
        .map(|(path, _)| {
            let item = Item::parse(&end[path].0).unwrap().item;
            let body = item.envelope.request.body_bytes().unwrap().unwrap();
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            usize::try_from(body["count"].as_u64().unwrap()).unwrap()
        })
        .sum();
    assert_eq!(told, notices, "{why}");
    items.retain(|_, (path, _)| !path.starts_with("pending/ops/"));
    assert_eq!(items.len(), 8, "{why}");
    for (id, (path, known)) in items {
        assert_eq!(known, events[&id], "{why}: {path}");
        let place = Place::parse(&path).unwrap();
        assert!(!matches!(place.slot, Slot::Claimed(_)), "{why}: {path}");
        assert_eq!(place.state, known.last().unwrap().state, "{why}: {path}");
        assert!(!known.last().unwrap().is_parked() || place.slot == Slot::Parked);
    }
    assert!(
        spool.names(&["journal", "tmp", "corrupt"]).is_empty(),
        "{why}"
    );

    // Once more changes nothing. Within a line all cuts are alike.
    if !journal.ends_with(b"\n") {
        return end;
    }
    let mut session = store.lock(&owner(NOW)).unwrap();
    assert_eq!(session.recover(&mut interrupted).unwrap(), 0, "{why}");
    session.close(NOW, None).unwrap();
    assert_eq!(spool.tree(&STATES), end, "{why}");
    end
}

/// The journal cut at every byte, over the directories of one time.
fn cut_everywhere(pick: impl Fn(&Crashed) -> &Tree) {
    let crashed = crashed();
    for cut in 0..=crashed.journal.len() {
        let why = format!("cut at {cut}");
        reopen(pick(&crashed), &crashed.journal[..cut], &why);
    }
}

/// A loss of power that the directories did not survive.
#[test]
fn a_journal_cut_anywhere_over_the_first_directories() {
    cut_everywhere(|crashed| &crashed.before);
}

/// A loss of power after the claims' sync, or the death of the process.
#[test]
fn a_journal_cut_anywhere_over_the_claims() {
    cut_everywhere(|crashed| &crashed.claimed);
}

/// Directories ahead of the journal, which only a damaged journal brings.
#[test]
fn a_journal_cut_anywhere_over_the_last_directories() {
    cut_everywhere(|crashed| &crashed.after);
}

/// A whole journal over any mixture of renames and appends that a power loss kept or undid.
#[test]
fn whatever_of_the_directories_was_lost_the_end_is_the_same() {
    let crashed = crashed();
    let (old, new) = (items_of(&crashed.before), items_of(&crashed.after));
    let want = reopen(&crashed.after, &crashed.journal, "nothing lost");
    let want = items_of(&want);
    let moved = 6;
    for mixture in 0..4_usize.pow(moved) {
        let mut tree = Tree::new();
        for (index, id) in old.keys().enumerate() {
            let bits = mixture >> (2 * index);
            let pick = |new_one: bool| if new_one { &new[id].0 } else { &old[id].0 };
            let (place, contents) = (pick(bits & 1 == 1), pick(bits & 2 == 2));
            let either = crashed.after.get(contents).or(crashed.before.get(contents));
            tree.insert(place.clone(), either.unwrap().clone());
        }
        let end = reopen(&tree, &crashed.journal, &format!("mixture {mixture}"));
        assert!(items_of(&end) == want, "mixture {mixture}");
    }
}

/// An item that was recovered, claimed and confirmed, by a session that died. Its place.
fn recovered_and_confirmed(spool: &Spool) -> String {
    let store = spool.store();
    spool.plant(&format!("unknown/a/{}.1.jsonl", id(1)), &bytes_of(1, &[]));
    let mut session = store.lock(&owner(NOW)).unwrap();
    let mut due_now = |item: &Interrupted| {
        let mut event = attempt(item.n, NOW, State::Unknown, Some(NOW));
        event.claimed_at = Some(item.claimed_at);
        (event, vec![])
    };
    assert_eq!(session.recover(&mut due_now).unwrap(), 1);
    let claims = session.claim(&want(5), NOW, &mut claim_all).unwrap();
    settle(session.as_mut(), &claims[0], State::Confirmed, None);
    session.sync().unwrap();
    drop(session);
    let before = items_of(&spool.tree(&STATES));
    let (place, events) = &before[&id(1)];
    assert_eq!(events.len(), 3);
    place.clone()
}

/// Blocks of a file reach the disk in any order: a later event whole, a piece of an earlier one not.
#[test]
fn a_hole_before_an_event_is_filled_from_the_journal() {
    let spool = Spool::new();
    let place = &recovered_and_confirmed(&spool);
    let store = spool.store();
    let good = fs::read(spool.path(place)).unwrap();
    let from = bytes_of(1, &[]).len();
    for to in [from + 33, good.len() - 1] {
        let mut bytes = good.clone();
        bytes[from..to].fill(0);
        fs::write(spool.path(place), bytes).unwrap();
        let journal = fs::read(spool.path("journal/00000001.jsonl")).unwrap();
        // Who only looks reads it as it will be.
        let found = store.find(id(1)).unwrap().unwrap();
        let item = store.read(&found).unwrap().unwrap().unwrap();
        assert_eq!(item.events.len(), 3, "{from} to {to}");
        store.lock(&owner(NOW)).unwrap().close(NOW, None).unwrap();
        assert_eq!(fs::read(spool.path(place)).unwrap(), good, "{from} to {to}");
        fs::write(spool.path("journal/00000001.jsonl"), journal).unwrap();
    }
    assert!(spool.names(&["corrupt"]).is_empty());
}

/// As when a journal comes back that was done with.
#[test]
fn what_was_appended_after_the_journals_events_stays() {
    let spool = Spool::new();
    let place = &recovered_and_confirmed(&spool);
    let mut bytes = fs::read(spool.path(place)).unwrap();
    let later = attempt(2, NOW, State::Confirmed, None);
    bytes.extend(event_line(&later).unwrap());
    fs::write(spool.path(place), &bytes).unwrap();
    let store = spool.store();
    store.lock(&owner(NOW)).unwrap().close(NOW, None).unwrap();
    assert_eq!(fs::read(spool.path(place)).unwrap(), bytes);
}

/// There is nothing to append to, and nothing to wait for.
#[test]
fn what_is_no_file_any_more_keeps_no_journal() {
    let spool = Spool::new();
    let place = spool.path(&recovered_and_confirmed(&spool));
    fs::remove_file(&place).unwrap();
    fs::create_dir(&place).unwrap();
    let store = spool.store();
    store.lock(&owner(NOW)).unwrap().close(NOW, None).unwrap();
    assert_eq!(spool.names(&["journal"]), [""; 0]);
}

/// The journal knows of the events after it alone: they would stand in its place.
#[test]
fn a_hole_in_an_event_of_before_the_journal_is_left_as_it_is() {
    let spool = Spool::new();
    let place = &recovered_and_confirmed(&spool);
    let mut bytes = fs::read(spool.path(place)).unwrap();
    let from = bytes.iter().position(|b| *b == b'\n').unwrap() + 1;
    bytes[from..bytes_of(1, &[]).len() - 1].fill(0);
    fs::write(spool.path(place), &bytes).unwrap();
    let store = spool.store();
    store.lock(&owner(NOW)).unwrap().close(NOW, None).unwrap();
    assert_eq!(fs::read(spool.path(place)).unwrap(), bytes);
}

/// A power loss in the middle of a rename can leave both names.
#[test]
fn one_file_under_two_names_keeps_the_later() {
    for with_journal in [true, false] {
        let crashed = crashed();
        let spool = Spool::of(&crashed.before);
        let records = journal::decode(&crashed.journal);
        let is_claim = |record: &Record| matches!(record, Record::Claim { .. });
        let first = records.iter().position(is_claim).unwrap();
        let Record::Claim { items, .. } = &records[first] else {
            panic!("{first}");
        };
        if with_journal {
            let lines = crashed.journal.split_inclusive(|b| *b == b'\n');
            let lines: Vec<u8> = lines.take(first + 1).flatten().copied().collect();
            fs::write(spool.path("journal/00000001.jsonl"), lines).unwrap();
        }
        for claim in items {
            let to = Place::parse(&claim.from).unwrap().claimed(claim.n).path();
            fs::create_dir_all(spool.path("unknown/a")).unwrap();
            fs::hard_link(spool.path(&claim.from), spool.path(&to)).unwrap();
        }
        let store = spool.store();
        let mut session = store.lock(&owner(NOW)).unwrap();
        assert_eq!(session.recover(&mut interrupted).unwrap(), 7);
        let claims = session.claim(&want(9), NOW, &mut claim_all).unwrap();
        assert!(claims.is_empty());
        session.close(NOW, None).unwrap();
        let items = items_of(&spool.tree(&STATES));
        let unknown = |(path, events): &&(String, Vec<Event>)| {
            path.starts_with("unknown/a/2") && events.len() == 2
        };
        assert_eq!(items.values().filter(unknown).count(), 7);
        assert_eq!(items.len(), 8);
        assert!(spool.names(&["corrupt"]).is_empty());
    }
}

/// The same of a file that was set aside: else every tick would tell of its two names.
#[test]
fn a_file_set_aside_under_two_names_keeps_the_one_in_corrupt() {
    let spool = Spool::new();
    let (from, to) = ("incoming/a/x.json", "corrupt/x.json");
    fs::create_dir_all(spool.path("incoming/a")).unwrap();
    fs::write(spool.path(from), "no item").unwrap();
    fs::hard_link(spool.path(from), spool.path(to)).unwrap();
    let step = journal::MoveRecord {
        from: from.to_owned(),
        to: to.to_owned(),
        event: None,
        event_number: 0,
        turn: None,
        why: Some("it is none".to_owned()),
        file: None,
        notices: Vec::new(),
    };
    let mut journal = journal::Journal::begin(&RealDisk, &spool.path(""), 1).unwrap();
    journal.append(&Record::Move(Box::new(step))).unwrap();
    journal.sync().unwrap();
    drop(journal);
    let store = spool.store();
    let session = store.lock(&owner(NOW)).unwrap();
    session.close(NOW, None).unwrap();
    assert!(!spool.path(from).exists());
    assert_eq!(fs::read(spool.path(to)).unwrap(), b"no item");
}

/// The record that the claims stand on must not go with a full journal segment.
/// Whoever accepted a fresh item may have died before its directory was synced.
#[test]
fn what_a_command_builds_on_is_durable() {
    let spool = Spool::new();
    spool.accept(1, |_| {});
    let disk = FaultDisk::default();
    let trace = Rc::clone(&disk.trace);
    let store = spool.store_on(Gated(disk));
    let mut session = store.lock(&owner(NOW)).unwrap();
    let found = store.find(id(1)).unwrap().unwrap();
    trace.borrow_mut().calls.clear();
    let mut hold = |_: &Item| {
        let event = by_hand(EventKind::Held, NOW, State::Held, None);
        Decision::Settle(Box::new(event), vec![])
    };
    assert!(session.change(&found, &mut hold).unwrap());
    let calls = &trace.borrow().calls;
    let at = |is: &dyn Fn(&String) -> bool| calls.iter().position(is);
    let synced = at(&|call| call.starts_with("sync_dir") && call.ends_with("pending/a"));
    let recorded = at(&|call| call.starts_with("log append"));
    assert!(synced.is_some() && synced < recorded, "{calls:?}");
}

#[test]
fn a_full_journal_keeps_the_claims() {
    let spool = Spool::new();
    for n in 1..=3 {
        spool.accept(n, |_| {});
    }
    let disk = FaultDisk::default();
    let trace = Rc::clone(&disk.trace);
    let store = spool.store_on(Gated(disk));
    let mut session = store.lock(&owner(NOW)).unwrap();
    let first = session.claim(&want(1), NOW, &mut claim_all).unwrap();
    let mut event = attempt(1, NOW, State::Held, None);
    let notices = Notice::of(&first[0].item, &event, 2, &[dest("ops")]);
    event.note = Some("x".repeat(usize::try_from(journal::SEGMENT_BYTES).unwrap()));
    session.settle(&first[0], event, notices).unwrap();
    let claims = session.claim(&want(1), NOW, &mut claim_all).unwrap();
    assert_eq!(session.tight(), None);
    let claimed = format!("unknown/a/{}.1.jsonl", id(2));
    assert!(spool.path(&claimed).exists());
    // Durable means: named by a record in the journal, or renamed before a sync of everything.
    let segments = spool.names(&["journal"]);
    assert_eq!(segments.len(), 1);
    let records = journal::decode(&fs::read(spool.path(&segments[0])).unwrap());
    let from = format!("pending/a/{}.jsonl", id(2));
    let recorded = records
        .iter()
        .any(|record| matches!(record, Record::Claim { items, .. } if items[0].from == from));
    let calls = trace.borrow();
    let last = |what: &str| calls.calls.iter().rposition(|call| call.contains(what));
    let synced = last("sync_all") > last(&claimed);
    assert!(recorded || synced, "{:?}", calls.calls);
    drop(calls);

    // What was in flight and what was to be told is known from the new segment.
    drop(session);
    let later = NOW.plus(MINUTE);
    let mut session = store.lock(&owner(later)).unwrap();
    let mut at = None;
    let mut decide = |item: &Interrupted| {
        at = Some((item.item.envelope.request_id, item.claimed_at));
        interrupted(item)
    };
    assert_eq!(session.recover(&mut decide).unwrap(), 1);
    assert_eq!(at, Some((claims[0].item.envelope.request_id, NOW)));
    session.close(later, None).unwrap();
    assert_eq!(spool.names(&["pending/ops"]).len(), 1);
    assert_eq!(spool.names(&["held"]).len(), 1);
}

/// A settle that was not synced survives the death of the process, and readers know it.
#[test]
fn a_settle_that_was_not_flushed_is_not_lost() {
    let spool = Spool::new();
    spool.accept(1, |_| {});
    let store = spool.store();
    let mut session = store.lock(&owner(NOW)).unwrap();
    let claims = session.claim(&want(1), NOW, &mut claim_all).unwrap();
    settle(session.as_mut(), &claims[0], State::Confirmed, None);
    drop(session);
    assert_eq!(spool.items(), [format!("unknown/a/{}.1.jsonl", id(1))]);
    let found = store.find(id(1)).unwrap().unwrap();
    assert_eq!(found.state, State::Confirmed);
    let item = store.read(&found).unwrap().unwrap().unwrap();
    assert_eq!(item.events.len(), 2);
    let mut session = store.lock(&owner(NOW)).unwrap();
    assert_eq!(session.recover(&mut interrupted).unwrap(), 0);
    session.close(NOW, None).unwrap();
    assert_eq!(
        spool.items(),
        [format!("confirmed/a/20261129/{}.jsonl", id(1))]
    );
}

/// An event that a loss of power took from a file that has arrived is still in the journal.
#[test]
fn readers_know_events_that_the_file_lost_after_it_arrived() {
    let spool = Spool::new();
    spool.accept(1, |_| {});
    let store = spool.store();
    let mut session = store.lock(&owner(NOW)).unwrap();
    let claims = session.claim(&want(1), NOW, &mut claim_all).unwrap();
    settle(session.as_mut(), &claims[0], State::Confirmed, None);
    session.sync().unwrap();
    drop(session);
    let place = format!("confirmed/a/20261129/{}.jsonl", id(1));
    fs::write(spool.path(&place), bytes_of(1, &[])).unwrap();
    let found = store.find(id(1)).unwrap().unwrap();
    let item = store.read(&found).unwrap().unwrap().unwrap();
    assert_eq!(item.events.len(), 2);
    assert_eq!(item.standing().attempts, 1);
}

/// An item that moves from before a reader's walk to behind it is found all the same, once.
#[test]
fn a_reader_misses_nothing_while_items_move() {
    let spool = Spool::new();
    let store = spool.store();
    spool.accept(1, |_| {});
    let hold = |item: &Item| {
        let mut event = Event::new(EventKind::Held, NOW, State::Held);
        event.by = Some(item.envelope.request_id.to_string());
        Decision::Settle(Box::new(event), Vec::new())
    };
    let release = |_: &Item| {
        let event = Event::new(EventKind::Released, NOW, State::Pending);
        Decision::Settle(Box::new(event), Vec::new())
    };
    let change = |n: u64, decide: &dyn Fn(&Item) -> Decision| {
        let found = store.find(id(n)).unwrap().unwrap();
        let mut session = store.lock(&owner(NOW)).unwrap();
        assert!(session.change(&found, &mut |item| decide(item)).unwrap());
        session.close(NOW, None).unwrap();
    };
    for n in 2..=5 {
        spool.accept(n, |_| {});
        change(n, &hold);
    }
    // While the first, a pending one, is handed on, the held ones are given back.
    let mut seen = Vec::new();
    store
        .scan(&Scope::default(), &mut |found| {
            if seen.is_empty() {
                (2..=5).for_each(|n| change(n, &release));
            }
            seen.push(found.id);
            Ok(())
        })
        .unwrap();
    seen.sort();
    assert_eq!(seen, (1..=5).map(id).collect::<Vec<_>>());
}

// ---------------------------------------------------------------- damage

#[test]
fn a_torn_tail_is_cut_before_the_next_append() {
    let whole = attempt(1, NOW, State::Pending, Some(NOW));
    let lost = event_line(&attempt(2, NOW, State::Confirmed, None)).unwrap();
    let half = &lost[..lost.len() / 2];
    let tails: [&[u8]; 6] = [
        b"",
        &lost[..lost.len() - 1],
        half,
        &[0; 512],
        &[half, &[0; 100]].concat(),
        b"\n\n",
    ];
    for (row, tail) in tails.iter().enumerate() {
        let spool = Spool::new();
        let good = bytes_of(1, std::slice::from_ref(&whole));
        let place = format!("pending/a/{}.jsonl", id(1));
        spool.plant(&place, &[&good, *tail].concat());
        let store = spool.store();
        let mut session = store.lock(&owner(NOW)).unwrap();
        let claims = session.claim(&want(1), NOW, &mut claim_all).unwrap();
        assert_eq!((claims.len(), claims[0].n), (1, 2), "row {row}");
        settle(session.as_mut(), &claims[0], State::Failed, None);
        session.close(NOW, None).unwrap();
        let end = attempt(2, NOW, State::Failed, None);
        let path = format!("failed/a/20261129/{}.jsonl", id(1));
        assert_eq!(
            fs::read(spool.path(&path)).unwrap(),
            bytes_of(1, &[whole.clone(), end]),
            "row {row}"
        );
        assert!(spool.names(&["corrupt"]).is_empty());
    }
}

#[test]
fn what_cannot_be_read_is_set_aside_and_told() {
    let good = bytes_of(1, &[attempt(1, NOW, State::Pending, None)]);
    let text = String::from_utf8(good.clone()).unwrap();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let sum = tickpost::model::envelope::sha256_hex(b"{\"n\":1}");
    let wrong_body = {
        let mut envelope = envelope(1);
        envelope.request.body_sha256 = sum.replace(|c: char| c.is_ascii_digit(), "0");
        Item::accept(envelope, accepted()).unwrap().1
    };
    let elsewhere = {
        let mut envelope = envelope(1);
        envelope.destination = dest("b");
        Item::accept(envelope, accepted()).unwrap().1
    };
    let rows: [(&str, Vec<u8>); 12] = [
        ("the file is empty", vec![]),
        ("the first line is cut off", good[..40].to_vec()),
        ("the envelope cannot be read", b"{}\n{}\n".to_vec()),
        (
            "the envelope cannot be read",
            vec![0; 4096].into_iter().chain([b'\n']).collect(),
        ),
        ("the second line is not", lines[0].into()),
        (
            "the second line is not",
            [lines[0], lines[2]].concat().into(),
        ),
        (
            "does not match the SHA-256 of its acceptance",
            text.replace("POST", "PUST").into(),
        ),
        (
            "does not match the SHA-256 of its acceptance",
            text.replace("/x", "/y").into(),
        ),
        ("the body does not match", wrong_body),
        ("the envelope says b", elsewhere),
        ("the envelope says", bytes_of(2, &[])),
        (
            "line 3 is damaged",
            [lines[0], lines[1], "{\"ev\n", lines[2]].concat().into(),
        ),
    ];
    for (why, bytes) in rows {
        let spool = Spool::new();
        let name = format!("{}.jsonl", id(1));
        spool.plant(&format!("pending/a/{name}"), &bytes);
        spool.accept(3, |_| {});
        set_aside_and_tell(&spool, why, &name);
        assert_eq!(
            fs::read(spool.path(&format!("corrupt/{name}"))).unwrap(),
            bytes
        );
    }
    // Too large to be looked at: a hole costs no space.
    let spool = Spool::new();
    let name = format!("{}.jsonl", id(1));
    spool.plant(&format!("pending/a/{name}"), &good);
    let file = fs::OpenOptions::new()
        .write(true)
        .open(spool.path(&format!("pending/a/{name}")))
        .unwrap();
    file.set_len(tickpost::store::file::ITEM_BYTES_MAX + 1)
        .unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    drop(file);
    spool.accept(3, |_| {});
    set_aside_and_tell(&spool, "it is too large", &name);
}

fn set_aside_and_tell(spool: &Spool, why: &str, name: &str) {
    let store = spool.store();
    let told = [dest("ops"), dest("chat")];
    let who = Owner {
        told_of_corrupt: &told,
        ..owner(NOW)
    };
    let mut session = store.lock(&who).unwrap();
    let claims = session.claim(&want(5), NOW, &mut claim_all).unwrap();
    assert_eq!(claims.len(), 1, "{why}: a bad item costs one item");
    let met = session.met().set_aside.clone();
    assert_eq!((met.len(), met[0].name.as_str()), (1, name), "{why}");
    assert!(met[0].why.contains(why), "{}", met[0].why);
    settle(session.as_mut(), &claims[0], State::Confirmed, None);
    session.close(NOW, None).unwrap();
    let reason = fs::read_to_string(spool.path(&format!("corrupt/{name}.why.json"))).unwrap();
    let reason: serde_json::Value = serde_json::from_str(&reason).unwrap();
    assert_eq!(reason["from"], met[0].from.as_str());
    assert!(reason["reason"].as_str().unwrap().contains(why), "{reason}");
    let notices = [
        spool.names(&["pending/chat"]),
        spool.names(&["pending/ops"]),
    ];
    assert_eq!(notices.map(|names| names.len()), [1, 1], "{why}");
    assert_eq!(store.counts().unwrap().corrupt, 1);
}

/// The names of the file and of its reason become durable each for itself.
#[test]
fn a_reason_that_the_power_took_is_written_again() {
    let spool = Spool::new();
    let store = spool.store();
    let name = format!("{}.jsonl", id(1));
    spool.plant(&format!("pending/a/{name}"), b"bad");
    let mut session = store.lock(&owner(NOW)).unwrap();
    session.claim(&want(5), NOW, &mut claim_all).unwrap();
    session.sync().unwrap();
    drop(session);
    let why = spool.path(&format!("corrupt/{name}.why.json"));
    let before = fs::read(&why).unwrap();
    fs::remove_file(&why).unwrap();
    store.lock(&owner(NOW)).unwrap().close(NOW, None).unwrap();
    assert_eq!(fs::read(&why).unwrap(), before);
    assert_eq!(spool.names(&["corrupt"]).len(), 2);
}

#[test]
fn a_second_bad_file_of_one_name_is_kept_beside_the_first() {
    let spool = Spool::new();
    let store = spool.store();
    let told = [dest("ops")];
    let name = format!("{}.jsonl", id(1));
    for round in 1..=3 {
        spool.plant(
            &format!("pending/a/{name}"),
            format!("bad {round}").as_bytes(),
        );
        let who = Owner {
            told_of_corrupt: &told,
            ..owner(NOW)
        };
        let mut session = store.lock(&who).unwrap();
        session.claim(&want(5), NOW, &mut claim_all).unwrap();
        session.sync().unwrap();
        // The next one is there before the session that set the first aside is replayed.
        spool.plant(&format!("pending/a/{name}"), &bytes_of(1, &[]));
        drop(session);
        store.lock(&owner(NOW)).unwrap().close(NOW, None).unwrap();
        assert_eq!(spool.names(&["pending/a"]).len(), 1, "the good one stays");
        fs::remove_file(spool.path(&format!("pending/a/{name}"))).unwrap();
        assert_eq!(spool.names(&["corrupt"]).len(), 2 * round);
        assert_eq!(
            spool.names(&["pending/ops"]).len(),
            round,
            "each is told of"
        );
    }
}

#[test]
fn a_newer_item_is_left_and_reported() {
    let spool = Spool::new();
    let newer = String::from_utf8(bytes_of(1, &[])).unwrap();
    let newer = newer.replacen("\"v\":1", "\"v\":2", 1);
    let place = format!("pending/a/{}.jsonl", id(1));
    spool.plant(&place, newer.as_bytes());
    let store = spool.store();
    let mut session = store.lock(&owner(NOW)).unwrap();
    assert!(
        session
            .claim(&want(5), NOW, &mut claim_all)
            .unwrap()
            .is_empty()
    );
    assert!(session.met().set_aside.is_empty());
    assert_eq!(session.met().foreign.len(), 1);
    session.close(NOW, None).unwrap();
    assert_eq!(spool.items(), [place]);
    let found = store.find(id(1)).unwrap().unwrap();
    assert!(matches!(
        store.read(&found).unwrap(),
        Some(Err(Damage::Newer(2)))
    ));
}

#[test]
fn what_does_not_belong_is_left_and_reported_once() {
    let spool = Spool::new();
    let secret = spool.path("secret");
    fs::write(&secret, bytes_of(1, &[])).unwrap();
    spool.accept(9, |_| {});
    for (state, n) in [("pending", 20), ("unknown", 30), ("held", 40)] {
        let at = |name: String| {
            let path = spool.path(&format!("{state}/a/{name}"));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            path
        };
        std::os::unix::fs::symlink(&secret, at(format!("{}.jsonl", id(n)))).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let fifo = at(format!("{}.jsonl", id(n + 1)));
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, mode, 0).unwrap();
        fs::create_dir(at(format!("{}.jsonl", id(n + 2)))).unwrap();
        fs::write(at("notes.txt".to_owned()), "").unwrap();
        fs::write(at(format!("{}.01.jsonl", id(n))), "").unwrap();
        let odd = OsString::from_vec(b"\xff\xfe.jsonl".to_vec());
        fs::write(at(String::new()).join(odd), "").unwrap();
    }
    fs::write(spool.path("unknown/file"), "").unwrap();
    std::os::unix::fs::symlink(spool.path("pending/a"), spool.path("pending/b")).unwrap();
    fs::create_dir(spool.path("pending/UPPER")).unwrap();
    fs::write(spool.path("unknown/c"), "a file where a directory belongs").unwrap();
    fs::create_dir(spool.path("pending/c")).unwrap();

    let store = spool.store();
    let mut session = store.lock(&owner(NOW)).unwrap();
    assert_eq!(session.recover(&mut interrupted).unwrap(), 0);
    let names = session.destinations().unwrap();
    assert_eq!(names, [dest("a"), dest("c")]);
    for _ in 0..2 {
        session.destinations().unwrap();
        for name in ["a", "b", "c"] {
            let mut wants = want(5);
            wants[0].destination = dest(name);
            for claim in session.claim(&wants, NOW, &mut claim_all).unwrap() {
                settle(session.as_mut(), &claim, State::Confirmed, None);
            }
            session.wake(&dest(name), NOW, 9, &mut claim_all).unwrap();
            session.reconsider(&dest(name), &mut claim_all).unwrap();
        }
        session.recover(&mut interrupted).unwrap();
    }
    let met = session.met().clone();
    assert!(met.set_aside.is_empty(), "{met:?}");
    let once: BTreeSet<&String> = met.foreign.iter().collect();
    assert_eq!(once.len(), met.foreign.len(), "{:#?}", met.foreign);
    assert_eq!(
        once.len(),
        18,
        "six in each of two states, four, and two that are not usable: {once:#?}"
    );
    session.close(NOW, None).unwrap();

    let counts = store.counts().unwrap();
    // Some stand in the place of an item, and are told of as such.
    let told = [&counts.foreign, &counts.unreadable].map(Vec::len);
    assert_eq!(told, [13, 9], "{counts:#?}");
    assert_eq!(
        counts.destinations["a"],
        BTreeMap::from([(State::Confirmed, 1)])
    );
    for n in [20, 21, 22, 30, 41, 42] {
        assert!(store.find(id(n)).unwrap().is_none(), "{n}");
    }
    let mut seen = 0;
    let mut each = |_: &tickpost::store::Found| {
        seen += 1;
        Ok(())
    };
    store.scan(&Scope::default(), &mut each).unwrap();
    assert_eq!(seen, 1);
}

// ---------------------------------------------------------------- disagreement

#[test]
fn an_item_in_the_wrong_place_goes_where_its_events_say() {
    let done = attempt(1, NOW, State::Confirmed, None);
    let parked = attempt(1, NOW, State::Unknown, None);
    let held = attempt(1, NOW, State::Held, Some(NOW.plus(9 * MINUTE)));
    let later = attempt(1, NOW, State::Pending, Some(NOW.plus(9 * MINUTE)));
    let name = format!("{}.jsonl", id(1));
    let claimed = format!("{}.1.jsonl", id(1));
    let rows = [
        ("pending/a", &name, &done, "confirmed/a/20261129"),
        ("pending/a", &name, &held, "held/a/20261129T1549Z"),
        (
            "pending/a/20261129T1540Z",
            &name,
            &parked,
            "unknown/a/parked",
        ),
        (
            "unknown/a/20261129T1539Z",
            &name,
            &parked,
            "unknown/a/parked",
        ),
        ("unknown/a", &claimed, &done, "confirmed/a/20261129"),
        ("unknown/a", &claimed, &later, "pending/a/20261129T1549Z"),
        (
            "held/a/20261129T1539Z",
            &name,
            &done,
            "confirmed/a/20261129",
        ),
        (
            "held/a/20261129T1539Z",
            &name,
            &held,
            "held/a/20261129T1549Z",
        ),
    ];
    for (dir, name_there, event, want_dir) in rows {
        let spool = Spool::new();
        let bytes = bytes_of(1, std::slice::from_ref(event));
        spool.plant(&format!("{dir}/{name_there}"), &bytes);
        let store = spool.store();
        let mut session = store.lock(&owner(NOW)).unwrap();
        let mut no = |_: &Item| panic!("nothing to decide: {dir} {event:?}");
        let mut never = |_: &Interrupted| panic!("it was not interrupted");
        session.recover(&mut never).unwrap();
        session.wake(&dest("a"), NOW, 9, &mut no).unwrap();
        session.claim(&want(9), NOW, &mut no).unwrap();
        session.close(NOW, None).unwrap();
        assert_eq!(spool.items(), [format!("{want_dir}/{name}")], "{dir}");
        assert_eq!(
            fs::read(spool.path(&format!("{want_dir}/{name}"))).unwrap(),
            bytes
        );
    }
}

#[test]
fn a_files_time_is_only_a_hint() {
    // As after a restore: every file's time is another than its item says.
    let spool = Spool::new();
    let at = |n: u64| NOW.plus(n * 40 * MINUTE);
    for n in 1..=5 {
        spool.accept(n, |e| e.not_before = (n > 1).then(|| at(n)));
    }
    let touch = |to: UnixMs| {
        for path in spool.items() {
            RealDisk.set_mtime(&spool.path(&path), to).unwrap();
        }
    };
    let store = spool.store();
    let mut claimed = Vec::new();
    for (touched, now) in [(NOW.plus(99 * DAY_MS), NOW), (UnixMs(0), at(4))] {
        touch(touched);
        let mut session = store.lock(&owner(now)).unwrap();
        let mut decide = |item: &Item| {
            if item.is_due(now) {
                Decision::Claim
            } else {
                Decision::Wait
            }
        };
        for claim in session.claim(&want(9), now, &mut decide).unwrap() {
            claimed.push((claim.item.envelope.request_id, now));
            settle(session.as_mut(), &claim, State::Confirmed, None);
        }
        session.close(now, None).unwrap();
    }
    // Their order within a day is the hint's.
    claimed.sort();
    assert_eq!(
        claimed,
        [(id(1), NOW), (id(2), at(4)), (id(3), at(4)), (id(4), at(4))]
    );
    let last = format!("pending/a/{}/{}.jsonl", at(5).minute_name(), id(5));
    assert!(spool.path(&last).exists());
    assert_eq!(RealDisk.stat(&spool.path(&last)).unwrap().mtime, at(5));
}

#[test]
fn a_file_that_tells_a_later_time_than_its_item_keeps_its_turn() {
    let spool = Spool::new();
    for n in 1..=3 {
        spool.accept(n, |_| {});
    }
    for (n, at) in [(1, NOW), (2, NOW.plus(99 * DAY_MS)), (3, NOW)] {
        let path = format!("pending/a/{}.jsonl", id(n));
        RealDisk.set_mtime(&spool.path(&path), at).unwrap();
    }
    let store = spool.store();
    let mut session = store.lock(&owner(NOW)).unwrap();
    let claims = session.claim(&want(9), NOW, &mut claim_all).unwrap();
    let order: Vec<RequestId> = claims.iter().map(|c| c.item.envelope.request_id).collect();
    assert_eq!(order, [1, 2, 3].map(id));
}

/// So a tick looks at the times of those alone whose hour is near.
#[test]
fn what_comes_near_in_its_day_is_filed_by_its_minute() {
    let spool = Spool::new();
    let at = |hours: u64| NOW.plus(hours * 60 * MINUTE);
    for n in [4, 7] {
        spool.accept(n, |e| e.not_before = Some(at(n)));
    }
    let path = |n: u64, dir: String| format!("pending/a/{dir}/{}.jsonl", id(n));
    let day = |n| path(n, at(n).day_name());
    let near = path(4, at(4).minute_name());
    for (now, items) in [(NOW, [day(4), day(7)]), (at(3), [day(7), near])] {
        let store = spool.store();
        let mut session = store.lock(&owner(now)).unwrap();
        let claims = session.claim(&want(9), now, &mut claim_all).unwrap();
        assert!(claims.is_empty());
        session.close(now, None).unwrap();
        assert_eq!(spool.items(), items);
    }
}

#[test]
fn a_minute_of_held_items_goes_when_it_is_empty() {
    let spool = Spool::new();
    let held = attempt(1, NOW, State::Held, Some(NOW));
    let dir = format!("held/a/{}", NOW.minute_name());
    spool.plant(&format!("{dir}/{}.jsonl", id(1)), &bytes_of(1, &[held]));
    let store = spool.store();
    let mut release = |_: &Item| {
        let event = by_hand(EventKind::Released, NOW, State::Pending, None);
        Decision::Settle(Box::new(event), vec![])
    };
    for woken in [1, 0] {
        let mut session = store.lock(&owner(NOW)).unwrap();
        assert_eq!(
            session.wake(&dest("a"), NOW, 9, &mut release).unwrap(),
            woken
        );
        session.close(NOW, None).unwrap();
    }
    assert_eq!(spool.items(), [format!("pending/a/{}.jsonl", id(1))]);
    assert!(!spool.path(&dir).exists());
}

#[test]
fn a_directory_within_that_of_a_minute_is_told() {
    let spool = Spool::new();
    let strange = format!("pending/a/{0}/{0}", NOW.minute_name());
    fs::create_dir_all(spool.path(&strange)).unwrap();
    assert_eq!(spool.store().counts().unwrap().foreign, [strange]);
}

/// How many of the files in `incoming/a` are looked at together, where some are left for later.
fn looked_at_together(spool: &Spool) -> usize {
    let store = spool.store();
    let mut session = store.lock(&owner(NOW)).unwrap();
    let mut looks = 0;
    let mut refuse = |_: &Dropped<'_>| {
        looks += 1;
        Intake::Refuse("it is no item".to_owned())
    };
    let taken = session.take_in(&dest("a"), 1 << 20, &Limits::NONE, &mut refuse);
    assert!(taken.unwrap().left);
    looks
}

#[test]
fn what_is_taken_in_together_is_bounded_in_bytes() {
    let spool = Spool::in_memory();
    fs::create_dir_all(spool.path("incoming/a")).unwrap();
    for n in 1..=6 {
        let path = spool.path(&format!("incoming/a/{n}.json"));
        fs::write(path, vec![b' '; 1 << 20]).unwrap();
    }
    assert_eq!(looked_at_together(&spool), 4);
}

#[test]
fn what_is_taken_in_together_is_bounded_in_files() {
    let spool = Spool::in_memory();
    fs::create_dir_all(spool.path("incoming/a")).unwrap();
    for n in 1..=201 {
        fs::write(spool.path(&format!("incoming/a/{n}.json")), "{}").unwrap();
    }
    assert_eq!(looked_at_together(&spool), 200);
}

#[test]
fn a_drop_that_repeats_a_key_is_counted_as_known() {
    let spool = Spool::new();
    fs::create_dir_all(spool.path("incoming/a")).unwrap();
    for name in ["x", "y"] {
        fs::write(spool.path(&format!("incoming/a/{name}.json")), "{}").unwrap();
    }
    let store = spool.store();
    let mut session = store.lock(&owner(NOW)).unwrap();
    let mut next = 0;
    let mut decide = |_: &Dropped<'_>| {
        next += 1;
        let mut envelope = envelope(next);
        envelope.request = common::envelope(1).request;
        envelope.key = Some("k".to_owned());
        Intake::Accept(Box::new(Offer {
            envelope,
            accepted: accepted(),
            own_id: false,
            body: None,
        }))
    };
    let taken = session.take_in(&dest("a"), 1 << 20, &Limits::NONE, &mut decide);
    let taken = taken.unwrap();
    assert_eq!((taken.accepted, taken.known), (1, 1));
}

#[test]
fn no_more_is_looked_at_than_is_asked_for() {
    let spool = Spool::new();
    for n in 1..=5 {
        spool.accept(n, |_| {});
    }
    let store = spool.store();
    let mut session = store.lock(&owner(NOW)).unwrap();
    let mut wants = want(5);
    wants[0].looks_max = 2;
    let mut looks = 0;
    let mut leave = |_: &Item| {
        looks += 1;
        Decision::Leave
    };
    session.claim(&wants, NOW, &mut leave).unwrap();
    assert_eq!(looks, 2);
}

/// In a drop box names are as long as the file system lets them be.
#[test]
fn a_long_name_stays_within_its_bounds() {
    // Each bound is in the midst of a letter.
    let name = format!("x{}.json", "é".repeat(120));
    for refused in [true, false] {
        let spool = Spool::new();
        fs::create_dir_all(spool.path("incoming/a")).unwrap();
        fs::write(spool.path(&format!("incoming/a/{name}")), "{}").unwrap();
        let store = spool.store();
        let mut session = store.lock(&owner(NOW)).unwrap();
        let mut decide = |_: &Dropped<'_>| {
            if refused {
                return Intake::Refuse("it is no item".to_owned());
            }
            Intake::Accept(Box::new(Offer {
                envelope: envelope(1),
                accepted: accepted(),
                own_id: false,
                body: None,
            }))
        };
        // There is no room: what was named stays.
        let limits = Limits {
            items_max: Some(0),
            ..Limits::NONE
        };
        let box_of = dest("a");
        session
            .take_in(&box_of, 1 << 20, &limits, &mut decide)
            .unwrap();
        session.close(NOW, None).unwrap();
        let start = format!("x{}", "é".repeat(99));
        if refused {
            assert!(spool.path(&format!("corrupt/{start}.why.json")).exists());
        } else {
            let taking = format!("incoming/a/{start}.{}.taking", id(1));
            assert_eq!(spool.names(&["incoming"]), [taking]);
        }
    }
}

/// Whose it is, nobody can tell.
#[test]
fn an_id_of_a_file_that_cannot_be_read_and_that_nobody_reserved_is_taken() {
    let spool = Spool::new();
    spool.plant(&format!("pending/a/{}.jsonl", id(1)), b"garbage");
    let taken = Refusal::IdTaken { id: id(1) };
    assert_eq!(
        offer_own_id(&spool.store(), 1, &Limits::NONE),
        Answer::Refused(taken)
    );
}

#[test]
fn an_id_of_a_callers_own_is_reserved_in_one_go() {
    let spool = Spool::new();
    let disk = FaultDisk::default();
    let trace = Rc::clone(&disk.trace);
    let store = spool.store_on(Gated(disk));
    assert_eq!(offer_own_id(&store, 1, &Limits::NONE), Answer::New(id(1)));
    let calls = &trace.borrow().calls;
    let named = |call: &&String| call.contains("keys/_ids/") && !call.starts_with("sync");
    assert_eq!(calls.iter().filter(named).count(), 1, "{calls:?}");
}

/// A group is bounded in bytes too.
#[test]
fn large_items_are_claimed_a_few_at_once() {
    let spool = Spool::new();
    let store = spool.store();
    for n in 1..=6 {
        let text = "x".repeat(1_200_000);
        let mut large = envelope(n);
        large.request.body_sha256 = sha256_hex(text.as_bytes());
        large.request.body = Some(Body::Text(text));
        store.accept(large, accepted()).unwrap();
    }
    let mut session = store.lock(&owner(NOW)).unwrap();
    for wanted in [4, 2, 0] {
        let claims = session.claim(&want(9), NOW, &mut claim_all).unwrap();
        assert_eq!(claims.len(), wanted);
    }
}

/// What expires of a suspended destination is looked at so.
#[test]
fn nothing_is_claimed_where_nothing_is_wanted() {
    let spool = Spool::new();
    let store = spool.store();
    store.accept(envelope(1), accepted()).unwrap();
    let mut session = store.lock(&owner(NOW)).unwrap();
    let claims = session.claim(&want(0), NOW, &mut claim_all).unwrap();
    assert!(claims.is_empty());
    assert_eq!(store.find(id(1)).unwrap().unwrap().state, State::Pending);
}

#[test]
fn as_many_wait_as_may() {
    let spool = Spool::new();
    let limits = Limits {
        items_max: Some(3),
        ..Limits::NONE
    };
    let store = spool.store();
    for n in 1..=3 {
        assert_eq!(offer_own_id(&store, n, &limits), Answer::New(id(n)));
    }
    let full = Answer::Full(Full::Items(3));
    assert_eq!(offer_own_id(&store, 4, &limits), full);
}

#[test]
fn what_is_just_enough_room_is_enough() {
    let limits = Limits {
        items_max: None,
        free_bytes_min: 10,
        free_files_min: 5,
    };
    for (free_bytes, free_files, full) in [
        (10, 5, None),
        (9, 5, Some(Full::Bytes(9))),
        (10, 4, Some(Full::Files(4))),
    ] {
        let room = Room {
            free_bytes,
            free_files,
            items: 0,
        };
        assert_eq!(limits.fit(&room).1, full);
    }
}

fn offer_own_id(store: &FileStore, n: u64, limits: &Limits) -> Answer {
    let offer = Offer {
        envelope: envelope(n),
        accepted: accepted(),
        own_id: true,
        body: None,
    };
    let mut answers = Vec::new();
    store.accept_all(vec![offer], limits, &mut answers).unwrap();
    answers.remove(0)
}

/// Two files of one id, which no operation makes: the one that the journal moves goes on.
#[test]
fn another_file_in_the_way_is_set_aside() {
    let told = [dest("ops")];
    let who = Owner {
        told_of_corrupt: &told,
        ..owner(NOW)
    };
    let other = bytes_of(1, &[by_hand(EventKind::Held, NOW, State::Held, None)]);
    let in_the_way = format!("confirmed/a/20261129/{}.jsonl", id(1));
    for crash in [false, true] {
        let spool = Spool::new();
        spool.accept(1, |_| {});
        let store = spool.store();
        let mut session = store.lock(&who).unwrap();
        let claims = session.claim(&want(1), NOW, &mut claim_all).unwrap();
        // Before it is claimed, it would be found there.
        spool.plant(&in_the_way, &other);
        settle(session.as_mut(), &claims[0], State::Confirmed, None);
        if crash {
            drop(session);
            session = store.lock(&who).unwrap();
        } else {
            session.sync().unwrap();
        }
        assert_eq!(session.met().set_aside.len(), 1, "{in_the_way}");
        session.close(NOW, None).unwrap();
        let sent = fs::read(spool.path(&in_the_way)).unwrap();
        assert_eq!(
            sent,
            bytes_of(1, &[attempt(1, NOW, State::Confirmed, None)])
        );
        let name = in_the_way.rsplit('/').next().unwrap();
        let aside = spool.path(&format!("corrupt/{name}"));
        assert_eq!(fs::read(aside).unwrap(), other, "{in_the_way}");
        assert!(spool.path(&format!("corrupt/{name}.why.json")).exists());
        assert_eq!(spool.names(&["pending/ops"]).len(), 1, "{in_the_way}");
        assert_eq!(spool.names(&STATES).len(), 2, "{in_the_way}");
    }
}

// ---------------------------------------------------------------- bad disks

/// What a [`FaultDisk`] was asked, and what it is to refuse.
#[derive(Default)]
struct Trace {
    calls: Vec<String>,
    /// The number of the writing call that fails, from 0.
    fail_at: Option<usize>,
    errno: i32,
    /// A sync of the journal failed.
    log_sync_failed: bool,
}

impl Trace {
    /// Notes a writing call; says whether it must fail.
    fn fails(&mut self, call: String) -> io::Result<()> {
        let now = self.calls.len();
        self.calls.push(call);
        if self.fail_at == Some(now) {
            return Err(io::Error::from_raw_os_error(self.errno));
        }
        Ok(())
    }
}

/// A disk on which one writing call fails; a write that fails has written half.
#[derive(Clone, Default)]
struct FaultDisk {
    trace: Rc<RefCell<Trace>>,
}

impl Gate for FaultDisk {
    fn write(&self, op: &str, path: &Path) -> io::Result<()> {
        let mut trace = self.trace.borrow_mut();
        let call = format!("{op} {}", path.display());
        let failed = trace.fails(call.trim_end().to_owned());
        trace.log_sync_failed |= failed.is_err() && op == "log sync";
        failed
    }

    fn tears(&self) -> bool {
        true
    }
}

/// Intent before act, and the journal no sooner gone than what it says is durable.
#[test]
fn the_order_of_writes() {
    let spool = Spool::in_memory();
    let disk = FaultDisk::default();
    let trace = Rc::clone(&disk.trace);
    let store = spool.store_on(Gated(disk));
    store.accept(envelope(1), accepted()).unwrap();
    let mut session = store.lock(&owner(NOW)).unwrap();
    let claims = session.claim(&want(1), NOW, &mut claim_all).unwrap();
    let settled_from = trace.borrow().calls.len();
    settle(session.as_mut(), &claims[0], State::Confirmed, None);
    session.close(NOW, None).unwrap();

    let calls = &trace.borrow().calls;
    let (file, pending) = (format!("/{}.1.jsonl", id(1)), "/pending/a".to_owned());
    let rows: [(usize, &[&str]); 2] = [
        (
            0,
            &[
                // Accept: the file, its name, the name's durability.
                "create */tmp/",
                "rename *.jsonl",
                &format!("sync_dir *{pending}"),
                // Claim: what was listed is durable, then the record, then the rename.
                &format!("sync_dir *{pending}"),
                "log reserve",
                "log append",
                "log sync",
                &format!("rename *{file}"),
            ],
        ),
        (
            settled_from,
            &[
                "log append",
                "log sync",
                &format!("append *{file}"),
                "rename */confirmed/a/",
                "sync_all",
                "unlink */journal/",
                "sync_dir */journal",
            ],
        ),
    ];
    for (from, row) in rows {
        let mut rest = calls[from..].iter();
        for step in row {
            let (op, path) = step.split_once('*').unwrap_or((step, ""));
            let found = rest.any(|call| call.starts_with(op) && call.contains(path));
            assert!(found, "`{step}` in its turn: {:#?}", &calls[from..]);
        }
    }
    // A directory that an item is moved into must not be lost with it.
    for (at, call) in calls.iter().enumerate() {
        if let Some(made) = call.strip_prefix("make_dir ")
            && !made.ends_with("/reserve")
        {
            let parent = Path::new(made).parent().unwrap().display();
            assert_eq!(calls[at + 1], format!("sync_dir {parent}"), "{calls:#?}");
        }
    }
    let renamed = calls.iter().position(|call| call.ends_with(&file)).unwrap();
    assert_eq!(calls[renamed - 1], "log sync", "{calls:#?}");
}

/// What a session on a failing disk had promised before it failed.
#[derive(Default)]
struct Promised {
    accepted: BTreeSet<RequestId>,
    claimed: BTreeSet<RequestId>,
    settled: BTreeMap<RequestId, State>,
    closed: bool,
}

/// A session that does a bit of everything, up to the first error.
fn session_on(
    store: &FileStore,
    trace: &RefCell<Trace>,
    promised: &mut Promised,
) -> Result<(), StoreError> {
    for n in 1..=5 {
        let mut envelope = envelope(n);
        envelope.not_before = (n == 5).then(|| NOW.plus(MINUTE));
        store.accept(envelope, accepted())?;
        promised.accepted.insert(id(n));
    }
    let mut session = store.lock(&owner(NOW))?;
    // Every later call of a session that has failed must fail too.
    let check = |session: &mut dyn Session, error: StoreError| {
        assert!(
            matches!(session.sync(), Err(StoreError::Poisoned)),
            "{error}"
        );
        let again = session.claim(&want(1), NOW, &mut claim_all);
        assert!(matches!(again, Err(StoreError::Poisoned)), "{error}");
        let tell = session.tell(vec![]);
        assert!(matches!(tell, Err(StoreError::Poisoned)), "{error}");
        error
    };
    for round in 0..2 {
        let claims = match session.claim(&want(2), NOW, &mut claim_all) {
            Ok(claims) => claims,
            Err(error) => return Err(check(session.as_mut(), error)),
        };
        assert!(
            !trace.borrow().log_sync_failed,
            "claimed by a journal that is not durable"
        );
        if claims.is_empty() && session.tight().is_some() {
            break;
        }
        let failed = {
            let trace = trace.borrow();
            trace.fail_at.is_some_and(|at| at < trace.calls.len())
        };
        assert!(claims.len() == 2 || failed, "{}", claims.len());
        for (claim, state) in claims.iter().zip([State::Failed, State::Pending]) {
            let id = claim.item.envelope.request_id;
            promised.claimed.insert(id);
            let settled = if (round, state) == (1, State::Pending) {
                session.put_back(claim)
            } else {
                let event = attempt(1, NOW, state, Some(NOW.plus(MINUTE)));
                let notices = Notice::of(&claim.item, &event, 2, &[dest("ops")]);
                promised.settled.insert(id, state);
                session.settle(claim, event, notices)
            };
            if let Err(error) = settled {
                promised.settled.remove(&id);
                return Err(check(session.as_mut(), error));
            }
            if round == 1 && state == State::Pending {
                promised.claimed.remove(&id);
            }
        }
    }
    session.close(NOW, Some(&serde_json::json!({"n": 1})))?;
    promised.closed = true;
    Ok(())
}

#[test]
fn whichever_write_fails_nothing_is_lost() {
    for errno in [rustix::io::Errno::NOSPC, rustix::io::Errno::IO] {
        let mut fail_at = 0;
        loop {
            let spool = Spool::in_memory();
            let disk = FaultDisk::default();
            disk.trace.borrow_mut().fail_at = Some(fail_at);
            disk.trace.borrow_mut().errno = errno.raw_os_error();
            let trace = Rc::clone(&disk.trace);
            let store = spool.store_on(Gated(disk));
            let mut promised = Promised::default();
            let result = session_on(&store, &trace, &mut promised);
            let calls = trace.borrow();
            let why = format!("call {fail_at}, {:?}", calls.calls.get(fail_at));
            if calls.calls.len() <= fail_at {
                result.unwrap();
                assert!(fail_at > 60, "{fail_at} calls are few");
                break;
            }
            let call = &calls.calls[fail_at];
            let of_the_reserve = call.starts_with("reserve_file") || call.ends_with("/reserve");
            // A notice whose place alone is out of reach is kept.
            let of_a_notice = (call.starts_with("rename") && call.contains("/pending/ops/"))
                || (call.starts_with("make_dir") && call.ends_with("/pending/ops"));
            let harmless = of_the_reserve
                || (of_a_notice && errno == rustix::io::Errno::IO)
                || call.ends_with("/wake")
                || call.starts_with("remove_dir")
                || call.contains("/log/accepted-");
            // Of one file or directory of items, a bad sector costs that one.
            let of_one_item = ["append /", "rename", "set_mtime", "make_dir"]
                .iter()
                .any(|op| call.starts_with(op))
                && STATES
                    .iter()
                    .any(|state| call.contains(&format!("/{state}/")));
            // Of one destination's, what is fresh waits until its acceptance cannot be lost.
            let of_the_fresh = call.starts_with("sync_dir")
                && (call.ends_with("/pending/a") || call.ends_with("/pending"));
            // On a full disk it may go on with the room of the reserve.
            let may_go_on = if errno == rustix::io::Errno::NOSPC {
                !call.contains("sync")
            } else {
                of_one_item || of_the_fresh
            };
            assert!(
                result.is_ok() == harmless || (result.is_ok() && may_go_on),
                "{why}: {result:?}"
            );

            check_after_fault(&spool, &promised, &why);
            fail_at += 1;
        }
    }
}

fn check_after_fault(spool: &Spool, promised: &Promised, why: &str) {
    let store = spool.store();
    let mut session = store.lock(&owner(NOW)).unwrap();
    let mut recovered = BTreeSet::new();
    let mut decide = |item: &Interrupted| {
        recovered.insert(item.item.envelope.request_id);
        interrupted(item)
    };
    session.recover(&mut decide).unwrap();
    session.close(NOW, None).unwrap();
    let items = items_of(&spool.tree(&STATES));
    for id in &promised.accepted {
        let (path, events) = &items[id];
        let place = Place::parse(path).unwrap();
        assert_eq!(place.state, events.last().unwrap().state, "{why}: {path}");
        assert!(!matches!(place.slot, Slot::Claimed(_)), "{why}: {path}");
        if let Some(state) = promised.settled.get(id) {
            assert_eq!((place.state, events.len()), (*state, 2), "{why}: {path}");
            assert!(!recovered.contains(id), "{why}: {path}");
        } else if promised.claimed.contains(id) {
            let known = recovered.contains(id) || events.len() == 2;
            assert!(known, "{why}: {path} was sent and counts as never sent");
        }
    }
    let failed = promised.settled.values().filter(|s| **s == State::Failed);
    let notices = usize::from(failed.count() > 0);
    let told = items
        .values()
        .filter(|(path, _)| path.starts_with("pending/ops/"));
    assert!(told.count() >= notices, "{why}");
    assert!(spool.names(&["journal", "corrupt"]).is_empty(), "{why}");
}

// ---------------------------------------------------------------- many

#[test]
fn more_than_a_window_is_claimed_in_order_and_once() {
    let spool = Spool::in_memory();
    let total = 70_000_u64;
    fs::create_dir(spool.path("pending/a")).unwrap();
    // Due minutes and ids run against each other, and the fresh ones lie among the filed.
    let minute = |n: u64| NOW.minute().minus(n % 3 * MINUTE);
    let mut order = Vec::new();
    for n in 0..total {
        let mut envelope = envelope(n);
        envelope.not_before = Some(minute(n));
        let (_, bytes) = Item::accept(envelope, accepted()).unwrap();
        let dir = if n % 7 == 0 {
            format!("pending/a/{}", minute(n).minute_name())
        } else {
            "pending/a".to_owned()
        };
        if n < 21 {
            fs::create_dir_all(spool.path(&dir)).unwrap();
        }
        let path = spool.path(&format!("{dir}/{}.jsonl", id(n)));
        fs::write(&path, bytes).unwrap();
        RealDisk.set_mtime(&path, minute(n)).unwrap();
        order.push((minute(n), id(n)));
    }
    order.sort_unstable();
    let store = spool.store();
    let mut session = store.lock(&owner(NOW)).unwrap();
    let mut claimed = Vec::with_capacity(order.len());
    loop {
        // Most are left where they are, so that only the order costs time.
        let mut decide = |item: &Item| {
            claimed.push((item.turn().unwrap(), item.envelope.request_id));
            if claimed.len() % 100 == 0 {
                Decision::Claim
            } else {
                Decision::Leave
            }
        };
        let group = session.claim(&want(100), NOW, &mut decide).unwrap();
        if group.is_empty() {
            break;
        }
        for claim in &group {
            settle(session.as_mut(), claim, State::Confirmed, None);
        }
    }
    assert_eq!(claimed.len(), order.len());
    assert!(claimed == order, "each once, in order");
    assert_eq!(session.left(&dest("a"), NOW).unwrap(), 0);
}

#[test]
fn what_died_unfinished_is_swept_after_a_day_and_not_before() {
    let spool = Spool::new();
    let left = spool.path("tmp/left-over.jsonl.1.0");
    fs::write(&left, b"half").unwrap();
    let since = RealDisk.stat(&left).unwrap().changed;
    for (later_ms, there) in [(DAY_MS, true), (DAY_MS + 1, false)] {
        let store = spool.store();
        let session = store.lock(&owner(since.plus(later_ms))).unwrap();
        session.close(since.plus(later_ms), None).unwrap();
        assert_eq!(left.exists(), there, "after {later_ms} ms");
    }
}
