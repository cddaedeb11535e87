//! Is tickpost as fast as it has to be? Each row holds it against the least that could do the same,
//! in pairs of runs in turn, and against its budget. `benches/run` builds this and runs it.
//!
//! ```text
//! benches/run                       # all rows, and benches/RESULTS.md
//! benches/run drain-10000 empty     # only these
//! cargo test --bench budgets        # smoke: a few items, only to see that it works
//! ```
//!
//! Every receiver must have seen each item once, or the row is an error.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it is a program")]

#[path = "ways_in/bare.rs"]
#[expect(dead_code, reason = "the other bench uses the rest")]
mod bare;
#[path = "ways_in/child.rs"]
#[expect(dead_code, reason = "the other bench uses the rest")]
mod child;
#[path = "budgets/large.rs"]
mod large;
#[path = "budgets/line.rs"]
mod line;
#[path = "budgets/million.rs"]
mod million;
#[path = "budgets/peers.rs"]
mod peers;
#[path = "ways_in/program.rs"]
#[expect(dead_code, reason = "the other bench uses the rest")]
mod program;
#[path = "ways_in/receiver.rs"]
mod receiver;
#[path = "budgets/rows.rs"]
mod rows;
#[path = "budgets/start.rs"]
mod start;
#[path = "ways_in/table.rs"]
#[expect(dead_code, reason = "the other bench uses the rest")]
mod table;

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Parser;

use line::Line;
use program::Program;
use start::Starter;

/// By what the numbers of items are divided in a smoke test, which has at least 20 of each.
const SMOKE: u32 = 2000;

/// How many items a batch hands in at once.
const BATCH: u32 = 100_000;

#[derive(Parser)]
#[command(about = "Holds tickpost against its budgets; `benches/run` builds and runs it")]
struct Arguments {
    /// The rows to run, or `peers` [default: all but peers]
    rows: Vec<String>,
    /// How many pairs of runs each row has
    #[arg(long, default_value_t = 5)]
    pairs: u32,
    /// The rows of a million items too
    #[arg(long)]
    long: bool,
    /// Where the spools lie for the time of the bench [default: the build directory]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// A few items, only to see that all of it works; nothing falls short
    #[arg(long)]
    smoke: bool,
    /// Make a large spool here, and do nothing else
    #[arg(long, value_name = "DIR")]
    make: Option<PathBuf>,
    /// How many items wait in it
    #[arg(long, default_value_t = 1_000_000)]
    items: u32,
    /// Given by `cargo bench`; without it this is a smoke test
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let mut arguments = Arguments::parse();
    if let Some(spool) = &arguments.make {
        million::make(spool, arguments.items, &body())?;
        return Ok(ExitCode::SUCCESS);
    }
    arguments.smoke |= !arguments.bench;
    arguments.long |= arguments.smoke;
    if arguments.smoke {
        arguments.pairs = 1;
    }
    let parent = arguments
        .dir
        .clone()
        .unwrap_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")));
    let scratch = tempfile::Builder::new()
        .prefix("budgets-")
        .tempdir_in(&parent)
        .with_context(|| format!("cannot make a directory in {}", parent.display()))?;
    let bench = Bench {
        starter: Starter::build(scratch.path())?,
        scratch: scratch.path().to_owned(),
        places: Cell::new(0),
        arguments,
    };
    let machine = table::machine(&bench.scratch)?;
    println!(
        "{machine}; bodies of 1 KiB; medians of {} pairs of runs in turn; the ratio is the median of the pairs' ratios\n",
        bench.arguments.pairs
    );
    let is_short = bench.all()?;
    scratch.close().context("cannot clean up")?;
    Ok(ExitCode::from(u8::from(is_short)))
}

/// What the rows share.
struct Bench {
    arguments: Arguments,
    starter: Starter,
    scratch: PathBuf,
    /// How many directories there have been.
    places: Cell<u32>,
}

