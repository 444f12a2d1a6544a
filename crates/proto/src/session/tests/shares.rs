//! Who gets the room of a train: windows, budgets, small messages, turns.

use super::outgoing::*;
use super::*;
use crate::id::TransferId;
use crate::wire::Frame;

/// The bytes of messages that a train carries.
fn payload(sent: Option<(Train, Vec<Packet>)>) -> Option<usize> {
    sent.map(|(_, packets)| packets.iter().map(Packet::payload_bytes).sum())
}

/// The frames of messages in these packets: whose, which, and how many bytes.
fn messages(packets: &[Packet]) -> Vec<(u32, u32, usize)> {
    let of_frame = |frame: Frame<'_>| match frame {
        Frame::Message(m, payload) => Some((m.from.0, m.seq, payload.len())),
        Frame::Fragment(f, payload) => Some((f.message.from.0, f.message.seq, payload.len())),
        _ => None,
    };
    packets.iter().flat_map(Packet::frames).filter_map(of_frame).collect()
}

fn send_from(session: &mut Session, from: u32, bytes: u64) {
    let message =
        Outgoing { buffer: BufferId(1), len: bytes, service: None, range: None, tag: None, returns: false };
    assert!(session.send(NOW, FlowKey { from: PortId(from), ..FLOW }, message));
}

#[test]
fn a_window_with_any_room_takes_as_much_as_a_packet() {
    let window = 64 << 10;
    // Room of the window, and the packets of a transfer that leave then: 1,432 bytes each, as many as one that is full
    // at least.
    for (room, packets) in [(1, 2), (1_472, 2), (2_864, 2), (2_865, 3), (window / 2, 12)] {
        let mut session = up(1);
        start_transfer(&mut session, Class::Normal, 1 << 20);
        let before = session.links[0].sent.inflight_bytes();
        fill_window(&mut session.links[0], window - room - before);
        assert_eq!(poll(&mut session, 0).map(|(train, _)| train.packets), Some(packets), "{room}");
    }
}

#[test]
fn a_full_window_holds_small_messages_up_behind_no_others() {
    for small in [0, limits::SMALL_BYTES_MAX] {
        let mut session = up(1);
        start_transfer(&mut session, Class::Normal, 1 << 20);
        let before = session.links[0].sent.inflight_bytes();
        fill_window(&mut session.links[0], (64 << 10) - before);
        assert!(poll(&mut session, 0).is_none());
        send_by(&mut session, Class::Urgent, limits::SMALL_BYTES_MAX + 1);
        assert!(poll(&mut session, 0).is_none(), "it is not small");
        send_from(&mut session, 9, small);
        let (_, packets) = poll(&mut session, 0).unwrap();
        assert_eq!(messages(&packets)[0].0, 9);
    }
}

#[test]
fn small_messages_exceed_a_full_window_by_a_little_and_no_more() {
    let (window, extra) = (64 << 10, limits::SMALL_OVERDRAFT_BYTES);
    for (inflight, leaves) in [(window + extra - 1, true), (window + extra, false)] {
        let mut session = up(1);
        fill_window(&mut session.links[0], inflight);
        send(&mut session, 8);
        assert_eq!(poll(&mut session, 0).is_some(), leaves);
    }
    // A packet as large as it gets takes as many of 1,000 bytes as that allows: with their headers 1,016 each.
    let mut session = session_with_mtu(&config(), &[(Active, 0)], 65_504);
    fill_window(&mut session.links[0], window);
    (0..100).for_each(|_| send(&mut session, 1_000));
    let (train, packets) = poll(&mut session, 0).unwrap();
    assert_eq!((train.packets, train.bytes, messages(&packets).len()), (1, 24 + 17 * 1_016, 17));
    assert!(poll(&mut session, 0).is_none());
    // But none behind those that fill the overdraft.
    let mut session = session_with_mtu(&config(), &[(Active, 0)], 65_504);
    fill_window(&mut session.links[0], window);
    send(&mut session, extra - 24 - 16);
    send(&mut session, 1_000);
    assert_eq!(poll(&mut session, 0).unwrap().0.bytes as u64, extra);
}

