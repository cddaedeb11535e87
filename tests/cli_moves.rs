//! `hold`, `release`, `cancel`, `retry`, `resolve` on items: every legal move and every refusal.
//!
//! CONTRACT 2 and 5.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/bench.rs"]
mod bench;
mod support;

use bench::{Bench, KEYED, Ran, assert_fields, day_of, minute_of};
use serde_json::{Value, json};
use support::{Receiver, Reply};

const NOWHERE: &str = "http://127.0.0.1:9";

/// The states as rows of the tables below.
const STATES: [&str; 5] = ["pending", "unknown", "held", "confirmed", "failed"];

fn receiver() -> Receiver {
    Receiver::by_path([
        ("/unknown", vec![Reply::reset()]),
        ("/failed", vec![Reply::status(422)]),
    ])
}

/// A spool with one item in each state; the ids are in the order of [`STATES`].
fn in_every_state(receiver: &Receiver) -> (Bench, [String; 5]) {
    let bench = Bench::with(&[("shop", &receiver.url(), "")]);
    let enqueue = |path: &str| bench.enqueue("shop", &["--data", "x", "--path", path]);
    let unknown = enqueue("/unknown");
    let confirmed = enqueue("/confirmed");
    let failed = enqueue("/failed");
    bench.run(&["tick"]).ok();
    let held = enqueue("/held");
    bench.run(&["hold", &held]).ok();
    let pending = enqueue("/pending");
    (bench, [pending, unknown, held, confirmed, failed])
}

fn me() -> String {
    format!("({})", rustix::process::getuid().as_raw())
}

/// Does it, and checks the event and the place.
#[track_caller]
fn moved(bench: &Bench, words: &[&str], id: &str, event: &str, place: &str) -> Value {
    let mut all = words.to_vec();
    all.extend([id, "--note", "because of a test"]);
    let ran = bench.run(&all).ok();
    assert_eq!(ran.stdout, format!("{id}\n"), "it prints which");
    assert!(ran.stderr.contains("1 item"), "it says how many: {ran:#?}");
    let last = bench.last_event(id);
    assert_eq!(last["event"], event, "{last:#}");
    assert_eq!(last["note"], "because of a test");
    let by = last["by"].as_str().unwrap();
    assert!(by.ends_with(&me()), "{by}");
    let place = place.replace("DAY", &day_of(&last["at"]));
    assert_eq!(bench.place(id), format!("{place}/{id}.jsonl"));
    let state = place.split('/').next().unwrap();
    assert_eq!(last["state"], state);
    assert_eq!(bench.show(id)["state"], state);
    last
}

/// Tries it, and checks that nothing changed.
#[track_caller]
fn refused(bench: &Bench, words: &[&str], id: &str) -> Ran {
    let mut all = words.to_vec();
    all.push(id);
    let before = bench.item(id);
    let place = bench.place(id);
    let ran = bench.run(&all).code(1).prints_nothing();
    assert_eq!(bench.item(id), before);
    assert_eq!(bench.place(id), place);
    assert!(ran.stderr.contains(id), "{ran:#?}");
    ran
}

#[test]
fn hold_from_every_state() {
    let receiver = receiver();
    let (bench, [pending, unknown, held, confirmed, failed]) = in_every_state(&receiver);
    let last = moved(&bench, &["hold"], &pending, "held", "held/shop");
    assert_eq!(last["reason"], "operator");
    moved(&bench, &["hold"], &unknown, "held", "unknown/shop/parked");
    moved(&bench, &["hold"], &held, "held", "held/shop");
    refused(&bench, &["hold"], &confirmed).says("it is confirmed");
    refused(&bench, &["hold"], &failed).says("it is failed");
}

#[test]
fn hold_parks_what_would_be_sent_again() {
    let receiver = receiver();
    let bench = Bench::with(&[("shop", &receiver.url(), KEYED)]);
    let id = bench.enqueue("shop", &["--data", "x", "--path", "/unknown"]);
    bench.run(&["tick"]).ok();
    assert!(bench.place(&id).starts_with("unknown/shop/20"));
    moved(&bench, &["hold"], &id, "held", "unknown/shop/parked");
    assert_eq!(bench.list(&["--state", "unknown"])[0]["parked"], true);
    bench.run(&["tick"]).ok();
    assert_eq!(receiver.arrivals().len(), 1);
}

