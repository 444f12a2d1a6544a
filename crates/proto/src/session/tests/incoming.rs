//! What acknowledgements, frames and time-outs do to a session.

use super::*;
use crate::link::send::NewTrain;
use crate::session::receive::Taken;
use crate::wire::Frame;

/// Enters `packets` packets of `bytes` each as sent by the first link.
pub(super) fn sent(session: &mut Session, packets: u8, bytes: u16) {
    let link = &mut session.links[0];
    let train = NewTrain {
        count: packets,
        packet_bytes: bytes,
        last_bytes: bytes,
        items: vec![],
        extent: None,
        expected: Duration::ZERO,
    };
    link.sent.push(NOW, train);
}

/// The peer acknowledges `ranges` of the first link, after 3 ms of which it held the acknowledgement for 1 ms.
pub(super) fn acknowledge(session: &mut Session, config: &Config, ranges: &[(u64, u64)]) {
    acknowledge_queued(session, config, ranges, Duration::ZERO);
}

/// The same, and says how long the packets had to queue.
fn acknowledge_queued(session: &mut Session, config: &Config, ranges: &[(u64, u64)], queueing: Duration) {
    let ack = ack(NOW, ranges, queueing);
    with_cx(config, |cx| session.on_ack(cx, &ack)).unwrap();
}

/// The same at another moment.
pub(super) fn acknowledge_at(session: &mut Session, config: &Config, now: Instant, ranges: &[(u64, u64)]) {
    let ack = ack(now, ranges, Duration::ZERO);
    with_cx(config, |cx| {
        cx.now = now;
        session.on_ack(cx, &ack)
    })
    .unwrap();
}

pub(super) fn ack(now: Instant, ranges: &[(u64, u64)], queueing: Duration) -> wire::Ack {
    wire::Ack {
        link: LinkId(0),
        rx_batch_log2: 0,
        largest: ranges[0].1,
        stamp_echo: Instant(now.0 - 3_000_000).stamp(),
        delay: 1_000_000 / 256,
        rx_bytes: 0,
        rx_clock: 0,
        ce_count: 0,
        queueing: (queueing.0 / 256) as u32,
        ranges: ranges.iter().copied().collect(),
    }
}

#[test]
fn only_an_acknowledgement_that_tells_something_proves_that_the_link_lives() {
    let config = Config::new(NodeId(1), Incarnation(1));
    let mut session = session(&config, &[(Active, 0), (Active, 0)]);
    let mut proves = |ranges: &[(u64, u64)], before: &dyn Fn(&mut Session)| {
        session.last_proof_at = Instant::ZERO;
        session.links[0].pto_count = 1;
        session.links[0].state.handle(NOW, LinkEvent::Silence);
        before(&mut session);
        acknowledge(&mut session, &config, ranges);
        let link = &session.links[0];
        let proved = link.state.usable();
        assert_eq!((link.pto_count == 0, session.last_proof_at == NOW), (proved, proved));
        (proved, link.stats.packets_lost_spuriously)
    };
    assert_eq!(proves(&[(0, 0)], &|s| sent(s, 6, 1_000)), (true, 0));
    assert_eq!(proves(&[(0, 0)], &|_| {}), (false, 0));
    assert_eq!(
        proves(&[(1, 1)], &|s| _ = s.links[0].sent.lose(0, |_| {})),
        (true, 1),
        "late, but it arrived"
    );
    assert_eq!(proves(&[(0, 1)], &|_| {}), (false, 1));
    assert_eq!(proves(&[(0, 3)], &|_| {}), (true, 3));
}

#[test]
fn a_round_trip_is_measured_by_the_first_word_of_the_largest_without_what_it_was_held() {
    let config = Config::new(NodeId(1), Incarnation(1));
    let mut session = session(&config, &[(Active, 0)]);
    sent(&mut session, 6, 1_000);
    acknowledge(&mut session, &config, &[(3, 3)]);
    // Stamps count 256 ns.
    assert_eq!(session.links[0].rtt.latest(), Duration::ns((11_719 - 3_906) * 256));
    session.links[0].rtt = crate::link::rtt::Rtt::new();
    acknowledge(&mut session, &config, &[(2, 3)]);
    assert!(!session.links[0].rtt.has_sample());
}

