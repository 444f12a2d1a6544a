//! The least C program that makes transactions over TCP (`tests/right/transact.c`): what the instrument itself adds is
//! the ratio to it.

use std::path::PathBuf;

use super::{Cast, Facts, Peer, Place, Ready, Scene, Told, place};
use crate::control::SideReport;
use crate::errand::Errand;
use crate::run::Sample;
use crate::wait::WaitMode;
use crate::workload::{Histogram, Workload};

pub(super) struct TransactC;

static FACTS: Facts = Facts { name: "transact-c", reliable: true, striped: false };

/// What the program has room for.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Where the calling side writes its times: in memory of its node, gone with it.
const TIMES: &str = "/dev/shm/transact.ns";

impl Peer for TransactC {
    fn facts(&self) -> &Facts {
        &FACTS
    }

    fn program(&self) -> Result<PathBuf, String> {
        place::driver("peer-transact-c", "make -C peers transact-c")
    }

    fn supports(&self, workload: Workload, _: Place, size: usize) -> Result<(), String> {
        match workload {
            Workload::Transact if size <= MESSAGE_BYTES_MAX => Ok(()),
            Workload::Transact => Err(format!("takes messages of up to {MESSAGE_BYTES_MAX} bytes")),
            _ => Err("makes transactions over TCP, nothing else: see transact".to_owned()),
        }
    }

    fn cast(&self, program: PathBuf, scene: &Scene) -> Cast {
        let at = [scene.receiver.address.to_string(), scene.port.to_string(), scene.size.to_string()];
        let errand = |verb: &str, more: &[String], core, file| Errand {
            program: program.clone(),
            args: [verb.to_owned()].iter().chain(&at).chain(more).cloned().collect(),
            core,
            file,
            ..Errand::default()
        };
        let times = [scene.warmup_ns.to_string(), scene.duration_ns.to_string(), TIMES.to_owned()];
        Cast::Two {
            receiver: errand("answer", &[], scene.receiver.core, None),
            ready: Ready::ListensTcp,
            ends_itself: false,
            sender: errand("call", &times, scene.sender.core, Some(TIMES.into())),
        }
    }

    fn sample(&self, scene: &Scene, told: &Told) -> Result<Sample, String> {
        let sender = read(told.sender.ending.file.as_deref().unwrap_or_default(), scene.duration_ns)?;
        Ok(Sample { sender, waits: Some(WaitMode::Block), ..Sample::default() })
    }
}

/// The times of the transactions that began within `window_ns`.
fn read(times: &str, window_ns: u64) -> Result<SideReport, String> {
    let mut histogram = Histogram::new();
    let mut messages = 0;
    for line in times.lines() {
        let time_ns = line.parse().map_err(|_| format!("transact.c: no time: `{line}`"))?;
        histogram.record(time_ns);
        messages += 1;
    }
    if messages == 0 {
        return Err("transact.c: not one transaction in its window".to_owned());
    }
    Ok(SideReport { rtt_ns: histogram.buckets(), messages, window_ns, ..SideReport::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_and_nonsense_is_told() {
        let report = read("90000\n91000\n90000\n", 1_000).unwrap();
        assert_eq!((report.messages, report.window_ns), (3, 1_000));
        assert_eq!(report.rtt_ns.iter().map(|(_, count)| count).sum::<u64>(), 3);
        assert!(read("", 1).unwrap_err().contains("not one"));
        assert!(read("9\nx\n", 1).unwrap_err().contains("`x`"));
    }
}
