//! Messages that lie in memory as they leave: with room for a packet's header before each piece of payload.
//!
//! A train of a large message is then one stretch of memory, headers and all. The kernel copies one long stretch much
//! faster than a hundred short ones, and where it can it takes the pages themselves and copies nothing.

use polyrail_proto::limits::{TRAIN_BYTES_MAX, TRAIN_PACKETS_MAX};
use polyrail_proto::ranges::RangeSet;
use polyrail_proto::transfer::{PIECE_HEAD_BYTES, piece_bytes};

const HEAD: u64 = PIECE_HEAD_BYTES as u64;

/// How messages are spaced: for packets that all carry so many bytes of payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Spacing {
    piece_bytes: u64,
}

impl Spacing {
    /// For packets of at most `packet_bytes`; `None` if they hold nothing.
    pub fn for_packets(packet_bytes: u16) -> Option<Spacing> {
        let piece_bytes = piece_bytes(packet_bytes as usize & !7) as u64;
        (piece_bytes > 0).then_some(Spacing { piece_bytes })
    }

    /// Payload bytes of one piece.
    pub fn piece_bytes(self) -> u64 {
        self.piece_bytes
    }

    /// The longest message of at most `most` bytes that leaves in whole trains: what is left over at the end of any other
    /// costs a call as a whole train does.
    pub fn whole_trains_bytes(self, most: u64) -> u64 {
        let packets = TRAIN_PACKETS_MAX.min(TRAIN_BYTES_MAX / (self.piece_bytes + HEAD) as usize).max(1);
        let train_bytes = packets as u64 * self.piece_bytes;
        if most < train_bytes { most } else { most - most % train_bytes }
    }

    /// Memory that a message of `len` bytes takes, with the padding of its last packet.
    pub fn stored_bytes(self, len: u64) -> u64 {
        (len + len.div_ceil(self.piece_bytes) * HEAD).next_multiple_of(8)
    }

    /// Where byte `offset` of a message lies, from the start of its memory.
    pub fn place(self, offset: u64) -> u64 {
        offset + (offset / self.piece_bytes + 1) * HEAD
    }

    /// Where the header before byte `offset` begins, if that is the first of a piece.
    pub fn head(self, offset: u64) -> Option<u64> {
        offset.is_multiple_of(self.piece_bytes).then(|| self.place(offset) - HEAD)
    }

    /// The stretches in memory of `len` bytes from byte `offset`: where each begins and how long it is.
    pub fn stretches(self, offset: u64, len: u64) -> impl Iterator<Item = (u64, u64)> {
        let (mut at, end) = (offset, offset + len);
        std::iter::from_fn(move || {
            let next = (at / self.piece_bytes + 1) * self.piece_bytes;
            let stretch = (at < end).then(|| (self.place(at), next.min(end) - at));
            at = next;
            stretch
        })
    }
}

/// A message whose pages were lent to the kernel: packets under way refer to them.
#[derive(Debug)]
pub(super) struct Loan {
    /// Where the message lies.
    pub start: u64,
    /// What of the message was lent. The headers before it may not be written again.
    pub lent: RangeSet,
    /// Something of it was sent again: packets that nobody waits for may refer to the pages after the end of the message.
    pub repeated: bool,
}

/// The loans of one sending arena.
#[derive(Default, Debug)]
pub(super) struct Loans(Vec<Loan>);

impl Loans {
    /// Bytes `from..to` of the message at `start` are sent by reference.
    pub fn lend(&mut self, start: u64, from: u64, to: u64) {
        if let Some(loan) = self.find(start) {
            loan.lent.insert(from, to);
            return;
        }
        let mut lent = RangeSet::new();
        lent.insert(from, to);
        self.0.push(Loan { start, lent, repeated: false });
    }

