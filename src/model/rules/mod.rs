//! The rule language: what an answer means, as data.
//!
//! A rule is a condition (`when`) and a verdict. Rules stand in layers: the destination's own,
//! those of its profile and the profile's parents, the `success` guard, and the default table
//! (`profiles/default.toml`), which matches everything. The first rule that matches decides.
//!
//! # Guarantees
//!
//! 1. Total: every exchange gets a verdict, whatever the receiver sent.
//! 2. No rule that was loaded confirms without an answer, or takes for not sent what may have
//!    been sent; [`RuleSet::from_table`] refuses those.
//! 3. Expressions run in time linear in the body; a path has at most one `**`.
//!
//! # Semantics that the names do not tell
//!
//! Tests of headers and JSON are existential: one matching value is enough. A value that is
//! absent passes `exists = false`, `nonempty = false` and the `not` of their opposites, and
//! nothing else. Tests of JSON need a body that is JSON and whole. A rule without `transport`
//! never matches an outcome without an answer.

mod command;
mod lint;
mod pointer;
mod read;
mod reader;
mod source;
mod test;
#[cfg(test)]
mod tests;
mod view;
mod when;

use std::sync::{Arc, OnceLock};

use serde::Serialize;
use toml::de::DeTable;

use self::read::Read;
use self::source::{Source, Wait};
use self::when::When;
use super::classify::{Action, Verdict};
use super::event::Scope;
use super::fault::Fault;
use super::outcome::Outcome;
use super::reason::Reason;
use super::state::State;

pub(in crate::model) use self::view::View;

/// One rule, checked and compiled.
#[derive(Clone, Debug)]
struct Rule {
    /// `destination:billing/declined`.
    name: String,
    when: When,
    state: State,
    reason: Reason,
    scope: Scope,
    /// Absent: what the default table says for all.
    retry: Option<Vec<Wait>>,
    /// The longest of the waits, not the first.
    longest: bool,
    receipt: Vec<Source>,
    /// Absent: what the default table says for all.
    raw: Option<Vec<Source>>,
    action: Option<Action>,
    /// Tried only where the destination turns this on.
    switch: Option<Switch>,
}

/// What a 2xx means that no rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Success {
    /// It is judged by the default table.
    Status,
    /// It is not a success.
    Require,
}

/// Switches of a destination that turn on rules of the default table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Switch {
    Strict503,
    AtomicBody,
}

/// The rules of one table.
#[derive(Debug)]
struct Layer {
    origin: String,
    read: Read,
}

/// The rules of a destination, in the order in which they are tried. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RuleSet {
    /// Without the default table.
    layers: Arc<[Arc<Layer>]>,
    /// Instead of all rules: a command's exit codes are judged, and no answers.
    command: bool,
}

/// One rule for `rules list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleLine {
    /// The rule's name: `default/503`.
    pub rule: String,
    /// The state that it asks for.
    pub state: State,
    /// Why.
    pub reason: Reason,
    /// Whom it concerns.
    pub scope: Scope,
    /// Its condition in words.
    pub when: String,
    /// What else it wants done.
    pub action: Option<Action>,
}

/// The name in the verdict of an attempt of which nothing is known.
const INTERRUPTED_RULE: &str = "default/interrupted";

