//! A direct ring: from one port to another on the same machine, past the engine.
//!
//! ```text
//! control page | slot ring | arena counters | arena blocks
//! ```
//!
//! Short messages lie in the slots of a [`crate::slot_ring`], longer ones in an arena that the sender allocates from and the
//! receiver releases, or where their sender wrote them ([`crate::passed`]). The layout is the same for all rings, so no size is read from shared memory. Whoever made the
//! ring, the engine, maps it too, to say that one end is gone.
//!
//! A sender that finds no room announces that in the control page, as at a [`Doorbell`], and looks once more; a receiver that has
//! given something back looks there, and then has to wake the sender by whatever that one sleeps on. A receiver that sleeps for
//! this ring alone does the same (one that has many may have a [`crate::PortBell`] for all of them instead).

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::arena::{ArenaAllocator, ArenaPlace, ArenaReleaser, BLOCK_BYTES};
use crate::counter::{Word, WordView};
use crate::doorbell::Doorbell;
use crate::passed::{Number, PASSED_BYTES, PassedIn, PassedOut};
use crate::pool::Buffer;
use crate::region::Region;
use crate::ring::Full;
use crate::segment::{PAGE_BYTES, Segment, invalid};
use crate::shared_buffer::ToPass;
use crate::slot_ring::{Label, SlotConsumer, SlotProducer, slot_ring_bytes};

/// "polydrct" in memory.
const MAGIC: u64 = u64::from_le_bytes(*b"polydrct");

/// Slots of a ring, more than fit a core's cache: memory that nobody has touched is not there.
const SLOTS: u32 = 32_768;
/// Blocks of its arena.
const BLOCKS: u32 = 64;

/// Fewer bytes than this, in several pieces, are left in the cache: they are waited for, and the receiver finds them there.
const PAST_CACHE_BYTES: usize = 2_048;

/// Offsets of the control page's words, each on a pair of lines of its own.
const ROOM_BELL: u64 = 128;
const RECEIVER_GONE: u64 = 256;
const SENDER_GONE: u64 = 384;
const DATA_BELL: u64 = 512;
const RECEIVER_CAME: u64 = 640;
/// The words of buffers that were passed.
const PASSED: u64 = 1_024;
const _: () = assert!(PASSED + PASSED_BYTES <= SLOTS_AT);

/// Bytes of the arena.
pub const DIRECT_ARENA_BYTES: u64 = BLOCKS as u64 * BLOCK_BYTES;
/// The longest message that such a ring takes, bytes.
pub const DIRECT_BYTES_MAX: u64 = DIRECT_ARENA_BYTES / 4;

const SLOTS_AT: u64 = PAGE_BYTES as u64;
const ARENA: ArenaPlace = {
    let counters = (SLOTS_AT + slot_ring_bytes(SLOTS)).next_multiple_of(PAGE_BYTES as u64);
    let data = (counters + BLOCKS as u64 * 8).next_multiple_of(PAGE_BYTES as u64);
    ArenaPlace { counters, data, blocks: BLOCKS }
};
const SEGMENT_BYTES: usize = (ARENA.data + DIRECT_ARENA_BYTES) as usize;

/// What the engine keeps of a ring.
#[derive(Debug)]
pub struct Direct {
    segment: Arc<Segment>,
    receiver_gone: Word,
    sender_gone: Word,
}

impl Direct {
    /// Makes a ring, for both ends to map.
    ///
    /// # Errors
    /// The system has no memory or descriptor for it.
    pub fn create() -> io::Result<Direct> {
        let segment = Segment::shared(SEGMENT_BYTES)?;
        segment.write_at(0, &MAGIC.to_ne_bytes());
        let word = |offset| Word::new(&segment, offset).ok_or_else(misfit);
        let (receiver_gone, sender_gone) = (word(RECEIVER_GONE)?, word(SENDER_GONE)?);
        Ok(Direct { segment, receiver_gone, sender_gone })
    }

    /// Its memory: the descriptor goes to both ends.
    pub fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// Tells the sender that nobody reads any more.
    pub fn lose_receiver(&mut self) {
        self.receiver_gone.store(1);
    }

