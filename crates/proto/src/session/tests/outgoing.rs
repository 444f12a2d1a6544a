//! What goes into a train, by which link it leaves, and what does not.

use super::*;
use crate::link::send::NewTrain;
use crate::link::window::AckSample;
use crate::wire::header::{FLAG_ACK_ELICITING, FLAG_ACK_NOW, FLAG_ACK_SOON, FLAG_TRAIN_LAST};
use crate::wire::{Frame, Frames, HEADER_BYTES, Header, ProbeKind};

pub(super) fn config() -> Config {
    Config::new(NodeId(1), Incarnation(1))
}

/// A packet as its receiver sees it; the payload of messages is all zeros.
pub(super) struct Packet {
    pub header: Header,
    pub bytes: Vec<u8>,
}

impl Packet {
    pub fn frames(&self) -> Vec<Frame<'_>> {
        Frames::new(&self.bytes[HEADER_BYTES..], HEADER_BYTES).map(Result::unwrap).collect()
    }

    /// What it carries of messages, without their headers.
    pub fn payload_bytes(&self) -> usize {
        let of_frame = |frame: &Frame<'_>| match frame {
            Frame::Message(_, payload) | Frame::Fragment(_, payload) => payload.len(),
            Frame::TransferFragment(_, payload) => payload.len(),
            _ => 0,
        };
        self.frames().iter().map(of_frame).sum()
    }
}

pub(super) fn packets_of(train: &Train) -> Vec<Packet> {
    let mut bytes = Vec::new();
    for piece in &train.pieces {
        match *piece {
            Piece::Head { start, len } => bytes.extend(&train.head[start as usize..][..len as usize]),
            Piece::Body { len, .. } => bytes.resize(bytes.len() + len as usize, 0),
        }
    }
    assert_eq!((bytes.len(), bytes.len().div_ceil(train.segment_bytes)), (train.bytes, train.packets));
    let packet = |bytes: &[u8]| Packet { header: Header::parse(bytes).unwrap(), bytes: bytes.to_vec() };
    bytes.chunks(train.segment_bytes).map(packet).collect()
}

/// What leaves by that link at that moment.
pub(super) fn poll_at(session: &mut Session, now: Instant, link: u8) -> Option<(Train, Vec<Packet>)> {
    let (config, mut train) = (config(), Train::new());
    let some = with_cx(&config, |cx| {
        cx.now = now;
        session.poll_transmit(cx, BearerId(link), &mut train)
    });
    some.then(|| (train.clone(), packets_of(&train)))
}

pub(super) fn poll(session: &mut Session, link: u8) -> Option<(Train, Vec<Packet>)> {
    poll_at(session, NOW, link)
}

/// A session with so many links that are up.
pub(super) fn up(links: usize) -> Session {
    session(&config(), &vec![(Active, 0); links])
}

/// A session with one link that is up and so fast that a train may have as many bytes as a datagram.
pub(super) fn fast(mtu: u16) -> Session {
    let mut session = session_with_mtu(&config(), &[(Active, 0)], mtu);
    make_fast(&mut session.links[0]);
    session
}

pub(super) fn make_fast(link: &mut Link) {
    measure(link, 512 << 10);
    assert_eq!(link.train_bytes(), limits::TRAIN_BYTES_MAX as u64);
}

/// The link has delivered so many bytes in each 1,024 us, with its window full.
pub(super) fn measure(link: &mut Link, bytes: u64) {
    measure_rounds(link, bytes, 4);
}

/// The same so many times; in the last, packets wait.
pub(super) fn measure_rounds(link: &mut Link, bytes: u64, rounds: u64) {
    for n in 1..=rounds {
        let at = Instant(NOW.0 - 100_000_000) + Duration::us(1_024).times(n);
        let sample = AckSample {
            acked_bytes: bytes,
            rx_bytes: n * bytes,
            rx_clock: at.stamp(),
            ..AckSample::default()
        };
        link.on_ack(
            at,
            &AckSample { inflight_before: 1 << 20, queueing: Duration::ms(n / rounds * 10), ..sample },
        );
    }
}

