//! What some of a pool's buffers may take together, whoever has them by now.

use std::sync::{Arc, Mutex, PoisonError};

/// A limit for buffers that are handed on: each counts from [`crate::Pool::alloc_within`] until it is dropped.
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

    /// Bytes of the buffers that count to it.
    pub fn used_bytes(&self) -> usize {
        *self.used_bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn charge(quota: &Arc<Quota>, bytes: usize) -> Option<Charge> {
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

/// The bytes of one buffer.
#[derive(Debug)]
pub(super) struct Charge {
    quota: Arc<Quota>,
    bytes: usize,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.quota.give_back(self.bytes);
    }
}
