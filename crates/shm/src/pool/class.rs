//! Size classes: powers of two up to 1 MiB, then four steps per power.

/// Smallest class.
pub(super) const CLASS_BYTES_MIN: usize = 4 << 10;

const POWERS_UP_TO: usize = 1 << 20;

/// Size of the smallest class that holds `len` bytes; `None` when no memory could.
pub(super) fn class_bytes(len: usize) -> Option<usize> {
    if len <= POWERS_UP_TO {
        return Some(len.max(CLASS_BYTES_MIN).next_power_of_two());
    }
    let step = (1 << (usize::BITS - 1 - (len - 1).leading_zeros())) / 4;
    len.checked_next_multiple_of(step).filter(|&bytes| isize::try_from(bytes).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_what_is_asked_and_waste_at_most_a_fifth_of_large_ones() {
        assert_eq!(class_bytes(0), Some(4096));
        assert_eq!(class_bytes(4097), Some(8192));
        assert_eq!(class_bytes(1 << 20), Some(1 << 20));
        assert_eq!(class_bytes((1 << 20) + 1), Some(5 << 18));
        assert_eq!(class_bytes(2 << 20), Some(2 << 20));
        assert_eq!(class_bytes((2 << 20) + 1), Some(5 << 19));
        assert_eq!(class_bytes((1 << 30) + 1), Some(5 << 28));
        assert_eq!(class_bytes(usize::MAX), None);
        for len in (1..(9 << 20)).step_by(3001) {
            let bytes = class_bytes(len).unwrap();
            assert!(bytes >= len && class_bytes(bytes) == Some(bytes), "{len} {bytes}");
            assert!(len <= 1 << 20 || (bytes - len) * 5 <= bytes, "{len} {bytes}");
        }
    }
}
