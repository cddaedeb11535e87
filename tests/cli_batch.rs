//! `enqueue --batch`: an id a line once its item is durable, and each item once under its key,
//! however often the whole is killed and repeated.
//!
//! The campaign is larger by `TICKPOST_BATCH_ITEMS` and `TICKPOST_BATCH_KILLS`.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/bench.rs"]
mod bench;
#[path = "support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};

use bench::{Bench, KEYED, json_lines};
use serde_json::{Value, json};
use support::closed_port;

fn bench() -> Bench {
    let bench = Bench::new();
    bench.configure(
        "",
        &[("shop", &closed_port(), KEYED), ("ops", &closed_port(), "")],
    );
    bench
}

fn line(n: usize) -> String {
    json!({"destination": "shop", "request": {"path": format!("/{n}"), "body": {"json": {"n": n}}}})
        .to_string()
}

fn batch(bench: &Bench, input: &str) -> bench::Ran {
    bench
        .call(&["--quiet", "enqueue", "--batch"])
        .stdin(input)
        .run()
}

#[test]
fn an_id_a_line_in_order() {
    let bench = bench();
    let input: String = (0..2500).map(|n| line(n) + "\n").collect();
    let ran = batch(&bench, &input).ok();
    assert_eq!(ran.stderr, "");
    let ids: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(ids.len(), 2500);
    for (n, id) in ids.iter().enumerate().step_by(499) {
        let item = bench.item(id);
        assert_eq!(item[0]["request"]["path"], format!("/{n}"));
        assert_eq!(
            item[0]["request"]["body"],
            json!({"text": format!("{{\"n\":{n}}}")})
        );
        assert_eq!(item[0]["request"]["content_type"], "application/json");
        assert_eq!(item[1]["event"], "accepted");
    }
    assert_eq!(bench.files("pending/shop/").len(), 2500);
    assert_eq!(bench.files("tmp/"), Vec::<String>::new());
}

#[test]
fn a_bad_line_prints_an_empty_one_and_the_others_are_accepted() {
    let bench = bench();
    let rows = [
        (line(1), true, ""),
        ("{".to_owned(), false, "line 2: EOF"),
        (
            r#"{"request":{}}"#.to_owned(),
            false,
            "line 3: `destination` is missing",
        ),
        (
            r#"{"destination":"shpo","request":{}}"#.to_owned(),
            false,
            "did you mean `shop`?",
        ),
        (
            r#"{"destination":"shop","request":{"path":"x"}}"#.to_owned(),
            false,
            "must start with `/`",
        ),
        (
            r#"{"destination":"shop","request":{},"notify":["nobody"]}"#.to_owned(),
            false,
            "`nobody` is not configured",
        ),
        (
            r#"{"destination":"shop","request":{"headers":{"Authorization":"x"}}}"#.to_owned(),
            false,
            "holds a secret",
        ),
        (
            r#"{"destination":"shop","request":{"body":{"text":"a"},"body_sha256":"b"}}"#
                .to_owned(),
            false,
            "body_sha256",
        ),
        (
            r#"{"destination":"shop","request":{},"not_after":"2020-01-01T00:00:00Z"}"#.to_owned(),
            false,
            "not_after is over",
        ),
        (
            "\u{1}\u{1b}[31m".to_owned(),
            false,
            "line 10: it is not a JSON object",
        ),
        (line(2), true, ""),
    ];
    let input: Vec<&str> = rows.iter().map(|(line, _, _)| line.as_str()).collect();
    // The last line has no newline.
    let ran = batch(&bench, &input.join("\n")).code(65);
    let out: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(out.len(), rows.len(), "{ran:#?}");
    for ((_, good, says), out) in rows.iter().zip(&out) {
        assert_eq!(out.is_empty(), !good, "{ran:#?}");
        assert!(ran.stderr.contains(says), "{says}: {ran:#?}");
    }
    assert!(
        ran.stderr.contains("9 of 11 lines were not accepted"),
        "{ran:#?}"
    );
    assert!(!ran.stderr.contains('\u{1b}'), "{ran:#?}");
    assert_eq!(bench.files("pending/shop/").len(), 2);
}

