//! The founding incident: a program accepts requests, says so, and dies at once. Afterwards every
//! one of them must be there, be found by whoever asks for it, be sent, and whoever wanted it
//! must be told if it did not end well.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod support;

#[path = "support/bench.rs"]
mod bench;
#[path = "support/desk.rs"]
mod desk;

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::time::{Duration, Instant};

use bench::{Bench, KEYED};
use desk::{Desk, Draw, json, stands};
use serde_json::Value;
use support::{Receiver, Reply};

/// Enqueues, and kills the process as soon as it has printed the id.
#[track_caller]
fn enqueue_and_die(bench: &Bench, destination: &str, options: &[&str]) -> String {
    let words = [&["--quiet", "enqueue", destination], options].concat();
    let mut running = bench.call(&words).start();
    let mut line = String::new();
    let mut out = BufReader::new(running.take_stdout());
    out.read_line(&mut line).unwrap();
    running.kill();
    running.end();
    let id = line.strip_suffix('\n').unwrap();
    assert!(uuid::Uuid::parse_str(id).is_ok(), "{line:?}");
    id.to_owned()
}

fn ids(rows: &[Value]) -> BTreeSet<&str> {
    rows.iter()
        .map(|row| row["request_id"].as_str().unwrap())
        .collect()
}

fn set<'a>(ids: &[&'a str]) -> BTreeSet<&'a str> {
    ids.iter().copied().collect()
}

#[test]
fn what_was_accepted_is_found_and_sent_and_its_requesters_are_told() {
    let receiver = Receiver::by_path([
        ("/refused", vec![Reply::status(400)]),
        ("/forbidden", vec![Reply::status(403)]),
        ("/lost", vec![Reply::close().taking_effect()]),
    ]);
    let ops = Receiver::start(vec![]);
    let boss = Receiver::start(vec![]);
    let desk = Desk::new(&[
        ("work", &receiver.url(), ""),
        ("ops", &ops.url(), KEYED),
        ("boss", &boss.url(), KEYED),
    ]);
    let ask = |who: &str, thread: &str, path: &str, notify: &[&str]| {
        let mut options = vec![
            "--principal",
            who,
            "--thread",
            thread,
            "--path",
            path,
            "--data",
            "{}",
        ];
        for to in notify {
            options.extend(["--notify", to]);
        }
        enqueue_and_die(&desk, "work", &options)
    };
    let good = ask("alice", "deploy-42", "/good", &["ops"]);
    let refused = ask("alice", "deploy-42", "/refused", &["ops"]);
    let forbidden = ask("bob", "billing", "/forbidden", &["ops", "boss"]);
    let lost = ask("carol", "billing", "/lost", &["ops"]);
    let all = [good.as_str(), &refused, &forbidden, &lost];

    // A fresh process finds them by state and by requester.
    assert_eq!(ids(&desk.list(&["--state", "pending"])), set(&all));
    assert_eq!(
        ids(&desk.list(&["--principal", "alice"])),
        set(&[&good, &refused])
    );
    assert_eq!(ids(&desk.list(&["--principal", "bob"])), set(&[&forbidden]));
    assert_eq!(
        ids(&desk.list(&["--thread", "billing"])),
        set(&[&forbidden, &lost])
    );
    assert!(desk.list(&["--state", "held"]).is_empty());
    assert!(
        receiver.arrivals().is_empty(),
        "nothing was sent while it was accepted"
    );

    desk.tick();
    desk.tick();
    assert_eq!(desk.stands(&good), stands("confirmed", "accepted"));
    assert_eq!(desk.stands(&refused), stands("failed", "invalid_request"));
    assert_eq!(desk.stands(&forbidden), stands("held", "permission_denied"));
    assert_eq!(desk.stands(&lost), stands("unknown!", "connection_lost"));
    assert_eq!(ids(&desk.list(&["--state", "failed"])), set(&[&refused]));
    assert_eq!(ids(&desk.list(&["--principal", "carol"])), set(&[&lost]));

    // Told exactly once each, whatever ticks come after.
    desk.tick();
    desk.tick();
    let told: Vec<Value> = ops.arrivals().iter().map(|a| json(&a.text())).collect();
    assert_eq!(told.len(), 3, "{told:#?}");
    let of = |word: &str| {
        let mut found = told.iter().filter(|notice| notice["notice"] == word);
        let notice = found.next().unwrap().clone();
        assert!(found.next().is_none(), "told twice: {told:#?}");
        notice
    };
    let rows = [
        ("failed", "invalid_request", &refused, "alice", "deploy-42"),
        ("held", "permission_denied", &forbidden, "bob", "billing"),
        ("parked", "connection_lost", &lost, "carol", "billing"),
    ];
    for (word, reason, id, principal, thread) in rows {
        let notice = of(word);
        assert_eq!(notice["reason"], reason);
        assert_eq!(notice["count"], 1);
        assert_eq!(notice["request_ids"], serde_json::json!([id]));
        assert_eq!(notice["destinations"], serde_json::json!(["work"]));
        let who = serde_json::json!([{"principal": principal, "thread": thread}]);
        assert_eq!(notice["requesters"], who);
        let text = notice["text"].as_str().unwrap();
        assert!(
            text.contains(id.as_str()) && text.contains("work"),
            "{text}"
        );
        assert!(text.contains(reason), "{text}");
        if word == "parked" {
            let text = text.to_lowercase();
            assert!(text.contains("may have acted"), "{text}");
            assert!(text.contains("tickpost resolve"), "{text}");
            for wrong in ["try again", "retry", "failed to", "not sent"] {
                assert!(!text.contains(wrong), "says {wrong}: {text}");
            }
        }
    }
    let boss_told: Vec<Value> = boss.arrivals().iter().map(|a| json(&a.text())).collect();
    assert_eq!(boss_told.len(), 1, "{boss_told:#?}");
    assert_eq!(boss_told[0]["request_ids"], serde_json::json!([forbidden]));
    assert_eq!(receiver.arrivals().len(), 4, "each item was sent once");
}

