//! Which links serve, and who waits for what: a session whose links are set by hand.

use super::receive::Taken;
use super::*;
use crate::id::BufferId;
use crate::link::send::NewTrain;
use crate::train::{Piece, Train};
use crate::wire::PacketType;
use LinkStatus::{Active, Drain, Standby};

/// What every request for memory gets.
struct Memory(Option<BufferId>);

impl Store for Memory {
    fn reserve(&mut self, _: PortId, _: u64, _: bool) -> Option<BufferId> {
        self.0
    }
    fn place(&mut self, _: BufferId, _: u64, _: &[u8]) {}
    fn discard(&mut self, _: BufferId) {}
    fn release(&mut self, _: PortId, _: BufferId, _: bool) {}
    fn has_port(&self, _: PortId) -> bool {
        true
    }
    fn room(&mut self, _: PortId) -> (u64, u32) {
        (0, 0)
    }
}

const NOW: Instant = Instant(1_000_000_000);

/// A session whose links are up, with the status and the number of probe time-outs that each is to have.
fn session(config: &Config, links: &[(LinkStatus, u32)]) -> Session {
    session_with_mtu(config, links, 1_472)
}

/// The same with packets of at most `mtu` bytes.
fn session_with_mtu(config: &Config, links: &[(LinkStatus, u32)], mtu: u16) -> Session {
    let peer = Peer {
        node: NodeId(2),
        incarnation: Incarnation(1),
        name: Default::default(),
        host: 0,
        session: SessionId(9),
        initial_credit: (1 << 20, 1_000),
        tolerance: Duration::ms(500),
        bearers: Default::default(),
    };
    let mut session = Session::new(NOW, SessionId(1), peer, true, 0, config);
    for (n, &(status, pto_count)) in links.iter().enumerate() {
        let bearer = BearerId(n as u8);
        let to = MediaAddress::from_bytes(&[n as u8]).unwrap();
        let id = LinkId(n as u16);
        let spec = LinkSpec { id, bearer, peer_bearer: bearer, to, mtu, window: 1 << 20, lossless: true };
        session.add_link(NOW, spec, config);
        let link = &mut session.links[n];
        link.state.handle(NOW, LinkEvent::Joined);
        link.probe = None;
        (link.status, link.pto_count) = (status, pto_count);
    }
    session
}

const FLOW: FlowKey = FlowKey { from: PortId(1), to: PortId(2), class: Class::Normal };

fn send(session: &mut Session, bytes: u64) {
    let message = Outgoing { buffer: BufferId(1), len: bytes, service: None, tag: None };
    assert!(session.send(NOW, FLOW, message));
}

