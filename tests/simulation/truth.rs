//! What is known outside the spool: what was acknowledged, offered and dropped, and what was found
//! in it when all was quiet.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tickpost::model::event::Event;
use tickpost::model::ids::RequestId;

/// Whom something is told, what kind of end, why, and of what.
pub(crate) type Telling = (String, String, String, String);

#[derive(Default)]
pub(crate) struct Truth {
    /// Ids that a producer was told are accepted, with what they ask for.
    pub(crate) acked: BTreeMap<RequestId, String>,
    /// Ids that were offered.
    pub(crate) offered: BTreeMap<RequestId, String>,
    /// Copies that `retry --new-id` has offered.
    pub(crate) copies: BTreeSet<RequestId>,
    /// What dropped files ask for, once they are durably in their box.
    pub(crate) dropped: BTreeMap<String, String>,
    /// Files that are no items, by name, once they are durably in their box.
    pub(crate) garbage: BTreeSet<String>,
    /// What each key was acknowledged as last.
    pub(crate) keys: BTreeMap<String, RequestId>,
    /// What each id asks for, as found in the spool.
    pub(crate) found: BTreeMap<RequestId, String>,
    /// Its events, as found when all was quiet.
    pub(crate) histories: BTreeMap<RequestId, Vec<Event>>,
    /// Who should have been told, by item and event.
    pub(crate) expected: BTreeMap<(RequestId, usize, String), Telling>,
    /// How many outcomes ticks that ended well were told, by item.
    pub(crate) outcomes: BTreeMap<RequestId, usize>,
    /// Ids that may be pruned.
    pub(crate) prunable: BTreeSet<RequestId>,
    /// Files that were read before, by inode, with a sum of their contents.
    pub(crate) known: HashMap<u64, (u64, Known)>,
    /// Whether a destination is held, as an operator was told last, and how often one has asked.
    pub(crate) held: BTreeMap<String, (u64, Option<bool>)>,
    pub(crate) serial: u64,
}

/// What a file of an item says.
#[derive(Clone)]
pub(crate) struct Known {
    pub(crate) id: RequestId,
    pub(crate) item: std::rc::Rc<tickpost::model::item::Item>,
}
