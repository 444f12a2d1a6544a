//! How full the token buckets of the links are, from what the kernel has counted.
//!
//! A bucket tells its rate and its depth, but not how much is in it. What is in it follows from a moment at which it was
//! full, the time since then, and the bytes that have left meanwhile. Where a link rested while its bucket was full between two
//! looks, it has less than is reckoned: what is reckoned as the least time is then too short, never too long.

use std::io;

use polyrail_sys::interface::{Qdisc, QdiscKind, list, qdiscs};

use crate::clock::machine_ns;
use crate::model::Lane;

/// Rate and depth of a bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Shape {
    /// Bytes per second.
    pub(crate) rate: f64,
    /// Bytes.
    pub(crate) burst: f64,
}

/// What the kernel counts at a bucket, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Count {
    /// Have left it.
    pub(crate) passed: u64,
    /// Wait for tokens.
    pub(crate) waiting: u32,
}

/// Tells what is counted at each bucket.
type Counters = Box<dyn FnMut() -> io::Result<Vec<Count>>>;

/// The buckets of some links.
pub(crate) struct Buckets {
    shapes: Vec<Shape>,
    counters: Counters,
    counts: Vec<Count>,
    tokens: Vec<f64>,
    looked_ns: u64,
}

/// A bucket with more than this share of its depth is not empty.
const EMPTY_SHARE_MAX: f64 = 0.25;

impl Buckets {
    /// Those at this end of the devices.
    ///
    /// # Errors
    /// A device is not there or has no token bucket, or the kernel refuses to tell.
    pub(crate) fn of(devices: &[String]) -> io::Result<Self> {
        let interfaces = list()?;
        let index = |device: &String| {
            let found = interfaces.iter().find(|interface| interface.name == *device);
            found.map(|found| found.index).ok_or_else(|| io::Error::other(format!("no device {device}")))
        };
        let indices = devices.iter().map(index).collect::<io::Result<Vec<u32>>>()?;
        let shapes = read(&indices)?.into_iter().map(|(shape, _)| shape).collect();
        let counters = move || Ok(read(&indices)?.into_iter().map(|(_, count)| count).collect());
        Ok(Self::new(shapes, Box::new(counters)))
    }

    pub(crate) fn new(shapes: Vec<Shape>, counters: Counters) -> Self {
        let (counts, tokens) = (vec![Count::default(); shapes.len()], vec![0.0; shapes.len()]);
        Self { shapes, counters, counts, tokens, looked_ns: 0 }
    }

    /// How long all must rest until each is full, in ns.
    pub(crate) fn rest_ns(&self) -> u64 {
        let longest = self.shapes.iter().map(|shape| shape.burst / shape.rate * 1e9).fold(0.0, f64::max);
        longest.ceil() as u64
    }

    /// Takes note that all have rested for [`Self::rest_ns`].
    pub(crate) fn are_full(&mut self) -> io::Result<()> {
        self.counts = (self.counters)()?;
        self.looked_ns = machine_ns();
        self.tokens = self.shapes.iter().map(|shape| shape.burst).collect();
        Ok(())
    }

    /// Takes note of what has passed since the last time.
    pub(crate) fn look(&mut self) -> io::Result<()> {
        let counts = (self.counters)()?;
        let now = machine_ns();
        self.take(counts, now);
        Ok(())
    }

    /// Rate of a link, in bytes per second.
    pub(crate) fn rate(&self, link: usize) -> f64 {
        self.shapes[link].rate
    }

    /// What is in a bucket, and what waits for it, in bytes.
    pub(crate) fn state(&self, link: usize) -> (f64, u32) {
        (self.tokens[link], self.counts[link].waiting)
    }

    fn take(&mut self, counts: Vec<Count>, now_ns: u64) {
        let seconds = (now_ns - self.looked_ns) as f64 / 1e9;
        for (link, shape) in self.shapes.iter().enumerate() {
            let passed = counts[link].passed.saturating_sub(self.counts[link].passed) as f64;
            let tokens = (self.tokens[link] + shape.rate * seconds - passed).clamp(0.0, shape.burst);
            // What waits, were it all one packet, finds less than that.
            let waiting = counts[link].waiting;
            self.tokens[link] = if waiting > 0 { tokens.min(f64::from(waiting)) } else { tokens };
        }
        (self.counts, self.looked_ns) = (counts, now_ns);
    }

