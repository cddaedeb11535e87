//! tickpost: sendmail for HTTP APIs. A request is accepted durably, and sent by a tick until the
//! receiver confirms it, refuses it, or a person is needed.
//!
//! # The code in five minutes
//!
//! Read [`model::state`], [`model::classify`], [`engine`], [`store`], in this order. The format on
//! disk is `spool/README.md`, and how to test is `tests/README.md`.
//!
//! One crate. The program is a shell around this library. A module uses itself and those below it;
//! siblings do not know each other. `tests/house.rs` keeps this.
//!
//! ```text
//! main                             -> cli
//! cli                              -> everything below; the only one that prints
//! spool                            -> intake, store, config, clock, users, model
//! engine                           -> intake, store, transport, config, clock, users, model
//! intake                           -> store, transport, config, entropy, model
//! view                             -> store, config, model
//! store        transport           -> config, model
//! clock  entropy  users    config  -> model
//! model                            -> nothing of ours: no I/O, clock, randomness, async, log
//! ```
//!
//! | module | owns |
//! |---|---|
//! | [`cli`] | the commands: arguments, output, exit codes and hints |
//! | [`intake`] | what every way in has in common: a draft is checked and offered to the store |
//! | [`spool`] | enqueueing from a Rust program: [`Spool`] |
//! | [`engine`] | one tick: recover, take in, take what is due, claim, send, classify, settle; suspension, rates, notices |
//! | [`view`] | what `status`, `list` and `show` tell: pictures of a store |
//! | [`store`] | the contract of storage, and the spool on disk; [`store::disk`] is the only writer there |
//! | [`transport`] | sending over HTTP, authentication, how far a failed attempt got; giving notices to a program |
//! | [`config`] | the configuration as checked values, every fault with its line |
//! | [`clock`], [`entropy`], [`users`] | the only wall clock; the only randomness; names of users |
//! | [`model`] | items, events, states, rules, schedules: pure, with `now` as an argument |
//!
//! **The order of writes** is why tickpost exists. 1. The claim is durable, and the item is moved
//! to unknown, before the first byte leaves. 2. It is sent. 3. The settle is durable, and the item
//! is moved to where it says. A crash before 1 leaves it pending, and nothing was sent. A crash
//! between 1 and 3 leaves it unknown, and nothing is guessed.
//!
//! # Guarantees
//!
//! 1. **Accept.** What `enqueue` accepted survives loss of power.
//! 2. **Conservation.** From then on an item is in exactly one place. Nothing loses it.
//! 3. **Intent first.** No byte of a request leaves before its claim is durable.
//! 4. **Identity.** Every attempt of an item carries the same id and the same body.
//! 5. **Positive confirmation.** Only an answer that a rule knows as success, or a person, confirms.
//! 6. **No guessing.** Once the receiver may have acted on an item, it stays unknown until a
//!    success, a rule that tests for this, or a person settles it.
//! 7. **No blind repeat.** Such an item is sent again only while the receiver certainly drops
//!    repeats of it. Otherwise it is parked for a person.
//! 8. **Nothing silent.** Every move to held, failed or parked, and every file set aside, is told.
//! 9. **Isolation.** A bad item costs one item. A dead or slow destination costs the others nothing.
//! 10. **Query.** Every id ever printed can be asked for.
//! 11. **Bounded.** A tick is bounded in time and memory, whatever waits.
//! 12. **Secrets.** Items, logs and errors never hold one.
//!
//! Outside the promise: two spools that feed one destination share no rate, order or keys; and a
//! snapshot that is restored and started again sends again what it holds as pending.

pub mod cli;
pub mod clock;
pub mod config;
pub mod engine;
pub mod entropy;
pub mod intake;
pub mod model;
pub mod spool;
pub mod store;
pub mod transport;
pub mod users;
pub mod view;

pub use model::draft::Draft;
pub use model::ids::RequestId;
pub use spool::{Spool, SpoolError};
