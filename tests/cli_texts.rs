//! What a person is told: by a tick that did not go well, by `show`, `status`, `config check`.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod support;

#[path = "support/bench.rs"]
mod bench;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use bench::{Bench, KEYED};
use support::{Receiver, Reply, closed_port};

#[test]
fn a_tick_says_when_nobody_else_is_told() {
    let receiver = Receiver::start(vec![Reply::status(400), Reply::status(400)]);
    let bench = Bench::with(&[("shop", &receiver.url(), KEYED)]);
    for _ in 0..2 {
        bench.enqueue("shop", &["--data", "x"]);
    }
    let ran = bench.run(&["tick"]).ok();
    assert_eq!(ran.stdout, "");
    ran.says("2 items did not end well and nobody is told");
}

#[test]
fn a_tick_names_a_notice_that_did_not_arrive() {
    let receiver = Receiver::start(vec![Reply::status(400)]);
    let ops = Receiver::start(vec![Reply::status(403)]);
    let bench = Bench::with(&[("shop", &receiver.url(), KEYED), ("ops", &ops.url(), "")]);
    bench.enqueue("shop", &["--data", "x", "--notify", "ops"]);
    let ran = bench.run(&["tick"]).ok();
    let notice = bench.list_ids(&["--destination", "ops"]).remove(0);
    ran.says_not("nobody is told").says(&format!(
        "notice {notice} to `ops` is held (permission_denied)"
    ));
}

#[test]
fn show_tells_what_the_receiver_said() {
    let reply = Reply::status(422)
        .header("Retry-After", "7")
        .body("{\"message\":\n  \"amount must be positive\"}");
    let receiver = Receiver::start(vec![reply]);
    let bench = Bench::with(&[("shop", &receiver.url(), KEYED)]);
    let id = bench.enqueue("shop", &["--data", "{\n \"amount\": -1\n}"]);
    bench.run(&["tick"]).ok();
    bench
        .run(&["show", &id])
        .ok()
        .prints("{ \"amount\": -1 }")
        .prints("{\"message\": \"amount must be positive\"}")
        .prints("retry-after: 7");
}

#[test]
fn show_and_status_tell_of_an_operators_hold_and_its_note() {
    let bench = Bench::with(&[("shop", &closed_port(), KEYED)]);
    let id = bench.enqueue("shop", &["--data", "x"]);
    bench
        .run(&["hold", "--destination", "shop", "--note", "moving house"])
        .ok();
    bench
        .run(&["show", &id])
        .ok()
        .prints("an operator holds destination `shop`");
    bench.run(&["status"]).ok().prints(": moving house");
    let hold = &bench.json(&["status"])["destinations"]["shop"]["hold"];
    assert_eq!(hold["note"], "moving house");
}

#[test]
fn a_secret_that_cannot_be_read_is_named_where_it_is_looked_for() {
    let auth = "auth = { bearer = { file = \"missing.key\" } }";
    let bench = Bench::with(&[("shop", &closed_port(), auth)]);
    let id = bench.enqueue("shop", &["--data", "x"]);
    bench.run(&["tick"]).ok().says("missing.key");
    bench.run(&["status"]).ok().prints("missing.key");
    bench.run(&["show", &id]).ok().prints("missing.key");
    assert_eq!(bench.item(&id).len(), 2, "no attempt is used up");
    bench
        .run(&["config", "check"])
        .code(78)
        .says("missing.key: No such file");
}

#[test]
fn a_credential_cannot_be_looked_at_by_hand() {
    let auth = "auth = { bearer = { credential = \"shop-key\" } }";
    let bench = Bench::with(&[("shop", &closed_port(), auth)]);
    bench
        .run(&["config", "check"])
        .ok()
        .says("CREDENTIALS_DIRECTORY is not set");
}

#[test]
fn config_check_lists_its_faults_for_programs() {
    let bench = Bench::with(&[]);
    bench.write_config("[tick]\nconcurency = 4\n[destination.a]\nbase_url = 7\n");
    let ran = bench.run(&["--json", "config", "check"]).code(78);
    let faults = ran.json();
    let faults = faults["faults"].as_array().unwrap();
    assert_eq!(faults.len(), 2, "{faults:#?}");
    assert_eq!(faults[0]["line"], 2);
    assert!(faults[0]["hint"].as_str().unwrap().contains("concurrency"));
}

#[test]
fn a_beginning_of_several_ids_lists_them() {
    let bench = Bench::with(&[("shop", &closed_port(), "")]);
    let first = bench.enqueue("shop", &["--data", "x"]);
    let second = bench.enqueue("shop", &["--data", "x"]);
    bench
        .run(&["show", &first[..4]])
        .code(2)
        .says(&first)
        .says(&second);
}

