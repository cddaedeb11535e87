//! `tick`: exit codes, what it says, how it is narrowed, the lock, and how it stops.
//!
//! CONTRACT 4 and 5.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/bench.rs"]
mod bench;
mod support;

use std::fs;
use std::process::Command;

use bench::{Bench, IMPATIENT, KEYED, assert_fields, assert_has_fields, assert_time};
use serde_json::Value;
use support::{Receiver, Reply, closed_port};

/// The fields of CONTRACT 5 for `tick --json` and the log line.
const REPORT: &str = "started_at ended_at ms recovered ingested released attempts confirmed \
                      pending unknown held failed corrupt left stopped_by";

fn with(receiver: &Receiver) -> Bench {
    Bench::with(&[("shop", &receiver.url(), KEYED)])
}

/// Copies a spool as a backup would, into a bench of its own.
fn copy(from: &Bench) -> Bench {
    let to = Bench::bare();
    let status = Command::new("cp")
        .arg("-a")
        .arg(from.spool())
        .arg(to.spool())
        .status();
    assert!(status.unwrap().success());
    to
}

#[test]
fn when_all_went_well_it_says_nothing_to_cron() {
    let receiver = Receiver::start(vec![Reply::status(503), Reply::ok()]);
    let bench = with(&receiver);
    let id = bench.enqueue("shop", &["--data", "x"]);
    let ran = bench.run(&["tick"]).ok().prints_nothing();
    assert_eq!(ran.stderr, "");
    bench.run(&["release", "--destination", "shop"]).ok();
    bench.run(&["hold", &id]).ok();
    bench.run(&["release", &id]).ok();
    let ran = bench.run(&["tick"]).ok().prints_nothing();
    assert_eq!(ran.stderr, "");
    assert!(bench.place(&id).starts_with("confirmed/shop/"));
    let ran = bench.run(&["tick"]).ok().prints_nothing();
    assert_eq!(ran.stderr, "");
}

#[test]
fn outcomes_of_items_are_no_failures_of_the_process() {
    for reply in [
        Reply::status(400),
        Reply::status(401),
        Reply::status(500),
        Reply::reset(),
    ] {
        let receiver = Receiver::start(vec![reply]);
        let bench = with(&receiver);
        bench.enqueue("shop", &["--data", "x"]);
        bench.run(&["tick"]).ok();
    }
    let bench = Bench::with(&[("shop", &closed_port(), KEYED)]);
    bench.enqueue("shop", &["--data", "x"]);
    bench.run(&["tick"]).ok();
}

#[test]
fn verbose_has_a_line_an_attempt_with_fixed_keys() {
    let receiver = Receiver::start(vec![Reply::status(422), Reply::status(503)]);
    let bench = with(&receiver);
    let first = bench.enqueue("shop", &["--data", "1"]);
    bench.enqueue("shop", &["--data", "2"]);
    let ran = bench.run(&["-v", "tick"]).ok().prints("2 attempts");
    let lines: Vec<&str> = ran
        .stderr
        .lines()
        .filter(|line| line.starts_with("id="))
        .collect();
    assert_eq!(lines.len(), 2, "{ran:#?}");
    for line in lines {
        let keys: Vec<&str> = line
            .split(' ')
            .filter_map(|word| word.split_once('=').map(|(key, _)| key))
            .collect();
        let wanted = "id destination attempt outcome status verdict reason rule due";
        assert_eq!(keys, wanted.split(' ').collect::<Vec<_>>(), "{line}");
    }
    ran.says(&format!(
        "id={first} destination=shop attempt=1 outcome=answered status="
    ));
}

#[test]
fn json_has_the_fields_of_the_contract_and_so_has_the_log() {
    let receiver = Receiver::start(vec![]);
    let bench = with(&receiver);
    bench.enqueue("shop", &["--data", "x"]);
    let said = bench.tick();
    assert_has_fields(&said, REPORT);
    assert_time(&said["started_at"]);
    assert_time(&said["ended_at"]);
    assert_eq!(said["attempts"], 1);
    assert_eq!(said["confirmed"], 1);
    assert_eq!(said["stopped_by"], "done");
    for name in "recovered ingested released pending unknown held failed corrupt left".split(' ') {
        assert_eq!(said[name], 0, "{name}");
    }
    let day = bench::day_of(&said["ended_at"]);
    assert_eq!(
        bench.files("log/ticks-"),
        [format!("log/ticks-{day}.jsonl")]
    );
    assert_eq!(bench.tick_lines(), [said]);
    bench.tick();
    assert_eq!(bench.tick_lines().len(), 2);
}

