//! What is emitted is parsed as the same value, for values of all shapes.

use arrayvec::ArrayString;
use polyrail_proto::address::{MediaAddress, Scope, ServiceAddress, ServiceRange};
use polyrail_proto::id::{BearerId, Incarnation, LinkId, NodeId, PortId, SessionId, TransferId};
use polyrail_proto::wire::frame::AckRanges;
use polyrail_proto::wire::frame::{ACK_RANGES_MAX, BINDINGS_MAX};
use polyrail_proto::wire::handshake::{BEARERS_MAX, NAME_BYTES_MAX};
use polyrail_proto::wire::*;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// A run's few payloads live as long as the process.
fn payload(bytes_max: usize) -> impl Strategy<Value = &'static [u8]> {
    vec(any::<u8>(), 0..=bytes_max).prop_map(|bytes| &*bytes.leak())
}

fn node() -> impl Strategy<Value = NodeId> {
    (1..=u64::MAX).prop_map(NodeId)
}

prop_compose! {
    fn message()(
        class in 0..=3u8, from: u32, to: u32, seq: u32, service: Option<(u32, u32)>, tag: Option<u64>, notify: bool,
    ) -> Message {
        let service = service.map(|(kind, instance)| ServiceAddress::new(kind, instance));
        Message { class, from: PortId(from), to: PortId(to), seq, service, tag, notify }
    }
}

fn fragment() -> impl Strategy<Value = Frame<'static>> {
    let offset = prop_oneof![Just(0), 0..=u32::MAX - 2_000];
    (message(), offset, payload(1_500), 0..500u32).prop_map(|(message, offset, payload, beyond)| {
        let total = offset + payload.len() as u32 + beyond;
        let later = Message { service: None, tag: None, notify: false, ..message };
        let message = if offset == 0 { message } else { later };
        Frame::Fragment(Fragment { message, total, offset }, payload)
    })
}

/// Ranges that fit the frame: each gap and length in one pair.
fn ack() -> impl Strategy<Value = Ack> {
    let step = || prop_oneof![1..20u64, 1..=65_535u64];
    let steps = vec((step(), step()), 0..=ACK_RANGES_MAX);
    let numbers = (any::<u32>(), any::<u32>(), any::<u64>(), any::<u32>(), any::<u32>(), any::<u32>());
    (any::<u16>(), any::<u8>(), 0..1u64 << 33, steps, numbers).prop_map(
        |(link, batch, top, steps, numbers)| {
            let largest = PACKET_NUMBER_MAX.min(top + (1 << 24));
            let mut low = largest - top.min(u64::from(u32::MAX)).min(largest - (1 << 23));
            let mut ranges = AckRanges::from_iter([(low, largest)]);
            for (gap, received) in steps {
                let to = low - gap - 1;
                low = to - (received - 1);
                ranges.push((low, to));
            }
            let (stamp_echo, delay, rx_bytes, rx_clock, ce_count, queueing) = numbers;
            let link = LinkId(link);
            Ack {
                link,
                rx_batch_log2: batch,
                largest,
                stamp_echo,
                delay,
                rx_bytes,
                rx_clock,
                ce_count,
                queueing,
                ranges,
            }
        },
    )
}

prop_compose! {
    fn binding()(publish: bool, kind: u32, a: u32, b: u32, port: u32, key: u64, weight: u8, exclusive: bool) -> Binding {
        let op = if publish { BindingOp::Publish } else { BindingOp::Withdraw };
        let range = ServiceRange::new(kind, a.min(b), a.max(b));
        Binding { op, range, port: PortId(port), key, scope: Scope::Cluster, weight, exclusive }
    }
}

prop_compose! {
    fn bearer_state()(
        bearer: u8, states in (0..=3u8, 0..=3u8), tx_backlog: u32, rx_backlog: u32, rx_window: u32, senders: u16,
        rx_rate: u32, seq: u32,
    ) -> BearerState {
        let (bearer, (tx_state, rx_state)) = (BearerId(bearer), states);
        BearerState { bearer, tx_state, rx_state, tx_backlog, rx_backlog, rx_window, senders, rx_rate, seq }
    }
}

prop_compose! {
    fn refuse()(
        control: u32, from: u32, to: u32, seq: u32, class in 0..=3u8, retry_after_us: u32,
        reason in select(vec![RefuseReason::NoRoom, RefuseReason::NoPort, RefuseReason::TooLarge]),
    ) -> Refuse {
        Refuse { control, from: PortId(from), to: PortId(to), seq, class, reason, retry_after_us }
    }
}

fn probe_kind() -> impl Strategy<Value = ProbeKind> {
    use ProbeKind::*;
    select(vec![Liveness, Indirect, Mtu, State, Join])
}

