//! Pruning: what is past retention goes, and its tombstone stays.
//!
//! # Order of writes
//!
//! For a group of items: their tombstones are durable; then the items' names go, durably; then
//! their bodies and dedupe keys. A crash before the second leaves items that have a tombstone: they
//! are still items, and are pruned again. A crash before the third leaves bodies and keys of items
//! that are gone: the tombstones of the last group name them, and the next pruning begins with
//! those. An old log of tombstones goes last, after the reservations of its ids, and after the
//! ledgers that list them: what a ledger lists has a tombstone, or is there.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::io;

use super::super::super::disk::{Kind, Lock};
use super::super::super::{Pruned, StoreError};
use super::super::journal::io_error;
use super::super::layout::{self, Place, Slot};
use super::super::replay::is_absence;
use super::super::tombstones::{self, LogReader, OldLogs, SettledDay};
use super::super::{keys, logs, reader, stuck};
use super::twin::Doubt;
use super::{FileSession, Got};
use crate::model::ids::RequestId;
use crate::model::time::UnixMs;
use crate::model::tombstone::{Retention, Tombstone, latest_time};

/// So many items share the syncs of one group. Each may own the lock of its key meanwhile, which
/// is an open file.
const GROUP_ITEMS: usize = 128;

/// So many names of a day are in memory at once.
const NAMES_MAX: usize = 65_536;

/// The largest file of a key that is read, in bytes.
const KEY_BYTES_MAX: u64 = 64 * 1024;

/// How far the pruning of a session has come.
#[derive(Default)]
pub(in super::super) struct Pruner {
    begun: bool,
    /// What is left, oldest day first.
    days: VecDeque<SettledDay>,
    /// Items of the first of them.
    names: VecDeque<Place>,
    /// Past retention and left as they are: they are not looked at twice.
    passed: HashSet<RequestId>,
    /// Old ledgers and logs of ticks.
    old: OldLogs,
    /// Old logs of tombstones.
    logs: VecDeque<UnixMs>,
    /// How far the first of them has been read.
    log: Option<LogReader>,
    /// The log that this session has appended to: it ends with a whole line.
    whole: Option<String>,
}

impl Pruner {
    fn is_through(&self) -> bool {
        let items = self.names.is_empty() && self.days.is_empty();
        items && self.old.is_empty() && self.logs.is_empty()
    }
}

/// A dedupe key's file.
enum KeyFile {
    /// There is none, or it names another item.
    None,
    /// It names this item, and is ours while this lives.
    Own(
        String,
        #[expect(dead_code, reason = "owning it is its use")] Box<dyn Lock>,
    ),
    /// Somebody uses it just now.
    Busy,
}

