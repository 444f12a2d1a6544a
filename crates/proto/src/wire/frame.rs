//! Frames of an established session (protocol.md §4).

use super::handshake::BearerAddress;
use crate::address::{Scope, ServiceAddress, ServiceRange};
use crate::id::{BearerId, Incarnation, LinkId, NodeId, PortId, TransferId};
use serde::{Deserialize, Serialize};

/// Frame types (protocol.md §2.2). A layout never changes under its number.
pub(crate) mod kind {
    pub const MESSAGE: u8 = 0x01;
    pub const FRAGMENT: u8 = 0x02;
    pub const TRANSFER_FRAGMENT: u8 = 0x03;
    pub const ACK: u8 = 0x04;
    pub const BEARER_STATE: u8 = 0x05;
    pub const CREDIT: u8 = 0x06;
    pub const REFUSE: u8 = 0x07;
    pub const RTS: u8 = 0x08;
    pub const CTS: u8 = 0x09;
    pub const TRANSFER_ABORT: u8 = 0x0A;
    pub const BINDINGS: u8 = 0x10;
    pub const NAME_DIGEST: u8 = 0x11;
    pub const PORT_CLOSED: u8 = 0x14;
    pub const PROBE: u8 = 0x18;
    pub const PROBE_REPLY: u8 = 0x19;
    pub const LINK_SET: u8 = 0x1C;
    pub const BEARER_SET: u8 = 0x1D;
    pub const CONNECT: u8 = 0x20;
    pub const ACCEPT: u8 = 0x21;
    pub const SHUTDOWN: u8 = 0x22;
    pub const MULTICAST: u8 = 0x23;
    pub const CONSUMED: u8 = 0x24;
    pub const CLOSE: u8 = 0x80;
}

/// Most bytes of one message.
pub const MESSAGE_BYTES_MAX: u64 = 1 << 48;

/// A whole small message (protocol.md §4.1). `payload` follows; never larger than one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// Class 0..=3 (control, urgent, normal, bulk).
    pub class: u8,
    /// Sending port.
    pub from: PortId,
    /// Receiving port.
    pub to: PortId,
    /// Low half of the flow's message number.
    pub seq: u32,
    /// The service that the sender addressed, if it did not address the port.
    pub service: Option<ServiceAddress>,
    /// The sender's tag.
    pub tag: Option<u64>,
    /// The sender wants to be told when it was read (protocol.md §5.10).
    pub notify: bool,
}

/// A piece of an eager message (protocol.md §4.2). Self-describing: any piece may come first, by any link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragment {
    /// As in a whole message; service, tag and `notify` are present in every piece that has offset 0, and only there.
    pub message: Message,
    /// Bytes of the whole message.
    pub total: u32,
    /// Where this piece belongs.
    pub offset: u32,
}

/// A piece of a message to all who have bound something of a range (protocol.md §4.18). `message.to` is
/// [`PortId::MULTICAST`], and its service is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Multicast {
    /// Sender, class, number; the tag is present in the piece with offset 0, and only there.
    pub message: Message,
    /// The range.
    pub range: ServiceRange,
    /// Bytes of the whole message.
    pub total: u32,
    /// Where this piece belongs.
    pub offset: u32,
}

/// A piece of a transfer (protocol.md §4.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransferFragment {
    /// The receiver's number of the transfer.
    pub transfer: TransferId,
    /// Where this piece belongs.
    pub offset: u64,
}

/// Most gap/length pairs of an ACK frame.
pub const ACK_RANGES_MAX: usize = 32;

/// Ranges of an [`Ack`]: nearly always one, so that the frame stays small where it is passed on.
pub type AckRanges = smallvec::SmallVec<[(u64, u64); 2]>;

