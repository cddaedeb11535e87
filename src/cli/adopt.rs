//! `doctor --adopt`: a copied or restored spool becomes one of its own, and nothing that waits in it
//! is sent before a person says so: what the original has sent since the copy cannot be known here.
//!
//! # Order of writes
//!
//! 1. The lock of the copy is owned, the journal replayed.
//! 2. What was being sent is parked, what is pending or held is held without a time, what is unknown
//!    is parked. All of it is durable.
//! 3. `spool.json` names the copy's lock, and a new id. From here on ticks run.
//!
//! A death before 3 leaves a copy, which no tick touches, and which is adopted again.
//!
//! # Not here
//!
//! Nobody else is told: whoever adopts is, and a copy must not write to anybody by itself. What waits
//! in drop boxes is not taken in, for only a person knows which of the spools is to send it.

use std::collections::HashSet;
use std::sync::atomic::AtomicBool;

use super::exit::CliError;
use super::output;
use super::own::who;
use super::tick::patiently;
use super::{Context, whoami};
use crate::clock::{Clock as _, SystemClock};
use crate::entropy;
use crate::model::event::{Event, EventKind};
use crate::model::ids::RequestId;
use crate::model::item::Item;
use crate::model::outcome::OutcomeKind;
use crate::model::reason::Reason;
use crate::model::state::State;
use crate::model::time::UnixMs;
use crate::store::checkup::{Checkup, FindingKind};
use crate::store::file::FileStore;
use crate::store::{Decision, Found, Interrupted, Owner, Scope, Session, Store, StoreError};

/// What is held and parked in an adopted spool.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Adopted {
    pub(super) held: u64,
    pub(super) parked: u64,
}

/// Whether a spool is a copy, or has lost the file that tells.
pub(super) fn is_copy(store: &FileStore) -> anyhow::Result<bool> {
    match store.check_original() {
        Ok(()) => Ok(false),
        Err(StoreError::Copied { .. }) => Ok(true),
        Err(StoreError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            Ok(true)
        }
        Err(error) => Err(error.into()),
    }
}

pub(super) fn adopt(context: &Context, store: &FileStore, wait_s: u64) -> anyhow::Result<Adopted> {
    let clock = SystemClock::new();
    refuse_drops(store.counts()?.incoming)?;
    refuse_unread(store, clock.now())?;
    let by = whoami();
    let who = who();
    let owner = || Owner {
        who: &who,
        now: clock.now(),
        told_of_corrupt: &[],
        told_in_text: &[],
    };
    let mut session = patiently(wait_s.saturating_mul(1000), &AtomicBool::new(false), || {
        store.lock_copy(&owner())
    })?;
    let now = clock.now();
    session.recover(&mut |interrupted| (parked(interrupted, &by, now), Vec::new()))?;
    let mut holding = Holding {
        by: &by,
        now,
        done: HashSet::new(),
        adopted: Adopted::default(),
        left: Vec::new(),
    };
    for state in [State::Pending, State::Held, State::Unknown] {
        holding.hold_all(store, session.as_mut(), state)?;
    }
    let Holding { adopted, left, .. } = holding;
    for file in &session.met().set_aside {
        let text = format!(
            "{} was set aside as corrupt/{}: {}",
            file.from, file.name, file.why
        );
        context.out.warn(&output::plain(&text));
    }
    let boxes = session.drop_boxes()?;
    if let Some(path) = left.first() {
        let count = left.len();
        session.close(now, None)?;
        return Err(CliError::Partly(format!(
            "the spool is still a copy: {count} items could not be read and so not held, the first is {path}; mend what keeps them from being read, then run it again"
        ))
        .into());
    }
    if boxes.iter().any(|(_, has_files)| *has_files) {
        session.close(now, None)?;
        return refuse_drops(1).map(|()| adopted);
    }
    session.adopt(now, entropy::request_id().0)?;
    Ok(adopted)
}

/// What waits in the boxes of a copy waits in those of the original too.
fn refuse_drops(files: u64) -> anyhow::Result<()> {
    if files == 0 {
        return Ok(());
    }
    Err(CliError::Partly(
        "the spool is still a copy: files wait in its drop boxes, incoming/, and the original would send them too; move them out of the spool, run it again, and then drop again what this spool is to send".to_owned(),
    )
    .into())
}

