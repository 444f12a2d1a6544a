//! What some pieces of memory may take together, whoever has them by now: buffers of a pool, or anything else that is charged.

use std::sync::{Arc, Mutex, PoisonError};

/// A limit for memory that is handed on: each piece counts from [`Quota::charge`] or [`crate::Pool::alloc_within`] until its
/// [`Charge`] or buffer is dropped.
#[derive(Debug)]
pub struct Quota {
    limit_bytes: usize,
    used_bytes: Mutex<usize>,
    /// Of which this is a part.
    whole: Option<Arc<Quota>>,
}

impl Quota {
    /// So many bytes.
    pub fn new(limit_bytes: usize) -> Arc<Quota> {
        Arc::new(Quota { limit_bytes, used_bytes: Mutex::default(), whole: None })
    }

    /// At most so many bytes of `whole`, which others have a part of too.
    pub fn of(whole: &Arc<Quota>, limit_bytes: usize) -> Arc<Quota> {
        Arc::new(Quota { limit_bytes, used_bytes: Mutex::default(), whole: Some(Arc::clone(whole)) })
    }

    /// What it may come to.
    pub fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    /// Bytes of what counts to it.
    pub fn used_bytes(&self) -> usize {
        *self.used_bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has so many bytes count to `quota`, and to what it is a part of, until the charge is dropped; `None` and nothing done
    /// where that would be too much.
    pub fn charge(quota: &Arc<Quota>, bytes: usize) -> Option<Charge> {
        quota.take(bytes).then(|| Charge { quota: Arc::clone(quota), bytes })
    }

    fn take(&self, bytes: usize) -> bool {
        let mut used = self.used_bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = bytes <= self.limit_bytes - *used && self.whole.as_ref().is_none_or(|w| w.take(bytes));
        if fits {
            *used += bytes;
        }
        fits
    }

    fn give_back(&self, bytes: usize) {
        *self.used_bytes.lock().unwrap_or_else(PoisonError::into_inner) -= bytes;
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
}
