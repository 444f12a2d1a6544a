//! One-way messages as fast as they go: the sides of `stream` and `rate`.
//!
//! The receiver counts: what a sender has handed to its kernel is not yet anywhere.

use std::io;

use super::crowd::first_number;
use super::{FAILED_AFTER_NS, LOST_AFTER_NS, Mark, Silence, Surroundings, Window};
use crate::args::SendKind;
use crate::check::{Check, stamp, stamp_times};
use crate::clock::{machine_ns, now_ns};
use crate::control::{Job, SideReport};
use crate::pace::{Pace, wait_until};
use crate::protocol::Pipe;

/// Bytes between two looks at the clock: often enough for the window, seldom enough to cost nothing.
const LOOK_EVERY_BYTES: usize = 64 * 1024;
/// Messages between two looks at the clock, where they are small.
const LOOK_EVERY_MESSAGES_MAX: usize = 64;
/// How much longer than the window the sender goes on, so that the receiver's later window is full to its end.
const TAIL_NS: u64 = 100_000_000;
/// Longest wait for a message that is not due yet until the window is looked at.
const PACE_WAIT_NS_MAX: u64 = 10_000_000;
/// How long a message half sent may take to be finished once time is up.
const FINISH_NS: u64 = 400_000_000;

pub(super) fn send(job: &Job, pipe: &mut dyn Pipe, around: Surroundings) -> io::Result<SideReport> {
    let size = job.setup.size;
    let mut source = Source::of(job);
    let start_ns = now_ns();
    let mut window = Window::new(job, start_ns);
    let mut end_ns = u64::MAX;
    let mut sent: u64 = 0;
    loop {
        let (count, blocked) = source.turn(pipe, sent)?;
        sent += count;
        let mark = Mark { now_ns: now_ns(), messages: sent, bytes: sent * size as u64 };
        let due = window.tick(mark);
        if window.is_closed() && end_ns == u64::MAX {
            end_ns = mark.now_ns + TAIL_NS.max(window.tail_ns);
        }
        // A message half sent must be finished, or the receiver waits for its rest; not for ever, though.
        if mark.now_ns >= end_ns && (!blocked || mark.now_ns - end_ns >= FINISH_NS) {
            while !pipe.flush()? && now_ns() - end_ns < FINISH_NS {}
            return Ok(SideReport { sent, ..window.so_far(mark) });
        }
        if due {
            (around.progress)(&SideReport { sent, ..window.so_far(mark) });
        }
    }
}

/// Where a sender has its messages from.
struct Source<'a> {
    job: &'a Job,
    /// Number of the first.
    first: u64,
    /// Messages of one turn, where one call takes them all; one message otherwise.
    messages: Vec<Vec<u8>>,
    /// How many of those were taken: all must be before they are written anew.
    taken: usize,
    paced: Option<Paced>,
}

impl<'a> Source<'a> {
    fn of(job: &'a Job) -> Self {
        let size = job.setup.size;
        let count = if job.setup.send == SendKind::Batch { look_every(size) } else { 1 };
        let paced = job.pace.map(|pace| Paced { pace, start_ns: machine_ns(), prepared: None });
        Self { job, first: first_number(job), messages: vec![vec![0x5A; size]; count], taken: count, paced }
    }

    /// Sends what comes between two looks at the clock, `sent` messages being sent; how many there were, and whether the pipe takes no
    /// more now.
    fn turn(&mut self, pipe: &mut dyn Pipe, sent: u64) -> io::Result<(u64, bool)> {
        if self.messages.len() > 1 { self.send_each(pipe, sent) } else { self.send_one_by_one(pipe, sent) }
    }

    fn send_each(&mut self, pipe: &mut dyn Pipe, sent: u64) -> io::Result<(u64, bool)> {
        if self.taken == self.messages.len() {
            self.taken = 0;
            (self.first + sent..)
                .zip(&mut self.messages)
                .for_each(|(number, message)| stamp(message, number));
        }
        let count = pipe.send_each(&self.messages[self.taken..])?;
        self.taken += count;
        Ok((count as u64, self.taken < self.messages.len()))
    }

    fn send_one_by_one(&mut self, pipe: &mut dyn Pipe, sent: u64) -> io::Result<(u64, bool)> {
        let message = &mut self.messages[0];
        let most = look_every(message.len()) as u64;
        for count in 0..most {
            match &mut self.paced {
                None => stamp(message, self.first + sent + count),
                Some(paced) => {
                    if !paced.prepare(pipe, message, sent + count, self.job)? {
                        return Ok((count, false));
                    }
                }
            }
            if !pipe.send(message)? {
                return Ok((count, true));
            }
        }
        Ok((most, false))
    }
}

/// Messages that are due one after the other.
struct Paced {
    pace: Pace,
    start_ns: u64,
    /// The number of the message that is prepared: one half sent must stay as it is.
    prepared: Option<u64>,
}

impl Paced {
    /// Makes the message ready to be sent, once it is due; false: that is some time off.
    fn prepare(
        &mut self,
        pipe: &mut dyn Pipe,
        message: &mut [u8],
        number: u64,
        job: &Job,
    ) -> io::Result<bool> {
        if self.prepared == Some(number) {
            return Ok(true);
        }
        let due_ns = self.pace.due_ns(self.start_ns, number);
        if machine_ns() < due_ns {
            // What was kept back to be sent with more would be late for no reason.
            pipe.flush()?;
        }
        if !wait_until(due_ns, job.setup.wait, PACE_WAIT_NS_MAX) {
            return Ok(false);
        }
        stamp(message, number);
        if job.workload.carries_times() {
            stamp_times(message, [due_ns, machine_ns()]);
        }
        self.prepared = Some(number);
        Ok(true)
    }
}

pub(super) fn receive(
    job: &Job,
    pipe: &mut dyn Pipe,
    reliable: bool,
    around: Surroundings,
) -> io::Result<SideReport> {
    let size = job.setup.size;
    let mut check = Check::new(size);
    let patience_ns = if reliable { FAILED_AFTER_NS } else { LOST_AFTER_NS };
    let look_every = look_every(size);
    let mut window: Option<Window> = None;
    let mut silence = Silence::of(patience_ns);
    let (mut turns, mut arrived) = (0, 0);
    loop {
        let count = match pipe.recv(&mut |message| check.observe(message)) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(ended_early()),
            other => other?,
        };
        turns += 1;
        arrived += count;
        if count > 0 && arrived < look_every && turns < look_every && window.is_some() {
            continue;
        }
        let now = now_ns();
        let came = std::mem::take(&mut arrived);
        turns = 0;
        let counts = check.counts();
        let mark = Mark { now_ns: now, messages: counts.messages, bytes: counts.bytes };
        // The window counts from the first arrival: connecting is not streaming.
        if window.is_none() && counts.messages > 0 {
            window = Some(Window::new(job, now));
        }
        let due = window.as_mut().is_some_and(|window| window.tick(mark));
        let so_far = || window.as_ref().map(|window| window.so_far(mark)).unwrap_or_default();
        if let Some(expected) = silence.ends(came, around.drain_expected(), counts.messages) {
            return Ok(SideReport { counts: check.finish(expected), ..so_far() });
        }
        if due {
            (around.progress)(&SideReport { counts, ..so_far() });
        }
    }
}

fn look_every(size: usize) -> usize {
    (LOOK_EVERY_BYTES / size).clamp(1, LOOK_EVERY_MESSAGES_MAX)
}

fn ended_early() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the sender closed the connection in mid-run")
}
