//! `config check`: all faults at once.

use super::Context;
use super::exit::CliError;
use crate::config::ConfigError;
use crate::transport::secret::{self, SecretError};

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
    let config = match context.config() {
        Ok(config) => config,
        Err(error) => {
            if let (true, Some(error)) = (context.out.json, error.downcast_ref::<ConfigError>()) {
                print_faults(context, error)?;
            }
            return Err(error);
        }
    };
    let mut missing = Vec::new();
    for (name, destination) in &config.destinations {
        if let Some(auth) = &destination.auth {
            match secret::read(secret::reference(auth)) {
                Ok(_) => {}
                // Only systemd gives it to the tick; by hand it cannot be looked at.
                Err(error @ SecretError::NoCredentials(_)) => {
                    context.out.warn(&format!("destination `{name}`: {error}"));
                }
                Err(error) => missing.push(format!("destination `{name}`: {error}")),
            }
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

/// The faults as one object, for programs.
fn print_faults(context: &Context, error: &ConfigError) -> anyhow::Result<()> {
    let faults: Vec<_> = error
        .faults()
        .iter()
        .map(|fault| {
            serde_json::json!({
                "file": fault.file.display().to_string(),
                "line": fault.line,
                "message": fault.message,
                "hint": fault.hint,
            })
        })
        .collect();
    context.out.json(&serde_json::json!({
        "file": context.config_path().display().to_string(),
        "faults": faults,
    }))
}
