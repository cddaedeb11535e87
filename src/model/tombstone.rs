//! What is kept of an item that was pruned, and how long anything is kept.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ids::{DestName, RequestId};
use super::item::Item;
use super::reason::Reason;
use super::state::State;
use super::time::{DAY_MS, UnixMs};

/// How long settled items and tombstones are kept, in milliseconds from the end of their UTC day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Confirmed items.
    pub confirmed_ms: u64,
    /// Failed items.
    pub failed_ms: u64,
    /// Tombstones of either.
    pub tombstones_ms: u64,
}

impl Default for Retention {
    /// A week, 90 days, and a year (of 365.25 days, as `1y` is read).
    fn default() -> Self {
        Self {
            confirmed_ms: 7 * DAY_MS,
            failed_ms: 90 * DAY_MS,
            tombstones_ms: 31_557_600_000,
        }
    }
}

impl Retention {
    /// Whether items that were settled in this state on the UTC day of `at` are past retention.
    /// Never so for a state that is not terminal.
    #[must_use]
    pub fn is_over(&self, state: State, at: UnixMs, now: UnixMs) -> bool {
        match state {
            State::Confirmed => is_past(at, self.confirmed_ms, now),
            State::Failed => is_past(at, self.failed_ms, now),
            State::Pending | State::Unknown | State::Held => false,
        }
    }

    /// Whether tombstones that were written on the UTC day of `at` are past retention.
    #[must_use]
    pub fn is_forgotten(&self, at: UnixMs, now: UnixMs) -> bool {
        is_past(at, self.tombstones_ms, now)
    }
}

/// Whether the UTC day of `at` ended at least `keep_ms` before `now`.
fn is_past(at: UnixMs, keep_ms: u64, now: UnixMs) -> bool {
    at.day().plus(DAY_MS).plus(keep_ms) <= now
}

/// One pruned item: enough to answer what became of it.
///
/// Written as one line of JSON, the request id first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    /// The item.
    pub request_id: RequestId,
    /// Where it went.
    pub destination: DestName,
    /// How it ended: confirmed or failed.
    pub state: State,
    /// Why.
    #[serde(default)]
    pub reason: Option<Reason>,
    /// When it was accepted.
    pub enqueued_at: UnixMs,
    /// When it ended.
    pub settled_at: UnixMs,
    /// When it was pruned.
    pub pruned_at: UnixMs,
    /// How many attempts were made, over its whole life.
    pub attempts: u32,
    /// The person or program that asked.
    #[serde(default)]
    pub principal: Option<String>,
    /// The conversation, deployment or job it belonged to.
    #[serde(default)]
    pub thread: Option<String>,
    /// The requester's own labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The requester's dedupe key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The receiver's own id of what it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<String>,
    /// SHA-256 of the body, in hex.
    pub body_sha256: String,
}

impl Tombstone {
    /// What is kept of an item that is pruned now; `None` if its story is not over.
    #[must_use]
    pub fn of(item: &Item, pruned_at: UnixMs) -> Option<Self> {
        let standing = item.standing();
        let envelope = &item.envelope;
        standing.state.is_terminal().then(|| Self {
            request_id: envelope.request_id,
            destination: envelope.destination.clone(),
            state: standing.state,
            reason: standing.reason,
            enqueued_at: envelope.enqueued_at,
            settled_at: standing.updated_at,
            pruned_at,
            attempts: standing.last_n,
            principal: envelope.requester.principal.clone(),
            thread: envelope.requester.thread.clone(),
            labels: envelope.labels.clone(),
            key: envelope.key.clone(),
            receipt: standing.receipt,
            body_sha256: envelope.request.body_sha256.clone(),
        })
    }

    /// It as a line with its newline.
    ///
    /// # Errors
    ///
    /// An error of JSON encoding, which this type does not have.
    pub fn line(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        Ok(line)
    }

    /// Reads a line; `None` if it is no tombstone: a crash may leave half of one.
    #[must_use]
    pub fn parse(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }
}

