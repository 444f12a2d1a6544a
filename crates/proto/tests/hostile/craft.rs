//! Packets that are well formed and mean harm: every kind of frame, with numbers at the bounds of what is believable.

use super::live::Live;
use crate::world::address;
use crate::world::random::Random;
use polyrail_proto::address::{MediaAddress, Scope, ServiceAddress, ServiceRange};
use polyrail_proto::id::{BearerId, Incarnation, LinkId, NodeId, PortId, SessionId, TransferId};
use polyrail_proto::wire::*;

/// A DATA packet of the session, on one of its links.
pub fn data(random: &mut Random, live: &Live) -> Vec<u8> {
    let (link, next, _) = live.link(random);
    let mut out = Vec::new();
    let flags = [
        0,
        FLAG_ACK_ELICITING,
        FLAG_ACK_ELICITING | FLAG_ACK_SOON,
        FLAG_ACK_ELICITING | FLAG_ACK_NOW,
        FLAG_FULL_CHECK,
    ];
    let header = Header {
        kind: PacketType::Data,
        flags: random.pick(&flags),
        link: LinkId(link),
        to: SessionId(live.to),
        number: next + if random.one_in(6) { random.below(200) as u64 } else { 0 },
        stamp: random.next() as u32,
        check: 0,
    };
    header.emit(&mut out);
    // Now and then a packet is full of one thing after the other.
    let most = if random.one_in(10) { 60 } else { 5 };
    for _ in 0..1 + random.below(most) {
        put_frame(random, live, &mut out);
        out.truncate(60_000);
    }
    let _ = finish(&mut out);
    out
}

fn put_frame(random: &mut Random, live: &Live, out: &mut Vec<u8>) {
    match random.below(30) {
        0..=2 => put_message(random, live, out),
        3..=5 => put_fragment(random, live, out),
        6 | 7 => put_transfer_fragment(random, out),
        8 | 9 => Frame::Ack(ack(random, live)).emit(out),
        10 => put_credit(random, live, out),
        11 => put_refuse(random, live, out),
        12 | 13 => put_rts(random, live, out),
        14 => put_cts(random, out),
        15 => put_bindings(random, live, out),
        16 => put_notice(random, live, out),
        17 | 18 => put_probe(random, live, out),
        19 => put_bearer_state(random, out),
        20 => Frame::Skipped(random.pick(&[0x0B, 0x0C, 0x25, 0x30, 0x7F])).emit(out),
        21..=23 => put_connection(random, live, out),
        24 | 25 => put_multicast(random, live, out),
        26 => put_digest(random, live, out),
        27 => put_consumed(random, live, out),
        28 => put_bearer_set(random, out),
        // A session that is closed is not attacked any further, so this comes rarely.
        _ if random.one_in(60) => Frame::Close(Close { reason: random.below(4) as u16 }).emit(out),
        _ => Frame::TransferAbort(random.below(300) as u32, token(random)).emit(out),
    }
}

fn message(random: &mut Random, live: &Live) -> Message {
    // The low half of a message number: of the next ones, at the end of the window, or beyond.
    let seq = match random.below(6) {
        0 => random.odd_number() as u32,
        1 => 32_760 + random.below(16) as u32,
        _ => random.below(400) as u32,
    };
    // Senders may number their ports as they like, so there may be any number of flows.
    let from = if random.one_in(3) { PortId(random.below(1 << 20) as u32) } else { live.own_port(random) };
    Message {
        class: random.below(4) as u8,
        from,
        to: if random.one_in(4) { end(random) } else { live.their_port(random) },
        seq,
        service: random.one_in(5).then(|| ServiceAddress::new(1_000, random.next() as u32)),
        tag: random.one_in(3).then(|| random.next()),
        notify: random.one_in(4),
    }
}

fn bytes(random: &mut Random, most: usize) -> Vec<u8> {
    vec![random.next() as u8; random.below(most)]
}

fn put_message(random: &mut Random, live: &Live, out: &mut Vec<u8>) {
    let most = random.pick(&[1, 10, 200, 1_400]);
    let payload = bytes(random, most);
    Frame::Message(message(random, live), &payload).emit(out);
}

fn put_fragment(random: &mut Random, live: &Live, out: &mut Vec<u8>) {
    let payload = bytes(random, 100);
    let total = random.pick(&[0, 1, 100, 200, 1_400, 65_535, 65_536, 65_537, u32::MAX]);
    let total = if random.one_in(4) { random.odd_number() as u32 } else { total };
    let room = total.saturating_sub(payload.len() as u32);
    let anywhere = random.below(65_536) as u32;
    let offset = random.pick(&[0, 1, 8, room / 2, room, anywhere]);
    let mut message = message(random, live);
    if offset > 0 {
        (message.service, message.tag) = (None, None);
    }
    Frame::Fragment(Fragment { message, total, offset }, &payload).emit(out);
}

