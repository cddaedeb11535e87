//! Whether everything that was accepted is somewhere: what an audit finds, and how it is counted.
//!
//! A store says what the ledgers list and what is where; this compares. Every id counts once: under
//! the first state that it is found in, else as set aside, else as pruned, else it is missing.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::model::ids::{DestName, RequestId};
use crate::model::ledger::Listed;
use crate::model::state::State;
use crate::model::time::{UnixMs, id_time};

/// Who asked for items, and where they were to go.
pub type Requester = (DestName, Option<String>);

/// What an audit found. `accepted` is the sum of `states`, `corrupt`, `pruned` and `missing`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// Items that the ledgers list.
    pub accepted: u64,
    /// Of those, how many are in each state.
    pub states: BTreeMap<State, u64>,
    /// Of those, how many were set aside as unreadable.
    pub corrupt: u64,
    /// Of those, how many were pruned and have a tombstone.
    pub pruned: u64,
    /// Items that are in a state and that no ledger lists.
    pub unlisted: u64,
    /// Of those, how many were accepted on a day of which there is no ledger.
    pub without_ledger: u64,
    /// Where there are such: the first day of which there is a ledger.
    pub ledgers_since: Option<UnixMs>,
    /// Listed, and nowhere.
    pub missing: Vec<Listed>,
    /// In two places of states, listed or not.
    pub doubled: Vec<Doubled>,
    /// Lines of ledgers that cannot be read: what a loss of power leaves.
    pub unreadable_lines: u64,
    /// Listed items by destination and requester.
    pub by: BTreeMap<Requester, Share>,
}

/// An item that is in more than one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubled {
    /// The item.
    pub request_id: RequestId,
    /// What a ledger says of it.
    pub listed: Option<Listed>,
    /// Its places, relative to the spool, in the order of an item's life.
    pub places: Vec<String>,
}

/// What became of the items of one destination and requester.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Listed.
    pub accepted: u64,
    /// In a state.
    pub in_place: u64,
    /// Pruned.
    pub pruned: u64,
    /// Set aside.
    pub corrupt: u64,
    /// Nowhere.
    pub missing: u64,
}

impl Audit {
    /// How many listed items are in a state.
    #[must_use]
    pub fn in_place(&self) -> u64 {
        self.states.values().sum()
    }

    /// Whether nothing is missing and nothing is doubled.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.missing.is_empty() && self.doubled.is_empty()
    }

    /// Adds what was found of other ids.
    pub(super) fn add(&mut self, other: Self) {
        self.accepted += other.accepted;
        for (state, items) in other.states {
            *self.states.entry(state).or_default() += items;
        }
        self.corrupt += other.corrupt;
        self.pruned += other.pruned;
        self.unlisted += other.unlisted;
        self.without_ledger += other.without_ledger;
        self.ledgers_since = self.ledgers_since.or(other.ledgers_since);
        self.missing.extend(other.missing);
        self.doubled.extend(other.doubled);
        self.unreadable_lines += other.unreadable_lines;
        for (requester, share) in other.by {
            let sum = self.by.entry(requester).or_default();
            sum.accepted += share.accepted;
            sum.in_place += share.in_place;
            sum.pruned += share.pruned;
            sum.corrupt += share.corrupt;
            sum.missing += share.missing;
        }
        self.missing
            .sort_by_key(|listed| (listed.at, listed.request_id));
        self.doubled.sort_by_key(|doubled| doubled.request_id);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Nowhere,
    In(State),
    Corrupt,
    Pruned,
}

/// What is known of one id, in as few bytes as will do: there are many.
#[derive(Clone, Copy, Debug)]
struct Known {
    at: UnixMs,
    /// Its number in [`Part::requesters`], or [`UNLISTED`].
    requester: u32,
    seen: Seen,
    again: bool,
}

const UNLISTED: u32 = u32::MAX;

/// Some of the ids, and where they were seen.
#[derive(Debug, Default)]
pub(super) struct Part {
    ids: HashMap<RequestId, Known>,
    requesters: Vec<Requester>,
    numbers: HashMap<Requester, u32>,
}