#[test]
fn a_copy_of_a_spool_accepts_nothing() {
    let bench = Bench::with(&[("shop", &closed_port(), "")]);
    let copy = bench.dir().join("copy");
    let copied = Command::new("cp")
        .arg("-a")
        .args([bench.spool(), &copy])
        .status()
        .unwrap();
    assert!(copied.success());
    let copy = copy.display().to_string();
    bench
        .call_plain(&["--spool", &copy, "enqueue", "shop", "--data", "x"])
        .run()
        .code(78)
        .says("is a copy");
    assert!(!bench.dir().join("copy/pending/shop").exists());
}

#[test]
fn init_makes_a_directory_that_is_there_its_owners_alone() {
    let bench = Bench::bare();
    let root = bench.dir().join("there");
    fs::create_dir(&root).unwrap();
    fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
    let name = root.display().to_string();
    bench.call_plain(&["--spool", &name, "init"]).run().ok();
    let mode = fs::metadata(&root).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn an_empty_body_by_accident_is_warned_of() {
    let bench = Bench::with(&[("shop", &closed_port(), "")]);
    let warning = "standard input was empty";
    bench.run(&["enqueue", "shop"]).ok().says(warning);
    bench
        .run(&["enqueue", "shop", "--data", ""])
        .ok()
        .says_not(warning);
    bench
        .run(&["enqueue", "shop", "--method", "DELETE"])
        .ok()
        .says_not(warning);
}

#[test]
fn another_user_is_told_whose_the_spool_is() {
    if !rustix::process::geteuid().is_root() {
        // Only root can become another user.
        return;
    }
    let bench = Bench::with(&[("shop", &closed_port(), "")]);
    let program = bench.program_for_all();
    for words in [
        &["status"][..],
        &["list"],
        &["tick"],
        &["enqueue", "shop", "--data", "x"],
    ] {
        let ran = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(&program)
            .arg("--spool")
            .arg(bench.spool())
            .args(words)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(77), "{words:?}: {said}");
        assert!(
            said.contains("belongs to uid 0, and you are uid 65534"),
            "{said}"
        );
    }
}

#[test]
fn a_secret_that_cannot_be_read_is_told_once_said_by_every_tick_and_noticed_when_mended() {
    let receiver = Receiver::start(vec![]);
    let ops = Receiver::start(vec![]);
    let bench = Bench::new();
    let path = bench.dir().join("late.key");
    let auth = format!("auth = {{ bearer = {{ file = \"{}\" }} }}", path.display());
    bench.configure(
        "[notify]\ndestinations = [\"ops\"]",
        &[("shop", &receiver.url(), &auth), ("ops", &ops.url(), "")],
    );
    let id = bench.enqueue("shop", &["--data", "x"]);
    for _ in 0..3 {
        bench.run(&["tick"]).ok().says("late.key");
    }
    let told = ops.arrivals();
    assert_eq!(told.len(), 1, "once");
    assert!(told[0].text().contains("\"notice\":\"suspended\""));
    fs::write(&path, "s3cret\n").unwrap();
    bench.run(&["tick"]).ok().says_not("late.key");
    assert!(bench.place(&id).starts_with("confirmed/"));
}

#[test]
fn status_says_that_no_tick_can_run() {
    let bench = Bench::with(&[]);
    bench.write_config("[tick]\nconcurency = 4\n");
    bench
        .run(&["status"])
        .ok()
        .says("no tick can run with this configuration")
        .says("concurency");
}

#[test]
fn a_copy_under_a_new_id_keeps_what_lies_ahead() {
    let bench = Bench::with(&[("shop", &closed_port(), "")]);
    let id = bench.enqueue(
        "shop",
        &["--data", "x", "--not-before", "1h", "--not-after", "2h"],
    );
    bench.run(&["cancel", &id]).ok();
    let copy = bench.run(&["retry", "--new-id", &id]).ok().id();
    let (old, new) = (&bench.item(&id)[0], &bench.item(&copy)[0]);
    assert_eq!(new["not_before"], old["not_before"]);
    assert_eq!(new["not_after"], old["not_after"]);
}

#[test]
fn a_pending_item_is_not_released_and_the_way_is_named() {
    let bench = Bench::with(&[("shop", &closed_port(), "")]);
    let id = bench.enqueue("shop", &["--data", "x", "--not-before", "1h"]);
    bench
        .run(&["release", &id])
        .code(1)
        .says("`hold` and then `release` end a wait");
    bench.run(&["hold", &id]).ok();
    bench.run(&["release", &id]).ok();
    assert_eq!(bench.show(&id)["state"], "pending");
}

#[test]
fn show_keeps_a_persons_word_and_a_receivers_apart() {
    let receiver = Receiver::start(vec![Reply::close()]);
    let bench = Bench::with(&[("shop", &receiver.url(), "")]);
    let lost = bench.enqueue("shop", &["--data", "x"]);
    bench.run(&["tick"]).ok();
    bench.run(&["resolve", "--confirmed", &lost]).ok();
    bench
        .run(&["show", &lost])
        .ok()
        .prints("a person confirmed it");
    let answered = bench.enqueue("shop", &["--data", "x"]);
    bench.run(&["tick"]).ok();
    bench
        .run(&["show", &answered])
        .ok()
        .prints("the receiver acknowledged it");
}
