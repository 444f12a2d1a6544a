//! By which way long messages are laid into memory, by how fast they go.
//!
//! Memory that another core has read comes back to this one line by line when it is written again. Between cores that are near
//! each other that is the fastest way, and the reader finds everything in a cache. Between cores that are far it may take
//! four times as long as writing past the cache; but then whoever reads it reads from memory. Which of them the cores are is the
//! host's affair, on virtual machines for some seconds only. So both ways are timed now and then, and where the copy itself is
//! much faster past the cache, whole stretches are tried either way: what counts is how soon they are over.

use crate::clock::now_ns;
use polyrail_shm::{PastCache, Region};

/// Shorter ones are not worth a look at the clock, and what stays in the cache belongs there.
const LONG_BYTES: u64 = 16 << 10;
/// Of so many long ones the copy is timed once each way.
const PERIOD: u32 = 64;
/// Past the cache is worth a try if the copy takes this many times as long otherwise, in quarters.
const WORTH_QUARTERS: u64 = 6;
/// One measurement counts as so many times what was known at most: threads are set aside at times.
const STALL: u64 = 2;
/// Measurements are smoothed over so many.
const MEMORY: u64 = 4;
/// Bytes of a stretch that goes one way: several times what is under way of messages of up to 2 MiB.
const STRETCH_BYTES: u64 = 32 << 20;
/// One of so many stretches goes the other way.
const STRETCHES: u32 = 8;
/// Past the cache goes what is over sooner by this part.
const GAIN_PART: u64 = 8;

/// What a byte takes by either way, picoseconds; 0 before it was measured.
#[derive(Clone, Copy, Default)]
struct Took {
    through_ps: u64,
    past_ps: u64,
}

impl Took {
    fn learn(&mut self, past: bool, took_ps: u64) {
        let known = if past { &mut self.past_ps } else { &mut self.through_ps };
        *known = match *known {
            0 => took_ps.max(1),
            old => (old * (MEMORY - 1) + took_ps.min(old.saturating_mul(STALL))) / MEMORY,
        }
        .max(1);
    }
}

/// The choice between the two ways.
#[derive(Default)]
pub(super) struct Laying {
    laid: u32,
    /// The copy alone.
    copying: Took,
    /// From the beginning of a stretch to its end, with all that held it up.
    going: Took,
    stretch: Stretch,
}

