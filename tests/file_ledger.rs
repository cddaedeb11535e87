//! The ledgers on disk: what they cost, and what a death or a fault at any write leaves of them.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use tickpost::model::event::EventKind;
use tickpost::model::item::{Item, event_line};
use tickpost::model::ledger::Listed;
use tickpost::model::state::State;
use tickpost::model::time::{DAY_MS, UnixMs};
use tickpost::model::tombstone::{Retention, Tombstone};
use tickpost::store::audit::Audit;
use tickpost::store::file::FileStore;
use tickpost::store::{Answer, Decision, Limits, Offer, Store};

mod common;
use common::{
    Gate, Gated, NOW, QuickDisk, accepted, attempt, by_hand, dest, envelope, id, new_spool, owner,
    store_on,
};

/// A disk that tells what was written, and on which nothing is written any more after so many
/// writes, or not to paths that hold a word.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Fate>>);

#[derive(Default)]
struct Fate {
    calls: Vec<String>,
    dies_at: Option<usize>,
    refuses: Option<&'static str>,
    /// Refuses these operations only.
    only: Option<&'static str>,
}

impl Told {
    fn dying_at(calls: usize) -> Self {
        let told = Self::default();
        told.0.lock().unwrap().dies_at = Some(calls);
        told
    }

    fn calls(&self) -> Vec<String> {
        self.0.lock().unwrap().calls.clone()
    }
}

impl Gate for Told {
    fn write(&self, op: &str, path: &Path) -> io::Result<()> {
        let mut fate = self.0.lock().unwrap();
        let call = format!("{op} {}", path.display());
        let refused = fate.refuses.is_some_and(|word| call.contains(word))
            && fate.only.is_none_or(|op| call.starts_with(op));
        let dead = fate.dies_at.is_some_and(|at| fate.calls.len() >= at);
        fate.calls.push(call);
        if refused || dead {
            return Err(io::Error::from_raw_os_error(28));
        }
        Ok(())
    }
}

struct Spool {
    _dir: TempDir,
    root: PathBuf,
}

impl Spool {
    fn new() -> Self {
        let (dir, root) = new_spool();
        fs::create_dir(root.join("pending/a")).unwrap();
        Self { _dir: dir, root }
    }

    fn store_on(&self, told: &Told) -> FileStore {
        store_on(Gated(told.clone()), &self.root)
    }

    fn audit(&self, now: UnixMs) -> Audit {
        let store = store_on(QuickDisk, &self.root);
        let mut session = store.lock(&owner(now)).unwrap();
        let audit = session.audit().unwrap();
        session.close(now, None).unwrap();
        audit
    }

