//! `init`: what a spool is made of, its modes, and that a second run changes nothing.
//!
//! CONTRACT 3 (the spool) and 5 (`init`).

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/bench.rs"]
mod bench;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use bench::{Bench, assert_fields, assert_time};

/// The directories of CONTRACT 3.
const DIRS: [&str; 14] = [
    "bodies",
    "confirmed",
    "corrupt",
    "destinations",
    "failed",
    "held",
    "incoming",
    "journal",
    "keys",
    "log",
    "order",
    "pending",
    "tmp",
    "unknown",
];

/// The files of CONTRACT 3 that are there from the start, and what tells the spool from a copy.
const FILES: [&str; 5] = [
    "lock",
    "log/clock.json",
    "spool.json",
    "tickpost.toml",
    "wake",
];

#[test]
fn makes_every_directory_and_file_and_nothing_else() {
    let tree = Bench::new().tree();
    let mut wanted: Vec<&str> = DIRS.iter().chain(&FILES).copied().collect();
    wanted.sort_unstable();
    let got: Vec<&str> = tree.keys().map(String::as_str).collect();
    assert_eq!(got, wanted);
    for name in DIRS {
        assert_eq!(tree[name].kind, "dir", "{name}");
    }
    for name in FILES {
        assert_eq!(tree[name].kind, "file", "{name}");
    }
}

#[test]
fn modes_are_0700_and_0600_whatever_the_umask() {
    for umask in ["0", "022", "077", "0277"] {
        let bench = Bench::bare();
        bench.call_with_umask(umask, &["init"]).run().ok();
        let root = fs::metadata(bench.spool()).unwrap().permissions().mode();
        assert_eq!(root & 0o7777, 0o700, "the spool under umask {umask}");
        let destination = "[destination.shop]\nbase_url = \"http://127.0.0.1:9\"\n";
        let config = bench.file("config.toml", destination);
        let words = ["--config", &config, "enqueue", "shop", "--data", "x"];
        bench.call_with_umask(umask, &words).run().ok();
        let words = ["--config", &config, "hold", "--destination", "shop"];
        bench.call_with_umask(umask, &words).run().ok();
        let words = ["--config", &config, "tick"];
        bench.call_with_umask(umask, &words).run().ok();
        for (path, entry) in bench.tree() {
            let wanted = if entry.kind == "dir" { 0o700 } else { 0o600 };
            assert_eq!(entry.mode, wanted, "{path} under umask {umask}");
        }
    }
}

#[test]
fn spool_json_says_what_the_contract_says() {
    let bench = Bench::new();
    let described = bench.read_json("spool.json");
    assert_fields(&described, "format spool_id created_at lock_inode");
    assert_eq!(described["format"], 1);
    uuid::Uuid::parse_str(described["spool_id"].as_str().unwrap()).unwrap();
    assert_time(&described["created_at"]);
    let lock = bench.tree().remove("lock").unwrap();
    assert_eq!(described["lock_inode"], lock.inode);
}

#[test]
fn two_spools_are_two() {
    let one = Bench::new().read_json("spool.json");
    let other = Bench::new().read_json("spool.json");
    assert_ne!(one["spool_id"], other["spool_id"]);
}

#[test]
fn again_it_changes_nothing() {
    let bench = Bench::new();
    bench.write_config("# mine\n");
    let before = bench.tree();
    bench.run(&["init"]).ok().prints("nothing was changed");
    assert_eq!(bench.tree(), before);
    let said = bench.json(&["init"]);
    assert_fields(&said, "spool made");
    assert_eq!(said["made"], serde_json::json!([]));
    assert_eq!(bench.tree(), before);
}

#[test]
fn completes_what_is_there_in_part() {
    let bench = Bench::new();
    let before = bench.tree();
    for dir in ["corrupt", "pending", "tmp"] {
        fs::remove_dir(bench.spool().join(dir)).unwrap();
    }
    for file in ["tickpost.toml", "wake"] {
        fs::remove_file(bench.spool().join(file)).unwrap();
    }
    let said = bench.json(&["init"]);
    let made = serde_json::json!(["pending/", "corrupt/", "tmp/", "wake", "tickpost.toml"]);
    assert_eq!(said["made"], made);
    let after = bench.tree();
    assert_eq!(
        after.keys().collect::<Vec<_>>(),
        before.keys().collect::<Vec<_>>()
    );
    assert_eq!(after["spool.json"], before["spool.json"]);
    assert_eq!(after["tickpost.toml"].bytes, before["tickpost.toml"].bytes);
}