/// So many bytes are in flight on a link, in packets that carry nothing.
pub(super) fn fill_window(link: &mut Link, mut bytes: u64) {
    while bytes > 0 {
        let last_bytes = bytes.min(60_000) as u16;
        let train = NewTrain {
            count: 1,
            packet_bytes: last_bytes,
            last_bytes,
            items: vec![],
            extent: None,
            expected: Duration::ZERO,
        };
        link.sent.push(NOW, train);
        bytes -= last_bytes as u64;
    }
}

pub(super) fn send_by(session: &mut Session, class: Class, bytes: u64) {
    let message =
        Outgoing { buffer: BufferId(1), len: bytes, service: None, range: None, tag: None, returns: false };
    assert!(session.send(NOW, FlowKey { class, ..FLOW }, message));
}

/// A large message whose receiver has granted all of it as transfer 1; its announcement has left.
pub(super) fn start_transfer(session: &mut Session, class: Class, bytes: u64) {
    send_by(session, class, bytes);
    grant_announced(session, 1, bytes);
}

/// What is announced next is granted under that number.
pub(super) fn grant_announced(session: &mut Session, transfer: u32, bytes: u64) {
    let (_, packets) = poll(session, 0).expect("the announcement leaves");
    let announced = packets.iter().flat_map(Packet::frames).find_map(|frame| match frame {
        Frame::Rts(rts) => Some(rts.token),
        _ => None,
    });
    let (token, transfer) = (announced.unwrap(), crate::id::TransferId(transfer));
    session.on_cts(&wire::Cts { token, transfer, granted: bytes, done: 0 });
}

/// The pieces of transfers that these packets carry: first byte and bytes.
fn parts(packets: &[Packet]) -> Vec<(u64, usize)> {
    let part = |frame: Frame<'_>| match frame {
        Frame::TransferFragment(f, payload) => Some((f.offset, payload.len())),
        _ => None,
    };
    packets.iter().flat_map(Packet::frames).filter_map(part).collect()
}

/// The pieces of eager messages that these packets carry: number of the message, first byte and bytes.
fn pieces(packets: &[Packet]) -> Vec<(u32, u64, usize)> {
    let piece = |frame: Frame<'_>| match frame {
        Frame::Fragment(f, payload) => Some((f.message.seq, f.offset as u64, payload.len())),
        Frame::Multicast(f, payload) => Some((f.message.seq, f.offset as u64, payload.len())),
        _ => None,
    };
    packets.iter().flat_map(Packet::frames).filter_map(piece).collect()
}

/// The end of pieces that follow each other without a gap from `start` on.
fn end_of(parts: &[(u64, usize)], start: u64) -> u64 {
    parts.iter().fold(start, |next, &(offset, len)| {
        assert_eq!(offset, next);
        next + len as u64
    })
}

#[test]
fn packets_of_a_train_are_numbered_in_a_row_and_the_last_one_says_so() {
    let mut session = up(1);
    start_transfer(&mut session, Class::Normal, 1 << 20);
    for first in [1, 13] {
        let (train, packets) = poll(&mut session, 0).unwrap();
        assert_eq!((train.packets, train.segment_bytes), (12, 1_472));
        for (n, packet) in packets.iter().enumerate() {
            let last = if n == 11 { FLAG_TRAIN_LAST } else { 0 };
            let header = packet.header;
            assert_eq!(header.flags & !(FLAG_ACK_NOW | FLAG_ACK_SOON), FLAG_ACK_ELICITING | last);
            let kind = PacketType::Data;
            assert_eq!((header.kind, header.link, header.to), (kind, LinkId(0), SessionId(9)));
            assert_eq!((header.number, header.stamp), (first + n as u64, NOW.stamp()));
            assert_eq!(packet.payload_bytes(), 1_432);
        }
        let sent = &mut session.links[0].sent;
        let mut items = Vec::new();
        assert_eq!((sent.next(), sent.lose(first, |item| items.push(item))), (first + 12, 12));
        // One stretch, not twelve.
        let (token, len) = (session.sending.transfers.iter().next().unwrap().0, 12 * 1_432);
        assert_eq!(items, [Item::Extent { token, offset: (first - 1) / 12 * len, len: len as u32 }]);
    }
}

