//! `--key`, `--request-id`, `--hold`, `--tick` and bodies in files: what `enqueue` remembers, and
//! what a caller that died leaves to the next.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/bench.rs"]
mod bench;
#[path = "support/mod.rs"]
mod support;

use std::fs::{self, File};
use std::path::PathBuf;

use bench::{Bench, KEYED};
use fs2::FileExt;
use serde_json::json;
use support::{Receiver, Reply, closed_port};
use tickpost::model::envelope::sha256_hex;

/// What `keys/` holds of a POST of a body to the base URL.
fn reservation(id: &str, body: &str) -> String {
    let body_sha256 = sha256_hex(body.as_bytes());
    let request = json!(["POST", "", [], body_sha256]).to_string();
    json!({
        "request_id": id,
        "body_sha256": body_sha256,
        "request_sha256": sha256_hex(request.as_bytes()),
    })
    .to_string()
}

const ID: &str = "3f0c8a52-3b0f-4b6e-9d5e-0c1f3a2b4c5d";
const OTHER: &str = "019adf3e-6b6b-7cc3-98f2-3a1c5d2e8f10";

fn bench() -> Bench {
    let bench = Bench::new();
    let closed = closed_port();
    bench.configure("", &[("shop", &closed, KEYED), ("ops", &closed, "")]);
    bench
}

fn key_file(bench: &Bench, destination: &str, key: &str) -> PathBuf {
    let name = sha256_hex(key.as_bytes());
    bench.spool().join(format!("keys/{destination}/{name}"))
}

#[test]
fn the_same_key_is_the_same_item() {
    let bench = bench();
    let first = bench.enqueue("shop", &["--key", "k", "--data", "a"]);
    let again = bench.run(&["-q", "enqueue", "shop", "--key", "k", "--data", "a"]);
    assert_eq!(again.ok().id(), first);
    bench
        .run(&["-v", "enqueue", "shop", "--key", "k", "--data", "a"])
        .ok()
        .says("accepted before");
    for other in [
        &["--data", "b"][..],
        &["--data", "a", "--path", "/refunds"],
        &["--data", "a", "--method", "PUT"],
        &["--data", "a", "--query", "x=y"],
    ] {
        let words = [&["enqueue", "shop", "--key", "k"], other].concat();
        bench
            .run(&words)
            .code(65)
            .says(&first)
            .says("another method, path, query or body")
            .prints_nothing();
    }
    // Who asks, and how it is traced, may differ.
    let traced = ["--header", "X-Trace: 8", "--thread", "t"];
    let words = [&["--key", "k", "--data", "a"][..], &traced].concat();
    assert_eq!(bench.enqueue("shop", &words), first);
    // Another destination's keys, and other keys, are others.
    let elsewhere = bench.enqueue("ops", &["--key", "k", "--data", "b"]);
    let second = bench.enqueue("shop", &["--key", "K", "--data", "a"]);
    assert!(first != elsewhere && first != second);
    assert_eq!(bench.item(&first)[0]["key"], "k");
    assert_eq!(bench.list(&["--key", "k"]).len(), 2);
    assert_eq!(bench.files("pending/").len(), 3);
    assert_eq!(bench.files("tmp/"), Vec::<String>::new());
    let kept = fs::read_to_string(key_file(&bench, "shop", "k")).unwrap();
    let kept: serde_json::Value = serde_json::from_str(&kept).unwrap();
    let want: serde_json::Value = serde_json::from_str(&reservation(&first, "a")).unwrap();
    assert_eq!(kept, want);
}

#[test]
fn a_key_is_known_in_every_state() {
    let receiver = Receiver::by_path([
        ("/confirmed", vec![Reply::ok()]),
        ("/failed", vec![Reply::status(422)]),
        ("/held", vec![Reply::status(404)]),
        ("/pending", vec![Reply::status(503)]),
        ("/unknown", vec![Reply::close()]),
    ]);
    let bench = Bench::with(&[("shop", &receiver.url(), "")]);
    for state in ["confirmed", "failed", "held", "unknown", "pending"] {
        let path = format!("/{state}");
        let options = ["--key", state, "--path", &path, "--data", "x"];
        let id = bench.enqueue("shop", &options);
        bench.tick();
        assert!(
            bench.place(&id).starts_with(&format!("{state}/")),
            "{state}"
        );
        assert_eq!(bench.enqueue("shop", &options), id, "{state}");
        let place = bench.place(&id);
        let corrupt = bench.spool().join("corrupt").join(format!("{id}.jsonl"));
        fs::rename(bench.spool().join(&place), &corrupt).unwrap();
        assert_eq!(bench.enqueue("shop", &options), id, "{state}, set aside");
        fs::rename(&corrupt, bench.spool().join(&place)).unwrap();
    }
    assert_eq!(receiver.arrivals().len(), 5);
}