/// What cannot be read cannot be held, and would be sent once it can be.
fn refuse_unread(store: &FileStore, now: UnixMs) -> anyhow::Result<()> {
    let found = store.examine(&Checkup {
        now,
        configured: None,
    })?;
    let waits = |path: &str| {
        let states = [State::Pending, State::Unknown, State::Held];
        states.iter().any(|state| path.starts_with(state.as_str()))
    };
    let unread = found.iter().find(|finding| {
        matches!(finding.kind, FindingKind::Unreadable | FindingKind::Newer) && waits(&finding.path)
    });
    match unread {
        None => Ok(()),
        Some(finding) => Err(CliError::Partly(format!(
            "the spool is still a copy: {} cannot be held ({}); {}, then run it again",
            finding.path, finding.what, finding.next
        ))
        .into()),
    }
}

/// Items that are held or parked, one after the other.
struct Holding<'a> {
    by: &'a str,
    now: UnixMs,
    done: HashSet<RequestId>,
    adopted: Adopted,
    /// Where those lie that could not be.
    left: Vec<String>,
}

impl Holding<'_> {
    fn hold_all(
        &mut self,
        store: &FileStore,
        session: &mut dyn Session,
        state: State,
    ) -> anyhow::Result<()> {
        session.sync()?;
        let scope = Scope {
            states: vec![state],
            destination: None,
        };
        let mut all: Vec<Found> = Vec::new();
        store.scan(&scope, &mut |found| {
            all.push(found.clone());
            Ok(())
        })?;
        for found in all {
            if !self.done.insert(found.id) {
                continue;
            }
            let mut is_decided = false;
            session.change(&found, &mut |item| {
                is_decided = true;
                self.decide(&found, item)
            })?;
            let is_aside = |session: &dyn Session| {
                let aside = &session.met().set_aside;
                aside.iter().any(|file| file.from == found.place)
            };
            if !is_decided && !is_aside(session) {
                self.left.push(found.place);
            }
        }
        Ok(session.sync()?)
    }

    fn decide(&mut self, found: &Found, item: &Item) -> Decision {
        let standing = item.standing();
        let restored = standing.reason.as_ref() == Some(&Reason::RESTORED);
        let is_unknown = found.state == State::Unknown || standing.state == State::Unknown;
        let state = if is_unknown {
            State::Unknown
        } else if standing.state.is_terminal() {
            // It is settled, and only its rename is missing.
            return Decision::Leave;
        } else {
            State::Held
        };
        match state {
            State::Unknown => self.adopted.parked += 1,
            State::Held | State::Pending | State::Confirmed | State::Failed => {
                self.adopted.held += 1;
            }
        }
        // By an adoption that died.
        if restored && standing.due.is_none() && standing.state == state && found.state == state {
            return Decision::Leave;
        }
        let mut event = Event::new(EventKind::Held, self.now, state);
        event.by = Some(self.by.to_owned());
        event.reason = Some(Reason::RESTORED);
        if let (State::Held | State::Unknown, Some(reason)) = (standing.state, &standing.reason) {
            event.note = Some(format!(
                "in the original it was {}: {reason}",
                standing.state
            ));
        }
        Decision::Settle(Box::new(event), Vec::new())
    }
}

/// The event of an attempt that the original, or whoever died, was making.
fn parked(interrupted: &Interrupted, by: &str, now: UnixMs) -> Event {
    let mut event = Event::new(EventKind::Attempt, now, State::Unknown);
    event.by = Some(by.to_owned());
    event.n = Some(interrupted.n);
    event.outcome = Some(OutcomeKind::Interrupted);
    event.claimed_at = Some(interrupted.claimed_at);
    event.reason = Some(Reason::RESTORED);
    event
}

pub(super) fn print(context: &Context, adopted: &Adopted) -> anyhow::Result<()> {
    let Adopted { held, parked } = adopted;
    let out = context.out;
    out.line(&format!(
        "the spool is one of its own now: {held} held, {parked} parked, all as restored; nothing of them is sent before you say so"
    ))?;
    if *held > 0 {
        out.line("  held:   first see what the original has sent since the copy was made: each of these may have been sent already. Look with `tickpost list --state held --reason restored`, then `tickpost release --state held --reason restored`, or `cancel`")?;
    }
    if *parked > 0 {
        out.line("  parked: look at the receiver, then `tickpost resolve` each of `tickpost list --state unknown --reason restored`")?;
    }
    Ok(())
}
