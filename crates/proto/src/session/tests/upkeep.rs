//! What a session keeps for ports and links, and what it does when they come and go.

use super::arriving::Receiver;
use super::outgoing::{config, up};
use super::*;
use crate::link::state::LinkState;
use crate::wire::Frame;

fn message(bytes: u64) -> Outgoing {
    Outgoing { buffer: BufferId(1), len: bytes, service: None, range: None, tag: None, returns: false }
}

fn key(from: u32, to: u32) -> FlowKey {
    FlowKey { from: PortId(from), to: PortId(to), class: Class::Normal }
}

/// The header of message `seq` to one of our ports.
fn head_to(to: u32, from: u32, seq: u32) -> wire::Message {
    wire::Message { from: PortId(from), to: PortId(to), ..head(seq) }
}

fn spec(id: u16, bearer: u8, to: u8) -> LinkSpec {
    LinkSpec::to(id, bearer, to, 1_472)
}

#[test]
fn links_are_found_by_number_and_by_their_two_ends_and_no_number_comes_twice() {
    let mut session = session(&config(), &[]);
    assert_eq!([0; 2].map(|_| session.allocate_link()), [1, 2].map(|id| Some(LinkId(id))));
    session.add_link(NOW, spec(7, 0, 1), &config());
    session.add_link(NOW, spec(5, 1, 2), &config());
    assert_eq!(session.allocate_link(), Some(LinkId(8)));
    session.next_link = u16::MAX;
    assert_eq!(session.allocate_link(), None, "numbers are not used again");
    assert_eq!([7, 5, 6].map(|id| session.link_index(LinkId(id))), [Some(0), Some(1), None]);
    let has = |bearer, to| session.has_link(BearerId(bearer), &MediaAddress::from_bytes(&[to]).unwrap());
    assert_eq!([has(0, 1), has(1, 2), has(0, 2), has(1, 1), has(2, 3)], [true, true, false, false, false]);
    assert!(!session.is_up());
    session.links[1].state.handle(NOW, LinkEvent::Joined);
    assert!(session.is_up());
}

#[test]
fn a_peer_is_tolerated_for_as_long_as_it_said_once_it_has_proved_to_be_there() {
    let lost_after = |session: &Session| {
        let after = (0..200).find(|s| session.is_lost(NOW + Duration::s(*s)));
        after.map(Duration::s)
    };
    for (said, unproved, proved) in [(2, 2, 2), (9, 5, 9), (100, 5, 60)] {
        let mut peer = session(&config(), &[]).peer;
        peer.tolerance = Duration::s(said);
        let mut session = Session::new(NOW, SessionId(1), peer, true, 0, &config());
        assert_eq!(lost_after(&session), Some(Duration::s(unproved)));
        assert_eq!(session.deadline(NOW, &config()), NOW + Duration::s(unproved));
        session.announce();
        assert!(session.announced);
        assert_eq!(lost_after(&session), Some(Duration::s(proved)));
    }
    // Our own tolerance counts if the peer's is less.
    let mut session = session(&config(), &[]);
    session.peer.tolerance = Duration::ms(1);
    session.announce();
    assert!(
        !session.is_lost(NOW + limits::TOLERANCE - Duration(1)) && session.is_lost(NOW + limits::TOLERANCE)
    );
}

#[test]
fn a_session_that_is_not_isolated_is_not_lost() {
    let mut session = up(1);
    session.note_isolation(NOW);
    assert!(!session.is_lost(NOW + Duration::s(1_000)));
    session.links[0].state.handle(NOW, LinkEvent::Silence);
    let since = NOW + Duration::s(10);
    session.note_isolation(since);
    session.note_isolation(since + Duration::ms(400));
    assert!(!session.is_lost(since + Duration::ms(499)) && session.is_lost(since + Duration::ms(500)));
    // A driver that was away accuses nobody.
    session.handle_stall(Duration::ms(100));
    assert!(!session.is_lost(since + Duration::ms(599)) && session.is_lost(since + Duration::ms(600)));
}

