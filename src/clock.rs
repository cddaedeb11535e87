//! The only reader of clocks. Everything below the engine is given the time.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::model::time::UnixMs;

/// A source of time. Tests put one in its place that they move themselves.
pub trait Clock {
    /// The wall clock. It may stand wrong, and leap.
    fn now(&self) -> UnixMs;

    /// A clock that never goes back, in milliseconds from some start.
    fn steady_ms(&self) -> u64;

    /// Which boot of the machine this is, and how long ago it was, in milliseconds, sleep
    /// included. `None` where the system does not tell.
    fn boot(&self) -> Option<(String, u64)>;
}

/// The system's clocks.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// Begins to count steady time.
    #[must_use]
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    /// A clock before 1970 reads as the epoch, which the tick's clock check reports.
    fn now(&self) -> UnixMs {
        let ms = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_millis());
        UnixMs(u64::try_from(ms).unwrap_or(u64::MAX)).plus(0)
    }

    fn steady_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn boot(&self) -> Option<(String, u64)> {
        let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let up = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(up.tv_sec).ok()?;
        let millis = u64::try_from(up.tv_nsec).ok()? / 1_000_000;
        Some((id.trim().to_owned(), seconds * 1000 + millis))
    }
}
