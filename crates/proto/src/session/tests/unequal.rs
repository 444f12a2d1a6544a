//! Links that are not equal: who takes what of the end of a message, and who helps the one that is late.

use super::incoming::{ack, acknowledge_at};
use super::outgoing::*;
use super::*;
use crate::link::window::AckSample;

/// The link delivers so many Mbit/s, and a packet takes `way`.
fn deliver(link: &mut Link, mbit: u64, way: Duration) {
    for ms in 1..=3 {
        let at = Instant(NOW.0 - 100_000_000) + Duration::us(1_024).times(ms);
        let rx_bytes = ms * mbit * 128;
        let sample = AckSample { rx_bytes, rx_clock: at.stamp(), ..AckSample::default() };
        link.on_ack(
            at,
            &AckSample { inflight_before: 1 << 20, queueing: Duration::ms(ms / 3 * 10), ..sample },
        );
    }
    assert_eq!(link.pace.bytes_per_s(), mbit * 125_000);
    link.rtt.sample(NOW, way.times(2), Duration::ZERO);
}

/// A session with links that deliver so many Mbit/s, a packet in 50 us.
pub(super) fn rates(mbit: &[u64]) -> Session {
    let mut session = up(mbit.len());
    session.links.iter_mut().zip(mbit).for_each(|(link, mbit)| deliver(link, *mbit, Duration::us(50)));
    session
}

/// The bytes of messages that each link takes of a message of so many, asked in this order until none takes any more.
fn taken(session: &mut Session, order: &[u8]) -> Vec<usize> {
    let mut bytes = vec![0; session.links.len()];
    loop {
        let mut some = false;
        for &link in order {
            if let Some((_, packets)) = poll(session, link) {
                let taken: usize = packets.iter().map(Packet::payload_bytes).sum();
                bytes[link as usize] += taken;
                some |= taken > 0;
            }
        }
        if !some {
            return bytes;
        }
    }
}

#[test]
fn a_slow_link_takes_no_piece_that_the_fast_one_delivers_sooner() {
    for (mbit, order) in [([1_000, 25], [1, 0]), ([1_000, 25], [0, 1]), ([25, 1_000], [0, 1])] {
        // Of the longer one several trains leave, and a small rest is last.
        for bytes in [limits::SMALL_BYTES_MAX + 1, 60_000] {
            let mut session = rates(&mbit);
            send(&mut session, bytes);
            let taken = taken(&mut session, &order);
            let slow = (mbit[1] == 25) as usize;
            assert_eq!((taken[slow], taken[1 - slow] as u64), (0, bytes), "{mbit:?} {order:?}");
        }
    }
}

#[test]
fn a_link_that_is_thought_to_be_slow_is_given_what_holds_nothing_up() {
    let mut session = rates(&[1_000, 25]);
    start_transfer(&mut session, Class::Normal, 1 << 20);
    // 1 MiB takes the fast one 8.4 ms, in half of which the slow one delivers 13,000 bytes.
    let share = session.share_of(NOW, 1);
    assert!((12_000..14_000).contains(&share), "{share}");
    let before = session.links[1].sent.inflight_bytes();
    assert!(poll(&mut session, 1).is_some());
    let taken = session.links[1].sent.inflight_bytes() - before;
    assert!(taken > 0 && session.share_of(NOW, 1) <= share - taken / 2, "what is under way counts");
    let share = session.share_of(NOW, 1);
    lose(&mut session.links[1], 20);
    // Of 18 packets 0.88 are lost, each for 3.1 ms, in which it delivers 9,700 bytes.
    let less = share - session.share_of(NOW, 1);
    assert!((8_300..8_800).contains(&less), "{less}");
}

#[test]
fn unequal_links_share_a_message_by_their_rates() {
    let mut session = rates(&[800, 200]);
    send(&mut session, 60_000);
    let taken = taken(&mut session, &[1, 0]);
    assert_eq!(taken.iter().sum::<usize>(), 60_000);
    assert!((10_000..14_000).contains(&taken[1]), "{taken:?}");
}

#[test]
fn links_pull_nothing_of_a_message_that_is_one_packet_on_each_of_them() {
    for (bytes, one) in [(64, true), (1_024, true), (1_216, true), (1_217, false), (3_000, false)] {
        let mut session = rates(&[1_000, 900]);
        send(&mut session, bytes);
        assert_eq!(session.one_packet_bytes(), one.then_some(bytes));
        assert!([0, 1].iter().any(|&link| poll(&mut session, link).is_some()), "{bytes} bytes leave");
    }
}

