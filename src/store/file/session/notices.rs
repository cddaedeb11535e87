//! The notices of a session become items.

use std::io;
use std::path::Path;

use uuid::Uuid;

use super::super::super::StoreError;
use super::super::journal::io_error;
use super::super::layout::{Place, Slot};
use super::super::{ITEM_BYTES_MAX, keys, replay, stuck};
use super::FileSession;
use crate::model::envelope::Envelope;
use crate::model::event::{Event, EventKind};
use crate::model::ids::RequestId;
use crate::model::item::Item;
use crate::model::notice::Merged;
use crate::model::state::State;

/// What an id is to a notice that is to have it.
enum Taken {
    No,
    /// A session that died before its journal was gone has accepted this very notice.
    ByItself,
    /// Ids of notices can be computed by whoever knows the item, and callers choose ids.
    ByAnother,
}

impl FileSession<'_> {
    /// Accepts every notice as an item, under its own id or, if that is another item's, under the
    /// next one that is a function of it: made again after a crash it is the same.
    ///
    /// What cannot be accepted because its own place is out of reach is kept, and told of.
    pub(super) fn accept_notices(&mut self) -> Result<(), StoreError> {
        let mut kept = Merged::default();
        // Setting aside what is in a notice's way is itself told of.
        while !self.notices.is_empty() {
            for one in std::mem::take(&mut self.notices).singly() {
                for envelope in one.envelopes(self.now, &self.told_in_text) {
                    let dir = format!("pending/{}", envelope.destination);
                    match self.accept_notice(envelope) {
                        Err(StoreError::Io { op, path, source })
                            if self.is_of_one_place(&dir, op, &path, &source) =>
                        {
                            kept.join(one.clone());
                            let why = format!(
                                "cannot accept a notice: {op} {}: {source}; it is kept, and tried again",
                                path.display()
                            );
                            self.foreign(&dir, &why);
                        }
                        other => other?,
                    }
                }
            }
        }
        self.notices.join(kept);
        Ok(())
    }

    /// Whether an error says that a notice's own place is out of reach, and nothing else. A sync that
    /// failed is none: nothing about the disk is certain. One that could not begin, of a directory
    /// that may not be read, is.
    fn is_of_one_place(&self, dir: &str, op: &str, path: &Path, source: &io::Error) -> bool {
        // What looks only has changed nothing, wherever it looked.
        let is_look = ["read", "look at"].contains(&op);
        stuck::is_of_one_file(source)
            && (is_look || path.starts_with(self.store.path(dir)))
            && (!op.starts_with("sync") || source.kind() == io::ErrorKind::PermissionDenied)
    }

    fn accept_notice(&mut self, mut envelope: Envelope) -> Result<(), StoreError> {
        let first = envelope.request_id;
        for again in 1_u64.. {
            match self.taken(&envelope)? {
                Taken::ByItself => return Ok(()),
                Taken::No => match self.place_notice(&envelope) {
                    Err(StoreError::Exists { .. }) => {}
                    // What lacks its sync only is made durable with all the rest. What is there may
                    // be sent before it is tried again, and would be told twice.
                    Err(StoreError::Io { op, source, .. })
                        if op.starts_with("sync")
                            && source.kind() == io::ErrorKind::PermissionDenied
                            && matches!(self.taken(&envelope)?, Taken::ByItself) =>
                    {
                        return Ok(());
                    }
                    other => return other,
                },
                Taken::ByAnother => {}
            }
            envelope.request_id = RequestId(Uuid::new_v5(&first.0, again.to_string().as_bytes()));
        }
        Ok(())
    }

    /// Looks at no more than two files, whatever the spool holds.
    fn taken(&self, envelope: &Envelope) -> Result<Taken, StoreError> {
        let id = envelope.request_id;
        // Nobody has moved it from where it was accepted: the journal is replayed before anything
        // else is done.
        let place = Place {
            state: State::Pending,
            destination: envelope.destination.to_string(),
            slot: Slot::Root,
            id,
        };
        let path = self.store.path(&place.path());
        match self.store.disk.read(&path, ITEM_BYTES_MAX) {
            Ok(bytes) => {
                let is_notice = Item::parse(&bytes).is_ok_and(|parsed| parsed.item.envelope.notice);
                return Ok(if is_notice {
                    Taken::ByItself
                } else {
                    Taken::ByAnother
                });
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                return Ok(Taken::ByAnother);
            }
            Err(source) if stuck::is_of_the_disk(&source) => {
                return Err(io_error("read", &path, source));
            }
            // It is not there, or nobody can tell.
            Err(_) => {}
        }
        // An id that a caller chose is reserved as long as its item is there, and no notice's is.
        let reserved = self.store.path(&keys::own_id_path(id));
        Ok(match self.store.disk.stat(&reserved) {
            Ok(_) => Taken::ByAnother,
            Err(source) if stuck::is_of_the_disk(&source) => {
                return Err(io_error("look at", &reserved, source));
            }
            Err(_) => Taken::No,
        })
    }

    fn place_notice(&mut self, envelope: &Envelope) -> Result<(), StoreError> {
        let accepted = Event::new(EventKind::Accepted, self.now, State::Pending);
        let placed =
            self.with_room(|session| session.store.place_new(envelope.clone(), accepted.clone()));
        let Err(StoreError::NotDirectory { .. }) = placed else {
            return placed;
        };
        // One address that cannot be written to must not keep back all others, and whoever it is
        // must be told.
        let name = &envelope.destination;
        let aside = replay::clear_way(self.store, &format!("pending/{name}/x"))?;
        self.displaced(aside.into_iter().collect())?;
        self.store.place_new(envelope.clone(), accepted)
    }
}