/// Names of transfers are small numbers: index and how often it was used.
fn token(random: &mut Random) -> u32 {
    if random.one_in(6) {
        return random.odd_number() as u32;
    }
    (random.below(80) | random.below(3) << 16) as u32
}

fn put_transfer_fragment(random: &mut Random, out: &mut Vec<u8>) {
    let payload = bytes(random, 64);
    let offset = if random.one_in(4) {
        random.odd_number() & 0xFFFF_FFFF_FFFF
    } else {
        2 * random.below(200_000) as u64
    };
    let transfer = TransferId(token(random));
    Frame::TransferFragment(TransferFragment { transfer, offset }, &payload).emit(out);
}

fn ack(random: &mut Random, live: &Live) -> Ack {
    let (link, _, sent) = live.link(random);
    let mut largest = match random.below(10) {
        0 => random.odd_number() & PACKET_NUMBER_MAX,
        1 => sent,
        2 => sent + random.below(100) as u64,
        _ => sent.saturating_sub(1 + random.below(60) as u64),
    };
    let mut ranges = Vec::new();
    let top = largest;
    for _ in 0..1 + random.below(32) {
        let most = if random.one_in(12) { 1 << 31 } else { 6 };
        let low = largest.saturating_sub(random.below(most) as u64);
        ranges.push((low, largest));
        let gap = 2 + random.below(4) as u64;
        match low.checked_sub(gap) {
            Some(next) => largest = next,
            None => break,
        }
    }
    Ack {
        link: LinkId(link),
        rx_batch_log2: random.next() as u8,
        largest: top,
        stamp_echo: random.next() as u32,
        delay: random.odd_number() as u32,
        rx_bytes: random.odd_number(),
        rx_clock: random.odd_number() as u32,
        ce_count: random.odd_number() as u32,
        queueing: random.odd_number() as u32,
        ranges: ranges.into_iter().collect(),
    }
}

fn put_credit(random: &mut Random, live: &Live, out: &mut Vec<u8>) {
    let (port, messages) = (live.own_port(random), random.odd_number() as u32);
    Frame::Credit(Credit { port, messages, bytes: random.odd_number() }).emit(out);
}

fn put_refuse(random: &mut Random, live: &Live, out: &mut Vec<u8>) {
    let reason = random.pick(&[
        RefuseReason::NoRoom,
        RefuseReason::NoRoom,
        RefuseReason::NoRoom,
        RefuseReason::NoPort,
        RefuseReason::TooLarge,
    ]);
    let refuse = Refuse {
        control: random.below(300) as u32,
        from: live.their_port(random),
        to: live.own_port(random),
        seq: if random.one_in(4) { random.odd_number() as u32 } else { random.below(400) as u32 },
        class: random.below(4) as u8,
        reason,
        retry_after_us: random.odd_number() as u32,
    };
    Frame::Refuse(refuse).emit(out);
}

fn put_rts(random: &mut Random, live: &Live, out: &mut Vec<u8>) {
    const MOST: u64 = 1 << 48;
    let total = match random.below(4) {
        0 => random.odd_number().min(MOST),
        1 => 4 << 20,
        _ => 8_192 + random.below(100_000) as u64,
    };
    Frame::Rts(Rts { message: message(random, live), token: token(random), total }).emit(out);
}

fn put_cts(random: &mut Random, out: &mut Vec<u8>) {
    const MOST: u64 = 1 << 48;
    let cts = Cts {
        token: token(random),
        transfer: TransferId(token(random)),
        granted: random.odd_number().min(MOST),
        done: random.odd_number().min(MOST),
    };
    Frame::Cts(cts).emit(out);
}

/// Control numbers: what is awaited next is small, for sessions are young.
fn control(random: &mut Random) -> u32 {
    if random.one_in(3) { random.odd_number() as u32 } else { random.below(12) as u32 }
}

fn put_bindings(random: &mut Random, live: &Live, out: &mut Vec<u8>) {
    let mut records = Vec::new();
    for _ in 0..1 + random.below(28) {
        let (a, b) = (random.odd_number() as u32, random.odd_number() as u32);
        records.push(Binding {
            op: random.pick(&[BindingOp::Publish, BindingOp::Publish, BindingOp::Withdraw]),
            range: ServiceRange::new(random.below(2_000) as u32, a.min(b), a.max(b)),
            port: live.own_port(random),
            key: random.odd_number(),
            scope: Scope::Cluster,
            weight: random.next() as u8,
            exclusive: random.one_in(4),
        });
    }
    let honest = !random.one_in(6);
    let origin = if honest { live.node } else { NodeId(random.odd_number().max(1)) };
    let log_seq = if random.one_in(3) { random.odd_number() } else { 1 + random.below(100) as u64 };
    Bindings::emit(control(random), origin, live.incarnation, log_seq, &records, out);
}

