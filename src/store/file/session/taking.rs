//! Dropped files that carry their ids become items, or stay.

use std::collections::VecDeque;

use super::super::super::{
    Answer, Dropped, Intake, Limits, Offer, Refusal, Store as _, StoreError, TakenIn,
};
use super::super::keys::{Reservation, known_item};
use super::super::{accept, stuck};
use super::FileSession;
use super::drop_name::DropFile;
use crate::model::draft::Draft;
use crate::model::envelope::{Request, sha256_hex};
use crate::model::ids::{DestName, RequestId};
use crate::model::notice::Asked;
use crate::model::state::State;

impl FileSession<'_> {
    /// Accepts what carries its id.
    pub(super) fn accept_taking(
        &mut self,
        destination: &DestName,
        taking: Vec<(DropFile, Offer)>,
        limits: &Limits,
        taken: &mut TakenIn,
    ) -> Result<(), StoreError> {
        let dir = format!("incoming/{destination}");
        let (taking, offers): (Vec<_>, Vec<_>) = taking.into_iter().unzip();
        let asked: Vec<Asked> = offers.iter().map(|o| Asked::of(&o.envelope)).collect();
        let mut again = match offers.len() {
            2.. => offers.iter().map(same_offer).collect(),
            _ => VecDeque::new(),
        };
        let mut answers = Vec::new();
        let accepted = accept::accept_all(self.store, offers, limits, false, &mut answers);
        // One that nobody can decide on keeps those out that share its syncs.
        let mut singly = false;
        let untold = match &accepted {
            Err(error) if self.has_no_place(error) => {
                Some(format!("{}; it waits until that is mended", words(error)))
            }
            Err(error) if self.is_out_of_reach(error) => {
                singly = !again.is_empty();
                Some(waits(&words(error)))
            }
            Ok(()) | Err(_) => None,
        };
        for ((file, asked), answer) in taking.iter().zip(asked).zip(answers) {
            let path = format!("{dir}/{}", file.name);
            let offer = again.pop_front().flatten();
            match answer {
                Answer::New(_) => {
                    taken.accepted += 1;
                    self.remove_dropped(&path, taken)?;
                }
                Answer::Known(_) => {
                    taken.known += 1;
                    self.remove_dropped(&path, taken)?;
                }
                // Its content may be all that is left of the item: it is not removed unheard.
                Answer::Aside(id) => {
                    let why = format!(
                        "it repeats item {id}, whose file was damaged and set aside: neither is sent; `tickpost show {id}` says where that is. To send it again, drop it with a new `key`"
                    );
                    self.set_aside_as(&path, &file.original(), destination.as_str(), &why, &asked)?;
                }
                Answer::Refused(refusal) => {
                    let why = refusal.to_string();
                    self.set_aside_as(&path, &file.original(), destination.as_str(), &why, &asked)?;
                }
                Answer::Full(full) => taken.full = Some(full),
                // The next tick looks again.
                Answer::Busy | Answer::Open => match (&untold, offer) {
                    (Some(_), Some(offer)) if singly => {
                        let alone = vec![(file.clone(), offer)];
                        self.accept_taking(destination, alone, limits, taken)?;
                    }
                    (Some(why), _) => self.stays(&path, why, &mut taken.stay),
                    (None, _) => {}
                },
            }
        }
        if untold.is_some() {
            return Ok(());
        }
        accepted
    }

    /// Ends with a file, at this path, whose id is an item's, or was. It only goes if it is that item's:
    /// a tick died before it removed it. Another request was put there by whoever made up the name, and
    /// is refused like any that asks for an id that is taken.
    pub(super) fn end_taking(
        &mut self,
        (path, file, id): (&str, &DropFile, RequestId),
        dropped: &Dropped<'_>,
        decided: &Intake,
        taken: &mut TakenIn,
    ) -> Result<(), StoreError> {
        let (mine, asked, refused) = match decided {
            Intake::Accept(offer) => {
                let asked = Asked::of(&offer.envelope);
                (Some(Reservation::of_id(&offer.envelope)), asked, None)
            }
            // What is no item names nobody that could be trusted to be there.
            Intake::Refuse(why) => (accepted_once(dropped, id), Asked::default(), Some(why)),
        };
        let item = match known_item(self.store, id) {
            Err(error) if self.is_out_of_reach(&error) => {
                self.stays(path, &waits(&words(&error)), &mut taken.stay);
                return Ok(());
            }
            other => other?,
        };
        let (is_same, refusal) = if let Some(item) = item {
            (
                mine == Some(Reservation::of_id(&item)),
                Refusal::IdTaken { id },
            )
        } else if let Some(pruned) = self.store.tombstone(id)? {
            // Of its request no more is left than where it went and its body: with these it is taken
            // for the same, though method, path or query may have been others.
            let is_same = mine.is_some_and(|mine| {
                mine.body_sha256 == pruned.body_sha256
                    && mine.destination.as_deref() == Some(pruned.destination.as_str())
            });
            (is_same, Refusal::Pruned { id })
        } else {
            let why = waits(&format!("item {id} cannot be read"));
            self.stays(path, &why, &mut taken.stay);
            return Ok(());
        };
        if is_same {
            taken.known += 1;
            return self.remove_dropped(path, taken);
        }
        let why = refused.map_or_else(|| refusal.to_string(), String::clone);
        let name = file.original();
        self.set_aside_as(path, &name, dropped.destination.as_str(), &why, &asked)
    }

    /// Whether an error says only that an item cannot be put where it belongs. Nothing of those without
    /// an answer is in the spool then, but what a caller that dies leaves in `keys/`.
    fn has_no_place(&self, error: &StoreError) -> bool {
        let StoreError::Io { op, path, source } = error else {
            return false;
        };
        let mut states = State::ALL.map(State::as_str).into_iter();
        ["make directory", "rename"].contains(op)
            && stuck::is_of_one_file(source)
            && states.any(|state| path.starts_with(self.store.path(state)))
    }

    /// Whether an error says only that something could not be looked at which tells whether an item
    /// is there already. Nothing of an item has been written then: what may have been, in `keys/`, is
    /// what a caller that dies leaves, and names the id that the file carries.
    pub(super) fn is_out_of_reach(&self, error: &StoreError) -> bool {
        let StoreError::Io { op, path, source } = error else {
            return matches!(error, StoreError::NotDirectory { .. });
        };
        let is_below = |dir: &str| path.starts_with(self.store.path(dir));
        let looks = [
            "list",
            "look at",
            "read",
            "open",
            "lock",
            "sync directory again",
        ];
        let is_look = looks.contains(op);
        let is_told_by = ["corrupt", "log", "bodies", "journal"]
            .into_iter()
            .chain(State::ALL.map(State::as_str));
        stuck::is_of_one_file(source)
            && ((is_look && is_told_by.into_iter().any(is_below))
                || (is_below("keys") && !op.starts_with("sync")))
    }
}

