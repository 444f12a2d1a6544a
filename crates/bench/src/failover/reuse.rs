//! How soon a link that came back carries again what it can.

use serde::{Deserialize, Serialize};

/// Within this time a link must carry its share.
const SPAN_NS: u64 = 20_000_000;
/// Share of what a link can carry in that time from which on it counts as used: less may be questions whether it works.
const USED_SHARE: f64 = 0.25;

/// What had left over each link at some time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Look {
    /// In ns of the machine's clock.
    pub(crate) at_ns: u64,
    /// Bytes, one for each link.
    pub(crate) bytes: Vec<u64>,
}

impl Look {
    /// Bytes over each link since `earlier`.
    fn since<'a>(&'a self, earlier: &'a Self) -> impl Iterator<Item = u64> + 'a {
        earlier.bytes.iter().zip(&self.bytes).map(|(before, after)| after.saturating_sub(*before))
    }

    /// The share of a link in what left since `earlier`.
    pub(crate) fn share_since(&self, earlier: &Self, link: usize) -> f64 {
        let total: u64 = self.since(earlier).sum();
        let bytes = self.since(earlier).nth(link).unwrap_or(0);
        if total == 0 { 0.0 } else { bytes as f64 / total as f64 }
    }
}

/// Whether a link that came back carried again before the next cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reuse {
    /// Nobody looked, or the run ended before.
    #[default]
    Unknown,
    /// It did not.
    Not,
    /// It did, so long after its return, in ns.
    After(u64),
}

/// A link since it was given back.
#[derive(Debug)]
pub(crate) struct Returned {
    link: usize,
    rate_mbit: Option<u32>,
    since_ns: u64,
    looks: Vec<Look>,
    after_ns: Option<u64>,
}

impl Returned {
    /// A link that was given back at `since_ns`.
    pub(crate) fn new(link: usize, rate_mbit: Option<u32>, since_ns: u64) -> Self {
        Self { link, rate_mbit, since_ns, looks: Vec::new(), after_ns: None }
    }

    /// Whether looking on would tell nothing more.
    pub(crate) fn is_used(&self) -> bool {
        self.after_ns.is_some()
    }

    /// What became of it until now.
    pub(crate) fn reuse(&self) -> Reuse {
        self.after_ns.map_or(Reuse::Not, Reuse::After)
    }

    /// Takes a look; they come in order.
    pub(crate) fn take(&mut self, look: &Look) {
        if self.is_used() {
            return;
        }
        if self.looks.iter().any(|earlier| self.is_enough(earlier, look)) {
            self.after_ns = Some(look.at_ns.saturating_sub(self.since_ns));
        }
        // What is further back than the last look before the span adds nothing.
        let before = self.looks.partition_point(|earlier| earlier.at_ns + SPAN_NS < look.at_ns);
        self.looks.drain(..before.saturating_sub(1));
        self.looks.push(look.clone());
    }

