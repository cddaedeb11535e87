//! The notices of a session become items.

use uuid::Uuid;

use super::super::super::{Store as _, StoreError};
use super::super::{keys, replay};
use super::FileSession;
use crate::model::envelope::Envelope;
use crate::model::event::{Event, EventKind};
use crate::model::ids::RequestId;
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
    pub(super) fn accept_notices(&mut self) -> Result<(), StoreError> {
        // Setting aside what is in a notice's way is itself told of.
        while !self.notices.is_empty() {
            let batch = std::mem::take(&mut self.notices);
            for envelope in batch.envelopes(self.now, &self.told_in_text) {
                self.accept_notice(envelope)?;
            }
        }
        Ok(())
    }

    fn accept_notice(&mut self, mut envelope: Envelope) -> Result<(), StoreError> {
        let first = envelope.request_id;
        for again in 1_u64.. {
            match self.taken(envelope.request_id)? {
                Taken::ByItself => return Ok(()),
                Taken::No => match self.place_notice(&envelope) {
                    Err(StoreError::Exists { .. }) => {}
                    other => return other,
                },
                Taken::ByAnother => {}
            }
            envelope.request_id = RequestId(Uuid::new_v5(&first.0, again.to_string().as_bytes()));
        }
        Ok(())
    }

    fn taken(&self, id: RequestId) -> Result<Taken, StoreError> {
        if let Some(found) = self.store.find(id)? {
            let item = self.store.read(&found)?;
            return Ok(match item {
                Some(Ok(item)) if item.envelope.notice => Taken::ByItself,
                Some(_) | None => Taken::ByAnother,
            });
        }
        // No notice reserves its id.
        let reserved = self.store.path(&keys::own_id_path(id));
        Ok(match self.store.disk.stat(&reserved) {
            Ok(_) => Taken::ByAnother,
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
