//! A destination that is dead, slow, refusing or held costs the others nothing, and its own
//! waiting items no attempts.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod support;

#[path = "support/bench.rs"]
mod bench;
#[path = "support/desk.rs"]
mod desk;

use std::fs;
use std::time::{Duration, Instant};

use bench::KEYED;
use desk::{Desk, stands};
use serde_json::Value;
use support::{Receiver, Reply};

/// What one tick may spend on finding out that a destination is dead.
const TRIES_MAX: usize = 5;

fn state_of(desk: &Desk, destination: &str, state: &str) -> usize {
    let count = &desk.json(&["status"])["destinations"][destination][state];
    usize::try_from(count.as_u64().unwrap()).unwrap()
}

fn number(line: &Value, name: &str) -> usize {
    usize::try_from(line[name].as_u64().unwrap()).unwrap()
}

/// How many items of a destination have an attempt in their history, counted or not.
fn tried(desk: &Desk, destination: &str) -> usize {
    let rows = desk.list(&["--destination", destination]);
    rows.iter()
        .filter(|row| !row["first_sent_at"].is_null())
        .count()
}

/// A thousand items to a dead destination and a thousand to a healthy one, and one tick.
fn dead_and_healthy(dead: &str) -> (Desk, Receiver) {
    let healthy = Receiver::start(vec![]);
    let desk = Desk::new(&[("dead", dead, KEYED), ("healthy", &healthy.url(), KEYED)]);
    // The dead one's are older.
    desk.fill("dead", 1000);
    desk.fill("healthy", 1000);
    let line = desk.tick();
    assert_eq!(line["confirmed"], 1000, "{line}");
    assert_eq!(line["stopped_by"], "done", "{line}");
    assert_eq!(state_of(&desk, "healthy", "confirmed"), 1000);
    assert_eq!(healthy.arrivals().len(), 1000);
    (desk, healthy)
}

#[test]
fn a_closed_port_costs_a_few_connections_and_no_attempts() {
    let (desk, _healthy) = dead_and_healthy(&support::closed_port());
    let rows = desk.list(&["--destination", "dead"]);
    assert!(rows.iter().all(|row| row["state"] == "pending"));
    assert!(rows.iter().all(|row| row["attempts"] == 0), "none counts");
    let tried_once = tried(&desk, "dead");
    assert!(
        (1..=TRIES_MAX).contains(&tried_once),
        "{tried_once} were tried"
    );
    assert_eq!(desk.suspended("dead")["reason"], "connect_failed");
    let last = &desk.json(&["status"])["last_tick"];
    assert_eq!(number(last, "left"), 1000 - tried_once, "{last}");

    // Suspended: nothing is sent.
    let line = desk.tick();
    assert_eq!(line["attempts"], 0, "{line}");
    assert_eq!(tried(&desk, "dead"), tried_once);

    // Its time is over, and it is dead still: exactly one item tries it.
    desk.end_suspension("dead");
    let line = desk.tick();
    assert_eq!(line["attempts"], 1, "{line}");

    // It has moved: the rest flows at once.
    let receiver = Receiver::start(vec![]);
    desk.configure("", &[("dead", &receiver.url(), KEYED)]);
    let line = desk.tick();
    assert!(desk.suspended("dead").is_null());
    assert!(number(&line, "confirmed") >= 1000 - TRIES_MAX - 1, "{line}");
    assert_eq!(receiver.arrivals().len() as u64, line["confirmed"]);
}

#[test]
fn a_receiver_that_resets_every_connection_sees_few_of_them() {
    let dead = Receiver::start(vec![]).otherwise(Reply::reset().at_accept());
    let (desk, _healthy) = dead_and_healthy(&dead.url());
    // The system tells of such a reset while connecting, or after the request was written: then
    // that item is maybe-acted, but no more than a few are spent on it.
    assert!(dead.arrivals().is_empty());
    let connections = dead.connections();
    assert!(connections <= TRIES_MAX, "{connections} connections");
    assert!(!desk.suspended("dead").is_null());
    assert_eq!(tried(&desk, "dead"), connections);
    assert!(state_of(&desk, "dead", "pending") >= 1000 - TRIES_MAX);
    assert_eq!(desk.tick()["attempts"], 0, "suspended");
    desk.end_suspension("dead");
    assert_eq!(desk.tick()["attempts"], 1, "one item tries it");
}

