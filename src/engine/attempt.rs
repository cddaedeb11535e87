//! An attempt under way, and what is kept of its answer.

use crate::model::event::ResponseNote;
use crate::model::ids::DestName;
use crate::model::outcome::Answer;
use crate::store::Claimed;

/// How much of an answer's body is kept, in bytes.
const EXCERPT_BYTES: usize = 2 * 1024;

/// How much of a header's value is kept, in characters.
const HEADER_CHARS: usize = 256;

/// Headers that explain an answer later: the waits, the ids for a support case, the address of
/// a redirect, the marks of a replay.
const KEPT: [&str; 16] = [
    "content-type",
    "date",
    "idempotent-replayed",
    "location",
    "original-request",
    "ratelimit",
    "ratelimit-policy",
    "ratelimit-remaining",
    "ratelimit-reset",
    "request-id",
    "retry-after",
    "www-authenticate",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-request-id",
    "server",
];

/// An attempt under way.
pub(super) struct Flight {
    pub(super) destination: DestName,
    pub(super) claimed: Claimed,
}

/// What is kept of an answer.
pub(super) fn note_of(answer: &Answer) -> ResponseNote {
    let headers = answer
        .headers
        .iter()
        .filter(|(name, _)| KEPT.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.chars().take(HEADER_CHARS).collect()))
        .collect();
    let excerpt = answer.body.get(..EXCERPT_BYTES).unwrap_or(&answer.body);
    ResponseNote {
        headers,
        excerpt: String::from_utf8_lossy(excerpt).into_owned(),
        bytes: answer.body.len() as u64,
        cut: answer.cut,
    }
}
