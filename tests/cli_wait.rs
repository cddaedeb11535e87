//! `wait`: what a script gets that wants to know how an item ends.
//!
//! CONTRACT 5.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod support;

#[path = "support/bench.rs"]
mod bench;

use std::fs;
use std::io::{BufRead as _, BufReader};

use bench::{Bench, KEYED, Ran, assert_fields};
use support::{Receiver, Reply, closed_port};

/// Longer than any test takes; it is there only to fail.
const LONG: &str = "60s";

/// An item that has ended: its line says that the waiting has begun.
fn cancelled(bench: &Bench) -> String {
    let id = bench.enqueue("shop", &["--data", "x"]);
    bench.run(&["cancel", &id]).ok();
    id
}

#[test]
fn it_ends_when_a_tick_has_confirmed_the_item() {
    let receiver = Receiver::start(vec![Reply::ok()]);
    let bench = Bench::with(&[("shop", &receiver.url(), KEYED)]);
    let id = bench.enqueue("shop", &["--data", "x"]);
    let mut waits = bench.call(&["wait", &id, "--timeout", LONG]).start();
    assert!(waits.runs());
    bench.run(&["tick"]).ok();
    let ran = waits.end().ok();
    assert_eq!(ran.stdout, format!("{id} confirmed accepted\n"));
    assert_eq!(ran.stderr, "", "nothing but the result, in a pipe");
    // What has ended needs no tick.
    let again = bench.run(&["wait", &id[..20], "--timeout", LONG]).ok();
    assert_eq!(again.stdout, ran.stdout);
}

#[test]
fn each_item_is_told_of_as_it_ends() {
    let receiver = Receiver::start(vec![Reply::ok()]);
    let bench = Bench::with(&[("shop", &receiver.url(), KEYED)]);
    let first = bench.enqueue("shop", &["--data", "x"]);
    let late = bench.enqueue("shop", &["--data", "x", "--not-before", "1h"]);
    let mut waits = bench
        .call(&["wait", &late, &first, "--timeout", LONG])
        .start();
    let mut lines = BufReader::new(waits.take_stdout()).lines();
    bench.run(&["tick"]).ok();
    let line = lines.next().unwrap().unwrap();
    assert_eq!(line, format!("{first} confirmed accepted"));
    assert!(waits.runs(), "the other one is still open");
    bench.run(&["cancel", &late]).ok();
    let line = lines.next().unwrap().unwrap();
    assert_eq!(line, format!("{late} failed cancelled"));
    waits.end().code(1).says("1 item was not confirmed");
}

#[test]
fn failed_held_and_parked_are_1() {
    let replies = vec![Reply::status(400), Reply::status(403), Reply::close()];
    let receiver = Receiver::start(replies);
    let bench = Bench::with(&[("shop", &receiver.url(), "concurrency = 1")]);
    let ids: Vec<String> = (0..3)
        .map(|_| bench.enqueue("shop", &["--data", "x"]))
        .collect();
    bench.run(&["tick"]).ok();
    let states = ["failed", "held", "unknown"];
    for (id, state) in ids.iter().zip(states) {
        let reason = bench.last_event(id)["reason"].as_str().unwrap().to_owned();
        let ran = bench.run(&["wait", id, "--timeout", LONG]).code(1);
        assert_eq!(ran.stdout, format!("{id} {state} {reason}\n"));
    }
    let ran = bench
        .call(&["wait", "-", &ids[0], "--timeout", LONG])
        .stdin(ids.join("\n"))
        .run()
        .code(1);
    assert_eq!(ran.stdout.lines().count(), 3, "each once: {ran:#?}");
    ran.says("3 items were not confirmed");
}

