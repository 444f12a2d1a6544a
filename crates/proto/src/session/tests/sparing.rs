//! Links that are left out of large messages where one delivers as much.

use super::outgoing::*;
use super::*;
use crate::wire::Frame;

const MS: Duration = Duration::ms(1);

/// A session with two links, all full, for which much more waits.
fn saturated() -> Session {
    let mut session = up(2);
    session.links.iter_mut().for_each(make_fast);
    start_transfer(&mut session, Class::Normal, 64 << 20);
    session
}

/// Lets time pass in which the links deliver together so many MB in a millisecond, and the second more of them.
fn run(session: &mut Session, now: &mut Instant, span: Duration, mb: u64) {
    let end = *now + span;
    while *now < end {
        *now += MS;
        session.links[0].delivered_bytes += mb * 400_000;
        session.links[1].delivered_bytes += mb * 600_000;
        session.try_bottleneck(*now);
        session.try_sparing(*now);
    }
}

/// A session of which the second link takes all, and the moment.
fn spared() -> (Session, Instant) {
    let (mut session, mut now) = (saturated(), NOW);
    run(&mut session, &mut now, Duration::ms(150), 2);
    assert_eq!(session.kept(now), Some(1));
    (session, now)
}

fn shares(session: &Session, now: Instant) -> [bool; 2] {
    [0, 1].map(|link| session.share_of(now, link) > 0)
}

#[test]
fn the_link_that_delivers_most_takes_all_large_messages_and_their_announcements() {
    let (mut session, now) = spared();
    assert_eq!((session.share_of(now, 0), session.share_of(now, 1)), (0, u64::MAX));
    let outlook = session.outlook(1 << 20);
    assert_eq!([outlook.links[0].part, outlook.links[1].part], [Part::Spared, Part::Pulls]);
    // The other has nothing to do, though it is the choice of small messages.
    session.links.iter_mut().for_each(|link| link.rtt.sample(now, Duration::us(50), Duration::ZERO));
    let before = session.outlook(1 << 20).announcement;
    fill_window(&mut session.links[1], 64 << 10);
    assert!(before < session.outlook(1 << 20).announcement, "it waits behind the pieces");
    assert_eq!(session.choice.make(now, &session.links, Class::Normal, 64), Some(0));
    assert_eq!([0, 1].map(|link| session.has_message_for(now, link)), [false, true]);
    assert!(poll_at(&mut session, now, 0).is_none());
    send_by(&mut session, Class::Urgent, 1 << 20);
    assert!(poll_at(&mut session, now, 0).is_none(), "not even an announcement");
    let (_, packets) = poll_at(&mut session, now, 1).expect("all goes by the second");
    assert!(packets.iter().flat_map(Packet::frames).any(|frame| matches!(frame, Frame::Rts(_))));
    assert_eq!(small_bytes_by_choice(&mut session, now), 64);
}

/// Payload bytes that leave by the first link, the choice, of a small message.
fn small_bytes_by_choice(session: &mut Session, now: Instant) -> usize {
    send_by(session, Class::Bulk, 64);
    let (_, packets) = poll_at(session, now, 0).expect("a small message goes by its choice");
    packets.iter().map(Packet::payload_bytes).sum()
}

#[test]
fn a_small_message_does_not_wait_for_an_announcement_before_it() {
    let (mut session, now) = spared();
    fill_window(&mut session.links[1], 64 << 10);
    send_by(&mut session, Class::Urgent, 1 << 20);
    assert_eq!(small_bytes_by_choice(&mut session, now), 64);
}

#[test]
fn messages_whose_link_was_decided_before_are_not_kept_from_it() {
    let (mut session, now) = spared();
    session.set_policy(PortId(1), Some(crate::config::Policy::Static));
    send_by(&mut session, Class::Bulk, 1 << 20);
    assert!(session.kept(now).is_none() && session.has_message_for(now, 0));
}

