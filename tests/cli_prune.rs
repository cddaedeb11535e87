//! `prune`, the share of it that a tick does, and what can still be asked of items that are gone.
//!
//! CONTRACT 5 and 6.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/bench.rs"]
mod bench;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use bench::{Bench, assert_fields, assert_has_fields, assert_time};
use serde_json::Value;
use tickpost::clock::{Clock as _, SystemClock};
use tickpost::model::envelope::{Body, Envelope, Request, Requester, VERSION, sha256_hex};
use tickpost::model::event::{Event, EventKind};
use tickpost::model::ids::RequestId;
use tickpost::model::item::{Item, event_line};
use tickpost::model::reason::Reason;
use tickpost::model::state::State;
use tickpost::model::time::{DAY_MS, UnixMs};
use tickpost::store::file::layout::Place;

const NOWHERE: &str = "http://127.0.0.1:9";

fn now() -> UnixMs {
    SystemClock::new().now()
}

fn days_ago(days: u64) -> UnixMs {
    now().minus(days * DAY_MS)
}

/// The `n`th id of those minted at a time.
fn id(at: UnixMs, n: u64) -> RequestId {
    let time = u128::from(at.0) << 80;
    RequestId(uuid::Uuid::from_u128(
        time | 0x7000_8000_0000_0000_0000 | u128::from(n),
    ))
}

/// Plants an item to `shop` that was settled, or came to wait, at a time.
fn plant(bench: &Bench, n: u64, state: State, at: UnixMs) -> String {
    let envelope = Envelope {
        v: VERSION,
        request_id: id(at, n),
        destination: "shop".parse().unwrap(),
        enqueued_at: at,
        request: Request {
            method: "POST".to_owned(),
            path: String::new(),
            query: Vec::new(),
            headers: Vec::new(),
            content_type: None,
            body: Some(Body::Text("x".to_owned())),
            body_sha256: sha256_hex(b"x"),
        },
        requester: Requester {
            principal: Some("alice".to_owned()),
            thread: None,
        },
        notify: Vec::new(),
        labels: std::collections::BTreeMap::from([("env".to_owned(), "prod".to_owned())]),
        key: None,
        retry_of: None,
        not_before: None,
        not_after: None,
        notice: false,
    };
    let (_, mut bytes) = Item::accept(
        envelope,
        Event::new(EventKind::Accepted, at, State::Pending),
    )
    .unwrap();
    let mut event = Event::new(EventKind::Attempt, at, state);
    event.n = Some(1);
    event.ms = Some(1);
    event.reason = Some(Reason::ACCEPTED);
    event.receipt = (state == State::Confirmed).then(|| "ch_1".to_owned());
    bytes.extend(event_line(&event).unwrap());
    let place = Place::filed(state, "shop", id(at, n), None, None, at).path();
    let path = bench.spool().join(place);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, bytes).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    id(at, n).to_string()
}

fn shop() -> Bench {
    Bench::with(&[("shop", NOWHERE, "")])
}

fn is_there(bench: &Bench, id: &str) -> bool {
    !bench.places(id).is_empty()
}

#[test]
fn prune_deletes_what_is_past_retention_and_says_how_much() {
    let bench = shop();
    let old = plant(&bench, 1, State::Confirmed, days_ago(20));
    let recent = plant(&bench, 2, State::Confirmed, days_ago(5));
    let failed = plant(&bench, 3, State::Failed, days_ago(20));
    let held = plant(&bench, 4, State::Held, days_ago(2000));
    let parked = plant(&bench, 5, State::Unknown, days_ago(2000));
    let before = bench.tree();
    let said = bench.json(&["prune", "--dry-run"]);
    assert_fields(
        &said,
        "pruned kept tombstone_files ledger_files tick_files dry_run",
    );
    assert_eq!(
        (&said["pruned"], &said["dry_run"]),
        (&1.into(), &true.into())
    );
    bench
        .run(&["prune", "--dry-run"])
        .ok()
        .prints("1 item would be pruned");
    assert_eq!(bench.tree(), before, "a rehearsal changes nothing");

    bench.run(&["prune"]).ok().prints("1 item pruned");
    assert!(!is_there(&bench, &old));
    for id in [&recent, &failed, &held, &parked] {
        assert!(is_there(&bench, id), "{id}");
    }
    let said = bench.json(&["prune"]);
    assert_eq!(
        (&said["pruned"], &said["dry_run"]),
        (&0.into(), &false.into())
    );
}

