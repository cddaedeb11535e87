//! tickpost itself: a spool, and the built program.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::child;
use crate::receiver::Receiver;
use crate::table::Run;
use crate::{Arguments, bare};

/// A spool with one keyed destination.
pub(crate) struct Program {
    spool: PathBuf,
}

impl Program {
    /// A new spool whose destination is the receiver.
    pub(crate) fn new(
        spool: &Path,
        receiver: &Receiver,
        arguments: &Arguments,
    ) -> anyhow::Result<Self> {
        Self::with(spool, &receiver.base_url(), arguments)
    }

    /// A new spool whose destination nobody tries to reach.
    pub(crate) fn unheard(spool: &Path, arguments: &Arguments) -> anyhow::Result<Self> {
        Self::with(spool, "http://127.0.0.1:9", arguments)
    }

    fn with(spool: &Path, base_url: &str, arguments: &Arguments) -> anyhow::Result<Self> {
        let program = Self {
            spool: spool.to_owned(),
        };
        child::run(program.call().arg("init"), 1)?;
        let connections = arguments.connections;
        let config = format!(
            r#"[tick]
max_runtime = "10m"
concurrency = {connections}
[destination.bench]
base_url = "{base_url}"
key = {{ kind = "header", name = "Idempotency-Key", window = "24h" }}
concurrency = {connections}
"#
        );
        fs::write(spool.join("tickpost.toml"), config)?;
        Ok(program)
    }

    /// The items as lines for `enqueue --batch`, with keys if they shall have some.
    pub(crate) fn lines(
        &self,
        body: &str,
        items: u32,
        key: Option<&str>,
    ) -> anyhow::Result<String> {
        let mut lines = String::new();
        for n in 0..items {
            let mut line = json!({"destination": "bench", "request": request(body)});
            if let Some(key) = key {
                line["key"] = Value::String(format!("{key}{n}"));
            }
            writeln!(lines, "{line}")?;
        }
        ensure!(self.spool.is_dir(), "the spool is gone");
        Ok(lines)
    }

    /// One `enqueue --batch`.
    pub(crate) fn batch(&self, lines: &Path, items: u32) -> anyhow::Result<Run> {
        let mut call = self.call();
        call.args(["enqueue", "--batch"]).stdin(File::open(lines)?);
        let ended = child::run(&mut call, items)?;
        is_all(
            "ids were printed",
            ended.stdout.lines().count() as u64,
            items,
        )?;
        Ok(ended.run)
    }

    /// A shell loop of `enqueue`, a process an item.
    pub(crate) fn enqueue_loop(&self, body: &Path, items: u32) -> anyhow::Result<Run> {
        let file = body.display().to_string();
        let item = ["--path", "/x", "--content-type", "application/json"];
        let before = ["--quiet", "enqueue", "bench", "--file", &file];
        self.started(&[&before[..], &item].concat(), items)
    }

    /// A shell loop that starts the program and has it do nothing.
    pub(crate) fn start_loop(&self, items: u32) -> anyhow::Result<Run> {
        self.started(&["--version"], items)
    }

    /// Starts the program once an item. Each time it must print a line.
    fn started(&self, arguments: &[&str], items: u32) -> anyhow::Result<Run> {
        const SCRIPT: &str = r#"n=$1
shift
while [ "$n" -gt 0 ]; do
    "$@" || exit 1
    n=$((n - 1))
done"#;
        let mut shell = child::command("sh");
        shell
            .env("TICKPOST_SPOOL", &self.spool)
            .args(["-c", SCRIPT, "sh", &items.to_string(), BINARY])
            .args(arguments);
        let ended = child::run(&mut shell, items)?;
        let lines = ended.stdout.lines().count() as u64;
        is_all("lines were printed", lines, items)?;
        Ok(ended.run)
    }

    /// One tick that sends all there is.
    pub(crate) fn tick(&self, items: u32) -> anyhow::Result<Run> {
        let ended = child::run(self.call().args(["--json", "tick"]), items)?;
        is_all(
            "items were confirmed",
            told(&ended.stdout, "confirmed")?,
            items,
        )?;
        Ok(ended.run)
    }

    /// The same, counting its syncs.
    pub(crate) fn count_syncs(&self, calls: &Path, items: u32) -> anyhow::Result<usize> {
        let mut strace = child::command("strace");
        strace
            .args(["-f", "-q", "-e", "trace=fsync,fdatasync,syncfs", "-o"])
            .arg(calls)
            .args([BINARY, "--json", "tick"])
            .env("TICKPOST_SPOOL", &self.spool);
        let ended = child::run(&mut strace, items)?;
        is_all(
            "items were confirmed",
            told(&ended.stdout, "confirmed")?,
            items,
        )?;
        let text = fs::read_to_string(calls)?;
        // A call during which another thread came in has a second line, without the bracket.
        Ok(text.lines().filter(|line| line.contains("sync(")).count())
    }

    /// Leaves items in the drop box, as another program would.
    pub(crate) fn fill_drop_box(&self, body: &str, items: u32) -> anyhow::Result<()> {
        child::run(self.call().args(["hold", "--destination", "bench"]), 1)?;
        let dropped = self.spool.join("incoming/bench");
        fs::create_dir_all(&dropped)?;
        let text = json!({"request": request(body)}).to_string();
        for n in 0..items {
            fs::write(dropped.join(format!("{n}.json")), &text)?;
        }
        bare::sync(&dropped)
    }

    /// One tick that takes in the drop box; the destination is held, so that it sends nothing.
    pub(crate) fn take_in(&self, items: u32) -> anyhow::Result<Run> {
        let ended = child::run(self.call().args(["--json", "tick"]), items)?;
        is_all(
            "files were taken in",
            told(&ended.stdout, "ingested")?,
            items,
        )?;
        is_all("attempts were made", told(&ended.stdout, "attempts")?, 0)?;
        Ok(ended.run)
    }

    /// The bytes of one item that waits.
    pub(crate) fn an_item(&self) -> anyhow::Result<Vec<u8>> {
        let mut entries = fs::read_dir(self.spool.join("pending/bench"))?;
        Ok(fs::read(entries.next().context("nothing waits")??.path())?)
    }

    fn call(&self) -> Command {
        let mut command = child::command(BINARY);
        command.env("TICKPOST_SPOOL", &self.spool);
        command
    }
}

const BINARY: &str = env!("CARGO_BIN_EXE_tickpost");

fn request(body: &str) -> Value {
    json!({"path": "/x", "content_type": "application/json", "body": {"text": body}})
}

/// A number of a tick's report.
fn told(stdout: &str, what: &str) -> anyhow::Result<u64> {
    let report: Value = serde_json::from_str(stdout)?;
    report[what]
        .as_u64()
        .with_context(|| format!("no {what} in {stdout}"))
}

fn is_all(what: &str, found: u64, items: u32) -> anyhow::Result<()> {
    ensure!(
        found == u64::from(items),
        "{found} {what} instead of {items}"
    );
    Ok(())
}
