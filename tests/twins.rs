//! Another file of an item, in the one moment when nobody would see it: while its item is claimed,
//! sent or settled, and where an event is about to make a copy look like what was written then.
//!
//! CONTRACT 3 and 4 (G6, G7). With the built program: `restored.rs`.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod common;
#[path = "common/world.rs"]
mod world;

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::{Arc, Mutex};

use common::{Gate, Gated, MINUTE, NOW, accepted, by_hand, envelope, id, owner, want};
use rustix::io::Errno;
use tickpost::model::envelope::sha256_hex;
use tickpost::model::event::EventKind;
use tickpost::model::item::{Item, event_line};
use tickpost::model::state::State;
use tickpost::model::time::UnixMs;
use tickpost::store::{Answer, Decision, Found, Interrupted, Limits, Offer, Scope, Store as _};
use world::{World, to_whom, warned};

/// Minutes before [`NOW`].
const EARLY: &str = "20261129T1400Z";
const LATER: &str = "20261129T1430Z";

/// A world in which files are as old as their items.
fn world() -> World {
    let mut world = World::new();
    world.no_file_is_a_copy();
    world.now = NOW.plus(MINUTE);
    world
}

fn fresh(to: &str, n: u64) -> String {
    format!("pending/{to}/{}.jsonl", id(n))
}

/// The line that pruning leaves of an item for `a` that was accepted, ended and pruned at `at`.
fn tombstone(n: u64, state: &str, at: UnixMs) -> String {
    let request_id = id(n);
    format!(
        r#"{{"request_id":"{request_id}","destination":"a","state":"{state}","enqueued_at":"{at}","settled_at":"{at}","pruned_at":"{at}","attempts":1,"body_sha256":""}}"#
    ) + "\n"
}

#[test]
fn two_files_of_one_item_are_not_claimed_together() {
    let world = world();
    world.post("a", 1);
    let (original, other) = (fresh("a", 1), format!("pending/a/{EARLY}/{}.jsonl", id(1)));
    let text = world.text(&original);
    world.shift(&original, &other);
    world.plant_copy(&original, &text);

    let (_, sent) = world.tick();
    assert_eq!(to_whom(&sent), ["a"]);
    let (_, sent) = world.tick();
    assert_eq!(to_whom(&sent).iter().filter(|to| **to == "a").count(), 0);
    assert_eq!(world.state(1), State::Confirmed);
    assert!(world.names("corrupt").contains(&format!("{}.jsonl", id(1))));
}

/// What the session itself has moved meanwhile, and where to, was not there when it looked first.
#[test]
fn a_file_is_known_for_a_copy_after_its_item_was_settled_by_the_same_tick() {
    for recorded_only in [true, false] {
        let world = world();
        // It is looked at first, and with it what there is by then.
        world.post("b", 1);
        let text = world.text(&fresh("b", 1));
        fs::remove_file(world.root.join(fresh("b", 1))).unwrap();
        world.plant_copy(&format!("pending/b/{EARLY}/{}.jsonl", id(1)), &text);
        world.post("b", 2);
        let text = world.text(&fresh("b", 2));
        world.shift(
            &fresh("b", 2),
            &format!("pending/b/{LATER}/{}.jsonl", id(2)),
        );
        world.plant_copy(&fresh("b", 2), &text);

        let store = world.store();
        let mut session = store.lock(&owner(world.now)).unwrap();
        let mut sent = Vec::new();
        loop {
            let mut wants = want(1);
            wants[0].destination = common::dest("b");
            let claims = session
                .claim(&wants, world.now, &mut |_| Decision::Claim)
                .unwrap();
            let Some(claimed) = claims.first() else {
                break;
            };
            sent.push(claimed.item.envelope.request_id);
            let event = common::attempt(1, world.now, State::Confirmed, None);
            session.settle(claimed, event, Vec::new()).unwrap();
            if !recorded_only {
                session.sync().unwrap();
            }
        }
        session.close(world.now, None).unwrap();
        assert_eq!(sent, [id(1), id(2)], "{recorded_only}");
        assert_eq!(world.state(2), State::Confirmed);
    }
}

