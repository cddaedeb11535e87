//! Loss of power behind each sync that a random history seldom needs: a story for each, on the disk in
//! memory that forgets what was not synced.
//!
//! Each test is red without the one sync that it is about. At the end, errors of the same disk that must
//! not be taken for answers.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod common;
#[path = "common/crash_disk.rs"]
#[expect(dead_code, reason = "the simulation uses the rest of it")]
mod crash_disk;

use std::cell::{Cell, RefCell};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use common::{MINUTE, NOW, accepted, attempt, by_hand, dest, envelope, id, owner, want};
use crash_disk::{CrashDisk, Profile, ROOT, Watch, path};
use rustix::io::Errno;
use tickpost::model::event::{Event, EventKind};
use tickpost::model::ids::RequestId;
use tickpost::model::item::{Item, event_line};
use tickpost::model::notice::Notice;
use tickpost::model::state::State;
use tickpost::model::time::{DAY_MS, UnixMs};
use tickpost::model::tombstone::Retention;
use tickpost::store::checkup::Checkup;
use tickpost::store::disk::Disk as _;
use tickpost::store::file::FileStore;
use tickpost::store::file::journal::SEGMENT_BYTES;
use tickpost::store::file::layout::Place;
use tickpost::store::{
    Answer, Decision, Dropped, Intake, Interrupted, Limits, Memory, Offer, Session, Store,
};

/// How many times each story is told, with other things lost. Where a name and what was done because of
/// it are lost one by one, few tellings lose what matters.
const SEEDS: u64 = 200;

/// The process dies.
struct Death;

#[derive(Default)]
struct Script {
    /// Who does this to a path that ends so dies before it is done.
    dies: RefCell<Option<(&'static str, String)>>,
    /// There is no room for a new file whose path holds this.
    no_room: Cell<Option<&'static str>>,
    /// What is done to a path that ends so fails so.
    fails: Cell<Option<(&'static str, &'static str, Errno)>>,
}

impl Watch for Script {
    fn before(&self, op: &'static str, path: &Path) -> io::Result<()> {
        let path = path.to_str().unwrap();
        let dies = self
            .dies
            .borrow_mut()
            .take_if(|(dies_op, end)| *dies_op == op && path.ends_with(&**end));
        if dies.is_some() {
            resume_unwind(Box::new(Death));
        }
        if op == "create" && self.no_room.get().is_some_and(|held| path.contains(held)) {
            return Err(io::Error::from_raw_os_error(Errno::NOSPC.raw_os_error()));
        }
        match self.fails.get() {
            Some((fails, end, errno)) if fails == op && path.ends_with(end) => {
                Err(io::Error::from_raw_os_error(errno.raw_os_error()))
            }
            _ => Ok(()),
        }
    }
}

struct Spool {
    disk: CrashDisk,
    script: Rc<Script>,
    /// Which telling this is.
    why: String,
}

impl Spool {
    fn new(profile: Profile, seed: u64) -> Self {
        let script = Rc::<Script>::default();
        let watch: Rc<dyn Watch> = Rc::<Script>::clone(&script);
        let disk = CrashDisk::new(profile, seed, watch);
        disk.lay_out(NOW, &["incoming/a"]);
        let why = format!("{profile:?}, seed {seed}");
        Self { disk, script, why }
    }

