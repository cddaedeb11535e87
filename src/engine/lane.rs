//! One destination in one tick: how much of it may be under way, and whether it is suspended.

use std::collections::VecDeque;
use std::sync::Arc;

use super::judge::{Since, key_fingerprint, receiver_fingerprint, since};
use crate::config::{Destination, Rate};
use crate::model::classify::{Action, Verdict};
use crate::model::event::{Event, Scope};
use crate::model::ids::RequestId;
use crate::model::key::KeyPlace;
use crate::model::outcome::{Outcome, TransportClass};
use crate::model::policy::OnUnknown;
use crate::model::reason::Reason;
use crate::model::state::State;
use crate::model::time::{DAY_MS, MINUTE_MS, UnixMs};
use crate::store::{Claimed, Known, Memory, Suspension};

/// How many attempts begin at once before the first success of a tick: a dead destination must
/// not cost more. Each success adds one, up to the destination's concurrency.
const WINDOW_START: usize = 2;

/// How many items of a keyed destination are claimed ahead of being sent.
const AHEAD_MAX: usize = 256;

/// How many past suspensions are remembered; the oldest are joined beyond.
const PAST_MAX: usize = 50;

/// How many different items in a row a destination holds before it is suspended.
const HELD_MAX: usize = 3;

/// How many different items in a row get no answer before the destination is suspended: behind
/// some proxies a dead receiver takes connections and drops them, and where nothing makes a
/// repeat harmless each item that is spent on it is a person's work.
const LOST_MAX: usize = 3;

/// The same where the receiver drops repeats: a lossy network is no reason to wait.
const LOST_HARMLESS_MAX: usize = 4;

/// What a lane lets through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    /// Whatever is due.
    Open,
    /// One item, to see whether the suspension's cause is gone.
    Trying,
    /// Nothing.
    Closed,
}

/// What an outcome meant for the destination.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Learned {
    /// The suspension that ended, if one did: what it held may go.
    pub(super) lifted: Option<Reason>,
    /// The destination has just been suspended.
    pub(super) suspended: bool,
}

/// One destination in one tick.
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts of one tick, not a state in disguise"
)]
pub(super) struct Lane {
    pub(super) destination: Arc<Destination>,
    pub(super) memory: Memory,
    /// The memory changed and is to be written.
    pub(super) changed: bool,
    pub(super) mode: Mode,
    /// An operator holds the whole destination.
    pub(super) operator_hold: bool,
    /// Claimed, not begun.
    pub(super) ready: VecDeque<Claimed>,
    pub(super) in_flight: usize,
    /// Nothing more is due.
    pub(super) dry: bool,
    /// The destination's secret could be read in this tick, or was found to be unreadable.
    pub(super) secret_checked: bool,
    /// What the secret's file was when it was read for this tick's attempts.
    pub(super) secret_seen: Option<String>,
    /// How many more items may be claimed in this tick.
    pub(super) quota: usize,
    window: usize,
}

impl Lane {
    pub(super) fn new(destination: Arc<Destination>, memory: Memory, now: UnixMs) -> Self {
        let mode = match &memory.suspended {
            None => Mode::Open,
            Some(Suspension { until: None, .. }) => Mode::Closed,
            Some(Suspension {
                until: Some(until), ..
            }) if *until > now => Mode::Closed,
            Some(_) => Mode::Trying,
        };
        let window = WINDOW_START.min(destination.concurrency);
        Self {
            destination,
            memory,
            changed: false,
            mode,
            operator_hold: false,
            ready: VecDeque::new(),
            in_flight: 0,
            dry: false,
            secret_checked: false,
            secret_seen: None,
            quota: usize::MAX,
            window,
        }
    }

    /// Since when the destination's key and receiver are what they are, as [`Self::note_ways`] has
    /// found.
    pub(super) fn since(&self) -> Since {
        let of = |known: &Option<Known>| known.as_ref()?.since;
        Since {
            key: of(&self.memory.key),
            receiver: of(&self.memory.receiver),
        }
    }

    /// Remembers under which key this tick sends, and to whom. True if that is new, and must be
    /// durable before anything is sent.
    pub(super) fn note_ways(&mut self, now: UnixMs) -> bool {
        let since = since(&self.destination, &self.memory, now);
        let key = Some(Known {
            fingerprint: key_fingerprint(&self.destination),
            since: since.key,
        });
        let receiver = Some(Known {
            fingerprint: receiver_fingerprint(&self.destination),
            since: since.receiver,
        });
        if self.memory.key == key && self.memory.receiver == receiver {
            return false;
        }
        self.memory.key = key;
        self.memory.receiver = receiver;
        true
    }

    /// Whether anything may be claimed or begun.
    pub(super) fn is_open(&self) -> bool {
        self.mode != Mode::Closed && !self.operator_hold
    }

