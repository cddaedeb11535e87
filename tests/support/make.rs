//! Destinations and items for tests below the command line. Included by `#[path]` where it is
//! needed, so that `support` itself knows nothing of tickpost.

#![allow(dead_code, reason = "every test crate uses a part of it")]
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;

use tickpost::config::{Destination, Tls};
use tickpost::model::envelope::{Body, Envelope, Request, Requester, VERSION, sha256_hex};
use tickpost::model::ids::RequestId;
use tickpost::model::key::{KeyFormat, KeyPlace, KeySpec};
use tickpost::model::policy::{Backoff, Dedupe, OnUnknown, Policy, Stale};
use tickpost::model::rules::RuleSet;
use tickpost::model::time::UnixMs;

/// A destination with a raw key in the header `Idempotency-Key`, patient timeouts and nothing
/// else.
pub(crate) fn destination(base_url: &str) -> Destination {
    Destination {
        name: "test".parse().unwrap(),
        base_url: base_url.parse().unwrap(),
        auth: None,
        headers: Vec::new(),
        key: KeySpec {
            place: KeyPlace::Header("Idempotency-Key".to_owned()),
            format: KeyFormat::Raw,
        },
        policy: Policy {
            on_unknown: OnUnknown::Resend,
            dedupe: Dedupe::Key,
            key_window_ms: None,
            total_timeout_ms: 20_000,
            backoff: Backoff {
                base_ms: 30_000,
                factor: 2.0,
                max_ms: 3_600_000,
            },
            attempts_max: 20,
            age_ms_max: 3 * 86_400_000,
            wait_ms_max: 86_400_000,
            stale_after_ms: None,
            stale: Stale::Send,
        },
        connect_timeout_ms: 10_000,
        response_timeout_ms: 10_000,
        concurrency: 8,
        rate: None,
        proxy: None,
        tls: Tls::default(),
        notice: tickpost::model::notice::Form::Json,
        command: None,
        rules: RuleSet::default_only(),
        fingerprint: String::new(),
    }
}

/// An item with a fresh id.
pub(crate) fn item(method: &str, path: &str, body: &[u8]) -> Envelope {
    Envelope {
        v: VERSION,
        request_id: RequestId(uuid::Uuid::now_v7()),
        destination: "test".parse().unwrap(),
        enqueued_at: UnixMs(0),
        request: Request {
            method: method.to_owned(),
            path: path.to_owned(),
            query: Vec::new(),
            headers: Vec::new(),
            content_type: None,
            body: (!body.is_empty()).then(|| Body::from_bytes(body.to_vec())),
            body_sha256: sha256_hex(body),
        },
        requester: Requester::default(),
        notify: Vec::new(),
        labels: BTreeMap::new(),
        key: None,
        retry_of: None,
        not_before: None,
        not_after: None,
        notice: false,
    }
}