    #[expect(
        clippy::arc_with_non_send_sync,
        reason = "a store wants an Arc, and a story has one thread"
    )]
    fn store(&self) -> FileStore {
        FileStore::open_on(Arc::new(self.disk.clone()), Path::new(ROOT), true).unwrap()
    }

    /// From here on, whoever does this to a path that ends so dies.
    fn arm(&self, op: &'static str, end: &str) {
        *self.script.dies.borrow_mut() = Some((op, end.to_owned()));
    }

    /// A process that dies as it does this to a path that ends so.
    fn dies(&self, op: &'static str, end: &str, work: impl FnOnce(&FileStore)) {
        self.arm(op, end);
        self.dies_armed(work);
    }

    fn dies_armed(&self, work: impl FnOnce(&FileStore)) {
        match catch_unwind(AssertUnwindSafe(|| work(&self.store()))) {
            Err(payload) if payload.is::<Death>() => {}
            Err(payload) => resume_unwind(payload),
            Ok(()) => panic!("{}: it did not die", self.why),
        }
    }

    fn has(&self, relative: &str) -> bool {
        self.disk.stat(&path(relative)).is_ok()
    }

    /// A file that is there durably, as are its directories.
    fn plant(&self, relative: &str, bytes: &[u8]) {
        let mut dir = PathBuf::from(ROOT);
        let (parents, _) = relative.rsplit_once('/').unwrap();
        for part in parents.split('/') {
            dir.push(part);
            if self.disk.stat(&dir).is_err() {
                self.disk.make_dir(&dir).unwrap();
            }
        }
        self.disk.create(&path(relative), bytes, Some(NOW)).unwrap();
        self.disk.write_back();
    }

    /// What a program does that drops a file.
    fn drop_file(&self, name: &str, text: &[u8]) {
        let hidden = path("incoming/a/.x");
        self.disk.create(&hidden, text, None).unwrap();
        self.disk
            .rename(&hidden, &path(&format!("incoming/a/{name}")))
            .unwrap();
        self.disk.sync_dir(&path("incoming/a")).unwrap();
    }

    /// What the next owner of the lock does before anything else.
    fn recover(&self) -> u64 {
        let store = self.store();
        let mut session = store.lock(&owner(NOW)).unwrap();
        let recovered = session.recover(&mut interrupted).unwrap();
        session.close(NOW, None).unwrap();
        recovered
    }

    /// An item of some state, and its events.
    fn item(&self, n: u64) -> Option<(State, Vec<Event>)> {
        let store = self.store();
        let found = store.find(id(n)).unwrap()?;
        let item = store.read(&found).unwrap().unwrap().unwrap();
        Some((found.state, item.events))
    }
}

/// Tells a story for each profile and seed.
fn told(story: impl Fn(&Spool)) {
    for profile in [Profile::Strict, Profile::Ext4] {
        for seed in 0..SEEDS {
            story(&Spool::new(profile, seed));
        }
    }
}

fn interrupted(item: &Interrupted) -> (Event, Vec<Notice>) {
    let mut event = attempt(item.n, NOW, State::Unknown, None);
    event.claimed_at = Some(item.claimed_at);
    (event, vec![])
}

/// Offers the `n`th item under the one key, each time with the same request.
fn offer(store: &FileStore, n: u64) -> Answer {
    let mut envelope = envelope(n);
    envelope.key = Some("k".to_owned());
    envelope.request = common::envelope(1).request;
    let offer = Offer {
        envelope,
        accepted: accepted(),
        own_id: false,
        body: None,
    };
    let mut answers = Vec::new();
    store
        .accept_all(vec![offer], &Limits::NONE, &mut answers)
        .unwrap();
    answers.remove(0)
}

/// A producer that dies when its item is in its place, before that is durable.
fn dies_accepting(spool: &Spool) {
    spool.dies("sync_dir", "/pending/a", |store| drop(offer(store, 1)));
    assert!(spool.has(&format!("pending/a/{}.jsonl", id(1))));
}

fn accepts(id: RequestId, own_id: bool) -> Intake {
    let mut envelope = envelope(1);
    envelope.request_id = id;
    Intake::Accept(Box::new(Offer {
        envelope,
        accepted: accepted(),
        own_id,
        body: None,
    }))
}

/// A producer that dies when the directory of its item is there, before that is durable.
fn dies_making_its_directory(spool: &Spool) {
    spool.dies("sync_dir", "/pending", |store| {
        drop(store.accept(envelope(9), accepted()));
    });
}

/// Takes in what is in the box; a new file gets this id.
fn take_in(session: &mut dyn Session, new: RequestId) {
    let mut decide = |dropped: &Dropped<'_>| {
        if dropped.bytes == b"bad" {
            return Intake::Refuse("it is no item".to_owned());
        }
        accepts(dropped.id.unwrap_or(new), dropped.id.is_some())
    };
    session
        .take_in(&dest("a"), 1 << 20, &Limits::NONE, &mut decide)
        .unwrap();
}

