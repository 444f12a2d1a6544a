//! What is compared: a protocol, and the conditions under which it is.

use std::ops::Range;

use serde::Serialize;

use crate::args::{Environment, FlowClass, FlowDirection, Load, Placement, Plan, Point, ReadKind, SendKind};
use crate::model::FRAME_BYTES;
use crate::peers::Facts;
use crate::protocol::Protocol;
use crate::wait::WaitMode;
use crate::workload::{ToolCost, Workload};

/// What is compared: one protocol under one set of conditions.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Case {
    pub(super) workload: Workload,
    pub(super) protocol: &'static str,
    pub(super) reliable: bool,
    pub(super) striped: bool,
    /// Which links it uses; follows from the protocol too.
    #[serde(skip)]
    pub(super) links: Range<usize>,
    pub(super) carrying_threads: bool,
    /// Follows from the protocol, and so is no part of what the case is.
    #[serde(skip)]
    pub(super) congestion: Option<&'static str>,
    /// Payload of a full packet, in bytes; the same.
    #[serde(skip)]
    pub(super) payload: usize,
    pub(super) environment: Environment,
    pub(super) point: Point,
    /// Of `failover`, where the protocol has classes.
    pub(super) class: Option<FlowClass>,
    /// Where messages are composed in the protocol's memory.
    pub(super) send: Option<SendKind>,
    /// Where receivers copy messages that lie in the protocol's memory.
    pub(super) read: Option<ReadKind>,
    /// What the instrument itself costs: measured, and so no part of what the case is.
    #[serde(skip)]
    pub(super) tool: Option<ToolCost>,
}

impl Case {
    pub(crate) fn new(
        plan: &Plan,
        protocol: &'static dyn Protocol,
        environment: &Environment,
        point: &Point,
    ) -> Self {
        Self {
            workload: plan.workload,
            protocol: protocol.name(),
            reliable: protocol.reliable(),
            striped: protocol.striped(),
            links: protocol.links(environment.rates.len()),
            carrying_threads: protocol.has_carrying_threads(),
            congestion: protocol.congestion(),
            payload: protocol.packet_payload(),
            environment: environment.clone(),
            point: point.clone(),
            class: ((plan.workload == Workload::Failover || point.load == Load::BesideBulk)
                && protocol.has_classes())
            .then_some(plan.failover.class),
            send: (plan.send != SendKind::Slice && protocol.offers(plan.send)).then_some(plan.send),
            read: (plan.read != ReadKind::Place).then_some(plan.read),
            tool: None,
        }
    }

    /// The same, with what the instrument itself costs.
    pub(crate) fn with_tool(self, tool: Option<ToolCost>) -> Self {
        Self { tool, ..self }
    }

    /// The same for another system.
    pub(crate) fn of_peer(
        plan: &Plan,
        facts: &'static Facts,
        environment: &Environment,
        point: &Point,
    ) -> Self {
        Self {
            workload: plan.workload,
            protocol: facts.name,
            reliable: facts.reliable,
            striped: facts.striped,
            links: if facts.striped { 0..environment.rates.len() } else { 0..environment.rates.len().min(1) },
            // Those that have such threads sleep whatever they are asked, which a note tells.
            carrying_threads: false,
            congestion: None,
            payload: 1_448,
            environment: environment.clone(),
            point: point.clone(),
            class: None,
            send: None,
            read: (plan.read != ReadKind::Place).then_some(plan.read),
            tool: None,
        }
    }

    /// The conditions without the protocol: what two rows must share to be compared.
    pub(super) fn conditions(&self) -> String {
        let Environment { placement, rates, losses, delays_ms, .. } = &self.environment;
        let mbit: Vec<String> = rates.iter().map(|rate| rate.unwrap_or(0).to_string()).collect();
        let links = match placement {
            Placement::Intra | Placement::Host(_) => String::new(),
            Placement::Inter => format!(" {} links {} Mbit/s", rates.len(), mbit.join(":")),
        };
        let percents: Vec<String> = losses.iter().map(ToString::to_string).collect();
        let lossy = losses.iter().any(|&percent| percent > 0.0);
        let loss = if lossy { format!(" loss {} %", percents.join(":")) } else { String::new() };
        let delays: Vec<String> = delays_ms.iter().map(ToString::to_string).collect();
        let delay = if delays.is_empty() { String::new() } else { format!(" delay {} ms", delays.join(":")) };
        let buffer =
            self.point.socket_buffer_max.map_or(String::new(), |bytes| format!(" sockets {bytes} B"));
        let load = match self.point.load.name() {
            name if name.is_empty() => name,
            name => format!(" {name}"),
        };
        let read = match self.read {
            None | Some(ReadKind::Place) => "",
            Some(ReadKind::Copy) => " copied",
            Some(ReadKind::Whole) => " whole",
        };
        let (workload, placement, wait) = (self.workload.name(), placement.name(), self.point.wait.name());
        format!("{workload} {placement}{links}{loss}{delay} {} B {wait}{read}{buffer}{load}", self.point.size)
    }

    pub(super) fn wait(&self) -> WaitMode {
        self.point.wait
    }

    pub(super) fn is_of_clients(&self) -> bool {
        matches!(self.point.load, Load::Clients(_))
    }

    /// What the links it uses can carry, in Mbit/s, if they are throttled.
    pub(super) fn capacity_mbps(&self) -> Option<f64> {
        if self.workload == Workload::Multicast {
            // One copy leaves for what several ports get.
            return None;
        }
        let used = &self.environment.rates[self.links.clone()];
        let one_way: Option<f64> = used.iter().map(|rate| rate.map(f64::from)).sum();
        let both_ways = matches!(self.point.load, Load::Pairs(count, FlowDirection::Opposite) if count > 1);
        one_way.map(|mbit| if both_ways { 2.0 * mbit } else { mbit })
    }

    /// What the links that it uses carry of payload while one of them is away, in Mbit/s, if the others are throttled.
    pub(super) fn left_mbps(&self, away: usize) -> Option<f64> {
        let others = self.links.clone().filter(|link| *link != away);
        let mbit: Option<f64> = others.map(|link| self.environment.rates[link].map(f64::from)).sum();
        Some(mbit? * self.payload as f64 / FRAME_BYTES)
    }
}
