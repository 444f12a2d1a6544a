//! What rides along with messages or leaves without any: acknowledgements, questions and answers, credit, grants,
//! refusals and control frames.

use super::outgoing::*;
use super::*;
use crate::link::mtu::Mtu;
use crate::link::recv::ACK_SOON;
use crate::link::recv::Received;
use crate::wire::header::{FLAG_ACK_ELICITING, FLAG_ACK_NOW, FLAG_TRAIN_LAST};
use crate::wire::{Frame, ProbeKind};

/// The longest wait of an acknowledgement.
const WAIT: Duration = limits::ACK_DELAY_MAX;

/// Packets have come whose acknowledgement may wait.
fn owe_acknowledgement(received: &mut Received) {
    for number in 0..20 {
        received.record(NOW, number, 100, 0, number == 19, AckWish::Later, false);
    }
    assert_eq!((received.ack_pending(), received.deadline()), (true, NOW + WAIT));
}

/// The links that the acknowledgements in these packets are about.
fn acknowledged(packets: &[Packet]) -> Vec<u16> {
    let frames = packets.iter().flat_map(Packet::frames);
    let link = |frame| if let Frame::Ack(ack) = frame { Some(ack.link.0) } else { None };
    frames.filter_map(link).collect()
}

fn lose_use_of(link: &mut Link) {
    link.state.handle(NOW, LinkEvent::Silence);
    assert!(!link.usable());
}

#[test]
fn an_acknowledgement_leaves_when_it_is_due_and_wants_none_itself() {
    let mut session = up(1);
    owe_acknowledgement(&mut session.links[0].received);
    assert!(poll_at(&mut session, NOW + WAIT - Duration(1), 0).is_none());
    assert!(session.is_quiet(NOW + WAIT - Duration(1), BearerId(0)));
    assert!(!session.is_quiet(NOW + WAIT, BearerId(0)));
    let (train, packets) = poll_at(&mut session, NOW + WAIT, 0).unwrap();
    assert_eq!((acknowledged(&packets), packets[0].frames().len()), (vec![0], 1));
    assert_eq!(packets[0].header.flags, FLAG_TRAIN_LAST);
    let link = &session.links[0];
    assert_eq!((link.sent.is_empty(), link.sent.next(), train.id.tracked), (true, 1, false));
    assert!(poll_at(&mut session, NOW + WAIT, 0).is_none(), "once");
    // The next number is not that one again.
    send(&mut session, 8);
    assert_eq!(poll(&mut session, 0).unwrap().1[0].header.number, 1);
}

#[test]
fn an_acknowledgement_that_is_not_due_rides_with_what_leaves_anyway() {
    type Cause<'a> = (&'a str, bool, &'a dyn Fn(&mut Session));
    let notice = |s: &mut Session| s.notify(Notice::PortClosed(PortId(3)));
    let causes: [Cause<'_>; 8] = [
        ("a message", true, &|s| send(s, 8)),
        ("a question", true, &|s| s.links[0].probe = Some(ProbeKind::Liveness)),
        ("an answer", true, &|s| answer(&mut s.links[0])),
        ("a grant", true, &|s| grant(s)),
        ("a notice", true, &notice),
        ("nothing", false, &|_| ()),
        ("news of credit that is gone", false, &|s| s.receiving.untold.push_back(9)),
        ("messages for which there is no room", false, &|s| {
            fill_window(&mut s.links[0], 1 << 20);
            send(s, 8);
        }),
    ];
    let each = causes.iter().flat_map(|cause| [1, 2].map(|links| (links, cause)));
    for (links, (name, leaves, cause)) in each {
        let mut session = up(links);
        owe_acknowledgement(&mut session.links[0].received);
        cause(&mut session);
        let packets = poll(&mut session, 0).map(|(_, packets)| packets);
        assert_eq!(packets.as_deref().map(acknowledged), leaves.then(|| vec![0]), "{name}, {links} links");
        if let Some(packets) = packets {
            assert!(packets[0].frames().len() > 1, "{name}");
            // It was told.
            send(&mut session, 8);
            assert_eq!(acknowledged(&poll(&mut session, 0).unwrap().1), [0; 0]);
        }
    }
    // A notice does not leave by a link that is not usable.
    let mut session = up(1);
    owe_acknowledgement(&mut session.links[0].received);
    lose_use_of(&mut session.links[0]);
    notice(&mut session);
    session.links[0].received.record(NOW, 30, 100, 0, true, AckWish::Now, false);
    let (_, packets) = poll(&mut session, 0).unwrap();
    assert_eq!((acknowledged(&packets), packets[0].frames().len()), (vec![0], 1));
}

