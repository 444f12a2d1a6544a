//! Sealed packets (protocol.md §2.4): the layout holds with real ciphers.

#[path = "wire/samples.rs"]
mod samples;

use polyrail_proto::wire::seal::{nonce, split_sealed, split_sealed_mut};
use polyrail_proto::wire::*;
use ring::aead::{AES_128_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

const IV: [u8; 12] = [9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 255, 254];

fn key(algorithm: &'static Algorithm) -> LessSafeKey {
    let bytes: Vec<u8> = (1..=algorithm.key_len() as u8).collect();
    LessSafeKey::new(UnboundKey::new(algorithm, &bytes).expect("the length is the algorithm's"))
}

fn nonce_of(header: &Header) -> Nonce {
    Nonce::assume_unique_for_key(nonce(IV, header.link, header.number))
}

/// The packet with header and frames, sealed.
fn seal(key: &LessSafeKey, frames: &[Frame<'_>]) -> Vec<u8> {
    let header = samples::header(FLAG_SEALED | FLAG_ACK_ELICITING);
    let mut packet = samples::emitted(|out| header.emit(out));
    frames.iter().for_each(|frame| frame.emit(&mut packet));
    let (aad, plaintext) = packet.split_at_mut(HEADER_BYTES);
    let tag =
        key.seal_in_place_separate_tag(nonce_of(&header), Aad::from(aad), plaintext).expect("it is short");
    assert_eq!(tag.as_ref().len(), SEAL_BYTES);
    packet.extend_from_slice(tag.as_ref());
    packet
}

/// What a receiver with the key makes of a packet: its plaintext.
fn open(key: &LessSafeKey, packet: &[u8]) -> Option<Vec<u8>> {
    let header = verify(packet).ok().filter(|header| header.has(FLAG_SEALED))?;
    let mut packet = packet.to_vec();
    let (aad, sealed) = split_sealed_mut(&mut packet).ok()?;
    let plaintext = key.open_in_place(nonce_of(&header), Aad::from(aad), sealed).ok()?;
    Some(plaintext.to_vec())
}

#[test]
fn sealed_packets_open_to_their_frames() {
    let log = samples::bindings_bytes();
    let frames = samples::frames(&log[32..]);
    for algorithm in [&AES_128_GCM, &CHACHA20_POLY1305] {
        let packet = seal(&key(algorithm), &frames);
        assert_eq!(split_sealed(&packet).unwrap().0, &packet[..HEADER_BYTES]);
        let plaintext = open(&key(algorithm), &packet).unwrap();
        let parsed: Result<Vec<_>, _> = Frames::new(&plaintext, HEADER_BYTES).collect();
        assert_eq!(parsed.as_ref(), Ok(&frames));
    }
}

#[test]
fn every_flipped_bit_of_a_sealed_packet_is_noticed() {
    let log = samples::bindings_bytes();
    let frames = samples::frames(&log[32..]);
    for algorithm in [&AES_128_GCM, &CHACHA20_POLY1305] {
        let key = key(algorithm);
        let packet = seal(&key, &frames);
        for bit in 0..packet.len() * 8 {
            let mut flipped = packet.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(open(&key, &flipped), None, "bit {bit}");
        }
        assert!((0..packet.len()).all(|len| open(&key, &packet[..len]).is_none()), "each byte is needed");
    }
}

#[test]
fn the_nonce_ties_a_packet_to_its_link_and_number() {
    let key = key(&CHACHA20_POLY1305);
    let packet = seal(&key, &[Frame::Close(Close { reason: 0 })]);
    let header = verify(&packet).unwrap();
    for other in
        [Header { number: header.number + 1, ..header }, Header { link: Default::default(), ..header }]
    {
        let mut copy = packet.clone();
        let (aad, sealed) = split_sealed_mut(&mut copy).unwrap();
        assert!(key.open_in_place(nonce_of(&other), Aad::from(aad), sealed).is_err());
    }
}