impl Bench {
    /// Runs what was asked for, and tells whether anything falls short.
    fn all(&self) -> anyhow::Result<bool> {
        let asked = &self.arguments.rows;
        for name in asked {
            let is_row = rows::ALL.iter().any(|row| row.names.contains(&&**name));
            let all: Vec<&str> = rows::ALL
                .iter()
                .flat_map(|row| row.names)
                .copied()
                .collect();
            ensure!(
                is_row,
                "there is no row {name}; there are {}",
                all.join(", ")
            );
        }
        let is_wanted = |row: &rows::Row, name: &str| {
            if asked.is_empty() {
                (self.arguments.long || !row.long.contains(&name)) && !row.names.contains(&"peers")
            } else {
                asked.iter().any(|asked| asked == name)
            }
        };
        println!("{}", Line::HEAD);
        let mut short = 0;
        for row in rows::ALL {
            let names = row.names.iter().copied();
            let wanted: Vec<&str> = names.filter(|name| is_wanted(row, name)).collect();
            if wanted.is_empty() {
                continue;
            }
            eprintln!("budgets: {}", wanted.join(", "));
            let lines = (row.run)(self, &wanted).with_context(|| wanted.join(", "))?;
            for mut line in lines {
                if self.arguments.smoke {
                    (line.must, line.aim) = (None, None);
                }
                println!("{line}");
                short += u32::from(line.falls_short());
            }
        }
        println!("\nRows that fall short of what they must reach: {short}.");
        Ok(short > 0)
    }

    /// As many items as said, or a few in a smoke test.
    fn some(&self, items: u32) -> u32 {
        if self.arguments.smoke {
            (items / SMOKE).max(items.min(20))
        } else {
            items
        }
    }

    /// Does something once a pair.
    fn pairs(&self, mut act: impl FnMut(u32) -> anyhow::Result<()>) -> anyhow::Result<()> {
        (0..self.arguments.pairs)
            .try_for_each(|pair| act(pair).with_context(|| format!("pair {}", pair + 1)))
    }

    /// Has a spool accept items.
    fn fill(&self, program: &Program, destination: &str, items: u32) -> anyhow::Result<()> {
        let lines = self.scratch.join("lines");
        for from in (0..items).step_by(BATCH as usize) {
            let some = (items - from).min(BATCH);
            // The lines of a full batch are those of the one before it.
            if from == 0 || some < BATCH {
                fs::write(&lines, program.lines(destination, &body(), some, None)?)?;
            }
            program.batch(&lines, some)?;
        }
        self.settle()
    }

    /// What was written before is not to be paid for by what comes.
    fn settle(&self) -> anyhow::Result<()> {
        bare::sync(&self.scratch)
    }

    /// Lets a minute pass for what was just made: `enqueue` syncs a directory above its own too, if
    /// that is no older, and in its daily life it is.
    fn grow_old(&self) {
        let begun = Instant::now();
        let minute = if self.arguments.smoke { 0 } else { 61 };
        while begun.elapsed() < Duration::from_secs(minute) {
            thread::park_timeout(Duration::from_secs(1));
        }
    }

    /// A path where nothing is yet. Nothing is removed before the end: ext4 looks past the files
    /// that were deleted in the last minutes, one by one, whenever it makes another.
    fn new_place(&self) -> PathBuf {
        let number = self.places.get();
        self.places.set(number + 1);
        self.scratch.join(number.to_string())
    }

    /// The bytes of an item, in a file.
    fn sample(&self) -> anyhow::Result<PathBuf> {
        let program = Program::unheard(&self.new_place(), rows::CONNECTIONS)?;
        self.fill(&program, "bench", 1)?;
        let path = self.scratch.join("sample");
        fs::write(&path, program.an_item()?)?;
        Ok(path)
    }

    /// A directory with what `write.c` needs.
    fn write_call(&self, sample: &Path) -> anyhow::Result<std::process::Command> {
        let place = self.new_place();
        for directory in ["tmp", "pending"] {
            fs::create_dir_all(place.join(directory))?;
        }
        fs::write(place.join("wake"), "")?;
        let mut call = child::command(&self.starter.write);
        call.arg(sample);
        call.args(["tmp", "pending", "ledger", "wake"].map(|name| place.join(name)));
        Ok(call)
    }
}

/// A body of 1 KiB.
fn body() -> String {
    format!("{{\"pad\":\"{}\"}}", "x".repeat(1014))
}
