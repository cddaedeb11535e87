//! `status`, `list` and `show`: looking, at any time, without the lock.
//!
//! CONTRACT 5.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/bench.rs"]
mod bench;
mod support;

use std::fs;

use bench::{Bench, KEYED, assert_fields, assert_time};
use serde_json::{Value, json};
use support::{Receiver, Reply};

const NOWHERE: &str = "http://127.0.0.1:9";

/// A spool with one item in each state; the ids are in the order of the states.
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

fn receiver() -> Receiver {
    Receiver::by_path([
        ("/unknown", vec![Reply::reset()]),
        ("/failed", vec![Reply::status(422)]),
        (
            "/limited",
            vec![Reply::status(429).header("retry-after", "3000")],
        ),
    ])
}

const STATES: [&str; 5] = ["pending", "unknown", "held", "confirmed", "failed"];

#[test]
fn status_json_has_the_fields_of_the_contract() {
    let receiver = receiver();
    let (bench, _) = in_every_state(&receiver);
    let status = bench.json(&["status"]);
    let names = "at spool states corrupt incoming oldest_pending_s parked destinations last_tick";
    bench::assert_has_fields(&status, names);
    assert_time(&status["at"]);
    let spool = bench.spool().canonicalize().unwrap();
    assert_eq!(status["spool"], spool.to_str().unwrap());
    let one_each = json!({"pending": 1, "unknown": 1, "held": 1, "confirmed": 1, "failed": 1});
    assert_eq!(status["states"], one_each);
    assert_eq!(status["parked"], 1);
    assert_eq!(status["corrupt"], 0);
    assert_eq!(status["incoming"], 0);
    assert!(status["oldest_pending_s"].is_u64(), "{status:#}");
    let shop = &status["destinations"]["shop"];
    for state in STATES {
        assert_eq!(shop[state], 1, "{state}");
    }
    assert_eq!(shop["suspended"], Value::Null);
    assert_eq!(shop["parked"], 1);
    assert_time(&status["last_tick"]["ended_at"]);
    assert_eq!(status["last_tick"]["attempts"], 3);
}

#[test]
fn status_of_an_empty_spool_has_nulls_and_zeros() {
    let bench = Bench::with(&[("shop", NOWHERE, "")]);
    let status = bench.json(&["status"]);
    assert_eq!(status["last_tick"], Value::Null);
    assert_eq!(status["oldest_pending_s"], Value::Null);
    let none = json!({"pending": 0, "unknown": 0, "held": 0, "confirmed": 0, "failed": 0});
    assert_eq!(status["states"], none);
    // A destination without items is listed all the same.
    assert_eq!(status["destinations"]["shop"]["pending"], 0);
    bench
        .run(&["status"])
        .ok()
        .prints("no tick has run yet")
        .prints("shop");
}

#[test]
fn status_for_people_names_what_needs_them() {
    let receiver = receiver();
    let (bench, _) = in_every_state(&receiver);
    fs::write(bench.spool().join("corrupt/junk"), "x").unwrap();
    let printed = bench.run(&["status"]).ok().stdout;
    let rows: Vec<Vec<&str>> = printed
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let head = [
        "destination",
        "pending",
        "unknown",
        "parked",
        "held",
        "confirmed",
        "failed",
    ];
    assert_eq!(rows[1], head, "{printed}");
    assert_eq!(rows[2], ["shop", "1", "1", "1", "1", "1", "1"], "{printed}");
    assert_eq!(rows[3], ["all", "1", "1", "1", "1", "1", "1"], "{printed}");
    for words in [
        "1 parked",
        "tickpost resolve",
        "corrupt/",
        "the last tick ended",
        "the oldest pending item",
    ] {
        assert!(printed.contains(words), "{words}: {printed}");
    }
}

#[test]
fn status_tells_of_a_suspension_and_an_operators_hold() {
    let receiver = receiver();
    let bench = Bench::with(&[("shop", &receiver.url(), ""), ("other", NOWHERE, "")]);
    bench.enqueue("shop", &["--data", "x", "--path", "/limited"]);
    bench.run(&["tick"]).ok();
    bench.run(&["hold", "--destination", "other"]).ok();
    let status = bench.json(&["status"]);
    let suspended = &status["destinations"]["shop"]["suspended"];
    assert_fields(suspended, "reason until");
    assert_eq!(suspended["reason"], "rate_limited");
    assert_time(&suspended["until"]);
    assert_eq!(status["destinations"]["other"]["operator_hold"], true);
    let ran = bench
        .run(&["status"])
        .ok()
        .prints("suspended (rate_limited) until");
    ran.prints("other: held by ").prints(" since ");
}