/// What goes one way at present.
#[derive(Default)]
struct Stretch {
    number: u32,
    past: bool,
    bytes: u64,
    /// 0: it has not begun.
    began_ns: u64,
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
            self.copying.learn(past, now_ns().saturating_sub(began_ns).saturating_mul(1_000) / len);
        }
        self.stretch.bytes += len;
        if self.stretch.bytes >= STRETCH_BYTES || self.stretch.began_ns == 0 {
            self.end_stretch(now_ns());
        }
        result
    }

    /// Whether the next long message goes past the cache, and whether it is timed.
    fn next(&mut self) -> (bool, bool) {
        self.laid = (self.laid + 1) % PERIOD;
        match self.laid {
            0 => (true, true),
            1 => (false, true),
            _ => (self.stretch.past, false),
        }
    }

    /// Takes notice of how long a stretch has taken, and begins the next.
    fn end_stretch(&mut self, now_ns: u64) {
        let Stretch { number, past, bytes, began_ns } = self.stretch;
        if began_ns > 0 {
            self.going.learn(past, now_ns.saturating_sub(began_ns).saturating_mul(1_000) / bytes);
        }
        let number = (number + 1) % STRETCHES;
        let past = self.is_past_worth_a_try() && (self.is_past_better() != (number == 0));
        self.stretch = Stretch { number, past, bytes: 0, began_ns: now_ns.max(1) };
    }

    fn is_past_worth_a_try(&self) -> bool {
        self.copying.past_ps > 0 && self.copying.through_ps * 4 > self.copying.past_ps * WORTH_QUARTERS
    }

    fn is_past_better(&self) -> bool {
        let Took { through_ps, past_ps } = self.going;
        past_ps > 0 && past_ps + past_ps / GAIN_PART < through_ps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polyrail_shm::Segment;

    #[test]
    fn past_the_cache_is_worth_a_try_if_the_copy_takes_half_as_long_again_otherwise() {
        let mut laying = Laying::default();
        assert!(!laying.is_past_worth_a_try(), "nothing is known");
        laying.copying.learn(true, 30);
        assert!(!laying.is_past_worth_a_try());
        laying.copying.learn(false, 45);
        assert!(!laying.is_past_worth_a_try());
        laying.copying.learn(false, 1_000_000);
        assert!((45..=60).contains(&laying.copying.through_ps), "one stall changes little");
        (0..20).for_each(|_| laying.copying.learn(false, 50));
        assert!(laying.is_past_worth_a_try());
        let period: Vec<_> = (0..PERIOD).map(|_| laying.next()).collect();
        let plain = vec![(false, false); PERIOD as usize - 2];
        assert_eq!(period, [vec![(false, true)], plain, vec![(true, true)]].concat());
    }

    /// The ways of the next 2 * `STRETCHES` stretches, each of which takes what `took_ns` says of its way.
    fn ways(laying: &mut Laying, took_ns: impl Fn(bool) -> u64) -> Vec<bool> {
        let stretch = |_| {
            let past = laying.stretch.past;
            laying.stretch.bytes = STRETCH_BYTES;
            laying.end_stretch(laying.stretch.began_ns + took_ns(past));
            past
        };
        (0..2 * STRETCHES).map(stretch).collect()
    }

    #[test]
    fn stretches_go_the_way_that_is_over_sooner_and_the_other_is_tried_now_and_then() {
        let mut laying = Laying::default();
        let past_of = |ways: &[bool]| ways.iter().filter(|past| **past).count();
        laying.end_stretch(1);
        let equal = |_| 10_000_000;
        assert_eq!(past_of(&ways(&mut laying, equal)), 0, "the copies are not known to differ");
        (laying.copying.through_ps, laying.copying.past_ps) = (60, 30);
        assert_eq!(past_of(&ways(&mut laying, equal)), 2, "a faster copy is no gain by itself");
        let readers_pay = |past| if past { 13_000_000 } else { 10_000_000 };
        assert_eq!(past_of(&ways(&mut laying, readers_pay)), 2);
        let little_gain = |past| if past { 9_500_000 } else { 10_000_000 };
        (0..20).for_each(|_| assert_eq!(past_of(&ways(&mut laying, little_gain)), 2));
        let writer_gains = |past| if past { 7_000_000 } else { 10_000_000 };
        ways(&mut laying, writer_gains);
        ways(&mut laying, writer_gains);
        assert_eq!(past_of(&ways(&mut laying, writer_gains)), 2 * STRETCHES as usize - 2);
        (laying.copying.through_ps, laying.copying.past_ps) = (30, 30);
        assert!(past_of(&ways(&mut laying, writer_gains)) <= 1, "the cores are near each other again");
    }

    #[test]
    fn whatever_the_way_is_the_bytes_are_there() {
        let segment = Segment::private(1 << 20).unwrap();
        let memory = Region::new(&segment, 4_096, 1 << 19).unwrap();
        let mut laying = Laying::default();
        for round in 0..2 * PERIOD as usize {
            for len in [100, LONG_BYTES as usize, 100_000] {
                let bytes: Vec<u8> = (0..len).map(|at| (at * 31 + round) as u8).collect();
                laying.stretch.past = round % 2 == 0;
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
        assert_eq!((laying.laid, laying.copying.past_ps, laying.copying.through_ps), (0, 0, 0));
        for _ in 0..PERIOD {
            laying.lay(&memory, LONG_BYTES, |layer| layer.write_at(0, &[1]));
        }
        assert!(laying.copying.past_ps > 0 && laying.copying.through_ps > 0);
        assert_eq!(laying.stretch.bytes, (PERIOD as u64 - 1) * LONG_BYTES, "the first began it");
        let number = laying.stretch.number;
        for _ in 0..STRETCH_BYTES / LONG_BYTES {
            laying.lay(&memory, LONG_BYTES, |layer| layer.write_at(0, &[1]));
        }
        assert_eq!(laying.stretch.number, number + 1);
    }
}
