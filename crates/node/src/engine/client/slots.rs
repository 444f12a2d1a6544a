//! How what goes past the engine lies in the slots of a ring: what is short in the slot itself, what is longer in the ring's arena,
//! or where its sender wrote it.

use polyrail_shm::slot_ring::BODY_BYTES;
use polyrail_shm::{DirectReceiver, DirectSender, Label, PassedNumber, Region};

/// In a note: how many bytes lie in the slot, or that they lie in the arena, or in a buffer that is passed. The other bits are the
/// upper layer's.
const LEN: u32 = 0xff;
const LONG: u32 = 0xff;
const PASSED: u32 = 0xfe;
const _: () = assert!(BODY_BYTES < PASSED as usize);

/// Beside the number of a buffer's file: the file is new under it.
const NEW_FILE: u64 = 1 << 32;

/// Memory for a short message.
pub(crate) type Short = [u8; BODY_BYTES];

/// Where short messages lie that were put aside, until they were read: to ask for memory each time would cost as much as all the
/// rest.
#[derive(Default)]
#[allow(clippy::vec_box, reason = "they go out of it one by one")]
pub(crate) struct Shorts(Vec<Box<Short>>);

/// So many are kept.
const SHORTS_MAX: usize = 64;

impl Shorts {
    #[inline]
    fn take(&mut self) -> Box<Short> {
        self.0.pop().unwrap_or_else(|| Box::new([0; BODY_BYTES]))
    }

    /// One was read.
    #[inline]
    pub(crate) fn give_back(&mut self, short: Box<Short>) {
        if self.0.len() < SHORTS_MAX {
            self.0.push(short);
        }
    }
}

/// Where bytes are.
pub(super) enum Payload {
    Empty,
    Short(usize, Box<Short>),
    /// In the arena: offset and length, inside it.
    Long(u64, usize),
    /// In the file of that number: its length, inside it.
    Passed(u32, usize),
}

/// Where the bytes of a message are.
#[derive(Debug)]
pub(crate) enum DirectBody {
    Short(Box<Short>),
    /// At this offset, to be given back to the ring of that number.
    Long {
        memory: Region,
        offset: u64,
        ring: u64,
    },
    /// In a buffer that was passed, to be given back to the ring by this number.
    Passed {
        memory: Region,
        number: u32,
        ring: u64,
    },
    Copied(Vec<u8>),
}

/// What a message that is read keeps of a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Held {
    /// Memory of the arena, at this offset.
    Arena(u64),
    /// The buffer of this number.
    Passed(u32),
}

/// Puts bytes into a ring behind a word of the upper layer's, if that wants one and there is room.
#[inline(always)]
pub(super) fn put(ring: &mut DirectSender, label: Label, front: Option<u64>, bytes: &[u8]) -> Option<()> {
    let most = if front.is_some() { BODY_BYTES - 8 } else { BODY_BYTES };
    if bytes.len() > most {
        return put_long(ring, label, front, bytes);
    }
    let note = label.note | bytes.len() as u32;
    ring.push_behind(Label { note, ..label }, front, bytes).ok()
}

#[inline(never)]
fn put_long(ring: &mut DirectSender, label: Label, front: Option<u64>, bytes: &[u8]) -> Option<()> {
    let offset = ring.store(bytes)?;
    let place = in_slot(offset, bytes.len() as u64);
    ring.push_behind(Label { note: label.note | LONG, ..label }, front, &place).ok()
}

/// Says in a slot that a buffer was passed, of which `len` bytes are the message; there is room.
pub(super) fn put_passed(
    ring: &mut DirectSender,
    label: Label,
    front: Option<u64>,
    PassedNumber { number, is_new }: PassedNumber,
    len: u64,
) -> Option<()> {
    let number = u64::from(number) | if is_new { NEW_FILE } else { 0 };
    let place = in_slot(number, len);
    ring.push_behind(Label { note: label.note | PASSED, ..label }, front, &place).ok()
}

