//! `audit`: everything that was accepted is in one place or pruned, and what is not is named.
//!
//! CONTRACT G2 and 5.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/bench.rs"]
mod bench;
#[path = "support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use bench::{Bench, KEYED, Ran, assert_fields, assert_time, day_of};
use serde_json::{Value, json};
use support::{Receiver, Reply, closed_port};

const NEW: [&str; 3] = ["--quiet", "enqueue", "shop"];

fn shop() -> Bench {
    Bench::with(&[("shop", &closed_port(), KEYED)])
}

/// Audits, and checks the exit code and that the figures add up.
#[track_caller]
fn audit(bench: &Bench, code: i32) -> Value {
    let said = bench.run(&["--json", "audit"]).code(code).json();
    let number = |name: &str| said[name].as_u64().unwrap();
    let missing = said["missing"].as_array().unwrap().len() as u64;
    let sum = number("in_place") + number("pruned") + number("corrupt") + missing;
    assert_eq!(number("accepted"), sum, "{said:#}");
    let states = said["states"].as_object().unwrap().values();
    let in_states: u64 = states.map(|n| n.as_u64().unwrap()).sum();
    assert_eq!(number("in_place"), in_states, "{said:#}");
    for (of_all, of_each) in [
        ("accepted", "accepted"),
        ("in_place", "in_place"),
        ("pruned", "pruned"),
        ("corrupt", "corrupt"),
    ] {
        let by = said["by"].as_array().unwrap().iter();
        let sum: u64 = by.map(|row| row[of_each].as_u64().unwrap()).sum();
        assert_eq!(number(of_all), sum, "{said:#}");
    }
    said
}

/// The figures of an audit: accepted, in place, pruned, corrupt, in no ledger.
fn figures(said: &Value) -> [u64; 5] {
    ["accepted", "in_place", "pruned", "corrupt", "unlisted"]
        .map(|name| said[name].as_u64().unwrap())
}

/// The one ledger of a bench: everything was accepted today, unless midnight has just gone by.
fn ledgers(bench: &Bench) -> Vec<PathBuf> {
    let files = bench.files("log/accepted-");
    files.iter().map(|path| bench.spool().join(path)).collect()
}

fn ledger(bench: &Bench) -> PathBuf {
    ledgers(bench).pop().unwrap()
}

fn names(ran: &Ran, id: &str) -> bool {
    ran.stdout.lines().any(|line| line.contains(id))
}

