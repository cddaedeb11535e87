//! What a crash can leave, row by row as `spool/README.md` lists it: each row is built on disk as
//! it says, and mended as it says.
//!
//! Rows whose test stands in another file name that file. The last test here sees to it that
//! every row names a test that is there.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tickpost::model::envelope::{Envelope, sha256_hex};
use tickpost::model::event::{Event, EventKind};
use tickpost::model::item::{Item, event_line};
use tickpost::model::notice::Notice;
use tickpost::model::state::State;
use tickpost::model::time::UnixMs;
use tickpost::store::disk::{Disk as _, RealDisk};
use tickpost::store::file::FileStore;
use tickpost::store::file::journal::{self, Journal, Record};
use tickpost::store::file::layout::Place;
use tickpost::store::{
    Answer, Claimed, Decision, DestinationHold, Dropped, Intake, Interrupted, Limits, NewBody,
    Offer, Scope, Session, Store,
};

mod common;
use common::{
    MINUTE, NOW, QuickDisk, accepted, attempt, by_hand, dest, envelope, id, new_spool, owner,
    store_on, want,
};

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
        store_on(QuickDisk, &self.root)
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    fn read(&self, relative: &str) -> Vec<u8> {
        fs::read(self.path(relative)).unwrap()
    }

    /// Writes a file by hand, due now.
    fn plant(&self, relative: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path(relative);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        RealDisk.set_mtime(&path, NOW).unwrap();
    }

    fn rename(&self, from: &str, to: &str) {
        fs::create_dir_all(self.path(to).parent().unwrap()).unwrap();
        fs::rename(self.path(from), self.path(to)).unwrap();
    }

    fn accept(&self, n: u64) {
        self.store().accept(envelope(n), accepted()).unwrap();
    }

    /// The files below some directories, sorted.
    fn names(&self, dirs: &[&str]) -> Vec<String> {
        let mut files = BTreeSet::new();
        let mut dirs: Vec<PathBuf> = dirs.iter().map(|dir| self.root.join(dir)).collect();
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(&dir).unwrap().map(Result::unwrap) {
                let path = entry.path();
                if entry.file_type().unwrap().is_dir() {
                    dirs.push(path);
                } else {
                    let path = path.strip_prefix(&self.root).unwrap();
                    files.insert(path.to_str().unwrap().to_owned());
                }
            }
        }
        files.into_iter().collect()
    }

    fn items(&self) -> Vec<String> {
        self.names(&["pending", "unknown", "held", "confirmed", "failed"])
    }

    /// What the next owner of the lock does before anything else. Returns how many attempts were
    /// interrupted.
    fn recover(&self) -> u64 {
        let store = self.store();
        let mut session = store.lock(&owner(NOW)).unwrap();
        let recovered = session.recover(&mut interrupted).unwrap();
        session.close(NOW, None).unwrap();
        assert!(self.names(&["journal"]).is_empty());
        recovered
    }

    fn events(&self, n: u64) -> Vec<Event> {
        let store = self.store();
        let found = store.find(id(n)).unwrap().unwrap();
        store.read(&found).unwrap().unwrap().unwrap().events
    }

    /// One claimed item, settled in the journal and nowhere else: the session that did it died.
    /// Returns the paths before the claim, while claimed, and after.
    fn dies_settling(&self, state: State, due: Option<UnixMs>) -> [String; 3] {
        let store = self.store();
        let mut session = store.lock(&owner(NOW)).unwrap();
        let claims = session.claim(&want(1), NOW, &mut claim).unwrap();
        let before = fresh(1);
        let claimed = self.items().remove(0);
        settle(session.as_mut(), &claims[0], state, due);
        // The journal has it as soon as the answer is known; nothing was synced or renamed.
        drop(session);
        assert_eq!(self.items(), std::slice::from_ref(&claimed));
        let found = self.store().find(id(1)).unwrap().unwrap();
        assert_eq!(found.state, state, "readers know it already");
        let after = Place::filed(state, "a", id(1), due, None, NOW).path();
        [before, claimed, after]
    }
}

fn fresh(n: u64) -> String {
    format!("pending/a/{}.jsonl", id(n))
}

fn claim(_: &Item) -> Decision {
    Decision::Claim
}

fn interrupted(item: &Interrupted) -> (Event, Vec<Notice>) {
    let mut event = attempt(item.n, NOW, State::Unknown, None);
    event.claimed_at = Some(item.claimed_at);
    (event, vec![])
}