/// An event would make it the younger of the two, and no copy.
#[test]
fn a_copy_is_told_before_anything_is_decided_about_it() {
    let mut world = world();
    let due = NOW.plus(MINUTE);
    let event = by_hand(EventKind::Held, NOW, State::Held, Some(due));
    world.post("a", 1);
    let waiting = world.text(&fresh("a", 1));
    let store = world.store();
    let found = store.find(id(1)).unwrap().unwrap();
    let mut session = store.lock(&owner(NOW)).unwrap();
    let mut hold = |_: &Item| Decision::Settle(Box::new(event.clone()), Vec::new());
    assert!(session.change(&found, &mut hold).unwrap());
    session.close(NOW, None).unwrap();
    let at = store.find(id(1)).unwrap().unwrap().place;
    let text = world.text(&at);
    let (_, sent) = world.tick();
    assert_eq!(to_whom(&sent), ["a"]);
    assert_eq!(world.state(1), State::Confirmed);

    world.now = world.now.plus(24 * 60 * MINUTE);
    let attempted = format!("unknown/a/{}.1.jsonl", id(1));
    for (place, text) in [
        (&at, &text),
        (&attempted, &waiting),
        (&fresh("a", 1), &waiting),
    ] {
        world.plant_copy(place, text);
        if place.starts_with("pending") {
            // As `hold` does, and whatever else a person says.
            let mut found = None;
            let scope = Scope {
                states: vec![State::Pending],
                destination: None,
            };
            let mut note = |waits: &Found| {
                found = Some(waits.clone());
                Ok(())
            };
            store.scan(&scope, &mut note).unwrap();
            let mut session = store.lock(&owner(world.now)).unwrap();
            assert!(!session.change(&found.unwrap(), &mut hold).unwrap());
            session.close(world.now, None).unwrap();
        }
        let (report, sent) = world.tick();
        let told = to_whom(&sent).iter().filter(|to| **to == "a").count();
        assert_eq!(told, 0, "{place}: {:?}", report.warnings);
        assert_eq!(world.state(1), State::Confirmed, "{place}");
        assert!(!world.root.join(place).exists(), "{place}");
    }
}

/// What was decided of another file of it stays in the journal, and nothing else is meanwhile.
#[test]
fn an_item_is_not_sent_while_its_other_file_cannot_be_set_aside() {
    let mut world = world();
    world.now = NOW.plus(10 * MINUTE);
    world.post("a", 1);
    let text = world.text(&fresh("a", 1));
    let other = format!("pending/a/20261129T1545Z/{}.jsonl", id(1));
    world.shift(&fresh("a", 1), &other);
    world.plant_copy(&fresh("a", 1), &text);
    world.lose(&other, Errno::PERM, true);
    for _ in 0..2 {
        let (report, sent) = world.tick();
        assert!(!to_whom(&sent).contains(&"a"));
        warned(&report, &other);
    }
    world.find_again();
    let (mut all, mut ticks) = (Vec::new(), 0);
    while ticks < 3 {
        ticks += 1;
        all.extend(world.tick().1.into_iter().filter(|(to, _)| to == "a"));
    }
    assert_eq!(all.len(), 1);
    assert_eq!(world.state(1), State::Confirmed);
    assert_eq!(world.names("journal"), [""; 0]);
}

/// The disk is not to be trusted, not the one file.
#[test]
fn a_reason_that_cannot_be_synced_ends_the_tick() {
    let world = world();
    world.plant(&fresh("a", 1), "no item");
    world.post("b", 2);
    world.lose("corrupt", Errno::IO, true);
    world.only(&["sync_file"]);
    let (report, sent) = world.try_tick(|| {});
    assert!(report.is_err());
    assert_eq!(to_whom(&sent), [""; 0]);
    world.find_again();
    let (_, sent) = world.tick();
    assert!(to_whom(&sent).contains(&"b"));
    assert!(world.names("corrupt").contains(&format!("{}.jsonl", id(1))));
}

