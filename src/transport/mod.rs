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

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex};
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
    /// The body, if it lies in a file of its own.
    pub body: Option<Streamed>,
}

/// A body that is read while it is sent: only what is on its way is in memory.
#[derive(Clone)]
pub struct Streamed(Arc<Mutex<io::Result<Reader>>>);

/// Where a body is read from. Once: a second send of it would be another attempt.
type Reader = Box<dyn io::Read + std::marker::Send>;

impl Streamed {
    /// Wraps a body file that was opened, or why it could not be.
    #[must_use]
    pub fn new(file: io::Result<Box<dyn io::Read + std::marker::Send>>) -> Self {
        Self(Arc::new(Mutex::new(file)))
    }

    /// The file, once.
    fn take(&self) -> io::Result<Reader> {
        let gone = || io::Error::other("the body was read already");
        match self.0.lock() {
            Ok(mut file) => std::mem::replace(&mut *file, Err(gone())),
            Err(_) => Err(gone()),
        }
    }
}

impl fmt::Debug for Streamed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Streamed")
    }
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