#[test]
fn none_is_left_out_once_a_link_has_no_room_or_the_one_that_takes_all_does_not_serve() {
    let (mut session, now) = spared();
    let config = config();
    let (train, _) = poll_at(&mut session, now, 1).unwrap();
    with_cx(&config, |cx| session.handle_sent(cx, &train, Outcome::WouldBlock));
    assert_eq!(shares(&session, now), [true, true], "a bearer has no room");
    let (mut session, now) = spared();
    session.links[1].status = Drain;
    assert!(session.kept(now).is_none() && session.share_of(now, 0) > 0, "it is drained");
    session.links[1].status = Active;
    assert_eq!(session.kept(now), Some(1));
    session.links[1].carrier = false;
    assert!(session.kept(now).is_none() && session.share_of(now, 0) > 0, "it has no carrier");
}

#[test]
fn all_are_tried_again_once_links_are_others() {
    let (mut session, mut now) = spared();
    session.forget_choices();
    assert_eq!(shares(&session, now), [true, true]);
    run(&mut session, &mut now, Duration::ms(40), 2);
    assert_eq!(shares(&session, now), [true, true], "not before much has passed for long enough");
    run(&mut session, &mut now, Duration::ms(200), 2);
    assert_eq!(session.kept(now), Some(1));
    // One that only stands by does not matter.
    let (mut session, mut now) = (super::session(&config(), &[(Active, 0), (Active, 0), (Standby, 0)]), NOW);
    session.links.iter_mut().for_each(make_fast);
    start_transfer(&mut session, Class::Normal, 64 << 20);
    run(&mut session, &mut now, Duration::ms(150), 2);
    assert_eq!(session.kept(now), Some(1));
}

#[test]
fn none_is_left_out_where_nothing_is_heard_or_little_passes() {
    let (session, now) = spared();
    assert!(session.kept(now + Duration::ms(200)).is_none(), "nothing is heard");
    let (mut session, mut now) = spared();
    run(&mut session, &mut now, Duration::ms(150), 1);
    assert!(session.kept(now).is_none(), "half as much");
}

#[test]
fn who_was_left_out_is_asked_again_once_that_is_over() {
    let (mut session, mut now) = spared();
    while session.kept(now).is_some() {
        assert!(poll_at(&mut session, now + MS, 0).is_none());
        assert!(session.is_quiet(now + MS, BearerId(0)));
        run(&mut session, &mut now, MS, 1);
    }
    assert!(!session.is_quiet(now, BearerId(0)));
    let (_, packets) = poll_at(&mut session, now, 0).expect("it takes pieces");
    assert!(packets.iter().map(Packet::payload_bytes).sum::<usize>() > 10_000);
}

#[test]
fn a_link_that_serves_alone_is_not_tried() {
    let (mut session, mut now) = (saturated(), NOW);
    session.links[0].status = Drain;
    run(&mut session, &mut now, Duration::ms(150), 2);
    assert!(!session.sparing.is_trying());
}

#[test]
fn a_trial_of_bottlenecks_and_one_of_sparing_do_not_meet() {
    let bottleneck = |session: &mut Session, now: &mut Instant| {
        *now += MS;
        session.links.iter_mut().for_each(|link| link.delivered_bytes += 1_000_000);
        session.try_bottleneck(*now);
        session.trials.is_trying()
    };
    let (mut session, mut tried_at) = (saturated(), NOW);
    while !bottleneck(&mut session, &mut tried_at) {}
    // Sparing may begin so long before that, or just then.
    for before_ms in (0..120).step_by(5) {
        let (mut session, mut now) = (saturated(), NOW);
        while now + Duration::ms(before_ms) < tried_at {
            bottleneck(&mut session, &mut now);
        }
        for _ in 0..400 {
            bottleneck(&mut session, &mut now);
            session.try_sparing(now);
            assert!(!(session.trials.is_trying() && session.sparing.is_trying()), "{before_ms} ms before");
        }
    }
}