#[test]
fn whatever_way_an_item_came_it_is_listed_and_found() {
    let receiver = Receiver::start(vec![Reply::ok(), Reply::status(400)]).otherwise(Reply::ok());
    let bench = Bench::new();
    let ops = format!("{}/ops", receiver.url());
    bench.configure(
        "[notify]\ndestinations = [\"ops\"]",
        &[("shop", &receiver.url(), KEYED), ("ops", &ops, "")],
    );
    assert_eq!(figures(&audit(&bench, 0)), [0; 5]);
    let one = bench.enqueue("shop", &["--data", "x", "--principal", "alice"]);
    let listed = bench.read_json(&format!("log/{}", {
        let name = ledger(&bench);
        name.file_name().unwrap().to_str().unwrap().to_owned()
    }));
    assert_fields(&listed, "request_id destination principal at");
    assert_eq!(listed["request_id"], one.as_str());
    assert_eq!(
        (&listed["destination"], &listed["principal"]),
        (&"shop".into(), &"alice".into())
    );
    assert_time(&listed["at"]);
    let accepted = &bench.item(&one)[1]["at"];
    assert_eq!(&listed["at"], accepted);
    let name = format!("log/accepted-{}.jsonl", day_of(accepted));
    assert_eq!(bench.files("log/accepted-"), [name]);

    let line = json!({"destination": "shop", "request": {}, "requester": {"principal": "bob"}});
    let batch = format!("{line}\n").repeat(7);
    bench
        .call(&["--quiet", "enqueue", "--batch"])
        .stdin(batch)
        .run()
        .ok();
    bench.enqueue("shop", &["--data", "x", "--hold", "a person looks"]);
    // Offered twice under one key, accepted once.
    for _ in 0..2 {
        bench.enqueue("shop", &["--data", "k", "--key", "k", "--principal", "bob"]);
    }
    bench.tick();
    fs::write(
        bench.spool().join("incoming/shop/drop.json"),
        json!({"request": {}, "requester": {"principal": "carol"}}).to_string(),
    )
    .unwrap();
    bench.tick();
    let said = audit(&bench, 0);
    assert_fields(
        &said,
        "at accepted in_place states pruned corrupt unlisted without_ledger unreadable_lines missing doubled by",
    );
    assert_time(&said["at"]);
    // One alone, seven, one held, one with a key, a drop, and the notice that one has failed.
    assert_eq!(figures(&said), [12, 12, 0, 0, 0]);
    assert_eq!(said["states"]["failed"], 1);
    assert_eq!(said["states"]["held"], 1);
    let by: BTreeMap<String, u64> = said["by"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            assert_fields(
                row,
                "destination principal accepted in_place pruned corrupt missing",
            );
            let principal = row["principal"].as_str().unwrap_or("-");
            let name = format!("{} {principal}", row["destination"].as_str().unwrap());
            (name, row["accepted"].as_u64().unwrap())
        })
        .collect();
    for (name, accepted) in [
        ("shop alice", 1),
        ("shop bob", 8),
        ("shop carol", 1),
        ("ops tickpost", 1),
    ] {
        assert_eq!(by.get(name), Some(&accepted), "{by:?}");
    }

    let again = bench.run(&["audit"]).ok();
    assert_eq!(again.stderr, "");
    let again = again.prints("nothing is missing, and nothing is in two places");
    let row = |words: &str| {
        let has = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ") == words;
        assert!(again.stdout.lines().any(has), "no `{words}`: {again:#?}");
    };
    row("accepted 12");
    row("failed 1");
    row("in no ledger 0");
    row("shop bob 8 8 0 0 0");
}

#[test]
fn what_is_pruned_is_accounted_for_until_it_is_forgotten() {
    let receiver = Receiver::start(Vec::new());
    let bench = Bench::new();
    let shop = [("shop", &*receiver.url(), "")];
    bench.configure("[retention]\nconfirmed = \"1d\"\n", &shop);
    let id = bench.enqueue("shop", &["--data", "x"]);
    bench.tick();
    // As if all of it had been so long ago.
    let place = bench.place(&id);
    let then = "20200101";
    let old = place.split('/').nth(2).unwrap().to_owned();
    let today = format!("{}-{}-{}", &old[..4], &old[4..6], &old[6..]);
    let rename = |from: &str, to: &str| {
        let text = fs::read_to_string(bench.spool().join(from)).unwrap();
        fs::remove_file(bench.spool().join(from)).unwrap();
        let to = bench.spool().join(to);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::write(to, text.replace(&today, "2020-01-01")).unwrap();
    };
    let ledger = format!("log/accepted-{then}.jsonl");
    rename(&format!("log/accepted-{old}.jsonl"), &ledger);
    let text = fs::read_to_string(bench.spool().join(&place)).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines[0] = lines[0].replace(&today, "2020-01-01");
    lines[1] = lines[1].replace(&today, "2020-01-01");
    lines[2] = lines[2].replace(&today, "2020-01-01");
    let mut second: Value = serde_json::from_str(&lines[1]).unwrap();
    let sum = tickpost::model::envelope::sha256_hex(lines[0].as_bytes());
    second["envelope_sha256"] = sum.into();
    lines[1] = second.to_string();
    fs::remove_file(bench.spool().join(&place)).unwrap();
    let place = format!("confirmed/shop/{then}/{id}.jsonl");
    fs::create_dir_all(bench.spool().join(format!("confirmed/shop/{then}"))).unwrap();
    fs::write(bench.spool().join(place), lines.join("\n") + "\n").unwrap();
    assert_eq!(figures(&audit(&bench, 0)), [1, 1, 0, 0, 0]);

    // The ledger is past the retention of tombstones, but not before its items are.
    bench.configure(
        "[retention]\nconfirmed = \"1d\"\ntombstones = \"9000d\"\n",
        &shop,
    );
    assert_eq!(bench.json(&["prune"])["pruned"], 1);
    assert_eq!(figures(&audit(&bench, 0)), [1, 0, 1, 0, 0]);
    bench.run(&["audit"]).ok().prints("nothing is missing");
    bench.configure("[retention]\nconfirmed = \"1d\"\n", &shop);
    for day in ["20190101", "20190102"] {
        bench.write_tick_line(day, "2019-01-01T00:00:00.000Z");
    }
    bench
        .run(&["prune", "--dry-run"])
        .ok()
        .prints("ledgers of 1 day would be forgotten")
        .prints("logs of ticks of 2 days would be forgotten");
    let said = bench.json(&["prune"]);
    assert_eq!(
        (&said["ledger_files"], &said["tick_files"]),
        (&1.into(), &2.into())
    );
    assert!(ledgers(&bench).is_empty());
    assert_eq!(bench.files("log/ticks-").len(), 1, "the last tick's stays");
    assert_eq!(figures(&audit(&bench, 0)), [0; 5], "the tombstone is there");
    let tombstones = bench.files("log/pruned-").pop().unwrap();
    fs::rename(
        bench.spool().join(tombstones),
        bench.spool().join("log/pruned-20200201.jsonl"),
    )
    .unwrap();
    assert_eq!(bench.json(&["prune"])["tombstone_files"], 1);
    assert_eq!(figures(&audit(&bench, 0)), [0; 5]);
}