#[test]
fn a_small_message_of_several_packets_exceeds_a_full_window_in_one_train() {
    for bulk_waits in [false, true] {
        let mut session = up(1);
        fill_window(&mut session.links[0], 64 << 10);
        if bulk_waits {
            send_by(&mut session, Class::Bulk, 1_400);
        }
        send(&mut session, 4_000);
        let (train, packets) = poll(&mut session, 0).unwrap();
        let bytes: usize = messages(&packets).iter().map(|message| message.2).sum();
        assert_eq!((train.packets, bytes), (3, 4_000), "{bulk_waits}");
        assert!(poll(&mut session, 0).is_none(), "{bulk_waits}");
        // What may not follow does not make a packet longer.
        send(&mut session, 1_200);
        let (train, _) = poll(&mut session, 0).unwrap();
        assert_eq!((train.packets, train.bytes), (1, 24 + 16 + 1_200), "{bulk_waits}");
    }
}

#[test]
fn small_messages_of_bulk_wait_for_the_window_as_large_ones_do() {
    let window = 64 << 10;
    // Room of the window, and the packets of messages that leave then: each costs 1,424 bytes of what may leave.
    for (room, packets) in [(0, 0), (1, 2), (1_472, 2), (2_848, 2), (2_849, 3)] {
        let mut session = up(1);
        fill_window(&mut session.links[0], window - room);
        (0..100).for_each(|_| send_by(&mut session, Class::Bulk, 1_400));
        let count: usize = std::iter::from_fn(|| poll(&mut session, 0)).map(|(train, _)| train.packets).sum();
        assert_eq!(count, packets, "{room}");
        // What is not bulk exceeds the window beside it.
        send_by(&mut session, Class::Normal, 8);
        let (_, packets) = poll(&mut session, 0).unwrap();
        assert_eq!(messages(&packets).iter().map(|message| message.2).sum::<usize>(), 8, "{room}");
        assert!(poll(&mut session, 0).is_none(), "{room}");
    }
}

#[test]
fn small_messages_of_bulk_that_share_a_packet_take_no_more_than_the_window_has_room_for() {
    let mut session = up(1);
    fill_window(&mut session.links[0], (64 << 10) - 1);
    (0..100).for_each(|_| send_by(&mut session, Class::Bulk, 8));
    // Any room counts as a packet's; each costs 32 bytes of it, and takes 24 of the packet, which would have room for 60.
    let (_, packets) = poll(&mut session, 0).unwrap();
    assert_eq!(messages(&packets).len(), 1_472 / 32);
    assert!(poll(&mut session, 0).is_none());
}

#[test]
fn the_queue_of_a_link_is_short_while_bulk_shares_it_with_others() {
    for (classes, shared) in [
        (vec![Class::Bulk], false),
        (vec![Class::Normal, Class::Urgent], false),
        (vec![Class::Bulk, Class::Normal], true),
        (vec![Class::Urgent, Class::Bulk], true),
    ] {
        let (mut session, (short, long)) = (up(1), config().queue_target);
        for &class in &classes {
            send_by(&mut session, class, 8);
            assert!(poll(&mut session, 0).is_some());
        }
        assert_eq!(session.links[0].window.queue_target(), if shared { short } else { long }, "{classes:?}");
    }
}

