//! How fast is it, beside what would be used without it? Loops of bare requests, a shell loop of
//! `curl`, every way into the spool, and a tick that drains it: in one run, on loopback, to one
//! receiver, on a real disk.
//!
//! ```text
//! cargo bench --bench ways_in                        # 10,000 items of 1 KiB, three rounds
//! cargo bench --bench ways_in -- --items 1000
//! cargo test --bench ways_in                         # smoke: a few items, only to see that it works
//! ```
//!
//! Each round does everything once, so that a busy machine slows all of it alike. What counts
//! are the ratios within one run: disks and machines differ. The standard output can be pasted
//! into the README; what happens meanwhile goes to standard error.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it is a program")]

#[path = "ways_in/bare.rs"]
mod bare;
#[path = "ways_in/child.rs"]
mod child;
#[path = "ways_in/program.rs"]
mod program;
#[path = "ways_in/receiver.rs"]
#[expect(dead_code, reason = "the other bench uses the rest")]
mod receiver;
#[path = "ways_in/table.rs"]
mod table;

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use clap::Parser;

use bare::Connections;
use program::Program;
use receiver::Receiver;
use table::{Run, Table, Way};

/// No round begins later than this, so that the whole ends within four minutes.
const LAST_ROUND: Duration = Duration::from_secs(75);

/// Programs that are started once an item are tried with this part of the items.
const ONE_IN: u32 = 50;

/// How many items the smallest bench has.
const SMOKE_ITEMS: u32 = 50;

#[derive(Parser)]
#[command(about = "Measures tickpost beside loops of bare requests")]
struct Arguments {
    /// How many items
    #[arg(long, default_value_t = 10_000)]
    items: u32,
    /// The size of a body, in bytes
    #[arg(long, default_value_t = 1024)]
    bytes: usize,
    /// How often everything is done
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Requests under way at once, where there is more than one
    #[arg(long, default_value_t = 16)]
    connections: u32,
    /// Where the spools lie for the time of the bench [default: the build directory]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// A few items, once, only to see that all of it works
    #[arg(long)]
    smoke: bool,
    /// Given by `cargo bench`; without it this is a smoke test
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> anyhow::Result<()> {
    let mut arguments = Arguments::parse();
    if arguments.smoke || !arguments.bench {
        arguments.items = SMOKE_ITEMS;
        arguments.rounds = 1;
    }
    let parent = arguments
        .dir
        .clone()
        .unwrap_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")));
    let scratch = tempfile::Builder::new()
        .prefix("ways-in-")
        .tempdir_in(&parent)
        .with_context(|| format!("cannot make a directory in {}", parent.display()))?;
    let mut bench = Bench {
        few: (arguments.items / ONE_IN).max(5),
        scratch: scratch.path().to_owned(),
        places: Cell::new(0),
        table: Table::default(),
        arguments,
    };
    let machine = table::machine(&bench.scratch)?;
    let begun = Instant::now();
    let mut rounds = 0;
    while rounds < bench.arguments.rounds && begun.elapsed() < LAST_ROUND {
        rounds += 1;
        bench
            .round(rounds)
            .with_context(|| format!("round {rounds}"))?;
    }
    let counted = bench.syncs().context("counting syncs")?;
    println!(
        "{} items with bodies of {} bytes, {} connections; best of {rounds} (in brackets the median); {machine}\n",
        bench.arguments.items, bench.arguments.bytes, bench.arguments.connections
    );
    println!("{}", bench.table);
    println!("{counted}");
    eprintln!(
        "ways_in: measured in {} s, cleaning up",
        begun.elapsed().as_secs()
    );
    bench.clean_up().context("cannot clean up")?;
    scratch.close().context("cannot clean up")?;
    eprintln!("ways_in: {} s in all", begun.elapsed().as_secs());
    Ok(())
}

struct Bench {
    arguments: Arguments,
    /// How many items are given to what starts a process an item.
    few: u32,
    scratch: PathBuf,
    /// How many directories there have been.
    places: Cell<u32>,
    table: Table,
}

impl Bench {
    /// Everything once.
    fn round(&mut self, round: u32) -> anyhow::Result<()> {
        let (items, few) = (self.arguments.items, self.few);
        let connections = self.arguments.connections;
        for (way, connections) in [
            (Way::BareOne, Connections::kept(1)),
            (Way::BareMany, Connections::kept(connections)),
            (Way::BareFresh, Connections::fresh(connections)),
        ] {
            let body = self.body();
            self.measure(way, round, |receiver, _| {
                bare::requests(&receiver.url(), &body, items, &connections)
            })?;
        }
        if child::is_there("curl") {
            let body = self.scratch.join("body");
            fs::write(&body, self.body())?;
            self.measure(Way::Curl, round, |receiver, _| {
                child::curl_loop(&receiver.url(), &body, few)
            })?;
        }
        self.spooled(round)?;
        self.dropped(round)
    }

