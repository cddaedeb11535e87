//! rules

/// Placeholder.
#[derive(Clone, Debug)]
pub struct RuleSet;
