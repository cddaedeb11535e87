//! What the README shows works: its shell is run as it stands, and prints what is shown; its receiver,
//! its line for cron and its configuration are used as they stand.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/bench.rs"]
mod bench;
#[path = "support/mod.rs"]
mod support;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bench::{Bench, KEYED};
use support::{Receiver, Reply};

const README: &str = include_str!("../README.md");

/// Waiting longer than this is a failed test.
const PATIENCE: Duration = Duration::from_secs(20);

/// A fenced block.
#[derive(Debug)]
struct Block {
    heading: &'static str,
    language: &'static str,
    text: &'static str,
}

fn all_blocks() -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut heading = "";
    let mut rest = README;
    while let Some((line, after)) = rest.split_once('\n') {
        rest = after;
        if let Some(language) = line.strip_prefix("```") {
            let (text, after) = rest.split_once("```").unwrap();
            rest = after;
            blocks.push(Block {
                heading,
                language,
                text,
            });
        } else if line.starts_with('#') {
            heading = line;
        }
    }
    blocks
}

/// The blocks of a language that stand below a heading.
fn blocks(heading: &str, language: &str) -> Vec<&'static str> {
    all_blocks()
        .into_iter()
        .filter(|block| block.heading == heading && block.language == language)
        .map(|block| block.text)
        .collect()
}

/// The only one.
fn block(heading: &str, language: &str) -> &'static str {
    let blocks = blocks(heading, language);
    let [block] = blocks[..] else {
        panic!("{heading} has {} blocks of {language}", blocks.len());
    };
    block
}

/// Whether this was printed, `…` standing for anything within a line.
fn is_shown(printed: &str, shown: &str) -> bool {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let (printed, shown) = (lines(printed), lines(shown));
    printed.len() == shown.len()
        && printed.iter().zip(&shown).all(|(printed, shown)| {
            // The beginning of an id is there to be recognised by people.
            let shown = shown.replace("01a2295d-…", "…");
            let mut pieces = shown.split('…');
            let first = pieces.next().unwrap_or_default();
            let Some(mut rest) = printed.strip_prefix(first) else {
                return false;
            };
            let Some(last) = pieces.next_back() else {
                return rest.is_empty();
            };
            for piece in pieces {
                match rest.split_once(piece) {
                    Some((_, after)) => rest = after,
                    None => return false,
                }
            }
            rest.ends_with(last)
        })
}

fn assert_shown(printed: &str, shown: &str) {
    assert!(
        is_shown(printed, shown),
        "printed:\n{printed}\nshown:\n{shown}"
    );
}

struct Kill(Child);

