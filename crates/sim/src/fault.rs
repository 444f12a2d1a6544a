//! Faults as data: what goes wrong, where, from when until when. The conditions of a rail follow from its base and
//! the faults that are active, so that faults overlap and end in any order.

use crate::host::Stalls;
use crate::network::{Conditions, Loss, PacketKind};
use crate::queue::TimeNs;

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// Nothing passes between two nodes of a rail, and nobody is told.
    SilentCut,
    /// Nothing passes from `node` to `peer` on a rail; the other direction works.
    OneWayCut,
    /// A cable is pulled: `node` (and on a direct cable its neighbour) learns of it after `notice_ns`.
    CarrierLoss {
        /// How long the machine takes to tell.
        notice_ns: TimeNs,
    },
    /// A rail runs at a share of its rate.
    RateChange {
        /// Thousandths of the usual rate.
        permille: u32,
    },
    /// Datagrams above this size vanish on the way.
    MtuShrink {
        /// Bytes.
        path_mtu_bytes: usize,
    },
    /// Datagrams overtake each other.
    Reorder {
        /// Up to this much.
        jitter_ns: TimeNs,
    },
    /// A rail loses.
    Loss(Loss),
    /// A rail duplicates.
    Duplicate {
        /// Parts per million.
        ppm: u32,
    },
    /// A rail delivers late copies.
    Replay {
        /// Parts per million.
        ppm: u32,
    },
    /// A rail alters bits.
    Corrupt {
        /// Parts per million of the datagrams.
        ppm: u32,
        /// Share that slips through the UDP checksum, parts per million.
        checksum_miss_ppm: u32,
    },
    /// Receive buffers of a rail shrink.
    SmallReceiveBuffer {
        /// Bytes.
        rcvbuf_bytes: u64,
    },
    /// `node` is cut off on all rails.
    Isolation,
    /// The process of `node` stops (SIGSTOP).
    Pause,
    /// The machine of `node` stalls.
    Stalls(Stalls),
    /// The process of `node` dies; at the end of the fault it starts again with a new incarnation.
    Restart,
    /// `node` takes its leave and is gone; at the end of the fault it starts again with a new incarnation.
    Leave,
    /// The process of `node` dies for good.
    Crash,
    /// A second node with the identity of `node` appears (on the run's spare seat).
    Clone,
    /// The applications of `node` receive nothing.
    SlowConsumer,
    /// An adversary sends damaged and outdated datagrams to `node` as if from `peer`.
    Garbage,
}

impl FaultKind {
    /// For people and the coverage table.
    pub fn name(&self) -> &'static str {
        match self {
            FaultKind::SilentCut => "silent cut",
            FaultKind::OneWayCut => "one-way cut",
            FaultKind::CarrierLoss { .. } => "carrier loss",
            FaultKind::RateChange { .. } => "rate change",
            FaultKind::MtuShrink { .. } => "mtu shrink",
            FaultKind::Reorder { .. } => "reordering",
            FaultKind::Loss(Loss::Selected { kind: PacketKind::Acks, .. }) => "loss of acks",
            FaultKind::Loss(Loss::Selected { .. }) => "loss of a kind",
            FaultKind::Loss(Loss::GilbertElliott { .. }) => "bursts of loss",
            FaultKind::Loss(_) => "random loss",
            FaultKind::Duplicate { .. } => "duplication",
            FaultKind::Replay { .. } => "replay",
            FaultKind::Corrupt { .. } => "corruption",
            FaultKind::SmallReceiveBuffer { .. } => "small receive buffer",
            FaultKind::Isolation => "isolation",
            FaultKind::Pause => "pause",
            FaultKind::Stalls(_) => "stalls",
            FaultKind::Restart => "restart",
            FaultKind::Leave => "leave",
            FaultKind::Crash => "crash",
            FaultKind::Clone => "clone",
            FaultKind::SlowConsumer => "slow consumer",
            FaultKind::Garbage => "garbage",
        }
    }
}

/// A fault of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// What.
    pub kind: FaultKind,
    /// On which rail (faults of rails).
    pub rail: usize,
    /// At which node.
    pub node: usize,
    /// Towards which other node (faults between two).
    pub peer: usize,
    /// From when.
    pub from_ns: TimeNs,
    /// Until when.
    pub until_ns: TimeNs,
}

impl Fault {
    /// A fault of a rail or of one node on it.
    pub fn new(kind: FaultKind, rail: usize, node: usize, from_ns: TimeNs, until_ns: TimeNs) -> Fault {
        Fault { kind, rail, node, peer: usize::MAX, from_ns, until_ns }
    }

    /// The same fault, between `node` and `peer` only.
    pub fn towards(self, peer: usize) -> Fault {
        Fault { peer, ..self }
    }