#[test]
fn trains_are_long_while_much_waits_and_short_beside_other_classes() {
    let spans = |session: &Session| session.aims(NOW, config().queue_target).train_span.as_us();
    let mut session = up(1);
    (0..4).for_each(|_| send(&mut session, 50_000));
    assert_eq!(spans(&session), 250, "nobody knows how much that is");
    // 16 MB/s: 128,000 bytes are 8 ms.
    measure(&mut session.links[0], 16_384);
    assert_eq!(spans(&session), 1_000);
    let mut session = up(1);
    measure(&mut session.links[0], 16_384);
    (0..2).for_each(|_| send(&mut session, 50_000));
    assert_eq!(spans(&session), 250);
    let mut session = up(1);
    measure(&mut session.links[0], 16_384);
    send(&mut session, 7_000);
    assert_eq!(spans(&session), 75, "the end of it");
    let mut session = up(1);
    measure(&mut session.links[0], 16_384);
    [Class::Bulk, Class::Normal].into_iter().for_each(|class| send_by(&mut session, class, 8));
    assert!(poll(&mut session, 0).is_some());
    (0..4).for_each(|_| send(&mut session, 50_000));
    assert_eq!(spans(&session), 75, "though much waits");
}

#[test]
fn messages_cost_their_bytes_and_a_header_of_what_a_train_may_take() {
    // A train of 16 KiB goes on while it is not spent, and small messages for as long as it is shorter than that.
    for (mtu, bytes, packets, count) in [(16_000, 984, 2, 17), (16_000, 1_000, 2, 17), (1_200, 3_000, 14, 6)]
    {
        let mut session = session_with_mtu(&config(), &[(Active, 0)], mtu);
        assert_eq!(session.links[0].train_bytes(), 16_384);
        (0..60).for_each(|_| send(&mut session, bytes));
        let (train, packets_of_it) = poll(&mut session, 0).unwrap();
        let seqs: std::collections::BTreeSet<_> = messages(&packets_of_it).into_iter().map(|m| m.1).collect();
        assert_eq!((train.packets, seqs.len()), (packets, count), "{bytes}");
    }
}

#[test]
fn links_that_are_not_chosen_leave_small_messages_alone_but_not_large_ones() {
    let mut session = up(2);
    send_from(&mut session, 1, 100);
    send_from(&mut session, 2, limits::SMALL_BYTES_MAX + 1);
    send_from(&mut session, 3, 100);
    send_from(&mut session, 4, limits::SMALL_BYTES_MAX);
    let by = |session: &mut Session, link| {
        let mut flows: Vec<_> =
            poll(session, link).map(|(_, packets)| messages(&packets)).unwrap_or_default();
        flows.dedup_by_key(|m| m.0);
        flows.into_iter().map(|m| m.0).collect::<Vec<_>>()
    };
    assert_eq!(by(&mut session, 1), [2], "the first of equals is chosen");
    assert_eq!(by(&mut session, 0), [1, 3, 4]);
}

#[test]
fn small_messages_go_by_another_link_while_the_best_one_is_blocked_or_all_are_full() {
    for (blocked, full, by_second) in [(false, false, false), (true, false, true), (false, true, true)] {
        let mut session = up(2);
        session.links[0].blocked = blocked;
        if full {
            session.links.iter_mut().for_each(|link| fill_window(link, 64 << 10));
        }
        send(&mut session, 8);
        assert_eq!(payload(poll(&mut session, 1)).is_some(), by_second, "{blocked} {full}");
    }
}

#[test]
fn a_flow_that_cannot_send_now_does_not_hold_up_the_others() {
    let config = config();
    type Cause<'a> = (&'a str, &'a dyn Fn(&mut Session));
    let causes: [Cause<'_>; 4] = [
        ("its sender is gone", &|s| s.forget_sender(PortId(1))),
        ("its receiver is gone", &|s| with_cx(&config, |cx| s.peer_port_closed(cx, PortId(2)))),
        ("it was refused", &|s| {
            let key = s.sending.by_key[&FLOW];
            s.sending.flows.get_mut(key).unwrap().refused(NOW, Duration::ms(1));
        }),
        ("it has no credit", &|s| {
            let credit = s.sending.credits.get_mut(s.sending.credit_of[&FLOW.to]).unwrap();
            credit.credit.limit_messages = 0;
        }),
    ];
    for (name, cause) in causes {
        let mut session = up(1);
        send(&mut session, 8);
        cause(&mut session);
        let message =
            Outgoing { buffer: BufferId(1), len: 10, service: None, range: None, tag: None, returns: false };
        assert!(session.send(NOW, FlowKey { to: PortId(77), ..FLOW }, message));
        let (_, packets) = poll(&mut session, 0).unwrap();
        assert_eq!(messages(&packets), [(1, 0, 10)], "{name}");
        assert!(session.schedule.is_empty());
    }
}

