//! How much left over each link from step to step: which link carries what while others are away, and after their return.

use super::reuse::Look;

/// Bytes that left over each link in each of `steps` steps of `step_ns` from `from_ns` on, a list for each link; none where nobody
/// looked twice. Between two looks a link is taken to have sent evenly, for nobody can say more.
pub(crate) fn schedule(looks: &[Look], from_ns: u64, step_ns: u64, steps: usize) -> Vec<Vec<f64>> {
    let links = match looks {
        [first, .., last] => first.bytes.len().min(last.bytes.len()),
        _ => return Vec::new(),
    };
    let of_link = |link: usize| {
        let ends =
            (0..=steps as u64).map(|step| sent_bytes(looks, link, from_ns.saturating_add(step * step_ns)));
        let ends: Vec<f64> = ends.collect();
        ends.windows(2).map(|pair| (pair[1] - pair[0]).max(0.0)).collect()
    };
    (0..links).map(of_link).collect()
}

/// Bytes that had left over a link at a time; before the first look and after the last one, those of that look.
fn sent_bytes(looks: &[Look], link: usize, at_ns: u64) -> f64 {
    let bytes = |look: &Look| look.bytes.get(link).copied().unwrap_or_default() as f64;
    let next = looks.partition_point(|look| look.at_ns < at_ns);
    match (next.checked_sub(1).map(|before| &looks[before]), looks.get(next)) {
        (Some(before), Some(after)) => {
            let span_ns = after.at_ns.saturating_sub(before.at_ns).max(1) as f64;
            let share = (at_ns.saturating_sub(before.at_ns) as f64 / span_ns).min(1.0);
            bytes(before) + share * (bytes(after) - bytes(before))
        }
        (Some(only), None) | (None, Some(only)) => bytes(only),
        (None, None) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(at_ns: u64, bytes: [u64; 2]) -> Look {
        Look { at_ns, bytes: bytes.to_vec() }
    }

    #[test]
    fn what_left_between_two_looks_is_spread_over_the_steps_between_them() {
        let looks = [look(100, [0, 1_000]), look(300, [2_000, 1_000]), look(350, [2_000, 1_500])];
        let seen = schedule(&looks, 100, 100, 3);
        assert_eq!(seen, [vec![1_000.0, 1_000.0, 0.0], vec![0.0, 0.0, 500.0]]);
        assert_eq!(schedule(&looks, 200, 100, 1), [[1_000.0], [0.0]], "half of what left from 100 to 300");
    }

    #[test]
    fn nobody_knows_what_left_before_the_first_look_and_after_the_last() {
        let looks = [look(200, [500, 0]), look(300, [600, 0])];
        assert_eq!(schedule(&looks, 0, 100, 5)[0], [0.0, 0.0, 100.0, 0.0, 0.0]);
        assert!(schedule(&looks[..1], 0, 100, 5).is_empty() && schedule(&[], 0, 100, 5).is_empty());
    }

    #[test]
    fn a_device_that_counts_anew_has_sent_nothing_and_not_less() {
        let looks = [look(0, [900, 0]), look(100, [0, 50])];
        assert_eq!(schedule(&looks, 0, 100, 1), [[0.0], [50.0]]);
    }
}