fn settle(session: &mut dyn Session, claim: &Claimed, state: State, due: Option<UnixMs>) {
    let event = attempt(claim.n, NOW, state, due);
    let number = claim.item.events.len() + 1;
    let notices = Notice::of(&claim.item, &event, number, &[dest("ops")]);
    session.settle(claim, event, notices).unwrap();
}

fn offer(envelope: Envelope, own_id: bool) -> Offer {
    Offer {
        envelope,
        accepted: accepted(),
        own_id,
        body: None,
    }
}

fn offered(spool: &Spool, offer: Offer) -> Answer {
    let mut answers = Vec::new();
    let store = spool.store();
    store
        .accept_all(vec![offer], &Limits::NONE, &mut answers)
        .unwrap();
    answers.remove(0)
}

fn keyed(n: u64) -> Envelope {
    Envelope {
        key: Some("k".to_owned()),
        // The same request whatever the item.
        request: envelope(1).request,
        ..envelope(n)
    }
}

fn key_file() -> String {
    format!("keys/a/{}", sha256_hex(b"k"))
}

// ---------------------------------------------------------------- accept

#[test]
fn a_body_without_an_item_is_replaced_by_that_of_the_next() {
    let spool = Spool::new();
    spool.plant(&format!("bodies/{}", id(1)), "half");
    assert_eq!(spool.recover(), 0);
    assert!(spool.items().is_empty());
    let mut offer = offer(envelope(1), true);
    offer.envelope.request.body_sha256 = sha256_hex(b"whole");
    offer.body = Some(NewBody::new(b"whole".to_vec()));
    assert_eq!(offered(&spool, offer), Answer::New(id(1)));
    assert_eq!(spool.read(&format!("bodies/{}", id(1))), b"whole");
}

#[test]
fn an_item_whose_caller_died_is_an_item() {
    let spool = Spool::new();
    assert_eq!(offered(&spool, offer(keyed(1), false)), Answer::New(id(1)));
    // The caller died before it was told, and comes again.
    let again = offered(&spool, offer(keyed(2), false));
    assert_eq!(again, Answer::Known(id(1)));
    assert_eq!(spool.items(), [fresh(1)]);
}

// ---------------------------------------------------------------- keys

#[test]
fn a_key_of_nobody_is_the_next_callers() {
    let spool = Spool::new();
    let request = envelope(1).request;
    let reserved = serde_json::json!({
        "request_id": id(1),
        "body_sha256": request.body_sha256,
        "request_sha256": request.sha256(),
    });
    spool.plant(&key_file(), format!("{reserved}\n"));
    // The same request gets the id that was reserved.
    assert_eq!(offered(&spool, offer(keyed(2), false)), Answer::New(id(1)));

    let spool = Spool::new();
    spool.plant(&key_file(), format!("{reserved}\n"));
    let mut other = keyed(2);
    other.request.path = "/other".to_owned();
    // Another one gets its own.
    assert_eq!(offered(&spool, offer(other, false)), Answer::New(id(2)));
    let text = String::from_utf8(spool.read(&key_file())).unwrap();
    assert!(text.contains(&id(2).to_string()), "{text}");
}

#[test]
fn a_torn_key_is_one_of_nobody() {
    for bytes in ["", "{\"request_id\":\"01", "\0\0\0\0\0\0\0\0"] {
        let spool = Spool::new();
        spool.plant(&key_file(), bytes);
        assert_eq!(offered(&spool, offer(keyed(2), false)), Answer::New(id(2)));
        let again = offered(&spool, offer(keyed(3), false));
        assert_eq!(again, Answer::Known(id(2)), "{bytes:?}");
    }
}

#[test]
fn an_id_that_was_reserved_and_not_used_is_still_the_callers() {
    let another = serde_json::json!({
        "request_id": id(1), "body_sha256": "0", "request_sha256": "0", "destination": "b",
    })
    .to_string();
    for bytes in ["", "whatever", "\0\0\0\0", &another] {
        let spool = Spool::new();
        spool.plant(&format!("keys/_ids/{}", id(1)), bytes);
        let first = offered(&spool, offer(envelope(1), true));
        assert_eq!(first, Answer::New(id(1)), "{bytes:?}");
        let again = offered(&spool, offer(envelope(1), true));
        assert_eq!(again, Answer::Known(id(1)), "{bytes:?}");
        assert_eq!(spool.items(), [fresh(1)]);
    }
}

// ---------------------------------------------------------------- drop box

