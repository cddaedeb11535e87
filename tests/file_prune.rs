//! Pruning a spool on disk: retention by the day, tombstones first, and a death at every step.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use tempfile::TempDir;
use tickpost::model::envelope::{Envelope, sha256_hex};
use tickpost::model::event::EventKind;
use tickpost::model::ids::RequestId;
use tickpost::model::item::{Item, event_line};
use tickpost::model::state::State;
use tickpost::model::time::{DAY_MS, UnixMs};
use tickpost::model::tombstone::{Retention, Tombstone};
use tickpost::store::disk::{Disk, Kind, Lock, Log, Meta, RealDisk, Room, Since};
use tickpost::store::file::FileStore;
use tickpost::store::file::layout::Place;
use tickpost::store::{Decision, Pruned, Scope, Store, StoreError};

mod common;
use common::{
    MINUTE, NOW, QuickDisk, accepted, attempt, by_hand, dest, envelope, id, new_spool, owner,
    store_on, want,
};

/// A spool in a directory of its own.
struct Spool {
    _dir: TempDir,
    root: PathBuf,
}

impl Spool {
    fn new() -> Self {
        let (dir, root) = new_spool();
        Self { _dir: dir, root }
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

    fn plant(&self, relative: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path(relative);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn has(&self, relative: &str) -> bool {
        self.path(relative).exists()
    }

    /// An item that has come to this at a time. Returns its place.
    fn settled(
        &self,
        n: u64,
        state: State,
        at: UnixMs,
        change: impl FnOnce(&mut Envelope),
    ) -> String {
        let mut envelope = envelope(n);
        envelope.enqueued_at = at.minus(MINUTE);
        change(&mut envelope);
        let mut begun = accepted();
        begun.at = envelope.enqueued_at;
        let name = envelope.destination.to_string();
        let not_after = envelope.not_after;
        let (_, mut bytes) = Item::accept(envelope, begun).unwrap();
        bytes.extend(event_line(&attempt(1, at, state, None)).unwrap());
        let place = Place::filed(state, &name, id(n), None, not_after, at).path();
        self.plant(&place, bytes);
        place
    }

    /// The file of a key that names an item.
    fn key(&self, key: &str, n: u64) -> String {
        let relative = format!("keys/a/{}", sha256_hex(key.as_bytes()));
        let line = serde_json::json!({"request_id": id(n), "body_sha256": "0"});
        self.plant(&relative, format!("{line}\n"));
        relative
    }

    /// The names of all files but the lock's, sorted.
    fn names(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        let mut dirs = vec![self.root.clone()];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(&dir).unwrap().map(Result::unwrap) {
                if entry.file_type().unwrap().is_dir() {
                    dirs.push(entry.path());
                } else {
                    let path = entry.path();
                    let path = path.strip_prefix(&self.root).unwrap();
                    // What holds nothing of the spool's is none of its names.
                    if !path.starts_with("reserve") && !path.starts_with("tmp") {
                        names.insert(path.to_str().unwrap().to_owned());
                    }
                }
            }
        }
        names
    }

    /// Where each item is.
    fn places(&self) -> BTreeMap<RequestId, Vec<String>> {
        let mut places: BTreeMap<RequestId, Vec<String>> = BTreeMap::new();
        for name in self.names() {
            if let Some(place) = Place::parse(&name) {
                places.entry(place.id).or_default().push(name);
            }
        }
        places
    }
}

fn keep() -> Retention {
    Retention::default()
}

/// Prunes all, as the command does.
fn prune(store: &FileStore, now: UnixMs) -> Result<Pruned, StoreError> {
    let mut session = store.lock(&owner(now))?;
    let mut all = Pruned::default();
    loop {
        let step = session.prune(&keep(), now, 2)?;
        all.items += step.items;
        all.kept += step.kept;
        all.tombstone_files += step.tombstone_files;
        if !step.left {
            break;
        }
    }
    session.close(now, None)?;
    Ok(all)
}

fn counts(items: u64, kept: u64, tombstone_files: u64) -> Pruned {
    Pruned {
        items,
        kept,
        tombstone_files,
        ledger_files: 0,
        tick_files: 0,
        left: false,
    }
}

fn lines(spool: &Spool, relative: &str) -> Vec<Tombstone> {
    let text = fs::read(spool.path(relative)).unwrap();
    let lines = text.split(|b| *b == b'\n');
    lines.filter_map(Tombstone::parse).collect()
}

const LOG: &str = "log/pruned-20261129.jsonl";

/// Long before any retention.
fn long_ago() -> UnixMs {
    NOW.minus(200 * DAY_MS)
}

// ---------------------------------------------------------------- what goes, and what is kept

#[test]
fn a_tombstone_says_what_became_of_an_item() {
    let spool = Spool::new();
    let place = spool.settled(1, State::Confirmed, long_ago(), |e| {
        e.requester.principal = Some("alice".to_owned());
        e.requester.thread = Some("deploy-42".to_owned());
        e.labels.insert("env".to_owned(), "prod".to_owned());
        e.key = Some("invoice-17".to_owned());
    });
    let mut receipt = attempt(2, long_ago().plus(1), State::Confirmed, None);
    receipt.receipt = Some("ch_1".to_owned());
    let mut bytes = fs::read(spool.path(&place)).unwrap();
    bytes.extend(event_line(&receipt).unwrap());
    fs::write(spool.path(&place), bytes).unwrap();
    let store = spool.store();
    assert_eq!(store.tombstone(id(1)).unwrap(), None);

    assert_eq!(prune(&store, NOW).unwrap(), counts(1, 0, 0));
    let text = fs::read_to_string(spool.path(LOG)).unwrap();
    let at = |at: UnixMs| at.to_string();
    let want = format!(
        "{{\"request_id\":\"{}\",\"destination\":\"a\",\"state\":\"confirmed\",\"reason\":\"accepted\",\"enqueued_at\":\"{}\",\"settled_at\":\"{}\",\"pruned_at\":\"{}\",\"attempts\":2,\"principal\":\"alice\",\"thread\":\"deploy-42\",\"labels\":{{\"env\":\"prod\"}},\"key\":\"invoice-17\",\"receipt\":\"ch_1\",\"body_sha256\":\"{}\"}}\n",
        id(1),
        at(long_ago().minus(MINUTE)),
        at(long_ago().plus(1)),
        at(NOW),
        envelope(1).request.body_sha256,
    );
    assert_eq!(text, want);
    let mode = {
        use std::os::unix::fs::PermissionsExt as _;
        fs::metadata(spool.path(LOG)).unwrap().permissions().mode()
    };
    assert_eq!(mode & 0o777, 0o600);

    assert_eq!(store.find(id(1)).unwrap().map(|found| found.place), None);
    let kept = store.tombstone(id(1)).unwrap().unwrap();
    assert_eq!(kept, Tombstone::parse(text.trim().as_bytes()).unwrap());
    let beginning = &id(1).to_string()[..9];
    assert_eq!(store.tombstones(beginning, 9).unwrap(), [kept]);
    assert!(store.tombstones("ffff", 9).unwrap().is_empty());
    assert!(
        !spool.has("confirmed/a/20260513"),
        "the emptied day is gone"
    );
}

#[test]
fn days_go_so_long_after_their_end_by_utc() {
    let midnight = UnixMs::parse("2026-11-30T00:00:00Z").unwrap();
    let spool = Spool::new();
    let last = midnight.minus(7 * DAY_MS + 1);
    let first = midnight.minus(7 * DAY_MS);
    let confirmed = spool.settled(1, State::Confirmed, last, |_| {});
    let confirmed_later = spool.settled(2, State::Confirmed, first, |_| {});
    let failed = spool.settled(3, State::Failed, midnight.minus(90 * DAY_MS + 1), |_| {});
    let failed_later = spool.settled(4, State::Failed, midnight.minus(90 * DAY_MS), |_| {});
    let store = spool.store();
    let before = midnight.minus(1);
    assert_eq!(store.prunable(&keep(), before).unwrap(), counts(0, 0, 0));
    assert_eq!(prune(&store, before).unwrap(), counts(0, 0, 0));
    assert!(!spool.has(LOG), "nothing is written for nothing");
    assert_eq!(store.prunable(&keep(), midnight).unwrap(), counts(2, 0, 0));
    assert_eq!(prune(&store, midnight).unwrap(), counts(2, 0, 0));
    assert!(!spool.has(&confirmed) && !spool.has(&failed));
    assert!(spool.has(&confirmed_later) && spool.has(&failed_later));
    assert_eq!(lines(&spool, "log/pruned-20261130.jsonl").len(), 2);
}

#[test]
fn what_waits_is_never_touched() {
    let spool = Spool::new();
    for (n, state) in [(1, State::Pending), (2, State::Unknown), (3, State::Held)] {
        spool.settled(n, state, long_ago(), |_| {});
    }
    // In their day directories too.
    let day = long_ago().day_name();
    for (n, state) in [(4, "pending"), (5, "unknown"), (6, "held")] {
        let bytes = fs::read(spool.path(&spool.settled(n, State::Pending, long_ago(), |_| {})));
        spool.plant(&format!("{state}/b/{day}/{}.jsonl", id(n)), bytes.unwrap());
    }
    let before = spool.names();
    assert_eq!(prune(&spool.store(), NOW).unwrap(), counts(0, 0, 0));
    assert_eq!(spool.names(), before);
}

#[test]
fn what_is_not_as_its_place_says_stays() {
    let spool = Spool::new();
    let place = spool.settled(1, State::Pending, long_ago(), |_| {});
    let day = long_ago().day_name();
    let misplaced = format!("confirmed/a/{day}/{}.jsonl", id(1));
    fs::create_dir_all(spool.path(&format!("confirmed/a/{day}"))).unwrap();
    fs::rename(spool.path(&place), spool.path(&misplaced)).unwrap();
    // Filed by a clock that stood wrong: what it says is younger.
    let young = spool.settled(2, State::Confirmed, NOW, |_| {});
    let by_wrong_clock = format!("confirmed/a/19700101/{}.jsonl", id(2));
    fs::create_dir_all(spool.path("confirmed/a/19700101")).unwrap();
    fs::rename(spool.path(&young), spool.path(&by_wrong_clock)).unwrap();
    let strange = format!("confirmed/a/{day}/notes.txt");
    spool.plant(&strange, "mine");
    spool.plant("failed/a/notes", "mine");
    let damaged = spool.settled(3, State::Failed, long_ago(), |_| {});
    fs::write(spool.path(&damaged), "no item").unwrap();
    let old = spool.settled(4, State::Confirmed, long_ago(), |_| {});

    let store = spool.store();
    let mut session = store.lock(&owner(NOW)).unwrap();
    let pruned = session.prune(&keep(), NOW, 100).unwrap();
    assert_eq!(pruned, counts(1, 2, 0));
    let said = session.met().foreign.join("\n");
    for path in [&misplaced, &strange, "failed/a/notes"] {
        assert!(said.contains(path), "{path}: {said}");
        assert!(spool.has(path), "{path}");
    }
    assert!(!said.contains(&by_wrong_clock), "{said}");
    assert_eq!(session.met().set_aside.len(), 1);
    session.close(NOW, None).unwrap();
    assert!(spool.has(&by_wrong_clock));
    assert!(!spool.has(&old) && !spool.has(&damaged));
    let aside = format!("corrupt/{}.jsonl", id(3));
    assert_eq!(fs::read(spool.path(&aside)).unwrap(), b"no item");
}

#[test]
fn a_bound_is_a_bound_and_the_rest_is_left() {
    let spool = Spool::new();
    for n in 1..=300 {
        let at = long_ago().plus((n % 3) * DAY_MS);
        spool.settled(n, State::Confirmed, at, |_| {});
    }
    let store = spool.store();
    let mut session = store.lock(&owner(NOW)).unwrap();
    let first = session.prune(&keep(), NOW, 130).unwrap();
    assert_eq!((first.items, first.left), (130, true));
    assert!(!spool.has(&format!("confirmed/a/{}", long_ago().day_name())));
    let second = session.prune(&keep(), NOW, 1000).unwrap();
    assert_eq!((second.items, second.left), (170, false));
    session.close(NOW, None).unwrap();
    assert_eq!(spool.places().len(), 0);
    assert_eq!(lines(&spool, LOG).len(), 300);
    assert!(store.tombstone(id(299)).unwrap().is_some());
}

#[test]
fn what_a_session_has_settled_it_can_prune_and_no_replay_brings_it_back() {
    let spool = Spool::new();
    let store = spool.store();
    store.accept(envelope(1), accepted()).unwrap();
    let mut session = store.lock(&owner(NOW)).unwrap();
    let mut claim = |_: &Item| Decision::Claim;
    let claims = session.claim(&want(1), NOW, &mut claim).unwrap();
    let event = attempt(1, NOW, State::Confirmed, None);
    session.settle(&claims[0], event, vec![]).unwrap();
    // Midnight comes, and nothing is kept any longer than that.
    let retention = Retention {
        confirmed_ms: 0,
        ..keep()
    };
    let midnight = NOW.day().plus(DAY_MS);
    let pruned = session.prune(&retention, midnight, 10).unwrap();
    assert_eq!(pruned, counts(1, 0, 0));
    drop(session);
    assert!(
        spool
            .names()
            .iter()
            .any(|name| name.starts_with("journal/"))
    );
    let session = store.lock(&owner(midnight)).unwrap();
    session.close(midnight, None).unwrap();
    assert!(spool.places().is_empty());
    assert_eq!(lines(&spool, "log/pruned-20261130.jsonl").len(), 1);
}

/// Its caller made its id so. Tombstones are looked for from the day on that an id carries: one of
/// before would never be found.
#[test]
fn an_item_whose_id_is_ahead_of_time_stays_until_then() {
    let spool = Spool::new();
    let place = spool.settled(1, State::Confirmed, long_ago(), |_| {});
    let store = spool.store();
    let before = NOW.minus(1);
    assert_eq!(store.prunable(&keep(), before).unwrap(), counts(0, 0, 0));
    assert_eq!(prune(&store, before).unwrap(), counts(0, 0, 0));
    assert!(spool.has(&place));
    assert_eq!(store.prunable(&keep(), NOW).unwrap(), counts(1, 0, 0));
    assert_eq!(prune(&store, NOW).unwrap(), counts(1, 0, 0));
    assert!(!spool.has(&place));
}

/// Of a group that a session died over the tombstones are there, however long, and bodies too.
#[test]
fn a_whole_group_of_long_tombstones_is_finished() {
    let spool = Spool::new();
    let mut log = Vec::new();
    for n in 1..=128 {
        let place = spool.settled(n, State::Confirmed, long_ago(), |e| {
            e.key = Some(format!("{n}{}", "k".repeat(3000)));
        });
        let bytes = fs::read(spool.path(&place)).unwrap();
        fs::remove_file(spool.path(&place)).unwrap();
        let item = Item::parse(&bytes).unwrap().item;
        log.extend(Tombstone::of(&item, NOW).unwrap().line().unwrap());
        spool.plant(&format!("bodies/{}", id(n)), "large");
    }
    spool.plant(LOG, log);
    prune(&spool.store(), NOW).unwrap();
    let left: Vec<_> = fs::read_dir(spool.path("bodies")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

// ---------------------------------------------------------------- keys

#[test]
fn a_key_goes_with_its_item_unless_somebody_uses_it() {
    let spool = Spool::new();
    let keyed = |e: &mut Envelope| e.key = Some("k".to_owned());
    let place = spool.settled(1, State::Confirmed, long_ago(), keyed);
    let key = spool.key("k", 1);
    let store = spool.store();
    let busy = RealDisk.lock(&spool.path(&key)).unwrap().unwrap();
    assert_eq!(prune(&store, NOW).unwrap(), counts(0, 1, 0));
    assert!(spool.has(&place) && spool.has(&key) && !spool.has(LOG));
    drop(busy);
    assert_eq!(prune(&store, NOW).unwrap(), counts(1, 0, 0));
    assert!(!spool.has(&place) && !spool.has(&key));

    // What is no file is no key.
    let place = spool.settled(4, State::Confirmed, long_ago(), keyed);
    fs::create_dir(spool.path(&key)).unwrap();
    assert_eq!(prune(&store, NOW).unwrap(), counts(1, 0, 0));
    assert!(!spool.has(&place) && spool.has(&key));
    fs::remove_dir(spool.path(&key)).unwrap();

    // One that names another item by now is that one's.
    let place = spool.settled(2, State::Confirmed, long_ago(), keyed);
    let key = spool.key("k", 3);
    assert_eq!(prune(&store, NOW).unwrap(), counts(1, 0, 0));
    assert!(!spool.has(&place) && spool.has(&key));
}

#[test]
fn old_tombstones_are_forgotten_with_the_reservations_of_their_ids() {
    let spool = Spool::new();
    spool.settled(1, State::Confirmed, long_ago(), |_| {});
    let reserved = |n: u64| format!("keys/_ids/{}", id(n));
    spool.plant(&reserved(1), "{}\n");
    spool.plant(&reserved(2), "{}\n");
    let store = spool.store();
    prune(&store, NOW).unwrap();
    assert!(spool.has(&reserved(1)), "its tombstone still answers");
    // The day of 2026-11-29 is over 365.25 days after its end.
    let over = UnixMs::parse("2027-11-30T06:00:00Z").unwrap();
    assert_eq!(prune(&store, over.minus(1)).unwrap(), counts(0, 0, 0));
    assert!(store.tombstone(id(1)).unwrap().is_some());
    assert_eq!(store.prunable(&keep(), over).unwrap(), counts(0, 0, 1));
    assert_eq!(prune(&store, over).unwrap(), counts(0, 0, 1));
    assert!(store.tombstone(id(1)).unwrap().is_none());
    assert!(!spool.has(LOG) && !spool.has(&reserved(1)) && spool.has(&reserved(2)));
}

#[test]
fn an_item_that_is_there_counts_more_than_its_tombstone() {
    let spool = Spool::new();
    let keyed = |e: &mut Envelope| e.key = Some("k".to_owned());
    let place = spool.settled(1, State::Failed, long_ago(), keyed);
    let key = spool.key("k", 1);
    let body = format!("bodies/{}", id(1));
    spool.plant(&body, "large");
    // A session died after the tombstone; then the item was tried again.
    let bytes = fs::read(spool.path(&place)).unwrap();
    let store = spool.store();
    prune(&store, NOW).unwrap();
    let retried = by_hand(EventKind::Retried, NOW, State::Pending, Some(NOW));
    let bytes = [bytes, event_line(&retried).unwrap()].concat();
    let again = format!("pending/a/{}.jsonl", id(1));
    spool.plant(&again, bytes);
    spool.plant(&body, "large");
    spool.key("k", 1);
    assert_eq!(prune(&store, NOW.plus(1)).unwrap(), counts(0, 0, 0));
    assert!(spool.has(&again) && spool.has(&body) && spool.has(&key));
    assert!(store.find(id(1)).unwrap().is_some());
}

// ---------------------------------------------------------------- deaths

/// How a session ends before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Death {
    /// The process dies: what it wrote is there.
    Killed,
    /// The power goes: what was not synced never was.
    PowerLost,
}

#[derive(Default)]
struct Fate {
    calls: Vec<String>,
    die_at: Option<usize>,
    dead: bool,
    /// With loss of power: names removed and not yet synced, in order.
    removed: Vec<PathBuf>,
    /// Files made whose names are not yet synced.
    made: Vec<PathBuf>,
}

/// A disk on which everything fails from one writing call on.
#[derive(Clone)]
struct MortalDisk {
    death: Death,
    fate: Rc<RefCell<Fate>>,
}

struct MortalLog {
    path: PathBuf,
    disk: MortalDisk,
    unsynced: Vec<u8>,
}

fn died() -> io::Error {
    io::Error::other("it is dead")
}

impl MortalDisk {
    fn new(death: Death, die_at: Option<usize>) -> Self {
        let fate = Fate {
            die_at,
            ..Fate::default()
        };
        Self {
            death,
            fate: Rc::new(RefCell::new(fate)),
        }
    }

    fn read(&self) -> io::Result<()> {
        if self.fate.borrow().dead {
            Err(died())
        } else {
            Ok(())
        }
    }

    fn write(&self, op: &str, path: &Path) -> io::Result<()> {
        let mut fate = self.fate.borrow_mut();
        let now = fate.calls.len();
        fate.calls.push(format!("{op} {}", path.display()));
        fate.dead |= fate.die_at == Some(now);
        if fate.dead { Err(died()) } else { Ok(()) }
    }

    fn loses_power(&self) -> bool {
        self.death == Death::PowerLost
    }

    fn make_durable(&self, in_dir: impl Fn(&Path) -> bool) -> io::Result<()> {
        let mut fate = self.fate.borrow_mut();
        fate.made.retain(|path| !in_dir(path));
        let removed = std::mem::take(&mut fate.removed);
        for path in removed {
            // A directory that is durably gone has taken its names along.
            if !in_dir(&path) {
                fate.removed.push(path);
            } else if path.is_dir() {
                fs::remove_dir_all(&path)?;
                fate.removed.retain(|inside| !inside.starts_with(&path));
            } else {
                fs::remove_file(&path)?;
            }
        }
        Ok(())
    }

    /// What the power took with it.
    fn lose(&self) {
        for path in &self.fate.borrow().made {
            fs::remove_file(path).unwrap();
        }
    }
}

impl Log for MortalLog {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut log = RealDisk.open_log(&self.path)?;
        let fails = self.disk.write("append", &self.path);
        if self.disk.loses_power() {
            fails?;
            self.unsynced.extend(bytes);
            return Ok(());
        }
        if fails.is_err() {
            log.append(&bytes[..bytes.len() / 2])?;
            return fails;
        }
        log.append(bytes)
    }
    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        RealDisk.open_log(&self.path)?.cut(bytes)
    }
    fn sync(&mut self) -> io::Result<()> {
        self.disk.write("sync", &self.path)?;
        let unsynced = std::mem::take(&mut self.unsynced);
        RealDisk.open_log(&self.path)?.append(&unsynced)
    }
    fn reserve(&mut self, _: u64) -> io::Result<()> {
        self.disk.write("reserve", &self.path)
    }
}

