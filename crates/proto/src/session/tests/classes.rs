//! As which class a train is to be treated on its way: what a router is told of it.

use super::outgoing::*;
use super::*;
use crate::wire::ProbeKind;

/// The class of what leaves by the first link.
fn class_of_next(session: &mut Session) -> Class {
    poll(session, 0).expect("a train leaves").0.class()
}

#[test]
fn a_train_without_messages_is_control() {
    type Cause<'a> = (&'a str, &'a dyn Fn(&mut Session));
    let causes: [Cause<'_>; 4] = [
        ("a question", &|s| s.links[0].probe = Some(ProbeKind::Liveness)),
        ("an answer", &|s| answer(&mut s.links[0])),
        ("a notice", &|s| s.notify(Notice::PortClosed(PortId(3)))),
        ("an acknowledgement", &|s| s.links[0].received.record(NOW, 0, 100, 0, true, AckWish::Now, false)),
    ];
    for (name, cause) in causes {
        let mut session = up(1);
        cause(&mut session);
        assert_eq!(class_of_next(&mut session), Class::Control, "{name}");
    }
}

#[test]
fn a_train_is_of_the_class_of_its_messages_whatever_rides_along() {
    for class in Class::ALL {
        let mut session = up(1);
        send_by(&mut session, class, 100);
        answer(&mut session.links[0]);
        session.links[0].received.record(NOW, 0, 100, 0, true, AckWish::Now, false);
        session.notify(Notice::PortClosed(PortId(3)));
        let (train, packets) = poll(&mut session, 0).unwrap();
        assert!(packets[0].frames().len() >= 4);
        assert_eq!(train.class(), class);
    }
}

#[test]
fn the_most_urgent_message_decides_wherever_it_is() {
    for (first, second) in Class::ALL.into_iter().flat_map(|first| Class::ALL.map(|second| (first, second))) {
        let mut session = up(1);
        for class in [first, second] {
            send_by(&mut session, class, 100);
        }
        assert_eq!(class_of_next(&mut session), first.min(second), "{first:?} {second:?}");
    }
    // Bulk has its turn: it is what the train begins with.
    let mut session = fast(1_472);
    let first = [Class::Control, Class::Urgent, Class::Bulk, Class::Normal];
    session.schedule.account(Class::Normal, 0, 8 * 65_536);
    assert_eq!(session.schedule.classes(), first);
    send_by(&mut session, Class::Bulk, 2_000);
    send_by(&mut session, Class::Normal, 100);
    assert_eq!(class_of_next(&mut session), Class::Normal);
}

#[test]
fn an_announcement_and_the_pieces_of_a_large_message_are_of_its_class() {
    for class in Class::ALL {
        let mut session = up(1);
        send_by(&mut session, class, 1 << 20);
        assert_eq!(class_of_next(&mut session), class);

        let mut session = up(1);
        start_transfer(&mut session, class, 1 << 20);
        assert_eq!(class_of_next(&mut session), class);
    }
}

#[test]
fn a_train_that_is_filled_again_forgets_the_class_of_the_last_one() {
    let (mut session, mut train) = (up(1), Train::new());
    let mut next = |session: &mut Session| {
        assert!(with_cx(&config(), |cx| session.poll_transmit(cx, BearerId(0), &mut train)));
        train.class()
    };
    send_by(&mut session, Class::Urgent, 100);
    assert_eq!(next(&mut session), Class::Urgent);
    send_by(&mut session, Class::Bulk, 100);
    assert_eq!(next(&mut session), Class::Bulk);
    answer(&mut session.links[0]);
    assert_eq!(next(&mut session), Class::Control);
}
