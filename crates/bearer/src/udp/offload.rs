//! Whether segmentation offload can be used now.
//!
//! A failure may be for good (old kernel, interface without checksums) or for a while (a changed route, an
//! interface setting), so it is tried again after a time.

/// How long trains go one by one after a failure.
const RETRY_NS: u64 = 60_000_000_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Offload {
    /// Never: not wanted or not known to the kernel.
    Never,
    /// In use.
    On,
    /// Failed; to be tried again at this moment.
    Off { retry_at_ns: u64 },
}

impl Offload {
    pub fn new(known: bool) -> Offload {
        if known { Offload::On } else { Offload::Never }
    }

    /// Whether to use it for the next train. The clock is read only after a failure.
    pub fn usable(self, now_ns: impl FnOnce() -> u64) -> bool {
        match self {
            Offload::Never => false,
            Offload::On => true,
            Offload::Off { retry_at_ns } => now_ns() >= retry_at_ns,
        }
    }

    /// It failed where sending one by one did not; whether that is news.
    pub fn fail(&mut self, now_ns: u64) -> bool {
        let was_on = *self == Offload::On;
        *self = Offload::Off { retry_at_ns: now_ns + RETRY_NS };
        was_on
    }

    /// It worked; whether that is news.
    pub fn succeed(&mut self) -> bool {
        let was_on = *self == Offload::On;
        *self = Offload::On;
        !was_on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_lasts_a_minute_and_is_told_once() {
        let mut offload = Offload::new(true);
        assert!(offload.usable(|| unreachable!("no clock while it works")));
        assert!(offload.fail(1_000));
        assert!(!offload.usable(|| 1_000 + RETRY_NS - 1));
        assert!(offload.usable(|| 1_000 + RETRY_NS));
        assert!(!offload.fail(1_000 + RETRY_NS), "a retry that fails is no news");
        assert!(offload.succeed());
        assert!(!offload.succeed());
        assert!(!Offload::new(false).usable(|| u64::MAX));
    }
}
