//! The contract of storage in memory: for tests, and to show what the contract is without a
//! disk.
//!
//! A session that is dropped without [`Session::close`] is a process that died: the lock is
//! free, what it had claimed is given to the next session's [`Session::recover`], and what it
//! was to tell is told by the next one. Nothing outlives the [`MemoryStore`] itself.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;

use super::audit::{Audit, Part};
use super::{
    Answer, BodyError, Claimed, Counts, Decision, DestinationHold, Dropped, Found, Full, Intake,
    Interrupted, Limits, Memory, Met, NewBody, NewBodyAt, Offer, Owner, Pruned, Refusal, Room,
    Scope, Session, Store, StoreError, TakenIn, Want,
};
use crate::model::envelope::{Body, Envelope};
use crate::model::event::{Event, EventKind};
use crate::model::ids::{DestName, RequestId};
use crate::model::item::{Damage, Item};
use crate::model::ledger::Listed;
use crate::model::notice::{Merged, Notice};
use crate::model::state::State;
use crate::model::time::{UnixMs, id_time};
use crate::model::tombstone::{Retention, Tombstone, latest_time};

/// A store that is gone with its value.
#[derive(Debug, Default)]
pub struct MemoryStore {
    inner: RefCell<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    items: BTreeMap<RequestId, Arc<Item>>,
    bodies: BTreeMap<RequestId, Vec<u8>>,
    /// Claimed and not settled, by whichever session: the attempt's number and the time.
    claims: BTreeMap<RequestId, (u32, UnixMs)>,
    notices: Merged,
    memories: BTreeMap<String, Memory>,
    holds: BTreeMap<String, DestinationHold>,
    last_tick: Option<serde_json::Value>,
    locked_by: Option<String>,
    tombstones: BTreeMap<RequestId, Tombstone>,
    /// What was ever accepted, as long as it may have a tombstone.
    ledger: BTreeMap<RequestId, Listed>,
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What the death of the lock's owner leaves: the lock is free, the claims stand. Dropping
    /// a session does the same; this is for one that was forgotten.
    pub fn crash(&self) {
        self.inner.borrow_mut().locked_by = None;
    }
}

impl Inner {
    fn place(&self, item: &Item) -> Found {
        let envelope = &item.envelope;
        let standing = item.standing();
        let claim = self.claims.get(&envelope.request_id);
        let state = claim.map_or(standing.state, |_| State::Unknown);
        let parked = claim.is_none() && standing.parked;
        let slot = match claim {
            Some((n, _)) => format!("/attempt {n}"),
            None if parked => "/parked".to_owned(),
            None => String::new(),
        };
        Found {
            id: envelope.request_id,
            destination: envelope.destination.to_string(),
            state,
            parked,
            place: format!(
                "{state}/{}/{}{slot}",
                envelope.destination, envelope.request_id
            ),
            journalled: Vec::new(),
        }
    }

    fn accept(&mut self, envelope: Envelope, accepted: Event) -> Result<(), StoreError> {
        let id = envelope.request_id;
        if self.items.contains_key(&id) {
            return Err(StoreError::Exists { id });
        }
        let listed = Listed::of(&envelope, accepted.at);
        let (item, _) = Item::accept(envelope, accepted).map_err(|source| StoreError::Encode {
            what: "an item",
            source,
        })?;
        self.items.insert(id, Arc::new(item));
        self.ledger.insert(id, listed);
        Ok(())
    }

