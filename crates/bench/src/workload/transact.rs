//! A connection, one message each way, its end; the next after that: times as the calling side sees them.

use std::io;

use super::{FAILED_AFTER_NS, Histogram, Mark, Silence, Surroundings, Window};
use crate::check::{CheckCounts, number_of, stamp};
use crate::clock::now_ns;
use crate::control::{Job, SideReport};
use crate::memory::RoundsMemory;
use crate::protocol::{Answerer, Caller};

pub(crate) fn call(job: &Job, caller: &mut dyn Caller, around: Surroundings) -> io::Result<SideReport> {
    let size = job.setup.size;
    let (mut message, mut answer) = (vec![0x5A; size], vec![0; size]);
    let mut histogram = Histogram::new();
    let mut counts = CheckCounts::default();
    let mut memory = RoundsMemory::default();
    let mut window = Window::new(job, now_ns());
    for number in 0_u64.. {
        stamp(&mut message, number);
        let called_ns = now_ns();
        caller.call(&message, &mut answer)?;
        let now = now_ns();
        match number_of(&answer, size) {
            Some(got) if got == number => counts.messages += 1,
            Some(_) => counts.reordered += 1,
            None => counts.damaged += 1,
        }
        if window.is_open() {
            histogram.record(now - called_ns);
        }
        let mark = Mark { now_ns: now, messages: counts.messages, bytes: counts.messages * size as u64 };
        memory.note(number + 1);
        let report = |report| SideReport {
            sent: number + 1,
            counts,
            rtt_ns: histogram.buckets(),
            memory: memory.report(),
            ..report
        };
        if let Some(done) = window.round(mark, around.progress, report) {
            return Ok(done);
        }
    }
    unreachable!("the numbers last for centuries")
}

/// Answers until as many have called as will.
pub(crate) fn answer(answerer: &mut dyn Answerer, around: Surroundings) -> io::Result<SideReport> {
    let mut counts = CheckCounts::default();
    let mut memory = RoundsMemory::default();
    let mut silence = Silence::of(FAILED_AFTER_NS);
    loop {
        let came = answerer.answer()?;
        counts.messages += u64::from(came);
        memory.note(counts.messages);
        if let Some(sent) = silence.ends(usize::from(came), around.drain_expected(), counts.messages) {
            counts.lost = sent - counts.messages.min(sent);
            return Ok(SideReport { counts, memory: memory.report(), ..SideReport::default() });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64};

    use super::super::tests::{job_for_tests, setup_for_tests};
    use super::*;

    /// Gives back what it got; some of the calls after the first thousand leave a mebibyte behind.
    #[derive(Default)]
    struct Leaking {
        calls: usize,
        left: Vec<Vec<u8>>,
    }

    impl Caller for Leaking {
        fn call(&mut self, message: &[u8], answer: &mut [u8]) -> io::Result<()> {
            answer.copy_from_slice(message);
            self.calls += 1;
            if self.calls > 1_000 && self.left.len() < 32 {
                self.left.push(vec![1; 1 << 20]);
            }
            Ok(())
        }
    }

    #[test]
    fn what_stays_of_transactions_is_seen() {
        let (drain, resume) = (AtomicU64::new(0), AtomicBool::new(false));
        let mut caller = Leaking::default();
        let memory = loop {
            let job = Job { duration_ns: 200_000_000, ..job_for_tests(setup_for_tests(64)) };
            let around = Surroundings { drain: &drain, resume: &resume, progress: &mut |_| () };
            let report = call(&job, &mut caller, around).unwrap();
            assert_eq!(report.sent, report.counts.messages);
            if let Some(memory) = report.memory.filter(|_| caller.left.len() == 32) {
                break memory;
            }
            // So busy a machine that it was over too early.
            caller = Leaking::default();
        };
        // Other tests give memory back meanwhile.
        assert!(memory.bytes_max > memory.start_bytes + (8 << 20), "{memory:?}");
    }
}
