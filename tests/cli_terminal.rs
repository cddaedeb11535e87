//! Manners on a terminal and in a pipe: widths, colours, progress.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod support;

#[path = "support/bench.rs"]
mod bench;

#[path = "support/terminal.rs"]
mod terminal;

use std::process::Command;

use bench::{Bench, KEYED};
use support::{Receiver, Reply, closed_port};
use terminal::Screen;

/// The columns of `list`.
const TITLES: [&str; 8] = [
    "request id",
    "state",
    "destination",
    "reason",
    "tries",
    "accepted",
    "due",
    "by",
];

fn command(bench: &Bench, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tickpost"));
    command.arg("--spool").arg(bench.spool()).args(words);
    command
}

/// What a terminal of so many columns has got, escapes included.
fn on_terminal(
    bench: &Bench,
    columns: u16,
    environment: &[(&str, &str)],
    words: &[&str],
) -> String {
    let (shown, code) = Screen::start(columns, environment, command(bench, words)).end();
    assert_eq!(code, 0, "{words:?}: {shown}");
    shown
}

fn bare(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

/// A spool with an item in each of three states, for a requester with a long name.
fn furnished() -> (Bench, Vec<String>) {
    let receiver = Receiver::start(vec![Reply::ok(), Reply::close()]);
    let bench = Bench::with(&[("billing", &receiver.url(), "concurrency = 1")]);
    let long = "the deployment that was asked for by the person who is on duty this week";
    let more = ["--data", "x", "--principal", "alice", "--thread", long];
    let mut ids: Vec<String> = (0..2).map(|_| bench.enqueue("billing", &more)).collect();
    bench.run(&["tick"]).ok();
    ids.push(bench.enqueue("billing", &more));
    (bench, ids)
}

#[test]
fn a_table_fits_the_terminal_and_no_id_is_ever_broken() {
    let (bench, ids) = furnished();
    for words in [
        &["list"][..],
        &["tick", "--dry-run"],
        &["rules", "list", "billing"],
    ] {
        for columns in [60, 80, 100, 132, 250] {
            let shown = bare(&on_terminal(&bench, columns, &[], words));
            let is_told = |line: &&str| line.starts_with("the terminal is too narrow for: ");
            for line in shown.lines().filter(|line| !is_told(line)) {
                let width = line.chars().count();
                assert!(
                    width <= usize::from(columns),
                    "{width} of {columns}: {line}"
                );
            }
            let left_out = shown.lines().any(|line| is_told(&line));
            match words {
                ["list"] => {
                    for id in &ids {
                        assert_eq!(shown.matches(id.as_str()).count(), 1, "{columns}: {shown}");
                    }
                    for title in TITLES {
                        let is_shown = shown.lines().next().unwrap().contains(title);
                        let told = shown.lines().find(is_told).unwrap_or_default();
                        let is_named = told.contains(title);
                        assert!(is_shown != is_named, "{title} in {columns}: {shown}");
                    }
                    assert_eq!(left_out, columns < 250, "{columns}: {shown}");
                    assert!(shown.contains("unknown (parked)"), "{columns}: {shown}");
                }
                _ => assert!(!left_out || columns < 100, "{columns}: {shown}"),
            }
        }
    }
}

#[test]
fn status_fits_too_and_counts_what_it_shows() {
    let (bench, _) = furnished();
    let wide = bare(&on_terminal(&bench, 80, &[], &["status"]));
    assert!(!wide.contains("too narrow"), "{wide}");
    let narrow = bare(&on_terminal(&bench, 60, &[], &["status"]));
    let table: Vec<&str> = narrow.lines().skip(1).take(3).collect();
    assert!(table.iter().all(|line| line.len() <= 60), "{narrow}");
    assert!(
        narrow.contains("the terminal is too narrow for: confirmed"),
        "{narrow}"
    );
    let quiet = bare(&on_terminal(&bench, 60, &[], &["-q", "status"]));
    assert!(!quiet.contains("too narrow"), "{quiet}");
}

#[test]
fn a_pipe_gets_every_column_whole_and_a_script_can_take_them_apart() {
    let (bench, ids) = furnished();
    let ran = bench.run(&["list"]).ok();
    assert_eq!(ran.stderr, "");
    assert!(!ran.stdout.contains('\u{1b}'));
    assert_eq!(ran.stdout.lines().count(), 1 + ids.len(), "a row a line");
    let file = bench.file("list.txt", &ran.stdout);
    let script = r"NR > 1 { print $1 } NF != 8 { print NF; exit 1 }";
    let awk = Command::new("awk")
        .args(["-F", "  +", script, &file])
        .output()
        .unwrap();
    assert!(awk.status.success(), "{ran:#?}");
    assert_eq!(
        String::from_utf8(awk.stdout)
            .unwrap()
            .lines()
            .collect::<Vec<_>>(),
        ids
    );
    // Where a column begins is the same in every line.
    let titles = ran.stdout.lines().next().unwrap();
    for title in TITLES {
        let at = titles.find(title).unwrap();
        for line in ran.stdout.lines() {
            let gap = at == 0 || &line[at - 2..at] == "  ";
            assert!(gap && !line[at..].starts_with(' '), "{title}: {line}");
        }
    }
    assert!(ran.stdout.contains("who is on duty this week"));
}

#[test]
fn colours_are_for_terminals_and_can_be_forced_and_forbidden() {
    const GREEN: &str = "\u{1b}[32mconfirmed\u{1b}[0m";
    let (bench, _) = furnished();
    let screen =
        |environment: &[(&str, &str)], words: &[&str]| on_terminal(&bench, 200, environment, words);
    assert!(screen(&[], &["list"]).contains(GREEN));
    for (environment, words) in [
        (&[("NO_COLOR", "1")][..], &["list"][..]),
        (&[], &["--color", "never", "list"]),
        (&[("CLICOLOR_FORCE", "1")], &["list", "--color", "never"]),
    ] {
        let shown = screen(environment, words);
        assert!(
            !shown.contains('\u{1b}'),
            "{environment:?} {words:?}: {shown:?}"
        );
    }
    assert!(screen(&[("NO_COLOR", "1")], &["--color", "always", "list"]).contains(GREEN));
    bench.run(&["list", "--color", "always"]).ok().prints(GREEN);
    bench
        .call(&["list"])
        .env("CLICOLOR_FORCE", "1")
        .run()
        .ok()
        .prints(GREEN);
    let piped = bench.run(&["status"]).ok();
    assert!(!piped.stdout.contains('\u{1b}'), "{piped:#?}");
    // Warnings.
    let words = ["enqueue", "billing", "--data", "x"];
    let shown = screen(&[], &words);
    assert!(
        shown.contains("\u{1b}[33mwarning:\u{1b}[0m nobody is told"),
        "{shown:?}"
    );
    assert!(!bench.run(&words).ok().stderr.contains('\u{1b}'));
}

#[test]
fn help_and_usage_keep_to_the_colours_too() {
    let (bench, _) = furnished();
    for words in [&["--help"][..], &["list", "--help"]] {
        assert!(on_terminal(&bench, 100, &[], words).contains('\u{1b}'));
        let plain = [&["--color", "never"], words].concat();
        assert!(!on_terminal(&bench, 100, &[], &plain).contains('\u{1b}'));
        let plain = [&["--color=never"], words].concat();
        assert!(!on_terminal(&bench, 100, &[], &plain).contains('\u{1b}'));
        let forced = [&["--color", "always"], words].concat();
        assert!(bench.run(&forced).ok().stdout.contains('\u{1b}'));
        assert!(!bench.run(words).ok().stdout.contains('\u{1b}'));
    }
}

#[test]
fn a_tick_that_lasts_shows_how_far_it_is_to_a_person_only() {
    let silent: Vec<Receiver> = (0..5)
        .map(|_| Receiver::start(vec![Reply::ok().gated(), Reply::ok()]))
        .collect();
    let benches: Vec<Bench> = silent
        .iter()
        .map(|receiver| {
            let more = format!("{KEYED}\nconcurrency = 1");
            let bench = Bench::with(&[("shop", &receiver.url(), &more)]);
            for _ in 0..2 {
                bench.enqueue("shop", &["--data", "x", "--notify", "shop"]);
            }
            bench.enqueue("shop", &["--data", "x", "--not-before", "1h"]);
            bench
        })
        .collect();
    // Started first, they have lasted at least as long as the one that is looked at.
    let quiet = [&["-q", "tick"][..], &["--json", "tick"], &["-v", "tick"]];
    let screens: Vec<Screen> = quiet
        .iter()
        .zip(&benches)
        .map(|(words, bench)| Screen::start(80, &[], command(bench, words)))
        .collect();
    let piped = benches[3].call(&["tick"]).start();
    for receiver in &silent[..4] {
        receiver.wait_for(1);
    }
    let mut watched = Screen::start(80, &[], command(&benches[4], &["tick"]));
    watched.wait_for("0 of 2 attempts");
    for receiver in &silent {
        receiver.open_gate();
    }
    let (shown, code) = watched.end();
    assert_eq!(code, 0, "{shown}");
    // The line is cleared before the result is printed.
    let result = shown.rsplit("\r\u{1b}[2K").next().unwrap();
    assert!(result.starts_with("2 attempts, 2 confirmed"), "{shown:?}");
    for screen in screens {
        let (shown, code) = screen.end();
        assert_eq!(code, 0, "{shown}");
        assert!(
            !shown.contains("attempts") || !shown.contains(" of "),
            "{shown:?}"
        );
        assert!(!shown.contains("\u{1b}[2K"), "{shown:?}");
    }
    let ran = piped.end().ok();
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("", ""));
}

#[test]
fn a_wait_that_lasts_shows_how_far_it_is() {
    let bench = Bench::with(&[("shop", &closed_port(), "")]);
    let id = bench.enqueue("shop", &["--data", "x", "--not-before", "1h"]);
    let mut waits = Screen::start(80, &[], command(&bench, &["wait", &id]));
    waits.wait_for("0 of 1 items have ended");
    bench.run(&["cancel", &id]).ok();
    let (shown, code) = waits.end();
    assert_eq!(code, 1, "{shown}");
    assert!(
        bare(&shown).contains(&format!("{id} failed cancelled\n")),
        "{shown:?}"
    );
}
