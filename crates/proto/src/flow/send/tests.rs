use super::*;
use crate::flow::Class;
use crate::id::PortId;

fn flow() -> (SendFlow, SendCredit) {
    let key = FlowKey { from: PortId(1), to: PortId(2), class: Class::Normal };
    (SendFlow::new(key, 0), SendCredit::initial(1 << 20, 100))
}

fn message(n: u64, len: u64) -> Outgoing {
    Outgoing { buffer: BufferId(n), len, service: None, range: None, tag: None, returns: false }
}

#[test]
fn messages_leave_in_order_and_within_credit() {
    let (mut flow, mut credit) = flow();
    credit.limit_messages = 2;
    for n in 0..3 {
        flow.push(message(n, 64));
    }
    let now = Instant(5);
    for n in 0..2 {
        let take = flow.take(now, &mut credit, 1000, 1400).unwrap();
        assert_eq!(take, Take::Whole { seq: n, message: message(n, 64) });
    }
    assert_eq!(flow.take(now, &mut credit, 1000, 1400), None);
    assert!(credit.raise(1 << 20, 3));
    assert!(matches!(flow.take(now, &mut credit, 1000, 1400), Some(Take::Whole { seq: 2, .. })));
    assert_eq!(credit.used_bytes, 192);
}

#[test]
fn a_long_message_is_cut_to_the_room_and_freed_when_all_parts_are_confirmed() {
    let (mut flow, mut credit) = flow();
    flow.push(message(9, 3000));
    let mut parts = vec![];
    while let Some(Take::Part { offset, len, .. }) = flow.take(Instant(1), &mut credit, 1448, 1448) {
        parts.push((offset, len));
    }
    assert_eq!(parts, [(0, 1424), (1424, 1424), (2848, 152)]);
    flow.repeat_part(0, 1424, 1424);
    flow.confirm_part(0, 0, 1424, |_| panic!("freed early"));
    flow.confirm_part(0, 2848, 152, |_| panic!("freed early"));
    let again = flow.take(Instant(1), &mut credit, 1448, 1448);
    assert!(matches!(again, Some(Take::Part { offset: 1424, len: 1424, .. })), "{again:?}");
    let mut freed = vec![];
    flow.confirm_part(0, 1424, 1424, |m| freed.push(m.buffer));
    assert_eq!(freed, [BufferId(9)]);
    assert!(flow.is_idle());
    assert_eq!(credit.used_messages, 1, "a repetition is not charged again");
}

#[test]
fn a_message_goes_on_where_its_last_piece_ended_and_the_next_one_begins_behind_it() {
    let (mut flow, mut credit) = flow();
    flow.push(message(0, 3_000));
    flow.push(message(1, 64));
    let first = flow.take(Instant(1), &mut credit, 1_024, 1_448).unwrap();
    assert_eq!(flow.go_on(&first, 500), Some(1_500));
    assert_eq!(flow.go_on(&first, 500), None, "it is further by now");
    let second = flow.take(Instant(1), &mut credit, 1_024, 1_448).unwrap();
    assert!(matches!(second, Take::Part { seq: 0, offset: 1_500, len: 1_000, .. }), "{second:?}");
    flow.repeat_part(0, 0, 8);
    assert_eq!(flow.go_on(&second, 5_000), None, "what was lost goes first");
    let again = flow.take(Instant(1), &mut credit, 1_024, 1_448).unwrap();
    assert!(matches!(again, Take::Part { offset: 0, len: 8, .. }), "{again:?}");
    assert_eq!(flow.go_on(&again, 5_000), None);
    let third = flow.take(Instant(1), &mut credit, 320, 1_448).unwrap();
    assert!(matches!(third, Take::Part { seq: 0, offset: 2_500, len: 296, .. }), "{third:?}");
    assert_eq!((flow.go_on(&third, 5_000), flow.has_more()), (Some(3_000), true));
    let next = flow.take(Instant(1), &mut credit, 1_024, 1_448).unwrap();
    assert_eq!(next, Take::Whole { seq: 1, message: message(1, 64) });
    assert_eq!((flow.go_on(&next, 5_000), flow.has_more()), (None, false));
    assert_eq!((credit.used_bytes, credit.used_messages), (3_072, 2));
}