#[test]
fn a_key_whose_caller_died_is_completed_under_its_id() {
    let bench = bench();
    let path = key_file(&bench, "shop", "k");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    for (kept, want) in [
        // As the caller left it.
        (reservation(OTHER, "a"), Some(OTHER)),
        // It was to be another body: nothing was accepted, so this one is.
        (reservation(OTHER, "b"), None),
        // A power loss left the name without its contents.
        (String::new(), None),
        ("\0\0\0\0".to_owned(), None),
    ] {
        fs::write(&path, &kept).unwrap();
        let id = bench.enqueue("shop", &["--key", "k", "--data", "a"]);
        assert!(want.is_none_or(|want| want == id), "{kept}");
        assert_eq!(bench.enqueue("shop", &["--key", "k", "--data", "a"]), id);
        fs::remove_file(bench.spool().join(bench.place(&id))).unwrap();
    }
}

#[test]
fn a_key_in_use_is_waited_for() {
    let bench = bench();
    let path = key_file(&bench, "shop", "k");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, "").unwrap();
    let owner = File::options().read(true).write(true).open(&path).unwrap();
    FileExt::lock_exclusive(&owner).unwrap();
    let running = bench
        .call(&["-q", "enqueue", "shop", "--key", "k", "--data", "a"])
        .start();
    // Accepted by another process meanwhile, as it will find.
    let item = bench.enqueue("shop", &["--data", "a"]);
    fs::write(&path, reservation(&item, "a")).unwrap();
    FileExt::unlock(&owner).unwrap();
    assert_eq!(running.end().ok().id(), item);
    assert_eq!(bench.files("pending/").len(), 1);
}

#[test]
fn many_at_once_under_one_key_accept_one() {
    let bench = bench();
    for round in 0..3 {
        let key = format!("k{round}");
        let words = ["-q", "enqueue", "shop", "--key", &key, "--data", "a"];
        let running: Vec<_> = (0..12).map(|_| bench.call(&words).start()).collect();
        let mut ids: Vec<String> = running.into_iter().map(|run| run.end().ok().id()).collect();
        ids.dedup();
        assert_eq!(ids.len(), 1, "{ids:?}");
        assert_eq!(bench.files("pending/").len(), round + 1);
    }
}

#[test]
fn keys_that_are_none_are_65() {
    let bench = bench();
    let long = "k".repeat(4097);
    for key in ["", &long] {
        let ran = bench.run(&["enqueue", "shop", "--key", key, "--data", "x"]);
        ran.code(65).says("the key is").prints_nothing();
    }
    assert_eq!(bench.files("keys/"), Vec::<String>::new());
}

#[test]
fn a_callers_own_id_is_the_items() {
    let bench = bench();
    let own = |destination: &str, id: &str, data: &str| {
        bench.run(&[
            "-q",
            "enqueue",
            destination,
            "--request-id",
            id,
            "--data",
            data,
        ])
    };
    assert_eq!(own("shop", ID, "a").ok().id(), ID);
    assert_eq!(own("shop", ID, "a").ok().id(), ID);
    own("shop", ID, "b").code(65).says(ID).prints_nothing();
    own("ops", ID, "a")
        .code(65)
        .says("destination")
        .prints_nothing();
    // One that tickpost gave is known as well.
    let minted = bench.enqueue("shop", &["--data", "a"]);
    assert_eq!(own("shop", &minted, "a").ok().id(), minted);
    own("shop", &minted, "b").code(65);
    own("ops", &minted, "a").code(65);
    assert_eq!(bench.files("pending/").len(), 2);
    for id in [
        "x",
        "3F0C8A52-3B0F-4B6E-9D5E-0C1F3A2B4C5D",
        "00000000-0000-0000-0000-000000000000",
    ] {
        own("shop", id, "a").code(2).says("is not a request id");
    }
}