impl Disk for MortalDisk {
    fn list(&self, dir: &Path, each: &mut dyn FnMut(&OsStr, Kind)) -> io::Result<()> {
        self.read()?;
        QuickDisk.list(dir, each)
    }
    fn read(&self, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
        MortalDisk::read(self)?;
        QuickDisk.read(path, bytes_max)
    }
    fn read_part(&self, path: &Path, from: u64, bytes_max: u64) -> io::Result<Vec<u8>> {
        MortalDisk::read(self)?;
        QuickDisk.read_part(path, from, bytes_max)
    }
    fn create(&self, path: &Path, bytes: &[u8], mtime: Option<UnixMs>) -> io::Result<()> {
        self.write("create", path)?;
        QuickDisk.create(path, bytes, mtime)
    }
    fn write_new(&self, path: &Path, bytes: &[u8], mtime: Option<UnixMs>) -> io::Result<()> {
        self.write("write_new", path)?;
        QuickDisk.write_new(path, bytes, mtime)
    }
    fn create_from(
        &self,
        path: &Path,
        from: &mut dyn io::Read,
        bytes_max: u64,
        seen: &mut dyn FnMut(&[u8]),
    ) -> io::Result<Result<u64, io::Error>> {
        self.write("create_from", path)?;
        QuickDisk.create_from(path, from, bytes_max, seen)
    }
    fn open(&self, path: &Path) -> io::Result<Box<dyn io::Read + Send>> {
        MortalDisk::read(self)?;
        QuickDisk.open(path)
    }
    fn read_with_meta(&self, path: &Path, bytes_max: u64) -> io::Result<(Vec<u8>, Meta)> {
        MortalDisk::read(self)?;
        QuickDisk.read_with_meta(path, bytes_max)
    }
    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.write("sync_file", path)
    }
    fn room(&self, path: &Path) -> io::Result<Room> {
        QuickDisk.room(path)
    }
    fn append(&self, path: &Path, keep: u64, bytes: &[u8]) -> io::Result<()> {
        self.write("append", path)?;
        QuickDisk.append(path, keep, bytes)
    }
    fn append_line(&self, path: &Path, line: &[u8]) -> io::Result<()> {
        self.write("append_line", path)?;
        QuickDisk.append_line(path, line)
    }
    fn set_mtime(&self, path: &Path, mtime: UnixMs) -> io::Result<()> {
        self.write("set_mtime", path)?;
        QuickDisk.set_mtime(path, mtime)
    }
    fn reserve_file(&self, path: &Path, bytes: u64) -> io::Result<()> {
        self.write("reserve_file", path)?;
        QuickDisk.reserve_file(path, bytes)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.write("rename", to)?;
        QuickDisk.rename(from, to)
    }
    fn replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.write("replace", to)?;
        QuickDisk.replace(from, to)
    }
    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.write("unlink", path)?;
        if self.loses_power() {
            fs::symlink_metadata(path)?;
            self.fate.borrow_mut().removed.push(path.to_owned());
            return Ok(());
        }
        QuickDisk.unlink(path)
    }
    fn make_dir(&self, path: &Path) -> io::Result<()> {
        self.write("make_dir", path)?;
        QuickDisk.make_dir(path)
    }
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.write("remove_dir", path)?;
        if self.loses_power() {
            let removed = self.fate.borrow().removed.clone();
            let gone = |entry: fs::DirEntry| removed.contains(&entry.path());
            if !fs::read_dir(path)?.all(|entry| entry.is_ok_and(gone)) {
                return Err(io::ErrorKind::DirectoryNotEmpty.into());
            }
            self.fate.borrow_mut().removed.push(path.to_owned());
            return Ok(());
        }
        QuickDisk.remove_dir(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.write("sync_dir", path)?;
        self.make_durable(|of| of.parent() == Some(path))
    }
    fn sync_all(&self, path: &Path, _: &Since) -> io::Result<()> {
        self.write("sync_all", path)?;
        self.make_durable(|_| true)
    }
    fn stat(&self, path: &Path) -> io::Result<Meta> {
        MortalDisk::read(self)?;
        QuickDisk.stat(path)
    }
    fn open_log(&self, path: &Path) -> io::Result<Box<dyn Log>> {
        self.write("open_log", path)?;
        if self.loses_power() && !path.exists() {
            self.fate.borrow_mut().made.push(path.to_owned());
        }
        drop(QuickDisk.open_log(path)?);
        Ok(Box::new(MortalLog {
            path: path.to_owned(),
            disk: self.clone(),
            unsynced: Vec::new(),
        }))
    }
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        MortalDisk::read(self)?;
        QuickDisk.lock(path)
    }
}

