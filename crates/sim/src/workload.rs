//! What the applications of a run do: who sends what to whom, who stops receiving, which ports come and go.

pub mod script;

use crate::prng::Prng;
use crate::queue::{MS, TimeNs, US};

/// Payload of a fragment at a datagram size of 1,472 bytes: sizes around it are tried on purpose.
pub const FRAGMENT_BYTES: u64 = 1_432;
/// Largest message sent without asking: sizes around it are tried on purpose.
pub const EAGER_BYTES: u64 = 65_536;

/// Properties of a workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkloadOptions {
    /// Accepted sends after which no more are made.
    pub messages: u64,
    /// Ports that each node opens at first.
    pub ports_per_node: usize,
    /// Mean gap between two actions of a node.
    pub gap_ns: TimeNs,
    /// Most messages of one action.
    pub burst_max: u64,
    /// Largest message of the ordinary sizes.
    pub bytes_max: u64,
    /// Share of messages above the eager size.
    pub large_ppm: u32,
    /// Most bytes of those.
    pub large_bytes_max: u64,
    /// Share of messages with a tag.
    pub tagged_ppm: u32,
    /// Share of messages that are to come back if they fail.
    pub return_ppm: u32,
    /// Share of messages that are given up if nothing of them has left within 100 us to 100 ms.
    pub expire_ppm: u32,
    /// Share of messages addressed to a service.
    pub service_ppm: u32,
    /// Share of messages to a port of the own node.
    pub local_ppm: u32,
    /// Chance per action that a port closes and another opens.
    pub churn_ppm: u32,
    /// Chance per action that a binding is made or taken back.
    pub rebind_ppm: u32,
    /// Chance per action that a port stops receiving for up to 100 ms.
    pub sleep_ppm: u32,
    /// Share of sends that go to all of a range of services instead.
    pub multicast_ppm: u32,
    /// Share of sends that ask for a connection instead.
    pub connect_ppm: u32,
    /// Most connections asked for at once.
    pub connect_burst_max: u64,
    /// Share of connections that carry much.
    pub connect_heavy_ppm: u32,
    /// Largest message of those.
    pub connect_bytes_max: u64,
    /// No sends after this time, even if there were fewer than `messages`.
    pub until_ns: TimeNs,
}

impl Default for WorkloadOptions {
    fn default() -> Self {
        WorkloadOptions {
            messages: 2_000,
            ports_per_node: 2,
            gap_ns: 500 * US,
            burst_max: 8,
            bytes_max: 8_192,
            large_ppm: 2_000,
            large_bytes_max: 256 << 10,
            tagged_ppm: 300_000,
            return_ppm: 200_000,
            expire_ppm: 0,
            service_ppm: 0,
            local_ppm: 0,
            churn_ppm: 0,
            rebind_ppm: 0,
            sleep_ppm: 0,
            multicast_ppm: 0,
            connect_ppm: 0,
            connect_burst_max: 1,
            connect_heavy_ppm: 0,
            connect_bytes_max: EAGER_BYTES,
            until_ns: 5_000 * MS,
        }
    }
}

/// One thing an application does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// So many messages of so many bytes from one port to one target.
    Send {
        /// How many.
        count: u64,
        /// Whether to a service.
        service: bool,
        /// Whether to a port of the own node.
        local: bool,
    },
    /// So many messages from one port to all of a range of services.
    Multicast(u64),
    /// A port asks for connections.
    Connect {
        /// How many, all with the same target.
        count: u64,
        /// Whether with a service.
        service: bool,
        /// Whether with a port of the own node.
        local: bool,
    },
    /// A port closes, another opens.
    Churn,
    /// A binding is made or taken back.
    Rebind,
    /// A port stops receiving for so long.
    Sleep(TimeNs),
}

impl WorkloadOptions {
    /// What a node does next.
    pub fn action(&self, prng: &mut Prng) -> Action {
        if prng.chance_ppm(self.churn_ppm) {
            return Action::Churn;
        }
        if prng.chance_ppm(self.rebind_ppm) {
            return Action::Rebind;
        }
        if prng.chance_ppm(self.sleep_ppm) {
            return Action::Sleep(prng.log_uniform(MS, 100 * MS));
        }
        if prng.chance_ppm(self.multicast_ppm) {
            return Action::Multicast(prng.log_uniform(1, self.burst_max));
        }
        let service = prng.chance_ppm(self.service_ppm);
        let local = !service && prng.chance_ppm(self.local_ppm);
        if prng.chance_ppm(self.connect_ppm) {
            let count = prng.log_uniform(1, self.connect_burst_max);
            return Action::Connect { count, service, local };
        }
        Action::Send { count: prng.log_uniform(1, self.burst_max), service, local }
    }

    /// Bytes of the next message: mostly small, often at a bound of the protocol, seldom large.
    pub fn bytes(&self, prng: &mut Prng) -> usize {
        if prng.chance_ppm(self.large_ppm) {
            return prng.log_uniform(EAGER_BYTES, self.large_bytes_max.max(EAGER_BYTES)) as usize;
        }
        let bytes = match prng.below(100) {
            0..5 => 0,
            5..8 => prng.between(1, 7),
            8..16 => FRAGMENT_BYTES - 1 + prng.below(3),
            16..18 => 2 * FRAGMENT_BYTES - 9 + prng.below(19),
            18..20 => 4_096,
            20 if self.large_ppm > 0 => return (EAGER_BYTES - 1 + prng.below(3)) as usize,
            21..60 => prng.log_uniform(8, 256),
            _ => prng.log_uniform(1, self.bytes_max),
        };
        bytes as usize
    }

    /// Whether the next message is to come back if it fails, and how long it may wait before anything of it leaves.
    pub fn wish(&self, prng: &mut Prng) -> (bool, Option<TimeNs>) {
        let returns = prng.chance_ppm(self.return_ppm);
        (returns, prng.chance_ppm(self.expire_ppm).then(|| prng.log_uniform(100 * US, 100 * MS)))
    }

    /// Class of the next message: urgent, normal or bulk.
    pub fn class(&self, prng: &mut Prng) -> u8 {
        *prng.pick(&[1, 2, 2, 2, 3])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_meet_every_bound() {
        let options = WorkloadOptions { large_ppm: 20_000, ..WorkloadOptions::default() };
        let mut prng = Prng::new(1);
        let sizes: Vec<usize> = (0..20_000).map(|_| options.bytes(&mut prng)).collect();
        for wanted in [0, 1, 7, 1_431, 1_432, 1_433, 4_096, 65_535, 65_536, 65_537] {
            assert!(sizes.contains(&wanted), "{wanted}");
        }
        let mean = sizes.iter().sum::<usize>() / sizes.len();
        assert!(mean < 6_000, "{mean}: a seed must stay cheap");
    }
}