impl Drop for Kill {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A shell in a directory, with the built program, and a spool there.
fn shell_of(directory: &Path, spool: &Path, script: &str) -> Command {
    let binary = Path::new(env!("CARGO_BIN_EXE_tickpost"));
    let path = format!("{}:/usr/bin:/bin", binary.parent().unwrap().display());
    let mut command = Command::new("bash");
    command
        .args(["-euo", "pipefail", "-c", &format!("exec 2>&1\n{script}")])
        .current_dir(directory)
        .env_clear()
        .env("PATH", path)
        .env("HOME", directory)
        .env("TICKPOST_SPOOL", spool)
        .stdin(Stdio::null());
    command
}

/// Runs it to its good end; returns all that it said.
fn run(mut command: Command) -> String {
    let ran = command.output().unwrap();
    let text = String::from_utf8(ran.stdout).unwrap();
    assert!(ran.status.success(), "{command:?}: {}:\n{text}", ran.status);
    text
}

fn shell(directory: &Path, script: &str) -> String {
    run(shell_of(directory, &directory.join("my-spool"), script))
}

/// A spool of which the README's `billing` is a destination, and `ops` is told.
fn shop(receiver: &Receiver) -> Bench {
    let bench = Bench::new();
    let (url, ops) = (receiver.url(), format!("{}/ops", receiver.url()));
    bench.configure(
        "[notify]\ndestinations = [\"ops\"]",
        &[("billing", &url, KEYED), ("ops", &ops, "")],
    );
    bench
}

fn in_shop(bench: &Bench, script: &str) -> String {
    run(shell_of(bench.dir(), bench.spool(), script))
}

/// Each block of shell is run by a test below, or by what is named here.
#[test]
fn every_block_of_shell_is_run() {
    let run_here = [
        "# tickpost",
        "### What *unknown* means, and what to do",
        "## The first hour",
        "## Ways in",
        "## Running it",
    ];
    let run_elsewhere = [
        ("cargo run --release -- demo", "its parts, here: `demo`"),
        ("apt-get install ./tickpost_", "tests/package"),
        ("apt-get install dpkg-dev", "tests/package"),
    ];
    for block in all_blocks() {
        assert!(!block.language.is_empty(), "{block:?}");
        let elsewhere = |(text, _): &(&str, &str)| block.text.starts_with(text);
        assert!(
            block.language != "sh"
                || run_here.contains(&block.heading)
                || run_elsewhere.iter().any(elsewhere),
            "{block:?}"
        );
    }
    for program in ["tests/run", "systemd/build-deb"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(program);
        assert!(README.contains(program) && path.is_file(), "{program}");
    }
}

#[test]
fn the_first_line_accepts_an_item() {
    let receiver = Receiver::start(vec![]);
    let bench = shop(&receiver);
    let printed = in_shop(&bench, block("# tickpost", "sh"));
    let item = bench.item(printed.trim_end());
    assert_eq!(item[0]["request"]["body"]["text"], "{\"amount\":5}\n");
    assert_eq!(item[0]["notify"][0], "ops");
}

#[test]
fn the_first_hour_goes_as_it_says() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let port = {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port().to_string()
    };
    let hour = "## The first hour";
    let scripts: Vec<String> = blocks(hour, "sh")
        .into_iter()
        .map(|block| block.replace("8099", &port))
        .collect();
    let [setup, unheard, heard, locked] = &scripts[..] else {
        panic!("the tour has {} blocks", scripts.len());
    };
    let shown = blocks(hour, "text");
    assert_eq!(shown.len(), 3);
    let printed = shell(directory, setup);
    assert!(printed.contains("2 destinations, no fault"), "{printed}");
    assert_shown(&shell(directory, unheard), shown[0]);

    // Python says so when it listens: the test need not guess.
    let receiver = block(hour, "python")
        .replace("8099", &port)
        .replace(
            "ThreadingHTTPServer((\"127.0.0.1\"",
            "server = ThreadingHTTPServer((\"127.0.0.1\"",
        )
        .replace(
            ").serve_forever()",
            "); print(\"ready\", flush=True); server.serve_forever()",
        );
    let mut child = Kill(
        Command::new("python3")
            .args(["-c", &receiver])
            .current_dir(directory)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    let mut arrived = || lines.next().unwrap().unwrap();
    assert_eq!(arrived(), "ready");

    let printed = shell(directory, heard);
    assert_shown(&printed, shown[1]);
    let id = printed.lines().nth(1).unwrap();
    assert_eq!(arrived(), format!("/greet {id} {{\"hello\":\"again\"}}"));

    assert_shown(&shell(directory, locked), shown[2]);
    assert!(arrived().contains("{\"hello\":\"locked\"}"));
    let notice = arrived();
    assert!(
        notice.starts_with("/ops None 1 item to hello is held: permission_denied"),
        "{notice}"
    );
    let again = std::iter::repeat_with(arrived).find(|line| line.starts_with("/greet "));
    assert!(again.unwrap().contains("{\"hello\":\"locked\"}"));
}

#[test]
fn the_ways_in_accept_what_they_say() {
    let receiver = Receiver::start(vec![]);
    let bench = shop(&receiver);
    bench.file("invoice.json", "{\"amount\":17}");
    bench.file("items.jsonl", block("## Ways in", "json"));
    let [ways, waits] = blocks("## Ways in", "sh")[..] else {
        panic!("two blocks");
    };
    let printed = in_shop(&bench, ways);
    let batch = fs::read_to_string(bench.dir().join("ids")).unwrap();
    let ids: Vec<&str> = printed.lines().chain(batch.lines()).collect();
    let [piped, file, held, ticked, batched] = ids[..] else {
        panic!("{ids:?}");
    };
    let envelope = |id: &str| bench.show(id)["envelope"].clone();
    assert_eq!(
        envelope(piped)["request"]["body"]["text"],
        "{\"amount\":5}\n"
    );
    assert_eq!(envelope(file)["request"]["body"]["text"], "{\"amount\":17}");
    assert_eq!(envelope(file)["key"], "invoice-17");
    assert_eq!(bench.show(held)["state"], "held");
    assert_eq!(bench.show(ticked)["state"], "confirmed");
    assert_eq!(envelope(batched)["key"], "invoice-19");

    // It waits until a tick has sent it.
    let waiting = shell_of(bench.dir(), bench.spool(), waits)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let keyed = || bench.list_ids(&["--key", "invoice-20"]);
    let begun = Instant::now();
    while keyed().is_empty() {
        assert!(begun.elapsed() < PATIENCE, "it is not accepted");
        std::thread::yield_now();
    }
    bench.tick();
    let ended = waiting.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stdout).unwrap();
    assert_eq!(said, format!("{} confirmed accepted\n", keyed()[0]));
    assert!(ended.status.success());
}

