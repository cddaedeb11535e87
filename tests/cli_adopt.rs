//! `doctor --adopt`: a copied spool becomes one of its own, and sends nothing before a person says
//! so.
//!
//! CONTRACT 3 and 5.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/bench.rs"]
mod bench;
mod support;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use bench::{Bench, KEYED, Ran};
use serde_json::Value;
use support::{Receiver, Reply};

/// A copy of a bench's spool, as `cp -a` makes it.
struct Copy<'a> {
    of: &'a Bench,
    root: PathBuf,
}

impl<'a> Copy<'a> {
    fn of(bench: &'a Bench) -> Self {
        let root = bench.dir().join("copy");
        let mut cp = Command::new("cp");
        let done = cp.arg("-a").args([bench.spool(), &root]).status();
        assert!(done.unwrap().success());
        Self { of: bench, root }
    }

    fn run(&self, words: &[&str]) -> Ran {
        let mut all = vec!["--spool", self.root.to_str().unwrap()];
        all.extend(words);
        self.of.call_plain(&all).run()
    }

    fn json(&self, words: &[&str]) -> Value {
        let mut all = vec!["--json"];
        all.extend(words);
        self.run(&all).ok().json()
    }

    fn list(&self, filters: &[&str]) -> Vec<Value> {
        let mut all = vec!["--json", "list"];
        all.extend(filters);
        self.run(&all).ok().lines()
    }

    fn described(&self) -> Value {
        serde_json::from_str(&fs::read_to_string(self.root.join("spool.json")).unwrap()).unwrap()
    }
}

/// Items in every state and slot, one of them interrupted by the death of its tick.
fn spool_of_every_state() -> (Bench, Receiver) {
    let receiver = Receiver::start(vec![
        Reply::ok(),
        Reply::status(400),
        Reply::status(401),
        Reply::close(),
        Reply::close(),
        Reply::status(503),
        Reply::ok().gated(),
    ]);
    let url = receiver.url();
    let names = ["ok", "bad", "auth", "keyed", "plain", "busy", "slow"];
    let more = |name: &str| if name == "plain" { "" } else { KEYED };
    let all: Vec<_> = names
        .iter()
        .map(|name| (*name, url.as_str(), more(name)))
        .collect();
    let bench = Bench::with(&all);
    for name in &names[..6] {
        bench.enqueue(name, &["--data", "x", "--key", "k"]);
        bench.tick();
    }
    bench.enqueue("slow", &["--data", "x"]);
    let tick = bench.call(&["tick"]).start();
    receiver.wait_for(7);
    tick.kill();
    tick.end();
    receiver.open_gate();
    bench.enqueue("ok", &["--data", "now"]);
    bench.enqueue("ok", &["--data", "later", "--not-before", "+5h"]);
    let large = bench.file("large", vec![b'x'; 100_000]);
    bench.enqueue("ok", &["--file", &large]);
    bench.enqueue("ok", &["--data", "held", "--hold", "not yet"]);
    (bench, receiver)
}