#[test]
fn the_control_log_has_room_up_to_its_bound() {
    let mut session = up(1);
    for n in 0..limits::CONTROL_FRAMES_MAX as u32 {
        assert!(session.control_has_room());
        session.notify(Notice::PortClosed(PortId(n)));
    }
    assert!(!session.control_has_room());
}

#[test]
fn a_port_is_told_how_much_of_what_it_sent_is_not_confirmed() {
    let mut session = up(1);
    let ready = |s: &Session| s.is_ready_for(PortId(1), PortId(2), Class::Normal);
    assert!(ready(&session), "a flow that does not exist holds nothing");
    for n in 0..300 {
        assert_eq!(ready(&session), n < 256);
        assert!(session.send(NOW, key(1, 2), message(8)));
    }
    assert!(session.is_ready_for(PortId(1), PortId(3), Class::Normal));
    assert!(session.send(NOW, key(1, 3), message(8)) && session.send(NOW, key(4, 2), message(8)));
    assert_eq!([1, 4, 5].map(|port| session.unconfirmed_of(PortId(port))), [301, 1, 0]);
    assert_eq!(session.stats.messages_sent, 302);
}

#[test]
fn a_sender_that_is_gone_is_forgotten_and_the_peer_is_told_if_it_knows_it() {
    let mut session = up(1);
    for flow in [key(1, 2), key(1, 3), key(4, 2)] {
        assert!(session.send(NOW, flow, message(8)));
    }
    session.forget_sender(PortId(9));
    assert!(!session.control.ready(), "it never sent anything");
    session.forget_sender(PortId(1));
    assert_eq!(session.control.take(100), Some((0, &Notice::PortClosed(PortId(1)))));
    assert!(!session.control.ready(), "once");
    assert_eq!((session.sizes()[0], session.unconfirmed_of(PortId(4))), (1, 1));
}

/// A session in which two ports of the peer send to two of ours. Of each flow there wait two whole messages for one
/// before them, one of which a piece has come, a large one that has memory, and one that has none.
fn receiving() -> Receiver {
    let mut receiver = Receiver::new();
    for (from, to) in [(71, 81), (71, 82), (72, 81), (72, 82)] {
        let part = wire::Fragment { message: head_to(to, from, 3), total: 100, offset: 0 };
        let large = wire::Rts { message: head_to(to, from, 2), token: from, total: 8 << 20 };
        let granted = wire::Rts { message: head_to(to, from, 4), token: to, total: 1 << 20 };
        let whole = |seq| Frame::Message(head_to(to, from, seq), &[1; 8]);
        let frames =
            [whole(1), Frame::Fragment(part, &[1; 8]), Frame::Rts(large), Frame::Rts(granted), whole(6)];
        assert!(receiver.frames(&frames));
    }
    assert_eq!(receiver.session.sizes(), [0, 4, 0, 8]);
    assert_eq!((receiver.session.receiving.waiting.len(), receiver.store.reserved.len()), (4, 16));
    let gaps = [81, 82].map(|port| receiver.session.given_credit(PortId(port)).unwrap().gaps);
    assert_eq!(gaps, [4, 4], "messages 0 and 5 of each flow");
    receiver
}

#[test]
fn a_receiver_that_closes_gives_back_what_waits_for_it_and_nothing_else() {
    let mut receiver = receiving();
    receiver.call(|session, cx| session.close_receiver(cx.store, PortId(81)));
    assert_eq!((receiver.store.discarded, receiver.session.sizes()), (8, [0, 2, 0, 4]));
    assert_eq!(receiver.session.receiving.waiting.len(), 2);
    let given = |receiver: &Receiver, port| receiver.session.given_credit(PortId(port)).copied();
    assert!(given(&receiver, 81).unwrap().limit_bytes > 1 << 40, "who waits for credit is to be refused");
    let other = given(&receiver, 82).unwrap();
    assert!(other.gaps == 4 && other.limit_bytes < 1 << 40);
    // The others go on where they were.
    assert!(receiver.frames(&[Frame::Message(head_to(82, 71, 0), &[1; 8])]));
    assert_eq!(receiver.delivered(), 2);
    receiver.session.forget_sender(PortId(81));
    assert!(given(&receiver, 81).is_none());
    assert_eq!(receiver.session.control.take(100), Some((0, &Notice::PortClosed(PortId(81)))));
}

