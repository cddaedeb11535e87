//! The contract of sending: one recorded attempt is one send, and its phase is told truthfully.

mod body;
mod command;
mod http;
mod networks;
mod phase;
mod redact;
pub mod request;
pub mod secret;
mod switch;

use std::sync::Arc;
use std::time::Duration;

use crate::config::Destination;
use crate::model::envelope::Envelope;
use crate::model::outcome::Outcome;

pub use command::CommandRunner;
pub use http::HttpTransport;
pub use switch::Switch;

/// One attempt to make.
#[derive(Clone, Debug)]
pub struct Send {
    /// The caller's name for it; comes back with the outcome.
    pub token: u64,
    /// Where to.
    pub destination: Arc<Destination>,
    /// What.
    pub envelope: Arc<Envelope>,
}

/// One attempt made.
#[derive(Clone, Debug)]
pub struct Sent {
    /// The caller's name for it.
    pub token: u64,
    /// What the wire showed.
    pub outcome: Outcome,
    /// How long it took, in milliseconds.
    pub ms: u64,
}

/// Something that sends. Sends run side by side and end in any order; disk work of the caller
/// does not slow them.
pub trait Transport {
    /// Begins an attempt. Never blocks.
    fn begin(&mut self, send: Send);

    /// Waits for the end of any attempt, at most `limit`. `None` when none ended in time.
    fn next(&mut self, limit: Duration) -> Option<Sent>;
}