#[test]
fn blank_lines_are_lines_and_no_fault() {
    let bench = bench();
    let ran = batch(&bench, &format!("{}\n\n  \n{}\n", line(1), line(2))).ok();
    let out: Vec<bool> = ran.stdout.lines().map(str::is_empty).collect();
    assert_eq!(out, [false, true, true, false]);
}

#[test]
fn lines_without_a_destination_go_to_the_one_that_is_named() {
    let bench = bench();
    let ran = bench
        .call(&["--quiet", "--json", "enqueue", "ops", "--batch"])
        .stdin("{\"request\":{}}\n\nnothing\n")
        .run()
        .code(65);
    let lines = json_lines(&ran.stdout);
    assert_eq!(lines[0]["line"], 1);
    bench.place(lines[0]["request_id"].as_str().unwrap());
    assert_eq!(lines[1], json!({"line": 2}));
    assert_eq!(lines[2]["line"], 3);
    assert!(
        lines[2]["error"]
            .as_str()
            .unwrap()
            .contains("not a JSON object")
    );
    assert_eq!(bench.files("pending/ops/").len(), 1);
}

#[test]
fn a_line_that_is_too_long_costs_itself_alone() {
    let bench = bench();
    bench.configure("[limits]\nmax_body = 1000", &[("shop", &closed_port(), "")]);
    let long = "x".repeat(3 << 20);
    let input = format!("{}\n{long}\n{}\n{long}", line(1), line(2));
    let ran = batch(&bench, &input).code(65);
    let out: Vec<bool> = ran.stdout.lines().map(str::is_empty).collect();
    assert_eq!(out, [false, true, false, true], "{ran:#?}");
    assert!(ran.stderr.contains("line 2: it is longer than"), "{ran:#?}");
    // A body over the limit is as bad, in a line that is not.
    let body = json!({"destination": "shop", "request": {"body": {"text": "x".repeat(1001)}}});
    let ran = batch(&bench, &body.to_string()).code(65);
    assert!(ran.stderr.contains("max_body"), "{ran:#?}");
}

#[test]
fn large_bodies_go_into_files_of_their_own() {
    let bench = bench();
    let body = "x".repeat(70_000);
    let line = json!({"destination": "shop", "request": {"body": {"text": body}}}).to_string();
    let id = batch(&bench, &line).ok().id();
    let stored = fs::read_to_string(bench.spool().join(format!("bodies/{id}"))).unwrap();
    assert!(stored == body);
    let file = bench.files("pending/shop/").remove(0);
    let text = fs::read_to_string(bench.spool().join(file)).unwrap();
    let request = &json_lines(&text)[0]["request"];
    assert_eq!(
        request["body"],
        json!({"file": format!("bodies/{id}"), "bytes": 70_000})
    );
}

#[test]
fn whoever_waits_for_the_ids_gets_them() {
    let bench = bench();
    let mut running = bench
        .call(&["--quiet", "enqueue", "--batch"])
        .keep_stdin()
        .start();
    let mut input = running.take_stdin();
    let mut output = BufReader::new(running.take_stdout());
    for n in 0..3 {
        // Two lines, the second only begun.
        write!(input, "{}\n{{\"destination\":", line(n)).unwrap();
        input.flush().unwrap();
        let mut id = String::new();
        output.read_line(&mut id).unwrap();
        assert_eq!(bench.files("pending/shop/").len(), 2 * n + 1, "{id}");
        writeln!(input, "\"shop\",\"request\":{{}}}}").unwrap();
        let mut id = String::new();
        output.read_line(&mut id).unwrap();
        bench.place(id.trim_end());
    }
    drop(input);
    running.end().ok();
}

