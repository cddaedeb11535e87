//! Deterministic histories of producers, drop boxes, ticks, operators, readers, a receiver and a
//! clock, on a disk that crashes. The store and the engine are the real ones; the invariants are the
//! guarantees of the contract.
//!
//! ```text
//! cargo test --release --test simulation                              what tests/run does
//! TICKPOST_SEEDS=100000 cargo test --release --test simulation histories    the long one
//! TICKPOST_SEED=17 cargo test --test simulation replay -- --nocapture       one of them, told
//! ```
//!
//! A history is a list of steps, drawn from its seed; see `simulation/plan.rs`. A crash, a fault or
//! a whole other process comes at an operation of a step, on the disk or the wire. So everything
//! runs in one thread, and a seed tells it all.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "simulation/actors.rs"]
mod actors;
#[path = "common/crash_disk.rs"]
#[expect(
    dead_code,
    reason = "only the stories of power_cuts give a file a second name"
)]
mod crash_disk;
#[path = "simulation/failed_syncs.rs"]
mod failed_syncs;
#[path = "simulation/judge.rs"]
mod judge;
#[path = "simulation/like_real.rs"]
mod like_real;
#[path = "simulation/plan.rs"]
mod plan;
#[path = "simulation/truth.rs"]
mod truth;
#[path = "simulation/wire.rs"]
mod wire;
#[path = "simulation/world.rs"]
mod world;

use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tickpost::config::Config;

use crash_disk::Rng;
use plan::{Entry, Order, Plan, Step};
use world::{Ended, World};

const CONFIG: &str = r#"
[notify]
destinations = ["ops"]
on = ["held", "failed", "parked", "corrupt"]
[tick]
grace = "20s"
[retry]
base = "20s"
max = "20m"
attempts = 6
age = "1d"
[retention]
confirmed = "3000d"
failed = "3000d"
[limits]
min_free = 1
[destination.keyed]
base_url = "http://127.0.0.1:9"
key = { kind = "header", name = "Idempotency-Key", window = "1h" }
concurrency = 4
[destination.plain]
base_url = "http://127.0.0.1:9"
concurrency = 2
[destination.puts]
base_url = "http://127.0.0.1:9"
on_unknown = "resend"
rate = "5/s"
[destination.parks]
base_url = "http://127.0.0.1:9"
key = { kind = "header", name = "Idempotency-Key", window = "1h" }
on_unknown = "park"
[destination.ops]
base_url = "http://127.0.0.1:9"
key = { kind = "header", name = "Idempotency-Key", window = "1h" }
[destination.second]
base_url = "http://127.0.0.1:9"
key = { kind = "header", name = "Idempotency-Key", window = "1h" }
"#;

fn config() -> Rc<Config> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tickpost.toml");
    std::fs::write(&path, CONFIG).unwrap();
    Rc::new(Config::load(&path).unwrap())
}

/// How often the end is waited for, and how long each time.
const LAST_TICKS: u64 = 60;
const LAST_WAIT_MS: u64 = 31 * 60_000;

/// What came of a history.
struct Told {
    broken: Option<String>,
    crashes: u64,
    trace: Vec<String>,
}

fn live(config: &Rc<Config>, plan: &Plan, traced: bool) -> Told {
    let world = World::new(Rc::clone(config), plan.profile, plan.seed, traced);
    // What breaks an invariant unwinds.
    let lived = catch_unwind(AssertUnwindSafe(|| {
        for entry in &plan.entries {
            step(&world, entry);
        }
        end(&world, plan.seed);
    }));
    let broken = world.why_broken();
    assert!(lived.is_ok() || broken.is_some(), "nobody says why");
    let told = Told {
        broken,
        crashes: world.crashes.get(),
        trace: world.trace(),
    };
    world.end();
    told
}

fn step(world: &Rc<World>, entry: &Entry) {
    if matches!(entry.step, Step::Prune) {
        // Whose histories are not known yet must not be pruned.
        settle(world);
    }
    if let Step::Leap { ms } = entry.step {
        // A timer ticks every minute: what no tick sees of a clock, before it leaps and after,
        // nobody can tell.
        if looks_at_the_clock(world, entry.seed) {
            world.leap(ms);
            if !looks_at_the_clock(world, entry.seed) {
                world.leap(-ms);
            }
        }
        return;
    }
    let crashes = world.crashes.get();
    let mut lost_power = world.run(entry);
    if matches!(entry.step, Step::Power) {
        world.lose_power();
        world.crashes.set(world.crashes.get() + 1);
        lost_power = true;
    }
    if world.crashes.get() == crashes {
        return;
    }
    judge::present(world);
    judge::read(world);
    if lost_power || entry.seed.is_multiple_of(2) {
        settle(world);
    }
}

/// Whether a tick, which sends nothing, comes to its end.
fn looks_at_the_clock(world: &Rc<World>, seed: u64) -> bool {
    let mut ticked = false;
    world.process(Vec::new(), false, || {
        ticked = actors::tick(world, seed, 100, Some(0));
    });
    ticked
}

/// Somebody recovers, if the disk lets it be done, and everything is looked at.
fn settle(world: &Rc<World>) {
    let mut quiet = false;
    world.process(Vec::new(), false, || quiet = actors::recover(world));
    // What a fault that lasts keeps from being done is in the journal, and nowhere else.
    if quiet && !(world.is_faulty() && judge::keeps(world)) {
        judge::quiet(world);
    }
}

