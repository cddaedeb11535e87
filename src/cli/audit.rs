//! `audit`: whether everything that was ever accepted is in one place, or pruned.

use std::collections::BTreeMap;

use serde::Serialize;

use super::exit::CliError;
use super::output::{self, style_of};
use super::own::{Owned, own};
use super::table::{Cell, Column, Table};
use super::{Context, times};
use crate::model::ids::{DestName, RequestId};
use crate::model::ledger::Listed;
use crate::model::state::State;
use crate::model::time::UnixMs;
use crate::store::audit::{Audit, Doubled};

const SUMS: [Column; 2] = [Column::new("", 0), Column::new("items", 0)];

const REQUESTERS: [Column; 7] = [
    Column::text("destination", 0),
    Column::text("requester", 0),
    Column::new("accepted", 1),
    Column::new("in a state", 3),
    Column::new("corrupt", 4),
    Column::new("pruned", 5),
    Column::new("missing", 2),
];

const MISSING: [Column; 4] = [
    Column::new("missing", 0),
    Column::text("destination", 1),
    Column::text("requester", 2),
    Column::new("accepted", 3),
];

const AFTER_HELP: &str = "\
Every id that was accepted stands in a ledger, log/accepted-DAY.jsonl. An audit looks for each in \
the five states, in corrupt/, and among the tombstones of what was pruned.

Exit codes: 0 every item is in one place or pruned, 1 one is missing or in two places, 75 a tick \
ran for longer than --wait.

Example:
  tickpost audit
    nothing is missing, and nothing is in two places
  tickpost --json audit --wait 5
    {\"at\":\"…\",\"accepted\":1,…,\"missing\":[],\"doubled\":[],…}";

#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct AuditArgs {
    /// Wait so many seconds for a running tick
    #[arg(long, value_name = "SECS", default_value_t = 60)]
    wait: u64,
}

pub(super) fn run(context: &Context, arguments: &AuditArgs) -> anyhow::Result<()> {
    let config = context.config()?;
    let store = context.store(&config)?;
    let Owned {
        mut session, now, ..
    } = own(&config, &store, arguments.wait)?;
    let audit = session.audit()?;
    session.close(now, None)?;
    if context.out.json {
        context.out.json(&Picture::of(&audit, now))?;
    } else {
        print(context, &audit)?;
    }
    if audit.is_clean() {
        Ok(())
    } else {
        Err(CliError::Said(1).into())
    }
}

/// The answer of `--json`, in the order of its fields.
#[derive(Serialize)]
struct Picture<'a> {
    at: UnixMs,
    accepted: u64,
    in_place: u64,
    states: BTreeMap<State, u64>,
    pruned: u64,
    corrupt: u64,
    unlisted: u64,
    without_ledger: u64,
    unreadable_lines: u64,
    missing: &'a [Listed],
    doubled: Vec<InPlaces<'a>>,
    by: Vec<ByRequester<'a>>,
}

#[derive(Serialize)]
struct InPlaces<'a> {
    request_id: RequestId,
    files: &'a [String],
}

#[derive(Serialize)]
struct ByRequester<'a> {
    destination: &'a DestName,
    principal: Option<&'a str>,
    accepted: u64,
    in_place: u64,
    pruned: u64,
    corrupt: u64,
    missing: u64,
}

impl<'a> Picture<'a> {
    fn of(audit: &'a Audit, now: UnixMs) -> Self {
        let in_places = |doubled: &'a Doubled| InPlaces {
            request_id: doubled.request_id,
            files: &doubled.places,
        };
        let by = audit.by.iter();
        let by = by.map(|((destination, principal), share)| ByRequester {
            destination,
            principal: principal.as_deref(),
            accepted: share.accepted,
            in_place: share.in_place,
            pruned: share.pruned,
            corrupt: share.corrupt,
            missing: share.missing,
        });
        Self {
            at: now,
            accepted: audit.accepted,
            in_place: audit.in_place(),
            states: State::ALL.map(|state| (state, count(audit, state))).into(),
            pruned: audit.pruned,
            corrupt: audit.corrupt,
            unlisted: audit.unlisted,
            without_ledger: audit.without_ledger,
            unreadable_lines: audit.unreadable_lines,
            missing: &audit.missing,
            doubled: audit.doubled.iter().map(in_places).collect(),
            by: by.collect(),
        }
    }
}

fn count(audit: &Audit, state: State) -> u64 {
    audit.states.get(&state).copied().unwrap_or(0)
}

