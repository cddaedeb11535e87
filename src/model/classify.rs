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
