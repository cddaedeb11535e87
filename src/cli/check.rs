//! `status --check`: the spool's standing as a monitor wants it, in one line and an exit code.
//!
//! The line and the code are those of a Nagios plugin, which most monitors understand. What is
//! wrong is decided in `judge`, which reads no clock and no spool.

mod judge;

use std::path::Path;

use rustix::fs::{StatVfsMountFlags, statvfs};
use serde_json::json;

use self::judge::{Level, Limit, Limits, Problem, Values, all_is_well, judge, perfdata, waiting};
use super::exit::{self, CliError};
use super::{Context, output, times};
use crate::clock::{Clock as _, SystemClock};
use crate::config::Config;
use crate::model::event::EventKind;
use crate::model::ids::DestName;
use crate::model::notice::may_be_notice;
use crate::model::state::State;
use crate::model::time::{DAY_MS, MINUTE_MS, UnixMs, id_time};
use crate::store::checkup::Finding;
use crate::store::file::FileStore;
use crate::store::{Found, Scope, Store, StoreError};
use crate::view::status::{Status, look};

/// How many items that no tick has sorted yet are read to learn when they are due.
pub(super) const READS_MAX: usize = 1000;

/// After so many attempts in vain a notice counts as not told though it is tried again: one may be
/// an accident, and a program that is not there may be tried for days.
const TRIES_LATE: u32 = 2;

/// The states of what has not reached its destination, or is not known to have.
const NOT_THERE: [State; 4] = [State::Pending, State::Unknown, State::Held, State::Failed];

/// What is said while the last tick had no room.
pub(super) const STOPPED_FOR_ROOM: &str = "the last tick stopped for want of room on the disk: nothing more is sent, and nothing taken in, until a tick finds room";

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "For monitoring")]
pub(super) struct CheckArgs {
    /// Answer a monitor: one line, and exit code 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN. CRITICAL
    /// without an option: no tick can run, no room, the spool's user kept out of a part of it
    #[arg(long)]
    pub(super) check: bool,
    /// How long ago the last tick ended (where none ever ran: the spool was made). Here and below,
    /// a value above WARN is a warning, one above CRIT critical; `off` ignores it
    #[arg(
        long,
        value_name = "WARN[,CRIT]",
        requires = "check",
        default_value = "15m,1h"
    )]
    tick_age: String,
    /// How long a pending item has been due
    #[arg(
        long,
        value_name = "WARN[,CRIT]",
        requires = "check",
        default_value = "1h,1d"
    )]
    pending_age: String,
    /// Unknown items that only a person can settle
    #[arg(
        long,
        value_name = "WARN[,CRIT]",
        requires = "check",
        default_value = "0"
    )]
    parked: String,
    /// Items that are held
    #[arg(
        long,
        value_name = "WARN[,CRIT]",
        requires = "check",
        default_value = "0"
    )]
    held: String,
    /// Files that were set aside as unreadable
    #[arg(
        long,
        value_name = "WARN[,CRIT]",
        requires = "check",
        default_value = "0"
    )]
    corrupt: String,
    /// Destinations that are suspended, by ticks or by an operator
    #[arg(
        long,
        value_name = "WARN[,CRIT]",
        requires = "check",
        default_value = "0"
    )]
    suspended: String,
    /// Items that wait for a destination that is not in the configuration
    #[arg(
        long,
        value_name = "WARN[,CRIT]",
        requires = "check",
        default_value = "0"
    )]
    unconfigured: String,
    /// How long something has been in a drop box
    #[arg(
        long,
        value_name = "WARN[,CRIT]",
        requires = "check",
        default_value = "15m,1d"
    )]
    incoming_age: String,
    /// Items, above all notices, that did not reach an address of notices: failed, held or parked
    /// there, or notices that were tried twice in vain
    #[arg(
        long,
        value_name = "WARN[,CRIT]",
        requires = "check",
        default_value = "0"
    )]
    untold: String,
    /// Items that have failed
    #[arg(
        long,
        value_name = "WARN[,CRIT]",
        requires = "check",
        default_value = "off"
    )]
    failed: String,
}

