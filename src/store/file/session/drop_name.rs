//! Files in a drop box, and how their names carry the ids of their items.

use crate::model::ids::RequestId;
use crate::model::time::UnixMs;

/// What a file's name ends with once it carries an id.
const TAKING: &str = ".taking";

/// How long the original name may be for the id to fit beside it.
const STEM_BYTES_MAX: usize = 200;

/// A file in a drop box; the oldest is the first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DropFile {
    pub(super) at: UnixMs,
    pub(super) name: String,
    pub(super) id: Option<RequestId>,
}

impl DropFile {
    /// The name that it was dropped under.
    pub(super) fn original(&self) -> String {
        match self.id {
            Some(_) => format!("{}.json", stem_of(&self.name).0),
            None => self.name.clone(),
        }
    }
}

/// The name of a file that carries the id of its item: `NAME.ID.taking`.
pub(super) fn taking_name(name: &str, id: RequestId) -> String {
    let stem = name.strip_suffix(".json").unwrap_or(name);
    let mut end = stem.len().min(STEM_BYTES_MAX);
    while !stem.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}.{id}{TAKING}", &stem[..end])
}

/// What [`taking_name`] was made of.
pub(super) fn stem_of(name: &str) -> (&str, Option<RequestId>) {
    let parts = name
        .strip_suffix(TAKING)
        .and_then(|rest| rest.rsplit_once('.'));
    match parts.map(|(stem, id)| (stem, id.parse())) {
        Some((stem, Ok(id))) => (stem, Some(id)),
        _ => (name, None),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn a_name_carries_its_id_and_gives_it_back() {
        let id: RequestId = "019adf3e-6b6b-7cc3-98f2-3a1c5d2e8f10".parse().unwrap();
        for (name, stem) in [
            ("a.json", "a"),
            ("invoice 17.json", "invoice 17"),
            ("a.b.json", "a.b"),
            (&*format!("{id}.json"), &*id.to_string()),
        ] {
            let taking = taking_name(name, id);
            assert_eq!(stem_of(&taking), (stem, Some(id)), "{name}");
        }
        let long = format!("{}.json", "ü".repeat(120));
        let taking = taking_name(&long, id);
        assert!(taking.len() < 255, "{}", taking.len());
        assert_eq!(stem_of(&taking).1, Some(id));
        for name in ["a.json", "a.taking", "a.x.taking"] {
            assert_eq!(stem_of(name).1, None, "{name}");
        }
    }
}
