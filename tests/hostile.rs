//! Spools that somebody has spoiled: whatever lies in them, every command ends, says a clear word
//! and loses nothing, and a tick sends the good items, each once.
//!
//! What a single bad file, link or clock does is in `tests/cli_damage.rs` and
//! `tests/file_store.rs`; here are the rest, the many, and what means harm.

#![expect(clippy::unwrap_used, reason = "a test may panic")]
#![expect(clippy::print_stdout, reason = "it says how long what took")]

#[path = "support/bench.rs"]
mod bench;
mod common;
mod support;

#[path = "hostile/flips.rs"]
mod flips;
#[path = "hostile/flood.rs"]
mod flood;
#[path = "hostile/journal.rs"]
mod journal;
#[path = "hostile/places.rs"]
mod places;

use std::path::Path;

use tickpost::model::event::{Event, EventKind};
use tickpost::model::item::Item;
use tickpost::model::state::State;

/// The bytes of an item that was accepted and waits.
fn good_item(id: &str, destination: &str) -> Vec<u8> {
    let mut envelope = common::envelope(1);
    envelope.request_id = id.parse().unwrap();
    envelope.destination = destination.parse().unwrap();
    let accepted = Event::new(EventKind::Accepted, common::NOW, State::Pending);
    Item::accept(envelope, accepted).unwrap().1
}

fn make_fifo(path: &Path) {
    make_node(path, rustix::fs::FileType::Fifo);
}

fn make_node(path: &Path, kind: rustix::fs::FileType) {
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).unwrap();
}
