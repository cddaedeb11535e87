//! The logs of what was pruned, `log/pruned-DAY.jsonl`, one a UTC day of pruning; and which days
//! of settled items are past retention.
//!
//! A line is one [`Tombstone`], the request id first. A crash may leave half a line, or zeros; what
//! is no tombstone is none. An id may have several: they say the same, but for `pruned_at`.

use std::io;

use super::super::disk::Kind;
use super::super::{Pruned, StoreError};
use super::FileStore;
use super::journal::io_error;
use super::layout::{self, Slot, slot_dir};
use crate::model::ids::{DestName, RequestId};
use crate::model::state::State;
use crate::model::time::{UnixMs, id_time};
use crate::model::tombstone::{Retention, Tombstone};

/// So much of a log is read at once, in bytes.
const PART_BYTES: u64 = 256 * 1024;

/// A line longer than this is none of ours, in bytes.
const LINE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The log of the day on which `at` lies, relative to the spool.
pub(super) fn log_of(at: UnixMs) -> String {
    format!("log/pruned-{}.jsonl", at.day_name())
}

/// The days of all logs, oldest first.
pub(super) fn days(store: &FileStore) -> Result<Vec<UnixMs>, StoreError> {
    let mut days = Vec::new();
    store.list("log", &mut |name, kind| {
        let day = name
            .to_str()
            .and_then(|name| name.strip_prefix("pruned-")?.strip_suffix(".jsonl"))
            .and_then(UnixMs::from_day_name);
        if kind == Kind::File {
            days.extend(day);
        }
    })?;
    days.sort();
    Ok(days)
}

/// Reads a log part by part, whole lines at a time.
pub(super) struct LogReader {
    relative: String,
    offset: u64,
    rest: Vec<u8>,
}

impl LogReader {
    pub(super) fn new(day: UnixMs) -> Self {
        Self {
            relative: log_of(day),
            offset: 0,
            rest: Vec::new(),
        }
    }

    /// The tombstones of the next part for which `wanted` holds of the line. `None` at the end;
    /// a log that is not there has none.
    pub(super) fn next(
        &mut self,
        store: &FileStore,
        wanted: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<Vec<Tombstone>>, StoreError> {
        let path = store.path(&self.relative);
        let part = match store.disk.read_part(&path, self.offset, PART_BYTES) {
            Ok(part) => part,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(io_error("read", &path, source)),
        };
        if part.is_empty() {
            return Ok(None);
        }
        self.offset += part.len() as u64;
        self.rest.extend(part);
        let end = self.rest.iter().rposition(|b| *b == b'\n');
        let rest = match end {
            Some(end) => self.rest.split_off(end + 1),
            None if self.rest.len() > LINE_BYTES_MAX => Vec::new(),
            None => return Ok(Some(Vec::new())),
        };
        let lines = std::mem::replace(&mut self.rest, rest);
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
    // Nothing is pruned before it is there: an id that carries its time needs no earlier log.
    let made = beginning.parse::<RequestId>().ok().and_then(id_time);
    let first = made.map_or(UnixMs(0), UnixMs::day);
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
            pruned.items += u64::from(matches!((kind, parsed), (Kind::File, Some((_, None)))));
        })?;
    }
    let logs = days(store)?;
    let forgotten = logs.iter().filter(|day| retention.is_forgotten(**day, now));
    pruned.tombstone_files = forgotten.count() as u64;
    Ok(pruned)
}
