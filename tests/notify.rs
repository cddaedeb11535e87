//! Notices: given to a program, and sent as JSON or as text. Programs are scripts of the shell; what
//! they wait for is a FIFO that the test opens.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod support;

#[path = "support/bench.rs"]
mod bench;
#[path = "support/desk.rs"]
mod desk;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use bench::Bench;
use desk::{Desk, SOON};
use rustix::fs::{CWD, FileType, Mode};
use serde_json::{Value, json};
use support::{Receiver, Reply};
use tickpost::clock::{Clock as _, SystemClock};
use tickpost::config::NOTIFY_COMMAND;
use tickpost::model::ids::DestName;
use tickpost::model::notice::{About, Asked, Notice};
use tickpost::model::time::UnixMs;
use tickpost::store::file::FileStore;
use tickpost::store::memory::MemoryStore;
use tickpost::store::{Owner, Scope, Store};

/// Waiting longer than this for a process to go is a failed test.
const PATIENCE: Duration = Duration::from_secs(20);

/// Nothing listens there; nothing is sent there.
const NOWHERE: &str = "http://127.0.0.1:9";

/// Items go stale before they can be sent, which fails them without a receiver.
const STALE: &str = "stale_after = \"1ms\"\nstale = \"fail\"";

/// The mailer that `spool/README.md` shows.
fn mailer() -> String {
    let (_, rest) = include_str!("../spool/README.md")
        .split_once("```sh\n#!/bin/sh\njson=")
        .unwrap();
    format!("#!/bin/sh\njson={}", rest.split_once("```").unwrap().0)
}

/// A spool with a command, which the shell reads from a file: a file that was just written cannot
/// always be run, for another test may be starting a process that still has it open.
struct Told(Desk);

impl std::ops::Deref for Told {
    type Target = Desk;

    fn deref(&self) -> &Desk {
        &self.0
    }
}

impl Told {
    /// A spool with a destination `work` whose items fail at once.
    fn new(script: &str) -> Self {
        Self::with(script, "", &[("work", NOWHERE, STALE)])
    }

    /// With more lines in `[notify]`, after which other sections may stand.
    fn with(script: &str, more: &str, destinations: &[(&str, &str, &str)]) -> Self {
        let told = Self(Desk::new(destinations));
        told.script(script);
        told.configured(more, destinations);
        told
    }

    fn configured(&self, more: &str, destinations: &[(&str, &str, &str)]) {
        let script = self.dir().join("script");
        let command = format!("command = [\"/bin/sh\", \"{}\", \"a b\"]", script.display());
        self.configure(
            &format!("{SOON}\n[notify]\n{command}\n{more}\n"),
            destinations,
        );
    }

    /// What the command does. `$D` is a directory of the test's.
    fn script(&self, text: &str) {
        let text = format!("D='{}'\n{text}\n", self.dir().display());
        fs::write(self.dir().join("script"), text).unwrap();
    }

    fn fifo(&self, name: &str) -> PathBuf {
        let path = self.dir().join(name);
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, mode, 0).unwrap();
        path
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.dir().join(name)).unwrap_or_default()
    }

    /// The notices, as `list` shows them.
    fn notices(&self) -> Vec<Value> {
        self.list(&["--destination", NOTIFY_COMMAND])
    }

    /// The one notice's events.
    fn events(&self) -> Vec<Value> {
        let notices = self.notices();
        assert_eq!(notices.len(), 1, "{notices:#?}");
        let id = notices[0]["request_id"].as_str().unwrap();
        self.show(id)["events"].as_array().unwrap().clone()
    }

    fn last(&self) -> Value {
        self.events().pop().unwrap()
    }

    /// Waits until the backoff of a millisecond or two is over, by the clock that ticks read.
    fn wait_until_due(&self) {
        let due = |row: &Value| row["due"].as_str().map(|due| UnixMs::parse(due).unwrap());
        let rows = self.notices();
        let last = rows
            .iter()
            .filter(|row| row["state"] == "pending")
            .filter_map(due)
            .max();
        while last.is_some_and(|due| due > SystemClock::new().now()) {
            thread::yield_now();
        }
    }
}

/// The numbers of descriptors in what `ls -l /proc/self/fd` prints.
fn open(list: &str) -> BTreeSet<&str> {
    list.lines()
        .filter_map(|line| line.split_once(" -> ")?.0.rsplit(' ').next())
        .collect()
}