    /// How many items to claim now.
    pub(super) fn wants(&self, now: UnixMs) -> usize {
        if !self.is_open() || self.dry {
            return 0;
        }
        let under_way = self.in_flight + self.ready.len();
        let want = if self.mode == Mode::Trying {
            usize::from(under_way == 0)
        } else if let Some(rate) = self.destination.rate {
            // What may begin in the next fifth of a second, and is not claimed yet.
            let slots = self.slots(rate, now);
            slots
                .saturating_sub(self.ready.len())
                .min(self.window.saturating_sub(under_way))
        } else if self.destination.key.place == KeyPlace::None {
            // Without a key a claim that is not sent would be a person's work after a crash.
            self.window.saturating_sub(under_way)
        } else {
            let ahead = if self.window < self.destination.concurrency {
                self.window
            } else {
                AHEAD_MAX.max(self.window)
            };
            if self.ready.len() * 2 > ahead {
                0
            } else {
                ahead.saturating_sub(self.ready.len())
            }
        };
        want.min(self.quota)
    }

    fn slots(&self, rate: Rate, now: UnixMs) -> usize {
        let interval = interval_ms(rate);
        let next = self.memory.next_send_at.unwrap_or(now);
        if next > now {
            return 0;
        }
        usize::try_from((200 / interval).max(1)).unwrap_or(1)
    }

    /// Whether an attempt may begin now; if the rate alone forbids it, from when on.
    pub(super) fn may_begin(&self, now: UnixMs) -> Result<bool, UnixMs> {
        if !self.is_open() || self.in_flight >= self.window {
            return Ok(false);
        }
        match (self.destination.rate, self.memory.next_send_at) {
            (Some(_), Some(next)) if next > now => Err(next),
            _ => Ok(true),
        }
    }

    /// When the rate lets the next attempt begin, if it forbids one now.
    pub(super) fn rate_opens_at(&self, now: UnixMs) -> Option<UnixMs> {
        self.destination.rate?;
        self.memory.next_send_at.filter(|next| *next > now)
    }

    /// An attempt begins.
    pub(super) fn begun(&mut self, now: UnixMs) {
        self.in_flight += 1;
        if let Some(rate) = self.destination.rate {
            let from = self.memory.next_send_at.unwrap_or(now).max(now);
            self.memory.next_send_at = Some(from.plus(interval_ms(rate)));
            self.changed = true;
        }
    }

    /// DNS or TLS failures have lasted a day: what is due is held, for a misspelt host never
    /// heals.
    pub(super) fn is_unreachable(&self, now: UnixMs) -> bool {
        self.memory
            .unreachable_since
            .is_some_and(|since| now.since(since) >= DAY_MS)
    }

    /// Takes in what an attempt showed of the destination.
    pub(super) fn learn(
        &mut self,
        id: RequestId,
        outcome: &Outcome,
        verdict: &Verdict,
        event: &Event,
        now: UnixMs,
    ) -> Learned {
        if let Outcome::Answered(answer) = outcome {
            self.memory.last_status = Some(answer.status);
            self.memory.last_answer_at = Some(now);
            self.memory.lost_in_a_row.clear();
            self.changed = true;
        }
        if event.state == State::Confirmed {
            self.memory.last_success_at = Some(now);
            self.memory.held_in_a_row.clear();
            self.window = (self.window + 1).min(self.destination.concurrency);
        }
        self.note_reachability(outcome, now);
        let wide = matches!(verdict.scope, Scope::Destination | Scope::Group);
        let not_sent = matches!(outcome, Outcome::NotSent(_));
        let auth = [Reason::AUTH_INVALID, Reason::AUTH_EXPIRED].contains(&verdict.reason);
        if wide && verdict.action == Some(Action::Disable) {
            return self.suspend(&verdict.reason, None, now);
        }
        if wide && not_sent {
            return self.suspend_growing(&verdict.reason, MINUTE_MS / 2, 15 * MINUTE_MS, now);
        }
        if wide && verdict.state == State::Pending {
            return self.suspend(&verdict.reason, event.due.or(Some(now)), now);
        }
        if wide && verdict.state == State::Held {
            if !self.memory.held_in_a_row.contains(&id) {
                self.memory.held_in_a_row.push(id);
                self.changed = true;
            }
            // A wait of the verdict's own (a quota that resets) is the suspension's.
            if auth || self.memory.held_in_a_row.len() >= HELD_MAX {
                return match verdict.wait_ms {
                    Some(wait_ms) => self.suspend(&verdict.reason, Some(now.plus(wait_ms)), now),
                    None => {
                        self.suspend_growing(&verdict.reason, 15 * MINUTE_MS, 60 * MINUTE_MS, now)
                    }
                };
            }
            // Held for the same cause as the suspension it was to try.
            if self.mode == Mode::Trying {
                return self.suspend_growing(&verdict.reason, 15 * MINUTE_MS, 60 * MINUTE_MS, now);
            }
            return Learned::default();
        }
        if matches!(outcome, Outcome::Answered(_)) && self.mode != Mode::Closed {
            return self.lift(now);
        }
        let lost = matches!(outcome, Outcome::MaybeSent(_));
        if lost && !self.memory.lost_in_a_row.contains(&id) {
            self.memory.lost_in_a_row.push(id);
            self.changed = true;
        }
        let lost_max = match self.destination.policy.on_unknown {
            OnUnknown::Resend => LOST_HARMLESS_MAX,
            OnUnknown::Park => LOST_MAX,
        };
        if self.mode == Mode::Trying || (lost && self.memory.lost_in_a_row.len() >= lost_max) {
            // Still no answer: one item tries again in time.
            let reason = verdict.reason.clone();
            return self.suspend_growing(&reason, MINUTE_MS / 2, 15 * MINUTE_MS, now);
        }
        Learned::default()
    }