#[test]
fn an_acknowledgement_that_is_wanted_soon_rides_on_an_answer_or_leaves_before_a_sleep() {
    let asked = || {
        let mut session = up(1);
        (0..20).for_each(|n| session.links[0].received.record(NOW, n, 100, 0, false, AckWish::Later, false));
        session.links[0].received.record(NOW, 20, 100, 0, true, AckWish::Soon, false);
        session
    };
    let mut session = asked();
    assert!(poll(&mut session, 0).is_none());
    send(&mut session, 984);
    assert_eq!(acknowledged(&poll(&mut session, 0).unwrap().1), [0]);
    let mut session = asked();
    assert!(poll(&mut session, 0).is_none());
    session.handle_idle();
    assert_eq!(acknowledged(&poll(&mut session, 0).unwrap().1), [0]);
    let mut session = asked();
    let late = NOW + ACK_SOON;
    assert!(poll(&mut session, 0).is_none());
    assert_eq!(session.deadline(NOW, &config()), late);
    assert_eq!(acknowledged(&poll_at(&mut session, late, 0).unwrap().1), [0]);
}

/// They fill their packets, so that it would leave alone, before it is due.
#[test]
fn an_acknowledgement_that_is_not_due_does_not_go_before_the_pieces_of_a_large_message() {
    for due in [false, true] {
        let mut session = up(1);
        start_transfer(&mut session, Class::Normal, 1 << 20);
        owe_acknowledgement(&mut session.links[0].received);
        let now = if due { NOW + WAIT } else { NOW };
        let (_, packets) = poll_at(&mut session, now, 0).unwrap();
        assert_eq!(acknowledged(&packets), if due { vec![0] } else { vec![] });
        assert_eq!(packets.len() > 1, !due, "pieces begin with a train of their own");
    }
}

#[test]
fn a_message_brings_no_acknowledgement_where_nothing_waits_for_one() {
    let mut session = up(2);
    for link in &mut session.links {
        link.received.record(NOW, 0, 100, 0, false, AckWish::Later, false);
    }
    send(&mut session, 8);
    assert_eq!(acknowledged(&poll(&mut session, 0).unwrap().1), [0; 0]);
}

#[test]
fn what_a_link_that_is_not_usable_has_received_is_acknowledged_by_another() {
    for usable in [true, false] {
        let mut session = up(2);
        owe_acknowledgement(&mut session.links[1].received);
        if !usable {
            lose_use_of(&mut session.links[1]);
        }
        let soon = NOW + WAIT - Duration(1);
        assert!(poll_at(&mut session, soon, 0).is_none());
        assert_eq!(session.is_quiet(NOW + WAIT, BearerId(0)), usable);
        // Not before it is due, even if something leaves.
        send(&mut session, 8);
        assert_eq!(acknowledged(&poll_at(&mut session, soon, 0).unwrap().1), [0; 0]);
        let other = poll_at(&mut session, NOW + WAIT, 0).map(|(_, packets)| acknowledged(&packets));
        assert_eq!(other, (!usable).then(|| vec![1]));
        let own = poll_at(&mut session, NOW + WAIT, 1).map(|(_, packets)| acknowledged(&packets));
        assert_eq!(own, usable.then(|| vec![1]));
    }
}

#[test]
fn a_link_that_is_not_usable_acknowledges_for_itself_only() {
    let mut session = up(2);
    for link in &mut session.links {
        owe_acknowledgement(&mut link.received);
        lose_use_of(link);
    }
    assert_eq!(acknowledged(&poll_at(&mut session, NOW + WAIT, 0).unwrap().1)[0], 0);
    session.links[1].carrier = false;
    assert!(poll_at(&mut session, NOW + WAIT, 1).is_none(), "nor that if it has no carrier");
    assert!(session.is_quiet(NOW + Duration::s(9), BearerId(1)));
}