/// Whether a process is there and no zombie.
fn lives(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{}/stat", pid.trim()))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap().starts_with(" Z"))
}

#[track_caller]
fn wait_until_gone(pids: &str) {
    let since = Instant::now();
    assert_ne!(pids.trim(), "");
    while pids.split_whitespace().any(lives) {
        assert!(since.elapsed() < PATIENCE, "{pids} still live");
        thread::yield_now();
    }
}

#[test]
fn the_command_gets_the_notice_and_nothing_else() {
    let told = Told::new(
        "cat > $D/body; env > $D/env; ls -l /proc/self/fd > $D/fds; pwd > $D/pwd\n\
         printf '%s|' \"$#\" \"$1\" > $D/args; ps -o pgid= -p $$ > $D/group; echo $$ > $D/pid\n\
         echo told; echo also >&2",
    );
    let id = told.enqueue("work", &["--data", "x", "--thread", "deploy-42"]);
    let tick = told
        .call(&["--json", "tick"])
        .env("TOKEN", "s3cret-of-the-tick")
        .env("HOME", "/somewhere")
        .run()
        .ok();
    assert_eq!(tick.json()["confirmed"], 1);
    assert_eq!(tick.stderr, "");

    let notice = &told.notices()[0];
    assert_eq!(notice["state"], "confirmed");
    let notice_id = notice["request_id"].as_str().unwrap();
    let envelope = &told.item(notice_id)[0];
    assert_eq!(told.read("body"), envelope["request"]["body"]["text"]);
    let body: Value = serde_json::from_str(&told.read("body")).unwrap();
    assert_eq!(body["notice"], "failed");
    assert_eq!(body["reason"], "stale");
    assert_eq!(body["request_ids"], json!([id]));
    assert_eq!(body["requesters"][0]["thread"], "deploy-42");

    let last = told.last();
    assert_eq!(last["rule"], "command/0");
    assert_eq!(last["reason"], "accepted");
    assert_eq!(last["status"], 0);
    assert_eq!(last["response"]["excerpt"], "told\nalso\n");
    assert_eq!(told.read("args"), "1|a b|");
    assert_eq!(told.read("pwd"), "/\n");

    let env = told.read("env");
    let mut names: Vec<&str> = env.lines().filter_map(|l| l.split('=').next()).collect();
    // The shell's own.
    names.retain(|name| !["PWD", "OLDPWD", "SHLVL", "_"].contains(name));
    names.sort_unstable();
    let want = "HOME LANG PATH TICKPOST_REQUEST_ID TICKPOST_SPOOL";
    assert_eq!(names.join(" "), want, "{env}");
    let has = |line: &str| assert!(env.lines().any(|l| l == line), "{line}: {env}");
    has("HOME=/somewhere");
    has(&format!("TICKPOST_REQUEST_ID={notice_id}"));
    let spool = fs::canonicalize(told.spool()).unwrap();
    has(&format!("TICKPOST_SPOOL={}", spool.display()));

    // No more than what any child of this test has, whoever left it open.
    let fds = told.read("fds");
    let plain = Command::new("ls").args(["-l", "/proc/self/fd"]).output();
    let usual = String::from_utf8(plain.unwrap().stdout).unwrap();
    assert!(open(&fds).len() >= 4, "{fds}");
    let more: Vec<&str> = open(&fds).difference(&open(&usual)).copied().collect();
    assert!(more.is_empty(), "{more:?}: {fds}");
    assert!(!fds.contains(spool.to_str().unwrap()), "{fds}");
    assert_eq!(
        told.read("group").trim(),
        told.read("pid").trim(),
        "a process group of its own"
    );
}

