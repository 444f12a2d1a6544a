//! Policies that decide by which link a message goes before any of it leaves.

use super::outgoing::*;
use super::*;
use crate::config::Policy;
use crate::wire::{BearerState, Frame, ProbeKind};

/// A session of node 1 with so many fast links, and a policy.
fn with(policy: Policy, links: usize) -> Session {
    let config = Config { policy, ..config() };
    let mut session = super::session(&config, &vec![(Active, 0); links]);
    session.links.iter_mut().for_each(make_fast);
    session
}

/// Payload bytes that leave by a link until nothing more does.
fn drained(session: &mut Session, link: u8) -> usize {
    let mut bytes = 0;
    while let Some((_, packets)) = poll(session, link) {
        bytes += packets.iter().map(Packet::payload_bytes).sum::<usize>();
    }
    bytes
}

/// What each link takes of what waits, asked one after the other until none takes any more.
fn shares(session: &mut Session) -> Vec<usize> {
    let mut bytes = vec![0; session.links.len()];
    loop {
        let before = bytes.clone();
        for (link, bytes) in bytes.iter_mut().enumerate() {
            *bytes += drained(session, link as u8);
        }
        if bytes == before {
            return bytes;
        }
    }
}

/// The payload bytes that each link takes of a message.
fn shares_of(session: &mut Session, bytes: u64) -> Vec<usize> {
    send(session, bytes);
    let taken = shares(session);
    session.links.iter_mut().for_each(|link| _ = link.sent.abandon(|_| ()));
    taken
}

/// The payload bytes that each link takes of a large message that was granted.
fn parts_of(session: &mut Session, bytes: u64) -> Vec<usize> {
    send_by(session, Class::Normal, bytes);
    let announced = (0..session.links.len() as u8).find_map(|link| {
        let (_, packets) = poll(session, link)?;
        packets.iter().flat_map(Packet::frames).find_map(|frame| match frame {
            Frame::Rts(rts) => Some(rts.token),
            _ => None,
        })
    });
    let token = announced.expect("the announcement leaves");
    session.on_cts(&wire::Cts { token, transfer: crate::id::TransferId(1), granted: bytes, done: 0 });
    session.quiet.stir();
    shares(session)
}

#[test]
fn round_robin_takes_the_links_in_turn() {
    let mut session = with(Policy::RoundRobin, 3);
    let first = (0..4).map(|_| shares_of(&mut session, 8)).collect::<Vec<_>>();
    assert_eq!(first, [[8, 0, 0], [0, 8, 0], [0, 0, 8], [8, 0, 0]]);
    assert_eq!(shares_of(&mut session, 60_000), [0, 60_000, 0], "also if it goes in pieces");
    (0..6).for_each(|_| send(&mut session, 100));
    assert_eq!(shares(&mut session), [200, 200, 200], "several that wait too");
}

#[test]
fn each_of_several_messages_has_its_own_link_beside_those_that_choose_theirs_late() {
    let mut rules = config();
    rules.class_policies[Class::Urgent as usize] = Some(Policy::RoundRobin);
    let mut session = super::session(&rules, &[(Active, 0); 2]);
    session.links.iter_mut().for_each(make_fast);
    send(&mut session, 8);
    (0..6).for_each(|_| send_by(&mut session, Class::Urgent, 100));
    let mut shares = shares(&mut session);
    shares.sort_unstable();
    assert_eq!(shares, [300, 308]);
}

#[test]
fn round_robin_cuts_large_messages_in_equal_parts() {
    let mut session = with(Policy::RoundRobin, 2);
    let parts = parts_of(&mut session, 512 << 10);
    assert_eq!(parts.iter().sum::<usize>(), 512 << 10);
    assert!(parts[0].abs_diff(parts[1]) < 3_000, "{parts:?}");
}

#[test]
fn a_part_whose_link_fails_is_carried_by_the_others() {
    let mut session = with(Policy::RoundRobin, 2);
    send_by(&mut session, Class::Normal, 512 << 10);
    grant_announced(&mut session, 1, 512 << 10);
    session.quiet.stir();
    let first = drained(&mut session, 0);
    assert!(first > 250_000 && first < 270_000, "{first}");
    assert_eq!(drained(&mut session, 0), 0, "it has done its part");
    session.links[1].status = crate::wire::LinkStatus::Down;
    session.quiet.stir();
    assert_eq!(first + drained(&mut session, 0), 512 << 10);
}

