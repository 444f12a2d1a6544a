//! The exact bytes of every frame and packet, written by hand from protocol.md: code and document can't drift apart.

#[path = "wire/samples.rs"]
mod samples;

use arrayvec::ArrayString;
use polyrail_proto::address::MediaAddress;
use polyrail_proto::id::SessionId;
use polyrail_proto::wire::handshake::{BEARERS_MAX, NAME_BYTES_MAX};
use polyrail_proto::wire::*;

/// Bytes from hexadecimal digits; `|` and blanks separate fields for the reader.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// In the order of `samples::frames`.
const FRAMES: [(&str, &str); 33] = [
    ("§4.1 MSG", "01 02 1200 | 05000000 | 07000000 | 09000000 | 6869 | 000000000000"),
    (
        "§4.1 MSG, service and tag",
        "01 29 2000 | 05000000 | 08000000 | 0a000000 | 64000000 03000000 | 8877665544332211",
    ),
    (
        "§4.2 EFRAG, first",
        "02 29 2b00 | 05000000 | 08000000 | 0a000000 | 03000000 | 00000000
         | 64000000 03000000 | 8877665544332211 | 616263 | 0000000000",
    ),
    (
        "§4.2 EFRAG, later",
        "02 02 2000 | 05000000 | 07000000 | 09000000 | 1e000000 | 10000000 | 6162636465666768",
    ),
    ("§4.3 RFRAG", "03 00 1300 | 06000000 | 0000000000010000 | 78797a | 0000000000"),
    (
        "§4.4 ACK",
        "04 00 3800 | 0300 02 0f | e803000000000000 | 04030201 | 14000000 | 0000000002000000
         | 08070605 | 04000000 | 0a000000 | 4d000000 | 0900 5100 | 7203 0100",
    ),
    (
        "§4.5 BEARER_STATE",
        "05 00 2000 | 01 01 02 00 | 03000000 | 04000000 | 05000000 | 0000 0600 | 07000000 | 08000000",
    ),
    ("§4.6 CREDIT", "06 00 1800 | 07000000 | 00040000 | 00000000 | 0000000004000000"),
    (
        "§4.7 REFUSE",
        "07 03 2000 | 0c000000 | 05000000 | 07000000 | 09000000 | 0100 0000 | f4010000 | 00000000",
    ),
    ("§4.8 RTS", "08 02 2000 | 05000000 | 07000000 | 09000000 | 15000000 | 00000000 | 0000100000000000"),
    (
        "§4.8 RTS, service and tag",
        "08 29 3000 | 05000000 | 08000000 | 0a000000 | 16000000 | 00000000 | 0000000000000100
         | 64000000 03000000 | 8877665544332211",
    ),
    ("§4.9 CTS", "09 00 2000 | 15000000 | 06000000 | 00000000 | 0000010000000000 | 0010000000000000"),
    ("§4.13 TRANSFER_ABORT", "0a 00 1000 | 0d000000 | 15000000 | 00000000"),
    (
        "§4.10 BINDINGS",
        "10 00 7000 | 0b000000 | 0b0b000000000000 | 2c00000000000000 | 0800000000000000
         | 64000000 02000000 09000000 07000000 0b0a000000000000 02 01 03 01 00000000 00000000 00000000
         | 64000000 02000000 09000000 07000000 0b0a000000000000 02 02 00 00 00000000 00000000 00000000",
    ),
    ("§4.13 PORT_CLOSED", "14 00 1000 | 0e000000 | 07000000 | 00000000"),
    ("§4.11 PROBE", "18 04 1800 | 0400 0000 | 6300000000000000 | 0201000000000000"),
    (
        "§4.11 PROBE_REPLY",
        "19 83 2800 | 0400 0500 | 6300000000000000 | 0100000000000000 | 0300000000000000 | 02000000 | 04000000",
    ),
    ("§4.12 LINK_SET", "1c 00 1000 | 0f000000 | 0400 02 00 | 04030201"),
    ("§2.2 a frame that is skipped", "0c 00 0400 | 00000000"),
    ("§4.14 CLOSE", "80 00 0800 | 0100 0000"),
    (
        "§4.15 CONNECT",
        "20 0d 2800 | 10000000 | 02010080 | 05000000 | 07000000 | 00040000 | 0000000002000000
         | 64000000 03000000",
    ),
    ("§4.16 ACCEPT", "21 00 2000 | 11000000 | 020100c0 | 07000000 | 0000 0000 | 00080000 | 0000100000000000"),
    (
        "§4.16 ACCEPT, refused",
        "21 01 2000 | 12000000 | 020100c0 | 00000000 | 0200 0000 | 00000000 | 0000000000000000",
    ),
    ("§4.17 SHUTDOWN", "22 05 1800 | 13000000 | 02010080 | 09000000 | 00000000 00000000"),
    (
        "§4.18 MULTICAST, first piece, tag",
        "23 09 2a00 | 05000000 | 0a000000 | 64000000 03000000 09000000 | 0c000000 | 00000000
         | 8877665544332211 | 6869 | 000000000000",
    ),
    (
        "§4.18 MULTICAST, later piece",
        "23 02 2800 | 05000000 | 09000000 | 64000000 03000000 09000000 | 10000000 | 08000000 | 6162636465666768",
    ),
    (
        "§4.10 NAME_DIGEST",
        "11 02 2800 | 14000000 | 0b0b000000000000 | 2c00000000000000 | 0900000000000000 | 8877665544332211",
    ),
    (
        "§4.1 MSG, whose sender is told when it was read",
        "01 39 2500 | 05000000 | 08000000 | 0a000000 | 64000000 03000000 | 8877665544332211 | 726561643f | 000000",
    ),
    (
        "§4.2 EFRAG, the same",
        "02 39 2c00 | 05000000 | 08000000 | 0a000000 | 09000000 | 00000000
         | 64000000 03000000 | 8877665544332211 | 72656164 | 00000000",
    ),
    ("§4.19 CONSUMED", "24 03 1800 | 14000000 | 07000000 | 05000000 | 0a000000 | 0000 0000"),
    (
        "§4.19 CONSUMED, the rest rejected",
        "24 03 1800 | 15000000 | 07000000 | 05000000 | 0a000000 | 0200 0000",
    ),
    (
        "§4.12 BEARER_SET",
        "1d 00 3000 | 16000000 | 02 01 0c23 | 00001000 | 07 00000000000000
         | 041d060a000007 00 0000000000000000 0000000000000000",
    ),
    (
        "§4.12 BEARER_SET, gone",
        "1d 00 3000 | 17000000 | 01 00 0000 | 00000000 | 00 00000000000000
         | 0000000000000000 0000000000000000 0000000000000000",
    ),
];