#[test]
fn a_command_that_always_fails_ends_and_causes_no_notice() {
    let told = Told::with(
        "cat >> $D/bodies; echo >> $D/bodies; echo 'no mailer here' >&2; exit 75",
        "[retry]\nattempts = 3\nbase = \"1ms\"\nmax = \"2ms\"",
        &[("work", NOWHERE, STALE)],
    );
    told.write_config(
        &fs::read_to_string(told.spool().join("tickpost.toml"))
            .unwrap()
            .replace(SOON, ""),
    );
    told.enqueue("work", &["--data", "x"]);
    let mut warned = 0;
    for _ in 0..8 {
        let ran = told.run(&["tick"]).ok();
        warned += usize::from(ran.stderr.contains("has not been told"));
        assert_eq!(told.list(&[]).len(), 2, "the item and its notice");
        told.wait_until_due();
    }
    assert_eq!(warned, 1, "said once, when it is given up");
    let events = told.events();
    let rules: Vec<&Value> = events[1..].iter().map(|event| &event["rule"]).collect();
    assert_eq!(rules, ["command/exit", "command/exit", "command/exit"]);
    assert_eq!(events[1]["state"], "pending");
    assert_eq!(events[1]["reason"], "server_error");
    assert_eq!(events[1]["status"], 75);
    let id = told.notices()[0]["request_id"].as_str().unwrap().to_owned();
    told.run(&["show", &id]).ok().prints("exit code 75");
    assert_eq!(events[1]["response"]["excerpt"], "no mailer here\n");
    assert_eq!(events[3]["state"], "failed");
    assert_eq!(events[3]["reason"], "exhausted");
    let bodies = told.read("bodies");
    let bodies: Vec<&str> = bodies.lines().collect();
    assert_eq!(bodies.len(), 3);
    assert!(
        bodies.iter().all(|body| *body == bodies[0]),
        "the same bytes"
    );
}

#[test]
fn what_a_command_says_is_kept_without_secrets_and_control_characters() {
    let told = Told::with(
        "printf 'a\\033[31mtoken s3cret-%s\\r\\n' token; head -c 100000 /dev/zero | tr '\\0' x; kill -9 $$",
        "",
        &[
            ("work", NOWHERE, STALE),
            ("shop", NOWHERE, "auth = { bearer = { env = \"TOKEN\" } }"),
        ],
    );
    told.enqueue("work", &["--data", "x"]);
    let ran = told.call(&["tick"]).env("TOKEN", "s3cret-token").run().ok();
    assert_eq!(ran.stderr, "");
    let last = told.last();
    assert_eq!(last["rule"], "command/exit");
    assert_eq!(last["status"], 128 + 9);
    let excerpt = last["response"]["excerpt"].as_str().unwrap();
    assert!(
        excerpt.starts_with("a [31mtoken [secret] \nxxx"),
        "{excerpt}"
    );
    assert_eq!(excerpt.len(), 2048);
    assert_eq!(last["response"]["cut"], true);
    let everything = told.tree();
    let leaks = |bytes: &[u8]| bytes.windows(12).any(|w| w == b"s3cret-token");
    assert!(everything.values().all(|entry| !leaks(&entry.bytes)));
}

#[test]
fn a_command_that_hangs_is_killed_with_all_that_it_started() {
    let told = Told::with(
        "trap '' TERM\ncat < $D/never &\necho begun\necho $$ $! > $D/pids\ncat < $D/never",
        "command_timeout = \"300ms\"",
        &[("work", NOWHERE, STALE)],
    );
    told.fifo("never");
    told.enqueue("work", &["--data", "x"]);
    while told.read("pids").is_empty() {
        // A machine may be too busy for it to begin in time.
        told.wait_until_due();
        let report = told.tick();
        assert_eq!(
            (&report["pending"], &report["unknown"]),
            (&json!(1), &json!(0))
        );
    }
    wait_until_gone(&told.read("pids"));
    let last = told.last();
    assert_eq!(last["rule"], "command/timeout");
    assert_eq!(last["reason"], "timeout_after_send");
    assert_eq!(last["state"], "pending");
    let note = last["note"].as_str().unwrap();
    assert!(note.contains("300ms") && note.contains("begun"), "{note}");

    told.script("cat > $D/body");
    told.wait_until_due();
    told.tick();
    assert_eq!(told.last()["state"], "confirmed");
}

#[test]
fn a_command_that_hangs_keeps_nobody_waiting() {
    let receiver = Receiver::start(vec![]);
    let all = [("work", NOWHERE, STALE), ("shop", &receiver.url(), "")];
    let told = Told::with("exit 1", "[tick]\nconcurrency = 1", &all);
    told.enqueue("work", &["--data", "x"]);
    told.tick();
    assert_eq!(told.last()["state"], "pending");

    let (began, go) = (told.fifo("began"), told.fifo("go"));
    told.script("echo > $D/began; read line < $D/go");
    for _ in 0..5 {
        told.enqueue("shop", &["--data", "x"]);
    }
    told.wait_until_due();
    let mut tick = told.call(&["--json", "tick"]).start();
    fs::read(began).unwrap();
    receiver.wait_for(5);
    assert!(tick.runs(), "the command has not ended");
    fs::write(go, "\n").unwrap();
    let report = tick.end().ok().json();
    assert_eq!(report["confirmed"], 6, "{report}");
}