fn put_digest(random: &mut Random, live: &Live, out: &mut Vec<u8>) {
    let origin = if random.one_in(6) { NodeId(random.odd_number().max(1)) } else { live.node };
    let (control, log_seq) = (control(random), random.below(40) as u64);
    let says = random.pick(&[DigestSays::State, DigestSays::Anew, DigestSays::Again]);
    let hash = if random.one_in(2) { 0 } else { random.odd_number() };
    let incarnation = live.incarnation;
    Frame::NameDigest(NameDigest { control, says, origin, incarnation, log_seq, hash }).emit(out);
}

fn put_notice(random: &mut Random, live: &Live, out: &mut Vec<u8>) {
    let number = control(random);
    if random.one_in(2) {
        return Frame::PortClosed(number, live.own_port(random)).emit(out);
    }
    let (link, _, sent) = live.link(random);
    let status = random.pick(&[LinkStatus::Active, LinkStatus::Standby, LinkStatus::Drain, LinkStatus::Down]);
    let number_there = if random.one_in(2) { sent as u32 } else { random.odd_number() as u32 };
    Frame::LinkSet(LinkSet { control: number, link: LinkId(link), status, number: number_there }).emit(out);
}

/// Bearers that come, change and go, at addresses where others are.
fn put_bearer_set(random: &mut Random, out: &mut Vec<u8>) {
    let bearer = BearerId(random.below(16) as u8);
    if random.one_in(3) {
        let nothing = BearerAddress { bearer, mtu: 0, window_bytes: 0, address: MediaAddress::default() };
        return Frame::BearerSet(BearerSet { control: control(random), bearer: nothing, gone: true })
            .emit(out);
    }
    let mtu = random.pick(&[0, 1, 1_200, 1_472, 8_972, u16::MAX]);
    let window_bytes = random.odd_number() as u32;
    let address = if random.one_in(2) {
        address(random.below(3) as u8, random.below(6) as u16)
    } else {
        MediaAddress::from_bytes(&bytes(random, 24)).unwrap_or_default()
    };
    let bearer = BearerAddress { bearer, mtu, window_bytes, address };
    Frame::BearerSet(BearerSet { control: control(random), bearer, gone: false }).emit(out);
}

fn put_multicast(random: &mut Random, live: &Live, out: &mut Vec<u8>) {
    let payload = bytes(random, 100);
    let total = random.pick(&[payload.len() as u32, 0, 1, 100, 1_400, 65_536, 65_537, u32::MAX]);
    let room = total.saturating_sub(payload.len() as u32);
    let offset = random.pick(&[0, 0, 1, room / 2, room]);
    let mut message = Message { to: PortId::MULTICAST, service: None, ..message(random, live) };
    if offset > 0 {
        message.tag = None;
    }
    let instance = random.below(4) as u32;
    let range =
        ServiceRange::new(random.pick(&[1_000, 1_000, 2_000]), instance, random.next() as u32 | instance);
    Frame::Multicast(Multicast { message, range, total, offset }, &payload).emit(out);
}

/// An end of a connection, of which there are few.
fn end(random: &mut Random) -> PortId {
    let number = if random.one_in(8) { random.odd_number() as u32 } else { random.below(12) as u32 };
    let end = PortId::accepting_end(number);
    if random.one_in(3) { end.far_end() } else { end }
}

fn put_connection(random: &mut Random, live: &Live, out: &mut Vec<u8>) {
    let (control, end) = (control(random), end(random));
    let credit = (random.odd_number(), random.odd_number() as u32);
    match random.below(4) {
        0 | 1 => Frame::Connect(Connect {
            control,
            end: PortId::accepting_end(end.connection_number()),
            from: live.own_port(random),
            to: live.their_port(random),
            class: random.below(4) as u8,
            stream: random.one_in(2),
            credit,
            service: random.one_in(2).then(|| ServiceAddress::new(1_000, 1)),
        })
        .emit(out),
        2 => {
            let refused = random.one_in(3).then_some(RefusedConnect::Backlog);
            let answer = refused.map_or(Ok(live.own_port(random)), Err);
            let end = PortId::accepting_end(end.connection_number()).far_end();
            Frame::Accept(Accept { control, end, answer, credit }).emit(out);
        }
        _ => Frame::Shutdown(Shutdown {
            control,
            end,
            messages: if random.one_in(3) { random.odd_number() as u32 } else { random.below(20) as u32 },
            sent_all: random.one_in(2),
            deaf: random.one_in(3),
            abort: random.one_in(6),
        })
        .emit(out),
    }
}

