//! The figures of several clients of one server: how even their shares are, and what memory all take.

use serde::{Deserialize, Serialize};

use super::figures::{fairness, mib};
use crate::pss::CrowdMemory;
use crate::run::Sample;
use crate::stats::Spread;
use crate::workload::Workload;

/// How the clients share their server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Clients {
    /// Jain's index of the clients' rates: 1 if all are equal, 1/n if one has everything.
    pub(super) fairness: Spread,
    /// Rate of the client that got least and of the one that got most, per second.
    pub(super) least_per_s: Spread,
    pub(super) most_per_s: Spread,
    /// Messages, or round trips, of each client within the window, a list for each repetition.
    pub(super) messages: Vec<Vec<u64>>,
}

impl Clients {
    pub(super) fn of<'a>(workload: Workload, samples: impl Iterator<Item = &'a Sample>) -> Option<Self> {
        // Who asks has the times of its own questions; of what goes one way, only what arrives counts.
        let side = |sample: &'a Sample| {
            if workload.times_answers() { &sample.sender } else { &sample.receiver }
        };
        let sides: Vec<_> = samples.map(side).filter(|side| !side.messages_by_client.is_empty()).collect();
        let rates = sides.iter().map(|side| {
            let per_s = |count: &u64| *count as f64 * 1e9 / side.window_ns.max(1) as f64;
            side.messages_by_client.iter().map(per_s).collect::<Vec<f64>>()
        });
        let rates: Vec<Vec<f64>> = rates.collect();
        let spread =
            |value: &dyn Fn(&[f64]) -> Option<f64>| Spread::over(rates.iter().map(|rates| value(rates)));
        Some(Self {
            fairness: spread(&fairness)?,
            least_per_s: spread(&|rates| rates.iter().copied().reduce(f64::min))?,
            most_per_s: spread(&|rates| rates.iter().copied().reduce(f64::max))?,
            messages: sides.iter().map(|side| side.messages_by_client.clone()).collect(),
        })
    }
}

/// The memory of a server and its clients in MiB, each page counted once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct CrowdMib {
    /// Of all processes together.
    pub(super) sum: Spread,
    /// Of a client, in the mean, and of the one that has most.
    pub(super) client: Spread,
    pub(super) client_max: Spread,
    pub(super) server: Spread,
    /// Of a node in a process of its own; 0 where there is none.
    pub(super) node: Spread,
    /// What of the sum is memory that several may map: queues, rings, arenas.
    pub(super) shared: Spread,
}

impl CrowdMib {
    pub(super) fn of<'a>(samples: impl Iterator<Item = &'a Sample>) -> Option<Self> {
        let all: Vec<Option<&CrowdMemory>> = samples.map(|sample| sample.crowd_memory.as_ref()).collect();
        let spread = |value: fn(&CrowdMemory) -> u64| {
            Spread::over(all.iter().map(|memory| memory.map(|memory| mib(value(memory)))))
        };
        Some(Self {
            sum: spread(CrowdMemory::sum_bytes)?,
            client: spread(|memory| {
                memory.clients_bytes.iter().sum::<u64>() / memory.clients_bytes.len().max(1) as u64
            })?,
            client_max: spread(|memory| memory.clients_bytes.iter().copied().max().unwrap_or(0))?,
            server: spread(|memory| memory.server_bytes)?,
            node: spread(|memory| memory.node_bytes)?,
            shared: spread(|memory| memory.shared_bytes)?,
        })
    }
}
