//! `completions`: the words of the command line, for a shell to complete.

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_complete::Shell;

use super::{Arguments, Context};

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  source <(tickpost completions bash)")]
pub(super) struct CompletionsArgs {
    /// The shell that will read them
    shell: Shell,
}

pub(super) fn run(context: &Context, arguments: &CompletionsArgs) -> anyhow::Result<()> {
    let mut script = Vec::new();
    // Not straight to standard output: a reader that goes away is no panic.
    clap_complete::generate(
        arguments.shell,
        &mut Arguments::command(),
        "tickpost",
        &mut script,
    );
    let script = String::from_utf8(script).context("the completions are no text")?;
    if context.out.json {
        let shell = arguments.shell.to_string();
        return context
            .out
            .json(&serde_json::json!({"shell": shell, "script": script}));
    }
    context.out.line(script.trim_end())
}
