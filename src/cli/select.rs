//! Which items a command is about: ids, ids on standard input, or filters.

use std::collections::BTreeMap;
use std::io::BufRead as _;
use std::path::PathBuf;

use super::Context;
use super::exit::CliError;
use super::times;
use crate::clock::{Clock as _, SystemClock};
use crate::model::ids::RequestId;
use crate::model::item::{Damage, Item};
use crate::model::reason::Reason;
use crate::model::state::State;
use crate::model::time::{UnixMs, id_time};
use crate::model::tombstone::Tombstone;
use crate::store::file::{Aside, FileStore};
use crate::store::{Found, Scope, Store, StoreError};
use crate::view::item::Row;

/// Filters; all that are given must fit.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Filters {
    /// Only this state: pending, unknown, held, confirmed, failed; may be repeated
    #[arg(long, value_name = "STATE", value_parser = state)]
    state: Vec<State>,
    /// Only this destination
    #[arg(long, value_name = "DEST")]
    pub(super) destination: Option<String>,
    /// Only what this requester asked for
    #[arg(long, value_name = "NAME")]
    principal: Option<String>,
    /// Only this conversation, deployment or job
    #[arg(long, value_name = "NAME")]
    thread: Option<String>,
    /// Only with this label; may be repeated
    #[arg(long, value_name = "K=V")]
    label: Vec<String>,
    /// Only with this reason
    #[arg(long, value_name = "REASON", value_parser = reason)]
    reason: Option<Reason>,
    /// Only with this dedupe key
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Only accepted at or after: 2026-11-29T15:40:03Z, 2026-11-29, or 2h for two hours ago
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only accepted before
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Only the newest N
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

fn state(text: &str) -> Result<State, String> {
    State::parse(text)
        .ok_or_else(|| "the states are pending, unknown, held, confirmed, failed".to_owned())
}

fn reason(text: &str) -> Result<Reason, String> {
    Reason::parse(text).map_err(|_| {
        let known = Reason::ALL.iter().map(|(known, _)| *known);
        match crate::model::fault::nearest(text, known) {
            Some(near) => format!("it is not a reason; did you mean `{near}`?"),
            None => "it is not a reason; `tickpost rules list DEST` shows those in use".to_owned(),
        }
    })
}

impl Filters {
    /// Whether nothing at all is asked for.
    pub(super) fn is_empty(&self) -> bool {
        self.destination.is_none() && self.only_destination()
    }

    /// Whether nothing but the destination is asked for.
    pub(super) fn only_destination(&self) -> bool {
        self.only_names() && self.state.is_empty() && self.limit.is_none()
    }

    /// Whether nothing is asked for but what the names of files say.
    fn only_names(&self) -> bool {
        let Self {
            state: _,
            destination: _,
            principal,
            thread,
            label,
            reason,
            key,
            since,
            until,
            limit: _,
        } = self;
        principal.is_none()
            && thread.is_none()
            && label.is_empty()
            && reason.is_none()
            && key.is_none()
            && since.is_none()
            && until.is_none()
    }

    /// The items that fit, oldest first.
    pub(super) fn select(
        &self,
        context: &Context,
        store: &FileStore,
    ) -> anyhow::Result<Vec<(Found, Item, Row)>> {
        let now = SystemClock::new().now();
        let time = |text: &Option<String>| -> Result<Option<UnixMs>, CliError> {
            text.as_deref()
                .map(|text| times::past(text, now).map_err(CliError::Usage))
                .transpose()
        };
        let (since, until) = (time(&self.since)?, time(&self.until)?);
        let labels = self.labels()?;
        if let Some(name) = &self.destination {
            super::dest_name(name)?;
        }
        let scope = Scope {
            states: self.state.clone(),
            destination: self.destination.clone(),
        };
        let root = PathBuf::from(context.whole_root());
        let mut rows = Vec::new();
        let mut take = |found: &Found| {
            let item = match store.read(found)? {
                Some(Ok(item)) => item,
                Some(Err(damage)) => {
                    context.out.warn(&format!(
                        "{} cannot be read: {damage}; {}",
                        found.place,
                        after(&damage)
                    ));
                    return Ok(());
                }
                None => match self.again(store, found)? {
                    Some(item) => item,
                    None => return Ok(()),
                },
            };
            let row = Row::of(found, &item, root.join(&found.place).display().to_string());
            let fits = since.is_none_or(|at| row.enqueued_at >= at)
                && until.is_none_or(|at| row.enqueued_at < at)
                && labels
                    .iter()
                    .all(|(name, value)| row.labels.get(name) == Some(value))
                && fits(self.principal.as_ref(), row.principal.as_ref())
                && fits(self.thread.as_ref(), row.thread.as_ref())
                && fits(self.key.as_ref(), row.key.as_ref())
                && fits(self.reason.as_ref(), row.reason.as_ref());
            if fits {
                rows.push((found.clone(), item, row));
            }
            Ok(())
        };
        match self.limit.filter(|_| self.only_names()) {
            Some(limit) => newest(store, &scope, limit)?.iter().try_for_each(take)?,
            None => store.scan(&scope, &mut take)?,
        }
        rows.sort_by_key(|(_, _, row)| (row.enqueued_at, row.request_id));
        if let Some(limit) = self.limit {
            rows.drain(..rows.len().saturating_sub(limit));
        }
        Ok(rows)
    }

