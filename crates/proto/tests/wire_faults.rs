//! Each kind of malformed input is told apart, with the place at which it was noticed.

#[path = "wire/samples.rs"]
mod samples;

use polyrail_proto::wire::*;
use samples::{emitted, packet};
use std::collections::BTreeSet;

/// What a receiver makes of a packet: its first fault.
fn fault_of(packet: &[u8]) -> Option<Malformed> {
    let header = match verify(packet) {
        Ok(header) => header,
        Err(e) => return Some(e),
    };
    let body = &packet[HEADER_BYTES..];
    match header.kind {
        PacketType::Data if header.has(FLAG_SEALED) => None,
        PacketType::Data => Frames::new(body, HEADER_BYTES).find_map(Result::err),
        PacketType::Init | PacketType::Resp => Hello::parse(body).err(),
        PacketType::Beacon => Beacon::parse(body).err(),
        PacketType::Versions => Versions::parse(body).err(),
        PacketType::Reset => Reset::parse(body).err(),
        PacketType::Cookie => None,
    }
}

/// `packet` with bytes overwritten, and the right checksum for what it is then.
fn with(mut packet: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    packet[at..at + bytes.len()].copy_from_slice(bytes);
    finish(&mut packet).expect("the header stays whole");
    packet
}

/// As `with`, the checksum left as it was.
fn raw(mut packet: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
    packet[at] = byte;
    packet
}

fn cut(mut packet: Vec<u8>, len: usize) -> Vec<u8> {
    packet.truncate(len);
    packet
}

fn single(index: usize) -> Vec<u8> {
    let log = samples::bindings_bytes();
    packet(0, &samples::frames(&log[32..])[index..=index])
}

fn init() -> Vec<u8> {
    emitted(|out| samples::hello().emit_packet(PacketType::Init, Default::default(), 1, out))
}

/// INIT with more bearers than a node may have.
fn init_with_17_bearers() -> Vec<u8> {
    let mut packet = init();
    let bearer = packet[packet.len() - 24..].to_vec();
    for _ in 2..17 {
        packet.extend_from_slice(&bearer);
    }
    finish(&mut packet).expect("the header stays whole");
    packet
}

/// BINDINGS with `count` copies of one record.
fn bindings(count: usize) -> Vec<u8> {
    let mut packet = single(13);
    let record = packet[56..96].to_vec();
    packet.truncate(56);
    (0..count).for_each(|_| packet.extend_from_slice(&record));
    let len = (32 + 40 * count) as u16;
    with(packet, 26, &len.to_le_bytes())
}

