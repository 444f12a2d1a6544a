//! iperf3: one TCP stream with cubic, as its receiver counts it.

use std::path::PathBuf;

use serde::Deserialize;

use super::{Cast, Facts, Peer, Place, Ready, Scene, Told, place, whole_seconds};
use crate::control::SideReport;
use crate::errand::Errand;
use crate::run::Sample;
use crate::wait::WaitMode;
use crate::workload::Workload;

pub(super) struct Iperf3;

static FACTS: Facts = Facts { name: "iperf3", reliable: true, striped: false };

/// The largest block it takes.
const BLOCK_BYTES_MAX: usize = 1 << 20;

impl Peer for Iperf3 {
    fn facts(&self) -> &Facts {
        &FACTS
    }

    fn program(&self) -> Result<PathBuf, String> {
        place::installed("iperf3", "apt-get install iperf3")
    }

    fn supports(&self, workload: Workload, _: Place, size: usize) -> Result<(), String> {
        match workload {
            Workload::Stream if size <= BLOCK_BYTES_MAX => Ok(()),
            Workload::Stream => Err(format!("takes blocks of up to {BLOCK_BYTES_MAX} bytes")),
            _ => Err("counts a stream of bytes, no messages: see stream".to_owned()),
        }
    }

    fn cast(&self, program: PathBuf, scene: &Scene) -> Cast {
        let (address, port) = (scene.receiver.address.to_string(), scene.port.to_string());
        // No reports on the way: each asks the kernel for the connection's state.
        let common = ["-J", "-i", "0", "-p", &port];
        let serve = ["-s", "-1", "-B", &address];
        let (warmup, duration) = (whole_seconds(scene.warmup_ns), whole_seconds(scene.duration_ns));
        let (warmup, duration) = (warmup.to_string(), duration.to_string());
        let size = scene.size.to_string();
        let call = ["-c", &address, "-C", "cubic", "-l", &size, "-t", &duration, "-O", &warmup];
        let errand = |args: &[&str], core| Errand {
            program: program.clone(),
            args: common.iter().chain(args).map(|&arg| arg.to_owned()).collect(),
            core,
            ..Errand::default()
        };
        Cast::Two {
            receiver: errand(&serve, scene.receiver.core),
            ready: Ready::ListensTcp,
            ends_itself: true,
            sender: errand(&call, scene.sender.core),
        }
    }

    fn sample(&self, scene: &Scene, told: &Told) -> Result<Sample, String> {
        let sender = parse(&told.sender.lines)?;
        let receiver = parse(&told.receiver.lines)?;
        let report = |document: &Document, count: &Count| SideReport {
            window_ns: nanoseconds(count.seconds),
            messages: count.bytes / scene.size as u64,
            bytes: count.bytes,
            cpu_ns: nanoseconds(document.end.cpu.host_total / 100.0 * count.seconds),
            ..SideReport::default()
        };
        Ok(Sample {
            sender: report(&sender, &sender.end.sum_sent),
            receiver: report(&receiver, &receiver.end.sum_received),
            waits: Some(WaitMode::Block),
            remarks: vec![format!(
                "{}, warm-up {} s and window {} s: it takes whole seconds",
                sender.start.version,
                whole_seconds(scene.warmup_ns),
                whole_seconds(scene.duration_ns)
            )],
            ..Sample::default()
        })
    }
}

/// What matters in the document of either side.
#[derive(Debug, Deserialize)]
struct Document {
    start: Start,
    end: End,
}

#[derive(Debug, Deserialize)]
struct Start {
    version: String,
}

#[derive(Debug, Deserialize)]
struct End {
    sum_sent: Count,
    sum_received: Count,
    #[serde(rename = "cpu_utilization_percent")]
    cpu: Cpu,
}

#[derive(Debug, Deserialize)]
struct Count {
    seconds: f64,
    bytes: u64,
}

#[derive(Debug, Deserialize)]
struct Cpu {
    host_total: f64,
}

fn parse(lines: &[String]) -> Result<Document, String> {
    #[derive(Deserialize)]
    struct Failure {
        error: String,
    }
    let text = lines.join("\n");
    // Its own words first: a failed run has most of the document, too.
    if let Ok(failure) = serde_json::from_str::<Failure>(&text) {
        return Err(format!("iperf3: {}", failure.error));
    }
    serde_json::from_str(&text).map_err(|error| format!("iperf3: report not understood: {error}"))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a negative or endless time becomes a bound"
)]
fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}