#[test]
fn a_link_whose_carrier_is_back_says_nothing_until_the_peers_end_may_be_in_service() {
    for heard in [false, true] {
        let mut session = up(2);
        let link = &mut session.links[0];
        link.spec.lossless = false;
        link.state.handle(NOW, LinkEvent::CarrierLost);
        owe_acknowledgement(&mut link.received);
        link.probe = Some(ProbeKind::Join);
        answer(link);
        link.on_carrier_back(NOW);
        let (config, early, late) = (config(), NOW + Duration(49_999_999), NOW + Duration::ms(50));
        assert_eq!((link.probe, link.replies.len()), (None, 0), "what waited is out of date");
        assert_eq!(link.deadline(&config, true, false), late);
        link.check_probe(early, &config, true);
        if heard {
            link.on_heard();
            link.join_back(early);
        }
        session.quiet.stir();
        let frames = poll_at(&mut session, early, 0).map(|sent| sent.1[0].frames().len());
        assert_eq!(frames, heard.then_some(2), "acknowledgement and question");
        let link = &mut session.links[0];
        if !heard {
            link.check_probe(late, &config, true);
            assert_eq!(poll_at(&mut session, late, 0).map(|sent| sent.1[0].frames().len()), Some(2));
        }
    }
}

#[test]
fn nothing_leaves_by_a_link_without_carrier() {
    let mut session = up(1);
    let link = &mut session.links[0];
    owe_acknowledgement(&mut link.received);
    link.probe = Some(ProbeKind::Join);
    answer(link);
    link.carrier = false;
    send(&mut session, 8);
    assert!(poll_at(&mut session, NOW + WAIT, 0).is_none());
    session.links[0].carrier = true;
    session.quiet.stir();
    let frames = poll_at(&mut session, NOW + WAIT, 0).unwrap().1[0].frames().len();
    assert_eq!(frames, 4, "acknowledgement, answer, question, message");
}

#[test]
fn an_acknowledgement_leaves_if_it_fits_a_packet() {
    for (mtu, fits) in [(64, false), (72, true), (80, true)] {
        let mut session = session_with_mtu(&config(), &[(Active, 0)], mtu);
        owe_acknowledgement(&mut session.links[0].received);
        let told = poll_at(&mut session, NOW + WAIT, 0).map(|(train, _)| train.bytes);
        assert_eq!(told, fits.then_some(72), "{mtu}");
        assert_eq!(session.links[0].received.ack_pending(), !fits);
    }
}

#[test]
fn a_question_asks_for_an_answer_at_once_and_an_answer_for_none() {
    let at_once = FLAG_ACK_ELICITING | FLAG_ACK_NOW;
    for (asks, answers, flags, bytes) in
        [(true, 0, at_once, 24), (false, 1, 0, 40), (true, 8, at_once, 24 + 8 * 40)]
    {
        let mut session = up(1);
        session.links[0].probe = asks.then_some(ProbeKind::Liveness);
        (0..answers).for_each(|_| answer(&mut session.links[0]));
        let (train, packets) = poll(&mut session, 0).unwrap();
        assert_eq!((train.bytes, packets[0].header.flags), (24 + bytes, flags | FLAG_TRAIN_LAST));
        let link = &session.links[0];
        assert_eq!(
            (link.sent.inflight_bytes(), train.id.tracked),
            (if asks { train.bytes as u64 } else { 0 }, asks)
        );
        assert!(poll(&mut session, 0).is_none());
    }
}

#[test]
fn questions_and_answers_fill_packets_to_the_last_byte() {
    // Room for so many answers of 40 bytes, and for a question of 24 behind them.
    for (room, answers, asked) in
        [(39, 0, true), (40, 1, false), (63, 1, false), (64, 1, true), (80, 2, false)]
    {
        let mut session = session_with_mtu(&config(), &[(Active, 0)], 24 + room / 8 * 8);
        session.links[0].probe = Some(ProbeKind::Liveness);
        (0..4).for_each(|_| answer(&mut session.links[0]));
        let (_, packets) = poll(&mut session, 0).unwrap();
        assert_eq!((4 - session.links[0].replies.len(), session.links[0].probe.is_none()), (answers, asked));
        assert_eq!(packets[0].frames().len(), answers + asked as usize);
    }
}

