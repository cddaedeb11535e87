//! What takes a day to be wrong, and what a death in the middle of mending or adopting leaves.
//!
//! CONTRACT 3 and 5. The command is in `cli_doctor.rs` and `cli_adopt.rs`.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{Gate, Gated, QuickDisk, accepted, by_hand, dest, envelope, id, owner};
use tempfile::TempDir;
use tickpost::clock::{Clock as _, SystemClock};
use tickpost::model::envelope::sha256_hex;
use tickpost::model::event::{Event, EventKind};
use tickpost::model::ids::RequestId;
use tickpost::model::outcome::OutcomeKind;
use tickpost::model::reason::Reason;
use tickpost::model::state::State;
use tickpost::model::time::{DAY_MS, UnixMs};
use tickpost::store::checkup::Checkup;
use tickpost::store::disk::Disk;
use tickpost::store::file::FileStore;
use tickpost::store::{Decision, Limits, NewBody, Offer, Scope, Session, Store, StoreError};
use uuid::Uuid;

struct Spool {
    dir: TempDir,
    root: PathBuf,
}

impl Spool {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let root = dir.path().join("spool");
        FileStore::init(&root, "", Uuid::from_u128(1), now()).unwrap();
        Self { dir, root }
    }

    fn store(&self) -> FileStore {
        self.store_on(Arc::new(QuickDisk))
    }

    fn store_on(&self, disk: Arc<dyn Disk>) -> FileStore {
        FileStore::open_on(disk, &self.root, true).unwrap()
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    fn write(&self, relative: &str, bytes: impl AsRef<[u8]>) {
        fs::create_dir_all(self.path(relative).parent().unwrap()).unwrap();
        fs::write(self.path(relative), bytes).unwrap();
    }

    /// What is found at a time, as kinds and paths.
    fn found(&self, at: UnixMs) -> Vec<String> {
        let configured = BTreeSet::from([dest("a")]);
        let checkup = Checkup {
            now: at,
            configured: Some(&configured),
        };
        let found = self.store().examine(&checkup).unwrap();
        let word = |kind: tickpost::store::checkup::FindingKind| kind.as_str();
        let found = found.iter();
        found
            .map(|finding| format!("{} {}", word(finding.kind), finding.path))
            .collect()
    }

    fn mend(&self, at: UnixMs) {
        mend(&self.store(), at).unwrap();
    }

    /// Every file of an item, relative to the spool.
    fn items(&self) -> Vec<String> {
        let mut all = Vec::new();
        for state in State::ALL {
            walk(&self.path(state.as_str()), &mut all);
        }
        let relative = |path: &PathBuf| path.strip_prefix(&self.root).unwrap().to_owned();
        let mut all: Vec<String> = all
            .iter()
            .map(|path| relative(path).to_str().unwrap().to_owned())
            .collect();
        all.sort();
        all
    }

    /// A copy, as a backup brings it back.
    fn copy(&self) -> Self {
        let dir = TempDir::new().unwrap();
        let root = dir.path().join("spool");
        copy_dir(&self.root, &root);
        Self { dir, root }
    }
}

/// Not by a process: a child of one test has the locks of all others until it is a program.
fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).unwrap();
        }
    }
}

fn walk(dir: &Path, all: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, all);
        } else {
            all.push(path);
        }
    }
}

fn now() -> UnixMs {
    SystemClock::new().now()
}

fn in_two_days() -> UnixMs {
    now().plus(2 * DAY_MS)
}

fn mend(store: &FileStore, at: UnixMs) -> Result<(), StoreError> {
    let mut session = store.lock(&owner(at))?;
    let configured = BTreeSet::from([dest("a")]);
    let checkup = Checkup {
        now: at,
        configured: Some(&configured),
    };
    park_interrupted(session.as_mut(), at)?;
    session.mend(&checkup)?;
    park_interrupted(session.as_mut(), at)?;
    session.close(at, None)
}