#[test]
fn an_id_and_a_key_go_together() {
    let bench = bench();
    let both = |id: &str, key: &str, data: &str| {
        bench.run(&[
            "-q",
            "enqueue",
            "shop",
            "--request-id",
            id,
            "--key",
            key,
            "--data",
            data,
        ])
    };
    assert_eq!(both(ID, "k", "a").ok().id(), ID);
    assert_eq!(both(ID, "k", "a").ok().id(), ID);
    // The key wins: it is the first item's.
    assert_eq!(both(OTHER, "k", "a").ok().id(), ID);
    // The id is taken; the key that was made for it is free again.
    both(ID, "new", "b").code(65);
    let id = bench.enqueue("shop", &["--key", "new", "--data", "c"]);
    bench.place(&id);
    assert_eq!(bench.files("pending/").len(), 2);
}

#[test]
fn an_item_can_be_held_from_the_start() {
    let receiver = Receiver::start(vec![]);
    let bench = Bench::with(&[("shop", &receiver.url(), KEYED)]);
    let known = bench.enqueue("shop", &["--data", "a", "--hold", "review_required"]);
    let words = bench.enqueue("shop", &["--data", "b", "--hold", "waits for Bob"]);
    let expiring = bench.enqueue(
        "shop",
        &["--data", "c", "--hold", "operator", "--not-after", "+90m"],
    );
    assert_eq!(bench.place(&known), format!("held/shop/{known}.jsonl"));
    assert_eq!(bench.last_event(&known)["reason"], "review_required");
    assert_eq!(bench.last_event(&words)["reason"], "operator");
    assert_eq!(bench.last_event(&words)["note"], "waits for Bob");
    // Where a tick finds it when it expires.
    let minute = bench::minute_of(&bench.item(&expiring)[0]["not_after"]);
    assert_eq!(
        bench.place(&expiring),
        format!("held/shop/{minute}/{expiring}.jsonl")
    );
    bench.tick();
    assert_eq!(receiver.arrivals().len(), 0);
    assert_eq!(bench.list(&["--state", "held"]).len(), 3);
    bench.run(&["release", &words]).ok();
    bench.tick();
    assert_eq!(receiver.arrivals().len(), 1);
}

#[test]
fn an_item_can_be_ticked_at_once() {
    let receiver = Receiver::start(vec![Reply::ok(), Reply::status(404)]);
    let bench = Bench::new();
    bench.configure(
        "",
        &[
            ("shop", &receiver.url(), KEYED),
            ("other", &closed_port(), KEYED),
        ],
    );
    let other = bench.enqueue("other", &["--data", "x"]);
    let id = bench.enqueue("shop", &["--data", "x", "--tick"]);
    assert!(bench.place(&id).starts_with("confirmed/"));
    // Only its own destination: the others have their time.
    assert_eq!(bench.item(&other).len(), 2);
    // What comes of it does not change that it is accepted.
    let id = bench.enqueue("shop", &["--data", "y", "--tick"]);
    assert!(bench.place(&id).starts_with("held/"));
    let lock = bench.hold_lock("somebody");
    let ran = bench
        .run(&["enqueue", "shop", "--data", "z", "--tick"])
        .ok();
    let ran = ran.says("not ticked now: somebody");
    assert!(bench.place(&ran.id()).starts_with("pending/"));
    drop(lock);
}