#[test]
fn what_a_port_of_the_peer_sent_ends_with_it_and_nothing_else() {
    let mut receiver = receiving();
    receiver.call(|session, cx| session.peer_port_closed(cx, PortId(71)));
    assert_eq!((receiver.store.discarded, receiver.session.sizes()), (8, [0, 2, 0, 4]));
    let gaps = [81, 82].map(|port| receiver.session.given_credit(PortId(port)).unwrap().gaps);
    assert_eq!(gaps, [2, 2]);
    assert!(receiver.frames(&[Frame::Message(head_to(82, 72, 0), &[1; 8])]));
    assert_eq!(receiver.delivered(), 2);
}

#[test]
fn a_session_that_ends_gives_back_everything() {
    let mut receiver = receiving();
    for n in 1..=2 {
        assert!(receiver.session.send(NOW, key(n, 2), message(8)));
    }
    assert!(super::outgoing::poll(&mut receiver.session, 0).is_some());
    assert!(receiver.session.send(NOW, key(1, 2), message(8)));
    receiver.call(|session, cx| session.end(cx));
    assert_eq!((receiver.store.discarded, receiver.session.sizes()), (16, [0; 4]));
    let told = |event: &Event| match event {
        Event::SendFailed { port, why, .. } => Some((port.0, *why)),
        _ => None,
    };
    let told: Vec<_> = receiver.events.iter().filter_map(told).collect();
    let (left, not) = (Failure::Indeterminate, Failure::NotSent);
    assert_eq!(told, [(1, left), (1, not), (2, left)]);
    assert_eq!(receiver.store.released, [1, 1, 2].map(|port| (PortId(port), false)));
    assert_eq!(receiver.session.stats.messages_failed, 3);
}

#[test]
fn messages_to_a_port_that_closed_fail_with_it_and_no_others() {
    let mut receiver = Receiver::new();
    for flow in [key(1, 2), key(1, 3), key(4, 2)] {
        assert!(receiver.session.send(NOW, flow, message(100_000)));
    }
    super::outgoing::poll(&mut receiver.session, 0).expect("they are announced");
    assert_eq!(receiver.session.sizes(), [3, 0, 3, 0]);
    assert!(receiver.frames(&[Frame::PortClosed(0, PortId(2))]));
    assert_eq!(receiver.session.sizes(), [1, 0, 1, 0]);
    assert_eq!(receiver.store.released, [1, 4].map(|port| (PortId(port), false)));
    assert_eq!(receiver.session.sending.credit_of.keys().collect::<Vec<_>>(), [&PortId(3)]);
}

#[test]
fn as_many_closed_ports_are_remembered_as_their_bound() {
    let mut receiver = Receiver::new();
    for port in 0..CLOSED_PORTS_MAX as u32 + 1 {
        receiver.call(|session, cx| session.peer_port_closed(cx, PortId(1_000 + port)));
    }
    let closed = &receiver.session.receiving.closed;
    assert_eq!(
        (closed.len(), closed.front(), closed.contains(&PortId(1_000))),
        (1_024, Some(&PortId(1_001)), false)
    );
}

#[test]
fn memory_goes_to_the_large_message_that_it_was_given_for() {
    let mut receiver = receiving();
    let waiting = Vec::from(receiver.session.receiving.waiting.clone());
    receiver.session.receiving.cts.clear();
    assert!(receiver.session.accept(waiting[1], BufferId(1)));
    assert!(!receiver.session.accept(waiting[1], BufferId(1)), "it has some");
    assert!(!receiver.session.accept(4_000, BufferId(1)), "there is none");
    assert_eq!(receiver.session.receiving.waiting, [waiting[0], waiting[2], waiting[3]]);
    assert_eq!(receiver.session.receiving.cts, [waiting[1]]);
    // Memory of a port that is found later is for those that need not be asked for, and for its own.
    let mut config = config();
    let (session, store) = (&mut receiver.session, &mut receiver.store);
    session.retry_waiting(store, PortId(81), &config);
    config.auto_accept_bytes_max = 8 << 20;
    store.full = true;
    session.retry_waiting(store, PortId(81), &config);
    assert_eq!((session.receiving.waiting.len(), session.receiving.cts.len()), (3, 1));
    store.full = false;
    session.retry_waiting(store, PortId(81), &config);
    assert_eq!(session.receiving.waiting, [waiting[3]]);
    assert_eq!(session.receiving.cts, [waiting[1], waiting[0], waiting[2]]);
}