/// A link in the place of a destination's directory costs that destination, also while something of
/// it cannot be done.
#[test]
fn a_link_in_the_place_of_a_directory_stops_nobody_else() {
    let world = world();
    world.post("a", 1);
    let claimed = format!("unknown/a/{}.1.jsonl", id(1));
    let (_, sent) = world.tick_with(|| world.lose(&claimed, Errno::PERM, true));
    assert_eq!(to_whom(&sent), ["a"]);
    world.find_again();
    let (there, elsewhere) = (
        world.root.join("unknown/a"),
        world.root.join("../elsewhere"),
    );
    fs::rename(&there, &elsewhere).unwrap();
    symlink(&elsewhere, &there).unwrap();
    world.post("b", 2);
    let (report, sent) = world.tick();
    assert_eq!(to_whom(&sent), ["b"]);
    warned(&report, "unknown/a");
    assert_eq!(world.names("journal").len(), 1);
    fs::remove_file(&there).unwrap();
    fs::rename(&elsewhere, &there).unwrap();
    let (_, sent) = world.tick();
    assert_eq!(to_whom(&sent), [""; 0]);
    assert_eq!(world.state(1), State::Confirmed);
    assert_eq!(world.names("journal"), [""; 0]);
}

/// The operations, in order.
#[derive(Clone, Default)]
struct Order(Arc<Mutex<Vec<String>>>);

impl Gate for Order {
    fn write(&self, op: &str, _: &std::path::Path) -> std::io::Result<()> {
        self.0.lock().unwrap().push(op.to_owned());
        Ok(())
    }
    fn read(&self, op: &str, path: &std::path::Path) -> std::io::Result<()> {
        if op == "begin" {
            self.write(op, path)
        } else {
            Ok(())
        }
    }
}

/// Another program's sync may be told of what of ours could not be written, and then no one who comes
/// later is.
#[test]
fn a_sync_of_everything_is_told_of_whatever_failed_since_the_first_write() {
    let world = World::new();
    let order = Order::default();
    let store = common::store_on(Gated(order.clone()), &world.root);
    let begins = |what: &str| {
        let ops = std::mem::take(&mut *order.0.lock().unwrap());
        assert!(ops.contains(&"sync_all".to_owned()), "{what}: {ops:?}");
        let begun = ops.iter().position(|op| op == "begin").unwrap();
        let changes = ["append", "rename", "replace", "log append"];
        let early = ops[..begun]
            .iter()
            .find(|op| changes.contains(&op.as_str()));
        assert_eq!(early, None, "{what}: {ops:?}");
        assert_eq!(ops.iter().filter(|op| *op == "begin").count(), 1, "{what}");
    };
    let offers = (1..=9).map(|n| Offer {
        envelope: envelope(n),
        accepted: accepted(),
        body: None,
        own_id: false,
    });
    let mut answers = Vec::new();
    store
        .accept_all(offers.collect(), &Limits::NONE, &mut answers)
        .unwrap();
    assert!(
        answers
            .iter()
            .all(|answer| matches!(answer, Answer::New(_)))
    );
    begins("accept");
    let mut session = store.lock(&owner(NOW)).unwrap();
    let claims = session.claim(&want(9), NOW, &mut |_| Decision::Claim);
    assert_eq!(claims.unwrap().len(), 9);
    session.close(NOW, None).unwrap();
    begins("a session");
}

/// Of many that were pruned none is sent again, and their logs are read once for all of them.
#[test]
fn many_files_of_pruned_items_are_put_back_and_none_is_sent() {
    let world = world();
    let mut log = String::new();
    for n in 1..=40 {
        world.post("a", n);
        let text = world.text(&fresh("a", n));
        fs::remove_file(world.root.join(fresh("a", n))).unwrap();
        world.plant_copy(&fresh("a", n), &text);
        if n != 33 {
            log.push_str(&tombstone(n, "confirmed", NOW));
        }
    }
    world.plant("log/pruned-20261129.jsonl", &log);
    let (report, sent) = world.tick();
    let sent: Vec<_> = sent.into_iter().filter(|(to, _)| to == "a").collect();
    assert_eq!(sent, [("a".to_owned(), id(33))], "{:?}", report.warnings);
    assert_eq!(report.corrupt, 39);
}