#[test]
fn a_directory_with_a_configuration_and_no_spool_becomes_one() {
    let bench = Bench::bare();
    fs::create_dir(bench.spool()).unwrap();
    bench.write_config("# mine\n");
    bench.run(&["status"]).code(73);
    bench.run(&["init"]).ok();
    assert_eq!(bench.tree()["tickpost.toml"].bytes, b"# mine\n");
    bench.run(&["status"]).ok();
}

#[test]
fn a_newer_format_is_refused_untouched() {
    let bench = Bench::new();
    let newer = r#"{"format":2,"spool_id":"x","hull":"steel"}"#;
    fs::write(bench.spool().join("spool.json"), newer).unwrap();
    fs::remove_dir(bench.spool().join("tmp")).unwrap();
    let before = bench.tree();
    for words in [
        &["init"][..],
        &["enqueue", "shop", "--data", "x"],
        &["tick"],
        &["status"],
        &["list"],
        &["show", "0"],
        &["hold", "--destination", "shop"],
        &["cancel", "0"],
    ] {
        let ran = bench.run(words);
        // Nobody is configured, which may be found first; never anything else.
        if words[0] == "enqueue" {
            assert!([Some(65), Some(78)].contains(&ran.code), "{ran:#?}");
        } else {
            ran.code(78).says("format 2").says("newer tickpost");
        }
        assert_eq!(bench.tree(), before, "{words:?}");
    }
}

#[test]
fn a_damaged_spool_json_is_refused_untouched() {
    for damage in ["", "{", "[]", r#"{"format":"1"}"#, r#"{"format":1}"#] {
        let bench = Bench::new();
        fs::write(bench.spool().join("spool.json"), damage).unwrap();
        let before = bench.tree();
        for words in [&["init"][..], &["tick"], &["status"]] {
            bench.run(words).code(78).says("spool.json");
        }
        assert_eq!(bench.tree(), before, "{damage}");
    }
}

#[test]
fn the_sample_configuration_is_without_fault_and_only_comments() {
    let bench = Bench::new();
    bench.run(&["config", "check"]).ok().prints("no fault");
    let sample = fs::read_to_string(bench.spool().join("tickpost.toml")).unwrap();
    assert!(sample.lines().all(|line| {
        let is_header = line.starts_with('[');
        line.is_empty() || line.starts_with('#') || is_header
    }));
    assert!(sample.contains("#max_runtime = \"50s\""), "{sample}");
}

#[test]
fn it_says_where_to_go_on() {
    let bench = Bench::bare();
    let ran = bench
        .run(&["init"])
        .ok()
        .prints("is ready")
        .prints("tickpost.toml");
    assert_eq!(ran.stderr, "");
    let bench = Bench::bare();
    let said = bench.json(&["init"]);
    assert_eq!(
        said["spool"],
        bench.spool().canonicalize().unwrap().to_str().unwrap()
    );
    assert_eq!(
        said["made"].as_array().unwrap().len(),
        // It does not tell of log/clock.json.
        DIRS.len() + FILES.len()
    );
}

#[test]
fn parents_are_made_and_what_cannot_be_made_is_73() {
    let bench = Bench::bare();
    let deep = bench.dir().join("a/b/spool");
    let deep = deep.to_str().unwrap();
    bench.call_plain(&["--spool", deep, "init"]).run().ok();
    bench.call_plain(&["--spool", deep, "status"]).run().ok();
    let file = bench.file("file", "");
    let below = format!("{file}/spool");
    for place in [&file, &below] {
        bench.call_plain(&["--spool", place, "init"]).run().code(73);
    }
    assert_eq!(fs::read(&file).unwrap(), b"");
}

#[test]
fn a_relative_spool_is_made_where_one_stands() {
    let bench = Bench::bare();
    bench.call_plain(&["--spool", "spool", "init"]).run().ok();
    bench.call_plain(&["status"]).run().ok().prints("spool");
    bench
        .call_plain(&["status"])
        .env("TICKPOST_SPOOL", "nowhere")
        .run()
        .code(73);
}

