//! `doctor`: what is not as it should be in the spool; with `--repair`, what can be is mended; with
//! `--adopt`, a copied spool is made one of its own.
//!
//! What is called mended was looked at again and not found any more.

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;

use super::Context;
use super::adopt::{self, Adopted};
use super::exit::CliError;
use super::output;
use super::own::own;
use crate::clock::{Clock as _, SystemClock};
use crate::config::{Config, Destination};
use crate::model::ids::DestName;
use crate::model::time::UnixMs;
use crate::store::Store as _;
use crate::store::checkup::{Checkup, Finding, FindingKind};
use crate::store::disk::RealDisk;
use crate::store::file::FileStore;

/// So many findings of one kind are told to people.
const SHOWN_MAX: usize = 100;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  tickpost doctor\n    nothing found…\n  tickpost doctor --repair"
)]
pub(super) struct DoctorArgs {
    /// Mend what can be mended without guessing
    #[arg(long)]
    repair: bool,
    /// Make a copied or restored spool one of its own: all that waits in it is held or parked
    #[arg(long)]
    adopt: bool,
    /// Wait so many seconds for a running tick
    #[arg(long, value_name = "SECS", default_value_t = 60)]
    wait: u64,
}

/// A finding, and whether it was mended.
struct Told {
    finding: Finding,
    repaired: bool,
}

pub(super) fn run(context: &Context, arguments: &DoctorArgs) -> anyhow::Result<()> {
    if !arguments.repair && !arguments.adopt {
        let config = context.config_if_any();
        let store = context.store_to_read()?;
        let found = examine(&store, config.as_ref())?;
        return report(context, &told(found, &[]), false, None);
    }
    let config = context.config()?;
    let store = context.store(&config)?;
    let mut adopted = None;
    if arguments.adopt {
        store.check_owner()?;
        if adopt::is_copy(&store)? {
            adopted = Some(adopt::adopt(context, &store, arguments.wait)?);
        } else if arguments.repair {
            context.out.say("this spool is no copy: nothing is adopted");
        } else {
            return no_copy(context);
        }
    }
    // Its lock is another one now.
    let store = context.store(&config)?;
    if !arguments.repair {
        let found = examine(&store, Some(&config))?;
        return report(context, &told(found, &[]), false, adopted.as_ref());
    }
    let before = examine(&store, Some(&config))?;
    mend(&config, &store, arguments.wait)?;
    let after = examine(&store, Some(&config))?;
    report(context, &told(after, &before), true, adopted.as_ref())
}

fn no_copy(context: &Context) -> anyhow::Result<()> {
    if context.out.json {
        let at = SystemClock::new().now();
        return context
            .out
            .json(&serde_json::json!({"at": at, "adopted": null}));
    }
    context
        .out
        .line("this spool is no copy: there is nothing to adopt, and nothing was changed")
}

fn configured(config: &Config) -> BTreeSet<DestName> {
    config.destinations.keys().cloned().collect()
}

fn checkup(configured: Option<&BTreeSet<DestName>>) -> Checkup<'_> {
    Checkup {
        now: SystemClock::new().now(),
        configured,
    }
}

/// What is wrong. The secrets and certificates of the configuration may lie beside it, in the spool.
fn examine(store: &FileStore, config: Option<&Config>) -> anyhow::Result<Vec<Finding>> {
    let names = config.map(configured);
    let mut found = store.examine(&checkup(names.as_ref()))?;
    let destinations = config
        .iter()
        .flat_map(|config| config.destinations.values());
    let own: HashSet<PathBuf> = destinations
        .flat_map(Destination::files)
        .map(RealDisk::real)
        .collect();
    found.retain(|finding| {
        let path = RealDisk::real(&store.root().join(&finding.path));
        finding.kind != FindingKind::Foreign || !own.contains(&path)
    });
    Ok(found)
}

fn mend(config: &Config, store: &FileStore, wait_s: u64) -> anyhow::Result<()> {
    let names = configured(config);
    let mut owned = own(config, store, wait_s)?;
    owned.session.mend(&checkup(Some(&names)))?;
    // Claims that lay where no tick looks.
    owned.recover(config, store)?;
    Ok(owned.session.close(owned.now, None)?)
}