    /// Tells the receiver that nothing follows what is there.
    pub fn lose_sender(&mut self) {
        self.sender_gone.store(1);
    }
}

/// The sender's end of a direct ring.
#[derive(Debug)]
pub struct DirectSender {
    slots: SlotProducer,
    arena: ArenaAllocator,
    passed: PassedOut,
    room: Doorbell,
    data: Doorbell,
    receiver_came: WordView,
    receiver_gone: WordView,
    /// This end has found out by itself that nobody reads.
    is_lost: bool,
}

impl DirectSender {
    /// Maps a ring, once.
    ///
    /// # Errors
    /// `InvalidData`: it is none.
    pub fn attach(file: OwnedFd) -> io::Result<DirectSender> {
        let segment = mapped(file)?;
        Ok(DirectSender {
            slots: SlotProducer::new(&segment, SLOTS_AT, SLOTS).ok_or_else(misfit)?,
            arena: ArenaAllocator::new(&segment, ARENA).ok_or_else(misfit)?,
            passed: PassedOut::new(&segment, PASSED).ok_or_else(misfit)?,
            room: Doorbell::new(&segment, ROOM_BELL).ok_or_else(misfit)?,
            data: Doorbell::new(&segment, DATA_BELL).ok_or_else(misfit)?,
            receiver_came: WordView::new(&segment, RECEIVER_CAME).ok_or_else(misfit)?,
            receiver_gone: WordView::new(&segment, RECEIVER_GONE).ok_or_else(misfit)?,
            is_lost: false,
        })
    }

    /// Puts a message in a slot: ring the receiver's doorbell afterwards. The body is cut at that of a slot.
    #[inline]
    pub fn push(&mut self, label: Label, body: &[u8]) -> Result<(), Full> {
        self.slots.push(label, body)
    }

    /// The same with a word before the body.
    #[inline(always)]
    pub fn push_behind(&mut self, label: Label, front: Option<u64>, body: &[u8]) -> Result<(), Full> {
        self.slots.push_behind(label, front, body)
    }

    /// The sender has done something else since it last put a message in, such as look for an answer: see [`SlotProducer::rest`].
    #[inline]
    pub fn rest(&mut self) {
        self.slots.rest();
    }

    /// Copies bytes to where a message can refer to them; where they lie, if there is room, for a slot to say so too.
    pub fn store(&mut self, bytes: &[u8]) -> Option<u64> {
        let offset = self.room_for(bytes.len())?;
        self.arena.memory().write_at(offset, bytes)?;
        Some(offset)
    }

    /// The same for `len` bytes that lie in several pieces and that the receiver copies: many go past the cache, for that one fetches
    /// them all and this side needs none of them again.
    pub fn store_parts<'a>(&mut self, parts: impl Iterator<Item = &'a [u8]>, len: usize) -> Option<u64> {
        let offset = self.room_for(len)?;
        let memory = self.arena.memory();
        if len < PAST_CACHE_BYTES {
            write_parts(parts, offset, |at, part| memory.write_at(at, part))?;
        } else {
            let mut past = memory.past_cache();
            write_parts(parts, offset, |at, part| past.write_at(at, part))?;
        }
        Some(offset)
    }

    fn room_for(&mut self, len: usize) -> Option<u64> {
        if self.slots.has_room() { self.arena.alloc(len as u64) } else { None }
    }

    /// The number under which a buffer can be passed to the receiver, if there is one, and a slot to say so. Pass it by a message that
    /// says the number, after the file if that is new, and then tell by [`DirectSender::note_passed`].
    pub fn number_of(&mut self, buffer: &Buffer) -> Option<Number> {
        if self.slots.has_room() { self.passed.number_of(buffer) } else { None }
    }

    /// A buffer was passed: it is the receiver's until that one gives it back.
    pub fn note_passed(&mut self, number: u32, buffer: impl Into<ToPass>) {
        self.passed.note(number, buffer.into());
    }

    /// Whether the receiver has the buffer of this number, as far as was [taken back](DirectSender::reclaim_passed).
    pub fn is_passed(&self, number: u32) -> bool {
        self.passed.is_out(number)
    }

    /// Takes back the buffers that the receiver has given back; whether it has all.
    pub fn reclaim_passed(&mut self) -> bool {
        self.passed.reclaim()
    }

    /// Whether a message of `len` bytes would find room in the arena, and a slot.
    pub fn has_room(&mut self, len: usize) -> bool {
        self.slots.has_room() && self.arena.largest_alloc() >= len as u64
    }

    /// Whether the receiver has taken all messages.
    pub fn is_drained(&mut self) -> bool {
        self.slots.taken() == self.slots.pushed()
    }

    /// Messages that the receiver has not taken.
    pub fn waiting(&mut self) -> u64 {
        self.slots.pushed() - self.slots.taken()
    }

    /// Whether nobody reads any more.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.is_lost || self.receiver_gone.load() != 0
    }

    /// Whether messages were put in that nobody will ever read, for no receiver has mapped the ring.
    pub fn is_in_vain(&self) -> bool {
        self.is_over() && self.slots.pushed() > 0 && self.receiver_came.load() == 0
    }

    /// Notes that nobody reads any more, where there is nobody who would say so.
    pub fn lose_receiver(&mut self) {
        self.is_lost = true;
    }

    /// Has the receiver wake this end when it has given something back. Look once more afterwards.
    pub fn await_room(&self) {
        self.room.prepare();
    }

    /// Waits for room no longer.
    pub fn forget_room(&self) {
        self.room.cancel();
    }

    /// After a push: whether the receiver sleeps for this ring, and has to be woken.
    #[inline]
    pub fn claim_sleeper(&self) -> bool {
        self.data.claim()
    }
}

