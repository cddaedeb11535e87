//! An item: its envelope and its events; how they stand in a file, and what they add up to.

use super::envelope::{Body, Envelope, VERSION, sha256_hex};
use super::event::{Event, EventKind};
use super::ids::RequestId;
use super::reason::Reason;
use super::state::State;
use super::time::UnixMs;

/// What to send and what happened to it. There is always at least the `accepted` event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Line 1.
    pub envelope: Envelope,
    /// Lines 2 and on.
    pub events: Vec<Event>,
}

/// What an item's events add up to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The state after the last event.
    pub state: State,
    /// Why.
    pub reason: Option<Reason>,
    /// When it is to be acted on next.
    pub due: Option<UnixMs>,
    /// Unknown, and only a person can say more.
    pub parked: bool,
    /// Guarantee G6: the receiver may have acted on it.
    pub maybe_acted: bool,
    /// Attempts that count, since the last release or retry.
    pub attempts: u32,
    /// The number of the last attempt, counted or not.
    pub last_n: u32,
    /// Since when attempts are counted.
    pub counting_since: UnixMs,
    /// When the first of those that count ended; an item's age runs from there. What waits to be tried at
    /// all does not age.
    pub aging_since: Option<UnixMs>,
    /// The first claim that we know of; the receiver cannot have seen the key before.
    pub first_sent_at: Option<UnixMs>,
    /// The first claim since which the receiver may have acted, and nobody knows better.
    pub maybe_since: Option<UnixMs>,
    /// The time of the last event.
    pub updated_at: UnixMs,
    /// The receiver's own id.
    pub receipt: Option<String>,
}

/// Why the bytes of an item file are not an item.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// There is nothing in it.
    #[error("the file is empty")]
    Empty,
    /// The first line does not end.
    #[error("the first line is cut off")]
    Cut,
    /// The first line is not an envelope.
    #[error("the envelope cannot be read: {0}")]
    Envelope(String),
    /// The id or the destination inside is not that of the file's name.
    #[error("the envelope says {inside}, the file's place says {outside}")]
    Misplaced {
        /// What the envelope says.
        inside: String,
        /// What the path says.
        outside: String,
    },
    /// Line 2 is missing, or is not `accepted`.
    #[error("the second line is not the event `accepted`")]
    NotAccepted,
    /// Line 1 is not what was accepted.
    #[error("the envelope does not match the SHA-256 of its acceptance")]
    EnvelopeHash,
    /// The body is not what was accepted.
    #[error("the body does not match its SHA-256")]
    BodyHash,
    /// It names the body of another item.
    #[error("the body is said to be in the file of another item")]
    BodyFile,
    /// A line that was written whole cannot be read any more.
    #[error("line {0} is damaged")]
    Line(usize),
    /// The file cannot be read now; it is left as it is.
    #[error("{0}")]
    Unreadable(String),
    /// A line that cannot be read stands before lines that can.
    #[error("line {0} is damaged, and good lines follow it")]
    Middle(usize),
    /// Written by a newer version: to be left alone, never quarantined.
    #[error("it has format {0}; this build reads format {VERSION}")]
    Newer(u64),
}

/// An item read from a file, and how much of the file it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// The item.
    pub item: Item,
    /// Bytes up to the end of the last good line; what follows is damage and is cut off before
    /// the next append.
    pub bytes_good: usize,
}

