//! rules

use super::fault::Fault;

/// Placeholder.
#[derive(Clone, Debug)]
pub struct RuleSet;

impl RuleSet {
    /// The keys of a destination's table that belong to its rules.
    pub const KEYS: &'static [&'static str] = &["rule", "success", "strict_503", "atomic_body"];

    /// Reads the keys of [`RuleSet::KEYS`] from a destination's table.
    #[must_use]
    pub fn from_table(_origin: &str, _table: &toml::de::DeTable<'_>) -> (Self, Vec<Fault>) {
        (Self, Vec::new())
    }

    /// The default table alone.
    #[must_use]
    pub fn default_only() -> Self {
        Self
    }
}
