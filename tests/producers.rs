//! The producers that `spool/README.md` gives to copy: each is run as it stands there, on a spool
//! with a tick and a receiver, and so are its lines for cron and its Rust.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/bench.rs"]
mod bench;
#[path = "support/mod.rs"]
mod support;

use std::error::Error;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use bench::{Bench, KEYED};
use serde_json::json;
use support::Receiver;
use tickpost::{Draft, Spool};

const README: &str = include_str!("../spool/README.md");

/// What drops: the heading, the language of the block, and what runs it.
const DROPPING: [(&str, &str, &str); 3] = [
    ("### Shell", "sh", "sh"),
    ("### Python", "python", "python3"),
    ("### Node.js", "js", "node"),
];

/// The blocks below a heading that are in this language.
fn blocks(heading: &str, language: &str) -> Vec<&'static str> {
    let (_, section) = README
        .split_once(&format!("\n{heading}\n"))
        .unwrap_or_else(|| panic!("no `{heading}`"));
    let section = section.split("\n## ").next().unwrap();
    let section = section.split("\n### ").next().unwrap();
    section
        .split(&format!("\n```{language}\n"))
        .skip(1)
        .map(|rest| rest.split_once("\n```").unwrap().0)
        .collect()
}

/// The two blocks of a language: one drops, the other enqueues.
fn pair(heading: &str, language: &str) -> (&'static str, &'static str) {
    let [drops, enqueues] = blocks(heading, language)[..] else {
        panic!("{heading} has not two blocks of {language}");
    };
    assert!(!drops.contains("\"tickpost\"") && !drops.contains("tickpost enqueue"));
    assert!(enqueues.contains("enqueue"));
    (drops, enqueues)
}

/// A spool with the destination of the examples, its drop box, and what runs them.
struct Shop {
    bench: Bench,
    receiver: Receiver,
}

impl Shop {
    fn open() -> Self {
        let receiver = Receiver::start(vec![]);
        let bench = Bench::new();
        let ops = format!("{}/ops", receiver.url());
        let destinations = [("billing", &*receiver.url(), KEYED), ("ops", &*ops, "")];
        bench.configure("[notify]\ndestinations = [\"ops\"]", &destinations);
        bench.run(&["tick"]).ok();
        Self { bench, receiver }
    }

    /// A program with the words before it, as a file of its own.
    fn program(&self, interpreter: &[&str], text: &str) -> Command {
        let file = self.bench.file("program", text);
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        let binary = Path::new(env!("CARGO_BIN_EXE_tickpost")).parent().unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("/usr/bin/env");
        command
            .args(interpreter)
            .arg(file)
            .current_dir(self.bench.dir())
            .env_clear()
            .env("PATH", format!("{}:{path}", binary.display()))
            .env("TICKPOST_SPOOL", self.bench.spool())
            .stdin(Stdio::null());
        command
    }

    /// The bodies that arrived at a path.
    fn arrived(&self, path: &str) -> Vec<String> {
        let all = self.receiver.arrivals();
        all.iter()
            .filter(|arrival| arrival.path == path)
            .map(support::Arrival::text)
            .collect()
    }

    /// The files of the drop box.
    fn dropped(&self) -> Vec<String> {
        self.bench.files("incoming/billing/")
    }

    /// Runs one that drops, twice, and ticks: one charge of 5 arrives.
    fn drops(&self, run: &mut Command) {
        for times in 1..=2 {
            good(run);
            let names = self.dropped();
            assert_eq!(names.len(), times, "{names:?}");
            for name in names {
                let name = name.rsplit('/').next().unwrap();
                let stem = name.strip_suffix(".json");
                assert!(stem.is_some_and(|stem| !stem.starts_with('.')), "{name}");
            }
        }
        let report = self.bench.tick();
        assert_eq!(report["ingested"], 1, "{report}");
        assert_eq!(report["corrupt"], 0, "{report}");
        assert_eq!(self.dropped(), Vec::<String>::new());
        self.charged();
    }

    /// There is one charge, it was confirmed, and it is what the example says.
    fn charged(&self) {
        self.charged_once("invoice-17", "/v1/charges");
        // What another producer hands in is the same item only if no byte differs.
        assert_eq!(self.arrived("/v1/charges"), ["{\"amount\":5}"]);
    }

    fn charged_once(&self, key: &str, target: &str) {
        let ids = self.bench.list_ids(&["--key", key]);
        assert_eq!(ids.len(), 1);
        let item = self.bench.item(&ids[0]);
        assert_eq!(item[0]["request"]["path"], "/v1/charges");
        assert_eq!(item[0]["request"]["content_type"], "application/json");
        assert_eq!(item.last().unwrap()["state"], "confirmed");
        let arrived = self.arrived(target);
        assert_eq!(arrived.len(), 1, "{arrived:?}");
        let body: serde_json::Value = serde_json::from_str(&arrived[0]).unwrap();
        assert_eq!(body, json!({"amount": 5}));
    }
}

