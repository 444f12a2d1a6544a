//! How long a thread spins that does so before it sleeps, where what it waits for is put into memory by other programs.
//!
//! To spin pays if what is waited for comes before the thread would sleep. If it has come later than that, it most likely will
//! again, and the core is better left to those who are to bring it: of many clients of one server on few cores each would keep the
//! server from its core for as long as it spins, and two that never sleep are served again and again while others wait for a core.
//! (Hypervisors let a processor that has nothing to do poll by the same rule.)

/// What the waits of one port have been like.
pub(super) struct Patience {
    /// How long it spins next, as a share of what is allowed: from nothing to [`WHOLE`].
    share: u32,
}

const WHOLE: u32 = 8;

impl Default for Patience {
    fn default() -> Self {
        Self { share: WHOLE }
    }
}

impl Patience {
    /// How long to spin where `most_ns` are allowed.
    #[inline]
    pub(super) fn spin_ns(&self, most_ns: u64) -> u64 {
        most_ns * u64::from(self.share) / u64::from(WHOLE)
    }

    /// Whether a wait that ended while it span says nothing new.
    #[inline]
    pub(super) fn is_whole(&self) -> bool {
        self.share == WHOLE
    }

    /// A wait is over. One that has been longer than what is allowed ends the spinning, shorter ones bring it back.
    pub(super) fn note(&mut self, waited_ns: u64, most_ns: u64) {
        self.share = if waited_ns > most_ns { 0 } else { (2 * self.share).clamp(1, WHOLE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waited_too_long_spins_no_more_until_waits_are_short_again() {
        const MOST_NS: u64 = 50_000;
        let mut patience = Patience::default();
        assert!(patience.is_whole() && patience.spin_ns(MOST_NS) == MOST_NS);
        patience.note(MOST_NS, MOST_NS);
        assert!(patience.is_whole(), "spinning would have done");
        patience.note(MOST_NS + 1, MOST_NS);
        assert_eq!(patience.spin_ns(MOST_NS), 0);
        let spans = [0; 5].map(|_| {
            patience.note(1_000, MOST_NS);
            patience.spin_ns(MOST_NS)
        });
        assert_eq!(spans, [MOST_NS / 8, MOST_NS / 4, MOST_NS / 2, MOST_NS, MOST_NS]);
        assert!(patience.is_whole());
    }
}
