//! What the demo shows at its end: a short table, or JSON.

use super::figures::Figures;
use super::input::Input;
use super::transfer::Transfer;
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// Everything that the demo found.
pub struct Summary<'a> {
    /// What was sent.
    pub input: &'a Input,
    /// What came of it.
    pub transfer: &'a Transfer,
    /// What was measured, if it was.
    pub figures: Option<&'a Figures>,
}

impl Summary<'_> {
    /// Whether everything arrived once, in order, unchanged.
    pub fn is_good(&self) -> bool {
        let received = &self.transfer.received;
        self.hash_ok() && received.lost == 0 && received.duplicated == 0 && received.disordered == 0
    }

    /// For people.
    pub fn table(&self) -> String {
        let received = &self.transfer.received;
        let mut text = String::new();
        let mut row = |name: &str, value: String| {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{name:<44}{value:>16}");
        };
        if let Some(figures) = self.figures {
            for (name, mbps) in [
                ("one link, Polyrail", figures.one_link_mbps),
                ("one link, TCP cubic", figures.tcp_mbps),
                ("both links, Polyrail", figures.two_links_mbps),
                ("both links, MPTCP", figures.mptcp_mbps),
            ] {
                row(name, mbps.map_or_else(|| "not measured".into(), |mbps| format!("{mbps:.0} Mbit/s")));
            }
        }
        let late =
            |gap_ms: Option<f64>| gap_ms.map_or_else(|| "nothing was due".into(), |ms| format!("{ms:.1} ms"));
        row("largest lateness, undisturbed", late(self.transfer.undisturbed_ms));
        for (name, gap_ms) in &self.transfer.gaps_ms {
            row(&format!("largest lateness after: {}", name.replace('_', " ")), late(*gap_ms));
        }
        row("messages lost", received.lost.to_string());
        row("messages duplicated", received.duplicated.to_string());
        row("messages out of order", received.disordered.to_string());
        row("SHA-256", if self.hash_ok() { "equal".into() } else { "DIFFERENT".into() });
        for remark in self.figures.iter().flat_map(|figures| &figures.remarks) {
            let _ = writeln!(text, "{remark}");
        }
        text.trim_end().to_string()
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let received = &self.transfer.received;
        let gaps_ms: Map<String, Value> =
            self.transfer.gaps_ms.iter().map(|(name, gap_ms)| (name.to_string(), json!(gap_ms))).collect();
        json!({
            "ok": self.is_good(),
            "bytes": received.bytes,
            "seconds": received.seconds,
            "source": self.input.source,
            "sha256": self.input.sha256,
            "hash_ok": self.hash_ok(),
            "lost": received.lost,
            "duplicated": received.duplicated,
            "disordered": received.disordered,
            "undisturbed_ms": self.transfer.undisturbed_ms,
            "gaps_ms": gaps_ms,
            "one_link_mbps": self.figures.and_then(|figures| figures.one_link_mbps),
            "two_links_mbps": self.figures.and_then(|figures| figures.two_links_mbps),
            "tcp_mbps": self.figures.and_then(|figures| figures.tcp_mbps),
            "mptcp_mbps": self.figures.and_then(|figures| figures.mptcp_mbps),
            "remarks": self.figures.map(|figures| &figures.remarks),
        })
    }

    fn hash_ok(&self) -> bool {
        self.transfer.received.sha256 == self.input.sha256
    }
}
