//! `tick`: one pass over what is due.

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;

use super::check::{READS_MAX, due_by_place};
use super::exit::CliError;
use super::output::style_of;
use super::progress::Progress;
use super::table::{Cell, Column, Table};
use super::{Context, destination, output, times};
use crate::clock::{Clock as _, SystemClock};
use crate::config::Config;
use crate::engine::plan::{self, Step};
use crate::engine::report::{Report, StoppedBy};
use crate::engine::{AttemptLine, Engine, Options};
use crate::entropy;
use crate::model::event::EventKind;
use crate::model::state::State;
use crate::store::{Scope, Store, StoreError};
use crate::transport::Switch;

/// The table of `tick --dry-run`.
const STEPS: [Column; 6] = [
    Column::new("action", 0),
    Column::new("request id", 0),
    Column::new("destination", 1),
    Column::new("state", 4),
    Column::new("due", 3),
    Column::text("why", 2),
];

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tickpost tick --destination billing --limit 1 -v")]
pub(super) struct TickArgs {
    /// Only print what would be done, in which order, and what is skipped and why
    #[arg(long)]
    dry_run: bool,
    /// Only this destination
    #[arg(long, value_name = "DEST")]
    destination: Option<String>,
    /// At most so many attempts
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Begin no attempt later than this after the start, instead of the configured time
    #[arg(long, value_name = "SPAN", value_parser = times::span_ms)]
    max_runtime: Option<u64>,
    /// Wait so many seconds for the lock, if another tick runs
    #[arg(long, value_name = "SECS", default_value_t = 0)]
    wait: u64,
}

pub(super) fn run(context: &Context, arguments: &TickArgs) -> anyhow::Result<()> {
    let config = context.config()?;
    let store = context.store(&config)?;
    let only = match &arguments.destination {
        Some(text) => Some(destination(&config, text)?.name.clone()),
        None => None,
    };
    if arguments.dry_run {
        let now = SystemClock::new().now();
        let steps = plan::plan(&config, &store, only.as_ref(), arguments.limit, now)?;
        return print_plan(context, &steps);
    }
    let options = Options {
        destination: only,
        limit: arguments.limit,
        max_runtime_ms: arguments.max_runtime,
    };
    let stop = Arc::new(AtomicBool::new(false));
    // Asked a second time it ends at once: what was being sent is unknown, and the next tick says
    // so. Registered first, so that the first signal does not count as the second.
    signal_hook::flag::register_conditional_shutdown(
        signal_hook::consts::SIGINT,
        75,
        Arc::clone(&stop),
    )
    .context("cannot listen for signals")?;
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .context("cannot listen for signals")?;
    }
    // What cannot be counted stops no tick: if it matters, the tick itself says so.
    let total = if Progress::is_seen(context.out) {
        known_due(&store, &options).unwrap_or_default()
    } else {
        None
    };
    let progress = Progress::start(context.out, total, "attempts");
    let report = patiently(arguments.wait.saturating_mul(1000), &stop, || {
        pass(context, &config, &store, &options, &stop, &progress)
    })?;
    progress.done();
    print_report(context, &report)?;
    report
        .no_room
        .map_or(Ok(()), |room| Err(CliError::NoRoom(room).into()))
}

