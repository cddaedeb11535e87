//! `init`: makes or completes a spool.

use super::Context;
use crate::clock::{Clock as _, SystemClock};
use crate::config::SAMPLE;
use crate::entropy;
use crate::store::file::FileStore;

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tickpost --spool /var/spool/tickpost init")]
pub(super) struct Init {}

pub(super) fn run(context: &Context, _arguments: &Init) -> anyhow::Result<()> {
    let root = context.root();
    let made = FileStore::init(
        &root,
        SAMPLE,
        entropy::request_id().0,
        SystemClock::new().now(),
    )?;
    if context.out.json {
        return context
            .out
            .json(&serde_json::json!({"spool": context.whole_root(), "made": made.made}));
    }
    let root = root.display();
    if made.made.is_empty() {
        return context
            .out
            .line(&format!("{root} is a whole spool; nothing was changed"));
    }
    context.out.line(&format!(
        "spool {root} is ready; next, describe a destination in {}",
        context.config_path().display()
    ))
}
