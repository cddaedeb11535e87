//! tickpost itself: a spool, and the built program.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::bare;
use crate::child;
use crate::receiver::Receiver;
use crate::table::Run;

/// A spool with one keyed destination.
pub(crate) struct Program {
    spool: PathBuf,
}

impl Program {
    /// A new spool whose destination is the receiver.
    pub(crate) fn new(spool: &Path, receiver: &Receiver, connections: u32) -> anyhow::Result<Self> {
        Self::with(spool, &receiver.base_url(), connections)
    }

    /// A new spool whose destination nobody tries to reach.
    pub(crate) fn unheard(spool: &Path, connections: u32) -> anyhow::Result<Self> {
        Self::with(spool, UNHEARD, connections)
    }

    fn with(spool: &Path, base_url: &str, connections: u32) -> anyhow::Result<Self> {
        let program = Self {
            spool: spool.to_owned(),
        };
        child::run(program.call().arg("init"), 1)?;
        let tick = format!("[tick]\nmax_runtime = \"30m\"\nconcurrency = {connections}\n");
        fs::write(spool.join("tickpost.toml"), tick)?;
        program.add("bench", base_url, connections)?;
        Ok(program)
    }

    /// Configures a keyed destination.
    pub(crate) fn add(&self, name: &str, base_url: &str, connections: u32) -> anyhow::Result<()> {
        let path = self.spool.join("tickpost.toml");
        let section = format!(
            r#"[destination.{name}]
base_url = "{base_url}"
key = {{ kind = "header", name = "Idempotency-Key", window = "24h" }}
concurrency = {connections}
"#
        );
        File::options()
            .append(true)
            .open(path)?
            .write_all(section.as_bytes())?;
        Ok(())
    }

    /// The items as lines for `enqueue --batch`, with keys if they shall have some.
    pub(crate) fn lines(
        &self,
        destination: &str,
        body: &str,
        items: u32,
        key: Option<&str>,
    ) -> anyhow::Result<String> {
        let mut lines = String::new();
        for n in 0..items {
            let mut line = json!({"destination": destination, "request": request(body)});
            if let Some(key) = key {
                line["key"] = Value::String(format!("{key}{n}"));
            }
            lines.push_str(&line.to_string());
            lines.push('\n');
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
        let (stdout, syncs) = self.trace(calls, SYNCS, &["--json", "tick"])?;
        is_all("items were confirmed", told(&stdout, "confirmed")?, items)?;
        Ok(syncs.len())
    }

    /// What a command prints, and a line for each of these system calls that it makes.
    pub(crate) fn trace(
        &self,
        calls: &Path,
        which: &str,
        arguments: &[&str],
    ) -> anyhow::Result<(String, Vec<String>)> {
        let mut strace = child::command("strace");
        strace
            .args(["-f", "-q", "-s", "4096", "-e", &format!("trace={which}")])
            .arg("-o")
            .arg(calls)
            .arg(BINARY)
            .args(arguments)
            .env("TICKPOST_SPOOL", &self.spool);
        let ended = child::run(&mut strace, 1)?;
        let text = fs::read_to_string(calls)?;
        // A call during which another thread came in has a second line.
        let is_call = |line: &&str| line.contains('(') && !line.contains(" resumed>");
        let lines = text.lines().filter(is_call).map(str::to_owned).collect();
        Ok((ended.stdout, lines))
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

    /// The program, with this spool.
    pub(crate) fn call(&self) -> Command {
        let mut command = child::command(BINARY);
        command.env("TICKPOST_SPOOL", &self.spool);
        command
    }
}

/// The system calls that wait for the disk.
pub(crate) const SYNCS: &str = "fsync,fdatasync,syncfs,sync,msync,sync_file_range";

/// An address at which nothing listens.
pub(crate) const UNHEARD: &str = "http://127.0.0.1:9";

const BINARY: &str = env!("CARGO_BIN_EXE_tickpost");

/// A request to send.
fn request(body: &str) -> Value {
    json!({"path": "/x", "content_type": "application/json", "body": {"text": body}})
}

/// A number of a tick's report.
pub(crate) fn told(stdout: &str, what: &str) -> anyhow::Result<u64> {
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
