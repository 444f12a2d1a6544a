//! Questions and answers beside bulk that fills the links the same way as the questions go.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Surroundings, pingpong, stream};
use crate::check::stamp;
use crate::clock::now_ns;
use crate::control::{Job, Role, SideReport};
use crate::protocol::Pipe;

/// How long a message half sent may take to be finished once the questions have ended.
const FINISH_NS: u64 = 3_000_000_000;

/// Plays one side over the pipe of the questions and that of the bulk; `drains` say for each when nothing more will come.
pub(crate) fn play_beside<'a>(
    job: &Job,
    [small, bulk]: [&mut dyn Pipe; 2],
    reliable: bool,
    drains: &'a [AtomicU64],
    around: Surroundings<'a>,
) -> io::Result<SideReport> {
    let [small_drain, bulk_drain, ..] = drains else { return Err(io::Error::other("two flows, one drain")) };
    let beside = job.beside.as_ref().ok_or_else(|| io::Error::other("no second flow"))?;
    let bulk_job = Job { setup: beside.bulk.clone(), ..job.clone() };
    let (ended, resume) = (AtomicBool::new(false), around.resume);
    let around = Surroundings { drain: small_drain, ..around };
    std::thread::scope(|scope| {
        let bulk = scope.spawn(|| match job.role {
            Role::Sender => fill(&bulk_job, bulk, &ended),
            Role::Receiver => {
                let around = Surroundings { drain: bulk_drain, resume, progress: &mut |_| {} };
                stream::receive(&bulk_job, bulk, reliable, around)
            }
        });
        let small = match job.role {
            Role::Sender => pingpong::ask(job, small, reliable, around),
            Role::Receiver => pingpong::answer(job, small, around),
        };
        ended.store(true, Ordering::Relaxed);
        let bulk = bulk.join().unwrap_or_else(|_| Err(io::Error::other("the bulk panicked")));
        Ok(together(job.role, small?, bulk?))
    })
}

/// Sends as fast as it goes until the questions have ended.
fn fill(job: &Job, pipe: &mut dyn Pipe, ended: &AtomicBool) -> io::Result<SideReport> {
    let mut message = vec![0x5A; job.setup.size];
    let mut sent = 0;
    while !ended.load(Ordering::Relaxed) {
        stamp(&mut message, sent);
        let mut ended_ns = None;
        while !pipe.send(&message)? {
            // A message half sent must be finished, or the receiver waits for its rest; not for ever, though.
            if ended.load(Ordering::Relaxed) {
                let since_ns = *ended_ns.get_or_insert_with(now_ns);
                if now_ns() - since_ns > FINISH_NS {
                    return Ok(SideReport { sent, ..SideReport::default() });
                }
            }
        }
        sent += 1;
    }
    Ok(SideReport { sent, ..SideReport::default() })
}

/// The sender's times and window are those of the questions, the receiver's bytes and window those of the bulk.
fn together(role: Role, small: SideReport, bulk: SideReport) -> SideReport {
    match role {
        Role::Sender => SideReport { sent_by_flow: vec![small.sent, bulk.sent], ..small },
        Role::Receiver => SideReport { counts: small.counts, bulk_counts: Some(bulk.counts), ..bulk },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::CheckCounts;

    #[test]
    fn times_are_those_of_the_questions_and_bytes_those_of_the_bulk() {
        let counts = |messages| CheckCounts { messages, ..CheckCounts::default() };
        let small = SideReport { sent: 3, window_ns: 5, counts: counts(3), ..SideReport::default() };
        let bulk =
            SideReport { sent: 9, window_ns: 7, bytes: 90, counts: counts(9), ..SideReport::default() };
        let sender = together(Role::Sender, small.clone(), bulk.clone());
        assert_eq!((sender.sent_each(), sender.window_ns), (vec![3, 9], 5));
        let receiver = together(Role::Receiver, small, bulk);
        assert_eq!((receiver.window_ns, receiver.bytes), (7, 90));
        assert_eq!((receiver.counts.messages, receiver.bulk_counts.unwrap().messages), (3, 9));
    }
}
