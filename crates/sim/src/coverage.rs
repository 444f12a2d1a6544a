//! What the seeds of a run reached, counted: a kind of frame, fault, drop or transition that never occurs is a check
//! that never looked.

use crate::network::{DropReason, Record, peek};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Counts by group and name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    counts: BTreeMap<(&'static str, String), u64>,
}

impl Coverage {
    /// Adds `count` to `name` of `group`. A count of 0 makes the line appear.
    pub fn add(&mut self, group: &'static str, name: impl Into<String>, count: u64) {
        *self.counts.entry((group, name.into())).or_default() += count;
    }

    /// Adds what the network saw.
    pub fn add_record(&mut self, record: &Record) {
        // Bearer state (5) and transfer abort (0x0a) are formats that no node sends (yet): nothing to cover.
        let kinds =
            [1, 2, 3, 4, 6, 7, 8, 9, 0x10, 0x11, 0x14, 0x18, 0x19, 0x1c, 0x20, 0x21, 0x22, 0x24, 0x80];
        for kind in kinds {
            self.add("frame", peek::frame_name(kind), record.frames.get(&kind).copied().unwrap_or(0));
        }
        for (kind, count) in &record.frames {
            if peek::frame_name(*kind) == "other" {
                self.add("frame", format!("other {kind:#04x}"), *count);
            }
        }
        for kind in [0, 1, 2, 4, 6] {
            self.add("packet", peek::packet_name(kind), record.packets.get(&kind).copied().unwrap_or(0));
        }
        for reason in DropReason::ALL {
            self.add("drop", reason.name(), record.dropped(reason));
        }
        self.add("network", "datagrams sent", record.sent_datagrams);
        self.add("network", "trains sent", record.sent_trains);
        self.add("network", "bytes sent", record.sent_bytes);
        self.add("network", "datagrams arrived", record.arrived_datagrams);
        self.add("network", "sends blocked", record.blocked);
        self.add("network", "links of sessions, each way", record.streams.links);
        self.add("network", "units duplicated", record.duplicated);
        self.add("network", "units replayed", record.replayed);
        self.add("network", "datagrams corrupted past the checksum", record.corrupted);
        self.add("network", "datagrams injected", record.injected);
    }

    /// Adds the counts of another run.
    pub fn merge(&mut self, other: &Coverage) {
        for (key, count) in &other.counts {
            *self.counts.entry(key.clone()).or_default() += count;
        }
    }

    /// The count of a name.
    pub fn get(&self, group: &'static str, name: &str) -> u64 {
        self.counts.get(&(group, name.to_owned())).copied().unwrap_or(0)
    }

    /// The table for people; what never occurred is marked.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let mut last = "";
        for ((group, name), count) in &self.counts {
            if *group != last {
                let _ = writeln!(text, "{group}");
                last = group;
            }
            let mark = if *count == 0 { "  NEVER" } else { "" };
            let _ = writeln!(text, "  {name:<44} {count:>14}{mark}");
        }
        text
    }

    /// The table as a JSON object of objects.
    pub fn json(&self) -> String {
        let mut text = String::from("{");
        let mut last = "";
        for ((group, name), count) in &self.counts {
            if *group != last {
                let close = if last.is_empty() { "" } else { "}," };
                let _ = write!(text, "{close}\"{group}\":{{");
                last = group;
            } else {
                text.push(',');
            }
            let _ = write!(text, "\"{}\":{count}", name.replace('"', "'"));
        }
        text.push_str(if last.is_empty() { "}" } else { "}}" });
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_occurred_is_marked() {
        let mut coverage = Coverage::default();
        coverage.add("fault", "restart", 3);
        coverage.add("fault", "clone", 0);
        let mut other = Coverage::default();
        other.add("fault", "restart", 4);
        coverage.merge(&other);
        assert_eq!(coverage.get("fault", "restart"), 7);
        let table = coverage.table();
        assert!(table.lines().any(|line| line.contains("clone") && line.ends_with("NEVER")), "{table}");
        assert_eq!(coverage.json(), r#"{"fault":{"clone":0,"restart":7}}"#);
    }
}
