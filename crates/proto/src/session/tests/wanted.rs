//! What operators want of links, and what they get.

use super::outgoing::*;
use super::*;
use crate::error::LinkSetError;
use crate::wire::Frame;

/// The words for links that the peer is told when link `index` is asked what it has to say.
fn told(session: &mut Session, index: u8) -> Vec<(u16, LinkStatus)> {
    let packets = std::iter::from_fn(|| poll(session, index)).flat_map(|(_, packets)| packets);
    let packets: Vec<Packet> = packets.collect();
    let set = |frame: &Frame<'_>| match frame {
        Frame::LinkSet(set) => Some((set.link.0, set.status)),
        _ => None,
    };
    packets.iter().flat_map(|packet| packet.frames().iter().filter_map(set).collect::<Vec<_>>()).collect()
}

fn hear(session: &mut Session, number: u32, link: u16, status: LinkStatus) {
    let set = wire::LinkSet { control: number, link: LinkId(link), status, number: 0 };
    with_cx(&config(), |cx| {
        let notice = || Notice::LinkSet(set.link, set.status, set.number);
        session.on_control(set.control, notice);
        session.take_notices(cx);
    });
}

#[test]
fn small_messages_avoid_a_link_as_long_as_it_is_standby() {
    let mut session = up(2);
    for (n, link) in session.links.iter_mut().enumerate() {
        link.rtt.sample(NOW, Duration::ms(1 + 9 * n as u64), Duration::ZERO);
    }
    assert_eq!(taken_by(&mut session, &config(), 8), [0], "it is nearer");
    for (status, by) in [(Standby, 1), (Active, 0), (Drain, 1), (Active, 0)] {
        assert_eq!(session.set_link(LinkId(0), status), Ok(()));
        assert_eq!(taken_by(&mut session, &config(), 8), [by], "{status:?}");
    }
}

#[test]
fn the_peer_is_told_each_word_once() {
    let mut session = up(2);
    session.set_link(LinkId(1), Standby).unwrap();
    session.set_link(LinkId(1), Standby).unwrap();
    session.set_link(LinkId(1), Drain).unwrap();
    assert_eq!(told(&mut session, 0), [(1, Standby), (1, Drain)]);
    assert_eq!(told(&mut session, 1), []);
    session.set_link(LinkId(1), Active).unwrap();
    assert_eq!(told(&mut session, 1), [], "it goes as small messages do");
    assert_eq!(told(&mut session, 0), [(1, Active)]);
}

#[test]
fn a_drained_link_keeps_what_is_in_flight_and_takes_nothing_new() {
    let mut session = up(2);
    assert_eq!(taken_by(&mut session, &config(), 12_000), [0]);
    let inflight_bytes = session.links[0].sent.inflight_bytes();
    assert!(inflight_bytes > 12_000);
    session.set_link(LinkId(0), Drain).unwrap();
    assert_eq!(session.links[0].sent.inflight_bytes(), inflight_bytes, "nothing is given up");
    assert_eq!(told(&mut session, 1), [(0, Drain)]);
    for bytes in [8, 12_000, 60_000] {
        assert_eq!(taken_by(&mut session, &config(), bytes), [1], "{bytes} bytes");
        while poll(&mut session, 1).is_some() {}
    }
    assert_eq!(session.links[0].sent.inflight_bytes(), inflight_bytes, "and nothing is added");
}

#[test]
fn the_last_link_that_takes_messages_is_not_drained() {
    let node = NodeId(2);
    let refused = |n| Err(LinkSetError::LastLink(node, LinkId(n)));
    assert_eq!(up(1).set_link(LinkId(0), Drain), refused(0));
    let mut session = up(2);
    session.set_link(LinkId(0), Drain).unwrap();
    assert_eq!(session.set_link(LinkId(1), Drain), refused(1));
    assert_eq!(session.set_link(LinkId(1), Standby), Ok(()), "a standby link still serves");
    assert_eq!(taken_by(&mut session, &config(), 8), [1]);
    assert_eq!(session.set_link(LinkId(1), Drain), refused(1));
    session.set_link(LinkId(0), Active).unwrap();
    session.links[0].carrier = false;
    assert_eq!(session.set_link(LinkId(1), Drain), refused(1), "the other is down");
    session.links[0].carrier = true;
    session.links[0].status_of_peer = Drain;
    assert_eq!(session.set_link(LinkId(1), Drain), refused(1), "the peer drains the other");
    session.links[0].status_of_peer = Active;
    assert_eq!(session.set_link(LinkId(1), Drain), Ok(()));
    assert_eq!(session.links[1].status, Drain);
}

#[test]
fn what_can_not_be_wanted_is_refused() {
    let (mut session, node) = (up(2), NodeId(2));
    let missing = LinkSetError::NoLink(node, LinkId(7));
    assert_eq!(session.set_link(LinkId(7), Standby), Err(missing));
    let down = LinkSetError::Down(node, LinkId(1));
    assert_eq!(session.set_link(LinkId(1), LinkStatus::Down), Err(down));
    while session.control_has_room() {
        session.notify(Notice::PortClosed(PortId(3)));
    }
    assert_eq!(session.set_link(LinkId(1), Standby), Err(LinkSetError::Busy(node)));
    assert_eq!(session.links[1].status, Active, "the peer would not know");
}

#[test]
fn the_stricter_word_of_both_ends_holds() {
    let mut session = up(2);
    for (number, (own, of_peer, wanted)) in (0..).zip([
        (Active, Standby, Standby),
        (Drain, Standby, Drain),
        (Standby, Drain, Drain),
        (Standby, Active, Standby),
        (Active, Active, Active),
    ]) {
        session.set_link(LinkId(0), own).unwrap();
        hear(&mut session, number, 0, of_peer);
        assert_eq!(session.links[0].wanted(), wanted);
        let by = (wanted != Active) as usize;
        assert_eq!(taken_by(&mut session, &config(), 8), [by], "{own:?} {of_peer:?}");
    }
    hear(&mut session, 5, 9, Drain);
    assert!(session.links.iter().all(|link| link.wanted() == Active), "no link of that number");
}

#[test]
fn what_the_peer_wants_of_a_link_gives_it_work_again() {
    let mut session = up(1);
    hear(&mut session, 0, 0, Drain);
    assert_eq!(taken_by(&mut session, &config(), 8), [0; 0]);
    assert!(session.is_quiet(NOW, BearerId(0)));
    hear(&mut session, 1, 0, Active);
    assert!(!session.is_quiet(NOW, BearerId(0)));
    assert_eq!(transmit(&mut session, &config()), [0]);
}

#[test]
fn a_link_that_joins_late_is_told_what_is_wanted_of_it() {
    let mut session = up(2);
    session.links[1].state = crate::link::state::State::new(NOW);
    session.set_link(LinkId(1), Standby).unwrap();
    assert_eq!(told(&mut session, 0), [(1, Standby)], "which the peer may not understand yet");
    with_cx(&config(), |cx| session.link_event(cx, 1, LinkEvent::Joined));
    assert_eq!(told(&mut session, 0), [(1, Standby)]);
    with_cx(&config(), |cx| {
        session.link_event(cx, 1, LinkEvent::Silence);
        session.link_event(cx, 1, LinkEvent::ProofOfLife);
    });
    assert_eq!(told(&mut session, 0), [], "it knows");
}