#[test]
fn lost_answers_in_a_row_suspend_and_an_answer_between_them_does_not() {
    let lost = Reply::close;
    let single = "concurrency = 1";
    let rows = [
        (vec![lost(), lost(), lost()], 3, true),
        (vec![lost(), lost(), Reply::ok(), lost(), lost()], 4, false),
        (vec![lost(), lost(), Reply::status(400), lost()], 3, false),
    ];
    for (script, lost, suspends) in rows {
        let receiver = Receiver::start(script);
        let desk = Desk::new(&[("dest", &receiver.url(), single)]);
        desk.fill("dest", 20);
        desk.tick();
        assert_eq!(state_of(&desk, "dest", "parked"), lost);
        assert_eq!(desk.suspended("dest").is_null(), !suspends);
        if suspends {
            assert_eq!(receiver.arrivals().len(), 3);
            assert_eq!(desk.suspended("dest")["reason"], "connection_lost");
            desk.end_suspension("dest");
            desk.tick();
            assert_eq!(
                state_of(&desk, "dest", "confirmed"),
                17,
                "an answer opens it again"
            );
        } else {
            assert_eq!(receiver.arrivals().len(), 20);
        }
    }
    // One item that is sent over and over is one item.
    let receiver = Receiver::start((0..5).map(|_| lost()).collect());
    let desk = Desk::of(&receiver.url());
    let id = desk.post("keyed");
    for _ in 0..5 {
        desk.tick();
    }
    assert_eq!(desk.stands(&id), stands("unknown", "connection_lost"));
    assert_eq!(receiver.arrivals().len(), 5);
    assert!(desk.suspended("keyed").is_null());
}

#[test]
fn one_item_tries_a_suspended_destination_and_the_rest_follows() {
    let receiver = Receiver::start(vec![Reply::status(503), Reply::status(503)]);
    let slow = format!("{KEYED}\nretry = {{ base = \"1h\", max = \"1h\" }}");
    let desk = Desk::new(&[("dest", &receiver.url(), &slow)]);
    desk.fill("dest", 100);
    desk.tick();
    let first = receiver.arrivals().len();
    assert!(first <= 2, "two are under way at first: {first}");
    assert_eq!(desk.suspended("dest")["reason"], "overloaded");
    assert_eq!(desk.tick()["attempts"], 0);
    for more in 1..=3 {
        // As long as it is overloaded, exactly one item tries it a tick.
        receiver.push(Reply::status(503));
        desk.end_suspension("dest");
        let line = desk.tick();
        if first + more > 3 {
            assert_eq!(line["attempts"], 1, "{line}");
            assert_eq!(number(&line, "left"), 100 - receiver.arrivals().len());
        }
    }
    let before = receiver.arrivals().len();
    desk.end_suspension("dest");
    let line = desk.tick();
    assert_eq!(number(&line, "confirmed"), 100 - before, "{line}");
}

#[test]
fn one_item_that_is_not_found_suspends_nobody_and_three_do() {
    let refused = |count: usize| {
        let replies = (0..count).map(|_| Reply::status(404));
        Receiver::start(replies.collect())
    };
    for (count, suspends) in [(1, false), (2, false), (3, true)] {
        let receiver = refused(count);
        // One at a time, so that the order is that of the script.
        let single = format!("{KEYED}\nconcurrency = 1");
        let desk = Desk::new(&[("dest", &receiver.url(), &single)]);
        desk.fill("dest", 20);
        desk.tick();
        assert_eq!(state_of(&desk, "dest", "held"), count);
        assert_eq!(desk.suspended("dest").is_null(), !suspends, "{count}");
        let confirmed = state_of(&desk, "dest", "confirmed");
        assert_eq!(confirmed, if suspends { 0 } else { 20 - count });
    }
    // A success between them, and in different ticks.
    let receiver = Receiver::start([404, 404, 200, 404, 404].map(Reply::status).to_vec());
    let single = format!("{KEYED}\nconcurrency = 1");
    let desk = Desk::new(&[("dest", &receiver.url(), &single)]);
    for _ in 0..5 {
        desk.post("dest");
        desk.tick();
    }
    assert_eq!(state_of(&desk, "dest", "held"), 4);
    assert!(desk.suspended("dest").is_null());
    receiver.push(Reply::status(404));
    desk.post("dest");
    desk.tick();
    assert_eq!(desk.suspended("dest")["reason"], "destination_not_found");
    // The same item over again is one item.
    let receiver = refused(5);
    let desk = Desk::new(&[("dest", &receiver.url(), &single)]);
    let id = desk.post("dest");
    for _ in 0..5 {
        desk.tick();
        assert_eq!(desk.stands(&id), stands("held", "destination_not_found"));
        desk.run(&["release", &id]).ok();
    }
    assert!(desk.suspended("dest").is_null());
}

