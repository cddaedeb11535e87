//! How a spool stands: counts, ages, suspensions, the last tick.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::model::ids::DestName;
use crate::model::reason::Reason;
use crate::model::state::State;
use crate::model::time::UnixMs;
use crate::store::{DestinationHold, Store, StoreError};

/// The answer of `status --json`. The names are those of the JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// When it was looked at.
    pub at: UnixMs,
    /// Where the spool is.
    pub spool: String,
    /// Items by state.
    pub states: BTreeMap<State, u64>,
    /// Files set aside as unreadable.
    pub corrupt: u64,
    /// Files in drop boxes, and what else is there.
    pub incoming: u64,
    /// How long the oldest of them has been there, in seconds.
    pub incoming_oldest_s: Option<u64>,
    /// How long ago the oldest pending item was accepted, in seconds.
    pub oldest_pending_s: Option<u64>,
    /// Unknown items that only a person can settle.
    pub parked: u64,
    /// By destination.
    pub destinations: BTreeMap<String, DestinationStatus>,
    /// What does not belong into the spool.
    pub foreign: Vec<String>,
    /// Items and directories that cannot be read, with the cause.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
    /// The last tick's line.
    pub last_tick: Option<Value>,
}

/// One destination's part.
#[derive(Clone, Debug, Serialize)]
pub struct DestinationStatus {
    /// Items by state.
    #[serde(flatten)]
    pub states: BTreeMap<State, u64>,
    /// Unknown items that only a person can settle.
    pub parked: u64,
    /// Why and until when nothing but a trying item is sent.
    pub suspended: Option<Suspended>,
    /// What the transport or the receiver said when it was suspended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspended_note: Option<String>,
    /// An operator holds the whole destination.
    pub operator_hold: bool,
    /// Who holds it, since when, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<DestinationHold>,
    /// It is in the configuration.
    pub configured: bool,
}

/// A suspension, as `status` shows it.
#[derive(Clone, Debug, Serialize)]
pub struct Suspended {
    /// Why.
    pub reason: Reason,
    /// When one item is tried; null when only a person ends it.
    pub until: Option<UnixMs>,
}

impl Status {
    /// When the last tick ended. `None` if none has run, or its line cannot be understood.
    #[must_use]
    pub fn ended_at(&self) -> Option<UnixMs> {
        let text = self.last_tick.as_ref()?.get("ended_at")?.as_str()?;
        UnixMs::parse(text).ok()
    }

    /// How many files and directories the last tick left as they were, because it could not use them
    /// or they are none of the spool's.
    #[must_use]
    pub fn left_by_tick(&self) -> u64 {
        let last = self.last_tick.as_ref();
        let count = last.and_then(|line| line.get("foreign")?.as_u64());
        count.unwrap_or(0)
    }

    /// Whether the last tick stopped for want of room on the disk.
    #[must_use]
    pub fn stopped_for_room(&self) -> bool {
        let last = self.last_tick.as_ref();
        let cause = last.and_then(|line| line.get("stopped_by")?.as_str());
        cause == Some("no_room")
    }
}

/// Looks at a store.
///
/// # Errors
///
/// The first [`StoreError`] met.
pub fn look(
    store: &dyn Store,
    spool: String,
    configured: &dyn Fn(&str) -> bool,
    known: &[DestName],
    now: UnixMs,
) -> Result<Status, StoreError> {
    let counts = store.counts()?;
    let mut states: BTreeMap<State, u64> = State::ALL.map(|state| (state, 0)).into();
    let mut destinations = BTreeMap::new();
    let found = counts.destinations.keys().cloned();
    let names: std::collections::BTreeSet<String> =
        found.chain(known.iter().map(ToString::to_string)).collect();
    for name in names {
        let mut own: BTreeMap<State, u64> = State::ALL.map(|state| (state, 0)).into();
        for (state, count) in counts.destinations.get(&name).into_iter().flatten() {
            *own.entry(*state).or_default() += count;
            *states.entry(*state).or_default() += count;
        }
        let memory = match name.parse::<DestName>() {
            // One that is out of reach costs nobody the rest; ticks warn of it.
            Ok(parsed) => match store.memory(&parsed) {
                Err(StoreError::Io { .. }) => crate::store::Memory::default(),
                other => other?,
            },
            Err(_) => crate::store::Memory::default(),
        };
        let suspended_note = memory.suspended.as_ref().and_then(|s| s.note.clone());
        let suspended = memory.suspended.map(|suspension| Suspended {
            reason: suspension.reason,
            until: suspension.until,
        });
        let hold = store.destination_hold(&name)?;
        let own_status = DestinationStatus {
            states: own,
            parked: counts.parked.get(&name).copied().unwrap_or(0),
            suspended,
            suspended_note,
            operator_hold: hold.is_some(),
            hold,
            configured: configured(&name),
        };
        destinations.insert(name, own_status);
    }
    let mut unreadable = counts.unreadable;
    let last_tick = match store.last_tick() {
        Err(StoreError::Io {
            op: "read",
            path,
            source,
        }) => {
            unreadable.push(format!("{}: {source}", path.display()));
            None
        }
        last => last?,
    };
    Ok(Status {
        at: now,
        spool,
        states,
        corrupt: counts.corrupt,
        incoming: counts.incoming,
        incoming_oldest_s: counts.incoming_since.map(|at| now.since(at) / 1000),
        oldest_pending_s: counts.oldest_pending.map(|at| now.since(at) / 1000),
        parked: counts.parked.values().sum(),
        destinations,
        foreign: counts.foreign,
        unreadable,
        last_tick,
    })
}