/// Calls into a session with what it may use.
fn with_cx<R>(config: &Config, call: impl FnOnce(&mut Cx<'_>) -> R) -> R {
    let (mut events, mut drops, mut faults) = (VecDeque::new(), Drops::default(), BTreeMap::new());
    call(&mut Cx {
        now: NOW,
        config,
        store: &mut Memory(None),
        events: &mut events,
        drops: &mut drops,
        faults: &mut faults,
    })
}

/// The links by which messages leave when each of them is asked in turn.
fn transmit(session: &mut Session, config: &Config) -> Vec<usize> {
    let mut train = Train::new();
    let mut taken = Vec::new();
    for index in 0..session.links.len() {
        let carries = with_cx(config, |cx| session.poll_transmit(cx, BearerId(index as u8), &mut train))
            && train.pieces.iter().any(|piece| matches!(piece, Piece::Body { .. }));
        if carries {
            taken.push(index);
        }
    }
    taken
}

fn taken_by(session: &mut Session, config: &Config, bytes: u64) -> Vec<usize> {
    send(session, bytes);
    transmit(session, config)
}

/// By which link a small and a larger message leave.
#[track_caller]
fn expect(links: &[(LinkStatus, u32)], by: Option<usize>) {
    let config = Config::new(NodeId(1), Incarnation(1));
    for bytes in [8, 12_000] {
        let mut session = session(&config, links);
        assert_eq!(taken_by(&mut session, &config, bytes), Vec::from_iter(by), "{bytes} bytes");
    }
}

#[test]
fn an_active_link_in_doubt_serves_while_only_a_standby_link_is_sure() {
    expect(&[(Active, 1), (Standby, 0)], Some(0));
    expect(&[(Standby, 0), (Active, 1)], Some(1));
}

#[test]
fn a_link_in_doubt_gives_way_to_a_sure_one_of_its_status() {
    expect(&[(Active, 1), (Active, 0)], Some(1));
    expect(&[(Standby, 1), (Standby, 0)], Some(1));
}

#[test]
fn links_in_doubt_serve_if_no_other_is_left() {
    expect(&[(Active, 1), (Active, 2)], Some(0));
    expect(&[(Drain, 0), (Active, 1)], Some(1));
}

#[test]
fn small_messages_do_not_choose_a_standby_link_however_near_it_is() {
    let config = Config::new(NodeId(1), Incarnation(1));
    for standby in 0..2 {
        let mut links = [(Active, 0); 2];
        links[standby].0 = Standby;
        let mut session = session(&config, &links);
        for (n, link) in session.links.iter_mut().enumerate() {
            let rtt = if n == standby { Duration::us(10) } else { Duration::ms(20) };
            link.rtt.sample(NOW, rtt, Duration::ZERO);
        }
        assert_eq!(taken_by(&mut session, &config, 8), [1 - standby]);
    }
}

#[test]
fn a_standby_link_serves_once_no_active_one_is_usable() {
    expect(&[(Active, 0), (Standby, 0)], Some(0));
    let config = Config::new(NodeId(1), Incarnation(1));
    let mut session = session(&config, &[(Active, 0), (Standby, 0)]);
    session.links[0].state.handle(NOW, LinkEvent::Silence);
    assert_eq!(taken_by(&mut session, &config, 8), [1]);
}

#[test]
fn a_draining_link_takes_nothing_new() {
    expect(&[(Drain, 0), (Active, 0)], Some(1));
    expect(&[(Drain, 0)], None);
}

#[test]
fn only_a_link_that_serves_makes_others_sure() {
    let config = Config::new(NodeId(1), Incarnation(1));
    for (links, sure) in [
        (&[(Active, 1), (Standby, 0)][..], false),
        (&[(Active, 1), (Drain, 0)], false),
        (&[(Active, 1), (Active, 0)], true),
        (&[(Standby, 0)], true),
    ] {
        assert_eq!(Serving::of(&session(&config, links).links).has_sure_link(), sure, "{links:?}");
    }
}

#[test]
fn a_flow_waits_for_credit_in_one_place_however_often_it_asks() {
    let config = Config::new(NodeId(1), Incarnation(1));
    let mut session = session(&config, &[(Active, 0)]);
    session.peer.initial_credit = (0, 0);
    for _ in 0..5 {
        assert_eq!(taken_by(&mut session, &config, 8), [0; 0]);
    }
    let waiting = |s: &Session| s.sending.credits.iter().map(|(_, c)| c.waiting.len()).sum::<usize>();
    assert_eq!(waiting(&session), 1);
    // Credit for one message wakes it; it then waits again, and credit wakes it again.
    for messages in [1, 5] {
        session.on_credit(&wire::Credit { port: FLOW.to, messages, bytes: 1 << 20 });
        session.quiet.stir();
        assert_eq!(transmit(&mut session, &config), [0]);
        assert_eq!(waiting(&session), (messages == 1) as usize);
    }
}

/// A message wants to come and finds no memory; its port has given no credit but the first.
fn await_memory_and_credit(session: &mut Session) {
    let class = FLOW.class as u8;
    let message = wire::Message { class, from: FLOW.from, to: FLOW.to, seq: 0, service: None, tag: None };
    let rts = wire::Rts { message, token: 1, total: 1 << 20 };
    let transfer = session.receiving.transfers.insert(ReceiveTransfer::new(0, 0, &rts));
    session.receiving.waiting.extend(transfer);
    let credit = session.receiving.credits.insert(initial_given(FLOW.to)).unwrap();
    session.receiving.credit_of.insert(FLOW.to, credit);
}

/// So many bytes have come that they will be acknowledged later if their stream goes on, and now if it falters.
fn await_acknowledgement(received: &mut crate::link::recv::Received) {
    received.on_batch_end(NOW - Duration::ms(10), 240_000_000, 1);
    for number in 0..100 {
        let eliciting = number >= 50;
        received.record(NOW, number, 1_000, 0, eliciting, false, false);
    }
    assert!(received.ack_bytes() > 50_000 && !received.ack_due(NOW));
}

#[test]
fn whatever_may_give_it_work_ends_the_quiet_of_a_session() {
    let config = Config::new(NodeId(1), Incarnation(1));
    let mut packet = Vec::new();
    let to = SessionId(1);
    let header =
        wire::Header { kind: PacketType::Data, flags: 0, link: LinkId(0), to, number: 0, stamp: 0, check: 0 };
    header.emit(&mut packet);
    let there = MediaAddress::from_bytes(&[0]).unwrap();
    type Cause<'a> = (&'a str, &'a dyn Fn(&mut Session, &mut Cx<'_>));
    let causes: [Cause<'_>; 12] = [
        ("a message", &|s, _| send(s, 8)),
        ("a notice", &|s, _| s.notify(Notice::PortClosed(PortId(3)))),
        ("a question", &|s, _| s.ask()),
        ("a packet", &|s, cx| s.handle_packet(cx, 0, &header, &packet, false)),
        ("a deadline", &|s, cx| s.handle_timeout(cx)),
        ("a carrier", &|s, cx| s.handle_carrier(cx, BearerId(0), false)),
        ("a hint", &|s, _| s.handle_mtu_hint(NOW, BearerId(0), &there, 1_400)),
        ("a train that did not leave", &|s, cx| s.handle_sent(cx, &Train::new(), Outcome::WouldBlock)),
        ("memory that its receiver gave", &|s, _| assert!(s.accept(0, BufferId(1)))),
        ("memory that was given back", &|s, cx| {
            s.retry_waiting(&mut Memory(Some(BufferId(1))), FLOW.to, cx.config);
        }),
        ("credit", &|s, _| s.give_credit(FLOW.to, 1 << 20, 1_000)),
        ("a slower stream", &|s, _| s.handle_batch_end(NOW, BearerId(0), 0, 1)),
    ];
    for (name, cause) in causes {
        let mut session = session(&config, &[(Active, 0)]);
        await_memory_and_credit(&mut session);
        await_acknowledgement(&mut session.links[0].received);
        assert_eq!(transmit(&mut session, &config), [0; 0]);
        assert!(session.is_quiet(NOW, BearerId(0)), "nothing is to be sent");
        with_cx(&config, |cx| cause(&mut session, cx));
        assert!(!session.is_quiet(NOW, BearerId(0)), "{name}");
    }
}

