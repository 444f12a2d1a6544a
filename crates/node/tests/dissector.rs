//! The Wireshark dissector against what the wire format's own code emits: tshark decodes a capture of every kind of frame
//! and packet, and says what was put in. Needs tshark; says so and passes where there is none.

#![forbid(unsafe_code)]

#[path = "dissector/expected.rs"]
mod expected;
#[path = "dissector/reserved.rs"]
mod reserved;
#[path = "../../proto/tests/wire/samples.rs"]
mod samples;
#[path = "dissector/tshark.rs"]
mod tshark;

use expected::{Values, of_frame};
use polyrail_proto::id::SessionId;
use polyrail_proto::wire::*;
use tshark::{Capture, Seen, installed};

/// A packet and what tshark is to find in it.
struct Case {
    packet: Vec<u8>,
    values: Values,
}

fn data_packet(frame: &[u8]) -> Vec<u8> {
    let mut packet = samples::emitted(|out| samples::header(FLAG_ACK_ELICITING).emit(out));
    packet.extend_from_slice(frame);
    // Where frames cannot be told apart there is no check, and the fault comes before it.
    let _ = finish(&mut packet);
    packet
}

/// Decodes the packets of `cases` and compares, packet by packet.
fn check(name: &str, cases: &[Case]) {
    let mut capture = Capture::ip(name);
    cases.iter().for_each(|case| capture.udp(7430, 7430, &case.packet));
    let seen = capture.decode();
    assert_eq!(seen.len(), cases.len(), "one of tshark's for each of ours");
    for (case, seen) in cases.iter().zip(&seen) {
        let what = describe(&case.packet);
        assert_eq!(seen.faults(), Vec::<String>::new(), "{what}");
        for (field, values) in &case.values.0 {
            assert_eq!(&seen.values(field), values, "{field} of {what}\n{seen:#?}");
        }
    }
}

#[test]
fn every_frame_is_decoded_to_what_was_emitted() {
    if !installed("every_frame_is_decoded_to_what_was_emitted") {
        return;
    }
    let log = samples::bindings_bytes();
    let mut frames = samples::frames(&log[32..]);
    // What no build knows, instead of a reserved type without its content.
    for frame in &mut frames {
        if matches!(frame, Frame::Skipped(_)) {
            *frame = Frame::Skipped(0x40);
        }
    }
    let mut cases: Vec<Case> = frames
        .iter()
        .map(|frame| Case {
            packet: samples::packet(0, std::slice::from_ref(frame)),
            values: of_frame(frame),
        })
        .collect();
    let mut company = Values::default();
    for frame in &frames {
        company.add("polyrail.frame", of_frame(frame).first("polyrail.frame"));
    }
    cases.push(Case { packet: samples::packet(FLAG_ACK_ELICITING, &frames), values: company });
    check("frames", &cases);
}

#[test]
fn the_ranges_of_an_acknowledgement_are_told() {
    if !installed("the_ranges_of_an_acknowledgement_are_told") {
        return;
    }
    // One range, several, and gaps and ranges that need more pairs than one.
    let wide = [(900_000, 1_000_000), (10, 300_000), (3, 5)];
    let mut capture = Capture::ip("ranges");
    let acks = [vec![(7, 7)], samples::ack().ranges.to_vec(), wide.to_vec()].map(|ranges| {
        let ack = Ack { largest: ranges[0].1, ranges: ranges.into_iter().collect(), ..samples::ack() };
        capture.udp(7430, 7430, &samples::packet(0, &[Frame::Ack(ack.clone())]));
        ack
    });
    for (ack, seen) in acks.iter().zip(capture.decode()) {
        let told: Vec<String> = ack.ranges.iter().map(|(from, to)| format!("{from}-{to}")).collect();
        assert_eq!((seen.texts("polyrail.ack.range"), seen.faults()), (told, vec![]), "{seen:#?}");
    }
}

#[test]
fn reserved_frames_are_decoded_by_their_layouts() {
    if !installed("reserved_frames_are_decoded_by_their_layouts") {
        return;
    }
    let frames = reserved::frames();
    let cases: Vec<Case> =
        frames.into_iter().map(|(frame, values)| Case { packet: data_packet(&frame), values }).collect();
    check("reserved", &cases);
}