    /// The links as a message finds them that is sent at `now_ns`, if nothing has left since the last look.
    pub(crate) fn lanes(&self, now_ns: u64) -> Vec<Lane> {
        let seconds = now_ns.saturating_sub(self.looked_ns) as f64 / 1e9;
        let lane = |(shape, tokens): (&Shape, &f64)| Lane {
            rate: shape.rate,
            tokens_bytes: (tokens + shape.rate * seconds).min(shape.burst),
            behind_ns: 0.0,
        };
        self.shapes.iter().zip(&self.tokens).map(lane).collect()
    }

    /// Whether so little is in each that it counts as empty.
    pub(crate) fn are_empty(&self, lanes: &[Lane]) -> bool {
        let full = |(lane, shape): (&Lane, &Shape)| lane.tokens_bytes > EMPTY_SHARE_MAX * shape.burst;
        !lanes.iter().zip(&self.shapes).any(full)
    }
}

/// How much of `size` is sent before a message so that the bucket of every link is empty: twice what the deepest
/// takes, if the links carry it in proportion to their rates.
pub(crate) fn filler(shapes: &[Shape], size: usize) -> u64 {
    let sum: f64 = shapes.iter().map(|shape| shape.rate).sum();
    let bytes = shapes.iter().map(|shape| 2.0 * shape.burst * sum / shape.rate).fold(0.0, f64::max);
    (bytes / size as f64).ceil().max(1.0) as u64
}

/// Shape and counters of the outermost bucket of each interface.
fn read(indices: &[u32]) -> io::Result<Vec<(Shape, Count)>> {
    let found = qdiscs()?;
    let bucket = |index: &u32| {
        let outermost = found.iter().find(|qdisc| qdisc.interface_index == *index && qdisc.parent.is_none());
        let count = |qdisc: &Qdisc| Count { passed: qdisc.passed_bytes, waiting: qdisc.waiting_bytes };
        match outermost.map(|qdisc| (&qdisc.kind, count(qdisc))) {
            Some((QdiscKind::TokenBucket { rate_bytes_per_s, burst_bytes, .. }, count)) => {
                Ok((Shape { rate: *rate_bytes_per_s as f64, burst: *burst_bytes as f64 }, count))
            }
            _ => Err(io::Error::other(format!("interface {index} has no token bucket"))),
        }
    };
    indices.iter().map(bucket).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIGABIT: Shape = Shape { rate: 125e6, burst: 131_072.0 };
    const QUARTER: Shape = Shape { rate: 31.25e6, burst: 131_072.0 };

    #[test]
    fn what_is_in_a_bucket_follows_from_what_has_left_it() {
        let counts = |passed: [u64; 2]| passed.map(|passed| Count { passed, waiting: 0 }).to_vec();
        let before = counts([1_000, 2_000]);
        let mut buckets = Buckets::new(vec![GIGABIT, QUARTER], Box::new(move || Ok(before.clone())));
        assert_eq!(buckets.rest_ns(), 4_194_304);
        buckets.are_full().unwrap();
        let begun_ns = buckets.looked_ns;
        // In 1 ms 125,000 bytes come in.
        buckets.take(counts([1_000 + 250_000, 2_000]), begun_ns + 1_000_000);
        assert_eq!(buckets.tokens, [6_072.0, 131_072.0]);
        let lanes = buckets.lanes(begun_ns + 1_008_000);
        assert_eq!(lanes.iter().map(|lane| lane.tokens_bytes).collect::<Vec<_>>(), [7_072.0, 131_072.0]);
        assert!(!buckets.are_empty(&lanes) && buckets.are_empty(&lanes[..1]));
        buckets.take(counts([1_000 + 900_000, 2_000 + 500_000]), begun_ns + 2_000_000);
        assert_eq!(buckets.tokens, [0.0, 0.0], "never less than nothing");
        let mut waits = Buckets::new(vec![GIGABIT], Box::new(|| Ok(vec![Count { passed: 0, waiting: 9 }])));
        waits.are_full().unwrap();
        waits.look().unwrap();
        assert_eq!(waits.state(0), (9.0, 9), "a packet waits: the bucket has less than that");
    }

    #[test]
    fn filler_empties_the_bucket_of_the_slowest_link() {
        assert_eq!(filler(&[GIGABIT], 131_072), 2);
        assert_eq!(filler(&[GIGABIT, GIGABIT], 131_072), 4);
        // A fifth of it goes over the slower link.
        assert_eq!(filler(&[GIGABIT, QUARTER], 131_072), 10);
        assert_eq!(filler(&[GIGABIT], 64 << 20), 1);
    }
}
