//! What producers, ticks, operators and readers do, by the calls that the program makes.

use std::collections::HashSet;
use std::path::Path;
use std::rc::Rc;

use tickpost::engine::{self, Engine, Options};
use tickpost::intake::{self, By};
use tickpost::model::draft::Draft;
use tickpost::model::event::{Event, EventKind};
use tickpost::model::ids::{DestName, RequestId};
use tickpost::model::item::Item;
use tickpost::model::reason::Reason;
use tickpost::model::state::{self, Move, Refused, Resolution, State};
use tickpost::model::time::{MINUTE_MS, UnixMs};
use tickpost::model::tombstone::Retention;
use tickpost::store::disk::Disk as _;
use tickpost::store::{
    Answer, Decision, DestinationHold, Found, Limits, Offer, Owner, Scope, Session, Store as _,
    StoreError,
};
use uuid::Uuid;

use crate::crash_disk::{Rng, path};
use crate::judge;
use crate::plan::{Entry, Order, Step};
use crate::wire::Wire;
use crate::world::World;

/// The first is sent a key, the second is not, the third is idempotent; the fourth is sent a key
/// too, and leaves its unknown items to a person.
pub(crate) const DESTS: [&str; 4] = ["keyed", "plain", "puts", "parks"];

/// How many keys and ids of their own producers use, again and again.
const POOL: u64 = 6;

/// A little more than fits into an envelope.
const LARGE_BYTES: usize = 65_600;

pub(crate) fn act(world: &Rc<World>, entry: &Entry) {
    let mut rng = Rng::new(entry.seed);
    match &entry.step {
        Step::Enqueue { items } => enqueue(world, &mut rng, *items),
        Step::Drop => drop_file(world, &mut rng),
        Step::Tick { good, limit } => drop(tick(world, entry.seed, *good, *limit)),
        Step::Operate(order) => drop(operate(world, &mut rng, *order)),
        Step::HoldDestination { dest, hold } => hold_destination(world, DESTS[*dest], *hold),
        Step::Prune => prune(world),
        Step::Read => judge::read(world),
        Step::Pass { ms } => {
            if *ms > MINUTE_MS {
                world.disk().write_back();
            }
            world.pass(*ms);
        }
        Step::Leap { ms } => world.leap(*ms),
        // Whoever runs the history does this.
        Step::Power => {}
        Step::Fill { bytes } => world.bound(*bytes),
        Step::Free => world.free(),
    }
}

/// What a producer asks for.
struct Wish {
    /// What it is, in a word that is in the request's path.
    name: String,
    dest: usize,
    key: Option<String>,
    own_id: Option<RequestId>,
}

impl Wish {
    fn draw(world: &World, rng: &mut Rng) -> Self {
        let dest = rng.index(DESTS.len());
        match rng.below(10) {
            0..4 => {
                let mut truth = world.truth.borrow_mut();
                truth.serial += 1;
                Self {
                    name: format!("u{}", truth.serial),
                    dest,
                    key: None,
                    own_id: None,
                }
            }
            4..8 => {
                let n = rng.below(POOL);
                Self {
                    name: format!("k{dest}-{n}"),
                    dest,
                    key: Some(format!("key {n}")),
                    own_id: None,
                }
            }
            _ => {
                let n = rng.below(POOL);
                Self {
                    name: format!("o{n}"),
                    dest: usize::try_from(n).unwrap() % DESTS.len(),
                    key: None,
                    own_id: Some(own_id(n)),
                }
            }
        }
    }

    fn body(&self) -> Vec<u8> {
        let mut body = format!("{{\"n\":\"{}\"}}", self.name).into_bytes();
        // The name decides which bodies are large, so that a repeat has the same body.
        if self.name.bytes().map(u64::from).sum::<u64>() % 9 == 3 {
            body.resize(LARGE_BYTES, b' ');
        }
        body
    }

    fn method(&self) -> &'static str {
        if DESTS[self.dest] == "puts" {
            "PUT"
        } else {
            "POST"
        }
    }

    fn draft(&self) -> Draft {
        let mut draft = Draft::default();
        draft.destination = Some(dest(DESTS[self.dest]));
        self.method().clone_into(&mut draft.method);
        draft.path = format!("/{}", self.name);
        draft.body = self.body();
        draft.key.clone_from(&self.key);
        draft.request_id = self.own_id;
        draft.content_type = Some("application/json".to_owned());
        draft
    }
}