fn park_interrupted(session: &mut dyn Session, at: UnixMs) -> Result<u64, StoreError> {
    session.recover(&mut |interrupted| {
        let mut event = by_hand(EventKind::Attempt, at, State::Unknown, None);
        event.n = Some(interrupted.n);
        event.outcome = Some(OutcomeKind::Interrupted);
        (event, Vec::new())
    })
}

fn accept(store: &FileStore, n: u64, key: Option<&str>, large: bool) -> RequestId {
    let mut envelope = envelope(n);
    envelope.key = key.map(str::to_owned);
    let mut body = None;
    if large {
        let bytes = vec![b'x'; 70_000];
        envelope.request.body_sha256 = sha256_hex(&bytes);
        body = Some(NewBody::new(bytes));
    }
    let id = envelope.request_id;
    let offer = Offer {
        envelope,
        accepted: accepted(),
        own_id: false,
        body,
    };
    store
        .accept_all(vec![offer], &Limits::NONE, &mut Vec::new())
        .unwrap();
    id
}

/// Takes the item out as if its acceptance had died before it was placed.
fn forget(spool: &Spool, id: RequestId) {
    fs::remove_file(spool.path(&format!("pending/a/{id}.jsonl"))).unwrap();
}

#[test]
fn keys_and_bodies_of_nobody_go_after_a_day() {
    let spool = Spool::new();
    let store = spool.store();
    accept(&store, 1, Some("kept"), true);
    let lost = accept(&store, 2, Some("lost"), true);
    forget(&spool, lost);
    let key = format!("keys/a/{}", sha256_hex(b"lost"));
    let own = format!("keys/_ids/{}", id(3));
    let damaged = format!("keys/a/{}", sha256_hex(b"damaged"));
    let line = fs::read_to_string(spool.path(&key)).unwrap();
    spool.write(&own, line.replace(&lost.to_string(), &id(3).to_string()));
    spool.write(&damaged, "");
    // Its caller may be at work.
    assert_eq!(spool.found(now()), Vec::<String>::new());
    let mut wanted = vec![
        format!("orphan_body bodies/{lost}"),
        format!("orphan_key {own}"),
        format!("orphan_key {damaged}"),
        format!("orphan_key {key}"),
    ];
    wanted[2..].sort();
    let at = in_two_days();
    // Reserved: its body is not nobody's before the key is.
    assert_eq!(spool.found(at), wanted);
    let hands_off = store_of_key(&spool, &key);
    spool.mend(at);
    assert_eq!(
        spool.found(at),
        [format!("orphan_key {key}")],
        "somebody owns it"
    );
    drop(hands_off);
    spool.mend(at);
    assert_eq!(spool.found(at), Vec::<String>::new());
    assert!(!spool.path(&key).exists() && !spool.path(&own).exists());
    assert!(!spool.path(&format!("bodies/{lost}")).exists());
    assert!(spool.path(&format!("bodies/{}", id(1))).exists());
    assert!(
        spool
            .path(&format!("keys/a/{}", sha256_hex(b"kept")))
            .exists()
    );
    assert_eq!(accept(&spool.store(), 2, Some("lost"), true), id(2));
}

/// Owns a name in `keys/`, as whoever accepts under it.
fn store_of_key(spool: &Spool, key: &str) -> Box<dyn tickpost::store::disk::Lock> {
    QuickDisk.lock(&spool.path(key)).unwrap().unwrap()
}