#[test]
fn a_static_flow_keeps_its_link_and_moves_only_if_that_goes() {
    let mut session = with(Policy::Static, 4);
    let home = shares_of(&mut session, 8).iter().position(|&bytes| bytes == 8).unwrap();
    for bytes in [8, 1_000, 60_000] {
        assert_eq!(shares_of(&mut session, bytes)[home], bytes as usize);
    }
    session.links[(home + 1) % 4].status = Drain;
    assert_eq!(shares_of(&mut session, 8)[home], 8, "another one's end is not its concern");
    session.links[home].status = Drain;
    let moved = shares_of(&mut session, 8);
    assert_eq!((moved[home], moved.iter().sum::<usize>()), (0, 8));
    session.links[home].status = Active;
    assert_eq!(parts_of(&mut session, 512 << 10)[home], 512 << 10);
}

#[test]
fn static_flows_are_spread_over_the_links() {
    let mut session = with(Policy::Static, 2);
    for to in 0..64 {
        let message =
            Outgoing { buffer: BufferId(1), len: 100, service: None, range: None, tag: None, returns: false };
        assert!(session.send(NOW, FlowKey { to: PortId(1_000 + to), ..FLOW }, message));
    }
    let shares = shares(&mut session);
    assert!(shares.iter().all(|&bytes| bytes > 1_600) && shares[0] + shares[1] == 6_400, "{shares:?}");
}

#[test]
fn one_way_leaves_every_other_link_to_the_peer() {
    // This is node 1, and the peer node 2.
    let mut session = with(Policy::OneWay, 2);
    assert_eq!(shares_of(&mut session, 8), [8, 0]);
    assert_eq!(parts_of(&mut session, 512 << 10), [512 << 10, 0]);
    let mut session = with(Policy::OneWay, 2);
    session.links[0].status = Drain;
    assert_eq!(shares_of(&mut session, 8), [0, 8], "if it has one of its own");
}

#[test]
fn mnc_takes_the_first_free_link_and_busy_ones_in_turn() {
    let mut session = with(Policy::Mnc, 3);
    assert_eq!(shares_of(&mut session, 8), [8, 0, 0]);
    let train = session.links[0].train_bytes();
    fill_window(&mut session.links[0], train);
    send(&mut session, 8);
    assert_eq!(shares(&mut session), [0, 8, 0]);
    (1..3).for_each(|link| fill_window(&mut session.links[link], train));
    (0..3).for_each(|_| send(&mut session, 8));
    assert_eq!(shares(&mut session), [8, 8, 8]);
}

#[test]
fn mnc_cuts_large_messages_for_the_links_that_are_free_at_both_ends() {
    let mut session = with(Policy::Mnc, 3);
    let busy = |bearer, seq, tx_state| BearerState {
        bearer: BearerId(bearer),
        tx_state,
        rx_state: tx_state,
        tx_backlog: 0,
        rx_backlog: 0,
        rx_window: 0,
        senders: 0,
        rx_rate: 0,
        seq,
    };
    let hear = |session: &mut Session, state| session.assigners.on_state(NOW, &state);
    hear(&mut session, busy(1, 2, 2));
    hear(&mut session, busy(1, 1, 1));
    let parts = parts_of(&mut session, 512 << 10);
    assert!(parts[1] == 0 && parts[0].abs_diff(parts[2]) < 3_000, "an old report says nothing: {parts:?}");
    let mut session = with(Policy::Mnc, 2);
    hear(&mut session, busy(1, 1, 2));
    hear(&mut session, busy(1, 2, 1));
    let parts = parts_of(&mut session, 512 << 10);
    assert!(parts[0].abs_diff(parts[1]) < 3_000, "{parts:?}");
}

