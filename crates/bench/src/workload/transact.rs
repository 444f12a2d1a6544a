//! A connection, one message each way, its end; the next after that: times as the calling side sees them.

use std::io;

use super::{FAILED_AFTER_NS, Histogram, Mark, Silence, Surroundings, Window};
use crate::check::{CheckCounts, number_of, stamp};
use crate::clock::now_ns;
use crate::control::{Job, SideReport};
use crate::protocol::{Answerer, Caller};

pub(crate) fn call(job: &Job, caller: &mut dyn Caller, around: Surroundings) -> io::Result<SideReport> {
    let size = job.setup.size;
    let (mut message, mut answer) = (vec![0x5A; size], vec![0; size]);
    let mut histogram = Histogram::new();
    let mut counts = CheckCounts::default();
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
        let report = |report| SideReport { sent: number + 1, counts, rtt_ns: histogram.buckets(), ..report };
        if let Some(done) = window.round(mark, around.progress, report) {
            return Ok(done);
        }
    }
    unreachable!("the numbers last for centuries")
}

/// Answers until as many have called as will.
pub(crate) fn answer(answerer: &mut dyn Answerer, around: Surroundings) -> io::Result<SideReport> {
    let mut counts = CheckCounts::default();
    let mut silence = Silence::of(FAILED_AFTER_NS);
    loop {
        let came = answerer.answer()?;
        counts.messages += u64::from(came);
        if let Some(sent) = silence.ends(usize::from(came), around.drain_expected(), counts.messages) {
            counts.lost = sent - counts.messages.min(sent);
            return Ok(SideReport { counts, ..SideReport::default() });
        }
    }
}
