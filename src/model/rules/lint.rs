//! What a rule may not say: it would break a guarantee, or it could have no effect.

use std::ops::Range;

use toml::de::DeTable;

use super::Rule;
use super::reader::Reader;
use super::when::{Prior, Way, When};
use crate::model::outcome::TransportClass;
use crate::model::state::State;

impl Reader {
    /// Adds a fault for each; `span` is that of the condition.
    pub(super) fn lint(
        &mut self,
        rule: &Rule,
        certain: bool,
        table: &DeTable<'_>,
        span: &Range<usize>,
    ) {
        let classes: Vec<TransportClass> = rule
            .when
            .transport
            .iter()
            .flatten()
            .filter_map(|way| match way {
                Way::Class(class) => Some(*class),
                Way::TruncatedBody => None,
            })
            .collect();
        self.lint_condition(&rule.when, &classes, span);
        if rule.state == State::Confirmed {
            self.lint_confirmed(&rule.when, &classes, certain, span);
        }
        self.lint_sent(rule, &classes, span);
        self.lint_keys(rule.state, table);
    }

    /// What can never match.
    fn lint_condition(&mut self, when: &When, classes: &[TransportClass], span: &Range<usize>) {
        let looks_inside = when.text.is_some() || !when.json.is_empty();
        let needs_answer = looks_inside || when.status.is_some() || !when.headers.is_empty();
        match classes.first() {
            Some(class) if needs_answer => self.fault_hint(
                span.clone(),
                format!(
                    "with transport `{}` there is no answer to look into",
                    class.as_str()
                ),
                "leave out status, header, json and text, or make two rules",
            ),
            None if when.transport.is_some() && looks_inside => self.fault(
                span.clone(),
                "no rule looks into a body that was cut: this never matches",
            ),
            Some(_) | None => {}
        }
    }

    /// G5: confirmed only from an answer that says so.
    fn lint_confirmed(
        &mut self,
        when: &When,
        classes: &[TransportClass],
        certain: bool,
        span: &Range<usize>,
    ) {
        if !classes.is_empty() {
            self.fault(span.clone(), "no answer cannot confirm anything");
            return;
        }
        let which = match &when.status {
            None => "without `status` ",
            Some(spans) if spans.iter().any(|span| span.meets(400, 599)) => "",
            Some(_) => return,
        };
        if when.prior != Some(Prior::Maybe) && !certain {
            self.fault_hint(
                span.clone(),
                format!("{which}the rule confirms from a 4xx or 5xx"),
                "say `status = [\"2xx\"]`, or test `prior = \"maybe\"`, or set `certain = true`",
            );
        }
    }

    /// G6: what was sent, and not answered, may have been acted on.
    fn lint_sent(&mut self, rule: &Rule, classes: &[TransportClass], span: &Range<usize>) {
        let refused = match rule.state {
            // The one exception is a switch of the default table: the owner's word.
            State::Pending => rule.switch.is_none(),
            State::Failed => rule.when.prior != Some(Prior::Maybe),
            State::Unknown | State::Held | State::Confirmed => false,
        };
        let sent = classes.iter().find(|class| !class.is_not_sent());
        if let Some(class) = sent.filter(|_| refused) {
            self.fault_hint(
                span.clone(),
                format!(
                    "after `{}` the receiver may have acted on it: it is not {}",
                    class.as_str(),
                    rule.state
                ),
                "use `unknown`; the destination's key decides whether it is sent again",
            );
        }
    }

    /// Keys that have no meaning for the state.
    fn lint_keys(&mut self, state: State, table: &DeTable<'_>) {
        if let Some(item) = table.get("retry").filter(|_| state.is_terminal()) {
            self.fault(
                item.span(),
                format!("`retry` has no meaning where the state is {state}"),
            );
        }
        let confirmed = state == State::Confirmed;
        if let Some(item) = table.get("receipt").filter(|_| !confirmed) {
            self.fault(
                item.span(),
                "`receipt` has a meaning only where the state is confirmed",
            );
        }
    }
}
