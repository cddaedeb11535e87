//! Items that are in more than one place: a half move, or two files of one id.

use std::collections::{BTreeMap, HashSet};

use super::super::super::checkup::FindingKind;
use super::super::ITEM_BYTES_MAX;
use super::super::layout::{Place, Slot};
use super::{Look, Mend, placement};
use crate::model::ids::RequestId;
use crate::model::item::Item;
use crate::model::state::State;

impl Look<'_> {
    /// Items that are in more than one place.
    pub(super) fn doubles(&mut self) {
        let twice = |pair: &[RequestId]| (pair[0] == pair[1]).then_some(pair[0]);
        let doubled: HashSet<RequestId> = self.ids.windows(2).filter_map(twice).collect();
        self.ids.dedup();
        if doubled.is_empty() {
            return;
        }
        // What else is wrong with them shows when one is left.
        self.faults.retain(|fault| {
            let id = fault.finding.request_id;
            let of_a_place = matches!(
                fault.finding.kind,
                FindingKind::Misplaced | FindingKind::Key
            );
            !(of_a_place && id.is_some_and(|id| doubled.contains(&id)))
        });
        let mut places: BTreeMap<RequestId, Vec<Place>> = BTreeMap::new();
        for state in State::ALL {
            let mut of_state = self.places(state, false);
            of_state.retain(|place| doubled.contains(&place.id) && !self.is_moving(place.id));
            for place in of_state {
                places.entry(place.id).or_default().push(place);
            }
        }
        for places in places.into_values() {
            let mut all = places.into_iter();
            let Some(mut keep) = all.next() else {
                continue;
            };
            for next in all {
                keep = self.double(keep, next);
            }
        }
    }

    /// Which of two names of one item stays; the other is told of.
    fn double(&mut self, one: Place, other: Place) -> Place {
        let (Some(first), Some(second)) = (self.stat(&one.path()), self.stat(&other.path())) else {
            // It has moved meanwhile.
            return if self.stat(&one.path()).is_some() {
                one
            } else {
                other
            };
        };
        let read = |place: &Place| {
            let bytes = self
                .store
                .disk
                .read(&self.store.path(&place.path()), ITEM_BYTES_MAX);
            let parsed = Item::parse(&bytes.ok()?).ok()?;
            let fits = parsed.item.check_place(&place.destination, place.id);
            fits.is_ok().then_some(parsed.item)
        };
        let is_one_file = first.inode == second.inode;
        let (mine, theirs) = (read(&one), read(&other));
        let last_n = |item: &Option<Item>| item.as_ref().map_or(0, |item| item.standing().last_n);
        let n = last_n(&mine).max(last_n(&theirs));
        let extends = |long: &Item, short: &Item| {
            long.envelope == short.envelope
                && long.events.len() > short.events.len()
                && long.events.starts_with(&short.events)
        };
        let other_stays = match (&mine, &theirs) {
            (Some(mine), Some(theirs)) if !is_one_file && extends(mine, theirs) => false,
            (Some(mine), Some(theirs)) if !is_one_file && extends(theirs, mine) => true,
            // What cannot be read is told of as damaged, and goes for that.
            (Some(_), None) | (None, Some(_)) if !is_one_file => {
                return if mine.is_some() { one } else { other };
            }
            _ => placement::is_later(&other, &one, n),
        };
        let (keep, goes) = if other_stays {
            (other, one)
        } else {
            (one, other)
        };
        let claimed = matches!(goes.slot, Slot::Claimed(m) if m > n)
            && !matches!(keep.slot, Slot::Claimed(_))
            && !keep.state.is_terminal();
        let (what, next, why) = if is_one_file {
            (
                format!("is also {}: a move was cut short", keep.path()),
                "this name goes; the other, later in life, stays".to_owned(),
                None,
            )
        } else {
            (
                format!(
                    "another file of this item is {}, which knows more or is later in life",
                    keep.path()
                ),
                "it is moved to corrupt/, with the reason beside it; the other stays".to_owned(),
                Some(format!("another file of this item, {}, stays", keep.path())),
            )
        };
        self.add_of(
            FindingKind::Doubled,
            &goes.path(),
            Some(goes.id),
            &what,
            &next,
            Mend::Doubled {
                keep: keep.path(),
                why,
                claimed,
            },
        );
        keep
    }
}
