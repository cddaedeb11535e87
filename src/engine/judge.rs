//! From an outcome to what is written: the verdict, guarantees G6 and G7, what it says of the
//! destination, and who is told.

use super::causes::{is_auth, is_reachability};
use super::{AttemptLine, Tick, Trust, attempt, lane, notices};
use crate::config::{Config, Destination};
use crate::model::classify::{Exchange, classify};
use crate::model::event::{Event, EventKind};
use crate::model::item::Item;
use crate::model::key::{KeyFormat, KeyPlace};
use crate::model::outcome::Outcome;
use crate::model::policy::{Dedupe, Policy};
use crate::model::reason::Reason;
use crate::model::settle::{self, Settling, Turn};
use crate::model::state::State;
use crate::model::time::UnixMs;
use crate::store::{Decision, Interrupted, Known, Memory, StoreError, Want};
use crate::transport::Sent;

impl Tick<'_, '_> {
    /// An attempt has ended: judge it and write it down.
    pub(super) fn settle(&mut self, sent: &Sent) -> Result<(), StoreError> {
        let Some(flight) = self.flights.remove(&sent.token) else {
            return Ok(());
        };
        let now = self.now();
        let claimed = &flight.claimed;
        let item = &claimed.item;
        let Some(index) = self
            .lanes
            .iter()
            .position(|lane| lane.destination.name == flight.destination)
        else {
            return Ok(());
        };
        let lane = &mut self.lanes[index];
        let before = self.trust.standing(item.standing());
        lane.in_flight -= 1;
        let mut verdict = classify(
            &lane.destination.rules,
            &Exchange {
                outcome: &sent.outcome,
                method: &item.envelope.request.method,
                prior_maybe: before.maybe_acted,
                key_sent: lane.destination.key.is_sent(),
                at: now,
            },
        );
        let unreachable = lane.is_unreachable(now)
            && verdict.state == State::Pending
            && (verdict.reason == Reason::DNS_FAILURE || verdict.reason == Reason::TLS_ERROR);
        if unreachable {
            verdict.state = State::Held;
        }
        let mut event = settle::attempt(
            &policy_of(&lane.destination, before.maybe_since, lane.since()),
            &verdict,
            &sent.outcome,
            &Settling {
                before: &before,
                method: &item.envelope.request.method,
                n: claimed.n,
                claimed_at: claimed.at,
                at: now,
                ms: sent.ms,
                suspended_ms: lane::suspended_ms(
                    &lane.memory,
                    before.aging_since.unwrap_or(now),
                    now,
                ),
                not_after: item.envelope.not_after,
                clock_suspect: self.trust.is_suspect(),
                jitter: (self.engine.jitter)(),
            },
        );
        if let Outcome::Answered(answer) = &sent.outcome {
            event.response = Some(attempt::note_of(answer));
        }
        let learned = lane.learn(
            item.envelope.request_id,
            &sent.outcome,
            &verdict,
            &event,
            now,
        );
        if let (true, Some(suspended)) = (learned.suspended, &mut lane.memory.suspended)
            && event.reason.as_ref() == Some(&suspended.reason)
        {
            suspended.note.clone_from(&event.note);
        }
        if learned.suspended || event.state == State::Held {
            lane.memory.fingerprint = Some(lane.destination.fingerprint.clone());
            lane.memory.secret_fingerprint.clone_from(&lane.secret_seen);
            lane.changed = true;
        }
        let told = notices(self.engine.config, item, &event);
        self.untold.note(item, &event, &told);
        self.session.settle(claimed, event.clone(), told)?;
        self.report.count(event.state);
        (self.engine.watch)(&AttemptLine {
            id: item.envelope.request_id,
            destination: flight.destination.clone(),
            event,
        });
        if self.unsynced == 0 {
            self.unsynced_since = self.engine.clock.steady_ms();
        }
        self.unsynced += 1;
        if learned.suspended {
            self.close_lane(index, unreachable.then_some(&verdict.reason))?;
        }
        if let Some(reason) = learned.lifted {
            let lane = &mut self.lanes[index];
            lane.dry = false;
            self.release_held(index, &|held| {
                // Of other causes one item's success says nothing: a path that is not there
                // would be asked for, and told of, again and again.
                (is_auth(&reason) && is_auth(held)) || is_reachability(held)
            })?;
        }
        Ok(())
    }

    /// The destination has been suspended: give back what was claimed for it, and hold what is
    /// due if it has been unreachable for a day.
    pub(super) fn close_lane(
        &mut self,
        index: usize,
        hold_due: Option<&Reason>,
    ) -> Result<(), StoreError> {
        while let Some(claimed) = self.lanes[index].ready.pop_front() {
            self.report.left += 1;
            self.session.put_back(&claimed)?;
        }
        if let Some(reason) = hold_due {
            let want = Want {
                destination: self.lanes[index].destination.name.clone(),
                items_max: 0,
                looks_max: usize::MAX,
            };
            let now = self.now();
            self.claim_by_turn(&[want], now, Some(reason))?;
        }
        Ok(())
    }
}

