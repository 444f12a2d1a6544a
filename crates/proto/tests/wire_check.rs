//! What the checksum of a packet covers (protocol.md §2.3), and how packets read as text.

#[path = "wire/samples.rs"]
mod samples;

use polyrail_proto::id::{LinkId, SessionId, TransferId};
use polyrail_proto::wire::*;

/// Offsets of a packet at which a flipped bit goes unnoticed.
fn unnoticed(packet: &[u8]) -> Vec<usize> {
    let flipped = |at: usize, bit: u32| {
        let mut copy = packet.to_vec();
        copy[at] ^= 1 << bit;
        verify(&copy).is_ok()
    };
    (0..packet.len()).filter(|&at| (0..8).any(|bit| flipped(at, bit))).collect()
}

#[test]
fn only_flips_in_payloads_go_unnoticed() {
    let log = samples::bindings_bytes();
    let frames = samples::frames(&log[32..]);
    let packet = samples::packet(0, &frames);
    let mut payloads = Vec::new();
    let mut at = HEADER_BYTES;
    for frame in &frames {
        let (head, len) = match frame {
            Frame::Message(message, payload) => (message.header_bytes(), payload.len()),
            Frame::Fragment(fragment, payload) => (fragment.header_bytes(), payload.len()),
            Frame::TransferFragment(_, payload) => (TransferFragment::HEADER_BYTES, payload.len()),
            Frame::Multicast(multicast, payload) => (multicast.header_bytes(), payload.len()),
            _ => (0, 0),
        };
        payloads.extend(at + head..at + head + len);
        at += frame.emitted_bytes();
    }
    assert_eq!(payloads.len(), 2 + 3 + 8 + 3 + 2 + 8 + 5 + 4);
    assert_eq!(unnoticed(&packet), payloads);
}

#[test]
fn a_full_check_covers_payloads_too() {
    let log = samples::bindings_bytes();
    let packet = samples::packet(FLAG_FULL_CHECK, &samples::frames(&log[32..]));
    assert_eq!(unnoticed(&packet), []);
}

#[test]
fn packets_outside_of_a_session_are_covered_whole() {
    for packet in samples::packets() {
        if peek_type(&packet) != Some(PacketType::Data) {
            assert_eq!(unnoticed(&packet), [], "{}", describe(&packet));
        }
    }
}

#[test]
fn a_sender_that_never_gathers_payloads_makes_the_same_packet() {
    let payloads: [&[u8]; 3] = [b"one", b"", b"sixteen bytes now"];
    let frames: Vec<_> =
        payloads.iter().map(|payload| Frame::Message(samples::message_with_options(), payload)).collect();
    let whole = samples::packet(FLAG_TRAIN_LAST, &frames);
    let mut slab = samples::emitted(|out| samples::header(FLAG_TRAIN_LAST).emit(out));
    let mut pieces = vec![];
    for payload in payloads {
        let message = samples::message_with_options();
        message.emit(&mut slab, payload.len());
        pieces.push((slab.len(), payload));
        slab.resize(slab.len() + padding(message.header_bytes() + payload.len()), 0);
    }
    let check = check_of(&slab);
    put_check(&mut slab, check);
    let mut gathered = vec![];
    let mut from = 0;
    for (to, payload) in pieces {
        gathered.extend_from_slice(&slab[from..to]);
        gathered.extend_from_slice(payload);
        from = to;
    }
    gathered.extend_from_slice(&slab[from..]);
    assert_eq!(gathered, whole);
}