/// The limits that are asked for.
fn limits(arguments: &CheckArgs) -> Result<Limits, String> {
    let count = |option: &str, text: &str| Limit::parse(option, text, whole);
    Ok(Limits {
        tick_age: Limit::parse("tick-age", &arguments.tick_age, times::span_ms)?,
        pending_age: Limit::parse("pending-age", &arguments.pending_age, times::span_ms)?,
        parked: count("parked", &arguments.parked)?,
        held: count("held", &arguments.held)?,
        corrupt: count("corrupt", &arguments.corrupt)?,
        suspended: count("suspended", &arguments.suspended)?,
        unconfigured: count("unconfigured", &arguments.unconfigured)?,
        incoming_age: Limit::parse("incoming-age", &arguments.incoming_age, times::span_ms)?,
        untold: count("untold", &arguments.untold)?,
        failed: count("failed", &arguments.failed)?,
    })
}

fn whole(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| "it is not a whole number; write WARN, WARN,CRIT, or off".to_owned())
}

/// The answer to a command line that cannot be understood. Returns the exit code.
pub(super) fn wrong_usage(error: &clap::Error) -> u8 {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    output::bare_line(&format!(
        "TICKPOST {} - {}",
        Level::Unknown.word(),
        one_line(first)
    ));
    Level::Unknown as u8
}

pub(super) fn run(context: &Context, arguments: &CheckArgs) -> anyhow::Result<()> {
    let unknown = |text: String| {
        let problem = Problem {
            level: Level::Unknown,
            what: "spool",
            text,
        };
        (vec![problem], None)
    };
    let (problems, seen) = match limits(arguments) {
        Err(why) => unknown(why),
        Ok(limits) => match gather(context) {
            Ok(values) => (judge(&values, &limits), Some((values, limits))),
            Err(error) => unknown(exit::in_words(&error)),
        },
    };
    let level = problems.first().map_or(Level::Ok, |problem| problem.level);
    if context.out.json {
        context.out.json(&json!({
            "level": level,
            "problems": problems,
            "values": seen.as_ref().map(|(values, _)| json!({
                "tick_age_s": values.tick_age / 1000,
                "has_ticked": values.has_ticked,
                "pending_age_s": values.pending_age / 1000,
                "parked": values.parked,
                "held": values.held,
                "corrupt": values.corrupt,
                "suspended": values.suspended.len(),
                "unconfigured": waiting(values),
                "incoming_age_s": values.incoming_age / 1000,
                "untold": judge::untold(values),
                "pending": values.pending,
                "unknown": values.unknown,
                "confirmed": values.confirmed,
                "failed": values.failed,
            })),
        }))?;
    } else {
        let texts: Vec<&str> = problems.iter().map(|p| p.text.as_str()).collect();
        let mut said = texts.join("; ");
        let mut measured = String::new();
        if let Some((values, limits)) = &seen {
            if problems.is_empty() {
                said = all_is_well(values);
            }
            measured = format!(" | {}", perfdata(values, limits));
        }
        let said = one_line(&said);
        context
            .out
            .line(&format!("TICKPOST {} - {said}{measured}", level.word()))?;
    }
    match level {
        Level::Ok => Ok(()),
        Level::Warning | Level::Critical | Level::Unknown => {
            Err(CliError::Said(level as u8).into())
        }
    }
}

/// Text on one line, without the bar that ends it for a monitor.
fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    output::plain(&words.join(" ")).replace('|', "/")
}