/// What an item's turn brings.
pub(super) fn turn(
    destination: &Destination,
    item: &Item,
    now: UnixMs,
    trust: &Trust,
    since: Since,
    instead: Option<&Reason>,
) -> Decision {
    let envelope = &item.envelope;
    let standing = trust.standing(item.standing());
    let turn = settle::turn(
        &policy_of(destination, standing.maybe_since, since),
        &standing,
        &envelope.request.method,
        envelope.not_after,
        envelope.enqueued_at,
        now,
        trust.is_suspect(),
    );
    match (turn, instead) {
        (Turn::Send, Some(reason)) if !standing.maybe_acted => {
            let mut event = Event::new(EventKind::Held, now, State::Held);
            event.reason = Some(reason.clone());
            Decision::Settle(Box::new(event), Vec::new())
        }
        (Turn::Send, None) => Decision::Claim,
        (Turn::Send, Some(_)) => Decision::Leave,
        (Turn::Wait, _) => Decision::Wait,
        (Turn::Settle(event), _) => Decision::Settle(event, Vec::new()),
    }
}

/// What a destination allows of an item. Of what its receiver may have acted on under another key,
/// this one tells it nothing, and another receiver knows nothing of what the one before has acted
/// on: for that item the key's window has closed.
fn policy_of(destination: &Destination, maybe_since: Option<UnixMs>, since: Since) -> Policy {
    let before = |change: Option<UnixMs>| {
        let both = maybe_since.zip(change);
        both.is_some_and(|(maybe, change)| maybe < change)
    };
    let mut policy = destination.policy.clone();
    match policy.dedupe {
        // A natural key is the content, which is the same.
        Dedupe::Key
            if before(since.receiver)
                || (before(since.key) && destination.key.place != KeyPlace::Natural) =>
        {
            policy.key_window_ms = Some(0);
        }
        Dedupe::IdempotentMethods if before(since.receiver) => policy.dedupe = Dedupe::Never,
        Dedupe::Key | Dedupe::IdempotentMethods | Dedupe::Never => {}
    }
    policy
}

/// Since when repeats go under this key and to this receiver; `None` for as long as anything was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Since {
    pub(super) key: Option<UnixMs>,
    pub(super) receiver: Option<UnixMs>,
}

/// What a destination's memory says of that. Where it says nothing, it was another one before: a tick
/// remembers it before it sends.
pub(super) fn since(destination: &Destination, memory: &Memory, now: UnixMs) -> Since {
    let of = |known: &Option<Known>, fingerprint: String| match known {
        Some(known) if known.fingerprint == fingerprint => known.since,
        Some(_) | None => Some(now),
    };
    Since {
        key: of(&memory.key, key_fingerprint(destination)),
        receiver: of(&memory.receiver, receiver_fingerprint(destination)),
    }
}

/// Who receives: an address of any kind is the receiver's own, for nobody can tell whether one that
/// has moved has taken along what it knows. It is remembered, so it must not change.
pub(super) fn receiver_fingerprint(destination: &Destination) -> String {
    let url = destination.base_url.as_str();
    url.strip_suffix('/').unwrap_or(url).to_owned()
}

/// What makes a receiver take one key for another: where it goes, and how it is spelt. It is
/// remembered, so it must not change.
pub(super) fn key_fingerprint(destination: &Destination) -> String {
    let key = &destination.key;
    let (kind, name) = match &key.place {
        // Names of headers have no case (RFC 9110, 5.1).
        KeyPlace::Header(name) => ("header", name.to_ascii_lowercase()),
        KeyPlace::JsonBody(pointer) => ("json_body", pointer.clone()),
        KeyPlace::FormBody(field) => ("form_body", field.clone()),
        KeyPlace::Query(name) => ("query", name.clone()),
        KeyPlace::UrlPath => ("url_path", String::new()),
        KeyPlace::Natural => ("natural", String::new()),
        KeyPlace::None => ("none", String::new()),
    };
    let format = match key.format {
        KeyFormat::Raw => "raw",
        KeyFormat::SfString => "sf_string",
        KeyFormat::Uuid => "uuid",
        KeyFormat::Short22 => "short22",
        KeyFormat::Tid => "tid",
    };
    format!("{kind} {format} {name}")
}

pub(super) fn interrupted_event(
    config: &Config,
    interrupted: &Interrupted,
    memory: &Memory,
    now: UnixMs,
    trust: &Trust,
    jitter: u16,
) -> Event {
    let item = &interrupted.item;
    let method = &item.envelope.request.method;
    let outcome = Outcome::Interrupted;
    let Some(destination) = config.destinations.get(&item.envelope.destination) else {
        // Nobody says whether a repeat is harmless: a person must look.
        let mut event = Event::new(EventKind::Attempt, now, State::Unknown);
        event.n = Some(interrupted.n);
        event.outcome = Some(outcome.kind());
        event.claimed_at = Some(interrupted.claimed_at);
        event.reason = Some(Reason::INTERRUPTED);
        return event;
    };
    let before = trust.standing(item.standing());
    let verdict = classify(
        &destination.rules,
        &Exchange {
            outcome: &outcome,
            method,
            prior_maybe: before.maybe_acted,
            key_sent: destination.key.is_sent(),
            at: now,
        },
    );
    settle::attempt(
        &policy_of(
            destination,
            before.maybe_since.or(Some(interrupted.claimed_at)),
            since(destination, memory, now),
        ),
        &verdict,
        &outcome,
        &Settling {
            before: &before,
            method,
            n: interrupted.n,
            claimed_at: interrupted.claimed_at,
            at: now,
            ms: 0,
            suspended_ms: lane::suspended_ms(memory, before.aging_since.unwrap_or(now), now),
            not_after: item.envelope.not_after,
            clock_suspect: trust.is_suspect(),
            jitter,
        },
    )
}