#[test]
fn a_refused_secret_suspends_at_once_and_a_new_one_frees_what_it_held() {
    let receiver = Receiver::start(vec![Reply::status(401), Reply::status(401)]);
    let desk = Desk::new(&[]);
    let secret = desk.file("secret", "old\n");
    let more = format!("{KEYED}\nconcurrency = 1\nauth = {{ bearer = {{ file = \"{secret}\" }} }}");
    desk.configure("", &[("dest", &receiver.url(), &more)]);
    let ids = desk.fill("dest", 30);
    desk.tick();
    assert_eq!(receiver.arrivals().len(), 1, "one refusal is enough");
    assert_eq!(desk.stands(&ids[0]), stands("held", "auth_invalid"));
    assert_eq!(desk.suspended("dest")["reason"], "auth_invalid");
    assert_eq!(state_of(&desk, "dest", "pending"), 29);
    assert_eq!(desk.tick()["attempts"], 0, "the same secret");

    // What a person held stays held, whatever becomes of the secret.
    desk.run(&["hold", &ids[29]]).ok();
    fs::write(&secret, "new\n").unwrap();
    let line = desk.tick();
    // The new one is refused as well.
    assert_eq!(line["released"], 1, "{line}");
    assert_eq!(line["attempts"], 1, "{line}");
    assert_eq!(desk.suspended("dest")["reason"], "auth_invalid");
    assert_eq!(state_of(&desk, "dest", "held"), 2);

    fs::write(&secret, "newest\n").unwrap();
    let line = desk.tick();
    assert_eq!(line["confirmed"], 29, "{line}");
    assert_eq!(desk.stands(&ids[29]), stands("held", "operator"));
    assert!(desk.suspended("dest").is_null());
    let used: Vec<Option<String>> = receiver
        .arrivals()
        .iter()
        .map(|a| a.header("authorization").map(str::to_owned))
        .collect();
    assert_eq!(used[0].as_deref(), Some("Bearer old"));
    assert_eq!(used[1].as_deref(), Some("Bearer new"));
    assert!(
        used[2..]
            .iter()
            .all(|u| u.as_deref() == Some("Bearer newest"))
    );
}

#[test]
fn a_secret_that_changes_while_the_old_one_is_refused_counts_as_changed() {
    let receiver = Receiver::start(vec![Reply::status(401).gated()]);
    let desk = Desk::new(&[]);
    let secret = desk.file("secret", "old\n");
    let more = format!("{KEYED}\nauth = {{ bearer = {{ file = \"{secret}\" }} }}");
    desk.configure("", &[("dest", &receiver.url(), &more)]);
    let id = desk.post("dest");
    let tick = desk.call(&["tick"]).start();
    receiver.wait_for(1);
    fs::write(&secret, "new\n").unwrap();
    receiver.open_gate();
    tick.end().ok();
    assert_eq!(desk.stands(&id), stands("held", "auth_invalid"));
    let line = desk.tick();
    assert_eq!(
        line["confirmed"], 1,
        "the new one has not been tried: {line}"
    );
}