#[test]
fn what_is_gone_is_named_with_what_is_known_of_it() {
    let bench = shop();
    let kept = bench.enqueue("shop", &["--data", "x"]);
    let lost = bench.enqueue("shop", &["--data", "x", "--principal", "alice"]);
    let file = bench.spool().join(bench.place(&lost));
    let away = bench.dir().join("away");
    fs::rename(&file, &away).unwrap();
    let said = audit(&bench, 1);
    assert_eq!(figures(&said), [2, 1, 0, 0, 0]);
    let missing = &said["missing"][0];
    assert_fields(missing, "request_id destination principal at");
    assert_eq!(missing["request_id"], lost.as_str());
    assert_eq!(
        (&missing["destination"], &missing["principal"]),
        (&"shop".into(), &"alice".into())
    );
    let ran = bench.run(&["audit"]).code(1);
    assert!(names(&ran, &lost) && !names(&ran, &kept), "{ran:#?}");
    let line = ran.stdout.lines().find(|line| line.contains(&lost));
    let line = line.unwrap().to_owned();
    assert!(line.contains("shop") && line.contains("alice"), "{line}");
    ran.prints("lost+found").says_not("error");

    // A move by a tick is no loss.
    fs::rename(&away, &file).unwrap();
    bench.tick();
    assert_eq!(figures(&audit(&bench, 0)), [2, 2, 0, 0, 0]);
}

#[test]
fn a_copy_in_another_place_is_named_with_both() {
    let bench = shop();
    let id = bench.enqueue("shop", &["--data", "x"]);
    let place = bench.place(&id);
    let copy = format!("held/shop/{id}.jsonl");
    fs::create_dir_all(bench.spool().join("held/shop")).unwrap();
    fs::copy(bench.spool().join(&place), bench.spool().join(&copy)).unwrap();
    let said = audit(&bench, 1);
    assert_eq!(figures(&said), [1, 1, 0, 0, 0], "it counts once");
    assert_eq!(said["missing"], json!([]));
    assert_eq!(
        said["doubled"],
        json!([{"request_id": id, "files": [place, copy]}])
    );
    bench
        .run(&["audit"])
        .code(1)
        .prints(&format!("{id} is in 2 places, to shop"))
        .prints(&format!("  {place}\n  {copy}\n"));

    // Also one that no ledger lists, and a second name of the same file.
    fs::remove_file(bench.spool().join(&copy)).unwrap();
    fs::remove_file(ledger(&bench)).unwrap();
    fs::hard_link(bench.spool().join(&place), bench.spool().join(&copy)).unwrap();
    let said = audit(&bench, 1);
    assert_eq!(figures(&said), [0, 0, 0, 0, 1]);
    assert_eq!(said["doubled"][0]["files"], json!([place, copy]));
}

