//! `wait`: until items are settled, held or parked.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use super::exit::CliError;
use super::output::style_of;
use super::progress::Progress;
use super::select::{self, Located};
use super::{Context, times};
use crate::clock::{Clock as _, SystemClock};
use crate::model::ids::RequestId;
use crate::model::reason::Reason;
use crate::model::state::State;
use crate::store::file::FileStore;
use crate::store::{Found, Scope, Store, StoreError};

/// The pause between two looks: the first, and the longest. It grows by half each time.
const PAUSE_MS: (u64, u64) = (50, 2000);

/// Of more items than this all places are listed once, instead of looking each one up.
const LOOKUPS_MAX: usize = 16;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Prints `ID STATE REASON` for each item as it ends. Exit codes: 0 all are confirmed, 1 one is \
                  failed, held or parked, 75 the time is over.\n\nExample:\n  tickpost wait 019adf3e --timeout 5m\n    019adf3e-… confirmed accepted"
)]
pub(super) struct WaitArgs {
    /// Request ids, or unique beginnings of them; - reads ids from standard input
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    /// Wait no longer than this, for example 90s or 5m [default: no limit]
    #[arg(long, value_name = "SPAN", value_parser = times::span_ms)]
    timeout: Option<u64>,
}

/// What an item that is waited for came to.
enum Came {
    /// It waits, or is being sent.
    Open(Found),
    /// It is settled, held or parked.
    Ended(Found, Option<Reason>),
    /// It is in none of the states any more.
    Vanished(anyhow::Error),
}

pub(super) fn run(context: &Context, arguments: &WaitArgs) -> anyhow::Result<()> {
    let store = context.store_to_read()?;
    let clock = SystemClock::new();
    let mut open = named(&store, &arguments.ids)?;
    let progress = Progress::start(context.out, Some(open.len() as u64), "items have ended");
    let mut ill = 0;
    let mut vanished = Vec::new();
    let mut pause_ms = PAUSE_MS.0;
    loop {
        let mut left = Vec::new();
        let mut over = HashSet::new();
        for (id, came) in look(&store, &open)? {
            match came {
                Came::Open(found) => {
                    left.push(found);
                    continue;
                }
                Came::Ended(found, reason) => {
                    ill += u64::from(found.state != State::Confirmed);
                    progress.aside(|| print(context, &found, reason.as_ref(), true))?;
                }
                Came::Vanished(why) => vanished.push(format!("{why:#}")),
            }
            over.insert(id);
            progress.add(1);
        }
        open.retain(|id| !over.contains(id));
        if left.is_empty() {
            break;
        }
        let spent_ms = clock.steady_ms();
        let rest_ms = arguments
            .timeout
            .map(|limit| limit.saturating_sub(spent_ms));
        if rest_ms == Some(0) {
            progress.done();
            return Err(timed_out(context, &left, &vanished)?);
        }
        progress.look();
        std::thread::sleep(Duration::from_millis(
            pause_ms.min(rest_ms.unwrap_or(u64::MAX)),
        ));
        pause_ms = (pause_ms + pause_ms / 2).min(PAUSE_MS.1);
    }
    progress.done();
    if !vanished.is_empty() {
        return Err(CliError::NoInput(vanished.join("\n")).into());
    }
    match ill {
        0 => Ok(()),
        1 => Err(CliError::Partly("1 item was not confirmed".to_owned()).into()),
        n => Err(CliError::Partly(format!("{n} items were not confirmed")).into()),
    }
}

