//! The house rules: layers, bans and sizes.
//!
//! A checker is a function over a file's path and text, so that each rule is also tried on a text
//! that breaks it. To allow something new, add it to the tables below with the reason.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "house/source.rs"]
mod source;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use source::{blank, paths, without_tests};

/// What each module of the library may use besides itself. A line uses only lines below it.
const LAYERS: &[(&str, &[&str])] = &[
    (
        "cli",
        &[
            "engine",
            "intake",
            "store",
            "transport",
            "view",
            "clock",
            "entropy",
            "users",
            "config",
            "model",
        ],
    ),
    (
        "spool",
        &["intake", "store", "clock", "users", "config", "model"],
    ),
    (
        "engine",
        &[
            "intake",
            "store",
            "transport",
            "clock",
            "entropy",
            "users",
            "config",
            "model",
        ],
    ),
    (
        "intake",
        &["store", "transport", "entropy", "config", "model"],
    ),
    // A view is a picture of a store, read through the store's contract.
    ("view", &["store", "config", "model"]),
    ("store", &["config", "model"]),
    ("transport", &["config", "model"]),
    ("clock", &["model"]),
    ("entropy", &["model"]),
    ("users", &["model"]),
    ("config", &["model"]),
    ("model", &[]),
];

/// The crates that the pure core may use. chrono is there for the calendar only; base64 for
/// bodies that are not text, `percent_encoding` for paths as receivers read them.
const MODEL_CRATES: &[&str] = &[
    "base64",
    "chrono",
    "percent_encoding",
    "regex_lite",
    "serde",
    "serde_json",
    "sha2",
    "thiserror",
    "toml",
    "uuid",
];

/// What of the standard library the pure core may not use.
const MODEL_BANS: &[&str] = &[
    "std::env",
    "std::fs",
    "std::io",
    "std::net",
    "std::os",
    "std::process",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
];

/// A path that only some files may use. `what` is matched as whole names within a path; a file
/// or directory is allowed with its reason.
struct Ban {
    what: &'static [&'static str],
    only_in: &'static [(&'static str, &'static str)],
}

const BANS: &[Ban] = &[
    Ban {
        what: &["SystemTime::now", "Utc::now", "Local::now"],
        only_in: &[("src/clock.rs", "it is the one reader of the wall clock")],
    },
    Ban {
        what: &[
            "now_v7",
            "new_v4",
            "now_v1",
            "now_v6",
            "rand",
            "getrandom",
            "fastrand",
        ],
        only_in: &[("src/entropy.rs", "it is the one source of randomness")],
    },
    Ban {
        what: &["reqwest", "hyper"],
        only_in: &[("src/transport/", "it is the one that sends")],
    },
    Ban {
        what: &[
            "std::fs",
            "fs::File",
            "tokio::fs",
            "File::open",
            "File::create",
            "OpenOptions",
        ],
        only_in: &[
            ("src/store/disk/", "it is the one writer of the spool"),
            ("src/config/load.rs", "it reads the configuration"),
            ("src/transport/http.rs", "it reads certificates"),
            ("src/transport/secret.rs", "it reads secrets"),
            ("src/clock.rs", "it reads the id of the boot"),
            ("src/users.rs", "it reads the system's list of users"),
            ("src/cli/", "it reads and writes files that the user names"),
        ],
    },
    Ban {
        what: &["rustix::fs"],
        only_in: &[
            ("src/store/disk/", "it is the one writer of the spool"),
            ("src/cli/", "it looks at files that the user names"),
        ],
    },
    Ban {
        // Since Rust 1.89 std has methods of the same names, which would win silently.
        what: &["fs2::FileExt", "fs2::*"],
        only_in: &[],
    },
    Ban {
        what: &["process::exit", "process::abort"],
        only_in: &[("src/main.rs", "it is where the process ends")],
    },
    Ban {
        what: &["anyhow"],
        only_in: &[
            ("src/cli/", "context for people is added there"),
            ("src/main.rs", "it shows what cli returns"),
        ],
    },
];

/// Single calls that [`BANS`] would refuse: the file, the call in full, and why it is right.
const CALLS: &[(&str, &str, &str)] = &[
    (
        "src/store/disk/real.rs",
        "fs2::FileExt::try_lock_exclusive",
        "spelled out, it cannot be mistaken for std's method",
    ),
    (
        "src/store/file/mod.rs",
        "std::fs::create_dir_all",
        "the directories above a new spool are not the spool's own",
    ),
    (
        "src/store/file/mod.rs",
        "rustix::fs::statfs",
        "it asks for the kind of the file system",
    ),
];