/// Writes pieces one behind the other from `at` on.
fn write_parts<'a>(
    parts: impl Iterator<Item = &'a [u8]>,
    mut at: u64,
    mut write: impl FnMut(u64, &[u8]) -> Option<()>,
) -> Option<()> {
    for part in parts {
        write(at, part)?;
        at += part.len() as u64;
    }
    Some(())
}

/// The receiver's end of a direct ring.
#[derive(Debug)]
pub struct DirectReceiver {
    slots: SlotConsumer,
    arena: ArenaReleaser,
    passed: PassedIn,
    room: Doorbell,
    data: Doorbell,
    sender_gone: WordView,
    /// This end has found out by itself that nothing follows.
    is_lost: bool,
    /// Something was given back that the sender may wait for.
    owes: bool,
}

impl DirectReceiver {
    /// Maps a ring, once.
    ///
    /// # Errors
    /// `InvalidData`: it is none.
    pub fn attach(file: OwnedFd) -> io::Result<DirectReceiver> {
        let segment = mapped(file)?;
        Word::new(&segment, RECEIVER_CAME).ok_or_else(misfit)?.store(1);
        Ok(DirectReceiver {
            slots: SlotConsumer::new(&segment, SLOTS_AT, SLOTS).ok_or_else(misfit)?,
            arena: ArenaReleaser::new(&segment, ARENA).ok_or_else(misfit)?,
            passed: PassedIn::new(&segment, PASSED).ok_or_else(misfit)?,
            room: Doorbell::new(&segment, ROOM_BELL).ok_or_else(misfit)?,
            data: Doorbell::new(&segment, DATA_BELL).ok_or_else(misfit)?,
            sender_gone: WordView::new(&segment, SENDER_GONE).ok_or_else(misfit)?,
            is_lost: false,
            owes: false,
        })
    }

    /// What the next message says of itself; `None` when there is none now.
    #[inline(always)]
    pub fn peek(&mut self) -> Option<Label> {
        self.slots.peek()
    }

    /// Copies the front of the body of the message that [`DirectReceiver::peek`] showed.
    #[inline]
    pub fn read_body(&mut self, into: &mut [u8]) {
        self.slots.read_body(into);
    }

    /// The word before that body, if there is one.
    #[inline]
    pub fn front(&self) -> u64 {
        self.slots.front()
    }

    /// Copies the front of the body behind that word.
    #[inline]
    pub fn read_behind(&mut self, into: &mut [u8]) {
        self.slots.read_behind(into);
    }