fn own_id(n: u64) -> RequestId {
    RequestId(Uuid::from_u128(
        0x0e0e_0e0e_0000_4000_8000_0000_0000_0000 | u128::from(n + 1),
    ))
}

pub(crate) fn dest(name: &str) -> DestName {
    name.parse().unwrap()
}

fn enqueue(world: &Rc<World>, rng: &mut Rng, items: u64) {
    let store = match world.store() {
        Ok(store) => store,
        Err(error) => return world.expect_fault(&error),
    };
    let now = world.now();
    let mut offers = Vec::new();
    let mut wishes = Vec::new();
    for _ in 0..items {
        let wish = Wish::draw(world, rng);
        let mut draft = wish.draft();
        if rng.percent(20) {
            draft.notify = vec![dest("second")];
        }
        if rng.percent(10) {
            draft.hold = Some("a person's word".to_owned());
        }
        if rng.percent(15) {
            draft.not_before = Some(now.plus(rng.below(4 * 3_600_000)));
        }
        if rng.percent(12) {
            draft.not_after = Some(now.plus(4 * 3_600_000 + rng.below(20 * 3_600_000)));
        }
        let by = By {
            now,
            who: "someone(1)".to_owned(),
            principal: None,
            id: None,
        };
        match intake::offer(&world.config, draft, None, &store, &by) {
            Ok(mut offer) => {
                if wish.own_id.is_none() {
                    offer.envelope.request_id = world.mint();
                }
                let id = offer.envelope.request_id;
                world
                    .truth
                    .borrow_mut()
                    .offered
                    .insert(id, wish.name.clone());
                world.say(|| format!("offers {} as {id}", wish.name));
                offers.push(offer);
                wishes.push(wish);
            }
            Err((why, _)) => world.broken(format!("an offer was refused: {why}")),
        }
    }
    let mut answers = Vec::new();
    let accepted = store.accept_all(offers, &intake::limits(&world.config), &mut answers);
    for (wish, answer) in wishes.iter().zip(&answers) {
        match answer {
            Answer::New(id) | Answer::Known(id) | Answer::Aside(id) => {
                acknowledge(world, wish, *id, answer);
            }
            Answer::Refused(why) => {
                judge::refused(world, &wish.name, wish.own_id, &why.to_string());
            }
            Answer::Full(_) | Answer::Busy | Answer::Open => {}
        }
    }
    if let Err(error) = accepted {
        world.expect_fault(&error);
    }
}

/// One producer accepts under a key that is always the same. Returns the id that it is told.
pub(crate) fn accept_keyed(world: &World) -> Option<RequestId> {
    let wish = Wish {
        name: "k0-1".to_owned(),
        dest: 0,
        key: Some("key 1".to_owned()),
        own_id: None,
    };
    let store = world.store().ok()?;
    let by = By {
        now: world.now(),
        who: "someone(1)".to_owned(),
        principal: None,
        id: None,
    };
    let mut offer = intake::offer(&world.config, wish.draft(), None, &store, &by).ok()?;
    offer.envelope.request_id = world.mint();
    let mut answers = Vec::new();
    let accepted = store.accept_all(vec![offer], &Limits::NONE, &mut answers);
    world.say(|| format!("{answers:?} {accepted:?}"));
    match answers.first()? {
        Answer::New(id) | Answer::Known(id) | Answer::Aside(id) => Some(*id),
        Answer::Refused(_) | Answer::Full(_) | Answer::Busy | Answer::Open => None,
    }
}

fn acknowledge(world: &World, wish: &Wish, id: RequestId, answer: &Answer) {
    world.say(|| format!("{} acknowledged: {answer:?}", wish.name));
    let mut truth = world.truth.borrow_mut();
    let wrong = match truth.offered.get(&id).or(truth.found.get(&id)) {
        Some(name) if *name == wish.name => None,
        other => Some(format!(
            "{} was acknowledged as {id}, which is {other:?}",
            wish.name
        )),
    };
    let wrong = wrong.filter(|_| wish.key.is_none() || truth.offered.contains_key(&id));
    let before = wish
        .key
        .as_ref()
        .and_then(|_| truth.keys.insert(wish.name.clone(), id));
    truth.acked.insert(id, wish.name.clone());
    drop(truth);
    let was_pruned = before.is_none_or(|before| judge::was_pruned(world, before));
    if let Some(wrong) = wrong {
        world.broken(wrong);
    }
    if let Some(before) = before
        && before != id
        && !was_pruned
    {
        world.broken(format!(
            "one key, two items: {} was {before} and is {id}",
            wish.name
        ));
    }
}

