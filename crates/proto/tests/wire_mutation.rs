//! Valid packets, damaged at random: no damage makes the parser panic, and none outside of a payload goes unnoticed.
//!
//! `POLYRAIL_MUTATIONS` sets the number of damaged packets, `POLYRAIL_MUTATION_SEED` repeats a run.

#[path = "wire/samples.rs"]
mod samples;

use polyrail_proto::wire::*;
use std::ops::Range;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Starts of the frames (or parameters) of an undamaged packet, found without the parser.
fn starts(packet: &[u8]) -> Vec<usize> {
    let mut at = if packet[0] & 0x0F == 0 { 24 } else { 104 };
    let mut starts = Vec::new();
    while at + 4 <= packet.len() && packet[at] != 0 {
        starts.push(at);
        at += usize::from(u16::from_le_bytes([packet[at + 2], packet[at + 3]])).next_multiple_of(8).max(8);
    }
    starts
}

/// The payload bytes of an undamaged packet that its checksum leaves out, found without the parser.
fn payloads(packet: &[u8]) -> Vec<Range<usize>> {
    let full_check = packet[1] & 4 != 0;
    if packet[0] & 0x0F != 0 || full_check {
        return Vec::new();
    }
    let range = |&at: &usize| {
        let fixed = match packet[at] {
            1 | 3 => 16,
            2 => 24,
            0x23 => 32,
            _ => return None,
        };
        let options = if packet[at] == 3 { 0 } else { (packet[at + 1] & 0x28).count_ones() as usize * 8 };
        let len = usize::from(u16::from_le_bytes([packet[at + 2], packet[at + 3]]));
        Some(at + fixed + options..at + len)
    };
    starts(packet).iter().filter_map(range).collect()
}

fn mutate(random: &mut Random, packet: &mut Vec<u8>, starts: &[usize], other: &[u8]) {
    let at = random.below(packet.len());
    match random.below(9) {
        0 | 1 if !packet.is_empty() => packet[at] ^= 1 << random.below(8),
        2 if !packet.is_empty() => packet[at] = random.next() as u8,
        3 => packet.truncate(at),
        4 => packet.extend((0..random.below(40)).map(|_| 0)),
        5 if at >= HEADER_BYTES => {
            // The tail of another packet.
            packet.truncate(at & !7);
            packet.extend_from_slice(&other[other.len().min(24 + random.below(other.len()))..]);
        }
        6 | 7 => {
            // Type, flags or length of a frame.
            let Some(&start) = starts.get(random.below(starts.len())) else { return };
            let value =
                [random.below(64), random.below(65_536), random.below(packet.len())][random.below(3)] as u16;
            match packet.get_mut(start..start + 4) {
                Some(head) if random.below(3) == 0 => head[random.below(2)] = value as u8,
                Some(head) => head[2..].copy_from_slice(&value.to_le_bytes()),
                None => {}
            }
        }
        _ => {
            // A stretch of the packet, once more.
            let len = random.below(packet.len() - at.min(packet.len())).min(64);
            let copy = packet[at..at + len].to_vec();
            let to = random.below(packet.len());
            packet.splice(to..to, copy);
        }
    }
}

/// Reads a packet as a receiver does, notes what is wrong with it, and checks that what was read is emitted alike.
fn receive(packet: &[u8], reached: &mut [u64; Fault::KINDS]) -> Result<Header, Malformed> {
    let mut note = |malformed: Malformed| {
        reached[malformed.what.index()] += 1;
        assert!(usize::from(malformed.offset) <= packet.len(), "{malformed} in {} bytes", packet.len());
        malformed
    };
    let _ = verify_any_version(packet);
    let header = verify(packet).map_err(&mut note)?;
    let body = &packet[HEADER_BYTES..];
    match header.kind {
        PacketType::Data if header.has(FLAG_SEALED) => {
            seal::split_sealed(packet).map_err(&mut note)?;
        }
        PacketType::Data => {
            for frame in Frames::new(body, HEADER_BYTES) {
                expect_stable(&frame.map_err(&mut note)?);
            }
        }
        PacketType::Init | PacketType::Resp => {
            let hello = Hello::parse(body).map_err(&mut note)?;
            let again = samples::emitted(|out| hello.emit_packet(header.kind, header.to, header.stamp, out));
            assert_eq!(Hello::parse(&again[HEADER_BYTES..]), Ok(hello));
        }
        PacketType::Beacon => _ = Beacon::parse(body).map_err(&mut note)?,
        PacketType::Versions => _ = Versions::parse(body).map_err(&mut note)?,
        PacketType::Reset => _ = Reset::parse(body).map_err(&mut note)?,
        PacketType::Cookie => {}
    }
    Ok(header)
}

fn expect_stable(frame: &Frame<'_>) {
    if matches!(frame, Frame::Ack(ack) if ack.largest - ack.ranges[0].0 > u64::from(u32::MAX)) {
        return; // More than the first range can say in one frame; emit clips it.
    }
    let bytes = samples::emitted(|out| frame.emit(out));
    assert_eq!(bytes.len(), frame.emitted_bytes());
    assert_eq!(Frames::new(&bytes, HEADER_BYTES).next(), Some(Ok(frame.clone())));
}

/// Whether `damaged` differs from `packet` in payload bytes only.
fn only_payload_differs(packet: &[u8], damaged: &[u8], payloads: &[Range<usize>]) -> bool {
    packet.len() == damaged.len()
        && (0..packet.len())
            .all(|at| packet[at] == damaged[at] || payloads.iter().any(|range| range.contains(&at)))
}

#[test]
fn damaged_packets_are_noticed_and_never_panic() {
    let (count, seed) = (setting("POLYRAIL_MUTATIONS", 200_000), setting("POLYRAIL_MUTATION_SEED", 1));
    println!("seed {seed}, {count} packets");
    let packets = samples::packets();
    let mut random = Random(seed);
    let mut reached = [0; Fault::KINDS];
    let mut accepted = 0;
    for round in 0..count {
        let original = &packets[random.below(packets.len())];
        let other = &packets[random.below(packets.len())];
        let mut damaged = original.clone();
        for _ in 0..1 + random.below(3) {
            mutate(&mut random, &mut damaged, &starts(original), other);
        }
        // With its checksum made right again, half of the damage reaches what lies behind the check.
        let repaired = random.below(2) == 0 && finish(&mut damaged).is_ok();
        let result = receive(&damaged, &mut reached);
        // Of a packet that claims to be sealed only its opening tells.
        let plain = verify(&damaged).is_ok_and(|header| !header.has(FLAG_SEALED));
        if !repaired && plain {
            accepted += 1;
            let allowed = only_payload_differs(original, &damaged, &payloads(original));
            assert!(allowed, "seed {seed} round {round}: {result:?}\n{original:02x?}\n{damaged:02x?}");
        }
        if round % 16 == 0 {
            assert_eq!(describe(&damaged).contains("malformed"), result.is_err(), "{}", describe(&damaged));
        }
    }
    println!("reached {reached:?}, accepted {accepted}");
    if count >= 50_000 {
        assert!(reached.iter().all(|&times| times > 0), "a kind of fault was never reached: {reached:?}");
        assert!(accepted > 0, "damage in payloads only was never tried");
    }
}
