//! demo
use super::Context;
#[derive(Debug, clap::Args)]
pub(super) struct DemoArgs {}
pub(super) fn run(_context: &Context, _arguments: &DemoArgs) -> anyhow::Result<()> {
    Ok(())
}