#[test]
fn every_frame_has_the_documented_bytes() {
    let log = samples::bindings_bytes();
    let frames = samples::frames(&log[32..]);
    assert_eq!(frames.len(), FRAMES.len());
    for (frame, (section, text)) in frames.iter().zip(FRAMES) {
        let expected = hex(text);
        assert_eq!(samples::emitted(|out| frame.emit(out)), expected, "{section}: emitted");
        assert_eq!(frame.emitted_bytes(), expected.len(), "{section}: length");
        let parsed: Vec<_> = Frames::new(&expected, HEADER_BYTES).collect();
        assert_eq!(parsed, [Ok(frame.clone())], "{section}: parsed");
    }
}

#[test]
fn the_header_has_the_documented_bytes() {
    let header = Header { check: 0x1716_1514, ..samples::header(FLAG_ACK_NOW | FLAG_TRAIN_LAST) };
    let expected = hex("10 30 | 0102 | 03040506 | 0708090a0b0c0000 | 10111213 | 14151617");
    assert_eq!(samples::emitted(|out| header.emit(out)), expected);
    assert_eq!(Header::parse(&expected), Ok(header));
}

/// `text` after a header of type `kind`, without looking at the checksum, which `verify` has to accept.
fn expect_packet(packet: &[u8], kind: &str, text: &str) {
    let mut expected = hex(kind);
    expected.extend_from_slice(&packet[CHECK_OFFSET..HEADER_BYTES]);
    expected.extend(hex(text));
    assert_eq!(packet, expected);
    assert!(verify(packet).is_ok(), "{}", describe(packet));
}