/// A directory with other things in it is somebody's.
#[test]
fn a_directory_that_is_no_spool_is_left_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let bench = Bench::bare();
    let root = bench.spool();
    std::fs::create_dir(root).unwrap();
    std::fs::set_permissions(root, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(root.join("mine"), "x").unwrap();
    bench
        .run(&["init"])
        .code(73)
        .says("not empty and no spool")
        .says("mine");
    assert_eq!(bench.tree().len(), 1);
    let mode = std::fs::metadata(root).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
    // Names of ours with something in them are as much somebody's.
    let other = Bench::bare();
    std::fs::create_dir_all(other.spool().join("tmp")).unwrap();
    std::fs::write(other.spool().join("tmp/theirs"), "x").unwrap();
    other.run(&["init"]).code(73).says("tmp/theirs");
    // One that was prepared with a configuration becomes one, and so does what a dead `init` left.
    for left in ["tickpost.toml", "lock", ".gitkeep", "destinations.d"] {
        let bench = Bench::bare();
        std::fs::create_dir(bench.spool()).unwrap();
        std::fs::write(bench.spool().join(left), "").unwrap();
        std::fs::create_dir(bench.spool().join("pending")).unwrap();
        bench.run(&["init"]).ok();
    }
    // Also one that died while it wrote the configuration: half of it is nobody's.
    let bench = Bench::bare();
    std::fs::create_dir_all(bench.spool().join("tmp")).unwrap();
    std::fs::write(bench.spool().join("tmp/tickpost.toml.7.0"), "[tic").unwrap();
    bench.run(&["init"]).ok();
    bench.run(&["config", "check"]).ok();
}

/// A death at any write or rename: the next `init` makes the rest, and the configuration is whole.
#[test]
fn an_init_that_died_is_completed() {
    let whole = fs::read(Bench::new().spool().join("tickpost.toml")).unwrap();
    for death in ["write", "fsync", "renameat2"] {
        for nth in 1..=5 {
            let bench = Bench::bare();
            let inject = format!("inject={death}:signal=KILL:when={nth}");
            let died = std::process::Command::new("strace")
                .args(["-f", "-o", "/dev/null", "-e", &inject])
                .arg(env!("CARGO_BIN_EXE_tickpost"))
                .args(["--spool", bench.spool().to_str().unwrap(), "init"])
                .output();
            if died.is_err() {
                // There is no strace here.
                return;
            }
            bench.run(&["init"]).ok();
            let got = fs::read(bench.spool().join("tickpost.toml")).unwrap();
            assert_eq!(got, whole, "killed at {death} number {nth}");
            bench.run(&["status"]).ok();
        }
    }
}

/// What is kept in a spool is lost with any directory on the way to it.
#[test]
fn the_directories_that_lead_to_a_new_spool_are_synced() {
    let bench = Bench::bare();
    let spool = bench.dir().join("one/two/spool");
    let trace = bench.dir().join("trace");
    let ran = std::process::Command::new("strace")
        .args(["-f", "-y", "-e", "trace=fsync", "-o"])
        .arg(&trace)
        .arg(env!("CARGO_BIN_EXE_tickpost"))
        .args(["--spool", spool.to_str().unwrap(), "init"])
        .output();
    let Ok(ran) = ran else {
        // There is no strace here.
        return;
    };
    assert!(ran.status.success(), "{ran:?}");
    let trace = fs::read_to_string(trace).unwrap();
    for dir in [
        bench.dir(),
        &bench.dir().join("one"),
        &bench.dir().join("one/two"),
    ] {
        let synced = format!("<{}>)", dir.canonicalize().unwrap().display());
        assert!(trace.contains(&synced), "{synced}: {trace}");
    }
}

#[test]
fn a_spool_within_a_spool_is_refused() {
    let bench = Bench::new();
    let inner = bench.spool().join("pending/d");
    bench
        .call_plain(&["--spool", inner.to_str().unwrap(), "init"])
        .run()
        .code(73)
        .says("lies within the spool");
    assert!(!inner.exists());
    // Also where a link leads into it.
    let link = bench.dir().join("link");
    std::os::unix::fs::symlink(bench.spool().join("pending"), &link).unwrap();
    let inner = link.join("d");
    bench
        .call_plain(&["--spool", inner.to_str().unwrap(), "init"])
        .run()
        .code(73)
        .says("lies within the spool");
    bench.run(&["init"]).ok();
}