#[test]
fn status_says_that_no_tick_tries_a_destination_of_which_all_is_held() {
    let receiver = Receiver::start(vec![Reply::status(401)]);
    let bench = Bench::with(&[("shop", &receiver.url(), "")]);
    bench.enqueue("shop", &["--data", "x"]);
    bench.tick();
    let mut memory = bench.read_json("destinations/shop.json");
    memory["suspended"]["until"] = json!("2020-01-01T00:00:00.000Z");
    let path = bench.spool().join("destinations/shop.json");
    fs::write(path, memory.to_string()).unwrap();
    assert_eq!(bench.tick()["attempts"], 0);
    let by_tick = "shop: suspended (auth_invalid) and the next tick tries it";
    let by_item = "shop: suspended (auth_invalid) until the next item tries it";
    let way_out = "release --state held --destination shop";
    let status = || bench.run(&["status"]).ok();
    status().prints(by_item).prints(way_out);
    let words: Vec<&str> = way_out.split(' ').collect();
    bench.run(&words).ok();
    status().prints(by_tick);
    bench.run(&["cancel", &bench.list_ids(&[]).remove(0)]).ok();
    let ran = status().prints(by_item);
    assert!(!ran.stdout.contains(way_out), "{ran:#?}");
}

#[test]
fn status_counts_by_destination_also_one_that_is_gone() {
    let bench = Bench::with(&[("one", NOWHERE, ""), ("two", NOWHERE, "")]);
    bench.enqueue("one", &["--data", "x"]);
    bench.enqueue("two", &["--data", "x"]);
    bench.enqueue("two", &["--data", "x"]);
    bench.configure("", &[("one", NOWHERE, "")]);
    let status = bench.json(&["status"]);
    assert_eq!(status["states"]["pending"], 3);
    assert_eq!(status["destinations"]["one"]["pending"], 1);
    assert_eq!(status["destinations"]["two"]["pending"], 2);
    assert_eq!(status["destinations"]["two"]["configured"], false);
    bench.run(&["status"]).ok().prints("not configured");
}

#[test]
fn readers_work_without_a_configuration_that_can_be_read() {
    let receiver = receiver();
    let (bench, ids) = in_every_state(&receiver);
    for text in ["[tick\n", ""] {
        bench.write_config(text);
        assert_eq!(bench.json(&["status"])["states"]["pending"], 1);
        assert_eq!(bench.list(&[]).len(), 5);
        assert_eq!(bench.show(&ids[0])["state"], "pending");
    }
    fs::remove_file(bench.spool().join("tickpost.toml")).unwrap();
    bench.json(&["status"]);
    assert_eq!(bench.list(&[]).len(), 5);
    bench.show(&ids[0]);
}

#[test]
fn without_a_spool_readers_exit_73() {
    let bench = Bench::bare();
    for words in [&["status"][..], &["list"], &["show", "0"]] {
        bench
            .run(words)
            .code(73)
            .says("there is no spool")
            .prints_nothing();
    }
}

#[test]
fn list_json_has_exactly_the_fields_of_the_contract() {
    let receiver = receiver();
    let (bench, ids) = in_every_state(&receiver);
    let names = "request_id state parked destination reason due attempts enqueued_at principal \
                 thread labels key first_sent_at updated_at file";
    for row in bench.list(&[]) {
        assert_fields(&row, names);
        let id = row["request_id"].as_str().unwrap();
        let spool = bench.spool().canonicalize().unwrap();
        let file = spool.join(bench.place(id));
        assert_eq!(row["file"], file.to_str().unwrap());
        assert_time(&row["enqueued_at"]);
        assert_time(&row["updated_at"]);
        let index = ids.iter().position(|known| known == id).unwrap();
        assert_eq!(row["state"], STATES[index]);
        assert_eq!(row["parked"], STATES[index] == "unknown");
        assert_eq!(row["destination"], "shop");
        let is_sent = ["unknown", "confirmed", "failed"].contains(&STATES[index]);
        assert_eq!(row["attempts"], u32::from(is_sent));
        assert_eq!(row["first_sent_at"].is_string(), is_sent, "{row:#}");
        assert_eq!(row["key"], Value::Null);
    }
    let row = &bench.list(&["--state", "failed"])[0];
    assert_eq!(row["updated_at"], bench.last_event(&ids[4])["at"]);
}

