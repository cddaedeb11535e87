//! How real receivers answer, judged by the default table alone; and what holds for any answer.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::Deserialize;
use tickpost::model::classify::{Action, Exchange, Verdict, classify};
use tickpost::model::event::Scope;
use tickpost::model::outcome::{Answer, Outcome, TransportClass};
use tickpost::model::rules::RuleSet;
use tickpost::model::state::State;
use tickpost::model::time::UnixMs;

#[derive(Deserialize)]
struct Case {
    id: String,
    method: String,
    status: Option<u16>,
    transport: Option<String>,
    headers: BTreeMap<String, String>,
    body: String,
    key_sent: bool,
    prior_unknown: bool,
    now: u64,
    expected_state: State,
    expected_reason: String,
    raw_reason: Option<String>,
    retry_after_s: Option<u64>,
    scope: Scope,
    action: Option<String>,
}

impl Case {
    fn outcome(&self) -> Outcome {
        let Some(status) = self.status else {
            let class = TransportClass::parse(self.transport.as_deref().unwrap()).unwrap();
            return Outcome::failed(class, "");
        };
        let headers = self.headers.iter();
        Outcome::Answered(Answer {
            status,
            headers: headers
                .map(|(name, value)| (name.to_lowercase(), value.clone()))
                .collect(),
            body: self.body.clone().into_bytes(),
            cut: self.transport.as_deref() == Some("truncated_body"),
        })
    }

    /// What differs from what is expected, in words; empty if all is well.
    fn differences(&self, got: &Verdict) -> Vec<String> {
        let pairs = [
            (
                "state",
                self.expected_state.to_string(),
                got.state.to_string(),
            ),
            (
                "reason",
                self.expected_reason.clone(),
                got.reason.to_string(),
            ),
            (
                "wait",
                format!("{:?}", self.retry_after_s.map(|s| s * 1_000)),
                format!("{:?}", got.wait_ms),
            ),
            (
                "scope",
                format!("{:?}", self.scope),
                format!("{:?}", got.scope),
            ),
            (
                "action",
                format!("{:?}", self.action.as_deref()),
                format!("{:?}", got.action.map(Action::as_str)),
            ),
        ];
        let mut out = Vec::new();
        for (what, want, got) in pairs {
            if want != got {
                out.push(format!("{what}: want {want}, got {got}"));
            }
        }
        // The default table may show more of the receiver's words than a case names, never others.
        if self.raw_reason.is_some() && self.raw_reason != got.raw {
            out.push(format!(
                "raw: want {:?}, got {:?}",
                self.raw_reason, got.raw
            ));
        }
        out
    }
}

#[test]
fn every_default_case() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("data/default_cases.json")).unwrap();
    assert_eq!(cases.len(), 71);
    let rules = RuleSet::default_only();
    let mut report = Vec::new();
    for case in &cases {
        let outcome = case.outcome();
        let verdict = classify(
            &rules,
            &Exchange {
                outcome: &outcome,
                method: &case.method,
                prior_maybe: case.prior_unknown,
                key_sent: case.key_sent,
                at: UnixMs(case.now * 1_000),
            },
        );
        for difference in case.differences(&verdict) {
            report.push(format!("{} by {}: {difference}", case.id, verdict.rule));
        }
    }
    assert!(report.is_empty(), "{report:#?}");
}

#[test]
fn only_a_2xx_is_confirmed() {
    for status in 0..=1_000 {
        let outcome = Outcome::Answered(Answer {
            status,
            headers: vec![("idempotent-replayed".to_owned(), "true".to_owned())],
            body: br#"{"ok":true}"#.to_vec(),
            cut: false,
        });
        let exchange = Exchange {
            outcome: &outcome,
            method: "PUT",
            prior_maybe: true,
            key_sent: true,
            at: UnixMs(0),
        };
        let verdict = classify(&RuleSet::default_only(), &exchange);
        let success = (200..300).contains(&status);
        assert_eq!(verdict.state == State::Confirmed, success, "{status}");
    }
}

fn header() -> impl Strategy<Value = (String, String)> {
    let name = prop_oneof![
        Just("retry-after".to_owned()),
        Just("ratelimit".to_owned()),
        Just("date".to_owned()),
        Just("idempotent-replayed".to_owned()),
        Just("x-ratelimit-remaining".to_owned()),
        "[a-z-]{1,12}",
    ];
    let value = prop_oneof![
        Just("true".to_owned()),
        Just("0".to_owned()),
        Just("Thu, 01 Jan 2026 00:02:00 GMT".to_owned()),
        Just("\"d\";r=0;t=9".to_owned()),
        "[0-9]{0,40}(\\.[0-9]{0,5})?",
        "\\PC{0,40}",
    ];
    (name, value)
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..200),
        "\\PC{0,200}".prop_map(String::into_bytes),
        "\\{\"(ok|success|status|error|errors)\":(true|false|0|1|null|\"error\"|\\[\\]|\\[1\\]|\\{\\})\\}"
            .prop_map(String::into_bytes),
        "(token|daily|quota|limit|throttled|idempotency-key|expired| ){0,20}"
            .prop_map(String::into_bytes),
    ]
}

proptest! {
    #[test]
    fn no_answer_is_too_strange(
        status in prop_oneof![0_u16..1_000, any::<u16>()],
        headers in proptest::collection::vec(header(), 0..6),
        body in body(),
        cut: bool,
        prior_maybe: bool,
        key_sent: bool,
        at: u64,
    ) {
        let outcome = Outcome::Answered(Answer { status, headers, body, cut });
        let rules = RuleSet::default_only();
        let exchange = Exchange {
            outcome: &outcome,
            method: "POST",
            prior_maybe,
            key_sent,
            at: UnixMs(at),
        };
        let verdict = classify(&rules, &exchange);
        if !(200..300).contains(&status) {
            prop_assert_ne!(verdict.state, State::Confirmed);
        }
        prop_assert_eq!(verdict.wait_ms.unwrap_or(0) % 1_000, 0, "whole seconds");
    }

    #[test]
    fn what_may_have_been_sent_is_unknown(prior_maybe: bool, key_sent: bool) {
        for class in TransportClass::ALL.iter().copied() {
            let outcome = Outcome::failed(class, "");
            let exchange = Exchange {
                outcome: &outcome,
                method: "POST",
                prior_maybe,
                key_sent,
                at: UnixMs(0),
            };
            let verdict = classify(&RuleSet::default_only(), &exchange);
            prop_assert_eq!(verdict.state == State::Unknown, !class.is_not_sent());
            prop_assert_eq!(verdict.rule, "default/transport", "every class has its row");
        }
    }
}
