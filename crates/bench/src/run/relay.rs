//! What the relay of delayed links really does, found out before anything is measured over it.

use serde::{Deserialize, Serialize};

use super::{RECEIVER_NODE, Run, SENDER_NODE, command, conduct};
use crate::args::{FlowClass, Point};
use crate::control::{Job, Role, Setup, SideReport};
use crate::netns::{Testbed, device};
use crate::pace::Pace;
use crate::run::Sample;
use crate::wait::WaitMode;
use crate::workload::{Histogram, Workload};

/// A delayed link, and what was seen of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RelayRow {
    pub(crate) link: String,
    /// Each way, as asked for.
    pub(crate) delay_ms: f64,
    /// Of 64 bytes there and back, median.
    pub(crate) round_trip_ms: f64,
    /// Without a token bucket, in trains of full packets.
    pub(crate) carries_mbps: f64,
    /// What the link is to carry, if it has a rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rate_mbit: Option<u32>,
}

impl RelayRow {
    /// Whether the relay itself is what limits the link.
    pub(crate) fn is_limit(&self) -> bool {
        self.rate_mbit.is_some_and(|rate_mbit| self.carries_mbps < f64::from(rate_mbit))
    }
}

/// Looks at what a link carries, until one sees anything.
const LOOKS_MAX: u32 = 10;
/// About what a sender without a pace offers.
const FLOOD_MBIT: u32 = 16_000;
/// Size of what is carried in trains: one full packet.
const CARRIED_BYTES: usize = 1_400;
/// Length of each look.
const LOOK_NS: u64 = 200_000_000;

impl Run<'_> {
    /// Looks at each delayed link of a testbed, alone.
    pub(super) fn look_at_relay(&mut self, testbed: &mut Testbed) -> Result<(), String> {
        for link in 0..testbed.spec().links.len() {
            let spec = testbed.spec().links[link].clone();
            if spec.delay_us == 0 {
                continue;
            }
            let told = |error: crate::netns::NetnsError| error.to_string();
            let timed = self.look(testbed, link, Workload::PingPong, "udp", (64, None))?;
            testbed.set_rate(link, None).map_err(told)?;
            let carried = self.carried(testbed, link);
            testbed.set_rate(link, spec.rate_mbit).map_err(told)?;
            let p50_us = Histogram::from_buckets(&timed.sender.rtt_ns).quantile_us(0.5);
            self.report.add_relay(RelayRow {
                link: device(link),
                delay_ms: f64::from(spec.delay_us) / 1e3,
                round_trip_ms: p50_us
                    .ok_or_else(|| format!("relay: nothing comes back by {}", device(link)))?
                    / 1e3,
                carries_mbps: carried?,
                rate_mbit: spec.rate_mbit,
            });
        }
        Ok(())
    }

    /// What goes over a link in Mbit/s. A receiver whose core the relay had for itself, because that has real-time priority and was
    /// flooded, saw nothing: that is looked at again, each time with half as much to carry.
    fn carried(&self, testbed: &Testbed, link: usize) -> Result<f64, String> {
        for look in 0..LOOKS_MAX {
            let pace = (look > 0).then(|| Pace::of_mbit(FLOOD_MBIT >> look, CARRIED_BYTES));
            let (workload, protocol) = (Workload::Stream, "udp-gso");
            let receiver = self.look(testbed, link, workload, protocol, (CARRIED_BYTES, pace))?.receiver;
            if receiver.bytes > 0 {
                return Ok(receiver.bytes as f64 * 8e3 / receiver.window_ns.max(1) as f64);
            }
        }
        Err(format!("relay: nothing arrives by {}", device(link)))
    }

    fn look(
        &self,
        testbed: &Testbed,
        link: usize,
        workload: Workload,
        protocol: &str,
        (size, pace): (usize, Option<Pace>),
    ) -> Result<Sample, String> {
        let Some(point) = self.plan.points.first() else { return Err("nothing to measure".to_owned()) };
        let point = Point { size, wait: WaitMode::Block, socket_buffer_max: None, ..point.clone() };
        let job = |role, node| {
            let job = self.job(Some(testbed), protocol, role, node, &point, 0);
            let setup = Setup {
                local: vec![testbed.address(node, link)],
                devices: vec![device(link)],
                both_ways: workload == Workload::PingPong,
                class: FlowClass::Normal,
                ..job.setup
            };
            Job {
                workload,
                setup,
                warmup_ns: LOOK_NS / 4,
                duration_ns: LOOK_NS,
                flows: 1,
                pace,
                beside: None,
                lone: None,
                ..job
            }
        };
        let receiver = (command(Some(testbed), RECEIVER_NODE)?.into(), job(Role::Receiver, RECEIVER_NODE));
        let sender = (command(Some(testbed), SENDER_NODE)?.into(), job(Role::Sender, SENDER_NODE));
        let sample = conduct::conduct(receiver, sender, &self.stop, &mut |_: &SideReport| {});
        match sample.error {
            Some(error) => Err(format!("relay: {error}")),
            None => Ok(sample),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_that_carries_less_than_the_rate_is_the_limit() {
        let row = |carries_mbps, rate_mbit| RelayRow {
            link: "l0".to_owned(),
            delay_ms: 1.0,
            round_trip_ms: 2.0,
            carries_mbps,
            rate_mbit,
        };
        assert!(row(900.0, Some(1_000)).is_limit());
        assert!(!row(1_100.0, Some(1_000)).is_limit() && !row(1.0, None).is_limit());
    }
}