#[test]
fn packets_read_as_one_line() {
    let log = samples::bindings_bytes();
    let frames = samples::frames(&log[32..]);
    let line = describe(&samples::packet(FLAG_ACK_ELICITING | FLAG_TRAIN_LAST, &frames));
    for part in [
        "data to 100992003 link 513 number 13241552537607 stamp 13121110 ack last: msg 5>7 seq 9 normal len 2; ",
        "msg 5>8 seq 10 urgent service 100:3 tag 0x1122334455667788 len 0; ",
        "efrag 5>7 seq 9 normal bytes 16..24 of 30; ",
        "rfrag transfer 6 bytes 1099511627776..1099511627779; ",
        "ack link 3 990-1000,900-980,17-17 echo 01020304 delay 20 ",
        "bearer 1 tx free 3 rx busy 4 window 5 senders 6 rate 7 KB/s seq 8; ",
        "refuse #12 5>7 seq 9 bulk no-room retry 500 us; ",
        "bindings #11 of 0000000000000b0b/44 log 8 +100:2-9@7 -100:2-9@7; ",
        "probe join id 63 link 4 target 102 size 0; ",
        "link-set #15 link 4 drain; skipped 0x0c; close reason 1",
    ] {
        assert!(line.contains(part), "{part}\nis missing in\n{line}");
    }
    assert!(samples::packets().iter().all(|packet| !describe(packet).contains('\n')));
}

#[test]
fn a_piece_is_read_in_one_go_exactly_if_its_packet_is_whole() {
    let (transfer, offset) = (TransferId(7), 1 << 20);
    for (len, read) in [(0, true), (8, true), (1_432, true), (1_431, false)] {
        let payload: Vec<u8> = (0..len).map(|i| i as u8).collect();
        let header = Header {
            kind: PacketType::Data,
            flags: FLAG_ACK_ELICITING | FLAG_TRAIN_LAST,
            link: LinkId(3),
            to: SessionId(9),
            number: 77,
            stamp: 5,
            check: 0,
        };
        let mut packet = vec![];
        header.emit(&mut packet);
        TransferFragment { transfer, offset }.emit(&mut packet, len);
        packet.extend(&payload);
        packet.resize(packet.len().next_multiple_of(8), 0);
        finish(&mut packet).unwrap();
        let piece = piece(&packet);
        assert_eq!(piece.is_some(), read, "{len} bytes");
        if let Some(piece) = piece {
            assert_eq!((piece.fragment.transfer, piece.fragment.offset), (transfer, offset));
            assert_eq!((piece.payload, Ok(piece.header)), (&payload[..], verify(&packet)));
        }
        for bit in 0..packet.len().min(48) * 8 {
            let mut copy = packet.clone();
            copy[bit / 8] ^= 1 << (bit % 8);
            // Payload is not covered (protocol.md §2.3).
            let whole = read && bit / 8 >= 40;
            assert_eq!(polyrail_proto::wire::piece(&copy).is_some(), whole, "bit {bit} of {len} bytes");
        }
        for cut in 0..packet.len() {
            assert!(polyrail_proto::wire::piece(&packet[..cut]).is_none());
        }
    }
}

#[test]
fn the_sum_is_the_same_however_many_pieces_the_headers_lie_in() {
    let records = samples::bindings_bytes()[32..].repeat(12);
    let is_long = |frame: &Frame<'_>| matches!(frame, Frame::Bindings(_));
    let long = samples::frames(&records).into_iter().find(is_long).expect("every kind is there");
    assert!(long.emitted_bytes() > 900);
    let payload = [0x5A; 200];
    for count in 0..40 {
        for place in [0, count / 2, count, 99] {
            let mut frames: Vec<Frame<'_>> = (0..count)
                .map(|n| Frame::Message(samples::message_with_options(), &payload[..(n * 37 + count) % 200]))
                .collect();
            if place <= count {
                frames.insert(place, long.clone());
            }
            let packet = samples::packet(0, &frames);
            let (mut headers, mut at) = (packet[..HEADER_BYTES].to_vec(), HEADER_BYTES);
            put_check(&mut headers, 0);
            for frame in &frames {
                let end = at + frame.emitted_bytes();
                let payload = match frame {
                    Frame::Message(m, payload) => {
                        at + m.header_bytes()..at + m.header_bytes() + payload.len()
                    }
                    _ => end..end,
                };
                headers.extend_from_slice(&packet[at..payload.start]);
                headers.extend_from_slice(&packet[payload.end..end]);
                at = end;
            }
            let check = check_of(&headers).to_le_bytes();
            assert_eq!(packet[HEADER_BYTES - 4..HEADER_BYTES], check, "{count} messages, {place}");
            assert!(verify(&packet).is_ok());
        }
    }
}