#[test]
fn an_adopted_copy_sends_nothing_before_it_is_released() {
    let (bench, receiver) = spool_of_every_state();
    let before = bench.tree();
    let copy = Copy::of(&bench);
    copy.run(&["doctor"]).code(1).prints("doctor --adopt");
    copy.run(&["doctor", "--repair"])
        .code(78)
        .says("doctor --adopt");
    copy.run(&["tick"]).code(78);

    let ran = copy.run(&["doctor", "--adopt"]).ok();
    let ran = ran.prints("6 held, 3 parked");
    ran.prints("release --state held --reason restored")
        .prints("first see what the original has sent since the copy was made");
    let held = copy.list(&["--state", "held", "--reason", "restored"]);
    let id = held[0]["request_id"].as_str().unwrap();
    let next = copy.json(&["show", id])["next"].to_string();
    assert!(next.contains("may have been sent already"), "{next}");
    let described = copy.described();
    let lock = fs::metadata(copy.root.join("lock")).unwrap().ino();
    assert_eq!(described["lock_inode"], lock);
    assert_ne!(
        described["spool_id"],
        bench.read_json("spool.json")["spool_id"]
    );

    let seen = receiver.arrivals().len();
    for _ in 0..3 {
        let tick = copy.json(&["tick"]);
        assert_eq!(
            (&tick["attempts"], &tick["released"]),
            (&0.into(), &0.into())
        );
    }
    assert_eq!(receiver.arrivals().len(), seen, "nothing is sent");
    let states = copy.json(&["status"])["states"].clone();
    assert_eq!(
        states,
        serde_json::json!({"pending": 0, "unknown": 3, "held": 6, "confirmed": 1, "failed": 1})
    );
    for row in copy.list(&["--reason", "restored"]) {
        assert_eq!(row["due"], Value::Null, "{row}");
        assert_eq!(row["parked"], row["state"] == "unknown", "{row}");
        let id = row["request_id"].as_str().unwrap();
        let events = copy.json(&["show", id])["events"].clone();
        let last = events.as_array().unwrap().last().unwrap().clone();
        assert!(last["by"].as_str().unwrap().ends_with(')'), "{last}");
    }
    assert_eq!(copy.list(&["--reason", "restored"]).len(), 9);
    copy.run(&["doctor"]).ok().prints("nothing found");

    copy.run(&["release", "--state", "held", "--reason", "restored"])
        .ok();
    for name in ["auth", "busy"] {
        // A suspension is copied with the rest.
        copy.run(&["release", "--destination", name]).ok();
    }
    let tick = copy.json(&["tick"]);
    assert_eq!(tick["confirmed"], 5, "{tick:#}");
    let parked = copy.list(&["--state", "unknown", "--reason", "restored"]);
    for row in &parked {
        copy.run(&[
            "resolve",
            "--confirmed",
            row["request_id"].as_str().unwrap(),
        ])
        .ok();
    }
    assert_eq!(copy.json(&["status"])["states"]["confirmed"], 9);
    copy.run(&["doctor"]).ok();
    assert_eq!(bench.tree(), before, "the original is as it was");
}

#[test]
fn a_timed_hold_of_a_copy_does_not_release_itself() {
    let receiver = Receiver::start(vec![]);
    let bench = Bench::with(&[("shop", &receiver.url(), KEYED)]);
    let id = bench.enqueue("shop", &["--data", "x"]);
    bench
        .run(&["hold", &id, "--release-at", "+1h", "--note", "wait"])
        .ok();
    let copy = Copy::of(&bench);
    let said = copy.json(&["doctor", "--adopt"]);
    assert_eq!(said["adopted"], serde_json::json!({"held": 1, "parked": 0}));
    let item = copy.json(&["show", &id]);
    assert!(
        item["file"]
            .as_str()
            .unwrap()
            .ends_with(&format!("held/shop/{id}.jsonl"))
    );
    let last = item["events"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&last["event"], &last["reason"]),
        (&"held".into(), &"restored".into())
    );
    assert_eq!(last["note"], "in the original it was held: operator");
}

#[test]
fn a_spool_that_is_no_copy_is_not_changed() {
    let (bench, _receiver) = spool_of_every_state();
    let before = bench.tree();
    bench.run(&["doctor", "--adopt"]).ok().prints("no copy");
    assert_eq!(bench.json(&["doctor", "--adopt"])["adopted"], Value::Null);
    assert_eq!(bench.tree(), before);
    bench
        .run(&["doctor", "--adopt", "--repair"])
        .ok()
        .says("no copy");
}

#[test]
fn files_in_drop_boxes_of_a_copy_are_for_a_person_first() {
    let receiver = Receiver::start(vec![]);
    let bench = Bench::with(&[("shop", &receiver.url(), KEYED)]);
    bench.tick();
    let id = bench.enqueue("shop", &["--data", "x"]);
    fs::write(
        bench.spool().join("incoming/shop/order.json"),
        "{\"request\":{}}",
    )
    .unwrap();
    let copy = Copy::of(&bench);
    let described = copy.described();
    copy.run(&["doctor", "--adopt"]).code(1).says("drop boxes");
    assert_eq!(copy.described(), described);
    copy.run(&["tick"]).code(78);
    let dropped = copy.root.join("incoming/shop/order.json");
    fs::rename(&dropped, bench.dir().join("order.json")).unwrap();
    copy.run(&["doctor", "--adopt"]).ok();
    fs::rename(bench.dir().join("order.json"), &dropped).unwrap();
    let tick = copy.json(&["tick"]);
    assert_eq!(
        (&tick["ingested"], &tick["confirmed"]),
        (&1.into(), &1.into())
    );
    assert_eq!(copy.json(&["show", &id])["state"], "held");
}

