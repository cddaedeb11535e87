//! A secret ends nowhere: not in the spool, not in what is printed, not in what is said.
//!
//! CONTRACT 1 (G12).

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/bench.rs"]
mod bench;
mod support;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bench::{Bench, IMPATIENT, KEYED, Ran};
use support::{Receiver, Reply, closed_port};

/// With characters that JSON, forms and URLs write in another way.
const CANARY: &str = "canary+/\"x&7f3a9c";

/// One way to give a secret, and what proves who we are on the wire.
struct Way {
    auth: String,
    header: &'static str,
    value: String,
}

fn ways(bench: &Bench) -> Vec<Way> {
    let file = bench.file("secret", format!("{CANARY}\n"));
    let basic = STANDARD.encode(format!("shop:{CANARY}"));
    let way = |auth: &str, header, value: &str| Way {
        auth: format!("auth = {{ {auth} }}"),
        header,
        value: value.to_owned(),
    };
    vec![
        way(
            &format!("bearer = {{ file = \"{file}\" }}"),
            "authorization",
            &format!("Bearer {CANARY}"),
        ),
        way(
            "bearer = { env = \"SHOP_TOKEN\" }",
            "authorization",
            &format!("Bearer {CANARY}"),
        ),
        way(
            "bearer = { credential = \"shop\" }",
            "authorization",
            &format!("Bearer {CANARY}"),
        ),
        way(
            "basic = { user = \"shop\", password = { env = \"SHOP_TOKEN\" } }",
            "authorization",
            &format!("Basic {basic}"),
        ),
        way(
            "header = { name = \"X-Api-Key\", prefix = \"Token \", value = { env = \"SHOP_TOKEN\" } }",
            "x-api-key",
            &format!("Token {CANARY}"),
        ),
    ]
}

/// The secret in every spelling that could come back.
fn spellings() -> Vec<String> {
    let quoted = serde_json::to_string(CANARY).unwrap();
    vec![
        CANARY.to_owned(),
        quoted.trim_matches('"').to_owned(),
        STANDARD.encode(CANARY),
        STANDARD.encode(format!("shop:{CANARY}")),
        "canary%2B%2F%22x%267f3a9c".to_owned(),
        // Whatever the spelling, this part of it is never changed.
        "7f3a9c".to_owned(),
    ]
}

#[track_caller]
fn absent(what: &str, text: &str) {
    for spelling in spellings() {
        assert!(!text.contains(&spelling), "`{spelling}` in {what}: {text}");
    }
}

/// Runs it with the secret at hand and checks what it printed.
fn run(bench: &Bench, words: &[&str]) -> Ran {
    let credentials: PathBuf = bench.dir().join("credentials");
    fs::create_dir_all(&credentials).unwrap();
    fs::write(credentials.join("shop"), CANARY).unwrap();
    let call = bench.call(words).env("SHOP_TOKEN", CANARY);
    let ran = call.env("CREDENTIALS_DIRECTORY", &credentials).run().ok();
    absent("stdout", &ran.stdout);
    absent("stderr", &ran.stderr);
    ran
}

/// Checks every file of the spool.
fn spool_is_clean(bench: &Bench) {
    for (path, entry) in bench.tree() {
        absent(&path, &path);
        absent(&path, &String::from_utf8_lossy(&entry.bytes));
    }
}

fn look_everywhere(bench: &Bench, id: &str) {
    for words in [
        &["show", id][..],
        &["--json", "show", id],
        &["list"],
        &["--json", "list"],
        &["status"],
        &["--json", "status"],
        &["tick", "--dry-run"],
        &["rules", "list", "shop"],
        &["config", "check"],
    ] {
        run(bench, words);
    }
    spool_is_clean(bench);
}

#[test]
fn an_echo_of_the_credential_is_cut_out_whatever_the_answer() {
    for status in [200, 400, 401, 403, 422, 500, 503] {
        for way in 0..5 {
            let bench = Bench::new();
            let way = ways(&bench).swap_remove(way);
            let json = serde_json::json!({"error": {"message": way.value, "code": "x"}});
            let encoded: String =
                url::form_urlencoded::byte_serialize(way.value.as_bytes()).collect();
            let body = format!("{json}\nyou sent {}\n{encoded}", way.value);
            let reply = Reply::status(status)
                .header(
                    "www-authenticate",
                    &format!("Bearer realm=\"{}\"", way.value),
                )
                .header("location", &format!("/?{encoded}"))
                .header("x-request-id", &way.value)
                .body(body);
            let receiver = Receiver::start(vec![reply]);
            bench.configure("", &[("shop", &receiver.url(), &way.auth)]);
            let id = bench.enqueue("shop", &["--data", "x"]);
            let ran = run(&bench, &["-v", "-v", "tick"]);
            let arrivals = receiver.arrivals();
            assert_eq!(arrivals.len(), 1, "{status} {}: {ran:#?}", way.auth);
            assert_eq!(arrivals[0].header(way.header), Some(way.value.as_str()));
            let excerpt = bench.last_event(&id)["response"]["excerpt"].clone();
            assert!(excerpt.as_str().unwrap().contains("you sent"), "{excerpt}");
            look_everywhere(&bench, &id);
        }
    }
}