/// The items that a death must not lose: those past retention, and those kept.
const OLD: [u64; 7] = [1, 2, 3, 4, 5, 6, 7];
const KEPT: [u64; 4] = [11, 12, 13, 14];

/// A bit of everything.
fn varied() -> Spool {
    let spool = Spool::new();
    let keyed = |key: &'static str| move |e: &mut Envelope| e.key = Some(key.to_owned());
    let old = long_ago();
    spool.settled(1, State::Confirmed, old, keyed("one"));
    spool.settled(2, State::Confirmed, old, keyed("two"));
    spool.settled(3, State::Confirmed, old, |_| {});
    spool.settled(4, State::Confirmed, old.plus(DAY_MS), |_| {});
    spool.settled(5, State::Failed, old, keyed("five"));
    // Its key is another's by now.
    spool.settled(6, State::Failed, old, keyed("eleven"));
    spool.settled(7, State::Failed, old, |e| e.destination = dest("b"));
    let damaged = spool.settled(8, State::Confirmed, old, |_| {});
    fs::write(spool.path(&damaged), "no item").unwrap();
    spool.settled(11, State::Confirmed, NOW, keyed("eleven"));
    spool.settled(12, State::Pending, old, |_| {});
    spool.settled(13, State::Held, old, keyed("thirteen"));
    spool.settled(14, State::Unknown, old, |_| {});
    for (key, n) in [
        ("one", 1),
        ("two", 2),
        ("five", 5),
        ("eleven", 11),
        ("thirteen", 13),
    ] {
        spool.key(key, n);
    }
    for n in [3, 5, 12] {
        spool.plant(&format!("bodies/{}", id(n)), "large");
    }
    for n in [3, 11, 21, 22] {
        spool.plant(&format!("keys/_ids/{}", id(n)), "{}\n");
    }
    // Tombstones that are themselves past retention.
    let mut forgotten = Vec::new();
    for n in [21, 22] {
        let (mut item, _) = Item::accept(envelope(n), accepted()).unwrap();
        item.events.push(attempt(1, NOW, State::Confirmed, None));
        forgotten.extend(Tombstone::of(&item, NOW).unwrap().line().unwrap());
    }
    spool.plant("log/pruned-20250101.jsonl", forgotten);
    spool
}

