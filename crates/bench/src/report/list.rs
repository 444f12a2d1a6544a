//! What `bench list` tells: workloads, plans, protocols, other systems, and whether each can run here.

use std::fmt::Write;

use serde::Serialize;

use super::SCHEMA;
use crate::workload::Workload;
use crate::{peers, protocol};

/// Workloads, protocols and other systems of this build on this machine.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct List {
    schema: &'static str,
    workloads: Vec<Workload>,
    /// For `bench plan`.
    plans: Vec<&'static str>,
    protocols: Vec<Entry>,
    peers: Vec<Entry>,
}

#[derive(Clone, Debug, Serialize)]
struct Entry {
    name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    about: Option<&'static str>,
    available: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl List {
    pub(crate) fn here() -> Self {
        let entry =
            |name, about, reason: Option<String>| Entry { name, about, available: reason.is_none(), reason };
        let protocol = |protocol: &&'static dyn protocol::Protocol| {
            entry(protocol.name(), Some(protocol.about()), protocol.available().err())
        };
        let peer = |peer: &&'static dyn peers::Peer| entry(peer.facts().name, None, peer.program().err());
        Self {
            schema: SCHEMA,
            workloads: Workload::all().to_vec(),
            plans: crate::plans::names(),
            protocols: protocol::all().iter().map(protocol).collect(),
            peers: peers::all().iter().map(peer).collect(),
        }
    }

    pub(crate) fn json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    pub(crate) fn table(&self) -> String {
        let names: Vec<&str> = self.workloads.iter().map(|workload| workload.name()).collect();
        let entries = self.protocols.iter().chain(&self.peers);
        let width = entries.map(|entry| entry.name.len()).max().unwrap_or(0);
        let mut text = format!("workloads: {}\nplans: {}\n\n", names.join(", "), self.plans.join(", "));
        for entry in &self.protocols {
            let _ = writeln!(text, "{:<width$} {}", entry.name, entry.about.unwrap_or_default());
            if let Some(reason) = &entry.reason {
                let _ = writeln!(text, "{:<width$} unavailable: {reason}", "");
            }
        }
        text.push_str("\nother systems, by `bench peers`:\n");
        for entry in &self.peers {
            let state = entry.reason.as_deref().unwrap_or("installed");
            let _ = writeln!(text, "{:<width$} {state}", entry.name);
        }
        text
    }
}