/// A tick that takes in what is in the box, and ends well.
fn tick(store: &FileStore, new: u64) {
    let mut session = store.lock(&owner(NOW)).unwrap();
    session.recover(&mut interrupted).unwrap();
    take_in(session.as_mut(), id(new));
    session.close(NOW, None).unwrap();
}

fn hold(_: &Item) -> Decision {
    let event = by_hand(EventKind::Held, NOW, State::Held, None);
    Decision::Settle(Box::new(event), vec![])
}

fn claim(_: &Item) -> Decision {
    Decision::Claim
}

// ---------------------------------------------------------------- accept

#[test]
fn what_a_repeat_calls_known_is_there_after_a_loss_of_power() {
    told(|spool| {
        spool.plant("pending/a/README", b"");
        dies_accepting(spool);
        assert_eq!(offer(&spool.store(), 2), Answer::Known(id(1)));
        spool.disk.lose_power();
        assert!(spool.item(1).is_some(), "{}", spool.why);
    });
}

/// An operator who builds on an item that is not durable would leave a record of an item that is
/// nowhere, and whoever repeats the key would be told that it is known.
#[test]
fn what_an_operator_was_told_of_is_there_after_a_loss_of_power() {
    told(|spool| {
        spool.plant("pending/a/README", b"");
        dies_accepting(spool);
        operator_holds(spool);
    });
}

/// The same, in a directory that is new: its maker died before its name was durable.
#[test]
fn what_an_operator_was_told_of_is_there_though_its_directory_was_new() {
    told(|spool| {
        dies_making_its_directory(spool);
        dies_accepting(spool);
        operator_holds(spool);
    });
}

fn operator_holds(spool: &Spool) {
    let store = spool.store();
    let found = store.find(id(1)).unwrap().unwrap();
    let mut session = store.lock(&owner(NOW)).unwrap();
    assert!(session.change(&found, &mut hold).unwrap());
    session.sync().unwrap();
    drop(session);
    spool.disk.lose_power();
    assert_eq!(offer(&spool.store(), 2), Answer::Known(id(1)));
    spool.recover();
    let state = spool.item(1).map(|(state, _)| state);
    assert_eq!(state, Some(State::Held), "{}", spool.why);
}

/// What is sent must be there to say so.
#[test]
fn what_was_claimed_is_there_though_its_directory_was_new() {
    told(|spool| {
        dies_making_its_directory(spool);
        dies_accepting(spool);
        let store = spool.store();
        let mut session = store.lock(&owner(NOW)).unwrap();
        assert_eq!(session.claim(&want(1), NOW, &mut claim).unwrap().len(), 1);
        drop(session);
        spool.disk.lose_power();
        assert_eq!(spool.recover(), 1, "{}", spool.why);
        let (state, events) = spool.item(1).unwrap();
        assert_eq!((state, events.len()), (State::Unknown, 2), "{}", spool.why);
    });
}

// ---------------------------------------------------------------- drop box

#[test]
fn a_drop_goes_only_when_its_item_is_durable() {
    told(|spool| {
        spool.plant("pending/a/README", b"");
        spool.drop_file("x.json", b"{}");
        spool.dies("sync_dir", "/pending/a", |store| tick(store, 1));
        // The next one removes the file, and power goes before everything is synced.
        spool.dies("sync_all", "", |store| tick(store, 2));
        spool.disk.lose_power();
        tick(&spool.store(), 3);
        assert!(spool.item(1).is_some(), "{}", spool.why);
        for n in [2, 3] {
            assert!(spool.item(n).is_none(), "{}: {n}", spool.why);
        }
    });
}

/// A file that has got its id must not come back under its own name once its item is there: it
/// would become a second one.
#[test]
fn a_drop_keeps_the_id_that_a_dead_tick_gave_it() {
    told(|spool| {
        spool.drop_file("x.json", b"{}");
        // It dies as it makes that name durable, behind the sync that every box begins with.
        spool.dies_armed(|store| {
            let mut session = store.lock(&owner(NOW)).unwrap();
            let mut decide = |_: &Dropped<'_>| {
                spool.arm("sync_dir", "/incoming/a");
                accepts(id(1), false)
            };
            drop(session.take_in(&dest("a"), 1 << 20, &Limits::NONE, &mut decide));
        });
        assert!(spool.has(&format!("incoming/a/x.{}.taking", id(1))));
        spool.dies("sync_all", "", |store| tick(store, 2));
        spool.disk.lose_power();
        tick(&spool.store(), 3);
        let there = [1, 2, 3].map(|n| spool.item(n).is_some());
        assert_eq!(there, [true, false, false], "{}", spool.why);
    });
}

