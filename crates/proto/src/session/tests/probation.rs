//! Links that are back from the dead take no messages of control and urgent while one that is up serves.

use super::outgoing::*;
use super::unequal::rates;
use super::*;
use crate::link::state::LinkState;

const URGENT: [Class; 2] = [Class::Control, Class::Urgent];

fn put_on_probation(link: &mut Link) {
    link.state.handle(NOW, LinkEvent::CarrierLost);
    link.state.handle(NOW, LinkEvent::CarrierBack);
    link.state.handle(NOW + Duration::s(1), LinkEvent::Joined);
    assert_eq!(link.state.state(), LinkState::Probation);
}

/// A link that is up and one on probation, which is nearer.
fn session_on_trial() -> Session {
    let mut session = up(2);
    session.links[0].rtt.sample(NOW, Duration::us(900), Duration::ZERO);
    session.links[1].rtt.sample(NOW, Duration::us(100), Duration::ZERO);
    put_on_probation(&mut session.links[1]);
    session
}

/// The bytes of messages that each link takes, asked in this order until none takes any more.
fn taken(session: &mut Session, order: [u8; 2]) -> [usize; 2] {
    let mut bytes = [0; 2];
    loop {
        let before = bytes;
        for link in order {
            let packets = poll(session, link).map_or(vec![], |(_, packets)| packets);
            bytes[link as usize] += packets.iter().map(Packet::payload_bytes).sum::<usize>();
        }
        if bytes == before {
            return bytes;
        }
    }
}

#[test]
fn urgent_messages_leave_by_the_link_that_is_up_and_others_by_the_nearest() {
    for order in [[0, 1], [1, 0]] {
        for class in Class::ALL {
            let mut session = session_on_trial();
            send_by(&mut session, class, 8);
            let by = if URGENT.contains(&class) { [8, 0] } else { [0, 8] };
            assert_eq!(taken(&mut session, order), by, "{class:?} {order:?}");
        }
        // What shares the packet goes the same way.
        let mut session = session_on_trial();
        send_by(&mut session, Class::Normal, 16);
        send_by(&mut session, Class::Urgent, 8);
        assert_eq!(taken(&mut session, [0, 1]), [24, 0]);
    }
}

#[test]
fn urgent_messages_leave_by_a_link_on_probation_if_none_that_is_up_serves() {
    type Reason = (&'static str, fn(&mut Link));
    let reasons: [Reason; 5] = [
        ("it is on probation too", put_on_probation),
        ("it is suspect", |link| assert!(link.state.handle(NOW, LinkEvent::Silence).is_some())),
        ("it is in doubt", |link| link.pto_count = 1),
        ("it is standby", |link| link.status = Standby),
        ("it is drained", |link| link.status = Drain),
    ];
    for ((name, reason), class) in reasons.iter().flat_map(|reason| URGENT.map(|class| (reason, class))) {
        let mut session = session_on_trial();
        reason(&mut session.links[0]);
        send_by(&mut session, class, 8);
        assert_eq!(taken(&mut session, [0, 1]), [0, 8], "{name}");
    }
}

#[test]
fn an_urgent_message_waits_for_room_and_keeps_nobody_else_waiting() {
    let mut session = session_on_trial();
    fill_window(&mut session.links[0], 2 << 20);
    send_by(&mut session, Class::Urgent, 8);
    assert_eq!(taken(&mut session, [1, 0]), [0, 0]);
    send_by(&mut session, Class::Bulk, 16);
    assert_eq!(taken(&mut session, [1, 0]), [0, 16]);
    session.links[0].state.handle(NOW, LinkEvent::CarrierLost);
    session.quiet.stir();
    assert_eq!(taken(&mut session, [1, 0]), [0, 8]);
}

#[test]
fn large_messages_that_are_urgent_are_not_divided_with_a_link_on_probation() {
    for (mbit, bytes) in
        [([1_000, 1_000], 60_000), ([25, 1_000], 20_000), ([100, 1_000], 60_000), ([1_000, 25], 60_000)]
    {
        for class in URGENT {
            let mut session = rates(&mbit);
            put_on_probation(&mut session.links[1]);
            send_by(&mut session, class, bytes as u64);
            assert_eq!(taken(&mut session, [1, 0]), [bytes, 0], "{mbit:?}");
        }
    }
    let mut session = rates(&[1_000, 1_000]);
    put_on_probation(&mut session.links[1]);
    send_by(&mut session, Class::Normal, 60_000);
    let [by_first, by_second] = taken(&mut session, [1, 0]);
    assert!(by_first + by_second == 60_000 && by_second > 0);
}

#[test]
fn an_urgent_transfer_leaves_by_the_link_that_is_up_and_one_of_bulk_by_both() {
    for class in Class::ALL {
        let mut session = up(2);
        start_transfer(&mut session, class, 1 << 20);
        put_on_probation(&mut session.links[1]);
        let [by_first, by_second] = taken(&mut session, [1, 0]);
        assert!(by_first > 0, "{class:?}");
        assert_eq!(by_second > 0, !URGENT.contains(&class), "{class:?}");
    }
}
