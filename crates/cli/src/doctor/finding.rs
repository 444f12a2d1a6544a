//! What a check finds.

use serde_json::{Value, json};

/// How much it matters; the gravest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// Something does not work.
    Error,
    /// It works, but worse than it could, or not for long.
    Warning,
    /// Worth to know; it may be meant so. Alone it does not count as a finding for the exit code.
    Note,
}

impl Severity {
    fn name(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        }
    }
}

/// One finding: what was seen, why it matters, and what mends it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// Name of the check, for scripts (docs/operating.md, "What is wrong").
    pub check: &'static str,
    /// What it is about: an interface, a link, a peer.
    pub about: String,
    /// What was seen.
    pub seen: String,
    /// Why it matters.
    pub why: &'static str,
    /// Commands that mend it, or show more where it cannot be known which would.
    pub mend: Vec<String>,
}

impl Finding {
    /// A finding without a command yet.
    pub fn new(
        severity: Severity,
        check: &'static str,
        about: impl Into<String>,
        seen: impl Into<String>,
        why: &'static str,
    ) -> Finding {
        Finding { severity, check, about: about.into(), seen: seen.into(), why, mend: Vec::new() }
    }

    /// With one more command.
    pub fn mend(mut self, command: impl Into<String>) -> Finding {
        self.mend.push(command.into());
        self
    }

    /// For people.
    pub fn lines(&self) -> Vec<String> {
        let Finding { severity, check, about, seen, why, mend } = self;
        let mut lines = vec![
            format!("{}: {check}: {about}", severity.name()),
            format!("  seen: {seen}"),
            format!("  why:  {why}"),
        ];
        lines.extend(mend.iter().map(|command| format!("  mend: {command}")));
        lines
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        json!({
            "severity": self.severity.name(), "check": self.check, "about": self.about, "seen": self.seen,
            "why": self.why, "mend": self.mend,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_told_with_every_command() {
        let finding =
            Finding::new(Severity::Warning, "mtu", "link b/1", "1300", "small").mend("one").mend("two");
        let expected =
            ["warning: mtu: link b/1", "  seen: 1300", "  why:  small", "  mend: one", "  mend: two"];
        assert_eq!(finding.lines(), expected);
        assert_eq!(
            (&finding.to_json()["severity"], &finding.to_json()["mend"][1]),
            (&json!("warning"), &json!("two"))
        );
    }
}
