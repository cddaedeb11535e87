//! The language from its text to a verdict, each lint, and the default table's expressions.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use super::*;
use crate::model::classify::{Exchange, classify};
use crate::model::outcome::{Answer, TransportClass};
use crate::model::time::UnixMs;

/// 2026-01-01T00:00:00Z.
const NOW: UnixMs = UnixMs(1_767_225_600_000);

fn answer(status: u16, headers: &[(&str, &str)], body: &str) -> Outcome {
    Outcome::Answered(Answer {
        status,
        headers: headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        body: body.as_bytes().to_vec(),
        cut: false,
    })
}

fn cut(status: u16, body: &str) -> Outcome {
    Outcome::Answered(Answer {
        status,
        headers: Vec::new(),
        body: body.as_bytes().to_vec(),
        cut: true,
    })
}

fn failed(class: &str) -> Outcome {
    Outcome::failed(TransportClass::parse(class).unwrap(), "")
}

fn set(origin: &str, text: &str) -> RuleSet {
    let table = DeTable::parse(text).unwrap();
    let (rules, faults) = RuleSet::from_table(origin, table.get_ref());
    assert_eq!(faults, [], "{text}");
    rules
}

fn exchange(outcome: &Outcome) -> Exchange<'_> {
    Exchange {
        outcome,
        method: "POST",
        prior_maybe: false,
        key_sent: false,
        at: NOW,
    }
}

fn judge(rules: &RuleSet, outcome: &Outcome) -> Verdict {
    classify(rules, &exchange(outcome))
}