#[rustfmt::skip]
fn table() -> Vec<(&'static str, Vec<u8>, Fault, u16)> {
    use Fault::*;
    let reset = || emitted(|out| samples::reset().emit_packet(1, out));
    let beacon = || emitted(|out| samples::beacon().emit_packet(1, out));
    let versions = || emitted(|out| samples::versions().emit_packet(1, out));
    let sealed = || { let mut p = emitted(|out| samples::header(FLAG_SEALED).emit(out)); p.resize(60, 7); p };
    vec![
        ("empty packet", vec![], Truncated, 0),
        ("header cut", cut(single(0), 23), Truncated, 23),
        ("sealed without a tag", cut(sealed(), 39), Truncated, 39),
        ("frame header cut", cut(single(0), 26), Truncated, 24),
        ("beacon cut", { let mut p = cut(beacon(), 55); finish(&mut p).unwrap(); p }, Truncated, 55),
        ("init cut", { let mut p = cut(init(), 100); finish(&mut p).unwrap(); p }, Truncated, 100),
        ("version 2", raw(single(0), 0, 0x20), Version(2), 0),
        ("version 0", raw(single(0), 0, 0x00), Version(0), 0),
        ("packet type 7", raw(single(0), 0, 0x17), PacketType(7), 0),
        ("header bit flipped", raw(single(0), 16, 0), Checksum, 20),
        ("sealed with a checksum", raw(sealed(), 20, 1), Checksum, 20),
        ("frame shorter than its header", raw(single(0), 26, 3), FrameLength, 26),
        ("frame beyond the packet", raw(single(0), 27, 1), FrameLength, 26),
        ("message without seq", raw(single(0), 26, 12), FrameLength, 26),
        ("message without its tag", raw(single(1), 26, 31), FrameLength, 26),
        ("fixed frame too long", { let mut p = single(7); p.extend([0; 8]); with(p, 26, &[32]) }, FrameLength, 26),
        ("ack length and count differ", with(single(5), 30, &[1]), FrameLength, 26),
        ("half a record", with(cut(single(13), 116), 26, &[92]), FrameLength, 26),
        ("rts with bytes at the end", { let mut p = single(9); p.extend([0; 8]); with(p, 26, &[40]) }, FrameLength, 26),
        ("bearer address too long", { let mut p = init(); p.resize(200, 0); with(p, 122, &[40]) }, FrameLength, 122),
        ("bearer without a window", with(init(), 122, &[8]), FrameLength, 122),
        ("unknown critical frame", with(single(19), 24, &[0x81]), CriticalFrame(0x81), 24),
        ("unknown critical parameter", with(init(), 104, &[0xC0]), CriticalFrame(0xC0), 104),
        ("first range below zero", with(single(5), 64, &[0xE9, 3]), AckRange, 64),
        ("later range below zero", with(single(5), 78, &[255]), AckRange, 76),
        ("step to nowhere", with(single(5), 72, &[0; 4]), AckRange, 72),
        ("packet number beyond 48 bits", raw(single(0), 14, 1), Value, 8),
        ("acknowledged number beyond 48 bits", with(single(5), 38, &[1]), Value, 32),
        ("probed number beyond 48 bits", with(single(16), 46, &[1]), Value, 40),
        ("next number beyond 48 bits", with(single(16), 54, &[1]), Value, 48),
        ("piece beyond its message", with(single(2), 40, &[2]), Value, 44),
        ("tag in a later piece", with(single(3), 25, &[0x0A]), Value, 25),
        ("transfer beyond 2^48", with(single(4), 38, &[1]), Value, 32),
        ("rts beyond 2^48", with(single(9), 55, &[1]), Value, 48),
        ("grant beyond 2^48", with(single(11), 47, &[1]), Value, 40),
        ("bearer state 4", with(single(6), 29, &[4]), Value, 29),
        ("refused for no known reason", with(single(8), 44, &[9]), Value, 44),
        ("log of nobody", with(single(13), 32, &[0; 8]), Value, 32),
        ("empty range of instances", with(single(13), 104, &[1]), Value, 104),
        ("binding known to its node only", with(single(13), 80, &[3]), Value, 80),
        ("binding operation 0", with(single(13), 81, &[0]), Value, 81),
        ("probe kind 5", with(single(15), 25, &[5]), Value, 25),
        ("link status 4", with(single(17), 34, &[4]), Value, 34),
        ("beacon of nobody", with(beacon(), 32, &[0; 8]), Value, 32),
        ("versions upside down", with(versions(), 32, &[4]), Value, 32),
        ("reset from nobody", with(reset(), 32, &[0; 8]), Value, 32),
        ("init of nobody", with(init(), 32, &[0; 8]), Value, 32),
        ("init versions upside down", with(init(), 96, &[9]), Value, 96),
        ("bearer 16", with(init(), 98, &[16]), Value, 98),
        ("announced bearer 16", with(init(), 124, &[16]), Value, 124),
        ("name not UTF-8", with(init(), 110, &[0xFF]), Text, 110),
        ("name with a control character", with(init(), 110, &[0x1B]), Text, 108),
        ("name too long", { let mut p = init(); p.truncate(104); p.extend([1, 0, 68, 0]); p.resize(176, b'x');
            p[172..].fill(0); finish(&mut p).unwrap(); p }, Text, 108),
        ("33 pairs", with(single(5), 30, &[33]), Count, 30),
        ("no records", bindings(0), Count, 26),
        ("29 records", bindings(29), Count, 26),
        ("17 bearers", init_with_17_bearers(), Count, 504),
        ("two names", { let mut p = init(); let name = p[104..120].to_vec(); p.extend(name); finish(&mut p).unwrap(); p }, Count, 168),
        ("header flag 7", raw(single(0), 1, 0x80), Reserved, 1),
        ("flag outside of a session", raw(init(), 1, 1), Reserved, 1),
        ("link outside of a session", raw(init(), 2, 1), Reserved, 2),
        ("joinable before its time", with(single(0), 25, &[0x42]), Reserved, 25),
        ("flags of a transfer piece", with(single(4), 25, &[1]), Reserved, 25),
        ("flags of an ack", with(single(5), 25, &[1]), Reserved, 25),
        ("padding of a frame", with(single(0), 45, &[1]), Reserved, 45),
        ("padding of a packet", { let mut p = single(0); p.resize(60, 0); with(p, 56, &[1]) }, Reserved, 56),
        ("unused field of credit", with(single(7), 36, &[1]), Reserved, 36),
        ("unused field of a record", with(single(13), 90, &[1]), Reserved, 90),
        ("unused field of a reset", with(reset(), 29, &[1]), Reserved, 29),
        ("unused field of init", with(init(), 100, &[1]), Reserved, 100),
    ]
}

