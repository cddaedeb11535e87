//! `kill -9` of a tick that sends, at any moment: afterwards ticks bring every item to its end,
//! each takes effect once, and nothing is lost or doubled.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod support;

#[path = "support/bench.rs"]
mod bench;
#[path = "support/desk.rs"]
mod desk;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use bench::KEYED;
use desk::{Desk, Draw};
use support::{Receiver, Reply};

/// How many attempts a destination has under way at once, unless it says otherwise.
const CONCURRENCY: usize = 8;

/// Every item confirmed, in one place, and acted on once under its own key with its own body.
#[track_caller]
fn all_is_well(desk: &Desk, ids: &[String], receiver: &Receiver, what: &str) {
    let rows = desk.list(&[]);
    let listed: Vec<&str> = rows
        .iter()
        .map(|r| r["request_id"].as_str().unwrap())
        .collect();
    let distinct: BTreeSet<&str> = listed.iter().copied().collect();
    let accepted: BTreeSet<&str> = ids.iter().map(String::as_str).collect();
    assert_eq!(
        listed.len(),
        distinct.len(),
        "{what}: an id is listed twice"
    );
    assert_eq!(distinct, accepted, "{what}: the ids");
    for row in &rows {
        assert_eq!(row["state"], "confirmed", "{what}: {row}");
    }
    assert_eq!(desk.files("confirmed/").len(), ids.len(), "{what}");
    for elsewhere in ["pending/", "unknown/", "held/", "failed/"] {
        assert!(desk.files(elsewhere).is_empty(), "{what}: {elsewhere}");
    }
    assert!(desk.files("corrupt/").is_empty(), "{what}");
    assert!(
        desk.files("journal/").is_empty(),
        "{what}: nobody holds the lock"
    );
    assert!(desk.files("tmp/").is_empty(), "{what}");
    for (key, effect) in receiver.effects() {
        assert_eq!(effect.times, 1, "{what}: {key}");
    }
    for arrival in receiver.arrivals().iter().filter(|arrival| arrival.whole) {
        let key = arrival.header("idempotency-key").unwrap();
        assert_eq!(arrival.text(), format!("{{\"id\":\"{key}\"}}"), "{what}");
    }
}

/// How often each key arrived.
fn times(receiver: &Receiver) -> BTreeMap<String, usize> {
    let mut times = BTreeMap::new();
    for arrival in receiver.arrivals() {
        let key = arrival.header("idempotency-key").unwrap().to_owned();
        *times.entry(key).or_default() += 1;
    }
    times
}

#[test]
fn a_tick_is_killed_while_it_sends() {
    let mut draw = Draw(0x5eed_0001);
    let moments: Vec<usize> = (0..20).map(|_| 1 + draw.below(199)).collect();
    thread::scope(|scope| {
        for part in moments.chunks(10) {
            scope.spawn(move || {
                for moment in part {
                    kill_at(*moment);
                }
            });
        }
    });
}

/// Kills the first tick of 200 items when `moment` requests have arrived.
fn kill_at(moment: usize) {
    let what = format!("killed at arrival {moment}");
    let receiver = Receiver::start(vec![]).deduplicating([]);
    let desk = Desk::new(&[("dest", &receiver.url(), KEYED)]);
    let ids = desk.fill("dest", 200);
    let tick = desk.call(&["tick"]).start();
    receiver.wait_for(moment);
    tick.kill();
    let ended = tick.end();
    assert!(matches!(ended.code, None | Some(0)), "{ended:?}");

    // Whoever looks before the next tick sees every item once.
    let listed = desk.list(&[]);
    assert_eq!(listed.len(), 200, "{what}");
    desk.tick_to_end();
    all_is_well(&desk, &ids, &receiver, &what);
    let times = times(&receiver);
    assert_eq!(times.len(), 200, "{what}: every item was sent");
    assert!(times.values().all(|times| *times <= 2), "{what}: {times:?}");
    let twice = times.values().filter(|times| **times == 2).count();
    assert!(twice <= CONCURRENCY, "{what}: {twice} were sent twice");
}

#[test]
fn one_tick_after_another_is_killed() {
    let receiver = Receiver::start(vec![]).deduplicating([]);
    let desk = Desk::new(&[("dest", &receiver.url(), KEYED)]);
    let ids = desk.fill("dest", 100);
    let mut draw = Draw(0x5eed_0002);
    let mut kills = 0;
    loop {
        let before = receiver.arrivals().len();
        let step = 1 + draw.below(12);
        if before + step > 100 {
            break;
        }
        let tick = desk.call(&["tick"]).start();
        receiver.wait_for(before + step);
        tick.kill();
        tick.end();
        kills += 1;
    }
    desk.tick_to_end();
    all_is_well(&desk, &ids, &receiver, "after many kills");
    let again: usize = times(&receiver).values().map(|times| times - 1).sum();
    assert!(
        again <= kills * CONCURRENCY,
        "{again} repeats by {kills} kills"
    );
}

