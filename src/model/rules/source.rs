//! Where in an answer a wait, a receipt or a raw reason stands.

use regex_lite::Regex;

use super::pointer::Pointer;
use super::view::View;
use crate::model::retry_after::WaitForm;

/// A place in an answer.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// A header, by its name in lower case.
    Header(String),
    /// The body as JSON.
    Json(Pointer),
    /// The whole body as text: the groups that took part, or else the whole match.
    Text(Regex),
}

/// A place in an answer and the form of the wait that stands there.
#[derive(Clone, Debug)]
pub(super) enum Wait {
    /// Read it from the answer.
    Read(Source, WaitForm),
    /// The same each time, in milliseconds.
    Fixed(u64),
}

/// How many bytes of a receiver's own words are kept.
const WORD_BYTES_MAX: usize = 512;

impl Source {
    /// Every text at this place.
    fn texts(&self, view: &View<'_>) -> Vec<String> {
        match self {
            Self::Header(name) => view.header(name).map(str::to_owned).collect(),
            Self::Json(pointer) => view.scalars(pointer),
            Self::Text(regex) => view
                .text()
                .and_then(|text| regex.captures(text))
                .map(|found| {
                    // Two groups are a number and its unit; the blank keeps them apart.
                    let groups: Vec<&str> = found
                        .iter()
                        .skip(1)
                        .flatten()
                        .map(|group| group.as_str())
                        .collect();
                    if groups.is_empty() {
                        found
                            .get(0)
                            .map_or(String::new(), |whole| whole.as_str().to_owned())
                    } else {
                        groups.join(" ")
                    }
                })
                .into_iter()
                .collect(),
        }
    }

    /// The first text at this place that is not empty, at most 512 bytes of it.
    pub(super) fn word(&self, view: &View<'_>) -> Option<String> {
        let mut word = self.texts(view).into_iter().find(|text| !text.is_empty())?;
        let mut end = word.len().min(WORD_BYTES_MAX);
        while !word.is_char_boundary(end) {
            end -= 1;
        }
        word.truncate(end);
        Some(word)
    }
}

impl Wait {
    /// The wait in milliseconds; the longest where the place holds several, because the
    /// receiver means each of them.
    pub(super) fn read(&self, view: &View<'_>) -> Option<u64> {
        match self {
            Self::Fixed(ms) => Some(*ms),
            Self::Read(source, form) => source
                .texts(view)
                .iter()
                .filter_map(|text| form.read(text, view.receivers_now()))
                .max(),
        }
    }
}
