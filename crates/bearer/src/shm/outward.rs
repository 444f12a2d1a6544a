//! The way to another node: the sending end of a ring, and the connection that it was passed by.

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, RawFd};

use polyrail_shm::slot_ring::BODY_BYTES;
use polyrail_shm::{Direct, DirectSender, Label};
use polyrail_sys::clock::monotonic_ns;
use polyrail_sys::unix::UnixSocket;

use super::door;
use crate::{SendOutcome, Transmit};

/// A receiver that has taken nothing for so long from a full ring is taken for stopped.
const PATIENCE_NS: u64 = 10_000_000;
/// A packet that wakes the other end: what it says does not matter.
const CALL: &[u8] = b"!";

/// A ring that was full at the last try.
struct Full {
    since_ns: u64,
    /// What its receiver had not taken then.
    waiting: u64,
}

/// A way to another node.
pub(super) struct Outward {
    pub seat: u64,
    pub token: u64,
    socket: UnixSocket,
    ring: DirectSender,
    full: Option<Full>,
    /// Which send of the bearer's was the last by this way.
    pub used_at: u64,
}

impl Outward {
    /// Makes a ring from one seat to another, and passes it.
    pub fn open(machine: u64, (from, to): (u64, u64), token: u64) -> io::Result<Outward> {
        // Where nobody is, that is known before there is a ring.
        let socket = door::knock(machine, to)?;
        let made = Direct::create()?;
        let file = made.segment().fd().ok_or(io::ErrorKind::InvalidData)?;
        socket.send(&door::hello(from), &[file])?;
        let ring = DirectSender::attach(file.try_clone_to_owned()?)?;
        Ok(Outward { seat: to, token, socket, ring, full: None, used_at: 0 })
    }

    /// Something was received since the last send: what follows is no stream.
    pub fn rest(&mut self) {
        self.ring.rest();
    }

    pub fn send(&mut self, transmit: &Transmit<'_>) -> SendOutcome {
        if self.put(transmit).is_none() {
            self.ring.await_room();
            if self.put(transmit).is_none() {
                return self.refuse();
            }
        }
        if self.full.take().is_some() {
            self.ring.forget_room();
        }
        if self.ring.claim_sleeper() {
            // It fails where the other end has many to read, or none.
            let _ = self.socket.send(CALL, &[]);
        }
        SendOutcome::Sent
    }

    /// Copies a train into the ring; none: it has no room.
    fn put(&mut self, transmit: &Transmit<'_>) -> Option<()> {
        let Transmit { bytes, segment_bytes, slices, .. } = *transmit;
        let label = Label { note: bytes as u32, meta: segment_bytes as u64 };
        if bytes <= BODY_BYTES {
            let mut body = [0; BODY_BYTES];
            gather(slices, &mut body);
            return self.ring.push(label, &body[..bytes]).ok();
        }
        let offset = self.ring.store_parts(slices.iter().map(|slice| &slice[..]), bytes)?;
        self.ring.push(label, &offset.to_ne_bytes()).ok()
    }

    fn refuse(&mut self) -> SendOutcome {
        let (waiting, now_ns) = (self.ring.waiting(), monotonic_ns());
        match &self.full {
            Some(full) if full.waiting == waiting => {
                // Of a receiver that is stopped: as lost as what comes to a socket that is full.
                if now_ns - full.since_ns >= PATIENCE_NS {
                    SendOutcome::Sent
                } else {
                    SendOutcome::WouldBlock
                }
            }
            _ => {
                self.full = Some(Full { since_ns: now_ns, waiting });
                SendOutcome::WouldBlock
            }
        }
    }

    /// Whether so many bytes would be taken now, if only to be lost.
    pub fn takes(&mut self, bytes: usize) -> bool {
        let Some(full) = &self.full else { return true };
        monotonic_ns() - full.since_ns >= PATIENCE_NS || self.ring.has_room(bytes)
    }

    /// A packet has come: there is room. Whether it was the last, for the other end is gone.
    pub fn hear(&self) -> bool {
        !matches!(
            self.socket.recv(&mut [0; 8]),
            Ok(None | Some(polyrail_sys::unix::Packet { bytes: 1.., .. }))
        )
    }
}

impl AsRawFd for Outward {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// Copies what lies in several pieces to the front of `body`, which has room for it.
fn gather(slices: &[IoSlice<'_>], body: &mut [u8]) {
    let mut at = 0;
    for slice in slices {
        body[at..at + slice.len()].copy_from_slice(slice);
        at += slice.len();
    }
}