    /// Is done with the slot of the message that [`DirectReceiver::peek`] showed.
    #[inline]
    pub fn advance(&mut self) {
        self.slots.advance();
        self.owes = true;
    }

    /// Where longer messages lie.
    pub fn memory(&self) -> &Region {
        self.arena.memory()
    }

    /// Gives the memory of a longer message back.
    pub fn release(&mut self, offset: u64) {
        self.arena.release(offset);
        self.owes = true;
    }

    /// The file that holds the buffers passed under this number, if one was given.
    pub fn passed_file(&self, number: u32) -> Option<&Arc<Segment>> {
        self.passed.file(number)
    }

    /// The sender has given a file under this number; false if there is no such number.
    pub fn set_passed_file(&mut self, number: u32, file: Arc<Segment>) -> bool {
        self.passed.set_file(number, file)
    }

    /// Gives a buffer back that was passed.
    pub fn return_passed(&mut self, number: u32) {
        self.passed.give_back(number);
        self.owes = true;
    }

    /// Tells the sender how far this end is; whether that one waits for room, and has to be woken. Asked before each wait, or the
    /// sender could wait in vain.
    #[inline]
    pub fn tell(&mut self) -> bool {
        if !self.owes {
            return false;
        }
        self.owes = false;
        self.slots.tell();
        self.room.claim()
    }

    /// Has the sender wake this end when it has put something in. Look once more afterwards.
    pub fn await_data(&self) {
        self.data.prepare();
    }

    /// Looks by itself again.
    pub fn forget_data(&self) {
        self.data.cancel();
    }

    /// Whether nothing follows what is there.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.is_lost || self.sender_gone.load() != 0
    }

    /// Notes that nothing follows what is there, where there is nobody who would say so.
    pub fn lose_sender(&mut self) {
        self.is_lost = true;
    }
}

fn mapped(file: OwnedFd) -> io::Result<Arc<Segment>> {
    let segment = Segment::mapped(file)?;
    if segment.len() != SEGMENT_BYTES {
        return Err(misfit());
    }
    let mut magic = [0; 8];
    segment.read_at(0, &mut magic);
    if magic == MAGIC.to_ne_bytes() { Ok(segment) } else { Err(misfit()) }
}