fn print(context: &Context, audit: &Audit) -> anyhow::Result<()> {
    let out = context.out;
    out.line(&format!("spool {}", context.whole_root()))?;
    out.table(&sums(audit))?;
    if audit.by.len() > 1 || !audit.is_clean() {
        let mut table = Table::new(&REQUESTERS);
        for ((destination, principal), share) in &audit.by {
            table.row(vec![
                Cell::new(destination.as_str()),
                Cell::new(principal.as_deref().unwrap_or_default()),
                Cell::new(share.accepted.to_string()),
                Cell::new(share.in_place.to_string()),
                Cell::new(share.corrupt.to_string()),
                Cell::new(share.pruned.to_string()),
                Cell::new(share.missing.to_string()),
            ]);
        }
        out.line("")?;
        out.table(&table)?;
        out.line("")?;
    }
    if audit.unlisted > 0 {
        out.line(&format!(
            "{} in no ledger: accepted before there were ledgers, or listed in one that is past retention, or the line was lost with the power, with a process that died or on a full disk",
            verb(audit.unlisted, "item is", "items are")
        ))?;
    }
    if audit.without_ledger > 0 {
        let since = audit.ledgers_since.map_or_else(
            || "there is none at all".to_owned(),
            |at| format!("the first is of {}, UTC", at.calendar().format("%Y-%m-%d")),
        );
        out.line(&format!(
            "{} accepted on a day of which there is no ledger ({since}): what else was accepted then is not known, and cannot be said to be missing",
            verb(audit.without_ledger, "of them was", "of them were")
        ))?;
    }
    if audit.unreadable_lines > 0 {
        out.line(&format!(
            "{} of the ledgers cannot be read: what a loss of power leaves",
            verb(audit.unreadable_lines, "line", "lines")
        ))?;
    }
    print_missing(context, &audit.missing)?;
    for doubled in &audit.doubled {
        out.line(&output::plain(&in_places(doubled)))?;
        for place in &doubled.places {
            out.line(&format!("  {place}"))?;
        }
    }
    if !audit.doubled.is_empty() {
        out.line("no move leaves an item in two places: something else copied or renamed a file. `tickpost doctor --repair` keeps the one that knows more, and sets the other aside in corrupt/")?;
    }
    if audit.is_clean() {
        out.line(if audit.without_ledger == 0 {
            "nothing is missing, and nothing is in two places"
        } else {
            "nothing that a ledger lists is missing, and nothing is in two places"
        })?;
    }
    Ok(())
}

fn verb(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

fn sums(audit: &Audit) -> Table {
    let mut table = Table::untitled(&SUMS);
    table.row(vec![
        Cell::new("accepted"),
        Cell::new(audit.accepted.to_string()),
    ]);
    for state in State::ALL {
        let items = count(audit, state);
        let cell = Cell::new(items.to_string());
        let styled = Cell::styled(items.to_string(), style_of(state));
        table.row(vec![
            Cell::new(state.to_string()),
            if items == 0 { cell } else { styled },
        ]);
    }
    for (name, items) in [
        ("corrupt", audit.corrupt),
        ("pruned", audit.pruned),
        ("missing", audit.missing.len() as u64),
        ("in two places", audit.doubled.len() as u64),
        ("in no ledger", audit.unlisted),
    ] {
        table.row(vec![Cell::new(name), Cell::new(items.to_string())]);
    }
    table
}

fn print_missing(context: &Context, missing: &[Listed]) -> anyhow::Result<()> {
    let out = context.out;
    if missing.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(&MISSING);
    for listed in missing {
        table.row(vec![
            Cell::new(listed.request_id.to_string()),
            Cell::new(listed.destination.as_str()),
            Cell::new(listed.principal.as_deref().unwrap_or_default()),
            Cell::new(times::local(listed.at)),
        ]);
    }
    out.table(&table)?;
    out.line("missing: accepted, and in no state, not in corrupt/, and not pruned. No command deletes such an item: look for ID.jsonl in lost+found, in a backup and wherever the spool was copied to, and for the ID in files of other names in the directories of the states, which `tickpost doctor` lists (somebody may have renamed it); whether it was sent only its receiver can tell. What is still needed is enqueued anew")
}

fn in_places(doubled: &Doubled) -> String {
    let of = doubled.listed.as_ref().map_or(String::new(), |listed| {
        let requester = listed.principal.as_ref();
        format!(
            ", to {}{}, accepted {}",
            listed.destination,
            requester.map_or(String::new(), |name| format!(" for {name}")),
            times::local(listed.at)
        )
    });
    format!(
        "{} is in {} places{of}:",
        doubled.request_id,
        doubled.places.len()
    )
}