fn drop_file(world: &Rc<World>, rng: &mut Rng) {
    let disk = world.disk();
    let serial = {
        let mut truth = world.truth.borrow_mut();
        truth.serial += 1;
        truth.serial
    };
    let garbage = rng.percent(15);
    let mut wish = Wish::draw(world, rng);
    let text = if garbage {
        format!("no item {serial}")
    } else {
        if wish.own_id.is_some() {
            wish.name = format!("u{serial}");
            wish.own_id = None;
        }
        let mut draft = serde_json::json!({
            "request": {
                "method": wish.method(),
                "path": format!("/{}", wish.name),
                "content_type": "application/json",
                "body": {"text": String::from_utf8_lossy(&wish.body())},
            },
        });
        if let Some(key) = &wish.key {
            draft["key"] = key.as_str().into();
        } else if rng.percent(30) {
            let id = world.mint();
            draft["request_id"] = id.to_string().into();
            world
                .truth
                .borrow_mut()
                .offered
                .insert(id, wish.name.clone());
        }
        draft.to_string()
    };
    let dir = path(&format!("incoming/{}", DESTS[wish.dest]));
    let name = format!("drop-{serial}");
    let hidden = dir.join(format!(".{name}"));
    let whole = dir.join(format!("{name}.json"));
    let dropped = disk
        .create(&hidden, text.as_bytes(), None)
        .and_then(|()| disk.rename(&hidden, &whole))
        .and_then(|()| disk.sync_dir(&dir));
    match dropped {
        Ok(()) => {
            let mut truth = world.truth.borrow_mut();
            if garbage {
                truth.garbage.insert(name.clone());
            } else {
                truth.dropped.insert(wish.name.clone(), name.clone());
            }
            drop(truth);
            world.say(|| {
                format!(
                    "dropped {name}, which is {}",
                    if garbage { "nothing" } else { &wish.name }
                )
            });
        }
        Err(error) if world.is_faulty() => world.say(|| format!("error: {error}")),
        Err(error) => world.broken(format!("an error without a fault: {error}")),
    }
}

pub(crate) fn tick(world: &Rc<World>, seed: u64, good: u64, limit: Option<u64>) -> bool {
    let store = match world.store() {
        Ok(store) => store,
        Err(error) => {
            world.expect_fault(&error);
            return false;
        }
    };
    let mut rng = Rng::new(seed ^ 0x71c);
    let mut wire = Wire::new(world, seed, good);
    let ticked = Engine {
        config: &world.config,
        store: &store,
        clock: &**world,
        jitter: &mut || u16::try_from(rng.below(1001)).unwrap(),
        stop: &|| world.is_stopped(),
        watch: &mut |_| {},
    }
    .tick(
        &mut wire,
        &Options {
            limit,
            ..Options::default()
        },
    );
    match ticked {
        Ok(report) => {
            if !world.is_faulty() {
                let mut truth = world.truth.borrow_mut();
                for id in wire.told {
                    *truth.outcomes.entry(id).or_default() += 1;
                }
            }
            world.say(|| {
                let warnings = report.warnings.join("; ");
                format!(
                    "ticked: {} attempts, {} confirmed, {} recovered, {} taken in; {warnings}",
                    report.attempts, report.confirmed, report.recovered, report.ingested
                )
            });
            true
        }
        Err(error) => {
            world.expect_fault(&error);
            false
        }
    }
}

/// Owns the lock as a command does, and records what a dead tick was sending.
fn with_session(
    world: &Rc<World>,
    work: &mut dyn FnMut(&mut dyn Session, bool) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let store = world.store()?;
    let now = world.now();
    let mut session = store.lock(&Owner {
        who: "someone(1)",
        now,
        told_of_corrupt: world.config.notify.told_of_corrupt(),
        told_in_text: &world.config.notify.in_text,
    })?;
    let trust = engine::clock_trust(&store, &**world)?;
    engine::recover(
        session.as_mut(),
        &store,
        &world.config,
        &mut || 0,
        now,
        &trust,
        |_, _, _| {},
    )?;
    work(session.as_mut(), trust.is_suspect())?;
    session.close(now, None)
}