#[test]
fn a_carrier_concerns_the_links_over_its_bearer() {
    let mut session = up(2);
    let carrier = |session: &mut Session, bearer, carrier| {
        let config = config();
        let (mut events, mut drops, mut faults) = (VecDeque::new(), Drops::default(), BTreeMap::new());
        let (events_of, drops_of, faults_of) = (&mut events, &mut drops, &mut faults);
        let (config, store) = (&config, &mut Memory(None));
        let mut cx = Cx {
            now: NOW,
            config,
            store,
            events: events_of,
            drops: drops_of,
            faults: faults_of,
            ports: &mut BTreeMap::new(),
            table: &crate::service::Table::new(crate::id::NodeId(1)),
        };
        session.handle_carrier(&mut cx, BearerId(bearer), carrier);
        (events.len(), [0, 1].map(|link: usize| session.links[link].usable()))
    };
    let asks_at =
        |session: &Session| [0, 1].map(|link: usize| session.links[link].probe_due_at(&config(), true));
    session.links.iter_mut().for_each(|link| link.spec.lossless = false);
    let before = asks_at(&session);
    assert_eq!(carrier(&mut session, 0, true), (0, [true; 2]), "it never left");
    assert_eq!(asks_at(&session), before);
    assert_eq!(carrier(&mut session, 0, false), (1, [false, true]));
    assert_eq!(session.links[0].state.state(), LinkState::Down);
    assert_eq!(carrier(&mut session, 0, false), (0, [false, true]));
    assert!(session.isolated_since.is_none());
    assert_eq!(carrier(&mut session, 1, false), (1, [false; 2]));
    assert_eq!(session.isolated_since, Some(NOW));
    assert_eq!(carrier(&mut session, 0, true), (0, [false; 2]), "it has to join first");
    assert_eq!(asks_at(&session), [NOW + Duration::ms(50), Instant::NEVER]);
}

#[test]
fn a_hint_concerns_the_links_to_that_place_over_that_bearer() {
    for (bearer, to, hinted) in
        [(0, 0, [true, false]), (1, 1, [false, true]), (0, 1, [false; 2]), (1, 0, [false; 2])]
    {
        let mut session = up(2);
        let to = MediaAddress::from_bytes(&[to]).unwrap();
        for link in &mut session.links {
            link.mtu = crate::link::mtu::Mtu::new(1_200, 1_472);
            link.mtu.on_probe_acked(NOW, 1_472);
        }
        session.handle_mtu_hint(NOW, BearerId(bearer), &to, 1_303);
        let current = session.links.iter_mut().map(|link| (link.mtu.current(), link.mtu.poll_probe(NOW)));
        let told = |hinted| if hinted { (1_200, Some(1_296)) } else { (1_472, None) };
        assert_eq!(current.collect::<Vec<_>>(), hinted.map(told), "sizes are multiples of 8");
    }
}

#[test]
fn a_batch_concerns_the_links_over_its_bearer() {
    let mut session = up(2);
    session.handle_batch_end(NOW, BearerId(1), 240_000_000, 1);
    let bytes = session.links.iter().map(|link| link.received.ack_bytes() > 32 << 10);
    assert_eq!(bytes.collect::<Vec<_>>(), [false, true]);
}