#[test]
fn limits_stop_it_and_say_where() {
    let bench = bench();
    bench.configure("[limits]\nmax_items = 5", &[("shop", &closed_port(), "")]);
    let seven: String = (0..7).map(|n| line(n) + "\n").collect();
    let ran = batch(&bench, &seven).code(75);
    // As many as fit are accepted, and their ids printed.
    let out: Vec<bool> = ran.stdout.lines().map(str::is_empty).collect();
    assert_eq!(out, [false, false, false, false, false, true, true]);
    assert!(ran.stderr.contains("stopped at line 6"), "{ran:#?}");
    assert!(ran.stderr.contains("max_items"), "{ran:#?}");
    bench
        .run(&["enqueue", "shop", "--data", "x"])
        .code(75)
        .says("max_items")
        .prints_nothing();
    bench
        .run(&["status", "--check"])
        .code(2)
        .prints("TICKPOST CRITICAL - max_items");
    bench.configure(
        "[limits]\nmin_free = \"1000000GiB\"",
        &[("shop", &closed_port(), "")],
    );
    bench
        .run(&["enqueue", "shop", "--data", "x"])
        .code(75)
        .says("min_free");
    bench.run(&["status", "--check"]).code(2).prints("min_free");
    assert_eq!(bench.files("pending/").len(), 5);
    assert_eq!(bench.files("tmp/"), Vec::<String>::new());
}

/// What was accepted before needs no room.
#[test]
fn a_full_spool_still_knows_what_it_has() {
    let bench = bench();
    let keyed = |n: usize| {
        json!({"destination": "shop", "key": format!("k{n}"), "request": {"path": format!("/{n}")}})
            .to_string()
            + "\n"
    };
    bench.configure("[limits]\nmax_items = 3", &[("shop", &closed_port(), "")]);
    let three: String = (0..3).map(keyed).collect();
    let first = batch(&bench, &three).ok().stdout;
    assert_eq!(batch(&bench, &three).ok().stdout, first);
    let one = [
        "-q", "enqueue", "shop", "--path", "/1", "--key", "k1", "--data", "",
    ];
    let id = bench.run(&one).ok().id();
    assert_eq!(first.lines().nth(1), Some(&*id));
    // The fourth is refused, and its key is free for when there is room.
    let four: String = (0..4).map(keyed).collect();
    let ran = batch(&bench, &four).code(75);
    assert_eq!(ran.stdout, format!("{first}\n"));
    assert_eq!(bench.files("keys/shop/").len(), 3);
    bench.configure("", &[("shop", &closed_port(), "")]);
    assert_eq!(batch(&bench, &four).ok().stdout.lines().count(), 4);
}

/// Whose id is not printed is not accepted, also when an error ends it.
#[test]
fn an_error_in_the_midst_prints_what_was_accepted_before() {
    let bench = bench();
    fs::remove_dir(bench.spool().join("pending/ops")).unwrap_or_default();
    fs::write(bench.spool().join("pending/ops"), "in the way").unwrap();
    let mut input: String = (0..300)
        .map(|n| {
            json!({"destination": "shop", "key": format!("k{n}"), "request": {}}).to_string() + "\n"
        })
        .collect();
    input.push_str("{\"destination\":\"ops\",\"key\":\"x\",\"request\":{}}\n");
    let ran = batch(&bench, &input).code(78);
    let mut printed: Vec<&str> = ran.stdout.lines().filter(|id| !id.is_empty()).collect();
    printed.sort_unstable();
    let mut there = bench.list_ids(&["--destination", "shop"]);
    there.sort();
    assert!(printed.len() >= 254, "{} of 300", printed.len());
    assert_eq!(printed, there);
    assert_eq!(ran.stdout.lines().count(), 301);
}

#[test]
fn results_that_nobody_takes_stop_it() {
    let bench = bench();
    let lines: String = (0..20_000).map(|n| line(n) + "\n").collect();
    let input = bench.file("input", lines);
    let script = format!("\"$@\" < {input} | head -n 1");
    bench
        .call_by_shell(&script, &["--quiet", "enqueue", "--batch"])
        .run();
    let accepted = bench.files("pending/shop/").len();
    assert!(
        accepted < 20_000,
        "{accepted} accepted, whose ids nobody has"
    );
}

