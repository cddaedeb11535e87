//! `hold`, `release`, `cancel`, `retry`, `resolve`: what a person decides about items.

use std::collections::{BTreeSet, HashMap};

use anyhow::Context as _;

use super::exit::CliError;
use super::own::{Owned, own};
use super::select::{self, Filters};
use super::{Context, dest_name, destination, times, whoami};
use crate::clock::{Clock as _, SystemClock};
use crate::config::Config;
use crate::engine;
use crate::entropy;
use crate::model::event::{Event, EventKind};
use crate::model::ids::{DestName, RequestId};
use crate::model::item::Item;
use crate::model::reason::Reason;
use crate::model::state::{self, Move, Refused, Resolution, State};
use crate::model::time::UnixMs;
use crate::store::file::FileStore;
use crate::store::{Decision, DestinationHold, Found, Limits, Offer, Session, Store};

/// What every one of these commands takes.
#[derive(Debug, clap::Args)]
struct Targets {
    /// Request ids, or unique beginnings of them; - reads ids from standard input
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    #[command(flatten)]
    filters: Filters,
    /// Only print what would be done
    #[arg(long)]
    dry_run: bool,
    /// Why; kept in the item's history
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// Wait so many seconds for a running tick
    #[arg(long, value_name = "SECS", default_value_t = 60)]
    wait: u64,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  tickpost hold --destination billing --note 'receiver is being moved'"
)]
pub(super) struct HoldArgs {
    #[command(flatten)]
    targets: Targets,
    /// Give the items back by themselves then: 2026-11-29T15:40:03Z or +2h
    #[arg(long, value_name = "TIME")]
    release_at: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tickpost release --state held --reason auth_invalid")]
pub(super) struct ReleaseArgs {
    #[command(flatten)]
    targets: Targets,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tickpost cancel 019adf3e --note 'ordered twice'")]
pub(super) struct CancelArgs {
    #[command(flatten)]
    targets: Targets,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  tickpost list --state failed --destination billing --json | jq -r .request_id | tickpost retry -"
)]
pub(super) struct RetryArgs {
    #[command(flatten)]
    targets: Targets,
    /// Leave the old item as it is and accept a copy under a new id
    #[arg(long)]
    new_id: bool,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  tickpost resolve --confirmed 019adf3e --note 'charge ch_1 is in the dashboard'"
)]
#[command(group(clap::ArgGroup::new("what").required(true).args(["confirmed", "failed", "resend"])))]
pub(super) struct ResolveArgs {
    #[command(flatten)]
    targets: Targets,
    /// The receiver acted on it
    #[arg(long)]
    confirmed: bool,
    /// The receiver did not act on it, and it shall not be sent again
    #[arg(long)]
    failed: bool,
    /// The receiver certainly did not act on it: send it again
    #[arg(long)]
    resend: bool,
}

/// What is to be done with each item.
#[derive(Clone, Copy)]
struct Order {
    step: Move,
    kind: EventKind,
    reason: Option<Why>,
    done: &'static str,
    due: Option<UnixMs>,
    new_id: bool,
}

/// The reasons that a person's decision has.
#[derive(Clone, Copy)]
enum Why {
    Operator,
    Cancelled,
}

pub(super) fn hold(context: &Context, arguments: &HoldArgs) -> anyhow::Result<()> {
    if whole_destination(&arguments.targets) {
        if arguments.release_at.is_some() {
            return Err(CliError::Usage(
                "--release-at is for items; a whole destination is held until `release`".to_owned(),
            )
            .into());
        }
        return hold_destination(context, &arguments.targets);
    }
    let now = SystemClock::new().now();
    let due = match &arguments.release_at {
        Some(text) => Some(times::future(text, now).map_err(CliError::Usage)?),
        None => None,
    };
    if due.is_some_and(|due| due <= now) {
        return Err(CliError::Data(
            "--release-at is over already; give a later time, or leave it out to hold until `release`"
                .to_owned(),
        )
        .into());
    }
    let order = Order {
        step: Move::Hold,
        kind: EventKind::Held,
        reason: Some(Why::Operator),
        done: "held",
        due,
        new_id: false,
    };
    carry_out(context, &arguments.targets, order)
}