#[test]
fn headers_and_packets_outside_of_a_session_are_decoded() {
    if !installed("headers_and_packets_outside_of_a_session_are_decoded") {
        return;
    }
    let hello = samples::hello();
    let packets = [
        (PacketType::Init, samples::emitted(|out| hello.emit_packet(PacketType::Init, SessionId(0), 1, out))),
        (PacketType::Resp, samples::emitted(|out| hello.emit_packet(PacketType::Resp, SessionId(9), 2, out))),
        (PacketType::Beacon, samples::emitted(|out| samples::beacon().emit_packet(3, out))),
        (PacketType::Versions, samples::emitted(|out| samples::versions().emit_packet(4, out))),
        (PacketType::Reset, samples::emitted(|out| samples::reset().emit_packet(5, out))),
    ];
    let mut cases: Vec<Case> = packets
        .into_iter()
        .map(|(kind, packet)| Case { values: expected::of_outside(kind, &packet), packet })
        .collect();
    for flags in
        [FLAG_ACK_ELICITING | FLAG_TRAIN_LAST, FLAG_FULL_CHECK | FLAG_ACK_NOW | FLAG_KEY_PHASE, FLAG_ACK_SOON]
    {
        let packet = samples::packet(flags, &[Frame::Message(samples::message(), b"hi")]);
        cases.push(Case { values: expected::of_header(&packet), packet });
    }
    let mut padded = samples::packet(FLAG_ACK_NOW, &[Frame::PortClosed(1, Default::default())]);
    padded.resize(1_200, 0);
    finish(&mut padded).expect("a packet of our own");
    let mut values = expected::of_header(&padded);
    values.add("polyrail.frame", 0x14);
    cases.push(Case { packet: padded, values });
    let mut sealed = samples::emitted(|out| samples::header(FLAG_SEALED).emit(out));
    sealed.extend((0..56u8).map(|byte| byte.wrapping_mul(37)));
    cases.push(Case { values: expected::of_header(&sealed), packet: sealed });
    check("outside", &cases);
}

/// The fault that our own parser finds first, as `malformed: what at where`.
fn fault_of(packet: &[u8]) -> String {
    let line = describe(packet);
    let at = line.find("malformed: ").unwrap_or_else(|| panic!("it is sound: {line}"));
    line[at..].to_owned()
}

#[test]
fn malformed_packets_get_an_expert_info_with_the_word_of_our_counters() {
    if !installed("malformed_packets_get_an_expert_info_with_the_word_of_our_counters") {
        return;
    }
    let message = samples::packet(0, &[Frame::Message(samples::message(), b"hi")]);
    let altered = |at: usize, byte: u8| {
        let mut packet = message.clone();
        packet[at] = byte;
        packet
    };
    let mut packets = vec![
        message[..20].to_vec(),
        altered(0, 0x20),
        altered(0, 0x1f),
        altered(1, 0x80),
        altered(15, 1),
        altered(12, 0xff),
        altered(26, 200),
    ];
    for frame in [&[0x90, 0, 4, 0, 0, 0, 0, 0][..], &[0x06, 0, 8, 0, 1, 0, 0, 0], &[0x06, 0]] {
        packets.push(data_packet(frame));
    }
    let mut gap = samples::emitted(|out| samples::ack().emit(out));
    gap[48..52].fill(0);
    packets.push(data_packet(&gap));
    let mut reset = samples::emitted(|out| samples::reset().emit_packet(5, out));
    reset[30] = 1;
    finish(&mut reset).expect("a packet of our own");
    packets.push(reset);

    let mut capture = Capture::ip("malformed");
    packets.iter().for_each(|packet| capture.udp(7430, 7430, packet));
    let seen = capture.decode();
    assert_eq!(seen.len(), packets.len());
    for (packet, seen) in packets.iter().zip(&seen) {
        let word = |fault: &str| fault.split(" at ").next().unwrap_or_default().to_owned();
        let found: Vec<String> = seen.faults().iter().map(|fault| word(fault)).collect();
        assert_eq!(found, [word(&fault_of(packet))], "{}\n{seen:#?}", describe(packet));
    }
}

/// Packets of every kind with one byte changed, and a check that is right for what they are now.
fn changed() -> Vec<Vec<u8>> {
    let mut changed = Vec::new();
    for packet in samples::packets() {
        // The large ones have nothing that the small ones have not.
        for at in (HEADER_BYTES..packet.len().min(160)).filter(|_| packet.len() < 400) {
            for bits in [0x01, 0x04, 0x80] {
                let mut other = packet.clone();
                other[at] ^= bits;
                let _ = finish(&mut other);
                changed.push(other);
            }
        }
    }
    changed
}

/// Whether a dissector that knows more than this version has to judge otherwise: reserved types and flags.
fn is_of_later_versions(line: &str, packet: &[u8]) -> bool {
    let reserved_flags = |frame: &[u8]| matches!(frame[0], 0x01 | 0x02 | 0x08) && frame[1] & 0xd4 != 0;
    let seals = Header::parse(packet).is_ok_and(|header| header.has(FLAG_SEALED));
    let cookie = Header::parse(packet).is_ok_and(|header| header.kind == PacketType::Cookie);
    line.contains("skipped") || seals || cookie || packet[HEADER_BYTES..].chunks_exact(8).any(reserved_flags)
}