#[test]
fn what_has_left_by_one_link_ends_the_quiet_of_the_others() {
    let config = Config::new(NodeId(1), Incarnation(1));
    let mut session = session(&config, &[(Active, 0), (Active, 0)]);
    (0..100).for_each(|_| send(&mut session, 1_000));
    let mut train = Train::new();
    let mut poll = |session: &mut Session, bearer| {
        with_cx(&config, |cx| session.poll_transmit(cx, BearerId(bearer), &mut train))
    };
    assert!(!poll(&mut session, 1) && session.is_quiet(NOW, BearerId(1)), "they choose the other one");
    while poll(&mut session, 0) {}
    assert!(!session.schedule.is_empty(), "it is not for it to take all of them");
    assert!(!session.is_quiet(NOW, BearerId(1)) && poll(&mut session, 1));
}

#[test]
fn what_leaves_late_is_looked_after_in_time() {
    let config = Config::new(NodeId(1), Incarnation(1));
    let mut session = session(&config, &[(Active, 0)]);
    send(&mut session, 8);
    // The bearer had no room until now, when a deadline is known already.
    assert!(session.deadline(NOW, &config) > NOW + Duration::ms(100));
    assert_eq!(transmit(&mut session, &config), [0]);
    assert_eq!(session.deadline(NOW, &config), session.links[0].pto_at());
}

#[test]
fn answers_and_a_probe_never_make_a_packet_too_large() {
    let config = Config::new(NodeId(1), Incarnation(1));
    for mtu in (80..1_472).step_by(8) {
        let mut session = session_with_mtu(&config, &[(Active, 0)], mtu);
        let link = &mut session.links[0];
        let reply = wire::ProbeReply {
            kind: wire::ProbeKind::Liveness,
            carrier: true,
            about: link.spec.id,
            size: 0,
            id: 1,
            last_rx: 0,
            next_tx: 0,
            last_rx_age: 0,
            stall_us: 0,
        };
        while !link.replies.is_full() {
            link.replies.push(reply);
        }
        link.probe = Some(wire::ProbeKind::Liveness);
        let mut train = Train::new();
        let mut packets = 0;
        while with_cx(&config, |cx| session.poll_transmit(cx, BearerId(0), &mut train)) {
            assert!(train.segment_bytes <= mtu as usize, "{} of {mtu}", train.segment_bytes);
            packets += 1;
        }
        assert!(packets > 0 && session.links[0].replies.is_empty() && session.links[0].probe.is_none());
    }
}