/// What a file that is refused now would have reserved if it was accepted before: its time may be over
/// since, or the configuration another one. `None` if it never was an item.
fn accepted_once(dropped: &Dropped<'_>, id: RequestId) -> Option<Reservation> {
    let draft = Draft::parse(dropped.bytes).ok()?;
    let request = Request {
        method: draft.method,
        path: draft.path,
        query: draft.query,
        headers: draft.headers,
        content_type: draft.content_type,
        body: None,
        body_sha256: sha256_hex(&draft.body),
    };
    let destination = draft.destination.as_ref().unwrap_or(dropped.destination);
    Some(Reservation {
        request_id: id,
        request_sha256: request.sha256(),
        body_sha256: request.body_sha256,
        destination: Some(destination.to_string()),
    })
}

/// An offer once more; of a dropped file it is whole without a body beside it.
fn same_offer(offer: &Offer) -> Option<Offer> {
    offer.body.is_none().then(|| Offer {
        envelope: offer.envelope.clone(),
        accepted: offer.accepted.clone(),
        own_id: offer.own_id,
        body: None,
    })
}

/// Why a file stays whose item may be there already.
pub(super) fn waits(why: &str) -> String {
    format!("{why}; it waits until that is mended, for its item may be there already")
}

/// An error with its cause.
pub(super) fn words(error: &StoreError) -> String {
    let cause = std::error::Error::source(error);
    cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}