/// Takes in what is in the box of `a`; a new file would get the id 9.
fn take_in(spool: &Spool) {
    let store = spool.store();
    let mut session = store.lock(&owner(NOW)).unwrap();
    let mut decide = |dropped: &Dropped<'_>| {
        if dropped.bytes.starts_with(b"no item") {
            return Intake::Refuse("it is no item".to_owned());
        }
        let mut envelope = envelope(1);
        envelope.request_id = dropped.id.unwrap_or(id(9));
        Intake::Accept(Box::new(offer(envelope, dropped.id.is_some())))
    };
    session
        .take_in(&dest("a"), 1 << 20, &Limits::NONE, &mut decide)
        .unwrap();
    session.close(NOW, None).unwrap();
}

#[test]
fn a_drop_that_carries_an_id_becomes_that_item() {
    let spool = Spool::new();
    spool.plant(&format!("incoming/a/x.{}.taking", id(4)), "{}");
    take_in(&spool);
    assert_eq!(spool.items(), [fresh(4)]);
    assert!(spool.names(&["incoming"]).is_empty());
}

#[test]
fn a_drop_whose_item_is_there_only_goes() {
    let spool = Spool::new();
    spool.accept(4);
    spool.plant(&format!("incoming/a/x.{}.taking", id(4)), "{}");
    let before = spool.read(&fresh(4));
    take_in(&spool);
    assert_eq!(spool.items(), [fresh(4)]);
    assert_eq!(spool.read(&fresh(4)), before);
    assert!(spool.names(&["incoming"]).is_empty());
}

#[test]
fn a_file_that_was_being_set_aside_is_set_aside_once() {
    let spool = Spool::new();
    spool.plant("incoming/a/x.json", "no item");
    // The record is in the journal, and the session died before it did anything.
    let store = spool.store();
    let mut session = store.lock(&owner(NOW)).unwrap();
    let mut refuse = |_: &Dropped<'_>| Intake::Refuse("it is no item".to_owned());
    session
        .take_in(&dest("a"), 1 << 20, &Limits::NONE, &mut refuse)
        .unwrap();
    drop(session);
    let records = journal::read_all(&RealDisk, &spool.root).unwrap();
    let why = spool.read("corrupt/x.json.why.json");
    let rows = [
        ("nothing done", false, false),
        ("the reason is there", true, false),
        ("done", true, true),
    ];
    for (what, reason, moved) in rows {
        let spool = Spool::new();
        if reason {
            spool.plant("corrupt/x.json.why.json", &why);
        }
        let at = if moved {
            "corrupt/x.json"
        } else {
            "incoming/a/x.json"
        };
        spool.plant(at, "no item");
        let mut journal = Journal::begin(&RealDisk, &spool.root, 1).unwrap();
        for record in &records {
            if let Record::Move(step) = record {
                assert!(step.file.is_some());
            }
            journal.append(record).unwrap();
        }
        journal.sync().unwrap();
        drop(journal);
        assert_eq!(spool.recover(), 0, "{what}");
        let names = spool.names(&["corrupt", "incoming"]);
        assert_eq!(
            names,
            ["corrupt/x.json", "corrupt/x.json.why.json"],
            "{what}"
        );
        assert_eq!(spool.read("corrupt/x.json"), b"no item");
    }
}

// ---------------------------------------------------------------- claim and send

#[test]
fn a_claim_that_is_only_in_the_journal_is_an_attempt() {
    let spool = Spool::new();
    spool.accept(1);
    let store = spool.store();
    let mut session = store.lock(&owner(NOW)).unwrap();
    session.claim(&want(1), NOW, &mut claim).unwrap();
    drop(session);
    // The rename was lost, and the request may have left.
    let claimed = spool.items().remove(0);
    spool.rename(&claimed, &fresh(1));
    let found = spool.store().find(id(1)).unwrap().unwrap();
    assert_eq!(found.state, State::Unknown, "readers know it already");
    assert_eq!(spool.recover(), 1);
    assert_eq!(spool.items(), [format!("unknown/a/parked/{}.jsonl", id(1))]);
    assert_eq!(spool.events(1).last().unwrap().claimed_at, Some(NOW));
}

#[test]
fn an_empty_journal_says_nothing() {
    for bytes in ["", "\0\0\0\0\0\0\0\0", "2cb9db7a45ffa065 {\"op\":\"clai"] {
        let spool = Spool::new();
        spool.accept(1);
        spool.plant("journal/00000001.jsonl", bytes);
        assert_eq!(spool.recover(), 0, "{bytes:?}");
        assert_eq!(spool.items(), [fresh(1)], "{bytes:?}");
    }
}