#[test]
fn what_was_confirmed_meanwhile_is_not_repeated() {
    let (mut flow, mut credit) = flow();
    for n in 0..3 {
        flow.push(message(n, 8));
        flow.take(Instant(1), &mut credit, 1000, 1400).unwrap();
    }
    flow.repeat_whole(0, 3);
    flow.confirm_whole(0, 2, |_| {});
    assert!(matches!(flow.take(Instant(1), &mut credit, 1000, 1400), Some(Take::Whole { seq: 2, .. })));
    assert_eq!(flow.take(Instant(1), &mut credit, 1000, 1400), None);
}

#[test]
fn numbers_expand_around_the_expected_one() {
    assert_eq!(expand(5, 0x1_0000_0003), 0x1_0000_0005);
    assert_eq!(expand(0xffff_ffff, 0x1_0000_0003), 0xffff_ffff);
    assert_eq!(expand(1, 0xffff_fff0), 0x1_0000_0001);
}

#[test]
fn failing_tells_what_was_never_sent() {
    let (mut flow, mut credit) = flow();
    for n in 0..3 {
        flow.push(message(n, 8));
    }
    flow.take(Instant(1), &mut credit, 1000, 1400).unwrap();
    let mut told = vec![];
    flow.end(None, |m, fate| told.push((m.buffer.0, fate)));
    assert_eq!(told, [(0, Fate::Unknown), (1, Fate::NotSent), (2, Fate::NotSent)]);
}

const NOW: Instant = Instant(1_000_000);

/// Hands in `count` messages of `len` bytes, and takes out what may leave.
fn taken(flow: &mut SendFlow, credit: &mut SendCredit, count: u64, len: u64) -> Vec<Take> {
    (0..count).for_each(|n| _ = flow.push(message(n, len)));
    std::iter::from_fn(|| flow.take(NOW, credit, 1_448, 1_448)).collect()
}

#[test]
fn credit_is_kept_to_the_byte_and_to_the_message() {
    for (bytes, messages, leave) in [(256, 100, 4), (255, 100, 3), (320, 3, 3), (0, 100, 0), (320, 0, 0)] {
        let (mut flow, _) = flow();
        let mut credit = SendCredit::initial(bytes, messages);
        assert_eq!(taken(&mut flow, &mut credit, 5, 64).len(), leave);
        assert!(!flow.ready(NOW, &credit));
        assert!(!credit.raise(bytes as u64, messages), "nothing new");
        assert!(credit.raise(bytes as u64 + 1_000, messages));
        assert!(credit.raise(0, messages + 100));
        assert!(flow.ready(NOW, &credit));
        assert_eq!(taken(&mut flow, &mut credit, 0, 64).len(), 5 - leave);
        assert_eq!((credit.used_bytes, credit.used_messages, flow.unconfirmed()), (320, 5, 5));
    }
}

#[test]
fn a_message_under_way_needs_no_more_credit_and_numbers_go_on() {
    let (mut flow, mut credit) = flow();
    assert_eq!(flow.next_bytes(), None);
    assert_eq!((flow.push(message(0, 3_000)), flow.push(message(1, 8))), (0, 1));
    assert!(flow.take(NOW, &mut credit, 1_448, 1_448).is_some());
    (credit.limit_bytes, credit.limit_messages) = (0, 0);
    assert!(flow.ready(NOW, &credit) && flow.next_bytes() == Some(3_000));
    assert!(flow.take(NOW, &mut credit, 1_448, 1_448).is_some());
    assert!(matches!(flow.take(NOW, &mut credit, 1_448, 1_448), Some(Take::Part { offset: 2_848, .. })));
    assert!(!flow.ready(NOW, &credit) && flow.next_bytes() == Some(8));
    flow.confirm_message(0, |_| {});
    assert_eq!((flow.push(message(2, 8)), flow.unconfirmed()), (2, 2));
}

