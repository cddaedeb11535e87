//! What a receiver answers: any response is read or refused, judged, and settled, and neither the
//! verdict nor the event breaks a guarantee.

use std::sync::OnceLock;

use serde_json::Value;
use tickpost::model::classify::{Exchange, Verdict, classify};
use tickpost::model::event::{Event, Scope};
use tickpost::model::item::Standing;
use tickpost::model::outcome::{Answer, Outcome, TransportClass};
use tickpost::model::policy::{Backoff, Dedupe, OnUnknown, Policy, Stale};
use tickpost::model::reason::Reason;
use tickpost::model::retry_after::WaitForm;
use tickpost::model::rules::{RuleLine, RuleSet};
use tickpost::model::saved;
use tickpost::model::settle::{self, Settling};
use tickpost::model::state::State;
use tickpost::model::time::UnixMs;

use super::Target;

/// See [`check`].
pub const TARGET: Target = Target {
    name: "response",
    check,
    seeds,
};

const NOW: UnixMs = UnixMs(1_795_966_830_000);

/// Responses as `curl -i` prints them.
pub(super) const SAVED: [&str; 6] = [
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Id: 7\r\n\r\n{\"id\":\"ch_1\",\"ok\":true}",
    "HTTP/2 429 \r\nretry-after: 20\r\nratelimit: \"d\";r=0;t=30\r\ndate: Thu, 01 Jan 2026 00:01:00 GMT\r\n\r\n{\"w\":1.5}",
    "HTTP/1.1 402 Payment Required\nX-A: 1\nX-B: 1\n\n{\"error\":{\"inner\":{\"code\":\"bad\"},\"code\":\"a\"}}",
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 Slow\r\nRetry-After: Thu, 01 Jan 2026 00:02:00 GMT\r\n\r\nTry again in 6 minutes. Daily limit reached",
    "HTTP/1.0 409 Conflict\nContent-Length: 40\nX: a\n  b\n\n{\"a\":[{\"a\":[1]}]}",
    "HTTP/1.1 400 Bad\r\ntransfer-encoding: chunked\r\nidempotent-replayed: true\r\n\r\n{\"error\":\"invalid_token\"}",
];

/// Holds for any bytes.
///
/// # Panics
///
/// If it does not.
pub fn check(bytes: &[u8]) {
    static LINES: OnceLock<Vec<RuleLine>> = OnceLock::new();
    let answer = match saved::parse(bytes) {
        Ok(answer) => answer,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    assert!(answer.body.len() <= saved::BODY_BYTES_MAX);
    if !answer.cut {
        let again = saved::parse(&written(&answer));
        assert_eq!(
            again.as_ref(),
            Ok(&answer),
            "written out, it is read as the same"
        );
    }
    for (_, value) in &answer.headers {
        for form in WaitForm::ALL {
            // Whatever is asked, in whole seconds.
            let wait = form.read(value, NOW);
            assert_eq!(wait.unwrap_or(0) % 1_000, 0, "{form:?} {value:?}");
        }
    }
    let rules = RuleSet::default_only();
    let lines = LINES.get_or_init(|| rules.describe());
    for verdict in judged(&rules, lines, &answer, false) {
        let success = (200..300).contains(&answer.status);
        assert!(success || verdict.state != State::Confirmed, "guarantee G5");
    }
}

fn written(answer: &Answer) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {}\r\n", answer.status).into_bytes();
    for (name, value) in &answer.headers {
        text.extend(format!("{name}: {value}\r\n").as_bytes());
    }
    text.extend(b"\r\n");
    text.extend(&answer.body);
    text
}

/// The verdicts on an answer, whatever came before, each settled in many ways; and those on each
/// failure, if `failures`: they depend on the rules only.
///
/// # Panics
///
/// If one of them, or an event, breaks a guarantee.
pub(super) fn judged(
    rules: &RuleSet,
    lines: &[RuleLine],
    answer: &Answer,
    failures: bool,
) -> Vec<Verdict> {
    let cut = Answer {
        cut: true,
        ..answer.clone()
    };
    let mut outcomes = vec![Outcome::Answered(answer.clone()), Outcome::Answered(cut)];
    if failures {
        outcomes.push(Outcome::Interrupted);
        let classes = TransportClass::ALL.iter();
        outcomes.extend(classes.map(|class| Outcome::failed(*class, "it broke")));
    }
    let mut of_answers = Vec::new();
    for outcome in &outcomes {
        for (prior_maybe, key_sent) in [(false, false), (false, true), (true, false), (true, true)]
        {
            let exchange = Exchange {
                outcome,
                method: "POST",
                prior_maybe,
                key_sent,
                at: NOW,
            };
            let verdict = classify(rules, &exchange);
            let known = lines.iter().any(|line| {
                line.rule == verdict.rule
                    && line.state == verdict.state
                    && line.reason == verdict.reason
            });
            assert!(known, "{verdict:?} is described");
            assert_eq!(verdict.wait_ms.unwrap_or(0) % 1_000, 0);
            for word in [&verdict.raw, &verdict.receipt].into_iter().flatten() {
                assert!((1..=512).contains(&word.len()));
            }
            let answered = matches!(outcome, Outcome::Answered(_));
            if answered {
                of_answers.push(verdict.clone());
            } else {
                assert_ne!(verdict.state, State::Confirmed, "guarantee G5");
            }
            if matches!(outcome, Outcome::MaybeSent(_)) {
                let owners_word = verdict.rule.starts_with("default/");
                let certain = match verdict.state {
                    State::Pending => owners_word,
                    State::Failed => verdict.tests_prior && prior_maybe,
                    State::Held => verdict.maybe_acted,
                    State::Unknown | State::Confirmed => true,
                };
                assert!(certain, "guarantee G6: {verdict:?}");
            }
            settled(&verdict, outcome, prior_maybe);
        }
    }
    of_answers
}

/// What the event of an attempt may say, by guarantees G6 and G7.
fn settled(verdict: &Verdict, outcome: &Outcome, prior_maybe: bool) {
    let policy = Policy {
        on_unknown: OnUnknown::Resend,
        dedupe: Dedupe::Key,
        key_window_ms: Some(86_400_000),
        total_timeout_ms: 65_000,
        backoff: Backoff {
            base_ms: 30_000,
            factor: 2.0,
            max_ms: 3_600_000,
        },
        attempts_max: 20,
        age_ms_max: 259_200_000,
        wait_ms_max: 86_400_000,
        stale_after_ms: None,
        stale: Stale::Send,
    };
    let park = Policy {
        on_unknown: OnUnknown::Park,
        ..policy.clone()
    };
    let last = Policy {
        attempts_max: 1,
        ..policy.clone()
    };
    let begun = NOW.minus(600_000);
    let before = Standing {
        state: if prior_maybe {
            State::Unknown
        } else {
            State::Pending
        },
        reason: None,
        due: Some(NOW),
        parked: false,
        maybe_acted: prior_maybe,
        attempts: u32::from(prior_maybe),
        last_n: u32::from(prior_maybe),
        counting_since: begun,
        aging_since: prior_maybe.then_some(begun),
        first_sent_at: prior_maybe.then_some(begun),
        maybe_since: prior_maybe.then_some(begun),
        updated_at: begun,
        receipt: None,
    };
    for policy in [&policy, &park, &last] {
        for clock_suspect in [false, true] {
            let event = settle::attempt(
                policy,
                verdict,
                outcome,
                &Settling {
                    before: &before,
                    method: "POST",
                    n: before.last_n + 1,
                    claimed_at: NOW.minus(31),
                    at: NOW,
                    ms: 31,
                    suspended_ms: 0,
                    not_after: None,
                    clock_suspect,
                    jitter: 500,
                },
            );
            may_say(policy, verdict, &event, prior_maybe, clock_suspect);
        }
    }
}

fn may_say(policy: &Policy, verdict: &Verdict, event: &Event, prior_maybe: bool, suspect: bool) {
    let settles = verdict.state == State::Confirmed
        || (verdict.tests_prior && prior_maybe && verdict.state == State::Failed);
    let maybe = prior_maybe || verdict.state == State::Unknown || verdict.maybe_acted;
    assert_eq!(
        event.state == State::Unknown,
        maybe && !settles,
        "guarantee G6"
    );
    if let Some(due) = event.due {
        assert!(due >= event.at, "nothing is due before now");
        assert!(!event.state.is_terminal());
        if event.state == State::Unknown {
            assert!(policy.may_repeat("POST") && !suspect, "guarantee G7");
            let first = NOW.minus(if prior_maybe { 600_000 } else { 31 }).0;
            assert!(
                due.0 + policy.total_timeout_ms < first + 86_400_000,
                "guarantee G7"
            );
        }
    } else {
        assert_ne!(event.state, State::Pending, "a pending item has a time");
    }
    assert_eq!(
        event.state == State::Confirmed,
        verdict.state == State::Confirmed
    );
    if event.state == State::Failed {
        let refused = verdict.state == State::Failed;
        assert!(refused || event.reason == Some(Reason::EXHAUSTED));
    }
    assert!(
        event.scope != Some(Scope::Item),
        "said only where it is another"
    );
    let json = serde_json::to_string(event).unwrap();
    assert_eq!(serde_json::from_str::<Event>(&json).unwrap(), *event);
}

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = SAVED.iter().map(|text| text.as_bytes().to_vec()).collect();
    let cases: Vec<Value> =
        serde_json::from_str(include_str!("../../tests/data/default_cases.json")).unwrap();
    for case in cases {
        let Some(status) = case["status"].as_u64() else {
            continue;
        };
        let mut text = format!("HTTP/1.1 {status}\r\n").into_bytes();
        for (name, value) in case["headers"].as_object().unwrap() {
            text.extend(format!("{name}: {}\r\n", value.as_str().unwrap()).as_bytes());
        }
        text.extend(b"\r\n");
        text.extend(case["body"].as_str().unwrap().as_bytes());
        seeds.push(text);
    }
    for value in [
        "120",
        "1.5",
        "Thursday, 01-Jan-26 00:02:00 GMT",
        "1767225630000",
        "1h30m",
        "24-hour",
        "\"a,b;r=9\";r=0;t=3, \"d\";r=0;t=600",
    ] {
        seeds.push(format!("HTTP/1.1 429\nretry-after: {value}\n\n").into_bytes());
    }
    seeds
}