pub(super) fn release(context: &Context, arguments: &ReleaseArgs) -> anyhow::Result<()> {
    if whole_destination(&arguments.targets) {
        return release_destination(context, &arguments.targets);
    }
    let order = Order {
        step: Move::Release,
        kind: EventKind::Released,
        reason: None,
        done: "released",
        due: None,
        new_id: false,
    };
    carry_out(context, &arguments.targets, order)
}

pub(super) fn cancel(context: &Context, arguments: &CancelArgs) -> anyhow::Result<()> {
    let order = Order {
        step: Move::Cancel,
        kind: EventKind::Cancelled,
        reason: Some(Why::Cancelled),
        done: "cancelled",
        due: None,
        new_id: false,
    };
    carry_out(context, &arguments.targets, order)
}

pub(super) fn retry(context: &Context, arguments: &RetryArgs) -> anyhow::Result<()> {
    let order = Order {
        step: Move::Retry,
        kind: EventKind::Retried,
        reason: None,
        done: "set to be tried again",
        due: None,
        new_id: arguments.new_id,
    };
    carry_out(context, &arguments.targets, order)
}

pub(super) fn resolve(context: &Context, arguments: &ResolveArgs) -> anyhow::Result<()> {
    let (resolution, done) = if arguments.confirmed {
        (Resolution::Confirmed, "resolved as confirmed")
    } else if arguments.failed {
        (Resolution::Failed, "resolved as failed")
    } else {
        (Resolution::Resend, "set to be sent again")
    };
    let order = Order {
        step: Move::Resolve(resolution),
        kind: EventKind::Resolved,
        reason: Some(Why::Operator),
        done,
        due: None,
        new_id: false,
    };
    carry_out(context, &arguments.targets, order)
}

fn whole_destination(targets: &Targets) -> bool {
    targets.ids.is_empty()
        && targets.filters.destination.is_some()
        && targets.filters.only_destination()
}

/// What came of an order.
#[derive(Default)]
struct Done {
    moved: Vec<RequestId>,
    refused: Vec<(RequestId, Refused)>,
    /// With why.
    missing: Vec<(String, String)>,
    unread: Vec<(RequestId, String)>,
    /// How many of these are decided on, and done as soon as they can be.
    later: usize,
    new_ids: Vec<(RequestId, RequestId)>,
    /// Destinations of items that were released.
    released_to: BTreeSet<String>,
}

fn carry_out(context: &Context, targets: &Targets, order: Order) -> anyhow::Result<()> {
    if targets.ids.is_empty() && targets.filters.is_empty() {
        return Err(CliError::Usage(
            "name the items by id, by - for ids on standard input, or by filters such as --state and --destination".to_owned(),
        )
        .into());
    }
    if !targets.ids.is_empty() && !targets.filters.is_empty() {
        return Err(CliError::Usage("give ids or filters, not both".to_owned()).into());
    }
    let config = context.config()?;
    let store = context.store(&config)?;
    let done = if targets.dry_run {
        rehearse(context, &store, targets, order)?
    } else {
        perform(context, &config, &store, targets, order)?
    };
    for name in &done.released_to {
        tell_of_suspension(context, &store, name)?;
    }
    report(context, targets, order, &done)
}

/// A released item goes out when its destination is tried again, which may be later than whoever
/// releases it thinks.
fn tell_of_suspension(context: &Context, store: &FileStore, name: &str) -> anyhow::Result<()> {
    // One that is out of reach ticks warn of: the release is done.
    let memory = store.memory(&dest_name(name)?).unwrap_or_default();
    let suspended = memory.suspended;
    let until = match suspended.map(|suspended| suspended.until) {
        None => return Ok(()),
        Some(Some(at)) if at <= SystemClock::new().now() => return Ok(()),
        Some(Some(at)) => format!("until {}", times::local(at)),
        Some(None) => "until a person resumes it".to_owned(),
    };
    context.out.warn(&format!(
        "destination `{name}` is suspended {until}, and so is what was released: `tickpost release --destination {name}` resumes it at once"
    ));
    Ok(())
}

