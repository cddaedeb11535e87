//! What `enqueue` refuses, with which exit code, and that nothing is left of it in the spool.
//!
//! CONTRACT 5 (exit codes) and 1 (G1): on 2, 65, 66, 73, 77 and 78 nothing was accepted.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/bench.rs"]
mod bench;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt as _;

use bench::{Bench, Ran};

const NOWHERE: &str = "http://127.0.0.1:9";

fn bench() -> Bench {
    Bench::with(&[("shop", NOWHERE, ""), ("billing-eu", NOWHERE, "")])
}

/// Runs it and checks that the spool is as it was.
#[track_caller]
fn refused<S: AsRef<OsStr>>(bench: &Bench, words: &[S], code: i32) -> Ran {
    let before = bench.tree();
    let ran = bench.run(words).code(code).prints_nothing();
    assert_eq!(bench.tree(), before, "{ran:#?}");
    assert!(!ran.stderr.trim().is_empty(), "it must say why: {ran:#?}");
    ran
}

/// The same, of `enqueue shop --data x` with more options.
#[track_caller]
fn refused_with(bench: &Bench, options: &[&str], code: i32) -> Ran {
    let mut words = vec!["enqueue", "shop", "--data", "x"];
    words.extend(options);
    refused(bench, &words, code)
}

#[test]
fn usage_is_2() {
    let bench = bench();
    for words in [
        &["enqueue"][..],
        &["enqueue", "shop", "--data"],
        &["enqueue", "shop", "--nonsense"],
        &["enqueue", "shop", "surplus"],
        &["enqueue", "shop", "--data", "x", "--file", "y"],
        &["enqueue", "shop", "--data", "x", "--data", "y"],
        &["enqueue", "shop", "--data", "x", "--header", "no colon"],
        &["enqueue", "shop", "--data", "x", "--header", ": no name"],
        &["enqueue", "shop", "--data", "x", "--query", "no-equals"],
        &["enqueue", "shop", "--data", "x", "--query", "=no-name"],
        &["enqueue", "shop", "--data", "x", "--label", "no-equals"],
        &["enqueue", "shop", "--data", "x", "--label", "=no-name"],
        &["enqueue", "shop", "--data", "x", "--color", "pink"],
        &["enqueue", "shop", "--data", "x", "-q", "-v"],
    ] {
        refused(&bench, words, 2);
    }
}

#[test]
fn times_that_are_none_are_2_as_everywhere() {
    let bench = bench();
    for option in ["--not-before", "--not-after"] {
        for time in [
            "",
            "soon",
            "10",
            "+",
            "+x",
            "+1",
            "2026-13-01",
            "2026-11-29 15:40",
            "1e9",
        ] {
            refused_with(&bench, &[option, time], 2).says("time");
        }
    }
}

#[test]
fn words_that_are_no_text_are_2() {
    let bench = bench();
    let mut words: Vec<OsString> = ["enqueue", "shop", "--data"].map(OsString::from).to_vec();
    words.push(OsString::from_vec(vec![0xff, 0xfe]));
    refused(&bench, &words, 2);
}

#[test]
fn an_unknown_destination_is_65_with_the_nearest_name() {
    let bench = bench();
    refused(&bench, &["enqueue", "billing-ue", "--data", "x"], 65)
        .says("did you mean `billing-eu`?");
    refused(&bench, &["enqueue", "zzzzzzz", "--data", "x"], 65)
        .says("`zzzzzzz` is not configured")
        .says("billing-eu, shop");
    refused_with(&bench, &["--notify", "shpo"], 65).says("did you mean `shop`?");
    let empty = Bench::new();
    refused(&empty, &["enqueue", "shop", "--data", "x"], 65).says("[destination.shop]");
}

#[test]
fn names_that_could_be_paths_are_65() {
    let bench = bench();
    let long = "a".repeat(64);
    for name in [
        "", ".", "..", "../shop", "/etc", "Shop", "a b", "a/b", "_a", "-", "shop\n", "ü", &long,
    ] {
        refused(&bench, &["enqueue", "--data", "x", "--", name], 65);
    }
}

#[test]
fn paths_that_leave_the_origin_are_65() {
    let bench = bench();
    for path in [
        "..",
        "/..",
        "/../x",
        "/a/../b",
        "/a/..",
        "/.",
        "/a/./b",
        "/%2e%2e",
        "/%2E%2e/x",
        "/.%2e/x",
        "/a/%2e",
        "//",
        "//evil.example/x",
        "/a?b=c",
        "/a#b",
        "\\",
        "/a\\..\\b",
        "/a b",
        " /a",
        "/a\r\nX-Evil: 1",
        "/a\n",
        "/a\tb",
        "/ü",
        "a",
        "@evil.example",
        ":80/",
        "http://evil.example/",
        "\u{7f}",
    ] {
        refused_with(&bench, &["--path", path], 65).says("path");
    }
}

