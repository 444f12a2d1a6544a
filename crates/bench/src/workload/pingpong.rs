//! One message each way, the next after the answer: round-trip times as the client sees them.

use std::collections::BTreeSet;
use std::io;

use super::crowd::first_number;
use super::{Histogram, Mark, Surroundings, Window};
use crate::args::SendKind;
use crate::check::{CheckCounts, number_of, stamp};
use crate::clock::now_ns;
use crate::control::{Job, SideReport};
use crate::protocol::Pipe;

/// Wait after which an unreliable protocol's message or answer is taken as lost.
const LOST_AFTER_NS: u64 = 100_000_000;
/// Wait after which a reliable protocol has failed.
const HUNG_AFTER_NS: u64 = 3_000_000_000;

pub(super) fn ask(
    job: &Job,
    pipe: &mut dyn Pipe,
    reliable: bool,
    around: Surroundings,
) -> io::Result<SideReport> {
    let size = job.setup.size;
    let first = first_number(job);
    let mut message = vec![0x5A; size];
    let mut histogram = Histogram::new();
    let mut counts = CheckCounts::default();
    let mut given_up = BTreeSet::new();
    let mut window = Window::new(job, now_ns());
    let patience_ns = if reliable { HUNG_AFTER_NS } else { LOST_AFTER_NS };
    for number in first.. {
        stamp(&mut message, number);
        let asked_ns = now_ns();
        let answered = exchange(pipe, &message, number, asked_ns + patience_ns, &mut counts, &mut given_up)?;
        let now = now_ns();
        if answered {
            counts.messages += 1;
            if window.is_open() {
                histogram.record(now - asked_ns);
            }
        } else if reliable {
            let what = format!("no answer to message {}", number - first);
            return Err(io::Error::new(io::ErrorKind::TimedOut, what));
        } else {
            counts.lost += 1;
            given_up.insert(number);
        }
        let mark = Mark { now_ns: now, messages: counts.messages, bytes: counts.messages * size as u64 };
        let sent = number + 1 - first;
        let report = |report| SideReport { sent, counts, rtt_ns: histogram.buckets(), ..report };
        if let Some(done) = window.round(mark, around.progress, report) {
            return Ok(done);
        }
    }
    unreachable!("the numbers last for centuries")
}

/// One question and its answer; false if none came until `deadline_ns`.
fn exchange(
    pipe: &mut dyn Pipe,
    message: &[u8],
    number: u64,
    deadline_ns: u64,
    counts: &mut CheckCounts,
    given_up: &mut BTreeSet<u64>,
) -> io::Result<bool> {
    while !pipe.send(message)? {
        if now_ns() > deadline_ns {
            return Ok(false);
        }
    }
    let mut answered = false;
    loop {
        pipe.recv(&mut |answer| match number_of(answer, message.len()) {
            None => counts.damaged += 1,
            Some(got) if got == number && !answered => answered = true,
            // It was given up, and comes after all.
            Some(got) if given_up.remove(&got) => {
                counts.lost -= 1;
                counts.reordered += 1;
            }
            Some(_) => counts.duplicated += 1,
        })?;
        if answered {
            return Ok(true);
        }
        if now_ns() > deadline_ns {
            return Ok(false);
        }
    }
}

pub(super) fn answer(job: &Job, pipe: &mut dyn Pipe, around: Surroundings) -> io::Result<SideReport> {
    let mut answers = Answers::new(job);
    let mut counts = CheckCounts::default();
    loop {
        let count = pipe.recv(&mut |message| counts.damaged += u64::from(!answers.keep(message)))?;
        answers.each(|message| {
            while !pipe.send(message)? {
                if around.drain_expected().is_some() {
                    break;
                }
            }
            counts.messages += 1;
            Ok(())
        })?;
        if count == 0 && around.drain_expected().is_some() {
            return Ok(SideReport { counts, ..SideReport::default() });
        }
    }
}

/// What is to be sent back: each message as it came, or, where messages are composed in the protocol's memory, its number alone, so
/// that nothing depends on how long it is.
struct Answers {
    message: Vec<u8>,
    composes: bool,
    waiting: Vec<u8>,
    numbers: Vec<u64>,
}

impl Answers {
    fn new(job: &Job) -> Self {
        let (size, composes) = (job.setup.size, job.setup.send == SendKind::Buffer);
        let waiting = Vec::with_capacity(if composes { 0 } else { 4 * size });
        Self { message: vec![0x5A; size], composes, waiting, numbers: Vec::new() }
    }

    /// Keeps what it takes to answer; whether the message is whole.
    fn keep(&mut self, message: &[u8]) -> bool {
        if !self.composes {
            let whole = message.len() == self.message.len();
            self.waiting.extend_from_slice(if whole { message } else { &[] });
            return whole;
        }
        let number = number_of(message, self.message.len());
        self.numbers.extend(number);
        number.is_some()
    }

    /// Sends all that is kept back.
    fn each(&mut self, mut send: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        for number in self.numbers.drain(..) {
            stamp(&mut self.message, number);
            send(&self.message)?;
        }
        self.waiting.chunks_exact(self.message.len()).try_for_each(send)?;
        self.waiting.clear();
        Ok(())
    }
}