#[test]
fn a_train_is_as_long_as_its_bounds_allow_and_no_longer() {
    for mtu in [600, 1_016, 1_024, 1_472, 8_968, 32_752, 65_504] {
        for urgent in 0..40 {
            let mut session = fast(mtu);
            start_transfer(&mut session, Class::Normal, 1 << 20);
            (0..urgent).for_each(|n| send_by(&mut session, Class::Urgent, 1_000 + n));
            let mut before = session.links[0].sent.inflight_bytes();
            let (mut train, mut packets) = poll(&mut session, 0).unwrap();
            let mtu = mtu as usize;
            while parts(&packets).is_empty() {
                // A transfer begins with a whole packet, so these messages have left alone.
                assert!(urgent > 0);
                before = session.links[0].sent.inflight_bytes();
                (train, packets) = poll(&mut session, 0).unwrap();
            }
            assert_eq!(train.segment_bytes, mtu);
            assert!(train.packets * mtu - train.bytes <= mtu / 4, "the last one is as good as full");
            assert!(train.packets <= limits::TRAIN_PACKETS_MAX && train.bytes <= limits::TRAIN_BYTES_MAX);
            let no_more = train.bytes + mtu > limits::TRAIN_BYTES_MAX;
            assert!(train.packets == limits::TRAIN_PACKETS_MAX || no_more, "{} of {mtu}", train.packets);
            assert_eq!(packets.len(), train.packets);
            assert_eq!(session.links[0].sent.inflight_bytes() - before, train.bytes as u64);
            // The next one goes on where this one ends.
            let end = end_of(&parts(&packets), 0);
            let (_, packets) = poll(&mut session, 0).unwrap();
            assert!(end_of(&parts(&packets), end) > end);
        }
    }
}

#[test]
fn a_train_of_messages_is_as_long_as_its_bounds_allow_and_no_longer() {
    // Each fills a packet or leaves 8 bytes of it, which are padding but in the last one.
    for (mtu, bytes, packets, left) in
        [(1_040, 1_000, 62, 0), (1_040, 992, 62, 8), (592, 552, 64, 0), (8_968, 8_928, 7, 0)]
    {
        let mut session = fast(mtu);
        (0..100).for_each(|_| send(&mut session, bytes));
        let (train, _) = poll(&mut session, 0).unwrap();
        assert_eq!((train.packets, train.bytes), (packets, packets * mtu as usize - left));
    }
}

#[test]
fn a_packet_that_is_mostly_empty_ends_its_train() {
    // So many bytes of messages, of which one more would not fit: the packet is full to three quarters or it is not.
    for (mtu, bytes, packets) in [(1_024, 744, 2), (1_024, 720, 1), (1_024, 728, 2)] {
        let mut session = session_with_mtu(&config(), &[(Active, 0)], mtu);
        send_by(&mut session, Class::Urgent, bytes);
        send_by(&mut session, Class::Normal, 960);
        let (train, _) = poll(&mut session, 0).unwrap();
        assert_eq!(train.packets, packets, "{bytes}");
    }
}