#[test]
fn packets_outside_of_a_session_have_the_documented_bytes() {
    let beacon = samples::emitted(|out| samples::beacon().emit_packet(0x0403_0201, out));
    let body = "c100000000000000 | 0b0b000000000000 | 2c00000000000000 | 01 01 000000000000";
    expect_packet(&beacon, "14 00 0000 00000000 0000000000000000 01020304", body);
    assert_eq!(Beacon::parse(&beacon[HEADER_BYTES..]), Ok(samples::beacon()));

    let versions = samples::emitted(|out| samples::versions().emit_packet(1, out));
    let body = "0b0b000000000000 | 01 03 000000000000";
    expect_packet(&versions, "15 00 0000 00000000 0000000000000000 01000000", body);
    assert_eq!(Versions::parse(&versions[HEADER_BYTES..]), Ok(samples::versions()));

    let reset = samples::emitted(|out| samples::reset().emit_packet(1, out));
    let body = "51000000 00000000 | 0b0b000000000000 | 2c00000000000000";
    expect_packet(&reset, "16 00 0000 00000000 0000000000000000 01000000", body);
    assert_eq!(Reset::parse(&reset[HEADER_BYTES..]), Ok(samples::reset()));
}

#[test]
fn init_and_resp_have_the_documented_bytes() {
    let body = "c100000000000000 | 0b0b000000000000 | 2c00000000000000 | 2b00000000000000
        | fe00000000000000 | 5740000000000000 | 51000000 | 07000000 | 00000100 | 00000400 | 00040000 | f4010000
        | 01 01 01 00 00000000
        | 01 00 0a00 6e6f64652d62 000000000000
        | 02 00 1200 | 00 00 c005 | 00001000 | 0a000001 3930 | 000000000000
        | 02 00 1200 | 01 00 c005 | 00001000 | 0a000002 3930 | 000000000000";
    let hello = samples::hello();
    let resp = samples::emitted(|out| hello.emit_packet(PacketType::Resp, SessionId(9), 2, out));
    expect_packet(&resp, "12 00 0000 09000000 0000000000000000 02000000", body);
    let init = samples::emitted(|out| hello.emit_packet(PacketType::Init, SessionId(0), 1, out));
    expect_packet(&init, "11 00 0000 00000000 0000000000000000 01000000", body);
    assert_eq!(Hello::parse(&init[HEADER_BYTES..]).as_ref(), Ok(&hello));
    assert_eq!(hello.emitted_bytes(), init.len());
}

#[test]
fn an_answer_to_a_forged_address_stays_small() {
    let mut hello = samples::hello();
    hello.name = ArrayString::from(&"n".repeat(NAME_BYTES_MAX)).unwrap();
    let address = MediaAddress::from_bytes(&[7; 24]).unwrap();
    let bearer = BearerAddress { address, ..hello.bearers[0].clone() };
    hello.bearers = (0..BEARERS_MAX).map(|_| bearer.clone()).collect();
    let resp = samples::emitted(|out| hello.emit_packet(PacketType::Resp, SessionId(9), 2, out));
    assert_eq!((resp.len(), hello.emitted_bytes()), (816, 816));
    assert_eq!(Hello::parse(&resp[HEADER_BYTES..]), Ok(hello));
}

#[test]
fn the_checksum_is_crc32c_over_what_is_not_payload() {
    // CRC32C of the nine digits is its published check value.
    assert_eq!(check_of(b"123456789"), 0xE306_9283);
    let bytes = samples::packet(0, &[Frame::Message(samples::message(), b"hi")]);
    let mut covered = bytes.clone();
    covered.drain(40..42);
    put_check(&mut covered, 0);
    assert_eq!(check_of(&covered).to_le_bytes(), bytes[CHECK_OFFSET..HEADER_BYTES]);
    assert_eq!(check_of(&covered), check_of_parts([&covered[..30], &covered[30..]]));
}
