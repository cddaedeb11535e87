//! `rules test`, `rules list` and `config check`.
//!
//! CONTRACT 5 and 8.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/bench.rs"]
mod bench;

use std::fs;

use bench::{Bench, KEYED, assert_fields, assert_has_fields};
use serde_json::{Value, json};

const NOWHERE: &str = "http://127.0.0.1:9";

const RULE: &str = "[[destination.shop.rule]]\nname = \"declined\"\nstate = \"failed\"\n\
                    reason = \"content_rejected\"\n\
                    when = { status = [402], json = { \"/error/code\" = \"card_declined\" } }";

fn bench() -> Bench {
    Bench::with(&[("keyed", NOWHERE, KEYED), ("shop", NOWHERE, RULE)])
}

/// The verdict on a saved response from standard input.
fn verdict(bench: &Bench, options: &[&str], response: &str) -> Value {
    let mut words = vec!["--json", "rules", "test"];
    words.extend(options);
    words.push("-");
    bench.call(&words).stdin(response).run().ok().json()
}

fn answer(status: u16, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status} Status\r\n{headers}\r\n{body}")
}

#[test]
fn json_has_the_fields_of_the_contract() {
    let bench = bench();
    let said = verdict(
        &bench,
        &["shop"],
        &answer(429, "Retry-After: 7\r\n", "slow down"),
    );
    assert_has_fields(&said, "state reason rule scope retry_after_s raw action");
    assert_eq!(said["state"], "pending");
    assert_eq!(said["reason"], "rate_limited");
    assert_eq!(said["rule"], "default/429");
    assert_eq!(said["scope"], "destination");
    assert_eq!(said["retry_after_s"], 7);
    assert_eq!(said["action"], Value::Null);
    // Beyond the contract there is only the receipt.
    assert_fields(
        &said,
        "state reason rule scope retry_after_s raw action receipt",
    );
}

#[test]
fn a_rule_of_the_destinations_own_goes_first() {
    let bench = bench();
    let declined = answer(
        402,
        "Content-Type: application/json\r\n",
        "{\"error\":{\"code\":\"card_declined\"}}",
    );
    let said = verdict(&bench, &["shop"], &declined);
    assert_eq!(said["state"], "failed");
    assert_eq!(said["reason"], "content_rejected");
    assert_eq!(said["rule"], "destination:shop/declined");
    let said = verdict(&bench, &["profile:default"], &declined);
    assert!(
        said["rule"].as_str().unwrap().starts_with("default/"),
        "{said:#}"
    );
}

#[test]
fn the_response_comes_from_a_file_too_as_curl_prints_it() {
    let bench = bench();
    let file = bench.file("saved", "HTTP/2 200 \ncontent-type: text/plain\n\nok");
    let said = bench.json(&["rules", "test", "shop", &file]);
    assert_eq!(said["state"], "confirmed");
    // An interim answer and a redirected first answer come before the one that counts.
    let two = bench.file(
        "two",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\n\r\n",
    );
    let said = bench.json(&["rules", "test", "shop", &two]);
    assert!(said["rule"].as_str().unwrap().contains("404"), "{said:#}");
}

#[test]
fn for_people_it_explains() {
    let bench = bench();
    let response = answer(429, "Retry-After: 7\r\n", "");
    let ran = bench
        .call(&["rules", "test", "shop", "-"])
        .stdin(response)
        .run()
        .ok();
    ran.prints("pending  rate_limited")
        .prints("default/429")
        .prints("7 s");
}

#[test]
fn transport_classes_need_no_response() {
    let bench = bench();
    let of = |class: &str| bench.json(&["rules", "test", "shop", "--transport", class]);
    for class in [
        "dns_failure",
        "connect_refused",
        "connect_timeout",
        "connect_unreachable",
        "proxy_connect_failed",
        "tls_handshake_failed",
        "closed_before_write",
        "h2_refused_stream",
        "h2_goaway_unprocessed",
    ] {
        assert_eq!(of(class)["state"], "pending", "{class}");
    }
    for class in ["tls_cert_invalid", "local_error"] {
        assert_eq!(of(class)["state"], "held", "{class}");
    }
    for class in [
        "write_interrupted",
        "timeout_after_send",
        "reset_after_send",
        "closed_no_response",
        "malformed_response",
        "truncated_headers",
    ] {
        assert_eq!(of(class)["state"], "unknown", "{class}");
    }
    let said = of("connect_refused");
    assert_has_fields(&said, "state reason rule scope retry_after_s raw action");
    assert_eq!(said["reason"], "connect_failed");
}

