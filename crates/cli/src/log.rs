//! What the program says on the standard error beside its results.

use clap::ValueEnum;
use std::fmt;
use std::io::Write;
use std::sync::OnceLock;

/// How much to say.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub enum Level {
    /// Nothing but the reason of a failure.
    Error,
    /// What an operator should look at.
    Warn,
    /// What happens: nodes and links that come and go.
    Info,
    /// Each step.
    Debug,
}

static LEVEL: OnceLock<Level> = OnceLock::new();

/// Says up to `level` from now on; the first call counts.
pub fn set(level: Level) {
    LEVEL.get_or_init(|| level);
}

/// Something that an operator should look at.
pub fn warn(message: impl fmt::Display) {
    line(Level::Warn, message);
}

/// Something that happens.
pub fn info(message: impl fmt::Display) {
    line(Level::Info, message);
}

fn line(level: Level, message: impl fmt::Display) {
    if level <= *LEVEL.get().unwrap_or(&Level::Warn) {
        let name = level.to_possible_value().map_or_else(String::new, |value| value.get_name().to_string());
        // Nothing can be done if the standard error is closed.
        let _ = writeln!(std::io::stderr(), "polyrail: {name}: {message}");
    }
}
