//! Damage to a recorded packet. Most of it is followed by a right checksum, so that it gets past the door.

use super::live::Live;
use crate::world::random::Random;
use polyrail_proto::wire::{self, HEADER_BYTES};

/// A damaged copy of `packet`; `other` lends bytes and frames.
pub fn mutate(random: &mut Random, packet: &[u8], other: &[u8], live: &Live) -> Vec<u8> {
    let mut out = packet.to_vec();
    if random.one_in(3) {
        aim(random, &mut out, live);
    }
    let mut repaired = !random.one_in(12);
    for _ in 0..1 + random.below(3) {
        match random.below(14) {
            0 | 1 => flip(random, &mut out),
            2 => cut(random, &mut out),
            3 => grow(random, &mut out),
            4 => header(random, &mut out),
            5 | 6 => number(random, &mut out),
            7 => length(random, &mut out),
            8 => shuffle(random, &mut out),
            9 => join(random, &mut out, other),
            10 => repeat_frame(random, &mut out),
            11 => out.clone_from(&other.to_vec()),
            12 => frame_byte(random, &mut out),
            _ => repaired &= !random.one_in(4),
        }
    }
    if repaired {
        // Where the frames can't be walked there is no right checksum; that is refused too.
        let _ = wire::finish(&mut out);
    }
    out
}

/// Makes a packet of another session, link or time one that the victim looks into.
pub fn aim(random: &mut Random, packet: &mut [u8], live: &Live) {
    if packet.len() < HEADER_BYTES || packet[0] & 0x0F != 0 {
        return;
    }
    let (link, next, _) = live.link(random);
    packet[2..4].copy_from_slice(&link.to_le_bytes());
    packet[4..8].copy_from_slice(&live.to.to_le_bytes());
    let ahead = if random.one_in(4) { random.below(40) as u64 } else { 0 };
    packet[8..16].copy_from_slice(&(next + ahead).to_le_bytes());
    let _ = wire::finish(packet);
}

/// Starts of the frames, or of the parameters of INIT and RESP, as far as they can be walked.
fn starts(packet: &[u8]) -> Vec<usize> {
    let mut at = if packet.first().is_some_and(|b| b & 0x0F == 0) { HEADER_BYTES } else { 104 };
    let mut starts = Vec::new();
    while at + 4 <= packet.len() && packet[at] != 0 {
        starts.push(at);
        at += usize::from(u16::from_le_bytes([packet[at + 2], packet[at + 3]])).next_multiple_of(8).max(8);
    }
    starts
}

/// The bytes of one frame with its padding.
fn frame_at(packet: &[u8], starts: &[usize], index: usize) -> Vec<u8> {
    let end = starts.get(index + 1).copied().unwrap_or(packet.len());
    packet[starts[index]..end.min(packet.len())].to_vec()
}

fn flip(random: &mut Random, packet: &mut [u8]) {
    if let Some(byte) = packet.len().checked_sub(1).map(|_| random.below(packet.len())) {
        packet[byte] ^= 1 << random.below(8);
    }
}

fn cut(random: &mut Random, packet: &mut Vec<u8>) {
    let at = random.below(packet.len() + 1);
    packet.truncate(if random.one_in(2) { at & !7 } else { at });
}

fn grow(random: &mut Random, packet: &mut Vec<u8>) {
    let byte = if random.one_in(2) { 0 } else { random.next() as u8 };
    packet.resize(packet.len() + random.below(64), byte);
}

fn header(random: &mut Random, packet: &mut [u8]) {
    if packet.len() < HEADER_BYTES {
        return;
    }
    match random.below(7) {
        0 => packet[0] = random.next() as u8,
        1 => packet[0] = 0x10 | random.below(8) as u8,
        2 => packet[1] ^= 1 << random.below(8),
        3 => packet[2..4].copy_from_slice(&(random.below(24) as u16).to_le_bytes()),
        4 => packet[4..8].copy_from_slice(&(random.odd_number() as u32).to_le_bytes()),
        5 => {
            // A far number takes the link out of the attack for good, so it comes rarely.
            let far = if random.one_in(40) { random.odd_number() } else { random.below(20_000) as u64 };
            packet[8..16].copy_from_slice(&far.to_le_bytes());
        }
        _ => packet[16..20].copy_from_slice(&(random.odd_number() as u32).to_le_bytes()),
    }
}

/// A field of 2, 4 or 8 bytes becomes a number at a bound.
fn number(random: &mut Random, packet: &mut [u8]) {
    let width = random.pick(&[2, 4, 4, 8]);
    if packet.len() < HEADER_BYTES + width {
        return;
    }
    // Near the start of a frame, where its numbers are, more often than in its payload.
    let starts = starts(packet);
    let at = match starts.get(random.below(starts.len())) {
        Some(start) if !random.one_in(4) => start + 4 * random.below(12),
        _ => HEADER_BYTES + random.below(packet.len() - HEADER_BYTES),
    };
    let at = at.min(packet.len() - width);
    let value = random.odd_number().to_le_bytes();
    packet[at..at + width].copy_from_slice(&value[..width]);
}

fn length(random: &mut Random, packet: &mut [u8]) {
    let starts = starts(packet);
    if let Some(&start) = starts.get(random.below(starts.len())) {
        let old = u16::from_le_bytes([packet[start + 2], packet[start + 3]]);
        let near = old.wrapping_add(random.below(17) as u16).wrapping_sub(8);
        let value = if random.one_in(3) { random.odd_number() as u16 } else { near };
        packet[start + 2..start + 4].copy_from_slice(&value.to_le_bytes());
    }
}

/// Another type or other flags of a frame.
fn frame_byte(random: &mut Random, packet: &mut [u8]) {
    let starts = starts(packet);
    if let Some(&start) = starts.get(random.below(starts.len())) {
        match random.below(3) {
            0 => packet[start] = random.below(0x30) as u8,
            1 => packet[start] = random.next() as u8,
            _ => packet[start + 1] ^= 1 << random.below(8),
        }
    }
}

/// The frames in another order, or without one of them.
fn shuffle(random: &mut Random, packet: &mut Vec<u8>) {
    let starts = starts(packet);
    if starts.is_empty() {
        return;
    }
    let mut frames: Vec<Vec<u8>> = (0..starts.len()).map(|i| frame_at(packet, &starts, i)).collect();
    let (a, b) = (random.below(frames.len()), random.below(frames.len()));
    if a == b {
        frames.remove(a);
    } else {
        frames.swap(a, b);
    }
    packet.truncate(starts[0]);
    frames.iter().for_each(|frame| packet.extend(frame));
}

fn repeat_frame(random: &mut Random, packet: &mut Vec<u8>) {
    let starts = starts(packet);
    if !starts.is_empty() {
        let frame = frame_at(packet, &starts, random.below(starts.len()));
        let times = 1 + random.below(4);
        (0..times).for_each(|_| packet.extend(&frame));
        packet.truncate(60_000);
    }
}

/// The frames of two packets in one.
fn join(random: &mut Random, packet: &mut Vec<u8>, other: &[u8]) {
    let starts = starts(other);
    if let Some(&from) = starts.get(random.below(starts.len())) {
        packet.resize(packet.len().next_multiple_of(8), 0);
        packet.extend(&other[from..]);
        packet.truncate(60_000);
    }
}