#[test]
fn counts_are_by_outcome() {
    let receiver = Receiver::by_path([
        ("/confirmed", vec![Reply::ok()]),
        ("/failed", vec![Reply::status(422)]),
        ("/unknown", vec![Reply::reset()]),
        ("/pending", vec![Reply::status(503)]),
    ]);
    let url = receiver.url();
    let names = ["confirmed", "failed", "unknown", "pending"];
    let bench = Bench::with(&names.map(|name| (name, url.as_str(), KEYED)));
    for name in names {
        bench.enqueue(name, &["--data", "x", "--path", &format!("/{name}")]);
    }
    let said = bench.tick();
    for name in names {
        assert_eq!(said[name], 1, "{name}: {said:#}");
    }
    assert_eq!(said["attempts"], 4);
}

#[test]
fn limit_bounds_the_attempts() {
    let receiver = Receiver::start(vec![]);
    let bench = with(&receiver);
    let ids: Vec<String> = (0..3)
        .map(|_| bench.enqueue("shop", &["--data", "x"]))
        .collect();
    let said = bench.json(&["tick", "--limit", "1"]);
    assert_eq!(said["attempts"], 1);
    assert_eq!(said["left"], 2);
    assert_eq!(said["stopped_by"], "limit");
    // The oldest goes first, and the others are as if they had never been looked at.
    assert!(bench.place(&ids[0]).starts_with("confirmed/"));
    for id in &ids[1..] {
        assert_eq!(bench.place(id), format!("pending/shop/{id}.jsonl"));
        assert_eq!(bench.item(id).len(), 2);
    }
    assert_eq!(bench.json(&["tick", "--limit", "0"])["attempts"], 0);
    assert_eq!(bench.tick()["attempts"], 2);
    assert_eq!(receiver.arrivals().len(), 3);
}

#[test]
fn destination_narrows_it_and_an_unknown_one_is_65() {
    let receiver = Receiver::start(vec![]);
    let url = receiver.url();
    let bench = Bench::with(&[("shop", &url, KEYED), ("other", &url, KEYED)]);
    let ours = bench.enqueue("shop", &["--data", "x"]);
    let theirs = bench.enqueue("other", &["--data", "x"]);
    assert_eq!(
        bench.json(&["tick", "--destination", "shop"])["attempts"],
        1
    );
    assert!(bench.place(&ours).starts_with("confirmed/"));
    assert!(bench.place(&theirs).starts_with("pending/"));
    let before = bench.tree();
    bench
        .run(&["tick", "--destination", "shpo"])
        .code(65)
        .says("did you mean `shop`?");
    bench.run(&["tick", "--destination", "../x"]).code(65);
    assert_eq!(bench.tree(), before);
}

#[test]
fn no_attempt_begins_after_max_runtime() {
    let receiver = Receiver::start(vec![]);
    let bench = with(&receiver);
    let id = bench.enqueue("shop", &["--data", "x"]);
    let said = bench.json(&["tick", "--max-runtime", "0s"]);
    assert_eq!(said["stopped_by"], "max_runtime");
    assert_eq!(said["attempts"], 0);
    assert_eq!(said["left"], 1);
    assert_eq!(bench.place(&id), format!("pending/shop/{id}.jsonl"));
    bench.run(&["tick", "--max-runtime", "soon"]).code(2);
    assert_eq!(bench.json(&["tick", "--max-runtime", "1m"])["attempts"], 1);
}

#[test]
fn a_busy_lock_is_75_at_once_and_says_who_has_it() {
    let receiver = Receiver::start(vec![]);
    let bench = with(&receiver);
    bench.enqueue("shop", &["--data", "x"]);
    let held = bench.hold_lock("somebody of this test");
    bench
        .run(&["tick"])
        .code(75)
        .says("somebody of this test")
        .prints_nothing();
    bench
        .run(&["tick", "--wait", "1"])
        .code(75)
        .says("somebody of this test");
    assert_eq!(receiver.arrivals().len(), 0);
    assert!(bench.tick_lines().is_empty());
    drop(held);
    bench.run(&["tick"]).ok();
    assert_eq!(receiver.arrivals().len(), 1);
}