impl Part {
    /// How many ids it knows of.
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// A ledger lists an item. It counts once, however often it is listed.
    pub(super) fn list(&mut self, listed: Listed) {
        let requester = (listed.destination, listed.principal);
        let number = self.numbers.get(&requester).copied().unwrap_or_else(|| {
            let number = u32::try_from(self.requesters.len()).unwrap_or(UNLISTED - 1);
            self.requesters.push(requester.clone());
            self.numbers.insert(requester, number);
            number
        });
        self.ids.entry(listed.request_id).or_insert(Known {
            at: listed.at,
            requester: number,
            seen: Seen::Nowhere,
            again: false,
        });
    }

    /// An item is in a place of this state.
    pub(super) fn place(&mut self, id: RequestId, state: State) {
        let known = self.ids.entry(id).or_insert(Known {
            at: UnixMs(0),
            requester: UNLISTED,
            seen: Seen::Nowhere,
            again: false,
        });
        if matches!(known.seen, Seen::In(_)) {
            known.again = true;
        } else {
            known.seen = Seen::In(state);
        }
    }

    /// An item was set aside.
    pub(super) fn corrupt(&mut self, id: RequestId) {
        self.see(id, Seen::Corrupt);
    }

    /// An item has a tombstone.
    pub(super) fn pruned(&mut self, id: RequestId) {
        self.see(id, Seen::Pruned);
    }

    fn see(&mut self, id: RequestId, seen: Seen) {
        if let Some(known) = self.ids.get_mut(&id)
            && known.seen == Seen::Nowhere
        {
            known.seen = seen;
        }
    }

    /// Whether an id is listed and was seen nowhere.
    pub(super) fn misses(&self, id: RequestId) -> bool {
        let known = self.ids.get(&id);
        known.is_some_and(|known| known.seen == Seen::Nowhere)
    }

    /// Everything that is missing or doubled, as far as was seen.
    pub(super) fn suspects(&self) -> Vec<RequestId> {
        let odd = |known: &Known| known.again || known.seen == Seen::Nowhere;
        let odd = self.ids.iter().filter(|(_, known)| odd(known));
        odd.map(|(id, _)| *id).collect()
    }

    fn listed(&self, id: RequestId, known: &Known) -> Option<Listed> {
        let number = usize::try_from(known.requester).ok()?;
        let (destination, principal) = self.requesters.get(number)?.clone();
        Some(Listed {
            request_id: id,
            destination,
            principal,
            at: known.at,
        })
    }

    /// What it comes to. `places` are those of the suspects: one that is in two after all counts
    /// as doubled, and no other. There are ledgers of these days.
    pub(super) fn finish(
        self,
        mut places: HashMap<RequestId, Vec<String>>,
        days: &BTreeSet<UnixMs>,
    ) -> Audit {
        // An id of a caller's own tells no time: only where there is no ledger at all is its day
        // known to have none.
        let has_ledger = |id| id_time(id).map_or(!days.is_empty(), |at| days.contains(&at.day()));
        let mut audit = Audit::default();
        let mut shares = vec![Share::default(); self.requesters.len()];
        for (id, known) in &self.ids {
            let listed = || self.listed(*id, known);
            if let Some(places) = places.remove(id).filter(|places| places.len() > 1) {
                audit.doubled.push(Doubled {
                    request_id: *id,
                    listed: listed(),
                    places,
                });
            }
            let share = usize::try_from(known.requester).ok();
            let Some(share) = share.and_then(|number| shares.get_mut(number)) else {
                audit.unlisted += 1;
                audit.without_ledger += u64::from(!has_ledger(*id));
                continue;
            };
            audit.accepted += 1;
            share.accepted += 1;
            match known.seen {
                Seen::In(state) => {
                    *audit.states.entry(state).or_default() += 1;
                    share.in_place += 1;
                }
                Seen::Corrupt => {
                    audit.corrupt += 1;
                    share.corrupt += 1;
                }
                Seen::Pruned => {
                    audit.pruned += 1;
                    share.pruned += 1;
                }
                Seen::Nowhere => {
                    audit.missing.extend(listed());
                    share.missing += 1;
                }
            }
        }
        if audit.without_ledger > 0 {
            audit.ledgers_since = days.first().copied();
        }
        audit.by = self.requesters.into_iter().zip(shares).collect();
        audit
    }
}