#[test]
fn a_flow_that_was_refused_waits_once_and_is_asked_again_in_time() {
    let mut session = up(1);
    send(&mut session, 8);
    let key = session.sending.by_key[&FLOW];
    let flow = session.sending.flows.get_mut(key).unwrap();
    flow.refused(NOW, Duration::ms(1));
    assert!(poll(&mut session, 0).is_none());
    send(&mut session, 8);
    assert!(poll(&mut session, 0).is_none());
    assert_eq!(session.sending.refused, [key]);
    let retry = NOW + Duration::ms(1);
    assert_eq!(session.deadline(NOW, &config()), retry);
    for (now, leaves) in [(retry - Duration(1), false), (retry, true)] {
        with_cx(&config(), |cx| {
            cx.now = now;
            session.handle_timeout(cx);
        });
        assert_eq!(payload(poll_at(&mut session, now, 0)), leaves.then_some(16));
    }
    assert!(session.sending.refused.is_empty());
}

#[test]
fn flows_take_turns_and_the_urgent_ones_go_first() {
    // Sixteen messages with what their headers cost are 64 KiB: then the next flow has its turn.
    let mut session = fast(8_968);
    for from in [1, 2] {
        (0..40).for_each(|_| send_from(&mut session, from, 4_072));
    }
    send_by(&mut session, Class::Urgent, 50);
    let mut order = Vec::new();
    while let Some((_, packets)) = poll(&mut session, 0) {
        order.extend(messages(&packets));
    }
    assert_eq!(order.remove(0), (1, 0, 50));
    let mut turns: Vec<(u32, usize)> = Vec::new();
    for (from, _, bytes) in order {
        assert_eq!(bytes, 4_072);
        match turns.last_mut() {
            Some((last, count)) if *last == from => *count += 1,
            _ => turns.push((from, 1)),
        }
    }
    assert_eq!(turns, [(1, 16), (2, 16), (1, 16), (2, 16), (1, 8), (2, 8)]);
}

#[test]
fn a_message_that_a_fresh_packet_takes_whole_is_not_cut_for_the_rest_of_this_one() {
    // The second message does not fit behind the first one into a packet of 1,200 bytes; the frames of both.
    for (first, second, frames) in [
        (880, 1_160, 2), // 256 bytes of it would go: less than a quarter.
        (840, 1_160, 3), // 296 bytes.
        (880, 1_168, 3), // No packet takes it whole.
    ] {
        let mut session = session_with_mtu(&config(), &[(Active, 0)], 1_200);
        send(&mut session, first);
        send(&mut session, second);
        let (_, packets) = poll(&mut session, 0).unwrap();
        assert_eq!((packets.len(), messages(&packets).len()), (2, frames), "{first} {second}");
    }
}

#[test]
fn what_does_not_fit_the_packet_is_not_overtaken_by_what_would() {
    let mut session = session_with_mtu(&config(), &[(Active, 0)], 1_200);
    send_from(&mut session, 1, 900);
    send_from(&mut session, 1, 1_100);
    send_from(&mut session, 2, 8);
    let (_, packets) = poll(&mut session, 0).unwrap();
    assert_eq!(messages(&packets[..1]), [(1, 0, 900)]);
    assert_eq!(messages(&packets[1..]), [(1, 1, 1_100), (2, 0, 8)]);
}