#[test]
fn a_refused_flow_waits_twice_as_long_each_time_up_to_a_bound() {
    let (mut flow, mut credit) = flow();
    taken(&mut flow, &mut credit, 2, 8);
    flow.repeat_whole(0, 2);
    let mut now = NOW;
    for ms in [1, 2, 4, 8, 16, 32, 32, 32, 32, 32, 32] {
        flow.refused(now, Duration::ms(1));
        flow.refused(now, Duration::ms(1));
        let end = now + Duration::ms(ms);
        assert_eq!((flow.retry_at(), flow.wakes_at(now)), (end, end));
        now = Instant(end.0 - 1);
        assert!(!flow.ready(now, &credit) && flow.take(now, &mut credit, 1_448, 1_448).is_none());
        now = end;
        assert!(flow.ready(now, &credit) && flow.wakes_at(now) == Instant::NEVER);
    }
    assert!(flow.take(now, &mut credit, 1_448, 1_448).is_some());
    flow.confirm_whole(0, 1, |_| {});
    flow.refused(now, Duration::ms(1));
    assert_eq!(flow.retry_at(), now + Duration::ms(1), "something was taken in between");
    flow.unblock();
    assert!(flow.ready(now, &credit));
    flow.refused(now, Duration::ms(1));
    assert_eq!(flow.retry_at(), now + Duration::ms(1), "and credit forgives too");
}

#[test]
fn an_empty_message_is_repeated_once_and_not_after_it_arrived() {
    let (mut flow, mut credit) = flow();
    assert_eq!(taken(&mut flow, &mut credit, 3, 0).len(), 3);
    flow.confirm_whole(1, 1, |_| panic!("it waits for the first"));
    flow.repeat_whole(0, 3);
    let again = |flow: &mut SendFlow, credit: &mut SendCredit| flow.take(NOW, credit, 1_448, 1_448);
    assert_eq!(flow.take(NOW, &mut credit, 8, 1_448), None, "no room");
    for seq in [0, 2] {
        assert_eq!(again(&mut flow, &mut credit), Some(Take::Whole { seq, message: message(seq, 0) }));
    }
    assert_eq!(again(&mut flow, &mut credit), None);
    flow.repeat_whole(2, 1);
    flow.confirm_whole(2, 1, |_| {});
    assert_eq!(again(&mut flow, &mut credit), None);
}

#[test]
fn an_announcement_is_repeated_with_its_token_where_there_is_room() {
    let (mut flow, mut credit) = flow();
    let large = limits::EAGER_BYTES_MAX + 1;
    let first = taken(&mut flow, &mut credit, 1, large);
    assert_eq!(first, [Take::Announce { seq: 0, message: message(0, large), token: None }]);
    assert_eq!((credit.used_bytes, credit.used_messages), (0, 1), "its bytes have credit of their own");
    flow.announced(0, 7);
    flow.repeat_whole(0, 1);
    assert_eq!(flow.take(NOW, &mut credit, ANNOUNCE_BYTES - 1, 1_448), None);
    let again = flow.take(NOW, &mut credit, ANNOUNCE_BYTES, 1_448);
    assert_eq!(again, Some(Take::Announce { seq: 0, message: message(0, large), token: Some(7) }));
    assert_eq!(flow.take(NOW, &mut credit, 1_448, 1_448), None);
    let mut freed = 0;
    flow.confirm_message(0, |_| freed += 1);
    assert_eq!((freed, flow.is_idle()), (1, true));
}

