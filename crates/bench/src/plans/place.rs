//! Where in a plan file something is: errors name the line.

use std::ops::Range;

/// The text of a plan file and what it is called.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) name: String,
    pub(super) text: String,
}

impl Source {
    /// The error, behind file and line of `span`.
    pub(super) fn error(&self, span: &Range<usize>, error: &str) -> String {
        format!("{}:{}: {}", self.name, self.line(span.start), error.trim())
    }

    /// Counted from 1.
    fn line(&self, byte: usize) -> usize {
        let before = &self.text.as_bytes()[..byte.min(self.text.len())];
        1 + before.iter().filter(|&&byte| byte == b'\n').count()
    }
}