#[test]
fn a_message_that_is_not_small_leaves_though_a_packet_of_each_link_takes_it() {
    let config = Config::new(NodeId(1), Incarnation(1));
    for bytes in [limits::SMALL_BYTES_MAX, limits::SMALL_BYTES_MAX + 1, 30_000, 65_000] {
        let mut session = session_with_mtu(&config, &[(Active, 0), (Active, 0)], limits::DATAGRAM_BYTES_MAX);
        send(&mut session, bytes);
        assert!([0, 1].iter().any(|&link| poll(&mut session, link).is_some()), "{bytes} bytes leave");
    }
}

/// Every so many packets one is lost.
fn lose(link: &mut Link, one_in: u64) {
    let packets = 4_096;
    link.losses.note(NOW, packets - packets / one_in, packets / one_in);
}

#[test]
fn a_link_that_loses_packets_takes_what_is_mended_before_the_others_are_done() {
    for order in [[0, 1], [1, 0]] {
        let mut session = rates(&[1_000, 1_000]);
        lose(&mut session.links[0], 20);
        let repair = Duration::us(3_100);
        // The other is done after half a millisecond.
        send(&mut session, 60_000);
        assert_eq!(taken(&mut session, &order), [0, 60_000]);
        // The first begins 3.15 ms from now, and the other when that has arrived: in between it moves 330,000 bytes.
        let shares = [session.links[0].loss_delay(1 << 19), session.links[1].loss_delay(1 << 19)];
        assert_eq!(shares, [repair, Duration::ZERO]);
        start_transfer(&mut session, Class::Normal, 1 << 20);
        let shares = [0, 1].map(|index| session.share_of(NOW, index));
        assert!(shares[0] > 300_000 && (325_000..340_000).contains(&(shares[1] - shares[0])), "{shares:?}");
    }
}

#[test]
fn small_messages_go_by_the_link_that_loses_none_unless_it_is_much_later() {
    for (way_us, by_the_lossy) in [(100, false), (200, false), (300, true)] {
        let mut session = up(2);
        session
            .links
            .iter_mut()
            .zip([50, way_us])
            .for_each(|(link, us)| deliver(link, 1_000, Duration::us(us)));
        lose(&mut session.links[0], 20);
        // One in 20 is sent again after 4 ms.
        assert_eq!(session.links[0].loss_delay(64).0 / 10_000, 19);
        assert_eq!(
            session.choice.pick(&session.links, Class::Normal, 64),
            Some(!by_the_lossy as usize),
            "{way_us}"
        );
    }
}

#[test]
fn a_link_alone_takes_what_it_has_room_for() {
    let mut session = rates(&[25]);
    send(&mut session, 20_000);
    assert_eq!(session.share_of(NOW, 0), u64::MAX);
    assert!(poll(&mut session, 0).is_some());
}

#[test]
fn links_that_are_alike_share_a_message_equally_whatever_their_trains() {
    for mbit in [[1_000, 1_000], [1_000, 700]] {
        for order in [[0, 1], [1, 0]] {
            let mut session = rates(&mbit);
            start_transfer(&mut session, Class::Normal, 100_000);
            let taken = taken(&mut session, &order);
            assert_eq!(taken.iter().sum::<usize>(), 100_000);
            assert!(taken.iter().all(|bytes| (48_000..=52_000).contains(bytes)), "{mbit:?} {taken:?}");
        }
    }
}

#[test]
fn what_has_arrived_is_no_backlog_though_only_one_of_the_links_confirms_it() {
    let mut session = rates(&[1_000, 1_000]);
    start_transfer(&mut session, Class::Normal, 2 << 20);
    assert!(poll(&mut session, 0).is_some() && poll(&mut session, 1).is_some());
    let sent_bytes = session.links.iter().map(|link| link.sent.inflight_bytes()).max().unwrap();
    let later = NOW + Duration(sent_bytes * 8);
    let link = &mut session.links[1];
    link.sent.acknowledge(&[(0, link.sent.next() - 1)], |_| ()).unwrap();
    link.on_ack(later, &AckSample { heard_at: later, ..AckSample::default() });
    assert!(session.links[0].sent.inflight_bytes() > 0);
    let shares = [0, 1].map(|index| session.share_of(later, index));
    assert!(shares[0].abs_diff(shares[1]) < 3_000, "{shares:?}");
    assert!(session.share_of(NOW, 0) + sent_bytes / 3 < session.share_of(NOW, 1), "it was on its way then");
    // Who confirms nothing for long, delivers nothing.
    let backlog_bytes = |ms| session.links[0].backlog_bytes(NOW + Duration::ms(ms), 1_000_000);
    assert!(backlog_bytes(1) > backlog_bytes(2) && backlog_bytes(2) > 0);
    assert_eq!(backlog_bytes(2), backlog_bytes(1_000));
}