#[test]
fn whenever_a_pruning_dies_the_next_one_finishes_it() {
    let reference = varied();
    assert_eq!(prune(&reference.store(), NOW).unwrap(), counts(7, 0, 1));
    let want = reference.names();
    let keys = want.iter().filter(|name| name.starts_with("keys/")).count();
    assert_eq!(keys, 4, "eleven, thirteen, and two ids: {want:#?}");
    let bodies = want.iter().filter(|name| name.starts_with("bodies/"));
    assert_eq!(bodies.count(), 1, "{want:#?}");

    for death in [Death::Killed, Death::PowerLost] {
        let mut die_at = 0;
        loop {
            let spool = varied();
            let disk = MortalDisk::new(death, Some(die_at));
            let result = prune(&spool.store_on(disk.clone()), NOW);
            let calls = disk.fate.borrow().calls.len();
            if calls <= die_at {
                result.unwrap();
                assert!(die_at > 30, "{die_at} calls are few");
                break;
            }
            disk.lose();
            let why = format!(
                "{death:?} at {die_at}: {:?}",
                disk.fate.borrow().calls.last()
            );
            check_answers(&spool, &why);
            // Also when the next one dies at once, or at its own pace.
            for again in [0, 1, 2, 5, 9] {
                let disk = MortalDisk::new(death, Some(again));
                drop(prune(&spool.store_on(disk.clone()), NOW));
                disk.lose();
                check_answers(&spool, &format!("{why}, again at {again}"));
            }
            prune(&spool.store(), NOW).unwrap();
            check_answers(&spool, &why);
            assert_eq!(spool.names(), want, "{why}");
            let store = spool.store();
            for n in OLD {
                assert!(store.tombstone(id(n)).unwrap().is_some(), "{why}: {n}");
                assert!(store.find(id(n)).unwrap().is_none(), "{why}: {n}");
            }
            die_at += 1;
        }
    }
}

