//! Very many files that are no items, mixed over every place, do not keep a tick from the good
//! ones.
//!
//! `TICKPOST_TEST_HOSTILE_FILES` sets how many; `cargo test --release --test hostile flood --
//! --nocapture` prints how long each tick took.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Instant;

use super::bench::{Bench, KEYED};
use super::support::Receiver;
use super::{good_item, make_fifo};

/// Places of items of `shop`, with whether a name there carries an attempt.
const PLACES: [(&str, bool); 11] = [
    ("pending/shop", false),
    ("pending/shop/20260101T0000Z", false),
    ("pending/shop/20260102", false),
    ("unknown/shop", true),
    ("unknown/shop/20260101T0000Z", false),
    ("unknown/shop/parked", false),
    ("held/shop", false),
    ("held/shop/20260101T0000Z", false),
    ("confirmed/shop/20260101", false),
    ("failed/shop/20260101", false),
    ("incoming/shop", false),
];

const KINDS: usize = 10;

/// Makes the `n`th file.
fn plant(spool: &Path, n: usize) {
    let (dir, claimed) = PLACES[n % PLACES.len()];
    // Before every id that is minted now.
    let id = format!("00000000-0000-7000-8000-{n:012x}");
    let name = match (claimed, dir) {
        (true, _) => format!("{id}.1.jsonl"),
        (false, "incoming/shop") => format!("{id}.json"),
        (false, _) => format!("{id}.jsonl"),
    };
    let path = spool.join(dir).join(name);
    let good = good_item(&id, "shop");
    match n / PLACES.len() % KINDS {
        0 => fs::write(&path, "").unwrap(),
        1 => fs::write(&path, "garbage").unwrap(),
        2 => fs::write(&path, vec![0; 700]).unwrap(),
        3 => fs::write(&path, &good[..good.len() / 3]).unwrap(),
        4 => {
            let mut bytes = good;
            bytes[100] ^= 1;
            fs::write(&path, bytes).unwrap();
        }
        5 => fs::write(
            &path,
            good_item("00000000-0000-7000-8000-ffffffffffff", "shop"),
        )
        .unwrap(),
        6 => symlink("/etc/passwd", &path).unwrap(),
        7 => make_fifo(&path),
        8 => fs::create_dir(&path).unwrap(),
        _ => {
            let mut name = format!("{n}-\n\u{1b}[31m").into_bytes();
            name.push(0xff);
            fs::write(path.with_file_name(OsString::from_vec(name)), "x").unwrap();
        }
    }
}

/// How many names there are below a directory.
fn count(dir: &Path) -> usize {
    let mut all = 0;
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let is_dir = entry.file_type().unwrap().is_dir();
        let is_item = [&b".jsonl"[..], b".json"]
            .iter()
            .any(|end| entry.file_name().as_encoded_bytes().ends_with(end));
        all += match (is_dir, is_item) {
            (true, false) => count(&entry.path()),
            (true, true) | (false, _) => 1,
        };
    }
    all
}

#[test]
fn a_flood_of_damaged_files_does_not_stop_a_tick_from_sending_the_good_items() {
    let files: usize =
        std::env::var("TICKPOST_TEST_HOSTILE_FILES").map_or(3000, |text| text.parse().unwrap());
    let receiver = Receiver::start(vec![]);
    let home = tempfile::TempDir::new_in("/dev/shm").or_else(|_| tempfile::TempDir::new());
    let home = home.unwrap();
    let bench = Bench::at(home.path().join("spool"));
    bench.run(&["init"]).ok();
    let url = receiver.url();
    let general = "[notify]\ndestinations = [\"ops\"]\n";
    bench.configure(
        general,
        &[
            ("shop", &url, KEYED),
            ("other", &url, KEYED),
            ("ops", &url, KEYED),
        ],
    );
    for (dir, _) in PLACES {
        fs::create_dir_all(bench.spool().join(dir)).unwrap();
    }
    (0..files).for_each(|n| plant(bench.spool(), n));
    let good: Vec<String> = (0..30)
        .map(|n| bench.enqueue(["shop", "other", "shop"][n % 3], &["--data", "x"]))
        .collect();
    let (mut ticks, mut is_sent) = (0, false);
    while !is_sent {
        ticks += 1;
        let begun = Instant::now();
        let ran = bench.run(&["--json", "tick"]).ok();
        let report = ran.json();
        println!(
            "{files} files, tick {ticks}: {:.1} s, {} attempts, {} set aside, {} lines of warnings",
            begun.elapsed().as_secs_f64(),
            report["attempts"],
            report["corrupt"],
            ran.stderr.lines().count()
        );
        assert!(!ran.stderr.contains('\u{1b}'), "an escape is printed");
        assert!(ran.stderr.lines().count() < 500, "warnings flood");
        is_sent = good.iter().all(|id| {
            bench.spool().join("confirmed").exists() && receiver.effects().contains_key(id.as_str())
        });
        assert!(ticks < 3, "the good ones wait for the bad");
    }
    // The rest is work for later ticks, and ends.
    while bench.json(&["tick"])["corrupt"] != 0 {
        ticks += 1;
        assert!(ticks < 200);
    }
    for id in &good {
        assert_eq!(receiver.effects()[id.as_str()].times, 1, "{id}");
    }
    let begun = Instant::now();
    for words in [&["status"][..], &["list"], &["status", "--check"]] {
        let ran = bench.run(words);
        assert!([Some(0), Some(1), Some(2)].contains(&ran.code), "{ran:#?}");
        assert!(!ran.stdout.contains('\u{1b}'), "an escape is printed");
    }
    println!("readers: {:.1} s", begun.elapsed().as_secs_f64());
    // Everything is where it was, or in corrupt/ with its reason.
    let aside = count(&bench.spool().join("corrupt")) / 2;
    let places = PLACES.iter().map(|(dir, _)| dir.split('/').next().unwrap());
    let tops: std::collections::BTreeSet<&str> = places.collect();
    let kept: usize = tops.iter().map(|top| count(&bench.spool().join(top))).sum();
    let notices = receiver
        .effects()
        .keys()
        .filter(|key| !good.contains(key))
        .count();
    assert_eq!(
        aside + kept - good.len() - notices,
        files,
        "{aside} {kept} {notices}"
    );
    println!("{aside} set aside, {notices} notices");
    assert!(notices <= 3 * ticks, "notices are merged");
}