/// Tries again while somebody else owns the lock, at most `wait_ms`.
pub(super) fn patiently<T>(
    wait_ms: u64,
    stop: &AtomicBool,
    mut work: impl FnMut() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let clock = SystemClock::new();
    loop {
        match work() {
            Err(StoreError::Locked { .. })
                if clock.steady_ms() < wait_ms && !stop.load(Ordering::Relaxed) =>
            {
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
            other => return other,
        }
    }
}

/// How many items are due, as far as their places tell, and the first of those that no tick has
/// sorted yet; `None` if nothing is. Attempts may turn out to be fewer, where a destination is
/// suspended, and more, where something comes meanwhile.
fn known_due(store: &dyn Store, options: &Options) -> Result<Option<u64>, StoreError> {
    let now = SystemClock::new().now();
    let mut due = 0;
    let mut fresh = Vec::new();
    let scope = Scope {
        states: vec![State::Pending, State::Unknown],
        destination: options.destination.as_ref().map(ToString::to_string),
    };
    store.scan(&scope, &mut |found| {
        match due_by_place(&found.place) {
            _ if found.parked => {}
            Some(at) => due += u64::from(at <= now),
            None if found.state == State::Pending && fresh.len() < READS_MAX => {
                fresh.push(found.clone());
            }
            None => due += 1,
        }
        Ok(())
    })?;
    for found in fresh {
        let item = store.read(&found)?.and_then(Result::ok);
        due += u64::from(item.is_none_or(|item| item.is_due(now)));
    }
    let due = options.limit.map_or(due, |limit| limit.min(due));
    Ok((due > 0).then_some(due))
}

/// One tick with the real clock and the real network.
pub(super) fn pass(
    context: &Context,
    config: &Config,
    store: &dyn Store,
    options: &Options,
    stop: &AtomicBool,
    progress: &Progress,
) -> Result<Report, StoreError> {
    let clock = SystemClock::new();
    let mut transport = Switch::new(config, context.whole_root().into());
    let out = context.out;
    let mut watch = |line: &AttemptLine| {
        if out.verbose > 0 {
            out.say(&attempt_line(line, out.verbose > 1));
        }
        if line.event.event == EventKind::Attempt {
            progress.add(1);
        }
    };
    let said = std::cell::Cell::new(false);
    let asked_to_stop = || {
        let asked = stop.load(Ordering::Relaxed);
        if asked && !said.replace(true) && std::io::stderr().is_terminal() {
            progress.aside(|| {
                out.say(
                    "stopping: what is being sent may still be answered; Ctrl-C again ends at once",
                );
            });
        }
        progress.look();
        asked
    };
    Engine {
        config,
        store,
        clock: &clock,
        jitter: &mut entropy::jitter,
        stop: &asked_to_stop,
        watch: &mut watch,
    }
    .tick(&mut transport, options)
}

/// One line an attempt, with fixed keys.
fn attempt_line(line: &AttemptLine, details: bool) -> String {
    let event = &line.event;
    let word = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let mut text = format!(
        "id={} destination={} attempt={} outcome={} status={} verdict={} reason={} rule={} due={}",
        line.id,
        line.destination,
        event.n.unwrap_or(0),
        word(event.outcome.and_then(|outcome| {
            serde_json::to_value(outcome)
                .ok()?
                .as_str()
                .map(str::to_owned)
        })),
        word(event.status.map(|status| status.to_string())),
        event.state,
        word(event.reason.as_ref().map(ToString::to_string)),
        word(event.rule.clone()),
        word(event.due.map(|due| due.to_string())),
    );
    if let (true, Some(note)) = (details, &event.note) {
        text.push_str(" note=");
        text.push_str(&output::plain(note));
    }
    text
}

fn print_report(context: &Context, report: &Report) -> anyhow::Result<()> {
    for warning in &report.warnings {
        context.out.warn(&output::plain(warning));
    }
    if context.out.json {
        return context.out.json(report);
    }
    // cron mails what a job prints: nothing, when all went as it should.
    if !context.out.is_terminal() && context.out.verbose == 0 {
        return Ok(());
    }
    let attempts = if report.attempts == 1 {
        "attempt"
    } else {
        "attempts"
    };
    let mut parts = vec![format!("{} {attempts}", report.attempts)];
    for (count, word) in [
        (report.confirmed, "confirmed"),
        (report.pending, "pending again"),
        (report.unknown, "unknown"),
        (report.held, "held"),
        (report.failed, "failed"),
        (report.recovered, "recovered from a dead tick"),
        (report.released, "released"),
        (report.corrupt, "set aside as corrupt"),
        (report.left, "left for the next tick"),
        (report.pruned, "pruned"),
    ] {
        if count > 0 {
            parts.push(format!("{count} {word}"));
        }
    }
    let stopped = match report.stopped_by {
        StoppedBy::Done => "",
        StoppedBy::MaxRuntime => "; stopped by max_runtime",
        StoppedBy::Signal => "; stopped by a signal",
        StoppedBy::Limit => "; stopped by the limit",
        StoppedBy::NoRoom => "; stopped for want of room",
    };
    context.out.line(&format!(
        "{} ({}){stopped}",
        parts.join(", "),
        times::span(report.ms)
    ))
}

fn print_plan(context: &Context, steps: &[Step]) -> anyhow::Result<()> {
    if context.out.json {
        for step in steps {
            context.out.json(step)?;
        }
        return Ok(());
    }
    if steps.is_empty() {
        return context.out.line("nothing is due");
    }
    let mut table = Table::untitled(&STEPS);
    for step in steps {
        table.row(vec![
            Cell::new(step.action),
            Cell::new(step.request_id.to_string()),
            Cell::new(step.destination.as_str()),
            Cell::styled(step.state.to_string(), style_of(step.state)),
            Cell::new(times::local(step.due)),
            Cell::new(step.why.clone().unwrap_or_default()),
        ]);
    }
    context.out.table(&table)
}