#[test]
fn a_receiver_that_is_slow_keeps_no_notice_waiting() {
    let receiver = Receiver::start(vec![Reply::ok().gated()]);
    let all = [("work", NOWHERE, STALE), ("a-shop", &receiver.url(), "")];
    let told = Told::with("exit 1", "[tick]\nconcurrency = 1", &all);
    told.enqueue("work", &["--data", "x"]);
    told.tick();
    told.script("echo done > $D/done");
    told.enqueue("a-shop", &["--data", "x"]);
    told.wait_until_due();
    let mut tick = told.call(&["--json", "tick"]).start();
    receiver.wait_for(1);
    let since = Instant::now();
    while told.read("done").is_empty() {
        assert!(since.elapsed() < PATIENCE, "the command was not run");
        thread::yield_now();
    }
    assert!(tick.runs(), "the receiver has not answered");
    receiver.open_gate();
    assert_eq!(tick.end().ok().json()["confirmed"], 2);
}

#[test]
fn a_tick_that_stops_kills_the_command_and_the_next_one_runs_it_again() {
    let told = Told::with(
        "echo $$ > $D/pids; echo > $D/began; cat < $D/never",
        "[tick]\ngrace = \"1ms\"",
        &[("work", NOWHERE, STALE)],
    );
    let began = told.fifo("began");
    told.fifo("never");
    told.enqueue("work", &["--data", "x"]);
    let tick = told.call(&["--json", "tick"]).start();
    fs::read(began).unwrap();
    tick.terminate();
    let report = tick.end().ok().json();
    assert_eq!(report["stopped_by"], "signal");
    wait_until_gone(&told.read("pids"));

    told.script("cat > $D/body");
    let report = told.tick();
    assert_eq!(
        (&report["recovered"], &report["confirmed"]),
        (&json!(1), &json!(1))
    );
    let events = told.events();
    assert_eq!(events[1]["outcome"], "interrupted");
    assert_eq!(events[1]["rule"], "command/interrupted");
    assert_eq!(events[1]["state"], "pending", "never parked");
    assert_eq!(events[2]["state"], "confirmed");
}

#[test]
fn the_time_of_a_tick_holds_for_the_command_too() {
    let told = Told::with(
        "echo $$ > $D/pids; cat < $D/never",
        "command_timeout = \"1h\"\n[tick]\ngrace = \"1ms\"",
        &[("work", NOWHERE, STALE)],
    );
    told.fifo("never");
    told.enqueue("work", &["--data", "x"]);
    while told.read("pids").is_empty() {
        // A machine may be too busy for it to begin in time.
        told.wait_until_due();
        let report = told.json(&["tick", "--max-runtime", "500ms"]);
        assert_eq!(report["stopped_by"], "max_runtime");
    }
    wait_until_gone(&told.read("pids"));
}

#[test]
fn a_stopping_tick_gives_the_command_its_grace() {
    // What the requests would get is not enough.
    let short = format!("{STALE}\ntimeout = {{ connect = \"1ms\", response = \"1ms\" }}");
    let told = Told::with(
        "echo > $D/began; read line < $D/go; cat > $D/body",
        "",
        &[("work", NOWHERE, &short)],
    );
    let (began, go) = (told.fifo("began"), told.fifo("go"));
    told.enqueue("work", &["--data", "x"]);
    let tick = told.call(&["--json", "tick"]).start();
    fs::read(began).unwrap();
    tick.terminate();
    fs::write(go, "\n").unwrap();
    let report = tick.end().ok().json();
    assert_eq!(report["confirmed"], 1, "{report}");
}