#[test]
fn an_echo_at_the_end_of_the_excerpt_leaves_no_half() {
    // 2 KiB are kept: wherever the secret stands, no part of it may be.
    for before in [2040, 2045, 2047] {
        let bench = Bench::new();
        let auth = "auth = { bearer = { env = \"SHOP_TOKEN\" } }";
        let body = format!("{}{CANARY}{}", "-".repeat(before), "-".repeat(100));
        let receiver = Receiver::start(vec![Reply::status(422).body(body)]);
        bench.configure("", &[("shop", &receiver.url(), auth)]);
        let id = bench.enqueue("shop", &["--data", "x"]);
        run(&bench, &["tick"]);
        let text = bench.item(&id)[2].to_string();
        assert!(!text.contains("ca\"") && !text.contains("canary"), "{text}");
    }
}

#[test]
fn failures_of_the_connection_tell_nothing() {
    let garbage = format!("NONSENSE {CANARY}\r\n\r\n");
    let receiver = Receiver::start(vec![
        Reply::raw(garbage),
        Reply::reset(),
        Reply::silent(),
        Reply::raw(format!(
            "HTTP/1.1 200 {CANARY}\r\ncontent-length: 2\r\n\r\nok"
        )),
    ]);
    let more = format!("auth = {{ bearer = {{ env = \"SHOP_TOKEN\" }} }}\n{KEYED}\n{IMPATIENT}");
    let bench = Bench::with(&[
        ("shop", &receiver.url(), &more),
        ("gone", &closed_port(), &more),
    ]);
    let mut ids = vec![bench.enqueue("gone", &["--data", "x"])];
    for _ in 0..4 {
        ids.push(bench.enqueue("shop", &["--data", "x"]));
        run(&bench, &["-v", "-v", "tick"]);
        run(&bench, &["release", "--destination", "shop"]);
    }
    assert_eq!(receiver.arrivals().len(), 4);
    for id in ids {
        look_everywhere(&bench, &id);
    }
}

#[test]
fn a_secret_that_cannot_be_sent_is_not_shown() {
    let bench = Bench::new();
    let receiver = Receiver::start(vec![]);
    let auth = "auth = { bearer = { env = \"SHOP_TOKEN\" } }";
    bench.configure("", &[("shop", &receiver.url(), auth)]);
    bench.enqueue("shop", &["--data", "x"]);
    for bad in [format!("{CANARY}\n{CANARY}"), format!("{CANARY}\u{7f}")] {
        bench.run(&["release", "--destination", "shop"]).ok();
        for (words, code) in [(&["-v", "tick"][..], 0), (&["config", "check"], 78)] {
            let ran = bench.call(words).env("SHOP_TOKEN", &bad).run().code(code);
            absent("stderr", &ran.stderr);
            absent("stdout", &ran.stdout);
            assert!(ran.stderr.contains("SHOP_TOKEN"), "{ran:#?}");
        }
    }
    assert_eq!(receiver.arrivals().len(), 0);
    spool_is_clean(&bench);
}

#[test]
fn a_notice_holds_no_secret() {
    let reply = Reply::status(422).body(format!("refused: {CANARY}"));
    let receiver = Receiver::by_path([("/fail", vec![reply])]);
    let url = receiver.url();
    let auth = "auth = { bearer = { env = \"SHOP_TOKEN\" } }";
    let bench = Bench::with(&[("shop", &url, auth), ("ops", &url, "")]);
    let id = bench.enqueue(
        "shop",
        &["--data", "x", "--path", "/fail", "--notify", "ops"],
    );
    run(&bench, &["tick"]);
    let arrivals = receiver.wait_for(2);
    assert!(arrivals[1].text().contains(&id));
    absent("the notice", &arrivals[1].text());
    assert_eq!(
        arrivals[1].header("authorization"),
        None,
        "the credential is shop's own"
    );
    spool_is_clean(&bench);
}

/// As some keepers of secrets serve them: whoever opens it waits until somebody writes.
#[test]
fn a_pipe_in_the_place_of_a_secret_or_a_certificate_costs_its_destination() {
    let receiver = Receiver::start(vec![]);
    let bench = Bench::new();
    let pipe = bench.dir().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let pipe = pipe.display();
    let secret = format!("auth = {{ bearer = {{ file = \"{pipe}\" }} }}");
    let tls = format!("tls = {{ ca_file = \"{pipe}\" }}");
    bench.configure(
        "",
        &[
            ("secret", &receiver.url(), &secret),
            ("tls", "https://127.0.0.1:9", &tls),
            ("shop", &receiver.url(), ""),
        ],
    );
    let ids: Vec<String> = ["secret", "tls", "shop"]
        .map(|name| bench.enqueue(name, &["--data", "x"]))
        .into();
    let ticked = bench.run(&["tick"]).ok();
    assert!(ticked.stderr.contains("no regular file"), "{ticked:#?}");
    assert!(bench.place(&ids[2]).starts_with("confirmed/"));
    for id in &ids[..2] {
        assert!(!bench.place(id).starts_with("unknown/"), "{id}");
    }
    assert_eq!(receiver.arrivals().len(), 1);
}