#[test]
fn a_destination_that_never_answers_costs_the_others_nothing() {
    let slow = Receiver::start(vec![]).otherwise(Reply::silent());
    let healthy = Receiver::start(vec![]);
    let patient = format!("{KEYED}\ntimeout = {{ connect = \"5s\", response = \"1h\" }}");
    let desk = Desk::new(&[
        ("slow", &slow.url(), &patient),
        ("healthy", &healthy.url(), KEYED),
    ]);
    desk.fill("slow", 100);
    desk.fill("healthy", 300);
    let tick = desk.call(&["--json", "tick"]).start();
    // All of these while the slow one has answered nothing.
    healthy.wait_for(300);
    assert!((1..=8).contains(&slow.wait_for(1).len()));
    tick.kill();
    tick.end();
    // What the slow one was sent is unknown, and nothing else of it was tried.
    let line = desk.json(&["tick", "--max-runtime", "1ms", "--destination", "healthy"]);
    let recovered = line["recovered"].as_u64().unwrap();
    assert!(recovered >= slow.arrivals().len() as u64, "{line}");
    assert_eq!(slow.arrivals().len(), 2, "no more than a few at first");
}

#[test]
fn many_silent_destinations_leave_a_place_for_a_healthy_one() {
    let silent = Receiver::start(vec![]).otherwise(Reply::silent());
    let healthy = Receiver::start(vec![]);
    // As many destinations as a tick may have attempts under way; the silent ones come first.
    let names: Vec<String> = (0..31).map(|n| format!("silent-{n:02}")).collect();
    let (silent_url, healthy_url) = (silent.url(), healthy.url());
    let mut destinations: Vec<(&str, &str, &str)> = names
        .iter()
        .map(|name| (name.as_str(), silent_url.as_str(), ""))
        .collect();
    destinations.push(("well", &healthy_url, ""));
    let desk = Desk::new(&destinations);
    for name in &names {
        desk.fill(name, 2);
    }
    desk.fill("well", 10);
    let tick = desk.call(&["--json", "tick"]).start();
    // All of these while none of the silent ones has answered.
    healthy.wait_for(10);
    tick.kill();
    tick.end();
}

#[test]
fn few_descriptors_are_enough_for_many_destinations() {
    let receiver = Receiver::start(vec![]);
    let names: Vec<String> = (0..30).map(|n| format!("dest-{n:02}")).collect();
    let url = receiver.url();
    let destinations: Vec<(&str, &str, &str)> = names
        .iter()
        .map(|name| (name.as_str(), url.as_str(), KEYED))
        .collect();
    let desk = Desk::new(&destinations);
    for name in &names {
        desk.fill(name, 1);
    }
    let tick = desk.call_by_shell("ulimit -n 64; exec \"$@\"", &["--json", "tick"]);
    let line = tick.run().ok().json();
    assert_eq!(line["confirmed"], 30, "{line}");
}

#[test]
fn who_left_requests_unanswered_comes_after_the_others() {
    let silent = Receiver::start(vec![]).otherwise(Reply::silent());
    let healthy = Receiver::start(vec![]);
    let hasty = format!("{KEYED}\ntimeout = {{ connect = \"1s\", response = \"100ms\" }}");
    let desk = Desk::new(&[("a", &silent.url(), &hasty), ("b", &healthy.url(), KEYED)]);
    desk.fill("a", 2);
    desk.tick();
    assert_eq!(silent.arrivals().len(), 2);
    desk.fill("b", 1);
    // There is room for one: it goes where it is likely to be answered.
    desk.json(&["tick", "--limit", "1"]);
    assert_eq!(silent.arrivals().len(), 2);
    assert_eq!(state_of(&desk, "b", "confirmed"), 1);
}

