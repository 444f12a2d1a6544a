//! What `bench list` tells: workloads, protocols, and whether each can run here.

use std::fmt::Write;

use serde::Serialize;

use super::SCHEMA;
use crate::protocol;
use crate::workload::Workload;

/// Workloads and protocols of this build on this machine.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct List {
    schema: &'static str,
    workloads: Vec<Workload>,
    protocols: Vec<Entry>,
}

#[derive(Clone, Debug, Serialize)]
struct Entry {
    name: &'static str,
    about: &'static str,
    available: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl List {
    pub(crate) fn here() -> Self {
        let entry = |protocol: &&'static dyn protocol::Protocol| {
            let reason = protocol.available().err();
            Entry { name: protocol.name(), about: protocol.about(), available: reason.is_none(), reason }
        };
        Self {
            schema: SCHEMA,
            workloads: Workload::all().to_vec(),
            protocols: protocol::all().iter().map(entry).collect(),
        }
    }

    pub(crate) fn json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    pub(crate) fn table(&self) -> String {
        let names: Vec<&str> = self.workloads.iter().map(|workload| workload.name()).collect();
        let mut text = format!("workloads: {}\n\n", names.join(", "));
        for entry in &self.protocols {
            let _ = write!(text, "{:<14} {}", entry.name, entry.about);
            if let Some(reason) = &entry.reason {
                let _ = write!(text, "\n{:<14} unavailable: {reason}", "");
            }
            text.push('\n');
        }
        text
    }
}
