//! Which network thread a destination's attempts run on.

use std::collections::HashMap;
use std::io;

use crate::model::ids::DestName;

/// So many network threads at most: each takes three descriptors.
const NETWORKS_MAX: usize = 16;

/// So many descriptors are left to connections and to the caller's files before there is a second
/// network thread.
const DESCRIPTORS_KEPT: u64 = 64;

/// How many network threads the limit on descriptors allows.
fn networks_max() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile)
        .current
        .unwrap_or(u64::MAX);
    let spare = limit.saturating_sub(DESCRIPTORS_KEPT) / 8;
    usize::try_from(spare).map_or(NETWORKS_MAX, |spare| spare.clamp(1, NETWORKS_MAX))
}

/// The ways to the network threads; none before the first send.
#[derive(Debug)]
pub(super) struct Networks<W> {
    ways: Vec<W>,
    /// Which of them each destination in use has.
    lanes: HashMap<DestName, usize>,
}

impl<W> Default for Networks<W> {
    fn default() -> Self {
        Self {
            ways: Vec::new(),
            lanes: HashMap::new(),
        }
    }
}

impl<W> Networks<W> {
    /// The way to a destination's network thread. It has its own if there can be one more, which
    /// `start` starts.
    pub(super) fn of(
        &mut self,
        destination: &DestName,
        start: impl FnOnce() -> io::Result<W>,
    ) -> io::Result<&W> {
        let lane = if let Some(lane) = self.lanes.get(destination) {
            *lane
        } else {
            let own = (self.ways.len() < networks_max()).then(start);
            let lane = match own {
                Some(Ok(network)) => {
                    self.ways.push(network);
                    self.ways.len() - 1
                }
                Some(Err(error)) if self.ways.is_empty() => return Err(error),
                // Sharing one is better than none.
                Some(Err(_)) | None => self.lanes.len() % self.ways.len(),
            };
            self.lanes.insert(destination.clone(), lane);
            lane
        };
        Ok(&self.ways[lane])
    }
}