    /// Whether what the link carried between two looks is its share. In a shorter time it must carry as much; where somebody was
    /// late to look, it must have gone on for that time.
    fn is_enough(&self, earlier: &Look, look: &Look) -> bool {
        let time_ns = look.at_ns - earlier.at_ns;
        let bytes = look.since(earlier).nth(self.link).unwrap_or(0) as f64;
        match self.rate_mbit {
            Some(mbit) => bytes >= USED_SHARE * f64::from(mbit) / 8e3 * time_ns.max(SPAN_NS) as f64,
            // Of two packets one may be this link's: only a whole span says something.
            None if time_ns < SPAN_NS => false,
            None => {
                let share = USED_SHARE / look.bytes.len() as f64;
                bytes > 0.0 && look.share_since(earlier, self.link) >= share
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A quarter of 20 ms at 1 Gbit/s.
    const ENOUGH_BYTES: u64 = 625_000;

    fn look(at_ms: u64, bytes: [u64; 2]) -> Look {
        Look { at_ns: at_ms * 1_000_000, bytes: bytes.to_vec() }
    }

    /// What became of link 1, back after 100 ms, by bytes that had left over both links at these times in ms.
    fn reuse(rate_mbit: Option<u32>, looks: &[(u64, [u64; 2])]) -> Reuse {
        let mut returned = Returned::new(1, rate_mbit, 100_000_000);
        looks.iter().for_each(|&(at_ms, bytes)| returned.take(&look(at_ms, bytes)));
        returned.reuse()
    }

    #[test]
    fn a_link_is_used_again_once_it_carried_a_quarter_within_20_ms() {
        let gigabit = |bytes: &[(u64, u64)]| {
            let looks: Vec<(u64, [u64; 2])> = bytes.iter().map(|&(ms, bytes)| (ms, [0, bytes])).collect();
            reuse(Some(1_000), &looks)
        };
        let after_ms = |ms: u64| Reuse::After(ms * 1_000_000);
        assert_eq!(gigabit(&[(100, 7), (105, 7 + ENOUGH_BYTES)]), after_ms(5), "in less than 20 ms too");
        assert_eq!(gigabit(&[(100, 7), (105, 6 + ENOUGH_BYTES)]), Reuse::Not);
        assert_eq!(gigabit(&[(100, 0), (110, 300_000), (120, ENOUGH_BYTES)]), after_ms(20));
        // As much, but in more than 20 ms: by drops, as questions come.
        let drops: Vec<(u64, u64)> = (0..100).map(|n| (100 + 5 * n, 150_000 * n)).collect();
        assert_eq!(gigabit(&drops), Reuse::Not);
        // Nobody looked for 200 ms: it must have carried as much in each 20 ms of them.
        assert_eq!(gigabit(&[(100, 0), (300, 10 * ENOUGH_BYTES)]), after_ms(200));
        assert_eq!(gigabit(&[(100, 0), (300, 10 * ENOUGH_BYTES - 1)]), Reuse::Not);
        assert_eq!(gigabit(&[]), Reuse::Not);
    }

    #[test]
    fn a_burst_that_two_looks_share_is_seen_whole() {
        let looks = [(100, [0; 2]), (110, [0, 400_000]), (115, [0, 400_000]), (130, [0, 800_000])];
        assert_eq!(reuse(Some(1_000), &looks[..3]), Reuse::Not);
        assert_eq!(reuse(Some(1_000), &looks), Reuse::Not, "20 ms lie between 110 and 130, and 400 kB");
        let last = (119, [0, 800_000]);
        assert_eq!(reuse(Some(1_000), &[looks[0], looks[1], looks[2], last]), Reuse::After(19_000_000));
    }

    #[test]
    fn a_link_without_a_rate_is_used_again_by_its_share_of_what_left() {
        // An equal share is a half of it, of which a quarter is asked for.
        assert_eq!(reuse(None, &[(100, [0; 2]), (120, [700, 100])]), Reuse::After(20_000_000));
        assert_eq!(reuse(None, &[(100, [0; 2]), (120, [701, 100])]), Reuse::Not);
        assert_eq!(reuse(None, &[(100, [0; 2]), (119, [0, 900])]), Reuse::Not, "it may be a packet of two");
        assert_eq!(reuse(None, &[(100, [0; 2]), (140, [0, 0])]), Reuse::Not, "nothing left at all");
    }

    #[test]
    fn what_comes_after_a_link_was_used_again_changes_nothing() {
        let looks = [(100, [0; 2]), (105, [0, ENOUGH_BYTES]), (110, [0, ENOUGH_BYTES]), (900, [9, 1 << 30])];
        assert_eq!(reuse(Some(1_000), &looks), Reuse::After(5_000_000));
    }

    #[test]
    fn a_link_that_carried_nothing_shows_as_nothing() {
        let share = |before: [u64; 2], after: [u64; 2], link: usize| {
            look(9, after).share_since(&look(0, before), link)
        };
        assert_eq!(share([100, 100], [200, 400], 1), 0.75);
        assert_eq!(share([100, 100], [200, 100], 1), 0.0);
        assert_eq!(share([7, 7], [7, 7], 0), 0.0);
        assert_eq!(Look::default().share_since(&Look::default(), 0), 0.0, "no links, nothing");
    }
}