#[test]
fn after_a_kill_the_command_is_run_again() {
    let told = Told::new(
        "echo $$ >> $D/pids; cat >> $D/bodies; echo >> $D/bodies; echo > $D/began; read line < $D/go",
    );
    let (began, go) = (told.fifo("began"), told.fifo("go"));
    told.enqueue("work", &["--data", "x"]);
    for _ in 0..2 {
        let tick = told.call(&["tick"]).start();
        fs::read(&began).unwrap();
        tick.kill();
        tick.end();
        // Nobody kills what a dead tick ran; it ends by itself.
        fs::write(&go, "\n").unwrap();
        wait_until_gone(&told.read("pids"));
    }
    told.script("cat >> $D/bodies; echo >> $D/bodies");
    told.wait_until_due();
    told.tick();
    // The second interruption in a row waits as a failure does.
    told.wait_until_due();
    told.tick();
    let events = told.events();
    let states: Vec<&Value> = events.iter().map(|event| &event["state"]).collect();
    assert_eq!(states, ["pending", "pending", "pending", "confirmed"]);
    let bodies = told.read("bodies");
    let bodies: Vec<&str> = bodies.lines().collect();
    assert_eq!(bodies.len(), 3);
    assert!(bodies.iter().all(|body| *body == bodies[0]), "{bodies:?}");
}

#[test]
fn five_thousand_failures_are_one_run() {
    let told = Told::new("cat >> $D/bodies; echo >> $D/bodies");
    let ids = told.fill("work", 5_000);
    let report = told.tick();
    assert_eq!(report["failed"], 5_000, "{report}");
    let bodies = told.read("bodies");
    assert_eq!(bodies.lines().count(), 1);
    let body: Value = serde_json::from_str(bodies.trim()).unwrap();
    assert_eq!(body["count"], 5_000);
    let named = body["request_ids"].as_array().unwrap();
    assert_eq!(named.len(), 100);
    assert!(
        named
            .iter()
            .all(|id| ids.contains(&id.as_str().unwrap().to_owned()))
    );
    assert_eq!(told.notices().len(), 1);
}

#[test]
fn a_program_that_is_not_there_is_tried_again_and_config_check_names_it() {
    let told = Told(Desk::new(&[]));
    let head = format!("{SOON}\n[notify]\ncommand = [\"no/such\"]\n");
    told.configure(&head, &[("work", NOWHERE, STALE)]);
    told.enqueue("work", &["--data", "x"]);
    told.tick();
    let last = told.last();
    assert_eq!(last["rule"], "command/start");
    assert_eq!(
        (&last["state"], &last["outcome"]),
        (&json!("pending"), &json!("not_sent"))
    );
    let note = last["note"].as_str().unwrap();
    assert!(
        note.contains("no/such") && note.contains("cannot start"),
        "{note}"
    );
    let check = told.run(&["config", "check"]).code(78);
    let check = check.says("[notify] command: cannot find").says("no/such");
    drop(check);
    fs::create_dir(told.spool().join("no")).unwrap();
    fs::write(told.spool().join("no/such"), "#!/bin/sh\n").unwrap();
    told.run(&["config", "check"]).code(78).says("chmod +x");
}

#[test]
fn the_commands_name_is_kept_for_it_and_works_where_a_destinations_does() {
    let told = Told::with("cat > $D/body", "on = []", &[("work", NOWHERE, STALE)]);
    let refused = told
        .run(&["enqueue", NOTIFY_COMMAND, "--data", "x"])
        .code(65);
    drop(refused.says("takes notices only"));
    assert!(told.list(&[]).is_empty());
    // Somebody would be told if it were on; it is the item's own address that counts then.
    told.enqueue("work", &["--data", "quiet"]);
    let loud = told.enqueue("work", &["--data", "loud", "--notify", NOTIFY_COMMAND]);

    let hold = ["hold", "--destination", NOTIFY_COMMAND];
    told.run(&hold)
        .ok()
        .prints("destination notify-command is held");
    told.tick();
    assert_eq!(told.read("body"), "", "held");
    let rows = told.notices();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0]["state"], "pending");
    let status = told.json(&["status"]);
    let own = &status["destinations"][NOTIFY_COMMAND];
    assert_eq!(
        (&own["pending"], &own["configured"]),
        (&json!(1), &json!(true))
    );
    let plan = told.run(&["--json", "tick", "--dry-run"]).ok().json();
    assert_eq!(
        (&plan["destination"], &plan["action"]),
        (&json!(NOTIFY_COMMAND), &json!("skip"))
    );
    let release = ["release", "--destination", NOTIFY_COMMAND];
    told.run(&release).ok();
    let plan = told.run(&["--json", "tick", "--dry-run"]).ok().json();
    assert_eq!(plan["action"], "send");
    told.run(&["tick", "--destination", NOTIFY_COMMAND]).ok();
    let body: Value = serde_json::from_str(&told.read("body")).unwrap();
    assert_eq!(body["request_ids"], json!([loud]));

    let rules = told.run(&["rules", "list", NOTIFY_COMMAND]).ok();
    for words in [
        "command/0",
        "command/exit",
        "command/start",
        "command/timeout",
        "command/interrupted",
    ] {
        assert!(rules.stdout.contains(words), "{rules:?}");
    }
    assert!(!rules.stdout.contains("default/"), "{rules:?}");
    let test = [
        "rules",
        "test",
        NOTIFY_COMMAND,
        "--transport",
        "dns_failure",
    ];
    told.run(&test).code(65).says("exit code 0 confirms");

    // Gone from the configuration, its items stay.
    told.configure(SOON, &[("work", NOWHERE, STALE)]);
    let unknown = ["enqueue", "work", "--data", "x", "--notify", NOTIFY_COMMAND];
    told.run(&unknown).code(65).says("is not configured");
}

