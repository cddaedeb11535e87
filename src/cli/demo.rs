//! `demo`: the whole story in half a minute, on loopback and in a temporary spool, with the very
//! commands that a person would type.

mod receiver;

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;

use self::receiver::Receiver;
use super::output::style_of;
use super::{Context, output};
use crate::clock::{Clock as _, SystemClock};
use crate::config::Config;
use crate::model::state::State;
use crate::store::file::FileStore;
use crate::store::{Found, Scope, Store};
use crate::view::item::{Outlook, next};

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tickpost demo --keep")]
pub(super) struct DemoArgs {
    /// Leave the spool behind, to look at it
    #[arg(long)]
    keep: bool,
}

/// One item of the demonstration: what is said of it, and the words of its `enqueue`.
struct Scene {
    says: &'static str,
    words: &'static [&'static str],
}

const SCENES: [Scene; 6] = [
    Scene {
        says: "the receiver takes it",
        words: &["shop", "--path", "/charges", "--data", r#"{"amount":5}"#],
    },
    Scene {
        says: "the receiver acts on it, and its answer is lost; the same key makes a repeat harmless",
        words: &["shop", "--path", "/lost", "--data", r#"{"amount":7}"#],
    },
    Scene {
        says: "the receiver rejects its content",
        words: &["shop", "--path", "/reject", "--data", r#"{"amount":-1}"#],
    },
    Scene {
        says: "the receiver is overloaded and asks to wait an hour",
        words: &["busy", "--data", r#"{"report":"daily"}"#],
    },
    Scene {
        says: "the receiver does not accept the password",
        words: &["locked", "--data", r#"{"user":"alice"}"#],
    },
    Scene {
        says: "the answer is lost, and nothing makes a repeat harmless",
        words: &["legacy", "--data", r#"{"transfer":100}"#],
    },
];

pub(super) fn run(context: &Context, arguments: &DemoArgs) -> anyhow::Result<()> {
    let directory = tempfile::Builder::new()
        .prefix("tickpost-demo-")
        .tempdir()
        .context("cannot make a temporary directory")?;
    let spool = directory.path().join("spool");
    let receiver = Receiver::start().context("cannot listen on 127.0.0.1")?;
    let stage = Stage {
        context,
        spool: &spool,
        receiver: &receiver,
    };
    stage.play()?;
    if arguments.keep {
        let kept = directory.keep();
        context.out.say(&format!(
            "\nthe spool is kept in {}",
            kept.join("spool").display()
        ));
    } else {
        context
            .out
            .say("\nthe temporary spool is removed now; `tickpost demo --keep` leaves it");
    }
    Ok(())
}

struct Stage<'a> {
    context: &'a Context,
    spool: &'a Path,
    receiver: &'a Receiver,
}

impl Stage<'_> {
    fn play(&self) -> anyhow::Result<()> {
        self.title("A spool, and a receiver on loopback that misbehaves")?;
        self.tickpost(&["init"])?;
        let address = self.receiver.address();
        let text = configuration(&address);
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .open(self.spool.join("tickpost.toml"))
            .context("cannot write the demonstration's configuration")?;
        file.write_all(text.as_bytes())?;
        drop(file);
        self.tickpost(&["config", "check"])?;

        self.title("Six items are accepted: each id printed is on disk, synced")?;
        for scene in SCENES {
            self.say(&format!("# {}", scene.says))?;
            let mut words = vec!["enqueue"];
            words.extend(scene.words);
            words.extend(["--notify", "ops"]);
            self.tickpost(&words)?;
        }
        self.tickpost(&["status"])?;

        self.title("One tick sends what is due; whoever asked is told what did not end well")?;
        self.tickpost(&["tick", "-v"])?;
        self.title(
            "A second later the next tick repeats, with the same key, what may be repeated",
        )?;
        self.wait_for_resend()?;
        self.tickpost(&["tick", "-v"])?;

        self.title("Where everything is, and why")?;
        self.tree()?;
        self.title("What the receiver saw")?;
        for line in self.receiver.log() {
            self.say(&format!("  {line}"))?;
        }
        self.title("Next")?;
        self.say("  tickpost list --state held          what waits for you, and why")?;
        self.say(
            "  tickpost show ID                    everything of an item, and what happens next",
        )?;
        self.say("  tickpost release ID                 when the cause is mended")?;
        self.say("  tickpost resolve --confirmed ID     what you found out about an unknown item")
    }

    fn say(&self, text: &str) -> anyhow::Result<()> {
        self.context.out.line(text)
    }

    fn title(&self, text: &str) -> anyhow::Result<()> {
        let bold = anstyle::Style::new().bold();
        self.say(&format!("\n{bold}{text}{bold:#}"))
    }

    /// Shows a command, runs it as a person would, and shows what it prints.
    fn tickpost(&self, words: &[&str]) -> anyhow::Result<()> {
        let quoted: Vec<String> = words.iter().map(|word| quote(word)).collect();
        self.say(&format!("$ tickpost {}", quoted.join(" ")))?;
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let ran = Command::new(program)
            .args(words)
            .env("TICKPOST_SPOOL", self.spool)
            .stdin(Stdio::null())
            .output()
            .context("cannot run this program again")?;
        for part in [&ran.stdout, &ran.stderr] {
            for line in String::from_utf8_lossy(part).lines() {
                self.say(&format!("  {line}"))?;
            }
        }
        if ran.status.success() {
            Ok(())
        } else {
            anyhow::bail!("`tickpost {}` ended with {}", quoted.join(" "), ran.status)
        }
    }

    /// Waits until the item whose answer was lost is due again.
    fn wait_for_resend(&self) -> anyhow::Result<()> {
        let store = FileStore::open(self.spool, true)?;
        let scope = Scope {
            states: vec![State::Unknown],
            destination: Some("shop".to_owned()),
        };
        let mut due = None;
        store.scan(&scope, &mut |found| {
            if let Some(Ok(item)) = store.read(found)? {
                due = due.max(item.standing().due);
            }
            Ok(())
        })?;
        if let Some(due) = due {
            let wait_ms = due.since(SystemClock::new().now()) + 1;
            std::thread::sleep(Duration::from_millis(wait_ms.min(10_000)));
        }
        Ok(())
    }

    /// The item files as a tree, each with its reason and what happens next.
    fn tree(&self) -> anyhow::Result<()> {
        let store = FileStore::open(self.spool, true)?;
        let config = Config::load(&self.spool.join("tickpost.toml"))?;
        let mut all: Vec<Found> = Vec::new();
        store.scan(&Scope::default(), &mut |found| {
            all.push(found.clone());
            Ok(())
        })?;
        self.say(&format!("{}/", self.spool.display()))?;
        for found in all {
            let Some(Ok(item)) = store.read(&found)? else {
                continue;
            };
            let standing = item.standing();
            let memory = store.memory(&item.envelope.destination)?;
            let style = style_of(found.state);
            let place = found.place.replacen(
                found.state.as_str(),
                &format!("{style}{}{style:#}", found.state),
                1,
            );
            self.say(&format!("  {place}"))?;
            let why = standing.reason.as_ref().map_or_else(
                || "accepted".to_owned(),
                |reason| format!("{reason}: {}", reason.explain()),
            );
            let what = if item.envelope.notice {
                " (a notice to whoever asked)"
            } else {
                ""
            };
            self.say(&format!("      {}{what}", output::plain(&why)))?;
            let outlook = Outlook {
                config: Some(&config),
                memory: &memory,
                operator_hold: false,
                now: SystemClock::new().now(),
                time: &super::times::local,
            };
            let after = next(&found, &item, &standing, &outlook);
            self.say(&format!("      next: {after}"))?;
        }
        Ok(())
    }
}

/// A word as a shell wants it.
fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

fn configuration(address: &str) -> String {
    format!(
        r#"
# The receiver de-duplicates by key, so a lost answer may be asked for again.
[destination.shop]
base_url = "http://{address}/shop"
key = {{ kind = "header", name = "Idempotency-Key", window = "24h" }}
retry = {{ base = "1s" }}

[destination.busy]
base_url = "http://{address}/busy"

[destination.locked]
base_url = "http://{address}/locked"

# No key: after a lost answer only a person can tell.
[destination.legacy]
base_url = "http://{address}/legacy"

# Who is told.
[destination.ops]
base_url = "http://{address}/ops"
"#
    )
}