fn setting(name: &str, usual: usize) -> usize {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

/// Every id that was printed is there, and repeating the whole with keys accepts each once.
#[test]
fn killed_again_and_again_each_item_is_accepted_once() {
    let items = setting("TICKPOST_BATCH_ITEMS", 3_000);
    let kills = setting("TICKPOST_BATCH_KILLS", 5);
    let bench = bench();
    let mut printed: BTreeMap<usize, String> = BTreeMap::new();
    let mut note = |n: usize, id: &str| {
        let known = printed.entry(n).or_insert_with(|| id.to_owned());
        assert_eq!(known, id, "line {n} has two ids");
    };
    let mut moment: u64 = 7;
    for round in 0..=kills {
        // Where it dies is drawn by a fixed rule: after so many ids, in the midst of a group.
        moment = moment
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let die_after = (moment >> 33) as usize % items;
        let mut running = bench
            .call(&["--quiet", "enqueue", "--batch"])
            .keep_stdin()
            .start();
        let mut input = running.take_stdin();
        let mut output = BufReader::new(running.take_stdout());
        let (all_printed, wait) = std::sync::mpsc::channel::<()>();
        let producer = std::thread::spawn(move || {
            for n in 0..items {
                let body = json!({"text": format!("{n} {}", "x".repeat(1000))});
                let line = json!({"destination": "shop", "key": format!("k{n}"), "request": {"body": body}});
                if writeln!(input, "{line}").is_err() {
                    return;
                }
            }
            assert!(wait.recv().is_ok() || round < kills);
        });
        let mut n = 0;
        let mut id = String::new();
        while output.read_line(&mut id).unwrap() > 0 {
            if id.ends_with('\n') {
                note(n, id.trim_end());
                n += 1;
            }
            id.clear();
            if round < kills && n == die_after + 1 {
                running.kill();
            }
            if round == kills && n == items {
                let kib = running.peak_memory_kib();
                assert!(kib < 64 * 1024, "{kib} KiB for {items} items");
                all_printed.send(()).unwrap();
            }
        }
        drop(all_printed);
        let ran = running.end();
        assert_eq!(ran.code.is_none(), round < kills, "{ran:#?}");
        producer.join().unwrap();
    }
    assert_eq!(printed.len(), items);
    let mut ids: Vec<&String> = printed.values().collect();
    ids.sort();
    let mut names = Vec::new();
    for entry in fs::read_dir(bench.spool().join("pending/shop")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        names.push(name.strip_suffix(".jsonl").unwrap().to_owned());
    }
    names.sort();
    assert!(
        ids.into_iter().eq(&names),
        "{} items of {items}",
        names.len()
    );
    let keys = fs::read_dir(bench.spool().join("keys/shop"))
        .unwrap()
        .count();
    assert_eq!(keys, items);
}

#[test]
fn options_of_one_item_do_not_go_with_it() {
    let bench = bench();
    for options in [
        &["--data", "x"][..],
        &["--key", "k"],
        &["--path", "/"],
        &["--hold", "x"],
    ] {
        let mut all = vec!["enqueue", "--batch"];
        all.extend(options);
        bench.run(&all).code(2).prints_nothing();
    }
    bench.run(&["enqueue"]).code(2);
}

#[test]
fn a_batch_is_ticked_at_once_if_asked_for() {
    let receiver = support::Receiver::start(vec![]);
    let bench = Bench::with(&[("shop", &receiver.url(), KEYED)]);
    let input: String = (0..3).map(|n| line(n) + "\n").collect();
    let ran = bench
        .call(&["--quiet", "enqueue", "--batch", "--tick"])
        .stdin(input)
        .run()
        .ok();
    for id in ran.stdout.lines() {
        assert!(bench.place(id).starts_with("confirmed/shop/"));
    }
    let mut rest = String::new();
    BufReader::new(ran.stderr.as_bytes())
        .read_to_string(&mut rest)
        .unwrap();
    assert_eq!(rest, "");
    let value: Value = bench.json(&["status"]);
    assert_eq!(value["states"]["confirmed"], 3);
}