/// A command that changes nothing: it only recovers. True if all is quiet afterwards.
pub(crate) fn recover(world: &Rc<World>) -> bool {
    match with_session(world, &mut |_, _| Ok(())) {
        Ok(()) => true,
        Err(error) => {
            world.expect_fault(&error);
            false
        }
    }
}

/// The state after a move, as the commands see it.
fn after(found: &Found, item: &Item, step: Move) -> Result<State, Refused> {
    let standing = item.standing();
    let interrupted = found.state == State::Unknown && standing.state == State::Pending;
    if found.state != standing.state && !interrupted {
        return Err(Refused::Disagrees {
            place: found.state,
            event: standing.state,
        });
    }
    if found.state == State::Unknown {
        return state::after(State::Unknown, true, step);
    }
    state::after(standing.state, standing.maybe_acted, step)
}

fn event_of(world: &World, order: Order, item: &Item, now: UnixMs) -> (Move, Event) {
    let acted = {
        let receiver = world.receiver.borrow();
        receiver.effects.contains_key(&item.envelope.request_id)
    };
    let (step, kind) = match order {
        Order::Hold { .. } => (Move::Hold, EventKind::Held),
        Order::Release => (Move::Release, EventKind::Released),
        Order::Cancel => (Move::Cancel, EventKind::Cancelled),
        Order::Retry | Order::RetryNewId => (Move::Retry, EventKind::Retried),
        Order::Resolve if acted => (Move::Resolve(Resolution::Confirmed), EventKind::Resolved),
        Order::Resolve if now.0.is_multiple_of(2) => {
            (Move::Resolve(Resolution::Failed), EventKind::Resolved)
        }
        Order::Resolve => (Move::Resolve(Resolution::Resend), EventKind::Resolved),
    };
    let mut event = Event::new(kind, now, State::Pending);
    event.by = Some("someone(1)".to_owned());
    event.reason = match order {
        Order::Hold { .. } | Order::Resolve => Some(Reason::OPERATOR),
        Order::Cancel => Some(Reason::CANCELLED),
        Order::Release | Order::Retry | Order::RetryNewId => None,
    };
    if let Order::Hold {
        release_in_ms: Some(ms),
    } = order
    {
        event.due = Some(now.plus(ms));
    }
    (step, event)
}

pub(crate) fn operate(world: &Rc<World>, rng: &mut Rng, order: Order) -> bool {
    let most = 1 + rng.index(4);
    let first = rng.next();
    let now = world.now();
    let mut copies: Vec<Item> = Vec::new();
    let ended = with_session(world, &mut |session, _| {
        let store = world.store()?;
        let mut all = Vec::new();
        store.scan(&Scope::default(), &mut |found| {
            all.push(found.clone());
            Ok(())
        })?;
        // Operators leave notices alone.
        all.retain(|found| DESTS.contains(&found.destination.as_str()));
        if !all.is_empty() {
            let middle = usize::try_from(first % all.len() as u64).unwrap();
            all.rotate_left(middle);
        }
        let mut moved = 0;
        for found in all {
            if moved >= most {
                break;
            }
            let changed = session.change(&found, &mut |item| {
                let (step, mut event) = event_of(world, order, item, now);
                let Ok(to) = after(&found, item, step) else {
                    return Decision::Leave;
                };
                if order == Order::RetryNewId {
                    copies.push(item.clone());
                    moved += 1;
                    return Decision::Leave;
                }
                event.state = to;
                event.due = event.due.filter(|_| to == State::Held);
                let told = engine::notices(&world.config, item, &event);
                world.say(|| format!("{:?} of {}: {to}", event.event, found.id));
                Decision::Settle(Box::new(event), told)
            })?;
            moved += usize::from(changed);
        }
        Ok(())
    });
    let ended = ended.and_then(|()| copies.drain(..).try_for_each(|item| copy(world, item)));
    match ended {
        Ok(()) => true,
        Err(error) => {
            world.expect_fault(&error);
            false
        }
    }
}

