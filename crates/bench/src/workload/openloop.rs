//! Messages that arrive at a fixed rate: how long after they were due, and after they were sent, they are received.

use std::io;

use super::{FAILED_AFTER_NS, Histogram, LOST_AFTER_NS, Mark, Silence, Surroundings, Window};
use crate::check::{Check, times_ns};
use crate::clock::{machine_ns, now_ns};
use crate::control::{Job, SideReport};
use crate::protocol::Pipe;

/// The receiving side; the sending one is that of a stream with a pace.
pub(super) fn receive(
    job: &Job,
    pipe: &mut dyn Pipe,
    reliable: bool,
    around: Surroundings,
) -> io::Result<SideReport> {
    let mut check = Check::new(job.setup.size);
    let mut times = Times { corrected: Histogram::new(), raw: Histogram::new() };
    let mut silence = Silence::of(if reliable { FAILED_AFTER_NS } else { LOST_AFTER_NS });
    let mut window: Option<Window> = None;
    loop {
        let open = window.as_ref().is_some_and(Window::is_open);
        let count = pipe.recv(&mut |message| {
            let (received_ns, before) = (job.to_sender_ns(machine_ns()), check.counts().messages);
            check.observe(message);
            if open && check.counts().messages > before {
                times.take(message, received_ns);
            }
        })?;
        let (now, counts) = (now_ns(), check.counts());
        let mark = Mark { now_ns: now, messages: counts.messages, bytes: counts.bytes };
        // The window counts from the first arrival: connecting is not part of it.
        if window.is_none() && counts.messages > 0 {
            window = Some(Window::new(job, now));
        }
        let due = window.as_mut().is_some_and(|window| window.tick(mark));
        let so_far = || times.report(window.as_ref().map(|window| window.so_far(mark)).unwrap_or_default());
        if let Some(expected) = silence.ends(count, around.drain_expected(), counts.messages) {
            return Ok(SideReport { counts: check.finish(expected), ..so_far() });
        }
        if due {
            (around.progress)(&SideReport { counts, ..so_far() });
        }
    }
}

/// How late messages were.
struct Times {
    /// From when a message was due.
    corrected: Histogram,
    /// From when its sending began: what it waited before, because others were held up, is left out.
    raw: Histogram,
}

impl Times {
    fn take(&mut self, message: &[u8], received_ns: u64) {
        if let Some([due_ns, begun_ns]) = times_ns(message) {
            self.corrected.record(received_ns.saturating_sub(due_ns));
            self.raw.record(received_ns.saturating_sub(begun_ns));
        }
    }

    fn report(&self, report: SideReport) -> SideReport {
        SideReport { rtt_ns: self.corrected.buckets(), raw_ns: self.raw.buckets(), ..report }
    }
}
