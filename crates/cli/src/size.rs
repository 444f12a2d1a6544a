//! Byte counts and spans of time on the command line.

use std::time::Duration;

/// Reads `4096`, `64K`, `100M`, `1G`, also `KiB`, `MiB`, `GiB`; the letters stand for powers of 1024.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let shift = match &text[digits..] {
        "" | "B" => Some(0),
        "K" | "KiB" => Some(10),
        "M" | "MiB" => Some(20),
        "G" | "GiB" => Some(30),
        _ => None,
    };
    let bytes = text[..digits].parse::<u64>().ok().zip(shift);
    let bytes = bytes.and_then(|(number, shift)| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| "no number of bytes; allowed: a number, or one with K, M, G (powers of 1024)".into())
}

/// Reads `1500ms`, `2s`, `5m` or `2` (seconds; a fraction is allowed).
pub fn parse_span(text: &str) -> Result<Duration, String> {
    let unit = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let seconds = match &text[unit..] {
        "" | "s" => Some(1.0),
        "ms" => Some(0.001),
        "us" => Some(0.000_001),
        "m" => Some(60.0),
        _ => None,
    };
    let span = text[..unit].parse::<f64>().ok().zip(seconds);
    let span = span.and_then(|(number, seconds)| Duration::try_from_secs_f64(number * seconds).ok());
    span.ok_or_else(|| "no span of time; allowed: seconds as 2 or 0.5, or a number with us, ms, s, m".into())
}

/// A byte count for people, in powers of 1024.
pub fn show_bytes(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.into_iter().find(|(shift, _)| bytes >= 1 << shift) {
        Some((shift, unit)) => format!("{:.1} {unit}", bytes as f64 / (1u64 << shift) as f64),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_powers_of_1024() {
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert_eq!(parse_bytes("64K"), Ok(65_536));
        assert_eq!(parse_bytes("1GiB"), Ok(1 << 30));
        for wrong in ["", "K", "1T", "-1", "1.5M", "99999999999999999G"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn spans_default_to_seconds() {
        assert_eq!(parse_span("2"), Ok(Duration::from_secs(2)));
        assert_eq!(parse_span("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_span("1500ms"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_span("1m"), Ok(Duration::from_secs(60)));
        for wrong in ["", "s", "1h", "-1", "1..2", "inf"] {
            assert!(parse_span(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn bytes_are_shown_in_their_largest_unit() {
        assert_eq!(show_bytes(999), "999 B");
        assert_eq!(show_bytes(3 << 19), "1.5 MiB");
    }
}