#[test]
fn a_leftover_of_a_tick_that_ended_in_good_order_is_an_attempt() {
    let spool = Spool::new();
    spool.accept(1);
    let store = spool.store();
    let mut session = store.lock(&owner(NOW)).unwrap();
    session.claim(&want(1), NOW, &mut claim).unwrap();
    session.close(NOW, None).unwrap();
    // There is no journal: the file's name and time say it all.
    assert_eq!(spool.items(), [format!("unknown/a/{}.1.jsonl", id(1))]);
    assert!(spool.names(&["journal"]).is_empty());
    assert_eq!(spool.recover(), 1);
    let event = spool.events(1).pop().unwrap();
    assert_eq!((event.n, event.claimed_at), (Some(1), Some(NOW)));
}

// ---------------------------------------------------------------- settle

#[test]
fn a_settle_that_is_only_in_the_journal_is_done() {
    let spool = Spool::new();
    spool.accept(1);
    let [_, _, after] = spool.dies_settling(State::Confirmed, None);
    assert_eq!(spool.recover(), 0);
    assert_eq!(spool.items(), [after]);
    assert_eq!(spool.events(1).len(), 2);
}

#[test]
fn a_settle_is_done_once_wherever_it_stopped() {
    let soon = Some(NOW.plus(MINUTE));
    for (state, due) in [(State::Confirmed, None), (State::Pending, soon)] {
        let event = event_line(&attempt(1, NOW, state, due)).unwrap();
        let half = &event[..event.len() / 2];
        let zeros = vec![0; event.len()];
        for at in 0..3 {
            for tail in [&b""[..], half, &zeros, &event] {
                let spool = Spool::new();
                spool.accept(1);
                let paths = spool.dies_settling(state, due);
                let mut bytes = spool.read(&paths[1]);
                bytes.extend(tail);
                fs::write(spool.path(&paths[1]), bytes).unwrap();
                spool.rename(&paths[1], &paths[at]);
                let what = format!("{state}, at {}, tail {tail:?}", paths[at]);
                assert_eq!(spool.recover(), 0, "{what}");
                assert_eq!(spool.items(), [paths[2].clone()], "{what}");
                assert_eq!(spool.events(1).len(), 2, "{what}");
            }
        }
    }
}

#[test]
fn an_event_without_its_rename_says_where_the_item_belongs() {
    let spool = Spool::new();
    let (_, mut bytes) = Item::accept(envelope(1), accepted()).unwrap();
    bytes.extend(event_line(&attempt(1, NOW, State::Confirmed, None)).unwrap());
    // The journal is gone, as after a disk that lied.
    spool.plant(&format!("unknown/a/{}.1.jsonl", id(1)), &bytes);
    assert_eq!(spool.recover(), 0);
    assert_eq!(
        spool.items(),
        [format!("confirmed/a/20261129/{}.jsonl", id(1))]
    );
    assert_eq!(spool.events(1).len(), 2);
}

// ---------------------------------------------------------------- the end of a journal

#[test]
fn a_journal_that_was_done_and_not_removed_changes_nothing() {
    let spool = Spool::new();
    spool.accept(1);
    spool.dies_settling(State::Held, None);
    let journal = spool.names(&["journal"]).remove(0);
    let records = spool.read(&journal);
    spool.recover();
    let (items, notices) = (spool.items(), spool.names(&["pending/ops"]));
    assert_eq!(notices.len(), 1, "whoever asked is told");
    for _ in 0..2 {
        spool.plant(&journal, &records);
        assert_eq!(spool.recover(), 0);
        assert_eq!(spool.items(), items);
        assert_eq!(spool.names(&["pending/ops"]), notices, "and once");
    }
}

#[test]
fn an_old_segment_that_comes_back_changes_nothing() {
    let spool = Spool::new();
    spool.accept(1);
    // Sent again in a minute, by one session; confirmed by the next.
    spool.dies_settling(State::Pending, Some(NOW.plus(MINUTE)));
    let journal = spool.names(&["journal"]).remove(0);
    let records = spool.read(&journal);
    spool.recover();
    let later = NOW.plus(MINUTE);
    let store = spool.store();
    let mut session = store.lock(&owner(later)).unwrap();
    let claims = session.claim(&want(1), later, &mut claim).unwrap();
    let event = attempt(2, later, State::Confirmed, None);
    session.settle(&claims[0], event, vec![]).unwrap();
    session.close(later, None).unwrap();
    let items = spool.items();
    // The power took the removal back.
    spool.plant(&journal, &records);
    assert_eq!(spool.recover(), 0);
    assert_eq!(spool.items(), items);
    assert_eq!(spool.events(1).len(), 3);
}