impl Item {
    /// Reads an item file's contents.
    ///
    /// # Errors
    ///
    /// [`Damage`] that makes the file no item. A tail that a crash left is none: no newline, or
    /// zeros in it. Those events were never acknowledged.
    pub fn parse(bytes: &[u8]) -> Result<Parsed, Damage> {
        if bytes.is_empty() {
            return Err(Damage::Empty);
        }
        let mut lines = bytes.split_inclusive(|b| *b == b'\n');
        let first = lines.next().unwrap_or_default();
        let envelope = parse_envelope(first)?;
        let sum = sha256_hex(first.strip_suffix(b"\n").unwrap_or(first));
        let mut events: Vec<Event> = Vec::new();
        let mut bytes_good = first.len();
        let mut damaged = None;
        for (index, line) in lines.enumerate() {
            match parse_event(line) {
                Some(_) if damaged.is_some() => {
                    return Err(Damage::Middle(damaged.unwrap_or_default()));
                }
                Some(event) => {
                    events.push(event);
                    bytes_good += line.len();
                }
                // A tail that a crash left has no end, or zeros for what was never written. A whole
                // line that says nothing was once an event that somebody acted on.
                None if is_whole(line) => {
                    return Err(Damage::Line(index + 2));
                }
                None => damaged = damaged.or(Some(index + 2)),
            }
        }
        match events.first() {
            Some(event) if event.event == EventKind::Accepted => {
                if event.envelope_sha256.as_deref() != Some(sum.as_str()) {
                    return Err(Damage::EnvelopeHash);
                }
            }
            _ => return Err(Damage::NotAccepted),
        }
        // One that lies in a file is looked at when it is to be sent.
        if envelope.request.body_bytes().is_err() {
            return Err(Damage::BodyHash);
        }
        if let Some(Body::File { id, .. }) = envelope.request.body
            && id != envelope.request_id
        {
            return Err(Damage::BodyFile);
        }
        let item = Self { envelope, events };
        Ok(Parsed { item, bytes_good })
    }

    /// The contents of a new item's file: the envelope and its acceptance.
    ///
    /// # Errors
    ///
    /// An error of JSON encoding, which these types do not have.
    pub fn accept(
        envelope: Envelope,
        mut accepted: Event,
    ) -> Result<(Self, Vec<u8>), serde_json::Error> {
        let mut bytes = serde_json::to_vec(&envelope)?;
        accepted.envelope_sha256 = Some(sha256_hex(&bytes));
        bytes.push(b'\n');
        bytes.extend(event_line(&accepted)?);
        let item = Self {
            envelope,
            events: vec![accepted],
        };
        Ok((item, bytes))
    }

    /// Checks that the item is the one that its path names.
    ///
    /// # Errors
    ///
    /// [`Damage::Misplaced`].
    pub fn check_place(&self, destination: &str, id: RequestId) -> Result<(), Damage> {
        let misplaced = |inside: String, outside: String| Damage::Misplaced { inside, outside };
        if self.envelope.request_id != id {
            return Err(misplaced(
                self.envelope.request_id.to_string(),
                id.to_string(),
            ));
        }
        if self.envelope.destination.as_str() != destination {
            return Err(misplaced(
                self.envelope.destination.to_string(),
                destination.to_owned(),
            ));
        }
        Ok(())
    }

    /// When the item's turn comes, as of its last event.
    #[must_use]
    pub fn turn(&self) -> Option<UnixMs> {
        turn_after(&self.envelope, self.events.last()?)
    }

    /// Whether the item's turn has come. Only a due time, `not_before` or `not_after` can make
    /// an item wait: one without any is due even if the clock stands before its last event.
    #[must_use]
    pub fn is_due(&self, now: UnixMs) -> bool {
        let timeless = self.events.last().is_some_and(|event| {
            event.state == State::Pending && due_after(&self.envelope, event).is_none()
        });
        timeless || self.turn().is_some_and(|at| at <= now)
    }

