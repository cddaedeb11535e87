//! The only source of randomness: new ids, and jitter.

use uuid::Uuid;

use crate::model::ids::RequestId;

/// A new request id: a UUID of version 7 (RFC 9562, 5.7), so that ids sort by time.
#[must_use]
pub fn request_id() -> RequestId {
    RequestId(Uuid::now_v7())
}

/// An even draw from 0 to 1000.
#[must_use]
pub fn jitter() -> u16 {
    // The last 62 bits of a version 7 UUID are random.
    u16::try_from(Uuid::now_v7().as_u128() % (1 << 61) % 1001).unwrap_or(0)
}