#[test]
fn without_a_key_a_kill_costs_a_person_no_more_than_what_was_in_flight() {
    let mut draw = Draw(0x5eed_0003);
    for _ in 0..5 {
        let receiver = Receiver::start(vec![]);
        let desk = Desk::new(&[("dest", &receiver.url(), "")]);
        desk.fill("dest", 60);
        let tick = desk.call(&["tick"]).start();
        receiver.wait_for(1 + draw.below(59));
        tick.kill();
        tick.end();
        desk.tick_to_end();
        let counts = desk.counts();
        let parked = counts.get("unknown").copied().unwrap_or(0);
        let confirmed = counts.get("confirmed").copied().unwrap_or(0);
        assert_eq!(parked + confirmed, 60, "{counts:?}");
        assert!(parked <= CONCURRENCY as u64, "{parked} are parked");
        for row in desk.list(&["--state", "unknown"]) {
            assert_eq!(row["parked"], true, "{row}");
            assert_eq!(row["reason"], "interrupted", "{row}");
        }
        let arrived = receiver.arrivals();
        let bodies: BTreeSet<&[u8]> = arrived.iter().map(|a| a.body.as_slice()).collect();
        assert_eq!(bodies.len(), arrived.len(), "nothing is sent twice");
        assert!(bodies.len() as u64 >= confirmed);
    }
}

/// A spool as a killed tick leaves it: items of every fate, and a journal that tells of them.
struct Left {
    desk: Desk,
    ids: Vec<String>,
    journal: PathBuf,
    /// Where the receiver was.
    url: String,
    /// The keys that the receiver had acted on.
    acted: Vec<String>,
}

/// The tick confirmed one, put one off, and was killed while it sent the others. One before had made
/// the destination known: where a claim's time is lost, the item counts from its acceptance, and
/// before the first tick nobody knows where it would have gone.
fn killed() -> Left {
    let stuck = || Reply::ok().gated();
    let receiver = Receiver::start(vec![
        Reply::ok(),
        Reply::ok(),
        Reply::status(408),
        stuck(),
        stuck(),
    ])
    .deduplicating([]);
    let desk = Desk::new(&[("dest", &receiver.url(), KEYED)]);
    let mut ids = desk.fill("dest", 1);
    desk.tick_to_end();
    ids.extend(desk.fill("dest", 4));
    let tick = desk.call(&["tick"]).start();
    receiver.wait_for(5);
    tick.kill();
    tick.end();
    let journals = desk.files("journal/");
    assert_eq!(journals.len(), 1, "{journals:?}");
    Left {
        journal: PathBuf::from(&journals[0]),
        url: receiver.url(),
        acted: receiver.effects().into_keys().collect(),
        desk,
        ids,
    }
}

/// Ticks a copy whose journal is cut at `len` to the end.
fn cut_at(left: &Left, len: u64) {
    let what = format!("the journal cut at {len}");
    let desk = Desk::copy_of(left.desk.spool());
    let path = desk.spool().join(&left.journal);
    let journal = fs::File::options().write(true).open(path).unwrap();
    journal.set_len(len).unwrap();
    let receiver = Receiver::start(vec![]).deduplicating(left.acted.iter().cloned());
    desk.configure(desk::SOON, &[("dest", &receiver.url(), KEYED)]);
    // It stands for the one that has acted, so the copy has to know it by its address.
    let memory = desk.spool().join("destinations/dest.json");
    let known = fs::read_to_string(&memory).unwrap();
    assert!(known.contains(&left.url), "{known}");
    fs::write(&memory, known.replace(&left.url, &receiver.url())).unwrap();
    desk.tick_to_end();
    all_is_well(&desk, &left.ids, &receiver, &what);
    let times = times(&receiver);
    assert!(times.values().all(|times| *times == 1), "{what}: {times:?}");
    let effects = receiver.effects();
    for id in &left.ids {
        let before = left.acted.contains(id);
        assert_ne!(
            before,
            effects.contains_key(id),
            "{what}: one effect of {id}"
        );
    }
}

/// How much of a journal holds records; the rest is space that was set aside.
fn used(path: &Path) -> u64 {
    let bytes = fs::read(path).unwrap();
    let end = bytes.iter().rposition(|byte| *byte == b'\n');
    end.map_or(0, |end| end as u64 + 1)
}

#[test]
fn the_journal_of_a_killed_tick_is_cut_at_every_length() {
    let left = killed();
    let path = left.desk.spool().join(&left.journal);
    let used = used(&path);
    let whole = fs::metadata(&path).unwrap().len();
    assert!(
        used > 500,
        "the journal tells of claims and moves: {used} bytes"
    );
    let mut lengths: Vec<u64> = (0..=used).collect();
    lengths.extend([used + 1, used + 4096, whole]);
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(len) = lengths.get(next.fetch_add(1, Ordering::Relaxed)) {
                    cut_at(&left, *len);
                }
            });
        }
    });
}

#[test]
fn asked_to_stop_a_tick_ends_what_it_has_begun_and_begins_nothing_more() {
    for more in [KEYED, ""] {
        let receiver = Receiver::start(vec![]).otherwise(Reply::ok().gated());
        let desk = Desk::new(&[("dest", &receiver.url(), more)]);
        desk.fill("dest", 50);
        let tick = desk.call(&["--json", "tick"]).start();
        receiver.wait_for(2);
        tick.terminate();
        receiver.open_gate();
        let line = tick.end().ok().json();
        assert_eq!(line["stopped_by"], "signal", "{line}");
        let counts = desk.counts();
        let confirmed = receiver.arrivals().len() as u64;
        assert_eq!(counts.get("confirmed"), Some(&confirmed), "{line}");
        assert_eq!(counts.get("pending"), Some(&(50 - confirmed)), "{line}");
        assert_eq!(line["left"], 50 - confirmed, "{line}");
        assert!(desk.files("unknown/").is_empty());
        assert!(desk.files("journal/").is_empty());
    }
}