/// What is there now, and what was there before and is not any more.
fn told(now: Vec<Finding>, before: &[Finding]) -> Vec<Told> {
    let is_now: HashSet<(FindingKind, &str)> = now
        .iter()
        .map(|finding| (finding.kind, finding.path.as_str()))
        .collect();
    let gone = |finding: &&Finding| !is_now.contains(&(finding.kind, finding.path.as_str()));
    let mut all: Vec<Told> = before
        .iter()
        .filter(gone)
        .map(|finding| Told {
            finding: finding.clone(),
            repaired: true,
        })
        .collect();
    all.extend(now.into_iter().map(|finding| Told {
        finding,
        repaired: false,
    }));
    all.sort_by(|one, other| {
        let key = |told: &Told| (told.finding.kind, told.finding.path.clone());
        key(one).cmp(&key(other))
    });
    all
}

fn report(
    context: &Context,
    all: &[Told],
    repair: bool,
    adopted: Option<&Adopted>,
) -> anyhow::Result<()> {
    let left = all.iter().filter(|told| !told.repaired).count();
    if context.out.json {
        print_json(context, all, left, adopted)?;
    } else {
        print(context, all, repair, adopted)?;
    }
    if left == 0 {
        return Ok(());
    }
    Err(CliError::Said(1).into())
}

fn print_json(
    context: &Context,
    all: &[Told],
    left: usize,
    adopted: Option<&Adopted>,
) -> anyhow::Result<()> {
    let found: Vec<serde_json::Value> = all
        .iter()
        .map(|told| {
            let finding = &told.finding;
            let mut value = serde_json::json!({
                "kind": finding.kind.as_str(),
                "path": finding.path,
                "what": finding.what,
                "next": next(told),
                "repaired": told.repaired,
            });
            if let Some(id) = finding.request_id {
                value["request_id"] = serde_json::json!(id);
            }
            value
        })
        .collect();
    let at: UnixMs = SystemClock::new().now();
    let mut value = serde_json::json!({
        "at": at,
        "clean": left == 0,
        "repaired": all.len() - left,
        "found": found,
    });
    if let Some(adopted) = adopted {
        value["adopted"] = serde_json::json!({"held": adopted.held, "parked": adopted.parked});
    }
    context.out.json(&value)
}

/// What is done, was done, or has to be.
fn next(told: &Told) -> String {
    let next = &told.finding.next;
    if told.repaired {
        "mended".to_owned()
    } else if told.finding.mendable {
        format!("`tickpost doctor --repair`: {next}")
    } else {
        next.clone()
    }
}

fn print(
    context: &Context,
    all: &[Told],
    repair: bool,
    adopted: Option<&Adopted>,
) -> anyhow::Result<()> {
    let out = context.out;
    if let Some(adopted) = adopted {
        adopt::print(context, adopted)?;
    }
    for group in all.chunk_by(|one, other| one.finding.kind == other.finding.kind) {
        for told in group.iter().take(SHOWN_MAX) {
            let Finding {
                kind, path, what, ..
            } = &told.finding;
            let kind = kind.as_str();
            let text = format!("{kind:<13} {path}: {what}; {}", next(told));
            out.line(&output::plain(&text))?;
        }
        if let (Some(more @ 1..), Some(first)) = (group.len().checked_sub(SHOWN_MAX), group.first())
        {
            let kind = first.finding.kind.as_str();
            out.line(&format!("{kind:<13} and {more} more; --json names all"))?;
        }
    }
    let count = |wanted: &dyn Fn(&Told) -> bool| all.iter().filter(|told| wanted(told)).count();
    let mended = count(&|told| told.repaired);
    let mendable = count(&|told| !told.repaired && told.finding.mendable);
    let person = count(&|told| !told.repaired && !told.finding.mendable);
    let text = match (mended, mendable + person) {
        (0, 0) => "nothing found".to_owned(),
        (_, 0) => format!("{mended} found, all mended"),
        _ if repair => format!("{mended} mended, {} left for a person", mendable + person),
        _ => format!("{mendable} found that --repair mends, {person} for a person"),
    };
    out.line(&text)
}