/// The items that are meant. An id that is not there is noted and costs the others nothing.
fn meant(
    context: &Context,
    store: &FileStore,
    targets: &Targets,
    order: Order,
    done: &mut Done,
) -> anyhow::Result<Vec<Found>> {
    if targets.ids.is_empty() {
        let applies = |found: &Found| {
            state::after(found.state, true, order.step) != Err(Refused::WrongState(found.state))
        };
        let rows = targets.filters.select(context, store)?;
        return Ok(rows
            .into_iter()
            .map(|(found, _, _)| found)
            .filter(applies)
            .collect());
    }
    let mut all = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for text in select::ids(&targets.ids)? {
        match select::find(store, &text) {
            // Named twice, it is moved once: `retry --new-id` must not make two of it.
            Ok(found) if !seen.insert(found.id) => {}
            Ok(found) => all.push(found),
            Err(error) => match error.downcast_ref::<CliError>() {
                Some(CliError::NoInput(why)) => done.missing.push((text, why.clone())),
                _ => return Err(error),
            },
        }
    }
    Ok(all)
}

/// The state after a move, if it may be made.
fn after(found: &Found, item: &Item, step: Move) -> Result<State, Refused> {
    let standing = item.standing();
    // Claimed, and the tick that was sending it has died or did not wait for the answer: its
    // events do not say so yet, but the receiver may have acted on it.
    let interrupted = found.state == State::Unknown && standing.state == State::Pending;
    if found.state != standing.state && !interrupted {
        return Err(Refused::Disagrees {
            place: found.state,
            event: standing.state,
        });
    }
    if found.state == State::Unknown {
        return state::after(State::Unknown, true, step);
    }
    state::after(standing.state, standing.maybe_acted, step)
}

fn rehearse(
    context: &Context,
    store: &FileStore,
    targets: &Targets,
    order: Order,
) -> anyhow::Result<Done> {
    let mut done = Done::default();
    for found in meant(context, store, targets, order, &mut done)? {
        match store.read(&found)? {
            Some(Ok(item)) => match after(&found, &item, order.step) {
                Ok(_) => done.moved.push(found.id),
                Err(why) => done.refused.push((found.id, why)),
            },
            Some(Err(damage)) => done
                .unread
                .push((found.id, format!("it cannot be read: {damage}"))),
            None => {
                let why = "it has moved meanwhile; ask again".to_owned();
                done.unread.push((found.id, why));
            }
        }
    }
    Ok(done)
}

fn perform(
    context: &Context,
    config: &Config,
    store: &FileStore,
    targets: &Targets,
    order: Order,
) -> anyhow::Result<Done> {
    let by = whoami();
    let Owned {
        mut session, now, ..
    } = own(config, store, targets.wait)?;
    let mut done = Done::default();
    let mut copies: Vec<Item> = Vec::new();
    let mut from: HashMap<RequestId, String> = HashMap::new();
    for found in meant(context, store, targets, order, &mut done)? {
        let moved = session.change(&found, &mut |item| match after(&found, item, order.step) {
            Err(why) => {
                done.refused.push((found.id, why));
                Decision::Leave
            }
            Ok(_) if order.new_id => {
                copies.push(item.clone());
                Decision::Leave
            }
            Ok(to) => {
                let event = event(order, to, &by, targets.note.as_deref(), now);
                let told = engine::notices(config, item, &event);
                Decision::Settle(Box::new(event), told)
            }
        })?;
        if moved {
            done.moved.push(found.id);
            from.insert(found.id, found.place.clone());
            if order.step == Move::Release {
                done.released_to.insert(found.destination.clone());
            }
            continue;
        }
        let known = |id: &RequestId| *id == found.id;
        let decided = done.refused.iter().any(|(id, _)| known(id))
            || copies.iter().any(|item| known(&item.envelope.request_id));
        if !decided {
            // It was not there to be decided on: damaged, set aside, or out of reach.
            let met = session.met();
            let aside = met.set_aside.iter().find(|file| file.from == found.place);
            let left = met.foreign.iter().find(|text| text.contains(&found.place));
            let why = match (aside, left) {
                (Some(file), _) => {
                    format!("it was set aside as corrupt/{}: {}", file.name, file.why)
                }
                (None, Some(text)) => text.clone(),
                (None, None) => "it has moved meanwhile; ask again".to_owned(),
            };
            done.unread.push((found.id, why));
        }
    }
    session.sync()?;
    not_done_yet(session.as_ref(), &from, &mut done);
    session.close(now, None)?;
    for item in copies {
        let old = item.envelope.request_id;
        match accept_copy(store, item, &by, targets.note.as_deref(), now) {
            Ok(new) => {
                done.moved.push(old);
                done.new_ids.push((old, new));
            }
            // The others' copies are there, and must be told of.
            Err(error) => done
                .unread
                .push((old, format!("no copy was accepted: {error:#}"))),
        }
    }
    Ok(done)
}

