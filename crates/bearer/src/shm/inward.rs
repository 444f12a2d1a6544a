//! The way from another node: the receiving end of a ring. What it says of itself is bounded before it is used, and its bytes
//! are copied.

use std::os::fd::{AsRawFd, RawFd};

use polyrail_shm::slot_ring::BODY_BYTES;
use polyrail_shm::{DirectReceiver, Label};
use polyrail_sys::unix::{Credentials, Packet, UnixSocket};

use super::door::{HELLO_BYTES, seat_of, sits};
use crate::bearer::{TRAIN_BYTES_MAX, TRAIN_SEGMENTS_MAX};
use crate::{Address, RxBatch};

/// A packet that wakes the other end.
const CALL: &[u8] = b"!";
/// Entries looked at before others have their turn, whatever is in them.
const TAKEN_MAX: u32 = 64;

/// Another node that sends to this one.
pub(super) struct Inward {
    pub token: u64,
    who: Credentials,
    socket: UnixSocket,
    /// Once it has said where it sits.
    way: Option<(u64, DirectReceiver)>,
    is_gone: bool,
}

/// What a train is, if what its sender says of it can be.
fn checked(label: Label) -> Option<(usize, usize)> {
    let (bytes, stride) = (label.note as usize, usize::try_from(label.meta).ok()?);
    let is_sound = bytes <= TRAIN_BYTES_MAX && stride > 0 && bytes.div_ceil(stride) <= TRAIN_SEGMENTS_MAX;
    is_sound.then_some((bytes, stride))
}

impl Inward {
    pub fn new(socket: UnixSocket, who: Credentials, token: u64) -> Inward {
        Inward { token, who, socket, way: None, is_gone: false }
    }

    /// Whose process it is.
    pub fn uid(&self) -> u32 {
        self.who.uid
    }

    /// A packet has come. Whether it was the last, for the other end is gone, or says what it must not.
    pub fn hear(&mut self, machine: u64) -> bool {
        let mut buffer = [0; HELLO_BYTES];
        self.is_gone |= match self.socket.recv(&mut buffer) {
            Ok(None) => false,
            Ok(Some(Packet { bytes: 0, .. })) | Err(_) => true,
            Ok(Some(packet)) if self.way.is_none() => !self.greet(machine, &buffer, packet),
            // It calls. Whatever comes with it is closed.
            Ok(Some(_)) => false,
        };
        self.is_gone
    }

    /// Takes in the first word; whether it was one, from who sits where it says.
    fn greet(&mut self, machine: u64, buffer: &[u8], packet: Packet) -> bool {
        let seat = seat_of(&buffer[..packet.bytes]).filter(|_| !packet.cut);
        let seat = seat.filter(|&seat| sits(machine, seat, self.who));
        let ring = packet.descriptors.into_iter().next().and_then(|file| DirectReceiver::attach(file).ok());
        self.way = seat.zip(ring);
        self.way.is_some()
    }

    /// Where it sits, if it has said so.
    pub fn seat(&self) -> Option<u64> {
        Some(self.way.as_ref()?.0)
    }

    /// Whether its connection is over.
    pub fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Whether it is gone, and all that it had sent was taken.
    pub fn is_over(&mut self) -> bool {
        self.is_gone && !self.has_something()
    }

    pub fn has_something(&mut self) -> bool {
        self.way.as_mut().is_some_and(|(_, ring)| ring.peek().is_some())
    }

    /// Moves trains to `batch`.
    #[inline]
    pub fn take(&mut self, machine: u64, batch: &mut RxBatch) {
        let Some((seat, ring)) = &mut self.way else { return };
        let from = Address::Shm { machine, seat: *seat };
        for _ in 0..TAKEN_MAX {
            if batch.spare() == 0 {
                break;
            }
            let Some(label) = ring.peek() else { break };
            let Some((bytes, stride)) = checked(label) else {
                ring.advance();
                continue;
            };
            let into = &mut batch.spare_slots()[0].bytes_mut()[..bytes];
            if bytes <= BODY_BYTES {
                ring.read_body(into);
                ring.advance();
                batch.commit(from, bytes, stride, false);
                continue;
            }
            let mut place = [0; 8];
            ring.read_body(&mut place);
            ring.advance();
            let offset = u64::from_ne_bytes(place);
            if ring.memory().read_at(offset, into).is_some() {
                ring.release(offset);
                batch.commit(from, bytes, stride, false);
            }
        }
        if ring.tell() {
            let _ = self.socket.send(CALL, &[]);
        }
    }

    /// This end is about to sleep: the other one is to wake it.
    pub fn await_data(&self) {
        if let Some((_, ring)) = &self.way {
            ring.await_data();
        }
    }

    /// It sleeps no more.
    pub fn forget_sleep(&self) {
        if let Some((_, ring)) = &self.way {
            ring.forget_data();
        }
    }
}

impl AsRawFd for Inward {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}