#[test]
fn list_has_the_newest_last_and_limit_takes_the_newest() {
    let bench = Bench::with(&[("one", NOWHERE, ""), ("two", NOWHERE, "")]);
    let names = ["two", "one", "two", "one"];
    // Of the second and the third nothing but the items tells when they were accepted.
    let own = [
        "",
        "f0000000-0000-4000-8000-000000000001",
        "00000000-0000-4000-8000-000000000002",
        "",
    ];
    let options = own.map(|id| {
        if id.is_empty() {
            vec![]
        } else {
            vec!["--request-id", id]
        }
    });
    let mut options = options.into_iter();
    let ids = names.map(|name| {
        let options = options.next().unwrap();
        bench.enqueue(name, &[&["--data", "x"][..], &options].concat())
    });
    assert_eq!(bench.list_ids(&[]), ids);
    assert_eq!(bench.list_ids(&["--limit", "2"]), ids[2..]);
    assert_eq!(bench.list_ids(&["--limit", "0"]), ids[4..]);
    assert_eq!(bench.list_ids(&["--limit", "9"]), ids);
    assert_eq!(
        bench.list_ids(&["--limit", "1", "--destination", "two"]),
        ids[2..3]
    );
    let printed = bench.run(&["list"]).ok().stdout;
    let lines: Vec<&str> = printed.lines().skip(1).collect();
    for (line, id) in lines.iter().zip(&ids) {
        assert!(line.starts_with(id), "{printed}");
    }
}

#[test]
fn every_filter_of_list() {
    let receiver = receiver();
    let (bench, ids) = in_every_state(&receiver);
    let more = [
        "--data",
        "x",
        "--principal",
        "alice",
        "--thread",
        "t 1",
        "--label",
        "a=1",
        "--label",
        "b=2",
    ];
    let alices = bench.enqueue("shop", &more);
    for (state, id) in STATES.iter().zip(&ids).skip(1) {
        assert_eq!(
            bench.list_ids(&["--state", state]),
            [id.as_str()],
            "{state}"
        );
    }
    let two = ["--state", "unknown", "--state", "held"];
    assert_eq!(bench.list_ids(&two).len(), 2);
    for filter in [
        &["--principal", "alice"][..],
        &["--thread", "t 1"],
        &["--label", "a=1"],
        &["--label", "a=1", "--label", "b=2"],
        &[
            "--principal",
            "alice",
            "--state",
            "pending",
            "--destination",
            "shop",
        ],
    ] {
        assert_eq!(bench.list_ids(filter), [alices.as_str()], "{filter:?}");
    }
    for filter in [
        &["--principal", "alic"][..],
        &["--thread", "t"],
        &["--label", "a=2"],
        &["--label", "a=1", "--label", "b=3"],
        &["--principal", "alice", "--state", "held"],
        &["--destination", "other"],
        &["--reason", "expired"],
        &["--key", "k"],
    ] {
        assert!(bench.list_ids(filter).is_empty(), "{filter:?}");
    }
    assert_eq!(bench.list_ids(&["--reason", "operator"]), [ids[2].clone()]);
    assert_eq!(
        bench.list_ids(&["--reason", "connection_lost"]),
        [ids[1].clone()]
    );
    assert_eq!(bench.list_ids(&["--destination", "shop"]).len(), 6);
}