/// What was decided of a file that cannot be moved stands in the journal alone: it will be done, and
/// is not yet.
fn not_done_yet(session: &dyn Session, from: &HashMap<RequestId, String>, done: &mut Done) {
    let stuck = done.moved.extract_if(.., |id| session.is_stuck(*id));
    let told = stuck.map(|id| {
        let begins = |text: &&String| from.get(&id).is_some_and(|place| text.starts_with(place));
        let why = session.met().foreign.iter().find(begins).cloned();
        let why = why.unwrap_or_else(|| {
            "its file cannot be moved; what was decided of it is done when it can be".to_owned()
        });
        (id, why)
    });
    let before = done.unread.len();
    done.unread.extend(told);
    done.later = done.unread.len() - before;
}

fn event(order: Order, to: State, by: &str, note: Option<&str>, now: UnixMs) -> Event {
    let mut event = Event::new(order.kind, now, to);
    event.by = Some(by.to_owned());
    event.note = note.map(str::to_owned);
    event.reason = order.reason.map(|reason| match reason {
        Why::Operator => Reason::OPERATOR,
        Why::Cancelled => Reason::CANCELLED,
    });
    // Of an unknown item `hold` means: only a person; it has no time.
    event.due = order.due.filter(|_| to == State::Held);
    event
}

/// Accepts the same request under a new id: a deliberate repeat is another item.
fn accept_copy(
    store: &FileStore,
    item: Item,
    by: &str,
    note: Option<&str>,
    now: UnixMs,
) -> anyhow::Result<RequestId> {
    let mut envelope = item.envelope;
    envelope.retry_of = Some(envelope.request_id);
    envelope.request_id = entropy::request_id();
    envelope.enqueued_at = now;
    envelope.key = None;
    // What lies ahead still holds for the copy.
    envelope.not_before = envelope.not_before.filter(|at| *at > now);
    envelope.not_after = envelope.not_after.filter(|at| *at > now);
    let id = envelope.request_id;
    let mut accepted = Event::new(EventKind::Accepted, now, State::Pending);
    accepted.by = Some(by.to_owned());
    accepted.note = note.map(str::to_owned);
    // The copy has a body of its own: each item's goes with it.
    let body = match envelope.request.file_bytes() {
        None => None,
        Some(bytes) => {
            let old = envelope.retry_of.unwrap_or(id);
            let mut file = store
                .open_body(old)
                .with_context(|| format!("cannot read the body of {old}"))?;
            Some(store.take_body(&mut file, bytes)?)
        }
    };
    let offer = Offer {
        envelope,
        accepted,
        own_id: false,
        body,
    };
    // As with `retry` itself, what is there already is not refused for want of room.
    store.accept_all(vec![offer], &Limits::NONE, &mut Vec::new())?;
    Ok(id)
}