#[test]
fn of_a_piece_that_was_lost_just_that_is_repeated() {
    let (mut flow, mut credit) = flow();
    let pieces = taken(&mut flow, &mut credit, 1, 65_536);
    let (offset, len) = (1_424, 1_424);
    assert!(matches!(pieces[1], Take::Part { offset: 1_424, len: 1_424, .. }));
    flow.repeat_part(0, offset, len);
    flow.repeat_part(0, offset, len);
    // In two goes: what is left of it is still to be repeated.
    let cut = flow.take(NOW, &mut credit, 24 + 800, 1_448);
    assert!(matches!(cut, Some(Take::Part { offset: 1_424, len: 800, .. })), "{cut:?}");
    let rest = flow.take(NOW, &mut credit, 1_448, 1_448);
    assert!(matches!(rest, Some(Take::Part { offset: 2_224, len: 624, .. })), "{rest:?}");
    assert_eq!(flow.take(NOW, &mut credit, 1_448, 1_448), None);
}

#[test]
fn the_oldest_is_repeated_first_whichever_was_missed_first() {
    let (mut flow, mut credit) = flow();
    assert_eq!(taken(&mut flow, &mut credit, 3, 2_800).len(), 6, "two pieces each");
    flow.repeat_whole(2, 1);
    let mut again = |missed: u64, offset| {
        flow.repeat_part(missed, offset, 1_376);
        match flow.take(NOW, &mut credit, 1_448, 1_448) {
            Some(Take::Part { seq, offset, .. }) => (seq, offset),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(again(2, 0), (2, 0));
    assert_eq!(again(1, 1_424), (1, 1_424));
    assert_eq!(again(2, 0), (2, 0), "it has no room there, and is missed again and again");
    assert_eq!(again(0, 1_424), (0, 1_424), "for this one all of them wait");
    assert_eq!(again(0, 1_424), (0, 1_424));
    assert_eq!(again(2, 0), (2, 0));
}

#[test]
fn only_a_message_that_cannot_have_been_taken_is_called_refused() {
    for (repeated, fates) in [
        (false, [Fate::Unknown, Fate::Refused, Fate::Refused, Fate::Refused]),
        (true, [Fate::Unknown, Fate::Unknown, Fate::Unknown, Fate::NotSent]),
    ] {
        let (mut flow, mut credit) = flow();
        assert_eq!(taken(&mut flow, &mut credit, 2, 8).len(), 2);
        flow.push(message(2, 3_000));
        assert!(flow.take(NOW, &mut credit, 1_448, 1_448).is_some(), "the first of its pieces");
        flow.push(message(3, 8));
        if repeated {
            flow.repeat_whole(1, 1);
        }
        let mut told = vec![];
        flow.end(Some(1), |_, fate| told.push(fate));
        assert_eq!(told, fates);
        assert!(flow.is_idle() && flow.take(NOW, &mut credit, 1_448, 1_448).is_none());
    }
}

#[test]
fn a_message_is_cut_only_where_that_is_worth_a_packet_more() {
    let (service, tag) = (Some(ServiceAddress::new(1, 2)), Some(3));
    let cut = |len: u64, room: usize, packet_room: usize, extra: bool| {
        let (service, tag) = if extra { (service, tag) } else { (None, None) };
        let message = Outgoing { buffer: BufferId(0), len, service, range: None, tag, returns: false };
        match piece(0, message, len <= limits::EAGER_BYTES_MAX, (0, len), (room, packet_room)) {
            Some(Take::Part { len, .. }) => Some(len as u64),
            Some(Take::Whole { .. }) => Some(len),
            Some(Take::Announce { .. }) => Some(0),
            None => None,
        }
    };
    // Whole, where header, service, tag and padding leave room for it.
    assert_eq!((cut(100, 120, 1_448, false), cut(100, 119, 1_448, false)), (Some(100), None));
    assert_eq!((cut(100, 136, 1_448, true), cut(100, 135, 1_448, true)), (Some(100), None));
    // A fresh packet would take it whole: a quarter of it at least, and 128 bytes.
    assert_eq!((cut(1_200, 24 + 304, 1_448, false), cut(1_200, 24 + 303, 1_448, false)), (Some(304), None));
    assert_eq!((cut(400, 24 + 128, 1_448, false), cut(400, 24 + 127, 1_448, false)), (Some(128), None));
    // No packet takes it whole.
    assert_eq!((cut(9_000, 24 + 128, 1_448, false), cut(9_000, 24 + 127, 1_448, false)), (Some(128), None));
    assert_eq!((cut(9_000, 40 + 128, 1_448, true), cut(9_000, 40 + 127, 1_448, true)), (Some(128), None));
    let largest = limits::EAGER_BYTES_MAX;
    assert_eq!(
        (cut(largest, 1_448, 1_448, false), cut(largest + 1, 56, 1_448, false)),
        (Some(1_424), Some(0))
    );
    assert_eq!(cut(largest + 1, 55, 1_448, false), None);
}

#[test]
fn no_more_leaves_than_the_receiver_keeps_in_order_before_the_oldest_is_confirmed() {
    let (mut flow, _) = flow();
    let mut credit = SendCredit::initial(u32::MAX, u32::MAX);
    let window = limits::REORDER_MESSAGES_MAX;
    assert_eq!(taken(&mut flow, &mut credit, window + 2, 8).len() as u64, window);
    assert!(flow.fills_window() && !flow.is_idle());
    flow.confirm_whole(1, 5, |_| panic!("the oldest is missing"));
    assert_eq!(flow.take(NOW, &mut credit, 1_448, 1_448), None);
    flow.repeat_whole(0, 1);
    assert!(!flow.fills_window());
    assert!(matches!(flow.take(NOW, &mut credit, 1_448, 1_448), Some(Take::Whole { seq: 0, .. })));
    flow.confirm_whole(0, 1, |_| {});
    assert_eq!(taken(&mut flow, &mut credit, 0, 8).len(), 2);
}

#[test]
fn a_large_message_leaves_without_asking_where_it_is_alone_and_credit_covers_it() {
    let first_take = |len: u64, change: fn(&mut SendFlow, &mut SendCredit)| {
        let (mut flow, mut credit) = flow();
        flow.unasked_bytes_max = limits::UNASKED_BYTES_MAX;
        change(&mut flow, &mut credit);
        flow.push(message(9, len));
        (flow.take(NOW, &mut credit, 10_000, 1_448), credit.used_bytes, flow)
    };
    let (take, used_bytes, mut flow) = first_take(limits::UNASKED_BYTES_MAX, |_, _| ());
    assert!(matches!(take, Some(Take::Part { offset: 0, .. })), "{take:?}");
    assert_eq!(used_bytes, credit_cost(limits::UNASKED_BYTES_MAX));
    // What is lost of it is repeated as what it was.
    flow.repeat_part(0, 0, 1_000);
    let again = flow.take(NOW, &mut SendCredit::initial(0, 0), 10_000, 1_448);
    assert!(matches!(again, Some(Take::Part { offset: 0, len: 1_000, .. })), "{again:?}");

    let announced = |len, change| {
        let (take, used_bytes, _) = first_take(len, change);
        matches!(take, Some(Take::Announce { .. })) && used_bytes == 0
    };
    assert!(announced(limits::UNASKED_BYTES_MAX + 1, |_, _| ()));
    assert!(announced(100_000, |_, credit| credit.limit_bytes = 100_000));
    assert!(announced(100_000, |flow, _| flow.policy = Some(0)));
    assert!(announced(100_000, |flow, _| flow.unasked_bytes_max = limits::EAGER_BYTES_MAX));
    let behind = |flow: &mut SendFlow, credit: &mut SendCredit| {
        flow.push(message(8, 0));
        assert!(flow.take(NOW, credit, 1_000, 1_448).is_some());
    };
    let (take, ..) = first_take(100_000, behind);
    assert!(matches!(take, Some(Take::Announce { .. })), "{take:?}");
}

#[test]
fn a_message_is_alone_if_no_other_waits_and_nothing_of_it_has_left() {
    let (mut flow, mut credit) = flow();
    assert_eq!(flow.lone_bytes(), None);
    flow.push(message(0, 3_000));
    assert_eq!(flow.lone_bytes(), Some(3_000));
    flow.push(message(1, 64));
    assert_eq!(flow.lone_bytes(), None, "another waits");
    while let Some(Take::Part { seq: 0, .. }) = flow.take(Instant(1), &mut credit, 1_024, 1_448) {
        assert!(flow.cursor == 0 || flow.lone_bytes().is_none(), "the rest of it waits");
        if flow.next == 1 {
            break;
        }
    }
    assert_eq!(flow.lone_bytes(), Some(64), "what is under way does not wait");
    flow.repeat_part(0, 0, 100);
    assert_eq!(flow.lone_bytes(), None, "something is to be sent again");
}

#[test]
fn what_is_taken_plainly_is_what_would_be_taken_anyway() {
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = move |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let range = |kind| ServiceRange::new(kind, 0, 9);
    let mut plainly = 0;
    for round in 0..400 {
        let ((mut plain, mut credit), (mut usual, mut other)) = (flow(), flow());
        let (bytes, messages) = (next(1 << 18), next(60));
        for credit in [&mut credit, &mut other] {
            (credit.limit_bytes, credit.limit_messages) = (bytes, messages);
        }
        for n in 0..1 + next(40) {
            let len = if next(5) == 0 { next(80_000) } else { next(200) };
            let service = (next(2) == 0).then_some(ServiceAddress::new(1, 2));
            let message = Outgoing { service, tag: (next(3) == 0).then_some(n), ..message(n, len) };
            let range = (next(9) == 0).then(|| range(n as u32));
            for flow in [&mut plain, &mut usual] {
                let seq = flow.push(Outgoing { range, ..message });
                if round % 7 == 3 && n % 5 == 4 {
                    flow.set_deadline(Instant(1_000));
                    assert!(n % 2 == 0 || flow.withdraw(seq).is_some());
                }
            }
        }
        for _ in 0..80 {
            let room = [next(1_400) as usize, 1_400][next(2) as usize];
            let taken = if plain.is_plain() { plain.take_plain(&mut credit, room) } else { None };
            plainly += u32::from(taken.is_some());
            let take = taken.map(|(seq, message)| Take::Whole { seq, message });
            let take = take.or_else(|| plain.take(Instant(5), &mut credit, room, 1_400));
            assert_eq!(take, usual.take(Instant(5), &mut other, room, 1_400));
            assert_eq!((plain.take_begun(), plain.has_more()), (usual.take_begun(), usual.has_more()));
            if next(20) == 0 {
                plain.repeat_whole(0, 1);
                usual.repeat_whole(0, 1);
            }
        }
        let used = |credit: &SendCredit| (credit.used_bytes, credit.used_messages);
        assert_eq!(used(&credit), used(&other));
    }
    assert!(plainly > 1_000, "{plainly}");
}

#[test]
fn no_more_leaves_plainly_than_the_receiver_orders() {
    let (mut flow, mut credit) = flow();
    (credit.limit_bytes, credit.limit_messages) = (u64::MAX, u64::MAX);
    (0..limits::REORDER_MESSAGES_MAX + 9).for_each(|n| assert_eq!(flow.push(message(n, 8)), n));
    let taken = std::iter::from_fn(|| flow.take_plain(&mut credit, 1_400)).count() as u64;
    assert_eq!((taken, flow.fills_window()), (limits::REORDER_MESSAGES_MAX, true));
    flow.confirm_whole(0, 1, |_| ());
    assert_eq!(flow.take_plain(&mut credit, 1_400), Some((taken, message(taken, 8))));
    assert_eq!(flow.take_plain(&mut credit, 1_400), None);
}
