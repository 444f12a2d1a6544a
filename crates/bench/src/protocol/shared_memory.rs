//! Memory that two processes share, with nothing above it: the limits that a protocol within a machine can come near.
//!
//! What both limits need is here: how the second process finds the memory, how one sleeps until the other has done
//! something, and how the end of the other is noticed. Like pipes the memory has no name: the other process opens it by
//! way of this one's list of descriptors. A pipe each way is opened beside it, for the kernel closes its end when the
//! process on it ends, however it ends.

mod byte_ring;
mod mailbox;

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use polyrail_shm::segment::PAGE_BYTES;
use polyrail_shm::{Doorbell, Segment, Word, WordView};
use polyrail_sys::process::random_bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Listener, Pipe, Protocol, Reach, Setup};
use crate::wait::{WaitMode, Waiter};
use crate::workload::Workload;

/// A way to use shared memory.
pub(super) struct SharedMemory {
    name: &'static str,
    about: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Mailbox,
    ByteRing,
}

/// Cache lines that hold a message and its number together.
pub(super) static CACHE_LINE: SharedMemory = SharedMemory {
    name: "cacheline",
    about: "Limit of latency within a machine: messages of up to 112 bytes handed over in one or two cache lines",
    kind: Kind::Mailbox,
};
/// Bytes copied into a ring and out of it.
pub(super) static MEMCPY: SharedMemory = SharedMemory {
    name: "memcpy",
    about: "Limit of throughput within a machine for what copies: into shared memory and out of it, nothing else",
    kind: Kind::ByteRing,
};

impl Protocol for SharedMemory {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn reach(&self) -> Reach {
        Reach::Machine
    }

    fn supports(&self, _workload: Workload, size: usize) -> Result<(), String> {
        let limit = mailbox::MESSAGE_BYTES_MAX;
        if self.kind == Kind::Mailbox && size > limit {
            return Err(format!("two cache lines hold at most {limit} bytes, not {size}: see memcpy"));
        }
        Ok(())
    }

    fn listen(&self, setup: &Setup) -> io::Result<Box<dyn Listener>> {
        let meeting = Meeting::new(self.kind.area_bytes())?;
        Ok(Box::new(SharedListener { meeting, kind: self.kind, setup: setup.clone() }))
    }

    fn connect(&self, setup: &Setup, address: &str, _timeout: Duration) -> io::Result<Box<dyn Pipe>> {
        self.kind.pipe(Shared::join(address, self.kind.area_bytes(), setup.wait)?, setup)
    }
}

impl Kind {
    /// Bytes of one direction.
    fn area_bytes(self) -> u64 {
        match self {
            Self::Mailbox => mailbox::AREA_BYTES,
            Self::ByteRing => byte_ring::AREA_BYTES,
        }
    }

    fn pipe(self, shared: Shared, setup: &Setup) -> io::Result<Box<dyn Pipe>> {
        match self {
            Self::Mailbox => mailbox::pipe(shared, setup),
            Self::ByteRing => byte_ring::pipe(shared, setup),
        }
    }
}

struct SharedListener {
    meeting: Meeting,
    kind: Kind,
    setup: Setup,
}

impl Listener for SharedListener {
    fn address(&self) -> String {
        self.meeting.address()
    }

    fn accept(self: Box<Self>, timeout: Duration) -> io::Result<Box<dyn Pipe>> {
        let shared = self.meeting.accept(timeout, self.kind.area_bytes(), self.setup.wait)?;
        self.kind.pipe(shared, &self.setup)
    }
}

/// Says that everything is open.
const HELLO: &[u8] = b"!";
/// Where the number stands by which the other process knows that it opened the right memory: descriptors and
/// processes' numbers are used again.
const TOKEN: u64 = 0;
/// Where the area of the first direction begins.
const AREAS: u64 = PAGE_BYTES as u64;
/// Looks in vain between two looks at the other process's pipe, which is a system call.
const LOOKS_PER_CHECK: u32 = 20_000;

/// The listening side before the other has come.
struct Meeting {
    segment: Arc<Segment>,
    token: u64,
    /// From the sender to the receiver.
    there: (PipeReader, PipeWriter),
    /// From the receiver to the sender.
    back: (PipeReader, PipeWriter),
}

impl Meeting {
    fn new(area_bytes: u64) -> io::Result<Self> {
        let segment = Segment::shared(segment_bytes(area_bytes)?)?;
        let mut token = [0; 8];
        random_bytes(&mut token)?;
        let token = u64::from_ne_bytes(token);
        inside(Word::new(&segment, TOKEN))?.store(token);
        Ok(Self { segment, token, there: io::pipe()?, back: io::pipe()? })
    }

    fn address(&self) -> String {
        let memory = self.segment.fd().map_or(-1, |file| file.as_raw_fd());
        let files = [memory, self.there.1.as_raw_fd(), self.back.0.as_raw_fd()];
        let paths = files.map(|fd| format!("/proc/{}/fd/{fd}", std::process::id()));
        format!("{},{:x}", paths.join(","), self.token)
    }