fn gather(context: &Context) -> anyhow::Result<Values> {
    let store = context.store_to_read()?;
    let now = SystemClock::new().now();
    let (config, mut no_tick) = match Config::load(&context.config_path()) {
        Ok(config) => (Some(config), None),
        Err(error) => (None, Some(error.to_string())),
    };
    if let Err(error) = store.check_original() {
        no_tick = no_tick.or(Some(exit::in_words(&error.into())));
    }
    if no_tick.is_none() && is_read_only(&context.root()) {
        no_tick = Some(format!(
            "the file system of {} is read-only; look at the kernel's log, mend it, and mount it again",
            context.root().display()
        ));
    }
    let mut full = None;
    if let Some(config) = &config {
        full = super::status::full_of(config, &store)?;
    }
    let known: Vec<DestName> = config
        .iter()
        .flat_map(|config| config.destinations.keys().cloned())
        .collect();
    // Without a configuration nobody can say which destinations are gone.
    let configured =
        |name: &str| config.is_none() || known.iter().any(|known| known.as_str() == name);
    let status = look(&store, String::new(), &configured, &known, now)?;
    let ended_at = status.ended_at();
    let count = |state| status.states.get(&state).copied().unwrap_or(0);
    Ok(Values {
        tick_age: now.since(ended_at.unwrap_or(store.created_at())),
        has_ticked: ended_at.is_some(),
        tick_ahead: ended_at.map_or(0, |at| at.since(now)),
        pending_age: pending_age(&store, now)?,
        pending: count(State::Pending),
        unknown: count(State::Unknown),
        parked: status.parked,
        held: count(State::Held),
        confirmed: count(State::Confirmed),
        failed: count(State::Failed),
        corrupt: status.corrupt,
        suspended: suspended(&status),
        unconfigured: unconfigured(&status),
        incoming_age: status.incoming_oldest_s.unwrap_or(0) * 1000,
        untold: untold(&store, &status, config.as_ref())?,
        unreadable: status.unreadable.clone(),
        foreign: status.foreign.clone(),
        left_by_tick: status.left_by_tick(),
        stopped_for_room: status.stopped_for_room(),
        no_tick,
        full,
        barred: barred(&store)?,
    })
}

/// What of the spool's own its user cannot use, with the way out.
fn barred(store: &FileStore) -> Result<Vec<String>, StoreError> {
    let in_words = |one: Finding| format!("{} {} ({})", one.path, one.what, one.next);
    Ok(store.barred()?.into_iter().map(in_words).collect())
}

/// Whether nobody can write to a file system: the kernel turns it so where it does not trust the disk
/// any more.
fn is_read_only(path: &Path) -> bool {
    statvfs(path).is_ok_and(|stat| stat.f_flag.contains(StatVfsMountFlags::RDONLY))
}

fn suspended(status: &Status) -> Vec<String> {
    let cause = |(name, own): (&String, &crate::view::status::DestinationStatus)| {
        let by_tick = own
            .suspended
            .as_ref()
            .map(|suspended| match &own.suspended_note {
                Some(note) => format!("{}: {note}", suspended.reason),
                None => suspended.reason.to_string(),
            });
        let by_person = own.hold.as_ref().map(|hold| format!("held by {}", hold.by));
        by_person.or(by_tick).map(|why| format!("{name} ({why})"))
    };
    status.destinations.iter().filter_map(cause).collect()
}

/// Those who are to be told, and how many items did not reach them: of a destination that
/// `[notify]` names all that failed or wait for a person, of others, which items name for
/// themselves, the notices; of each also the notices that are tried in vain.
fn untold(
    store: &FileStore,
    status: &Status,
    config: Option<&Config>,
) -> Result<Vec<(String, u64)>, StoreError> {
    let told: Vec<&DestName> = config
        .iter()
        .flat_map(|config| &config.notify.destinations)
        .collect();
    let mut untold = Vec::new();
    for (name, own) in &status.destinations {
        let count = |state| own.states.get(&state).copied().unwrap_or(0);
        if NOT_THERE.map(count).iter().sum::<u64>() == 0 {
            continue;
        }
        let is_told = told.iter().any(|told| told.as_str() == name);
        let items = undelivered(store, name, is_told)?;
        if items > 0 {
            untold.push((name.clone(), items));
        }
    }
    Ok(untold)
}

