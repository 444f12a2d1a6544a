//! What links can do, reckoned: throughput, the time of a message, and the least that it needs. Nothing here looks at a clock or
//! a link.

/// Frames are counted by token buckets with their Ethernet header and without what precedes and follows them.
pub(crate) const FRAME_BYTES: f64 = 1_514.0;

/// A link as one message finds it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Lane {
    /// Bytes per second.
    pub(crate) rate: f64,
    /// What passes at once, before the rate holds.
    pub(crate) tokens_bytes: f64,
    /// How much later than by the nearest link everything arrives by this one.
    pub(crate) behind_ns: f64,
}

/// Bytes on the wire of a message of `size` bytes in full packets with a payload of `payload` bytes each.
pub(crate) fn wire_bytes(size: usize, payload: usize) -> f64 {
    let header = FRAME_BYTES - payload as f64;
    size as f64 + size.div_ceil(payload) as f64 * header
}

/// The least time in which so many bytes pass, divided among the links so that all end together, in ns.
pub(crate) fn least_ns(lanes: &[Lane], bytes: f64) -> f64 {
    let mut lanes = lanes.to_vec();
    lanes.sort_by(|a, b| a.behind_ns.total_cmp(&b.behind_ns));
    let (mut rate, mut passed) = (0.0, 0.0);
    let mut end_ns = f64::INFINITY;
    for lane in &lanes {
        if end_ns <= lane.behind_ns {
            break;
        }
        // As if its bytes had begun to pass at 0: what it did not carry until it begins is taken off.
        rate += lane.rate / 1e9;
        passed += lane.tokens_bytes - lane.rate / 1e9 * lane.behind_ns;
        end_ns = ((bytes - passed) / rate).max(lane.behind_ns);
    }
    end_ns
}

/// What goes over links together: what they carry, or what a core for each side can, whichever is less.
pub(crate) fn throughput(links: f64, cpu: Option<f64>) -> f64 {
    cpu.map_or(links, |cpu| cpu.min(links))
}

/// The time of a message of `bytes` alone, in ns: what any message takes, its bytes at the links' rates together, and what it costs
/// to share it among them.
pub(crate) fn message_ns(base_ns: f64, bytes: f64, bytes_per_ns: f64, split_ns: f64) -> f64 {
    base_ns + bytes / bytes_per_ns + split_ns
}

/// The size in bytes from which two links of `bytes_per_ns` each take a message `gain` times as fast as one of them.
pub(crate) fn two_link_size(gain: f64, bytes_per_ns: f64, base_ns: f64, split_ns: f64) -> f64 {
    bytes_per_ns * (base_ns * (1.0 - 1.0 / gain) + split_ns) / (1.0 / gain - 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIGABIT: f64 = 125e6;

    fn lane(rate: f64, tokens_bytes: f64, behind_ns: f64) -> Lane {
        Lane { rate, tokens_bytes, behind_ns }
    }

    #[test]
    fn packets_of_a_message_have_a_header_each() {
        assert_eq!(wire_bytes(1_432, 1_432), 1_514.0);
        assert_eq!(wire_bytes(1_433, 1_432), 1_433.0 + 2.0 * 82.0);
    }

    #[test]
    fn the_slower_of_links_and_cores_is_what_goes() {
        assert_eq!((throughput(1_892.0, None), throughput(1_892.0, Some(48_000.0))), (1_892.0, 1_892.0));
        assert_eq!(throughput(18_900.0, Some(14_000.0)), 14_000.0);
    }

    /// The sizes that were reckoned by hand for links of 1, 10 and 100 Gbit/s, with an efficiency of 0.946.
    #[test]
    fn two_links_pay_from_the_sizes_that_were_reckoned_by_hand() {
        let links = [
            (0.1183, 100_000.0, 12_000.0, [32e3, 270e3, 1.4e6]),
            (1.183, 40_000.0, 2_000.0, [110e3, 0.94e6, 5.1e6]),
            (11.83, 25_000.0, 1_000.0, [0.66e6, 5.8e6, 31e6]),
        ];
        for (bytes_per_ns, base_ns, split_ns, sizes) in links {
            for (gain, by_hand) in [1.5, 1.9, 1.98].into_iter().zip(sizes) {
                let size = two_link_size(gain, bytes_per_ns, base_ns, split_ns);
                assert!((size / by_hand - 1.0).abs() < 0.05, "{gain}: {size}, by hand {by_hand}");
                let one = message_ns(base_ns, size, bytes_per_ns, 0.0);
                let two = message_ns(base_ns, size, 2.0 * bytes_per_ns, split_ns);
                assert!((one / two - gain).abs() < 1e-9, "{one} {two}");
            }
        }
    }

    #[test]
    fn links_end_together_whatever_their_rates_tokens_and_distances() {
        let empty = lane(GIGABIT, 0.0, 0.0);
        assert_eq!(least_ns(&[empty], 125_000.0), 1e6);
        assert_eq!(least_ns(&[empty, empty], 125_000.0), 5e5);
        let quarter = lane(GIGABIT / 4.0, 0.0, 0.0);
        assert_eq!(least_ns(&[empty, quarter], 125_000.0), 8e5);
        let some = lane(GIGABIT, 25_000.0, 0.0);
        assert_eq!(least_ns(&[empty, some], 125_000.0), 4e5);
        assert_eq!(least_ns(&[some], 25_000.0), 0.0, "all of it passes at once");
        // 1 ms farther away: it helps with what is left after 1 ms.
        let far = lane(GIGABIT, 0.0, 1e6);
        assert_eq!(least_ns(&[far, empty], 375_000.0), 2e6);
        assert_eq!(least_ns(&[far, empty], 100_000.0), 8e5, "it cannot help");
    }
}
