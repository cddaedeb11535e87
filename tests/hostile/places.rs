//! Something else in the place of each of the spool's own files and directories.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::FileType;
use tickpost::clock::{Clock as _, SystemClock};

use super::bench::{Bench, KEYED, Ran};
use super::support::Receiver;
use super::{make_fifo, make_node};

/// What is put there.
const KINDS: [&str; 14] = [
    "missing",
    "empty",
    "garbage",
    "null",
    "zeros",
    "huge",
    "directory",
    "full directory",
    "link",
    "dangling link",
    "pipe",
    "socket",
    "device",
    "foreign",
];

/// Runs it with a bound that only a hang meets.
fn run(bench: &Bench, words: &[&str]) -> Ran {
    let ran = bench
        .call_by_shell("exec timeout -k 1 120 \"$@\"", words)
        .run();
    assert_ne!(ran.code, Some(124), "it hangs: {ran:#?}");
    assert_ne!(ran.code, Some(70), "{ran:#?}");
    assert!(!ran.stderr.contains("panicked"), "{ran:#?}");
    assert!(ran.code.is_some(), "{ran:#?}");
    if ran.code != Some(0) && ran.code != Some(1) {
        let said = !ran.stderr.is_empty() || !ran.stdout.is_empty();
        assert!(said, "a clear word: {ran:#?}");
    }
    ran
}

/// False if this kind cannot be made here.
fn put(path: &Path, kind: &str, outside: &Path) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    match kind {
        "missing" => {}
        "empty" => fs::write(path, "").unwrap(),
        "garbage" => fs::write(path, "gar\u{1b}[31mbage\n{\n").unwrap(),
        "null" => fs::write(path, "null\n").unwrap(),
        "zeros" => fs::write(path, vec![0; 10_000]).unwrap(),
        "huge" => fs::File::create(path).unwrap().set_len(300 << 20).unwrap(),
        "directory" => fs::create_dir(path).unwrap(),
        "full directory" => {
            fs::create_dir(path).unwrap();
            fs::write(path.join("a\nb"), "mine").unwrap();
        }
        "link" => symlink(outside, path).unwrap(),
        "dangling link" => symlink("/nonexistent/x", path).unwrap(),
        "pipe" => make_fifo(path),
        "socket" => drop(UnixListener::bind(path).unwrap()),
        "device" if is_root => make_node(path, FileType::CharacterDevice),
        "foreign" if is_root => {
            fs::write(path, "{}").unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
            chown(path, Some(4711), Some(4711)).unwrap();
        }
        _ => return false,
    }
    true
}

fn remove(path: &Path) {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path).unwrap(),
        Ok(_) => fs::remove_file(path).unwrap(),
        Err(_) => {}
    }
}

/// Tries every kind in one place. With `costs_all` a tick may refuse to work at all; without, it
/// costs at most the destination `shop` its turn.
fn spoil(relative: &str, costs_all: bool) {
    for kind in KINDS {
        let what = format!("{kind} as {relative}");
        let receiver = Receiver::start(vec![]);
        let bench = Bench::with(&[
            ("shop", &receiver.url(), KEYED),
            ("other", &receiver.url(), KEYED),
        ]);
        run(&bench, &["tick"]).ok();
        let ids = [
            bench.enqueue("shop", &["--data", "x", "--key", "k"]),
            bench.enqueue("other", &["--data", "x"]),
        ];
        let outside = bench.dir().join("outside");
        fs::create_dir(&outside).unwrap();
        for name in ["a", "01", "32"] {
            fs::write(outside.join(name), "not ours").unwrap();
        }
        let (path, kept) = (bench.spool().join(relative), bench.dir().join("kept"));
        if fs::symlink_metadata(&path).is_ok() {
            fs::rename(&path, &kept).unwrap();
        }
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if !put(&path, kind, &outside) {
            continue;
        }
        for words in [
            &["status"][..],
            &["list"],
            &["show", &ids[0]],
            &["status", "--check"],
            &["tick", "--dry-run"],
        ] {
            let ran = run(&bench, words);
            assert!(
                !ran.stdout.contains('\u{1b}') && !ran.stderr.contains('\u{1b}'),
                "{what}"
            );
        }
        let ran = run(&bench, &["tick"]);
        let arrived = receiver.effects();
        if !costs_all {
            assert_eq!(ran.code, Some(0), "{what}: {ran:#?}");
            assert!(arrived.contains_key(&ids[1]), "{what}: {ran:#?}");
        }
        assert!(
            arrived.contains_key(&ids[1]) || ran.code != Some(0),
            "{what}: not sent, and not said: {ran:#?}"
        );
        run(&bench, &["prune"]);
        // Put right again, everything goes on, and nothing was lost or done twice.
        if fs::symlink_metadata(&kept).is_ok() {
            remove(&path);
            fs::rename(&kept, &path).unwrap();
        } else if kind != "missing" {
            remove(&path);
        }
        run(&bench, &["tick"]).ok();
        run(&bench, &["tick"]).ok();
        for id in &ids {
            let effects = receiver.effects();
            let effect = effects
                .get(id)
                .unwrap_or_else(|| panic!("{what}: {id} is lost"));
            assert_eq!(effect.times, 1, "{what}");
            assert!(bench.place_of_item(id).starts_with("confirmed/"), "{what}");
        }
        for name in ["a", "01", "32"] {
            assert_eq!(fs::read(outside.join(name)).unwrap(), b"not ours", "{what}");
        }
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 3, "{what}");
    }
}

#[test]
fn something_else_as_a_file_of_the_whole_spool() {
    spoil("lock", true);
    spoil("spool.json", true);
}

#[test]
fn something_else_as_the_wake_file_or_the_reserve() {
    spoil("wake", false);
    spoil("reserve", false);
    spoil("reserve/07", false);
}

#[test]
fn something_else_as_what_is_remembered_of_a_destination() {
    spoil("destinations/shop.json", false);
    spoil("destinations/shop.hold.json", false);
}

#[test]
fn something_else_as_a_log() {
    let day = SystemClock::new().now().day_name();
    spoil(&format!("log/ticks-{day}.jsonl"), true);
    spoil("log/ticks-20200101.jsonl", false);
    spoil(&format!("log/pruned-{day}.jsonl"), false);
    spoil("log/pruned-20200101.jsonl", false);
}

#[test]
fn something_else_in_tmp_corrupt_and_keys() {
    spoil("tmp/x", false);
    spoil("corrupt/x", false);
    spoil("corrupt/x.why.json", false);
    spoil("keys/other", false);
    spoil("keys/x", false);
    spoil("bodies/x", false);
}

#[test]
fn something_else_as_a_drop_box_or_a_directory_of_a_destination() {
    spoil("incoming/shop", false);
    spoil("held/shop", false);
    spoil("confirmed/x", false);
    spoil("unknown/x", false);
    spoil("pending/x", false);
}
