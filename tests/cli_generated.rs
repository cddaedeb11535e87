//! `completions` and `man`: what they generate works where it will be used.
//!
//! CONTRACT 5.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/bench.rs"]
mod bench;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use bench::Bench;

/// Runs bash without any configuration of the user's, and returns what it prints.
fn bash(arguments: &[&str]) -> String {
    let ran = Command::new("bash")
        .args(["--noprofile", "--norc"])
        .args(arguments)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}");
    assert_eq!(said, "");
    String::from_utf8(ran.stdout).unwrap()
}

/// The names of the files in a directory.
fn names(dir: &Path) -> BTreeSet<String> {
    fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn completions_for_every_shell_name_every_command() {
    let bench = Bench::bare();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = bench.run(&["completions", shell]).ok();
        for word in ["enqueue", "resolve", "not-before"] {
            assert!(ran.stdout.contains(word), "{shell} lacks {word}");
        }
    }
    bench.run(&["completions", "tcsh"]).code(2).says("bash");
    let json = bench.json(&["completions", "bash"]);
    let script = json["script"].as_str().unwrap();
    assert!(script.contains("_tickpost"), "{script}");
}

#[test]
fn bash_completes_commands_options_and_nested_commands() {
    let bench = Bench::bare();
    let script = bench.run(&["completions", "bash"]).ok().stdout;
    let script = bench.file("completion.bash", script);
    bash(&["-n", &script]);
    for (words, wanted) in [
        (&["tickpost", "enq"][..], "enqueue"),
        (&["tickpost", "enqueue", "--not-b"][..], "--not-before"),
        (&["tickpost", "rules", "te"][..], "test"),
        (&["tickpost", "enqueue", "--sp"][..], "--spool"),
        (&["tickpost", "completions", "fi"][..], "fish"),
    ] {
        // What bash itself does at a tab: it calls the function that is registered for the word.
        let ask = r#"
            source "$0"
            COMP_WORDS=("$@")
            COMP_CWORD=$(($# - 1))
            registered="$(complete -p tickpost)"
            [[ "$registered" =~ -F\ ([^ ]+) ]]
            "${BASH_REMATCH[1]}" tickpost "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
            printf '%s\n' "${COMPREPLY[@]}"
        "#;
        let mut arguments = vec!["-c", ask, &script];
        arguments.extend(words);
        assert_eq!(bash(&arguments).trim_end(), wanted, "{words:?}");
    }
}

#[test]
fn a_reader_of_completions_may_go_away() {
    let bench = Bench::bare();
    let program = env!("CARGO_BIN_EXE_tickpost");
    let ask = r#"set -o pipefail; "$0" completions zsh | head -n 1"#;
    let said = bash(&["-c", ask, program]);
    assert!(said.starts_with("#compdef tickpost"), "{said}");
    drop(bench);
}

#[test]
fn man_writes_a_page_for_the_program_and_each_command() {
    let bench = Bench::bare();
    let dir = bench.dir().join("some/where");
    let dir_text = dir.to_str().unwrap();
    let json = bench.json(&["man", dir_text]);
    let pages = names(&dir);
    let told: BTreeSet<String> = serde_json::from_value(json["pages"].clone()).unwrap();
    assert_eq!(told, pages);
    // The commands as the help lists them.
    let help = bench.run(&["--help"]).ok().stdout;
    let commands = help.split("Commands:\n").nth(1).unwrap();
    let commands = commands.split("\n\n").next().unwrap();
    let mut seen = 0;
    for line in commands.lines().filter(|line| !line.starts_with("   ")) {
        let command = line.split_whitespace().next().unwrap();
        if command != "help" {
            let page = format!("tickpost-{command}.1");
            assert!(pages.contains(&page), "{page} is missing");
            seen += 1;
        }
    }
    assert!(seen > 10, "{help}");
    for page in [
        "tickpost.1",
        "tickpost-rules-test.1",
        "tickpost-config-check.1",
    ] {
        assert!(pages.contains(page), "{page} is missing");
    }
    assert!(!pages.iter().any(|page| page.contains("help")), "{pages:?}");
    let page = fs::read_to_string(dir.join("tickpost.1")).unwrap();
    for heading in ["EXIT STATUS", "EXAMPLES", "FILES"] {
        assert!(
            page.contains(&format!(".SH {heading}"))
                || page.contains(&format!(".SH \"{heading}\""))
        );
    }
    // Again, over the old ones.
    bench.run(&["man", dir_text]).ok().prints("pages in");
}

#[test]
fn groff_finds_nothing_wrong_with_the_pages() {
    let bench = Bench::bare();
    let dir = bench.dir().join("man");
    bench.run(&["man", dir.to_str().unwrap()]).ok();
    for page in names(&dir) {
        let Ok(ran) = Command::new("groff")
            .args(["-man", "-Tutf8", "-ww", "-rLL=80n"])
            .arg(dir.join(&page))
            .output()
        else {
            // tests/run installs it; without it there is nobody to ask.
            return;
        };
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success() && said.is_empty(), "{page}: {said}");
        let text = String::from_utf8_lossy(&ran.stdout);
        assert!(text.contains("tickpost manual"), "{page}: {text}");
    }
}

#[test]
fn man_says_where_it_cannot_write() {
    let bench = Bench::bare();
    let file = bench.file("taken", "");
    bench
        .run(&["man", &file])
        .code(74)
        .says("cannot write")
        .says(&file);
    bench.run(&["man"]).code(2);
}
