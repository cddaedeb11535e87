//! `enqueue`: what it writes, what it prints, and what each option does to the envelope.
//!
//! CONTRACT 3 (item file), 5 (`enqueue`) and 1 (G1).

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/bench.rs"]
mod bench;

use std::fmt::Write as _;
use std::fs;

use bench::{Bench, assert_fields, assert_has_fields, assert_time};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

const NOWHERE: &str = "http://127.0.0.1:9";

fn bench() -> Bench {
    Bench::with(&[("shop", NOWHERE, ""), ("ops", NOWHERE, "")])
}

fn sha256(bytes: impl AsRef<[u8]>) -> String {
    let mut text = String::new();
    for byte in Sha256::digest(bytes) {
        write!(text, "{byte:02x}").unwrap();
    }
    text
}

/// Accepts an item for `shop` and returns its first line.
fn envelope(bench: &Bench, options: &[&str]) -> Value {
    let id = bench.enqueue("shop", options);
    bench.item(&id).remove(0)
}

#[test]
fn prints_the_id_alone_and_the_item_lies_in_pending() {
    let bench = bench();
    let ran = bench.run(&["enqueue", "shop", "--data", "{}"]).ok();
    let id = ran.id();
    assert_eq!(uuid::Uuid::parse_str(&id).unwrap().get_version_num(), 7);
    assert_eq!(bench.place(&id), format!("pending/shop/{id}.jsonl"));
    let text = fs::read_to_string(bench.spool().join(bench.place(&id))).unwrap();
    assert_eq!(text.lines().count(), 2);
    assert!(text.ends_with("}\n"), "{text}");
}

#[test]
fn line_1_is_the_envelope_and_line_2_the_event_accepted() {
    let bench = bench();
    let id = bench.enqueue(
        "shop",
        &["--data", "{\"amount\":5}", "--principal", "alice"],
    );
    let text = fs::read_to_string(bench.spool().join(bench.place(&id))).unwrap();
    let [envelope, accepted] = &bench.item(&id)[..] else {
        panic!("two lines: {text}");
    };
    assert_fields(
        envelope,
        "v request_id destination enqueued_at request requester",
    );
    assert_eq!(envelope["v"], 1);
    assert_eq!(envelope["request_id"], *id);
    assert_eq!(envelope["destination"], "shop");
    assert_time(&envelope["enqueued_at"]);
    assert_eq!(envelope["requester"], json!({"principal": "alice"}));
    let request = json!({
        "method": "POST",
        "content_type": "application/json",
        "body": {"text": "{\"amount\":5}"},
        "body_sha256": sha256("{\"amount\":5}"),
    });
    assert_eq!(envelope["request"], request);

    assert_fields(accepted, "event at by state envelope_sha256");
    assert_eq!(accepted["event"], "accepted");
    assert_eq!(accepted["state"], "pending");
    assert_eq!(accepted["at"], envelope["enqueued_at"]);
    let line = text.lines().next().unwrap();
    assert_eq!(accepted["envelope_sha256"], sha256(line));
    let uid = rustix::process::getuid().as_raw();
    let by = accepted["by"].as_str().unwrap();
    assert!(by.ends_with(&format!("({uid})")), "{by}");
    // The envelope begins as the contract writes it, for people who read it.
    assert!(line.starts_with(&format!(
        "{{\"v\":1,\"request_id\":\"{id}\",\"destination\""
    )));
}

#[test]
fn every_option_has_its_place_in_the_envelope() {
    let bench = bench();
    let envelope = envelope(
        &bench,
        &[
            "--data",
            "x",
            "--method",
            "PUT",
            "--path",
            "/v1/charges",
            "--query",
            "expand=x",
            "--query",
            "q=a=b c",
            "--header",
            "X-Trace: 7",
            "--header",
            "X-Empty:",
            "--content-type",
            "text/plain",
            "--not-before",
            "2096-11-29T15:40:03Z",
            "--not-after",
            "2096-12-01",
            "--principal",
            "alice",
            "--thread",
            "deploy-42",
            "--label",
            "env=prod",
            "--label",
            "team=a=b",
            "--notify",
            "ops",
        ],
    );
    let request = &envelope["request"];
    assert_eq!(request["method"], "PUT");
    assert_eq!(request["path"], "/v1/charges");
    assert_eq!(request["query"], json!([["expand", "x"], ["q", "a=b c"]]));
    assert_eq!(
        request["headers"],
        json!([["X-Trace", "7"], ["X-Empty", ""]])
    );
    assert_eq!(request["content_type"], "text/plain");
    assert_eq!(envelope["not_before"], "2096-11-29T15:40:03.000Z");
    assert_eq!(envelope["not_after"], "2096-12-01T00:00:00.000Z");
    let requester = json!({"principal": "alice", "thread": "deploy-42"});
    assert_eq!(envelope["requester"], requester);
    assert_eq!(envelope["labels"], json!({"env": "prod", "team": "a=b"}));
    assert_eq!(envelope["notify"], json!(["ops"]));
    assert_fields(
        &envelope,
        "v request_id destination enqueued_at request requester notify labels not_before not_after",
    );
    assert_fields(
        request,
        "method path query headers content_type body body_sha256",
    );
}

