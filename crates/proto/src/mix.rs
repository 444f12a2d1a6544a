//! SplitMix64: numbers that look drawn, the same from the same seed.

/// From one state of the sequence to the next.
pub(crate) const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;

/// What follows state `value`: every bit of it depends on every bit of `value`.
pub(crate) fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(STRIDE);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
