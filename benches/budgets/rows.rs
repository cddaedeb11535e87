//! The rows of the budgets table, and how each is measured.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use crate::bare::Connections;
use crate::line::{Line, Side, median};
use crate::program::{Program, SYNCS, UNHEARD, told};
use crate::receiver::Receiver;
use crate::start::{Spent, Syncs};
use crate::{Bench, bare, body, child, large, peers};

/// Requests under way at once.
pub(crate) const CONNECTIONS: u32 = 16;

/// The same to a receiver that takes its time.
const MANY: u32 = 256;

/// How long that takes.
const SLOW: Duration = Duration::from_millis(50);

/// How often a program is started that is measured by the start, in each run of a pair.
const STARTS: u32 = 100;

/// Rows that are measured together.
pub(crate) struct Row {
    pub(crate) names: &'static [&'static str],
    /// Those that take a million items.
    pub(crate) long: &'static [&'static str],
    pub(crate) run: fn(&Bench, &[&str]) -> anyhow::Result<Vec<Line>>,
}

const fn row(
    names: &'static [&'static str],
    run: fn(&Bench, &[&str]) -> anyhow::Result<Vec<Line>>,
) -> Row {
    Row {
        names,
        long: &[],
        run,
    }
}

/// All rows.
pub(crate) const ALL: &[Row] = &[
    Row {
        long: &["growth-1000000", "memory-1000000"],
        ..row(
            &[
                "drain-1000",
                "drain-10000",
                "drain-100000",
                "cpu",
                "memory",
                "growth-10000",
                "growth-100000",
                "growth-1000000",
                "memory-1000000",
            ],
            drains,
        )
    },
    row(&["durable"], durable),
    row(&["slow-receiver"], slow),
    row(&["syncs"], syncs),
    row(&["empty", "empty-memory"], empty),
    row(&["enqueue", "enqueue-syncs"], enqueue),
    row(&["enqueue-16"], enqueue_at_once),
    row(&["batch"], batch),
    row(&["kill"], kill),
    row(&["dead"], dead),
    Row {
        long: large::NAMES,
        ..row(large::NAMES, large::all)
    },
    row(&["peers"], peers::all),
];

/// A row that is held against a budget.
pub(crate) fn line(
    name: &str,
    what: &'static str,
    unit: &'static str,
    (ours, bare): (&[f64], &[f64]),
    (side, must, aim): (Side, Option<f64>, Option<f64>),
) -> Line {
    let (name, ours, bare) = (name.to_owned(), ours.to_vec(), bare.to_vec());
    Line {
        name,
        what,
        unit,
        ours,
        bare,
        side,
        must,
        aim,
    }
}

pub(crate) const fn at_least(must: f64, aim: f64) -> (Side, Option<f64>, Option<f64>) {
    (Side::AtLeast, Some(must), Some(aim))
}

pub(crate) const fn at_most(must: f64, aim: f64) -> (Side, Option<f64>, Option<f64>) {
    (Side::AtMost, Some(must), Some(aim))
}

/// What lasts `ms` for so many items, in items a second.
fn rate(items: u32, ms: f64) -> f64 {
    f64::from(items) * 1e3 / ms
}

/// The drain of a new spool: what the tick cost.
fn drain(
    bench: &Bench,
    receiver: &Receiver,
    items: u32,
    connections: u32,
    syncs: Syncs,
) -> anyhow::Result<Spent> {
    let program = Program::new(&bench.new_place(), receiver, connections)?;
    bench.fill(&program, "bench", items)?;
    tick(bench, &program, items, syncs)
}

/// One tick, which must confirm so many.
pub(crate) fn tick(
    bench: &Bench,
    program: &Program,
    items: u32,
    syncs: Syncs,
) -> anyhow::Result<Spent> {
    let mut call = program.call();
    let (stdout, spent) = bench.starter.once(call.args(["--json", "tick"]), syncs)?;
    let confirmed = told(&stdout, "confirmed")?;
    ensure!(
        confirmed == u64::from(items),
        "{confirmed} of {items} were confirmed"
    );
    Ok(spent)
}