fn put_consumed(random: &mut Random, live: &Live, out: &mut Vec<u8>) {
    Frame::Consumed(Consumed {
        control: control(random),
        from: live.their_port(random),
        to: live.own_port(random),
        class: random.below(4) as u8,
        seq: if random.one_in(3) { random.odd_number() as u32 } else { random.below(400) as u32 },
        rest: random.one_in(3).then_some(Rejected::PortClosed),
    })
    .emit(out);
}

fn put_probe(random: &mut Random, live: &Live, out: &mut Vec<u8>) {
    let kinds = [
        ProbeKind::Liveness,
        ProbeKind::Indirect,
        ProbeKind::Mtu,
        ProbeKind::State,
        ProbeKind::Join,
        ProbeKind::Join,
    ];
    let kind = random.pick(&kinds);
    let about = if random.one_in(4) { LinkId(random.below(40) as u16) } else { LinkId(live.link(random).0) };
    let size = random.odd_number() as u16;
    if random.one_in(2) {
        let target = random.odd_number();
        return Frame::Probe(Probe { id: random.next(), about, kind, target, size }).emit(out);
    }
    let reply = ProbeReply {
        id: random.below(20) as u64,
        about,
        kind,
        last_rx: random.odd_number() & PACKET_NUMBER_MAX,
        last_rx_age: random.odd_number() as u32,
        next_tx: random.odd_number() & PACKET_NUMBER_MAX,
        carrier: random.one_in(2),
        stall_us: random.odd_number() as u32,
        size,
    };
    Frame::ProbeReply(reply).emit(out);
}

fn put_bearer_state(random: &mut Random, out: &mut Vec<u8>) {
    let state = BearerState {
        bearer: BearerId(random.next() as u8),
        tx_state: random.below(4) as u8,
        rx_state: random.below(4) as u8,
        tx_backlog: random.odd_number() as u32,
        rx_backlog: random.odd_number() as u32,
        rx_window: random.odd_number() as u32,
        senders: random.odd_number() as u16,
        rx_rate: random.odd_number() as u32,
        seq: random.odd_number() as u32,
    };
    Frame::BearerState(state).emit(out);
}

/// A packet outside of any session, which anybody may send. `hello` is one that was overheard.
pub fn outside(random: &mut Random, live: &Live, hello: &Hello, known: NodeId) -> Vec<u8> {
    let mut out = Vec::new();
    let stamp = random.next() as u32;
    let strangers = NodeId(1 + random.below(1 << 40) as u64);
    let node = random.pick(&[live.node, live.node, strangers, strangers, known]);
    let incarnation = Incarnation(random.odd_number());
    match random.below(8) {
        0 | 1 => {
            let cluster = if random.one_in(8) { random.next() } else { hello.cluster };
            let bearer = BearerId(random.below(20) as u8);
            Beacon { cluster, node, incarnation, bearer, solicit: random.one_in(2) }
                .emit_packet(stamp, &mut out);
        }
        2 => {
            let session = SessionId(if random.one_in(2) { random.next() as u32 } else { live.to });
            Reset { session, node, incarnation }.emit_packet(stamp, &mut out);
        }
        3 => Versions { min: 0, max: random.below(16) as u8, node }.emit_packet(stamp, &mut out),
        _ => {
            let hello = strange_hello(random, hello, node, incarnation);
            let kind = random.pick(&[PacketType::Init, PacketType::Init, PacketType::Resp]);
            let to = SessionId(random.below(64) as u32 | 1 << 16);
            hello.emit_packet(
                kind,
                if kind == PacketType::Init { SessionId(0) } else { to },
                stamp,
                &mut out,
            );
        }
    }
    out
}

fn strange_hello(random: &mut Random, hello: &Hello, node: NodeId, incarnation: Incarnation) -> Hello {
    let mut hello = Hello { node, incarnation, ..hello.clone() };
    // Another machine: one that shares its host number with the peer that it replaces is believed by design.
    hello.host = random.next() | 1;
    for _ in 0..random.below(4) {
        match random.below(9) {
            0 => hello.cluster = random.next(),
            1 => hello.session = SessionId(random.odd_number() as u32),
            2 => hello.attempt = random.odd_number() as u32,
            3 => hello.echo = Incarnation(random.odd_number()),
            4 => hello.initial_credit = (random.odd_number() as u32, random.odd_number() as u32),
            5 => hello.tolerance_ms = random.odd_number() as u32,
            6 => hello.bearer = BearerId(random.below(16) as u8),
            7 => hello.eager_bytes_max = random.odd_number() as u32,
            _ => {
                for bearer in &mut hello.bearers {
                    (bearer.mtu, bearer.window_bytes) =
                        (random.odd_number() as u16, random.odd_number() as u32);
                }
            }
        }
    }
    hello
}