#[test]
fn a_large_body_lies_in_a_file_and_arrives_whole() {
    let receiver = Receiver::start(vec![Reply::status(503), Reply::ok(), Reply::ok()]);
    let retry = format!("{KEYED}\nretry = {{ base = \"0s\", factor = 1, max = \"1ms\" }}");
    let bench = Bench::new();
    bench.configure(
        "[limits]\nmax_body = \"8MiB\"",
        &[("shop", &receiver.url(), &retry)],
    );
    let body = "01234567".repeat(600_000);
    assert!(body.len() > 4 << 20);
    let file = bench.file("body", &body);
    let id = bench.enqueue("shop", &["--file", &file, "--key", "k"]);
    let line = bench.place_of_item(&id);
    let request = bench.first_line(&line)["request"].clone();
    assert_eq!(
        request["body"],
        json!({"file": format!("bodies/{id}"), "bytes": body.len()})
    );
    assert_eq!(request["body_sha256"], sha256_hex(body.as_bytes()));
    let stored = bench.spool().join(format!("bodies/{id}"));
    assert!(fs::read_to_string(&stored).unwrap() == body);
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&stored).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(bench.enqueue("shop", &["--file", &file, "--key", "k"]), id);
    let show = bench.run(&["show", &id]).ok();
    show.prints(&format!("{} bytes", body.len()))
        .prints(&format!("in bodies/{id}"));
    for n in 1..=2 {
        bench.tick();
        let arrivals = receiver.wait_for(n);
        let arrival = &arrivals[n - 1];
        assert!(arrival.text() == body, "arrival {n}");
        assert_eq!(
            arrival.header("content-length"),
            Some(&*body.len().to_string())
        );
        if n == 1 {
            bench.run(&["release", "--destination", "shop"]).ok();
        }
    }
    assert!(bench.place_of_item(&id).starts_with("confirmed/"));
    // A copy has a body of its own.
    let failed = bench.enqueue("shop", &["--file", &file, "--not-after", "+1h"]);
    bench.run(&["cancel", &failed]).ok();
    let copy = bench.json(&["retry", "--new-id", &failed]);
    let copy = copy["new_ids"][0]["new"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let bodies = bench.files("bodies/");
    assert_eq!(bodies.len(), 3, "{copy}: {bodies:?}");
    assert_eq!(bench.files("tmp/"), Vec::<String>::new());
}

#[test]
fn a_large_body_that_is_refused_leaves_nothing() {
    let bench = Bench::new();
    let json_key = "key = { kind = \"json_body\", name = \"/id\", window = \"24h\" }";
    bench.configure(
        "",
        &[
            ("shop", &closed_port(), ""),
            ("json", &closed_port(), json_key),
        ],
    );
    let large = bench.file("large", "x".repeat(2 << 20));
    let ran = bench.run(&["enqueue", "shop", "--file", &large]);
    ran.code(65).says("max_body").prints_nothing();
    let text = bench.file("text", "x".repeat(100_000));
    let ran = bench.run(&["enqueue", "json", "--file", &text]);
    ran.code(65).says("JSON").prints_nothing();
    let ran = bench.run(&["enqueue", "shop", "--file", &text, "--not-before", "never"]);
    ran.code(2).prints_nothing();
    // Its key cannot be reserved.
    fs::write(bench.spool().join("keys/shop"), "in the way").unwrap();
    let ran = bench.run(&["enqueue", "shop", "--file", &text, "--key", "k"]);
    ran.code(78).prints_nothing();
    assert_eq!(bench.files("bodies/"), Vec::<String>::new());
    assert_eq!(bench.files("tmp/"), Vec::<String>::new());
    assert_eq!(bench.files("pending/"), Vec::<String>::new());
}

#[test]
fn a_key_goes_into_a_large_json_body() {
    let receiver = Receiver::start(vec![]);
    let json_key = "key = { kind = \"json_body\", name = \"/id\", window = \"24h\" }";
    let bench = Bench::with(&[("shop", &receiver.url(), json_key)]);
    let text = bench.file("text", json!({"a": "x".repeat(100_000)}).to_string());
    let id = bench.enqueue("shop", &["--file", &text]);
    let arrived = {
        bench.tick();
        receiver.wait_for(1).remove(0)
    };
    let body: serde_json::Value = serde_json::from_str(&arrived.text()).unwrap();
    assert_eq!(body["id"], id);
    assert_eq!(arrived.header("content-type"), Some("application/json"));
}

#[test]
fn a_body_that_is_not_what_was_accepted_is_never_sent() {
    let receiver = Receiver::start(vec![]);
    let bench = Bench::with(&[("shop", &receiver.url(), KEYED)]);
    let body = bench.file("body", "x".repeat(100_000));
    for (damage, why) in [
        ("gone", "is gone"),
        ("short", "has 5 bytes instead of 100000"),
        ("flipped", "does not match its SHA-256"),
        ("link", "cannot read its body"),
    ] {
        let id = bench.enqueue("shop", &["--file", &body]);
        let stored = bench.spool().join(format!("bodies/{id}"));
        match damage {
            "gone" => fs::remove_file(&stored).unwrap(),
            "short" => fs::write(&stored, "xxxxx").unwrap(),
            "flipped" => fs::write(&stored, "y".repeat(100_000)).unwrap(),
            _ => {
                fs::remove_file(&stored).unwrap();
                std::os::unix::fs::symlink(&body, &stored).unwrap();
            }
        }
        bench.run(&["tick"]).ok().says(why);
        let place = bench.place_of_item(&id);
        let aside = if damage == "link" {
            "pending/"
        } else {
            "corrupt/"
        };
        assert!(place.starts_with(aside), "{damage}: {place}");
    }
    assert_eq!(receiver.arrivals().len(), 0);
}