/// A set of one rule that holds with the reason `x_it`, under a condition.
fn rule(when: &str) -> RuleSet {
    set(
        "destination:d",
        &format!("[[rule]]\nstate = 'held'\nreason = 'x_it'\nwhen = {{ {when} }}\n"),
    )
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn each_condition() {
    let json = r#"{"ok":false,"n":1,"list":[{"code":"A"},{"code":7}],"msg":"Secondary limit"}"#;
    let with = |status| {
        answer(
            status,
            &[("x-left", "0"), ("x-two", "a"), ("x-two", "b")],
            json,
        )
    };
    let rows = [
        ("", with(200), true, "any answer"),
        ("", failed("dns_failure"), false, "but no failure"),
        ("", Outcome::Interrupted, false, "nor an interruption"),
        ("status = 429", with(429), true, "one status"),
        ("status = [429, '5xx']", with(503), true, "a class"),
        (
            "status = ['400-403']",
            with(403),
            true,
            "a span, its end included",
        ),
        ("status = ['400-403']", with(404), false, "a span"),
        ("status = []", with(200), false, "one of none"),
        (
            "transport = ['dns_failure']",
            failed("dns_failure"),
            true,
            "",
        ),
        (
            "transport = ['dns_failure']",
            failed("local_error"),
            false,
            "",
        ),
        ("transport = ['dns_failure']", with(200), false, ""),
        ("transport = 'truncated_body'", cut(200, ""), true, ""),
        ("transport = 'truncated_body'", with(200), false, "whole"),
        (
            "transport = 'timeout_after_send'",
            failed("timeout_after_send"),
            true,
            "",
        ),
        (
            "transport = 'timeout_after_send'",
            Outcome::Interrupted,
            false,
            "",
        ),
        (
            "header = { X-Left = '0' }",
            with(200),
            true,
            "names have no case",
        ),
        ("header = { x-left = '1' }", with(200), false, ""),
        ("header = { x-two = 'b' }", with(200), true, "any line"),
        (
            "header = { x-two = ['c', 'b'] }",
            with(200),
            true,
            "any of a list",
        ),
        (
            "header = { x-none = { exists = false } }",
            with(200),
            true,
            "",
        ),
        (
            "header = { x-left = { exists = true } }",
            with(200),
            true,
            "",
        ),
        ("header = { x-left = { gt = 0 } }", with(200), false, ""),
        (
            "header = { x-left = '0', x-two = 'c' }",
            with(200),
            false,
            "all of them",
        ),
        (
            "header = { x-none = { exists = false } }",
            failed("dns_failure"),
            false,
            "no answer",
        ),
        ("json = { '/ok' = false }", with(200), true, ""),
        ("json = { '/ok' = 'false' }", with(200), false, "typed"),
        ("json = { '/n' = 1.0 }", with(200), true, "numbers by value"),
        (
            "json = { '/n' = { gt = 0, not = 2 } }",
            with(200),
            true,
            "all of one value",
        ),
        (
            "json = { '/list/*/code' = ['B', 7] }",
            with(200),
            true,
            "existential",
        ),
        ("json = { '/**/code' = 'A' }", with(200), true, "any depth"),
        (
            "json = { '/msg' = { regex = '(?i)^secondary' } }",
            with(200),
            true,
            "",
        ),
        (
            "json = { '/none' = { exists = false } }",
            with(200),
            true,
            "",
        ),
        (
            "json = { '/none' = { not = 'a' } }",
            with(200),
            false,
            "absent is not another",
        ),
        (
            "json = { '/none' = { exists = false } }",
            answer(200, &[], "<p>"),
            false,
            "no JSON",
        ),
        (
            "json = { '/ok' = false }",
            cut(200, json),
            false,
            "never a cut body",
        ),
        (
            "json = { '/a' = 'x' }",
            answer(200, &[], "\u{feff}{\"a\":\"x\"}"),
            true,
            "a BOM",
        ),
        ("text = 'Second.ry'", with(200), true, ""),
        (
            "text = ['no', 'yes|limit']",
            with(200),
            true,
            "any of a list",
        ),
        (
            "text = '^$'",
            answer(200, &[], ""),
            true,
            "an empty body is a text",
        ),
        ("text = 'Second'", cut(200, json), false, "never a cut body"),
        ("prior = 'none'", with(200), true, ""),
        ("prior = 'maybe'", with(200), false, ""),
        ("key_sent = false", with(200), true, ""),
        ("key_sent = true", with(200), false, ""),
        ("method = ['PUT', 'POST']", with(200), true, ""),
        ("method = 'PUT'", with(200), false, ""),
        (
            "status = 200, method = 'PUT'",
            with(200),
            false,
            "all of them",
        ),
    ];
    for (when, outcome, want, why) in rows {
        let verdict = judge(&rule(when), &outcome);
        assert_eq!(verdict.reason.as_str() == "x_it", want, "{when}: {why}");
    }
}

#[test]
fn the_history_and_the_key_are_seen() {
    let outcome = answer(403, &[], "");
    let seen = Exchange {
        prior_maybe: true,
        key_sent: true,
        ..exchange(&outcome)
    };
    let verdict = classify(&rule("prior = 'maybe', key_sent = true"), &seen);
    assert_eq!(verdict.reason.as_str(), "x_it");
    assert!(verdict.tests_prior);
    assert!(!classify(&rule("key_sent = true"), &seen).tests_prior);
}

#[test]
fn text_that_is_not_utf8_is_repaired() {
    let outcome = Outcome::Answered(Answer {
        status: 200,
        body: b"{\"ok\":false,\"msg\":\"caf\xe9\"}".to_vec(),
        ..Answer::default()
    });
    for when in ["json = { '/ok' = false }", "text = 'caf'"] {
        assert_eq!(judge(&rule(when), &outcome).reason.as_str(), "x_it");
    }
}

#[test]
fn each_way_to_name_a_wait() {
    let headers = [
        ("retry-after", "5"),
        ("ratelimit", "\"d\";r=0;t=30"),
        ("x-reset", "1767225660"),
        ("bad", "soon"),
    ];
    let body = r#"{"retry_after":1.5,"d":["34.2s","2s"],"m":"try again in 6 minutes."}"#;
    let rows = [
        (
            "",
            Some(5),
            "the standard headers, in which Retry-After wins",
        ),
        ("retry = []", None, "turned off"),
        (
            "retry = [{ header = 'RateLimit', as = 'ratelimit_t' }]",
            Some(30),
            "",
        ),
        (
            "retry = { header = 'x-reset', as = 'epoch_s' }",
            Some(60),
            "",
        ),
        ("retry = { header = 'x-reset', as = 'auto' }", Some(60), ""),
        ("retry = { json = '/retry_after', as = 's' }", Some(2), "up"),
        (
            "retry = { json = '/d/*', as = 'duration' }",
            Some(35),
            "the longest of several",
        ),
        ("retry = { json = '/m', as = 'unit' }", Some(360), ""),
        (
            "retry = { text = 'in (\\d+) (minute|hour)', as = 'unit' }",
            Some(360),
            "two groups",
        ),
        (
            "retry = { text = 'in (\\d+)', as = 's' }",
            Some(6),
            "one group",
        ),
        (
            "retry = { text = '\\d minutes', as = 'unit' }",
            Some(360),
            "no group",
        ),
        (
            "retry = [{ header = 'bad', as = 'http' }, { fixed = 7 }]",
            Some(7),
            "skips the bad",
        ),
        (
            "retry = [{ fixed = 7 }, { fixed = 9 }]",
            Some(7),
            "the first",
        ),
        (
            "retry_combine = 'max'\nretry = [{ fixed = 7 }, { fixed = 9 }]",
            Some(9),
            "the longest",
        ),
        ("retry = { fixed = 0.5 }", Some(1), "up"),
    ];
    for (retry, want, why) in rows {
        let text =
            format!("[[rule]]\nstate = 'pending'\nreason = 'rate_limited'\nwhen = {{}}\n{retry}\n");
        let verdict = judge(&set("d", &text), &answer(200, &headers, body));
        assert_eq!(
            verdict.wait_ms,
            want.map(|s: u64| s * 1_000),
            "{retry}: {why}"
        );
    }
}

#[test]
fn waits_follow_the_state_and_the_receivers_clock() {
    let headers = [("retry-after", "5")];
    for (state, want) in [("unknown", Some(5_000)), ("held", None), ("failed", None)] {
        let text = format!("[[rule]]\nstate = '{state}'\nreason = 'transient'\nwhen = {{}}\n");
        let verdict = judge(&set("d", &text), &answer(500, &headers, ""));
        assert_eq!(verdict.wait_ms, want, "{state}");
    }
    let held = "[[rule]]\nstate = 'held'\nreason = 'quota_exhausted'\nwhen = {}\n\
                retry = { header = 'retry-after', as = 'http' }\n";
    let verdict = judge(&set("d", held), &answer(500, &headers, ""));
    assert_eq!(verdict.wait_ms, Some(5_000), "a hold that releases itself");

    let dated = [
        ("date", "Thu, 01 Jan 2026 00:01:00 GMT"),
        ("retry-after", "Thu, 01 Jan 2026 00:02:00 GMT"),
    ];
    let verdict = judge(&RuleSet::default_only(), &answer(429, &dated, ""));
    assert_eq!(
        verdict.wait_ms,
        Some(60_000),
        "its clock is a minute ahead of ours"
    );
}

#[test]
fn words_of_the_receiver_are_kept() {
    let body = r#"{"id":"ch_1","error":{"code":"card_declined"},"n":42}"#;
    let rules = set(
        "destination:d",
        "[[rule]]\nname = 'ok'\nstate = 'confirmed'\nreason = 'accepted'\n\
         receipt = [{ header = 'x-id' }, { json = '/id' }]\nraw = { json = '/n' }\n\
         when = { status = '2xx' }\n",
    );
    let verdict = judge(&rules, &answer(200, &[], body));
    assert_eq!(verdict.rule, "destination:d/ok");
    assert_eq!(verdict.receipt.as_deref(), Some("ch_1"));
    assert_eq!(verdict.raw.as_deref(), Some("42"));
    let verdict = judge(&rules, &answer(402, &[], body));
    assert_eq!(
        verdict.raw.as_deref(),
        Some("card_declined"),
        "by the default table"
    );
    let long = format!(r#"{{"id":"{}"}}"#, "é".repeat(1_000));
    let verdict = judge(&rules, &answer(200, &[], &long));
    assert_eq!(verdict.receipt.unwrap().len(), 512, "bounded");
    let odd = format!(r#"{{"id":"a{}"}}"#, "é".repeat(1_000));
    let verdict = judge(&rules, &answer(200, &[], &odd));
    assert_eq!(verdict.receipt.unwrap().len(), 511, "and no half character");
}

#[test]
fn layers_are_tried_in_order() {
    let own = set(
        "destination:d",
        "[[rule]]\nstate = 'held'\nreason = 'x_own'\nscope = 'group'\naction = 'refresh_auth'\n\
         when = { status = 400 }\n",
    );
    let profile = set(
        "profile:p",
        "success = 'require'\nstrict_503 = true\n\
         [[rule]]\nname = 'a'\nstate = 'held'\nreason = 'x_a'\nwhen = { status = [400, 401] }\n\
         [[rule]]\nstate = 'confirmed'\nreason = 'accepted'\nwhen = { status = 201 }\n",
    );
    let rules = own.then(&profile);
    let rows = [
        (400, "destination:d/1", State::Held),
        (401, "profile:p/a", State::Held),
        (201, "profile:p/2", State::Confirmed),
        (200, "profile:p/success", State::Held),
        (404, "default/404", State::Held),
        (503, "default/503-strict", State::Unknown),
    ];
    for (status, rule, state) in rows {
        let verdict = judge(&rules, &answer(status, &[], ""));
        assert_eq!((verdict.rule.as_str(), verdict.state), (rule, state));
        assert_eq!(verdict.maybe_acted, status == 200, "only the guard's hold");
    }
    let verdict = judge(&rules, &answer(400, &[], ""));
    assert_eq!(
        (verdict.scope, verdict.action),
        (Scope::Group, Some(Action::RefreshAuth))
    );
    assert!(rules.success_required() && !own.success_required());
    let nearest = set("d", "success = 'status'\nstrict_503 = false\n").then(&profile);
    assert!(!nearest.success_required(), "the nearest table decides");
    assert_eq!(judge(&nearest, &answer(503, &[], "")).rule, "default/503");
    let truncated = judge(&rules, &cut(200, "{\"ok\":tr"));
    assert_eq!(truncated.rule, "profile:p/success");
    assert_eq!(truncated.reason, Reason::TRUNCATED_BODY);
    assert_eq!(truncated.state, State::Unknown);
}

#[test]
fn a_success_that_no_rule_knows_keeps_the_receivers_words() {
    let rules = set("d", "success = 'require'\n");
    let verdict = judge(&rules, &answer(200, &[], r#"{"error":{"code":"odd"}}"#));
    assert_eq!(verdict.rule, "d/success");
    assert_eq!(verdict.raw.as_deref(), Some("odd"));
}

#[test]
fn the_switches_of_a_destination() {
    let strict = set("d", "strict_503 = true\n");
    let rows = [
        (answer(503, &[], ""), State::Unknown, "no word of when"),
        (
            answer(503, &[("retry-after", "1")], ""),
            State::Pending,
            "it says when",
        ),
        (
            answer(503, &[], "Too many requests"),
            State::Pending,
            "it says why",
        ),
        (answer(529, &[], ""), State::Pending, "503 only"),
    ];
    for (outcome, want, why) in rows {
        assert_eq!(judge(&strict, &outcome).state, want, "{why}");
        let without = judge(&RuleSet::default_only(), &outcome);
        assert_eq!(without.state, State::Pending, "{why}");
    }
    let atomic = judge(
        &set("d", "atomic_body = true\n"),
        &failed("write_interrupted"),
    );
    assert_eq!((atomic.state, atomic.maybe_acted), (State::Pending, false));
    assert_eq!(atomic.reason, Reason::WRITE_INTERRUPTED);
}

#[test]
fn an_interrupted_attempt_is_unknown_whatever_the_rules_say() {
    let verdict = judge(&rule(""), &Outcome::Interrupted);
    assert_eq!(verdict.rule, "default/interrupted");
    assert_eq!(
        (verdict.state, verdict.reason),
        (State::Unknown, Reason::INTERRUPTED)
    );
}

#[test]
fn a_hold_after_sending_is_maybe_acted() {
    let rules = rule("transport = ['timeout_after_send', 'dns_failure']");
    assert!(judge(&rules, &failed("timeout_after_send")).maybe_acted);
    assert!(!judge(&rules, &failed("dns_failure")).maybe_acted);
}

/// Every fault: the rule's text after `[[rule]]`, the place it names, and its words.
#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn every_fault_and_lint() {
    const OK: &str = "state = 'held'\nreason = 'transient'\n";
    const CONFIRM: &str = "state = 'confirmed'\nreason = 'accepted'\n";
    const PENDING: &str = "state = 'pending'\nreason = 'transient'\n";
    const FAILED: &str = "state = 'failed'\nreason = 'transient'\n";
    let rows: Vec<(&str, &str, &str, &str)> = vec![
        (
            OK,
            "wehn = {}\nwhen = {}",
            "wehn",
            "`wehn` is not a key of a rule; did you mean `when`?",
        ),
        (
            OK,
            "when = { stauts = 1 }",
            "stauts",
            "not a key of `when`; did you mean `status`?",
        ),
        (
            OK,
            "switch = 'strict_503'\nwhen = {}",
            "switch",
            "`switch` is not a key of a rule",
        ),
        (OK, "", "[[rule]]", "the rule has no `when`"),
        (OK, "when = 1", "1", "`when` is not a table"),
        (
            "reason = 'transient'\n",
            "when = {}",
            "[[rule]]",
            "`state` is missing",
        ),
        (
            "state = 'held'\n",
            "when = {}",
            "[[rule]]",
            "`reason` is missing",
        ),
        (
            "state = 'hold'\nreason = 'partial'\n",
            "when = {}",
            "'hold'",
            "did you mean `held`?",
        ),
        (
            "state = 'held'\nreason = 'rate_limit'\n",
            "when = {}",
            "'rate_limit'",
            "did you mean `rate_limited`?",
        ),
        (
            "state = 'held'\nreason = 'zzz'\n",
            "when = {}",
            "'zzz'",
            "starts with `x_`",
        ),
        (
            OK,
            "scope = 'items'\nwhen = {}",
            "'items'",
            "did you mean `item`?",
        ),
        (
            OK,
            "action = 'disabled'\nwhen = {}",
            "'disabled'",
            "did you mean `disable`?",
        ),
        (
            OK,
            "name = 'a b'\nwhen = {}",
            "'a b'",
            "not a name for a rule",
        ),
        (
            OK,
            "certain = 'yes'\nwhen = {}",
            "'yes'",
            "neither true nor false",
        ),
        (OK, "when = { status = [99] }", "99", "not a status"),
        (OK, "when = { status = ['5x'] }", "'5x'", "not a status"),
        (
            OK,
            "when = { status = ['403-400'] }",
            "'403-400'",
            "not a status",
        ),
        (
            OK,
            "when = { transport = ['reset'] }",
            "'reset'",
            "not a value of `transport`",
        ),
        (
            OK,
            "when = { transport = 'dns_failed' }",
            "'dns_failed'",
            "did you mean `dns_failure`?",
        ),
        (
            OK,
            "when = { header = { x = 0 } }",
            "0",
            "the value of a header is a text",
        ),
        (
            OK,
            "when = { header = { 'a b' = '0' } }",
            "'a b'",
            "not the name of a header",
        ),
        (
            OK,
            "when = { json = { 'a' = 0 } }",
            "'a'",
            "does not start with `/`",
        ),
        (
            OK,
            "when = { json = { '/**/**' = 0 } }",
            "'/**/**'",
            "more than one `**`",
        ),
        (OK, "when = { json = { '/a' = {} } }", "{}", "asks nothing"),
        (
            OK,
            "when = { json = { '/a' = [] } }",
            "[]",
            "matches nothing",
        ),
        (
            OK,
            "when = { json = { '/a' = { regx = 'a' } } }",
            "regx",
            "did you mean `regex`?",
        ),
        (
            OK,
            "when = { json = { '/a' = { gt = 'a' } } }",
            "'a'",
            "`gt` is not a number",
        ),
        (
            OK,
            "when = { json = { '/a' = 2026-01-01 } }",
            "2026-01-01",
            "neither a text",
        ),
        (
            OK,
            "when = { text = '(' }",
            "'('",
            "the expression is not valid",
        ),
        (
            OK,
            "when = { text = 'a{1000}{1000}' }",
            "'a{1000}{1000}'",
            "the expression is not valid",
        ),
        (
            OK,
            "when = { prior = 'perhaps' }",
            "'perhaps'",
            "use one of none, maybe",
        ),
        (OK, "when = { key_sent = 1 }", "1", "neither true nor false"),
        (
            OK,
            "when = { method = 'post' }",
            "'post'",
            "written in capitals",
        ),
        (
            PENDING,
            "retry = { header = 'a' }\nwhen = {}",
            "{ header = 'a' }",
            "`as` is missing",
        ),
        (
            PENDING,
            "retry = { header = 'a', as = 'sec' }\nwhen = {}",
            "'sec'",
            "not a value of `as`",
        ),
        (
            PENDING,
            "retry = { as = 's' }\nwhen = {}",
            "{ as = 's' }",
            "name one place",
        ),
        (
            PENDING,
            "retry = { fixed = -1 }\nwhen = {}",
            "-1",
            "a number of seconds",
        ),
        (
            PENDING,
            "retry = { fixed = 1, as = 's' }\nwhen = {}",
            "{ fixed = 1, as = 's' }",
            "stands alone",
        ),
        (
            PENDING,
            "retry_combine = 'min'\nwhen = {}",
            "'min'",
            "use one of first, max",
        ),
        (
            OK,
            "raw = { jsn = '/a' }\nwhen = {}",
            "jsn",
            "did you mean `json`?",
        ),
        (
            FAILED,
            "retry = { fixed = 1 }\nwhen = {}",
            "{ fixed = 1 }",
            "no meaning",
        ),
        (
            OK,
            "receipt = { json = '/a' }\nwhen = {}",
            "{ json = '/a' }",
            "only where the state is confirmed",
        ),
        (
            OK,
            "when = { transport = 'dns_failure', status = 200 }",
            "{ transport = 'dns_failure', status = 200 }",
            "no answer to look into",
        ),
        (
            OK,
            "when = { transport = 'truncated_body', text = 'a' }",
            "{ transport = 'truncated_body', text = 'a' }",
            "never matches",
        ),
        (
            CONFIRM,
            "when = { status = [409] }",
            "{ status = [409] }",
            "confirms from a 4xx or 5xx",
        ),
        (
            CONFIRM,
            "when = { status = ['200-400'] }",
            "{ status = ['200-400'] }",
            "confirms from a 4xx or 5xx",
        ),
        (
            CONFIRM,
            "when = { status = ['5xx'], prior = 'none' }",
            "{ status = ['5xx'], prior = 'none' }",
            "confirms from a 4xx or 5xx",
        ),
        (
            CONFIRM,
            "when = { json = { '/ok' = true } }",
            "{ json = { '/ok' = true } }",
            "without `status` the rule confirms",
        ),
        (
            CONFIRM,
            "when = { transport = 'dns_failure', prior = 'maybe' }",
            "{ transport = 'dns_failure', prior = 'maybe' }",
            "no answer cannot confirm",
        ),
        (
            PENDING,
            "when = { transport = ['dns_failure', 'timeout_after_send'] }",
            "{ transport = ['dns_failure', 'timeout_after_send'] }",
            "after `timeout_after_send` the receiver may have acted on it: it is not pending",
        ),
        (
            PENDING,
            "when = { transport = 'write_interrupted', prior = 'maybe' }",
            "{ transport = 'write_interrupted', prior = 'maybe' }",
            "it is not pending",
        ),
        (
            FAILED,
            "when = { transport = 'reset_after_send' }",
            "{ transport = 'reset_after_send' }",
            "it is not failed",
        ),
        (
            FAILED,
            "when = { transport = 'reset_after_send', prior = 'none' }",
            "{ transport = 'reset_after_send', prior = 'none' }",
            "it is not failed",
        ),
    ];
    for (head, tail, place, words) in rows {
        let text = format!("[[rule]]\n{head}{tail}\n");
        let table = DeTable::parse(&text).unwrap();
        let (rules, faults) = RuleSet::from_table("d", table.get_ref());
        assert_eq!(faults.len(), 1, "{text}: {faults:?}");
        let said = format!(
            "{}; {}",
            faults[0].message,
            faults[0].hint.as_deref().unwrap_or_default()
        );
        assert!(said.contains(words), "{text}: {said}");
        assert_eq!(&text[faults[0].span.clone()], place, "{text}");
        assert_eq!(rules.own().count(), 0, "a rule with a fault is left out");
    }
}

#[test]
fn what_the_lints_let_pass() {
    for text in [
        "state = 'confirmed'\nreason = 'duplicate_confirmed'\nwhen = { status = 409, prior = 'maybe' }",
        "state = 'confirmed'\nreason = 'duplicate_confirmed'\ncertain = true\nwhen = { status = 400 }",
        "state = 'confirmed'\nreason = 'accepted'\nwhen = { status = ['2xx', 303] }",
        "state = 'failed'\nreason = 'transient'\nwhen = { transport = 'reset_after_send', prior = 'maybe' }",
        "state = 'held'\nreason = 'transient'\nwhen = { transport = 'reset_after_send' }",
        "state = 'pending'\nreason = 'transient'\nwhen = { transport = 'dns_failure' }",
    ] {
        set("d", &format!("[[rule]]\n{text}\n"));
    }
}

#[test]
fn faults_outside_a_rule() {
    let rows = [
        ("success = 'required'\n", "did you mean `require`?"),
        ("strict_503 = 1\n", "neither true nor false"),
        ("atomic_body = 'no'\n", "neither true nor false"),
        ("rule = 1\n", "not a list of tables"),
        ("rule = [1]\n", "a rule is not a table"),
        (
            "[[rule]]\nname = 'a'\nstate = 'held'\nreason = 'partial'\nwhen = {}\n\
             [[rule]]\nname = 'a'\nstate = 'held'\nreason = 'partial'\nwhen = {}\n",
            "a second rule has the name `a`",
        ),
    ];
    for (text, words) in rows {
        let table = DeTable::parse(text).unwrap();
        let (_, faults) = RuleSet::from_table("d", table.get_ref());
        assert_eq!(faults.len(), 1, "{text}: {faults:?}");
        assert!(format!("{faults:?}").contains(words), "{text}: {faults:?}");
    }
    // Other keys belong to others.
    set(
        "d",
        "base_url = 'https://a.example'\nretry = { base = '1s' }\nraw = 1\n",
    );
}

#[test]
fn the_default_table_has_no_fault() {
    let table = DeTable::parse(DEFAULT_TOML).unwrap();
    let (read, faults) = read::table("default", table.get_ref(), true);
    assert_eq!(faults, []);
    assert_eq!((read.retry.len(), read.raw.is_empty()), (2, false));
    let mut names: Vec<&str> = read.rules.iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!(
        names.last(),
        Some(&"default/other"),
        "it matches everything"
    );
    names.retain(|name| *name != "default/transport");
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "names are of one rule each");
}

#[test]
fn described_in_the_order_tried() {
    let rules = set(
        "destination:d",
        "success = 'require'\n[[rule]]\nname = 'a'\nstate = 'held'\nreason = 'x_a'\naction = 'disable'\n\
         [rule.when]\nstatus = [429, '5xx', '400-403']\nheader = { X-A = ['1', '2'] }\n\
         json = { '/e' = { not = true }, '/f' = { gt = 3 } }\ntext = 'a|b'\nprior = 'maybe'\n\
         key_sent = true\nmethod = 'PUT'\n",
    );
    let lines = rules.describe();
    assert_eq!(
        lines[0].when,
        "status 429 or 5xx or 400-403; header x-a is \"1\" or is \"2\"; json /e not (is true); \
         json /f is above 3; text matches /a|b/; an earlier attempt may have been acted on; \
         a key was sent; method PUT"
    );
    let names: Vec<&str> = lines.iter().map(|line| line.rule.as_str()).collect();
    assert_eq!(
        names[..4],
        [
            "destination:d/a",
            "destination:d/success",
            "destination:d/success",
            "default/transport"
        ]
    );
    assert_eq!(names.last(), Some(&"default/interrupted"));
    assert!(!names.contains(&"default/503-strict"), "its switch is off");
    assert_eq!(
        serde_json::to_string(&lines[0])
            .unwrap()
            .split("\"when\"")
            .next()
            .unwrap(),
        r#"{"rule":"destination:d/a","state":"held","reason":"x_a","scope":"item","#
    );
    assert!(
        serde_json::to_string(&lines[0])
            .unwrap()
            .ends_with(r#""action":"disable"}"#)
    );
}

/// Texts as receivers write them, and the texts beside them that mean something else.
#[test]
fn the_default_tables_expressions() {
    let rows = [
        (429, r#"{"name":"daily_quota_exceeded"}"#, "quota"),
        (
            429,
            r#"{"error":"You have reached your monthly email limit"}"#,
            "quota",
        ),
        (403, r#"{"reason":"dailyLimitExceeded"}"#, "quota"),
        (429, "limit of 500 messages per day reached", "quota"),
        (429, "quota exceeded for this month", "quota"),
        (
            429,
            r#"{"title":"quota exceeded","policies":["daily"]}"#,
            "429",
        ),
        (429, "limit is 60 requests per minute", "429"),
        (
            403,
            "You have exceeded a secondary rate limit.",
            "throttled",
        ),
        (403, r#"{"reason":"rateLimitExceeded"}"#, "throttled"),
        (
            403,
            r#"{"message":"No","documentation_url":"https://a.example/rate-limits"}"#,
            "403",
        ),
        (
            400,
            r#"{"__type":"ThrottlingException","message":"Rate exceeded"}"#,
            "throttled",
        ),
        (400, "(#4) Application request limit reached", "throttled"),
        (400, r#"{"code":"TooManyRequests"}"#, "throttled"),
        (400, "request exceeded the size of 10 items", "4xx"),
        (503, "<Code>SlowDown</Code>", "throttled"),
        (400, r#"{"error":"ExpiredToken"}"#, "400-auth"),
        (400, r#"{"error":"invalid_token"}"#, "400-auth"),
        (400, "Invalid access token.", "400-auth"),
        (400, "Your API key has expired", "400-auth"),
        (400, "Invalid API key provided", "400-auth"),
        (400, "The access token is not valid", "400-auth"),
        (
            400,
            r#"{"errors":["application token is invalid"]}"#,
            "400-auth",
        ),
        (
            403,
            "cannot be done due to slowmode rate limit",
            "throttled",
        ),
        (400, r#"{"reason":"BadDeviceToken"}"#, "4xx"),
        (400, "Invalid token id: tok_1", "4xx"),
        (400, "unexpected token } in JSON", "4xx"),
        (
            400,
            r#"{"title":"Idempotency-Key is missing"}"#,
            "400-key-required",
        ),
        (
            400,
            "This operation requires an idempotency key",
            "400-key-required",
        ),
        (400, "Idempotency-Key too long", "4xx"),
        (
            503,
            "upstream connect error or disconnect/reset before headers. reset reason: connection termination",
            "503-upstream",
        ),
        (
            503,
            "upstream connect error or disconnect/reset before headers. reset reason: connection failure",
            "503",
        ),
        (
            200,
            r#"{"error":null,"errors":[],"ok":true,"success":true,"status":"ok"}"#,
            "2xx",
        ),
        (200, r#"{"error":{"code":1}}"#, "2xx-error"),
        (200, r#"{"errors":0}"#, "2xx"),
        (200, r#"{"errors":{"a":1}}"#, "2xx-errors"),
        (202, r#"{"ok":false}"#, "2xx-not-ok"),
        (200, "ok:false", "2xx"),
    ];
    for (status, body, rule) in rows {
        let verdict = judge(&RuleSet::default_only(), &answer(status, &[], body));
        assert_eq!(verdict.rule, format!("default/{rule}"), "{status} {body}");
    }
}

#[test]
fn statuses_that_depend_on_more_than_the_number() {
    let rows = [
        (409, "", true, true, "409-key", State::Unknown),
        (409, "", false, true, "409-prior", State::Held),
        (409, "", false, false, "409", State::Held),
        (
            422,
            "Idempotent request mismatch",
            true,
            false,
            "422-key",
            State::Held,
        ),
        (
            422,
            "Idempotent request mismatch",
            false,
            false,
            "4xx",
            State::Failed,
        ),
        (499, "", false, false, "gateway-timeout-4xx", State::Unknown),
        (99, "", false, false, "other", State::Unknown),
        (600, "", false, false, "other", State::Unknown),
    ];
    for (status, body, key_sent, prior_maybe, rule, state) in rows {
        let outcome = answer(status, &[], body);
        let verdict = classify(
            &RuleSet::default_only(),
            &Exchange {
                prior_maybe,
                key_sent,
                ..exchange(&outcome)
            },
        );
        assert_eq!(
            (verdict.rule, verdict.state),
            (format!("default/{rule}"), state)
        );
    }
    let later = answer(413, &[("retry-after", "9")], "");
    let verdict = judge(&RuleSet::default_only(), &later);
    assert_eq!(
        (verdict.state, verdict.wait_ms),
        (State::Pending, Some(9_000))
    );
    assert_eq!(
        judge(&RuleSet::default_only(), &answer(413, &[], "")).state,
        State::Failed
    );
}
