//! `hold` and `release` of a whole destination: without the lock, and within a running tick.
//!
//! CONTRACT 3 (`destinations/`) and 5.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/bench.rs"]
mod bench;
mod support;

use bench::{Bench, KEYED, assert_fields, assert_time};
use support::{Receiver, Reply};

const HOLD: &str = "destinations/shop.hold.json";

#[test]
fn a_hold_is_a_file_and_keeps_everything_back() {
    let receiver = Receiver::start(vec![]);
    let url = receiver.url();
    let bench = Bench::with(&[("shop", &url, ""), ("other", &url, "")]);
    let id = bench.enqueue("shop", &["--data", "x"]);
    let theirs = bench.enqueue("other", &["--data", "x"]);
    let ran = bench
        .run(&["hold", "--destination", "shop", "--note", "moving"])
        .ok();
    ran.prints("shop");
    let hold = bench.read_json(HOLD);
    assert_fields(&hold, "at by note");
    assert_time(&hold["at"]);
    assert_eq!(hold["note"], "moving");
    let uid = rustix::process::getuid().as_raw();
    assert!(hold["by"].as_str().unwrap().ends_with(&format!("({uid})")));
    assert_eq!(bench.tick()["attempts"], 1);
    assert!(bench.place(&theirs).starts_with("confirmed/"));
    // The items are not touched: it is the destination that is held.
    assert_eq!(bench.item(&id).len(), 2);
    assert_eq!(bench.list(&["--state", "held"]).len(), 0);
    // A note is not needed, and a second hold is no failure.
    bench.run(&["hold", "--destination", "shop"]).ok();
    bench
        .run(&["release", "--destination", "shop"])
        .ok()
        .prints("shop");
    assert!(bench.files(HOLD).is_empty());
    assert_eq!(bench.tick()["attempts"], 1);
    assert!(bench.place(&id).starts_with("confirmed/"));
    bench.run(&["release", "--destination", "shop"]).ok();
}

#[test]
fn json_says_what_was_done() {
    let bench = Bench::with(&[("shop", "http://127.0.0.1:9", "")]);
    let said = bench.json(&["hold", "--destination", "shop"]);
    assert_eq!(said["destination"], "shop");
    assert_eq!(said["done"], "held");
    let said = bench.json(&["release", "--destination", "shop"]);
    assert_eq!(said["done"], "resumed");
}

#[test]
fn it_needs_no_lock() {
    let bench = Bench::with(&[("shop", "http://127.0.0.1:9", "")]);
    let lock = bench.hold_lock("somebody");
    bench
        .run(&["hold", "--destination", "shop", "--wait", "0"])
        .ok();
    assert_eq!(bench.files(HOLD).len(), 1);
    bench
        .run(&["release", "--destination", "shop", "--wait", "0"])
        .ok();
    assert!(bench.files(HOLD).is_empty());
    drop(lock);
}

#[test]
fn it_takes_effect_within_a_running_tick() {
    let receiver = Receiver::start(vec![Reply::silent()]);
    let bench = Bench::with(&[("shop", &receiver.url(), "concurrency = 1")]);
    let first = bench.enqueue("shop", &["--data", "1"]);
    let second = bench.enqueue("shop", &["--data", "2"]);
    let running = bench.call(&["--json", "tick"]).start();
    receiver.wait_for(1);
    bench.run(&["hold", "--destination", "shop"]).ok();
    // It ends the connection of the first, which makes way for the second.
    drop(receiver);
    let said = running.end().ok().json();
    assert_eq!(said["attempts"], 1, "{said:#}");
    // What is in flight ends as it ends.
    assert!(bench.place(&first).starts_with("unknown/shop/parked/"));
    assert_eq!(bench.place(&second), format!("pending/shop/{second}.jsonl"));
}

#[test]
fn release_ends_a_suspension_too() {
    let receiver = Receiver::start(vec![Reply::status(429).header("retry-after", "3000")]);
    let bench = Bench::with(&[("shop", &receiver.url(), "")]);
    bench.enqueue("shop", &["--data", "x"]);
    bench.run(&["tick"]).ok();
    let next = bench.enqueue("shop", &["--data", "x"]);
    assert_eq!(bench.tick()["attempts"], 0);
    bench.run(&["release", "--destination", "shop"]).ok();
    let status = bench.json(&["status"]);
    assert!(status["destinations"]["shop"]["suspended"].is_null());
    assert_eq!(bench.tick()["attempts"], 1);
    assert!(bench.place(&next).starts_with("confirmed/"));
}

#[test]
fn release_of_a_suspension_waits_for_the_lock_that_is_needed_then() {
    let receiver = Receiver::start(vec![Reply::status(401)]);
    let bench = Bench::with(&[("shop", &receiver.url(), "")]);
    bench.enqueue("shop", &["--data", "x"]);
    bench.run(&["tick"]).ok();
    let lock = bench.hold_lock("tick of this test");
    let words = ["release", "--destination", "shop", "--wait", "0"];
    bench.run(&words).code(75).says("tick of this test");
    drop(lock);
    bench.run(&words).ok();
    assert!(bench.json(&["status"])["destinations"]["shop"]["suspended"].is_null());
}

#[test]
fn with_another_filter_it_is_the_items_that_are_held() {
    let bench = Bench::with(&[("shop", "http://127.0.0.1:9", "")]);
    let id = bench.enqueue("shop", &["--data", "x"]);
    bench
        .run(&["hold", "--destination", "shop", "--state", "pending"])
        .ok()
        .prints(&id);
    assert_eq!(bench.place(&id), format!("held/shop/{id}.jsonl"));
    assert!(bench.files(HOLD).is_empty());
}

#[test]
fn what_is_no_destination_is_65_and_a_time_is_for_items() {
    let bench = Bench::with(&[("shop", "http://127.0.0.1:9", KEYED)]);
    let before = bench.tree();
    for command in ["hold", "release"] {
        bench
            .run(&[command, "--destination", "shpo"])
            .code(65)
            .says("did you mean `shop`?");
        bench.run(&[command, "--destination", "../shop"]).code(65);
    }
    let words = ["hold", "--destination", "shop", "--release-at", "+1h"];
    bench.run(&words).code(2).says("--release-at is for items");
    assert_eq!(bench.tree(), before);
}

#[test]
fn a_destination_that_is_gone_from_the_configuration_can_be_resumed() {
    let bench = Bench::with(&[("shop", "http://127.0.0.1:9", "")]);
    bench.enqueue("shop", &["--data", "x"]);
    bench.run(&["hold", "--destination", "shop"]).ok();
    bench.configure("", &[]);
    bench.run(&["release", "--destination", "shop"]).ok();
    assert!(bench.files(HOLD).is_empty());
}

#[test]
fn a_damaged_hold_is_a_hold() {
    let receiver = Receiver::start(vec![]);
    let bench = Bench::with(&[("shop", &receiver.url(), "")]);
    bench.enqueue("shop", &["--data", "x"]);
    std::fs::write(bench.spool().join(HOLD), "").unwrap();
    assert_eq!(bench.tick()["attempts"], 0);
    assert_eq!(
        bench.json(&["status"])["destinations"]["shop"]["operator_hold"],
        true
    );
}
