//! The ACK frame (protocol.md §4.4): which packets of a link arrived, and when.

use super::field::{Draft, fault, pad, padded, u16_at, u32_at, u64_at};
use super::frame::{ACK_RANGES_MAX, Ack, AckRanges, kind};
use super::header::PACKET_NUMBER_MAX;
use super::{Fault, Malformed};
use crate::id::LinkId;
use smallvec::SmallVec;

const FIXED_BYTES: usize = 48;
const PAIR_BYTES: usize = 4;

/// Steps downward from the first range: so many missing, then so many received.
type Pairs = SmallVec<[(u16, u16); 4]>;

impl Ack {
    /// Bytes that [`Ack::emit`] appends.
    pub fn emitted_bytes(&self) -> usize {
        // Nearly always there is one range, and no pair.
        let pairs = if self.ranges.len() > 1 { self.pairs().1.len() } else { 0 };
        padded(FIXED_BYTES + PAIR_BYTES * pairs)
    }

    /// Appends the frame and its padding. Ranges that do not fit into [`ACK_RANGES_MAX`] pairs are left out, lowest
    /// first; acknowledging less is always safe.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let (first, pairs) = self.pairs();
        let len = FIXED_BYTES + PAIR_BYTES * pairs.len();
        Draft::<FIXED_BYTES>::frame(kind::ACK, 0, len)
            .u16(self.link.0)
            .u8(pairs.len() as u8)
            .u8(self.rx_batch_log2)
            .u64(self.largest)
            .u32(self.stamp_echo)
            .u32(self.delay)
            .u64(self.rx_bytes)
            .u32(self.rx_clock)
            .u32(self.ce_count)
            .u32(first)
            .u32(self.queueing)
            .end(out);
        for &(gap, received) in &pairs {
            Draft::<PAIR_BYTES>::new().u16(gap).u16(received).end(out);
        }
        pad(len, out);
    }

    /// Packets below `largest` in the first range, and the pairs of the others.
    fn pairs(&self) -> (u32, Pairs) {
        let mut pairs = Pairs::new();
        let mut low = self.ranges.first().map_or(self.largest, |range| range.0);
        let Ok(first) = u32::try_from(self.largest - low) else {
            return (u32::MAX, pairs);
        };
        if self.ranges.len() <= 1 {
            return (first, pairs);
        }
        for &(from, to) in self.ranges.iter().skip(1) {
            debug_assert!(from <= to && to + 1 < low, "ranges are ordered and do not touch");
            if !push_range(&mut pairs, low - to - 1, to - from + 1) {
                break;
            }
            low = from;
        }
        // A gap whose range did not fit says nothing.
        while pairs.last().is_some_and(|pair| pair.1 == 0) {
            pairs.pop();
        }
        (first, pairs)
    }

    #[inline]
    pub(crate) fn parse(frame: &[u8]) -> Result<Ack, Malformed> {
        let b: &[u8; FIXED_BYTES] = frame.first_chunk().ok_or(fault(Fault::FrameLength, 2))?;
        let count = usize::from(b[6]);
        if count > ACK_RANGES_MAX {
            return Err(fault(Fault::Count, 6));
        }
        if frame.len() != FIXED_BYTES + PAIR_BYTES * count {
            return Err(fault(Fault::FrameLength, 2));
        }
        if b[1] != 0 {
            return Err(fault(Fault::Reserved, 1));
        }
        let largest = u64_at(b, 8);
        if largest > PACKET_NUMBER_MAX {
            return Err(fault(Fault::Value, 8));
        }
        let first = largest.checked_sub(u64::from(u32_at(b, 40))).ok_or(fault(Fault::AckRange, 40))?;
        let mut ranges = AckRanges::from_buf_and_len([(first, largest); 2], 1);
        if count > 0 {
            parse_pairs(&frame[FIXED_BYTES..], &mut ranges)
                .map_err(|pair| fault(Fault::AckRange, FIXED_BYTES + PAIR_BYTES * pair))?;
        }
        Ok(Ack {
            link: LinkId(u16_at(b, 4)),
            rx_batch_log2: b[7],
            largest,
            stamp_echo: u32_at(b, 16),
            delay: u32_at(b, 20),
            rx_bytes: u64_at(b, 24),
            rx_clock: u32_at(b, 32),
            ce_count: u32_at(b, 36),
            queueing: u32_at(b, 44),
            ranges,
        })
    }
}