#[test]
fn with_a_command_somebody_is_told() {
    let told = Told::new("cat > /dev/null");
    let words = ["enqueue", "work", "--data", "x"];
    told.run(&words).ok().says_not("nobody is told");
    told.configure(SOON, &[("work", NOWHERE, STALE)]);
    told.run(&words).ok().says("nobody is told");
}

#[test]
fn the_mailer_of_the_readme_mails() {
    let told = Told::new("exit 1");
    let sendmail = "#!/bin/sh\nD=\"$1\"; printf '%s|' \"$@\" > $D/args; cat > $D/mail\n";
    let sendmail = told.file("sendmail", sendmail);
    let real = format!("/bin/sh {sendmail} {} -t", told.dir().display());
    told.script(&mailer().replace("/usr/sbin/sendmail -t", &real));
    let ids: BTreeSet<String> = (0..3)
        .map(|_| told.enqueue("work", &["--data", "x"]))
        .collect();
    told.tick();
    assert_eq!(told.last()["state"], "confirmed", "{}", told.last());
    let mail = told.read("mail");
    let (head, body) = mail.split_once("\n\n").unwrap();
    assert_eq!(head, "To: root\nSubject: tickpost: look here");
    // The text as it is, a blank line, the ids, and nothing else.
    let (text, listed) = body.split_once("\n\n").unwrap();
    let notices = told.notices();
    let notice = told.item(notices[0]["request_id"].as_str().unwrap());
    let notice = notice[0]["request"]["body"]["text"].as_str().unwrap();
    let notice: Value = serde_json::from_str(notice).unwrap();
    assert_eq!(notice["text"], text);
    assert!(text.starts_with("3 items to work failed: stale."), "{mail}");
    assert_eq!(listed.lines().count(), 3, "{mail}");
    let listed: BTreeSet<String> = listed.lines().map(str::to_owned).collect();
    assert_eq!(listed, ids, "{mail}");
    assert!(told.read("args").ends_with("|-t|"));
    // Whoever mails knows whether it was taken.
    told.script(&mailer().replace("/usr/sbin/sendmail -t", "false"));
    told.enqueue("work", &["--data", "x"]);
    told.tick();
    assert_eq!(
        told.list(&["--destination", NOTIFY_COMMAND, "--state", "pending"])
            .len(),
        1
    );
}

#[test]
fn a_notice_of_text_keeps_its_bytes() {
    let phone = Receiver::start(vec![Reply::status(503), Reply::ok()]);
    let (url, more) = (phone.url(), "notice = \"text\"");
    let desk = Desk::new(&[("work", NOWHERE, STALE), ("phone", &url, more)]);
    let id = desk.enqueue("work", &["--data", "x", "--notify", "phone"]);
    desk.tick();
    phone.wait_for(1);
    // What is configured afterwards changes nothing.
    desk.configure(SOON, &[("work", NOWHERE, STALE), ("phone", &url, "")]);
    desk.tick_to_end();
    let [first, second] = &phone.arrivals()[..] else {
        panic!("{:#?}", phone.arrivals());
    };
    assert_eq!(
        first.header("content-type"),
        Some("text/plain; charset=utf-8")
    );
    assert_eq!(
        second.header("content-type"),
        Some("text/plain; charset=utf-8")
    );
    assert_eq!(first.body, second.body);
    let text = first.text();
    assert!(text.starts_with("1 item to work failed: stale. "), "{text}");
    assert!(text.ends_with(&id), "{text}");
}

