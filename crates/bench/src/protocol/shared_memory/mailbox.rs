//! A row of mailboxes each way: one message in one or two adjacent cache lines, in each of them the number of the message
//! beside its bytes.
//!
//! A reader that finds the number has the bytes by the same transfer of the line: nothing that tells of them elsewhere is
//! waited for. Less than one line's way there and one back no exchange of messages between two cores can take. Several
//! mailboxes make a row, so that one-way messages follow each other without an answer.

use std::io;

use polyrail_shm::{Doorbell, Region, Word, WordView};

use super::{Shared, impossible, inside};
use crate::protocol::{Pipe, Setup};

/// Mailboxes of one row: few enough for a core's first-level cache.
const BOXES: u64 = 64;
/// A mailbox is a pair of lines, for processors fetch lines in pairs.
const BOX_BYTES: u64 = 128;
const LINES: usize = 2;
const LINE_BYTES: usize = 64;
/// Bytes of the message in a line; the rest is its number.
const CONTENTS_BYTES: usize = LINE_BYTES - NUMBER_BYTES;
const NUMBER_BYTES: usize = 8;

/// The longest message.
pub(super) const MESSAGE_BYTES_MAX: usize = LINES * CONTENTS_BYTES;

// One direction: how many messages were taken, the bells, the mailboxes.
const TAKEN: u64 = 0;
const POST_BELL: u64 = 128;
const ROOM_BELL: u64 = 256;
const ROW: u64 = 384;

/// Bytes of one direction, in whole pages.
pub(super) const AREA_BYTES: u64 = (ROW + BOXES * BOX_BYTES).next_multiple_of(4096);

/// This process's end of both rows.
pub(super) fn pipe(shared: Shared, setup: &Setup) -> io::Result<Box<dyn Pipe>> {
    let lines = setup.size.div_ceil(CONTENTS_BYTES);
    if lines > LINES {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "message too long for a mailbox"));
    }
    let outgoing = Outgoing::new(&shared, lines)?;
    let incoming = Incoming::new(&shared, lines)?;
    Ok(Box::new(MailboxPipe { shared, outgoing, incoming, size: setup.size }))
}

struct MailboxPipe {
    shared: Shared,
    outgoing: Outgoing,
    incoming: Incoming,
    size: usize,
}

impl Pipe for MailboxPipe {
    fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        let Outgoing { row, room_bell, post_bell } = &mut self.outgoing;
        let posted = self.shared.turn(room_bell, io::ErrorKind::BrokenPipe, || row.post(message))?;
        if posted.is_some() {
            self.shared.ring(post_bell);
        }
        Ok(posted.is_some())
    }

    fn recv(&mut self, sink: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
        let Incoming { row, room_bell, post_bell } = &mut self.incoming;
        let size = self.size;
        let count = self.shared.turn(post_bell, io::ErrorKind::UnexpectedEof, || Ok(row.take(size, sink)))?;
        if count.is_some() {
            self.shared.ring(room_bell);
        }
        Ok(count.unwrap_or(0))
    }
}

struct Outgoing {
    row: PostingRow,
    room_bell: Doorbell,
    post_bell: Doorbell,
}

impl Outgoing {
    fn new(shared: &Shared, lines: usize) -> io::Result<Self> {
        let (segment, at) = (&shared.segment, shared.outgoing);
        let numbers: Option<Vec<Word>> =
            number_places(at, lines).map(|place| Word::new(segment, place)).collect();
        Ok(Self {
            row: PostingRow {
                numbers: inside(numbers)?,
                lines,
                boxes: inside(Region::new(segment, at + ROW, BOXES * BOX_BYTES))?,
                taken: inside(WordView::new(segment, at + TAKEN))?,
                taken_seen: 0,
                posted: 0,
            },
            room_bell: inside(Doorbell::new(segment, at + ROOM_BELL))?,
            post_bell: inside(Doorbell::new(segment, at + POST_BELL))?,
        })
    }
}