    /// Accepts an offer unless its key or its id is known.
    fn take(&mut self, offer: Offer, full: Option<Full>) -> Result<Answer, StoreError> {
        let Offer {
            mut envelope,
            accepted,
            own_id,
            body,
        } = offer;
        let sum = envelope.request.sha256();
        let known = envelope.key.as_ref().and_then(|key| {
            self.items.values().find(|item| {
                item.envelope.key.as_ref() == Some(key)
                    && item.envelope.destination == envelope.destination
            })
        });
        if let Some(known) = known {
            let id = known.envelope.request_id;
            return Ok(if known.envelope.request.sha256() == sum {
                Answer::Known(id)
            } else {
                let key = envelope.key.unwrap_or_default();
                Answer::Refused(Refusal::KeyTaken { key, id })
            });
        }
        let id = envelope.request_id;
        if own_id && self.tombstones.contains_key(&id) {
            return Ok(Answer::Refused(Refusal::Pruned { id }));
        }
        if let Some(known) = self.items.get(&id) {
            let same = known.envelope.request.sha256() == sum
                && known.envelope.destination == envelope.destination;
            return Ok(match envelope.key {
                Some(key) if own_id && same => Answer::Refused(Refusal::IdWithoutKey { key, id }),
                None if own_id && same => Answer::Known(id),
                Some(_) | None => Answer::Refused(Refusal::IdTaken { id }),
            });
        }
        if let Some(full) = full {
            return Ok(Answer::Full(full));
        }
        if let Some(NewBody {
            bytes,
            at: NewBodyAt::Memory(body),
            ..
        }) = body
        {
            envelope.request.body = Some(Body::File { id, bytes });
            self.bodies.insert(id, body);
        }
        self.accept(envelope, accepted)?;
        Ok(Answer::New(id))
    }

    fn append(&mut self, id: RequestId, event: Event, notices: &[Notice]) {
        if let Some(item) = self.items.get_mut(&id) {
            Arc::make_mut(item).events.push(event);
        }
        for notice in notices {
            self.notices.add(notice);
        }
    }

