//! One or more values of every frame and packet, shared by the tests of the wire format.
#![allow(dead_code)]

use arrayvec::ArrayString;
use polyrail_proto::address::{MediaAddress, Scope, ServiceAddress, ServiceRange};
use polyrail_proto::id::{BearerId, Incarnation, LinkId, NodeId, PortId, SessionId, TransferId};
use polyrail_proto::wire::*;

/// A message without options.
pub fn message() -> Message {
    Message { class: 2, from: PortId(5), to: PortId(7), seq: 9, service: None, tag: None, notify: false }
}

/// A message with both options.
pub fn message_with_options() -> Message {
    let (service, tag) = (Some(ServiceAddress::new(100, 3)), Some(0x1122_3344_5566_7788));
    Message { class: 1, from: PortId(5), to: PortId(8), seq: 10, service, tag, notify: false }
}

pub fn ack() -> Ack {
    Ack {
        link: LinkId(3),
        rx_batch_log2: 15,
        largest: 1_000,
        stamp_echo: 0x0102_0304,
        delay: 20,
        rx_bytes: 1 << 33,
        rx_clock: 0x0506_0708,
        ce_count: 4,
        queueing: 77,
        ranges: [(990, 1_000), (900, 980), (17, 17)].into_iter().collect(),
    }
}

pub fn bindings() -> [Binding; 2] {
    let range = ServiceRange::new(100, 2, 9);
    let publish = Binding {
        op: BindingOp::Publish,
        range,
        port: PortId(7),
        key: 0x0A0B,
        scope: Scope::Cluster,
        weight: 3,
        exclusive: true,
    };
    [publish, Binding { op: BindingOp::Withdraw, weight: 0, exclusive: false, ..publish }]
}

/// A BINDINGS frame of `bindings()`, as bytes.
pub fn bindings_bytes() -> Vec<u8> {
    let mut out = Vec::new();
    Bindings::emit(11, NodeId(0xB0B), Incarnation(44), 8, &bindings(), &mut out);
    out
}

/// Every kind of frame, in the order of the types. `records` are those of a BINDINGS frame.
pub fn frames(records: &[u8]) -> Vec<Frame<'_>> {
    let (plain, full) = (message(), message_with_options());
    let bearer = BearerState {
        bearer: BearerId(1),
        tx_state: 1,
        rx_state: 2,
        tx_backlog: 3,
        rx_backlog: 4,
        rx_window: 5,
        senders: 6,
        rx_rate: 7,
        seq: 8,
    };
    let reason = RefuseReason::NoRoom;
    let probe = Probe { id: 99, about: LinkId(4), kind: ProbeKind::Join, target: 0x0102, size: 0 };
    let reply = ProbeReply {
        id: 99,
        about: LinkId(4),
        kind: ProbeKind::State,
        last_rx: 1,
        last_rx_age: 2,
        next_tx: 3,
        carrier: true,
        stall_us: 4,
        size: 5,
    };
    let log =
        Bindings { control: 11, origin: NodeId(0xB0B), incarnation: Incarnation(44), log_seq: 8, records };
    let mut frames = vec![
        Frame::Message(plain, b"hi"),
        Frame::Message(full, b""),
        Frame::Fragment(Fragment { message: full, total: 3, offset: 0 }, b"abc"),
        Frame::Fragment(Fragment { message: plain, total: 30, offset: 16 }, b"abcdefgh"),
        Frame::TransferFragment(TransferFragment { transfer: TransferId(6), offset: 1 << 40 }, b"xyz"),
        Frame::Ack(ack()),
        Frame::BearerState(bearer),
        Frame::Credit(Credit { port: PortId(7), messages: 1_024, bytes: 1 << 34 }),
        Frame::Refuse(Refuse {
            control: 12,
            from: PortId(5),
            to: PortId(7),
            seq: 9,
            class: 3,
            reason,
            retry_after_us: 500,
        }),
        Frame::Rts(Rts { message: plain, token: 21, total: 1 << 20 }),
        Frame::Rts(Rts { message: full, token: 22, total: 1 << 48 }),
        Frame::Cts(Cts { token: 21, transfer: TransferId(6), granted: 65_536, done: 4_096 }),
        Frame::TransferAbort(13, 21),
        Frame::Bindings(log),
        Frame::PortClosed(14, PortId(7)),
        Frame::Probe(probe),
        Frame::ProbeReply(reply),
        Frame::LinkSet(LinkSet {
            control: 15,
            link: LinkId(4),
            status: LinkStatus::Drain,
            number: 0x0102_0304,
        }),
        Frame::Skipped(0x0C),
        Frame::Close(Close { reason: 1 }),
    ];
    frames.extend(of_connections());
    frames.extend(to_several());
    frames.push(Frame::NameDigest(name_digest()));
    frames.extend(of_reading());
    frames.extend(of_bearers());
    frames
}