struct Incoming {
    row: TakingRow,
    room_bell: Doorbell,
    post_bell: Doorbell,
}

impl Incoming {
    fn new(shared: &Shared, lines: usize) -> io::Result<Self> {
        let (segment, at) = (&shared.segment, shared.incoming);
        let numbers: Option<Vec<WordView>> =
            number_places(at, lines).map(|place| WordView::new(segment, place)).collect();
        Ok(Self {
            row: TakingRow {
                numbers: inside(numbers)?,
                lines,
                boxes: inside(Region::new(segment, at + ROW, BOXES * BOX_BYTES))?,
                taken: inside(Word::new(segment, at + TAKEN))?,
            },
            room_bell: inside(Doorbell::new(segment, at + ROOM_BELL))?,
            post_bell: inside(Doorbell::new(segment, at + POST_BELL))?,
        })
    }
}

/// Where the numbers of all mailboxes stand, of each the lines that are used.
fn number_places(area: u64, lines: usize) -> impl Iterator<Item = u64> {
    let line_bytes = LINE_BYTES as u64;
    (0..BOXES).flat_map(move |number| {
        (0..lines as u64).map(move |line| area + ROW + number * BOX_BYTES + line * line_bytes)
    })
}

/// The posting side of a row. The number of the first message is 1: memory begins with zeros.
struct PostingRow {
    numbers: Vec<Word>,
    lines: usize,
    boxes: Region,
    taken: WordView,
    taken_seen: u64,
    posted: u64,
}

impl PostingRow {
    /// Puts a message into the next mailbox; none if that is still full.
    #[inline]
    fn post(&mut self, message: &[u8]) -> io::Result<Option<()>> {
        if self.posted - self.taken_seen >= BOXES {
            let taken = self.taken.load();
            if taken < self.taken_seen || taken > self.posted {
                return Err(impossible("number of messages taken", taken));
            }
            self.taken_seen = taken;
            if self.posted - taken >= BOXES {
                return Ok(None);
            }
        }
        let place = self.posted % BOXES;
        for (line, part) in (0..).zip(message.chunks(CONTENTS_BYTES)) {
            inside(self.boxes.write_at(contents_place(place, line), part))?;
        }
        self.posted += 1;
        let first = place as usize * self.lines;
        for number in &mut self.numbers[first..first + self.lines] {
            number.store(self.posted);
        }
        Ok(Some(()))
    }
}

/// The taking side of a row.
struct TakingRow {
    numbers: Vec<WordView>,
    lines: usize,
    boxes: Region,
    taken: Word,
}

impl TakingRow {
    /// Takes the messages that are there, a row of them at most, and then gives their mailboxes back; none if there is
    /// nothing.
    #[inline]
    fn take(&mut self, size: usize, sink: &mut dyn FnMut(&[u8])) -> Option<usize> {
        let before = self.taken.load();
        let mut next = before;
        let mut message = [0; MESSAGE_BYTES_MAX];
        while next - before < BOXES && self.is_posted(next) {
            let parts = message[..size].chunks_mut(CONTENTS_BYTES);
            for (line, part) in (0..).zip(parts) {
                self.boxes.read_at(contents_place(next % BOXES, line), part)?;
            }
            sink(&message[..size]);
            next += 1;
        }
        if next == before {
            return None;
        }
        self.taken.store(next);
        Some((next - before) as usize)
    }

    /// Whether message `index` (from 0) is wholly in its mailbox. Both lines are asked for before either answer counts,
    /// so that they come at the same time.
    #[inline]
    fn is_posted(&self, index: u64) -> bool {
        let first = (index % BOXES) as usize * self.lines;
        self.numbers[first..first + self.lines]
            .iter()
            .fold(true, |all, number| all & (number.load() == index + 1))
    }
}

fn contents_place(place: u64, line: u64) -> u64 {
    place * BOX_BYTES + line * LINE_BYTES as u64 + NUMBER_BYTES as u64
}