    fn accept(self, timeout: Duration, area_bytes: u64, wait: WaitMode) -> io::Result<Shared> {
        // The sender's ends are closed here once it has its own: else nobody would notice that it is gone.
        let (mut input, output) = (self.there.0, self.back.1);
        let limit = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
        if poll(&mut [PollFd::new(&input, PollFlags::IN)], Some(&limit))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        input.read_exact(&mut [0; HELLO.len()])?;
        let (input, output) = (OwnedFd::from(input).into(), OwnedFd::from(output).into());
        Shared::new(self.segment, (input, output), [AREAS + area_bytes, AREAS], wait)
    }
}

/// One process's hold of the memory, connected.
struct Shared {
    segment: Arc<Segment>,
    /// Ends when the other process does.
    input: File,
    /// Its end tells the other process that this one has ended.
    _output: File,
    outgoing: u64,
    incoming: u64,
    wait: WaitMode,
    looks: Cell<u32>,
}

impl Shared {
    fn new(
        segment: Arc<Segment>,
        (input, output): (File, File),
        [outgoing, incoming]: [u64; 2],
        wait: WaitMode,
    ) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&input, true)?;
        Ok(Self { segment, input, _output: output, outgoing, incoming, wait, looks: Cell::new(0) })
    }

    /// Opens what a listener has made.
    fn join(address: &str, area_bytes: u64, wait: WaitMode) -> io::Result<Self> {
        let parts: Vec<&str> = address.split(',').collect();
        let [memory, there, back, token] = parts[..] else { return Err(io::ErrorKind::InvalidInput.into()) };
        let memory = OpenOptions::new().read(true).write(true).open(memory)?;
        let segment = Segment::from_fd(memory.into())?;
        let found = inside(WordView::new(&segment, TOKEN))?.load();
        if format!("{found:x}") != token || segment.len() != segment_bytes(area_bytes)? {
            let gone = "the memory at this address is another one: its listener has gone";
            return Err(io::Error::new(io::ErrorKind::ConnectionRefused, gone));
        }
        let (input, output) = (File::open(back)?, OpenOptions::new().write(true).open(there)?);
        (&output).write_all(HELLO)?;
        Self::new(segment, (input, output), [AREAS, AREAS + area_bytes], wait)
    }

    /// Looks until there is something, for one turn; `bell` is rung by the other side when there may be. `ended` is the
    /// error when the other side has ended and nothing is left.
    fn turn<T>(
        &self,
        bell: &Doorbell,
        ended: io::ErrorKind,
        mut look: impl FnMut() -> io::Result<Option<T>>,
    ) -> io::Result<Option<T>> {
        Waiter::new(self.wait).turn(|may_sleep| self.attempt(bell, ended, may_sleep, &mut look))
    }

    fn attempt<T>(
        &self,
        bell: &Doorbell,
        ended: io::ErrorKind,
        may_sleep: bool,
        mut look: impl FnMut() -> io::Result<Option<T>>,
    ) -> io::Result<T> {
        if let Some(found) = look()? {
            self.looks.set(0);
            return Ok(found);
        }
        if may_sleep {
            bell.prepare();
            // What came between the first look and the announcement was not rung for.
            if let Some(found) = look()? {
                bell.cancel();
                return Ok(found);
            }
            bell.wait(Some(Waiter::BLOCK_MAX));
            if let Some(found) = look()? {
                return Ok(found);
            }
        }
        self.looks.set(self.looks.get() + 1);
        if may_sleep || self.looks.get() >= LOOKS_PER_CHECK {
            self.looks.set(0);
            if self.other_has_ended()? {
                // It may have done something before it ended, after the last look.
                return look()?.ok_or_else(|| io::Error::new(ended, "the other process has ended"));
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Tells the other side that there is something, if it may be asleep.
    #[inline]
    fn ring(&self, bell: &Doorbell) {
        if self.wait != WaitMode::Spin {
            bell.ring();
        }
    }

    fn other_has_ended(&self) -> io::Result<bool> {
        match (&self.input).read(&mut [0]) {
            Ok(bytes) => Ok(bytes == 0),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn segment_bytes(area_bytes: u64) -> io::Result<usize> {
    let bytes = usize::try_from(AREAS + 2 * area_bytes).ok();
    bytes
        .and_then(|bytes| bytes.checked_next_multiple_of(PAGE_BYTES))
        .ok_or(io::ErrorKind::InvalidInput.into())
}

/// What a layout gives, which is inside its segment by its own arithmetic.
fn inside<T>(part: Option<T>) -> io::Result<T> {
    part.ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "shared memory: too small for what is in it")
    })
}

/// The other side wrote what it cannot have meant.
fn impossible(what: &str, found: u64) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("shared memory: {what} {found} is impossible"))
}

#[cfg(test)]
mod tests;