/// Acknowledgement of packets of one link (protocol.md §4.4).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ack {
    /// The link being acknowledged; may differ from the carrying one.
    pub link: LinkId,
    /// log2 of the mean bytes that the receiver got per receive call.
    pub rx_batch_log2: u8,
    /// Highest packet number received.
    pub largest: u64,
    /// Stamp of that packet.
    pub stamp_echo: u32,
    /// From its arrival to this ack, units of 256 ns.
    pub delay: u32,
    /// Bytes accepted on the link so far.
    pub rx_bytes: u64,
    /// Receiver's clock at arrival of `largest`, units of 256 ns.
    pub rx_clock: u32,
    /// Packets marked by congestion so far, low 32 bits.
    pub ce_count: u32,
    /// Forward queueing that the receiver sees, units of 256 ns.
    pub queueing: u32,
    /// Acknowledged ranges `first..=last`, highest first, disjoint, not touching. The first ends at `largest`.
    pub ranges: AckRanges,
}

/// State of one of the reporter's bearers (protocol.md §4.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BearerState {
    /// Which.
    pub bearer: BearerId,
    /// 0 down, 1 free, 2 busy, 3 leaving: sending side.
    pub tx_state: u8,
    /// The same for the receiving side.
    pub rx_state: u8,
    /// Bytes queued to send.
    pub tx_backlog: u32,
    /// Bytes received and not yet handled.
    pub rx_backlog: u32,
    /// Bytes that this session may have in flight towards it.
    pub rx_window: u32,
    /// Sessions that send to it now.
    pub senders: u16,
    /// Share of the receive rate, KB/s.
    pub rx_rate: u32,
    /// Number of this report; the newest wins.
    pub seq: u32,
}

/// Credit of a port, absolute and monotonic (protocol.md §6.2 and §4.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Credit {
    /// The receiving port.
    pub port: PortId,
    /// Messages that may have been sent in all (low 32 bits).
    pub messages: u32,
    /// Bytes that may have been sent in all.
    pub bytes: u64,
}

/// Why a message was not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum RefuseReason {
    /// No memory now: send it again later.
    NoRoom = 1,
    /// No such port.
    NoPort = 2,
    /// Larger than the port accepts.
    TooLarge = 3,
}

/// A message that was not accepted (protocol.md §4.7). Reliable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refuse {
    /// Control number (protocol.md §5.5).
    pub control: u32,
    /// Sending port of the message.
    pub from: PortId,
    /// Receiving port.
    pub to: PortId,
    /// Its number.
    pub seq: u32,
    /// Its class.
    pub class: u8,
    /// Why.
    pub reason: RefuseReason,
    /// When to try again, microseconds.
    pub retry_after_us: u32,
}

/// "A large message wants to come" (protocol.md §4.8). Takes its place in the flow by `message.seq`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rts {
    /// The message's header.
    pub message: Message,
    /// The sender's name for the transfer.
    pub token: u32,
    /// Bytes of the message.
    pub total: u64,
}

/// "Send it" (protocol.md §4.9). Absolute and monotonic: re-sent as the grant advances.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cts {
    /// The sender's name for the transfer.
    pub token: u32,
    /// The receiver's.
    pub transfer: TransferId,
    /// Bytes 0..granted may be sent.
    pub granted: u64,
    /// Bytes 0..done are in the receiver's hands for good; `done == total` ends the transfer.
    pub done: u64,
}

/// What a binding record does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum BindingOp {
    /// Bind.
    Publish = 1,
    /// Unbind.
    Withdraw = 2,
}

/// One record of a node's binding log (protocol.md §7.2), 40 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Binding {
    /// What it does.
    pub op: BindingOp,
    /// The range.
    pub range: ServiceRange,
    /// The port.
    pub port: PortId,
    /// Unique for the life of the origin.
    pub key: u64,
    /// Always `Cluster` on the wire.
    pub scope: Scope,
    /// Share among several bindings of one service (0 counts as 1).
    pub weight: u8,
    /// It wants to be the only one of its range (protocol.md §7.4).
    pub exclusive: bool,
}

/// Most records in one BINDINGS frame.
pub const BINDINGS_MAX: usize = 28;