/// A large message to us that has memory waits for its grant.
fn grant(session: &mut Session) {
    let rts = wire::Rts { message: head(0), token: 1, total: 1 << 20 };
    let mut transfer = ReceiveTransfer::new(0, PortId(2), 0, &rts);
    transfer.accept(BufferId(1));
    let number = session.receiving.transfers.insert(transfer).unwrap();
    session.receiving.cts.push_back(number);
}

fn refuse(session: &mut Session, to: u32) {
    let reason = wire::RefuseReason::NoRoom;
    let (from, to) = (FLOW.to, PortId(to));
    let refuse = wire::Refuse { control: 0, from, to, seq: 0, class: 0, reason, retry_after_us: 500 };
    session.receiving.refuse.push_back(refuse);
}

/// A port has more credit to give than was told.
fn owe_credit(session: &mut Session, port: u32) {
    let given = initial_given(PortId(port));
    let key = session.receiving.credits.insert(given).unwrap();
    session.receiving.credit_of.insert(PortId(port), key);
    session.give_credit(PortId(port), 1 << 30, 70_000);
}

#[test]
fn grants_refusals_and_credit_leave_by_links_that_are_usable() {
    let causes: [&dyn Fn(&mut Session); 4] =
        [&grant, &|s| refuse(s, 5), &|s| owe_credit(s, 5), &|s| s.notify(Notice::PortClosed(PortId(3)))];
    for (n, cause) in causes.iter().enumerate() {
        let mut session = up(2);
        lose_use_of(&mut session.links[0]);
        cause(&mut session);
        assert!(poll(&mut session, 0).is_none());
        // Nor with what it may carry.
        session.links[0].probe = Some(ProbeKind::Liveness);
        session.quiet.stir();
        assert_eq!(poll(&mut session, 0).unwrap().1[0].frames().len(), 1);
        let (_, packets) = poll(&mut session, 1).unwrap();
        let frames = packets[0].frames();
        let flags = packets[0].header.flags;
        // Refusals are not repeated, so that they need no acknowledgement.
        assert_eq!((frames.len(), flags & FLAG_ACK_ELICITING == 0), (1, n == 1), "{frames:?}");
        assert!(poll(&mut session, 1).is_none());
    }
}

#[test]
fn grants_refusals_and_credit_fill_packets_to_the_last_byte() {
    type Case<'a> = (&'a dyn Fn(&mut Session, u32), usize);
    let cases: [Case<'_>; 4] = [
        (&|s, _| grant(s), 32),
        (&refuse, 32),
        (&owe_credit, 24),
        (&|s, n| s.notify(Notice::PortClosed(PortId(n))), 16),
    ];
    for (owe, bytes) in cases {
        for mtu in (72..240).step_by(8) {
            let mut session = session_with_mtu(&config(), &[(Active, 0)], mtu);
            (0..20).for_each(|n| owe(&mut session, n));
            let mut left = 20;
            while left > 0 {
                let (train, packets) = poll(&mut session, 0).unwrap();
                let frames = packets[0].frames().len();
                assert_eq!((frames, train.packets), (left.min((mtu as usize - 24) / bytes), 1));
                left -= frames;
            }
            assert!(poll(&mut session, 0).is_none());
        }
    }
}

#[test]
fn credit_that_was_told_is_told_again_only_if_it_was_lost() {
    let mut session = up(1);
    owe_credit(&mut session, 5);
    owe_credit(&mut session, 6);
    session.receiving.credits.get_mut(session.receiving.credit_of[&PortId(6)]).unwrap().dirty = false;
    let (train, packets) = poll(&mut session, 0).unwrap();
    let credit = |frame| if let Frame::Credit(credit) = frame { credit } else { panic!("{frame:?}") };
    let told: Vec<_> = packets[0].frames().into_iter().map(credit).collect();
    assert_eq!(told, [wire::Credit { port: PortId(5), messages: 70_000, bytes: 1 << 30 }]);
    let given = session.given_credit(PortId(5)).unwrap();
    assert_eq!((given.told_bytes, given.told_messages, given.dirty), (1 << 30, 70_000, false));
    assert!(poll(&mut session, 0).is_none());
    with_cx(&config(), |cx| session.handle_sent(cx, &train, Outcome::Dropped));
    assert_eq!(poll(&mut session, 0).unwrap().1[0].frames().len(), 1);
}