#[test]
fn a_rate_spreads_what_is_sent() {
    let rows = [
        ("50/s", 20, 31, KEYED),
        ("50/s", 20, 31, ""),
        ("700/s", 2, 301, KEYED),
    ];
    for (rate, interval_ms, count, more) in rows {
        let receiver = Receiver::start(vec![]);
        let more = format!("{more}\nrate = \"{rate}\"");
        let desk = Desk::new(&[("dest", &receiver.url(), &more)]);
        desk.fill("dest", count);
        let started = Instant::now();
        desk.tick();
        let arrivals = receiver.arrivals();
        assert_eq!(arrivals.len(), count);
        for (index, arrival) in arrivals.iter().enumerate() {
            // The wall clock counts whole milliseconds.
            let earliest = (index as u64 * interval_ms).saturating_sub(1);
            let passed = arrival.at - started;
            let earliest = Duration::from_millis(earliest);
            assert!(
                passed >= earliest,
                "{rate}: arrival {index} after {passed:?}"
            );
        }
    }
    // A tick does not begin afresh: it goes on from where the last one was.
    let receiver = Receiver::start(vec![]);
    let desk = Desk::new(&[("dest", &receiver.url(), "rate = \"2/s\"")]);
    let started = Instant::now();
    for _ in 0..3 {
        desk.post("dest");
        desk.tick();
    }
    let passed = receiver.arrivals()[2].at - started;
    assert!(passed >= Duration::from_millis(999), "{passed:?}");
}

#[test]
fn an_operators_hold_stops_a_running_tick() {
    // Eight answers open the destination to its whole concurrency; then they are kept waiting.
    let mut script: Vec<Reply> = (0..20).map(|_| Reply::ok()).collect();
    script.extend((0..8).map(|_| Reply::ok().gated()));
    let receiver = Receiver::start(script);
    let other = Receiver::start(vec![]);
    let desk = Desk::new(&[
        ("dest", &receiver.url(), KEYED),
        ("other", &other.url(), KEYED),
    ]);
    desk.fill("dest", 200);
    let tick = desk.call(&["--json", "tick"]).start();
    receiver.wait_for(28);
    desk.run(&["hold", "--destination", "dest", "--note", "moving house"])
        .ok();
    receiver.open_gate();
    let line = tick.end().ok().json();
    assert_eq!(
        receiver.arrivals().len(),
        28,
        "what was under way ended as it ended"
    );
    assert_eq!(line["confirmed"], 28, "{line}");
    assert_eq!(line["left"], 172, "{line}");
    assert_eq!(state_of(&desk, "dest", "pending"), 172);
    let status = desk.json(&["status"]);
    assert_eq!(status["destinations"]["dest"]["operator_hold"], true);
    desk.fill("other", 1);
    assert_eq!(desk.tick()["attempts"], 1, "the other one is not held");

    desk.run(&["release", "--destination", "dest"]).ok();
    desk.tick();
    assert_eq!(state_of(&desk, "dest", "confirmed"), 200);
}

#[test]
fn a_release_reopens_a_destination_within_a_running_tick() {
    let receiver = Receiver::start(vec![]);
    let busy = Receiver::start(vec![Reply::ok().gated()]);
    let desk = Desk::new(&[
        ("dest", &receiver.url(), KEYED),
        ("busy", &busy.url(), KEYED),
    ]);
    desk.run(&["hold", "--destination", "dest"]).ok();
    let held = desk.fill("dest", 10);
    desk.fill("busy", 1);
    let tick = desk.call(&["--json", "tick"]).start();
    // The tick is at work, and has looked at the hold.
    busy.wait_for(1);
    assert!(receiver.arrivals().is_empty());
    desk.run(&["release", "--destination", "dest"]).ok();
    receiver.wait_for(10);
    busy.open_gate();
    let line = tick.end().ok().json();
    assert_eq!(line["confirmed"], 11, "{line}");
    assert_eq!(desk.stands(&held[9]), stands("confirmed", "accepted"));
}

#[test]
fn a_bad_item_costs_one_item() {
    let receiver = Receiver::start(vec![]);
    let desk = Desk::new(&[("dest", &receiver.url(), KEYED)]);
    let ids = desk.fill("dest", 10);
    let path = desk.spool().join(desk.place(&ids[4]));
    let mut bytes = fs::read(&path).unwrap();
    bytes[10] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let line = desk.tick();
    assert_eq!(line["confirmed"], 9, "{line}");
    assert_eq!(line["corrupt"], 1, "{line}");
    assert_eq!(receiver.arrivals().len(), 9);
    let aside = desk.files("corrupt/");
    assert_eq!(aside.len(), 2, "{aside:?}");
}