    /// Whether none of bytes `from..to` was lent before. Otherwise they are being sent again, which is remembered.
    pub fn is_first(&mut self, start: u64, from: u64, to: u64) -> bool {
        let Some(loan) = self.find(start) else { return true };
        let again = loan.lent.intersects(from, to);
        loan.repeated |= again;
        !again
    }

    /// The message at `start` has ended. If packets may still refer to its pages: before which byte of the message. Those
    /// are its last packets, if not all was confirmed, and those instead of which others were sent.
    pub fn end(&mut self, start: u64, confirmed: bool) -> Option<u64> {
        let at = self.0.iter().position(|loan| loan.start == start)?;
        let loan = self.0.swap_remove(at);
        let until = loan.lent.iter().next_back()?.1;
        (loan.repeated || !confirmed).then_some(until)
    }

    fn find(&mut self, start: u64) -> Option<&mut Loan> {
        self.0.iter_mut().find(|loan| loan.start == start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_lie_behind_their_headers() {
        let spacing = Spacing::for_packets(1_472).unwrap();
        assert_eq!((spacing.piece_bytes(), spacing.place(0), spacing.head(0)), (1_432, 40, Some(0)));
        assert_eq!((spacing.place(1_431), spacing.place(1_432)), (1_471, 1_472 + 40));
        assert_eq!((spacing.head(1_432), spacing.head(1_433)), (Some(1_472), None));
        assert_eq!(spacing.stored_bytes(1_432), 1_472);
        assert_eq!(spacing.stored_bytes(1_433), 1_472 + 48);
        assert_eq!(Spacing::for_packets(40), None);
    }

    #[test]
    fn whole_trains_are_as_many_as_fit() {
        let spacing = Spacing::for_packets(1_472).unwrap();
        let train = 44 * 1_432;
        let all = |lens: &[u64]| lens.iter().map(|len| spacing.whole_trains_bytes(*len)).collect::<Vec<_>>();
        assert_eq!(all(&[262_144, train, 2 * train - 1, train - 1]), [4 * train, train, train, train - 1]);
        let small = Spacing::for_packets(576).unwrap();
        assert_eq!(small.whole_trains_bytes(100_000), 2 * 64 * 536, "so many packets at most");
    }

    #[test]
    fn a_loan_lasts_until_all_that_refers_to_it_has_arrived() {
        let mut loans = Loans::default();
        assert!(loans.is_first(0, 0, 100) && loans.end(0, false).is_none(), "nothing was lent");
        loans.lend(0, 0, 100);
        loans.lend(65_536, 0, 100);
        loans.lend(0, 200, 300);
        assert!(loans.is_first(0, 100, 200) && loans.is_first(131_072, 0, 100));
        assert_eq!(loans.end(65_536, true), None, "all packets have arrived, each once");
        assert!(!loans.is_first(0, 150, 201));
        assert_eq!(loans.end(0, true), Some(300), "the first of them may be anywhere");
        loans.lend(0, 0, 100);
        assert_eq!(loans.end(0, false), Some(100), "it was given up");
        assert!(loans.is_first(0, 0, 100));
    }

    #[test]
    fn stretches_end_where_a_header_is() {
        let spacing = Spacing::for_packets(1_472).unwrap();
        let all = |offset, len| spacing.stretches(offset, len).collect::<Vec<_>>();
        assert_eq!(all(0, 1_432), [(40, 1_432)]);
        assert_eq!(all(1_000, 2_000), [(1_040, 432), (1_512, 1_432), (2_984, 136)]);
        assert_eq!(all(1_431, 1), [(1_471, 1)]);
        assert_eq!(all(1_432, 0), []);
        for (offset, len) in [(0, 100_000), (7, 9_999), (1_432, 5_000)] {
            let end = spacing.stored_bytes(offset + len);
            assert_eq!(all(offset, len).iter().map(|s| s.1).sum::<u64>(), len);
            assert!(all(offset, len).iter().all(|s| s.0 + s.1 <= end));
        }
    }
}