#[test]
fn each_packet_confirms_what_it_carried_and_nothing_else() {
    let mut session = up(1);
    let other = FlowKey { from: PortId(9), ..FLOW };
    let push = |session: &mut Session, key, count| {
        (0..count).for_each(|_| {
            let message = Outgoing {
                buffer: BufferId(1),
                len: 344,
                service: None,
                range: None,
                tag: None,
                returns: false,
            };
            assert!(session.send(NOW, key, message));
        });
    };
    // The numbers of one flow begin where those of the other one end.
    push(&mut session, other, 2);
    assert_eq!(poll(&mut session, 0).unwrap().1[0].frames().len(), 2);
    push(&mut session, FLOW, 2);
    push(&mut session, other, 10);
    let (_, packets) = poll(&mut session, 0).unwrap();
    let frames: Vec<_> = packets.iter().map(|packet| packet.frames().len() as u64).collect();
    assert_eq!(frames, [4, 4, 4]);
    for (number, confirmed) in [(0, 2), (1, 6), (2, 10), (3, 14)] {
        incoming::acknowledge(&mut session, &config(), &[(number, number)]);
        assert_eq!(session.stats.messages_confirmed, confirmed);
    }
}

#[test]
fn messages_that_are_repeated_together_are_confirmed_without_those_between() {
    let mut session = up(1);
    let trains: Vec<_> = (0..3)
        .map(|_| {
            send(&mut session, 8);
            poll(&mut session, 0).unwrap().0
        })
        .collect();
    for lost in [0, 2] {
        with_cx(&config(), |cx| session.handle_sent(cx, &trains[lost], Outcome::Dropped));
    }
    let (_, packets) = poll(&mut session, 0).unwrap();
    let seqs: Vec<_> =
        packets[0].frames().iter().map(|f| if let Frame::Message(m, _) = f { m.seq } else { 9 }).collect();
    assert_eq!((packets.len(), seqs), (1, vec![0, 2]));
    incoming::acknowledge(&mut session, &config(), &[(3, 3)]);
    assert_eq!(session.stats.messages_confirmed, 1);
    incoming::acknowledge(&mut session, &config(), &[(1, 1)]);
    assert_eq!(session.stats.messages_confirmed, 3);
}

#[test]
fn what_a_lost_packet_of_a_transfer_carried_goes_out_again_and_nothing_else() {
    let total = 70_000;
    for lost in 2..40 {
        let mut session = fast(1_472);
        start_transfer(&mut session, Class::Normal, total);
        // The last part is shorter than the others, and none shares a packet with the message.
        send_by(&mut session, Class::Urgent, 700);
        let mut sent = Vec::new();
        while let Some((_, packets)) = poll(&mut session, 0) {
            sent.extend(packets);
        }
        let all = parts(&sent);
        let end = end_of(&all, 0);
        // The announcement was packet 0, the message packet 1.
        assert_eq!((end, sent.len(), all.len(), all[0].1, all[48].1), (total, 50, 49, 1_432, 1_264));
        incoming::acknowledge(&mut session, &config(), &[(lost + 1, 50), (0, lost - 1)]);
        assert_eq!(session.stats.messages_confirmed, 1, "the urgent one");
        let (_, again) = poll(&mut session, 0).unwrap();
        assert_eq!(parts(&again), [all[lost as usize - 2]]);
        incoming::acknowledge(&mut session, &config(), &[(51, 51)]);
        assert_eq!((session.stats.messages_confirmed, session.sizes()[2]), (2, 0));
    }
}