    /// `enqueue` in its forms beside bare writes, and the drain of what one of them accepted.
    fn spooled(&mut self, round: u32) -> anyhow::Result<()> {
        let (items, few) = (self.arguments.items, self.few);
        let receiver = Receiver::start(self.arguments.connections)?;
        let program = Program::new(&self.new_place(), &receiver, self.arguments.connections)?;
        let lines = self.scratch.join("lines");
        fs::write(&lines, program.lines("bench", &self.body(), items, None)?)?;
        self.measure(Way::Batch, round, |_, _| program.batch(&lines, items))?;
        let sample = program.an_item()?;
        let tick = self.measure(Way::Tick, round, |_, _| program.tick(items))?;
        receiver.end()?.once(items)?;
        self.table.memory(tick.memory_kib);

        // Spools that are not drained; nothing listens.
        let body = self.scratch.join("body");
        fs::write(&body, self.body())?;
        let program = Program::unheard(&self.new_place(), self.arguments.connections)?;
        fs::write(
            &lines,
            program.lines("bench", &self.body(), items, Some("k-"))?,
        )?;
        self.measure(Way::BatchKeyed, round, |_, _| program.batch(&lines, items))?;
        let program = Program::unheard(&self.new_place(), self.arguments.connections)?;
        self.measure(Way::Start, round, |_, _| program.start_loop(few))?;
        self.measure(Way::Enqueue, round, |_, _| program.enqueue_loop(&body, few))?;

        self.measure(Way::WriteGroups, round, |_, scratch| {
            bare::write_groups(scratch, &sample, items)
        })?;
        self.measure(Way::WriteEach, round, |_, scratch| {
            bare::write_each(scratch, &sample, few)
        })?;
        Ok(())
    }

    /// A drop box that other programs have filled. The destination is held, so that the tick
    /// does nothing but take in.
    fn dropped(&mut self, round: u32) -> anyhow::Result<()> {
        let items = self.arguments.items;
        let program = Program::unheard(&self.new_place(), self.arguments.connections)?;
        program.fill_drop_box(&self.body(), items)?;
        self.measure(Way::TakeIn, round, |_, _| program.take_in(items))?;
        Ok(())
    }

    /// Measures one thing, with a receiver of its own, which must have had each request.
    fn measure(
        &mut self,
        way: Way,
        round: u32,
        act: impl FnOnce(&Receiver, &Path) -> anyhow::Result<Run>,
    ) -> anyhow::Result<Run> {
        let receiver = Receiver::start(self.arguments.connections)?;
        let room = self.new_place();
        fs::create_dir(&room)?;
        // What was written before is not to be paid for now.
        bare::sync(&self.scratch)?;
        let run = act(&receiver, &room).with_context(|| way.name())?;
        // Ways that have a receiver elsewhere, or none, count there.
        let expected = if way.sends_here() { run.items } else { 0 };
        let seen = receiver.end()?;
        seen.once(expected).with_context(|| way.name())?;
        eprintln!("ways_in: round {round}: {}: {run}", way.name());
        self.table.add(way, run);
        Ok(run)
    }

    /// Counts the syncs of a drain, in a run that is not timed.
    fn syncs(&self) -> anyhow::Result<String> {
        let items = self.arguments.items;
        if !child::is_there("strace") {
            return Ok("Syncs were not counted: strace is not there.".to_owned());
        }
        let receiver = Receiver::start(self.arguments.connections)?;
        let program = Program::new(&self.new_place(), &receiver, self.arguments.connections)?;
        let lines = self.scratch.join("lines");
        fs::write(&lines, program.lines("bench", &self.body(), items, None)?)?;
        program.batch(&lines, items)?;
        let counted = program.count_syncs(&self.scratch.join("calls"), items);
        receiver.end()?.once(items)?;
        Ok(match counted {
            Ok(counted) => format!("The tick syncs {counted} times for {items} items."),
            // A container may forbid it.
            Err(why) => format!("Syncs were not counted: {why:#}."),
        })
    }

    /// A path where nothing is yet. Nothing is removed before the end: ext4 looks past the files
    /// that were deleted in the last minutes, one by one, whenever it makes another.
    fn new_place(&self) -> PathBuf {
        let number = self.places.get();
        self.places.set(number + 1);
        self.scratch.join(number.to_string())
    }

    /// Removes what was made, all places at once: there are many small files.
    fn clean_up(&self) -> anyhow::Result<()> {
        thread::scope(|scope| {
            let places = 0..self.places.get();
            let paths = places.map(|number| self.scratch.join(number.to_string()));
            let removals: Vec<_> = paths
                .map(|path| scope.spawn(move || fs::remove_dir_all(path)))
                .collect();
            removals.into_iter().try_for_each(|removal| {
                let ended = removal.join();
                ended
                    .map_err(|_| anyhow!("a thread panicked"))?
                    .map_err(Into::into)
            })
        })
    }

    fn body(&self) -> String {
        format!(
            "{{\"pad\":\"{}\"}}",
            "x".repeat(self.arguments.bytes.saturating_sub(10))
        )
    }
}
