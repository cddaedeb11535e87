//! rules

/// Placeholder.
#[derive(Clone, Debug)]
pub struct RuleSet;

impl RuleSet {
    /// The default table alone.
    #[must_use]
    pub fn default_only() -> Self {
        Self
    }
}