/// How many items of a destination did not get there, those not counted that a person has given
/// up: all of them, or the notices alone; and of what is tried again the notices that are late. Of
/// very many items all count that are not read, of very many that may be notices none.
fn undelivered(store: &FileStore, name: &str, all: bool) -> Result<u64, StoreError> {
    let scope = Scope {
        states: NOT_THERE.to_vec(),
        destination: Some(name.to_owned()),
    };
    let (mut found, mut tried) = (Vec::new(), Vec::new());
    store.scan(&scope, &mut |item| {
        let may_be_notice = may_be_notice(item.id);
        let is_tried = match item.state {
            State::Pending => true,
            State::Unknown => !item.parked,
            State::Held | State::Confirmed | State::Failed => false,
        };
        if is_tried && may_be_notice {
            tried.push(item.clone());
        } else if !is_tried && (all || may_be_notice) {
            found.push(item.clone());
        }
        Ok(())
    })?;
    let mut items = if all { found.len() as u64 } else { 0 };
    for one in found.iter().take(READS_MAX) {
        let Some(item) = store.read(one)?.and_then(Result::ok) else {
            continue;
        };
        let by_person = [EventKind::Cancelled, EventKind::Resolved];
        let given_up = item
            .events
            .last()
            .is_some_and(|event| by_person.contains(&event.event));
        if all {
            items -= u64::from(given_up);
        } else {
            items += u64::from(item.envelope.notice && !given_up);
        }
    }
    for one in tried.iter().take(READS_MAX) {
        if let Some(Ok(item)) = store.read(one)? {
            let late = item.standing().last_n >= TRIES_LATE;
            items += u64::from(item.envelope.notice && late);
        }
    }
    Ok(items)
}

fn unconfigured(status: &Status) -> Vec<(String, u64)> {
    let waits = [State::Pending, State::Unknown, State::Held];
    let gone = status
        .destinations
        .iter()
        .filter(|(_, own)| !own.configured);
    gone.map(|(name, own)| {
        let items = waits.iter().filter_map(|state| own.states.get(state)).sum();
        (name.clone(), items)
    })
    .filter(|(_, items)| *items > 0)
    .collect()
}

/// How long the pending item has been due that has been due longest, in milliseconds; never
/// more than the truth. Sorted items tell by their place; only others are read, oldest first.
fn pending_age(store: &FileStore, now: UnixMs) -> Result<u64, StoreError> {
    let mut longest = 0;
    let mut fresh: Vec<(Option<UnixMs>, Found)> = Vec::new();
    let scope = Scope {
        states: vec![State::Pending],
        destination: None,
    };
    store.scan(&scope, &mut |found| {
        match due_by_place(&found.place) {
            Some(due) => longest = longest.max(now.since(due)),
            None => fresh.push((id_time(found.id), found.clone())),
        }
        Ok(())
    })?;
    // A caller's own id may tell no time, and then comes first.
    fresh.sort_by_key(|(at, _)| *at);
    for (at, found) in fresh.into_iter().take(READS_MAX) {
        if at.is_some_and(|at| now.since(at) <= longest) {
            break;
        }
        if let Some(Ok(item)) = store.read(&found)? {
            let accepted = item.envelope.enqueued_at;
            let due = item.standing().due.unwrap_or(accepted).max(accepted);
            longest = longest.max(now.since(due));
        }
    }
    Ok(longest)
}

/// When an item in this place is due at the latest. `None` if its place does not tell.
pub(super) fn due_by_place(place: &str) -> Option<UnixMs> {
    let slot = place.split('/').nth(2)?;
    let minute = UnixMs::from_minute_name(slot).map(|at| at.plus(MINUTE_MS));
    minute.or_else(|| UnixMs::from_day_name(slot).map(|at| at.plus(DAY_MS)))
}

#[cfg(test)]
mod tests;