#[test]
fn a_lost_lock_file_is_told_and_made_by_adoption_alone() {
    let receiver = Receiver::start(vec![]);
    let bench = Bench::with(&[("shop", &receiver.url(), KEYED)]);
    let id = bench.enqueue("shop", &["--data", "x"]);
    fs::remove_file(bench.spool().join("lock")).unwrap();
    bench
        .run(&["doctor"])
        .code(1)
        .prints("missing       lock: ")
        .prints("doctor --adopt");
    let says = "then `tickpost doctor --adopt` makes a new one";
    for words in [
        &["doctor", "--repair"][..],
        &["tick"],
        &["enqueue", "shop", "--data", "x"],
        &["cancel", &id],
    ] {
        bench.run(words).code(74).says(says).says_not("init");
    }
    bench.run(&["status"]).ok().says(says);
    bench.run(&["status", "--check"]).code(2).prints(says);
    assert!(!bench.spool().join("lock").exists());
    bench.run(&["doctor", "--adopt", "--repair"]).ok();
    bench.tick();
    assert_eq!(receiver.arrivals().len(), 0);
    assert_eq!(bench.show(&id)["state"], "held");
}

#[test]
fn what_cannot_be_held_keeps_a_copy_a_copy() {
    let receiver = Receiver::start(vec![]);
    let bench = Bench::with(&[("shop", &receiver.url(), KEYED)]);
    let id = bench.enqueue("shop", &["--data", "x"]);
    let path = bench.spool().join(bench.place(&id));
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("\"v\":1", "\"v\":9", 1)).unwrap();
    let copy = Copy::of(&bench);
    copy.run(&["doctor", "--adopt"])
        .code(1)
        .says("still a copy")
        .says(&id);
    copy.run(&["tick"]).code(78);
}

/// `cp -a FROM/. TO/`: what is there under a name is overwritten, and keeps its inode.
fn copy_over(from: &Path, to: &Path) {
    let mut cp = Command::new("cp");
    let done = cp.arg("-a").arg(from.join(".")).arg(to).status();
    assert!(done.unwrap().success());
}

#[test]
fn a_backup_is_noticed_also_where_the_lock_has_the_inode_that_it_names() {
    // Whether the spool had ever ticked, and what of it is there when the backup is put back.
    let rows = [(true, false), (true, true), (false, false), (false, true)];
    for (has_ticked, is_emptied) in rows {
        let receiver = Receiver::start(vec![]);
        let bench = Bench::with(&[("shop", &receiver.url(), "")]);
        if has_ticked {
            bench.enqueue("shop", &["--data", "first"]);
            bench.tick();
        }
        let id = bench.enqueue("shop", &["--data", "second"]);
        let backup = bench.dir().join("backup");
        copy_over(bench.spool(), &backup);
        bench.tick();
        let seen = receiver.arrivals().len();
        if is_emptied {
            for entry in fs::read_dir(bench.spool()).unwrap() {
                let path = entry.unwrap().path();
                match path.file_name().unwrap().to_str().unwrap() {
                    // A file system gives an inode that has become free to the next file.
                    "lock" => {}
                    _ if path.is_dir() => fs::remove_dir_all(path).unwrap(),
                    _ => fs::remove_file(path).unwrap(),
                }
            }
        }
        copy_over(&backup, bench.spool());
        let row = format!("ticked before: {has_ticked}, emptied: {is_emptied}");
        bench
            .run(&["tick"])
            .code(78)
            .says("is a copy: it was restored from a backup")
            .says("doctor --adopt");
        bench
            .run(&["enqueue", "shop", "--data", "third"])
            .code(78)
            .says("is a copy");
        bench.run(&["doctor"]).code(1).prints("doctor --adopt");
        if is_emptied {
            bench.run(&["doctor", "--adopt"]).ok().prints("1 held");
            bench.tick();
            assert_eq!(bench.show(&id)["state"], "held", "{row}");
        }
        assert_eq!(receiver.arrivals().len(), seen, "{row}");
    }
}