fn report(context: &Context, targets: &Targets, order: Order, done: &Done) -> anyhow::Result<()> {
    let out = context.out;
    if out.json {
        let refused: Vec<_> = done
            .refused
            .iter()
            .map(|(id, why)| serde_json::json!({"request_id": id, "why": why.to_string()}))
            .collect();
        let unread: Vec<_> = done
            .unread
            .iter()
            .map(|(id, why)| serde_json::json!({"request_id": id, "why": why}))
            .collect();
        let new: Vec<_> = done
            .new_ids
            .iter()
            .map(|(old, new)| serde_json::json!({"request_id": new, "retry_of": old}))
            .collect();
        out.json(&serde_json::json!({
            "moved": done.moved.len(),
            "request_ids": done.moved,
            "new": new,
            "refused": refused,
            "missing": done.missing.iter().map(|(text, _)| text).collect::<Vec<_>>(),
            "unread": unread,
            "dry_run": targets.dry_run,
        }))?;
    } else {
        if done.new_ids.is_empty() {
            for id in &done.moved {
                out.line(&id.to_string())?;
            }
        }
        for (old, new) in &done.new_ids {
            out.line(&new.to_string())?;
            out.say(&format!("{new} repeats {old}"));
        }
        let would = if targets.dry_run { "would be " } else { "" };
        let items = if done.moved.len() == 1 {
            "item"
        } else {
            "items"
        };
        out.say(&format!(
            "{} {items} {would}{}",
            done.moved.len(),
            order.done
        ));
        for (id, why) in &done.refused {
            let hint = match (why, order.step) {
                (Refused::WrongState(State::Pending), Move::Release) => {
                    ": a tick sends it when it is due; `hold` and then `release` end a wait between attempts"
                }
                _ => "",
            };
            out.say(&format!("{id}: {why}{hint}"));
        }
        for (id, why) in &done.unread {
            out.say(&format!("{id}: {why}"));
        }
        for (_, why) in &done.missing {
            out.say(why);
        }
    }
    let nothing_else = done.moved.is_empty() && done.refused.is_empty() && done.unread.is_empty();
    if !done.missing.is_empty() && nothing_else {
        let why = match done.missing.as_slice() {
            [(_, why)] if out.json => why.clone(),
            _ => "none of these items is in this spool".to_owned(),
        };
        return Err(CliError::NoInput(why).into());
    }
    let later = match done.later {
        0 => None,
        1 => Some("1 item is decided on, and moved as soon as it can be".to_owned()),
        n => Some(format!(
            "{n} items are decided on, and moved as soon as they can be"
        )),
    };
    let left = done.refused.len() + done.missing.len() + done.unread.len() - done.later;
    let left = match left {
        0 => None,
        1 => Some("1 item was left as it is".to_owned()),
        n => Some(format!("{n} items were left as they are")),
    };
    let all: Vec<String> = left.into_iter().chain(later).collect();
    if all.is_empty() {
        return Ok(());
    }
    Err(CliError::Partly(all.join("; ")).into())
}

fn hold_destination(context: &Context, targets: &Targets) -> anyhow::Result<()> {
    let (config, store, name) = open_destination(context, targets)?;
    drop(config);
    if !targets.dry_run {
        let hold = DestinationHold {
            at: SystemClock::new().now(),
            by: whoami(),
            note: targets.note.clone(),
        };
        store.set_destination_hold(&name, Some(&hold))?;
    }
    say_destination(context, targets, &name, "held")
}

fn release_destination(context: &Context, targets: &Targets) -> anyhow::Result<()> {
    let (config, store, name) = open_destination(context, targets)?;
    if targets.dry_run {
        return say_destination(context, targets, &name, "resumed");
    }
    store.set_destination_hold(&name, None)?;
    if store.memory(&name)?.suspended.is_some() {
        // What ticks remember is theirs to write: this part needs the lock.
        let Owned {
            mut session, now, ..
        } = own(&config, &store, targets.wait)?;
        let mut memory = store.memory(&name)?;
        if let Some(ended) = memory.suspended.take() {
            memory.past.push((ended.since, now));
        }
        memory.held_in_a_row.clear();
        session.remember(&name, &memory)?;
        session.close(now, None)?;
    }
    say_destination(context, targets, &name, "resumed")
}

/// Also a destination that is not configured any more can be held and resumed.
fn open_destination(
    context: &Context,
    targets: &Targets,
) -> anyhow::Result<(Config, FileStore, DestName)> {
    let config = context.config()?;
    let store = context.store(&config)?;
    store.check_owner()?;
    store.check_original()?;
    let text = targets.filters.destination.as_deref().unwrap_or_default();
    let name = super::dest_name(text)?;
    let known = store.counts()?.destinations.contains_key(text);
    if !known {
        destination(&config, text)?;
    }
    Ok((config, store, name))
}

fn say_destination(
    context: &Context,
    targets: &Targets,
    name: &DestName,
    done: &str,
) -> anyhow::Result<()> {
    if context.out.json {
        return context.out.json(&serde_json::json!({
            "destination": name,
            "done": done,
            "dry_run": targets.dry_run,
        }));
    }
    let would = if targets.dry_run { "would be " } else { "is " };
    context
        .out
        .line(&format!("destination {name} {would}{done}"))
}