/// A bearer that came, and one that is gone.
fn of_bearers() -> [Frame<'static>; 2] {
    let address = MediaAddress::from_bytes(&[4, 0x1d, 0x06, 10, 0, 0, 7]).expect("it is short");
    let there = BearerAddress { bearer: BearerId(2), mtu: 8_972, window_bytes: 1 << 20, address };
    let nothing = MediaAddress::default();
    let gone = BearerAddress { bearer: BearerId(1), mtu: 0, window_bytes: 0, address: nothing };
    [
        Frame::BearerSet(BearerSet { control: 22, bearer: there, gone: false }),
        Frame::BearerSet(BearerSet { control: 23, bearer: gone, gone: true }),
    ]
}

/// Of a connection's life.
fn of_connections() -> [Frame<'static>; 4] {
    [
        Frame::Connect(Connect {
            control: 16,
            end: PortId::accepting_end(0x0102),
            from: PortId(5),
            to: PortId(7),
            class: 1,
            stream: true,
            credit: (1 << 33, 1_024),
            service: Some(ServiceAddress::new(100, 3)),
        }),
        Frame::Accept(Accept {
            control: 17,
            end: PortId::accepting_end(0x0102).far_end(),
            answer: Ok(PortId(7)),
            credit: (1 << 20, 2_048),
        }),
        Frame::Accept(Accept {
            control: 18,
            end: PortId::accepting_end(0x0102).far_end(),
            answer: Err(RefusedConnect::NobodyListens),
            credit: (0, 0),
        }),
        Frame::Shutdown(Shutdown {
            control: 19,
            end: PortId::accepting_end(0x0102),
            messages: 9,
            sent_all: true,
            deaf: false,
            abort: true,
        }),
    ]
}

/// Messages whose senders want to know whether they were read, and the answers.
fn of_reading() -> [Frame<'static>; 4] {
    let asking = Message { notify: true, ..message_with_options() };
    let read = Consumed { control: 20, from: PortId(7), to: PortId(5), class: 3, seq: 10, rest: None };
    [
        Frame::Message(asking, b"read?"),
        Frame::Fragment(Fragment { message: asking, total: 9, offset: 0 }, b"read"),
        Frame::Consumed(read),
        Frame::Consumed(Consumed { control: 21, rest: Some(Rejected::OwnerDied), ..read }),
    ]
}

fn name_digest() -> NameDigest {
    NameDigest {
        control: 20,
        says: DigestSays::Again,
        origin: NodeId(0xB0B),
        incarnation: Incarnation(44),
        log_seq: 9,
        hash: 0x1122_3344_5566_7788,
    }
}

/// The first and a later piece of a message to several.
fn to_several() -> [Frame<'static>; 2] {
    let (plain, full) = (message(), message_with_options());
    [
        Frame::Multicast(
            Multicast {
                message: Message { class: 1, to: PortId::MULTICAST, service: None, ..full },
                range: ServiceRange::new(100, 3, 9),
                total: 12,
                offset: 0,
            },
            b"hi",
        ),
        Frame::Multicast(
            Multicast {
                message: Message { to: PortId::MULTICAST, ..plain },
                range: ServiceRange::new(100, 3, 9),
                total: 16,
                offset: 8,
            },
            b"abcdefgh",
        ),
    ]
}