    /// Adds up the events.
    #[must_use]
    pub fn standing(&self) -> Standing {
        let start = self.envelope.enqueued_at;
        let mut sum = Standing {
            state: State::Pending,
            reason: None,
            due: None,
            parked: false,
            maybe_acted: false,
            attempts: 0,
            last_n: 0,
            counting_since: start,
            aging_since: None,
            first_sent_at: None,
            maybe_since: None,
            updated_at: start,
            receipt: None,
        };
        for event in &self.events {
            match event.event {
                EventKind::Attempt => {
                    sum.last_n = event.n.unwrap_or(sum.last_n.saturating_add(1));
                    if event.counts() {
                        sum.attempts += 1;
                        sum.aging_since = sum.aging_since.or(Some(event.at));
                    }
                    // An interrupted attempt of unknown start began after the event before it.
                    let begun = event
                        .claimed_at
                        .or_else(|| event.ms.map(|ms| event.at.minus(ms)))
                        .unwrap_or(sum.updated_at);
                    sum.first_sent_at = sum.first_sent_at.or(Some(begun));
                    sum.maybe_acted = event.state == State::Unknown;
                    let since = sum.maybe_since.or(Some(begun));
                    sum.maybe_since = since.filter(|_| sum.maybe_acted);
                }
                EventKind::Released | EventKind::Retried => {
                    sum.attempts = 0;
                    sum.counting_since = event.at;
                    sum.aging_since = None;
                }
                EventKind::Resolved => {
                    sum.maybe_acted = false;
                    sum.maybe_since = None;
                    sum.attempts = 0;
                    sum.counting_since = event.at;
                    sum.aging_since = None;
                }
                EventKind::Accepted
                | EventKind::Held
                | EventKind::Cancelled
                | EventKind::Expired
                | EventKind::Recovered => {}
            }
            sum.state = event.state;
            sum.reason.clone_from(&event.reason);
            sum.parked = event.is_parked();
            sum.updated_at = event.at;
            if event.receipt.is_some() {
                sum.receipt.clone_from(&event.receipt);
            }
        }
        if let Some(event) = self.events.last() {
            sum.due = due_after(&self.envelope, event);
        }
        sum
    }
}

/// When an item is due after an event.
#[must_use]
pub fn due_after(envelope: &Envelope, event: &Event) -> Option<UnixMs> {
    event.due.or(envelope
        .not_before
        .filter(|_| event.state == State::Pending))
}

/// When an item's turn comes after an event: the earlier of its due time and `not_after`. A
/// pending item that names no time has had its turn since the event. `None` if no time brings
/// one: it is settled, parked, or held for a person.
#[must_use]
pub fn turn_after(envelope: &Envelope, event: &Event) -> Option<UnixMs> {
    let due = due_after(envelope, event);
    let end = envelope.not_after;
    let earlier = |due: UnixMs| end.map_or(due, |end| end.min(due));
    match event.state {
        State::Pending => Some(earlier(due.unwrap_or(event.at))),
        State::Unknown => due.map(earlier),
        State::Held => due.map(earlier).or(end),
        State::Confirmed | State::Failed => None,
    }
}

/// One event as a line with its newline.
///
/// # Errors
///
/// An error of JSON encoding, which these types do not have.
pub fn event_line(event: &Event) -> Result<Vec<u8>, serde_json::Error> {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    Ok(line)
}

/// Whether a line was written to its end, and says anything.
fn is_whole(line: &[u8]) -> bool {
    line.ends_with(b"\n") && !line.contains(&0) && !line.trim_ascii().is_empty()
}

fn parse_event(line: &[u8]) -> Option<Event> {
    serde_json::from_slice(line.strip_suffix(b"\n")?).ok()
}

fn parse_envelope(line: &[u8]) -> Result<Envelope, Damage> {
    let line = line.strip_suffix(b"\n").ok_or(Damage::Cut)?;
    serde_json::from_slice::<Envelope>(line).map_or_else(
        |error| {
            let newer = serde_json::from_slice::<serde_json::Value>(line)
                .ok()
                .and_then(|value| value.get("v").and_then(serde_json::Value::as_u64))
                .filter(|v| *v > u64::from(VERSION));
            Err(newer.map_or_else(|| Damage::Envelope(error.to_string()), Damage::Newer))
        },
        |envelope| match envelope.v {
            VERSION => Ok(envelope),
            0 => Err(Damage::Envelope("its version is 0".to_owned())),
            newer => Err(Damage::Newer(u64::from(newer))),
        },
    )
}

#[cfg(test)]
mod tests;
