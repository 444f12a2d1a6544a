//! Where encryption takes hold of a packet (protocol.md §2.4): bytes only, the ciphers are elsewhere.
//!
//! A sealed packet is the same packet with `FLAG_SEALED`: the header in clear as associated data, then the
//! ciphertext of the frames, then the tag.

use super::field::fault;
use super::{Fault, HEADER_BYTES, Malformed, SEAL_BYTES};
use crate::id::LinkId;

/// The nonce of a packet: `iv` XOR (link as u32, packet number as u64), both little-endian. Unique under one key as
/// long as numbers never repeat on a link and link ids are not reused.
pub fn nonce(iv: [u8; 12], link: LinkId, number: u64) -> [u8; 12] {
    let mut nonce = iv;
    for (byte, id) in nonce[..4].iter_mut().zip(u32::from(link.0).to_le_bytes()) {
        *byte ^= id;
    }
    for (byte, count) in nonce[4..].iter_mut().zip(number.to_le_bytes()) {
        *byte ^= count;
    }
    nonce
}

/// The associated data (the header) of a sealed packet, and its ciphertext with the tag at the end.
pub fn split_sealed(packet: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    if packet.len() < HEADER_BYTES + SEAL_BYTES {
        return Err(fault(Fault::Truncated, packet.len()));
    }
    Ok(packet.split_at(HEADER_BYTES))
}

/// As [`split_sealed`], to open the packet in place.
pub fn split_sealed_mut(packet: &mut [u8]) -> Result<(&mut [u8], &mut [u8]), Malformed> {
    if packet.len() < HEADER_BYTES + SEAL_BYTES {
        return Err(fault(Fault::Truncated, packet.len()));
    }
    Ok(packet.split_at_mut(HEADER_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn nonces_differ_by_link_and_by_number() {
        let iv = [0xA5; 12];
        let links = [0, 1, 0x0100, u16::MAX];
        let numbers = [0, 1, 1 << 16, 1 << 32, super::super::PACKET_NUMBER_MAX];
        let all: BTreeSet<_> =
            links.iter().flat_map(|&l| numbers.iter().map(move |&n| nonce(iv, LinkId(l), n))).collect();
        assert_eq!(all.len(), links.len() * numbers.len());
        assert_eq!(nonce([0; 12], LinkId(0x0201), 0x0807_0605_0403), [1, 2, 0, 0, 3, 4, 5, 6, 7, 8, 0, 0]);
    }
}