impl FileSession<'_> {
    pub(super) fn prune_some(
        &mut self,
        retention: &Retention,
        now: UnixMs,
        items_max: usize,
    ) -> Result<Pruned, StoreError> {
        self.now = now;
        // What this session has moved must lie in its place before anything goes.
        self.flush()?;
        if !self.pruner.begun {
            self.begin_pruning(retention, now)?;
        }
        let mut pruned = Pruned::default();
        let mut looks = 0;
        while looks < items_max {
            let group = self.next_group((items_max - looks).min(GROUP_ITEMS));
            if group.is_empty() {
                break;
            }
            looks += group.len();
            self.prune_group(group, retention, now, &mut pruned)?;
        }
        if self.pruner.names.is_empty() && self.pruner.days.is_empty() {
            self.forget_some(&mut pruned)?;
        }
        pruned.left = !self.pruner.is_through();
        Ok(pruned)
    }

    fn begin_pruning(&mut self, retention: &Retention, now: UnixMs) -> Result<(), StoreError> {
        let logs = tombstones::days(self.store)?;
        if let Some(last) = logs.last() {
            // A session that died may have left bodies and keys of its last group.
            match tombstones::tail(self.store, *last, GROUP_ITEMS) {
                Ok(group) => self.finish(&group)?,
                Err(error) => self.foreign(&tombstones::log_of(*last), &error.to_string()),
            }
        }
        let mut foreign = Vec::new();
        self.pruner.days = tombstones::past_days(self.store, retention, now, &mut foreign)?.into();
        for (path, why) in foreign {
            self.foreign(&path, &why);
        }
        let forgotten = |day: &UnixMs| retention.is_forgotten(*day, now);
        self.pruner.logs = logs.into_iter().filter(forgotten).collect();
        self.pruner.old = OldLogs::find(self.store, retention, now)?;
        self.pruner.begun = true;
        Ok(())
    }

    /// The next items past retention, of one or more days.
    fn next_group(&mut self, items_max: usize) -> Vec<Place> {
        let mut group = Vec::new();
        while group.len() < items_max {
            if let Some(place) = self.pruner.names.pop_front() {
                group.push(place);
                continue;
            }
            let Some(day) = self.pruner.days.pop_front() else {
                break;
            };
            self.list_day(&day, &group);
        }
        group
    }

    /// Reads the names of a day. If there are more than are held at once, the day's turn comes
    /// again.
    fn list_day(&mut self, day: &SettledDay, taken: &[Place]) {
        let dir = day.dir();
        let taken = taken.iter().filter(|place| place.dir() == dir);
        let taken: HashSet<RequestId> = taken.map(|place| place.id).collect();
        let mut ids = Vec::new();
        let mut more = false;
        let mut foreign = Vec::new();
        let passed = &self.pruner.passed;
        let now = self.now;
        let listed = self.store.list(&dir, &mut |name, kind| match (
            kind,
            layout::parse_name(name.to_str().unwrap_or_default()),
        ) {
            (Kind::File, Some((id, None))) if passed.contains(&id) || taken.contains(&id) => {}
            (Kind::File, Some((id, None))) if tombstones::is_ahead(id, now) => {}
            (Kind::File, Some((id, None))) if ids.len() < NAMES_MAX => ids.push(id),
            (Kind::File, Some((_, None))) => more = true,
            _ => foreign.push(format!("{dir}/{}", name.display())),
        });
        if let Err(error) = listed {
            self.foreign(&dir, &error.to_string());
            return;
        }
        for path in foreign {
            self.foreign(&path, "it does not belong here; it was left as it is");
        }
        if ids.is_empty() && taken.is_empty() {
            // Empty, unless something was left: then it stays.
            drop(self.store.disk.remove_dir(&self.store.path(&dir)));
        }
        ids.sort_unstable();
        self.pruner.names = ids
            .into_iter()
            .map(|id| Place {
                state: day.state,
                destination: day.destination.clone(),
                slot: Slot::Day(day.day),
                id,
            })
            .collect();
        if more {
            self.pruner.days.push_front(day.clone());
        }
    }

    fn prune_group(
        &mut self,
        group: Vec<Place>,
        retention: &Retention,
        now: UnixMs,
        pruned: &mut Pruned,
    ) -> Result<(), StoreError> {
        let mut lines = Vec::new();
        let mut going = Vec::new();
        let mut asides = self.met.set_aside.len();
        for place in group {
            if let Some((tombstone, key)) = self.look(&place, retention, now)? {
                let line = tombstone.line().map_err(|source| StoreError::Encode {
                    what: "a tombstone",
                    source,
                })?;
                lines.extend(line);
                going.push((place, key));
            } else {
                self.pruner.passed.insert(place.id);
                let aside = self.met.set_aside.len();
                pruned.kept += u64::from(aside == asides);
                asides = aside;
            }
        }
        if !going.is_empty() {
            self.append_tombstones(now, &lines)?;
            let mut dirs = BTreeSet::new();
            let mut left = Vec::new();
            for (place, key) in going {
                match self.unlink(&place.path()) {
                    Ok(()) => {
                        dirs.insert(place.dir());
                        left.push((place.id, key));
                    }
                    // It costs no other its turn, and it counts more than its tombstone.
                    Err(error) => {
                        let why = stuck::of_one_file(error)?;
                        self.foreign(&place.path(), &format!("{why}; it is not pruned"));
                        self.pruner.passed.insert(place.id);
                        pruned.kept += 1;
                    }
                }
            }
            for dir in dirs {
                self.settle_dir(&dir)?;
            }
            pruned.items += left.len() as u64;
            self.unlink_rest(left)?;
        }
        // What could not be read is set aside.
        self.flush()
    }

    /// An item that may go: its tombstone, and the file of its key. `None` if it stays, which is
    /// told of where somebody should know.
    fn look(
        &mut self,
        place: &Place,
        retention: &Retention,
        now: UnixMs,
    ) -> Result<Option<(Tombstone, KeyFile)>, StoreError> {
        let (Got::Item(item, _), doubt) = self.get_with_doubt(place)? else {
            return Ok(None);
        };
        // Its body and its key may be those of an item that has gone on. A tombstone tells nothing here.
        if doubt == Doubt::Copy && self.has_twin(place, &item, Doubt::Untold)? {
            return Ok(None);
        }
        // Else the same tombstones would be written by every tick.
        let mode = self.store.disk.mode(&self.store.path(&place.dir()));
        if mode.is_ok_and(|mode| mode.is_some_and(|mode| mode & 0o200 == 0)) {
            self.foreign(
                &place.dir(),
                "it may not be written to; nothing in it is pruned",
            );
            return Ok(None);
        }
        let state = item.standing().state;
        let tombstone = Tombstone::of(&item, now).filter(|t| t.state == place.state);
        let Some(tombstone) = tombstone else {
            self.foreign(
                &place.path(),
                &format!("its events say that it is {state}; it was left as it is"),
            );
            return Ok(None);
        };
        if !retention.is_over(state, latest_time(&item), now) {
            // Filed while the clock stood wrong: its day comes.
            return Ok(None);
        }
        let key = self.key_of(&tombstone)?;
        Ok((!matches!(key, KeyFile::Busy)).then_some((tombstone, key)))
    }

    /// Takes the file of an item's key, if it has one that names the item.
    fn key_of(&mut self, tombstone: &Tombstone) -> Result<KeyFile, StoreError> {
        let Some(key) = &tombstone.key else {
            return Ok(KeyFile::None);
        };
        let relative = keys::key_path(tombstone.destination.as_str(), key);
        let path = self.store.path(&relative);
        let lock = match self.store.disk.lock(&path) {
            Ok(Some(lock)) => lock,
            Ok(None) => return Ok(KeyFile::Busy),
            Err(error) if is_absence(&error) => return Ok(KeyFile::None),
            Err(error) => {
                let kind = self.store.disk.stat(&path).map(|meta| meta.kind);
                self.foreign(&relative, &format!("{error}; it was left as it is"));
                // What is no file is no key. One that is out of reach just now keeps its item.
                return Ok(if matches!(kind, Ok(Kind::File)) {
                    KeyFile::Busy
                } else {
                    KeyFile::None
                });
            }
        };
        let own = lock
            .inode()
            .map_err(|source| io_error("look at", &path, source))?;
        let named = self.store.disk.stat(&path);
        if !named.is_ok_and(|meta| meta.inode == own) {
            // Somebody has just replaced it.
            return Ok(KeyFile::Busy);
        }
        let bytes = match self.store.disk.read(&path, KEY_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(KeyFile::None),
            Err(error) => {
                self.foreign(&relative, &format!("{error}; it was left as it is"));
                return Ok(KeyFile::Busy);
            }
        };
        let named = serde_json::from_slice::<serde_json::Value>(&bytes).ok();
        let id = tombstone.request_id.to_string();
        let is_own = named.is_some_and(|value| value["request_id"] == id.as_str());
        Ok(if is_own {
            KeyFile::Own(relative, lock)
        } else {
            KeyFile::None
        })
    }

    /// Makes tombstones durable.
    fn append_tombstones(&mut self, now: UnixMs, lines: &[u8]) -> Result<(), StoreError> {
        let relative = tombstones::log_of(now);
        let path = self.store.path(&relative);
        let disk = &self.store.disk;
        let fail = |source| io_error("append to", &path, source);
        let is_first = self.pruner.whole.as_ref() != Some(&relative);
        let mut bytes = Vec::with_capacity(lines.len() + 1);
        if is_first {
            self.store.make_dirs("log")?;
            if let Ok(meta) = disk.stat(&path)
                && meta.bytes > 0
                && disk.read_part(&path, meta.bytes - 1, 1).map_err(fail)? != b"\n"
            {
                // A session died while it wrote: half a line must not spoil the next.
                bytes.push(b'\n');
            }
        }
        bytes.extend(lines);
        let mut log = disk.open_log(&path).map_err(fail)?;
        log.append(&bytes).map_err(fail)?;
        log.sync()
            .map_err(|source| io_error("sync", &path, source))?;
        if is_first {
            self.store.sync_dir("log")?;
            self.pruner.whole = Some(relative);
        }
        Ok(())
    }

    /// Removes the bodies and keys of items that are gone, durably: the next group's tombstones
    /// must not follow before.
    fn unlink_rest(&mut self, items: Vec<(RequestId, KeyFile)>) -> Result<(), StoreError> {
        let mut dirs = BTreeSet::new();
        for (id, key) in items {
            let body = format!("bodies/{id}");
            if self.is_file(&body) {
                self.unlink(&body)?;
                dirs.insert("bodies".to_owned());
            }
            if let KeyFile::Own(relative, _) = key {
                self.unlink(&relative)?;
                let (dir, _) = relative.rsplit_once('/').unwrap_or((&relative, ""));
                dirs.insert(dir.to_owned());
            }
        }
        dirs.iter().try_for_each(|dir| self.store.sync_dir(dir))
    }

    /// Removes what pruned items have left behind, where a session died before it could.
    fn finish(&mut self, pruned: &[Tombstone]) -> Result<(), StoreError> {
        for tombstone in pruned {
            let id = tombstone.request_id;
            let key = self.key_of(tombstone)?;
            if !matches!(key, KeyFile::Own(..)) && !self.is_file(&format!("bodies/{id}")) {
                continue;
            }
            match reader::find(self.store, id) {
                Ok(None) => self.unlink_rest(vec![(id, key)])?,
                // An item that is there has use for them, whatever a tombstone says.
                Ok(Some(_)) => {}
                // It may be there: a later pruning sees.
                Err(StoreError::Io { path, source, .. }) => {
                    let path = path.strip_prefix(&self.store.root).unwrap_or(&path);
                    self.foreign(
                        &path.display().to_string(),
                        &format!("cannot look at it: {source}; what a pruned item left stays"),
                    );
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Forgets the old ledgers and logs of ticks, or one part of the oldest log of tombstones that
    /// is past retention.
    fn forget_some(&mut self, pruned: &mut Pruned) -> Result<(), StoreError> {
        if !self.pruner.old.is_empty() {
            let old = std::mem::take(&mut self.pruner.old);
            for (kind, days, files) in [
                (logs::ACCEPTED, old.ledgers, &mut pruned.ledger_files),
                (logs::TICKS, old.ticks, &mut pruned.tick_files),
            ] {
                for day in days {
                    self.unlink(&logs::path(kind, day))?;
                    *files += 1;
                }
            }
            // A ledger that came back without the tombstones would call its items missing.
            return self.store.sync_dir("log");
        }
        let Some(day) = self.pruner.logs.front().copied() else {
            return Ok(());
        };
        let mut log = self
            .pruner
            .log
            .take()
            .unwrap_or_else(|| LogReader::new(day));
        let part = match log.next(self.store, |_| true) {
            Ok(part) => part,
            Err(error) => {
                // It costs the others nothing that one cannot be read.
                self.foreign(&tombstones::log_of(day), &error.to_string());
                self.pruner.logs.pop_front();
                return Ok(());
            }
        };
        if let Some(part) = part {
            self.finish(&part)?;
            let mut any = false;
            for tombstone in &part {
                let reserved = keys::own_id_path(tombstone.request_id);
                if self.is_file(&reserved) {
                    self.unlink(&reserved)?;
                    any = true;
                }
            }
            if any {
                self.store.sync_dir("keys/_ids")?;
            }
            self.pruner.log = Some(log);
            return Ok(());
        }
        self.unlink(&tombstones::log_of(day))?;
        self.pruner.logs.pop_front();
        pruned.tombstone_files += 1;
        Ok(())
    }

    fn is_file(&self, relative: &str) -> bool {
        let meta = self.store.disk.stat(&self.store.path(relative));
        meta.is_ok_and(|meta| meta.kind == Kind::File)
    }

    fn unlink(&self, relative: &str) -> Result<(), StoreError> {
        let path = self.store.path(relative);
        match self.store.disk.unlink(&path) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(source) => Err(io_error("remove", &path, source)),
        }
    }

    /// Makes the names that are left in a directory durable, or that it is gone.
    fn settle_dir(&self, dir: &str) -> Result<(), StoreError> {
        match (
            self.store.disk.remove_dir(&self.store.path(dir)),
            dir.rsplit_once('/'),
        ) {
            (Ok(()), Some((parent, _))) => self.store.sync_dir(parent),
            _ => self.store.sync_dir(dir),
        }
    }
}
