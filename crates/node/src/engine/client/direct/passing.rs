//! Buffers that go past the engine without a copy: the receiver is passed the file that holds one, once, and reads it there
//! (`polyrail_shm::passed`). Only between programs of one user, who may change each other's memory anyway.

use super::{In, TAGGED, Way, is_plain, label_of};
use crate::attach::GivenRing;
use crate::engine::client::slots::{self, DirectBody};
use crate::engine::client::{Client, lines};
use polyrail_proto::address::ServiceAddress;
use polyrail_proto::node::{Destination, Manner};
use polyrail_shm::{Buffer, DirectReceiver, Region, Segment, ToPass};
use polyrail_sys::unix::UnixSocket;
use std::io;
use std::os::fd::OwnedFd;

/// A packet with a file says under which number it goes.
const PACKET_BYTES: usize = 4;

/// What fetching a file came to.
enum Fetched {
    File(OwnedFd),
    /// There is none, or what came is none.
    Nothing,
    /// This process has no descriptor or no memory for it now.
    NotNow,
}

impl Client {
    /// Whether a buffer for `to` is passed to who receives it.
    pub(crate) fn may_pass(&self, to: Destination, how: &Manner) -> bool {
        let Some(to) = self.sole_receiver(to).filter(|_| is_plain(how)) else { return false };
        let ring = self.directs.out_to(to, how.class).map(|at| &self.directs.outs[at]);
        ring.is_some_and(|out| out.given.same_user && !out.given.ring.is_over())
    }

    /// Passes a buffer to who receives what is sent to `to`; the message's number. The buffer comes back where it is not passed, or
    /// as many are in that one's hands as can be: then it says when it gives one back.
    pub(crate) fn pass(&mut self, to: Destination, how: &Manner, buffer: ToPass) -> Result<u64, ToPass> {
        let Ok(Way::Ring(at)) = self.way(to, how.class, true) else { return Err(buffer) };
        let buffer = match self.pass_at(at, to, how, buffer) {
            Ok(number) => return Ok(number),
            Err(buffer) => buffer,
        };
        let out = &mut self.directs.outs[at];
        out.given.ring.await_room();
        out.waits = true;
        self.pass_at(at, to, how, buffer)
    }

    fn pass_at(&mut self, at: usize, to: Destination, how: &Manner, buffer: ToPass) -> Result<u64, ToPass> {
        let out = &mut self.directs.outs[at];
        let ring = &mut out.given.ring;
        let one = buffer.buffer().filter(|_| out.given.same_user);
        let numbered = one.and_then(|one| ring.number_of(one).map(|number| (one, number)));
        let Some((one, number)) = numbered else { return Err(buffer) };
        if number.is_new && give(&out.given.line, number.number, one).is_err() {
            return Err(buffer);
        }
        let service: Option<ServiceAddress> =
            if let Destination::Service(service) = to { Some(service) } else { None };
        let label = label_of(service, how.tag);
        if slots::put_passed(ring, label, how.tag, number, buffer.len() as u64).is_none() {
            return Err(buffer);
        }
        ring.note_passed(number.number, buffer);
        if std::mem::take(&mut out.waits) {
            out.given.ring.forget_room();
        }
        if out.given.bell.ring() {
            lines::tell(&out.given.line);
        }
        let number = self.sent + self.directs.sent;
        self.directs.sent += 1;
        Ok(number)
    }

    /// Takes back the buffers that receivers have given back; whether they have all.
    pub(crate) fn reclaim_passed(&mut self) -> bool {
        let mut all_back = self.reclaim_passed_by_trunks();
        self.directs.outs.iter_mut().for_each(|out| all_back &= out.given.ring.reclaim_passed());
        all_back
    }

    /// The same, and whoever has some says when it gives one back.
    pub(crate) fn await_passed(&mut self) -> bool {
        for out in &mut self.directs.outs {
            if !out.given.ring.reclaim_passed() {
                out.waits = true;
                out.given.ring.await_room();
            }
        }
        self.await_passed_by_trunks();
        self.reclaim_passed()
    }
}

/// Gives the receiver the file of a buffer that is to be passed.
pub(in crate::engine::client) fn give(line: &UnixSocket, number: u32, buffer: &Buffer) -> io::Result<()> {
    let file = buffer.file().and_then(|file| file.fd()).ok_or(io::ErrorKind::InvalidInput)?;
    line.send(&number.to_ne_bytes(), &[file])
}

impl In {
    /// Sees to it that the file is here of the next message, which was passed; false if there is no room for it now, so that the
    /// message has to wait.
    #[inline(never)]
    pub(super) fn fetch_file(&mut self, note: u32) -> bool {
        if !self.has_file {
            self.has_file = fetch_file(&mut self.given.ring, &self.given.line, note & TAGGED != 0);
        }
        self.has_file
    }
}

/// Sees to it that the file is here of the next message of a ring, which was passed: once for each such message.
pub(in crate::engine::client) fn fetch_file(
    ring: &mut DirectReceiver,
    line: &UnixSocket,
    has_front: bool,
) -> bool {
    let Some(number) = slots::new_file(ring, has_front) else { return true };
    let fetched = match fetch(line, number) {
        Fetched::File(file) => Segment::mapped(file),
        Fetched::Nothing => Err(io::ErrorKind::InvalidData.into()),
        Fetched::NotNow => return false,
    };
    match fetched {
        // A number that there is none of has no file.
        Ok(file) => drop(ring.set_passed_file(number, file)),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
        Err(_) => return false,
    }
    // What it says is known already.
    let _ = line.recv(&mut [0; PACKET_BYTES]);
    true
}

