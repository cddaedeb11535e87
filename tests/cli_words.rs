//! The words of the command line: help, global options, colours, pipes that close.
//!
//! CONTRACT 5.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/bench.rs"]
mod bench;

use bench::Bench;

const NOWHERE: &str = "http://127.0.0.1:9";

/// Every command of this version but `demo`.
const COMMANDS: [&[&str]; 17] = [
    &["init"],
    &["enqueue"],
    &["tick"],
    &["status"],
    &["list"],
    &["show"],
    &["hold"],
    &["release"],
    &["cancel"],
    &["retry"],
    &["resolve"],
    &["prune"],
    &["rules"],
    &["rules", "test"],
    &["rules", "list"],
    &["config"],
    &["config", "check"],
];

#[test]
fn every_command_has_help_with_an_example() {
    let bench = Bench::bare();
    for command in COMMANDS {
        let ran = bench
            .call_plain(&[command, &["--help"]].concat())
            .run()
            .ok();
        assert_eq!(ran.stderr, "");
        assert!(ran.stdout.contains("Usage: tickpost"), "{ran:#?}");
        let example = ran.stdout.split("Example:\n").nth(1).unwrap_or_default();
        let words = format!(
            "tickpost {}",
            if command == ["init"] {
                "--spool"
            } else {
                command[0]
            }
        );
        assert!(example.contains(&words), "{command:?}: {ran:#?}");
        bench
            .call_plain(&[command, &["-h"]].concat())
            .run()
            .ok()
            .prints("Usage");
    }
    let ran = bench.call_plain(&["--help"]).run().ok();
    assert!(ran.stdout.contains("Example:"));
    for command in COMMANDS {
        assert!(ran.stdout.contains(command[0]), "{command:?}");
    }
    bench
        .call_plain(&["help", "tick"])
        .run()
        .ok()
        .prints("Example:");
}

#[test]
fn the_help_lists_every_exit_code() {
    let help = Bench::bare().call_plain(&["--help"]).run().ok().stdout;
    for code in [
        "0", "1", "2", "65", "66", "70", "73", "74", "75", "77", "78",
    ] {
        assert!(help.contains(&format!("{code} ")), "{code}: {help}");
    }
}

#[test]
fn the_version_is_printed() {
    let bench = Bench::bare();
    for word in ["--version", "-V"] {
        let ran = bench.call_plain(&[word]).run().ok();
        assert_eq!(
            ran.stdout,
            concat!("tickpost ", env!("CARGO_PKG_VERSION"), "\n")
        );
    }
}

#[test]
fn what_is_no_command_or_option_is_2_and_goes_to_stderr() {
    let bench = Bench::with(&[("shop", NOWHERE, "")]);
    bench.run::<&str>(&[]).code(2).prints_nothing();
    bench.run(&["frobnicate"]).code(2).prints_nothing();
    bench.run(&["tick", "surplus"]).code(2).prints_nothing();
    bench.run(&["staus"]).code(2).says("status");
    for command in COMMANDS {
        let ran = bench
            .run(&[command, &["--no-such-option"]].concat())
            .code(2);
        ran.prints_nothing().says("--no-such-option");
    }
}

#[test]
fn global_options_are_taken_before_and_after_the_command() {
    let bench = Bench::with(&[("shop", NOWHERE, "")]);
    let spool = bench.spool().to_str().unwrap();
    let config = bench.spool().join("tickpost.toml");
    let config = config.to_str().unwrap();
    let options = [
        "--spool", spool, "--config", config, "--json", "--color", "never", "-q",
    ];
    for command in [&["status"][..], &["config", "check"]] {
        let before = bench.call_plain(&[&options, command].concat()).run().ok();
        let after = bench.call_plain(&[command, &options].concat()).run().ok();
        assert_eq!(bench::fields(&before.json()), bench::fields(&after.json()));
    }
    let words = ["-v", "tick", "--spool", spool];
    bench.call_plain(&words).run().ok().prints("0 attempts");
    let words = ["tick", "-v", "--spool", spool];
    bench.call_plain(&words).run().ok().prints("0 attempts");
}

#[test]
fn the_spool_is_found_by_option_variable_or_place() {
    let bench = Bench::with(&[("shop", NOWHERE, "")]);
    let spool = bench.spool().to_str().unwrap();
    let other = Bench::with(&[("other", NOWHERE, "")]);
    let elsewhere = other.spool().to_str().unwrap();
    // ./spool is one.
    bench.call_plain(&["status"]).run().ok().prints("shop");
    bench
        .call_plain(&["status"])
        .env("TICKPOST_SPOOL", elsewhere)
        .run()
        .ok()
        .prints("other");
    let words = ["--spool", spool, "status"];
    bench
        .call_plain(&words)
        .env("TICKPOST_SPOOL", elsewhere)
        .run()
        .ok()
        .prints("shop");
    // A variable that is empty is as good as none.
    bench
        .call_plain(&["status"])
        .env("TICKPOST_SPOOL", "")
        .run()
        .ok()
        .prints("shop");
    // ./spool that is a directory and no spool is not taken.
    let none = Bench::bare();
    std::fs::create_dir(none.spool()).unwrap();
    let ran = none.call_plain(&["status"]).run();
    assert!(
        !ran.stderr.contains(none.spool().to_str().unwrap()),
        "{ran:#?}"
    );
}