/// The latest time that an item speaks of. A clock that stood wrong for a while may have filed it
/// under a day long before that.
#[must_use]
pub fn latest_time(item: &Item) -> UnixMs {
    let events = item.events.iter().map(|event| event.at);
    events.fold(item.envelope.enqueued_at, UnixMs::max)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]
    use super::super::event::{Event, EventKind};
    use super::*;

    fn at(text: &str) -> UnixMs {
        UnixMs::parse(text).unwrap()
    }

    #[test]
    fn a_day_is_over_so_long_after_its_end_and_not_before() {
        let retention = Retention::default();
        let rows = [
            (
                "2026-11-22T00:00:00.000Z",
                State::Confirmed,
                "2026-11-30T00:00:00.000Z",
                true,
            ),
            (
                "2026-11-22T23:59:59.999Z",
                State::Confirmed,
                "2026-11-30T00:00:00.000Z",
                true,
            ),
            (
                "2026-11-22T23:59:59.999Z",
                State::Confirmed,
                "2026-11-29T23:59:59.999Z",
                false,
            ),
            (
                "2026-11-23T00:00:00.000Z",
                State::Confirmed,
                "2026-11-30T00:00:00.000Z",
                false,
            ),
            (
                "2026-08-31T12:00:00.000Z",
                State::Failed,
                "2026-11-30T00:00:00.000Z",
                true,
            ),
            (
                "2026-08-31T12:00:00.000Z",
                State::Failed,
                "2026-11-29T23:59:59.999Z",
                false,
            ),
            (
                "1970-01-01T00:00:00.000Z",
                State::Pending,
                "2026-11-30T00:00:00.000Z",
                false,
            ),
            (
                "1970-01-01T00:00:00.000Z",
                State::Unknown,
                "2026-11-30T00:00:00.000Z",
                false,
            ),
            (
                "1970-01-01T00:00:00.000Z",
                State::Held,
                "2026-11-30T00:00:00.000Z",
                false,
            ),
        ];
        for (settled, state, now, want) in rows {
            let got = retention.is_over(state, at(settled), at(now));
            assert_eq!(got, want, "{state} {settled} {now}");
        }
        let written = at("2025-11-28T09:00:00.000Z");
        assert!(!retention.is_forgotten(written, at("2026-11-29T05:59:59.999Z")));
        assert!(retention.is_forgotten(written, at("2026-11-29T06:00:00.000Z")));
    }

    fn item() -> Item {
        let (item, _) = Item::accept(
            serde_json::from_str(
                r#"{"v":1,"request_id":"019adf3e-6b6b-7cc3-98f2-3a1c5d2e8f10","destination":"billing","enqueued_at":"2026-11-29T15:40:03.123Z","request":{"method":"POST","body_sha256":"ab"},"requester":{"principal":"alice","thread":"t"},"labels":{"env":"prod"},"key":"k"}"#,
            )
            .unwrap(),
            Event::new(EventKind::Accepted, at("2026-11-29T15:40:03.123Z"), State::Pending),
        )
        .unwrap();
        item
    }

    #[test]
    fn what_is_kept_of_an_item_whose_story_is_over() {
        let pruned = at("2026-12-09T00:00:00.000Z");
        let mut item = item();
        assert_eq!(Tombstone::of(&item, pruned), None, "it is not over");
        let mut done = Event::new(
            EventKind::Attempt,
            at("2026-11-29T15:41:00.000Z"),
            State::Confirmed,
        );
        (done.n, done.receipt) = (Some(3), Some("ch_1".to_owned()));
        done.reason = Some(Reason::ACCEPTED);
        item.events.push(done);
        let tombstone = Tombstone::of(&item, pruned).unwrap();
        let line = tombstone.line().unwrap();
        assert_eq!(
            String::from_utf8(line.clone()).unwrap(),
            concat!(
                r#"{"request_id":"019adf3e-6b6b-7cc3-98f2-3a1c5d2e8f10","destination":"billing","#,
                r#""state":"confirmed","reason":"accepted","enqueued_at":"2026-11-29T15:40:03.123Z","#,
                r#""settled_at":"2026-11-29T15:41:00.000Z","pruned_at":"2026-12-09T00:00:00.000Z","#,
                r#""attempts":3,"principal":"alice","thread":"t","labels":{"env":"prod"},"key":"k","#,
                r#""receipt":"ch_1","body_sha256":"ab"}"#,
                "\n"
            )
        );
        assert_eq!(Tombstone::parse(&line), Some(tombstone));
        assert_eq!(Tombstone::parse(&line[..line.len() / 2]), None, "torn");
    }

    #[test]
    fn the_latest_time_is_of_any_event() {
        let mut item = item();
        let (early, late) = (
            at("2026-11-01T00:00:00.000Z"),
            at("2026-12-24T00:00:00.000Z"),
        );
        assert_eq!(latest_time(&item), item.envelope.enqueued_at);
        item.events
            .push(Event::new(EventKind::Held, late, State::Held));
        item.events
            .push(Event::new(EventKind::Held, early, State::Held));
        assert_eq!(latest_time(&item), late, "the clock was set back after it");
        item.events.clear();
        assert_eq!(latest_time(&item), item.envelope.enqueued_at);
    }
}