    /// Whether it stops all traffic from `from` to `to` on `rail`.
    pub fn stops(&self, rail: usize, from: usize, to: usize) -> bool {
        let pair = (from, to);
        match self.kind {
            FaultKind::SilentCut => {
                self.rail == rail && (pair == (self.node, self.peer) || pair == (self.peer, self.node))
            }
            FaultKind::OneWayCut => self.rail == rail && pair == (self.node, self.peer),
            FaultKind::Isolation => from == self.node || to == self.node,
            _ => false,
        }
    }

    /// Whether it pulls the cable of `node` on `rail`.
    pub fn pulls(&self, rail: usize, node: usize) -> bool {
        let here = self.node == node || self.peer == node;
        matches!(self.kind, FaultKind::CarrierLoss { .. }) && self.rail == rail && here
    }

    /// Whether a rail under this fault can't be relied upon to keep two nodes in touch: nothing passes, or so
    /// little that silence may last for as long as the tolerance.
    pub fn silences(&self, rail: usize, a: usize, b: usize) -> bool {
        let on_rail = self.rail == rail;
        match self.kind {
            FaultKind::SilentCut | FaultKind::OneWayCut | FaultKind::Isolation => {
                self.stops(rail, a, b) || self.stops(rail, b, a)
            }
            FaultKind::CarrierLoss { .. } => self.pulls(rail, a) || self.pulls(rail, b),
            FaultKind::MtuShrink { path_mtu_bytes } => on_rail && path_mtu_bytes < 1_200,
            FaultKind::Loss(Loss::Bernoulli { ppm }) => on_rail && ppm > 200_000,
            FaultKind::Loss(Loss::EveryNth { n }) => on_rail && n < 5,
            FaultKind::Loss(Loss::GilbertElliott { .. } | Loss::Selected { .. }) => on_rail,
            FaultKind::Corrupt { ppm, .. } => on_rail && ppm > 200_000,
            FaultKind::RateChange { permille } => on_rail && permille < 20,
            FaultKind::SmallReceiveBuffer { .. } => on_rail,
            FaultKind::Pause
            | FaultKind::Restart
            | FaultKind::Leave
            | FaultKind::Crash
            | FaultKind::Clone => self.node == a || self.node == b,
            _ => false,
        }
    }
}

/// The conditions of `rail` under the faults that are active.
pub fn conditions<'a>(base: Conditions, rail: usize, active: impl Iterator<Item = &'a Fault>) -> Conditions {
    let mut now = base;
    for fault in active.filter(|fault| fault.rail == rail) {
        match fault.kind {
            FaultKind::RateChange { permille } => {
                if let Some(rate) = base.egress.rate() {
                    now.egress = base.egress.with_rate((rate * u64::from(permille) / 1_000).max(1));
                }
            }
            FaultKind::MtuShrink { path_mtu_bytes } => now.path_mtu_bytes = path_mtu_bytes,
            FaultKind::Reorder { jitter_ns } => (now.jitter_ns, now.reorder) = (jitter_ns, true),
            FaultKind::Loss(loss) => now.loss = loss,
            FaultKind::Duplicate { ppm } => now.duplicate_ppm = ppm,
            FaultKind::Replay { ppm } => now.replay_ppm = ppm,
            FaultKind::Corrupt { ppm, checksum_miss_ppm } => {
                (now.corrupt_ppm, now.checksum_miss_ppm) = (ppm, checksum_miss_ppm);
            }
            FaultKind::SmallReceiveBuffer { rcvbuf_bytes } => now.rcvbuf_bytes = rcvbuf_bytes,
            _ => {}
        }
    }
    now
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_overlap_and_end_in_any_order() {
        let base = Conditions::default();
        let lossy = Fault::new(FaultKind::Loss(Loss::Bernoulli { ppm: 10 }), 1, 0, 0, 9);
        let twice = Fault::new(FaultKind::Duplicate { ppm: 20 }, 1, 0, 0, 9);
        let both = conditions(base, 1, [lossy, twice].iter());
        assert_eq!((both.loss, both.duplicate_ppm), (Loss::Bernoulli { ppm: 10 }, 20));
        assert_eq!(conditions(base, 1, [twice].iter()).loss, Loss::None);
        assert_eq!(conditions(base, 0, [lossy, twice].iter()), base);
    }

    #[test]
    fn a_one_way_cut_stops_one_way_and_silences_both() {
        let cut = Fault::new(FaultKind::OneWayCut, 0, 1, 0, 9).towards(2);
        assert!(cut.stops(0, 1, 2) && !cut.stops(0, 2, 1) && !cut.stops(1, 1, 2));
        assert!(cut.silences(0, 2, 1) && !cut.silences(0, 2, 3));
        let pulled = Fault::new(FaultKind::CarrierLoss { notice_ns: 1 }, 0, 1, 0, 9);
        assert!(pulled.pulls(0, 1) && !pulled.pulls(0, 2) && pulled.silences(0, 2, 1));
    }
}