#[test]
fn a_damped_link_is_used_while_no_other_is_left() {
    for (other, carrier, pressed) in [(true, true, false), (false, true, true), (true, false, true)] {
        let mut session = up(3);
        damp(&mut session.links[0]);
        if !other {
            session.links[1].state.handle(NOW, LinkEvent::Silence);
        }
        session.links[1].carrier = carrier;
        session.links[2].state.handle(NOW, LinkEvent::Silence);
        session.note_isolation(NOW);
        let links = session.links.iter().map(|link| link.pressed);
        assert_eq!(links.collect::<Vec<_>>(), [pressed, false, false]);
        assert_eq!(session.links[0].usable(), pressed);
        assert!(session.isolated_since.is_none());
    }
}

/// Lets a link fail until it is damped.
fn damp(link: &mut Link) {
    for _ in 0..20 {
        for event in [LinkEvent::SendFailed, LinkEvent::Joined] {
            link.state.handle(NOW, event);
        }
    }
    assert_eq!(link.state.state(), LinkState::Damped);
}

#[test]
fn each_end_of_a_link_is_counted_once_and_told_to_the_peer() {
    let mut receiver = Receiver::new();
    receiver.session.links = up(2).links;
    for failures in 1..=2 {
        let session = &mut receiver.session;
        send(session, 8);
        assert!(super::outgoing::poll(session, 0).is_some());
        session.links[0].pto_count = 1;
        receiver.call(|session, cx| session.link_event(cx, 0, LinkEvent::SendFailed));
        let link = &receiver.session.links[0];
        assert_eq!((link.stats.failures, link.stats.packets_lost, link.pto_count), (failures, failures, 0));
        // What failed already does not fail again.
        receiver.call(|session, cx| session.link_event(cx, 0, LinkEvent::SendFailed));
        let next = receiver.session.links[0].sent.next() as u32;
        let number = failures as u32 - 1;
        let notice = Notice::LinkSet(LinkId(0), LinkStatus::Down, next);
        assert_eq!(receiver.session.control.take(100), Some((number, &notice)));
        assert!(!receiver.session.control.ready());
        assert_eq!(receiver.events.drain(..).count(), 1);
        // It comes back on probation, and after that for good.
        receiver.session.links[0].pto_count = 1;
        receiver.session.links[0].losses.note(NOW, 0, 9);
        receiver.call(|session, cx| session.link_event(cx, 0, LinkEvent::Joined));
        assert_eq!(receiver.session.links[0].state.state(), LinkState::Probation);
        assert_eq!(receiver.session.links[0].pto_count, 0);
        assert!(receiver.session.links[0].losses.is_none(), "what was lost when it failed tells nothing");
        receiver.session.links[0].pto_count = 1;
        receiver.call(|session, cx| session.link_event(cx, 0, LinkEvent::ProbationOver));
        assert_eq!(
            (receiver.session.links[0].state.state(), receiver.session.links[0].pto_count),
            (LinkState::Up, 0)
        );
        receiver.events.clear();
    }
}

#[test]
fn of_bearers_only_a_peer_is_told_that_understands_what_is_said() {
    let known = wire::FEATURE_BEARERS;
    for (features, told) in [(0, false), (known, true), (u64::MAX, true), (!known, false)] {
        let mut session = up(1);
        session.peer.features = features;
        assert_eq!(session.is_told_of(LinkEvent::BearerClosed), told, "{features:x}");
        assert!(!session.is_told_of(LinkEvent::SendFailed), "{features:x}");
        session.tell_bearer_gone(BearerId(0));
        assert_eq!(session.control.ready(), told, "{features:x}");
    }
}

#[test]
fn a_log_of_control_frames_that_is_full_takes_no_news_of_links() {
    let mut receiver = Receiver::new();
    for n in 0..limits::CONTROL_FRAMES_MAX as u32 {
        receiver.session.notify(Notice::PortClosed(PortId(n)));
    }
    receiver.call(|session, cx| session.link_event(cx, 0, LinkEvent::SendFailed));
    while let Some((_, notice)) = receiver.session.control.take(100) {
        assert!(matches!(notice, Notice::PortClosed(_)));
    }
    assert!(!receiver.session.control.ready());
}