fn in_slot(place: u64, len: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&place.to_ne_bytes());
    bytes[8..].copy_from_slice(&len.to_ne_bytes());
    bytes
}

/// Whether a message is a buffer that is passed.
#[inline]
pub(super) fn is_passed(note: u32) -> bool {
    note & LEN == PASSED
}

/// The number of the file that comes with the message that [`DirectReceiver::peek`] showed, one that is passed.
pub(super) fn new_file(ring: &mut DirectReceiver, has_front: bool) -> Option<u32> {
    let mut place = [0; 8];
    read(ring, has_front, &mut place);
    let number = u64::from_ne_bytes(place);
    (number & NEW_FILE != 0).then_some(number as u32)
}

/// Where the bytes of a message are that was taken: in the place that was given for short ones, in the ring's arena, or in the file of
/// that number.
pub(super) enum Place {
    Short(usize),
    Long(u64, usize),
    Passed(u32, usize),
}

/// Takes the message of which [`DirectReceiver::peek`] showed this note, a short one to the place given. What makes no sense is
/// empty. The word before it, if there is one, and where it is.
#[inline(always)]
pub(super) fn take_into(
    ring: &mut DirectReceiver,
    note: u32,
    has_front: bool,
    short: &mut Short,
) -> (u64, Place) {
    let front = if has_front { ring.front() } else { 0 };
    if note & LEN >= PASSED {
        return (front, take_far(ring, note, has_front));
    }
    let most = if has_front { BODY_BYTES - 8 } else { BODY_BYTES };
    let len = ((note & LEN) as usize).min(most);
    read(ring, has_front, &mut short[..len]);
    ring.advance();
    (front, Place::Short(len))
}

/// The same for what is put aside.
#[inline]
pub(super) fn take(
    ring: &mut DirectReceiver,
    shorts: &mut Shorts,
    note: u32,
    has_front: bool,
) -> (u64, Payload) {
    let mut short = shorts.take();
    let (front, place) = take_into(ring, note, has_front, &mut short);
    let payload = match place {
        Place::Short(0) => Payload::Empty,
        Place::Short(len) => return (front, Payload::Short(len, short)),
        Place::Long(offset, len) => Payload::Long(offset, len),
        Place::Passed(number, len) => Payload::Passed(number, len),
    };
    shorts.give_back(short);
    (front, payload)
}

#[inline]
fn read(ring: &mut DirectReceiver, has_front: bool, into: &mut [u8]) {
    if has_front { ring.read_behind(into) } else { ring.read_body(into) }
}

#[inline(never)]
fn take_far(ring: &mut DirectReceiver, note: u32, has_front: bool) -> Place {
    let mut place = [0; 16];
    read(ring, has_front, &mut place);
    ring.advance();
    let [at, len] = [0, 8].map(|at| u64::from_ne_bytes(place[at..at + 8].try_into().expect("eight bytes")));
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    if is_passed(note) {
        let inside = ring.passed_file(at as u32).is_some_and(|file| len <= file.len());
        return Place::Passed(at as u32, if inside { len } else { 0 });
    }
    let inside = ring.memory().bytes(at, len).is_some();
    Place::Long(at, if inside { len } else { 0 })
}

/// A copy of bytes in the arena, whose memory is given back.
pub(super) fn copy_out(ring: &mut DirectReceiver, offset: u64, len: usize) -> Vec<u8> {
    let mut copy = vec![0; len];
    ring.memory().read_at(offset, &mut copy);
    ring.release(offset);
    copy
}

impl DirectBody {
    /// The first `len` bytes.
    pub(crate) fn bytes(&self, len: usize) -> &[u8] {
        match self {
            DirectBody::Short(bytes) => &bytes[..len.min(BODY_BYTES)],
            DirectBody::Long { memory, offset, .. } => memory.bytes(*offset, len).unwrap_or(&[]),
            DirectBody::Passed { memory, .. } => memory.bytes(0, len).unwrap_or(&[]),
            DirectBody::Copied(bytes) => bytes,
        }
    }
}