#[test]
fn a_drop_keeps_the_id_of_its_item() {
    told(|spool| {
        spool.drop_file("x.json", b"{}");
        spool.dies("sync_all", "", |store| tick(store, 1));
        spool.disk.lose_power();
        tick(&spool.store(), 2);
        let there = [1, 2].map(|n| spool.item(n).is_some());
        assert_eq!(there, [true, false], "{}", spool.why);
    });
}

// ---------------------------------------------------------------- journal

/// A tick ends well; then a person tidies `corrupt/` and mends what the file was refused for, a producer
/// drops it again, and power goes. The journal of that tick would set the new file aside.
#[test]
fn a_journal_that_was_done_does_not_come_back() {
    told(|spool| {
        spool.drop_file("x.json", b"bad");
        tick(&spool.store(), 1);
        for name in ["corrupt/x.json", "corrupt/x.json.why.json"] {
            spool.disk.unlink(&path(name)).unwrap();
        }
        spool.disk.sync_dir(&path("corrupt")).unwrap();
        spool.drop_file("x.json", b"bad");
        spool.disk.lose_power();
        let store = spool.store();
        let mut session = store.lock(&owner(NOW)).unwrap();
        let mut mended = |_: &Dropped<'_>| accepts(id(2), false);
        session
            .take_in(&dest("a"), 1 << 20, &Limits::NONE, &mut mended)
            .unwrap();
        session.close(NOW, None).unwrap();
        assert!(spool.item(2).is_some(), "{}", spool.why);
        assert!(!spool.has("corrupt/x.json"), "{}", spool.why);
    });
}

/// A full file of the journal goes when its follower carries, durably, who is to be told.
#[test]
fn a_full_journal_goes_when_its_follower_is_durable() {
    for seed in 0..4 {
        let spool = Spool::new(Profile::Strict, seed);
        offer(&spool.store(), 1);
        let store = spool.store();
        let mut session = store.lock(&owner(NOW)).unwrap();
        let claims = session.claim(&want(1), NOW, &mut claim).unwrap();
        let mut event = attempt(1, NOW, State::Held, None);
        let notices = Notice::of(&claims[0].item, &event, 3, &[dest("ops")]);
        event.note = Some("x".repeat(usize::try_from(SEGMENT_BYTES).unwrap()));
        session.settle(&claims[0], event, notices).unwrap();
        session.sync().unwrap();
        drop(session);
        assert!(!spool.has("journal/00000001.jsonl"), "{}", spool.why);
        // Names may reach the disk at any time.
        spool.disk.sync_dir(&path("journal")).unwrap();
        spool.disk.lose_power();
        spool.recover();
        let mut told = 0;
        let mut count = |_: &str, _: u64, _: &[u8]| told += 1;
        spool.disk.walk(&path("pending/ops"), &mut count);
        assert_eq!(told, 1, "{}", spool.why);
        let (state, events) = spool.item(1).unwrap();
        assert_eq!(
            (state, events.len()),
            (State::Held, 2),
            "{}: what it said of the item goes only when that is so",
            spool.why
        );
    }
}

/// What replay does because of a record must not outlive the record.
#[test]
fn a_journal_is_durable_before_it_is_replayed() {
    replayed_and_lost(None);
}

/// Replay finds no room to write it anew.
#[test]
fn a_journal_is_durable_before_it_is_replayed_also_without_room() {
    replayed_and_lost(Some("/tmp/journal_"));
}

