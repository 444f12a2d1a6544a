//! Bytes as hexadecimal digits and back, for proofs and seals.

/// Two digits for each byte, small letters.
pub(super) fn encode(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

/// Exactly `N` bytes; `None`: other digits, or another number of them.
pub(super) fn decode<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

fn digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_and_nothing_else_is_taken_for_them() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(decode::<256>(encode(&bytes).as_bytes()).unwrap().as_slice(), bytes);
        for wrong in ["", "0", "0g", "0G", "000", "é"] {
            assert_eq!(decode::<1>(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