// ---------------------------------------------------------------- operators

#[test]
fn an_operators_move_that_is_only_in_the_journal_is_done() {
    let spool = Spool::new();
    spool.accept(1);
    let store = spool.store();
    let mut session = store.lock(&owner(NOW)).unwrap();
    let found = store.find(id(1)).unwrap().unwrap();
    let mut cancel = |_: &Item| {
        let event = by_hand(EventKind::Cancelled, NOW, State::Failed, None);
        Decision::Settle(Box::new(event), vec![])
    };
    assert!(session.change(&found, &mut cancel).unwrap());
    drop(session);
    assert_eq!(spool.items(), [fresh(1)]);
    let after = format!("failed/a/20261129/{}.jsonl", id(1));
    let found = store.find(id(1)).unwrap().unwrap();
    assert_eq!(found.state, State::Failed, "readers know it already");
    assert_eq!(spool.recover(), 0);
    assert_eq!(spool.items(), [after]);
}

#[test]
fn a_hold_of_a_destination_is_whole_or_not_there() {
    let spool = Spool::new();
    // What a command that died leaves is in tmp/; a hold whose file is damaged all the same is
    // a hold.
    spool.plant("tmp/destinations_a.hold.json.1.0", "{\"at\":");
    assert_eq!(spool.store().destination_hold("a").unwrap(), None);
    let hold = DestinationHold {
        at: NOW,
        by: "alice(1000)".to_owned(),
        note: None,
    };
    let store = spool.store();
    store.set_destination_hold(&dest("a"), Some(&hold)).unwrap();
    assert_eq!(store.destination_hold("a").unwrap(), Some(hold));
    spool.plant("destinations/a.hold.json", "\0\0\0\0");
    assert!(store.destination_hold("a").unwrap().is_some());
    store.set_destination_hold(&dest("a"), None).unwrap();
    assert_eq!(store.destination_hold("a").unwrap(), None);
}

// ---------------------------------------------------------------- init

#[test]
fn what_a_dead_init_left_is_completed() {
    let spool = Spool::new();
    fs::remove_file(spool.path("spool.json")).unwrap();
    fs::remove_dir(spool.path("order")).unwrap();
    spool.plant("tmp/spool.json.1.0", "{\"format\":");
    assert!(FileStore::open(&spool.root, true).is_err());
    FileStore::init(&spool.root, "", id(1).0, NOW).unwrap();
    spool.accept(1);
    let mut seen = 0;
    let count = &mut |_: &tickpost::store::Found| {
        seen += 1;
        Ok(())
    };
    spool.store().scan(&Scope::default(), count).unwrap();
    assert_eq!(seen, 1);
}

// ---------------------------------------------------------------- the table

/// The table's rows, as cells.
fn rows() -> Vec<Vec<String>> {
    let readme = include_str!("../spool/README.md");
    let (_, rest) = readme.split_once("\n## What a crash can leave\n").unwrap();
    let section = rest.split("\n## ").next().unwrap();
    let lines = section.lines().filter(|line| line.starts_with('|'));
    let cells = |line: &str| -> Vec<String> {
        let inner = line.trim_matches('|');
        inner
            .split('|')
            .map(|cell| cell.trim().to_owned())
            .collect()
    };
    lines
        .map(cells)
        .filter(|cells| cells[0] != "step" && !cells[0].starts_with("---"))
        .collect()
}

#[test]
fn every_row_of_the_table_names_a_test_that_is_there() {
    let rows = rows();
    assert!(rows.len() >= 30, "{} rows", rows.len());
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut named = BTreeSet::new();
    for row in &rows {
        assert_eq!(row.len(), 4, "{row:?}");
        let test = row[3].trim_matches('`');
        let (file, name) = test.split_once("::").unwrap();
        let source = fs::read_to_string(tests.join(format!("{file}.rs"))).unwrap();
        assert!(
            source.contains(&format!("fn {name}(")),
            "{test} is not there"
        );
        if file == "crash_table" {
            named.insert(name.to_owned());
        }
    }
    let own = include_str!("crash_table.rs");
    for part in own.split("#[test]\nfn ").skip(1) {
        let name = part.split('(').next().unwrap();
        let is_row = named.contains(name) || name.starts_with("every_row_");
        // The text of this very function holds the word that splits it.
        assert!(is_row || name.contains('"'), "no row names {name}");
    }
}