prop_compose! {
    fn probe_reply()(
        id: u64, about: u16, kind in probe_kind(), last_rx in 0..=PACKET_NUMBER_MAX, last_rx_age: u32,
        next_tx in 0..=PACKET_NUMBER_MAX + 1, carrier: bool, stall_us: u32, size: u16,
    ) -> ProbeReply {
        ProbeReply { id, about: LinkId(about), kind, last_rx, last_rx_age, next_tx, carrier, stall_us, size }
    }
}

prop_compose! {
    fn connect()(
        control: u32, number in 0..1u32 << 30, from in 1..1u32 << 31, to in 1..1u32 << 31, class in 0..=3u8,
        stream: bool, credit: (u64, u32), service: Option<(u32, u32)>,
    ) -> Connect {
        let (end, from, to) = (PortId::accepting_end(number), PortId(from), PortId(to));
        let service = service.map(|(kind, instance)| ServiceAddress::new(kind, instance));
        Connect { control, end, from, to, class, stream, credit, service }
    }
}

prop_compose! {
    fn accept()(
        control: u32, number in 0..1u32 << 30, port in 1..1u32 << 31, refused: bool, credit: (u64, u32),
        reason in select(vec![RefusedConnect::Backlog, RefusedConnect::NobodyListens, RefusedConnect::NotAllowed]),
    ) -> Accept {
        let answer = if refused { Err(reason) } else { Ok(PortId(port)) };
        Accept { control, end: PortId::accepting_end(number).far_end(), answer, credit }
    }
}

prop_compose! {
    fn shutdown()(control: u32, end in 1u32 << 31..=u32::MAX, messages: u32, sent_all: bool, deaf: bool, abort: bool) -> Shutdown {
        Shutdown { control, end: PortId(end), messages, sent_all, deaf, abort }
    }
}

prop_compose! {
    fn name_digest()(
        ids in any::<(u32, u64, u64, u64)>(), origin in node(),
        says in select(vec![DigestSays::State, DigestSays::Anew, DigestSays::Again]),
    ) -> NameDigest {
        NameDigest { control: ids.0, says, origin, incarnation: Incarnation(ids.1), log_seq: ids.2, hash: ids.3 }
    }
}

prop_compose! {
    fn bearer_set()(
        control: u32, number in 0..16u8, gone: bool, mtu: u16, window_bytes: u32, address in vec(any::<u8>(), 0..=24),
    ) -> BearerSet {
        let address = MediaAddress::from_bytes(&address).expect("24 bytes at the most");
        let bearer = BearerId(number);
        let there = BearerAddress { bearer, mtu, window_bytes, address };
        let nothing = BearerAddress { bearer, mtu: 0, window_bytes: 0, address: MediaAddress::default() };
        BearerSet { control, bearer: if gone { nothing } else { there }, gone }
    }
}

prop_compose! {
    fn consumed()(
        control: u32, from: u32, to: u32, seq: u32, class in 0..=3u8,
        rest in select(vec![None, Some(Rejected::PortClosed), Some(Rejected::OwnerDied), Some(Rejected::ByOwner)]),
    ) -> Consumed {
        Consumed { control, from: PortId(from), to: PortId(to), class, seq, rest }
    }
}

prop_compose! {
    fn multicast()(
        from: u32, seq: u32, class in 0..=3u8, tag: Option<u64>, range: (u32, u32, u32),
        offset in prop_oneof![Just(0), 0..=u32::MAX - 2_000], payload in payload(1_500), beyond in 0..500u32,
    ) -> Frame<'static> {
        let total = offset + payload.len() as u32 + beyond;
        let (kind, a, b) = range;
        let (from, to, tag) = (PortId(from), PortId::MULTICAST, tag.filter(|_| offset == 0));
        let message = Message { class, from, to, seq, service: None, tag, notify: false };
        let range = ServiceRange::new(kind, a.min(b), a.max(b));
        Frame::Multicast(Multicast { message, range, total, offset }, payload)
    }
}