    /// An item that moved between being listed and being read.
    #[expect(clippy::unused_self, reason = "reads as a step of the selection")]
    fn again(&self, store: &FileStore, found: &Found) -> Result<Option<Item>, StoreError> {
        match store.find(found.id)? {
            Some(found) => Ok(store.read(&found)?.and_then(Result::ok)),
            None => Ok(None),
        }
    }

    fn labels(&self) -> Result<Vec<(String, String)>, CliError> {
        self.label
            .iter()
            .map(|label| {
                label
                    .split_once('=')
                    .map(|(name, value)| (name.to_owned(), value.to_owned()))
                    .ok_or_else(|| {
                        CliError::Usage(format!("--label `{label}`: write it as NAME=VALUE"))
                    })
            })
            .collect()
    }
}

/// The newest items, in any order. An id that tells when it was minted tells when its item was accepted;
/// an item of another id is read for that.
fn newest(store: &FileStore, scope: &Scope, limit: usize) -> Result<Vec<Found>, StoreError> {
    let mut kept = BTreeMap::new();
    store.scan(scope, &mut |found| {
        let at = match id_time(found.id) {
            Some(at) => at,
            None => match store.read(found)? {
                Some(Ok(item)) => item.envelope.enqueued_at,
                // It is told of, or looked for again, with those that are kept.
                Some(Err(_)) | None => UnixMs(u64::MAX),
            },
        };
        kept.insert((at, found.id), found.clone());
        if kept.len() > limit {
            kept.pop_first();
        }
        Ok(())
    })?;
    Ok(kept.into_values().collect())
}

/// What comes of an item that cannot be read.
pub(super) fn after(damage: &Damage) -> &'static str {
    match damage {
        Damage::Unreadable(_) => {
            "ticks leave it as it is, and it waits: make it readable for the spool's owner"
        }
        Damage::Newer(_) => "ticks leave it as it is: use the newer tickpost that wrote it",
        Damage::Empty
        | Damage::Cut
        | Damage::Envelope(_)
        | Damage::Misplaced { .. }
        | Damage::NotAccepted
        | Damage::EnvelopeHash
        | Damage::BodyHash
        | Damage::BodyFile
        | Damage::Line(_)
        | Damage::Middle(_) => "the next tick that meets it sets it aside in corrupt/",
    }
}

fn fits<T: PartialEq>(wanted: Option<&T>, got: Option<&T>) -> bool {
    wanted.is_none_or(|wanted| got == Some(wanted))
}

/// The ids named on the command line; `-` stands for ids on standard input.
pub(super) fn ids(arguments: &[String]) -> anyhow::Result<Vec<String>> {
    let mut ids = Vec::new();
    for argument in arguments {
        if argument == "-" {
            for line in std::io::stdin().lock().lines() {
                let line = line.map_err(|source| CliError::Input {
                    path: "standard input".to_owned(),
                    source,
                })?;
                let word = line.trim();
                if !word.is_empty() {
                    ids.push(word.to_owned());
                }
            }
        } else {
            ids.push(argument.clone());
        }
    }
    Ok(ids)
}

/// What an id, or the beginning of one, leads to.
pub(super) enum Located {
    /// An item.
    Found(Found),
    /// An item that was pruned.
    Pruned(Box<Tombstone>),
}

/// Finds an item by its id, or by the beginning of it. One that was pruned is none.
pub(super) fn find(store: &FileStore, text: &str) -> anyhow::Result<Found> {
    match locate(store, text)? {
        Located::Found(found) => Ok(found),
        Located::Pruned(tombstone) => Err(CliError::NoInput(pruned_words(&tombstone)).into()),
    }
}

/// What is to be said to somebody who wants a pruned item.
fn pruned_words(tombstone: &Tombstone) -> String {
    format!(
        "item `{}` was {} and was pruned on {}; `tickpost show {}` prints what is kept of it",
        tombstone.request_id,
        tombstone.state,
        times::local(tombstone.pruned_at),
        tombstone.request_id,
    )
}