#[test]
fn release_from_every_state() {
    let receiver = receiver();
    let (bench, [pending, unknown, held, confirmed, failed]) = in_every_state(&receiver);
    refused(&bench, &["release"], &pending).says("it is pending");
    refused(&bench, &["release"], &unknown).says("tickpost resolve");
    refused(&bench, &["release"], &confirmed);
    refused(&bench, &["release"], &failed);
    moved(&bench, &["release"], &held, "released", "pending/shop");
    bench.run(&["tick"]).ok();
    assert!(bench.place(&held).starts_with("confirmed/"));
}

#[test]
fn cancel_from_every_state() {
    let receiver = receiver();
    let (bench, [pending, unknown, held, confirmed, failed]) = in_every_state(&receiver);
    refused(&bench, &["cancel"], &unknown).says("tickpost resolve");
    refused(&bench, &["cancel"], &confirmed);
    refused(&bench, &["cancel"], &failed);
    for id in [&pending, &held] {
        let last = moved(&bench, &["cancel"], id, "cancelled", "failed/shop/DAY");
        assert_eq!(last["reason"], "cancelled");
    }
    let before = receiver.arrivals().len();
    bench.run(&["tick"]).ok();
    assert_eq!(receiver.arrivals().len(), before);
}

#[test]
fn retry_from_every_state() {
    let receiver = receiver();
    let (bench, [pending, unknown, held, confirmed, failed]) = in_every_state(&receiver);
    refused(&bench, &["retry"], &pending).says("it is pending");
    refused(&bench, &["retry"], &unknown).says("tickpost resolve");
    refused(&bench, &["retry"], &held).says("it is held");
    refused(&bench, &["retry"], &confirmed).says("it is confirmed");
    moved(&bench, &["retry"], &failed, "retried", "pending/shop");
    assert_eq!(
        bench
            .list(&["--state", "pending"])
            .iter()
            .filter(|row| row["request_id"] == *failed)
            .count(),
        1
    );
    bench.run(&["tick"]).ok();
    assert!(bench.place(&failed).starts_with("confirmed/"));
    assert_eq!(
        bench.last_event(&failed)["n"],
        2,
        "attempts keep their numbers"
    );
}

#[test]
fn resolve_from_every_state() {
    let receiver = receiver();
    let (bench, [pending, unknown, held, confirmed, failed]) = in_every_state(&receiver);
    for id in [&pending, &held, &confirmed, &failed] {
        for word in ["--confirmed", "--failed", "--resend"] {
            refused(&bench, &["resolve", word], id).says("which this does not apply to");
        }
    }
    let last = moved(
        &bench,
        &["resolve", "--confirmed"],
        &unknown,
        "resolved",
        "confirmed/shop/DAY",
    );
    assert_eq!(last["reason"], "operator");
}

#[test]
fn resolve_as_failed_and_then_retry() {
    let receiver = receiver();
    let (bench, [_, unknown, ..]) = in_every_state(&receiver);
    moved(
        &bench,
        &["resolve", "--failed"],
        &unknown,
        "resolved",
        "failed/shop/DAY",
    );
    moved(&bench, &["retry"], &unknown, "retried", "pending/shop");
}

#[test]
fn resolve_as_resend_sends_it_again() {
    let receiver = receiver();
    let (bench, [_, unknown, ..]) = in_every_state(&receiver);
    moved(
        &bench,
        &["resolve", "--resend"],
        &unknown,
        "resolved",
        "pending/shop",
    );
    bench.run(&["tick"]).ok();
    assert!(bench.place(&unknown).starts_with("confirmed/"));
}

#[test]
fn resolve_needs_exactly_one_answer() {
    let receiver = receiver();
    let (bench, [_, unknown, ..]) = in_every_state(&receiver);
    bench.run(&["resolve", &unknown]).code(2);
    bench
        .run(&["resolve", "--confirmed", "--failed", &unknown])
        .code(2);
    assert!(bench.place(&unknown).starts_with("unknown/"));
}