/// Texts that stand nowhere in the code of src, tests in it included.
const NOWHERE: &[&str] = &[
    "println!",
    "print!",
    "eprintln!",
    "eprint!",
    "dbg!",
    "todo!",
    "unimplemented!",
    "unsafe ",
    "#[allow",
    "#![allow",
    "#[ignore",
];

/// Texts that stand nowhere in src outside tests.
const NOT_OUTSIDE_TESTS: &[&str] = &[".unwrap()", ".expect(", "panic!"];

/// Files of more than [`LINES_MAX`] lines, and why that is right.
const LONG_FILES: &[(&str, &str)] = &[
    (
        "src/cli/moves.rs",
        "five commands that choose, refuse and count items alike",
    ),
    (
        "src/model/rules/read.rs",
        "one function a key of the rule language, all of one form",
    ),
    (
        "src/model/rules/tests.rs",
        "tables of tests, a row a condition",
    ),
    (
        "src/model/settle/tests.rs",
        "tables of tests, a row a condition",
    ),
    (
        "src/store/file/accept.rs",
        "the one way in, from names to places, in the order of its writes",
    ),
    (
        "src/store/memory.rs",
        "the whole contract once more, a few lines a method",
    ),
    (
        "src/store/file/mod.rs",
        "making, opening and locking a spool, and the contract handed on",
    ),
    (
        "src/store/file/session.rs",
        "everything that the lock's owner may do keeps one journal",
    ),
    (
        "src/store/memory.rs",
        "one whole store, its session included",
    ),
    (
        "src/store/mod.rs",
        "the contract of storage: types, traits and their documentation",
    ),
];

const LINES_MAX: usize = 500;

/// Words that mark unfinished work, split so that this file does not hold them.
const MARKS: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("X", "XX"),
];

/// Directories that exist only on somebody's machine, split likewise.
const MACHINE_PATHS: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/fa", "rm/"),
    concat!("/ho", "me/"),
];

/// Everything wrong with one Rust file of src.
fn check_source(path: &str, text: &str, crates: &BTreeSet<String>) -> Vec<String> {
    let mut faults = Vec::new();
    let blanked = blank(text);
    let code = without_tests(&blanked);
    let is_test = path.ends_with("/tests.rs");
    check_layers(path, &blanked, crates, &mut faults);
    if !is_test {
        check_bans(path, &code, &mut faults);
        find(path, &code, NOT_OUTSIDE_TESTS, &mut faults);
    }
    find(path, &blanked, NOWHERE, &mut faults);
    // A `tests.rs` belongs to the file beside it, and shares its header.
    if !is_test && !text.starts_with("//!") {
        faults.push(format!("{path}:1: it does not begin with `//!`"));
    }
    let lines = text.lines().count();
    let is_listed = LONG_FILES.iter().any(|(known, _)| *known == path);
    if lines > LINES_MAX && !is_listed {
        faults.push(format!(
            "{path}: it has {lines} lines; ask what its second job is, or list it in LONG_FILES with a reason"
        ));
    }
    if lines <= LINES_MAX && is_listed {
        faults.push(format!(
            "{path}: it is no longer long; take it off LONG_FILES"
        ));
    }
    faults
}

/// The module of the library that a file belongs to: `src/store/disk.rs` is of `store`.
fn layer_of(path: &str) -> Option<&str> {
    let inside = path.strip_prefix("src/")?;
    let name = inside.split('/').next()?;
    Some(name.strip_suffix(".rs").unwrap_or(name))
}

fn check_layers(path: &str, blanked: &str, crates: &BTreeSet<String>, faults: &mut Vec<String>) {
    let layer = layer_of(path).unwrap_or_default();
    let may = |other: &str| {
        other == layer
            || match layer {
                "main" => other == "cli",
                // The map names every module, and holds no code.
                "lib" => true,
                _ => LAYERS
                    .iter()
                    .any(|(name, below)| *name == layer && below.contains(&other)),
            }
    };
    let is_layer = |name: &str| LAYERS.iter().any(|(known, _)| *known == name);
    if !matches!(layer, "main" | "lib") && !is_layer(layer) {
        faults.push(format!("{path}: `{layer}` is on no line of LAYERS"));
    }
    let stem = path.strip_suffix("/mod.rs").or(path.strip_suffix(".rs"));
    let depth = stem.map_or(0, |stem| stem.split('/').count() - 1);
    for found in paths(blanked) {
        let parts: Vec<&str> = found.text.split("::").collect();
        let ups = parts.iter().take_while(|part| **part == "super").count();
        let other = match parts[0] {
            // A binary sees its library under the package's name.
            "crate" | "tickpost" => parts.get(1),
            "super" if ups >= depth => parts.get(ups).filter(|name| is_layer(name)),
            _ => None,
        };
        if let Some(other) = other.filter(|other| !may(other)) {
            faults.push(format!(
                "{path}:{}: `{layer}` may not use `{other}` ({})",
                found.line, found.text
            ));
        }
        if layer != "model" {
            continue;
        }
        let is_foreign = crates.contains(parts[0]) && !MODEL_CRATES.contains(&parts[0]);
        if is_foreign || MODEL_BANS.iter().any(|ban| holds(&found.text, ban)) {
            faults.push(format!(
                "{path}:{}: the pure core may not use `{}`",
                found.line, found.text
            ));
        }
    }
}