#[test]
fn a_pruned_item_frees_its_key_and_keeps_its_id() {
    let receiver = Receiver::start(vec![]);
    let bench = Bench::with(&[("shop", &receiver.url(), KEYED)]);
    let own = ["--request-id", ID, "--key", "k", "--data", "a"];
    let first = bench.enqueue("shop", &own);
    let minted = bench.enqueue("shop", &["--key", "m", "--data", "a"]);
    // An id of version 7 that bears the year 2200: its tombstone would be looked for from then on.
    let ahead = "0699d5c6-a000-7abc-8def-0123456789ab";
    let own = ["--request-id", ahead, "--data", "a"];
    bench.enqueue("shop", &own);
    bench.tick();
    for id in [&first, &minted, ahead] {
        let place = bench.place_of_item(id);
        let day = bench.spool().join("confirmed/shop/20200101");
        fs::create_dir_all(&day).unwrap();
        let text = fs::read_to_string(bench.spool().join(&place)).unwrap();
        let day_name = place.split('/').nth(2).unwrap();
        let (year, rest) = day_name.split_at(4);
        let (month, date) = rest.split_at(2);
        let old = text.replace(&format!("{year}-{month}-{date}T"), "2020-01-01T");
        // The envelope's hash is of the line as it is now.
        let mut lines = old.lines();
        let line = lines.next().unwrap();
        let mut accepted: serde_json::Value = serde_json::from_str(lines.next().unwrap()).unwrap();
        accepted["envelope_sha256"] = sha256_hex(line.as_bytes()).into();
        let rest = lines.collect::<Vec<_>>().join("\n");
        fs::write(
            day.join(format!("{id}.jsonl")),
            format!("{line}\n{accepted}\n{rest}\n"),
        )
        .unwrap();
        fs::remove_file(bench.spool().join(&place)).unwrap();
    }
    let said = bench.json(&["prune"]);
    assert_eq!(
        (&said["pruned"], &said["kept"]),
        (&2.into(), &0.into()),
        "{said}"
    );
    assert_eq!(bench.enqueue("shop", &own), ahead);
    assert_eq!(
        bench.tick()["attempts"],
        0,
        "it is known, and not sent again"
    );
    // An id is never given twice.
    for id in [ID, &minted] {
        let again = ["-q", "enqueue", "shop", "--request-id", id, "--data", "a"];
        bench
            .run(&again)
            .code(65)
            .says("is pruned")
            .prints_nothing();
    }
    // A key is free again.
    let again = bench.enqueue("shop", &["--key", "m", "--data", "b"]);
    assert_ne!(again, minted);
    // Also if the pruning died before the key was gone.
    let kept = reservation(&minted, "a");
    fs::write(key_file(&bench, "shop", "k"), kept).unwrap();
    let third = bench.enqueue("shop", &["--key", "k", "--data", "a"]);
    assert_ne!(third, minted);
    assert_eq!(bench.enqueue("shop", &["--key", "k", "--data", "a"]), third);
}

/// Whoever repeats in the hope that it goes this time hears that it does not.
#[test]
fn a_repeat_of_what_did_not_end_well_says_so() {
    let receiver = Receiver::by_path([
        ("/failed", vec![Reply::status(422)]),
        ("/held", vec![Reply::status(404), Reply::status(404)]),
        ("/unknown", vec![Reply::close()]),
        ("/confirmed", vec![Reply::ok()]),
    ]);
    let bench = Bench::with(&[("shop", &receiver.url(), "")]);
    for (state, says) in [
        ("failed", "`tickpost retry "),
        ("held", "`tickpost release "),
        ("unknown", "may have acted on it"),
    ] {
        let path = format!("/{state}");
        let words = [
            "enqueue", "shop", "--key", state, "--path", &path, "--data", "x",
        ];
        let id = bench.run(&words).ok().says_not("before").id();
        bench.tick();
        let ran = bench.run(&words).ok().says(says).says("accepted before");
        assert_eq!(ran.id(), id);
    }
    let words = [
        "enqueue",
        "shop",
        "--key",
        "c",
        "--path",
        "/confirmed",
        "--data",
        "x",
    ];
    let id = bench.run(&words).ok().id();
    bench.tick();
    bench.run(&words).ok().says_not("before");
    let said = bench.json(&words);
    assert_eq!(said, json!({"request_id": id, "known": true}));
    // `--tick` tells how it ended, if it did not end well.
    let words = [
        "-v", "enqueue", "shop", "--path", "/held", "--data", "y", "--tick",
    ];
    bench.run(&words).ok().says("it is ");
}

