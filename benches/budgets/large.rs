//! The rows of a spool with a million items waiting: what is not due costs nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::Context as _;

use crate::line::{Line, Side};
use crate::program::Program;
use crate::receiver::Receiver;
use crate::rows::{self, CONNECTIONS, at_most, call, enqueue_call, files, line};
use crate::start::Syncs;
use crate::{Bench, body, child, million};

/// Their names.
pub(crate) const NAMES: &[&str] = &[
    "million-empty",
    "million-empty-growth",
    "million-status",
    "million-list",
    "million-list-growth",
    "million-show",
    "million-show-growth",
    "million-enqueue",
    "million-enqueue-growth",
    "million-ten",
];

type Budget = (Side, Option<f64>, Option<f64>);

/// What is as fast there as elsewhere, within noise.
const EQUAL: Budget = at_most(1.2, 1.2);

/// What has no budget of its own in time.
const NONE: Budget = (Side::AtMost, None, None);

/// Those in milliseconds.
const TIMED: &[(&str, &str, Budget)] = &[
    (
        "million-empty",
        "a tick with 1,000,000 waiting, 1,000,000 confirmed, 100,000 held, 100,000 parked, against `/bin/true`",
        at_most(3.0, 2.0),
    ),
    (
        "million-empty-growth",
        "the same against 1,000 of each",
        EQUAL,
    ),
    (
        "million-status",
        "`status` there against one `getdents` pass",
        (Side::AtMost, Some(1.5), None),
    ),
    (
        "million-list-growth",
        "`list --state held --limit 20` there against 1,000 of each",
        NONE,
    ),
    (
        "million-show-growth",
        "`show` there against 1,000 of each",
        NONE,
    ),
    (
        "million-enqueue",
        "`enqueue` there against the program in C",
        at_most(1.3, 1.1),
    ),
    (
        "million-enqueue-growth",
        "the same against 1,000 of each",
        EQUAL,
    ),
    (
        "million-ten",
        "a tick there with 10 due against 1,000 of each",
        EQUAL,
    ),
];

/// How often a program is started in each run of a pair.
const STARTS: u32 = 20;

/// The command that looks at the held ones.
const LIST: [&str; 5] = ["list", "--state", "held", "--limit", "20"];

/// A spool and one of its held items.
struct Made {
    place: PathBuf,
    program: Program,
    held: String,
}

/// Makes a spool whose destination `live` is the receiver, and sends that one item.
fn made(bench: &Bench, items: u32, receiver: &Receiver) -> anyhow::Result<Made> {
    let place = bench.new_place();
    let program = million::make(&place, bench.some(items), &body())?;
    program.add("live", &receiver.base_url(), CONNECTIONS)?;
    bench.fill(&program, "live", 1)?;
    rows::tick(bench, &program, 1, Syncs::Plain)?;
    let held = a_held_id(&place)?;
    Ok(Made {
        place,
        program,
        held,
    })
}

/// The id of an item that is held.
fn a_held_id(spool: &Path) -> anyhow::Result<String> {
    let first = fs::read_dir(spool.join("held/d0"))?.find_map(|entry| {
        let name = entry.ok()?.file_name().into_string().ok()?;
        Some(name.strip_suffix(".jsonl")?.to_owned())
    });
    first.context("nothing is held")
}

/// The system calls of a command that open an item's file.
fn opens(bench: &Bench, program: &Program, arguments: &[&str]) -> anyhow::Result<f64> {
    let calls = bench.scratch.join("calls");
    let (_, lines) = program.trace(&calls, "open,openat,openat2", arguments)?;
    let is_item = |line: &&String| {
        let name = line
            .rsplit_once(".jsonl\"")
            .map_or("", |(before, _)| before);
        let name = name.rsplit(['/', '"']).next().unwrap_or_default();
        uuid::Uuid::try_parse(name).is_ok()
    };
    Ok(f64::from(u32::try_from(
        lines.iter().filter(is_item).count(),
    )?))
}

/// All of them.
pub(crate) fn all(bench: &Bench, wanted: &[&str]) -> anyhow::Result<Vec<Line>> {
    let receiver = Receiver::start(CONNECTIONS)?;
    let small = made(bench, 1000, &receiver)?;
    let large = made(bench, 1_000_000, &receiver)?;
    let ten = bench.some(10);
    let bare_write = bench.write_call(&bench.sample()?)?;
    bench.settle()?;
    bench.grow_old();
    let mut figures: BTreeMap<&str, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    let mut add = |name: &'static str, ours: f64, bare: f64| {
        let (all, bares) = figures.entry(name).or_default();
        all.push(ours);
        bares.push(bare);
    };
    let ms = |command: &Command| anyhow::Ok(rows::starts(bench, command, bench.some(STARTS))?.0);
    let of = |made: &Made, words: &[&str]| ms(&call(&made.program, words));
    bench.pairs(|_| {
        let ours = of(&large, &["tick"])?;
        add("million-empty", ours, ms(&child::command("true"))?);
        add("million-empty-growth", ours, of(&small, &["tick"])?);
        let ours = rows::starts(bench, &call(&large.program, &["status"]), 1)?.0;
        let begun = Instant::now();
        for state in ["pending", "unknown", "held", "confirmed", "failed"] {
            files(&large.place.join(state))?;
        }
        add("million-status", ours, begun.elapsed().as_secs_f64() * 1e3);
        add(
            "million-list-growth",
            of(&large, &LIST)?,
            of(&small, &LIST)?,
        );
        let ours = of(&large, &["show", &large.held])?;
        add(
            "million-show-growth",
            ours,
            of(&small, &["show", &small.held])?,
        );
        let enqueue = |made: &Made| {
            let mut call = enqueue_call(bench, &made.program, "d0")?;
            // Nothing of it is due in a later run.
            ms(call.args(["--not-before", "+4d"]))
        };
        let ours = enqueue(&large)?;
        add("million-enqueue", ours, ms(&bare_write)?);
        let bare = enqueue(&small)?;
        add("million-enqueue-growth", ours, bare);
        let due_ten = |made: &Made| {
            // What was just enqueued is filed first.
            of(made, &["--quiet", "tick"])?;
            bench.fill(&made.program, "live", ten)?;
            anyhow::Ok(rows::tick(bench, &made.program, ten, Syncs::Plain)?.ms)
        };
        add("million-ten", due_ten(&large)?, due_ten(&small)?);
        Ok(())
    })?;
    receiver.end()?.once(2 + 2 * ten * bench.arguments.pairs)?;
    let mut lines = Vec::new();
    for (name, what, budget) in TIMED {
        let (ours, bare) = figures.remove(name).context("a row was not measured")?;
        lines.push(line(name, what, "ms", (&ours, &bare), *budget));
    }
    for (name, what, words, most) in [
        (
            "million-list",
            "items opened by `list --state held --limit 20`",
            &LIST[..],
            20.0,
        ),
        (
            "million-show",
            "items opened by `show`",
            &["show", &large.held],
            1.0,
        ),
    ] {
        let opened = [opens(bench, &large.program, words)?];
        lines.push(line(
            name,
            what,
            "",
            (&opened, &[]),
            (Side::AtMost, Some(most), None),
        ));
    }
    lines.retain(|line| wanted.contains(&line.name.as_str()));
    Ok(lines)
}
