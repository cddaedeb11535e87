//! To each destination its own way: requests over the network, notices to the command.

use std::path::PathBuf;
use std::time::Duration;

use super::command::CommandRunner;
use super::http::HttpTransport;
use super::{Send, Sent, Transport};
use crate::config::Config;

/// While both have something under way, the command's end is looked for this often. The network's
/// answers are not waited for any longer by it.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Sends over HTTP, and gives notices to the command. Costs nothing before the first send.
#[derive(Debug)]
pub struct Switch {
    http: HttpTransport,
    command: CommandRunner,
    /// Under way over the network.
    sending: usize,
    /// Under way at the command.
    running: usize,
}

impl Switch {
    /// A transport that has not started anything. `spool` is the whole path of the spool.
    #[must_use]
    pub fn new(config: &Config, spool: PathBuf) -> Self {
        Self {
            http: HttpTransport::new(),
            command: CommandRunner::new(config, spool),
            sending: 0,
            running: 0,
        }
    }

    fn of_http(&mut self, limit: Duration) -> Option<Sent> {
        let sent = self.http.next(limit)?;
        self.sending = self.sending.saturating_sub(1);
        Some(sent)
    }

    fn of_command(&mut self, limit: Duration) -> Option<Sent> {
        let sent = self.command.next(limit)?;
        self.running = self.running.saturating_sub(1);
        Some(sent)
    }
}

impl Transport for Switch {
    fn begin(&mut self, send: Send) {
        if send.destination.command.is_some() {
            self.running += 1;
            self.command.begin(send);
        } else {
            self.sending += 1;
            self.http.begin(send);
        }
    }

    fn next(&mut self, limit: Duration) -> Option<Sent> {
        if self.running == 0 {
            return self.of_http(limit);
        }
        if self.sending == 0 {
            return self.of_command(limit);
        }
        let mut left = limit;
        loop {
            let piece = left.min(LOOK_EVERY);
            if let Some(sent) = self
                .of_command(Duration::ZERO)
                .or_else(|| self.of_http(piece))
            {
                return Some(sent);
            }
            left = left.saturating_sub(piece);
            if left.is_zero() {
                return None;
            }
        }
    }
}