#[test]
fn wait_waits_for_the_lock() {
    let receiver = Receiver::start(vec![]);
    let bench = with(&receiver);
    bench.enqueue("shop", &["--data", "x"]);
    let held = bench.hold_lock("somebody");
    let waiting = bench.call(&["--json", "tick", "--wait", "600"]).start();
    drop(held);
    assert_eq!(waiting.end().ok().json()["attempts"], 1);
}

#[test]
fn while_a_tick_runs_the_lock_says_so_to_people() {
    let receiver = Receiver::start(vec![Reply::silent()]);
    let bench = with(&receiver);
    bench.enqueue("shop", &["--data", "x"]);
    let running = bench.call(&["tick"]).start();
    receiver.wait_for(1);
    let text = fs::read_to_string(bench.spool().join("lock")).unwrap();
    assert!(text.contains("tick, process"), "{text}");
    bench.run(&["tick"]).code(75).says("tick, process");
    drop(running);
}

#[test]
fn a_killed_ticks_lock_is_free_and_the_item_is_recovered() {
    let receiver = Receiver::start(vec![Reply::silent()]);
    let bench = with(&receiver);
    let id = bench.enqueue("shop", &["--data", "x"]);
    let running = bench.call(&["tick"]).start();
    receiver.wait_for(1);
    assert_eq!(bench.show(&id)["state"], "unknown");
    running.kill();
    assert_eq!(running.end().code, None);
    let said = bench.tick();
    assert_eq!(said["recovered"], 1);
    assert!(bench.place(&id).starts_with("confirmed/shop/"), "{said:#}");
    let item = bench.item(&id);
    assert_eq!(item[2]["outcome"], "interrupted");
    assert_eq!(item[3]["n"], 2);
    let keys: Vec<Option<String>> = receiver
        .arrivals()
        .iter()
        .map(|arrival| arrival.header("idempotency-key").map(str::to_owned))
        .collect();
    assert_eq!(keys, [Some(id.clone()), Some(id)]);
}

#[test]
fn the_journal_is_empty_and_the_lock_the_same_file_after_a_tick() {
    let receiver = Receiver::start(vec![]);
    let bench = with(&receiver);
    let before = bench.tree();
    bench.enqueue("shop", &["--data", "x"]);
    bench.tick();
    bench.tick();
    let after = bench.tree();
    assert!(bench.files("journal/").is_empty());
    assert!(bench.files("tmp/").is_empty());
    assert_eq!(after["lock"].inode, before["lock"].inode);
    assert_eq!(after["spool.json"], before["spool.json"]);
}

#[test]
fn faults_of_the_configuration_are_78_and_nothing_is_touched() {
    let receiver = Receiver::start(vec![]);
    let bench = with(&receiver);
    bench.enqueue("shop", &["--data", "x"]);
    let good = fs::read_to_string(bench.spool().join("tickpost.toml")).unwrap();
    bench.write_config(&format!("{good}\ntimeuot = {{ connect = \"1s\" }}\n"));
    let before = bench.tree();
    bench
        .run(&["tick"])
        .code(78)
        .says("did you mean `timeout`")
        .says("nothing was touched");
    assert_eq!(bench.tree(), before);
    assert_eq!(receiver.arrivals().len(), 0);
}

#[test]
fn without_a_spool_it_is_73() {
    Bench::bare()
        .run(&["tick"])
        .code(73)
        .says("there is no spool");
}

#[test]
fn a_copied_spool_is_refused_untouched() {
    let receiver = Receiver::start(vec![]);
    let bench = with(&receiver);
    let id = bench.enqueue("shop", &["--data", "x"]);
    let copied = copy(&bench);
    let before = copied.tree();
    for words in [
        &["tick"][..],
        &["tick", "--wait", "1"],
        &["hold", &id],
        &["cancel", &id],
    ] {
        copied
            .run(words)
            .code(78)
            .says("is a copy")
            .says("doctor --adopt");
        assert_eq!(copied.tree(), before, "{words:?}");
    }
    assert_eq!(receiver.arrivals().len(), 0);
    copied.run(&["list"]).ok().prints(&id);
    bench.run(&["tick"]).ok();
}