#[test]
fn links_that_are_alike_do_not_divide_what_is_small() {
    let mut session = rates(&[1_000, 1_000]);
    send(&mut session, limits::SMALL_BYTES_MAX);
    assert_eq!(session.share_of(NOW, 0), u64::MAX);
}

#[test]
fn a_link_that_delivers_as_much_but_late_takes_nothing_of_what_is_there_before() {
    for (first, order) in [(0, [0, 1]), (0, [1, 0]), (1, [0, 1]), (1, [1, 0])] {
        for bytes in [16_000, limits::SMALL_BYTES_MAX + 1, 60_000] {
            let mut session = up(2);
            deliver(&mut session.links[first], 1_000, Duration::us(50));
            deliver(&mut session.links[1 - first], 1_000, Duration::ms(5));
            send(&mut session, bytes);
            let taken = taken(&mut session, &order);
            assert_eq!((taken[first] as u64, taken[1 - first]), (bytes, 0), "{first} {order:?} {bytes}");
        }
    }
}

#[test]
fn a_large_message_is_announced_by_the_link_by_which_that_arrives_first() {
    for (first, order) in [(0, [0, 1]), (0, [1, 0]), (1, [0, 1]), (1, [1, 0])] {
        let mut session = up(2);
        deliver(&mut session.links[first], 1_000, Duration::us(50));
        deliver(&mut session.links[1 - first], 1_000, Duration::ms(5));
        send(&mut session, 1 << 20);
        let frames = order.map(|index| poll(&mut session, index).map(|(_, packets)| packets.len()));
        let by_first = order.map(|index| (index as usize == first).then_some(1));
        assert_eq!((frames, session.sending.transfers.len()), (by_first, 1), "{first} {order:?}");
        // It was lost, and is announced again.
        let mut lost = vec![];
        session.links[first].sent.lose(0, |item| lost.push(item));
        assert!(matches!(lost[..], [Item::Rts { .. }]), "{lost:?}");
        session.repeat(&mut lost, first);
        let frames = order.map(|index| poll(&mut session, index).is_some());
        assert_eq!(frames, order.map(|index| index as usize == first), "{first} {order:?}");
    }
}

#[test]
fn every_link_takes_what_it_has_room_for_while_much_waits() {
    let mut session = rates(&[1_000, 25]);
    start_transfer(&mut session, Class::Normal, 64 << 20);
    assert_eq!(session.share_of(NOW, 1), u64::MAX);
    let packets = poll(&mut session, 1).expect("it takes a piece").1;
    assert!(packets.iter().map(Packet::payload_bytes).sum::<usize>() > 0);
}

#[test]
fn near_the_end_a_link_that_has_much_under_way_takes_no_more_than_it_delivers_soon() {
    // What 1 Gbit/s delivers in a round trip of 100 us and twice what packets may wait, of which this much is under way.
    let (reach, busy) = (125 * (100 + 2 * 500), 120_000);
    let share = |waiting, under_way| {
        let mut session = rates(&[1_000, 1_000]);
        start_transfer(&mut session, Class::Normal, waiting);
        session.links.iter_mut().for_each(|link| {
            link.window.set_queue_target(Duration::us(500));
            fill_window(link, under_way);
        });
        session.share_of(NOW, 1)
    };
    assert!(share(100_000, 0).abs_diff(50_000) < 1_000, "half of what waits");
    assert_eq!(share(100_000, busy), reach - busy);
    assert_eq!(share(100_000, reach), 0);
    assert!(
        share(2 << 20, busy).abs_diff(1 << 20) < 1_000,
        "while much waits it takes half of it all the same"
    );
}

/// Two links; the second one has taken 10,000 bytes, and then nothing came back of it.
fn late() -> Session {
    let mut session = rates(&[1_000, 1_000]);
    session.links[0].blocked = true;
    send(&mut session, 10_000);
    assert!(poll(&mut session, 1).is_some());
    session.links[0].blocked = false;
    session
}