/// What is to be said to somebody who wants an item whose file was set aside.
fn aside_words(aside: &Aside) -> String {
    let Aside { id, name, .. } = aside;
    let mut parts = aside.from.as_deref().unwrap_or_default().split('/');
    let was = match (parts.next().and_then(State::parse), parts.next()) {
        (Some(state), Some(destination)) => format!("was {state} for `{destination}`, and "),
        _ => String::new(),
    };
    let at = aside
        .at
        .map_or_else(String::new, |at| format!(" on {}", times::local(at)));
    let why = aside
        .why
        .as_ref()
        .map_or_else(String::new, |why| format!(": {why}"));
    format!(
        "item `{id}` {was}is not sent any more: its file was damaged, and set aside{at} as corrupt/{name}{}{why} (corrupt/{name}.why.json); to send it again, enqueue it with a new key or id",
        if aside.is_there {
            ""
        } else {
            ", which is removed"
        },
    )
}

/// Finds an item, or what is kept of a pruned one, by its id or by the beginning of it.
pub(super) fn locate(store: &FileStore, text: &str) -> anyhow::Result<Located> {
    // Other programs print the same id in capitals.
    let text = text.to_ascii_lowercase();
    let text = text.as_str();
    // An id that was ever printed can be asked for, also when its file is no item any more.
    let missing = || -> anyhow::Error {
        let mut aside = match store.set_aside(text, NAMED_MAX + 1) {
            Ok(aside) => aside,
            Err(error) => return error.into(),
        };
        match (aside.len(), aside.pop()) {
            (1, Some(aside)) => CliError::NoInput(aside_words(&aside)).into(),
            (0, _) | (_, None) => {
                CliError::NoInput(format!("there is no item `{text}` in this spool")).into()
            }
            (n, Some(last)) => {
                aside.push(last);
                let count = if n > NAMED_MAX {
                    "many".to_owned()
                } else {
                    n.to_string()
                };
                several(text, &count, aside.iter().map(|aside| aside.id).collect())
            }
        }
    };
    if let Ok(id) = text.parse::<RequestId>() {
        if let Some(found) = store.find(id)? {
            return Ok(Located::Found(found));
        }
        return Ok(match store.tombstone(id)? {
            Some(tombstone) => Located::Pruned(Box::new(tombstone)),
            None => return Err(missing()),
        });
    }
    let is_prefix = !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b) || b == b'-');
    if !is_prefix {
        return Err(CliError::Usage(format!(
            "`{text}` is not a request id, nor the beginning of one (0-9, a-f and -)"
        ))
        .into());
    }
    let mut hits: Vec<Found> = Vec::new();
    store.scan(&Scope::default(), &mut |found| {
        let id = found.id.to_string();
        // Ids of one day begin alike; it is their ends that differ.
        if id.starts_with(text) || (text.len() >= SUFFIX_MIN && id.ends_with(text)) {
            hits.push(found.clone());
        }
        Ok(())
    })?;
    match hits.len() {
        0 => {
            let mut pruned = store.tombstones(text, NAMED_MAX + 1)?;
            match pruned.len() {
                0 => Err(missing()),
                1 => pruned
                    .pop()
                    .map(|tombstone| Located::Pruned(Box::new(tombstone)))
                    .ok_or_else(missing),
                n if n > NAMED_MAX => Err(several(text, "many", ids_of(&pruned))),
                n => Err(several(text, &n.to_string(), ids_of(&pruned))),
            }
        }
        1 => hits.pop().map(Located::Found).ok_or_else(missing),
        n => {
            let ids = hits.iter().map(|hit| hit.id).collect();
            Err(several(text, &n.to_string(), ids))
        }
    }
}

/// From so many characters on, the end of an id is taken for it too.
const SUFFIX_MIN: usize = 6;

/// How many of several ids are named.
const NAMED_MAX: usize = 5;

fn ids_of(pruned: &[Tombstone]) -> Vec<RequestId> {
    pruned.iter().map(|t| t.request_id).collect()
}

fn several(text: &str, count: &str, ids: Vec<RequestId>) -> anyhow::Error {
    let more = if ids.len() > NAMED_MAX { ", …" } else { "" };
    let some: Vec<String> = ids
        .into_iter()
        .take(NAMED_MAX)
        .map(|id| id.to_string())
        .collect();
    CliError::Usage(format!(
        "`{text}` is the beginning of {count} request ids, give more of it: {}{more}",
        some.join(", ")
    ))
    .into()
}