fn replayed_and_lost(no_room: Option<&'static str>) {
    told(|spool| {
        offer(&spool.store(), 1);
        spool.disk.write_back();
        let store = spool.store();
        let mut session = store.lock(&owner(NOW)).unwrap();
        let claims = session.claim(&want(1), NOW, &mut claim).unwrap();
        // It is killed before the answer is durable.
        let event = attempt(1, NOW, State::Pending, Some(NOW.plus(MINUTE)));
        session.settle(&claims[0], event, vec![]).unwrap();
        drop(session);
        spool.script.no_room.set(no_room);
        spool.dies("sync_all", "", |store| {
            let mut session = store.lock(&owner(NOW)).unwrap();
            session.recover(&mut interrupted).unwrap();
            drop(session.close(NOW, None));
        });
        spool.script.no_room.set(None);
        spool.disk.lose_power();
        spool.recover();
        let (_, events) = spool.item(1).unwrap();
        let tried = events.iter().filter(|event| event.n == Some(1)).count();
        assert_eq!(tried, 1, "{}: {events:?}", spool.why);
    });
}

// ---------------------------------------------------------------- prune

fn prune(store: &FileStore, now: UnixMs) {
    let mut session = store.lock(&owner(now)).unwrap();
    let mut left = true;
    while left {
        let pruned = session.prune(&Retention::default(), now, usize::MAX);
        left = pruned.unwrap().left;
    }
    session.close(now, None).unwrap();
}

/// Nothing else would ever remove it.
#[test]
fn the_name_of_an_own_id_does_not_outlive_its_tombstone() {
    let reserved = format!("keys/_ids/{}", id(1));
    told(|spool| {
        let (_, mut bytes) = Item::accept(envelope(1), accepted()).unwrap();
        let event = attempt(1, NOW, State::Confirmed, None);
        bytes.extend(event_line(&event).unwrap());
        let place = Place::filed(State::Confirmed, "a", id(1), None, None, NOW);
        spool.plant(&place.path(), &bytes);
        spool.plant(&reserved, b"{}\n");
        prune(&spool.store(), NOW.plus(400 * DAY_MS));
        spool.disk.write_back();
        assert!(spool.has(&reserved), "{}", spool.why);
        prune(&spool.store(), NOW.plus(800 * DAY_MS));
        spool.disk.lose_power();
        prune(&spool.store(), NOW.plus(800 * DAY_MS));
        assert!(!spool.has(&reserved), "{}", spool.why);
    });
}

/// The tombstones that the next pruning begins with are those of the last group only.
#[test]
fn what_a_group_of_pruned_items_leaves_is_gone_before_the_next() {
    const GROUP: u64 = 128;
    let later = NOW.plus(400 * DAY_MS);
    let body = format!("bodies/{}", id(1));
    for profile in [Profile::Strict, Profile::Ext4] {
        for seed in 0..8 {
            let spool = Spool::new(profile, seed);
            for n in 1..=2 * GROUP {
                let (_, mut bytes) = Item::accept(envelope(n), accepted()).unwrap();
                let event = attempt(1, NOW, State::Confirmed, None);
                bytes.extend(event_line(&event).unwrap());
                let place = Place::filed(State::Confirmed, "a", id(n), None, None, NOW);
                spool.plant(&place.path(), &bytes);
            }
            spool.plant(&body, b"body");
            // Of the second group the tombstones are durable, and nothing is gone.
            let last = Place::filed(State::Confirmed, "a", id(GROUP + 1), None, None, NOW);
            spool.dies("unlink", &last.path(), |store| prune(store, later));
            assert!(!spool.has(&body), "{}", spool.why);
            spool.disk.lose_power();
            prune(&spool.store(), later);
            assert!(spool.item(1).is_none(), "{}", spool.why);
            assert!(!spool.has(&body), "{}", spool.why);
        }
    }
}

// ---------------------------------------------------------------- doctor

/// Somebody has just given an item a second name. The one that stays must be there for good before
/// the other one goes.
#[test]
fn an_item_of_two_names_keeps_one() {
    told(|spool| {
        offer(&spool.store(), 1);
        spool.disk.make_dir(&path("held/a")).unwrap();
        spool.disk.write_back();
        let of = |state: &str| path(&format!("{state}/a/{}.jsonl", id(1)));
        spool.disk.link(&of("pending"), &of("held"));
        spool.dies_armed(|store| {
            let mut session = store.lock(&owner(NOW)).unwrap();
            session.recover(&mut interrupted).unwrap();
            spool.arm("sync_all", "");
            let checkup = Checkup {
                now: NOW,
                configured: None,
            };
            session.mend(&checkup).unwrap();
            drop(session.close(NOW, None));
        });
        assert_ne!(
            spool.disk.stat(&of("pending")).is_ok(),
            spool.disk.stat(&of("held")).is_ok(),
            "{}",
            spool.why
        );
        spool.disk.lose_power();
        assert!(spool.item(1).is_some(), "{}", spool.why);
    });
}