/// The faults stop, the receiver is well, and every item comes to its end.
fn end(world: &Rc<World>, seed: u64) {
    world.free();
    world.lose_power();
    world.crashes.set(world.crashes.get() + 1);
    judge::present(world);
    judge::read(world);
    settle(world);
    for name in actors::DESTS {
        run(world, || actors::hold_destination(world, name, false));
    }
    for round in 0..2 {
        let mut ticks = 0;
        loop {
            run(world, || {
                actors::tick(world, seed.wrapping_add(ticks), 100, None);
            });
            let left = actors::restless(world);
            if left.is_empty() {
                break;
            }
            ticks += 1;
            if ticks > LAST_TICKS {
                world.broken(format!("no tick ever acts on {}", left.join(", ")));
            }
            world.pass(LAST_WAIT_MS + 7 * ticks);
        }
        judge::quiet(world);
        if round == 0 {
            // People say what became of what only they can know.
            let mut rng = Rng::new(seed);
            for order in [Order::Resolve, Order::Release, Order::Resolve] {
                for _ in 0..12 {
                    run(world, || {
                        actors::operate(world, &mut rng, order);
                    });
                }
            }
        }
    }
    judge::read(world);
}

fn run(world: &Rc<World>, work: impl FnOnce()) {
    let ended = world.process(Vec::new(), false, work);
    assert_eq!(ended, Ended::Well);
}

/// Leaves out of a plan what is not needed for it to break the same guarantee.
fn shrink(config: &Rc<Config>, plan: &mut Plan, broken: &str) {
    let kind = |why: &str| why.split([':', ' ']).next().unwrap_or_default().to_owned();
    let wanted = kind(broken);
    let breaks = |plan: &Plan| {
        let told = live(config, plan, false);
        told.broken.is_some_and(|why| kind(&why) == wanted)
    };
    let begun = Instant::now();
    let mut smaller = true;
    while smaller && begun.elapsed() < Duration::from_secs(20) {
        smaller = false;
        for index in (0..plan.entries.len()).rev() {
            let entry = plan.entries.remove(index);
            if breaks(plan) {
                smaller = true;
                continue;
            }
            plan.entries.insert(index, entry);
            for trigger in (0..plan.entries[index].triggers.len()).rev() {
                let one = plan.entries[index].triggers.remove(trigger);
                if breaks(plan) {
                    smaller = true;
                } else {
                    plan.entries[index].triggers.insert(trigger, one);
                }
            }
        }
    }
}

fn story(config: &Rc<Config>, seed: u64, broken: &str) -> String {
    let mut plan = Plan::of(seed);
    let before = plan.entries.len();
    if number("TICKPOST_SHRINK") != Some(0) {
        shrink(config, &mut plan, broken);
    }
    let told = live(config, &plan, true);
    let mut text = format!(
        "seed {seed}: {broken}\nreplay with\n  TICKPOST_SEED={seed} cargo test --test simulation replay -- --nocapture\n{} of {before} steps are enough, on a disk that is {:?}:\n",
        plan.entries.len(),
        plan.profile,
    );
    for line in told.trace {
        writeln!(text, "  {line}").unwrap();
    }
    text
}

/// A number from the environment.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
#[expect(
    clippy::print_stdout,
    reason = "the summary is for the person who runs it"
)]
fn histories() {
    let given = number("TICKPOST_SEEDS");
    let first = number("TICKPOST_FIRST_SEED").unwrap_or(0);
    let seeds = given.unwrap_or(300);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, crashes) = (AtomicU64::new(0), AtomicU64::new(0));
    let (over, found) = (AtomicBool::new(false), Mutex::new(None::<(u64, String)>));
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let config = config();
                while !over.load(Ordering::Relaxed) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= seeds {
                        break;
                    }
                    let seed = first + index;
                    let told = live(&config, &Plan::of(seed), false);
                    crashes.fetch_add(told.crashes, Ordering::Relaxed);
                    if let Some(broken) = told.broken {
                        over.store(true, Ordering::Relaxed);
                        let mut found = found.lock().unwrap();
                        if found.as_ref().is_none_or(|(known, _)| *known > seed) {
                            *found = Some((seed, broken));
                        }
                    }
                }
            });
        }
    });
    let spent = begun.elapsed();
    if let Some((seed, broken)) = found.into_inner().unwrap() {
        panic!("{}", story(&config(), seed, &broken));
    }
    let crashes = crashes.into_inner();
    let each_us = spent.as_micros() * threads as u128 / u128::from(seeds.max(1));
    println!(
        "{seeds} histories with {crashes} crashes in {:.1} s on {threads} threads: {}.{} ms each",
        spent.as_secs_f64(),
        each_us / 1000,
        each_us / 100 % 10,
    );
    assert!(crashes >= seeds, "a crash in every one");
}

/// Tells one history: `TICKPOST_SEED=17`.
#[test]
#[expect(
    clippy::print_stdout,
    reason = "the story is for the person who runs it"
)]
fn replay() {
    let Some(seed) = number("TICKPOST_SEED") else {
        return;
    };
    let told = live(&config(), &Plan::of(seed), true);
    for line in &told.trace {
        println!("{line}");
    }
    if let Some(broken) = told.broken {
        panic!("{}", story(&config(), seed, &broken));
    }
}