#[test]
fn when_the_time_is_over_the_open_ones_are_named() {
    let receiver = Receiver::start(vec![Reply::ok()]);
    let bench = Bench::with(&[("shop", &receiver.url(), "")]);
    let done = bench.enqueue("shop", &["--data", "x"]);
    bench.run(&["tick"]).ok();
    let open = bench.enqueue("shop", &["--data", "x"]);
    for timeout in ["0s", "120ms"] {
        let words = ["wait", &done, &open, "--timeout", timeout];
        let ran = bench.run(&words).code(75);
        assert_eq!(ran.stdout, format!("{done} confirmed accepted\n"));
        ran.says("1 item is still open")
            .says(&format!("{open} pending"))
            .says_not(&done);
    }
    let words = ["--json", "wait", &done, &open, "--timeout", "0s"];
    let lines = bench.run(&words).code(75).lines();
    assert_eq!(lines.len(), 2);
    for (line, (id, ended)) in lines.iter().zip([(&done, true), (&open, false)]) {
        assert_fields(line, "request_id state parked reason ended");
        assert_eq!(line["request_id"], **id);
        assert_eq!(line["ended"], ended);
    }
}

#[test]
fn an_id_that_is_not_there_is_66_and_nothing_is_waited_for() {
    let bench = Bench::with(&[("shop", &closed_port(), "")]);
    let id = bench.enqueue("shop", &["--data", "x"]);
    let none = "019adf3e-6b6b-7cc3-98f2-3a1c5d2e8f10";
    bench
        .run(&["wait", &id, none, "--timeout", LONG])
        .code(66)
        .prints_nothing()
        .says(none);
    bench.run(&["wait", "xyz"]).code(2);
    bench.run(&["wait"]).code(2);
    bench.run(&["wait", &id, "--timeout", "soon"]).code(2);
    bench.run(&["wait", "-"]).ok().prints_nothing();
}

#[test]
fn an_item_that_vanishes_meanwhile_is_named() {
    let bench = Bench::with(&[("shop", &closed_port(), "")]);
    let id = bench.enqueue("shop", &["--data", "x"]);
    let other = bench.enqueue("shop", &["--data", "x", "--not-before", "1h"]);
    let first = cancelled(&bench);
    let mut waits = bench
        .call(&["wait", &first, &id, &other, "--timeout", LONG])
        .start();
    let mut lines = BufReader::new(waits.take_stdout()).lines();
    lines.next().unwrap().unwrap();
    // Nothing takes an item away like this but damage to the disk.
    fs::remove_file(bench.spool().join(bench.place(&id))).unwrap();
    bench.run(&["cancel", &other]).ok();
    let line = lines.next().unwrap().unwrap();
    assert_eq!(line, format!("{other} failed cancelled"));
    drop(lines);
    waits
        .end()
        .code(66)
        .says(&format!("there is no item `{id}`"));
}

#[test]
fn a_file_that_a_tick_sets_aside_ends_the_wait() {
    let bench = Bench::with(&[("shop", &closed_port(), "")]);
    let id = bench.enqueue("shop", &["--data", "x"]);
    let first = cancelled(&bench);
    let mut waits = bench
        .call(&["wait", &first, &id, "--timeout", LONG])
        .start();
    let mut lines = BufReader::new(waits.take_stdout()).lines();
    lines.next().unwrap().unwrap();
    fs::write(bench.spool().join(bench.place(&id)), "not an item\n").unwrap();
    bench.run(&["tick"]).ok();
    waits
        .end()
        .code(66)
        .says("as corrupt/")
        .says("the envelope cannot be read");
}

#[test]
fn many_items_are_looked_for_at_once() {
    let bench = Bench::with(&[("shop", &closed_port(), "")]);
    let ids: Vec<String> = (0..40)
        .map(|_| bench.enqueue("shop", &["--data", "x"]))
        .collect();
    let waits = bench
        .call(&["wait", "-", "--timeout", LONG])
        .stdin(ids.join("\n"))
        .start();
    bench
        .call(&["cancel", "-"])
        .stdin(ids.join("\n"))
        .run()
        .ok();
    let ran: Ran = waits.end().code(1);
    let told: Vec<&str> = ran.stdout.lines().map(|line| &line[..36]).collect();
    let mut sorted = told.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, ids, "every one, once");
    ran.says("40 items were not confirmed");
}