#[test]
fn an_item_that_was_set_aside_is_no_loss_as_long_as_its_reason_is_there() {
    let bench = shop();
    let id = bench.enqueue("shop", &["--data", "x"]);
    fs::write(bench.spool().join(bench.place(&id)), "no item").unwrap();
    assert_eq!(figures(&audit(&bench, 0)), [1, 1, 0, 0, 0], "by its name");
    assert_eq!(bench.tick()["corrupt"], 1);
    assert_eq!(figures(&audit(&bench, 0)), [1, 0, 0, 1, 0]);
    let aside = bench.spool().join(format!("corrupt/{id}.jsonl"));
    fs::remove_file(&aside).unwrap();
    assert_eq!(figures(&audit(&bench, 0)), [1, 0, 0, 1, 0]);
    assert_eq!(bench.json(&["status"])["corrupt"], 0);
    fs::write(&aside, "no item").unwrap();
    fs::remove_file(aside.with_extension("jsonl.why.json")).unwrap();
    assert_eq!(figures(&audit(&bench, 0)), [1, 0, 0, 1, 0]);
    fs::remove_file(&aside).unwrap();
    assert_eq!(audit(&bench, 1)["missing"][0]["request_id"], id.as_str());
}

/// A person has removed the file and kept its reason, and the name comes again.
#[test]
fn a_reason_that_was_kept_is_not_taken_for_that_of_the_next_file() {
    let bench = shop();
    bench.tick();
    let drop_box = bench.spool().join("incoming/shop/order.json");
    let reason = |text: &str| {
        fs::write(&drop_box, text).unwrap();
        assert_eq!(bench.tick()["corrupt"], 1);
        let aside = bench.spool().join("corrupt/order.json");
        assert_eq!(fs::read_to_string(&aside).unwrap(), text);
        fs::remove_file(aside).unwrap();
        bench.read_json("corrupt/order.json.why.json")["reason"].clone()
    };
    let first = reason("{}");
    let second = reason(r#"{"request":{},"destination":"nowhere"}"#);
    assert_ne!(first, second);
    assert_eq!(bench.files("corrupt/"), ["corrupt/order.json.why.json"]);
}

/// The item beside its tombstone: a pruning that died between the two.
#[test]
fn an_item_beside_its_tombstone_counts_once() {
    let bench = shop();
    let id = bench.enqueue("shop", &["--data", "x"]);
    bench.run(&["cancel", &id]).ok();
    let bytes = fs::read(bench.spool().join(bench.place(&id))).unwrap();
    let item = tickpost::model::item::Item::parse(&bytes).unwrap().item;
    let at = item.events[0].at;
    let tombstone = tickpost::model::tombstone::Tombstone::of(&item, at).unwrap();
    let log = format!("log/pruned-{}.jsonl", at.day_name());
    fs::write(bench.spool().join(log), tombstone.line().unwrap()).unwrap();
    assert_eq!(figures(&audit(&bench, 0)), [1, 1, 0, 0, 0]);
    fs::remove_file(bench.spool().join(bench.place_of_item(&id))).unwrap();
    assert_eq!(figures(&audit(&bench, 0)), [1, 0, 1, 0, 0]);
}

#[test]
fn what_a_loss_of_power_does_to_a_ledger_is_no_error() {
    let bench = shop();
    let ids: Vec<String> = (0..3)
        .map(|_| bench.enqueue("shop", &["--data", "x"]))
        .collect();
    let path = ledger(&bench);
    let whole = fs::read(&path).unwrap();
    let line = whole.len() / 3;
    let zeros = |from: usize| [&whole[..from], &vec![0; whole.len() - from][..]].concat();
    let rows: [(&str, Vec<u8>, u64, u64); 7] = [
        ("nothing is left", Vec::new(), 0, 0),
        (
            "the last newline is gone",
            whole[..whole.len() - 1].to_vec(),
            3,
            0,
        ),
        (
            "the last line is cut",
            whole[..2 * line + 60].to_vec(),
            2,
            1,
        ),
        ("cut after a line", whole[..2 * line].to_vec(), 2, 0),
        ("the end is zeros", zeros(line + 30), 1, 1),
        ("all of it is zeros", zeros(0), 0, 1),
        ("the start is lost", whole[20..].to_vec(), 2, 1),
    ];
    for (what, bytes, listed, unreadable) in rows {
        fs::write(&path, &bytes).unwrap();
        let said = audit(&bench, 0);
        assert_eq!(figures(&said), [listed, listed, 0, 0, 3 - listed], "{what}");
        assert_eq!(said["unreadable_lines"], unreadable, "{what}");
        let ran = bench.run(&["audit"]).ok();
        let told = ran.stdout.contains("of the ledgers cannot be read");
        assert_eq!(told, unreadable > 0, "{what}: {ran:#?}");
        let told = ran.stdout.contains("in no ledger: accepted before");
        assert_eq!(told, listed < 3, "{what}: {ran:#?}");

        // What is accepted after that is listed all the same.
        let next = bench.enqueue("shop", &["--data", "next"]);
        let said = audit(&bench, 0);
        let cut = bytes.last().is_some_and(|last| *last != b'\n');
        let joined = what == "the last newline is gone";
        let listed = if joined { 3 } else { listed + 1 };
        assert_eq!(said["accepted"], listed, "{what}");
        assert_eq!(
            said["unreadable_lines"],
            u64::from(cut || unreadable > 0),
            "{what}"
        );
        bench.run(&["cancel", &next]).ok();
        fs::remove_file(bench.spool().join(bench.place_of_item(&next))).unwrap();
        let missing = audit(&bench, 1)["missing"].clone();
        assert_eq!(missing[0]["request_id"], next.as_str(), "{what}");
    }
    assert_eq!(ids.len(), 3);
}

#[test]
fn a_spool_from_before_there_were_ledgers_is_clean() {
    let bench = shop();
    for _ in 0..3 {
        bench.enqueue("shop", &["--data", "x"]);
    }
    let path = ledger(&bench);
    let text = fs::read_to_string(&path).unwrap();
    let last = text.trim_end().rfind('\n').unwrap() + 1;
    // Of that day there is one: only the line was lost.
    fs::write(&path, &text[last..]).unwrap();
    let said = audit(&bench, 0);
    assert_eq!(figures(&said), [1, 1, 0, 0, 2]);
    assert_eq!(said["without_ledger"], 0);
    bench
        .run(&["audit"])
        .ok()
        .prints("2 items are in no ledger")
        .prints("\nnothing is missing, and");
    // There is one, of another day.
    let name = "log/accepted-20991231.jsonl";
    fs::rename(&path, bench.spool().join(name)).unwrap();
    let said = audit(&bench, 0);
    assert_eq!(said["without_ledger"], 2);
    bench
        .run(&["audit"])
        .ok()
        .prints("there is no ledger (the first is of 2099-12-31, UTC): what else was accepted then is not known");
    fs::remove_file(bench.spool().join(name)).unwrap();
    let said = audit(&bench, 0);
    assert_eq!(figures(&said), [0, 0, 0, 0, 3]);
    assert_eq!(said["without_ledger"], 3);
    assert_eq!(said["by"], json!([]));
    let own_id = "7d2f1c9e-4b5a-4c1d-8e3f-60718293a4b5";
    bench.enqueue("shop", &["--data", "x", "--request-id", own_id]);
    fs::remove_file(ledger(&bench)).unwrap();
    bench
        .run(&["audit"])
        .ok()
        .prints("4 items are in no ledger")
        .prints("4 of them were accepted on a day of which there is no ledger (there is none at all): what else was accepted then is not known, and cannot be said to be missing")
        .prints("nothing that a ledger lists is missing");
    fs::remove_dir_all(bench.spool().join("log")).unwrap();
    assert_eq!(figures(&audit(&bench, 0)), [0, 0, 0, 0, 4]);
    bench.enqueue("shop", &["--data", "x"]);
    assert_eq!(figures(&audit(&bench, 0)), [1, 1, 0, 0, 4]);
}

/// A ledger that cannot be written costs no item.
#[test]
fn what_stands_where_the_ledger_belongs_is_in_nobodys_way() {
    let bench = shop();
    let id = bench.enqueue("shop", &["--data", "x"]);
    let path = ledger(&bench);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    bench.enqueue("shop", &["--data", "x"]);
    let said = audit(&bench, 0);
    assert_eq!(figures(&said), [0, 0, 0, 0, 2]);
    assert_eq!(
        said["unreadable_lines"], 1,
        "a directory hides what it lists"
    );
    fs::remove_dir(&path).unwrap();
    std::os::unix::fs::symlink(bench.dir().join("elsewhere"), &path).unwrap();
    let ran = bench.call(&NEW).stdin("x").run().ok();
    assert_eq!(ran.stderr, "");
    assert!(!bench.dir().join("elsewhere").exists());
    assert_eq!(figures(&audit(&bench, 0)), [0, 0, 0, 0, 3]);
    assert!(bench.place(&id).starts_with("pending/shop/"));
}

#[test]
fn a_directory_that_cannot_be_read_is_an_error_and_no_loss() {
    use std::os::unix::fs::PermissionsExt as _;
    let bench = shop();
    bench.enqueue("shop", &["--data", "x"]);
    let dir = bench.spool().join("pending/shop");
    let mode = |mode: u32| fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).unwrap();
    mode(0o000);
    let is_root = fs::read_dir(&dir).is_ok();
    let ran = bench.run(&["audit"]);
    mode(0o700);
    if is_root {
        // Root may read everything.
        ran.ok();
    } else {
        ran.code(77).says("pending/shop").prints_nothing();
    }
    assert_eq!(figures(&audit(&bench, 0)), [1, 1, 0, 0, 0]);
}