/// A copy that was made at once is as old as its item; but it has come to its place since.
#[test]
fn a_file_that_was_moved_back_is_looked_at() {
    let mut world = world();
    world.post("a", 1);
    let text = world.text(&fresh("a", 1));
    assert_eq!(to_whom(&world.tick().1), ["a"]);
    world.now = NOW.plus(2 * MINUTE);
    world.plant_moved(&fresh("a", 1), &text);
    let (_, sent) = world.tick();
    assert!(!to_whom(&sent).contains(&"a"));
    assert_eq!(world.state(1), State::Confirmed);
}

/// Also where it is not sent: what is written to it would make it the younger one.
#[test]
fn a_copy_that_comes_due_is_told_before_it_is_held() {
    for moved in [false, true] {
        let mut world = world();
        world.post("a", 1);
        let text = world.text(&fresh("a", 1));
        assert_eq!(to_whom(&world.tick().1), ["a"]);
        world.now = NOW.plus(24 * 60 * MINUTE);
        if moved {
            world.plant_moved(&fresh("a", 1), &text);
        } else {
            world.plant_copy(&fresh("a", 1), &text);
        }
        let store = world.store();
        let mut session = store.lock(&owner(world.now)).unwrap();
        let event = by_hand(EventKind::Held, world.now, State::Held, None);
        let mut hold = |_: &Item| Decision::Settle(Box::new(event.clone()), Vec::new());
        let claims = session.claim(&want(1), world.now, &mut hold).unwrap();
        assert!(claims.is_empty());
        session.close(world.now, None).unwrap();
        assert_eq!(world.names("held"), [""; 0], "{moved}");
        assert_eq!(world.state(1), State::Confirmed, "{moved}");
    }
}

/// A tick that stops puts items back, and what a person releases comes there too: that makes no copy
/// of them, and what was pruned is not asked.
#[test]
fn an_item_that_was_put_back_is_not_taken_for_one_that_was_pruned() {
    let mut world = world();
    world.now = NOW.plus(2 * MINUTE);
    world.post("a", 1);
    let text = world.text(&fresh("a", 1));
    fs::remove_file(world.root.join(fresh("a", 1))).unwrap();
    world.plant_moved(&fresh("a", 1), &text);
    let line = tombstone(1, "failed", NOW);
    world.plant("log/pruned-20261129.jsonl", &line);
    assert_eq!(to_whom(&world.tick().1), ["a"]);
    assert_eq!(world.state(1), State::Confirmed);
}

/// A pruning that died has left the tombstone of an item that a person has gone on with since; and
/// then its spool moved to another disk.
#[test]
fn an_item_that_went_on_after_its_tombstone_is_sent() {
    let mut world = world();
    world.now = NOW.plus(2 * MINUTE);
    world.post("a", 1);
    let text = world.text(&fresh("a", 1));
    fs::remove_file(world.root.join(fresh("a", 1))).unwrap();
    world.plant_copy(&fresh("a", 1), &text);
    let at = NOW.minus(MINUTE);
    let line = tombstone(1, "failed", at);
    world.plant("log/pruned-20261129.jsonl", &line);
    assert_eq!(to_whom(&world.tick().1), ["a"]);
}

