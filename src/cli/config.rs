//! `config check`: all faults at once.

use super::Context;
use super::exit::CliError;
use crate::config::{Config, ConfigError, NotifyCommand};
use crate::store::disk::{Disk as _, RealDisk};
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
            match secret::read(auth.secret()) {
                Ok(_) => {}
                // Only systemd gives it to the tick; by hand it cannot be looked at.
                Err(error @ SecretError::NoCredentials(_)) => {
                    context.out.warn(&format!("destination `{name}`: {error}"));
                }
                Err(error) => missing.push(format!("destination `{name}`: {error}")),
            }
        }
        if let Some(why) = destination.command.as_ref().and_then(unusable) {
            missing.push(format!("[notify] command: {why}"));
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
    if let Some(why) = too_much_to_be_free(context, &config) {
        context.out.warn(&why);
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
        let destinations = config.destinations.values();
        let n = destinations.filter(|d| d.command.is_none()).count();
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

/// What is wrong with a `min_free` that no file system of this size can have free.
fn too_much_to_be_free(context: &Context, config: &Config) -> Option<String> {
    let min_free = config.limits.min_free_bytes;
    let total = RealDisk.room(&context.root()).ok()?.bytes_total;
    (min_free > total).then(|| {
        format!(
            "[limits] min_free is {min_free} bytes, and the spool's file system has {total} in all: nothing is ever accepted; give less"
        )
    })
}

/// Why a program cannot be run, as far as can be seen. A bare name is not looked for: the tick may
/// have another `PATH`.
fn unusable(command: &NotifyCommand) -> Option<String> {
    use std::os::unix::fs::PermissionsExt as _;
    let path = &command.program;
    if path.components().count() == 1 {
        return None;
    }
    match std::fs::metadata(path) {
        Err(error) => Some(format!("cannot find {}: {error}", path.display())),
        Ok(meta) if !meta.is_file() || meta.permissions().mode() & 0o111 == 0 => {
            Some(format!("{} is no program; chmod +x?", path.display()))
        }
        Ok(_) => None,
    }
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