/// The items that are named, each once. Nothing is waited for if one of them is not there.
fn named(store: &FileStore, texts: &[String]) -> anyhow::Result<Vec<RequestId>> {
    let mut ids = Vec::new();
    let mut known = HashSet::new();
    let mut missing = Vec::new();
    for text in select::ids(texts)? {
        let located = select::locate(store, &text).map(|located| match located {
            Located::Found(found) => found.id,
            Located::Pruned(tombstone) => tombstone.request_id,
        });
        match located {
            Ok(id) if !known.insert(id) => {}
            Ok(id) => ids.push(id),
            Err(error) => match error.downcast_ref::<CliError>() {
                Some(CliError::NoInput(why)) => missing.push(why.clone()),
                _ => return Err(error),
            },
        }
    }
    if missing.is_empty() {
        Ok(ids)
    } else {
        Err(CliError::NoInput(missing.join("\n")).into())
    }
}

/// Looks where the items are, in the order in which they were named.
fn look(store: &FileStore, open: &[RequestId]) -> Result<Vec<(RequestId, Came)>, StoreError> {
    let mut seen: BTreeMap<RequestId, Found> = BTreeMap::new();
    if open.len() > LOOKUPS_MAX {
        let wanted: HashSet<&RequestId> = open.iter().collect();
        store.scan(&Scope::default(), &mut |found| {
            if wanted.contains(&found.id) {
                seen.insert(found.id, found.clone());
            }
            Ok(())
        })?;
    }
    let mut all = Vec::with_capacity(open.len());
    for id in open {
        let found = match seen.remove(id) {
            Some(found) => Some(found),
            None => store.find(*id)?,
        };
        let came = match found {
            Some(found) => came(store, found)?,
            None => gone(store, *id)?,
        };
        all.push((*id, came));
    }
    Ok(all)
}

fn came(store: &FileStore, found: Found) -> Result<Came, StoreError> {
    let has_ended = match found.state {
        State::Confirmed | State::Failed | State::Held => true,
        State::Unknown => found.parked,
        State::Pending => false,
    };
    if !has_ended {
        return Ok(Came::Open(found));
    }
    match store.read(&found)? {
        Some(Ok(item)) => Ok(Came::Ended(found, item.standing().reason)),
        // Its place tells, whatever has become of the rest.
        Some(Err(_)) => Ok(Came::Ended(found, None)),
        // It has just moved on: the next look tells.
        None => Ok(Came::Open(found)),
    }
}

/// What an item came to that is in none of the states: the one place that knows what that means.
fn gone(store: &FileStore, id: RequestId) -> Result<Came, StoreError> {
    match select::locate(store, &id.to_string()) {
        Ok(Located::Found(found)) => came(store, found),
        Ok(Located::Pruned(tombstone)) => {
            let found = Found {
                id,
                destination: tombstone.destination.to_string(),
                state: tombstone.state,
                parked: false,
                place: String::new(),
                journalled: Vec::new(),
            };
            Ok(Came::Ended(found, tombstone.reason))
        }
        Err(error) => Ok(Came::Vanished(error)),
    }
}

fn print(
    context: &Context,
    found: &Found,
    reason: Option<&Reason>,
    ended: bool,
) -> anyhow::Result<()> {
    if context.out.json {
        return context.out.json(&serde_json::json!({
            "request_id": found.id,
            "state": found.state,
            "parked": found.parked,
            "reason": reason,
            "ended": ended,
        }));
    }
    let style = style_of(found.state);
    let reason = reason.map_or("-".to_owned(), ToString::to_string);
    context.out.line(&format!(
        "{} {style}{}{style:#} {reason}",
        found.id, found.state
    ))
}

/// What is said when the time is over: which items are still open.
fn timed_out(
    context: &Context,
    left: &[Found],
    vanished: &[String],
) -> anyhow::Result<anyhow::Error> {
    let mut said = vec![match left.len() {
        1 => "the time is over and 1 item is still open".to_owned(),
        n => format!("the time is over and {n} items are still open"),
    }];
    for found in left {
        if context.out.json {
            print(context, found, None, false)?;
        }
        said.push(format!("{} {}", found.id, found.state));
    }
    said.extend(vanished.iter().cloned());
    Ok(CliError::Timeout(said.join("\n")).into())
}