/// The same by a bare loop of requests, which has its client before the time begins.
fn requests(receiver: &Receiver, items: u32, connections: u32) -> anyhow::Result<(f64, f64)> {
    let run = bare::requests(
        &receiver.url(),
        &body(),
        items,
        &Connections::kept(connections),
    )?;
    Ok((run.rate(), run.cpu_us()))
}

/// Has a receiver for something, which must have sent it each item once.
fn heard<T>(
    items: u32,
    receiver: Receiver,
    act: impl FnOnce(&Receiver) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let done = act(&receiver)?;
    receiver.end()?.once(items)?;
    Ok(done)
}

/// What was measured with one number of items, a figure a pair.
#[derive(Default)]
struct Drained {
    rate: Vec<f64>,
    bare: Vec<f64>,
    cpu: Vec<f64>,
    bare_cpu: Vec<f64>,
    /// Microseconds an item.
    each: Vec<f64>,
    memory: Vec<f64>,
}

fn drains(bench: &Bench, wanted: &[&str]) -> anyhow::Result<Vec<Line>> {
    let mut sizes = BTreeSet::new();
    for name in wanted {
        sizes.extend::<&[u32]>(match *name {
            "drain-1000" => &[1000],
            "drain-10000" | "cpu" => &[10_000],
            "growth-10000" => &[1000, 10_000],
            "growth-100000" => &[1000, 100_000],
            "growth-1000000" => &[1000, 1_000_000],
            "memory-1000000" => &[100_000, 1_000_000],
            _ => &[100_000],
        });
    }
    let mut all: BTreeMap<u32, Drained> = BTreeMap::new();
    bench.pairs(|pair| {
        for size in &sizes {
            // A million takes minutes, and is done once.
            if pair > 0 && *size == 1_000_000 {
                continue;
            }
            let (items, of) = (bench.some(*size), all.entry(*size).or_default());
            let receiver = Receiver::start(CONNECTIONS)?;
            let spent = heard(items, receiver, |receiver| {
                drain(bench, receiver, items, CONNECTIONS, Syncs::Plain)
            })?;
            of.rate.push(rate(items, spent.ms));
            of.each.push(spent.ms * 1e3 / f64::from(items));
            of.cpu.push(spent.cpu_us / f64::from(items));
            of.memory.push(spent.memory_mib);
            bench.settle()?;
            let (rate, cpu) = heard(items, Receiver::start(CONNECTIONS)?, |receiver| {
                requests(receiver, items, CONNECTIONS)
            })?;
            of.bare.push(rate);
            of.bare_cpu.push(cpu);
        }
        Ok(())
    })?;
    let drain = "drain against a bare loop with the same 16 connections";
    let growth = "drain of so many, time an item, against 1,000";
    let mut lines = Vec::new();
    for name in wanted {
        let of = |size: u32| all.get(&size).context("a size was left out");
        let drained = |size| anyhow::Ok((of(size)?.rate.as_slice(), of(size)?.bare.as_slice()));
        let grown = |size| anyhow::Ok((of(size)?.each.as_slice(), of(1000)?.each.as_slice()));
        let memory = "peak memory of a tick with so many due";
        let row = match *name {
            "drain-1000" => line(name, drain, "/s", drained(1000)?, at_least(0.4, 0.7)),
            "drain-10000" => line(name, drain, "/s", drained(10_000)?, at_least(0.5, 0.85)),
            "drain-100000" => line(name, drain, "/s", drained(100_000)?, at_least(0.5, 0.85)),
            "cpu" => {
                let of = of(10_000)?;
                let what = "CPU an item of a drain of 10,000, against the bare loop's";
                line(name, what, "µs", (&of.cpu, &of.bare_cpu), at_most(2.5, 2.0))
            }
            "memory" => line(
                name,
                memory,
                "MiB",
                (&of(100_000)?.memory, &[]),
                at_most(24.0, 12.0),
            ),
            "growth-10000" => line(name, growth, "µs", grown(10_000)?, at_most(1.2, 1.2)),
            "growth-100000" => line(name, growth, "µs", grown(100_000)?, at_most(1.2, 1.2)),
            "growth-1000000" => line(name, growth, "µs", grown(1_000_000)?, at_most(1.2, 1.2)),
            _ => {
                let large = &of(1_000_000)?.memory;
                lines.push(line(name, memory, "MiB", (large, &[]), at_most(24.0, 24.0)));
                let what = "the same against 100,000 due";
                line(
                    name,
                    what,
                    "MiB",
                    (large, &of(100_000)?.memory),
                    at_most(1.25, 1.25),
                )
            }
        };
        lines.push(row);
    }
    Ok(lines)
}

