//! Every bound of the protocol, with the relations between them checked at compile time.

use crate::time::Duration;
use crate::wire::{HEADER_BYTES, SEAL_BYTES};

/// Most packets in one train: the kernel's limit of segments per send (UDP_MAX_SEGMENTS was 64 until Linux 6.9).
pub const TRAIN_PACKETS_MAX: usize = 64;
/// Most bytes in one train: the largest UDP datagram, minus what IPv4 and UDP headers take.
pub const TRAIN_BYTES_MAX: usize = 65_507;
/// Datagram size that every path is expected to carry (IPv6's minimum MTU less headers and some tunnel).
pub const DATAGRAM_BYTES_BASE: u16 = 1200;
/// Largest datagram.
pub const DATAGRAM_BYTES_MAX: u16 = 65_504;
/// Messages up to this size are sent without asking (protocol.md §5.1).
pub const EAGER_BYTES_MAX: u64 = 65_536;
/// Messages up to this size are sent without asking if nothing else of their flow is unconfirmed and credit covers them
/// (protocol.md §5.1).
pub const UNASKED_BYTES_MAX: u64 = 256 << 10;
/// Largest message.
pub const MESSAGE_BYTES_MAX: u64 = 1 << 40;
/// How far a flow's messages may run ahead of the oldest one not delivered (protocol.md §5.2).
pub const REORDER_MESSAGES_MAX: u64 = 32_768;
/// Packets of one link in flight.
pub const INFLIGHT_PACKETS_MAX: u64 = 6_144;
/// Trains of one link in flight.
pub const INFLIGHT_TRAINS_MAX: usize = 2_048;
/// Control frames of one session that are not acknowledged yet.
pub const CONTROL_FRAMES_MAX: usize = 256;
/// Holes that one transfer or message may have before further pieces are treated as not received.
pub const HOLES_MAX: usize = 4_096;
/// Transfers that one session may have under way towards us.
pub const TRANSFERS_MAX: usize = 4_096;
/// Receive flows of one session.
pub const FLOWS_MAX: usize = 65_536;
/// Connections of one session.
pub const CONNECTIONS_MAX: usize = 65_536;
/// What all connections of a port together may have been granted and not used, bytes and messages; shared equally, down
/// to what a connection begins with.
pub const CONNECTION_CREDIT: (u64, u32) = (2 << 20, 16_384);
/// Links of one session.
pub const LINKS_MAX: usize = 16;
/// Bearers of one node.
pub const BEARERS_MAX: usize = 16;
/// Sessions of one node.
pub const SESSIONS_MAX: usize = 4_096;
/// Credit that a port gives to a session it has never heard of: bytes and messages (protocol.md §6.2).
pub const INITIAL_CREDIT: (u32, u32) = (262_144, 1_024);
/// Charge of a message against credit: its length rounded up to this.
pub const CREDIT_GRAIN_BYTES: u64 = 64;
/// Longest delay of an acknowledgement that a sender must expect.
pub const ACK_DELAY_MAX: Duration = Duration::ms(1);
/// Probe time-out of a link by shared memory: longer than a peer that is alive waits for its turn on a busy machine.
pub const NEAR_PTO: Duration = Duration::ms(100);
/// Silence of a whole node after which it is declared lost.
pub const TOLERANCE: Duration = Duration::ms(500);
/// The longest silence that a peer may ask to be tolerated.
pub const TOLERANCE_MAX: Duration = Duration::s(60);
/// The same for a peer that has never proved to be there.
pub const TOLERANCE_UNPROVED_MAX: Duration = Duration::s(5);
/// Refusals of one session that wait to be told. More are not told at all: what was refused comes again.
pub const REFUSALS_MAX: usize = 256;
/// Bindings of one port: half of what its node may have, so that one port leaves some to the others.
pub const BINDINGS_PORT_MAX: usize = 32_767;
/// Bindings of one node (as in TIPC), and of one other node that are remembered.
pub const BINDINGS_NODE_MAX: usize = 65_534;
/// Bindings of all nodes that one node remembers.
pub const BINDINGS_MAX: usize = 1 << 20;
/// Subscriptions of one node.
pub const SUBSCRIPTIONS_MAX: usize = 1_024;
/// Changes that wait for one subscriber. One more, and he starts again from a snapshot (protocol.md §7.3).
pub const SUBSCRIPTION_UPDATES_MAX: usize = 4_096;
/// Bytes of small messages of other classes than bulk that may exceed a link's window, so that bulk never makes them wait
/// for it.
pub const SMALL_OVERDRAFT_BYTES: u64 = 16_384;
/// Bytes per second that a link is expected to deliver while nothing is known of any: 1 Gbit/s.
pub const RATE_GUESS: u64 = 125_000_000;
/// Messages up to this size choose the link of least delay; larger ones are pulled by any link.
pub const SMALL_BYTES_MAX: u64 = 16_384;

const _: () = {
    assert!(EAGER_BYTES_MAX <= INITIAL_CREDIT.0 as u64, "an eager message must fit the initial credit");
    assert!(
        DATAGRAM_BYTES_BASE as usize > HEADER_BYTES + SEAL_BYTES + 256,
        "a base packet carries something"
    );
    assert!(DATAGRAM_BYTES_MAX.is_multiple_of(8), "packets are padded to 8");
    assert!(REORDER_MESSAGES_MAX <= 1 << 31, "the low half of a message number must be unambiguous");
    assert!(
        BINDINGS_PORT_MAX < BINDINGS_NODE_MAX && BINDINGS_NODE_MAX < BINDINGS_MAX,
        "one leaves some to others"
    );
    assert!(INFLIGHT_PACKETS_MAX <= 8_192, "the replay window must hold all packets in flight");
};

/// Charge of a message of `bytes` against credit (protocol.md §6.2).
pub const fn credit_cost(bytes: u64) -> u64 {
    let grains = bytes.div_ceil(CREDIT_GRAIN_BYTES);
    if grains == 0 { CREDIT_GRAIN_BYTES } else { grains * CREDIT_GRAIN_BYTES }
}