/// The same of bearers, of connections, of messages to several, and of names.
#[rustfmt::skip]
fn table_of_connections() -> Vec<(&'static str, Vec<u8>, Fault, u16)> {
    use Fault::*;
    vec![
        ("bearer 16 is set", with(single(31), 32, &[16]), Value, 32),
        ("bearer neither there nor gone", with(single(31), 33, &[2]), Value, 33),
        ("bearer with an address of 25 bytes", with(single(31), 40, &[25]), Value, 40),
        ("bearer that is gone and has an MTU", with(single(32), 34, &[1]), Reserved, 34),
        ("unused field of a bearer", with(single(31), 41, &[1]), Reserved, 41),
        ("behind the address of a bearer", with(single(31), 55, &[1]), Reserved, 55),
        ("connection's end in the lower half", with(single(20), 35, &[0]), Value, 32),
        ("connect to the asking end", with(single(20), 35, &[0xC0]), Value, 32),
        ("connect from a connection", with(single(20), 39, &[0x80]), Value, 36),
        ("connect to port 0", with(single(20), 40, &[0; 4]), Value, 40),
        ("accept at the accepting end", with(single(21), 35, &[0x80]), Value, 32),
        ("accepted by port 0", with(single(21), 36, &[0; 4]), Value, 36),
        ("connection refused for no known reason", with(single(22), 40, &[9]), Value, 40),
        ("shutdown of a port", with(single(23), 35, &[0]), Value, 32),
        ("multicast range upside down", with(single(24), 40, &[10]), Value, 44),
        ("piece beyond its multicast", with(single(25), 48, &[15]), Value, 52),
        ("tag in a later piece of a multicast", with(single(25), 25, &[0x0A]), Value, 25),
        ("multicast without order", with(single(24), 25, &[0x0D]), Reserved, 25),
        ("service of a connect without one", with(single(20), 25, &[0x05]), Reserved, 56),
        ("accepted and refused", with(single(22), 36, &[7]), Reserved, 36),
        ("reason of an acceptance", with(single(21), 40, &[1]), Reserved, 40),
        ("unused field of a shutdown", with(single(23), 40, &[1]), Reserved, 40),
        ("unused flag of a record", with(single(13), 83, &[2]), Reserved, 83),
        ("digest that says nothing known", with(single(26), 25, &[3]), Value, 25),
        ("digest of nobody's log", with(single(26), 32, &[0; 8]), Value, 32),
        ("unused flag of a digest", with(single(26), 25, &[4]), Reserved, 25),
    ]
}

