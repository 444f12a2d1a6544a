//! By which way long messages are laid into memory, by what they take.
//!
//! Memory that another core has read comes back to this one line by line when it is written again. Between cores that are near
//! each other that is the fastest way, and the reader finds everything in a cache; between cores that are far it takes
//! four times as long as writing past the cache. Which of them the cores are is the host's affair, on virtual machines for some
//! seconds only. So both ways are timed now and then.

use crate::clock::now_ns;
use polyrail_shm::{PastCache, Region};

/// Shorter ones are not worth a look at the clock, and what stays in the cache belongs there.
const LONG_BYTES: u64 = 16 << 10;
/// Of so many long ones each way is timed once.
const PERIOD: u32 = 64;
/// Past the cache goes what else would take this many times as long, in quarters: the reader pays for it with slower reads.
const WORTH_QUARTERS: u64 = 6;
/// One measurement counts as so many times what was known at most: threads are set aside at times.
const STALL: u64 = 2;
/// Measurements are smoothed over so many.
const MEMORY: u64 = 4;

/// The choice between the two ways.
#[derive(Default)]
pub(super) struct Laying {
    laid: u32,
    /// What a byte takes; 0 before it was measured.
    through_ps: u64,
    past_ps: u64,
}

/// A message that is being laid.
pub(super) enum Layer<'a> {
    Through(&'a Region),
    Past(PastCache<'a>),
}

impl Layer<'_> {
    /// Copies `bytes` to `offset`; `None` if there is no such place.
    #[inline]
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Option<()> {
        match self {
            Layer::Through(memory) => memory.write_at(offset, bytes),
            Layer::Past(memory) => memory.write_at(offset, bytes),
        }
    }
}

impl Laying {
    /// Has `lay` write `len` bytes to `memory`, which are there for others when this returns.
    pub fn lay<R>(&mut self, memory: &Region, len: u64, lay: impl FnOnce(&mut Layer<'_>) -> R) -> R {
        if len < LONG_BYTES {
            return lay(&mut Layer::Through(memory));
        }
        let (past, timed) = self.next();
        let began_ns = if timed { now_ns() } else { 0 };
        let mut layer = if past { Layer::Past(memory.past_cache()) } else { Layer::Through(memory) };
        let result = lay(&mut layer);
        drop(layer);
        if timed {
            self.learn(past, now_ns().saturating_sub(began_ns).saturating_mul(1_000) / len);
        }
        result
    }

    /// Whether the next long message goes past the cache, and whether it is timed.
    fn next(&mut self) -> (bool, bool) {
        self.laid = (self.laid + 1) % PERIOD;
        match self.laid {
            0 => (true, true),
            1 => (false, true),
            _ => (self.is_past_worth_it(), false),
        }
    }

    fn is_past_worth_it(&self) -> bool {
        self.past_ps > 0 && self.through_ps * 4 > self.past_ps * WORTH_QUARTERS
    }

    fn learn(&mut self, past: bool, took_ps: u64) {
        let known = if past { &mut self.past_ps } else { &mut self.through_ps };
        *known = match *known {
            0 => took_ps.max(1),
            old => (old * (MEMORY - 1) + took_ps.min(old.saturating_mul(STALL))) / MEMORY,
        }
        .max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyrail_shm::Segment;

    #[test]
    fn past_the_cache_goes_what_takes_half_as_long_again_otherwise_and_one_stall_changes_nothing() {
        let mut laying = Laying::default();
        assert!(!laying.is_past_worth_it(), "nothing is known");
        laying.learn(true, 30);
        assert!(!laying.is_past_worth_it());
        laying.learn(false, 45);
        assert!(!laying.is_past_worth_it());
        laying.learn(false, 1_000_000);
        assert!((45..=60).contains(&laying.through_ps), "{}", laying.through_ps);
        for _ in 0..20 {
            laying.learn(false, 50);
        }
        let period = |laying: &mut Laying| -> Vec<_> { (0..PERIOD).map(|_| laying.next()).collect() };
        let of = |past| {
            [vec![(false, true)], vec![(past, false); PERIOD as usize - 2], vec![(true, true)]].concat()
        };
        assert_eq!(period(&mut laying), of(true));
        for _ in 0..20 {
            laying.learn(false, 20);
        }
        assert_eq!(period(&mut laying), of(false), "the cores are near each other again");
    }

    #[test]
    fn whatever_the_way_is_the_bytes_are_there() {
        let segment = Segment::private(1 << 20).unwrap();
        let memory = Region::new(&segment, 4_096, 1 << 19).unwrap();
        let mut laying = Laying::default();
        for round in 0..2 * PERIOD as usize {
            for len in [100, LONG_BYTES as usize, 100_000] {
                let bytes: Vec<u8> = (0..len).map(|at| (at * 31 + round) as u8).collect();
                laying.past_ps = 1 + round as u64 % 2 * 1_000;
                laying.through_ps = 1_001 - round as u64 % 2 * 1_000;
                let (near, far) = bytes.split_at(len / 3);
                let written = laying.lay(&memory, len as u64, |layer| {
                    layer.write_at(40, near)?;
                    layer.write_at(40 + near.len() as u64, far)
                });
                assert!(written.is_some());
                assert_eq!(memory.bytes(40, len), Some(&bytes[..]));
            }
        }
        assert_eq!(laying.lay(&memory, 1 << 20, |layer| layer.write_at(1 << 19, &[1; 20_000])), None);
    }

    #[test]
    fn short_messages_are_not_timed() {
        let segment = Segment::private(1 << 20).unwrap();
        let memory = Region::new(&segment, 0, 1 << 20).unwrap();
        let mut laying = Laying::default();
        for _ in 0..PERIOD {
            laying.lay(&memory, LONG_BYTES - 1, |layer| layer.write_at(0, &[1]));
        }
        assert_eq!((laying.laid, laying.past_ps, laying.through_ps), (0, 0, 0));
        for _ in 0..PERIOD {
            laying.lay(&memory, LONG_BYTES, |layer| layer.write_at(0, &[1]));
        }
        assert!(laying.past_ps > 0 && laying.through_ps > 0);
    }
}
