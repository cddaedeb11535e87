//! What the README shows works: its shell blocks are run as they stand, its receiver too.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const README: &str = include_str!("../README.md");

/// The README's fenced blocks of a language that stand below a heading.
fn blocks(heading: &str, language: &str) -> Vec<String> {
    let start = README.find(heading).unwrap() + heading.len();
    let section = &README[start..];
    let section = &section[..section.find("\n## ").unwrap_or(section.len())];
    let fence = format!("```{language}\n");
    section
        .split(&fence)
        .skip(1)
        .map(|rest| rest[..rest.find("```").unwrap()].to_owned())
        .collect()
}

struct Kill(Child);

impl Drop for Kill {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn shell(directory: &Path, script: &str) -> String {
    let binary = Path::new(env!("CARGO_BIN_EXE_tickpost"));
    let path = format!("{}:/usr/bin:/bin", binary.parent().unwrap().display());
    let ran = Command::new("bash")
        .args(["-euo", "pipefail", "-c", script])
        .current_dir(directory)
        .env_clear()
        .env("PATH", path)
        .env("TICKPOST_SPOOL", directory.join("my-spool"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr)
    );
    assert!(
        ran.status.success(),
        "{script}\nended with {}:\n{text}",
        ran.status
    );
    text
}

#[test]
fn the_tour_by_hand_goes_as_it_says() {
    let directory = tempfile::tempdir().unwrap();
    let port = {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port().to_string()
    };
    let tour: Vec<String> = blocks("## Five minutes by hand", "sh")
        .into_iter()
        .map(|block| block.replace("8099", &port))
        .collect();
    let [setup, unheard, resumed, heard] = tour.as_slice() else {
        panic!("the tour has {} blocks", tour.len());
    };
    shell(directory.path(), setup);
    let text = shell(directory.path(), unheard);
    assert!(text.contains("reason=connect_failed"), "{text}");
    assert!(text.contains("suspended (connect_failed)"), "{text}");

    let receiver = blocks("## Five minutes by hand", "python")
        .remove(0)
        .replace("8099", &port);
    // Python says so when it listens: the test need not guess.
    let receiver = receiver.replace(
        "ThreadingHTTPServer((\"127.0.0.1\"",
        "server = ThreadingHTTPServer((\"127.0.0.1\"",
    );
    let receiver = receiver.replace(
        ").serve_forever()",
        "); print(\"ready\", flush=True); server.serve_forever()",
    );
    let mut child = Kill(
        Command::new("python3")
            .args(["-c", &receiver])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");

    shell(directory.path(), resumed);
    let text = shell(directory.path(), heard);
    assert!(text.contains("confirmed"), "{text}");
    let arrived = lines.next().unwrap().unwrap();
    assert!(arrived.starts_with("/greet "), "{arrived}");
    let id = text
        .lines()
        .find(|line| line.contains("verdict=confirmed"))
        .and_then(|line| line.strip_prefix("id="))
        .and_then(|rest| rest.split(' ').next())
        .unwrap();
    assert!(arrived.contains(id), "the key is the id: {arrived}");
}

#[test]
fn the_configuration_shown_is_accepted() {
    let directory = tempfile::tempdir().unwrap();
    let config = blocks("## Configuration", "toml").concat();
    std::fs::write(directory.path().join("tickpost.toml"), config).unwrap();
    std::fs::write(directory.path().join("billing.key"), "secret").unwrap();
    let text = shell(
        directory.path(),
        "tickpost --config tickpost.toml config check",
    );
    assert!(text.contains("1 destination, no fault"), "{text}");
}

#[test]
fn every_command_of_the_table_exists() {
    let directory = tempfile::tempdir().unwrap();
    let help = shell(directory.path(), "tickpost --help");
    for name in [
        "init", "enqueue", "tick", "status", "list", "show", "hold", "release", "cancel", "retry",
        "resolve", "rules", "config", "demo",
    ] {
        assert!(
            README.contains(&format!("`{name}")),
            "{name} is in the README"
        );
        assert!(help.contains(&format!("  {name} ")), "{name} is in --help");
        shell(directory.path(), &format!("tickpost {name} --help"));
    }
}

#[test]
fn the_demonstration_shows_all_five_states() {
    let directory = tempfile::tempdir().unwrap();
    let text = shell(directory.path(), "tickpost demo");
    for state in ["pending/", "unknown/", "held/", "confirmed/", "failed/"] {
        assert!(text.contains(&format!("  {state}")), "{state} in\n{text}");
    }
    assert!(text.contains("duplicate_confirmed"), "{text}");
}