#[test]
fn control_between_the_packets_of_a_transfer_never_makes_one_too_large() {
    let config = Config::new(NodeId(1), Incarnation(1));
    let record = wire::Binding {
        op: wire::BindingOp::Publish,
        range: crate::address::ServiceRange { kind: 1, lower: 1, upper: 1 },
        port: PortId(3),
        key: 1,
        scope: crate::address::Scope::Cluster,
        weight: 0,
    };
    for (first, second) in (1..25).flat_map(|first| (1..25).map(move |second| (first, second))) {
        let mut session = session_with_mtu(&config, &[(Active, 0)], 1_200);
        assert_eq!(taken_by(&mut session, &config, 1 << 20), [0; 0], "announced only");
        let token = session.sending.transfers.iter().next().unwrap().0;
        session.on_cts(&wire::Cts { token, transfer: crate::id::TransferId(1), granted: 1 << 20, done: 0 });
        // The first may leave room for the start of a fragment, but none for the second.
        for records in [first, second] {
            let records = vec![record; records];
            let (origin, incarnation) = (NodeId(1), Incarnation(1));
            session.notify(Notice::Bindings { origin, incarnation, log_seq: 1, records });
        }
        let mut train = Train::new();
        assert!(with_cx(&config, |cx| session.poll_transmit(cx, BearerId(0), &mut train)));
        assert!(train.segment_bytes <= 1_200 && train.bytes <= train.packets * train.segment_bytes);
        assert!(train.bytes > (train.packets - 1) * train.segment_bytes);
    }
}