    fn plant(&self, relative: &str, bytes: impl AsRef<[u8]>) {
        let path = self.root.join(relative);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

fn offers(count: u64) -> Vec<Offer> {
    let offer = |n: u64| {
        let mut envelope = envelope(n);
        envelope.destination = dest(if n.is_multiple_of(2) { "a" } else { "b" });
        Offer {
            envelope,
            accepted: accepted(),
            own_id: false,
            body: None,
        }
    };
    (1..=count).map(offer).collect()
}

fn is_ledger(call: &str) -> bool {
    call.contains("/log/accepted-")
}

/// One write a group, no sync of its own, after the places are synced.
#[test]
fn a_ledger_costs_one_write_a_group_and_no_sync() {
    for (count, groups) in [(1, 1), (4, 1), (5, 1), (1000, 1), (2001, 3)] {
        let spool = Spool::new();
        let told = Told::default();
        let mut answers = Vec::new();
        let store = spool.store_on(&told);
        store
            .accept_all(offers(count), &Limits::NONE, &mut answers)
            .unwrap();
        let calls = told.calls();
        let ledger: Vec<&String> = calls.iter().filter(|call| is_ledger(call)).collect();
        assert_eq!(ledger.len(), groups, "{ledger:?}");
        assert!(ledger.iter().all(|call| call.starts_with("append_line ")));
        let syncs = |word: &str| calls.iter().filter(|call| call.contains(word)).count();
        let single = count <= 4;
        // Both places are synced for each group; their parent too, for it has just changed.
        let both = if count == 1 { 1 } else { 2 };
        let is_of =
            |call: &&String, end: &str| call.starts_with("sync_dir ") && call.ends_with(end);
        let of = |end: &str| calls.iter().filter(|call| is_of(call, end)).count();
        assert_eq!(
            of("/pending/a") + of("/pending/b"),
            groups * both - usize::from(count == 2001)
        );
        assert_eq!(
            syncs("sync_dir"),
            of("/pending/a") + of("/pending/b") + of("/pending")
        );
        // The last of three groups is one item.
        let at_once = groups - usize::from(count == 2001);
        assert_eq!(syncs("sync_all"), if single { 0 } else { at_once });
        assert_eq!(syncs("sync_file"), 0);
        assert_eq!(syncs("/log"), groups, "nothing but the writes");
        for (at, call) in calls.iter().enumerate() {
            if is_ledger(call) {
                assert!(
                    calls[at - 1].starts_with("sync_dir "),
                    "{:?}",
                    calls[at - 1]
                );
            }
        }
        let size = |answer: &Answer| matches!(answer, Answer::New(_));
        assert!(answers.iter().all(size));
        assert_eq!(spool.audit(NOW).accepted, count);
    }
}

/// Whatever write a process dies at: what was answered is listed, what is listed is there, and
/// nothing is ever missing.
#[test]
fn a_death_at_any_write_loses_no_line_of_what_was_answered() {
    for count in [3, 7] {
        let mut seen_unlisted = false;
        for dies_at in 0.. {
            let spool = Spool::new();
            let told = Told::dying_at(dies_at);
            let mut answers = Vec::new();
            let store = spool.store_on(&told);
            let result = store.accept_all(offers(count), &Limits::NONE, &mut answers);
            let calls = told.calls();
            let why = format!("{count} items, dead at {dies_at}: {:?}", calls.get(dies_at));
            let new = answers.iter().filter(|a| matches!(a, Answer::New(_)));
            let new = new.count() as u64;
            let audit = spool.audit(NOW);
            assert!(audit.is_clean() && audit.unreadable_lines == 0, "{why}");
            assert_eq!(audit.accepted, audit.in_place(), "{why}");
            let written = calls.iter().take(dies_at).any(|call| is_ledger(call));
            assert_eq!(audit.accepted, if written { new } else { 0 }, "{why}");
            seen_unlisted |= audit.unlisted > 0;
            if calls.len() <= dies_at {
                result.unwrap();
                assert_eq!((audit.accepted, audit.unlisted), (count, 0));
                break;
            }
        }
        assert!(seen_unlisted, "no death between a place and its ledger");
    }
}

#[test]
fn a_ledger_that_cannot_be_written_costs_no_item() {
    let spool = Spool::new();
    let told = Told::default();
    told.0.lock().unwrap().refuses = Some("/log/accepted-");
    let store = spool.store_on(&told);
    let mut answers = Vec::new();
    store
        .accept_all(offers(9), &Limits::NONE, &mut answers)
        .unwrap();
    assert!(answers.iter().all(|a| matches!(a, Answer::New(_))));
    let audit = spool.audit(NOW);
    assert_eq!((audit.accepted, audit.unlisted), (0, 9));
    assert!(audit.is_clean());
}

/// A sync that fails for one directory leaves the other's items accepted, and listed.
#[test]
fn what_is_accepted_in_spite_of_an_error_is_listed() {
    for (refused, listed) in [("/pending/a", 0), ("/pending/b", 3)] {
        let spool = Spool::new();
        fs::create_dir(spool.root.join("pending/b")).unwrap();
        let told = Told::default();
        told.0.lock().unwrap().refuses = Some(refused);
        let store = spool.store_on(&told);
        let mut answers = Vec::new();
        // What is renamed into it is let through.
        told.0.lock().unwrap().only = Some("sync_dir ");
        let all = store.accept_all(offers(6), &Limits::NONE, &mut answers);
        all.unwrap_err();
        let new = answers.iter().filter(|a| matches!(a, Answer::New(_)));
        assert_eq!(new.count(), listed, "{refused}");
        let audit = spool.audit(NOW);
        assert_eq!(audit.accepted, listed as u64, "{refused}");
        assert_eq!(audit.unlisted, 6 - listed as u64, "{refused}");
        assert!(audit.is_clean());
    }
}

/// A notice is accepted when a session ends, and is listed under the day of its event.
#[test]
fn each_day_has_its_ledger() {
    let spool = Spool::new();
    let store = spool.store_on(&Told::default());
    let mut all = offers(4);
    all[1].accepted.at = NOW.plus(DAY_MS);
    all[3].accepted.at = NOW.plus(DAY_MS);
    let told = Told::default();
    let store_told = spool.store_on(&told);
    store_told
        .accept_all(all, &Limits::NONE, &mut Vec::new())
        .unwrap();
    let ledgers = told.calls();
    let ledgers = ledgers.iter().filter(|call| is_ledger(call)).count();
    assert_eq!(ledgers, 2);
    for (day, numbers) in [(NOW, [1, 3]), (NOW.plus(DAY_MS), [2, 4])] {
        let path = format!("log/accepted-{}.jsonl", day.day_name());
        let text = fs::read_to_string(spool.root.join(path)).unwrap();
        let lines: Vec<Listed> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let ids: Vec<_> = lines.iter().map(|listed| listed.request_id).collect();
        assert_eq!(ids, numbers.map(id));
    }
    let mut session = store.lock(&owner(NOW)).unwrap();
    let found = store.find(id(1)).unwrap().unwrap();
    let event = by_hand(EventKind::Cancelled, NOW, State::Failed, None);
    let told = |item: &Item| tickpost::model::notice::Notice::of(item, &event, 2, &[dest("ops")]);
    let mut decide = |item: &Item| Decision::Settle(Box::new(event.clone()), told(item));
    assert!(session.change(&found, &mut decide).unwrap());
    let late = NOW.plus(2 * DAY_MS);
    session.close(late, None).unwrap();
    let path = format!("log/accepted-{}.jsonl", late.day_name());
    let text = fs::read_to_string(spool.root.join(path)).unwrap();
    assert!(text.contains("\"destination\":\"ops\""), "{text}");
    assert_eq!(spool.audit(late).accepted, 5);
}

/// What a loss of power leaves of a line is a hole, however long, and the next line follows it: also
/// where a ledger is read in parts.
#[test]
fn a_long_hole_in_a_ledger_hides_no_line_behind_it() {
    let spool = Spool::new();
    let store = spool.store_on(&Told::default());
    store
        .accept_all(offers(1), &Limits::NONE, &mut Vec::new())
        .unwrap();
    let relative = format!("log/accepted-{}.jsonl", NOW.day_name());
    let line = fs::read(spool.root.join(&relative)).unwrap();
    for hole in [256 * 1024 - line.len() / 2, 600 * 1024] {
        spool.plant(&relative, [vec![0; hole], line.clone()].concat());
        let audit = spool.audit(NOW);
        assert_eq!(
            (audit.accepted, audit.unlisted),
            (1, 0),
            "{hole}: {audit:?}"
        );
    }
}

/// Ledgers go durably before any tombstone: dead at any write, nothing pruned is called missing.
#[test]
fn ledgers_go_before_the_tombstones_of_what_they_list() {
    let year = NOW.plus(400 * DAY_MS);
    let old = |spool: &Spool| {
        for n in 1..=3 {
            let at = NOW.minus((4 - n) * DAY_MS);
            let mut item = envelope(n);
            item.enqueued_at = at;
            let listed = Listed::of(&item, at);
            let mut begun = accepted();
            begun.at = at;
            let (mut item, mut bytes) = Item::accept(item, begun).unwrap();
            let event = attempt(1, at, State::Confirmed, None);
            bytes.extend(event_line(&event).unwrap());
            item.events.push(event);
            let day = at.day_name();
            spool.plant(&format!("log/accepted-{day}.jsonl"), listed.line().unwrap());
            spool.plant(&format!("log/ticks-{day}.jsonl"), "{}\n");
            if n == 3 {
                spool.plant(&format!("confirmed/a/{day}/{}.jsonl", id(n)), bytes);
            } else {
                // Pruned on the day of its acceptance, which is as early as can be.
                let tombstone = Tombstone::of(&item, at).unwrap().line().unwrap();
                spool.plant(&format!("log/pruned-{day}.jsonl"), tombstone);
            }
        }
    };
    let prune = |spool: &Spool, told: &Told| {
        let store = spool.store_on(told);
        let mut session = store.lock(&owner(year)).unwrap();
        loop {
            match session.prune(&Retention::default(), year, 1) {
                Ok(step) if step.left => {}
                other => return other.map(|_| ()),
            }
        }
    };
    let spool = Spool::new();
    old(&spool);
    assert_eq!(spool.audit(NOW).accepted, 3);
    let told = Told::default();
    prune(&spool, &told).unwrap();
    let calls = told.calls();
    let at = |op: &str, word: &str| {
        let fits = |call: &&String| call.starts_with(op) && call.contains(word);
        let all: Vec<usize> = (0..calls.len()).filter(|n| fits(&&calls[*n])).collect();
        (all[0], all[all.len() - 1])
    };
    let (_, ledgers) = at("unlink", "/accepted-");
    let (tombstones, _) = at("unlink", "/pruned-");
    let synced = calls[ledgers..tombstones].iter();
    assert!(
        synced
            .clone()
            .any(|call| call.starts_with("sync_dir ") && call.ends_with("/log")),
        "{calls:#?}"
    );
    let names = fs::read_dir(spool.root.join("log")).unwrap();
    let mut names: Vec<String> = names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let newest_ticks = format!("ticks-{}.jsonl", NOW.minus(DAY_MS).day_name());
    assert_eq!(
        names,
        [
            "clock.json".to_owned(),
            format!("pruned-{}.jsonl", year.day_name()),
            newest_ticks
        ]
    );
    assert_eq!(spool.audit(year), Audit::default());

    for (dies_at, call) in calls.iter().enumerate() {
        let spool = Spool::new();
        old(&spool);
        prune(&spool, &Told::dying_at(dies_at)).unwrap_err();
        let audit = spool.audit(year);
        assert!(audit.is_clean(), "{dies_at} {call:?}: {audit:?}");
        prune(&spool, &Told::default()).unwrap();
        assert_eq!(spool.audit(year), Audit::default(), "{dies_at}");
    }
}
