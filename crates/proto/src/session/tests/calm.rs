//! How long nobody has to look at a session, and how deep queues are meanwhile.

use super::outgoing::*;
use super::*;
use crate::wire::{Credit, Frame};

const MB: u64 = 1_000_000;

fn at_ms(ms: u64) -> Instant {
    NOW + Duration::ms(ms)
}

fn rest_us(session: &Session, ms: u64) -> Option<u64> {
    session.rest(at_ms(ms)).map(|rest| rest.span.as_us())
}

/// A session that sends a message of so many bytes by links that deliver so many MB/s each.
fn sending(rates: &[u64], bytes: u64) -> Session {
    let mut session = up(rates.len());
    for (link, rate) in session.links.iter_mut().zip(rates) {
        measure(link, rate * 1_024);
    }
    start_transfer(&mut session, Class::Normal, bytes);
    session
}

/// A session that has received so many MB/s, and granted messages of so many bytes.
fn receiving(rate: u64, messages: &[u64]) -> Session {
    let mut session = up(1);
    let received = &mut session.links[0].received;
    (0..100).for_each(|ms| received.on_batch_end(at_ms(ms), rate * 1_000, 1));
    for (seq, total) in messages.iter().enumerate() {
        let rts = wire::Rts { message: head(seq as u32), token: seq as u32, total: *total };
        let mut transfer = ReceiveTransfer::new(0, PortId(1), seq as u64, &rts);
        transfer.accept(BufferId(seq as u64));
        session.receiving.transfers.insert(transfer).unwrap();
    }
    session
}

#[test]
fn nobody_rests_while_anything_but_large_messages_passes() {
    let mut session = sending(&[100], 8 * MB);
    assert_eq!((rest_us(&session, 99), rest_us(&session, 100)), (Some(0), Some(1_000)));
    send_by(&mut session, Class::Urgent, 100);
    assert!(poll_at(&mut session, at_ms(150), 0).is_some());
    assert_eq!((rest_us(&session, 249), rest_us(&session, 250)), (Some(0), Some(1_000)));
    let mut link = up(1).links.remove(0).received;
    link.record(NOW, 0, 100, 0, true, AckWish::Now, false);
    let ack = link.build(NOW, LinkId(0));
    let credit = Credit { port: PortId(1), bytes: 1, messages: 1 };
    for (frame, quiet) in [
        (Frame::Rts(wire::Rts { message: head(0), token: 3, total: MB }), true),
        (Frame::Ack(ack), true),
        (Frame::Credit(credit), true),
        (Frame::Message(head(0), &[]), false),
    ] {
        let mut session = sending(&[100], 8 * MB);
        session.note_frame(at_ms(300), &frame);
        assert_eq!(rest_us(&session, 301), Some(if quiet { 1_000 } else { 0 }), "{frame:?}");
    }
}

#[test]
fn who_does_nothing_neither_rests_nor_keeps_others_from_it() {
    let session = up(1);
    assert_eq!((rest_us(&session, 99), rest_us(&session, 100)), (Some(0), None));
}

#[test]
fn who_sends_rests_while_there_is_enough_to_do_for_all_links() {
    for (bytes, rest) in [(2_999_000, 1_000), (600_000, 1_000), (400_000, 500), (282_000, 205), (278_000, 0)]
    {
        assert_eq!(rest_us(&sending(&[100, 100], bytes), 100), Some(rest), "{bytes}");
    }
    assert!(sending(&[100, 100], 8 * MB).rest(at_ms(100)).unwrap().sends);
    assert_eq!(rest_us(&sending(&[0], 8 * MB), 100), Some(0), "nothing is known of the link");
}

#[test]
fn who_receives_rests_while_much_is_to_come_and_not_for_more_than_finds_room() {
    for (rate, messages, rest) in [
        (100, &[MB][..], 1_000),
        (100, &[200_000, 100_000], 1_000),
        (100, &[100_000, 100_000], 500),
        (100, &[90_000, 48_000], 0),
        (500, &[100 * MB], 524),
        (1_250, &[100 * MB], 209),
        (1_500, &[100 * MB], 0),
    ] {
        let session = receiving(rate, messages);
        assert_eq!(rest_us(&session, 100), Some(rest), "{rate} {messages:?}");
        assert!(!session.rest(at_ms(100)).unwrap().sends);
    }
    let mut session = receiving(500, &[100 * MB]);
    session.links.push(receiving(250, &[]).links.remove(0));
    assert_eq!(rest_us(&session, 100), Some(524), "for each link");
    let mut session = receiving(100, &[MB]);
    let transfer = session.receiving.transfers.get_mut(0).unwrap();
    transfer.place(0, 870_000, |_, _, _, _| {});
    assert_eq!(rest_us(&session, 100), Some(0), "the end of it is not to wait");
}

#[test]
fn nobody_rests_while_something_is_to_be_found_out_about_a_link() {
    let mut session = sending(&[100, 100], 8 * MB);
    session.links[1].pto_count = 1;
    assert_eq!(rest_us(&session, 100), Some(0), "in doubt");
    session.links[1].state.handle(NOW, LinkEvent::Silence);
    assert_eq!(rest_us(&session, 100), Some(0), "suspect");
    session.links[1].state.handle(NOW, LinkEvent::CarrierLost);
    assert_eq!(rest_us(&session, 100), Some(1_000), "known to be dead");
}

#[test]
fn queues_are_deep_enough_for_a_rest_and_only_then() {
    let queue_us =
        |session: &Session, ms| session.aims(at_ms(ms), config().queue_target).queue_target.as_us();
    let long_us = config().queue_target.1.as_us();
    let session = sending(&[100, 100], 8 * MB);
    assert_eq!((queue_us(&session, 99), queue_us(&session, 100)), (long_us, 2_000));
    assert_eq!(queue_us(&sending(&[100, 100], 500_000), 100), 1_500, "twice the rest");
    assert_eq!(queue_us(&sending(&[100, 100], 390_000), 100), long_us, "there is not enough to do");
}
