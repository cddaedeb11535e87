//! A fault in a text that a person wrote: where, what, and the way out.

use std::ops::Range;

/// One fault in a TOML text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where in the text, in bytes.
    pub span: Range<usize>,
    /// What is wrong, in lower case and without a period.
    pub message: String,
    /// What to do instead.
    pub hint: Option<String>,
}

impl Fault {
    /// A fault without a hint.
    #[must_use]
    pub fn new(span: Range<usize>, message: impl Into<String>) -> Self {
        Self {
            span,
            message: message.into(),
            hint: None,
        }
    }

    /// The same with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
