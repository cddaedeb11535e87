//! An outcome and an item's history → a verdict. Pure; the opinions are data, in `profiles/`.

use serde::{Serialize, Serializer};

use super::event::Scope;
use super::outcome::Outcome;
use super::reason::Reason;
use super::rules::{RuleSet, View};
use super::state::State;
use super::time::UnixMs;

/// Judges one attempt: the verdict of the first rule that matches.
///
/// Pure and total: every outcome gets a verdict, and what no rule knows is unknown. Guarantee
/// G6, which takes the item's history into account, is `settle`'s.
#[must_use]
pub fn classify(rules: &RuleSet, exchange: &Exchange<'_>) -> Verdict {
    rules.judge(&View::new(exchange))
}

/// What a rule can see of one attempt.
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'a> {
    /// What the wire showed.
    pub outcome: &'a Outcome,
    /// The request's method.
    pub method: &'a str,
    /// An earlier attempt of this item may have been acted on.
    pub prior_maybe: bool,
    /// The request carried a key.
    pub key_sent: bool,
    /// When the outcome was known.
    pub at: UnixMs,
}

/// What to make of one attempt, before guarantee G6 is applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The state that the rule asks for.
    pub state: State,
    /// Why.
    pub reason: Reason,
    /// The rule that decided: `default/503`.
    pub rule: String,
    /// Whom it concerns.
    pub scope: Scope,
    /// The wait that the receiver asked for, in milliseconds, rounded up to whole seconds.
    pub wait_ms: Option<u64>,
    /// The receiver's own word for it, to show to a person.
    pub raw: Option<String>,
    /// What else is to be done.
    pub action: Option<Action>,
    /// The receiver's own id of what it did.
    pub receipt: Option<String>,
    /// The rule looked at the item's history, so its word settles a maybe-acted item.
    pub tests_prior: bool,
    /// The rule does not say that nothing was done: the item is maybe-acted although the state
    /// is held (an unrecognised 2xx under `success = "require"`).
    pub maybe_acted: bool,
}

/// What a rule wants done beside the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Suspend the destination until a person releases it.
    Disable,
    /// The credentials want renewing.
    RefreshAuth,
}

impl Action {
    /// Every action.
    pub const ALL: [Self; 2] = [Self::Disable, Self::RefreshAuth];

    /// The name that rules use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Disable => "disable",
            Self::RefreshAuth => "refresh_auth",
        }
    }

    /// Reads an action by the name that rules use.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.as_str() == text)
    }
}

impl Serialize for Action {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::super::outcome::{Answer, TransportClass};
    use super::*;
    use State::{Confirmed, Failed, Held, Pending, Unknown};

    #[test]
    fn every_row_of_the_table() {
        let answered = |status| {
            Outcome::Answered(Answer {
                status,
                ..Answer::default()
            })
        };
        let rows = [
            (answered(202), Confirmed, "acknowledged"),
            (answered(307), Held, "redirects are never followed"),
            (answered(401), Held, "credentials need a person"),
            (
                answered(410),
                Held,
                "gone: a person takes the destination off",
            ),
            (answered(422), Failed, "the content is refused"),
            (answered(429), Pending, "explicit push-back"),
            (answered(500), Unknown, "it may have failed half way"),
            (answered(502), Unknown, "gateway, not origin"),
            (answered(503), Pending, "unable to handle"),
            (
                Outcome::failed(TransportClass::ConnectRefused, ""),
                Pending,
                "no byte left us",
            ),
            (
                Outcome::failed(TransportClass::TimeoutAfterSend, ""),
                Unknown,
                "the answer was lost",
            ),
            (Outcome::Interrupted, Unknown, "nothing is known"),
        ];
        for (outcome, want, why) in rows {
            let exchange = Exchange {
                outcome: &outcome,
                method: "POST",
                prior_maybe: false,
                key_sent: false,
                at: UnixMs(0),
            };
            let verdict = classify(&RuleSet::default_only(), &exchange);
            assert_eq!(verdict.state, want, "{why}: {outcome:?}");
            let gone = matches!(&outcome, Outcome::Answered(answer) if answer.status == 410);
            assert_eq!(verdict.action == Some(Action::Disable), gone, "{why}");
        }
    }

    #[test]
    fn actions_have_names() {
        let rows = [
            (Action::Disable, "disable"),
            (Action::RefreshAuth, "refresh_auth"),
        ];
        assert_eq!(rows.map(|(action, _)| action), Action::ALL);
        for (action, name) in rows {
            assert_eq!((action.as_str(), Action::parse(name)), (name, Some(action)));
            let json = serde_json::to_value(action).ok();
            assert_eq!(json, Some(serde_json::Value::from(name)));
        }
        assert_eq!(Action::parse("enable"), None);
    }
}