/// The file that the sender has given under this number: it stays the next until it was mapped.
fn fetch(line: &UnixSocket, number: u32) -> Fetched {
    lines::clear(line);
    let mut said = [0; PACKET_BYTES];
    match line.peek(&mut said) {
        Ok(Some(packet)) if packet.cut && packet.descriptors.is_empty() => Fetched::NotNow,
        Ok(Some(mut packet)) if said == number.to_ne_bytes() => {
            packet.descriptors.pop().map_or(Fetched::Nothing, Fetched::File)
        }
        _ => Fetched::Nothing,
    }
}

/// The message that is a buffer passed under this number. What makes no sense is empty, and given back.
#[inline(never)]
pub(super) fn body(
    given: &mut GivenRing,
    held: &mut u32,
    number: u32,
    len: usize,
) -> (usize, Option<DirectBody>) {
    let memory = if given.same_user { memory_of(&given.ring, number, len) } else { None };
    let Some(memory) = memory else {
        given.ring.return_passed(number);
        return (0, None);
    };
    *held += 1;
    (len, Some(DirectBody::Passed { memory, number, ring: given.number }))
}

/// The memory of a message of `len` bytes that was passed under this number; `None`: it makes no sense.
pub(in crate::engine::client) fn memory_of(ring: &DirectReceiver, number: u32, len: usize) -> Option<Region> {
    let file = ring.passed_file(number).filter(|_| len > 0)?;
    Region::new(file, 0, file.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::super::{Envelope, Label};
    use super::*;
    use polyrail_proto::flow::Class;
    use polyrail_proto::id::{NodeId, PortAddress, PortId};
    use polyrail_shm::slot_ring::BODY_BYTES;
    use polyrail_shm::{Direct, DirectSender, PassedNumber, Pool, PortBell};
    use polyrail_sys::eventfd::EventFd;
    use std::os::fd::AsFd;

    fn ends() -> (Direct, DirectSender, UnixSocket, In) {
        let direct = Direct::create().unwrap();
        let file = || direct.segment().fd().unwrap().try_clone_to_owned().unwrap();
        let (sender, ring) = (DirectSender::attach(file()).unwrap(), DirectReceiver::attach(file()).unwrap());
        let (ours, theirs) = UnixSocket::pair().unwrap();
        let from = PortAddress { node: NodeId(1), port: PortId(2) };
        let (bell, line) = (PortBell::create().unwrap(), theirs);
        let given = GivenRing { number: 7, from, class: Class::Normal, same_user: true, ring, bell, line };
        (direct, sender, ours, In::new(given))
    }

    fn take(ring: &mut In) -> Option<Vec<u8>> {
        // Looked at as often as somebody waits for it.
        ring.peek()?;
        let label = ring.peek()?;
        let (mut short, mut envelope) = ([0; BODY_BYTES], Envelope::EMPTY);
        let body = super::super::take(ring, (&mut envelope, &mut short), label);
        let Some(body) = body else { return Some(short[..envelope.len as usize].to_vec()) };
        let bytes = body.bytes(envelope.len as usize).to_vec();
        if let DirectBody::Passed { number, .. } = body {
            ring.given.ring.return_passed(number);
        }
        Some(bytes)
    }

    #[test]
    fn a_sender_that_passes_nonsense_spoils_its_own_messages_only() {
        let (_keeper, mut sender, files, mut receiver) = ends();
        let pool = Pool::in_files(1 << 20, 1 << 20);
        let buffer = || {
            let mut buffer = pool.alloc(5_000).unwrap();
            buffer.fill(9);
            buffer
        };
        let event = EventFd::new().unwrap();
        let label = Label { note: 0, meta: 0 };
        let cases =
            [(0, 5_000, false), (1, 5_000, true), (2, 5_000, true), (0, u64::MAX, true), (u32::MAX, 1, true)];
        for (case, (number, len, is_new)) in cases.into_iter().enumerate() {
            match case {
                // It says nothing of the file, or comes without one.
                0 => {}
                1 => files.send(&number.to_ne_bytes(), &[]).unwrap(),
                // What is none, and one that is shorter, or has no such number.
                2 => files.send(&number.to_ne_bytes(), &[event.as_fd()]).unwrap(),
                _ => give(&files, number, &buffer()).unwrap(),
            }
            slots::put_passed(&mut sender, label, None, PassedNumber { number, is_new }, len).unwrap();
            let good = buffer();
            let passed = sender.number_of(&good).unwrap();
            if passed.is_new {
                give(&files, passed.number, &good).unwrap();
            }
            slots::put_passed(&mut sender, label, None, passed, 5_000).unwrap();
            sender.note_passed(passed.number, good);
            assert_eq!(take(&mut receiver), Some(Vec::new()), "case {case}");
            assert_eq!(take(&mut receiver), Some(vec![9; 5_000]), "case {case}");
        }
        assert_eq!(receiver.held, cases.len() as u32);
    }

    #[test]
    fn nothing_is_passed_to_a_program_of_another_user() {
        let (_keeper, mut sender, files, mut receiver) = ends();
        receiver.given.same_user = false;
        let buffer = Pool::in_files(1 << 20, 1 << 20).alloc(5_000).unwrap();
        let number = sender.number_of(&buffer).unwrap();
        give(&files, number.number, &buffer).unwrap();
        slots::put_passed(&mut sender, Label { note: 0, meta: 0 }, None, number, 5_000).unwrap();
        assert_eq!(take(&mut receiver), Some(Vec::new()));
    }
}
