//! What links can do, reckoned: the least time that a message needs. Nothing here looks at a clock or a link.

/// Frames are counted by token buckets with their Ethernet header and without what precedes and follows them.
const FRAME_BYTES: f64 = 1_514.0;

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
