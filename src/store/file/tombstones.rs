//! The logs of what was pruned, `log/pruned-DAY.jsonl`, one a UTC day of pruning; and which days
//! of settled items are past retention.
//!
//! A line is one [`Tombstone`], the request id first. A crash may leave half a line, or zeros; what
//! is no tombstone is none. An id may have several: they say the same, but for `pruned_at`.

use super::super::disk::Kind;
use super::super::{Pruned, StoreError};
use super::FileStore;
use super::journal::io_error;
use super::layout::{self, Slot, slot_dir};
use super::logs::{self, LineReader, PART_BYTES};
use crate::model::ids::{DestName, RequestId};
use crate::model::state::State;
use crate::model::time::{UnixMs, id_time};
use crate::model::tombstone::{Retention, Tombstone};

/// The log of the day on which `at` lies, relative to the spool.
pub(super) fn log_of(at: UnixMs) -> String {
    logs::path(logs::PRUNED, at)
}

/// The days of all logs, oldest first.
pub(super) fn days(store: &FileStore) -> Result<Vec<UnixMs>, StoreError> {
    logs::days(store, logs::PRUNED)
}

/// Reads a log part by part.
pub(super) struct LogReader(LineReader);

impl LogReader {
    pub(super) fn new(day: UnixMs) -> Self {
        Self(LineReader::new(logs::PRUNED, day))
    }

    /// The tombstones of the next part for which `wanted` holds of the line. `None` at the end;
    /// a log that is not there has none.
    pub(super) fn next(
        &mut self,
        store: &FileStore,
        wanted: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<Vec<Tombstone>>, StoreError> {
        let Some(lines) = self.0.next(store)? else {
            return Ok(None);
        };
        let lines = lines.split(|b| *b == b'\n').filter(|line| wanted(line));
        Ok(Some(lines.filter_map(Tombstone::parse).collect()))
    }
}

/// The last tombstones of a log, at most `most`, as far as they stand in its last part.
pub(super) fn tail(
    store: &FileStore,
    day: UnixMs,
    most: usize,
) -> Result<Vec<Tombstone>, StoreError> {
    let path = store.path(&log_of(day));
    let fail = |source| io_error("read", &path, source);
    let bytes = store.disk.stat(&path).map_err(fail)?.bytes;
    let from = bytes.saturating_sub(4 * PART_BYTES);
    let part = store
        .disk
        .read_part(&path, from, 4 * PART_BYTES)
        .map_err(fail)?;
    let lines = part.rsplit(|b| *b == b'\n').filter_map(Tombstone::parse);
    Ok(lines.take(most).collect())
}

/// Tombstones of ids that begin like this, one an id, at most `most`.
pub(super) fn find(
    store: &FileStore,
    beginning: &str,
    most: usize,
) -> Result<Vec<Tombstone>, StoreError> {
    let first = beginning.parse().map_or(UnixMs(0), first_day);
    let start = format!("{{\"request_id\":\"{beginning}");
    let mut found: Vec<Tombstone> = Vec::new();
    for day in days(store)?.into_iter().filter(|day| *day >= first) {
        let mut log = LogReader::new(day);
        while let Some(part) = log.next(store, |line| line.starts_with(start.as_bytes()))? {
            for tombstone in part {
                if found.len() < most && found.iter().all(|t| t.request_id != tombstone.request_id)
                {
                    found.push(tombstone);
                }
            }
            if found.len() >= most {
                return Ok(found);
            }
        }
    }
    Ok(found)
}

/// The first day whose log may tell of an id. Nothing is pruned before it is there: one that carries
/// its time needs no earlier log.
pub(super) fn first_day(id: RequestId) -> UnixMs {
    id_time(id).map_or(UnixMs(0), UnixMs::day)
}

/// A directory of settled items.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SettledDay {
    pub(super) day: UnixMs,
    pub(super) state: State,
    pub(super) destination: String,
}

impl SettledDay {
    pub(super) fn dir(&self) -> String {
        slot_dir(self.state, &self.destination, Slot::Day(self.day))
    }
}

