//! What the instrument itself costs: a workload's own code over a protocol that does nothing.
//!
//! A protocol whose time for a message is not far above this cannot be judged by this instrument, and the report says so.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use super::{NOT_DRAINING, Surroundings, Workload, play};
use crate::check::{stamp, stamp_times};
use crate::clock::{machine_ns, now_ns};
use crate::control::{Job, Role};
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
/// Messages of one batch. The quickest batch counts: in the others the core may have been away.
const BATCH: u64 = 1_024;
/// Batches that are watched at least, however long that takes.
const BATCHES_MIN: u64 = 8;

/// Takes the cost, in about an eighth of a second; none for workloads whose own code does not matter.
pub(crate) fn cost(job: &Job) -> io::Result<Option<ToolCost>> {
    if !(job.workload.is_one_way() || matches!(job.workload, Workload::PingPong | Workload::OpenLoop)) {
        return Ok(None);
    }
    let timed = |role| Job { role, warmup_ns: 0, duration_ns: WATCH_NS, pace: None, flows: 1, ..job.clone() };
    let (never, resume) = (AtomicU64::new(NOT_DRAINING), AtomicBool::new(false));
    let mut nothing = Nothing { held: Vec::new(), batches: Batches::default() };
    let around = Surroundings { drain: &never, resume: &resume, progress: &mut |_| {} };
    play(&timed(Role::Sender), &mut nothing, true, around)?;
    let Some(sender_ns) = nothing.batches.message_ns() else { return Ok(None) };
    if job.workload == Workload::PingPong {
        return Ok(Some(ToolCost { sender_ns, receiver_ns: None }));
    }
    let drain = AtomicU64::new(NOT_DRAINING);
    let mut source = Source::new(job, &drain);
    let around = Surroundings { drain: &drain, resume: &resume, progress: &mut |_| {} };
    play(&timed(Role::Receiver), &mut source, true, around)?;
    Ok(Some(ToolCost { sender_ns, receiver_ns: source.batches.message_ns() }))
}

/// Times batches of messages.
#[derive(Default)]
struct Batches {
    count: u64,
    begun_ns: u64,
    best_ns: Option<u64>,
}

impl Batches {
    /// One more message.
    fn count(&mut self) {
        if self.count.is_multiple_of(BATCH) {
            let now = now_ns();
            if self.count > 0 {
                let batch_ns = now - self.begun_ns;
                self.best_ns = Some(self.best_ns.map_or(batch_ns, |best_ns| best_ns.min(batch_ns)));
            }
            self.begun_ns = now;
        }
        self.count += 1;
    }

    /// The time for a message in the quickest batch, in ns.
    fn message_ns(&self) -> Option<f64> {
        self.best_ns.map(|batch_ns| batch_ns as f64 / BATCH as f64)
    }
}

/// Takes every message at once; gives the last one back when it is asked.
struct Nothing {
    held: Vec<u8>,
    batches: Batches,
}

impl Pipe for Nothing {
    fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        self.batches.count();
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

/// Has a message at every time, until it was watched for long enough.
struct Source<'a> {
    message: Vec<u8>,
    timed: bool,
    batches: Batches,
    end_ns: u64,
    drain: &'a AtomicU64,
}

impl<'a> Source<'a> {
    fn new(job: &Job, drain: &'a AtomicU64) -> Self {
        let timed = job.workload.carries_times();
        let (message, batches) = (vec![0; job.setup.size], Batches::default());
        Self { message, timed, batches, end_ns: now_ns() + WATCH_NS, drain }
    }
}

impl Pipe for Source<'_> {
    fn send(&mut self, _message: &[u8]) -> io::Result<bool> {
        Ok(true)
    }

    fn recv(&mut self, sink: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
        let number = self.batches.count;
        if number >= BATCH * BATCHES_MIN && number.is_multiple_of(BATCH) && now_ns() > self.end_ns {
            self.drain.store(number, Ordering::Relaxed);
            return Ok(0);
        }
        self.batches.count();
        stamp(&mut self.message, number);
        if self.timed && number.is_multiple_of(64) {
            stamp_times(&mut self.message, [machine_ns(); 2]);
        }
        sink(&self.message);
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
