//! Items that are in more than one place: a half move, or two files of one id.

use std::collections::{BTreeMap, HashSet};

use super::super::super::checkup::FindingKind;
use super::super::ITEM_BYTES_MAX;
use super::super::layout::{Place, Slot};
use super::{Look, Mend, placement};
use crate::model::ids::RequestId;
use crate::model::item::Item;
use crate::model::state::State;

/// Which of two files of one item stays: that which knows more, and else that which says more of
/// what the receiver may have done.
pub(in super::super) fn other_stays(one: (&Place, &Item), other: (&Place, &Item)) -> bool {
    let ((one, mine), (other, theirs)) = (one, other);
    let extends = |long: &Item, short: &Item| {
        long.envelope == short.envelope
            && long.events.len() > short.events.len()
            && long.events.starts_with(&short.events)
    };
    if extends(mine, theirs) {
        return false;
    }
    if extends(theirs, mine) {
        return true;
    }
    // Neither goes on from the other. `failed` says that nothing was done, and may not outdo a file
    // that tells of a success, or of an attempt.
    let effect = |item: &Item| {
        let standing = item.standing();
        let told = match standing.state {
            State::Confirmed => 3,
            State::Unknown => 2,
            State::Pending | State::Held | State::Failed if standing.maybe_acted => 2,
            State::Pending | State::Held | State::Failed => u8::from(standing.last_n > 0),
        };
        (told, standing.last_n)
    };
    let (my_effect, their_effect) = (effect(mine), effect(theirs));
    if my_effect.0 == their_effect.0 {
        placement::is_later(other, one, my_effect.1.max(their_effect.1))
    } else {
        their_effect.0 > my_effect.0
    }
}

/// Why a file goes to `corrupt/` whose item has another one, which stays.
pub(in super::super) fn why(stays: &Place) -> String {
    format!("another file of this item, {}, stays", stays.path())
}

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
        let other_stays = match (&mine, &theirs) {
            (Some(mine), Some(theirs)) if !is_one_file => {
                other_stays((&one, mine), (&other, theirs))
            }
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
                Some(why(&keep)),
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
