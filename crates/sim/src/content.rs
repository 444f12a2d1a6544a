//! Contents of messages, made from their number alone: they can be verified without having been stored.

use crate::prng::mix;

const MARK: u64 = 0x504f_4c59_5241_494c;

/// The tag of message `id`, where it has one.
pub const fn tag_of(id: u64) -> u64 {
    id ^ MARK
}

/// The message of tag `tag`.
pub const fn id_of_tag(tag: u64) -> u64 {
    tag ^ MARK
}

/// Bytes of message `id`, `bytes` of them: first its number (veiled), then a stream that only this number gives.
pub fn fill(id: u64, bytes: usize, out: &mut Vec<u8>) {
    out.clear();
    out.reserve(bytes + 8);
    let mut word = id ^ MARK;
    while out.len() < bytes {
        out.extend_from_slice(&word.to_le_bytes());
        word = next(word, id);
    }
    out.truncate(bytes);
}

/// The number that a message of at least 8 bytes claims to have.
pub fn claimed_id(bytes: &[u8]) -> Option<u64> {
    let first = bytes.first_chunk::<8>()?;
    Some(u64::from_le_bytes(*first) ^ MARK)
}

/// The first offset at which `bytes` are not those of message `id`.
pub fn first_difference(id: u64, bytes: &[u8]) -> Option<usize> {
    let mut word = id ^ MARK;
    for (index, chunk) in bytes.chunks(8).enumerate() {
        let expected = word.to_le_bytes();
        if *chunk != expected[..chunk.len()] {
            let inside = chunk.iter().zip(expected).position(|(a, b)| *a != b).unwrap_or(0);
            return Some(index * 8 + inside);
        }
        word = next(word, id);
    }
    None
}

const fn next(word: u64, id: u64) -> u64 {
    // A multiplication and a rotation per 8 bytes; the seed of the stream is mixed once.
    word.rotate_left(23).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ mix(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_tell_messages_apart_and_find_every_altered_byte() {
        let mut bytes = Vec::new();
        for length in [0, 1, 7, 8, 9, 1_432] {
            fill(77, length, &mut bytes);
            assert_eq!(bytes.len(), length);
            assert_eq!(first_difference(77, &bytes), None);
            if length >= 8 {
                assert_eq!(claimed_id(&bytes), Some(77));
                assert_eq!(first_difference(78, &bytes), Some(0));
            }
            for at in 0..length {
                bytes[at] ^= 1;
                assert_eq!(first_difference(77, &bytes), Some(at));
                bytes[at] ^= 1;
            }
        }
        assert_eq!(id_of_tag(tag_of(5)), 5);
    }

    #[test]
    fn the_stream_does_not_repeat_itself() {
        let mut bytes = Vec::new();
        fill(1, 80_000, &mut bytes);
        let mut words: Vec<&[u8]> = bytes.chunks(8).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), 10_000);
    }
}