/// Whoever reserved a key and an id of its own died before its item was there, and the id has been
/// given to another request since: the key's own is accepted anew.
#[test]
fn a_key_does_not_answer_with_another_requests_item() {
    let closed = closed_port();
    let bench = Bench::with(&[("one", &closed, ""), ("two", &closed, "")]);
    let id = "cccccccc-bbbb-4ccc-8ddd-eeeeeeeeeeee";
    bench.enqueue("one", &["--data", "pay", "--key", "K", "--request-id", id]);
    std::fs::remove_file(bench.spool().join(bench.place_of_item(id))).unwrap();
    bench.enqueue("two", &["--data", "other", "--request-id", id]);
    let again = bench.enqueue("one", &["--data", "pay", "--key", "K"]);
    assert_ne!(again, id);
    assert_eq!(bench.show(&again)["state"], "pending");
    assert_eq!(
        bench.enqueue("one", &["--data", "pay", "--key", "K"]),
        again
    );
}

#[test]
fn a_repeat_of_an_item_that_was_set_aside_says_that_it_is_not_sent() {
    let receiver = Receiver::start(vec![]);
    let bench = Bench::with(&[("shop", &receiver.url(), KEYED)]);
    let id = bench.enqueue("shop", &["--key", "k", "--data", "{}"]);
    let own = ["--request-id", ID, "--data", "{}"];
    bench.enqueue("shop", &own);
    for id in [&*id, ID] {
        fs::write(bench.spool().join(bench.place_of_item(id)), "").unwrap();
    }
    assert_eq!(bench.tick()["corrupt"], 2);
    let batch = |lines: &str| {
        let ran = bench.call(&["enqueue", "--batch", "shop"]).stdin(lines);
        ran.run().ok()
    };
    let repeat = ["enqueue", "shop", "--key", "k", "--data", "{}"];
    let line = r#"{"request":{"body":{"json":{}}},"key":"k"}"#;
    for is_there in [true, false] {
        let file = bench.spool().join(format!("corrupt/{id}.jsonl"));
        if !is_there {
            // The documented way out: the reason beside it stays.
            fs::remove_file(file).unwrap();
        }
        let what = format!("set aside as corrupt/{id}.jsonl");
        let what = if is_there {
            &*what
        } else {
            "removed by somebody"
        };
        let ran = bench.run(&repeat).ok();
        let ran = ran.says(what).says("is not sent").says("a new key");
        assert_eq!(ran.id(), id);
        let ran = batch(&format!("{line}\n"));
        let ran = ran.says("line 1: ").says(what).says("a new key");
        assert_eq!(ran.id(), id);
        bench
            .run(&["enqueue", "shop", "--key", "k", "--data", "other"])
            .code(65)
            .says("which had another method")
            .says("set aside");
        // What was printed once can be asked for.
        for command in ["show", "wait"] {
            bench
                .run(&[command, &id])
                .code(66)
                .says("was pending for `shop`")
                .says(&format!("corrupt/{id}.jsonl"))
                .says("the file is empty")
                .says("new key");
        }
        bench.run(&["show", &id[..id.len() - 1]]).code(66).says(&id);
    }
    let words = [&["enqueue", "shop"], &own[..]].concat();
    bench
        .run(&words)
        .ok()
        .says("set aside")
        .says("new key or id");
    bench
        .run(&["enqueue", "shop", "--request-id", ID, "--data", "b"])
        .code(65)
        .says("was there, and its file was damaged");
    // A dropped file may hold all that is left of it: it is told of, and kept.
    fs::write(bench.spool().join("incoming/shop/a.json"), line).unwrap();
    let told = format!("it repeats item {id}");
    bench.run(&["tick"]).ok().says(&told).says("a new `key`");
    assert_eq!(
        fs::read_to_string(bench.spool().join("corrupt/a.json")).unwrap(),
        line
    );
    assert_eq!(receiver.arrivals().len(), 0);
    // A new key is another item.
    let again = bench.enqueue("shop", &["--key", "l", "--data", "{}"]);
    assert_ne!(again, id);
}