impl RuleSet {
    /// The keys of a destination's (or profile's) table that belong to the rules.
    pub const KEYS: &'static [&'static str] = &["rule", "success", "strict_503", "atomic_body"];

    /// Reads [`Self::KEYS`] of a destination's or a profile's table; other keys are ignored.
    ///
    /// `origin` names the table in the names of its rules: `destination:billing`. A rule with a
    /// fault is left out of the set. Faults carry byte spans of the text that the table was
    /// parsed from.
    #[must_use]
    pub fn from_table(origin: &str, table: &DeTable<'_>) -> (Self, Vec<Fault>) {
        let (read, faults) = read::table(origin, table, false);
        let layer = Layer {
            origin: origin.to_owned(),
            read,
        };
        let layers = Arc::from([Arc::new(layer)]);
        let rules = Self {
            layers,
            command: false,
        };
        (rules, faults)
    }

    /// Only the default table.
    #[must_use]
    pub fn default_only() -> Self {
        Self {
            layers: Arc::from([]),
            command: false,
        }
    }

    /// How the command of `[notify]` is judged: by its exit code, and by nothing else.
    #[must_use]
    pub fn of_command() -> Self {
        Self {
            command: true,
            ..Self::default_only()
        }
    }

    /// These rules, and after them those of a parent: a destination's with its profile's, a
    /// profile's with those of the one that it extends. The nearest table that sets `success`,
    /// `strict_503` or `atomic_body` decides it.
    #[must_use]
    pub fn then(&self, parent: &Self) -> Self {
        let layers = self.layers.iter().chain(parent.layers.iter()).cloned();
        Self {
            layers: layers.collect(),
            command: self.command,
        }
    }

    /// Whether a 2xx that no rule of the destination matches is no success.
    #[must_use]
    pub fn success_required(&self) -> bool {
        self.guard().is_some()
    }

    /// The table that says `success = "require"`, if that holds.
    fn guard(&self) -> Option<&Layer> {
        let layer = self
            .layers
            .iter()
            .find(|layer| layer.read.success.is_some())?;
        (layer.read.success == Some(Success::Require)).then_some(layer)
    }

    fn is_on(&self, switch: Switch) -> bool {
        let mut settings = self.layers.iter().map(|layer| match switch {
            Switch::Strict503 => layer.read.strict_503,
            Switch::AtomicBody => layer.read.atomic_body,
        });
        settings.find_map(|setting| setting) == Some(true)
    }

    fn own(&self) -> impl Iterator<Item = &Rule> {
        self.layers.iter().flat_map(|layer| &layer.read.rules)
    }

    fn defaults(&self) -> impl Iterator<Item = &Rule> {
        let rules = default_table().read.rules.iter();
        rules.filter(|rule| rule.switch.is_none_or(|switch| self.is_on(switch)))
    }

    /// Each rule in the order in which it is tried.
    #[must_use]
    pub fn describe(&self) -> Vec<RuleLine> {
        if self.command {
            return command::describe();
        }
        let mut lines: Vec<RuleLine> = self.own().map(Rule::line).collect();
        if let Some(layer) = self.guard() {
            for (state, reason, when) in [
                (
                    State::Unknown,
                    Reason::TRUNCATED_BODY,
                    "transport truncated_body; status 2xx",
                ),
                (State::Held, Reason::NOT_ACCEPTED, "status 2xx"),
            ] {
                lines.push(RuleLine {
                    rule: format!("{}/success", layer.origin),
                    state,
                    reason,
                    scope: Scope::Item,
                    when: when.to_owned(),
                    action: None,
                });
            }
        }
        lines.extend(self.defaults().map(Rule::line));
        lines.push(RuleLine {
            rule: INTERRUPTED_RULE.to_owned(),
            state: State::Unknown,
            reason: Reason::INTERRUPTED,
            scope: Scope::Item,
            when: "the attempt was interrupted".to_owned(),
            action: None,
        });
        lines
    }

    /// The verdict of the first rule that matches.
    pub(in crate::model) fn judge(&self, view: &View<'_>) -> Verdict {
        if self.command {
            return command::verdict(view);
        }
        if *view.exchange.outcome == Outcome::Interrupted {
            return plain(INTERRUPTED_RULE, State::Unknown, Reason::INTERRUPTED);
        }
        if let Some(rule) = self.own().find(|rule| rule.when.holds(view)) {
            return rule.verdict(view);
        }
        let success = view
            .answer()
            .filter(|answer| (200..300).contains(&answer.status));
        if let (Some(layer), Some(answer)) = (self.guard(), success) {
            let name = format!("{}/success", layer.origin);
            if answer.cut {
                return plain(&name, State::Unknown, Reason::TRUNCATED_BODY);
            }
            return Verdict {
                maybe_acted: true,
                raw: first_word(&default_table().read.raw, view),
                ..plain(&name, State::Held, Reason::NOT_ACCEPTED)
            };
        }
        match self.defaults().find(|rule| rule.when.holds(view)) {
            Some(rule) => rule.verdict(view),
            // The default table ends with a rule for every answer and names every class; its
            // tests say so. Without them this is still the one safe thing to say.
            None => plain("default/other", State::Unknown, Reason::UNEXPECTED_RESPONSE),
        }
    }
}

impl Rule {
    fn line(&self) -> RuleLine {
        RuleLine {
            rule: self.name.clone(),
            state: self.state,
            reason: self.reason.clone(),
            scope: self.scope,
            when: self.when.to_string(),
            action: self.action,
        }
    }

    fn verdict(&self, view: &View<'_>) -> Verdict {
        let shared = &default_table().read;
        let maybe_sent = matches!(view.exchange.outcome, Outcome::MaybeSent(_));
        Verdict {
            state: self.state,
            reason: self.reason.clone(),
            rule: self.name.clone(),
            scope: self.scope,
            wait_ms: self.wait_ms(view, &shared.retry),
            raw: first_word(self.raw.as_ref().unwrap_or(&shared.raw), view),
            action: self.action,
            receipt: first_word(&self.receipt, view),
            tests_prior: self.when.prior.is_some(),
            // A rule may want a person to look, but it cannot know that nothing was done.
            maybe_acted: maybe_sent && self.state == State::Held,
        }
    }

    fn wait_ms(&self, view: &View<'_>, shared: &[Wait]) -> Option<u64> {
        let sources = match (&self.retry, self.state) {
            (_, State::Confirmed | State::Failed) | (None, State::Held) => return None,
            (Some(own), State::Pending | State::Unknown | State::Held) => own,
            (None, State::Pending | State::Unknown) => shared,
        };
        let mut waits = sources.iter().filter_map(|wait| wait.read(view));
        if self.longest {
            waits.max()
        } else {
            waits.next()
        }
    }
}

fn first_word(sources: &[Source], view: &View<'_>) -> Option<String> {
    sources.iter().find_map(|source| source.word(view))
}

fn plain(rule: &str, state: State, reason: Reason) -> Verdict {
    Verdict {
        state,
        reason,
        rule: rule.to_owned(),
        scope: Scope::Item,
        wait_ms: None,
        raw: None,
        action: None,
        receipt: None,
        tests_prior: false,
        maybe_acted: false,
    }
}

const DEFAULT_TOML: &str = include_str!("../profiles/default.toml");

/// The default table, read once. Its faults are those of a test, not of a user.
fn default_table() -> &'static Layer {
    static TABLE: OnceLock<Layer> = OnceLock::new();
    TABLE.get_or_init(|| {
        let read = match DeTable::parse(DEFAULT_TOML) {
            Ok(table) => read::table("default", table.get_ref(), true).0,
            Err(_) => Read::default(),
        };
        Layer {
            origin: "default".to_owned(),
            read,
        }
    })
}