/// The bytes that leave by the first link once it has heard of something at that moment.
fn helped(session: &mut Session, now: Instant) -> usize {
    let config = config();
    let first = session.links[0].sent.next();
    session.links[0].probe = Some(crate::wire::ProbeKind::Liveness);
    assert!(poll_at(session, now, 0).is_some());
    acknowledge_at(session, &config, now, &[(first, first)]);
    let sent = poll_at(session, now, 0);
    sent.map_or(0, |(_, packets)| packets.iter().map(Packet::payload_bytes).sum())
}

#[test]
fn what_is_late_on_one_link_is_carried_by_another_too_and_once() {
    // Its way takes 50 us and its bytes 81: twice that and a millisecond more is late.
    let mut session = late();
    assert_eq!(helped(&mut session, NOW + Duration::us(1_250)), 0, "not yet");
    assert_eq!(helped(&mut session, NOW + Duration::us(1_300)), 10_000);
    assert_eq!(session.stats.packets_insured, 8);
    helped(&mut session, NOW + Duration::us(3_000));
    assert_eq!(session.stats.packets_insured, 8, "once");
}

#[test]
fn nobody_helps_while_other_work_waits_if_he_has_helped_too_much_or_is_standby() {
    let mut session = late();
    send(&mut session, 8);
    session.links[0].probe = Some(crate::wire::ProbeKind::Liveness);
    let first = session.links[0].sent.next();
    fill_window(&mut session.links[0], 8);
    acknowledge_at(&mut session, &config(), NOW + Duration::ms(3), &[(first, first)]);
    assert_eq!(session.stats.packets_insured, 0, "the message that waits goes first");
    let mut session = late();
    session.insured_bytes = 1 << 20;
    assert_eq!(helped(&mut session, NOW + Duration::ms(3)), 0);
    let mut session = late();
    session.links[0].status = LinkStatus::Standby;
    assert_eq!(helped(&mut session, NOW + Duration::ms(3)), 0, "a standby link is not there for that");
}

#[test]
fn what_is_late_stays_where_it_is_while_no_other_link_may_carry_it() {
    type Trouble = fn(&mut Link);
    let troubles: [(&str, Trouble, u64); 4] = [
        ("none", |_| (), 8),
        ("standby", |link| link.status = LinkStatus::Standby, 0),
        ("blocked", |link| link.blocked = true, 0),
        ("in doubt", |link| link.pto_count = 1, 0),
    ];
    for (name, trouble, packets) in troubles {
        let mut session = late();
        trouble(&mut session.links[0]);
        with_cx(&config(), |cx| {
            cx.now = NOW + Duration::ms(3);
            session.insure(cx);
        });
        assert_eq!(session.stats.packets_insured, packets, "{name}");
    }
}

/// Messages of 64 B one after the other, each by the link that is chosen for it, until `ms` have passed: a round trip takes so
/// long by each link. The links by which they left.
fn one_by_one(session: &mut Session, ms: u64, took: [Duration; 2]) -> Vec<usize> {
    let (mut now, mut by) = (NOW, Vec::new());
    while now < NOW + Duration::ms(ms) {
        send(session, 64);
        session.raise_credit(&wire::Credit { port: FLOW.to, messages: 5_000, bytes: 1 << 30 });
        let link = (0..2).find(|&link| poll_at(session, now, link as u8).is_some()).unwrap();
        by.push(link);
        let number = session.links[link].sent.next() - 1;
        let sent_at = now;
        now += took[link];
        let ack = wire::Ack {
            link: LinkId(link as u16),
            stamp_echo: sent_at.stamp(),
            delay: 0,
            ..ack(now, &[(number, number)], Duration::ZERO)
        };
        let heard = with_cx(&config(), |cx| {
            cx.now = now;
            session.on_ack(cx, &ack)
        });
        heard.unwrap();
    }
    by
}

#[test]
fn small_messages_move_to_the_link_whose_round_trips_turn_out_to_be_shorter() {
    let last = |took: [Duration; 2]| {
        let mut session = rates(&[1_000, 1_000]);
        *one_by_one(&mut session, 500, took).last().unwrap()
    };
    let (long, short) = (Duration::us(400), Duration::us(300));
    assert_eq!((last([long, short]), last([short, long]), last([long, long])), (1, 0, 0));
}