#[test]
fn a_cut_body_goes_with_a_response() {
    let bench = bench();
    let cut = verdict(
        &bench,
        &["shop", "--transport", "truncated_body"],
        &answer(200, "", "{\"id\":"),
    );
    let whole = verdict(&bench, &["shop"], &answer(200, "", "{\"id\":"));
    assert_eq!(whole["state"], "confirmed");
    assert_has_fields(&cut, "state reason rule");
    bench
        .run(&["rules", "test", "shop", "--transport", "truncated_body"])
        .code(2);
}

#[test]
fn prior_method_key_and_time_change_the_verdict() {
    let bench = Bench::new();
    let rules = format!(
        "{KEYED}\n\
         [[destination.shop.rule]]\nname = \"again\"\nstate = \"confirmed\"\nreason = \"duplicate_confirmed\"\n\
         when = {{ status = [409], prior = \"maybe\" }}\n\
         [[destination.shop.rule]]\nname = \"put\"\nstate = \"failed\"\nreason = \"content_rejected\"\n\
         when = {{ status = [409], method = [\"PUT\"] }}\n"
    );
    bench.configure("", &[("shop", NOWHERE, &rules)]);
    let conflict = answer(409, "", "");
    let rule = |options: &[&str]| {
        let all = [&["shop"], options].concat();
        verdict(&bench, &all, &conflict)["rule"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(rule(&["--prior", "maybe"]), "destination:shop/again");
    assert_eq!(rule(&["--method", "PUT"]), "destination:shop/put");
    assert!(rule(&[]).starts_with("default/"));
    assert!(rule(&["--prior", "none"]).starts_with("default/"));
    // A wait that is a date counts from --at.
    let date = answer(503, "Retry-After: Sun, 29 Nov 2026 15:41:00 GMT\r\n", "");
    let said = verdict(&bench, &["shop", "--at", "2026-11-29T15:40:00Z"], &date);
    assert_eq!(said["retry_after_s"], 60);
    // Whether a key was sent: a rule of the default table asks.
    let lost = ["--transport", "timeout_after_send"];
    for options in [&[][..], &["--no-key"]] {
        let all = [&["rules", "test", "shop"][..], &lost, options].concat();
        assert_eq!(bench.json(&all)["state"], "unknown");
    }
}

#[test]
fn what_is_wrong_has_its_code() {
    let bench = bench();
    let fine = bench.file("fine", answer(200, "", ""));
    for (words, code) in [
        (&["rules", "test", "shop"][..], 2),
        (&["rules", "test"], 2),
        (&["rules"], 2),
        (&["rules", "test", "shop", &fine, "--prior", "perhaps"], 2),
        (&["rules", "test", "shop", &fine, "--at", "soon"], 2),
        (&["rules", "test", "shop", "--transport", "gremlins"], 2),
        (&["rules", "test", "nope", &fine], 65),
        (&["rules", "test", "../shop", &fine], 65),
        (&["rules", "test", "profile:nope", &fine], 65),
        (&["rules", "list", "nope"], 65),
        (&["rules", "list", "profile:nope"], 65),
        (&["rules", "test", "shop", "/nowhere/at-all"], 66),
    ] {
        bench.run(words).code(code).prints_nothing();
    }
    bench
        .run(&["rules", "test", "shop", "--transport", "gremlins"])
        .says("timeout_after_send");
    for bad in [
        "",
        "hello",
        "HTTP/1.1\r\n\r\n",
        "HTTP/1.1 2xx OK\r\n\r\n",
        "<html>",
    ] {
        let ran = bench
            .call(&["rules", "test", "shop", "-"])
            .stdin(bad)
            .run()
            .code(65);
        ran.prints_nothing().says("-");
    }
}

#[test]
fn the_default_profile_needs_no_spool() {
    let bench = Bench::bare();
    let fine = bench.file("fine", answer(200, "", ""));
    bench
        .run(&["rules", "test", "profile:default", &fine])
        .ok()
        .prints("confirmed");
    bench
        .run(&["rules", "list", "profile:default"])
        .ok()
        .prints("default/2xx");
}

#[test]
fn rules_list_is_in_the_order_they_are_tried() {
    let bench = bench();
    let lines = bench.run(&["--json", "rules", "list", "shop"]).ok().lines();
    assert_eq!(lines[0]["rule"], "destination:shop/declined");
    assert_has_fields(&lines[0], "rule state reason when");
    assert!(
        lines[1..]
            .iter()
            .all(|line| line["rule"].as_str().unwrap().starts_with("default/"))
    );
    let printed = bench.run(&["rules", "list", "shop"]).ok().stdout;
    assert_eq!(printed.lines().count(), lines.len() + 1);
    let default = bench
        .run(&["--json", "rules", "list", "profile:default"])
        .ok()
        .lines();
    assert_eq!(default, lines[1..]);
}

#[test]
fn config_check_says_that_all_is_well() {
    let bench = bench();
    bench
        .run(&["config", "check"])
        .ok()
        .prints("2 destinations, no fault");
    let said = bench.json(&["config", "check"]);
    assert_eq!(said["destinations"], json!(["keyed", "shop"]));
    let elsewhere = bench.file("other.toml", "");
    bench
        .run(&["--config", &elsewhere, "config", "check"])
        .ok()
        .prints("other.toml");
}

#[test]
fn config_check_names_all_faults_at_once() {
    let bench = Bench::new();
    bench.write_config(
        "[tick]\nmax_runtim = \"50s\"\n[retry]\nfactor = 0\n[destination.shop]\nbase_url = \"nonsense\"\nconcurrency = -1\n[destination.Bad]\nbase_url = \"https://x\"\n",
    );
    fs::create_dir(bench.spool().join("destinations.d")).unwrap();
    fs::write(
        bench.spool().join("destinations.d/more.toml"),
        "[destination.more]\nbase_url = 7\n",
    )
    .unwrap();
    let ran = bench.run(&["config", "check"]).code(78).prints_nothing();
    for words in [
        "tickpost.toml:2:",
        "did you mean `max_runtime`",
        "tickpost.toml:4:",
        "tickpost.toml:6:",
        "tickpost.toml:7:",
        "tickpost.toml:8:",
        "more.toml:2:",
    ] {
        assert!(ran.stderr.contains(words), "{words}: {ran:#?}");
    }
}

#[test]
fn config_check_finds_secrets_and_certificates_that_are_missing() {
    let bench = Bench::new();
    let secret = bench.file("secret", "canary-in-a-file\n");
    let empty = bench.file("empty", "");
    let with = |auth: &str| format!("auth = {{ bearer = {{ {auth} }} }}");
    bench.configure(
        "",
        &[
            ("good", NOWHERE, &with(&format!("file = \"{secret}\""))),
            ("nofile", NOWHERE, &with("file = \"/nowhere/token\"")),
            ("empty", NOWHERE, &with(&format!("file = \"{empty}\""))),
            ("noenv", NOWHERE, &with("env = \"TOKEN_THAT_IS_NOT_SET\"")),
            ("nocred", NOWHERE, &with("credential = \"shop-token\"")),
            (
                "nocert",
                "https://x.example",
                "tls = { ca_file = \"/nowhere/ca.pem\" }",
            ),
        ],
    );
    let ran = bench.run(&["config", "check"]).code(78);
    for words in [
        "`nofile`",
        "/nowhere/token",
        "`empty`",
        "`noenv`",
        "TOKEN_THAT_IS_NOT_SET",
        "`nocred`",
        "shop-token",
        "`nocert`",
        "/nowhere/ca.pem",
    ] {
        assert!(ran.stderr.contains(words), "{words}: {ran:#?}");
    }
    assert!(!ran.stderr.contains("`good`"), "{ran:#?}");
    assert!(!format!("{ran:?}").contains("canary"), "{ran:#?}");
    let credentials = bench.dir().join("credentials");
    fs::create_dir(&credentials).unwrap();
    fs::write(credentials.join("shop-token"), "canary-in-a-credential").unwrap();
    bench.configure(
        "",
        &[
            ("env", NOWHERE, &with("env = \"TOKEN\"")),
            ("cred", NOWHERE, &with("credential = \"shop-token\"")),
        ],
    );
    let call = bench
        .call(&["config", "check"])
        .env("TOKEN", "canary-in-env");
    let ran = call.env("CREDENTIALS_DIRECTORY", &credentials).run().ok();
    assert!(!format!("{ran:?}").contains("canary"), "{ran:#?}");
}

#[test]
fn config_check_never_shows_a_secret_that_was_pasted() {
    let bench = Bench::new();
    for auth in [
        "auth = \"canary\"",
        "auth = { bearer = \"canary\" }",
        "auth = { basic = { user = \"u\", password = \"canary\" } }",
        "auth = { header = { name = \"X\", value = \"canary\" } }",
        "headers = { Authorization = \"canary\" }",
        "token = \"canary\"",
    ] {
        bench.configure("", &[("shop", NOWHERE, auth)]);
        let ran = bench.run(&["config", "check"]).code(78);
        assert!(!format!("{ran:?}").contains("canary"), "{ran:#?}");
    }
    bench.configure("", &[("shop", "https://user:canary@x.example", "")]);
    let ran = bench.run(&["config", "check"]).code(78);
    assert!(!ran.stderr.contains("canary"), "{ran:#?}");
}
