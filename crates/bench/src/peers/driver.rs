//! What all drivers of our own in `peers/` share: their command line and the line of JSON that each side ends with.

use serde::Deserialize;

use super::{Scene, Told};
use crate::args::ReadKind;
use crate::check::CheckCounts;
use crate::control::{Role, SideReport};
use crate::run::Sample;
use crate::wait::WaitMode;
use crate::workload::Workload;

/// What a receiver says once it can be reached.
pub(super) const READY: &str = "ready";

/// What a driver says that was started by a launcher, once both sides have reported.
pub(super) const DONE: &str = "done";

/// The arguments of a driver. One that is started for both sides finds out its role by itself.
pub(super) fn arguments(role: Option<Role>, scene: &Scene) -> Vec<String> {
    let role = match role {
        Some(Role::Sender) => "sender",
        Some(Role::Receiver) => "receiver",
        None => "both",
    };
    // What is sent one way is the same to a driver, whatever the size.
    let workload = if scene.workload == Workload::PingPong { "pingpong" } else { "stream" };
    let mut arguments = vec![role.to_owned(), workload.to_owned()];
    let mut add = |name: &str, value: String| arguments.extend([format!("--{name}"), value]);
    add("size", scene.size.to_string());
    add("warmup-ns", scene.warmup_ns.to_string());
    add("duration-ns", scene.duration_ns.to_string());
    add("wait", scene.wait.name().to_owned());
    add("placement", scene.placement.name().to_owned());
    add("address", scene.receiver.address.to_string());
    add("sender-address", scene.sender.address.to_string());
    add("port", scene.port.to_string());
    if scene.read == ReadKind::Copy {
        add("read", "copy".to_owned());
    }
    for (name, seat) in [("sender-core", &scene.sender), ("receiver-core", &scene.receiver)] {
        if let Some(core) = seat.core {
            add(name, core.to_string());
        }
    }
    arguments
}

/// The line of one side.
#[derive(Debug, Deserialize)]
struct Line {
    peer: String,
    version: String,
    role: Role,
    /// How it really waited.
    wait: WaitMode,
    /// What carried it, in its own words.
    over: String,
    sent: u64,
    window_ns: u64,
    messages: u64,
    bytes: u64,
    cpu_ns: u64,
    received: u64,
    lost: u64,
    duplicated: u64,
    reordered: u64,
    damaged: u64,
    rtt_ns: Vec<(u64, u64)>,
    notes: Vec<String>,
}

impl Line {
    fn report(&self) -> SideReport {
        SideReport {
            window_ns: self.window_ns,
            messages: self.messages,
            bytes: self.bytes,
            cpu_ns: self.cpu_ns,
            sent: self.sent,
            counts: CheckCounts {
                messages: self.received,
                bytes: 0,
                lost: self.lost,
                duplicated: self.duplicated,
                reordered: self.reordered,
                damaged: self.damaged,
            },
            rtt_ns: self.rtt_ns.clone(),
            notes: self.notes.clone(),
            ..SideReport::default()
        }
    }
}

fn misunderstood(line: &str, error: &serde_json::Error) -> String {
    let start: String = line.chars().take(80).collect();
    format!("driver: its report is not understood: {error}: `{start}`; build it again: make peers")
}

/// What both sides measured, whichever program told it.
pub(super) fn sample(told: &Told) -> Result<Sample, String> {
    let lines = told.sender.lines.iter().chain(&told.receiver.lines);
    let told = lines.filter(|line| line.starts_with("{\"peer\""));
    let parsed: Vec<Line> = told
        .map(|line| serde_json::from_str(line).map_err(|error| misunderstood(line, &error)))
        .collect::<Result<_, _>>()?;
    let side = |role: Role, name: &str| {
        parsed.iter().find(|line| line.role == role).ok_or_else(|| format!("the {name} reported nothing"))
    };
    let (sender, receiver) = (side(Role::Sender, "sender")?, side(Role::Receiver, "receiver")?);
    Ok(Sample {
        sender: sender.report(),
        receiver: receiver.report(),
        waits: Some(sender.wait),
        remarks: vec![format!("{} {} over {}", sender.peer, sender.version, sender.over)],
        ..Sample::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::Words;

    const SENDER: &str = r#"{"peer":"nng","version":"1.5.2","role":"sender","wait":"block","over":"tcp","sent":12,"window_ns":1000,"messages":10,"bytes":640,"cpu_ns":7,"received":12,"lost":0,"duplicated":0,"reordered":0,"damaged":0,"rtt_ns":[[100,9],[200,1]],"notes":[]}"#;
    const RECEIVER: &str = r#"{"peer":"nng","version":"1.5.2","role":"receiver","wait":"block","over":"tcp","sent":0,"window_ns":1001,"messages":11,"bytes":704,"cpu_ns":8,"received":12,"lost":1,"duplicated":2,"reordered":3,"damaged":4,"rtt_ns":[],"notes":["not pinned"]}"#;

    fn words(lines: &[&str]) -> Words {
        Words { lines: lines.iter().map(|&line| line.to_owned()).collect(), ..Words::default() }
    }

    #[test]
    fn both_sides_are_found_whichever_program_told_them() {
        let apart = Told { sender: words(&["hello", SENDER]), receiver: words(&[READY, RECEIVER]) };
        let together = Told { sender: words(&[RECEIVER, "noise", SENDER]), receiver: Words::default() };
        for told in [apart, together] {
            let sample = sample(&told).unwrap();
            assert_eq!((sample.sender.messages, sample.receiver.bytes), (10, 704));
            assert_eq!(sample.sender.rtt_ns, [(100, 9), (200, 1)]);
            let counts = sample.receiver.counts;
            assert_eq!((counts.lost, counts.duplicated, counts.reordered, counts.damaged), (1, 2, 3, 4));
            assert_eq!(
                (sample.waits, sample.remarks),
                (Some(WaitMode::Block), vec!["nng 1.5.2 over tcp".into()])
            );
        }
    }

    #[test]
    fn a_side_that_is_missing_or_makes_no_sense_is_told() {
        let told = Told { sender: words(&[SENDER]), receiver: Words::default() };
        assert_eq!(sample(&told).unwrap_err(), "the receiver reported nothing");
        let told = Told { sender: words(&["{\"peer\":1}"]), receiver: Words::default() };
        assert!(sample(&told).unwrap_err().contains("`{\"peer\":1}`"));
    }
}