fn durable(bench: &Bench, _: &[&str]) -> anyhow::Result<Vec<Line>> {
    let items = bench.some(10_000);
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    bench.pairs(|_| {
        for (syncs, rates) in [(Syncs::Kept, &mut ours), (Syncs::Dropped, &mut bare)] {
            let spent = heard(items, Receiver::start(CONNECTIONS)?, |receiver| {
                drain(bench, receiver, items, CONNECTIONS, syncs)
            })?;
            rates.push(rate(items, spent.ms));
        }
        Ok(())
    })?;
    let what =
        "drain of 10,000 against the same with every sync answered by a filter of system calls";
    Ok(vec![line(
        "durable",
        what,
        "/s",
        (&ours, &bare),
        at_least(0.9, 0.98),
    )])
}

fn slow(bench: &Bench, _: &[&str]) -> anyhow::Result<Vec<Line>> {
    let items = bench.some(10_000);
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    bench.pairs(|_| {
        let spent = heard(items, Receiver::slow(MANY, SLOW)?, |receiver| {
            drain(bench, receiver, items, MANY, Syncs::Plain)
        })?;
        ours.push(rate(items, spent.ms));
        bench.settle()?;
        let (rate, _) = heard(items, Receiver::slow(MANY, SLOW)?, |receiver| {
            requests(receiver, items, MANY)
        })?;
        bare.push(rate);
        Ok(())
    })?;
    let what =
        "drain of 10,000 to a receiver that takes 50 ms, 256 in flight, against the bare loop";
    Ok(vec![line(
        "slow-receiver",
        what,
        "/s",
        (&ours, &bare),
        at_least(0.95, 0.99),
    )])
}

fn syncs(bench: &Bench, _: &[&str]) -> anyhow::Result<Vec<Line>> {
    let items = bench.some(10_000);
    let mut ours = Vec::new();
    bench.pairs(|_| {
        let count = heard(items, Receiver::start(CONNECTIONS)?, |receiver| {
            let program = Program::new(&bench.new_place(), receiver, CONNECTIONS)?;
            bench.fill(&program, "bench", items)?;
            program.count_syncs(&bench.scratch.join("calls"), items)
        })?;
        ours.push(f64::from(u32::try_from(count)?));
        Ok(())
    })?;
    let what = "syncs in a drain of 10,000";
    Ok(vec![line(
        "syncs",
        what,
        "",
        (&ours, &[]),
        at_most(120.0, 60.0),
    )])
}

/// The middle wall time of so many starts, and the most memory.
pub(crate) fn starts(bench: &Bench, command: &Command, times: u32) -> anyhow::Result<(f64, f64)> {
    let (_, spent) = bench.starter.run(command, times, Syncs::Plain)?;
    let ms: Vec<f64> = spent.iter().map(|spent| spent.ms).collect();
    let memory = spent
        .iter()
        .map(|spent| spent.memory_mib)
        .fold(0.0, f64::max);
    Ok((median(&ms), memory))
}

/// `tickpost` with a spool and arguments.
pub(crate) fn call(program: &Program, arguments: &[&str]) -> Command {
    let mut call = program.call();
    call.args(arguments);
    call
}