/// Adds one range in as many pairs as its numbers need; `false` once there is no room for all of it.
fn push_range(pairs: &mut Pairs, mut gap: u64, mut received: u64) -> bool {
    const MOST: u64 = u16::MAX as u64;
    while gap > 0 || received > 0 {
        let step = gap.min(MOST);
        gap -= step;
        let count = if gap == 0 { received.min(MOST) } else { 0 };
        received -= count;
        if pairs.len() == ACK_RANGES_MAX {
            return false;
        }
        pairs.push((step as u16, count as u16));
    }
    true
}

/// Adds the ranges below the one in `ranges`; the index of the first impossible pair otherwise.
fn parse_pairs(pairs: &[u8], ranges: &mut AckRanges) -> Result<(), usize> {
    let mut low = ranges[0].0;
    let mut touching = true;
    for (index, pair) in pairs.chunks_exact(PAIR_BYTES).enumerate() {
        let (gap, received) = (u64::from(u16_at(pair, 0)), u64::from(u16_at(pair, 2)));
        if gap == 0 && received == 0 {
            return Err(index);
        }
        touching &= gap == 0;
        let to = low.checked_sub(gap).ok_or(index)?;
        low = to.checked_sub(received).ok_or(index)?;
        if received > 0 {
            match ranges.last_mut() {
                Some(range) if touching => range.0 = low,
                _ => ranges.push((low, to - 1)),
            }
            touching = true;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ack(ranges: &[(u64, u64)]) -> Ack {
        Ack {
            link: LinkId(2),
            rx_batch_log2: 14,
            largest: ranges[0].1,
            stamp_echo: 1,
            delay: 2,
            rx_bytes: 3,
            rx_clock: 4,
            ce_count: 5,
            queueing: 6,
            ranges: ranges.iter().copied().collect(),
        }
    }

    fn round(ranges: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let (ack, mut out) = (ack(ranges), Vec::new());
        ack.emit(&mut out);
        assert_eq!(out.len(), ack.emitted_bytes());
        let len = usize::from(u16_at(&out, 2));
        Ack::parse(&out[..len]).unwrap().ranges.to_vec()
    }

    #[test]
    fn large_gaps_and_long_ranges_survive() {
        for ranges in [
            vec![(0, 0)],
            vec![(1_000_000, 9_000_000), (5, 800_000), (0, 0)],
            vec![(200_000, 200_000), (134_464, 134_464), (0, 68_927)],
            vec![(131_072, 131_073), (65_536, 131_070), (0, 65_534)],
        ] {
            assert_eq!(round(&ranges), ranges);
        }
    }

    #[test]
    fn what_does_not_fit_is_left_out_from_below() {
        // Each of these gaps takes 16 pairs, so two ranges fit and the third does not.
        let gap = 1_000_000;
        let ranges: Vec<(u64, u64)> = (1..5).rev().map(|i| (i * gap, i * gap)).collect();
        assert_eq!(round(&ranges), ranges[..3]);
        // A range cut in the middle keeps its upper part.
        let long = 40 * 65_535;
        let cut = round(&[(long + 10, long + 10), (1, long)]);
        assert_eq!(cut, [(long + 10, long + 10), (long + 1 - 32 * 65_535, long)]);
    }

    #[test]
    fn a_first_range_beyond_the_field_is_clipped() {
        let top = 1 << 40;
        assert_eq!(round(&[(3, top), (0, 1)]), [(top - u64::from(u32::MAX), top)]);
    }
}