#[test]
fn only_a_loss_that_was_none_makes_a_link_bear_more_disorder() {
    let config = Config::new(NodeId(1), Incarnation(1));
    let mut session = session(&config, &[(Active, 0)]);
    for n in 0..5 {
        sent(&mut session, 1, 1_000);
        acknowledge(&mut session, &config, &[(n, n)]);
    }
    sent(&mut session, 5, 1_000);
    acknowledge(&mut session, &config, &[(8, 8)]);
    assert_eq!(session.links[0].stats.packets_lost, 1, "three behind");
    assert!(!session.links[0].losses.is_none());
    acknowledge(&mut session, &config, &[(5, 9)]);
    assert!(session.links[0].losses.is_none());
    sent(&mut session, 7, 1_000);
    acknowledge(&mut session, &config, &[(15, 15)]);
    assert_eq!(session.links[0].stats.packets_lost, 1, "five behind");
    acknowledge(&mut session, &config, &[(16, 16)]);
    assert_eq!(session.links[0].stats.packets_lost, 2, "six behind");
}

#[test]
fn how_often_a_link_loses_is_told_by_what_is_lost_and_by_what_arrives() {
    let config = Config::new(NodeId(1), Incarnation(1));
    let mut session = session(&config, &[(Active, 0)]);
    let mut cost = |ranges: &[(u64, u64)]| {
        sent(&mut session, 5, 1_000);
        acknowledge(&mut session, &config, ranges);
        // 64 that were not lost are taken for granted.
        session.links[0].losses.delay(1, Duration(69 * 70 * 74 * 79)).0
    };
    assert_eq!(cost(&[(0, 4)]), 0);
    // The sixth and the seventh of ten, then 15 in all.
    assert_eq!(cost(&[(7, 9)]), 2 * 69 * 70 * 79);
    assert_eq!(cost(&[(7, 14)]), 2 * 69 * 70 * 74);
}

#[test]
fn a_link_with_room_for_a_train_is_held_back_by_the_application_unless_its_queue_is_full() {
    let config = Config::new(NodeId(1), Incarnation(1));
    // Its window starts with 64 packets of 1 KiB, its trains have 16 of them.
    for (packets, blocked, grows) in
        [(47, false, false), (47, true, true), (48, false, true), (31, true, false)]
    {
        let mut session = session(&config, &[(Active, 0)]);
        let before = session.links[0].window.cwnd();
        assert_eq!((before, session.links[0].train_bytes()), (64 << 10, 16 << 10));
        session.links[0].blocked = blocked;
        sent(&mut session, packets, 1_024);
        acknowledge(&mut session, &config, &[(0, 1)]);
        let expected = if grows { before + 2_048 } else { before };
        assert_eq!(session.links[0].window.cwnd(), expected, "{packets} {blocked}");
    }
    let mut session = session(&config, &[(Active, 0)]);
    sent(&mut session, 60, 1_024);
    acknowledge_queued(&mut session, &config, &[(0, 1)], Duration::ms(30));
    assert_eq!(session.links[0].window.cwnd(), 64 << 10, "nor does it grow while its packets queue");
}

#[test]
fn a_path_that_takes_only_small_packets_any_more_is_noticed() {
    let config = Config::new(NodeId(1), Incarnation(1));
    for (large, noticed) in [(8_000, true), (1_000, false)] {
        let mut session = session(&config, &[(Active, 0)]);
        session.links[0].mtu = crate::link::mtu::Mtu::new(1_200, 8_968);
        session.links[0].mtu.on_probe_acked(NOW, 8_968);
        for round in 0..6_u64 {
            assert_eq!(session.links[0].mtu.current(), 8_968);
            sent(&mut session, 2, large);
            sent(&mut session, 9, 100);
            // Five of the small ones are told of by the next acknowledgement.
            let ranges = [
                (round * 11 + 2, round * 11 + 5),
                ((round * 11).saturating_sub(5), (round * 11).saturating_sub(1)),
            ];
            acknowledge(&mut session, &config, &ranges[..1 + (round > 0) as usize]);
        }
        assert_eq!(session.links[0].mtu.current() == 1_200, noticed);
        assert_eq!(session.links[0].stats.packets_lost, 12);
    }
}