fn empty(bench: &Bench, wanted: &[&str]) -> anyhow::Result<Vec<Line>> {
    let program = Program::unheard(&bench.new_place(), CONNECTIONS)?;
    let tick = call(&program, &["tick"]);
    // The first one makes what is made once.
    starts(bench, &tick, 1)?;
    let (mut ours, mut bare, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    bench.pairs(|_| {
        let (ms, mib) = starts(bench, &tick, bench.some(STARTS))?;
        ours.push(ms);
        memory.push(mib);
        bare.push(starts(bench, &child::command("true"), bench.some(STARTS))?.0);
        Ok(())
    })?;
    let what = "a tick with nothing at all against `/bin/true`";
    let of_memory = (Side::AtMost, Some(4.0), None);
    let mut lines = vec![
        line("empty", what, "ms", (&ours, &bare), at_most(2.0, 1.4)),
        line(
            "empty-memory",
            "peak memory of such a tick",
            "MiB",
            (&memory, &[]),
            of_memory,
        ),
    ];
    lines.retain(|line| wanted.contains(&line.name.as_str()));
    Ok(lines)
}

/// The call that hands in one item.
pub(crate) fn enqueue_call(
    bench: &Bench,
    program: &Program,
    destination: &str,
) -> anyhow::Result<Command> {
    let file = bench.scratch.join("body");
    fs::write(&file, body())?;
    let mut call = call(
        program,
        &["--quiet", "enqueue", destination, "--path", "/x"],
    );
    call.args(["--content-type", "application/json", "--file"]);
    call.arg(file);
    Ok(call)
}

fn enqueue(bench: &Bench, wanted: &[&str]) -> anyhow::Result<Vec<Line>> {
    let program = Program::unheard(&bench.new_place(), CONNECTIONS)?;
    let ours_call = enqueue_call(bench, &program, "bench")?;
    let bare_call = bench.write_call(&bench.sample()?)?;
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    // The first one makes the destination's directory.
    starts(bench, &ours_call, 1)?;
    bench.grow_old();
    bench.pairs(|_| {
        ours.push(starts(bench, &ours_call, bench.some(STARTS))?.0);
        bare.push(starts(bench, &bare_call, bench.some(STARTS))?.0);
        Ok(())
    })?;
    let arguments = ["--quiet", "enqueue", "bench", "--path", "/x", "--file"];
    let file = bench.scratch.join("body").display().to_string();
    let calls = bench.scratch.join("calls");
    let (_, syncs) = program.trace(&calls, SYNCS, &[&arguments[..], &[&file]].concat())?;
    let syncs = [f64::from(u32::try_from(syncs.len())?)];
    let what = "`enqueue`, a process an item, against a program in C that does those writes";
    let two = (Side::AtMost, Some(2.0), None);
    let mut lines = vec![
        line("enqueue", what, "ms", (&ours, &bare), at_most(1.3, 1.1)),
        line("enqueue-syncs", "its syncs", "", (&syncs, &[]), two),
    ];
    lines.retain(|line| wanted.contains(&line.name.as_str()));
    Ok(lines)
}

fn enqueue_at_once(bench: &Bench, _: &[&str]) -> anyhow::Result<Vec<Line>> {
    let program = Program::unheard(&bench.new_place(), CONNECTIONS)?;
    let ours_call = enqueue_call(bench, &program, "bench")?;
    let bare_call = bench.write_call(&bench.sample()?)?;
    let (loops, times) = (16, bench.some(STARTS) / 4);
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    // The first one makes the destination's directory.
    starts(bench, &ours_call, 1)?;
    bench.grow_old();
    bench.pairs(|_| {
        ours.push(bench.starter.at_once(&ours_call, loops, times)?);
        bare.push(bench.starter.at_once(&bare_call, loops, times)?);
        Ok(())
    })?;
    let what = "16 `enqueue` at once against 16 such programs";
    let budget = (Side::AtLeast, Some(0.8), None);
    Ok(vec![line("enqueue-16", what, "/s", (&ours, &bare), budget)])
}

fn batch(bench: &Bench, _: &[&str]) -> anyhow::Result<Vec<Line>> {
    let items = bench.some(10_000);
    let sample = fs::read(bench.sample()?)?;
    let lines = bench.scratch.join("lines");
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    bench.pairs(|_| {
        let program = Program::unheard(&bench.new_place(), CONNECTIONS)?;
        fs::write(&lines, program.lines("bench", &body(), items, None)?)?;
        bench.settle()?;
        ours.push(program.batch(&lines, items)?.rate());
        let place = bench.new_place();
        fs::create_dir(&place)?;
        bench.settle()?;
        bare.push(bare::write_groups(&place, &sample, items)?.rate());
        Ok(())
    })?;
    let what = "`enqueue --batch` of 10,000 against the same files with one `syncfs` a 1,000";
    Ok(vec![line(
        "batch",
        what,
        "/s",
        (&ours, &bare),
        at_least(0.7, 1.0),
    )])
}

/// Waits until something is so.
fn until(what: &str, mut is_so: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let begun = Instant::now();
    while !is_so()? {
        ensure!(
            begun.elapsed() < Duration::from_mins(2),
            "{what} for two minutes"
        );
        thread::park_timeout(Duration::from_millis(1));
    }
    Ok(())
}

/// How many files lie below a directory.
pub(crate) fn files(directory: &Path) -> anyhow::Result<u64> {
    let mut count = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        count += if entry.file_type()?.is_dir() {
            files(&entry.path())?
        } else {
            1
        };
    }
    Ok(count)
}

