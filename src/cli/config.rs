//! `config check`: all faults at once.

use super::Context;
use super::exit::CliError;
use crate::transport::secret;

/// Look at the configuration.
#[derive(Debug, clap::Subcommand)]
#[command(after_help = "Example:\n  tickpost config check")]
pub(super) enum ConfigCommand {
    /// Check everything, secrets and certificates' files too, and name every fault with file and line
    Check(CheckArgs),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tickpost config check")]
pub(super) struct CheckArgs {}

pub(super) fn run(context: &Context, command: &ConfigCommand) -> anyhow::Result<()> {
    let ConfigCommand::Check(CheckArgs {}) = command;
    let config = context.config()?;
    let mut missing = Vec::new();
    for (name, destination) in &config.destinations {
        if let Some(auth) = &destination.auth
            && let Err(error) = secret::read(secret::reference(auth))
        {
            missing.push(format!("destination `{name}`: {error}"));
        }
        let tls = &destination.tls;
        for path in [&tls.ca_file, &tls.client_cert, &tls.client_key]
            .into_iter()
            .flatten()
        {
            if let Err(error) = std::fs::File::open(path) {
                missing.push(format!(
                    "destination `{name}`: cannot read {}: {error}",
                    path.display()
                ));
            }
        }
    }
    if context.out.json {
        let names: Vec<&str> = config
            .destinations
            .keys()
            .map(super::super::model::ids::DestName::as_str)
            .collect();
        context.out.json(&serde_json::json!({
            "file": config.path.display().to_string(),
            "destinations": names,
            "unreadable": missing,
        }))?;
    } else if missing.is_empty() {
        let n = config.destinations.len();
        let word = if n == 1 {
            "destination"
        } else {
            "destinations"
        };
        context
            .out
            .line(&format!("{}: {n} {word}, no fault", config.path.display()))?;
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(CliError::Config(missing.join("\n")).into())
}