#[test]
fn a_write_that_fails_stops_the_tick_with_74_and_nothing_is_sent() {
    let receiver = Receiver::start(vec![]);
    let bench = with(&receiver);
    // The second time the destination's memory is there, and the journal is the first to be written.
    for (sent, what) in ["destinations_shop.json", "00000001.jsonl"]
        .into_iter()
        .enumerate()
    {
        let id = bench.enqueue("shop", &["--data", "x"]);
        // No file may grow; whoever starts it need not ignore the signal.
        let script = "ulimit -f 0 && exec \"$@\"";
        let ran = bench.call_by_shell(script, &["tick"]).run();
        ran.code(74).says(what);
        assert_eq!(receiver.arrivals().len(), sent);
        assert!(bench.place(&id).starts_with("pending/shop/"));
        bench.run(&["tick"]).ok();
        assert_eq!(receiver.arrivals().len(), sent + 1);
    }
}

#[test]
fn sigterm_ends_it_soon_and_loses_nothing() {
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
        let receiver = Receiver::start(vec![Reply::silent()]).otherwise(Reply::silent());
        let bench = Bench::new();
        let lines = format!("{KEYED}\nconcurrency = 1");
        bench.configure(
            "[tick]\ngrace = \"1ms\"",
            &[("shop", &receiver.url(), &lines)],
        );
        let ids: Vec<String> = (0..3)
            .map(|_| bench.enqueue("shop", &["--data", "x"]))
            .collect();
        let running = bench.call(&["--json", "tick"]).start();
        receiver.wait_for(1);
        running.signal(signal);
        let said = running.end().ok().json();
        assert_eq!(said["stopped_by"], "signal");
        assert_eq!(said["attempts"], 1);
        // What is being sent stays as it is; the rest is as if it had not been claimed.
        assert_eq!(
            bench.place(&ids[0]),
            format!("unknown/shop/{}.1.jsonl", ids[0])
        );
        for id in &ids[1..] {
            assert_eq!(bench.place(id), format!("pending/shop/{id}.jsonl"));
            assert_eq!(bench.item(id).len(), 2);
        }
        assert_eq!(receiver.arrivals().len(), 1);
        assert!(bench.files("journal/").is_empty());
        assert_eq!(bench.tick_lines(), [said]);
    }
}

#[test]
fn a_second_interrupt_ends_it_at_once_and_the_next_tick_knows() {
    let receiver = Receiver::start(vec![Reply::silent()]);
    let bench = Bench::new();
    let patient = format!("{KEYED}\ntimeout = {{ connect = \"5s\", response = \"1h\" }}");
    bench.configure(
        "[tick]\ngrace = \"1h\"",
        &[("shop", &receiver.url(), &patient)],
    );
    let id = bench.enqueue("shop", &["--data", "x"]);
    let mut running = bench.call(&["tick"]).start();
    receiver.wait_for(1);
    // Two that come at once count as one: again and again, as an impatient person does.
    while running.runs() {
        running.signal(rustix::process::Signal::INT);
    }
    running.end().code(75);
    assert_eq!(bench.place(&id), format!("unknown/shop/{id}.1.jsonl"));
    let said = bench.tick();
    assert_eq!(said["recovered"], 1, "{said:#}");
    assert!(bench.place(&id).starts_with("confirmed/"));
    assert_eq!(receiver.arrivals().len(), 2);
}

#[test]
fn a_signal_while_it_waits_for_the_lock_ends_it() {
    let bench = Bench::with(&[]);
    let held = bench.hold_lock("somebody");
    let waiting = bench.call(&["tick", "--wait", "600"]).start();
    waiting.terminate();
    let ran = waiting.end();
    // Before the handler is set the signal kills, after it the lock is still busy: both end it.
    assert!([None, Some(75)].contains(&ran.code), "{ran:#?}");
    drop(held);
}

#[test]
fn an_answer_within_grace_is_still_taken() {
    let receiver = Receiver::start(vec![Reply::silent()]);
    let bench = with(&receiver);
    bench.configure(
        "[tick]\ngrace = \"60s\"",
        &[("shop", &receiver.url(), &format!("{KEYED}\n{IMPATIENT}"))],
    );
    let id = bench.enqueue("shop", &["--data", "x"]);
    let running = bench.call(&["--json", "tick"]).start();
    receiver.wait_for(1);
    running.terminate();
    let said = running.end().ok().json();
    // The destination's own timeout ended the attempt, within the grace.
    assert_eq!(
        bench.last_event(&id)["reason"],
        "timeout_after_send",
        "{said:#}"
    );
    assert!(bench.place(&id).starts_with("unknown/shop/20"));
}