/// Accepts the same request under a new id, as `retry --new-id` does.
fn copy(world: &World, item: Item) -> Result<(), StoreError> {
    let store = world.store()?;
    let now = world.now();
    let mut envelope = item.envelope;
    let old = envelope.request_id;
    envelope.retry_of = Some(old);
    envelope.request_id = world.mint();
    envelope.enqueued_at = now;
    envelope.key = None;
    envelope.not_before = envelope.not_before.filter(|at| *at > now);
    envelope.not_after = envelope.not_after.filter(|at| *at > now);
    let id = envelope.request_id;
    let name = envelope.request.path[1..].to_owned();
    let body = match envelope.request.file_bytes() {
        None => None,
        Some(bytes) => {
            let opened = store.open_body(old).map_err(|source| StoreError::Io {
                op: "read",
                path: path("bodies"),
                source,
            });
            match store.take_body(&mut opened?, bytes) {
                Ok(body) => Some(body),
                Err(error) if world.is_faulty() => {
                    world.say(|| format!("error: {error}"));
                    return Ok(());
                }
                Err(error) => world.broken(format!("no copy of a body: {error}")),
            }
        }
    };
    {
        let mut truth = world.truth.borrow_mut();
        truth.offered.insert(id, name.clone());
        truth.copies.insert(id);
    }
    let offer = Offer {
        envelope,
        accepted: Event::new(EventKind::Accepted, now, State::Pending),
        own_id: false,
        body,
    };
    let mut answers = Vec::new();
    store.accept_all(vec![offer], &Limits::NONE, &mut answers)?;
    if answers == [Answer::New(id)] {
        world.say(|| format!("{old} is repeated as {id}"));
        world.truth.borrow_mut().acked.insert(id, name);
    }
    Ok(())
}

pub(crate) fn hold_destination(world: &Rc<World>, name: &str, hold: bool) {
    let asked = {
        let mut truth = world.truth.borrow_mut();
        let last = truth.held.entry(name.to_owned()).or_default();
        *last = (last.0 + 1, None);
        last.0
    };
    let name = dest(name);
    let at = world.now();
    // Where somebody else has asked meanwhile, it may be as either was told.
    let told = || {
        let mut truth = world.truth.borrow_mut();
        let last = truth.held.entry(name.to_string()).or_default();
        last.1 = (last.0 == asked).then_some(hold);
    };
    let done = world.store().and_then(|store| {
        if hold {
            let hold = DestinationHold {
                at,
                by: "someone(1)".to_owned(),
                note: None,
            };
            return store
                .set_destination_hold(&name, Some(&hold))
                .map(|()| told());
        }
        store.set_destination_hold(&name, None)?;
        told();
        with_session(world, &mut |session, _| {
            let mut memory = store.memory(&name)?;
            if let Some(ended) = memory.suspended.take() {
                memory.past.push((ended.since, at));
            }
            memory.held_in_a_row.clear();
            session.remember(&name, &memory).map(drop)
        })
    });
    if let Err(error) = done {
        world.expect_fault(&error);
    }
}

fn prune(world: &Rc<World>) {
    let now = world.now();
    let retention = Retention {
        confirmed_ms: 0,
        failed_ms: 0,
        tombstones_ms: u64::MAX / 4,
    };
    let done = with_session(world, &mut |session, suspect| {
        let mut left = !suspect;
        while left {
            let pruned = session.prune(&retention, now, 8)?;
            world.say(|| format!("pruned {}", pruned.items));
            left = pruned.left;
        }
        Ok(())
    });
    if let Err(error) = done {
        world.expect_fault(&error);
    }
}

/// Whether anything is left that a tick would do something about, by places alone.
pub(crate) fn restless(world: &World) -> Vec<String> {
    let mut left = Vec::new();
    let mut parked = 0;
    // The power can keep the first name of a file whose renames were not synced, and then nobody
    // was told that it is dropped. Ticks leave a file with two names, and say so.
    let mut unfinished = HashSet::new();
    world
        .disk()
        .walk(Path::new(crate::crash_disk::ROOT), &mut |path, ino, _| {
            if path.starts_with("incoming/") && path.contains("/.") {
                unfinished.insert(ino);
            }
        });
    world
        .disk()
        .walk(Path::new(crate::crash_disk::ROOT), &mut |path, ino, _| {
            let parts: Vec<&str> = path.split('/').collect();
            let waits = match parts[0] {
                "pending" | "journal" => true,
                "unknown" => parts.get(2) != Some(&"parked"),
                "held" => parts.len() > 3,
                "incoming" => !unfinished.contains(&ino),
                _ => false,
            };
            parked += usize::from(parts[0] == "unknown" || parts[0] == "held");
            if waits {
                left.push(path.to_owned());
            }
        });
    left
}