#[test]
fn it_waits_for_a_tick_and_then_says_who_has_the_lock() {
    let bench = shop();
    bench.enqueue("shop", &["--data", "x"]);
    let lock = bench.hold_lock("tick, process 4711");
    bench
        .run(&["audit", "--wait", "0"])
        .code(75)
        .says("process 4711")
        .prints_nothing();
    let mut waiting = bench.call(&["audit", "--wait", "60"]).start();
    assert!(waiting.runs());
    drop(lock);
    waiting.end().ok().prints("nothing is missing");
}

/// What a dead tick was sending is in unknown, and no second tick is needed to find it.
#[test]
fn what_a_killed_tick_was_sending_is_found() {
    let receiver = Receiver::start(vec![Reply::silent(), Reply::silent()]);
    let bench = Bench::with(&[("shop", &receiver.url(), KEYED)]);
    for _ in 0..3 {
        bench.enqueue("shop", &["--data", "x"]);
    }
    let tick = bench.call(&["tick"]).start();
    receiver.wait_for(2);
    tick.kill();
    drop(tick.end());
    let said = audit(&bench, 0);
    assert_eq!(figures(&said), [3, 3, 0, 0, 0]);
    assert!(said["states"]["unknown"].as_u64().unwrap() >= 2, "{said:#}");
}