#[test]
fn spans_count_from_now_and_the_due_time_is_the_files_mtime() {
    let bench = bench();
    let options = ["--data", "x", "--not-before", "+90m", "--not-after", "+1d"];
    let id = bench.enqueue("shop", &options);
    let envelope = bench.item(&id).remove(0);
    let at = |name: &str| {
        let text = envelope[name].as_str().unwrap();
        chrono::DateTime::parse_from_rfc3339(text)
            .unwrap()
            .timestamp_millis()
    };
    assert_eq!(at("not_before") - at("enqueued_at"), 90 * 60_000);
    assert_eq!(at("not_after") - at("enqueued_at"), 86_400_000);
    let (s, ns) = bench.tree()[&bench.place(&id)].mtime;
    assert_eq!(s * 1000 + ns / 1_000_000, at("not_before"));
}

#[test]
fn json_is_an_object_with_the_id() {
    let bench = bench();
    let said = bench.json(&["enqueue", "shop", "--data", "x"]);
    assert_fields(&said, "request_id");
    bench.place(said["request_id"].as_str().unwrap());
}

#[test]
fn the_body_comes_from_stdin_an_option_or_a_file() {
    let bench = bench();
    let stored = |id: &str| bench.item(id).remove(0)["request"].clone();
    let file = bench.file("body", "from a file");
    let from_option = bench.enqueue("shop", &["--data", "from an option"]);
    assert_eq!(
        stored(&from_option)["body"],
        json!({"text": "from an option"})
    );
    let from_file = bench.enqueue("shop", &["--file", &file]);
    assert_eq!(stored(&from_file)["body"], json!({"text": "from a file"}));
    for words in [
        &["enqueue", "shop"][..],
        &["enqueue", "shop", "--file", "-"],
    ] {
        let id = bench.call(words).stdin("from stdin\n").run().ok().id();
        assert_eq!(stored(&id)["body"], json!({"text": "from stdin\n"}));
        assert_eq!(stored(&id)["body_sha256"], sha256("from stdin\n"));
    }
}

#[test]
fn bytes_that_are_no_text_are_kept_as_base64() {
    let bench = bench();
    let bytes = [0xff, 0x00, 0xfe, b'a'];
    let id = bench
        .call(&["enqueue", "shop"])
        .stdin(bytes)
        .run()
        .ok()
        .id();
    let request = bench.item(&id).remove(0)["request"].clone();
    assert_eq!(request["body"], json!({"base64": "/wD+YQ=="}));
    assert_eq!(request["body_sha256"], sha256(bytes));
    assert!(request.get("content_type").is_none(), "{request}");
}

#[test]
fn an_empty_body_is_left_out_and_hashed_all_the_same() {
    let bench = bench();
    let id = bench.run(&["enqueue", "shop"]).ok().id();
    let request = bench.item(&id).remove(0)["request"].clone();
    assert_eq!(
        request,
        json!({"method": "POST", "body_sha256": sha256("")})
    );
}

#[test]
fn json_is_recognised_and_a_given_type_stands() {
    let bench = bench();
    let content_type =
        |options: &[&str]| envelope(&bench, options)["request"]["content_type"].clone();
    assert_eq!(content_type(&["--data", " [1]\n"]), "application/json");
    assert_eq!(content_type(&["--data", "[1"]), Value::Null);
    let own = ["--data", "[1]", "--content-type", "application/x-mine"];
    assert_eq!(content_type(&own), "application/x-mine");
}

