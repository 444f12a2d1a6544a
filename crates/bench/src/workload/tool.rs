//! What the instrument itself costs: a workload's own code over a protocol that does nothing.
//!
//! A protocol whose time for a message is not far above this cannot be judged by this instrument, and the report says so.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use super::{NOT_DRAINING, Surroundings, Workload, play};
use crate::check::{stamp, stamp_times};
use crate::clock::{machine_ns, now_ns};
use crate::control::{Job, Role, SideReport};
use crate::protocol::Pipe;

/// The instrument's own time for a message, or for a round trip.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCost {
    /// Of the sending, asking side, in ns.
    pub sender_ns: f64,
    /// Of the receiving side, in ns; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receiver_ns: Option<f64>,
}

impl ToolCost {
    /// That of the side that has more to do, in ns.
    pub(crate) fn most_ns(self) -> f64 {
        self.receiver_ns.map_or(self.sender_ns, |receiver_ns| receiver_ns.max(self.sender_ns))
    }
}

/// How long each side is watched.
const WATCH_NS: u64 = 10_000_000;

/// Takes the cost, in about an eighth of a second; none for workloads whose own code does not matter.
pub(crate) fn cost(job: &Job) -> io::Result<Option<ToolCost>> {
    if !(job.workload.is_one_way() || matches!(job.workload, Workload::PingPong | Workload::OpenLoop)) {
        return Ok(None);
    }
    let timed = |role| Job { role, warmup_ns: 0, duration_ns: WATCH_NS, pace: None, flows: 1, ..job.clone() };
    let mut nothing = Nothing { held: Vec::new() };
    let (never, resume) = (AtomicU64::new(NOT_DRAINING), AtomicBool::new(false));
    let around = Surroundings { drain: &never, resume: &resume, progress: &mut |_| {} };
    let sender = play(&timed(Role::Sender), &mut nothing, true, around)?;
    if job.workload == Workload::PingPong {
        return Ok(per_message(&sender).map(|sender_ns| ToolCost { sender_ns, receiver_ns: None }));
    }
    let drain = AtomicU64::new(NOT_DRAINING);
    let mut source = Source::new(job, &drain);
    let around = Surroundings { drain: &drain, resume: &resume, progress: &mut |_| {} };
    let receiver = play(&timed(Role::Receiver), &mut source, true, around)?;
    Ok(per_message(&sender).map(|sender_ns| ToolCost { sender_ns, receiver_ns: per_message(&receiver) }))
}

fn per_message(report: &SideReport) -> Option<f64> {
    (report.messages > 0).then(|| report.window_ns as f64 / report.messages as f64)
}

/// Takes every message at once; gives the last one back when it is asked.
struct Nothing {
    held: Vec<u8>,
}

impl Pipe for Nothing {
    fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        // The first bytes and the last: all that an answer is known by.
        self.held.resize(message.len(), 0);
        let ends = message.len().min(8);
        let last = message.len() - ends;
        self.held[..ends].copy_from_slice(&message[..ends]);
        self.held[last..].copy_from_slice(&message[last..]);
        Ok(true)
    }

    fn recv(&mut self, sink: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
        sink(&self.held);
        Ok(1)
    }
}

/// Has a message at every time, until the window must be over.
struct Source<'a> {
    message: Vec<u8>,
    timed: bool,
    count: u64,
    end_ns: u64,
    drain: &'a AtomicU64,
}

impl<'a> Source<'a> {
    fn new(job: &Job, drain: &'a AtomicU64) -> Self {
        let timed = job.workload.carries_times();
        Self { message: vec![0; job.setup.size], timed, count: 0, end_ns: now_ns() + 2 * WATCH_NS, drain }
    }
}

impl Pipe for Source<'_> {
    fn send(&mut self, _message: &[u8]) -> io::Result<bool> {
        Ok(true)
    }

    fn recv(&mut self, sink: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
        if self.count.is_multiple_of(1_024) && now_ns() > self.end_ns {
            self.drain.store(self.count, Ordering::Relaxed);
            return Ok(0);
        }
        stamp(&mut self.message, self.count);
        if self.timed && self.count.is_multiple_of(64) {
            stamp_times(&mut self.message, [machine_ns(); 2]);
        }
        sink(&self.message);
        self.count += 1;
        Ok(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{job_for_tests, setup_for_tests};

    #[test]
    fn the_instrument_has_a_cost_where_its_own_code_is_in_the_figure() {
        let cost = |workload, size| cost(&Job { workload, ..job_for_tests(setup_for_tests(size)) }).unwrap();
        for workload in [Workload::Stream, Workload::Rate, Workload::Datagram, Workload::OpenLoop] {
            let cost = cost(workload, 64).unwrap();
            assert!(cost.sender_ns > 0.0 && cost.receiver_ns > Some(0.0), "{workload:?} {cost:?}");
            assert!(cost.most_ns() >= cost.sender_ns);
        }
        let cost_of_asking = cost(Workload::PingPong, 8).unwrap();
        assert!(cost_of_asking.sender_ns > 0.0 && cost_of_asking.receiver_ns.is_none());
        assert_eq!(cost(Workload::Transact, 64), None);
    }
}
