//! What is wrong with a configuration, in one line.

use std::fmt;

/// A setting that is not allowed: where it stands, what it is, what would be allowed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub struct ConfigError {
    /// The file, if the setting came from one.
    pub file: Option<String>,
    /// The line in the file or text, from 1; `None` if the setting stands nowhere (missing, or set by builder).
    pub line: Option<usize>,
    /// The key, with dots; empty if the text is no TOML or can't be read.
    pub key: String,
    /// What is wrong.
    pub what: String,
    /// What would be allowed; empty where nothing can be said.
    pub allowed: String,
}

impl ConfigError {
    /// A setting that is wrong wherever it came from.
    pub(super) fn new(key: &str, what: impl Into<String>, allowed: impl Into<String>) -> Self {
        ConfigError { file: None, line: None, key: key.into(), what: what.into(), allowed: allowed.into() }
    }

    pub(super) fn unreadable(file: &str, error: &std::io::Error) -> Self {
        let mut e = Self::new("", format!("cannot be read: {error}"), "");
        e.file = Some(file.into());
        e
    }

    pub(super) fn at(mut self, file: Option<&str>, line: Option<usize>) -> Self {
        self.file = file.map(Into::into);
        self.line = line;
        self
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, "{file}:{line}: ")?,
            (Some(file), None) => write!(f, "{file}: ")?,
            (None, Some(line)) => write!(f, "line {line}: ")?,
            (None, None) => {}
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.what)?;
        if !self.allowed.is_empty() {
            write!(f, "; allowed: {}", self.allowed)?;
        }
        Ok(())
    }
}
