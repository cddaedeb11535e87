//! The only reader of the wall clock.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::model::time::UnixMs;

/// The time now. A clock before 1970 reads as the epoch, which the tick's clock check reports.
#[must_use]
pub fn now() -> UnixMs {
    let ms = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis());
    UnixMs(u64::try_from(ms).unwrap_or(u64::MAX)).plus(0)
}
