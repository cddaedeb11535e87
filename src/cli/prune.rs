//! `prune`: everything past retention goes; and what `show` prints of an item that is gone.

use super::exit::CliError;
use super::output::{self, style_of};
use super::own::{Owned, own};
use super::{Context, times};
use crate::clock::{Clock as _, SystemClock};
use crate::engine;
use crate::model::tombstone::Tombstone;
use crate::store::{Pruned, Store as _};

/// So many items go between two looks at how far it is.
const STEP_ITEMS: usize = 4096;

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tickpost prune --dry-run")]
pub(super) struct PruneArgs {
    /// Only count what would be deleted
    #[arg(long)]
    dry_run: bool,
    /// Wait so many seconds for a running tick
    #[arg(long, value_name = "SECS", default_value_t = 60)]
    wait: u64,
}

pub(super) fn run(context: &Context, arguments: &PruneArgs) -> anyhow::Result<()> {
    let config = context.config()?;
    let store = context.store(&config)?;
    if arguments.dry_run {
        let clock = SystemClock::new();
        let pruned = store.prunable(&config.retention, clock.now())?;
        if let Some(why) = engine::clock_trust(&store, &clock)?.suspicion {
            context.out.warn(&format!("nothing would be pruned: {why}"));
            return report(context, &Pruned::default(), true);
        }
        return report(context, &pruned, true);
    }
    let Owned {
        mut session,
        now,
        trust,
    } = own(&config, &store, arguments.wait)?;
    let mut all = Pruned::default();
    let mut left = !trust.is_suspect();
    while left {
        let step = session.prune(&config.retention, now, STEP_ITEMS)?;
        all.items += step.items;
        all.kept += step.kept;
        all.tombstone_files += step.tombstone_files;
        all.ledger_files += step.ledger_files;
        all.tick_files += step.tick_files;
        left = step.left;
    }
    for warning in session.met().warnings() {
        context.out.warn(&output::plain(&warning));
    }
    session.close(now, None)?;
    report(context, &all, false)?;
    match trust.suspicion {
        None => Ok(()),
        Some(why) => Err(CliError::Partly(format!(
            "nothing was pruned: {why}; if the clock is right now, the next tick makes it count again"
        ))
        .into()),
    }
}

fn report(context: &Context, pruned: &Pruned, dry_run: bool) -> anyhow::Result<()> {
    let out = context.out;
    if out.json {
        return out.json(&serde_json::json!({
            "pruned": pruned.items,
            "kept": pruned.kept,
            "tombstone_files": pruned.tombstone_files,
            "ledger_files": pruned.ledger_files,
            "tick_files": pruned.tick_files,
            "dry_run": dry_run,
        }));
    }
    let count = |n: u64, one: &str, many: &str| {
        let word = if n == 1 { one } else { many };
        format!("{n} {word}")
    };
    let would = if dry_run { "would be " } else { "" };
    out.line(&format!(
        "{} {would}pruned",
        count(pruned.items, "item", "items")
    ))?;
    for (what, files) in [
        ("ledgers", pruned.ledger_files),
        ("logs of ticks", pruned.tick_files),
        ("tombstones", pruned.tombstone_files),
    ] {
        if files > 0 {
            let days = count(files, "day", "days");
            out.line(&format!("{what} of {days} {would}forgotten"))?;
        }
    }
    if pruned.kept > 0 {
        let items = count(pruned.kept, "item", "items");
        out.line(&format!(
            "{items} past retention left: in use just now, or not what the place says; the next time looks again"
        ))?;
    }
    Ok(())
}

/// What is kept of a pruned item.
pub(super) fn show(context: &Context, tombstone: &Tombstone) -> anyhow::Result<()> {
    let out = context.out;
    let at = tombstone.pruned_at;
    if out.json {
        return out.json(&serde_json::json!({
            "request_id": tombstone.request_id,
            "state": tombstone.state,
            "parked": false,
            "envelope": null,
            "events": [],
            "file": null,
            "next": format!("nothing: it was pruned on {at}"),
            "pruned": tombstone,
        }));
    }
    let style = style_of(tombstone.state);
    out.line(&format!(
        "{}  {style}{}{style:#}, pruned",
        tombstone.request_id, tombstone.state
    ))?;
    let field =
        |name: &str, value: &str| out.line(&format!("  {name:<12} {}", output::plain(value)));
    field("destination", tombstone.destination.as_str())?;
    if let Some(reason) = &tombstone.reason {
        field("reason", &format!("{reason}: {}", reason.explain()))?;
    }
    field("accepted", &times::local(tombstone.enqueued_at))?;
    field("settled", &times::local(tombstone.settled_at))?;
    field("pruned", &times::local(at))?;
    field("attempts", &tombstone.attempts.to_string())?;
    for (name, value) in [
        ("principal", &tombstone.principal),
        ("thread", &tombstone.thread),
        ("key", &tombstone.key),
        ("receipt", &tombstone.receipt),
    ] {
        if let Some(value) = value {
            field(name, value)?;
        }
    }
    for (name, value) in &tombstone.labels {
        field("label", &format!("{name}={value}"))?;
    }
    field("body", &format!("SHA-256 {}", tombstone.body_sha256))?;
    field(
        "next",
        "nothing: it was settled, and is gone but for these lines",
    )
}