#[test]
fn methods_that_are_none_are_65() {
    let bench = bench();
    for method in [
        "",
        "P OST",
        "POST\r\nX: 1",
        "CONNECT",
        "connect",
        "PÖST",
        "GET/",
    ] {
        refused_with(&bench, &["--method", method], 65).says("method");
    }
}

#[test]
fn headers_that_would_break_the_request_are_65() {
    let bench = bench();
    for header in [
        "X-A: 1\r\nX-B: 2",
        "X-A: 1\nX-B: 2",
        "X-A: a\u{1}b",
        "X-A: a\u{7f}b",
        "X\r\nEvil: 1",
        "X A: 1",
        "X-Ü: 1",
        "Host: evil.example",
        "content-length: 0",
        "Transfer-Encoding: chunked",
        "Connection: close",
        "Upgrade: h2c",
        "TE: trailers",
        "Trailer: X",
        "Expect: 100-continue",
        "Keep-Alive: 1",
        "Proxy-Connection: close",
    ] {
        refused_with(&bench, &["--header", header], 65).says("header");
    }
    for content_type in ["text/plain\r\nX-Evil: 1", "a\u{1}b"] {
        refused_with(&bench, &["--content-type", content_type], 65).says("content-type");
    }
    let long = format!("X-A: {}", "y".repeat(70_000));
    refused_with(&bench, &["--header", &long], 65).says("bytes together");
    let query = format!("q={}", "y".repeat(70_000));
    refused_with(&bench, &["--query", &query], 65).says("bytes together");
}

#[test]
fn what_the_destination_sets_is_65() {
    let bench = Bench::new();
    let secret = bench.file("secret", "s3cr3t-canary");
    let auth = format!("auth = {{ bearer = {{ file = \"{secret}\" }} }}");
    let own = "auth = { header = { name = \"X-Api-Key\", value = { env = \"NOT_SET\" } } }";
    bench.configure(
        "",
        &[
            ("bearer", NOWHERE, &auth),
            ("named", NOWHERE, own),
            ("keyed", NOWHERE, bench::KEYED),
            ("shop", NOWHERE, ""),
        ],
    );
    for (name, header) in [
        ("bearer", "Authorization: Bearer mine"),
        ("bearer", "AUTHORIZATION: x"),
        ("named", "x-api-key: mine"),
        ("keyed", "idempotency-key: mine"),
    ] {
        let ran = refused(
            &bench,
            &["enqueue", name, "--data", "x", "--header", header],
            65,
        );
        assert!(!ran.stderr.contains("s3cr3t-canary"), "{ran:#?}");
        let field = header.split(':').next().unwrap();
        ran.says(field).says("leave it out");
    }
    for header in ["Authorization: Bearer mine-canary", "cookie: mine-canary"] {
        let ran = refused_with(&bench, &["--header", header], 65);
        assert!(!ran.stderr.contains("mine-canary"), "{ran:#?}");
        ran.says("set `auth`");
    }
}

#[test]
fn a_key_that_has_no_place_is_65() {
    let path = "key = { kind = \"url_path\", window = \"24h\" }";
    let json = "key = { kind = \"json_body\", name = \"/key\", window = \"24h\" }";
    let form = "key = { kind = \"form_body\", name = \"key\", window = \"24h\" }";
    let query = "key = { kind = \"query\", name = \"key\", window = \"24h\" }";
    let bench = Bench::with(&[
        ("path", NOWHERE, path),
        ("json", NOWHERE, json),
        ("form", NOWHERE, form),
        ("query", NOWHERE, query),
    ]);
    refused(
        &bench,
        &["enqueue", "path", "--data", "x", "--path", "/a"],
        65,
    )
    .says("{request_id}");
    refused(&bench, &["enqueue", "json", "--data", "no json"], 65).says("/key");
    refused(&bench, &["enqueue", "form", "--data", "a=b"], 65).says("x-www-form-urlencoded");
    refused(
        &bench,
        &["enqueue", "query", "--data", "x", "--query", "key=mine"],
        65,
    )
    .says("key");
}

#[test]
fn a_body_that_is_too_large_is_65_and_names_max_body() {
    let bench = bench();
    bench.configure("[limits]\nmax_body = 10", &[("shop", NOWHERE, "")]);
    let file = bench.file("body", "12345678901");
    for words in [
        &["enqueue", "shop", "--data", "12345678901"][..],
        &["enqueue", "shop", "--file", &file],
    ] {
        refused(&bench, words, 65).says("max_body").says("[limits]");
    }
    let before = bench.tree();
    let ran = bench.call(&["enqueue", "shop"]).stdin("12345678901").run();
    ran.code(65).says("max_body").prints_nothing();
    assert_eq!(bench.tree(), before);
    bench.run(&["enqueue", "shop", "--data", "1234567890"]).ok();
}

