//! Which links serve, and who waits for what: a session whose links are set by hand.

mod arriving;
mod bottleneck;
mod calm;
mod classes;
mod connections;
mod fate;
mod incoming;
mod moments;
mod names;
mod outgoing;
mod outlook;
mod policies;
mod probation;
mod riders;
mod shares;
mod sparing;
mod unequal;
mod upkeep;
mod wanted;

use super::credit::initial_given;
use super::flows::CLOSED_PORTS_MAX;
use super::serving::{Obstacle, Serving};
use super::timers::{DOUBT, UNANSWERED};
use super::*;
use crate::error::Failure;
use crate::flow::Class;
use crate::flow::send::Outgoing;
use crate::id::BufferId;
use crate::link::recv::AckWish;
use crate::link::state::LinkEvent;
use crate::train::{Piece, Train};
use crate::wire::{LinkStatus, PacketType};
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
    fn share(&mut self, _: PortId, _: BufferId, _: u32) {}
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
        features: wire::FEATURES,
        node: NodeId(2),
        incarnation: Incarnation(1),
        name: Default::default(),
        host: 0,
        session: SessionId(9),
        eager_bytes_max: limits::EAGER_BYTES_MAX as u32,
        initial_credit: (1 << 20, 1_000),
        tolerance: Duration::ms(500),
        bearers: Default::default(),
    };
    let mut session = Session::new(NOW, SessionId(1), peer, true, 0, config);
    for (n, &(status, pto_count)) in links.iter().enumerate() {
        let spec = LinkSpec::to(n as u16, n as u8, n as u8, mtu);
        session.add_link(NOW, spec, config);
        let link = &mut session.links[n];
        link.state.handle(NOW, LinkEvent::Joined);
        link.probe = None;
        (link.status, link.pto_count) = (status, pto_count);
    }
    session.announce();
    session
}

const FLOW: FlowKey = FlowKey { from: PortId(1), to: PortId(2), class: Class::Normal };

/// The header of message `seq` of a flow to us.
fn head(seq: u32) -> wire::Message {
    wire::Message {
        class: FLOW.class as u8,
        from: FLOW.to,
        to: FLOW.from,
        seq,
        service: None,
        tag: None,
        notify: false,
    }
}

fn send(session: &mut Session, bytes: u64) {
    let message =
        Outgoing { buffer: BufferId(1), len: bytes, service: None, range: None, tag: None, returns: false };
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
        ports: &mut BTreeMap::new(),
        table: &crate::service::Table::new(NodeId(1)),
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
fn a_session_that_has_come_up_is_announced_at_once_whatever_passes() {
    let config = Config::new(NodeId(1), Incarnation(1));
    let mut session = session(&config, &[(Active, 0)]);
    session.announced = false;
    assert_eq!(session.deadline(NOW, &config), NOW);
    session.announce();
    assert!(session.deadline(NOW, &config) > NOW);
}

#[test]
fn a_link_by_shared_memory_serves_alone_while_it_is_up_and_not_in_doubt() {
    let config = Config::new(NodeId(1), Incarnation(1));
    let mut session = session(&config, &[(Active, 0), (Active, 0), (Standby, 0)]);
    session.links[1].spec.near = true;
    let obstacles = |session: &Session| {
        let serving = Serving::of(&session.links);
        session.links.iter().map(|link| serving.obstacle(link)).collect::<Vec<_>>()
    };
    assert_eq!(obstacles(&session), [Some(Obstacle::Far), None, Some(Obstacle::Standby)]);
    assert!(Serving::of(&session.links).has_sure_link());
    session.links[1].pto_count = 1;
    assert_eq!(obstacles(&session), [None, Some(Obstacle::InDoubt), Some(Obstacle::Standby)]);
    session.links[1].pto_count = 0;
    session.links[1].status = Drain;
    assert_eq!(obstacles(&session)[..2], [None, Some(Obstacle::Drain)], "an operator's word counts");
    session.links[1].status = Active;
    session.links[1].state.handle(NOW, LinkEvent::Silence);
    assert_eq!(obstacles(&session)[0], None);
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
        session.raise_credit(&wire::Credit { port: FLOW.to, messages, bytes: 1 << 20 });
        session.quiet.stir();
        assert_eq!(transmit(&mut session, &config), [0]);
        assert_eq!(waiting(&session), (messages == 1) as usize);
    }
}

/// A message wants to come and finds no memory; its port has given no credit but the first.
fn await_memory_and_credit(session: &mut Session) {
    let message = wire::Message { from: FLOW.from, to: FLOW.to, ..head(0) };
    let rts = wire::Rts { message, token: 1, total: 1 << 20 };
    let transfer = session.receiving.transfers.insert(ReceiveTransfer::new(0, PortId(2), 0, &rts));
    session.receiving.waiting.extend(transfer);
    let credit = session.receiving.credits.insert(initial_given(FLOW.to)).unwrap();
    session.receiving.credit_of.insert(FLOW.to, credit);
}

/// So many bytes have come that they will be acknowledged later if their stream goes on, and now if it falters.
fn await_acknowledgement(received: &mut crate::link::recv::Received) {
    received.on_batch_end(NOW - Duration::ms(10), 240_000_000, 1);
    for number in 0..100 {
        let eliciting = number >= 50;
        received.record(NOW, number, 1_000, 0, eliciting, AckWish::Later, false);
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
fn one_message_that_leaves_by_one_link_leaves_nothing_to_ask_the_others_for_until_they_have_to_speak() {
    let config = Config::new(NodeId(1), Incarnation(1));
    let mut session = session(&config, &[(Active, 0), (Active, 0), (Active, 0)]);
    await_acknowledgement(&mut session.links[2].received);
    send(&mut session, 64);
    assert!([0, 1, 2].iter().all(|&bearer| !session.is_quiet(NOW, BearerId(bearer))));
    with_cx(&config, |cx| assert!(session.poll_transmit(cx, BearerId(0), &mut Train::new())));
    let until = session.links[2].received.deadline();
    assert!(NOW < until && until < Instant::NEVER);
    assert!(session.is_all_quiet(NOW) && !session.is_all_quiet(until));
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
        exclusive: false,
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
    }
}
