//! What was measured, as a table in Markdown.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;

/// One thing that is measured, in the order of the table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    BareMany,
    BareFresh,
    BareOne,
    Curl,
    Tick,
    WriteGroups,
    Batch,
    BatchKeyed,
    TakeIn,
    WriteEach,
    Start,
    Enqueue,
}

impl Way {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::BareMany => "bare loop, connections kept alive",
            Self::BareFresh => "the same, a new connection a request",
            Self::BareOne => "the same, one connection, kept alive",
            Self::Curl => "shell loop of `curl`",
            Self::Tick => "**`tickpost tick`**",
            Self::WriteGroups => "bare writes, one `syncfs` a 1,000 files",
            Self::Batch => "**`enqueue --batch`**",
            Self::BatchKeyed => "**`enqueue --batch`**, a `key` an item",
            Self::TakeIn => "**`tick`** takes in a drop box",
            Self::WriteEach => "bare writes, file and directory synced each",
            Self::Start => "nothing but starts: `tickpost --version`",
            Self::Enqueue => "**`enqueue`**, a process an item",
        }
    }

    /// Whether requests go to the receiver that is started for it.
    pub(crate) fn sends_here(self) -> bool {
        matches!(
            self,
            Self::BareMany | Self::BareFresh | Self::BareOne | Self::Curl
        )
    }

    /// What it is compared to.
    fn peer(self) -> Self {
        match self {
            Self::BareMany | Self::BareFresh | Self::BareOne | Self::Curl | Self::Tick => {
                Self::BareMany
            }
            Self::WriteGroups | Self::Batch | Self::BatchKeyed | Self::TakeIn => Self::WriteGroups,
            Self::WriteEach | Self::Start | Self::Enqueue => Self::WriteEach,
        }
    }
}

/// One measurement.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    pub(crate) items: u32,
    took: Duration,
    cpu: Duration,
    /// The most memory that it had, in KiB; 0 if that is not known.
    pub(crate) memory_kib: u64,
}

impl Run {
    pub(crate) fn new(items: u32, took: Duration) -> Self {
        Self {
            items,
            took,
            cpu: Duration::ZERO,
            memory_kib: 0,
        }
    }

    pub(crate) fn with_cpu(mut self, cpu: Duration) -> Self {
        self.cpu = cpu;
        self
    }

    pub(crate) fn rate(&self) -> f64 {
        f64::from(self.items) / self.took.as_secs_f64().max(1e-9)
    }

    pub(crate) fn cpu_us(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / f64::from(self.items.max(1))
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ms, rate) = (self.took.as_millis(), self.rate());
        write!(f, "{} items in {ms} ms, {rate:.0}/s", self.items)
    }
}

/// All measurements.
#[derive(Default)]
pub(crate) struct Table {
    runs: BTreeMap<Way, Vec<Run>>,
    memory_kib: u64,
}

impl Table {
    pub(crate) fn add(&mut self, way: Way, run: Run) {
        self.runs.entry(way).or_default().push(run);
    }

    /// Takes note of a drain's memory.
    pub(crate) fn memory(&mut self, kib: u64) {
        self.memory_kib = self.memory_kib.max(kib);
    }

    /// The best rate, the median rate, and the least processor time.
    fn of(&self, way: Way) -> Option<(f64, f64, f64)> {
        let runs = self.runs.get(&way)?;
        let mut rates: Vec<f64> = runs.iter().map(Run::rate).collect();
        rates.sort_by(f64::total_cmp);
        let cpu_us = runs.iter().map(Run::cpu_us).fold(f64::INFINITY, f64::min);
        Some((*rates.last()?, rates[(rates.len() - 1) / 2], cpu_us))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| | items tried | items/s | of the bare one above | CPU an item |"
        )?;
        writeln!(f, "|---|--:|--:|--:|--:|")?;
        for (way, runs) in &self.runs {
            let (Some((best, median, cpu_us)), Some((peer, ..))) =
                (self.of(*way), self.of(way.peer()))
            else {
                continue;
            };
            let items = runs.first().map_or(0, |run| run.items);
            let ratio = if *way == way.peer() {
                "1".to_owned()
            } else if best / peer < 0.1 {
                format!("{:.3}", best / peer)
            } else {
                format!("{:.2}", best / peer)
            };
            writeln!(
                f,
                "| {} | {} | {} ({}) | {ratio} | {} µs |",
                way.name(),
                thousands(f64::from(items)),
                thousands(best),
                thousands(median),
                thousands(cpu_us),
            )?;
        }
        let mib = self.memory_kib.div_ceil(1024);
        writeln!(f)?;
        write!(f, "The tick's memory peaks at {mib} MiB.")
    }
}

/// A number for people: `12,300`.
fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// What it was measured on.
pub(crate) fn machine(dir: &Path) -> anyhow::Result<String> {
    let cpus = std::thread::available_parallelism()?;
    let load = fs::read_to_string("/proc/loadavg")?;
    let load = load
        .split(' ')
        .next()
        .context("/proc/loadavg is empty")?
        .to_owned();
    let file_system = match rustix::fs::statfs(dir)?.f_type {
        0xef53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0x0102_1994 => "tmpfs, **so that no sync costs anything**",
        _ => "another file system",
    };
    Ok(format!(
        "{cpus} processors, {file_system}, load {load} before"
    ))
}