#[test]
fn control_characters_and_any_script_survive_in_a_body_and_in_labels() {
    let bench = bench();
    let body = "line\r\n\u{1b}[31m \u{2028} ü \u{1f600} \" \\ \u{7f}";
    let id = bench
        .call(&["enqueue", "shop", "--label", "k=ü\n\u{1b}"])
        .stdin(body)
        .run()
        .ok()
        .id();
    let lines = bench.item(&id);
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0]["request"]["body"]["text"], body);
    assert_eq!(lines[0]["labels"]["k"], "ü\n\u{1b}");
    // People's terminals are not steered by it.
    let shown = bench.run(&["--color", "never", "show", &id]).ok().stdout;
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
}

#[test]
fn ids_grow_with_time() {
    let bench = bench();
    let ids: Vec<String> = (0..5)
        .map(|_| bench.enqueue("shop", &["--data", "x"]))
        .collect();
    let mut sorted = ids.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!(ids, sorted);
}

#[test]
fn enqueue_takes_no_lock_and_touches_wake() {
    let bench = bench();
    let before = bench.tree();
    let held = bench.hold_lock("a tick of this test");
    let id = bench.enqueue("shop", &["--data", "x"]);
    drop(held);
    let mut after = bench.tree();
    assert_ne!(after["wake"].mtime, before["wake"].mtime);
    assert_eq!(after["lock"].inode, before["lock"].inode);
    // It writes nothing but the item, its directory, its line in the ledger, and `wake`.
    after.retain(|path, _| !path.starts_with("log/accepted-"));
    after.remove(&format!("pending/shop/{id}.jsonl")).unwrap();
    after.remove("pending/shop").unwrap();
    assert_eq!(
        after.keys().collect::<Vec<_>>(),
        before.keys().collect::<Vec<_>>()
    );
}

#[test]
fn an_item_that_nobody_would_be_told_of_is_warned_of() {
    let bench = bench();
    let words = ["enqueue", "shop", "--data", "x"];
    bench
        .run(&words)
        .ok()
        .says("nobody is told")
        .says("--notify");
    let with_option = ["enqueue", "shop", "--data", "x", "--notify", "ops"];
    assert_eq!(bench.run(&with_option).ok().stderr, "");
    assert_eq!(
        bench
            .run(&["-q", "enqueue", "shop", "--data", "x"])
            .ok()
            .stderr,
        ""
    );
    bench.configure(
        "[notify]\ndestinations = [\"ops\"]",
        &[("shop", NOWHERE, ""), ("ops", NOWHERE, "")],
    );
    assert_eq!(bench.run(&words).ok().stderr, "");
}

#[test]
fn an_old_last_tick_is_warned_of() {
    let bench = bench();
    let words = ["enqueue", "shop", "--data", "x", "--notify", "ops"];
    bench.tick();
    assert_eq!(bench.run(&words).ok().stderr, "");
    let old = Bench::with(&[("shop", NOWHERE, ""), ("ops", NOWHERE, "")]);
    old.write_tick_line("20200101", "2020-01-01T00:00:00.000Z");
    let ran = old
        .run(&words)
        .ok()
        .says("the last tick ended")
        .says("timer");
    ran.id();
    let mut quiet = vec!["--quiet"];
    quiet.extend(words);
    assert_eq!(old.run(&quiet).ok().stderr, "");
}

#[test]
fn a_spool_that_never_saw_a_tick_is_warned_of_when_it_is_old() {
    let bench = bench();
    let words = ["enqueue", "shop", "--data", "x", "--notify", "ops"];
    assert_eq!(bench.run(&words).ok().stderr, "");
    let mut described = bench.read_json("spool.json");
    described["created_at"] = json!("2020-01-01T00:00:00.000Z");
    fs::write(bench.spool().join("spool.json"), described.to_string()).unwrap();
    bench.run(&words).ok().says("no tick has run yet");
}

#[test]
fn an_id_that_cannot_be_printed_is_74_and_the_item_is_there() {
    let bench = bench();
    let words = ["--quiet", "enqueue", "shop", "--data", "x"];
    let ran = bench.call_by_shell("exec \"$@\" > /dev/full", &words).run();
    ran.code(74).says("cannot write the results");
    assert_eq!(bench.files("pending/").len(), 1);
    assert_eq!(bench.list(&[]).len(), 1);
}

#[test]
fn the_request_that_is_stored_is_the_request_that_show_tells() {
    let bench = bench();
    let id = bench.enqueue("shop", &["--data", "x", "--path", "/a", "--thread", "t"]);
    let shown = bench.show(&id);
    assert_has_fields(&shown, "request_id state envelope events file next");
    let mut lines = bench.item(&id);
    assert_eq!(shown["envelope"], lines.remove(0));
    assert_eq!(shown["events"], Value::Array(lines));
}