#[test]
fn only_a_large_message_that_is_here_and_has_memory_is_granted() {
    let mut session = up(1);
    grant(&mut session);
    grant(&mut session);
    let numbers: Vec<_> = session.receiving.transfers.iter().map(|(number, _)| number).collect();
    let bare =
        ReceiveTransfer::new(0, PortId(2), 1, &wire::Rts { message: head(1), token: 2, total: 1 << 20 });
    let bare = session.receiving.transfers.insert(bare).unwrap();
    session.receiving.transfers.remove(numbers[0]);
    session.receiving.cts = [numbers[0], bare, numbers[1]].into();
    let (_, packets) = poll(&mut session, 0).unwrap();
    let granted = |frame| if let Frame::Cts(cts) = frame { cts.transfer.0 } else { panic!("{frame:?}") };
    assert_eq!(packets[0].frames().into_iter().map(granted).collect::<Vec<_>>(), [numbers[1]]);
    assert!(!session.receiving.transfers.get(numbers[1]).unwrap().dirty, "it may be asked for again");
}

#[test]
fn a_search_for_larger_packets_is_made_of_packets_of_their_own() {
    let search = |usable: bool, lossless: bool| {
        let mut session = up(1);
        let link = &mut session.links[0];
        link.mtu = Mtu::new(1_200, 1_476);
        link.spec.lossless = lossless;
        if !usable {
            lose_use_of(link);
            link.probe = Some(ProbeKind::Liveness);
        }
        send(&mut session, 8);
        session
    };
    for (usable, lossless) in [(false, false), (true, true)] {
        assert!(poll(&mut search(usable, lossless), 0).unwrap().0.bytes < 100);
    }
    let mut session = search(true, false);
    let (train, packets) = poll(&mut session, 0).unwrap();
    assert_eq!((train.bytes, train.packets, train.express), (1_472, 1, false));
    let Frame::Probe(probe) = &packets[0].frames()[0] else { panic!("{:?}", packets[0].frames()) };
    assert_eq!((probe.kind, probe.size, probe.id, probe.about), (ProbeKind::Mtu, 1_472, 1_472, LinkId(0)));
    assert_eq!(packets[0].header.flags, FLAG_ACK_ELICITING | FLAG_ACK_NOW | FLAG_TRAIN_LAST);
    assert_eq!((session.links[0].sent.inflight_bytes(), session.links[0].sent.next()), (1_472, 1));
    // The message is next, and after it the search is quiet until it is tried again.
    assert_eq!(poll(&mut session, 0).unwrap().1[0].payload_bytes(), 8);
    let again = session.links[0].mtu.deadline();
    assert!(again < Instant::NEVER && poll_at(&mut session, again - Duration(1), 0).is_none());
    assert!(session.is_quiet(again - Duration(1), BearerId(0)) && !session.is_quiet(again, BearerId(0)));
    assert_eq!(poll_at(&mut session, again, 0).unwrap().0.bytes, 1_472);
    incoming::acknowledge(&mut session, &config(), &[(0, 0)]);
    assert_eq!(session.links[0].mtu.current(), 1_472);
}

