//! The contract of storage, the same tests for every store.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tempfile::TempDir;
use tickpost::model::envelope::{Body, Envelope};
use tickpost::model::event::{Event, EventKind};
use tickpost::model::ids::RequestId;
use tickpost::model::item::Item;
use tickpost::model::notice::{Asked, IDS_MAX, Notice};
use tickpost::model::reason::Reason;
use tickpost::model::state::State;
use tickpost::model::time::{DAY_MS, UnixMs};
use tickpost::model::tombstone::{Retention, Tombstone};
use tickpost::store::audit::{Audit, Share};
use tickpost::store::file::FileStore;
use tickpost::store::memory::MemoryStore;
use tickpost::store::{
    Claimed, Decision, DestinationHold, Found, Interrupted, Memory, Pruned, Scope, Session, Store,
    StoreError, Suspension,
};

mod common;
use common::{
    MINUTE, NOW, QuickDisk, accepted, attempt, by_hand, dest, envelope, id, owner, store_on, want,
};

/// One store, and what it lives in.
struct Bench {
    name: &'static str,
    store: Box<dyn Store>,
    _dir: Option<TempDir>,
}

impl Bench {
    fn accept(&self, n: u64, change: impl FnOnce(&mut Envelope)) {
        let mut envelope = envelope(n);
        change(&mut envelope);
        self.store.accept(envelope, accepted()).unwrap();
    }

    fn lock(&self, now: UnixMs) -> Box<dyn Session + '_> {
        self.store.lock(&owner(now)).unwrap()
    }

    fn scan(&self, scope: &Scope) -> Vec<Found> {
        let mut all = Vec::new();
        let mut each = |found: &Found| {
            all.push(found.clone());
            Ok(())
        };
        self.store.scan(scope, &mut each).unwrap();
        all
    }

    fn find(&self, n: u64) -> Found {
        self.store.find(id(n)).unwrap().unwrap()
    }

    fn read(&self, id: RequestId) -> (Found, Item) {
        let found = self.store.find(id).unwrap().unwrap();
        let item = self.store.read(&found).unwrap().unwrap().unwrap();
        (found, item)
    }

    /// The notices that were accepted, as (address, kind, reason, count, ids).
    fn notices(&self) -> Vec<(String, String, String, u64, usize)> {
        let mut told = Vec::new();
        for found in self.scan(&Scope::default()) {
            let item = self.read(found.id).1;
            if !item.envelope.notice {
                continue;
            }
            let Some(Body::Text(body)) = &item.envelope.request.body else {
                panic!("a notice has a text");
            };
            let body: serde_json::Value = serde_json::from_str(body).unwrap();
            let word = |name: &str| body[name].as_str().unwrap().to_owned();
            told.push((
                found.destination,
                word("notice"),
                word("reason"),
                body["count"].as_u64().unwrap(),
                body["request_ids"].as_array().unwrap().len(),
            ));
        }
        told.sort();
        told
    }
}

fn bench(name: &'static str) -> Bench {
    let (store, dir): (Box<dyn Store>, _) = if name == "memory" {
        (Box::new(MemoryStore::new()), None)
    } else {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("spool");
        FileStore::init(&root, "", id(1).0, NOW).unwrap();
        let store = store_on(QuickDisk, &root);
        (Box::new(store), Some(dir))
    };
    Bench {
        name,
        store,
        _dir: dir,
    }
}

const STORES: [&str; 2] = ["file", "memory"];