// ---------------------------------------------------------------- corrupt

/// What stands where an item goes is set aside by no record of its own: nobody writes its reason a
/// second time. (Where names are lost in any order, the reason's may be.)
#[test]
fn what_stood_in_the_way_has_its_reason() {
    for seed in 0..SEEDS {
        let spool = Spool::new(Profile::Ext4, seed);
        offer(&spool.store(), 1);
        let settled = format!("confirmed/a/20261129/{}.jsonl", id(1));
        spool.dies("sync_all", "", |store| {
            let mut session = store.lock(&owner(NOW)).unwrap();
            let claims = session.claim(&want(1), NOW, &mut claim).unwrap();
            spool.plant(&settled, b"another");
            let event = attempt(1, NOW, State::Confirmed, None);
            session.settle(&claims[0], event, vec![]).unwrap();
            drop(session.close(NOW, None));
        });
        spool.disk.lose_power();
        let name = format!("corrupt/{}.jsonl", id(1));
        if spool.has(&name) {
            let why = spool
                .disk
                .read(&path(&format!("{name}.why.json")), 1 << 20)
                .unwrap();
            let why = String::from_utf8_lossy(&why).into_owned();
            assert!(
                why.contains("reason") && why.ends_with('\n'),
                "{}: {why:?}",
                spool.why
            );
        }
    }
}

// ---------------------------------------------------------------- errors that are no answers

/// What cannot be made is not mended.
#[test]
fn a_file_that_doctor_cannot_make_ends_it() {
    let spool = Spool::new(Profile::Ext4, 0);
    let store = spool.store();
    spool.disk.unlink(&path("wake")).unwrap();
    let mut session = store.lock(&owner(NOW)).unwrap();
    let checkup = Checkup {
        now: NOW,
        configured: None,
    };
    let broken = ("write_new", "/wake", Errno::IO);
    spool.script.fails.set(Some(broken));
    let error = session.mend(&checkup).unwrap_err().to_string();
    assert!(error.contains("wake"), "{error}");
    drop(session);
    spool.script.fails.set(None);
    let mut session = store.lock(&owner(NOW)).unwrap();
    session.mend(&checkup).unwrap();
    assert!(spool.has("wake"));
}

/// An item is not accepted a second time because nobody could look whether it is there.
#[test]
fn an_item_that_cannot_be_looked_at_is_not_accepted_again() {
    let spool = Spool::new(Profile::Strict, 0);
    let store = spool.store();
    let offer = || Offer {
        envelope: envelope(7),
        accepted: accepted(),
        own_id: true,
        body: None,
    };
    let mut answers = Vec::new();
    let mut ask = || store.accept_all(vec![offer()], &Limits::NONE, &mut answers);
    ask().unwrap();
    {
        let mut session = store.lock(&owner(NOW)).unwrap();
        let claims = session
            .claim(&want(1), NOW, &mut |_| Decision::Claim)
            .unwrap();
        session
            .settle(&claims[0], attempt(1, NOW, State::Confirmed, None), vec![])
            .unwrap();
        session.close(NOW, None).unwrap();
    }
    let name = Box::leak(format!("/{}.jsonl", id(7)).into_boxed_str());
    spool.script.fails.set(Some(("stat", name, Errno::IO)));
    assert!(ask().is_err(), "nobody can tell");
    spool.script.fails.set(None);
    assert!(!spool.has(&format!("pending/a{name}")));
    ask().unwrap();
    assert_eq!(answers, [Answer::Known(id(7))]);
}