#[test]
fn a_flow_whose_window_is_full_is_overtaken() {
    let mut session = up(1);
    session.peer.initial_credit = (1 << 30, 1 << 30);
    send_from(&mut session, 1, 8);
    let flow = session.sending.flows.get_mut(session.sending.by_key[&FLOW]).unwrap();
    let credit = &mut session.sending.credits.get_mut(flow.credit).unwrap().credit;
    let message =
        Outgoing { buffer: BufferId(1), len: 8, service: None, range: None, tag: None, returns: false };
    for _ in 0..limits::REORDER_MESSAGES_MAX {
        assert!(flow.take(NOW, credit, 1_000, 1_000).is_some());
        flow.push(message);
    }
    send_from(&mut session, 2, 10);
    assert_eq!(messages(&poll(&mut session, 0).unwrap().1), [(2, 0, 10)]);
}

#[test]
fn a_message_may_fill_the_last_bytes_of_a_packet() {
    for (second, fits) in [(16, true), (17, false)] {
        let mut session = session_with_mtu(&config(), &[(Active, 0)], 1_200);
        send(&mut session, 1_200 - 24 - 16 - 32);
        send(&mut session, second);
        let (_, packets) = poll(&mut session, 0).unwrap();
        assert_eq!((packets.len(), packets[0].frames().len()), if fits { (1, 2) } else { (2, 1) });
    }
}

#[test]
fn a_transfer_takes_whole_packets_and_leaves_the_rest_of_others_to_messages() {
    // What is left behind a message of a packet of 1,200 bytes, and the messages that it holds at last.
    for (left, held) in [(24, 1), (32, 1), (40, 1), (48, 2), (56, 2), (800, 2)] {
        let mut session = session_with_mtu(&config(), &[(Active, 0)], 1_200);
        start_transfer(&mut session, Class::Normal, 1 << 20);
        send_by(&mut session, Class::Urgent, 1_200 - 24 - 16 - left);
        send_from(&mut session, 2, 8);
        let (_, packets) = poll(&mut session, 0).unwrap();
        assert_eq!(messages(&packets[..1]).len(), held, "{left}");
        let part = |packet: &Packet| {
            packet.frames().into_iter().find_map(|frame| match frame {
                Frame::TransferFragment(fragment, payload) => Some((fragment.offset, payload.len())),
                _ => None,
            })
        };
        assert_eq!(part(&packets[0]), None, "{left}");
        let next = packets.into_iter().nth(1).unwrap_or_else(|| poll(&mut session, 0).unwrap().1.remove(0));
        assert_eq!(part(&next), Some((0, 1_160)), "{left}");
    }
}

#[test]
fn links_of_unequal_packets_take_turns_at_a_transfer_by_whole_trains() {
    for (first, second) in [(1_472, 1_448), (1_472, 1_400), (8_968, 1_472)] {
        let mut session = fast(first);
        let spec = LinkSpec::to(1, 1, 1, second);
        session.add_link(NOW, spec, &config());
        let link = &mut session.links[1];
        link.state.handle(NOW, LinkEvent::Joined);
        link.probe = None;
        outgoing::make_fast(link);
        start_transfer(&mut session, Class::Normal, 4 << 20);
        for round in 0..4 {
            for (bearer, mtu) in [(0, first), (1, second)] {
                let (train, packets) = poll(&mut session, bearer).unwrap();
                let most = limits::TRAIN_PACKETS_MAX.min(limits::TRAIN_BYTES_MAX / mtu as usize);
                assert_eq!((train.packets, train.segment_bytes), (most, mtu as usize), "{round}");
                // Each ends where that link would go on with whole packets.
                let ends: Vec<_> = packets
                    .iter()
                    .flat_map(Packet::frames)
                    .filter_map(|frame| match frame {
                        Frame::TransferFragment(fragment, payload) => {
                            Some(fragment.offset + payload.len() as u64)
                        }
                        _ => None,
                    })
                    .collect();
                assert!(ends.last().unwrap().is_multiple_of(mtu as u64 - 40), "{ends:?}");
            }
        }
    }
}

#[test]
fn the_end_of_a_transfer_may_share_a_packet() {
    let mut session = fast(1_472);
    start_transfer(&mut session, Class::Normal, 2 * 27 * 1_432 + 100);
    assert_eq!([0; 2].map(|_| payload(poll(&mut session, 0))), [Some(27 * 1_432); 2]);
    send_by(&mut session, Class::Urgent, 700);
    let sent = poll(&mut session, 0);
    assert_eq!((sent.as_ref().map(|sent| sent.1.len()), payload(sent)), (Some(1), Some(800)));
}