/// As a killed tick leaves one, and a backup another. Both would wait for an attempt, each at its time.
#[test]
fn of_two_claimed_files_of_one_item_one_is_sent_again() {
    let world = world();
    world.post("a", 1);
    let text = world.text(&fresh("a", 1));
    let attempted = common::attempt(1, NOW, State::Pending, None);
    let line = event_line(&attempted).unwrap();
    let longer = format!("{text}{}", String::from_utf8(line).unwrap());
    fs::remove_file(world.root.join(fresh("a", 1))).unwrap();
    world.plant(&format!("unknown/a/{}.2.jsonl", id(1)), &longer);
    world.plant_copy(&format!("unknown/a/{}.1.jsonl", id(1)), &text);

    let store = world.store();
    let mut session = store.lock(&owner(world.now)).unwrap();
    let mut recover = |interrupted: &Interrupted| {
        let due = world.now.plus(u64::from(interrupted.n) * MINUTE);
        let event = common::attempt(interrupted.n, world.now, State::Unknown, Some(due));
        (event, Vec::new())
    };
    assert_eq!(session.recover(&mut recover).unwrap(), 1);
    session.close(world.now, None).unwrap();
    let later = world.now.plus(10 * MINUTE);
    let mut session = store.lock(&owner(later)).unwrap();
    let claims = session.claim(&want(9), later, &mut |_| Decision::Claim);
    let attempts: Vec<u32> = claims.unwrap().iter().map(|claimed| claimed.n).collect();
    assert_eq!(attempts, [3]);
}

/// A claim's record begins elsewhere, and ends where the link is: it is not set aside under the record
/// that follows.
#[test]
fn what_a_journal_says_of_a_directory_behind_a_link_is_kept_whole() {
    let world = world();
    world.post("a", 1);
    let store = world.store();
    let mut session = store.lock(&owner(world.now)).unwrap();
    let claims = session.claim(&want(1), world.now, &mut |_| Decision::Claim);
    let event = common::attempt(1, world.now, State::Confirmed, None);
    session
        .settle(&claims.unwrap()[0], event, Vec::new())
        .unwrap();
    world.lose("unknown/a", Errno::NOSPC, true);
    assert!(session.sync().is_err());
    drop(session);
    world.find_again();
    let (there, elsewhere) = (
        world.root.join("unknown/a"),
        world.root.join("../elsewhere"),
    );
    fs::rename(&there, &elsewhere).unwrap();
    symlink(&elsewhere, &there).unwrap();
    world.tick();
    fs::remove_file(&there).unwrap();
    fs::rename(&elsewhere, &there).unwrap();
    let (_, sent) = world.tick();
    assert!(!to_whom(&sent).contains(&"a"));
    assert_eq!(world.state(1), State::Confirmed);
}

/// The body and the key are those of the item, which has gone on.
#[test]
fn pruning_a_file_of_before_costs_its_item_nothing() {
    let mut world = world();
    let store = world.store();
    let mut envelope = envelope(1);
    envelope.destination = common::dest("a");
    envelope.key = Some("k".to_owned());
    let offer = Offer {
        envelope,
        accepted: accepted(),
        body: None,
        own_id: false,
    };
    let mut answers = Vec::new();
    store
        .accept_all(vec![offer], &Limits::NONE, &mut answers)
        .unwrap();
    let decide = |kind, state| {
        let found = store.find(id(1)).unwrap().unwrap();
        let mut session = store.lock(&owner(NOW)).unwrap();
        let event = by_hand(kind, NOW, state, None);
        let mut settle = |_: &Item| Decision::Settle(Box::new(event.clone()), Vec::new());
        assert!(session.change(&found, &mut settle).unwrap());
        session.close(NOW, None).unwrap();
        store.find(id(1)).unwrap().unwrap().place
    };
    let failed = decide(EventKind::Cancelled, State::Failed);
    let text = world.text(&failed);
    let held = decide(EventKind::Held, State::Held);

    world.now = NOW.plus(400 * 24 * 60 * MINUTE);
    world.plant_copy(&failed, &text);
    let key = format!("keys/a/{}", sha256_hex(b"k"));
    assert!(world.root.join(&key).exists());
    world.tick();
    assert!(world.root.join(&key).exists());
    assert!(world.root.join(&held).exists());
    assert!(!world.root.join(&failed).exists());
    assert!(world.names("corrupt").contains(&format!("{}.jsonl", id(1))));
}
