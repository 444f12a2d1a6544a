//! What some pieces of memory may take together, whoever has them by now: buffers of a pool, or anything else that is charged.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A limit for memory that is handed on: each piece counts from [`Quota::charge`] or [`crate::Pool::alloc_within`] until its
/// [`Charge`] or buffer is dropped.
#[derive(Debug)]
pub struct Quota {
    amounts: Mutex<Amounts>,
    /// Of which this is a part.
    whole: Option<Arc<Quota>>,
}

#[derive(Debug)]
struct Amounts {
    limit_bytes: usize,
    used_bytes: usize,
}

impl Quota {
    /// So many bytes.
    pub fn new(limit_bytes: usize) -> Arc<Quota> {
        Quota::with(limit_bytes, None)
    }

    /// At most so many bytes of `whole`, which others have a part of too.
    pub fn of(whole: &Arc<Quota>, limit_bytes: usize) -> Arc<Quota> {
        Quota::with(limit_bytes, Some(Arc::clone(whole)))
    }

    fn with(limit_bytes: usize, whole: Option<Arc<Quota>>) -> Arc<Quota> {
        Arc::new(Quota { amounts: Mutex::new(Amounts { limit_bytes, used_bytes: 0 }), whole })
    }

    fn amounts(&self) -> MutexGuard<'_, Amounts> {
        self.amounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it may come to.
    pub fn limit_bytes(&self) -> usize {
        self.amounts().limit_bytes
    }

    /// Sets what it may come to. What counts to it already stays, be it more.
    pub fn set_limit(&self, limit_bytes: usize) {
        self.amounts().limit_bytes = limit_bytes;
    }

    /// Bytes of what counts to it.
    pub fn used_bytes(&self) -> usize {
        self.amounts().used_bytes
    }

    /// Has so many bytes count to `quota`, and to what it is a part of, until the charge is dropped; `None` and nothing done
    /// where that would be too much.
    pub fn charge(quota: &Arc<Quota>, bytes: usize) -> Option<Charge> {
        quota.take(bytes).then(|| Charge { quota: Arc::clone(quota), bytes })
    }

    fn take(&self, bytes: usize) -> bool {
        let mut amounts = self.amounts();
        let left_bytes = amounts.limit_bytes.saturating_sub(amounts.used_bytes);
        let fits = bytes <= left_bytes && self.whole.as_ref().is_none_or(|whole| whole.take(bytes));
        if fits {
            amounts.used_bytes += bytes;
        }
        fits
    }

    fn give_back(&self, bytes: usize) {
        self.amounts().used_bytes -= bytes;
        if let Some(whole) = &self.whole {
            whole.give_back(bytes);
        }
    }
}

/// The bytes of one piece of memory.
#[derive(Debug)]
pub struct Charge {
    quota: Arc<Quota>,
    bytes: usize,
}

impl Charge {
    /// How many they are.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.quota.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_counts_to_its_quota_and_the_whole_until_it_is_dropped() {
        let whole = Quota::new(100);
        let (one, other) = (Quota::of(&whole, 70), Quota::of(&whole, 70));
        let kept = Quota::charge(&one, 60).unwrap();
        assert_eq!((kept.bytes(), one.used_bytes(), whole.used_bytes()), (60, 60, 60));
        assert!(Quota::charge(&one, 11).is_none(), "its own limit");
        assert!(Quota::charge(&other, 41).is_none(), "that of the whole");
        assert_eq!((one.used_bytes(), other.used_bytes(), whole.used_bytes()), (60, 0, 60));
        drop(kept);
        assert_eq!((one.used_bytes(), whole.used_bytes()), (0, 0));
        assert!(Quota::charge(&other, 70).is_some());
    }

    #[test]
    fn a_limit_below_what_is_there_admits_nothing_until_that_is_given_back() {
        let quota = Quota::new(100);
        let kept = [60, 30].map(|bytes| Quota::charge(&quota, bytes).unwrap());
        quota.set_limit(40);
        assert_eq!((quota.limit_bytes(), quota.used_bytes()), (40, 90));
        assert!(Quota::charge(&quota, 1).is_none() && Quota::charge(&quota, 0).is_some());
        let [more, _less] = kept;
        drop(more);
        assert!(Quota::charge(&quota, 11).is_none() && Quota::charge(&quota, 10).is_some());
    }
}