#[test]
fn it_is_clean_while_producers_run() {
    let bench = shop();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let ordering = std::sync::atomic::Ordering::SeqCst;
    let accepted = std::thread::scope(|scope| {
        let produce = |hold: bool| {
            let mut accepted = 0;
            while !stop.load(ordering) {
                let line = if hold {
                    json!({"destination": "shop", "request": {}, "hold": "a person looks"})
                } else {
                    json!({"destination": "shop", "request": {}})
                };
                let batch = format!("{line}\n").repeat(60);
                let call = bench.call(&["--quiet", "enqueue", "--batch"]);
                accepted += call.stdin(batch).run().ok().stdout.lines().count() as u64;
            }
            accepted
        };
        let producers = [false, true].map(|hold| scope.spawn(move || produce(hold)));
        let mut last = 0;
        for round in 0..12 {
            if round % 3 == 0 {
                bench.tick();
            }
            let said = audit(&bench, 0);
            assert_eq!(said["unreadable_lines"], 0);
            let [accepted, ..] = figures(&said);
            assert!(accepted >= last, "{said:#}");
            last = accepted;
        }
        stop.store(true, ordering);
        producers.map(|producer| producer.join().unwrap())
    });
    let all = accepted[0] + accepted[1];
    assert_eq!(figures(&audit(&bench, 0)), [all, all, 0, 0, 0]);
}
