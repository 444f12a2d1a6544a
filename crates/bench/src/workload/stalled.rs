//! A receiver that stops reading while its sender pushes on: the sides of `stalled`.
//!
//! Flow control that works makes the sender stand still and keeps the memory of both sides within bounds; afterwards
//! everything must still arrive.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{FAILED_AFTER_NS, Mark, PROGRESS_EVERY_NS, Silence, Surroundings, Window};
use crate::check::{Check, compose};
use crate::clock::now_ns;
use crate::control::{Job, SideReport};
use crate::memory::MemoryWatch;
use crate::protocol::Pipe;

/// Standing still for this long is being blocked.
pub(crate) const BLOCKED_NS_MIN: u64 = 500_000_000;

/// Pushes `bytes_total` bytes of messages; tells how long it has stood still.
pub(super) fn push(job: &Job, pipe: &mut dyn Pipe, around: Surroundings) -> io::Result<SideReport> {
    let mut message = vec![0; job.setup.size];
    let count = job.bytes_total.div_ceil(job.setup.size as u64);
    let memory = MemoryWatch::start();
    let mut blocked =
        Blocked { taken_ns: now_ns(), told_ns: now_ns(), longest_ns: 0, sent: 0, memory_bytes_max: 0 };
    for number in 0..count {
        compose(&mut message, number, [0; 2]);
        while !pipe.send(&message)? {
            if let Some(blocked_ns) = blocked.tell() {
                (around.progress)(&SideReport { sent: number, blocked_ns, ..SideReport::default() });
            }
        }
        blocked.taken(number, &memory);
        // Also told of while nothing blocks: whoever looks on must see a receiver's blockade broken.
        if blocked.tell().is_some() {
            (around.progress)(&SideReport { sent: number + 1, ..SideReport::default() });
        }
    }
    Ok(SideReport {
        sent: count,
        messages: blocked.sent,
        blocked_ns: blocked.longest_ns,
        memory: Some(memory.report(blocked.memory_bytes_max)),
        ..SideReport::default()
    })
}

/// How long the sender has stood still.
struct Blocked {
    /// When a message was taken last, and when of standing still was told last.
    taken_ns: u64,
    told_ns: u64,
    longest_ns: u64,
    /// Messages sent before it stood still for the longest time.
    sent: u64,
    /// The most memory until then, in bytes.
    memory_bytes_max: u64,
}

impl Blocked {
    /// How long it has been standing still, when it is time to tell.
    fn tell(&mut self) -> Option<u64> {
        let now = now_ns();
        if now - self.told_ns < PROGRESS_EVERY_NS {
            return None;
        }
        self.told_ns = now;
        Some(now - self.taken_ns)
    }

    fn taken(&mut self, number: u64, memory: &MemoryWatch) {
        let now = now_ns();
        let blocked_ns = now - self.taken_ns;
        if blocked_ns > self.longest_ns.max(BLOCKED_NS_MIN) {
            (self.longest_ns, self.sent) = (blocked_ns, number);
            self.memory_bytes_max = memory.bytes_max();
        }
        self.taken_ns = now;
    }
}

/// Reads nothing until it is told to read on, then everything.
pub(super) fn take(job: &Job, pipe: &mut dyn Pipe, around: Surroundings) -> io::Result<SideReport> {
    let memory = MemoryWatch::start();
    while !around.resume.load(Ordering::Relaxed) && around.drain_expected().is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let blocked_bytes_max = memory.bytes_max();
    let mut check = Check::of_contents(job.setup.size);
    let mut silence = Silence::of(FAILED_AFTER_NS);
    let mut window = Window::new(job, now_ns());
    loop {
        let count = pipe.recv(&mut |message| check.observe(message))?;
        let (now, counts) = (now_ns(), check.counts());
        let mark = Mark { now_ns: now, messages: counts.messages, bytes: counts.bytes };
        let due = window.tick(mark);
        if due {
            (around.progress)(&SideReport { counts, ..window.so_far(mark) });
        }
        if let Some(expected) = silence.ends(count, around.drain_expected(), counts.messages) {
            let memory = Some(memory.report(blocked_bytes_max));
            return Ok(SideReport { counts: check.finish(expected), memory, ..window.so_far(mark) });
        }
    }
}
