//! What becomes of a train that was handed to its bearer.

use super::outgoing::*;
use super::*;
use crate::link::mtu::Mtu;
use crate::link::state::LinkState;

fn told(session: &mut Session, train: &Train, outcome: Outcome) -> Vec<Event> {
    let config = config();
    let (mut events, mut drops, mut faults) = (VecDeque::new(), Drops::default(), BTreeMap::new());
    let (events_of, drops_of, faults_of, store) = (&mut events, &mut drops, &mut faults, &mut Memory(None));
    let mut cx = Cx {
        now: NOW,
        config: &config,
        store,
        events: events_of,
        drops: drops_of,
        faults: faults_of,
        ports: &mut BTreeMap::new(),
        table: &crate::service::Table::new(crate::id::NodeId(1)),
    };
    session.handle_sent(&mut cx, train, outcome);
    events.into()
}

#[test]
fn a_train_for_which_there_was_no_room_leaves_later_under_the_same_numbers() {
    let mut session = up(1);
    (0..10).for_each(|_| send(&mut session, 1_000));
    let (train, first) = poll(&mut session, 0).unwrap();
    told(&mut session, &train, Outcome::WouldBlock);
    let link = &session.links[0];
    assert_eq!((link.blocked, link.sent.inflight_bytes(), link.sent.next()), (true, 0, 0));
    assert_eq!((link.stats.trains_dropped_locally, link.stats.trains_sent, link.usable()), (0, 0, true));
    let (train, again) = poll(&mut session, 0).unwrap();
    assert_eq!(again[0].header, first[0].header);
    assert_eq!(again[0].payload_bytes(), first[0].payload_bytes());
    told(&mut session, &train, Outcome::Sent);
    let link = &session.links[0];
    let stats = (link.stats.trains_sent, link.stats.packets_sent, link.stats.bytes_sent);
    assert_eq!((link.blocked, stats), (false, (1, train.packets as u64, train.bytes as u64)));
    assert_eq!(link.sent.inflight_bytes(), train.bytes as u64);
}

#[test]
fn a_train_that_the_local_queue_dropped_is_sent_again_and_says_nothing_of_the_path() {
    let mut session = up(1);
    session.links[0].blocked = true;
    send(&mut session, 1_000);
    let (train, first) = poll(&mut session, 0).unwrap();
    let window = session.links[0].window.cwnd();
    assert!(told(&mut session, &train, Outcome::Dropped).is_empty());
    let link = &session.links[0];
    assert_eq!((link.blocked, link.sent.inflight_bytes(), link.sent.next()), (false, 0, 1));
    assert_eq!(
        (link.stats.trains_dropped_locally, link.stats.packets_lost, link.window.cwnd()),
        (1, 0, window)
    );
    let (_, again) = poll(&mut session, 0).unwrap();
    assert_eq!((again[0].header.number, again[0].payload_bytes()), (1, first[0].payload_bytes()));
}

#[test]
fn a_train_whose_packets_are_too_large_leaves_in_smaller_ones() {
    let mut session = up(1);
    session.links[0].mtu = Mtu::new(1_200, 1_472);
    session.links[0].mtu.on_probe_acked(NOW, 1_472);
    send(&mut session, 1_400);
    let (train, _) = poll(&mut session, 0).unwrap();
    assert_eq!((train.packets, train.segment_bytes), (1, 1_440));
    told(&mut session, &train, Outcome::TooLarge);
    assert_eq!(session.links[0].mtu.current(), 1_200);
    assert_eq!(session.links[0].state.state(), LinkState::Up);
    let (train, _) = poll(&mut session, 0).unwrap();
    assert_eq!((train.packets, train.segment_bytes), (2, 1_200));
}

#[test]
fn a_train_that_its_bearer_cannot_send_goes_by_another_link() {
    let mut session = up(2);
    send(&mut session, 1_000);
    let (train, _) = poll(&mut session, 0).unwrap();
    let events = told(&mut session, &train, Outcome::Failed);
    assert!(matches!(events[..], [Event::Link { link: LinkId(0), to: LinkState::Down, .. }]), "{events:?}");
    assert_eq!(session.links[0].stats.trains_dropped_locally, 1);
    assert_eq!(poll(&mut session, 1).unwrap().1.last().unwrap().payload_bytes(), 1_000);
    // What the others say of their trains makes no link fail.
    for outcome in [Outcome::Sent, Outcome::Dropped, Outcome::WouldBlock, Outcome::TooLarge] {
        let mut session = up(2);
        send(&mut session, 1_000);
        let (train, _) = poll(&mut session, 0).unwrap();
        assert!(told(&mut session, &train, outcome).is_empty());
        assert!(session.links[0].usable());
    }
}

#[test]
fn a_train_that_wants_no_acknowledgement_is_not_sent_again() {
    for outcome in [Outcome::Dropped, Outcome::WouldBlock] {
        let mut session = up(1);
        send(&mut session, 8);
        poll(&mut session, 0).unwrap();
        answer(&mut session.links[0]);
        let (train, _) = poll(&mut session, 0).unwrap();
        told(&mut session, &train, outcome);
        let link = &session.links[0];
        assert_eq!((link.sent.next(), link.sent.is_empty()), (2, false), "nor is the one before it");
        assert_eq!(link.stats.trains_dropped_locally, 0);
        assert!(poll(&mut session, 0).is_none());
    }
}

#[test]
fn the_fate_of_a_train_of_a_link_that_is_gone_changes_nothing() {
    let mut session = up(1);
    send(&mut session, 8);
    let (mut train, _) = poll(&mut session, 0).unwrap();
    train.id.link = 7;
    told(&mut session, &train, Outcome::Failed);
    assert!(session.links[0].usable() && !session.links[0].sent.is_empty());
}

#[test]
fn a_probe_time_out_counts_from_the_first_packet_in_flight() {
    let mut session = up(1);
    let at = |session: &mut Session, ms| {
        send(session, 8);
        poll_at(session, NOW + Duration::ms(ms), 0).unwrap();
        session.links[0].pto_at()
    };
    let first = at(&mut session, 1);
    assert!(first < Instant::NEVER);
    assert_eq!(at(&mut session, 2), first, "it does not put it off");
    incoming::acknowledge(&mut session, &config(), &[(0, 1)]);
    assert_eq!(session.links[0].pto_at(), Instant::NEVER);
    session.links[0].restart_pto(NOW);
    let pto = session.links[0].pto();
    assert_eq!(at(&mut session, 50), NOW + Duration::ms(50) + pto);
}

#[test]
fn messages_that_expire_are_given_up_and_counted() {
    let config = config();
    let mut session = session(&config, &[(Active, 0)]);
    let message = |at| {
        let buffer = BufferId(at);
        (Outgoing { buffer, len: 8, service: None, range: None, tag: None, returns: false }, Instant(at))
    };
    for at in [NOW.0, NOW.0 - 1, NOW.0 + 1] {
        let (message, at) = message(at);
        assert!(session.send_until(NOW - Duration::us(1), FLOW, message, at));
    }
    let mut given_up = Vec::new();
    with_cx(&config, |cx| {
        session.expire(cx);
        given_up.extend(cx.events.iter().map(|event| match event {
            Event::SendFailed { buffer, why: Failure::Expired, .. } => buffer.0,
            other => panic!("{other:?}"),
        }));
    });
    assert_eq!(given_up, [NOW.0 - 1, NOW.0], "the one whose time comes later waits on");
    assert_eq!(session.stats.messages_failed, 2);
}