#[test]
fn mnc_tells_the_peer_once_which_of_its_links_are_busy() {
    let mut session = with(Policy::Mnc, 2);
    let train = session.links[1].train_bytes();
    fill_window(&mut session.links[1], train);
    send(&mut session, 8);
    let told = |session: &mut Session| {
        let (_, packets) = poll(session, 0).expect("the message leaves");
        let states = packets.iter().flat_map(Packet::frames).filter_map(|frame| match frame {
            Frame::BearerState(state) => Some((state.bearer.0, state.tx_state)),
            _ => None,
        });
        states.collect::<Vec<_>>()
    };
    assert_eq!(told(&mut session), [(1, 2)]);
    send(&mut session, 8);
    assert_eq!(told(&mut session), []);
}

#[test]
fn a_bearer_is_busy_as_long_as_one_of_its_links_is() {
    let mut session = with(Policy::Mnc, 2);
    session.links[0].spec.bearer = BearerId(1);
    let train = session.links[0].train_bytes();
    let told =
        |session: &mut Session| session.assigners.report(&session.links).map(|s| (s.bearer.0, s.tx_state));
    assert_eq!(told(&mut session), None);
    fill_window(&mut session.links[1], train);
    assert_eq!((told(&mut session), told(&mut session)), (Some((1, 2)), None));
    fill_window(&mut session.links[0], train);
    assert_eq!(told(&mut session), None);
    session.links[1].sent.abandon(|_| ());
    assert_eq!(told(&mut session), None, "the other one still is");
    session.links[0].sent.abandon(|_| ());
    assert_eq!(told(&mut session), Some((1, 1)));
}

#[test]
fn mnc_rtt_asks_before_each_large_message() {
    let mut session = with(Policy::MncRtt, 2);
    assert_eq!(shares_of(&mut session, 8), [8, 0], "small ones do not wait");
    assert_eq!(parts_of(&mut session, 512 << 10), [0, 0]);
    assert_eq!(session.links[0].take_probe(NOW).map(|probe| probe.kind), None, "the question has left");
    session.assigners.on_answer();
    session.quiet.stir();
    let parts = shares(&mut session);
    assert!(parts[0] + parts[1] == 512 << 10 && parts[0].abs_diff(parts[1]) < 3_000, "{parts:?}");
    // Without an answer it goes after a while.
    let mut session = with(Policy::MncRtt, 1);
    assert_eq!(parts_of(&mut session, 100_000), [0]);
    session.quiet.stir();
    let late = poll_at(&mut session, NOW + Duration::ms(11), 0).map(|(_, packets)| packets);
    assert!(late.iter().flatten().any(|packet| packet.payload_bytes() > 0));
}

#[test]
fn mnc_rtt_asks_for_the_next_one_though_an_answer_was_lost() {
    let mut session = with(Policy::MncRtt, 1);
    send_by(&mut session, Class::Normal, 100_000);
    grant_announced(&mut session, 1, 100_000);
    session.quiet.stir();
    assert_eq!(drained(&mut session, 0), 0);
    // The flow is over, and nobody waits for that answer any more.
    let token = session.sending.transfers.iter().next().unwrap().0;
    session.sending.transfers.remove(token);
    let later = NOW + Duration::ms(11);
    send_by(&mut session, Class::Bulk, 100_000);
    let (_, packets) = poll_at(&mut session, later, 0).expect("the announcement leaves");
    let announced = packets.iter().flat_map(Packet::frames).find_map(|frame| match frame {
        Frame::Rts(rts) => Some(rts.token),
        _ => None,
    });
    let token = announced.unwrap();
    session.on_cts(&wire::Cts { token, transfer: crate::id::TransferId(2), granted: 100_000, done: 0 });
    session.quiet.stir();
    let asked = poll_at(&mut session, later, 0).map(|(_, packets)| packets);
    let probes = |packet: &Packet| packet.frames().iter().any(|frame| matches!(frame, Frame::Probe(_)));
    assert!(asked.iter().flatten().any(probes));
}

#[test]
fn the_question_of_mnc_rtt_is_of_its_kind() {
    let mut session = with(Policy::MncRtt, 1);
    send_by(&mut session, Class::Normal, 100_000);
    grant_announced(&mut session, 1, 100_000);
    session.quiet.stir();
    let (_, packets) = poll(&mut session, 0).expect("the question leaves");
    let asked = packets.iter().flat_map(Packet::frames).any(|frame| match frame {
        Frame::Probe(probe) => probe.kind == ProbeKind::State,
        _ => false,
    });
    assert!(asked);
}