#[test]
fn list_by_time_of_acceptance() {
    let bench = Bench::with(&[("shop", NOWHERE, "")]);
    let first = bench.enqueue("shop", &["--data", "x"]);
    let second = bench.enqueue("shop", &["--data", "x"]);
    let at = bench.list(&[])[1]["enqueued_at"]
        .as_str()
        .unwrap()
        .to_owned();
    let before = bench.list(&[])[0]["enqueued_at"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_ne!(at, before, "ids are a millisecond apart");
    assert_eq!(
        bench.list_ids(&["--since", &at]),
        [second.as_str()],
        "since includes its instant"
    );
    assert_eq!(
        bench.list_ids(&["--until", &at]),
        [first.as_str()],
        "until does not"
    );
    let both = [first, second];
    assert_eq!(bench.list_ids(&["--since", "1h"]), both);
    assert_eq!(
        bench.list_ids(&["--since", "2020-01-01", "--until", "2096-01-01"]),
        both
    );
    assert!(
        bench
            .list_ids(&["--since", "2096-01-01T00:00:00Z"])
            .is_empty()
    );
    assert!(bench.list_ids(&["--until", "1h"]).is_empty());
}

#[test]
fn an_empty_list_is_no_failure() {
    let bench = Bench::with(&[("shop", NOWHERE, "")]);
    bench
        .run(&["list"])
        .ok()
        .prints_nothing()
        .says("no item fits");
    let ran = bench.run(&["--json", "list"]).ok().prints_nothing();
    assert_eq!(ran.stderr, "");
}

#[test]
fn filters_that_are_none_are_2_and_names_that_are_none_65() {
    let bench = Bench::with(&[("shop", NOWHERE, "")]);
    for words in [
        &["list", "--state", "lost"][..],
        &["list", "--reason", "no_such_reason"],
        &["list", "--label", "no-equals"],
        &["list", "--since", "soon"],
        &["list", "--until", ""],
        &["list", "--limit", "-1"],
        &["list", "--limit", "many"],
        &["list", "surplus"],
    ] {
        bench.run(words).code(2).prints_nothing();
    }
    bench
        .run(&["list", "--reason", "auth_invald"])
        .code(2)
        .says("did you mean `auth_invalid`?");
    bench
        .run(&["list", "--state", "lost"])
        .code(2)
        .says("pending, unknown, held, confirmed, failed");
    for name in ["../shop", "Shop", "", "a/b"] {
        bench.run(&["list", "--destination", name]).code(65);
    }
}

#[test]
fn list_works_during_a_tick_and_shows_an_id_once() {
    let receiver = Receiver::start(vec![Reply::ok(), Reply::silent()]).otherwise(Reply::silent());
    let more = format!("{KEYED}\nconcurrency = 1");
    let bench = Bench::with(&[("shop", &receiver.url(), &more)]);
    let mut ids: Vec<String> = (0..4)
        .map(|_| bench.enqueue("shop", &["--data", "x"]))
        .collect();
    let running = bench.call(&["tick"]).start();
    receiver.wait_for(2);
    let rows = bench.list(&[]);
    let mut got: Vec<String> = rows
        .iter()
        .map(|row| row["request_id"].as_str().unwrap().to_owned())
        .collect();
    got.sort();
    ids.sort();
    assert_eq!(got, ids);
    let in_flight = rows
        .iter()
        .find(|row| row["request_id"] == *ids[1])
        .unwrap();
    assert_eq!(in_flight["state"], "unknown");
    assert_eq!(in_flight["parked"], false);
    let status = bench.json(&["status"]);
    let sum: u64 = STATES
        .iter()
        .map(|state| status["states"][state].as_u64().unwrap())
        .sum();
    assert_eq!(sum, 4, "{status:#}");
    let shown = bench.show(&ids[1]);
    assert_eq!(shown["state"], "unknown");
    assert!(
        shown["next"].as_str().unwrap().contains("being sent"),
        "{shown:#}"
    );
    drop(running);
}

#[test]
fn what_a_dead_tick_left_in_the_journal_counts_for_readers() {
    let receiver = Receiver::start(vec![Reply::ok(), Reply::silent()]);
    let more = format!("{KEYED}\nconcurrency = 1");
    let bench = Bench::with(&[("shop", &receiver.url(), &more)]);
    let done = bench.enqueue("shop", &["--data", "x"]);
    let lost = bench.enqueue("shop", &["--data", "x"]);
    let running = bench.call(&["tick"]).start();
    receiver.wait_for(2);
    running.kill();
    running.end();
    assert_eq!(bench.list(&[]).len(), 2);
    assert_eq!(bench.show(&lost)["state"], "unknown");
    // The answer to the first was known before the second was sent.
    let shown = bench.show(&done);
    assert_eq!(shown["state"], "confirmed");
    assert_eq!(shown["events"][1]["status"], 200);
    assert_eq!(bench.list_ids(&["--state", "confirmed"]), [done]);
}

#[test]
fn show_json_has_the_fields_of_the_contract() {
    let receiver = receiver();
    let (bench, ids) = in_every_state(&receiver);
    for (state, id) in STATES.iter().zip(&ids) {
        let shown = bench.show(id);
        bench::assert_has_fields(&shown, "request_id state envelope events file next");
        assert_eq!(shown["request_id"], *id);
        assert_eq!(shown["state"], *state);
        let mut lines = bench.item(id);
        assert_eq!(shown["envelope"], lines.remove(0));
        assert_eq!(shown["events"], Value::Array(lines));
        let file = bench.spool().canonicalize().unwrap().join(bench.place(id));
        assert_eq!(shown["file"], file.to_str().unwrap());
        let next = shown["next"].as_str().unwrap();
        let wanted = match *state {
            "pending" => "next tick sends it",
            "unknown" => "tickpost resolve",
            "held" => "tickpost release",
            "confirmed" => "acknowledged",
            _ => "tickpost retry",
        };
        assert!(next.contains(wanted), "{state}: {next}");
    }
}

#[test]
fn show_for_people_tells_everything() {
    let receiver = receiver();
    let bench = Bench::with(&[("shop", &receiver.url(), "")]);
    let options = [
        "--data",
        "the body",
        "--path",
        "/failed",
        "--query",
        "a=b",
        "--header",
        "X-T: 7",
        "--thread",
        "deploy-42",
        "--label",
        "env=prod",
        "--principal",
        "alice",
    ];
    let id = bench.enqueue("shop", &options);
    bench.run(&["tick"]).ok();
    let printed = bench.run(&["show", &id]).ok().stdout;
    for words in [
        id.as_str(),
        "failed",
        "shop",
        "POST /failed",
        "a=b",
        "X-T: 7",
        "the body",
        "deploy-42",
        "env=prod",
        "alice",
        "accepted",
        "attempt 1",
        "HTTP 422",
        "default/",
        "next",
    ] {
        assert!(printed.contains(words), "{words}: {printed}");
    }
}

#[test]
fn show_takes_prefixes_several_ids_and_standard_input() {
    let bench = Bench::with(&[("shop", NOWHERE, "")]);
    let first = bench.enqueue("shop", &["--data", "1"]);
    let second = bench.enqueue("shop", &["--data", "2"]);
    // Ids begin with their time: of two in the same second the first digits are the same.
    bench
        .run(&["show", &first[..4]])
        .code(2)
        .says("is the beginning of 2 request ids");
    let unique = &first[..first.len() - 1];
    assert_eq!(bench.show(unique)["request_id"], *first);
    let both = bench.run(&["--json", "show", &second, &first]).ok().lines();
    let id = |shown: &Value| shown["request_id"].as_str().unwrap().to_owned();
    assert_eq!(
        both.iter().map(id).collect::<Vec<_>>(),
        [second.clone(), first.clone()]
    );
    let input = format!("{first}\n\n  {second}  \r\n");
    let both = bench
        .call(&["--json", "show", "-"])
        .stdin(input)
        .run()
        .ok()
        .lines();
    assert_eq!(both.iter().map(id).collect::<Vec<_>>(), [first, second]);
}

#[test]
fn show_of_what_is_not_there_is_66_and_of_no_id_2() {
    let bench = Bench::with(&[("shop", NOWHERE, "")]);
    let id = bench.enqueue("shop", &["--data", "x"]);
    let other = "01a228af-9284-74bb-b250-40eff85f347b";
    bench
        .run(&["show", other])
        .code(66)
        .says(other)
        .prints_nothing();
    bench.run(&["show", "ffffffff"]).code(66);
    for text in ["", "xyz", "../x", &format!("{id}.jsonl"), "%"] {
        bench.run(&["show", text]).code(2);
    }
    bench.run(&["show"]).code(2);
    bench.run(&["show", &id.to_uppercase()]).ok();
    // One that is missing does not hide the one that is there.
    bench
        .run(&["--json", "show", &id, other])
        .code(66)
        .says(other)
        .prints(&id);
    bench
        .run(&["--json", "show", other, &id])
        .code(66)
        .says(other)
        .prints(&id);
}