/// Every id has an answer, at any moment.
fn check_answers(spool: &Spool, why: &str) {
    let store = spool.store();
    let places = spool.places();
    for n in OLD.into_iter().chain(KEPT) {
        let at = places.get(&id(n)).map_or(0, Vec::len);
        assert!(at <= 1, "{why}: {places:?}");
        let pruned = store.tombstone(id(n)).unwrap().is_some();
        assert!(at == 1 || pruned, "{why}: {n} is gone without a word");
        if KEPT.contains(&n) {
            assert!(at == 1 && !pruned, "{why}: {n}");
        }
    }
    let key = |key: &str| spool.has(&format!("keys/a/{}", sha256_hex(key.as_bytes())));
    assert!(
        key("eleven") && key("thirteen"),
        "{why}: a key of a kept item"
    );
    assert!(spool.has(&format!("bodies/{}", id(12))), "{why}");
    for (n, name) in [(1, "one"), (2, "two"), (5, "five")] {
        let there = places.contains_key(&id(n));
        assert!(!there || key(name), "{why}: {n} is there without its key");
    }
    for n in [3, 5] {
        let there = places.contains_key(&id(n));
        let body = spool.has(&format!("bodies/{}", id(n)));
        assert!(!there || body, "{why}: {n} is there without its body");
    }
    let mut seen = 0;
    let mut each = |_: &tickpost::store::Found| {
        seen += 1;
        Ok(())
    };
    store.scan(&Scope::default(), &mut each).unwrap();
    assert!(seen >= KEPT.len(), "{why}");
}

