//! Two pipes, one each way.
//!
//! They have no names: the other process opens them by way of this one's list of descriptors.

use std::fs::{File, OpenOptions};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::byte_stream::{ByteStream, StreamPipe};
use super::{Listener, Pipe, Protocol, Reach, Setup};
use crate::wait::sleep_until_ready;

/// A pair of pipes.
pub(super) struct PipePair;

impl Protocol for PipePair {
    fn name(&self) -> &'static str {
        "pipe"
    }

    fn about(&self) -> &'static str {
        "Two pipes of the system's size, one each way"
    }

    fn reach(&self) -> Reach {
        Reach::Machine
    }

    fn listen(&self, setup: &Setup) -> io::Result<Box<dyn Listener>> {
        Ok(Box::new(PipeListener { there: io::pipe()?, back: io::pipe()?, setup: setup.clone() }))
    }

    fn connect(&self, setup: &Setup, address: &str, _timeout: Duration) -> io::Result<Box<dyn Pipe>> {
        let (there, back) = address.split_once(',').ok_or(io::ErrorKind::InvalidInput)?;
        let (input, output) = (File::open(back)?, OpenOptions::new().write(true).open(there)?);
        (&output).write_all(HELLO)?;
        Ok(Box::new(StreamPipe::new(Pipes::new(input, output, setup)?, setup)))
    }
}

/// Says that both pipes are open.
const HELLO: &[u8] = b"!";

struct PipeListener {
    /// From the sender to the receiver.
    there: (PipeReader, PipeWriter),
    /// From the receiver to the sender.
    back: (PipeReader, PipeWriter),
    setup: Setup,
}

impl Listener for PipeListener {
    fn address(&self) -> String {
        let path = |fd: i32| format!("/proc/{}/fd/{fd}", std::process::id());
        format!("{},{}", path(self.there.1.as_raw_fd()), path(self.back.0.as_raw_fd()))
    }

    fn accept(self: Box<Self>, timeout: Duration) -> io::Result<Box<dyn Pipe>> {
        // The sender's ends are closed here once it has its own: else nobody would notice that it is gone.
        let (mut input, output) = (self.there.0, self.back.1);
        let limit = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
        if poll(&mut [PollFd::new(&input, PollFlags::IN)], Some(&limit))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        input.read_exact(&mut [0; HELLO.len()])?;
        let (input, output) = (OwnedFd::from(input).into(), OwnedFd::from(output).into());
        Ok(Box::new(StreamPipe::new(Pipes::new(input, output, &self.setup)?, &self.setup)))
    }
}

/// Both pipes' ends of one process; a pipe has no time-out of its own, so that sleeping is a call more.
struct Pipes {
    input: File,
    output: File,
}

impl Pipes {
    fn new(input: File, output: File, setup: &Setup) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&input, true)?;
        rustix::io::ioctl_fionbio(&output, true)?;
        if let Some(bytes) = setup.socket_buffer_max {
            rustix::pipe::fcntl_setpipe_size(&output, bytes)?;
        }
        Ok(Self { input, output })
    }
}

impl ByteStream for Pipes {
    fn send(&self, bytes: &[u8], may_sleep: bool) -> io::Result<usize> {
        let attempt = || (&self.output).write(bytes);
        retried(attempt, may_sleep, (&self.output, PollFlags::OUT))
    }

    fn recv(&self, room: &mut [u8], may_sleep: bool) -> io::Result<usize> {
        let attempt = || (&self.input).read(room);
        retried(attempt, may_sleep, (&self.input, PollFlags::IN))
    }
}

/// Tries, sleeps until the file is ready if that is allowed and needed, and tries once more.
fn retried(
    mut attempt: impl FnMut() -> io::Result<usize>,
    may_sleep: bool,
    (file, ready): (&File, PollFlags),
) -> io::Result<usize> {
    match attempt() {
        Err(error) if may_sleep && error.kind() == io::ErrorKind::WouldBlock => {
            sleep_until_ready(file, ready)?;
            attempt()
        }
        other => other,
    }
}
