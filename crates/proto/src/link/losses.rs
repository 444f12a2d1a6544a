//! How often a link loses packets, for those who choose among several (protocol.md §5.11).

use crate::time::{Duration, Instant};

/// What is older than this counts by half, and again after each such span.
const HALVED_AFTER: Duration = Duration::s(1);
/// Nor are more packets than these remembered.
const PACKETS_MAX: u64 = 8_192;
/// So many that arrived are taken for granted: of a handful of packets nobody knows whether a loss among them was one of many.
const GRANTED: u64 = 64;

/// Packets of late, and how many of them were lost.
#[derive(Clone, Copy, Debug)]
pub struct Losses {
    packets: u64,
    lost: u64,
    halved_at: Instant,
}

impl Losses {
    /// Of a link that has carried nothing.
    pub fn new(now: Instant) -> Losses {
        Losses { packets: 0, lost: 0, halved_at: now }
    }

    /// Some arrived, or were lost.
    pub fn note(&mut self, now: Instant, arrived: u64, lost: u64) {
        let spans = now.since(self.halved_at).0 / HALVED_AFTER.0;
        self.halve(spans.min(63) as u32);
        self.halved_at += HALVED_AFTER.times(spans);
        self.packets += arrived + lost;
        self.lost += lost;
        if self.packets > PACKETS_MAX {
            self.halve(1);
        }
    }

    /// Some of those that were taken for lost have arrived.
    pub fn take_back(&mut self, arrived: u64) {
        self.lost = self.lost.saturating_sub(arrived);
    }

    fn halve(&mut self, times: u32) {
        self.packets >>= times;
        self.lost >>= times;
    }

    /// Whether none was lost of late.
    #[inline]
    pub fn is_none(&self) -> bool {
        self.lost == 0
    }

    /// What a delay of `repair` for a loss comes to on the average, for so many packets that are waited for together.
    pub fn delay(&self, packets: u64, repair: Duration) -> Duration {
        let all = self.packets + GRANTED;
        let expected = self.lost.saturating_mul(packets).min(all);
        Duration(repair.0.saturating_mul(expected) / all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPAIR: Duration = Duration::ms(4);

    fn after(arrived: u64, lost: u64) -> Losses {
        let mut losses = Losses::new(Instant::ZERO);
        losses.note(Instant::ZERO, arrived, lost);
        losses
    }

    #[test]
    fn a_delay_counts_as_often_as_it_is_to_be_expected_and_once_at_most() {
        // 50 of 1,000.
        let losses = after(950 - GRANTED, 50);
        let us = |packets| losses.delay(packets, REPAIR).0 / 1_000;
        assert_eq!((us(0), us(1), us(10), us(20), us(1_000_000)), (0, 200, 2_000, 4_000, 4_000));
        assert_eq!(after(1_000, 0).delay(1_000, REPAIR), Duration::ZERO);
        assert!(after(1_000, 0).is_none() && !losses.is_none());
    }

    #[test]
    fn one_of_a_handful_is_not_taken_for_one_of_many() {
        assert!(after(1, 1).delay(1, REPAIR) < Duration::us(100));
    }

    #[test]
    fn what_is_old_counts_less_and_less() {
        let mut losses = after(4_032, 4_032 / 2);
        let at = |ms| Instant::ZERO + Duration::ms(ms);
        let mut lost = |ms| {
            losses.note(at(ms), 0, 0);
            losses.lost
        };
        assert_eq!((lost(999), lost(1_000), lost(1_001), lost(4_500)), (2_016, 1_008, 1_008, 126));
        assert_eq!((lost(4_999), lost(5_000), lost(1 << 40)), (126, 63, 0), "spans are not put off by looks");
    }

    #[test]
    fn many_packets_are_soon_forgotten_for_others() {
        let mut losses = after(0, 1_000);
        (0..16).for_each(|_| losses.note(Instant::ZERO, PACKETS_MAX / 2, 0));
        assert!(losses.lost < 10 && losses.packets <= PACKETS_MAX, "{losses:?}");
    }

    #[test]
    fn what_has_arrived_after_all_was_not_lost() {
        let mut losses = after(100, 5);
        losses.take_back(3);
        assert_eq!((losses.packets, losses.lost), (105, 2));
        losses.take_back(3);
        assert_eq!(losses.lost, 0);
    }
}