    fn note_reachability(&mut self, outcome: &Outcome, now: UnixMs) {
        let lasting = matches!(outcome, Outcome::NotSent(failure) if matches!(
            failure.class,
            TransportClass::DnsFailure | TransportClass::TlsHandshakeFailed
        ));
        let before = self.memory.unreachable_since;
        self.memory.unreachable_since = if lasting { before.or(Some(now)) } else { None };
        self.changed |= before != self.memory.unreachable_since;
    }

    /// The destination's secret cannot be read: nothing can be sent. True if that is new.
    pub(super) fn suspend_for_secret(&mut self, why: &str, now: UnixMs) -> bool {
        let is_new = self.memory.suspended.is_none();
        self.suspend_growing(&Reason::LOCAL_ERROR, MINUTE_MS / 2, 15 * MINUTE_MS, now);
        if let Some(suspended) = &mut self.memory.suspended {
            suspended.note = Some(why.to_owned());
        }
        is_new
    }

    fn suspend_growing(
        &mut self,
        reason: &Reason,
        first_ms: u64,
        last_ms: u64,
        now: UnixMs,
    ) -> Learned {
        // Several attempts that were under way together fail once, not each.
        let tries = match &self.memory.suspended {
            Some(before) if self.mode == Mode::Closed => before.tries.max(1) - 1,
            Some(before) => before.tries,
            None => 0,
        };
        let wait_ms = first_ms.saturating_mul(1 << tries.min(16)).min(last_ms);
        self.suspend(reason, Some(now.plus(wait_ms)), now)
    }

    fn suspend(&mut self, reason: &Reason, until: Option<UnixMs>, now: UnixMs) -> Learned {
        let before = self.memory.suspended.take();
        let together = self.mode == Mode::Closed;
        let (since, tries) = match &before {
            Some(before) if together => (before.since, before.tries),
            Some(before) => (before.since, before.tries + 1),
            None => (now, 1),
        };
        // Of several causes that are met at once the one that asks for the longest wait holds.
        let lasts_longer = |old: &Suspension| match (old.until, until) {
            (Some(old), Some(new)) => old > new,
            (old, _) => old.is_none(),
        };
        let holds = before.filter(|old| together && lasts_longer(old));
        self.memory.suspended = Some(holds.unwrap_or_else(|| Suspension {
            reason: reason.clone(),
            since,
            until,
            tries,
            note: None,
        }));
        self.mode = Mode::Closed;
        self.changed = true;
        Learned {
            lifted: None,
            suspended: true,
        }
    }

    /// Ends a suspension.
    pub(super) fn lift(&mut self, now: UnixMs) -> Learned {
        self.mode = Mode::Open;
        let Some(ended) = self.memory.suspended.take() else {
            return Learned::default();
        };
        self.changed = true;
        self.memory.held_in_a_row.clear();
        self.memory.lost_in_a_row.clear();
        self.memory.past.push((ended.since, now));
        if self.memory.past.len() > PAST_MAX {
            // Joining the two oldest counts the time between them as suspended: an item lives
            // a little longer, never shorter.
            let (begin, _) = self.memory.past.remove(0);
            if let Some(first) = self.memory.past.first_mut() {
                first.0 = begin;
            }
        }
        Learned {
            lifted: Some(ended.reason),
            suspended: false,
        }
    }
}

/// How long a destination was suspended between two instants, in milliseconds.
pub(super) fn suspended_ms(memory: &Memory, from: UnixMs, to: UnixMs) -> u64 {
    let current = memory.suspended.as_ref().map(|s| (s.since, to));
    let all = memory.past.iter().copied().chain(current);
    all.map(|(begin, end)| end.min(to).since(begin.max(from)))
        .sum()
}

fn interval_ms(rate: Rate) -> u64 {
    // Up: a rate is not exceeded. The clock's milliseconds bound it at 1000 a second.
    rate.per_ms.div_ceil(u64::from(rate.count.max(1))).max(1)
}