/// Whoever asked for an id of another item, and died before that was refused, has left a reservation.
#[test]
fn a_reservation_that_nothing_was_accepted_under_changes_no_answer() {
    let closed = closed_port();
    let bench = Bench::with(&[("one", &closed, ""), ("two", &closed, "")]);
    let id = bench.enqueue("one", &["--data", "pay", "--key", "K"]);
    let other = bench.enqueue("two", &["--data", "other", "--request-id", ID]);
    let ids = bench.spool().join("keys/_ids");
    let left = fs::read_to_string(ids.join(&other)).unwrap();
    fs::write(ids.join(&id), left.replace(&other, &id)).unwrap();
    assert_eq!(bench.enqueue("one", &["--data", "pay", "--key", "K"]), id);
    let again = ["enqueue", "two", "--data", "other", "--request-id", &id];
    bench.run(&again).code(65).prints_nothing();
}

/// The reservation of another request under its id says nothing of an item that nobody can read.
#[test]
fn a_key_whose_item_was_set_aside_stays_its_key() {
    let receiver = Receiver::start(vec![]);
    let bench = Bench::with(&[("one", &receiver.url(), "")]);
    let id = bench.enqueue("one", &["--data", "pay", "--key", "K"]);
    let other = bench.enqueue("one", &["--data", "other", "--request-id", ID]);
    let ids = bench.spool().join("keys/_ids");
    let left = fs::read_to_string(ids.join(&other)).unwrap();
    fs::write(ids.join(&id), left.replace(&other, &id)).unwrap();
    let place = bench.spool().join(bench.place_of_item(&id));
    let whole = fs::read(&place).unwrap();
    fs::write(&place, "").unwrap();
    let repeat = ["enqueue", "one", "--data", "pay", "--key", "K"];
    // In its place only the item can tell, and nobody can read it yet.
    bench.run(&repeat).code(74).says(&id).prints_nothing();
    bench.tick();
    let ran = bench.run(&repeat).ok().says("set aside");
    assert_eq!(ran.id(), id);
    fs::write(&place, whole).unwrap();
    assert_eq!(bench.run(&repeat).ok().id(), id);
}

#[test]
fn repeats_of_a_key_with_ids_of_their_own_leave_no_reservations() {
    let bench = bench();
    let id = bench.enqueue("shop", &["--data", "a", "--key", "k"]);
    let known = ["--data", "a", "--key", "k", "--request-id", ID];
    assert_eq!(bench.enqueue("shop", &known), id);
    let taken = ["--data", "b", "--key", "k", "--request-id", OTHER];
    bench
        .run(&[&["enqueue", "shop"], &taken[..]].concat())
        .code(65);
    assert_eq!(bench.files("keys/_ids"), [""; 0]);
}

#[test]
fn a_key_that_the_item_of_an_id_has_not_is_refused_and_not_kept() {
    let bench = bench();
    let offer = |words: &[&str]| bench.run(&[&["enqueue", "shop", "--data", "a"], words].concat());
    let known = |words: &[&str], id: &str| {
        let all = [&["--data", "a"], words].concat();
        assert_eq!(bench.enqueue("shop", &all), id);
    };
    known(&["--request-id", ID], ID);
    offer(&["--request-id", ID, "--key", "k"])
        .code(65)
        .says("without the key `k`");
    assert_eq!(bench.files("keys/shop"), [""; 0]);
    known(&["--request-id", OTHER, "--key", "its"], OTHER);
    let own = bench.files("keys/shop");
    offer(&["--request-id", OTHER, "--key", "k"]).code(65);
    assert_eq!(bench.files("keys/shop"), own);
    known(&["--request-id", OTHER], OTHER);
    bench.run(&["doctor"]).ok();
    // One that was lost is back.
    fs::remove_file(key_file(&bench, "shop", "its")).unwrap();
    known(&["--request-id", OTHER, "--key", "its"], OTHER);
    assert_eq!(bench.files("keys/shop"), own);
}
