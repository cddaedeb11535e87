//! `status --check`: the line and the exit code that a monitor gets.
//!
//! CONTRACT 5.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod support;

#[path = "support/bench.rs"]
mod bench;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;

use bench::{Bench, KEYED, Ran, assert_fields, day_of};
use chrono::{DateTime, Duration, SecondsFormat, Utc};
use serde_json::{Value, json};
use support::{Receiver, Reply, closed_port};

/// So many minutes ago, as items store it.
fn ago(minutes: i64) -> String {
    let at: DateTime<Utc> = Utc::now() - Duration::minutes(minutes);
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// A spool with a destination that takes everything, whose last tick ended so many minutes ago.
fn ticked(minutes: i64) -> Bench {
    let bench = Bench::with(&[("shop", &closed_port(), "")]);
    tick_ended(&bench, minutes);
    bench
}

fn tick_ended(bench: &Bench, minutes: i64) {
    let at = ago(minutes);
    bench.write_tick_line(&day_of(&json!(at)), &at);
}

/// Moves the only item's acceptance back in time, as if it had been accepted then.
fn accepted_ago(bench: &Bench, minutes: i64) {
    let old = bench.list_ids(&[]).remove(0);
    let place = bench.place(&old);
    let at = DateTime::parse_from_rfc3339(&ago(minutes)).unwrap();
    let seconds = u64::try_from(at.timestamp()).unwrap();
    let moment = uuid::Timestamp::from_unix(uuid::NoContext, seconds, 0);
    let new = uuid::Uuid::new_v7(moment).to_string();
    let text = fs::read_to_string(bench.spool().join(&place)).unwrap();
    let mut lines = bench::json_lines(&text);
    lines[0]["request_id"] = json!(new);
    lines[0]["enqueued_at"] = json!(ago(minutes));
    let envelope = lines[0].to_string();
    lines[1]["at"] = json!(ago(minutes));
    lines[1]["envelope_sha256"] = json!(tickpost::model::envelope::sha256_hex(envelope.as_bytes()));
    let text = format!("{envelope}\n{}\n", lines[1]);
    fs::remove_file(bench.spool().join(&place)).unwrap();
    fs::write(bench.spool().join(place.replace(&old, &new)), text).unwrap();
    bench.show(&new);
}

#[track_caller]
fn check(bench: &Bench, options: &[&str]) -> Ran {
    let ran = bench.run(&[&["status", "--check"], options].concat());
    assert_eq!(ran.stderr, "", "{ran:#?}");
    assert_eq!(ran.stdout.lines().count(), 1, "{ran:#?}");
    assert_eq!(
        ran.stdout.matches('|').count(),
        usize::from(ran.code != Some(3)),
        "{ran:#?}"
    );
    let word =
        ["OK", "WARNING", "CRITICAL", "UNKNOWN"][usize::try_from(ran.code.unwrap()).unwrap()];
    assert!(
        ran.stdout.starts_with(&format!("TICKPOST {word} - ")),
        "{ran:#?}"
    );
    ran
}

#[test]
fn a_spool_in_which_all_is_well_is_ok() {
    let bench = ticked(0);
    let ran = check(&bench, &[]).ok();
    let perfdata = ran.stdout.split(" | ").nth(1).unwrap().trim();
    let names: Vec<&str> = perfdata
        .split(' ')
        .map(|part| part.split('=').next().unwrap())
        .collect();
    assert_eq!(
        names.join(" "),
        "tick_age pending_age parked held corrupt suspended unconfigured incoming_age untold failed pending unknown confirmed"
    );
    assert!(perfdata.contains("s;900;3600;0 pending_age=0s;3600;86400;0 parked=0;0;;0 "));
}

#[test]
fn a_stopped_timer_is_noticed_by_the_check_and_by_enqueue() {
    for (minutes, code) in [(14, 0), (16, 1), (59, 1), (61, 2), (60 * 24 * 40, 2)] {
        let bench = ticked(minutes);
        check(&bench, &[]).code(code);
        let ran = bench.run(&["enqueue", "shop", "--data", "x"]).ok();
        if code == 0 {
            ran.says_not("timer");
        } else {
            ran.says("the last tick ended")
                .says("is the timer still running?");
            check(&bench, &[])
                .code(code)
                .prints("is the timer still running?");
        }
    }
    let bench = ticked(30);
    check(&bench, &["--tick-age", "1h,2h"]).ok();
    check(&bench, &["--tick-age", "20m"]).code(1);
    check(&bench, &["--tick-age", "10m,20m"]).code(2);
    check(&bench, &["--tick-age", "off"]).ok();
}

#[test]
fn a_spool_in_which_no_tick_ever_ran_counts_by_its_own_age() {
    let bench = Bench::with(&[("shop", &closed_port(), "")]);
    check(&bench, &[]).ok().prints("no tick has run yet");
    for (minutes, code) in [(14, 0), (16, 1), (61, 2)] {
        let mut spool = bench.read_json("spool.json");
        spool["created_at"] = json!(ago(minutes));
        fs::write(bench.spool().join("spool.json"), spool.to_string()).unwrap();
        let ran = check(&bench, &[]).code(code);
        if code > 0 {
            ran.prints("no tick has run since the spool was made");
            let ran = bench.run(&["enqueue", "shop", "--data", "x"]).ok();
            ran.says("no tick has run yet");
        }
    }
}

#[test]
fn a_last_tick_in_the_future_is_a_warning() {
    let bench = ticked(-10);
    check(&bench, &[]).code(1).prints("in the future");
}

#[test]
fn an_item_that_is_due_and_not_sent_is_noticed_before_a_tick_has_sorted_it() {
    for (minutes, code) in [(59, 0), (61, 1), (60 * 24 - 1, 1), (60 * 24 + 1, 2)] {
        let bench = ticked(0);
        bench.enqueue("shop", &["--data", "x"]);
        accepted_ago(&bench, minutes);
        check(&bench, &[]).code(code);
    }
    let bench = ticked(0);
    bench.enqueue("shop", &["--data", "x"]);
    accepted_ago(&bench, 90);
    check(&bench, &["--pending-age", "2h"]).ok();
    check(&bench, &["--pending-age", "5m,80m"])
        .code(2)
        .prints("a pending item has been due for 1 h 30 min");
}

#[test]
fn an_item_that_is_not_due_yet_does_not_count_however_old_it_is() {
    let bench = ticked(0);
    bench.enqueue("shop", &["--data", "x", "--not-before", "1h"]);
    accepted_ago(&bench, 60 * 24 * 3);
    check(&bench, &[]).ok().prints("pending_age=0s");
    // Sorted by a tick, its place tells.
    bench.run(&["tick"]).ok();
    assert_ne!(bench.files("pending/shop/2"), [""; 0]);
    check(&bench, &[]).ok().prints("pending_age=0s");
    // The minute goes by, and nobody comes.
    let place = bench.files("pending/shop/2").remove(0);
    let slot = place.split('/').nth(2).unwrap();
    let late = bench::minute_of(&json!(ago(70)));
    let renamed = bench.spool().join(format!("pending/shop/{late}"));
    fs::rename(bench.spool().join(format!("pending/shop/{slot}")), renamed).unwrap();
    check(&bench, &[]).code(1).prints("due for 1 h ");
}

#[test]
fn what_is_parked_is_a_warning() {
    let receiver = Receiver::start(vec![Reply::close(), Reply::close()]);
    let bench = Bench::with(&[("shop", &receiver.url(), "")]);
    for _ in 0..2 {
        bench.enqueue("shop", &["--data", "x"]);
    }
    bench.run(&["tick"]).ok();
    check(&bench, &[])
        .code(1)
        .prints("2 parked")
        .prints("parked=2;0;;0");
    check(&bench, &["--parked", "0,1"]).code(2);
    check(&bench, &["--parked", "2"]).ok();
}

#[test]
fn what_is_held_is_a_warning() {
    let bench = ticked(0);
    let id = bench.enqueue("shop", &["--data", "x"]);
    bench.run(&["hold", &id]).ok();
    check(&bench, &[])
        .code(1)
        .prints("1 held, see `tickpost list --state held`");
    check(&bench, &["--held", "0,0"]).code(2);
    check(&bench, &["--held", "1"]).ok();
    check(&bench, &["--held", "off"]).ok();
}

#[test]
fn what_was_set_aside_is_a_warning() {
    let bench = ticked(0);
    fs::write(bench.spool().join("corrupt/x.jsonl"), "x").unwrap();
    fs::write(bench.spool().join("corrupt/x.jsonl.why.json"), "{}").unwrap();
    check(&bench, &[]).code(1).prints("1 set aside in corrupt/");
    check(&bench, &["--corrupt", "0,0"]).code(2);
    check(&bench, &["--corrupt", "1"]).ok();
}

#[test]
fn a_destination_that_is_suspended_is_a_warning_whoever_did_it() {
    let bench = ticked(0);
    bench.enqueue("shop", &["--data", "x"]);
    bench.run(&["tick"]).ok();
    check(&bench, &[])
        .code(1)
        .prints("1 suspended: shop (connect_failed: ");
    check(&bench, &["--suspended", "1"]).ok();
    let bench = ticked(0);
    bench.run(&["hold", "--destination", "shop"]).ok();
    check(&bench, &[])
        .code(1)
        .prints("1 suspended: shop (held by ");
    check(&bench, &["--suspended", "0,0"]).code(2);
}

#[test]
fn items_of_a_destination_that_is_not_configured_are_a_warning() {
    let bench = ticked(0);
    bench.configure(
        "",
        &[("shop", &closed_port(), ""), ("ended", &closed_port(), "")],
    );
    bench.enqueue("shop", &["--data", "x"]);
    let ended = bench.enqueue("ended", &["--data", "x"]);
    bench.run(&["cancel", &ended]).ok();
    bench.configure("", &[("other", &closed_port(), "")]);
    check(&bench, &[])
        .code(1)
        .prints("1 for destinations that are not configured: shop |");
    check(&bench, &["--unconfigured", "0,0"]).code(2);
    check(&bench, &["--unconfigured", "1"]).ok();
    // What has ended waits for nobody.
    bench.configure("", &[("shop", &closed_port(), "")]);
    let id = bench.list_ids(&["--destination", "shop"]).remove(0);
    bench.run(&["cancel", &id]).ok();
    bench.configure("", &[]);
    check(&bench, &[]).ok();
}

#[test]
fn a_spool_in_which_no_tick_can_run_is_critical() {
    let bench = ticked(0);
    bench.write_config("[tick]\nconcurency = 4\n");
    check(&bench, &[])
        .code(2)
        .prints("no tick can run: ")
        .prints("concurency");
    fs::remove_file(bench.spool().join("tickpost.toml")).unwrap();
    check(&bench, &[]).code(2).prints("no tick can run: ");
    // A copy of a spool.
    let bench = ticked(0);
    fs::remove_file(bench.spool().join("lock")).unwrap();
    fs::write(bench.dir().join("keeps-the-inode-in-use"), "").unwrap();
    fs::write(bench.spool().join("lock"), "").unwrap();
    let mut spool = bench.read_json("spool.json");
    spool["lock_inode"] = json!(spool["lock_inode"].as_u64().unwrap() + 1_000_000);
    fs::write(bench.spool().join("spool.json"), spool.to_string()).unwrap();
    check(&bench, &[]).code(2).prints("is a copy");
}

#[test]
fn what_of_the_spool_keeps_its_user_out_is_critical() {
    if !rustix::process::geteuid().is_root() {
        // Only root can give files away.
        return;
    }
    let bench = ticked(0);
    // It makes the reserve.
    bench.tick();
    let program = bench.program_for_all();
    let chown = |options: &[&str], path: &str| {
        let mut chown = Command::new("chown");
        let ran = chown.args(options).arg(bench.spool().join(path)).status();
        assert!(ran.unwrap().success());
    };
    let mode = |path: &str, mode| {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(bench.spool().join(path), mode).unwrap();
    };
    let check = |code: i32| -> String {
        let ran = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(&program)
            .arg("--spool")
            .arg(bench.spool())
            .args(["status", "--check"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert_eq!(ran.status.code(), Some(code), "{said}");
        said
    };
    chown(&["-R", "65534:65534"], "");
    check(0);
    for own in ["tmp", "keys", "bodies", "incoming", "reserve", "lock"] {
        chown(&["0:0"], own);
        let said = check(2);
        let why =
            format!("{own} belongs to uid 0, the spool to 65534 (as root: chown 65534 on it)");
        assert!(said.contains(&why), "{said}");
        chown(&["65534:65534"], own);
    }
    for (own, shut, open) in [
        ("keys", 0o500, 0o700),
        ("lock", 0o000, 0o600),
        ("", 0o500, 0o700),
    ] {
        mode(own, shut);
        let said = check(2);
        let why = format!("has mode {shut:04o} instead of {open:04o} (chmod u+rwX on it)");
        assert!(said.contains(&why), "{said}");
        mode(own, open);
    }
    // What lets others in is for `doctor` to say.
    mode("keys", 0o755);
    check(0);
}

#[test]
fn the_worst_decides_and_stands_first() {
    let bench = ticked(61);
    let id = bench.enqueue("shop", &["--data", "x"]);
    // `hold` leaves no tick's line.
    bench.run(&["hold", &id]).ok();
    let ran = check(&bench, &[]).code(2);
    let tick = ran.stdout.find("the last tick").unwrap();
    let held = ran.stdout.find("1 held").unwrap();
    assert!(tick < held, "{ran:#?}");
}

#[test]
fn what_cannot_be_looked_at_is_unknown_and_says_what_to_do() {
    let bench = Bench::bare();
    check(&bench, &[])
        .code(3)
        .prints("there is no spool at")
        .prints("tickpost --spool DIR init");
    let bench = ticked(0);
    fs::write(bench.spool().join("spool.json"), "{").unwrap();
    check(&bench, &[]).code(3).prints("spool.json");
    // A link where a directory belongs is not followed.
    let bench = ticked(0);
    fs::remove_dir_all(bench.spool().join("corrupt")).unwrap();
    symlink(bench.dir(), bench.spool().join("corrupt")).unwrap();
    check(&bench, &[]).code(3);
}

#[test]
fn a_limit_that_makes_no_sense_is_unknown_for_a_monitor_knows_no_usage() {
    let bench = ticked(0);
    for options in [
        ["--held", "many"],
        ["--held", "2,1"],
        ["--tick-age", "15"],
        ["--tick-age", "1h,15m"],
        ["--pending-age", "1h,2h,3h"],
    ] {
        check(&bench, &options).code(3).prints(options[0]);
    }
    // Without --check they mean nothing.
    bench
        .run(&["status", "--held", "1"])
        .code(2)
        .says("--check");
}

#[test]
fn a_program_gets_one_object() {
    let bench = ticked(0);
    let id = bench.enqueue("shop", &["--data", "x"]);
    bench.run(&["hold", &id]).ok();
    let answer = |code: i32| -> Value {
        let ran = bench.run(&["--json", "status", "--check"]).code(code);
        assert_eq!(ran.stderr, "");
        ran.json()
    };
    let one = answer(1);
    assert_fields(&one, "level problems values");
    assert_eq!(one["level"], "warning");
    assert_eq!(one["problems"].as_array().unwrap().len(), 1);
    assert_fields(&one["problems"][0], "level what text");
    assert_eq!(one["problems"][0]["level"], "warning");
    assert_eq!(one["problems"][0]["what"], "held");
    assert_fields(
        &one["values"],
        "tick_age_s has_ticked pending_age_s parked held corrupt suspended unconfigured incoming_age_s untold pending unknown confirmed failed",
    );
    assert_eq!(one["values"]["held"], 1);
    assert_eq!(one["values"]["has_ticked"], true);
    bench.run(&["cancel", &id]).ok();
    assert_eq!(answer(0)["level"], "ok");
    assert_eq!(answer(0)["problems"], json!([]));
    fs::remove_file(bench.spool().join("spool.json")).unwrap();
    let none = answer(3);
    assert_eq!(none["level"], "unknown");
    assert!(none["values"].is_null());
}

#[test]
fn what_waits_in_a_drop_box_for_long_is_a_warning() {
    let bench = Bench::with(&[("shop", &closed_port(), "")]);
    bench.run(&["tick"]).ok();
    let file = bench.spool().join("incoming/shop/a.txt");
    std::fs::write(&file, "x").unwrap();
    bench.run(&["status", "--check"]).code(0);
    bench
        .run(&["status", "--check", "--incoming-age", "0s"])
        .prints("incoming_age=");
    // Without waiting for it: the limit lies below any age that can be measured.
    let status = bench.json(&["status"]);
    assert_eq!(status["incoming"], 1);
    assert!(status["incoming_oldest_s"].is_number(), "{status}");
    bench.run(&["status"]).ok().prints("1 in drop boxes");
}

#[test]
fn a_notice_that_did_not_arrive_is_a_warning() {
    let bench = Bench::new();
    bench.configure(
        "[notify]\ncommand = [\"/bin/false\"]\n[retry]\nattempts = 1",
        &[("shop", &closed_port(), "")],
    );
    let id = bench.enqueue("shop", &["--data", "x"]);
    bench.run(&["status", "--check"]).code(0);
    bench.run(&["cancel", &id]).ok();
    bench.run(&["tick"]).ok();
    bench
        .run(&["status", "--check"])
        .code(1)
        .prints("did not reach whom it was to tell: notify-command");
    bench
        .run(&["status", "--check", "--untold", "off", "--suspended", "off"])
        .code(0);
    bench
        .run(&[
            "status",
            "--check",
            "--untold",
            "off",
            "--suspended",
            "off",
            "--failed",
            "0",
        ])
        .code(1)
        .prints("failed, see");
}

/// A program that is not there is tried for days.
#[test]
fn a_notice_that_was_tried_twice_in_vain_is_a_warning() {
    let bench = Bench::new();
    let told_by = |program: &str| {
        let general =
            format!("[notify]\ncommand = [\"{program}\"]\n[retry]\nbase = \"0s\"\nmax = \"1ms\"");
        bench.configure(&general, &[("shop", &closed_port(), "")]);
    };
    told_by("/nonexistent");
    let id = bench.enqueue("shop", &["--data", "x"]);
    bench.run(&["cancel", &id]).ok();
    check(&bench, &[]).ok();
    bench.run(&["tick", "--limit", "1"]).ok();
    check(&bench, &[]).ok();
    bench.run(&["tick", "--limit", "1"]).ok();
    check(&bench, &[])
        .code(1)
        .prints("1 did not reach whom it was to tell: notify-command");
    check(&bench, &["--untold", "off"]).ok();
    told_by("/bin/true");
    bench.run(&["tick"]).ok();
    check(&bench, &[]).ok();
}

/// Its answer may be lost as well. What is no notice may be tried as often as it is: its age tells.
#[test]
fn a_notice_that_twice_had_no_answer_is_a_warning() {
    let bench = Bench::new();
    let ops = Receiver::start(Vec::new()).otherwise(Reply::close());
    let more = format!("{KEYED}\nretry = {{ base = \"0s\", max = \"1ms\" }}");
    bench.configure(
        "[notify]\ndestinations = [\"ops\"]",
        &[("shop", &closed_port(), ""), ("ops", &ops.url(), &more)],
    );
    let plain = bench.enqueue("ops", &["--data", "x"]);
    for _ in 0..2 {
        bench.run(&["tick", "--limit", "1"]).ok();
    }
    assert_eq!(bench.last_event(&plain)["n"], 2);
    check(&bench, &[]).ok();
    let id = bench.enqueue("shop", &["--data", "x"]);
    bench.run(&["cancel", &id]).ok();
    for _ in 0..2 {
        bench.tick();
    }
    check(&bench, &[])
        .code(1)
        .prints("1 did not reach whom it was to tell: ops");
}

/// Whoever an item alone names is told of nothing else, and so by nobody else.
#[test]
fn a_notice_that_did_not_reach_whom_an_item_names_is_a_warning() {
    let bench = Bench::new();
    bench.configure(
        "",
        &[("shop", &closed_port(), ""), ("alice", &closed_port(), "")],
    );
    let lost = bench.enqueue("alice", &["--data", "x"]);
    bench.run(&["hold", &lost]).ok();
    let id = bench.enqueue("shop", &["--data", "x", "--notify", "alice"]);
    bench.run(&["cancel", &id]).ok();
    let held = ["--held", "off"];
    check(&bench, &held).ok();
    let notice = bench
        .list_ids(&["--destination", "alice", "--state", "pending"])
        .remove(0);
    bench.run(&["hold", &notice]).ok();
    check(&bench, &held)
        .code(1)
        .prints("did not reach whom it was to tell: alice");
    bench.run(&["cancel", &notice]).ok();
    check(&bench, &held).ok();
}

#[test]
fn words_that_it_does_not_know_are_unknown_to_a_monitor() {
    let bench = ticked(0);
    for words in [&["--bogus", "3"][..], &["--parked", "-1"]] {
        let all = [&["status", "--check"][..], words].concat();
        bench
            .run(&all)
            .code(3)
            .prints("TICKPOST UNKNOWN - error: unexpected argument");
    }
}

/// What a person has given up is dealt with.
#[test]
fn a_notice_that_was_given_up_alarms_no_more() {
    let bench = Bench::new();
    bench.configure(
        "[notify]\ndestinations = [\"ops\"]",
        &[("shop", &closed_port(), ""), ("ops", &closed_port(), "")],
    );
    let id = bench.enqueue("shop", &["--data", "x"]);
    bench.run(&["cancel", &id]).ok();
    let notice = bench.list_ids(&["--destination", "ops"]).remove(0);
    bench.run(&["hold", &notice]).ok();
    check(&bench, &["--held", "off"])
        .code(1)
        .prints("did not reach");
    bench.run(&["cancel", &notice]).ok();
    check(&bench, &["--tick-age", "off"]).code(0);
}

#[test]
fn no_room_is_said_by_status_and_by_a_check_of_the_configuration() {
    let bench = Bench::new();
    bench.configure("", &[]);
    let ran = bench.run(&["config", "check"]).ok();
    assert!(!ran.stderr.contains("min_free"), "{}", ran.stderr);
    bench.configure("[limits]\nmin_free = \"4000000GiB\"\n", &[]);
    bench
        .run(&["config", "check"])
        .ok()
        .says("min_free")
        .says("nothing is ever accepted");
    let ran = bench.run(&["status"]).ok();
    assert!(
        ran.stdout.contains("nothing more is accepted"),
        "{}",
        ran.stdout
    );
}

/// The timer runs, and nothing is sent.
#[test]
fn a_last_tick_without_room_is_said_until_one_had_room() {
    let bench = ticked(0);
    let words = "the last tick stopped for want of room on the disk";
    let at = ago(0);
    for (stopped_by, code) in [("done", 0), ("no_room", 2), ("limit", 0), ("no_room", 2)] {
        let line = json!({"started_at": at, "ended_at": at, "ms": 1, "stopped_by": stopped_by});
        let path = format!("log/ticks-{}.jsonl", day_of(&json!(at)));
        let path = bench.spool().join(path);
        let before = fs::read_to_string(&path).unwrap();
        fs::write(path, format!("{before}{line}\n")).unwrap();
        let ran = check(&bench, &[]).code(code);
        assert_eq!(ran.stdout.contains(words), code == 2, "{ran:#?}");
        let ran = bench.run(&["status"]).ok();
        assert_eq!(ran.stdout.contains(words), code == 2, "{ran:#?}");
    }
    // What a tick writes by itself.
    bench.tick();
    check(&bench, &[]).ok();
}