/// Records of one origin's log, in order (protocol.md §4.10). Reliable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bindings<'a> {
    /// Control number.
    pub control: u32,
    /// Whose log.
    pub origin: NodeId,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// Log number of the first record.
    pub log_seq: u64,
    /// The records, 40 bytes each, already checked.
    pub records: &'a [u8],
}

/// What a [`NameDigest`] says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum DigestSays {
    /// How the sender's log stands.
    State = 0,
    /// What follows is the sender's log from its beginning.
    Anew = 1,
    /// The receiver's log is wanted from its beginning.
    Again = 2,
}

/// What a replica of a binding log should look like, or does (protocol.md §4.10). Reliable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NameDigest {
    /// Control number.
    pub control: u32,
    /// What it is about.
    pub says: DigestSays,
    /// Whose log.
    pub origin: NodeId,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// Number of the last operation.
    pub log_seq: u64,
    /// Sum of the hashes of the live bindings.
    pub hash: u64,
}

/// Iterates the records of [`Bindings`].
#[derive(Clone, Debug)]
pub struct BindingsIter<'a>(pub(crate) &'a [u8]);

/// Purpose of a probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ProbeKind {
    /// Are you there?
    Liveness = 0,
    /// Do you hear that node? (larger clusters)
    Indirect = 1,
    /// Does a packet of this size arrive? Padded.
    Mtu = 2,
    /// How does this link look from your side?
    State = 3,
    /// May this link join the session? (protocol.md §6.3)
    Join = 4,
}

/// A question (protocol.md §4.11).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Probe {
    /// Echoed in the reply.
    pub id: u64,
    /// The link asked about.
    pub about: LinkId,
    /// Purpose.
    pub kind: ProbeKind,
    /// The node asked about (indirect), else 0. For `Join`: the sender's bearer number in the low byte and the
    /// receiver's in the next.
    pub target: u64,
    /// Bytes of the whole packet (kind `Mtu`), else 0.
    pub size: u16,
}

/// Its answer (protocol.md §4.11).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProbeReply {
    /// From the probe.
    pub id: u64,
    /// From the probe.
    pub about: LinkId,
    /// From the probe.
    pub kind: ProbeKind,
    /// Highest packet number received on `about`.
    pub last_rx: u64,
    /// Age of that packet, units of 256 ns.
    pub last_rx_age: u32,
    /// Next packet number to be sent on `about`.
    pub next_tx: u64,
    /// Carrier of the answerer's bearer.
    pub carrier: bool,
    /// Recent stalls of the answerer's driver, microseconds (95th percentile).
    pub stall_us: u32,
    /// From the probe.
    pub size: u16,
}

/// What the operator or the detector says of a link; the later, the less may go there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[repr(u8)]
pub enum LinkStatus {
    /// Use it.
    Active = 0,
    /// Use it only if no other is up.
    Standby = 1,
    /// It is leaving.
    Drain = 2,
    /// It is dead.
    Down = 3,
}

/// News of a link (protocol.md §4.12). Reliable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkSet {
    /// Control number.
    pub control: u32,
    /// The link.
    pub link: LinkId,
    /// Its status at the sender.
    pub status: LinkStatus,
    /// Low half of the number of the next packet that the sender would have sent on it: whoever has received that
    /// one or a later one knows that the news that it is dead is out of date.
    pub number: u32,
}

/// News of one of the sender's bearers (protocol.md §4.12, §6.6). Reliable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BearerSet {
    /// Control number.
    pub control: u32,
    /// The bearer, and how it is reached from now on; if it is gone, nothing but its number.
    pub bearer: BearerAddress,
    /// The bearer is gone.
    pub gone: bool,
}