#[test]
fn the_end_of_a_transfer_leaves_the_rest_of_its_train_to_others() {
    let mut session = fast(1_472);
    // Two trains of 27 packets, as short as they are near an end, and 100 bytes.
    start_transfer(&mut session, Class::Normal, 2 * 27 * 1_432 + 100);
    assert_eq!([0; 2].map(|_| payload(poll(&mut session, 0))), [Some(27 * 1_432); 2]);
    send_from(&mut session, 2, 30_000);
    assert_eq!(payload(poll(&mut session, 0)), Some(30_100));
}

#[test]
fn transfers_take_turns() {
    let mut session = up(1);
    for transfer in [1, 2] {
        send_from(&mut session, transfer, 1 << 20);
        grant_announced(&mut session, transfer, 0);
    }
    let tokens: Vec<_> = session.sending.transfers.iter().map(|(token, _)| token).collect();
    for (token, transfer) in tokens.into_iter().zip([1, 2]) {
        session.on_cts(&wire::Cts { token, transfer: TransferId(transfer), granted: 1 << 20, done: 0 });
    }
    let turns: Vec<_> = (0..12)
        .map(|_| {
            let (train, packets) = poll(&mut session, 0).unwrap();
            incoming::acknowledge(&mut session, &config(), &[(0, packets[11].header.number)]);
            let of = |frame| if let Frame::TransferFragment(f, _) = frame { f.transfer.0 } else { 0 };
            (train.packets, of(packets[0].frames().remove(0)))
        })
        .collect();
    assert_eq!(turns, [1, 1, 1, 1, 2, 2, 2, 2, 1, 1, 1, 1].map(|transfer| (12, transfer)), "64 KiB each");
}

#[test]
fn a_transfer_that_is_gone_gives_its_place_to_the_next() {
    let mut session = up(1);
    send(&mut session, 100_000);
    grant_announced(&mut session, 1, 0);
    send(&mut session, 70_000);
    grant_announced(&mut session, 2, 70_000);
    let gone = session.sending.transfers.iter().next().unwrap().0;
    session.on_cts(&wire::Cts { token: gone, transfer: TransferId(1), granted: 100_000, done: 0 });
    session.sending.transfers.remove(gone);
    let mut bytes = 0;
    while let Some((_, packets)) = poll(&mut session, 0) {
        for frame in packets.iter().flat_map(Packet::frames) {
            let Frame::TransferFragment(f, payload) = frame else { panic!("{frame:?}") };
            assert_eq!(f.transfer, TransferId(2));
            bytes += payload.len();
        }
    }
    assert!(bytes > 60_000, "as many as its window takes");
}

#[test]
fn what_finds_no_room_costs_a_flow_nothing_of_its_turn() {
    let config = Config::new(NodeId(1), Incarnation(1));
    let mut session = up(1);
    for _ in 0..40 {
        (1..=2).for_each(|from| send_from(&mut session, from, 60_000));
    }
    let (mut sent, mut blocked) = ([0; 3], false);
    for _ in 0..80 {
        let (train, packets) = poll(&mut session, 0).expect("much waits");
        let messages = messages(&packets);
        // The bearer is full whenever the first flow has its turn, but not twice in a row.
        blocked = !blocked && messages.iter().any(|(from, ..)| *from == 1);
        let outcome = if blocked { Outcome::WouldBlock } else { Outcome::Sent };
        with_cx(&config, |cx| session.handle_sent(cx, &train, outcome));
        if !blocked {
            messages.iter().for_each(|(from, _, len)| sent[*from as usize] += len);
            session.links[0].sent.abandon(|_| ());
        }
    }
    assert!(sent[1].abs_diff(sent[2]) <= 2 * 65_536, "{sent:?}");
}
