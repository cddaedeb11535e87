//! What a rule may not say: it would break a guarantee, or it could have no effect.

use std::ops::Range;

use toml::de::DeTable;

use super::Rule;
use super::reader::Reader;
use super::when::{Prior, Statuses, Way};
use crate::model::outcome::TransportClass;
use crate::model::state::State;

impl Reader {
    /// Refuses what would break a guarantee, and what can have no effect.
    pub(super) fn lint(
        &mut self,
        rule: &Rule,
        certain: bool,
        table: &DeTable<'_>,
        span: Range<usize>,
    ) {
        let when = &rule.when;
        let asked = when.prior == Some(Prior::Maybe);
        let classes: Vec<TransportClass> = when
            .transport
            .iter()
            .flatten()
            .filter_map(|way| match way {
                Way::Class(class) => Some(*class),
                Way::TruncatedBody => None,
            })
            .collect();
        let needs_answer = when.status.is_some()
            || when.text.is_some()
            || !when.headers.is_empty()
            || !when.json.is_empty();
        if needs_answer && !classes.is_empty() {
            self.fault_hint(
                span.clone(),
                format!(
                    "with transport `{}` there is no answer to look into",
                    classes[0].as_str()
                ),
                "leave out status, header, json and text, or make two rules",
            );
        }
        let cut_only = when.transport.is_some() && classes.is_empty();
        if cut_only && (when.text.is_some() || !when.json.is_empty()) {
            self.fault(
                span.clone(),
                "no rule looks into a body that was cut: this never matches",
            );
        }
        // G5: confirmed only from an answer that says so.
        if rule.state == State::Confirmed {
            let refusing = when.transport.is_none() || cut_only;
            let reaches_errors = when.status.as_ref().is_none_or(|spans| {
                spans
                    .iter()
                    .any(|Statuses(from, to)| *from < 600 && *to >= 400)
            });
            if !classes.is_empty() {
                self.fault(span.clone(), "no answer cannot confirm anything");
            } else if refusing && reaches_errors && !asked && !certain {
                let which = if when.status.is_some() {
                    ""
                } else {
                    "without `status` "
                };
                self.fault_hint(
                    span.clone(),
                    format!("{which}the rule confirms from a 4xx or 5xx"),
                    "say `status = [\"2xx\"]`, or test `prior = \"maybe\"`, or set `certain = true`",
                );
            }
        }
        // G6: what was sent, and not answered, may have been acted on.
        let gives_up = rule.state == State::Failed && !asked;
        if (rule.state == State::Pending || gives_up) && rule.switch.is_none() {
            if let Some(class) = classes.iter().find(|class| !class.is_not_sent()) {
                let (class, state) = (class.as_str(), rule.state);
                self.fault_hint(
                    span,
                    format!("after `{class}` the receiver may have acted on it: it is not {state}"),
                    "use `unknown`; the destination's key decides whether it is sent again",
                );
            }
        }
        let ended = rule.state.is_terminal();
        if let Some(item) = table.get("retry").filter(|_| ended) {
            self.fault(
                item.span(),
                format!("`retry` has no meaning where the state is {}", rule.state),
            );
        }
        if let Some(item) = table
            .get("receipt")
            .filter(|_| rule.state != State::Confirmed)
        {
            self.fault(
                item.span(),
                "`receipt` has a meaning only where the state is confirmed",
            );
        }
    }
}