#[test]
fn what_belongs_to_pruned_items_and_files_set_aside_stays() {
    let spool = Spool::new();
    let store = spool.store();
    let aside = accept(&store, 1, Some("aside"), true);
    let pruned = accept(&store, 2, Some("pruned"), false);
    forget(&spool, pruned);
    let tombstone = serde_json::json!({
        "request_id": pruned, "destination": "a", "state": "confirmed",
        "enqueued_at": now(), "settled_at": now(), "pruned_at": now(), "attempts": 1,
        "body_sha256": "",
    });
    let day = now().day_name();
    let line = tombstone.to_string();
    assert!(line.contains("request_id"));
    spool.write(
        &format!("log/pruned-{day}.jsonl"),
        format!(
            "{{\"request_id\":\"{pruned}\",{}\n",
            line.replacen(&format!("\"request_id\":\"{pruned}\","), "", 1)
                .trim_start_matches('{')
        ),
    );
    let at = spool.path(&format!("pending/a/{aside}.jsonl"));
    fs::rename(at, spool.path(&format!("corrupt/{aside}.jsonl"))).unwrap();
    let wanted = ["corrupt corrupt".to_owned()];
    assert_eq!(spool.found(in_two_days()), wanted);
    spool.mend(in_two_days());
    assert_eq!(spool.found(in_two_days()), wanted);
    assert!(spool.path(&format!("bodies/{aside}")).exists());
    assert!(
        spool
            .path(&format!("keys/a/{}", sha256_hex(b"pruned")))
            .exists()
    );
}

#[test]
fn what_was_begun_and_not_ended_for_a_day_is_told() {
    let spool = Spool::new();
    spool.write("tmp/half", "x");
    let taking = format!("incoming/a/order.{}.taking", id(1));
    spool.write(&taking, "{}");
    assert_eq!(spool.found(now()), Vec::<String>::new());
    let at = in_two_days();
    assert_eq!(
        spool.found(at),
        [
            format!("unfinished {taking}"),
            "unfinished tmp/half".to_owned()
        ]
    );
    spool.mend(at);
    assert_eq!(spool.found(at), [format!("unfinished {taking}")]);
    assert!(spool.path(&taking).exists());
}

/// Somebody accepts an item while its body is about to be removed.
#[derive(Clone)]
struct Acceptance {
    item: PathBuf,
    bytes: Vec<u8>,
}

impl Gate for Acceptance {
    fn write(&self, op: &str, path: &Path) -> io::Result<()> {
        if op == "write_new" && path.to_string_lossy().contains("keys__ids") {
            fs::write(&self.item, &self.bytes)?;
        }
        Ok(())
    }
}

#[test]
fn a_body_whose_item_has_just_been_accepted_stays() {
    let spool = Spool::new();
    let lost = accept(&spool.store(), 1, None, true);
    let item = spool.path(&format!("pending/a/{lost}.jsonl"));
    let bytes = fs::read(&item).unwrap();
    forget(&spool, lost);
    let at = in_two_days();
    let body = format!("bodies/{lost}");
    assert_eq!(spool.found(at), [format!("orphan_body {body}")]);
    let gate = Acceptance { item, bytes };
    mend(&spool.store_on(Arc::new(Gated(gate))), at).unwrap();
    assert_eq!(spool.items(), [format!("pending/a/{lost}.jsonl")]);
    assert!(spool.path(&body).exists());
}

/// Somebody puts another file in the place of one when that is looked at once more.
#[derive(Clone)]
struct Replacement {
    place: PathBuf,
    other: PathBuf,
    left: Arc<AtomicUsize>,
}