#[test]
fn what_many_items_have_in_common_is_told_once() {
    let receiver = Receiver::start(vec![]).otherwise(Reply::status(400));
    let ops = Receiver::start(vec![]);
    let desk = Desk::new(&[("work", &receiver.url(), KEYED), ("ops", &ops.url(), KEYED)]);
    desk.configure(
        "[notify]\ndestinations = [\"ops\"]",
        &[("work", &receiver.url(), KEYED), ("ops", &ops.url(), KEYED)],
    );
    let ids = desk.fill("work", 150);
    desk.tick();
    desk.tick();
    let told = ops.arrivals();
    assert_eq!(told.len(), 1, "{told:#?}");
    let notice = json(&told[0].text());
    assert_eq!(notice["count"], 150);
    let named = notice["request_ids"].as_array().unwrap();
    assert_eq!(named.len(), 100);
    let known: BTreeSet<&str> = ids.iter().map(String::as_str).collect();
    assert!(named.iter().all(|id| known.contains(id.as_str().unwrap())));
}

#[test]
fn a_notice_that_cannot_be_delivered_causes_no_notice() {
    let receiver = Receiver::start(vec![]).otherwise(Reply::status(400));
    let ops = Receiver::start(vec![]).otherwise(Reply::status(400));
    let desk = Desk::new(&[("work", &receiver.url(), ""), ("ops", &ops.url(), "")]);
    desk.enqueue("work", &["--data", "x", "--notify", "ops"]);
    for _ in 0..4 {
        desk.tick();
    }
    assert_eq!(ops.arrivals().len(), 1);
    assert_eq!(desk.counts(), [("failed".to_owned(), 2)].into());
}

#[test]
fn the_notices_of_a_tick_that_died_are_sent_once() {
    // The tick is killed after it has settled the refused items, at any moment of what follows.
    for arrivals in 1..=6 {
        let receiver = Receiver::start(vec![]).otherwise(Reply::status(400));
        let ops = Receiver::start(vec![]).deduplicating([]);
        let destinations = [("work", receiver.url(), KEYED), ("ops", ops.url(), KEYED)];
        let destinations: Vec<(&str, &str, &str)> = destinations
            .iter()
            .map(|(name, url, more)| (*name, url.as_str(), *more))
            .collect();
        let desk = Desk::new(&destinations);
        desk.configure("[notify]\ndestinations = [\"ops\"]", &destinations);
        let ids = desk.fill("work", 6);
        let tick = desk.call(&["tick"]).start();
        receiver.wait_for(arrivals);
        tick.kill();
        tick.end();
        desk.tick_to_end();
        let mut told = Vec::new();
        for arrival in ops.arrivals().iter().filter(|arrival| arrival.acted) {
            let notice = json(&arrival.text());
            let named = notice["request_ids"].as_array().unwrap();
            told.extend(named.iter().map(|id| id.as_str().unwrap().to_owned()));
        }
        told.sort();
        // A refusal that was lost in the kill leaves a maybe-acted item: it is parked, and told.
        assert_eq!(told, ids, "killed after {arrivals} arrivals");
        let counts = desk.counts();
        let failed = counts.get("failed").copied().unwrap_or(0);
        let parked = counts.get("unknown").copied().unwrap_or(0);
        assert_eq!(failed + parked, 6, "{counts:?}");
    }
}

#[test]
fn a_kill_at_any_moment_of_enqueue_leaves_an_item_or_none() {
    let receiver = Receiver::start(vec![]).deduplicating([]);
    let desk = Desk::new(&[("work", &receiver.url(), KEYED)]);
    let mut draw = Draw(0x5eed_0004);
    let mut printed = Vec::new();
    for _ in 0..60 {
        // The whole of it takes about as long as the longest of these.
        let moment = Duration::from_micros(draw.below(12_000) as u64);
        let words = [
            "--quiet",
            "enqueue",
            "work",
            "--data",
            "{}",
            "--principal",
            "dave",
        ];
        let running = desk.call(&words).start();
        let started = Instant::now();
        while started.elapsed() < moment {
            std::hint::spin_loop();
        }
        running.kill();
        let out = running.end().stdout;
        if out.is_empty() {
            continue;
        }
        let id = out.strip_suffix('\n').unwrap().to_owned();
        assert_eq!(desk.show(&id)["state"], "pending", "{id} was printed");
        printed.push(id);
    }
    let rows = desk.list(&["--principal", "dave"]);
    let listed = ids(&rows);
    assert!(printed.iter().all(|id| listed.contains(id.as_str())));
    assert_eq!(listed.len(), rows.len());
    assert_eq!(
        desk.files("pending/").len(),
        rows.len(),
        "whole items or none"
    );
    let pending = desk.files("pending/");
    desk.tick_to_end();
    assert_eq!(
        desk.counts(),
        [("confirmed".to_owned(), pending.len() as u64)].into()
    );
    assert_eq!(receiver.effects().len(), pending.len());
    assert!(desk.files("corrupt/").is_empty());
}