#[test]
fn what_our_parser_takes_the_dissector_takes_and_what_not_not() {
    if !installed("what_our_parser_takes_the_dissector_takes_and_what_not_not") {
        return;
    }
    let packets: Vec<(Vec<u8>, String)> =
        changed().into_iter().map(|p| (describe(&p), p)).map(|(l, p)| (p, l)).collect();
    let packets: Vec<_> =
        packets.into_iter().filter(|(packet, line)| !is_of_later_versions(line, packet)).collect();
    assert!(packets.len() > 2_000, "{}", packets.len());
    let mut capture = Capture::ip("changed");
    packets.iter().for_each(|(packet, _)| capture.udp(7430, 7430, packet));
    let seen = capture.decode();
    assert_eq!(seen.len(), packets.len());
    let word = |fault: &str| fault.split(" at ").next().unwrap_or_default().to_owned();
    let mut wrong = Vec::new();
    let mut faulty = 0;
    for ((packet, line), seen) in packets.iter().zip(&seen) {
        let faults: Vec<String> = seen.faults().iter().map(|fault| word(fault)).collect();
        let expected = line.find("malformed: ").map(|at| word(&line[at..]));
        faulty += usize::from(expected.is_some());
        if expected.as_ref().map_or(!faults.is_empty(), |expected| !faults.contains(expected)) {
            wrong.push(format!("{line}\n  {packet:02x?}\n  {faults:?}"));
        }
    }
    assert!(faulty > 500 && faulty < packets.len() - 500, "{faulty} of {}", packets.len());
    assert!(
        wrong.is_empty(),
        "{} of {} differ:\n{}",
        wrong.len(),
        packets.len(),
        wrong[..wrong.len().min(12)].join("\n")
    );
}

#[test]
fn packets_that_a_capture_cut_are_decoded_as_far_as_they_go() {
    if !installed("packets_that_a_capture_cut_are_decoded_as_far_as_they_go") {
        return;
    }
    let packet = samples::packet(0, &[Frame::Message(samples::message(), &[7; 1_000])]);
    let mut capture = Capture::ip("cut");
    for kept in [0, 10, 24, 30, 40, 64, 500] {
        capture.cut(7430, 7430, &packet[..kept], packet.len());
    }
    for (index, seen) in capture.decode().iter().enumerate() {
        assert_eq!(seen.faults(), Vec::<String>::new(), "{index}: {seen:#?}");
        let whole_header = index >= 2;
        assert_eq!(seen.values("polyrail.number").len(), usize::from(whole_header), "{index}: {seen:#?}");
        let to = if index >= 4 { vec![7] } else { vec![] };
        assert_eq!(seen.values("polyrail.to"), to, "{index}: {seen:#?}");
    }
}

#[test]
fn packets_on_other_ports_are_known_by_their_check() {
    if !installed("packets_on_other_ports_are_known_by_their_check") {
        return;
    }
    let packet = samples::packet(0, &[Frame::Message(samples::message(), b"hi")]);
    let mut other = packet.clone();
    other[30] ^= 1;
    let mut capture = Capture::ip("ports");
    capture.udp(40_000, 40_001, &packet);
    capture.udp(40_000, 40_001, &other);
    capture.udp(7431, 40_001, &packet);
    let seen: Vec<bool> =
        capture.decode().iter().map(|seen| !seen.values("polyrail.number").is_empty()).collect();
    assert_eq!(seen, [true, false, true]);
}

#[test]
fn express_frames_are_decoded_with_the_packet_in_them() {
    if !installed("express_frames_are_decoded_with_the_packet_in_them") {
        return;
    }
    let packet = samples::packet(0, &[Frame::Message(samples::message(), b"hi")]);
    let address = |last: u8| {
        let mut bytes = vec![7, 4, 0x1d, 0x06, 10, 0, 0, last];
        bytes.resize(25, 0);
        bytes
    };
    let question = [address(1), address(2)].concat();
    let mut damaged = reserved::express(0, &packet);
    damaged[40] ^= 1;
    let mut capture = Capture::ethernet("express");
    for frame in [reserved::express(0, &packet), reserved::express(1, &question), damaged] {
        capture.frame(&frame);
    }
    let seen = capture.decode();
    let common = |seen: &Seen| {
        ["to_port", "from_port", "behind", "number", "heard"]
            .map(|name| seen.values(&format!("polyrail_express.{name}"))[0])
    };
    assert!(seen.iter().all(|seen| common(seen) == [7430, 7431, 1, 513, 65_535]), "{seen:#?}");
    assert_eq!(
        (seen[0].values("polyrail.to"), seen[0].values("polyrail.seq")),
        (vec![7], vec![9]),
        "{seen:#?}"
    );
    assert_eq!(seen[1].texts("polyrail_express.sender"), ["10.0.0.1:7430"]);
    assert_eq!(seen[1].texts("polyrail_express.receiver"), ["10.0.0.2:7430"]);
    let faults: Vec<usize> = seen.iter().map(|seen| seen.faults().len()).collect();
    assert_eq!(faults, [0, 0, 1], "{seen:#?}");
    assert_eq!(seen[2].faults(), ["malformed: checksum"]);
}