pub fn header(flags: u8) -> Header {
    Header {
        kind: PacketType::Data,
        flags,
        link: LinkId(0x0201),
        to: SessionId(0x0605_0403),
        number: 0x0000_0C0B_0A09_0807,
        stamp: 0x1312_1110,
        check: 0,
    }
}

/// A DATA packet of `frames`, with its checksum.
pub fn packet(flags: u8, frames: &[Frame<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    header(flags).emit(&mut out);
    frames.iter().for_each(|frame| frame.emit(&mut out));
    finish(&mut out).expect("a packet of our own");
    out
}

pub fn hello() -> Hello {
    let ethernet = |last| MediaAddress::from_bytes(&[10, 0, 0, last, 0x39, 0x30]).expect("it is short");
    let bearer = |n| BearerAddress {
        bearer: BearerId(n),
        mtu: 1_472,
        window_bytes: 0x10_0000,
        address: ethernet(n + 1),
    };
    Hello {
        cluster: 0xC1,
        node: NodeId(0xB0B),
        incarnation: Incarnation(44),
        session: SessionId(0x51),
        attempt: 7,
        echo: Incarnation(43),
        versions: (1, 1),
        features: 0xFE,
        bearer: BearerId(1),
        eager_bytes_max: 65_536,
        initial_credit: (262_144, 1_024),
        tolerance_ms: 500,
        host: 0x4057,
        name: ArrayString::from("node-b").expect("it is short"),
        bearers: [bearer(0), bearer(1)].into_iter().collect(),
    }
}

pub fn beacon() -> Beacon {
    let (node, incarnation) = (NodeId(0xB0B), Incarnation(44));
    Beacon { cluster: 0xC1, node, incarnation, bearer: BearerId(1), solicit: true }
}

pub fn versions() -> Versions {
    Versions { min: 1, max: 3, node: NodeId(0xB0B) }
}

pub fn reset() -> Reset {
    Reset { session: SessionId(0x51), node: NodeId(0xB0B), incarnation: Incarnation(44) }
}

/// What `emit` appends.
pub fn emitted(emit: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    emit(&mut out);
    out
}

/// Valid packets of all types, with every frame alone and in company.
pub fn packets() -> Vec<Vec<u8>> {
    let log = bindings_bytes();
    let frames = frames(&log[32..]);
    let mut packets: Vec<Vec<u8>> =
        frames.iter().map(|frame| packet(0, std::slice::from_ref(frame))).collect();
    packets.push(packet(FLAG_ACK_ELICITING | FLAG_TRAIN_LAST, &frames));
    packets.push(packet(FLAG_FULL_CHECK | FLAG_ACK_NOW, &frames[..8]));
    let bundle: Vec<Frame<'_>> = (0..18).map(|_| Frame::Message(message(), &[0x5A; 61])).collect();
    packets.push(packet(FLAG_ACK_ELICITING, &bundle));
    let mut padded = packet(FLAG_ACK_NOW, &frames[15..16]);
    padded.resize(1_200, 0);
    finish(&mut padded).expect("a packet of our own");
    packets.push(padded);
    let mut sealed = emitted(|out| header(FLAG_SEALED).emit(out));
    sealed.extend((0..56u8).map(|i| i.wrapping_mul(37)));
    packets.push(sealed);
    let mut cookie = emitted(|out| Header::outside(PacketType::Cookie, SessionId(1), 2).emit(out));
    finish(&mut cookie).expect("a packet of our own");
    packets.push(cookie);
    packets.push(emitted(|out| hello().emit_packet(PacketType::Init, SessionId(0), 1, out)));
    packets.push(emitted(|out| hello().emit_packet(PacketType::Resp, SessionId(9), 2, out)));
    packets.push(emitted(|out| beacon().emit_packet(3, out)));
    packets.push(emitted(|out| versions().emit_packet(4, out)));
    packets.push(emitted(|out| reset().emit_packet(5, out)));
    packets
}