fn frame() -> impl Strategy<Value = Frame<'static>> {
    let size = 0..=MESSAGE_BYTES_MAX;
    let status = select(vec![LinkStatus::Active, LinkStatus::Standby, LinkStatus::Drain, LinkStatus::Down]);
    prop_oneof![
        (message(), payload(1_500)).prop_map(|(message, payload)| Frame::Message(message, payload)),
        fragment(),
        (any::<u32>(), 0..=MESSAGE_BYTES_MAX - 1_500, payload(1_500)).prop_map(
            |(transfer, offset, payload)| {
                Frame::TransferFragment(TransferFragment { transfer: TransferId(transfer), offset }, payload)
            }
        ),
        ack().prop_map(Frame::Ack),
        bearer_state().prop_map(Frame::BearerState),
        any::<(u32, u32, u64)>().prop_map(|(port, messages, bytes)| Frame::Credit(Credit {
            port: PortId(port),
            messages,
            bytes
        })),
        refuse().prop_map(Frame::Refuse),
        (message(), any::<u32>(), size.clone()).prop_map(|(message, token, total)| Frame::Rts(Rts {
            message,
            token,
            total
        })),
        (any::<(u32, u32)>(), size.clone(), size).prop_map(|((token, transfer), granted, done)| {
            Frame::Cts(Cts { token, transfer: TransferId(transfer), granted, done })
        }),
        any::<(u32, u32)>().prop_map(|(control, token)| Frame::TransferAbort(control, token)),
        any::<(u32, u32)>().prop_map(|(control, port)| Frame::PortClosed(control, PortId(port))),
        (any::<(u64, u16, u64, u16)>(), probe_kind()).prop_map(|((id, about, target, size), kind)| {
            Frame::Probe(Probe { id, about: LinkId(about), kind, target, size })
        }),
        probe_reply().prop_map(Frame::ProbeReply),
        (any::<(u32, u16)>(), status).prop_map(|((control, link), status)| {
            Frame::LinkSet(LinkSet { control, link: LinkId(link), status, number: control ^ 5 })
        }),
        connect().prop_map(Frame::Connect),
        accept().prop_map(Frame::Accept),
        shutdown().prop_map(Frame::Shutdown),
        name_digest().prop_map(Frame::NameDigest),
        consumed().prop_map(Frame::Consumed),
        bearer_set().prop_map(Frame::BearerSet),
        multicast(),
        any::<u16>().prop_map(|reason| Frame::Close(Close { reason })),
        (0x40..0x80u8).prop_map(Frame::Skipped),
    ]
}

prop_compose! {
    fn header()(flags in 0..0x40u8, link: u16, to: u32, number in 0..=PACKET_NUMBER_MAX, stamp: u32, check: u32) -> Header {
        Header { kind: PacketType::Data, flags, link: LinkId(link), to: SessionId(to), number, stamp, check }
    }
}

prop_compose! {
    fn bearer()(bearer in 0..BEARERS_MAX as u8, mtu: u16, window_bytes: u32, address in vec(any::<u8>(), 0..=24)) -> BearerAddress {
        let address = MediaAddress::from_bytes(&address).expect("at most 24 bytes");
        BearerAddress { bearer: BearerId(bearer), mtu, window_bytes, address }
    }
}

/// Text of at most `NAME_BYTES_MAX` bytes.
fn name() -> impl Strategy<Value = ArrayString<NAME_BYTES_MAX>> {
    vec(any::<char>(), 0..70).prop_map(|chars| {
        let mut name = ArrayString::new();
        for c in chars.into_iter().filter(|c| !c.is_control()) {
            if name.try_push(c).is_err() {
                break;
            }
        }
        name
    })
}

prop_compose! {
    fn hello()(
        ids in any::<(u64, u64, u64, u64, u32, u32)>(), node in node(), versions in (0..8u8, 8..16u8),
        bearer_id in 0..BEARERS_MAX as u8, sizes in any::<(u32, (u32, u32), u32)>(), name in name(),
        bearers in vec(bearer(), 0..=BEARERS_MAX),
    ) -> Hello {
        Hello {
            cluster: ids.0,
            node,
            incarnation: Incarnation(ids.1),
            session: SessionId(ids.4),
            attempt: ids.5,
            echo: Incarnation(ids.2),
            versions,
            features: ids.3,
            bearer: BearerId(bearer_id),
            eager_bytes_max: sizes.0,
            initial_credit: sizes.1,
            tolerance_ms: sizes.2,
            host: ids.3.rotate_left(7),
            name,
            bearers: bearers.into_iter().collect(),
        }
    }
}

fn emitted(emit: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    emit(&mut out);
    out
}