#[test]
fn items_of_a_destination_that_is_gone_stay_and_are_told_of() {
    let receiver = Receiver::start(vec![]);
    let bench = with(&receiver);
    let id = bench.enqueue("shop", &["--data", "x"]);
    bench.configure("", &[("other", &receiver.url(), "")]);
    bench
        .run(&["tick"])
        .ok()
        .says("destination `shop` is not configured");
    assert_eq!(bench.place(&id), format!("pending/shop/{id}.jsonl"));
    assert_eq!(
        bench.json(&["status"])["destinations"]["shop"]["configured"],
        false
    );
    assert!(
        bench.show(&id)["next"]
            .as_str()
            .unwrap()
            .contains("not in the configuration")
    );
    bench.configure("", &[("shop", &receiver.url(), "")]);
    assert_eq!(bench.tick()["confirmed"], 1);
}

#[test]
fn what_is_wrong_is_said_without_a_terminal_too() {
    let receiver = Receiver::start(vec![]);
    let auth = "auth = { bearer = { file = \"/nowhere/token\" } }";
    let bench = Bench::with(&[("shop", &receiver.url(), auth)]);
    bench.enqueue("shop", &["--data", "x"]);
    bench
        .run(&["tick"])
        .ok()
        .says("/nowhere/token")
        .says("shop");
    assert_eq!(receiver.arrivals().len(), 0);
}

#[test]
fn a_dry_run_changes_nothing_and_prints_the_plan_in_order() {
    let receiver = Receiver::start(vec![]);
    let url = receiver.url();
    let bench = Bench::with(&[
        ("shop", &url, KEYED),
        ("gone", &url, KEYED),
        ("closed", &url, KEYED),
    ]);
    let first = bench.enqueue("shop", &["--data", "x"]);
    let second = bench.enqueue("shop", &["--data", "x"]);
    let later = bench.enqueue("shop", &["--data", "x", "--not-before", "+1h"]);
    let orphan = bench.enqueue("gone", &["--data", "x"]);
    let blocked = bench.enqueue("closed", &["--data", "x"]);
    let held = bench.enqueue("shop", &["--data", "x"]);
    bench.run(&["hold", &held]).ok();
    bench.run(&["hold", "--destination", "closed"]).ok();
    bench.configure("", &[("shop", &url, KEYED), ("closed", &url, KEYED)]);
    let before = bench.tree();
    let steps = bench.run(&["--json", "tick", "--dry-run"]).ok().lines();
    assert_eq!(bench.tree(), before);
    let rows: Vec<(&str, &str, &str)> = steps
        .iter()
        .map(|step| {
            let text = |name: &str| step[name].as_str().unwrap();
            (text("action"), text("destination"), text("request_id"))
        })
        .collect();
    let wanted = [
        ("skip", "closed", blocked.as_str()),
        ("skip", "gone", &orphan),
        ("send", "shop", &first),
        ("send", "shop", &second),
        ("skip", "shop", &later),
    ];
    assert_eq!(rows, wanted);
    assert_fields(&steps[0], "request_id destination state action why due");
    assert_fields(&steps[2], "request_id destination state action due");
    assert!(steps[0]["why"].as_str().unwrap().contains("operator"));
    assert!(steps[1]["why"].as_str().unwrap().contains("not configured"));
    assert!(steps[4]["why"].as_str().unwrap().contains("not due before"));
    let printed = bench
        .run(&["tick", "--dry-run"])
        .ok()
        .prints(&first)
        .prints("send");
    assert_eq!(printed.stdout.lines().count(), 5);
    assert_eq!(receiver.arrivals().len(), 0);
    assert_eq!(bench.tree(), before);
}