#[test]
fn the_pieces_of_eager_messages_follow_each_other_whatever_packets_take() {
    let range = crate::address::ServiceRange::new(1, 2, 3);
    for (mtu, range, tag) in [
        (1_016, None, None),
        (1_472, None, Some(5)),
        (1_472, Some(range), Some(5)),
        (8_968, Some(range), None),
        (65_504, None, None),
    ] {
        let mut session = fast(mtu);
        let lens = [65_536, 60_001, 3_000, 64_000, 65_536, 7];
        for len in lens {
            let message = Outgoing { buffer: BufferId(1), len, service: None, range, tag, returns: false };
            assert!(session.send(NOW, FLOW, message));
        }
        let mut sent = Vec::new();
        while let Some((train, packets)) = poll(&mut session, 0) {
            assert!(train.bytes <= limits::TRAIN_BYTES_MAX && train.segment_bytes <= mtu as usize);
            assert!(packets.iter().all(|packet| wire::verify(&packet.bytes).is_ok()));
            sent.extend(packets);
        }
        for (seq, len) in lens.into_iter().enumerate() {
            let all = pieces(&sent).into_iter().filter(|piece| piece.0 == seq as u32);
            let end = end_of(&all.map(|(_, offset, len)| (offset, len)).collect::<Vec<_>>(), 0);
            // What fits into a packet is no piece.
            assert!(end == len || end == 0 && len < mtu as u64, "message {seq} in packets of {mtu}: {end}");
        }
        let last = session.links[0].sent.next() - 1;
        incoming::acknowledge(&mut session, &config(), &[(0, last)]);
        assert_eq!(session.stats.messages_confirmed, lens.len() as u64);
    }
}

#[test]
fn what_a_lost_packet_of_an_eager_message_carried_goes_out_again_and_nothing_else() {
    // Packet 44 is the first of the second train; in it the rest of one message meets the next.
    for lost in 0..90 {
        let mut session = fast(1_472);
        (0..2).for_each(|_| send_by(&mut session, Class::Normal, 65_536));
        let mut sent = Vec::new();
        while let Some((_, packets)) = poll(&mut session, 0) {
            sent.extend(packets);
        }
        let last = sent.len() as u64 - 1;
        assert_eq!(last, 92);
        let others: &[(u64, u64)] = if lost == 0 { &[(1, last)] } else { &[(lost + 1, last), (0, lost - 1)] };
        incoming::acknowledge(&mut session, &config(), others);
        let (_, again) = poll(&mut session, 0).unwrap();
        assert_eq!(pieces(&again), pieces(&sent[lost as usize..][..1]), "packet {lost}");
        incoming::acknowledge(&mut session, &config(), &[(last + 1, last + 1)]);
        assert_eq!(session.stats.messages_confirmed, 2);
    }
}

#[test]
fn the_packets_of_an_eager_message_are_one_stretch_in_the_books_and_keep_others_awake() {
    let mut session = fast(1_472);
    send_by(&mut session, Class::Normal, 65_536);
    let (train, _) = poll_at(&mut session, NOW + Duration::s(1), 0).unwrap();
    assert_eq!((train.packets, session.prompt_at), (44, NOW + Duration::s(1)));
    let mut items = Vec::new();
    session.links[0].sent.lose(0, |item| items.push(item));
    let piece = |offset, len| Item::Fragment { flow: 0, seq: 0, offset, len };
    assert_eq!(items, [piece(0, 1_424), piece(1_424, 43 * 1_424)]);
}

#[test]
fn a_message_that_is_as_good_as_over_leaves_the_stretch_to_the_next_one() {
    // A message of four packets in pieces and the next one in a piece and a stretch; one of five in a stretch, the next in pieces.
    for (packets, seqs) in
        [(4, [0, 0, 0, 0, 1, 1].to_vec()), (5, [[0].to_vec(), vec![1; 39], vec![0]].concat())]
    {
        let mut session = fast(1_472);
        send_by(&mut session, Class::Normal, packets * 1_424);
        send_by(&mut session, Class::Normal, 65_536);
        assert_eq!(poll(&mut session, 0).unwrap().0.packets, 44);
        let mut items = Vec::new();
        session.links[0].sent.lose(0, |item| items.push(item));
        let seq = |item: &Item| if let Item::Fragment { seq, .. } = item { *seq } else { 9 };
        assert_eq!(items.iter().map(seq).collect::<Vec<_>>(), seqs);
    }
}

#[test]
fn a_train_of_eager_messages_has_what_its_link_moves_in_its_span_and_not_more() {
    let mut session = unequal::rates(&[1_000]);
    (0..3).for_each(|_| send_by(&mut session, Class::Normal, 20_000));
    let most = session.links[0].train_bytes() as usize;
    assert!((30_000..32_000).contains(&most));
    let (train, _) = poll(&mut session, 0).unwrap();
    assert!((most - 1_472..most + 1_472).contains(&train.bytes), "{} of {most}", train.bytes);
}

