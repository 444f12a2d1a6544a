//! What a rail is like: its queues, delays and vices. Plain data, drawn by the swarm, changed by faults, restored by
//! the heal at the end of a run.

use crate::queue::TimeNs;

/// Bytes on the wire around a datagram: Ethernet, IPv4 and UDP headers.
pub const OVERHEAD_BYTES: usize = 42;

/// The queue between a socket and the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EgressKind {
    /// As on veth: every datagram leaves at once, nothing is ever held in the send buffer.
    NoQueue,
    /// A device queue: leaves at `rate`, holds `limit` bytes.
    Fifo {
        /// Bytes per second.
        rate: u64,
        /// Bytes that may wait; more are dropped.
        limit: u64,
    },
    /// Token bucket: bursts leave at once, the average is `rate`. A train larger than `burst` is cut into single
    /// datagrams.
    Tbf {
        /// Bytes per second.
        rate: u64,
        /// Depth of the bucket, bytes.
        burst: u64,
        /// Bytes that may wait; more are dropped.
        limit: u64,
    },
}

impl EgressKind {
    /// The same queue at another rate; a queue without rate stays as it is.
    pub fn with_rate(self, rate: u64) -> EgressKind {
        match self {
            EgressKind::NoQueue => EgressKind::NoQueue,
            EgressKind::Fifo { limit, .. } => EgressKind::Fifo { rate, limit },
            EgressKind::Tbf { burst, limit, .. } => EgressKind::Tbf { rate, burst, limit },
        }
    }

    /// Bytes per second, if limited.
    pub fn rate(self) -> Option<u64> {
        match self {
            EgressKind::NoQueue => None,
            EgressKind::Fifo { rate, .. } | EgressKind::Tbf { rate, .. } => Some(rate),
        }
    }
}

/// What a rail loses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Loss {
    /// Nothing.
    #[default]
    None,
    /// Each unit with this probability.
    Bernoulli {
        /// Parts per million.
        ppm: u32,
    },
    /// Bursts: a good and a bad state with a loss share each and a chance to change per unit.
    GilbertElliott {
        /// Chance to turn bad, per unit.
        to_bad_ppm: u32,
        /// Chance to turn good, per unit.
        to_good_ppm: u32,
        /// Loss in the bad state.
        bad_loss_ppm: u32,
    },
    /// Every nth unit of a direction.
    EveryNth {
        /// 1 loses everything.
        n: u32,
    },
    /// Packets of one kind only, each with a probability.
    Selected {
        /// Which.
        kind: PacketKind,
        /// Parts per million.
        ppm: u32,
    },
}

/// Kinds of packets that [`Loss::Selected`] can aim at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PacketKind {
    /// Packets that carry an ACK frame.
    Acks,
    /// Packets as large as the path allows, within 64 bytes.
    FullSize,
    /// Everything outside of a session (handshakes and beacons).
    Handshake,
}

/// A shared output port of a switch towards one station.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwitchPort {
    /// Bytes per second.
    pub rate: u64,
    /// Bytes that may wait; more are dropped.
    pub limit: u64,
}

/// All properties of a rail (one segment to which every node has one attachment).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conditions {
    /// The sender's queue.
    pub egress: EgressKind,
    /// Send buffer of a socket, bytes of memory (not of payload).
    pub sndbuf_bytes: u64,
    /// Receive buffer of a socket, bytes of memory.
    pub rcvbuf_bytes: u64,
    /// Time on the wire.
    pub propagation_ns: TimeNs,
    /// Additional random time, 0..=jitter.
    pub jitter_ns: TimeNs,
    /// Whether jitter may overtake.
    pub reorder: bool,
    /// Largest datagram that the local device accepts.
    pub mtu_bytes: usize,
    /// Largest datagram that the middle of the way lets pass; larger ones vanish.
    pub path_mtu_bytes: usize,
    /// What gets lost.
    pub loss: Loss,
    /// Whether the unit of loss is the whole train (as for an offloaded super-packet) or one datagram.
    pub loss_by_train: bool,
    /// Chance that a unit arrives twice.
    pub duplicate_ppm: u32,
    /// Chance that a copy of a unit arrives much later (up to a second).
    pub replay_ppm: u32,
    /// Chance that bits of a datagram flip.
    pub corrupt_ppm: u32,
    /// Share of the corrupted datagrams that slip through the UDP checksum.
    pub checksum_miss_ppm: u32,
    /// A bottleneck at the far end.
    pub port: Option<SwitchPort>,
}

impl Default for Conditions {
    /// A clean gigabit link with 128 KB bursts, as the measured test links are shaped.
    fn default() -> Self {
        Conditions {
            egress: EgressKind::Tbf { rate: 125_000_000, burst: 131_072, limit: 756_000 },
            sndbuf_bytes: 400_000,
            rcvbuf_bytes: 4 << 20,
            propagation_ns: 10_000,
            jitter_ns: 0,
            reorder: false,
            mtu_bytes: 1472,
            path_mtu_bytes: usize::MAX,
            loss: Loss::None,
            loss_by_train: false,
            duplicate_ppm: 0,
            replay_ppm: 0,
            corrupt_ppm: 0,
            checksum_miss_ppm: 0,
            port: None,
        }
    }
}

/// Kernel memory that a train of `bytes` in datagrams of `segment` takes: what socket buffers are charged.
pub fn truesize(bytes: usize, segment: usize) -> u64 {
    let single = bytes <= segment;
    if single && bytes <= 1_500 {
        return 2_304;
    }
    (bytes.div_ceil(4_096) * 4_096 + 1_024) as u64
}

/// Bytes that a train occupies on the wire.
pub fn wire_bytes(bytes: usize, segment: usize) -> u64 {
    let datagrams = bytes.div_ceil(segment.max(1)).max(1);
    (bytes + datagrams * OVERHEAD_BYTES) as u64
}
