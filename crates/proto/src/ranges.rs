//! Sets of byte ranges: what was sent, acknowledged, placed or lost of one message (protocol.md §5.3).
//!
//! Trains are contiguous extents, so a set holds about as many ranges as there are links and recent losses: a handful,
//! kept inline in sorted order. A caller that lets a peer decide what is inserted must bound [`RangeSet::len`].

use smallvec::SmallVec;

/// Gaps or pieces, lowest first.
pub type Pieces = SmallVec<[(u64, u64); 4]>;

/// A set of numbers as sorted, disjoint, non-touching half-open ranges `start..end`.
///
/// Appending at the end and questions about the last range cost O(1); everything else a binary search and, at worst,
/// one move of the ranges behind the place of change.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RangeSet {
    ranges: Pieces,
    bytes: u64,
}

impl RangeSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `start..end` and returns how many bytes of it were not in the set before.
    pub fn insert(&mut self, start: u64, end: u64) -> u64 {
        if start >= end {
            return 0;
        }
        let added = match self.ranges.last_mut() {
            Some(last) if start <= last.1 && start >= last.0 => {
                let added = end.saturating_sub(last.1);
                last.1 = last.1.max(end);
                added
            }
            Some(last) if start < last.0 => self.insert_inside(start, end),
            _ => {
                self.ranges.push((start, end));
                end - start
            }
        };
        self.bytes += added;
        added
    }

    /// Adds `start..end` if a range ends at `start` and the next one begins behind `end`; whether it was added.
    pub fn extend(&mut self, start: u64, end: u64) -> bool {
        let Some(at) = self.ranges.iter().rposition(|range| range.0 < start) else { return false };
        let free = self.ranges.get(at + 1).is_none_or(|next| next.0 > end);
        let extends = free && self.ranges[at].1 == start && start < end;
        if extends {
            self.ranges[at].1 = end;
            self.bytes += end - start;
        }
        extends
    }

    /// Adds up to `count` pieces of `len` bytes each of a message of `total` bytes, if a range ends at `start` and the next one
    /// begins behind them, but none that completes the message; how many.
    pub fn extend_by(&mut self, total: u64, start: u64, (len, count): (u64, u64)) -> Option<u64> {
        let missing = total.saturating_sub(start.max(self.bytes));
        // One byte at least is left for the last piece.
        let count = (missing.checked_sub(1)? / len.max(1)).min(count);
        self.extend(start, start + count * len).then_some(count)
    }

    /// Takes `start..end` out and returns how many bytes of it were in the set.
    pub fn remove(&mut self, start: u64, end: u64) -> u64 {
        if start >= end {
            return 0;
        }
        let from = self.ranges.partition_point(|r| r.1 <= start);
        let to = from + self.ranges[from..].partition_point(|r| r.0 < end);
        if from == to {
            return 0;
        }
        let head = (self.ranges[from].0, start);
        let tail = (end, self.ranges[to - 1].1);
        let taken: u64 = self.ranges[from..to].iter().map(|r| r.1.min(end) - r.0.max(start)).sum();
        let kept: SmallVec<[(u64, u64); 2]> = [head, tail].into_iter().filter(|r| r.0 < r.1).collect();
        self.replace(from, to, &kept);
        self.bytes -= taken;
        taken
    }

    /// Whether all of `start..end` is in the set; true for an empty question.
    pub fn covers(&self, start: u64, end: u64) -> bool {
        if start >= end {
            return true;
        }
        let at = self.ranges.partition_point(|r| r.1 <= start);
        self.ranges.get(at).is_some_and(|r| r.0 <= start && end <= r.1)
    }

    /// Whether any of `start..end` is in the set.
    pub fn intersects(&self, start: u64, end: u64) -> bool {
        let at = self.ranges.partition_point(|r| r.1 <= start);
        start < end && self.ranges.get(at).is_some_and(|r| r.0 < end)
    }

    /// The parts of `start..end` that are not in the set, lowest first.
    pub fn missing(&self, start: u64, end: u64) -> Pieces {
        let mut gaps = Pieces::new();
        let mut at = start;
        let from = self.ranges.partition_point(|r| r.1 <= start);
        for r in self.ranges[from..].iter().take_while(|r| r.0 < end) {
            if at < r.0 {
                gaps.push((at, r.0));
            }
            at = r.1;
        }
        if at < end {
            gaps.push((at, end));
        }
        gaps
    }

    /// Takes at most `max` bytes out of the lowest range and returns them; `None` if the set is empty or `max` is 0.
    pub fn pop_first(&mut self, max: u64) -> Option<(u64, u64)> {
        let first = self.ranges.first_mut().filter(|_| max > 0)?;
        let (start, end) = *first;
        let cut = end.min(start.saturating_add(max));
        if cut == end {
            self.ranges.remove(0);
        } else {
            first.0 = cut;
        }
        self.bytes -= cut - start;
        Some((start, cut))
    }

    /// The lowest range.
    pub fn first(&self) -> Option<(u64, u64)> {
        self.ranges.first().copied()
    }

    /// End of the range that starts at 0, else 0: how far the set is complete.
    pub fn prefix(&self) -> u64 {
        self.ranges.first().filter(|r| r.0 == 0).map_or(0, |r| r.1)
    }

    /// Bytes in the set.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of ranges.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether nothing is in the set.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The ranges, lowest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> + ExactSizeIterator + '_ {
        self.ranges.iter().copied()
    }

    /// Empties the set; its memory is kept.
    pub fn clear(&mut self) {
        self.ranges.clear();
        self.bytes = 0;
    }

    /// Inserts before the end of the last range: merges every range that `start..end` overlaps or touches.
    fn insert_inside(&mut self, start: u64, end: u64) -> u64 {
        let from = self.ranges.partition_point(|r| r.1 < start);
        let to = from + self.ranges[from..].partition_point(|r| r.0 <= end);
        if from == to {
            self.ranges.insert(from, (start, end));
            return end - start;
        }
        let merged = (start.min(self.ranges[from].0), end.max(self.ranges[to - 1].1));
        let before: u64 = self.ranges[from..to].iter().map(|r| r.1 - r.0).sum();
        self.replace(from, to, &[merged]);
        merged.1 - merged.0 - before
    }

    /// Puts `with` in the place of the ranges `from..to`.
    fn replace(&mut self, from: usize, to: usize, with: &[(u64, u64)]) {
        let reused = with.len().min(to - from);
        self.ranges[from..from + reused].copy_from_slice(&with[..reused]);
        if reused < with.len() {
            self.ranges.insert_from_slice(from + reused, &with[reused..]);
        } else {
            self.ranges.drain(from + reused..to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small generator, so that a failure repeats by its seed.
    fn random(state: &mut u64, below: u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state % below
    }

    fn set_of(ranges: &[(u64, u64)]) -> RangeSet {
        let mut set = RangeSet::new();
        for r in ranges {
            set.insert(r.0, r.1);
        }
        set
    }

    fn runs_of(bits: &[bool], want: bool) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for (i, _) in bits.iter().enumerate().filter(|(_, b)| **b == want) {
            match runs.last_mut() {
                Some(r) if r.1 == i as u64 => r.1 += 1,
                _ => runs.push((i as u64, i as u64 + 1)),
            }
        }
        runs
    }

    #[test]
    fn a_range_is_extended_only_where_one_ends() {
        let mut set = RangeSet::new();
        assert!(!set.extend(0, 10) && set.is_empty());
        set.insert(0, 10);
        set.insert(30, 40);
        assert!(!set.extend(9, 12) && !set.extend(11, 12), "neither over nor behind the end");
        assert!(!set.extend(10, 30), "that joins two");
        assert!(!set.extend(10, 31) && !set.extend(10, 10));
        assert!(set.extend(10, 29) && set.extend(40, 50));
        assert_eq!(set.iter().collect::<Vec<_>>(), [(0, 29), (30, 50)]);
        assert_eq!(set.bytes(), 49);
    }

    #[test]
    fn touching_ranges_become_one() {
        let mut set = set_of(&[(0, 10), (20, 30)]);
        assert_eq!(set.insert(10, 20), 10);
        assert_eq!(set.iter().collect::<Vec<_>>(), [(0, 30)]);
        assert_eq!((set.prefix(), set.bytes(), set.len()), (30, 30, 1));
    }

    #[test]
    fn removing_the_middle_splits() {
        let mut set = set_of(&[(0, 100)]);
        assert_eq!(set.remove(40, 60), 20);
        assert_eq!(set.missing(0, 120).as_slice(), [(40, 60), (100, 120)]);
        assert!(
            set.covers(60, 100) && !set.covers(59, 100) && set.intersects(30, 41) && !set.intersects(40, 60)
        );
    }

    #[test]
    fn popping_takes_the_lowest_bytes_in_portions() {
        let mut set = set_of(&[(5, 25), (40, 45)]);
        let mut popped = Vec::new();
        while let Some(r) = set.pop_first(15) {
            popped.push(r);
        }
        assert_eq!(popped, [(5, 20), (20, 25), (40, 45)]);
        assert_eq!(set, RangeSet::new());
        assert_eq!(set_of(&[(0, 1)]).pop_first(0), None);
    }

    #[test]
    fn empty_and_inverted_arguments_change_nothing() {
        let mut set = set_of(&[(10, 20)]);
        assert_eq!((set.insert(15, 15), set.insert(30, 25), set.remove(18, 12)), (0, 0, 0));
        assert!(set.covers(3, 3) && !set.intersects(15, 15) && set.missing(4, 4).is_empty());
        assert_eq!(set, set_of(&[(10, 20)]));
    }

    #[test]
    fn any_sequence_of_operations_agrees_with_a_bitmap() {
        const SPAN: u64 = 96;
        for seed in 1..=400u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let (mut set, mut bits) = (RangeSet::new(), vec![false; SPAN as usize]);
            for step in 0..120 {
                let start = random(&mut state, SPAN);
                let end = (start + random(&mut state, 20)).min(SPAN);
                let slice = start as usize..end as usize;
                let held = bits[slice.clone()].iter().filter(|b| **b).count() as u64;
                match random(&mut state, 5) {
                    0..=2 => {
                        assert_eq!(set.insert(start, end), end - start - held, "seed {seed} step {step}");
                        bits[slice.clone()].fill(true);
                    }
                    3 => {
                        assert_eq!(set.remove(start, end), held, "seed {seed} step {step}");
                        bits[slice.clone()].fill(false);
                    }
                    _ => {
                        let popped = set.pop_first(end - start);
                        let first = runs_of(&bits, true).first().copied().filter(|_| start < end);
                        assert_eq!(
                            popped,
                            first.map(|r| (r.0, r.1.min(r.0 + end - start))),
                            "seed {seed} step {step}"
                        );
                        if let Some(r) = popped {
                            bits[r.0 as usize..r.1 as usize].fill(false);
                        }
                    }
                }
                assert_eq!(set.iter().collect::<Vec<_>>(), runs_of(&bits, true), "seed {seed} step {step}");
                let gaps: Vec<_> = runs_of(&bits[slice.clone()], false);
                let gaps: Vec<_> = gaps.iter().map(|g| (g.0 + start, g.1 + start)).collect();
                assert_eq!(set.missing(start, end).as_slice(), gaps, "seed {seed} step {step}");
                assert_eq!(
                    set.covers(start, end),
                    bits[slice.clone()].iter().all(|b| *b),
                    "seed {seed} step {step}"
                );
                assert_eq!(
                    set.intersects(start, end),
                    bits[slice].iter().any(|b| *b),
                    "seed {seed} step {step}"
                );
                assert_eq!(
                    set.bytes(),
                    bits.iter().filter(|b| **b).count() as u64,
                    "seed {seed} step {step}"
                );
            }
        }
    }
}