#[test]
fn what_is_to_prove_that_a_link_works_takes_no_other_way() {
    let config = Config::new(NodeId(1), Incarnation(1));
    type Change<'a> = (&'a str, bool, &'a dyn Fn(&mut Session));
    let changes: [Change<'_>; 5] = [
        ("a message on a link that is up", true, &|_| ()),
        ("a link in doubt", false, &|s| s.links[0].pto_count = 1),
        ("a question", false, &|s| s.links[0].probe = Some(wire::ProbeKind::Liveness)),
        ("an answer", false, &|s| {
            let (kind, about, last_rx_age) = (wire::ProbeKind::Liveness, LinkId(0), 0);
            let (carrier, size, id, last_rx, next_tx, stall_us) = (true, 0, 1, 0, 0, 0);
            s.links[0].replies.push(wire::ProbeReply {
                kind,
                carrier,
                about,
                size,
                id,
                last_rx,
                next_tx,
                last_rx_age,
                stall_us,
            });
        }),
        ("a link on probation", false, &|s| {
            let state = &mut s.links[0].state;
            state.handle(NOW, LinkEvent::CarrierLost);
            state.handle(NOW, LinkEvent::CarrierBack);
            state.handle(NOW + Duration::s(1), LinkEvent::Joined);
            assert_eq!(state.state(), crate::link::state::LinkState::Probation);
        }),
    ];
    for (name, express, change) in changes {
        let mut session = session(&config, &[(Active, 0)]);
        change(&mut session);
        send(&mut session, 8);
        let mut train = Train::new();
        assert!(with_cx(&config, |cx| session.poll_transmit(cx, BearerId(0), &mut train)), "{name}");
        assert_eq!(train.express, express, "{name}");
/// Enters `packets` packets of `bytes` each as sent by the first link.
fn sent(session: &mut Session, packets: u8, bytes: u16) {
    let link = &mut session.links[0];
    let train =
        NewTrain { count: packets, packet_bytes: bytes, last_bytes: bytes, items: vec![], extent: None };
    link.sent.push(NOW, train);
}

/// The peer acknowledges `ranges` of the first link, after 3 ms of which it held the acknowledgement for 1 ms.
fn acknowledge(session: &mut Session, config: &Config, ranges: &[(u64, u64)]) {
    acknowledge_queued(session, config, ranges, Duration::ZERO);
}

/// The same, and says how long the packets had to queue.
fn acknowledge_queued(session: &mut Session, config: &Config, ranges: &[(u64, u64)], queueing: Duration) {
    let ack = wire::Ack {
        link: LinkId(0),
        rx_batch_log2: 0,
        largest: ranges[0].1,
        stamp_echo: Instant(NOW.0 - 3_000_000).stamp(),
        delay: 1_000_000 / 256,
        rx_bytes: 0,
        rx_clock: 0,
        ce_count: 0,
        queueing: (queueing.0 / 256) as u32,
        ranges: ranges.iter().copied().collect(),
    };
    with_cx(config, |cx| session.on_ack(cx, &ack)).unwrap();
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
    acknowledge(&mut session, &config, &[(5, 9)]);
    sent(&mut session, 7, 1_000);
    acknowledge(&mut session, &config, &[(15, 15)]);
    assert_eq!(session.links[0].stats.packets_lost, 1, "five behind");
    acknowledge(&mut session, &config, &[(16, 16)]);
    assert_eq!(session.links[0].stats.packets_lost, 2, "six behind");
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
    assert!(session.receiving.news);
    let dirty = [port, other].map(|port| session.given_credit(port).unwrap().dirty);
    assert_eq!(dirty, [true, false]);
}

/// Memory for everything, or for nothing.
struct Memory(bool);

impl Store for Memory {
    fn reserve(&mut self, _: PortId, _: u64, _: bool) -> Option<BufferId> {
        self.0.then_some(BufferId(7))
    }
    fn place(&mut self, _: BufferId, _: u64, _: &[u8]) {}
    fn discard(&mut self, _: BufferId) {}
    fn release(&mut self, _: PortId, _: BufferId, _: bool) {}
    fn has_port(&self, _: PortId) -> bool {
        true
    }
    fn room(&mut self, _: PortId) -> (u64, u32) {
        (0, 0)
    }
}

/// A session that receives: the frames that `call` hands in, and what the application was told and what was dropped.
fn receive<R>(
    session: &mut Session,
    call: impl FnOnce(&mut Session, &mut Cx<'_>) -> R,
) -> (R, Vec<Event>, Drops) {
    let config = &Config::new(NodeId(1), Incarnation(1));
    let (mut events, mut drops, mut faults) = (VecDeque::new(), Drops::default(), BTreeMap::new());
    let store = &mut Memory(true);
    let (events_of, drops_of, faults) = (&mut events, &mut drops, &mut faults);
    let told = call(session, &mut Cx { now: NOW, config, store, events: events_of, drops: drops_of, faults });
    (told, events.into(), drops)
}

fn receiver() -> Session {
    session(&Config::new(NodeId(1), Incarnation(1)), &[(Active, 0)])
}

/// The header of message `seq` of a flow to us.
fn head(seq: u32) -> wire::Message {
    wire::Message { class: FLOW.class as u8, from: FLOW.to, to: FLOW.from, seq, service: None, tag: None }
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
    let most = limits::EAGER_BYTES_MAX as u32;
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
    for (heard, sent, dead) in [(10, 10, true), (10, 9, false), (10, 20, true), (0, 0, true)] {
        let mut session = session(&config, &[(Active, 0), (Active, 0)]);
        for number in 0..heard {
            session.links[0].received.record(NOW, number, 100, NOW.stamp(), true, false, false);
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
fn credit_ends_the_wait_of_the_flows_that_it_is_for() {
    let config = Config::new(NodeId(1), Incarnation(1));
    let mut session = session(&config, &[(Active, 0)]);
    let other = FlowKey { to: PortId(9), ..FLOW };
    for key in [FLOW, other] {
        assert!(session.send(NOW, key, Outgoing { buffer: BufferId(1), len: 8, service: None, tag: None }));
        let (from, to, class) = (key.from, key.to, key.class as u8);
        let reason = wire::RefuseReason::NoRoom;
        let refuse = wire::Refuse { control: 0, from, to, seq: 0, class, reason, retry_after_us: 500 };
        receive(&mut session, |s, cx| s.frame(cx, 0, &wire::Frame::Refuse(refuse)));
    }
    let waits = |s: &Session| {
        [FLOW, other].map(|k| s.sending.flows.get(s.sending.by_key[&k]).unwrap().retry_at() > NOW)
    };
    assert_eq!(waits(&session), [true; 2]);
    session.on_credit(&wire::Credit { port: FLOW.to, messages: 5_000, bytes: 1 << 30 });
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
        assert_eq!((given.dirty, session.receiving.news), (told, told), "{left:?} {more:?}");
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
        let (config, store) = (&config, &mut Memory(true));
        let (events_of, drops_of, faults_of) = (&mut events, &mut drops, &mut faults);
        let mut cx = Cx { now, config, store, events: events_of, drops: drops_of, faults: faults_of };
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