#[test]
fn files_that_cannot_be_read_are_66_74_or_77() {
    let bench = bench();
    refused(
        &bench,
        &["enqueue", "shop", "--file", "/nowhere/at-all"],
        66,
    )
    .says("/nowhere/at-all");
    refused(&bench, &["enqueue", "shop", "--file", ""], 2);
    let dir = bench.dir().to_str().unwrap().to_owned();
    refused(&bench, &["enqueue", "shop", "--file", &dir], 74).says(&dir);
    if !rustix::process::getuid().is_root() {
        let file = bench.file("body", "x");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o0);
        std::fs::set_permissions(&file, mode).unwrap();
        refused(&bench, &["enqueue", "shop", "--file", &file], 77).says(&file);
    }
}

#[test]
fn an_end_before_the_beginning_is_65() {
    let bench = bench();
    for options in [
        &["--not-after", "2020-01-01"][..],
        &["--not-after", "2020-01-01T00:00:00Z"],
        &["--not-after", "now"],
        &["--not-after", "+0s"],
        &["--not-after", "+1h", "--not-before", "+2h"],
        &["--not-after", "+1h", "--not-before", "+1h"],
    ] {
        refused_with(&bench, options, 65).says("not_after");
    }
}

#[test]
fn without_a_spool_it_is_73() {
    let bench = Bench::bare();
    bench
        .run(&["enqueue", "shop", "--data", "x"])
        .code(73)
        .says("init")
        .prints_nothing();
    let config = bench.file(
        "config.toml",
        format!("[destination.shop]\nbase_url = \"{NOWHERE}\"\n"),
    );
    let words = ["--config", &config, "enqueue", "shop", "--data", "x"];
    bench
        .run(&words)
        .code(73)
        .says("there is no spool at")
        .prints_nothing();
    assert!(!bench.spool().exists());
}

#[test]
fn the_spool_of_another_user_is_77() {
    if !rustix::process::getuid().is_root() {
        return;
    }
    let bench = bench();
    let id = bench.enqueue("shop", &["--data", "x"]);
    std::os::unix::fs::chown(bench.spool(), Some(65_534), None).unwrap();
    for words in [
        &["enqueue", "shop", "--data", "x"][..],
        &["tick"],
        &["hold", &id],
        &["hold", "--destination", "shop"],
        &["release", "--destination", "shop"],
        &["cancel", &id],
        &["init"],
    ] {
        refused(&bench, words, 77)
            .says("uid 65534")
            .says(" -u nobody");
    }
    // Readers may.
    bench.run(&["list"]).ok().prints(&id);
    bench.run(&["show", &id]).ok();
    bench.run(&["status"]).ok();
}

#[test]
fn faults_of_the_configuration_are_78_with_file_line_and_a_hint() {
    let bench = bench();
    bench.write_config(
        "[tick]\nmax_runtim = \"50s\"\n\n[destination.shop]\nbase_url = \"ftp://x\"\n",
    );
    let ran = refused(&bench, &["enqueue", "shop", "--data", "x"], 78);
    ran.says("tickpost.toml:2:")
        .says("max_runtime")
        .says("tickpost.toml:5:")
        .says("config check");
    bench.write_config("this is not TOML");
    refused(&bench, &["enqueue", "shop", "--data", "x"], 78).says("tickpost.toml:1:");
    std::fs::remove_file(bench.spool().join("tickpost.toml")).unwrap();
    refused(&bench, &["enqueue", "shop", "--data", "x"], 78).says("tickpost.toml does not exist");
    refused(
        &bench,
        &["--config", "/nowhere/c.toml", "enqueue", "shop"],
        78,
    )
    .says("/nowhere/c.toml");
}

/// Whose the spool is counts, not whose the link to it.
#[test]
fn a_link_to_the_spool_of_another_user_is_77_too() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let bench = bench();
    std::os::unix::fs::chown(bench.spool(), Some(65_534), None).unwrap();
    let link = bench.dir().join("link");
    std::os::unix::fs::symlink(bench.spool(), &link).unwrap();
    let link = link.to_str().unwrap();
    for words in [
        &["--spool", link, "enqueue", "shop", "--data", "x"][..],
        &["--spool", link, "tick"],
        &["--spool", link, "init"],
    ] {
        bench.call_plain(words).run().code(77).says("uid 65534");
    }
    assert_eq!(bench.files("pending/"), Vec::<String>::new());
    assert_eq!(bench.files("destinations/"), Vec::<String>::new());
}