    fn accept_notices(&mut self, now: UnixMs, in_text: &[DestName]) -> Result<(), StoreError> {
        for envelope in std::mem::take(&mut self.notices).envelopes(now, in_text) {
            let accepted = Event::new(EventKind::Accepted, now, State::Pending);
            match self.accept(envelope, accepted) {
                Ok(()) | Err(StoreError::Exists { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The items that are not claimed, of one destination and state.
    fn waiting(&self, destination: &DestName, states: &[State]) -> Vec<Arc<Item>> {
        self.items
            .values()
            .filter(|item| {
                item.envelope.destination == *destination
                    && states.contains(&item.standing().state)
                    && !self.claims.contains_key(&item.envelope.request_id)
            })
            .cloned()
            .collect()
    }

    /// The settled items that are past retention.
    fn past(&self, retention: &Retention, now: UnixMs) -> Vec<RequestId> {
        let is_past = |item: &&Arc<Item>| {
            let id = item.envelope.request_id;
            let over = retention.is_over(item.standing().state, latest_time(item), now);
            over && !self.claims.contains_key(&id)
        };
        let past = self.items.values().filter(is_past);
        past.map(|item| item.envelope.request_id).collect()
    }

    /// The days of tombstones that are past retention.
    fn forgotten(&self, retention: &Retention, now: UnixMs) -> BTreeSet<UnixMs> {
        let days = self.tombstones.values().map(|t| t.pruned_at.day());
        days.filter(|day| retention.is_forgotten(*day, now))
            .collect()
    }

    /// The days of acceptance that are past the retention of tombstones.
    fn unlisted(&self, retention: &Retention, now: UnixMs) -> BTreeSet<UnixMs> {
        let days = self.ledger.values().map(|listed| listed.at.day());
        days.filter(|day| retention.is_forgotten(*day, now))
            .collect()
    }

    /// What is due, by minute and within it by id.
    fn due(&self, destination: &DestName, now: UnixMs) -> VecDeque<RequestId> {
        let mut due: Vec<(UnixMs, RequestId)> = self
            .waiting(destination, &[State::Pending, State::Unknown])
            .iter()
            .filter(|item| item.is_due(now))
            .filter_map(|item| Some((item.turn()?.min(now).minute(), item.envelope.request_id)))
            .collect();
        due.sort_unstable();
        due.into_iter().map(|(_, id)| id).collect()
    }
}

impl Store for MemoryStore {
    fn accept_all(
        &self,
        offers: Vec<Offer>,
        limits: &Limits,
        answers: &mut Vec<Answer>,
    ) -> Result<(), StoreError> {
        answers.clear();
        for offer in offers {
            let (fit, full) = limits.fit(&self.room(u64::MAX)?);
            let fits = if fit == 0 { full } else { None };
            let answer = self.inner.borrow_mut().take(offer, fits)?;
            answers.push(answer);
        }
        Ok(())
    }

    fn take_body(&self, from: &mut dyn Read, bytes_max: u64) -> Result<NewBody, BodyError> {
        let mut bytes = Vec::new();
        from.take(bytes_max.saturating_add(1))
            .read_to_end(&mut bytes)
            .map_err(BodyError::Input)?;
        if bytes.len() as u64 > bytes_max {
            return Err(BodyError::TooLarge);
        }
        Ok(NewBody::new(bytes))
    }

    fn open_new_body<'b>(&self, body: &'b NewBody) -> io::Result<Box<dyn Read + Send + 'b>> {
        match &body.at {
            NewBodyAt::Memory(bytes) => Ok(Box::new(bytes.as_slice())),
            NewBodyAt::File(_) => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn discard_body(&self, body: NewBody) {
        drop(body);
    }

    fn open_body(&self, id: RequestId) -> io::Result<Box<dyn Read + Send>> {
        let inner = self.inner.borrow();
        let bytes = inner.bodies.get(&id).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(io::Cursor::new(bytes.clone())))
    }

    fn room(&self, items_max: u64) -> Result<Room, StoreError> {
        let inner = self.inner.borrow();
        let waits = |item: &&Arc<Item>| !item.standing().state.is_terminal();
        let items = inner.items.values().filter(waits).count() as u64;
        Ok(Room {
            free_bytes: u64::MAX,
            free_files: u64::MAX,
            items: items.min(items_max),
        })
    }

    fn scan(
        &self,
        scope: &Scope,
        each: &mut dyn FnMut(&Found) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut found: Vec<Found> = {
            let inner = self.inner.borrow();
            inner.items.values().map(|item| inner.place(item)).collect()
        };
        found.retain(|found| {
            (scope.states.is_empty() || scope.states.contains(&found.state))
                && scope
                    .destination
                    .as_ref()
                    .is_none_or(|name| *name == found.destination)
        });
        found.sort_by(|a, b| (a.state, &a.destination, a.id).cmp(&(b.state, &b.destination, b.id)));
        found.iter().try_for_each(each)
    }

    fn find(&self, id: RequestId) -> Result<Option<Found>, StoreError> {
        let inner = self.inner.borrow();
        Ok(inner.items.get(&id).map(|item| inner.place(item)))
    }

    fn read(&self, found: &Found) -> Result<Option<Result<Item, Damage>>, StoreError> {
        let inner = self.inner.borrow();
        let item = inner.items.get(&found.id);
        Ok(item
            .filter(|item| inner.place(item).place == found.place)
            .map(|item| Ok(Item::clone(item))))
    }

    fn counts(&self) -> Result<Counts, StoreError> {
        let mut counts = Counts::default();
        self.scan(&Scope::default(), &mut |found| {
            let states = counts.destinations.entry(found.destination.clone());
            *states.or_default().entry(found.state).or_default() += 1;
            if found.parked {
                *counts.parked.entry(found.destination.clone()).or_default() += 1;
            }
            if let (State::Pending, Some(at)) = (found.state, id_time(found.id)) {
                let oldest = counts.oldest_pending.map_or(at, |oldest| oldest.min(at));
                counts.oldest_pending = Some(oldest);
            }
            Ok(())
        })?;
        Ok(counts)
    }

    fn memory(&self, destination: &DestName) -> Result<Memory, StoreError> {
        let inner = self.inner.borrow();
        let memory = inner.memories.get(destination.as_str());
        Ok(memory.cloned().unwrap_or_default())
    }

    fn destination_hold(&self, name: &str) -> Result<Option<DestinationHold>, StoreError> {
        Ok(self.inner.borrow().holds.get(name).cloned())
    }

    fn set_destination_hold(
        &self,
        destination: &DestName,
        hold: Option<&DestinationHold>,
    ) -> Result<(), StoreError> {
        let holds = &mut self.inner.borrow_mut().holds;
        match hold {
            Some(hold) => holds.insert(destination.to_string(), hold.clone()),
            None => holds.remove(destination.as_str()),
        };
        Ok(())
    }

    fn last_tick(&self) -> Result<Option<serde_json::Value>, StoreError> {
        Ok(self.inner.borrow().last_tick.clone())
    }

    fn tombstones(&self, beginning: &str, most: usize) -> Result<Vec<Tombstone>, StoreError> {
        let inner = self.inner.borrow();
        let fits = |tombstone: &&Tombstone| {
            let id = tombstone.request_id.to_string();
            id.starts_with(beginning)
        };
        let all = inner.tombstones.values().filter(fits);
        Ok(all.take(most).cloned().collect())
    }

    fn prunable(&self, retention: &Retention, now: UnixMs) -> Result<Pruned, StoreError> {
        let inner = self.inner.borrow();
        Ok(Pruned {
            items: inner.past(retention, now).len() as u64,
            tombstone_files: inner.forgotten(retention, now).len() as u64,
            ledger_files: inner.unlisted(retention, now).len() as u64,
            ..Pruned::default()
        })
    }

    fn lock(&self, owner: &Owner<'_>) -> Result<Box<dyn Session + '_>, StoreError> {
        let mut inner = self.inner.borrow_mut();
        if let Some(owner) = &inner.locked_by {
            return Err(StoreError::Locked {
                root: PathBuf::from("in memory"),
                owner: owner.clone(),
            });
        }
        inner.locked_by = Some(format!("{} since {}", owner.who, owner.now));
        inner.accept_notices(owner.now, owner.told_in_text)?;
        Ok(Box::new(MemorySession {
            store: self,
            told_in_text: owner.told_in_text.to_vec(),
            own: HashMap::new(),
            next_handle: 0,
            due: HashMap::new(),
            met: Met::default(),
        }))
    }
}

struct MemorySession<'a> {
    store: &'a MemoryStore,
    told_in_text: Vec<DestName>,
    /// The claims of this session, by handle.
    own: HashMap<u64, RequestId>,
    next_handle: u64,
    /// What was due when a destination was first looked at, and is not looked at yet.
    due: HashMap<DestName, VecDeque<RequestId>>,
    met: Met,
}

impl MemorySession<'_> {
    fn due(&mut self, destination: &DestName, now: UnixMs) -> &mut VecDeque<RequestId> {
        let store = self.store;
        self.due
            .entry(destination.clone())
            .or_insert_with(|| store.inner.borrow().due(destination, now))
    }

    /// Offers one item. The store is not borrowed meanwhile, so `decide` may read it.
    fn offer(&self, item: &Item, decide: &mut dyn FnMut(&Item) -> Decision) -> Decision {
        let decision = decide(item);
        if let Decision::Settle(event, notices) = &decision {
            self.store.inner.borrow_mut().append(
                item.envelope.request_id,
                Event::clone(event),
                notices,
            );
        }
        decision
    }

    fn offer_held(
        &self,
        destination: &DestName,
        due: Option<UnixMs>,
        items_max: usize,
        decide: &mut dyn FnMut(&Item) -> Decision,
    ) -> u64 {
        let mut held = self
            .store
            .inner
            .borrow()
            .waiting(destination, &[State::Held]);
        held.retain(|item| due.is_none_or(|now| item.is_due(now)));
        held.sort_by_key(|item| item.turn());
        held.truncate(items_max);
        let moved = |item: &Arc<Item>| matches!(self.offer(item, decide), Decision::Settle(..));
        held.iter().map(moved).map(u64::from).sum()
    }

    /// Takes a claim of this session back from it; false if it is none, or settled already.
    fn take_back(&mut self, claimed: &Claimed) -> bool {
        let id = self.own.remove(&claimed.handle);
        if let Some(id) = id {
            self.store.inner.borrow_mut().claims.remove(&id);
        }
        id.is_some()
    }
}

impl Session for MemorySession<'_> {
    /// Whoever keeps items in memory has one clock.
    fn set_back_until(&self) -> Option<UnixMs> {
        None
    }

    /// Memory is never full.
    fn tight(&self) -> Option<super::disk::Room> {
        None
    }

    /// Nothing runs beside a session in memory.
    fn accepted_meanwhile(&mut self) -> Result<Vec<DestName>, StoreError> {
        Ok(Vec::new())
    }

    fn drop_boxes(&mut self) -> Result<Vec<(DestName, bool)>, StoreError> {
        Ok(Vec::new())
    }

    /// There are no drop boxes in memory.
    fn take_in(
        &mut self,
        _: &DestName,
        _: u64,
        _: &Limits,
        _: &mut dyn FnMut(&Dropped<'_>) -> Intake,
    ) -> Result<TakenIn, StoreError> {
        Ok(TakenIn::default())
    }

    fn recover(
        &mut self,
        decide: &mut dyn FnMut(&Interrupted) -> (Event, Vec<Notice>),
    ) -> Result<u64, StoreError> {
        let mut recovered = 0;
        let claims = self.store.inner.borrow().claims.clone();
        for (id, (n, claimed_at)) in claims {
            let item = self.store.inner.borrow().items.get(&id).cloned();
            let Some(item) = item.filter(|_| !self.own.values().any(|own| *own == id)) else {
                continue;
            };
            let (event, notices) = decide(&Interrupted {
                item: Item::clone(&item),
                n,
                claimed_at,
            });
            let mut inner = self.store.inner.borrow_mut();
            inner.claims.remove(&id);
            inner.append(id, event, &notices);
            recovered += 1;
        }
        Ok(recovered)
    }

    fn destinations(&mut self) -> Result<Vec<DestName>, StoreError> {
        let inner = self.store.inner.borrow();
        let open = |item: &&Arc<Item>| !item.standing().state.is_terminal();
        let mut names: Vec<DestName> = inner
            .items
            .values()
            .filter(open)
            .map(|item| item.envelope.destination.clone())
            .collect();
        names.sort();
        names.dedup();
        Ok(names)
    }

    fn claim(
        &mut self,
        wants: &[Want],
        now: UnixMs,
        decide: &mut dyn FnMut(&Item) -> Decision,
    ) -> Result<Vec<Claimed>, StoreError> {
        let mut claims = Vec::new();
        for want in wants {
            let (mut taken, mut looks) = (0, 0);
            while (taken < want.items_max || want.items_max == 0) && looks < want.looks_max {
                looks += 1;
                let Some(id) = self.due(&want.destination, now).pop_front() else {
                    break;
                };
                let item = self.store.inner.borrow().items.get(&id).cloned();
                // Since the list was made, something may have happened to it.
                let Some(item) = item.filter(|item| item.is_due(now)) else {
                    continue;
                };
                if matches!(self.offer(&item, decide), Decision::Claim) && taken < want.items_max {
                    let n = item.standing().last_n.saturating_add(1);
                    let handle = self.next_handle;
                    self.next_handle += 1;
                    self.own.insert(handle, id);
                    self.store.inner.borrow_mut().claims.insert(id, (n, now));
                    claims.push(Claimed {
                        item,
                        n,
                        at: now,
                        handle,
                    });
                    taken += 1;
                }
            }
        }
        Ok(claims)
    }

    fn is_exhausted(&self, destination: &DestName) -> bool {
        self.due.get(destination).is_some_and(VecDeque::is_empty)
    }

    fn left(&mut self, destination: &DestName, now: UnixMs) -> Result<u64, StoreError> {
        Ok(self.due(destination, now).len() as u64)
    }

    fn put_back(&mut self, claimed: &Claimed) -> Result<(), StoreError> {
        self.take_back(claimed);
        Ok(())
    }

    fn settle(
        &mut self,
        claimed: &Claimed,
        event: Event,
        notices: Vec<Notice>,
    ) -> Result<(), StoreError> {
        if self.take_back(claimed) {
            let id = claimed.item.envelope.request_id;
            self.store.inner.borrow_mut().append(id, event, &notices);
        }
        Ok(())
    }

    fn change(
        &mut self,
        found: &Found,
        decide: &mut dyn FnMut(&Item) -> Decision,
    ) -> Result<bool, StoreError> {
        let item = {
            let inner = self.store.inner.borrow();
            let item = inner.items.get(&found.id).cloned();
            item.filter(|item| {
                inner.place(item).place == found.place && !inner.claims.contains_key(&found.id)
            })
        };
        Ok(item.is_some_and(|item| matches!(self.offer(&item, decide), Decision::Settle(..))))
    }

    fn wake(
        &mut self,
        destination: &DestName,
        now: UnixMs,
        items_max: usize,
        decide: &mut dyn FnMut(&Item) -> Decision,
    ) -> Result<u64, StoreError> {
        Ok(self.offer_held(destination, Some(now), items_max, decide))
    }

    fn reconsider(
        &mut self,
        destination: &DestName,
        decide: &mut dyn FnMut(&Item) -> Decision,
    ) -> Result<u64, StoreError> {
        Ok(self.offer_held(destination, None, usize::MAX, decide))
    }

    fn prune(
        &mut self,
        retention: &Retention,
        now: UnixMs,
        items_max: usize,
    ) -> Result<Pruned, StoreError> {
        let mut inner = self.store.inner.borrow_mut();
        let mut pruned = Pruned::default();
        let past = inner.past(retention, now);
        for id in past.iter().take(items_max) {
            let tombstone = inner
                .items
                .remove(id)
                .and_then(|item| Tombstone::of(&item, now));
            if let Some(tombstone) = tombstone {
                inner.tombstones.insert(*id, tombstone);
                pruned.items += 1;
            }
        }
        pruned.left = past.len() > items_max;
        if !pruned.left {
            let days = inner.forgotten(retention, now);
            pruned.tombstone_files = days.len() as u64;
            let tombstones = &mut inner.tombstones;
            tombstones.retain(|_, t| !days.contains(&t.pruned_at.day()));
            let days = inner.unlisted(retention, now);
            pruned.ledger_files = days.len() as u64;
            let ledger = &mut inner.ledger;
            ledger.retain(|_, listed| !days.contains(&listed.at.day()));
        }
        Ok(pruned)
    }

    fn audit(&mut self) -> Result<Audit, StoreError> {
        let inner = self.store.inner.borrow();
        let mut part = Part::default();
        for listed in inner.ledger.values() {
            part.list(listed.clone());
        }
        for item in inner.items.values() {
            part.place(item.envelope.request_id, inner.place(item).state);
        }
        for id in inner.tombstones.keys() {
            part.pruned(*id);
        }
        let days = inner.ledger.values().map(|listed| listed.at.day());
        Ok(part.finish(HashMap::new(), &days.collect()))
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    fn tell(&mut self, notices: Vec<Notice>) -> Result<(), StoreError> {
        let mut inner = self.store.inner.borrow_mut();
        for notice in &notices {
            inner.notices.add(notice);
        }
        Ok(())
    }

    fn publish(&mut self, now: UnixMs) -> Result<Vec<DestName>, StoreError> {
        let mut inner = self.store.inner.borrow_mut();
        let names = inner.notices.addresses();
        inner.accept_notices(now, &self.told_in_text)?;
        drop(inner);
        for name in &names {
            self.due.remove(name);
        }
        Ok(names)
    }

    fn remember(&mut self, destination: &DestName, memory: &Memory) -> Result<bool, StoreError> {
        let mut inner = self.store.inner.borrow_mut();
        inner
            .memories
            .insert(destination.to_string(), memory.clone());
        Ok(true)
    }

    fn met(&self) -> &Met {
        &self.met
    }

    fn close(
        self: Box<Self>,
        now: UnixMs,
        line: Option<&serde_json::Value>,
    ) -> Result<(), StoreError> {
        let mut inner = self.store.inner.borrow_mut();
        inner.accept_notices(now, &self.told_in_text)?;
        if let Some(line) = line {
            inner.last_tick = Some(line.clone());
        }
        Ok(())
    }
}

impl Drop for MemorySession<'_> {
    fn drop(&mut self) {
        self.store.crash();
    }
}