fn good(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "",
        "nothing is amiss"
    );
    output
}

fn ids(output: &[u8]) -> Vec<String> {
    let text = std::str::from_utf8(output).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn each_that_drops_has_one_item_sent() {
    for (heading, language, interpreter) in DROPPING {
        let shop = Shop::open();
        let (drops, _) = pair(heading, language);
        shop.drops(&mut shop.program(&[interpreter], drops));
    }
}

/// As the system sees it: the file is synced, then renamed, then its directory is synced.
#[test]
fn each_that_drops_syncs_before_and_after_the_rename() {
    let tried = Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .status();
    if !tried.is_ok_and(|status| status.success()) {
        // Not there, or not permitted here.
        return;
    }
    for (heading, language, interpreter) in DROPPING {
        let shop = Shop::open();
        let (drops, _) = pair(heading, language);
        let trace = shop.bench.dir().join("trace");
        let calls = "trace=fsync,rename,renameat,renameat2";
        let words = [
            "strace",
            "-f",
            "-y",
            "-e",
            calls,
            "-o",
            trace.to_str().unwrap(),
        ];
        good(&mut shop.program(&[&words[..], &[interpreter]].concat(), drops));
        let trace = fs::read_to_string(&trace).unwrap();
        let lines: Vec<&str> = trace.lines().filter(|line| line.ends_with("= 0")).collect();
        let at = |what: &dyn Fn(&str) -> bool| lines.iter().position(|line| what(line));
        let steps = [
            at(&|line| line.contains("fsync(") && line.contains("/incoming/billing/.")),
            at(&|line| line.contains("rename") && line.contains(".json\"")),
            at(&|line| line.contains("fsync(") && line.contains("/incoming/billing>")),
        ];
        assert!(
            steps[0].is_some() && steps.is_sorted(),
            "{heading}: {trace}"
        );
    }
}

/// Only root can be another user, and members of the box's group may not list it.
#[test]
fn each_that_drops_can_do_so_as_a_member_of_the_boxs_group() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let group = 14_100;
    for (n, (heading, language, interpreter)) in (14_101..).zip(DROPPING) {
        let shop = Shop::open();
        let the_box = shop.bench.spool().join("incoming/billing");
        for (path, mode) in [
            (shop.bench.dir(), 0o711),
            (shop.bench.spool(), 0o711),
            (&shop.bench.spool().join("incoming"), 0o711),
            (&*the_box, 0o3730),
        ] {
            chown(path, None, (mode == 0o3730).then_some(group)).unwrap();
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
        let (drops, _) = pair(heading, language);
        let interpreter = found(interpreter);
        let mut program = shop.program(&[&interpreter], drops);
        shop.drops(program.current_dir("/").uid(n).gid(group));
        let item = shop
            .bench
            .item(&shop.bench.list_ids(&["--key", "invoice-17"])[0]);
        let by = item[1]["by"].as_str().unwrap();
        assert!(by.ends_with(&format!("({n})")), "{by}");
    }
}

/// A program of the system's, which another user can run too, where there is one.
fn found(name: &str) -> String {
    let system = format!("/usr/bin/{name}");
    if Path::new(&system).exists() {
        system
    } else {
        name.to_owned()
    }
}

#[test]
fn a_drop_that_fails_leaves_nothing() {
    for (heading, language, interpreter) in DROPPING {
        let shop = Shop::open();
        let (drops, _) = pair(heading, language);
        // The rename fails, for there is no such directory.
        let broken = drops
            .replace(".json\"", "/x.json\"")
            .replace(".json`", "/x.json`");
        assert_ne!(broken, drops);
        let output = shop.program(&[interpreter], &broken).output().unwrap();
        assert!(!output.status.success(), "{heading}");
        assert_eq!(shop.dropped(), Vec::<String>::new(), "{heading}");
    }
}

#[test]
fn the_shell_enqueues_one_and_a_batch() {
    let shop = Shop::open();
    let (_, enqueues) = pair("### Shell", "sh");
    let mut program = shop.program(&["sh"], enqueues);
    let first = good(&mut program).stdout;
    let batch = ids(&fs::read(shop.bench.dir().join("ids")).unwrap());
    assert_eq!(batch.len(), 100);
    assert_eq!(good(&mut program).stdout, first, "the same again");
    assert_eq!(ids(&first).len(), 1);
    assert_eq!(shop.bench.list_ids(&["--state", "pending"]).len(), 101);
    let report = shop.bench.tick();
    assert_eq!(report["confirmed"], 101, "{report}");
    shop.charged();
    assert!(
        shop.arrived("/v1/usage")
            .contains(&"{\"hour\":17}".to_owned())
    );
}

#[test]
fn python_enqueues_one_and_a_batch() {
    let shop = Shop::open();
    let (_, enqueues) = pair("### Python", "python");
    let mut program = shop.program(&["python3"], enqueues);
    let first = good(&mut program).stdout;
    assert_eq!(good(&mut program).stdout, first, "the same again");
    let mut printed = ids(&first);
    let mut known = shop.bench.list_ids(&["--state", "pending"]);
    printed.sort();
    known.sort();
    assert_eq!(printed, known);
    assert_eq!(known.len(), 101);
    let report = shop.bench.tick();
    assert_eq!(report["confirmed"], 101, "{report}");
    shop.charged();
}

#[test]
fn node_enqueues_a_batch() {
    let shop = Shop::open();
    let (_, enqueues) = pair("### Node.js", "js");
    let mut program = shop.program(&["node"], enqueues);
    let first = good(&mut program).stdout;
    assert_eq!(good(&mut program).stdout, first, "the same again");
    assert_eq!(ids(&first), shop.bench.list_ids(&["--state", "pending"]));
    shop.bench.tick();
    shop.charged();
    // What is refused is an error, not an id that is missing.
    let wrong = enqueues.replace("enqueueAll(\"billing\"", "enqueueAll(\"nobody\"");
    assert_ne!(wrong, enqueues);
    let output = shop.program(&["node"], &wrong).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn the_line_for_cron_enqueues_once_a_day() {
    let shop = Shop::open();
    let lines = blocks("### cron", "crontab");
    let [line] = lines[..] else {
        panic!("{lines:?}");
    };
    // As cron does: five fields, and then a command in which `\%` is `%`.
    let command = line.splitn(6, ' ').nth(5).unwrap();
    assert!(!command.replace("\\%", "").contains('%'), "{command}");
    let command = command.replace("\\%", "%");
    let mut program = shop.program(&["sh"], &command);
    let output = program.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!((&*output.stdout, &*output.stderr), (&b""[..], &b""[..]));
    let ids = shop.bench.list_ids(&[]);
    let [id] = &ids[..] else {
        panic!("{ids:?}");
    };
    let item = shop.bench.item(id);
    let day = item[0]["enqueued_at"].as_str().unwrap().split('T').next();
    assert_eq!(item[0]["key"], format!("disk-{}", day.unwrap()));
    shop.bench.tick();
    let arrived = shop.arrived("/v1/disk");
    assert!(arrived[0].starts_with("Filesystem "), "{arrived:?}");
}

// What the README shows of Rust stands between these two lines.
// README: from here
fn charge(spool: &Path) -> Result<String, Box<dyn Error>> {
    let spool = Spool::open(spool)?;
    let draft = Draft::to("billing")?
        .path("/v1/charges")
        .json(&serde_json::json!({"amount": 5}))?
        .key("invoice-17");
    Ok(spool.enqueue(draft)?.to_string())
}
// README: to here

#[test]
fn rust_enqueues_as_shown() {
    let shown = blocks("### Rust", "rust").concat();
    let ours = include_str!("producers.rs");
    let (_, ours) = ours.split_once("\n// README: from here\n").unwrap();
    let (ours, _) = ours.split_once("\n// README: to here\n").unwrap();
    assert_eq!(shown, format!("use tickpost::{{Draft, Spool}};\n\n{ours}"));

    let shop = Shop::open();
    let id = charge(shop.bench.spool()).unwrap();
    assert_eq!(charge(shop.bench.spool()).unwrap(), id, "the same again");
    shop.bench.tick();
    assert_eq!(shop.bench.list_ids(&["--key", "invoice-17"]), [id]);
    shop.charged();
}

#[test]
fn the_file_to_drop_is_one() {
    let shown = blocks("### What the file holds", "json").concat();
    let shop = Shop::open();
    let the_box = shop.bench.spool().join("incoming/billing");
    fs::write(the_box.join("a.json"), shown).unwrap();
    shop.bench.tick();
    shop.charged_once("invoice-18", "/v1/charges?expand=customer");
}

/// Whoever tries one after the other charges once, for each hands in the same bytes.
#[test]
fn all_of_them_hand_in_the_same_item() {
    let shop = Shop::open();
    for (heading, language, interpreter) in DROPPING {
        let (drops, enqueues) = pair(heading, language);
        good(&mut shop.program(&[interpreter], enqueues));
        good(&mut shop.program(&[interpreter], drops));
    }
    let id = charge(shop.bench.spool()).unwrap();
    let report = shop.bench.tick();
    assert_eq!(report["corrupt"], 0, "{report}");
    assert_eq!(report["ingested"], 0, "{report}");
    assert_eq!(shop.bench.list_ids(&["--key", "invoice-17"]), [id]);
    // And so are the batches.
    assert_eq!(shop.bench.list_ids(&[]).len(), 101);
    shop.charged();
}
