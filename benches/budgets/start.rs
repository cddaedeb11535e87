//! The programs in C: one starts others and sees what they cost, one does the writes of `enqueue`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::child;

/// Whether a program's waits for the disk are done.
#[derive(Clone, Copy)]
pub(crate) enum Syncs {
    /// As ever.
    Plain,
    /// As ever, behind a filter that costs what that of `Dropped` costs.
    Kept,
    /// Not at all.
    Dropped,
}

/// What one run of a program cost.
#[derive(Clone, Copy)]
pub(crate) struct Spent {
    pub(crate) ms: f64,
    pub(crate) cpu_us: f64,
    pub(crate) memory_mib: f64,
}

/// Where the built programs are.
pub(crate) struct Starter {
    start: PathBuf,
    pub(crate) write: PathBuf,
    report: PathBuf,
}

impl Starter {
    /// Builds both.
    pub(crate) fn build(scratch: &Path) -> anyhow::Result<Self> {
        let built = |name: &str| {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/budgets");
            let program = scratch.join(name);
            let mut cc = child::command("cc");
            cc.arg("-O2").arg("-o").arg(&program);
            child::run(cc.arg(source.join(format!("{name}.c"))), 1)?;
            anyhow::Ok(program)
        };
        Ok(Self {
            start: built("start")?,
            write: built("write")?,
            report: scratch.join("report"),
        })
    }

    /// A command that runs another one so many times.
    fn wrapped(&self, command: &Command, times: u32, syncs: Syncs, report: &Path) -> Command {
        let mut start = child::command(&self.start);
        let mode = match syncs {
            Syncs::Plain => "plain",
            Syncs::Kept => "synced",
            Syncs::Dropped => "unsynced",
        };
        start.arg(report).arg(times.to_string()).arg(mode);
        start.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            if let Some(value) = value {
                start.env(name, value);
            }
        }
        start
    }

    /// Runs a program so many times, and tells what it printed in all and what each run cost.
    pub(crate) fn run(
        &self,
        command: &Command,
        times: u32,
        syncs: Syncs,
    ) -> anyhow::Result<(String, Vec<Spent>)> {
        let mut start = self.wrapped(command, times, syncs, &self.report);
        let output = start
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}: {said}", output.status);
        let spent = fs::read_to_string(&self.report)?;
        let spent: anyhow::Result<Vec<Spent>> = spent.lines().map(read).collect();
        Ok((String::from_utf8(output.stdout)?, spent?))
    }

    /// One run.
    pub(crate) fn once(&self, command: &Command, syncs: Syncs) -> anyhow::Result<(String, Spent)> {
        let (stdout, spent) = self.run(command, 1, syncs)?;
        Ok((stdout, *spent.first().context("nothing was measured")?))
    }

    /// Runs a program so many times in each of so many loops at once, and tells how many a second.
    pub(crate) fn at_once(&self, command: &Command, loops: u32, times: u32) -> anyhow::Result<f64> {
        let begun = std::time::Instant::now();
        let mut started = Vec::new();
        for n in 0..loops {
            let report = self.report.with_extension(n.to_string());
            let mut start = self.wrapped(command, times, Syncs::Plain, &report);
            started.push(start.stdout(Stdio::null()).spawn()?);
        }
        for mut start in started {
            ensure!(start.wait()?.success(), "one of {loops} loops failed");
        }
        Ok(f64::from(loops * times) / begun.elapsed().max(Duration::from_nanos(1)).as_secs_f64())
    }
}

/// A line of the report.
fn read(line: &str) -> anyhow::Result<Spent> {
    let mut figures = line.split(' ').map(str::parse::<f64>);
    let mut next = || anyhow::Ok(figures.next().context("half a line")??);
    Ok(Spent {
        ms: next()? / 1e6,
        cpu_us: next()?,
        memory_mib: next()? / 1024.0,
    })
}