#[test]
fn every_store_makes_notices_in_the_form_of_their_address() {
    let bench = Bench::new();
    let file = FileStore::open(bench.spool(), false).unwrap();
    let memory = MemoryStore::new();
    let [json, text] = ["ops", "phone"].map(|name| name.parse::<DestName>().unwrap());
    let stores: [&dyn Store; 2] = [&file, &memory];
    for store in stores {
        let in_text = [text.clone()];
        let owner = Owner {
            who: "a test",
            now: UnixMs(1_800_000_000_000),
            told_of_corrupt: &[],
            told_in_text: &in_text,
        };
        for publish in [true, false] {
            let mut session = store.lock(&owner).unwrap();
            let once = publish.to_string();
            let to = [json.clone(), text.clone()];
            let told = Notice::of_file(
                About::Corrupt,
                "f",
                &once,
                "work",
                "torn",
                &Asked::default(),
                &to,
            );
            session.tell(told).unwrap();
            if publish {
                assert_eq!(session.publish(owner.now).unwrap(), to);
            }
            session.close(owner.now, None).unwrap();
        }
        let mut types = Vec::new();
        store
            .scan(&Scope::default(), &mut |found| {
                let item = store.read(found)?.unwrap().unwrap();
                let content_type = item.envelope.request.content_type.unwrap();
                types.push((found.destination.clone(), content_type));
                Ok(())
            })
            .unwrap();
        types.sort();
        let want = [
            ("ops", "application/json"),
            ("ops", "application/json"),
            ("phone", "text/plain; charset=utf-8"),
            ("phone", "text/plain; charset=utf-8"),
        ];
        let want = want.map(|(to, of)| (to.to_owned(), of.to_owned()));
        assert_eq!(types, want);
    }
}

#[test]
fn what_a_command_leaves_running_is_left_alone() {
    // A mailer that delivers in the background keeps the pipe of what it says.
    let told =
        Told::new("(read line < $D/go; echo late > $D/late) & echo $! > $D/pids; echo queued");
    let go = told.fifo("go");
    told.enqueue("work", &["--data", "x"]);
    told.tick();
    let last = told.last();
    assert_eq!(last["state"], "confirmed");
    assert_eq!(last["response"]["excerpt"], "queued\n");
    let pids = told.read("pids");
    assert!(lives(&pids), "it goes on");
    fs::write(go, "\n").unwrap();
    wait_until_gone(&pids);
    assert_eq!(told.read("late"), "late\n");
}

/// Ids of notices are functions of the item's, so a caller who chooses an item's id knows them.
#[test]
fn an_id_that_a_caller_took_before_a_notice_keeps_nobody_from_being_told() {
    let item = "00000000-0000-4000-8000-000000000001";
    let next = |id: &str, name: &str| {
        let id = uuid::Uuid::parse_str(id).unwrap();
        uuid::Uuid::new_v5(&id, name.as_bytes()).to_string()
    };
    let first = next(item, "2");
    let second = next(&first, "1");
    for (where_it_lies, taken_by) in [("confirmed", "ok"), ("pending", "held"), ("held", "ok")] {
        let receiver = Receiver::start(vec![]);
        let url = receiver.url();
        let bench = Bench::new();
        let destinations = [
            ("work", NOWHERE, STALE),
            ("ok", &url, ""),
            ("held", &url, ""),
            ("ops", &url, ""),
        ];
        bench.configure("[notify]\ndestinations = [\"ops\"]", &destinations);
        bench.run(&["hold", "--destination", "held"]).ok();
        for id in [&first, &second] {
            let mut words = vec!["--data", "x", "--request-id", id];
            if where_it_lies == "held" {
                words.extend(["--hold", "not yet"]);
            }
            bench.enqueue(taken_by, &words);
        }
        bench.tick();
        let before = receiver.arrivals().len();
        bench.enqueue("work", &["--data", "x", "--request-id", item]);
        bench.tick();
        bench.tick();
        let arrivals = receiver.arrivals();
        let told: Vec<Value> = arrivals[before..]
            .iter()
            .map(|arrival| serde_json::from_slice(&arrival.body).unwrap())
            .collect();
        assert_eq!(told.len(), 1, "{where_it_lies}: told once");
        assert_eq!(told[0]["request_ids"], json!([item]), "{where_it_lies}");
        assert_eq!(bench.show(&next(&first, "2"))["state"], "confirmed");
        for id in [&first, &second] {
            assert_eq!(bench.show(id)["state"], where_it_lies);
        }
        bench.run(&["audit"]).ok();
    }
}