#[test]
fn redundant_messages_go_by_every_link_once() {
    let mut session = with(Policy::Redundant, 3);
    assert_eq!(shares_of(&mut session, 8), [8, 8, 8]);
    assert_eq!(shares_of(&mut session, 60_000), [60_000; 3], "also if they go in pieces");
    assert_eq!(parts_of(&mut session, 512 << 10), [512 << 10; 3], "or as large ones");
    session.links[1].status = Drain;
    assert_eq!(shares_of(&mut session, 8), [8, 0, 8], "by those that serve");
}

#[test]
fn of_redundant_messages_only_what_is_missing_goes() {
    let mut session = with(Policy::Redundant, 2);
    send(&mut session, 3_000);
    assert_eq!(drained(&mut session, 0), 3_000);
    let flow = session.sending.flows.iter_mut().next().unwrap().1;
    flow.confirm_part(0, 0, 2_000, |_| ());
    session.quiet.stir();
    let rest = drained(&mut session, 1);
    assert!(rest > 0 && rest < 2_000, "{rest}");
    send(&mut session, 8);
    assert_eq!(drained(&mut session, 0), 8);
    let flow = session.sending.flows.iter_mut().next().unwrap().1;
    flow.confirm_whole(0, 2, |_| ());
    session.quiet.stir();
    assert_eq!(drained(&mut session, 1), 0, "the other copy has arrived");
}

#[test]
fn a_copy_that_no_packet_of_a_link_takes_is_left_to_the_others() {
    let config = Config { policy: Policy::Redundant, ..config() };
    let mut session = session_with_mtu(&config, &[(Active, 0); 2], 8_968);
    session.links.iter_mut().for_each(make_fast);
    session.links[1].mtu = crate::link::mtu::Mtu::new(1_472, 1_472);
    send(&mut session, 5_000);
    send(&mut session, 8);
    assert_eq!(drained(&mut session, 0), 5_008);
    assert_eq!(drained(&mut session, 1), 8, "and does not hold up what follows");
    assert!(session.links[1].copies.is_empty());
}

#[test]
fn a_link_that_falls_far_behind_gets_no_more_copies() {
    let mut session = with(Policy::Redundant, 2);
    let old = Item::Messages { flow: 77, first: 1, count: 1 };
    session.links[1].copies.extend([old; 1_020]);
    for _ in 0..8 {
        send(&mut session, 8);
        assert_eq!(drained(&mut session, 0), 8);
    }
    assert_eq!(session.links[1].copies.len(), 1_024);
    assert_eq!(drained(&mut session, 1), 4 * 8, "those of a flow that is gone cost nothing");
    assert_eq!(session.stats.messages_copied, 4);
}

#[test]
fn each_flow_goes_by_the_policy_of_its_port_or_its_class() {
    let mut rules = config();
    rules.class_policies[Class::Urgent as usize] = Some(Policy::Redundant);
    let mut session = super::session(&rules, &[(Active, 0); 2]);
    session.links.iter_mut().for_each(make_fast);
    session.set_policy(FLOW.from, Some(Policy::Static));
    let other = PortId(FLOW.from.0 + 1);
    let mut shares_of = |from: PortId, class| {
        let message =
            Outgoing { buffer: BufferId(1), len: 8, service: None, range: None, tag: None, returns: false };
        assert!(session.send(NOW, FlowKey { from, class, ..FLOW }, message));
        shares(&mut session).iter().sum::<usize>()
    };
    assert_eq!((shares_of(other, Class::Normal), shares_of(other, Class::Urgent)), (8, 16));
    assert_eq!(shares_of(FLOW.from, Class::Urgent), 8, "the port's own counts");
    let policies = session.sending.flows.iter().map(|(_, flow)| flow.policy).collect::<Vec<_>>();
    assert_eq!(policies, [None, Some(0), Some(1)]);
    let told = session.flows().map(|flow| flow.policy).collect::<Vec<_>>();
    assert_eq!(told, [Policy::Static, Policy::Redundant, Policy::Adaptive], "in the order of their ports");
    session.set_policy(FLOW.from, None);
    session.forget_sender(FLOW.from);
    let mut again = session.assigners.number_for(&FlowKey { class: Class::Normal, ..FLOW });
    assert_eq!(again.take(), None, "it was forgotten with the port");
}