fn check_bans(path: &str, code: &str, faults: &mut Vec<String>) {
    for found in paths(code) {
        for ban in BANS {
            let is_allowed = ban.only_in.iter().any(|(place, _)| {
                *place == path || (place.ends_with('/') && path.starts_with(place))
            });
            let what = ban.what.iter().find(|what| holds(&found.text, what));
            let is_known = CALLS
                .iter()
                .any(|(file, call, _)| *file == path && *call == found.text);
            if let Some(what) = what.filter(|_| !is_allowed && !is_known) {
                let places: Vec<&str> = ban.only_in.iter().map(|(place, _)| *place).collect();
                faults.push(format!(
                    "{path}:{}: `{what}` stands only in [{}]",
                    found.line,
                    places.join(", ")
                ));
            }
        }
    }
}

/// Whether a path holds these names next to each other.
fn holds(path: &str, what: &str) -> bool {
    format!("::{path}::").contains(&format!("::{what}::"))
}

fn find(path: &str, code: &str, banned: &[&str], faults: &mut Vec<String>) {
    for (number, line) in code.lines().enumerate() {
        for what in banned {
            let at_word = |at: usize| {
                !what.starts_with(char::is_alphabetic)
                    || !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_')
            };
            if line.match_indices(what).any(|(at, _)| at_word(at)) {
                faults.push(format!("{path}:{}: `{what}` is not used here", number + 1));
            }
        }
    }
}

/// Whether a file holds tests or measures.
fn is_test(path: &str) -> bool {
    path.starts_with("tests/") || path.starts_with("benches/")
}

/// What no test does.
fn check_test(path: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let sleeps = ["sleep(", "sleep_until(", "#[ignore"];
    find(path, &blank(text), &sleeps, &mut faults);
    faults
}

/// What stands in no file of the repository.
fn check_any(path: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    find(path, text, MACHINE_PATHS, &mut faults);
    if path.starts_with("src/") || is_test(path) {
        find(path, text, MARKS, &mut faults);
    }
    if path == "Cargo.lock" {
        let foreign = |line: &&str| {
            line.starts_with("source = ")
                && !line.ends_with("\"registry+https://github.com/rust-lang/crates.io-index\"")
        };
        let lines = text.lines().filter(foreign);
        faults.extend(lines.map(|line| format!("{path}: {line} is not crates.io")));
    }
    faults
}

/// Every text file of the repository, by its path from the root. What `git` does not know is
/// left out as far as `.gitignore` names it.
fn every_file() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    let mut dirs = vec![String::new()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(root.join(&dir)).unwrap() {
            let entry = entry.unwrap();
            let path = format!("{dir}{}", entry.file_name().to_str().unwrap());
            let is_ours = !matches!(path.as_str(), ".git" | "target")
                && (dir != "spool/" || matches!(&path[6..], "README.md" | "tickpost.toml"));
            if is_ours && entry.file_type().unwrap().is_dir() {
                dirs.push(format!("{path}/"));
            } else if is_ours {
                let bytes = fs::read(root.join(&path)).unwrap();
                files.extend(String::from_utf8(bytes).ok().map(|text| (path, text)));
            }
        }
    }
    files.sort();
    files
}

/// The names of all dependencies, as code spells them.
fn dependencies() -> BTreeSet<String> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"));
    let manifest: toml::Table = toml::from_str(&text.unwrap()).unwrap();
    let sections = ["dependencies", "dev-dependencies"];
    sections
        .iter()
        .filter_map(|section| manifest.get(*section)?.as_table())
        .flat_map(|table| table.keys().map(|name| name.replace('-', "_")))
        .collect()
}