#[test]
fn items_must_be_named_and_not_in_two_ways() {
    let receiver = receiver();
    let (bench, ids) = in_every_state(&receiver);
    let before = bench.tree();
    for command in [
        &["hold"][..],
        &["release"],
        &["cancel"],
        &["retry"],
        &["resolve", "--failed"],
    ] {
        let with = |more: &[&'static str]| [command, more].concat();
        bench.run(&with(&[])).code(2).says("ids");
        for filter in [["--state", "held"], ["--destination", "shop"]] {
            let all = [command, &[ids[0].as_str()], &filter].concat();
            bench.run(&all).code(2).says("not both");
        }
        bench.run(&with(&["xyz"])).code(2);
        bench.run(&with(&["--nonsense"])).code(2);
        bench.run(&with(&["ffffffff"])).code(66).says("ffffffff");
        bench
            .run(&with(&["--destination", "shop", "--state", "lost"]))
            .code(2);
    }
    let items = |mut tree: std::collections::BTreeMap<String, bench::Entry>| {
        tree.retain(|path, entry| entry.kind == "file" && path != "lock");
        tree
    };
    assert_eq!(items(bench.tree()), items(before));
}

#[test]
fn an_ambiguous_prefix_is_2_and_moves_nothing() {
    let bench = Bench::with(&[("shop", NOWHERE, "")]);
    let ids: Vec<String> = (0..2)
        .map(|_| bench.enqueue("shop", &["--data", "x"]))
        .collect();
    bench
        .run(&["cancel", &ids[0][..4]])
        .code(2)
        .says("2 request ids");
    assert_eq!(bench.list(&["--state", "pending"]).len(), 2);
    let unique = &ids[0][..ids[0].len() - 1];
    bench.run(&["cancel", unique]).ok();
    assert_eq!(bench.list_ids(&["--state", "pending"]), ids[1..]);
}

#[test]
fn filters_choose_and_pass_over_what_the_move_does_not_apply_to() {
    let receiver = receiver();
    let (bench, [pending, _, held, ..]) = in_every_state(&receiver);
    let more = ["--data", "x", "--label", "team=a"];
    let ours = bench.enqueue("shop", &more);
    bench
        .run(&["cancel", "--label", "team=a"])
        .ok()
        .prints(&ours);
    assert!(bench.place(&ours).starts_with("failed/"));
    let ran = bench
        .run(&[
            "cancel", "--since", "1h", "--state", "pending", "--state", "held",
        ])
        .ok();
    assert_eq!(ran.stdout, format!("{held}\n{pending}\n"));
    let none = bench
        .run(&["cancel", "--state", "held"])
        .ok()
        .prints_nothing();
    none.says("0 items");
}

#[test]
fn a_filter_that_meets_maybe_acted_items_says_so() {
    let receiver = receiver();
    let (bench, [_, unknown, ..]) = in_every_state(&receiver);
    let ran = bench
        .run(&["cancel", "--state", "unknown"])
        .code(1)
        .prints_nothing();
    ran.says(&unknown).says("tickpost resolve");
}

#[test]
fn cancel_of_a_whole_destination_by_filter_is_of_its_items() {
    let bench = Bench::with(&[("shop", NOWHERE, ""), ("other", NOWHERE, "")]);
    let ours = bench.enqueue("shop", &["--data", "x"]);
    let theirs = bench.enqueue("other", &["--data", "x"]);
    bench
        .run(&["cancel", "--destination", "shop"])
        .ok()
        .prints(&ours);
    assert!(bench.place(&theirs).starts_with("pending/"));
}

#[test]
fn ids_come_from_standard_input_too() {
    let bench = Bench::with(&[("shop", NOWHERE, "")]);
    let ids: Vec<String> = (0..3)
        .map(|_| bench.enqueue("shop", &["--data", "x"]))
        .collect();
    let input = format!("{}\n{}\n", ids[0], ids[2]);
    let ran = bench.call(&["cancel", "-"]).stdin(input).run().ok();
    assert_eq!(ran.stdout, format!("{}\n{}\n", ids[0], ids[2]));
    assert_eq!(bench.list_ids(&["--state", "pending"]), [ids[1].clone()]);
    // Nothing on standard input is nothing to do.
    bench.run(&["cancel", "-"]).ok().prints_nothing();
}

#[test]
fn one_that_is_missing_costs_the_others_nothing() {
    let bench = Bench::with(&[("shop", NOWHERE, "")]);
    let id = bench.enqueue("shop", &["--data", "x"]);
    let ran = bench
        .run(&["cancel", "01a228af-9284-74bb-b250-40eff85f347b", &id])
        .code(1);
    ran.prints(&id).says("01a228af");
    assert!(bench.place(&id).starts_with("failed/"));
}

#[test]
fn the_same_id_twice_is_moved_once() {
    let bench = Bench::with(&[("shop", NOWHERE, "")]);
    let id = bench.enqueue("shop", &["--data", "x"]);
    let ran = bench.run(&["cancel", &id, &id]).ok();
    assert_eq!(ran.stdout, format!("{id}\n"));
    assert_eq!(bench.item(&id).len(), 3);
    let ran = bench.run(&["retry", "--new-id", &id, &id]).ok();
    assert_eq!(ran.stdout.lines().count(), 1);
    assert_eq!(bench.list(&["--state", "pending"]).len(), 1);
}

#[test]
fn a_dry_run_changes_nothing_and_tells_the_same() {
    let receiver = receiver();
    let (bench, [pending, unknown, held, _, failed]) = in_every_state(&receiver);
    let before = bench.tree();
    for (words, id) in [
        (&["hold"][..], &pending),
        (&["release"], &held),
        (&["cancel"], &held),
        (&["retry"], &failed),
        (&["retry", "--new-id"], &failed),
        (&["resolve", "--confirmed"], &unknown),
    ] {
        let ran = bench.run(&[words, &["--dry-run", id]].concat()).ok();
        ran.prints(id).says("would be");
        bench
            .run(&[words, &["--dry-run", "ffffffff"]].concat())
            .code(66);
    }
    bench
        .run(&["cancel", "--dry-run", &unknown])
        .code(1)
        .says("tickpost resolve");
    bench
        .run(&["hold", "--dry-run", "--destination", "shop"])
        .ok()
        .prints("would be held");
    bench
        .run(&["release", "--dry-run", "--destination", "shop"])
        .ok();
    assert_eq!(bench.tree(), before);
    // It takes no lock.
    let lock = bench.hold_lock("somebody");
    bench.run(&["cancel", "--dry-run", &held]).ok();
    drop(lock);
}

#[test]
fn json_tells_what_moved_what_was_refused_and_what_is_missing() {
    let receiver = receiver();
    let (bench, [pending, unknown, ..]) = in_every_state(&receiver);
    let missing = "01a228af-9284-74bb-b250-40eff85f347b";
    let ran = bench
        .run(&["--json", "cancel", &pending, &unknown, missing])
        .code(1);
    let said = ran.json();
    assert_fields(
        &said,
        "moved request_ids new refused missing unread dry_run",
    );
    assert_eq!(said["moved"], 1);
    assert_eq!(said["request_ids"], json!([pending]));
    assert_eq!(said["refused"][0]["request_id"], *unknown);
    assert!(
        said["refused"][0]["why"]
            .as_str()
            .unwrap()
            .contains("resolve")
    );
    assert_eq!(said["missing"], json!([missing]));
    assert_eq!(said["dry_run"], false);
}

#[test]
fn a_busy_lock_is_75_and_says_who_has_it() {
    let receiver = receiver();
    let (bench, ids) = in_every_state(&receiver);
    let held = bench.hold_lock("tick of this test, process 7");
    let before = bench.tree();
    for (index, words) in [
        &["hold", "--wait", "0"][..],
        &["resolve", "--failed", "--wait", "0"],
        &["release", "--wait", "0"],
        &["cancel", "--wait", "0"],
        &["retry", "--wait", "1"],
    ]
    .iter()
    .enumerate()
    {
        let all = [words, &[ids[index].as_str()][..]].concat();
        bench
            .run(&all)
            .code(75)
            .says("tick of this test, process 7")
            .prints_nothing();
    }
    assert_eq!(bench.tree(), before);
    let waiting = bench.call(&["cancel", &ids[0]]).start();
    drop(held);
    waiting.end().ok();
    assert!(bench.place(&ids[0]).starts_with("failed/"));
}

#[test]
fn hold_until_a_time_is_filed_by_it_and_ends_by_itself() {
    let receiver = receiver();
    let bench = Bench::with(&[("shop", &receiver.url(), "")]);
    let id = bench.enqueue("shop", &["--data", "x"]);
    bench.run(&["hold", &id, "--release-at", "+3h"]).ok();
    let last = bench.last_event(&id);
    let minute = minute_of(&last["due"]);
    assert_eq!(bench.place(&id), format!("held/shop/{minute}/{id}.jsonl"));
    bench.run(&["tick"]).ok();
    assert!(bench.place(&id).starts_with("held/"));
    assert!(
        bench.show(&id)["next"]
            .as_str()
            .unwrap()
            .contains("by itself at")
    );
    // Held anew for a moment that is over when the next tick begins.
    bench.run(&["hold", &id, "--release-at", "+1ms"]).ok();
    let released = (0..100).any(|_| bench.tick()["released"] == 1);
    assert!(released, "the next tick after its time releases it");
    assert!(bench.place(&id).starts_with("confirmed/"));
    let events: Vec<Value> = bench
        .item(&id)
        .into_iter()
        .skip(1)
        .map(|event| event["event"].clone())
        .collect();
    assert_eq!(events, ["accepted", "held", "held", "released", "attempt"]);
}

#[test]
fn a_hold_until_a_time_that_is_over_is_refused() {
    let bench = Bench::with(&[("shop", NOWHERE, "")]);
    let id = bench.enqueue("shop", &["--data", "x"]);
    for time in ["2020-01-01", "2020-01-01T00:00:00Z", "now"] {
        bench
            .run(&["hold", &id, "--release-at", time])
            .code(65)
            .says("--release-at");
    }
    for time in ["soon", "", "10"] {
        bench
            .run(&["hold", &id, "--release-at", time])
            .code(2)
            .says("time");
    }
    assert!(bench.place(&id).starts_with("pending/"));
}

#[test]
fn retry_with_a_new_id_leaves_the_old_and_links_the_new() {
    let receiver = receiver();
    let bench = Bench::with(&[("shop", &receiver.url(), KEYED)]);
    let options = [
        "--data", "x", "--path", "/failed", "--thread", "t", "--label", "a=b",
    ];
    let old = bench.enqueue("shop", &options);
    bench.run(&["tick"]).ok();
    let before = bench.item(&old);
    let said = bench.json(&["retry", "--new-id", &old, "--note", "again"]);
    assert_eq!(said["new"][0]["retry_of"], *old);
    let new = said["new"][0]["request_id"].as_str().unwrap().to_owned();
    assert_ne!(new, old);
    assert_eq!(bench.item(&old), before);
    assert!(bench.place(&old).starts_with("failed/"));
    let [envelope, accepted] = &bench.item(&new)[..] else {
        panic!("two lines");
    };
    assert_eq!(envelope["retry_of"], *old);
    assert_eq!(envelope["request"], before[0]["request"]);
    assert_eq!(envelope["requester"], before[0]["requester"]);
    assert_eq!(envelope["labels"], before[0]["labels"]);
    assert_eq!(accepted["note"], "again");
    bench.run(&["tick"]).ok();
    let arrivals = receiver.arrivals();
    assert_eq!(arrivals[1].header("idempotency-key"), Some(new.as_str()));
    bench.run(&["retry", "--new-id", &new]).code(1);
    let printed = bench.run(&["retry", "--new-id", &old]).ok();
    // Results alone: `id=$(tickpost retry --new-id ID)` must work.
    assert_ne!(printed.id(), old);
    printed.says(&old);
}

/// A spool with an item that was being sent when the tick was killed, or did not wait for it.
fn interrupted(receiver: &Receiver, kill: bool) -> (Bench, String) {
    let bench = Bench::new();
    bench.configure("[tick]\ngrace = \"1ms\"", &[("shop", &receiver.url(), "")]);
    let id = bench.enqueue("shop", &["--data", "x"]);
    let running = bench.call(&["tick"]).start();
    receiver.wait_for(1);
    if kill {
        running.kill();
    } else {
        running.terminate();
    }
    running.end();
    assert_eq!(bench.place(&id), format!("unknown/shop/{id}.1.jsonl"));
    (bench, id)
}

#[test]
fn what_was_being_sent_may_have_been_acted_on_before_a_tick_says_so() {
    for kill in [false, true] {
        let receiver = Receiver::start(vec![Reply::silent()]);
        let (bench, id) = interrupted(&receiver, kill);
        for command in ["cancel", "release", "retry"] {
            bench
                .run(&[command, "--dry-run", &id])
                .code(1)
                .says("tickpost resolve");
            bench
                .run(&[command, "--destination", "shop", "--since", "1h"])
                .code(1)
                .says(&id);
            refused(&bench, &[command], &id).says("tickpost resolve");
        }
        moved(&bench, &["hold"], &id, "held", "unknown/shop/parked");
        refused(&bench, &["cancel"], &id).says("tickpost resolve");
        bench.run(&["tick"]).ok();
        assert_eq!(receiver.arrivals().len(), 1, "no blind repeat");
    }
}

#[test]
fn what_was_being_sent_can_be_resolved_before_a_tick_says_so() {
    let receiver = Receiver::start(vec![Reply::silent()]);
    let (bench, id) = interrupted(&receiver, true);
    moved(
        &bench,
        &["resolve", "--confirmed"],
        &id,
        "resolved",
        "confirmed/shop/DAY",
    );
    let receiver = Receiver::start(vec![Reply::silent()]);
    let (bench, id) = interrupted(&receiver, true);
    moved(
        &bench,
        &["resolve", "--resend"],
        &id,
        "resolved",
        "pending/shop",
    );
    bench.run(&["tick"]).ok();
    assert!(bench.place(&id).starts_with("confirmed/"));
}

#[test]
fn a_wait_of_any_length_is_taken() {
    let bench = Bench::with(&[("shop", NOWHERE, "")]);
    let id = bench.enqueue("shop", &["--data", "x"]);
    let longest = u64::MAX.to_string();
    bench.run(&["cancel", "--wait", &longest, &id]).ok();
    bench.run(&["tick", "--wait", &longest]).ok();
    bench.run(&["cancel", "--wait", "-1", &id]).code(2);
    bench.run(&["cancel", "--wait", "1s", &id]).code(2);
}

#[test]
fn a_hold_does_not_outrun_the_time_before_which_it_is_not_sent() {
    let receiver = Receiver::start(vec![]);
    let bench = Bench::with(&[("shop", &receiver.url(), "")]);
    let id = bench.enqueue("shop", &["--data", "x", "--not-before", "+1h"]);
    bench.run(&["hold", &id]).ok();
    bench.run(&["release", &id]).ok();
    bench.run(&["tick"]).ok();
    assert!(bench.place(&id).starts_with("pending/shop/20"));
    assert_eq!(receiver.arrivals().len(), 0);
}

#[test]
fn attempts_count_anew_after_release_and_retry() {
    let receiver = Receiver::start(vec![Reply::status(422)]);
    let bench = Bench::with(&[("shop", &receiver.url(), "")]);
    let id = bench.enqueue("shop", &["--data", "x"]);
    bench.run(&["tick"]).ok();
    assert_eq!(bench.list(&[])[0]["attempts"], 1);
    bench.run(&["retry", &id]).ok();
    assert_eq!(bench.list(&[])[0]["attempts"], 0);
}

#[test]
fn hold_and_cancel_tell_the_requester() {
    let bench = Bench::with(&[("shop", NOWHERE, ""), ("ops", NOWHERE, "")]);
    for (command, reason) in [("hold", "operator"), ("cancel", "cancelled")] {
        let before = bench.list_ids(&["--destination", "ops"]).len();
        let id = bench.enqueue("shop", &["--data", "x", "--notify", "ops"]);
        bench.run(&[command, &id]).ok();
        let notices = bench.list_ids(&["--destination", "ops"]);
        assert_eq!(notices.len(), before + 1, "{command}");
        let notice = bench.item(notices.last().unwrap()).remove(0);
        assert_eq!(notice["notice"], true);
        let text = notice["request"]["body"]["text"].as_str().unwrap();
        assert!(text.contains(&id) && text.contains(reason), "{text}");
    }
}

#[test]
fn the_states_of_the_tables_are_the_states() {
    let receiver = receiver();
    let (bench, ids) = in_every_state(&receiver);
    for (state, id) in STATES.iter().zip(&ids) {
        assert!(bench.place(id).starts_with(state), "{state}");
    }
}

/// Whoever releases an item must hear that it does not go yet.
#[test]
fn what_is_released_to_a_suspended_destination_says_so() {
    let receiver = Receiver::start(vec![Reply::status(401)]);
    let bench = Bench::with(&[("shop", &receiver.url(), KEYED)]);
    let id = bench.enqueue("shop", &["--data", "x"]);
    bench.tick();
    bench
        .run(&["release", &id])
        .ok()
        .says("destination `shop` is suspended until")
        .says("tickpost release --destination shop");
    bench.run(&["release", "--destination", "shop"]).ok();
    bench.tick();
    assert_eq!(receiver.arrivals().len(), 2);
}
