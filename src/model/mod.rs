//! What an item is and what may become of it: pure, no I/O, no clock, no randomness.
//!
//! Start at [`state`] (the five states and every legal move), then [`event`] (an item's history
//! and the fold that gives its standing), then `classify` (an answer and a history → a verdict).

pub mod body;
pub mod classify;
pub mod draft;
pub mod envelope;
pub mod event;
pub mod fault;
pub mod ids;
pub mod item;
pub mod key;
pub mod ledger;
pub mod notice;
pub mod outcome;
pub mod policy;
pub mod reason;
pub mod retry_after;
pub mod rules;
pub mod saved;
pub mod schedule;
pub mod settle;
pub mod state;
pub mod time;
pub mod tombstone;