#[test]
fn a_dry_run_is_narrowed_as_a_tick_is_and_needs_no_lock() {
    let receiver = Receiver::start(vec![]);
    let url = receiver.url();
    let bench = Bench::with(&[("shop", &url, KEYED), ("other", &url, KEYED)]);
    bench
        .run(&["tick", "--dry-run"])
        .ok()
        .prints("nothing is due");
    let first = bench.enqueue("shop", &["--data", "x"]);
    let second = bench.enqueue("shop", &["--data", "x"]);
    bench.enqueue("other", &["--data", "x"]);
    let held = bench.hold_lock("somebody");
    let words = [
        "--json",
        "tick",
        "--dry-run",
        "--destination",
        "shop",
        "--limit",
        "1",
    ];
    let steps = bench.run(&words).ok().lines();
    drop(held);
    let id = |step: &Value| step["request_id"].as_str().unwrap().to_owned();
    assert_eq!(steps.iter().map(id).collect::<Vec<_>>(), [first, second]);
    assert_eq!(steps[0]["action"], "send");
    assert_eq!(steps[1]["action"], "skip");
    assert!(steps[1]["why"].as_str().unwrap().contains("limit"));
    bench
        .run(&["tick", "--dry-run", "--destination", "nope"])
        .code(65);
}

#[test]
fn a_dry_run_tells_of_suspensions_and_repeats() {
    let receiver = Receiver::start(vec![Reply::reset(), Reply::status(503)]);
    let url = receiver.url();
    let bench = Bench::with(&[("lost", &url, KEYED), ("busy", &url, KEYED)]);
    let lost = bench.enqueue("lost", &["--data", "x"]);
    bench.tick();
    let busy = bench.enqueue("busy", &["--data", "x"]);
    bench.tick();
    let other = bench.enqueue("busy", &["--data", "x"]);
    let steps = bench.run(&["--json", "tick", "--dry-run"]).ok().lines();
    let of = |id: &str| steps.iter().find(|step| step["request_id"] == *id).unwrap();
    assert_eq!(of(&lost)["state"], "unknown");
    assert_eq!(of(&lost)["action"], "skip");
    assert_eq!(of(&busy)["action"], "skip");
    let why = of(&other)["why"].as_str().unwrap();
    assert!(why.contains("suspended") && why.contains("until"), "{why}");
}

/// A path unit does not start a second tick while one runs.
#[test]
fn what_is_accepted_while_a_tick_runs_is_sent_by_it() {
    let receiver = Receiver::start(vec![Reply::ok().gated()]);
    let bench = Bench::new();
    bench.configure(
        "",
        &[
            ("shop", &receiver.url(), KEYED),
            ("other", &receiver.url(), KEYED),
        ],
    );
    let first = bench.enqueue("shop", &["--data", "1"]);
    let running = bench.call(&["--json", "tick"]).start();
    receiver.wait_for(1);
    let meanwhile = [
        bench.enqueue("shop", &["--data", "2"]),
        bench.enqueue("other", &["--data", "3"]),
    ];
    receiver.open_gate();
    let report = running.end().ok().json();
    assert_eq!(report["attempts"], 3, "{report}");
    for id in [&first, &meanwhile[0], &meanwhile[1]] {
        assert!(bench.place(id).starts_with("confirmed/"), "{id}");
    }
}

#[test]
fn a_destination_that_is_gone_is_told_of_only_while_something_waits_for_it() {
    let receiver = Receiver::start(vec![]);
    let bench = with(&receiver);
    bench.enqueue("shop", &["--data", "x"]);
    assert_eq!(bench.tick()["confirmed"], 1);
    let ops = ("ops", &*receiver.url(), "");
    let told = "[notify]\ndestinations = [\"ops\"]";
    bench.configure("", &[("shop", &receiver.url(), ""), ops]);
    let later = bench.enqueue("shop", &["--data", "x", "--not-before", "+3h"]);
    let held = bench.enqueue("shop", &["--data", "x", "--hold", "x"]);
    // Into the directory of its day.
    bench.tick();
    for id in [&later, &held] {
        bench.run(&["cancel", id]).ok();
    }
    bench.configure(told, &[ops]);
    for _ in 0..2 {
        let ran = bench.run(&["tick"]).ok();
        assert!(!ran.stderr.contains("not configured"), "{}", ran.stderr);
    }
    assert_eq!(receiver.arrivals().len(), 1, "nobody is told");
    bench
        .run(&["status"])
        .ok()
        .prints("shop: not configured; nothing waits for it");
    // One that waits in a directory of its own is still told of.
    bench.configure(told, &[("shop", &receiver.url(), ""), ops]);
    bench.enqueue("shop", &["--data", "x", "--not-before", "+3h"]);
    bench.tick();
    bench.configure(told, &[ops]);
    bench.run(&["tick"]).ok().says("its items stay");
    assert_eq!(receiver.arrivals().len(), 2, "somebody is told");
}
