//! Mending: what a look at the spool found is put right, and a copied spool is made one of its own.
//!
//! # Order of writes
//!
//! Every move of an item, also to `corrupt/`, is in the journal first, as any other. What is not an
//! item's (modes, directories, orphans, the second name of one file) is done at once: each step
//! leaves a spool that the next look understands. Everything is synced when the session ends.

use std::io;

use uuid::Uuid;

use super::super::super::StoreError;
use super::super::super::checkup::Checkup;
use super::super::census;
use super::super::doctor::placement::{self, Amiss};
use super::super::doctor::{self, Fault, Mend};
use super::super::journal::{MoveRecord, io_error};
use super::super::keys::{self, Reservation};
use super::super::layout::Place;
use super::super::{FORMAT, SpoolFile, stuck};
use super::{FileSession, Got};
use crate::model::event::{Event, EventKind};
use crate::model::ids::RequestId;
use crate::model::item::Item;
use crate::model::notice::{Asked, Notice};
use crate::model::state::State;
use crate::model::time::UnixMs;

/// So often all is looked at again: what is mended can bring more to light, such as a directory
/// that could not be listed.
const ROUNDS_MAX: usize = 5;

impl FileSession<'_> {
    pub(super) fn mend_all(&mut self, checkup: &Checkup<'_>) -> Result<(), StoreError> {
        self.now = checkup.now;
        let mut before = Vec::new();
        for _ in 0..ROUNDS_MAX {
            self.flush()?;
            let faults = doctor::look(self.store, checkup, true)?;
            let done = |fault: &Fault| matches!(fault.mend, Mend::Person | Mend::Owner);
            let open: Vec<Fault> = faults.into_iter().filter(|fault| !done(fault)).collect();
            if open.is_empty() || open == before {
                break;
            }
            // What is neither in the journal nor synced by itself is before the session ends.
            self.dirty = true;
            for fault in &open {
                self.mend_one(fault)?;
            }
            before = open;
        }
        self.flush()
    }

    fn mend_one(&mut self, fault: &Fault) -> Result<(), StoreError> {
        let relative = &fault.finding.path;
        let path = self.store.path(relative);
        match &fault.mend {
            Mend::Person | Mend::Owner => Ok(()),
            Mend::MakeDir => self.store.make_dirs(relative),
            Mend::MakeFile => match self.store.disk.write_new(&path, b"", None) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    Err(io_error("write", &path, error))
                }
                Ok(()) | Err(_) => Ok(()),
            },
            Mend::Mode(mode) => {
                if let Err(error) = self.store.disk.set_mode(&path, *mode) {
                    // Of another user's file: it stays among what is found.
                    self.foreign(relative, &format!("cannot set its mode: {error}"));
                }
                Ok(())
            }
            Mend::Item => self.mend_item(relative),
            Mend::Doubled { keep, why, claimed } => {
                self.mend_doubled(relative, keep, why.as_deref(), *claimed)
            }
            Mend::Body(id) => self.drop_body(relative, *id),
            Mend::DropKey => self.drop_key(relative, fault.finding.request_id),
            Mend::Key { item } => self.mend_key(relative, item),
        }
    }

    fn mend_item(&mut self, relative: &str) -> Result<(), StoreError> {
        let Some(place) = Place::parse(relative) else {
            return Ok(());
        };
        // One that is damaged is set aside by being read.
        let Got::Item(item, bytes_good) = self.get(&place)? else {
            return Ok(());
        };
        let Ok(meta) = self.store.disk.stat(&self.store.path(relative)) else {
            return Ok(());
        };
        match placement::amiss(&place, &item, meta.mtime, self.now) {
            None => Ok(()),
            Some(Amiss::Elsewhere(to)) => self.record(
                MoveRecord::plain(&place, &to, item.turn()),
                Some(bytes_good),
            ),
            Some(Amiss::Hint(turn)) => self.hint_or_tell(relative, turn).map(drop),
            Some(Amiss::LostAttempt) => self.lost_event(&place, &item, bytes_good, self.now),
            Some(Amiss::LostHold) => {
                let mut event = Event::new(EventKind::Recovered, self.now, State::Held);
                event.note = Some("its last event was damaged and is lost".to_owned());
                let number = item.events.len() + 1;
                let notices = Notice::of(&item, &event, number, &self.told_of_corrupt);
                self.move_with_event(&place, &item, bytes_good, event, notices)
            }
        }
    }

    fn mend_doubled(
        &mut self,
        relative: &str,
        keep: &str,
        why: Option<&str>,
        claimed: bool,
    ) -> Result<(), StoreError> {
        self.flush()?;
        let disk = &self.store.disk;
        let (goes, stays) = (self.store.path(relative), self.store.path(keep));
        let (Ok(one), Ok(other)) = (disk.stat(&goes), disk.stat(&stays)) else {
            return Ok(());
        };
        match why {
            None if one.inode == other.inode => {
                // The name that stays must not be lost with the one that goes.
                let (dir, _) = keep.rsplit_once('/').unwrap_or((keep, ""));
                self.store.sync_dir(dir)?;
                let unlinked = disk.unlink(&goes);
                if let Err(source) = unlinked {
                    let why = stuck::of_one_file(io_error("remove", &goes, source))?;
                    self.foreign(relative, &why);
                }
                Ok(())
            }
            // What was decided of it before goes first.
            Some(_) if self.stuck.holds_path(relative) => Ok(()),
            Some(why) if one.inode != other.inode => {
                let place = Place::parse(keep);
                if let (true, Some(place)) = (claimed, &place)
                    && let Got::Item(item, bytes_good) = self.get(place)?
                {
                    // Only the name that goes says that it may have been sent.
                    self.lost_event(place, &item, bytes_good, self.now)?;
                }
                let destination = place.map(|place| place.destination).unwrap_or_default();
                self.set_aside(relative, &destination, why, &Asked::default())
            }
            _ => Ok(()),
        }
    }

    /// Removes a body, unless somebody is just accepting an item with it.
    fn drop_body(&mut self, relative: &str, id: RequestId) -> Result<(), StoreError> {
        // Whoever accepts under an id that is a day old owns this name meanwhile.
        let name = keys::own_id_path(id);
        let nobody = Reservation {
            request_id: id,
            body_sha256: String::new(),
            request_sha256: String::new(),
            destination: None,
        };
        let Some(owned) = keys::own(self.store, &name, &nobody)? else {
            return Ok(());
        };
        let path = self.store.path(relative);
        let (there, obstacles) = census::present(self.store, &[id].into())?;
        let is_old = self
            .store
            .disk
            .stat(&path)
            .is_ok_and(|meta| self.now.since(meta.changed) > crate::model::time::DAY_MS);
        // Whose it is may lie behind what stands somewhere.
        if there.is_empty() && obstacles.is_empty() && is_old {
            keys::remove(self.store, &path)?;
        }
        if owned.fresh {
            keys::disown(self.store, &owned)?;
        }
        Ok(())
    }

    /// Removes a name in `keys/`, unless somebody uses it, or it says something else by now.
    fn drop_key(&mut self, relative: &str, id: Option<RequestId>) -> Result<(), StoreError> {
        let nobody = Reservation {
            request_id: id.unwrap_or(RequestId(Uuid::nil())),
            body_sha256: String::new(),
            request_sha256: String::new(),
            destination: None,
        };
        let Some(owned) = keys::own(self.store, relative, &nobody)? else {
            return Ok(());
        };
        let names = owned.before.as_ref().map(|before| before.request_id);
        let is_same = owned.fresh || names.is_none() || names == id;
        let there = match id {
            Some(id) => {
                let (there, obstacles) = census::present(self.store, &[id].into())?;
                !there.is_empty() || !obstacles.is_empty()
            }
            None => false,
        };
        if is_same && !there {
            keys::disown(self.store, &owned)?;
        }
        Ok(())
    }

    fn mend_key(&mut self, relative: &str, item: &str) -> Result<(), StoreError> {
        // It may have been moved or set aside just now; then the next round knows.
        let Some(place) = Place::parse(item) else {
            return Ok(());
        };
        let Got::Item(item, _) = self.get(&place)? else {
            return Ok(());
        };
        let mine = reservation(relative, &item);
        let Some(mut owned) = keys::own(self.store, relative, &mine)? else {
            return Ok(());
        };
        if !owned.fresh {
            keys::rewrite(self.store, &mut owned, &mine)?;
        }
        // Durable when the session ends; until then it is no worse than it was.
        Ok(())
    }

    /// Everything durable, then `spool.json` with the lock of this spool and an id of its own.
    pub(super) fn become_own(&mut self, now: UnixMs, spool_id: Uuid) -> Result<(), StoreError> {
        self.now = now;
        self.dirty = true;
        self.checkpoint()?;
        let path = self.store.path("lock");
        let lock = self
            .store
            .disk
            .stat(&path)
            .map_err(|source| io_error("look at", &path, source))?;
        let spool = SpoolFile {
            format: FORMAT,
            spool_id,
            created_at: self.store.created_at,
            lock_inode: lock.inode.1,
        };
        let json = serde_json::to_string(&spool).map_err(|source| StoreError::Encode {
            what: "spool.json",
            source,
        })?;
        self.store.make_dirs("tmp")?;
        self.store
            .write_whole("spool.json", format!("{json}\n").as_bytes())?;
        self.store.sync_dir("")?;
        self.clock.becomes_own();
        let own = super::super::FileStore {
            lock_inode: spool.lock_inode,
            ..self.store.clone()
        };
        self.clock.write(&own)?;
        // Else the stamp of the other one may be back after a loss of power.
        self.sync_all()
    }
}

fn reservation(relative: &str, item: &Item) -> Reservation {
    if relative == keys::own_id_path(item.envelope.request_id) {
        Reservation::of_id(&item.envelope)
    } else {
        Reservation::of_key(&item.envelope)
    }
}