#[test]
fn each_way_to_resolve_what_is_parked_works() {
    let receiver = Receiver::start(vec![Reply::close(), Reply::close(), Reply::close()]);
    let bench = Bench::with(&[("billing", &receiver.url(), "")]);
    let ids = [(); 3].map(|()| bench.enqueue("billing", &["--data", "x"]));
    bench.run(&["tick"]).ok();
    assert_eq!(bench.json(&["status"])["parked"], 3);
    let script = block("### What *unknown* means, and what to do", "sh");
    for ((line, id), state) in script
        .lines()
        .zip(&ids)
        .zip(["confirmed", "failed", "pending"])
    {
        in_shop(&bench, &line.replace(" ID ", &format!(" {id} ")));
        assert_eq!(bench.show(id)["state"], state, "{line}");
    }
    assert_eq!(script.lines().count(), ids.len());
}

#[test]
fn a_monitor_gets_the_line_that_is_shown() {
    let receiver = Receiver::start(vec![]);
    let bench = shop(&receiver);
    bench.tick();
    bench.enqueue("billing", &["--data", "x", "--hold", "not yet"]);
    let printed = in_shop(&bench, block("## Running it", "sh"));
    assert_shown(&printed, block("## Running it", "text"));
}

#[test]
fn the_line_for_cron_ticks() {
    let receiver = Receiver::start(vec![]);
    let bench = shop(&receiver);
    let id = bench.enqueue("billing", &["--data", "x"]);
    let programs = bench.dir().join(".cargo/bin");
    fs::create_dir_all(&programs).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tickpost"), programs.join("tickpost")).unwrap();
    let line = block("## Install", "crontab").trim_end();
    let command = line.strip_prefix("* * * * * ").unwrap();
    assert_eq!(bench.spool(), bench.dir().join("spool"));
    assert_eq!(in_shop(&bench, command), "", "cron has nothing to mail");
    assert_eq!(bench.show(&id)["state"], "confirmed");
}

#[test]
fn the_configuration_shown_is_accepted() {
    let directory = tempfile::tempdir().unwrap();
    // A program that is there, on this machine.
    let told = block("## Being told", "toml").replace("/usr/local/bin/tickpost-mail", "/bin/true");
    let config = format!(
        "{told}[destination.ops]\nbase_url = \"https://ops.example\"\n{}",
        block("## Configuration", "toml")
    );
    fs::write(directory.path().join("tickpost.toml"), config).unwrap();
    fs::write(directory.path().join("billing.key"), "secret").unwrap();
    let text = shell(
        directory.path(),
        "tickpost --config tickpost.toml config check",
    );
    assert!(text.contains("2 destinations, no fault"), "{text}");
}

#[test]
fn every_command_of_the_table_exists() {
    let directory = tempfile::tempdir().unwrap();
    let help = shell(directory.path(), "tickpost --help");
    let (_, listed) = help.split_once("Commands:\n").unwrap();
    let (listed, _) = listed.split_once("\n\n").unwrap();
    let (_, table) = README.split_once("\n## Commands\n").unwrap();
    for line in listed.lines() {
        let name = line.split_whitespace().next().unwrap();
        assert!(
            name == "help" || table.contains(&format!("`{name}")),
            "{name} is in the README"
        );
        shell(directory.path(), &format!("tickpost help {name}"));
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
