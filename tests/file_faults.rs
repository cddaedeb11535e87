//! What one call of the disk says costs no more than it must: an error that is not passed over, room
//! that is nearly gone, a lock that somebody else owns. On the disk in memory of the simulation.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod common;
#[path = "common/crash_disk.rs"]
#[expect(dead_code, reason = "the simulation uses the rest of it")]
mod crash_disk;

use std::cell::{Cell, RefCell};
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use common::{NOW, accepted, attempt, dest, envelope, id, owner, want};
use crash_disk::{CrashDisk, Profile, ROOT, Watch, path};
use rustix::io::Errno;
use tickpost::model::envelope::{Envelope, sha256_hex};
use tickpost::model::item::{Item, event_line};
use tickpost::model::state::State;
use tickpost::model::time::{DAY_MS, UnixMs};
use tickpost::model::tombstone::Retention;
use tickpost::store::disk::{Disk as _, Lock};
use tickpost::store::file::FileStore;
use tickpost::store::{
    Answer, Decision, DestinationHold, Dropped, Intake, Limits, Offer, Scope, Store,
};

#[derive(Default)]
struct Script {
    /// What is done so to a path that ends so fails.
    fails: RefCell<Option<(&'static str, String)>>,
    /// Before this is done to a path that ends so, somebody else removes it.
    vanishes: RefCell<Option<(&'static str, String)>>,
    /// Before this is done to a path that ends so, a session that had begun before moves an item from
    /// one place to another, and leaves no journal.
    moves: RefCell<Option<(&'static str, String, [String; 2])>>,
    disk: RefCell<Option<CrashDisk>>,
    /// So much later is it than in the beginning, in milliseconds.
    later: Cell<u64>,
    /// Somebody's lock: given up as soon as another asks for it.
    held: RefCell<Option<Box<dyn Lock>>>,
}

impl Watch for Script {
    fn before(&self, op: &'static str, path: &Path) -> io::Result<()> {
        let is_it = |(other, end): &mut (&str, String)| *other == op && path.ends_with(&**end);
        let vanishes = self.vanishes.borrow_mut().take_if(is_it);
        if vanishes.is_some() {
            self.disk.borrow().as_ref().unwrap().unlink(path).unwrap();
        }
        let is_it =
            |(other, end, _): &mut (&str, String, _)| *other == op && path.ends_with(&**end);
        let moves = self.moves.borrow_mut().take_if(is_it);
        if let Some((_, _, [from, to])) = moves {
            let disk = self.disk.borrow();
            let disk = disk.as_ref().unwrap();
            self.later.set(1);
            let segment = crash_disk::path("journal/00000001.jsonl");
            disk.create(&segment, b"", None).unwrap();
            disk.rename(&crash_disk::path(&from), &crash_disk::path(&to))
                .unwrap();
            disk.unlink(&segment).unwrap();
        }
        match &*self.fails.borrow() {
            Some((fails, end)) if *fails == op && path.ends_with(end) => {
                Err(io::Error::from_raw_os_error(Errno::IO.raw_os_error()))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn contended(&self, _: &Path) {
        self.held.take();
    }

    fn now(&self) -> UnixMs {
        NOW.plus(self.later.get())
    }
}

struct Spool {
    disk: CrashDisk,
    script: Rc<Script>,
}

impl Spool {
    fn new() -> Self {
        let script = Rc::<Script>::default();
        let watch: Rc<dyn Watch> = Rc::<Script>::clone(&script);
        let disk = CrashDisk::new(Profile::Ext4, 1, watch);
        disk.lay_out(NOW, &["keys/a", "pending/a"]);
        *script.disk.borrow_mut() = Some(disk.clone());
        Self { disk, script }
    }

    #[expect(
        clippy::arc_with_non_send_sync,
        reason = "a store wants an Arc, and a test has one thread"
    )]
    fn store(&self) -> FileStore {
        FileStore::open_on(Arc::new(self.disk.clone()), Path::new(ROOT), true).unwrap()
    }

    fn fails(&self, op: &'static str, end: &str) {
        *self.script.fails.borrow_mut() = Some((op, end.to_owned()));
    }

    fn vanishes(&self, op: &'static str, end: &str) {
        *self.script.vanishes.borrow_mut() = Some((op, end.to_owned()));
    }

    fn has_vanished(&self) -> bool {
        self.script.vanishes.borrow().is_none()
    }

    /// Whether a session that begins now finds too little room.
    fn is_tight(&self) -> bool {
        let store = self.store();
        let session = store.lock(&owner(NOW)).unwrap();
        let tight = session.tight().is_some();
        session.close(NOW, None).unwrap();
        tight
    }
}

fn claim(_: &Item) -> Decision {
    Decision::Claim
}

#[test]
fn an_item_that_cannot_be_looked_at_is_told() {
    let spool = Spool::new();
    let store = spool.store();
    store.accept(envelope(1), accepted()).unwrap();
    let name = format!("{}.jsonl", id(1));
    spool.fails("stat", &name);
    let mut session = store.lock(&owner(NOW)).unwrap();
    let claims = session.claim(&want(9), NOW, &mut claim).unwrap();
    assert!(claims.is_empty());
    let told = &session.met().foreign;
    assert!(told.iter().any(|what| what.contains(&name)), "{told:?}");
}

/// What it says of items is not in their places.
#[test]
fn nobody_reads_past_a_journal_that_cannot_be_read() {
    let spool = Spool::new();
    let store = spool.store();
    store.accept(envelope(1), accepted()).unwrap();
    let mut session = store.lock(&owner(NOW)).unwrap();
    session.claim(&want(9), NOW, &mut claim).unwrap();
    spool.fails("read", "journal/00000001.jsonl");
    let mut seen = Vec::new();
    let scanned = store.scan(&Scope::default(), &mut |found| {
        seen.push(found.id);
        Ok(())
    });
    assert!(scanned.is_err(), "{seen:?}");
    assert!(store.find(id(1)).is_err());
}

/// Nobody can tell what a person has said.
#[test]
fn a_hold_that_cannot_be_read_is_a_hold_as_a_damaged_one_is() {
    let spool = Spool::new();
    let store = spool.store();
    let hold = DestinationHold {
        at: NOW,
        by: "someone(1)".to_owned(),
        note: None,
    };
    store.set_destination_hold(&dest("a"), Some(&hold)).unwrap();
    assert_eq!(store.destination_hold("a").unwrap(), Some(hold));
    let file = path("destinations/a.hold.json");
    spool.disk.unlink(&file).unwrap();
    spool.disk.create(&file, b"{", None).unwrap();
    assert!(store.destination_hold("a").unwrap().is_some());
    spool.fails("read", "a.hold.json");
    assert!(store.destination_hold("a").unwrap().is_some());
    // What is no file at all is a damaged one.
    *spool.script.fails.borrow_mut() = None;
    spool.disk.unlink(&file).unwrap();
    spool.disk.make_dir(&file).unwrap();
    assert!(store.destination_hold("a").unwrap().is_some());
}

#[test]
fn a_key_that_somebody_is_just_using_is_waited_for() {
    let spool = Spool::new();
    let mut envelope = envelope(1);
    envelope.key = Some("k".to_owned());
    let name = tickpost::model::envelope::sha256_hex(b"k");
    let key = path(&format!("keys/a/{name}"));
    spool.disk.create(&key, b"", None).unwrap();
    *spool.script.held.borrow_mut() = spool.disk.lock(&key).unwrap();
    let offer = Offer {
        envelope,
        accepted: accepted(),
        own_id: false,
        body: None,
    };
    let mut answers = Vec::new();
    spool
        .store()
        .accept_all(vec![offer], &Limits::NONE, &mut answers)
        .unwrap();
    assert_eq!(answers, [Answer::New(id(1))]);
    assert!(spool.script.held.borrow().is_none(), "it was asked for");
}

/// A tick waits for nobody: the next one looks again.
#[test]
fn a_drop_under_a_key_that_somebody_is_just_using_stays() {
    let spool = Spool::new();
    let key = path(&format!("keys/a/{}", sha256_hex(b"k")));
    spool.disk.create(&key, b"", None).unwrap();
    *spool.script.held.borrow_mut() = spool.disk.lock(&key).unwrap();
    spool.disk.make_dir(&path("incoming/a")).unwrap();
    let dropped = path("incoming/a/x.json");
    spool.disk.create(&dropped, b"{}", None).unwrap();
    let take_in = || {
        let store = spool.store();
        let mut session = store.lock(&owner(NOW)).unwrap();
        let mut decide = |_: &Dropped<'_>| Intake::Accept(Box::new(keyed(1)));
        session
            .take_in(&dest("a"), 1000, &Limits::NONE, &mut decide)
            .unwrap()
            .accepted
    };
    assert_eq!(take_in(), 0);
    assert!(spool.script.held.borrow().is_none(), "it was asked for");
    assert_eq!(take_in(), 1);
}

/// The reserve is made while there is much room, and kept with less.
#[test]
fn a_reserve_that_is_there_is_kept_until_the_disk_is_nearly_full() {
    let spool = Spool::new();
    assert!(!spool.is_tight());
    let whole = path("reserve/32");
    assert!(spool.disk.stat(&whole).is_ok());
    spool.disk.bound(100 * 1024, 60);
    assert!(!spool.is_tight());
    assert!(spool.disk.stat(&whole).is_ok());
}

#[test]
fn no_reserve_is_made_of_the_last_inodes() {
    for (files, tight) in [(40, true), (120, false)] {
        let spool = Spool::new();
        spool.disk.bound(1 << 20, files);
        assert_eq!(spool.is_tight(), tight, "{files}");
        assert_eq!(spool.disk.stat(&path("reserve/32")).is_err(), tight);
    }
}

/// 8 KiB for each and for one more, while more than 64 KiB stay free.
#[test]
fn as_many_are_claimed_as_there_is_room_to_settle() {
    let spool = Spool::new();
    let store = spool.store();
    for n in 1..=60 {
        store.accept(envelope(n), accepted()).unwrap();
    }
    assert!(!spool.is_tight());
    spool.disk.bound(164 * 1024, 1000);
    let mut session = store.lock(&owner(NOW)).unwrap();
    for claimed in [7, 3] {
        let claims = session.claim(&want(60), NOW, &mut claim).unwrap();
        assert_eq!(claims.len(), claimed);
        assert!(session.tight().is_none());
    }
    while session.tight().is_none() {
        assert!(session.claim(&want(60), NOW, &mut claim).unwrap().len() < 3);
    }
    assert!(spool.disk.stat(&path("reserve/32")).is_err());
}

/// Somebody else has filled the disk since the session began.
#[test]
fn nothing_is_claimed_where_nothing_could_be_settled() {
    let spool = Spool::new();
    let store = spool.store();
    store.accept(envelope(1), accepted()).unwrap();
    let mut session = store.lock(&owner(NOW)).unwrap();
    assert!(session.tight().is_none());
    spool.disk.bound(1, 1000);
    assert!(session.claim(&want(9), NOW, &mut claim).unwrap().is_empty());
    assert!(session.tight().is_some());
    assert!(spool.disk.stat(&path("reserve/32")).is_err());
}

/// Nothing is claimed, and no reserve given up for it.
#[test]
fn space_that_cannot_be_set_aside_for_another_reason_ends_the_session() {
    let spool = Spool::new();
    let store = spool.store();
    store.accept(envelope(1), accepted()).unwrap();
    spool.fails("log reserve", "journal/00000001.jsonl");
    let mut session = store.lock(&owner(NOW)).unwrap();
    assert!(session.claim(&want(9), NOW, &mut claim).is_err());
    assert!(spool.disk.stat(&path("reserve/32")).is_ok());
    assert!(
        spool
            .disk
            .stat(&path(&format!("pending/a/{}.jsonl", id(1))))
            .is_ok()
    );
}

/// A reserve is for the day when there is no room, and what keeps it from being made is not that.
#[test]
fn a_reserve_that_cannot_be_made_for_another_reason_stops_nobody() {
    let spool = Spool::new();
    spool.fails("write_new", "reserve/05");
    assert!(!spool.is_tight());
}

/// An operator's command, or a tick, has moved it meanwhile.
#[test]
fn an_item_that_vanishes_while_it_is_looked_at_is_no_fault() {
    let spool = Spool::new();
    let store = spool.store();
    for n in [1, 2] {
        store.accept(envelope(n), accepted()).unwrap();
    }
    spool.vanishes("stat", &format!("{}.jsonl", id(1)));
    let mut session = store.lock(&owner(NOW)).unwrap();
    let claims = session.claim(&want(9), NOW, &mut claim).unwrap();
    assert!(spool.has_vanished());
    assert_eq!(claims.len(), 1);
    assert_eq!(session.met().foreign, Vec::<String>::new());
}

/// A failed one that a person tries again goes to where was looked before.
#[test]
fn an_item_that_moves_while_it_is_looked_for_is_known_to_its_repeats() {
    let spool = Spool::new();
    let store = spool.store();
    let keyed = |n| Offer {
        envelope: Envelope {
            key: Some("k".to_owned()),
            request: envelope(1).request,
            ..envelope(n)
        },
        accepted: accepted(),
        own_id: false,
        body: None,
    };
    let offered = |n| {
        let mut answers = Vec::new();
        store
            .accept_all(vec![keyed(n)], &Limits::NONE, &mut answers)
            .unwrap();
        answers.remove(0)
    };
    assert_eq!(offered(1), Answer::New(id(1)));
    let fresh = format!("pending/a/{}.jsonl", id(1));
    let failed = format!("failed/a/{}/{}.jsonl", NOW.day_name(), id(1));
    let day = path(&failed).parent().unwrap().to_owned();
    spool.disk.make_dir(day.parent().unwrap()).unwrap();
    spool.disk.make_dir(&day).unwrap();
    spool.disk.rename(&path(&fresh), &path(&failed)).unwrap();
    *spool.script.moves.borrow_mut() = Some(("list", "failed/a".to_owned(), [failed, fresh]));
    assert_eq!(offered(2), Answer::Known(id(1)));
    assert!(spool.script.moves.borrow().is_none());
}

/// An operator's command, or a tick, has moved it meanwhile.
#[test]
fn an_item_that_vanishes_before_it_is_read_is_not_there() {
    let spool = Spool::new();
    let store = spool.store();
    store.accept(envelope(1), accepted()).unwrap();
    let found = store.find(id(1)).unwrap().unwrap();
    spool.vanishes("read", &format!("{}.jsonl", id(1)));
    assert_eq!(store.read(&found).unwrap(), None);
    assert!(spool.has_vanished());
    store.accept(envelope(2), accepted()).unwrap();
    spool.vanishes("read", &format!("{}.jsonl", id(2)));
    assert_eq!(store.counts().unwrap().unreadable, Vec::<String>::new());
    assert!(spool.has_vanished());
}

/// Pruning removes a key between its being opened and its being looked at.
#[test]
fn a_key_that_vanishes_while_it_is_taken_is_made_again() {
    let spool = Spool::new();
    let store = spool.store();
    let key = format!("keys/a/{}", sha256_hex(b"k"));
    spool.disk.create(&path(&key), b"", None).unwrap();
    spool.vanishes("stat", &key);
    let mut keyed = envelope(1);
    keyed.key = Some("k".to_owned());
    let offer = Offer {
        envelope: keyed,
        accepted: accepted(),
        own_id: false,
        body: None,
    };
    let mut answers = Vec::new();
    store
        .accept_all(vec![offer], &Limits::NONE, &mut answers)
        .unwrap();
    assert!(spool.has_vanished());
    assert_eq!(answers, [Answer::New(id(1))]);
    assert!(spool.disk.stat(&path(&key)).is_ok());
}

/// The log is read from its end; what stands there need not be a line, nor be short.
#[test]
fn the_last_tick_is_found_before_whatever_ends_its_log() {
    let lines = "{\"attempts\":1}\n".repeat(1000) + "{\"attempts\":7}\n";
    let nothing = "x".repeat(100_000);
    let ends = [0, 1, 5000, 100_000].map(|length| (lines.clone() + &"\0".repeat(length), true));
    for (log, has_last) in ends.into_iter().chain([(nothing, false)]) {
        let spool = Spool::new();
        let ticks = path("log/ticks-20350101.jsonl");
        spool.disk.create(&ticks, log.as_bytes(), None).unwrap();
        let last = spool.store().last_tick().unwrap();
        let attempts = last.map(|last| last["attempts"].as_u64());
        assert_eq!(attempts, has_last.then_some(Some(7)));
    }
}

/// Directories are listed in any order.
#[test]
fn the_last_tick_is_that_of_the_latest_day() {
    let spool = Spool::new();
    for day in ["20261127", "20261129", "20261128"] {
        let log = path(&format!("log/ticks-{day}.jsonl"));
        let line = format!("{{\"day\":\"{day}\"}}\n");
        spool.disk.create(&log, line.as_bytes(), None).unwrap();
    }
    let last = spool.store().last_tick().unwrap().unwrap();
    assert_eq!(last["day"], "20261129");
}

/// A tick has ended.
#[test]
fn a_journal_that_vanishes_while_it_is_read_says_nothing() {
    let spool = Spool::new();
    let store = spool.store();
    store.accept(envelope(1), accepted()).unwrap();
    let mut session = store.lock(&owner(NOW)).unwrap();
    session.claim(&want(9), NOW, &mut claim).unwrap();
    spool.vanishes("read", "journal/00000001.jsonl");
    let found = store.find(id(1)).unwrap();
    assert!(spool.has_vanished());
    assert_eq!(found.unwrap().state, State::Unknown);
}

/// The same day's retention is over.
#[test]
fn a_log_that_vanishes_while_it_is_read_holds_nothing() {
    let spool = Spool::new();
    let store = spool.store();
    let name = format!("pruned-{}.jsonl", NOW.day_name());
    let log = path(&format!("log/{name}"));
    spool.disk.create(&log, b"{}\n", None).unwrap();
    spool.vanishes("read", &name);
    assert_eq!(store.tombstone(id(1)).unwrap(), None);
    assert!(spool.has_vanished());
}

#[test]
fn what_somebody_else_has_removed_is_pruned_all_the_same() {
    let spool = Spool::new();
    let long_ago = NOW.minus(200 * DAY_MS);
    let mut begun = accepted();
    begun.at = long_ago;
    let mut old = envelope(1);
    old.enqueued_at = long_ago;
    let (_, mut bytes) = Item::accept(old, begun).unwrap();
    let event = attempt(1, long_ago, State::Confirmed, None);
    bytes.extend(event_line(&event).unwrap());
    let day = format!("confirmed/a/{}", long_ago.day_name());
    for dir in ["confirmed/a", &day] {
        spool.disk.make_dir(&path(dir)).unwrap();
    }
    let name = format!("{}.jsonl", id(1));
    let place = path(&format!("{day}/{name}"));
    spool.disk.create(&place, &bytes, None).unwrap();
    spool.vanishes("unlink", &name);
    let store = spool.store();
    let mut session = store.lock(&owner(NOW)).unwrap();
    let pruned = session.prune(&Retention::default(), NOW, 9).unwrap();
    assert!(spool.has_vanished());
    assert_eq!(pruned.items, 1);
}

/// The disk does not tell when a file was made, so it may be a copy.
#[test]
fn no_file_is_sent_whose_item_is_elsewhere_too() {
    for elsewhere in [
        "confirmed/a/20260102",
        "failed/a/20260102",
        "held/a",
        "held/a/20300102T0304Z",
        "pending/a/20300102T0304Z",
        "unknown/a/parked",
        "unknown/a/20300102T0304Z",
    ] {
        let spool = Spool::new();
        let store = spool.store();
        let (held, _) = elsewhere.split_once('/').unwrap();
        let (_, mut bytes) = Item::accept(envelope(1), accepted()).unwrap();
        let state = State::parse(held).unwrap();
        bytes.extend(event_line(&attempt(1, NOW, state, None)).unwrap());
        let mut dir = String::new();
        for part in elsewhere.split('/') {
            dir = format!("{dir}/{part}");
            drop(spool.disk.make_dir(&path(dir.trim_start_matches('/'))));
        }
        let other = path(&format!("{elsewhere}/{}.jsonl", id(1)));
        spool.disk.create(&other, &bytes, None).unwrap();
        store.accept(envelope(1), accepted()).unwrap();
        store.accept(envelope(2), accepted()).unwrap();
        let mut session = store.lock(&owner(NOW)).unwrap();
        let claims = session.claim(&want(9), NOW, &mut claim).unwrap();
        let claimed: Vec<_> = claims
            .iter()
            .map(|claim| claim.item.envelope.request_id)
            .collect();
        assert_eq!(claimed, [id(2)], "{elsewhere}");
        session.close(NOW, None).unwrap();
        assert_eq!(
            spool.disk.read(&other, 1 << 20).unwrap(),
            bytes,
            "{elsewhere}"
        );
        let aside = path(&format!("corrupt/{}.jsonl", id(1)));
        assert!(spool.disk.stat(&aside).is_ok(), "{elsewhere}");
    }
}

/// What cannot be looked at may hold the other file: it costs the item its turn, and nothing else.
#[test]
fn what_may_hide_another_file_costs_one_item_its_turn() {
    let spool = Spool::new();
    let store = spool.store();
    let day = NOW.to_string()[..10].replace('-', "");
    for dir in ["confirmed/a", &format!("confirmed/a/{day}")] {
        spool.disk.make_dir(&path(dir)).unwrap();
    }
    for n in 1..=2 {
        store.accept(envelope(n), accepted()).unwrap();
    }
    spool.fails("stat", &format!("{day}/{}.jsonl", id(1)));
    let mut session = store.lock(&owner(NOW)).unwrap();
    let claims = session.claim(&want(9), NOW, &mut claim).unwrap();
    assert_eq!(claims.len(), 1);
    assert_eq!(claims[0].item.envelope.request_id, id(2));
    assert_eq!(
        session.met().foreign.len(),
        1,
        "{:?}",
        session.met().foreign
    );
    drop(session);
    assert!(store.find(id(1)).unwrap().is_some());
}

/// An item that nobody can look for may be there.
#[test]
fn an_item_in_a_place_out_of_reach_is_not_said_to_be_nowhere() {
    let spool = Spool::new();
    let store = spool.store();
    for dir in ["confirmed/a", "confirmed/a/20261129"] {
        spool.disk.make_dir(&path(dir)).unwrap();
    }
    store.accept(envelope(1), accepted()).unwrap();
    let name = format!("{}.jsonl", id(1));
    let from = path(&format!("pending/a/{name}"));
    let to = format!("confirmed/a/20261129/{name}");
    spool.disk.rename(&from, &path(&to)).unwrap();
    spool.fails("stat", &to);
    assert!(store.find(id(1)).is_err());
    *spool.script.fails.borrow_mut() = None;
    assert!(store.find(id(1)).unwrap().is_some());
}

/// It may have been sent; only the claim's name says so, and nobody can read the file.
#[test]
fn no_file_is_sent_whose_item_lies_claimed_and_cannot_be_read() {
    let spool = Spool::new();
    let store = spool.store();
    store.accept(envelope(1), accepted()).unwrap();
    let name = format!("{}.jsonl", id(1));
    let before = spool
        .disk
        .read(&path(&format!("pending/a/{name}")), 1 << 20);
    let mut session = store.lock(&owner(NOW)).unwrap();
    session.claim(&want(1), NOW, &mut claim).unwrap();
    // A copy that comes while it is being sent.
    let place = path(&format!("pending/a/{name}"));
    spool.disk.create(&place, &before.unwrap(), None).unwrap();
    store.accept(envelope(2), accepted()).unwrap();
    assert!(session.claim(&want(9), NOW, &mut claim).unwrap().is_empty());
    drop(session);
    spool.fails("read", &format!("unknown/a/{}.1.jsonl", id(1)));
    let mut session = store.lock(&owner(NOW)).unwrap();
    let mut never = |_: &tickpost::store::Interrupted| unreachable!();
    assert_eq!(session.recover(&mut never).unwrap(), 0);
    let claims = session.claim(&want(9), NOW, &mut claim).unwrap();
    let claimed: Vec<_> = claims
        .iter()
        .map(|one| one.item.envelope.request_id)
        .collect();
    assert_eq!(claimed, [id(2)]);
}

/// A journal that could not be written is nothing that one item hides behind.
#[test]
fn an_error_of_the_journal_is_no_other_file() {
    let spool = Spool::new();
    let store = spool.store();
    let (_, mut bytes) = Item::accept(envelope(1), accepted()).unwrap();
    bytes.extend(event_line(&attempt(1, NOW, State::Confirmed, None)).unwrap());
    for dir in ["confirmed/a", "confirmed/a/20260102"] {
        spool.disk.make_dir(&path(dir)).unwrap();
    }
    let other = path(&format!("confirmed/a/20260102/{}.jsonl", id(1)));
    spool.disk.create(&other, &bytes, None).unwrap();
    store.accept(envelope(1), accepted()).unwrap();
    spool.fails("log append", "journal/00000001.jsonl");
    let mut session = store.lock(&owner(NOW)).unwrap();
    assert!(session.claim(&want(9), NOW, &mut claim).is_err());
    *spool.script.fails.borrow_mut() = None;
    assert!(
        session.claim(&want(9), NOW, &mut claim).is_err(),
        "it has failed for good"
    );
}

fn keyed(n: u64) -> Offer {
    let mut envelope = envelope(n);
    envelope.request = common::envelope(1).request;
    envelope.key = Some("k".to_owned());
    Offer {
        envelope,
        accepted: accepted(),
        own_id: false,
        body: None,
    }
}

/// Whoever accepted it may have died before it was durable, and a repeat that is told of it does not
/// come again.
#[test]
fn an_item_whose_place_cannot_be_synced_is_not_said_to_be_known() {
    let spool = Spool::new();
    let store = spool.store();
    let mut answers = Vec::new();
    let mut accept = |n| {
        let done = store.accept_all(vec![keyed(n)], &Limits::NONE, &mut answers);
        done.map(|()| answers[0].clone())
    };
    assert_eq!(accept(1).unwrap(), Answer::New(id(1)));
    spool.fails("sync_dir", "pending/a");
    assert!(accept(2).is_err());
    *spool.script.fails.borrow_mut() = None;
    assert_eq!(accept(3).unwrap(), Answer::Known(id(1)));
}

/// By a session that has died since.
#[test]
fn what_repeats_an_item_that_was_just_set_aside_is_told_so() {
    let spool = Spool::new();
    let store = spool.store();
    let accept = |n| {
        let mut answers = Vec::new();
        store
            .accept_all(vec![keyed(n)], &Limits::NONE, &mut answers)
            .unwrap();
        answers.remove(0)
    };
    assert_eq!(accept(1), Answer::New(id(1)));
    let place = path(&format!("pending/a/{}.jsonl", id(1)));
    spool.disk.unlink(&place).unwrap();
    spool.disk.create(&place, b"garbage", None).unwrap();
    let mut session = store.lock(&owner(NOW)).unwrap();
    assert!(session.claim(&want(9), NOW, &mut claim).unwrap().is_empty());
    session.sync().unwrap();
    drop(session);
    assert!(spool.disk.stat(&place).is_err());
    assert_eq!(accept(2), Answer::Aside(id(1)));
}

/// What was sent stays settled.
#[test]
fn an_item_that_replay_cannot_look_at_keeps_its_event() {
    let spool = Spool::new();
    let store = spool.store();
    store.accept(envelope(1), accepted()).unwrap();
    let mut session = store.lock(&owner(NOW)).unwrap();
    let claims = session.claim(&want(9), NOW, &mut claim).unwrap();
    let event = attempt(1, NOW, State::Confirmed, None);
    session.settle(&claims[0], event, Vec::new()).unwrap();
    drop(session);
    spool.fails("stat", &format!("unknown/a/{}.1.jsonl", id(1)));
    store.lock(&owner(NOW)).unwrap().close(NOW, None).unwrap();
    *spool.script.fails.borrow_mut() = None;
    store.lock(&owner(NOW)).unwrap().close(NOW, None).unwrap();
    let found = store.find(id(1)).unwrap().unwrap();
    assert_eq!(found.state, State::Confirmed);
    assert_eq!(
        store.read(&found).unwrap().unwrap().unwrap().events.len(),
        2
    );
}

/// It would say its piece once more.
#[test]
fn a_journal_that_cannot_be_removed_is_told() {
    let spool = Spool::new();
    let store = spool.store();
    store.accept(envelope(1), accepted()).unwrap();
    let mut session = store.lock(&owner(NOW)).unwrap();
    session.claim(&want(9), NOW, &mut claim).unwrap();
    spool.fails("unlink", "journal/00000001.jsonl");
    assert!(session.close(NOW, None).is_err());
}

#[test]
fn a_name_that_is_given_up_and_stays_is_told() {
    let spool = Spool::new();
    let store = spool.store();
    store.accept(envelope(9), accepted()).unwrap();
    let full = Limits {
        items_max: Some(1),
        ..Limits::NONE
    };
    let name = tickpost::model::envelope::sha256_hex(b"k");
    spool.fails("unlink", &name);
    let mut answers = Vec::new();
    let done = store.accept_all(vec![keyed(1)], &full, &mut answers);
    let error = done.unwrap_err().to_string();
    assert!(error.contains(&name), "{error}");
}

/// A sync of it may have failed, and then another one of the same file says nothing.
#[test]
fn a_journal_that_cannot_be_written_anew_is_not_replayed() {
    let spool = Spool::new();
    let store = spool.store();
    store.accept(envelope(1), accepted()).unwrap();
    let mut session = store.lock(&owner(NOW)).unwrap();
    session.claim(&want(9), NOW, &mut claim).unwrap();
    drop(session);
    spool.fails("replace", "journal/00000001.jsonl");
    assert!(store.lock(&owner(NOW)).is_err());
    *spool.script.fails.borrow_mut() = None;
    store.lock(&owner(NOW)).unwrap();
}

/// An adoption makes it again; until then everybody can look.
#[test]
fn a_spool_without_its_lock_can_be_looked_at() {
    let spool = Spool::new();
    let store = spool.store();
    store.accept(envelope(1), accepted()).unwrap();
    spool.disk.unlink(&path("lock")).unwrap();
    let counts = store.counts().unwrap();
    assert_eq!(counts.destinations["a"][&State::Pending], 1);
    assert!(store.find(id(1)).unwrap().is_some());
}
