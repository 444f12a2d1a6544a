//! Numbers that look drawn and are the same from the same seed (SplitMix64) or the same bytes (FNV-1a).

/// From one state of the sequence to the next.
pub(crate) const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;

/// What follows state `value`: every bit of it depends on every bit of `value`.
pub(crate) fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(STRIDE);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// 64-bit FNV-1a.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ *b as u64).wrapping_mul(0x0000_0100_0000_01b3))
}