#[test]
fn the_configuration_says_how_long_anything_is_kept() {
    let bench = Bench::new();
    let config = "[retention]\nconfirmed = \"30d\"\nfailed = \"2d\"\ntombstones = \"2d\"\n";
    bench.configure(config, &[("shop", NOWHERE, "")]);
    let confirmed = plant(&bench, 1, State::Confirmed, days_ago(20));
    let failed = plant(&bench, 2, State::Failed, days_ago(20));
    let log = bench.spool().join("log/pruned-20200101.jsonl");
    fs::write(&log, "").unwrap();
    let said = bench.json(&["prune", "--dry-run"]);
    assert_eq!(
        (&said["pruned"], &said["tombstone_files"]),
        (&1.into(), &1.into())
    );
    bench
        .run(&["prune"])
        .ok()
        .prints("1 item pruned")
        .prints("tombstones of 1 day forgotten");
    assert!(is_there(&bench, &confirmed) && !is_there(&bench, &failed));
    assert!(!log.exists());
}

#[test]
fn a_pruned_item_answers_with_its_tombstone() {
    let bench = shop();
    let id = plant(&bench, 1, State::Confirmed, days_ago(20));
    bench.run(&["prune"]).ok();
    assert!(bench.list(&[]).is_empty(), "a list does not show it");

    let shown = bench.show(&id);
    assert_has_fields(&shown, "request_id state envelope events file next pruned");
    assert_eq!(
        (&shown["request_id"], &shown["state"]),
        (&id.as_str().into(), &"confirmed".into())
    );
    assert_eq!(
        (&shown["envelope"], &shown["file"]),
        (&Value::Null, &Value::Null)
    );
    let pruned = &shown["pruned"];
    assert_fields(
        pruned,
        "request_id destination state reason enqueued_at settled_at pruned_at attempts principal thread labels receipt body_sha256",
    );
    for name in ["enqueued_at", "settled_at", "pruned_at"] {
        assert_time(&pruned[name]);
    }
    assert_eq!(
        (&pruned["receipt"], &pruned["attempts"]),
        (&"ch_1".into(), &1.into())
    );

    let ran = bench.run(&["show", &id]).ok();
    for words in ["confirmed", "pruned", "shop", "alice", "env=prod", "ch_1"] {
        assert!(ran.stdout.contains(words), "{words}: {ran:#?}");
    }
    // In capitals, by its beginning, and among others.
    bench
        .run(&["show", &id.to_uppercase()])
        .ok()
        .prints("pruned");
    bench.run(&["show", &id[..12]]).ok().prints(&id);
    let other = plant(&bench, 2, State::Confirmed, days_ago(1));
    bench.run(&["show", &id, &other]).ok().prints(&other);
    // One that was never there.
    bench
        .run(&["show", "00000000-0000-4000-8000-000000000000"])
        .code(66)
        .says("there is no item");
}

#[test]
fn a_beginning_that_several_pruned_items_share_names_them() {
    let bench = shop();
    let at = days_ago(20);
    let one = plant(&bench, 1, State::Confirmed, at);
    let two = plant(&bench, 2, State::Confirmed, at);
    bench.run(&["prune"]).ok();
    bench
        .run(&["show", &one[..12]])
        .code(2)
        .says(&one)
        .says(&two);
}

