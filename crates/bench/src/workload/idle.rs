//! What ends `idle`: one message, which shows that the pair that cost so little was still connected.

use std::io;

use super::{FAILED_AFTER_NS, Silence};
use crate::check::{Check, stamp};
use crate::clock::now_ns;
use crate::control::{Job, SideReport};
use crate::protocol::Pipe;

pub(super) fn send(job: &Job, pipe: &mut dyn Pipe) -> io::Result<SideReport> {
    let mut message = vec![0x5A; job.setup.size];
    stamp(&mut message, 0);
    let start_ns = now_ns();
    while !pipe.send(&message)? {
        if now_ns() - start_ns > FAILED_AFTER_NS {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the idle pair takes no message any more"));
        }
    }
    Ok(SideReport { sent: 1, ..SideReport::default() })
}

pub(super) fn receive(job: &Job, pipe: &mut dyn Pipe) -> io::Result<SideReport> {
    let mut check = Check::new(job.setup.size);
    let mut silence = Silence::of(FAILED_AFTER_NS);
    loop {
        let count = pipe.recv(&mut |message| check.observe(message))?;
        if silence.ends(count, Some(1), check.counts().messages).is_some() {
            break;
        }
    }
    if check.counts().messages == 0 {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "the idle pair delivers no message any more"));
    }
    Ok(SideReport { counts: check.finish(1), ..SideReport::default() })
}