/// Makes one test a store of a function that takes a [`Bench`].
macro_rules! for_each_store {
    ($($test:ident)*) => {
        mod file {
            $(#[test] fn $test() { super::$test(&super::bench("file")); })*
        }
        mod memory {
            $(#[test] fn $test() { super::$test(&super::bench("memory")); })*
        }
    };
}

for_each_store! {
    what_was_accepted_is_found
    an_id_is_accepted_once
    claims_go_by_due_minute_and_id
    nothing_is_claimed_before_its_time
    a_deadline_brings_an_item_up
    days_that_lie_past_keep_the_order
    wants_limit_a_claim
    attempts_are_numbered
    putting_back_is_as_if_never_claimed
    settling_puts_an_item_where_it_belongs
    a_claim_is_settled_once
    deciding_otherwise
    notices_merge_and_are_accepted_once
    a_merged_notice_names_the_first_ids
    a_notice_never_causes_a_notice
    what_a_dead_owner_was_to_tell_is_told
    one_owner_at_a_time
    recovery_gives_what_was_interrupted_once
    recovery_leaves_what_the_session_itself_sends
    claims_left_at_close_are_recovered
    changing_what_waits
    a_second_change_sees_the_first
    what_is_claimed_is_not_changed
    waking_only_what_has_come
    waking_at_most_so_many
    reconsidering_all_that_is_held
    destinations_with_something_open
    what_is_left_due
    destination_holds
    memory_is_kept
    the_last_tick
    pruning_keeps_what_became_of_an_item
    pruning_goes_in_steps
    what_waits_is_never_pruned
    tombstones_are_forgotten_in_their_turn
    everything_accepted_is_audited
    what_is_forgotten_is_in_no_audit
}

fn ids(claims: &[Claimed]) -> Vec<RequestId> {
    claims.iter().map(|c| c.item.envelope.request_id).collect()
}

fn numbered(numbers: &[u64]) -> Vec<RequestId> {
    numbers.iter().copied().map(id).collect()
}

fn claim_all(_: &Item) -> Decision {
    Decision::Claim
}

/// Claims everything that is due, in groups, and says in which order.
fn claim_in_groups(session: &mut dyn Session, now: UnixMs) -> Vec<Claimed> {
    let mut all = Vec::new();
    loop {
        let group = session.claim(&want(3), now, &mut claim_all).unwrap();
        if group.is_empty() {
            return all;
        }
        all.extend(group);
    }
}

fn settle_with(event: Event) -> impl FnMut(&Item) -> Decision {
    move |_| Decision::Settle(Box::new(event.clone()), vec![])
}

fn interrupted(item: &Interrupted) -> (Event, Vec<Notice>) {
    let mut event = attempt(item.n, NOW, State::Unknown, Some(NOW.plus(MINUTE)));
    event.claimed_at = Some(item.claimed_at);
    (event, vec![])
}

/// Puts item `n` into a state by one attempt.
fn put(bench: &Bench, n: u64, state: State, due: Option<UnixMs>) {
    bench.accept(n, |_| {});
    let mut session = bench.lock(NOW);
    let claims = session.claim(&want(1), NOW, &mut claim_all).unwrap();
    let event = attempt(1, NOW, state, due);
    session.settle(&claims[0], event, vec![]).unwrap();
    session.close(NOW, None).unwrap();
}

fn what_was_accepted_is_found(bench: &Bench) {
    bench.accept(2, |e| {
        e.labels = BTreeMap::from([("env".into(), "prod".into())]);
    });
    bench.accept(1, |e| e.destination = dest("b"));
    let mut held = envelope(3);
    held.notify = vec![dest("ops")];
    let mut event = accepted();
    event.state = State::Held;
    bench.store.accept(held.clone(), event).unwrap();

    let all = bench.scan(&Scope::default());
    let seen: Vec<_> = all
        .iter()
        .map(|f| (f.state, f.destination.as_str(), f.id))
        .collect();
    assert_eq!(
        seen,
        [
            (State::Pending, "a", id(2)),
            (State::Pending, "b", id(1)),
            (State::Held, "a", id(3)),
        ]
    );
    let of = |states: &[State], destination: Option<&str>| {
        let scope = Scope {
            states: states.to_vec(),
            destination: destination.map(str::to_owned),
        };
        bench.scan(&scope).len()
    };
    assert_eq!(of(&[State::Held, State::Pending], Some("a")), 2);
    assert_eq!(of(&[State::Pending], None), 2);
    assert_eq!(of(&[State::Failed], None), 0);
    assert_eq!(of(&[], Some("elsewhere")), 0);

    let (found, item) = bench.read(id(3));
    assert_eq!((found.state, found.parked), (State::Held, false));
    assert_eq!(item.envelope, held);
    assert_eq!(item.events.len(), 1);
    assert!(item.events[0].envelope_sha256.is_some());
    assert!(bench.store.find(id(9)).unwrap().is_none());
}

fn an_id_is_accepted_once(bench: &Bench) {
    bench.accept(1, |_| {});
    let again = bench.store.accept(envelope(1), accepted());
    assert!(matches!(again, Err(StoreError::Exists { id: it }) if it == id(1)));
    assert_eq!(bench.scan(&Scope::default()).len(), 1);
    assert_eq!(bench.read(id(1)).1.events.len(), 1);
}

fn claims_go_by_due_minute_and_id(bench: &Bench) {
    // Pending and unknown items, in one order; within a minute by id and not by instant.
    let due = |n: u64| match n {
        1 | 4 => NOW.plus(3 * MINUTE),
        2 | 3 => NOW.plus(2 * MINUTE + 30_000 - n * 1000),
        _ => NOW.plus(5 * MINUTE),
    };
    for n in 1..=6 {
        put(
            bench,
            n,
            if n % 2 == 0 {
                State::Unknown
            } else {
                State::Pending
            },
            Some(due(n)),
        );
    }
    bench.accept(7, |_| {});
    bench.accept(8, |e| e.not_before = Some(NOW.plus(2 * MINUTE)));
    let later = NOW.plus(10 * MINUTE);
    let mut session = bench.lock(later);
    let claims = claim_in_groups(session.as_mut(), later);
    assert_eq!(ids(&claims), numbered(&[7, 2, 3, 8, 1, 4, 5, 6]));
    session.close(later, None).unwrap();
}

fn nothing_is_claimed_before_its_time(bench: &Bench) {
    bench.accept(1, |e| e.not_before = Some(NOW.plus(1)));
    bench.accept(2, |e| e.not_before = Some(NOW.plus(MINUTE)));
    bench.accept(3, |e| e.not_before = Some(NOW.plus(3 * 60 * MINUTE)));
    bench.accept(4, |e| e.not_before = Some(NOW.plus(9 * DAY_MS)));
    let at = |now: UnixMs| {
        let mut session = bench.lock(now);
        let claims = claim_in_groups(session.as_mut(), now);
        for claim in &claims {
            session
                .settle(claim, attempt(1, now, State::Confirmed, None), vec![])
                .unwrap();
        }
        session.close(now, None).unwrap();
        ids(&claims)
    };
    let rows: [(u64, &[u64]); 8] = [
        (0, &[]),
        (1, &[1]),
        (MINUTE - 1, &[]),
        (MINUTE, &[2]),
        (2 * 60 * MINUTE, &[]),
        (3 * 60 * MINUTE - 1, &[]),
        (3 * 60 * MINUTE, &[3]),
        (9 * DAY_MS, &[4]),
    ];
    for (after, due) in rows {
        assert_eq!(at(NOW.plus(after)), numbered(due), "{after} ms later");
    }
}

fn a_deadline_brings_an_item_up(bench: &Bench) {
    let end = NOW.plus(DAY_MS);
    bench.accept(1, |e| {
        e.not_before = Some(NOW.plus(9 * DAY_MS));
        e.not_after = Some(end);
    });
    bench.accept(2, |e| e.not_after = Some(end));
    let mut session = bench.lock(NOW);
    let mut event = attempt(1, NOW, State::Pending, Some(NOW.plus(9 * DAY_MS)));
    for claim in session.claim(&want(9), NOW, &mut claim_all).unwrap() {
        session.settle(&claim, event.clone(), vec![]).unwrap();
    }
    session.close(NOW, None).unwrap();
    event.n = None;

    for (now, want_ids) in [
        (end.minus(MINUTE), vec![]),
        (end.minus(1), vec![]),
        (end, numbered(&[1, 2])),
    ] {
        let mut session = bench.lock(now);
        let mut offered = Vec::new();
        let mut note = |item: &Item| {
            let due = item.turn().unwrap() <= now;
            offered.extend(due.then_some(item.envelope.request_id));
            if due { Decision::Leave } else { Decision::Wait }
        };
        session.claim(&want(9), now, &mut note).unwrap();
        session.close(now, None).unwrap();
        assert_eq!(offered, want_ids, "at {now}");
    }
}

fn days_that_lie_past_keep_the_order(bench: &Bench) {
    // Filed by day, and nobody came for a week: still by due minute, not by id.
    let morning = NOW.plus(2 * DAY_MS).day();
    for n in 1..=5 {
        bench.accept(n, |e| e.not_before = Some(morning.plus((6 - n) * MINUTE)));
    }
    bench.lock(NOW).close(NOW, None).unwrap();
    let mut session = bench.lock(NOW);
    assert!(claim_in_groups(session.as_mut(), NOW).is_empty());
    session.close(NOW, None).unwrap();
    let later = NOW.plus(9 * DAY_MS);
    let mut session = bench.lock(later);
    let claims = claim_in_groups(session.as_mut(), later);
    assert_eq!(ids(&claims), numbered(&[5, 4, 3, 2, 1]));
}

fn wants_limit_a_claim(bench: &Bench) {
    for n in 0..4 {
        bench.accept(n + 1, |_| {});
        bench.accept(n + 11, |e| e.destination = dest("b"));
    }
    let mut session = bench.lock(NOW);
    let mut wants = want(3);
    wants.extend(want(1).into_iter().map(|mut want| {
        want.destination = dest("b");
        want
    }));
    let mut group = || ids(&session.claim(&wants, NOW, &mut claim_all).unwrap());
    assert_eq!(group(), numbered(&[1, 2, 3, 11]));
    assert_eq!(group(), numbered(&[4, 12]));
    assert_eq!(group(), numbered(&[13]));
    assert!(
        session
            .claim(&want(0), NOW, &mut claim_all)
            .unwrap()
            .is_empty()
    );
    assert!(session.claim(&[], NOW, &mut claim_all).unwrap().is_empty());
}

fn attempts_are_numbered(bench: &Bench) {
    bench.accept(1, |_| {});
    let mut now = NOW;
    for n in 1..=3 {
        let mut session = bench.lock(now);
        let claims = session.claim(&want(1), now, &mut claim_all).unwrap();
        assert_eq!((claims[0].n, claims[0].at), (n, now));
        assert_eq!(claims[0].item.events.len(), n as usize);
        let (found, item) = bench.read(id(1));
        assert_eq!((found.state, found.parked), (State::Unknown, false));
        assert_eq!(item.events.len(), n as usize, "a claim is no event");
        let state = if n == 2 {
            State::Unknown
        } else {
            State::Pending
        };
        let event = attempt(n, now, state, Some(now.plus(1)));
        session.settle(&claims[0], event, vec![]).unwrap();
        now = now.plus(MINUTE);
        session.close(now, None).unwrap();
    }
    assert_eq!(bench.read(id(1)).1.standing().last_n, 3);
}

fn putting_back_is_as_if_never_claimed(bench: &Bench) {
    bench.accept(1, |_| {});
    put(bench, 2, State::Unknown, Some(NOW.plus(MINUTE)));
    let before = [bench.find(1).place, bench.find(2).place];
    let later = NOW.plus(2 * MINUTE);
    let mut session = bench.lock(later);
    let claims = session.claim(&want(2), later, &mut claim_all).unwrap();
    for claim in &claims {
        session.put_back(claim).unwrap();
    }
    session.sync().unwrap();
    assert_eq!([bench.find(1).place, bench.find(2).place], before);
    session.close(later, None).unwrap();
    let mut session = bench.lock(later);
    assert_eq!(session.recover(&mut interrupted).unwrap(), 0);
    let again = session.claim(&want(2), later, &mut claim_all).unwrap();
    let numbers = |claims: &[Claimed]| claims.iter().map(|c| c.n).collect::<Vec<_>>();
    assert_eq!((ids(&again), numbers(&again)), (ids(&claims), vec![1, 2]));
}

fn settling_puts_an_item_where_it_belongs(bench: &Bench) {
    let soon = Some(NOW.plus(MINUTE));
    let rows = [
        (State::Pending, soon, false),
        (State::Pending, None, false),
        (State::Unknown, soon, false),
        (State::Unknown, None, true),
        (State::Held, soon, false),
        (State::Held, None, false),
        (State::Confirmed, None, false),
        (State::Failed, None, false),
    ];
    for n in 0..rows.len() as u64 {
        bench.accept(n + 1, |_| {});
    }
    let mut session = bench.lock(NOW);
    let claims = claim_in_groups(session.as_mut(), NOW);
    let check = || {
        for (n, (state, due, parked)) in (1..).zip(rows) {
            let (found, item) = bench.read(id(n));
            assert_eq!((found.state, found.parked), (state, parked), "{n}");
            let standing = item.standing();
            assert_eq!((standing.state, standing.due), (state, due), "{n}");
            assert_eq!(item.events.len(), 2, "{n}");
        }
        let mut counts = BTreeMap::new();
        for (state, ..) in rows {
            *counts.entry(state).or_insert(0) += 1;
        }
        let counted = bench.store.counts().unwrap();
        assert_eq!(counted.destinations["a"], counts);
        assert_eq!(counted.parked["a"], 1);
    };
    for (claim, (state, due, _)) in claims.iter().zip(rows) {
        session
            .settle(claim, attempt(1, NOW, state, due), vec![])
            .unwrap();
    }
    check();
    session.sync().unwrap();
    check();
    session.close(NOW, None).unwrap();
    check();
}

fn a_claim_is_settled_once(bench: &Bench) {
    bench.accept(1, |_| {});
    let mut session = bench.lock(NOW);
    let claims = session.claim(&want(1), NOW, &mut claim_all).unwrap();
    for state in [State::Confirmed, State::Failed] {
        let event = attempt(1, NOW, state, None);
        session.settle(&claims[0], event, vec![]).unwrap();
        session.put_back(&claims[0]).unwrap();
    }
    session.close(NOW, None).unwrap();
    let (found, item) = bench.read(id(1));
    assert_eq!((found.state, item.events.len()), (State::Confirmed, 2));
}

fn deciding_otherwise(bench: &Bench) {
    for n in 1..=3 {
        bench.accept(n, |_| {});
    }
    let mut session = bench.lock(NOW);
    let mut decide = |item: &Item| {
        if item.envelope.request_id == id(1) {
            let event = by_hand(EventKind::Expired, NOW, State::Failed, None);
            Decision::Settle(Box::new(event), vec![])
        } else if item.envelope.request_id == id(2) {
            Decision::Leave
        } else {
            Decision::Claim
        }
    };
    let claims = session.claim(&want(1), NOW, &mut decide).unwrap();
    assert_eq!(
        ids(&claims),
        numbered(&[3]),
        "the others count towards no limit"
    );
    session.close(NOW, None).unwrap();
    assert_eq!(bench.find(1).state, State::Failed);
    assert_eq!(bench.find(2).state, State::Pending);
    assert_eq!(bench.read(id(2)).1.events.len(), 1);
}

/// Settles items `1..=n` as what `state_of` says, with the notices due for it.
fn settle_and_tell(
    bench: &Bench,
    n: u64,
    state_of: impl Fn(u64) -> State,
) -> Box<dyn Session + '_> {
    let mut session = bench.lock(NOW);
    for (n, claim) in (1..=n).zip(claim_in_groups(session.as_mut(), NOW)) {
        let event = attempt(1, NOW, state_of(n), None);
        let to = [dest("ops"), dest("chat")];
        let to = if n % 2 == 0 { &to[..1] } else { &to[..] };
        let notices = Notice::of(&claim.item, &event, 2, to);
        session.settle(&claim, event, notices).unwrap();
    }
    session
}

fn notices_merge_and_are_accepted_once(bench: &Bench) {
    for n in 1..=6 {
        bench.accept(n, |_| {});
    }
    let state = |n| if n < 5 { State::Held } else { State::Failed };
    let mut session = settle_and_tell(bench, 6, state);
    session.sync().unwrap();
    assert!(bench.notices().is_empty(), "only when all are known");
    session.close(NOW, None).unwrap();
    let row = |to: &str, about: &str, reason: &str, count: u64| {
        let ids = usize::try_from(count).unwrap();
        (
            to.to_owned(),
            about.to_owned(),
            reason.to_owned(),
            count,
            ids,
        )
    };
    let told = [
        row("chat", "failed", "content_rejected", 1),
        row("chat", "held", "auth_invalid", 2),
        row("ops", "failed", "content_rejected", 2),
        row("ops", "held", "auth_invalid", 4),
    ];
    assert_eq!(bench.notices(), told);
    bench.lock(NOW).close(NOW, None).unwrap();
    assert_eq!(bench.notices(), told);
    let first = Notice::of(
        &bench.read(id(1)).1,
        &attempt(1, NOW, State::Held, None),
        2,
        &[dest("ops")],
    );
    assert!(bench.store.find(first[0].id).unwrap().is_some());
}

fn a_merged_notice_names_the_first_ids(bench: &Bench) {
    let (many, half) = (IDS_MAX as u64 + 5, IDS_MAX / 2 + 3);
    for n in 1..=many {
        bench.accept(n, |_| {});
    }
    let session = settle_and_tell(bench, many, |_| State::Unknown);
    session.close(NOW, None).unwrap();
    let told: Vec<_> = bench
        .notices()
        .into_iter()
        .map(|t| (t.0, t.3, t.4))
        .collect();
    assert_eq!(
        told,
        [
            ("chat".to_owned(), half as u64, half),
            ("ops".to_owned(), many, IDS_MAX)
        ]
    );
}

fn a_notice_never_causes_a_notice(bench: &Bench) {
    bench.accept(1, |e| {
        e.notice = true;
        e.notify = vec![dest("ops")];
    });
    let session = settle_and_tell(bench, 1, |_| State::Failed);
    session.close(NOW, None).unwrap();
    assert_eq!(bench.scan(&Scope::default()).len(), 1);
}

fn what_a_dead_owner_was_to_tell_is_told(bench: &Bench) {
    for n in 1..=2 {
        bench.accept(n, |_| {});
    }
    let mut session = settle_and_tell(bench, 2, |_| State::Held);
    let more = Notice::of_file(
        tickpost::model::notice::About::Unconfigured,
        "b",
        "now",
        "b",
        "unconfigured",
        &Asked::default(),
        &[dest("ops")],
    );
    session.tell(more).unwrap();
    drop(session);
    assert_eq!(
        bench.find(1).state,
        State::Held,
        "what was settled is not lost"
    );
    bench.lock(NOW).close(NOW, None).unwrap();
    let told: Vec<_> = bench
        .notices()
        .into_iter()
        .map(|t| (t.0, t.1, t.3))
        .collect();
    let row = |to: &str, about: &str, count| (to.to_owned(), about.to_owned(), count);
    assert_eq!(
        told,
        [
            row("chat", "held", 1),
            row("ops", "held", 2),
            row("ops", "unconfigured", 1)
        ]
    );
}

fn one_owner_at_a_time(bench: &Bench) {
    let session = bench.lock(NOW);
    let second = bench.store.lock(&owner(NOW)).map(|_| ());
    let Err(StoreError::Locked { owner: who, .. }) = second else {
        panic!("{second:?}");
    };
    assert!(who.contains("a test"), "{who}");
    bench.accept(1, |_| {});
    session.close(NOW, None).unwrap();
    drop(bench.lock(NOW));
    bench.lock(NOW).close(NOW, None).unwrap();
}

fn recovery_gives_what_was_interrupted_once(bench: &Bench) {
    put(bench, 5, State::Unknown, Some(NOW.plus(MINUTE)));
    for n in 1..=4 {
        bench.accept(n, |_| {});
    }
    let later = NOW.plus(2 * MINUTE);
    let mut session = bench.lock(later);
    let claims = session.claim(&want(5), later, &mut claim_all).unwrap();
    session
        .settle(
            &claims[0],
            attempt(1, later, State::Confirmed, None),
            vec![],
        )
        .unwrap();
    session.put_back(&claims[1]).unwrap();
    drop(session);

    // One that dies before it recovers changes nothing.
    drop(bench.lock(later.plus(MINUTE)));

    let mut session = bench.lock(later.plus(2 * MINUTE));
    let mut given = Vec::new();
    let mut decide = |item: &Interrupted| {
        given.push((item.item.envelope.request_id, item.n, item.claimed_at));
        interrupted(item)
    };
    assert_eq!(session.recover(&mut decide).unwrap(), 3);
    assert_eq!(session.recover(&mut decide).unwrap(), 0);
    session.close(later.plus(2 * MINUTE), None).unwrap();
    given.sort();
    let told: Vec<_> = given.iter().map(|(id, n, _)| (*id, *n)).collect();
    assert_eq!(told, [(id(3), 1), (id(4), 1), (id(5), 2)]);
    assert!(given.iter().all(|(_, _, at)| *at <= later && *at >= NOW));
    assert_eq!(bench.find(1).state, State::Confirmed);
    assert_eq!(bench.find(2).state, State::Pending);
    assert_eq!(bench.read(id(3)).1.standing().last_n, 1);
    assert!(bench.read(id(3)).1.standing().maybe_acted);
}

fn recovery_leaves_what_the_session_itself_sends(bench: &Bench) {
    bench.accept(1, |_| {});
    let mut session = bench.lock(NOW);
    let claims = session.claim(&want(1), NOW, &mut claim_all).unwrap();
    assert_eq!(session.recover(&mut interrupted).unwrap(), 0);
    let event = attempt(1, NOW, State::Confirmed, None);
    session.settle(&claims[0], event, vec![]).unwrap();
    session.close(NOW, None).unwrap();
    assert_eq!(bench.read(id(1)).1.events.len(), 2);
}

fn claims_left_at_close_are_recovered(bench: &Bench) {
    bench.accept(1, |_| {});
    let mut session = bench.lock(NOW);
    let later = NOW.plus(5 * MINUTE);
    session.claim(&want(1), later, &mut claim_all).unwrap();
    session.close(later.plus(9), None).unwrap();
    assert_eq!(bench.find(1).state, State::Unknown);
    let mut session = bench.lock(later.plus(MINUTE));
    let mut at = None;
    let mut decide = |item: &Interrupted| {
        at = Some(item.claimed_at);
        interrupted(item)
    };
    assert_eq!(session.recover(&mut decide).unwrap(), 1);
    assert_eq!(at, Some(later));
}

fn changing_what_waits(bench: &Bench) {
    let mut n = 0;
    for from in [State::Held, State::Failed, State::Unknown, State::Pending] {
        for to in State::ALL {
            n += 1;
            put(bench, n, from, None);
            let mut session = bench.lock(NOW);
            let event = by_hand(EventKind::Resolved, NOW, to, None);
            let moved = session.change(&bench.find(n), &mut settle_with(event));
            assert!(moved.unwrap(), "{from} to {to}");
            session.close(NOW, None).unwrap();
            let (found, item) = bench.read(id(n));
            assert_eq!(found.state, to, "{from} to {to}");
            assert_eq!(item.events.len(), 3);
            // Out of the way of the next row's claim.
            let mut session = bench.lock(NOW);
            let event = by_hand(EventKind::Resolved, NOW, State::Confirmed, None);
            session
                .change(&bench.find(n), &mut settle_with(event))
                .unwrap();
            session.close(NOW, None).unwrap();
        }
    }
    let mut gone = bench.find(1);
    gone.place = gone.place.replace(&id(1).to_string(), &id(99).to_string());
    gone.id = id(99);
    let mut session = bench.lock(NOW);
    assert!(!session.change(&gone, &mut claim_all).unwrap());
    assert!(
        !session
            .change(&bench.find(1), &mut |_| Decision::Leave)
            .unwrap()
    );
}

fn a_second_change_sees_the_first(bench: &Bench) {
    put(bench, 1, State::Held, None);
    let mut session = bench.lock(NOW);
    let found = bench.find(1);
    let hold = by_hand(EventKind::Held, NOW, State::Held, None);
    assert!(session.change(&found, &mut settle_with(hold)).unwrap());
    let mut seen = 0;
    let release = by_hand(EventKind::Released, NOW, State::Pending, None);
    let mut decide = |item: &Item| {
        seen = item.events.len();
        Decision::Settle(Box::new(release.clone()), vec![])
    };
    assert_eq!(session.reconsider(&dest("a"), &mut decide).unwrap(), 1);
    assert_eq!(seen, 3, "both events before it");
    assert!(!session.change(&found, &mut claim_all).unwrap(), "gone");
    session.close(NOW, None).unwrap();
    let (found, item) = bench.read(id(1));
    assert_eq!((found.state, item.events.len()), (State::Pending, 4));
}

fn what_is_claimed_is_not_changed(bench: &Bench) {
    bench.accept(1, |_| {});
    let mut session = bench.lock(NOW);
    session.claim(&want(1), NOW, &mut claim_all).unwrap();
    drop(session);
    let mut session = bench.lock(NOW);
    let cancel = by_hand(EventKind::Cancelled, NOW, State::Failed, None);
    let found = bench.find(1);
    assert_eq!(found.state, State::Unknown);
    assert!(!session.change(&found, &mut settle_with(cancel)).unwrap());
    session.close(NOW, None).unwrap();
    assert_eq!(bench.find(1).state, State::Unknown);
}

fn waking_only_what_has_come(bench: &Bench) {
    let due = |n: u64| match n {
        1 => Some(NOW.plus(MINUTE)),
        2 => Some(NOW.plus(2 * MINUTE)),
        3 => Some(NOW.plus(MINUTE + 1)),
        4 => None,
        _ => Some(NOW.plus(9 * DAY_MS)),
    };
    for n in 1..=5 {
        put(bench, n, State::Held, due(n));
    }
    let mut rows = Vec::new();
    for after in [0, MINUTE - 1, MINUTE, MINUTE + 1, 5 * MINUTE, 9 * DAY_MS] {
        let now = NOW.plus(after);
        let mut session = bench.lock(now);
        let release = by_hand(EventKind::Released, now, State::Pending, None);
        let woken = session.wake(&dest("a"), now, 9, &mut settle_with(release));
        session.close(now, None).unwrap();
        rows.push(woken.unwrap());
    }
    assert_eq!(rows, [0, 0, 1, 1, 1, 1]);
    assert_eq!(bench.find(4).state, State::Held);
    let pending = Scope {
        states: vec![State::Pending],
        destination: None,
    };
    assert_eq!(bench.scan(&pending).len(), 4);
    let later = NOW.plus(9 * DAY_MS);
    let mut session = bench.lock(later);
    assert_eq!(claim_in_groups(session.as_mut(), later).len(), 4);
}

fn waking_at_most_so_many(bench: &Bench) {
    for n in 1..=5 {
        put(bench, n, State::Held, Some(NOW.plus(n * MINUTE)));
    }
    let now = NOW.plus(9 * MINUTE);
    let mut session = bench.lock(now);
    let mut release = settle_with(by_hand(EventKind::Released, now, State::Pending, None));
    let mut wake = || session.wake(&dest("a"), now, 2, &mut release).unwrap();
    assert_eq!([wake(), wake(), wake(), wake()], [2, 2, 1, 0]);
}

fn reconsidering_all_that_is_held(bench: &Bench) {
    put(bench, 1, State::Held, Some(NOW.plus(9 * MINUTE)));
    put(bench, 2, State::Held, None);
    put(bench, 3, State::Failed, None);
    let mut session = bench.lock(NOW);
    let release = by_hand(EventKind::Released, NOW, State::Pending, None);
    let mut decide = |item: &Item| match item.envelope.request_id {
        it if it == id(2) => Decision::Settle(Box::new(release.clone()), vec![]),
        _ => Decision::Leave,
    };
    assert_eq!(session.reconsider(&dest("a"), &mut decide).unwrap(), 1);
    assert_eq!(session.reconsider(&dest("b"), &mut claim_all).unwrap(), 0);
    session.close(NOW, None).unwrap();
    let states: Vec<State> = (1..=3).map(|n| bench.find(n).state).collect();
    assert_eq!(states, [State::Held, State::Pending, State::Failed]);
}

fn destinations_with_something_open(bench: &Bench) {
    bench.accept(1, |e| e.destination = dest("c"));
    put(bench, 2, State::Held, None);
    let names = bench.lock(NOW).destinations().unwrap();
    assert_eq!(names, [dest("a"), dest("c")]);
}

fn what_is_left_due(bench: &Bench) {
    for n in 1..=5 {
        bench.accept(n, |_| {});
    }
    bench.accept(6, |e| e.not_before = Some(NOW.plus(MINUTE)));
    let mut session = bench.lock(NOW);
    assert_eq!(session.left(&dest("a"), NOW).unwrap(), 5);
    session.claim(&want(2), NOW, &mut claim_all).unwrap();
    assert_eq!(session.left(&dest("a"), NOW).unwrap(), 3);
    assert_eq!(session.left(&dest("b"), NOW).unwrap(), 0);
}

fn destination_holds(bench: &Bench) {
    let hold = DestinationHold {
        at: NOW,
        by: "alice(1000)".to_owned(),
        note: Some("moving".to_owned()),
    };
    let session = bench.lock(NOW);
    assert_eq!(bench.store.destination_hold("a").unwrap(), None);
    for _ in 0..2 {
        bench
            .store
            .set_destination_hold(&dest("a"), Some(&hold))
            .unwrap();
        assert_eq!(
            bench.store.destination_hold("a").unwrap().as_ref(),
            Some(&hold)
        );
    }
    assert_eq!(bench.store.destination_hold("b").unwrap(), None);
    for _ in 0..2 {
        bench.store.set_destination_hold(&dest("a"), None).unwrap();
        assert_eq!(bench.store.destination_hold("a").unwrap(), None);
    }
    session.close(NOW, None).unwrap();
}

fn memory_is_kept(bench: &Bench) {
    let memory = Memory {
        suspended: Some(Suspension {
            note: None,
            reason: Reason::AUTH_INVALID,
            since: NOW,
            until: None,
            tries: 2,
        }),
        held_in_a_row: vec![id(1)],
        past: vec![(NOW, NOW.plus(1))],
        ..Memory::default()
    };
    let mut session = bench.lock(NOW);
    assert_eq!(bench.store.memory(&dest("a")).unwrap(), Memory::default());
    session.remember(&dest("a"), &Memory::default()).unwrap();
    session.remember(&dest("a"), &memory).unwrap();
    session.close(NOW, None).unwrap();
    assert_eq!(bench.store.memory(&dest("a")).unwrap(), memory);
    assert_eq!(bench.store.memory(&dest("b")).unwrap(), Memory::default());
}

fn the_last_tick(bench: &Bench) {
    assert_eq!(bench.store.last_tick().unwrap(), None);
    for (day, n) in [(0, 1), (0, 2), (1, 3)] {
        let now = NOW.plus(day * DAY_MS);
        let line = serde_json::json!({"ended_at": now, "attempts": n});
        bench.lock(now).close(now, Some(&line)).unwrap();
        assert_eq!(bench.store.last_tick().unwrap(), Some(line));
    }
    bench.lock(NOW).close(NOW, None).unwrap();
    assert_eq!(bench.store.last_tick().unwrap().unwrap()["attempts"], 3);
}

/// The first instant at which what was confirmed at [`NOW`] is past the usual retention.
fn over() -> UnixMs {
    NOW.day().plus(8 * DAY_MS)
}

fn prune(bench: &Bench, now: UnixMs, items_max: usize) -> Pruned {
    let mut session = bench.lock(now);
    let pruned = session.prune(&Retention::default(), now, items_max);
    session.close(now, None).unwrap();
    pruned.unwrap()
}

fn pruning_keeps_what_became_of_an_item(bench: &Bench) {
    let store = &bench.store;
    put(bench, 1, State::Confirmed, None);
    put(bench, 2, State::Failed, None);
    let item = bench.read(id(1)).1;
    assert_eq!(prune(bench, over().minus(1), 10), Pruned::default());
    assert_eq!(store.tombstone(id(1)).unwrap(), None);

    let one = Pruned {
        items: 1,
        ..Pruned::default()
    };
    let planned = store.prunable(&Retention::default(), over()).unwrap();
    assert_eq!(planned, one);
    assert_eq!(prune(bench, over(), 10), one);
    assert!(store.find(id(1)).unwrap().is_none());
    let kept = store.tombstone(id(1)).unwrap();
    assert_eq!(kept, Tombstone::of(&item, over()));
    assert_eq!(kept.as_ref().unwrap().state, State::Confirmed);
    let beginning = &id(1).to_string()[..8];
    assert_eq!(store.tombstones(beginning, 5).unwrap(), kept.as_slice());
    assert!(store.tombstones(beginning, 0).unwrap().is_empty());

    assert_eq!(bench.find(2).state, State::Failed, "kept for longer");
    assert_eq!(prune(bench, NOW.day().plus(91 * DAY_MS), 10), one);
    assert!(store.tombstone(id(2)).unwrap().is_some());
    assert_eq!(store.tombstones(beginning, 5).unwrap().len(), 2);
    assert_eq!(store.tombstones(beginning, 1).unwrap().len(), 1);
}

fn pruning_goes_in_steps(bench: &Bench) {
    for n in 1..=5 {
        put(bench, n, State::Confirmed, None);
    }
    let mut session = bench.lock(over());
    let mut steps = Vec::new();
    loop {
        let step = session.prune(&Retention::default(), over(), 2).unwrap();
        steps.push(step.items);
        if !step.left {
            break;
        }
    }
    session.close(over(), None).unwrap();
    assert_eq!(steps, [2, 2, 1]);
    assert!(bench.scan(&Scope::default()).is_empty());
}

fn what_waits_is_never_pruned(bench: &Bench) {
    put(bench, 1, State::Held, None);
    put(bench, 2, State::Unknown, None);
    put(bench, 3, State::Unknown, Some(NOW.plus(MINUTE)));
    bench.accept(4, |_| {});
    let late = NOW.plus(4000 * DAY_MS);
    assert_eq!(prune(bench, late, 10), one_ledger());
    assert_eq!(bench.scan(&Scope::default()).len(), 4);
}

/// What pruning does when a ledger alone is past retention.
fn one_ledger() -> Pruned {
    Pruned {
        ledger_files: 1,
        ..Pruned::default()
    }
}

fn tombstones_are_forgotten_in_their_turn(bench: &Bench) {
    put(bench, 1, State::Confirmed, None);
    prune(bench, over(), 10);
    let year = over().day().plus(DAY_MS + 31_557_600_000);
    // The item was accepted on an earlier day.
    assert_eq!(prune(bench, year.minus(1), 10), one_ledger());
    assert!(bench.store.tombstone(id(1)).unwrap().is_some());
    let mut session = bench.lock(year);
    let mut files = 0;
    loop {
        let step = session.prune(&Retention::default(), year, 10).unwrap();
        files += step.tombstone_files;
        if !step.left {
            break;
        }
    }
    session.close(year, None).unwrap();
    assert_eq!(files, 1);
    assert_eq!(bench.store.tombstone(id(1)).unwrap(), None);
}

fn audit(bench: &Bench, now: UnixMs) -> Audit {
    let mut session = bench.lock(now);
    let audit = session.audit();
    session.close(now, None).unwrap();
    audit.unwrap()
}

fn everything_accepted_is_audited(bench: &Bench) {
    assert_eq!(audit(bench, NOW), Audit::default());
    put(bench, 1, State::Confirmed, None);
    put(bench, 2, State::Failed, None);
    put(bench, 3, State::Held, None);
    put(bench, 4, State::Unknown, Some(NOW.plus(MINUTE)));
    bench.accept(5, |envelope| {
        envelope.destination = dest("b");
        envelope.requester.principal = Some("alice".to_owned());
    });
    bench.accept(6, |envelope| {
        envelope.requester.principal = Some("alice".to_owned());
    });
    // A notice is an item like any other.
    let mut session = bench.lock(NOW);
    let found = bench.find(3);
    let told = bench.read(id(3)).1;
    let event = by_hand(EventKind::Held, NOW, State::Held, None);
    let notices = Notice::of(&told, &event, 3, &[dest("ops")]);
    let mut decide = |_: &Item| Decision::Settle(Box::new(event.clone()), notices.clone());
    assert!(session.change(&found, &mut decide).unwrap());
    let within = session.audit().unwrap();
    assert_eq!((within.accepted, within.is_clean()), (6, true));
    session.close(NOW, None).unwrap();

    let share = |accepted| Share {
        accepted,
        in_place: accepted,
        ..Share::default()
    };
    let alice = Some("alice".to_owned());
    let mut want = Audit {
        accepted: 7,
        states: BTreeMap::from([
            (State::Pending, 3),
            (State::Unknown, 1),
            (State::Held, 1),
            (State::Confirmed, 1),
            (State::Failed, 1),
        ]),
        by: BTreeMap::from([
            ((dest("a"), None), share(4)),
            ((dest("a"), alice.clone()), share(1)),
            ((dest("b"), alice), share(1)),
            ((dest("ops"), Some("tickpost".to_owned())), share(1)),
        ]),
        ..Audit::default()
    };
    assert_eq!(audit(bench, NOW), want);

    // What is being sent is in unknown.
    let mut session = bench.lock(NOW);
    let one = common::want(1);
    let claims = session.claim(&one, NOW, &mut claim_all).unwrap();
    assert_eq!(claims.len(), 1);
    let while_sent = session.audit().unwrap();
    assert_eq!(while_sent.states[&State::Unknown], 2);
    assert_eq!((while_sent.accepted, while_sent.is_clean()), (7, true));
    session.put_back(&claims[0]).unwrap();
    session.close(NOW, None).unwrap();

    prune(bench, over(), 10);
    want.states.remove(&State::Confirmed);
    want.pruned = 1;
    let of_a = want.by.get_mut(&(dest("a"), None)).unwrap();
    (of_a.in_place, of_a.pruned) = (3, 1);
    assert_eq!(audit(bench, over()), want);
    assert_eq!(audit(bench, over()).in_place(), 6);
}

fn what_is_forgotten_is_in_no_audit(bench: &Bench) {
    put(bench, 1, State::Confirmed, None);
    put(bench, 2, State::Held, None);
    let over_a_year = 31_557_600_000 + DAY_MS;
    prune(bench, over(), 10);
    // The ledger goes first: it is of an earlier day than the tombstone.
    let year = NOW.day().plus(over_a_year);
    assert_eq!(prune(bench, year.minus(1), 10), Pruned::default());
    assert_eq!(audit(bench, year).accepted, 2);
    let planned = bench.store.prunable(&Retention::default(), year);
    assert_eq!(planned.unwrap(), one_ledger());
    assert_eq!(prune(bench, year, 10), one_ledger());
    assert!(bench.store.tombstone(id(1)).unwrap().is_some());
    let unlisted = Audit {
        unlisted: 1,
        without_ledger: 1,
        ..Audit::default()
    };
    assert_eq!(audit(bench, year), unlisted, "the held one is still there");
    let year = over().day().plus(over_a_year);
    let mut session = bench.lock(year);
    while session.prune(&Retention::default(), year, 10).unwrap().left {}
    session.close(year, None).unwrap();
    assert_eq!(bench.store.tombstone(id(1)).unwrap(), None);
    assert_eq!(audit(bench, year), unlisted);
}

/// What may happen to a store, by chance.
#[derive(Clone, Debug)]
enum Step {
    Accept { wait: u64 },
    Claim { items_max: usize },
    Settle { which: usize, how: usize },
    PutBack { which: usize },
    Change { which: usize, how: usize },
    Wake,
    Reconsider,
    Sync,
    Crash,
    Close,
    Pass { ms: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let waits = prop_oneof![Just(0), Just(90_000), Just(5 * 60 * MINUTE)];
    let step = prop_oneof![
        4 => waits.prop_map(|wait| Step::Accept { wait }),
        3 => (1_usize..4).prop_map(|items_max| Step::Claim { items_max }),
        6 => (0_usize..8, 0_usize..8).prop_map(|(which, how)| Step::Settle { which, how }),
        1 => (0_usize..8).prop_map(|which| Step::PutBack { which }),
        2 => (0_usize..8, 0_usize..8).prop_map(|(which, how)| Step::Change { which, how }),
        1 => Just(Step::Wake),
        1 => Just(Step::Reconsider),
        1 => Just(Step::Sync),
        1 => Just(Step::Crash),
        2 => Just(Step::Close),
        2 => prop_oneof![Just(30_000), Just(2 * MINUTE), Just(DAY_MS)]
            .prop_map(|ms| Step::Pass { ms }),
    ];
    prop::collection::vec(step, 1..60)
}

/// What an item's next event may be: state and due time, eight ways.
fn ending(how: usize, now: UnixMs) -> (State, Option<UnixMs>) {
    let soon = Some(now.plus(MINUTE));
    match how {
        0 => (State::Pending, soon),
        1 => (State::Pending, None),
        2 => (State::Pending, Some(now.plus(DAY_MS))),
        3 => (State::Unknown, soon),
        4 => (State::Unknown, None),
        5 => (State::Held, soon),
        6 => (State::Failed, None),
        _ => (State::Confirmed, None),
    }
}

/// The simple model: each item's events, and what is claimed.
#[derive(Default)]
struct Model {
    items: BTreeMap<RequestId, Item>,
    claimed: BTreeMap<RequestId, (u32, UnixMs)>,
    told: u64,
}

impl Model {
    fn event(&mut self, item: &Item, event: Event) -> (Event, Vec<Notice>) {
        let known = self.items.get_mut(&item.envelope.request_id).unwrap();
        assert_eq!(item, known, "the store gives the item as it is");
        let number = known.events.len() + 1;
        let notices = Notice::of(known, &event, number, &[dest("ops")]);
        self.told += notices.len() as u64;
        known.events.push(event.clone());
        (event, notices)
    }

    /// Every id in exactly one place, with its events and no others.
    fn check(&self, bench: &Bench) {
        let mut seen = BTreeMap::new();
        let mut counts: BTreeMap<String, BTreeMap<State, u64>> = BTreeMap::new();
        for found in bench.scan(&Scope::default()) {
            let states = counts.entry(found.destination.clone()).or_default();
            *states.entry(found.state).or_default() += 1;
            let item = bench.store.read(&found).unwrap().unwrap().unwrap();
            if item.envelope.notice {
                continue;
            }
            let standing = item.standing();
            let claimed = self.claimed.contains_key(&found.id);
            let state = if claimed {
                State::Unknown
            } else {
                standing.state
            };
            assert_eq!(found.state, state, "{}", found.place);
            assert_eq!(found.parked, !claimed && standing.parked, "{}", found.place);
            assert!(seen.insert(found.id, item).is_none(), "{}", found.id);
        }
        assert_eq!(seen, self.items, "{}", bench.name);
        assert_eq!(bench.store.counts().unwrap().destinations, counts);
        for id in self.items.keys() {
            assert!(bench.store.find(*id).unwrap().is_some());
        }
    }
}

fn recover(session: &mut dyn Session, model: &mut Model, now: UnixMs) {
    let claimed = std::mem::take(&mut model.claimed);
    let mut given = BTreeSet::new();
    let mut decide = |it: &Interrupted| {
        let id = it.item.envelope.request_id;
        let (n, at) = claimed[&id];
        assert!(
            it.n == n && it.claimed_at <= at,
            "{id}: {} {at}",
            it.claimed_at
        );
        assert!(given.insert(id), "{id} was given twice");
        let due = id.0.as_u128().is_multiple_of(2).then(|| now.plus(MINUTE));
        let mut event = attempt(n, now, State::Unknown, due);
        event.claimed_at = Some(it.claimed_at);
        model.event(&it.item, event)
    };
    let recovered = session.recover(&mut decide).unwrap();
    assert_eq!(recovered, claimed.len() as u64);
}

fn claim(
    session: &mut dyn Session,
    model: &mut Model,
    items_max: usize,
    now: UnixMs,
) -> Vec<Claimed> {
    let mut order = Vec::new();
    let mut decide = |item: &Item| {
        assert_eq!(Some(item), model.items.get(&item.envelope.request_id));
        if !item.is_due(now) {
            return Decision::Wait;
        }
        // The order is that of the listing; what was changed in this session may have another
        // turn by now.
        if item.events.len() == 1 {
            order.push((item.turn().unwrap().minute(), item.envelope.request_id));
        }
        Decision::Claim
    };
    let claims = session.claim(&want(items_max), now, &mut decide).unwrap();
    assert!(claims.len() <= items_max);
    assert!(order.is_sorted(), "{order:?}");
    for claim in &claims {
        let id = claim.item.envelope.request_id;
        assert_eq!(claim.n, model.items[&id].standing().last_n + 1);
        assert!(model.claimed.insert(id, (claim.n, now)).is_none());
    }
    claims
}

fn nth<T>(all: &[T], which: usize) -> Option<&T> {
    all.get(which % all.len().max(1))
}

fn run(bench: &Bench, steps: &[Step]) {
    let mut model = Model::default();
    let mut now = NOW;
    let mut session = bench.lock(now);
    let mut in_hand: Vec<Claimed> = Vec::new();
    for step in steps {
        match *step {
            Step::Accept { wait } => {
                let mut envelope = envelope(model.items.len() as u64);
                envelope.not_before = (wait > 0).then(|| now.plus(wait));
                let accepted = by_hand(EventKind::Accepted, now, State::Pending, None);
                let (item, _) = Item::accept(envelope.clone(), accepted.clone()).unwrap();
                bench.store.accept(envelope, accepted).unwrap();
                model.items.insert(item.envelope.request_id, item);
            }
            Step::Claim { items_max } => {
                in_hand.extend(claim(session.as_mut(), &mut model, items_max, now));
            }
            Step::Settle { which, how } if !in_hand.is_empty() => {
                let claimed = in_hand.remove(which % in_hand.len());
                let (state, due) = ending(how, now);
                let event = attempt(claimed.n, now, state, due);
                let (event, notices) = model.event(&claimed.item, event);
                session.settle(&claimed, event, notices).unwrap();
                model.claimed.remove(&claimed.item.envelope.request_id);
            }
            Step::PutBack { which } if !in_hand.is_empty() => {
                let claimed = in_hand.remove(which % in_hand.len());
                session.put_back(&claimed).unwrap();
                model.claimed.remove(&claimed.item.envelope.request_id);
            }
            Step::Settle { .. } | Step::PutBack { .. } => {}
            Step::Change { which, how } => {
                let all: Vec<RequestId> = model.items.keys().copied().collect();
                if let Some(id) = nth(&all, which) {
                    let found = bench.store.find(*id).unwrap().unwrap();
                    let (state, due) = ending(how, now);
                    let event = by_hand(EventKind::Resolved, now, state, due);
                    let mut decide = |item: &Item| {
                        let (event, notices) = model.event(item, event.clone());
                        Decision::Settle(Box::new(event), notices)
                    };
                    session.change(&found, &mut decide).unwrap();
                }
            }
            Step::Wake | Step::Reconsider => {
                let release = by_hand(EventKind::Released, now, State::Pending, None);
                let wakes = matches!(step, Step::Wake);
                let mut decide = |item: &Item| {
                    assert!(!wakes || item.is_due(now));
                    let (event, notices) = model.event(item, release.clone());
                    Decision::Settle(Box::new(event), notices)
                };
                if wakes {
                    session.wake(&dest("a"), now, 2, &mut decide).unwrap();
                } else {
                    session.reconsider(&dest("a"), &mut decide).unwrap();
                }
            }
            Step::Sync => session.sync().unwrap(),
            Step::Crash | Step::Close => {
                if matches!(step, Step::Crash) {
                    drop(session);
                } else {
                    session.close(now, None).unwrap();
                }
                in_hand.clear();
                model.check(bench);
                session = bench.lock(now);
                recover(session.as_mut(), &mut model, now);
            }
            Step::Pass { ms } => now = now.plus(ms),
        }
        model.check(bench);
    }
    session.close(now, None).unwrap();

    // Nothing is lost: whatever can be due comes up, each item once and in order.
    now = now.plus(9 * DAY_MS);
    let mut session = bench.lock(now);
    recover(session.as_mut(), &mut model, now);
    session.close(now, None).unwrap();
    now = now.plus(DAY_MS);
    let mut session = bench.lock(now);
    let mut due: Vec<_> = model
        .items
        .values()
        .filter(|item| item.is_due(now) && item.standing().state != State::Held)
        .map(|item| (item.turn().unwrap().minute(), item.envelope.request_id))
        .collect();
    due.sort_unstable();
    let claims = claim(session.as_mut(), &mut model, usize::MAX, now);
    let due: Vec<_> = due.into_iter().map(|(_, id)| id).collect();
    assert_eq!(ids(&claims), due);
    model.check(bench);
    let told: u64 = bench.notices().iter().map(|t| t.3).sum();
    assert_eq!(told, model.told, "told of each end exactly once");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_keeps_every_item_in_one_place(steps in steps()) {
        for name in STORES {
            run(&bench(name), &steps);
        }
    }
}