/// The days past retention, oldest first, by the names of directories alone. What is neither a
/// destination nor a day goes to `foreign`, with why.
pub(super) fn past_days(
    store: &FileStore,
    retention: &Retention,
    now: UnixMs,
    foreign: &mut Vec<(String, String)>,
) -> Result<Vec<SettledDay>, StoreError> {
    let strange = || "it does not belong here; it was left as it is".to_owned();
    let mut past = Vec::new();
    for state in State::ALL.into_iter().filter(|state| state.is_terminal()) {
        let mut destinations: Vec<DestName> = Vec::new();
        store.list(state.as_str(), &mut |name, kind| match (
            kind,
            name.to_str().and_then(|name| name.parse().ok()),
        ) {
            (Kind::Directory, Some(name)) => destinations.push(name),
            _ => foreign.push((format!("{state}/{}", name.display()), strange())),
        })?;
        for destination in destinations {
            let top = slot_dir(state, destination.as_str(), Slot::Root);
            let listed = store.list(&top, &mut |name, kind| match (
                kind,
                layout::parse_slot(name.to_str().unwrap_or_default()),
            ) {
                (Kind::Directory, Some(Slot::Day(day))) => {
                    if retention.is_over(state, day, now) {
                        past.push(SettledDay {
                            day,
                            state,
                            destination: destination.to_string(),
                        });
                    }
                }
                _ => foreign.push((format!("{top}/{}", name.display()), strange())),
            });
            if let Err(error) = listed {
                // It costs the others nothing that one directory cannot be read.
                foreign.push((top, error.to_string()));
            }
        }
    }
    past.sort();
    Ok(past)
}

/// The other logs that are past the retention of tombstones, by day.
#[derive(Debug, Default)]
pub(super) struct OldLogs {
    /// Ledgers. An item is pruned later than it was accepted, so the tombstones of what these list
    /// are in logs of the same days or later ones.
    pub(super) ledgers: Vec<UnixMs>,
    /// Logs of ticks; never the newest, whose last line says when the last tick was.
    pub(super) ticks: Vec<UnixMs>,
}

impl OldLogs {
    pub(super) fn find(
        store: &FileStore,
        retention: &Retention,
        now: UnixMs,
    ) -> Result<Self, StoreError> {
        let mut ledgers = logs::days(store, logs::ACCEPTED)?;
        let mut ticks = logs::days(store, logs::TICKS)?;
        ticks.pop();
        for days in [&mut ledgers, &mut ticks] {
            days.retain(|day| retention.is_forgotten(*day, now));
        }
        Ok(Self { ledgers, ticks })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ledgers.is_empty() && self.ticks.is_empty()
    }
}

/// Whether a caller made an id ahead of its time: then its item stays until that is past, for
/// tombstones are looked for from that on.
pub(super) fn is_ahead(id: RequestId, now: UnixMs) -> bool {
    id_time(id).is_some_and(|at| at > now)
}

/// How much is past retention, by names alone.
pub(super) fn prunable(
    store: &FileStore,
    retention: &Retention,
    now: UnixMs,
) -> Result<Pruned, StoreError> {
    let mut pruned = Pruned::default();
    for day in past_days(store, retention, now, &mut Vec::new())? {
        store.list(&day.dir(), &mut |name, kind| {
            let parsed = layout::parse_name(name.to_str().unwrap_or_default());
            if let (Kind::File, Some((id, None))) = (kind, parsed) {
                pruned.items += u64::from(!is_ahead(id, now));
            }
        })?;
    }
    let logs = days(store)?;
    let forgotten = logs.iter().filter(|day| retention.is_forgotten(**day, now));
    pruned.tombstone_files = forgotten.count() as u64;
    let old = OldLogs::find(store, retention, now)?;
    pruned.ledger_files = old.ledgers.len() as u64;
    pruned.tick_files = old.ticks.len() as u64;
    Ok(pruned)
}
