//! What commands cost, counted in system calls: syncs by the group, and reads by what is due, or by
//! what is printed, whatever else lies in the spool. Times are measured by `benches/run`.
//!
//! Without strace, or where it is not permitted, the tests say so and are done.

#![expect(clippy::unwrap_used, reason = "a test may panic")]
#![expect(clippy::print_stdout, reason = "it says what it leaves out")]

#[path = "support/bench.rs"]
mod bench;
mod support;

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use bench::{Bench, KEYED};
use support::Receiver;
use uuid::Uuid;

const NOWHERE: &str = "http://127.0.0.1:9";

/// The calls that wait for the disk.
const SYNCS: &str = "fsync,fdatasync,sync_file_range,syncfs,sync,msync";

/// The calls that look at something by its name.
const LOOKS: &str = "openat,open,statx,newfstatat,stat,lstat";

fn can_trace() -> bool {
    let tried = Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .status();
    let can = tried.is_ok_and(|status| status.success());
    if !can {
        println!("skipped: strace is not there, or not permitted");
    }
    can
}

/// What a command calls of these that names something in the spool, or that has no name and does it to
/// an open file.
fn trace(bench: &Bench, calls: &str, arguments: &[&str]) -> Vec<String> {
    let output = bench.dir().join("trace");
    let traced = format!("trace={calls}");
    let mut command = Command::new("strace");
    command
        .args(["-f", "-qq", "-y", "-s", "256", "-e", &traced, "-o"])
        .arg(&output)
        .arg(env!("CARGO_BIN_EXE_tickpost"))
        .arg("--spool")
        .arg(bench.spool())
        .args(arguments);
    let ran = command.output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    let spool = bench.spool().display().to_string();
    let text = fs::read_to_string(output).unwrap();
    let lines = text
        .lines()
        .filter(|line| line.contains(&spool) && !line.contains("resumed>"));
    lines.map(str::to_owned).collect()
}

/// The items of which a file was opened.
fn opened(bench: &Bench, arguments: &[&str]) -> BTreeSet<Uuid> {
    let item = |line: &String| {
        let name = line.split('"').nth(1)?.rsplit('/').next()?;
        let stem = name.strip_suffix(".jsonl")?.split('.').next()?;
        Uuid::parse_str(stem).ok()
    };
    let lines = trace(bench, "openat,open", arguments);
    lines.iter().filter_map(item).collect()
}

/// Accepts so many with these members.
fn batch(bench: &Bench, destination: &str, items: usize, members: &str) {
    let line =
        format!("{{\"destination\":\"{destination}\",\"request\":{{\"path\":\"/\"}}{members}}}\n");
    let call = bench.call(&["enqueue", "--batch"]);
    call.stdin(line.repeat(items)).run().ok();
}

/// A spool in which so many wait, are held, are parked and are confirmed.
fn with_backlog(items: usize, receiver: &Receiver) -> Bench {
    let bench = Bench::with(&[("shop", &receiver.url(), KEYED), ("later", NOWHERE, "")]);
    batch(&bench, "shop", items, "");
    bench.run(&["tick"]).ok();
    let later = ",\"not_before\":\"2126-01-01T00:00:00Z\"";
    batch(&bench, "later", items, later);
    batch(&bench, "later", items, ",\"hold\":\"later\"");
    // The first one makes what is made once.
    bench.run(&["tick"]).ok();
    bench
}

#[test]
fn a_tick_with_nothing_to_do_costs_the_same_whatever_lies_there() {
    if !can_trace() {
        return;
    }
    let receiver = Receiver::start(vec![]);
    let looks = [3, 300].map(|items| {
        let bench = with_backlog(items, &receiver);
        assert_eq!(trace(&bench, SYNCS, &["tick"]), Vec::<String>::new());
        trace(&bench, LOOKS, &["tick"]).len()
    });
    assert_eq!(looks[0], looks[1]);
}

/// By evening the day's log of ticks is long.
#[test]
fn what_earlier_ticks_wrote_is_not_read() {
    if !can_trace() {
        return;
    }
    let bench = Bench::with(&[("shop", NOWHERE, "")]);
    bench.run(&["tick"]).ok();
    let log = bench.spool().join(bench.files("log/ticks-").remove(0));
    let line = fs::read_to_string(&log).unwrap();
    fs::write(&log, line.repeat(5000)).unwrap();
    for arguments in [&["tick"][..], &["status"], &["enqueue", "shop"]] {
        let reads = trace(&bench, "read,pread64", arguments);
        let bytes = reads.iter().map(|line| {
            let (_, got) = line.rsplit_once("= ").unwrap();
            got.parse::<usize>().unwrap()
        });
        let bytes: usize = bytes.sum();
        assert!(bytes < 32 * 1024, "{arguments:?}: {bytes}");
    }
}

#[test]
fn a_tick_reads_what_is_due() {
    if !can_trace() {
        return;
    }
    let receiver = Receiver::start(vec![]);
    let bench = with_backlog(100, &receiver);
    batch(&bench, "shop", 10, "");
    assert_eq!(opened(&bench, &["tick"]).len(), 10);
    assert_eq!(receiver.arrivals().len(), 110);
}

#[test]
fn what_is_looked_at_is_what_is_printed() {
    if !can_trace() {
        return;
    }
    let receiver = Receiver::start(vec![]);
    let bench = with_backlog(100, &receiver);
    let newest = opened(&bench, &["list", "--state", "held", "--limit", "20"]);
    let printed = bench.list_ids(&["--state", "held", "--limit", "20"]);
    let printed = printed.iter().map(|id| Uuid::parse_str(id).unwrap());
    assert_eq!(newest, printed.collect());
    let ids = bench.list_ids(&["--state", "confirmed"]);
    assert_eq!(opened(&bench, &["show", &ids[50]]).len(), 1);
}

#[test]
fn a_group_is_synced_at_once() {
    if !can_trace() {
        return;
    }
    let receiver = Receiver::start(vec![]);
    let bench = Bench::with(&[("shop", &receiver.url(), KEYED)]);
    bench.run(&["tick"]).ok();
    bench.enqueue("shop", &[]);
    // The item and its directory; and above that what is no older than a minute.
    let one = trace(&bench, SYNCS, &["enqueue", "shop"]);
    assert!((2..=3).contains(&one.len()), "{one:#?}");
    batch(&bench, "shop", 998, "");
    let drain = trace(&bench, SYNCS, &["tick"]);
    assert!(drain.len() <= 100, "{drain:#?}");
    assert_eq!(receiver.arrivals().len(), 1000);
}