#[test]
fn tombstones_are_durable_before_anything_goes() {
    let spool = varied();
    let disk = MortalDisk::new(Death::Killed, None);
    prune(&spool.store_on(disk.clone()), NOW).unwrap();
    let calls = &disk.fate.borrow().calls;
    let mut rest = calls.iter();
    for step in [
        format!("append *{LOG}"),
        format!("sync *{LOG}"),
        "sync_dir */log".to_owned(),
        format!("unlink *{}.jsonl", id(1)),
        "sync_dir */confirmed/a/".to_owned(),
        "unlink */keys/a/".to_owned(),
        "sync_dir */keys/a".to_owned(),
        format!("append *{LOG}"),
        "unlink */keys/_ids/".to_owned(),
        "sync_dir */keys/_ids".to_owned(),
        "unlink */log/pruned-20250101.jsonl".to_owned(),
    ] {
        let (op, path) = step.split_once('*').unwrap();
        let found = rest.any(|call| call.starts_with(op) && call.contains(path));
        assert!(found, "`{step}` in its turn: {calls:#?}");
    }
}

#[test]
fn what_a_dead_session_half_wrote_spoils_nothing() {
    for half in [&b"{\"request_id\":\"019"[..], b"\0\0\0\0\0", b"\xff\xfe"] {
        let spool = Spool::new();
        spool.settled(1, State::Confirmed, long_ago(), |_| {});
        spool.plant(LOG, half);
        prune(&spool.store(), NOW).unwrap();
        assert!(
            spool.store().tombstone(id(1)).unwrap().is_some(),
            "{half:?}"
        );
        assert_eq!(lines(&spool, LOG).len(), 1);
    }
}