#[test]
fn every_kind_of_fault_is_told_apart_and_placed() {
    let mut kinds = BTreeSet::new();
    for (name, packet, what, offset) in table().into_iter().chain(table_of_connections()) {
        assert_eq!(fault_of(&packet), Some(Malformed { what, offset }), "{name}");
        assert!(describe(&packet).contains("malformed"), "{name}: {}", describe(&packet));
        kinds.insert(what.index());
    }
    assert_eq!(kinds, (0..Fault::KINDS).collect(), "each kind is reached by the table");
}

#[test]
fn valid_packets_have_no_fault() {
    for packet in samples::packets() {
        assert_eq!(fault_of(&packet), None, "{}", describe(&packet));
        assert!(!describe(&packet).contains("malformed"));
    }
    assert_eq!(fault_of(&bindings(28)), None);
}

#[test]
fn unknown_skippable_frames_and_parameters_are_skipped() {
    let unknown = with(single(17), 24, &[0x7F]);
    let frames: Vec<_> = Frames::new(&unknown[HEADER_BYTES..], HEADER_BYTES).collect();
    assert_eq!(frames, [Ok(Frame::Skipped(0x7F))]);
    let init = with(init(), 104, &[0x7F]);
    let expected = Hello { name: Default::default(), ..samples::hello() };
    assert_eq!(verify(&init).and_then(|_| Hello::parse(&init[HEADER_BYTES..])), Ok(expected));
}

#[test]
fn frames_after_a_fault_are_not_read() {
    let mut body = emitted(|out| samples::frames(&[])[7].emit(out));
    let good = body.clone();
    body[25 - 24] = 1;
    body.extend(good);
    let frames: Vec<_> = Frames::new(&body, HEADER_BYTES).collect();
    assert_eq!(frames, [Err(Malformed { what: Fault::Reserved, offset: 25 })]);
}

#[test]
fn the_last_frame_needs_no_padding() {
    let whole = single(0);
    let mut short = whole[..42].to_vec();
    finish(&mut short).unwrap();
    assert!(verify(&short).is_ok());
    let read = |packet: &[u8]| {
        Frames::new(&packet[HEADER_BYTES..], HEADER_BYTES).map(|f| format!("{f:?}")).collect::<Vec<_>>()
    };
    assert_eq!(read(&short), read(&whole));
}

#[test]
fn a_node_of_another_version_can_be_named() {
    for mut packet in [
        emitted(|out| samples::beacon().emit_packet(1, out)),
        emitted(|out| samples::versions().emit_packet(1, out)),
    ] {
        packet[0] = 0x70 | packet[0] & 0x0F;
        packet.extend([1, 2, 3]);
        put_check(&mut packet, 0);
        let check = check_of(&packet);
        put_check(&mut packet, check);
        assert_eq!(verify(&packet).unwrap_err().what, Fault::Version(7));
        assert_eq!(peek_version(&packet), Some(7));
        let header = verify_any_version(&packet).unwrap();
        assert_eq!(Some(header.kind), peek_type(&packet));
        let body = &packet[HEADER_BYTES..];
        let node = Beacon::parse(body).map(|b| b.node).or_else(|_| Versions::parse(body).map(|v| v.node));
        assert_eq!(node, Ok(samples::beacon().node));
        packet[30] ^= 1;
        assert_eq!(verify_any_version(&packet).unwrap_err().what, Fault::Checksum);
    }
    let data = raw(single(0), 0, 0x70);
    assert_eq!(verify_any_version(&data).unwrap_err().what, Fault::Version(7));
    assert_eq!((peek_version(&[]), peek_type(&[0x1F])), (None, None));
}