proptest! {
    #[test]
    fn headers(header in header()) {
        prop_assert_eq!(Header::parse(&emitted(|out| header.emit(out))), Ok(header));
    }

    #[test]
    fn single_frames(frame in frame()) {
        let bytes = emitted(|out| frame.emit(out));
        prop_assert_eq!(bytes.len(), frame.emitted_bytes());
        prop_assert_eq!(bytes.len() % 8, 0);
        prop_assert_eq!(Frames::new(&bytes, HEADER_BYTES).collect::<Vec<_>>(), [Ok(frame)]);
    }

    #[test]
    fn packets_of_many_frames(header in header(), frames in vec(frame(), 0..12)) {
        let header = Header { flags: header.flags & !FLAG_SEALED, ..header };
        let mut packet = emitted(|out| header.emit(out));
        frames.iter().for_each(|frame| frame.emit(&mut packet));
        finish(&mut packet).unwrap();
        let received = verify(&packet).unwrap();
        prop_assert_eq!(Header { check: header.check, ..received }, header);
        let parsed: Result<Vec<_>, _> = Frames::new(&packet[HEADER_BYTES..], HEADER_BYTES).collect();
        prop_assert_eq!(parsed, Ok(frames));
    }

    #[test]
    fn bindings(ids in any::<(u32, u64, u64)>(), origin in node(), records in vec(binding(), 1..=BINDINGS_MAX)) {
        let (control, log_seq, incarnation) = (ids.0, ids.1, Incarnation(ids.2));
        let bytes = emitted(|out| Bindings::emit(control, origin, incarnation, log_seq, &records, out));
        prop_assert_eq!(bytes.len(), Bindings::emitted_bytes(records.len()));
        let frame = Frames::new(&bytes, HEADER_BYTES).next().unwrap().unwrap();
        prop_assert_eq!(emitted(|out| frame.emit(out)), bytes.clone());
        let Frame::Bindings(parsed) = frame else { panic!("{frame}") };
        prop_assert_eq!(parsed, Bindings { control, origin, incarnation, log_seq, records: &bytes[32..] });
        prop_assert_eq!(parsed.iter().collect::<Vec<_>>(), records);
    }

    /// Whatever the gaps, an ACK on the wire claims nothing that was not claimed, and the top of what was.
    #[test]
    fn acks_with_wide_gaps(
        top in 1u64 << 40..1 << 47,
        steps in vec((prop_oneof![1..5u64, 1..400_000u64], prop_oneof![1..5u64, 1..400_000u64]), 0..=ACK_RANGES_MAX),
        first in prop_oneof![0..100u64, 0..1u64 << 34],
        template in ack(),
    ) {
        let mut low = top - first;
        let mut ranges = AckRanges::from_iter([(low, top)]);
        for (gap, received) in steps {
            let to = low - gap - 1;
            low = to - (received - 1);
            ranges.push((low, to));
        }
        let ack = Ack { largest: top, ranges, ..template };
        let bytes = emitted(|out| ack.emit(out));
        prop_assert_eq!(bytes.len(), ack.emitted_bytes());
        let frame = Frames::new(&bytes, HEADER_BYTES).next().unwrap().unwrap();
        let Frame::Ack(parsed) = frame else { panic!("{frame}") };
        prop_assert_eq!(parsed.ranges[0].1, top);
        let last = parsed.ranges.len() - 1;
        prop_assert_eq!(&parsed.ranges[..last], &ack.ranges[..last]);
        prop_assert_eq!(parsed.ranges[last].1, ack.ranges[last].1);
        prop_assert!(parsed.ranges[last].0 >= ack.ranges[last].0);
    }

    #[test]
    fn hellos(hello in hello(), to: u32, stamp: u32, init: bool) {
        let kind = if init { PacketType::Init } else { PacketType::Resp };
        let packet = emitted(|out| hello.emit_packet(kind, SessionId(to), stamp, out));
        prop_assert_eq!(packet.len(), hello.emitted_bytes());
        let header = verify(&packet).unwrap();
        prop_assert_eq!((header.kind, header.to.0, header.stamp), (kind, to, stamp));
        prop_assert_eq!(Hello::parse(&packet[HEADER_BYTES..]), Ok(hello));
    }

    #[test]
    fn notices(ids in any::<(u64, u64, u8, bool, u32)>(), node in node(), min in 0..16u8, more in 0..16u8, stamp: u32) {
        let (bearer, incarnation) = (BearerId(ids.2), Incarnation(ids.1));
        let beacon = Beacon { cluster: ids.0, node, incarnation, bearer, solicit: ids.3 };
        let versions = Versions { min, max: min + more, node };
        let reset = Reset { session: SessionId(ids.4), node, incarnation };
        let packets = [
            emitted(|out| beacon.emit_packet(stamp, out)),
            emitted(|out| versions.emit_packet(stamp, out)),
            emitted(|out| reset.emit_packet(stamp, out)),
        ];
        prop_assert!(packets.iter().all(|packet| verify(packet).is_ok_and(|header| header.stamp == stamp)));
        prop_assert_eq!(Beacon::parse(&packets[0][HEADER_BYTES..]), Ok(beacon));
        prop_assert_eq!(Versions::parse(&packets[1][HEADER_BYTES..]), Ok(versions));
        prop_assert_eq!(Reset::parse(&packets[2][HEADER_BYTES..]), Ok(reset));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..200)) {
        let _ = describe(&bytes);
        let _ = Frames::new(&bytes, HEADER_BYTES).count();
        let _ = (Hello::parse(&bytes), Beacon::parse(&bytes), Versions::parse(&bytes), Reset::parse(&bytes));
    }
}
