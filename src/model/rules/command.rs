//! How the end of the command of `[notify]` is judged. A notice that is told twice is better than
//! one that is never told, so whatever is not exit code 0 is tried again, also when nobody knows
//! whether the command had told somebody already.

use super::{RuleLine, View, plain};
use crate::model::classify::Verdict;
use crate::model::event::Scope;
use crate::model::outcome::Outcome;
use crate::model::reason::Reason;
use crate::model::state::State;

/// One way in which a command ends.
struct End {
    rule: &'static str,
    state: State,
    reason: Reason,
    when: &'static str,
}

const DONE: End = End {
    rule: "command/0",
    state: State::Confirmed,
    reason: Reason::ACCEPTED,
    when: "the command exits with 0",
};
const EXIT: End = End {
    rule: "command/exit",
    state: State::Pending,
    reason: Reason::SERVER_ERROR,
    when: "it exits with another code, or by a signal",
};
const START: End = End {
    rule: "command/start",
    state: State::Pending,
    reason: Reason::LOCAL_ERROR,
    when: "it cannot be started",
};
const TIMEOUT: End = End {
    rule: "command/timeout",
    state: State::Pending,
    reason: Reason::TIMEOUT_AFTER_SEND,
    when: "it does not end within command_timeout",
};
const INTERRUPTED: End = End {
    rule: "command/interrupted",
    state: State::Pending,
    reason: Reason::INTERRUPTED,
    when: "the tick ends before it",
};

/// The verdict on a command's end; its exit code stands where an answer has its status.
pub(super) fn verdict(view: &View<'_>) -> Verdict {
    let end = match view.exchange.outcome {
        Outcome::Answered(answer) if answer.status == 0 => DONE,
        Outcome::Answered(_) => EXIT,
        Outcome::NotSent(_) => START,
        Outcome::MaybeSent(_) => TIMEOUT,
        Outcome::Interrupted => INTERRUPTED,
    };
    plain(end.rule, end.state, end.reason)
}

/// The ends, for `rules list`.
pub(super) fn describe() -> Vec<RuleLine> {
    [DONE, EXIT, START, TIMEOUT, INTERRUPTED]
        .into_iter()
        .map(|end| RuleLine {
            rule: end.rule.to_owned(),
            state: end.state,
            reason: end.reason,
            scope: Scope::Item,
            when: end.when.to_owned(),
            action: None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::RuleSet;
    use super::*;
    use crate::model::classify::{Exchange, classify};
    use crate::model::outcome::{Answer, TransportClass};
    use crate::model::time::UnixMs;

    #[test]
    fn how_a_command_ends() {
        let exit = |status| {
            Outcome::Answered(Answer {
                status,
                ..Answer::default()
            })
        };
        let rows = [
            (exit(0), State::Confirmed, "command/0"),
            (exit(1), State::Pending, "command/exit"),
            (exit(200), State::Pending, "command/exit"),
            (
                Outcome::failed(TransportClass::LocalError, ""),
                State::Pending,
                "command/start",
            ),
            (
                Outcome::failed(TransportClass::TimeoutAfterSend, ""),
                State::Pending,
                "command/timeout",
            ),
            (Outcome::Interrupted, State::Pending, "command/interrupted"),
        ];
        // Rules of a parent change nothing: no answer is judged.
        for rules in [
            RuleSet::of_command(),
            RuleSet::of_command().then(&RuleSet::default_only()),
        ] {
            for (outcome, state, rule) in &rows {
                let exchange = Exchange {
                    outcome,
                    method: "POST",
                    prior_maybe: false,
                    key_sent: false,
                    at: UnixMs(0),
                };
                let verdict = classify(&rules, &exchange);
                assert_eq!((verdict.state, verdict.rule.as_str()), (*state, *rule));
                let described = rules.describe().into_iter().any(|line| {
                    (line.rule.as_str(), line.state, &line.reason)
                        == (*rule, *state, &verdict.reason)
                });
                assert!(described, "{rule}");
            }
            assert_eq!(rules.describe().len(), 5);
        }
    }
}
