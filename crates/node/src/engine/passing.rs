//! What passes, for who has not got the engine: by it, carriers are asked for more or less often.

use polyrail_proto::time::Instant;
use polyrail_shm::sync::{AtomicU64, Ordering};

/// No more than a packet or two has come or left at once for so long.
const SPARSE_AFTER_NS: u64 = 100_000_000;
/// A packet or two: what is larger is a part of more.
const FEW_BYTES: u64 = 4_096;

/// Of a whole node, loopback left out.
#[derive(Debug, Default)]
pub struct Passing {
    many_at_ns: AtomicU64,
    /// 1: it is.
    calm: AtomicU64,
}

impl Passing {
    /// So many bytes came or left at once.
    #[inline]
    pub(super) fn note_bytes(&self, now: Instant, bytes: u64) {
        if bytes > FEW_BYTES {
            self.many_at_ns.store(now.0, Ordering::Relaxed);
        }
    }

    pub(super) fn note_calm(&self, calm: bool) {
        self.calm.store(calm as u64, Ordering::Relaxed);
    }

    /// When more than a packet or two came or left at once last, nanoseconds of the driver's clock.
    pub fn many_at_ns(&self) -> u64 {
        self.many_at_ns.load(Ordering::Relaxed)
    }

    /// Whether packets have come and left one at a time for a while.
    pub fn is_sparse(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.many_at_ns()) >= SPARSE_AFTER_NS
    }

    /// Whether nothing but large messages passed of late, and nothing is to be found out about a link: single packets are not
    /// waited for.
    pub fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_one_packet_at_a_time_is_sparse_after_a_while() {
        let (passing, now) = (Passing::default(), Instant(1_000_000_000));
        passing.note_bytes(now, FEW_BYTES);
        assert!(passing.is_sparse(now.0));
        passing.note_bytes(now, FEW_BYTES + 1);
        assert_eq!(
            [0, SPARSE_AFTER_NS - 1, SPARSE_AFTER_NS].map(|ns| passing.is_sparse(now.0 + ns)),
            [false, false, true]
        );
    }
}