#[test]
fn the_configuration_is_the_spools_unless_it_is_named() {
    let bench = Bench::with(&[("shop", NOWHERE, "")]);
    let other = bench.file(
        "other.toml",
        format!("[destination.other]\nbase_url = \"{NOWHERE}\"\n"),
    );
    bench.run(&["enqueue", "other", "--data", "x"]).code(65);
    bench
        .run(&["--config", &other, "enqueue", "other", "--data", "x"])
        .ok();
    bench
        .run(&["--config", &other, "enqueue", "shop", "--data", "x"])
        .code(65);
}

#[test]
fn colours_come_when_they_are_wanted() {
    let bench = Bench::with(&[("shop", NOWHERE, "")]);
    bench.enqueue("shop", &["--data", "x"]);
    let is_coloured = |text: &str| text.contains('\u{1b}');
    let list = |color: &str| bench.run(&["--color", color, "list"]).ok().stdout;
    assert!(is_coloured(&list("always")));
    assert!(!is_coloured(&list("never")));
    // A pipe is no terminal.
    assert!(!is_coloured(&list("auto")));
    assert!(!is_coloured(&bench.run(&["list"]).ok().stdout));
    let words = ["--color", "always", "enqueue", "nope", "--data", "x"];
    assert!(is_coloured(&bench.run(&words).code(65).stderr));
    assert!(!is_coloured(&bench.run(&words[2..]).code(65).stderr));
    // Without colours it is the same text.
    let plain: String = anstream::adapter::strip_str(&list("always")).to_string();
    assert_eq!(plain, list("never"));
    // JSON is never coloured.
    let words = ["--color", "always", "--json", "list"];
    assert!(!is_coloured(&bench.run(&words).ok().stdout));
}

#[test]
fn no_color_is_heeded_unless_colours_are_asked_for() {
    let bench = Bench::with(&[("shop", NOWHERE, "")]);
    bench.enqueue("shop", &["--data", "x"]);
    let list = |words: &[&str]| {
        let call = bench
            .call(words)
            .env("NO_COLOR", "1")
            .env("CLICOLOR_FORCE", "");
        call.run().ok().stdout.contains('\u{1b}')
    };
    assert!(!list(&["list"]));
    assert!(list(&["--color", "always", "list"]));
    let forced = bench.call(&["list"]).env("CLICOLOR_FORCE", "1").run().ok();
    assert!(forced.stdout.contains('\u{1b}'), "{forced:#?}");
    let both = bench
        .call(&["list"])
        .env("CLICOLOR_FORCE", "1")
        .env("NO_COLOR", "1");
    assert!(!both.run().ok().stdout.contains('\u{1b}'));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let bench = Bench::with(&[("shop", NOWHERE, "")]);
    // More than a pipe holds, so that the writing meets the closed end.
    let body = bench.file("body", "x".repeat(300_000));
    let id = bench.enqueue("shop", &["--file", &body]);
    for words in [
        &["--json", "show", &id][..],
        &["list"],
        &["--json", "list"],
        &["status"],
    ] {
        let mut running = bench.call(words).start();
        drop(running.take_stdout());
        let ran = running.end().ok();
        assert_eq!(ran.stderr, "", "{words:?}");
    }
    // `list | head -1`.
    let ran = bench
        .call_by_shell("\"$@\" | head -1", &["list"])
        .run()
        .ok();
    assert_eq!(ran.stdout.lines().count(), 1);
    assert_eq!(ran.stderr, "");
}

#[test]
fn results_that_cannot_be_written_are_74() {
    let bench = Bench::with(&[("shop", NOWHERE, "")]);
    bench.enqueue("shop", &["--data", "x"]);
    for words in [
        &["list"][..],
        &["--json", "list"],
        &["status"],
        &["--json", "tick"],
    ] {
        let ran = bench.call_by_shell("exec \"$@\" > /dev/full", words).run();
        ran.code(74).says("cannot write the results");
    }
}

#[test]
fn errors_say_what_to_do_next() {
    let bench = Bench::bare();
    let ran = bench.run(&["status"]).code(73).says("error:").says("init");
    // The first line says what failed, without a period.
    let first = ran.stderr.lines().next().unwrap();
    assert!(
        first.starts_with("error: ") && !first.ends_with('.'),
        "{first}"
    );
}
