//! The machine under a node: when its driver gets to run, how its clock goes, and what its calls cost.

use crate::prng::Prng;
use crate::queue::{MS, S, TimeNs, US};

/// A Poisson process of stalls: the driver does not run, the network goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stalls {
    /// Short stalls per second, 1-5 ms each.
    pub short_per_s: u32,
    /// Long stalls per second, 5-20 ms each.
    pub long_per_s: u32,
}

impl Stalls {
    /// As measured on a shared virtual machine: a third of the time is gone.
    pub const MEASURED: Stalls = Stalls { short_per_s: 80, long_per_s: 20 };
}

/// Properties of a machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostOptions {
    /// Added to the virtual clock.
    pub clock_offset_ns: u64,
    /// How much faster (or slower) the clock runs, parts per million.
    pub clock_drift_ppm: i32,
    /// From an event to the turn that handles it.
    pub wake_ns: TimeNs,
    /// Fixed cost of a turn.
    pub turn_ns: TimeNs,
    /// Cost of a send call.
    pub send_ns: TimeNs,
    /// Stalls, if any.
    pub stalls: Option<Stalls>,
}

impl Default for HostOptions {
    fn default() -> Self {
        HostOptions {
            clock_offset_ns: S,
            clock_drift_ppm: 0,
            wake_ns: 2 * US,
            turn_ns: US,
            send_ns: 6 * US,
            stalls: None,
        }
    }
}

/// A machine in motion.
#[derive(Debug)]
pub struct Host {
    options: HostOptions,
    prng: Prng,
    busy_until_ns: TimeNs,
    stall_from_ns: TimeNs,
    stall_until_ns: TimeNs,
    pause_until_ns: TimeNs,
    /// Stall not yet reported to the driver.
    unreported_ns: TimeNs,
}

impl Host {
    /// A machine with the given properties.
    pub fn new(options: HostOptions, prng: Prng) -> Host {
        Host {
            options,
            prng,
            busy_until_ns: 0,
            stall_from_ns: 0,
            stall_until_ns: 0,
            pause_until_ns: 0,
            unreported_ns: 0,
        }
    }

    /// Its properties.
    pub fn options(&self) -> &HostOptions {
        &self.options
    }

    /// Switches stalls on or off.
    pub fn set_stalls(&mut self, now_ns: TimeNs, stalls: Option<Stalls>) {
        self.options.stalls = stalls;
        (self.stall_from_ns, self.stall_until_ns) = (now_ns, now_ns);
    }

    /// Stops the process until `until_ns`.
    pub fn pause(&mut self, until_ns: TimeNs) {
        self.pause_until_ns = self.pause_until_ns.max(until_ns);
    }

    /// The node's own clock.
    pub fn local_ns(&self, now_ns: TimeNs) -> u64 {
        let drift = i128::from(now_ns) * i128::from(self.options.clock_drift_ppm) / 1_000_000;
        self.options.clock_offset_ns + (i128::from(now_ns) + drift) as u64
    }

    /// When the node's own clock shows `local_ns` (rounded up).
    pub fn virtual_ns(&self, local_ns: u64) -> TimeNs {
        let since = u128::from(local_ns.saturating_sub(self.options.clock_offset_ns));
        let rate = (1_000_000 + i64::from(self.options.clock_drift_ppm)) as u128;
        u64::try_from((since * 1_000_000).div_ceil(rate)).unwrap_or(u64::MAX)
    }

    /// The earliest moment, not before `at_ns`, at which the driver runs. A stall that delays it is remembered for
    /// [`take_stall`](Self::take_stall).
    pub fn runs_at(&mut self, at_ns: TimeNs) -> TimeNs {
        let mut runs_ns = at_ns.max(self.busy_until_ns);
        if runs_ns < self.pause_until_ns {
            self.unreported_ns += self.pause_until_ns - runs_ns;
            runs_ns = self.pause_until_ns;
        }
        while self.options.stalls.is_some() && self.stall_from_ns <= runs_ns {
            if runs_ns < self.stall_until_ns {
                self.unreported_ns += self.stall_until_ns - runs_ns;
                runs_ns = self.stall_until_ns;
            }
            self.next_stall();
        }
        runs_ns
    }

    /// A turn with `sends` send calls begins at `now_ns`.
    pub fn spend(&mut self, now_ns: TimeNs, sends: u64) {
        self.busy_until_ns = now_ns + self.options.turn_ns + sends * self.options.send_ns;
    }

    /// How long the driver was held up since the last call.
    pub fn take_stall(&mut self) -> TimeNs {
        std::mem::take(&mut self.unreported_ns)
    }

    fn next_stall(&mut self) {
        let Some(stalls) = self.options.stalls else { return };
        let per_s = u64::from(stalls.short_per_s + stalls.long_per_s).max(1);
        let long = self.prng.below(per_s) < u64::from(stalls.long_per_s);
        let length_ns = if long { self.prng.between(5 * MS, 20 * MS) } else { self.prng.between(MS, 5 * MS) };
        self.stall_from_ns = self.stall_until_ns + self.prng.exponential(S / per_s);
        self.stall_until_ns = self.stall_from_ns + length_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_convert_both_ways() {
        for clock_drift_ppm in [-200, 0, 137] {
            let options = HostOptions { clock_drift_ppm, clock_offset_ns: 5 * S, ..HostOptions::default() };
            let host = Host::new(options, Prng::new(1));
            for now_ns in [0, 1, 999, 1_234_567, 3 * S + 17] {
                let back = host.virtual_ns(host.local_ns(now_ns));
                assert!(back.abs_diff(now_ns) <= 1, "{now_ns} {back}");
                assert!(host.local_ns(host.virtual_ns(host.local_ns(now_ns))) >= host.local_ns(now_ns));
            }
        }
    }

    #[test]
    fn stalls_take_their_share_and_are_reported() {
        let mut host =
            Host::new(HostOptions { stalls: Some(Stalls::MEASURED), ..HostOptions::default() }, Prng::new(1));
        let (mut now_ns, mut stalled) = (0, 0);
        while now_ns < 10 * S {
            let runs_ns = host.runs_at(now_ns + 10 * US);
            let stall_ns = host.take_stall();
            assert_eq!(runs_ns, now_ns + 10 * US + stall_ns);
            stalled += stall_ns;
            now_ns = runs_ns;
        }
        let percent = stalled * 100 / now_ns;
        assert!((25..45).contains(&percent), "{percent}");
    }

    #[test]
    fn a_pause_holds_until_its_end() {
        let mut host = Host::new(HostOptions::default(), Prng::new(1));
        host.pause(10 * MS);
        assert_eq!(host.runs_at(MS), 10 * MS);
        assert_eq!(host.take_stall(), 9 * MS);
        assert_eq!(host.runs_at(11 * MS), 11 * MS);
    }
}
