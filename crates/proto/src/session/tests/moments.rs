//! What a session does when its time comes.

use super::outgoing::*;
use super::*;
use crate::link::state::LinkState;
use crate::wire::{Frame, ProbeKind};

fn timeout(session: &mut Session, now: Instant) {
    with_cx(&config(), |cx| {
        cx.now = now;
        session.handle_timeout(cx);
    });
}

/// The numbers of the messages in what leaves by that link at that moment.
fn seqs(session: &mut Session, now: Instant, link: u8) -> Vec<u32> {
    let of_frame = |frame: Frame<'_>| if let Frame::Message(m, _) = frame { Some(m.seq) } else { None };
    let packets = poll_at(session, now, link).map(|(_, packets)| packets).unwrap_or_default();
    packets.iter().flat_map(Packet::frames).filter_map(of_frame).collect()
}

#[test]
fn what_a_link_that_is_not_usable_asked_in_vain_is_forgotten_after_a_second() {
    for usable in [false, true] {
        let mut session = up(1);
        let link = &mut session.links[0];
        if !usable {
            link.state = crate::link::state::State::new(NOW);
        }
        link.probe = Some(ProbeKind::Join);
        assert!(poll(&mut session, 0).is_some());
        timeout(&mut session, NOW + UNANSWERED - Duration(1));
        assert!(!session.links[0].sent.is_empty());
        timeout(&mut session, NOW + UNANSWERED);
        assert_eq!(session.links[0].sent.is_empty(), !usable);
    }
}

#[test]
fn losses_are_looked_for_when_it_is_time() {
    let mut session = up(1);
    for _ in 0..2 {
        send(&mut session, 8);
        poll(&mut session, 0).unwrap();
    }
    incoming::acknowledge(&mut session, &config(), &[(1, 1)]);
    let at = session.links[0].loss_at();
    assert!(at > NOW && at < Instant::NEVER);
    timeout(&mut session, at - Duration(1));
    assert_eq!(session.links[0].stats.packets_lost, 0);
    timeout(&mut session, at);
    assert_eq!((session.links[0].stats.packets_lost, session.links[0].loss_at()), (1, Instant::NEVER));
    assert_eq!(seqs(&mut session, at, 0), [0]);
}

#[test]
fn copies_of_the_youngest_packets_leave_only_if_there_is_another_way() {
    for (links, copied) in [(1, vec![0]), (2, vec![0, 1])] {
        let mut session = up(links);
        send(&mut session, 8);
        assert_eq!(seqs(&mut session, NOW, 0), [0]);
        let at = session.links[0].pto_at();
        send(&mut session, 8);
        // Less than a round trip before.
        let young = at - session.links[0].rtt.srtt() + Duration(1);
        assert_eq!(seqs(&mut session, young, 0), [1]);
        for times in 1..=2 {
            let at = session.links[0].pto_at();
            timeout(&mut session, at);
            assert_eq!(session.links[0].stats.probe_timeouts, times);
            if times == 1 {
                assert_eq!(seqs(&mut session, at, links as u8 - 1), copied);
            }
        }
        assert_eq!(session.links[0].state.state(), LinkState::Suspect);
    }
}

#[test]
fn a_peer_that_is_silent_on_the_only_link_gets_no_more_than_one_train_again() {
    for (links, again) in [(1, vec![0]), (2, vec![0, 1, 2])] {
        let mut session = up(links);
        for seq in 0..3 {
            send(&mut session, 8);
            assert_eq!(seqs(&mut session, NOW, 0), [seq]);
        }
        let other = links as u8 - 1;
        let at = session.links[0].pto_at();
        timeout(&mut session, at);
        assert_eq!(seqs(&mut session, at, other), again);
        let at = session.links[0].pto_at();
        timeout(&mut session, at);
        assert_eq!(session.links[0].state.state(), LinkState::Suspect);
        with_cx(&config(), |cx| session.link_event(cx, 0, crate::link::state::LinkEvent::ProofOfLife));
        assert!(seqs(&mut session, at, other).is_empty(), "it was there all the time");
    }
}

#[test]
fn a_link_that_was_down_already_is_not_announced_as_down_when_it_is_damped() {
    let mut session = up(1);
    let mut announced = 0;
    for _ in 0..20 {
        for event in [LinkEvent::SendFailed, LinkEvent::Joined] {
            let before = session.links[0].state.state();
            with_cx(&config(), |cx| session.link_event(cx, 0, event));
            announced += (before != LinkState::Down) as usize;
        }
    }
    assert_eq!(session.links[0].state.state(), LinkState::Damped);
    let told = std::iter::from_fn(|| session.control.take(100).map(|(number, _)| number));
    assert_eq!(told.count(), announced);
}

#[test]
fn a_keepalive_leaves_when_it_is_due_and_sooner_from_a_busy_session() {
    let config = config();
    for (busy, every) in [(true, config.keepalive_busy), (false, config.keepalive_idle)] {
        let mut session = up(1);
        session.links[0].spec.lossless = false;
        session.links[0].mtu = crate::link::mtu::Mtu::new(1_472, 1_472);
        session.note_isolation(NOW);
        session.last_app_at = if busy { NOW } else { Instant::ZERO };
        assert_eq!(session.deadline(NOW, &config), NOW + every);
        timeout(&mut session, NOW + every - Duration(1));
        assert!(poll_at(&mut session, NOW + every - Duration(1), 0).is_none());
        timeout(&mut session, NOW + every);
        let (_, packets) = poll_at(&mut session, NOW + every, 0).unwrap();
        assert!(
            matches!(packets[0].frames()[..], [Frame::Probe(ref probe)] if probe.kind == ProbeKind::Liveness)
        );
    }
}

#[test]
fn a_session_wants_to_be_looked_at_when_a_doubt_ends() {
    let mut session = up(1);
    session.note_isolation(NOW);
    session.doubt(NOW);
    assert_eq!(session.deadline(NOW, &config()), NOW + DOUBT);
    session.handle_stall(Duration::ms(7));
    assert!(
        !session.is_lost(NOW + DOUBT + Duration::ms(6)) && session.is_lost(NOW + DOUBT + Duration::ms(7))
    );
}