#[test]
fn credit_whose_frame_was_lost_is_told_again() {
    let config = Config::new(NodeId(1), Incarnation(1));
    let mut session = session(&config, &[(Active, 0)]);
    let (port, other) = (PortId(5), PortId(6));
    for port in [port, other] {
        let key = session.receiving.credits.insert(initial_given(port)).unwrap();
        session.receiving.credit_of.insert(port, key);
    }
    session.repeat(&mut vec![Item::Credit { port }, Item::Credit { port: PortId(7) }], 0);
    assert_eq!(session.receiving.untold.len(), 1);
    let dirty = [port, other].map(|port| session.given_credit(port).unwrap().dirty);
    assert_eq!(dirty, [true, false]);
}

/// A session that receives: the frames that `call` hands in, and what the application was told and what was dropped.
fn receive<R>(
    session: &mut Session,
    call: impl FnOnce(&mut Session, &mut Cx<'_>) -> R,
) -> (R, Vec<Event>, Drops) {
    let config = &Config::new(NodeId(1), Incarnation(1));
    let (mut events, mut drops, mut faults) = (VecDeque::new(), Drops::default(), BTreeMap::new());
    let store = &mut Memory(Some(BufferId(7)));
    let (events_of, drops_of, faults) = (&mut events, &mut drops, &mut faults);
    let told = call(
        session,
        &mut Cx {
            now: NOW,
            config,
            store,
            events: events_of,
            drops: drops_of,
            faults,
            ports: &mut BTreeMap::new(),
            table: &crate::service::Table::new(NodeId(1)),
        },
    );
    (told, events.into(), drops)
}

fn receiver() -> Session {
    session(&Config::new(NodeId(1), Incarnation(1)), &[(Active, 0)])
}

fn announce(session: &mut Session, seq: u32, total: u64) -> (Taken, usize) {
    let rts = wire::Rts { message: head(seq), token: 3, total };
    let (taken, events, _) = receive(session, |s, cx| s.frame(cx, 0, &wire::Frame::Rts(rts)));
    (taken, events.iter().filter(|event| matches!(event, Event::Offer { .. })).count())
}

#[test]
fn a_large_message_is_offered_once_and_granted_once_it_has_memory() {
    let large = Config::new(NodeId(1), Incarnation(1)).auto_accept_bytes_max + 1;
    let mut session = receiver();
    assert_eq!(announce(&mut session, 0, large), (Taken::Yes, 1));
    assert_eq!(announce(&mut session, 0, large), (Taken::Yes, 0), "it was asked for already");
    assert_eq!(announce(&mut session, 1, large), (Taken::Yes, 0), "it is not its turn");
    let number = session.receiving.waiting[0];
    assert!(session.accept(number, BufferId(1)) && !session.accept(number, BufferId(2)));
    assert_eq!((session.receiving.cts.len(), session.receiving.waiting.len()), (1, 1));
    // At most the limit has memory without a question, and no message is longer than the longest.
    assert_eq!(announce(&mut receiver(), 0, large - 1), (Taken::Yes, 0));
    assert_eq!(announce(&mut receiver(), 0, limits::MESSAGE_BYTES_MAX).0, Taken::Yes);
    for total in [0, limits::MESSAGE_BYTES_MAX + 1] {
        assert_eq!(announce(&mut receiver(), 0, total).0, Taken::Breach);
    }
}

/// A packet of the first link with a frame of `len` bytes.
fn packet(number: u64, len: usize, frame: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let (kind, flags) = (wire::PacketType::Data, wire::header::FLAG_ACK_ELICITING);
    let mut packet = vec![];
    let header = wire::Header { kind, flags, link: LinkId(0), to: SessionId(1), number, stamp: 5, check: 0 };
    header.emit(&mut packet);
    frame(&mut packet);
    packet.resize(packet.len() + len, 7);
    wire::finish(&mut packet).unwrap();
    packet
}

#[test]
fn pieces_are_taken_together_and_the_last_may_be_shorter() {
    let mut session = receiver();
    assert_eq!(announce(&mut session, 0, 1 << 30), (Taken::Yes, 1));
    let number = session.receiving.waiting[0];
    assert!(session.accept(number, BufferId(1)));
    let fragment = |offset| wire::TransferFragment { transfer: crate::id::TransferId(number), offset };
    let first = wire::Frame::TransferFragment(fragment(0), &[1; 80]);
    assert_eq!(receive(&mut session, |s, cx| s.frame(cx, 0, &first)).0, Taken::Yes);
    session.links[0].received.record(Instant(1), 0, 120, 5, true, AckWish::Later, false);
    let train = [(1, 80, 80), (2, 160, 80), (3, 240, 40)];
    let train = train
        .map(|(number, offset, len)| packet(number, len, |out| fragment(offset).emit(out, len)))
        .concat();
    let (mut rest, mut taken) = (&train[..], vec![]);
    while let Some(pieces) = wire::pieces(rest, 120) {
        let bytes = receive(&mut session, |s, cx| s.handle_pieces(cx, 0, &pieces, rest, false)).0;
        taken.push(bytes);
        rest = &rest[bytes..];
    }
    assert_eq!(taken, [240, 80]);
    let link = &session.links[0];
    assert_eq!((link.received.largest(), link.stats.bytes_received), (Some(3), 320));
    assert_eq!(session.receiving.transfers.get_mut(number).unwrap().cts(number).done, 280);
}

#[test]
fn pieces_of_an_eager_message_are_taken_together_and_those_at_its_ends_alone() {
    let mut session = receiver();
    let part = |offset| wire::Fragment { message: head(0), total: 480, offset };
    // The packets from number `from` on, of which each has a piece of 80 bytes; how many were taken.
    let take_of = |session: &mut Session, from: u64, total: u32| {
        let part = |offset| wire::Fragment { total, ..part(offset) };
        let of = |number| packet(number, 80, |out| part((number as u32 - 1) * 80).emit(out, 80));
        let train: Vec<u8> = (from..=6).flat_map(of).collect();
        let parts = wire::parts(&train, 128).unwrap();
        receive(session, |s, cx| s.handle_parts(cx, 0, &parts, &train, false)).0 / 128
    };
    let take = |session: &mut Session, from| take_of(session, from, 480);
    let take_alone = |session: &mut Session, offset| {
        receive(session, |s, cx| s.frame(cx, 0, &Frame::Fragment(part(offset), &[7; 80]))).1.len()
    };
    let has = |session: &mut Session, number| {
        session.links[0].received.record(Instant(1), number, 128, 5, true, AckWish::Later, false);
    };
    has(&mut session, 1);
    assert_eq!(take(&mut session, 2), 0, "nothing is there of which it goes on");
    take_alone(&mut session, 0);
    assert_eq!(take(&mut session, 3), 0, "it is not the next packet");
    assert_eq!(take_of(&mut session, 2, 488), 0, "it is not that message");
    let other = wire::Message { from: PortId(77), ..head(0) };
    receive(&mut session, |s, cx| s.frame(cx, 0, &Frame::Message(other, &[7; 8])));
    session.prompt_at = Instant::ZERO;
    assert_eq!(take(&mut session, 2), 4, "all but the last, whatever came last");
    let link = &session.links[0];
    assert_eq!((link.received.largest(), link.stats.bytes_received), (Some(5), 512));
    assert_eq!(session.prompt_at, NOW, "somebody may be waiting for it");
    assert_eq!(take_alone(&mut session, 400), 1, "with the last it is whole");
    has(&mut session, 1);
    assert_eq!(take(&mut session, 2), 0, "it was delivered");
}

#[test]
fn messages_still_under_way_count_against_the_credit_of_their_port() {
    let whole = |session: &mut Session, seq| {
        let (taken, events, _) =
            receive(session, |s, cx| s.frame(cx, 0, &wire::Frame::Message(head(seq), &[1; 8])));
        (taken, events.len())
    };
    let mut session = receiver();
    assert_eq!(whole(&mut session, 0), (Taken::Yes, 1));
    let key = session.receiving.credit_of[&FLOW.from];
    let given = session.receiving.credits.get_mut(key).unwrap();
    given.limit_messages = 4;
    assert_eq!(whole(&mut session, 4), (Taken::Breach, 0), "one was received, three are under way, and it");
    assert_eq!(whole(&mut session, 3), (Taken::Yes, 0), "one was received, two are under way, and it");
    assert_eq!(session.given_credit(FLOW.from).unwrap().gaps, 2);
    assert_eq!((whole(&mut session, 1), whole(&mut session, 2)), ((Taken::Yes, 1), (Taken::Yes, 2)));
    let given = session.given_credit(FLOW.from).unwrap();
    assert_eq!((given.received_messages, given.received_bytes, given.gaps), (4, 256, 0));
    assert_eq!(whole(&mut session, 4), (Taken::Breach, 0));
}

#[test]
fn pieces_keep_within_their_message_and_within_its_holes() {
    let piece = |session: &mut Session, total, offset, len: usize| {
        let payload = vec![1; len];
        let (taken, _, drops) = receive(session, |s, cx| {
            let f = wire::Fragment { message: head(0), total, offset };
            s.frame(cx, 0, &wire::Frame::Fragment(f, &payload))
        });
        (taken, drops.holes)
    };
    let most = limits::UNASKED_BYTES_MAX as u32;
    for (total, offset, len) in [(0, 0, 0), (most + 1, 0, 8), (100, 93, 8)] {
        assert_eq!(piece(&mut receiver(), total, offset, len), (Taken::Breach, 0));
    }
    let mut session = receiver();
    let holes = limits::HOLES_MAX as u32;
    for n in 1..=holes {
        assert_eq!(piece(&mut session, most, n * 15, 5), (Taken::Yes, 0));
    }
    for offset in [0, 21, 15 * holes + 6] {
        assert_eq!(piece(&mut session, most, offset, 5), (Taken::No, 1));
    }
    for offset in [10, 35, 15 * holes + 5] {
        assert_eq!(piece(&mut session, most, offset, 5), (Taken::Yes, 0), "it touches another");
    }
    assert_eq!(piece(&mut session, most - 1, 0, 10), (Taken::Breach, 0), "another length than before");
}

#[test]
fn each_flow_that_finds_no_room_is_refused_once() {
    let mut session = receiver();
    let mut refused = |m: wire::Message| {
        let config = &Config::new(NodeId(1), Incarnation(1));
        let taken = with_cx(config, |cx| session.frame(cx, 0, &wire::Frame::Message(m, &[1; 8])));
        assert_eq!(taken, Taken::No);
        (session.receiving.refuse.len(), session.stats.messages_refused)
    };
    assert_eq!((refused(head(0)), refused(head(0))), ((1, 1), (1, 2)));
    assert_eq!(refused(wire::Message { from: PortId(77), ..head(0) }), (2, 3));
    assert_eq!(refused(wire::Message { to: PortId(77), ..head(0) }), (3, 4));
    assert_eq!(refused(wire::Message { class: Class::Urgent as u8, ..head(0) }), (4, 5));
}

#[test]
fn a_port_asks_for_credit_when_little_is_left() {
    // What is left after a message of 64 bytes, and whether more is wanted.
    for (bytes, messages, wanted) in
        [(1 << 20, 8_192, false), ((1 << 20) - 1, 8_192, true), (1 << 20, 8_191, true)]
    {
        let mut session = receiver();
        let key = session.receiving.credits.insert(initial_given(FLOW.from)).unwrap();
        session.receiving.credit_of.insert(FLOW.from, key);
        let given = session.receiving.credits.get_mut(key).unwrap();
        (given.told_bytes, given.told_messages) = (bytes + 64, messages + 1);
        receive(&mut session, |s, cx| s.frame(cx, 0, &wire::Frame::Message(head(0), &[1; 8])));
        assert_eq!(session.credit_wanted.contains(&FLOW.from), wanted, "{bytes} {messages}");
    }
}

#[test]
fn only_the_answer_to_its_own_request_lets_a_link_join() {
    let (join, liveness) = (wire::ProbeKind::Join, wire::ProbeKind::Liveness);
    for (kind, about, joins) in [(join, 0, true), (join, 1, false), (liveness, 0, false)] {
        let config = Config::new(NodeId(1), Incarnation(1));
        let mut session = session(&config, &[(Active, 0), (Active, 0)]);
        session.links[0].state = crate::link::state::State::new(NOW);
        let about = LinkId(about);
        let (id, size, carrier) = (1, 0, true);
        let (last_rx, next_tx, last_rx_age, stall_us) = (0, 0, 0, 0);
        let reply =
            wire::ProbeReply { kind, carrier, about, size, id, last_rx, next_tx, last_rx_age, stall_us };
        receive(&mut session, |s, cx| s.frame(cx, 0, &wire::Frame::ProbeReply(reply)));
        assert_eq!(session.links[0].usable(), joins, "{kind:?} {about:?}");
    }
}

#[test]
fn a_link_that_was_heard_of_since_is_not_dead_because_its_peer_once_said_so() {
    let config = Config::new(NodeId(1), Incarnation(1));
    // The peer had sent so many packets when it gave the link up; we heard of ten, or of none.
    for (heard, sent, dead) in [(10, 10, true), (10, 9, false), (10, 5, false), (10, 20, true), (0, 0, true)]
    {
        let mut session = session(&config, &[(Active, 0), (Active, 0)]);
        for number in 0..heard {
            session.links[0].received.record(NOW, number, 100, NOW.stamp(), true, AckWish::Later, false);
        }
        let set = wire::LinkSet { control: 0, link: LinkId(0), status: LinkStatus::Down, number: sent };
        let (kind, to) = (PacketType::Data, SessionId(1));
        let header = wire::Header { kind, flags: 0, link: LinkId(1), to, number: 0, stamp: 0, check: 0 };
        let mut packet = Vec::new();
        header.emit(&mut packet);
        receive(&mut session, |s, cx| {
            assert_eq!(s.frame(cx, 1, &wire::Frame::LinkSet(set)), Taken::Yes);
            s.handle_packet(cx, 1, &header, &packet, false);
        });
        assert_eq!(session.links[0].usable(), !dead, "{heard} {sent}");
        assert!(session.links[1].usable());
    }
}

#[test]
fn who_has_asked_as_much_as_he_may_still_answers() {
    let config = Config::new(NodeId(1), Incarnation(1));
    let mut session = session(&config, &[(Active, 0)]);
    for number in 0..limits::CONTROL_FRAMES_MAX as u32 {
        session.control.push(Notice::PortClosed(PortId(number + 1)));
    }
    assert!(!session.control.has_room());
    let (end, from, to) = (PortId::accepting_end(1), PortId(5), PortId(6));
    let (class, stream, credit) = (0, false, (0, 0));
    let connect = wire::Connect { control: 0, end, from, to, class, stream, credit, service: None };
    with_cx(&config, |cx| assert_eq!(session.frame(cx, 0, &Frame::Connect(connect)), Taken::Yes));
    assert_eq!(session.control.lens().0, limits::CONTROL_FRAMES_MAX + 1, "the answer is queued");
}

#[test]
fn who_asks_for_connections_and_confirms_no_answer_is_not_answered_for_ever() {
    let config = Config::new(NodeId(1), Incarnation(1));
    let mut session = session(&config, &[(Active, 0)]);
    // Nobody listens, so each is to be refused by a control frame.
    let ask = |session: &mut Session, number: u32| {
        let connect = wire::Connect {
            control: number,
            end: PortId::accepting_end(number + 1),
            from: PortId(5),
            to: PortId(6),
            class: 0,
            stream: false,
            credit: (0, 0),
            service: None,
        };
        with_cx(&config, |cx| session.frame(cx, 0, &Frame::Connect(connect)))
    };
    let most = limits::CONTROL_FRAMES_MAX as u32;
    for number in 0..2_000 {
        let taken = ask(&mut session, number);
        assert_eq!(taken, if number < most { Taken::Yes } else { Taken::No }, "connection {number}");
    }
    assert_eq!(session.control.lens(), (limits::CONTROL_FRAMES_MAX, 0), "nothing is kept of the others");
    // What was lost of the peer's questions comes again, and one answer that is confirmed makes room for one more.
    assert_eq!(ask(&mut session, 7), Taken::Yes);
    while session.control.take(100).is_some() {}
    session.control.confirm(0);
    assert_eq!((ask(&mut session, most), ask(&mut session, most + 1)), (Taken::Yes, Taken::No));
}

#[test]
fn credit_ends_the_wait_of_the_flows_that_it_is_for() {
    let config = Config::new(NodeId(1), Incarnation(1));
    let mut session = session(&config, &[(Active, 0)]);
    let other = FlowKey { to: PortId(9), ..FLOW };
    for key in [FLOW, other] {
        assert!(session.send(
            NOW,
            key,
            Outgoing { buffer: BufferId(1), len: 8, service: None, range: None, tag: None, returns: false }
        ));
        let (from, to, class) = (key.from, key.to, key.class as u8);
        let reason = wire::RefuseReason::NoRoom;
        let refuse = wire::Refuse { control: 0, from, to, seq: 0, class, reason, retry_after_us: 500 };
        receive(&mut session, |s, cx| s.frame(cx, 0, &wire::Frame::Refuse(refuse)));
    }
    let waits = |s: &Session| {
        [FLOW, other].map(|k| s.sending.flows.get(s.sending.by_key[&k]).unwrap().retry_at() > NOW)
    };
    assert_eq!(waits(&session), [true; 2]);
    session.raise_credit(&wire::Credit { port: FLOW.to, messages: 5_000, bytes: 1 << 30 });
    assert_eq!(waits(&session), [false, true]);
}

#[test]
fn more_credit_is_told_when_it_is_worth_a_frame_or_its_sender_may_be_waiting_for_it() {
    let (eager, much, many) = (2 * limits::EAGER_BYTES_MAX, 1 << 20, 1_000);
    // What is left of bytes and messages, how much more there is of each, and whether that is told.
    for (left, more, told) in [
        ((eager - 1, many), (1, 0), true),
        ((eager, many), (1, 0), false),
        ((eager - 1, many), (0, 0), false),
        ((much, 1), (0, 1), true),
        ((much, 2), (0, 1), false),
        ((much, 1), (0, 0), false),
        ((much, many), (much / 2 - 1, 0), false),
        ((much, many), (much / 2, 0), true),
        ((much, many), (0, many / 2 - 1), false),
        ((much, many), (0, many / 2), true),
        ((much, 20), (0, 15), false),
        ((much, 20), (0, 16), true),
    ] {
        let mut session = receiver();
        let key = session.receiving.credits.insert(initial_given(FLOW.from)).unwrap();
        session.receiving.credit_of.insert(FLOW.from, key);
        let given = session.receiving.credits.get_mut(key).unwrap();
        (given.received_bytes, given.received_messages) = (640, 10);
        (given.told_bytes, given.told_messages) = (640 + left.0, 10 + left.1);
        (given.limit_bytes, given.limit_messages) = (given.told_bytes, given.told_messages);
        let (bytes, messages) = (given.told_bytes + more.0, given.told_messages + more.1);
        session.give_credit(FLOW.from, bytes, messages);
        let given = session.given_credit(FLOW.from).unwrap();
        assert_eq!((given.limit_bytes, given.limit_messages), (bytes, messages));
        assert_eq!((given.dirty, !session.receiving.untold.is_empty()), (told, told), "{left:?} {more:?}");
    }
}

#[test]
fn a_peer_in_doubt_is_asked_and_given_up_unless_it_answers() {
    let config = Config::new(NodeId(1), Incarnation(1));
    for answers in [false, true] {
        let mut session = session(&config, &[(Active, 0), (Active, 0)]);
        session.note_isolation(NOW);
        session.doubt(NOW);
        session.doubt(NOW + Duration::ms(20));
        assert!(session.links.iter().all(|link| link.probe == Some(wire::ProbeKind::Liveness)));
        if answers {
            session.last_proof_at = NOW + Duration(1);
        }
        assert!(!session.is_lost(NOW + DOUBT - Duration(1)));
        assert_eq!(session.is_lost(NOW + DOUBT), !answers);
    }
}

#[test]
fn a_link_that_confirms_nothing_is_in_doubt_then_suspect_then_dead() {
    let config = Config::new(NodeId(1), Incarnation(1));
    let mut session = session(&config, &[(Active, 0), (Active, 0)]);
    sent(&mut session, 5, 1_000);
    let mut wait = |until: &dyn Fn(&Link) -> Instant| {
        let now = until(&session.links[0]);
        let (mut events, mut drops, mut faults) = (VecDeque::new(), Drops::default(), BTreeMap::new());
        let (config, store) = (&config, &mut Memory(Some(BufferId(7))));
        let (events_of, drops_of, faults_of) = (&mut events, &mut drops, &mut faults);
        let mut cx = Cx {
            now,
            config,
            store,
            events: events_of,
            drops: drops_of,
            faults: faults_of,
            ports: &mut BTreeMap::new(),
            table: &crate::service::Table::new(NodeId(1)),
        };
        session.handle_timeout(&mut cx);
        let link = &mut session.links[0];
        let asked = link.probe.take();
        (link.state.state(), link.pto_count, link.stats.packets_lost, asked, events.len())
    };
    use crate::link::state::LinkState::{Down, Suspect, Up};
    let liveness = Some(wire::ProbeKind::Liveness);
    assert_eq!(wait(&|link| link.pto_at() - Duration(1)), (Up, 0, 0, None, 0));
    assert_eq!(wait(&Link::pto_at), (Up, 1, 0, liveness, 0));
    assert_eq!(wait(&Link::pto_at), (Suspect, 2, 0, liveness, 1));
    assert_eq!(wait(&|link| link.state.deadline() - Duration(1)), (Suspect, 2, 0, None, 0));
    assert_eq!(wait(&|link| link.state.deadline()), (Down, 0, 5, None, 1), "what it carried is lost");
    assert_eq!(
        (session.is_up(), session.links[0].stats.failures, session.links[1].usable()),
        (true, 1, true)
    );
    session.links[0].pto_count = 3;
    with_cx(&config, |cx| session.link_event(cx, 0, LinkEvent::Joined));
    assert_eq!((session.links[0].usable(), session.links[0].pto_count), (true, 0), "a new life");
}

#[test]
fn a_request_to_join_is_answered_and_returned_and_other_questions_are_not_returned() {
    use wire::ProbeKind::{Join, Liveness, State};
    for (kind, answers, returned) in [(Join, 1, Some(Join)), (State, 1, None), (Liveness, 0, None)] {
        let mut session = receiver();
        session.links[0].state = crate::link::state::State::new(NOW);
        let probe = wire::Probe { id: 1, about: LinkId(0), kind, target: 0, size: 0 };
        receive(&mut session, |s, cx| s.frame(cx, 0, &wire::Frame::Probe(probe)));
        assert_eq!((session.links[0].replies.len(), session.links[0].probe), (answers, returned));
    }
}