#[test]
fn whoever_wants_to_change_a_pruned_item_is_told_that_it_is_gone() {
    let bench = shop();
    let id = plant(&bench, 1, State::Failed, days_ago(200));
    bench.run(&["prune"]).ok();
    for command in [
        &["retry"][..],
        &["release"],
        &["cancel"],
        &["hold"],
        &["resolve", "--failed"],
    ] {
        for more in [&[][..], &["--dry-run"]] {
            let words = [command, &[id.as_str()], more].concat();
            bench
                .run(&words)
                .code(66)
                .says(&id)
                .says("was failed and was pruned on");
        }
        let words = [&["--json"], command, &[id.as_str()]].concat();
        let ran = bench.run(&words).code(66).says("was pruned on");
        assert_eq!(ran.json()["missing"][0], id.as_str());
    }
}

#[test]
fn a_tick_prunes_when_it_has_time_and_counts_it() {
    let bench = shop();
    let old = plant(&bench, 1, State::Confirmed, days_ago(20));
    let line = bench.tick();
    assert_eq!(line["pruned"], 1, "{line}");
    assert!(!is_there(&bench, &old));
    bench.run(&["show", &old]).ok().prints("pruned");
    assert_eq!(bench.tick()["pruned"], 0);

    // Not when it was told to stop.
    let old = plant(&bench, 2, State::Confirmed, days_ago(20));
    let line = bench.json(&["tick", "--max-runtime", "0s"]);
    assert_eq!(
        (&line["pruned"], &line["stopped_by"]),
        (&0.into(), &"max_runtime".into())
    );
    assert!(is_there(&bench, &old));
    bench.run(&["tick", "-v"]).ok().prints("1 pruned");
}

#[test]
fn one_tick_prunes_a_bounded_number() {
    let bench = Bench::new();
    // However slow the disk is.
    bench.configure("[tick]\nmax_runtime = \"1h\"\n", &[("shop", NOWHERE, "")]);
    for n in 0..5_010 {
        plant(&bench, n, State::Confirmed, days_ago(20));
    }
    assert_eq!(bench.tick()["pruned"], 5_000);
    assert_eq!(bench.tick()["pruned"], 10);
}

#[test]
fn a_clock_that_cannot_be_trusted_prunes_nothing() {
    let bench = shop();
    let old = plant(&bench, 1, State::Confirmed, days_ago(20));
    let later = now().plus(DAY_MS);
    bench.write_tick_line(&later.day_name(), &later.to_string());
    bench
        .run(&["prune", "--dry-run"])
        .ok()
        .says("nothing would be pruned");
    let ran = bench
        .run(&["--json", "prune"])
        .code(1)
        .says("nothing was pruned");
    assert_eq!(ran.json()["pruned"], 0);
    assert_eq!(bench.tick()["pruned"], 0);
    assert!(is_there(&bench, &old));
    // That tick's end makes the clock count again.
    assert_eq!(bench.tick()["pruned"], 1);
    assert!(!is_there(&bench, &old));
}

#[test]
fn prune_waits_for_a_running_tick_and_says_who_it_is() {
    let bench = shop();
    let lock = bench.hold_lock("tick, process 4711");
    bench.run(&["prune", "--wait", "0"]).code(75).says("4711");
    bench.run(&["prune", "--dry-run", "--wait", "0"]).ok();
    drop(lock);
    bench.run(&["prune", "--wait", "0"]).ok();
}

#[test]
fn what_cannot_be_pruned_is_said_and_costs_the_others_nothing() {
    let bench = shop();
    let old = plant(&bench, 1, State::Confirmed, days_ago(20));
    let damaged = plant(&bench, 2, State::Confirmed, days_ago(20));
    let path = bench.spool().join(bench.place(&damaged));
    fs::write(&path, "no item\n").unwrap();
    let strange = path.with_file_name("notes.txt");
    fs::write(&strange, "mine").unwrap();
    bench
        .run(&["prune"])
        .ok()
        .prints("1 item pruned")
        .says(&format!("corrupt/{damaged}.jsonl"))
        .says("notes.txt");
    assert!(!is_there(&bench, &old) && strange.exists());
    bench.run(&["prune"]).ok().prints("0 items pruned");
}
