//! Every example of every command's `--help` works: it is run as it stands, by a shell, on a real
//! spool, with a real receiver.
//!
//! In an `Example:` block a line with two blanks before it is run. Lines with four blanks below it
//! are what it prints, in order; `…` stands for anything. `019adf3e` is the beginning of the id of
//! the one item that the fixture has accepted, and /var/spool/tickpost a place for a new spool.
//!
//! A new command needs a row in [`FIXTURES`]: what must be there before, and what is there after.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod support;

#[path = "support/bench.rs"]
mod bench;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use bench::{Bench, KEYED};
use support::{Receiver, Reply};

/// What the examples of a command need, and what they do.
struct Fixture {
    /// The command's words; empty for the program itself.
    command: &'static str,
    /// Brings the spool into the state that the example speaks of.
    before: fn(&mut Stage),
    /// The exit code.
    code: i32,
    /// Looks at what has come of it, and at what was printed.
    after: fn(&Stage, &str),
}

/// A row for an example that needs nothing and ends well.
const PLAIN: Fixture = Fixture {
    command: "",
    before: |_| {},
    code: 0,
    after: |_, _| {},
};

const FIXTURES: &[Fixture] = &[
    PLAIN,
    Fixture {
        command: "init",
        after: |stage, _| assert!(stage.new_spool().join("spool.json").exists()),
        ..PLAIN
    },
    Fixture {
        command: "enqueue",
        before: |stage| {
            stage.bench.file("invoice.json", r#"{"amount":5}"#);
            let line = r#"{"destination":"billing","request":{"path":"/v1/charges"}}"#;
            stage.bench.file("items.jsonl", format!("{line}\n"));
        },
        after: |stage, printed| {
            let to_a_file = fs::read_to_string(stage.bench.dir().join("ids"));
            let id = to_a_file.unwrap_or_else(|_| printed.to_owned());
            assert_eq!(stage.bench.list_ids(&[]), [id.trim()]);
        },
        ..PLAIN
    },
    Fixture {
        command: "tick",
        before: Stage::accept,
        after: |stage, _| {
            assert_eq!(stage.receiver.arrivals().len(), 1);
            assert_eq!(stage.state(), "confirmed");
        },
        ..PLAIN
    },
    Fixture {
        command: "status",
        before: |stage| stage.meet(Reply::ok()),
        after: |_, printed| assert!(printed.contains("last tick"), "{printed}"),
        ..PLAIN
    },
    Fixture {
        command: "list",
        before: |stage| stage.meet(Reply::status(401)),
        after: |stage, printed| assert!(printed.contains(&stage.id), "{printed}"),
        ..PLAIN
    },
    Fixture {
        command: "show",
        before: Stage::accept,
        after: |stage, printed| assert!(printed.starts_with(&stage.id), "{printed}"),
        ..PLAIN
    },
    Fixture {
        command: "wait",
        before: |stage| stage.meet(Reply::ok()),
        ..PLAIN
    },
    Fixture {
        command: "hold",
        before: Stage::accept,
        after: |stage, _| {
            let status = stage.bench.json(&["status"]);
            assert_eq!(status["destinations"]["billing"]["operator_hold"], true);
        },
        ..PLAIN
    },
    Fixture {
        command: "release",
        before: |stage| stage.meet(Reply::status(401)),
        after: |stage, _| assert_eq!(stage.state(), "pending"),
        ..PLAIN
    },
    Fixture {
        command: "cancel",
        before: Stage::accept,
        after: |stage, _| assert_eq!(stage.state(), "failed"),
        ..PLAIN
    },
    Fixture {
        command: "retry",
        before: |stage| stage.meet(Reply::status(400)),
        after: |stage, _| assert_eq!(stage.state(), "pending"),
        ..PLAIN
    },
    Fixture {
        command: "resolve",
        before: |stage| stage.meet(Reply::close()),
        after: |stage, _| assert_eq!(stage.state(), "confirmed"),
        ..PLAIN
    },
    Fixture {
        command: "prune",
        after: |_, printed| assert!(printed.contains("0 items"), "{printed}"),
        ..PLAIN
    },
    Fixture {
        command: "audit",
        before: Stage::accept,
        ..PLAIN
    },
    Fixture {
        command: "doctor",
        after: |_, printed| assert!(printed.contains("nothing found"), "{printed}"),
        ..PLAIN
    },
    Fixture {
        command: "completions",
        ..PLAIN
    },
    Fixture {
        command: "man",
        after: |_, printed| assert!(printed.contains(".SH EXAMPLES"), "{printed}"),
        ..PLAIN
    },
    Fixture {
        command: "rules",
        after: |_, printed| assert!(printed.contains("default/"), "{printed}"),
        ..PLAIN
    },
    Fixture {
        command: "rules test",
        after: |_, printed| assert!(printed.starts_with("confirmed"), "{printed}"),
        ..PLAIN
    },
    Fixture {
        command: "rules list",
        after: |_, printed| assert!(printed.contains("default/"), "{printed}"),
        ..PLAIN
    },
    Fixture {
        command: "config",
        ..PLAIN
    },
    Fixture {
        command: "config check",
        after: |_, printed| assert!(printed.contains("no fault"), "{printed}"),
        ..PLAIN
    },
    Fixture {
        command: "demo",
        after: |_, printed| assert!(printed.contains("What the receiver saw"), "{printed}"),
        ..PLAIN
    },
];

/// Stand-ins for programs of others that examples use: what they print is all that matters.
const STAND_INS: &[(&str, &str)] = &[
    ("curl", "printf 'HTTP/1.1 200 OK\\r\\n\\r\\n{}'"),
    ("man", "cat \"$2\""),
    ("jq", r#"sed -n 's/.*"request_id":"\([^"]*\)".*/\1/p'"#),
];

/// A spool with the destinations that examples name, and one item at most.
struct Stage {
    bench: Bench,
    receiver: Receiver,
    id: String,
}

impl Stage {
    fn new() -> Self {
        let receiver = Receiver::start(vec![]);
        let url = receiver.url();
        let bench = Bench::with(&[("billing", &url, KEYED), ("ops", &url, "")]);
        let bin = bench.dir().join("bin");
        fs::create_dir(&bin).unwrap();
        for (name, script) in STAND_INS {
            let path = bin.join(name);
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self {
            bench,
            receiver,
            id: String::new(),
        }
    }

    /// Accepts the item.
    fn accept(&mut self) {
        self.id = self.bench.enqueue("billing", &["--data", "x"]);
    }

    /// Accepts the item, and has a tick send it; the receiver answers so.
    fn meet(&mut self, reply: Reply) {
        self.receiver.push(reply);
        self.accept();
        self.bench.run(&["tick"]).ok();
        assert_eq!(self.receiver.arrivals().len(), 1);
    }

    fn state(&self) -> String {
        let item = self.bench.show(&self.id);
        item["state"].as_str().unwrap().to_owned()
    }

    fn new_spool(&self) -> std::path::PathBuf {
        self.bench.dir().join("new-spool")
    }

    /// An example's text as it is here.
    fn here(&self, text: &str) -> String {
        let id = self.id.get(..8).unwrap_or("019adf3e");
        text.replace("/var/spool/tickpost", self.new_spool().to_str().unwrap())
            .replace("019adf3e", id)
    }

    /// Runs a line as a person would type it: exit code, results, and the rest.
    fn type_in(&self, line: &str) -> (Option<i32>, String, String) {
        let program = Path::new(env!("CARGO_BIN_EXE_tickpost")).parent().unwrap();
        let bin = self.bench.dir().join("bin");
        let path = format!("{}:{}:/usr/bin:/bin", bin.display(), program.display());
        let ran = Command::new("bash")
            .args(["-o", "pipefail", "-c", line])
            .current_dir(self.bench.dir())
            .env_clear()
            .env("PATH", path)
            .env("TMPDIR", self.bench.dir())
            .env("TICKPOST_SPOOL", self.bench.spool())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        (
            ran.status.code(),
            String::from_utf8(ran.stdout).unwrap(),
            String::from_utf8(ran.stderr).unwrap(),
        )
    }
}

/// A line of an example, and what it is said to print.
#[derive(Debug, PartialEq, Eq)]
struct Example {
    line: String,
    prints: Vec<String>,
}

/// The examples in a help text, or what is wrong with them.
fn examples(help: &str) -> Result<Vec<Example>, String> {
    let block = help.split("\nExample:\n").nth(1);
    let block = block.ok_or("it shows no `Example:`")?;
    let mut examples: Vec<Example> = Vec::new();
    for line in block.lines().take_while(|line| !line.trim().is_empty()) {
        if let Some(printed) = line.strip_prefix("    ") {
            let last = examples.last_mut();
            let last = last.ok_or(format!("`{printed}` stands below no command"))?;
            last.prints.push(printed.to_owned());
        } else if let Some(line) = line.strip_prefix("  ") {
            examples.push(Example {
                line: line.to_owned(),
                prints: Vec::new(),
            });
        } else {
            return Err(format!(
                "`{line}` is not indented; is an example too long for a line?"
            ));
        }
    }
    if examples.is_empty() {
        return Err("its `Example:` is empty".to_owned());
    }
    Ok(examples)
}

/// Whether a line is as shown, where `…` stands for anything.
fn fits(shown: &str, line: &str) -> bool {
    let mut parts = shown.split('…');
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap()) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    for (index, part) in parts.iter().enumerate() {
        let is_last = index + 1 == parts.len();
        let at = if is_last {
            rest.ends_with(part).then(|| rest.len() - part.len())
        } else {
            rest.find(part)
        };
        match at {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.is_empty()
}

/// The commands that a help text lists, but `help` itself.
fn listed(help: &str) -> Vec<String> {
    let section = help.split("\nCommands:\n").nth(1).unwrap_or_default();
    let lines = section.lines().take_while(|line| !line.is_empty());
    // A description that wraps goes on further to the right.
    lines
        .filter_map(|line| {
            line.strip_prefix("  ")
                .filter(|rest| !rest.starts_with(' '))
        })
        .filter_map(|line| line.split(' ').next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

fn help(words: &[String]) -> String {
    let mut all: Vec<&str> = words.iter().map(String::as_str).collect();
    all.push("--help");
    Bench::bare().call_plain(&all).run().ok().stdout
}

/// Every command and command of a command, with its help.
fn commands() -> Vec<(String, String)> {
    let mut open = vec![Vec::new()];
    let mut all = Vec::new();
    while let Some(words) = open.pop() {
        let text = help(&words);
        for name in listed(&text) {
            open.push([&words[..], &[name]].concat());
        }
        all.push((words.join(" "), text));
    }
    all.sort();
    all
}

/// Runs an example on a stage of its own; says what is wrong.
fn try_out(fixture: &Fixture, example: &Example) -> Result<(), String> {
    let mut stage = Stage::new();
    (fixture.before)(&mut stage);
    let line = stage.here(&example.line);
    let (code, printed, said) = stage.type_in(&line);
    if code != Some(fixture.code) {
        return Err(format!(
            "ended with {code:?} in place of {}:\n{printed}{said}",
            fixture.code
        ));
    }
    let mut lines = printed.lines();
    for shown in &example.prints {
        let shown = stage.here(shown);
        if !lines.any(|line| fits(&shown, line)) {
            return Err(format!("does not print `{shown}`:\n{printed}{said}"));
        }
    }
    (fixture.after)(&stage, &printed);
    Ok(())
}

#[test]
fn every_example_of_every_help_works() {
    let mut faults = Vec::new();
    let mut known = BTreeSet::new();
    for (command, text) in commands() {
        let name = format!("tickpost {command}").trim_end().to_owned();
        known.insert(command.clone());
        let fixture = FIXTURES.iter().find(|fixture| fixture.command == command);
        match (examples(&text), fixture) {
            (Err(why), _) => faults.push(format!("`{name} --help`: {why}")),
            (Ok(_), None) => faults.push(format!(
                "`{name} --help` shows an example, and FIXTURES in tests/cli_help.rs has no row for it: add one with what it needs and does"
            )),
            (Ok(all), Some(fixture)) => {
                for example in all {
                    if let Err(why) = try_out(fixture, &example) {
                        faults.push(format!("`{name} --help`: `{}` {why}", example.line));
                    }
                }
            }
        }
    }
    for fixture in FIXTURES {
        if !known.contains(fixture.command) {
            faults.push(format!(
                "FIXTURES has a row for `{}`, which is no command",
                fixture.command
            ));
        }
    }
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
    assert!(known.len() >= 19, "commands are not found: {known:?}");
}

#[test]
fn a_help_without_a_working_example_is_noticed() {
    let text = |block: &str| format!("Usage: x\n{block}");
    for (block, why) in [
        ("", "no `Example:`"),
        ("\nExample:\n", "empty"),
        ("\nExample:\n  tickpost a b\nc d\n", "too long"),
        ("\nExample:\n    printed\n", "below no command"),
    ] {
        let said = examples(&text(block)).unwrap_err();
        assert!(said.contains(why), "{block:?}: {said}");
    }
    let two = examples(&text("\nExample:\n  one\n    1\n  two\n\nMore.\n")).unwrap();
    assert_eq!(two.len(), 2);
    assert_eq!(two[0].prints, ["1"]);
    let line = |line: &str, prints: &[&str]| Example {
        line: line.to_owned(),
        prints: prints.iter().map(ToString::to_string).collect(),
    };
    assert_eq!(
        try_out(&PLAIN, &line("tickpost status", &["spool …"])),
        Ok(())
    );
    for (bad, why) in [
        (line("tickpost staus", &[]), "ended with Some(2)"),
        (line("tickpost show 019adf3e", &[]), "ended with Some(66)"),
        (
            line("tickpost status", &["nothing of the kind"]),
            "does not print",
        ),
        (line("false | tickpost status", &[]), "ended with Some(1)"),
    ] {
        let said = try_out(&PLAIN, &bad).unwrap_err();
        assert!(said.contains(why), "{bad:?}: {said}");
    }
}

#[test]
fn three_dots_stand_for_anything() {
    for (shown, line) in [("a", "a"), ("a … c", "a b c"), ("…", "x"), ("a=…s", "a=5s")] {
        assert!(fits(shown, line), "{shown} {line}");
    }
    for (shown, line) in [
        ("a", "ab"),
        ("a … c", "a b d"),
        ("a=…s", "a=5"),
        ("…b…", "ac"),
    ] {
        assert!(!fits(shown, line), "{shown} {line}");
    }
}