/// "A connection, please" (protocol.md §4.15). Reliable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connect {
    /// Control number.
    pub control: u32,
    /// The connection's end at the receiver: `to` of what goes there.
    pub end: PortId,
    /// The port that connects.
    pub from: PortId,
    /// The port that is to accept.
    pub to: PortId,
    /// Class of all its messages.
    pub class: u8,
    /// It carries a stream of bytes, and the ends of messages mean nothing.
    pub stream: bool,
    /// What may be sent on the way back in all: bytes and messages.
    pub credit: (u64, u32),
    /// The service that the application addressed, if it did not address the port.
    pub service: Option<ServiceAddress>,
}

/// Why a connection was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum RefusedConnect {
    /// Too many wait to be accepted.
    Backlog = 1,
    /// The port does not exist, or does not listen.
    NobodyListens = 2,
    /// The port does not want it.
    NotAllowed = 3,
}

/// The answer to [`Connect`] (protocol.md §4.16). Reliable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Accept {
    /// Control number.
    pub control: u32,
    /// The connection's end at the receiver.
    pub end: PortId,
    /// The port that accepted, or why none did.
    pub answer: Result<PortId, RefusedConnect>,
    /// What may be sent to the accepting end in all: bytes and messages.
    pub credit: (u64, u32),
}

/// One end of a connection says that something is over (protocol.md §4.17). Reliable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shutdown {
    /// Control number.
    pub control: u32,
    /// The connection's end at the receiver.
    pub end: PortId,
    /// Messages that the sender has sent in all (low 32 bits): the end comes after the last of them.
    pub messages: u32,
    /// It sends no more.
    pub sent_all: bool,
    /// It receives no more.
    pub deaf: bool,
    /// It is gone: what is under way is to be forgotten.
    pub abort: bool,
}

/// Why messages that arrived will not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Rejected {
    /// Their port has closed.
    PortClosed = 1,
    /// The program that had the port has died.
    OwnerDied = 2,
    /// The program does not want them.
    ByOwner = 3,
}

/// How far the messages of a flow were read that ask for it (protocol.md §4.19). Reliable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Consumed {
    /// Control number.
    pub control: u32,
    /// Sending port of the messages.
    pub from: PortId,
    /// Their receiving port.
    pub to: PortId,
    /// Their class.
    pub class: u8,
    /// Low half of the first number that was not read: all before it were.
    pub seq: u32,
    /// From there on none will be.
    pub rest: Option<Rejected>,
}

/// The session ends (protocol.md §4.14).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Close {
    /// 0 leaving, 1 replaced, 2 protocol violation.
    pub reason: u16,
}

/// One frame of a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Frame<'a> {
    /// 0x01
    Message(Message, &'a [u8]),
    /// 0x02
    Fragment(Fragment, &'a [u8]),
    /// 0x03
    TransferFragment(TransferFragment, &'a [u8]),
    /// 0x04
    Ack(Ack),
    /// 0x05
    BearerState(BearerState),
    /// 0x06
    Credit(Credit),
    /// 0x07
    Refuse(Refuse),
    /// 0x08
    Rts(Rts),
    /// 0x09
    Cts(Cts),
    /// 0x0A: the sender gives a transfer up. Reliable. (control number, token)
    TransferAbort(u32, u32),
    /// 0x10
    Bindings(Bindings<'a>),
    /// 0x11
    NameDigest(NameDigest),
    /// 0x14: that port of the sender is gone, forget its flows. Reliable. (control number, port)
    PortClosed(u32, PortId),
    /// 0x18
    Probe(Probe),
    /// 0x19
    ProbeReply(ProbeReply),
    /// 0x1C
    LinkSet(LinkSet),
    /// 0x1D
    BearerSet(BearerSet),
    /// 0x20
    Connect(Connect),
    /// 0x21
    Accept(Accept),
    /// 0x22
    Shutdown(Shutdown),
    /// 0x23
    Multicast(Multicast, &'a [u8]),
    /// 0x24
    Consumed(Consumed),
    /// 0x80
    Close(Close),
    /// A frame with a reserved layout that this build does not speak yet, or an unknown one of the skippable half.
    Skipped(u8),
}

/// Iterates the frames of a packet's body.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    pub(crate) walk: super::walk::Walk<'a>,
}
