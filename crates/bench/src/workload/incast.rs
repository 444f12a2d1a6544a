//! One receiver asks many senders at once, each answers with a message; the next question when all answers are there.
//!
//! The answers meet in front of the receiver's link, which is what it is about: a protocol whose senders do not know of each
//! other overruns the queue there.

use std::io;

use super::{FAILED_AFTER_NS, Histogram, Mark, Surroundings, Window};
use crate::check::{CheckCounts, number_of, stamp};
use crate::clock::now_ns;
use crate::control::{Job, SideReport};
use crate::protocol::Pipe;

/// Size of a question in bytes.
pub(crate) const QUESTION_BYTES: usize = 64;
/// The number of the question after which there is none.
const LAST: u64 = u64::MAX;

/// The receiver: asks, and takes the time until every answer is there.
pub(super) fn ask(job: &Job, pipes: &mut [Box<dyn Pipe>], around: Surroundings) -> io::Result<SideReport> {
    let mut question = vec![0x5A; QUESTION_BYTES];
    let mut counts = CheckCounts::default();
    let mut histogram = Histogram::new();
    // The first answers come unasked: only then is it known where each sender is.
    collect(job, pipes, 0, &mut counts)?;
    let mut window = Window::new(job, now_ns());
    for number in 1_u64.. {
        let asked_ns = now_ns();
        stamp(&mut question, number);
        pipes.iter_mut().try_for_each(|pipe| send_whole(pipe.as_mut(), &question))?;
        collect(job, pipes, number, &mut counts)?;
        let now = now_ns();
        if window.is_open() {
            histogram.record(now - asked_ns);
        }
        let mark = Mark { now_ns: now, messages: counts.messages, bytes: counts.bytes };
        let report = |report| SideReport { counts, rtt_ns: histogram.buckets(), ..report };
        if let Some(done) = window.round(mark, around.progress, report) {
            stamp(&mut question, LAST);
            pipes.iter_mut().try_for_each(|pipe| send_whole(pipe.as_mut(), &question))?;
            return Ok(done);
        }
    }
    unreachable!("the numbers last for centuries")
}

/// One answer from each. They are taken one sender after the other: what the others have sent waits in their queues, and no
/// answer counts before all are there.
fn collect(job: &Job, pipes: &mut [Box<dyn Pipe>], number: u64, counts: &mut CheckCounts) -> io::Result<()> {
    let size = job.setup.size;
    for (sender, pipe) in pipes.iter_mut().enumerate() {
        let since_ns = now_ns();
        let mut came = false;
        while !came {
            pipe.recv(&mut |answer| match number_of(answer, size) {
                Some(got) if got == number && !came => {
                    came = true;
                    counts.messages += 1;
                    counts.bytes += size as u64;
                }
                Some(got) if got > number => counts.reordered += 1,
                Some(_) => counts.duplicated += 1,
                None => counts.damaged += 1,
            })?;
            if !came && now_ns() - since_ns > FAILED_AFTER_NS {
                counts.lost += 1;
                let what = format!("no answer to question {number} from sender {sender}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, what));
            }
        }
    }
    Ok(())
}

/// A sender: answers each question until it is told that it was the last.
pub(super) fn answer(job: &Job, pipe: &mut dyn Pipe) -> io::Result<SideReport> {
    let mut message = vec![0x5A; job.setup.size];
    let mut next = Some(0);
    let mut sent = 0;
    let mut since_ns = now_ns();
    let patience_ns = FAILED_AFTER_NS + job.warmup_ns + job.duration_ns;
    loop {
        match next.take() {
            Some(LAST) => return Ok(SideReport { sent, ..SideReport::default() }),
            Some(number) => {
                stamp(&mut message, number);
                send_whole(pipe, &message)?;
                sent += 1;
                since_ns = now_ns();
            }
            None if now_ns() - since_ns > patience_ns => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "nobody asks any more"));
            }
            None => {}
        }
        pipe.recv(&mut |question| next = number_of(question, QUESTION_BYTES).or(next))?;
    }
}

fn send_whole(pipe: &mut dyn Pipe, message: &[u8]) -> io::Result<()> {
    let since_ns = now_ns();
    while !pipe.send(message)? {
        if now_ns() - since_ns > FAILED_AFTER_NS {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "a message is not taken"));
        }
    }
    Ok(())
}