#[test]
fn a_spool_whose_modes_times_and_names_change_is_no_copy() {
    let receiver = Receiver::start(vec![]);
    let bench = Bench::with(&[("shop", &receiver.url(), "")]);
    bench.enqueue("shop", &["--data", "first"]);
    bench.tick();
    let script = "chmod -R go+rX . && chmod -R go= . && find . -exec touch -h {} + && mv log logs && mv logs log";
    let mut shell = Command::new("sh");
    let done = shell.args(["-c", script]).current_dir(bench.spool());
    assert!(done.status().unwrap().success());
    bench.enqueue("shop", &["--data", "second"]);
    bench.tick();
    assert_eq!(receiver.arrivals().len(), 2);
}

#[test]
fn items_without_spool_json_are_a_copy_also_for_init() {
    let receiver = Receiver::start(vec![]);
    let bench = Bench::with(&[("shop", &receiver.url(), "")]);
    let id = bench.enqueue("shop", &["--data", "x"]);
    let copy = Copy::of(&bench);
    bench.tick();
    fs::remove_file(copy.root.join("spool.json")).unwrap();
    copy.run(&["tick"]).code(73);
    copy.run(&["init"])
        .code(78)
        .says("its spool.json was missing")
        .says("doctor --adopt");
    copy.run(&["tick"]).code(78).says("doctor --adopt");
    copy.run(&["init"]).ok().prints("is a whole spool");
    copy.run(&["tick"]).code(78);
    copy.run(&["doctor", "--adopt"]).ok().prints("1 held");
    copy.run(&["tick"]).ok();
    assert_eq!(copy.json(&["show", &id])["state"], "held");
    assert_eq!(receiver.arrivals().len(), 1);
}

/// Every command says the way out, and the way leads there.
#[test]
fn a_spool_without_its_description_is_told_of_and_comes_back() {
    let words = [
        &["tick"][..],
        &["status"],
        &["list"],
        &["enqueue", "shop", "--data", "x"],
        &["doctor"],
        &["doctor", "--adopt"],
    ];
    for own_config in [true, false] {
        for damage in [None, Some(""), Some("{")] {
            let bench = Bench::with(&[("shop", "http://127.0.0.1:9", "")]);
            let id = bench.enqueue("shop", &["--data", "x"]);
            let config = bench.spool().join("tickpost.toml");
            let elsewhere = bench.dir().join("elsewhere.toml");
            if !own_config {
                fs::rename(&config, &elsewhere).unwrap();
            }
            let run = |words: &[&str]| {
                let config = if own_config { &config } else { &elsewhere };
                bench.run(&[&["--config", config.to_str().unwrap()], words].concat())
            };
            let described = bench.spool().join("spool.json");
            if let Some(damage) = damage {
                fs::write(&described, damage).unwrap();
                for words in words {
                    run(words)
                        .code(78)
                        .says("move the file out of the spool, then `tickpost init`")
                        .says("`tickpost doctor --adopt`");
                }
            }
            fs::rename(&described, bench.dir().join("away")).unwrap();
            for words in words {
                run(words)
                    .code(73)
                    .says("items lie there")
                    .says("`tickpost init` makes a new one")
                    .says("`tickpost doctor --adopt`");
            }
            run(&["init"]).code(78).says("`tickpost doctor --adopt`");
            run(&["doctor", "--adopt"]).ok().prints("1 held");
            run(&["release", &id]).ok();
            run(&["tick"]).ok();
            run(&["audit"]).ok();
        }
    }
    // What holds nothing is no spool.
    let bench = Bench::new();
    fs::remove_file(bench.spool().join("spool.json")).unwrap();
    bench.run(&["status"]).code(73).says("there is no spool");
    bench.run(&["init"]).ok();
    bench.run(&["status"]).ok();
}