fn misfit() -> io::Error {
    invalid("memory is no direct ring")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passed::PASSED_MAX;
    use crate::pool::Pool;
    use crate::shared_buffer::SharedBuffer;

    fn ends() -> (Direct, DirectSender, DirectReceiver) {
        let direct = Direct::create().unwrap();
        let file = || direct.segment().fd().unwrap().try_clone_to_owned().unwrap();
        let (sender, receiver) =
            (DirectSender::attach(file()).unwrap(), DirectReceiver::attach(file()).unwrap());
        (direct, sender, receiver)
    }

    fn label(note: u32) -> Label {
        Label { note, meta: u64::from(note) << 7 }
    }

    #[test]
    fn short_and_long_messages_come_in_order() {
        let (_keeper, mut sender, mut receiver) = ends();
        for number in 0..5_000 {
            let long = vec![number as u8; 3_000 + number as usize];
            let offset = sender.store(&long).unwrap();
            sender.push(label(number), &offset.to_ne_bytes()).unwrap();
            assert!(!sender.is_drained());
            assert_eq!(receiver.peek(), Some(label(number)));
            let mut place = [0; 8];
            receiver.read_body(&mut place);
            let offset = u64::from_ne_bytes(place);
            receiver.advance();
            assert_eq!(receiver.memory().bytes(offset, long.len()).unwrap(), long);
            receiver.release(offset);
            assert!(receiver.peek().is_none() && !receiver.tell());
            assert!(sender.is_drained() && sender.waiting() == 0);
        }
    }

    #[test]
    fn a_sender_without_room_is_woken_once_something_is_given_back() {
        let (_keeper, mut sender, mut receiver) = ends();
        while sender.push(label(1), b"x").is_ok() {}
        assert!(sender.store(b"no slot would say where").is_none());
        sender.await_room();
        assert!(!receiver.tell(), "nothing was given back");
        assert!(receiver.peek().is_some());
        receiver.advance();
        assert!(receiver.tell() && !receiver.tell());
        assert!(sender.push(label(2), b"y").is_ok());

        while receiver.peek().is_some() {
            receiver.advance();
        }
        let stored: Vec<u64> = std::iter::from_fn(|| sender.store(&[7; 100_000])).collect();
        assert!(stored.len() >= 30);
        sender.await_room();
        sender.forget_room();
        receiver.release(stored[0]);
        assert!(!receiver.tell(), "it waits no longer");
        assert!(sender.store(&[7; 100_000]).is_some());
    }

    #[test]
    fn a_receiver_that_sleeps_for_a_ring_is_woken_once_something_is_there() {
        let (_keeper, mut sender, receiver) = ends();
        sender.push(label(1), b"x").unwrap();
        assert!(!sender.claim_sleeper(), "it looks by itself");
        receiver.await_data();
        assert!(sender.claim_sleeper() && !sender.claim_sleeper());
        receiver.await_data();
        receiver.forget_data();
        assert!(!sender.claim_sleeper());
    }

    #[test]
    fn pieces_are_stored_one_behind_the_other() {
        let (_keeper, mut sender, receiver) = ends();
        let parts: [&[u8]; 3] = [b"one", b"", b" and another"];
        let offset = sender.store_parts(parts.into_iter(), 15).unwrap();
        assert_eq!(receiver.memory().bytes(offset, 15).unwrap(), b"one and another");
        let arena = DIRECT_ARENA_BYTES as usize;
        assert!(sender.has_room(arena / 2) && !sender.has_room(2 * arena));
    }

    #[test]
    fn passed_buffers_are_read_where_they_lie_and_used_again_once_they_were_given_back() {
        let (_keeper, mut sender, mut receiver) = ends();
        let pool = Pool::in_files(1 << 20, 1 << 20);
        let mut files = 0;
        for round in 0..1_000u32 {
            let mut buffer = pool.alloc(100_000).unwrap();
            buffer.fill(round as u8);
            let Number { number, is_new } = sender.number_of(&buffer).unwrap();
            if is_new {
                files += 1;
                let file = buffer.file().unwrap().fd().unwrap().try_clone_to_owned().unwrap();
                assert!(receiver.set_passed_file(number, Segment::mapped(file).unwrap()));
            }
            sender.push(label(number), b"").unwrap();
            sender.note_passed(number, buffer);
            assert!(!sender.reclaim_passed(), "it is the receiver's");
            let number = receiver.peek().unwrap().note;
            receiver.advance();
            let read = receiver.passed_file(number).unwrap().bytes(0, 100_000).unwrap();
            assert!(read.iter().all(|&byte| byte == round as u8));
            receiver.return_passed(number);
            assert!(round % 2 == 0 || sender.reclaim_passed());
        }
        assert!(files <= 2, "{files} files");
    }

    #[test]
    fn there_are_as_many_numbers_as_buffers_can_be_out_and_new_files_take_those_that_are_free() {
        let (_keeper, mut sender, mut receiver) = ends();
        let pool = Pool::in_files(1 << 30, 0);
        let pass = |sender: &mut DirectSender| {
            let buffer = pool.alloc(4_096).unwrap();
            let number = sender.number_of(&buffer)?;
            sender.note_passed(number.number, buffer);
            Some(number)
        };
        for number in 0..PASSED_MAX {
            assert_eq!(pass(&mut sender), Some(Number { number, is_new: true }));
        }
        assert_eq!(pass(&mut sender), None, "all are out");
        receiver.return_passed(7);
        assert_eq!(pass(&mut sender), Some(Number { number: 7, is_new: true }), "of a file that is no more");
        receiver.return_passed(PASSED_MAX);
        receiver.return_passed(u32::MAX);
        let nothing = receiver.passed_file(3).is_none() && receiver.passed_file(u32::MAX).is_none();
        assert!(nothing && pass(&mut sender).is_none());
        let private = Pool::new(1 << 20).alloc(4_096).unwrap();
        assert_eq!(sender.number_of(&private), None, "nobody else can map it");
    }

    #[test]
    fn what_a_sender_that_ends_had_passed_is_not_used_again() {
        let (_keeper, mut sender, mut receiver) = ends();
        let pool = Pool::in_files(1 << 20, 1 << 20);
        let [kept, back] = [(); 2].map(|()| pool.alloc(4_096).unwrap());
        for buffer in [kept, back] {
            let number = sender.number_of(&buffer).unwrap().number;
            sender.note_passed(number, buffer);
        }
        receiver.return_passed(1);
        drop(sender);
        assert_eq!((pool.held_bytes(), pool.idle_bytes()), (4_096, 4_096), "the one that came back");
    }

    #[test]
    fn a_buffer_that_is_given_back_before_its_sender_has_noted_it_is_back() {
        let (_keeper, mut sender, mut receiver) = ends();
        let pool = Pool::in_files(1 << 20, 1 << 20);
        for _ in 0..3 {
            let buffer = pool.alloc(5_000).unwrap();
            let number = sender.number_of(&buffer).unwrap().number;
            sender.push(label(number), b"").unwrap();
            let number = receiver.peek().unwrap().note;
            receiver.return_passed(number);
            receiver.advance();
            sender.note_passed(number, buffer);
            assert!(sender.reclaim_passed());
        }
    }

    #[test]
    fn a_buffer_that_several_read_is_free_when_all_have_given_it_back() {
        let (mut keepers, mut pairs) = (Vec::new(), Vec::new());
        for (keeper, sender, receiver) in [ends(), ends(), ends()] {
            keepers.push(keeper);
            pairs.push((sender, receiver));
        }
        let pool = Pool::in_files(1 << 20, 1 << 20);
        let shared = SharedBuffer::from(pool.alloc(5_000).unwrap());
        let numbers: Vec<u32> = pairs
            .iter_mut()
            .map(|(sender, _)| {
                let to_pass = ToPass::from(shared.clone());
                let number = sender.number_of(to_pass.buffer().unwrap()).unwrap().number;
                sender.note_passed(number, to_pass);
                number
            })
            .collect();
        let again = ToPass::from(shared);
        assert_eq!(pairs[0].0.number_of(again.buffer().unwrap()), None, "it has that one");
        drop(again);
        for ((sender, receiver), number) in pairs.iter_mut().zip(numbers) {
            assert_eq!(pool.idle_bytes(), 0, "somebody has it");
            receiver.return_passed(number);
            assert!(sender.reclaim_passed());
        }
        assert_eq!(pool.idle_bytes(), 8_192);
    }

    #[test]
    fn each_end_learns_that_the_other_is_gone() {
        let (mut keeper, mut sender, mut receiver) = ends();
        assert!(!sender.is_over() && !receiver.is_over());
        sender.push(label(9), b"last").unwrap();
        keeper.lose_sender();
        assert!(receiver.is_over() && receiver.peek() == Some(label(9)), "what is there is read first");
        keeper.lose_receiver();
        assert!(sender.is_over());
    }

    #[test]
    fn what_was_put_in_before_anybody_came_to_read_is_in_vain_once_nobody_will() {
        let direct = Direct::create().unwrap();
        let file = || direct.segment().fd().unwrap().try_clone_to_owned().unwrap();
        let mut sender = DirectSender::attach(file()).unwrap();
        sender.push(label(1), b"x").unwrap();
        assert!(!sender.is_in_vain(), "somebody may come");
        sender.lose_receiver();
        assert!(sender.is_in_vain());
        let _receiver = DirectReceiver::attach(file()).unwrap();
        assert!(!sender.is_in_vain(), "it was read, or is lost as all is that nobody had read");
        let (_keeper, mut sender, _receiver) = ends();
        sender.lose_receiver();
        assert!(sender.is_over() && !sender.is_in_vain(), "nothing was put in");
    }

    #[test]
    fn what_is_no_ring_is_refused() {
        let file = |bytes: usize| Segment::shared(bytes).unwrap().fd().unwrap().try_clone_to_owned().unwrap();
        assert!(DirectSender::attach(file(PAGE_BYTES)).is_err());
        assert!(DirectReceiver::attach(file(SEGMENT_BYTES)).is_err(), "nobody has said what it is");
    }
}