/// A destination is not sent to because nobody could look whether a person holds it.
#[test]
fn a_hold_that_cannot_be_looked_at_is_a_hold() {
    let spool = Spool::new(Profile::Strict, 0);
    let store = spool.store();
    assert_eq!(store.destination_hold("a").unwrap(), None);
    for errno in [Errno::IO, Errno::ACCESS] {
        spool
            .script
            .fails
            .set(Some(("stat", "destinations/a.hold.json", errno)));
        assert!(store.destination_hold("a").unwrap().is_some(), "{errno}");
    }
}

/// Nothing else says it: a key's window would be open again.
#[test]
fn that_a_clock_was_set_back_is_known_after_a_loss_of_power() {
    told(|spool| {
        let until = NOW.plus(MINUTE);
        let store = spool.store();
        let mut session = store.lock(&owner(NOW)).unwrap();
        session.note_set_back(until).unwrap();
        session.close(NOW, None).unwrap();
        // The next owner writes it anew, and power goes before everything is synced.
        spool.drop_file("x.json", b"{}");
        spool.dies("sync_all", "", |store| tick(store, 1));
        spool.disk.lose_power();
        let store = spool.store();
        let session = store.lock(&owner(NOW)).unwrap();
        assert_eq!(session.set_back_until(), Some(until), "{}", spool.why);
    });
}

/// Under which key items go out is known before the first one does.
#[test]
fn what_is_remembered_of_a_destination_is_there_after_a_loss_of_power() {
    told(|spool| {
        let store = spool.store();
        let mut session = store.lock(&owner(NOW)).unwrap();
        let memory = Memory {
            told_unconfigured: true,
            ..Memory::default()
        };
        session.remember(&dest("a"), &memory).unwrap();
        session.sync_memories().unwrap();
        drop(session);
        spool.disk.lose_power();
        let after = spool.store().memory(&dest("a")).unwrap();
        assert_eq!(after, memory, "{}", spool.why);
    });
}

/// It may hold anything, and what is told of others is told.
#[test]
fn a_destination_that_cannot_be_listed_counts_as_waiting_and_keeps_no_notice_back() {
    let spool = Spool::new(Profile::Strict, 0);
    spool.plant("held/old/one.jsonl", b"");
    spool.plant(
        "pending/a/00000000-0000-7000-8000-000000000001.jsonl",
        b"garbage",
    );
    spool
        .script
        .fails
        .set(Some(("list", "held/old", Errno::ACCESS)));
    let store = spool.store();
    let told = [dest("ops")];
    let mut owner = owner(NOW);
    owner.told_of_corrupt = &told;
    let mut session = store.lock(&owner).unwrap();
    assert_eq!(
        session
            .claim(&want(1), NOW, &mut |_| Decision::Claim)
            .unwrap()
            .len(),
        0
    );
    assert!(
        session.has_waiting(&dest("old")).unwrap(),
        "it may hold anything"
    );
    session.close(NOW, None).unwrap();
    let mut notices = 0;
    spool
        .disk
        .list(&path("pending/ops"), &mut |_, _| notices += 1)
        .unwrap();
    assert_eq!(notices, 1);
}

/// A notice whose directory's own name could not be synced is not there yet.
#[test]
fn a_notice_that_was_not_placed_for_want_of_a_sync_is_kept() {
    let spool = Spool::new(Profile::Strict, 0);
    offer(&spool.store(), 1);
    let store = spool.store();
    let mut session = store.lock(&owner(NOW)).unwrap();
    let claims = session.claim(&want(1), NOW, &mut claim).unwrap();
    let event = attempt(1, NOW, State::Held, None);
    let notices = Notice::of(&claims[0].item, &event, 2, &[dest("ops")]);
    session.settle(&claims[0], event, notices).unwrap();
    let parent = Some(("sync_dir", "spool/pending", Errno::ACCESS));
    spool.script.fails.set(parent);
    session.close(NOW, None).unwrap();
    spool.script.fails.set(None);
    spool.disk.lose_power();
    let session = spool
        .store()
        .lock(&owner(NOW))
        .map(|session| session.close(NOW, None));
    session.unwrap().unwrap();
    let mut notices = 0;
    spool
        .disk
        .list(&path("pending/ops"), &mut |_, _| notices += 1)
        .unwrap();
    assert_eq!(notices, 1);
}
