//! `status`: how a spool stands, without the lock.

use super::check::{self, CheckArgs};
use super::exit;
use super::output::{self, style_of};
use super::table::{Cell, Column, Table};
use super::{Context, times};
use crate::clock::{Clock as _, SystemClock};
use crate::config::Config;
use crate::intake;
use crate::model::ids::DestName;
use crate::model::state::State;
use crate::store::file::FileStore;
use crate::store::{Store as _, StoreError};
use crate::view::status::{Status, look};

/// The table.
const COUNTS: [Column; 7] = [
    Column::text("destination", 0),
    Column::new("pending", 1),
    Column::new("unknown", 2),
    Column::new("parked", 3),
    Column::new("held", 4),
    Column::new("confirmed", 6),
    Column::new("failed", 5),
];

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  tickpost status\n  tickpost status --check --tick-age 5m,30m\n    TICKPOST OK - … pending, last tick … ago | tick_age=…s;300;1800;0 …"
)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    check: CheckArgs,
}

pub(super) fn run(context: &Context, arguments: &StatusArgs) -> anyhow::Result<()> {
    if arguments.check.check {
        return check::run(context, &arguments.check);
    }
    let store = context.store_to_read()?;
    let config = context.config_if_any();
    let known: Vec<DestName> = config
        .as_ref()
        .map(|config| config.destinations.keys().cloned().collect())
        .unwrap_or_default();
    let configured = |name: &str| {
        config.as_ref().is_none_or(|config| {
            config
                .destinations
                .keys()
                .any(|known| known.as_str() == name)
        })
    };
    if let Err(error) = store.check_original() {
        context.out.warn(&exit::in_words(&error.into()));
    }
    let now = SystemClock::new().now();
    let status = look(&store, context.whole_root(), &configured, &known, now)?;
    if context.out.json {
        return context.out.json(&status);
    }
    let mut full = None;
    if let Some(config) = &config {
        full = full_of(config, &store)?;
    }
    print_status(context, &status, full.as_deref())
}

/// Why nothing is accepted now, if nothing is.
pub(super) fn full_of(config: &Config, store: &FileStore) -> Result<Option<String>, StoreError> {
    let limits = intake::limits(config);
    let room = store.room(limits.items_max.unwrap_or(0))?;
    Ok(match limits.fit(&room) {
        (0, Some(why)) => Some(intake::full(config, &why).to_string()),
        _ => None,
    })
}

fn print_status(context: &Context, status: &Status, full: Option<&str>) -> anyhow::Result<()> {
    let out = context.out;
    out.line(&format!("spool {}", status.spool))?;
    let mut table = Table::new(&COUNTS);
    let row = |name: &str, count: &dyn Fn(State) -> u64, parked: u64| {
        let cell = |state: State| {
            let n = count(state);
            // A nought is nothing to look at.
            if n == 0 {
                Cell::new("0")
            } else {
                Cell::styled(n.to_string(), style_of(state))
            }
        };
        vec![
            Cell::new(name),
            cell(State::Pending),
            cell(State::Unknown),
            Cell::new(parked.to_string()),
            cell(State::Held),
            cell(State::Confirmed),
            cell(State::Failed),
        ]
    };
    for (name, own) in &status.destinations {
        let count = |state| own.states.get(&state).copied().unwrap_or(0);
        table.row(row(name, &count, own.parked));
    }
    let count = |state| status.states.get(&state).copied().unwrap_or(0);
    table.row(row("all", &count, status.parked));
    out.table(&table)?;
    for note in destination_notes(status) {
        out.line(&output::plain(&note))?;
    }
    if let Some(full) = full {
        out.line(full)?;
    }
    if status.stopped_for_room() {
        out.line(check::STOPPED_FOR_ROOM)?;
    }
    if let Some(seconds) = status.oldest_pending_s {
        out.line(&format!(
            "the oldest pending item was accepted {} ago",
            times::span(seconds * 1000)
        ))?;
    }
    if status.parked > 0 {
        out.line(&format!(
            "{} parked: the receiver may have acted on it; look there, then `tickpost resolve` (`tickpost list --state unknown`)",
            status.parked
        ))?;
    }
    for (state, hint) in [
        (State::Held, "`tickpost list --state held` says why"),
        (State::Failed, "`tickpost list --state failed` says why"),
    ] {
        let items = count(state);
        if items > 0 {
            out.line(&format!("{items} {state}: {hint}"))?;
        }
    }
    if status.corrupt > 0 {
        out.line(&format!(
            "{} in corrupt/, each with its reason beside it in NAME.why.json; when you have dealt with one, remove it, and keep the reason: `tickpost audit` goes by it",
            status.corrupt
        ))?;
    }
    if let Some(seconds) = status.incoming_oldest_s {
        out.line(&format!(
            "{} in drop boxes, the oldest for {}; a tick takes them in, or says why it leaves one",
            status.incoming,
            times::span(seconds * 1000)
        ))?;
    }
    for path in status.unreadable.iter().take(NAMED_MAX) {
        out.line(&output::plain(path))?;
    }
    for path in status.foreign.iter().take(NAMED_MAX) {
        out.line(&format!("{} does not belong here", output::plain(path)))?;
    }
    let more = [&status.unreadable, &status.foreign].map(|all| all.len().saturating_sub(NAMED_MAX));
    if let more @ 1.. = more.iter().sum() {
        out.line(&format!("and {more} more; --json names all"))?;
    }
    out.line(&match status.ended_at() {
        Some(at) => format!(
            "the last tick ended {} ago",
            times::span(status.at.since(at))
        ),
        None => "no tick has run yet".to_owned(),
    })
}

/// How many files that do not belong here are named.
const NAMED_MAX: usize = 100;

/// What is to be said of destinations besides the counts.
fn destination_notes(status: &Status) -> Vec<String> {
    let mut notes = Vec::new();
    for (name, own) in &status.destinations {
        let count = |state| own.states.get(&state).copied().unwrap_or(0);
        if let Some(suspended) = &own.suspended {
            let tried = count(State::Pending) + count(State::Unknown).saturating_sub(own.parked);
            let until = match suspended.until {
                None => "until a person releases it".to_owned(),
                // Ticks try it with an item, and with none that is held.
                Some(at) if at <= status.at && tried == 0 => {
                    let way_out = if count(State::Held) > 0 {
                        format!(
                            " (`tickpost release --state held --destination {name}` gives back what is held)"
                        )
                    } else {
                        String::new()
                    };
                    format!("until the next item tries it{way_out}")
                }
                Some(at) if at <= status.at => "and the next tick tries it".to_owned(),
                Some(at) => format!("until {}", times::local(at)),
            };
            let note = own
                .suspended_note
                .as_ref()
                .map_or(String::new(), |note| format!(": {note}"));
            notes.push(format!(
                "{name}: suspended ({}) {until}{note}",
                suspended.reason
            ));
        }
        if let Some(hold) = &own.hold {
            let note = hold
                .note
                .as_ref()
                .map_or(String::new(), |note| format!(": {note}"));
            notes.push(format!(
                "{name}: held by {} since {}{note}",
                hold.by,
                times::local(hold.at)
            ));
        }
        if !own.configured {
            let waits = [State::Pending, State::Unknown, State::Held];
            let what = if waits.iter().any(|state| count(*state) > 0) {
                "its items stay where they are"
            } else {
                "nothing waits for it"
            };
            notes.push(format!("{name}: not configured; {what}"));
        }
    }
    notes
}