impl Gate for Replacement {
    fn write(&self, _: &str, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn read(&self, op: &str, path: &Path) -> io::Result<()> {
        if op == "stat" && path == self.place && self.other.exists() {
            match self.left.load(Ordering::Relaxed).checked_sub(1) {
                Some(left) => self.left.store(left, Ordering::Relaxed),
                None => fs::rename(&self.other, path)?,
            }
        }
        Ok(())
    }
}

/// A name that goes is one of a file that has another.
#[test]
fn a_file_that_takes_the_place_of_a_second_name_is_not_removed() {
    for looks in 0.. {
        let spool = Spool::new();
        let item = accept(&spool.store(), 1, None, false);
        let place = spool.path(&format!("pending/a/{item}.jsonl"));
        let claimed = format!("unknown/a/{item}.1.jsonl");
        let bytes = fs::read(&place).unwrap();
        fs::create_dir_all(spool.path("unknown/a")).unwrap();
        fs::hard_link(&place, spool.path(&claimed)).unwrap();
        // A copy from before its first event was whole.
        let other = spool.dir.path().join("other");
        fs::write(&other, &bytes[..bytes.len() - 1]).unwrap();
        let gate = Replacement {
            place,
            other: other.clone(),
            left: Arc::new(AtomicUsize::new(looks)),
        };
        mend(&spool.store_on(Arc::new(Gated(gate))), now()).unwrap();
        if other.exists() {
            assert!(looks > 1, "{looks}");
            return;
        }
        let mut all = Vec::new();
        walk(&spool.root, &mut all);
        let is_it = |path: &&PathBuf| fs::read(path).unwrap() == bytes[..bytes.len() - 1];
        assert_eq!(all.iter().filter(is_it).count(), 1, "after {looks} looks");
    }
}

/// A process that dies at its `n`th write: that and all later ones are not done.
#[derive(Clone)]
struct Death {
    left: Arc<AtomicUsize>,
}

impl Gate for Death {
    fn write(&self, _: &str, _: &Path) -> io::Result<()> {
        let less = |left: usize| left.checked_sub(1);
        let counted = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        match counted {
            Ok(_) => Ok(()),
            Err(_) => Err(io::Error::other("it is dead")),
        }
    }
}

/// Runs `step` with a death at every write, each on a spool of its own; `check` sees what is left.
fn at_every_death(
    make: &dyn Fn() -> Spool,
    step: &dyn Fn(&FileStore) -> Result<(), StoreError>,
    check: &dyn Fn(&Spool, bool),
) -> usize {
    for n in 0..10_000 {
        let spool = make();
        let death = Death {
            left: Arc::new(AtomicUsize::new(n)),
        };
        let done = step(&spool.store_on(Arc::new(Gated(death)))).is_ok();
        check(&spool, done);
        if done {
            return n;
        }
    }
    panic!("it never ends");
}

/// A spool in which much is wrong: of six items one is damaged.
fn broken() -> Spool {
    let spool = Spool::new();
    let store = spool.store();
    for n in 1..=7 {
        accept(&store, n, Some(&format!("key {n}")), false);
    }
    let at = |n: u64| format!("pending/a/{}.jsonl", id(n));
    let to = |n: u64, dir: &str| {
        fs::create_dir_all(spool.path(dir)).unwrap();
        fs::rename(
            spool.path(&at(n)),
            spool.path(&format!("{dir}/{}.jsonl", id(n))),
        )
        .unwrap();
    };
    to(1, "pending/a/29991231");
    to(2, "pending/a/parked");
    to(3, "unknown/a");
    to(4, "held/a");
    let mut text = fs::read(spool.path(&at(5))).unwrap();
    text[30] ^= 1;
    fs::write(spool.path(&at(5)), text).unwrap();
    fs::create_dir_all(spool.path("unknown/a")).unwrap();
    fs::hard_link(
        spool.path(&at(6)),
        spool.path(&format!("unknown/a/{}.1.jsonl", id(6))),
    )
    .unwrap();
    fs::create_dir_all(spool.path("failed/a/20261129")).unwrap();
    let text = fs::read(spool.path(&at(7))).unwrap();
    fs::write(
        spool.path(&format!("failed/a/20261129/{}.jsonl", id(7))),
        text,
    )
    .unwrap();
    fs::remove_file(spool.path(&format!("keys/a/{}", sha256_hex(b"key 1")))).unwrap();
    fs::remove_dir(spool.path("confirmed")).unwrap();
    spool
}

#[test]
fn a_death_in_the_middle_of_mending_is_mended() {
    let deaths = at_every_death(&broken, &|store| mend(store, now()), &|spool, done| {
        if !done {
            spool.mend(now());
        }
        // Two files are set aside, and nothing else is wrong or lost.
        assert_eq!(spool.found(now()), ["corrupt corrupt"]);
        let items = spool.items();
        assert_eq!(items.len(), 6, "{items:#?}");
        for n in [1, 2, 3, 4, 6, 7] {
            let name = format!("{}.jsonl", id(n));
            let places = items.iter().filter(|path| path.ends_with(&name));
            assert_eq!(places.count(), 1, "{n}: {items:#?}");
        }
        assert!(spool.path(&format!("corrupt/{}.jsonl", id(5))).exists());
        assert!(spool.path(&format!("corrupt/{}.jsonl", id(7))).exists());
    });
    assert!(deaths > 30, "{deaths}");
}

/// Adopts as the command does.
fn adopt(store: &FileStore) -> Result<(), StoreError> {
    let at = now();
    let mut session = store.lock_copy(&owner(at))?;
    park_interrupted(session.as_mut(), at)?;
    let scope = Scope {
        states: vec![State::Pending],
        destination: None,
    };
    let mut all = Vec::new();
    store.scan(&scope, &mut |found| {
        all.push(found.clone());
        Ok(())
    })?;
    for found in all {
        session.change(&found, &mut |_| {
            let mut event = Event::new(EventKind::Held, at, State::Held);
            event.reason = Some(Reason::RESTORED);
            Decision::Settle(Box::new(event), Vec::new())
        })?;
    }
    session.adopt(at, Uuid::from_u128(2))
}

/// A copy that `log/clock.json` alone tells from the original: its lock has the inode that is named. A
/// tick had died when it was made.
fn quiet_copy(original: &Spool) -> Spool {
    let copy = original.copy();
    let inode = fs::metadata(copy.path("lock")).unwrap().ino();
    for (name, field) in [
        ("spool.json", "/lock_inode"),
        ("log/clock.json", "/file/lock_inode"),
    ] {
        let text = fs::read(copy.path(name)).unwrap();
        let mut json: serde_json::Value = serde_json::from_slice(&text).unwrap();
        *json.pointer_mut(field).unwrap() = inode.into();
        fs::write(copy.path(name), json.to_string()).unwrap();
    }
    fs::write(copy.path("journal/00000001.jsonl"), "").unwrap();
    copy
}

#[test]
fn a_death_in_the_middle_of_an_adoption_leaves_a_copy_or_a_spool_that_sends_nothing() {
    dying_while_adopting(&Spool::copy);
    dying_while_adopting(&quiet_copy);
}

fn dying_while_adopting(copy: &dyn Fn(&Spool) -> Spool) {
    let original = Spool::new();
    let store = original.store();
    for n in 1..=3 {
        accept(&store, n, None, false);
    }
    let deaths = at_every_death(&|| copy(&original), &adopt, &|spool, done| {
        let adopted = spool.store().check_original().is_ok();
        assert!(adopted || !done);
        if adopted {
            let items = spool.items();
            assert!(
                items.iter().all(|path| !path.starts_with("pending/")),
                "{items:#?}"
            );
        }
        if !adopted {
            let copy = spool.store();
            let refused = copy.lock(&owner(now())).map(drop);
            assert!(matches!(refused, Err(StoreError::Copied { .. })));
            adopt(&spool.store()).unwrap();
        }
        assert!(spool.store().check_original().is_ok());
        // Whoever owns the lock next sees no pending item.
        let own = spool.store();
        own.lock(&owner(now())).unwrap().close(now(), None).unwrap();
        let items = spool.items();
        assert_eq!(items.len(), 3);
        assert!(
            items.iter().all(|path| path.starts_with("held/a/")),
            "{items:#?}"
        );
        assert_eq!(spool.found(now()), Vec::<String>::new());
    });
    assert!(deaths > 10, "{deaths}");
    drop(original.dir);
}

/// Else it would be nobody's copy until a tick has written the clock's file again.
#[test]
fn an_adopted_spool_knows_a_backup_of_itself_at_once() {
    let spool = Spool::new();
    accept(&spool.store(), 1, None, false);
    let copy = spool.copy();
    adopt(&copy.store()).unwrap();
    copy.store().check_original().unwrap();
    // Put back where the lock has the inode that is named.
    let clock = copy.path("log/clock.json");
    let other = copy.path("log/other");
    fs::copy(&clock, &other).unwrap();
    fs::rename(&other, &clock).unwrap();
    assert!(copy.store().check_original().is_err());
}