#[test]
fn the_house_is_in_order() {
    let crates = dependencies();
    let mut faults = Vec::new();
    let files = every_file();
    for (path, text) in &files {
        let is_rust = Path::new(path).extension().is_some_and(|e| e == "rs");
        faults.extend(check_any(path, text));
        if is_rust && path.starts_with("src/") {
            faults.extend(check_source(path, text, &crates));
        }
        if is_rust && is_test(path) {
            faults.extend(check_test(path, text));
        }
    }
    for (listed, _) in LONG_FILES {
        if !files.iter().any(|(path, _)| path == listed) {
            faults.push(format!("{listed}: it is gone; take it off LONG_FILES"));
        }
    }
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn no_layer_uses_one_above_it() {
    for (number, (layer, below)) in LAYERS.iter().enumerate() {
        for other in *below {
            let at = LAYERS.iter().position(|(name, _)| name == other);
            assert!(at > Some(number), "{layer} uses {other}");
        }
    }
}

/// The faults of a text planted as a file of src, without their places.
fn planted(path: &str, code: &str) -> Vec<String> {
    let text = format!("//! A file.\n{code}\n");
    check_source(path, &text, &dependencies())
}

#[test]
fn every_breach_of_a_layer_is_found() {
    let rows = [
        ("src/model/item.rs", "use crate::store::Store;"),
        (
            "src/model/item.rs",
            "use crate::{\n    model::state::State,\n    clock::Clock,\n};",
        ),
        (
            "src/model/item.rs",
            "fn f() { super::super::config::load() }",
        ),
        (
            "src/model/item.rs",
            "#[cfg(test)]\nmod tests { use crate::engine; }",
        ),
        ("src/model/rules/mod.rs", "use super::super::store::Store;"),
        ("src/store/disk.rs", "use crate::transport::Transport;"),
        ("src/store/file/mod.rs", "use crate::view::status;"),
        ("src/transport/http.rs", "use crate::store::Store;"),
        ("src/view/status.rs", "use crate::engine::report::Report;"),
        ("src/config/load.rs", "use crate::clock::Clock;"),
        ("src/clock.rs", "use super::config;"),
        ("src/entropy.rs", "fn f(c: &dyn crate::clock::Clock) {}"),
        ("src/engine/mod.rs", "use crate::view;"),
        ("src/engine/mod.rs", "use crate::cli::exit;"),
        ("src/main.rs", "use tickpost::store::Store;"),
        ("src/other.rs", ""),
        ("src/model/item.rs", "use tokio::time;"),
        ("src/model/item.rs", "use rustix;"),
        ("src/model/item.rs", "fn f() { anyhow::bail!(\"\") }"),
        ("src/model/time.rs", "use std::{fmt, fs};"),
        ("src/model/time.rs", "fn f() { std::env::var(\"A\"); }"),
        (
            "src/model/time.rs",
            "use std::time::{Duration, SystemTime};",
        ),
    ];
    for (path, code) in rows {
        assert!(!planted(path, code).is_empty(), "{path}: {code}");
    }
}

#[test]
fn every_ban_is_kept() {
    let rows = [
        ("src/engine/mod.rs", "fn f() { SystemTime::now(); }"),
        (
            "src/store/disk.rs",
            "fn f() { std::time::SystemTime::now(); }",
        ),
        ("src/model/time.rs", "fn f() { chrono::Utc::now(); }"),
        ("src/cli/list.rs", "fn f() { Local::now(); }"),
        ("src/engine/mod.rs", "fn f() { uuid::Uuid::now_v7(); }"),
        ("src/cli/init.rs", "fn f() { Uuid::new_v4(); }"),
        ("src/engine/mod.rs", "use rand::Rng;"),
        ("src/engine/mod.rs", "fn f(e: reqwest::Error) {}"),
        ("src/store/file/mod.rs", "use std::fs;"),
        ("src/store/file/mod.rs", "use std::{fs::File, io};"),
        ("src/engine/mod.rs", "fn f() { File::open(\"a\"); }"),
        ("src/engine/mod.rs", "fn f() { tokio::fs::read(\"a\"); }"),
        (
            "src/store/file/replay.rs",
            "fn f() { rustix::fs::unlink(\"a\"); }",
        ),
        ("src/store/disk.rs", "use fs2::FileExt;"),
        ("src/store/disk.rs", "use fs2::{FileExt as _};"),
        ("src/cli/mod.rs", "fn f() { std::process::exit(1) }"),
        (
            "src/store/mod.rs",
            "fn f() -> anyhow::Result<()> { Ok(()) }",
        ),
        ("src/cli/mod.rs", "fn f() { println!(\"a\"); }"),
        ("src/cli/mod.rs", "fn f() { eprint!(\"a\"); }"),
        (
            "src/cli/mod.rs",
            "#[cfg(test)]\nmod tests { fn f() { print!(\"a\"); } }",
        ),
        ("src/cli/mod.rs", "fn f() { todo!() }"),
        ("src/cli/mod.rs", "fn f() { unimplemented!() }"),
        ("src/cli/mod.rs", "fn f() { panic!(\"a\") }"),
        ("src/cli/mod.rs", "fn f() { g().unwrap() }"),
        ("src/cli/mod.rs", "fn f() { g().expect(\"a\") }"),
        ("src/cli/mod.rs", "fn f() { unsafe { g() } }"),
        ("src/cli/mod.rs", "#[allow(dead_code)]\nfn f() {}"),
        ("src/cli/mod.rs", "#![allow(dead_code)]"),
        (
            "src/cli/mod.rs",
            "#[cfg(test)]\nmod tests { #[test]\n#[ignore]\nfn f() {} }",
        ),
    ];
    for (path, code) in rows {
        // Only the length of these files is another matter.
        let faults = planted(path, code);
        let faults = faults.iter().filter(|f| !f.contains("LONG_FILES"));
        assert_eq!(faults.count(), 1, "{path}: {code}");
    }
}

#[test]
fn what_is_right_is_left_alone() {
    let rows = [
        ("src/view/status.rs", "use crate::store::Store;"),
        (
            "src/cli/tick.rs",
            "use crate::{engine, transport::http, view};",
        ),
        (
            "src/main.rs",
            "fn main() -> std::process::ExitCode { tickpost::cli::main() }",
        ),
        (
            "src/clock.rs",
            "fn f() { SystemTime::now(); std::fs::read(\"a\"); }",
        ),
        ("src/entropy.rs", "fn f() { Uuid::now_v7(); }"),
        (
            "src/store/disk/real.rs",
            "use std::fs::File;\nfn f() { fs2::FileExt::try_lock_exclusive(&a); }",
        ),
        (
            "src/model/item.rs",
            "// use crate::store;\n/// unsafe println!\nfn f() { g(\"std::fs .unwrap() todo!\") }",
        ),
        (
            "src/model/item.rs",
            "use super::state::State;\nuse super::super::model::state;",
        ),
        (
            "src/cli/list.rs",
            "fn f() { a.unwrap_or(b).expect_err(c); }",
        ),
        (
            "src/cli/list.rs",
            "#[cfg(test)]\nmod tests { fn f() { g().unwrap(); SystemTime::now(); } }",
        ),
        (
            "src/model/item.rs",
            "#[expect(dead_code, reason = \"a\")]\nfn f() {}",
        ),
    ];
    for (path, code) in rows {
        assert_eq!(planted(path, code), Vec::<String>::new(), "{path}: {code}");
    }
}

#[test]
fn headers_sizes_and_marks() {
    let crates = dependencies();
    let faults = check_source("src/cli/a.rs", "fn f() {}\n", &crates);
    assert!(faults[0].contains("//!"), "{faults:?}");
    let long = format!("//! A file.\n{}", "\n".repeat(LINES_MAX));
    let faults = check_source("src/cli/a.rs", &long, &crates);
    assert!(faults[0].contains("501 lines"), "{faults:?}");
    let faults = check_source(LONG_FILES[0].0, "//! A file.\n", &crates);
    assert!(faults[0].contains("no longer long"), "{faults:?}");

    for call in [
        "std::thread::sleep(a)",
        "tokio::time::sleep(a)",
        "sleep_until(a)",
    ] {
        assert_eq!(check_test("tests/a.rs", call).len(), 1, "{call}");
    }
    assert_eq!(check_test("tests/a.rs", "// sleep(a)\nasleep(a)").len(), 0);
    for mark in MARKS {
        assert_eq!(check_any("src/a.rs", &format!("// {mark}: a")).len(), 1);
        assert_eq!(check_any("benches/a.rs", &format!("// {mark}: a")).len(), 1);
    }
    for place in MACHINE_PATHS {
        assert_eq!(check_any("README.md", &format!("see {place}a")).len(), 1);
    }
    let lock = "source = \"registry+https://github.com/rust-lang/crates.io-index\"\n";
    assert_eq!(check_any("Cargo.lock", lock).len(), 0);
    let lock = "source = \"registry+https://crates.example.com/index\"\n";
    assert_eq!(check_any("Cargo.lock", lock).len(), 1);
}
