//! What a tick would do, without doing it: for `tick --dry-run`. Takes no lock and writes
//! nothing; it reads every item that waits.

use std::collections::HashMap;

use serde::Serialize;

use super::Trust;
use super::judge::{Since, since, turn};
use crate::config::Config;
use crate::model::ids::{DestName, RequestId};
use crate::model::reason::Reason;
use crate::model::state::State;
use crate::model::time::UnixMs;
use crate::store::{Decision, Memory, Scope, Store, StoreError};

/// What would become of one item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The item.
    pub request_id: RequestId,
    /// Its destination.
    pub destination: String,
    /// Its state now.
    pub state: State,
    /// `send`, `resend`, `settle`, `recover`, `release` or `skip`.
    pub action: &'static str,
    /// Why, where that is not plain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// When it is due.
    pub due: UnixMs,
}

/// The plan, in the order in which a tick would go: by destination, due minute, id.
///
/// # Errors
///
/// The first [`StoreError`] met.
pub fn plan(
    config: &Config,
    store: &dyn Store,
    only: Option<&DestName>,
    limit: Option<u64>,
    now: UnixMs,
) -> Result<Vec<Step>, StoreError> {
    let mut steps = Vec::new();
    let mut ways: HashMap<DestName, Since> = HashMap::new();
    let trust = Trust::default();
    let scope = Scope {
        states: vec![State::Pending, State::Unknown, State::Held],
        destination: only.map(ToString::to_string),
    };
    store.scan(&scope, &mut |found| {
        if found.parked {
            return Ok(());
        }
        let Some(Ok(item)) = store.read(found)? else {
            return Ok(());
        };
        let standing = item.standing();
        let due = standing.due.unwrap_or(item.envelope.enqueued_at);
        let since = match config.destinations.get(&item.envelope.destination) {
            Some(to) if !ways.contains_key(&to.name) => {
                // One that is out of reach keeps everything back, below.
                let memory = match store.memory(&to.name) {
                    Err(StoreError::Io { .. }) => Memory::default(),
                    other => other?,
                };
                let since = since(to, &memory, now);
                ways.insert(to.name.clone(), since);
                since
            }
            Some(to) => ways.get(&to.name).copied().unwrap_or_default(),
            None => Since::default(),
        };
        let (action, why) = match config.destinations.get(&item.envelope.destination) {
            None => ("skip", Some("its destination is not configured".to_owned())),
            Some(_) if found.state == State::Held => match standing.due {
                Some(at) if at <= now => ("release", None),
                _ => return Ok(()),
            },
            Some(_) if found.state == State::Unknown && standing.state != State::Unknown => (
                "recover",
                Some("the tick that was sending it has died, or is still running".to_owned()),
            ),
            Some(destination) => match turn(destination, &item, now, &trust, since, None) {
                Decision::Claim if found.state == State::Unknown => ("resend", None),
                Decision::Claim => ("send", None),
                Decision::Settle(event, _) => (
                    "settle",
                    Some(format!(
                        "{} ({})",
                        event.state,
                        event.reason.as_ref().map_or("", Reason::as_str)
                    )),
                ),
                Decision::Wait | Decision::Leave => ("skip", Some(format!("not due before {due}"))),
            },
        };
        steps.push(Step {
            request_id: found.id,
            destination: found.destination.clone(),
            state: found.state,
            action,
            why,
            due,
        });
        Ok(())
    })?;
    steps.sort_by(|a, b| {
        (&a.destination, a.due.minute(), a.request_id).cmp(&(
            &b.destination,
            b.due.minute(),
            b.request_id,
        ))
    });
    keep_back(store, &mut steps, limit, now)?;
    Ok(steps)
}

/// Marks what a suspension, an operator's hold or the limit would keep back.
fn keep_back(
    store: &dyn Store,
    steps: &mut [Step],
    limit: Option<u64>,
    now: UnixMs,
) -> Result<(), StoreError> {
    let mut sent = 0;
    let mut current: Option<(String, Option<String>, bool)> = None;
    for step in steps {
        if !matches!(step.action, "send" | "resend") {
            continue;
        }
        if current
            .as_ref()
            .is_none_or(|(name, ..)| *name != step.destination)
        {
            let (blocked, trying) = blocked(store, &step.destination, now)?;
            current = Some((step.destination.clone(), blocked, trying));
        }
        let Some((_, blocked, trying)) = &mut current else {
            continue;
        };
        if let Some(why) = blocked {
            step.action = "skip";
            step.why = Some(why.clone());
        } else if limit.is_some_and(|limit| sent >= limit) {
            step.action = "skip";
            step.why = Some("the limit is reached".to_owned());
        } else {
            sent += 1;
            if *trying {
                step.why = Some("the destination is suspended; this item tries it".to_owned());
                *blocked = Some("the destination is suspended; one item tries it first".to_owned());
            }
        }
    }
    Ok(())
}

/// Why nothing would be sent to a destination, and whether one item would try it.
fn blocked(
    store: &dyn Store,
    destination: &str,
    now: UnixMs,
) -> Result<(Option<String>, bool), StoreError> {
    if store.destination_hold(destination)?.is_some() {
        return Ok((Some("an operator holds the destination".to_owned()), false));
    }
    let memory = match destination.parse::<DestName>() {
        Ok(name) => match store.memory(&name) {
            Err(StoreError::Io { path, source, .. }) => {
                let why = format!("{} cannot be read: {source}", path.display());
                return Ok((Some(why), false));
            }
            other => other?,
        },
        Err(_) => Memory::default(),
    };
    Ok(match memory.suspended {
        None => (None, false),
        Some(suspension) => match suspension.until {
            Some(until) if until <= now => (None, true),
            Some(until) => (
                Some(format!(
                    "the destination is suspended ({}) until {until}",
                    suspension.reason
                )),
                false,
            ),
            None => (
                Some(format!(
                    "the destination is suspended ({}) until a person releases it",
                    suspension.reason
                )),
                false,
            ),
        },
    })
}