#[test]
fn the_peer_is_asked_to_acknowledge_at_once_four_times_per_window() {
    let mut session = up(1);
    assert_eq!(session.links[0].window.ack_every_bytes(), 16_384);
    (0..100).for_each(|_| send(&mut session, 984));
    let (mut unasked, mut sent) = (0, 0);
    while let Some((train, packets)) = poll(&mut session, 0) {
        (unasked, sent) = (unasked + train.bytes, sent + train.bytes);
        let flags = packets.last().unwrap().header.flags & !(FLAG_ACK_ELICITING | FLAG_TRAIN_LAST);
        assert_eq!(flags == FLAG_ACK_NOW, unasked >= 16_384, "{unasked} of {sent}");
        unasked = if flags == FLAG_ACK_NOW { 0 } else { unasked };
    }
    assert!(sent >= 65_536 && !session.schedule.is_empty());
}

#[test]
fn the_peer_is_not_asked_to_acknowledge_at_once_while_the_window_has_room_for_what_waits() {
    for (fits, asks) in [(true, FLAG_ACK_SOON), (false, FLAG_ACK_NOW)] {
        let mut session = fast(1_472);
        let link = &mut session.links[0];
        link.unasked_bytes = link.window.ack_every_bytes();
        let messages = if fits { 2 } else { link.room() / 65_536 + 1 };
        assert!(link.room() > 2 * 65_536);
        (0..messages).for_each(|_| send_by(&mut session, Class::Normal, 65_536));
        let (train, packets) = poll(&mut session, 0).unwrap();
        assert_eq!(train.packets, 44, "and more waits");
        assert_eq!(
            packets.last().unwrap().header.flags,
            FLAG_ACK_ELICITING | FLAG_TRAIN_LAST | asks,
            "{fits}"
        );
    }
}

#[test]
fn the_peer_may_acknowledge_by_what_leaves_next_while_nothing_waits_to_be_sent() {
    let mut session = up(1);
    let asks_by = |session: &mut Session| {
        send(session, 984);
        let (train, packets) = poll(session, 0).unwrap();
        assert_eq!((train.bytes, train.packets), (1_024, 1));
        // Answers do not count.
        answer(&mut session.links[0]);
        assert_eq!(poll(session, 0).unwrap().1[0].header.flags, FLAG_TRAIN_LAST);
        packets[0].header.flags & !(FLAG_ACK_ELICITING | FLAG_TRAIN_LAST)
    };
    let asked: Vec<u8> = (0..20).map(|_| asks_by(&mut session)).collect();
    assert_eq!(asked, [[0; 15].as_slice(), &[FLAG_ACK_SOON; 5]].concat());
    // What the peer has acknowledged by itself need not be asked for: half of a quarter is left.
    incoming::acknowledge(&mut session, &config(), &[(0, 23)]);
    assert_eq!(session.links[0].sent.inflight_bytes(), 8 * 1_024);
    let every = session.links[0].window.ack_every_bytes() as usize / 1_024;
    let asked: Vec<u8> = (0..every).map(|_| asks_by(&mut session)).collect();
    assert_eq!(asked, [vec![0; every - 9], vec![FLAG_ACK_SOON; 9]].concat());
}

/// An answer to a question of the peer waits for its way out.
pub(super) fn answer(link: &mut Link) {
    let (kind, about, carrier) = (ProbeKind::Liveness, link.spec.id, true);
    let (size, id, last_rx, next_tx, last_rx_age, stall_us) = (0, 1, 0, 0, 0, 0);
    let reply = wire::ProbeReply { kind, carrier, about, size, id, last_rx, next_tx, last_rx_age, stall_us };
    link.replies.push(reply);
}
