//! Patterns as a shell has them, for names of interfaces.

/// Whether `name` is what `pattern` means: `*` stands for any characters, also none, `?` for one, `[0-3x]` for one of these
/// and `[!0-3]` for one that is none of these. A `[` that nothing closes stands for itself.
pub(super) fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match pattern.split_first() {
        None => name.is_empty(),
        // Several of them are one. More cuts than a name of 15 letters has are never tried.
        Some((b'*', [b'*', ..])) => matches(&pattern[1..], name),
        Some((b'*', rest)) => (0..=name.len()).any(|skipped| matches(rest, &name[skipped..])),
        Some((first, rest)) => {
            let Some((byte, left)) = name.split_first() else { return false };
            let (is_it, rest) = match (first, set(rest)) {
                (b'?', _) => (true, rest),
                (b'[', Some((set, rest))) => (is_in(set, *byte), rest),
                _ => (first == byte, rest),
            };
            is_it && matches(rest, left)
        }
    }
}

/// What stands in brackets, of which the first is gone already, and what follows them.
fn set(pattern: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = pattern.iter().position(|&byte| byte == b']').filter(|&end| end > 0)?;
    Some((&pattern[..end], &pattern[end + 1..]))
}

fn is_in(set: &[u8], byte: u8) -> bool {
    let (negated, mut left) = match set.split_first() {
        Some((b'!', rest)) => (true, rest),
        _ => (false, set),
    };
    let mut found = false;
    while let Some((&low, rest)) = left.split_first() {
        let high = match rest {
            [b'-', high, ..] => *high,
            _ => low,
        };
        found |= (low..=high).contains(&byte);
        left = if let [b'-', _, rest @ ..] = rest { rest } else { rest };
    }
    found != negated
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_a_shell_means() {
        let cases = [
            ("eth0", "eth0", true),
            ("eth", "eth0", false),
            ("eth*", "eth", true),
            ("e*0", "eth10", true),
            ("e*0", "eth1", false),
            ("*", "", true),
            ("**h**", "eth0", true),
            ("eth?", "eth0", true),
            ("eth?", "eth", false),
            ("eth?", "eth10", false),
            ("eth[0-2]", "eth2", true),
            ("eth[0-2]", "eth3", false),
            ("eth[!0-2]", "eth3", true),
            ("eth[!0-2]", "eth1", false),
            ("eth[13-5x]", "ethx", true),
            ("eth[13-5x]", "eth2", false),
            ("eth[1-3]*", "eth2.100", true),
            ("eth[", "eth[", true),
            ("eth[]", "eth[]", true),
        ];
        for (pattern, name, expected) in cases {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn a_pattern_of_many_stars_ends() {
        let pattern = "*a".repeat(31);
        assert!(!matches(pattern.as_bytes(), b"aaaaaaaaaaaaaab"));
    }
}