fn kill(bench: &Bench, _: &[&str]) -> anyhow::Result<Vec<Line>> {
    let items = bench.some(10_000);
    let mut most = 0;
    bench.pairs(|pair| {
        let receiver = Receiver::start(CONNECTIONS)?;
        let place = bench.new_place();
        let program = Program::new(&place, &receiver, CONNECTIONS)?;
        bench.fill(&program, "bench", items)?;
        let enough = u64::from(items * (pair + 1) / (bench.arguments.pairs + 1));
        let mut tick = program.call();
        let mut tick = tick.arg("tick").stdout(Stdio::null()).spawn()?;
        until("too few came", || {
            Ok(receiver.arrived() >= enough || tick.try_wait()?.is_some())
        })?;
        tick.kill()?;
        ensure!(
            !tick.wait()?.success(),
            "the tick ended before it was killed"
        );
        until("something was not sent", || {
            child::run(&mut call(&program, &["tick"]), 1)?;
            Ok(files(&place.join("pending"))? + files(&place.join("unknown"))? == 0)
        })?;
        let (requests, distinct) = receiver.end()?.counts();
        ensure!(
            distinct == u64::from(items),
            "{distinct} of {items} items came"
        );
        most = most.max(requests - distinct);
        Ok(())
    })?;
    let what = "kill -9 in a drain of 10,000, a kill a pair: sent twice at most, with 16 in flight";
    let budget = at_most(f64::from(CONNECTIONS), f64::from(CONNECTIONS));
    let most = [f64::from(u32::try_from(most)?)];
    Ok(vec![line("kill", what, "", (&most, &[]), budget)])
}

fn dead(bench: &Bench, _: &[&str]) -> anyhow::Result<Vec<Line>> {
    let (items, due) = (bench.some(1000), bench.some(100_000));
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    bench.pairs(|_| {
        for (due, times) in [(due, &mut ours), (0, &mut bare)] {
            let receiver = Receiver::start(CONNECTIONS)?;
            let program = Program::new(&bench.new_place(), &receiver, CONNECTIONS)?;
            program.add("dead", UNHEARD, CONNECTIONS)?;
            bench.fill(&program, "dead", due)?;
            bench.fill(&program, "bench", items)?;
            let begun = Instant::now();
            tick(bench, &program, items, Syncs::Plain)?;
            let seen = receiver.end()?;
            seen.once(items)?;
            let last = seen.last.context("nothing came")?;
            times.push(last.duration_since(begun).as_secs_f64() * 1e3);
        }
        Ok(())
    })?;
    let what = "until the last of 1,000 items came, beside a dead destination with 100,000 due, against alone";
    Ok(vec![line(
        "dead",
        what,
        "ms",
        (&ours, &bare),
        at_most(1.2, 1.05),
    )])
}
