//! `rules test` and `rules list`: how answers are judged, and by which rule.

use std::path::PathBuf;

use super::exit::CliError;
use super::output::style_of;
use super::table::{Cell, Column, Table};
use super::{Context, output, read_input, times};
use crate::clock::{Clock as _, SystemClock};
use crate::config::NOTIFY_COMMAND;
use crate::model::classify::{Exchange, classify};
use crate::model::outcome::{Answer, Outcome, TransportClass};
use crate::model::rules::RuleSet;
use crate::model::saved;

/// The table of `rules list`.
const RULES: [Column; 4] = [
    Column::new("rule", 0),
    Column::new("state", 1),
    Column::new("reason", 2),
    Column::text("when", 0),
];

/// The largest saved response that is read, in bytes.
const RESPONSE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Look at the rules that judge answers.
#[derive(Debug, clap::Subcommand)]
#[command(after_help = "Example:\n  tickpost rules list billing")]
pub(super) enum RulesCommand {
    /// What a saved response (as `curl -i` prints it) would be judged, and by which rule
    Test(TestArgs),
    /// The rules of a destination, in the order in which they are tried
    List(ListArgs),
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  curl -si https://api.example/charges -d '{}' | tickpost rules test billing -"
)]
pub(super) struct TestArgs {
    /// A destination, or profile:NAME
    dest: String,
    /// A file with the response, or - for standard input
    #[arg(required_unless_present = "transport")]
    response: Option<PathBuf>,
    /// The request's method
    #[arg(long, value_name = "M", default_value = "POST")]
    method: String,
    /// Whether an earlier attempt of the item may have been acted on
    #[arg(long, value_name = "PRIOR", default_value = "none", value_parser = ["none", "maybe"])]
    prior: String,
    /// When the answer came [default: now]
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
    /// The request carried no key
    #[arg(long)]
    no_key: bool,
    /// How the transport failed; `truncated_body` goes with a response
    #[arg(long, value_name = "CLASS")]
    transport: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tickpost rules list billing")]
pub(super) struct ListArgs {
    /// A destination, or profile:NAME
    dest: String,
}

pub(super) fn run(context: &Context, command: &RulesCommand) -> anyhow::Result<()> {
    match command {
        RulesCommand::Test(arguments) => test(context, arguments),
        RulesCommand::List(arguments) => list(context, arguments),
    }
}

/// The rules of a destination or profile, and whether its key counts as sent.
fn rules_of(context: &Context, dest: &str) -> anyhow::Result<(RuleSet, bool)> {
    match dest.strip_prefix("profile:") {
        Some("default") => Ok((RuleSet::default_only(), true)),
        Some(name) => Err(CliError::Data(format!(
            "profile `{name}` is not built in; this version has profile:default"
        ))
        .into()),
        None => {
            let config = context.config()?;
            let destination = super::destination(&config, dest)?;
            Ok((destination.rules.clone(), destination.key.is_sent()))
        }
    }
}

fn test(context: &Context, arguments: &TestArgs) -> anyhow::Result<()> {
    if arguments.dest == NOTIFY_COMMAND {
        return Err(CliError::Data(format!(
            "`{NOTIFY_COMMAND}` is a command, and no response is judged: exit code 0 confirms, and anything else is tried again; `tickpost rules list {NOTIFY_COMMAND}` shows it"
        ))
        .into());
    }
    let (rules, key_sent) = rules_of(context, &arguments.dest)?;
    let outcome = outcome(arguments)?;
    let now = SystemClock::new().now();
    let at = match &arguments.at {
        Some(text) => times::past(text, now)
            .or_else(|_| times::future(text, now))
            .map_err(CliError::Usage)?,
        None => now,
    };
    let verdict = classify(
        &rules,
        &Exchange {
            outcome: &outcome,
            method: &arguments.method,
            prior_maybe: arguments.prior == "maybe",
            key_sent: key_sent && !arguments.no_key,
            at,
        },
    );
    let retry_after_s = verdict.wait_ms.map(|ms| ms.div_ceil(1000));
    if context.out.json {
        return context.out.json(&serde_json::json!({
            "state": verdict.state,
            "reason": verdict.reason,
            "rule": verdict.rule,
            "scope": verdict.scope,
            "retry_after_s": retry_after_s,
            "raw": verdict.raw,
            "action": verdict.action,
            "receipt": verdict.receipt,
        }));
    }
    let out = context.out;
    let style = style_of(verdict.state);
    out.line(&format!(
        "{style}{}{style:#}  {}",
        verdict.state, verdict.reason
    ))?;
    out.line(&format!("  {}", verdict.reason.explain()))?;
    out.line(&format!("  rule     {}", verdict.rule))?;
    let scope = serde_json::to_value(verdict.scope)?;
    out.line(&format!(
        "  scope    {}",
        scope.as_str().unwrap_or_default()
    ))?;
    if let Some(seconds) = retry_after_s {
        out.line(&format!("  wait     {seconds} s"))?;
    }
    if let Some(raw) = &verdict.raw {
        out.line(&format!("  says     {}", output::plain(raw)))?;
    }
    if let Some(receipt) = &verdict.receipt {
        out.line(&format!("  receipt  {}", output::plain(receipt)))?;
    }
    if let Some(action) = verdict.action {
        out.line(&format!("  action   {}", action.as_str()))?;
    }
    Ok(())
}

fn outcome(arguments: &TestArgs) -> anyhow::Result<Outcome> {
    let answer = match &arguments.response {
        Some(path) => {
            let bytes = read_input(path, RESPONSE_BYTES_MAX)?;
            Some(
                saved::parse(&bytes)
                    .map_err(|error| CliError::Data(format!("`{}`: {error}", path.display())))?,
            )
        }
        None => None,
    };
    match (arguments.transport.as_deref(), answer) {
        (None, Some(answer)) => Ok(Outcome::Answered(answer)),
        (Some("truncated_body"), Some(answer)) => Ok(Outcome::Answered(Answer {
            cut: true,
            ..answer
        })),
        (Some("truncated_body") | None, None) => Err(CliError::Usage(
            "name a file with the response, or - for standard input".to_owned(),
        )
        .into()),
        (Some(text), _) => {
            let class = TransportClass::parse(text).ok_or_else(|| {
                let known: Vec<&str> = TransportClass::ALL.iter().map(|c| c.as_str()).collect();
                CliError::Usage(format!(
                    "`{text}` is not a transport class; they are: {}, truncated_body",
                    known.join(", ")
                ))
            })?;
            Ok(Outcome::failed(class, ""))
        }
    }
}

fn list(context: &Context, arguments: &ListArgs) -> anyhow::Result<()> {
    let (rules, _) = rules_of(context, &arguments.dest)?;
    let lines = rules.describe();
    if context.out.json {
        for line in &lines {
            context.out.json(line)?;
        }
        return Ok(());
    }
    let mut table = Table::new(&RULES);
    for line in &lines {
        table.row(vec![
            Cell::new(line.rule.as_str()),
            Cell::styled(line.state.to_string(), style_of(line.state)),
            Cell::new(line.reason.to_string()),
            Cell::new(line.when.as_str()),
        ]);
    }
    context.out.table(&table)
}