#[test]
fn an_answer_says_what_was_heard_of_the_link_and_when() {
    let mut session = up(2);
    let link = &mut session.links[1];
    link.received.record(NOW - Duration::ms(1), 5, 100, 0, true, AckWish::Later, false);
    link.sent.skip(7);
    link.carrier = false;
    let probe = wire::Probe { id: 3, about: LinkId(1), kind: ProbeKind::State, target: 0, size: 80 };
    with_cx(&config(), |cx| session.frame(cx, 0, &Frame::Probe(probe)));
    let (_, packets) = poll(&mut session, 0).unwrap();
    let replies = packets[0].frames().into_iter();
    let replies =
        replies.filter_map(|frame| if let Frame::ProbeReply(reply) = frame { Some(reply) } else { None });
    let [reply] = replies.collect::<Vec<_>>()[..] else { panic!("{:?}", packets[0].frames()) };
    assert_eq!((reply.id, reply.about, reply.kind, reply.size), (3, LinkId(1), ProbeKind::State, 80));
    // Units of 256 ns.
    assert_eq!((reply.last_rx, reply.last_rx_age, reply.next_tx, reply.carrier), (5, 3_906, 7, false));
}

#[test]
fn what_waits_is_reported() {
    let mut session = up(1);
    assert_eq!(session.backlog(), (0, 0));
    (0..3).for_each(|_| grant(&mut session));
    (0..2).for_each(|n| refuse(&mut session, n));
    for class in [Class::Normal, Class::Urgent, Class::Bulk, Class::Bulk] {
        send_by(&mut session, class, 8);
    }
    assert_eq!(session.backlog(), (5, 3));
    session.last_proof_at = NOW + Duration(1);
    assert_eq!(session.last_proof_at(), NOW + Duration(1));
}

#[test]
fn who_hears_of_a_closed_port_has_heard_before_what_arrived_there() {
    let mut session = up(3);
    for link in &mut session.links[..2] {
        owe_acknowledgement(&mut link.received);
        // It left, and may be late on its way.
        link.received.on_ack_sent(NOW);
    }
    session.links[2].rtt.sample(NOW, Duration::us(10), Duration::ZERO);
    session.notify(Notice::LinkSet(LinkId(2), LinkStatus::Active, 7));
    assert_eq!(acknowledged(&poll(&mut session, 2).unwrap().1), [0; 0], "other news need not wait for that");
    session.notify(Notice::PortClosed(PortId(3)));
    let packets = poll(&mut session, 2).unwrap().1;
    let frames = packets[0].frames();
    assert_eq!(acknowledged(&packets), [0, 1], "of each link by which anything came");
    assert!(matches!(frames[2], Frame::PortClosed(1, PortId(3))), "{frames:?}");
    session.control.repeat(1);
    assert_eq!(acknowledged(&poll(&mut session, 2).unwrap().1), [0, 1], "and again");
    session.control.confirm(1);
    session.notify(Notice::LinkSet(LinkId(2), LinkStatus::Active, 8));
    session.control.confirm(0);
    assert_eq!(acknowledged(&poll(&mut session, 2).unwrap().1), [0; 0], "it is known");
}

#[test]
fn what_the_peer_waits_for_goes_by_the_link_by_which_it_comes_first() {
    let mut session = up(2);
    for (link, ms) in session.links.iter_mut().zip([10, 1]) {
        link.rtt.sample(NOW, Duration::ms(ms), Duration::ZERO);
    }
    let ask =
        |session: &mut Session, link| poll(session, link).map_or(0, |(_, packets)| packets[0].frames().len());
    grant(&mut session);
    refuse(&mut session, 1);
    session.notify(Notice::LinkSet(LinkId(1), LinkStatus::Active, 7));
    assert_eq!([0, 1].map(|link| ask(&mut session, link)), [0, 3]);
    // Where no link has room for messages, it need not wait for that.
    session.links.iter_mut().for_each(|link| fill_window(link, link.window.cwnd()));
    grant(&mut session);
    assert_eq!([0, 1].map(|link| ask(&mut session, link)), [1, 0]);
}

#[test]
fn of_two_ends_the_one_of_the_higher_identity_answers_by_the_link_that_it_was_asked_by() {
    for (node, answers) in [(1, false), (3, true)] {
        let config = Config::new(NodeId(node), Incarnation(1));
        let mut session = session(&config, &[(Active, 0); 2]);
        owe_acknowledgement(&mut session.links[1].received);
        send(&mut session, 8);
        assert_eq!([0, 1].map(|link| poll(&mut session, link).is_some()), [!answers, answers], "{node}");
    }
}
